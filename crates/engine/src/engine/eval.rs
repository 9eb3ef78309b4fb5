//! The evaluations of a run: how much each reads, what it reports, what it makes of the best so far.

pub(super) mod best;
pub(super) mod measure;

use super::EngineError;
use super::broken::NonFinite;
use super::context::RunContext;
use super::experience::Experience;
use super::rollouts::Passed;
use crate::metrics::{id, validation_id};
use crate::wire::{Best, Event, ExaminedExample, Num, Phase, Values};
use measure::{Evaluation, Extent, evaluate};
use std::time::Duration;

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
                format!("; the best is at step {}", b.step)
            });
            let evaluations = match stale {
                1 => "the last evaluation".to_string(),
                n => format!("{n} evaluations in a row"),
            };
            let what = format!("{evaluations} brought no new best{best}");
            let hint = "a resume continues and checks again at its next evaluation; eval.patience sets the number";
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
