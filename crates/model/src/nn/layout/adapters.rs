//! Positions of adapter factors: after the base model, those of layers with the same input adjacent.

use super::build::Builder;
use super::{BlockSpans, LinearSpans, MlpSpans, Span};
use crate::kernels::low_rank;
use crate::nn::adapter::ExpertMatrix;
use crate::nn::params::Init;
use crate::nn::role::{AdapterRole, Role};

/// Most matrices that are fused into one matmul: a gated delta net's projections of its input.
const MOST: usize = 4;

/// The adapters of a linear layer: y += scale · B (A · dropout(x)), part by part.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AdapterSpans {
    /// The first factors stacked, (sum of the ranks, in): one matmul computes all of them.
    pub a: Span,
    /// Dropout probability on the input of A.
    pub dropout: f64,
    /// Its index; dropout depends on it.
    pub lane: u32,
    parts: [Option<AdapterPart>; MOST],
}

/// The adapter of some of a layer's output features: of one matrix if the layer fuses several.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AdapterPart {
    /// Its first row of A.
    pub low: usize,
    pub rank: usize,
    pub scale: f32,
    /// First feature of the layer's output that it affects.
    pub first: usize,
    /// (features, rank).
    pub b: Span,
    /// (1, features): the magnitude of each weight row, if magnitudes train.
    pub magnitude: Option<Span>,
}

impl AdapterSpans {
    /// The adapters in the order of their rows of A.
    pub fn parts(&self) -> impl Iterator<Item = AdapterPart> {
        self.parts.into_iter().flatten()
    }

    /// All spans that a pass reads.
    pub fn spans(&self) -> impl Iterator<Item = Span> {
        let parts = self.parts();
        std::iter::once(self.a).chain(
            parts
                .flat_map(|part| [Some(part.b), part.magnitude])
                .flatten(),
        )
    }

    /// Whether their low-rank term is fused into the layer's matmul.
    pub fn joins(&self) -> bool {
        !self.has_magnitudes() && self.parts().all(|part| low_rank::joins(part.rank))
    }

    /// Whether its magnitudes train.
    pub fn has_magnitudes(&self) -> bool {
        self.parts().any(|part| part.magnitude.is_some())
    }
}

/// The adapters of all experts of a block on one of their layers: of expert e, y += scale · B (A x).
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExpertFactors {
    /// One below the other, (n_expert · rank, in).
    pub all_a: Span,
    /// (n_expert · out, rank).
    pub all_b: Span,
    count: usize,
    pub scale: f32,
}

impl ExpertFactors {
    pub fn rank(&self) -> usize {
        self.all_b.cols
    }

    /// A of expert `e`.
    pub fn a(&self, e: usize) -> Span {
        self.of(self.all_a, e)
    }

    /// B of expert `e`.
    pub fn b(&self, e: usize) -> Span {
        self.of(self.all_b, e)
    }

    fn of(&self, all: Span, e: usize) -> Span {
        let one = Span {
            rows: all.rows / self.count.max(1),
            ..all
        };
        one.offset_by(e * one.len())
    }
}

/// A matrix of a linear layer that has an adapter.
struct Matrix {
    name: String,
    /// First feature of the layer's output that it computes.
    first: usize,
    rows: usize,
    rank: usize,
    scale: f32,
}

impl Builder<'_> {
    /// Assigns adapters to the linear layers of all blocks, and returns them.
    pub(super) fn adapt(&mut self, blocks: &mut [BlockSpans]) -> Vec<AdapterSpans> {
        let mut adapters = Vec::new();
        for (layer, block) in blocks.iter_mut().enumerate() {
            self.enter(layer);
            let mut linears = block.mixing.linears_mut();
            if let Some(mlp) = block.mlp.for_all_mut() {
                linears.extend([&mut mlp.wide, &mut mlp.out]);
            }
            for linear in linears {
                if let Some(adapter) = self.adapter(linear, adapters.len() as u32) {
                    linear.adapter = Some(adapters.len());
                    adapters.push(adapter);
                }
            }
            if let MlpSpans::Many(experts) = &mut block.mlp {
                let one = experts.expert(0);
                let layers = [(ExpertMatrix::Wide, one.wide), (ExpertMatrix::Out, one.out)];
                experts.low = layers.map(|(matrix, linear)| {
                    self.factors(matrix.name(self.config, layer), linear, experts.count)
                });
            }
        }
        adapters
    }

    /// The adapters of `count` experts on a layer of which `linear` is the first.
    fn factors(
        &mut self,
        name: String,
        linear: LinearSpans,
        count: usize,
    ) -> Option<ExpertFactors> {
        let config = self.adapter_config()?;
        if !config.adapts_experts(&name) {
            return None;
        }
        let (rank, Span { rows, cols, .. }) = (config.rank(&name), linear.weight);
        let bound = 1.0 / (cols as f64).sqrt();
        let shape = vec![count * rank, cols];
        let (a, b) = (Role::Adapter(AdapterRole::A), Role::Adapter(AdapterRole::B));
        let all_a = self.push(
            format!("{name}.lora_A.weight"),
            a,
            shape,
            Init::Uniform(bound),
        );
        let shape = vec![count * rows, rank];
        let all_b = self.push(format!("{name}.lora_B.weight"), b, shape, Init::Zeros);
        self.rate_of_last(config.b_lr_ratio());
        Some(ExpertFactors {
            all_a,
            all_b,
            count,
            scale: config.scale(&name) as f32,
        })
    }

    fn adapter(&mut self, linear: &LinearSpans, lane: u32) -> Option<AdapterSpans> {
        let config = self.adapter_config()?;
        let weight = linear.weight;
        let matrices: Vec<Matrix> = self
            .infos
            .iter()
            .filter(|info| weight.range().contains(&info.offset))
            .filter_map(|info| {
                let name = info.module();
                config.adapts(info.role, name).then(|| Matrix {
                    first: (info.offset - weight.offset) / weight.cols,
                    rows: info.shape[0],
                    rank: config.rank(name),
                    scale: config.scale(name) as f32,
                    name: name.to_string(),
                })
            })
            .collect();
        if matrices.is_empty() {
            return None;
        }
        let from = self.infos.len();
        let ratio = config.b_lr_ratio();
        // Kaiming-uniform with a = √5, like torch's linear layers.
        let bound = 1.0 / (weight.cols as f64).sqrt();
        for matrix in &matrices {
            let (name, role) = (
                format!("{}.lora_A.weight", matrix.name),
                Role::Adapter(AdapterRole::A),
            );
            let shape = vec![matrix.rank, weight.cols];
            self.push(name, role, shape, Init::Uniform(bound));
        }
        let ranks = matrices.iter().map(|matrix| matrix.rank);
        let a = self.span_from(from, ranks.sum(), weight.cols);
        let (mut parts, mut low) = ([None; MOST], 0);
        for (part, matrix) in parts.iter_mut().zip(&matrices) {
            let (name, role) = (
                format!("{}.lora_B.weight", matrix.name),
                Role::Adapter(AdapterRole::B),
            );
            let b = self.push(name, role, vec![matrix.rows, matrix.rank], Init::Zeros);
            self.rate_of_last(ratio);
            *part = Some(AdapterPart {
                low,
                rank: matrix.rank,
                scale: matrix.scale,
                first: matrix.first,
                b,
                magnitude: None,
            });
            low += matrix.rank;
        }
        if config.has_magnitudes() {
            for (part, matrix) in parts.iter_mut().flatten().zip(&matrices) {
                let (name, role) = (
                    format!("{}.lora_magnitude_vector", matrix.name),
                    Role::Adapter(AdapterRole::Magnitude),
                );
                // The norms of the base's rows, set by `Model::init_adapters`.
                part.magnitude = Some(self.push(name, role, vec![matrix.rows], Init::Ones));
                self.rate_of_last(ratio);
            }
        }
        Some(AdapterSpans {
            a,
            dropout: config.dropout(),
            lane,
            parts,
        })
    }
}
