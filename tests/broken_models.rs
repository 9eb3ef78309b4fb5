//! Broken model files, each read end to end from a folder to a model: every one ends in a message with the file and
//! the cause, within a second and in bounded memory, and never in a panic. Most are made by changing one thing in a valid
//! folder; nothing here differs from run to run.

#![expect(clippy::unwrap_used, reason = "a test without its files has failed")]

use llmtui::base::clock::{Clock, SystemClock};
use llmtui::engine::infer::LoadedModel;
use llmtui::gguf::Gguf;
use llmtui::hf;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// Far below what the crafted files request.
const MAX_RESIDENT: u64 = 600 << 20;
/// The target is one second; a busy machine gets more.
const TIMEOUT: Duration = Duration::from_secs(4);

fn families() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle/families")
}

/// A copy of a valid folder.
fn sound(name: &str) -> TempDir {
    // Tokenizers are tested in a child of the program, as in production.
    llmtui::base::child::this_program_is(PathBuf::from(env!("CARGO_BIN_EXE_llmtui")));
    let dir = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(families().join(name)).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_str().unwrap();
        if file != "expected.safetensors" {
            fs::copy(&path, dir.path().join(file)).unwrap();
        }
    }
    dir
}

/// Asserts a bound on the peak memory of this process, if the system reports it.
fn bounded_memory(what: &str) {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    if let Some(kilobytes) = peak.and_then(|p| p.split_whitespace().next()) {
        let bytes = kilobytes.parse::<u64>().unwrap() << 10;
        assert!(bytes < MAX_RESIDENT, "{what}: {} MB", bytes >> 20);
    }
}

/// The error of `work`, which must be quick; the message must be fit for a screen.
fn reported<T>(what: &str, work: impl FnOnce() -> Result<T, String>) -> Option<String> {
    let clock = SystemClock::new();
    let error = work().err();
    let spent = clock.elapsed();
    assert!(spent < TIMEOUT, "{what}: {spent:?}");
    bounded_memory(what);
    if let Some(message) = &error {
        let clean = !message.chars().any(char::is_control);
        assert!(clean && message.len() < 4000, "{what}: {message:?}");
    }
    error
}

fn load(folder: &Path) -> Result<(), String> {
    hf::load(folder).map(|_| ()).map_err(|e| e.to_string())
}

#[track_caller]
fn refused(folder: &Path, what: &str, file: &str) -> String {
    let error = reported(what, || load(folder));
    let error = error.expect(what);
    assert!(error.contains(file), "{what}: no `{file}` in: {error}");
    error
}

/// A safetensors file with this header, followed by `data` zeros.
fn with_header(folder: &Path, header: &[u8], data: usize) {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header);
    bytes.resize(bytes.len() + data, 0);
    fs::write(folder.join(hf::WEIGHTS), bytes).unwrap();
}

/// Pseudo-random numbers, the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % bound
    }
}

#[test]
fn truncated_weight_files_never_load() {
    let dir = sound("llama_yarn");
    let path = dir.path().join(hf::WEIGHTS);
    let whole = fs::read(&path).unwrap();
    for cut in (0..whole.len())
        .step_by(397)
        .chain([7, 8, 9, whole.len() - 1])
    {
        fs::write(&path, &whole[..cut]).unwrap();
        refused(dir.path(), &format!("cut at {cut}"), hf::WEIGHTS);
    }
    let longer = [&whole[..], b"more"].concat();
    fs::write(&path, longer).unwrap();
    refused(dir.path(), "four bytes too many", hf::WEIGHTS);
}

#[test]
fn a_wrong_header_length_allocates_no_memory() {
    let dir = sound("llama_yarn");
    let path = dir.path().join(hf::WEIGHTS);
    let whole = fs::read(&path).unwrap();
    for length in [0, 1, 16 << 20, (16 << 20) + 1, 1 << 32, 1 << 63, u64::MAX] {
        let mut bytes = whole.clone();
        bytes[..8].copy_from_slice(&length.to_le_bytes());
        fs::write(&path, bytes).unwrap();
        refused(dir.path(), &format!("a header of {length}"), hf::WEIGHTS);
    }
}

#[test]
fn inconsistent_headers_are_rejected() {
    let dir = sound("llama_yarn");
    let tensor = |dtype: &str, shape: Value, from: u64, to: u64| json!({"w": {"dtype": dtype, "shape": shape, "data_offsets": [from, to]}});
    let huge = u64::MAX;
    let headers = [
        json!([]),
        json!({"w": 3}),
        json!({"w": {"dtype": "F32"}}),
        tensor("F32", json!([2]), 0, 4),
        tensor("F32", json!([2]), 4, 12),
        tensor("F32", json!([2]), 8, 0),
        tensor("F32", json!([1u64 << 32, 1u64 << 32]), 0, 8),
        tensor("F32", json!([1u64 << 62]), 0, 8),
        tensor("F32", json!([huge, huge]), 0, 8),
        tensor("F32", json!([2]), huge - 8, huge),
        tensor("F32", json!([-2]), 0, 8),
        tensor("F32", json!(["2"]), 0, 8),
        tensor("F32", json!([0, 1u64 << 40]), 0, 8),
        tensor("F128", json!([2]), 0, 8),
        tensor("I64", json!([1]), 0, 8),
        json!({
            "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
            "b": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]},
        }),
        json!({
            "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
            "b": {"dtype": "F32", "shape": [2], "data_offsets": [12, 20]},
        }),
        json!({"\u{1b}[2J\u{202e}": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}),
    ];
    for header in &headers {
        for data in [0, 8, 20] {
            with_header(dir.path(), header.to_string().as_bytes(), data);
            refused(dir.path(), &header.to_string(), hf::WEIGHTS);
        }
    }
    let deep = "[".repeat(100_000);
    for text in [
        &b"{"[..],
        b"\xff\xfe",
        b"nul\0",
        deep.as_bytes(),
        br#"{"w":{"w":{"w":1}}}"#,
    ] {
        with_header(dir.path(), text, 8);
        refused(dir.path(), "no JSON", hf::WEIGHTS);
    }
}

#[test]
fn a_header_of_a_hundred_thousand_tensors_is_read_quickly_and_rejected() {
    let dir = sound("llama_yarn");
    let tensors: Vec<String> = (0..100_000)
        .map(|i| format!("\"t{i}\":{{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}"))
        .collect();
    let header = format!("{{{}}}", tensors.join(","));
    with_header(dir.path(), header.as_bytes(), 0);
    refused(dir.path(), "many tensors", hf::WEIGHTS);
}

#[test]
fn wrong_types_and_shapes_name_the_tensor() {
    let dir = sound("llama_yarn");
    let path = dir.path().join(hf::WEIGHTS);
    let whole = fs::read(&path).unwrap();
    let length = u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&whole[8..8 + length]).unwrap();
    let data = whole.len() - 8 - length;
    let name = "model.layers.1.mlp.up_proj.weight";
    for (key, value) in [
        ("dtype", json!("I32")),
        ("dtype", json!("F8_E4M3")),
        ("shape", json!([16, 24])),
        ("shape", json!([384])),
        ("shape", json!([1, 24, 16])),
    ] {
        let mut changed = header.clone();
        changed[name][key] = value.clone();
        with_header(dir.path(), changed.to_string().as_bytes(), data);
        let error = refused(dir.path(), &value.to_string(), hf::WEIGHTS);
        let by_size = error.contains("safetensors file");
        assert!(by_size || error.contains(name), "{error}");
    }
}

/// Only the position table may have more rows than the model, but it must have rows at all.
#[test]
fn a_scalar_in_place_of_a_table_is_rejected_by_name() {
    let dir = sound("gpt2");
    let whole = fs::read(dir.path().join(hf::WEIGHTS)).unwrap();
    let length = u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    let mut header: Value = serde_json::from_slice(&whole[8..8 + length]).unwrap();
    let mut at = 0;
    for (name, tensor) in header.as_object_mut().unwrap() {
        let Some(offsets) = tensor.get("data_offsets") else {
            continue;
        };
        let mut bytes = offsets[1].as_u64().unwrap() - offsets[0].as_u64().unwrap();
        if name.ends_with("wpe.weight") {
            let shape = tensor["shape"].as_array().unwrap();
            bytes /= shape.iter().map(|n| n.as_u64().unwrap()).product::<u64>();
            tensor["shape"] = json!([]);
        }
        tensor["data_offsets"] = json!([at, at + bytes]);
        at += bytes;
    }
    with_header(dir.path(), header.to_string().as_bytes(), at as usize);
    let error = refused(dir.path(), "a scalar", hf::WEIGHTS);
    assert!(error.contains("wpe.weight"), "{error}");
}

#[test]
fn headers_with_flipped_bits_load_or_are_rejected() {
    let dir = sound("llama_yarn");
    let path = dir.path().join(hf::WEIGHTS);
    let whole = fs::read(&path).unwrap();
    let length = u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    let mut random = Random(7);
    let mut refusals = 0;
    for _ in 0..600 {
        let mut bytes = whole.clone();
        for _ in 0..=random.below(3) {
            bytes[random.below(8 + length)] ^= 1 << random.below(8);
        }
        fs::write(&path, bytes).unwrap();
        refusals += usize::from(reported("flipped bits", || load(dir.path())).is_some());
    }
    assert!(refusals > 500, "{refusals} of 600");
}

#[test]
fn invalid_config_values_never_panic() {
    let nonsense = [
        json!(null),
        json!(true),
        json!(-1),
        json!(0),
        json!(0.5),
        json!(1e30),
        json!(1_000_000_000u64),
        json!(1u64 << 63),
        json!("x"),
        json!("\u{1b}]0;x\u{7}"),
        json!([]),
        json!([1, 2]),
        json!({}),
        json!({"rope_type": "yarn", "factor": 1e300}),
    ];
    for family in [
        "gpt2",
        "gpt_neo",
        "gpt_neox",
        "llama3",
        "granite",
        "smollm3",
        "qwen2",
        "gemma3",
        "olmo3",
        "phi3",
        "starcoder2",
        "qwen3_moe",
        "qwen2_moe",
        "qwen3_next",
        "olmoe",
        "granitemoe",
        "granite_hybrid",
        "granite_hybrid_dense",
        "granite_shared",
        "bamba",
        "lfm2_moe",
        "deepseek_v2_groups",
        "deepseek_v3",
        "glm4_moe_lite",
        "gpt_oss",
        "../packed/gpt_oss_mxfp4",
        "../packed/qwen3_fp8",
        "../packed/llama_fp8_rows",
        "stablelm",
    ] {
        let dir = sound(family);
        let path = dir.path().join(hf::CONFIG);
        let whole: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        for key in whole.as_object().unwrap().keys() {
            for value in &nonsense {
                let mut changed = whole.clone();
                changed[key] = value.clone();
                fs::write(&path, changed.to_string()).unwrap();
                reported(&format!("{family}: {key} = {value}"), || load(dir.path()));
            }
            let mut without = whole.clone();
            without.as_object_mut().unwrap().remove(key);
            fs::write(&path, without.to_string()).unwrap();
            reported(&format!("{family} without {key}"), || load(dir.path()));
        }
    }
}

#[test]
fn sizes_beyond_memory_are_rejected_before_allocation() {
    let dir = sound("llama_yarn");
    let path = dir.path().join(hf::CONFIG);
    let whole: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    for (key, value) in [
        ("num_hidden_layers", 1000u64),
        ("num_hidden_layers", 1 << 40),
        ("num_hidden_layers", 1 << 60),
        ("hidden_size", 1 << 20),
        ("vocab_size", 10_000_000),
        ("intermediate_size", 1 << 20),
        ("num_attention_heads", 1024),
        ("head_dim", 1 << 20),
        ("max_position_embeddings", 1 << 62),
    ] {
        let mut changed = whole.clone();
        changed[key] = json!(value);
        fs::write(&path, changed.to_string()).unwrap();
        refused(dir.path(), &format!("{key} = {value}"), "");
    }
    // Of which blocks have attention or experts they make lists.
    for family in [
        "lfm2",
        "lfm2_moe",
        "qwen3_5",
        "qwen2_moe",
        "deepseek_v3",
        "granite_hybrid",
    ] {
        let dir = sound(family);
        let path = dir.path().join(hf::CONFIG);
        let mut value: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        value["num_hidden_layers"] = json!(1u64 << 40);
        value.as_object_mut().unwrap().remove("layer_types");
        fs::write(&path, value.to_string()).unwrap();
        refused(dir.path(), family, "config.json");
    }
}

#[test]
fn texts_that_are_not_a_config_are_rejected() {
    let dir = sound("llama_yarn");
    let path = dir.path().join(hf::CONFIG);
    let whole = fs::read(&path).unwrap();
    let deep = "[".repeat(500_000);
    let large = format!("{{\"x\": \"{}\"}}", "a".repeat(2 << 20));
    let texts = [
        &b""[..],
        b"{",
        b"[]",
        b"\"\"",
        b"\xff",
        b"\xef\xbb\xbf{}",
        deep.as_bytes(),
        large.as_bytes(),
    ];
    for text in texts {
        fs::write(&path, text).unwrap();
        refused(dir.path(), "no config", hf::CONFIG);
    }
    for cut in (0..whole.len() - 2).step_by(29) {
        fs::write(&path, &whole[..cut]).unwrap();
        refused(dir.path(), "a cut config", hf::CONFIG);
    }
    let mut random = Random(11);
    for _ in 0..400 {
        let mut bytes = whole.clone();
        bytes[random.below(whole.len())] ^= 1 << random.below(8);
        fs::write(&path, bytes).unwrap();
        reported("a flipped bit", || load(dir.path()));
    }
}

#[test]
fn an_index_of_shards_cannot_point_outside_the_folder() {
    let dir = sound("llama");
    let path = dir.path().join(hf::INDEX);
    let whole: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("x.safetensors"), "secret").unwrap();
    let away = outside.path().join("x.safetensors");
    for name in [
        json!(away.to_str().unwrap()),
        json!("../x.safetensors"),
        json!("a/../../x.safetensors"),
        json!("missing.safetensors"),
        json!("config.json"),
        json!("\u{1b}[31m.safetensors"),
        json!(7),
        json!(null),
        json!("model-00001-of-00004.safetensors"),
    ] {
        let mut changed = whole.clone();
        changed["weight_map"]["lm_head.weight"] = name.clone();
        fs::write(&path, changed.to_string()).unwrap();
        refused(dir.path(), &name.to_string(), "");
    }
    let many: serde_json::Map<String, Value> = (0..50_000)
        .map(|i| (format!("t{i}"), json!(format!("{i}.safetensors"))))
        .collect();
    for text in [
        json!({"weight_map": many}),
        json!({"weight_map": []}),
        json!({}),
        json!([]),
    ] {
        fs::write(&path, text.to_string()).unwrap();
        refused(dir.path(), "no index", hf::INDEX);
    }
    let text = whole.to_string();
    for cut in (0..text.len() - 1).step_by(61) {
        fs::write(&path, &text[..cut]).unwrap();
        refused(dir.path(), "a cut index", hf::INDEX);
    }
}

#[test]
fn pickles_are_rejected_with_conversion_instructions() {
    for name in [
        "pytorch_model.bin",
        "pytorch_model-00001-of-00002.bin",
        "consolidated.00.pth",
        "model.pt",
    ] {
        let dir = sound("llama_yarn");
        fs::remove_file(dir.path().join(hf::WEIGHTS)).unwrap();
        fs::write(dir.path().join(name), b"\x80\x02}q\x00.").unwrap();
        let error = refused(dir.path(), name, name);
        assert!(
            error.contains("pickle") && error.contains("save_pretrained"),
            "{error}"
        );
    }
}

/// Files for which the tokenizer library is known to panic, abort or exhaust memory.
fn tokenizers() -> Vec<(&'static str, Value)> {
    let model = json!({"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": "a"});
    let with = |key: &str, value: Value| {
        let mut file = json!({"version": "1.0", "added_tokens": [], "model": model});
        file[key] = value;
        file
    };
    let charsmap = |text: &str| {
        with(
            "normalizer",
            json!({"type": "Precompiled", "precompiled_charsmap": text}),
        )
    };
    let padding = json!({"strategy": {"Fixed": 50_000_000}, "direction": "Right", "pad_to_multiple_of": null,
        "pad_id": 0, "pad_type_id": 0, "pad_token": "a"});
    vec![
        ("an empty table", json!({})),
        ("no model", json!({"version": "1.0", "added_tokens": []})),
        (
            "an unknown model",
            with("model", json!({"type": "Magic", "vocab": {}})),
        ),
        (
            "a vocabulary of billions",
            with(
                "model",
                json!({"type": "WordLevel", "vocab": {"a": 0, "b": u32::MAX}, "unk_token": "a"}),
            ),
        ),
        (
            "ids beyond 32 bits",
            with(
                "model",
                json!({"type": "WordLevel", "vocab": {"a": 1u64 << 40}, "unk_token": "a"}),
            ),
        ),
        ("a broken character map", charsmap("AAAA")),
        ("a character map that lies", charsmap("/////w==")),
        ("padding to fifty million", with("padding", padding)),
        (
            "a stride as long as the text",
            with(
                "truncation",
                json!({"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 5}),
            ),
        ),
        (
            "a template with a token that is not there",
            with(
                "post_processor",
                json!({"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "x", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": {}}),
            ),
        ),
        (
            "merges of pieces that are not there",
            with(
                "model",
                json!({"type": "BPE", "vocab": {"a": 0}, "merges": ["x y"]}),
            ),
        ),
        (
            "a pattern that never ends",
            with(
                "pre_tokenizer",
                json!({"type": "Split", "pattern": {"Regex": "(a*)*(b*)*$"}, "behavior": "Isolated", "invert": false}),
            ),
        ),
    ]
}

#[test]
fn broken_tokenizers_crash_a_child_and_not_this_process() {
    let dir = sound("llama_yarn");
    let path = dir.path().join(hf::TOKENIZER);
    let try_it = |what: &str| {
        reported(what, || {
            LoadedModel::load(dir.path())
                .map(|_| ())
                .map_err(|e| e.to_string())
        })
    };
    for (what, file) in tokenizers() {
        fs::write(&path, file.to_string()).unwrap();
        let error = try_it(what);
        let named = error.as_ref().is_none_or(|e| {
            e.contains("tokenizer.json") || e.contains(dir.path().to_str().unwrap())
        });
        assert!(named, "{what}: {error:?}");
        let harmless = ["a pattern", "a stride", "padding"]
            .iter()
            .any(|w| what.starts_with(w));
        assert!(harmless || error.is_some(), "{what}: it loaded");
    }
    let deep = "[".repeat(300_000);
    for text in [&b""[..], b"{", b"\xff\xff", deep.as_bytes()] {
        fs::write(&path, text).unwrap();
        assert!(try_it("no tokenizer").is_some());
    }
}

#[test]
fn broken_gguf_headers_are_rejected_quickly() {
    let read = |bytes: &[u8]| {
        Gguf::read(bytes, bytes.len() as u64)
            .map(|_| ())
            .map_err(|e| e.to_string())
    };
    let head = |version: u32, tensors: u64, keys: u64| {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(version.to_le_bytes());
        bytes.extend(tensors.to_le_bytes());
        bytes.extend(keys.to_le_bytes());
        bytes
    };
    for tensors in [1, 1 << 20, 1 << 40, u64::MAX] {
        for keys in [0, 1, 1 << 40, u64::MAX] {
            let bytes = head(3, tensors, keys);
            assert!(
                reported("counts that lie", || read(&bytes)).is_some(),
                "{tensors}, {keys}"
            );
        }
    }
    let string = |bytes: &mut Vec<u8>, text: &str| {
        bytes.extend((text.len() as u64).to_le_bytes());
        bytes.extend(text.as_bytes());
    };
    // One tensor of two dimensions whose product wraps to zero.
    for dims in [[1u64 << 32, 1 << 32], [u64::MAX, 2], [1 << 62, 4]] {
        let mut bytes = head(3, 1, 0);
        string(&mut bytes, "w");
        bytes.extend(2u32.to_le_bytes());
        dims.iter().for_each(|d| bytes.extend(d.to_le_bytes()));
        bytes.extend(0u32.to_le_bytes());
        bytes.extend(0u64.to_le_bytes());
        bytes.resize(4096, 0);
        assert!(
            reported("dimensions that wrap", || read(&bytes)).is_some(),
            "{dims:?}"
        );
    }
    let mut sound = head(3, 0, 1);
    string(&mut sound, "general.alignment");
    sound.extend(4u32.to_le_bytes());
    sound.extend(0u32.to_le_bytes());
    assert!(reported("an alignment of nothing", || read(&sound)).is_some());
    let mut random = Random(5);
    for _ in 0..2000 {
        let mut bytes = sound.clone();
        bytes.extend((0..random.below(64)).map(|i| i as u8));
        let at = random.below(bytes.len());
        bytes[at] ^= 1 << random.below(8);
        bytes.truncate(4 + random.below(bytes.len()));
        reported("noise", || read(&bytes));
    }
}

/// In a comparison of likelihoods NaN loses silently: its accuracy was the share of items of which the first choice is right.
#[test]
fn a_model_with_nan_weights_has_no_accuracy() {
    let dir = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        std::process::Command::new(env!("CARGO_BIN_EXE_llmtui"))
            .args(args)
            .current_dir(dir.path())
            .env("HOME", dir.path())
            .output()
            .unwrap()
    };
    assert!(run(&["init", "smoke", "--to", "model"]).status.success());
    let row = "{\"q\": \"the king\", \"c\": [\"and queen\", \"or not\"]}\n";
    fs::write(dir.path().join("rows.jsonl"), row).unwrap();
    let task = "name: mine\nversion: 1\nsummary: s\nkind: choice\nsource: rows.jsonl\nprompt: '{{ q }}'\nchoices: c\ngold: '0'\n";
    fs::write(dir.path().join("mine.yaml"), task).unwrap();
    let eval = ["eval", "model", "--tasks", "./mine.yaml"];
    assert!(run(&eval).status.success());
    fs::remove_dir_all(dir.path().join("evals")).unwrap();

    let path = dir.path().join("model").join(hf::WEIGHTS);
    let mut bytes = fs::read(&path).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    let embedding = &header["transformer.wte.weight"]["data_offsets"][0];
    let at = 8 + length + embedding.as_u64().unwrap() as usize;
    bytes[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    fs::write(&path, bytes).unwrap();
    // As other programs write models: without checksums.
    fs::remove_file(path.with_file_name("manifest.json")).unwrap();
    let output = run(&eval);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{printed}");
    assert!(printed.contains("non-finite weights"), "{printed}");
    assert!(output.stdout.is_empty() && !dir.path().join("evals").exists());
}
