//! A reference model that differs from the policy's start, or a policy with dropout compared with one.

use super::metric;
use crate::base::finding::{Finding, Signal};
use crate::base::human;
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::View;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "preference_start",
        title: "reference",
        summary: "DPO begins with rewards and margins of 0: policy and reference are the same model.",
        source: "−log σ(0) = ln 2: Rafailov et al. 2023, arXiv 2305.18290; TRL trains without dropout (disable_dropout)",
    },
    needs: &[
        metric::TRAIN_LOSS,
        metric::MARGINS,
        metric::CHOSEN,
        metric::REJECTED,
    ],
    judge,
};

const APART: f64 = 0.1;

fn judge(view: &View<'_>) -> Option<Finding> {
    let head = view.state.head.as_ref().filter(|_| view.is_dpo())?;
    // A resumed log may lack the first steps.
    let (first, _) = view.state.series.get(metric::MARGINS)?.steps()?;
    let (margin, loss) = (
        view.opening(metric::MARGINS)?,
        view.opening(metric::TRAIN_LOSS)?,
    );
    let (chosen, rejected) = (
        view.opening(metric::CHOSEN)?,
        view.opening(metric::REJECTED)?,
    );
    // Dropout lowers both sides equally: the margin alone may not show it.
    let apart = |x: f64| x.abs() >= APART;
    let differs = apart(chosen) && (apart(rejected) || apart(margin));
    if first > 1 || head.resumed_from.is_some() || !differs {
        return None;
    }
    let number = human::number;
    let of_rewards = format!(
        "rewards {} and {}, margin {} before the first update",
        number(chosen),
        number(rejected),
        number(margin)
    );
    let mut signals = vec![Signal::of(metric::CHOSEN, chosen, of_rewards).at(1)];
    // Other losses, and additional terms, start elsewhere.
    let dpo = &head.spec["method"]["dpo"];
    let sigmoid = dpo["loss"].as_str().is_none_or(|loss| loss == "sigmoid");
    // A log of another program does not say which loss it is.
    if sigmoid
        && !view.state.is_foreign()
        && dpo["mix"].as_array().is_none_or(Vec::is_empty)
        && dpo["nll_weight"].as_f64().unwrap_or(0.0) == 0.0
    {
        let due = format!("loss {}, ln 2 = 0.6931 is due", number(loss));
        signals.push(Signal::of(metric::TRAIN_LOSS, loss, due).at(1));
    }
    let dropout = head.spec["model"]["dropout"].as_f64().unwrap_or(0.0);
    Some(match dropout > 0.0 {
        true => Finding::fail(
            signals,
            format!(
                "dropout {dropout} is on in the policy and off in the reference, so the same answers get different probabilities"
            ),
            "<dropout=0>",
        ),
        false => Finding::fail(
            signals,
            "the reference is not the policy's start model, or sees different text (template, truncation)",
            "use the policy's start model as reference« (method.dpo.reference: auto)|, and train without dropout (disable_dropout=True)»",
        ),
    })
}
