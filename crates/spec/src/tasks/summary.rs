//! From records to numbers, each with its standard error.

use super::answers::{IFEVAL, INSTRUCTIONS};
use super::config::{Check, Kind, TaskConfig};
use super::programs::PASS;
use super::record::Record;
use super::rewarded;
use crate::base::stats;
use crate::rewards::WeightedReward;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::f64::consts::LN_2;

/// One number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    pub metric: String,
    /// The part of the items that it is about; none for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    pub value: f64,
    /// Standard error; none for fewer than two items.
    pub stderr: Option<f64>,
    pub n: usize,
}

/// What came of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub task: String,
    pub version: u32,
    pub shots: usize,
    pub items: usize,
    /// The metric that stands for the task.
    pub headline: String,
    /// All items first, then each group.
    pub readings: Vec<Reading>,
    /// Items whose prompt lost its beginning to the context.
    pub cut: usize,
    /// Items whose completion reached its longest length or the end of the context.
    #[serde(default)]
    pub truncated: usize,
    /// Items whose completion ended inside its thoughts: without a final message it counts as wrong.
    #[serde(default)]
    pub unfinished: usize,
}

impl Summary {
    /// The number that stands for the task.
    pub fn headline(&self) -> Option<&Reading> {
        let mut all = self.readings.iter().filter(|r| r.group.is_none());
        all.find(|reading| reading.metric == self.headline)
    }
}

/// A mean and its standard error, the sample's deviation over √n.
pub(super) fn mean(values: &[f64]) -> (f64, Option<f64>) {
    let mean = stats::mean(values.iter().copied()).unwrap_or_default();
    (mean, stats::stderr_of_mean(values))
}

/// Σ a / Σ b and the standard error of a ratio (Cochran 1977, 2.11).
fn ratio(pairs: &[(f64, f64)]) -> (f64, Option<f64>) {
    let n = pairs.len() as f64;
    let below: f64 = pairs.iter().map(|p| p.1).sum();
    let value = pairs.iter().map(|p| p.0).sum::<f64>() / below;
    let squares: f64 = pairs.iter().map(|(a, b)| (a - value * b).powi(2)).sum();
    let stderr = (pairs.len() > 1).then(|| (n / (n - 1.0) * squares).sqrt() / below);
    (value, stderr)
}

const ACC_NORM: &str = "acc_norm";
const CHOICE: [&str; 3] = ["acc", ACC_NORM, "acc_norm_tokens"];

/// What a task may measure, by name: what `headline` can be.
pub(super) fn metrics(config: &TaskConfig) -> Vec<String> {
    let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
    match config.kind {
        // Several prompts for one target have nothing to normalize by.
        Kind::Choice if config.prompts.is_some() => names(&CHOICE[..1]),
        Kind::Choice => names(&CHOICE),
        Kind::Continuation => names(&["acc", "perplexity"]),
        Kind::Text => names(&["bits_per_byte", "perplexity"]),
        Kind::Answer => {
            let how = &config.answer;
            let compared = how.extract.iter().map(|extract| &extract.name);
            let compared = compared.filter(|_| config.target.is_some());
            let counted = how.counts.iter().map(|count| &count.name);
            let mut all: Vec<String> = compared.chain(counted).cloned().collect();
            all.extend(rewarded::names(how));
            all.extend(how.python.as_ref().map(|_| PASS.to_string()));
            if how.check == Some(Check::Ifeval) {
                all.extend(IFEVAL.iter().flatten().map(|name| name.to_string()));
            }
            all
        }
    }
}

/// The metric that stands for a task.
pub fn headline(config: &TaskConfig) -> String {
    let mut all = metrics(config);
    match &config.headline {
        Some(said) => said.clone(),
        None if all.contains(&ACC_NORM.to_string()) => ACC_NORM.into(),
        None if config.answer.rewards.len() > 1 => rewarded::SUM.into(),
        None if all.is_empty() => String::new(),
        None => all.swap_remove(0),
    }
}

/// Whether a metric is a share of items, from 0 to 1. Of rewards those are that say right or wrong; a program may give any
/// number.
pub fn is_share(config: &TaskConfig, metric: &str) -> bool {
    let rewards = &config.answer.rewards;
    let of_one =
        |reward: &WeightedReward| reward.reward.is_verifier() && reward.reward.program().is_none();
    match config.kind {
        Kind::Choice => true,
        Kind::Continuation => metric == CHOICE[0],
        Kind::Text => false,
        Kind::Answer if metric == rewarded::SUM && rewards.len() > 1 => {
            let weights: f64 = rewards.iter().map(|reward| reward.weight).sum();
            let shares = rewards.iter().all(|r| of_one(r) && r.weight >= 0.0);
            shares && (weights - 1.0).abs() < 1e-9
        }
        Kind::Answer => {
            let reward = rewards.iter().find(|reward| reward.name == metric);
            reward.is_none_or(of_one)
        }
    }
}

/// Numbers of all items, and of each group.
pub fn summarize(config: &TaskConfig, records: &[Record]) -> Summary {
    let all: Vec<&Record> = records.iter().collect();
    let mut readings = of(config, &all, None);
    let mut groups: BTreeMap<&str, Vec<&Record>> = BTreeMap::new();
    for record in records {
        if let Some(group) = &record.group {
            groups.entry(group).or_default().push(record);
        }
    }
    for (group, records) in groups {
        readings.extend(of(config, &records, Some(group)));
    }
    Summary {
        task: config.name.clone(),
        version: config.version,
        shots: config.shots.as_ref().map_or(0, |shots| shots.count),
        items: records.len(),
        headline: headline(config),
        cut: records.iter().filter(|record| record.cut > 0).count(),
        truncated: records.iter().filter(|record| record.truncated).count(),
        unfinished: records.iter().filter(|record| record.unfinished).count(),
        readings,
    }
}

fn of(config: &TaskConfig, records: &[&Record], group: Option<&str>) -> Vec<Reading> {
    let values = |metric: &str| -> Vec<f64> {
        let each = records.iter().filter_map(|r| r.scores.get(metric));
        each.copied().collect()
    };
    let reading = |metric: &str, (value, stderr): (f64, Option<f64>)| Reading {
        metric: metric.into(),
        group: group.map(String::from),
        value,
        stderr,
        n: records.len(),
    };
    let by = |metric: &str| reading(metric, mean(&values(metric)));
    match config.kind {
        Kind::Choice => CHOICE
            .into_iter()
            .filter(|metric| !values(metric).is_empty())
            .map(by)
            .collect(),
        Kind::Continuation => {
            let (logp, stderr) = mean(&values("logp"));
            // By the delta method.
            let perplexity = (-logp).exp();
            let stderr = stderr.map(|stderr| perplexity * stderr);
            vec![by("acc"), reading("perplexity", (perplexity, stderr))]
        }
        Kind::Text => {
            let [bits, perplexity] = of_texts(records);
            vec![
                reading("bits_per_byte", bits),
                reading("perplexity", perplexity),
            ]
        }
        Kind::Answer => {
            let compared = config.answer.extract.iter().map(|extract| &extract.name);
            let compared = compared.filter(|_| config.target.is_some());
            let counted = config.answer.counts.iter().map(|count| &count.name);
            let mut readings: Vec<Reading> = compared.chain(counted).map(|name| by(name)).collect();
            readings.extend(rewarded::names(&config.answer).iter().map(|name| by(name)));
            if config.answer.python.is_some() {
                readings.push(by(PASS));
            }
            if config.answer.check == Some(Check::Ifeval) {
                let of = values(INSTRUCTIONS);
                for [prompt, each] in IFEVAL {
                    let pairs: Vec<_> = values(each).into_iter().zip(of.clone()).collect();
                    readings.extend([by(prompt), reading(each, ratio(&pairs))]);
                }
            }
            readings
        }
    }
}

/// Bits per byte and perplexity of texts, each with its standard error.
pub(super) fn of_texts(records: &[&Record]) -> [(f64, Option<f64>); 2] {
    let values = |metric: &str| -> Vec<f64> {
        let each = records.iter().filter_map(|r| r.scores.get(metric));
        each.copied().collect()
    };
    let pairs = |below: &str, unit: f64| -> Vec<(f64, f64)> {
        let each = values("logp").into_iter().zip(values(below));
        each.map(|(logp, below)| (-logp / unit, below)).collect()
    };
    let (loss, stderr) = ratio(&pairs("tokens", 1.0));
    let perplexity = (loss.exp(), stderr.map(|stderr| loss.exp() * stderr));
    [ratio(&pairs("bytes", LN_2)), perplexity]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_errors_are_those_of_textbooks() {
        // numpy: std(ddof=1) / sqrt(n) of [1, 0, 1, 1] = 0.25.
        let (value, stderr) = mean(&[1.0, 0.0, 1.0, 1.0]);
        assert!((value - 0.75).abs() < 1e-12 && (stderr.unwrap() - 0.25).abs() < 1e-12);
        assert_eq!(mean(&[1.0]).1, None);
        // With equal denominators a ratio is a mean.
        let (value, stderr) = ratio(&[(2.0, 2.0), (0.0, 2.0), (2.0, 2.0), (2.0, 2.0)]);
        assert!((value - 0.75).abs() < 1e-12 && (stderr.unwrap() - 0.25).abs() < 1e-12);
    }
}
