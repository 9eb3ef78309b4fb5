//! A checkpoint that is written and read again is the same to the bit, moments included.

use super::{Check, Subject, Verdict};
use crate::engine::EngineError;
use crate::engine::checkpoint::disk::RealDisk;
use crate::engine::checkpoint::{self, Fingerprint, Store};
use crate::engine::state::TrainState;
use crate::wire::CheckStatus;

pub const CHECK: Check = Check {
    id: "round_trip",
    title: "A checkpoint comes back as it was",
    run,
};

/// Largest model that is written out for this check; beyond, the first real checkpoint, which is verified too, must do.
const MAX_PARAMS: usize = 30_000_000;

fn run(subject: &mut Subject<'_>) -> Result<Verdict, EngineError> {
    let n_params = subject.state.model.n_params();
    if n_params > MAX_PARAMS {
        return Ok(Verdict::of(
            CheckStatus::Skipped,
            format!(
                "{n_params} parameters would take long to write; the first checkpoint is verified anyway"
            ),
            "",
        ));
    }
    let (spec, data, scratch) = (subject.spec, subject.data, subject.scratch.clone());
    let written = |e| EngineError::Setup(format!("{}: {e}", scratch.display()));
    let mut store = Store::open(&scratch, Box::new(RealDisk)).map_err(written)?;
    // The twin has been trained for a moment, so its moments are not zero.
    let twin = subject.twin()?;
    let (path, manifest) = checkpoint::save(
        &mut store,
        twin,
        &data.tokenizer,
        &Fingerprint::of(spec, data),
    )?;
    checkpoint::Manifest::verify(&path).map_err(checkpoint::CheckpointError::from)?;
    let mut back = TrainState::blank(spec, data)?;
    checkpoint::load(&path, &mut back)?;
    judge(twin, &back, manifest.total_bytes())
}

fn judge(saved: &TrainState, back: &TrainState, bytes: u64) -> Result<Verdict, EngineError> {
    let weights = |s: &TrainState| s.model.params().read_weights(bits);
    let moments = |s: &TrainState| -> Result<Vec<_>, EngineError> {
        let state = s.optimizer.state()?;
        Ok(state.into_iter().map(|(n, v)| (n, bits(&v))).collect())
    };
    let differs = if weights(saved)? != weights(back)? {
        "weights"
    } else if moments(saved)? != moments(back)? {
        "optimizer moments"
    } else if saved.progress != back.progress {
        "counters"
    } else {
        let size = crate::base::human::bytes(bytes);
        return Ok(Verdict::pass(format!("{size} written, read and compared")));
    };
    Ok(Verdict::fail(
        format!("{differs} differ after writing and reading them"),
        "a resume would not continue this run; the disk or this program is broken",
    ))
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::tests::tiny;

    #[test]
    fn one_changed_weight_moment_or_counter_fails() {
        let (spec, data) = tiny(&[]);
        let fresh = || TrainState::fresh(&spec, &data).unwrap();
        assert_eq!(
            judge(&fresh(), &fresh(), 1).unwrap().status,
            CheckStatus::Pass
        );
        let mut other = fresh();
        other
            .model
            .params_mut()
            .write_weights(|w| w[3] += 1.0)
            .unwrap();
        assert!(
            judge(&fresh(), &other, 1)
                .unwrap()
                .evidence
                .contains("weights")
        );
        let mut other = fresh();
        let mut moments = other.optimizer.state().unwrap();
        moments[0].1[0] += 1.0;
        other.optimizer.load_state(moments).unwrap();
        assert!(
            judge(&fresh(), &other, 1)
                .unwrap()
                .evidence
                .contains("moments")
        );
        let mut other = fresh();
        other.progress.micro_step = 1;
        assert_eq!(
            judge(&fresh(), &other, 1).unwrap().status,
            CheckStatus::Fail
        );
    }
}
