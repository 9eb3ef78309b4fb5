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
        path: crate::run::checkpoints::path_in_run(step),
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

/// A sweep ranked a run by the evaluations that were saved, though a better one lay between two checkpoints.
#[test]
fn a_better_evaluation_between_two_checkpoints_is_what_a_run_is_ranked_by() {
    use crate::run::ranking::Score;
    let dir = tempfile::tempdir().unwrap();
    let by = |step, loss| crate::wire::Best {
        step,
        metric: "val/loss".into(),
        value: Num(loss),
        direction: crate::wire::Direction::Lower,
    };
    let saved = |step, loss| Event::Checkpointed {
        step,
        path: crate::run::checkpoints::path_in_run(step),
        bytes: 1,
        seconds: 0.0,
        best: true,
        val_loss: Some(Num(loss)),
        by: Some(by(step, loss)),
    };
    let ended = |by| {
        let mut end = finished(Outcome::Completed, 500);
        if let Event::Finished { best, .. } = &mut end {
            *best = Some(by);
        }
        end
    };
    let run = new_run(dir.path(), "a", 1);
    let steps = [hello(), started(500), stepped(250, 2.0)];
    log(&run, steps.into_iter().chain([evaluated(250, 1.5)]));
    log(&run, [evaluated(500, 1.6), saved(500, 1.6)]);
    log(&run, [ended(by(250, 1.5))]);
    let a = summarize(&run).unwrap();
    let saved_best = a.best.as_ref().map(|best| best.step);
    assert_eq!(saved_best, Some(500), "the only checkpoint");
    assert_eq!(a.best_evaluation, Some(by(250, 1.5)));
    let score = Score::of(&a).unwrap();
    assert_eq!((score.step, score.value, score.whole), (250, 1.5, None));

    // The whole split of the end belongs to the evaluation of the end.
    let run = new_run(dir.path(), "b", 2);
    log(&run, [hello(), started(500), stepped(500, 2.0)]);
    log(&run, [evaluated(500, 1.55), saved(500, 1.57)]);
    log(&run, [ended(by(500, 1.55))]);
    let b = Score::of(&summarize(&run).unwrap()).unwrap();
    assert_eq!((b.value, b.whole), (1.57, Some(1.55)));
    assert!(score.beats(&b));

    // A resume that takes the better one back takes its value back as well.
    let run = new_run(dir.path(), "c", 3);
    log(
        &run,
        [hello(), started(500), stepped(250, 2.0), saved(100, 1.9)],
    );
    log(&run, [evaluated(250, 1.5), ended(by(250, 1.5))]);
    log(&run, [hello(), Event::RolledBack { step: 100 }]);
    assert_eq!(summarize(&run).unwrap().best_evaluation, Some(by(100, 1.9)));
}

/// A cold start evaluates losses, the rollouts after it answers.
#[test]
fn the_newest_evaluation_after_a_cold_start_is_one_of_answers() {
    let dir = tempfile::tempdir().unwrap();
    let run = new_run(dir.path(), "x", 1);
    log(&run, [hello(), started(60), evaluated(0, 2.0)]);
    log(&run, [stepped(40, 1.0), passed(40, 0.5)]);
    assert_eq!(summarize(&run).unwrap().evaluated_at, Some(40));
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

/// A sweep took a run that had diverged, was rolled back and went on for a failure, by its old verdict and its old loss.
#[test]
fn of_a_run_that_was_rolled_back_only_what_still_stands_counts() {
    let dir = tempfile::tempdir().unwrap();
    let run = new_run(dir.path(), "x", 1);
    let judged = |step, verdict: &str| Event::Diagnosed {
        step,
        finding: Box::new(Finding::pass("judged").named(VERDICT, verdict)),
    };
    log(&run, [hello(), started(90), stepped(10, 4.0)]);
    log(&run, [judged(10, "LEARNING"), stepped(20, 9.0)]);
    log(&run, [judged(20, DIVERGED), hello()]);
    log(&run, [Event::RolledBack { step: 10 }]);
    log(&run, [finished(Outcome::Stopped, 10)]);
    let summary = summarize(&run).unwrap();
    assert_eq!(summary.verdict.as_deref(), Some("LEARNING"));
    assert_eq!(summary.train_loss, Some(4.0));
    let score = crate::run::ranking::Score::of(&summary).unwrap();
    assert_eq!((score.value, score.step), (4.0, 10));
    log(&run, [hello(), Event::RolledBack { step: 0 }]);
    let summary = summarize(&run).unwrap();
    assert_eq!((summary.train_loss, summary.verdict), (None, None));
}

/// `runs` said the loss of one step, the run's own page a mean: 1.69 and 1.76 of the same run.
#[test]
fn the_training_loss_of_a_list_is_that_of_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let mut events = vec![hello(), started(200)];
    events.extend((1..=50).map(|step| stepped(step, 1.0 / step as f64)));
    events.push(Event::RolledBack { step: 45 });
    // Fewer steps behind the rollback than a mean has.
    events.extend((46..=58).map(|step| stepped(step, step as f64)));
    events.push(Event::PhaseChanged {
        phase: Phase::Paused,
        step: 58,
    });
    let run = new_run(dir.path(), "x", 0);
    log(&run, events.clone());
    let envelope = |(seq, event): (u64, Event)| Envelope {
        v: VERSION,
        seq,
        t: crate::base::clock::UnixMillis(5_000),
        event,
    };
    let all: Vec<Envelope> = (1..).zip(events).map(envelope).collect();
    let fold = crate::run::RunState::from_events(&all).newest_loss();
    // A quarter of 58 steps, one of which is from before the rollback.
    let by_hand = (46..=58).map(f64::from).sum::<f64>() + 1.0 / 45.0;
    let listed = summarize(&run).unwrap().train_loss.unwrap();
    assert!((listed - by_hand / 14.0).abs() < 1e-12, "{listed}");
    assert!((fold.unwrap() - listed).abs() < 1e-12, "{fold:?}");
}
