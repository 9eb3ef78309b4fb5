//! Spikes and non-finite values, handled automatically.

use super::*;
use crate::run::RunState;
use crate::wire::UndoPoint;

/// Long enough for a window, with a checkpoint each ten steps.
/// In f32: whether a spike passes by itself is a matter of rounding, and processors differ more in bf16.
const WORDS: &[&str] = &[
    "train.precision=f32",
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

#[test]
fn a_resume_after_a_rescue_takes_the_same_course_to_the_bit() {
    let run = run_with(&["rescue.policy=act"]);
    let whole = run.go_with(&mut explode(1.0));
    let (to, from, ..) = rescues(&whole)[0];
    // Ends right after the rescue, and later; each time a resume goes on.
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
fn a_loss_that_is_non_finite_is_rescued_and_the_batches_are_not_seen_again() {
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

/// Undoes the first rescue once `when` says so of an event after it.
fn undo(
    mut when: impl FnMut(&Event) -> bool + Send,
) -> impl FnMut(&Event, &SyncSender<Request>) + Send {
    let (mut rescued, mut sent) = (false, false);
    move |event, send| {
        rescued |= matches!(event, Event::Rescued { .. });
        if rescued && !sent && when(event) {
            sent = true;
            let command = Command::UndoRescue;
            send.send(Request { id: 90, command }).unwrap();
        }
    }
}

fn undone(events: &[Event]) -> (usize, u64, bool, u64) {
    let found = events.iter().enumerate().find_map(|(i, e)| match e {
        Event::RescueUndone {
            step, whole, lost, ..
        } => Some((i, *step, *whole, *lost)),
        _ => None,
    });
    found.expect("no rescue was undone")
}

fn kept(run: &Run) -> Vec<std::ffi::OsString> {
    let folder = std::fs::read_dir(run.job.run_dir.path().join("before-rescue"));
    let entries = folder.into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name()).collect()
}

const ONCE: &[&str] = &["rescue.policy=act", "rescue.at_most=1"];

#[test]
fn an_undone_rescue_leaves_the_course_of_a_run_that_was_never_rescued() {
    let warned = run_with(&["rescue.policy=warn"]);
    let straight = loss_log(&[&warned.go_with(&mut explode(1.0))]);
    for later in [0, 12] {
        let run = run_with(ONCE);
        let (mut spike, mut since) = (explode(1.0), 0);
        let mut undo = undo(move |event| {
            since += u64::from(matches!(event, Event::Stepped { .. }));
            since >= later
        });
        let events = run.go_with(&mut |event, send, flag| {
            spike(event, send, flag);
            undo(event, send);
        });
        let (to, from, ..) = rescues(&events)[0];
        let (at, step, whole, lost) = undone(&events);
        assert!(whole && step > from && lost >= later, "{step} {lost}");
        let tail = loss_log(&[&events[at..]]);
        let wanted = straight.iter().filter(|line| line.0 > step);
        assert!(tail.iter().eq(wanted), "{later}");
        for name in ["model.safetensors", "optimizer.safetensors"] {
            let read = |run: &Run| std::fs::read(run.checkpoint(160).join(name)).unwrap();
            assert!(read(&run) == read(&warned), "{name}, {later}");
        }
        let progress = checkpoint::read_state(&run.checkpoint(160))
            .unwrap()
            .progress;
        assert_eq!(
            (progress.rescues, progress.skips, progress.undo),
            (1, vec![], None)
        );
        assert_eq!(kept(&run), Vec::<std::ffi::OsString>::new());
        // The curves have what the rescue cut off.
        let state = RunState::from_events(&in_envelopes(&events));
        let steps: Vec<u64> = state.series["train/loss"]
            .recent()
            .map(|p| p.step)
            .collect();
        assert_eq!(steps, (1..=160).collect::<Vec<u64>>(), "{to}");
        assert_eq!(state.settings["lr"], 1.0);
        let rule = crate::diagnosis::diagnose(&state);
        assert!(rule.findings.iter().all(|f| f.id != "rescued"));
    }
}

/// Another run names every checkpoint: those that the rescue gives up stay for it, and are none of this run's.
#[test]
fn a_rescue_keeps_what_another_run_begins_from() {
    let run = run_with(ONCE);
    let folder = run.job.run_dir.path().to_path_buf();
    let other = folder.parent().unwrap().join("other");
    std::fs::create_dir(&other).unwrap();
    let (mut spike, mut named, mut seen) = (explode(1.0), String::new(), None);
    let events = run.go_with(&mut |event, send, flag| {
        spike(event, send, flag);
        match event {
            Event::Checkpointed { step, .. } => {
                let path = folder.join("checkpoints").join(checkpoint::name_of(*step));
                named += &format!("at{step}: {}\n", path.display());
                std::fs::write(other.join("spec.yaml"), &named).unwrap();
            }
            Event::Rescued { step, .. } => {
                let of_disk = checkpoint::store::every(&folder.join("checkpoints"));
                let given_up = of_disk.iter().filter(|found| found.step > *step);
                let whole =
                    |found: &&checkpoint::Found| checkpoint::Manifest::verify(&found.path).is_ok();
                let kept = given_up.filter(whole).count();
                let own = RunDir::open(&folder).unwrap().checkpoints();
                seen = Some((kept, own.last().unwrap().step == *step));
            }
            _ => {}
        }
    });
    assert_eq!(finished(&events).0, Outcome::Completed);
    let (kept, newest) = seen.unwrap();
    assert!(kept > 0 && newest, "{kept}");
    let told = |e: &Event| matches!(e, Event::Noted { text, .. } if text.contains("other runs begin from"));
    assert!(events.iter().any(told));
}

/// Moments that took in a spike would go on with it: from a checkpoint that no healthy steps followed, they begin at zero.
#[test]
fn moments_of_a_checkpoint_that_is_not_stable_are_polluted_and_begin_afresh() {
    let calm = val_loss(&run_with(&["rescue.policy=act"]).go());
    // No checkpoint has 1,000 healthy steps after it.
    let words = [
        "rescue.policy=act",
        "rescue.stable_after=1000",
        "checkpoint.every=7",
    ];
    let run = run_with(&words);
    let (mut spike, mut seen) = (explode(1.0), None);
    let checkpoints = run.job.run_dir.checkpoints_path();
    let events = run.go_with(&mut |event, send, flag| {
        spike(event, send, flag);
        // Written at once by the rescue: what the next step begins with.
        if let (Event::Checkpointed { step, .. }, Some(0)) = (event, seen.as_ref().map(Vec::len)) {
            let file = checkpoints
                .join(checkpoint::name_of(*step))
                .join("optimizer.safetensors");
            seen = Some(std::fs::read(file).unwrap());
        }
        if matches!(event, Event::Rescued { .. }) {
            seen = Some(Vec::new());
        }
    });
    let found = rescues(&events);
    assert_eq!(found.len(), 1, "{found:?}");
    let (to, from, reset, _) = found[0];
    assert!(
        to == 77 && from > 80 && reset,
        "the newest before the spike: {found:?}"
    );
    let bytes = seen.unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    for name in ["adamw.mean", "adamw.square"] {
        let moments = file.tensor(name).unwrap();
        let zero = moments.data().iter().all(|byte| *byte == 0);
        assert!(zero && !moments.data().is_empty(), "{name}");
    }
    let spiked = val_loss(&events);
    assert!((spiked / calm - 1.0).abs() < 0.02, "{spiked} beside {calm}");
    // The course is the same for a resume that begins with fresh moments.
    let parted = run_with(&words);
    let (mut spike, mut rescued) = (explode(1.0), false);
    let first = parted.go_with(&mut |event, send, flag| {
        spike(event, send, flag);
        rescued |= matches!(event, Event::Rescued { .. });
        if rescued {
            flag.store(true, Ordering::Relaxed);
        }
    });
    assert_eq!(finished(&first).0, Outcome::Stopped);
    let second = parted.resumed();
    assert!(loss_log(&[&events]) == loss_log(&[&first, &second]));
    same_files(&run.checkpoint(160), &parted.checkpoint(160));
}

/// With the rate left as it was the spike goes on. It has half a window to pass by itself; then the next rescue comes.
#[test]
fn an_undone_rescue_comes_again_where_the_spike_does_not_pass() {
    let run = run_with(&["rescue.policy=act", "rescue.at_most=2"]);
    let (mut spike, mut undo) = (explode(1.0), undo(|_| true));
    let events = run.go_with(&mut |event, send, flag| {
        spike(event, send, flag);
        undo(event, send);
    });
    let (at, back, ..) = undone(&events);
    let found = rescues(&events);
    let [first, second] = found[..] else {
        panic!("{found:?}")
    };
    assert!(
        first.3 == 1 && second.3 == 2 && second.0 <= first.0,
        "{found:?}"
    );
    let between = events[at..]
        .iter()
        .take_while(|e| !matches!(e, Event::Rescued { .. }))
        .filter(|e| matches!(e, Event::Stepped { step, .. } if *step > back))
        .count();
    assert!(
        (10..24).contains(&between),
        "half a window, and a little where the loss jumps about: {between}"
    );
    // The rate of the undone rescue, halved.
    let state = RunState::from_events(&in_envelopes(&events));
    assert_eq!(state.settings["lr"], run.job.spec.optimizer.lr() / 4.0);
    val_loss(&events);
    let diagnosis = crate::diagnosis::diagnose(&state);
    assert_ne!(diagnosis.verdict, crate::diagnosis::Verdict::Diverged);
}

#[test]
fn a_resume_after_an_undo_takes_the_same_course_to_the_bit() {
    let course = |stop: bool| {
        let run = run_with(ONCE);
        let (mut spike, mut undo) = (explode(1.0), undo(|_| true));
        let events = run.go_with(&mut |event, send, flag| {
            spike(event, send, flag);
            undo(event, send);
            if stop && matches!(event, Event::RescueUndone { .. }) {
                flag.store(true, Ordering::Relaxed);
            }
        });
        (run, events)
    };
    let (whole_run, whole) = course(false);
    let (parted, first) = course(true);
    assert_eq!(finished(&first).0, Outcome::Stopped);
    let second = parted.resumed();
    let after = |events: &[Event]| loss_log(&[&events[undone(events).0..]]);
    let rest: Vec<Line> = [after(&first), loss_log(&[&second])].concat();
    assert!(after(&whole) == rest);
    same_files(&whole_run.checkpoint(160), &parted.checkpoint(160));
}

#[test]
fn a_resume_between_a_rescue_and_its_undo_keeps_what_can_be_undone() {
    let run = run_with(ONCE);
    let mut spike = explode(1.0);
    let first = run.go_with(&mut |event, send, flag| {
        spike(event, send, flag);
        if matches!(event, Event::Rescued { .. }) {
            flag.store(true, Ordering::Relaxed);
        }
    });
    assert_eq!(finished(&first).0, Outcome::Stopped);
    assert_eq!(kept(&run).len(), 1);
    let second = run.resumed_with(&mut at(100, Command::UndoRescue));
    let (_, step, whole, _) = undone(&second);
    assert!(whole && step > rescues(&first)[0].1);
    assert!(kept(&run).is_empty());
}

#[test]
fn a_rescue_from_a_value_that_is_non_finite_is_undone_to_the_step_before_it() {
    let run = run_with(&[
        "rescue.policy=act",
        "train.clip_norm=0",
        "optimizer.adamw.weight_decay=10",
    ]);
    let (mut spike, mut undo) = (explode(10.0), undo(|_| true));
    let mut point = None;
    let events = run.go_with(&mut |event, send, flag| {
        spike(event, send, flag);
        if let Event::Rescued { undo, .. } = event {
            point = point.or(*undo);
        }
        undo(event, send);
    });
    let (at, step, whole, _) = undone(&events);
    // The weights of the step before were numbers yet.
    assert_eq!(point, Some(UndoPoint { step, whole: true }));
    assert!(whole && rescues(&events)[0].1 <= step + 1);
    assert!(matches!(&events[at], Event::RescueUndone { lr, .. } if lr.1.0 == 10.0));
    // Its batches come again, and so does the next rescue, with a lower rate than the first.
    assert!(matches!(rescues(&events).last().unwrap().3, 2..=3));
}

#[test]
fn only_the_newest_rescue_can_be_undone_and_only_once() {
    let run = run_with(&["rescue.policy=act"]);
    let mut spike = explode(1.0);
    let mut asked = 0;
    let events = run.go_with(&mut |event, send, flag| {
        spike(event, send, flag);
        let ask = matches!(event, Event::Rescued { .. } | Event::RescueUndone { .. })
            || matches!(event, Event::Stepped { step: 20, .. });
        if ask && asked < 3 {
            asked += 1;
            let command = Command::UndoRescue;
            send.send(Request {
                id: 90 + asked,
                command,
            })
            .unwrap();
        }
    });
    let refused = |id: u64| {
        events
            .iter()
            .any(|e| matches!(e, Event::Rejected { id: at, .. } if *at == id))
    };
    assert!(refused(91) && !refused(92) && refused(93));
}
