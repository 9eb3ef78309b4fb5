//! The smoothed line of charts on screens and in reports: an exponential moving average, weighted by the distance between readings
//! and bias-corrected, which is the "time weighted EMA" of Weights & Biases: a weight of 0.95 is what is left of the past after a
//! thousandth of the range that is shown. Its first value is the first reading, and it does not begin at 0.

use super::series::{Bucket, Series};
use crate::base::stats::Ema;

/// Parts of the range in which the weight applies once.
const PARTS: f64 = 1_000.0;
/// Time constants after which nothing is left of the past.
const FORGOTTEN: f64 = 4.0;

/// What a column leaves of those before it, of `n` columns for the steps `from..to`: the range counts as far as there are readings,
/// or a run that has just begun would be smoothed over steps that are still to come. It counts in eighths, so that the line of a live
/// run is redrawn as a whole only each time that its steps have become eight times as many; the average is never over more of the chart
/// than that of a finished run.
pub fn decay(series: &Series, (from, to): (f64, f64), n: usize, weight: f64) -> f64 {
    let Some((first, last)) = series.steps() else {
        return 0.0;
    };
    let column = (to - from) / n.max(1) as f64;
    if column.is_nan() || column <= 0.0 {
        return 0.0;
    }
    let shown = ((last as f64).min(to) - (first as f64).max(from)).max(column);
    let mut span = to - from;
    while span.is_finite() && span / 8.0 >= shown {
        span /= 8.0;
    }
    let decay = weight.powf(PARTS * column / span);
    if decay.is_finite() { decay } else { 0.0 }
}

/// Columns before the first one that still count in it.
pub fn lead(decay: f64) -> usize {
    match decay > 0.0 && decay < 1.0 {
        true => (-FORGOTTEN / decay.ln()).ceil() as usize,
        false => 0,
    }
}

/// The average at each column that has readings. Where a column has none that is finite the line ends, and begins anew behind it.
pub fn smooth(columns: &[Option<Bucket>], decay: f64) -> Vec<Option<f64>> {
    let mut average = Ema::new(decay);
    let mut since = 1.0;
    let value = |column: &Option<Bucket>| {
        let Some(bucket) = column else {
            since += 1.0;
            return None;
        };
        let gap = std::mem::replace(&mut since, 1.0);
        Some(match bucket.mean() {
            Some(mean) => average.push_after(mean, gap),
            None => {
                average = Ema::new(decay);
                f64::NAN
            }
        })
    };
    columns.iter().map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(points: &[(u64, f64)]) -> Series {
        let mut series = Series::new();
        points
            .iter()
            .for_each(|(step, value)| series.push(*step, *value));
        series
    }

    /// The sum that Weights & Biases documents: `y ← y · w^Δ + x`, `d ← d · w^Δ + 1`, shown `y / d`, where Δ is the distance
    /// between two readings in thousandths of their range.
    #[test]
    fn uneven_readings_are_averaged_as_weights_and_biases_does() {
        let points = [(0, 4.0), (10, 3.0), (12, 5.0), (40, 1.0), (100, 2.0)];
        let series = series(&points);
        let weight: f64 = 0.99;
        let (mut y, mut d, mut before) = (0.0, 0.0, 0.0);
        let expected: Vec<f64> = points
            .iter()
            .map(|(step, x)| {
                let past = weight.powf((*step as f64 - before) / 101.0 * 1_000.0);
                (y, d, before) = (y * past + x, d * past + 1.0, *step as f64);
                y / d
            })
            .collect();
        // A column a step.
        let range = (0.0, 101.0);
        let columns = series.columns(range.0, range.1, 101);
        let found = smooth(&columns, decay(&series, range, 101, weight));
        let found: Vec<f64> = found.into_iter().flatten().collect();
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-12, "{found} {expected}");
        }
        assert_eq!(found[0], 4.0, "no bias to 0");
    }

    /// A run at step 100 of 10,000 was averaged over the 2 % of all its steps that are 200 of them: twice what it had trained.
    #[test]
    fn steps_that_are_still_to_come_do_not_widen_the_average() {
        let begun: Vec<(u64, f64)> = (0..=100)
            .map(|step| (step, 4.0 - 0.03 * step as f64))
            .collect();
        let series = series(&begun);
        let range = (0.0, 10_000.0);
        let columns = series.columns(range.0, range.1, 1_000);
        let line = smooth(&columns, decay(&series, range, 1_000, 0.95));
        let (newest, smooth) = (columns[10].unwrap().mean().unwrap(), line[10].unwrap());
        assert!((newest - smooth).abs() < 0.02, "{newest} {smooth}");
    }

    #[test]
    fn a_gap_of_nan_begins_anew_and_an_empty_series_is_none() {
        let series = series(&[(0, 1.0), (1, f64::NAN), (2, 9.0)]);
        let columns = series.columns(0.0, 3.0, 3);
        let line = smooth(&columns, 0.9);
        assert_eq!((line[0], line[2]), (Some(1.0), Some(9.0)));
        assert!(line[1].is_some_and(f64::is_nan));
        assert_eq!(decay(&Series::new(), (0.0, 1.0), 10, 0.95), 0.0);
        assert_eq!((lead(0.0), lead(1.0)), (0, 0));
        assert!(lead(0.9) > 30);
    }
}
