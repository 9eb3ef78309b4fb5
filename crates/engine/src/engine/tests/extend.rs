//! A finished run continues to another last step, with and without its optimizer's state; further validation sets.

use super::*;

/// Notes of a log.
fn notes(events: &[Event]) -> Vec<String> {
    let of = |event: &Event| match event {
        Event::Noted { text, .. } => Some(text.clone()),
        _ => None,
    };
    events.iter().filter_map(of).collect()
}

fn to_step(run: &Run, max_steps: u64, fresh_optimizer: bool) -> Run {
    let job = EngineJob {
        spec: run.job.spec.clone().to_step(max_steps),
        fresh_optimizer,
        ..run.job.clone()
    };
    Run {
        job,
        _dir: tempfile::tempdir().unwrap(),
    }
}

#[test]
fn a_finished_run_goes_on_by_a_schedule_over_all_of_its_steps() {
    let run = Run::new(&["max_steps=10"]);
    let first = run.go();
    assert_eq!(finished(&first).0, Outcome::Completed);
    keep_log(&run, &first);
    let longer = to_step(&run, 20, false);
    let second = longer.resumed();
    let (outcome, step, _) = finished(&second);
    assert_eq!((outcome, step), (Outcome::Completed, 20));
    let spec = &longer.job.spec;
    let rates: Vec<(u64, f64)> = second
        .iter()
        .filter_map(|event| match event {
            Event::Stepped { step, values, .. } => Some((*step, values.get("lr")?.0)),
            _ => None,
        })
        .collect();
    assert_eq!(rates.len(), 10);
    for (step, lr) in rates {
        let planned = spec.schedule.lr_at(step - 1, 20, spec.optimizer.lr());
        assert_eq!(lr, planned, "step {step}");
    }
    let told = notes(&second).join("\n");
    assert!(
        told.contains("the last step is 20 now, it was 10"),
        "{told}"
    );
    assert!(told.contains("cosine schedule is recomputed"), "{told}");
}

/// The log kept the advice on the shorter run: too long a warm-up, too few passes over its data.
#[test]
fn the_settings_of_an_extended_run_are_reviewed_again() {
    let reviewed = |events: &[Event]| -> Vec<String> {
        let of = |event: &Event| match event {
            Event::Checked { finding, .. } if finding.id == "settings" => {
                Some(finding.evidence.to_string())
            }
            _ => None,
        };
        events.iter().filter_map(of).collect()
    };
    let run = Run::new(&[
        "max_steps=10",
        "schedule.cosine.warmup_steps=10",
        "preflight.enabled=true",
    ]);
    let first = run.go();
    assert_eq!(finished(&first).0, Outcome::Completed);
    keep_log(&run, &first);
    let before = reviewed(&first);
    assert!(
        before.len() == 1 && before[0].contains("warm-up takes 10 steps"),
        "{before:?}"
    );
    // What the log says already is not said again.
    let same = to_step(&run, 10, false).resumed();
    assert_eq!(finished(&same).0, Outcome::Completed);
    assert!(reviewed(&same).is_empty());
    let longer = reviewed(&to_step(&run, 40, false).resumed());
    assert!(longer.len() == 1 && longer != before, "{longer:?}");
}

#[test]
fn without_its_optimizers_state_it_goes_on_as_from_fresh_moments() {
    let run = Run::new(&[
        "max_steps=10",
        "checkpoint.every=1",
        "checkpoint.keep_last=20",
    ]);
    let first = run.go();
    keep_log(&run, &first);
    let at_10 = std::fs::read(run.checkpoint(10).join("model.safetensors")).unwrap();
    let steps = |fresh| {
        let events = to_step(&run, 12, fresh).resumed();
        let told = notes(&events).join("\n");
        assert_eq!(told.contains("optimizer begins afresh"), fresh, "{told}");
        let weights = std::fs::read(run.checkpoint(12).join("model.safetensors")).unwrap();
        for step in [11, 12] {
            std::fs::remove_dir_all(run.checkpoint(step)).unwrap();
        }
        weights
    };
    let (kept, fresh) = (steps(false), steps(true));
    assert!(kept != fresh, "the moments count");
    assert!(fresh != at_10 && steps(true) == fresh, "and it repeats");
}

/// Its moments have no place in the checkpoint's, and it cannot begin at an average that was never trained.
#[test]
fn another_optimizer_begins_with_the_trained_weights_of_a_checkpoint() {
    let averaged = ["max_steps=5", "train.ema_decay=0.5"];
    let run = Run::new(&averaged);
    keep_log(&run, &run.go());
    let weights = |words: &[&str], fresh: bool, average: bool| {
        let mut again = to_step(&run, 10, fresh);
        again.job.spec = Run::new(words).job.spec.to_step(10);
        again.job.resume = true;
        opened(&again, |cx, _, _| {
            cx.state.show_average(average).unwrap();
            let params = cx.state.models.policy.params();
            params.read_held(<[f32]>::to_vec).unwrap()
        })
    };
    let trained = weights(&averaged, true, false);
    assert!(weights(&averaged, false, true) != trained);
    for words in [
        &["optimizer=lion"][..],
        &["optimizer=lion", "train.ema_decay=0.5"],
        &["optimizer=schedule_free"],
    ] {
        assert!(weights(words, true, false) == trained, "{words:?}");
    }
}

/// Whatever the run goes back for, the old moments came with the checkpoint.
#[test]
fn moments_that_a_resume_dropped_stay_dropped_where_the_run_goes_back_to_its_beginning() {
    let run = Run::new(&["max_steps=5"]);
    keep_log(&run, &run.go());
    let mut longer = to_step(&run, 10, true);
    longer.job.resume = true;
    opened(&longer, |cx, _, checkpoints| {
        let moments = |cx: &context::RunContext<'_, '_>| {
            let mut all = Vec::new();
            for part in cx.state.optimizer.state() {
                let mut read = |own: &[f32]| all.extend_from_slice(own);
                cx.state.optimizer.read_state(part.name, &mut read).unwrap();
            }
            all
        };
        let fresh = moments(cx);
        assert!(fresh.iter().all(|x| *x == 0.0));
        let mut spoil = |own: &mut [f32]| own.fill(2.0);
        let part = cx.state.optimizer.state()[0].name;
        cx.state.optimizer.write_state(part, &mut spoil).unwrap();
        let spoiled = moments(cx);
        checkpoints.roll_back(cx, 5).unwrap();
        assert!(moments(cx) == fresh, "the checkpoint that it began from");
        cx.state.optimizer.write_state(part, &mut spoil).unwrap();
        cx.state.progress.step = 6;
        checkpoints.save(cx).unwrap();
        checkpoints.roll_back(cx, 6).unwrap();
        assert!(moments(cx) == spoiled, "one of its own");
    });
}

/// Steps and losses on a set.
fn losses(events: &[Event], id: &str) -> Vec<(u64, f64)> {
    let of = |event: &Event| match event {
        Event::Evaluated { step, values, .. } => Some((*step, values.get(id)?.0)),
        _ => None,
    };
    events.iter().filter_map(of).collect()
}

#[test]
fn another_validation_set_has_a_curve_from_before_the_first_step_and_changes_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("other.txt");
    std::fs::write(&file, "now is the winter of our discontent\n".repeat(60)).unwrap();
    let extra = format!("eval.extra=[{{name: winter, source: {}}}]", file.display());
    let (with, without) = (Run::new(&[&extra]), Run::new(&[]));
    let (events, plain) = (with.go(), without.go());
    let steps = |events: &[Event], id| losses(events, id).iter().map(|x| x.0).collect::<Vec<_>>();
    assert_eq!(
        steps(&events, "extra/winter"),
        [0, 5, 10, 15, 20],
        "{events:?}"
    );
    assert_eq!(steps(&events, "val/loss"), [0, 5, 10, 15, 20]);
    let declared = events.iter().any(|event| match event {
        Event::MetricsDeclared { metrics } => metrics.iter().any(|m| m.id == "extra/winter"),
        _ => false,
    });
    assert!(declared);
    let begin = losses(&events, "extra/winter")[0].1;
    assert!(
        (begin - 65_f64.ln()).abs() < 0.3,
        "{begin}: guessing at first"
    );
    assert_eq!(
        losses(&events, "val/loss")[1..],
        losses(&plain, "val/loss")[..]
    );
    let weights = |run: &Run| std::fs::read(run.checkpoint(20).join("model.safetensors")).unwrap();
    assert!(weights(&with) == weights(&without));
}

/// The same text as the validation split gives its loss.
#[test]
fn the_loss_on_the_own_split_is_the_validation_loss() {
    let dir = tempfile::tempdir().unwrap();
    let (train, val) = (dir.path().join("a.jsonl"), dir.path().join("b.jsonl"));
    let rows = |n: std::ops::Range<usize>| -> String {
        n.map(|i| format!("{{\"prompt\": \"say {i}\", \"completion\": \"{i} {i}\"}}\n"))
            .collect()
    };
    std::fs::write(&train, rows(0..60)).unwrap();
    std::fs::write(&val, rows(60..90)).unwrap();
    let words = [
        format!("data.path={}", train.display()),
        format!("data.val_path={}", val.display()),
        format!("eval.extra=[{{name: same, source: {}}}]", val.display()),
        "method=sft".into(),
        "seq_len=32".into(),
        "max_steps=4".into(),
        "eval.every=2".into(),
        "eval.rows=9".into(),
    ];
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let events = Run::new(&words).go();
    let own = losses(&events, "val/loss");
    assert_eq!(own.len(), 3, "{events:?}");
    assert_eq!(own, losses(&events, "extra/same"));
    let read = events.iter().filter_map(|event| match event {
        Event::Evaluated {
            n_windows, whole, ..
        } => Some((*n_windows, *whole)),
        _ => None,
    });
    assert!(
        read.clone().all(|(n, _)| n <= 9),
        "{:?}",
        read.collect::<Vec<_>>()
    );
}

/// Beside pairs only pairs were read: what a preference method forgets of ordinary texts could not be measured.
#[test]
fn texts_beside_pairs_have_the_likelihood_as_their_loss() {
    let dir = tempfile::tempdir().unwrap();
    let (pairs, texts) = (dir.path().join("a.jsonl"), dir.path().join("b.jsonl"));
    let pair = "{\"prompt\": \"say\", \"chosen\": \"ab\", \"rejected\": \"ba\"}\n";
    std::fs::write(&pairs, pair.repeat(30)).unwrap();
    let text = "{\"prompt\": \"a\", \"completion\": \"bay\"}\n";
    std::fs::write(&texts, text.repeat(30)).unwrap();
    let sets = [("texts", &texts), ("pairs", &pairs)]
        .map(|(name, path)| format!("{{name: {name}, source: {}}}", path.display()));
    let words = [
        format!("data.path={}", pairs.display()),
        format!("eval.extra=[{}]", sets.join(", ")),
        "method=dpo".into(),
        "seq_len=32".into(),
        "max_steps=2".into(),
        "eval.every=2".into(),
    ];
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let events = Run::new(&words).go();
    assert_eq!(finished(&events).0, Outcome::Completed, "{events:?}");
    // At first, a guess among a few characters, and a coin toss between the answers.
    let begin = |id| losses(&events, id)[0].1;
    assert!((begin("extra/pairs") - 2_f64.ln()).abs() < 1e-6);
    let characters = begin("extra/texts").exp();
    assert!((5.0..12.0).contains(&characters), "{characters}");
}

#[test]
fn a_set_that_cannot_be_read_is_named() {
    let run = Run::new(&["eval.extra=[{name: gone, source: /nowhere/rows.jsonl}]"]);
    let (outcome, _, message) = finished(&run.go());
    assert_eq!(outcome, Outcome::Invalid);
    assert!(message.contains("eval.extra gone"), "{message}");
}

#[test]
fn a_spec_that_was_edited_is_told_of_and_what_a_resume_may_change_is_not() {
    let mut run = Run::new(&[]);
    run.job.stop_after = Some(10);
    let first = run.go();
    keep_log(&run, &first);
    let warned = |run: &Run| {
        let of = |event: &Event| match event {
            Event::Warned { code, message, .. } if code == "spec_edited" => Some(message.clone()),
            _ => None,
        };
        run.resumed().iter().find_map(of)
    };
    run.job.spec = tiny(&["lr=0.5", "sample.every=7"]).0;
    let told = warned(&run).unwrap();
    let keys = ["optimizer.adamw.lr", "sample.every 10 → 7"];
    assert!(keys.iter().all(|key| told.contains(key)), "{told}");
    run.job.spec = tiny(&["max_steps=25", "threads=2"]).0;
    assert_eq!(warned(&run), None);
}

/// A run of preferences from a step of this one could not be resumed: retention had deleted what it began from.
#[test]
fn what_another_run_begins_from_is_kept_however_long_this_one_goes_on() {
    let run = Run::new(&["max_steps=10"]);
    let first = run.go();
    keep_log(&run, &first);
    let from = format!("train.from={}", run.checkpoint(5).display());
    let clock = SystemClock::new();
    let beside = |spec: &str| RunDir::create(run._dir.path(), "u", spec, "", &clock).unwrap();
    beside(&tiny(&[&from]).0.to_yaml());
    to_step(&run, 30, false).resumed();
    let kept = run.kept();
    assert!(kept.contains(&5) && !kept.contains(&10), "{kept:?}");
    // A spec that this program cannot read names its checkpoint all the same.
    beside(&format!(
        "of: the future\nfrom: {}\n",
        run.checkpoint(25).display()
    ));
    to_step(&run, 40, false).resumed();
    let kept = run.kept();
    assert!(kept.contains(&5) && kept.contains(&25), "{kept:?}");
}
