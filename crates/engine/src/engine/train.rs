//! The training loop, in order of execution.

mod commands;
mod declared;
mod generations;
mod rescue;
mod stop;
mod undo;

use super::checkpoint::checkpoints::Checkpoints;
use super::context::RunContext;
use super::due::is_due;
use super::emit::Port;
use super::eval::best::BestBy;
use super::prepare::{self, start_event};
use super::probing::Spectra;
use super::rescue::StepOutcome;
use super::resume;
use super::state::Settings;
use super::step::Stepper;
use super::tasks::Tasks;
use super::{EngineError, EngineJob, Summary, preflight};
use crate::base::human;
use crate::plan::idle_gpu::idle_gpu_here;
use crate::wire::{Event, Outcome, Phase};
use generations::Generations;
use stop::Flow;

/// A run in progress.
struct Trainer<'a, 'p> {
    cx: RunContext<'a, 'p>,
    stepper: Stepper,
    checkpoints: Checkpoints,
    spectra: Spectra,
    tasks: Tasks,
    generations: Generations,
    summary: &'a mut Summary,
}

/// How the loop goes on behind a part of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// With the next part.
    Part,
    /// With the next round: a step was taken, or the state went back.
    Round,
    Done(Outcome),
}

/// Prepares, checks and trains.
pub(super) fn begin(
    job: &EngineJob,
    port: &mut Port<'_>,
    summary: &mut Summary,
) -> Result<Outcome, EngineError> {
    let tasks = Tasks::read(job)?;
    let data = prepare::data(job, port)?;
    let job = &prepare::in_steps(job, &data, port)?;
    let (cx, stepper, checkpoints) = prepare::prepare(job, data, port)?;
    let tasks = tasks.with_template(&cx.data.tokenizer)?;
    let mut trainer = Trainer {
        cx,
        stepper,
        checkpoints,
        spectra: Spectra::default(),
        tasks,
        generations: Generations::default(),
        summary,
    };
    trainer.summarize();
    let (cx, resumed_from) = (&mut trainer.cx, trainer.checkpoints.saved_at());
    cx.port.emit(start_event(cx, resumed_from));
    let metrics = trainer.declared();
    let cx = &mut trainer.cx;
    if let Some(id) = &job.spec.eval.best_by {
        cx.best_by = BestBy::named(id, &metrics)?;
    }
    cx.port.emit(Event::MetricsDeclared { metrics });
    if job.resume {
        let step = cx.step();
        cx.port.emit(Event::RolledBack { step });
        // A branch begins with a checkpoint of another run, of which its own log says nothing.
        let begins_here = job
            .run_dir
            .branched_from()
            .is_some_and(|it| it.step == step);
        if !begins_here {
            let logged = resume::logged_as_best(job, step);
            trainer.checkpoints.report_unlogged(cx, logged);
        }
        if cx.emit_adjusted(step, resume::settings_told(job)) {
            let what = "settings are those of the checkpoint: what was changed after it is lost";
            cx.port.note(step, what.into());
        }
    }
    if let Some(last) = job.stop_after.filter(|last| *last <= cx.step()) {
        let step = cx.step();
        let what = format!(
            "nothing is trained: the run is at step {} already, and is asked to stop after step {}",
            human::grouped(step),
            human::grouped(last)
        );
        cx.port.note(step, what);
    }
    match (resumed_from, job.spec.preflight.enabled) {
        (None, true) => preflight::gate(cx)?,
        (Some(_), true) => preflight::review_again(cx),
        (_, false) => {}
    }
    if resumed_from.is_none() {
        note_idle_gpu(cx);
    }
    let outcome = trainer.train();
    trainer.summarize();
    outcome
}

/// A GPU that a run on the processor leaves unused.
fn note_idle_gpu(cx: &mut RunContext<'_, '_>) {
    if let Some(found) = idle_gpu_here(cx.spec, None, &cx.job.env) {
        let words = format!("{}: {}", found.evidence, found.fix);
        cx.port.note(0, words);
    }
}

impl Trainer<'_, '_> {
    /// Trains to the end, over as many generations of ranks as it takes.
    fn train(&mut self) -> Result<Outcome, EngineError> {
        loop {
            let done = self.train_on();
            match (done, self.cx.state.models.lost()) {
                (Err(_), Some(lost)) => self.restart_ranks(lost)?,
                (done, _) => {
                    if let Some(remote) = &mut self.cx.state.models.remote {
                        remote.end();
                    }
                    return done;
                }
            }
        }
    }

    /// N + 1 rounds for N steps: the last one evaluates, samples and saves like any other.
    fn train_on(&mut self) -> Result<Outcome, EngineError> {
        self.save_a_point_to_go_back_to()?;
        loop {
            if let Next::Done(outcome) = self.round()? {
                return Ok(outcome);
            }
        }
    }

    /// Commands, what is due at this step, and the next step.
    fn round(&mut self) -> Result<Next, EngineError> {
        self.cx.port.enter(Phase::Training, self.cx.step());
        let stale = self.cx.state.progress.stale;
        match self.handle_commands()? {
            Flow::Continue => {}
            Flow::Stop => return Ok(Next::Done(Outcome::Stopped)),
            Flow::SaveAndStop => return self.save_and_stop().map(Next::Done),
        }
        for part in [Self::ask_tasks_if_due, Self::evaluate_if_due] {
            match part(self)? {
                Next::Part => {}
                next => return Ok(next),
            }
        }
        let (step, max_steps) = (self.cx.step(), self.cx.spec.train.max_steps);
        // Whatever measured what decides: a task, the schedule, or a command at a step of the schedule.
        let no_gain = self.cx.state.progress.stale > stale;
        if step < max_steps && no_gain && self.patience_exhausted() {
            self.save_and_stop()?;
            self.discard_undo_state();
            return Ok(Next::Done(Outcome::Completed));
        }
        let every = self.cx.spec.sample.every.steps(max_steps);
        if is_due(step, every, max_steps, self.cx.state.progress.sampled_at) {
            self.cx.sample_on_schedule();
        }
        if let Next::Round = self.save_if_due()? {
            return Ok(Next::Round);
        }
        if step >= max_steps {
            return Ok(Next::Done(Outcome::Completed));
        }
        if self.cx.job.stop_after.is_some_and(|last| step >= last) || self.cx.port.stop_flag() {
            return self.save_and_stop().map(Next::Done);
        }
        self.take_a_step()
    }

    fn ask_tasks_if_due(&mut self) -> Result<Next, EngineError> {
        if !self.tasks.are_due(&self.cx) {
            return Ok(Next::Part);
        }
        if let Some(broken) = self.tasks.ask(&mut self.cx)? {
            self.rescue_or_fail(&broken)?;
            return Ok(Next::Round);
        }
        self.retry_if_interrupted(self.tasks.are_due(&self.cx))
    }

    fn evaluate_if_due(&mut self) -> Result<Next, EngineError> {
        let (step, max_steps) = (self.cx.step(), self.cx.spec.train.max_steps);
        let evaluated_at = self.cx.state.progress.evaluated_at;
        // The first evaluation is the baseline for gains and forgetting.
        let on_policy = self.cx.spec.method.on_policy().is_some();
        let first = step == 0 && (on_policy || !self.cx.extras.is_empty());
        let every = self.cx.spec.eval.every.steps(max_steps);
        let due = is_due(step, every, max_steps, evaluated_at);
        if !(due || first && evaluated_at.is_none()) {
            return Ok(Next::Part);
        }
        if let Some(broken) = self.cx.evaluate_now(self.stepper.experience())? {
            self.rescue_or_fail(&broken)?;
            return Ok(Next::Round);
        }
        self.retry_if_interrupted(self.cx.state.progress.evaluated_at != Some(step))
    }

    /// What a stop broke off is done again: now, or at a resume.
    fn retry_if_interrupted(&mut self, broken_off: bool) -> Result<Next, EngineError> {
        if !(broken_off && self.cx.port.stop_pending()) {
            return Ok(Next::Part);
        }
        match self.cx.port.stop_flag() {
            true => self.save_and_stop().map(Next::Done),
            false => Ok(Next::Round),
        }
    }

    fn save_if_due(&mut self) -> Result<Next, EngineError> {
        let (step, max_steps) = (self.cx.step(), self.cx.spec.train.max_steps);
        let every = self.cx.spec.checkpoint.every.steps(max_steps);
        let due = is_due(step, every, max_steps, self.checkpoints.saved_at());
        if !(due || self.is_best_to_keep() && !self.checkpoints.best_is_recorded(step)) {
            return Ok(Next::Part);
        }
        if let Some(broken) = self.cx.broken_weights()? {
            self.rescue_or_fail(&broken)?;
            return Ok(Next::Round);
        }
        if step < max_steps {
            self.checkpoints.save_or_warn(&mut self.cx)?;
        } else {
            self.checkpoints.save_at_the_end(&mut self.cx)?;
            self.discard_undo_state();
        }
        if self.checkpoints.saved_at() == Some(step) {
            self.spectra.begin(&self.cx, step);
        }
        Ok(Next::Part)
    }

    fn take_a_step(&mut self) -> Result<Next, EngineError> {
        self.cx.port.enter(Phase::Training, self.cx.step());
        match self.stepper.one_step(&mut self.cx)? {
            StepOutcome::Whole | StepOutcome::Skipped => {
                self.stepper.emit_step_if_due(&mut self.cx);
                self.spectra.emit(&mut self.cx);
                self.summarize();
            }
            // Written again at a resume, by the same weights.
            StepOutcome::BrokenOff => {}
            StepOutcome::Broken(broken) => self.rescue_or_fail(&broken)?,
            StepOutcome::Spike(why) => self.rescue_or_continue(&why)?,
        }
        Ok(Next::Round)
    }

    /// Whether the spec's patience is exhausted: the run is then complete, and `Finished` has the reason.
    fn patience_exhausted(&mut self) -> bool {
        let why = self.cx.patience_exhausted();
        let over = why.is_some();
        self.summary.early = why.unwrap_or_default();
        over
    }

    /// Whether this step is the best and is to be kept, which only a checkpoint of this step can. Where it has one, as after a
    /// stop that broke off its evaluation, the checkpoint must say so: whoever asks for the best one reads it there.
    fn is_best_to_keep(&self) -> bool {
        let (progress, spec) = (&self.cx.state.progress, self.cx.spec);
        let best = progress.best.as_ref();
        let kept = spec.keeps_best() || self.checkpoints.saved_at() == Some(progress.step);
        kept && progress.step > 0 && best.is_some_and(|b| b.step == progress.step)
    }

    /// Called after a rollback to `step`: discards readings since then, and logs the rollback and the settings that differ from
    /// `before`.
    fn after_rollback(&mut self, step: u64, before: Settings) {
        self.stepper.forget();
        self.spectra.went_back(step);
        self.summarize();
        self.cx.port.emit(Event::RolledBack { step });
        self.cx.emit_adjusted(step, before);
    }

    /// Keeps what `Finished` reports up to date, so that it holds after a panic, too.
    fn summarize(&mut self) {
        let progress = &self.cx.state.progress;
        self.summary.progress.clone_from(progress);
        let done = progress.step >= self.cx.spec.train.max_steps;
        let measured_here = progress.evaluated_at == Some(progress.step);
        self.summary.final_val_loss = progress.val_loss.filter(|_| done && measured_here);
        self.summary.best.clone_from(&progress.best);
        if let (Some(best), Some((step, value))) = (&mut self.summary.best, self.cx.best_by_whole)
            && best.step == step
        {
            best.value = value;
        }
    }
}
