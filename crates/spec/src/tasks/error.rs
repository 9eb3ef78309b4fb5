//! Errors of tasks and their runs.

use crate::base::near::did_you_mean;
use crate::base::text::one_line;
use crate::data::DataError;
use std::borrow::Cow;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    #[error("unknown task `{said}`")]
    Unknown {
        said: String,
        known: String,
        /// The known one that is written most alike.
        near: Option<String>,
    },
    #[error("task file {} does not exist", crate::base::text::shown(.0))]
    Absent(PathBuf),
    #[error("{place}: {what}")]
    File { place: String, what: String },
    /// A `~` that cannot be expanded.
    #[error("{place}: {what}")]
    Home {
        place: String,
        what: String,
        hint: String,
    },
    #[error("the rows of {task} are not available: {why}")]
    Rows { task: String, why: DataError },
    #[error("{task}: {why}")]
    Row { task: String, why: DataError },
    #[error("{task}, {place}: {what}")]
    Item {
        task: String,
        place: String,
        what: String,
    },
    #[error("{path}: {source}")]
    Io {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{task}: {what}")]
    Programs {
        task: String,
        what: String,
        hint: String,
    },
    /// A row or an answer that a reward cannot judge.
    #[error("{task}: {what}")]
    Reward { task: String, what: String },
    #[error("the model cannot compute: {0}")]
    Model(String),
    /// A log-probability of a given text, or a logit while an answer is written.
    #[error("a logit or log-probability is not finite: the model's weights are damaged")]
    NotFinite,
}

impl TaskError {
    pub(super) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> TaskError {
        let path = path.to_path_buf();
        move |source| TaskError::Io { path, source }
    }

    /// What `expand_home` says of a path at `place`.
    pub(super) fn home(place: &str, (what, hint): (String, String)) -> TaskError {
        TaskError::Home {
            place: one_line(place),
            what,
            hint,
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> Cow<'static, str> {
        match self {
            TaskError::Unknown {
                near: Some(near), ..
            } => did_you_mean(near).into(),
            TaskError::Unknown { known, .. } => format!(
                "known: {known}; or the path of a .yaml file; llmtui eval --list describes them"
            )
            .into(),
            TaskError::Absent(_) => "llmtui eval --list; a path of a .yaml file works too".into(),
            TaskError::File { .. } => "docs/evaluation.md describes task files".into(),
            TaskError::Rows { why, .. } => match why.hint() {
                hint if hint.is_empty() => "exclude the task with --tasks".into(),
                hint => format!("{hint}; or exclude the task with --tasks").into(),
            },
            TaskError::Row { why, .. } => why.hint(),
            TaskError::Reward { .. } => "fix the reward or the row".into(),
            TaskError::Item { .. } => "fix the task's file or its rows".into(),
            TaskError::Io { .. } => "check the free space and the permissions there".into(),
            TaskError::Home { hint, .. } | TaskError::Programs { hint, .. } => hint.clone().into(),
            TaskError::Model(_) | TaskError::NotFinite => {
                "check the model's files: llmtui inspect MODEL".into()
            }
        }
    }

    /// Whether another model might well be asked.
    pub fn is_of_the_model(&self) -> bool {
        matches!(self, TaskError::Item { .. })
    }

    /// Whether the network or the disk is to blame, and nothing that the user wrote.
    pub fn is_outage(&self) -> bool {
        match self {
            TaskError::Rows { why, .. } => why.is_environment_error(),
            TaskError::Io { .. }
            | TaskError::Programs { .. }
            | TaskError::Model(_)
            | TaskError::NotFinite => true,
            _ => false,
        }
    }

    pub(super) fn item(task: &str, place: &str, what: impl AsRef<str>) -> TaskError {
        TaskError::Item {
            task: task.into(),
            place: one_line(place),
            what: one_line(what.as_ref()),
        }
    }
}
