//! `llmtui plan`: what a run needs and costs, before it is started.

mod table;

use super::{
    Context,
    exit::{Exit, Failure},
    model_ref, run_ref,
};
use crate::base::clock::Clock;
use crate::base::near::nearest;
use crate::base::text::one_line;
use crate::hardware::{GpuSummary, Live, Provider, Recorded};
use crate::methods::ReferenceChoice;
use crate::models::{self, Parts};
use crate::plan::changes::ladder;
use crate::plan::engines::{self, EngineChoice, Gpus};
use crate::plan::learn::Machine;
use crate::plan::quantity::{parse_bytes, parse_count};
use crate::plan::ranks::{on_gpus_named, on_ranks};
use crate::plan::request::{
    AttentionKind, BaseFormat, Checkpointing, Logits, LoraTargets, Method, RowLengths, Said,
};
use crate::plan::scheme::{Precision, UpdateState};
use crate::plan::solve::what_fits;
use crate::plan::target::{self, TargetError};
use crate::plan::{Device, Estimator, Ledger, Plan, Request, gpus, plan, reference};
use crate::run::{RunDir, index};
use crate::wire::Event;
use serde_json::{Value, json};
use std::path::Path;

/// Fraction of peak that this engine reaches, unless given.
const ENGINE_SHARE: f64 = 0.7;

/// Plan a run: memory by part, FLOPs, time, cost, what fits
///
/// TARGET is a preset, a spec file, a run, a model folder, a .gguf file, a hub id, or the name of a reference model (gpt2, llama-2-7b,
/// llama-3.1-8b, qwen2.5-0.5b, mixtral-8x7b …). A spec is planned for llmtui's own engine on a CPU, or with
/// `engine: torch` for ranks on the GPUs of this machine or of --gpu; other targets are planned for a typical GPU trainer: full AdamW in
/// mixed precision unless configured otherwise.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  llmtui plan quickstart
  llmtui plan llama-3.1-8b --gpu H100 --method sft --lora-rank 16 --quantize nf4
  llmtui plan llama-2-7b --gpu A100 --gpus 8 --zero 3 --tokens 2T --mfu 0.39
  llmtui plan my.yaml --memory 16GB --json
  llmtui plan my-run -s micro_batch_size=4")]
pub struct Args {
    /// A preset, a spec file, a run, a model folder or file, a hub id, or a reference model's name
    #[arg(value_name = "TARGET")]
    pub target: String,
    /// Override a value of a spec; may be repeated
    #[arg(short = 's', long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Plan for this GPU: A100, H100, H200, B200, MI300X, L40S, L4, A10, RTX-3090, RTX-4090, RTX-5090
    #[arg(long, value_name = "NAME")]
    pub gpu: Option<String>,
    /// Memory per device: 24GB, 80GiB; overrides the GPU's own
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub memory: Option<u64>,
    /// Number of GPUs that share the batch
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub gpus: Option<u64>,
    /// pretrain, cpt, sft, reward, dpo, kto, orpo, simpo, cpo, ppo, grpo, rloo
    #[arg(long, value_name = "NAME")]
    pub method: Option<String>,
    /// Where a preference method's reference comes from: auto, frozen (a copy), adapter_off, precomputed
    #[arg(long, value_name = "HOW")]
    pub reference: Option<String>,
    /// Train adapters of this rank instead of all weights
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u64).range(1..=65_536))]
    pub lora_rank: Option<u64>,
    /// Layers with an adapter: minimal (q, v), attention, ffn, all
    #[arg(long, value_name = "WHICH")]
    pub lora_targets: Option<String>,
    /// Quantize the frozen base model: int8, nf4 (double quantized), nf4-single, int2; implies adapters of rank 8
    #[arg(long, value_name = "FORMAT")]
    pub quantize: Option<String>,
    /// ZeRO stage: 1 shards the optimizer, 2 gradients too, 3 weights too
    #[arg(long, value_name = "STAGE", value_parser = clap::value_parser!(u8).range(0..=3))]
    pub zero: Option<u8>,
    /// fp32, mixed (16 bytes per parameter), mixed-fp32-grads (18), bf16 (8)
    #[arg(long, value_name = "NAME")]
    pub precision: Option<String>,
    /// adamw, muon, lion, soap, sophia, schedule_free, adafactor, adamw8bit, sgd
    #[arg(long, value_name = "NAME")]
    pub optimizer: Option<String>,
    /// Micro-batch size per device, in sequences
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub batch: Option<u64>,
    /// Micro-batches accumulated into one step
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub grad_accum: Option<u64>,
    /// Sequence length in tokens
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub seq_len: Option<u64>,
    /// Tokens in the whole run: 20B, 300M
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub tokens: Option<u64>,
    /// Completions sampled at once by ppo, grpo and rloo
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub rollouts: Option<u64>,
    /// Activation checkpointing: off, full, every-4 (one stored input per 4 blocks)
    #[arg(long, value_name = "HOW")]
    pub checkpointing: Option<String>,
    /// Compute logits for the whole micro-batch or in chunks of 1,024 tokens: whole, chunked
    #[arg(long, value_name = "HOW")]
    pub logits: Option<String>,
    /// flash, eager
    #[arg(long, value_name = "HOW")]
    pub attention: Option<String>,
    /// Peak TFLOP/s per device; overrides the GPU's own, or this machine's measured peak
    #[arg(long, value_name = "N", value_parser = tflops)]
    pub tflops: Option<f64>,
    /// Fraction of peak reached (MFU): 0.4 or 40 (per cent)
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub mfu: Option<f64>,
    /// US dollars per GPU-hour
    #[arg(long, value_name = "DOLLARS", value_parser = price)]
    pub price: Option<f64>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    let (request, machine) = request(args, cx)?;
    let plan = plan(&request);
    let engine = engine(args, &request, cx)?;
    let text = if args.json {
        let mut told = to_json(&plan);
        told["speed"] = speed_json(&plan, machine.as_ref(), cx);
        told["engine"] = serde_json::to_value(&engine)?;
        format!("{}\n", super::out::json(&told)?)
    } else {
        table::render(&plan, engine.as_ref(), &table::Style::of(cx))
    };
    use std::io::Write;
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(Exit::Done)
}

/// The measurement that the time stands on, and how old it is; null where it stands on earlier runs or an assumption.
fn speed_json(plan: &Plan, machine: Option<&Machine>, cx: &Context) -> Value {
    let speed = machine.and_then(|machine| machine.speed.as_ref());
    let probed = plan.request.mfu_said == Said::Probed;
    let Some(speed) = speed.filter(|_| probed) else {
        return Value::Null;
    };
    json!({
        "measurements": speed.times,
        "newest_age_seconds": cx.clock.now().since(speed.newest).as_secs(),
        "f32_flops": speed.f32,
        "bf16_flops": speed.bf16,
    })
}

/// The engine that fits, with the GPUs that were named, or else those of this machine.
fn engine(args: &Args, request: &Request, cx: &Context) -> anyhow::Result<Option<EngineChoice>> {
    let device = &request.device;
    let named = args.gpu.is_some() || wants_gpu(args);
    let gpus = match (named, device.memory) {
        (true, Some(memory)) => Some(Gpus {
            name: device.name.clone(),
            memory,
            count: args.gpus,
            here: false,
        }),
        (true, None) => None,
        (false, _) => Gpus::of(&gpus_here(cx)?),
    };
    Ok(engines::choose(request, gpus.as_ref()))
}

/// The GPUs of this machine, or of the recorded one.
fn gpus_here(cx: &Context) -> anyhow::Result<Vec<GpuSummary>> {
    let machine = match cx.recording()? {
        Some(recording) => Recorded::new(recording).machine().summary(),
        None => Live::new(&cx.env).machine().summary(),
    };
    Ok(machine.gpus)
}

/// The target with all options applied, and this machine where the plan is for it.
fn request(args: &Args, cx: &Context) -> anyhow::Result<(Request, Option<Machine>)> {
    let mut request = resolve(args, cx)?;
    let mut here = None;
    if args.gpu.is_none() && !wants_gpu(args) {
        request = on_ranks(request, &gpus_here(cx)?);
    }
    if args.gpu.is_none() && !wants_gpu(args) && request.estimator == Estimator::Engine {
        let machine = Machine::look_and_measure(&cx.env, super::probe::measure);
        machine.equip(&mut request);
        if request.mfu_said == Said::Probed
            && !args.json
            && let Some(words) = machine.speed_words(cx.clock.now())
        {
            tell!("note: this machine's speed is {words}");
        }
        here = Some(machine);
    }
    if let Some(name) = &args.gpu {
        let gpu = gpus::find(name).ok_or_else(|| {
            let near = gpus::nearest(name).join(", ");
            let all: Vec<&str> = gpus::GPUS.iter().map(|g| g.name).collect();
            let hint = format!(
                "similar: {near}; known: {}; or --memory 24GB",
                all.join(", ")
            );
            Failure::yours(format!("unknown GPU `{name}`"), hint)
        })?;
        request = match wants_trainer(args) {
            true => target::on_gpu(request, Device::of(gpu)),
            false => on_gpus_named(request, gpu, args.gpus.unwrap_or(1)),
        };
    } else if wants_gpu(args) {
        let device = request.device.clone();
        request = target::on_gpu(request, device);
    }
    if let Some(memory) = args.memory {
        request.device.memory = Some(memory);
        if args.gpu.is_none() {
            request.device.name = crate::base::human::bytes_sold(memory);
        }
    }
    trained(args, &mut request)?;
    portions(args, &mut request)?;
    if let Some(fault) = request.fault() {
        return Err(Failure::yours(fault.what, fault.fix).into());
    }
    if let Some(tflops) = args.tflops {
        request.device.set_peak(1e12 * tflops);
        if matches!(request.mfu_said, Said::Learned | Said::Probed) {
            (request.mfu, request.mfu_said) = (ENGINE_SHARE, Said::Assumed);
        }
    }
    if let Some(price) = args.price {
        request.device.set_price(price);
    }
    request.assume();
    Ok((request, here))
}

fn resolve(args: &Args, cx: &Context) -> anyhow::Result<Request> {
    let is_run = index::resolve(&cx.runs_dir, &args.target).is_ok();
    if !is_run && run_ref::names_a_pipeline(&args.target, cx) {
        return Err(run_ref::is_a_pipeline(&args.target).into());
    }
    let set = model_ref::with_runs(&args.set, cx)?;
    let mut found = match Path::new(&args.target).join("run.json").is_file() {
        true => of_run(args, &set, cx)?,
        false => target::resolve(&args.target, &set, &cx.spec_sources()),
    };
    if matches!(found, Err(TargetError::Unknown { .. }))
        && index::resolve(&cx.runs_dir, &args.target).is_ok()
    {
        found = of_run(args, &set, cx)?;
    }
    // The description of a model of the hub is enough.
    if matches!(found, Err(TargetError::Unknown { .. })) && models::repo(&args.target).is_some() {
        let folder = model_ref::find(&args.target, Parts::Description, cx)?;
        let folder = folder.to_string_lossy();
        found = target::resolve(&folder, &set, &cx.spec_sources());
        if let Ok(request) = &mut found {
            request.name.clone_from(&args.target);
        }
    }
    let is_unknown = matches!(
        found,
        Err(TargetError::Unknown { .. } | TargetError::Spec(_))
    );
    if is_unknown
        && run_ref::means_a_pipeline(&args.target, cx)
        && let Err(error) = index::resolve(&cx.runs_dir, &args.target)
    {
        return Err(run_ref::not_found(&args.target, &error, cx).into());
    }
    match found {
        Ok(request) => Ok(request),
        Err(TargetError::Spec(errors)) => Err(errors.into()),
        Err(error) => {
            let hint = match &error {
                TargetError::Unknown { near, .. } => format!(
                    "did you mean {}? Presets: llmtui presets list; models: gpt2, llama-2-7b, llama-3.1-8b, \
                     qwen2.5-0.5b, mixtral-8x7b …",
                    near.join(", ")
                ),
                other => other.hint(),
            };
            Err(Failure::yours(error.to_string(), hint).into())
        }
    }
}

/// A run by the spec that it was created with, in the precision that it trains in; the plan is for this machine unless another is
/// named, which is reported.
fn of_run(
    args: &Args,
    set: &[String],
    cx: &Context,
) -> anyhow::Result<Result<Request, TargetError>> {
    let run = run_ref::named(&args.target, cx)?;
    run_ref::spec_of(&run)?;
    let spec = run.spec_path();
    let mut found = target::resolve(&spec.to_string_lossy(), set, &cx.spec_sources());
    if let Ok(request) = &mut found {
        request.name = one_line(&run.folder());
        let says_precision = set.iter().any(|word| {
            word.split('=')
                .next()
                .is_some_and(|key| key.ends_with("precision"))
        });
        // A log that cannot be read says nothing; then its spec is planned as it is.
        let head = run_ref::fold(&run).ok().and_then(|state| state.head);
        if let Some(head) = head.filter(|_| !says_precision) {
            target::as_trained(request, &head);
        }
        if args.gpu.is_none() && !args.json {
            let here = crate::hardware::host_name();
            let there = trained_on(&run).filter(|there| *there != here);
            let there = there.map_or(String::new(), |there| {
                format!(", and the run trained on {}", one_line(&there))
            });
            tell!(
                "note: planned for this machine ({}){there}",
                one_line(&here)
            );
        }
    }
    Ok(found)
}

/// The machine of a run's newest engine.
fn trained_on(run: &RunDir) -> Option<String> {
    let mut host = None;
    // A log that cannot be read names none.
    let _ = index::scan_events(&run.events_path(), &["MachineDescribed"], |event| {
        if let Event::MachineDescribed { machine } = event {
            host = machine["host"].as_str().map(String::from).or(host.take());
        }
    });
    host
}

const REFERENCES: [(&str, ReferenceChoice); 4] = [
    ("auto", ReferenceChoice::Auto),
    ("frozen", ReferenceChoice::Frozen),
    ("adapter_off", ReferenceChoice::AdapterOff),
    ("precomputed", ReferenceChoice::Precomputed),
];

/// What this engine cannot train is planned for GPUs.
fn wants_gpu(args: &Args) -> bool {
    args.gpus.is_some_and(|n| n > 1) || wants_trainer(args)
}

/// What no engine of this program trains is planned for a typical GPU trainer.
fn wants_trainer(args: &Args) -> bool {
    args.quantize.is_some()
        || args.zero.is_some_and(|z| z > 0)
        || args.precision.is_some()
        || args.attention.is_some()
        || args.logits.is_some()
        || args.method.as_deref().is_some_and(|word| {
            let method = Method::by_word(word);
            method.is_some_and(|method| method.facts().trained().is_none())
        })
}

/// Looks a value up in a list; the error lists the valid ones.
fn pick<T: Copy>(what: &str, word: &str, list: &[(&str, T)]) -> Result<T, Failure> {
    let found = list.iter().find(|(w, _)| w.eq_ignore_ascii_case(word));
    found.map(|(_, x)| *x).ok_or_else(|| {
        let words: Vec<&str> = list.iter().map(|(w, _)| *w).collect();
        Failure::yours(format!("--{what} `{word}` is not known"), words.join(", "))
    })
}

/// Adapters are no method: any method trains them.
fn not_a_method(word: &str, error: Failure) -> Failure {
    let hint = match word.to_lowercase().as_str() {
        "lora" => "adapters go with any method: --lora-rank 16 (and --quantize nf4 for QLoRA)",
        "qlora" => "adapters go with any method: --lora-rank 16 --quantize nf4",
        _ => return error,
    };
    Failure {
        hint: hint.into(),
        ..error
    }
}

/// The optimizers that there are, and the one that was probably meant.
fn no_optimizer(word: &str) -> Failure {
    let all = UpdateState::optimizers();
    let near = nearest(word, all.iter().copied());
    let near = near.map_or(String::new(), |near| format!("did you mean {near}? "));
    let what = format!("--optimizer `{}` is not known", one_line(word));
    Failure::yours(what, format!("{near}there are {}", all.join(", ")))
}

/// Method, number formats, adapters, sharding.
fn trained(args: &Args, request: &mut Request) -> anyhow::Result<()> {
    if let Some(word) = &args.method {
        let method = pick("method", word, &Method::ALL).map_err(|e| not_a_method(word, e))?;
        request.set_method(method);
        // The same method as pretraining, on weights that know something.
        request.extras.has_base |= word == "cpt";
    }
    if let Some(word) = &args.reference {
        request.reference = pick("reference", word, &REFERENCES)?;
    }
    if let Some(word) = &args.precision {
        request.precision = pick("precision", word, &Precision::ALL)?;
    }
    if let Some(word) = &args.quantize {
        request.base = pick("quantize", word, &BaseFormat::ALL)?;
    }
    let targets = args.lora_targets.as_deref();
    let targets = targets.map(|word| pick("lora-targets", word, &LoraTargets::ALL));
    let targets = targets.transpose()?;
    if args.lora_rank.is_some() || targets.is_some() || request.base != BaseFormat::Whole {
        request.adapt(args.lora_rank, targets);
    }
    if let Some(word) = &args.optimizer {
        let word = word.to_lowercase();
        let rule = UpdateState::of_optimizer(&word, &request.param_infos());
        request.update = rule
            .or_else(|| UpdateState::by_word(&word))
            .ok_or_else(|| no_optimizer(&word))?;
    }
    request.n_devices = args.gpus.unwrap_or(request.n_devices);
    request.zero = args.zero.unwrap_or(request.zero);
    if request.zero > 0 && request.n_devices < 2 {
        let what = format!(
            "--zero {} shards over several GPUs, but there is one",
            request.zero
        );
        return Err(Failure::yours(what, "set the number: --gpus 8").into());
    }
    Ok(())
}

/// Batch, length, token counts, speed.
fn portions(args: &Args, request: &mut Request) -> anyhow::Result<()> {
    if let Some(batch) = args.batch {
        *request = crate::plan::solve::with_batch(request, batch);
    }
    if let Some(seq_len) = args.seq_len {
        *request = crate::plan::solve::with_seq_len(request, seq_len);
        if request.estimator == Estimator::General && seq_len > request.arch.max_len() {
            let what = format!(
                "the context of {} is at most {} tokens",
                request.name,
                request.arch.max_len()
            );
            return Err(Failure::yours(what, "use a smaller --seq-len").into());
        }
    }
    request.grad_accum = args.grad_accum.unwrap_or(request.grad_accum);
    request.rollouts = args.rollouts.unwrap_or(request.rollouts);
    if let Some(word) = &args.checkpointing {
        request.checkpointing = Checkpointing::by_word(word).ok_or_else(|| {
            let what = format!("--checkpointing `{word}` is not known");
            Failure::yours(what, "off, full, every-2, every-4 …")
        })?;
    }
    if let Some(word) = &args.logits {
        let chunked = Logits::Chunked(reference::CHUNK);
        request.logits = pick(
            "logits",
            word,
            &[("whole", Logits::Whole), ("chunked", chunked)],
        )?;
    }
    if let Some(word) = &args.attention {
        let words = [
            ("flash", AttentionKind::Flash),
            ("eager", AttentionKind::Eager),
        ];
        request.attention = pick("attention", word, &words)?;
    }
    let other = args.tokens.is_some() || args.batch.is_some() || args.grad_accum.is_some();
    if let Some(answers) = request.extras.answers.as_mut().filter(|_| other) {
        answers.length = None;
    }
    if let Some(tokens) = args.tokens {
        request.set_tokens(tokens);
    }
    if let Some(mfu) = args.mfu {
        (request.mfu, request.mfu_said) = (mfu, Said::Stated);
    }
    Ok(())
}

/// The object of `--json`.
fn to_json(plan: &Plan) -> Value {
    let request = &plan.request;
    let ladder = ladder(request);
    json!({
        "target": request.name,
        "params": plan.params.total(),
        "params_by_part": plan.params,
        "active_params": plan.n_active,
        "trainable_params": plan.n_trainable,
        "memory": plan.memory,
        "total": {
            "p50_bytes": plan.p50_bytes(),
            "p90_bytes": plan.p90_bytes(),
            "steady_bytes": plan.memory.steady(),
            "corrected_bytes": plan.corrected_bytes(),
        },
        "host_memory": plan.host,
        "host_bytes": plan.host.as_ref().map(Ledger::total),
        "limit_bytes": request.device.memory,
        "fits": plan.verdict().map(|v| format!("{v:?}").to_lowercase()),
        "tokens": request.tokens,
        "rollouts": request.rollout_length(),
        "prompts": request.prompts(),
        "tokens_per_param": plan.tokens_per_param,
        "predicted_loss": plan.predicted_loss,
        "flops": plan.work.flops,
        "attention_flops": plan.work.attention_flops,
        "hours": plan.work.hours,
        // Answers that end sooner than they may take less.
        "hours_at_most": request.is_timed_at_most(),
        "device_hours": plan.work.device_hours,
        "cost": plan.work.cost,
        "mfu": request.mfu,
        "price_per_hour": request.device.price_per_hour,
        "price_source": request.device.price_source.map(|p| p.words()),
        "precision": request.precision.word(),
        "checkpointing": request.checkpointing.words(),
        "device": request.device.name,
        "gpus": request.n_devices,
        "method": request.method.word(),
        "batch_tokens": request.batch_tokens(),
        "rows": {
            "tokens": request.row_tokens(),
            "places": request.row_places(),
            "assumed": request.extras.rows == RowLengths::Assumed,
        },
        "checkpoint_bytes": plan.checkpoint_bytes,
        "disk_bytes": plan.disk_bytes,
        "what_fits": what_fits(request),
        "changes": ladder.changes,
        "changes_suffice": ladder.fits,
        "advice": plan.advice,
    })
}

fn share(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').trim().parse::<f64>() {
        Ok(x) if x > 0.0 && x <= 1.0 => Ok(x),
        Ok(x) if x > 1.0 && x <= 100.0 => Ok(x / 100.0),
        _ => Err("a fraction from 0 to 1, or a percentage up to 100".into()),
    }
}

fn tflops(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if x.is_finite() && x > 0.0 => Ok(x),
        _ => Err("an amount above 0".into()),
    }
}

fn price(text: &str) -> Result<f64, String> {
    match text.trim_start_matches('$').parse::<f64>() {
        Ok(x) if x.is_finite() && x >= 0.0 => Ok(x),
        _ => Err("an amount from 0 up".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_optimizer_that_can_be_planned_is_named_in_the_help_and_where_one_is_not_known() {
        #[derive(clap::Parser)]
        struct Cli {
            #[command(flatten)]
            args: Args,
        }
        let help = <Cli as clap::CommandFactory>::command()
            .render_long_help()
            .to_string();
        let named = UpdateState::optimizers().join(", ");
        assert!(help.contains(&named), "{named} in {help}");
        let failure = no_optimizer("sopa");
        assert!(
            failure
                .hint
                .starts_with("did you mean soap? there are adamw"),
            "{}",
            failure.hint
        );
        assert!(
            no_optimizer("levitation")
                .hint
                .starts_with("there are adamw")
        );
    }

    #[test]
    fn shares_and_prices_are_read_as_people_write_them() {
        assert_eq!(
            (share("0.4"), share("40"), share("40%")),
            (Ok(0.4), Ok(0.4), Ok(0.4))
        );
        assert!(share("0").is_err() && share("101").is_err() && share("x").is_err());
        assert_eq!(price("$2.5"), Ok(2.5));
        assert!(price("-1").is_err());
    }

    #[test]
    fn a_wrong_word_names_the_right_ones() {
        let error = pick("method", "dop", &Method::ALL).unwrap_err();
        assert!(error.hint.contains("dpo") && error.what.contains("--method `dop`"));
        for (word, options) in [("lora", "--lora-rank 16"), ("QLoRA", "--quantize nf4")] {
            let error = not_a_method(word, pick("method", word, &Method::ALL).unwrap_err());
            assert!(error.hint.contains(options), "{error:?}");
        }
    }
}
