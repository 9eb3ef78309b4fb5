//! Adapters of experts as PEFT saved them for `target_parameters`, against its logits, gradients and merged logits, and written back
//! unchanged. `tests/oracle/peft_experts_oracle.py` made the folders and the fixture; the layout of its tensors is stated here once
//! more.

use super::{compare, mean_loss, tensors_of};
use candle_core::{Device, Tensor};
use llmtui::hf::{self, Peft};
use llmtui::nn::{Model, TokenBatch};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

/// Adapters and their bases, and where the class has its experts.
const CASES: [(&str, &str, &str); 7] = [
    ("attention_too", "qwen3_moe", "mlp.experts"),
    ("rslora", "mixtral", "mlp.experts"),
    ("in_turns", "gpt_oss", "mlp.experts"),
    ("feed_forward", "lfm2_moe", "feed_forward.experts"),
    ("block_sparse", "granitemoe", "block_sparse_moe.experts"),
    ("latent", "deepseek_v3", "mlp.experts"),
    ("one", "qwen3_moe", "mlp.experts"),
];

fn folder(room: &str, name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/oracle")
        .join(room)
        .join(name)
}

fn flat<T: candle_core::WithDType>(tensor: &Tensor) -> Vec<T> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

/// Without the balancing loss, which PyTorch's gradients have none of.
fn base(name: &str) -> Model {
    let (from, dir) = (folder("families", name), tempfile::tempdir().unwrap());
    let text = std::fs::read_to_string(from.join(hf::CONFIG)).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    if let Some(share) = config.get_mut("router_aux_loss_coef") {
        *share = 0.0.into();
    }
    std::fs::write(dir.path().join(hf::CONFIG), config.to_string()).unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        if file.file_name() != hf::CONFIG {
            std::fs::copy(file.path(), dir.path().join(file.file_name())).unwrap();
        }
    }
    hf::load(dir.path()).unwrap()
}

fn peft(case: &str) -> Peft {
    Peft::find(&folder("peft_experts", case)).unwrap()
}

fn attached(case: &str, name: &str) -> Model {
    let mut model = base(name);
    peft(case).attach(&mut model).unwrap();
    model
}

/// The values of one of our factors, from a file's tensors.
fn of_file(
    name: &str,
    tensors: &HashMap<String, Tensor>,
    prefix: &str,
    (case, path, n): (&str, &str, usize),
) -> Vec<f32> {
    let read = |name: String| flat::<f32>(&tensors[&format!("{prefix}{name}")]);
    let Some((block, end)) = name.split_once(".mlp.experts.") else {
        return read(name.to_string());
    };
    let (parameter, factor) = end.split_once('.').unwrap();
    let inner = match parameter == "gate_up_proj" {
        true => ".base_layer",
        false => "",
    };
    let theirs = format!("{block}.{path}{inner}.{factor}");
    let (rows, cols) = tensors[&format!("{prefix}{theirs}")].dims2().unwrap();
    let values = read(theirs);
    if factor.contains("lora_A") {
        return values;
    }
    let rank = cols / n;
    let mut ours = Vec::new();
    for e in 0..n {
        for row in 0..rows {
            // gpt-oss has gate and up in turns; here gate comes first.
            let at = match case == "in_turns" && parameter == "gate_up_proj" {
                true if row < rows / 2 => 2 * row,
                true => 2 * (row - rows / 2) + 1,
                false => row,
            };
            ours.extend((0..rank).map(|j| values[at * cols + j * n + e]));
        }
    }
    ours
}

#[test]
fn adapters_of_experts_have_pefts_logits_and_gradients() {
    let (_, tensors) = tensors_of("peft_experts/peft_experts");
    let (inputs, targets): (Vec<u32>, Vec<u32>) =
        (flat(&tensors["tokens"]), flat(&tensors["targets"]));
    for (case, name, path) in CASES {
        let mut model = attached(case, name);
        let n = model.config().moe.as_ref().unwrap().n_expert;
        let exact = flat::<f32>(&tensors[&format!("{case}/merged")]);
        let mut merged = base(name);
        peft(case).merge_into(&mut merged, 1.0).unwrap();
        let logits = flat::<f32>(&merged.logits(&inputs, 2, 10).unwrap());
        compare(&format!("{case}, merged"), &logits, &exact);
        let exact = flat::<f32>(&tensors[&format!("{case}/logits")]);
        let logits = flat::<f32>(&model.logits(&inputs, 2, 10).unwrap());
        compare(&format!("logits of {case}"), &logits, &exact);
        let batch = TokenBatch::plain(&inputs, &targets, 2, 10);
        let (_, dlogp) = mean_loss(&model.forward(&batch).unwrap().logp);
        model.backward(&dlogp, None).unwrap();
        let mut seen = 0;
        for info in model.params().trainable() {
            let grad = flat::<f32>(&model.params().grad(info).unwrap());
            let prefix = format!("{case}/grad.base_model.model.");
            let exact = of_file(&info.name, &tensors, &prefix, (case, path, n));
            compare(&format!("{case}, gradient of {}", info.name), &grad, &exact);
            seen += 1;
        }
        let theirs = tensors
            .keys()
            .filter(|key| key.starts_with(&format!("{case}/grad.")));
        assert_eq!(seen, theirs.count(), "{case}");
    }
}

#[test]
fn pefts_adapters_of_experts_are_written_back_unchanged() {
    for (case, name, _) in CASES {
        let model = attached(case, name);
        let out = tempfile::tempdir().unwrap();
        let at = |folder: &Path| folder.join(hf::ADAPTER_WEIGHTS);
        let mut file = std::fs::File::create(at(out.path())).unwrap();
        hf::write_adapter(&model, &mut file).unwrap();
        let json = hf::adapter_json(&model, None).unwrap();
        std::fs::write(out.path().join(hf::ADAPTER_CONFIG), &json).unwrap();
        let read = |path: PathBuf| -> BTreeMap<String, Tensor> {
            let all = candle_core::safetensors::load(path, &Device::Cpu).unwrap();
            all.into_iter().collect()
        };
        let theirs = folder("peft_experts", case);
        let (ours, expected) = (read(at(out.path())), read(at(&theirs)));
        let names = |all: &BTreeMap<String, Tensor>| all.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&ours), names(&expected), "{case}");
        for (name, tensor) in &expected {
            assert_eq!(ours[name].dims(), tensor.dims(), "{case}: {name}");
            let (ours, tensor) = (flat::<f32>(&ours[name]), flat::<f32>(tensor));
            assert_eq!(ours, tensor, "{case}: {name}");
        }
        let said: Value = serde_json::from_str(&json).unwrap();
        let text = std::fs::read_to_string(theirs.join(hf::ADAPTER_CONFIG)).unwrap();
        let expected: Value = serde_json::from_str(&text).unwrap();
        let list = |config: &Value, key: &str| -> BTreeSet<String> {
            let all = config[key].as_array().unwrap().iter();
            let end = |name: &Value| name.as_str().unwrap().rsplit('.').next().map(String::from);
            all.filter_map(end).collect()
        };
        for key in ["target_parameters", "target_modules"] {
            assert_eq!(list(&said, key), list(&expected, key), "{case}: {key}");
        }
        for key in ["r", "use_rslora", "rank_pattern"] {
            assert_eq!(said[key], expected[key], "{case}: {key}");
        }
        // A resume reads them, and a stranger finds nothing wrong.
        let mut back = attached(case, name);
        let zero = |weights: &mut [f32]| weights.fill(0.0);
        let from = back
            .params()
            .base()
            .iter()
            .map(|info| info.len)
            .sum::<usize>();
        back.params_mut()
            .write_weights(|weights| zero(&mut weights[from..]))
            .unwrap();
        hf::read_adapter(out.path(), &mut back).unwrap();
        let all = |model: &Model| model.params().read_weights(<[f32]>::to_vec).unwrap();
        assert_eq!(all(&back), all(&model), "{case}");
        Peft::find(out.path()).unwrap().check().unwrap();
    }
}

#[test]
fn adapters_of_experts_that_do_not_fit_are_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let from = folder("peft_experts", "attention_too");
    let config = std::fs::read_to_string(from.join(hf::ADAPTER_CONFIG)).unwrap();
    std::fs::copy(
        from.join(hf::ADAPTER_WEIGHTS),
        dir.path().join(hf::ADAPTER_WEIGHTS),
    )
    .unwrap();
    let refused = |name: &str, change: &dyn Fn(&mut Value)| {
        let mut said: Value = serde_json::from_str(&config).unwrap();
        change(&mut said);
        std::fs::write(dir.path().join(hf::ADAPTER_CONFIG), said.to_string()).unwrap();
        let found = Peft::find(dir.path()).unwrap();
        found.fits(&base(name)).unwrap_err().to_string()
    };
    let other = refused("qwen3", &|_| {});
    assert!(other.contains("no experts"), "{other}");
    let dora = refused("qwen3_moe", &|config| config["use_dora"] = true.into());
    assert!(dora.contains("use_dora"), "{dora}");
    let unnamed = refused("qwen3_moe", &|config| {
        config["target_parameters"] = ["mlp.experts.gate_up_proj"].into_iter().collect();
    });
    assert!(
        unnamed.contains("target_parameters does not name"),
        "{unnamed}"
    );
    let rank = refused("qwen3_moe", &|config| {
        config["rank_pattern"] = serde_json::json!({"experts.down_proj": 2});
    });
    assert!(
        rank.contains("[12, 12]") || rank.contains("shape"),
        "{rank}"
    );
    // Unknown before parameters were read: they would be left out.
    let none = refused("qwen3_moe", &|config| {
        config["target_parameters"] = Value::Null
    });
    assert!(none.contains("target_modules"), "{none}");
}
