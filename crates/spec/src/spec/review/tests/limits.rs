//! What the length of a run, its rows and its base leave room for.

use super::*;

#[test]
fn early_stopping_needs_enough_evaluations_before_the_last_step() {
    let words = "early stopping cannot act";
    let told = |preset: &str, set: &[&str]| {
        let found = said(preset, set, KNOWN).into_iter();
        let found = found.filter(|f| f.evidence.to_string().contains(words));
        found.map(|f| f.fix).collect::<Vec<_>>()
    };
    let few = ["max_steps=100", "eval.every=30", "eval.patience=3"];
    mends("quickstart", &few, KNOWN, words);
    assert_eq!(
        told("quickstart", &few),
        ["-s eval.every=24, or a smaller eval.patience"]
    );
    assert!(told("quickstart", &[few[0], "eval.every=24", few[2]]).is_empty());
    assert!(told("quickstart", &few[..2]).is_empty());
    // Completions are evaluated before the first step, too.
    assert!(told("grpo-sort", &few).is_empty());
    let never = ["max_steps=100", "eval.every=0", "eval.patience=3"];
    mends("quickstart", &never, KNOWN, words);
    mends(
        "quickstart",
        &["max_steps=4", "eval.every=1", "eval.patience=5"],
        KNOWN,
        words,
    );
    let tasks = [
        "max_steps=100",
        "eval.tasks=[hellaswag]",
        "eval.best_by=eval/hellaswag",
        "eval.patience=4",
    ];
    assert_eq!(
        told("quickstart", &tasks),
        ["-s eval.task_every=24, or a smaller eval.patience"]
    );
    mends("quickstart", &tasks, KNOWN, words);
    let epochs = ["train.epochs=1", "eval.every=0", "eval.patience=3"];
    let unread = Sizes::default();
    assert!(
        said("sft-demo", &epochs, unread)
            .iter()
            .all(|f| f.place != "eval.patience")
    );
}

#[test]
fn prompts_that_leave_too_little_room_are_counted() {
    let of = |prompts| Sizes {
        long_prompts: Some(prompts),
        ..KNOWN
    };
    let found = finds(
        "grpo-sort",
        &[],
        of((30, 1_000)),
        "30 of 1,000 prompts leave fewer",
    );
    assert_eq!(found.place, "rollout.max_new_tokens");
    for (preset, prompts) in [("grpo-sort", (10, 1_000)), ("sft-demo", (900, 1_000))] {
        let found = said(preset, &[], of(prompts));
        assert!(
            found.iter().all(|f| f.place != "rollout.max_new_tokens"),
            "{found:?}"
        );
    }
}

/// All of the base was allocated in f32, and then the run failed.
#[test]
fn a_quantized_base_has_no_frozen_reference() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("q4.gguf"), "GGUF, and so on").unwrap();
    let refused = |reference: &str, dequantize: bool| {
        let mut value = spec("dpo", &["adapter=lora"]).to_value();
        value["method"]["dpo"]["reference"] = reference.into();
        value["train"]["from"] = dir.path().join("q4.gguf").display().to_string().into();
        value["train"]["dequantize"] = dequantize.into();
        let read = RunSpec::from_yaml(&crate::spec::yaml::write(&value));
        read.err().map(|e| e.to_string()).unwrap_or_default()
    };
    let said = refused("frozen", false);
    assert!(
        said.contains("cannot be copied for a frozen reference"),
        "{said}"
    );
    assert!(said.contains("train.dequantize=true"), "{said}");
    for (reference, dequantize) in [("frozen", true), ("auto", false), ("adapter_off", false)] {
        assert_eq!(refused(reference, dequantize), "");
    }
}

#[test]
fn a_reward_model_on_a_quantized_base_is_told_that_it_becomes_f32() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("q4.gguf"), "GGUF, and so on").unwrap();
    let told = |preset: &str, from: &str, dequantize: bool| {
        let mut value = spec(preset, &["adapter=lora"]).to_value();
        value["train"]["from"] = dir.path().join(from).display().to_string().into();
        value["train"]["dequantize"] = dequantize.into();
        let spec = RunSpec::from_yaml(&crate::spec::yaml::write(&value)).unwrap();
        let mut found = review(&spec, KNOWN).into_iter();
        found.any(|f| {
            f.place == "train.from" && f.evidence.to_string().contains("dequantized to f32")
        })
    };
    assert!(told("reward", "q4.gguf", false));
    assert!(!told("reward", "q4.gguf", true));
    assert!(!told("reward", "a-folder", false));
    assert!(!told("dpo", "q4.gguf", false));
}

#[test]
fn a_reference_that_moves_too_late_is_told_of() {
    let of = |preset: &str, words: &[&str]| {
        let words: Vec<&str> = [&["train.sync_ref_model=true"], words].concat();
        let found = said(preset, &words, KNOWN);
        let place = "train.ref_model_sync_steps";
        let found = found.into_iter().filter(|f| f.place == place);
        found.flat_map(|f| f.changes()).collect::<Vec<_>>()
    };
    let fix = "train.ref_model_sync_steps=25";
    assert_eq!(of("dpo-demo", &["max_steps=200"]), [fix]);
    assert!(of("dpo-demo", &["max_steps=200", fix]).is_empty());
    assert!(of("dpo-demo", &["max_steps=513"]).is_empty());
    assert!(
        said("dpo-demo", &["max_steps=200"], KNOWN)
            .iter()
            .all(|f| !f.place.contains("sync"))
    );
}

#[test]
fn where_a_cold_start_leaves_no_step_the_advice_is_fewer_of_it() {
    let of = |cold: u64| {
        let cold = format!("rollout.cold_start_steps={cold}");
        let words = [
            "train.sync_ref_model=true",
            "method.grpo.beta=0.04",
            "max_steps=200",
            &cold,
        ];
        let found = said("grpo-sort", &words, KNOWN).into_iter();
        found
            .filter(|f| f.evidence.to_string().contains("reference model moves"))
            .map(|f| (f.place.clone(), f.changes()))
            .collect::<Vec<_>>()
    };
    let only = |found: Vec<(String, Vec<String>)>| match <[_; 1]>::try_from(found) {
        Ok([found]) => found,
        Err(found) => panic!("{found:?}"),
    };
    let (place, changes) = only(of(199));
    assert!(
        place == "rollout.cold_start_steps" && changes.is_empty(),
        "{changes:?}"
    );
    // A share of the run that would come with its last step is cut to what is left behind the cold start.
    for (cold, every) in [(150, 25), (195, 4), (198, 1)] {
        let (place, changes) = only(of(cold));
        assert_eq!(place, "train.ref_model_sync_steps");
        assert_eq!(changes, [format!("train.ref_model_sync_steps={every}")]);
    }
}

#[test]
fn patience_that_a_move_uses_up_is_told_of() {
    let of = |preset: &str, words: &[&str]| {
        let moves = [
            "train.sync_ref_model=true",
            "max_steps=600",
            "eval.every=50",
        ];
        let words: Vec<&str> = moves.iter().chain(words).copied().collect();
        let found = said(preset, &words, KNOWN).into_iter();
        let of_moves = |f: &Finding| f.evidence.to_string().contains("different references");
        found.filter(of_moves).count()
    };
    assert_eq!(of("dpo-demo", &["eval.patience=3"]), 1);
    assert_eq!(of("dpo-demo", &[]), 0);
    let stays = ["eval.patience=3", "train.sync_ref_model=false"];
    assert_eq!(of("dpo-demo", &stays), 0);
    // Rewards of held-out prompts are relative to nothing.
    let rewarded = ["eval.patience=3", "method.grpo.beta=0.04"];
    assert_eq!(of("grpo-sort", &rewarded), 0);
}

/// Saved every 500 steps and evaluated every 50, a run kept the weights that had overfitted most.
#[test]
fn weights_that_an_overfit_would_lose_are_told_of() {
    let again = Sizes {
        pass_tokens: Some(8_192 * 100),
        ..KNOWN
    };
    let words = ["eval.every=50", "checkpoint.every=500", "max_steps=600"];
    let lost = "its best weights are lost";
    let found = finds("quickstart", &words, again, lost);
    assert_eq!(found.changes(), ["checkpoint.save_best=true"]);
    let silent = |set: &str, sizes: Sizes| {
        let all: Vec<&str> = words.into_iter().chain([set]).collect();
        let found = said("quickstart", &all, sizes);
        !found.iter().any(|f| f.evidence.to_string().contains(lost))
    };
    assert!(silent("checkpoint.save_best=true", again));
    assert!(silent("checkpoint.every=50", again));
    assert!(silent("seed=1", KNOWN), "new text at every step");
}
