//! Training loss above validation loss: noise that only training has, such as dropout.

use super::metric;
use crate::base::finding::{Finding, Signal};
use crate::base::human;
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::View;
use crate::run::state::Evaluation;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "train_above_val",
        title: "train > val",
        summary: "After the initial drop, training loss is not more than 15 % (5 % with dropout above 0.3) and 0.1 nats above validation loss for three evaluations.",
        source: "dropout is only active in training: Srivastava et al. 2014; the margin is a rule of thumb",
    },
    needs: &[metric::TRAIN_LOSS, metric::VAL_LOSS],
    judge,
};

const SHARE: f64 = 0.15;
/// With dropout above this rate a smaller margin suffices.
const DROPOUT: f64 = 0.3;
const SHARE_OF_DROPOUT: f64 = 0.05;
/// And at least this much: losses near 0 differ by chance.
const NATS: f64 = 0.1;
const EVALUATIONS: usize = 3;
/// Steps up to an evaluation whose mean loss is compared with it; the decrease within them must be small relative to the margin.
const AROUND: u64 = 20;

fn judge(view: &View<'_>) -> Option<Finding> {
    if super::lost(view) || view.state.step < view.patience() {
        return None;
    }
    // Tasks are evaluated apart, without a loss.
    let all = view.state.evaluations.iter();
    let with_loss: Vec<&Evaluation> = all.filter(|e| e.val_loss().is_finite()).collect();
    let newest = &with_loss[with_loss.len().checked_sub(EVALUATIONS)?..];
    let dropout = view
        .state
        .head
        .as_ref()
        .and_then(|head| head.spec["model"]["dropout"].as_f64());
    let dropout = dropout.filter(|rate| *rate > DROPOUT);
    let share = dropout.map_or(SHARE, |_| SHARE_OF_DROPOUT);
    let mut pair = (0.0, 0.0);
    for evaluation in newest {
        let (step, val) = (evaluation.step, evaluation.val_loss());
        let near = view.loss_over(step.saturating_sub(AROUND)..step + 1)?;
        let before =
            view.loss_over(step.saturating_sub(2 * AROUND)..step.saturating_sub(AROUND))?;
        if near - val <= (share * val).max(NATS) || before - near > 0.5 * (near - val) {
            return None;
        }
        pair = (near, val);
    }
    let number = human::number;
    let mut signals = vec![
        Signal::of(
            metric::TRAIN_LOSS,
            pair.0,
            format!("train loss {}", number(pair.0)),
        )
        .at(view.state.step),
        Signal::of(
            metric::VAL_LOSS,
            pair.1,
            format!(
                "val loss {}, lower in {EVALUATIONS} evaluations",
                number(pair.1)
            ),
        ),
    ];
    let (cause, fix) = match dropout {
        Some(rate) => {
            signals.push(Signal::of(
                metric::TRAIN_LOSS,
                rate,
                format!("model.dropout {rate}"),
            ));
            (
                "dropout is too strong for this model",
                "<dropout=0.1>, or 0 unless it overfits",
            )
        }
        None => (
            "training text is harder than validation text: it is noisy, or the validation split was in the training data",
            "inspect both« in the Data pane; `llmtui preflight` checks|, and» for overlap",
        ),
    };
    Some(Finding::warn(signals, cause, fix))
}
