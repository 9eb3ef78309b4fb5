//! `llmtui bench decode`: prefill and decode throughput of a model at batch size 1.

use super::machine::peak_rss;
use super::sizes::smol_135m;
use super::{Exit, arithmetic, check, pool, precision, print};
use crate::base::clock::Clock;
use crate::base::human;
use crate::base::stats::median;
use crate::cli::args::kv_precision;
use crate::cli::exit::Failure;
use crate::cli::{Context, model_ref};
use crate::kernels::bandwidth::read_bandwidth;
use crate::kernels::simd::instructions;
use crate::models::{ModelSource, Parts, SourceError};
use crate::nn::{KvPrecision, Model, Precision, compute_dtype_name, storage_name};
use serde::Serialize;
use std::time::Duration;

/// Measure prefill and decode throughput in tokens per second at batch size 1
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A checkpoint or model folder, a GGUF file, a run, or a hub id; without it, random weights in the shape of SmolLM2-135M
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Compute dtype of matmuls; auto picks the fastest available
    #[arg(long, value_name = "DTYPE", default_value = "auto", value_parser = precision())]
    pub precision: Precision,
    /// Dtype of the KV cache; auto takes bf16 for quantized weights and bf16 matmuls
    #[arg(long, value_name = "DTYPE", default_value = "auto", value_parser = kv_precision())]
    pub kv_cache: KvPrecision,
    /// Prompt length in tokens
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub prompt: u32,
    /// Measure for this long
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    pub seconds: f64,
    /// Compute threads; all cores by default
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Tokens decoded after each prompt.
const WRITTEN: usize = 100;
/// Fewest prompts to measure.
const MIN_ROUNDS: usize = 2;
/// Time spent measuring memory bandwidth.
const BANDWIDTH_SECONDS: f64 = 0.5;

/// The measurements: the object printed by `--json`.
#[derive(Debug, Serialize)]
struct Report {
    precision: &'static str,
    /// Number formats of the weights, most common first.
    weights: Vec<&'static str>,
    n_params: usize,
    threads: usize,
    /// The vector instructions in use, which `LLMTUI_SIMD` can limit.
    instructions: &'static str,
    /// Number format of the KV cache.
    kv_cache: &'static str,
    prompt_tokens: usize,
    rounds: usize,
    /// Medians.
    prefill_tok_per_sec: f64,
    decode_tok_per_sec: f64,
    read_bandwidth_gb_per_sec: f64,
    /// Bytes of weights read per decoded token.
    bytes_per_token: usize,
    /// Fraction of memory bandwidth, counting weights only: 0 to 1, above 1 if a cache holds them.
    bandwidth_share: f64,
    /// Decode rate at which memory bandwidth is the limit: each token reads all weights once.
    decode_limit_tok_per_sec: f64,
    peak_rss_bytes: Option<u64>,
}

pub fn run(args: Args, cx: &Context) -> anyhow::Result<Exit> {
    check(args.seconds, args.threads)?;
    arithmetic(args.precision)?;
    let (pool, threads) = pool(args.threads)?;
    let report = pool.install(|| measure(&args, threads, cx))?;
    print(&report, args.json, print_table)
}

/// The model, and the number formats of its weights.
fn model(args: &Args, cx: &Context) -> anyhow::Result<(Model, Vec<&'static str>)> {
    let user_error = |e: SourceError| Failure::user_error(e.to_string(), e.hint());
    let (mut model, formats) = match &args.model {
        Some(word) => {
            let place = model_ref::find(word, Parts::Everything, cx)?;
            let source = ModelSource::open(&place).map_err(user_error)?;
            let model = source.load_for_inference().map_err(user_error)?;
            (model, source.formats().unwrap_or(vec!["F32"]))
        }
        None => (random_model()?, vec!["F32"]),
    };
    model.set_compute_dtype(arithmetic(args.precision)?)?;
    model.set_kv_cache(args.kv_cache)?;
    let (seq_len, wanted) = (model.shape().seq_len, args.prompt as usize + WRITTEN);
    if wanted > seq_len {
        let what = format!(
            "the context is {seq_len} tokens; the prompt and {WRITTEN} decoded ones need {wanted}"
        );
        let hint = match seq_len.saturating_sub(WRITTEN) {
            0 => format!(
                "a model with a context of {wanted} tokens or more; with --prompt 1, of {}",
                WRITTEN + 1
            ),
            room => format!("--prompt {room}"),
        };
        return Err(Failure::user_error(what, hint).into());
    }
    Ok((model, formats))
}

/// Weights of the right size; drawing millions of normal samples would take longer than the measurement.
fn random_model() -> candle_core::Result<Model> {
    let (config, vocab_size) = smol_135m();
    let mut model = Model::new(&config, vocab_size, &candle_core::Device::Cpu)?;
    model.params_mut().write_weights(|weights| {
        let mut state = 1_u32;
        weights.fill_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            0.04 * ((state >> 8) as f32 / (1 << 24) as f32 - 0.5)
        });
    })?;
    Ok(model)
}

fn measure(args: &Args, threads: usize, cx: &Context) -> anyhow::Result<Report> {
    let (mut model, weights) = model(args, cx)?;
    let (shape, arithmetic) = (*model.shape(), model.arithmetic());
    let prompt: Vec<u32> = (0..args.prompt)
        .map(|i| i * 7919 % shape.vocab_size as u32)
        .collect();
    let budget = Duration::from_secs_f64(args.seconds.min(1e6));
    let (mut prefill, mut decode) = (Vec::new(), Vec::new());
    // The first round warms caches and buffers.
    round(&mut model, &prompt, 2, cx)?;
    let begun = cx.clock.elapsed();
    while prefill.len() < MIN_ROUNDS || cx.clock.elapsed() - begun < budget {
        let (read, written) = round(&mut model, &prompt, WRITTEN, cx)?;
        prefill.push(read);
        decode.extend(written);
    }
    let rate = |tokens: usize, times: &[f64]| tokens as f64 / median(times).unwrap_or(f64::NAN);
    let peak_rss_bytes = peak_rss();
    let bandwidth = read_bandwidth(BANDWIDTH_SECONDS);
    let bytes_per_token = model.decode_bytes_per_token();
    let decode_limit = bandwidth * 1e9 / bytes_per_token as f64;
    let decode_tok_per_sec = rate(1, &decode);
    Ok(Report {
        precision: compute_dtype_name(arithmetic),
        weights,
        n_params: model.n_params(),
        threads,
        instructions: instructions(),
        kv_cache: storage_name(model.kv_storage()),
        prompt_tokens: prompt.len(),
        rounds: prefill.len(),
        prefill_tok_per_sec: rate(prompt.len(), &prefill),
        decode_tok_per_sec,
        read_bandwidth_gb_per_sec: bandwidth,
        bytes_per_token,
        bandwidth_share: decode_tok_per_sec / decode_limit,
        decode_limit_tok_per_sec: decode_limit,
        peak_rss_bytes,
    })
}

/// Seconds of prefill, and of each greedily decoded token.
fn round(
    model: &mut Model,
    prompt: &[u32],
    written: usize,
    cx: &Context,
) -> candle_core::Result<(f64, Vec<f64>)> {
    let clock = &cx.clock;
    model.decode(|read_on| {
        let begun = clock.elapsed();
        let mut logits = Vec::new();
        read_on(prompt, &mut logits)?;
        let read = (clock.elapsed() - begun).as_secs_f64();
        let mut times = Vec::with_capacity(written);
        for _ in 0..written {
            let begun = clock.elapsed();
            let next = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b]));
            read_on(&[next.unwrap_or_default() as u32], &mut logits)?;
            times.push((clock.elapsed() - begun).as_secs_f64());
        }
        Ok((read, times))
    })
}

fn print_table(report: &Report) -> std::io::Result<()> {
    outln!(
        "{} parameters, weights in {}, the rest in {}, KV cache in {}, {} threads, {}",
        human::short(report.n_params as f64),
        report.weights.join(" and "),
        report.precision,
        report.kv_cache,
        report.threads,
        report.instructions
    )?;
    outln!(
        "prefill            {:.0} tokens per second, a prompt of {}",
        report.prefill_tok_per_sec,
        report.prompt_tokens
    )?;
    outln!(
        "decode             {:.1} tokens per second, {} of the {:.0} that memory allows at {:.1} GB/s",
        report.decode_tok_per_sec,
        human::percent(
            report.decode_tok_per_sec / report.decode_limit_tok_per_sec,
            0
        ),
        report.decode_limit_tok_per_sec,
        report.read_bandwidth_gb_per_sec
    )?;
    outln!(
        "per decoded token  {} of weights read",
        human::bytes(report.bytes_per_token as u64)
    )?;
    if let Some(bytes) = report.peak_rss_bytes {
        outln!("peak memory        {}", human::bytes(bytes))?;
    }
    Ok(())
}
