//! Adapters as PEFT saved them, against its logits, gradients and merged logits, and written back unchanged.
//! `tests/oracle/peft_oracle.py` made the folders and the fixture.

use super::{compare, mean_loss, tensors_of};
use candle_core::{Device, Tensor};
use llmtui::hf::{self, Peft};
use llmtui::nn::{Model, TokenBatch};
use serde_json::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

const CASES: [(&str, &str); 7] = [
    ("lora", "llama"),
    ("rslora", "llama"),
    ("dora", "llama"),
    ("dora_part", "llama"),
    ("saved", "llama"),
    ("one_layer", "llama"),
    ("dora_gpt2", "gpt2"),
];

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/oracle/peft")
        .join(name)
}

fn flat<T: candle_core::WithDType>(tensor: &Tensor) -> Vec<T> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

fn attached(case: &str, base: &str) -> Model {
    let mut model = hf::load(&folder(base)).unwrap();
    Peft::find(&folder(case))
        .unwrap()
        .attach(&mut model)
        .unwrap();
    model
}

#[test]
fn pefts_adapters_have_its_logits_and_gradients() {
    let (_, tensors) = tensors_of("peft/peft");
    let (inputs, targets): (Vec<u32>, Vec<u32>) =
        (flat(&tensors["tokens"]), flat(&tensors["targets"]));
    for (case, base) in CASES {
        let mut model = attached(case, base);
        let logits = flat::<f32>(&model.logits(&inputs, 2, 10).unwrap());
        compare(
            &format!("logits of {case}"),
            &logits,
            &flat::<f32>(&tensors[&format!("{case}/logits")]),
        );
        let batch = TokenBatch::plain(&inputs, &targets, 2, 10);
        let (_, dlogp) = mean_loss(&model.forward(&batch).unwrap().logp);
        model.backward(&dlogp, None).unwrap();
        let prefix = format!("{case}/grad.base_model.model.");
        let mut theirs: Vec<&str> = tensors
            .keys()
            .filter_map(|key| key.strip_prefix(&prefix))
            .collect();
        let mut ours: Vec<&str> = model
            .params()
            .trainable()
            .map(|i| i.name.as_str())
            .collect();
        theirs.sort_unstable();
        ours.sort_unstable();
        assert_eq!(ours, theirs, "{case}");
        for info in model.params().trainable() {
            let grad = flat::<f32>(&model.params().grad(info).unwrap());
            let exact = flat::<f32>(&tensors[&format!("{prefix}{}", info.name)]);
            compare(&format!("{case}, gradient of {}", info.name), &grad, &exact);
        }
    }
}

#[test]
fn merged_adapters_have_pefts_merged_logits() {
    let (_, tensors) = tensors_of("peft/peft");
    let inputs: Vec<u32> = flat(&tensors["tokens"]);
    for (case, base) in CASES {
        let exact = flat::<f32>(&tensors[&format!("{case}/merged")]);
        let mut merged = hf::load(&folder(base)).unwrap();
        Peft::find(&folder(case))
            .unwrap()
            .merge_into(&mut merged, 1.0)
            .unwrap();
        let mut beside = attached(case, base);
        for (what, model) in [("merged", &mut merged), ("beside", &mut beside)] {
            let logits = flat::<f32>(&model.logits(&inputs, 2, 10).unwrap());
            compare(&format!("{case}, {what}"), &logits, &exact);
        }
    }
}

#[test]
fn pefts_adapter_is_written_back_unchanged() {
    for (case, base) in CASES {
        let model = attached(case, base);
        let out = tempfile::tempdir().unwrap();
        let at = |folder: &Path| folder.join(hf::ADAPTER_WEIGHTS);
        let mut file = std::fs::File::create(at(out.path())).unwrap();
        hf::write_adapter(&model, &mut file).unwrap();
        let read = |path: PathBuf| -> HashMap<String, Tensor> {
            candle_core::safetensors::load(path, &Device::Cpu).unwrap()
        };
        let (ours, theirs) = (read(at(out.path())), read(at(&folder(case))));
        assert_eq!(ours.len(), theirs.len(), "{case}");
        for (name, tensor) in &theirs {
            assert_eq!(ours[name].dims(), tensor.dims(), "{case}: {name}");
            assert_eq!(
                flat::<f32>(&ours[name]),
                flat::<f32>(tensor),
                "{case}: {name}"
            );
        }
        let json = hf::adapter_json(&model, None).unwrap();
        let ours: Value = serde_json::from_str(&json).unwrap();
        let text = std::fs::read_to_string(folder(case).join(hf::ADAPTER_CONFIG)).unwrap();
        let theirs: Value = serde_json::from_str(&text).unwrap();
        for key in [
            "peft_type",
            "task_type",
            "r",
            "use_rslora",
            "use_dora",
            "fan_in_fan_out",
            "bias",
            "modules_to_save",
        ] {
            assert_eq!(ours[key], theirs[key], "{case}: {key}");
        }
        assert_eq!(
            ours["lora_alpha"].as_f64(),
            theirs["lora_alpha"].as_f64(),
            "{case}"
        );
        // PEFT finds the same modules by our names.
        let ends = |list: &Value, module: &str| {
            let list: Vec<&str> = list
                .as_array()
                .unwrap()
                .iter()
                .map(|x| x.as_str().unwrap())
                .collect();
            list.iter()
                .any(|end| module == *end || module.ends_with(&format!(".{end}")))
        };
        let base = hf::load(&folder(base)).unwrap();
        for info in base.params().infos() {
            let module = info.name.trim_end_matches(".weight");
            let (ours, theirs) = (
                ends(&ours["target_modules"], module),
                ends(&theirs["target_modules"], module),
            );
            assert_eq!(ours, theirs, "{case}: {module}");
        }
    }
}

#[test]
fn adapters_of_another_model_and_wrong_weights_are_rejected() {
    let mut gpt2 = hf::load(&folder("gpt2")).unwrap();
    let lora = Peft::find(&folder("lora")).unwrap();
    for error in [
        lora.attach(&mut gpt2).unwrap_err(),
        lora.merge_into(&mut gpt2, 1.0).unwrap_err(),
    ] {
        assert!(
            error.to_string().contains("belongs to another model"),
            "{error}"
        );
    }
    let mut llama = hf::load(&folder("llama")).unwrap();
    for case in ["dora", "saved"] {
        let error = Peft::find(&folder(case))
            .unwrap()
            .merge_into(&mut llama, 0.5)
            .unwrap_err();
        assert!(error.to_string().contains("cannot be scaled"), "{error}");
    }
    let nothing = Peft::find(&folder("llama")).unwrap_err().to_string();
    assert!(nothing.contains("no adapter here"), "{nothing}");
}
