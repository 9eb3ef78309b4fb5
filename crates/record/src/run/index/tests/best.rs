//! What a list says of a run besides its status: its verdict, which checkpoint is its best, the model that it started from.

use super::*;

/// Lists had a dash where `logs`, `diagnose` and the report said TOO EARLY.
#[test]
fn a_short_run_that_finished_is_too_early_to_judge() {
    let dir = tempfile::tempdir().unwrap();
    let run = new_run(dir.path(), "x", 1);
    let early = Event::Diagnosed {
        step: 1,
        finding: Box::new(Finding::pass("few").named(VERDICT, TOO_EARLY)),
    };
    let events = [hello(), started(1), stepped(1, 4.0), early];
    log(
        &run,
        events.into_iter().chain([finished(Outcome::Completed, 1)]),
    );
    let summary = summarize(&run).unwrap();
    assert_eq!(summary.status, RunStatus::Finished);
    assert_eq!(summary.verdict.as_deref(), Some(TOO_EARLY));
}

#[test]
fn the_best_is_the_newest_that_the_log_calls_so_and_a_roll_back_takes_it_back() {
    let dir = tempfile::tempdir().unwrap();
    let run = new_run(dir.path(), "x", 1);
    let saved = |step, value, best| Event::Checkpointed {
        step,
        path: format!("checkpoints/step-{step:06}"),
        bytes: 1,
        seconds: 0.0,
        best,
        val_loss: Some(Num(0.7)),
        by: Some(crate::wire::Best {
            step,
            metric: "val/rewards/accuracies".into(),
            value: Num(value),
            direction: crate::wire::Direction::Higher,
        }),
    };
    let best = || {
        summarize(&run)
            .unwrap()
            .best
            .map(|best| (best.step, best.value.0))
    };
    log(
        &run,
        [hello(), started(9), stepped(1, 4.0), saved(1, 0.5, true)],
    );
    assert_eq!(best(), Some((1, 0.5)));
    log(
        &run,
        [stepped(2, 3.0), saved(2, 0.75, true), saved(3, 0.6, false)],
    );
    assert_eq!(best(), Some((2, 0.75)));
    log(&run, [Event::RolledBack { step: 1 }]);
    assert_eq!(best(), Some((1, 0.5)));
}

#[test]
fn only_a_run_that_has_learned_is_one_to_start_from() {
    for (verdict, offered) in [
        (None, true),
        (Some("LEARNING"), true),
        (Some("STABLE"), true),
        (Some("NOT LEARNING"), false),
        (Some(DIVERGED), false),
        (Some(TOO_EARLY), false),
    ] {
        assert_eq!(has_learned(verdict), offered, "{verdict:?}");
    }
}

#[test]
fn a_run_names_the_model_that_it_started_from() {
    let dir = tempfile::tempdir().unwrap();
    let run = new_run(dir.path(), "a", 1);
    log(&run, [hello(), started(9)]);
    assert_eq!(summarize(&run).unwrap().start_model, None);
    let mut tuned = started(9);
    if let Event::Started { spec, .. } = &mut tuned {
        *spec = serde_json::json!({"train": {"from": "models/qwen"}});
    }
    log(&run, [hello(), tuned]);
    let found = summarize(&run).unwrap().start_model;
    assert_eq!(found.as_deref(), Some(Path::new("models/qwen")));
}
