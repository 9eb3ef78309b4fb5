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
}

impl Unit {
    /// Sequences of an example; they stand next to each other in stores and batches.
    pub fn sequences(self) -> usize {
        match self {
            Unit::Text => 1,
            Unit::Pair => 2,
        }
    }
}
