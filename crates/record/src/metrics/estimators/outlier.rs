//! Whether a value is an outlier relative to a window before it: OLMo's SkipStep skips an update beyond six standard
//! deviations.

/// An outlier's distance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Deviation {
    /// Mean of the window.
    pub mean: f64,
    /// Distance from it in standard deviations of the window.
    pub sigmas: f64,
}

/// Distances below this share of the mean are rounding, however quiet the window is.
const ROUNDING: f64 = 0.02;

/// The distance, if `x` is more than `sigmas` standard deviations above the mean of at least `enough` values.
pub fn above<'a>(
    window: impl IntoIterator<Item = &'a f64>,
    x: f64,
    sigmas: f64,
    enough: usize,
) -> Option<Deviation> {
    let (mut n, mut sum, mut squares) = (0usize, 0.0, 0.0);
    for value in window {
        n += 1;
        sum += value;
        squares += value * value;
    }
    if n == 0 || n < enough {
        return None;
    }
    let mean = sum / n as f64;
    let sigma = (squares / n as f64 - mean * mean).max(0.0).sqrt();
    let distance = x - mean;
    let far = distance > sigmas * sigma && distance > ROUNDING * mean.abs();
    far.then(|| Deviation {
        mean,
        sigmas: distance / sigma.max(f64::MIN_POSITIVE),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_six_sigmas_of_enough_values() {
        // Mean 1, standard deviation 0.1.
        let window: Vec<f64> = (0..100)
            .map(|i| if i % 2 == 0 { 0.9 } else { 1.1 })
            .collect();
        assert_eq!(above(&window, 1.59, 6.0, 50), None);
        let far = above(&window, 1.7, 6.0, 50).unwrap();
        super::super::close(far.sigmas, 7.0, 1e-6);
        super::super::close(far.mean, 1.0, 1e-12);
        assert_eq!(above(&window, 1.7, 6.0, 101), None);
        assert_eq!(
            above(&window, -9.0, 6.0, 50),
            None,
            "low values are not outliers"
        );
        assert_eq!(above(&[1.0; 80], 1.01, 6.0, 50), None, "rounding");
        assert!(above(&[1.0; 80], 1.1, 6.0, 50).is_some());
    }
}
