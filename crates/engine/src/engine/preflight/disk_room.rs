//! The disk has room for the checkpoints that will be kept, and a fifth more. A checkpoint holds the weights that are here (of a
//! quantized base only what stands beside it), the optimizer's state, and the same of a critic, and of a reference that moves.
//! Weights under adapters are on the disk twice, where it has hard links, and once more where a rescue keeps a copy.

use super::{Check, Finding, Subject};
use crate::base::files::free_space;
use crate::base::human::bytes;
use crate::engine::EngineError;
use crate::engine::checkpoint::disk::{Disk, RealDisk};
use crate::engine::roles::Reference;
use crate::engine::state::TrainState;
use crate::nn::{ParamInfo, Params};
use crate::run::checkpoints::FROZEN_COPIES;
use crate::spec::{RescuePolicy, RunSpec};
use std::fs::File;
use std::path::Path;

pub const CHECK: Check = Check {
    id: "disk_room",
    title: "Room on the disk for the checkpoints",
    computes: false,
    run,
};

/// Of tokenizer, configs, log.
pub const SMALL_FILES: u64 = 4 << 20;
const MARGIN: f64 = 1.2;

fn run(subject: &mut Subject<'_>) -> Result<Finding, EngineError> {
    let free = free_space(subject.room)
        .map_err(|e| EngineError::Machine(format!("{}: {e}", subject.room.display())))?;
    let one = checkpoint_bytes(subject.spec, subject.state);
    let (kept, files) = at_once(subject.spec);
    let params = subject.state.models.policy.params();
    let shared = match params.base_is_frozen() && has_links(subject.room) {
        true => held_bytes(params, params.base()),
        false => 0,
    };
    Ok(judge(free, (one, shared), (kept, files)))
}

/// Checkpoints that lie on the disk at once, and files of what they share.
fn at_once(spec: &RunSpec) -> (u64, u64) {
    let acts = u64::from(spec.rescue.policy == RescuePolicy::Act);
    let kept = spec.checkpoints_at_once();
    // What a rescue gives up is a copy of its own.
    (kept, (FROZEN_COPIES + acts).min(kept))
}

/// Of one checkpoint of this run.
pub fn checkpoint_bytes(spec: &RunSpec, state: &TrainState) -> u64 {
    let all = |params: &Params| held_bytes(params, params.infos());
    let trained = |params: &Params| all(params) + spec.update_bytes(params.infos());
    let critic = state
        .critic
        .as_ref()
        .map_or(0, |critic| trained(critic.params()));
    let anchor = match &state.models.reference {
        Reference::Frozen(model) if spec.rollout.cold_start_steps > 0 => all(model.params()),
        _ => 0,
    };
    trained(state.models.policy.params()) + critic + anchor + SMALL_FILES
}

/// Of those of the weights that are here, in f32.
fn held_bytes(params: &Params, infos: &[ParamInfo]) -> u64 {
    let here = infos.iter().filter(|info| params.place(info).is_some());
    here.map(|info| (info.len * size_of::<f32>()) as u64).sum()
}

/// Whether a file in `folder` can have two names.
fn has_links(folder: &Path) -> bool {
    let dir = tempfile::Builder::new()
        .prefix(".links-")
        .tempdir_in(folder);
    dir.is_ok_and(|dir| {
        let [one, two] = ["one", "two"].map(|name| dir.path().join(name));
        File::create(&one).is_ok() && RealDisk.link(&one, &two).is_ok()
    })
}

/// `one` checkpoint's bytes, and how many of them it shares with the others; how many checkpoints are kept, and how many files
/// there are of what they share.
fn judge(free: u64, (one, shared): (u64, u64), (kept, files): (u64, u64)) -> Finding {
    let needed = (((one - shared) * kept + shared * files) as f64 * MARGIN) as u64;
    let share = match shared {
        0 => String::new(),
        n => format!(" and {files} × {} of weights that they share", bytes(n)),
    };
    let evidence = format!(
        "{} free, {} needed: {kept} × {} of checkpoints{share}, and a fifth more as a margin",
        bytes(free),
        bytes(needed),
        bytes(one - shared)
    );
    if free >= needed {
        return Finding::pass(evidence);
    }
    Finding::fail(
        evidence,
        "the disk fills up before the run ends",
        "free some room, lower checkpoint.keep_last, or put runs elsewhere with --runs-dir",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::finding::Status;

    #[test]
    fn what_a_run_does_not_save_takes_no_room() {
        let of = |steps: &str| {
            let words = [steps, "checkpoint.every=10", "rescue.policy=warn"].map(String::from);
            let loaded = crate::spec::load("quickstart", &words, &Default::default());
            at_once(&loaded.unwrap().spec)
        };
        assert_eq!(of("max_steps=1"), (1, 1));
        assert_eq!(of("max_steps=25"), (3, 2));
        assert_eq!(of("max_steps=100"), (4, 2));
    }

    #[test]
    fn a_fifth_more_than_needed_is_asked_for() {
        assert_eq!(judge(480, (100, 0), (4, 2)).status, Status::Pass);
        let full = judge(479, (100, 0), (4, 2));
        assert_eq!(full.status, Status::Fail);
        assert!(full.fix.contains("keep_last"), "{}", full.fix);
        // Of 100 bytes 90 are on the disk twice: 1.2 · (4 · 10 + 2 · 90).
        assert_eq!(judge(264, (100, 90), (4, 2)).status, Status::Pass);
        assert_eq!(judge(263, (100, 90), (4, 2)).status, Status::Fail);
        // The figures add up: 1.2 · (3 · 32 MiB + 2 · 512 MiB).
        let told = judge(9 << 30, (544 << 20, 512 << 20), (3, 2))
            .evidence
            .to_string();
        assert!(
            told.contains("1.3 GiB needed: 3 × 32 MiB of checkpoints and 2 × 512 MiB"),
            "{told}"
        );
        assert!(told.ends_with("and a fifth more as a margin"), "{told}");
        let dir = tempfile::tempdir().unwrap();
        assert!(!has_links(&dir.path().join("absent")));
    }
}
