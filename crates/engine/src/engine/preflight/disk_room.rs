//! The disk has room for the checkpoints that will be kept, and a fifth more. A checkpoint holds the weights that are here (of a
//! quantized base only what stands beside it), the optimizer's state, and the same of a critic, and of a reference that moves.

use super::{Check, Finding, Subject};
use crate::base::files::free_space;
use crate::base::human::bytes;
use crate::engine::EngineError;
use crate::engine::roles::Reference;
use crate::engine::state::TrainState;
use crate::nn::Params;
use crate::spec::RunSpec;

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
    // The newest ones, the best, and the one that is being written; what a rescue gives up.
    let acts = subject.spec.rescue.policy == crate::spec::RescuePolicy::Act;
    let kept = subject.spec.checkpoint.keep_last as u64 + 2 + u64::from(acts);
    Ok(judge(free, one, kept))
}

/// Of one checkpoint of this run.
pub fn checkpoint_bytes(spec: &RunSpec, state: &TrainState) -> u64 {
    let trained = |params: &Params| held_bytes(params) + spec.update_bytes(params.infos());
    let critic = state
        .critic
        .as_ref()
        .map_or(0, |critic| trained(critic.params()));
    let anchor = match &state.models.reference {
        Reference::Frozen(model) if spec.rollout.cold_start_steps > 0 => held_bytes(model.params()),
        _ => 0,
    };
    trained(state.models.policy.params()) + critic + anchor + SMALL_FILES
}

/// Of the weights that are here, in f32.
fn held_bytes(params: &Params) -> u64 {
    let here = params
        .infos()
        .iter()
        .filter(|info| params.place(info).is_some());
    here.map(|info| (info.len * size_of::<f32>()) as u64).sum()
}

fn judge(free: u64, one: u64, kept: u64) -> Finding {
    let needed = (one as f64 * kept as f64 * MARGIN) as u64;
    let evidence = format!(
        "{} free, {} needed for {kept} checkpoints of {}",
        bytes(free),
        bytes(needed),
        bytes(one)
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
    fn a_fifth_more_than_needed_is_asked_for() {
        assert_eq!(judge(480, 100, 4).status, Status::Pass);
        let full = judge(479, 100, 4);
        assert_eq!(full.status, Status::Fail);
        assert!(full.fix.contains("keep_last"), "{}", full.fix);
    }
}
