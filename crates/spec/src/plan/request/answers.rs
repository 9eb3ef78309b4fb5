//! RL settings of a request: rollouts, and the models that score them.

use super::{Estimator, Method, Request};
use crate::spec::RolloutLength;

/// How this program's engine learns from the model's own answers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Answers {
    /// Tokens of a prompt and its answer at most.
    pub tokens: u64,
    /// Whether the loss compares with a reference model.
    pub has_reference: bool,
    /// Whether the policy that answered is asked before it learns.
    pub has_old_policy: bool,
    /// Whether a rollout serves more than one update.
    pub is_reused: bool,
    /// Whether its loss is linear in log-probabilities: as that of answers that serve one update can be, also where a KL to the
    /// reference is charged to their rewards.
    pub is_linear: bool,
    /// The share of the steps that learn the data's own answers first: their batches do not go through the model in parts.
    pub cold_share: f64,
    /// Passes of training over the answers of a rollout, which has those of `rollout.steps` whole batches.
    pub epochs: u64,
    /// Tokens of an answer alone at most.
    pub max_new_tokens: u64,
    /// Prompts and answers of its steps; `None` once another batch or number of tokens was asked for.
    pub length: Option<RolloutLength>,
    /// Prompts of the training split, where they were counted.
    pub prompts: Option<u64>,
}

impl Answers {
    /// Whether the data's own answers are learned first.
    pub fn has_cold_start(self) -> bool {
        self.cold_share > 0.0
    }
}

/// Reward models that score answers, together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RewardModels {
    pub params: u64,
    /// Tokens of their tokenizers.
    pub tokens: u64,
    /// What this engine holds for them: f32 weights, and the buffers of the pass that reads answers.
    pub bytes: u64,
}

/// The teacher of a distillation.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TeacherModel {
    pub params: u64,
    /// Those outside of the matrices of blocks: embeddings, norms and head.
    pub outside: u64,
    /// Tokens of its tokenizer.
    pub tokens: u64,
    /// Its weights as this engine holds them: f32, or a file's formats.
    pub weight_bytes: u64,
    /// Whether those are a file's formats.
    pub is_packed: bool,
    /// The buffers of the pass that reads a micro-batch, with the logits of a chunk of its rows.
    pub pass_bytes: u64,
    /// Share of the steps that learn from the student's own answers.
    pub own_share: f64,
}

impl Request {
    /// The teacher, where the method learns from one and its spec names it.
    pub fn teacher(&self) -> Option<TeacherModel> {
        let teacher = Some(self.extras.teacher).filter(|teacher| teacher.params > 0);
        teacher.filter(|_| self.method == Method::Distill)
    }

    /// How it learns from answers of its own, where a spec says; a method that does not, after a change, has none.
    pub fn answers(&self) -> Option<Answers> {
        self.extras.answers.filter(|_| self.method.rolls_out())
    }

    /// Whether a second model says what answers are worth: a value head on the policy is the policy's own.
    pub fn has_critic(&self) -> bool {
        self.method.facts().passes.critic && !self.arch.config().value_head
    }

    /// Whether the process that drives ranks on GPUs scores their answers with reward models, on its processor: time that no plan counts.
    pub fn scores_on_cpu(&self) -> bool {
        let by_ranks = self.estimator == Estimator::General && self.extras.ranks.is_some();
        by_ranks && self.answers().is_some() && self.extras.rewards.params > 0
    }

    /// Prompts and answers of its steps, where the method learns from answers of its own and they are known.
    pub fn rollout_length(&self) -> Option<RolloutLength> {
        self.answers()?.length
    }

    /// Prompts of the training split, where there are rollouts and they were counted.
    pub fn prompts(&self) -> Option<u64> {
        self.answers()?.prompts.filter(|n| *n > 0)
    }
}
