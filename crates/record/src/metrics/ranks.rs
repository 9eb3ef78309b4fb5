//! Metrics of the ranks of a run on several processes: their names, and which rank the others wait for.

use super::Direction;
use crate::base::stats::median;
use crate::wire::{ChartPlace, MetricInfo};

/// Ranks that have readings of their own; of a larger world the first ones.
pub const MOST: usize = 64;
/// A rank is slow when its forward passes take so many times the median of all.
const SLOW: f64 = 1.25;

/// Milliseconds of a rank's forward passes per step: the part of a step in which it waits for none other (with `ddp`).
pub fn forward(rank: usize) -> String {
    format!("rank/{rank}/forward_ms")
}

/// The readings of so many ranks.
pub fn declarations(ranks: usize) -> impl Iterator<Item = MetricInfo> {
    (0..ranks.min(MOST)).map(|rank| MetricInfo {
        id: forward(rank),
        title: format!("Rank {rank}, forward passes of a step"),
        unit: "ms".into(),
        direction: Direction::Lower,
        source: "engine".into(),
        // The strip of ranks shows them side by side.
        place: ChartPlace::Nowhere,
        ..MetricInfo::default()
    })
}

/// The newest milliseconds of every rank, in order; `read` returns a metric's newest reading. Empty for one process.
pub fn newest(read: impl Fn(&str) -> Option<f64>) -> Vec<f64> {
    let all = (0..MOST).map_while(|rank| read(&forward(rank)));
    let all: Vec<f64> = all.collect();
    if all.len() < 2 { Vec::new() } else { all }
}

/// The slowest rank, where it is much slower than the others, and how many times the median it takes.
pub fn slow(millis: &[f64]) -> Option<(usize, f64)> {
    let (rank, most) = millis
        .iter()
        .copied()
        .enumerate()
        .max_by(|a, b| a.1.total_cmp(&b.1))?;
    // Against the others: of two ranks the slow one is half of all.
    let others: Vec<f64> = millis
        .iter()
        .enumerate()
        .filter(|(other, _)| *other != rank)
        .map(|(_, x)| *x)
        .collect();
    let usual = median(&others).filter(|x| *x > 0.0)?;
    let times = most / usual;
    (times >= SLOW && times.is_finite()).then_some((rank, times))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rank_that_others_wait_for_is_named() {
        assert_eq!(slow(&[40.0, 41.0, 80.0, 40.0]), Some((2, 2.0)));
        assert_eq!(slow(&[10.0, 30.0]), Some((1, 3.0)));
        assert_eq!(slow(&[40.0, 41.0, 44.0]), None);
        assert_eq!(slow(&[]), None);
        assert_eq!(slow(&[5.0]), None);
        assert_eq!(slow(&[0.0, 0.0]), None);
    }

    #[test]
    fn one_process_is_no_gang_and_a_large_one_is_bounded() {
        assert!(newest(|id| (id == forward(0)).then_some(1.0)).is_empty());
        assert_eq!(newest(|_| Some(1.0)).len(), MOST);
        assert_eq!(declarations(1_000).count(), MOST);
    }
}
