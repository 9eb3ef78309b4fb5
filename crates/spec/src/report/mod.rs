//! A finished or running training as a document of its own: one HTML file that asks nothing of anybody, Markdown, or its
//! pictures as one sheet in SVG or PNG. What a
//! run says of itself comes in as the fold of its events; every text of it is escaped here.

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

impl<'a> Sheet<'a> {
    /// The run's name, or its id before the engine has said it.
    fn name(&self) -> &'a str {
        let head = self.state.head.as_ref();
        head.map_or(self.state.run.as_str(), |head| &head.name)
    }

    /// Where evaluations stand elsewhere.
    fn without_results(&self) -> Sheet<'a> {
        Sheet {
            state: self.state,
            diagnosis: self.diagnosis,
            spec: self.spec.clone(),
            asked: self.asked.clone(),
            predicted_bytes: self.predicted_bytes,
            results: Vec::new(),
            price: self.price.clone(),
        }
    }
}

/// What the report of a pipeline is made of.
pub struct Album<'a> {
    pub state: &'a State,
    /// Its runs, in the order of the stages.
    pub sheets: Vec<Sheet<'a>>,
}

#[cfg(test)]
mod tests;
