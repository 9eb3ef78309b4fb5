//! Clipping that acts on every step.

use super::metric;
use crate::base::finding::{Finding, Signal};
use crate::base::human;
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::View;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "clip_tight",
        title: "clipping",
        summary: "After the warm-up fewer than 90 % of the steps are clipped, or the typical norm is below 10 times clip_norm.",
        source: "above 30 % clipping acts as the learning rate: rule of thumb",
    },
    needs: &[metric::CLIPPED, metric::GRAD_NORM],
    judge,
};

const MOST: f64 = 0.9;
const TIMES: f64 = 10.0;

fn judge(view: &View<'_>) -> Option<Finding> {
    if super::lost(view) || view.state.step <= view.warmup().max(100) {
        return None;
    }
    // Gradients of logits that are far too large are far too large themselves.
    if let (Some(line), Some(loss)) = (view.useless(), view.loss())
        && loss.now > line
    {
        return None;
    }
    let clip = view
        .state
        .settings
        .get("clip_norm")
        .copied()
        .filter(|c| *c > 0.0)?;
    let flags = view.recent(metric::CLIPPED);
    let share = flags.iter().map(|p| p.value).sum::<f64>() / flags.len().max(1) as f64;
    let norm = view.typical(metric::GRAD_NORM)?;
    (share > MOST && norm > TIMES * clip).then(|| {
        let signals = vec![
            Signal::of(metric::CLIPPED, share, format!("{} of the steps are clipped", human::percent(share, 0))).at(view.state.step),
            Signal::of(metric::GRAD_NORM, norm, format!("the typical gradient norm {} is {:.0} times clip_norm {}", human::number(norm), norm / clip, human::number(clip))),
        ];
        let cause = "clip_norm is far below the typical gradient: every step has the same length, and outliers are not damped";
        let fix = format!("<max_grad_norm={}>, or 1, the typical value", human::number((2.0 * norm).max(clip)));
        Finding::warn(signals, cause, fix)
    })
}
