//! Why a checkpoint could not be written or read.

use super::manifest::Fault;
use crate::base::files::not_written;
use crate::base::text::shown;
use crate::hf;
use crate::kernels::errors::error_text;
use std::io;
use std::path::{Path, PathBuf};

/// Why a checkpoint could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    #[error("step {step} could not be saved: {source}")]
    Write { step: u64, source: io::Error },
    #[error("{path}: {what}")]
    State { path: PathBuf, what: String },
    #[error(transparent)]
    Broken(#[from] Fault),
    #[error(transparent)]
    Model(#[from] hf::HfError),
    #[error(transparent)]
    Tensors(#[from] hf::TensorFileError),
    #[error("the optimizer's state: {0}")]
    Optimizer(String),
}

impl CheckpointError {
    /// What makes room for the next one in `folder`, that of the checkpoints: only a full disk asks for room.
    pub fn fix(&self, folder: &Path) -> String {
        let CheckpointError::Write { source, .. } = self else {
            return format!("check the disk of {}", shown(folder));
        };
        match folder.ancestors().find(|above| above.is_file()) {
            Some(file) => format!("move {} away: it is a file, not a folder", shown(file)),
            None => match source.kind() {
                io::ErrorKind::NotFound => format!("mkdir -p {}", shown(folder)),
                io::ErrorKind::FileTooLarge => {
                    "raise the limit on the size of files (ulimit -f)".into()
                }
                io::ErrorKind::NotADirectory
                | io::ErrorKind::IsADirectory
                | io::ErrorKind::AlreadyExists => {
                    format!("check {}: something there is in the way", shown(folder))
                }
                _ => not_written(&folder.join("step"), source).1,
            },
        }
    }
}

impl From<candle_core::Error> for CheckpointError {
    fn from(error: candle_core::Error) -> Self {
        CheckpointError::Optimizer(error_text(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fix for an error of the system with this kind.
    fn fix(folder: &Path, kind: io::ErrorKind) -> String {
        let source = kind.into();
        CheckpointError::Write { step: 5, source }.fix(folder)
    }

    #[test]
    fn only_a_full_disk_asks_for_room() {
        use io::ErrorKind as Kind;
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("checkpoints");
        std::fs::create_dir(&folder).unwrap();
        for kind in [Kind::StorageFull, Kind::QuotaExceeded] {
            assert!(fix(&folder, kind).starts_with("make room on the disk of "));
        }
        let denied = fix(&folder, Kind::PermissionDenied);
        assert!(denied.starts_with("check the permissions of "), "{denied}");
        let other = fix(&folder, Kind::Interrupted);
        assert!(other.starts_with("check the disk of "), "{other}");
        std::fs::remove_dir(&folder).unwrap();
        let gone = fix(&folder, Kind::NotFound);
        assert_eq!(gone, format!("mkdir -p {}", folder.display()));
        std::fs::write(&folder, "").unwrap();
        let file = fix(&folder, Kind::NotADirectory);
        let expected = format!("move {} away: it is a file", folder.display());
        assert!(file.starts_with(&expected), "{file}");
    }
}
