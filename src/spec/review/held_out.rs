//! What is held out, and how often it is looked at.

use super::{Subject, poor};
use crate::base::finding::Finding;
use crate::base::human::grouped;

/// Tokens below which the loss of the split says little: its standard error is about 1.5 / √n nats.
const FEW: u64 = 2_000;
const LARGE_SHARE: f64 = 0.3;

pub fn review(subject: &Subject<'_>) -> Vec<Finding> {
    let (spec, mut list) = (subject.spec, Vec::new());
    let (share, own) = (spec.data.val_fraction, spec.data.val_path.is_some());
    if !own && share > LARGE_SHARE {
        list.push(poor(
            "data.val_fraction",
            format!(
                "{:.0} % of the data are held out and teach nothing",
                100.0 * share
            ),
            "-s data.val_fraction=0.1".into(),
            "rule of thumb: 1 to 10 %, some thousand tokens at least",
        ));
    }
    let few = subject.sizes.val_tokens.filter(|n| *n < FEW);
    if let Some(tokens) = few.filter(|_| spec.method.on_policy().is_none()) {
        let noise = 1.5 / (tokens.max(1) as f64).sqrt();
        let pass = subject.sizes.pass_tokens.unwrap_or_default() as f64;
        let wanted = (FEW as f64 * 2.0 / (pass + FEW as f64)).clamp(share, 0.2);
        list.push(poor(
            "data.val_fraction",
            format!(
                "{} validation tokens: their loss is known to about ±{noise:.2} nats, and overfitting shows late",
                grouped(tokens)
            ),
            format!("-s data.val_fraction={wanted:.2}, or data.val_path with a text of its own"),
            "standard error of a mean over n tokens, σ about 1.5 nats",
        ));
    }
    let steps = spec.train.max_steps;
    if steps >= 200 && (spec.eval.every == 0 || spec.eval.every > steps) {
        list.push(poor(
            "eval.every",
            "validation loss is measured only at the end: overfitting will be noticed too late"
                .into(),
            format!("-s eval.every={}", steps / 10),
            "early stopping: Prechelt 1998",
        ));
    }
    list
}
