//! The amount of held-out data, and how often it is evaluated.

use super::{Subject, poor};
use crate::base::finding::Finding;
use crate::base::human::{grouped, percent};

/// Tokens below which the loss of the split says little: its standard error is about 1.5 / √n nats.
const FEW: u64 = 2_000;
/// Prompts below which the share of right answers says little: its standard error is up to 0.5 / √n.
const FEW_PROMPTS: u64 = 20;
const LARGE_SHARE: f64 = 0.3;
/// No larger share is recommended: it would teach nothing.
const MOST_SHARE: f64 = 0.2;

pub fn review(subject: &Subject<'_>) -> Vec<Finding> {
    let found = [
        large_share(subject),
        few_tokens(subject),
        few_prompts(subject),
        rarely(subject),
    ];
    found.into_iter().flatten().collect()
}

fn large_share(subject: &Subject<'_>) -> Option<Finding> {
    let data = &subject.spec.data;
    let by_share = data.val_path.is_none() && data.val_rows.is_none();
    (by_share && data.val_fraction > LARGE_SHARE).then(|| {
        poor(
            "data.val_fraction",
            format!(
                "{} of the data are held out and not trained on",
                percent(data.val_fraction, 0)
            ),
            "-s data.val_fraction=0.1".into(),
            "rule of thumb: 1 to 10 %, at least a few thousand tokens",
        )
    })
}

/// Losses over pairs and scores are means over examples: this is of likelihoods alone.
fn few_tokens(subject: &Subject<'_>) -> Option<Finding> {
    let tokens = subject.sizes.val_tokens.filter(|n| *n < FEW);
    let tokens = tokens.filter(|_| subject.spec.method.is_likelihood())?;
    let noise = 1.5 / (tokens.max(1) as f64).sqrt();
    let (place, fix) = more_tokens(subject, tokens);
    let count = match tokens {
        1 => "1 validation token counts".to_string(),
        n => format!("{} validation tokens count", grouped(n)),
    };
    Some(poor(
        place,
        format!(
            "{count} in the loss: its standard error is about ±{noise:.2} nats, so overfitting shows late"
        ),
        fix,
        "standard error of a mean over n tokens, σ about 1.5 nats",
    ))
}

/// A share of right answers over few prompts moves in coarse steps; the best checkpoint and the verdict go by it.
fn few_prompts(subject: &Subject<'_>) -> Option<Finding> {
    let (held_out, all) = subject.sizes.val_prompts?;
    let measures = subject.spec.method.on_policy().is_some() && !subject.spec.eval.every.is_never();
    if !measures || held_out == 0 || held_out >= FEW_PROMPTS {
        return None;
    }
    let data = &subject.spec.data;
    let most = (all as f64 * MOST_SHARE) as u64;
    let (place, fix) = match (data.val_path.is_some(), most >= FEW_PROMPTS) {
        (true, _) => ("data.val_path", "set data.val_path to more prompts".into()),
        (false, true) => (
            "data.val_rows",
            format!("-s data.val_rows={FEW_PROMPTS}, or data.val_path with prompts of its own"),
        ),
        // A larger part of so few would be missed in training, and a smaller one mends nothing.
        (false, false) => (
            "data.val_path",
            format!(
                "set data.val_path to {FEW_PROMPTS} prompts or more of its own: of {} too few can be held out",
                grouped(all)
            ),
        ),
    };
    let says = match held_out {
        1 => "1 held-out prompt: whether it is answered right".into(),
        n => format!("{n} held-out prompts: a share of right answers in steps of {}", percent(1.0 / n as f64, 0)),
    };
    Some(poor(
        place,
        format!("{says} decides which checkpoint is best"),
        fix,
        "standard error of a share over n prompts: up to 0.5 / √n",
    ))
}

/// The setting that holds out more than these `tokens`, and how.
fn more_tokens(subject: &Subject<'_>, tokens: u64) -> (&'static str, String) {
    let data = &subject.spec.data;
    let (share, own) = (data.val_fraction, data.val_path.is_some());
    // The split grows with its share, whatever the size of the data.
    let wanted = (share * 2.0 * FEW as f64 / tokens.max(1) as f64).min(MOST_SHARE);
    // A share that would still hold too few costs training data and mends nothing.
    let enough = tokens as f64 * wanted / share.max(f64::MIN_POSITIVE) >= FEW as f64;
    let more = |rows: u64| {
        let wanted = rows.saturating_mul(2 * FEW).div_ceil(tokens.max(1));
        // Of all rows, those that are held out now are a share that is known from their tokens.
        let most = subject.sizes.held_out.filter(|share| *share > 0.0);
        let most = most.map_or(rows, |share| (rows as f64 * MOST_SHARE / share) as u64);
        Some(wanted.min(most)).filter(|wanted| *wanted > rows)
    };
    let no_share = own || share >= wanted || !enough;
    match (no_share, data.val_rows.and_then(more)) {
        (_, Some(rows)) if !own => (
            "data.val_rows",
            format!("-s data.val_rows={rows}, or data.val_path with a text of its own"),
        ),
        _ if !own && data.val_rows.is_some() => (
            "data.val_path",
            "set data.val_path to a longer text of its own".into(),
        ),
        (true, _) => (
            "data.val_path",
            "set data.val_path to a longer, separate text".into(),
        ),
        (false, _) => (
            "data.val_fraction",
            format!("-s data.val_fraction={wanted:.2}, or data.val_path with a separate text"),
        ),
    }
}

fn rarely(subject: &Subject<'_>) -> Option<Finding> {
    let steps = subject.spec.train.max_steps;
    let every = subject.spec.eval.every.steps(steps);
    (steps >= 200 && (every == 0 || every > steps)).then(|| {
        poor(
            "eval.every",
            "validation loss is measured only at the end: too late to notice overfitting".into(),
            format!("-s eval.every={}", steps / 10),
            "early stopping: Prechelt 1998",
        )
    })
}
