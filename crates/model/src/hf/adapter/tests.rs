//! Adapters written and read, and what is rejected.

use super::*;
use crate::nn::ModelConfig;
use crate::nn::adapter::{ByPattern, Lora, Targets};
use candle_core::Device;
use serde_json::Value;

fn adapted() -> Model {
    adapted_by(Lora::default())
}

fn adapted_by(lora: Lora) -> Model {
    adapted_on(&gpt2(), lora)
}

fn gpt2() -> ModelConfig {
    ModelConfig {
        n_layer: 2,
        n_head: 2,
        d_model: 8,
        seq_len: 8,
        init_std: 0.3,
        ..Default::default()
    }
}

fn adapted_on(config: &ModelConfig, lora: Lora) -> Model {
    let mut model = Model::new(config, 11, &Device::Cpu).unwrap();
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
fn adapters_round_trip_bit_for_bit_under_pefts_names() {
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

/// With separate projections and a gate.
fn llama() -> ModelConfig {
    let says = json!({
        "n_layer": 2, "n_head": 2, "d_model": 8, "seq_len": 8, "init_std": 0.3, "n_kv_head": 1,
        "position": {"rope": {}}, "norm": {"rmsnorm": {}}, "mlp": {"swiglu": {}},
    });
    serde_json::from_value(says).unwrap()
}

/// With scales, magnitudes and per-module sizes, a merge adds exactly what the attached adapters compute.
#[test]
fn merged_weights_equal_base_plus_adapters() {
    let plain = Lora {
        rank: 3,
        alpha: 6.0,
        targets: Targets::All,
        ..Lora::default()
    };
    let dora = Lora {
        dora: true,
        rslora: true,
        ..plain.clone()
    };
    let own = |lora: &Lora| {
        let own = [
            ("model.layers.0.self_attn.q_proj", 5, 2.0),
            ("model.layers.0.self_attn.v_proj", 1, 7.0),
            ("model.layers.1.mlp.up_proj", 2, 1.0),
        ];
        let own = own.map(|(name, rank, alpha)| (name.to_string(), RankAlpha { rank, alpha }));
        Lora {
            modules: own.into_iter().collect(),
            ..lora.clone()
        }
    };
    let tokens: Vec<u32> = (0..8).collect();
    let logits = |m: &mut Model| -> Vec<f32> {
        let logits = m.logits(&tokens, 1, 8).unwrap();
        logits.flatten_all().unwrap().to_vec1().unwrap()
    };
    for (config, lora) in [
        (gpt2(), Lora::default()),
        (gpt2(), dora.clone()),
        (llama(), plain.clone()),
        (llama(), own(&plain)),
        (llama(), own(&dora)),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut model = adapted_on(&config, lora);
        write(&model, folder.path());
        let mut merged = base(&model);
        let without = logits(&mut merged);
        assert!(merge_adapter(folder.path(), &mut merged).unwrap());
        let (exact, merged) = (logits(&mut model), logits(&mut merged));
        assert_ne!(exact, without);
        for (a, b) in merged.iter().zip(&exact) {
            assert!((a - b).abs() < 1e-5, "{a} {b}");
        }
    }
}

#[test]
fn unsupported_keys_are_rejected_by_name() {
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

/// A spec's patterns become PEFT's, are read back as the same sizes, and rewritten as the same file.
#[test]
fn ranks_and_alphas_of_a_specs_patterns_round_trip() {
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
    // Scales are per module, in a merge too.
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

/// The same adapter with additional tensors.
fn with_tensors(from: &Path, to: &Path, more: &[(&str, &[usize], Vec<f32>)]) {
    std::fs::copy(from.join(ADAPTER_CONFIG), to.join(ADAPTER_CONFIG)).unwrap();
    let file = TensorFile::open(&from.join(ADAPTER_WEIGHTS)).unwrap();
    let more = more.iter();
    let more = more.map(|(name, shape, values)| {
        let name = format!("{PREFIX}{name}");
        (name, shape.to_vec(), values.clone())
    });
    let all: Vec<_> = tensors_of(&file).into_iter().chain(more).collect();
    put_tensors(to, &all);
}

/// Name, shape and values.
type Tensor = (String, Vec<usize>, Vec<f32>);

fn tensors_of(file: &TensorFile) -> Vec<Tensor> {
    let all = file.names().map(|name| {
        let shape = file.shape(name).unwrap();
        let values = file.read(name, shape).unwrap();
        (name.to_string(), shape.to_vec(), values)
    });
    all.collect()
}

fn put_tensors(to: &Path, all: &[Tensor]) {
    let heads: Vec<TensorHead> = all
        .iter()
        .map(|(name, shape, _)| TensorHead::f32(name.as_str(), shape.clone()))
        .collect();
    let mut out = std::fs::File::create(to.join(ADAPTER_WEIGHTS)).unwrap();
    let put = &mut |sink: &mut super::super::safetensors::TensorSink| {
        all.iter().try_for_each(|(_, _, values)| sink.put(values))
    };
    super::super::safetensors::write_to(&mut out, &heads, put).unwrap();
}

/// The head of a tied base: PEFT has a copy of it, with or without the embeddings.
#[test]
fn a_separate_head_on_a_tied_base_is_rejected_unless_it_equals_the_table() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let model = adapted();
    write(&model, from.path());
    let merged = |tensors: &[(&str, &[usize], Vec<f32>)]| {
        with_tensors(from.path(), to.path(), tensors);
        let merged = merge_adapter(to.path(), &mut base(&model));
        merged.err().map(|e| e.to_string()).unwrap_or_default()
    };
    let shape = &[11, 8][..];
    let table = |x: f32| vec![x; 88];
    let (head, embeddings) = ("lm_head.weight", "transformer.wte.weight");
    for tensors in [
        &[(head, shape, table(1.0))][..],
        &[(head, shape, table(1.0)), (embeddings, shape, table(2.0))],
    ] {
        let error = merged(tensors);
        assert!(
            error.contains("lm_head") && error.contains("differ") && error.contains("PEFT first"),
            "{error}"
        );
    }
    let same = [(head, shape, table(1.0)), (embeddings, shape, table(1.0))];
    assert_eq!(merged(&same), "");
}

/// PEFT's names on the whole of a model with vision, of which the text model is a part.
#[test]
fn tables_saved_beside_a_vision_tower_are_those_of_the_text_model() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let lora = Lora {
        modules_to_save: vec![Whole::Embeddings],
        ..Lora::default()
    };
    let model = adapted_on(&llama(), lora);
    write(&model, from.path());
    std::fs::copy(
        from.path().join(ADAPTER_CONFIG),
        to.path().join(ADAPTER_CONFIG),
    )
    .unwrap();
    let file = TensorFile::open(&from.path().join(ADAPTER_WEIGHTS)).unwrap();
    let mut all = tensors_of(&file);
    for (name, _, _) in &mut all {
        *name = name.replace(".model.model.", ".model.model.language_model.");
    }
    let table = "base_model.model.model.language_model.embed_tokens.weight";
    assert!(all.iter().any(|(name, _, _)| name == table));
    put_tensors(to.path(), &all);
    let merged = |folder: &Path| {
        let mut model = base(&model);
        merge_adapter(folder, &mut model).unwrap();
        model.params().read_weights(<[f32]>::to_vec).unwrap()
    };
    assert!(merged(to.path()) == merged(from.path()));
    assert_eq!(Peft::open(to.path()).unwrap().vocab_size(8), Some(11));
}

/// PEFT trains only the embeddings and keeps the base's head: a different model than one with a single table.
#[test]
fn embeddings_alone_on_a_tied_base_are_rejected_unless_they_stay_tied() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let model = adapted();
    write(&model, from.path());
    let embeddings = ("transformer.wte.weight", &[11, 8][..], vec![1.0; 88]);
    with_tensors(from.path(), to.path(), &[embeddings]);
    let error = merge_adapter(to.path(), &mut base(&model)).unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("transformer.wte") && error.contains("PEFT first"),
        "{error}"
    );
    let path = to.path().join(ADAPTER_CONFIG);
    let text = std::fs::read_to_string(&path).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&text).unwrap();
    config["ensure_weight_tying"] = true.into();
    std::fs::write(&path, config.to_string()).unwrap();
    merge_adapter(to.path(), &mut base(&model)).unwrap();
}

/// PEFT would load the table next to a head that stays the base's.
#[test]
fn a_saved_table_that_is_also_the_head_is_declared_as_tied() {
    let folder = tempfile::tempdir().unwrap();
    let declared = |whole: Vec<Whole>| {
        let model = adapted_by(Lora {
            modules_to_save: whole,
            ..Lora::default()
        });
        write(&model, folder.path());
        let text = std::fs::read_to_string(folder.path().join(ADAPTER_CONFIG)).unwrap();
        let config: serde_json::Value = serde_json::from_str(&text).unwrap();
        config.get("ensure_weight_tying").cloned()
    };
    assert_eq!(declared(vec![Whole::Embeddings]), Some(true.into()));
    assert_eq!(declared(Vec::new()), None);
}

#[test]
fn adapters_with_full_tables_cannot_be_summed() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let model = adapted();
    write(&model, folders[0].path());
    let with_table = adapted_by(Lora {
        modules_to_save: vec![Whole::Embeddings],
        ..Lora::default()
    });
    write(&with_table, folders[1].path());
    let pefts = |which: &[usize]| -> Vec<(Peft, f64)> {
        let open = |at: &usize| (Peft::open(folders[*at].path()).unwrap(), 1.0);
        which.iter().map(open).collect()
    };
    let both = pefts(&[0, 1]);
    let mut beside = base(&model);
    let error = attach_sum(&both, &mut beside).unwrap_err().to_string();
    assert!(error.contains("cannot be summed"), "{error}");
    assert!(beside.adapter().is_none());
    // A single one can be attached with its table.
    attach_sum(&pefts(&[1]), &mut beside).unwrap();
}
