//! The rows of a past training step, for inspection: the supervised tokens, and the probabilities of each under some weights.
//! The engine recomputes them from (seed, step); one row is one line of JSON.

use serde::{Deserialize, Serialize};

/// A row as the model reads it. `targets[t]` follows `ids[t]`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Row {
    /// The optimizer step, counted from 1, and the micro-step, counted from 0; neither of rows of the validation split.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub micro_step: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub held_out: bool,
    /// The number of its example: in its micro-batch, or in the validation split. Both answers of a pair have the same.
    pub row: usize,
    /// Which answer of a pair it is, `chosen` or `rejected`, or how a judged one was judged: `desirable` or `undesirable`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    pub ids: Vec<u32>,
    pub targets: Vec<u32>,
    /// Whether the target counts in the loss.
    pub mask: Vec<bool>,
    /// Targets that count.
    pub supervised: usize,
    pub text: String,
    /// Where in the row the document of each token begins; absent where the row is one text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<Vec<u32>>,
    /// Of one text: the window's first token in its split.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<usize>,
    /// Sources of the row's documents, where data have names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
    /// What the weights make of it, where that was asked for and each token has a loss.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scored: Option<ScoredRow>,
}

/// What weights make of a row.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScoredRow {
    /// Step of the checkpoint whose weights these are; 0 are the weights before the first step.
    pub weights_of: u64,
    /// −log p of each target in nats, whether it counts or not.
    pub losses: Vec<f32>,
    /// Mean over the targets that count; absent where none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// The text of each target alone.
    pub pieces: Vec<String>,
    /// Input tokens that are no target of the row, each with its place and its text: the first one of each document.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub firsts: Vec<(usize, String)>,
}

impl Row {
    /// Mean loss over the targets that count, nats per token.
    pub fn loss(&self) -> Option<f64> {
        self.scored.as_ref()?.loss
    }
}

/// Mean loss of rows over all targets that count, nats per token; `None` where none was scored.
pub fn mean_loss<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Option<f64> {
    let (mut sum, mut n) = (0.0, 0);
    for row in rows {
        if let Some(loss) = row.loss() {
            sum += loss * row.supervised as f64;
            n += row.supervised;
        }
    }
    (n > 0).then(|| sum / n as f64)
}
