//! Specs as they are resolved, written and read again.

use super::*;
use llmtui::spec::RunSpec;
use std::path::Path;

#[test]
fn every_preset_loads_round_trips_and_accepts_other_text() {
    let (dir, sources) = nowhere();
    fs::write(dir.path().join("my.txt"), "some text\n").unwrap();
    let mut begins = std::collections::BTreeSet::new();
    for preset in spec::presets(&sources) {
        assert!(!preset.about.is_empty(), "{} has no about", preset.name);
        // The part of the description that a narrow list shows distinguishes presets.
        let begin: String = preset.about.chars().take(40).collect();
        assert!(begins.insert(begin), "{}: {}", preset.name, preset.about);
        // Its teacher is the user's.
        let teacher = format!("method.distill.teacher={}", llmtui::models::TO_COME);
        let set = match preset.name.as_str() {
            "distill" => vec![teacher],
            _ => Vec::new(),
        };
        let loaded = spec::load(&preset.name, &set, &sources)
            .unwrap_or_else(|e| panic!("{}: {e}", preset.name));
        assert_eq!(loaded.spec.name, preset.name);
        // A preset for a base model reports it as long as none is named.
        let mut advice = loaded.spec.advice();
        advice.retain(|finding| finding.place != "adapter");
        assert_eq!(advice, [], "{}", preset.name);
        assert_eq!(
            RunSpec::from_yaml(&loaded.spec.to_yaml()).unwrap(),
            loaded.spec
        );
        let text = llmtui::embed::text(&format!("presets/{}.yaml", preset.name)).unwrap();
        assert!(
            text.lines().take(2).all(|l| l.starts_with("# ")),
            "{}: two opening lines",
            preset.name
        );
        // Where a preset lists sources, another text is added to them.
        if !loaded.spec.data.sources.is_empty() {
            continue;
        }
        let own = spec::load(&preset.name, &["data.path=my.txt".into()], &sources).unwrap();
        assert_eq!(
            own.spec.data.path.as_deref(),
            Some(dir.path().join("my.txt").as_path())
        );
    }
}

#[test]
fn the_requested_settings_are_a_spec_of_their_own() {
    let loaded = set(&["lr=3e-3", "model.position=rope"]).unwrap();
    let (dir, sources) = nowhere();
    fs::write(dir.path().join("asked.yaml"), &loaded.asked).unwrap();
    let again = spec::load("asked.yaml", &[], &sources).unwrap();
    assert_eq!(again.spec, loaded.spec);
    assert!(
        loaded
            .asked
            .starts_with("# Requested: quickstart -s lr=3e-3")
    );
    assert!(
        !loaded.asked.contains("init_std"),
        "defaults were not asked for"
    );
}

#[test]
fn derived_numbers_are_filled_in_and_written() {
    let spec = set(&["model.mlp=swiglu", "d_model=256", "grad_accum_steps=2"])
        .unwrap()
        .spec;
    assert_eq!(spec.model.n_kv_head, Some(4));
    assert_eq!(spec.model.d_ff, Some(704));
    assert_eq!(spec.batch_tokens(), 12 * 2 * 64);
    let yaml = spec.to_yaml();
    assert!(
        yaml.contains("d_ff: 704") && yaml.contains("temperature: 0.8\n"),
        "{yaml}"
    );
}

#[test]
fn a_written_spec_is_self_contained() {
    let (dir, sources) = nowhere();
    let path = dir.path().join("my.txt");
    fs::write(&path, "text").unwrap();
    let spec = spec::load("quickstart", &["data.path=my.txt".into()], &sources)
        .unwrap()
        .spec;
    assert!(spec.data.path.as_deref().is_some_and(Path::is_absolute));
    fs::remove_file(&path).unwrap();
    assert_eq!(RunSpec::from_yaml(&spec.to_yaml()).unwrap(), spec);
    assert!(RunSpec::from_yaml("model: {n_head: 3}").is_err());
}

proptest::proptest! {
    #[test]
    fn floats_keep_every_bit(lr in 1e-12f64..10.0, beta in 0.0f64..0.999, temperature in 0.0f32..5.0) {
        let words = [format!("lr={lr}"), format!("beta2={beta:e}"), "schedule=constant".to_string(),
            format!("sample.sampling.temperature={temperature}")];
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let spec = set(&words).unwrap().spec;
        let llmtui::optim::OptimizerConfig::AdamW(adamw) = &spec.optimizer else {
            panic!("the default is AdamW")
        };
        proptest::prop_assert_eq!(adamw.lr.to_bits(), lr.to_bits());
        proptest::prop_assert_eq!(adamw.beta2.to_bits(), beta.to_bits());
        proptest::prop_assert_eq!(spec.sample.sampling.temperature.to_bits(), temperature.to_bits());
        let again = RunSpec::from_yaml(&spec.to_yaml()).unwrap();
        proptest::prop_assert_eq!(&again, &spec);
    }

    #[test]
    fn no_text_makes_the_loader_panic(text in "\\PC{0,80}", word in "\\PC{0,40}") {
        let _ = file(&text);
        let _ = set(&[&word]);
    }

    #[test]
    fn any_name_and_prompt_survive_writing(prompt in "\\PC*|[ \n\t#:'\"-]*") {
        let (_dir, sources) = nowhere();
        let quoted = serde_json::to_string(&prompt).unwrap();
        let spec = spec::load("quickstart", &[format!("sample.prompt={quoted}")], &sources).unwrap().spec;
        proptest::prop_assert_eq!(&spec.sample.prompt, &prompt);
        proptest::prop_assert_eq!(RunSpec::from_yaml(&spec.to_yaml()).unwrap(), spec);
    }
}

#[test]
fn poor_settings_get_a_warning_but_run() {
    let spec = set(&["max_steps=20", "lr=0.1", "clip_norm=0"])
        .unwrap()
        .spec;
    let advice: Vec<String> = spec.advice().into_iter().map(|a| a.place).collect();
    assert_eq!(advice, ["optimizer", "schedule", "train.clip_norm"]);
}

#[test]
fn a_tilde_in_a_spec_is_the_users_home_and_a_run_stores_the_full_path() {
    let (dir, mut sources) = nowhere();
    let home = dir.path().join("home");
    fs::create_dir(&home).unwrap();
    fs::write(home.join("base.yaml"), "extends: quickstart\nseed: 7\n").unwrap();
    for name in ["train.txt", "val.txt", "more.txt"] {
        fs::write(home.join(name), "some text\n".repeat(400)).unwrap();
    }
    sources.home = Some(home.clone());
    let own = "extends: ~/base.yaml\ndata: {val_path: ~/val.txt}\n\
               eval: {extra: [{name: more, source: ~/more.txt}]}\n";
    fs::write(dir.path().join("my.yaml"), own).unwrap();
    let set = ["data.path=~/train.txt".to_string()];
    let loaded = spec::load("my.yaml", &set, &sources).unwrap();
    assert_eq!(loaded.spec.seed, 7);
    let asked = &loaded.asked;
    assert!(
        asked.contains("~/train.txt") && asked.contains("~/val.txt"),
        "{asked}"
    );
    let yaml = loaded.spec.to_yaml();
    assert!(!yaml.contains('~'), "{yaml}");
    for name in ["train.txt", "val.txt", "more.txt"] {
        let whole = home.join(name).display().to_string();
        assert!(yaml.contains(&whole), "{whole}: {yaml}");
    }
    let words = |preset: &str, word: &str| {
        let errors = spec::load(preset, &[word.to_string()], &sources).unwrap_err();
        errors.to_string()
    };
    let gone = home.join("tarin.txt").display().to_string();
    let message = words("quickstart", "data.path=~/tarin.txt");
    assert!(
        message.contains(&gone) && message.contains("did you mean"),
        "{message}"
    );
    let gone = home.join("models/x").display().to_string();
    assert!(words("quickstart", "train.from=~/models/x").contains(&gone));
    // It is absolute by then.
    assert!(!words("quickstart", "data.path=~/else.csv").contains("relative"));
    assert!(words("quickstart", "data.tokenizer.file.path=~/t.json").contains("home/t.json"));
    let rewards = "rewards=[{model: {path: ~/judge}}]";
    assert!(words("grpo-sort", rewards).contains("home/judge"));
}
