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
        if !x.is_finite() {
            return x;
        }
        self.sum = self.alpha * self.sum + (1.0 - self.alpha) * x;
        self.weight = self.alpha * self.weight + (1.0 - self.alpha);
        self.sum / self.weight
    }

    pub fn value(&self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.sum / self.weight)
    }
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

/// The value at x = 0 of points (x, y, weight): that of a line through them where its slope is at least so many `errors`, standard
/// errors of it, and their mean elsewhere.
pub fn at_zero(points: &[(f64, f64, f64)], errors: f64) -> Option<f64> {
    let sum =
        |of: &dyn Fn(&(f64, f64, f64)) -> f64| points.iter().map(|p| p.2 * of(p)).sum::<f64>();
    let n = sum(&|_| 1.0);
    if n <= 0.0 {
        return None;
    }
    let (x, y) = (sum(&|p| p.0) / n, sum(&|p| p.1) / n);
    let width = sum(&|p| (p.0 - x).powi(2));
    let slope = sum(&|p| (p.0 - x) * (p.1 - y)) / width;
    let rest = sum(&|p| (p.1 - y - slope * (p.0 - x)).powi(2));
    let error = (rest / (n - 2.0) / width).sqrt();
    let is_slope = points.len() > 2 && n > 2.0 && slope.abs() > errors * error;
    Some(if is_slope { y - slope * x } else { y })
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_line_is_laid_through_points_that_fall_and_not_through_noise() {
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
}
