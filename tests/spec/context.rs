//! Contexts that are longer than the start model's: which scaling stretches its positions, what follows from it, what is refused.

use super::*;
use llmtui::nn::ModelConfig;
use llmtui::nn::position::ScalingConfig;
use serde_json::{Value, json};

const SCALING: &str = "model.position.rope.scaling";

/// A folder `ckpt` with a model of 32 tokens at these positions, and `settings` of a spec that starts from it.
struct Start {
    _dir: tempfile::TempDir,
    sources: SpecSources,
}

impl Start {
    fn new(position: Value, seq_len: usize) -> Start {
        let (dir, sources) = nowhere();
        let mut spec = set(&[]).unwrap().spec.to_value();
        spec["model"]["position"] = position;
        spec["model"]["seq_len"] = seq_len.into();
        let spec = spec::RunSpec::from_yaml(&spec.to_string()).unwrap();
        super::models::base(dir.path(), &spec);
        Start { _dir: dir, sources }
    }

    fn rope() -> Start {
        Start::new(json!({"rope": {}}), 32)
    }

    fn load(&self, words: &[&str]) -> Result<spec::Loaded, SpecErrors> {
        let mut all = vec!["train.from=ckpt".to_string()];
        all.extend(words.iter().map(ToString::to_string));
        spec::load("quickstart", &all, &self.sources)
    }

    fn model(&self, words: &[&str]) -> ModelConfig {
        let loaded = self.load(words);
        loaded
            .map_err(|e| e.to_string())
            .unwrap()
            .spec
            .model
            .clone()
    }

    fn refusal(&self, words: &[&str]) -> String {
        self.load(words).unwrap_err().to_string()
    }
}

fn scaling(model: &ModelConfig) -> ScalingConfig {
    model.position.rope().unwrap().scaling.clone().unwrap()
}

/// Factor, original context, rows, context.
fn sizes(model: &ModelConfig) -> (f64, usize, usize, usize) {
    let scaling = scaling(model);
    let original = scaling.original_context(model.context());
    (scaling.factor(), original, model.seq_len, model.context())
}

#[test]
fn factor_and_original_context_follow_from_the_start_model() {
    let start = Start::rope();
    for kind in ["linear", "ntk", "yarn", "llama3"] {
        let named = format!("{SCALING}={kind}");
        let model = start.model(&[&named, "model.seq_len=128"]);
        assert_eq!(sizes(&model), (4.0, 32, 128, 128), "{kind}");
        assert_eq!(scaling(&model).entry().id, kind);
    }
    let loaded = start.load(&["model.position=yarn", "seq_len=96"]).unwrap();
    assert_eq!(sizes(&loaded.spec.model), (3.0, 32, 96, 96));
    let notes = loaded.notes().join("\n");
    for words in [
        "factor 3.0: 96 tokens on the start model's 32",
        "original_len 32: the context that the start model was trained with",
    ] {
        assert!(notes.contains(words), "{notes}");
    }
    // Its other settings are the scaling's own, all others the start model's.
    let yarn = format!("{SCALING}.yarn.beta_fast=16");
    let auto = format!("{SCALING}.yarn.factor=auto");
    let model = start.model(&[&yarn, &auto, "model.seq_len=64"]);
    let ScalingConfig::Yarn(yarn) = scaling(&model) else {
        panic!("{model:?}")
    };
    assert_eq!((yarn.beta_fast, yarn.factor), (16.0, 2.0));
    assert_eq!(model.d_model, start.model(&[]).d_model);
}

#[test]
fn a_factor_that_is_said_decides_the_context_and_rows_may_be_shorter() {
    let start = Start::rope();
    let factor = format!("{SCALING}.yarn.factor=4");
    assert_eq!(sizes(&start.model(&[&factor])), (4.0, 32, 128, 128));
    // Also over a recipe's own rows, which are no wish of the user's.
    let rows = start.model(&[&factor, "model.seq_len=48"]);
    assert_eq!(sizes(&rows), (4.0, 32, 48, 128));
    let named = format!("{SCALING}=linear");
    let context = start.model(&[&named, "model.seq_len=48", "model.context_len=64"]);
    assert_eq!(sizes(&context), (2.0, 32, 48, 64));
    // Another original context is the user's word.
    let original = format!("{SCALING}.yarn.original_len=16");
    let model = start.model(&[&original, "model.seq_len=64"]);
    assert_eq!(sizes(&model), (4.0, 16, 64, 64));
}

#[test]
fn a_scaling_replaces_that_of_the_start_model_and_its_original_context_stays() {
    let yarn = json!({"rope": {"scaling": {"yarn": {"factor": 4.0, "original_len": 32, "beta_fast": 20.0}}}});
    let linear = json!({"rope": {"scaling": {"linear": {"factor": 4.0}}}});
    for (position, before) in [(yarn, "yarn"), (linear, "linear")] {
        let start = Start::new(position, 128);
        // Without a word it is the start model's.
        let rows = ["model.seq_len=64"];
        assert_eq!(sizes(&start.model(&rows)), (4.0, 32, 64, 128));
        let same = format!("{SCALING}={before}");
        assert_eq!(sizes(&start.model(&[&same, rows[0]])), (4.0, 32, 64, 128));
        for kind in ["llama3", before] {
            let named = format!("{SCALING}={kind}");
            let loaded = start.load(&[&named, "model.seq_len=256"]).unwrap();
            assert_eq!(
                sizes(&loaded.spec.model),
                (8.0, 32, 256, 256),
                "{before} {kind}"
            );
            let notes = loaded.notes().join("\n");
            let gone = format!("before its {before} scaling of factor 4, which is replaced");
            assert!(notes.contains(&gone), "{notes}");
        }
    }
    let start = Start::new(
        json!({"rope": {"scaling": {"yarn": {"factor": 4.0, "original_len": 32, "beta_fast": 20.0}}}}),
        128,
    );
    let ScalingConfig::Yarn(yarn) =
        scaling(&start.model(&[&format!("{SCALING}=yarn"), "model.seq_len=256"]))
    else {
        panic!("no yarn")
    };
    assert_eq!(
        yarn.beta_fast, 20.0,
        "what the factor does not decide is kept"
    );
}

/// A run's own spec.yaml gives the same model again.
#[test]
fn the_spec_of_a_run_that_stretched_positions_gives_the_same_model() {
    let start = Start::rope();
    for kind in ["linear", "ntk", "yarn", "llama3"] {
        let named = format!("{SCALING}={kind}");
        let spec = start.load(&[&named, "model.seq_len=48", "model.context_len=96"]);
        let spec = spec.unwrap().spec;
        let again = spec::load_text("spec.yaml", &spec.to_yaml(), &start.sources).unwrap();
        assert_eq!(again.spec.model, spec.model, "{kind}");
    }
}

#[test]
fn what_does_not_fit_is_refused_with_what_does() {
    let start = Start::rope();
    let yarn = format!("{SCALING}=yarn");
    let longrope = format!("{SCALING}=longrope");
    let cases = [
        (
            vec!["model.seq_len=128"],
            [
                "128 tokens, but the base model",
                "-s model.position.rope.scaling=yarn",
            ],
        ),
        (
            vec![&*yarn],
            ["was trained with 32", "-s model.seq_len=128"],
        ),
        (
            vec![&*yarn, "seq_len=16"],
            ["nothing to stretch", "-s model.seq_len=128"],
        ),
        (
            vec![&*yarn, "seq_len=65536"],
            ["a factor of 2048 is more than 1000", "a shorter context"],
        ),
        (
            vec![&*longrope, "seq_len=128"],
            ["each of 16 pairs", "-s model.position.rope.scaling=yarn"],
        ),
        (
            vec![&*yarn, "seq_len=128", "model.position.rope.theta=5000"],
            ["model.position.rope.theta", "has 10000"],
        ),
    ];
    for (words, parts) in cases {
        let error = start.refusal(&words);
        for part in parts {
            assert!(error.contains(part), "{words:?}: {error}");
        }
    }
    let longrope = format!(
        "{SCALING}.longrope.long_factor=[{}]",
        vec!["2"; 16].join(", ")
    );
    let model = start.model(&[&longrope, "seq_len=128"]);
    let ScalingConfig::Longrope(longrope) = scaling(&model) else {
        panic!("{model:?}")
    };
    assert_eq!(longrope.original_len, 32);
    // √(1 + ln 4 / ln 32).
    assert!((longrope.attention_factor.unwrap() - 1.4_f64.sqrt()).abs() < 1e-12);
}

#[test]
fn positions_that_end_are_refused_and_positions_of_any_length_need_no_scaling() {
    let yarn = format!("{SCALING}=yarn");
    let learned = Start::new(json!({"learned": {}}), 32);
    let error = learned.refusal(&["seq_len=128"]);
    assert!(error.contains("its learned positions end there"), "{error}");
    let error = learned.refusal(&[&yarn, "seq_len=128"]);
    assert!(
        error.contains("a table that ends at 32 tokens") && error.matches("position").count() > 0,
        "{error}"
    );
    assert!(error.starts_with("one problem"), "{error}");
    let alibi = Start::new(json!({"alibi": {}}), 32);
    let loaded = alibi.load(&["seq_len=128"]).unwrap();
    assert_eq!(loaded.spec.model.seq_len, 128);
    let notes = loaded.notes().join("\n");
    assert!(
        notes.contains("ALiBi extrapolates to about twice"),
        "{notes}"
    );
    let error = alibi.refusal(&[&yarn, "seq_len=128"]);
    assert!(
        error.contains("ALiBi, which needs none") && error.contains("from 32 tokens"),
        "{error}"
    );
    let none = Start::new(json!({"none": {}}), 32);
    assert_eq!(none.model(&["seq_len=128"]).seq_len, 128);
}
