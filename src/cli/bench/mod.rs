//! `llmtui bench`: benchmarks of this machine, without a run. One file per subject.

mod decode;
mod machine;
mod matmul;
mod sizes;
mod train;
mod trainee;

use super::Context;
use super::exit::{Exit, Failure};
use super::out::json_line;
use crate::kernels::matmul::ComputeDtype;
use crate::nn::{Precision, PrecisionError};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::Serialize;

/// Benchmark this machine
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    pub what: What,
}

#[derive(Debug, clap::Subcommand)]
pub enum What {
    Train(train::Args),
    Decode(decode::Args),
    Gemm(matmul::Args),
}

pub fn run(args: Args, cx: &Context) -> anyhow::Result<Exit> {
    match args.what {
        What::Train(args) => train::run(args, cx),
        What::Decode(args) => decode::run(args, cx),
        What::Gemm(args) => matmul::run(args, cx),
    }
}

/// Rejects values that allow no measurement.
fn check(seconds: f64, threads: Option<usize>) -> anyhow::Result<()> {
    if !(seconds.is_finite() && seconds >= 0.0) || threads == Some(0) {
        return Err(Failure::user_error("--seconds and --threads must be positive", "").into());
    }
    Ok(())
}

/// Parses a precision.
fn precision() -> impl TypedValueParser<Value = Precision> {
    let read = |word: String| serde_json::from_value::<Precision>(word.into());
    PossibleValuesParser::new(["auto", "f32", "bf16"]).try_map(read)
}

/// Resolves a precision on this machine.
fn arithmetic(precision: Precision) -> anyhow::Result<ComputeDtype> {
    let refused = |e: PrecisionError| Failure::user_error(e.to_string(), PrecisionError::HINT);
    Ok(precision.resolve().map_err(refused)?)
}

/// The thread pool and its size: as requested, or one thread per core.
fn pool(threads: Option<usize>) -> anyhow::Result<(rayon::ThreadPool, usize)> {
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.unwrap_or(available);
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()?;
    Ok((pool, threads))
}

/// Prints a report as one JSON object, or as its table.
fn print<R: Serialize>(
    report: &R,
    json: bool,
    table: fn(&R) -> std::io::Result<()>,
) -> anyhow::Result<Exit> {
    match json {
        true => outln!("{}", json_line(report)?)?,
        false => table(report)?,
    }
    Ok(Exit::Done)
}
