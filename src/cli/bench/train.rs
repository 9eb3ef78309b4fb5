//! `llmtui bench train`: whole training steps on random tokens.

use super::machine::{Counters, Peaks, peak_rss};
use super::sizes::{Setup, Size};
use super::trainee::{Share, Trainee};
use super::{Exit, arithmetic, check, pool, precision, print};
use crate::base::clock::Clock;
use crate::base::human;
use crate::base::stats::median;
use crate::cli::Context;
use crate::kernels::simd::instructions;
use crate::nn::adapter::Lora;
use crate::nn::{AdapterConfig, Precision, compute_dtype_name};
use serde::Serialize;
use std::time::Duration;

/// Measure tokens per second of whole training steps: forward, backward, clipping, AdamW
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Model size
    #[arg(long, value_enum, default_value_t = Size::S)]
    pub size: Size,
    /// Compute dtype of matmuls; auto picks the fastest available
    #[arg(long, value_name = "DTYPE", default_value = "auto", value_parser = precision())]
    pub precision: Precision,
    /// Measure for this long
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    pub seconds: f64,
    /// Compute threads; all cores by default
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Sequence length in tokens; default: the size's own
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub seq_len: Option<u32>,
    /// Sequences per step; default: the size's own
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub batch_size: Option<u32>,
    /// Train LoRA adapters of this rank on all linear layers instead of all weights
    #[arg(long, value_name = "RANK", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub lora: Option<u32>,
    /// Dropout on the adapters' input
    #[arg(long, value_name = "P", default_value_t = 0.0, requires = "lora", value_parser = probability)]
    pub lora_dropout: f64,
    /// Use DoRA (adapters with magnitudes)
    #[arg(long, requires = "lora")]
    pub dora: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

fn probability(word: &str) -> Result<f64, String> {
    let number = word.parse().ok().filter(|p| (0.0..0.95).contains(p));
    number.ok_or_else(|| "a number from 0 to 0.95".into())
}

/// Minimum number of measured steps.
const MIN_STEPS: usize = 3;
/// Warm-up steps: caches, buffers and clocks settle.
const WARM_UP: u64 = 3;
/// Time spent measuring each of the machine's peaks.
const PEAK_SECONDS: f64 = 1.0;

/// The measurements: the object printed by `--json`.
#[derive(Debug, Serialize)]
struct Report {
    size: Size,
    /// Dtype of the matmuls.
    precision: &'static str,
    n_params: usize,
    /// How many of them train.
    n_trainable: usize,
    threads: usize,
    /// The vector instructions in use, which `LLMTUI_SIMD` can limit.
    instructions: &'static str,
    batch_size: usize,
    seq_len: usize,
    steps: usize,
    /// From the median step.
    tok_per_sec: f64,
    step_ms_median: f64,
    step_ms_min: f64,
    step_ms_max: f64,
    /// MFU: fraction of the peak of the dtype in use (PaLM's count).
    mfu: f64,
    /// The same against the f32 peak.
    mfu_f32: f64,
    peak_gflops: Peaks,
    /// Of the whole process; absent if the system does not report it.
    peak_rss_bytes: Option<u64>,
    /// Activations, their gradients and logits.
    pass_bytes: u64,
    page_faults_per_step: Option<f64>,
    allocations_per_step: f64,
    /// From program start to the beginning of the first step.
    ready_s: f64,
    /// From program start to its end.
    first_step_s: f64,
    kernels: Vec<Share>,
}

pub fn run(args: Args, cx: &Context) -> anyhow::Result<Exit> {
    check(args.seconds, args.threads)?;
    arithmetic(args.precision)?;
    let (pool, threads) = pool(args.threads)?;
    let report = pool.install(|| measure(&args, threads, cx))?;
    print(&report, args.json, print_table)
}

fn setup(args: &Args) -> Setup {
    let mut setup = args.size.setup();
    if let Some(seq_len) = args.seq_len {
        setup.model.seq_len = seq_len as usize;
    }
    if let Some(batch_size) = args.batch_size {
        setup.batch_size = batch_size as usize;
    }
    setup.adapter = args.lora.map(|rank| {
        AdapterConfig::Lora(Lora {
            rank: rank as usize,
            dropout: args.lora_dropout,
            dora: args.dora,
            ..Lora::default()
        })
    });
    setup
}

fn measure(args: &Args, threads: usize, cx: &Context) -> anyhow::Result<Report> {
    let arithmetic = arithmetic(args.precision)?;
    let mut trainee = Trainee::new(&setup(args), arithmetic)?;
    let ready_s = cx.clock.elapsed().as_secs_f64();
    trainee.step(0)?;
    let first_step_s = cx.clock.elapsed().as_secs_f64();
    for n in 1..WARM_UP {
        trainee.step(n)?;
    }
    trainee.profile();
    let before = Counters::read();
    let budget = Duration::from_secs_f64(args.seconds.min(1e6));
    let begun = cx.clock.elapsed();
    let mut times = Vec::with_capacity(1 << 16);
    while times.len() < MIN_STEPS || cx.clock.elapsed() - begun < budget {
        times.push(1e3 * trainee.step(times.len() as u64)?.as_secs_f64());
    }
    let after = Counters::read();
    let steps = times.len() as f64;
    let median_ms = median(&times).unwrap_or(f64::NAN);
    let tok_per_sec = trainee.step_tokens() as f64 / (median_ms / 1e3);
    let peak_rss_bytes = peak_rss();
    let peaks = Peaks::measure(PEAK_SECONDS.min(times.iter().sum::<f64>() / 1e3));
    let flops = tok_per_sec * trainee.model.flops_per_token();
    let faults = before.page_faults.zip(after.page_faults);
    Ok(Report {
        size: args.size,
        precision: compute_dtype_name(arithmetic),
        n_params: trainee.model.n_params(),
        n_trainable: trainee.model.params().n_trainable(),
        threads,
        instructions: instructions(),
        batch_size: trainee.batch_size,
        seq_len: trainee.model.shape().seq_len,
        steps: times.len(),
        tok_per_sec,
        step_ms_median: median_ms,
        step_ms_min: times.iter().copied().fold(f64::INFINITY, f64::min),
        step_ms_max: times.iter().copied().fold(0.0, f64::max),
        mfu: flops / (peaks.of(arithmetic) * 1e9),
        mfu_f32: flops / (peaks.f32 * 1e9),
        peak_gflops: peaks,
        peak_rss_bytes,
        pass_bytes: trainee.model.footprints().0.total(),
        page_faults_per_step: faults.map(|(a, b)| (b - a) as f64 / steps),
        allocations_per_step: (after.allocations - before.allocations) as f64 / steps,
        ready_s,
        first_step_s,
        kernels: trainee.shares(),
    })
}

fn print_table(report: &Report) -> std::io::Result<()> {
    outln!(
        "size {:?}, {}: {} parameters, {} × {} tokens per step, {} threads, {}",
        report.size,
        report.precision,
        human::short(report.n_params as f64),
        report.batch_size,
        report.seq_len,
        report.threads,
        report.instructions
    )?;
    outln!("tokens per second  {}", human::short(report.tok_per_sec))?;
    outln!(
        "step               {:.1} ms median of {}, {:.1} to {:.1} ms",
        report.step_ms_median,
        report.steps,
        report.step_ms_min,
        report.step_ms_max
    )?;
    print_arithmetic(report)?;
    let activations = human::bytes(report.pass_bytes);
    match report.peak_rss_bytes {
        Some(bytes) => outln!(
            "peak memory        {}, of which activations {activations}",
            human::bytes(bytes)
        )?,
        None => outln!("activations        {activations}")?,
    }
    let faults = report.page_faults_per_step;
    let faults = faults.map_or(String::new(), |n| format!(", {n:.1} page faults"));
    outln!(
        "each step          {:.1} allocations{faults}",
        report.allocations_per_step
    )?;
    outln!(
        "first step         starts after {:.2} s, ends after {:.2} s",
        report.ready_s,
        report.first_step_s
    )?;
    outln!()?;
    outln!("{:<20} {:>9}  {:>6}", "kernel", "ms/step", "share")?;
    for Share { name, ms, share } in &report.kernels {
        outln!("{name:<20} {ms:>9.2}  {:>4.1} %", 100.0 * share)?;
    }
    Ok(())
}

fn print_arithmetic(report: &Report) -> std::io::Result<()> {
    let peaks = report.peak_gflops;
    let in_f32 = format!(
        "{} of this machine's {:.0} GFLOP/s in f32",
        human::percent(report.mfu_f32, 0),
        peaks.f32
    );
    match peaks.bf16.filter(|_| report.precision == "bf16") {
        Some(bf16) => outln!(
            "MFU                {} of its {bf16:.0} GFLOP/s in bf16, {in_f32}",
            human::percent(report.mfu, 0)
        )?,
        None => outln!("arithmetic         {in_f32}")?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn args(words: &[&str]) -> Result<Args, clap::Error> {
        let line = Line::try_parse_from([&["train"], words].concat());
        line.map(|line| line.args)
    }

    #[test]
    fn sequences_and_batches_can_be_chosen_and_nonsense_is_refused() {
        let args_for = |words: &[&str]| args(words).unwrap();
        let setup = setup(&args_for(&["--size", "L", "--seq-len", "2048"]));
        assert_eq!((setup.model.seq_len, setup.batch_size), (2048, 4));
        assert_eq!(args_for(&["--precision", "f32"]).precision, Precision::F32);
        assert!(args(&["--batch-size", "0"]).is_err());
        let error = args(&["--precision", "fp16"]).err().map(|e| e.to_string());
        assert!(error.is_some_and(|e| e.contains("auto, f32, bf16")));
    }
}
