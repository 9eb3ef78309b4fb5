//! Pipelines from the workbench: the engine that drives the stages is a process of its own and outlives the screen, as a run's does.

use super::{Linked, Workplace};
use crate::base::clock::SystemClock;
use crate::base::files::{is_locked, read_plain_text};
use crate::base::paths::Env;
use crate::base::text::one_line;
use crate::link::launch::Launcher;
use crate::pipeline::{self, PipelineDir};
use crate::run::{RunDir, index};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How often the first run is looked for.
const PAUSE: Duration = Duration::from_millis(50);
/// Lines of the log that say why none appeared.
const LINES: usize = 4;

impl Workplace {
    /// Starts the pipeline of this name and joins the run of its first stage; `None` where the name is none of a pipeline.
    ///
    /// # Errors
    /// What is wrong with the pipeline, or why nothing of it trains.
    pub fn start_pipeline(&self, name: &str) -> Result<Option<(PipelineDir, Linked)>, String> {
        let found = pipeline::find(name, &self.sources).map_err(|e| said(&e))?;
        let Some(pipeline) = found else {
            return Ok(None);
        };
        let (text, clock) = (pipeline.to_yaml(), SystemClock::new());
        let dir =
            PipelineDir::create(&self.runs_dir, &pipeline, &text, &clock).map_err(|e| said(&e))?;
        let run = begin_pipeline(&dir, false, &self.runs_dir, &self.env)?;
        let linked = self.join(&run);
        Ok(Some((dir, linked)))
    }
}

fn said(error: &pipeline::PipelineError) -> String {
    let hint = error.hint();
    match hint.is_empty() {
        true => error.to_string(),
        false => format!("{error}; try {hint}"),
    }
}

/// Starts the engine of a pipeline without a terminal and waits for the run that it trains first, or goes on with. `force` trains
/// what a plan or a check refuses.
///
/// # Errors
/// It cannot be started, or it ends before a stage trains; with the last lines of its log.
pub fn begin_pipeline(
    dir: &PipelineDir,
    force: bool,
    runs_dir: &Path,
    env: &Env,
) -> Result<RunDir, String> {
    let log = dir.log_path();
    let of_log = |e: std::io::Error| format!("{}: {e}", log.display());
    let output = std::fs::File::create(&log).map_err(of_log)?;
    let errors = output.try_clone().map_err(of_log)?;
    let of_start = |e: std::io::Error| format!("the pipeline cannot be started: {e}");
    let launcher = Launcher::this_program(env).map_err(of_start)?;
    let mut command = Command::new(launcher.program);
    command.arg("--runs-dir").arg(runs_dir);
    command.arg("engine").arg("--pipeline").arg(dir.path());
    if force {
        command.arg("--force");
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::from(output))
        .stderr(Stdio::from(errors));
    let mut process = command.spawn().map_err(of_start)?;
    let run = first_run(dir, &mut process, runs_dir);
    // Reaps it if it ends while this process still runs.
    std::thread::spawn(move || process.wait());
    run
}

/// Waits as long as the pipeline works: the stages before the first run may train a tokenizer or fetch a model.
fn first_run(dir: &PipelineDir, process: &mut Child, runs_dir: &Path) -> Result<RunDir, String> {
    loop {
        // Asked before the look at its state: what it did last is seen.
        let ended = process.try_wait().unwrap_or_default();
        if let Some(run) = dir.running()
            && let Ok(run) = index::resolve(runs_dir, &run)
            && is_locked(&run.lock_path())
        {
            return Ok(run);
        }
        match ended {
            None => crate::base::clock::pause(PAUSE),
            // All was done between two looks.
            Some(status) if status.success() => match last_run(dir, runs_dir) {
                Some(run) => return Ok(run),
                None => break,
            },
            Some(_) => break,
        }
    }
    let written = read_plain_text(dir.log_path()).unwrap_or_default();
    let lines: Vec<&str> = written.lines().rev().take(LINES).collect();
    let lines: Vec<&str> = lines.into_iter().rev().collect();
    let log = dir.log_path();
    let what = format!(
        "no stage of the pipeline trains: {}; see {}",
        lines.join("; "),
        log.display()
    );
    Err(one_line(&what))
}

/// The run of the last stage that has one.
fn last_run(dir: &PipelineDir, runs_dir: &Path) -> Option<RunDir> {
    let stages = dir.state().ok()?.stages;
    let run = stages.into_iter().rev().find_map(|stage| stage.run)?;
    index::resolve(runs_dir, &run).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::ManualClock;
    use crate::pipeline::{Pipeline, Status};

    #[test]
    fn a_pipeline_is_waited_for_until_it_ends() {
        let runs = tempfile::tempdir().unwrap();
        let clock = ManualClock::at(0);
        let text = "stages: [{name: a, train: quickstart}]";
        let pipeline = Pipeline::parse("mine.yaml", "mine", text).unwrap();
        let dir = PipelineDir::create(runs.path(), &pipeline, text, &clock).unwrap();
        std::fs::write(dir.log_path(), "no room\n").unwrap();
        let first = |script: &str| {
            let mut process = Command::new("sh").args(["-c", script]).spawn().unwrap();
            let run = first_run(&dir, &mut process, runs.path());
            assert!(matches!(process.try_wait(), Ok(Some(_))), "{run:?}");
            run
        };
        let why = first("exit 3").unwrap_err();
        assert!(why.contains("no room"), "{why}");
        // Its only stage came and went between two looks.
        let run = RunDir::create(runs.path(), "a", "", "", &clock).unwrap();
        let mut state = dir.state().unwrap();
        (state.stages[0].status, state.stages[0].run) = (Status::Done, Some(run.id().into()));
        dir.save(&state).unwrap();
        assert_eq!(first("exit 0").unwrap().id(), run.id());
    }
}
