//! The checkpoints of a run. Their contents belong to the engine.

use super::RunDir;
use crate::wire::Event;
use std::path::{Path, PathBuf};

/// A complete checkpoint: a folder `step-001000` with a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointEntry {
    /// Completed optimizer steps.
    pub step: u64,
    pub path: PathBuf,
}

impl RunDir {
    /// Complete checkpoints, oldest first. Temporary and unrelated folders are skipped.
    pub fn checkpoints(&self) -> Vec<CheckpointEntry> {
        let Ok(folder) = std::fs::read_dir(self.checkpoints_path()) else {
            return Vec::new();
        };
        let mut found: Vec<CheckpointEntry> = folder
            .filter_map(|entry| whole(&entry.ok()?.path()))
            .collect();
        found.sort_by_key(|entry| entry.step);
        found
    }

    /// The kept checkpoint that the log calls the best; the newest one if it calls none so.
    pub fn best_checkpoint(&self) -> Option<CheckpointEntry> {
        let mut best: Vec<u64> = Vec::new();
        let _ = super::index::scan_events(
            &self.events_path(),
            &["Checkpointed", "RolledBack"],
            |event| match event {
                Event::Checkpointed {
                    step, best: true, ..
                } => best.push(step),
                Event::RolledBack { step } => best.retain(|&s| s <= step),
                _ => {}
            },
        );
        let kept = self.checkpoints();
        best.iter()
            .rev()
            .find_map(|&step| kept.iter().find(|entry| entry.step == step))
            .or(kept.last())
            .cloned()
    }
}

/// The folder as a checkpoint, if it is complete.
pub fn whole(path: &Path) -> Option<CheckpointEntry> {
    let step = path.file_name()?.to_str()?.strip_prefix("step-")?;
    let step = step.parse().ok()?;
    path.join("manifest.json")
        .is_file()
        .then(|| CheckpointEntry {
            step,
            path: path.into(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::ManualClock;
    use crate::run::LogWriter;
    use std::sync::Arc;

    fn run_with_steps(dir: &Path, steps: &[u64]) -> RunDir {
        let run = RunDir::create(dir, "x", "", "", &ManualClock::at(0)).unwrap();
        for step in steps {
            let folder = run.checkpoints_path().join(format!("step-{step:06}"));
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join("manifest.json"), "{}").unwrap();
        }
        run
    }

    fn log(run: &RunDir, events: Vec<Event>) {
        let clock = Arc::new(ManualClock::at(0));
        let (mut sender, thread) = LogWriter::open(&run.events_path(), clock, |_| {}).unwrap();
        for event in events {
            sender.emit(event).unwrap();
        }
        drop(sender);
        thread.finish().unwrap();
    }

    fn saved(step: u64, best: bool) -> Event {
        Event::Checkpointed {
            step,
            path: format!("checkpoints/step-{step:06}"),
            bytes: 1,
            seconds: 0.0,
            best,
            val_loss: None,
        }
    }

    #[test]
    fn only_whole_checkpoints_are_listed_in_the_order_of_steps() {
        let dir = tempfile::tempdir().unwrap();
        let run = run_with_steps(dir.path(), &[1_000_000, 500]);
        std::fs::create_dir(run.checkpoints_path().join("step-000700")).unwrap();
        std::fs::create_dir(run.checkpoints_path().join(".tmp-step-000800")).unwrap();
        let steps: Vec<u64> = run.checkpoints().iter().map(|c| c.step).collect();
        assert_eq!(steps, [500, 1_000_000]);
    }

    #[test]
    fn the_best_is_the_logs_word_among_those_kept() {
        let dir = tempfile::tempdir().unwrap();
        let run = run_with_steps(dir.path(), &[100, 300]);
        assert_eq!(run.best_checkpoint().unwrap().step, 300);
        log(
            &run,
            vec![saved(100, true), saved(200, true), saved(300, false)],
        );
        assert_eq!(run.best_checkpoint().unwrap().step, 100);
        log(&run, vec![Event::RolledBack { step: 50 }, saved(300, true)]);
        assert_eq!(run.best_checkpoint().unwrap().step, 300);
    }

    #[test]
    fn a_run_without_checkpoints_has_no_best() {
        let dir = tempfile::tempdir().unwrap();
        let run = run_with_steps(dir.path(), &[]);
        assert!(run.best_checkpoint().is_none());
    }
}
