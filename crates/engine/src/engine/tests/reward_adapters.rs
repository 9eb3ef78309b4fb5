//! The adapter of a reward model alone, exported for PEFT: loaded over a causal base, with the tokenizer beside it.

use super::merging_models::has_the_same_parts;
use super::preferences::{data, last, trained};
use super::*;
use crate::base::finding::Status;
use crate::engine::export::{About, AdapterSource, Options, export_adapter};
use crate::engine::infer::LoadedModel;
use crate::engine::merge::{Order, merge};
use crate::hf;
use crate::models::{ModelSource, RewardModel, tokenizer_place};
use crate::release;
use std::path::PathBuf;

/// A base that writes, a checkpoint of a reward model with adapters on it, and these adapters alone.
struct Trained {
    base: Run,
    rewards: Run,
    alone: PathBuf,
    dir: tempfile::TempDir,
}

fn reward_model() -> Trained {
    let text = format!("method: pretrain\n{}", data("text", false));
    let (base, _) = trained(&text, &["max_steps=10"]);
    let from = format!("train.from={}", last(&base).display());
    let text = format!("method: reward\n{}", data("preference", false));
    let (rewards, _) = trained(&text, &[&from, "max_steps=12", "adapter.lora.rank=4"]);
    let dir = tempfile::tempdir().unwrap();
    let alone = dir.path().join("alone");
    let source = AdapterSource::open(&last(&rewards), None).unwrap();
    let options = Options {
        dtype: "f32".into(),
        max_shard_bytes: 1 << 30,
    };
    export_adapter(&source, &options, &About::default(), &alone).unwrap();
    Trained {
        base,
        rewards,
        alone,
        dir,
    }
}

fn scores(folder: &Path) -> Vec<f32> {
    let mut model = RewardModel::open(folder).unwrap();
    let texts = ["sort 5 2 9 1 4=1 2 4 5 9", "sort 5 2 9 1 4=9 1"];
    let ids = texts.map(|text| model.tokenizer().encode(text).unwrap());
    model.scores(&ids, 2).unwrap()
}

fn are_near(a: &[f32], b: &[f32]) {
    assert!(
        a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-4),
        "{a:?} {b:?}"
    );
    assert!(a[0] != a[1], "{a:?}");
}

#[test]
fn a_reward_models_adapter_is_read_over_a_base_that_writes() {
    let made = reward_model();
    let of_run = scores(&last(&made.rewards));
    are_near(&of_run, &scores(&made.alone));
    // Without a tokenizer of its own, by its base's.
    for name in [hf::TOKENIZER, hf::TOKENIZER_CONFIG] {
        std::fs::remove_file(made.alone.join(name)).unwrap();
    }
    are_near(&of_run, &scores(&made.alone));
    let source = ModelSource::open(&made.alone).unwrap();
    assert!(source.config().is_reward_model());
    has_the_same_parts(&made.alone);
    assert_eq!(source.class(), Some("LlamaForSequenceClassification"));

    // Merged, by both ways to name it, it scores alike.
    for (to, base, adapter) in [
        ("both", last(&made.base), Some(made.alone.clone())),
        ("run", last(&made.base), Some(last(&made.rewards))),
        ("by itself", made.alone.clone(), None),
    ] {
        let to = made.dir.path().join(to);
        let merged = merge(&Order {
            base,
            adapters: adapter.into_iter().map(|path| (path, 1.0)).collect(),
            to: to.clone(),
            dtype: hf::Dtype::F32,
            dequantize: false,
            any_base: false,
            prompts: Vec::new(),
        });
        let found = merged.unwrap().check.unwrap();
        assert!(found.moved > 0.0, "{found:?}");
        are_near(&of_run, &scores(&to));
        let config = std::fs::read_to_string(to.join(hf::CONFIG)).unwrap();
        assert!(
            config.contains("LlamaForSequenceClassification"),
            "{config}"
        );
    }

    // It trains on, and answers nobody.
    let words = [
        format!("train.from={}", made.alone.display()),
        "max_steps=2".into(),
    ];
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    trained(
        &format!("method: reward\n{}", data("preference", false)),
        &words,
    );
    let refused = LoadedModel::load_with(&last(&made.base), std::slice::from_ref(&made.alone));
    let refused = refused.err().unwrap();
    assert!(
        refused.to_string().contains("of a reward model"),
        "{refused}"
    );
    assert!(
        refused.hint().contains("llmtui score"),
        "{}",
        refused.hint()
    );
    let refused = LoadedModel::load(&made.alone).err().unwrap();
    assert!(
        refused.to_string().contains("is a reward model"),
        "{refused}"
    );

    let here = release::LocalEnv {
        room: 1 << 30,
        cache: None,
    };
    let subject = release::Subject::open(&made.alone, &here).unwrap();
    let found = release::check(&subject, &|_| ());
    let generates = found.iter().find(|f| f.id == "generates").unwrap();
    assert_eq!(generates.status, Status::NotApplicable, "{generates:?}");
}

/// What PEFT writes has no tokenizer: `train.from` said that there is none.
#[test]
fn an_adapter_alone_has_its_bases_tokenizer_wherever_it_is_a_model() {
    let dir = tempfile::tempdir().unwrap();
    let text = format!("method: pretrain\n{}", data("text", false));
    let (base, _) = trained(&text, &["max_steps=4"]);
    let from = format!("train.from={}", last(&base).display());
    let (tuned, _) = trained(&text, &[&from, "max_steps=4", "adapter.lora.rank=4"]);
    let bare = |name: &str, of: &Path, base: Option<&Path>| {
        let to = dir.path().join(name);
        std::fs::create_dir(&to).unwrap();
        for name in [hf::ADAPTER_CONFIG, hf::ADAPTER_WEIGHTS] {
            std::fs::copy(of.join(name), to.join(name)).unwrap();
        }
        if let Some(base) = base {
            let text = std::fs::read(of.join(hf::ADAPTER_CONFIG)).unwrap();
            let mut config: serde_json::Value = serde_json::from_slice(&text).unwrap();
            config["base_model_name_or_path"] = base.display().to_string().into();
            std::fs::write(to.join(hf::ADAPTER_CONFIG), config.to_string()).unwrap();
        }
        to
    };
    let one = bare("one", &last(&tuned), None);
    // One on the other.
    let two = bare("two", &last(&tuned), Some(&one));
    let expected = last(&base).canonicalize().unwrap();
    for folder in [&one, &two] {
        assert_eq!(tokenizer_place(folder).canonicalize().unwrap(), expected);
        let source = ModelSource::open(folder).unwrap();
        assert_eq!(source.tokenizer_path().canonicalize().unwrap(), expected);
    }
    let from = format!("train.from={}", one.display());
    let (_, events) = trained(&text, &[&from, "max_steps=2"]);
    assert_eq!(finished(&events).0, Outcome::Completed);
}
