//! Errors of pipelines.

use std::fmt::Write as _;
use std::path::PathBuf;

/// Why a pipeline cannot be read, found or written.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    /// The file says something that cannot be; never empty.
    #[error("{}", listed(.0))]
    Invalid(Vec<Fault>),
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

/// One problem of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// File and line, or a word of `-s`, and the stage.
    pub place: String,
    pub what: String,
    /// How to mend it.
    pub hint: String,
}

impl Fault {
    pub fn new(
        place: impl Into<String>,
        what: impl Into<String>,
        hint: impl Into<String>,
    ) -> Fault {
        Fault {
            place: place.into(),
            what: what.into(),
            hint: hint.into(),
        }
    }
}

fn listed(faults: &[Fault]) -> String {
    if let [Fault { place, what, .. }] = faults {
        return format!("{place}: {what}");
    }
    let mut out = format!("{} problems in the pipeline:", faults.len());
    for Fault { place, what, hint } in faults {
        let _ = write!(out, "\n  {place}\n      {}", what.replace('\n', "\n      "));
        if !hint.is_empty() {
            let _ = write!(out, "\n      try: {hint}");
        }
    }
    out
}

impl PipelineError {
    /// A single problem.
    pub fn invalid(
        place: impl Into<String>,
        what: impl Into<String>,
        hint: impl Into<String>,
    ) -> PipelineError {
        PipelineError::Invalid(vec![Fault::new(place, what, hint)])
    }

    pub(super) fn io(path: &std::path::Path) -> impl Fn(std::io::Error) -> PipelineError {
        let path = path.to_path_buf();
        move |error| PipelineError::Io {
            path: path.clone(),
            error,
        }
    }

    /// How to mend it; of several problems each says so itself.
    pub fn hint(&self) -> &str {
        match self {
            PipelineError::Invalid(faults) => match faults.as_slice() {
                [fault] => &fault.hint,
                _ => "",
            },
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
