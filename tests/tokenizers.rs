//! Token ids against transformers and sentencepiece (tests/oracle/tokenizer_oracle.py made the fixtures).

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail loudly")]

use llmtui::base::child::Child;
use llmtui::data::tokenizer::{self, Tokenizer};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle/tokenizers")
}

/// Loaded as in the program: tested in a child first.
fn load(path: &Path) -> Tokenizer {
    let child = Child {
        program: Some(env!("CARGO_BIN_EXE_llmtui").into()),
    };
    tokenizer::load(path, &child).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn expected() -> Value {
    let text = std::fs::read_to_string(folder().join("expected.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Compares all texts; returns how many there were.
fn compare(file: &str, oracle: &str) -> usize {
    let tokenizer = load(&folder().join(file));
    let expected = expected();
    let mut compared = 0;
    for (text, ids) in expected["texts"]
        .as_array()
        .unwrap()
        .iter()
        .zip(expected[oracle].as_array().unwrap())
    {
        let Some(ids) = ids.as_array() else { continue };
        let text = text.as_str().unwrap();
        let ours = tokenizer.encode(text).unwrap();
        let theirs: Vec<u32> = ids.iter().map(|id| id.as_u64().unwrap() as u32).collect();
        let spelled = |ids: &[u32]| -> Vec<String> {
            ids.iter()
                .map(|id| tokenizer.token(*id).unwrap_or_default())
                .collect()
        };
        assert_eq!(
            ours,
            theirs,
            "{file}: {text:?}\n{:?}\n{:?}",
            spelled(&ours),
            spelled(&theirs)
        );
        compared += 1;
    }
    compared
}

#[test]
fn gpt2s_files_give_transformers_ids() {
    assert_eq!(compare("gpt2", "gpt2"), 34);
    assert_eq!(compare("gpt2/merges.txt", "gpt2"), 34);
}

#[test]
fn qwens_files_give_transformers_ids() {
    assert_eq!(compare("qwen2", "qwen2"), 34);
    let tokenizer = load(&folder().join("qwen2"));
    assert_eq!(tokenizer.eos(), tokenizer.id("<|im_end|>"));
    assert_eq!(tokenizer.pad(), tokenizer.id("<|endoftext|>"));
    assert!(tokenizer.marks().chat_template.is_some());
}

#[test]
fn llama3s_tokenizer_json_gives_transformers_ids() {
    assert_eq!(compare("llama3", "llama3"), 34);
    assert_eq!(compare("llama3/tokenizer.json", "llama3"), 34);
    let tokenizer = load(&folder().join("llama3"));
    assert_eq!(tokenizer.eos(), tokenizer.id("<|eot_id|>"));
    assert_eq!(tokenizer.bos(), tokenizer.id("<|begin_of_text|>"));
}

#[test]
fn sentencepiece_models_give_sentencepieces_ids() {
    assert_eq!(compare("llama2.model", "llama2.model"), 33);
    assert_eq!(compare("t5.model", "t5.model"), 33);
    assert_eq!(compare("unigram_bytes.model", "unigram_bytes.model"), 33);
}

#[test]
fn gguf_files_give_the_ids_of_their_source_tokenizers() {
    assert_eq!(compare("gpt2.gguf", "gpt2"), 34);
    assert_eq!(compare("llama2.gguf", "llama2.model"), 33);
    assert_eq!(load(&folder().join("llama2.gguf")).eos(), Some(2));
}

/// llama.cpp ships vocabularies of real models with texts and the ids of their original tokenizers
/// (`models/ggml-vocab-*.gguf` with `.inp` and `.out`; in the source package of llama-cpp-python too):
/// `LLMTUI_VOCABS=FOLDER cargo test --test tokenizers -- --ignored`.
#[test]
#[ignore = "needs LLMTUI_VOCABS, a folder of llama.cpp's vocabularies"]
fn vocabularies_of_real_models_give_their_ids() {
    let Some(folder) = std::env::var_os("LLMTUI_VOCABS").map(PathBuf::from) else {
        println!("skipped: LLMTUI_VOCABS is not set");
        return;
    };
    let names = [
        "gpt-2",
        "llama-bpe",
        "qwen2",
        "starcoder",
        "refact",
        "command-r",
        "llama-spm",
        "phi-3",
        "qwen35",
    ];
    let mut faults = Vec::new();
    for name in names {
        let path = folder.join(format!("ggml-vocab-{name}.gguf"));
        let tokenizer = load(&path);
        let read = |ending| std::fs::read_to_string(format!("{}{ending}", path.display())).unwrap();
        let (texts, ids) = (read(".inp"), read(".out"));
        let texts: Vec<&str> = texts.split("\n__ggml_vocab_test__\n").collect();
        let ids: Vec<&str> = ids.lines().collect();
        for (text, line) in texts.iter().zip(&ids) {
            let theirs: Vec<u32> = line
                .split_whitespace()
                .map(|id| id.parse().unwrap())
                .collect();
            // llama.cpp does not compose characters; Qwen's own tokenizer does (NFC).
            if name == "qwen35" && text.contains(['\u{300}', '\u{301}']) {
                continue;
            }
            let ours = tokenizer.encode(text).unwrap();
            if ours != theirs {
                faults.push(format!("{name}: {text:?}\n  {ours:?}\n  {theirs:?}"));
            }
        }
        println!("{name}: {} texts", texts.len().min(ids.len()));
        // Our files read back the same; tests/oracle/gguf_tokenizers.py lets llama.cpp read them.
        let written = written(&tokenizer, name, &texts);
        let back = load(&written);
        for text in &texts {
            let (before, after) = (tokenizer.encode(text), back.encode(text));
            if before.unwrap() != after.unwrap() {
                faults.push(format!("{name}: {text:?} is another in our file"));
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// A file with only the tokenizer's keys, in target/tmp/gguf_vocabs.
fn written(tokenizer: &Tokenizer, name: &str, texts: &[&str]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gguf_vocabs");
    std::fs::create_dir_all(&folder).unwrap();
    let llama = llmtui::gguf::Value::String("llama".into());
    let mut keys = vec![("general.architecture".to_string(), llama)];
    keys.extend(tokenizer.gguf_keys(tokenizer.vocab_size()).unwrap().keys);
    let mut bytes = Vec::new();
    llmtui::gguf::write(&mut bytes, &keys, &[], &mut |_, _| Ok(())).unwrap();
    let path = folder.join(format!("{name}.gguf"));
    std::fs::write(&path, bytes).unwrap();
    std::fs::write(
        folder.join(format!("{name}.json")),
        serde_json::to_string(texts).unwrap(),
    )
    .unwrap();
    path
}

fn llmtui(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_llmtui"))
        .args(args)
        .current_dir(dir)
        .env_clear()
        .env("HOME", dir)
        .env("XDG_RUNTIME_DIR", dir)
        .output()
        .unwrap()
}

fn printed(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_vocabulary_is_trained_checked_and_never_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let corpus = llmtui::embed::text("assets/corpora/tinyshakespeare.txt").unwrap();
    std::fs::write(dir.path().join("c.txt"), &corpus[..200_000]).unwrap();
    let train = [
        "tokenizer",
        "train",
        "--vocab-size",
        "600",
        "--chat-markers",
        "chatml",
        "--out",
        "mine",
        "c.txt",
    ];
    let first = llmtui(dir.path(), &train);
    assert!(first.status.success(), "{}", printed(&first.stderr));
    let text = printed(&first.stdout);
    assert!(
        text.contains("600 tokens") && text.contains("tokens/s"),
        "{text}"
    );
    let again = llmtui(dir.path(), &train);
    assert_eq!(again.status.code(), Some(2));
    assert!(printed(&again.stderr).contains("--force"));
    let forced: Vec<&str> = train.into_iter().chain(["--force"]).collect();
    assert!(llmtui(dir.path(), &forced).status.success());

    let checked = llmtui(
        dir.path(),
        &[
            "tokenizer",
            "check",
            "mine",
            "c.txt",
            "--against",
            "mine/tokenizer.json",
            "--speed",
            "c.txt",
        ],
    );
    let text = printed(&checked.stdout);
    assert!(
        checked.status.success(),
        "{text}{}",
        printed(&checked.stderr)
    );
    assert!(
        text.contains("ok       Line ends and tabs are kept"),
        "{text}"
    );
    assert!(text.contains("threads") && text.contains("c.txt"), "{text}");
    let json = llmtui(dir.path(), &["tokenizer", "check", "mine", "--json"]);
    let report: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(report["tokenizer"]["vocab_size"], 600);
    assert!(report["tokenizer"]["fertility"].as_array().unwrap().len() >= 12);
}

#[test]
fn a_lossy_vocabulary_exits_with_code_2() {
    let dir = tempfile::tempdir().unwrap();
    let corpus = llmtui::embed::text("assets/corpora/tinyshakespeare.txt").unwrap();
    std::fs::write(dir.path().join("c.txt"), &corpus[..50_000]).unwrap();
    let train = [
        "tokenizer",
        "train",
        "--kind",
        "wordpiece",
        "--vocab-size",
        "300",
        "c.txt",
    ];
    assert!(llmtui(dir.path(), &train).status.success());
    let checked = llmtui(dir.path(), &["tokenizer", "check", "tokenizer"]);
    assert_eq!(checked.status.code(), Some(2));
    assert!(printed(&checked.stdout).contains("FAIL     Line ends and tabs are kept"));
}

#[test]
fn bad_files_end_in_an_error_with_their_location() {
    let dir = tempfile::tempdir().unwrap();
    let crafted = r#"{"version":"1.0","added_tokens":[],"normalizer":{"type":"Precompiled","precompiled_charsmap":"/////w=="},
        "model":{"type":"WordLevel","vocab":{"a":0},"unk_token":"a"}}"#;
    std::fs::write(dir.path().join("t.json"), crafted).unwrap();
    std::fs::write(dir.path().join("bad.txt"), b"one\n\xff\n").unwrap();
    let cases: [(&[&str], &str); 4] = [
        (&["tokenizer", "check", "t.json"], "t.json"),
        (&["tokenizer", "check", "absent"], "absent cannot be read"),
        (
            &["tokenizer", "train", "bad.txt"],
            "bad.txt is not UTF-8: line 2",
        ),
        (
            &[
                "tokenizer",
                "train",
                "--kind",
                "char",
                "--vocab-size",
                "300",
                "bad.txt",
            ],
            "takes no --vocab-size",
        ),
    ];
    for (args, part) in cases {
        let output = llmtui(dir.path(), args);
        let errors = printed(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(
            errors.contains(part) && !errors.contains("a bug"),
            "{errors}"
        );
    }
}
