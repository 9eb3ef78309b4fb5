//! Knowledge distillation: the whole distributions of a frozen teacher at every token, not the one token that follows.
//!
//! L = (1/N) Σ (D(teacher, student) − c · log π(y)) over the supervised tokens, with the generalized Jensen-Shannon divergence D of
//! `kernels/logprob/divergence`. Student and teacher read the same tokens: those of the data or, in a share of the steps, answers
//! that the student writes itself (on-policy distillation, GKD).

use super::{Batch, Knob, LossMask, Needs, Normalizer, knob, policy};
use crate::base::registry::Entry;

use crate::metrics::{self, Direction, Metric, Readings, Repeatable, metric};
use crate::nn::{Divergence, TokenValues};
use candle_core::{Result, Tensor, bail};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

pub const ENTRY: Entry = Entry {
    id: "distill",
    title: "Knowledge distillation (GKD)",
    summary: "Learn a larger model's whole distribution at every token, on the data's answers or on the student's own.",
    source: "Agarwal et al. 2024 (GKD), arXiv 2306.13649; Hinton et al. 2015, arXiv 1503.02531; reverse KL: Gu et al. 2024 (MiniLLM), arXiv 2306.08543",
};

/// Ids of its readings.
const DIVERGENCE: &str = "divergence";
const CROSS_ENTROPY: &str = "cross_entropy";
const TEACHER_AGREEMENT: &str = "teacher_agreement";
const TEACHER_ENTROPY: &str = "teacher_entropy";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The teacher: a checkpoint or Hugging Face folder, a GGUF file, also quantized, or a hub id in the cache; with `-s` also a run. Its
    /// tokens must be this run's.
    pub teacher: Option<PathBuf>,
    /// Divergence: 0 is the forward KL(teacher ‖ student), 1 the reverse KL(student ‖ teacher), between them the Jensen-Shannon
    /// divergence of GKD.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub beta: f64,
    /// Divides the logits of both models before the divergence; above 1 unlikely tokens count more. The divergence is not multiplied by its
    /// square, as in TRL.
    #[schemars(range(min = 0.01, max = 100.0))]
    pub temperature: f64,
    /// Share of the steps that learn from answers which the student writes to the data's prompts, GKD's λ; how it writes them is `rollout`'s
    /// temperature, top_k, top_p, stop and max_new_tokens.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub on_policy: f64,
    /// Weight of the cross entropy of the data's tokens beside the divergence; 0 is off. It does not count in answers that the student writes.
    #[schemars(range(min = 0.0, max = 1000.0))]
    pub ce_weight: f64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            teacher: None,
            beta: 0.5,
            temperature: 1.0,
            on_policy: 0.0,
            ce_weight: 0.0,
        }
    }
}

#[rustfmt::skip]
const READINGS: &[Metric] = &[
    metric(DIVERGENCE, "Divergence from the teacher", "nats", Direction::Lower, Repeatable::Yes, "mean divergence of student and teacher over supervised tokens, by method.distill.beta and temperature; at least 0").label("divergence"),
    metric(CROSS_ENTROPY, "Cross entropy", "nats", Direction::Lower, Repeatable::Yes, "mean negative log-likelihood of the data's supervised tokens, as the loss of SFT").label("cross entropy"),
    metric(TEACHER_AGREEMENT, "Top-1 agreement", "share", Direction::Higher, Repeatable::Yes, "share of supervised tokens at which student and teacher have the same most probable token").label("agreement"),
    metric(TEACHER_ENTROPY, "Teacher entropy", "nats", Direction::Neutral, Repeatable::Yes, "mean entropy of the teacher's distributions at method.distill.temperature").label("teacher entropy"),
    metrics::TOKEN_ACCURACY,
];

const KNOBS: &[Knob] = &[
    knob(
        "method.*.teacher",
        "a folder, a .gguf file or a hub id",
        "the larger model whose distributions are learned",
    ),
    knob(
        "method.*.beta",
        "0, 0.5 or 1",
        "0 covers all that the teacher does, 1 keeps to its most likely tokens",
    ),
    knob(
        "method.*.temperature",
        "1 to 2",
        "higher: unlikely tokens count more",
    ),
    knob(
        "method.*.on_policy",
        "0 to 1",
        "the share of steps on the student's own answers: slower, but it learns from its own mistakes",
    ),
];

impl Config {
    /// What is compared.
    pub fn divergence(&self) -> Divergence {
        Divergence {
            beta: self.beta as f32,
            temperature: self.temperature as f32,
        }
    }

    /// Coefficients of log-probabilities and of divergences in the loss, for a mask of 1 and 0.
    pub(super) fn weights(&self, batch: &Batch, mask: &[f32], n: f64) -> [Vec<f32>; 2] {
        let ce = match is_own(batch) {
            true => 0.0,
            false => self.ce_weight,
        };
        let times = |factor: f64| mask.iter().map(|c| factor as f32 * c).collect();
        [times(-ce / n), times(1.0 / n)]
    }

    /// The loss times the normalizer, from the head's values; notes what it consists of.
    ///
    /// # Errors
    /// Values without a teacher beside them.
    pub(super) fn sum(
        &self,
        values: TokenValues,
        batch: &Batch,
        readings: &mut Readings,
    ) -> Result<f64> {
        let Some(teacher) = values.teacher else {
            bail!("distillation: the model has no teacher beside it")
        };
        let (mask, n) = (super::mask(batch), batch.supervised() as f64);
        let divergence = super::dot(teacher.divergence, &mask);
        readings.add(DIVERGENCE, divergence, n);
        readings.add(TEACHER_AGREEMENT, super::dot(teacher.agrees, &mask), n);
        readings.add(TEACHER_ENTROPY, super::dot(teacher.entropy, &mask), n);
        if is_own(batch) {
            return Ok(divergence);
        }
        let cross_entropy = -super::dot(values.logp, &mask);
        readings.add(CROSS_ENTROPY, cross_entropy, n);
        Ok(divergence + self.ce_weight * cross_entropy)
    }
}

/// Whether the answers of a batch are the student's: their likelihood says nothing of the data.
fn is_own(batch: &Batch) -> bool {
    batch.column(policy::SAMPLER_LOGP).is_some()
}

impl super::Method for Config {
    fn knobs(&self) -> &'static [Knob] {
        KNOBS
    }

    fn needs(&self) -> Needs {
        Needs {
            mask: LossMask::CompletionOnly,
            ..Needs::default()
        }
    }

    fn normalizer(&self) -> Normalizer {
        Normalizer::Tokens
    }

    fn distills(&self) -> Option<&Config> {
        Some(self)
    }

    fn readings(&self) -> &'static [Metric] {
        READINGS
    }

    fn loss(&self, _: &super::ScoredBatch, _: &mut Readings) -> Result<Tensor> {
        bail!(
            "distillation: whole distributions are compared, of which log-probabilities are not enough"
        )
    }
}
