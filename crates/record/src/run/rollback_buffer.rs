//! Readings that roll-backs remove from a fold, kept as long as the undo of a rescue may restore them: rule 6 of the wire,
//! for every fold with readings of steps. What is removed, and how it is restored, is up to the fold.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RollbackBuffer<T> {
    /// By the newest roll-back.
    newest: T,
    /// By the roll-back of the newest rescue.
    by_rescue: T,
}

impl<T: Default> RollbackBuffer<T> {
    /// At `RolledBack`, with what it takes.
    pub fn rolled_back(&mut self, taken: T) {
        self.newest = taken;
    }

    /// At `Rescued`: the roll-back before it was the rescue's.
    pub fn rescued(&mut self) {
        self.by_rescue = std::mem::take(&mut self.newest);
    }

    /// At `RescueUndone`: what counts again, up to its step.
    pub fn undone(&mut self) -> T {
        std::mem::take(&mut self.by_rescue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_undo_brings_back_what_its_rescue_took_and_nothing_else() {
        let mut rewound = RollbackBuffer::default();
        rewound.rolled_back(vec![1]);
        rewound.rolled_back(vec![2]);
        rewound.rescued();
        rewound.rolled_back(vec![3]);
        assert_eq!(rewound.undone(), [2]);
        assert!(rewound.undone().is_empty());
    }
}
