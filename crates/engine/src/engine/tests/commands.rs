//! Each command, its answer and its effect.

use super::*;
use crate::base::clock::UnixMillis;
use crate::base::sampling::Sampling;
use crate::run::RunState;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Sends `command` after step 3 and gives the events after it.
fn after(command: Command, words: &[&str]) -> Vec<Event> {
    let mut all = vec![
        "train.max_steps=8",
        "eval.every=0",
        "sample.every=0",
        "checkpoint.every=2",
    ];
    all.extend(words);
    let events = Run::new(&all).go_with(&mut at(3, command));
    let sent = events
        .iter()
        .position(|e| matches!(e, Event::Stepped { step: 3, .. }))
        .unwrap();
    events[sent + 1..].to_vec()
}

fn accepted(events: &[Event]) -> bool {
    events.contains(&Event::Accepted { id: 7 })
}

fn rejected(events: &[Event]) -> String {
    let why = |e: &Event| match e {
        Event::Rejected { id: 7, why } => Some(why.clone()),
        _ => None,
    };
    events.iter().find_map(why).expect("not rejected")
}

fn adjust(key: &str, value: f64) -> Command {
    Command::Adjust {
        key: key.into(),
        value,
    }
}

/// A sample with a setting changed.
fn sample(change: fn(&mut Sampling)) -> Command {
    let mut sampling = Sampling::default();
    change(&mut sampling);
    Command::Sample {
        prompt: "First".into(),
        sampling,
    }
}

#[test]
fn a_pause_holds_until_resume_and_changes_no_number() {
    let run = Run::new(&[]);
    let mut paused_at = None;
    let events = run.go_with(&mut |event, send, _| {
        let say = |id, command| send.send(Request { id, command }).unwrap();
        match event {
            Event::Stepped { step: 3, .. } => say(1, Command::Pause),
            Event::PhaseChanged {
                phase: Phase::Paused,
                step,
            } => {
                paused_at = Some(*step);
                say(2, Command::Pause);
                say(3, Command::Resume);
                say(4, Command::Resume);
            }
            _ => {}
        }
    });
    assert_eq!(paused_at, Some(3));
    let answer = |id| {
        events.iter().find_map(|e| match e {
            Event::Accepted { id: i } if *i == id => Some(true),
            Event::Rejected { id: i, .. } if *i == id => Some(false),
            _ => None,
        })
    };
    let answers = [1, 2, 3, 4].map(answer);
    assert_eq!(answers, [true, false, true, false].map(Some));
    assert_eq!(loss_log(&[&events]), loss_log(&[&Run::new(&[]).go()]));
}

#[test]
fn a_paused_run_stops_by_command_and_by_signal() {
    for signal in [false, true] {
        let run = Run::new(&[]);
        let events = run.go_with(&mut |event, send, stop| match event {
            Event::Stepped { step: 3, .. } => {
                let command = Command::Pause;
                send.send(Request { id: 1, command }).unwrap();
            }
            Event::PhaseChanged {
                phase: Phase::Paused,
                ..
            } if signal => stop.store(true, Ordering::Relaxed),
            Event::PhaseChanged {
                phase: Phase::Paused,
                ..
            } => {
                let when = StopWhen::AfterCheckpoint;
                let command = Command::Stop { when };
                send.send(Request { id: 2, command }).unwrap();
            }
            _ => {}
        });
        assert_eq!(finished(&events), (Outcome::Stopped, 3, String::new()));
        assert_eq!(run.kept(), [3], "signal: {signal}");
    }
}

#[test]
fn checkpoint_evaluate_sample_and_note_do_what_they_say_at_once() {
    let events = after(Command::Checkpoint, &[]);
    assert!(accepted(&events));
    assert!(
        events
            .iter()
            .any(|e| matches!(e, Event::Checkpointed { step: 3, .. }))
    );
    let events = after(Command::Evaluate, &[]);
    assert!(events.iter().any(|e| matches!(
        e,
        Event::Evaluated {
            step: 3,
            whole: false,
            ..
        }
    )));
    let sampling = crate::base::sampling::Sampling {
        max_new_tokens: 4,
        ..Default::default()
    };
    let prompt = "First".to_string();
    let events = after(Command::Sample { prompt, sampling }, &[]);
    assert!(accepted(&events));
    assert!(events.iter().any(|e| matches!(e, Event::Sampled { step: 3, prompt, text, .. } if prompt == "First" && text.chars().count() == 4)));
    let text = "halved the lr".to_string();
    let events = after(Command::Note { text: text.clone() }, &[]);
    assert!(events.contains(&Event::Noted { step: 3, text }));
}

#[test]
fn adjustments_take_effect_at_the_next_step() {
    let lr_at = |events: &[Event], at: u64| {
        events.iter().find_map(|e| match e {
            Event::Stepped { step, values, .. } if *step == at => Some(values["lr"].0),
            _ => None,
        })
    };
    let words = [
        "schedule.cosine.warmup_steps=0",
        "schedule.cosine.min_lr=1e-3",
    ];
    let events = after(adjust("lr", 5e-4), &words);
    assert_eq!(lr_at(&events, 4), Some(5e-4));
    assert!(events.iter().any(|e| matches!(e, Event::Adjusted { step: 3, key, old, new } if key == "lr" && old.0 == 1e-3 && new.0 == 5e-4)));
    let clipped = |events: &[Event]| {
        events.iter().any(
            |e| matches!(e, Event::Stepped { step: 4, values, .. } if values["clipped"].0 == 1.0),
        )
    };
    assert!(clipped(&after(adjust("clip_norm", 1e-3), &words)));
    assert!(!clipped(&after(adjust("clip_norm", 0.0), &words)));
}

/// A branch with a rate of its own took that of its parent's hand.
#[test]
fn a_copy_of_a_checkpoint_forgets_what_was_changed_by_hand_and_stays_whole() {
    let run = Run::new(&["checkpoint.every=4"]);
    run.go_with(&mut |event, send, _| {
        if let Event::Stepped { step: 2, .. } = event {
            for (id, key) in [(1, "lr"), (2, "clip_norm")] {
                let command = adjust(key, 0.5);
                send.send(Request { id, command }).unwrap();
            }
        }
    });
    let folder = run.checkpoint(*run.kept().last().unwrap());
    let kept = || {
        checkpoint::read_state(&folder)
            .unwrap()
            .progress
            .adjustments
    };
    assert_eq!((kept().lr, kept().clip_norm), (Some(0.5), Some(0.5)));
    checkpoint::forget_adjustments(&folder, &["lr"]).unwrap();
    assert_eq!((kept().lr, kept().clip_norm), (None, Some(0.5)));
    let place =
        |folder: &std::path::Path| checkpoint::read_state(folder).unwrap().progress.micro_step;
    let before = place(&folder);
    checkpoint::recount(&folder, (4, 2)).unwrap();
    assert_eq!(place(&folder), 2 * before);
    checkpoint::Manifest::verify(&folder).unwrap();
}

#[test]
fn an_empty_prompt_of_a_run_that_learns_texts_is_a_line_break() {
    let written = |prompt: &str| {
        let prompt = prompt.to_string();
        let sampling = Sampling::default();
        let events = after(Command::Sample { prompt, sampling }, &[]);
        assert!(accepted(&events));
        let sampled = |e: &Event| match e {
            Event::Sampled { prompt, text, .. } => Some((prompt.clone(), text.clone())),
            _ => None,
        };
        events.iter().find_map(sampled).expect("no sample")
    };
    let (prompt, text) = written("");
    assert_eq!(prompt, "\n");
    assert_eq!((prompt, text), written("\n"));
}

#[test]
fn senseless_commands_are_rejected_with_a_reason_and_change_nothing() {
    let undisturbed = loss_log(&[&after(Command::Ping, &[])]);
    let sampling = crate::base::sampling::Sampling::default();
    let cases = [
        (adjust("lr", f64::NAN), "outside"),
        (adjust("lr", -1.0), "outside"),
        (adjust("lr", 0.0), "nothing is learned"),
        (adjust("momentum", 0.9), "momentum"),
        (sample(|s| s.temperature = f32::NAN), "temperature"),
        (sample(|s| s.repetition_penalty = 0.0), "repetition_penalty"),
        (sample(|s| s.top_p = 0.0), "top_p"),
        (sample(|s| s.max_new_tokens = 4097), "at most 4096"),
        (Command::Resume, "not paused"),
        (Command::Rollback { step: 77 }, "no checkpoint at step 77"),
        (Command::Note { text: "  ".into() }, "note"),
        (
            Command::Generate {
                prompt: "x".into(),
                sampling,
                wanted: crate::wire::Wanted::default(),
            },
            "chat",
        ),
    ];
    for (command, word) in cases {
        let events = after(command.clone(), &[]);
        let why = rejected(&events);
        assert!(why.contains(word), "{command:?}: {why}");
        assert_eq!(loss_log(&[&events]), undisturbed, "{command:?}");
    }
}

#[test]
fn a_roll_back_returns_to_the_kept_state_and_gives_up_what_came_after() {
    let run = Run::new(&["train.max_steps=8", "checkpoint.every=2", "eval.every=0"]);
    let mut rolled = false;
    let events = run.go_with(&mut |event, send, _| {
        if matches!(event, Event::Stepped { step: 5, .. }) && !rolled {
            rolled = true;
            let command = Command::Rollback { step: 2 };
            send.send(Request { id: 7, command }).unwrap();
        }
    });
    assert!(accepted(&events));
    assert!(events.contains(&Event::RolledBack { step: 2 }));
    let straight = Run::new(&["train.max_steps=8", "checkpoint.every=2", "eval.every=0"]).go();
    assert_eq!(
        loss_log(&[&events]),
        loss_log(&[&straight]),
        "the same steps again, to the bit"
    );
    let saved = |e: &Event| matches!(e, Event::Checkpointed { step: 4, .. });
    assert_eq!(events.iter().filter(|e| saved(e)).count(), 2);
}

/// Going back deleted what the other run reads again at its resume.
#[test]
fn a_roll_back_over_a_checkpoint_that_another_run_stands_on_is_refused() {
    let run = Run::new(&["train.max_steps=8", "checkpoint.every=2", "eval.every=0"]);
    let other = run._dir.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let stands_on = run.checkpoint(4);
    let spec = format!("train:\n  from: {:?}\n", stands_on.display().to_string());
    std::fs::write(other.join("spec.yaml"), spec).unwrap();
    let mut asked = 0;
    let events = run.go_with(&mut |event, send, _| {
        let back_to = |step| Request {
            id: 7,
            command: Command::Rollback { step },
        };
        match event {
            Event::Stepped { step: 5, .. } if asked == 0 => send.send(back_to(2)).unwrap(),
            Event::Stepped { step: 6, .. } if asked == 1 => send.send(back_to(4)).unwrap(),
            _ => return,
        }
        asked += 1;
    });
    let refused = |e: &&Event| matches!(e, Event::Rejected { why, .. } if why.contains("step 4") && why.contains("@2"));
    assert_eq!(events.iter().filter(refused).count(), 1, "{events:?}");
    assert!(!events.contains(&Event::RolledBack { step: 2 }));
    assert!(
        events.contains(&Event::RolledBack { step: 4 }),
        "on it nothing hinders"
    );
    assert!(stands_on.exists());
}

/// A clock that goes on by so many milliseconds each time it is read.
#[derive(Default)]
struct Ticking {
    now: AtomicU64,
    tick: AtomicU64,
}

impl Clock for Ticking {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.now.load(Ordering::Relaxed))
    }

    fn elapsed(&self) -> Duration {
        let tick = self.tick.load(Ordering::Relaxed);
        Duration::from_millis(self.now.fetch_add(tick, Ordering::Relaxed) + tick)
    }
}

/// The speed of steps that were given up once counted as that of the steps after it.
#[test]
fn a_roll_back_forgets_what_was_measured_of_the_steps_given_up() {
    let words = [
        "max_steps=8",
        "checkpoint.every=2",
        "eval.every=0",
        "train.log_every=4",
    ];
    let run = Run::new(&words);
    let clock = Arc::new(Ticking::default());
    clock.tick.store(1000, Ordering::Relaxed);
    let mut rolled = false;
    let events = run.go_by(clock.clone(), &mut |event, send, _| {
        if matches!(event, Event::Checkpointed { step: 6, .. }) && !rolled {
            rolled = true;
            clock.tick.store(1, Ordering::Relaxed);
            let command = Command::Rollback { step: 4 };
            send.send(Request { id: 7, command }).unwrap();
        }
    });
    let after = events
        .iter()
        .skip_while(|e| !matches!(e, Event::RolledBack { .. }));
    let step_ms = after.filter_map(|event| match event {
        Event::Stepped {
            step: 8, values, ..
        } => Some(values[metrics::id::STEP_MS].0),
        _ => None,
    });
    let step_ms: Vec<f64> = step_ms.collect();
    assert!(step_ms.len() == 1 && step_ms[0] < 100.0, "{step_ms:?}");
}

/// The settings that viewers see at the end, and those in `Adjusted` events, with their step.
fn settings(events: &[Event]) -> ([f64; 2], Vec<(u64, String)>) {
    let state = RunState::from_events(&in_envelopes(events));
    let told = |event: &Event| match event {
        Event::Adjusted { step, key, .. } => Some((*step, key.clone())),
        _ => None,
    };
    let now = ["lr", "clip_norm"].map(|key| state.settings[key]);
    (now, events.iter().filter_map(told).collect())
}

#[test]
fn a_roll_back_tells_of_the_settings_that_it_brings_back() {
    let run = Run::new(&["train.max_steps=8", "checkpoint.every=2", "eval.every=0"]);
    let spec = &run.job.spec;
    let mut done = false;
    let events = run.go_with(&mut |event, send, _| {
        if matches!(event, Event::Stepped { step: 3, .. }) && !done {
            done = true;
            let commands = [
                adjust("lr", 1e-4),
                adjust("clip_norm", 0.5),
                Command::Rollback { step: 2 },
            ];
            for (id, command) in (1..).zip(commands) {
                send.send(Request { id, command }).unwrap();
            }
        }
    });
    let (now, told) = settings(&events);
    assert_eq!(now, [spec.optimizer.lr(), spec.train.clip_norm]);
    let of = |step| ["lr", "clip_norm"].map(|key| (step, key.to_string()));
    assert_eq!(told, [of(3), of(2)].concat());
}

/// What was changed after the newest checkpoint goes with a crash, and the resume says so.
#[test]
fn a_resume_tells_of_settings_that_were_lost() {
    let run = Run::new(&["train.max_steps=8", "checkpoint.every=2", "eval.every=0"]);
    let first = run.go_with(&mut |event, send, _| {
        if matches!(event, Event::Stepped { step: 3, .. }) {
            let when = StopWhen::Now;
            for (id, command) in (1..).zip([adjust("lr", 1e-4), Command::Stop { when }]) {
                send.send(Request { id, command }).unwrap();
            }
        }
    });
    keep_log(&run, &first);
    let events = [first, run.resumed()].concat();
    let (now, told) = settings(&events);
    assert_eq!(now[0], run.job.spec.optimizer.lr());
    assert_eq!(told, [3, 2].map(|step| (step, "lr".to_string())));
    let lost = |e: &Event| matches!(e, Event::Noted { step: 2, text } if text.contains("is lost"));
    assert!(events.iter().any(lost));
}

/// Behind step 5 the rate breaks what was learned, so no evaluation is better than the first.
#[test]
fn patience_counts_scheduled_evaluations() {
    let last = |patience: u64, asked: &[u64]| {
        let patience = format!("eval.patience={patience}");
        let events = Run::new(&[&patience]).go_with(&mut |event, send, _| {
            let Event::Stepped { step, .. } = event else {
                return;
            };
            let evaluate = [Command::Evaluate, Command::Evaluate];
            let commands = match step {
                5 => vec![adjust("lr", 10.0)],
                step if asked.contains(step) => evaluate.into(),
                _ => vec![],
            };
            for command in commands {
                send.send(Request { id: 7, command }).unwrap();
            }
        });
        finished(&events).1
    };
    assert_eq!(last(2, &[]), 15);
    assert_eq!(last(2, &[7, 8, 12]), 15, "between them");
    assert_eq!(last(2, &[10]), 15, "at one of them, twice");
    assert_eq!(last(1, &[10]), 10, "in place of one of them");
}

/// The step to which somebody's patience leads back must be there.
#[test]
fn with_patience_the_best_evaluation_is_saved() {
    let set = ["eval.patience=2", "checkpoint.every=0"];
    let events = Run::new(&set).go_with(&mut |event, send, _| {
        if let Event::Stepped { step: 5, .. } = event {
            let command = adjust("lr", 10.0);
            send.send(Request { id: 7, command }).unwrap();
        }
    });
    let saved = events.iter().filter_map(|event| match event {
        Event::Checkpointed { step, best, .. } => Some((*step, *best)),
        _ => None,
    });
    assert_eq!(saved.collect::<Vec<_>>(), [(5, true), (15, false)]);
}
