//! Batches in the order of the data: losses of neighbouring steps correlate, and held-out loss does not follow.

use super::metric;
use crate::base::finding::{Finding, Signal};
use crate::base::human;
use crate::base::registry::Entry;
use crate::base::stats::median;
use crate::diagnosis::Rule;
use crate::diagnosis::view::View;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "sorted_data",
        title: "data order",
        summary: "Losses of neighbouring steps scatter independently around their trend (correlation below 0.5), or validation loss stays within 10 % of training loss.",
        source: "data sorted or not reshuffled; the margins are rules of thumb",
    },
    needs: &[metric::TRAIN_LOSS, metric::VAL_LOSS],
    judge,
};

/// Steps of the trend around each one.
const TREND: usize = 20;
const CORRELATED: f64 = 0.5;
const GAP: f64 = 0.1;

fn judge(view: &View<'_>) -> Option<Finding> {
    let loss = view.loss()?;
    let val = view.state.latest(metric::VAL_LOSS)?;
    // A diverged loss drifts, whatever the order.
    let diverged = loss.now >= loss.start;
    if diverged || view.state.step < view.patience() || val - loss.now < GAP * loss.now {
        return None;
    }
    let correlation = correlation(
        &view
            .recent(metric::TRAIN_LOSS)
            .iter()
            .map(|p| p.value)
            .collect::<Vec<_>>(),
    )?;
    (correlation > CORRELATED).then(|| {
        let text = format!(
            "losses of neighbouring steps have correlation {correlation:.2}; shuffled data give about 0"
        );
        let signals = vec![
            Signal::of(metric::TRAIN_LOSS, correlation, text).at(view.state.step),
            Signal::of(
                metric::VAL_LOSS,
                val,
                format!(
                    "val loss {} above train loss {}",
                    human::number(val),
                    human::number(loss.now)
                ),
            ),
        ];
        let cause = "the data are ordered: neighbouring steps see similar text";
        Finding::warn(
            signals,
            cause,
            "shuffle the files once («`llmtui data split`, |»`shuf`), or mix sources by weight",
        )
    })
}

/// Correlation of neighbours, relative to the median of the steps on both sides; `None` for fewer than 100.
fn correlation(losses: &[f64]) -> Option<f64> {
    if losses.len() < 100 || losses.iter().any(|x| !x.is_finite()) {
        return None;
    }
    let rest: Vec<f64> = (TREND..losses.len() - TREND)
        .map(|at| losses[at] - median(&losses[at - TREND..=at + TREND]).unwrap_or(losses[at]))
        .collect();
    let squares: f64 = rest.iter().map(|x| x * x).sum();
    let products: f64 = rest.windows(2).map(|pair| pair[0] * pair[1]).sum();
    (squares > 0.0).then(|| products / squares)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alternating_losses_are_uncorrelated_and_long_stretches_are_not() {
        let noise = |i: usize| ((i * 7919 % 1009) as f64 / 1009.0) - 0.5;
        let shuffled: Vec<f64> = (0..200)
            .map(|i| 3.0 - 0.001 * i as f64 + noise(i))
            .collect();
        assert!(correlation(&shuffled).unwrap().abs() < 0.3);
        let sorted: Vec<f64> = (0..200)
            .map(|i| 3.0 + f64::from(u8::from(i / 12 % 3 == 0)) + 0.1 * noise(i))
            .collect();
        assert!(
            correlation(&sorted).unwrap() > 0.5,
            "{:?}",
            correlation(&sorted)
        );
        assert_eq!(correlation(&shuffled[..50]), None);
    }
}
