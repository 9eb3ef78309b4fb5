//! A folder that is fit to be published, and what each check says of one that is not.

use super::*;
use crate::base::finding::{Finding, Status};
use crate::engine::export::{self, Options, Source};
use crate::hf;
use crate::nn::{Model, ModelConfig};
use std::fs;
use std::path::Path;

const TOKENIZER: &str = include_str!("../../tests/fixtures/chat/tokenizer.json");
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
fn here() -> Here {
    Here {
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
    write(hf::GENERATION, &hf::generation_json(Some(2)));
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
        &["not a name"],
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

#[test]
fn weights_are_held_against_the_description_and_must_be_numbers() {
    use Status::Fail;
    let with = |change: fn(&mut Model)| {
        move |folder: &Path| {
            let mut model = model();
            change(&mut model);
            let mut out = fs::File::create(folder.join(hf::WEIGHTS)).unwrap();
            hf::write_weights(&model, &mut out).unwrap();
        }
    };
    let poison = |model: &mut Model| {
        model
            .params_mut()
            .write_weights(|weights| weights[5] = f32::NAN)
            .unwrap();
    };
    after(
        with(poison),
        "weights",
        Fail,
        &["model.safetensors", "value 5 is NaN"],
    );
    after(
        |f| edit(f, hf::CONFIG, "\"n_layer\": 1", "\"n_layer\": 2"),
        "weights",
        Fail,
        &["is missing"],
    );
    let wide = |folder: &Path| {
        let mut out = fs::File::create(folder.join(hf::WEIGHTS)).unwrap();
        hf::write_weights(&model_with(3), &mut out).unwrap();
    };
    after(wide, "weights", Fail, &["shape"]);
    after(
        |f| fs::remove_file(f.join(hf::WEIGHTS)).unwrap(),
        "weights",
        Fail,
        &["no weights"],
    );
    let cut = |folder: &Path| {
        let path = folder.join(hf::WEIGHTS);
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() - 9]).unwrap();
    };
    after(cut, "weights", Fail, &["model.safetensors"]);
    after(
        |f| edit(f, hf::CONFIG, "\"gpt2\"", "\"mamba\""),
        "description",
        Fail,
        &["config.json", "mamba"],
    );
    after(
        |f| {
            edit(
                f,
                hf::CONFIG,
                "\"eos_token_id\": 2",
                "\"eos_token_id\": 9999",
            )
        },
        "description",
        Fail,
        &["9999"],
    );
}

#[test]
fn tokenizer_and_template_are_tried_out() {
    use Status::{Fail, Warn};
    after(
        |f| fs::remove_file(f.join(hf::TOKENIZER)).unwrap(),
        "tokenizer",
        Fail,
        &["none"],
    );
    after(
        |f| fs::write(f.join(hf::TOKENIZER), "{}").unwrap(),
        "tokenizer",
        Fail,
        &["tokenizer.json"],
    );
    let template = |text: &'static str| {
        move |folder: &Path| {
            fs::write(folder.join("chat_template.jinja"), text).unwrap();
        }
    };
    after(
        template("{% for m in messages %}{{ m.content }}"),
        "template",
        Fail,
        &["chat_template.jinja"],
    );
    after(
        template("{{ messages[0].content }}"),
        "template",
        Fail,
        &["three turns", "is not in what it writes"],
    );
    after(
        template(
            "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}{{ m.content }}<|im_end|>{% endfor %}",
        ),
        "template",
        Warn,
        &["system prompt is refused", "no system"],
    );
    after(
        template("{% for m in messages %}{{ m.role }}: {{ m.content }}<|eot_id|>{% endfor %}"),
        "template",
        Warn,
        &["<|eot_id|>", "eos_token_id"],
    );
}

#[test]
fn a_card_is_held_against_what_the_hub_takes() {
    use Status::{Fail, Warn};
    let edit = |from: &'static str, to: &'static str| {
        move |folder: &Path| edit(folder, card::NAME, from, to)
    };
    after(
        |f| fs::remove_file(f.join(card::NAME)).unwrap(),
        "card",
        Fail,
        &["no README.md"],
    );
    after(
        |f| fs::remove_file(f.join(card::NAME)).unwrap(),
        "license",
        Fail,
        &["no license"],
    );
    after(
        edit("license: mit", "license: [mit"),
        "card",
        Fail,
        &["README.md"],
    );
    after(edit("license: mit\n", ""), "license", Fail, &["no license"]);
    after(
        edit("license: mit", "license: MIT"),
        "license",
        Warn,
        &["`MIT`"],
    );
    after(
        edit("license: mit", "license: other"),
        "license",
        Warn,
        &["without its name"],
    );
    after(
        edit("base_model: org/base", "base_model: /data/base"),
        "card",
        Fail,
        &["base_model", "/data/base"],
    );
    after(
        edit("- org/set", "- my notes.txt"),
        "card",
        Fail,
        &["datasets"],
    );
    after(
        edit("datasets:\n- org/set\n", ""),
        "card",
        Warn,
        &["datasets"],
    );
    after(
        edit("- en\n", "- English\n"),
        "card",
        Fail,
        &["language", "English"],
    );
    after(
        edit("pipeline_tag: text-generation\n", ""),
        "card",
        Warn,
        &["pipeline_tag"],
    );
    after(
        edit(
            "pipeline_tag: text-generation",
            "pipeline_tag: image-classification",
        ),
        "card",
        Warn,
        &["pipeline_tag"],
    );
    after(
        edit("\"value\": 0.5", "\"score\": 0.5"),
        "card",
        Fail,
        &["model-index", "result 1"],
    );
    after(
        edit(
            "A random model",
            "*To be written by the publisher: x.* A random model",
        ),
        "card",
        Warn,
        &["1 places"],
    );
}

#[test]
fn a_layout_has_what_belongs_and_its_checksums_hold() {
    let dir = healthy();
    let from = dir.path();
    for name in [
        "optimizer.safetensors",
        "state.json",
        "train.log",
        ".DS_Store",
    ] {
        fs::write(from.join(name), "x").unwrap();
    }
    fs::create_dir(from.join(".git")).unwrap();
    fs::write(from.join(".git/config"), "x").unwrap();
    std::os::unix::fs::symlink(hf::CONFIG, from.join("also.json")).unwrap();
    let out = tempfile::tempdir().unwrap();
    let to = out.path().join("laid/out");
    let subject = Subject::open(from, &here()).unwrap();
    lay_out(&subject, &to).unwrap();
    let laid = Subject::open(&to, &here()).unwrap();
    let names: Vec<&str> = laid.files.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(
        names,
        [
            ".gitattributes",
            "README.md",
            "SHA256SUMS",
            "also.json",
            "config.json",
            "generation_config.json",
            "model.safetensors",
            "tokenizer.json",
            "tokenizer_config.json",
        ]
    );
    assert!(
        laid.files.iter().all(|f| f.link == Link::None),
        "copies, no links"
    );
    assert_eq!(troubles(&to), []);
    let sums = findings(&to)
        .into_iter()
        .find(|f| f.id == "checksums")
        .unwrap();
    assert!(sums.evidence.to_string().contains("8 files"), "{sums:?}");
    assert!(matches!(
        lay_out(&subject, &to),
        Err(LayoutError::Occupied(_))
    ));
    assert!(matches!(
        lay_out(&subject, &from.join("x")),
        Err(LayoutError::Within(_))
    ));
    // One letter more, one file less.
    fs::write(to.join(card::NAME), format!("{CARD}.")).unwrap();
    fs::remove_file(to.join("also.json")).unwrap();
    let found: Vec<String> = troubles(&to)
        .into_iter()
        .map(|(id, _, words)| format!("{id} {words}"))
        .collect();
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[0].contains("SHA256SUMS:2") && found[0].contains("README.md has another"),
        "{found:?}"
    );
    assert!(found[1].contains("also.json is not there"), "{found:?}");
}

#[test]
fn gguf_folders_and_adapters_are_checked_as_such() {
    let dir = healthy();
    // A text ends otherwise than a turn: a GGUF file has a key for each.
    let config = serde_json::json!({"eos_token": "<|endoftext|>", "chat_template": CHATML});
    fs::write(dir.path().join(hf::TOKENIZER_CONFIG), config.to_string()).unwrap();
    let ends = "{\"eos_token_id\": [0, 2]}";
    fs::write(dir.path().join(hf::GENERATION), ends).unwrap();
    let source = Source::open(dir.path()).unwrap();
    let to = dir.path().join("gguf");
    let options = Options {
        dtype: "f16".into(),
        max_shard_bytes: u64::MAX,
    };
    let written = export::export(&source, export::format("gguf").unwrap(), &options, &to).unwrap();
    fs::write(to.join(card::NAME), CARD).unwrap();
    assert_eq!(Subject::open(&to, &here()).unwrap().form, Form::Gguf);
    assert_eq!(troubles(&to), []);
    let path = to.join(&written[0].name);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let found = troubles(&to);
    assert!(
        found
            .iter()
            .any(|(id, status, _)| id == "description" && *status == Status::Fail),
        "{found:?}"
    );

    let adapter = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle/peft/lora");
    let copy = tempfile::tempdir().unwrap();
    for name in [hf::ADAPTER_CONFIG, hf::ADAPTER_WEIGHTS] {
        fs::copy(adapter.join(name), copy.path().join(name)).unwrap();
    }
    fs::write(
        copy.path().join(card::NAME),
        CARD.replace("transformers", "peft"),
    )
    .unwrap();
    let path = copy.path().join(hf::ADAPTER_CONFIG);
    let mut config: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    config["base_model_name_or_path"] = "org/base".into();
    fs::write(&path, config.to_string()).unwrap();
    assert_eq!(
        Subject::open(copy.path(), &here()).unwrap().form,
        Form::Adapter
    );
    let found = troubles(copy.path());
    assert!(
        found
            .iter()
            .all(|(_, status, _)| *status == Status::Unknown),
        "{found:?}"
    );
    // With its base in the cache it answers.
    let cache = tempfile::tempdir().unwrap();
    let snapshot = cache.path().join("models--org--base/snapshots/0123abc");
    fs::create_dir_all(&snapshot).unwrap();
    fs::create_dir_all(cache.path().join("models--org--base/refs")).unwrap();
    fs::write(cache.path().join("models--org--base/refs/main"), "0123abc").unwrap();
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle/peft/llama");
    for entry in fs::read_dir(base).unwrap().flatten() {
        fs::copy(entry.path(), snapshot.join(entry.file_name())).unwrap();
    }
    let with_cache = Here {
        cache: Some(cache.path().into()),
        ..here()
    };
    // Of eleven characters, as the model has ids.
    let kind = crate::data::tokenizer::TokenizerConfig::Char(Default::default());
    let characters = kind.build("The kingsou", "The kingsou").unwrap();
    fs::write(snapshot.join(hf::TOKENIZER), characters.to_json()).unwrap();
    let subject = Subject::open(copy.path(), &with_cache).unwrap();
    let found = check(&subject, &|_| ());
    let generates = found.iter().find(|f| f.id == "generates").unwrap();
    assert_eq!(generates.status, Status::Pass, "{generates:?}");
    assert!(
        generates.evidence.to_string().starts_with("The → "),
        "{generates:?}"
    );
    assert_eq!(subject.base(), Some(snapshot));
    config["base_model_name_or_path"] = "/data/base".into();
    fs::write(&path, config.to_string()).unwrap();
    let found = troubles(copy.path());
    assert!(
        found.iter().any(|(id, s, w)| id == "description"
            && *s == Status::Fail
            && w.contains("/data/base")),
        "{found:?}"
    );
}

#[test]
fn a_model_that_does_not_fit_is_unknown_and_not_tried() {
    let dir = healthy();
    let subject = Subject::open(
        dir.path(),
        &Here {
            room: 1000,
            cache: None,
        },
    )
    .unwrap();
    let found = check(&subject, &|_| ());
    let generates = found.iter().find(|f| f.id == "generates").unwrap();
    assert_eq!(generates.status, Status::Unknown, "{generates:?}");
}

#[test]
fn a_folder_without_a_model_says_what_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("pytorch_model.bin"), "x").unwrap();
    let error = Subject::open(dir.path(), &here()).err().unwrap();
    assert!(
        error.to_string().contains("pickle") && !error.hint().is_empty(),
        "{error}"
    );
}

#[test]
fn a_snapshot_of_the_hubs_cache_may_point_to_its_blobs_and_no_further() {
    let cache = tempfile::tempdir().unwrap();
    let repo = cache.path().join("models--org--tiny");
    let snapshot = repo.join("snapshots/0123abc");
    fs::create_dir_all(repo.join("blobs")).unwrap();
    fs::create_dir_all(&snapshot).unwrap();
    let dir = healthy();
    for (at, entry) in fs::read_dir(dir.path()).unwrap().flatten().enumerate() {
        let blob = repo.join(format!("blobs/{at}"));
        fs::copy(entry.path(), &blob).unwrap();
        let link = snapshot.join(entry.file_name());
        std::os::unix::fs::symlink(format!("../../blobs/{at}"), link).unwrap();
    }
    assert_eq!(troubles(&snapshot), []);
    let other = cache.path().join("models--org--other");
    fs::write(&other, "x").unwrap();
    std::os::unix::fs::symlink(&other, snapshot.join("notes.txt")).unwrap();
    assert_eq!(troubles(&snapshot)[0].0, "safe");
}
