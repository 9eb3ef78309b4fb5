//! Memory of one GPU in a typical trainer, by formulas from the literature. This program's own CPU engine is in
//! `engine`.

use super::arch::Arch;
use super::ledger::{Ledger, Part};
use super::request::{
    AttentionKind, BaseFormat, Checkpointing, Logits, ReferencePlan, Request, TeacherModel,
};
use super::scheme::{BytesPerParam, Precision, bytes_per_param};
use super::{rank_activations, writing};
use crate::base::human::{self, grouped, short};
use crate::nn::ParamInfo;

/// Bytes per logit: 16-bit, an f32 copy, and the softmax that becomes the gradient.
const LOGIT_BYTES: u64 = 10;
/// The same in a rank of PyTorch under this program (`head.py`), beside logits and their gradient in the format of matmuls: in f32 the logits below their
/// largest and their powers.
const RANK_LOGIT_BYTES: u64 = 8;
/// What a teacher's logit beside each takes more, f32 (`distill.py`): both below their caps, log-probabilities, probabilities, the mixture's and what is
/// summed.
const TAUGHT: u64 = 32;
/// Elements of experts that a rank orthogonalizes at once (`MOST` of the worker's Muon), and bytes for each.
const MOST_ORTHOGONAL: usize = 1 << 26;
const ORTHOGONAL: f64 = 20.0;
/// DDP's buckets hold a second copy of the gradients, f32.
const BUCKET_BYTES: f64 = 4.0;
/// 16-bit copies of f32 weights that autocast keeps for a forward pass.
const AUTOCAST_BYTES: f64 = 2.0;
/// The CUDA context with its libraries and their workspaces (0.3 to 1.2 GB).
const CONTEXT: f64 = 1.0e9;
/// Buffers of collectives (0.5 to 2 GB).
const COLLECTIVES: f64 = 0.5e9;
/// Allocator overhead on memory that is allocated and freed every step (5 to 10 %).
const FRAGMENTATION: f64 = 0.05;
/// Fraction of the activations a frozen base still needs in other trainers: inputs of frozen matrices are not stored for a weight gradient.
const FROZEN_BASE: f64 = 0.85;

/// Elements stored per token and layer: `4h + 2·q + 2·kv + k·f`, k = 4 gated (gate, up, silu, product), 2 plain; with mixers in
/// place of attention what `Arch::mixing_elements` says.
pub(super) fn elements_per_token(arch: &Arch) -> u64 {
    let wide = if arch.config().mlp.gated() { 4 } else { 2 };
    4 * arch.d_model() + arch.mixing_elements() + wide * arch.active_d_ff()
}

/// Bytes of all activations of `tokens` tokens in sequences of `seq_len`, in 16 bits.
pub(super) fn activation_bytes(
    arch: &Arch,
    tokens: u64,
    seq_len: u64,
    attention: AttentionKind,
    checkpointing: Checkpointing,
) -> f64 {
    let layer = tokens as f64
        * match attention {
            AttentionKind::Flash => 2 * elements_per_token(arch) + 4 * arch.n_head(),
            // Scores and probabilities of every head, in 16 bits.
            AttentionKind::Eager => 2 * elements_per_token(arch) + 4 * arch.n_head() * seq_len,
        } as f64;
    match checkpointing {
        Checkpointing::Off => layer * arch.n_layer() as f64,
        some => {
            let segment = some.segment_len(arch.n_layer());
            let kept = arch.n_layer().div_ceil(segment);
            (2 * arch.d_model() * kept * tokens) as f64 + segment as f64 * layer
        }
    }
}

/// The memory of one GPU.
pub fn ledger(request: &Request) -> Ledger {
    let mut ledger = Ledger::default();
    let bytes = bytes_per_param(request.precision, request.update);
    states(request, bytes, &mut ledger);
    batch(request, &mut ledger);
    rollouts(request, &mut ledger);
    companions(request, bytes, &mut ledger);
    if request.n_devices > 1 || shares(request) {
        communication(request, &mut ledger);
    }
    orthogonalized(request, &mut ledger);
    autocast(request, &mut ledger);
    ledger.add(
        Part::Context,
        CONTEXT,
        "CUDA context, libraries and workspaces: 0.3 to 1.2 GB",
    );
    let churn: u64 = [
        Part::Activations,
        Part::Logits,
        Part::Gradients,
        Part::Rollouts,
    ]
    .iter()
    .map(|part| ledger.bytes(*part))
    .sum();
    let how = "5 % of the memory allocated every step; 2 % with expandable segments";
    ledger.add(Part::Fragmentation, FRAGMENTATION * churn as f64, how);
    ledger
}

/// 16-bit copies of f32 weights on a rank of PyTorch in bf16. Without recomputation the backward pass has those of all blocks, which FSDP2
/// does not share: it frees the weights that they were taken from. Experts' are made again there, a block at a time.
fn autocast(request: &Request, ledger: &mut Ledger) {
    let arch = &request.arch;
    if request.extras.ranks.is_none() || request.precision != Precision::Fp32Bf16Matmuls {
        return;
    }
    let n = if shares(request) {
        let blocks = match request.checkpointing {
            Checkpointing::Off => arch.n_layer(),
            some => some.segment_len(arch.n_layer()) + 1,
        };
        let experts = arch.n_in_experts();
        let others = arch.layer_params() - experts / arch.n_layer().max(1);
        let one = experts / arch.config().expert_blocks().max(1) as u64;
        blocks.min(arch.n_layer()) * others + one + head_params(arch)
    } else if request.lora.is_some() {
        request.n_trainable() + arch.kept_in_16_bit()
    } else {
        arch.n_params() - frozen_parts_on_rank(request)
    };
    let how = format!("16-bit copies of {} weights (autocast)", short(n as f64));
    ledger.add(Part::Autocast, AUTOCAST_BYTES * n as f64, how);
}

/// Parameters of the matrix that gives logits, be it the embeddings' too.
fn head_params(arch: &Arch) -> u64 {
    match arch.config().is_reward_model() {
        true => arch.d_model(),
        false => arch.d_model() * arch.vocab_size(),
    }
}

/// Whether a rank of PyTorch has a share of each block alone (FSDP2), and gathers the blocks one after the other.
fn shares(request: &Request) -> bool {
    let ranks = request.extras.ranks;
    ranks.is_some_and(|ranks| request.zero >= 3 || ranks.offloaded)
}

/// Whether weights, gradients and moments lie in main memory, which `host` counts.
fn offloads(request: &Request) -> bool {
    request.extras.ranks.is_some_and(|ranks| ranks.offloaded)
}

/// Weights, gradients and optimizer state, whole or sharded; or a frozen base with adapters.
fn states(request: &Request, bytes: BytesPerParam, ledger: &mut Ledger) {
    if offloads(request) {
        return;
    }
    let n = request.arch.n_params() as f64;
    if let Some(lora) = request.lora {
        frozen_base(request, ledger);
        let trainable = request.n_trainable() as f64;
        let how = format!(
            "{} parameters ({}, {}) × {} B",
            short(trainable),
            request.rank_words().unwrap_or_default(),
            lora.targets.word(),
            bytes.sum()
        );
        ledger.add(Part::Adapters, trainable * bytes.sum(), how);
        return;
    }
    let shard = |from: u8| {
        if request.zero >= from {
            request.n_devices as f64
        } else {
            1.0
        }
    };
    let mut add = |part, (bytes, how): (f64, String), from: u8| {
        let over = shard(from);
        let share = if over > 1.0 {
            format!(" / {over} GPUs (ZeRO-{})", request.zero)
        } else {
            String::new()
        };
        ledger.add(part, bytes / over, format!("{how}{share}"));
    };
    let of = |n: f64, each: f64| (n * each, format!("{} parameters × {each} B", short(n)));
    let weights = match frozen_parts_on_rank(request) as f64 {
        0.0 => of(n, bytes.weights),
        halved => {
            let (rest, how) = of(n - halved, bytes.weights);
            let how = format!("{how}, {} in frozen matrices × 2 B", short(halved));
            (rest + 2.0 * halved, how)
        }
    };
    let trained = request.n_trainable() as f64;
    add(Part::Weights, weights, 3);
    add(Part::Gradients, of(trained, bytes.gradient), 2);
    add(Part::Optimizer, of(trained, bytes.optimizer), 1);
}

/// Parameters in matrices of blocks that are frozen by name on a rank that holds these as [`frozen_on_rank`] says.
fn frozen_parts_on_rank(request: &Request) -> u64 {
    if !request.has_frozen_parts() || !rounds_frozen(request) {
        return 0;
    }
    let infos = request.param_infos();
    let in_block = |info: &&ParamInfo| info.layer.is_some() && info.shape.len() == 2;
    let frozen = infos.iter().filter(|info| !info.trains()).filter(in_block);
    frozen.map(|info| info.len as u64).sum()
}

/// Weights without gradients: quantized except embeddings, norms and head.
fn frozen_base(request: &Request, ledger: &mut Ledger) {
    let (arch, shard) = (&request.arch, frozen_shard(request));
    let n = arch.n_params();
    let Some(bits) = request.base.bits() else {
        if let Some((bytes, how)) = frozen_on_rank(request) {
            return ledger.add(Part::Weights, bytes, how);
        }
        // Ranks have no quantized base; a trainer that has one keeps the file's formats.
        let packed = request.extras.packed_bytes;
        if let Some(bytes) = packed.filter(|_| request.extras.ranks.is_none()) {
            let how = format!(
                "{} parameters in the file's format, frozen",
                short(n as f64)
            );
            return ledger.add(Part::QuantizedBase, bytes as f64 / shard, how);
        }
        let width = request.precision.weight_bytes();
        let how = format!("{} frozen parameters × {width} B", short(n as f64));
        return ledger.add(Part::Weights, n as f64 * width / shard, how);
    };
    let kept = arch.kept_in_16_bit();
    let how = format!(
        "{} parameters × {bits} bits ({})",
        short((n - kept) as f64),
        request.base.word()
    );
    ledger.add(
        Part::QuantizedBase,
        (n - kept) as f64 * bits / 8.0 / shard,
        how,
    );
    let how = format!(
        "embeddings, norms and head stay in 16 bits: {} × 2 B",
        short(kept as f64)
    );
    ledger.add(Part::Weights, kept as f64 * 2.0 / shard, how);
}

/// A frozen model on a rank of PyTorch in bf16 that does not share it (`layers.py`): its matrices are held as matmuls take them, what is
/// looked up, norms and the head in f32. `None` where weights stay as they are.
fn frozen_on_rank(request: &Request) -> Option<(f64, String)> {
    if !rounds_frozen(request) {
        return None;
    }
    let kept = request.arch.kept_in_16_bit();
    let matrices = request.arch.n_params() - kept;
    let how = format!(
        "{} frozen in matrices × 2 B, {} in embeddings, norms and head × 4 B",
        short(matrices as f64),
        short(kept as f64)
    );
    Some((2.0 * matrices as f64 + 4.0 * kept as f64, how))
}

/// Whether a rank of PyTorch holds frozen matrices in bf16.
fn rounds_frozen(request: &Request) -> bool {
    let ranks = request.extras.ranks;
    let is_whole = ranks.is_some_and(|ranks| request.zero == 0 && !ranks.offloaded);
    is_whole && request.precision == Precision::Fp32Bf16Matmuls
}

fn frozen_shard(request: &Request) -> f64 {
    if request.zero >= 3 {
        request.n_devices as f64
    } else {
        1.0
    }
}

/// Bytes of a factor of a matmul.
pub(super) fn matmul_width(request: &Request) -> u64 {
    match request.precision {
        Precision::Fp32 => 4,
        _ => 2,
    }
}

/// Activations of one micro-batch in a typical trainer.
fn activations(request: &Request, share: f64) -> (f64, String) {
    let (arch, tokens) = (&request.arch, request.micro_tokens());
    let bytes = activation_bytes(
        arch,
        tokens,
        request.seq_len,
        request.attention,
        request.checkpointing,
    );
    let width = match request.precision {
        Precision::Fp32 => 2.0,
        // Autocast: the residual stream and the inputs of norms stay in f32 beside their 16-bit copies, 4·d elements of 4 B.
        Precision::Fp32Bf16Matmuls => {
            1.0 + (4 * arch.d_model()) as f64 / elements_per_token(arch) as f64 * 2.0
        }
        Precision::Mixed | Precision::MixedFp32Grads | Precision::Bf16 => 1.0,
    };
    let how = match request.checkpointing {
        Checkpointing::Off => format!(
            "2 B × {} elements × {} tokens × {} layers{}",
            short(elements_per_token(arch) as f64),
            grouped(tokens),
            arch.n_layer(),
            words_of(share)
        ),
        Checkpointing::EveryN(n) => format!(
            "checkpointed: 2 B × {} × {} tokens × every {n} of {} layers, plus {n} in full",
            arch.d_model(),
            grouped(tokens),
            arch.n_layer()
        ),
        Checkpointing::Full => format!(
            "checkpointed: 2 B × {} × {} tokens × {} layers, plus one layer in full",
            arch.d_model(),
            grouped(tokens),
            arch.n_layer()
        ),
    };
    (bytes * share * width, how)
}

fn words_of(share: f64) -> &'static str {
    if share < 1.0 {
        " × 0.85 (frozen base)"
    } else {
        ""
    }
}

/// Activations and logits of one micro-batch.
fn batch(request: &Request, ledger: &mut Ledger) {
    let (arch, tokens) = (&request.arch, request.micro_tokens());
    let frozen = request.lora.is_some() && request.checkpointing == Checkpointing::Off;
    let share = if frozen { FROZEN_BASE } else { 1.0 };
    let (bytes, how) = match request.extras.ranks {
        Some(_) => rank_activations::of(request),
        None => activations(request, share),
    };
    ledger.add(Part::Activations, bytes, how);
    let (rows, words) = match request.logits {
        Logits::Whole => (tokens, "all"),
        Logits::Chunked(chunk) => (chunk.min(tokens), "a chunk of"),
    };
    let taught = request.teacher().map(|teacher| teacher.tokens);
    let taught = taught.filter(|_| request.extras.ranks.is_some());
    let each = match request.extras.ranks {
        Some(_) => RANK_LOGIT_BYTES + 2 * matmul_width(request) + taught.map_or(0, |_| TAUGHT),
        None => LOGIT_BYTES,
    };
    // A reward model gives each token one score.
    let logits = match arch.config().is_reward_model() {
        true => 1,
        false => arch.vocab_size(),
    };
    // A chunk has the logits of both.
    let share = |theirs: u64| (rows * logits).div_ceil(logits + theirs).max(1);
    let rows = match request.logits {
        Logits::Chunked(_) => taught.map_or(rows, share),
        Logits::Whole => rows,
    };
    let how = format!(
        "{words} {} tokens × {} logits × {each} B",
        grouped(rows),
        grouped(logits)
    );
    ledger.add(Part::Logits, (rows * logits * each) as f64, how);
}

/// KV cache of the rollouts.
fn rollouts(request: &Request, ledger: &mut Ledger) {
    if !request.method.rolls_out() {
        return;
    }
    // Ranks keep them in the format of matmuls, each those of its share of the answers and of one more prompt.
    let (texts, width) = match request.extras.ranks {
        Some(_) => {
            let own = request.rollouts.div_ceil(request.n_devices.max(1)) + 1;
            (own, matmul_width(request))
        }
        None => (request.rollouts, 2),
    };
    let (tokens, token) = (request.seq_len, request.arch.kv_bytes_per_token(width));
    let text = writing::kv_bytes(request, tokens, width);
    let how = match text == tokens * token {
        true => format!("{texts} completions × {tokens} tokens × {token} B of KV cache"),
        false => {
            let windows = match request.arch.config().sliding_window {
                Some(_) => ", of sliding windows no more than the window",
                None => "",
            };
            let states = match request.arch.state_bytes() {
                0 => String::new(),
                states => format!(", with {} of states", human::bytes(states)),
            };
            format!(
                "{texts} completions of {tokens} tokens × {} of KV cache{windows}{states}",
                human::bytes(text)
            )
        }
    };
    ledger.add(Part::Rollouts, (texts * text) as f64, how);
}

/// Models besides the policy.
fn companions(request: &Request, bytes: BytesPerParam, ledger: &mut Ledger) {
    let n = request.arch.n_params() as f64;
    reward_models(request, ledger);
    teacher(request, ledger);
    if request.reference_plan() == ReferencePlan::Copy && !offloads(request) {
        // A rank that shares the policy shares its copy as it is.
        let each = if request.extras.ranks.is_some() {
            4.0
        } else {
            2.0
        };
        let (bytes, how) = frozen_on_rank(request).unwrap_or_else(|| {
            let how = format!("{} frozen parameters × {each} B", short(n));
            (each * n / frozen_shard(request), how)
        });
        ledger.add(Part::Reference, bytes, how);
    }
    // Offloaded shares are in main memory.
    if request.has_critic() && !offloads(request) {
        let trained = match request.lora {
            Some(_) => request.n_trainable() as f64 * bytes.sum(),
            None => {
                n * (bytes.weights / shard_of(request, 3)
                    + bytes.gradient / shard_of(request, 2)
                    + bytes.optimizer / shard_of(request, 1))
            }
        };
        let how = match request.lora {
            Some(_) if request.extras.ranks.is_some() => {
                let base = match frozen_on_rank(request) {
                    Some((base, _)) => base,
                    None => 4.0 * n / frozen_shard(request),
                };
                ledger.add(Part::Critic, base, "a base of its own, frozen");
                "and its adapters".to_string()
            }
            Some(_) => "adapters on the shared base".to_string(),
            None => format!("as large as the policy: {} × {} B", short(n), bytes.sum()),
        };
        ledger.add(Part::Critic, trained, how);
    }
}

/// In 16 bits, or as its file has it.
fn teacher(request: &Request, ledger: &mut Ledger) {
    let Some(teacher) = request.teacher() else {
        return;
    };
    if request.extras.ranks.is_some() {
        return teacher_on_ranks(request, teacher, ledger);
    }
    let (n, shard) = (teacher.params as f64, frozen_shard(request));
    let (bytes, each) = match teacher.is_packed {
        true => (teacher.weight_bytes as f64, "in the formats of its file"),
        false => (2.0 * n, "× 2 B"),
    };
    let how = format!("{} frozen parameters {each}", short(n));
    ledger.add(Part::Teacher, bytes / shard, how);
}

/// Matrices of blocks as matmuls take them, in shards as f32; what lies outside of blocks is f32, and gathered for a pass.
fn teacher_on_ranks(request: &Request, teacher: TeacherModel, ledger: &mut Ledger) {
    let (n, outside) = (teacher.params as f64, teacher.outside as f64);
    let of_all = format!("{} frozen parameters", short(n));
    let (bytes, how) = match (offloads(request), request.zero >= 3) {
        (true, _) => (
            4.0 * outside,
            format!("embeddings and head of {of_all}, gathered"),
        ),
        (false, true) => (
            4.0 * (n / frozen_shard(request) + outside),
            format!("{of_all} × 4 B, a share each; embeddings and head gathered"),
        ),
        (false, false) => {
            let width = matmul_width(request);
            let bytes = width as f64 * (n - outside) + 4.0 * outside;
            (bytes, format!("{of_all} × {width} B, embeddings 4 B"))
        }
    };
    ledger.add(Part::Teacher, bytes, how);
}

/// Those of a spec; of a method that needs one, without a spec, one as large as the policy. Ranks leave scoring to the process that
/// drives them.
fn reward_models(request: &Request, ledger: &mut Ledger) {
    let (n, what) = match request.answers() {
        _ if request.extras.ranks.is_some() => return,
        Some(_) => (request.extras.rewards.params, ""),
        None if request.method.facts().passes.reward_model => {
            (request.arch.n_params(), "as large as the policy: ")
        }
        None => return,
    };
    let how = format!("{what}{} × 2 B", short(n as f64));
    let bytes = 2.0 * n as f64 / frozen_shard(request);
    ledger.add(Part::RewardModel, bytes, how);
}

fn shard_of(request: &Request, from: u8) -> f64 {
    if request.zero >= from {
        request.n_devices as f64
    } else {
        1.0
    }
}

fn communication(request: &Request, ledger: &mut Ledger) {
    let (mut bytes, mut how) = match request.n_devices {
        1 => (0.0, String::from("no other rank")),
        _ => (COLLECTIVES, String::from("buffers of collectives 0.5 GB")),
    };
    if request.extras.ranks.is_some() && request.zero == 0 {
        bytes += BUCKET_BYTES * request.n_trainable() as f64;
        how.push_str(&format!(
            ", DDP's buckets {} × {BUCKET_BYTES} B",
            short(request.n_trainable() as f64)
        ));
    }
    let layer = request.arch.layer_params();
    if shares(request) {
        let (gathered, words) = gathered(request);
        bytes += gathered;
        how.push_str(&words);
    } else if request.zero >= 3 {
        // The block in use and the one being prefetched.
        bytes += 2.0 * 2.0 * layer as f64;
        how.push_str(&format!(
            ", two gathered blocks of {} × 2 B",
            short(layer as f64)
        ));
    }
    ledger.add(Part::Communication, bytes, how);
}

/// What a rank has of the largest matrices that Muon orthogonalizes at once (`muon.py`): the whole direction, the step, and twice what Newton-Schulz
/// iterations read and write.
fn orthogonalized(request: &Request, ledger: &mut Ledger) {
    let config = request.update.config();
    let rule = config.filter(|_| request.extras.ranks.is_some());
    let rule = rule.map(|config| config.optimizer);
    let Some(rule) = rule.filter(|rule| rule.for_ranks().is_some()) else {
        return;
    };
    let experts = request.arch.config().moe.as_ref();
    let at_once = |info: &ParamInfo| match (info.expert, experts) {
        (Some(_), Some(moe)) => info.len.max((info.len * moe.n_expert).min(MOST_ORTHOGONAL)),
        _ => info.len,
    };
    let infos = request.param_infos();
    let own = infos.iter().filter(|info| info.trains());
    let own = own.filter(|info| rule.blocks(info).is_some());
    let largest = own.map(at_once).max().unwrap_or(0) as f64;
    let how = format!(
        "the largest matrices that are orthogonalized at once: {} × {ORTHOGONAL} B",
        short(largest)
    );
    ledger.add(Part::GradientBuffers, ORTHOGONAL * largest, how);
}

/// What FSDP2 has whole on each rank, in f32: the block in use, the one being prefetched and the gradient of one; and from the forward pass to the end
/// of the backward pass what lies outside of blocks, with its gradient.
fn gathered(request: &Request) -> (f64, String) {
    let (layer, outside) = (request.arch.layer_params(), request.arch.kept_in_16_bit());
    if request.has_frozen_parts() {
        let gradients = gathered_gradients(request);
        let words = format!(
            ", gathered in f32: 2 × {} of blocks, {} of embeddings and head, and gradients of {}",
            short(layer as f64),
            short(outside as f64),
            short(gradients as f64),
        );
        return (4.0 * (2 * layer + outside + gradients) as f64, words);
    }
    let (blocks, copies, of_gradient) = match request.lora {
        Some(_) => (2, 1, ""),
        None => (3, 2, ", their gradients among them"),
    };
    let words = format!(
        ", gathered in f32: {blocks} × {} of blocks, {copies} × {} of embeddings and head{of_gradient}",
        short(layer as f64),
        short(outside as f64),
    );
    (4.0 * (blocks * layer + copies * outside) as f64, words)
}

/// Gradients that are there at once where parts are frozen by name: those of the block that trains most, and of what lies outside of blocks.
fn gathered_gradients(request: &Request) -> u64 {
    let mut blocks = vec![0; request.arch.n_layer() as usize];
    let mut outside = 0;
    for info in request.param_infos().iter().filter(|info| info.trains()) {
        match info.layer {
            Some(layer) => blocks[layer as usize] += info.len as u64,
            None => outside += info.len as u64,
        }
    }
    outside + blocks.into_iter().max().unwrap_or_default()
}

/// True if a frozen base is stored in fewer bits than it is computed in.
pub fn is_quantized(request: &Request) -> bool {
    request.lora.is_some() && request.base != BaseFormat::Whole
}
