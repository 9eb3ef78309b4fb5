//! The checkpoints of a run: their names, and which there are. Their contents belong to the engine.

use super::RunDir;
use super::log::scan_events;
use crate::wire::{Best, Event, id};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The folder of a run that holds them.
pub const FOLDER: &str = "checkpoints";
/// The file of a checkpoint with the counters of its run, and the fingerprints of its data and tokenizer.
pub const STATE: &str = "state.json";
/// What the names of their folders begin with.
const PREFIX: &str = "step-";

/// What the folder of a step is called, as are other files of that step: `step-001000`.
pub fn name_of(step: u64) -> String {
    format!("{PREFIX}{step:06}")
}

/// The step in such a name; `None` where it is another name, which [`name_of`] gives no step.
pub fn step_in(name: &str) -> Option<u64> {
    let step = name.strip_prefix(PREFIX)?.parse().ok()?;
    (name_of(step) == name).then_some(step)
}

/// The folder of a checkpoint within that of its run: `checkpoints/step-001000`.
pub fn path_in_run(step: u64) -> String {
    format!("{FOLDER}/{}", name_of(step))
}

/// A complete checkpoint: a folder `step-001000` with a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointEntry {
    /// Completed optimizer steps.
    pub step: u64,
    pub path: PathBuf,
}

/// A complete checkpoint, with what the log says of it.
#[derive(Debug, Clone, PartialEq)]
pub struct KeptCheckpoint {
    pub entry: CheckpointEntry,
    /// The last validation loss before it was saved.
    pub val_loss: Option<f64>,
    /// The reading that decides which one is the best, where the log has it of this one.
    pub by: Option<Best>,
    /// Rows that `by` was measured on, where another loss of the run was measured on others.
    pub rows: Option<u64>,
    /// Of one at most.
    pub best: bool,
}

impl RunDir {
    pub fn checkpoints_path(&self) -> PathBuf {
        self.path().join(FOLDER)
    }

    /// Where the checkpoint of a step is, or would be.
    pub fn checkpoint_path(&self, step: u64) -> PathBuf {
        self.checkpoints_path().join(name_of(step))
    }

    /// Complete checkpoints, oldest first. Temporary and unrelated folders are skipped.
    pub fn checkpoints(&self) -> Vec<CheckpointEntry> {
        self.every(whole)
    }

    /// Abandoned checkpoints that are kept because other runs started from them, oldest first.
    pub fn abandoned_checkpoints(&self) -> Vec<CheckpointEntry> {
        self.every(|path| complete(path).filter(|_| is_abandoned(path)))
    }

    fn every(&self, of: impl Fn(&Path) -> Option<CheckpointEntry>) -> Vec<CheckpointEntry> {
        let entries = std::fs::read_dir(self.checkpoints_path()).into_iter();
        let entries = entries.flatten().flatten();
        let mut found: Vec<CheckpointEntry> =
            entries.filter_map(|entry| of(&entry.path())).collect();
        found.sort_by_key(|entry| entry.step);
        found
    }

    /// Its checkpoints with what the log says of them, oldest first. The newest of those that were the best when they were
    /// saved is the best.
    pub fn kept(&self) -> Vec<KeptCheckpoint> {
        let mut saved: BTreeMap<u64, Saved> = BTreeMap::new();
        let mut rows: BTreeMap<u64, u64> = BTreeMap::new();
        let _ = scan_events(
            &self.events_path(),
            &["Checkpointed", "Evaluated", "RolledBack"],
            |event| match event {
                Event::Evaluated {
                    step,
                    n_windows,
                    ref values,
                    ..
                } if values.contains_key(id::VAL_LOSS) => {
                    rows.insert(step, n_windows);
                }
                Event::Checkpointed {
                    step,
                    val_loss,
                    best,
                    by,
                    ..
                } => {
                    // The same step may be saved again, such as at a stop: it is as good as it was.
                    let known = saved.entry(step).or_default();
                    known.best |= best;
                    known.val_loss = val_loss.map(|loss| loss.0).or(known.val_loss);
                    known.by = by.or(known.by.take());
                }
                Event::RolledBack { step } => {
                    saved.split_off(&(step + 1));
                    rows.split_off(&(step + 1));
                }
                _ => {}
            },
        );
        let said = |step| saved.get(&step).cloned().unwrap_or_default();
        let all = self.checkpoints();
        let mut newest_first = all.iter().rev().map(|entry| entry.step);
        let best = newest_first.find(|step| said(*step).best);
        // The last evaluation may have read more rows than those that checkpoints are compared on.
        let read_alike = |saved: &Saved| {
            let by = saved.by.as_ref().filter(|by| by.metric == id::VAL_LOSS);
            by.map(|by| Some(by.value.0) == saved.val_loss)
        };
        let mixed = saved.values().any(|saved| read_alike(saved) == Some(false));
        let mut usual = saved.iter().filter(|(_, it)| read_alike(it) == Some(true));
        let rows = usual.find_map(|(step, _)| rows.get(step).copied());
        let rows = rows.filter(|_| mixed);
        let kept = all.into_iter().map(|entry| KeptCheckpoint {
            val_loss: said(entry.step).val_loss,
            by: said(entry.step).by,
            rows,
            best: best == Some(entry.step),
            entry,
        });
        kept.collect()
    }

    /// The best of its checkpoints; the newest one if the log calls none so.
    pub fn best_checkpoint(&self) -> Option<CheckpointEntry> {
        let mut kept = self.kept();
        let at = kept.iter().position(|checkpoint| checkpoint.best);
        let at = at.or(kept.len().checked_sub(1))?;
        Some(kept.swap_remove(at).entry)
    }
}

/// What the log says of a checkpoint.
#[derive(Debug, Clone, Default)]
struct Saved {
    val_loss: Option<f64>,
    by: Option<Best>,
    best: bool,
}

/// In the folder of a checkpoint that its run gave up and another run begins from: the run passes it over.
pub const GIVEN_UP: &str = "given-up";

/// Whether the run of a checkpoint has given it up.
pub fn is_abandoned(checkpoint: &Path) -> bool {
    checkpoint.join(GIVEN_UP).exists()
}

/// The folder as a checkpoint, if it is complete and its run has not given it up.
pub fn whole(path: &Path) -> Option<CheckpointEntry> {
    complete(path).filter(|_| !is_abandoned(path))
}

/// The folder as a checkpoint, if it is complete.
fn complete(path: &Path) -> Option<CheckpointEntry> {
    let step = step_in(path.file_name()?.to_str()?)?;
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

    #[test]
    fn a_step_is_read_from_the_name_that_it_was_given() {
        for step in [0, 7, 1_000, 999_999, 1_000_000, u64::MAX] {
            assert_eq!(step_in(&name_of(step)), Some(step));
        }
        assert_eq!(path_in_run(1_000), "checkpoints/step-001000");
        for name in [
            "step-",
            "step-7",
            "step-0001000",
            "step-+00007",
            "step-001000.zst",
            "001000",
        ] {
            assert_eq!(step_in(name), None, "{name}");
        }
    }

    fn run_with_steps(dir: &Path, steps: &[u64]) -> RunDir {
        let run = RunDir::create(dir, "x", "", "", &ManualClock::at(0)).unwrap();
        for step in steps {
            let folder = run.checkpoint_path(*step);
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
            path: path_in_run(step),
            bytes: 1,
            seconds: 0.0,
            best,
            val_loss: None,
            by: None,
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
    fn the_best_of_those_kept_is_marked_with_its_loss() {
        let dir = tempfile::tempdir().unwrap();
        let run = run_with_steps(dir.path(), &[100, 300, 400]);
        let with_loss = |step, best, loss| match saved(step, best) {
            Event::Checkpointed {
                step,
                path,
                bytes,
                seconds,
                best,
                ..
            } => Event::Checkpointed {
                step,
                path,
                bytes,
                seconds,
                best,
                val_loss: Some(crate::base::num::Num(loss)),
                by: None,
            },
            other => other,
        };
        log(
            &run,
            vec![
                with_loss(100, true, 2.0),
                // Better, and gone since.
                with_loss(200, true, 1.0),
                with_loss(300, false, 1.5),
                // Again, as at a stop.
                saved(100, false),
            ],
        );
        let kept = run.kept();
        let told: Vec<_> = kept
            .iter()
            .map(|c| (c.entry.step, c.val_loss, c.best))
            .collect();
        let expected = [
            (100, Some(2.0), true),
            (300, Some(1.5), false),
            (400, None, false),
        ];
        assert_eq!(told, expected);
        assert_eq!(run.best_checkpoint().as_ref(), Some(&kept[0].entry));
    }

    #[test]
    fn a_run_without_checkpoints_has_no_best() {
        let dir = tempfile::tempdir().unwrap();
        let run = run_with_steps(dir.path(), &[]);
        assert!(run.best_checkpoint().is_none());
    }

    /// The last loss, over all rows, was lower than the one marked "best", which was of 8 of them.
    #[test]
    fn losses_of_other_rows_are_shown_on_the_rows_that_all_were_measured_on() {
        let dir = tempfile::tempdir().unwrap();
        let run = run_with_steps(dir.path(), &[10, 20]);
        let num = crate::base::num::Num;
        let evaluated = |step, loss, n_windows| Event::Evaluated {
            step,
            tokens: 0,
            values: [(id::VAL_LOSS.to_string(), num(loss))].into(),
            n_windows,
            whole: n_windows > 8,
            seconds: 0.0,
        };
        let saved = |step, val_loss, value| Event::Checkpointed {
            step,
            path: path_in_run(step),
            bytes: 1,
            seconds: 0.0,
            best: step == 10,
            val_loss: Some(num(val_loss)),
            by: Some(Best {
                step,
                metric: id::VAL_LOSS.into(),
                value: num(value),
                direction: crate::wire::Direction::Lower,
            }),
        };
        let events = |whole: bool| {
            let (last, n) = if whole { (3.486, 3_485) } else { (3.691, 8) };
            vec![
                evaluated(10, 3.575, 8),
                saved(10, 3.575, 3.575),
                evaluated(20, last, n),
                saved(20, last, 3.691),
            ]
        };
        log(&run, events(true));
        let rows = |run: &RunDir| run.kept().iter().map(|it| it.rows).collect::<Vec<_>>();
        assert_eq!(rows(&run), [Some(8), Some(8)]);
        log(&run, events(false));
        assert_eq!(rows(&run), [None, None], "all were of the same rows");
    }
}
