//! Executes commands between steps. Each is answered by `Accepted` or `Rejected`, so the log explains the course of a run.

use super::Trainer;
use super::stop::Flow;
use crate::base::text;
use crate::engine::EngineError;
use crate::engine::checkpoint;
use crate::engine::due::is_due;
use crate::engine::infer;
use crate::wire::{Command, CommandId, Event, Num, Phase, Request};

/// Longest note and prompt in bytes: they travel in one line of the log.
const MAX_TEXT_BYTES: usize = 64 * 1024;
/// Most tokens of a sample taken while training waits for it.
const MAX_SAMPLE_TOKENS: usize = 4096;

impl Trainer<'_, '_> {
    /// Obeys everything that waits; while paused, waits for more.
    pub(super) fn handle_commands(&mut self) -> Result<Flow, EngineError> {
        let mut paused = false;
        loop {
            let request = if paused {
                self.cx.port.emit_telemetry();
                self.cx.port.wait_for_command()
            } else {
                self.cx.port.next_command()
            };
            match request {
                Some(request) => {
                    let flow = self.handle_command(request, &mut paused)?;
                    if flow != Flow::Continue {
                        return Ok(flow);
                    }
                    let phase = if paused {
                        Phase::Paused
                    } else {
                        Phase::Training
                    };
                    self.cx.port.enter(phase, self.cx.step());
                }
                None if paused && self.cx.port.stop_flag() => return Ok(Flow::SaveAndStop),
                None if paused => {}
                None => return Ok(Flow::Continue),
            }
        }
    }

    fn handle_command(&mut self, request: Request, paused: &mut bool) -> Result<Flow, EngineError> {
        let id = request.id;
        match request.command {
            Command::Pause if *paused => self.cx.port.reject(id, "the run is already paused"),
            Command::Resume if !*paused => self.cx.port.reject(id, "the run is not paused"),
            Command::Pause | Command::Resume => {
                *paused = !*paused;
                self.cx.port.accept(id);
            }
            Command::Stop { when } => return self.stop(id, when),
            Command::Checkpoint => self.handle_checkpoint(id)?,
            Command::Evaluate => {
                self.cx.port.accept(id);
                self.handle_evaluate()?;
            }
            Command::Sample { prompt, sampling } => self.handle_sample(id, &prompt, sampling),
            Command::Adjust { key, value } => self.handle_adjust(id, &key, value),
            Command::Rollback { step } => self.handle_rollback(id, step)?,
            Command::UndoRescue => self.handle_undo(id)?,
            Command::Note { text } => self.handle_note(id, text),
            Command::Ping => self.cx.port.accept(id),
            Command::Generate { .. } | Command::Cancel { .. } => self.cx.port.reject(
                id,
                "a training engine cannot chat: open a checkpoint, or request a sample",
            ),
            other => self
                .cx
                .port
                .reject(id, format!("a training engine does not know {other:?}")),
        }
        Ok(Flow::Continue)
    }

    fn handle_checkpoint(&mut self, id: CommandId) -> Result<(), EngineError> {
        if self.save_for(id, "")? {
            self.cx.port.accept(id);
        }
        Ok(())
    }

    /// Saves because a command asks for it; where it cannot be done, the command is rejected, with a `hint`. Says whether it
    /// was done.
    ///
    /// # Errors
    /// The run cannot go on: weights are non-finite, ranks are gone.
    pub(super) fn save_for(&mut self, id: CommandId, hint: &str) -> Result<bool, EngineError> {
        match self.checkpoints.save(&mut self.cx) {
            Ok(()) => Ok(true),
            Err(EngineError::Checkpoint(error)) => {
                let fix = self.checkpoints.fix(&error);
                self.cx.port.reject(id, format!("{error}; {fix}{hint}"));
                Ok(false)
            }
            Err(error) => {
                self.cx.port.reject(id, error.to_string());
                Err(error)
            }
        }
    }

    /// Patience counts scheduled evaluations: one in between can find a new best, and costs nothing where it finds none.
    fn handle_evaluate(&mut self) -> Result<(), EngineError> {
        let (step, spec, stale) = (self.cx.step(), self.cx.spec, self.cx.state.progress.stale);
        if let Some(broken) = self.cx.evaluate_now(self.stepper.experience())? {
            return self.rescue_or_fail(&broken);
        }
        let max_steps = spec.train.max_steps;
        if !is_due(step, spec.eval.every.steps(max_steps), max_steps, None) {
            let progress = &mut self.cx.state.progress;
            progress.stale = progress.stale.min(stale);
        }
        Ok(())
    }

    fn handle_sample(
        &mut self,
        id: CommandId,
        prompt: &str,
        sampling: crate::base::sampling::Sampling,
    ) {
        if prompt.len() > MAX_TEXT_BYTES {
            let why = format!("a sample takes a prompt of at most {MAX_TEXT_BYTES} bytes");
            return self.cx.port.reject(id, why);
        }
        if let Err(why) = infer::check(&sampling, MAX_SAMPLE_TOKENS) {
            return self.cx.port.reject(id, why);
        }
        match self.cx.sample_now(prompt, &sampling) {
            Ok(()) => self.cx.port.accept(id),
            Err(why) => self.cx.port.reject(id, why),
        }
    }

    /// `lr` is the schedule's peak; the rest of the schedule scales with it.
    fn handle_adjust(&mut self, id: CommandId, key: &str, value: f64) {
        let adjustments = &mut self.cx.state.progress.adjustments;
        let (slot, from_spec, range) = match key {
            "lr" => (&mut adjustments.lr, self.cx.spec.optimizer.lr(), 0.0..=10.0),
            "clip_norm" => (
                &mut adjustments.clip_norm,
                self.cx.spec.train.clip_norm,
                0.0..=f64::MAX,
            ),
            _ => {
                let why =
                    format!("`{key}` is fixed while training; `lr` and `clip_norm` can change");
                return self.cx.port.reject(id, why);
            }
        };
        if !range.contains(&value) {
            let why = format!(
                "{key} {value} is outside {} to {}",
                range.start(),
                range.end()
            );
            return self.cx.port.reject(id, why);
        }
        if key == "lr" && value == 0.0 {
            let why = "at a learning rate of 0 nothing is learned: pause the run to keep its weights as they are";
            return self.cx.port.reject(id, why);
        }
        let old = slot.replace(value).unwrap_or(from_spec);
        self.cx.port.accept(id);
        let step = self.cx.step();
        self.cx.port.emit(Event::Adjusted {
            step,
            key: key.into(),
            old: Num(old),
            new: Num(value),
        });
    }

    /// Goes back to a kept checkpoint. The ones after it belong to an abandoned course: they are deleted, so that no
    /// later resume takes them for this one's. Refused if another run depends on one of them.
    fn handle_rollback(&mut self, id: CommandId, step: u64) -> Result<(), EngineError> {
        let needed = match checkpoint::by_other_runs(&self.cx.job.run_dir) {
            Ok(needed) => needed,
            Err(error) => {
                let why = format!(
                    "a run beside this one may start from a checkpoint that a roll-back would delete ({error}): {}",
                    checkpoint::UNREADABLE_FIX
                );
                self.cx.port.reject(id, why);
                return Ok(());
            }
        };
        let stands = |needed: &u64| *needed > step && self.checkpoints.has_checkpoint(*needed);
        if let Some(later) = needed.into_iter().find(stands) {
            let run = text::one_line(self.cx.job.run_dir.id());
            let why = format!(
                "another run starts from the checkpoint at step {later}, which a roll-back would delete: branch instead (llmtui train --branch {run}@{step})"
            );
            self.cx.port.reject(id, why);
            return Ok(());
        }
        let before = self.cx.state.settings(self.cx.spec);
        match self.checkpoints.roll_back(&mut self.cx, step) {
            Ok(()) => {
                self.cx.port.accept(id);
                self.after_rollback(step, before);
                if self.cx.state.progress.undo.is_none() {
                    self.discard_undo_state();
                }
            }
            Err(EngineError::Setup(why)) => self.cx.port.reject(id, why),
            Err(other) => return Err(other),
        }
        Ok(())
    }

    fn handle_note(&mut self, id: CommandId, text: String) {
        if text.trim().is_empty() || text.len() > MAX_TEXT_BYTES {
            let why = format!("a note has between 1 and {MAX_TEXT_BYTES} bytes");
            return self.cx.port.reject(id, why);
        }
        self.cx.port.accept(id);
        let step = self.cx.step();
        self.cx.port.emit(Event::Noted { step, text });
    }
}
