//! Micro-batches of a step that hold the same data.

use super::metric;
use crate::base::finding::{Finding, Signal};
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::View;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "same_data",
        title: "repeated data",
        summary: "Losses of a step's micro-batches differ, or their gradients do not all point the same way.",
        source: "duplicated shards: Li et al. 2026, arXiv 2602.14462",
    },
    needs: &[metric::LOSS_DISPERSION, metric::GRAD_CONSISTENCY],
    judge,
};

/// Relative to the loss.
const SAME: f64 = 1e-6;
const ALIKE: f64 = 0.99;

fn judge(view: &View<'_>) -> Option<Finding> {
    let loss = view.loss()?.now;
    let last = |id: &str| {
        let points = view.recent(id);
        (points.len() >= 5).then(|| {
            points[points.len() - 5..]
                .iter()
                .map(|p| p.value)
                .collect::<Vec<_>>()
        })
    };
    let (dispersion, consistency) = (
        last(metric::LOSS_DISPERSION)?,
        last(metric::GRAD_CONSISTENCY)?,
    );
    let same = dispersion.iter().all(|d| *d < SAME * loss);
    let alike = consistency.iter().all(|c| *c > ALIKE);
    (same && alike).then(|| {
        let cosine = consistency[4];
        let signals = vec![
            Signal::of(
                metric::LOSS_DISPERSION,
                dispersion[4],
                format!(
                    "losses of the micro-batches differ by {:.1e}",
                    dispersion[4]
                ),
            )
            .at(view.state.step),
            Signal::of(
                metric::GRAD_CONSISTENCY,
                cosine,
                format!("their gradients have a mean cosine of {cosine:.3}"),
            ),
        ];
        let cause = "the micro-batches of a step are copies of each other";
        Finding::fail(
            signals,
            cause,
            "inspect the batches« in the Data pane|»: shards repeat, or the data are one document",
        )
    })
}
