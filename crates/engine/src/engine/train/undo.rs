//! Undoes a rescue: the state before it is kept beside the checkpoints until it is restored, replaced by the next rescue, or
//! the run is complete. At most one is kept.

use super::Trainer;
use crate::engine::EngineError;
use crate::engine::checkpoint::disk::RealDisk;
use crate::engine::checkpoint::{self, CheckpointError, Fingerprint, Store, name_of};
use crate::engine::context::RunContext;
use crate::wire::{CommandId, Event, Num, Phase, UndoPoint};
use std::io;
use std::path::{Path, PathBuf};

/// Inside a run's directory.
const FOLDER: &str = "before-rescue";

fn folder(cx: &RunContext<'_, '_>) -> PathBuf {
    cx.job.run_dir.path().join(FOLDER)
}

impl Trainer<'_, '_> {
    /// Before a rescue: saves the state, or the newest checkpoint if weights or moments are non-finite. If the disk takes neither, the
    /// rescue proceeds.
    pub(super) fn save_undo_state(&mut self) -> Option<UndoPoint> {
        let kept = self.keep();
        kept.unwrap_or_else(|e| {
            let what = format!("this rescue cannot be undone: {e}");
            let fix = e.fix(&folder(&self.cx));
            let hint = format!("{fix}: one more checkpoint is kept while a rescue can be undone");
            self.cx
                .port
                .warn(self.cx.step(), "rescue_final", what, &hint);
            None
        })
    }

    fn keep(&mut self) -> Result<Option<UndoPoint>, CheckpointError> {
        let step = self.cx.step();
        let written = |source: io::Error| CheckpointError::Write { step, source };
        let mut store = Store::open(&folder(&self.cx), Box::new(RealDisk)).map_err(written)?;
        // The one before goes first: never two.
        store.clear().map_err(written)?;
        self.cx.state.take_from_ranks()?;
        let whole = self.cx.state.weights_are_finite()? && self.cx.state.moments_are_finite()?;
        let step = match (whole, self.checkpoints.newest()) {
            (true, _) => {
                let fingerprint =
                    Fingerprint::of(self.cx.spec, &self.cx.data).with(&self.cx.state.models);
                checkpoint::save(&mut store, &mut self.cx.state, &self.cx.data, &fingerprint)?;
                step
            }
            (false, Some(newest)) => {
                let from = self.cx.job.run_dir.checkpoints_path().join(name_of(newest));
                store.copy_in(newest, &from).map_err(written)?;
                newest
            }
            (false, None) => return Ok(None),
        };
        store.verify(step)?;
        Ok(Some(UndoPoint { step, whole }))
    }

    /// Nothing is left to undo: the kept state goes.
    pub(super) fn discard_undo_state(&mut self) {
        let folder = folder(&self.cx);
        if let Err(e) = remove(&folder) {
            let what = format!("{} could not be deleted: {e}", folder.display());
            self.cx
                .port
                .warn(self.cx.step(), "prune_failed", what, "delete it yourself");
        }
    }

    /// Restores the state before the newest rescue, with its learning rate and its batches. Later steps are
    /// discarded. The count of rescues stays, so that repeated undos come to an end.
    pub(super) fn handle_undo(&mut self, id: CommandId) -> Result<(), EngineError> {
        let progress = &self.cx.state.progress;
        let Some(undo) = progress.undo.clone() else {
            self.cx.port.reject(id, "there is no rescue to undo");
            return Ok(());
        };
        let (rescues, now) = (progress.rescues, progress.step);
        let settings = self.cx.state.settings(self.cx.spec);
        let lr_now = self.cx.state.peak_lr(self.cx.spec);
        let kept = folder(&self.cx).join(name_of(undo.to.step));
        if let Err(fault) = checkpoint::Manifest::verify(&kept) {
            let why = format!("the state before the rescue is gone: {fault}");
            self.cx.port.reject(id, why);
            return Ok(());
        }
        checkpoint::load(&kept, &mut self.cx.state)?;
        // The rescue's own checkpoint stays: the next rescue may have no other from before the spike.
        self.checkpoints.abandon_from(&mut self.cx, undo.rescue + 1);
        let progress = &mut self.cx.state.progress;
        progress.rescues = rescues;
        progress.undo = None;
        let (step, tokens) = (progress.step, progress.tokens);
        let lr = self.cx.state.peak_lr(self.cx.spec);
        let rescue = undo.rescue;
        self.after_rollback(rescue, settings);
        self.cx.port.emit(Event::RescueUndone {
            step,
            tokens,
            rescue,
            why: undo.why,
            lr: (Num(lr_now), Num(lr)),
            whole: undo.to.whole,
            lost: now - rescue.min(now),
        });
        // The log reports the result to the viewer.
        self.cx.port.accept(id);
        self.checkpoints.save_or_warn(&mut self.cx)?;
        if self.checkpoints.saved_at() == Some(step) {
            self.discard_undo_state();
        }
        self.cx.port.enter(Phase::Training, step);
        Ok(())
    }
}

fn remove(folder: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}
