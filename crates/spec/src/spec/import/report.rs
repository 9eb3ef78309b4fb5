//! What an import gives: the spec as far as it goes, and what became of each key.

use super::dataset_info::DatasetInfo;
use super::freeze::StartModel;
use super::tool::{self, Dialect};
use crate::spec::draft::Draft;
use crate::spec::yaml::YamlError;

/// The outcome for one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyOutcome {
    Mapped,
    /// Mapped, with a slightly different meaning.
    Differs,
    /// Not in the file: what the tool does without it.
    Default,
    NoEqual,
    Needless,
    /// Not a known key of this dialect.
    Unknown,
}

impl KeyOutcome {
    pub const ALL: [KeyOutcome; 6] = [
        KeyOutcome::Mapped,
        KeyOutcome::Differs,
        KeyOutcome::Default,
        KeyOutcome::NoEqual,
        KeyOutcome::Needless,
        KeyOutcome::Unknown,
    ];

    /// The heading in a report.
    pub fn title(self) -> &'static str {
        match self {
            KeyOutcome::Mapped => "mapped",
            KeyOutcome::Differs => "mapped, with a difference",
            KeyOutcome::Default => "not in the file: the tool's defaults",
            KeyOutcome::NoEqual => "no equivalent",
            KeyOutcome::Needless => "not needed",
            KeyOutcome::Unknown => "not known",
        }
    }
}

/// One line of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub outcome: KeyOutcome,
    /// As in their file: `learning_rate: 1e-4`.
    pub theirs: String,
    /// The target path; empty if none.
    pub ours: String,
    pub words: String,
}

/// Another tool's file, converted as far as possible.
#[derive(Debug, Clone)]
pub struct Imported {
    pub dialect: Dialect,
    pub lines: Vec<Line>,
    pub draft: Draft,
    /// The method is a guess: what was taken, and how to say another.
    pub doubt: Option<String>,
}

/// What is known of a file besides its text.
#[derive(Debug, Clone, Default)]
pub struct Known<'a> {
    pub from: Option<Dialect>,
    /// What LLaMA-Factory's dataset names mean.
    pub info: Option<&'a DatasetInfo>,
    /// The method of a TRL file, which names no trainer.
    pub method: Option<&'a str>,
    /// The columns of its data.
    pub columns: Vec<String>,
    /// The model that it starts from.
    pub model: Option<StartModel>,
}

/// Why a file cannot be read at all.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("not valid YAML: {0}")]
    Yaml(#[from] YamlError),
    #[error("expected a map of keys")]
    NoMap,
    #[error("no key identifies the tool: add --from {}", tool::listed(|t| t.id(), "or"))]
    NoDialect,
    #[error(
        "this is a config of {tool}, which is not imported: those of {} are",
        tool::listed(|t| t.title(), "and")
    )]
    Foreign { tool: &'static str },
}
