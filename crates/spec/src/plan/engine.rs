//! Memory of this program's engine on a CPU: its actual allocations. Activation counts come from `nn::footprint`, which a
//! test compares with real steps; the estimates for GPU trainers are in `general`.

use super::ledger::{Ledger, Part};
use super::request::{Answers, Checkpointing, Preflight, ReferencePlan, Request};
use super::scheme::Precision;
use crate::base::human::{self, grouped, short};
use crate::data::ANSWER_PLACES;
use crate::nn::footprint::{self, ComputeDtype, Footprint, Subject};
use crate::nn::{AdapterConfig, HeadKind, ModelConfig, TrainableSet, storage_name};

/// The process around any model, as resident memory: 27 MiB are pages of the program's own file, the rest threads, heap and
/// buffers. Measured as what runs of toy models took beyond the other parts: 40 to 51 MiB, the more the longer they were (release
/// build, Linux).
const RUNTIME: f64 = 44.0 * MIB;
/// A token of a tokenizer: 35 MB measured for the 49,152 of SmolLM2.
const TOKEN_BYTES: u64 = 700;
const MIB: f64 = 1024.0 * 1024.0;

/// The engine's memory at its peak.
pub fn ledger(request: &Request) -> Ledger {
    let mut ledger = Ledger::default();
    let arch = &request.arch;
    let n = arch.n_params() as f64;
    if let Some(bytes) = request.extras.packed_bytes {
        let how = format!("{} parameters in the file's format, frozen", short(n));
        ledger.add(Part::QuantizedBase, bytes as f64, how);
    }
    let trained = request.n_trainable() as f64;
    let moments = request.update.engine_bytes();
    let mut add = |part, (n, kind): (f64, &str), per_param: f64, what: &str| {
        let parameters = short(n);
        let bytes = n * per_param;
        // Rules that keep less for some parameters than for others have a mean.
        let per_param = (per_param * 100.0).round() / 100.0;
        ledger.add(
            part,
            bytes,
            format!("{parameters} {kind}parameters × {per_param} B: {what}"),
        );
    };
    let all = (n, "");
    let is_part = request.lora.is_some() || request.has_frozen_parts();
    let trained = (trained, if is_part { "trained " } else { "" });
    let weights = match request.precision {
        Precision::Fp32 => "f32, in one buffer",
        _ => "f32, in one buffer; rounded to bf16 only inside matmuls",
    };
    if request.extras.packed_bytes.is_none() {
        add(Part::Weights, all, 4.0, weights);
    }
    if request.lora.is_some() {
        add(Part::Adapters, trained, 4.0, "f32, behind the weights");
    }
    add(Part::Gradients, trained, 4.0, "f32, in one buffer");
    add(Part::Optimizer, trained, moments, request.update.kept());
    passes(request, &mut ledger);
    reference(request, &mut ledger);
    critic(request, &mut ledger);
    teacher(request, &mut ledger);
    around(request, &mut ledger);
    preflight(request, &mut ledger);
    ledger
}

/// What lies around the model, whoever computes it: reward models, data, tokenizers, the program itself.
pub(super) fn around(request: &Request, ledger: &mut Ledger) {
    rewards(request, ledger);
    let how = "a text: 5 B a character, 75 B a subword; rows: mapped files of 2 or 4 B a token, and a portion that is encoded";
    ledger.add(Part::Data, request.extras.data_bytes as f64, how);
    tokenizers(request, ledger);
    ledger.add(
        Part::Context,
        RUNTIME,
        "the program itself, its threads and buffers",
    );
}

/// That of the data, one that is read to hold a start model's against it, and those of reward models.
fn tokenizers(request: &Request, ledger: &mut Ledger) {
    let copies = if request.extras.has_base { 2 } else { 1 };
    let scored = request
        .answers()
        .map_or(0, |_| request.extras.rewards.tokens);
    let taught = request.teacher().map_or(0, |teacher| teacher.tokens);
    let tokens = copies * request.arch.vocab_size() + scored + taught;
    // Those of toys are in the measure of the program itself.
    if TOKEN_BYTES * tokens < MIB as u64 {
        return;
    }
    let how = format!(
        "{} tokens × {TOKEN_BYTES} B: the vocabulary in several maps",
        grouped(tokens)
    );
    ledger.add(Part::Tokenizer, (TOKEN_BYTES * tokens) as f64, how);
}

/// The model of a pass, as the request computes it.
fn subject<'a>(
    request: &'a Request,
    config: &'a ModelConfig,
    adapter: Option<&'a AdapterConfig>,
) -> Subject<'a> {
    Subject {
        config,
        shape: request.arch.shape(),
        trained: TrainableSet {
            adapter,
            frozen: &request.frozen,
        },
        is_packed: request.extras.packed_bytes.is_some(),
        arithmetic: match request.precision {
            Precision::Fp32Bf16Matmuls => ComputeDtype::Bf16,
            _ => ComputeDtype::F32,
        },
    }
}

/// Memory of forward, backward and evaluation.
fn passes(request: &Request, ledger: &mut Ledger) {
    let config = request.arch.config();
    let sequences = request.method.sequences() as usize;
    let (batch, len) = (
        request.micro_batch as usize * sequences,
        request.seq_len as usize,
    );
    let rows = rows_at_once(request, batch);
    let (adapter, at_once) = (request.engine_adapter(), (rows, len));
    let pass = subject(request, config, adapter.as_ref());
    let train = footprint::training(pass, at_once, request.checkpointing.engine());
    let tokens = rows * len;
    let each = train.activations / tokens.max(1) as u64;
    let how = format!(
        "{} tokens × {} B stored for the backward pass",
        grouped(tokens as u64),
        grouped(each)
    );
    let cold = cold_start(request, batch, train);
    let how = match cold {
        0 => how,
        _ => format!("{how}, and more in the cold start, whose batches are not split"),
    };
    ledger.add(Part::Activations, (train.activations + cold) as f64, how);
    let how = match request.checkpointing {
        Checkpointing::Off => "gradients beyond the reused activation memory".into(),
        Checkpointing::EveryN(n) => format!("{n} recomputed blocks and their gradients"),
        Checkpointing::Full => "one recomputed block and its gradients".into(),
    };
    ledger.add(Part::GradientBuffers, train.gradients as f64, how);
    logits(request, tokens, train.head, ledger);
    rollouts(request, ledger);
    // Held-out prompts are answered by the same passes as others; a pass over whole answers asks the policy that wrote them.
    let eval_batch = match request.answers() {
        Some(answers) if answers.has_old_policy || asks_without_adapter(request) => batch,
        Some(_) => 0,
        None => request.extras.eval_batch as usize * sequences,
    };
    if eval_batch > 0 {
        let eval = footprint::evaluation(pass, (eval_batch, len));
        let how = format!(
            "a second pass over {eval_batch} sequences that stores one layer, and its logits"
        );
        ledger.add(Part::Evaluation, eval.total() as f64, how);
    }
}

/// Logits of a training pass over `tokens`; the head itself needs `head` bytes.
fn logits(request: &Request, tokens: usize, head: u64, ledger: &mut Ledger) {
    let chunk = footprint::head_rows(request.arch.shape(), tokens);
    let scores = request.arch.config().is_reward_model();
    let vocab = match scores {
        true => 1,
        false => request.arch.vocab_size(),
    };
    let (at_once, head) = match request.is_linear() {
        _ if scores => (tokens, head),
        true => (chunk, head),
        false => {
            let kept = (KEPT_LOGITS / (4 * vocab.max(1))) as usize;
            let more = kept.min(tokens).saturating_sub(chunk);
            (chunk + more, head + 4 * vocab * more as u64)
        }
    };
    let of = match at_once < tokens {
        true => format!(" of {} at a time", grouped(tokens as u64)),
        false => String::new(),
    };
    let how = format!(
        "{} tokens{of} × {} logits × 4 B",
        grouped(at_once as u64),
        grouped(vocab)
    );
    ledger.add(Part::Logits, head as f64, how);
}

/// Rows of a micro-batch that learn at once: its own answers go through the model in parts.
fn rows_at_once(request: &Request, batch: usize) -> usize {
    let config = request.arch.config();
    if request.answers().is_none() || config.moe.is_some() {
        return batch;
    }
    batch.min(ANSWER_PLACES.div_ceil(request.seq_len.max(1) as usize))
}

/// What a cold start needs beyond a pass over a part of the answers. The first rollout is written and read while its buffers
/// are still there; a separate critic learns behind them.
fn cold_start(request: &Request, batch: usize, part: Footprint) -> u64 {
    if !request.answers().is_some_and(Answers::has_cold_start) {
        return 0;
    }
    let adapter = request.engine_adapter();
    let of = subject(request, request.arch.config(), adapter.as_ref());
    let (len, how) = (request.seq_len as usize, request.checkpointing.engine());
    let whole = footprint::training(of, (batch, len), how);
    let behind = critic_pass(request).map_or(0, |critic| critic.total());
    whole.total().saturating_sub(part.total() + behind)
}

/// The passes in which a separate critic learns.
fn critic_pass(request: &Request) -> Option<Footprint> {
    if !request.has_critic() {
        return None;
    }
    let (adapter, batch) = (request.engine_adapter(), request.micro_batch as usize);
    let at_once = (rows_at_once(request, batch), request.seq_len as usize);
    let (config, how) = (critic_config(request), request.checkpointing.engine());
    let of = Subject {
        // Nothing of a critic is frozen by name.
        trained: TrainableSet::with(adapter.as_ref()),
        ..subject(request, &config, adapter.as_ref())
    };
    Some(footprint::training(of, at_once, how))
}

fn critic_config(request: &Request) -> ModelConfig {
    ModelConfig {
        head: HeadKind::Score,
        ..request.arch.config().clone()
    }
}

/// Whether the reference is the policy itself with its adapter off.
fn asks_without_adapter(request: &Request) -> bool {
    request.reference_plan() == ReferencePlan::AdapterOff
}

/// Keys and values of the answers that are written at once, the logits of their next tokens, and a pass that reads them.
fn rollouts(request: &Request, ledger: &mut Ledger) {
    let own = request.teacher().filter(|teacher| teacher.own_share > 0.0);
    let tokens = match (request.answers(), own) {
        (Some(answers), _) => answers.tokens,
        (None, Some(_)) => request.seq_len,
        (None, None) => return,
    };
    let config = request.arch.config();
    let (texts, tokens) = (request.rollouts as usize, tokens as usize);
    let adapter = request.engine_adapter();
    let of = subject(request, config, adapter.as_ref());
    let cache = footprint::cache(of, (texts, tokens));
    let pass = footprint::decoding(of, (texts, tokens));
    let states = config.state_bytes();
    let keys_and_values = cache - (texts * states) as u64;
    let states = match states {
        0 => String::new(),
        states => format!(", {} of states each", human::bytes(states as u64)),
    };
    let how = format!(
        "{texts} completions × {tokens} tokens × {} B of KV cache, {}{states}, next-token logits, and a prefill pass",
        grouped(keys_and_values / (texts * tokens).max(1) as u64),
        storage_name(of.kv_storage())
    );
    ledger.add(Part::Rollouts, (cache + pass) as f64, how);
}

/// The model that a preference method compares with: its weights, and the buffers of its passes.
fn reference(request: &Request, ledger: &mut Ledger) {
    if request.reference_plan() != ReferencePlan::Copy {
        return;
    }
    let batch = (request.micro_batch * request.method.sequences()) as usize;
    let of = subject(request, request.arch.config(), None);
    let pass = footprint::evaluation(of, (batch, request.seq_len as usize));
    let n = request.arch.n_params();
    let how = format!(
        "a frozen copy of {} parameters × 4 B, and its pass",
        short(n as f64)
    );
    ledger.add(Part::Reference, (4 * n + pass.total()) as f64, how);
}

/// The second model that a method with a critic trains: as the policy, with a score for a head, and an optimizer of its own.
fn critic(request: &Request, ledger: &mut Ledger) {
    let Some(train) = critic_pass(request) else {
        return;
    };
    let config = critic_config(request);
    let adapter = request.engine_adapter();
    let (batch, len) = (request.micro_batch as usize, request.seq_len as usize);
    let of = subject(request, &config, adapter.as_ref());
    let says = footprint::evaluation(of, (batch, len));
    let (weights, trained) = critic_params(request);
    let how = format!(
        "a second model of {} parameters with gradients, moments and its passes",
        short(weights as f64)
    );
    let states = critic_bytes(request) + 4 * trained;
    let bytes = states + train.total() + says.total();
    ledger.add(Part::Critic, bytes as f64, how);
}

/// The models that score answers, which are read with the first of them and stay.
fn rewards(request: &Request, ledger: &mut Ledger) {
    let models = request.extras.rewards;
    if request.answers().is_none() || models.params == 0 {
        return;
    }
    let how = format!(
        "{} frozen parameters × 4 B, and the pass that reads answers",
        short(models.params as f64)
    );
    ledger.add(Part::RewardModel, models.bytes as f64, how);
}

/// The model whose distributions are learned.
fn teacher(request: &Request, ledger: &mut Ledger) {
    let Some(teacher) = request.teacher() else {
        return;
    };
    let n = short(teacher.params as f64);
    let each = match teacher.is_packed {
        true => "in the formats of its file",
        false => "× 4 B",
    };
    let how = format!(
        "{n} frozen parameters {each}, and the pass that reads a micro-batch, with its logits"
    );
    let bytes = teacher.weight_bytes + teacher.pass_bytes;
    ledger.add(Part::Teacher, bytes as f64, how);
}

/// The parameters of the model that a separate critic is, and how many train.
fn critic_params(request: &Request) -> (u64, u64) {
    let (arch, shape) = (&request.arch, request.arch.shape());
    let head = match arch.config().ties_head() {
        true => 0,
        false => arch.vocab_size() * shape.d_model as u64,
    };
    let weights = arch.n_params() - head + shape.d_model as u64;
    let trained = match request.lora {
        Some(_) => request.n_trainable(),
        None => weights,
    };
    (weights, trained)
}

/// What a separate critic keeps from step to step: weights, adapters and moments; 0 where there is none.
pub(super) fn critic_bytes(request: &Request) -> u64 {
    critic_weights(request) + critic_moments(request, request.update.engine_bytes())
}

/// The same in a checkpoint.
pub(super) fn critic_saved_bytes(request: &Request) -> u64 {
    critic_weights(request) + critic_moments(request, request.update.saved_bytes())
}

fn critic_weights(request: &Request) -> u64 {
    if !request.has_critic() {
        return 0;
    }
    let (weights, trained) = critic_params(request);
    let adapters = if request.lora.is_some() { trained } else { 0 };
    4 * (weights + adapters)
}

/// The moments of a separate critic, where the policy has `of_policy` bytes for a trained parameter: no average of a critic's weights is
/// kept (`train.ema_decay`).
fn critic_moments(request: &Request, of_policy: f64) -> u64 {
    if !request.has_critic() {
        return 0;
    }
    let average = if request.extras.has_average { 4.0 } else { 0.0 };
    let each = (of_policy - average).max(0.0);
    (each * critic_params(request).1 as f64).round() as u64
}

/// Bytes of logits that wait for the backward pass where a loss is not linear in log-probabilities.
const KEPT_LOGITS: u64 = 64 << 20;

/// Examples that preflight uses.
const PROBE: usize = 2;

/// Extra memory of preflight: a second state (a copy of the model) beside the run's own, before the run has any
/// activations. Each has the moments of a critic, whose weights are not touched before the first rollout; the reference is there once.
/// Saving needs no extra memory: checkpoints are written as a stream.
fn preflight(request: &Request, ledger: &mut Ledger) {
    if request.extras.preflight == Preflight::Off {
        return;
    }
    let rows = PROBE.min(request.micro_batch as usize);
    let adapter = request.engine_adapter();
    let of = subject(request, request.arch.config(), adapter.as_ref());
    let sequences = rows * request.method.sequences() as usize;
    let at_once = (sequences, request.seq_len as usize);
    let probe = footprint::training(of, at_once, request.checkpointing.engine());
    let always = [Part::Data, Part::Tokenizer, Part::Context].map(|part| ledger.bytes(part));
    let always: u64 = always.iter().sum();
    let reference = match request.reference_plan() {
        ReferencePlan::Copy => 4 * request.arch.n_params(),
        _ => 0,
    };
    let moments = critic_moments(request, request.update.engine_bytes());
    let each = ledger.states() + probe.total() + moments;
    let checking = (2 * each + reference + always) as f64;
    let steady = ledger.steady() as f64;
    if checking > steady {
        let how = "preflight trains a copy of the model; freed when training begins";
        ledger.add(Part::Preflight, checking - steady, how);
    }
}
