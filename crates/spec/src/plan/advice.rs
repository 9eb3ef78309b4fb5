//! Advice on a plan beyond its numbers. Each sentence has a source.

use super::quantity::capacity;
use super::request::{Estimator, Request, ValueSource};
use super::scaling::{BESIROGLU, TOKENS_PER_PARAM};
use super::work::Work;
use super::{Facts, MARGIN, Plan, Verdict, general};
use crate::base::finding::{Evidence, Finding, Status};
use crate::base::human::{self, few, percent, short};
use crate::spec::less_often;

/// One sentence: a failure does not fit, what passes is a note.
fn advice(id: &str, status: Status, what: impl Into<Evidence>, source: &str) -> Finding {
    Finding {
        status,
        source: source.into(),
        ..Finding::pass(what).named(id, "")
    }
}

/// All advice, worst first.
pub(super) fn advise(plan: &Plan) -> Vec<Finding> {
    let mut list = Vec::new();
    memory(plan, &mut list);
    if plan.request.is_from_scratch() {
        tokens(&plan.request, &mut list);
    }
    repeated_data(&plan.request, &mut list);
    list.extend(plan.request.settings.iter().cloned());
    attention(&plan.work, &mut list);
    compiling(&plan.request, &mut list);
    list.extend(super::ranks::uneven(&plan.request));
    assumptions(plan, &mut list);
    list.sort_by_key(|advice| advice.status);
    list
}

fn memory(plan: &Plan, list: &mut Vec<Finding>) {
    let Some(limit) = plan.request.device.memory else {
        return;
    };
    let (p50, p90) = (plan.p50_bytes(), plan.p90_bytes());
    let source = "safety margin: 1.15 × the sum of the parts (1.10 × for this engine)";
    match plan.verdict() {
        Some(Verdict::TooLarge) => {
            list.push(advice("too_large", Status::Fail, format!(
                "needs {} and {} has {}: see the changes that would fit",
                human::bytes(p50),
                plan.request.device.name,
                capacity(limit)
            ), source));
            cheaper_method(plan.request.method.facts(), list);
        }
        Some(Verdict::Tight) => list.push(advice("tight", Status::Warn, format!(
                "probably fits ({} of {}), but a long batch or fragmentation may exhaust it: leave 10 to 15 % free",
                human::bytes(p50),
                capacity(limit)
            ), source)),
        Some(Verdict::Fits) if plan.request.estimator == Estimator::General => {
            let room = p90 * 2 < limit;
            list.extend(larger_pieces(&plan.request, limit).or_else(|| {
                room.then(|| advice("room", Status::Pass, "less than half of the memory is used: a larger micro-batch is faster", "throughput grows with the micro-batch until compute, not memory, is the bottleneck"))
            }));
        }
        _ => {}
    }
}

/// What is trained in place of a method that does not fit.
fn cheaper_method(facts: &Facts, list: &mut Vec<Finding>) {
    if !facts.cheaper.is_empty() {
        let what = format!("cheaper than {}: {}", facts.title, facts.cheaper);
        list.push(advice("cheaper", Status::Warn, what, facts.source()));
    }
}

/// The batch of a step in the fewest micro-batches that a rank's memory holds, where it is cut into more.
fn larger_pieces(request: &Request, limit: u64) -> Option<Finding> {
    request.extras.ranks?;
    let larger = |times: u64| {
        let mut larger = request.clone();
        larger.micro_batch = request.micro_batch * (request.grad_accum / times);
        larger.grad_accum = times;
        larger
    };
    let divides = |times: &u64| request.grad_accum.is_multiple_of(*times);
    let fits = |larger: &Request| general::ledger(larger).total() as f64 * MARGIN <= limit as f64;
    let larger = (1..request.grad_accum)
        .filter(divides)
        .map(larger)
        .find(fits)?;
    let rows = larger.micro_batch * request.n_devices;
    Some(advice(
        "micro_batch",
        Status::Pass,
        format!(
            "larger micro-batches of the same batch fit and are faster: -s micro_batch_size={rows} -s grad_accum_steps={}",
            larger.grad_accum
        ),
        "small batches are launch-bound: a LoRA step of 135M parameters on an H200 took 188 ms with 4 rows of 1,024 tokens, 205 ms with 16",
    ))
}

/// Ranks whose operations are launched one by one.
fn compiling(request: &Request, list: &mut Vec<Finding>) {
    let Some(ranks) = request.extras.ranks else {
        return;
    };
    let steps = request.tokens / request.batch_tokens().max(1);
    let passes = steps.saturating_mul(request.grad_accum);
    // One GPU compiles such a run by itself.
    let eager = !ranks.compiled.unwrap_or(request.n_devices == 1);
    if eager && request.estimator == Estimator::General && passes >= ranks.worth_compiling {
        list.push(advice(
            "compile",
            Status::Pass,
            "compiled ranks are faster after some seconds of compilation: -s engine.torch.compile=true",
            "135M parameters on one H200: 104 ms a step, 70 compiled (benches/peers/gpu.py)",
        ));
    }
}

/// Token count against Chinchilla.
fn tokens(request: &Request, list: &mut Vec<Finding>) {
    let n = request.arch.n_active() as f64;
    let ratio = request.tokens as f64 / n;
    let best = TOKENS_PER_PARAM * n;
    let source = "Hoffmann et al. 2022, arXiv 2203.15556; Besiroglu et al. 2024, arXiv 2404.10102";
    if ratio < 5.0 {
        let (small, _) = BESIROGLU.optimal(6.0 * n * request.tokens as f64);
        // The fit used models from 44M to 16B: it does not apply to toys.
        let remedy = match small {
            small if small > 1e7 => format!(
                "a model of about {} reaches a lower loss with the same FLOPs",
                short(small)
            ),
            _ => "more text, or a smaller model, would use the time better".into(),
        };
        list.push(advice(
            "few_tokens",
            Status::Warn,
            format!(
                "{} tokens per parameter over the whole run, {} times below 20 ({} tokens): {remedy}",
                few(ratio),
                few(TOKENS_PER_PARAM / ratio),
                short(best)
            ),
            source,
        ));
    } else if ratio > 100.0 {
        list.push(advice("many_tokens", Status::Pass, format!(
                "{} tokens per parameter over the whole run, far above 20: right for heavy inference use, expensive for the loss reached",
                few(ratio)
            ), source));
    }
}

fn repeated_data(request: &Request, list: &mut Vec<Finding>) {
    // Answers of its own are new each time; prompts may come again.
    if request.method.rolls_out() {
        return;
    }
    // Tokens of full rows are no measure of data that are counted without padding: those of a run before its first step.
    if request.has_unread_rows() && request.extras.pass_tokens.is_none() {
        return;
    }
    let pass = request.extras.pass_tokens.or(request.extras.epoch_tokens);
    let Some(epoch) = pass.filter(|t| *t > 0) else {
        return;
    };
    let epochs = request.tokens as f64 / epoch as f64;
    if epochs > 4.5 {
        let steps = request.steps_within(4 * epoch);
        let fix = less_often(steps, request.is_from_scratch());
        list.push(Finding { fix, ..advice("repeated_data", Status::Warn, format!(
                "{} epochs over the same {} tokens{}: up to 4 are nearly as good as new text, later ones add little",
                few(epochs),
                short(epoch as f64),
                if request.extras.pass_tokens.is_some() { ", padding included" } else { "" }
            ), "Muennighoff et al. 2023, arXiv 2305.16264") });
    }
}

fn attention(work: &Work, list: &mut Vec<Finding>) {
    let share = work.attention_flops / work.flops.max(1.0);
    if share > 0.15 {
        list.push(advice(
            "attention_share",
            Status::Pass,
            format!(
                "attention adds {} to the FLOPs at this length",
                percent(share, 1)
            ),
            "12 · layers · width · length FLOPs per token (PaLM, arXiv 2204.02311, appendix B)",
        ));
    }
}

fn assumptions(plan: &Plan, list: &mut Vec<Finding>) {
    let request = &plan.request;
    if request.tokens_source == ValueSource::Assumed {
        let what = match request.is_from_scratch() {
            _ if request.method.rolls_out() => {
                "token count assumed: 10,000 answers of this length; set it with --tokens"
            }
            true => "token count assumed: 20 per parameter; set it with --tokens",
            false => "token count assumed: 10,000 examples of this length; set it with --tokens",
        };
        list.push(advice(
            "assumed_tokens",
            Status::Pass,
            what,
            "Hoffmann et al. 2022, arXiv 2203.15556",
        ));
    }
    if request.mfu_source == ValueSource::Assumed && request.peak_flops().is_some() {
        list.push(advice("assumed_mfu", Status::Pass, format!(
                "time assumes {} MFU; 30 to 40 % is typical, below 30 % worth investigating; set it with --mfu",
                percent(request.mfu, 0)
            ), "PaLM reached 46 %, Llama 2 7B 39 %"));
    }
}
