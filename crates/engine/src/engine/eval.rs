//! Validation: random windows during training, the whole split at the end. Evaluation never touches the training stream,
//! and each one looks at the same windows, so that the curve compares like with like.

use super::EngineError;
use super::broken::NonFinite;
use super::context::RunContext;
use super::experience::Experience;
use super::roles::Models;
use super::rollouts::Passed;
use crate::base::text::one_line;
use crate::data::Dataset;
use crate::methods::{Method, evaluate as measure};
use crate::metrics::{Readings, id, validation_id};
use crate::wire::{Best, Direction, Event, ExaminedExample, MetricInfo, Num, Phase, Values};
use std::time::Duration;

/// How much of the validation split is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// This many batches of random rows.
    Batches(usize),
    /// So many rows from the first on.
    Rows(usize),
    /// Every row once, in order.
    Whole,
}

/// What an evaluation found.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluation {
    /// The method's loss, a mean over what its normalizer counts.
    pub loss: f64,
    pub readings: Readings,
    /// Examples read: windows, pairs, judged answers.
    pub n_windows: u64,
    pub whole: bool,
}

/// Measures the validation loss and the method's readings; `Ok(None)` when `broken_off` said so in between. The random rows
/// are the same at every evaluation of a run.
///
/// # Errors
/// A batch that the model or the method refuses.
pub fn evaluate(
    method: &dyn Method,
    models: &mut Models,
    data: &Dataset,
    (seed, batch_size): (u64, usize),
    extent: Extent,
    broken_off: &mut dyn FnMut() -> bool,
) -> Result<Option<Evaluation>, EngineError> {
    let rows = match extent {
        Extent::Rows(n) => n.min(data.val_windows()),
        _ => data.val_windows(),
    };
    let n_batches = match extent {
        Extent::Batches(n) => n,
        Extent::Rows(_) | Extent::Whole => rows.div_ceil(batch_size),
    };
    let (mut total, mut counted, mut n_windows) = (0.0, 0, 0);
    let mut readings = Readings::default();
    for i in 0..n_batches {
        if broken_off() {
            return Ok(None);
        }
        let mut batch = match extent {
            Extent::Batches(_) => data.eval_batch(seed, i as u64, batch_size),
            Extent::Rows(_) | Extent::Whole => {
                let first = i * batch_size;
                data.val_batch(first, batch_size.min(rows - first))
            }
        };
        models.add_reference(&mut batch)?;
        let out = models.score(&batch)?;
        // Sums, divided at the end by what all batches count.
        total += measure(method, &batch, &out, 1.0, &mut readings)?;
        n_windows += batch.batch_size / batch.unit.sequences();
        counted += method.normalizer().count(std::slice::from_ref(&batch));
    }
    Ok(Some(Evaluation {
        loss: total / counted.max(1) as f64,
        readings,
        n_windows: n_windows as u64,
        whole: n_windows == data.val_windows() && !matches!(extent, Extent::Batches(_)),
    }))
}

/// The reading that decides which checkpoint is the best.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BestBy {
    pub metric: String,
    pub direction: Direction,
}

impl BestBy {
    /// That of the method.
    pub fn of_method(method: &dyn Method) -> BestBy {
        let criterion = method.best();
        BestBy {
            metric: criterion.metric.into(),
            direction: criterion.direction,
        }
    }

    /// That of `eval.best_by`, which must be among what this run declares and evaluates.
    ///
    /// # Errors
    /// It is not, or no direction of it is better.
    pub fn named(id: &str, declared: &[MetricInfo]) -> Result<BestBy, EngineError> {
        let evaluated = |info: &&MetricInfo| {
            let kind = info.id.split_once('/').map(|(kind, _)| kind);
            matches!(kind, Some("eval" | "val" | "extra")) && info.direction != Direction::Neutral
        };
        let known: Vec<&MetricInfo> = declared.iter().filter(evaluated).collect();
        let found = known.iter().find(|info| info.id == id);
        let found = found.ok_or_else(|| {
            let ids: Vec<String> = known.iter().map(|info| one_line(&info.id)).collect();
            EngineError::Setup(format!(
                "eval.best_by: no evaluation of this run measures {}; it may be {}",
                one_line(id),
                ids.join(", ")
            ))
        })?;
        Ok(BestBy {
            metric: found.id.clone(),
            direction: found.direction,
        })
    }
}

impl RunContext<'_, '_> {
    /// What an evaluation now reads: the whole split after the last step, where the spec names no number of batches, or where
    /// so many batches hold more rows than there are, which would only be drawn again and again.
    fn extent(&self) -> Extent {
        let eval = &self.spec.eval;
        let last = self.step() >= self.spec.train.max_steps;
        let less = |batches: &usize| {
            let rows = batches.saturating_mul(self.spec.train.micro_batch_size);
            rows < self.data.val_windows()
        };
        match (eval.batches.filter(|_| !last).filter(less), eval.rows) {
            (Some(batches), None) => Extent::Batches(batches),
            (Some(batches), Some(rows)) => {
                let of_batches = batches.saturating_mul(self.spec.train.micro_batch_size);
                match of_batches <= rows {
                    true => Extent::Batches(batches),
                    false => Extent::Rows(rows),
                }
            }
            (None, Some(rows)) => Extent::Rows(rows),
            (None, None) => Extent::Whole,
        }
    }

    /// Evaluates, reports, and remembers the best. A loss that is not finite ends the run.
    pub(super) fn evaluate_now(
        &mut self,
        experience: &mut dyn Experience,
    ) -> Result<(), EngineError> {
        let (step, extent) = (self.step(), self.extent());
        self.port.enter(Phase::Evaluating, step);
        self.state.show_average(true)?;
        let begun = self.port.clock.elapsed();
        let port = &mut *self.port;
        if let Some(rollouts) = experience.rollouts() {
            let broken_off = &mut || port.stop_is_waiting();
            let found = rollouts.evaluate(&mut self.state.models, extent, broken_off)?;
            if let Some(found) = found {
                let examples = rollouts.examples();
                self.answered(found, examples, begun);
            }
            return Ok(());
        }
        let found = evaluate(
            &*self.spec.method,
            &mut self.state.models,
            &self.data,
            (self.spec.seed, self.spec.train.micro_batch_size),
            extent,
            &mut || port.stop_is_waiting(),
        )?;
        let Some(found) = found else { return Ok(()) };
        let extras = self
            .extras
            .measure(self.spec, &mut self.state.models, extent, &mut || {
                port.stop_is_waiting()
            })?;
        let Some(extras) = extras else { return Ok(()) };
        let mut values = self.validation_values(&found);
        values.extend(extras);
        self.state.progress.val_loss = Some(Num(found.loss));
        self.remember(&values);
        let event = Event::Evaluated {
            step,
            tokens: self.state.progress.tokens,
            values,
            n_windows: found.n_windows,
            whole: found.whole,
            seconds: (self.port.clock.elapsed() - begun).as_secs_f64(),
        };
        self.port.emit(event);
        let examined = self.examine()?;
        self.port.emit(examined);
        if !found.loss.is_finite() {
            let lr = self.state.lr(self.spec);
            let (what, value) = ("the validation loss", found.loss);
            return Err(self.fail_non_finite(&NonFinite {
                what,
                value,
                step,
                lr,
            }));
        }
        Ok(())
    }

    /// Reports how held-out prompts were answered, with answers to look at.
    fn answered(&mut self, found: Passed, mut examples: Vec<ExaminedExample>, begun: Duration) {
        let step = self.step();
        let values = found.values.into_iter();
        let values: Values = values.map(|(id, value)| (id, Num(value))).collect();
        self.remember(&values);
        self.port.emit(Event::Evaluated {
            step,
            tokens: self.state.progress.tokens,
            values,
            n_windows: found.prompts,
            whole: found.whole,
            seconds: (self.port.clock.elapsed() - begun).as_secs_f64(),
        });
        examples.extend(found.examples);
        self.port.emit(Event::Examined { step, examples });
    }

    /// Notes that this step is evaluated, and whether it is the best.
    fn remember(&mut self, values: &Values) {
        self.state.progress.evaluated_at = Some(self.step());
        self.note_best(values);
    }

    /// Holds an evaluation against the best one so far, where it has the reading that decides.
    pub(super) fn note_best(&mut self, values: &Values) {
        let step = self.step();
        let progress = &mut self.state.progress;
        let Some(value) = values.get(&self.best_by.metric) else {
            return;
        };
        let found = Best {
            step,
            metric: self.best_by.metric.clone(),
            value: *value,
            direction: self.best_by.direction,
        };
        // The same step once more is no further evaluation.
        let again = progress.measured.as_ref().is_some_and(|m| m.step == step);
        progress.stale += u64::from(!again);
        if found.replaces(progress.best.as_ref()) {
            progress.best = Some(found.clone());
            progress.stale = 0;
        }
        progress.measured = Some(found);
    }

    /// Says whether evaluations got no better for as long as the spec has patience for; asked after each.
    pub(super) fn out_of_patience(&mut self) -> bool {
        let (stale, step) = (self.state.progress.stale, self.step());
        let out = self.spec.eval.patience.is_some_and(|most| stale >= most);
        if out {
            let best = self.state.progress.best.as_ref();
            let best = best.map_or(String::new(), |b| {
                format!("; the best is of step {}", b.step)
            });
            let what = format!("{stale} evaluations in a row brought no new best{best}");
            let hint = "a resume goes on, and asks again after its next evaluation; eval.patience says how many";
            self.port.warn(step, "early_stop", what, hint);
        }
        out
    }

    /// The readings of an evaluation that its method has.
    fn validation_values(&self, found: &Evaluation) -> Values {
        let mut values: Values = [(id::VAL_LOSS.to_string(), Num(found.loss))].into();
        let mut set = |id: String, value: f64| values.insert(id, Num(value));
        if self.spec.method.is_likelihood() {
            set(id::VAL_PPL.into(), found.loss.exp());
            // Where only a part of the text is supervised, its bytes are not known.
            if let Some(bytes) = self.data.val_bytes_per_token() {
                let bits = found.loss / std::f64::consts::LN_2;
                set(id::VAL_BPB.into(), bits / bytes);
            }
        }
        for metric in self.spec.method.readings() {
            if let Some(mean) = found.readings.mean(metric.id) {
                set(validation_id(metric.id), mean);
            }
        }
        values
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
        let mut models = TrainState::fresh(&spec, &data).unwrap().models;
        let mut measure = |batch_size, extent| {
            evaluate(
                &*spec.method,
                &mut models,
                &data,
                (7, batch_size),
                extent,
                &mut || false,
            )
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
        let first = measure(4, Extent::Rows(10));
        assert_eq!(
            (first.n_windows, first.whole),
            (10, false),
            "the last batch is cut"
        );
        assert_eq!(
            measure(4, Extent::Rows(usize::MAX)),
            whole,
            "a limit above all rows is none"
        );
    }

    #[test]
    fn an_evaluation_can_be_broken_off() {
        let (spec, data) = tiny(&[]);
        let mut models = TrainState::fresh(&spec, &data).unwrap().models;
        let mut asked = 0;
        let found = evaluate(
            &*spec.method,
            &mut models,
            &data,
            (7, 4),
            Extent::Whole,
            &mut || {
                asked += 1;
                asked > 2
            },
        );
        assert_eq!(found.unwrap(), None);
    }
}
