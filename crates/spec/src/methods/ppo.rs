//! Proximal policy optimization: a critic (a separate model, or a value head on the policy's trunk) predicts the return at every
//! token, and the policy gradient is weighted by the advantage. Here are the settings and the two losses; `ppo/gae.rs` turns
//! rewards and values into advantages.
//!
//! r_t = −β · kl_t, the answer's score added at its last token; A by GAE(γ, λ), R_t = A_t + V_t;
//! L = mean max(−A ρ, −A clip(ρ, 1 − ε, 1 + ε)) − c_e · H and, of the critic, c_v · ½ · mean max((V − R)², (V_clipped − R)²).

mod gae;

pub use gae::{Answered, GaeOutput};

use super::policy::{self, Kl, OLD_LOGP, OnPolicy, READ_KL, READINGS};
use super::{Batch, Criterion, Knob, LossMask, Method, Needs, ReferenceChoice, ScoredBatch, knob};
use crate::base::registry::Entry;
use crate::data::Unit;
use crate::metrics::{Direction, Metric, Readings, Repeatable, id, metric};
use crate::nn::HeadKind;
use candle_core::{Result, Tensor};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

pub const ENTRY: Entry = Entry {
    id: "ppo",
    title: "Proximal policy optimization (PPO)",
    summary: "Learn from the model's own completions with a critic, a second model that predicts the return at every token.",
    source: "Schulman et al. 2017, arXiv 1707.06347; for language models: Ziegler et al. 2019, arXiv 1909.08593; GAE: arXiv 1506.02438",
};

/// What says the values.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum CriticKind {
    /// A second model with an optimizer of its own.
    #[default]
    Separate,
    /// A value head on the policy's trunk: one backward, one optimizer, and no second model in memory.
    Shared,
}

/// One value for each token: how much better it went than the critic expected.
pub const TOKEN_ADVANTAGE: &str = "token_advantage";
/// One value for each token: what the critic is to say of it.
pub const RETURNS: &str = "returns";
/// One value for each token: what the critic said when the rollout began to be used.
pub const OLD_VALUES: &str = "old_values";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// KL coefficient β to the reference model, as a per-token reward; at 0 no reference is needed. Initial value for
    /// `kl_target`.
    #[schemars(range(min = 0.0, max = 100.0))]
    pub beta: f64,
    /// Estimator of the KL to the reference.
    pub kl: Kl,
    /// Target KL to the reference in nats per completion; beta adapts to it (Ziegler et al. 2019: 6). Default: beta
    /// is fixed.
    #[schemars(range(min = 0.0, max = 10000.0))]
    pub kl_target: Option<f64>,
    /// Horizon of `kl_target` in completions: a rollout of n multiplies beta by 1 + clip(KL / target − 1, ±0.2) · n / horizon.
    #[schemars(range(min = 1.0, max = 1.0e9))]
    pub kl_horizon: f64,
    /// Where the reference model's log-probabilities come from, if beta is above 0.
    pub reference: ReferenceChoice,
    /// Clip range ε of the ratio to the sampling policy.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub clip: f64,
    /// Value clip range around the old values.
    #[schemars(range(min = 0.0, max = 1000.0))]
    pub value_clip: f64,
    /// Weight of the critic's loss.
    #[schemars(range(min = 0.0, max = 1000.0))]
    pub value_coef: f64,
    /// Weight of the entropy bonus; 0 is off.
    #[schemars(range(min = 0.0, max = 100.0))]
    pub entropy_coef: f64,
    /// Discount factor γ per token.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub gamma: f64,
    /// GAE λ: 0 is one-step TD, 1 is Monte Carlo returns.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub lambda: f64,
    /// Whitens the advantages of a rollout to mean 0 and standard deviation 1.
    pub whiten_advantages: bool,
    /// Scales token rewards to standard deviation 1, keeping their mean.
    pub whiten_rewards: bool,
    /// Subtracted from the score of a completion without EOS.
    #[schemars(range(min = 0.0, max = 1000.0))]
    pub missing_eos_penalty: f64,
    /// The critic: a separate model, or a value head on the policy's trunk, which both losses then train.
    pub critic: CriticKind,
    /// Initializes a separate critic from this reward model. Default: from the policy at the first rollout, with a new value
    /// head.
    pub critic_from: Option<PathBuf>,
    /// A separate critic's learning rate relative to the policy's; 5 to 10 is typical. A shared one uses the policy's.
    #[schemars(range(min = 0.0, max = 1000.0))]
    pub critic_lr_scale: f64,
    /// Warm-up steps that train only a separate critic, before the policy.
    #[schemars(range(min = 0, max = 1000000000))]
    pub critic_warmup_steps: u64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            beta: 0.05,
            kl: Kl::K1,
            kl_target: None,
            kl_horizon: 10_000.0,
            reference: ReferenceChoice::Auto,
            clip: 0.2,
            value_clip: 0.2,
            value_coef: 0.1,
            entropy_coef: 0.0,
            gamma: 1.0,
            lambda: 0.95,
            whiten_advantages: true,
            whiten_rewards: false,
            missing_eos_penalty: 0.0,
            critic: CriticKind::Separate,
            critic_from: None,
            critic_lr_scale: 5.0,
            critic_warmup_steps: 0,
        }
    }
}

/// What is left of β after one rollout, at least.
const LARGEST_FALL: f64 = 0.1;

impl Config {
    /// β after a rollout of `answers` at so many nats per answer from the reference: β (1 + e · n / horizon), with
    /// e = kl/target − 1 within ±0.2 (Ziegler et al. 2019). More answers than five horizons would turn its sign: it falls to
    /// a tenth at most.
    pub fn next_beta(&self, beta: f64, kl: f64, answers: usize) -> f64 {
        match self.kl_target.filter(|target| *target > 0.0) {
            None => beta,
            Some(target) => {
                let error = (kl / target - 1.0).clamp(-0.2, 0.2);
                beta * (1.0 + error * answers as f64 / self.kl_horizon).max(LARGEST_FALL)
            }
        }
    }

    /// Whether values come from the policy's own trunk.
    pub fn shares_trunk(&self) -> bool {
        self.critic == CriticKind::Shared
    }

    /// What the critic learns by: a separate one's "log-probabilities" are values.
    pub fn value_loss(&self) -> ValueLoss {
        ValueLoss {
            clip: self.value_clip,
            coef: self.value_coef,
        }
    }
}

const POLICY_LOSS: &str = "loss/policy_avg";
const ENTROPY: &str = "policy/entropy_avg";
const RATIO: &str = "val/ratio";
const VALUE_CLIPPED: &str = "val/clipfrac_avg";
/// Of a rollout.
pub const OBJECTIVE_KL: &str = "objective/kl";
pub const OBJECTIVE_ENTROPY: &str = "objective/entropy";
pub const NON_SCORE: &str = "objective/non_score_reward";
pub const RLHF_REWARD: &str = "objective/rlhf_reward";
pub const SCORES: &str = "objective/scores";
pub const KL_COEF: &str = "objective/kl_coef";
pub const ENDED: &str = "val/num_eos_tokens";
/// The engine takes it.
pub const CRITIC_NORM: &str = "critic/grad_norm";

use Direction::{Higher, Lower, Neutral};
use Repeatable::Yes;

#[rustfmt::skip]
const OWN: &[Metric] = &[
    READINGS[0],
    metric(POLICY_LOSS, "Policy loss, clipped", "", Neutral, Yes, "mean over completion tokens of max(-A rho, -A clip(rho)), where weights have changed since sampling (TRL)"),
    metric(id::VALUE_LOSS, "Value loss", "", Lower, Yes, "half the mean squared error of the critic, the larger of clipped and unclipped (TRL)"),
    metric(id::APPROX_KL, "Policy change since sampling", "nats", Neutral, Yes, "half the mean squared log-ratio to the sampling policy (TRL)").label("policy change"),
    metric(id::CLIP_FRACTION, "Clipped tokens", "share", Neutral, Yes, "share of tokens whose clipped loss is the larger one (TRL)"),
    metric(ENTROPY, "Entropy of completions", "nats", Neutral, Yes, "mean entropy of the policy over answer tokens (TRL)").label("completion entropy"),
    metric(RATIO, "Ratio to the sampling policy", "", Neutral, Yes, "mean over answer tokens (TRL)").label("policy ratio"),
    metric(VALUE_CLIPPED, "Clipped values", "share", Neutral, Yes, "share of tokens whose clipped value loss is the larger one (TRL)"),
    metric(OBJECTIVE_KL, "KL to the reference", "nats", Neutral, Yes, "log pi - log pi_ref summed over a completion, mean over completions (TRL)"),
    metric(OBJECTIVE_ENTROPY, "Negative log-probability of completions", "nats", Neutral, Yes, "-log pi summed over a completion, mean over completions (TRL)").label("negative logp"),
    metric(NON_SCORE, "KL reward", "", Neutral, Yes, "-beta times the KL summed over a completion, mean over completions (TRL)"),
    metric(RLHF_REWARD, "Reward including KL", "", Higher, Yes, "score minus the KL penalty, mean over completions (TRL)"),
    metric(SCORES, "Score", "", Higher, Yes, "mean over completions of the weighted sum of rewards, less the missing-EOS penalty (TRL)"),
    metric(KL_COEF, "KL coefficient", "", Neutral, Yes, "beta of the rollout; kl_target moves it (Ziegler et al. 2019)"),
    metric(ENDED, "Terminated completions", "", Neutral, Yes, "completions of the rollout that ended with EOS (TRL)").label("terminated"),
    metric(id::EXPLAINED, "Explained variance of returns", "", Higher, Yes, "1 - Var(R - V) / Var(R) over answer tokens: 1 is a perfect critic, 0 no better than the mean").label("explained variance"),
    metric(CRITIC_NORM, "Critic gradient norm", "", Neutral, Yes, "global L2 norm of the critic's gradient before clipping"),
    // The last one: without a reference nobody reads it.
    READ_KL,
];

impl OnPolicy for Config {
    /// Of whole answers, to be looked at alone: tokens have their own.
    fn advantages(&self, rewards: &[f64], _group_size: usize) -> Vec<f64> {
        let mean = rewards.iter().sum::<f64>() / rewards.len().max(1) as f64;
        rewards.iter().map(|r| r - mean).collect()
    }

    fn least_group(&self) -> usize {
        1
    }

    fn critic(&self) -> Option<&Config> {
        Some(self)
    }

    /// Values of the policy's own head, and an entropy, have gradients besides.
    fn fresh_is_linear(&self) -> bool {
        !self.shares_trunk() && self.entropy_coef <= 0.0
    }
}

impl Method for Config {
    fn knobs(&self) -> &'static [Knob] {
        const OWN: &[Knob] = &[knob(
            "method.*.beta",
            "0.01 to 0.1",
            "the price of leaving the reference model: lower exploits the reward model sooner",
        )];
        OWN
    }

    fn needs(&self) -> Needs {
        Needs {
            unit: Unit::Prompt,
            mask: LossMask::CompletionOnly,
            reference: (self.beta > 0.0).then_some(self.reference),
            value_head: self.shares_trunk(),
            ..Needs::default()
        }
    }

    fn coefficients(&self, batch: &Batch, c: &mut [f32]) -> bool {
        let values = self.shares_trunk() && batch.column(RETURNS).is_some();
        if values || self.entropy_coef > 0.0 || batch.column(OLD_LOGP).is_some() {
            return false;
        }
        let advantages = batch.column(TOKEN_ADVANTAGE).unwrap_or_default();
        c.iter_mut().zip(advantages).for_each(|(c, a)| *c *= a);
        true
    }

    fn loss(&self, scored: &ScoredBatch, readings: &mut Readings) -> Result<Tensor> {
        let mask = scored.mask()?;
        let advantages = scored.token_column(TOKEN_ADVANTAGE)?;
        let log_ratio = policy::log_ratio(scored)?;
        let ratio = log_ratio.exp()?;
        let free = (&ratio * &advantages)?.neg()?;
        let bound = (ratio.clamp(1.0 - self.clip, 1.0 + self.clip)? * &advantages)?.neg()?;
        let mut losses = free.maximum(&bound)?;
        let clipped = bound.gt(&free)?.to_dtype(losses.dtype())?;
        let mut read = |id, values: &Tensor| policy::read_tokens(readings, id, values, &mask);
        read(POLICY_LOSS, &losses)?;
        read(id::CLIP_FRACTION, &clipped)?;
        read(id::APPROX_KL, &(log_ratio.sqr()? * 0.5)?)?;
        read(RATIO, &ratio)?;
        read(ENTROPY, &scored.entropy)?;
        if self.entropy_coef > 0.0 {
            losses = (losses - (&scored.entropy * self.entropy_coef)?)?;
        }
        let policy = ((losses * mask)?.sum_all()? / scored.normalizer)?;
        match &scored.value {
            Some(values) if scored.batch.column(RETURNS).is_some() => {
                policy + self.value_loss().of(scored, values, readings)?
            }
            _ => Ok(policy),
        }
    }

    fn readings(&self) -> &'static [Metric] {
        match self.beta > 0.0 {
            true => OWN,
            false => &OWN[..OWN.len() - 1],
        }
    }

    fn best(&self) -> Criterion {
        Criterion {
            metric: id::PASS_AT_1,
            direction: Direction::Higher,
        }
    }

    fn on_policy(&self) -> Option<&dyn OnPolicy> {
        Some(self)
    }
}

/// The critic's loss, a mean over the answers' tokens: c_v · ½ · max((V − R)², (clip(V, V_old ± ε_v) − R)²).
#[derive(Debug, Clone, Copy)]
pub struct ValueLoss {
    clip: f64,
    coef: f64,
}

impl ValueLoss {
    /// The loss of `values` (B, T).
    fn of(&self, scored: &ScoredBatch, values: &Tensor, readings: &mut Readings) -> Result<Tensor> {
        let mask = scored.mask()?;
        let returns = scored.token_column(RETURNS)?;
        let old = scored.token_column(OLD_VALUES)?;
        let moved = (values - &old)?.clamp(-self.clip, self.clip)?;
        let free = (values - &returns)?.sqr()?;
        let bound = ((old + moved)? - returns)?.sqr()?;
        let losses = (free.maximum(&bound)? * 0.5)?;
        let clipped = bound.gt(&free)?.to_dtype(losses.dtype())?;
        policy::read_tokens(readings, id::VALUE_LOSS, &losses, &mask)?;
        policy::read_tokens(readings, VALUE_CLIPPED, &clipped, &mask)?;
        (losses * mask)?.sum_all()? * (self.coef / scored.normalizer)
    }
}

impl Method for ValueLoss {
    fn needs(&self) -> Needs {
        Needs {
            unit: Unit::Prompt,
            head: HeadKind::Score,
            ..Needs::default()
        }
    }

    fn loss(&self, scored: &ScoredBatch, readings: &mut Readings) -> Result<Tensor> {
        self.of(scored, &scored.logp, readings)
    }
}
