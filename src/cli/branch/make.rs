//! Makes the run of a branch, with the checkpoint that it goes on from.

use super::Branch;
use crate::base::files::sync_dir;
use crate::base::text::shown;
use crate::cli::Context;
use crate::cli::exit::Failure;
use crate::engine::{REFERENCE_CURVE, checkpoint, reference};
use crate::plan::start::new_run;
use crate::run::{Parent, RunDir};
use std::path::Path;

impl Branch {
    /// Makes the run, with the checkpoint in it.
    ///
    /// # Errors
    /// The disk; nothing of the run is left then: without its checkpoint it would be another training.
    pub fn make(&self, cx: &Context) -> anyhow::Result<RunDir> {
        let parent = Parent {
            run: self.parent.id().into(),
            step: self.from.as_ref().map_or(0, |from| from.step),
        };
        let run = new_run(&cx.runs_dir, &self.loaded, Some(parent), &cx.clock)
            .map_err(|e| Failure::not_a_new_run(&e))?;
        match self.fill(&run) {
            Ok(()) => Ok(run),
            Err(error) => {
                let _ = run.remove();
                Err(error.into())
            }
        }
    }

    /// Gives a new run what it takes over from its parent. The checkpoint gets its name last, when it is as the branch needs it: a
    /// killed command leaves none, and the engine refuses such a branch.
    fn fill(&self, run: &RunDir) -> Result<(), Failure> {
        let disk = |e: String| Failure::machine(e, "choose another location with --runs-dir DIR");
        // It measures its loss against the curve that its parent measured against.
        self.hand_down(REFERENCE_CURVE, run);
        let Some(from) = &self.from else {
            return Ok(());
        };
        let folder = run.checkpoints_path();
        let name = from.path.file_name().unwrap_or_default().to_string_lossy();
        let (made, to) = (folder.join(format!(".tmp-{name}")), folder.join(&*name));
        let at = |e: std::io::Error| disk(format!("{}: {e}", shown(&to)));
        copy(&from.path, &made).map_err(at)?;
        // Where it fits, the branch need not compute it again.
        self.hand_down(reference::FILE, run);
        let rows = (self.rows, self.loaded.spec.train.micro_batch_size);
        if rows.0 != rows.1 {
            checkpoint::recount(&made, rows).map_err(|e| disk(e.to_string()))?;
        }
        if !self.moved.is_empty() {
            let keys: Vec<&str> = self.moved.iter().map(|(key, _)| *key).collect();
            checkpoint::forget_adjustments(&made, &keys).map_err(|e| disk(e.to_string()))?;
        }
        std::fs::rename(&made, &to).map_err(at)?;
        sync_dir(&folder).map_err(at)
    }

    /// Copies a file of the parent's folder, if it is there.
    fn hand_down(&self, file: &str, run: &RunDir) {
        let of_parent = self.parent.path().join(file);
        if of_parent.exists() {
            let _ = std::fs::copy(of_parent, run.path().join(file));
        }
    }
}

/// A checkpoint's files under another run's name. They are never written to again, so links serve as well as copies.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let place = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &place)?;
        } else if std::fs::hard_link(entry.path(), &place).is_err() {
            std::fs::copy(entry.path(), &place)?;
        }
    }
    sync_dir(to)
}
