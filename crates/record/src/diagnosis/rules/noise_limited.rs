//! A plateau in which noise outweighs the gradient.

use super::metric;
use crate::base::finding::{Finding, Signal};
use crate::base::human;
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::View;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "noise_limited",
        title: "batch size",
        summary: "In the first half of a run the loss falls, or the batch is at least a tenth of the gradient noise scale.",
        source: "critical batch: McCandlish et al. 2018, arXiv 1812.06162; a tenth: rule of thumb",
    },
    needs: &[metric::TRAIN_LOSS, metric::NOISE_SCALE],
    judge,
};

const SMALL: f64 = 0.1;

fn judge(view: &View<'_>) -> Option<Finding> {
    let early = view.state.progress().is_some_and(|share| share < 0.5);
    if super::lost(view) || !early || view.state.step < 5 * view.patience() {
        return None;
    }
    let trend = view.loss()?.trend;
    let scale = view.typical(metric::NOISE_SCALE)?;
    let head = view.state.head.as_ref()?;
    let batch = head.batch_tokens_at(view.state.step) as f64;
    // After the ramp it will be large enough.
    let fix = match head.batch_tokens as f64 >= SMALL * scale {
        true => {
            "end the stages of «`train.batch_ramp`|the batch ramp» earlier: up to the noise scale a larger batch costs hardly any more tokens"
        }
        false => {
            "raise <gradient_accumulation_steps>: up to the noise scale a larger batch costs hardly any more tokens"
        }
    };
    (trend.z().abs() < 2.0 && batch < SMALL * scale).then(|| {
        let signals = vec![
            Signal::of(
                metric::TRAIN_LOSS,
                trend.now,
                format!("train loss plateaus at {}", human::number(trend.now)),
            )
            .at(view.state.step),
            Signal::of(
                metric::NOISE_SCALE,
                scale,
                format!(
                    "the gradient noise scale is {} tokens, a batch has {}",
                    human::short(scale),
                    human::short(batch)
                ),
            ),
        ];
        Finding::warn(signals, "the gradient is mostly noise", fix)
    })
}
