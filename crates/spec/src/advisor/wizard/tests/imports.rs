//! Configs of other tools in the wizard.

use super::*;

/// No other model is planned in place of one that is not here.
#[test]
fn a_config_without_its_base_model_has_no_plan_and_no_start_but_can_be_saved() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.yaml");
    let import = |model: &str| {
        std::fs::write(&path, format!("stage: sft\nmodel_name_or_path: {model}\n")).unwrap();
        let mut wizard = wizard();
        wizard.select(Goal::ALL.len());
        wizard.type_in(&path.display().to_string());
        let Outcome::Look(look) = wizard.enter() else {
            panic!("{:?}", wizard.error());
        };
        wizard.on_inspected(look.now(None));
        wizard
    };
    let tells = |wizard: &Wizard, words: &str| {
        let notes = wizard.question().notes;
        assert!(notes.iter().any(|n| n.text.contains(words)), "{notes:?}");
    };
    let pull = "llmtui model pull meta-llama/Llama-3.2-1B`; no plan";
    let mut absent = import("meta-llama/Llama-3.2-1B");
    tells(&absent, pull);
    absent.enter();
    tells(&absent, pull);
    until(&mut absent, Step::Plan);
    let notes = absent.question().notes;
    assert!(notes.len() == 1 && notes[0].label == "No plan", "{notes:?}");
    until(&mut absent, Step::Finish);
    assert_eq!(absent.enter(), Outcome::Stay);
    assert!(absent.error().unwrap().contains(pull));
    absent.select(1);
    assert!(matches!(absent.enter(), Outcome::Save { .. }));
    // A model that is here is planned with its own size.
    let config = serde_json::json!({"model_type": "gpt2", "llmtui": {"model": {
        "n_layer": 3, "n_head": 2, "d_model": 64, "seq_len": 64, "vocab_size": 65}}});
    std::fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
    // Its description alone is nothing to start from.
    let bare = import(&dir.path().display().to_string());
    tells(&bare, "this folder has no weights");
    std::fs::write(dir.path().join("model.safetensors"), vec![0; 400]).unwrap();
    let mut here = import(&dir.path().display().to_string());
    here.enter();
    until(&mut here, Step::Plan);
    tells(&here, "3 layers of 64");
    tells(&here, " epochs, in steps of");
}

/// TRL's files name no trainer: what was guessed can be said, as `llmtui import --method` does.
#[test]
fn a_guessed_method_can_be_changed_before_and_after_the_import() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.yaml");
    std::fs::write(
        &path,
        "dataset_name: org/rows\nlearning_rate: 1e-5\nlogging_steps: 1\n",
    )
    .unwrap();
    let mut wizard = wizard();
    let rows = |wizard: &Wizard| wizard.question().rows.len();
    let (config, method) = (Goal::ALL.len(), Goal::ALL.len() + 1);
    assert_eq!(rows(&wizard), method);
    let look = |wizard: &mut Wizard| {
        let Outcome::Look(look) = wizard.enter() else {
            panic!("{:?}", wizard.error());
        };
        wizard.on_inspected(look.now(None));
    };
    wizard.select(config);
    wizard.type_in(&path.display().to_string());
    look(&mut wizard);
    let guessed = |wizard: &Wizard| {
        let notes = wizard.question().notes;
        notes
            .iter()
            .any(|n| n.label == "Method" && n.text.contains("is a guess"))
    };
    assert!(guessed(&wizard));
    wizard.select(method);
    let input = wizard.question().rows[method].input.clone().unwrap();
    assert!(input.placeholder.starts_with("sft, a guess; or sft, dpo"));
    wizard.type_in("nope");
    assert_eq!(wizard.enter(), Outcome::Stay);
    assert!(
        wizard
            .error()
            .unwrap()
            .contains("`nope` is not a TRL method")
    );
    wizard.type_in("DPO");
    look(&mut wizard);
    assert!(!guessed(&wizard));
    assert_eq!(wizard.enter(), Outcome::Moved);
    let (draft, _) = wizard.draft().unwrap();
    assert_eq!(draft.value("method"), "dpo");
    // Back at the question it is another one.
    wizard.back();
    wizard.select(method);
    wizard.type_in("kto");
    look(&mut wizard);
    wizard.enter();
    let (draft, _) = wizard.draft().unwrap();
    assert_eq!(draft.value("method"), "kto");
    // Of another file nothing was said, and other tools say it themselves.
    let other = dir.path().join("y.yaml");
    std::fs::write(
        &other,
        "stage: sft\nmodel_name_or_path: a\ntemplate: qwen\n",
    )
    .unwrap();
    wizard.back();
    wizard.select(config);
    wizard.type_in(&other.display().to_string());
    look(&mut wizard);
    assert_eq!(wizard.answers().config_method, "");
    assert_eq!(rows(&wizard), method);
}
