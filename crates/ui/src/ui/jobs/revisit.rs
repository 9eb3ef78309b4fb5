//! Batches of past steps and branches: verbs of this program in processes of their own.

use super::JobContext;
use crate::link::launch::Launcher;
use crate::run::RunDir;
use crate::run::revisit::{Row, mean_loss};
use crate::ui::effect::BranchPlan;
use crate::ui::msg::Revisited;
use std::path::{Path, PathBuf};

impl JobContext {
    /// The rows of a step, and the loss of those of the step before.
    ///
    /// # Errors
    /// What the verb says.
    pub fn revisit(&self, run_dir: &Path, step: u64) -> Result<Box<Revisited>, String> {
        let run = RunDir::open(run_dir).map_err(|e| e.to_string())?;
        let kept = run.checkpoints().iter().map(|entry| entry.step).collect();
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
            kept,
        }))
    }

    /// What a branch would differ in.
    ///
    /// # Errors
    /// What the verb says.
    pub fn plan_branch(&self, run_dir: &Path, plan: &BranchPlan) -> Result<Vec<String>, String> {
        let place = (run_dir, kept_up_to(run_dir, plan.step)?);
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
        let place = (run_dir, kept_up_to(run_dir, plan.step)?);
        let made = self
            .launcher()?
            .make_branch(place, &plan.settings, &self.runs_dir);
        made.map_err(|e| e.to_string())
    }

    fn launcher(&self) -> Result<Launcher, String> {
        Launcher::this_program(&self.env).map_err(|e| e.to_string())
    }
}

/// The newest checkpoint up to a step: those in the log may have made room for newer ones. The start needs none.
fn kept_up_to(run_dir: &Path, step: u64) -> Result<u64, String> {
    if step == 0 {
        return Ok(0);
    }
    let run = RunDir::open(run_dir).map_err(|e| e.to_string())?;
    let kept = run.checkpoints();
    let steps = || kept.iter().map(|entry| entry.step);
    steps().rev().find(|kept| *kept <= step).ok_or_else(|| {
        let steps: Vec<String> = steps().map(|step| step.to_string()).collect();
        format!(
            "no checkpoint up to step {step} is left; available: {}",
            steps.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::ManualClock;

    #[test]
    fn the_start_needs_no_checkpoint() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::create(dir.path(), "x", "", "", &ManualClock::at(1)).unwrap();
        assert_eq!(kept_up_to(run.path(), 0), Ok(0));
        let none = kept_up_to(run.path(), 5).unwrap_err();
        assert!(none.contains("no checkpoint up to step 5"), "{none}");
    }
}
