//! Metric declarations, sent before the first value so that viewers can plot metrics they were not compiled with.

use serde::{Deserialize, Serialize};

/// Which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    Lower,
    Higher,
    /// Neither: e.g. the learning rate.
    Neutral,
}

/// The declaration of one metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricInfo {
    /// Key in `values`, e.g. `train/loss`, `grad_norm`, `val/loss`, `host/rss_bytes`.
    pub id: String,
    /// Chart title.
    pub title: String,
    /// Unit as shown: `nats`, `1/s`, `bytes`, or empty.
    pub unit: String,
    pub direction: Direction,
    /// Source of the definition.
    pub source: String,
}
