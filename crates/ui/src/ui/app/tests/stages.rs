//! The page of a pipeline's stage that has ended: where its files lie, and the way to the stage that trains now.

use super::*;
use crate::run::state::Level;
use crate::wire::Outcome::{Completed, Stopped};

const RUN: &str = "runs/2026-11-21-1040-shakespeare-k3qf";

/// A finished run of the second of five stages, on the page of its end.
fn stage(live: Option<(String, PathBuf)>, outputs: Vec<(&'static str, PathBuf)>) -> Bench {
    let mut bench = Bench::new();
    let slot = bench.hold(tape::standard(5), Holder::Log);
    let mut opened = Opened::new(RUN, Holder::Log);
    opened.stage = Some(StageOf {
        id: "speedrun-x7ka".into(),
        pipeline: "speedrun".into(),
        stage: "chat".into(),
        number: 2,
        n_stages: 5,
        is_over: true,
        standing: match live {
            Some(_) => PipelineStatus::Running,
            None => PipelineStatus::Finished,
        },
        next: live.as_ref().map(|(name, _)| name.clone()),
        live,
        outputs,
    });
    let result = Ok(opened);
    bench.msg(Msg::Opened { slot, result });
    let batch = vec![Incoming::CaughtUp];
    bench.msg(Msg::Incoming { slot, batch });
    bench.press("r");
    bench
}

/// "its GGUF file", and no path behind it at 80 columns; at others it was broken in the middle of a word.
#[test]
fn a_long_path_is_whole_and_broken_behind_a_slash() {
    let folder = "/home/someone/experiments/runs/pipelines/2026-11-30-1710-speedrun-x7ka/gguf/";
    let file = "2026-11-30-1710-speedrun-rl-b2m4-Q8_0.gguf";
    let path = PathBuf::from(format!("{folder}{file}"));
    let report = PathBuf::from(folder).join("report.html");
    for size in [(80, 24), (100, 30), (160, 48)] {
        let outputs = vec![("GGUF file", path.clone()), ("report", report.clone())];
        let picture = stage(None, outputs).picture(size.0, size.1);
        for words in ["its GGUF file", file, "its report", "report.html"] {
            assert!(picture.contains(words), "{words}: {picture}");
        }
        let lines = picture.lines().map(|line| line.trim_matches(['│', ' ']));
        let of_path = lines.filter(|line| line.contains("runs/pipelines/"));
        for line in of_path {
            assert!(line.contains("/gguf/") || line.ends_with('/'), "{picture}");
        }
    }
}

/// What goes on with the pipeline was a line for a shell, and the key for it trained the stopped stage alone: no stage followed.
#[test]
fn a_key_continues_a_pipeline_that_stands_still() {
    let run: PathBuf = RUN.into();
    let halted = |is_over: bool, outcome| {
        let mut bench = stage(None, Vec::new());
        let held = bench.app.store.held.as_mut().unwrap();
        held.state.finished.as_mut().unwrap().outcome = outcome;
        let of = held.stage.as_mut().unwrap();
        of.standing = PipelineStatus::Halted {
            resume: "llmtui train --resume speedrun-abcd".into(),
        };
        (of.is_over, of.next) = (is_over, Some("rl".into()));
        bench
    };
    for (is_over, outcome) in [(true, Completed), (false, Completed), (false, Stopped)] {
        let mut bench = halted(is_over, outcome);
        for size in [(80, 24), (160, 48)] {
            let picture = bench.picture(size.0, size.1);
            for words in [
                "continue the pipeline",
                "p continue pipeline",
                "which stands still",
            ] {
                assert!(picture.contains(words), "{words}: {picture}");
            }
            for promised in ["next: rl", "resume from step"] {
                assert!(!picture.contains(promised), "{promised}: {picture}");
            }
        }
        bench.press("p");
        let goes_on = |effect: &Effect| matches!(effect, Effect::ContinuePipeline { run_dir, .. } if *run_dir == run);
        assert!(bench.effects.iter().any(goes_on), "{:?}", bench.effects);
    }
    // The pipeline goes on behind a stage that was left out: its run is resumed alone.
    let mut alone = halted(true, Stopped);
    let picture = alone.picture(160, 48);
    for words in ["continue the pipeline", "resume from step"] {
        assert!(picture.contains(words), "{words}: {picture}");
    }
    alone.press("p");
    let resumes = |effect: &Effect| matches!(effect, Effect::ResumeRun { .. });
    assert!(alone.effects.iter().any(resumes), "{:?}", alone.effects);
}

#[test]
fn home_continues_a_pipeline_from_the_run_of_its_stage() {
    let stopped = runs().remove(2);
    let of = StageOf {
        id: "speedrun-x7ka".into(),
        pipeline: "speedrun".into(),
        stage: "chat".into(),
        number: 2,
        n_stages: 5,
        is_over: false,
        standing: PipelineStatus::Halted {
            resume: "llmtui train --resume speedrun-abcd".into(),
        },
        next: Some("rl".into()),
        live: None,
        outputs: Vec::new(),
    };
    let mut bench = Bench::new();
    bench.runs();
    bench.msg(Msg::Stages([(stopped.created_as.clone(), of)].into()));
    let picture = bench.press("end up").picture(160, 48);
    for words in [
        "R continue pipeline",
        "of pipeline speedrun, which stands still",
    ] {
        assert!(picture.contains(words), "{words}: {picture}");
    }
    bench.press("shift-r");
    let goes_on = |effect: &Effect| matches!(effect, Effect::ContinuePipeline { run_dir, .. } if *run_dir == stopped.path);
    assert!(bench.effects.iter().any(goes_on), "{:?}", bench.effects);
}

/// The page of the run continued the pipeline, and the same key on Home trained a done stage past its end.
#[test]
fn home_continues_a_pipeline_behind_a_run_that_its_patience_ended() {
    let mut early = runs().remove(1);
    early.step = 700;
    assert!(early.has_steps_left());
    let of = StageOf {
        id: "speedrun-x7ka".into(),
        pipeline: "speedrun".into(),
        stage: "chat".into(),
        number: 2,
        n_stages: 5,
        is_over: true,
        standing: PipelineStatus::Halted {
            resume: "llmtui train --resume speedrun-abcd".into(),
        },
        next: Some("rl".into()),
        live: None,
        outputs: Vec::new(),
    };
    let mut bench = Bench::new();
    bench.msg(Msg::Stages([(early.created_as.clone(), of)].into()));
    let store = &bench.app.store;
    assert!(store.continues(&early));
    // What was stopped and left out of the pipeline trains on alone.
    early.status = RunStatus::Stopped;
    assert!(!store.continues(&early));
}

/// The page named the stage that trains, and no key led there.
#[test]
fn a_key_opens_the_stage_that_trains_now() {
    let live = PathBuf::from("runs/2026-11-21-1055-rl-m2xx");
    let mut bench = stage(Some(("rl".into(), live.clone())), Vec::new());
    for size in [(80, 24), (160, 48)] {
        let picture = bench.picture(size.0, size.1);
        assert!(picture.contains("watch rl, which trains now"), "{picture}");
        assert!(picture.contains("f live stage"), "{picture}");
    }
    bench.press("f");
    let opens =
        |effect: &Effect| matches!(effect, Effect::Attach { run_dir, .. } if *run_dir == live);
    assert!(bench.effects.iter().any(opens), "{:?}", bench.effects);
    let mut over = stage(None, Vec::new());
    over.press("f");
    let said = over.app.toasts.said();
    let words =
        |(level, words): &(Level, String)| *level == Level::Info && words.contains("finished");
    assert!(said.iter().any(words), "{said:?}");
}
