//! Settings of rollouts, for RL methods. Scores are up to the rewards.

use super::RunConfig;
use crate::base::human::{counted, grouped};
use serde::{Deserialize, Serialize};

/// Answers that the model writes and learns from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RolloutConfig {
    /// Completions per prompt. An optimizer step trains on micro_batch_size × grad_accum_steps completions; a rollout
    /// has `steps` times as many, from that number / group_size prompts. Methods without a critic need at least 2.
    #[schemars(range(min = 1, max = 65536))]
    pub group_size: usize,
    /// Maximum tokens of a completion.
    #[schemars(range(min = 1, max = 1000000))]
    pub max_new_tokens: usize,
    /// Sampling temperature. Ratios, KL and entropies are those of the softmax of logits / temperature, as in TRL.
    #[schemars(range(min = 0.01, max = 100))]
    pub temperature: f32,
    /// Sample from the k most likely tokens; 0: from all. The loss ignores the truncation.
    pub top_k: usize,
    /// Sample from the smallest set of tokens whose probability reaches this; 1: from all. The loss ignores the truncation.
    #[schemars(range(min = 0.01, max = 1))]
    pub top_p: f32,
    /// Strings that end a completion, besides the EOS token. Default: a line break if the tokenizer has no
    /// EOS.
    pub stop: Vec<String>,
    /// Exclude truncated completions from the loss.
    pub mask_truncated: bool,
    /// Passes over the completions of a rollout. From the second on the policy differs from the sampling policy, so the
    /// ratio and its clipping matter.
    #[schemars(range(min = 1, max = 1000))]
    pub epochs: usize,
    /// Optimizer steps per pass over a rollout. TRL's steps_per_generation counts micro-steps: this times
    /// grad_accum_steps.
    #[schemars(range(min = 1, max = 1000))]
    pub steps: usize,
    /// Maximum number of times that prompts with equal rewards are replaced by others; 0 keeps them (DAPO's dynamic
    /// sampling).
    #[schemars(range(min = 0, max = 100))]
    pub refill: usize,
    /// Completions sampled in parallel; their KV cache is the memory of a rollout.
    #[schemars(range(min = 1, max = 65536))]
    pub side_by_side: usize,
    /// Steps of supervised fine-tuning on the data's answers before the first rollout: a model that never solves a prompt
    /// gets no signal. Part of max_steps.
    pub cold_start_steps: u64,
    /// Learning rate of RL steps relative to the schedule's: a cold start tolerates a far higher one.
    #[schemars(range(min = 0.0, max = 100))]
    pub lr_scale: f64,
    /// Sampling temperature for held-out prompts; 0 is greedy.
    #[schemars(range(min = 0.0, max = 100))]
    pub eval_temperature: f32,
    /// Completions per held-out prompt.
    #[schemars(range(min = 1, max = 10000))]
    pub eval_answers: usize,
    /// Values of k for `eval/pass@k`: the unbiased probability that one of k completions is correct (Chen et al. 2021).
    pub pass_at: Vec<usize>,
    /// Number of rollouts whose completions are saved for inspection: the latest ones, and older ones thinned out evenly. 0:
    /// none.
    #[schemars(range(min = 0, max = 10000))]
    pub keep: usize,
}

impl RolloutConfig {
    /// Optimizer steps from one rollout to the next.
    pub fn cycle(&self) -> u64 {
        (self.steps * self.epochs).max(1) as u64
    }
}

/// What the steps of a run on its own answers come to: prompts and answers, not tokens of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RolloutLength {
    /// Steps that learn the data's own answers first, and the rows of each.
    pub cold_start_steps: u64,
    pub rows: u64,
    /// Steps that learn from the model's own answers.
    pub steps: u64,
    /// Steps from one rollout to the next.
    pub cycle: u64,
    /// Prompts of a rollout, answers to each, and tokens of an answer at most.
    pub prompts: u64,
    pub group_size: u64,
    pub max_new_tokens: u64,
}

impl RolloutLength {
    /// Prompts that all rollouts answer, one drawn again counted again; those that a refill adds are not known before.
    fn all_prompts(&self) -> u64 {
        self.steps.div_ceil(self.cycle.max(1)) * self.prompts
    }

    /// Passes over so many prompts.
    pub fn passes(&self, prompts: u64) -> f64 {
        self.all_prompts() as f64 / prompts.max(1) as f64
    }

    /// Passes of the cold start over so many rows.
    fn cold_passes(&self, rows: u64) -> f64 {
        (self.cold_start_steps * self.rows) as f64 / rows.max(1) as f64
    }

    /// `350 supervised steps of 64 rows (cold start)`, then what [`Self::learned`] says.
    pub fn words(&self) -> String {
        let learned = self.learned();
        let cold = self.cold_start();
        cold.map_or_else(|| learned.clone(), |cold| format!("{cold}, then {learned}"))
    }

    /// `350 supervised steps of 64 rows (cold start)`; `None` without any.
    pub fn cold_start(&self) -> Option<String> {
        let (steps, rows) = (grouped(self.cold_start_steps), grouped(self.rows));
        let words = format!("{steps} supervised steps of {rows} rows (cold start)");
        (self.cold_start_steps > 0).then_some(words)
    }

    /// `600 steps of 8 prompts × 8 answers, up to 32 new tokens each`
    pub fn learned(&self) -> String {
        let each = format!(
            "{} × {}, up to {} each",
            counted(self.prompts, "prompt"),
            counted(self.group_size, "answer"),
            counted(self.max_new_tokens, "new token")
        );
        let steps = grouped(self.steps);
        match self.cycle {
            0 | 1 => format!("{steps} steps of {each}"),
            n => format!("{steps} steps, every {n} of them on a new rollout of {each}"),
        }
    }

    /// `1.2 epochs of 7,200 prompts`, and those of the cold start before.
    pub fn passes_words(&self, prompts: u64) -> String {
        let cold = match self.cold_start_steps {
            0 => String::new(),
            _ => format!("{:.1} supervised epochs, then ", self.cold_passes(prompts)),
        };
        let passes = self.passes(prompts);
        format!("{cold}{passes:.1} epochs of {} prompts", grouped(prompts))
    }
}

impl RunConfig {
    /// Tokens of the longest prompt whose completion may be as long as `rollout.max_new_tokens` says: the last token of a row is a
    /// target alone.
    pub fn longest_prompt(&self) -> u64 {
        let room = (self.model.seq_len + 1).saturating_sub(self.rollout.max_new_tokens);
        room as u64
    }

    /// How long a run is that learns from its own answers; `None` for other methods.
    pub fn rollout_length(&self) -> Option<RolloutLength> {
        self.method.on_policy()?;
        let (train, rollout) = (&self.train, &self.rollout);
        let rows = (train.micro_batch_size * train.grad_accum_steps) as u64;
        let cold_start_steps = rollout.cold_start_steps.min(train.max_steps);
        let group_size = rollout.group_size.max(1) as u64;
        Some(RolloutLength {
            cold_start_steps,
            rows,
            steps: train.max_steps - cold_start_steps,
            cycle: rollout.cycle(),
            prompts: (rows * rollout.steps as u64 / group_size).max(1),
            group_size,
            max_new_tokens: rollout.max_new_tokens as u64,
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_on_its_own_answers_is_as_long_as_its_prompts_and_answers() {
        let length = RolloutLength {
            cold_start_steps: 0,
            rows: 64,
            steps: 600,
            cycle: 1,
            prompts: 8,
            group_size: 8,
            max_new_tokens: 32,
        };
        assert_eq!(
            length.words(),
            "600 steps of 8 prompts × 8 answers, up to 32 new tokens each"
        );
        assert_eq!(length.passes_words(1_600), "3.0 epochs of 1,600 prompts");
        let one = RolloutLength {
            group_size: 1,
            prompts: 64,
            max_new_tokens: 1,
            ..length
        };
        assert_eq!(
            one.learned(),
            "600 steps of 64 prompts × 1 answer, up to 1 new token each"
        );
        let twice = RolloutLength {
            cycle: 4,
            cold_start_steps: 100,
            ..length
        };
        assert_eq!(
            twice.all_prompts(),
            150 * 8,
            "a rollout is learned from in four steps"
        );
        assert_eq!(
            twice.words(),
            "100 supervised steps of 64 rows (cold start), then 600 steps, every 4 of them on a new rollout of 8 prompts × 8 answers, up to 32 new tokens each"
        );
        assert_eq!(
            twice.passes_words(1_600),
            "4.0 supervised epochs, then 0.8 epochs of 1,600 prompts"
        );
    }

    #[test]
    fn only_methods_on_their_own_answers_have_such_a_length() {
        let of = |preset: &str| {
            let sources = crate::spec::SpecSources {
                project_dir: std::env::temp_dir().join("llmtui-no-such-folder"),
                ..crate::spec::SpecSources::default()
            };
            let loaded = crate::spec::load(preset, &[], &sources).unwrap();
            loaded.spec.rollout_length()
        };
        assert_eq!(of("quickstart"), None);
        let grpo = of("grpo-arithmetic").unwrap();
        assert_eq!(
            (grpo.cold_start_steps, grpo.steps, grpo.prompts),
            (350, 550, 16)
        );
    }
}
