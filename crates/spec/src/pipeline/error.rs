//! Errors of pipelines.

use std::path::PathBuf;

/// Why a pipeline cannot be read, found or written.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    /// The file says something that cannot be.
    #[error("{place}: {what}")]
    Invalid {
        place: String,
        what: String,
        hint: String,
    },
    #[error("{path}: {error}")]
    Io {
        path: PathBuf,
        error: std::io::Error,
    },
    #[error("unknown pipeline {word:?} in {folder}")]
    Unknown { word: String, folder: PathBuf },
    #[error("{path}: {why}")]
    Damaged { path: PathBuf, why: String },
    #[error("{0} is driven by another process")]
    Busy(PathBuf),
}

impl PipelineError {
    pub(super) fn io(path: &std::path::Path) -> impl Fn(std::io::Error) -> PipelineError {
        let path = path.to_path_buf();
        move |error| PipelineError::Io {
            path: path.clone(),
            error,
        }
    }

    /// How to mend it.
    pub fn hint(&self) -> &str {
        match self {
            PipelineError::Invalid { hint, .. } => hint,
            PipelineError::Io { .. } => "check the folder and the room on the disk",
            PipelineError::Unknown { .. } => "llmtui runs lists pipelines and runs",
            PipelineError::Damaged { .. } => "start the pipeline again; its runs are kept",
            PipelineError::Busy(_) => "llmtui runs shows it; llmtui stop RUN stops its stage",
        }
    }

    /// Whether the machine is the cause, not what was asked for.
    pub fn is_outage(&self) -> bool {
        matches!(self, PipelineError::Io { .. })
    }
}
