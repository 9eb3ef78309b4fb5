//! Files that LLM-Lab saves (`model_config.json`, its training configurations): keys that have no setting of their name here are
//! written as ours, or reported where nothing here needs them. All their other keys are names in [`super::alias`].

use serde_json::{Map, Value, json};

/// Keys by which its files are known: so many occur in each of them, and hardly one in a file of ours.
const MARKS: [&str; 17] = [
    "tokenizer_name",
    "positional_encoding",
    "norm_type",
    "n_heads",
    "n_kv_heads",
    "n_layers",
    "max_seq_len",
    "policy_checkpoint",
    "reference_checkpoint",
    "reward_model_name",
    "save_best_only",
    "use_lora",
    "lora_preset",
    "adamw_beta1",
    "lion_beta1",
    "grad_clip",
    "mini_batch_size",
];
const ENOUGH: usize = 2;

/// Keys of methods that learn from answers of the model.
const OF_ROLLOUTS: [&str; 6] = [
    "reward_model_name",
    "ppo_epochs",
    "group_size",
    "grpo_temperature",
    "vf_coef",
    "gae_lambda",
];

/// Its names of the matrices with adapters, and ours.
const MATRICES: [(&str, &str); 7] = [
    ("q_proj", "query"),
    ("k_proj", "key"),
    ("v_proj", "value"),
    ("o_proj", "output"),
    ("gate_proj", "gate"),
    ("up_proj", "up"),
    ("down_proj", "down"),
];

/// Rewrites the keys of a file of LLM-Lab; returns what to know of them. Other files stay as they are.
pub(super) fn rewrite(map: &mut Map<String, Value>) -> Vec<String> {
    let marks = MARKS.iter().filter(|key| map.contains_key(**key)).count();
    if marks < ENOUGH || map.contains_key("extends") {
        return Vec::new();
    }
    let mut notes = Vec::new();
    if let Some(name) = text(map.shift_remove("tokenizer_name")) {
        notes.push(format!(
            "tokenizer_name {name} is not read: a start model (train.from) brings its tokenizer; data.tokenizer: {{file: {{path: FOLDER}}}} reads another, of a model folder"
        ));
    }
    if let Some(folder) = text(map.shift_remove("output_dir")) {
        notes.push(format!(
            "output_dir {folder} is not read: runs lie in the folder of --runs-dir"
        ));
    }
    // The newest ones are kept besides.
    if map.shift_remove("save_best_only") == Some(json!(true)) {
        map.insert("checkpoint.save_best".into(), json!(true));
    }
    if map.get("reference_checkpoint") == Some(&Value::Null) {
        map.shift_remove("reference_checkpoint");
    }
    // The interval is `eval_every` there.
    if map.contains_key("eval_every")
        && let Some(batches) = map.shift_remove("eval_steps")
    {
        map.insert("eval.batches".into(), batches);
    }
    adapters(map);
    batch(map);
    if let Some(model) = text(map.shift_remove("reward_model_name")) {
        map.insert("rewards".into(), json!([{"model": {"path": model}}]));
    }
    notes
}

fn text(value: Option<Value>) -> Option<String> {
    value?.as_str().map(String::from)
}

/// `use_lora`, and the list of matrices, which counts under the preset `custom` alone.
fn adapters(map: &mut Map<String, Value>) {
    let on = map.shift_remove("use_lora");
    let listed = map.shift_remove("lora_target_modules");
    if on == Some(Value::Bool(false)) {
        map.retain(|key, _| !key.starts_with("lora_"));
        return;
    }
    let is_custom = map.get("lora_preset").is_some_and(|word| word == "custom");
    if let Some(names) = listed
        .as_ref()
        .and_then(Value::as_array)
        .filter(|_| is_custom)
    {
        let ours = |name: &Value| {
            let word = name.as_str()?;
            let known = MATRICES.iter().find(|(theirs, _)| *theirs == word);
            Some(known.map_or_else(|| name.clone(), |(_, ours)| json!(ours)))
        };
        let custom: Vec<Value> = names.iter().filter_map(ours).collect();
        map.insert("adapter.lora.custom".into(), custom.into());
    }
    let has_settings = map.keys().any(|key| key.starts_with("lora_"));
    if on == Some(Value::Bool(true)) && !has_settings {
        map.insert("adapter".into(), json!("lora"));
    }
}

/// A batch of mini-batches: updates of a rollout, or micro-steps of an update.
fn batch(map: &mut Map<String, Value>) {
    let number = |key: &str| map.get(key).and_then(Value::as_u64).filter(|n| *n > 0);
    let (Some(batch), Some(mini)) = (number("batch_size"), number("mini_batch_size")) else {
        return;
    };
    if !batch.is_multiple_of(mini) {
        return;
    }
    let n = batch / mini;
    map.shift_remove("mini_batch_size");
    map.insert("batch_size".into(), json!(mini));
    let on_policy = OF_ROLLOUTS.iter().any(|key| map.contains_key(*key));
    match on_policy {
        true => map.insert("rollout.steps".into(), json!(n)),
        false => {
            let accumulated = map.shift_remove("gradient_accumulation_steps");
            let accumulated = accumulated.and_then(|n| n.as_u64()).unwrap_or(1);
            map.insert("train.grad_accum_steps".into(), json!(n * accumulated))
        }
    };
}

#[cfg(test)]
mod tests {
    use crate::spec::{SpecSources, load_text};
    use serde_json::{Value, json};

    fn loaded(file: &Value) -> crate::spec::Loaded {
        let loaded = load_text("config.json", &file.to_string(), &SpecSources::default());
        loaded.unwrap_or_else(|e| panic!("{file}: {e}"))
    }

    fn at(loaded: &crate::spec::Loaded, path: &str) -> Value {
        let value = loaded.spec.to_value();
        let pointer = format!("/{}", path.replace('.', "/"));
        value.pointer(&pointer).cloned().unwrap_or_default()
    }

    /// `tokenizer_name`, which is in every such file, was an unknown key.
    #[test]
    fn a_model_config_is_read_whole() {
        let file = json!({
            "tokenizer_name": "Qwen/Qwen2.5-0.5B", "positional_encoding": "rope", "attention_type": "gqa",
            "norm_type": "rmsnorm", "activation": "swiglu", "d_model": 64, "n_heads": 4, "n_kv_heads": 2, "d_ff": 160,
            "n_layers": 2, "vocab_size": 2000, "max_seq_len": 32, "dropout": 0.0, "sliding_window": null,
            "attention_bias": false, "norm_eps": 1e-6,
        });
        let loaded = loaded(&file);
        let model = &loaded.spec.model;
        assert_eq!(
            (model.d_model, model.n_head, model.n_layer, model.seq_len),
            (64, 4, 2, 32)
        );
        let notes = loaded.notes();
        assert!(
            notes
                .iter()
                .any(|note| note.contains("tokenizer_name Qwen/Qwen2.5-0.5B is not read")),
            "{notes:?}"
        );
    }

    #[test]
    fn training_configurations_are_read_whole() {
        let sft = json!({
            "batch_size": 4, "gradient_accumulation_steps": 16, "max_steps": 5000, "learning_rate": 5e-6,
            "weight_decay": 0.01, "max_grad_norm": 1.0, "optimizer": "adamw", "adamw_beta1": 0.9, "lion_beta1": 0.9,
            "scheduler": "cosine", "warmup_steps": 100, "log_every": 10, "save_every": 500, "eval_every": 500,
            "eval_steps": 50, "save_best_only": true, "output_dir": "sft_checkpoints", "use_lora": true,
            "lora_preset": "custom", "lora_target_modules": ["o_proj", "down_proj"], "lora_r": 8, "lora_alpha": 16,
        });
        let read = loaded(&sft);
        assert_eq!(at(&read, "eval.batches"), 50);
        assert_eq!(at(&read, "checkpoint.save_best"), true);
        assert_eq!(at(&read, "adapter.lora.custom"), json!(["output", "down"]));
        assert_eq!(at(&read, "adapter.lora.rank"), 8);
        assert!(read.notes().iter().any(|note| note.contains("--runs-dir")));
        let mut plain = sft.clone();
        plain["use_lora"] = json!(false);
        assert_eq!(at(&loaded(&plain), "adapter"), Value::Null);

        // A batch of mini-batches is several updates of a rollout, or micro-steps of one update.
        let batch = |more: Value| {
            let mut map =
                json!({"batch_size": 128, "mini_batch_size": 32, "reference_checkpoint": null});
            let map = map.as_object_mut().unwrap();
            map.extend(more.as_object().unwrap().clone());
            super::rewrite(map);
            Value::Object(map.clone())
        };
        assert_eq!(
            batch(json!({"method": "dpo"})),
            json!({"batch_size": 32, "method": "dpo", "train.grad_accum_steps": 4})
        );
        assert_eq!(
            batch(json!({"reward_model_name": "rm", "vf_coef": 0.1})),
            json!({"batch_size": 32, "vf_coef": 0.1, "rollout.steps": 4, "rewards": [{"model": {"path": "rm"}}]})
        );
    }

    /// A spec of ours keeps its errors.
    #[test]
    fn other_files_stay_as_they_are() {
        let file = json!({"lr": 1e-3, "output_dir": "x"});
        let said = load_text("my.json", &file.to_string(), &SpecSources::default()).unwrap_err();
        assert!(said.to_string().contains("--runs-dir"), "{said}");
    }
}
