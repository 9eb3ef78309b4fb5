//! Stored evaluations: where they lie, read for the pane that shows them.

use super::JobContext;
use crate::tasks::{self, Question, TaskRow, TaskTable};
use std::path::{Path, PathBuf};

impl JobContext {
    /// Folders of answers: those of the working directory, beside the runs, and of each pipeline.
    fn eval_folders(&self) -> Vec<PathBuf> {
        let beside = self.runs_dir.parent().map(|dir| dir.join("evals"));
        let pipelines = std::fs::read_dir(self.runs_dir.join("pipelines"));
        let pipelines = pipelines.into_iter().flatten().flatten();
        let pipelines = pipelines.map(|entry| entry.path().join("evals"));
        let mut found: Vec<PathBuf> = Vec::new();
        for folder in [Path::new("evals").to_path_buf()]
            .into_iter()
            .chain(beside)
            .chain(pipelines)
        {
            // Two names of one folder would list its models twice.
            if let Ok(folder) = folder.canonicalize()
                && !found.contains(&folder)
            {
                found.push(folder);
            }
        }
        found
    }

    /// Models beside each other: directories of runs, and folders of answers.
    ///
    /// # Errors
    /// Answers that cannot be read.
    pub fn evals(&self, subjects: &[PathBuf]) -> Result<Box<TaskTable>, String> {
        let found = tasks::table(subjects, &self.eval_folders(), &self.env);
        found.map(Box::new).map_err(|e| e.to_string())
    }

    /// Models that have answers, by the folders of these.
    pub fn eval_models(&self) -> Vec<(String, PathBuf)> {
        tasks::models_in(&self.eval_folders())
    }
}

/// The items of a task.
///
/// # Errors
/// Answers that cannot be read.
pub fn questions(row: &TaskRow) -> Result<Vec<Question>, String> {
    tasks::questions(row).map_err(|e| e.to_string())
}
