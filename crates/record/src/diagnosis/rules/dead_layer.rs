//! A block with dead feed-forward units and a small gradient.

use super::{blocks, metric};
use crate::base::finding::{Finding, Signal};
use crate::base::human::percent;
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::View;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "dead_layer",
        title: "dead units",
        summary: "No block has more than half of its feed-forward units dead in three probes while its gradient is less than half of the other blocks' or the share rose by 0.3.",
        source: "dead units: Lu et al. 2019, arXiv 1903.06733; the margins are rules of thumb",
    },
    needs: &[metric::DEAD_UNITS],
    judge,
};

const DEAD: f32 = 0.5;
/// Relative to the median gradient norm of the other blocks.
const QUIET: f64 = 0.5;
const RISE: f32 = 0.3;

fn judge(view: &View<'_>) -> Option<Finding> {
    let is_dead = |values: &[f32], b: usize| values[b] > DEAD;
    let dead = blocks::lasting(view, metric::DEAD_UNITS, is_dead);
    let quiet = blocks::lasting(view, metric::GRAD_BY_LAYER, |values, b| {
        blocks::others(values, b).is_some_and(|others| f64::from(values[b]) < QUIET * others)
    });
    let first = view.state.layers.get(metric::DEAD_UNITS)?.rows().first()?;
    let (block, share, second) = dead.iter().find_map(|(block, share)| {
        let gradient = quiet.iter().find(|(b, _)| b == block).map(|(_, norm)| {
            Signal::of(
                metric::GRAD_BY_LAYER,
                *norm,
                format!("gradient norm {norm:.1e}, less than half of the other blocks'"),
            )
        });
        let before = first.values.get(*block).copied().unwrap_or(f32::NAN);
        let risen = (*share as f32 - before > RISE).then(|| {
            Signal::of(
                metric::DEAD_UNITS,
                f64::from(before),
                format!("it began at {}", percent(f64::from(before), 0)),
            )
        });
        Some((*block, *share, gradient.or(risen)?))
    })?;
    let text = format!(
        "{} of the units of block {block} are dead",
        percent(share, 0)
    );
    let since = blocks::since(view, metric::DEAD_UNITS, block, is_dead);
    let signals = vec![
        Signal::of(metric::DEAD_UNITS, share, text).at(since.unwrap_or(view.state.step)),
        second,
    ];
    let cause = "inputs of these units moved into the flat part of the activation: too large a step, or a disconnected block";
    let mut fix =
        "lower the learning rate or lengthen the warm-up and restart from an earlier checkpoint"
            .to_string();
    let head = view.state.head.as_ref();
    if head.is_some_and(|head| head.spec["model"]["mlp"].to_string().contains("relu")) {
        fix.push_str("; use an activation without a flat side (gelu, silu)");
    }
    Some(Finding::warn(signals, cause, fix))
}
