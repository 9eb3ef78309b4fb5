//! Memory of this program's engine on a CPU: its actual allocations. Activation counts come from `nn::footprint`, which a
//! test compares with real steps; the estimates for GPU trainers are in `general`.

use super::ledger::{Ledger, Part};
use super::request::{Checkpointing, Preflight, Request};
use super::scheme::{Precision, UpdateState};
use crate::base::human::{grouped, short};
use crate::nn::footprint;

/// The process before any model: program, libraries, threads and buffers.
const RUNTIME: f64 = 21.0 * MIB;
const MIB: f64 = 1024.0 * 1024.0;

/// The engine's memory at its peak.
pub fn ledger(request: &Request) -> Ledger {
    let mut ledger = Ledger::default();
    let arch = &request.arch;
    let n = arch.n_params() as f64;
    let parameters = short(n);
    let moments = match request.update {
        UpdateState::AdamW | UpdateState::AdamW8bit => 2.0,
        UpdateState::OneMoment => 1.0,
        UpdateState::Adafactor => 0.0,
    };
    let mut add = |part, per_param: f64, what: &str| {
        ledger.add(
            part,
            n * per_param,
            format!("{parameters} parameters × {per_param} B: {what}"),
        );
    };
    let weights = match request.precision {
        Precision::Fp32 => "f32, in one buffer",
        _ => "f32, in one buffer; rounded to bf16 only inside matmuls",
    };
    add(Part::Weights, 4.0, weights);
    add(Part::Gradients, 4.0, "f32, in one buffer");
    add(Part::Optimizer, 4.0 * moments, "f32 moments");
    passes(request, &mut ledger);
    let how = "tokens of 4 B, plus tokenizer leftovers: 1 B per character, about 70 B per subword";
    ledger.add(Part::Data, request.extras.data_bytes as f64, how);
    ledger.add(
        Part::Context,
        RUNTIME,
        "the program itself, its threads and buffers",
    );
    preflight(request, 8.0 + 4.0 * moments, &mut ledger);
    ledger
}

/// Memory of forward, backward and evaluation.
fn passes(request: &Request, ledger: &mut Ledger) {
    let (config, shape) = request.arch.config();
    let (batch, len) = (request.micro_batch as usize, request.seq_len as usize);
    let train = footprint::training(&config, &shape, batch, len, request.checkpointing.engine());
    let tokens = batch * len;
    let each = train.activations / tokens.max(1) as u64;
    let how = format!(
        "{} tokens × {} B stored for the backward pass",
        grouped(tokens as u64),
        grouped(each)
    );
    ledger.add(Part::Activations, train.activations as f64, how);
    let how = match request.checkpointing {
        Checkpointing::Off => "gradients that do not fit where activations were".into(),
        Checkpointing::EveryN(n) => format!("{n} recomputed blocks and their gradients"),
        Checkpointing::Full => "one recomputed block and its gradients".into(),
    };
    ledger.add(Part::GradientBuffers, train.gradients as f64, how);
    let at_once = footprint::head_rows(&shape, tokens);
    let of = if at_once < tokens {
        format!(" of {} at a time", grouped(tokens as u64))
    } else {
        String::new()
    };
    let how = format!(
        "{} tokens{of} × {} logits × 4 B",
        grouped(at_once as u64),
        grouped(request.arch.vocab_size)
    );
    ledger.add(Part::Logits, train.head as f64, how);
    let eval_batch = request.extras.eval_batch as usize;
    if eval_batch > 0 {
        let eval = footprint::evaluation(&config, &shape, eval_batch, len);
        let how = format!(
            "a second pass over {eval_batch} sequences that stores one layer, and its logits"
        );
        ledger.add(Part::Evaluation, eval.total() as f64, how);
    }
}

/// Sequences that preflight uses.
const PROBE: usize = 2;

/// Extra memory of preflight: a second state of `each` bytes per parameter (a copy of the model) beside the run's own,
/// before the run has any activations. Saving needs no extra memory: checkpoints are written as a
/// stream.
fn preflight(request: &Request, each: f64, ledger: &mut Ledger) {
    if request.extras.preflight == Preflight::Off {
        return;
    }
    let n = request.arch.n_params() as f64;
    let (config, shape) = request.arch.config();
    let probe = footprint::training(
        &config,
        &shape,
        PROBE.min(request.micro_batch as usize),
        request.seq_len as usize,
        request.checkpointing.engine(),
    );
    let always = ledger.bytes(Part::Data) + ledger.bytes(Part::Context);
    let checking = 2.0 * (n * each + probe.total() as f64) + always as f64;
    let steady = ledger.steady() as f64;
    if checking > steady {
        let how = "preflight trains a copy of the model; freed when training begins";
        ledger.add(Part::Preflight, checking - steady, how);
    }
}
