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
}

impl Unit {
    /// Sequences of an example in a batch; they stand next to each other.
    pub fn sequences(self) -> usize {
        match self {
            Unit::Text | Unit::Judged => 1,
            Unit::Pair => 2,
        }
    }

    /// Documents of an example in the store; they stand next to each other. Behind a judged answer stands its label, one id:
    /// 1 is desirable.
    pub fn documents(self) -> usize {
        match self {
            Unit::Text => 1,
            Unit::Pair | Unit::Judged => 2,
        }
    }
}
