//! `llmtui engine`: the process behind a viewer, started by `train` and `chat`; and its verbs for people.

use super::{
    Context,
    args::Parallel,
    exit::{Exit, Failure},
    model_ref,
    notify::Notifier,
    run_ref,
};
use crate::base::clock::{Clock, SystemClock};
use crate::base::text::shown;
use crate::engine::infer::{self, LoadedModel};
use crate::engine::{self, EngineJob};
use crate::hardware;
use crate::link::signals::{self, Hangup};
use crate::link::stdio::{self, EventWriter};
use crate::link::{self, ConnectError, Endpoint, EngineIo, Host, OnPanic};
use crate::models::{Fetched, Parts};
use crate::nn::KvPrecision;
use crate::plan::calibration;
use crate::run::RunDir;
use crate::wire::{Event, Outcome};
use std::cell::RefCell;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Install and check the PyTorch engine (`engine: torch`); write jobs for SLURM and SkyPilot
///
/// With a run's directory it runs the engine process itself; `train` starts that one.
#[derive(Debug, clap::Args)]
#[command(subcommand_negates_reqs = true, args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    verb: Option<EngineVerb>,
    /// The run's directory
    #[arg(value_name = "RUN_DIR", required_unless_present_any = ["infer", "pipeline"])]
    pub run_dir: Option<PathBuf>,
    /// Load this checkpoint and answer Generate commands
    #[arg(long, value_name = "CHECKPOINT", conflicts_with = "run_dir")]
    pub infer: Option<PathBuf>,
    /// An adapter on that model; may be repeated
    #[arg(long = "adapter", value_name = "DIR", requires = "infer")]
    pub adapters: Vec<PathBuf>,
    /// Dtype of that model's KV cache
    #[arg(long, value_name = "DTYPE", requires = "infer", value_parser = super::args::kv_precision())]
    pub kv_cache: Option<KvPrecision>,
    /// Requests generated concurrently (slots): N, or auto. Default: 1
    #[arg(long, value_name = "N", requires = "infer", value_parser = super::args::parallel)]
    pub parallel: Option<Parallel>,
    /// Drive the stages of this pipeline's folder
    #[arg(long, value_name = "DIR", conflicts_with_all = ["run_dir", "infer"])]
    pub pipeline: Option<PathBuf>,
    /// Relay the live run's lines over standard input and output, for a viewer on another machine
    #[arg(long)]
    pub stdio: bool,
    /// Resume from the newest checkpoint
    #[arg(long)]
    pub resume: bool,
    /// Save and stop after this step
    #[arg(long, value_name = "STEP")]
    pub stop_after: Option<u64>,
    /// Number of compute threads, instead of the spec's
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Train even if a preflight check fails
    #[arg(long)]
    pub force: bool,
    /// Drop the optimizer's state of the checkpoint
    #[arg(long)]
    pub fresh_optimizer: bool,
    /// Begin when this run has ended
    #[arg(long, value_name = "RUN_DIR")]
    pub after: Option<PathBuf>,
    /// Directory for the socket
    #[arg(long, value_name = "DIR")]
    pub runtime_dir: Option<PathBuf>,
}

#[derive(Debug, clap::Subcommand)]
enum EngineVerb {
    Install(super::engine_install::InstallArgs),
    Check(super::engine_install::CheckArgs),
    Script(super::engine_script::ScriptArgs),
    State(super::engine_script::StateArgs),
    #[command(hide = true)]
    Node(super::engine_node::NodeArgs),
}

pub fn run(args: Args, cx: &Context) -> anyhow::Result<Exit> {
    match &args.verb {
        Some(EngineVerb::Install(args)) => return super::engine_install::install(args, cx),
        Some(EngineVerb::Check(args)) => return super::engine_install::check(args, cx),
        Some(EngineVerb::Script(args)) => return super::engine_script::script(args, cx),
        Some(EngineVerb::State(args)) => return super::engine_script::state(args, cx),
        Some(EngineVerb::Node(args)) => return super::engine_node::node(args, cx),
        None => {}
    }
    if let Some(folder) = &args.pipeline {
        // As below: closing the viewer's terminal does not affect this process.
        let _ = rustix::process::setsid();
        return super::pipeline::detached(folder, args.force, cx);
    }
    match (&args.infer, &args.run_dir) {
        (Some(checkpoint), _) => hold_model(checkpoint, &args, cx),
        (None, Some(run_dir)) if args.stdio => {
            let run = run_ref::named(&run_dir.to_string_lossy(), cx)?;
            match link::relay(&cx.env, &run, std::io::stdin(), &mut std::io::stdout()) {
                Err(ConnectError::Absent { .. }) if !run.is_alive() => {
                    Err(super::control::not_running(&run, &cx.runs_dir).into())
                }
                relayed => Ok(relayed.map(|()| Exit::Done)?),
            }
        }
        (None, Some(run_dir)) => train(&args, run_dir, cx),
        (None, None) => {
            Err(Failure::user_error("engine needs a run's directory or a subcommand", "").into())
        }
    }
}

/// The detached engine process of a run.
fn train(args: &Args, run_dir: &Path, cx: &Context) -> anyhow::Result<Exit> {
    // Its own session, so that closing the viewer's terminal does not affect this process. Fails if a shell already made us a
    // group leader; then only the signal handler ignores SIGHUP.
    let _ = rustix::process::setsid();
    // Into engine.log: whatever the engine prints besides events. An existing subscriber is kept.
    let _ = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .try_init();
    let run = RunDir::open(run_dir).map_err(|e| Failure::run(&e))?;
    run_ref::restore(&run)?;
    let after = match &args.after {
        Some(folder) => Some(super::queue::after(folder)?),
        None => None,
    };
    if !args.force && after.is_none() {
        super::memory::check(&run_ref::spec_of(&run)?, &cx.env)?;
    }
    let claim = run.claim().map_err(|e| Failure::run(&e))?;
    let spec = run_ref::spec_of(&run)?;
    let threads = args.threads.or(spec.train.threads);
    let job = EngineJob {
        env: cx.env.clone(),
        spec: spec.on_threads(threads),
        run_dir: run.clone(),
        force: args.force,
        stop_after: args.stop_after,
        resume: args.resume,
        fresh_optimizer: args.fresh_optimizer,
        after,
    };
    let mut env = cx.env.clone();
    if let Some(dir) = &args.runtime_dir {
        env.runtime_dir = dir.clone();
    }
    // Bind the socket first: a run that cannot be watched or stopped must not start.
    let door = Endpoint::open(&env, &run)?;
    let signals = signals::listen(Hangup::Ignore);
    let logged = run_ref::logged(&run);
    let host = {
        let notifier = Notifier::new(&env, run.id(), |why| errln!("warning: {why}"));
        Host::start(&run, claim, Some(door), move |io| drive(&job, notifier, io))?
    };
    let _end = OnPanic::of_main_thread(host.final_event());
    signals.attach(host.stop_flag(), host.commands());
    let outcome = host.wait()?;
    learn_from(&run, logged, cx);
    Ok(outcome.into())
}

/// Runs the engine on its own thread, writing to the log.
pub fn drive(job: &EngineJob, mut notifier: Notifier, io: EngineIo) -> Outcome {
    let EngineIo {
        mut emitter,
        commands,
        stop,
        final_event,
    } = io;
    // Before the first event: a log that began has an end, wherever memory runs out.
    let _last_words = super::allocation_failure::of_run(final_event);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let mut emit = |event: Event| {
        notifier.on_event(&event);
        emitter.emit(event)
    };
    engine::run(job, &mut emit, commands, stop, clock)
}

/// Records for the planner what the run used since its log had `logged` bytes. A failure only makes later plans less accurate.
pub fn learn_from(run: &RunDir, logged: u64, cx: &Context) {
    let Some(folder) = &cx.env.state_dir else {
        return;
    };
    let outcome =
        run_ref::fold_from(run, logged).and_then(|state| match calibration::observe(&state) {
            Some(observation) => calibration::record(folder, &observation),
            None => Ok(()),
        });
    if let Err(e) = outcome {
        tracing::warn!("{}: {e}", shown(folder));
    }
}

/// Loads a model and answers prompts until standard input closes.
fn hold_model(model: &Path, args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    let writer = RefCell::new(EventWriter::new(std::io::stdout()));
    let throttle = model_ref::Throttle::default();
    let tell = |download: &model_ref::Download| {
        if throttle.due(download) {
            // When the viewer is gone, exit.
            let _ = writer.borrow_mut().emit(Event::Downloading {
                file: download.file.clone(),
                bytes: download.bytes,
                total: download.total,
                bytes_per_sec: download.bytes_per_sec,
            });
        }
    };
    // A viewer may also pass a run or a hub id.
    let Fetched { place, notice } = match model.exists() {
        true => Fetched {
            place: model.to_path_buf(),
            notice: None,
        },
        false => {
            let word = model.to_string_lossy();
            model_ref::find_with(&word, Parts::Everything, cx, &tell)?
        }
    };
    let checkpoint = &place;
    // A training run on the same machine has priority on the CPU.
    let _ = rustix::process::setpriority_process(None, 5);
    let clock = SystemClock::new();
    let mut model = LoadedModel::load_with(checkpoint, &args.adapters)
        .map_err(|e| Failure::user_error(e.to_string(), e.hint()))?;
    let refused = |why: String| Failure::user_error(why, "--kv-cache f32");
    model
        .set_kv_cache(args.kv_cache.unwrap_or_default())
        .map_err(refused)?;
    let parallel = args.parallel.unwrap_or(Parallel(Some(1)));
    model
        .set_parallel(parallel.0, hardware::memory().left().0)
        .map_err(|(what, fix)| Failure::machine(what, fix))?;
    let seconds = clock.elapsed().as_secs_f64();
    let mut writer = writer.into_inner();
    writer.emit(Event::Hello {
        run: checkpoint.display().to_string(),
        engine: env!("CARGO_PKG_VERSION").into(),
        pid: std::process::id(),
        host: String::new(),
    })?;
    writer.emit(noted(model.about(seconds), notice))?;
    let inbox = stdio::listen(BufReader::new(std::io::stdin()));
    infer::serve(&mut model, &inbox, &clock, &mut |event| {
        // When the viewer exits, our input closes and so do we.
        let _ = writer.emit(event);
    });
    Ok(Exit::Done)
}

/// A loaded model with a note of which file of its repository was taken, where nobody named one.
fn noted(mut about: Event, notice: Option<String>) -> Event {
    if let (Event::Loaded { notes, .. }, Some(notice)) = (&mut about, notice) {
        notes.insert(0, notice);
    }
    about
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_viewer_is_told_which_file_of_a_repository_was_taken() {
        let loaded = Event::Loaded {
            architecture: "llama".into(),
            n_params: 1,
            vocab_size: 1,
            context: 1,
            template: None,
            quantized: None,
            kv_cache: None,
            seconds: 0.0,
            notes: vec!["no template".into()],
            adapters: Vec::new(),
            stop: Vec::new(),
            trained_by: None,
            parallel: None,
        };
        let notes = |notice: Option<&str>| match noted(loaded.clone(), notice.map(String::from)) {
            Event::Loaded { notes, .. } => notes,
            _ => Vec::new(),
        };
        assert_eq!(notes(None), ["no template"]);
        assert_eq!(
            notes(Some("a/b: m-Q4_K_M.gguf")),
            ["a/b: m-Q4_K_M.gguf", "no template"]
        );
    }
}
