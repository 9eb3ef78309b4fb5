//! The disk has room for the checkpoints that will be kept, and a fifth more.

use super::{Check, Finding, Subject};
use crate::base::files::free_space;
use crate::base::human::bytes;
use crate::engine::EngineError;

pub const CHECK: Check = Check {
    id: "disk_room",
    title: "Room on the disk for the checkpoints",
    computes: false,
    run,
};

/// Of a weight, f32.
const BYTES_PER_PARAM: u64 = 4;
/// Tokenizer, configs, log.
const REST: u64 = 4 << 20;
const MARGIN: f64 = 1.2;

fn run(subject: &mut Subject<'_>) -> Result<Finding, EngineError> {
    let free = free_space(subject.room)
        .map_err(|e| EngineError::Machine(format!("{}: {e}", subject.room.display())))?;
    let params = subject.state.models.policy.params();
    let moments = subject.spec.update_bytes(params.infos());
    let one = checkpoint(params.len(), params.first_held(), moments);
    // The newest ones, the best, and the one that is being written; what a rescue gives up.
    let acts = subject.spec.rescue.policy == crate::spec::RescuePolicy::Act;
    let kept = subject.spec.checkpoint.keep_last as u64 + 2 + u64::from(acts);
    Ok(judge(free, one, kept))
}

/// One checkpoint: weights, moments and the rest. A base that stays in its quantized file is in none.
fn checkpoint(n_params: usize, n_in_a_file: usize, moments: u64) -> u64 {
    n_params.saturating_sub(n_in_a_file) as u64 * BYTES_PER_PARAM + moments + REST
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
    fn a_base_that_stays_in_its_file_takes_no_room() {
        assert_eq!(checkpoint(1_100, 0, 800), 4_400 + 800 + REST);
        assert_eq!(checkpoint(1_100, 1_000, 800), 400 + 800 + REST);
    }

    #[test]
    fn a_fifth_more_than_needed_is_asked_for() {
        assert_eq!(judge(480, 100, 4).status, Status::Pass);
        let full = judge(479, 100, 4);
        assert_eq!(full.status, Status::Fail);
        assert!(full.fix.contains("keep_last"), "{}", full.fix);
    }
}
