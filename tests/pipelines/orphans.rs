//! A pipeline whose process died while the engine of its stage lives.

use super::*;

const LONG: &str = "name: long
stages:
  - {name: base, train: smoke, set: {max_steps: 2500, train.threads: 1, preflight.enabled: false, checkpoint.every: 50}}
  - {name: again, train: smoke, set: {train.threads: 1, preflight.enabled: false}}
";

/// Waits until the condition holds.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let clock = SystemClock::new();
    while !holds() {
        assert!(clock.elapsed() < Duration::from_secs(120), "{what}");
        llmtui::base::clock::pause(Duration::from_millis(20));
    }
}

/// The stage was marked as failed because its run trained on elsewhere, and the hint was to leave everything out.
#[test]
fn a_stage_that_outlives_its_pipeline_is_watched_to_its_end() {
    let place = Place::new(LONG);
    let mut driver = place
        .command(&["train", "mine.yaml", "--headless"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let run = || {
        let text = std::fs::read_dir(place.dir.path().join("runs/pipelines")).ok()?;
        let folder = text.flatten().next()?.path();
        let state = std::fs::read_to_string(folder.join("state.json")).ok()?;
        let state: Value = serde_json::from_str(&state).ok()?;
        let run = state["stages"][0]["run"].as_str()?.to_string();
        llmtui::run::RunDir::open(&place.dir.path().join("runs").join(run)).ok()
    };
    until("the stage trains", || {
        run().is_some_and(|run| run.is_alive() && !run.checkpoints().is_empty())
    });
    driver.kill().unwrap();
    driver.wait().unwrap();
    let engine = run().unwrap();
    assert!(engine.is_alive(), "too fast a machine for this test");
    let resumed = place.go(&["train", "--resume", "long", "--headless"]);
    assert_eq!(code(&resumed), 0, "{}{}", out(&resumed), err(&resumed));
    assert!(err(&resumed).contains("still trains"), "{}", err(&resumed));
    assert_eq!(place.words(), ["done", "done"]);
    // A single engine trained it from beginning to end.
    let log = std::fs::read_to_string(engine.events_path()).unwrap();
    assert_eq!(log.matches("{\"type\":\"Hello\"").count(), 1);
}
