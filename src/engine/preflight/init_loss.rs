//! Before the first step the model knows nothing: its loss is that of guessing, ln V. More means that weights begin too
//! large or that logits are wrong; less means that it sees its targets.

use super::{Check, Finding, Subject};
use crate::data::Unit;
use crate::engine::EngineError;
use crate::methods::{evaluate, likelihood, tokens};
use crate::metrics::Readings;

pub const CHECK: Check = Check {
    id: "init_loss",
    title: "Loss before training is that of guessing",
    run,
};

/// Sequences that are read.
const ROWS: usize = 4;
/// How far below guessing, and how far above the prediction, the loss of so few tokens may lie.
const BELOW: f64 = 0.1;
const ABOVE: f64 = 0.25;
/// The most that wide models may lie above guessing: 0.02² · 5,000 / 2.
const MAX_EXCESS: f64 = 1.0;

fn run(subject: &mut Subject<'_>) -> Result<Finding, EngineError> {
    let batch = subject.first_batch(ROWS);
    let out = subject.state.models.policy.score(&tokens(&batch))?;
    if batch.unit == Unit::Ranked {
        let (method, mut readings) = (&*subject.spec.method, Readings::default());
        let loss = evaluate(method, &batch, &out, batch.groups() as f64, &mut readings)?;
        return Ok(judge_scores(loss));
    }
    let loss = likelihood(&batch, &out)?;
    let shape = subject.state.models.policy.shape();
    if subject.spec.train.from.is_some() {
        return Ok(judge_trained(loss, shape.vocab_size));
    }
    let spread = subject.spec.model.init_std.powi(2) * shape.d_model as f64;
    Ok(judge(loss, shape.vocab_size, spread))
}

/// `spread` is the variance of the logits at the start: normalised features times weights of init_std. For normal logits
/// E[ln Σ exp] exceeds ln V by half of it.
fn judge(loss: f64, vocab_size: usize, spread: f64) -> Finding {
    let guessing = (vocab_size as f64).ln();
    let evidence = format!("loss {loss:.3}, ln({vocab_size}) = {guessing:.3}");
    if loss.is_finite() && loss < guessing - BELOW {
        return Finding::fail(
            evidence,
            "below guessing before any training: the targets leak into the inputs, or the weights are not fresh",
            "check the mask and the shift of the targets; name the weights in train.from if they are given",
        );
    }
    if loss.is_finite() && loss <= guessing + (0.5 * spread).min(MAX_EXCESS) + ABOVE {
        return Finding::pass(evidence);
    }
    Finding::fail(
        evidence,
        "worse than guessing: initial weights are too large",
        "model.init_std near 0.02 suits most models",
    )
}

/// Scores that know nothing yet are equal, and a pair costs ln 2; margins of the data and a centre cost a little more.
fn judge_scores(loss: f64) -> Finding {
    /// Far above what fresh scores of any base come to.
    const MOST: f64 = 5.0;
    let evidence = format!("loss {loss:.3} a pair, ln 2 = 0.693 where all scores are equal");
    match loss.is_finite() && loss < MOST {
        true => Finding::pass(evidence),
        false => Finding::fail(
            evidence,
            "the first scores are far apart before any training, or the margins of the data are large",
            "model.init_std near 0.02 suits most models; margins are in units of the score",
        ),
    }
}

/// Weights that come from another run must beat guessing, or they are not those of this text.
fn judge_trained(loss: f64, vocab_size: usize) -> Finding {
    let guessing = (vocab_size as f64).ln();
    let evidence = format!("loss {loss:.3} with the given weights, guessing is {guessing:.3}");
    if loss.is_finite() && loss < guessing {
        return Finding::pass(evidence);
    }
    Finding::warn(
        evidence,
        "the weights of train.from are no better than guessing on this text",
        "is it the right checkpoint, and the tokenizer that it was trained with?",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::finding::Status;

    #[test]
    fn guessing_passes_and_both_sides_fail() {
        assert_eq!(judge(4.19, 65, 0.05).status, Status::Pass);
        assert_eq!(judge(9.0, 65, 16.0).status, Status::Fail, "however wide");
        assert_eq!(judge(11.4, 50257, 1.0).status, Status::Pass);
        let high = judge(9.0, 65, 0.05);
        assert_eq!(high.status, Status::Fail);
        assert!(high.fix.contains("init_std"), "{}", high.fix);
        assert!(judge(3.0, 65, 0.05).cause.contains("leak"));
        assert_eq!(judge(f64::NAN, 65, 0.05).status, Status::Fail);
        assert_eq!(judge_scores(0.70).status, Status::Pass);
        assert_eq!(judge_scores(12.0).status, Status::Fail);
        assert_eq!(judge_scores(f64::NAN).status, Status::Fail);
        assert_eq!(judge_trained(1.9, 65).status, Status::Pass);
        assert_eq!(judge_trained(6.0, 65).status, Status::Warn);
    }
}
