//! Defaults fit the goal, the data and the model they are for.

use super::*;
use crate::data::tokenizer::{Marks, TokenizerConfig};
use std::path::Path;

/// A base model as most are: its texts end with a token, and it brings no template.
pub(super) fn base(dir: &Path, seq_len: usize, markers: &str) -> String {
    let folder = model_folder(dir);
    let at = Path::new(&folder);
    let config = serde_json::json!({"model_type": "gpt2", "llmtui": {"model": {
        "n_layer": 3, "n_head": 2, "d_model": 48, "seq_len": seq_len, "vocab_size": 300}}});
    std::fs::write(at.join("config.json"), config.to_string()).unwrap();
    let settings = serde_json::json!({"bpe": {"vocab_size": 300, "chat_markers": markers}});
    let settings: TokenizerConfig = serde_json::from_value(settings).unwrap();
    let tokenizer = settings.build("a text", "a text").unwrap();
    let marks = Marks {
        eos: Some("<|endoftext|>".into()),
        ..Marks::default()
    };
    let tokenizer = tokenizer.with_marks(marks).unwrap();
    std::fs::write(at.join("tokenizer.json"), tokenizer.to_json()).unwrap();
    let marks = serde_json::json!({"eos_token": "<|endoftext|>"});
    std::fs::write(at.join("tokenizer_config.json"), marks.to_string()).unwrap();
    folder
}

/// The spec that Enter makes of data, a goal and a base model.
fn made(file: &Path, goal: Goal, model: &str) -> Wizard {
    let mut wizard = with_file(file);
    wizard.answers.goal = Some(goal);
    until(&mut wizard, Step::Start);
    wizard.select(1);
    wizard.type_in(model);
    until(&mut wizard, Step::Finish);
    wizard
}

const CHAT: &str = r#"{"messages": [{"role": "user", "content": "To be?"}, {"role": "assistant", "content": "Or not."}]}"#;

/// ChatML's marks are pieces of text to most base models: no answer would end with a token, and preflight would say so.
#[test]
fn conversations_of_a_base_model_end_with_a_token_that_it_has() {
    for (markers, template) in [("none", "plain"), ("chatml", "chatml")] {
        let dir = tempfile::tempdir().unwrap();
        let model = base(dir.path(), 256, markers);
        let file = dir.path().join("chat.jsonl");
        std::fs::write(&file, format!("{CHAT}\n").repeat(300)).unwrap();
        let wizard = made(&file, Goal::Instructions, &model);
        let (draft, _) = wizard.draft().unwrap();
        assert_eq!(draft.value("data.template"), template);
    }
}

/// The labels are what is learned; a table of texts and labels was read as plain text.
#[test]
fn who_classifies_learns_the_labels() {
    let dir = tempfile::tempdir().unwrap();
    let model = base(dir.path(), 128, "none");
    let file = dir.path().join("cls.csv");
    std::fs::write(
        &file,
        format!(
            "text,label\n{}",
            "a good day,pos\na bad day,neg\n".repeat(100)
        ),
    )
    .unwrap();
    let wizard = made(&file, Goal::Classify, &model);
    let (draft, _) = wizard.draft().unwrap();
    assert_eq!(plain_method(&draft), "sft");
    let expected = serde_json::json!([{"path": file.display().to_string(), "format": "alpaca",
        "columns": {"instruction": "text", "output": "label"}}]);
    assert_eq!(draft.value("data.sources"), expected);
    assert_eq!(draft.value("data.template"), "plain");
    assert!(
        crate::spec::load_text("x.yaml", &wizard.yaml().unwrap(), &SpecSources::default()).is_ok()
    );
    // The same rows are texts to who wants their domain known.
    let wizard = made(&file, Goal::Knowledge, &model);
    let (draft, _) = wizard.draft().unwrap();
    assert_eq!(plain_method(&draft), "pretrain");
}

fn plain_method(draft: &crate::spec::Draft) -> String {
    let method = draft.value("method");
    let key = method
        .as_object()
        .and_then(|map| map.keys().next().cloned());
    key.unwrap_or_else(|| method.as_str().unwrap_or_default().to_string())
}

/// The held-out share of few short texts is less than a row of the model's context: nothing would be left to validate on.
#[test]
fn rows_of_text_have_a_context_that_their_held_out_share_fills() {
    let dir = tempfile::tempdir().unwrap();
    let model = base(dir.path(), 128, "none");
    let file = dir.path().join("texts.jsonl");
    std::fs::write(&file, "{\"text\": \"a text of a few words\"}\n".repeat(60)).unwrap();
    let wizard = made(&file, Goal::Knowledge, &model);
    let spec = wizard.draft().unwrap().0.spec().unwrap();
    let tokens = 60.0 * "a text of a few words".len() as f64;
    let held_out = spec.data.val_fraction * tokens;
    assert!(
        (spec.model.seq_len as f64) < held_out,
        "{} of {held_out}",
        spec.model.seq_len
    );
}

/// The recipe's answers of 320 tokens do not fit a context of 128: Enter was refused with a key that was no row.
#[test]
fn answers_of_the_models_own_fit_its_context() {
    let dir = tempfile::tempdir().unwrap();
    let model = base(dir.path(), 128, "none");
    let file = dir.path().join("sums.jsonl");
    let row = "{\"question\": \"What is 3 + 4?\", \"answer\": \"7\"}\n";
    std::fs::write(&file, row.repeat(300)).unwrap();
    let wizard = made(&file, Goal::Reasoning, &model);
    let (draft, _) = wizard.draft().unwrap();
    let spec = draft.spec().unwrap();
    let longest = spec.rollout_length().unwrap().max_new_tokens;
    assert!((32..128).contains(&longest), "{longest}");
    let words: Vec<&str> = wizard.knobs().iter().map(|knob| knob.word()).collect();
    assert!(words.contains(&"max_new_tokens"), "{words:?}");
}

/// Answers of another goal were the defaults: Enter alone made a fine-tuning of `train a model from scratch`.
#[test]
fn what_was_answered_for_one_goal_is_no_default_of_another() {
    let earlier = Answers {
        goal: Some(Goal::Instructions),
        data: Some(DataAnswer::Path),
        data_path: "chats.jsonl".into(),
        start: Some(crate::advisor::choose::Start::Base),
        start_path: "model".into(),
        ..Answers::default()
    };
    let mut wizard = Wizard::new(context(), earlier.clone());
    wizard.select(0);
    until(&mut wizard, Step::Finish);
    assert!(wizard.yaml().unwrap().contains("extends: quickstart"));
    // Those of the other goal are kept beside them.
    let kept = Answers::from_json(&wizard.to_remember());
    let mut again = Wizard::new(context(), kept);
    again.select(1);
    again.enter();
    assert_eq!(again.answers().data_path, "chats.jsonl");
    assert_eq!(again.answers().start_path, "model");
}

/// The settings that a failed check names are rows of the question that it leads back to.
#[test]
fn a_check_that_asks_for_a_template_leads_to_a_row_for_it() {
    let mut wizard = wizard();
    until(&mut wizard, Step::Finish);
    wizard.enter();
    let mut failed = Finding::fail("none", "no end", "look at rows; check data.template");
    failed.title = "Answers end".into();
    wizard.checked(failed, None);
    wizard.checks_over(Ok(()));
    wizard.enter();
    assert_eq!(wizard.step(), Step::Settings);
    let rows = wizard.question().rows;
    assert!(rows.iter().any(|row| row.title == "template"), "{rows:?}");
}

/// No row fitted the start model, and the plan said that no setting looks unusual.
#[test]
fn rows_that_the_start_model_cuts_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let told = |seq_len: usize, words: usize| {
        let model = base(dir.path(), seq_len, "none");
        let file = dir.path().join("long.jsonl");
        let answer = "word ".repeat(words);
        let row = serde_json::json!({"prompt": "To be?", "completion": answer});
        std::fs::write(&file, format!("{row}\n").repeat(300)).unwrap();
        let mut wizard = with_file(&file);
        wizard.answers.goal = Some(Goal::Instructions);
        until(&mut wizard, Step::Start);
        wizard.select(1);
        wizard.type_in(&model);
        until(&mut wizard, Step::Plan);
        let notes = wizard.question().notes;
        let advice = notes.into_iter().filter(|note| note.label == "Advice");
        let all: Vec<String> = advice.map(|note| note.text).collect();
        all.join("\n")
    };
    let advice = told(64, 400);
    let first = advice.lines().next().unwrap_or_default();
    assert!(first.contains("model.seq_len holds 64: about "), "{advice}");
    assert!(first.contains("% of their tokens are cut off"), "{advice}");
    assert!(!told(1_024, 20).contains("cut off"));
}

/// Enter, Enter, … trained a small model from random weights on ten thousand tokens of conversations.
#[test]
fn a_goal_that_needs_a_model_has_one_as_its_default_and_asks_for_it_before_its_size() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("chat.jsonl");
    std::fs::write(&file, format!("{CHAT}\n").repeat(300)).unwrap();
    let mut wizard = wizard();
    wizard.select(1);
    wizard.enter();
    assert_eq!(wizard.answers().goal, Some(Goal::Instructions));
    wizard.type_in(&file.display().to_string());
    until(&mut wizard, Step::Start);
    assert_eq!(wizard.selected(), 2);
    // Without a model there is advice on the method, and no question about sizes.
    until(&mut wizard, Step::Method);
    assert_eq!(wizard.enter(), Outcome::Moved);
    assert_eq!(wizard.step(), Step::Start);
    assert!(wizard.error().unwrap().contains("no model was named"));
    // Named, it goes on.
    let model = base(dir.path(), 256, "chatml");
    wizard.type_in(&model);
    until(&mut wizard, Step::Finish);
}

/// A spec was saved that `train` refused at once.
#[test]
fn a_context_beyond_the_start_models_is_refused_at_the_settings() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("chat.jsonl");
    std::fs::write(&file, format!("{CHAT}\n").repeat(300)).unwrap();
    let model = base(dir.path(), 256, "chatml");
    let mut wizard = made(&file, Goal::Instructions, &model);
    wizard.go_to(Step::Settings);
    wizard.set("model.seq_len", "257");
    assert_eq!(wizard.enter(), Outcome::Stay);
    let why = wizard.error().unwrap();
    assert!(why.contains("the base model supports 256"), "{why}");
    wizard.set("model.seq_len", "256");
    assert_eq!(wizard.enter(), Outcome::Moved, "{:?}", wizard.error());
}

/// `-s train.from=` another model met nine settings of the one before.
#[test]
fn a_spec_with_a_start_model_says_nothing_of_its_architecture() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("chat.jsonl");
    std::fs::write(&file, format!("{CHAT}\n").repeat(300)).unwrap();
    let model = base(dir.path(), 256, "chatml");
    let wizard = made(&file, Goal::Instructions, &model);
    let yaml = wizard.yaml().unwrap();
    for setting in ["n_layer", "n_head", "d_model", "vocab_size"] {
        assert!(!yaml.contains(setting), "{setting}: {yaml}");
    }
    assert!(yaml.contains("from: "), "{yaml}");
    // Its plan is that of the model all the same.
    let (draft, _) = wizard.draft().unwrap();
    assert_eq!(draft.value("model.n_layer"), 3);
}
