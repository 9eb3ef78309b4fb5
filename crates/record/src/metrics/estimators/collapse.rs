//! The collapse residual (Qiu et al. 2025, arXiv 2507.02119; Bergsma et al. 2025, arXiv 2509.25087): how far a loss curve, over
//! its final value, lies from that of a completed run with the same schedule and tokens per parameter.

/// Part of the run over which the unknown final loss is aligned.
const ALIGN: std::ops::RangeInclusive<f64> = 0.25..=0.5;

/// The residual at each point, and the final loss that the aligned part forecasts.
#[derive(Debug, Clone, PartialEq)]
pub struct Collapse {
    pub final_loss: f64,
    pub residual: Vec<f64>,
}

/// `loss` and `reference` at the same shares `at` of the run, the reference over its final loss. `None` before there is
/// anything to align.
pub fn residual(at: &[f64], loss: &[f64], reference: &[f64]) -> Option<Collapse> {
    let points = || at.iter().zip(loss.iter().zip(reference));
    let aligned = || points().filter(|(at, _)| ALIGN.contains(*at));
    let squares: f64 = aligned().map(|(_, (l, _))| l * l).sum();
    let products: f64 = aligned().map(|(_, (l, r))| l * r).sum();
    let final_loss = squares / products;
    final_loss.is_finite().then(|| Collapse {
        final_loss,
        residual: points().map(|(_, (l, r))| l / final_loss - r).collect(),
    })
}

/// AdamW's normalized timescale τ = 1 / (η λ T): curves collapse only where it is the same.
pub fn timescale(lr: f64, weight_decay: f64, steps: f64) -> f64 {
    1.0 / (lr * weight_decay * steps)
}

#[cfg(test)]
mod tests {
    use super::super::close;
    use super::*;

    #[test]
    fn a_scaled_curve_collapses_and_a_drift_shows() {
        let reference = [1.40, 1.25, 1.15, 1.08, 1.03, 1.00];
        let at = [0.1, 0.25, 0.4, 0.5, 0.8, 1.0];
        let mut loss = reference.map(|x| 2.5 * x);
        let found = residual(&at, &loss, &reference).unwrap();
        close(found.final_loss, 2.5, 1e-12);
        found.residual.iter().for_each(|r| close(*r, 0.0, 1e-12));
        loss[4] += 0.05;
        close(
            residual(&at, &loss, &reference).unwrap().residual[4],
            0.02,
            1e-12,
        );
        assert_eq!(residual(&at[..1], &loss[..1], &reference[..1]), None);
        close(timescale(3e-4, 0.1, 10_000.0), 3.3333, 1e-4);
    }
}
