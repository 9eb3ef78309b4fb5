//! Forward, backward, evaluation and incremental forward, on either backend.

use super::{Backend, Model, Recorded, TokenBatch, TokenOutputs, check, teacher};
use crate::kernels::{flat, logprob, threads};
use crate::nn::HeadKind;
use crate::nn::composite::{Decoder, Graph, Leaves, Past};
use crate::nn::decoding::{Caches, Decoding, Extent};
use crate::nn::fused::{HeadGradient, Magnitudes, Pass, Plan};
use crate::nn::kv_cache::{BlockShape, KvCache, KvShape, PrefixCache, SNAPSHOTS};
use crate::nn::tape::Track;
use crate::nn::weights::Weights;
use candle_core::{DType, Device, Result, Tensor, bail};

impl Model {
    /// Training forward: records what [`Model::backward`] needs, replacing an earlier record. Weights must not
    /// change until then.
    ///
    /// # Errors
    /// A batch that does not fit the model, or a model that cannot be trained.
    pub fn forward(&mut self, batch: &TokenBatch) -> Result<TokenOutputs> {
        self.recorded = None;
        self.check_training(batch)?;
        if self.backend == Backend::Fused {
            let outputs = self.run_fused(Track::Gradients, batch, None)?;
            self.recorded = Some(Recorded::Fused(batch.batch_size, batch.seq_len));
            return Ok(outputs);
        }
        let decoder = self.decoder(Track::Gradients)?;
        let outputs = decoder.outputs(batch)?;
        let result = of_graph(&outputs);
        let leaves = decoder.leaves;
        self.recorded = Some(Recorded::Composite { leaves, outputs });
        Ok(result)
    }

    /// Adds the gradient of Σ dlogp · logp + Σ dentropy · entropy to the flat gradients; `dlogp` and `dentropy` are (B, T).
    /// Each forward allows one backward.
    ///
    /// # Errors
    /// No forward before it, or gradients of another shape than its outputs.
    pub fn backward(&mut self, dlogp: &Tensor, dentropy: Option<&Tensor>) -> Result<()> {
        self.backward_all(dlogp, dentropy, None)
    }

    /// The same with Σ dvalue · value, of a model with a value head.
    ///
    /// # Errors
    /// No forward before it; gradients of another shape; `dvalue` of a model without a value head.
    pub fn backward_all(
        &mut self,
        dlogp: &Tensor,
        dentropy: Option<&Tensor>,
        dvalue: Option<&Tensor>,
    ) -> Result<()> {
        if dvalue.is_some() && self.params.value_head().is_none() {
            bail!("dvalue: the model has no value head")
        }
        match self.recorded.take() {
            None => bail!("backward without a training forward before it"),
            Some(Recorded::Fused(batch_size, seq_len)) => {
                check::upstream(&[batch_size, seq_len], dlogp, dentropy, dvalue)?;
                self.backward_fused(dlogp, dentropy, dvalue)
            }
            Some(Recorded::Composite { leaves, outputs }) => {
                check::upstream(outputs.logp.dims(), dlogp, dentropy, dvalue)?;
                self.backward_composite((leaves, outputs), dlogp, dentropy, dvalue)
            }
        }
    }

    fn backward_composite(
        &mut self,
        (leaves, outputs): (Leaves, Graph),
        dlogp: &Tensor,
        dentropy: Option<&Tensor>,
        dvalue: Option<&Tensor>,
    ) -> Result<()> {
        let decoder = Decoder {
            config: &self.config,
            shape: &self.shape,
            layout: &self.layout,
            leaves,
            track: Track::Gradients,
            step_position: self.step_position,
            adapters: self.adapters_on,
        };
        let flat = self.params.grads()?;
        for (span, grad) in decoder.gradients(&outputs, dlogp, dentropy, dvalue)? {
            if let Some(from) = span.grad {
                let sum = (flat.narrow(0, from, span.len())? + grad)?;
                flat.slice_set(&sum, 0, from)?;
            }
        }
        Ok(())
    }

    fn backward_fused(
        &mut self,
        dlogp: &Tensor,
        dentropy: Option<&Tensor>,
        dvalue: Option<&Tensor>,
    ) -> Result<()> {
        let host = |tensor: &Tensor| -> Result<Vec<f32>> {
            let tensor = tensor.to_device(&Device::Cpu)?.to_dtype(DType::F32)?;
            tensor.flatten_all()?.to_vec1()
        };
        let dlogp = host(dlogp)?;
        let dentropy = dentropy.map(host).transpose()?;
        let dvalue = dvalue.map(host).transpose()?;
        let upstream = HeadGradient {
            tokens: logprob::Upstream {
                dlogp: &dlogp,
                dentropy: dentropy.as_deref(),
                z_loss: 0.0,
            },
            values: dvalue.as_deref(),
            teacher: None,
        };
        let (grads, into) = self.params.open_grads();
        self.with_plan(|plan, training, _| {
            flat::write(&grads, |grads| {
                threads::enter(|| training.backward(plan, upstream, (grads, into)));
            })
        })?
    }

    /// Evaluation forward: stores nothing for a backward, and does not affect the record of an earlier training forward. With a teacher,
    /// also the divergences from it.
    ///
    /// # Errors
    /// A batch that does not fit the model, or its teacher.
    pub fn score(&mut self, batch: &TokenBatch) -> Result<TokenOutputs> {
        self.check_batch(batch)?;
        if self.backend == Backend::Fused {
            return match self.teacher.clone() {
                Some(teacher) => {
                    teacher.beside(batch, |head| self.run_fused(Track::Off, batch, Some(head)))?
                }
                None => self.run_fused(Track::Off, batch, None),
            };
        }
        if self.teacher.is_some() {
            bail!("teacher: a student needs the fused CPU kernels")
        }
        Ok(of_graph(&self.decoder(Track::Off)?.outputs(batch)?))
    }

    /// All logits (B, T, V) of `tokens` (B, T): for tests and preflight, where memory does not matter. For a reward model the
    /// scores (B, T, 1).
    ///
    /// # Errors
    /// Tokens outside the vocabulary, more than seq_len of them, or not B · T.
    pub fn logits(&mut self, tokens: &[u32], batch_size: usize, seq_len: usize) -> Result<Tensor> {
        self.logits_of_texts(tokens, None, batch_size, seq_len)
    }

    /// The same for packed rows: `first` (B, T) is the position in its row where the text of each token begins.
    ///
    /// # Errors
    /// Those of [`Model::logits`].
    pub fn logits_of_texts(
        &mut self,
        tokens: &[u32],
        first: Option<&[u32]>,
        batch_size: usize,
        seq_len: usize,
    ) -> Result<Tensor> {
        self.check_tokens("tokens", tokens, batch_size, seq_len)?;
        if self.backend == Backend::Fused {
            self.tables.extend_to(seq_len);
            let mut logits = Vec::new();
            self.with_plan(|plan, _, pass| {
                threads::enter(|| {
                    pass.logits(plan, (tokens, first), seq_len, &mut logits);
                });
            })?;
            let width = match self.config.head {
                HeadKind::Vocabulary => self.shape.vocab_size,
                HeadKind::Score => 1,
            };
            let shape = (batch_size, seq_len, width);
            return Tensor::from_vec(logits, shape, self.device());
        }
        let ids = Tensor::from_slice(tokens, (batch_size, seq_len), self.device())?;
        let decoder = self.decoder(Track::Off)?;
        decoder.logits(&decoder.hidden(&ids, &mut Past::default(), first)?)
    }

    /// Calls `read` with an incremental forward over one text of at most seq_len tokens: it appends tokens and fills the logits
    /// (V) after the last of them.
    ///
    /// # Errors
    /// Those of `read`, and those of the forward passes.
    pub fn decode<R>(
        &mut self,
        read: impl FnOnce(&mut dyn FnMut(&[u32], &mut Vec<f32>) -> Result<()>) -> Result<R>,
    ) -> Result<R> {
        let tokens = self.shape.seq_len;
        self.decode_batch(Extent { texts: 1, tokens }, |text| {
            read(&mut |tokens, logits| text.read(tokens, logits))
        })
    }

    /// Calls `read` with an incremental forward over several texts of at most seq_len tokens each.
    pub(crate) fn decode_batch<R>(
        &mut self,
        extent: Extent,
        read: impl FnOnce(&mut Decoding) -> Result<R>,
    ) -> Result<R> {
        self.check_writes()?;
        if self.backend == Backend::Composite {
            let pasts = vec![Past::default(); extent.texts];
            return read(&mut Decoding::composite(self.decoder(Track::Off)?, pasts));
        }
        let blocks = BlockShape::of(&self.config);
        let shape = self.kv_shape(&blocks);
        let cache = |_| KvCache::new(shape, extent.tokens);
        let caches = (0..extent.texts).map(cache).collect();
        self.with_plan(|plan, _, pass| read(&mut Decoding::fused(*plan, pass, caches)))?
    }

    /// Calls `read` with an incremental forward over the texts of these caches, which it stores again; of a failure nothing is left.
    pub(crate) fn decode_on(
        &mut self,
        caches: &mut Caches,
        read: impl FnOnce(&mut Decoding) -> Result<()>,
    ) -> Result<()> {
        self.check_writes()?;
        let Caches { held, pasts } = std::mem::take(caches);
        if self.backend == Backend::Composite {
            let mut decoding = Decoding::composite(self.decoder(Track::Off)?, pasts);
            read(&mut decoding)?;
            *caches = decoding.into_caches();
            return Ok(());
        }
        self.with_plan(|plan, _, pass| {
            let mut decoding = Decoding::fused(*plan, pass, held);
            read(&mut decoding)?;
            *caches = decoding.into_caches();
            Ok(())
        })?
    }

    /// A cache for `text` with space for `tokens`, or a little more: what `kept` has of its beginning, if it may be reused.
    pub(crate) fn cache_for(
        &self,
        kept: &mut PrefixCache,
        (text, tokens): (&[u32], usize),
    ) -> KvCache {
        let blocks = BlockShape::of(&self.config);
        let room = PrefixCache::room(tokens, self.shape.seq_len);
        kept.reuse(text, room, self.kv_shape(&blocks))
    }

    /// Bytes of keys and values of a text that fills the context, and of its states with their copies.
    pub fn context_bytes(&self) -> u64 {
        let blocks = BlockShape::of(&self.config);
        let copies = SNAPSHOTS * self.config.state_bytes();
        self.kv_shape(&blocks).bytes(self.shape.seq_len) + copies as u64
    }

    fn kv_shape<'a>(&self, blocks: &'a [BlockShape]) -> KvShape<'a> {
        KvShape {
            heads: self.config.kept_heads(),
            blocks,
            storage: self.kv_storage(),
        }
    }

    fn run_fused(
        &mut self,
        track: Track,
        batch: &TokenBatch,
        beside: Option<logprob::Teacher>,
    ) -> Result<TokenOutputs> {
        self.tables.extend_to(batch.seq_len);
        let shape = (batch.batch_size, batch.seq_len);
        self.with_plan(|plan, training, evaluation| {
            let pass = match track {
                Track::Gradients => training,
                Track::Off => evaluation,
            };
            threads::enter(|| pass.forward_beside(plan, batch, beside));
            let tensor = |values: &[f32]| Tensor::from_slice(values, shape, &Device::Cpu);
            Ok(TokenOutputs {
                logp: tensor(&pass.outputs.logp)?,
                entropy: tensor(&pass.outputs.entropy)?,
                top1: tensor(&pass.outputs.top1)?,
                value: match pass.values.is_empty() {
                    true => None,
                    false => Some(tensor(&pass.values)?),
                },
                teacher: teacher::scores(&pass.outputs),
            })
        })?
    }

    /// Opens the weights for the fused training and evaluation pass.
    pub(super) fn with_plan<R>(
        &mut self,
        work: impl FnOnce(&Plan, &mut Pass, &mut Pass) -> R,
    ) -> Result<R> {
        let Model {
            arithmetic,
            checkpointing,
            config,
            shape,
            layout,
            tables,
            step_position,
            params,
            stored,
            training,
            evaluation,
            adapters_on,
            regularizers,
            ..
        } = self;
        let run = |weights: Weights| {
            let magnitudes = match adapters_on {
                true => threads::enter(|| Magnitudes::of(layout, weights)),
                false => Vec::new(),
            };
            let plan = Plan {
                arithmetic: *arithmetic,
                checkpointing: *checkpointing,
                config,
                shape,
                layout,
                tables,
                step_position: *step_position,
                weights,
                adapters: *adapters_on,
                magnitudes: &magnitudes,
                embedding_noise: regularizers.embedding_noise,
            };
            work(&plan, training, evaluation)
        };
        match stored {
            Some(stored) => flat::read(params.weights(), |adapters| {
                run(Weights::Stored {
                    stored,
                    adapters,
                    from: params.first_held(),
                })
            }),
            None => flat::read(params.weights(), |weights| run(Weights::Flat(weights))),
        }
    }

    pub(crate) fn decoder(&self, track: Track) -> Result<Decoder<'_>> {
        Ok(Decoder {
            config: &self.config,
            shape: &self.shape,
            layout: &self.layout,
            leaves: Leaves::new(&self.layout, self.params.weights(), DType::F32, track)?,
            track,
            step_position: self.step_position,
            adapters: self.adapters_on,
        })
    }
}

/// The composite backend's outputs, without their graph.
fn of_graph(graph: &Graph) -> TokenOutputs {
    TokenOutputs {
        logp: graph.logp.detach(),
        entropy: graph.entropy.detach(),
        top1: graph.top1.clone(),
        value: graph.value.as_ref().map(Tensor::detach),
        teacher: None,
    }
}
