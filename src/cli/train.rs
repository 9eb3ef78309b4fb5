//! `llmtui train`: start or resume a run.

use super::args::{Resume, SpecArgs};
use super::branch::Branch;
use super::control::not_running;
use super::exit::{Exit, Failure};
use super::extend::{Asked, Before, Extension};
use super::run_ref::{self, named, newest_unfinished, same_training, spec_of};
use super::target::{Target, print_notes};
use super::{Context, dry_run, headless, memory, pipeline, queue, workbench};
use crate::base::text::{one_line, shown};
use crate::engine::EngineJob;
use crate::link::launch::EngineOptions;
use crate::plan::start::{check_small_data, new_run};
use crate::run::RunDir;
use crate::run::index::{self, RunStatus, RunSummary};
use crate::ui::StartView;

/// Train a model from a preset or a spec file, or several stages from a pipeline
///
/// At a terminal the run starts in the background and the workbench opens; leaving the workbench does not stop the run.
#[derive(Debug, Default, clap::Args)]
#[command(after_help = "Examples:
  llmtui train quickstart
  llmtui train shakespeare -s data.path=my.txt -s max_steps=500
  llmtui train my.yaml --headless --json > events.jsonl
  llmtui train speedrun --skip rl
  llmtui train --resume auto
  llmtui train --resume quickstart -s max_steps=4000
  llmtui train --branch quickstart@500 -s lr=3e-4
  llmtui train shakespeare --after quickstart")]
pub struct Args {
    #[command(flatten)]
    pub spec: SpecArgs,
    /// Print progress lines instead of opening the workbench
    #[arg(long)]
    pub headless: bool,
    /// Print the run's events, one JSON object per line (implies --headless); with --dry-run, the plan as one object
    #[arg(long)]
    pub json: bool,
    /// Run the engine in this process: closing the terminal then ends the run
    #[arg(long)]
    pub foreground: bool,
    /// Resume a run from its newest checkpoint: a run's directory or name, or `auto` for the newest, of the spec if one is named, which
    /// begins a new run where there is none; with -s max_steps=N a finished one, too
    #[arg(long, value_name = "RUN|auto", alias = "resume-from-checkpoint")]
    pub resume: Option<Resume>,
    /// With --resume or --branch: reset the optimizer state instead of loading it from the checkpoint; a branch may then have another
    /// optimizer
    #[arg(long)]
    pub fresh_optimizer: bool,
    /// Start a new run from another run's checkpoint with the settings changed by -s: RUN, or RUN@STEP (0: from the start)
    #[arg(long, value_name = "RUN@STEP", conflicts_with = "resume")]
    pub branch: Option<String>,
    /// Run PyTorch ranks on these hosts over ssh; localhost is this machine. For a pipeline: every training stage, except those that
    /// set their own engine (-s STAGE.engine=candle)
    #[arg(long, value_name = "HOST,HOST", value_delimiter = ',', value_parser = super::args::destination)]
    pub nodes: Vec<String>,
    /// Begin when this run has ended, however it ends: the name or directory of a live run or pipeline; behind those that are queued there
    #[arg(long, value_name = "RUN", conflicts_with_all = ["dry_run", "no_start"])]
    pub after: Option<String>,
    /// Save and stop after this step, without changing the schedule
    #[arg(long, value_name = "STEP")]
    pub stop_after: Option<u64>,
    /// Validate the spec, show what would run, and exit
    #[arg(long)]
    pub dry_run: bool,
    /// Create the run and print its directory without starting it; train --resume starts it
    #[arg(long, conflicts_with_all = ["resume", "dry_run", "json", "foreground", "stop_after"])]
    pub no_start: bool,
    /// Train even if a preflight check fails
    #[arg(long)]
    pub force: bool,
    /// For a pipeline: skip this stage; may be repeated
    #[arg(long, value_name = "STAGE")]
    pub skip: Vec<String>,
    /// When resuming a pipeline: run this stage again; may be repeated
    #[arg(long, value_name = "STAGE", requires = "resume")]
    pub redo: Vec<String>,
}

impl Args {
    /// `train quickstart --headless`: what the program does without a subcommand and without a terminal.
    pub fn quickstart() -> Args {
        Args {
            spec: SpecArgs {
                spec: Some("quickstart".into()),
                ..Default::default()
            },
            headless: true,
            ..Default::default()
        }
    }
}

impl Args {
    /// The same for a pipeline.
    fn as_pipeline(&self) -> pipeline::Request<'_> {
        let of_one_run = [
            (self.branch.is_some(), "--branch"),
            (self.stop_after.is_some(), "--stop-after"),
            (self.foreground, "--foreground"),
            (self.no_start, "--no-start"),
            (self.after.is_some(), "--after"),
        ];
        let foreign = of_one_run.into_iter().find(|(said, _)| *said);
        pipeline::Request {
            spec: &self.spec,
            resume: self.resume.as_ref(),
            nodes: &self.nodes,
            skip: &self.skip,
            redo: &self.redo,
            dry_run: self.dry_run,
            headless: self.headless || self.json,
            options: pipeline::Options {
                json: self.json,
                force: self.force,
            },
            foreign: foreign.map(|(_, word)| word),
        }
    }
}

pub fn run(mut args: Args, cx: &Context) -> anyhow::Result<Exit> {
    refuse_without_effect(&args)?;
    if let Some(exit) = pipeline::take(&args.as_pipeline(), cx)? {
        return Ok(exit);
    }
    args.spec.set.extend(pipeline::on_nodes(&args.nodes));
    let target = target(&args, cx)?;
    // A resumed run keeps its spec, whatever computes it now.
    let threads = match target {
        Target::Resumed(..) => asked_of(&args)?.threads,
        Target::New(_) | Target::Branch(_) => None,
    };
    let spec = target.spec()?;
    let on = threads.or(spec.train.threads);
    let spec = spec.on_threads(on);
    let after = match &args.after {
        Some(word) => queue::live(word, cx)?,
        None => None,
    };
    if !args.force && after.is_none() {
        memory::check(&spec, &cx.env)?;
    }
    if args.dry_run {
        return dry_run::run(&target, spec, args.json, cx);
    }
    // A run that could not make a step would stay as a failed one.
    if !args.no_start {
        memory::torch(&spec, &cx.env)?;
    }
    let resume = !matches!(target, Target::New(_));
    let (run, before) = written(target, cx)?;
    if args.no_start {
        outln!("{}", shown(run.path()))?;
        return Ok(Exit::Done);
    }
    if after.is_none() {
        queue::note_live(&run, cx);
    }
    let exit = start(run.clone(), (resume, after), threads, &args, cx);
    if let Some(before) = before {
        before.unless_begun(&run);
    }
    exit
}

/// Refuses options that do nothing as they are combined.
fn refuse_without_effect(args: &Args) -> Result<(), Failure> {
    if args.stop_after == Some(0) {
        let what = "--stop-after 0 does nothing: steps are counted from 1";
        return Err(Failure::user_error(what, ""));
    }
    if args.fresh_optimizer && args.resume.is_none() && args.branch.is_none() {
        let what = "--fresh-optimizer drops the moments of a checkpoint, and a new run has none";
        return Err(Failure::user_error(
            what,
            "with --resume RUN or --branch RUN@STEP",
        ));
    }
    if args.fresh_optimizer && args.no_start {
        let what = "--fresh-optimizer drops the moments at a start, and --no-start starts nothing";
        let fix = "llmtui train --resume RUN --fresh-optimizer, later";
        return Err(Failure::user_error(what, fix));
    }
    Ok(())
}

/// What the words mean: a run to resume, a branch, or a new run.
fn target(args: &Args, cx: &Context) -> anyhow::Result<Target> {
    match (&args.resume, &args.branch) {
        (Some(resume), _) => resumed(resume, args, cx),
        (None, Some(word)) => {
            // Its own start drops them, not a later one.
            let fresh = args.fresh_optimizer && !args.no_start;
            let mut branch = Branch::plan(word, &args.spec, fresh, cx)?;
            if !args.force {
                branch.check_data(cx)?;
            }
            branch.loaded = memory::decided(branch.loaded, cx);
            Ok(Target::Branch(Box::new(branch)))
        }
        (None, None) => {
            let loaded = memory::decided(args.spec.load(cx)?, cx);
            Ok(Target::New(Box::new(loaded)))
        }
    }
}

/// The target's run on the disk; of one that is extended also what its files were before.
fn written(target: Target, cx: &Context) -> anyhow::Result<(RunDir, Option<Before>)> {
    if let Target::Resumed(run, _) = &target
        && index::summarize(run).is_ok_and(|summary| summary.nothing_saved)
    {
        errln!("no checkpoint yet: it starts over from step 0");
    }
    match target {
        Target::Resumed(run, None) => Ok((run, None)),
        Target::Resumed(run, Some(extension)) => {
            let before = extension.write(&run)?;
            // The engine itself says what becomes of the learning rate.
            errln!("{}", extension.line(&run));
            Ok((run, Some(before)))
        }
        Target::New(loaded) => {
            check_small_data(&loaded.spec, &cx.env).map_err(|e| Failure::data(&e))?;
            print_notes(&loaded);
            let run = new_run(&cx.runs_dir, &loaded, None, &cx.clock)
                .map_err(|e| Failure::not_a_new_run(&e))?;
            Ok((run, None))
        }
        Target::Branch(branch) => {
            print_notes(&branch.loaded);
            branch.lines().iter().for_each(|line| errln!("{line}"));
            Ok((branch.make(cx)?, None))
        }
    }
}

/// Starts the engine of a run that is on the disk, and watches it.
fn start(
    run: RunDir,
    (resume, after): (bool, Option<RunDir>),
    threads: Option<usize>,
    args: &Args,
    cx: &Context,
) -> anyhow::Result<Exit> {
    let terminal = cx.stdin_is_terminal && cx.stdout_is_terminal;
    if terminal && !args.headless && !args.json && !args.foreground {
        let options = EngineOptions {
            resume,
            force: args.force,
            stop_after: args.stop_after,
            threads,
            fresh_optimizer: args.fresh_optimizer,
            after: after.map(|run| run.path().into()),
        };
        return workbench::open(StartView::Start(run, options), cx);
    }
    let spec = spec_of(&run)?;
    let threads = threads.or(spec.train.threads);
    let job = EngineJob {
        env: cx.env.clone(),
        spec: spec.on_threads(threads),
        run_dir: run,
        force: args.force,
        stop_after: args.stop_after,
        resume,
        fresh_optimizer: args.fresh_optimizer,
        after: after.map(queue::behind),
    };
    let viewer = match (terminal && !args.headless, args.json) {
        (_, true) => headless::Viewer::Json,
        (true, false) => headless::Viewer::Workbench,
        (false, false) => headless::Viewer::Lines,
    };
    headless::train(job, viewer, cx)
}

/// The run to resume. `auto` with nothing to resume starts the named spec, so that a job that is requeued repeatedly
/// always does the right thing.
fn resumed(resume: &Resume, args: &Args, cx: &Context) -> anyhow::Result<Target> {
    match resume {
        Resume::Run(word) => {
            let run = newest_begun(&word.to_string_lossy(), cx)?;
            let asked = asked_of(args)?;
            let same = |run: &RunDir| -> anyhow::Result<bool> {
                Ok(same_training(&spec_of(run)?, &args.spec.load(cx)?.spec))
            };
            if args.spec.target().is_some() && !same(&run)? {
                return Err(Failure::user_error(
                    format!("this is not the spec of run {}", run.folder()),
                    format!(
                        "drop the spec to resume with the original one: {}",
                        run_ref::command("train --resume", run.path(), &cx.runs_dir)
                    ),
                )
                .into());
            }
            resumed_to(run, asked, cx)
        }
        Resume::Auto => automatic(args, cx),
    }
}

/// The run that a word means; of a name that several runs have, one with something to go on from.
fn newest_begun(word: &str, cx: &Context) -> anyhow::Result<RunDir> {
    let run = named(word, cx)?;
    let is_called = |run: &RunDir| run.header().is_ok_and(|header| header.name == word);
    if run.folder() == word || !is_called(&run) || !run_ref::failed_before_first_step(&run) {
        return Ok(run);
    }
    let found = newest_unfinished(&cx.runs_dir, &is_called)?;
    if let (Some(_), Some(words)) = (&found.run, found.passed_over_words()) {
        errln!("passed over: {words}");
    }
    Ok(found.run.unwrap_or(run))
}

/// What `-s` says of a resumed run. Beside a spec it belongs to that spec.
fn asked_of(args: &Args) -> anyhow::Result<Asked> {
    let mut words = args.spec.set.clone();
    if args.spec.target().is_some() {
        let of_threads = |word: &String| {
            let key = word.split('=').next().unwrap_or(word).trim();
            matches!(key, "threads" | "train.threads")
        };
        words.retain(of_threads);
    }
    let run = match &args.resume {
        Some(Resume::Run(word)) => one_line(&word.to_string_lossy()),
        _ => "RUN".into(),
    };
    Ok(Asked::read(&words, &run)?)
}

/// The run with the last step that was asked for.
fn resumed_to(run: RunDir, asked: Asked, cx: &Context) -> anyhow::Result<Target> {
    run_ref::restore(&run)?;
    let extension = Extension::plan(&run, &asked, cx)?;
    // A run that early stopping ended has steps left, so it can be resumed by name.
    let finished = || {
        let over = |run: RunSummary| run.status == RunStatus::Finished && !run.has_steps_left();
        index::summarize(&run).is_ok_and(over)
    };
    if extension.is_none() && finished() {
        return Err(not_running(&run, &cx.runs_dir).into());
    }
    Ok(Target::Resumed(run, extension.map(Box::new)))
}

fn automatic(args: &Args, cx: &Context) -> anyhow::Result<Target> {
    let loaded = match args.spec.target() {
        Some(_) => Some(args.spec.load(cx)?),
        None => None,
    };
    let wanted = |run: &RunDir| match &loaded {
        Some(loaded) => spec_of(run).is_ok_and(|spec| same_training(&spec, &loaded.spec)),
        None => true,
    };
    let found = newest_unfinished(&cx.runs_dir, &wanted)?;
    let passed_over = found.passed_over_words();
    let note = || {
        if let Some(words) = &passed_over {
            errln!("passed over: {words}");
        }
    };
    match (found.run, loaded) {
        (Some(run), _) => {
            note();
            resumed_to(run, asked_of(args)?, cx)
        }
        (None, Some(loaded)) => {
            note();
            errln!("nothing to resume in {}: a new run", shown(&cx.runs_dir));
            Ok(Target::New(Box::new(memory::decided(loaded, cx))))
        }
        (None, None) => {
            let none = format!("no run in {} can be resumed", shown(&cx.runs_dir));
            let (what, hint) = match &passed_over {
                None => (none, "llmtui runs"),
                Some(words) => (
                    format!("{none}; {words}"),
                    "fix that and train again; --resume RUN retries the same run",
                ),
            };
            Err(Failure::user_error(what, hint).into())
        }
    }
}
