//! Files against those of other writers, and read again by our own readers of other programs' logs.

use super::*;
use crate::base::clock::{ManualClock, UnixMillis};
use crate::base::num::Num;
use crate::run::RunState;
use crate::watch::{ExternalRun, Mapping, find};
use crate::wire::{Envelope, Event, Outcome, Values};

const T: u64 = 1_763_734_920_125;

fn values(of: &[(&str, f64)]) -> Values {
    let of = of.iter().map(|(id, x)| ((*id).to_string(), Num(*x)));
    of.collect()
}

fn step(step: u64, of: &[(&str, f64)]) -> Event {
    Event::Stepped {
        step,
        tokens: step * 64,
        values: values(of),
    }
}

fn evaluated(step: u64, of: &[(&str, f64)]) -> Event {
    Event::Evaluated {
        step,
        tokens: step * 64,
        values: values(of),
        n_windows: 1,
        whole: true,
        seconds: 0.5,
    }
}

fn started() -> Event {
    Event::Started {
        name: "demo".into(),
        method: "pretrain".into(),
        spec: serde_json::json!({"lr": 0.001}),
        n_params: 1,
        vocab_size: 2,
        max_steps: 8,
        batch_tokens: 64,
        epoch_tokens: 256,
        resumed_from: None,
        precision: None,
        unigram_entropy: None,
    }
}

fn rescued(from: u64, step: u64) -> Event {
    Event::Rescued {
        step,
        from,
        why: "NaN".into(),
        skipped: (0, 1),
        lr: (Num(1.0), Num(0.5)),
        moments_reset: false,
        count: 1,
        at_most: 3,
        undo: None,
    }
}

fn undone(step: u64, rescue: u64) -> Event {
    Event::RescueUndone {
        step,
        tokens: step * 64,
        rescue,
        why: "NaN".into(),
        lr: (Num(0.5), Num(1.0)),
        whole: true,
        lost: 1,
    }
}

/// A second apart, in order.
struct Log {
    curves: Curves,
    seq: u64,
}

impl Log {
    fn new(wanted: &[&str]) -> Log {
        let wanted = wanted.iter().map(|text| Pattern::new(text));
        Log {
            curves: Curves::new(wanted.collect()),
            seq: 0,
        }
    }

    fn of(events: impl IntoIterator<Item = Event>) -> Curves {
        let mut log = Log::new(&[]);
        log.add(events);
        log.curves
    }

    fn add(&mut self, events: impl IntoIterator<Item = Event>) {
        for event in events {
            self.at(UnixMillis(T + 1000 * self.seq), event);
        }
    }

    fn at(&mut self, t: UnixMillis, event: Event) {
        self.seq += 1;
        self.curves.apply(&Envelope {
            v: crate::wire::VERSION,
            seq: self.seq,
            t,
            event,
        });
    }
}

/// What is left of the losses.
fn losses(curves: &Curves) -> Vec<(u64, f64)> {
    let of = |record: &Record| {
        let (_, x) = record
            .values
            .iter()
            .find(|(c, _)| curves.id(*c) == "train/loss")?;
        Some((record.step, *x))
    };
    curves.records().iter().filter_map(of).collect()
}

#[test]
fn an_event_file_has_the_bytes_of_pytorchs_summary_writer() {
    let theirs = include_bytes!("../../../../tests/oracle/history.tfevents").as_slice();
    let has = |record: &[u8]| theirs.windows(record.len()).any(|bytes| bytes == record);
    let mut log = Log::new(&[]);
    log.add([started()]);
    let format = Format::named("tfevents").unwrap();
    let head = format.whole(&log.curves);
    // The version has no writer's name here; the spec's text is the same.
    let version = 12 + 24 + 4;
    assert_eq!(&head[12 + 9 + 2..version - 4], b"brain.Event:2");
    assert!(has(&head[version..]), "{head:?}");
    let mut stream = Stream::new(format);
    stream.bytes(&mut log.curves, false);
    for (seconds, event) in [
        (0, step(5, &[("train/loss", 2.5)])),
        (0, Event::RolledBack { step: 4 }),
        (1, evaluated(300, &[("val/loss", f64::NAN)])),
        (2, step(0, &[("lr", 1e-3)])),
    ] {
        log.at(UnixMillis(T + 1000 * seconds), event.clone());
        let record = stream.bytes(&mut log.curves, false);
        assert!(record.len() > 16 && has(&record), "{event:?}: {record:?}");
    }
}

#[test]
fn what_no_longer_counts_is_left_out_and_comes_back_with_an_undo() {
    let loss = |at: u64, x: f64| step(at, &[("train/loss", x)]);
    let mut log = Log::new(&[]);
    log.add([started(), loss(1, 5.0), loss(2, 4.0), loss(3, f64::NAN)]);
    log.add([Event::RolledBack { step: 1 }, rescued(3, 1), loss(2, 4.5)]);
    assert_eq!(losses(&log.curves), [(1, 5.0), (2, 4.5)]);
    log.add([Event::RolledBack { step: 1 }, undone(2, 1), loss(3, 3.0)]);
    assert_eq!(losses(&log.curves), [(1, 5.0), (2, 4.0), (3, 3.0)]);
    // As the fold has it.
    let series = log.curves.state.series["train/loss"].recent();
    let points: Vec<(u64, f64)> = series.map(|p| (p.step, p.value)).collect();
    assert_eq!(points, losses(&log.curves));
    // Without a word, and a repeated event.
    log.add([loss(1, 3.5)]);
    assert_eq!(losses(&log.curves), [(1, 5.0), (1, 3.5)]);
    log.seq -= 1;
    log.add([loss(9, 9.0)]);
    assert_eq!(losses(&log.curves), [(1, 5.0), (1, 3.5)]);
}

#[test]
fn a_stream_says_that_it_goes_back_and_keeps_a_step_together() {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let steps = |bytes: Vec<u8>| -> Vec<u64> {
        let lines = text(bytes);
        let lines = lines
            .lines()
            .map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap());
        lines.map(|line| line["step"].as_u64().unwrap()).collect()
    };
    let loss = |at: u64| step(at, &[("train/loss", 2.0)]);
    let mut log = Log::new(&[]);
    let mut stream = Stream::new(Format::named("jsonl").unwrap());
    log.add([started(), loss(1), loss(2)]);
    assert_eq!(steps(stream.bytes(&mut log.curves, false)), [1]);
    log.add([evaluated(2, &[("val/loss", 3.0)]), loss(3)]);
    let both = text(stream.bytes(&mut log.curves, false));
    assert!(
        both.contains("\"train/loss\":2.0,\"val/loss\":3.0"),
        "{both}"
    );
    log.add([loss(4), Event::RolledBack { step: 1 }, loss(2)]);
    assert_eq!(steps(stream.bytes(&mut log.curves, true)), [2]);
    assert!(stream.bytes(&mut log.curves, true).is_empty());
    // Of steps that were not written yet nobody has to forget anything.
    let mut log = Log::new(&[]);
    let mut events = Stream::new(Format::named("tfevents").unwrap());
    log.add([started(), loss(1), loss(2), Event::RolledBack { step: 1 }]);
    let first = events.bytes(&mut log.curves, false);
    let whole = Format::named("tfevents").unwrap().whole(&log.curves);
    assert!(first == whole);
}

fn watched(path: &Path) -> RunState {
    let found = find(path, None).unwrap();
    let clock = Box::new(ManualClock::at(T + 60_000));
    let mut watched = ExternalRun::open(found, Mapping::default(), clock);
    let mut state = RunState::new();
    watched.read_all(|envelope| state.apply(envelope)).unwrap();
    state
}

/// Everything that a run may log, with values that are no numbers.
fn everything() -> Curves {
    let mut events = vec![started()];
    for at in 1..=8u64 {
        let x = at as f64;
        let loss = if at == 5 { f64::INFINITY } else { 4.0 / x };
        events.push(step(
            at,
            &[
                ("train/loss", loss),
                ("lr", 1e-7 * x),
                ("grad_norm", if at == 3 { f64::NAN } else { 0.1 * x }),
                ("epochs", x / 4.0),
                ("rewards/accuracies", 0.5),
                ("step_ms", 12.5),
                ("val/var_explained", 0.25),
            ],
        ));
        if at % 4 == 0 {
            let eval = [
                ("val/loss", 3.0 / x),
                ("eval/pass@1", 0.5),
                ("val/ppl", 20.0),
            ];
            events.push(evaluated(at, &eval));
        }
    }
    events.push(Event::Finished {
        outcome: Outcome::Completed,
        step: 8,
        tokens: 512,
        val_loss: None,
        best: None,
        train_loss: None,
        seconds: 9.0,
        message: String::new(),
    });
    Log::of(events)
}

#[test]
fn every_format_is_read_again_as_the_same_series() {
    let curves = everything();
    let dir = tempfile::tempdir().unwrap();
    for (file, digits) in [
        ("curves.csv", 0.0),
        ("curves.jsonl", 0.0),
        ("trainer_state.json", 0.0),
        // Single precision.
        ("events.out.tfevents.1.host", 1e-7),
    ] {
        let path = dir.path().join(file);
        let format = Format::of(&path).unwrap();
        std::fs::write(&path, format.whole(&curves)).unwrap();
        let read = watched(&path);
        assert_eq!(
            (read.step, read.foreign_format()),
            (8, Some(format.entry.id))
        );
        assert_eq!(read.series.len(), curves.state.series.len(), "{file}");
        for (id, series) in &curves.state.series {
            let again = read
                .series
                .get(id)
                .unwrap_or_else(|| panic!("{file}: {id}"));
            if format.entry.id == "trainer_state" && id == "epochs" {
                // Evaluations have theirs too.
                continue;
            }
            let points = series.recent().zip(again.recent());
            assert_eq!(series.len(), again.len(), "{file}: {id}");
            for (ours, theirs) in points {
                let (a, b) = (ours.value, theirs.value);
                let same = a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= digits * a.abs();
                assert!(
                    same && ours.step == theirs.step,
                    "{file}: {id}: {ours:?} {theirs:?}"
                );
            }
        }
        if format.entry.id != "tfevents" {
            assert_eq!(read.tokens, 512, "{file}");
        }
    }
}

#[test]
fn a_trainers_state_has_its_names_its_best_and_no_bare_nan() {
    let text = Format::named("trainer_state").unwrap().whole(&everything());
    let state: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(
        (&state["global_step"], &state["max_steps"]),
        (&8.into(), &8.into())
    );
    assert_eq!(
        (&state["epoch"], &state["num_train_epochs"]),
        (&2.0.into(), &2.into())
    );
    assert_eq!(state["best_metric"], 0.375);
    let history = state["log_history"].as_array().unwrap();
    assert_eq!(history.len(), 10);
    assert_eq!(
        (&history[2]["grad_norm"], &history[4]["step"]),
        (&"NaN".into(), &4.into())
    );
    assert_eq!(
        (&history[4]["eval_loss"], &history[4]["eval_pass@1"]),
        (&0.75.into(), &0.5.into())
    );
    assert_eq!(history[4].get("loss"), None);
    assert_eq!(history[0]["learning_rate"], 1e-7);
}

#[test]
fn a_table_has_cells_for_what_was_measured_and_metrics_are_chosen_by_patterns() {
    let mut log = Log::new(&["*loss", "act_rms/*"]);
    let layers = [(
        "act_rms/layer".to_string(),
        (0..11).map(|i| Num(i.into())).collect(),
    )];
    log.add([
        step(1, &[("train/loss", 2.5), ("lr", 0.1)]),
        step(2, &[("train/loss", f64::NAN), ("lr", 0.1)]),
        Event::Probed {
            step: 2,
            layers: layers.into(),
        },
        evaluated(2, &[("val/loss", 3.0), ("val/ppl", 20.0)]),
    ]);
    let table = String::from_utf8(Format::named("csv").unwrap().whole(&log.curves)).unwrap();
    let lines: Vec<&str> = table.lines().collect();
    let blocks: Vec<String> = (0..11).map(|i| format!("act_rms/layer/{i}")).collect();
    let blocks = blocks.join(",");
    assert_eq!(
        lines[0],
        format!("step,time,tokens,{blocks},train/loss,val/loss")
    );
    assert_eq!(
        lines[1],
        format!("1,1763734920.125,64,{},2.5,", ",".repeat(10))
    );
    assert!(
        lines[2].starts_with("2,1763734921.125,128,0.0,1.0,") && lines[2].ends_with(",NaN,3.0")
    );
    let all = summaries(&log.curves);
    let loss = all.iter().find(|s| s.id == "train/loss").unwrap();
    assert_eq!((loss.n, loss.non_finite, loss.last.step), (2, 1, 2));
    assert_eq!(loss.best().map(|p| (p.step, p.value)), Some((1, 2.5)));
    assert_eq!(all.iter().filter(|s| s.of_block).count(), 11);
}

#[test]
fn a_file_is_of_the_format_that_its_name_says() {
    let id = |name: &str| Format::of(Path::new(name)).map(|format| format.entry.id);
    assert_eq!(id("a/Curves.CSV"), Some("csv"));
    assert_eq!(id("x.jsonl"), Some("jsonl"));
    assert_eq!(id("trainer_state.json"), Some("trainer_state"));
    assert_eq!((id("tb"), id("x.txt")), (None, None));
}
