//! Before the first step the model knows nothing: its loss is that of a uniform prediction, ln V. A higher one means that the
//! initial weights are too large or logits are wrong; a lower one that it sees its targets.

use super::{Check, Finding, Subject};
use crate::data::{Batch, Unit};
use crate::diagnosis::scales::{Excess, of_logits};
use crate::engine::EngineError;
use crate::methods::{evaluate, likelihood, tokens};
use crate::metrics::Readings;
use std::collections::HashMap;

pub const CHECK: Check = Check {
    id: "init_loss",
    title: "Loss before training is as expected",
    computes: true,
    run,
};

/// Sequences that are read.
const ROWS: usize = 4;
/// How far below guessing, and how far above the prediction, the loss may lie where its targets are many different tokens.
const BELOW: f64 = 0.1;
const ABOVE: f64 = 0.25;
/// The most that wide models may lie above guessing: 0.02² · 5,000 / 2.
const MAX_EXCESS: f64 = 1.0;
/// Standard deviations of the mean logit of the targets that chance may add to either side.
const DEVIATIONS: f64 = 4.0;
/// The most that chance explains, nats: a loss that has halved saw its targets.
const MAX_CHANCE: f64 = 1.0;

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
        let only_answers = batch.mask.iter().any(|counts| !counts);
        return Ok(judge_trained(loss, shape.vocab_size, only_answers));
    }
    let model = &subject.spec.model;
    let excess = excess(
        model.init_std,
        shape.d_model,
        shape.vocab_size,
        model.tie_embeddings,
    );
    let chance = chance(model.init_std, shape.d_model, different_targets(&batch));
    let too_large = serde_json::to_value(model)
        .ok()
        .and_then(|model| of_logits(&model));
    Ok(judge(loss, shape.vocab_size, excess, chance, too_large))
}

/// How far above ln V a sound model of fresh weights may begin, in nats.
///
/// Logits are normalized features times weights of init_std: their variance is init_std² · d_model, and for normal logits
/// E[ln Σ exp] exceeds ln V by half of it. Tied embeddings give each token a bonus for itself on top, of at most
/// init_std · d_model (a feature that is nothing but the token's own embedding, at length √d_model): one of V terms of the
/// sum grows by its exponential, which small vocabularies feel.
fn excess(init_std: f64, d_model: usize, vocab_size: usize, tied: bool) -> f64 {
    let width = d_model as f64;
    let spread = 0.5 * init_std.powi(2) * width;
    let itself = match tied {
        true => ((init_std * width).exp_m1() / vocab_size as f64).ln_1p(),
        false => 0.0,
    };
    (spread + itself).min(MAX_EXCESS)
}

/// How many equally frequent tokens would vary as much as the supervised targets do: (Σ n)² / Σ n².
fn different_targets(batch: &Batch) -> f64 {
    let mut counts: HashMap<u32, f64> = HashMap::new();
    for (i, target) in batch.targets.iter().enumerate() {
        if batch.mask.get(i).copied().unwrap_or(true) {
            *counts.entry(*target).or_default() += 1.0;
        }
    }
    let (sum, squares) = counts
        .values()
        .fold((0.0, 0.0), |(sum, squares), n| (sum + n, squares + n * n));
    if squares > 0.0 {
        sum * sum / squares
    } else {
        1.0
    }
}

/// How far the loss may lie to either side by chance, in nats: the fresh logit of one token deviates by init_std · √d_model,
/// nearly alike at all places, and the loss takes its mean over `targets` different tokens. Answers of two words have few.
fn chance(init_std: f64, d_model: usize, targets: f64) -> f64 {
    let one = init_std * (d_model as f64).sqrt();
    (DEVIATIONS * one / targets.max(1.0).sqrt()).min(MAX_CHANCE)
}

/// `excess`: nats above guessing that the fresh weights explain; `chance`: nats to either side; `too_large`: the setting of the model that
/// makes logits too large, if one does.
fn judge(
    loss: f64,
    vocab_size: usize,
    excess: f64,
    chance: f64,
    too_large: Option<Excess>,
) -> Finding {
    let guessing = (vocab_size as f64).ln();
    let evidence = format!("loss {loss:.3}, ln({vocab_size}) = {guessing:.3}");
    if loss.is_finite() && loss < guessing - BELOW - chance {
        return Finding::fail(
            evidence,
            "below a uniform guess before training: targets leak into the inputs, or the weights are not random",
            "check the mask and the shift of the targets; if the weights are pretrained, name them in train.from",
        );
    }
    if loss.is_finite() && loss <= guessing + excess + ABOVE + chance {
        return Finding::pass(evidence);
    }
    match too_large {
        Some(set) => Finding::fail(
            format!("{evidence}; {}", set.said),
            "worse than a uniform guess: a setting of the model makes the first logits too large",
            set.fix(),
        ),
        None => Finding::fail(
            evidence,
            "worse than a uniform guess: the first logits are too large, or not finite",
            "check the scales and norms of the model against its preset; `llmtui plan` lists its parts",
        ),
    }
}

/// Scores that know nothing yet are equal, and a pair costs ln 2; margins of the data and a centre cost a little more.
fn judge_scores(loss: f64) -> Finding {
    /// Far above what fresh scores of any base come to.
    const MOST: f64 = 5.0;
    let evidence = format!("loss {loss:.3} per pair; equal scores give ln 2 = 0.693");
    match loss.is_finite() && loss < MOST {
        true => Finding::pass(evidence),
        false => Finding::fail(
            evidence,
            "the first scores are far apart before any training, or the margins of the data are large",
            "model.init_std near 0.02 suits most models; margins are in units of the score",
        ),
    }
}

/// Weights that come from another run must beat guessing, or they are not those of this text. `only_answers`: prompts do not count.
fn judge_trained(loss: f64, vocab_size: usize, only_answers: bool) -> Finding {
    let guessing = (vocab_size as f64).ln();
    let evidence =
        format!("loss {loss:.3} with the given weights, a uniform guess is {guessing:.3}");
    if loss.is_finite() && loss < guessing {
        return Finding::pass(evidence);
    }
    if only_answers {
        return Finding::warn(
            evidence,
            "the weights of train.from are no better than a uniform guess on these answers: a base model that has not seen the markers \
             of the chat template yet begins so, and so do weights of another tokenizer",
            "nothing for a base model: the first steps teach it the markers; else check that checkpoint and tokenizer belong together",
        );
    }
    Finding::warn(
        evidence,
        "the weights of train.from are no better than a uniform guess on this text",
        "check that checkpoint and tokenizer belong together",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::finding::Status;

    #[test]
    fn guessing_passes_and_both_sides_fail() {
        let small = excess(0.02, 128, 65, false);
        assert!((small - 0.0256).abs() < 1e-12);
        assert_eq!(judge(4.19, 65, small, 0.0, None).status, Status::Pass);
        let wide = excess(0.2, 800, 65, true);
        assert_eq!(
            judge(9.0, 65, wide, 0.0, None).status,
            Status::Fail,
            "however wide"
        );
        let large = excess(0.02, 5000, 50257, false);
        assert_eq!(judge(11.4, 50257, large, 0.0, None).status, Status::Pass);
        // Of 13 characters, each of which foresees itself at first: ln(1 + (e^2.56 − 1) / 13) = 0.651 more.
        let tied = excess(0.02, 128, 13, true);
        assert!((tied - small - 0.651).abs() < 1e-3, "{tied}");
        assert_eq!(judge(2.855, 13, tied, 0.0, None).status, Status::Pass);
        assert_eq!(judge(2.855, 13, small, 0.0, None).status, Status::Fail);
        let high = judge(9.0, 65, small, 0.0, None);
        assert_eq!(high.status, Status::Fail);
        // Initial weights of 0.02 were blamed for logits that were multiplied.
        assert!(!high.fix.contains("init_std"), "{}", high.fix);
        for (key, value, fix) in [
            ("init_std", 1.0, "-s model.init_std=0.02"),
            ("logit_scale", 1e4, "-s model.logit_scale=1"),
        ] {
            let mut model = serde_json::json!({"d_model": 64, "n_head": 4, "init_std": 0.02});
            model[key] = value.into();
            let found = judge(9.0, 65, small, 0.0, of_logits(&model));
            assert_eq!((found.status, found.fix.as_str()), (Status::Fail, fix));
        }
        assert!(judge(3.0, 65, small, 0.0, None).cause.contains("leak"));
        assert_eq!(judge(f64::NAN, 65, small, 0.0, None).status, Status::Fail);
        assert_eq!(judge_scores(0.70).status, Status::Pass);
        assert_eq!(judge_scores(12.0).status, Status::Fail);
        assert_eq!(judge_scores(f64::NAN).status, Status::Fail);
        assert_eq!(judge_trained(1.9, 65, false).status, Status::Pass);
        assert_eq!(judge_trained(6.0, 65, false).status, Status::Warn);
        // The first thing that the built-in pipeline said of its own chat stage was that its checkpoint was the wrong one.
        let answers = judge_trained(9.9, 384, true);
        assert!(
            answers.cause.contains("has not seen the markers"),
            "{answers:?}"
        );
        assert!(
            answers.fix.starts_with("nothing for a base model"),
            "{answers:?}"
        );
    }

    #[test]
    fn few_different_targets_lie_off_by_chance() {
        let mut batch = Batch {
            targets: vec![7, 7, 7, 7, 3, 3, 3, 3, 9],
            mask: vec![true; 8],
            ..Batch::default()
        };
        batch.mask.push(false);
        assert_eq!(different_targets(&batch), 2.0);
        assert_eq!(different_targets(&Batch::default()), 1.0);
        // Answers of two words to 600 questions, over ten seeds: 5.93 ± 0.08 where ln 370 = 5.914.
        let words = chance(0.02, 128, 10.0);
        assert!((words - 0.286).abs() < 1e-3, "{words}");
        let small = excess(0.02, 128, 370, false);
        assert_eq!(judge(5.774, 370, small, words, None).status, Status::Pass);
        assert_eq!(judge(5.3, 370, small, words, None).status, Status::Fail);
        // Whatever the width, a loss far below guessing saw its targets.
        assert_eq!(chance(0.2, 4096, 1.0), MAX_CHANCE);
    }
}
