//! The training loss that stands for a run now: one definition for lists, titles, verdicts and reports, so that no two of them
//! show another number of the same run. A single step is too noisy for it.

/// The most readings behind it.
pub const STEPS: usize = 20;
/// Readings that can matter: a quarter of them counts.
pub const WINDOW: usize = 4 * STEPS;

/// How many of the `n` newest readings count: a quarter, so that the loss of a short run is not that of its beginning, and the number
/// grows by one at a time. In a sparse log (every second step or fewer) there are two at least.
pub fn n_readings(n: usize, sparse: bool) -> usize {
    (n / 4).clamp(if sparse { 2 } else { 1 }, STEPS).min(n)
}

/// The mean of the newest readings, nats per token. Takes steps and finite losses, oldest first; `None` without any.
pub fn newest_loss(readings: &[(u64, f64)]) -> Option<f64> {
    let (first, last) = (readings.first()?.0, readings.last()?.0);
    let between = readings.len() as u64 - 1;
    let sparse = between > 0 && last.saturating_sub(first) >= 2 * between;
    let n = n_readings(readings.len(), sparse);
    let newest = &readings[readings.len() - n..];
    crate::base::stats::mean(newest.iter().map(|(_, loss)| *loss))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(every: u64, n: u64) -> Vec<(u64, f64)> {
        (1..=n).map(|i| (i * every, i as f64)).collect()
    }

    #[test]
    fn a_dense_log_is_a_mean_of_twenty_steps_and_a_short_one_of_a_quarter() {
        assert_eq!(newest_loss(&readings(1, 100)), Some(90.5));
        assert_eq!(newest_loss(&readings(1, 20)), Some(18.0));
        assert_eq!(newest_loss(&readings(1, 8)), Some(7.5));
        assert_eq!(newest_loss(&readings(1, 1)), Some(1.0));
        assert_eq!(newest_loss(&[]), None);
    }

    /// At step 20 the mean jumped from the newest four steps to all twenty: a falling loss of 2.06 was called 2.68.
    #[test]
    fn a_falling_loss_never_rises_because_more_readings_count() {
        for every in [1, 5] {
            let falling = |n: u64| -> Vec<(u64, f64)> {
                (1..=n)
                    .map(|i| (i * every, 7.0 / (1.0 + i as f64)))
                    .collect()
            };
            let shown: Vec<f64> = (1..=200)
                .map(|n| newest_loss(&falling(n)).unwrap())
                .collect();
            assert!(
                shown
                    .windows(2)
                    .all(|two| two[1] < two[0] + 1e-12 || two[1] - two[0] < 0.02 * two[0]),
                "{shown:?}"
            );
            let counted: Vec<usize> = (1..=200).map(|n| n_readings(n, every > 1)).collect();
            assert!(
                counted.windows(2).all(|two| two[1] - two[0] <= 1),
                "{counted:?}"
            );
            assert_eq!(counted[199], STEPS);
        }
    }

    #[test]
    fn of_a_sparse_log_a_quarter_counts() {
        assert_eq!(newest_loss(&readings(10, 40)), Some(35.5));
        assert_eq!(newest_loss(&readings(10, 400)), Some(390.5));
        assert_eq!(newest_loss(&readings(10, 3)), Some(2.5));
    }
}
