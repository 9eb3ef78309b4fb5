//! PEFT adapters with ranks and alphas of single modules, and those of Phi-3 and GPT-NeoX, which fuse several of our matrices
//! into one: against PEFT's logits, gradients and merged logits, written back unchanged, and joined for PEFT.
//! `tests/oracle/peft_patterns_oracle.py` made the folders and the fixture, and loads joined adapters with PEFT.

use super::{compare, mean_loss, tensors_of};
use candle_core::{Device, Tensor};
use llmtui::hf::{self, Dtype, Peft};
use llmtui::nn::adapter::{Lora, Targets, Whole};
use llmtui::nn::{AdapterConfig, Model, TokenBatch};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

/// Adapters in PEFT's form, with their bases.
const CASES: [(&str, &str); 8] = [
    ("patterns", "llama"),
    ("patterns_rslora", "llama"),
    ("patterns_dora", "llama"),
    ("layers", "llama"),
    ("joined", "phi3"),
    ("joined_rsdora", "phi3"),
    ("neox", "gpt_neox"),
    ("neox_rsdora", "gpt_neox"),
];
/// Adapters in llmtui's form for a Phi-3.
const SPLIT: [&str; 3] = ["split", "split_patterns", "split_rsdora"];
/// PEFT's matrices, and ours.
const JOINED: [(&str, &[&str]); 2] = [
    ("qkv_proj", &["q_proj", "k_proj", "v_proj"]),
    ("gate_up_proj", &["gate_proj", "up_proj"]),
];

fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    CASES.into_iter().chain(SPLIT.map(|case| (case, "phi3")))
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/oracle/peft_patterns")
        .join(name)
}

fn flat<T: candle_core::WithDType>(tensor: &Tensor) -> Vec<T> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

fn attached(adapter: &Path, base: &str) -> Model {
    let mut model = hf::load(&folder(base)).unwrap();
    Peft::find(adapter).unwrap().attach(&mut model).unwrap();
    model
}

fn logits(model: &mut Model, inputs: &[u32]) -> Vec<f32> {
    flat(&model.logits(inputs, 2, 10).unwrap())
}

fn json_in(folder: &Path) -> Value {
    let text = std::fs::read_to_string(folder.join(hf::ADAPTER_CONFIG)).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn tensors_in(folder: &Path) -> HashMap<String, Tensor> {
    candle_core::safetensors::load(folder.join(hf::ADAPTER_WEIGHTS), &Device::Cpu).unwrap()
}

/// Gradients by the names of PEFT's file: a joined A has the sum of its parts' gradients, as all parts share it.
fn gradients(model: &Model) -> BTreeMap<String, Vec<f32>> {
    let mut found = BTreeMap::new();
    for info in model.params().trainable() {
        let grad = flat::<f32>(&model.params().grad(info).unwrap());
        found.insert(info.name.clone(), grad);
    }
    found
}

fn joined_gradient(ours: &BTreeMap<String, Vec<f32>>, name: &str) -> Vec<f32> {
    if let Some(grad) = ours.get(name) {
        return grad.clone();
    }
    if name.contains("gpt_neox") {
        return neox_gradient(ours, name);
    }
    let (whole, parts) = JOINED.iter().find(|(w, _)| name.contains(w)).unwrap();
    let parts = parts.iter().map(|part| &ours[&name.replace(whole, part)]);
    match name.contains("lora_A") {
        false => parts.flatten().copied().collect(),
        true => parts
            .cloned()
            .reduce(|sum, part| sum.iter().zip(part).map(|(a, b)| a + b).collect())
            .unwrap(),
    }
}

/// The same of GPT-NeoX, whose rows are (head, q | k | v, head_dim), here with two heads.
fn neox_gradient(ours: &BTreeMap<String, Vec<f32>>, name: &str) -> Vec<f32> {
    let own = [
        ("gpt_neox.embed_in", "model.embed_tokens"),
        ("gpt_neox.layers", "model.layers"),
        ("attention.dense", "self_attn.o_proj"),
        ("dense_h_to_4h", "up_proj"),
        ("dense_4h_to_h", "down_proj"),
    ];
    let own = own
        .iter()
        .fold(name.to_string(), |name, (a, b)| name.replace(a, b));
    if let Some(grad) = ours.get(&own) {
        return grad.clone();
    }
    let part = |part| &ours[&own.replace("attention.query_key_value", part)];
    let parts = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"].map(part);
    if name.contains("lora_A") {
        let sum = |at| parts.iter().map(|part: &&Vec<f32>| part[at]).sum();
        return (0..parts[0].len()).map(sum).collect();
    }
    let half = parts[0].len() / 2;
    let heads = [0..half, half..2 * half].into_iter();
    let rows = heads.flat_map(|head| parts.map(|part| part[head.clone()].to_vec()));
    rows.flatten().collect()
}

/// A folder like a checkpoint's: the adapter in llmtui's form, next to the base's config.json.
fn checkpoint(model: &Model, base: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let config = hf::adapter_json(model, None).unwrap();
    std::fs::write(dir.path().join(hf::ADAPTER_CONFIG), config).unwrap();
    let mut file = std::fs::File::create(dir.path().join(hf::ADAPTER_WEIGHTS)).unwrap();
    hf::write_adapter(model, &mut file).unwrap();
    std::fs::copy(
        folder(base).join("config.json"),
        dir.path().join("config.json"),
    )
    .unwrap();
    dir
}

/// The adapter of such a folder, exported for PEFT.
fn exported(from: &Path) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let peft = Peft::find(from).unwrap();
    peft.check().unwrap();
    let joins = peft.joins(from).unwrap();
    let config = peft.config_json(None, None, &joins).unwrap();
    std::fs::write(dir.path().join(hf::ADAPTER_CONFIG), config).unwrap();
    let mut file = std::fs::File::create(dir.path().join(hf::ADAPTER_WEIGHTS)).unwrap();
    peft.write(Dtype::F32, None, &joins, &mut file).unwrap();
    Peft::find(dir.path()).unwrap().check().unwrap();
    dir
}

#[test]
fn adapters_with_patterns_have_pefts_logits_and_gradients() {
    let (_, tensors) = tensors_of("peft_patterns/peft_patterns");
    let (inputs, targets): (Vec<u32>, Vec<u32>) =
        (flat(&tensors["tokens"]), flat(&tensors["targets"]));
    for (case, base) in all() {
        let mut model = attached(&folder(case), base);
        let exact = flat::<f32>(&tensors[&format!("{case}/logits")]);
        compare(case, &logits(&mut model, &inputs), &exact);
        let batch = TokenBatch::plain(&inputs, &targets, 2, 10);
        let (_, dlogp) = mean_loss(&model.forward(&batch).unwrap().logp);
        model.backward(&dlogp, None).unwrap();
        let ours = gradients(&model);
        let prefix = format!("{case}/grad.base_model.model.");
        let mut values = 0;
        for (key, exact) in &tensors {
            let Some(name) = key.strip_prefix(&prefix) else {
                continue;
            };
            let exact = flat::<f32>(exact);
            compare(
                &format!("{case}, gradient of {name}"),
                &joined_gradient(&ours, name),
                &exact,
            );
            values += 1;
        }
        assert!(values > 4, "{case}");
    }
}

#[test]
fn merged_adapters_with_patterns_have_pefts_merged_logits() {
    let (_, tensors) = tensors_of("peft_patterns/peft_patterns");
    let inputs: Vec<u32> = flat(&tensors["tokens"]);
    for (case, base) in all() {
        let exact = flat::<f32>(&tensors[&format!("{case}/merged")]);
        let mut merged = hf::load(&folder(base)).unwrap();
        let peft = Peft::find(&folder(case)).unwrap();
        peft.merge_into(&mut merged, 1.0).unwrap();
        let mut attached = attached(&folder(case), base);
        // As in chat, which can detach it again.
        let mut beside = hf::load(&folder(base)).unwrap();
        peft.attach_for_inference(&mut beside).unwrap();
        for (what, model) in [
            ("merged", &mut merged),
            ("attached to the base", &mut attached),
            ("read beside the base", &mut beside),
        ] {
            let what = format!("{case}, {what}");
            compare(&what, &logits(model, &inputs), &exact);
        }
    }
}

/// Half of one and half of another, each with its own scale.
#[test]
fn combined_adapters_keep_the_scale_of_each_module() {
    let (_, tensors) = tensors_of("peft_patterns/peft_patterns");
    let inputs: Vec<u32> = flat(&tensors["tokens"]);
    for (pair, base) in [
        (["patterns", "patterns_rslora"], "llama"),
        (["joined", "split"], "phi3"),
    ] {
        let parts = pair.map(|case| (Peft::find(&folder(case)).unwrap(), 0.5));
        let mut merged = hf::load(&folder(base)).unwrap();
        for (peft, weight) in &parts {
            peft.merge_into(&mut merged, *weight).unwrap();
        }
        let mut sum = hf::load(&folder(base)).unwrap();
        hf::attach_sum(&parts, &mut sum).unwrap();
        let exact = logits(&mut merged, &inputs);
        compare(&format!("{pair:?}"), &logits(&mut sum, &inputs), &exact);
    }
}

#[test]
fn pefts_adapters_with_patterns_are_written_back_unchanged() {
    let (_, tensors) = tensors_of("peft_patterns/peft_patterns");
    let inputs: Vec<u32> = flat(&tensors["tokens"]);
    for (case, base) in CASES {
        let mut model = attached(&folder(case), base);
        let kept = checkpoint(&model, base);
        let out = exported(kept.path());
        let (ours, theirs) = (tensors_in(out.path()), tensors_in(&folder(case)));
        assert_eq!(ours.len(), theirs.len(), "{case}");
        for (name, tensor) in &theirs {
            assert_eq!(ours[name].dims(), tensor.dims(), "{case}: {name}");
            let (ours, theirs) = (flat::<f32>(&ours[name]), flat::<f32>(tensor));
            assert_eq!(ours, theirs, "{case}: {name}");
        }
        let (ours, theirs) = (json_in(out.path()), json_in(&folder(case)));
        for key in [
            "peft_type",
            "task_type",
            "r",
            "use_rslora",
            "use_dora",
            "bias",
        ] {
            assert_eq!(ours[key], theirs[key], "{case}: {key}");
        }
        assert_eq!(ours["lora_alpha"].as_f64(), theirs["lora_alpha"].as_f64());
        // Scales and targets: the result is bit-identical.
        let mut back = attached(out.path(), base);
        assert_eq!(back.adapter(), model.adapter(), "{case}");
        let before = logits(&mut model, &inputs);
        assert_eq!(logits(&mut back, &inputs), before, "{case}");
    }
}

#[test]
fn phi_adapters_are_joined_for_peft_and_split_again() {
    let (_, tensors) = tensors_of("peft_patterns/peft_patterns");
    let inputs: Vec<u32> = flat(&tensors["tokens"]);
    for case in SPLIT {
        let model = attached(&folder(case), "phi3");
        let kept = checkpoint(&model, "phi3");
        let out = exported(kept.path());
        let names: BTreeSet<String> = Peft::find(out.path()).unwrap().modules();
        let has = |part: &str| names.iter().any(|name| name.ends_with(part));
        assert!(has(".qkv_proj") && has(".gate_up_proj"), "{names:?}");
        assert!(!has(".q_proj") && !has(".up_proj"), "{names:?}");
        let mut back = attached(out.path(), "phi3");
        let exact = flat::<f32>(&tensors[&format!("{case}/logits")]);
        compare(case, &logits(&mut back, &inputs), &exact);
        if case == "split_patterns" {
            continue;
        }
        // With a single scale nothing is computed: each part is unchanged.
        assert_eq!(back.adapter(), model.adapter(), "{case}");
        let weights = |m: &Model| m.params().read_weights(<[f32]>::to_vec).unwrap();
        assert!(weights(&back) == weights(&model), "{case}");
    }
}

/// As trained here: queries, keys and values have adapters of their own beside a GPT-NeoX.
#[test]
fn adapters_of_neox_are_joined_head_by_head_and_split_again() {
    let (_, tensors) = tensors_of("peft_patterns/peft_patterns");
    let inputs: Vec<u32> = flat(&tensors["tokens"]);
    for targets in [Targets::All, Targets::Minimal] {
        let mut model = hf::load(&folder("gpt_neox")).unwrap();
        let lora = Lora {
            rank: 2,
            targets,
            modules_to_save: vec![Whole::Embeddings],
            ..Lora::default()
        };
        model.adapt(&AdapterConfig::Lora(lora)).unwrap();
        model.init_adapters(9).unwrap();
        let infos = model.params().trainable().cloned().collect::<Vec<_>>();
        let fill = |weights: &mut [f32]| {
            for info in &infos {
                for (i, w) in weights[info.offset..][..info.len].iter_mut().enumerate() {
                    *w += 0.1 * ((info.offset + i) as f32).sin();
                }
            }
        };
        model.params_mut().write_weights(fill).unwrap();
        let kept = checkpoint(&model, "gpt_neox");
        let out = exported(kept.path());
        let theirs = tensors_in(out.path());
        let at = "base_model.model.gpt_neox.layers.0.attention.query_key_value";
        let rank = if targets == Targets::All { 6 } else { 4 };
        assert_eq!(theirs[&format!("{at}.lora_A.weight")].dims(), [rank, 16]);
        assert_eq!(theirs[&format!("{at}.lora_B.weight")].dims(), [48, rank]);
        let own = "base_model.model.gpt_neox.embed_in.weight";
        assert!(theirs.contains_key(own));
        let config = json_in(out.path());
        assert_eq!(config["modules_to_save"], json!(["embed_in"]));
        let mut back = attached(out.path(), "gpt_neox");
        assert_eq!(back.adapter(), model.adapter());
        let weights = |m: &Model| m.params().read_weights(<[f32]>::to_vec).unwrap();
        assert!(weights(&back) == weights(&model));
        let before = logits(&mut model, &inputs);
        assert_eq!(logits(&mut back, &inputs), before);
    }
}

#[test]
fn a_joined_config_has_the_ranks_and_the_scale_of_its_parts() {
    let config = |case: &str| {
        let model = attached(&folder(case), "phi3");
        json_in(exported(checkpoint(&model, "phi3").path()).path())
    };
    let plain = config("split");
    let targets = json!([
        "mlp.down_proj",
        "mlp.gate_up_proj",
        "self_attn.o_proj",
        "self_attn.qkv_proj"
    ]);
    assert_eq!(plain["target_modules"], targets);
    assert_eq!(
        (&plain["r"], &plain["lora_alpha"]),
        (&json!(2), &json!(6.0))
    );
    let ranks = json!({"mlp.gate_up_proj": 4, "self_attn.qkv_proj": 6});
    assert_eq!(plain["rank_pattern"], ranks);
    let alphas = json!({"mlp.gate_up_proj": 12.0, "self_attn.qkv_proj": 18.0});
    assert_eq!(plain["alpha_pattern"], alphas);
    // alpha / √rank: a factor of the square root of the number of parts.
    let rooted = config("split_rsdora");
    for (name, parts) in [("mlp.gate_up_proj", 2.0_f64), ("self_attn.qkv_proj", 3.0)] {
        let alpha = rooted["alpha_pattern"][name].as_f64().unwrap();
        assert!((alpha - 6.0 * parts.sqrt()).abs() < 1e-9, "{alpha}");
    }
    // Queries of rank 2 and values of rank 3, no keys.
    let mixed = config("split_patterns");
    assert_eq!(mixed["rank_pattern"]["self_attn.qkv_proj"], 5);
    assert_eq!(mixed["alpha_pattern"]["self_attn.qkv_proj"], 15.0);
    assert_eq!(mixed["rank_pattern"].get("mlp.gate_up_proj"), None);
}

#[test]
fn a_config_that_omits_tensors_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    for (case, key, value) in [
        ("layers", "layers_to_transform", json!([0])),
        ("layers", "exclude_modules", json!(["q_proj"])),
        ("patterns", "target_modules", json!(["q_proj"])),
        ("patterns", "rank_pattern", json!({})),
        ("patterns_dora", "use_dora", json!(false)),
    ] {
        let mut config = json_in(&folder(case));
        config[key] = value;
        std::fs::write(dir.path().join(hf::ADAPTER_CONFIG), config.to_string()).unwrap();
        let weights = folder(case).join(hf::ADAPTER_WEIGHTS);
        std::fs::copy(weights, dir.path().join(hf::ADAPTER_WEIGHTS)).unwrap();
        let peft = Peft::find(dir.path()).unwrap();
        let mut model = hf::load(&folder("llama")).unwrap();
        let key = if key == "rank_pattern" { "r is 3" } else { key };
        for error in [
            peft.merge_into(&mut model, 1.0).unwrap_err(),
            peft.attach(&mut model).unwrap_err(),
        ] {
            assert!(error.to_string().contains(key), "{key}: {error}");
        }
    }
}

#[test]
fn a_matrix_in_two_adapters_of_a_file_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let mut both = tensors_in(&folder("joined"));
    both.extend(tensors_in(&folder("split")));
    candle_core::safetensors::save(&both, dir.path().join(hf::ADAPTER_WEIGHTS)).unwrap();
    let mut config = json_in(&folder("joined"));
    config["target_modules"] = json!("all-linear");
    config["rank_pattern"] = json!({"qkv_proj": 5, "gate_up_proj": 3, ".*_proj": 2});
    // For modules that both have in one form, the ranks are those of the second.
    std::fs::write(dir.path().join(hf::ADAPTER_CONFIG), config.to_string()).unwrap();
    let mut model = hf::load(&folder("phi3")).unwrap();
    let error = Peft::find(dir.path())
        .unwrap()
        .attach(&mut model)
        .unwrap_err();
    assert!(error.to_string().contains("two adapters for"), "{error}");
}
