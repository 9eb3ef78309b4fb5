//! Columns of other names, paths from a shell, and the settings of each method.

use super::*;
use crate::advisor::choose::{self, DataKind};

/// Rows of one file, with the question about the data answered once.
fn asked(dir: &std::path::Path, row: &str) -> Wizard {
    let wizard = with_rows(dir, row);
    assert_eq!(wizard.step(), Step::Data, "{:?}", wizard.error());
    wizard
}

#[test]
fn columns_of_other_names_are_guessed_and_taken_once_that_is_accepted() {
    for (row, words, kind) in [
        (
            r#"{"Frage": "Wie geht es?", "Antwort": "Gut."}"#,
            "instruction from Frage, response from Antwort",
            DataKind::Demos,
        ),
        (
            r#"{"question": "How are you?", "good": "Fine.", "bad": "No."}"#,
            "prompt from question, chosen from good, rejected from bad",
            DataKind::Pairs,
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut wizard = asked(dir.path(), row);
        let why = wizard.error().unwrap().to_string();
        assert!(
            why.contains(words) && why.contains("Choose the file again"),
            "{why}"
        );
        assert!(wizard.asks_for_consent());
        assert_eq!(wizard.enter(), Outcome::Moved);
        let facts = wizard.chosen_data().unwrap();
        assert_eq!((facts.kind, facts.rows), (kind, Some(300)));
        assert!(facts.chars > Some(300 * 10), "{:?}", facts.chars);
        wizard.answers.goal = Some(Goal::Style);
        until(&mut wizard, Step::Start);
        wizard.select(2);
        wizard.type_in(&model_folder(dir.path()));
        until(&mut wizard, Step::Finish);
        let yaml = wizard.yaml().unwrap();
        let spec = wizard.draft().unwrap().0.spec().unwrap();
        let column = |part| spec.data.sources[0].columns.get(part).map(String::from);
        match kind {
            DataKind::Pairs => assert_eq!(column("chosen").as_deref(), Some("good"), "{yaml}"),
            _ => assert_eq!(column("response").as_deref(), Some("Antwort"), "{yaml}"),
        }
    }
}

#[test]
fn columns_beside_a_prompt_that_are_not_read_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let wizard = with_rows(dir.path(), r#"{"question": "Why?", "remark": "old"}"#);
    let facts = wizard.data_facts().unwrap().as_ref().unwrap();
    assert!(facts.note.starts_with("not read: remark"), "{}", facts.note);
    assert_eq!(facts.guessed, None);
}

#[test]
fn a_quoted_path_is_the_file_that_it_means() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("essay 0.txt");
    std::fs::write(&path, "To be, or not to be. ".repeat(200)).unwrap();
    let shown = path.display().to_string();
    for typed in [format!("'{shown}'"), shown.replace(' ', "\\ ")] {
        let (mut wizard, look) = looking_at(std::path::Path::new(&typed));
        assert_eq!(wizard.answers().data_path, shown);
        assert_eq!(wizard.on_inspected(look.now(None)), Outcome::Moved);
    }
}

#[test]
fn each_method_is_asked_for_its_own_settings() {
    let pair = r#"{"prompt": "How are you?", "chosen": "Fine.", "rejected": "No."}"#;
    let sum = r#"{"question": "What is 3 + 4?", "answer": "7"}"#;
    for (row, goal, own) in [
        (
            pair,
            Goal::Style,
            vec!["method.*.beta", "adapter.*.rank", "adapter.*.alpha"],
        ),
        (
            sum,
            Goal::Reasoning,
            vec![
                "method.*.beta",
                "rollout.group_size",
                "rollout.max_new_tokens",
                "rollout.temperature",
            ],
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut wizard = with_rows(dir.path(), row);
        wizard.answers.goal = Some(goal);
        until(&mut wizard, Step::Start);
        wizard.select(2);
        wizard.type_in(&model_folder(dir.path()));
        until(&mut wizard, Step::Method);
        let adapter = own.contains(&"adapter.*.rank");
        let suits = |a: &choose::Advice| {
            let whole = a.adapter == choose::Adapter::Full;
            a.available && a.verdict != choose::Verdict::Unfit && whole != adapter
        };
        let at = wizard.advice().iter().position(suits).unwrap();
        wizard.select(at);
        until(&mut wizard, Step::Settings);
        let asked: Vec<&str> = wizard.knobs().iter().map(|knob| knob.path).collect();
        for path in own.iter().chain(&["model.seq_len", "optimizer.*.lr"]) {
            assert!(asked.contains(path), "{path} is not among {asked:?}");
        }
        assert_eq!(asked.contains(&"adapter.*.rank"), adapter, "{asked:?}");
        assert!(!asked.contains(&"model.d_model"), "{asked:?}");
    }
}
