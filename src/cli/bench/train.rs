//! `llmtui bench train`: whole training steps on random tokens.

use super::{Exit, check, pool};
use crate::base::human;
use crate::base::rng::{Rng, Stream};
use crate::base::stats::median;
use crate::cli::Context;
use crate::kernels::matmul::{Arithmetic, peak_gflops};
use crate::methods::{MethodConfig, StepContext, differentiate};
use crate::nn::mlp::{Approximate, MlpConfig};
use crate::nn::norm::NormConfig;
use crate::nn::position::PositionConfig;
use crate::nn::{Model, ModelConfig, TokenBatch};
use crate::optim::{OptimizerConfig, UpdateRule, clip_scale};
use serde::Serialize;
use std::time::Duration;

/// Tokens per second of whole training steps: forward, backward, clipping, AdamW
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Model size
    #[arg(long, value_enum, default_value_t = Size::S)]
    pub size: Size,
    /// Number format of the arithmetic; auto takes the best there is
    #[arg(long, value_enum, default_value_t = Precision::F32)]
    pub precision: Precision,
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

/// Model and batch of one benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
pub enum Size {
    /// GPT-2 style, 0.8M parameters: 4 × 128, 12 × 64 tokens, vocabulary 65
    #[value(name = "S", alias = "s")]
    S,
    /// GPT-2 style, 10.8M: 6 × 384, 16 × 256 tokens, vocabulary 65
    #[value(name = "M", alias = "m")]
    M,
    /// Llama style, 27.8M: 8 × 512, 8 / 4 heads, 4 × 512 tokens, vocabulary 8,192
    #[value(name = "L", alias = "l")]
    L,
    /// GPT-2, 124M: 12 × 768, 4 × 64 tokens, vocabulary 50,257
    #[value(name = "XL", alias = "xl")]
    XL,
}

/// What products are computed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    F32,
    Auto,
}

/// Steps that are always measured, however long they take.
const MIN_STEPS: usize = 3;
/// Steps before measuring: caches, buffers and clocks settle.
const WARM_UP: usize = 2;
/// Time spent on finding the machine's peak.
const PEAK_SECONDS: f64 = 1.0;
const LR: f64 = 1e-4;

/// What was measured: the object printed by `--json`.
#[derive(Debug, Serialize)]
struct Report {
    size: Size,
    precision: &'static str,
    n_params: usize,
    threads: usize,
    steps: usize,
    tok_per_sec: f64,
    step_ms_median: f64,
    step_ms_min: f64,
    step_ms_max: f64,
    /// Share of `peak_gflops` that useful arithmetic reached (PaLM's count).
    mfu: f64,
    /// The best f32 matrix product of this machine on the same threads.
    peak_gflops: f64,
    /// Of the whole process; absent where the system does not tell.
    peak_rss_bytes: Option<u64>,
    /// From the start of the program to the end of the first step.
    first_step_s: f64,
}

pub fn run(args: Args, cx: &Context) -> anyhow::Result<Exit> {
    check(args.seconds, args.threads)?;
    let (pool, threads) = pool(args.threads)?;
    let report = pool.install(|| measure(&args, threads, cx))?;
    if args.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print_table(&report);
    }
    Ok(Exit::Done)
}

fn print_table(report: &Report) {
    println!(
        "size {:?}, {}: {} parameters on {} threads",
        report.size,
        report.precision,
        human::short(report.n_params as f64),
        report.threads
    );
    println!("tokens per second  {}", human::short(report.tok_per_sec));
    println!(
        "step               {:.1} ms median of {}, {:.1} to {:.1} ms",
        report.step_ms_median, report.steps, report.step_ms_min, report.step_ms_max
    );
    println!(
        "arithmetic         {:.0} % of this machine's {:.0} GFLOP/s in f32",
        100.0 * report.mfu,
        report.peak_gflops
    );
    if let Some(bytes) = report.peak_rss_bytes {
        println!("peak memory        {}", human::bytes(bytes));
    }
    println!("first step after   {:.2} s", report.first_step_s);
}

fn measure(args: &Args, threads: usize, cx: &Context) -> candle_core::Result<Report> {
    use crate::base::clock::Clock;
    let mut trainee = Trainee::new(args.size)?;
    trainee.step(0)?;
    let first_step_s = cx.clock.elapsed().as_secs_f64();
    for n in 1..WARM_UP {
        trainee.step(n as u64)?;
    }
    let budget = Duration::from_secs_f64(args.seconds.min(1e6));
    let begun = cx.clock.elapsed();
    let mut times = Vec::new();
    while times.len() < MIN_STEPS || cx.clock.elapsed() - begun < budget {
        let before = cx.clock.elapsed();
        trainee.step(times.len() as u64)?;
        times.push(1e3 * (cx.clock.elapsed() - before).as_secs_f64());
    }
    let seconds = times.iter().sum::<f64>() / 1e3;
    let tokens = trainee.batch_size * trainee.model.shape().seq_len;
    let step_ms_median = median(&times).unwrap_or(f64::NAN);
    let tok_per_sec = tokens as f64 / (step_ms_median / 1e3);
    let peak_rss_bytes = peak_rss();
    let peak_gflops = peak_gflops(Arithmetic::F32, PEAK_SECONDS.min(seconds));
    Ok(Report {
        size: args.size,
        precision: "f32",
        n_params: trainee.model.n_params(),
        threads,
        steps: times.len(),
        tok_per_sec,
        step_ms_median,
        step_ms_min: times.iter().copied().fold(f64::INFINITY, f64::min),
        step_ms_max: times.iter().copied().fold(0.0, f64::max),
        mfu: tok_per_sec * trainee.model.flops_per_token() / (peak_gflops * 1e9),
        peak_gflops,
        peak_rss_bytes,
        first_step_s,
    })
}

/// A model in training on random tokens.
struct Trainee {
    model: Model,
    optimizer: Box<dyn UpdateRule>,
    method: MethodConfig,
    batch_size: usize,
}

impl Trainee {
    fn new(size: Size) -> candle_core::Result<Trainee> {
        let (config, vocab_size, batch_size) = size.setup();
        let mut model = Model::new(&config, vocab_size, &candle_core::Device::Cpu)?;
        model.init(1)?;
        let optimizer = OptimizerConfig::AdamW(Default::default()).build(model.params())?;
        Ok(Trainee {
            model,
            optimizer,
            method: MethodConfig::Pretrain(Default::default()),
            batch_size,
        })
    }

    fn step(&mut self, n: u64) -> candle_core::Result<()> {
        let shape = *self.model.shape();
        let count = self.batch_size * shape.seq_len;
        let mut rng = Rng::new(1, Stream::Test, n, 0);
        let tokens: Vec<u32> = (0..=count)
            .map(|_| rng.below(shape.vocab_size as u64) as u32)
            .collect();
        self.model.params_mut().zero_grads()?;
        let out = self.model.forward(&TokenBatch {
            inputs: &tokens[..count],
            targets: &tokens[1..],
            batch_size: self.batch_size,
            seq_len: shape.seq_len,
        })?;
        let context = StepContext { step_tokens: count };
        let gradient = differentiate(&*self.method, &out, &context)?;
        self.model
            .backward(&gradient.dlogp, gradient.dentropy.as_ref())?;
        let scale = clip_scale(self.model.params().grad_norm()?, 1.0);
        self.optimizer.step(self.model.params_mut(), LR, scale)
    }
}

impl Size {
    /// (model, vocabulary, sequences a step)
    fn setup(self) -> (ModelConfig, usize, usize) {
        let gpt2 = |n_layer, n_head, d_model, seq_len| ModelConfig {
            n_layer,
            n_head,
            d_model,
            seq_len,
            mlp: tanh_gelu(),
            bias: true,
            ..Default::default()
        };
        match self {
            Size::S => (gpt2(4, 4, 128, 64), 65, 12),
            Size::M => (gpt2(6, 6, 384, 256), 65, 16),
            Size::L => (llama(), 8192, 4),
            Size::XL => (gpt2(12, 12, 768, 64), 50_257, 4),
        }
    }
}

fn tanh_gelu() -> MlpConfig {
    let mut mlp = MlpConfig::Gelu(Default::default());
    if let MlpConfig::Gelu(gelu) = &mut mlp {
        gelu.approximate = Approximate::Tanh;
    }
    mlp
}

fn llama() -> ModelConfig {
    ModelConfig {
        n_layer: 8,
        n_head: 8,
        n_kv_head: Some(4),
        d_model: 512,
        d_ff: Some(1408),
        seq_len: 512,
        position: PositionConfig::Rope(Default::default()),
        norm: NormConfig::RmsNorm(Default::default()),
        mlp: MlpConfig::SwiGlu(Default::default()),
        ..Default::default()
    }
}

/// The most memory this process ever held (Linux).
fn peak_rss() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_parameter_counts_they_are_known_by() {
        let count = |size: Size| {
            let (config, vocab_size, _) = size.setup();
            let model = Model::new(&config, vocab_size, &candle_core::Device::Cpu).unwrap();
            (model.n_params() as f64 / 1e5).round() / 10.0
        };
        assert_eq!([Size::S, Size::M, Size::L].map(count), [0.8, 10.8, 27.8]);
    }

    #[test]
    fn a_step_of_the_smallest_size_changes_the_weights() {
        let mut trainee = Trainee::new(Size::S).unwrap();
        let first = |t: &Trainee| t.model.params().read_weights(|w| w[0]).unwrap();
        let before = first(&trainee);
        trainee.step(0).unwrap();
        assert_ne!(first(&trainee), before);
    }
}
