//! Why a folder cannot be checked.

use crate::models::SourceError;
use std::path::PathBuf;

/// Why a folder cannot be looked at.
#[derive(Debug, thiserror::Error)]
pub enum SubjectError {
    #[error("{}: {source}", path.display())]
    Io {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{}: {what}", path.display())]
    TooMuch { path: PathBuf, what: String },
    #[error(transparent)]
    NoModel(#[from] SourceError),
}

impl SubjectError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            SubjectError::Io { .. } => "check the path and its permissions".into(),
            SubjectError::TooMuch { .. } => "name the folder of one model".into(),
            SubjectError::NoModel(error) => error.hint().into(),
        }
    }
}
