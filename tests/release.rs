//! `llmtui release` as a shell sees it: a model is created, rejected without a card, laid out with one, and never uploaded
//! unasked.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail loudly")]

use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Standard output, exit code, and standard error.
fn llmtui(dir: &Path, args: &[&str]) -> (String, i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_llmtui"))
        .args(args)
        .current_dir(dir)
        .env_clear()
        .env("HOME", dir)
        .env("XDG_RUNTIME_DIR", dir)
        // A closed port: any upload there would fail at once.
        .env("HF_ENDPOINT", "http://127.0.0.1:9")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        text(output.stdout),
        output.status.code().unwrap(),
        text(output.stderr),
    )
}

const CARD: &str = "---\nlicense: mit\nlanguage: en\npipeline_tag: text-generation\nlibrary_name: transformers\n---\n# Tiny\n";

fn statuses(json: &str) -> Vec<(String, String)> {
    let value: Value = serde_json::from_str(json).unwrap();
    let findings = value["findings"].as_array().unwrap();
    let word = |value: &Value| value.as_str().unwrap().to_string();
    findings
        .iter()
        .map(|f| (word(&f["id"]), word(&f["status"])))
        .collect()
}

#[test]
fn a_closed_output_pipe_does_not_end_an_upload() {
    let dir = tempfile::tempdir().unwrap();
    let (_, code, errors) = llmtui(dir.path(), &["init", "smoke", "--to", "made"]);
    assert_eq!(code, 0, "{errors}");
    for name in ["manifest.json", "state.json"] {
        fs::remove_file(dir.path().join("made").join(name)).unwrap();
    }
    fs::write(dir.path().join("made/README.md"), CARD).unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = Command::new(env!("CARGO_BIN_EXE_llmtui"))
        .args(["release", "made", "--repo", "me/tiny", "--upload"])
        .current_dir(dir.path())
        .env_clear()
        .env("HOME", dir.path())
        .env("HF_TOKEN", "hf_none")
        .env("HF_ENDPOINT", "http://127.0.0.1:9")
        .stdin(Stdio::null())
        .stdout(writer)
        .output()
        .unwrap();
    // The port is closed: nothing was uploaded, which is not a success.
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{errors}");
}

#[test]
fn a_model_is_checked_and_laid_out_but_not_uploaded_unasked() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let (_, code, errors) = llmtui(dir.path(), &["init", "smoke", "--to", "made"]);
    assert_eq!(code, 0, "{errors}");
    // A checkpoint is exported with a card; without a license the model may not be used.
    let (out, code, errors) = llmtui(dir.path(), &["release", "made"]);
    assert!(code == 2 && errors.contains("--to DIR"), "{out}{errors}");
    let (out, code, _) = llmtui(
        dir.path(),
        &["release", "made", "--to", "exported", "--json"],
    );
    let fails: Vec<_> = statuses(&out)
        .into_iter()
        .filter(|(_, s)| s == "fail")
        .collect();
    assert_eq!((code, fails), (2, vec![("license".into(), "fail".into())]));
    // Files needed only for a resume make it a checkpoint; a folder without them is used as it is.
    for name in ["manifest.json", "state.json"] {
        fs::remove_file(at("made").join(name)).unwrap();
    }
    let (out, code, errors) = llmtui(dir.path(), &["release", "made", "--to", "out", "--json"]);
    assert_eq!(code, 2, "{out}{errors}");
    let found = statuses(&out);
    for id in ["license", "card"] {
        assert!(found.contains(&(id.into(), "fail".into())), "{found:?}");
    }
    for id in ["safe", "secrets", "weights", "generates"] {
        assert!(found.contains(&(id.into(), "pass".into())), "{found:?}");
    }
    assert!(!at("out").exists(), "what fails is not laid out");
    // With a license, it goes into its own folder.
    fs::write(at("made/README.md"), CARD).unwrap();
    let (out, code, errors) = llmtui(
        dir.path(),
        &["release", "made", "--to", "out", "--repo", "me/tiny"],
    );
    assert_eq!(code, 0, "{out}{errors}");
    assert!(
        out.contains("staged in out") && out.contains("an upload would send to me/tiny"),
        "{out}"
    );
    assert!(
        out.contains("LFS") && out.contains("nothing was uploaded"),
        "{out}"
    );
    let sums = fs::read_to_string(at("out/SHA256SUMS")).unwrap();
    assert!(!at("out/optimizer.safetensors").exists() && at("made/optimizer.safetensors").exists());
    let mut lines = 0;
    for line in sums.lines() {
        let (sum, name) = line.split_once("  ").unwrap();
        let bytes = fs::read(at("out").join(name)).unwrap();
        let hex: String = Sha256::digest(&bytes)
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        assert_eq!(hex, sum, "{name}");
        lines += 1;
    }
    // All but the list itself and the card.
    assert_eq!(lines + 2, fs::read_dir(at("out")).unwrap().count());
    // A changed file, and an executable one.
    fs::write(
        at("out/config.json"),
        fs::read_to_string(at("out/config.json")).unwrap() + "\n",
    )
    .unwrap();
    fs::write(at("out/weights.pkl"), "x").unwrap();
    let (out, code, _) = llmtui(
        dir.path(),
        &["release", "out", "--repo", "me/tiny", "--upload"],
    );
    assert_eq!(code, 2, "{out}");
    assert!(
        out.contains("FAIL     Safe to open") && out.contains("weights.pkl"),
        "{out}"
    );
    assert!(
        out.contains("FAIL     Checksums") && out.contains("SHA256SUMS:"),
        "{out}"
    );
    // Uploads need a token, and only they use the network.
    let (out, code, errors) = llmtui(
        dir.path(),
        &["release", "made", "--repo", "me/tiny", "--upload"],
    );
    assert_eq!(code, 2, "{errors}");
    assert!(!out.contains("is sent"), "nothing is: {out}");
    assert!(
        errors.contains("there is no token") && errors.contains("HF_TOKEN"),
        "{errors}"
    );
}

/// Its card asks for words of the publisher's, and writing them must not make the folder one of changed files.
#[test]
fn a_staged_run_is_released_again_after_its_card_was_filled_in() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let go = |words: &[&str]| {
        let (out, code, errors) = llmtui(dir.path(), words);
        assert_eq!(code, 0, "{words:?}: {out}{errors}");
        out
    };
    let short = ["-s", "max_steps=4", "-s", "checkpoint.every=2"];
    let named = ["-s", "name=mine", "-s", "train.threads=1"];
    let train = ["train", "smoke", "--headless"];
    go(&[&train[..], &short, &named].concat());
    // Without a license it is refused, and a new card mends that.
    let (out, code, _) = llmtui(dir.path(), &["release", "mine", "--to", "out"]);
    assert!(code == 2 && out.contains("FAIL     License"), "{out}");
    go(&[
        "card",
        "mine",
        "--license",
        "mit",
        "--to",
        "out/README.md",
        "--force",
    ]);
    let out = go(&["release", "out", "--repo", "me/mine"]);
    assert!(out.contains("an upload would send to me/mine"), "{out}");
    let card = fs::read_to_string(at("out/README.md")).unwrap();
    let filled = card.replace("*To be written by the publisher: ", "*Written: ");
    assert_ne!(card, filled);
    fs::write(at("out/README.md"), filled).unwrap();
    let out = go(&["release", "out", "--repo", "me/mine"]);
    assert!(!out.contains("placeholder"), "{out}");
    // A change of other files is reported, with a way on.
    let settings = fs::read_to_string(at("out/generation_config.json")).unwrap();
    fs::write(at("out/generation_config.json"), settings + "\n").unwrap();
    let (out, code, _) = llmtui(dir.path(), &["release", "out", "--to", "again"]);
    assert!(code == 2 && out.contains("delete SHA256SUMS"), "{out}");
    fs::remove_file(at("out/SHA256SUMS")).unwrap();
    go(&["release", "out", "--to", "again"]);
    assert!(at("again/SHA256SUMS").exists());
    // As a GGUF file, whose card is about the file.
    go(&["export", "mine", "--format", "gguf", "--to", "gguf"]);
    let stub = fs::read_to_string(at("gguf/README.md")).unwrap();
    assert!(stub.contains("library_name: gguf\n"), "{stub}");
    let words = [
        "--license",
        "mit",
        "--format",
        "gguf",
        "--to",
        "gguf/README.md",
    ];
    go(&[&["card", "mine", "--force"][..], &words].concat());
    go(&["release", "gguf"]);
    let card = fs::read_to_string(at("gguf/README.md")).unwrap();
    assert!(
        card.contains("library_name: gguf\n")
            && card.contains("license: \"mit\"")
            && !card.contains("transformers"),
        "{card}"
    );
}

#[test]
fn a_lora_run_is_released_as_an_adapter_or_merged() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let go = |words: &[&str]| {
        let (out, code, errors) = llmtui(dir.path(), words);
        assert_eq!(code, 0, "{words:?}: {out}{errors}");
        (out, errors)
    };
    go(&["init", "smoke", "--to", "base"]);
    go(&[
        "train",
        "smoke",
        "--headless",
        "-s",
        "name=mine",
        "-s",
        "train.from=base",
        "-s",
        "adapter=lora",
        "-s",
        "max_steps=2",
        "-s",
        "train.threads=1",
    ]);
    let (out, _) = go(&["export", "mine", "--to", "merged"]);
    assert!(out.contains("merged into its base") && at("merged/model.safetensors").exists());
    let (out, _) = go(&["export", "mine", "--format", "peft", "--to", "alone"]);
    assert!(
        out.contains("--base-model ORG/NAME"),
        "a folder of this machine: {out}"
    );
    assert!(!at("alone/model.safetensors").exists() && !at("alone/config.json").exists());
    // If the base is available locally, the adapter alone is a model.
    go(&["export", "alone", "--to", "again"]);
    let bytes = |name: &str| fs::read(at(name).join("model.safetensors")).unwrap();
    assert!(
        bytes("again") == bytes("merged"),
        "the two ways say the same"
    );

    let (out, code, errors) = llmtui(
        dir.path(),
        &[
            "release",
            "mine",
            "--format",
            "peft",
            "--license",
            "mit",
            "--to",
            "local",
            "--json",
        ],
    );
    assert_eq!(code, 2, "{out}{errors}");
    assert!(
        statuses(&out).contains(&("description".into(), "fail".into())),
        "{out}"
    );
    // What failed is not staged, and nothing says so.
    let words = [
        "release",
        "mine",
        "--format",
        "peft",
        "--license",
        "mit",
        "--to",
        "refused",
    ];
    let (out, code, errors) = llmtui(dir.path(), &words);
    assert_eq!(code, 2, "{out}{errors}");
    let flowing = out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(!flowing.contains("staged in"), "{out}");
    assert!(
        flowing.contains("not staged: the export in refused stays")
            && flowing.contains("llmtui release refused"),
        "{out}"
    );
    let (out, _) = go(&[
        "release",
        "mine",
        "--format",
        "peft",
        "--base-model",
        "org/base",
        "--license",
        "mit",
        "--to",
        "out",
    ]);
    assert!(out.contains("LoRA on org/base, rank 8"), "{out}");
    let card = fs::read_to_string(at("out/README.md")).unwrap();
    assert!(
        card.contains("library_name: peft\n") && card.contains("base_model: \"org/base\""),
        "{card}"
    );
    assert!(at("out/SHA256SUMS").exists() && at("out/adapter_model.safetensors").exists());
    go(&[
        "card",
        "mine",
        "--format",
        "peft",
        "--base-model",
        "org/base",
        "--to",
        "CARD.md",
    ]);
    let alone = fs::read_to_string(at("CARD.md")).unwrap();
    assert!(alone.contains("library_name: peft\n"), "{alone}");
    let (_, errors) = go(&["card", "mine", "--to", "WHOLE.md"]);
    assert!(errors.contains("--format peft"), "{errors}");
    let whole = fs::read_to_string(at("WHOLE.md")).unwrap();
    assert!(
        whole.contains("library_name: transformers\n")
            && whole.contains("merged into these weights")
    );
    // A model without an adapter is reported, and a folder is used as it is.
    let refused = |words: &[&str], says: &str| {
        let (out, code, errors) = llmtui(dir.path(), words);
        assert!(
            code == 2 && errors.contains(says),
            "{words:?}: {out}{errors}"
        );
    };
    refused(
        &["export", "base", "--format", "peft", "--to", "x"],
        "no adapter here",
    );
    refused(
        &["export", "mine", "--base-model", "org/base", "--to", "x"],
        "--format peft",
    );
    refused(&["release", "out", "--format", "peft"], "used as it is");
    refused(&["release", "out", "--license", "mit"], "README.md");
    refused(
        &["release", "out", "--dtype", "f16"],
        "--dtype: out is a folder",
    );
}
