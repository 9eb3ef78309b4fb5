//! The inputs of a pass besides its tokens: the model's config, its weights and tables, and the compute settings.

use crate::kernels::attention::{self, Heads, Mask, Scores};
use crate::kernels::low_rank;
use crate::kernels::matmul::ComputeDtype;
use crate::kernels::matrix::Matrix;
use crate::kernels::norm;
use crate::kernels::numbers::Storage;
use crate::kernels::qk_norm::QkNorm;
use crate::kernels::quant;
use crate::kernels::rotary::RotaryTable;
use crate::kernels::skinny;
use crate::nn::checkpointing::ActivationCheckpointing;
use crate::nn::layout::{AdapterSpans, BlockSpans, Layout, LinearSpans, NormSpans, Span};
use crate::nn::step_position::StepPosition;
use crate::nn::tables::Tables;
use crate::nn::weights::Weights;
use crate::nn::{ModelConfig, ModelShape};

/// Everything that is constant during a pass.
#[derive(Clone, Copy)]
pub(crate) struct Plan<'a> {
    /// The compute dtype of all matmuls of the pass.
    pub arithmetic: ComputeDtype,
    pub checkpointing: ActivationCheckpointing,
    pub config: &'a ModelConfig,
    pub shape: &'a ModelShape,
    pub layout: &'a Layout,
    pub tables: &'a Tables,
    /// The pass's position in the run; dropout depends on it.
    pub step_position: StepPosition,
    pub weights: Weights<'a>,
    /// Whether adapters are on.
    pub adapters: bool,
    /// DoRA's row scales of adapted weights, by adapter; empty without magnitudes.
    pub magnitudes: &'a [Magnitudes],
    /// NEFTune's α; 0 disables the noise.
    pub embedding_noise: f64,
}

/// How DoRA scales the output features of a linear layer: by magnitude over norm.
#[derive(Debug, Default)]
pub(crate) struct Magnitudes {
    /// m / ‖W + scale · B A‖ of each feature; 1 without an adapter.
    pub scales: Vec<f32>,
    /// The norms only.
    pub norms: Vec<f32>,
}

impl Magnitudes {
    /// The magnitudes of every adapter of a layout with these weights; empty without trainable magnitudes.
    pub fn of(layout: &Layout, weights: Weights) -> Vec<Magnitudes> {
        if !layout.adapters.iter().any(AdapterSpans::has_magnitudes) {
            return Vec::new();
        }
        let linears = layout.adapted_linears().into_iter();
        let all = linears.map(|(linear, adapter)| Magnitudes::one(&linear, adapter, weights));
        all.collect()
    }

    fn one(linear: &LinearSpans, adapter: &AdapterSpans, weights: Weights) -> Magnitudes {
        let (d_out, d_in) = (linear.weight.rows, linear.weight.cols);
        let (mut scales, mut norms) = (vec![1.0; d_out], vec![1.0; d_out]);
        let (weight, a) = (weights.matrix(linear.weight), weights.dense(adapter.a));
        for part in adapter.parts() {
            let columns = part.first..part.first + part.b.rows;
            let a = &a[part.low * d_in..][..part.rank * d_in];
            let factors = (weights.dense(part.b), a);
            let norms = &mut norms[columns.clone()];
            low_rank::row_norms((weight, part.first), part.scale, factors, d_in, norms);
            let Some(magnitude) = part.magnitude else {
                continue;
            };
            // A row of zeros has no direction.
            norms
                .iter_mut()
                .for_each(|norm| *norm = norm.max(f32::MIN_POSITIVE));
            let magnitudes = weights.dense(magnitude).iter().zip(&*norms);
            let scaled = scales[columns].iter_mut().zip(magnitudes);
            scaled.for_each(|(scale, (m, norm))| *scale = m / norm);
        }
        Magnitudes { scales, norms }
    }
}

impl<'a> Plan<'a> {
    /// A weight matrix: the only place where a pass reads it, whatever its storage format.
    pub(super) fn matrix(&self, span: Span) -> Matrix<'a> {
        self.weights.matrix(span)
    }

    /// Storage dtype of a buffer that only these linear layers' matmuls read or write: bf16 if they round to bf16 anyway; f32
    /// with separate adapter matmuls, with quantized weights (unless matmuls of many rows dequantize them to bf16), and in decode
    /// (`is_cached`), where rows are few.
    pub(super) fn among<const N: usize>(
        &self,
        linears: [&LinearSpans; N],
        is_cached: bool,
    ) -> Storage {
        let joins = |number: usize| {
            let adapter = &self.layout.adapters[number];
            adapter.joins() && skinny::is_profitable(adapter.a.rows)
        };
        let is_plain = |spans: &LinearSpans| spans.adapter.is_none_or(joins);
        let are_rounded = !self.weights.are_stored() || (quant::dequantizes_fast() && !is_cached);
        let are_plain = are_rounded && linears.into_iter().all(is_plain);
        match self.arithmetic {
            ComputeDtype::Bf16 if are_plain => Storage::Bf16,
            _ => Storage::F32,
        }
    }

    /// A vector of weights (gains, biases), or a table whose rows are added.
    pub(super) fn dense(&self, span: Span) -> &'a [f32] {
        self.weights.dense(span)
    }

    pub(in crate::nn) fn heads(&self) -> Heads {
        self.shape.heads()
    }

    /// Heads of what a text keeps.
    pub(in crate::nn) fn kept_heads(&self) -> Heads {
        self.config.kept_heads()
    }

    pub(super) fn norm_of(&self, spans: &NormSpans) -> norm::Norm<'a> {
        norm::Norm {
            kind: self.config.norm.kind(),
            gain: self.dense(spans.gain),
            gain_offset: self.config.norm.gain_offset() as f32,
            bias: spans.bias.map(|span| self.dense(span)),
            eps: self.config.norm.eps() as f32,
        }
    }

    /// The attention settings of block `layer` for rows of tokens; document boundaries and sinks are set later.
    pub(super) fn attention(&self, layer: usize, seq_len: usize) -> attention::Sizes<'a> {
        attention::Sizes {
            heads: self.heads(),
            seq_len,
            mask: Mask {
                window: self.config.window(layer),
                first: None,
            },
            scores: Scores {
                scale: self.config.score_scale(),
                softcap: self.config.attention_softcap,
                slopes: self.tables.slopes(),
                sinks: None,
            },
        }
    }

    /// The rotation of queries and keys in block `layer`; `None` in a block without one.
    pub(super) fn rotary(&self, layer: usize) -> Option<&'a RotaryTable> {
        let window = self.config.window(layer);
        let table = self.tables.rotary(window);
        table.filter(|_| self.config.rotates(layer))
    }

    pub(super) fn qk_norm(&self, gains: [Span; 2]) -> QkNorm<'a> {
        QkNorm {
            heads: self.heads(),
            lens: gains.map(|span| span.len()),
            gains: gains.map(|span| self.dense(span)),
            gain_offset: self.config.norm.gain_offset() as f32,
            eps: self.config.norm.eps() as f32,
        }
    }

    /// Position embeddings added to token embeddings: learned or sinusoidal.
    pub(super) fn vectors(&self) -> Option<&'a [f32]> {
        match self.layout.positions {
            Some(span) => Some(self.dense(span)),
            None => self.tables.waves(),
        }
    }

    /// The adapters of a linear layer, if it has any and they are on.
    pub(super) fn adapter(&self, spans: &LinearSpans) -> Option<&'a AdapterSpans> {
        let number = spans.adapter.filter(|_| self.adapters)?;
        self.layout.adapters.get(number)
    }

    /// The scales of an adapted layer's features; only inside kernels, as a counting pass has no weights.
    pub(super) fn magnitudes(&self, adapter: &AdapterSpans) -> &'a Magnitudes {
        &self.magnitudes[adapter.lane as usize]
    }

    /// The factor of what sub-layers add to the residual stream.
    pub(super) fn residual_scale(&self) -> f32 {
        self.config.residual_scale.unwrap_or(1.0) as f32
    }

    /// The factor of the logits, which the soft cap follows.
    pub(super) fn logit_scale(&self) -> f32 {
        self.config.logit_scale.unwrap_or(1.0) as f32
    }

    pub(super) fn logit_cap(&self) -> Option<f32> {
        self.config.logit_softcap.map(|cap| cap as f32)
    }

    pub(super) fn segment_len(&self) -> usize {
        self.checkpointing.segment_len(self.shape.n_layer)
    }

    /// Blocks of segment number `segment`.
    pub(super) fn segment(&self, segment: usize) -> &[BlockSpans] {
        let len = self.segment_len();
        let blocks = &self.layout.blocks;
        &blocks[segment * len..((segment + 1) * len).min(blocks.len())]
    }
}
