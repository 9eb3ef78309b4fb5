//! Spikes and values that are no numbers, answered without a hand.

use super::*;
use crate::run::RunState;
use crate::wire::Envelope;

/// Long enough for a window, with a checkpoint each ten steps.
const WORDS: &[&str] = &[
    "train.max_steps=160",
    "eval.every=0",
    "sample.every=0",
    "checkpoint.every=10",
    "rescue.window=32",
    "rescue.stable_after=5",
];

fn run_with(words: &[&str]) -> Run {
    let all: Vec<&str> = WORDS.iter().chain(words).copied().collect();
    Run::new(&all)
}

fn rescues(events: &[Event]) -> Vec<(u64, u64, bool, u64)> {
    let found = |e: &Event| match e {
        Event::Rescued {
            step,
            from,
            moments_reset,
            count,
            ..
        } => Some((*step, *from, *moments_reset, *count)),
        _ => None,
    };
    events.iter().filter_map(found).collect()
}

/// Makes the loss explode from step 80 on; not again when step 80 comes back.
fn explode(lr: f64) -> impl FnMut(&Event, &SyncSender<Request>, &AtomicBool) + Send {
    let mut done = false;
    let key = "lr".to_string();
    let mut adjust = at(80, Command::Adjust { key, value: lr });
    move |event, send, flag| {
        if !done {
            adjust(event, send, flag);
        }
        done |= matches!(event, Event::Stepped { step: 80, .. });
    }
}

fn val_loss(events: &[Event]) -> f64 {
    match events.last() {
        Some(Event::Finished {
            val_loss: Some(loss),
            outcome: Outcome::Completed,
            ..
        }) => loss.0,
        other => panic!("not completed: {other:?}"),
    }
}

#[test]
fn a_run_that_is_made_to_spike_ends_within_two_percent_of_an_undisturbed_one() {
    let calm = val_loss(&run_with(&["rescue.policy=act"]).go());
    let run = run_with(&["rescue.policy=act"]);
    let events = run.go_with(&mut explode(1.0));
    let found = rescues(&events);
    assert_eq!(found.len(), 1, "{found:?}");
    let (to, from, reset, count) = found[0];
    assert!(
        (81..90).contains(&from) && to + 5 < from && !reset && count == 1,
        "{found:?}"
    );
    let spiked = val_loss(&events);
    assert!((spiked / calm - 1.0).abs() < 0.02, "{spiked} beside {calm}");
    let state = RunState::from_events(&in_envelopes(&events));
    assert_eq!(state.settings["lr"], run.job.spec.optimizer.lr() / 2.0);
    assert!(
        state
            .log
            .iter()
            .any(|line| line.text.contains("rescued 1 of 3"))
    );
    let rule = crate::diagnosis::diagnose(&state);
    assert!(rule.findings.iter().any(|f| f.id == "rescued"));
}

fn in_envelopes(events: &[Event]) -> Vec<Envelope> {
    let envelope = |(i, event): (usize, &Event)| Envelope {
        v: 1,
        seq: i as u64 + 1,
        t: Default::default(),
        event: event.clone(),
    };
    events.iter().enumerate().map(envelope).collect()
}

#[test]
fn a_resume_after_a_rescue_takes_the_same_course_to_the_bit() {
    let run = run_with(&["rescue.policy=act"]);
    let whole = run.go_with(&mut explode(1.0));
    let (to, from, ..) = rescues(&whole)[0];
    // Ends right behind the rescue, and later; each time a resume goes on.
    for stop in [to, from + 3, 120] {
        let parted = run_with(&["rescue.policy=act"]);
        let mut spike = explode(1.0);
        let mut rescued = false;
        let first = parted.go_with(&mut |event, send, flag| {
            spike(event, send, flag);
            rescued |= matches!(event, Event::Rescued { .. });
            let here = matches!(event, Event::Stepped { step, .. } if *step >= stop);
            if rescued && (here || stop == to) {
                flag.store(true, Ordering::Relaxed);
            }
        });
        assert_eq!(finished(&first).0, Outcome::Stopped, "{stop}");
        let second = parted.resumed();
        assert!(
            loss_log(&[&whole]) == loss_log(&[&first, &second]),
            "{stop}"
        );
        same_files(&run.checkpoint(160), &parted.checkpoint(160));
    }
}

#[test]
fn a_loss_that_is_no_number_is_rescued_and_the_batches_are_not_seen_again() {
    let run = run_with(&[
        "rescue.policy=act",
        "train.clip_norm=0",
        "optimizer.adamw.weight_decay=10",
    ]);
    let events = run.go_with(&mut explode(10.0));
    let found = rescues(&events);
    assert!(!found.is_empty(), "{:?}", finished(&events));
    val_loss(&events);
    let state = checkpoint::read_state(&run.checkpoint(160))
        .unwrap()
        .progress;
    let (first, end) = state.skips[0];
    assert_eq!(
        state.micro_step,
        160 + (end - first),
        "one micro-batch a step"
    );
    assert_eq!((first, state.rescues), (found[0].1 - 1, found.len() as u64));
}

#[test]
fn off_and_warn_change_no_bit_and_warn_says_it_once() {
    let log = |policy: &str, at_most: usize| {
        let events = run_with(&[policy]).go_with(&mut explode(1.0));
        let warned = events
            .iter()
            .filter(|e| matches!(e, Event::Warned { code, .. } if code == "spike"));
        assert!(
            (usize::from(at_most > 0)..=at_most).contains(&warned.count()),
            "{policy}"
        );
        assert!(rescues(&events).is_empty());
        loss_log(&[&events])
    };
    assert!(log("rescue.policy=off", 0) == log("rescue.policy=warn", 2));
}

#[test]
fn rescues_are_counted_and_end() {
    // A rate that no halving saves within two rescues.
    let words = [
        "rescue.policy=act",
        "rescue.at_most=2",
        "rescue.lr_factor=1",
        "train.clip_norm=0",
        "optimizer.adamw.weight_decay=10",
    ];
    let run = run_with(&words);
    let mut again = 0;
    let events = run.go_with(&mut |event, send, _| {
        // Each time it has come to step 80, the rate is raised again.
        if matches!(event, Event::Stepped { step: 80, .. }) {
            again += 1;
            let (key, value) = ("lr".to_string(), 10.0);
            send.send(Request {
                id: again,
                command: Command::Adjust { key, value },
            })
            .unwrap();
        }
    });
    let counts: Vec<u64> = rescues(&events).iter().map(|r| r.3).collect();
    assert_eq!(counts, [1, 2]);
    let (outcome, _, message) = finished(&events);
    assert_eq!(outcome, Outcome::Failed, "{message}");
}

#[test]
fn outliers_are_left_out_and_the_rest_is_learnt() {
    // A window of quiet steps beside which an ordinary batch stands out.
    let words = [
        "rescue.skip_outliers=true",
        "rescue.sigmas=2",
        "rescue.policy=off",
    ];
    let run = run_with(&words);
    let events = run.go();
    let skipped: Vec<u64> = events
        .iter()
        .filter_map(|e| match e {
            Event::Skipped { step, .. } => Some(*step),
            _ => None,
        })
        .collect();
    assert!(!skipped.is_empty() && skipped.len() < 40, "{skipped:?}");
    assert!(skipped.iter().all(|step| *step > 16), "{skipped:?}");
    val_loss(&events);
    let mut parted = run_with(&words);
    parted.job.stop_after = Some(skipped[0]);
    let (first, second) = (parted.go(), parted.resumed());
    assert!(loss_log(&[&events]) == loss_log(&[&first, &second]));
}
