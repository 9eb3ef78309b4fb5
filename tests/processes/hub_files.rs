//! GGUF files of the hub wherever a model is named, and the weights of GGUF files as `llmtui inspect` shows them.

use super::{HubServer, PROGRAM};
use llmtui::gguf::{Gguf, NewTensor, Value, write};
use llmtui::kernels::quant::Kind;
use llmtui::nn::{Model, ModelConfig};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;

/// Exit code, standard output, standard error. Without an endpoint only the cache is there.
fn go(home: &Path, endpoint: &str, args: &[&str]) -> (i32, String, String) {
    let (key, value) = match endpoint {
        "" => ("HF_HUB_OFFLINE", "1"),
        endpoint => ("HF_ENDPOINT", endpoint),
    };
    let output = Command::new(PROGRAM)
        .args(args)
        .current_dir(home)
        .env_clear()
        .env("HOME", home)
        .env("HF_HOME", home.join("hf"))
        .env(key, value)
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let code = output.status.code().unwrap();
    (code, text(output.stdout), text(output.stderr))
}

fn ok(home: &Path, endpoint: &str, args: &[&str]) -> (String, String) {
    let (code, out, err) = go(home, endpoint, args);
    assert_eq!(code, 0, "{args:?}: {out}{err}");
    (out, err)
}

#[test]
fn a_gguf_file_of_the_hub_is_taken_wherever_a_model_is_named() {
    let (files, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let home = home.path();
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle/gguf");
    // Of the same bytes the cache would have one copy.
    for (model, name) in [("qwen2", "tiny-Q4_K_M.gguf"), ("gpt2", "tiny-Q8_0.gguf")] {
        let from = models.join(format!("{model}.gguf"));
        std::fs::copy(from, files.path().join(name)).unwrap();
    }
    std::fs::write(files.path().join("tiny-IQ3_M.gguf"), "never asked for").unwrap();
    let server = HubServer::start(files.path());
    server.stalls.store(false, Ordering::Relaxed);
    let endpoint = server.endpoint.as_str();

    let (_, _, refused) = go(home, endpoint, &["model", "pull", "org/tiny:IQ3_M"]);
    assert!(
        refused.contains("IQ3_M, which this build does not read"),
        "{refused}"
    );
    assert!(refused.contains("org/tiny:Q4_K_M"), "{refused}");
    let (code, _, refused) = go(home, endpoint, &["chat", "org/tiny:Q5_0", "--prompt", "x"]);
    assert!(
        code == 2 && refused.contains("no GGUF file `Q5_0`"),
        "{refused}"
    );
    let (out, note) = ok(home, endpoint, &["model", "pull", "org/tiny"]);
    assert!(out.trim().ends_with("tiny-Q4_K_M.gguf"), "{out}");
    assert!(note.contains("note: org/tiny: tiny-Q4_K_M.gguf"), "{note}");
    let show = ["model", "show", "org/tiny:tiny-Q8_0.gguf"];
    let (out, note) = ok(home, endpoint, &show);
    assert!(
        out.contains("tiny-Q8_0.gguf") && !note.contains("note:"),
        "{note}"
    );
    let log = server.log.lock().unwrap().clone();
    let asked = |name: &str| log.iter().filter(|line| line.contains(name)).count();
    // Each is asked for its beginning, too.
    assert_eq!(["Q4_K_M", "Q8_0", "IQ3_M"].map(asked), [2, 2, 0], "{log:?}");

    // From here on without a network.
    for args in [
        &["plan", "org/tiny:Q8_0"][..],
        &["inspect", "org/tiny:q8_0"],
        &["model", "show", "hf.co/org/tiny:Q8_0", "--json"],
        &["plan", "https://huggingface.co/org/tiny:Q8_0"],
    ] {
        ok(home, "", args);
    }
}

#[test]
fn a_missing_file_of_a_folder_here_is_reported_and_not_asked_of_the_hub() {
    let (files, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (server, home) = (HubServer::start(files.path()), home.path());
    std::fs::create_dir(home.join("models")).unwrap();
    let word = "models/x:y.gguf";
    let from = format!("train.from={word}");
    for args in [
        &["model", "show", word][..],
        &["train", "smoke", "-s", from.as_str()],
    ] {
        let (code, _, error) = go(home, &server.endpoint, args);
        assert_eq!(code, 2, "{error}");
        for part in ["models/x:y.gguf does not exist", "hf:models/x:y.gguf"] {
            assert!(error.contains(part), "{args:?}: {error}");
        }
    }
    assert_eq!(server.log.lock().unwrap().len(), 0);
    let (_, _, error) = go(
        home,
        &server.endpoint,
        &["model", "show", "hf:models/x:y.gguf"],
    );
    assert!(error.contains("no GGUF files"), "{error}");
}

fn small() -> Model {
    let config = ModelConfig {
        n_layer: 1,
        n_head: 2,
        d_model: 64,
        seq_len: 8,
        bias: true,
        ..ModelConfig::default()
    };
    let mut model = Model::new(&config, 96, &candle_core::Device::Cpu).unwrap();
    model.init(3).unwrap();
    model
}

/// A model as a GGUF file.
fn file(model: &Model, kind: Kind, to: &Path) {
    let keys = [(
        "tokenizer.ggml.model".to_string(),
        Value::String("no_vocab".into()),
    )];
    let mut bytes = Vec::new();
    llmtui::llama_cpp::write(model, kind, "m", &keys, &mut bytes).unwrap();
    std::fs::write(to, bytes).unwrap();
}

/// A file as two parts, the second with all tensors but one; gives the second.
fn split(path: &Path) -> PathBuf {
    let (head, bytes) = (Gguf::open(path).unwrap(), std::fs::read(path).unwrap());
    let part = |n: usize| path.with_file_name(format!("split-{n:05}-of-00002.gguf"));
    for (no, tensors) in [&head.tensors[..1], &head.tensors[1..]].iter().enumerate() {
        let all = head.metadata.iter().filter(|_| no == 0);
        let mut keys: Vec<(String, Value)> = all.map(|(k, v)| (k.into(), v.clone())).collect();
        let counts = [
            ("no", no),
            ("count", 2),
            ("tensors.count", head.tensors.len()),
        ];
        for (key, n) in counts {
            keys.push((format!("split.{key}"), Value::Unsigned(n as u64)));
        }
        let new = |t: &llmtui::gguf::TensorInfo| NewTensor {
            name: t.name.clone(),
            dims: t.dims.clone(),
            kind: t.kind,
        };
        let listed: Vec<NewTensor> = tensors.iter().map(new).collect();
        let mut out = std::fs::File::create(part(no + 1)).unwrap();
        write(&mut out, &keys, &listed, &mut |i, filled| {
            let start = (head.data_start + tensors[i].offset) as usize;
            filled.extend(&bytes[start..start + tensors[i].bytes as usize]);
            Ok(())
        })
        .unwrap();
    }
    part(2)
}

fn inspected(home: &Path, models: &[&str]) -> serde_json::Value {
    let args = [&["inspect"][..], models, &["--json"]].concat();
    let (out, _) = ok(home, "", &args);
    serde_json::from_str(&out).unwrap()
}

#[test]
fn a_gguf_file_is_inspected_as_the_folder_that_it_was_made_of() {
    let dir = tempfile::tempdir().unwrap();
    let (home, model) = (dir.path(), small());
    std::fs::create_dir(home.join("folder")).unwrap();
    let config = llmtui::hf::config_json(&model, None);
    std::fs::write(home.join("folder/config.json"), config).unwrap();
    let mut out = std::fs::File::create(home.join("folder/model.safetensors")).unwrap();
    llmtui::hf::write_weights(&model, &mut out).unwrap();
    file(&model, Kind::F32, &home.join("f32.gguf"));
    file(&model, Kind::Q8_0, &home.join("q8.gguf"));

    let exact = inspected(home, &["folder", "f32.gguf"]);
    let [folder, plain] = [0, 1].map(|at| exact["models"][at].clone());
    let changes = exact["relative_change"].as_array().unwrap();
    assert!(
        changes.len() > 5 && changes.iter().all(|x| x == 0.0),
        "{changes:?}"
    );
    let [ours, theirs] = [&folder, &plain].map(|m| m["matrices"].as_array().unwrap());
    for (ours, theirs) in ours.iter().zip(theirs) {
        for key in ["name", "shape", "values"] {
            assert_eq!(ours[key], theirs[key]);
        }
        assert!(ours.get("format").is_none() && theirs["format"] == "F32");
    }
    assert_eq!(folder["n_params"], plain["n_params"]);
    assert_eq!(plain["quantized"], false);

    let rounded = inspected(home, &["q8.gguf", "f32.gguf"]);
    let matrices = rounded["models"][0]["matrices"].as_array().unwrap();
    for (matrix, change) in matrices
        .iter()
        .zip(rounded["relative_change"].as_array().unwrap())
    {
        // A block of 32 values is rounded to 127 steps of its largest one.
        let (change, is_q8) = (change.as_f64().unwrap(), matrix["format"] == "Q8_0");
        assert_eq!(is_q8, change > 0.0, "{matrix}");
        assert!(change < 0.02, "{matrix}");
    }
    let (table, _) = ok(home, "", &["inspect", "q8.gguf"]);
    assert!(
        table.contains("format") && table.contains("Q8_0"),
        "{table}"
    );
    assert!(table.contains("rounding adds noise"), "{table}");
    let (table, _) = ok(home, "", &["inspect", "folder", "q8.gguf"]);
    assert!(
        table.contains("- -> Q8_0") && table.contains("rounding adds noise"),
        "{table}"
    );
    let (table, _) = ok(home, "", &["inspect", "folder"]);
    assert!(
        !table.contains("format") && !table.contains("rounding"),
        "{table}"
    );

    let second = split(&home.join("q8.gguf"));
    let parts = inspected(home, &[second.to_str().unwrap()]);
    assert_eq!(
        parts["models"][0]["matrices"],
        rounded["models"][0]["matrices"]
    );
}

#[test]
fn values_of_a_gguf_file_that_are_not_finite_are_counted_and_fail() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    file(&small(), Kind::F32, &path);
    let (head, mut bytes) = (Gguf::open(&path).unwrap(), std::fs::read(&path).unwrap());
    let tensor = head
        .tensors
        .iter()
        .find(|t| t.name == "blk.0.ffn_up.weight")
        .unwrap();
    let at = (head.data_start + tensor.offset) as usize;
    bytes[at..at + 8].copy_from_slice(&[0xff; 8]);
    std::fs::write(&path, bytes).unwrap();
    let (code, out, _) = go(dir.path(), "", &["inspect", "m.gguf"]);
    assert_eq!(code, 4, "{out}");
    assert!(
        out.contains("2 values of") && out.contains("are NaN or infinite"),
        "{out}"
    );
    let (code, _, error) = go(dir.path(), "", &["inspect", "m.gguf", "none.gguf"]);
    assert!(code == 2 && error.contains("none.gguf"), "{error}");
}
