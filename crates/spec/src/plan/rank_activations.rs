//! What a rank of PyTorch keeps of a micro-batch for the backward pass (`decoder.py`, `linear.py`): activations of blocks, by the matrices
//! that train or have adapters. Logits and all else are in `general`.

use super::arch::Arch;
use super::general::matmul_width;
use super::request::{Checkpointing, Request};
use crate::base::human::grouped;
use crate::nn::role::{AttentionRole, MlpRole};
use crate::nn::{NormPlacement, ParamInfo, Role};

/// Bytes of the activations of one micro-batch, and their formula.
pub(super) fn of(request: &Request) -> (f64, String) {
    let (arch, tokens) = (&request.arch, request.micro_tokens());
    let token = bytes_per_token(request);
    let layer = (tokens * token) as f64;
    let of_layer = format!("{} B × {} tokens", grouped(token), grouped(tokens));
    if request.checkpointing == Checkpointing::Off {
        let how = format!("{of_layer} × {} layers", arch.n_layer());
        return (layer * arch.n_layer() as f64, how);
    }
    // Every block's f32 input stays, and one block at a time in full.
    let inputs = 4 * arch.d_model() * tokens * arch.n_layer();
    let how = format!(
        "recomputed: 4 B × {} × {} tokens × {} layers, plus one of {of_layer}",
        arch.d_model(),
        grouped(tokens),
        arch.n_layer()
    );
    (inputs as f64 + layer, how)
}

/// Bytes per token and layer where every matrix trains, with matmuls in `width` bytes: the f32 inputs of the norms and what matmuls take
/// of them, queries, keys, values and what attention gives, gate, up and their product.
fn of_trained(arch: &Arch, width: u64) -> u64 {
    let wide = if arch.config().mlp.gated() { 3 } else { 2 };
    let norms = match arch.config().norm_placement {
        // Both norms read the same stream, which autograd keeps once.
        NormPlacement::Pre if arch.config().parallel_residual => 1,
        NormPlacement::Both => 4,
        NormPlacement::Pre | NormPlacement::Post | NormPlacement::Reordered => 2,
    };
    let matmuls =
        2 * arch.d_model() + 2 * arch.q_width() + 2 * arch.kv_width() + wide * arch.active_d_ff();
    4 * norms * arch.d_model() + width * matmuls + 4 * arch.n_head()
}

/// Matrices of a block that take the same input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reader {
    Attention,
    Output,
    Mlp,
    Down,
}

impl Reader {
    const ALL: [Reader; 4] = [Reader::Attention, Reader::Output, Reader::Mlp, Reader::Down];

    fn of(role: Role) -> Option<Reader> {
        Some(match role {
            Role::Attention(AttentionRole::Output) => Reader::Output,
            Role::Attention(_) => Reader::Attention,
            Role::Mlp(MlpRole::Down) => Reader::Down,
            Role::Mlp(_) => Reader::Mlp,
            _ => return None,
        })
    }

    /// Elements of its input, per token.
    fn input(self, arch: &Arch) -> u64 {
        match self {
            Reader::Attention | Reader::Mlp => arch.d_model(),
            Reader::Output => arch.q_width(),
            Reader::Down => arch.active_d_ff(),
        }
    }
}

/// The same of a block in the mean. For a matrix with an adapter its input is kept like that of one that trains, and what A makes of it;
/// with dropout a mask of a byte an element too, and beside what attention gives, which attention keeps, a copy. For a frozen matrix
/// nothing is kept, unless attention does.
fn bytes_per_token(request: &Request) -> u64 {
    let (arch, width) = (&request.arch, matmul_width(request));
    let trained = of_trained(arch, width);
    if request.lora.is_none() && request.frozen.is_empty() {
        return trained;
    }
    let adapter = request.engine_adapter();
    let drops = adapter.as_ref().is_some_and(|it| it.dropout() > 0.0);
    let rank = |info: &ParamInfo| {
        let adapter = adapter.as_ref()?;
        let module = info.module();
        (adapter.adapts(info.role, module)).then(|| adapter.rank(module) as u64)
    };
    let infos = request.param_infos();
    let matrices = infos
        .iter()
        .filter(|info| info.layer.is_some() && info.shape.len() == 2);
    let matrices: Vec<_> = matrices
        .filter_map(|info| Some((info.layer?, Reader::of(info.role)?, info)))
        .collect();
    let (mut more, mut less) = (0, 0);
    for layer in 0..arch.n_layer() {
        for reader in Reader::ALL {
            let own = matrices
                .iter()
                .filter(|it| u64::from(it.0) == layer && it.1 == reader);
            let (mut ranks, mut trains) = (0, false);
            for (.., info) in own {
                ranks += rank(info).unwrap_or(0);
                trains |= info.trains();
            }
            let (input, is_copied) = (reader.input(arch), reader == Reader::Output);
            more += width * ranks;
            if ranks > 0 && drops {
                more += input + if is_copied { width * input } else { 0 };
            } else if ranks == 0 && !trains && !is_copied {
                less += width * input;
            }
        }
    }
    (trained + more / arch.n_layer().max(1)).saturating_sub(less / arch.n_layer().max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::GpuSummary;
    use crate::plan::ranks::on_ranks;
    use crate::plan::{Part, plan, target};

    /// The shape of SmolLM2-135M, 16 rows of 1,024 tokens, on one GPU.
    fn smollm2(set: &[&str]) -> Request {
        let shape = [
            "engine=torch",
            "model.n_layer=30",
            "model.d_model=576",
            "model.n_head=9",
            "model.n_kv_head=3",
            "model.d_ff=1536",
            "model.vocab_size=49152",
            "model.seq_len=1024",
            "train.micro_batch_size=16",
            "train.grad_accum_steps=1",
            "train.precision=bf16",
        ];
        let set = shape.iter().chain(set).map(ToString::to_string);
        let set: Vec<String> = set.collect();
        let request = target::resolve("size-100m", &set, &Default::default()).unwrap();
        let gpu = GpuSummary {
            name: "NVIDIA H200".into(),
            memory_bytes: 143_771 << 20,
        };
        on_ranks(request, &[gpu])
    }

    #[test]
    fn adapters_spare_no_input_and_their_dropout_has_masks() {
        let of = |set: &[&str]| bytes_per_token(&smollm2(set));
        let (d, q, f) = (576, 576, 1536);
        let whole = 19_236;
        assert_eq!(of(&[]), whole);
        let lora = "adapter.lora.rank=8";
        let low = 2 * 7 * 8;
        assert_eq!(of(&[lora, "adapter.lora.dropout=0"]), whole + low);
        let masks = 2 * d + q + f;
        assert_eq!(of(&[lora]), whole + low + masks + 2 * q);
        // Inputs of queries and values alone; of frozen matrices attention keeps its own result.
        let few = [lora, "adapter.lora.targets=minimal"];
        assert_eq!(of(&few), whole + 2 * 2 * 8 + d - 2 * (d + f));
        assert_eq!(of(&["train.freeze=[mlp]"]), whole - 2 * (d + f));
    }

    #[test]
    fn the_norms_of_a_parallel_residual_share_their_input() {
        let of = |set: &[&str]| bytes_per_token(&smollm2(set));
        let parallel = of(&["model.parallel_residual=true"]);
        assert_eq!(of(&[]) - parallel, 4 * 576);
    }

    /// The step of docs/torch.md: 12.3 GiB at most of PyTorch's allocator, without the context.
    #[test]
    fn a_step_with_adapters_is_near_what_a_gpu_was_seen_to_hold() {
        let planned = plan(&smollm2(&["adapter.lora.rank=8"])).memory;
        let activations = planned.bytes(Part::Activations);
        assert_eq!(activations, 23_764 * 16 * 1024 * 30);
        let beside = planned.bytes(Part::Context) + planned.bytes(Part::Fragmentation);
        let gib = (planned.steady() - beside) as f64 / f64::from(1 << 30);
        assert!((12.3 * 0.93..12.3 * 1.07).contains(&gib), "{gib}");
    }
}
