//! A finished or running training as a standalone document: one self-contained HTML file, Markdown, or its charts as one
//! sheet in SVG or PNG. The input is the fold of the run's events; all of its texts are escaped here.

mod chart;
mod heat;
mod html;
mod markdown;
mod picture;
mod png;
mod sections;
mod shapes;

pub use html::{html, pipeline_html};
pub use markdown::{markdown, pipeline_markdown};
pub use picture::{picture, picture_png, pipeline_picture, pipeline_png};

use crate::diagnosis::Diagnosis;
use crate::pipeline::State;
use crate::run::RunState;
use crate::tasks::Kept;

/// Bytes at a report's beginning that say whose it is.
pub const HEAD: u64 = 2 << 10;

/// What a report says of itself in its first bytes, whatever its form. An id is any text: letters that could mean something in
/// one of the forms are encoded.
fn mark(id: &str) -> String {
    let mut out = String::from("llmtui report (");
    for byte in id.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => out.push(byte.into()),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out + ")"
}

/// Whether a file that begins so is a report of this run or pipeline.
pub fn is_report_of(id: &str, head: &[u8]) -> bool {
    let mark = mark(id);
    // One that has said nothing has no id yet: its reports have no name of their own.
    !id.is_empty() && head.windows(mark.len()).any(|part| part == mark.as_bytes())
}

/// What a report is made of.
pub struct RunReport<'a> {
    pub state: &'a RunState,
    pub diagnosis: &'a Diagnosis,
    /// The resolved spec as YAML, with marks at what was asked for.
    pub spec: String,
    /// What was asked for: the preset and what was changed, as YAML. May be empty.
    pub asked: String,
    /// What trains where not all weights do: `, of which 2.44M train (1.78 %): LoRA rank 8 (all)`.
    pub trained: Option<String>,
    /// Memory that was predicted for the run, bytes.
    pub predicted_bytes: Option<u64>,
    /// Evaluations of its checkpoints.
    pub results: Vec<Kept>,
    /// What an hour of the machine costs, where that is known.
    pub price: Option<Price>,
}

/// Dollars for an hour of the machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Price {
    pub dollars: f64,
    /// Whose number it is; empty where the reader of the report said it.
    pub source: String,
}

impl<'a> RunReport<'a> {
    /// The run's id.
    fn id(&self) -> &'a str {
        &self.state.run
    }

    /// The run's name, or its id before the engine has said it.
    fn name(&self) -> &'a str {
        let head = self.state.head.as_ref();
        head.map_or(self.state.run.as_str(), |head| &head.name)
    }

    /// Where evaluations stand elsewhere.
    fn without_results(&self) -> RunReport<'a> {
        RunReport {
            state: self.state,
            diagnosis: self.diagnosis,
            spec: self.spec.clone(),
            asked: self.asked.clone(),
            trained: self.trained.clone(),
            predicted_bytes: self.predicted_bytes,
            results: Vec::new(),
            price: self.price.clone(),
        }
    }
}

/// What the report of a pipeline is made of.
pub struct PipelineReport<'a> {
    pub state: &'a State,
    /// Its runs, in the order of the stages.
    pub sheets: Vec<RunReport<'a>>,
}

#[cfg(test)]
mod tests;
