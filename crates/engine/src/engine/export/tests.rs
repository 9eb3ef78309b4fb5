//! Exports of a small model: the contents of the folder, and what is rejected.

mod adapter;
mod cards;

use super::*;
use crate::nn::norm::NormConfig;
use crate::nn::{Model, ModelConfig};
use candle_core::Device;
use std::fs;

/// A checkpoint-like folder with a random model.
fn source(change: fn(&mut ModelConfig)) -> (tempfile::TempDir, Source) {
    let dir = tempfile::tempdir().unwrap();
    let mut config = ModelConfig {
        n_layer: 1,
        n_head: 2,
        d_model: 8,
        seq_len: 8,
        ..ModelConfig::default()
    };
    change(&mut config);
    let mut model = Model::new(&config, 11, &Device::Cpu).unwrap();
    model.init(3).unwrap();
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    write(crate::hf::CONFIG, &crate::hf::config_json(&model, Some(7)));
    write(crate::hf::TOKENIZER, "{\"a tokenizer\": 1}");
    write(crate::hf::TOKENIZER_CONFIG, "{\"chat_template\": \"x\"}");
    let mut out = fs::File::create(dir.path().join(crate::hf::WEIGHTS)).unwrap();
    crate::hf::write_weights(&model, &mut out).unwrap();
    let source = Source::open(dir.path()).unwrap();
    (dir, source)
}

fn hostile_path() -> String {
    "/data/a\n---\nbase".into()
}

fn options(dtype: &str, max_shard_bytes: u64) -> Options {
    Options {
        dtype: dtype.into(),
        max_shard_bytes,
    }
}

#[test]
fn a_folder_for_transformers_has_all_its_files_and_loads_again() {
    let (dir, source) = source(|_| {});
    let to = dir.path().join("out/model");
    let written = export(&source, format("hf").unwrap(), &options("f32", 700), &to).unwrap();
    let names: Vec<&str> = written.iter().map(|w| w.name.as_str()).collect();
    for name in [
        "config.json",
        "model.safetensors.index.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "generation_config.json",
        "README.md",
    ] {
        assert!(names.contains(&name), "{name} of {names:?}");
    }
    assert!(names.iter().filter(|n| n.starts_with("model-0")).count() > 1);
    for file in &written {
        assert_eq!(fs::metadata(to.join(&file.name)).unwrap().len(), file.bytes);
    }
    let back = Source::open(&to).unwrap();
    let bits = |s: &Source| s.model.params().read_weights(<[f32]>::to_vec).unwrap();
    assert_eq!(bits(&back), bits(&source));
    assert_eq!(back.ids.eos, [7]);
    let card = fs::read_to_string(to.join("README.md")).unwrap();
    assert!(
        card.contains("GPT2LMHeadModel") && card.contains("has a chat template"),
        "{card}"
    );
}

/// transformers refuses batches where config.json names no padding token, and its tokenizer where its own file names none.
#[test]
fn a_reward_model_names_what_pads_and_its_card_scores_a_batch() {
    for (tokens, beside, pads) in [
        (&["[UNK]", "</s>"][..], "{}", Some((2, "</s>"))),
        (
            &["[UNK]", "</s>"][..],
            "{\"pad_token\": \"[UNK]\"}",
            Some((1, "[UNK]")),
        ),
        // A text may end with an unknown word, and its score would move.
        (&["[UNK]"][..], "{}", None),
        (&["?"][..], "{}", None),
    ] {
        let (dir, _) = source(|c| c.head = crate::nn::HeadKind::Score);
        let names = ["once"].iter().chain(tokens).zip(0..);
        let vocab: std::collections::BTreeMap<_, u32> = names.collect();
        let tokenizer = serde_json::json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
            "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "[UNK]"},
        });
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        write(crate::hf::TOKENIZER, &tokenizer.to_string());
        write(crate::hf::TOKENIZER_CONFIG, beside);
        let to = dir.path().join("out");
        let source = Source::open(dir.path()).unwrap();
        let written = export(
            &source,
            format("hf").unwrap(),
            &options("f32", 1 << 30),
            &to,
        )
        .unwrap();
        let read = |name: &str| fs::read_to_string(to.join(name)).unwrap();
        let json = |name: &str| serde_json::from_str::<serde_json::Value>(&read(name)).unwrap();
        let (id, token) = pads.map_or((None, None), |(id, token)| (Some(id), Some(token)));
        assert_eq!(json("config.json")["pad_token_id"], serde_json::json!(id));
        let config = json("tokenizer_config.json");
        assert_eq!(config["pad_token"], serde_json::json!(token));
        assert_eq!(
            config["padding_side"],
            serde_json::json!(id.map(|_| "right"))
        );
        let notes = written
            .iter()
            .flat_map(|w| &w.notes)
            .any(|n| n.contains("pad a batch"));
        let card = read("README.md");
        assert_eq!(
            card.contains("tokenizer(texts, padding=True"),
            id.is_some(),
            "{card}"
        );
        assert_eq!(
            (notes, card.contains(NO_PADDING)),
            (id.is_none(), id.is_none()),
            "{card}"
        );
    }
}

#[test]
fn a_card_holds_what_is_known_and_no_name_breaks_out_of_it() {
    let (_dir, source) = source(|_| {});
    let hostile = "a\n---\n\"| <b>".to_string();
    let about = About {
        license: Some("mit".into()),
        base_model: Some("org/base".into()),
        languages: vec!["no".into()],
        datasets: vec!["org/set".into(), hostile.clone()],
        results: vec![CardResult {
            task: hostile,
            metric: "acc".into(),
            value: 0.5,
            stderr: Some(0.25),
            items: 4,
            shots: 0,
            limited: false,
            origin: crate::tasks::TaskOrigin::Own,
        }],
        procedure: vec![("method".into(), "sft".into())],
        environment: Vec::new(),
    };
    let text = card(&source, "f32", &about);
    let (front, body) = text
        .strip_prefix("---\n")
        .unwrap()
        .split_once("\n---\n")
        .unwrap();
    let meta = crate::spec::yaml::parse(front).unwrap();
    assert_eq!(meta["license"], "mit");
    assert_eq!(meta["base_model"], "org/base");
    assert_eq!(meta["language"], serde_json::json!(["no"]));
    assert_eq!(meta["datasets"], serde_json::json!(["org/set"]));
    let result = &meta["model-index"][0]["results"][0];
    assert_eq!(result["metrics"][0]["value"], 0.5);
    let local = About {
        base_model: Some(hostile_path()),
        ..About::default()
    };
    assert!(
        !card(&source, "f32", &local).contains("base_model"),
        "the hub refuses paths"
    );
    assert!(
        body.contains("0.5000 ± 0.2500") && body.contains("| method | sft |"),
        "{body}"
    );
    assert!(
        !body.contains("<b>") && body.contains("License: mit"),
        "{body}"
    );
}

#[test]
fn half_precision_halves_the_file_and_rounds_once() {
    let (dir, source) = source(|_| {});
    let size = |dtype: &str| {
        let to = dir.path().join(dtype);
        let written = export(
            &source,
            format("hf").unwrap(),
            &options(dtype, u64::MAX),
            &to,
        )
        .unwrap();
        let file = written.iter().find(|w| w.name == crate::hf::WEIGHTS);
        (to, file.unwrap().bytes)
    };
    let (_, whole) = size("f32");
    for dtype in ["f16", "bf16"] {
        let (to, half) = size(dtype);
        assert!(half < whole * 2 / 3, "{half} of {whole}");
        let config = fs::read_to_string(to.join(crate::hf::CONFIG)).unwrap();
        assert!(config.contains(if dtype == "f16" {
            "float16"
        } else {
            "bfloat16"
        }));
        let back = Source::open(&to).unwrap();
        // A second time nothing is lost.
        let again = dir.path().join(format!("{dtype}-again"));
        export(
            &back,
            format("hf").unwrap(),
            &options(dtype, u64::MAX),
            &again,
        )
        .unwrap();
        let bytes = |folder: &Path| fs::read(folder.join(crate::hf::WEIGHTS)).unwrap();
        assert!(bytes(&to) == bytes(&again));
    }
}

#[test]
fn a_model_without_a_class_goes_out_in_our_own_format_alone() {
    let mixed: fn(&mut ModelConfig) = |c| c.norm = NormConfig::RmsNorm(Default::default());
    let (dir, source) = source(mixed);
    let to = dir.path().join("out");
    let refused = export(
        &source,
        format("hf").unwrap(),
        &options("f32", u64::MAX),
        &to,
    );
    let error = refused.unwrap_err();
    assert!(
        error.to_string().contains("no transformers class") && error.hint().contains("safetensors")
    );
    assert!(
        !to.exists() && !dir.path().join(".out.partial").exists(),
        "nothing is left"
    );
    export(
        &source,
        format("safetensors").unwrap(),
        &options("f32", u64::MAX),
        &to,
    )
    .unwrap();
    assert_eq!(
        Source::open(&to).unwrap().model.config(),
        source.model.config()
    );
}

#[test]
fn nothing_is_written_over_and_words_are_checked() {
    let (dir, source) = source(|_| {});
    let to = dir.path().join("out");
    fs::create_dir(&to).unwrap();
    fs::write(to.join("mine.txt"), "mine").unwrap();
    let hf = format("hf").unwrap();
    let error = export(&source, hf, &options("f32", u64::MAX), &to).unwrap_err();
    assert!(matches!(error, ExportError::Occupied(_)));
    assert_eq!(fs::read_to_string(to.join("mine.txt")).unwrap(), "mine");
    fs::remove_file(to.join("mine.txt")).unwrap();
    assert!(
        export(&source, hf, &options("f32", u64::MAX), &to).is_ok(),
        "an empty folder may be there"
    );
    // A file or a device is called neither a folder nor empty.
    for place in [to.join("config.json"), "/dev/null".into()] {
        let error = check_free(&place).unwrap_err();
        assert!(matches!(error, ExportError::NoFolder(_)), "{error}");
        assert!(error.hint().contains("ends in .gguf"));
    }
    // Found before weights are read.
    let below = to.join("config.json").join("out");
    assert!(matches!(check_free(&below), Err(ExportError::Io { .. })));
    assert!(check_free(&dir.path().join("new/deep")).is_ok() && !dir.path().join("new").exists());
    let error = export(&source, hf, &options("int3", 1), &dir.path().join("x")).unwrap_err();
    assert!(error.to_string().contains("f32, f16, bf16"), "{error}");
    let error = format("onnx").err().unwrap().to_string();
    assert!(error.contains("hf, safetensors"), "{error}");
}

#[test]
fn a_reward_model_is_refused_as_gguf_with_the_formats_that_hold_it() {
    let (dir, source) = source(|c| c.head = crate::nn::HeadKind::Score);
    let to = dir.path().join("out");
    let gguf = format("gguf").unwrap();
    let error = export(&source, gguf, &options("f16", u64::MAX), &to).unwrap_err();
    assert!(error.to_string().contains("score.weight"), "{error}");
    // The words of every program that writes or describes such a file.
    assert_eq!(
        check_gguf(&source).unwrap_err().to_string(),
        error.to_string()
    );
    for word in ["--format hf", "--format safetensors"] {
        assert!(error.hint().contains(word), "{}", error.hint());
    }
    assert!(!to.exists());
}

#[test]
fn a_folder_without_a_tokenizer_becomes_a_file_without_one() {
    let (dir, _) = source(|_| {});
    let bare = dir.path().join("bare-0.5B");
    fs::create_dir(&bare).unwrap();
    for name in [crate::hf::CONFIG, crate::hf::WEIGHTS] {
        fs::copy(dir.path().join(name), bare.join(name)).unwrap();
    }
    let source = Source::open(&bare).unwrap();
    let to = dir.path().join("out");
    let written = export(
        &source,
        format("gguf").unwrap(),
        &options("f32", u64::MAX),
        &to,
    )
    .unwrap();
    // The whole name: what follows its dot is no ending.
    assert_eq!(written[0].name, "bare-0.5B-F32.gguf");
    assert_eq!(written[1].name, "README.md");
    let notes = written[0].notes.join("\n");
    assert!(
        notes.contains("no tokenizer") && notes.contains("GELU"),
        "{notes}"
    );
    let path = to.join(&written[0].name);
    assert_eq!(ModelSource::open(&path).unwrap().family(), "gpt2");
    let child = crate::base::child::Child::default();
    let error = crate::data::tokenizer::load(&path, &child).unwrap_err();
    assert!(error.to_string().contains("without a tokenizer"), "{error}");
}

#[test]
fn weights_that_are_non_finite_are_refused() {
    let (dir, source) = source(|_| {});
    let mut model = source.model;
    let poison = |weights: &mut [f32]| weights[3] = f32::NAN;
    model.params_mut().write_weights(poison).unwrap();
    let mut out = fs::File::create(dir.path().join(crate::hf::WEIGHTS)).unwrap();
    crate::hf::write_weights(&model, &mut out).unwrap();
    let refused = Source::open(dir.path()).err().unwrap();
    assert!(matches!(refused, ExportError::NotFinite(_)), "{refused}");
    assert!(refused.hint().contains("older checkpoint"));
}

/// Files of a folder in our own format, and what an export of it says of its tokenizer.
#[test]
fn beside_another_model_type_transformers_takes_tokenizer_json_as_it_is() {
    let (dir, source) = source(|_| {});
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    let said = r#"{"tokenizer_class": "LlamaTokenizer", "legacy": false, "chat_template": "x"}"#;
    write(crate::hf::TOKENIZER_CONFIG, said);
    let to = |name: &str| dir.path().join(name);
    let class = |folder: &Path| {
        let text = fs::read(folder.join(crate::hf::TOKENIZER_CONFIG)).unwrap();
        let config: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(config["legacy"], false);
        config["tokenizer_class"].as_str().unwrap().to_string()
    };
    let hf = format("hf").unwrap();
    let all = options("f32", u64::MAX);
    export(&source, hf, &all, &to("same")).unwrap();
    assert_eq!(class(&to("same")), "LlamaTokenizer", "the folder's own");
    let own = format("safetensors").unwrap();
    export(&source, own, &all, &to("own")).unwrap();
    let own = Source::open(&to("own")).unwrap();
    assert_eq!(own.from.family(), "llmtui");
    export(&own, hf, &all, &to("other")).unwrap();
    assert_eq!(class(&to("other")), "PreTrainedTokenizerFast");
}

#[test]
fn a_tokenizer_that_transformers_builds_anew_is_told_of() {
    let notes = |attention_bias: crate::nn::AttentionBias, tokenizer: &str| {
        let (dir, mut source) = source(adapter::llama);
        let mut config = source.model.config().clone();
        config.attention_bias = attention_bias;
        source.model = Model::new(&config, 11, &Device::Cpu).unwrap();
        source.model.init(3).unwrap();
        source.subject.config = config;
        fs::write(dir.path().join(crate::hf::TOKENIZER), tokenizer).unwrap();
        let hf = format("hf").unwrap();
        let written = export(
            &source,
            hf,
            &options("f32", u64::MAX),
            &dir.path().join("out"),
        );
        written.unwrap().pop().unwrap().notes.join("\n")
    };
    let other = r#"{"normalizer": null, "pre_tokenizer": {"type": "Whitespace"}, "model": {"type": "BPE"}}"#;
    let told = notes(crate::nn::AttentionBias::Qkv, other);
    assert!(told.contains("Qwen2Tokenizer"), "{told}");
    assert_eq!(notes(crate::nn::AttentionBias::None, other), "");
    let theirs = serde_json::json!({"bpe": {"vocab_size": 260, "split": "qwen2"}});
    let theirs: crate::data::tokenizer::TokenizerConfig = serde_json::from_value(theirs).unwrap();
    let theirs = theirs.build("aa aa", "").unwrap();
    assert_eq!(notes(crate::nn::AttentionBias::Qkv, theirs.to_json()), "");
}
