//! Where the factors of adapters lie: behind the base model, those of layers with the same input side by side.

use super::build::Builder;
use super::{BlockSpans, LinearSpans, MlpSpans, Span};
use crate::nn::params::Init;
use crate::nn::role::{AdapterRole, Role};

/// Most matrices that one matmul serves: queries, keys and values.
const MOST: usize = 3;

/// The adapters of a linear layer: y += scale · B (A · dropout(x)), part by part.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AdapterSpans {
    /// The first factors one below the other, (parts · rank, in): one matmul serves all of them.
    pub a: Span,
    pub rank: usize,
    pub scale: f32,
    /// Probability that a feature is dropped on its way into A.
    pub dropout: f64,
    /// Its number; what is dropped depends on it.
    pub lane: u32,
    parts: [Option<AdapterPart>; MOST],
}

/// The second factor for some of a layer's output features.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AdapterPart {
    /// First feature of the layer's output that it adds to.
    pub first: usize,
    /// (features, rank).
    pub b: Span,
    /// (1, features): what each row of the weights is scaled to, where magnitudes train.
    pub magnitude: Option<Span>,
}

impl AdapterSpans {
    /// The second factors, in the order of their rows of A.
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

    /// Whether its magnitudes train.
    pub fn has_magnitudes(&self) -> bool {
        self.parts().any(|part| part.magnitude.is_some())
    }
}

impl Builder<'_> {
    /// Gives the linear layers of all blocks their adapters, and returns these.
    pub(super) fn adapt(&mut self, blocks: &mut [BlockSpans]) -> Vec<AdapterSpans> {
        let mut adapters = Vec::new();
        for (layer, block) in blocks.iter_mut().enumerate() {
            self.enter(layer);
            let mut linears = vec![&mut block.qkv, &mut block.attn_out];
            if let MlpSpans::One(mlp) = &mut block.mlp {
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
        let (weight, rank) = (linear.weight, config.rank());
        let matrices: Vec<(String, usize, usize)> = self
            .infos
            .iter()
            .filter(|info| weight.range().contains(&info.offset))
            .filter_map(|info| {
                let first = (info.offset - weight.offset) / weight.cols;
                let name = info.name.trim_end_matches(".weight");
                let adapts = config.adapts(info.role, name);
                adapts.then(|| (name.to_string(), first, info.shape[0]))
            })
            .collect();
        if matrices.is_empty() {
            return None;
        }
        let from = self.infos.len();
        let ratio = config.b_lr_ratio();
        // Kaiming-uniform with a = √5, as torch starts a linear layer.
        let bound = 1.0 / (weight.cols as f64).sqrt();
        for (name, _, _) in &matrices {
            let (name, role) = (
                format!("{name}.lora_A.weight"),
                Role::Adapter(AdapterRole::A),
            );
            self.push(name, role, vec![rank, weight.cols], Init::Uniform(bound));
        }
        let a = self.span_from(from, matrices.len() * rank, weight.cols);
        let mut parts = [None; MOST];
        for (part, (name, first, rows)) in parts.iter_mut().zip(&matrices) {
            let (name, role) = (
                format!("{name}.lora_B.weight"),
                Role::Adapter(AdapterRole::B),
            );
            let b = self.push(name, role, vec![*rows, rank], Init::Zeros);
            self.rate_of_last(ratio);
            *part = Some(AdapterPart {
                first: *first,
                b,
                magnitude: None,
            });
        }
        if config.has_magnitudes() {
            for (part, (name, _, rows)) in parts.iter_mut().flatten().zip(&matrices) {
                let (name, role) = (
                    format!("{name}.lora_magnitude_vector"),
                    Role::Adapter(AdapterRole::Magnitude),
                );
                // The base's own, from `Model::init_adapters`.
                part.magnitude = Some(self.push(name, role, vec![*rows], Init::Ones));
                self.rate_of_last(ratio);
            }
        }
        Some(AdapterSpans {
            a,
            rank,
            scale: config.scale() as f32,
            dropout: config.dropout(),
            lane,
            parts,
        })
    }
}
