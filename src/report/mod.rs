//! A finished or running training as a document of its own: one HTML file that asks nothing of anybody, or Markdown. What a
//! run says of itself comes in as the fold of its events; every text of it is escaped here.

mod chart;
mod html;
mod markdown;
mod sections;

pub use html::html;
pub use markdown::markdown;

use crate::diagnosis::Diagnosis;
use crate::run::RunState;
use crate::tasks::Summary;

/// What a report is made of.
pub struct Sheet<'a> {
    pub state: &'a RunState,
    pub diagnosis: &'a Diagnosis,
    /// The resolved spec as YAML, with marks at what was asked for.
    pub spec: String,
    /// What was asked for: the preset and what was changed, as YAML. May be empty.
    pub asked: String,
    /// Memory that was predicted for the run, bytes.
    pub predicted_bytes: Option<u64>,
    /// Evaluations of its checkpoints: which one, and what came of it.
    pub results: Vec<(String, Summary)>,
}

#[cfg(test)]
mod tests;
