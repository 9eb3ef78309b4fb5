//! `L(x) = e + a · x^-α` fitted to a few measured losses, with the uncertainty of the extrapolation. Least squares.

use serde::Serialize;

/// Exponents to try: language models lie between 0.05 and 0.5, small ones on little text above.
const FROM: f64 = 0.02;
const TO: f64 = 1.5;
const STEPS: usize = 741;
/// Relative standard deviation of the loss between seeds.
const SEED_NOISE: f64 = 0.005;

/// A final slope below this fraction of the first one counts as flatter.
const FLATTER: f64 = 0.9;
/// Measured on the quickstart: after its plateau it fell 1.5 to 1.6 times as steeply as in any earlier run.
const STEEPER: f64 = 2.0;

/// The constants of a fit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PowerLaw {
    /// The irreducible loss.
    pub e: f64,
    pub a: f64,
    pub alpha: f64,
    /// Root mean square residual, nats.
    pub rms: f64,
}

/// A loss with the range of nearly equally good fits.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Prediction {
    pub loss: f64,
    pub low: f64,
    pub high: f64,
    /// The method's error on the largest run, fitted on the smaller ones alone, nats; positive if too high.
    pub missed: Option<f64>,
    pub trend: Trend,
}

/// The shape of the measured losses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Trend {
    /// Each doubling gains less than the one before: power laws apply.
    Flattening,
    /// Not flattening yet: the law may not apply yet, and the range is wide.
    Steady,
}

impl PowerLaw {
    pub fn at(&self, x: f64) -> f64 {
        self.e + self.a * x.powf(-self.alpha)
    }

    /// The best curve for one exponent: linear least squares, with `e` and `a` non-negative.
    fn with(points: &[(f64, f64)], alpha: f64) -> Option<PowerLaw> {
        let n = points.len() as f64;
        // Scaled so that powers stay near one whatever the unit of x.
        let scale = points.iter().map(|(x, _)| x.ln()).sum::<f64>() / n;
        let z = |x: f64| (-alpha * (x.ln() - scale)).exp();
        let mean_z = points.iter().map(|(x, _)| z(*x)).sum::<f64>() / n;
        let mean_l = points.iter().map(|(_, l)| l).sum::<f64>() / n;
        let var: f64 = points.iter().map(|(x, _)| (z(*x) - mean_z).powi(2)).sum();
        let cov: f64 = points
            .iter()
            .map(|(x, l)| (z(*x) - mean_z) * (l - mean_l))
            .sum();
        if var <= f64::EPSILON {
            return None;
        }
        let (mut a, mut e) = (cov / var, 0.0);
        if mean_l - a * mean_z >= 0.0 {
            e = mean_l - a * mean_z;
        } else {
            let zz: f64 = points.iter().map(|(x, _)| z(*x).powi(2)).sum();
            a = points.iter().map(|(x, l)| z(*x) * l).sum::<f64>() / zz;
        }
        if a < 0.0 {
            // Loss rises with x: the best non-increasing curve is constant.
            (a, e) = (0.0, mean_l);
        }
        let squares: f64 = points
            .iter()
            .map(|(x, l)| (e + a * z(*x) - l).powi(2))
            .sum();
        Some(PowerLaw {
            e,
            a: a * (alpha * scale).exp(),
            alpha,
            rms: (squares / n).sqrt(),
        })
    }
}

fn all(points: &[(f64, f64)]) -> Vec<PowerLaw> {
    (0..STEPS)
        .map(|i| FROM + (TO - FROM) * i as f64 / (STEPS - 1) as f64)
        .filter_map(|alpha| PowerLaw::with(points, alpha))
        .collect()
}

/// The least-squares curve through (x, loss); `None` for fewer than three points, points that all share one x, or
/// non-finite values.
pub fn fit(points: &[(f64, f64)]) -> Option<PowerLaw> {
    let good = points
        .iter()
        .all(|(x, l)| *x > 0.0 && x.is_finite() && l.is_finite());
    if points.len() < 3 || !good {
        return None;
    }
    all(points)
        .into_iter()
        .min_by(|a, b| a.rms.total_cmp(&b.rms))
}

/// Slopes in ln x between neighbours.
fn slopes(sorted: &[(f64, f64)]) -> Vec<f64> {
    let slope = |w: &[(f64, f64)]| (w[1].1 - w[0].1) / (w[1].0 / w[0].0).ln();
    sorted.windows(2).map(slope).collect()
}

/// Whether the curve flattens from the first segment to the last, as a power law does.
fn trend(sorted: &[(f64, f64)]) -> Trend {
    match slopes(sorted).as_slice() {
        [first, .., last] if last.abs() < FLATTER * first.abs() => Trend::Flattening,
        _ => Trend::Steady,
    }
}

/// The lowest plausible loss at `x`: descent in ln x at the steepest rate seen, or, while it does not flatten, twice that.
/// A model at a plateau drops again once it learns the next pattern.
fn deepest(sorted: &[(f64, f64)], x: f64) -> Option<f64> {
    let (x1, l1) = *sorted.last()?;
    let steepest = slopes(sorted).into_iter().fold(0.0, f64::min);
    let slope = match trend(sorted) {
        Trend::Flattening => steepest,
        Trend::Steady => STEEPER * steepest,
    };
    let y = l1 + slope * (x / x1).ln().max(0.0);
    y.is_finite().then_some(y.max(0.0))
}

/// The largest run's loss as predicted by the smaller ones alone, minus the measured one.
fn miss(sorted: &[(f64, f64)]) -> Option<f64> {
    let ((x, l), rest) = sorted.split_last()?;
    let predicted = match rest {
        [(x0, l0), (x1, l1)] => l1 + (l1 - l0) / (x1 / x0).ln() * (x / x1).ln(),
        rest => fit(rest)?.at(*x),
    };
    Some(predicted - l)
}

/// The loss at `x`. The range covers all curves that seed noise could make the best fit, continued descent at the
/// steepest rate, and the method's error on the largest run, scaled with the distance.
pub fn predict(points: &[(f64, f64)], x: f64) -> Option<Prediction> {
    let best = fit(points)?;
    let mut sorted = points.to_vec();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let [.., (before, _), (last, last_loss)] = sorted.as_slice() else {
        return None;
    };
    let mean = points.iter().map(|(_, l)| l).sum::<f64>() / points.len() as f64;
    let limit = (1.5 * best.rms).max(SEED_NOISE * mean);
    let near = all(points)
        .into_iter()
        .filter(|law| law.rms <= limit)
        .map(|law| law.at(x));
    let (low, high) = near.fold((f64::MAX, f64::MIN), |(l, h), y| (l.min(y), h.max(y)));
    let loss = best.at(x);
    let missed = miss(&sorted);
    // Distances in ln x: an error over the last step grows over several.
    let steps = ((x / last).ln() / (last / before).ln()).max(1.0);
    let off = missed.map_or(0.0, |m| m.abs() * steps);
    let low = low.min(loss - off);
    let low = deepest(&sorted, x).map_or(low, |y| low.min(y)).min(loss);
    // More of x does not make it worse than the largest run was.
    let high = high.max(loss + off).min(last_loss.max(loss));
    Some(Prediction {
        loss,
        low: (low - limit).max(0.0),
        high: high.max(loss) + limit,
        missed,
        trend: trend(&sorted),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(law: impl Fn(f64) -> f64, xs: &[f64]) -> Vec<(f64, f64)> {
        xs.iter().map(|x| (*x, law(*x))).collect()
    }

    #[test]
    fn an_exact_law_is_found_again() {
        let law = |x: f64| 1.7 + 400.0 * x.powf(-0.34);
        let points = points(law, &[1e6, 3e6, 1e7, 3e7]);
        let fit = fit(&points).unwrap();
        assert!(
            (fit.alpha - 0.34).abs() < 0.005 && (fit.e - 1.7).abs() < 0.02,
            "{fit:?}"
        );
        let predicted = predict(&points, 3e8).unwrap();
        assert!((predicted.loss - law(3e8)).abs() < 0.01, "{predicted:?}");
        assert!(predicted.low < law(3e8) && law(3e8) < predicted.high);
    }

    #[test]
    fn noise_of_seeds_leaves_the_truth_inside_the_range() {
        let law = |x: f64| 1.2 + 60.0 * x.powf(-0.3);
        let noise = [0.004, -0.006, 0.003, -0.002, 0.005];
        for shift in 0..noise.len() {
            let points: Vec<(f64, f64)> = [1e5, 2e5, 4e5, 8e5]
                .iter()
                .enumerate()
                .map(|(i, x)| (*x, law(*x) * (1.0 + noise[(i + shift) % noise.len()])))
                .collect();
            let p = predict(&points, 6.4e6).unwrap();
            assert!(
                p.low < law(6.4e6) && law(6.4e6) < p.high,
                "{p:?} {}",
                law(6.4e6)
            );
        }
    }

    #[test]
    fn farther_is_less_sure() {
        let points = points(|x| 1.5 + 30.0 * x.powf(-0.25), &[1e5, 2e5, 4e5]);
        let width = |x| {
            let p = predict(&points, x).unwrap();
            p.high - p.low
        };
        assert!(width(8e5) < width(8e6));
    }

    /// The quickstart, measured: validation losses of whole runs of so many tokens, and of the target. Each stands on the
    /// plateau before the next thing is supervised.
    #[test]
    fn measured_runs_end_inside_their_ranges() {
        let short = [
            (23_808.0, 2.8833),
            (47_616.0, 2.6737),
            (96_000.0, 2.5197),
            (192_000.0, 2.4206),
        ];
        let few = [(19_200.0, 2.9755), (38_400.0, 2.7222), (76_800.0, 2.5558)];
        let size = [(14_464.0, 2.6643), (102_784.0, 2.4766), (338_688.0, 2.3835)];
        let half = [
            (153_600.0, 2.4526),
            (307_200.0, 2.3437),
            (614_400.0, 2.2012),
        ];
        let third = [
            (153_600.0, 2.4482),
            (217_344.0, 2.3939),
            (307_200.0, 2.3389),
        ];
        let smoke = [(25_600.0, 3.0997), (40_448.0, 2.9332), (64_000.0, 2.7410)];
        for (points, x, measured) in [
            (&short[..], 1_536_000.0, 1.8976),
            (&short[..3], 1_536_000.0, 1.8976),
            (&few, 614_400.0, 2.1718),
            (&size, 795_904.0, 2.3339),
            (&half, 1_536_000.0, 1.8976),
            (&third, 614_400.0, 2.1718),
            (&smoke, 128_000.0, 2.5433),
        ] {
            let p = predict(points, x).unwrap();
            assert!(p.low < measured && measured < p.high, "{p:?} {measured}");
        }
    }

    #[test]
    fn a_line_that_missed_its_own_largest_run_is_less_sure() {
        let smooth = points(|x| 1.5 + 30.0 * x.powf(-0.25), &[1e5, 2e5, 4e5]);
        let mut bent = smooth.clone();
        bent[2].1 += 0.08;
        let of = |points: &[(f64, f64)]| predict(points, 8e5).unwrap();
        let (a, b) = (of(&smooth), of(&bent));
        assert!(a.missed.unwrap().abs() < b.missed.unwrap().abs());
        assert!(b.high - b.low > a.high - a.low);
    }

    #[test]
    fn too_little_gives_no_line_and_a_rising_loss_a_flat_one() {
        assert_eq!(fit(&[(1.0, 2.0), (2.0, 1.0)]), None);
        assert_eq!(fit(&[(1.0, 2.0), (1.0, 2.0), (1.0, 2.0)]), None);
        assert_eq!(fit(&[(1.0, 2.0), (2.0, f64::NAN), (3.0, 1.0)]), None);
        let rising = fit(&[(1.0, 1.0), (2.0, 1.1), (4.0, 1.2)]).unwrap();
        assert!((rising.at(100.0) - 1.1).abs() < 1e-9);
    }
}
