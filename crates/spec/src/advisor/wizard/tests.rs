//! The wizard by example and by property: going back and forth never loses an answer, errors stay at their rows.

mod columns;
mod data;
mod fitting;
mod forms;
mod imports;
mod lengths;
mod refused;
mod rewards;

use super::*;
use crate::advisor::choose::{Goal, MethodId};
use crate::advisor::inspection::Machine;
use crate::base::finding::{Finding, Status};
use crate::base::rng::{Rng, Stream};
use crate::spec::SpecSources;

fn context() -> Context {
    let summary = crate::hardware::Summary {
        cores: 2,
        ram_bytes: 24 << 30,
        ..Default::default()
    };
    let machine = Machine::of(summary, Default::default());
    Context::gather(&SpecSources::default(), None, machine)
}

/// A checkpoint of a run; `letters`: all that its vocabulary has.
fn offer(path: &str, letters: Option<&str>) -> Offer {
    use crate::advisor::inspection::Letters;
    Offer {
        path: path.into(),
        chats: false,
        letters: letters.map_or(Letters::Any, |text| Letters::Only(text.chars().collect())),
    }
}

fn wizard() -> Wizard {
    Wizard::new(context(), Answers::default())
}

/// A wizard that was told of this file, and what it looks at before it goes on.
fn looking_at(path: &std::path::Path) -> (Wizard, InspectRequest) {
    let mut wizard = wizard();
    wizard.enter();
    wizard.select(1);
    wizard.type_in(&path.display().to_string());
    let Outcome::Look(look) = wizard.enter() else {
        panic!("{:?}", wizard.error());
    };
    (wizard, look)
}

/// The same, gone on.
fn with_file(path: &std::path::Path) -> Wizard {
    let (mut wizard, look) = looking_at(path);
    wizard.on_inspected(look.now(None));
    wizard
}

/// A wizard that was told of a file with these rows, three hundred times.
fn with_rows(dir: &std::path::Path, row: &str) -> Wizard {
    let path = dir.join("chat.jsonl");
    std::fs::write(&path, format!("{row}\n").repeat(300)).unwrap();
    with_file(&path)
}

/// A model folder without weights that matter: a description is enough for the questions.
fn model_folder(dir: &std::path::Path) -> String {
    let folder = dir.join("model");
    std::fs::create_dir_all(&folder).unwrap();
    let config = serde_json::json!({"model_type": "gpt2", "llmtui": {"model": {
        "n_layer": 3, "n_head": 2, "d_model": 48, "seq_len": 2048, "vocab_size": 5000}}});
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    std::fs::write(folder.join("model.safetensors"), vec![0; 4_000]).unwrap();
    std::fs::write(folder.join("tokenizer.json"), "{}").unwrap();
    folder.display().to_string()
}

/// Presses Enter until the step; looks where it is asked to.
fn until(wizard: &mut Wizard, step: Step) {
    for _ in 0..20 {
        if wizard.step() == step {
            return;
        }
        if let Outcome::Look(look) = wizard.enter() {
            wizard.on_inspected(look.now(None));
        }
        assert_eq!(wizard.error(), None, "at {:?}", wizard.step());
    }
    panic!("{step:?} was not reached, but {:?}", wizard.step());
}

#[test]
fn a_goal_that_needs_rows_begins_at_a_file_of_ones_own() {
    for (goal, row) in Goal::ALL.iter().zip(0..) {
        let mut wizard = wizard();
        wizard.select(row);
        wizard.enter();
        assert_eq!(wizard.step(), Step::Data);
        let built_in = *goal == Goal::NewModel;
        assert_eq!(wizard.selected(), usize::from(!built_in), "{goal:?}");
    }
}

#[test]
fn enter_alone_leads_to_a_running_quickstart() {
    let mut wizard = wizard();
    until(&mut wizard, Step::Finish);
    let Outcome::Check { yaml: checked, .. } = wizard.enter() else {
        panic!("{:?}", wizard.error());
    };
    assert_eq!(
        wizard.enter(),
        Outcome::Stay,
        "the checks are still running"
    );
    wizard.checked(line(Status::Pass), None);
    wizard.checks_over(Ok(()));
    let Outcome::Start { name, yaml, force } = wizard.enter() else {
        panic!("{:?}", wizard.error());
    };
    assert_eq!(
        (name.as_str(), &yaml, force),
        ("quickstart", &checked, false)
    );
    assert!(yaml.contains("extends: quickstart\n") && yaml.starts_with("# Created by"));
    let loaded = crate::spec::load_text("x.yaml", &yaml, &SpecSources::default()).unwrap();
    let preset = crate::spec::load("quickstart", &[], &SpecSources::default()).unwrap();
    assert_eq!(loaded.spec, preset.spec);
}

/// A thousand random keys: the answers that Enter gave stay until another Enter at the same question replaces them, and
/// no key panics.
#[test]
fn forth_and_back_never_loses_an_answer() {
    let mut wizard = wizard();
    let mut given = [None; Step::ALL.len()];
    let mut pages = std::collections::HashSet::new();
    for i in 0..1_000u64 {
        let draw = Rng::new(7, Stream::Test, i, 0).below(1 << 20);
        let step = wizard.step();
        match draw % 5 {
            0 | 1 => {
                let row = wizard.selected();
                let kept = wizard.answers().clone();
                if wizard.enter() == Outcome::Moved && wizard.step() != step {
                    given[step as usize] = Some(row);
                } else {
                    assert_eq!(kept.settings, wizard.answers().settings);
                }
            }
            2 => {
                let kept = wizard.answers().clone();
                wizard.back();
                assert_eq!(*wizard.answers(), kept, "back changed an answer");
            }
            _ => wizard.select((draw / 5 % 9) as usize),
        }
        if let Some(row) = given[Step::Goal as usize] {
            assert_eq!(wizard.answers().goal, Goal::ALL.get(row).copied());
        }
        // A page follows from these: one that was there before is the same again.
        let (at, error) = ((wizard.step(), wizard.selected()), wizard.error());
        if pages.insert(format!("{at:?} {error:?} {:?}", wizard.answers())) {
            assert!(wizard.selected() <= wizard.question().rows.len());
        }
    }
}

fn line(status: Status) -> Finding {
    Finding {
        status,
        ..Finding::fail("loss 4.17 → 4.16", "gradients do not reach the weights", "")
            .named("overfit", "Can overfit one batch")
    }
}

#[test]
fn a_failed_check_is_explained_and_leads_back_to_the_settings() {
    let mut wizard = wizard();
    until(&mut wizard, Step::Finish);
    assert!(matches!(wizard.enter(), Outcome::Check { .. }));
    wizard.checked(line(Status::Pass), None);
    wizard.checked(line(Status::Fail), None);
    wizard.checks_over(Ok(()));
    let question = wizard.question();
    assert_eq!(question.rows[0].title, "back to the settings");
    let labels: Vec<&str> = question.notes.iter().map(|n| n.label).collect();
    assert_eq!(labels, ["failed", "passed"]);
    assert!(
        wizard
            .error()
            .unwrap()
            .contains("loss 4.17 → 4.16; gradients")
    );
    assert_eq!(wizard.enter(), Outcome::Moved);
    assert_eq!(wizard.step(), Step::Settings);
    assert!(wizard.error().unwrap().contains("overfit"));
    // It can be trained all the same, as with --force.
    let mut other = wizard.clone();
    until(&mut other, Step::Finish);
    other.enter();
    other.checked(line(Status::Fail), None);
    assert_eq!(other.question().rows.len(), 1, "not before all completed");
    other.checks_over(Ok(()));
    let row = other.question().rows[1].clone();
    assert_eq!(row.title, "train anyway");
    assert!(row.detail.contains("Can overfit one batch"), "{row:?}");
    other.select(1);
    assert!(matches!(other.enter(), Outcome::Start { force: true, .. }));
    // The next round starts over, and one that cannot be made says why.
    until(&mut wizard, Step::Finish);
    wizard.enter();
    assert!(wizard.checks().lines.is_empty());
    wizard.checks_over(Err("no such program".into()));
    assert!(wizard.error().unwrap().contains("no such program"));
}

#[test]
fn another_tools_config_is_reported_then_taken_over_and_left_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("qwen.yaml");
    std::fs::write(&path, "stage: pt\nlearning_rate: 2.0e-4\nmax_steps: 70\n").unwrap();
    let mut wizard = wizard();
    wizard.select(Goal::ALL.len());
    wizard.type_in("absent.yaml");
    let Outcome::Look(look) = wizard.enter() else {
        panic!("{:?}", wizard.error());
    };
    wizard.on_inspected(look.now(None));
    assert!(wizard.error().unwrap().contains("does not exist"));
    wizard.type_in(&path.display().to_string());
    let Outcome::Look(look) = wizard.enter() else {
        panic!("{:?}", wizard.error());
    };
    assert_eq!(wizard.on_inspected(look.now(None)), Outcome::Stay);
    let notes = wizard.question().notes;
    assert!(
        notes
            .iter()
            .any(|n| n.label == "same" && n.text.contains("max_steps: 70")),
        "{notes:?}"
    );
    assert_eq!(wizard.enter(), Outcome::Moved);
    assert_eq!(wizard.step(), Step::Settings);
    until(&mut wizard, Step::Finish);
    let yaml = wizard.yaml().unwrap();
    assert!(
        yaml.contains("max_steps: 70") && yaml.contains("(llama-factory)"),
        "{yaml}"
    );
    assert!(matches!(wizard.enter(), Outcome::Check { .. }));
    wizard.go_to(Step::Settings);
    wizard.back();
    assert_eq!(
        (wizard.step(), wizard.selected()),
        (Step::Goal, Goal::ALL.len())
    );
    wizard.select(0);
    wizard.enter();
    assert_eq!(wizard.step(), Step::Data);
}

#[test]
fn settings_typed_for_other_data_are_nobodys() {
    let dir = tempfile::tempdir().unwrap();
    let mut wizard = with_rows(dir.path(), r#"{"text": "To be, or not to be."}"#);
    until(&mut wizard, Step::Settings);
    wizard.set("train.max_steps", "61");
    let mut again = Wizard::new(context(), wizard.answers().clone());
    until(&mut again, Step::Settings);
    assert_eq!(again.answers().settings["train.max_steps"], "61");
    again.go_to(Step::Data);
    again.select(0);
    until(&mut again, Step::Settings);
    assert!(again.answers().settings.is_empty());
}

#[test]
fn going_back_shows_the_answer_that_was_given() {
    let mut wizard = wizard();
    wizard.select(3);
    wizard.enter();
    wizard.select(0);
    wizard.back();
    assert_eq!((wizard.step(), wizard.selected()), (Step::Goal, 3));
    assert_eq!(wizard.back(), Outcome::Close);
    let remembered = Wizard::new(context(), wizard.answers().clone());
    assert_eq!(remembered.selected(), 3);
}

#[test]
fn a_text_of_ones_own_shapes_the_spec_and_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("My poems.txt");
    std::fs::write(
        &path,
        "To be, or not to be: that is the question.\n".repeat(400),
    )
    .unwrap();
    let mut wizard = wizard();
    wizard.enter();
    wizard.select(1);
    wizard.type_in(&path.display().to_string());
    let Outcome::Look(look) = wizard.enter() else {
        panic!("{:?}", wizard.error());
    };
    assert_eq!(wizard.on_inspected(look.now(None)), Outcome::Moved);
    until(&mut wizard, Step::Finish);
    let yaml = wizard.yaml().unwrap();
    assert!(yaml.contains("name: My-poems\n"), "{yaml}");
    assert!(yaml.contains("epochs over your data"), "{yaml}");
    let spec = crate::spec::load_text("x", &yaml, &SpecSources::default())
        .unwrap()
        .spec;
    let steps = spec.train.max_steps;
    assert!(steps < 2_000 && spec.eval.every.steps(steps) <= steps);
    assert_eq!(spec.data.path.as_deref(), Some(path.as_path()));
    assert!(spec.advice().is_empty(), "{:?}", spec.advice());
}

#[test]
fn what_is_wrong_is_said_at_its_row_and_stays_as_typed() {
    let mut wizard = wizard();
    wizard.enter();
    wizard.select(1);
    assert_eq!(wizard.enter(), Outcome::Stay);
    assert!(wizard.error().unwrap().contains("which file"));
    wizard.type_in("no/such/file.txt");
    let Outcome::Look(look) = wizard.enter() else {
        panic!()
    };
    assert_eq!(wizard.on_inspected(look.now(None)), Outcome::Stay);
    assert!(wizard.error().unwrap().contains("does not exist"));
    assert_eq!(
        wizard.question().rows[1].input.as_ref().unwrap().text,
        "no/such/file.txt"
    );
    wizard.select(0);
    until(&mut wizard, Step::Settings);
    wizard.select(1);
    wizard.type_in("many");
    assert_eq!(wizard.enter(), Outcome::Stay);
    let question = wizard.question();
    assert!(
        question.rows[1]
            .fault
            .as_ref()
            .unwrap()
            .contains("whole number")
    );
    assert_eq!(question.rows[1].input.as_ref().unwrap().text, "many");
    wizard.type_in("");
    assert_eq!(wizard.enter(), Outcome::Moved);
}

/// A contradiction between two values stops at the field that it is about.
#[test]
fn contradictions_bring_the_cursor_to_their_field() {
    let mut wizard = wizard();
    until(&mut wizard, Step::Settings);
    wizard.set("model.n_head", "5");
    assert_eq!(wizard.enter(), Outcome::Stay);
    let question = wizard.question();
    assert_eq!(question.rows[wizard.selected()].title, "n_head");
    assert!(question.rows[wizard.selected()].fault.is_some());
}

#[test]
fn a_method_of_another_build_is_advised_marked_and_the_nearest_offered() {
    let mut wizard = wizard();
    wizard.select(1);
    wizard.enter();
    wizard.select(2);
    wizard.enter();
    wizard.select(1);
    wizard.type_in("");
    assert_eq!(wizard.enter(), Outcome::Moved);
    let list = wizard.advice();
    assert_eq!(list[0].facts.id, MethodId::Sft);
    if !list[0].available {
        assert!(
            wizard.question().rows[0]
                .detail
                .contains("not in this build")
        );
        assert_eq!(wizard.enter(), Outcome::Stay);
        assert!(wizard.error().unwrap().contains("closest"));
    }
}

#[test]
fn a_checkpoint_as_start_brings_its_model_its_tokenizer_and_a_lower_rate() {
    let dir = tempfile::tempdir().unwrap();
    let config = serde_json::json!({"model_type": "gpt2", "llmtui": {"model": {
        "n_layer": 2, "n_head": 2, "d_model": 32, "seq_len": 32, "vocab_size": 65}}});
    std::fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
    std::fs::write(dir.path().join("model.safetensors"), vec![0; 4_000]).unwrap();
    std::fs::write(dir.path().join("tokenizer.json"), "{}").unwrap();
    let mut wizard = wizard();
    wizard.select(0);
    wizard.enter();
    wizard.enter();
    wizard.select(1);
    wizard.type_in(&dir.path().display().to_string());
    let Outcome::Look(look) = wizard.enter() else {
        panic!()
    };
    assert_eq!(
        wizard.on_inspected(look.now(None)),
        Outcome::Moved,
        "{:?}",
        wizard.error()
    );
    until(&mut wizard, Step::Settings);
    let (draft, wrong) = wizard.draft().unwrap();
    assert!(wrong.is_empty());
    assert_eq!(draft.value("model.n_layer"), 2);
    assert_eq!(draft.value("optimizer.adamw.lr"), 1e-4);
    assert_eq!(draft.value("data.tokenizer"), "file");
    assert_eq!(wizard.answers().method, Some(MethodId::ContinuedPretrain));
    let asked: Vec<String> = wizard
        .question()
        .rows
        .iter()
        .map(|r| r.title.clone())
        .collect();
    assert!(
        !asked.contains(&"n_layer".to_string()),
        "the model is given"
    );
}

#[test]
fn every_step_has_a_title_and_notes_or_text_at_every_row() {
    let mut wizard = wizard();
    for step in wizard.steps().collect::<Vec<_>>() {
        until(&mut wizard, step);
        let n = wizard.question().rows.len().max(1);
        for row in 0..n {
            wizard.select(row);
            let question = wizard.question();
            assert!(!question.title.is_empty());
            assert!(
                !question.notes.is_empty() || !question.text.is_empty(),
                "{step:?} {row}"
            );
        }
        wizard.select(0);
    }
}

/// What was derived from fewer steps stayed when other steps were typed: a warm-up of 5 of 1,200.
#[test]
fn warm_up_and_cadences_follow_steps_that_are_typed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("own.txt");
    std::fs::write(&path, "to be or not to be ".repeat(300)).unwrap();
    let mut wizard = with_file(&path);
    until(&mut wizard, Step::Settings);
    let value = |wizard: &Wizard, path: &str| {
        let (draft, _) = wizard.draft().unwrap();
        draft
            .value(&draft.resolve_wildcard(path).unwrap())
            .as_u64()
            .unwrap()
    };
    let paths = ["schedule.*.warmup_steps", "eval.every", "sample.every"];
    let few = paths.map(|path| value(&wizard, path));
    assert!(value(&wizard, "train.max_steps") < 1_200);
    wizard.set("train.max_steps", "1200");
    let more = paths.map(|path| value(&wizard, path));
    assert!(
        more.iter().zip(few).all(|(more, few)| *more > few),
        "{few:?} {more:?}"
    );
    assert_eq!(more[0], 60, "a twentieth of the steps");
    // What was typed stays.
    wizard.set("schedule.*.warmup_steps", "7");
    assert_eq!(value(&wizard, "schedule.*.warmup_steps"), 7);
    wizard.set("train.max_steps", "2000");
    assert!(!wizard.yaml().unwrap().contains("fewer steps"));
}

#[test]
fn a_run_in_a_models_place_becomes_its_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let row = r#"{"messages": [{"role": "user", "content": "To be?"}, {"role": "assistant", "content": "Or not to be."}]}"#;
    let mut wizard = with_rows(dir.path(), row);
    until(&mut wizard, Step::Start);
    wizard.select(1);
    wizard.type_in("my-sft");
    let Outcome::Look(InspectRequest::Model { path, .. }) = wizard.enter() else {
        panic!("{:?}", wizard.error());
    };
    assert_eq!(path, PathBuf::from("my-sft"));
    let none = Inspection::Run(path.clone(), Err("the run my-sft has no checkpoint".into()));
    wizard.on_inspected(none);
    assert!(wizard.error().unwrap().contains("no checkpoint"));
    wizard.enter();
    let model = model_folder(dir.path());
    let Outcome::Look(look) = wizard.on_inspected(Inspection::Run(path, Ok(model.clone().into())))
    else {
        panic!("{:?}", wizard.error());
    };
    assert_eq!(wizard.on_inspected(look.now(None)), Outcome::Moved);
    assert!(wizard.yaml().unwrap().contains(&model));
}

/// A quickstart of 65 characters was the default for chats with digits in them, and was refused as often as Enter was pressed.
#[test]
fn a_checkpoint_that_cannot_read_the_data_is_not_offered_for_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("chats.jsonl");
    let row = r#"{"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]}"#;
    std::fs::write(&path, format!("{row}\n").repeat(20)).unwrap();
    let toy = offer(
        "runs/toy/checkpoints/step-000010",
        Some(crate::advisor::inspection::PLAIN),
    );
    let able = offer("runs/able/checkpoints/step-000010", None);
    let started = |offers: Vec<Offer>| {
        let mut wizard = Wizard::new(
            Context {
                offers,
                ..context()
            },
            Answers::default(),
        );
        let before = wizard.answers().start_path.clone();
        wizard.enter();
        wizard.select(1);
        wizard.type_in(&path.display().to_string());
        let Outcome::Look(look) = wizard.enter() else {
            panic!("{:?}", wizard.error());
        };
        wizard.on_inspected(look.now(None));
        assert_eq!(wizard.step(), Step::Start);
        (before, wizard)
    };
    let offered = |wizard: &Wizard| wizard.answers().start_path.clone();
    let (before, wizard) = started(vec![toy.clone(), able.clone()]);
    assert_eq!((before, offered(&wizard)), (toy.path.clone(), able.path));
    let (_, mut wizard) = started(vec![toy]);
    assert_eq!(offered(&wizard), "", "none can");
    // What was typed stays, whatever it can read.
    wizard.select(1);
    wizard.type_in("models/mine");
    wizard.back();
    wizard.enter();
    assert_eq!(
        (wizard.step(), offered(&wizard).as_str()),
        (Step::Start, "models/mine")
    );
}

#[test]
fn a_start_model_that_was_only_offered_is_not_remembered() {
    let offered = Context {
        offers: vec![offer("runs/a/checkpoints/step-000010", None)],
        ..context()
    };
    let wizard = Wizard::new(offered.clone(), Answers::default());
    let kept = Answers::from_json(&wizard.to_remember());
    assert_eq!(kept.start_path, "");
    let typed = Answers {
        start_path: "models/mine".into(),
        ..Answers::default()
    };
    let wizard = Wizard::new(offered, typed);
    let kept = Answers::from_json(&wizard.to_remember());
    assert_eq!(kept.start_path, "models/mine");
}

#[test]
fn a_method_chosen_for_another_goal_is_no_answer_to_this_one() {
    let dir = tempfile::tempdir().unwrap();
    let at_method = |goal, row: &str, remembered: Answers| {
        let mut wizard = with_rows(dir.path(), row);
        let before = std::mem::replace(&mut wizard.answers, remembered);
        wizard.answers.goal = Some(goal);
        wizard.answers.data = before.data;
        wizard.answers.data_path = before.data_path;
        until(&mut wizard, Step::Start);
        wizard.select(2);
        wizard.type_in(&model_folder(dir.path()));
        until(&mut wizard, Step::Method);
        wizard
    };
    let selected = |wizard: &Wizard| wizard.advice()[wizard.selected()].title();
    let chats = r#"{"messages": [{"role": "user", "content": "To be?"}, {"role": "assistant", "content": "Or not to be."}]}"#;
    let pairs = r#"{"prompt": "To be?", "chosen": "Or not to be.", "rejected": "Yes."}"#;
    let mut first = at_method(Goal::Instructions, chats, Answers::default());
    let full = first.advice().iter().position(|a| a.title() == "SFT, full");
    first.select(full.unwrap());
    first.enter();
    let remembered = Answers::from_json(&first.to_remember());
    let same = at_method(Goal::Instructions, chats, remembered.clone());
    assert_eq!(selected(&same), "SFT, full");
    let other = at_method(Goal::Style, pairs, remembered);
    assert_eq!(
        selected(&other),
        selected(&at_method(Goal::Style, pairs, Answers::default()))
    );
    assert_ne!(selected(&other), "SFT, full");
}
