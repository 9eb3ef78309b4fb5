//! The exponent of a power law ρ(λ) ∝ λ^−α fitted to the tail of a weight matrix's spectrum (Martin and Mahoney 2021, arXiv
//! 1810.01075), λ being the eigenvalues of WᵀW. The start of the tail defines the estimator: values of different ones are not
//! comparable.

/// A fit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fit {
    pub alpha: f64,
    /// Kolmogorov and Smirnov's distance of the tail from the law.
    pub distance: f64,
    /// Start of the tail.
    pub from: f64,
    /// Eigenvalues in the tail, its first included.
    pub n: usize,
}

/// Eigenvalues below this share of the largest are rounding errors (WeightWatcher).
const ROUNDING: f64 = 1e-5;

/// Maximum likelihood with the tail starting at `tail[0]`; `tail` ascends. `None` without any spread.
fn fit(tail: &[f64]) -> Option<Fit> {
    let (&from, n) = (tail.first()?, tail.len());
    let sum: f64 = tail.iter().map(|x| (x / from).ln()).sum();
    let alpha = 1.0 + n as f64 / sum;
    if !(from > 0.0 && alpha.is_finite() && alpha > 1.0) {
        return None;
    }
    let law = |x: f64| 1.0 - (x / from).powf(1.0 - alpha);
    let gap = |(i, x): (usize, &f64)| (law(*x) - i as f64 / n as f64).abs();
    let distance = tail.iter().enumerate().map(gap).fold(0.0, f64::max);
    Some(Fit {
        alpha,
        distance,
        from,
        n,
    })
}

/// `ww_ks`, WeightWatcher's: the start whose tail is nearest to the law. `ascending` are all eigenvalues.
pub fn ks(ascending: &[f64]) -> Option<Fit> {
    let largest = *ascending.last()?;
    let whole = ascending.partition_point(|x| *x <= ROUNDING * largest);
    let values = &ascending[whole..];
    // The last two have no shape.
    let starts = 0..values.len().saturating_sub(1);
    let fits = starts.filter_map(|start| fit(&values[start..]));
    fits.min_by(|a, b| a.distance.total_cmp(&b.distance))
}

/// `hill_mid` (AlphaPruning's `xmin_mid`, arXiv 2410.10912): the tail begins at the median.
pub fn hill_mid(ascending: &[f64]) -> Option<Fit> {
    fit(ascending.get(ascending.len() / 2..)?)
}

#[cfg(test)]
mod tests {
    use super::super::close;
    use super::*;

    #[test]
    fn three_values_by_hand_and_quantiles_of_known_laws() {
        let e = std::f64::consts::E;
        close(fit(&[1.0, e, e * e]).unwrap().alpha, 2.0, 1e-12);
        for (alpha, known) in [(2.0, 2.00035), (3.0, 3.00069), (4.0, 4.00104)] {
            let quantile =
                |i: i32| (1.0 - (f64::from(i) - 0.5) / 1000.0).powf(-1.0 / (alpha - 1.0));
            let values: Vec<f64> = (1..=1000).map(quantile).collect();
            // The law's own start is known: 1.
            let sum: f64 = values.iter().map(|x| x.ln()).sum();
            close(1.0 + 1000.0 / sum, known, 1e-4);
            close(ks(&values).unwrap().alpha, alpha, 0.05);
        }
    }

    #[test]
    fn spectra_of_random_laws_have_weightwatchers_exponents() {
        let oracle = include_str!("../../../../../tests/oracle/alpha.json");
        let oracle: serde_json::Value = serde_json::from_str(oracle).unwrap();
        let cases = oracle["cases"].as_array().unwrap();
        assert!(cases.len() > 5);
        for case in cases {
            let number = |value: &serde_json::Value| value.as_f64().unwrap();
            let evals: Vec<f64> = case["evals"]
                .as_array()
                .unwrap()
                .iter()
                .map(number)
                .collect();
            let found = ks(&evals).unwrap();
            close(found.alpha, number(&case["alpha"]), 1e-10);
            close(found.distance, number(&case["distance"]), 1e-10);
            close(found.from, number(&case["xmin"]), 1e-10 * found.from);
        }
    }

    #[test]
    fn scale_does_not_matter_and_a_flat_spectrum_has_no_exponent() {
        let values: Vec<f64> = (1..=200).map(|i| (f64::from(i) / 40.0).exp()).collect();
        let scaled: Vec<f64> = values.iter().map(|x| 49.0 * x).collect();
        for estimator in [ks, hill_mid] {
            let (a, b) = (estimator(&values).unwrap(), estimator(&scaled).unwrap());
            close(a.alpha, b.alpha, 1e-9);
            assert_eq!(a.n, b.n);
            assert_eq!(estimator(&[1.0; 60]), None);
        }
        assert_eq!(ks(&[]), None);
    }
}
