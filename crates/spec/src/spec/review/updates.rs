//! Updates of a fine-tuned model: few rows in large batches leave hardly any.

use super::passes::good_passes;
use super::{Subject, poor};
use crate::base::finding::Finding;
use crate::base::human::counted;

/// Updates of a fine-tuning: fewer at a rate of fine-tuning leave a model much as it was.
pub const FEWEST: u64 = 20;

pub fn review(subject: &Subject<'_>) -> Vec<Finding> {
    let (spec, sizes) = (subject.spec, subject.sizes);
    let train = &spec.train;
    let (Some(step), Some(pass)) = (sizes.step_tokens.filter(|n| *n > 0), sizes.pass_tokens) else {
        return Vec::new();
    };
    // A number of steps is asked for as it is: a short trial must simply run.
    let Some(epochs) = train.epochs.filter(|_| !subject.begins_at_random()) else {
        return Vec::new();
    };
    if spec.method.on_policy().is_some() {
        return Vec::new();
    }
    let seen = epochs * pass as f64;
    let micro_step = step as f64 / train.grad_accum_steps as f64;
    let updates = train.steps_of((seen / micro_step).ceil() as u64);
    if updates >= FEWEST {
        return Vec::new();
    }
    let (rows, accum) = (train.micro_batch_size, train.grad_accum_steps);
    let row = step as f64 / (rows * accum) as f64;
    let fits = ((seen / row) as usize / FEWEST as usize).max(1);
    let set = |key: &str, now: usize, then: usize| {
        (then < now).then(|| format!("-s train.{key}={then}"))
    };
    let smaller: Vec<String> = [
        set("micro_batch_size", rows, fits.max(subject.least_rows())),
        set(
            "grad_accum_steps",
            accum,
            (fits / rows).max(subject.least_accum()),
        ),
    ]
    .into_iter()
    .flatten()
    .collect();
    let good = good_passes(subject);
    let fix = match (smaller.is_empty(), epochs < good) {
        (false, _) => format!("smaller batches: {}", smaller.join(" ")),
        (true, true) => format!("more data, or -s epochs={good}"),
        (true, false) => "more data".into(),
    };
    vec![poor(
        "train",
        format!("{} in total: the model will hardly change", counted(updates, "update")),
        fix,
        "rule of thumb: dozens of updates; LIMA, arXiv 2305.11206, took about 470 on 1,000 examples",
    )]
}
