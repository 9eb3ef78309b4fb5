//! Opens the workbench for every verb that ends in it.

use super::{Context, exit::Exit, probe, run_ref, stop};
use crate::base::human;
use crate::base::text::one_line;
use crate::run::RunDir;
use crate::ui::{self, ExitReport, StartView, UiOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Leaving it does not stop a run.
pub fn open(what: StartView, cx: &Context) -> anyhow::Result<Exit> {
    let runs_dir = runs_dir_of(&what, &cx.runs_dir);
    let left = ui::run(UiOptions {
        runs_dir: runs_dir.clone(),
        open: what,
        ascii: cx.ascii,
        theme: cx.theme.clone(),
        env: cx.env.clone(),
        hardware: cx.recording()?,
        measure: probe::measure,
        sources: cx.spec_sources(),
    })?;
    if let Some(left) = left {
        // The terminal may be gone: then nobody reads it.
        let _ = writeln!(
            std::io::stdout(),
            "{}",
            exit_message(&left, &runs_dir, cx.env.utf8)
        );
    }
    Ok(Exit::Done)
}

/// Where the run that is opened lies: its checkpoints are listed and talked to, and what comes of it is put beside it, whatever folder
/// the workbench is opened from.
fn runs_dir_of(what: &StartView, given: &Path) -> PathBuf {
    let (StartView::Run(run) | StartView::Start(run, _) | StartView::Here(run, _)) = what else {
        return given.into();
    };
    let real = |path: &Path| std::fs::canonicalize(path).or_else(|_| std::path::absolute(path));
    match run.path().parent() {
        Some(folder) if real(folder).ok() != real(given).ok() => {
            let here = std::env::current_dir().unwrap_or_default();
            match folder.strip_prefix(&here) {
                Ok(below) if below.as_os_str().is_empty() => ".".into(),
                Ok(below) => below.into(),
                Err(_) => folder.into(),
            }
        }
        _ => given.into(),
    }
}

/// How the run ended, and the command that returns to it.
fn exit_message(left: &ExitReport, runs_dir: &Path, utf8: bool) -> String {
    let (run_dir, step, kept, finish) = match left {
        ExitReport::Running(run) => {
            let dot = if utf8 { "·" } else { "-" };
            let attach = format!("llmtui attach {run}{}", run_ref::options(runs_dir));
            return format!("{run} keeps training {dot} {attach}");
        }
        ExitReport::Stopped {
            run_dir,
            step,
            kept,
            finish,
        } => (run_dir, *step, *kept, finish),
    };
    let id = one_line(&run_dir.file_name().unwrap_or_default().to_string_lossy());
    let faulty = |what: String| {
        let on = stop::resume_hint(kept, run_dir, runs_dir);
        [what].into_iter().chain(on).collect()
    };
    let mut lines: Vec<String> = match finish {
        Some(finish) => match stop::orderly(&id, finish, "") {
            Ok(()) => stop::stopped(&id, finish, kept, run_dir, runs_dir),
            Err(fault) => faulty(fault.what),
        },
        None => faulty(format!("{id} crashed at step {}", human::grouped(step))),
    };
    let stage = RunDir::open(run_dir).ok();
    lines.extend(stage.and_then(|run| run_ref::of_a_pipeline(&run, runs_dir)));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::UnixMillis;
    use crate::run::state::Finish;
    use crate::wire::Outcome;

    #[test]
    fn leaving_tells_what_became_of_the_run() {
        let dir = tempfile::tempdir().unwrap();
        let running = exit_message(&ExitReport::Running("a".into()), dir.path(), true);
        assert!(
            running.starts_with("a keeps training · llmtui attach a"),
            "{running}"
        );
        let stopped = |outcome: Option<Outcome>, kept| {
            let finish = outcome.map(|outcome| Finish {
                t: UnixMillis(0),
                outcome,
                step: 40,
                val_loss: None,
                best: None,
                train_loss: None,
                seconds: 1.0,
                message: "the disk is full".into(),
            });
            let left = ExitReport::Stopped {
                run_dir: dir.path().join("a"),
                step: 40,
                kept,
                finish,
            };
            exit_message(&left, dir.path(), true)
        };
        let said = stopped(Some(Outcome::Stopped), Some(20));
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines[0], "a stopped at step 40");
        assert!(lines[1].starts_with("llmtui resume a"), "{said}");
        assert!(lines[1].ends_with("continues from step 20"), "{said}");
        assert_eq!(
            stopped(Some(Outcome::Stopped), None),
            "a stopped at step 40"
        );
        let said = stopped(Some(Outcome::Starved), Some(20));
        assert!(
            said.starts_with("a ended at step 40: the disk is full\nllmtui resume a"),
            "{said}"
        );
        let said = stopped(None, Some(20));
        assert!(
            said.starts_with("a crashed at step 40\nllmtui resume a"),
            "{said}"
        );
    }

    /// The chat listed the checkpoints of the working directory's runs, and so none of a run that was attached by its path.
    #[test]
    fn a_run_from_elsewhere_brings_its_runs_directory() {
        use crate::base::clock::ManualClock;
        let dir = tempfile::tempdir().unwrap();
        let runs = dir.path().join("there/runs");
        let run = RunDir::create(&runs, "x", "", "", &ManualClock::at(0)).unwrap();
        let elsewhere = dir.path().join("runs");
        let what = StartView::Run(run);
        assert_eq!(runs_dir_of(&what, &elsewhere), runs);
        // As it was typed, where it is the same.
        let typed = dir.path().join("there/../there/runs");
        assert_eq!(runs_dir_of(&what, &typed), typed);
        assert_eq!(runs_dir_of(&StartView::Home, &elsewhere), elsewhere);
    }

    #[test]
    fn leaving_a_stage_tells_what_goes_on_with_its_pipeline() {
        use crate::base::clock::ManualClock;
        use crate::pipeline::{Pipeline, PipelineDir};
        let runs = tempfile::tempdir().unwrap();
        let clock = ManualClock::at(0);
        let text = "stages: [{name: base, train: quickstart}, {name: chat, train: quickstart}]";
        let pipeline = Pipeline::parse("mine.yaml", "mine", text).unwrap();
        let dir = PipelineDir::create(runs.path(), &pipeline, text, &clock).unwrap();
        let run = RunDir::create(runs.path(), "base", "", "", &clock).unwrap();
        let mut state = dir.state().unwrap();
        state.stages[0].run = Some(run.id().into());
        dir.save(&state).unwrap();
        let left = ExitReport::Stopped {
            run_dir: run.path().into(),
            step: 40,
            kept: Some(20),
            finish: None,
        };
        let said = exit_message(&left, runs.path(), true);
        let last = said.lines().last().unwrap();
        let resume = format!("llmtui train --resume {}", state.id);
        assert!(last.contains("it is stage base of pipeline mine"), "{said}");
        assert!(last.contains(&resume), "{said}");
    }
}
