//! Direct preference optimization: of two answers to a prompt, the chosen one becomes more probable than the rejected one,
//! relative to a reference model that does not change.
//!
//! With Δ = log π(y|x) − log π_ref(y|x) of an answer and z = β · (Δ_chosen − Δ_rejected), the loss of a pair is −ln σ(z) or
//! one of its kin, or several with weights; a mean over pairs. At the start π = π_ref, so z = 0 and −ln σ(z) = ln 2. A
//! higher β keeps the policy closer to the reference.

use super::preference::{self, NLL_LOSS, PAIRS, ReferenceChoice};
use super::{Criterion, Knob, LossMask, Needs, REFERENCE_LOGP, ScoredBatch, log_sigmoid, sigmoid};
use crate::base::registry::Entry;
use crate::data::Unit;
use crate::metrics::{Metric, Readings};
use candle_core::{Result, Tensor};
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "dpo",
    title: "Direct preference optimization (DPO)",
    summary: "Learn from pairs of chosen and rejected answers which to prefer, staying close to a reference model.",
    source: "Rafailov et al. 2023, arXiv 2305.18290",
};

/// The loss of a pair.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// −ln σ(z); with label_smoothing the conservative form (cDPO).
    #[default]
    Sigmoid,
    /// max(0, 1 − z) (SLiC, arXiv 2305.10425).
    Hinge,
    /// Squared distance of the log-ratios per token from 1 / 2β (IPO, arXiv 2310.12036).
    Ipo,
    /// Unbiased where a share label_smoothing of the labels is wrong (arXiv 2403.00409).
    Robust,
    /// Both answers against zero, −ln σ(βΔ_chosen) − ln σ(−βΔ_rejected) (BCO, arXiv 2404.04656).
    BcoPair,
    /// For chosen answers better than the model's own: up the one, down the other (APO-zero, arXiv 2408.06266).
    ApoZero,
    /// For chosen answers worse than the model's own: down both, the rejected further (APO-down, arXiv 2408.06266).
    ApoDown,
}

/// A further loss and what it is multiplied by.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Term {
    pub loss: Loss,
    pub weight: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// KL strength β towards the reference; higher stays closer to it.
    #[schemars(range(min = 1e-6, max = 100))]
    pub beta: f64,
    /// The loss of a pair.
    pub loss: Loss,
    /// Weight of the loss next to others (MPO: 0.8).
    #[schemars(range(min = 0, max = 1000))]
    pub weight: f64,
    /// Additional losses: a list of `{loss: bco_pair, weight: 0.2}` (MPO).
    pub mix: Vec<Term>,
    /// Weight of the chosen answers' negative log-likelihood per token, which keeps them probable (RPO: 1).
    #[schemars(range(min = 0, max = 1000))]
    pub nll_weight: f64,
    /// Assumed share of wrong labels; for sigmoid (conservative DPO) and robust.
    #[schemars(range(min = 0, max = 0.499))]
    pub label_smoothing: f64,
    /// Where the reference model's log-probabilities come from.
    pub reference: ReferenceChoice,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            beta: 0.1,
            loss: Loss::Sigmoid,
            weight: 1.0,
            mix: Vec::new(),
            nll_weight: 0.0,
            label_smoothing: 0.0,
            reference: ReferenceChoice::Auto,
        }
    }
}

/// What losses of pairs are made of, (P,) each.
struct Pairs {
    /// Log-ratios to the reference: of the chosen and of the rejected answers.
    ratios: [Tensor; 2],
    /// Supervised tokens.
    lengths: [Tensor; 2],
}

impl Loss {
    /// Whether it reads `label_smoothing`.
    fn smooths_labels(self) -> bool {
        matches!(self, Loss::Sigmoid | Loss::Robust)
    }
}

impl Config {
    fn losses(&self) -> impl Iterator<Item = Loss> {
        let more = self.mix.iter().map(|term| term.loss);
        [self.loss].into_iter().chain(more)
    }

    /// Whether any of its losses reads `label_smoothing`.
    pub fn smooths_labels(&self) -> bool {
        self.losses().any(Loss::smooths_labels)
    }

    /// Its losses as a spec says them: `ipo`, `hinge + bco_pair`.
    pub fn loss_words(&self) -> String {
        let word = |loss| serde_json::to_value(loss).unwrap_or_default();
        let words = self.losses().map(word);
        let words: Vec<String> = words
            .map(|word| word.as_str().unwrap_or_default().to_string())
            .collect();
        words.join(" + ")
    }

    /// The loss of each pair, (P,).
    fn of_pairs(&self, loss: Loss, pairs: &Pairs) -> Result<Tensor> {
        let [chosen, rejected] = &pairs.ratios;
        let margins = ((chosen - rejected)? * self.beta)?;
        let smooth = self.label_smoothing;
        match loss {
            Loss::Sigmoid => smoothed(&margins, smooth),
            Loss::Hinge => (1.0 - margins)?.relu(),
            Loss::Ipo => {
                let [of_chosen, of_rejected] = &pairs.lengths;
                let apart = ((chosen / of_chosen)? - (rejected / of_rejected)?)?;
                (apart - 0.5 / self.beta)?.sqr()
            }
            Loss::Robust => {
                let preferred = (log_sigmoid(&margins)? * (smooth - 1.0))?;
                let flipped = (log_sigmoid(&margins.neg()?)? * smooth)?;
                (preferred + flipped)? / (1.0 - 2.0 * smooth)
            }
            Loss::BcoPair => {
                let up = log_sigmoid(&(chosen * self.beta)?)?;
                let down = log_sigmoid(&(rejected * -self.beta)?)?;
                (up + down)?.neg()
            }
            Loss::ApoZero => sigmoid(&(chosen * -self.beta)?)? + sigmoid(&(rejected * self.beta)?)?,
            Loss::ApoDown => sigmoid(&(chosen * self.beta)?)? + sigmoid(&margins.neg()?)?,
        }
    }
}

/// −(1 − ε) · ln σ(x) − ε · ln σ(−x).
///
/// # Errors
/// Those of candle.
pub(super) fn smoothed(x: &Tensor, epsilon: f64) -> Result<Tensor> {
    let preferred = (log_sigmoid(x)? * (epsilon - 1.0))?;
    if epsilon == 0.0 {
        return Ok(preferred);
    }
    preferred + (log_sigmoid(&x.neg()?)? * -epsilon)?
}

impl super::Method for Config {
    fn knobs(&self) -> &'static [Knob] {
        preference::KNOBS
    }

    fn needs(&self) -> Needs {
        Needs {
            unit: Unit::Pair,
            mask: LossMask::CompletionOnly,
            reference: Some(self.reference),
            ..Needs::default()
        }
    }

    fn loss(&self, scored: &ScoredBatch, readings: &mut Readings) -> Result<Tensor> {
        let policy = scored.sequence_logps()?;
        let ratios = (&policy - scored.column(REFERENCE_LOGP)?)?;
        preference::note(scored, &(&ratios * self.beta)?, &policy, readings)?;
        let lengths = scored.sequence_lengths()?;
        let pairs = Pairs {
            ratios: scored.sides(&ratios)?,
            lengths: scored.sides(&lengths)?,
        };
        let mut loss = (self.of_pairs(self.loss, &pairs)? * self.weight)?;
        for term in &self.mix {
            loss = (loss + (self.of_pairs(term.loss, &pairs)? * term.weight)?)?;
        }
        if self.nll_weight > 0.0 {
            let nll = preference::nll_of_chosen(scored, &(policy / lengths)?, readings)?;
            loss = (loss + (nll * self.nll_weight)?)?;
        }
        loss.sum_all()? / scored.normalizer
    }

    fn readings(&self) -> &'static [Metric] {
        const WITH_NLL: &[Metric] = &{
            let [a, b, c, d, e, f] = PAIRS;
            [a, b, c, d, e, f, NLL_LOSS]
        };
        match self.nll_weight > 0.0 {
            true => WITH_NLL,
            false => &PAIRS,
        }
    }

    fn best(&self) -> Criterion {
        preference::BY_ACCURACY
    }
}
