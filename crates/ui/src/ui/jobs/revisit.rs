//! Batches of past steps, branches, the end of a run: verbs of this program in processes of their own.

use super::JobContext;
use crate::base::human::grouped;
use crate::link::launch::Launcher;
use crate::run::RunDir;
use crate::run::revisit::{Row, mean_loss};
use crate::ui::msg::{BranchPlan, Revisited};
use std::path::{Path, PathBuf};

impl JobContext {
    /// The rows of a step, and the loss of those of the step before.
    ///
    /// # Errors
    /// What the verb says.
    pub fn revisit(&self, run_dir: &Path, step: u64) -> Result<Box<Revisited>, String> {
        let first = step.saturating_sub(1).max(1);
        let rows = self
            .launcher()?
            .rows(run_dir, first, step - first + 1)
            .map_err(|e| e.to_string())?;
        let (rows, before): (Vec<Row>, Vec<Row>) =
            rows.into_iter().partition(|row| row.step == Some(step));
        Ok(Box::new(Revisited {
            step,
            before: mean_loss(&before),
            rows,
        }))
    }

    /// What a branch would differ in.
    ///
    /// # Errors
    /// What the verb says.
    pub fn plan_branch(&self, run_dir: &Path, plan: &BranchPlan) -> Result<Vec<String>, String> {
        let place = (run_dir, kept(run_dir, plan.step)?);
        let planned = self
            .launcher()?
            .plan_branch(place, &plan.settings, &self.runs_dir);
        planned.map_err(|e| e.to_string())
    }

    /// Makes a branch, and gives its directory.
    ///
    /// # Errors
    /// What the verb says.
    pub fn make_branch(&self, run_dir: &Path, plan: &BranchPlan) -> Result<PathBuf, String> {
        let place = (run_dir, kept(run_dir, plan.step)?);
        let made = self
            .launcher()?
            .make_branch(place, &plan.settings, &self.runs_dir);
        made.map_err(|e| e.to_string())
    }

    /// What would go with a run, a line for each thing.
    ///
    /// # Errors
    /// What the verb says.
    pub fn plan_removal(&self, run_dir: &Path) -> Result<Vec<String>, String> {
        let planned = self.launcher()?.plan_removal(run_dir, &self.runs_dir);
        planned.map_err(|e| e.to_string())
    }

    /// Deletes a run.
    ///
    /// # Errors
    /// What the verb says.
    pub fn remove_run(&self, run_dir: &Path) -> Result<(), String> {
        let removed = self.launcher()?.remove_run(run_dir, &self.runs_dir);
        removed.map_err(|e| e.to_string())
    }

    /// Writes a run's best checkpoint for other programs.
    ///
    /// # Errors
    /// What the verb says.
    pub fn export_run(&self, run_dir: &Path, options: &[String], to: &Path) -> Result<(), String> {
        let exported = self
            .launcher()?
            .export_run(run_dir, options, to, &self.runs_dir);
        exported.map_err(|e| e.to_string())
    }

    fn launcher(&self) -> Result<Launcher, String> {
        Launcher::this_program(&self.env).map_err(|e| e.to_string())
    }
}

/// The step, where its checkpoint is still there: it may have made room for a newer one since it was offered, and a branch
/// from another one would not be what was chosen. The start needs none.
fn kept(run_dir: &Path, step: u64) -> Result<u64, String> {
    if step == 0 {
        return Ok(0);
    }
    let run = RunDir::open(run_dir).map_err(|e| e.to_string())?;
    let kept: Vec<u64> = run.checkpoints().iter().map(|entry| entry.step).collect();
    if kept.contains(&step) {
        return Ok(step);
    }
    let left: Vec<String> = kept.iter().map(|step| grouped(*step)).collect();
    let left = match left.is_empty() {
        true => "the run keeps none".to_string(),
        false => format!("the run keeps {}", left.join(", ")),
    };
    Err(format!("no checkpoint at step {}; {left}", grouped(step)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::ManualClock;

    #[test]
    fn the_start_needs_no_checkpoint() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::create(dir.path(), "x", "", "", &ManualClock::at(1)).unwrap();
        assert_eq!(kept(run.path(), 0), Ok(0));
        let none = kept(run.path(), 5).unwrap_err();
        assert!(none.contains("no checkpoint at step 5"), "{none}");
    }

    /// `branch from step 1,000` began at step 500 once the former was gone.
    #[test]
    fn a_branch_begins_at_the_chosen_checkpoint_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::create(dir.path(), "x", "", "", &ManualClock::at(1)).unwrap();
        for step in [500, 1_500] {
            let folder = run.checkpoint_path(step);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("manifest.json"), "{}").unwrap();
        }
        assert_eq!(kept(run.path(), 500), Ok(500));
        let gone = kept(run.path(), 1_000).unwrap_err();
        assert_eq!(
            gone,
            "no checkpoint at step 1,000; the run keeps 500, 1,500"
        );
    }
}
