//! A further validation set: forgetting is its loss rising while the run's own validation loss falls.

use super::overfitting::{SHARE, largest};
use super::{lost, metric};
use crate::base::finding::{Finding, Signal};
use crate::base::human;
use crate::base::registry::Entry;
use crate::base::text::one_line;
use crate::diagnosis::Rule;
use crate::diagnosis::view::View;
use crate::run::state::Evaluation;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "forgetting",
        title: "forgetting",
        summary: "No loss of eval.extra rises while the validation loss falls.",
        source: "catastrophic forgetting, McCloskey and Cohen 1989; the margins are rules of thumb",
    },
    needs: &[metric::VAL_LOSS],
    judge,
};

/// A rise of this many nats, or [`SHARE`] of the lowest, in this many consecutive evaluations.
const NATS: f64 = 0.03;
const EVALUATIONS: usize = 2;

fn judge(view: &View<'_>) -> Option<Finding> {
    if lost(view) {
        return None;
    }
    let found = |e: &&Evaluation| e.val_loss().is_finite();
    let all: Vec<&Evaluation> = view.state.evaluations.iter().filter(found).collect();
    let alike = largest(&all);
    let (first, last) = (alike.first()?, alike.last()?);
    let mut sets = last
        .values
        .keys()
        .filter(|id| id.starts_with(metric::EXTRA));
    let worst = sets.clone().find_map(|id| rise(id, &alike));
    Some(match worst {
        Some((id, lowest, now)) if last.val_loss() < first.val_loss() * (1.0 - SHARE) => {
            let name = one_line(&id[metric::EXTRA.len()..]);
            let number = human::number;
            let signals = vec![
                Signal::of(id, now, format!("loss on {name} {}", number(now))).at(last.step),
                Signal::of(id, lowest.1, format!("it was {}", number(lowest.1))).at(lowest.0),
                Signal::of(
                    metric::VAL_LOSS,
                    last.val_loss(),
                    format!(
                        "val loss {} then, {} now",
                        number(first.val_loss()),
                        number(last.val_loss())
                    ),
                )
                .at(last.step),
            ];
            Finding::warn(
                signals,
                "catastrophic forgetting: gains on the training data cost earlier abilities",
                format!(
                    "mix rows like those of {name} into data.sources (a tenth to a fifth), lower the learning rate, or use -s adapter.lora.rank=8"
                ),
            )
            .at(format!("after step {}", human::grouped(lowest.0)))
        }
        _ => {
            let id = sets.next()?;
            let value = last.values[id];
            Finding::pass(Signal::of(id, value, human::number(value)).at(last.step))
        }
    })
}

/// The lowest loss on a set with its step, and the newest one, if all since the lowest exceed it by the margin.
fn rise<'a>(id: &'a str, evaluations: &[&Evaluation]) -> Option<(&'a str, (u64, f64), f64)> {
    let of_set = |e: &&Evaluation| Some((e.step, *e.values.get(id)?));
    let curve: Vec<(u64, f64)> = evaluations.iter().filter_map(of_set).collect();
    let lowest = curve.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let newest = &curve[curve.len().checked_sub(EVALUATIONS)?..];
    let margin = NATS.max(SHARE * lowest.1.abs());
    let above = |(step, loss): &(u64, f64)| *step > lowest.0 && *loss > lowest.1 + margin;
    newest
        .iter()
        .all(above)
        .then(|| (id, lowest, newest[EVALUATIONS - 1].1))
}
