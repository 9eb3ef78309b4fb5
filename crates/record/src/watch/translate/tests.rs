//! What records of a log become: series under our names, resumes, ends, bounds.

use super::super::places::MAX_METRICS;
use super::*;
use crate::run::RunState;

fn reading(step: u64, values: &[(&str, f64)]) -> Item {
    let values = values
        .iter()
        .map(|(name, x)| ((*name).to_string(), *x))
        .collect();
    Item::Readings {
        step: Some(step),
        t: Some(UnixMillis(1_000 * (1 + step))),
        values,
    }
}

fn fold(items: Vec<Item>) -> RunState {
    let mut translator = Translator::new("x", "csv", Mapping::default());
    RunState::from_events(&translator.translate(items, UnixMillis(5)))
}

#[test]
fn readings_become_series_under_our_names() {
    let facts = Facts {
        max_steps: Some(40),
        ..Facts::default()
    };
    let state = fold(vec![
        Item::Facts(facts),
        reading(10, &[("loss", 3.0)]),
        reading(10, &[("eval_loss", 3.5), ("grad_norm", f64::NAN)]),
        reading(20, &[("loss", 2.0), ("num_tokens", 500.0)]),
        Item::Ended(true),
    ]);
    assert_eq!(state.latest("train/loss"), Some(2.0));
    assert_eq!(state.latest("val/loss"), Some(3.5));
    assert_eq!((state.step, state.tokens, state.missed), (20, 500, 0));
    assert_eq!(state.progress(), Some(0.5));
    assert_eq!(state.word(), "finished");
    assert_eq!(state.metrics.len(), 3);
}

#[test]
fn steps_that_go_back_are_a_resume_and_a_restart_begins_anew() {
    let went = |step| reading(step, &[("loss", step as f64)]);
    let state = fold((1..=10).chain(6..=8).map(went).collect());
    let points: Vec<f64> = state.series["train/loss"]
        .recent()
        .map(|p| p.value)
        .collect();
    assert_eq!(points, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    let state = fold(vec![went(7), Item::Restart, went(1)]);
    assert_eq!(state.series["train/loss"].len(), 1);
    let anew = |state: &RunState| {
        let notes = state.marks.iter().map(|mark| mark.text.as_str());
        notes.filter(|text| text.contains("overwritten")).count()
    };
    assert_eq!(anew(&state), 1);
    // A log that goes on behind the one before is the next part of the same run.
    let rotated = fold(vec![went(7), Item::Restart, went(8), went(9)]);
    assert_eq!(rotated.series["train/loss"].len(), 3);
    assert_eq!(anew(&rotated), 0);
}

fn points(state: &RunState, id: &str) -> Vec<(u64, f64)> {
    let recent = state.series[id].recent();
    recent.map(|p| (p.step, p.value)).collect()
}

#[test]
fn nothing_of_step_0_is_left_of_a_log_that_begins_again_with_it() {
    let went = |step, loss| reading(step, &[("loss", loss), ("eval_loss", loss + 1.0)]);
    let first = || vec![went(0, 9.0), went(1, 8.0)];
    let second = || vec![went(0, 5.0), went(1, 4.0)];
    // Written anew, and appended.
    for between in [vec![Item::Restart], vec![], vec![Item::Began(0)]] {
        let state = fold([first(), between, second()].concat());
        assert_eq!(points(&state, "train/loss"), [(0, 5.0), (1, 4.0)]);
        assert_eq!(points(&state, "val/loss"), [(0, 6.0), (1, 5.0)]);
        assert_eq!((state.evaluations.len(), state.step), (2, 1));
        let notes = state
            .marks
            .iter()
            .filter(|mark| mark.text.contains("step 0"));
        assert!(notes.count() <= 1, "{:?}", state.marks);
    }
    // A resume to step 1 keeps what was measured before the first step.
    let state = fold([first(), vec![went(1, 7.0)]].concat());
    assert_eq!(points(&state, "train/loss"), [(0, 9.0), (1, 7.0)]);
}

#[test]
fn a_step_that_is_read_twice_has_one_reading_whenever_it_is_read() {
    for step in [0, 3] {
        let first = reading(step, &[("loss", 9.0), ("grad_norm", 1.0)]);
        let held_out = reading(step, &[("eval_loss", 9.5)]);
        let second = reading(step, &[("loss", 5.0)]);
        let same = reading(step, &[("loss", 5.0)]);
        let items = vec![first, held_out, second, same];
        let whole = fold(items.clone());
        let mut translator = Translator::new("x", "csv", Mapping::default());
        let polled = |item| translator.translate(vec![item], UnixMillis(5));
        let events: Vec<Envelope> = items.into_iter().flat_map(polled).collect();
        for state in [whole, RunState::from_events(&events)] {
            for (id, x) in [("train/loss", 5.0), ("grad_norm", 1.0), ("val/loss", 9.5)] {
                assert_eq!(points(&state, id), [(step, x)], "{id}");
            }
            assert_eq!(state.step, step);
        }
    }
}

#[test]
fn a_run_that_says_where_it_goes_on_drops_what_is_behind() {
    let went = |step| reading(step, &[("loss", step as f64)]);
    // The second attempt logs less often, so that its first step is no step back.
    let again = [went(5), went(10), Item::Began(0), Item::Began(0), went(20)];
    let state = fold(again.to_vec());
    assert_eq!(points(&state, "train/loss"), [(20, 20.0)]);
    let resumed = [went(5), went(10), went(15), Item::Began(10), went(30)];
    let state = fold(resumed.to_vec());
    assert_eq!(
        points(&state, "train/loss"),
        [(5, 5.0), (10, 10.0), (30, 30.0)]
    );
    // One that goes on where it ended gives up nothing.
    let state = fold(vec![Item::Began(0), went(5), Item::Began(5), went(10)]);
    assert_eq!(points(&state, "train/loss").len(), 2);
    let noted = state.marks.iter().any(|m| m.text.contains("started again"));
    assert!(!noted, "{:?}", state.marks);
}

#[test]
fn an_evaluation_that_names_the_next_epoch_doubles_no_steps() {
    let record =
        |epoch: f64, step: u64, name: &str, x: f64| reading(step, &[("epoch", epoch), (name, x)]);
    let mut items = Vec::new();
    for epoch in 0..3_u64 {
        items.push(record(epoch as f64, 100 * epoch, "val_loss", 4.0));
        let steps = (1..=10).map(|i| 100 * epoch + 10 * i);
        items.extend(steps.map(|step| record(epoch as f64, step, "loss", 3.0)));
    }
    let state = fold(items);
    let steps = |id: &str| -> Vec<u64> {
        let points = state.series[id].recent();
        points.map(|point| point.step).collect()
    };
    assert_eq!(steps("val/loss"), [0, 100, 200]);
    let every_ten: Vec<u64> = (1..=30).map(|i| 10 * i).collect();
    assert_eq!(steps("train/loss"), every_ten);
    // A step that begins again repeats its loss.
    let one_each = (1..=3).map(|epoch| record(epoch.into(), 100, "loss", 3.0));
    assert_eq!(fold(one_each.collect()).step, 300);
}

#[test]
fn records_without_a_step_count() {
    let record = |values: &[(&str, f64)]| match reading(0, values) {
        Item::Readings { t, values, .. } => Item::Readings {
            step: None,
            t,
            values,
        },
        other => other,
    };
    let mut translator = Translator::new("x", "csv", Mapping::default());
    let both = |x: f64| record(&[("train_loss", x), ("val_loss", x + 0.5)]);
    let mut events = translator.translate(vec![both(3.0), both(2.0)], UnixMillis(5));
    // Those that are read later count on; one may have held-out readings alone, or say nothing.
    let held_out = record(&[("val_loss", 1.5)]);
    let later = vec![held_out, record(&[("time", 4.0)]), both(0.5)];
    events.extend(translator.translate(later, UnixMillis(6)));
    let state = RunState::from_events(&events);
    let losses = [(1, 3.0), (2, 2.0), (4, 0.5)];
    assert_eq!(points(&state, "train/loss"), losses);
    let held_out = [(1, 3.5), (2, 2.5), (3, 1.5), (4, 1.0)];
    assert_eq!(points(&state, "val/loss"), held_out);
}

#[test]
fn a_silent_log_ends_and_one_that_goes_on_begins_again() {
    let mut translator = Translator::new("x", "csv", Mapping::default());
    let mut events = translator.translate(vec![reading(1, &[("loss", 1.0)])], UnixMillis(2_000));
    let patience = Duration::from_secs(900);
    events.extend(translator.rest(UnixMillis(60_000), UnixMillis(2_000), patience));
    assert!(RunState::from_events(&events).running());
    events.extend(translator.rest(UnixMillis(3_600_000), UnixMillis(2_000), patience));
    let state = RunState::from_events(&events);
    assert!(
        state
            .finished
            .unwrap()
            .message
            .contains("nothing was logged")
    );
    events.extend(translator.translate(vec![reading(2, &[("loss", 1.0)])], UnixMillis(9_000_000)));
    assert!(RunState::from_events(&events).running());
}

#[test]
fn each_step_is_told_with_its_own_tokens() {
    let told = |items: Vec<Item>| -> Vec<(u64, u64)> {
        let events =
            Translator::new("x", "csv", Mapping::default()).translate(items, UnixMillis(5));
        let stepped = events.iter().filter_map(|envelope| match &envelope.event {
            Event::Stepped { step, tokens, .. } => Some((*step, *tokens)),
            _ => None,
        });
        stepped.collect()
    };
    let (loss, tokens) = (("loss", 1.0), |n: f64| ("tokens", n));
    let together = (1..=3).map(|step| reading(step, &[loss, tokens(100.0 * step as f64)]));
    assert_eq!(told(together.collect()), [(1, 100), (2, 200), (3, 300)]);
    // Trackers may write each number in a record of its own, in any order.
    for order in [[0, 1], [1, 0]] {
        let apart = (1..=3).flat_map(|step| {
            let pair = [loss, tokens(100.0 * step as f64)];
            order.map(|i| reading(step, &[pair[i]]))
        });
        let apart = [reading(0, &[loss])].into_iter().chain(apart).collect();
        assert_eq!(told(apart), [(0, 0), (1, 100), (2, 200), (3, 300)]);
    }
}

#[test]
fn neither_a_warning_nor_facts_reopen_a_run_that_has_ended() {
    let facts = Facts {
        max_steps: Some(7),
        ..Facts::default()
    };
    let state = fold(vec![
        reading(1, &[("loss", 1.0)]),
        Item::Ended(true),
        Item::Trouble("a line is no JSON".into()),
        Item::Facts(facts),
    ]);
    assert_eq!((state.word(), state.n_warnings), ("finished", 1));
    // Without any reading the warning is all there is.
    assert_eq!(fold(vec![Item::Trouble("no log".into())]).n_warnings, 1);
}

#[test]
fn known_metrics_have_a_place_among_any_number_of_others() {
    let many: Vec<(String, f64)> = (0..400).map(|i| (format!("grads/{i}"), 1.0)).collect();
    let mut values: Vec<(&str, f64)> = many.iter().map(|(n, x)| (n.as_str(), *x)).collect();
    values.extend([("loss", 3.0), ("eval_loss", 3.5), ("grad_norm", 0.5)]);
    // In one record, and each in one of its own.
    let apart = values.iter().map(|pair| reading(1, &[*pair])).collect();
    for (items, together) in [(vec![reading(1, &values)], true), (apart, false)] {
        let state = fold(items);
        assert_eq!(state.series.len(), MAX_METRICS + 3);
        assert_eq!(state.metrics.len(), state.series.len());
        if together {
            let first: Vec<&str> = state.metrics.iter().map(|m| m.id.as_str()).collect();
            assert_eq!(first[..3], ["grad_norm", "train/loss", "val/loss"]);
        }
        assert_eq!(state.latest("val/loss"), Some(3.5));
        let said = state
            .marks
            .iter()
            .filter(|mark| mark.text.contains("are skipped"));
        let said: Vec<&str> = said.map(|mark| mark.text.as_str()).collect();
        assert_eq!((said.len(), state.n_warnings), (1, 1));
        assert!(said[0].contains("403 metrics: 144 of them"), "{said:?}");
    }
}

#[test]
fn an_evaluation_behind_the_end_counts_and_the_run_stays_ended() {
    let state = fold(vec![
        reading(10, &[("loss", 3.0)]),
        Item::Ended(true),
        reading(10, &[("eval_loss", 3.5), ("loss", 9.0)]),
    ]);
    assert_eq!(
        (state.word(), state.latest("val/loss")),
        ("finished", Some(3.5))
    );
    assert_eq!(state.latest("train/loss"), Some(3.0));
    assert_eq!(state.evaluations.len(), 1);
}

#[test]
fn a_trainer_that_counts_tokens_is_not_done_with_every_record() {
    let so_far = [("train_runtime", 9.0), ("train_tokens_per_second", 500.0)];
    let went = |step: u64, pair: (&'static str, f64)| {
        reading(step, &[&[pair], so_far.as_slice()].concat())
    };
    let state = fold(vec![
        went(10, ("loss", 3.0)),
        went(10, ("eval_loss", 3.5)),
        went(20, ("loss", 2.0)),
    ]);
    assert!(state.running());
    assert_eq!(
        (state.latest("train/loss"), state.latest("val/loss")),
        (Some(2.0), Some(3.5))
    );
    assert_eq!(state.latest("tok_per_sec"), Some(500.0));
}

#[test]
fn a_log_that_is_silent_at_its_last_step_is_of_a_finished_run() {
    let facts = Facts {
        max_steps: Some(2),
        ..Facts::default()
    };
    for (step, word) in [(1, "training"), (2, "finished")] {
        let items = vec![Item::Facts(facts.clone()), reading(step, &[("loss", 1.0)])];
        let mut translator = Translator::new("x", "csv", Mapping::default());
        let mut events = translator.translate(items, UnixMillis(3_000));
        let patience = Duration::from_secs(900);
        events.extend(translator.rest(UnixMillis(90_000), UnixMillis(3_000), patience));
        assert_eq!(RunState::from_events(&events).word(), word);
    }
}

#[test]
fn metrics_are_bounded() {
    let many = (0..400)
        .map(|i| reading(1, &[(&format!("m{i}"), 1.0)]))
        .collect();
    let state = fold(many);
    assert_eq!((state.series.len(), state.n_warnings), (MAX_METRICS, 1));
}

#[test]
fn an_evaluation_before_the_first_step_stays_when_training_begins() {
    let items = vec![
        reading(0, &[("eval_loss", 9.0)]),
        Item::Began(0),
        reading(5, &[("loss", 3.0)]),
    ];
    let state = fold(items);
    assert_eq!(points(&state, "val/loss"), [(0, 9.0)]);
    assert_eq!(points(&state, "train/loss"), [(5, 3.0)]);
    assert_eq!(state.evaluations.len(), 1);
    let noted = state.marks.iter().any(|m| m.text.contains("started again"));
    assert!(!noted, "{:?}", state.marks);
}

/// Steps of 3 s, with a line for each of three micro-batches.
#[test]
fn a_log_with_several_lines_a_step_has_the_time_of_a_step_and_no_line_of_each_repetition() {
    let lines = (1..=6_u64).flat_map(|step| {
        (0..3_u64).map(move |line| Item::Readings {
            step: Some(step),
            t: Some(UnixMillis(1_000 * (10 + 3 * step + line))),
            values: vec![("loss".into(), 9.0 - (3 * step + line) as f64 / 10.0)],
        })
    });
    let items: Vec<Item> = lines.collect();
    let whole = fold(items.clone());
    let mut translator = Translator::new("x", "csv", Mapping::default());
    let polled = |item| translator.translate(vec![item], UnixMillis(5));
    let events: Vec<Envelope> = items.into_iter().flat_map(polled).collect();
    for state in [whole, RunState::from_events(&events)] {
        assert_eq!(state.pace.step_ms(), Some(3_000.0));
        assert_eq!(points(&state, "train/loss").len(), 6);
        assert_eq!(state.step, 6);
        let told: Vec<&str> = state.log.iter().map(|line| line.text.as_str()).collect();
        assert!(
            !told.iter().any(|text| text.contains("rolled back")),
            "{told:?}"
        );
    }
}

#[test]
fn a_run_that_begins_again_after_its_end_is_training_before_its_first_line() {
    let first = vec![
        reading(0, &[("loss", 4.0)]),
        reading(5, &[("loss", 3.0)]),
        Item::Ended(true),
    ];
    for (at, step) in [(0, 0), (3, 3), (5, 5)] {
        let mut translator = Translator::new("x", "csv", Mapping::default());
        let mut events = translator.translate(first.clone(), UnixMillis(7_000));
        events.extend(translator.translate(vec![Item::Began(at)], UnixMillis(90_000)));
        let state = RunState::from_events(&events);
        assert_eq!((state.word(), state.step), ("training", step));
        // One that ends without a line has ended.
        events.extend(translator.translate(vec![Item::Ended(false)], UnixMillis(91_000)));
        assert!(!RunState::from_events(&events).running());
        let both = vec![Item::Began(at), Item::Ended(true)];
        let state = fold([first.clone(), both].concat());
        assert_eq!(state.word(), "finished");
    }
    // The first step of the new run is none behind the end of the old one.
    let again = vec![Item::Began(0), reading(0, &[("loss", 6.0)])];
    let state = fold([first, again].concat());
    assert_eq!(points(&state, "train/loss"), [(0, 6.0)]);
    assert_eq!(state.word(), "training");
}

#[test]
fn the_time_of_a_run_that_went_on_after_its_end_leaves_out_the_pause() {
    let at = |step: u64, seconds: u64| Item::Readings {
        step: Some(step),
        t: Some(UnixMillis(1_000 * seconds)),
        values: vec![("loss".into(), 3.0)],
    };
    let items = vec![
        at(1, 10),
        at(2, 19),
        Item::Ended(true),
        at(3, 3_600),
        at(4, 3_602),
        Item::Ended(true),
    ];
    let mut translator = Translator::new("x", "csv", Mapping::default());
    let polled = |item| translator.translate(vec![item], UnixMillis(5));
    let events: Vec<Envelope> = items.into_iter().flat_map(polled).collect();
    let spent = RunState::from_events(&events).spent().seconds();
    assert!((spent - 11.0).abs() < 1e-9, "{spent}");
}
