//! From one stage to the next: what is done is never done twice, and every change of the state is on the disk before the next stage
//! begins.

use super::child::Stop;
use super::stages::{Driving, Ended, run_stage};
use super::{Options, failed, needs, table};
use crate::base::clock::Clock;
use crate::base::human;
use crate::base::text::shown;
use crate::cli::exit::{Exit, Failure, chain};
use crate::cli::{Context, out, run_ref};
use crate::pipeline::{PipelineDir, Stage, StageState, State, Status};
use std::path::Path;

/// Drives a pipeline from its first unfinished stage to its end.
///
/// # Errors
/// A stage fails; those before it are kept.
pub fn resume(dir: &PipelineDir, options: Options, cx: &Context) -> anyhow::Result<Exit> {
    drive(dir, options, false, cx)
}

/// [`resume`] without a terminal.
///
/// # Errors
/// As there.
pub fn detached(dir: &PipelineDir, force: bool, cx: &Context) -> anyhow::Result<Exit> {
    let options = Options { json: false, force };
    drive(dir, options, true, cx)
}

fn drive(
    dir: &PipelineDir,
    options: Options,
    detached: bool,
    cx: &Context,
) -> anyhow::Result<Exit> {
    let _lock = dir.claim().map_err(|e| failed(&e))?;
    let (pipeline, mut state) = dir.load().map_err(|e| failed(&e))?;
    if state.force && !options.force && !state.is_finished() {
        errln!("note: stages train whatever a check says, by an earlier --force");
    }
    let options = options.with_earlier(&state);
    if options.force != state.force {
        state.force = options.force;
        save(dir, &state)?;
    }
    let stop = &Stop::listen(detached);
    let driving = Driving {
        dir,
        options,
        stop,
        cx,
    };
    let resume = format!(
        "llmtui train --resume {}{}",
        state.id,
        run_ref::options(&cx.runs_dir)
    );
    for (at, stage) in pipeline.stages.iter().enumerate() {
        if state.stages[at].status.is_over() {
            continue;
        }
        if stop.is_requested() {
            errln!("stopped before stage {}; {resume} continues", stage.name);
            return Ok(Exit::Done);
        }
        match drive_stage(driving, stage, &mut state, at)? {
            Ended::Done(_) => {}
            Ended::Stopped => {
                errln!("stage {} was stopped; {resume} continues", stage.name);
                return Ok(Exit::Done);
            }
            Ended::Failed { exit, why, said } => {
                // The stage's own message is printed directly above.
                let why = if said {
                    String::new()
                } else {
                    format!(": {why}")
                };
                let what = format!("stage {} ({}) failed{why}", at + 1, stage.name);
                let skips = needs::skips(&pipeline, &stage.name, &done(&state), cx);
                let hint = match skips.matches("--skip").count() {
                    1 => format!("{resume} retries it; {skips} skips it"),
                    _ => format!("{resume} retries it; {skips} also skips what needs its model"),
                };
                return Err(Failure { exit, what, hint }.into());
            }
        }
    }
    finish(options, &state, dir, cx)
}

/// Does stage `at`; its state is on the disk before it begins and when it has ended.
fn drive_stage(
    driving: Driving<'_>,
    stage: &Stage,
    state: &mut State,
    at: usize,
) -> anyhow::Result<Ended> {
    let Driving {
        dir, options, cx, ..
    } = driving;
    say_stage(options, state, at)?;
    state.stages[at].status = Status::Running;
    state.stages[at].message.clear();
    save(dir, state)?;
    let (begun, before) = (cx.clock.elapsed(), state.stages[at].seconds);
    let ended = run_stage(driving, stage, state, at);
    let spent = cx.clock.elapsed().saturating_sub(begun);
    let driven = before + spent.as_secs_f64();
    let entry = &mut state.stages[at];
    // A run may have trained without the pipeline, too.
    entry.seconds = match entry.current_run(&cx.runs_dir) {
        Some(run) => entry.earlier_seconds + run.seconds,
        None => driven,
    };
    let ended = ended.unwrap_or_else(|error| {
        let (exit, why) = match error.downcast::<Failure>() {
            Ok(failure) => (failure.exit, failure.what),
            Err(error) => (Exit::UserError, chain(&error)),
        };
        let said = false;
        Ended::Failed { exit, why, said }
    });
    match &ended {
        Ended::Done(made) => (entry.status, entry.made) = (Status::Done, Some(made.clone())),
        Ended::Stopped => entry.status = Status::Stopped,
        Ended::Failed { why, .. } => {
            (entry.status, entry.message) = (Status::Failed, why.clone());
        }
    }
    save(dir, state)?;
    Ok(ended)
}

fn done(state: &State) -> Vec<String> {
    let done = state
        .stages
        .iter()
        .filter(|stage| stage.status == Status::Done);
    done.map(|stage| stage.name.clone()).collect()
}

fn save(dir: &PipelineDir, state: &State) -> anyhow::Result<()> {
    Ok(dir.save(state).map_err(|e| failed(&e))?)
}

fn say_stage(options: Options, state: &State, at: usize) -> anyhow::Result<()> {
    let stage = &state.stages[at];
    match options.json {
        true => outln!(
            "{}",
            serde_json::json!({"stage": stage.name, "kind": stage.kind, "of": state.id})
        )?,
        false => outln!(
            "\nstage {} of {}: {} ({})",
            at + 1,
            state.stages.len(),
            stage.name,
            stage.kind
        )?,
    }
    Ok(())
}

fn finish(
    options: Options,
    state: &State,
    dir: &PipelineDir,
    cx: &Context,
) -> anyhow::Result<Exit> {
    if options.json {
        outln!("{}", out::json_line(state)?)?;
        return Ok(Exit::Done);
    }
    let whole: f64 = state.stages.iter().map(|stage| stage.seconds).sum();
    let took = human::seconds(whole);
    outln!("\n{}: all stages done in {took}", state.id)?;
    outln!("{}", table::stages(state, true, &cx.runs_dir).trim_end())?;
    if let Some(command) = next_command(state, &cx.runs_dir) {
        outln!("\nnext:  {command}")?;
    }
    if !state.stages.iter().any(|stage| stage.kind == "report") {
        outln!(
            "       llmtui report {} --to report.html",
            shown(dir.path())
        )?;
    }
    Ok(Exit::Done)
}

/// What to do with the newest model: a conversation with the last one that generates, or scores where all are reward models.
fn next_command(state: &State, runs_dir: &Path) -> Option<String> {
    // The run of one that was left out is half trained.
    let done = |stage: &&StageState| stage.status == Status::Done;
    let trained = state.stages.iter().rev().filter(done).filter_map(|stage| {
        let run = stage.run.as_deref()?;
        let judges = stage.current_run(runs_dir).is_some_and(|run| run.judges());
        Some((run, judges))
    });
    let trained: Vec<(&str, bool)> = trained.collect();
    let options = run_ref::options(runs_dir);
    match trained.iter().find(|(_, judges)| !judges) {
        Some((run, _)) => Some(format!("llmtui chat {run}{options}")),
        None => {
            let (run, _) = trained.first()?;
            Some(format!("llmtui score {run} FILE{options}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::{ManualClock, UnixMillis};
    use crate::pipeline::Pipeline;
    use crate::run::RunDir;
    use crate::wire::{Envelope, Event, encode};

    fn run(runs: &Path, method: &str) -> RunDir {
        let run = RunDir::create(runs, method, "", "", &ManualClock::at(0)).unwrap();
        let started = Envelope {
            v: 1,
            seq: 1,
            t: UnixMillis(1),
            event: Event::Started {
                name: method.into(),
                method: method.into(),
                spec: serde_json::Value::Null,
                n_params: 1,
                vocab_size: 1,
                max_steps: 1,
                batch_tokens: 1,
                epoch_tokens: 1,
                resumed_from: None,
                precision: None,
                unigram_entropy: None,
            },
        };
        std::fs::write(run.events_path(), encode(&started)).unwrap();
        run
    }

    /// A chat with the reward model that was trained last: "it scores completions and cannot generate".
    #[test]
    fn what_is_next_is_a_chat_with_the_last_model_that_generates() {
        let (runs, clock) = (tempfile::tempdir().unwrap(), ManualClock::at(0));
        let text = "stages: [{name: a, train: quickstart}, {name: b, train: quickstart}]";
        let pipeline = Pipeline::parse("mine.yaml", "mine", text).unwrap();
        let dir = PipelineDir::create(runs.path(), &pipeline, text, &clock).unwrap();
        let (policy, judge) = (run(runs.path(), "dpo"), run(runs.path(), "reward"));
        let mut state = dir.state().unwrap();
        let mut next = |status: Status| {
            state.stages[0].status = status;
            for (stage, run) in state.stages.iter_mut().zip([&policy, &judge]) {
                stage.run = Some(run.id().into());
            }
            state.stages[1].status = Status::Done;
            next_command(&state, runs.path()).unwrap()
        };
        let of = |verb: &str, run: &RunDir| format!("llmtui {verb} {}", run.id());
        let chat = next(Status::Done);
        assert!(chat.starts_with(&of("chat", &policy)), "{chat}");
        let score = next(Status::Skipped);
        assert!(
            score.starts_with(&(of("score", &judge) + " FILE")),
            "{score}"
        );
    }
}
