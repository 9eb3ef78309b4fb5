//! What the checkpoints of a run take on the disk: one sum for the plan, which knows the spec, and for preflight, which knows
//! the model. Where they are kept and when they are deleted is the engine's.

use super::Saves;

/// Files on the disk with the weights under adapters, which all checkpoints of a run share by hard links. Neighbours have
/// different ones, so that damage to the newest leaves the one before it whole.
pub const FROZEN_COPIES: u64 = 2;
/// Of configs, the state, the manifest and the headers of tensor files.
const CONFIGS: u64 = 64 << 10;
/// Of the tokenizer's file for each of its tokens: 20 to 70 bytes in those of GPT-2, Qwen 2.5 and Llama 3.
const PER_TOKEN: u64 = 72;
/// Checkpoints at once where no spec says it: two, the best, and the one being written.
const USUAL: u64 = 4;

/// One checkpoint, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointSize {
    /// What it has for itself.
    pub own: u64,
    /// Weights under adapters, which the checkpoints of a run share by hard links.
    pub shared: u64,
}

impl CheckpointSize {
    /// Of so many bytes of tensors, shared ones among them, and a vocabulary.
    pub fn of(tensors: u64, shared: u64, vocab_size: u64) -> CheckpointSize {
        CheckpointSize {
            own: tensors.saturating_sub(shared) + CONFIGS + PER_TOKEN * vocab_size,
            shared,
        }
    }

    /// The folder as it is listed, shared files included.
    pub fn total(&self) -> u64 {
        self.own + self.shared
    }

    /// All that lie on the disk at once.
    pub fn at_once(&self, kept: Kept) -> u64 {
        self.own * kept.checkpoints + self.shared * kept.copies
    }
}

/// How many checkpoints lie on the disk at once, and how many files of what they share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    pub checkpoints: u64,
    pub copies: u64,
}

impl Kept {
    /// Those of a run that saves so; the usual number where that is not said.
    pub fn of(saves: Option<&Saves>) -> Kept {
        let checkpoints = saves.map_or(USUAL, Saves::at_once);
        // What a rescue gives up is a copy of its own.
        let rescued = saves.map_or(0, Saves::rescued);
        Kept {
            checkpoints,
            copies: (FROZEN_COPIES + rescued).min(checkpoints),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{SpecSources, load};

    #[test]
    fn what_a_run_does_not_save_takes_no_room() {
        let of = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            let loaded = load("quickstart", &words, &SpecSources::default());
            let kept = Kept::of(Some(&loaded.unwrap().spec.saves()));
            (kept.checkpoints, kept.copies)
        };
        let warn = "rescue.policy=warn";
        assert_eq!(of(&["max_steps=1", "checkpoint.every=10", warn]), (1, 1));
        assert_eq!(of(&["max_steps=25", "checkpoint.every=10", warn]), (3, 2));
        assert_eq!(of(&["max_steps=100", "checkpoint.every=10", warn]), (4, 2));
        let acts = "rescue.policy=act";
        assert_eq!(of(&["max_steps=100", "checkpoint.every=10", acts]), (5, 3));
        assert_eq!(Kept::of(None).checkpoints, USUAL);
    }

    #[test]
    fn shared_weights_are_on_the_disk_once_for_each_copy() {
        let size = CheckpointSize::of(100 << 20, 90 << 20, 1_000);
        assert_eq!(size.own, (10 << 20) + CONFIGS + 1_000 * PER_TOKEN);
        assert_eq!(size.total(), size.own + (90 << 20));
        let kept = Kept {
            checkpoints: 4,
            copies: 2,
        };
        assert_eq!(size.at_once(kept), 4 * size.own + 2 * (90 << 20));
    }
}
