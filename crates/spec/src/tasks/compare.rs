//! Two models on the same items: their difference, its uncertainty, and which items changed.

use super::answers::{IFEVAL, INSTRUCTIONS};
use super::record::Record;
use super::summary::mean;
use crate::base::rng::{Rng, Stream};
use serde::Serialize;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Resamples of the paired bootstrap, and draws of signs.
const RESAMPLES: u32 = 10_000;
const SEED: u64 = 1234;
/// Differences of which every combination of signs is counted; of more they are drawn.
const COUNTED: usize = 13;

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
    /// Two-sided, by the paired permutation test: how often the sum is as far from nought if each difference had either sign. Of
    /// right and wrong answers it is McNemar's exact test.
    pub p: f64,
    /// The middle 95 % of the resamples of a paired bootstrap; none where all differences are equal, as that of one item is.
    pub interval: Option<[f64; 2]>,
    pub flips: Vec<Flip>,
    /// Items on which the score is higher than the first model's, and those on which it is lower.
    pub better: usize,
    pub worse: usize,
    /// The share of items with a higher score, equal ones counting half, and its standard error.
    pub win_rate: f64,
    pub win_rate_stderr: Option<f64>,
}

impl Comparison {
    /// The interval and p, in words.
    pub fn certainty(&self) -> String {
        let interval = match self.interval {
            Some([low, high]) => format!("95 % from {low:+.4} to {high:+.4}"),
            None if self.n < 2 => "one item: no interval".into(),
            None => "all differences equal: no interval".into(),
        };
        format!("{interval}, p = {:.4}", self.p)
    }
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
        p: by_signs(&differences),
        interval: interval(&differences),
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

/// The share of sums with other signs that are as far from nought as the sum is.
fn by_signs(differences: &[f64]) -> f64 {
    let changed: Vec<f64> = differences.iter().copied().filter(|d| *d != 0.0).collect();
    let sum: f64 = changed.iter().sum();
    if !sum.is_finite() {
        return 1.0;
    }
    // Rounding must not make a tie a difference.
    let far = sum.abs() - 1e-12 * differences.len() as f64;
    let is_far = |signs: &mut dyn FnMut() -> bool| {
        let signed = changed.iter().map(|d| if signs() { *d } else { -d });
        signed.sum::<f64>().abs() >= far
    };
    if changed.len() <= COUNTED {
        let all = 1u32 << changed.len();
        let as_far = (0..all).filter(|combination| {
            let mut left = *combination;
            is_far(&mut || {
                let sign = left & 1 == 1;
                left >>= 1;
                sign
            })
        });
        return as_far.count() as f64 / f64::from(all);
    }
    let as_far = (0..RESAMPLES).filter(|lane| {
        let mut rng = Rng::new(SEED, Stream::Eval, 1, *lane);
        let (mut bits, mut left) = (0, 0);
        is_far(&mut || {
            if left == 0 {
                (bits, left) = (rng.next_u64(), u64::BITS);
            }
            left -= 1;
            (bits >> left) & 1 == 1
        })
    });
    (as_far.count() + 1) as f64 / f64::from(RESAMPLES + 1)
}

/// The middle 95 % of the means of resamples. Of equal differences every resample is the same, which says nothing of other items.
fn interval(differences: &[f64]) -> Option<[f64; 2]> {
    if differences.windows(2).all(|two| two[0] == two[1]) {
        return None;
    }
    let mut means: Vec<f64> = (0..RESAMPLES)
        .map(|lane| resampled(differences, lane))
        .collect();
    means.sort_by(f64::total_cmp);
    let at = |share: f64| means[((f64::from(RESAMPLES) - 1.0) * share).round() as usize];
    Some([at(0.025), at(0.975)])
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
        // Exact sign test of 20 : 0 is 2e-6; drawn signs end at one in ten thousand.
        assert!(found.p < 0.001, "{}", found.p);
        let [low, high] = found.interval.unwrap();
        assert!(low > 0.2 && high < 0.6);
    }

    /// Expected: McNemar's exact test, 2 · 0.5^n of n items that only one model solves.
    #[test]
    fn a_few_items_are_no_proof() {
        for (won, n, p) in [
            (1, 1, 1.0),
            (3, 3, 0.25),
            (3, 5, 0.25),
            (4, 20, 0.125),
            (5, 100, 0.0625),
            (6, 100, 0.03125),
        ] {
            let mut better = vec![0.0; n];
            better[..won].fill(1.0);
            let found = compare("acc", &records(&vec![0.0; n]), &records(&better)).unwrap();
            assert_eq!(found.p, p, "{won} of {n}");
            assert_eq!(found.interval.is_some(), won < n, "{won} of {n}");
        }
        // The loss of one text.
        let found = compare("acc", &records(&[-1.5]), &records(&[-2.7])).unwrap();
        assert_eq!((found.p, found.interval), (1.0, None));
        assert!(
            found.certainty().contains("one item"),
            "{}",
            found.certainty()
        );
        // 15 : 5 of 60 by binomial: 0.0414. Signs are drawn here.
        let (mut before, mut now) = (vec![0.0; 60], vec![0.0; 60]);
        before[..5].fill(1.0);
        now[5..20].fill(1.0);
        let found = compare("acc", &records(&before), &records(&now)).unwrap();
        assert!((found.p - 0.0414).abs() < 0.01, "{}", found.p);
    }
}
