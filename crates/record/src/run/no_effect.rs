//! Settings that leave what a model learns as it is: how fast a run goes, where its processes are, how it is logged and watched.

use serde_json::Value;

/// Such settings by their paths. Sums may be grouped differently on other threads or another device, which changes the last digits.
const PATHS: [&str; 15] = [
    "train.log_every",
    "train.threads",
    "train.activation_checkpointing",
    "data.cache",
    "rollout.keep",
    "engine.torch.python",
    "engine.torch.nodes",
    "engine.torch.launcher",
    "engine.torch.program",
    "engine.torch.address",
    "engine.torch.public_address",
    "engine.torch.device",
    "engine.torch.offload",
    "engine.torch.compile",
    "engine.torch.patience",
];
/// Sections of such settings.
const SECTIONS: [&str; 4] = [CHECKPOINT, "sample", "preflight", "health"];
/// The section of the states to which a rescue goes back: see [`rescues`].
const CHECKPOINT: &str = "checkpoint";

/// What settings are called that [`changes_results`] is not true of, above a list of them.
pub const TITLE: &str = "settings that change no result";

/// Whether a run goes back to a checkpoint of its own when it gets unstable: which there are is then part of what it learns.
pub fn rescues(spec: &Value) -> bool {
    spec["rescue"]["policy"] == "act"
}

/// Whether the setting at a path has an influence on what a run learns; `rescued`: [`rescues`] is true of one of the runs.
pub fn changes_results(path: &str, rescued: bool) -> bool {
    let section = path.split('.').next().unwrap_or(path);
    if rescued && section == CHECKPOINT {
        return true;
    }
    let is_in = |known: &&str| {
        let rest = path.strip_prefix(*known);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    !SECTIONS.contains(&section) && !PATHS.iter().any(is_in)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_fast_a_run_goes_and_how_it_is_watched_changes_no_result() {
        for path in [
            "train.threads",
            "train.log_every",
            "train.activation_checkpointing.every_n.n",
            "engine.torch.device",
            "checkpoint.every",
            "sample.sampling.seed",
            "health.every",
        ] {
            assert!(!changes_results(path, false), "{path}");
            let is_state = path.starts_with(CHECKPOINT);
            assert_eq!(changes_results(path, true), is_state, "{path}");
        }
        for path in [
            "optimizer.adamw.lr",
            "train.max_steps",
            "train.log_every_other",
            "engine",
            "engine.torch.precision",
            "eval.every",
            "seed",
            "lr (live)",
        ] {
            assert!(changes_results(path, false), "{path}");
        }
    }
}
