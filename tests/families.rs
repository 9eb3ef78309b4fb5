//! Tiny random models of every family as transformers writes them: their logits match ours, and they are written back
//! tensor for tensor. tests/oracle/families_oracle.py made them.

#![expect(clippy::unwrap_used, reason = "a test without its files has failed")]

use candle_core::Device;
use llmtui::hf::safetensors::TensorFile;
use llmtui::hf::{self, Dtype, Naming, Outgoing, Weights};
use llmtui::nn::{Backend, Model};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Folder, dtype of the weights, and family.
const FOLDERS: [(&str, Dtype, &str); 52] = [
    ("gpt2", Dtype::F32, "gpt2"),
    ("gpt_neo", Dtype::F32, "gpt_neo"),
    ("gpt_neox", Dtype::F32, "gpt_neox"),
    ("gpt_neox_sequential", Dtype::F32, "gpt_neox"),
    ("llama", Dtype::F32, "llama"),
    ("llama3", Dtype::Bf16, "llama"),
    ("llama_linear", Dtype::F32, "llama"),
    ("llama_yarn", Dtype::F32, "llama"),
    ("smollm", Dtype::F16, "llama"),
    ("smollm3", Dtype::F32, "smollm3"),
    ("smollm3_window", Dtype::F32, "smollm3"),
    ("granite", Dtype::F32, "granite"),
    ("mistral", Dtype::F32, "mistral"),
    ("qwen2", Dtype::F32, "qwen2"),
    ("qwen3", Dtype::F32, "qwen3"),
    ("gemma", Dtype::F32, "gemma"),
    ("gemma2", Dtype::F32, "gemma2"),
    ("gemma3", Dtype::F32, "gemma3_text"),
    ("olmo2", Dtype::F32, "olmo2"),
    ("olmo3", Dtype::F32, "olmo3"),
    ("phi3", Dtype::F32, "phi3"),
    // Mistral computes the same; the family that was read is written.
    ("phi3_whole", Dtype::F32, "phi3"),
    ("phi3_long", Dtype::F32, "phi3"),
    ("starcoder2", Dtype::F32, "starcoder2"),
    ("mixtral", Dtype::F32, "mixtral"),
    ("qwen3_moe", Dtype::F32, "qwen3_moe"),
    ("stablelm", Dtype::F32, "stablelm"),
    ("lfm2", Dtype::F32, "lfm2"),
    ("lfm2_bias", Dtype::F32, "lfm2"),
    ("qwen3_5", Dtype::F32, "qwen3_5_text"),
    // Of a model with vision the text model is read, and written alone.
    ("qwen3_5_vision", Dtype::Bf16, "qwen3_5_text"),
    ("qwen2_moe", Dtype::F32, "qwen2_moe"),
    ("qwen2_moe_dense", Dtype::F32, "qwen2_moe"),
    ("qwen3_next", Dtype::F32, "qwen3_next"),
    ("qwen3_5_moe", Dtype::F32, "qwen3_5_moe_text"),
    // Of this one experts are read all of a block together, and written one by one.
    ("qwen3_5_moe_vision", Dtype::Bf16, "qwen3_5_moe_text"),
    ("olmoe", Dtype::F32, "olmoe"),
    ("granitemoe", Dtype::F32, "granitemoe"),
    ("lfm2_moe", Dtype::F32, "lfm2_moe"),
    ("lfm2_moe_scaled", Dtype::F32, "lfm2_moe"),
    ("deepseek_v2", Dtype::F32, "deepseek_v2"),
    ("deepseek_v2_groups", Dtype::F32, "deepseek_v2"),
    ("deepseek_v3", Dtype::F32, "deepseek_v3"),
    ("deepseek_v3_one_group", Dtype::Bf16, "deepseek_v3"),
    ("glm4_moe_lite", Dtype::F32, "glm4_moe_lite"),
    ("granite_hybrid", Dtype::F32, "granitemoehybrid"),
    ("granite_hybrid_dense", Dtype::F32, "granitemoehybrid"),
    ("granite_hybrid_attention", Dtype::Bf16, "granitemoehybrid"),
    ("granite_shared", Dtype::F32, "granitemoeshared"),
    ("bamba", Dtype::F32, "bamba"),
    ("gpt_oss", Dtype::F32, "gpt_oss"),
    ("gpt_oss_published", Dtype::Bf16, "gpt_oss"),
];

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/oracle/families")
        .join(name)
}

/// The largest difference between our logits and theirs.
fn difference(model: &mut Model, folder: &Path) -> f32 {
    let expected = TensorFile::open(&folder.join("expected.safetensors")).unwrap();
    let shape = expected.shape("ids").unwrap().to_vec();
    let ids = expected.read("ids", &shape).unwrap();
    let ids: Vec<u32> = ids.iter().map(|id| *id as u32).collect();
    let logits = model.logits(&ids, shape[0], shape[1]).unwrap();
    let ours: Vec<f32> = logits.flatten_all().unwrap().to_vec1().unwrap();
    let vocab_size = model.shape().vocab_size;
    let theirs = expected
        .read("logits", &[shape[0], shape[1], vocab_size])
        .unwrap();
    let differences = ours.iter().zip(&theirs).map(|(a, b)| (a - b).abs());
    assert_eq!(ours.len(), theirs.len());
    differences.fold(
        0.0,
        |most, d| if d.is_nan() { f32::NAN } else { most.max(d) },
    )
}

#[test]
fn logits_are_those_of_transformers_on_both_backends() {
    let mut faults = Vec::new();
    for (name, _, _) in FOLDERS {
        let folder = folder(name);
        let mut model = match hf::load(&folder) {
            Ok(model) => model,
            Err(error) => {
                faults.push(format!("{name}: {error}"));
                continue;
            }
        };
        let fused = difference(&mut model, &folder);
        let (config, cpu) = (hf::read_config(&folder).unwrap(), Device::Cpu);
        let mut model = Model::with_backend(&config, 0, &cpu, Backend::Composite).unwrap();
        hf::read_weights(&folder, &mut model).unwrap();
        let composite = difference(&mut model, &folder);
        println!("{name:14} fused {fused:.1e}, composite {composite:.1e}");
        if !(fused <= 1e-4 && composite <= 1e-4) {
            faults.push(format!("{name}: off by {fused:e} and {composite:e}"));
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// Longer than the windows of those that have one.
#[test]
fn cached_decode_gives_the_logits_of_a_whole_text() {
    for (name, _, _) in FOLDERS {
        let folder = folder(name);
        let expected = TensorFile::open(&folder.join("expected.safetensors")).unwrap();
        let shape = expected.shape("ids").unwrap().to_vec();
        let ids = expected.read("ids", &shape).unwrap();
        let ids: Vec<u32> = ids[..shape[1]].iter().map(|id| *id as u32).collect();
        let mut model = hf::load(&folder).unwrap();
        let whole = model.logits(&ids, 1, ids.len()).unwrap();
        let whole: Vec<Vec<f32>> = whole.squeeze(0).unwrap().to_vec2().unwrap();
        let mut rows = Vec::new();
        model
            .decode(|append_tokens| {
                for (at, piece) in [(4, &ids[..5]), (5, &ids[5..6]), (13, &ids[6..14])] {
                    let mut logits = Vec::new();
                    append_tokens(piece, &mut logits)?;
                    rows.push((at, logits));
                }
                Ok(())
            })
            .unwrap();
        for (at, row) in rows {
            let apart = row.iter().zip(&whole[at]).map(|(a, b)| (a - b).abs());
            let most = apart.fold(0.0, f32::max);
            assert!(most <= 1e-4, "{name}, token {at}: {most}");
        }
    }
}

/// Every tensor of a text model in a folder: name, by itself, shape and bits.
fn tensors(folder: &Path) -> BTreeMap<String, (Vec<usize>, Vec<u32>)> {
    let weights = Weights::open(folder).unwrap();
    let names: Vec<String> = weights.names().map(String::from).collect();
    let read = |name: String| {
        let shape = weights.shape(&name).unwrap().to_vec();
        let values = weights.read(&name, &shape).unwrap();
        let name = name.replace("model.language_model.", "model.");
        (name, (shape, values.iter().map(|x| x.to_bits()).collect()))
    };
    let is_text = |name: &String| !name.starts_with("model.visual.") && !name.starts_with("mtp.");
    let all = names.into_iter().filter(is_text).map(read);
    all.flat_map(|(name, tensor)| one_by_one(name, tensor))
        .collect()
}

type Tensor = (Vec<usize>, Vec<u32>);

/// A tensor of all experts of a block as those of each: (experts, rows, cols), the rows of gate projections before those of up
/// projections.
fn one_by_one(name: String, (shape, bits): Tensor) -> Vec<(String, Tensor)> {
    let Some((stem, part)) = name.split_once(".experts.") else {
        return vec![(name, (shape, bits))];
    };
    let parts: &[&str] = match part {
        "gate_up_proj" => &["gate_proj", "up_proj"],
        "down_proj" => &["down_proj"],
        _ => return vec![(name, (shape, bits))],
    };
    let (rows, cols) = (shape[1] / parts.len(), shape[2]);
    let matrices = bits.chunks_exact(rows * cols).enumerate();
    matrices
        .map(|(at, bits)| {
            let (expert, part) = (at / parts.len(), parts[at % parts.len()]);
            let name = format!("{stem}.experts.{expert}.{part}.weight");
            (name, (vec![rows, cols], bits.to_vec()))
        })
        .collect()
}

fn value_of(folder: &Path) -> Value {
    serde_json::from_slice(&fs::read(folder.join(hf::CONFIG)).unwrap()).unwrap()
}

fn write(model: &Model, folder: &Path, naming: Naming, dtype: Dtype, max_bytes: u64) -> usize {
    let ids = hf::TokenIds::default();
    let config = hf::config_json_for(model, &ids, dtype, naming);
    fs::write(folder.join(hf::CONFIG), config).unwrap();
    let outgoing = Outgoing::new(model, naming, dtype, max_bytes);
    let files = outgoing.files();
    for (at, name) in files.iter().enumerate() {
        let mut out = File::create(folder.join(name)).unwrap();
        outgoing.write(at, model, &mut out).unwrap();
    }
    if let Some(index) = outgoing.index_json() {
        fs::write(folder.join(hf::INDEX), index).unwrap();
    }
    files.len()
}

/// Writes every model for the script, into target/tmp/families.
#[test]
#[ignore = "the first half of tests/oracle/families_back.py"]
fn write_folders() {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("families");
    for (name, _, _) in FOLDERS {
        let model = hf::load(&folder(name)).unwrap();
        let to = root.join(name);
        fs::create_dir_all(&to).unwrap();
        write(&model, &to, Naming::Family, Dtype::F32, u64::MAX);
    }
    println!("{}", root.display());
}

#[test]
fn models_round_trip_tensor_for_tensor_in_one_file_and_in_shards() {
    for (name, dtype, family) in FOLDERS {
        let from = folder(name);
        let model = hf::load(&from).unwrap();
        let wanted = tensors(&from);
        for (max_bytes, several) in [(u64::MAX, false), (4000, true)] {
            let to = tempfile::tempdir().unwrap();
            let files = write(&model, to.path(), Naming::Family, dtype, max_bytes);
            assert_eq!(files > 1, several, "{name}");
            assert!(tensors(to.path()) == wanted, "{name}: other tensors");
            let off = difference(&mut hf::load(to.path()).unwrap(), &from);
            assert!(off <= 1e-4, "{name}: {off}");
            let (theirs, ours) = (value_of(&from), value_of(to.path()));
            let theirs = theirs.get("text_config").unwrap_or(&theirs);
            assert_eq!(ours["model_type"], family, "{name}");
            let key = "router_aux_loss_coef";
            assert_eq!(theirs[key], ours[key], "{name}");
        }
    }
}

#[test]
fn our_own_format_and_their_keys_alone_describe_the_same_model() {
    for (name, _, _) in FOLDERS {
        let from = folder(name);
        let model = hf::load(&from).unwrap();
        let bits = |model: &Model| {
            let read = |weights: &[f32]| weights.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            model.params().read_weights(read).unwrap()
        };
        let own = tempfile::tempdir().unwrap();
        write(&model, own.path(), Naming::Own, Dtype::F32, u64::MAX);
        let back = hf::load(own.path()).unwrap();
        assert_eq!(back.config(), model.config(), "{name}");
        assert!(bits(&back) == bits(&model), "{name}");
        // As another program would write the config: without our entry.
        let theirs = tempfile::tempdir().unwrap();
        write(&model, theirs.path(), Naming::Family, Dtype::F32, u64::MAX);
        let path = theirs.path().join(hf::CONFIG);
        let mut value: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        value.as_object_mut().unwrap().remove("llmtui");
        fs::write(&path, value.to_string()).unwrap();
        let mut back = hf::load(theirs.path()).unwrap();
        assert!(bits(&back) == bits(&model), "{name}");
        let off = difference(&mut back, &from);
        assert!(off <= 1e-4, "{name}: {off}");
    }
}

#[test]
fn a_model_of_another_family_is_reported_with_file_and_tensor() {
    let fault = |config: &str, weights: &str| {
        let dir = tempfile::tempdir().unwrap();
        let copy = |from: &str, name: &str| {
            fs::copy(folder(from).join(name), dir.path().join(name)).unwrap();
        };
        copy(config, hf::CONFIG);
        copy(weights, hf::WEIGHTS);
        hf::load(dir.path()).err().unwrap().to_string()
    };
    let missing = fault("llama_yarn", "qwen2");
    assert!(
        missing.contains("model.safetensors") && missing.contains("`lm_head.weight` is missing"),
        "{missing}"
    );
    let biases = fault("llama_yarn", "llama_linear");
    assert!(
        biases.contains("does not belong") && biases.contains("bias"),
        "{biases}"
    );
    let shape = fault("llama3", "llama_yarn");
    assert!(
        shape.contains("[32, 16]") && shape.contains("q_proj"),
        "{shape}"
    );
    let names = fault("gpt2", "llama_yarn");
    assert!(names.contains("transformer.wte.weight"), "{names}");
}
