//! Collapse residual: the distance between a run's loss curve and a reference run's, both over the share t of the planned
//! steps and divided by their final loss (Qiu et al. 2025, arXiv 2507.02119; Bergsma et al. 2025, arXiv 2509.25087).
//! Runs of different sizes have the same normalized curve where schedule, tokens per parameter and the timescale of
//! weight decay agree, so a fault shows as a departure from it, often long before the loss looks wrong.

use crate::base::rng::mix64;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::ops::RangeInclusive;

/// The divisor of an unfinished run is fitted on this part of it.
const ALIGN: RangeInclusive<f64> = 0.25..=0.5;
/// Share of the run within [`ALIGN`] from which on a fit is used.
const LEAST: f64 = 0.05;
/// A curve of fewer points, or one whose last point is before this share of its run, is no reference.
const LEAST_POINTS: usize = 20;
const WHOLE: f64 = 0.98;

/// Steps of the moving average: 100, and at most a twentieth of the run.
pub fn window(steps: u64) -> u64 {
    (steps / 20).clamp(1, 100)
}

/// Timescale of AdamW's weight decay as a share of the run, τ = 1 / (lr · weight_decay · steps); `None` without decay.
pub fn timescale(lr: f64, weight_decay: f64, steps: u64) -> Option<f64> {
    let decayed = lr * weight_decay * steps as f64;
    (decayed > 0.0).then(|| decayed.recip())
}

/// Mean loss of some steps of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Piece {
    /// Last of the steps over all steps of the run, in (0, 1].
    pub progress: f64,
    pub loss: f64,
    /// Steps that were logged in it.
    pub n: f64,
}

/// The normalized loss curve of a finished run: (progress, loss / final loss), ascending; means over a window, each at the
/// window's middle, so that windows of different lengths do not shift a curve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reference(Vec<(f64, f64)>);

impl Reference {
    /// From the losses of a whole run in ascending order, averaged over the `share` of the run before each point. `None`
    /// where they are too few, not positive, or end before the run does.
    pub fn new(pieces: &[Piece], share: f64) -> Option<Reference> {
        let mut curve = Vec::with_capacity(pieces.len());
        let mut first = 0;
        for (last, piece) in pieces.iter().enumerate() {
            first += pieces[first..=last].partition_point(|p| p.progress <= piece.progress - share);
            let window = &pieces[first..=last];
            let n: f64 = window.iter().map(|p| p.n).sum();
            let mean = |of: fn(&Piece) -> f64| window.iter().map(|p| of(p) * p.n).sum::<f64>() / n;
            curve.push((mean(|p| p.progress), mean(|p| p.loss)));
        }
        let end = pieces.last()?.progress;
        let last = curve.last()?.1;
        let usable = curve.len() >= LEAST_POINTS && end > WHOLE && last > 0.0 && last.is_finite();
        usable.then(|| {
            Reference(
                curve
                    .into_iter()
                    .map(|(at, loss)| (at, loss / last))
                    .collect(),
            )
        })
    }

    /// Of all points: another curve has another one.
    fn digest(&self) -> u64 {
        let numbers = self.0.iter().flat_map(|(at, loss)| [*at, *loss]);
        numbers.fold(0, |digest, x| mix64(digest ^ x.to_bits()))
    }

    /// The normalized loss at this progress, linear between points.
    pub fn at(&self, progress: f64) -> f64 {
        let after = self.0.partition_point(|(at, _)| *at < progress);
        let (Some(&b), Some(&a)) = (
            self.0.get(after).or(self.0.last()),
            self.0.get(after.saturating_sub(1)),
        ) else {
            return f64::NAN;
        };
        let gap = b.0 - a.0;
        let part = if gap > 0.0 {
            ((progress - a.0) / gap).clamp(0.0, 1.0)
        } else {
            1.0
        };
        a.1 + part * (b.1 - a.1)
    }
}

/// Least squares of loss / S = reference over pairs: the divisor S and what is left.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Fit {
    n: u64,
    loss: f64,
    reference: f64,
    loss_squared: f64,
    reference_squared: f64,
    product: f64,
}

impl Fit {
    fn push(&mut self, loss: f64, reference: f64) {
        self.n += 1;
        self.loss += loss;
        self.reference += reference;
        self.loss_squared += loss * loss;
        self.reference_squared += reference * reference;
        self.product += loss * reference;
    }

    /// S = Σ L² / Σ L · ref, which minimizes Σ (L / S − ref)². It forecasts the final loss.
    fn divisor(&self) -> Option<f64> {
        (self.product > 0.0).then(|| self.loss_squared / self.product)
    }

    /// Standard deviation of L / S − ref.
    fn spread(&self) -> Option<f64> {
        let (n, s) = (self.n as f64, self.divisor()?);
        let squares = self.loss_squared / (s * s) - 2.0 * self.product / s + self.reference_squared;
        let mean = (self.loss / s - self.reference) / n;
        Some((squares / n - mean * mean).max(0.0).sqrt())
    }
}

/// The residual of a run while it trains.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Collapse {
    /// Of the run, as planned.
    steps: u64,
    /// Digest of the curve that `fit` is against.
    reference: u64,
    recent: VecDeque<f64>,
    fit: Fit,
    /// Mean progress and mean loss of the newest steps.
    newest: Option<(f64, f64)>,
}

impl Collapse {
    /// Of a run that plans `steps` steps, against this curve.
    pub fn new(steps: u64, reference: &Reference) -> Collapse {
        Collapse {
            steps,
            reference: reference.digest(),
            recent: VecDeque::new(),
            fit: Fit::default(),
            newest: None,
        }
    }

    /// Whether its fit holds for what `other` measures: of another number of steps or another curve it does not.
    pub fn fits(&self, other: &Collapse) -> bool {
        (self.steps, self.reference) == (other.steps, other.reference)
    }

    /// Takes the loss of the next step.
    pub fn push(&mut self, step: u64, loss: f64, reference: &Reference) {
        self.recent.push_back(loss);
        while self.recent.len() as u64 > window(self.steps) {
            self.recent.pop_front();
        }
        let middle = step as f64 - 0.5 * (self.recent.len() - 1) as f64;
        let progress = middle / self.steps.max(1) as f64;
        let mean = self.recent.iter().sum::<f64>() / self.recent.len() as f64;
        if ALIGN.contains(&progress) && mean.is_finite() {
            self.fit.push(mean, reference.at(progress));
        }
        self.newest = Some((progress, mean));
    }

    /// The final loss that the fit forecasts; `None` until it has enough steps.
    pub fn forecast(&self) -> Option<f64> {
        let enough = self.fit.n as f64 >= (LEAST * self.steps as f64).max(3.0);
        enough.then(|| self.fit.divisor()).flatten()
    }

    /// r = L / S − reference at the newest step, after the part that S is fitted on.
    pub fn residual(&self, reference: &Reference) -> Option<f64> {
        let (progress, loss) = self.newest.filter(|(at, _)| at > ALIGN.end())?;
        Some(loss / self.forecast()? - reference.at(progress))
    }

    /// Standard deviation of the residual where S is fitted: what noise alone makes.
    pub fn noise(&self) -> Option<f64> {
        self.forecast().and_then(|_| self.fit.spread())
    }
}

#[cfg(test)]
mod tests {
    use super::super::close;
    use super::*;

    const REFERENCE: [f64; 6] = [1.40, 1.25, 1.15, 1.08, 1.03, 1.00];

    #[test]
    fn known_values_of_fit_and_residual() {
        let mut losses = REFERENCE.map(|x| 2.5 * x);
        losses[4] += 0.05;
        let mut fit = Fit::default();
        (1..=3).for_each(|i| fit.push(losses[i], REFERENCE[i]));
        let s = fit.divisor().unwrap();
        close(s, 2.5, 1e-12);
        close(fit.spread().unwrap(), 0.0, 1e-7);
        for (i, (loss, reference)) in losses.iter().zip(REFERENCE).enumerate() {
            close(loss / s - reference, if i == 4 { 0.02 } else { 0.0 }, 1e-12);
        }
    }

    #[test]
    fn the_spread_is_the_standard_deviation_of_what_is_left() {
        let pairs = [(2.61, 1.30), (2.48, 1.25), (2.37, 1.17), (2.22, 1.12)];
        let mut fit = Fit::default();
        pairs.iter().for_each(|(l, r)| fit.push(*l, *r));
        let s = fit.divisor().unwrap();
        let left: Vec<f64> = pairs.iter().map(|(l, r)| l / s - r).collect();
        close(
            fit.spread().unwrap(),
            crate::base::stats::population_std(&left).unwrap(),
            1e-9,
        );
    }

    #[test]
    fn the_timescale_is_that_of_the_whole_run() {
        close(timescale(3e-4, 0.1, 10_000).unwrap(), 3.3333, 1e-4);
        assert_eq!(timescale(3e-4, 0.0, 10_000), None);
    }

    fn curve(at: f64) -> f64 {
        2.0 + 2.0 * (-4.0 * at).exp()
    }

    fn pieces(steps: u64, every: u64, scale: f64) -> Vec<Piece> {
        let logged = (1..=steps).filter(|step| step % every == 0);
        let piece = |step| {
            let progress = step as f64 / steps as f64;
            let loss = scale * curve(progress);
            Piece {
                progress,
                loss,
                n: 1.0,
            }
        };
        logged.map(piece).collect()
    }

    /// The residual at each step of a run of `steps` whose loss is 1.7 times the reference's shape, plus `fault` at its end.
    fn residuals(steps: u64, fault: impl Fn(f64) -> f64) -> (Vec<Option<f64>>, Collapse) {
        let share = window(steps) as f64 / steps as f64;
        let reference = Reference::new(&pieces(400, 4, 1.0), share).unwrap();
        let mut run = Collapse::new(steps, &reference);
        let each = (1..=steps).map(|step| {
            let at = step as f64 / steps as f64;
            run.push(step, 1.7 * curve(at) + fault(at), &reference);
            run.residual(&reference)
        });
        (each.collect(), run)
    }

    #[test]
    fn a_run_of_another_length_and_loss_collapses_onto_the_reference() {
        let (residuals, run) = residuals(3_000, |_| 0.0);
        // Half of the window later: the mean of 100 steps stands for their middle.
        assert!(residuals[..1_549].iter().all(Option::is_none));
        let worst = residuals[1_550..]
            .iter()
            .map(|r| r.unwrap().abs())
            .fold(0.0, f64::max);
        assert!(worst < 5e-4, "{worst}");
        close(run.forecast().unwrap(), 1.7 * curve(1.0), 0.01);
        assert!(run.noise().unwrap() < 1e-3);
    }

    #[test]
    fn a_fault_shows_from_where_it_begins() {
        let (residuals, run) = residuals(3_000, |at| if at > 0.7 { 0.1 } else { 0.0 });
        let last = residuals.last().unwrap().unwrap();
        close(last, 0.1 / run.forecast().unwrap(), 2e-3);
        assert!(residuals[2_000].unwrap().abs() < 1e-3);
    }

    #[test]
    fn a_fit_holds_for_its_number_of_steps_and_its_curve() {
        let reference = |scale| {
            let mut pieces = pieces(400, 4, 1.0);
            pieces[0].loss *= scale;
            Reference::new(&pieces, 0.05).unwrap()
        };
        let run = Collapse::new(3_000, &reference(1.0));
        assert!(run.fits(&Collapse::new(3_000, &reference(1.0))));
        assert!(!run.fits(&Collapse::new(3_000, &reference(1.01))));
        assert!(!run.fits(&Collapse::new(2_000, &reference(1.0))));
    }

    #[test]
    fn curves_that_cannot_serve_are_none() {
        let whole = pieces(400, 4, 1.0);
        assert!(Reference::new(&whole[..90], 0.05).is_none());
        assert!(Reference::new(&pieces(400, 40, 1.0), 0.05).is_none());
        assert!(Reference::new(&pieces(400, 4, f64::NAN), 0.05).is_none());
        assert!(Reference::new(&[], 0.05).is_none());
        assert_eq!(window(2_000), 100);
        assert_eq!(window(10), 1);
    }
}
