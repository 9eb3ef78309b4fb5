//! Two models on the same items: their difference, its uncertainty, and which items changed.

use super::answers::{IFEVAL, INSTRUCTIONS};
use super::record::Record;
use super::summary::mean;
use crate::base::rng::{Rng, Stream};
use serde::Serialize;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Resamples of the paired bootstrap.
const RESAMPLES: u32 = 10_000;
const SEED: u64 = 1234;

/// An item that one model gets right and the other wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Flip {
    pub item: usize,
    pub place: String,
    /// Right now and wrong before; else the other way round.
    pub won: bool,
}

/// One model against the first one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    pub metric: String,
    pub n: usize,
    /// Mean difference by item.
    pub difference: f64,
    pub stderr: Option<f64>,
    /// Two-sided, by paired bootstrap: how often a resample's difference, moved to a mean of nought, is as far from nought.
    pub p: f64,
    /// The middle 95 % of the resamples.
    pub interval: [f64; 2],
    pub flips: Vec<Flip>,
    /// Items on which the score is higher than the first model's, and those on which it is lower.
    pub better: usize,
    pub worse: usize,
    /// The share of items with a higher score, equal ones counting half, and its standard error.
    pub win_rate: f64,
    pub win_rate_stderr: Option<f64>,
}

/// Compares what both have answered; none where they share no item with that metric.
pub fn compare(metric: &str, base: &[Record], other: &[Record]) -> Option<Comparison> {
    let score = |record: &Record| record.scores.get(metric).copied();
    let before: BTreeMap<usize, f64> = base
        .iter()
        .filter_map(|r| Some((r.item, score(r)?)))
        .collect();
    let pairs: Vec<(&Record, f64, f64)> = other
        .iter()
        .filter_map(|r| Some((r, *before.get(&r.item)?, score(r)?)))
        .collect();
    if pairs.is_empty() {
        return None;
    }
    // Instructions followed are counted by item, and their share is of all instructions.
    let each = match IFEVAL.iter().any(|[_, counted]| *counted == metric) {
        true => {
            let counts = pairs
                .iter()
                .filter_map(|(r, ..)| r.scores.get(INSTRUCTIONS));
            mean(&counts.copied().collect::<Vec<f64>>()).0.max(1.0)
        }
        false => 1.0,
    };
    let differences = pairs.iter().map(|(_, before, now)| (now - before) / each);
    let differences: Vec<f64> = differences.collect();
    let (difference, stderr) = mean(&differences);
    let mut means: Vec<f64> = (0..RESAMPLES)
        .map(|lane| resampled(&differences, lane))
        .collect();
    means.sort_by(f64::total_cmp);
    // Rounding must not make a tie a difference.
    let far = difference.abs() - 1e-12;
    let as_far = means
        .iter()
        .filter(|m| (*m - difference).abs() >= far)
        .count();
    let at = |share: f64| means[((f64::from(RESAMPLES) - 1.0) * share).round() as usize];
    let flips = pairs
        .iter()
        .filter(|(_, before, now)| (before > &0.5) != (now > &0.5));
    let wins = differences.iter().map(|d| match d.partial_cmp(&0.0) {
        Some(Ordering::Greater) => 1.0,
        Some(Ordering::Less) => 0.0,
        _ => 0.5,
    });
    let wins: Vec<f64> = wins.collect();
    let (win_rate, win_rate_stderr) = mean(&wins);
    let is_right_or_wrong = pairs
        .iter()
        .all(|(_, a, b)| [a, b].iter().all(|x| **x == 0.0 || **x == 1.0));
    Some(Comparison {
        metric: metric.into(),
        n: pairs.len(),
        difference,
        stderr,
        p: (as_far + 1) as f64 / f64::from(RESAMPLES + 1),
        interval: [at(0.025), at(0.975)],
        flips: match is_right_or_wrong {
            true => flips
                .map(|(record, before, now)| Flip {
                    item: record.item,
                    place: record.place.clone(),
                    won: now > before,
                })
                .collect(),
            false => Vec::new(),
        },
        better: wins.iter().filter(|win| **win == 1.0).count(),
        worse: wins.iter().filter(|win| **win == 0.0).count(),
        win_rate,
        win_rate_stderr,
    })
}

fn resampled(differences: &[f64], lane: u32) -> f64 {
    let mut rng = Rng::new(SEED, Stream::Eval, 0, lane);
    let n = differences.len();
    let drawn = (0..n).map(|_| differences[rng.below(n as u64) as usize]);
    drawn.sum::<f64>() / n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(scores: &[f64]) -> Vec<Record> {
        let record = |(item, score): (usize, &f64)| {
            let record = serde_json::json!({"item": item, "place": "", "prompt": "", "scores": {"acc": score}});
            serde_json::from_value(record).unwrap()
        };
        scores.iter().enumerate().map(record).collect()
    }

    /// 5 of 10 instructions and then 6: the share rises by 0.1, whatever it is by item.
    #[test]
    fn followed_instructions_are_compared_by_their_share_of_all() {
        let metric = IFEVAL[0][1];
        let of = |followed: [u32; 4]| -> Vec<Record> {
            let items = followed.iter().zip([1, 2, 3, 4]).enumerate();
            let record = |(item, (followed, all)): (usize, (&u32, u32))| {
                let scores = serde_json::json!({metric: followed, INSTRUCTIONS: all});
                let record =
                    serde_json::json!({"item": item, "place": "", "prompt": "", "scores": scores});
                serde_json::from_value(record).unwrap()
            };
            items.map(record).collect()
        };
        let found = compare(metric, &of([1, 1, 1, 2]), &of([1, 1, 2, 2])).unwrap();
        assert!(
            (found.difference - 0.1).abs() < 1e-12,
            "{}",
            found.difference
        );
    }

    #[test]
    fn differences_are_paired_and_flips_are_named() {
        let base = records(&[0.0, 1.0, 1.0, 0.0]);
        let other = records(&[1.0, 1.0, 0.0, 1.0]);
        let found = compare("acc", &base, &other).unwrap();
        assert_eq!(found.difference, 0.25);
        let flips: Vec<_> = found.flips.iter().map(|f| (f.item, f.won)).collect();
        assert_eq!(flips, [(0, true), (2, false), (3, true)]);
        // Two of four better, one worse, one the same.
        let won = (found.better, found.worse, found.win_rate);
        assert_eq!(won, (2, 1, 0.625));
        assert!(found.p > 0.5, "{}", found.p);
        assert!(compare("gone", &base, &other).is_none());
    }

    #[test]
    fn the_same_answers_are_no_difference_and_many_better_ones_are_one() {
        let zeros = records(&[0.0; 50]);
        let same = compare("acc", &zeros, &zeros).unwrap();
        assert_eq!((same.difference, same.p, same.flips.len()), (0.0, 1.0, 0));
        let mut better = [0.0; 50];
        better[..20].fill(1.0);
        let found = compare("acc", &zeros, &records(&better)).unwrap();
        // Exact sign test of 20 : 0 is 2e-6; the bootstrap ends at one in ten thousand.
        assert!(found.p < 0.001, "{}", found.p);
        assert!(found.interval[0] > 0.2 && found.interval[1] < 0.6);
    }
}
