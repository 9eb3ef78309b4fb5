//! The peak learning rate against optimizer, model size, and method.

use super::{Subject, one_digit, poor};
use crate::base::finding::Finding;
use crate::optim::{MuonScale, OptimizerConfig, RateScale};

const KAPLAN: &str = "Kaplan et al. 2020, arXiv 2001.08361, appendix D.6: 0.003239 − 0.0001395 ln N; GPT-3's table agrees";
/// Warn above this multiple of the usual learning rate.
const FAR: f64 = 6.0;
/// Warn below this fraction (1 / …) of it: half of the steps would be wasted.
const FAR_BELOW: f64 = 30.0;

/// Parameters from which rates of fine-tuning and reinforcement learning are those of the literature: smaller models take, and
/// need, far higher ones.
pub const LARGE_MODEL: f64 = 1e8;

/// AdamW's usual peak for a model of `n` parameters from random weights.
pub fn usual(n: f64) -> f64 {
    (0.003239 - 0.0001395 * n.max(1.0).ln()).max(1e-4)
}

pub fn review(subject: &Subject<'_>) -> Vec<Finding> {
    let found = match subject.spec.method.on_policy().is_some() {
        true => from_rewards(subject),
        false => optimizers_own(subject)
            .or_else(|| from_scratch(subject))
            .or_else(|| fine_tuning(subject)),
    };
    found.or_else(|| extreme(subject)).into_iter().collect()
}

fn set(subject: &Subject<'_>, lr: &str) -> String {
    format!("-s {}={lr}", subject.of_optimizer("lr"))
}

/// Lion and Muon have scales of their own.
fn optimizers_own(subject: &Subject<'_>) -> Option<Finding> {
    let lr = subject.spec.optimizer.lr();
    match &subject.spec.optimizer {
        OptimizerConfig::Lion(_) if subject.begins_at_random() && lr > usual(subject.n_params) => {
            let fix = set(subject, &one_digit(usual(subject.n_params) / 5.0));
            Some(poor(
                "optimizer",
                format!("lr {} is typical for AdamW, but every Lion update has magnitude lr", said(lr)),
                fix,
                "Chen et al. 2023, arXiv 2302.06675: a third to a tenth of AdamW's learning rate, weight decay larger by the same factor",
            ))
        }
        OptimizerConfig::Muon(muon)
            if muon.scale == MuonScale::Original && lr > 0.0 && lr < 2e-3 =>
        {
            Some(poor(
                "optimizer",
                format!(
                    "lr {} with Muon's original scale moves weights by less than 1e-5 a step",
                    said(lr)
                ),
                format!(
                    "{}, or -s optimizer.muon.scale=match_rms",
                    set(subject, "0.02")
                ),
                "Jordan et al. 2024 (Muon): about 0.02; Liu et al. 2025, arXiv 2502.16982: match_rms for AdamW's rates",
            ))
        }
        _ => None,
    }
}

fn from_scratch(subject: &Subject<'_>) -> Option<Finding> {
    let (lr, usual) = (subject.spec.optimizer.lr(), usual(subject.n_params));
    let like_adam = subject.spec.optimizer.rate_scale() == RateScale::AdamW;
    let learns_texts = subject.spec.method.is_likelihood() && !subject.learns_preferences();
    if !like_adam || !subject.begins_at_random() || !learns_texts {
        return None;
    }
    let size = crate::base::human::short(subject.n_params);
    let told = |word: &str| {
        poor(
            "optimizer",
            format!(
                "lr {} is {word} for {size} non-embedding parameters: about {} is typical",
                said(lr),
                one_digit(usual)
            ),
            set(subject, &one_digit(usual)),
            KAPLAN,
        )
    };
    match lr {
        lr if lr > FAR * usual => Some(told("high")),
        lr if lr > 0.0 && lr < usual / FAR_BELOW && subject.sizes.step_tokens.is_some() => {
            Some(told("low"))
        }
        _ => None,
    }
}

/// A rate as it is typed: `1e-9`, not nine digits behind a point.
fn said(lr: f64) -> String {
    crate::spec::shown(&lr.into())
}

/// Weights that are trained already.
fn fine_tuning(subject: &Subject<'_>) -> Option<Finding> {
    let lr = subject.spec.optimizer.lr();
    let adapter = subject.spec.adapter.is_some() && !subject.begins_at_random();
    let (most, good, what, source) = match subject.learns_preferences() {
        true if subject.tunes_all() => (
            2e-5,
            "1e-6",
            "preference training of all weights",
            "Rafailov et al. 2023, arXiv 2305.18290: 1e-6; above 5e-6 answers degrade into gibberish",
        ),
        true if adapter => (
            2e-4,
            "1e-5",
            "preference training with adapters",
            "ten times the rate of full fine-tuning: Schulman et al. 2025, LoRA without regret",
        ),
        false if subject.tunes_all() => (
            2e-4,
            "1e-5",
            "full fine-tuning",
            "TRL's default is 2e-5, the typical range 1e-6 to 5e-5; above it the model forgets",
        ),
        false if adapter => (
            5e-3,
            "2e-4",
            "adapters",
            "2e-4: Dettmers et al. 2023, arXiv 2305.14314; ten times the rate of full fine-tuning: Schulman et al. 2025",
        ),
        _ => return None,
    };
    if lr > most {
        let what = format!("lr {} is high for {what}: {good} is typical", said(lr));
        return Some(poor("optimizer", what, set(subject, good), source));
    }
    let preferences = subject.learns_preferences();
    // A third of what adapters usually take is no rate for them.
    let low = adapter && lr > 0.0 && lr < if preferences { 3e-6 } else { 3e-5 };
    let good = match subject.spec.model.is_reward_model() {
        true => "1e-4",
        false => good,
    };
    low.then(|| {
        // Below a tenth of what full fine-tuning usually takes, it was not copied from there.
        let least = if preferences { 1e-7 } else { 1e-6 };
        let word = match lr < least {
            true => "low for adapters, which",
            false => "that of full fine-tuning: adapters",
        };
        poor(
            "optimizer",
            format!("lr {} is {word} need about ten times the rate of full fine-tuning", said(lr)),
            set(subject, good),
            "Schulman et al. 2025, LoRA without regret; Dettmers et al. 2023, arXiv 2305.14314: 2e-4",
        )
    })
}

/// A policy that is trained on its own answers.
fn from_rewards(subject: &Subject<'_>) -> Option<Finding> {
    let scale = subject.spec.rollout.lr_scale;
    let lr = subject.spec.optimizer.lr() * scale;
    if subject.begins_at_random() || subject.n_params < LARGE_MODEL {
        return None;
    }
    let (most, good) = match subject.spec.adapter {
        Some(_) => (1e-4, 1e-5),
        None => (5e-6, 1e-6),
    };
    // A cold start may need the schedule's own rate.
    let fix = match scale == 1.0 {
        true => set(subject, &format!("{good:e}")),
        false => format!("-s rollout.lr_scale={}", one_digit(scale * good / lr)),
    };
    (lr > most).then(|| {
        poor(
            "optimizer",
            format!("lr {} is high for reinforcement learning of a trained model: 1e-6 is typical, 1e-5 with adapters", said(lr)),
            fix,
            "TRL's GRPO and DAPO (arXiv 2503.14476) train at 1e-6",
        )
    })
}

/// High for any transformer.
fn extreme(subject: &Subject<'_>) -> Option<Finding> {
    let lr = subject.spec.optimizer.lr();
    let other = matches!(
        subject.spec.optimizer.rate_scale(),
        RateScale::High | RateScale::Matrices
    );
    (lr > 5e-3 && !other).then(|| {
        poor(
            "optimizer",
            format!("lr {} is high for a transformer: 3e-4 to 1e-3 is typical", said(lr)),
            set(subject, &one_digit(usual(subject.n_params))),
            KAPLAN,
        )
    })
}
