//! A checkpoint that is written and read back is bit-identical, moments included. It is compared by digests and read back into
//! the copy that was written, so that the check needs no further memory.

use super::{Check, Finding, Subject, hash};
use crate::base::human::grouped;
use crate::engine::EngineError;
use crate::engine::checkpoint::disk::RealDisk;
use crate::engine::checkpoint::{self, Fingerprint, Store};
use crate::engine::state::{Progress, TrainState};
use crate::nn::{ParamInfo, Params};

pub const CHECK: Check = Check {
    id: "round_trip",
    title: "Checkpoints round-trip exactly",
    computes: true,
    run,
};

/// Largest model that is written out for this check; beyond, the first real checkpoint, which is verified too, must do.
const MAX_PARAMS: usize = 30_000_000;

fn run(subject: &mut Subject<'_>) -> Result<Finding, EngineError> {
    if let Some(why) = takes_long(subject.state.models.policy.params()) {
        return Ok(Finding::unknown(why, ""));
    }
    let (spec, data, scratch) = (subject.spec, subject.data, subject.scratch.clone());
    let written = |e| EngineError::Machine(format!("{}: {e}", scratch.display()));
    let mut store = Store::open(&scratch, Box::new(RealDisk)).map_err(written)?;
    // The twin has been trained for a moment, so its moments are not zero.
    let twin = subject.twin()?;
    let fingerprint = Fingerprint::of(spec, data);
    let (path, manifest) = checkpoint::save(&mut store, twin, data, &fingerprint)?;
    checkpoint::Manifest::verify(&path).map_err(checkpoint::CheckpointError::from)?;
    let saved = Digest::of(twin)?;
    wipe(twin)?;
    checkpoint::load(&path, twin)?;
    Ok(judge(&saved, &Digest::of(twin)?, manifest.total_bytes()))
}

/// Why so many weights are not written for a check. A quantized base is not written at all, and a base under adapters once, into
/// the first checkpoint.
fn takes_long(params: &Params) -> Option<String> {
    let here = params.infos().iter();
    let here = here.filter(|info| params.place(info).is_some());
    let written: usize = here.map(|info| info.len).sum();
    let (trained, n) = (params.n_trainable(), grouped(written as u64));
    let what = match trained < written {
        true => format!(
            "{} trained parameters and the base they stand on, {n} in all, would take long to write",
            grouped(trained as u64)
        ),
        false => format!("{n} parameters would take long to write"),
    };
    (written > MAX_PARAMS).then(|| format!("{what}; the first checkpoint is verified anyway"))
}

/// A digest of a state: it changes with every bit.
#[derive(Debug, Clone, PartialEq)]
struct Digest {
    /// Of each parameter and each part of the optimizer's state, by name.
    tensors: Vec<(String, u64)>,
    progress: Progress,
}

impl Digest {
    fn of(state: &TrainState) -> Result<Digest, EngineError> {
        let params = state.models.policy.params();
        let mut tensors: Vec<(String, u64)> = params.read_held(|weights| {
            let of = |i: &ParamInfo| Some((i.name.clone(), hash(&weights[params.place(i)?])));
            params.infos().iter().filter_map(of).collect()
        })?;
        for part in state.optimizer.state() {
            let mut digest = 0;
            let mut read = |values: &[f32]| digest = hash(values);
            state.optimizer.read_state(part.name, &mut read)?;
            tensors.push((part.name.to_string(), digest));
        }
        Ok(Digest {
            tensors,
            progress: state.progress.clone(),
        })
    }
}

/// Leaves nothing of a state that a reader who reads nothing could pass off as read.
fn wipe(state: &mut TrainState) -> Result<(), EngineError> {
    state
        .models
        .policy
        .params_mut()
        .write_held(|w| w.fill(f32::NAN))?;
    for part in state.optimizer.state() {
        // A NaN would be a step count of 0.
        let mut fill = |values: &mut [f32]| values.fill(1.0);
        state.optimizer.write_state(part.name, &mut fill)?;
    }
    state.progress = Progress {
        step: u64::MAX,
        ..Progress::default()
    };
    Ok(())
}

fn judge(saved: &Digest, back: &Digest, bytes: u64) -> Finding {
    let tensor = saved.tensors.iter().zip(&back.tensors);
    let differs = match tensor.into_iter().find(|(a, b)| a != b) {
        Some(((name, _), _)) => name.as_str(),
        None if saved.progress != back.progress => "the counters",
        None => {
            let size = crate::base::human::bytes(bytes);
            return Finding::pass(format!("{size} written, read and compared"));
        }
    };
    Finding::fail(
        format!("{differs} differs after reading it back"),
        "the disk or llmtui is faulty",
        "a resume would be wrong: put runs on another disk with --runs-dir",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::finding::Status;
    use crate::engine::tests::tiny;

    #[test]
    fn one_changed_weight_moment_or_counter_fails_by_name() {
        let (spec, data) = tiny(&[]);
        let fresh = || TrainState::fresh(&spec, &data).unwrap();
        let against = |other: &TrainState| {
            let saved = Digest::of(&fresh()).unwrap();
            judge(&saved, &Digest::of(other).unwrap(), 1)
        };
        assert_eq!(against(&fresh()).status, Status::Pass);
        let mut other = fresh();
        let infos = other.models.policy.params().infos().to_vec();
        let last = infos.last().unwrap();
        let params = other.models.policy.params_mut();
        // The lowest bit of one weight.
        let flip = |w: &mut f32| *w = f32::from_bits(w.to_bits() ^ 1);
        params.write_weights(|w| flip(&mut w[last.offset])).unwrap();
        let verdict = against(&other);
        assert_eq!(verdict.status, Status::Fail);
        assert!(
            verdict.evidence.to_string().contains(&last.name),
            "{verdict:?}"
        );
        let mut other = fresh();
        let mut change = |m: &mut [f32]| m[0] += 1.0;
        other
            .optimizer
            .write_state("adamw.square", &mut change)
            .unwrap();
        assert!(
            against(&other)
                .evidence
                .to_string()
                .contains("adamw.square")
        );
        let mut other = fresh();
        other.progress.micro_step = 1;
        assert!(against(&other).evidence.to_string().contains("counters"));
    }

    #[test]
    fn a_wiped_state_differs_everywhere() {
        let (spec, data) = tiny(&[]);
        let mut state = TrainState::fresh(&spec, &data).unwrap();
        let before = Digest::of(&state).unwrap();
        wipe(&mut state).unwrap();
        let after = Digest::of(&state).unwrap();
        let same = before
            .tensors
            .iter()
            .zip(&after.tensors)
            .filter(|(a, b)| a == b);
        assert_eq!(same.count(), 0);
        assert_ne!(before.progress, after.progress);
    }
}
