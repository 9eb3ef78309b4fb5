//! `llmtui plan`: what a run needs and costs, before it is started.

mod here;
mod json;
mod options;
mod style;
mod table;

use super::{
    Context,
    exit::{Exit, Failure},
    model_ref, run_ref,
};
use crate::base::clock::Clock;
use crate::base::near::did_you_mean;
use crate::base::text::{one_line, shown};
use crate::hardware::{GpuSummary, Live, Provider, Recorded};
use crate::models::{self, Parts};
use crate::plan::calibration::Machine;
use crate::plan::engines::{self, EngineChoice, Gpus};
use crate::plan::quantity::{parse_bytes, parse_count};
use crate::plan::ranks::{on_gpus_here, on_gpus_named, on_ranks};
use crate::plan::request::{BaseFormat, LoraTargets};
use crate::plan::request::{Method, ValueSource};
use crate::plan::scheme::{Precision, UpdateState};
use crate::plan::target::{self, TargetError};
use crate::plan::{Device, Estimator, Request, gpus, plan};
use crate::run::log::scan_events;
use crate::run::{RunDir, index};
use crate::wire::Event;
use options::{ATTENTION, LOGITS, REFERENCES};
use options::{portions, price, share, tflops, trained, unknown_option, words};
use std::path::Path;
use std::sync::LazyLock;

/// Fraction of peak that this engine reaches, unless given.
const ENGINE_SHARE: f64 = 0.7;

/// Helps that list what there is, from its list.
static HELP_GPU: LazyLock<String> = LazyLock::new(|| {
    let names: Vec<&str> = gpus::GPUS.iter().map(|gpu| gpu.name).collect();
    format!("Plan for this GPU: {}", names.join(", "))
});
static HELP_METHOD: LazyLock<String> = LazyLock::new(|| {
    let words = Method::ALL.map(|(word, _)| word);
    format!("Training method: {}", words.join(", "))
});
static HELP_OPTIMIZER: LazyLock<String> =
    LazyLock::new(|| format!("Optimizer: {}", UpdateState::optimizers().join(", ")));

/// Plan a run: memory by part, FLOPs, time, cost, what fits
///
/// TARGET is a preset, a spec file, a run, a model folder, a .gguf file, a hub id, or the name of a reference model (gpt2, llama-2-7b,
/// llama-3.1-8b, qwen2.5-0.5b, mixtral-8x7b …). A spec is planned for llmtui's own engine on a CPU, or with
/// `engine: torch` for ranks on the GPUs of this machine or of --gpu. A model is planned for a GPU of this machine, or without one for that
/// engine; a reference model, and a model with --gpu or --memory, for a typical GPU trainer: full AdamW in mixed precision unless
/// configured otherwise. Of a hub id it downloads config.json and the tokenizer, or all of a GGUF file, which holds its description with
/// its weights.
#[derive(Debug, Clone, clap::Args)]
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
    #[arg(long, value_name = "NAME", help = HELP_GPU.as_str())]
    pub gpu: Option<String>,
    /// Memory per device: 24GB, 80GiB; overrides the GPU's own
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub memory: Option<u64>,
    /// Number of GPUs that share the batch
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub gpus: Option<u64>,
    #[arg(long, value_name = "NAME", help = HELP_METHOD.as_str())]
    pub method: Option<String>,
    /// Where a preference method's reference comes from; frozen is a copy
    #[arg(long, value_name = "SOURCE", value_parser = words(&REFERENCES), ignore_case = true)]
    pub reference: Option<String>,
    /// Train adapters of this rank instead of all weights
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u64).range(1..=65_536))]
    pub lora_rank: Option<u64>,
    /// Layers with an adapter; minimal: queries and values
    #[arg(long, value_name = "LAYERS", value_parser = words(&LoraTargets::ALL), ignore_case = true)]
    pub lora_targets: Option<String>,
    /// Quantize the frozen base model; implies adapters of rank 8; nf4 is double quantized
    #[arg(long, value_name = "TYPE", value_parser = words(&BaseFormat::ALL), ignore_case = true)]
    pub quantize: Option<String>,
    /// ZeRO stage: 1 shards the optimizer, 2 gradients too, 3 weights too
    #[arg(long, value_name = "STAGE", value_parser = clap::value_parser!(u8).range(0..=3))]
    pub zero: Option<u8>,
    /// Dtypes of weights, gradients and moments; mixed is 16 bytes per parameter, mixed-fp32-grads 18, bf16 8
    #[arg(long, value_name = "DTYPE", value_parser = words(&Precision::ALL), ignore_case = true)]
    pub precision: Option<String>,
    #[arg(long, value_name = "NAME", help = HELP_OPTIMIZER.as_str())]
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
    /// Completions sampled at once by ppo, grpo and rloo, on each GPU; with engine: torch by all ranks together
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub rollouts: Option<u64>,
    /// Activation checkpointing: off, full, every-4 (one stored input per 4 blocks)
    #[arg(long, value_name = "MODE")]
    pub checkpointing: Option<String>,
    /// Compute logits for the whole micro-batch or in chunks of 1,024 tokens
    #[arg(long, value_name = "MODE", value_parser = words(&LOGITS), ignore_case = true)]
    pub logits: Option<String>,
    /// Attention implementation; eager stores the scores
    #[arg(long, value_name = "KIND", value_parser = words(&ATTENTION), ignore_case = true)]
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
    let resolved = resolve(args, cx)?;
    let (request, machine) = request(args, resolved.clone(), cx)?;
    let plan = plan(&request);
    let engine = engine(args, &request, cx)?;
    let here = here::plan_here(args, resolved, &request, cx)?;
    let text = if args.json {
        let mut told = json::to_json(&plan);
        told["speed"] = json::speed_json(&plan, machine.as_ref(), cx);
        told["engine"] = serde_json::to_value(&engine)?;
        told["here"] = here
            .as_ref()
            .map_or(serde_json::Value::Null, json::here_json);
        format!("{}\n", super::out::json(&told)?)
    } else {
        table::render(&plan, engine.as_ref(), here.as_ref(), &style::Style::of(cx))
    };
    use std::io::Write;
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(Exit::Done)
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
fn request(
    args: &Args,
    resolved: Request,
    cx: &Context,
) -> anyhow::Result<(Request, Option<Machine>)> {
    let (mut request, here) = on_device(args, resolved, cx)?;
    if let Some(memory) = args.memory {
        request.device.memory = Some(memory);
        if args.gpu.is_none() {
            request.device.name = crate::base::human::bytes_sold(memory);
        }
    }
    trained(args, &mut request)?;
    portions(args, &mut request)?;
    if let Some(fault) = request.fault() {
        return Err(Failure::user_error(fault.what, fault.fix).into());
    }
    if let Some(tflops) = args.tflops {
        request.device.set_peak(1e12 * tflops);
        if matches!(
            request.mfu_source,
            ValueSource::Learned | ValueSource::Probed
        ) {
            (request.mfu, request.mfu_source) = (ENGINE_SHARE, ValueSource::Assumed);
        }
    }
    if let Some(price) = args.price {
        request.device.set_price(price);
    }
    request.assume();
    Ok((request, here))
}

/// The request on the device that is planned for; this machine too, where it is that one and was measured.
fn on_device(
    args: &Args,
    request: Request,
    cx: &Context,
) -> anyhow::Result<(Request, Option<Machine>)> {
    if let Some(name) = &args.gpu {
        let gpu = gpus::find(name).ok_or_else(|| unknown_gpu(name))?;
        let request = match wants_trainer(args) {
            true => target::on_gpu(request, Device::of(gpu)),
            false => on_gpus_named(request, gpu, args.gpus.unwrap_or(1)),
        };
        return Ok((request, None));
    }
    if wants_gpu(args) {
        let device = request.device.clone();
        return Ok((target::on_gpu(request, device), None));
    }
    let mut request = on_ranks(request, &gpus_here(cx)?);
    if request.estimator != Estimator::Engine {
        return Ok((request, None));
    }
    let machine = Machine::load_or_measure(&cx.env, super::probe::measure);
    machine.calibrate(&mut request);
    if request.mfu_source == ValueSource::Probed
        && !args.json
        && let Some(words) = machine.speed_words(cx.clock.now())
    {
        errln!("note: this machine's speed is {words}");
    }
    Ok((request, Some(machine)))
}

fn unknown_gpu(name: &str) -> Failure {
    let all: Vec<&str> = gpus::GPUS.iter().map(|g| g.name).collect();
    let mut failure = unknown_option("gpu", name, gpus::nearest(name), &all);
    failure.hint.push_str("; or --memory 24GB");
    failure
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
    let mut word = args.target.clone();
    // The description of a model of the hub is enough.
    if matches!(found, Err(TargetError::Unknown { .. })) && models::repo(&args.target).is_some() {
        let folder = model_ref::find(&args.target, Parts::Description, cx)?;
        word = folder.to_string_lossy().into_owned();
        found = target::resolve(&word, &set, &cx.spec_sources());
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
        Ok(request) => model_here(args, &word, request, cx),
        Err(TargetError::Spec(errors)) => Err(errors.into()),
        Err(error) => {
            let hint = match &error {
                TargetError::Unknown { near, .. } => {
                    let models =
                        "models: gpt2, llama-2-7b, llama-3.1-8b, qwen2.5-0.5b, mixtral-8x7b …";
                    match near.is_empty() {
                        true => format!("presets: llmtui presets list; {models}"),
                        false => format!(
                            "{} Presets: llmtui presets list; {models}",
                            did_you_mean(near.join(", "))
                        ),
                    }
                }
                other => other.hint(),
            };
            Err(Failure::user_error(error.to_string(), hint).into())
        }
    }
}

/// A model by itself for this machine, as a spec is, unless another device is named: for a GPU of it, or else for this program's
/// engine. Which one is reported.
fn model_here(args: &Args, word: &str, request: Request, cx: &Context) -> anyhow::Result<Request> {
    let elsewhere = args.gpu.is_some() || args.memory.is_some() || wants_gpu(args);
    if elsewhere || request.estimator == Estimator::Engine {
        return Ok(request);
    }
    let Some(model) = target::model_at(word, &cx.spec_sources()) else {
        return Ok(request);
    };
    let name = request.name.clone();
    let gpus = gpus_here(cx)?;
    let longer = args
        .seq_len
        .map(|seq_len| options::longer_context(&request, seq_len))
        .transpose()?
        .flatten();
    let (mut request, device) = match (gpus.first(), target::on_own_engine(&model)) {
        (Some(gpu), _) => (on_gpus_here(request, &gpus), one_line(&gpu.name)),
        (None, Some(mut request)) => {
            // Its rows are the context from here on.
            request.settings.extend(longer);
            (request, "its CPU, without a GPU".into())
        }
        (None, None) => return Ok(request),
    };
    request.name = name;
    if !args.json {
        let here = match &cx.hardware {
            Some(recording) => format!("recorded in {}", shown(recording)),
            None => one_line(&crate::hardware::host_name()),
        };
        errln!(
            "note: planned for this machine ({here}, {device}); --gpu NAME or --memory SIZE plans for another device"
        );
    }
    Ok(request)
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
            target::as_trained(request, head.precision.as_deref());
        }
        if args.gpu.is_none() && !args.json {
            let here = crate::hardware::host_name();
            let there = trained_on(&run).filter(|there| *there != here);
            let there = there.map_or(String::new(), |there| {
                format!(", and the run trained on {}", one_line(&there))
            });
            errln!(
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
    let _ = scan_events(&run.events_path(), &["MachineDescribed"], |event| {
        if let Event::MachineDescribed { machine } = event {
            host = machine["host"].as_str().map(String::from).or(host.take());
        }
    });
    host
}

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
