//! The page of a pipeline's stage that has ended: where its files lie, and the way to the stage that trains now.

use super::*;
use crate::run::state::Level;

const RUN: &str = "runs/2026-11-21-1040-shakespeare-k3qf";

/// A finished run of the second of five stages, on the page of its end.
fn stage(live: Option<(String, PathBuf)>, outputs: Vec<(&'static str, PathBuf)>) -> Bench {
    let mut bench = Bench::new();
    let slot = bench.hold(tape::standard(5), Holder::Log);
    let mut opened = Opened::new(RUN, Holder::Log);
    opened.stage = Some(StageOf {
        pipeline: "speedrun".into(),
        stage: "chat".into(),
        number: 2,
        n_stages: 5,
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
