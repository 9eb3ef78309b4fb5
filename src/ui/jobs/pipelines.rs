//! Pipelines from the workbench: the engine that drives the stages is a process of its own and outlives the screen, as a run's does.

use super::{Linked, Workplace};
use crate::base::clock::{Clock, SystemClock};
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
/// The first run of a pipeline appears within this time.
const PATIENCE: Duration = Duration::from_secs(60);
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
/// It cannot be started, it ends, or it does not get as far as a run; with the last lines of its log.
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

fn first_run(dir: &PipelineDir, process: &mut Child, runs_dir: &Path) -> Result<RunDir, String> {
    let clock = SystemClock::new();
    while clock.elapsed() < PATIENCE {
        if let Some(run) = dir.running()
            && let Ok(run) = index::resolve(runs_dir, &run)
            && is_locked(&run.lock_path())
        {
            return Ok(run);
        }
        if !matches!(process.try_wait(), Ok(None)) {
            break;
        }
        std::thread::park_timeout(PAUSE);
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
