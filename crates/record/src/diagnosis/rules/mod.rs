//! The list of rules, in the order in which they are shown. A rule is one file and one word here.

mod answer_length;
mod attention_collapse;
mod big_steps;
mod blocks;
mod clip_tight;
mod constant_reward;
mod critic;
mod data_wait;
mod dead_layer;
mod displacement;
mod diverged;
mod empty_answers;
mod engine;
mod entropy_collapse;
mod events;
mod forgetting;
mod gradient_spike;
mod idle_gpu;
mod idle_layer;
mod initial_loss;
mod kl_runaway;
mod leak;
mod lr_too_high;
mod lr_too_low;
mod memory_growth;
mod noise_limited;
mod not_learning;
mod odd_batches;
mod overfitting;
mod preference_start;
mod preflight;
mod repeated_answers;
mod rescued;
mod reward_hacking;
mod same_data;
mod same_rewards;
mod slower;
mod sorted_data;
mod sudden_drop;
mod swapped_pairs;
mod task_drop;
mod train_above_val;
mod train_loss;
mod unread_answers;
mod warnings;
mod weight_decay;

use super::Rule;
pub(super) use train_loss::direction;

/// Ids of the metrics that rules read, as they stand on the wire.
pub(super) mod metric {
    pub const LOSS: &str = "train/loss";
    pub const VAL_LOSS: &str = "val/loss";
    /// Begins the ids of the losses on sets of eval.extra.
    pub const EXTRA: &str = "extra/";
    /// Begin the ids of the scores of eval.tasks, and of their standard errors.
    pub const TASK: &str = "eval/";
    pub const TASK_STDERR: &str = "eval_stderr/";
    pub const GRAD_NORM: &str = "grad_norm";
    pub const UPDATE_RATIO: &str = "update_ratio";
    pub const CLIPPED: &str = "clipped";
    pub const DATA_WAIT: &str = "data_wait";
    pub const ENTROPY: &str = "entropy";
    pub const PASS: &str = "eval/pass@1";
    pub const REWARD: &str = "reward";
    pub const REWARD_SPREAD: &str = "reward_std";
    pub const SAME_REWARDS: &str = "frac_reward_zero_std";
    pub const ANSWER_LENGTH: &str = "completions/mean_length";
    pub const CUT_ANSWERS: &str = "completions/clipped_ratio";
    pub const REPETITION: &str = "completions/repetition";
    pub const UNREAD: &str = "completions/unread_ratio";
    pub const KL: &str = "kl";
    pub const PPO_CLIPPED: &str = "policy/clipfrac_avg";
    pub const APPROX_KL: &str = "policy/approxkl_avg";
    pub const EXPLAINED: &str = "val/var_explained";
    pub const VALUE_LOSS: &str = "loss/value_avg";
    pub const DISPERSION: &str = "loss_dispersion";
    pub const CONSISTENCY: &str = "grad_consistency";
    pub const NOISE_SCALE: &str = "noise_scale";
    pub const DEAD_UNITS: &str = "dead_units/layer";
    pub const GRAD_BY_LAYER: &str = "grad_norm/layer";
    pub const UPDATE_BY_LAYER: &str = "update_ratio/layer";
    pub const ATTENTION_ENTROPY: &str = "attn_entropy/layer";
    pub const WEIGHT_STD: &str = "weight_std/layer";
    pub const ACT_RMS: &str = "act_rms/layer";
    pub const MARGINS: &str = "rewards/margins";
    pub const CHOSEN: &str = "rewards/chosen";
    pub const REJECTED: &str = "rewards/rejected";
    pub const ACCURACIES: &str = "rewards/accuracies";
    pub const VAL_ACCURACIES: &str = "val/rewards/accuracies";
    pub const SPEED: &str = "tok_per_sec";
    pub const STEP_MS: &str = "step_ms";
    pub const RSS: &str = "host/rss_bytes";
    pub const GPU_UTIL: &str = "gpu/0/util";
    /// Of the run's own processes.
    pub const GPU_MEMORY: &str = "gpu/0/own_memory_bytes";
    pub const ATTENTION_LARGEST: &str = "attn_logit_max/layer";
}

/// All of them: what a watch beside an engine keeps.
pub(super) const READ: &[&str] = &[
    metric::LOSS,
    metric::VAL_LOSS,
    metric::GRAD_NORM,
    metric::UPDATE_RATIO,
    metric::CLIPPED,
    metric::DATA_WAIT,
    metric::ENTROPY,
    metric::PASS,
    metric::REWARD,
    metric::REWARD_SPREAD,
    metric::SAME_REWARDS,
    metric::ANSWER_LENGTH,
    metric::CUT_ANSWERS,
    metric::REPETITION,
    metric::UNREAD,
    metric::KL,
    metric::PPO_CLIPPED,
    metric::APPROX_KL,
    metric::EXPLAINED,
    metric::VALUE_LOSS,
    metric::DISPERSION,
    metric::CONSISTENCY,
    metric::NOISE_SCALE,
    metric::DEAD_UNITS,
    metric::GRAD_BY_LAYER,
    metric::UPDATE_BY_LAYER,
    metric::ATTENTION_ENTROPY,
    metric::ATTENTION_LARGEST,
    metric::WEIGHT_STD,
    metric::ACT_RMS,
    metric::MARGINS,
    metric::CHOSEN,
    metric::REJECTED,
    metric::ACCURACIES,
    metric::VAL_ACCURACIES,
    metric::SPEED,
    metric::STEP_MS,
    metric::RSS,
    metric::GPU_UTIL,
    metric::GPU_MEMORY,
];

macro_rules! rules {
    ($($name:ident)+) => { &[$($name::RULE,)+] };
}

/// Every rule.
pub const RULES: &[Rule] = rules! {
    engine preflight diverged not_learning train_loss initial_loss sudden_drop overfitting forgetting task_drop train_above_val lr_too_high
    lr_too_low gradient_spike odd_batches weight_decay clip_tight leak same_data sorted_data dead_layer idle_layer
    attention_collapse noise_limited preference_start displacement swapped_pairs empty_answers constant_reward reward_hacking
    same_rewards entropy_collapse answer_length repeated_answers kl_runaway unread_answers big_steps critic rescued data_wait slower idle_gpu memory_growth warnings events
};

/// Whether another rule has already said that the run is lost, and `train_loss` and its like have nothing to add.
fn lost(view: &super::View<'_>) -> bool {
    let said = [diverged::RULE, not_learning::RULE];
    said.iter().any(|rule| rule.ask(view).is_some())
}
