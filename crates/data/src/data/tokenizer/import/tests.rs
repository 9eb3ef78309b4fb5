//! Malformed files, and small valid ones. Token ids are compared with transformers and sentencepiece in tests/tokenizers.rs.

use super::*;

fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        fs::write(dir.path().join(name), bytes).unwrap();
    }
    dir
}

fn error(path: &Path) -> String {
    load(path, &Child::default()).unwrap_err().to_string()
}

#[test]
fn a_folder_without_a_tokenizer_says_what_was_looked_for() {
    let dir = folder(&[("config.json", b"{}")]);
    let error = error(dir.path());
    for name in ["tokenizer.json", "merges.txt", "tokenizer.model", ".gguf"] {
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn gpt2s_files_are_read_and_their_faults_placed() {
    let vocab = br#"{"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3}"#;
    let dir = folder(&[
        ("vocab.json", vocab),
        ("merges.txt", b"#version: 0.2\na b\n"),
    ]);
    let tokenizer = load(dir.path(), &Child::default()).unwrap();
    assert_eq!(tokenizer.encode("abba<|endoftext|>").unwrap(), [2, 1, 0, 3]);
    assert_eq!(tokenizer.eos(), Some(3));
    let merges = dir.path().join("merges.txt");
    fs::write(&merges, "a b\nb c\n").unwrap();
    let said = error(&merges);
    assert!(said.contains("line 2") && said.contains("\"c\""), "{said}");
    fs::write(&merges, "a b\nab\n").unwrap();
    assert!(error(&merges).contains("line 2: not two tokens"));
}

#[test]
fn a_class_of_unknown_rules_is_refused() {
    let dir = folder(&[
        ("vocab.json", b"{\"a\": 0}"),
        ("merges.txt", b""),
        (
            "tokenizer_config.json",
            br#"{"tokenizer_class": "XlmTokenizer"}"#,
        ),
    ]);
    assert!(error(dir.path()).contains("save_pretrained"));
}

#[test]
fn an_end_mark_that_is_no_token_is_refused() {
    let vocab = br#"{"a": 0}"#;
    let dir = folder(&[
        ("vocab.json", vocab),
        ("merges.txt", b""),
        ("tokenizer_config.json", br#"{"eos_token": "</s>"}"#),
    ]);
    assert!(error(dir.path()).contains("eos_token is \"</s>\""));
}

#[test]
fn tokens_that_a_folder_adds_to_gpt2s_files_have_the_ids_that_it_says() {
    let with = |added: &[u8]| {
        let dir = folder(&[
            ("vocab.json", br#"{"a": 0, "b": 1}"#),
            ("merges.txt", b""),
            ("added_tokens.json", added),
        ]);
        load(dir.path(), &Child::default()).map_err(|e| e.to_string())
    };
    let tokenizer = with(br#"{"<y>": 3, "<x>": 2}"#).unwrap();
    assert_eq!(tokenizer.encode("a<x><y>").unwrap(), [0, 2, 3]);
    let gap = with(br#"{"<x>": 5}"#).unwrap_err();
    assert!(
        gap.contains("vocab.json") && gap.contains("would be 2"),
        "{gap}"
    );
}

#[test]
fn damaged_models_are_placed() {
    for (name, bytes, part) in [
        ("x.model", &b"\x0a\x7fabc"[..], "damaged at byte 0"),
        ("y.model", b"", "no pieces"),
        (
            "x.gguf",
            b"GGUF\x03\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0\0\0\0\0",
            "tensors declared",
        ),
        ("t.json", b"{\"model\": 1}", "t.json"),
        ("n.json", b"\xff\xfe", "not UTF-8 at byte 0"),
    ] {
        let dir = folder(&[(name, bytes)]);
        let error = error(&dir.path().join(name));
        assert!(error.contains(part) && error.contains(name), "{error}");
    }
}

/// The fixtures of tests/oracle/tokenizer_oracle.py.
fn oracle(name: &str) -> Vec<u8> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/oracle/tokenizers");
    fs::read(root.join(name)).unwrap()
}

/// What a text begins and ends with, by ids.
fn frame(path: &Path) -> (Vec<u32>, Vec<u32>) {
    load(path, &Child::default()).unwrap().frame()
}

/// A GGUF file of keys alone.
fn keys_alone(keys: &[(String, crate::gguf::Value)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    crate::gguf::write(&mut bytes, keys, &[], &mut |_, _| Ok(())).unwrap();
    bytes
}

/// Keys of byte-level BPE of four tokens.
fn byte_level_keys(pre: &str, add_bos: Option<bool>) -> Vec<(String, crate::gguf::Value)> {
    use crate::gguf::{Array, Value};
    let text = |text: &str| Value::String(text.into());
    let strings = |list: &[&str]| {
        Value::Array(Array::Strings(
            list.iter().map(ToString::to_string).collect(),
        ))
    };
    let mut keys = vec![
        ("tokenizer.ggml.model".to_string(), text("gpt2")),
        ("tokenizer.ggml.pre".into(), text(pre)),
        (
            "tokenizer.ggml.tokens".into(),
            strings(&["a", "b", "ab", "<s>"]),
        ),
        (
            "tokenizer.ggml.token_type".into(),
            Value::Array(Array::I32(vec![1, 1, 1, 3])),
        ),
        ("tokenizer.ggml.merges".into(), strings(&["a b"])),
        ("tokenizer.ggml.bos_token_id".into(), Value::Unsigned(3)),
    ];
    if let Some(adds) = add_bos {
        keys.push(("tokenizer.ggml.add_bos_token".into(), Value::Bool(adds)));
    }
    keys
}

/// The tokenizer of a model in several parts is in the first; a folder of nothing else holds one tokenizer.
#[test]
fn any_part_of_a_split_gguf_file_leads_to_its_tokenizer() {
    use crate::gguf::Value;
    let part = |no: u64| {
        let mut keys = match no {
            0 => byte_level_keys("gpt-2", None),
            _ => Vec::new(),
        };
        for (key, n) in [("no", no), ("count", 2), ("tensors.count", 0)] {
            keys.push((format!("split.{key}"), Value::Unsigned(n)));
        }
        keys_alone(&keys)
    };
    let names = ["big-00001-of-00002.gguf", "big-00002-of-00002.gguf"];
    let dir = folder(&[(names[0], &part(0)), (names[1], &part(1))]);
    let places = [dir.path().join(names[0]), dir.path().join(names[1])];
    for place in [dir.path(), &places[0], &places[1]] {
        let tokenizer = load(place, &Child::default()).unwrap();
        assert_eq!(tokenizer.encode("abba").unwrap(), [2, 1, 0], "{place:?}");
    }
    fs::remove_file(&places[0]).unwrap();
    let error = error(&places[1]);
    assert!(error.contains("part 1 of 2 is missing"), "{error}");
}

/// llama.cpp puts the begin mark in front of texts of these kinds, whether or not the file says so.
#[test]
fn texts_begin_with_the_mark_that_a_gguf_file_asks_for() {
    let file = |bytes: &[u8]| {
        let dir = folder(&[("x.gguf", bytes)]);
        frame(&dir.path().join("x.gguf"))
    };
    assert_eq!(file(&oracle("llama2.gguf")), (vec![1], vec![]));
    assert_eq!(file(&oracle("gpt2.gguf")), (vec![], vec![]));
    for (pre, said, lead) in [
        ("llama-bpe", None, vec![3]),
        ("tekken", None, vec![3]),
        ("llama-bpe", Some(false), vec![]),
        ("gpt-2", None, vec![]),
        ("gpt-2", Some(true), vec![3]),
    ] {
        let found = file(&keys_alone(&byte_level_keys(pre, said)));
        assert_eq!(found, (lead, vec![]), "{pre} {said:?}");
    }
}

#[test]
fn texts_begin_and_end_with_the_marks_that_the_folder_of_a_sentencepiece_model_asks_for() {
    let model = oracle("llama2.model");
    for (config, found) in [
        ("{}", (vec![], vec![])),
        (r#"{"add_bos_token": true}"#, (vec![1], vec![])),
        (
            r#"{"tokenizer_class": "LlamaTokenizer"}"#,
            (vec![1], vec![]),
        ),
        (
            r#"{"tokenizer_class": "LlamaTokenizer", "add_bos_token": false, "add_eos_token": true}"#,
            (vec![], vec![2]),
        ),
    ] {
        let dir = folder(&[
            ("tokenizer.model", &model),
            ("tokenizer_config.json", config.as_bytes()),
        ]);
        assert_eq!(frame(dir.path()), found, "{config}");
        let tokenizer = load(dir.path(), &Child::default()).unwrap();
        let begun = tokenizer.encode_begun("the").unwrap();
        assert!(begun.starts_with(&found.0) && begun.len() > found.0.len());
        // What goes out says the same as what came in.
        let keys = tokenizer.gguf_keys(tokenizer.vocab_size()).unwrap().keys;
        for (key, adds) in [("bos", &found.0), ("eos", &found.1)] {
            let wanted = (
                format!("tokenizer.ggml.add_{key}_token"),
                crate::gguf::Value::Bool(!adds.is_empty()),
            );
            assert!(keys.contains(&wanted), "{config} {key}");
        }
    }
}

/// Chat marks that were added to a Llama 2 or Mistral, and are in no tokenizer.json.
#[test]
fn tokens_that_a_folder_adds_to_a_sentencepiece_model_come_behind_its_pieces() {
    let model = oracle("llama2.model");
    let dir = folder(&[("tokenizer.model", &model)]);
    let pieces = load(dir.path(), &Child::default()).unwrap().vocab_size() as u32;
    let with = |config: &str, added: String| {
        let dir = folder(&[
            ("tokenizer.model", &model),
            ("tokenizer_config.json", config.as_bytes()),
            ("added_tokens.json", added.as_bytes()),
        ]);
        load(dir.path(), &Child::default())
    };
    let two = format!(
        r#"{{"<|im_end|>": {}, "<|im_start|>": {pieces}}}"#,
        pieces + 1
    );
    let config = format!(
        r#"{{"eos_token": "<|im_end|>", "added_tokens_decoder": {{"1": {{"content": "<s>", "special": true}},
            "{pieces}": {{"content": "<|im_start|>", "special": true}}}}}}"#
    );
    let tokenizer = with(&config, two).unwrap();
    assert_eq!(tokenizer.vocab_size() as u32, pieces + 2);
    assert_eq!(tokenizer.encode("<|im_start|>").unwrap(), [pieces]);
    assert_eq!(tokenizer.eos(), Some(pieces + 1));
    assert!(
        tokenizer
            .added_tokens()
            .iter()
            .any(|t| t.id == pieces && t.special)
    );
    for (added, says) in [
        (
            format!(r#"{{"<x>": {}}}"#, pieces + 1),
            "the next one would be",
        ),
        (r#"{"<x>": 5}"#.to_string(), "as token 5, and the next one"),
        (format!(r#"{{"<s>": {pieces}}}"#), "it is token 1"),
    ] {
        let error = with("{}", added.clone()).unwrap_err().to_string();
        assert!(error.contains(says), "{added}: {error}");
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]
    #[test]
    fn no_bytes_make_a_reader_panic(bytes in proptest::collection::vec(0u8..=255, 0..200)) {
        let dir = folder(&[("x.model", &bytes)]);
        let _ = read(&dir.path().join("x.model"));
    }
}
