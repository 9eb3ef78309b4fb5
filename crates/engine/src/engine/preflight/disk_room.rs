//! The disk has room for the checkpoints that will be kept, plus 20 %: the plan's sum (`spec::CheckpointSize`) for the loaded
//! model. A checkpoint has the trainable weights and the f32 base (of a quantized base only what is trained beside it), the
//! optimizer's state, and the same of a critic and of a reference after a cold start. With hard links, base
//! weights under adapters are on the disk twice for all checkpoints together, and once more if a rescue keeps a copy.

use super::{Check, Finding, Subject};
use crate::base::files::free_space;
use crate::base::human::bytes;
use crate::engine::EngineError;
use crate::engine::checkpoint::disk::{Disk, RealDisk};
use crate::engine::roles::Reference;
use crate::engine::state::TrainState;
use crate::nn::{ParamInfo, Params};
use crate::spec::{CheckpointSize, Kept, RunSpec};
use std::fs::File;
use std::path::Path;

pub const CHECK: Check = Check {
    id: "disk_room",
    title: "Disk space for the checkpoints",
    computes: false,
    run,
};

const MARGIN: f64 = 1.2;

fn run(subject: &mut Subject<'_>) -> Result<Finding, EngineError> {
    let free = free_space(subject.room)
        .map_err(|e| EngineError::Machine(format!("{}: {e}", subject.room.display())))?;
    let one = checkpoint(subject.spec, subject.state, has_links(subject.room));
    Ok(judge(free, one, Kept::of(Some(&subject.spec.saves()))))
}

/// One checkpoint of this run, on a disk with hard links or without.
pub fn checkpoint(spec: &RunSpec, state: &TrainState, links: bool) -> CheckpointSize {
    let all = |params: &Params| held_bytes(params, params.infos());
    // No average of a critic's weights is kept.
    let critic = state.critic.as_ref().map_or(0, |critic| {
        let params = critic.params();
        all(params) + spec.optimizer.saved_bytes(params.infos())
    });
    let policy = &state.models.policy;
    let params = policy.params();
    // A copy of the base that moves during the run, whoever computes with it.
    let moves = spec.rollout.cold_start_steps > 0 || spec.train.sync_ref_model;
    let anchor = match &state.models.reference {
        Reference::Frozen(_) | Reference::FrozenThere(_) if moves => {
            held_bytes(params, params.base())
        }
        _ => 0,
    };
    let shared = match params.base_is_frozen() && links {
        true => held_bytes(params, params.base()),
        false => 0,
    };
    let vocab_size = policy.shape().vocab_size as u64;
    let trained = all(params) + spec.saved_update_bytes(params.infos());
    CheckpointSize::of(trained + critic + anchor, shared, vocab_size)
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

/// Whether there is room for all that lie on the disk at once.
fn judge(free: u64, one: CheckpointSize, kept: Kept) -> Finding {
    let needed = (one.at_once(kept) as f64 * MARGIN) as u64;
    let share = match one.shared {
        0 => String::new(),
        n => format!(" and {} × {} of shared weights", kept.copies, bytes(n)),
    };
    let evidence = format!(
        "{} free, {} needed: {} × {} of checkpoints{share}, plus a fifth as a margin",
        bytes(free),
        bytes(needed),
        kept.checkpoints,
        bytes(one.own)
    );
    if free >= needed {
        return Finding::pass(evidence);
    }
    Finding::fail(
        evidence,
        "the disk fills up before the run ends",
        "free disk space, lower checkpoint.keep_last, or move runs with --runs-dir",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::finding::Status;
    use crate::data::DataEnv;
    use crate::spec::{SpecSources, load};

    /// Ranks keep the reference until a cold start has moved it, and its file was left out.
    #[test]
    fn a_reference_after_a_cold_start_has_a_file_whoever_computes_with_it() {
        let words = ["rollout.cold_start_steps=2", "method.grpo.beta=0.1"].map(String::from);
        let loaded = load("grpo-sort", &words, &SpecSources::default()).unwrap();
        let spec = loaded.spec;
        let data = spec.open_data(&DataEnv::default()).unwrap();
        let mut state = TrainState::fresh(&spec, &data).unwrap();
        let copy = Box::new(state.models.policy.frozen_copy().unwrap());
        let copied = held_bytes(copy.params(), copy.params().infos());
        let mut bytes = |reference| {
            state.models.reference = reference;
            checkpoint(&spec, &state, true).own
        };
        let alone = bytes(Reference::None);
        assert_eq!(bytes(Reference::Frozen(copy)), alone + copied);
        assert_eq!(bytes(Reference::FrozenThere(None)), alone + copied);
    }

    #[test]
    fn a_fifth_more_than_needed_is_asked_for() {
        let found = |free, (own, shared), (checkpoints, copies)| {
            let kept = Kept {
                checkpoints,
                copies,
            };
            judge(free, CheckpointSize { own, shared }, kept)
        };
        assert_eq!(found(480, (100, 0), (4, 2)).status, Status::Pass);
        let full = found(479, (100, 0), (4, 2));
        assert_eq!(full.status, Status::Fail);
        assert!(full.fix.contains("keep_last"), "{}", full.fix);
        // Of 100 bytes 90 are on the disk twice: 1.2 · (4 · 10 + 2 · 90).
        assert_eq!(found(264, (10, 90), (4, 2)).status, Status::Pass);
        assert_eq!(found(263, (10, 90), (4, 2)).status, Status::Fail);
        // The figures add up: 1.2 · (3 · 32 MiB + 2 · 512 MiB).
        let told = found(9 << 30, (32 << 20, 512 << 20), (3, 2))
            .evidence
            .to_string();
        assert!(
            told.contains("1.31 GiB needed: 3 × 32 MiB of checkpoints and 2 × 512 MiB"),
            "{told}"
        );
        assert!(told.ends_with("plus a fifth as a margin"), "{told}");
        let dir = tempfile::tempdir().unwrap();
        assert!(!has_links(&dir.path().join("absent")));
    }
}
