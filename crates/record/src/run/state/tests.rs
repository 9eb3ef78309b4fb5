//! The fold, event by event.

mod link;

use super::*;
use crate::base::finding::Finding;
use crate::wire::{Direction, Num};
use proptest::prelude::*;

/// A log being written.
struct Tape {
    events: Vec<Envelope>,
    t: u64,
}

impl Tape {
    fn new() -> Self {
        Tape {
            events: Vec::new(),
            t: 1_000,
        }
    }

    fn add(&mut self, event: Event) -> &mut Self {
        self.t += 40;
        let seq = self.events.len() as u64 + 1;
        self.events.push(Envelope {
            v: 1,
            seq,
            t: UnixMillis(self.t),
            event,
        });
        self
    }

    fn steps(&mut self, range: std::ops::RangeInclusive<u64>) -> &mut Self {
        for step in range {
            let values = [("train/loss".to_string(), Num(step as f64))].into();
            self.add(Event::Stepped {
                step,
                tokens: step * 10,
                values,
            });
        }
        self
    }

    fn fold(&self) -> RunState {
        RunState::from_events(&self.events)
    }
}

fn hello() -> Event {
    Event::Hello {
        run: "r".into(),
        engine: "0.1.0".into(),
        pid: 7,
        host: "box".into(),
    }
}

fn started(resumed_from: Option<u64>) -> Event {
    Event::Started {
        name: "shakespeare".into(),
        method: "pretrain".into(),
        spec: serde_json::Value::Null,
        n_params: 800_000,
        vocab_size: 65,
        max_steps: 100,
        batch_tokens: 10,
        epoch_tokens: 400,
        resumed_from,
        precision: Some("bf16".into()),
        unigram_entropy: None,
    }
}

fn evaluated(step: u64, loss: f64) -> Event {
    let values = [("val/loss".to_string(), Num(loss))].into();
    Event::Evaluated {
        step,
        tokens: step * 10,
        values,
        n_windows: 20,
        whole: false,
        seconds: 0.5,
    }
}

fn checkpointed(step: u64, best: bool) -> Event {
    Event::Checkpointed {
        step,
        path: crate::run::checkpoints::path_in_run(step),
        bytes: 3 << 20,
        seconds: 0.1,
        best,
        val_loss: Some(Num(1.886)),
        by: None,
    }
}

fn finished(outcome: Outcome, step: u64) -> Event {
    Event::Finished {
        outcome,
        step,
        tokens: step * 10,
        val_loss: Some(Num(1.9)),
        best: None,
        train_loss: None,
        seconds: 61.0,
        message: String::new(),
    }
}

#[test]
fn steps_of_a_batch_ramp_have_their_own_tokens() {
    let mut event = started(None);
    if let Event::Started {
        spec, batch_tokens, ..
    } = &mut event
    {
        let stage = |until: u64, accum: u64| serde_json::json!({"until_step": until, "grad_accum_steps": accum});
        *spec = serde_json::json!({"train": {"grad_accum_steps": 8, "batch_ramp": [stage(5, 2), stage(8, 4)]}});
        *batch_tokens = 80;
    }
    let head = Head::from_event(&event).unwrap();
    let at = [5, 6, 8, 9].map(|step| head.batch_tokens_at(step));
    assert_eq!(at, [20, 40, 40, 80]);
    let between =
        [(3, 10), (6, 7), (9, 20), (7, 7)].map(|(from, to)| head.tokens_between(from, to));
    assert_eq!(between, [2 * 20 + 3 * 40 + 2 * 80, 40, 11 * 80, 0]);
    assert_eq!(
        Head::from_event(&started(None))
            .unwrap()
            .tokens_between(0, 7),
        70
    );
}

#[test]
fn a_refused_resume_leaves_the_run_as_it_stood() {
    let mut tape = Tape::new();
    tape.add(hello()).add(started(None)).steps(1..=9);
    tape.add(finished(Outcome::Completed, 9));
    for _ in 0..2 {
        tape.add(hello());
        assert_eq!(tape.fold().finished, None);
        tape.add(finished(Outcome::Invalid, 9));
        let state = tape.fold();
        assert_eq!(state.finished.as_ref().unwrap().outcome, Outcome::Completed);
        assert_eq!(state.newest_end().unwrap().outcome, Outcome::Invalid);
    }
    // An engine that takes steps speaks for the run again.
    tape.add(hello()).steps(10..=11);
    tape.add(finished(Outcome::Starved, 11));
    let state = tape.fold();
    assert_eq!(state.refused, None);
    assert_eq!(state.finished.as_ref().unwrap().outcome, Outcome::Starved);
    // So does the first engine.
    let mut tape = Tape::new();
    tape.add(hello()).add(finished(Outcome::Invalid, 0));
    tape.add(hello()).add(finished(Outcome::Invalid, 0));
    assert_eq!(tape.fold().refused, None);
    assert!(tape.fold().finished.is_some());
}

#[test]
fn a_resume_that_is_stopped_in_the_queue_leaves_the_run_as_it_stood() {
    let mut tape = Tape::new();
    tape.add(hello()).add(started(None)).steps(1..=9);
    tape.add(finished(Outcome::Completed, 9));
    tape.add(hello()).add(Event::Queued { after: "b".into() });
    tape.add(finished(Outcome::Stopped, 9));
    let state = tape.fold();
    assert_eq!(state.finished.as_ref().unwrap().outcome, Outcome::Completed);
    assert_eq!(state.newest_end().unwrap().outcome, Outcome::Stopped);
    // A run that never began has nothing to stand by.
    let mut tape = Tape::new();
    tape.add(hello()).add(Event::Queued { after: "b".into() });
    tape.add(finished(Outcome::Stopped, 0));
    let state = tape.fold();
    assert_eq!(state.finished.as_ref().unwrap().outcome, Outcome::Stopped);
    assert_eq!(state.refused, None);
}

fn whole_run() -> Tape {
    let mut tape = Tape::new();
    tape.add(hello()).add(started(None)).steps(1..=30);
    tape.add(evaluated(30, 3.0))
        .add(checkpointed(30, true))
        .steps(31..=45);
    tape.add(Event::Warned {
        step: 45,
        code: "x".into(),
        message: "spike".into(),
        hint: String::new(),
    });
    tape.add(finished(Outcome::Stopped, 45));
    tape.add(hello())
        .add(Event::RolledBack { step: 30 })
        .add(started(Some(30)))
        .steps(31..=60);
    tape.add(Event::Noted {
        step: 60,
        text: "look".into(),
    })
    .add(finished(Outcome::Completed, 60));
    tape
}

/// What the fold says, as text: equal text means an equal screen.
fn picture(state: &RunState) -> String {
    format!("{state:?}")
}

proptest! {
    #[test]
    fn replay_and_live_may_overlap_anywhere(cut in 0usize..95, overlap in 0usize..40) {
        let tape = whole_run();
        let cut = cut.min(tape.events.len());
        let mut state = RunState::from_events(&tape.events[..cut]);
        for envelope in &tape.events[cut.saturating_sub(overlap)..] {
            state.apply(envelope);
        }
        prop_assert_eq!(picture(&state), picture(&tape.fold()));
        prop_assert_eq!(state.missed, 0);
    }
}

#[test]
fn a_resume_takes_back_what_came_after_its_checkpoint() {
    let mut tape = Tape::new();
    tape.add(hello()).add(started(None)).steps(1..=50);
    tape.add(evaluated(30, 3.0))
        .add(evaluated(50, 2.0))
        .add(checkpointed(30, true));
    tape.add(checkpointed(50, true))
        .add(Event::RolledBack { step: 30 });
    let state = tape.fold();
    assert_eq!((state.step, state.tokens), (30, 300));
    assert_eq!(state.series["train/loss"].steps(), Some((1, 30)));
    assert_eq!(state.best_evaluation().map(|e| e.step), Some(30));
    assert_eq!(state.checkpoints.len(), 1);
    assert!(state.marks.iter().all(|m| m.step <= 30));
    assert!(
        state
            .log
            .back()
            .unwrap()
            .text
            .contains("20 steps discarded")
    );
}

/// What is seen at a step beside its readings.
fn seen(step: u64) -> [Event; 6] {
    let text = format!("at {step}");
    let [code, hint] = [String::new(), String::new()];
    let outlier = crate::wire::Outlier {
        metric: "train/loss".into(),
        value: Num(9.0),
        usual: Num(2.0),
        sigmas: Num(6.0),
    };
    [
        Event::Sampled {
            step,
            prompt: String::new(),
            text: text.clone(),
            thought: None,
            seconds: 0.1,
        },
        Event::Examined {
            step,
            examples: Vec::new(),
        },
        Event::Skipped { step, outlier },
        Event::Warned {
            step,
            code,
            message: text,
            hint,
        },
        Event::Diagnosed {
            step,
            finding: Finding::fail("9", "", "").named("spike", "spike").into(),
        },
        Event::Probed {
            step,
            layers: [("norm/layer".to_string(), vec![Num(1.0)])].into(),
        },
    ]
}

/// Curves, samples, marks and verdicts are those of a run that was never rescued. Checkpoints stay away: their files are deleted.
#[test]
fn an_undone_rescue_leaves_all_as_it_was_but_for_checkpoints() {
    let mut tape = Tape::new();
    tape.add(hello()).add(started(None)).steps(1..=50);
    let all = |tape: &mut Tape, step| {
        seen(step).into_iter().for_each(|event| {
            tape.add(event);
        });
        tape.add(evaluated(step, 3.0)).add(checkpointed(step, true));
    };
    all(&mut tape, 20);
    all(&mut tape, 40);
    let before = tape.fold();
    tape.add(Event::RolledBack { step: 30 })
        .add(Event::Rescued {
            step: 30,
            from: 45,
            why: "spike".into(),
            skipped: (45, 46),
            lr: (Num(1e-3), Num(5e-4)),
            moments_reset: false,
            count: 1,
            at_most: 3,
            undo: None,
        });
    let rescued = tape.fold();
    assert_eq!((rescued.samples.len(), rescued.skipped), (1, 1));
    assert!(rescued.diagnosed.is_empty());
    tape.steps(31..=35);
    all(&mut tape, 35);
    tape.add(Event::RolledBack { step: 30 })
        .add(Event::RescueUndone {
            step: 50,
            tokens: 500,
            rescue: 30,
            why: "spike".into(),
            lr: (Num(5e-4), Num(1e-3)),
            whole: true,
            lost: 5,
        });
    let state = tape.fold();
    assert_eq!((state.step, state.tokens), (50, 500));
    assert_eq!(state.samples, before.samples);
    assert_eq!(state.examined, before.examined);
    assert_eq!(state.evaluations, before.evaluations);
    assert_eq!(state.diagnosed, before.diagnosed);
    assert_eq!(state.layers, before.layers);
    assert_eq!((state.skipped, before.skipped), (2, 2));
    let told = |state: &RunState| -> Vec<Mark> {
        let marks = state.marks.iter();
        let own = |mark: &&Mark| ![MarkKind::Rescued, MarkKind::Checkpoint].contains(&mark.kind);
        marks.filter(own).cloned().collect()
    };
    assert_eq!(told(&state), told(&before));
    let kept = |kind: MarkKind| -> Vec<u64> {
        let marks = state.marks.iter().filter(|mark| mark.kind == kind);
        marks.map(|mark| mark.step).collect()
    };
    assert_eq!(kept(MarkKind::Checkpoint), [20]);
    assert_eq!(kept(MarkKind::Rescued), [30, 50]);
    assert_eq!(state.checkpoints.len(), 1);
}

#[test]
fn a_second_engine_reopens_a_finished_run() {
    let mut tape = Tape::new();
    tape.add(hello())
        .add(started(None))
        .steps(1..=5)
        .add(finished(Outcome::Stopped, 5));
    assert!(!tape.fold().running());
    assert_eq!(tape.fold().word(), "stopped");
    tape.add(hello()).add(started(Some(5)));
    let state = tape.fold();
    assert!(state.running() && state.finished.is_none());
    assert!(
        state
            .marks
            .iter()
            .any(|m| m.kind == MarkKind::Resumed && m.step == 5)
    );
}

#[test]
fn gaps_are_counted_and_the_rest_is_folded() {
    let tape = whole_run();
    let mut state = RunState::new();
    for envelope in tape.events.iter().filter(|e| !(10..20).contains(&e.seq)) {
        state.apply(envelope);
    }
    assert_eq!(state.missed, 10);
    assert_eq!(state.step, 60);
}

#[test]
fn metrics_that_nobody_declared_and_events_that_nobody_knows_are_kept() {
    let mut tape = Tape::new();
    let values = [("rewards/margins".to_string(), Num(0.5))].into();
    tape.add(Event::Stepped {
        step: 1,
        tokens: 1,
        values,
    });
    tape.add(Event::Unknown(
        serde_json::json!({"type": "Levitated", "height": 3}),
    ));
    let state = tape.fold();
    assert_eq!(state.latest("rewards/margins"), Some(0.5));
    assert_eq!((state.unknown, state.metric("rewards/margins")), (1, None));
    assert!(
        state
            .log
            .back()
            .unwrap()
            .text
            .contains("unknown event Levitated")
    );
}

#[test]
fn a_redeclared_metric_keeps_its_place() {
    let info = |id: &str, title: &str| MetricInfo {
        id: id.into(),
        title: title.into(),
        unit: String::new(),
        direction: Direction::Lower,
        ..MetricInfo::default()
    };
    let mut tape = Tape::new();
    tape.add(Event::MetricsDeclared {
        metrics: vec![info("a", "A"), info("b", "B")],
    });
    tape.add(Event::MetricsDeclared {
        metrics: vec![info("a", "A2\x1b[2J")],
    });
    let titles: Vec<String> = tape
        .fold()
        .metrics
        .iter()
        .map(|m| m.title.clone())
        .collect();
    assert_eq!(titles, ["A2·[2J", "B"]);
}

#[test]
fn a_nan_is_told_once_a_stretch() {
    let mut tape = Tape::new();
    for (step, loss) in [
        (1, 2.0),
        (2, f64::NAN),
        (3, f64::NAN),
        (4, 2.0),
        (5, f64::INFINITY),
    ] {
        let values = [("train/loss".to_string(), Num(loss))].into();
        tape.add(Event::Stepped {
            step,
            tokens: step,
            values,
        });
    }
    let state = tape.fold();
    let told: Vec<&str> = state.notices.iter().map(|n| n.text.as_str()).collect();
    assert_eq!(
        told,
        [
            "the training loss is NaN at step 2",
            "the training loss is inf at step 5"
        ]
    );
    assert_eq!(state.series["train/loss"].non_finite(), 3);
}

#[test]
fn the_log_speaks_in_sentences() {
    let mut tape = Tape::new();
    tape.add(hello())
        .add(started(None))
        .add(checkpointed(30, true));
    tape.add(Event::Adjusted {
        step: 31,
        key: "lr".into(),
        old: Num(1e-3),
        new: Num(5e-4),
    });
    tape.add(Event::PhaseChanged {
        phase: Phase::Paused,
        step: 31,
    });
    tape.add(Event::PhaseChanged {
        phase: Phase::Training,
        step: 31,
    });
    tape.add(Event::Rejected {
        id: 4,
        why: "no such\nkey".into(),
    });
    tape.add(Event::Checked {
        finding: Finding::warn("9.1, expected 4.17", "", "scale the head down")
            .named("init_loss", "loss at init")
            .into(),
        seconds: 0.1,
        next: None,
    });
    tape.add(finished(Outcome::Completed, 100));
    let state = tape.fold();
    let lines: Vec<&str> = state.log.iter().map(|l| l.text.as_str()).collect();
    insta::assert_snapshot!(lines.join("\n"), @r"
    engine 0.1.0 on box, process 7
    shakespeare: pretrain, 800k parameters, 100 steps in bf16
    checkpoint step-000030 kept (best so far, val 1.886), 3 MiB
    lr 1.00e-3 → 5.00e-4 from step 31 on
    paused at step 31
    training resumed at step 31
    refused: no such key
    preflight warning: loss at init: 9.1, expected 4.17; scale the head down
    finished at step 100 after 1:01, val 1.900
    ");
    assert_eq!(
        state.answers.back().unwrap().result,
        Err("no such key".into())
    );
    assert_eq!(state.notices.len(), 7);
}

#[test]
fn progress_epochs_and_speed_follow_from_the_head() {
    let mut tape = Tape::new();
    tape.add(hello()).add(started(None)).steps(1..=50);
    let state = tape.fold();
    assert_eq!((state.progress(), state.epochs()), (Some(0.5), Some(1.25)));
    // What the engine logs counts padding and prompts as they are.
    tape.add(Event::Stepped {
        step: 51,
        tokens: 51,
        values: [("epochs".to_string(), Num(1.5))].into(),
    });
    assert_eq!(tape.fold().epochs(), Some(1.5));
    assert_eq!(state.tok_per_sec(), Some(250.0));
    assert_eq!(state.remaining(), Some(Duration::from_secs(2)));
    assert_eq!(RunState::new().progress(), None);
}

#[test]
fn a_log_that_does_not_say_its_length_has_neither_progress_nor_an_end() {
    let mut endless = started(None);
    if let Event::Started { max_steps, .. } = &mut endless {
        *max_steps = 0;
    }
    let mut tape = Tape::new();
    let state = tape.add(hello()).add(endless).steps(1..=50).fold();
    assert!(state.pace.step_ms().is_some());
    assert_eq!((state.progress(), state.remaining()), (None, None));
}

#[test]
fn memory_is_bounded_whatever_is_sent() {
    let mut tape = Tape::new();
    for i in 0..3_000 {
        tape.add(Event::Noted {
            step: 0,
            text: format!("{i}"),
        });
        tape.add(Event::Sampled {
            step: 1,
            prompt: String::new(),
            text: "ü".repeat(1 << 17),
            thought: None,
            seconds: 0.0,
        });
        if i > 100 {
            tape.events.pop();
        }
    }
    let state = tape.fold();
    assert!(state.log.len() <= MAX_LOG && state.samples.len() <= MAX_SAMPLES);
    assert!(
        state
            .samples
            .iter()
            .all(|s| s.text.len() <= MAX_SAMPLE_BYTES)
    );
}

/// The sample from before training went with the 33rd sampling of two held-out questions.
#[test]
fn the_first_and_the_newest_sample_of_a_prompt_stay() {
    let mut tape = Tape::new();
    let sampled = |step: u64, prompt: &str| Event::Sampled {
        step: step * 50,
        prompt: prompt.into(),
        text: String::new(),
        thought: None,
        seconds: 0.0,
    };
    for step in 0..500 {
        tape.add(sampled(step, "a"));
        tape.add(sampled(step, "b"));
        tape.add(sampled(step, &format!("once at {step}")));
    }
    let state = tape.fold();
    assert!(state.samples.len() <= MAX_SAMPLES);
    for prompt in ["a", "b"] {
        let of = state.samples.iter().filter(|s| s.prompt == prompt);
        let steps: Vec<u64> = of.map(|s| s.step).collect();
        assert_eq!(
            (steps[0], steps[steps.len() - 1]),
            (0, 499 * 50),
            "{steps:?}"
        );
        assert!(steps.is_sorted() && steps.len() > 8, "{steps:?}");
    }
}

#[test]
fn settings_are_as_said_then_as_adjusted_and_outlive_a_resume() {
    let with_spec = |resumed_from| {
        let mut event = started(resumed_from);
        if let Event::Started { spec, .. } = &mut event {
            *spec = serde_json::json!({
                "optimizer": {"adamw": {"lr": 1e-3}}, "train": {"clip_norm": 1.0}
            });
            // The spec was edited before the resume.
            if resumed_from.is_some() {
                spec["train"]["clip_norm"] = 0.5.into();
            }
        }
        event
    };
    let mut tape = Tape::new();
    tape.add(hello()).add(with_spec(None));
    assert_eq!(tape.fold().settings["lr"], 1e-3);
    tape.add(Event::Adjusted {
        step: 3,
        key: "lr".into(),
        old: Num(1e-3),
        new: Num(5e-4),
    });
    tape.add(hello()).add(with_spec(Some(3)));
    let settings = tape.fold().settings;
    assert_eq!((settings["lr"], settings["clip_norm"]), (5e-4, 0.5));
}

#[test]
fn what_logs_of_other_programs_do_not_tell_is_not_told_as_zero() {
    let mut tape = Tape::new();
    tape.add(Event::Hello {
        run: "r".into(),
        engine: "trainer_state".into(),
        pid: 0,
        host: "another program".into(),
    });
    let mut begun = started(None);
    if let Event::Started { n_params, .. } = &mut begun {
        *n_params = 0;
    }
    tape.add(begun);
    tape.add(Event::Evaluated {
        step: 100,
        tokens: 0,
        values: [("val/loss".to_string(), Num(2.6))].into(),
        n_windows: 0,
        whole: true,
        seconds: 0.0,
    });
    let state = tape.fold();
    let lines: Vec<&str> = state.log.iter().map(|line| line.text.as_str()).collect();
    assert_eq!(lines[0], "log of another program, read as trainer_state");
    assert!(!lines[1].contains("parameters"), "{lines:?}");
    assert_eq!(lines[2], "step 100: validation loss 2.600");
}
