//! Why a checkpoint could not be written or read.

use super::manifest::Fault;
use crate::hf;
use crate::kernels::errors::error_text;
use std::io;
use std::path::PathBuf;

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

impl From<candle_core::Error> for CheckpointError {
    fn from(error: candle_core::Error) -> Self {
        CheckpointError::Optimizer(error_text(error))
    }
}
