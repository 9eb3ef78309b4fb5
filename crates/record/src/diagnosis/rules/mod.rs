//! The list of rules, in display order. A rule is one file and one word here.

/// Standard deviations above the usual loss from which on a loss is a spike (OLMo 2, arXiv 2501.00656).
const SPIKE_SIGMAS: f64 = 7.0;

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
mod expert_collapse;
mod forgetting;
mod gradient_spike;
mod idle_gpu;
mod idle_layer;
mod initial_loss;
mod kl_runaway;
mod leak;
mod length_bias;
mod looping_samples;
mod loss_curve;
mod low_mfu;
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
mod sampler_mismatch;
mod slow_rank;
mod slower;
mod sorted_data;
mod sudden_drop;
mod swapped_pairs;
mod task_drop;
mod token_frequencies;
mod train_above_val;
mod train_loss;
mod unread_answers;
mod warnings;
mod weight_decay;

use super::{Rule, metric};
use crate::base::finding::{Finding, Status};
pub(super) use not_learning::is_worse;
pub(super) use train_loss::direction;

macro_rules! rules {
    ($($name:ident)+) => { &[$($name::RULE,)+] };
}

/// Every rule.
pub const RULES: &[Rule] = rules! {
    engine preflight diverged not_learning token_frequencies train_loss initial_loss sudden_drop overfitting forgetting task_drop train_above_val lr_too_high
    lr_too_low gradient_spike odd_batches weight_decay clip_tight leak loss_curve same_data sorted_data dead_layer idle_layer
    attention_collapse expert_collapse noise_limited preference_start displacement swapped_pairs length_bias empty_answers constant_reward reward_hacking
    same_rewards entropy_collapse answer_length repeated_answers looping_samples kl_runaway unread_answers big_steps sampler_mismatch critic rescued data_wait slower slow_rank idle_gpu low_mfu memory_growth warnings events
};

/// Rules that only repeat other events of a log: beside an engine they are left to viewers.
const REPEATERS: &[Rule] = &[engine::RULE, preflight::RULE, warnings::RULE, events::RULE];

/// Whether a rule, by its id, only repeats other events.
pub(super) fn is_repeater(id: &str) -> bool {
    REPEATERS.iter().any(|rule| rule.entry.id == id)
}

/// Metrics that rules read if available, in addition to those they need.
const READ_IF_THERE: &[&str] = &[
    metric::ACT_RMS,
    metric::EPOCHS,
    metric::EXPERT_LOAD,
    metric::LOGPS_CHOSEN,
    metric::LR,
    metric::POLICY_LOSS,
    metric::UNFINISHED_THOUGHTS,
    metric::machine::STARTED,
];

/// Whether a rule reads this metric: a watch next to an engine keeps only these.
pub(super) fn is_read(id: &str) -> bool {
    READ_IF_THERE.contains(&id) || RULES.iter().any(|rule| rule.needs.contains(&id))
}

/// Whether another rule has already reported that the run is lost, so that `train_loss` and the like have nothing to add.
fn lost(view: &super::View<'_>) -> bool {
    let said = [diverged::RULE, not_learning::RULE];
    // A loss above its start is a warning, and says nothing of why.
    let fails = |finding: Finding| finding.status == Status::Fail;
    said.iter()
        .any(|rule| rule.evaluate(view).is_some_and(fails))
}
