//! What each kind of stage does: the words of its subcommand, and what it made.

use super::child::{self, Stop};
use super::plan::takes_tokenizer;
use super::{Options, failed};
use crate::base::files::is_locked;
use crate::base::text::one_line;
use crate::cli::exit::{Exit, Failure};
use crate::cli::{Context, memory, model_ref, run_ref};
use crate::diagnosis::Verdict;
use crate::models::ModelSource;
use crate::pipeline::{
    Evaluate, Export, PipelineDir, Report, Stage, StageModel, StageState, State, Status, Train,
    TrainTokenizer, Work,
};
use crate::plan::start::new_run;
use crate::run::RunDir;
use crate::run::index::{self, RunStatus, RunSummary};
use crate::spec;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};

/// How a stage ended.
#[derive(Debug)]
pub enum Ended {
    /// With what it made.
    Done(PathBuf),
    Stopped,
    Failed {
        exit: Exit,
        why: String,
        /// Its process has printed the reason itself.
        said: bool,
    },
}

impl Ended {
    /// A failed stage, with the message of its process if it printed one.
    fn failed(status: ExitStatus, said: Option<String>, silent: impl FnOnce() -> String) -> Ended {
        Ended::Failed {
            exit: exit_of(status),
            said: said.is_some(),
            why: said.unwrap_or_else(silent),
        }
    }
}

/// What all stages of a pipeline are done with.
#[derive(Clone, Copy)]
pub struct Driving<'a> {
    pub dir: &'a PipelineDir,
    pub options: Options,
    pub stop: &'a Stop,
    pub cx: &'a Context,
}

/// Does stage `at`, or goes on with it.
///
/// # Errors
/// It cannot be started.
pub fn run_stage(
    driving: Driving<'_>,
    stage: &Stage,
    state: &mut State,
    at: usize,
) -> anyhow::Result<Ended> {
    let Driving { dir, stop, cx, .. } = driving;
    let (words, made) = match &stage.work {
        Work::Tokenizer(config) => tokenizer(dir, &stage.name, config),
        Work::Eval(config) => evaluate(dir, state, at, config, cx)?,
        Work::Export(config) => export(dir, &stage.name, state, at, config, cx)?,
        Work::Report(config) => report(dir, &stage.name, config),
        Work::Train(train) => return train_stage(driving, train, state, at),
    };
    let mut command = child::this_program(cx)?;
    command.args(words);
    let (status, said) = child::run(command, stop)?;
    Ok(match status.success() {
        true => Ended::Done(made),
        false if stop.is_requested() => Ended::Stopped,
        false => Ended::failed(status, said, || {
            format!("it ended without a message ({status})")
        }),
    })
}

/// The run of a stage that goes on where it is. One without a checkpoint has nothing to lose, and what it was asked for may have been
/// wrong.
pub fn begun(stage: &StageState, cx: &Context) -> Option<RunDir> {
    let run = index::resolve(&cx.runs_dir, stage.run.as_deref()?).ok()?;
    (!run.checkpoints().is_empty() || is_locked(&run.lock_path())).then_some(run)
}

/// A run: made once, then resumed.
fn train_stage(
    driving: Driving<'_>,
    train: &Train,
    state: &mut State,
    at: usize,
) -> anyhow::Result<Ended> {
    let Driving { dir, cx, .. } = driving;
    let run = match begun(&state.stages[at], cx) {
        Some(run) => run,
        None => {
            state.stages[at].earlier_seconds = state.stages[at].seconds;
            let run = create(train, state, at, cx)?;
            state.stages[at].begin(run.id());
            dir.save(state).map_err(|e| failed(&e))?;
            run
        }
    };
    if run.is_alive()
        && let Some(ended) = followed(&run, driving)?
    {
        return Ok(ended);
    }
    let amended = std::mem::take(&mut state.stages[at].amended);
    if index::summarize(&run)?.status != RunStatus::Finished || !amended.is_empty() {
        let command = resume_command(&run, train, &amended, driving)?;
        if let Some(ended) = resumed(&run, command, driving)? {
            return Ok(ended);
        }
    }
    match run.best_checkpoint() {
        Some(checkpoint) => {
            warn_of(&state.stages[at].name, &run, dir);
            Ok(Ended::Done(checkpoint.path))
        }
        None => {
            let why = format!("its run {} has no checkpoint", run.folder());
            Ok(Ended::Failed {
                exit: Exit::Machine,
                why,
                said: false,
            })
        }
    }
}

/// The run's own command: it extends the run, and leaves it as it was where the engine refuses that.
fn resume_command(
    run: &RunDir,
    train: &Train,
    amended: &[String],
    Driving { options, cx, .. }: Driving<'_>,
) -> anyhow::Result<Command> {
    let mut command = child::this_program(cx)?;
    command.arg("train").arg("--resume").arg(run.path());
    command.arg(if options.json { "--json" } else { "--headless" });
    if options.force {
        command.arg("--force");
    }
    for word in amended {
        command.args(["-s", word]);
    }
    // Threads are the machine's matter: a run's spec does not keep those of a resume.
    let threads = ["threads", "train.threads"]
        .iter()
        .find_map(|key| train.set.get(*key)?.as_u64());
    if let Some(threads) = threads {
        command.args(["-s", &format!("threads={threads}")]);
    }
    Ok(command)
}

/// Resumes the run of a stage. Returns how the stage ended, unless the run trained to its end.
///
/// # Errors
/// No process can be started; the log cannot be read.
fn resumed(
    run: &RunDir,
    command: Command,
    Driving {
        options, stop, cx, ..
    }: Driving<'_>,
) -> anyhow::Result<Option<Ended>> {
    let (status, said) = child::run(command, stop)?;
    let summary = index::summarize(run)?;
    // In lines on standard output, which who keeps the errors alone does not see.
    let told = |why: String| {
        let said = !options.json && cx.stdout_is_terminal;
        let exit = exit_of(status);
        Ended::Failed { exit, why, said }
    };
    if let Some(why) = index::refusal(run) {
        return Ok(Some(told(why)));
    }
    Ok(match summary.status {
        // Refused before anything was written: the run stands as it did.
        RunStatus::Finished | RunStatus::Stopped if !status.success() => {
            let silent = || format!("its run {} was not resumed", run.folder());
            Some(Ended::failed(status, said, silent))
        }
        RunStatus::Finished => None,
        RunStatus::Stopped => Some(Ended::Stopped),
        RunStatus::Live => {
            let attach = run_ref::command("attach", run.path(), &cx.runs_dir);
            Some(Ended::Failed {
                exit: Exit::UserError,
                why: format!("its run is training elsewhere: {attach}"),
                said: false,
            })
        }
        _ if summary.message.is_empty() => {
            let silent = || format!("its run {} ended without a final event", run.folder());
            Some(Ended::failed(status, said, silent))
        }
        _ => Some(told(summary.message)),
    })
}

/// Watches the run of a stage that an engine still trains, as where its pipeline's process died, to its end. A stop is passed on to
/// the engine. Returns how the stage ended, unless what comes behind the run's end is left to do.
///
/// # Errors
/// No process can be started; the log cannot be read.
fn followed(
    run: &RunDir,
    Driving {
        options, stop, cx, ..
    }: Driving<'_>,
) -> anyhow::Result<Option<Ended>> {
    let name = one_line(&run.folder());
    errln!("note: {name} still trains; it is watched to its end");
    let mut command = child::this_program(cx)?;
    command.arg("attach").arg(run.path());
    command.arg(if options.json { "--json" } else { "--headless" });
    // A stop ends the viewer alone.
    let (status, said) = child::run(command, stop)?;
    if stop.is_requested() && run.is_alive() {
        let mut command = child::this_program(cx)?;
        command.arg("stop").arg(run.path());
        child::run(command, &Stop::never())?;
    }
    let summary = index::summarize(run)?;
    Ok(match summary.status {
        RunStatus::Finished => None,
        RunStatus::Stopped => Some(Ended::Stopped),
        RunStatus::Live => Some(Ended::failed(status, said, || {
            let attach = run_ref::command("attach", run.path(), &cx.runs_dir);
            format!("its run still trains, and cannot be watched: {attach}")
        })),
        // Its engine was killed: the resume goes on from its newest checkpoint.
        RunStatus::Crashed | RunStatus::Empty | RunStatus::Unreadable => None,
        RunStatus::Failed => Some(Ended::Failed {
            exit: exit_of(status),
            why: summary.message,
            said: !options.json && cx.stdout_is_terminal,
        }),
    })
}

/// The verdict on a run whose model is nothing to build on.
pub fn unusable_reason(run: &RunSummary) -> Option<String> {
    let bad = [Verdict::Diverged, Verdict::NotLearning].map(Verdict::word);
    run.verdict
        .clone()
        .filter(|word| bad.contains(&word.as_str()))
}

/// Says that a stage has trained to its end and is of no use: what follows builds on it.
fn warn_of(stage: &str, run: &RunDir, dir: &PipelineDir) {
    let verdict = index::summarize(run)
        .ok()
        .and_then(|run| unusable_reason(&run));
    let name = dir.path().file_name().unwrap_or_default();
    let name = one_line(&name.to_string_lossy());
    if let Some(verdict) = verdict {
        errln!(
            "note: stage {stage} ended {verdict}, and later stages build on it; llmtui train --resume {name} --redo {stage} -s {stage}.KEY=VALUE trains it again"
        );
    }
}

/// The run of a training stage, with the model and the tokenizer that earlier stages made.
fn create(train: &Train, state: &State, at: usize, cx: &Context) -> anyhow::Result<RunDir> {
    let name = &state.stages[at].name;
    let is_stage = |word: &str| state.stages.iter().any(|stage| stage.name == word);
    let train = train.with_named_judges(&is_stage, &cx.spec_sources());
    let train = &train.with_judges(&mut |word| match state.stages[..at]
        .iter()
        .any(|stage| stage.name == word)
    {
        true => {
            let checkpoint = trained(state, word, cx)?;
            Ok::<_, anyhow::Error>(Some(checkpoint.display().to_string()))
        }
        false => Ok(None),
    })?;
    let mut set = train.words();
    match &train.from {
        StageModel::Stage(stage) => {
            let from = trained(state, stage, cx)?.display().to_string();
            set.push(format!("train.from={from}"));
        }
        StageModel::Spec => {
            let made = state.stages[..at]
                .iter()
                .rev()
                .find(|s| s.kind == "tokenizer" && s.status == Status::Done);
            if let Some(folder) = made.and_then(|stage| stage.made.as_deref())
                && takes_tokenizer(train, name, cx)?
            {
                set.push(format!(
                    "data.tokenizer={}",
                    serde_json::json!({"file": {"path": folder}})
                ));
            }
        }
    }
    if !train.set.contains_key("name") {
        set.push(format!("name={}-{name}", state.name));
    }
    let sources = cx.spec_sources();
    let loaded = match train.spec.as_str() {
        Some(word) => {
            model_ref::pull_for_spec(word, &set, cx)?;
            spec::load(word, &set, &sources)?
        }
        None => spec::load_text_with(
            &format!("{name}.yaml"),
            &spec::yaml::write(&train.spec),
            &set,
            &sources,
        )?,
    };
    let loaded = memory::decided(loaded, cx);
    let run = new_run(&cx.runs_dir, &loaded, None, &cx.clock);
    Ok(run.map_err(|e| Failure::not_a_new_run(&e))?)
}

/// The best checkpoint of an earlier stage's run.
fn trained(state: &State, name: &str, cx: &Context) -> anyhow::Result<PathBuf> {
    let stage = state.stages.iter().find(|stage| stage.name == name);
    let made = stage.and_then(|stage| {
        let run = index::resolve(&cx.runs_dir, stage.run.as_deref()?).ok()?;
        Some(run.best_checkpoint()?.path)
    });
    made.ok_or_else(|| no_model(name))
}

fn no_model(stage: &str) -> anyhow::Error {
    let what = format!("stage {stage} has no model: it was skipped, or its run is gone");
    Failure::user_error(what, format!("--redo {stage}")).into()
}

fn tokenizer(dir: &PipelineDir, name: &str, config: &TrainTokenizer) -> (Vec<OsString>, PathBuf) {
    let to = dir.path().join(name);
    let mut words: Vec<OsString> = ["tokenizer", "train", "--force", "--kind"]
        .map(Into::into)
        .into();
    words.push(config.kind.clone().into());
    if let Some(size) = config.vocab_size {
        words.extend(["--vocab-size".into(), size.to_string().into()]);
    }
    if let Some(markers) = &config.chat_markers {
        words.extend(["--chat-markers".into(), markers.into()]);
    }
    words.extend(["--out".into(), to.clone().into(), "--".into()]);
    words.extend(config.files.iter().map(|file| file.clone().into()));
    (words, to)
}

/// The best checkpoints of the named stages; of all training stages before, where none is named.
fn models(
    state: &State,
    at: usize,
    names: &[String],
    cx: &Context,
) -> anyhow::Result<Vec<PathBuf>> {
    let before = &state.stages[..at];
    let lacking = names.iter().find(|name| {
        let mut stages = before.iter();
        !stages.any(|stage| stage.name == **name && stage.made.is_some())
    });
    if let Some(name) = lacking {
        return Err(no_model(name));
    }
    let named = |stage: &&StageState| {
        stage.kind == "train" && (names.is_empty() || names.contains(&stage.name))
    };
    let mut found: Vec<PathBuf> = before
        .iter()
        .filter(named)
        .filter_map(|stage| {
            let then = stage.made.clone()?;
            // A run may have gone on without the pipeline, and may have pruned the checkpoint of then.
            Some(trained(state, &stage.name, cx).unwrap_or(then))
        })
        .collect();
    // Where nobody names them those are meant that write, if any does: a reward model answers nothing.
    let writes = |made: &PathBuf| {
        let source = ModelSource::open(made);
        !source.is_ok_and(|source| source.config().is_reward_model())
    };
    if names.is_empty() && found.iter().any(writes) {
        found.retain(writes);
    }
    match found.is_empty() {
        true => Err(Failure::user_error("no earlier stage has a model", "--redo STAGE").into()),
        false => Ok(found),
    }
}

fn evaluate(
    dir: &PipelineDir,
    state: &State,
    at: usize,
    config: &Evaluate,
    cx: &Context,
) -> anyhow::Result<(Vec<OsString>, PathBuf)> {
    let to = dir.path().join("evals");
    let mut words: Vec<OsString> = vec!["eval".into()];
    words.extend(
        models(state, at, &config.models, cx)?
            .into_iter()
            .map(Into::into),
    );
    if !config.tasks.is_empty() {
        words.extend(["--tasks".into(), config.tasks.join(",").into()]);
    }
    if let Some(limit) = config.limit {
        words.extend(["--limit".into(), limit.to_string().into()]);
    }
    words.extend(["--out".into(), to.clone().into()]);
    Ok((words, to))
}

fn export(
    dir: &PipelineDir,
    name: &str,
    state: &State,
    at: usize,
    config: &Export,
    cx: &Context,
) -> anyhow::Result<(Vec<OsString>, PathBuf)> {
    let names: Vec<String> = config.model.iter().cloned().collect();
    let found = models(state, at, &names, cx)?;
    let model = found.last().cloned().unwrap_or_default();
    let to = dir.path().join(name);
    if to.is_dir() {
        // Of an attempt that did not end: only this stage writes there.
        std::fs::remove_dir_all(&to)?;
    }
    let mut words: Vec<OsString> = vec!["export".into(), model.into()];
    if !config.format.is_empty() {
        words.extend(["--format".into(), config.format.clone().into()]);
    }
    if let Some(dtype) = &config.dtype {
        words.extend(["--dtype".into(), dtype.into()]);
    }
    words.extend(["--to".into(), to.clone().into()]);
    Ok((words, to))
}

fn report(dir: &PipelineDir, name: &str, config: &Report) -> (Vec<OsString>, PathBuf) {
    let ending = config.format.as_deref().unwrap_or("html");
    let to = dir.path().join(format!("{name}.{ending}"));
    let words = [
        "report".into(),
        dir.path().into(),
        "--force".into(),
        "--evals".into(),
        dir.path().join("evals").into(),
        "--to".into(),
        to.clone().into(),
    ];
    (words.into(), to)
}

/// A stage's own exit class; a signal counts as the machine's.
fn exit_of(status: ExitStatus) -> Exit {
    match status.code() {
        Some(2) => Exit::UserError,
        Some(4) => Exit::Training,
        Some(101) => Exit::Ours,
        _ => Exit::Machine,
    }
}
