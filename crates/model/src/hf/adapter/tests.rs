//! Adapters written and read, and what is refused.

use super::*;
use crate::nn::ModelConfig;
use crate::nn::adapter::{ByPattern, Lora};
use candle_core::Device;
use serde_json::Value;

fn adapted() -> Model {
    adapted_by(Lora::default())
}

fn adapted_by(lora: Lora) -> Model {
    let config = ModelConfig {
        n_layer: 2,
        n_head: 2,
        d_model: 8,
        seq_len: 8,
        init_std: 0.3,
        ..Default::default()
    };
    let mut model = Model::new(&config, 11, &Device::Cpu).unwrap();
    model.adapt(&AdapterConfig::Lora(lora)).unwrap();
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

/// Patterns of a spec become PEFT's, come back as the same sizes, and are written as the same file again.
#[test]
fn ranks_and_alphas_of_a_specs_patterns_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let patterns = |entries: &[(&str, f64)]| {
        let entries = entries.iter().map(|(name, x)| (name.to_string(), *x));
        entries.collect::<Vec<_>>()
    };
    let ranks = patterns(&[("h.0.*c_attn", 3.0), ("c_attn", 5.0), ("mlp.c_proj", 1.0)]);
    let ranks = ranks.into_iter().map(|(name, x)| (name, x as usize));
    let lora = Lora {
        rank_pattern: ByPattern::new(ranks.collect()),
        alpha_pattern: ByPattern::new(patterns(&[("c_fc", 4.0)])),
        ..Lora::default()
    };
    let model = adapted_by(lora.clone());
    write(&model, folder.path());
    let text = adapter_json(&model, None).unwrap();
    let config: Value = serde_json::from_str(&text).unwrap();
    let whole = |layer: usize| format!("transformer.h.{layer}.attn.c_attn");
    let ranks = json!({"mlp.c_proj": 1, whole(0): 3, whole(1): 5});
    assert_eq!(config["rank_pattern"], ranks);
    assert_eq!(config["alpha_pattern"], json!({"mlp.c_fc": 4.0}));
    let mut other = base(&model);
    Peft::open(folder.path())
        .unwrap()
        .attach(&mut other)
        .unwrap();
    assert_eq!(adapter_json(&other, None).unwrap(), text);
    let bits = |m: &Model| m.params().read_weights(<[f32]>::to_vec).unwrap();
    assert!(bits(&other) == bits(&model));
    // Scales are each module's own, in a merge too.
    let tokens: Vec<u32> = (0..8).collect();
    let logits = |m: &mut Model| -> Vec<f32> {
        let logits = m.logits(&tokens, 1, 8).unwrap();
        logits.flatten_all().unwrap().to_vec1().unwrap()
    };
    let (mut model, mut merged) = (model, base(&other));
    assert!(merge_adapter(folder.path(), &mut merged).unwrap());
    for (a, b) in logits(&mut merged).iter().zip(&logits(&mut model)) {
        assert!((a - b).abs() < 1e-5, "{a} {b}");
    }
    let unknown = Lora {
        rank_pattern: ByPattern::new(vec![("q_proj".into(), 4)]),
        ..Lora::default()
    };
    let mut fresh = base(&model);
    let error = fresh.adapt(&AdapterConfig::Lora(unknown)).unwrap_err();
    assert!(error.to_string().contains("`q_proj`"), "{error}");
}
