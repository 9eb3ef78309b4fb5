//! What a metric is, declared before its first value so that a viewer can draw one that it was not compiled with.

use serde::{Deserialize, Serialize};

/// Which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    Lower,
    Higher,
    /// Neither: a reading such as the learning rate.
    Neutral,
}

/// The declaration of one metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricInfo {
    /// Key in `values`, e.g. `train/loss`, `grad_norm`, `val/loss`, `host/rss_bytes`.
    pub id: String,
    /// Words for a chart title.
    pub title: String,
    /// Unit as shown: `nats`, `1/s`, `bytes`, or empty.
    pub unit: String,
    pub direction: Direction,
    /// Where the definition comes from.
    pub source: String,
}
