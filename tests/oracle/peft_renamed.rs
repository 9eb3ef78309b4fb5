//! PEFT adapters of classes that have other names for our matrices, or several of ours in one: against PEFT's logits, and written
//! back under PEFT's names. `tests/oracle/peft_renamed_oracle.py` made the folders.

use super::compare;
use candle_core::Device;
use llmtui::hf::{self, Dtype, Peft};
use llmtui::nn::Model;
use std::path::{Path, PathBuf};

fn oracle(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/oracle")
        .join(name)
}

fn values(path: &Path, name: &str) -> Vec<f32> {
    let tensors = candle_core::safetensors::load(path, &Device::Cpu).unwrap();
    tensors[name].flatten_all().unwrap().to_vec1().unwrap()
}

fn assert_pefts_logits(name: &str, model: &mut Model) {
    let expected = |folder: &str| oracle(folder).join(name).join("expected.safetensors");
    let ids = values(&expected("families"), "ids");
    let ids: Vec<u32> = ids.iter().map(|id| *id as u32).collect();
    let logits = model.logits(&ids, 2, ids.len() / 2).unwrap();
    let logits: Vec<f32> = logits.flatten_all().unwrap().to_vec1().unwrap();
    let exact = values(&expected("peft_renamed"), "logits");
    compare("logits under the adapter", &logits, &exact);
}

#[test]
fn adapters_of_renamed_matrices_are_read_and_written_under_the_names_of_their_class() {
    for name in [
        "starcoder2",
        "lfm2",
        "qwen3_5",
        "qwen2_moe_dense",
        "lfm2_moe",
        "qwen3_next",
        "deepseek_v2",
        "deepseek_v3",
        "granite_hybrid",
        "granite_hybrid_dense",
        "bamba",
    ] {
        check(name);
    }
}

fn check(name: &str) {
    let base = oracle("families").join(name);
    let folder = oracle("peft_renamed").join(name);
    let mut merged = hf::load(&base).unwrap();
    let theirs = Peft::find(&folder).unwrap();
    theirs.merge_into(&mut merged, 1.0).unwrap();
    assert_pefts_logits(name, &mut merged);
    let mut model = hf::load(&base).unwrap();
    theirs.attach(&mut model).unwrap();
    assert_pefts_logits(name, &mut model);
    // As a checkpoint keeps it, next to the config.json of its base.
    let own = tempfile::tempdir().unwrap();
    let config = hf::adapter_json(&model, None).unwrap();
    std::fs::write(own.path().join(hf::ADAPTER_CONFIG), config).unwrap();
    let mut file = std::fs::File::create(own.path().join(hf::ADAPTER_WEIGHTS)).unwrap();
    hf::write_adapter(&model, &mut file).unwrap();
    std::fs::copy(base.join("config.json"), own.path().join("config.json")).unwrap();
    let ours = Peft::find(own.path()).unwrap();
    let joins = ours.joins(own.path()).unwrap();
    // And as it is exported.
    let out = tempfile::tempdir().unwrap();
    let config = ours.config_json(None, None, &joins).unwrap();
    std::fs::write(out.path().join(hf::ADAPTER_CONFIG), config).unwrap();
    let mut file = std::fs::File::create(out.path().join(hf::ADAPTER_WEIGHTS)).unwrap();
    ours.write(Dtype::F32, None, &joins, &mut file).unwrap();
    let back = Peft::find(out.path()).unwrap();
    back.check().unwrap();
    assert_eq!(back.modules(), theirs.modules());
    let tensors = |folder: &Path| {
        let path = folder.join(hf::ADAPTER_WEIGHTS);
        candle_core::safetensors::load(path, &Device::Cpu).unwrap()
    };
    let (written, exact) = (tensors(out.path()), tensors(&folder));
    assert_eq!(written.len(), exact.len());
    for (name, tensor) in exact {
        let flat = |tensor: &candle_core::Tensor| -> Vec<f32> {
            tensor.flatten_all().unwrap().to_vec1().unwrap()
        };
        assert_eq!(flat(&written[&name]), flat(&tensor), "{name}");
    }
}
