//! Adapters written and read, and what is refused.

use super::*;
use crate::nn::ModelConfig;
use crate::nn::adapter::Lora;
use candle_core::Device;
use serde_json::Value;

fn adapted() -> Model {
    let config = ModelConfig {
        n_layer: 2,
        n_head: 2,
        d_model: 8,
        seq_len: 8,
        init_std: 0.3,
        ..Default::default()
    };
    let mut model = Model::new(&config, 11, &Device::Cpu).unwrap();
    model.adapt(&AdapterConfig::Lora(Lora::default())).unwrap();
    model.init(3).unwrap();
    let fill = |weights: &mut [f32]| {
        for (i, w) in weights.iter_mut().enumerate() {
            *w += 0.05 * (i as f32).sin();
        }
    };
    model.params_mut().write_weights(fill).unwrap();
    model
}

fn write(model: &Model, folder: &Path) {
    std::fs::write(
        folder.join(ADAPTER_CONFIG),
        adapter_json(model, None).unwrap(),
    )
    .unwrap();
    let mut file = std::fs::File::create(folder.join(ADAPTER_WEIGHTS)).unwrap();
    write_adapter(model, &mut file).unwrap();
}

fn base(model: &Model) -> Model {
    let mut base = Model::new(model.config(), 11, &Device::Cpu).unwrap();
    let n = base.n_params();
    let values = model.params().read_weights(|w| w[..n].to_vec()).unwrap();
    let copy = |weights: &mut [f32]| weights.copy_from_slice(&values);
    base.params_mut().write_weights(copy).unwrap();
    base
}

#[test]
fn adapters_come_back_bit_for_bit_and_under_pefts_names() {
    let folder = tempfile::tempdir().unwrap();
    let model = adapted();
    write(&model, folder.path());
    let file = TensorFile::open(&folder.path().join(ADAPTER_WEIGHTS)).unwrap();
    let name = "base_model.model.transformer.h.1.attn.c_attn.lora_B.weight";
    assert_eq!(file.shape(name), Some(&[24, 8][..]));
    let config: Value = serde_json::from_str(&adapter_json(&model, None).unwrap()).unwrap();
    let modules = ["attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"];
    assert_eq!(config["target_modules"], json!(modules));
    let mut other = adapted();
    other.init_adapters(9).unwrap();
    read_adapter(folder.path(), &mut other).unwrap();
    let bits = |m: &Model| m.params().read_weights(<[f32]>::to_vec).unwrap();
    assert!(bits(&other) == bits(&model));
}

#[test]
fn merged_weights_say_what_base_and_adapters_say() {
    let folder = tempfile::tempdir().unwrap();
    let mut model = adapted();
    write(&model, folder.path());
    let mut merged = base(&model);
    assert!(merge_adapter(folder.path(), &mut merged).unwrap());
    let tokens: Vec<u32> = (0..8).collect();
    let logits = |m: &mut Model| -> Vec<f32> {
        let logits = m.logits(&tokens, 1, 8).unwrap();
        logits.flatten_all().unwrap().to_vec1().unwrap()
    };
    let exact = logits(&mut model);
    for (a, b) in logits(&mut merged).iter().zip(&exact) {
        assert!((a - b).abs() < 1e-5, "{a} {b}");
    }
    model.merge_adapters().unwrap();
    assert_eq!(model.n_params(), merged.n_params());
    for (a, b) in logits(&mut model).iter().zip(&exact) {
        assert!((a - b).abs() < 1e-5, "{a} {b}");
    }
}

#[test]
fn what_is_not_read_is_refused_by_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let model = adapted();
    write(&model, folder.path());
    let path = folder.path().join(ADAPTER_CONFIG);
    for (key, value) in [
        ("bias", json!("all")),
        ("rank_pattern", json!({"c_attn": 4})),
        ("target_modules", json!(["c_attn"])),
        ("peft_type", json!("IA3")),
        ("r", json!(0)),
    ] {
        let mut config: Value = serde_json::from_str(&adapter_json(&model, None).unwrap()).unwrap();
        config[key] = value;
        std::fs::write(&path, config.to_string()).unwrap();
        let error = merge_adapter(folder.path(), &mut base(&model)).unwrap_err();
        assert!(error.to_string().contains(key), "{error}");
    }
    let empty = tempfile::tempdir().unwrap();
    assert!(!merge_adapter(empty.path(), &mut base(&model)).unwrap());
}
