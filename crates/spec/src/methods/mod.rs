//! Training methods: the losses. A method declares what it needs, what its loss is divided by, the loss itself, and its
//! readings. It works on log-probabilities and entropies (B, T) in plain candle; the tape carries the gradient through the
//! model. Losses that are linear in log-probabilities only give their coefficients.

mod cpo;
pub mod distill;
#[cfg(test)]
mod distill_tests;
mod dpo;
mod evaluated;
mod grpo;
mod knob;
mod kto;
mod orpo;
pub mod policy;
#[cfg(test)]
mod policy_tests;
pub mod ppo;
#[cfg(test)]
mod ppo_shared_tests;
#[cfg(test)]
mod ppo_tests;
pub mod preference;
mod pretrain;
mod reward;
mod rloo;
mod scored;
mod sft;
mod simpo;
#[cfg(test)]
mod tests;

pub use evaluated::evaluated;
pub use knob::{Knob, knob};
pub use preference::{ReferenceChoice, ReferenceFault};
pub use scored::{ScoredBatch, log_sigmoid, read, sigmoid};

use crate::data::{Batch, Unit};
use crate::metrics::{Direction, Metric, Readings, id};
use crate::nn::{
    DistilledGradient, HeadKind, Model, TeacherScores, TokenBatch, TokenOutputs, TokenValues,
    Upstream,
};
use candle_core::{Device, Result, Tensor, Var};

/// The column of log-probabilities that the reference model gives each sequence.
pub const REFERENCE_LOGP: &str = "reference_logp";

/// The column of what policy and reference make of answers to other prompts: log π − log π_ref of each.
pub const BASELINE: &str = "baseline";

/// What a method needs besides the model that it trains.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Needs {
    /// What an example of its data is.
    pub unit: Unit,
    /// Which tokens of a text count where the spec does not say.
    pub mask: LossMask,
    /// Where the column [`REFERENCE_LOGP`] comes from; `None` where it is not needed.
    pub reference: Option<ReferenceChoice>,
    /// What its model ends with.
    pub head: HeadKind,
    /// Whether the model says values too, from its own hidden states.
    pub value_head: bool,
}

/// Which tokens count in the loss.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LossMask {
    /// Every token.
    #[default]
    AllTokens,
    /// The completion of a prompt, the assistant's turns of a conversation.
    CompletionOnly,
}

/// What a loss is divided by, counted over all micro-batches of an optimizer step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Normalizer {
    /// Supervised tokens.
    #[default]
    Tokens,
    /// Pairs.
    Pairs,
    /// Sequences that the batch distinguishes.
    Sequences,
    /// Micro-batches: each divides by its own tokens, a part by those of its micro-batch.
    Batches,
}

impl Normalizer {
    /// How many there are in these batches.
    pub fn count(self, batches: &[Batch]) -> usize {
        let of_batch = match self {
            Normalizer::Tokens => Batch::supervised,
            Normalizer::Pairs => Batch::groups,
            Normalizer::Sequences => |batch: &Batch| batch.origins.len(),
            Normalizer::Batches => |_: &Batch| 1,
        };
        batches.iter().map(of_batch).sum()
    }
}

/// What makes one evaluation better than another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Criterion {
    /// Id of a reading of the evaluation.
    pub metric: &'static str,
    pub direction: Direction,
}

impl Criterion {
    /// Whether it is the loss on held-out data, which falls through most of a run.
    pub fn is_the_loss(&self) -> bool {
        self.metric == id::VAL_LOSS
    }
}

/// A training method.
pub trait Method: Send + Sync {
    /// What it needs besides the model.
    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// What its loss is divided by: pairs, where its data are pairs.
    fn normalizer(&self) -> Normalizer {
        match self.needs().unit {
            Unit::Pair | Unit::Ranked => Normalizer::Pairs,
            Unit::Text | Unit::Judged | Unit::Prompt => Normalizer::Tokens,
        }
    }

    /// For a loss that is linear in log-probabilities, −(1/N) Σ c · logp with c known before the forward pass: writes c for
    /// each token and says yes. `c` comes holding the loss mask as 1 and 0. The head then goes forward and backward at once
    /// and never holds all logits.
    fn coefficients(&self, _batch: &Batch, _c: &mut [f32]) -> bool {
        false
    }

    /// This micro-batch's share of the loss, a scalar; the shares of an optimizer step add up to its loss. Linear losses
    /// have it from their coefficients.
    ///
    /// # Errors
    /// A batch without what the method needs.
    fn loss(&self, scored: &ScoredBatch, _readings: &mut Readings) -> Result<Tensor> {
        let mut c = mask(scored.batch);
        if !self.coefficients(scored.batch, &mut c) {
            candle_core::bail!("this method has neither a loss nor coefficients")
        }
        let c = Tensor::from_vec(c, scored.logp.shape(), &Device::Cpu)?;
        (&scored.logp * c)?.sum_all()? * (-1.0 / scored.normalizer)
    }

    /// Settings of its own that a form asks for.
    fn knobs(&self) -> &'static [Knob] {
        &[]
    }

    /// Its own readings besides those of every method; evaluations measure them too, under `val/`.
    fn readings(&self) -> &'static [Metric] {
        &[]
    }

    /// What it makes of the rewards of the model's own answers, where it learns from those.
    fn on_policy(&self) -> Option<&dyn policy::OnPolicy> {
        None
    }

    /// How it learns a teacher's distributions, where it does: its loss is then linear in divergences and log-probabilities, of a model
    /// with a teacher beside it.
    fn distills(&self) -> Option<&distill::Config> {
        None
    }

    /// Share of the steps that learn from the model's own answers to the data's prompts, where those are no rollouts that rewards
    /// judge.
    fn own_share(&self) -> f64 {
        self.distills().map_or(0.0, |distill| distill.on_policy)
    }

    /// Whether the loss is a mean negative log-likelihood per token, so that its exponential is a perplexity.
    fn is_likelihood(&self) -> bool {
        false
    }

    /// NEFTune's α: noise on the embeddings of training batches; 0 is none.
    fn embedding_noise(&self) -> f64 {
        0.0
    }

    /// What is wrong with its settings: the key, what it is, and what to do.
    fn fault(&self) -> Option<(&'static str, String, String)> {
        None
    }

    /// What its best checkpoint is.
    fn best(&self) -> Criterion {
        Criterion {
            metric: id::VAL_LOSS,
            direction: Direction::Lower,
        }
    }
}

/// What learns from these batches. A method that learns from its own completions has texts without advantages as well, those of a
/// cold start and of preflight: they are learned by supervised fine-tuning, whatever the method.
pub fn of_batches<'a>(method: &'a dyn Method, batches: &[Batch]) -> &'a dyn Method {
    static OF_TEXTS: sft::Config = sft::Config { neftune_alpha: 0.0 };
    let weighed = |batch: &Batch| {
        [policy::ADVANTAGE, ppo::TOKEN_ADVANTAGE]
            .iter()
            .any(|name| batch.column(name).is_some())
    };
    match method.on_policy() {
        Some(_) if !batches.iter().any(weighed) => &OF_TEXTS,
        _ => method,
    }
}

/// A batch as the model reads it.
pub fn tokens(batch: &Batch) -> TokenBatch<'_> {
    TokenBatch {
        inputs: &batch.inputs,
        targets: &batch.targets,
        batch_size: batch.batch_size,
        seq_len: batch.seq_len,
        first: (!batch.first.is_empty()).then_some(&*batch.first),
        temperature: batch.temperature.unwrap_or(1.0),
        filled: (!batch.filled.is_empty()).then_some(&*batch.filled),
    }
}

/// The loss mask as 1 and 0, (B · T).
fn mask(batch: &Batch) -> Vec<f32> {
    match batch.mask.is_empty() {
        true => vec![1.0; batch.targets.len()],
        false => batch.mask.iter().map(|c| f32::from(u8::from(*c))).collect(),
    }
}

/// What goes forward and backward for a micro-step, wherever it is: a model in this process, or one on ranks elsewhere.
pub trait Pass {
    /// Both ways for a loss L = Σ dlogp · logp that is known before the forward pass; `read` sees what the head gave.
    ///
    /// # Errors
    /// A batch that it refuses.
    fn linear(
        &mut self,
        batch: &TokenBatch,
        dlogp: &[f32],
        read: &mut dyn FnMut(TokenValues) -> f64,
    ) -> Result<f64>;

    /// Both ways for any loss: it sees what the head gave and writes its gradient.
    ///
    /// # Errors
    /// A batch that it refuses, and those of the loss.
    fn any(
        &mut self,
        batch: &TokenBatch,
        loss: &mut dyn FnMut(TokenValues, &mut Upstream) -> Result<f64>,
    ) -> Result<f64>;

    /// Both ways for a loss that is linear in log-probabilities and in divergences from a teacher.
    ///
    /// # Errors
    /// A model without a teacher; ranks that are gone.
    fn distilled(
        &mut self,
        batch: &TokenBatch,
        gradient: DistilledGradient,
        read: &mut dyn FnMut(TokenValues) -> Result<f64>,
    ) -> Result<f64>;
}

impl Pass for Model {
    fn linear(
        &mut self,
        batch: &TokenBatch,
        dlogp: &[f32],
        read: &mut dyn FnMut(TokenValues) -> f64,
    ) -> Result<f64> {
        self.accumulate_linear(batch, dlogp, read)
    }

    fn any(
        &mut self,
        batch: &TokenBatch,
        loss: &mut dyn FnMut(TokenValues, &mut Upstream) -> Result<f64>,
    ) -> Result<f64> {
        self.accumulate(batch, loss)
    }

    fn distilled(
        &mut self,
        batch: &TokenBatch,
        gradient: DistilledGradient,
        read: &mut dyn FnMut(TokenValues) -> Result<f64>,
    ) -> Result<f64> {
        self.accumulate_distilled(batch, gradient, read)?
    }
}

/// Forward, the method's loss, backward: adds one micro-step's gradient to the model's, and gives its share of the loss.
/// `normalizer` is [`Normalizer::count`] over the whole optimizer step.
///
/// # Errors
/// A batch that the model or the method refuses.
pub fn micro_step(
    method: &dyn Method,
    model: &mut dyn Pass,
    batch: &Batch,
    normalizer: f64,
    readings: &mut Readings,
) -> Result<f64> {
    let mut c = mask(batch);
    if let Some(distill) = method.distills() {
        let [dlogp, ddivergence] = distill.weights(batch, &c, normalizer);
        let gradient = DistilledGradient {
            dlogp: &dlogp,
            ddivergence: &ddivergence,
        };
        let sum = model.distilled(&tokens(batch), gradient, &mut |values| {
            note(values, batch, readings);
            distill.sum(values, batch, readings)
        })?;
        return Ok(sum / normalizer);
    }
    if !method.coefficients(batch, &mut c) {
        return model.any(&tokens(batch), &mut |values, upstream| {
            note(values, batch, readings);
            by_autograd(method, values, (batch, normalizer), upstream, readings)
        });
    }
    let scale = -1.0 / normalizer;
    let policy = method.on_policy();
    let mut sum = |values: TokenValues| {
        note(values, batch, readings);
        match policy {
            // Only the gradient of the surrogate is that of c · logp.
            Some(policy) => policy.fresh(batch, &c),
            None => dot(values.logp, &c),
        }
    };
    let dlogp: Vec<f32> = c.iter().map(|c| scale as f32 * c).collect();
    Ok(model.linear(&tokens(batch), &dlogp, &mut sum)? * scale)
}

/// The loss of a scored batch times `normalizer`'s share, without a gradient.
///
/// # Errors
/// A batch that the method refuses.
pub fn evaluate(
    method: &dyn Method,
    batch: &Batch,
    out: &TokenOutputs,
    normalizer: f64,
    readings: &mut Readings,
) -> Result<f64> {
    let host = |tensor: &Tensor| tensor.flatten_all()?.to_vec1::<f32>();
    let (logp, entropy, top1) = (host(&out.logp)?, host(&out.entropy)?, host(&out.top1)?);
    let values = TokenValues {
        logp: &logp,
        entropy: &entropy,
        top1: &top1,
        value: None,
        teacher: out.teacher.as_ref().map(TeacherScores::view),
    };
    note(values, batch, readings);
    if let Some(distill) = method.distills() {
        return Ok(distill.sum(values, batch, readings)? / normalizer);
    }
    let mut c = mask(batch);
    if method.coefficients(batch, &mut c) {
        return Ok(dot(&logp, &c) * (-1.0 / normalizer));
    }
    let scored = ScoredBatch {
        batch,
        logp: out.logp.clone(),
        entropy: out.entropy.clone(),
        value: out.value.clone(),
        normalizer,
    };
    let loss = method.loss(&scored, readings)?;
    Ok(f64::from(loss.to_scalar::<f32>()?))
}

/// Mean negative log-likelihood of the supervised tokens, in nats, whatever the method.
///
/// # Errors
/// Those of candle.
pub fn likelihood(batch: &Batch, out: &TokenOutputs) -> Result<f64> {
    let logp: Vec<f32> = out.logp.flatten_all()?.to_vec1()?;
    Ok(-dot(&logp, &mask(batch)) / batch.supervised().max(1) as f64)
}

/// Log-probability of each sequence of a scored batch, the sum over its supervised tokens.
///
/// # Errors
/// A batch whose rows are one text each has no sequences.
pub fn sequence_logps(batch: &Batch, out: &TokenOutputs) -> Result<Vec<f32>> {
    let scored = ScoredBatch {
        batch,
        logp: out.logp.clone(),
        entropy: out.entropy.clone(),
        value: None,
        normalizer: 1.0,
    };
    scored.sequence_logps()?.to_vec1()
}

/// Readings that every method has: means over supervised tokens.
fn note(values: TokenValues, batch: &Batch, readings: &mut Readings) {
    let n = batch.supervised() as f64;
    let mask = mask(batch);
    // A score has no distribution.
    if batch.unit == Unit::Ranked {
        return;
    }
    readings.add(id::ENTROPY, dot(values.entropy, &mask), n);
    readings.add(id::TOKEN_ACCURACY, dot(values.top1, &mask), n);
    if let Some(sampler) = batch.column(policy::SAMPLER_LOGP) {
        let apart = values.logp.iter().zip(sampler).map(|(a, b)| (a - b).abs());
        readings.add(
            id::LOGP_DIFFERENCE,
            dot(&apart.collect::<Vec<_>>(), &mask),
            n,
        );
    }
}

/// Σ x · c in f64, in a fixed order.
fn dot(x: &[f32], c: &[f32]) -> f64 {
    let pairs = x.iter().zip(c);
    pairs.map(|(x, c)| f64::from(*x) * f64::from(*c)).sum()
}

/// The loss and its gradient with respect to the model's values, by candle's autograd over the method's own few operations.
fn by_autograd(
    method: &dyn Method,
    values: TokenValues,
    (batch, normalizer): (&Batch, f64),
    gradient: &mut Upstream,
    readings: &mut Readings,
) -> Result<f64> {
    let shape = (batch.batch_size, batch.seq_len);
    let leaf = |values: &[f32]| Var::from_slice(values, shape, &Device::Cpu);
    let (logp, entropy) = (leaf(values.logp)?, leaf(values.entropy)?);
    let value = values.value.map(leaf).transpose()?;
    let scored = ScoredBatch {
        batch,
        logp: logp.as_tensor().clone(),
        entropy: entropy.as_tensor().clone(),
        value: value.as_ref().map(|value| value.as_tensor().clone()),
        normalizer,
    };
    let loss = method.loss(&scored, readings)?;
    let gradients = loss.backward()?;
    if let Some(dlogp) = gradients.get(&logp) {
        gradient.dlogp = dlogp.flatten_all()?.to_vec1()?;
    }
    if let Some(dentropy) = gradients.get(&entropy) {
        gradient.dentropy = dentropy.flatten_all()?.to_vec1()?;
        gradient.uses_entropy = true;
    }
    if let Some(dvalue) = value.and_then(|value| gradients.get(&value).cloned()) {
        gradient.dvalue = dvalue.flatten_all()?.to_vec1()?;
        gradient.uses_value = true;
    }
    Ok(f64::from(loss.to_scalar::<f32>()?))
}

crate::base::registry! {
    /// What the model learns from.
    pub enum MethodConfig: dyn Method {
        pretrain: Pretrain, sft: Sft, dpo: Dpo, kto: Kto, orpo: Orpo, simpo: Simpo, cpo: Cpo, reward: Reward, distill: Distill, grpo: Grpo, rloo: Rloo, ppo: Ppo
    }
}

impl MethodConfig {
    /// The method of a word with its defaults; `None` where none is called so.
    pub fn usual(word: &str) -> Option<MethodConfig> {
        serde_json::from_value(serde_json::json!({ word: {} })).ok()
    }
}
