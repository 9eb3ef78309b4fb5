//! Attention so peaked that its softmax is saturated.

use super::{blocks, metric};
use crate::base::finding::{Finding, Signal};
use crate::base::human;
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::scales;
use crate::diagnosis::view::View;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "attention_collapse",
        title: "attention",
        summary: "No block's attention entropy stays below 0.05 of its maximum while its largest score is above 100.",
        source: "entropy collapse: Zhai et al. 2023, arXiv 2303.06296; 100: Kimi K2, arXiv 2507.20534",
    },
    needs: &[metric::ATTENTION_ENTROPY, metric::ATTENTION_LARGEST],
    judge,
};

const SHARP: f32 = 0.05;
const LARGE: f32 = 100.0;

fn judge(view: &View<'_>) -> Option<Finding> {
    let is_sharp = |values: &[f32], b: usize| values[b] < SHARP;
    let sharp = blocks::lasting(view, metric::ATTENTION_ENTROPY, is_sharp);
    let large = blocks::lasting(view, metric::ATTENTION_LARGEST, |values, b| {
        values[b] > LARGE
    });
    let (block, entropy) = *sharp
        .iter()
        .find(|(b, _)| large.iter().any(|(other, _)| other == b))?;
    let score = large.iter().find(|(b, _)| *b == block)?.1;
    let since = blocks::since(view, metric::ATTENTION_ENTROPY, block, is_sharp);
    let mut signals = vec![
        Signal::of(
            metric::ATTENTION_ENTROPY,
            entropy,
            format!("attention entropy of block {block} is {entropy:.3} of its maximum"),
        )
        .at(since.unwrap_or(view.state.step)),
        Signal::of(
            metric::ATTENTION_LARGEST,
            score,
            format!("its largest score is {}", human::short(score)),
        ),
    ];
    let began = view.state.layers.get(metric::ATTENTION_LARGEST)?.rows();
    let began = f64::from(*began.first()?.values.get(block)?);
    // Learning rates have nothing to do with scores that were as large before the first steps.
    let from_the_start = began > f64::from(LARGE);
    if from_the_start {
        let text = format!("it began at {}", human::short(began));
        signals.push(Signal::of(metric::ATTENTION_LARGEST, began, text));
    }
    let (cause, fix) = match scales::of_scores(view.model()) {
        Some(found) => {
            signals.push(Signal {
                text: found.said,
                ..Signal::default()
            });
            let cause =
                "a setting of the model makes attention scores so large that the softmax saturates";
            (cause, found.change)
        }
        None if from_the_start => (
            "attention scores were so large from the start that the softmax saturates",
            format!("{QK_NORM} for the next run, or smaller initial queries and keys"),
        ),
        None => (
            "attention scores have grown until the softmax saturates",
            format!(
                "{}; {QK_NORM} for the next run",
                super::diverged::restart_with_lower_lr(view)
            ),
        ),
    };
    Some(Finding::warn(signals, cause, fix))
}

const QK_NORM: &str = "QK-norm« (-s model.qk_norm=true)|»";
