//! The evaluations of a run: how much data each reads, what it reports, and the best so far.

pub(super) mod best;
pub(super) mod measure;

use super::EngineError;
use super::broken::NonFinite;
use super::context::RunContext;
use super::experience::Experience;
use super::rollouts::{CompletionEval, Rollouts};
use crate::data::Unit;
use crate::metrics::{id, validation_id};
use crate::wire::{Best, Event, ExaminedExample, Num, Phase, Values};
use measure::{EvalScope, Evaluation, evaluate};
use std::time::Duration;

impl RunContext<'_, '_> {
    /// How much the next evaluation reads: the whole split after the last step, else the usual amount.
    fn extent(&self) -> EvalScope {
        let last = self.step() >= self.spec.train.max_steps;
        match (self.spec.eval.rows, last) {
            (None, true) => EvalScope::Whole,
            (Some(rows), true) => EvalScope::Rows(rows),
            (_, false) => self.usual_extent(),
        }
    }

    /// What evaluations before the last step read: the whole split where the spec names no number of batches, or where so many
    /// batches hold more rows than there are, which would only be drawn again and again.
    fn usual_extent(&self) -> EvalScope {
        let eval = &self.spec.eval;
        let less = |batches: &usize| {
            let rows = batches.saturating_mul(self.spec.train.micro_batch_size);
            rows < self.data.val_windows()
        };
        match (eval.batches.filter(less), eval.rows) {
            (Some(batches), None) => EvalScope::Batches(batches),
            (Some(batches), Some(rows)) => {
                let of_batches = batches.saturating_mul(self.spec.train.micro_batch_size);
                match of_batches <= rows {
                    true => EvalScope::Batches(batches),
                    false => EvalScope::Rows(rows),
                }
            }
            (None, Some(rows)) => EvalScope::Rows(rows),
            (None, None) => EvalScope::Whole,
        }
    }

    /// Evaluates, reports, and remembers the best. Returns what is wrong where the loss, or a logit of an answer, is not finite.
    pub(super) fn evaluate_now(
        &mut self,
        experience: &mut dyn Experience,
    ) -> Result<Option<NonFinite>, EngineError> {
        match self.evaluate_or_fail(experience) {
            Err(EngineError::NotFinite(logit)) => Ok(Some(self.broken_logit(logit))),
            found => found,
        }
    }

    fn evaluate_or_fail(
        &mut self,
        experience: &mut dyn Experience,
    ) -> Result<Option<NonFinite>, EngineError> {
        let step = self.step();
        let (extent, usual) = (self.extent(), self.usual_extent());
        self.port.enter(Phase::Evaluating, step);
        self.state.show_average(true)?;
        let begun = self.port.clock.elapsed();
        if let Some(rollouts) = experience.rollouts() {
            self.evaluate_answers(rollouts, extent, usual, begun)?;
            return Ok(None);
        }
        let Some((found, values)) = self.measured(extent)? else {
            return Ok(None);
        };
        // Other rows have another loss: the last evaluation competes on those that the ones before it read.
        let compared = match extent == usual {
            true => values.clone(),
            false => match self.measured(usual)? {
                Some((_, compared)) => compared,
                None => return Ok(None),
            },
        };
        self.state.progress.val_loss = Some(Num(found.loss));
        self.record_evaluation(&values, &compared);
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
            return Ok(Some(NonFinite {
                what: "the validation loss",
                value: found.loss,
                step,
                lr: self.state.lr(self.spec),
            }));
        }
        Ok(None)
    }

    /// Has held-out prompts answered, and reports it; nothing where a stop broke it off.
    fn evaluate_answers(
        &mut self,
        rollouts: &mut Rollouts,
        extent: EvalScope,
        usual: EvalScope,
        begun: Duration,
    ) -> Result<(), EngineError> {
        let port = &mut *self.port;
        let broken_off = &mut || port.stop_pending();
        let mut pass = |extent| rollouts.evaluate(&mut self.state.models, extent, broken_off);
        let Some(found) = pass(extent)? else {
            return Ok(());
        };
        let compared = match extent == usual {
            true => found.values.clone(),
            false => match pass(usual)? {
                Some(compared) => compared.values,
                None => return Ok(()),
            },
        };
        let examples = rollouts.examples();
        self.answered(found, &compared, examples, begun);
        Ok(())
    }

    /// The losses and readings of the validation split, and of the sets beside it; `None` where a stop broke it off.
    fn measured(&mut self, extent: EvalScope) -> Result<Option<(Evaluation, Values)>, EngineError> {
        let port = &mut *self.port;
        let found = evaluate(
            &*self.spec.method,
            &mut self.state.models,
            &self.data,
            (self.spec.seed, self.spec.train.micro_batch_size),
            extent,
            &mut || port.stop_pending(),
        )?;
        let Some(found) = found else { return Ok(None) };
        let extras = self
            .extras
            .measure(self.spec, &mut self.state.models, extent, &mut || {
                port.stop_pending()
            })?;
        Ok(extras.map(|extras| {
            let mut values = self.validation_values(&found);
            values.extend(extras);
            (found, values)
        }))
    }

    /// Reports how held-out prompts were answered, with answers to look at.
    fn answered(
        &mut self,
        found: CompletionEval,
        compared: &[(String, f64)],
        mut examples: Vec<ExaminedExample>,
        begun: Duration,
    ) {
        let step = self.step();
        let nums = |values: &[(String, f64)]| -> Values {
            let values = values.iter();
            values
                .map(|(id, value)| (id.clone(), Num(*value)))
                .collect()
        };
        let values = nums(&found.values);
        self.record_evaluation(&values, &nums(compared));
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

    /// Records that this step was evaluated, and whether it is the best by `compared`: the same readings on the rows that every evaluation
    /// uses.
    fn record_evaluation(&mut self, values: &Values, compared: &Values) {
        let step = self.step();
        self.state.progress.evaluated_at = Some(step);
        let decides = values.get(&self.best_by.metric);
        self.best_by_whole = decides.map(|value| (step, *value));
        self.miss_best(compared);
        self.note_best(compared);
    }

    /// Says once that an evaluation lacks the reading that decides: no checkpoint will be the best one, and patience never ends.
    fn miss_best(&mut self, values: &Values) {
        let metric = &self.best_by.metric;
        // Tasks are evaluated at their own interval.
        let mut tasks = self.spec.eval.tasks.iter();
        let of_task = metric.strip_prefix(id::EVAL).is_some() && tasks.next().is_some();
        if of_task || self.lacks_best || values.contains_key(metric) {
            return;
        }
        self.lacks_best = true;
        let measured = values.keys().map(String::as_str);
        let measured: Vec<&str> = measured
            .filter(|id| id.starts_with(id::VAL) || id.starts_with(id::EVAL))
            .collect();
        let what = format!(
            "the validation rows do not measure {metric}, which decides which checkpoint is the best: none will be, and eval.patience \
             ends nothing"
        );
        // KTO's margin is held between rewards of both kinds of answers.
        let hint = format!(
            "hold out rows that measure it (for KTO answers with both labels), or -s eval.best_by= one of {}",
            measured.join(", ")
        );
        self.port
            .warn(self.state.progress.step, "best_by", what, &hint);
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
        // The same step again is not another evaluation.
        let again = progress.measured.as_ref().is_some_and(|m| m.step == step);
        progress.stale += u64::from(!again);
        // In a tie the later one is the best, but patience does not count it as a gain.
        if found.improves_on(progress.best.as_ref()) {
            progress.stale = 0;
        }
        if found.replaces(progress.best.as_ref()) {
            progress.best = Some(found.clone());
        }
        progress.measured = Some(found);
    }

    /// Says that evaluations got no better for as long as the spec has patience for; asked after each.
    pub(super) fn patience_exhausted(&self) -> Option<String> {
        let stale = self.state.progress.stale;
        self.spec.eval.patience.filter(|most| stale >= *most)?;
        let best = self.state.progress.best.as_ref();
        let best = best.map_or(String::new(), |b| {
            let by = b.not_by_loss();
            let by = by.map_or(String::new(), |words| format!(", {words}"));
            format!("; the best is of step {}{by}", b.step)
        });
        let evaluations = match stale {
            1 => "the last evaluation".to_string(),
            n => format!("{n} evaluations in a row"),
        };
        Some(format!(
            "early stopping: {evaluations} brought no improvement{best}"
        ))
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
        // Few batches hold answers of both labels: the margin of all is that between their means.
        if self.spec.method.needs().unit == Unit::Judged
            && let (Some(chosen), Some(rejected)) = (
                found.readings.mean(id::CHOSEN),
                found.readings.mean(id::REJECTED),
            )
        {
            values.insert(validation_id(id::MARGINS), Num(chosen - rejected));
        }
        values
    }
}
