//! The batch against the critical batch size: far above it more data per step save hardly any steps, far below it the
//! gradient is noise.

use super::{Subject, poor};
use crate::base::finding::Finding;
use crate::base::human::short;

const SOURCE: &str = "critical batch 2e8 / L^4.76 tokens at loss L, which (8.8e13 / N)^0.076 predicts: Kaplan et al. 2020, arXiv 2001.08361; McCandlish et al. 2018, arXiv 1812.06162";
/// Times the critical batch: a step then takes more than four fifths of its data for less than a fifth of its effect.
const FAR: f64 = 4.0;
/// And so many times below it: published models of every size begin at a twentieth or more.
const FAR_BELOW: f64 = 200.0;

/// In tokens, for a model of `n` parameters near the end of its pretraining on subwords.
pub(super) fn critical(n: f64) -> f64 {
    let loss = (8.8e13 / n).powf(0.076);
    2e8 / loss.powf(1.0 / 0.21)
}

pub fn review(subject: &Subject<'_>) -> Vec<Finding> {
    let spec = subject.spec;
    let pretrains = spec.method.entry().id == "pretrain" && subject.begins_at_random();
    let Some(batch) = subject.sizes.step_tokens.map(|n| n as f64) else {
        return Vec::new();
    };
    // The fits know nothing of toys and letters.
    if !pretrains || !subject.is_a_language_model() || spec.data.tokenizer.entry().id == "char" {
        return Vec::new();
    }
    let critical = critical(subject.n_params);
    let accum = spec.train.grad_accum_steps;
    if batch < critical / FAR_BELOW && spec.train.max_steps > 100 {
        let more = (accum as f64 * critical / FAR_BELOW * 4.0 / batch).ceil();
        return vec![poor(
            "train",
            format!(
                "a step of {} tokens is {:.0} times below the critical batch size of about {}: its gradient is mostly noise, and typical learning rates are too high for it",
                short(batch),
                critical / batch,
                short(critical)
            ),
            format!("-s train.grad_accum_steps={more}"),
            SOURCE,
        )];
    }
    if batch <= FAR * critical {
        return Vec::new();
    }
    let least = subject.least_accum();
    let less = ((accum as f64 * critical / batch).ceil() as usize).clamp(least, accum);
    let fix = match accum {
        _ if accum == least => format!(
            "-s train.micro_batch_size={}",
            ((spec.train.micro_batch_size as f64 * critical / batch) as usize).max(1)
        ),
        _ => format!("-s train.grad_accum_steps={less}"),
    };
    vec![poor(
        "train",
        format!(
            "a step of {} tokens is {:.0} times the critical batch size of about {}: more steps with fewer tokens reach the same loss with less compute",
            short(batch),
            batch / critical,
            short(critical)
        ),
        fix,
        SOURCE,
    )]
}
