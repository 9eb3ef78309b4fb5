//! The editor: keys in, values out.

use super::*;
use crate::spec::SpecSources;

fn editor() -> Editor {
    Editor::new(Draft::open("quickstart", &SpecSources::default()).unwrap())
}

fn search(editor: &mut Editor, text: &str) {
    editor.act(Action::SearchSpec);
    editor.field.clear();
    editor.paste(text);
    editor.act(Action::Accept);
}

fn say(editor: &mut Editor, path: &str, text: &str) {
    search(editor, path);
    editor.act(Action::Accept);
    editor.field.clear();
    editor.paste(text);
    editor.act(Action::Accept);
}

#[test]
fn a_value_is_found_changed_taken_back_and_brought_again() {
    let mut editor = editor();
    say(&mut editor, "train.max_steps", "77");
    assert_eq!(editor.draft.value("train.max_steps"), 77);
    editor.act(Action::UndoEdit);
    assert_eq!(editor.draft.value("train.max_steps"), 2000);
    editor.act(Action::RedoEdit);
    assert_eq!(editor.draft.value("train.max_steps"), 77);
    editor.act(Action::ResetValue);
    assert!(editor.draft.changes().is_empty());
    editor.act(Action::UndoEdit);
    assert_eq!(editor.draft.changes().len(), 1);
}

#[test]
fn a_bad_value_keeps_the_field_open_and_the_old_value_in_force() {
    let mut editor = editor();
    say(&mut editor, "train.max_steps", "soon");
    assert_eq!(editor.mode, Mode::Edit);
    assert!(editor.error.as_ref().unwrap().contains("whole number"));
    assert_eq!(editor.field.text(), "soon");
    assert_eq!(editor.draft.value("train.max_steps"), 2000);
    editor.act(Action::Cancel);
    assert_eq!(editor.mode, Mode::Browse);
}

#[test]
fn a_run_in_a_models_place_becomes_its_checkpoint() {
    let mut editor = editor();
    say(&mut editor, "train.from", "");
    search(&mut editor, "train.from");
    editor.act(Action::Accept);
    editor.paste("my-sft");
    let asked = editor.act(Action::Accept);
    let (place, said) = ("train.from".to_string(), "my-sft".to_string());
    let effect = Effect::ModelOfRun { place: place.clone(), said: said.clone() };
    assert_eq!(asked, Reply::Do(effect));
    let found = |found| Msg::ModelOfRun { place: place.clone(), said: said.clone(), found };
    editor.incoming(&found(Some(Err("the run my-sft has no checkpoint".into()))));
    assert!(editor.error.as_ref().unwrap().contains("no checkpoint"));
    editor.incoming(&found(Some(Ok("runs/a/checkpoints/step-000010".into()))));
    assert_eq!(editor.draft.value("train.from"), "runs/a/checkpoints/step-000010");
    // What was typed since stays.
    editor.incoming(&found(Some(Ok("elsewhere".into()))));
    assert_eq!(editor.draft.value("train.from"), "runs/a/checkpoints/step-000010");
    editor.act(Action::UndoEdit);
    assert!(editor.draft.value("train.from").is_null());
}

#[test]
fn runs_in_a_list_of_rewards_are_reward_models() {
    let mut editor = editor();
    search(&mut editor, "rewards");
    editor.act(Action::Accept);
    let typed = "[exact, {model: {path: my-rm}, weight: 0.5}, {model: {path: other}, name: two}]";
    editor.field.set(typed);
    let asks = |said: &str| {
        Reply::Do(Effect::ModelOfRun {
            place: "rewards".into(),
            said: said.into(),
        })
    };
    let found = |said: &str, found| Msg::ModelOfRun {
        place: "rewards".into(),
        said: said.into(),
        found,
    };
    assert_eq!(editor.act(Action::Accept), asks("other"), "{:?}", editor.error);
    // A folder is none, and the next one is asked for.
    assert_eq!(editor.incoming(&found("other", None)), Some(asks("my-rm")));
    let checkpoint = "runs/a/checkpoints/step-000010".into();
    assert_eq!(editor.incoming(&found("my-rm", Some(Ok(checkpoint)))), Some(Reply::Stay));
    let rewards = editor.draft.said("rewards").unwrap();
    assert_eq!(rewards[1]["model"]["path"], "runs/a/checkpoints/step-000010");
    assert_eq!(rewards[2]["model"]["path"], "other");
    assert_eq!(rewards[1]["weight"], 0.5);
    editor.incoming(&found("other", Some(Err("other has no checkpoint".into()))));
    assert!(editor.error.as_ref().unwrap().contains("no checkpoint"));
}

/// `/batch` began with a key that nobody sets.
#[test]
fn what_the_spec_sets_is_found_before_what_it_leaves() {
    let mut editor = editor();
    search(&mut editor, "batch");
    let places = editor.places();
    let at = |path: &str| places.iter().position(|place| place.path == path).unwrap();
    assert!(at("train.micro_batch_size") < at("train.batch_ramp"));
    search(&mut editor, "seed");
    assert_eq!(editor.places()[0].path, "seed");
}

#[test]
fn words_go_round() {
    let mut editor = editor();
    search(&mut editor, "data.order");
    editor.act(Action::Accept);
    assert_eq!(editor.draft.value("data.order"), "shuffled");
    editor.act(Action::Accept);
    assert_eq!(editor.draft.value("data.order"), "random");
}

/// With members only, full fine-tuning could not be chosen in a preset with LoRA.
#[test]
fn a_choice_that_may_be_none_goes_round_to_none() {
    let draft = Draft::open("sft-lora", &SpecSources::default()).unwrap();
    let mut editor = Editor::new(draft);
    search(&mut editor, "adapter");
    let at = editor.places().iter().position(|place| place.path == "adapter");
    editor.selected = at.unwrap();
    editor.act(Action::Accept);
    assert!(editor.draft.value("adapter").is_null(), "{:?}", editor.error);
    let place = editor.draft.places().into_iter().find(|place| place.path == "adapter");
    assert_eq!(draw::origin_text(&place.unwrap(), "sft-lora"), "yours; sft-lora: lora");
    editor.act(Action::Accept);
    assert_eq!(editor.draft.value("adapter"), "lora");
}

#[test]
fn the_place_that_was_searched_stays_selected_without_the_search() {
    let mut editor = editor();
    search(&mut editor, "train.max_steps");
    editor.act(Action::Cancel);
    assert_eq!(editor.places()[editor.selected].path, "train.max_steps");
    editor.act(Action::SearchSpec);
    editor.field.clear();
    editor.paste("data.order");
    editor.act(Action::Cancel);
    assert_eq!(editor.places()[editor.selected].path, "data.order");
}

#[test]
fn unsaved_changes_are_worth_a_second_esc() {
    let mut editor = editor();
    say(&mut editor, "seed", "7");
    assert_eq!(
        editor.act(Action::Cancel),
        Reply::Stay,
        "esc clears the search"
    );
    assert_eq!(editor.act(Action::Cancel), Reply::Stay);
    assert!(editor.error.as_ref().unwrap().contains("1 unsaved change:"));
    assert_eq!(editor.act(Action::Cancel), Reply::Close);
    editor.saved();
    assert_eq!(editor.act(Action::Cancel), Reply::Close);
}

#[test]
fn what_was_saved_can_be_taken_back_and_the_next_file_has_a_name_of_its_own() {
    let mut editor = editor();
    say(&mut editor, "seed", "7");
    editor.act(Action::SaveSpec);
    editor.act(Action::Accept);
    editor.saved();
    // `quickstart.yaml` is there now.
    let asked = editor.act(Action::SaveSpec);
    assert_eq!(asked, Reply::Do(Effect::FreeName("quickstart.yaml".into())));
    let found = |of: &str| Msg::Completed {
        of: of.into(),
        path: "quickstart-2.yaml".into(),
        names: Vec::new(),
    };
    editor.incoming(&found("quickstart.yaml"));
    assert_eq!(editor.field.text(), "quickstart-2.yaml");
    // A name that was typed meanwhile stays.
    editor.field.set("mine.yaml");
    editor.incoming(&found("quickstart.yaml"));
    assert_eq!(editor.field.text(), "mine.yaml");
    editor.act(Action::Cancel);

    assert_eq!(editor.unsaved(), 0);
    editor.act(Action::UndoEdit);
    assert!(editor.error.is_none() && editor.draft.changes().is_empty());
    assert_eq!(editor.unsaved(), 1, "the file says another seed");
    editor.act(Action::RedoEdit);
    assert_eq!(editor.unsaved(), 0);
    say(&mut editor, "train.max_steps", "77");
    assert_eq!((editor.draft.changes().len(), editor.unsaved()), (2, 1));
}

#[test]
fn saving_and_starting_give_the_yaml() {
    let mut editor = editor();
    say(&mut editor, "seed", "7");
    editor.act(Action::SaveSpec);
    let Reply::Do(Effect::SaveSpec { path, yaml }) = editor.act(Action::Accept) else {
        panic!()
    };
    assert_eq!(path, std::path::Path::new("quickstart.yaml"));
    assert!(yaml.contains("seed: 7"));
    editor.saved();
    assert!(matches!(
        editor.act(Action::StartSpec),
        Reply::Chosen(Choice::StartSpec { .. })
    ));
    say(&mut editor, "model.n_head", "3");
    assert_eq!(editor.act(Action::StartSpec), Reply::Stay);
    let error = editor.error.as_ref().unwrap();
    for words in ["cannot be trained", "multiple", "; try: "] {
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn the_field_of_that_name_comes_first() {
    let mut editor = editor();
    for (query, first) in [
        ("d_model", "model.d_model"),
        ("seed", "seed"),
        ("train.max_steps", "train.max_steps"),
    ] {
        search(&mut editor, query);
        assert_eq!(editor.places()[0].path, first, "{query}");
    }
}

#[test]
fn a_choice_finds_its_field_behind_those_of_that_name() {
    let mut editor = editor();
    for (query, field) in [
        ("lora", "adapter"),
        ("sophia", "optimizer"),
        ("bf16", "train.precision"),
        ("shuffled", "data.order"),
    ] {
        search(&mut editor, query);
        assert_eq!(editor.places()[0].path, field, "{query}");
    }
    search(&mut editor, "adapter");
    editor.act(Action::Accept);
    editor.paste("lora");
    editor.act(Action::Accept);
    search(&mut editor, "lora");
    let paths: Vec<String> = editor.places().into_iter().map(|place| place.path).collect();
    let rank = paths.iter().position(|path| path == "adapter.lora.rank");
    assert!(rank < paths.iter().position(|path| path == "adapter"), "{paths:?}");
}

#[test]
fn only_changes_shows_only_changes() {
    let mut editor = editor();
    let all = editor.places().len();
    say(&mut editor, "seed", "7");
    search(&mut editor, "");
    editor.act(Action::OnlyChanges);
    assert_eq!((editor.places().len(), all > 30), (1, true));
}

/// One edit may move other values: the count in the title is of edits, and the rows say which is which.
#[test]
fn a_value_that_follows_an_edit_is_not_called_yours() {
    let mut editor = editor();
    say(&mut editor, "optimizer.adamw.lr", "0.002");
    search(&mut editor, "");
    editor.act(Action::OnlyChanges);
    let told: Vec<String> = editor
        .places()
        .iter()
        .map(|place| format!("{} {}", place.path, super::draw::origin_text(place, "quickstart")))
        .collect();
    assert_eq!(
        told,
        [
            "optimizer.adamw.lr yours; quickstart: 0.001",
            "schedule.cosine.min_lr follows; quickstart: 1e-4"
        ]
    );
}

#[test]
fn esc_leaves_the_view_of_changes_before_the_editor() {
    let sources = crate::spec::SpecSources::default();
    let mut editor = Editor::new(Draft::open("quickstart", &sources).unwrap());
    editor.act(Action::OnlyChanges);
    assert!(editor.places().is_empty(), "nothing is changed");
    assert_eq!(editor.act(Action::Cancel), Reply::Stay);
    assert!(!editor.places().is_empty());
    assert_eq!(editor.act(Action::Cancel), Reply::Close);
}

/// A set value moves up in a search, and a row that is no change any more leaves the list of changes.
#[test]
fn the_cursor_stays_on_its_place_when_a_change_moves_it() {
    let at = |editor: &Editor| editor.places()[editor.selected].path.clone();
    let mut editor = editor();
    search(&mut editor, "decay");
    let last = editor.places().iter().rposition(|place| place.path == "train.ema_decay");
    editor.selected = last.unwrap();
    editor.act(Action::Accept);
    editor.paste("0.99");
    editor.act(Action::Accept);
    assert_eq!((at(&editor).as_str(), &editor.error), ("train.ema_decay", &None));
    assert!(editor.selected < last.unwrap(), "it stands higher now");
    for action in [Action::UndoEdit, Action::RedoEdit, Action::ResetValue] {
        editor.act(action);
        assert_eq!(at(&editor), "train.ema_decay", "{action:?}");
    }
    say(&mut editor, "train.max_steps", "77");
    say(&mut editor, "seed", "7");
    search(&mut editor, "");
    editor.act(Action::OnlyChanges);
    for place in ["seed", "train.max_steps"] {
        let row = editor.places().iter().position(|row| row.path == place);
        editor.selected = row.unwrap();
        for action in [Action::ResetValue, Action::UndoEdit, Action::RedoEdit] {
            editor.act(action);
            assert_eq!(at(&editor), place, "{action:?}");
        }
        editor.act(Action::UndoEdit);
    }
    assert_eq!(editor.places().len(), 2);
}
