//! A plan states what the runs are going to be.

use super::{Place, code, err, out};
use serde_json::Value;

impl Place {
    /// The stages of a dry run.
    fn planned(&self, arguments: &[&str]) -> Vec<Value> {
        let words = [&["train"], arguments, &["--dry-run", "--json"]].concat();
        let output = self.go(&words);
        assert_eq!(code(&output), 0, "{}", err(&output));
        let outline: Value = serde_json::from_str(&out(&output)).unwrap();
        outline["stages"].as_array().unwrap().clone()
    }
}

fn tokens(stage: &Value) -> u64 {
    stage["length"][1].as_u64().unwrap()
}

#[test]
fn a_stage_has_the_context_of_its_base_model() {
    let place = Place::new(
        "name: mine\nstages:\n  - {name: base, train: quickstart, set: {data.tokenizer: {bpe: {vocab_size: 300}}}}\n  - {name: chat, train: {extends: sft}, set: {max_steps: 3}}\n",
    );
    let speedrun = place.planned(&["speedrun"]);
    // Micro-batches of 16 and of 128 rows, of 128 tokens each; packed conversations leave some places of a row empty.
    let places = 800 * 16 * 128;
    let chat = tokens(&speedrun[1]);
    assert!((places * 8 / 10..places).contains(&chat), "{chat}");
    // Prompts of some 25 tokens with answers of up to 14.
    let rl = tokens(&speedrun[2]) / (300 * 128);
    assert!((25..64).contains(&rl), "{rl}");
    let printed = ["chat", "rl"].map(|stage| format!("{stage}.model.seq_len=128"));
    let printed = place.planned(&["speedrun", "-s", &printed[0], "-s", &printed[1]]);
    for (stage, printed) in speedrun.iter().zip(&printed) {
        assert_eq!(stage["bytes"], printed["bytes"]);
    }

    // A preset's context of 1,024 tokens applies to a model of its own.
    let mine = place.planned(&["mine.yaml"]);
    let places = 3 * 4 * 2 * 64;
    let own = tokens(&mine[1]);
    assert!((places * 8 / 10..places).contains(&own), "{own}");
    assert_eq!(mine[0]["n_params"], mine[1]["n_params"]);
    for (set, says) in [
        (
            "chat.model.seq_len=128",
            "the model of stage base supports 64",
        ),
        ("chat.model.n_layer=2", "the model of stage base has 4"),
    ] {
        let refused = place.go(&["train", "mine.yaml", "--dry-run", "-s", set]);
        assert_eq!(code(&refused), 2, "{}", out(&refused));
        assert!(err(&refused).contains(says), "{says}: {}", err(&refused));
    }
}

#[test]
fn a_plan_for_other_machines_names_them() {
    let place = Place::new("name: mine\nstages:\n  - {name: base, train: smoke}\n");
    let words = ["train", "mine.yaml", "--nodes", "gpu1,gpu2", "--dry-run"];
    let output = place.go(&words);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let printed = out(&output);
    assert!(printed.contains("on 2 machines: gpu1, gpu2"), "{printed}");
    assert!(!printed.contains("this machine has none"), "{printed}");
}

#[test]
fn pairs_count_as_two_sequences() {
    let place = Place::new(
        "name: pairs\nstages:\n  - {name: dpo, train: dpo-demo, set: {max_steps: 3}}\n  \
         - {name: rm, train: reward-demo, from: scratch, set: {max_steps: 3}}\n",
    );
    let planned = place.planned(&["mine.yaml"]);
    for (stage, preset) in planned.iter().zip(["dpo-demo", "reward-demo"]) {
        let alone = place.go(&["train", preset, "-s", "max_steps=3", "--dry-run", "--json"]);
        let alone: Value = serde_json::from_str(&out(&alone)).unwrap();
        assert_eq!(
            Some(tokens(stage)),
            alone["run_tokens"].as_u64(),
            "{preset}"
        );
    }
}

#[test]
fn a_stages_tokenizer_is_the_vocabulary_of_later_stages() {
    let place = Place::new("");
    let text = "the quick brown fox jumps over the lazy dog\n".repeat(50);
    std::fs::write(place.dir.path().join("text.txt"), text).unwrap();
    let params = |tokenizer: &str| {
        let text = format!(
            "name: mine\nstages:\n{tokenizer}  - {{name: base, train: quickstart}}\n  \
             - {{name: more, train: quickstart}}\n"
        );
        std::fs::write(place.dir.path().join("mine.yaml"), text).unwrap();
        let stages = place.planned(&["mine.yaml"]);
        assert_eq!(stages[0]["n_params"], stages[1]["n_params"]);
        stages[0]["n_params"].as_u64().unwrap()
    };
    let own = params("");
    let of_stage = |config: &str| {
        params(&format!(
            "  - {{name: tok, tokenizer: {{files: [text.txt], {config}}}}}\n"
        ))
    };
    // Rows of the embeddings, of 128 numbers; Shakespeare has 65 characters, the text 27 and a line end.
    assert_eq!(of_stage("vocab_size: 300"), own + (300 - 65) * 128);
    assert_eq!(of_stage("kind: char"), own - (65 - 28) * 128);
}

/// A model from elsewhere has a tokenizer; with the stage's the run was refused after the stages in front of it.
#[test]
fn a_stage_with_a_start_model_of_its_own_keeps_that_models_tokenizer() {
    let place = Place::new("");
    let text = "the quick brown fox jumps over the lazy dog\n".repeat(50);
    std::fs::write(place.dir.path().join("text.txt"), text).unwrap();
    let small = "max_steps: 2, train.threads: 1, preflight.enabled: false";
    let alone = ["train", "smoke", "--headless", "-s", "name=pre"];
    let output = place.go(&[&alone[..], &["-s", "max_steps=2"]].concat());
    assert_eq!(code(&output), 0, "{}", err(&output));
    let runs = std::fs::read_dir(place.dir.path().join("runs")).unwrap();
    let pre = runs.flatten().next().unwrap().path();
    let model = pre.join("checkpoints/step-000002");
    let pipeline = format!(
        "name: mine\nstages:\n  - {{name: tok, tokenizer: {{files: [text.txt], kind: char}}}}\n  \
         - {{name: other, train: smoke, from: scratch, set: {{train.from: {}, {small}}}}}\n  \
         - {{name: own, train: smoke, from: scratch, set: {{data.tokenizer: char, {small}}}}}\n  \
         - {{name: base, train: smoke, from: scratch, set: {{data.path: text.txt, {small}}}}}\n",
        model.display()
    );
    std::fs::write(place.dir.path().join("mine.yaml"), pipeline).unwrap();
    let stages = place.planned(&["mine.yaml"]);
    // Shakespeare's 65 characters against the 28 of the text.
    let params = |at: usize| stages[at]["n_params"].as_u64().unwrap();
    assert_eq!(params(0), params(1));
    assert!(params(2) < params(0));
    let output = place.go(&["train", "mine.yaml", "--headless"]);
    assert_eq!(code(&output), 0, "{}{}", out(&output), err(&output));
    assert_eq!(place.words(), ["done"; 4]);
}

#[test]
fn tokenizer_files_are_checked_before_the_first_stage() {
    let place = Place::new("");
    let path = place.dir.path();
    std::fs::write(path.join("empty.txt"), "").unwrap();
    std::fs::write(path.join("text.txt"), "some text").unwrap();
    for (config, says) in [
        ("files: [nope.txt]", "tokenizer.files: nope.txt"),
        ("files: [empty.txt]", "no text to train on"),
        ("files: []", "tokenizer.files: it names none"),
        (
            "files: [text.txt], vocab_size: 5",
            "tokenizer.vocab_size: 5 is not from 100",
        ),
        (
            "files: [text.txt], chat_markers: chatmll",
            "tokenizer.chat_markers: unknown chat template",
        ),
        (
            "files: [text.txt], kind: char, vocab_size: 300",
            "tokenizer.vocab_size: --kind char",
        ),
    ] {
        let text = format!(
            "name: mine\nstages:\n  - {{name: base, train: smoke}}\n  - {{name: tok, tokenizer: {{{config}}}}}\n"
        );
        std::fs::write(path.join("mine.yaml"), text).unwrap();
        for extra in ["--headless", "--dry-run"] {
            let refused = place.go(&["train", "mine.yaml", extra]);
            assert_eq!(code(&refused), 2, "{config}: {}", out(&refused));
            let printed = err(&refused);
            assert!(
                printed.contains("stage tok") && printed.contains(says),
                "{config}: {printed}"
            );
        }
        assert!(!path.join("runs").exists(), "{config}");
    }
}
