//! What is a model, what is not, and what is said of it.

use super::*;
use crate::gguf::Value;
use std::fs;

fn small() -> Model {
    let config = ModelConfig {
        n_layer: 1,
        n_head: 2,
        d_model: 8,
        seq_len: 8,
        bias: true,
        ..ModelConfig::default()
    };
    let mut model = Model::new(&config, 11, &candle_core::Device::Cpu).unwrap();
    model.init(3).unwrap();
    model
}

/// The same model as a folder and as a file.
fn both(room: &Path) -> [PathBuf; 2] {
    let (model, folder) = (small(), room.join("Tiny-0.5B"));
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join(hf::CONFIG), hf::config_json(&model, Some(7))).unwrap();
    let mut out = fs::File::create(folder.join(hf::WEIGHTS)).unwrap();
    hf::write_weights(&model, &mut out).unwrap();
    let file = room.join("Tiny-0.5B.gguf");
    let keys = [
        (
            "tokenizer.ggml.model".to_string(),
            Value::String("no_vocab".into()),
        ),
        (
            "tokenizer.ggml.eos_token_id".to_string(),
            Value::Unsigned(7),
        ),
    ];
    let mut bytes = Vec::new();
    let kind = crate::kernels::quant::Kind::F32;
    crate::llama_cpp::write(&model, kind, "tiny", &keys, &mut bytes).unwrap();
    fs::write(&file, bytes).unwrap();
    [folder, file]
}

#[test]
fn a_folder_and_a_file_of_one_model_answer_alike() {
    let room = tempfile::tempdir().unwrap();
    let bits = |m: &Model| m.params().read_weights(<[f32]>::to_vec).unwrap();
    for path in both(room.path()) {
        let source = ModelSource::open(&path).unwrap();
        assert_eq!(
            (source.name().as_str(), source.path()),
            ("Tiny-0.5B", &*path)
        );
        assert_eq!((source.family(), source.ends()), ("gpt2", vec![7]));
        assert_eq!(source.token_ids().eos, [7]);
        assert!(!source.has_tokenizer() && !source.has_chat_template());
        let model = source.load().unwrap();
        assert_eq!(source.n_params(), model.n_params() as u64);
        assert_eq!(bits(&model), bits(&source.load_for_inference().unwrap()));
        let mut other = small();
        other.init(4).unwrap();
        assert_ne!(bits(&other), bits(&model));
        source.fill(&mut other).unwrap();
        assert_eq!(bits(&other), bits(&model));
    }
}

#[test]
fn what_is_no_model_is_named_with_what_was_looked_for_and_the_fix() {
    let room = tempfile::tempdir().unwrap();
    let told = |name: &str| {
        let error = ModelSource::open(&room.path().join(name)).err().unwrap();
        format!("{error} → {}", error.hint())
    };
    let put = |name: &str, bytes: &[u8]| {
        let path = room.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    put("empty/notes.txt", b"x");
    put("ggufs/a.gguf", b"GGUF");
    put("pickle/pytorch_model.bin", b"x");
    put("odd/config.json", br#"{"model_type": "mamba"}"#);
    put("model.safetensors", b"x");
    put("chats.jsonl", b"{}");
    put("broken.gguf", b"not at all");
    put("run/run.json", b"{}");
    put("run/checkpoints/step-000010/config.json", b"{}");
    put("run/checkpoints/step-000020/config.json", b"{}");
    put("young/run.json", b"{}");
    for (name, words) in [
        ("nothing", ["nothing does not exist", "hub id (org/name)"]),
        ("empty", ["holds no config.json", "a .gguf file"]),
        ("ggufs", ["a.gguf: pass that file itself", "model folder"]),
        ("pickle", ["is a pickle", "model folder"]),
        ("pickle/pytorch_model.bin", ["is a pickle", "model folder"]),
        ("odd", ["mamba", "docs/models.md"]),
        (
            "run",
            ["is a run, not a model", "run/checkpoints/step-000020"],
        ),
        (
            "run/checkpoints",
            ["holds checkpoints of a run", "run/checkpoints/step-000020"],
        ),
        ("young", ["is a run, not a model", "once there is one"]),
        (
            "model.safetensors",
            ["has weights but no config.json", "name the folder"],
        ),
        (
            "chats.jsonl",
            ["neither a model folder nor a GGUF file", "hub id"],
        ),
        (
            "broken.gguf",
            ["is not a GGUF file", "download the file again"],
        ),
    ] {
        let told = told(name);
        assert!(
            words.iter().all(|word| told.contains(word)),
            "{name}: {told}"
        );
    }
}

#[test]
fn a_key_that_only_another_program_reads_is_noted_also_under_an_adapter() {
    let room = tempfile::tempdir().unwrap();
    let [folder, file] = both(room.path());
    assert!(notes(&folder).is_empty() && notes(&file).is_empty());
    let config = br#"{"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "attn_factor": 0.5}}"#;
    fs::write(folder.join(hf::CONFIG), config).unwrap();
    let adapter = room.path().join("adapter");
    fs::create_dir(&adapter).unwrap();
    let said = serde_json::json!({"base_model_name_or_path": folder, "peft_type": "LORA"});
    fs::write(adapter.join(hf::ADAPTER_CONFIG), said.to_string()).unwrap();
    for place in [&folder, &adapter] {
        let notes = notes(place);
        let told = notes
            .iter()
            .all(|note| note.contains("rope_scaling.attn_factor 0.5 is ignored"));
        assert!(told && notes.len() == 1, "{notes:?}");
    }
}

#[test]
fn a_folder_that_cannot_be_run_is_outlined() {
    let room = tempfile::tempdir().unwrap();
    let config = br#"{"model_type": "mamba", "torch_dtype": "bfloat16"}"#;
    fs::write(room.path().join(hf::CONFIG), config).unwrap();
    fs::write(
        room.path().join("model-00001-of-00002.safetensors"),
        [0; 10],
    )
    .unwrap();
    fs::write(room.path().join("model-00002-of-00002.safetensors"), [0; 4]).unwrap();
    let found = outline(room.path()).unwrap();
    assert_eq!((found.family.as_str(), found.n_params), ("mamba", Some(7)));
    assert!(!found.has_chat_template);
}

#[test]
fn a_name_keeps_its_dots_and_says_whose_checkpoint_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("Qwen2.5-0.5B");
    std::fs::create_dir(&folder).unwrap();
    std::fs::create_dir(dir.path().join("x.gguf")).unwrap();
    let names = [
        ("Qwen2.5-0.5B", "Qwen2.5-0.5B"),
        ("Qwen2.5-0.5B/", "Qwen2.5-0.5B"),
        ("Qwen2.5-0.5B/.", "Qwen2.5-0.5B"),
        ("Qwen2.5-0.5B-Q8_0.gguf", "Qwen2.5-0.5B-Q8_0"),
        ("Qwen2.5-0.5B.GGUF", "Qwen2.5-0.5B"),
        ("Qwen2.5-7B-Q8_0-00002-of-00003.gguf", "Qwen2.5-7B-Q8_0"),
        // A file may lack the ending, a folder may have it.
        ("Qwen2.5-0.5B-F16", "Qwen2.5-0.5B-F16"),
        ("x.gguf", "x.gguf"),
        ("runs/r-k3qf/checkpoints/step-001000", "r-k3qf-step-001000"),
        ("checkpoints-v1.5/step-1", "step-1"),
        (
            "models--Qwen--Qwen2.5-0.5B/snapshots/0123abc",
            "Qwen2.5-0.5B",
        ),
        ("models--gpt2/snapshots/0123abc", "gpt2"),
        ("datasets--x/snapshots/0123abc", "0123abc"),
    ];
    for (path, name) in names {
        assert_eq!(name_of(&dir.path().join(path)), name, "{path}");
    }
    assert!(!name_of(Path::new(".")).is_empty() && name_of(Path::new("/")) == "model");
}

#[test]
fn a_reward_model_writes_nothing() {
    let room = tempfile::tempdir().unwrap();
    let [folder, file] = both(room.path());
    assert!(writes(&folder) && writes(&file) && !writes(room.path()));
    let config = ModelConfig {
        head: crate::nn::HeadKind::Score,
        ..small().config().clone()
    };
    let scorer = Model::new(&config, 11, &candle_core::Device::Cpu).unwrap();
    fs::write(folder.join(hf::CONFIG), hf::config_json(&scorer, Some(7))).unwrap();
    assert!(!writes(&folder));
}

/// Folders and files of every family and of few bits, with adapters of every kind.
fn fixtures() -> Vec<PathBuf> {
    let oracle = Path::new("../../tests/oracle");
    let mut all = Vec::new();
    for room in ["families", "gguf", "packed", "peft"] {
        let entries = fs::read_dir(oracle.join(room)).unwrap().flatten();
        all.extend(entries.map(|entry| entry.path()));
    }
    all.extend(["peft_lm", "peft_reward"].map(|name| oracle.join(name)));
    all.retain(|path| kind(path).is_ok());
    all.sort();
    all
}

#[test]
fn a_model_read_by_parameter_has_the_bits_of_the_whole_one() {
    let (mut n, mut adapted) = (0, 0);
    for path in fixtures() {
        // Adapters whose base is named by a place of another machine.
        let Ok(source) = ModelSource::open(&path) else {
            continue;
        };
        let Ok(model) = source.load() else {
            assert!(ByParameter::open(&source).is_err(), "{}", path.display());
            continue;
        };
        let parts = ByParameter::open(&source).unwrap();
        for info in model.params().base() {
            let bits =
                |values: &[f32]| -> Vec<u32> { values.iter().map(|x| x.to_bits()).collect() };
            let whole = model
                .params()
                .read_weights(|all| bits(&all[info.offset..][..info.len]));
            let own = bits(&parts.read(info).unwrap());
            assert!(own == whole.unwrap(), "{}: {}", path.display(), info.name);
        }
        n += 1;
        adapted += usize::from(source.adapter().is_some());
    }
    assert!(n > 80 && adapted > 1, "{n} models, {adapted} with adapters");
}

#[test]
fn files_written_tensor_by_tensor_have_the_bytes_of_those_of_a_model() {
    let families = fixtures().into_iter();
    for path in families.filter(|path| path.to_string_lossy().contains("families")) {
        let source = ModelSource::open(&path).unwrap();
        let model = source.load().unwrap();
        for naming in [hf::Naming::Family, hf::Naming::Own] {
            let outgoing = hf::Outgoing::new(&model, naming, hf::Dtype::Bf16, 100_000);
            let mut numbers = Vec::new();
            for at in 0..outgoing.files().len() {
                let (mut whole, mut parts) = (Vec::new(), Vec::new());
                outgoing.write(at, &model, &mut whole).unwrap();
                let values = &mut |number: usize, places: &[std::ops::Range<usize>]| {
                    numbers.push(number);
                    let own = |weights: &[f32]| -> Vec<f32> {
                        let places = places.iter().map(|place| &weights[place.clone()]);
                        places.flatten().copied().collect()
                    };
                    Ok(model.params().read_weights(own).unwrap())
                };
                outgoing.write_each(at, values, &mut parts).unwrap();
                assert!(whole == parts, "{}: file {at}", path.display());
            }
            // Numbered as `places` has them, over all files.
            assert!(numbers.iter().copied().eq(0..numbers.len()));
            if naming == hf::Naming::Family {
                assert_eq!(numbers.len(), hf::places(&model).len());
            }
        }
    }
}
