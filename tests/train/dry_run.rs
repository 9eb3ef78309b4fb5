//! `llmtui train --dry-run`.

use super::{Place, code, err, out};

#[test]
fn a_dry_run_prints_what_would_be_trained_and_leaves_nothing() {
    let place = Place::new();
    let output = place.go(&["train", "quickstart", "--dry-run"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let text = out(&output);
    assert!(
        text.contains("804k parameters") && text.contains("2,000 steps of 768 tokens"),
        "{text}"
    );
    let output = place.go(&["train", "quickstart", "--dry-run", "--json"]);
    let outline: serde_json::Value = serde_json::from_str(&out(&output)).unwrap();
    assert_eq!(outline["n_params"], 804_096);
    assert_eq!(outline["step_tokens"], 768);
    assert_eq!(outline["spec"]["train"]["max_steps"], 2000);
    assert!(!place.dir.path().join("runs").exists());
}

/// Rows of pairs and of judged answers were counted at the full context length; what adapters train was not shown.
#[test]
fn a_dry_run_counts_rows_at_their_length_and_shows_what_trains() {
    let place = Place::new();
    let outline = |preset: &str| -> serde_json::Value {
        let output = place.go(&["train", preset, "--dry-run", "--json"]);
        serde_json::from_str(&out(&output)).unwrap()
    };
    for (preset, tokens) in [("dpo-demo", 830..970), ("kto-demo", 415..485)] {
        let outline = outline(preset);
        let of = |key: &str| outline[key].as_u64().unwrap();
        assert!(tokens.contains(&of("step_tokens")), "{preset}: {outline}");
        assert!(of("step_places") > of("step_tokens"), "{preset}: {outline}");
        assert_eq!(of("trainable_params"), of("n_params"));
        let text = out(&place.go(&["train", preset, "--dry-run"]));
        assert!(text.contains(" with padding), "), "{text}");
    }
    let lora = outline("sft-lora-demo");
    assert!(lora["trainable_params"].as_u64() < lora["n_params"].as_u64());
    let text = out(&place.go(&["train", "sft-lora-demo", "--dry-run"]));
    assert!(
        text.contains(" parameters, of which ") && text.contains(" %), 2 layers"),
        "{text}"
    );
}

#[test]
fn a_dry_run_of_reinforcement_learning_counts_prompts_and_answers() {
    let place = Place::new();
    let output = place.go(&["train", "grpo-arithmetic", "--dry-run"]);
    let text = out(&output);
    let line = text
        .lines()
        .find(|line| line.starts_with("train "))
        .unwrap();
    for wanted in [
        "350 supervised steps of 128 rows (cold start), then 550 steps of 16 prompts × 8 answers, up to 6 new tokens each",
        "epochs of 7,158 prompts",
    ] {
        assert!(line.contains(wanted), "{line}");
    }
    assert!(!line.contains("epochs over"), "{line}");
    let output = place.go(&["train", "grpo-arithmetic", "--dry-run", "--json"]);
    let outline: serde_json::Value = serde_json::from_str(&out(&output)).unwrap();
    assert!(outline["epochs"].is_null() && outline["run_tokens"].is_null());
    assert_eq!(outline["rollouts"]["group_size"], 8);
    assert_eq!(outline["prompts"], 7_158);
    let output = place.go(&["plan", "grpo-arithmetic"]);
    let text = out(&output);
    assert!(
        text.contains("550 steps of 16 prompts") && !text.contains("epochs over"),
        "{text}"
    );
}
