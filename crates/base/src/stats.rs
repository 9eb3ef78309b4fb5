//! Statistics shared by several rooms.

use serde::{Deserialize, Serialize};

/// Exponential moving average with bias correction (as Adam corrects its moments): the first values are not biased to 0.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ema {
    alpha: f64,
    sum: f64,
    weight: f64,
}

impl Ema {
    /// `alpha` in [0, 1): the weight of the past.
    pub fn new(alpha: f64) -> Self {
        Ema {
            alpha,
            sum: 0.0,
            weight: 0.0,
        }
    }

    /// Adds `x` and returns the average. A non-finite `x` is returned as is and not accumulated.
    pub fn push(&mut self, x: f64) -> f64 {
        self.push_after(x, 1.0)
    }

    /// The same for a value that comes so many of its units after the one before.
    pub fn push_after(&mut self, x: f64, gap: f64) -> f64 {
        if !x.is_finite() {
            return x;
        }
        let past = if gap == 1.0 {
            self.alpha
        } else {
            self.alpha.powf(gap)
        };
        self.sum = past * self.sum + (1.0 - self.alpha) * x;
        self.weight = past * self.weight + (1.0 - self.alpha);
        self.sum / self.weight
    }

    pub fn value(&self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.sum / self.weight)
    }
}

/// The arithmetic mean; `None` for no values. Non-finite values make it non-finite.
pub fn mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (sum, n) = values
        .into_iter()
        .fold((0.0, 0.0), |(sum, n), x| (sum + x, n + 1.0));
    (n > 0.0).then(|| sum / n)
}

/// Sum of squared deviations from the mean of `values`.
fn squares(values: &[f64]) -> f64 {
    let mean = mean(values.iter().copied()).unwrap_or(0.0);
    values.iter().map(|x| (x - mean).powi(2)).sum()
}

/// Standard deviation of a sample, divided by n − 1; 0 for fewer than two.
pub fn sample_std(values: &[f64]) -> f64 {
    match values.len() {
        0 | 1 => 0.0,
        n => (squares(values) / (n as f64 - 1.0)).sqrt(),
    }
}

/// Standard error of the mean of a sample: its deviation over √n; `None` for fewer than two.
pub fn stderr_of_mean(values: &[f64]) -> Option<f64> {
    let n = values.len() as f64;
    (values.len() > 1).then(|| (squares(values) / (n - 1.0) / n).sqrt())
}

/// Standard deviation of a whole population, √(1/n Σ (x − x̄)²); `None` for fewer than two.
pub fn population_std(values: &[f64]) -> Option<f64> {
    (values.len() > 1).then(|| (squares(values) / values.len() as f64).sqrt())
}

/// The median; `None` if there is no finite value.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|x| x.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    match n {
        0 => None,
        _ if n % 2 == 1 => Some(sorted[n / 2]),
        _ => Some((sorted[n / 2 - 1] + sorted[n / 2]) / 2.0),
    }
}

/// A weighted point: x, y and its weight.
pub type Weighted = (f64, f64, f64);

/// Fewer points than this are not tested for a bend.
const BEND_POINTS: usize = 8;
/// If the slopes of the two halves differ by this many standard errors, the points bend and a line does not fit.
const BEND: f64 = 2.0;
/// Relative differences of slopes below this are rounding.
const ROUNDING: f64 = 1e-6;

/// A fitted line: the mean of its points, its slope and the slope's standard error.
struct Line {
    x: f64,
    y: f64,
    slope: f64,
    error: f64,
}

impl Line {
    fn through(points: &[Weighted]) -> Option<Line> {
        let sum = |of: &dyn Fn(&Weighted) -> f64| points.iter().map(|p| p.2 * of(p)).sum::<f64>();
        let n = sum(&|_| 1.0);
        if n <= 0.0 {
            return None;
        }
        let (x, y) = (sum(&|p| p.0) / n, sum(&|p| p.1) / n);
        let width = sum(&|p| (p.0 - x).powi(2));
        let slope = sum(&|p| (p.0 - x) * (p.1 - y)) / width;
        let rest = sum(&|p| (p.1 - y - slope * (p.0 - x)).powi(2));
        let error = (rest / (n - 2.0) / width).sqrt();
        Some(Line { x, y, slope, error })
    }
}

/// The value at x = 0 of points sorted by x: that of a fitted line if its slope is at least `errors` standard errors from 0, else
/// their mean. If they bend, a line would miss the curve, so only the half nearer to 0 is used. The result stays within
/// their range.
pub fn at_zero(points: &[Weighted], errors: f64) -> Option<f64> {
    let line = Line::through(points)?;
    if points.len() <= 2 || line.slope.abs() <= errors * line.error || !line.error.is_finite() {
        return Some(line.y);
    }
    if bends(points) {
        let reach = points.iter().map(|p| p.0.abs()).fold(0.0, f64::max);
        let near = points.iter().filter(|p| p.0.abs() <= reach / 2.0);
        let near: Vec<Weighted> = near.copied().collect();
        if near.len() > 2 {
            return at_zero(&near, errors);
        }
    }
    let low = points.iter().map(|p| p.1).fold(f64::INFINITY, f64::min);
    let high = points.iter().map(|p| p.1).fold(f64::NEG_INFINITY, f64::max);
    Some((line.y - line.slope * line.x).max(low).min(high))
}

/// Whether the two halves of the points have different slopes.
fn bends(points: &[Weighted]) -> bool {
    if points.len() < BEND_POINTS {
        return false;
    }
    let (before, after) = points.split_at(points.len() / 2);
    let (Some(before), Some(after)) = (Line::through(before), Line::through(after)) else {
        return false;
    };
    let noise = BEND * before.error.hypot(after.error);
    (before.slope - after.slope).abs() > noise + ROUNDING * before.slope.abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_and_deviations_by_hand() {
        let values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        assert_eq!(mean(values), Some(5.0));
        assert_eq!(mean([]), None);
        assert_eq!(population_std(&values), Some(2.0));
        assert_eq!(sample_std(&values), (32.0f64 / 7.0).sqrt());
        assert_eq!(stderr_of_mean(&values), Some((32.0f64 / 7.0 / 8.0).sqrt()));
        assert_eq!(
            (
                sample_std(&[3.0]),
                stderr_of_mean(&[3.0]),
                population_std(&[3.0])
            ),
            (0.0, None, None)
        );
    }

    #[test]
    fn ema_is_unbiased_from_the_first_value() {
        let mut ema = Ema::new(0.9);
        assert!((ema.push(5.0) - 5.0).abs() < 1e-12);
        assert!((ema.push(5.0) - 5.0).abs() < 1e-12);
        assert!(ema.push(f64::NAN).is_nan());
        assert!((ema.value().unwrap() - 5.0).abs() < 1e-12);
    }

    #[test]
    fn median_of_even_odd_and_none() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[f64::NAN]), None);
    }

    #[test]
    fn a_line_is_fitted_to_a_trend_and_not_to_noise() {
        let points = |y: fn(f64) -> f64| -> Vec<_> {
            (-9..=0).map(|x| (x.into(), y(x.into()), 1.0)).collect()
        };
        let falling = at_zero(&points(|x| 2.0 - 0.1 * x), 3.0).unwrap();
        assert!((falling - 2.0).abs() < 1e-9, "{falling}");
        let noise = at_zero(&points(|x| if x % 2.0 == 0.0 { 1.0 } else { 3.0 }), 3.0);
        assert_eq!(noise, Some(2.0));
        assert_eq!(at_zero(&[(-4.0, 5.0, 2.0)], 3.0), Some(5.0));
        assert_eq!(at_zero(&[], 3.0), None);
    }

    #[test]
    fn a_curve_is_extrapolated_at_its_end_and_within_its_range() {
        for (n, half) in [(50, 5.0), (12, 3.0)] {
            let points = |y: &dyn Fn(f64) -> f64| -> Vec<_> {
                let at = |x: i32| (f64::from(x), y(f64::from(x + n)), 1.0);
                (1 - n..=0).map(at).collect()
            };
            let end = 4.0 * (-f64::from(n) / half).exp();
            let curve = at_zero(&points(&|s| 4.0 * (-s / half).exp()), 3.0).unwrap();
            assert!((end..end + 0.02).contains(&curve), "{n}: {curve}, {end}");
        }
        let two = [(-2.0, 3.0, 1.0), (-1.0, 1.0, 1.0), (0.0, 1.0, 1.0)];
        assert!(at_zero(&two, 0.5).unwrap() >= 1.0);
    }
}
