//! Files that are not what they seem, and small valid ones. Token ids against transformers and sentencepiece:
//! tests/tokenizers.rs.

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

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]
    #[test]
    fn no_bytes_make_a_reader_panic(bytes in proptest::collection::vec(0u8..=255, 0..200)) {
        let dir = folder(&[("x.model", &bytes)]);
        let _ = read(&dir.path().join("x.model"));
    }
}
