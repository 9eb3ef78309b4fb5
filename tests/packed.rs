//! Tiny models in FP8 and MXFP4: their tensors are those that transformers reads, bit for bit, and so are logits.
//! tests/oracle/packed_oracle.py made them.

#![expect(clippy::unwrap_used, reason = "a test without its files has failed")]

use llmtui::hf::safetensors::TensorFile;
use llmtui::hf::{self, Weights};
use llmtui::llama_cpp::GgufModel;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders, and how many of their tensors are in few bits.
const FOLDERS: [(&str, usize); 4] = [
    ("qwen3_fp8", 13),
    ("llama_fp8_rows", 13),
    ("llama_fp8_static", 13),
    ("gpt_oss_mxfp4", 4),
];

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/oracle/packed")
        .join(name)
}

fn expected(name: &str) -> TensorFile {
    TensorFile::open(&folder(name).join("expected.safetensors")).unwrap()
}

#[test]
fn packed_tensors_are_those_of_transformers_bit_for_bit() {
    for (name, count) in FOLDERS {
        let (expected, weights) = (expected(name), Weights::open(&folder(name)).unwrap());
        let packed: Vec<&str> = expected
            .names()
            .filter(|tensor| !["ids", "logits"].contains(tensor))
            .collect();
        assert_eq!(packed.len(), count, "{name}");
        for tensor in packed {
            let shape = expected.shape(tensor).unwrap();
            let theirs = expected.read(tensor, shape).unwrap();
            let ours = weights.read(tensor, shape).unwrap();
            let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert!(bits(&ours) == bits(&theirs), "{name}: {tensor}");
            // A part in the middle of blocks.
            let (first, end) = (ours.len() / 3 + 1, ours.len() - 5);
            let mut part = vec![9.0; end - first];
            weights.read_part(tensor, shape, first, &mut part).unwrap();
            assert!(bits(&part) == bits(&ours[first..end]), "{name}: {tensor}");
        }
    }
}

#[test]
fn logits_are_those_of_transformers() {
    for (name, _) in FOLDERS {
        let expected = expected(name);
        let shape = expected.shape("ids").unwrap().to_vec();
        let ids = expected.read("ids", &shape).unwrap();
        let ids: Vec<u32> = ids.iter().map(|id| *id as u32).collect();
        let mut model = hf::load(&folder(name)).unwrap();
        let logits = model.logits(&ids, shape[0], shape[1]).unwrap();
        let ours: Vec<f32> = logits.flatten_all().unwrap().to_vec1().unwrap();
        let shape = expected.shape("logits").unwrap().to_vec();
        let theirs = expected.read("logits", &shape).unwrap();
        assert_eq!(ours.len(), theirs.len());
        let most = ours.iter().zip(&theirs).map(|(a, b)| (a - b).abs());
        let most = most.fold(0.0, f32::max);
        println!("{name:18} {most:.1e}");
        assert!(most < 1e-4, "{name}: off by {most:e}");
    }
}

/// The same model as the `gguf` package writes it: tests/oracle/gguf_gpt_oss.py. Its experts stay in MXFP4, or become f32.
#[test]
fn a_gguf_file_in_mxfp4_has_the_logits_of_its_folder() {
    let path = folder("../gguf/gpt_oss_mxfp4.gguf");
    let file = GgufModel::open(&path).unwrap();
    assert!(file.formats().iter().any(|(name, _)| *name == "MXFP4"));
    let expected = expected("gpt_oss_mxfp4");
    let shape = expected.shape("ids").unwrap().to_vec();
    let ids = expected.read("ids", &shape).unwrap();
    let ids: Vec<u32> = ids.iter().map(|id| *id as u32).collect();
    let shape_of_logits = expected.shape("logits").unwrap().to_vec();
    let theirs = expected.read("logits", &shape_of_logits).unwrap();
    let spread = theirs.iter().map(|x| x * x).sum::<f32>() / theirs.len() as f32;
    // Matmuls with blocks round their other input to eight bits.
    for (mut model, limit) in [
        (file.dequantized().unwrap(), 1e-5),
        (file.quantized().unwrap(), 0.08),
    ] {
        let logits = model.logits(&ids, shape[0], shape[1]).unwrap();
        let ours: Vec<f32> = logits.flatten_all().unwrap().to_vec1().unwrap();
        let off = ours.iter().zip(&theirs).map(|(a, b)| (a - b).powi(2));
        let off = (off.sum::<f32>() / theirs.len() as f32 / spread).sqrt();
        println!("off by {off:.1e}");
        assert!(off < limit, "off by {off:e}");
    }
}

/// A folder with its config.json changed.
fn changed(name: &str, change: impl Fn(&mut serde_json::Value)) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for file in fs::read_dir(folder(name)).unwrap() {
        let path = file.unwrap().path();
        fs::copy(&path, dir.path().join(path.file_name().unwrap())).unwrap();
    }
    let path = dir.path().join("config.json");
    let mut config = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    change(&mut config);
    fs::write(&path, config.to_string()).unwrap();
    dir
}

/// Of every folder that is refused the reason says what it is about.
#[test]
fn other_quantizations_and_scales_that_do_not_fit_are_refused() {
    let refused = |name: &str, change: &dyn Fn(&mut serde_json::Value), part: &str| {
        let loaded = hf::load(changed(name, change).path());
        let error = loaded.map(|_| ()).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    };
    let key = "quantization_config";
    refused(
        "qwen3_fp8",
        &|c| c[key]["quant_method"] = "awq".into(),
        "quant_method `awq`",
    );
    refused(
        "qwen3_fp8",
        &|c| c[key]["fmt"] = "e5m2".into(),
        "fmt `e5m2`",
    );
    refused(
        "qwen3_fp8",
        &|c| c[key]["weight_block_size"] = 16.into(),
        "weight_block_size",
    );
    // Other blocks than those of the scales.
    let other = serde_json::json!([32, 8]);
    refused(
        "qwen3_fp8",
        &|c| c[key]["weight_block_size"] = other.clone(),
        "weight_scale_inv",
    );
    // Numbers of eight bits that nothing describes.
    refused(
        "qwen3_fp8",
        &|c| c[key] = serde_json::Value::Null,
        "F8_E4M3 without scales",
    );
    refused(
        "llama_fp8_rows",
        &|c| c[key]["format"] = "pack-quantized".into(),
        "pack-quantized",
    );
    let weights = "/quantization_config/config_groups/group_0/weights";
    let bits = |c: &mut serde_json::Value| c.pointer_mut(weights).unwrap()["num_bits"] = 4.into();
    refused("llama_fp8_rows", &bits, "8 bits");
    refused(
        "llama_fp8_rows",
        &|c| c[key]["transform_config"] = serde_json::json!({"a": 1}),
        "transform_config",
    );
    refused(
        "llama_fp8_rows",
        &|c| c[key]["quant_method"] = "mxfp4".into(),
        "gpt_oss alone",
    );
    // Two tensors of one that nothing says are one.
    refused(
        "gpt_oss_mxfp4",
        &|c| c[key] = serde_json::Value::Null,
        "no quantization_config",
    );
    refused(
        "gpt_oss_mxfp4",
        &|c| c["intermediate_size"] = 64.into(),
        "gate_up_proj",
    );
}

/// The second one replaced the first, and the weights were others.
#[test]
fn a_tensor_with_two_scales_is_refused() {
    let dir = changed("qwen3_fp8", |_| ());
    let path = dir.path().join("model.safetensors");
    let stored = fs::read(&path).unwrap();
    let (size, rest) = stored.split_first_chunk().unwrap();
    let (header, numbers) = rest.split_at(u64::from_le_bytes(*size) as usize);
    let mut header: serde_json::Value = serde_json::from_slice(header).unwrap();
    let ours = "model.layers.0.mlp.down_proj.weight_scale";
    header[ours] = header[format!("{ours}_inv")].clone();
    header[ours]["data_offsets"] = serde_json::json!([numbers.len(), numbers.len() + 48]);
    let header = header.to_string();
    let size = (header.len() as u64).to_le_bytes();
    let whole = [&size, header.as_bytes(), numbers, &[0; 48]].concat();
    fs::write(&path, whole).unwrap();
    let error = hf::load(dir.path()).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains(ours), "{error}");
}
