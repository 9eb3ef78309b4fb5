//! The unit of learning: what one example of a data set is. The store keeps examples, the hold-out draws them, packing
//! places them; none of them tears one apart.

/// What an example consists of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Unit {
    /// One text, conversation or completion: one sequence.
    #[default]
    Text,
    /// Two answers to one prompt: the chosen sequence, then the rejected one.
    Pair,
    /// An answer that was judged alone, with its label.
    Judged,
    /// A prompt that the model answers itself, with what rewards compare the answer with.
    Prompt,
}

impl Unit {
    /// Sequences of an example in a batch; they stand next to each other.
    pub fn sequences(self) -> usize {
        match self {
            Unit::Text | Unit::Judged | Unit::Prompt => 1,
            Unit::Pair => 2,
        }
    }

    /// Documents of an example in the store; they stand next to each other. Behind a judged answer stands its label, one id:
    /// 1 is desirable. Behind a prompt stands its reference: the bytes of a JSON object, one for each id.
    pub fn documents(self) -> usize {
        match self {
            Unit::Text => 1,
            Unit::Pair | Unit::Judged | Unit::Prompt => 2,
        }
    }
}
