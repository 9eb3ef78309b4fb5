//! A model's parameters by part and layer, exactly as the model itself would allocate them; its FLOPs; its
//! memory.

use super::{Arch, work};
use crate::nn::footprint::{self, ComputeDtype, Subject};
use crate::nn::role::{Role, Site};
use crate::nn::{ActivationCheckpointing, ModelConfig, ParamInfo};
use serde::Serialize;
use std::collections::BTreeMap;

/// Bytes of an f32.
const F32: u64 = 4;

/// The role of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    Embeddings,
    Positions,
    Attention,
    Mixers,
    FeedForward,
    Router,
    Norms,
    Head,
    Adapters,
}

impl Part {
    /// The display name.
    pub fn title(self) -> &'static str {
        match self {
            Part::Embeddings => "token embeddings",
            Part::Positions => "positions",
            Part::Attention => "attention",
            Part::Mixers => "mixers",
            Part::FeedForward => "feed-forward",
            Part::Router => "router",
            Part::Norms => "norms",
            Part::Head => "output head",
            Part::Adapters => "adapters",
        }
    }

    fn of(role: Role) -> Part {
        match role {
            Role::Embedding => Part::Embeddings,
            Role::Position => Part::Positions,
            Role::Head | Role::Value => Part::Head,
            Role::Norm | Role::Bias(Site::Norm) => Part::Norms,
            Role::Router | Role::Bias(Site::Router) => Part::Router,
            Role::Attention(_) | Role::Bias(Site::Attention) => Part::Attention,
            Role::Mixer(_) | Role::Bias(Site::Mixer) => Part::Mixers,
            Role::Mlp(_) | Role::Bias(Site::Mlp) => Part::FeedForward,
            Role::Adapter(_) => Part::Adapters,
        }
    }
}

/// One line of the table: a tensor, or the same tensor of all layers and experts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// With `N` for the layer and `E` for the expert.
    pub name: String,
    pub part: Part,
    pub shape: Vec<usize>,
    /// How many such tensors there are.
    pub count: u64,
    /// Total parameters.
    pub params: u64,
}

/// Bytes by part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// In f32.
    pub weights: u64,
    /// In bf16, as in most files.
    pub weights_bf16: u64,
    pub gradients: u64,
    /// AdamW's two.
    pub moments: u64,
    /// Activations, logits and backward buffers for `rows` sequences of `seq_len`.
    pub activations: u64,
    pub rows: usize,
    pub seq_len: usize,
    /// KV cache per token, in f32.
    pub kv_per_token: u64,
    /// KV cache of a full context.
    pub kv_context: u64,
}

/// The breakdown of a model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Anatomy {
    pub rows: Vec<Row>,
    pub parts: BTreeMap<Part, u64>,
    pub total: u64,
    /// Active parameters per token: all but the experts it is not routed to.
    pub active: u64,
    /// FLOPs per training token, forward and backward, at full context.
    pub flops_per_token: f64,
    pub memory: Memory,
}

/// Batch shape of a training step.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    pub rows: usize,
    pub checkpointing: ActivationCheckpointing,
}

/// Breaks a model down. `vocab_size` is the tokenizer's, used if the config sets none.
pub fn anatomy(config: &ModelConfig, vocab_size: usize, step: Step) -> Anatomy {
    let arch = Arch::of(config, vocab_size);
    let rows = rows(&crate::nn::param_infos(config, vocab_size));
    let mut parts = BTreeMap::new();
    for row in &rows {
        *parts.entry(row.part).or_insert(0) += row.params;
    }
    Anatomy {
        flops_per_token: work::flops_per_token(&arch, arch.max_len()),
        memory: memory(&arch, step),
        rows,
        parts,
        total: arch.n_params(),
        active: arch.n_active(),
    }
}

fn memory(arch: &Arch, step: Step) -> Memory {
    let (config, shape, total) = (arch.config(), arch.shape(), arch.n_params());
    let of = Subject {
        config,
        shape,
        trained: Default::default(),
        is_packed: false,
        arithmetic: ComputeDtype::F32,
    };
    let pass = footprint::training(of, (step.rows, shape.seq_len), step.checkpointing);
    Memory {
        weights: F32 * total,
        weights_bf16: 2 * total,
        gradients: F32 * total,
        moments: 2 * F32 * total,
        activations: pass.total(),
        rows: step.rows,
        seq_len: shape.seq_len,
        kv_per_token: arch.kv_bytes_per_token(F32),
        kv_context: arch.kv_bytes(arch.max_len(), F32),
    }
}

/// Groups equal tensors, in the order of the first.
fn rows(infos: &[ParamInfo]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut places: BTreeMap<(String, Vec<usize>), usize> = BTreeMap::new();
    for info in infos {
        let name = general(&info.name);
        let at = *places
            .entry((name.clone(), info.shape.clone()))
            .or_insert(rows.len());
        if at == rows.len() {
            rows.push(Row {
                part: Part::of(info.role),
                shape: info.shape.clone(),
                count: 0,
                params: 0,
                name,
            });
        }
        rows[at].count += 1;
        rows[at].params += info.len as u64;
    }
    rows
}

/// `model.layers.3.mlp.experts.7.up_proj.weight` → `model.layers.N.mlp.experts.E.up_proj.weight`.
fn general(name: &str) -> String {
    let mut letters = ["N", "E"].into_iter();
    let words = name.split('.').map(|word| {
        let number = !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
        match number {
            true => letters.next().unwrap_or(word),
            false => word,
        }
    });
    words.collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::MoeConfig;
    use crate::nn::mlp::MlpConfig;
    use crate::nn::norm::NormConfig;
    use crate::nn::position::PositionConfig;

    const STEP: Step = Step {
        rows: 1,
        checkpointing: ActivationCheckpointing::None {},
    };

    fn mixtral() -> ModelConfig {
        ModelConfig {
            n_layer: 32,
            n_head: 32,
            n_kv_head: Some(8),
            d_model: 4096,
            d_ff: Some(14_336),
            seq_len: 4096,
            vocab_size: Some(32_000),
            position: PositionConfig::Rope(Default::default()),
            norm: NormConfig::RmsNorm(Default::default()),
            mlp: MlpConfig::SwiGlu(Default::default()),
            tie_embeddings: false,
            moe: Some(MoeConfig {
                n_expert: 8,
                top_k: 2,
                ..MoeConfig::default()
            }),
            ..ModelConfig::default()
        }
    }

    #[test]
    fn counts_are_those_of_known_models() {
        let found = anatomy(&mixtral(), 0, STEP);
        assert_eq!(
            (found.total, found.active),
            (46_702_792_704, 12_879_925_248)
        );
        let llama = ModelConfig {
            moe: None,
            n_kv_head: Some(32),
            d_ff: Some(11_008),
            ..mixtral()
        };
        let found = anatomy(&llama, 0, STEP);
        assert_eq!((found.total, found.active), (6_738_415_616, 6_738_415_616));
        assert_eq!(found.parts[&Part::Head], 32_000 * 4096);
        assert_eq!(found.memory.kv_per_token, 2 * 4 * 32 * 4096);
    }

    #[test]
    fn like_tensors_stand_on_one_line_and_lines_add_up() {
        let found = anatomy(&mixtral(), 0, STEP);
        let sum: u64 = found.rows.iter().map(|row| row.params).sum();
        assert_eq!(sum, found.total);
        let up = "model.layers.N.mlp.experts.E.up_proj.weight";
        let row = found.rows.iter().find(|row| row.name == up).unwrap();
        assert_eq!((row.count, row.part), (256, Part::FeedForward));
        assert_eq!(row.shape, [14_336, 4096]);
        assert_eq!(found.parts[&Part::Router], 32 * 8 * 4096);
    }

    #[test]
    fn a_window_bounds_what_a_context_keeps() {
        let whole = anatomy(&mixtral(), 0, STEP).memory;
        assert_eq!(whole.kv_context, whole.kv_per_token * 4096);
        let windowed = ModelConfig {
            sliding_window: Some(1024),
            global_every: Some(2),
            ..mixtral()
        };
        let memory = anatomy(&windowed, 0, STEP).memory;
        assert_eq!(memory.kv_context, memory.kv_per_token / 2 * (1024 + 4096));
    }
}
