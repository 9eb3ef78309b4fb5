//! Tokenizers in GGUF files: llama.cpp's ids of texts with the keys that we write, and ours when the keys are read
//! back. tests/oracle/gguf_tokenizers.py recorded its ids (llama-cpp-python 0.3.36).

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a fixture that cannot be read has failed"
)]

use llmtui::base::child::Child;
use llmtui::data::Tokenizer;
use llmtui::data::tokenizer::{self, TokenizerConfig};
use llmtui::gguf::{self, Value};
use serde_json::{Value as Json, json};
use std::path::{Path, PathBuf};

fn oracle(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/oracle")
        .join(name)
}

fn load(path: &Path) -> Tokenizer {
    let child = Child {
        program: Some(env!("CARGO_BIN_EXE_llmtui").into()),
    };
    tokenizer::load(path, &child).unwrap_or_else(|e| panic!("{e}"))
}

fn texts() -> Vec<String> {
    let text = std::fs::read_to_string(oracle("tokenizers/expected.json")).unwrap();
    let expected: Json = serde_json::from_str(&text).unwrap();
    serde_json::from_value(expected["texts"].clone()).unwrap()
}

/// Llama 2's tokenizer, with another way of prepending spaces.
fn changed(change: impl Fn(&mut Json)) -> Tokenizer {
    let made = load(&oracle("tokenizers/llama2.model"));
    let mut json: Json = serde_json::from_str(made.to_json()).unwrap();
    change(&mut json);
    let changed = Tokenizer::from_json(&json.to_string()).unwrap();
    changed.with_marks(made.marks().clone()).unwrap()
}

fn supervised(config: Json) -> Tokenizer {
    let config: TokenizerConfig = serde_json::from_value(config).unwrap();
    let all = texts().join("\n");
    config.build(&all.repeat(3), &all).unwrap()
}

/// Tokenizers by name, with the texts whose ids were recorded from llama.cpp.
fn cases() -> Vec<(&'static str, Tokenizer, Vec<String>)> {
    let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
    let gemma = changed(|json| {
        json["normalizer"] = replace.clone();
        json["pre_tokenizer"] = json!({"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": false});
    });
    let mistral = changed(|json| {
        json["normalizer"] = Json::Null;
        json["pre_tokenizer"] = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false});
    });
    let all = texts();
    // After special tokens and before spaces llama.cpp inserts a space and this program does not, which is reported.
    let same = |text: &&String| !text.contains("<s>") && !text.starts_with(' ');
    let plain = all.iter().filter(same).cloned();
    // llama.cpp does not compose characters (NFC).
    let composed = all
        .iter()
        .filter(|text| !text.contains("e\u{301}"))
        .cloned();
    let composed: Vec<String> = composed.collect();
    vec![
        ("characters", supervised(json!({"char": {}})), all.clone()),
        (
            "llama2",
            load(&oracle("tokenizers/llama2.model")),
            all.clone(),
        ),
        ("gemma", gemma, all.clone()),
        ("mistral", mistral, plain.collect()),
        ("gpt2", load(&oracle("tokenizers/gpt2")), all.clone()),
        ("llama3", load(&oracle("tokenizers/llama3")), all.clone()),
        ("qwen2", load(&oracle("tokenizers/qwen2")), composed),
        ("bpe", supervised(json!({"bpe": {"vocab_size": 400}})), all),
    ]
}

/// A file of keys only, which llama.cpp opens for its vocabulary.
fn file(tokenizer: &Tokenizer) -> Vec<u8> {
    let architecture = Value::String("llama".into());
    let mut keys = vec![("general.architecture".to_string(), architecture)];
    keys.extend(
        tokenizer
            .gguf_keys(tokenizer.vocab_size() + 2)
            .unwrap()
            .keys,
    );
    let mut bytes = Vec::new();
    gguf::write(&mut bytes, &keys, &[], &mut |_, _| Ok(())).unwrap();
    bytes
}

/// Writes the files and the texts for the script, into target/tmp/gguf_tokenizers.
#[test]
#[ignore = "the first half of tests/oracle/gguf_tokenizers.py"]
fn write_files() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gguf_tokenizers");
    std::fs::create_dir_all(&folder).unwrap();
    for (name, tokenizer, texts) in cases() {
        std::fs::write(folder.join(format!("{name}.gguf")), file(&tokenizer)).unwrap();
        let texts = serde_json::to_string(&texts).unwrap();
        std::fs::write(folder.join(format!("{name}.json")), texts).unwrap();
    }
}

#[test]
fn llama_cpp_tokenizes_as_we_do_before_and_after_writing_a_file() {
    let recorded = std::fs::read_to_string(oracle("gguf_tokenizers.json")).unwrap();
    let recorded: Json = serde_json::from_str(&recorded).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut faults = Vec::new();
    for (name, tokenizer, texts) in cases() {
        let path = dir.path().join(format!("{name}.gguf"));
        std::fs::write(&path, file(&tokenizer)).unwrap();
        let back = load(&path);
        let theirs: Vec<Vec<u32>> = serde_json::from_value(recorded[name].clone()).unwrap();
        assert_eq!(
            theirs.len(),
            texts.len(),
            "{name}: recorded for other texts"
        );
        for (text, theirs) in texts.iter().zip(theirs) {
            let ours = tokenizer.encode(text).unwrap();
            if ours != theirs {
                faults.push(format!(
                    "{name} {text:?}\n  ours   {ours:?}\n  theirs {theirs:?}"
                ));
            }
            // A file has a single flag for a prepended space: after special tokens too.
            let again = back.encode(text).unwrap();
            if again != ours {
                faults.push(format!(
                    "{name} {text:?}\n  before {ours:?}\n  after  {again:?}"
                ));
            }
        }
        assert_eq!(back.bos(), tokenizer.bos(), "{name}");
        if tokenizer.eos().is_some() {
            assert_eq!(back.eos(), tokenizer.eos(), "{name}");
        }
    }
    assert!(
        faults.is_empty(),
        "{} faults\n{}",
        faults.len(),
        faults.join("\n")
    );
}
