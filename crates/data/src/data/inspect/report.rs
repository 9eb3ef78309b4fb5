//! The result of an inspection, to be shown or written as JSON.

use super::checks::Severity;
use super::lengths::{Bin, Lengths};
use crate::base::finding::Finding;
use serde::Serialize;

/// Bars of a histogram in JSON.
const BINS: usize = 24;

/// One kind of finding in these rows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RowsFinding {
    #[serde(flatten)]
    pub finding: Finding,
    /// Finer than the finding's status, which has no word for a note.
    pub severity: Severity,
    /// Rows that have it, and their share of all rows.
    pub rows: u64,
    pub share: f64,
    /// The first rows that have it.
    pub examples: Vec<Hit>,
}

impl std::ops::Deref for RowsFinding {
    type Target = Finding;

    fn deref(&self) -> &Finding {
        &self.finding
    }
}

/// One row that has a finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hit {
    /// `file:row`
    pub place: String,
    /// The fault.
    pub what: String,
}

/// Lengths of rows in one unit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Spread {
    pub rows: u64,
    pub total: u64,
    pub mean: f64,
    pub p50: u64,
    pub p95: u64,
    pub max: u64,
    pub histogram: Vec<Bin>,
    #[serde(skip)]
    pub lengths: Lengths,
}

impl From<Lengths> for Spread {
    fn from(lengths: Lengths) -> Spread {
        Spread {
            rows: lengths.rows(),
            total: lengths.total(),
            mean: lengths.mean(),
            p50: lengths.quantile(0.5),
            p95: lengths.quantile(0.95),
            max: lengths.max(),
            histogram: lengths.bins(BINS),
            lengths,
        }
    }
}

/// One source's share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceShare {
    pub name: String,
    pub rows: u64,
    pub characters: u64,
    /// 0 without a tokenizer.
    pub tokens: u64,
}

/// The row as a model sees it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tokens {
    /// Tokenizer and template, in words.
    pub view: String,
    /// Lengths of rows in tokens; the longer side of a pair.
    pub lengths: Spread,
    /// All tokens, both sides of pairs, and those that count in the loss.
    pub total: u64,
    pub supervised: u64,
    /// The longest row that is to be trained on, and the share of rows above it.
    pub seq_len: Option<u64>,
    pub over_seq_len: Option<f64>,
    pub vocab_size: usize,
    /// Different tokens met.
    pub used: usize,
    /// The most frequent tokens, and the special tokens met.
    pub top: Vec<TokenCount>,
    pub specials: Vec<TokenCount>,
}

/// How often a token was met.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TokenCount {
    pub id: u32,
    pub text: String,
    pub count: u64,
}

/// Everything about a data set.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// As it was named.
    pub name: String,
    /// The kind of rows, in words: `ShareGPT conversations`.
    pub format: String,
    /// Rows looked at, readable or not.
    pub rows: u64,
    pub characters: Spread,
    pub tokens: Option<Tokens>,
    /// The largest first.
    pub sources: Vec<SourceShare>,
    /// The worst first.
    pub findings: Vec<RowsFinding>,
    /// What was not checked, in words; empty if everything was.
    pub limits: Vec<String>,
    /// Checks that found nothing, by their titles.
    pub passed: Vec<&'static str>,
}

impl Report {
    /// The worst finding's severity.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).min()
    }

    /// The share of the tokens that count in the loss. `None` of prompts, which a model answers in training, and without a tokenizer.
    pub fn supervised_share(&self) -> Option<f64> {
        let tokens = self.tokens.as_ref()?;
        let should = self.findings.iter().any(|f| f.id == "nothing_supervised");
        let share = tokens.supervised as f64 / tokens.total.max(1) as f64;
        (tokens.supervised > 0 || should).then_some(share)
    }
}
