//! Which rank of a PyTorch run the others wait for.

use crate::base::stats::median;
use crate::wire::id::ranks::{MOST, forward};

/// A rank is slow if its forward passes take this many times the median of all.
const SLOW: f64 = 1.25;

/// The newest milliseconds of every rank, in order; `read` returns a metric's newest reading. Empty for a single process.
pub fn newest(read: impl Fn(&str) -> Option<f64>) -> Vec<f64> {
    let all = (0..MOST).map_while(|rank| read(&forward(rank)));
    let all: Vec<f64> = all.collect();
    if all.len() < 2 { Vec::new() } else { all }
}

/// The slowest rank, if it is much slower than the others, and its ratio to the median.
pub fn slow(millis: &[f64]) -> Option<(usize, f64)> {
    let (rank, most) = millis
        .iter()
        .copied()
        .enumerate()
        .max_by(|a, b| a.1.total_cmp(&b.1))?;
    // Relative to the others: of two ranks the slow one is half of all.
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
    fn a_single_process_has_no_rank_times_and_large_worlds_are_bounded() {
        assert!(newest(|id| (id == forward(0)).then_some(1.0)).is_empty());
        assert_eq!(newest(|_| Some(1.0)).len(), MOST);
    }
}
