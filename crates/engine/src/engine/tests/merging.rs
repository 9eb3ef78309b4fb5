//! Adapters merged into the weights that they were trained on.

use super::adapters::{adapted, base, packed, weights, words_of};
use super::*;
use crate::engine::export::{About, AdapterSource, Options, export_adapter};
use crate::engine::infer::{LoadedModel, TextModel};
use crate::engine::merge::{Order, RECORD, merge};
use crate::hf::{self, Dtype};
use crate::wire::{Prompt, Turn};
use std::path::PathBuf;
use tempfile::TempDir;

/// A run that trains an adapter on `base`, and the adapter alone, as others keep it.
fn tuned(base: &Run, words: &[&str]) -> (Run, TempDir) {
    let run = adapted(base, &[&["max_steps=6"], words].concat());
    assert_eq!(finished(&run.go()).0, Outcome::Completed);
    let (from, to) = (run.checkpoint(6), tempfile::tempdir().unwrap());
    for name in [hf::ADAPTER_CONFIG, hf::ADAPTER_WEIGHTS] {
        std::fs::copy(from.join(name), to.path().join(name)).unwrap();
    }
    (run, to)
}

/// A merge in f32 of adapters with their weights.
fn order(base: &Path, adapters: &[(&Path, f64)], to: PathBuf) -> Order {
    Order {
        base: base.into(),
        adapters: adapters
            .iter()
            .map(|(path, weight)| (path.to_path_buf(), *weight))
            .collect(),
        to,
        dtype: Dtype::F32,
        dequantize: false,
        any_base: false,
        prompts: Vec::new(),
    }
}

#[test]
fn adapters_are_merged_into_their_base_and_nothing_else() {
    let (base, dir) = (base(), tempfile::tempdir().unwrap());
    let (run, one) = tuned(&base, &[]);
    let (_, two) = tuned(&base, &["seed=5", "adapter.lora.targets=ffn_only"]);
    let (_, dora) = tuned(&base, &["adapter.lora.dora=true"]);
    let go = |from: &Path, adapters: &[(&Path, f64)], to: &str| {
        merge(&order(from, adapters, dir.path().join(to)))
    };
    let folder = base.checkpoint(5);
    for (adapters, to) in [
        (&[(one.path(), 1.0)][..], "one"),
        (&[(one.path(), 0.5), (two.path(), -0.25)], "both"),
        (&[(dora.path(), 1.0)], "dora"),
    ] {
        let merged = go(&folder, adapters, to).unwrap();
        let found = merged.check.unwrap();
        assert!(
            found.off < 1e-4 && found.moved > 10.0 * found.off,
            "{to}: {found:?}"
        );
        assert_eq!(found.agree, found.tokens);
        assert!(dir.path().join(to).join(RECORD).is_file());
    }
    // Whoever publishes it says what it is made of.
    let card = std::fs::read_to_string(dir.path().join("both/README.md")).unwrap();
    let named = |path: &Path| crate::models::name_of(path);
    let adapters = format!(
        "{} (weight 0.5), {} (weight -0.25).",
        named(one.path()),
        named(two.path())
    );
    assert!(card.contains("\n# both\n"), "{card}");
    let base_name = format!("These are the weights of {} with", named(&folder));
    assert!(card.contains(&base_name), "{base_name}: {card}");
    assert!(card.contains(&adapters), "{adapters}: {card}");
    // What is written in 16 bits is asked as it is written.
    let rounded = |dtype: Dtype| {
        let order = Order {
            dtype,
            ..order(&folder, &[(one.path(), 1.0)], dir.path().join(dtype.word()))
        };
        merge(&order).unwrap().rounded.unwrap().off
    };
    assert!(
        go(&folder, &[(two.path(), 1.0)], "f32")
            .unwrap()
            .rounded
            .is_none()
    );
    let (half, brain) = (rounded(Dtype::F16), rounded(Dtype::Bf16));
    assert!(0.0 < half && half < brain && brain < 0.5, "{half} {brain}");
    // A checkpoint holds base and adapter.
    go(&run.checkpoint(6), &[], "own").unwrap();
    assert_eq!(
        weights(&dir.path().join("own")),
        weights(&dir.path().join("one"))
    );
    assert_eq!(
        weights(&dir.path().join("own")),
        weights(&run.checkpoint(6))
    );
    let said = |from: &Path, adapters: &[(&Path, f64)]| {
        let error = go(from, adapters, "never").unwrap_err();
        assert!(!dir.path().join("never").exists());
        format!("{error}; {}", error.hint())
    };
    let already = said(&dir.path().join("one"), &[(one.path(), 1.0)]);
    assert!(already.contains("already merged"), "{already}");
    // The same adapter in another file, as an export makes one.
    let source = AdapterSource::open(one.path(), None).unwrap();
    let (options, exported) = (
        Options {
            dtype: "f32".into(),
            max_shard_bytes: 1 << 30,
        },
        dir.path().join("exported"),
    );
    export_adapter(&source, &options, &About::default(), &exported).unwrap();
    let file = exported.join(hf::ADAPTER_WEIGHTS);
    let bytes = std::fs::read(&file).unwrap();
    // Other bytes: spaces after the header, as PEFT's writer puts them there.
    let (length, rest) = bytes.split_at(8);
    let length = u64::from_le_bytes(length.try_into().unwrap());
    let (header, tensors) = rest.split_at(length as usize);
    let length = (length + 8).to_le_bytes();
    std::fs::write(&file, [&length, header, b"        ", tensors].concat()).unwrap();
    let already = said(&dir.path().join("one"), &[(&exported, 1.0)]);
    assert!(already.contains("already merged"), "{already}");
    // What is not read is its own, whatever the base.
    let config = std::fs::read_to_string(exported.join(hf::ADAPTER_CONFIG)).unwrap();
    let config = config.replace("\"bias\": \"none\"", "\"bias\": \"lora_only\"");
    std::fs::write(exported.join(hf::ADAPTER_CONFIG), config).unwrap();
    let unread = said(&folder, &[(&exported, 1.0)]);
    assert!(
        unread.contains("bias") && unread.contains("merge it with PEFT"),
        "{unread}"
    );
    assert!(!unread.contains("trained on"), "{unread}");
    let other = said(&dir.path().join("one"), &[(two.path(), 1.0)]);
    assert!(
        other.contains("another base") && other.contains("--any-base"),
        "{other}"
    );
    // Chat attaches an adapter to the weights: a warning for other weights, and refused if it is merged into them.
    let beside = |model: &Path, adapter: &Path| {
        let held = LoadedModel::load_with(model, &[adapter.to_path_buf()]);
        held.map(|held| match held.about(0.0) {
            Event::Loaded { notes, .. } => notes.join("; "),
            event => panic!("{event:?}"),
        })
    };
    let same = beside(&folder, one.path()).unwrap();
    assert!(!same.contains("another base"), "{same}");
    let other = beside(&dir.path().join("one"), two.path()).unwrap();
    assert!(other.contains("is an adapter of another base"), "{other}");
    let already = beside(&dir.path().join("one"), one.path()).err().unwrap();
    assert!(already.to_string().contains("already merged"), "{already}");
    assert!(already.hint().contains("drop --adapter"));
    let none = said(&folder, &[(&folder, 1.0)]);
    assert!(none.contains("no adapter here"), "{none}");
    assert!(said(&folder, &[]).contains("it has no adapter"));
    let whole = said(&folder, &[(dora.path(), 0.5)]);
    assert!(whole.contains("cannot be scaled"), "{whole}");
    let several = said(&folder, &[(one.path(), 1.0), (dora.path(), 1.0)]);
    assert!(several.contains("cannot be summed"), "{several}");
    let (path, _) = packed(dir.path());
    let packed = said(&path, &[(one.path(), 1.0)]);
    assert!(packed.contains("--dequantize"), "{packed}");
}

/// SFT with adapters on a quantized file, then DPO or more SFT with adapters on that.
#[test]
fn an_adapter_on_an_adapter_on_a_file_is_merged_by_one_order() {
    let dir = tempfile::tempdir().unwrap();
    let (path, words) = packed(dir.path());
    let first = Run::new(&[&words_of(&words)[..], &["max_steps=6"]].concat());
    assert_eq!(finished(&first.go()).0, Outcome::Completed);
    let first = first.checkpoint(6);
    let from = format!("train.from={}", first.display());
    let second = Run::new(&[
        &from,
        "adapter.lora.rank=2",
        "lr=1e-2",
        "max_steps=6",
        "seed=5",
        "model.d_model=32",
    ]);
    assert_eq!(finished(&second.go()).0, Outcome::Completed);
    let second = second.checkpoint(6);
    // The second adapter without the weights under it, as it is published.
    let alone = dir.path().join("alone");
    std::fs::create_dir(&alone).unwrap();
    for name in [hf::ADAPTER_CONFIG, hf::ADAPTER_WEIGHTS] {
        std::fs::copy(second.join(name), alone.join(name)).unwrap();
    }
    let go = |from: &Path, adapter: Option<&Path>, dequantize, to: &str| {
        let adapter = adapter.map(|path| (path, 1.0));
        merge(&Order {
            dequantize,
            ..order(from, adapter.as_slice(), dir.path().join(to))
        })
    };
    // A run on a file is merged without naming the file.
    go(&first, None, false, "sft").unwrap();
    go(&second, None, false, "expected").unwrap();
    let expected = weights(&dir.path().join("expected"));
    assert_ne!(weights(&dir.path().join("sft")), expected);
    let ways: [(&Path, Option<&Path>, bool, &str); 4] = [
        (&first, Some(&second), false, "run and run"),
        (&first, Some(&alone), false, "run and adapter"),
        (&alone, None, false, "adapter alone"),
        (
            &dir.path().join("sft"),
            Some(&alone),
            false,
            "merged and adapter",
        ),
    ];
    for (from, adapter, dequantize, to) in ways {
        let merged = go(from, adapter, dequantize, to).unwrap();
        let found = merged.check.unwrap();
        assert!(
            found.off < 1e-3 && found.agree == found.tokens,
            "{to}: {found:?}"
        );
        assert_eq!(weights(&dir.path().join(to)), expected, "{to}");
    }
    // The file is found to be what the chain stands on; it has no tokenizer to export.
    let file = go(&path, Some(&second), true, "never").unwrap_err();
    assert!(file.to_string().contains("no tokenizer"), "{file}");
    let record = std::fs::read_to_string(dir.path().join("run and adapter").join(RECORD)).unwrap();
    let record: serde_json::Value = serde_json::from_str(&record).unwrap();
    assert_eq!(record["adapters"].as_array().unwrap().len(), 2);
    assert!(record["base"].as_str().unwrap().ends_with("base.gguf"));
    // The chain answers, too, and says what its merged weights say.
    let source = crate::models::ModelSource::open(&alone).unwrap();
    let logits = |model: &mut crate::nn::Model| -> Vec<f32> {
        let tokens: Vec<u32> = (0..16).collect();
        let logits = model.logits(&tokens, 1, 16).unwrap();
        logits.flatten_all().unwrap().to_vec1().unwrap()
    };
    let beside = logits(&mut source.load_for_inference().unwrap());
    let merged = logits(&mut hf::load(&dir.path().join("expected")).unwrap());
    let off = beside
        .iter()
        .zip(&merged)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f32::max);
    assert!(off < 1e-3, "{off}");
    // A chain that does not end in these weights; the message says what would do.
    let other = base();
    let error = go(&other.checkpoint(5), Some(&second), false, "never").unwrap_err();
    let said = format!("{error}; {}", error.hint());
    assert!(
        said.contains("another") || said.contains("other model") || said.contains("shape"),
        "{said}"
    );
    // Adapters in a circle end.
    let mut config: serde_json::Value =
        serde_json::from_slice(&std::fs::read(alone.join(hf::ADAPTER_CONFIG)).unwrap()).unwrap();
    config["base_model_name_or_path"] = alone.to_str().unwrap().into();
    std::fs::write(alone.join(hf::ADAPTER_CONFIG), config.to_string()).unwrap();
    let circle = go(&alone, None, false, "never").unwrap_err().to_string();
    assert!(circle.contains("cycle"), "{circle}");
    assert!(!dir.path().join("never").exists());
}

/// Whole tables do not add up with other adapters: such a merge is written unchecked. A table that two adapters bring is one
/// too many.
#[test]
fn an_adapter_with_a_table_of_its_own_is_merged_with_another() {
    let (base, dir) = (base(), tempfile::tempdir().unwrap());
    let tuned = |words: &[&str]| tuned(&base, words).1;
    let whole = "adapter.lora.modules_to_save=[embeddings]";
    let [plain, one, two] = [tuned(&[]), tuned(&[whole]), tuned(&[whole, "seed=5"])];
    let go = |adapters: &[&tempfile::TempDir], to: &str| {
        let adapters: Vec<(&Path, f64)> = adapters.iter().map(|dir| (dir.path(), 1.0)).collect();
        merge(&order(&base.checkpoint(5), &adapters, dir.path().join(to)))
    };
    let alone = go(&[&one], "alone").unwrap().check.unwrap();
    assert!(alone.off < 1e-4 && alone.moved > 0.0, "{alone:?}");
    let unchecked = go(&[&plain, &one], "both").unwrap().check.unwrap_err();
    assert!(unchecked.contains("cannot be summed"), "{unchecked}");
    assert!(dir.path().join("both").join("config.json").is_file());
    let error = go(&[&one, &two], "never").unwrap_err().to_string();
    assert!(error.contains("two adapters replace"), "{error}");
}

/// A folder with files of a checkpoint, and a template in which a conversation begins with `word`.
fn talking(from: &Path, to: &Path, files: &[&str], word: &str) {
    std::fs::create_dir(to).unwrap();
    for name in files {
        std::fs::copy(from.join(name), to.join(name)).unwrap();
    }
    let template = template(word);
    let config = serde_json::json!({"chat_template": template});
    std::fs::write(to.join(hf::TOKENIZER_CONFIG), config.to_string()).unwrap();
    std::fs::write(to.join(hf::GENERATION), "{\"eos_token_id\": 3}").unwrap();
}

fn template(word: &str) -> String {
    format!("{{% for m in messages %}}{word}: {{{{ m.content }}}}\n{{% endfor %}}")
}

/// The base completes texts, or is talked to otherwise.
#[test]
fn a_merged_model_and_a_chat_are_talked_to_as_the_adapter_was_in_its_training() {
    let (base, dir) = (base(), tempfile::tempdir().unwrap());
    let run = adapted(&base, &["max_steps=1"]);
    assert_eq!(finished(&run.go()).0, Outcome::Completed);
    let place = |name: &str| dir.path().join(name);
    let adapter = [hf::ADAPTER_CONFIG, hf::ADAPTER_WEIGHTS, hf::TOKENIZER];
    talking(&run.checkpoint(1), &place("adapter"), &adapter, "Q");
    let whole = [hf::CONFIG, hf::WEIGHTS, hf::TOKENIZER];
    talking(&base.checkpoint(5), &place("spoken"), &whole, "You");
    let go = |base: &Path, adapter: &str, to: &str| {
        let merged = merge(&order(base, &[(&place(adapter), 1.0)], place(to)));
        let notes = merged.unwrap().written.pop().unwrap().notes.join("; ");
        let text = std::fs::read(place(to).join(hf::TOKENIZER_CONFIG)).unwrap();
        let config: serde_json::Value = serde_json::from_slice(&text).unwrap();
        (notes, config["chat_template"].as_str().map(String::from))
    };
    let turn = Turn {
        role: "user".into(),
        content: "what".into(),
        extra: Default::default(),
    };
    let rendered = |held: &LoadedModel| {
        let prompt = Prompt::Turns(vec![turn.clone()]);
        held.read(&prompt, &Default::default()).unwrap().text
    };
    let plain = base.checkpoint(5);
    for (from, to, without) in [(&plain, "one", "Q"), (&place("spoken"), "two", "You")] {
        let (notes, written) = go(from, "adapter", to);
        assert_eq!(written, Some(template("Q")), "{to}");
        assert!(notes.contains("was trained with them"), "{notes}");
        let ends = std::fs::read_to_string(place(to).join(hf::GENERATION)).unwrap();
        assert_eq!(ends, "{\"eos_token_id\": 3}");
        let mut held = LoadedModel::load_with(from, &[place("adapter")]).unwrap();
        let Event::Loaded {
            template, notes, ..
        } = held.about(0.0)
        else {
            panic!("no model was loaded");
        };
        assert!(template.is_some() && notes.join("; ").contains("chat template of the adapter"));
        assert_eq!(rendered(&held), "Q: what\n");
        // A base that was never talked to answers the same conversation.
        held.use_adapter(None).unwrap();
        assert_eq!(rendered(&held), format!("{without}: what\n"));
        held.use_adapter(Some("adapter")).unwrap();
        assert_eq!(rendered(&held), "Q: what\n");
    }
    // Another vocabulary beside the adapter is not the model's.
    let letters = crate::data::tokenizer::TokenizerConfig::Char(Default::default());
    let other = letters.build("xyz", "xyz").unwrap();
    std::fs::write(place("adapter").join(hf::TOKENIZER), other.to_json()).unwrap();
    let (notes, written) = go(&place("spoken"), "adapter", "three");
    assert_eq!((notes.as_str(), written), ("", Some(template("You"))));
    let held = LoadedModel::load_with(&place("spoken"), &[place("adapter")]).unwrap();
    assert_eq!(rendered(&held), "You: what\n");
}

/// Temperature and the like, which `generate` of transformers takes from the folder.
#[test]
fn checkpoints_keep_what_generation_starts_from() {
    let (base, dir) = (base(), tempfile::tempdir().unwrap());
    let first = std::fs::read_to_string(base.checkpoint(5).join(hf::GENERATION)).unwrap();
    assert!(first.contains("\"do_sample\": true"), "{first}");
    let folder = dir.path().join("base");
    talking(
        &base.checkpoint(5),
        &folder,
        &[hf::CONFIG, hf::WEIGHTS, hf::TOKENIZER],
        "Q",
    );
    let settings = folder.join(hf::GENERATION);
    std::fs::write(&settings, "{\"temperature\": 0.6, \"eos_token_id\": 3}").unwrap();
    let from = format!("train.from={}", folder.display());
    let mut run = Run::new(&[&from, "max_steps=4"]);
    run.job.stop_after = Some(2);
    run.go();
    std::fs::remove_file(&settings).unwrap();
    run.resumed();
    for step in [2, 4] {
        let kept = std::fs::read(run.checkpoint(step).join(hf::GENERATION)).unwrap();
        let kept: serde_json::Value = serde_json::from_slice(&kept).unwrap();
        assert_eq!(kept["temperature"], 0.6, "step {step}");
        assert!(kept.get("do_sample").is_none(), "{kept}");
    }
}
