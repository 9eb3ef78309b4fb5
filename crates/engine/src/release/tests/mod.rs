//! A folder that is fit for publication, and the finding of each check on one that is not.

mod adapters;
mod content;
mod folders;

use super::*;
use crate::base::finding::{Finding, Status};
use crate::hf;
use crate::nn::{Model, ModelConfig};
use std::fs;
use std::path::Path;

const TOKENIZER: &str = include_str!("../../../../../tests/fixtures/chat/tokenizer.json");
const CHATML: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
                      {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
const CARD: &str = "---
license: mit
language:
- en
pipeline_tag: text-generation
library_name: transformers
base_model: org/base
datasets:
- org/set
model-index:
- name: tiny
  results:
  - {\"task\": {\"type\": \"text-generation\"}, \"dataset\": {\"name\": \"x\", \"type\": \"x\"}, \"metrics\": [{\"type\": \"acc\", \"value\": 0.5}]}
---
# Tiny

A random model for tests. It is for nothing else, was trained on nothing, and fails at everything that it is asked: its
answers are noise. Do not use it for anything that matters to anybody, whatever its card says about its results.
";
/// Of the id 2.
const END: &str = "<|im_end|>";

/// A machine with room, and no cache.
fn here() -> LocalEnv {
    LocalEnv {
        room: 1 << 30,
        cache: None,
    }
}

fn model() -> Model {
    model_with(0)
}

/// With so many rows of the vocabulary more than the tokenizer has.
fn model_with(more: usize) -> Model {
    let vocab = serde_json::from_str::<serde_json::Value>(TOKENIZER).unwrap();
    let known = vocab["model"]["vocab"].as_object().unwrap().len();
    let config = ModelConfig {
        n_layer: 1,
        n_head: 2,
        d_model: 8,
        seq_len: 128,
        ..ModelConfig::default()
    };
    let mut model = Model::new(&config, known + more, &candle_core::Device::Cpu).unwrap();
    model.init(3).unwrap();
    model
}

/// A folder of a small random model that answers in turns.
fn healthy() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let model = model();
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    write(hf::CONFIG, &hf::config_json(&model, Some(2)));
    write(hf::GENERATION, &hf::generation_json(Some(2), None));
    write(hf::TOKENIZER, TOKENIZER);
    let config = serde_json::json!({"eos_token": END, "chat_template": CHATML});
    write(hf::TOKENIZER_CONFIG, &config.to_string());
    write(card::NAME, CARD);
    let mut out = fs::File::create(dir.path().join(hf::WEIGHTS)).unwrap();
    hf::write_weights(&model, &mut out).unwrap();
    dir
}

fn findings(folder: &Path) -> Vec<Finding> {
    let subject = Subject::open(folder, &here()).unwrap();
    check(&subject, &|_| ())
}

/// What is not well: id, status, place and words.
fn troubles(folder: &Path) -> Vec<(String, Status, String)> {
    let found = findings(folder)
        .into_iter()
        .filter(|f| f.status < Status::Pass);
    found
        .map(|f| {
            assert!(
                !f.cause.is_empty() || f.status == Status::Unknown,
                "{f:?} has no cause"
            );
            assert!(!f.fix.is_empty(), "{f:?} has no fix");
            let words = format!("{}: {}", f.place, f.evidence);
            assert!(!words.contains(&folder.display().to_string()), "{words}");
            (f.id, f.status, words)
        })
        .collect()
}

/// The one trouble of a folder after a change to a healthy one.
#[track_caller]
fn after(change: impl FnOnce(&Path), id: &str, status: Status, phrases: &[&str]) {
    let dir = healthy();
    change(dir.path());
    let troubles = troubles(dir.path());
    let found = troubles
        .iter()
        .find(|(i, s, w)| i == id && *s == status && phrases.iter().all(|p| w.contains(p)));
    assert!(
        found.is_some(),
        "{id} {phrases:?} is not among {troubles:#?}"
    );
}

fn edit(folder: &Path, name: &str, from: &str, to: &str) {
    let text = fs::read_to_string(folder.join(name)).unwrap();
    assert!(text.contains(from), "{name}: {text}");
    fs::write(folder.join(name), text.replace(from, to)).unwrap();
}

/// The base of PEFT's adapters, `org/base` in a cache of the hub, with a tokenizer.
fn cached_base(cache: &Path) -> std::path::PathBuf {
    let snapshot = cache.join("models--org--base/snapshots/0123abc");
    fs::create_dir_all(&snapshot).unwrap();
    fs::create_dir_all(cache.join("models--org--base/refs")).unwrap();
    fs::write(cache.join("models--org--base/refs/main"), "0123abc").unwrap();
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/oracle/peft/llama");
    for entry in fs::read_dir(base).unwrap().flatten() {
        fs::copy(entry.path(), snapshot.join(entry.file_name())).unwrap();
    }
    // Of eleven characters, as the model has ids.
    let kind = crate::data::tokenizer::TokenizerConfig::Char(Default::default());
    let characters = kind.build("The kingsou", "The kingsou").unwrap();
    fs::write(snapshot.join(hf::TOKENIZER), characters.to_json()).unwrap();
    snapshot
}

#[test]
fn a_good_folder_has_no_troubles_and_every_check_speaks() {
    let dir = healthy();
    let found = findings(dir.path());
    assert_eq!(troubles(dir.path()), []);
    for check in CHECKS {
        assert!(
            found
                .iter()
                .any(|f| f.id == check.id && f.title == check.title),
            "{}",
            check.id
        );
    }
    let said = |id: &str| {
        found
            .iter()
            .find(|f| f.id == id)
            .unwrap()
            .evidence
            .to_string()
    };
    assert!(said("generates").contains("The → ") && said("generates").contains("France"));
    assert!(
        said("description").contains("GPT2LMHeadModel"),
        "{}",
        said("description")
    );
}

#[test]
fn what_runs_or_leads_elsewhere_is_refused() {
    use Status::{Fail, Warn};
    let write = |name: &'static str, bytes: &'static [u8]| {
        move |folder: &Path| fs::write(folder.join(name), bytes).unwrap()
    };
    after(
        write("pytorch_model.bin", b"x"),
        "safe",
        Fail,
        &["pytorch_model.bin", "pickle"],
    );
    after(
        write("extra.dat", b"\x80\x04\x95x"),
        "safe",
        Fail,
        &["extra.dat", "pickle"],
    );
    after(
        write("archive", b"PK\x03\x04....archive/data.pkl"),
        "safe",
        Fail,
        &["archive", "pickle"],
    );
    after(
        write("tool", b"\x7fELF\x02"),
        "safe",
        Fail,
        &["tool", "program"],
    );
    after(
        write("setup", b"#!/bin/sh\n"),
        "safe",
        Fail,
        &["setup", "program"],
    );
    after(
        write("modeling_x.py", b"import os\n"),
        "safe",
        Warn,
        &["modeling_x.py", "source code"],
    );
    after(
        |f| {
            edit(
                f,
                hf::CONFIG,
                "\"model_type\"",
                "\"auto_map\": {}, \"model_type\"",
            )
        },
        "safe",
        Warn,
        &["auto_map"],
    );
    after(
        |f| std::os::unix::fs::symlink("/etc/hostname", f.join("notes.txt")).unwrap(),
        "safe",
        Fail,
        &["notes.txt", "link"],
    );
    after(
        |f| std::os::unix::fs::symlink("gone", f.join("notes.txt")).unwrap(),
        "safe",
        Fail,
        &["notes.txt", "link"],
    );
    after(
        |f| fs::write(f.join("a\nb.txt"), "x").unwrap(),
        "safe",
        Fail,
        &["not a valid name"],
    );
    // Within the folder a link is a name more.
    let dir = healthy();
    std::os::unix::fs::symlink(hf::CONFIG, dir.path().join("also.json")).unwrap();
    assert_eq!(troubles(dir.path()), []);
}

#[test]
fn secrets_are_found_with_their_line_and_not_shown() {
    use Status::{Fail, Warn};
    let token = format!(
        "hf_{}",
        "aB3dE5gH7jK9mN1pQ2rS4tU6vW8xY0zZ".get(..32).unwrap()
    );
    let dir = healthy();
    fs::write(
        dir.path().join("notes.md"),
        format!("# x\nexport T={token}\n"),
    )
    .unwrap();
    let troubles_of = troubles(dir.path());
    let (id, status, words) = &troubles_of[0];
    assert_eq!((id.as_str(), *status), ("secrets", Fail));
    assert!(
        words.contains("notes.md:2") && words.contains("Hugging Face") && !words.contains(&token),
        "{words}"
    );
    after(
        |f| fs::write(f.join("k.txt"), "-----BEGIN OPENSSH PRIVATE KEY-----\n").unwrap(),
        "secrets",
        Fail,
        &["k.txt:1", "private key"],
    );
    after(
        |f| fs::write(f.join(".env"), "A=1\n").unwrap(),
        "secrets",
        Fail,
        &[".env"],
    );
    after(
        |f| {
            edit(
                f,
                hf::CONFIG,
                "\"model_type\"",
                "\"_name_or_path\": \"/home/anna/models/x\", \"model_type\"",
            )
        },
        "secrets",
        Warn,
        &["config.json:", "home folder"],
    );
    // Words that only begin like one.
    let dir = healthy();
    fs::write(
        dir.path().join("a.txt"),
        "hf_hub_download hf_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa /home/ AKIA\n",
    )
    .unwrap();
    assert_eq!(troubles(dir.path()), []);
}
