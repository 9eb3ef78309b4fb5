//! Validation: random windows during training, the whole split at the end. Evaluation never touches the training stream,
//! and each one looks at the same windows, so that the curve compares like with like.

use super::EngineError;
use super::step::{view, weighted, weighted_values};
use super::train::Trainer;
use crate::data::Dataset;
use crate::metrics::id;
use crate::nn::Model;
use crate::wire::{Event, Num, Phase, Values};

/// How much of the validation split is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// This many batches of random windows.
    Batches(usize),
    /// Every disjoint window of seq_len tokens, in order.
    Whole,
}

/// What an evaluation found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evaluation {
    /// Mean negative log-likelihood, nats per supervised token.
    pub loss: f64,
    /// Share of the supervised tokens that the model held likeliest.
    pub accuracy: f64,
    pub n_windows: u64,
    pub whole: bool,
}

/// Measures the validation loss; `Ok(None)` when `broken_off` said so in between. The random windows are the same at every
/// evaluation of a run.
pub fn evaluate(
    model: &mut Model,
    data: &Dataset,
    seed: u64,
    batch_size: usize,
    extent: Extent,
    broken_off: &mut dyn FnMut() -> bool,
) -> candle_core::Result<Option<Evaluation>> {
    let n_batches = match extent {
        Extent::Batches(n) => n,
        Extent::Whole => data.val_windows().div_ceil(batch_size),
    };
    let (mut total, mut correct) = (0.0, 0.0);
    let (mut n_windows, mut supervised) = (0, 0);
    for i in 0..n_batches {
        if broken_off() {
            return Ok(None);
        }
        let batch = match extent {
            Extent::Batches(_) => data.eval_batch(seed, i as u64, batch_size),
            Extent::Whole => data.val_batch(i * batch_size, batch_size),
        };
        let out = model.score(&view(&batch))?;
        total -= weighted(&out)?;
        correct += weighted_values(&out.likeliest, out.weights.as_ref())?;
        n_windows += batch.batch_size;
        supervised += batch.supervised();
    }
    let supervised = supervised.max(1) as f64;
    Ok(Some(Evaluation {
        loss: total / supervised,
        accuracy: correct / supervised,
        n_windows: n_windows as u64,
        whole: extent == Extent::Whole,
    }))
}

impl Trainer<'_, '_> {
    /// Evaluates, tells, and remembers the best. Weights that give no number end the run.
    pub(super) fn evaluate_now(&mut self, extent: Extent) -> Result<(), EngineError> {
        let step = self.step();
        self.port.enter(Phase::Evaluating, step);
        let begun = self.port.clock.elapsed();
        let port = &mut *self.port;
        let found = evaluate(
            &mut self.state.model,
            &self.data,
            self.spec.seed,
            self.spec.train.micro_batch_size,
            extent,
            &mut || port.stop_is_waiting(),
        )?;
        let Some(found) = found else { return Ok(()) };
        let progress = &mut self.state.progress;
        progress.evaluated_at = Some(step);
        progress.val_loss = Some(Num(found.loss));
        if found.loss.is_finite() && progress.best.is_none_or(|b| found.loss < b.val_loss.0) {
            progress.best = Some(super::Best {
                step,
                val_loss: Num(found.loss),
            });
        }
        let event = Event::Evaluated {
            step,
            tokens: self.state.progress.tokens,
            values: self.readings(&found),
            n_windows: found.n_windows,
            whole: found.whole,
            seconds: (self.port.clock.elapsed() - begun).as_secs_f64(),
        };
        self.port.emit(event);
        if !found.loss.is_finite() {
            let lr = self.state.lr(self.spec);
            return Err(self.fail_non_finite("the validation loss", found.loss, step, lr));
        }
        Ok(())
    }

    fn readings(&self, found: &Evaluation) -> Values {
        let mut values = vec![(id::VAL_LOSS, found.loss), (id::VAL_PPL, found.loss.exp())];
        // Where only a part of the text is supervised, its bytes are not known.
        if let Some(bytes) = self.data.val_bytes_per_token() {
            let bits = found.loss / std::f64::consts::LN_2;
            values.push((id::VAL_BPB, bits / bytes));
        }
        if self.spec.method.metrics().contains(&id::TOKEN_ACCURACY) {
            values.push((id::VAL_TOKEN_ACCURACY, found.accuracy));
        }
        let named = values.into_iter();
        named.map(|(id, x)| (id.to_string(), Num(x))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::TrainState;
    use crate::engine::tests::tiny;

    #[test]
    fn the_whole_split_is_every_window_once_and_batches_repeat() {
        let (spec, data) = tiny(&[]);
        let mut model = TrainState::fresh(&spec, &data).unwrap().model;
        let mut measure = |batch_size, extent| {
            evaluate(&mut model, &data, 7, batch_size, extent, &mut || false)
                .unwrap()
                .unwrap()
        };
        let whole = measure(4, Extent::Whole);
        assert_eq!(whole.n_windows as usize, data.val_windows());
        let other = measure(7, Extent::Whole);
        assert_eq!(
            other.n_windows, whole.n_windows,
            "a last, smaller batch is read"
        );
        assert!((other.loss - whole.loss).abs() < 1e-6);
        let some = measure(4, Extent::Batches(3));
        assert_eq!((some.n_windows, some.whole), (12, false));
        assert_eq!(some, measure(4, Extent::Batches(3)));
    }

    #[test]
    fn an_evaluation_can_be_broken_off() {
        let (spec, data) = tiny(&[]);
        let mut model = TrainState::fresh(&spec, &data).unwrap().model;
        let mut asked = 0;
        let found = evaluate(&mut model, &data, 7, 4, Extent::Whole, &mut || {
            asked += 1;
            asked > 2
        });
        assert_eq!(found.unwrap(), None);
    }
}
