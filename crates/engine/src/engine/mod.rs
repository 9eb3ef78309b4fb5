//! The engine: turns a spec into events. It owns the model, its optimizer and the checkpoints, executes commands between
//! steps and is independent of any screen. Logs, sockets and processes are handled elsewhere: the engine has one sink for
//! events, one source of commands and a stop flag.

mod broken;
mod brought;
pub mod causes;
pub mod checkpoint;
mod collapse;
mod context;
pub mod critic;
mod due;
mod emit;
mod eval;
mod examine;
pub mod experience;
pub mod export;
mod extra;
mod finite;
mod guard;
pub mod infer;
pub mod memorization;
pub mod merge;
pub mod merge_models;
mod mix;
mod oom_kill;
mod optimizer;
pub mod own_answers;
pub mod perplexity;
pub mod preflight;
mod prepare;
mod probing;
mod queue;
mod reading;
pub mod reference;
mod remote;
mod rescue;
mod resume;
pub mod revisit;
pub mod roles;
pub mod rollouts;
mod rules;
mod sample;
mod start_weights;
mod state;
mod step;
mod tasks;
mod teacher;
mod telemetry;
mod train;
pub mod update;
mod utilization;

pub use broken::{NO_STACK, no_thread, no_thread_words};
pub use collapse::{FILE as REFERENCE_CURVE, check_reference, keeps_reference};
pub use emit::Emit;
pub use extra::extra_sets;
pub use guard::SpikeDetector;
pub use queue::After;
pub use resume::FRESH_OPTIMIZER;
pub use start_weights::vocabulary_growth;
pub use state::{Adjustments, Progress, TrainState, micro_step_of};

use crate::base::clock::Clock;
use crate::base::paths::Env;
use crate::data::DataError;
use crate::kernels::errors::error_text;
use crate::nn::generate::BrokenLogit;
use crate::run::RunDir;
use crate::spec::RunSpec;
use crate::wire::{Best, Event, Num, Outcome, Request};
use crate::workers::{FailureKind, WorkerFailure};
use emit::Port;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Receiver;

/// One run, as the engine is asked to do it.
#[derive(Debug, Clone)]
pub struct EngineJob {
    /// The run's directory. The caller holds its lock.
    pub run_dir: RunDir,
    pub spec: RunSpec,
    /// Train although a preflight check failed, or although the data changed since the checkpoint.
    pub force: bool,
    /// Checkpoint and stop after this step, without changing the schedule.
    pub stop_after: Option<u64>,
    /// Continue from the newest whole checkpoint instead of starting at step 0.
    pub resume: bool,
    /// Such a resume drops the optimizer's state of the checkpoint.
    pub fresh_optimizer: bool,
    /// The run that must end before this one begins.
    pub after: Option<After>,
    /// What of the environment a run needs: which GPUs CUDA shows, where the hub and the cache of tokens are.
    pub env: Env,
}

/// Why a run ended before its time.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The run cannot start: spec, tokenizer, base model, checkpoints.
    #[error("{0}")]
    Setup(String),
    /// A preflight check failed.
    #[error("{0}")]
    Refused(String),
    /// The training broke: a non-finite loss, for one.
    #[error("{0}")]
    Training(String),
    #[error("{0}; {hint}", hint = .0.hint())]
    Data(#[from] DataError),
    #[error("computing: {0}")]
    Compute(String),
    /// No token can be drawn: what a rescue is for, as a loss that is not finite.
    #[error("{0}")]
    NotFinite(BrokenLogit),
    #[error("checkpoint: {0}")]
    Checkpoint(#[from] checkpoint::CheckpointError),
    /// Ranks of PyTorch did not come, or went.
    #[error("{0}; {hint}", hint = .0.kind.hint())]
    Ranks(#[from] WorkerFailure),
    /// The machine has not what the run needs: room on the disk, memory, threads.
    #[error("{0}")]
    Machine(String),
    /// A stop was asked for before the first step: there is nothing to save.
    #[error("stopped before training began")]
    Stopped,
}

impl From<candle_core::Error> for EngineError {
    fn from(error: candle_core::Error) -> Self {
        match BrokenLogit::of(&error) {
            Some(logit) => EngineError::NotFinite(logit),
            None => EngineError::Compute(error_text(error)),
        }
    }
}

impl EngineError {
    fn outcome(&self) -> Outcome {
        match self {
            EngineError::Refused(_) => Outcome::Refused,
            EngineError::Data(error) if error.is_environment_error() => Outcome::Starved,
            EngineError::Setup(_) | EngineError::Data(_) => Outcome::Invalid,
            EngineError::Machine(_) => Outcome::Starved,
            EngineError::Ranks(lost) => match lost.kind {
                FailureKind::Stopped => Outcome::Stopped,
                FailureKind::Bug => Outcome::Failed,
                _ => Outcome::Starved,
            },
            EngineError::Stopped => Outcome::Stopped,
            EngineError::Checkpoint(checkpoint::CheckpointError::Write { .. }) => Outcome::Starved,
            EngineError::Checkpoint(checkpoint::CheckpointError::Optimizer(_)) => Outcome::Invalid,
            _ => Outcome::Failed,
        }
    }
}

/// What `Finished` reports besides the outcome.
#[derive(Debug, Default)]
struct Summary {
    progress: Progress,
    /// Loss over the whole validation split, when the run measured it at its end.
    final_val_loss: Option<Num>,
    /// The best evaluation, its value over the whole split where that was measured at its step.
    best: Option<Best>,
    /// Why the run is complete before its last step.
    early: String,
}

/// Does the whole run on the calling thread: `Hello` is the first event and `Finished` the last, whatever happens in
/// between, a panic included. Commands are obeyed between steps; a raised `stop` flag means "save a checkpoint and end".
pub fn run(
    job: &EngineJob,
    emit: &mut dyn Emit,
    commands: Receiver<Request>,
    stop: Arc<AtomicBool>,
    clock: Arc<dyn Clock>,
) -> Outcome {
    let mut started = clock.elapsed();
    let mut summary = Summary::default();
    let mut port = Port::new(emit, commands, stop, clock.clone(), &job.env);
    let mut killed = None;
    if job.resume {
        killed = oom_kill::oom_warning(
            &job.run_dir.events_path(),
            crate::hardware::memory().oom_kills,
        );
        port.load_history(&job.run_dir.events_path());
    }
    port.emit(hello(job));
    if let Some(killed) = killed {
        port.emit(killed);
    }
    let result = std::panic::catch_unwind(AssertUnwindSafe(|| {
        summary.progress.step = resume::begun_at(job);
        let waited = queue::wait(job, &mut port);
        // The wait is no engine's time, however it ends.
        started = clock.elapsed();
        waited?;
        in_pool(job, || train::begin(job, &mut port, &mut summary))
    }));
    let (outcome, message) = match result {
        Ok(Ok(outcome)) => (outcome, std::mem::take(&mut summary.early)),
        Ok(Err(error)) => (error.outcome(), error.to_string()),
        Err(panic) => match broken::starved(&*panic) {
            Some(why) => (Outcome::Starved, why),
            None => (Outcome::Crashed, broken::crash_report(job, &*panic)),
        },
    };
    let progress = &summary.progress;
    port.emit(Event::Finished {
        outcome,
        step: progress.step,
        tokens: progress.tokens,
        val_loss: summary.final_val_loss,
        best: summary.best.clone(),
        train_loss: progress.train_loss,
        seconds: (clock.elapsed() - started).as_secs_f64(),
        message,
    });
    outcome
}

fn hello(job: &EngineJob) -> Event {
    Event::Hello {
        run: job.run_dir.id().into(),
        engine: env!("CARGO_PKG_VERSION").into(),
        pid: std::process::id(),
        host: crate::hardware::host_name(),
    }
}

/// The number of compute threads of a spec on this machine.
pub fn threads(spec: &RunSpec) -> usize {
    let available = || std::thread::available_parallelism().map_or(1, usize::from);
    spec.train.threads.unwrap_or_else(available)
}

/// Runs `work` inside a pool of the spec's size, so that kernels split their work the same way on every start.
fn in_pool<R: Send>(
    job: &EngineJob,
    work: impl FnOnce() -> Result<R, EngineError> + Send,
) -> Result<R, EngineError> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads(&job.spec))
        .thread_name(|i| format!("compute-{i}"))
        .build()
        .map_err(|e| {
            EngineError::Machine(format!(
                "{} compute threads cannot be started: {e}; lower train.threads, or raise the limit on processes or \
                 address space (ulimit -u, ulimit -v)",
                threads(&job.spec)
            ))
        })?;
    pool.install(work)
}

#[cfg(test)]
mod tests;
