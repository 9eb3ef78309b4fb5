//! What a rank of PyTorch keeps of a micro-batch for the backward pass (`decoder.py`, `linear.py`, `mixers.py`): activations of blocks, by
//! the matrices that train or have adapters, and what mixers compute again. Logits and all else are in `general`.

use super::arch::Arch;
use super::general::matmul_width;
use super::request::{Checkpointing, Request};
use crate::base::human::{self, grouped};
use crate::nn::mixer::{Mixer, MixerConfig};
use crate::nn::role::{AttentionRole, MixerRole, MlpRole};
use crate::nn::{NormPlacement, ParamInfo, Role};

/// Tokens of rows that a mixer computes again at once (`MOST_TOKENS` of the worker's mixers), unless a row has more.
const MOST_TOKENS: u64 = 4096;
/// Tokens of a chunk of a gated delta net and of Mamba 2 (`CHUNK` of the worker's delta rule).
const CHUNK: u64 = 64;

/// Bytes of the activations of one micro-batch, and their formula.
pub(super) fn of(request: &Request) -> (f64, String) {
    let (mut bytes, mut how) = of_blocks(request);
    for (again, of) in [
        (recomputed_by_mixer(request), "a mixer"),
        (passed_by_experts(request), "experts"),
    ] {
        if again > 0 {
            how.push_str(&format!(
                ", plus {} of {of} (estimate)",
                human::bytes(again)
            ));
            bytes += again as f64;
        }
    }
    (bytes, how)
}

/// Bytes that the backward pass of one block of experts takes beside what is kept (`Mixed` of the worker's experts): of each place what comes
/// back twice, the product and its gradient, and that of gate and up; of each token the sum.
fn passed_by_experts(request: &Request) -> u64 {
    let (arch, config) = (&request.arch, request.arch.config());
    let Some(moe) = config.moe.as_ref().filter(|_| config.expert_blocks() > 0) else {
        return 0;
    };
    let inside = if config.mlp.gated() { 2 } else { 1 };
    let d_ff = moe.d_ff.unwrap_or(arch.shape().d_ff) as u64;
    let place = matmul_width(request) * (2 * arch.d_model() + (2 + inside) * d_ff);
    request.micro_tokens() * (moe.top_k as u64 * place + 4 * arch.d_model())
}

fn of_blocks(request: &Request) -> (f64, String) {
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
    let norms = match arch.config().norm_placement {
        // Both norms read the same stream, which autograd keeps once.
        NormPlacement::Pre if arch.config().parallel_residual => 1,
        NormPlacement::Both => 4,
        NormPlacement::Pre | NormPlacement::Post | NormPlacement::Reordered => 2,
    };
    4 * norms * arch.d_model()
        + width * arch.d_model()
        + of_mixing(arch, width)
        + of_mlps(arch, width)
}

/// The same of a feed-forward block in the mean: its input, gate, up and their product. Experts keep no product, and of routing logits and
/// scores in f32, of each choice the expert, the gate twice, and three places; the router reads its input in f32.
fn of_mlps(arch: &Arch, width: u64) -> u64 {
    let (config, d) = (arch.config(), arch.d_model());
    let inside = if config.mlp.gated() { 2 } else { 1 };
    let whole = |d_ff: usize| width * (d + (inside + 1) * d_ff as u64);
    let d_ff = arch.shape().d_ff;
    let of = |layer| match config.experts(layer) {
        None => whole(d_ff),
        Some(moe) => {
            let places = moe.top_k as u64;
            let routing = 8 * moe.n_expert as u64 + 40 * places;
            let read = if width < 4 { 4 * d } else { 0 };
            let own = width * (d + inside * places * moe.d_ff.unwrap_or(d_ff) as u64);
            let shared = moe.shared_d_ff.map_or(0, whole);
            // In f32 all read the same tensor.
            let once = if width < 4 || shared == 0 {
                0
            } else {
                width * d
            };
            routing + read + own + shared - once
        }
    };
    let all: u64 = (0..arch.n_layer() as usize).map(of).sum();
    all / arch.n_layer().max(1)
}

/// The same of attention, or of the mixer in its place, of a block in the mean: queries, keys, values, what attention gives and its
/// statistics, and the gate with the product; of a mixer its projection of the input, and what goes to the projection out.
fn of_mixing(arch: &Arch, width: u64) -> u64 {
    let config = arch.config();
    let of = |layer| match config.mixer(layer) {
        None if config.mla.is_some() => of_latent(arch, width),
        None if config.attention_sinks => of_sinks(arch, width),
        None => {
            let gate = if config.attention_gate { 2 } else { 0 };
            width * ((2 + gate) * arch.q_width() + 2 * arch.kv_width()) + 4 * arch.n_head()
        }
        Some(MixerConfig::ShortConv(_)) => width * 4 * arch.d_model(),
        Some(MixerConfig::GatedDeltaNet(net)) => {
            let channels = net.conv_channels(config.d_model);
            width * (channels + 2 * net.values() + 2 * net.n_value_head) as u64
        }
        Some(MixerConfig::Mamba2(net)) => width * (net.sizes().wide() + net.inner()) as u64,
    };
    let all: u64 = (0..arch.n_layer() as usize).map(of).sum();
    all / arch.n_layer().max(1)
}

/// Features that a sink adds to each head (`PADDING` of the worker's attention).
const SINK: u64 = 8;

/// The same of attention with sinks: queries, keys, values and what attention gives, each of all heads and as wide as a sink makes them, and what
/// goes out without that.
fn of_sinks(arch: &Arch, width: u64) -> u64 {
    let gate = if arch.config().attention_gate { 2 } else { 0 };
    let wide = arch.q_width() + SINK * arch.n_head();
    width * (4 * wide + (1 + gate) * arch.q_width()) + 4 * arch.n_head()
}

/// The same of latent attention: inputs of the norms of latent vectors in f32 and what they give; of all heads queries, keys, values and what
/// attention gives, in one width, and without its zeros what goes out.
fn of_latent(arch: &Arch, width: u64) -> u64 {
    let Some(mla) = &arch.config().mla else {
        return 0;
    };
    let ranks = (mla.q_rank.unwrap_or(0) + mla.kv_rank) as u64;
    let out = if is_cut(arch) {
        arch.n_head() * mla.v_dim as u64
    } else {
        0
    };
    (4 + width) * ranks + width * (4 * arch.q_width() + out) + 4 * arch.n_head()
}

/// Whether values of latent attention are narrower than the heads that attention computes with.
fn is_cut(arch: &Arch) -> bool {
    let mla = arch.config().mla.as_ref();
    mla.is_some_and(|mla| mla.v_dim < mla.head_dim())
}

/// Bytes that one mixer computes again in the backward pass: in f32, as if rows were packed. Counted on a processor (PyTorch 2.15) as what
/// autograd keeps: 69,000 numbers a token of a gated delta net of 16 heads of 128 features, 87,000 of packed rows; of Granite 4.0 H 1B's
/// Mamba 2 (48 heads of 64 features) 53,000 and 64,000.
fn recomputed_by_mixer(request: &Request) -> u64 {
    let config = request.arch.config();
    // In f32 the input is there already.
    let cast = u64::from(matmul_width(request) < 4);
    let of = |mixer: &MixerConfig| {
        let channels = mixer.conv_channels(config.d_model) as u64;
        let masked = (mixer.conv_len() as u64 - 1) * channels;
        masked
            + match mixer {
                MixerConfig::ShortConv(_) => (4 + 3 * cast) * channels,
                MixerConfig::Mamba2(net) => {
                    let (heads, inner) = (net.n_head as u64, net.inner() as u64);
                    let states = 2 * inner * net.state_dim as u64 / CHUNK;
                    let wide = net.sizes().wide() as u64;
                    4 * channels + 7 * inner + 2 * CHUNK * heads + states + cast * wide
                }
                MixerConfig::GatedDeltaNet(net) => {
                    let (heads, values) = (net.n_value_head as u64, net.values() as u64);
                    let keys = heads * net.key_dim as u64;
                    let states = 2 * keys * net.value_dim as u64 / CHUNK;
                    let wide = channels + values + 2 * heads;
                    3 * channels + 10 * keys + 8 * values + 6 * CHUNK * heads + states + cast * wide
                }
            }
    };
    let layers = 0..request.arch.n_layer() as usize;
    let most = layers.filter_map(|layer| config.mixer(layer).map(of)).max();
    let rows = (MOST_TOKENS / request.seq_len.max(1)).max(1);
    let tokens = request.micro_tokens().min(rows * request.seq_len);
    4 * tokens * most.unwrap_or(0)
}

/// Matrices of a block that take the same input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reader {
    Attention,
    Output,
    Mixer,
    MixerOutput,
    Mlp,
    Down,
}

impl Reader {
    const ALL: [Reader; 6] = [
        Reader::Attention,
        Reader::Output,
        Reader::Mixer,
        Reader::MixerOutput,
        Reader::Mlp,
        Reader::Down,
    ];

    fn of(role: Role) -> Option<Reader> {
        Some(match role {
            Role::Attention(AttentionRole::Output) => Reader::Output,
            Role::Attention(AttentionRole::Sink) => return None,
            Role::Attention(_) => Reader::Attention,
            Role::Mixer(MixerRole::Output) => Reader::MixerOutput,
            Role::Mixer(MixerRole::In) => Reader::Mixer,
            Role::Mlp(MlpRole::Down) => Reader::Down,
            Role::Mlp(_) => Reader::Mlp,
            _ => return None,
        })
    }

    /// Elements of its input, per token; of feed-forward blocks beside experts those of the shared one.
    fn input(self, arch: &Arch, layer: u64) -> u64 {
        match self {
            Reader::Attention | Reader::Mixer | Reader::Mlp => arch.d_model(),
            Reader::Output => {
                let of_head = arch.config().mla.as_ref().map(|mla| mla.v_dim as u64);
                of_head.map_or(arch.q_width(), |v_dim| arch.n_head() * v_dim)
            }
            Reader::MixerOutput => match &arch.config().mixer {
                Some(MixerConfig::GatedDeltaNet(net)) => net.values() as u64,
                Some(MixerConfig::Mamba2(net)) => net.inner() as u64,
                _ => arch.d_model(),
            },
            Reader::Down => {
                let shared = arch.config().experts(layer as usize);
                let shared = shared.map(|moe| moe.shared_d_ff.unwrap_or(0) as u64);
                shared.unwrap_or(arch.shape().d_ff as u64)
            }
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
        // Experts keep the same, trained or not.
        .filter(|info| info.layer.is_some() && info.expert.is_none() && info.shape.len() == 2);
    let matrices: Vec<_> = matrices
        .filter_map(|info| Some((info.layer?, Reader::of(info.role)?, info)))
        .collect();
    let (mut more, mut less) = (0, 0);
    for layer in 0..arch.n_layer() {
        for reader in Reader::ALL {
            let own = matrices
                .iter()
                .filter(|it| u64::from(it.0) == layer && it.1 == reader);
            let mut own = own.peekable();
            if own.peek().is_none() {
                continue;
            }
            let (mut ranks, mut trains) = (0, false);
            for (.., info) in own {
                ranks += rank(info).unwrap_or(0);
                trains |= info.trains();
            }
            // What attention gives is kept by it, unless a gate or a cut comes between.
            let config = arch.config();
            let gives_other = config.attention_gate || config.attention_sinks || is_cut(arch);
            let is_copied = reader == Reader::Output && !gives_other;
            let input = reader.input(arch, layer);
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

    /// The worker's own constants decide what ranks keep: a plan by others would be wrong in silence.
    #[test]
    fn the_constants_are_those_of_the_worker() {
        let delta = include_str!("../../../../assets/torch_worker/llmtui_worker/delta.py");
        let mixers = include_str!("../../../../assets/torch_worker/llmtui_worker/mixers.py");
        let has = |file: &str, name: &str, value: u64| {
            let line = format!("{name} = {value}");
            file.lines().any(|of_file| of_file.trim_end() == line)
        };
        assert!(has(delta, "CHUNK", CHUNK));
        assert!(has(mixers, "MOST_TOKENS", MOST_TOKENS));
    }

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

    /// Qwen 3.5 0.8B's: three blocks of four with a gated delta net of 16 heads of 128 features, then attention with a gate.
    #[test]
    fn mixers_keep_what_they_are_given_and_compute_the_rest_again() {
        let qwen = [
            "engine=torch",
            "model.n_layer=24",
            "model.d_model=1024",
            "model.n_head=8",
            "model.n_kv_head=2",
            "model.head_dim=256",
            "model.d_ff=3584",
            "model.vocab_size=248320",
            "model.seq_len=1024",
            "model.attention_every=4",
            "model.attention_gate=true",
            "model.mixer={gated_delta_net: {n_key_head: 16, n_value_head: 16, key_dim: 128, value_dim: 128}}",
            "train.micro_batch_size=16",
            "train.grad_accum_steps=1",
        ];
        let of = |set: &[&str]| {
            let set: Vec<String> = qwen.iter().chain(set).map(ToString::to_string).collect();
            let request = target::resolve("size-100m", &set, &Default::default()).unwrap();
            let gpu = GpuSummary {
                name: "NVIDIA H200".into(),
                memory_bytes: 143_771 << 20,
            };
            on_ranks(request, &[gpu])
        };
        let (d, f, q, kv, values) = (1024, 3584, 2048, 512, 2048);
        let (net, attention) = (6144 + 2 * values + 2 * 16, 4 * q + 2 * kv);
        let f32s = of(&["train.precision=f32"]);
        let bytes = |width: u64| {
            8 * d + width * (2 * d + 3 * f) + (3 * width * net + width * attention + 4 * 8) / 4
        };
        assert_eq!(bytes_per_token(&f32s), bytes(4));
        // Four rows at a time; 87,285 numbers were counted a token.
        let again = recomputed_by_mixer(&f32s) as f64;
        assert!(
            (again / (4.0 * 4096.0 * 87_285.0) - 1.0).abs() < 0.02,
            "{again}"
        );
        let bf16 = of(&["train.precision=bf16"]);
        let cast = 4 * 4096 * (6144 + values + 32);
        assert_eq!(
            recomputed_by_mixer(&bf16),
            recomputed_by_mixer(&f32s) + cast
        );
        let planned = plan(&bf16).memory.bytes(Part::Activations);
        assert_eq!(
            planned,
            bytes(2) * 16 * 1024 * 24 + recomputed_by_mixer(&bf16)
        );
        // Under adapters of feed-forward blocks neither the inputs of mixing nor those of the projections out are kept.
        let few = of(&[
            "train.precision=bf16",
            "adapter={lora: {rank: 8, dropout: 0.0, targets: custom, custom: [gate, up, down]}}",
        ]);
        let less = 2 * d + (3 * 2 * values + 2 * q) / 4;
        assert_eq!(bytes_per_token(&few), bytes(2) + 2 * 3 * 8 - less);
    }

    #[test]
    fn experts_keep_what_their_tokens_need_and_pass_one_block_back_at_a_time() {
        let moe = "model.moe={n_expert: 16, top_k: 4, d_ff: 256, shared_d_ff: 512, every: 2}";
        let (plain, mixed) = (smollm2(&[]), smollm2(&[moe]));
        let (d, f, w) = (576, 1536, 2);
        let dense = w * (d + 3 * f);
        let routing = 4 * 2 * 16 + 40 * 4;
        // The router reads f32; experts and the shared one have a rounded copy each.
        let experts = routing + 4 * d + w * (d + 2 * 4 * 256) + w * (d + 3 * 512);
        // One block of two has experts.
        let more = (experts - dense) / 2;
        assert_eq!(bytes_per_token(&mixed) - bytes_per_token(&plain), more);
        assert_eq!(passed_by_experts(&plain), 0);
        let place = w * (2 * d + 4 * 256);
        let passed = 16 * 1024 * (4 * place + 4 * d);
        assert_eq!(passed_by_experts(&mixed), passed);
        let planned = plan(&mixed).memory.bytes(Part::Activations);
        assert_eq!(planned, bytes_per_token(&mixed) * 16 * 1024 * 30 + passed);
        // Frozen experts keep the same: gates have a gradient.
        let frozen = smollm2(&[moe, "train.freeze=[experts]"]);
        assert_eq!(bytes_per_token(&frozen), bytes_per_token(&mixed));
    }

    /// DeepSeek-V2-Lite's: values of 128 features, keys of 192.
    #[test]
    fn latent_attention_keeps_whole_heads() {
        let of = |set: &[&str]| {
            let mla = "model.mla={kv_rank: 512, nope_dim: 128, rope_dim: 64, v_dim: 128}";
            bytes_per_token(&smollm2(
                &[&[mla, "model.n_kv_head=null", "model.n_head=16"], set].concat(),
            ))
        };
        let (d, f, heads) = (576, 1536, 16);
        let whole = 8 * d + 2 * (2 * d + 3 * f) + 6 * 512 + 2 * heads * (4 * 192 + 128) + 4 * heads;
        assert_eq!(of(&[]), whole);
        // What goes out is a cut of what attention keeps.
        let few =
            "adapter={lora: {rank: 8, dropout: 0.0, targets: custom, custom: [gate, up, down]}}";
        assert_eq!(of(&[few]), whole + 2 * 3 * 8 - 2 * (d + heads * 128));
    }

    /// Granite 4.0 H 1B's; 63,516 numbers were counted a token.
    #[test]
    fn mamba_2_computes_its_chunks_again() {
        let mamba = "model.mixer={mamba2: {n_head: 48, head_dim: 64, state_dim: 128}}";
        let f32s = smollm2(&[mamba, "train.precision=f32"]);
        let again = recomputed_by_mixer(&f32s) as f64;
        let share = again / (4.0 * 4096.0 * 63_516.0);
        assert!((share - 1.0).abs() < 0.02, "{share}");
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
