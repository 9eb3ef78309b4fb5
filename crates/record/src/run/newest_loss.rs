//! The training loss that stands for a run now: one definition for lists, titles, verdicts and reports, so that no two of them
//! show another number of the same run. A single step is too noisy for it.

/// Readings behind it.
pub const STEPS: usize = 20;
/// Readings of a sparse log that can matter: a quarter of them counts.
pub const WINDOW: usize = 4 * STEPS;

/// How many of the `n` newest readings count. Each reading of a sparse log (every second step or fewer) is a mean already, and so is
/// a quarter of a run that is too short for a verdict.
pub fn n_readings(n: usize, sparse: bool) -> usize {
    match sparse || n < STEPS {
        true => (n / 4).clamp(if sparse { 2 } else { 1 }, STEPS),
        false => STEPS,
    }
    .min(n)
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
        assert_eq!(newest_loss(&readings(1, 20)), Some(10.5));
        assert_eq!(newest_loss(&readings(1, 8)), Some(7.5));
        assert_eq!(newest_loss(&readings(1, 1)), Some(1.0));
        assert_eq!(newest_loss(&[]), None);
    }

    #[test]
    fn of_a_sparse_log_a_quarter_counts() {
        assert_eq!(newest_loss(&readings(10, 40)), Some(35.5));
        assert_eq!(newest_loss(&readings(10, 400)), Some(390.5));
        assert_eq!(newest_loss(&readings(10, 3)), Some(2.5));
    }
}
