//! Progress lines of whole runs: what deserves one, in which words.

use super::*;
use crate::wire::{Num, Phase, VERSION};

#[test]
fn line_ends_alone_fill_no_screen() {
    let lines = super::sampled(60, "k", "\n\n\n\n \n\nk\n\nx", false);
    assert_eq!(lines[1..], ["  | k", "  | ", "  | k", "  | ", "  | x"]);
}

/// A plain prompt alone stood there, of a model that said nothing.
#[test]
fn an_empty_answer_is_shown_as_one() {
    let lines = super::sampled(2, "What is 21 plus 20?", "", false);
    assert_eq!(
        lines[1..],
        ["  | What is 21 plus 20?", "  | → (ended at once)"]
    );
    let asked = "<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(
        super::sampled(2, asked, "\n", false)[1..],
        ["  | Why?", "  | → (ended at once)"]
    );
    let thought = super::sampled(2, asked, "", true);
    assert_eq!(thought[2], "  | → (ended inside its thoughts)");
    // A text that begins from nothing has no prompt.
    assert_eq!(super::sampled(2, "\n", "", false).len(), 1);
    assert_eq!(super::sampled(2, "a ", "text", false)[1..], ["  | a text"]);
}

#[test]
fn a_roll_back_is_told_where_it_gives_up_steps() {
    let resumed = |step| {
        let events = [
            started(20),
            stepped(1),
            stepped(8),
            Event::RolledBack { step },
        ];
        let events = events.into_iter().map(|event| (0, event)).collect();
        told(events).1.join("\n")
    };
    assert!(!resumed(8).contains("rolled back"), "{}", resumed(8));
    let told = resumed(5);
    assert!(
        told.contains("rolled back to step 5: 3 steps discarded"),
        "{told}"
    );
    // Nothing was saved to roll back to.
    let told = resumed(0);
    assert!(
        told.contains("no checkpoint yet: it starts over, 8 steps discarded"),
        "{told}"
    );
}

/// Of equal evaluations the later counts as the best: a pass@1 of 0 was "best so far" twice.
#[test]
fn a_tie_is_no_new_best() {
    let saved = |step: u64, pass: f64| Event::Checkpointed {
        step,
        path: format!("checkpoints/step-{step:06}"),
        bytes: 1,
        seconds: 0.1,
        best: true,
        val_loss: None,
        by: Some(crate::wire::Best {
            step,
            metric: "eval/pass@1".into(),
            value: crate::wire::Num(pass),
            direction: crate::wire::Direction::Higher,
        }),
    };
    let events = [started(20), saved(1, 0.0), saved(2, 0.0), saved(3, 0.5)];
    let events = events.into_iter().map(|event| (0, event)).collect();
    let lines = told(events).1;
    let of = |step: u64| {
        let name = format!("step-{step:06}");
        lines.iter().find(|line| line.contains(&name)).unwrap()
    };
    assert!(of(1).contains("best so far by eval/pass@1 0"), "{lines:?}");
    assert!(
        of(2).contains("as good as the best before it by eval/pass@1 0"),
        "{lines:?}"
    );
    assert!(
        of(3).contains("best so far by eval/pass@1 0.5"),
        "{lines:?}"
    );
}

fn told(events: Vec<(u64, Event)>) -> (Progress, Vec<String>) {
    let mut progress = Progress::new();
    let mut lines = Vec::new();
    for (i, (t, event)) in events.into_iter().enumerate() {
        lines.extend(progress.lines_for(&Envelope {
            v: VERSION,
            seq: i as u64 + 1,
            t: UnixMillis(t),
            event,
        }));
    }
    (progress, lines)
}

fn started(max_steps: u64) -> Event {
    Event::Started {
        name: "demo".into(),
        method: "pretrain".into(),
        spec: serde_json::Value::Null,
        n_params: 804_096,
        vocab_size: 65,
        max_steps,
        batch_tokens: 768,
        epoch_tokens: 1000,
        resumed_from: None,
        precision: None,
        unigram_entropy: None,
    }
}

fn stepped(step: u64) -> Event {
    Event::Stepped {
        step,
        tokens: step,
        values: [("train/loss".to_string(), Num(2.5))].into(),
    }
}

#[test]
fn steps_are_told_once_a_second_and_the_last_one_always() {
    let mut events = vec![(0, started(100))];
    events.extend((1..=100).map(|step| (step * 50, stepped(step))));
    let (_, lines) = told(events);
    assert!(lines[0].contains("804k parameters"), "{}", lines[0]);
    let steps: Vec<&String> = lines.iter().filter(|l| l.starts_with("step")).collect();
    assert!((5..=7).contains(&steps.len()), "{steps:#?}");
    assert!(
        steps
            .last()
            .unwrap()
            .starts_with("step 100/100  loss 2.500")
    );
}

/// What people did to a run from another terminal stands in its lines too.
#[test]
fn changes_pauses_and_refusals_are_told() {
    let phase = |phase, step| Event::PhaseChanged { phase, step };
    let adjusted = Event::Adjusted {
        step: 40,
        key: "lr\x1b".into(),
        old: Num(1e-3),
        new: Num(2e-3),
    };
    let refused = Event::Rejected {
        id: 7,
        why: "step 41 could not be saved: Not a directory".into(),
    };
    let (_, lines) = told(vec![
        (0, started(100)),
        (1, phase(Phase::Training, 0)),
        (2, stepped(40)),
        (3, adjusted),
        (4, phase(Phase::Paused, 41)),
        (5, refused),
        // A sample while it is paused begins no other pause.
        (5, phase(Phase::Sampling, 41)),
        (5, phase(Phase::Paused, 41)),
        (6, phase(Phase::Training, 41)),
        (7, phase(Phase::Evaluating, 41)),
        (8, phase(Phase::Training, 41)),
        (9, phase(Phase::Paused, 42)),
    ]);
    assert_eq!(
        lines[2..],
        [
            // A control character is shown as a dot.
            "lr· 1.00e-3 → 2.00e-3 from step 40 on",
            "paused at step 41",
            "refused: step 41 could not be saved: Not a directory",
            "training resumed at step 41",
            "paused at step 42",
        ]
    );
}

#[test]
fn notes_are_told_once() {
    let note = |text: &str| Event::Noted {
        step: 0,
        text: text.into(),
    };
    let (cut, other) = (note("book.txt: truncated\x1b"), note("mix: two"));
    let (_, lines) = told(vec![(0, cut.clone()), (1, other), (2, cut)]);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(
        lines[0].starts_with("note    book.txt: truncated"),
        "{lines:?}"
    );
    assert!(!lines[0].contains('\x1b'));
}

#[test]
fn a_run_of_unknown_length_is_told_without_its_end() {
    let (_, lines) = told(vec![(0, started(0)), (2_000, stepped(1_240))]);
    let line = lines.last().unwrap();
    assert!(line.starts_with("step 1,240  loss"), "{line}");
}

#[test]
fn what_a_log_does_not_say_is_left_out_of_its_first_line() {
    let first = |max_steps: u64, tokens: u64, n: u64| {
        let mut event = started(max_steps);
        if let Event::Started {
            batch_tokens,
            n_params,
            ..
        } = &mut event
        {
            (*batch_tokens, *n_params) = (tokens, n);
        }
        let (_, lines) = told(vec![(0, event)]);
        lines[0].split_once(')').unwrap().1.to_string()
    };
    assert_eq!(first(30, 0, 0), ": 30 steps");
    assert_eq!(first(1, 0, 0), ": 1 step");
    assert_eq!(first(0, 0, 0), "");
    let all = first(30, 64, 1_000);
    assert!(all.ends_with(" parameters, 30 steps of 64 tokens"), "{all}");
}

#[test]
fn the_epoch_stands_behind_the_readings_where_it_is_logged() {
    let values = [("train/loss", 2.5), ("epochs", 1.256)];
    let step = Event::Stepped {
        step: 3,
        tokens: 3,
        values: values.map(|(id, x)| (id.to_string(), Num(x))).into(),
    };
    let (_, lines) = told(vec![(0, started(9)), (2_000, step)]);
    let line = lines.last().unwrap();
    assert!(
        line.starts_with("step 3/9  loss 2.500  epoch 1.26"),
        "{line}"
    );
}

#[test]
fn preferences_are_told_by_accuracy_and_margin() {
    let values = |ids: [&str; 2]| ids.map(|id| (id.to_string(), Num(0.75))).into();
    let pairs = Event::Stepped {
        step: 2,
        tokens: 2,
        values: values(["rewards/accuracies", "rewards/margins"]),
    };
    let mut by_length = values(["val/rewards/accuracies", "val/rewards/margins"]);
    by_length.insert("val/rewards/length_accuracies".into(), Num(0.5));
    let evaluated = Event::Evaluated {
        step: 2,
        tokens: 2,
        values: by_length,
        n_windows: 8,
        whole: false,
        seconds: 0.0,
    };
    let (_, lines) = told(vec![(0, started(2)), (1, pairs), (2, evaluated)]);
    let text = lines.join("\n");
    assert!(text.contains("accuracy 0.7500  margin 0.7500"), "{text}");
    let accuracy = "step 2  val accuracy 0.7500, by length alone 0.5000\n";
    assert!(text.contains(accuracy), "{text}");
    assert!(text.contains("step 2  val margin 0.7500"), "{text}");
}

/// The loss of a cold start says nothing of the answers after it.
#[test]
fn learning_from_answers_is_told_by_reward_and_pass_at_1() {
    let answers = Event::Stepped {
        step: 2,
        tokens: 2,
        values: [("reward".to_string(), Num(0.5))].into(),
    };
    let evaluated = Event::Evaluated {
        step: 1,
        tokens: 1,
        values: [("eval/pass@1".to_string(), Num(0.25))].into(),
        n_windows: 8,
        whole: false,
        seconds: 0.0,
    };
    let log = vec![
        (0, started(2)),
        (1, stepped(1)),
        (2, evaluated),
        (9_000, answers),
    ];
    let (_, lines) = told(log);
    assert!(
        lines.contains(&"step 1  pass@1 0.2500".to_string()),
        "{lines:#?}"
    );
    let last = lines.last().unwrap();
    assert!(
        last.starts_with("step 2/2  reward 0.5000  pass@1 0.2500"),
        "{last}"
    );
}

#[test]
fn a_sample_cannot_steer_the_terminal_nor_flood_it() {
    let (_, lines) = told(vec![(
        0,
        Event::Sampled {
            step: 5,
            prompt: "\n".into(),
            text: format!("a\x1b[2Jb\n{}", "x".repeat(5_000)),
            thought: None,
            seconds: 0.1,
        },
    )]);
    assert_eq!(lines.len(), 3);
    assert!(lines.iter().all(|l| !l.contains('\x1b') && l.len() < 600));
}

#[test]
fn of_a_chat_the_question_and_the_answer_are_shown() {
    let system = format!("<|im_start|>system\n{}<|im_end|>\n", "help ".repeat(200));
    let (_, lines) = told(vec![(
        0,
        Event::Sampled {
            step: 5,
            prompt: format!("{system}<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n"),
            text: "Because.".into(),
            thought: None,
            seconds: 0.1,
        },
    )]);
    assert_eq!(lines[1..], ["  | Why?", "  | → Because."]);
}

#[test]
fn the_end_says_what_happened_and_what_to_type() {
    let (progress, lines) = told(vec![
        (0, started(100)),
        (1, stepped(10)),
        (
            2,
            Event::Checkpointed {
                step: 10,
                path: "checkpoints/step-000010".into(),
                bytes: 1 << 20,
                seconds: 0.1,
                best: true,
                val_loss: None,
                by: None,
            },
        ),
        (
            3,
            Event::Finished {
                outcome: Outcome::Stopped,
                step: 10,
                tokens: 1,
                val_loss: Some(Num(1.9)),
                best: None,
                train_loss: None,
                seconds: 61.0,
                message: String::new(),
            },
        ),
    ]);
    assert_eq!(
        lines[lines.len() - 2..],
        [
            "stopped at step 10, val loss 1.9000, after 1:01",
            "verdict TOO EARLY  too few steps for a verdict"
        ]
    );
    let next = progress.next_steps(Path::new("elsewhere/demo-x"), Path::new("elsewhere"));
    assert!(next[1].contains("chat demo-x --runs-dir elsewhere"));
    assert!(next[3].contains("--resume demo-x"), "{next:?}");
}

/// The first line of a run with adapters did not say that adapters train.
#[test]
fn adapters_are_told_in_the_first_line() {
    let sources = crate::spec::SpecSources {
        project_dir: std::env::temp_dir().join("llmtui-no-such-folder"),
        ..crate::spec::SpecSources::default()
    };
    let lora = crate::spec::load("sft-lora-demo", &[], &sources)
        .unwrap()
        .spec;
    let mut event = started(30);
    if let Event::Started { spec, method, .. } = &mut event {
        (*spec, *method) = (lora.to_value(), "sft".into());
    }
    let (_, lines) = told(vec![(0, event)]);
    assert!(
        lines[0].starts_with("demo (sft): LoRA rank 16 (all), 804k parameters, of which"),
        "{}",
        lines[0]
    );
}
