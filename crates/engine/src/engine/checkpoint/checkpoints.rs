//! The checkpoints of a run in progress: saved, verified, reported, pruned, and gone back to.

use super::super::EngineError;
use super::super::context::RunContext;
use super::super::resume::{Loaded, adjust_loaded, load_for};
use super::super::state::Progress;
use super::{
    CheckpointError, FOLDER, Fingerprint, Manifest, Store, UNREADABLE_FIX, by_other_runs,
    lacks_reference, name_of, save,
};
use crate::base::text::shown;
use crate::spec::RescuePolicy;
use crate::wire::{Best, Event, Phase};
use std::path::Path;

/// What the log says of a checkpoint with these counters, which took `seconds` to write.
fn saved_event(progress: &Progress, path: &Path, bytes: u64, seconds: f64) -> Event {
    let step = progress.step;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let best = progress.best_saved.as_ref();
    let evaluated_here = progress.evaluated_at == Some(step);
    Event::Checkpointed {
        step,
        path: format!("{FOLDER}/{name}"),
        bytes,
        seconds,
        best: best.is_some_and(|best| best.step == step),
        val_loss: progress.val_loss.filter(|_| evaluated_here),
        by: progress.measured.clone().filter(|m| m.step == step),
    }
}

/// The checkpoints of a run in progress.
pub struct Checkpoints {
    store: Store,
    /// Step of the newest checkpoint that this process wrote or began from.
    saved_at: Option<u64>,
    /// The counters in it.
    saved: Option<Progress>,
    /// Step of the checkpoint that this process began from, while it has not written another of that step.
    begun_from: Option<u64>,
    /// Why old checkpoints are kept that could not be judged, as it was last reported.
    unread: Option<String>,
}

impl Checkpoints {
    /// `begun_from` is what the newest checkpoint says.
    pub fn new(store: Store, begun_from: Option<Progress>) -> Checkpoints {
        Checkpoints {
            store,
            saved_at: begun_from.as_ref().map(|progress| progress.step),
            begun_from: begun_from.as_ref().map(|progress| progress.step),
            saved: begun_from,
            unread: None,
        }
    }

    pub fn saved_at(&self) -> Option<u64> {
        self.saved_at
    }

    /// Whether the newest checkpoint is of this step and says that it is the best: an evaluation may have come after the save.
    pub fn best_is_recorded(&self, step: u64) -> bool {
        let best = self
            .saved
            .as_ref()
            .and_then(|saved| saved.best_saved.as_ref());
        self.saved_at == Some(step) && best.is_some_and(|best| best.step == step)
    }

    /// Saves and reports it; if the disk refuses it the run continues, and the next checkpoint tries again.
    ///
    /// # Errors
    /// Weights that are non-finite.
    pub fn save_or_warn(&mut self, cx: &mut RunContext<'_, '_>) -> Result<(), EngineError> {
        let step = cx.step();
        match self.save(cx) {
            Err(EngineError::Checkpoint(error)) => {
                let fix = self.fix(&error);
                let hint = match self.store.list().is_empty() {
                    true => format!("training continues; {fix}"),
                    false => {
                        format!("the older checkpoints are intact and training continues; {fix}")
                    }
                };
                cx.port
                    .warn(step, "checkpoint_failed", error.to_string(), &hint);
                Ok(())
            }
            done => done,
        }
    }

    /// What lets the next checkpoint be written after one that was not.
    pub fn fix(&self, error: &CheckpointError) -> String {
        error.fix(self.store.folder())
    }

    /// The last save of this process. A run whose end is not on the disk has not come to its end: it can be resumed from
    /// the checkpoint before.
    pub fn save_at_the_end(&mut self, cx: &mut RunContext<'_, '_>) -> Result<(), EngineError> {
        // What is on the disk: somebody may have deleted what was saved.
        let kept = match (self.store.list().first(), self.saved_at) {
            (Some(newest), _) => format!("the latest checkpoint is at step {}", newest.step),
            (None, Some(_)) => "the checkpoints saved before are gone".to_string(),
            (None, None) => "no checkpoint was saved yet".to_string(),
        };
        self.save(cx).map_err(|error| match error {
            EngineError::Checkpoint(error @ CheckpointError::Write { .. }) => {
                EngineError::Machine(format!(
                    "{error}; {kept}. To continue, {}, then: llmtui train --resume {}",
                    self.fix(&error),
                    shown(cx.job.run_dir.path())
                ))
            }
            other => other,
        })
    }

    /// Saves, verifies, reports it, and only then deletes older checkpoints. A step that is saved already is not saved again.
    ///
    /// # Errors
    /// A disk that does not take it, a [`CheckpointError`]. Weights that are non-finite, which are never saved.
    pub fn save(&mut self, cx: &mut RunContext<'_, '_>) -> Result<(), EngineError> {
        let step = cx.step();
        if self.saved.as_ref() == Some(&cx.state.progress) && self.store.has_checkpoint(step) {
            return Ok(());
        }
        cx.port.enter(Phase::Checkpointing, step);
        let begun = cx.port.clock.elapsed();
        cx.refuse_broken_weights()?;
        let progress = &mut cx.state.progress;
        // Checkpoints of programs before this one name the best evaluation alone.
        let stands = |best: &Best| self.store.has_checkpoint(best.step);
        let before = progress.best_saved.clone();
        let before = before.or_else(|| progress.best.clone().filter(stands));
        if let Some(here) = progress.measured.clone().filter(|m| m.step == step)
            && here.replaces(before.as_ref())
        {
            progress.best_saved = Some(here);
        }
        self.warn_of_a_replaced_base(cx);
        let fingerprint = Fingerprint::of(cx.spec, &cx.data).with(&cx.state.models);
        let written = save(&mut self.store, &mut cx.state, &cx.data, &fingerprint)
            .and_then(|written| Ok((written, self.store.verify(step)?)));
        if written.is_err() {
            cx.state.progress.best_saved = before;
        }
        let ((path, _), manifest) = written?;
        self.saved_at = Some(step);
        self.saved = Some(cx.state.progress.clone());
        self.begun_from = self.begun_from.filter(|begun| *begun != step);
        let seconds = (cx.port.clock.elapsed() - begun).as_secs_f64();
        let progress = &cx.state.progress;
        let best = progress.best_saved.clone();
        let event = saved_event(progress, &path, manifest.total_bytes(), seconds);
        cx.port.emit(event);
        self.prune(cx, best.map(|best| best.step));
        Ok(())
    }

    /// Reports the checkpoint that a resume took up, if a kill came between its name and its line in the log: `logged` is that
    /// line's word on whether it was the best. Without it the best model of the run would be forgotten.
    pub fn report_unlogged(&self, cx: &mut RunContext<'_, '_>, logged: Option<bool>) {
        let Some(step) = self.saved_at else { return };
        let progress = &cx.state.progress;
        let is_best = progress.best_saved.as_ref().is_some_and(|b| b.step == step);
        if logged == Some(true) || logged == Some(is_best) {
            return;
        }
        let path = self.store.folder().join(name_of(step));
        // It was verified at the resume.
        if let Ok(manifest) = Manifest::read(&path) {
            let event = saved_event(progress, &path, manifest.total_bytes(), 0.0);
            cx.port.emit(event);
        }
    }

    /// A checkpoint that was given up may be the base of another run.
    fn warn_of_a_replaced_base(&self, cx: &mut RunContext<'_, '_>) {
        let step = cx.step();
        if self.store.abandoned().contains(&step)
            && by_other_runs(&cx.job.run_dir).is_ok_and(|needed| needed.contains(&step))
        {
            let what = format!(
                "the checkpoint of step {step} that another run begins from is replaced by that of this course"
            );
            let hint = "a resume of that run has another base from now on: start it again, or change checkpoint.every here";
            cx.port.warn(step, "base_replaced", what, hint);
        }
    }

    /// Deletes older checkpoints that nothing needs any more.
    fn prune(&mut self, cx: &mut RunContext<'_, '_>, best: Option<u64>) {
        let keep = cx.spec.checkpoint.keep_last.max(2);
        let stable = self
            .to_go_back_to(cx, false)
            .into_iter()
            .find(|(_, stable)| *stable);
        // Specs are read only where something would go.
        let needed = match self.store.list().len() > keep || !self.store.abandoned().is_empty() {
            true => by_other_runs(&cx.job.run_dir),
            false => Ok(Default::default()),
        };
        let needed = match needed {
            Ok(needed) => needed,
            Err(error) => return self.warn_of_unread(cx, &error),
        };
        let also: Vec<u64> = best
            .into_iter()
            .chain(stable.map(|(step, _)| step))
            .chain(needed)
            .collect();
        if let Err(error) = self.store.prune(keep, &also) {
            let step = cx.step();
            cx.port.warn(
                step,
                "prune_failed",
                format!("older checkpoints could not be deleted: {error}"),
                "delete them if the disk fills up",
            );
        }
    }

    /// Old checkpoints stay where nobody knows who needs them; each cause is reported once.
    fn warn_of_unread(&mut self, cx: &mut RunContext<'_, '_>, error: &std::io::Error) {
        let message =
            format!("older checkpoints are kept: a run beside this one may need them ({error})");
        if self.unread.as_ref() != Some(&message) {
            let step = cx.step();
            cx.port
                .warn(step, "prune_failed", message.clone(), UNREADABLE_FIX);
            self.unread = Some(message);
        }
    }

    /// Checkpoints from before what is wrong at present, the ones to take first in front, and whether they are stable: the
    /// steps after them were healthy. `done`: the weights of the last step are what broke, and its checkpoint has them.
    pub fn to_go_back_to(&self, cx: &RunContext<'_, '_>, done: bool) -> Vec<(u64, bool)> {
        let rescue = &cx.spec.rescue;
        if rescue.policy != RescuePolicy::Act {
            return Vec::new();
        }
        let progress = &cx.state.progress;
        let sick = progress
            .guard
            .since()
            .map_or(progress.step + 1, |(step, _)| step)
            .min(progress.step + u64::from(!done));
        let steps = self.store.list().into_iter().map(|found| found.step);
        let judged = steps.filter(|step| *step < sick);
        let mut found: Vec<(u64, bool)> = judged
            .map(|step| (step, step + rescue.stable_after < sick))
            .collect();
        // Newest first as they come; the sort is stable.
        found.sort_by_key(|(_, stable)| !stable);
        found
    }

    /// Whether the run has a checkpoint of this step that is not abandoned.
    pub fn has_checkpoint(&self, step: u64) -> bool {
        self.store.has_checkpoint(step)
    }

    /// Step of the newest checkpoint that is whole.
    pub fn newest(&mut self) -> Option<u64> {
        let (newest, _) = self.store.newest_whole(u64::MAX);
        Some(newest?.step)
    }

    /// Discards the checkpoints from `step` on: the state in memory has diverged from them.
    pub fn abandon_from(&mut self, cx: &mut RunContext<'_, '_>, step: u64) {
        (self.saved_at, self.saved) = (None, None);
        let progress = &mut cx.state.progress;
        // The best of that course may be among those that a rescue gave up.
        let there = |best: &Best| best.step < step && self.store.has_checkpoint(best.step);
        progress.best_saved = progress.best_saved.take().filter(there);
        self.retire_from(cx, step);
    }

    /// Deletes the checkpoints of `step` and after it, but for those that other runs begin from.
    fn retire_from(&mut self, cx: &mut RunContext<'_, '_>, step: u64) {
        let any = self.store.list().iter().any(|found| found.step >= step);
        let needed = match any {
            true => by_other_runs(&cx.job.run_dir),
            false => Ok(Default::default()),
        };
        let here = cx.state.progress.step;
        let known = needed.is_ok();
        // Where it is not known who needs them, all stay, marked: `llmtui gc` deletes them once it is.
        let needed = needed.unwrap_or_else(|error| {
            self.warn_of_unread(cx, &error);
            self.store.list().iter().map(|found| found.step).collect()
        });
        match self.store.retire_from(step, &needed) {
            Ok(kept) if kept.is_empty() => {}
            Ok(kept) => {
                let begin = if known { "begin" } else { "may begin" };
                let words = format!(
                    "other runs {begin} from the checkpoints of steps {kept:?}, which this run gave up: they stay for those, and this \
                     run passes them over"
                );
                cx.port.note(here, words);
            }
            Err(error) => {
                let message =
                    format!("checkpoints from step {step} on could not be deleted: {error}");
                let hint = "delete them before a resume";
                cx.port.warn(here, "prune_failed", message, hint);
            }
        }
    }

    /// Takes up the checkpoint of exactly this step, and gives up the ones after it.
    ///
    /// # Errors
    /// [`EngineError::Setup`] where it is not there, damaged or of another shape: the state is as it was. Otherwise the run cannot go on.
    pub fn roll_back(&mut self, cx: &mut RunContext<'_, '_>, step: u64) -> Result<(), EngineError> {
        let kept: Vec<u64> = self.store.list().iter().map(|f| f.step).collect();
        if !kept.contains(&step) {
            return Err(EngineError::Setup(format!(
                "there is no checkpoint at step {step}; available: {kept:?}"
            )));
        }
        self.store
            .verify(step)
            .map_err(|fault| EngineError::Setup(fault.to_string()))?;
        let folder = self.store.folder().join(name_of(step));
        let from = match self.begun_from == Some(step) {
            true => Loaded::Begins(step),
            false => Loaded::Other(step),
        };
        // Then the reference is the one that was attached before the first step.
        let attached = lacks_reference(&folder, &cx.state);
        cx.state.models.moved &= !attached;
        let loaded = load_for(cx.job, &folder, &mut cx.state, from);
        cx.state.models.moved |= attached && loaded.is_err();
        loaded.map_err(|e| match e {
            // A branch may have another optimizer than the checkpoint that it began with.
            CheckpointError::Tensors(why) => EngineError::Setup(format!(
                "the checkpoint of step {step} does not fit this run: {why}"
            )),
            other => other.into(),
        })?;
        if attached {
            cx.state.attach_start_weights(cx.spec, &cx.data)?;
        }
        adjust_loaded(cx.job, cx.port, &self.store, &mut cx.state, from)?;
        self.saved_at = Some(step);
        self.saved = Some(cx.state.progress.clone());
        self.retire_from(cx, step + 1);
        Ok(())
    }
}
