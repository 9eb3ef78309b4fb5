//! What Enter accepts where training is advised against, and what is left of an answer that was refused.

use super::*;

/// At the question for a method, with data that are too few to train on.
fn at_method(dir: &std::path::Path, goal: Goal, name: &str, text: &str) -> Wizard {
    let path = dir.join(name);
    std::fs::write(&path, text).unwrap();
    let mut wizard = with_file(&path);
    wizard.answers.goal = Some(goal);
    until(&mut wizard, Step::Start);
    wizard.select(1);
    wizard.type_in(&model_folder(dir));
    until(&mut wizard, Step::Method);
    wizard
}

#[test]
fn enter_alone_trains_where_the_advice_is_not_to() {
    let row = r#"{"messages": [{"role": "user", "content": "To be?"}, {"role": "assistant", "content": "Or not to be."}]}"#;
    for (goal, name, text, method) in [
        (
            Goal::Knowledge,
            "own.txt",
            "To be, or not to be: that is the question.\n".repeat(400),
            MethodId::ContinuedPretrain,
        ),
        (
            Goal::Instructions,
            "few.jsonl",
            format!("{row}\n").repeat(6),
            MethodId::Sft,
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut wizard = at_method(dir.path(), goal, name, &text);
        let list = wizard.advice();
        assert_eq!(list[0].facts.id, MethodId::NoTraining);
        assert_eq!(list[wizard.selected()].facts.id, method);
        let notes = wizard.question().notes;
        let careful = notes.iter().find(|n| n.label == "Careful").unwrap();
        assert!(
            careful.text.contains("not the first thing to try"),
            "{careful:?}"
        );
        // Whoever asks for no training is told what to do instead, and how to go on.
        let mut none = wizard.clone();
        none.select(0);
        assert_eq!(none.enter(), Outcome::Stay);
        let why = none.error().unwrap();
        for word in ["no run to plan", "llmtui chat", "to train anyway"] {
            assert!(why.contains(word), "{why}");
        }
        until(&mut wizard, Step::Finish);
        assert_eq!(wizard.answers().method, Some(method));
        assert!(matches!(wizard.enter(), Outcome::Check { .. }));
    }
}

/// "Prompts without answers, and no method learns from them" was said of rows that GRPO trains on.
#[test]
fn prompts_with_reference_answers_are_told_the_goal_that_trains_on_them() {
    let dir = tempfile::tempdir().unwrap();
    let row = r#"{"prompt": "1+2=", "answer": "3"}"#;
    let mut wizard = with_rows(dir.path(), row);
    wizard.answers.goal = Some(Goal::Instructions);
    until(&mut wizard, Step::Start);
    wizard.select(1);
    wizard.type_in(&model_folder(dir.path()));
    if let Outcome::Look(look) = wizard.enter() {
        wizard.on_inspected(look.now(None));
    }
    wizard.enter();
    let why = wizard.error().unwrap();
    for word in ["reference answers", Goal::Reasoning.title(), "`completion`"] {
        assert!(why.contains(word), "{why}");
    }
}

#[test]
fn a_path_that_was_refused_is_not_remembered() {
    let dir = tempfile::tempdir().unwrap();
    let good = dir.path().join("own.txt");
    std::fs::write(&good, "To be, or not to be.\n".repeat(400)).unwrap();
    let good = good.display().to_string();
    let mut wizard = with_file(good.as_ref());
    let refuse = |wizard: &mut Wizard, row: usize, path: &str| {
        wizard.select(row);
        wizard.type_in(path);
        let Outcome::Look(look) = wizard.enter() else {
            panic!("{:?}", wizard.error());
        };
        assert_eq!(wizard.on_inspected(look.now(None)), Outcome::Stay);
    };
    refuse(&mut wizard, 2, "no/such/model");
    assert_eq!(wizard.answers().start, None);
    // It stays to be corrected, and is nobody's answer.
    assert_eq!(wizard.answers().start_path, "no/such/model");
    let kept = |wizard: &Wizard| Answers::from_json(&wizard.to_remember());
    assert_eq!(kept(&wizard).start_path, "");
    assert_eq!(kept(&wizard).data_path, good);
    wizard.go_to(Step::Data);
    refuse(&mut wizard, 1, "no/such/text.txt");
    assert_eq!(kept(&wizard).data_path, good);
    // Nor is it one when another row is chosen.
    wizard.select(0);
    until(&mut wizard, Step::Start);
    wizard.select(0);
    until(&mut wizard, Step::Settings);
    assert_eq!(kept(&wizard).data_path, good);
    assert_eq!(kept(&wizard).start_path, "");
    wizard.set("train.max_steps", "many");
    wizard.set("seed", "7");
    let settings = kept(&wizard).settings;
    assert_eq!(settings.keys().collect::<Vec<_>>(), ["seed"]);
}

/// Whoever goes on to another row, or types on, while a path is looked at is not answered for.
#[test]
fn what_was_found_answers_only_the_row_that_asked() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("own.txt");
    std::fs::write(&path, "To be, or not to be.\n".repeat(400)).unwrap();
    let (mut wizard, look) = looking_at(&path);
    let seen = look.now(None);
    let mut elsewhere = wizard.clone();
    elsewhere.select(3);
    assert_eq!(elsewhere.on_inspected(seen.clone()), Outcome::Stay);
    assert_eq!(elsewhere.answers().data, None);
    let mut typing = wizard.clone();
    typing.type_in("own");
    assert_eq!(typing.on_inspected(seen.clone()), Outcome::Stay);
    assert_eq!(typing.error(), None);
    assert_eq!(wizard.on_inspected(seen), Outcome::Moved);
}

#[test]
fn a_model_too_large_for_the_machine_is_told_so_where_it_is_chosen() {
    let row = r#"{"prompt": "To be?", "completion": "Or not to be."}"#;
    let dir = tempfile::tempdir().unwrap();
    let mut wizard = with_rows(dir.path(), row);
    wizard.context.machine.memory = Some(1 << 10);
    wizard.answers.goal = Some(Goal::Instructions);
    until(&mut wizard, Step::Start);
    wizard.select(1);
    wizard.type_in(&model_folder(dir.path()));
    let Outcome::Look(look) = wizard.enter() else {
        panic!("{:?}", wizard.error());
    };
    assert_eq!(wizard.on_inspected(look.now(None)), Outcome::Stay);
    let why = wizard.error().unwrap();
    assert!(why.contains("a smaller model, or more memory"), "{why}");
}

/// The last question refused what the second had accepted.
#[test]
fn a_row_that_no_run_reads_is_refused_where_the_data_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let good = r#"{"messages": [{"role": "user", "content": "To be?"}, {"role": "assistant", "content": "Or not."}]}"#;
    let bad = r#"{"messages": "hello"}"#;
    for (before, at) in [(1, 2), (70, 71)] {
        let path = dir.path().join(format!("bad{before}.jsonl"));
        let rows = format!("{}{bad}\n{good}\n", format!("{good}\n").repeat(before));
        std::fs::write(&path, rows).unwrap();
        let (mut wizard, look) = looking_at(&path);
        assert_eq!(wizard.on_inspected(look.now(None)), Outcome::Stay);
        let error = wizard.error().unwrap_or_default();
        assert!(
            error.contains(&format!("bad{before}.jsonl:{at}")),
            "{error}"
        );
    }
}
