//! Tracks by each axis, across resumes and rescues, and what a comparison tells of them.

use super::*;
use crate::base::clock::UnixMillis;
use crate::wire::Num;
use serde_json::json;

fn track(events: Vec<(u64, Event)>) -> Track {
    let mut track = Track::new("a\x1b[2J");
    for (seq, (t, event)) in (1..).zip(events) {
        track.apply(&Envelope {
            v: 1,
            seq,
            t: UnixMillis(t),
            event,
        });
    }
    track
}

fn hello() -> Event {
    Event::Hello {
        run: "a".into(),
        engine: "0".into(),
        pid: 1,
        host: "h".into(),
    }
}

fn started(name: &str, method: &str, spec: Value) -> Event {
    Event::Started {
        name: name.into(),
        method: method.into(),
        spec,
        n_params: 1,
        vocab_size: 1,
        max_steps: 1,
        batch_tokens: 1,
        epoch_tokens: 1,
        resumed_from: None,
        precision: None,
        unigram_entropy: None,
    }
}

fn stepped(step: u64, tokens: u64, loss: f64) -> Event {
    Event::Stepped {
        step,
        tokens,
        values: [("train/loss".to_string(), Num(loss))].into(),
    }
}

fn rescued(step: u64, lr: (Num, Num)) -> Event {
    Event::Rescued {
        step,
        from: step + 1,
        why: String::new(),
        skipped: (0, 0),
        lr,
        moments_reset: false,
        count: 1,
        at_most: 3,
        undo: None,
    }
}

#[test]
fn curves_over_tokens_and_time_leave_out_pauses_between_engines() {
    let mut events = vec![(1_000, hello())];
    events.extend((1..=4).map(|s| (1_000 + 100 * s, stepped(s, 10 * s, 5.0 - s as f64))));
    // A day later another engine goes on from step 2.
    let later = 86_400_000;
    events.push((later, hello()));
    events.push((later + 5, Event::RolledBack { step: 2 }));
    events.extend((3..=5).map(|s| (later + 100 * s, stepped(s, 10 * s, 9.0 - s as f64))));
    let track = track(events);
    assert!(!track.name.contains('\x1b'));
    assert_eq!(track.millis(), 400 + 500);
    assert_eq!(track.state.seconds, 0.9, "lists and screens say the same");
    let points = |by| track.points("train/loss", by, 100);
    let expected = [(1, 4.0), (2, 3.0), (3, 6.0), (4, 5.0), (5, 4.0)];
    assert_eq!(points(Alignment::Step), expected);
    let x = |by| points(by).iter().map(|p| p.0).collect::<Vec<_>>();
    assert_eq!(x(Alignment::Tokens), [10, 20, 30, 40, 50]);
    assert_eq!(x(Alignment::Time), [100, 200, 700, 800, 900]);
    let curve = track.curve("train/loss", Alignment::Time).unwrap();
    assert_eq!(curve.steps(), Some((100, 900)));
    assert_eq!(curve.extent(0.0, 1e9), Some((3.0, 6.0)));
    assert!(track.curve("gone", Alignment::Step).is_none() && points(Alignment::Step).len() == 5);
}

#[test]
fn an_undone_rescue_brings_the_places_of_its_steps_back() {
    let lr = (Num(1e-3), Num(5e-4));
    let mut events = vec![(0, hello())];
    events.extend((1..=50).map(|s| (100 * s, stepped(s, 10 * s, 1.0))));
    events.push((5_000, Event::RolledBack { step: 30 }));
    events.push((5_000, rescued(30, lr)));
    events.extend((31..=35).map(|s| (5_000 + 100 * (s - 30), stepped(s, 10 * s, 1.0))));
    events.push((5_500, Event::RolledBack { step: 30 }));
    let undone = Event::RescueUndone {
        step: 48,
        tokens: 480,
        rescue: 30,
        why: String::new(),
        lr,
        whole: true,
        lost: 5,
    };
    events.push((5_500, undone));
    events.push((5_600, stepped(49, 490, 1.0)));
    let track = track(events);
    let x = |by| [31, 40, 48, 49].map(|step| track.x_of(step, by));
    assert_eq!(x(Alignment::Tokens), [310, 400, 480, 490]);
    assert_eq!(x(Alignment::Time), [3_100, 4_000, 4_800, 5_600]);
}

#[test]
fn a_repeated_event_is_folded_once() {
    let lr = (Num(1e-3), Num(5e-4));
    let mut track = track(vec![(0, hello()), (100, rescued(3, lr))]);
    let again = Envelope {
        v: 1,
        seq: 2,
        t: UnixMillis(900),
        event: rescued(3, lr),
    };
    track.apply(&again);
    assert_eq!((track.changes.len(), track.millis()), (1, 100));
}

#[test]
fn a_long_run_keeps_few_places_and_says_where_a_step_lies() {
    let n = 3 * PLACES as u64;
    let mut events = vec![(0, hello())];
    events.extend((1..=n).map(|s| (7 * s, stepped(s, 64 * s, 1.0))));
    let track = track(events);
    assert!(track.places.len() < PLACES);
    for step in [1, 2, 777, n / 2 + 1, n - 1, n] {
        assert_eq!(track.x_of(step, Alignment::Tokens), 64 * step);
        assert_eq!(track.x_of(step, Alignment::Time), 7 * step);
    }
    assert!(track.points("train/loss", Alignment::Tokens, 50).len() <= 50);
}

#[test]
fn settings_that_differ_are_told_by_their_path() {
    let a = json!({"name": "a", "train": {"steps": 10, "seed": 1}, "optimizer": {"adamw": {"lr": 0.1}}, "eval": null});
    let b = json!({"name": "b", "train": {"steps": 20, "seed": 1}, "optimizer": {"lion": {"lr": 0.1}}, "eval": [1]});
    let found = settings(&[&a, &b, &a]);
    let paths: Vec<&str> = found.iter().map(|s| s.path.as_str()).collect();
    let expected = [
        "name",
        "train.steps",
        "optimizer.adamw.lr",
        "optimizer.lion.lr",
        "eval",
    ];
    assert_eq!(paths, expected);
    let lr = found
        .iter()
        .find(|s| s.path == "optimizer.lion.lr")
        .unwrap();
    assert_eq!(lr.values, [None, Some(json!(0.1)), None]);
    assert!(settings(&[&a, &a]).is_empty());
    // A log of another program tells a rate without its optimizer.
    let log = json!({"optimizer": {"of the log": {"lr": 0.1}}});
    assert_eq!(settings(&[&log, &json!({})])[0].path, "optimizer.lr");
}

#[test]
fn checkpoints_change_results_where_rescues_go_back_to_them() {
    let spec = |every: u64, policy: &str| json!({"checkpoint": {"every": every}, "rescue": {"policy": policy}, "sample": {"every": every}});
    let told = |policies: [&str; 2]| -> Vec<(String, bool)> {
        let specs = [spec(10, policies[0]), spec(20, policies[1])];
        let found = settings(&[&specs[0], &specs[1]]);
        let told = found
            .into_iter()
            .map(|s| (s.path.clone(), s.changes_results()));
        told.filter(|(path, _)| path.ends_with("every")).collect()
    };
    for (policies, changes) in [
        (["warn", "warn"], false),
        (["act", "act"], true),
        (["off", "act"], true),
    ] {
        let of = |path: &str, changes| (path.to_string(), changes);
        let expected = [of("checkpoint.every", changes), of("sample.every", false)];
        assert_eq!(told(policies), expected, "{policies:?}");
    }
}

/// Two runs of one spec, one of which was tuned on its way, are no equals.
#[test]
fn what_was_changed_live_is_a_difference() {
    let adjusted = |step, new| Event::Adjusted {
        step,
        key: "lr".into(),
        old: Num(1e-3),
        new: Num(new),
    };
    let tuned = || {
        let events = [hello(), adjusted(40, 2e-3), adjusted(90, 1e-3)];
        track((0..).zip(events).collect())
    };
    let plain = track(vec![(0, hello())]);
    let found = differing(&[tuned(), plain]);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].path, "lr (live)");
    let words = json!("2.00e-3 from step 40, 1.00e-3 from step 90");
    assert_eq!(found[0].values, [Some(words), None]);
    assert!(differing(&[tuned(), tuned()]).is_empty());
}

#[test]
fn what_a_spec_says_of_itself_is_no_setting() {
    let run = |name: &str, lr: f64| {
        let started = started(
            name,
            "pretrain",
            json!({"name": name, "about": format!("{name} learns"), "group": name,
                "optimizer": {"adamw": {"lr": lr}}, "data": {"group": name}}),
        );
        track(vec![(0, hello()), (1, started)])
    };
    let paths =
        |runs: &[Track]| -> Vec<String> { differing(runs).into_iter().map(|s| s.path).collect() };
    // A setting of that name deeper in the spec is one.
    let mut both = paths(&[run("a", 0.1), run("b", 0.2)]);
    both.sort();
    assert_eq!(both, ["data.group", "optimizer.adamw.lr"]);
    assert!(paths(&[run("a", 0.1), run("a", 0.1)]).is_empty());
}

#[test]
fn a_log_without_times_has_none() {
    let events = |at: u64| (1..=4).map(move |s| (at * s, stepped(s, s, 1.0)));
    let track = |at| track([(at, hello())].into_iter().chain(events(at)).collect());
    assert_eq!(track(0).time(), "-");
    assert_eq!(
        track(20_000).time(),
        human::duration(Duration::from_secs(60))
    );
}

#[test]
fn runs_of_different_methods_have_no_best_loss() {
    let metrics = ["train/loss", "tok_per_sec"].map(|id| MetricInfo {
        id: id.into(),
        direction: Direction::Lower,
        ..MetricInfo::default()
    });
    let run = |method: &str, value: f64| {
        let started = started("a", method, Value::Null);
        let both = ["train/loss", "tok_per_sec"].map(|id| (id.to_string(), Num(value)));
        let stepped = Event::Stepped {
            step: 1,
            tokens: 1,
            values: both.into(),
        };
        let declared = Event::MetricsDeclared {
            metrics: metrics.to_vec(),
        };
        let events = [hello(), started, declared, stepped];
        track((0..).zip(events).collect())
    };
    let winners = |runs: &[Track]| -> Vec<_> {
        let found = figures(runs);
        found.iter().map(|f| f.winner(&f.last)).collect()
    };
    let (sft, dpo) = (run("sft", 2.0), run("dpo", 0.6));
    let mixed = [sft.clone(), dpo.clone()];
    assert_eq!(winners(&mixed), [None, Some(1)], "a speed is a speed");
    assert_eq!(winners(&[sft, run("sft", 1.0)]), [Some(1), Some(1)]);
}

#[test]
fn another_loss_of_the_same_method_has_no_best_one() {
    let ids = ["val/loss", "val/rewards/margins", "val/rewards/accuracies"];
    let metrics = ids.map(|id| MetricInfo {
        id: id.into(),
        direction: Direction::Lower,
        ..MetricInfo::default()
    });
    let run = |settings: Value, value: f64| {
        let started = started("a", "dpo", json!({"method": {"dpo": settings}}));
        let stepped = Event::Stepped {
            step: 1,
            tokens: 1,
            values: ids.map(|id| (id.to_string(), Num(value))).into(),
        };
        let declared = Event::MetricsDeclared {
            metrics: metrics.to_vec(),
        };
        let events = [hello(), started, declared, stepped];
        track((0..).zip(events).collect())
    };
    let winners = |other: Value| -> Vec<_> {
        let sigmoid = run(
            json!({"loss": "sigmoid", "beta": 0.1, "reference": "auto"}),
            0.6,
        );
        let found = figures(&[sigmoid, run(other, 0.2)]);
        let mut found: Vec<_> = found
            .iter()
            .map(|f| (f.id.clone(), f.winner(&f.last)))
            .collect();
        found.sort();
        found.into_iter().map(|(_, winner)| winner).collect()
    };
    // The loss, accuracies, margins.
    let hinge = json!({"loss": "hinge", "beta": 0.1, "reference": "auto"});
    assert_eq!(winners(hinge), [None, Some(1), Some(1)]);
    let strict = json!({"loss": "sigmoid", "beta": 0.5, "reference": "auto"});
    assert_eq!(winners(strict), [None, Some(1), None]);
    let alike = json!({"loss": "sigmoid", "beta": 0.1, "reference": "frozen"});
    assert_eq!(
        winners(alike),
        [Some(1); 3],
        "the same loss of another copy"
    );
}

#[test]
fn figures_hold_the_last_and_the_best_and_name_a_winner() {
    let declared = Event::MetricsDeclared {
        metrics: vec![MetricInfo {
            id: "train/loss".into(),
            direction: Direction::Lower,
            ..MetricInfo::default()
        }],
    };
    let run = |last: f64| {
        let steps = [stepped(1, 1, 3.0), stepped(2, 2, 1.5), stepped(3, 3, last)];
        let mut events = vec![(0, hello()), (1, declared.clone())];
        events.extend((2..).zip(steps));
        track(events)
    };
    let found = figures(&[run(2.0), run(f64::NAN), run(1.0)]);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].last, [Some(2.0), None, Some(1.0)]);
    assert_eq!(found[0].best, [Some(1.5), Some(1.5), Some(1.0)]);
    assert_eq!(found[0].winner(&found[0].last), Some(2));
    assert_eq!(found[0].winner(&[Some(1.0), Some(1.0)]), None);
    assert_eq!(found[0].winner(&[Some(1.0), None]), None);
    let alike = [Some(1.000_01), Some(1.000_02)];
    assert_eq!(found[0].winner(&alike), None, "both are written 1.000");
}
