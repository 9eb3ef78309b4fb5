//! How a run's own answers come about, for methods that learn from them. What they are worth is the rewards' matter.

use serde::{Deserialize, Serialize};

/// Answers that the model writes and learns from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RolloutConfig {
    /// Answers to each prompt. An optimizer step learns from micro_batch_size × grad_accum_steps answers; those of
    /// `steps` of them, divided by this, are the number of prompts. Methods without a critic need 2.
    #[schemars(range(min = 1, max = 65536))]
    pub group_size: usize,
    /// Tokens of an answer at most.
    #[schemars(range(min = 1, max = 1000000))]
    pub max_new_tokens: usize,
    /// Softmax temperature of the draw. The loss is that of the model's own distribution, so 1 is exact.
    #[schemars(range(min = 0.01, max = 100))]
    pub temperature: f32,
    /// Draw from the k most likely tokens; 0 draws from all. The loss does not know of the cut.
    pub top_k: usize,
    /// Draw from the smallest set of tokens whose probability reaches this; 1 draws from all. The loss does not know of the cut.
    #[schemars(range(min = 0.01, max = 1))]
    pub top_p: f32,
    /// An answer ends with any of these, besides the token that ends texts. Default: the end of a line where the tokenizer
    /// has no such token.
    pub stop: Vec<String>,
    /// Answers that were cut off at max_new_tokens teach nothing.
    pub mask_truncated: bool,
    /// How often the answers of a rollout are learned from. From the second time on the weights are no longer those that
    /// answered: the ratio to them counts, and its clipping.
    #[schemars(range(min = 1, max = 1000))]
    pub epochs: usize,
    /// Optimizer steps that go once through the answers of a rollout (TRL's steps_per_generation).
    #[schemars(range(min = 1, max = 1000))]
    pub steps: usize,
    /// Prompts whose answers are all worth the same are replaced by others, at most so many times; 0 keeps them (DAPO's
    /// dynamic sampling).
    #[schemars(range(min = 0, max = 100))]
    pub refill: usize,
    /// Answers that are written side by side; what they need of keys and values is the memory of a rollout.
    #[schemars(range(min = 1, max = 65536))]
    pub side_by_side: usize,
    /// Steps of supervised learning of the data's answers before the first rollout: a model that never answers right has
    /// nothing to learn from. Counted among max_steps.
    pub cold_start_steps: u64,
    /// The learning rate of steps that learn from answers, relative to the schedule's: a cold start bears a far higher one.
    #[schemars(range(min = 0.0, max = 100))]
    pub lr_scale: f64,
    /// Softmax temperature of the answers to held-out prompts; 0 takes the most likely tokens.
    #[schemars(range(min = 0.0, max = 100))]
    pub eval_temperature: f32,
    /// Answers to each held-out prompt.
    #[schemars(range(min = 1, max = 10000))]
    pub eval_answers: usize,
    /// For each k the readings have `eval/pass@k`: how likely one of k answers is right, without bias (Chen et al. 2021).
    pub pass_at: Vec<usize>,
    /// Rollouts whose answers are kept in files beside the log, to be looked at: the newest ones, and older ones thinned out
    /// evenly. 0 keeps none.
    #[schemars(range(min = 0, max = 10000))]
    pub keep: usize,
}

impl RolloutConfig {
    /// Optimizer steps from one rollout to the next.
    pub fn cycle(&self) -> u64 {
        (self.steps * self.epochs).max(1) as u64
    }
}

impl Default for RolloutConfig {
    fn default() -> Self {
        RolloutConfig {
            group_size: 4,
            max_new_tokens: 128,
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            stop: Vec::new(),
            mask_truncated: false,
            epochs: 1,
            steps: 1,
            refill: 0,
            side_by_side: 64,
            cold_start_steps: 0,
            lr_scale: 1.0,
            eval_temperature: 0.0,
            eval_answers: 1,
            pass_at: Vec::new(),
            keep: 64,
        }
    }
}
