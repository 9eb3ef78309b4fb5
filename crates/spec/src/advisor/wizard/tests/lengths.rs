//! The wizard counts as the run then counts: its steps and passes are held against data that were read.

use super::fitting::base;
use super::*;
use crate::data::DataEnv;
use std::fmt::Write;

/// The number in front of ` of` in the row of steps, and the first number of the row of data.
fn told(wizard: &Wizard) -> (f64, f64) {
    let notes = wizard.question().notes;
    let text = |label: &str| {
        let note = notes.iter().find(|note| note.label == label);
        note.map(|note| note.text.replace(',', ""))
            .unwrap_or_default()
    };
    let number = |text: &str| {
        let mut numbers = text.split_whitespace().filter_map(|word| word.parse().ok());
        numbers.next().unwrap_or(f64::NAN)
    };
    (number(&text("Steps")), number(&text("Data")))
}

/// 120 rows of several lengths.
fn rows(of: impl Fn(&str, usize) -> String) -> String {
    (0..120).fold(String::new(), |mut all, i| {
        let _ = writeln!(all, "{}", of(&"word ".repeat(1 + i * 7 % 11), i));
        all
    })
}

#[test]
fn steps_and_passes_are_those_of_the_run_for_every_kind_of_row_and_method() {
    let dir = tempfile::tempdir().unwrap();
    let model = base(dir.path(), 128, "none");
    let turns = |question: &str, answer: &str| {
        format!(
            r#"[{{"role": "user", "content": "{question}"}}, {{"role": "assistant", "content": "{answer}"}}]"#
        )
    };
    let kinds = [
        (
            "pairs",
            Goal::Style,
            rows(|a, i| format!(r#"{{"prompt": "{i}?", "chosen": "{a}", "rejected": "{a} no"}}"#)),
        ),
        (
            "kto",
            Goal::Style,
            rows(|a, i| {
                let label = i % 3 > 0;
                format!(r#"{{"prompt": "{i}?", "completion": "{a}", "label": {label}}}"#)
            }),
        ),
        (
            "chats",
            Goal::Instructions,
            rows(|a, i| format!(r#"{{"messages": {}}}"#, turns(&format!("{i}?"), a))),
        ),
        (
            "completions",
            Goal::Instructions,
            rows(|a, i| format!(r#"{{"prompt": "{i}?", "completion": "{a}"}}"#)),
        ),
        (
            "texts",
            Goal::Knowledge,
            rows(|a, i| format!(r#"{{"text": "{i} {a}"}}"#)),
        ),
    ];
    let mut seen = 0;
    for (name, goal, rows) in kinds {
        let path = dir.path().join(format!("{name}.jsonl"));
        std::fs::write(&path, rows).unwrap();
        let mut wizard = with_file(&path);
        wizard.answers.goal = Some(goal);
        until(&mut wizard, Step::Start);
        wizard.select(1);
        wizard.type_in(&model);
        until(&mut wizard, Step::Method);
        let open: Vec<usize> = (wizard.question().rows.iter().enumerate())
            .filter_map(|(at, row)| row.open.then_some(at))
            .collect();
        for at in open {
            wizard.go_to(Step::Method);
            wizard.select(at);
            let key = "method.*.teacher";
            wizard.answers.settings.remove(key);
            until(&mut wizard, Step::Settings);
            // The settings are not left without a teacher.
            if wizard.answers.method == Some(MethodId::Distill) {
                let row = wizard.knobs().iter().position(|knob| knob.path == key);
                wizard.select(row.unwrap());
                wizard.type_in(crate::models::TO_COME);
            }
            until(&mut wizard, Step::Plan);
            let spec = wizard.draft().unwrap().0.spec().unwrap();
            if spec.rollout_length().is_some() {
                continue;
            }
            let title = format!("{name}, {}", wizard.chosen_advice().unwrap().title());
            let data = spec.open_data(&DataEnv::default());
            let data = data.unwrap_or_else(|e| panic!("{title}: {e}"));
            let batch = spec.train.micro_batch_size;
            let pass = data.micro_steps_per_epoch(batch);
            let run = spec.on_data(pass);
            let steps = run.train.max_steps as f64;
            let passes = run.train.micro_steps(run.train.max_steps) as f64 / pass;
            let (told_steps, told_passes) = told(&wizard);
            let off = (told_steps - steps).abs();
            assert!(
                off <= (0.15 * steps).max(1.0),
                "{title}: {told_steps} steps, and the run takes {steps}"
            );
            let off = (told_passes - passes).abs();
            assert!(
                off <= (0.15 * passes).max(0.15),
                "{title}: {told_passes} passes, and the run makes {passes}"
            );
            seen += 1;
        }
    }
    assert!(seen >= 10, "{seen}");
}
