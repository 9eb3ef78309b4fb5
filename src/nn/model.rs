//! The decoder as methods and the engine see it: token batches in, log-probabilities out, gradients back.

use super::composite::{Decoder, Leaves};
use super::footprint::Footprint;
use super::fused::{Pass, Plan};
use super::kv_cache::{Decoding, KvCache};
use super::layout::Layout;
use super::tape::Track;
use super::{Init, ModelConfig, ModelShape, Naming, Params};
use crate::base::rng::{Rng, Stream};
use crate::kernels::attention::Heads;
use crate::kernels::matmul::Arithmetic;
use crate::kernels::rotary::RotaryTable;
use crate::kernels::{flat, logprob, threads};
use candle_core::{DType, Device, Result, Tensor, bail};

/// Sequences with their targets, row-major (B, T).
#[derive(Debug, Clone, Copy)]
pub struct TokenBatch<'a> {
    pub inputs: &'a [u32],
    pub targets: &'a [u32],
    pub batch_size: usize,
    pub seq_len: usize,
}

/// What a method makes its loss of; both (B, T) f32, in nats, without a graph.
#[derive(Debug, Clone)]
pub struct TokenOutputs {
    /// Log-probability of each target.
    pub logp: Tensor,
    /// Entropy of each predicted distribution.
    pub entropy: Tensor,
}

/// How a model computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// Fused kernels on a tape: CPU.
    Fused,
    /// Plain candle operations and candle's autograd: any device.
    Composite,
}

/// A decoder-only transformer with its parameters.
pub struct Model {
    config: ModelConfig,
    shape: ModelShape,
    layout: Layout,
    params: Params,
    door: Door,
    /// What the last training forward left for its backward.
    recorded: Option<Recorded>,
    training: Pass,
    evaluation: Pass,
    rotary: Option<RotaryTable>,
}

enum Recorded {
    /// The training pass holds it; (B, T).
    Fused(usize, usize),
    Composite {
        leaves: Leaves,
        outputs: (Tensor, Tensor),
    },
}

impl Model {
    /// A model with zero weights; [`Model::init`] or a checkpoint fills them. `vocab_size` is the tokenizer's, used where
    /// the config names none.
    /// On a CPU the fused kernels compute, elsewhere the composites.
    pub fn new(config: &ModelConfig, vocab_size: usize, device: &Device) -> Result<Model> {
        let door = if device.is_cpu() {
            Door::Fused
        } else {
            Door::Composite
        };
        Model::with_door(config, vocab_size, device, door)
    }

    /// The same through a door of choice; the fused one is for CPUs alone.
    pub fn with_door(
        config: &ModelConfig,
        vocab_size: usize,
        device: &Device,
        door: Door,
    ) -> Result<Model> {
        if door == Door::Fused && !device.is_cpu() {
            bail!("model: the fused door is for the CPU, not for {device:?}")
        }
        let shape = config.shape(vocab_size);
        check_shape(config, &shape)?;
        let layout = Layout::new(config, &shape);
        let params = Params::new(layout.infos.clone(), device)?;
        Ok(Model {
            config: config.clone(),
            shape,
            layout,
            params,
            door,
            recorded: None,
            training: Pass::new(Track::Gradients),
            evaluation: Pass::new(Track::Off),
            rotary: config
                .position
                .rotary_theta()
                .map(|theta| RotaryTable::new(theta, shape.head_dim, shape.seq_len)),
        })
    }

    /// Draws initial weights: a pure function of the seed and the parameter's index.
    pub fn init(&mut self, seed: u64) -> Result<()> {
        let infos = self.params.infos().to_vec();
        self.params.write_weights(|weights| {
            for (index, info) in infos.iter().enumerate() {
                let part = &mut weights[info.offset..info.offset + info.len];
                match info.init {
                    Init::Ones => part.fill(1.0),
                    Init::Zeros => part.fill(0.0),
                    Init::Normal(std) => {
                        let mut rng = Rng::new(seed, Stream::Init, 0, index as u32);
                        part.fill_with(|| std as f32 * rng.normal());
                    }
                }
            }
        })
    }

    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    pub fn shape(&self) -> &ModelShape {
        &self.shape
    }

    /// Whose names the parameters carry.
    pub fn naming(&self) -> Naming {
        Naming::of(&self.config)
    }

    pub fn device(&self) -> &Device {
        self.params.device()
    }

    pub fn n_params(&self) -> usize {
        self.params.len()
    }

    pub fn params(&self) -> &Params {
        &self.params
    }

    pub fn params_mut(&mut self) -> &mut Params {
        &mut self.params
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Parameters that are looked up and never multiplied: positions, and token embeddings that are not the head too.
    pub(crate) fn lookup_params(&self) -> usize {
        let positions = self.layout.positions.map_or(0, |span| span.len());
        let tokens = if self.config.tie_embeddings {
            0
        } else {
            self.layout.tokens.len()
        };
        positions + tokens
    }

    /// Training forward: records what [`Model::backward`] needs, replacing an earlier record. Weights must stay as they are
    /// until then.
    pub fn forward(&mut self, batch: &TokenBatch) -> Result<TokenOutputs> {
        self.recorded = None;
        self.check_batch(batch)?;
        if self.door == Door::Fused {
            let outputs = self.run_fused(Track::Gradients, batch)?;
            self.recorded = Some(Recorded::Fused(batch.batch_size, batch.seq_len));
            return Ok(outputs);
        }
        let (ids, targets) = self.tensors(batch)?;
        let decoder = self.decoder(Track::Gradients)?;
        let outputs = decoder.outputs(&ids, &targets)?;
        let result = TokenOutputs {
            logp: outputs.0.detach(),
            entropy: outputs.1.detach(),
        };
        let leaves = decoder.leaves;
        self.recorded = Some(Recorded::Composite { leaves, outputs });
        Ok(result)
    }

    /// Adds the gradient of Σ dlogp · logp + Σ dentropy · entropy to the flat gradients; `dlogp` and `dentropy` are (B, T).
    /// Each forward serves one backward.
    pub fn backward(&mut self, dlogp: &Tensor, dentropy: Option<&Tensor>) -> Result<()> {
        match self.recorded.take() {
            None => bail!("backward without a training forward before it"),
            Some(Recorded::Fused(batch_size, seq_len)) => {
                check_upstream(&[batch_size, seq_len], dlogp, dentropy)?;
                self.backward_fused(dlogp, dentropy)
            }
            Some(Recorded::Composite { leaves, outputs }) => {
                check_upstream(outputs.0.dims(), dlogp, dentropy)?;
                self.backward_composite(leaves, outputs, dlogp, dentropy)
            }
        }
    }

    fn backward_composite(
        &mut self,
        leaves: Leaves,
        outputs: (Tensor, Tensor),
        dlogp: &Tensor,
        dentropy: Option<&Tensor>,
    ) -> Result<()> {
        let decoder = Decoder {
            config: &self.config,
            shape: &self.shape,
            layout: &self.layout,
            leaves,
        };
        let flat = self.params.grads();
        for (span, grad) in decoder.gradients(&outputs, dlogp, dentropy)? {
            let sum = (flat.narrow(0, span.offset, span.len())? + grad)?;
            flat.slice_set(&sum, 0, span.offset)?;
        }
        Ok(())
    }

    fn backward_fused(&mut self, dlogp: &Tensor, dentropy: Option<&Tensor>) -> Result<()> {
        let host = |tensor: &Tensor| -> Result<Vec<f32>> {
            let tensor = tensor.to_device(&Device::Cpu)?.to_dtype(DType::F32)?;
            tensor.flatten_all()?.to_vec1()
        };
        let dlogp = host(dlogp)?;
        let dentropy = dentropy.map(host).transpose()?;
        let upstream = logprob::Upstream {
            dlogp: &dlogp,
            dentropy: dentropy.as_deref(),
        };
        let grads = self.params.grads().clone();
        self.with_plan(|plan, training, _| {
            flat::write(&grads, |grads| {
                threads::enter(|| training.backward(plan, upstream, grads));
            })
        })?
    }

    /// Evaluation forward: keeps nothing for a backward, and an earlier training forward keeps its record.
    pub fn score(&mut self, batch: &TokenBatch) -> Result<TokenOutputs> {
        self.check_batch(batch)?;
        if self.door == Door::Fused {
            return self.run_fused(Track::Off, batch);
        }
        let (ids, targets) = self.tensors(batch)?;
        let (logp, entropy) = self.decoder(Track::Off)?.outputs(&ids, &targets)?;
        Ok(TokenOutputs { logp, entropy })
    }

    /// What the training and the evaluation pass hold in memory after what they have done so far; nothing on the
    /// composite door.
    pub fn footprints(&self) -> (Footprint, Footprint) {
        (self.training.footprint(), self.evaluation.footprint())
    }

    /// All logits (B, T, V) of `tokens` (B, T): for tests and preflight, where memory does not matter.
    pub fn logits(&mut self, tokens: &[u32], batch_size: usize, seq_len: usize) -> Result<Tensor> {
        self.check_tokens("tokens", tokens, batch_size, seq_len)?;
        if self.door == Door::Fused {
            if let Some(rotary) = &mut self.rotary {
                rotary.extend_to(seq_len);
            }
            let logits = self.with_plan(|plan, _, pass| {
                threads::enter(|| pass.logits(plan, tokens, seq_len, None, tokens.len()))
            })?;
            let shape = (batch_size, seq_len, self.shape.vocab_size);
            return Tensor::from_vec(logits, shape, self.device());
        }
        let ids = Tensor::from_slice(tokens, (batch_size, seq_len), self.device())?;
        let decoder = self.decoder(Track::Off)?;
        decoder.logits(&decoder.hidden(&ids, &mut Vec::new())?)
    }

    /// Lets `read` read a text piece by piece, at most seq_len tokens of it.
    pub(crate) fn decode<R>(&mut self, read: impl FnOnce(&mut Decoding) -> Result<R>) -> Result<R> {
        if self.door == Door::Composite {
            return read(&mut Decoding::Composite {
                decoder: self.decoder(Track::Off)?,
                past: Vec::new(),
            });
        }
        let heads = self.heads();
        let cache = KvCache::new(self.shape.n_layer, heads, self.shape.seq_len);
        self.with_plan(|plan, _, pass| {
            read(&mut Decoding::Fused {
                plan: *plan,
                pass,
                cache,
            })
        })?
    }

    fn heads(&self) -> Heads {
        Heads {
            n_head: self.shape.n_head,
            n_kv_head: self.shape.n_kv_head,
            head_dim: self.shape.head_dim,
        }
    }

    fn run_fused(&mut self, track: Track, batch: &TokenBatch) -> Result<TokenOutputs> {
        if let Some(rotary) = &mut self.rotary {
            rotary.extend_to(batch.seq_len);
        }
        let shape = (batch.batch_size, batch.seq_len);
        self.with_plan(|plan, training, evaluation| {
            let pass = match track {
                Track::Gradients => training,
                Track::Off => evaluation,
            };
            threads::enter(|| pass.forward(plan, batch));
            let tensor = |values: &[f32]| Tensor::from_slice(values, shape, &Device::Cpu);
            Ok(TokenOutputs {
                logp: tensor(&pass.outputs.logp)?,
                entropy: tensor(&pass.outputs.entropy)?,
            })
        })?
    }

    /// Opens the weights for fused work with the training and the evaluation pass.
    fn with_plan<R>(&mut self, work: impl FnOnce(&Plan, &mut Pass, &mut Pass) -> R) -> Result<R> {
        let Model {
            config,
            shape,
            layout,
            rotary,
            params,
            training,
            evaluation,
            ..
        } = self;
        flat::read(params.weights(), |weights| {
            let plan = Plan {
                arithmetic: Arithmetic::F32,
                config,
                shape,
                layout,
                rotary: rotary.as_ref(),
                weights,
            };
            work(&plan, training, evaluation)
        })
    }

    pub(crate) fn decoder(&self, track: Track) -> Result<Decoder<'_>> {
        Ok(Decoder {
            config: &self.config,
            shape: &self.shape,
            layout: &self.layout,
            leaves: Leaves::new(&self.layout, self.params.weights(), DType::F32, track)?,
        })
    }

    fn check_batch(&self, batch: &TokenBatch) -> Result<()> {
        let (batch_size, seq_len) = (batch.batch_size, batch.seq_len);
        self.check_tokens("inputs", batch.inputs, batch_size, seq_len)?;
        self.check_tokens("targets", batch.targets, batch_size, seq_len)
    }

    fn tensors(&self, batch: &TokenBatch) -> Result<(Tensor, Tensor)> {
        let (batch_size, seq_len) = (batch.batch_size, batch.seq_len);
        let make = |tokens| Tensor::from_slice(tokens, (batch_size, seq_len), self.device());
        Ok((make(batch.inputs)?, make(batch.targets)?))
    }

    /// Refuses what would otherwise index out of a table.
    fn check_tokens(&self, name: &str, tokens: &[u32], batch: usize, len: usize) -> Result<()> {
        if tokens.len() != batch * len || tokens.is_empty() {
            bail!(
                "{name}: expected {batch} × {len} tokens, got {}",
                tokens.len()
            )
        }
        if self.layout.positions.is_some() && len > self.shape.seq_len {
            bail!(
                "{name}: sequences of {len} tokens, but learned positions end at seq_len {}",
                self.shape.seq_len
            )
        }
        self.check_ids(name, tokens)
    }

    pub(crate) fn check_ids(&self, name: &str, tokens: &[u32]) -> Result<()> {
        let vocab_size = self.shape.vocab_size;
        match tokens.iter().position(|&id| id as usize >= vocab_size) {
            Some(at) => bail!(
                "{name}: token {} at index {at} is outside the vocabulary of {vocab_size}",
                tokens[at]
            ),
            None => Ok(()),
        }
    }
}

fn check_upstream(expected: &[usize], dlogp: &Tensor, dentropy: Option<&Tensor>) -> Result<()> {
    for (name, tensor) in [("dlogp", Some(dlogp)), ("dentropy", dentropy)] {
        if let Some(tensor) = tensor
            && tensor.dims() != expected
        {
            bail!(
                "{name}: expected shape {expected:?}, got {:?}",
                tensor.dims()
            )
        }
    }
    Ok(())
}

fn check_shape(config: &ModelConfig, shape: &ModelShape) -> Result<()> {
    let ModelShape {
        n_layer,
        n_head,
        n_kv_head,
        head_dim,
        d_model,
        ..
    } = *shape;
    if [
        n_layer,
        n_head,
        n_kv_head,
        d_model,
        shape.d_ff,
        shape.seq_len,
    ]
    .contains(&0)
        || shape.vocab_size == 0
    {
        bail!("model: every size must be at least 1, got {shape:?}")
    }
    if n_head * head_dim != d_model {
        bail!("model: n_head {n_head} does not divide d_model {d_model}")
    }
    if n_head % n_kv_head != 0 {
        bail!("model: n_kv_head {n_kv_head} does not divide n_head {n_head}")
    }
    if config.position.rotary_theta().is_some() && head_dim % 2 != 0 {
        bail!("model: rotary positions need an even head_dim, got {head_dim}")
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiny() -> Model {
        let config = ModelConfig {
            n_layer: 2,
            n_head: 2,
            d_model: 8,
            seq_len: 6,
            ..Default::default()
        };
        let mut model = Model::new(&config, 11, &Device::Cpu).unwrap();
        model.init(3).unwrap();
        model
    }

    #[test]
    fn a_fresh_model_knows_nothing() {
        let mut model = tiny();
        let batch = TokenBatch {
            inputs: &[1, 2, 3, 4],
            targets: &[2, 3, 4, 5],
            batch_size: 2,
            seq_len: 2,
        };
        let outputs = model.score(&batch).unwrap();
        let loss = outputs.logp.mean_all().unwrap().to_scalar::<f32>().unwrap();
        assert!((loss + 11f32.ln()).abs() < 0.05, "{loss}");
        let entropy = outputs.entropy.to_vec2::<f32>().unwrap();
        assert!((entropy[1][1] - 11f32.ln()).abs() < 0.01, "{entropy:?}");
    }

    #[test]
    fn the_same_seed_gives_the_same_weights_and_another_seed_others() {
        let weights = |seed| {
            let mut model = tiny();
            model.init(seed).unwrap();
            model.params().read_weights(|w| w.to_vec()).unwrap()
        };
        assert_eq!(weights(1), weights(1));
        assert_ne!(weights(1), weights(2));
    }

    #[test]
    fn tokens_that_do_not_fit_are_named() {
        let mut model = tiny();
        let error = |r: Result<Tensor>| r.map(|_| ()).unwrap_err().to_string();
        assert!(error(model.logits(&[1, 11], 1, 2)).contains("token 11 at index 1"));
        assert!(error(model.logits(&[1, 2, 3], 1, 2)).contains("expected 1 × 2 tokens"));
        assert!(error(model.logits(&[1; 7], 1, 7)).contains("seq_len 6"));
    }

    #[test]
    fn shapes_that_do_not_fit_are_refused() {
        let config = |n_head, n_kv_head| ModelConfig {
            n_head,
            n_kv_head,
            d_model: 8,
            ..Default::default()
        };
        assert!(Model::new(&config(3, None), 11, &Device::Cpu).is_err());
        assert!(Model::new(&config(4, Some(3)), 11, &Device::Cpu).is_err());
        assert!(Model::new(&config(4, Some(2)), 11, &Device::Cpu).is_ok());
    }

    #[test]
    fn backward_needs_a_forward_and_fitting_shapes() {
        let mut model = tiny();
        let ones = Tensor::ones((1, 2), DType::F32, &Device::Cpu).unwrap();
        assert!(model.backward(&ones, None).is_err());
        let batch = TokenBatch {
            inputs: &[1, 2],
            targets: &[2, 3],
            batch_size: 1,
            seq_len: 2,
        };
        model.forward(&batch).unwrap();
        let wrong = ones.reshape((2, 1)).unwrap();
        let error = model.backward(&wrong, None).unwrap_err().to_string();
        assert!(error.contains("dlogp: expected shape [1, 2]"), "{error}");
    }

    #[test]
    fn gradients_accumulate() {
        let mut model = tiny();
        let batch = TokenBatch {
            inputs: &[1, 2],
            targets: &[2, 3],
            batch_size: 1,
            seq_len: 2,
        };
        let dlogp = Tensor::full(-0.5f32, (1, 2), &Device::Cpu).unwrap();
        let mut norms = Vec::new();
        for _ in 0..2 {
            model.forward(&batch).unwrap();
            model.backward(&dlogp, None).unwrap();
            norms.push(model.params().grad_norm().unwrap());
        }
        assert!((norms[1] / norms[0] - 2.0).abs() < 1e-6, "{norms:?}");
        model.params_mut().zero_grads().unwrap();
        assert_eq!(model.params().grad_norm().unwrap(), 0.0);
    }
}
