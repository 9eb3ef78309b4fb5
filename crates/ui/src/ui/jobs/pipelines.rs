//! Pipelines from the workbench: the engine that drives the stages is a process of its own and outlives the screen, as a run's does.

use super::{JobContext, Linked};
use crate::base::clock::SystemClock;
use crate::base::files::{is_locked, open_plain_with};
use crate::base::paths::Env;
use crate::base::text::{one_line, shown};
use crate::link::launch::{Launcher, written_after};
use crate::link::message;
use crate::pipeline::{self, PipelineDir, StageState, State, Status};
use crate::run::{RunDir, index};
use crate::ui::msg::{PipelineStatus, StageOf};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// How often the first run is looked for.
const PAUSE: Duration = Duration::from_millis(50);
/// Lines of the log that say why none appeared.
const LINES: usize = 4;

impl JobContext {
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

    /// Goes on with the pipeline of a stage's run, from its first stage that is not done, and joins the run that trains first.
    ///
    /// # Errors
    /// The run is of no pipeline, or why nothing of it trains.
    pub fn continue_pipeline(&self, run_dir: &Path) -> Result<(PipelineDir, Linked), String> {
        let run = RunDir::open(run_dir).map_err(|e| e.to_string())?;
        let of = pipeline::membership(&run, &self.runs_dir);
        let dir = of.ok_or("this run is no stage of a pipeline")?.dir;
        let run = begin_pipeline(&dir, false, &self.runs_dir, &self.env)?;
        let linked = self.join(&run);
        Ok((dir, linked))
    }

    /// The runs of all pipelines' stages by their ids: of the newest pipeline, where several have a run.
    pub fn stages(&self) -> BTreeMap<String, StageOf> {
        let mut all = BTreeMap::new();
        for (dir, state) in PipelineDir::list(&self.runs_dir) {
            for (at, stage) in state.stages.iter().enumerate() {
                if let Some(run) = stage.run.clone() {
                    let place = || place_in(&dir, &state, at, &self.runs_dir);
                    all.entry(run).or_insert_with(place);
                }
            }
        }
        all
    }

    /// The pipeline's stage that the run of this directory is of.
    pub fn stage(&self, run_dir: &Path) -> Option<StageOf> {
        stage_of(&RunDir::open(run_dir).ok()?, &self.runs_dir)
    }
}

fn said(error: &pipeline::PipelineError) -> String {
    message::line(&error.to_string(), error.hint())
}

/// The pipeline's stage that a run is of.
pub fn stage_of(run: &RunDir, runs_dir: &Path) -> Option<StageOf> {
    let of = pipeline::membership(run, runs_dir)?;
    let at = of.state.stages.iter().position(|s| s.name == of.stage)?;
    Some(place_in(&of.dir, &of.state, at, runs_dir))
}

/// Stage number `at`, from 0, of a pipeline.
fn place_in(dir: &PipelineDir, state: &State, at: usize, runs_dir: &Path) -> StageOf {
    let stages = &state.stages;
    let standing = match (state.is_finished(), dir.is_live()) {
        (true, _) => PipelineStatus::Finished,
        (false, true) => PipelineStatus::Running,
        (false, false) => PipelineStatus::Halted {
            resume: format!("llmtui train --resume {}", one_line(&state.id)),
        },
    };
    let next = stages[at + 1..].iter().find(|s| !s.status.is_over());
    StageOf {
        standing,
        id: state.id.clone(),
        pipeline: state.name.clone(),
        stage: stages[at].name.clone(),
        number: at + 1,
        n_stages: stages.len(),
        is_over: stages[at].status.is_over(),
        next: next.map(|stage| stage.name.clone()),
        live: live_stage(stages, at, runs_dir),
        outputs: stages.iter().filter_map(|s| output(s, runs_dir)).collect(),
    }
}

/// The stage whose run an engine trains now, other than number `at`. Before its engine is there nobody can watch it.
fn live_stage(stages: &[StageState], at: usize, runs_dir: &Path) -> Option<(String, PathBuf)> {
    let mut others = stages.iter().enumerate().filter(|(i, _)| *i != at);
    let (_, stage) = others.rfind(|(_, stage)| stage.status == Status::Running)?;
    let path = runs_dir.join(stage.run.as_ref()?);
    let run = RunDir::open(&path).ok()?;
    is_locked(&run.lock_path()).then(|| (stage.name.clone(), path))
}

/// What a stage that trains nothing has made, and where: a path as the runs directory was written.
fn output(stage: &StageState, runs_dir: &Path) -> Option<(&'static str, PathBuf)> {
    let made = stage
        .made
        .clone()
        .filter(|_| stage.status == Status::Done)?;
    let (what, made) = match stage.kind.as_str() {
        "export" => match gguf_in(&made) {
            Some(file) => ("GGUF file", file),
            None => ("exported model", made),
        },
        "report" => ("report", made),
        "eval" => ("evaluation", made),
        _ => return None,
    };
    let whole = std::path::absolute(runs_dir).unwrap_or_default();
    let inside = made.strip_prefix(&whole).ok();
    let path = inside.map_or_else(|| made.clone(), |inside| runs_dir.join(inside));
    Some((what, path))
}

/// The only GGUF file in a folder.
fn gguf_in(folder: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?.flatten();
    let mut files = entries.map(|entry| entry.path());
    let file = files.find(|path| path.extension().is_some_and(|end| end == "gguf"))?;
    Some(file).filter(|_| files.next().is_none())
}

/// Starts the engine of a pipeline without a terminal and waits for the run that it trains first, or goes on with. `force` trains
/// what a plan or a check refuses. Where an engine is at work, none is started: its run is waited for.
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
    let of_log = |e: std::io::Error| format!("{}: {e}", shown(&log));
    if dir.is_live() {
        // What that engine has written so far says nothing of its end.
        let said_before = std::fs::metadata(&log).map_or(0, |meta| meta.len());
        return first_run(dir, runs_dir, said_before, || driven(dir));
    }
    let output = open_plain_with(OpenOptions::new().create(true).append(true), &log);
    let output = output.map_err(of_log)?;
    let said_before = output.metadata().map_err(of_log)?.len();
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
    let run = first_run(dir, runs_dir, said_before, || {
        let status = process.try_wait().unwrap_or_default()?;
        Some(status.success())
    });
    // Reaps it if it ends while this process still runs.
    std::thread::spawn(move || process.wait());
    run
}

/// Whether the engine of another process has done all stages; nothing while it is at work.
fn driven(dir: &PipelineDir) -> Option<bool> {
    let over = || dir.state().is_ok_and(|state| state.is_finished());
    (!dir.is_live()).then(over)
}

/// Waits as long as the pipeline works: the stages before the first run may train a tokenizer or fetch a model. `ended` says
/// whether it ended well, once it has ended. Of its log only the part after `said_before` bytes is reported.
fn first_run(
    dir: &PipelineDir,
    runs_dir: &Path,
    said_before: u64,
    mut ended: impl FnMut() -> Option<bool>,
) -> Result<RunDir, String> {
    loop {
        // Asked before the look at its state: what it did last is seen.
        let ended = ended();
        if let Some(run) = dir.running()
            && let Ok(run) = index::resolve(runs_dir, &run)
            && is_locked(&run.lock_path())
        {
            return Ok(run);
        }
        match ended {
            None => crate::base::clock::pause(PAUSE),
            // All was done between two looks.
            Some(true) => match last_run(dir, runs_dir) {
                Some(run) => return Ok(run),
                None => break,
            },
            Some(false) => break,
        }
    }
    let log = dir.log_path();
    let written = written_after(&log, said_before);
    let lines: Vec<&str> = written.lines().rev().take(LINES).collect();
    let lines: Vec<&str> = lines.into_iter().rev().collect();
    let why = match lines.is_empty() {
        true => String::new(),
        false => format!(": {}", lines.join("; ")),
    };
    let what = format!(
        "no stage of the pipeline is training{why}; see {}",
        shown(&log)
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
    use crate::pipeline::Pipeline;

    fn pipeline(runs: &Path) -> PipelineDir {
        let text = "stages: [{name: a, train: quickstart}]";
        let pipeline = Pipeline::parse("mine.yaml", "mine", text).unwrap();
        PipelineDir::create(runs, &pipeline, text, &ManualClock::at(0)).unwrap()
    }

    /// Its stage's run, and how the stage stands.
    fn stage(dir: &PipelineDir, runs: &Path, status: Status) -> RunDir {
        let run = RunDir::create(runs, "a", "", "", &ManualClock::at(0)).unwrap();
        let mut state = dir.state().unwrap();
        (state.stages[0].status, state.stages[0].run) = (status, Some(run.id().into()));
        dir.save(&state).unwrap();
        run
    }

    #[test]
    fn the_run_of_a_stage_knows_its_place_and_what_goes_on_behind_it() {
        let runs = tempfile::tempdir().unwrap();
        let text = "stages: [{name: a, train: quickstart}, {name: b, train: quickstart}]";
        let pipeline = Pipeline::parse("mine.yaml", "mine", text).unwrap();
        let dir = PipelineDir::create(runs.path(), &pipeline, text, &ManualClock::at(0)).unwrap();
        let first = stage(&dir, runs.path(), Status::Done);
        let of = stage_of(&first, runs.path()).unwrap();
        assert_eq!(of.words(), "stage a, 1 of 2, of pipeline mine");
        let id = dir.state().unwrap().id;
        let resume = format!("llmtui train --resume {id}");
        assert_eq!(of.resume(), Some(resume.as_str()));
        let standing = || stage_of(&first, runs.path()).unwrap().standing;
        let driver = dir.claim().unwrap();
        assert_eq!(standing(), PipelineStatus::Running);
        let next = || stage_of(&first, runs.path()).unwrap().next_words();
        assert_eq!(next().as_deref(), Some("next: b"));
        drop(driver);
        let mut state = dir.state().unwrap();
        state.stages[1].status = Status::Failed;
        dir.save(&state).unwrap();
        assert_eq!(standing(), PipelineStatus::Halted { resume });
        // Nobody drives it: nothing is next until somebody goes on with it.
        assert_eq!(next(), None);
        let of = |status: Status| {
            let mut state = dir.state().unwrap();
            state.stages[0].status = status;
            dir.save(&state).unwrap();
            stage_of(&first, runs.path()).unwrap()
        };
        for status in [Status::Stopped, Status::Failed, Status::Running] {
            assert!(of(status).continues(true), "{status:?}");
        }
        // Steps of a stage that was left out are no part of the pipeline.
        let left_out = of(Status::Skipped);
        assert!(!left_out.continues(true) && left_out.continues(false));
        of(Status::Done);
        state.stages[1].status = Status::Done;
        dir.save(&state).unwrap();
        assert_eq!(standing(), PipelineStatus::Finished);
        assert_eq!(stage_of(&first, runs.path()).unwrap().next, None);
        let alone = RunDir::create(runs.path(), "x", "", "", &ManualClock::at(0)).unwrap();
        assert_eq!(stage_of(&alone, runs.path()), None);
    }

    /// The page of a finished stage named the next one, and no key led there.
    #[test]
    fn the_run_of_a_finished_stage_knows_the_one_that_trains() {
        let runs = tempfile::tempdir().unwrap();
        let text = "stages: [{name: a, train: quickstart}, {name: b, train: quickstart}]";
        let pipeline = Pipeline::parse("mine.yaml", "mine", text).unwrap();
        let dir = PipelineDir::create(runs.path(), &pipeline, text, &ManualClock::at(0)).unwrap();
        let first = stage(&dir, runs.path(), Status::Done);
        let second = RunDir::create(runs.path(), "b", "", "", &ManualClock::at(1)).unwrap();
        let mut state = dir.state().unwrap();
        (state.stages[1].status, state.stages[1].run) = (Status::Running, Some(second.id().into()));
        dir.save(&state).unwrap();
        let live = || stage_of(&first, runs.path()).unwrap().live;
        assert_eq!(live(), None, "no engine");
        let _engine = second.claim().unwrap();
        let path = runs.path().join(second.id());
        assert_eq!(live(), Some(("b".to_string(), path)));
        assert_eq!(stage_of(&second, runs.path()).unwrap().live, None);
    }

    /// A GGUF file and a report were made, and no page of the last run named them.
    #[test]
    fn the_last_run_knows_what_the_stages_behind_it_have_made() {
        let runs = tempfile::tempdir().unwrap();
        let text = "stages: [{name: a, train: quickstart}, {name: q, export: {format: gguf}}, {name: r, report: {}}]";
        let pipeline = Pipeline::parse("mine.yaml", "mine", text).unwrap();
        let dir = PipelineDir::create(runs.path(), &pipeline, text, &ManualClock::at(0)).unwrap();
        let run = stage(&dir, runs.path(), Status::Done);
        let outputs = || stage_of(&run, runs.path()).unwrap().outputs;
        assert_eq!(outputs(), []);
        let folder = dir.path().join("gguf");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("a-F16.gguf"), "").unwrap();
        let mut state = dir.state().unwrap();
        let made = [folder.clone(), dir.path().join("report.html")];
        for (stage, made) in state.stages[1..].iter_mut().zip(&made) {
            (stage.status, stage.made) = (Status::Done, Some(made.clone()));
        }
        dir.save(&state).unwrap();
        let file = folder.join("a-F16.gguf");
        let report = made[1].clone();
        assert_eq!(outputs(), [("GGUF file", file), ("report", report)]);
    }

    #[test]
    fn a_pipeline_is_waited_for_until_it_ends() {
        let runs = tempfile::tempdir().unwrap();
        let dir = pipeline(runs.path());
        std::fs::write(dir.log_path(), "of yesterday\nno room\n").unwrap();
        let first = |ends: bool| {
            let mut looks = 0;
            first_run(&dir, runs.path(), "of yesterday\n".len() as u64, || {
                looks += 1;
                (looks > 2).then_some(ends)
            })
        };
        let why = first(false).unwrap_err();
        assert!(
            why.contains("no room") && !why.contains("yesterday"),
            "{why}"
        );
        // Its only stage came and went between two looks.
        let run = stage(&dir, runs.path(), Status::Done);
        assert_eq!(first(true).unwrap().id(), run.id());
    }

    /// `train --resume` on a pipeline that is driven already.
    #[test]
    fn an_engine_that_is_at_work_is_joined_and_its_log_stays() {
        let runs = tempfile::tempdir().unwrap();
        let dir = pipeline(runs.path());
        let said = "stage 1 of 1: a (train)\n";
        std::fs::write(dir.log_path(), said).unwrap();
        let run = stage(&dir, runs.path(), Status::Running);
        let (driver, engine) = (dir.claim().unwrap(), run.claim().unwrap());
        let env = Env::default();
        let joined = begin_pipeline(&dir, false, runs.path(), &env).unwrap();
        assert_eq!(joined.id(), run.id());
        assert_eq!(std::fs::read_to_string(dir.log_path()).unwrap(), said);
        drop((engine, driver));
        assert_eq!(driven(&dir), Some(false));
        stage(&dir, runs.path(), Status::Done);
        assert_eq!(driven(&dir), Some(true));
    }
}
