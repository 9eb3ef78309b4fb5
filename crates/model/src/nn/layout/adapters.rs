//! Positions of adapter factors: after the base model, those of layers with the same input adjacent.

use super::build::Builder;
use super::{BlockSpans, LinearSpans, Span};
use crate::kernels::low_rank;
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
        }
        adapters
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
