//! A block that does not train while others do.

use super::{blocks, metric};
use crate::base::finding::{Finding, Signal};
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::View;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "idle_layer",
        title: "frozen blocks",
        summary: "No block's updates and gradient both stay below a fiftieth of the other blocks' median in three probes.",
        source: "a plateau with frozen parameters; the margin is a rule of thumb",
    },
    needs: &[metric::UPDATE_BY_LAYER, metric::GRAD_BY_LAYER],
    judge,
};

const IDLE: f64 = 0.02;

fn judge(view: &View<'_>) -> Option<Finding> {
    // Then no gradient reaches any of them, as `not_learning` says.
    if view.weights_are_zero() {
        return None;
    }
    let below = |values: &[f32], b: usize| {
        let all = values.iter().all(|x| *x == 0.0);
        all || blocks::others(values, b).is_some_and(|others| f64::from(values[b]) < IDLE * others)
    };
    let updates = blocks::lasting(view, metric::UPDATE_BY_LAYER, below);
    let gradients = blocks::lasting(view, metric::GRAD_BY_LAYER, below);
    let idle: Vec<usize> = updates
        .iter()
        .map(|(b, _)| *b)
        .filter(|b| gradients.iter().any(|(other, _)| other == b))
        .collect();
    let first = *idle.first()?;
    let names: Vec<String> = idle.iter().map(usize::to_string).collect();
    let all = view.state.layers.get(metric::UPDATE_BY_LAYER);
    let all = all.is_some_and(|map| map.n_layer() == idle.len());
    let (update, gradient) = (
        updates.iter().find(|(b, _)| *b == first)?.1,
        gradients.iter().find(|(b, _)| *b == first)?.1,
    );
    let signals = vec![
        Signal::of(
            metric::UPDATE_BY_LAYER,
            update,
            match all {
                true => "updates change no block's weights".into(),
                false => format!(
                    "updates of block {} are {update:.1e} of its weights",
                    names.join(", ")
                ),
            },
        )
        .at(view.state.step),
        Signal::of(
            metric::GRAD_BY_LAYER,
            gradient,
            match all {
                true => format!("the gradient norm of all blocks is {gradient:.1e}"),
                false => format!("its gradient norm is {gradient:.1e}"),
            },
        ),
    ];
    let cause = match all {
        true => "all blocks are frozen: only embeddings, the final norm and the head train",
        false => "the block is frozen, or no gradient reaches it",
    };
    let fix =
        "if unintended: check which parameters train, residual scaling and learning-rate groups";
    Some(Finding::warn(signals, cause, fix))
}
