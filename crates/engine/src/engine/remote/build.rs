//! The request that builds the model on ranks: its shape, its parameters' offsets in the flat buffers, and the update rule.

use super::twin::Place;
use crate::nn::{ActivationCheckpointing, Model};
use crate::optim::by_decay;
use crate::spec::RunSpec;
use crate::workers::torch;
use serde_json::{Value, json};

/// All that a rank must know of the model and its update rule.
pub(super) fn build(spec: &RunSpec, model: &Model, settings: &torch::Config, at: Place) -> Value {
    let device = at.device;
    let mut decay = vec![(0.0, 1.0); model.params().infos().len()];
    for group in by_decay(model.params(), spec.optimizer.weight_decay()) {
        for index in group.params {
            decay[index] = (group.weight_decay, group.lr_scale);
        }
    }
    let adapter = json!({
        "scales": scales(spec, model),
        "dropout": spec.adapter.as_ref().map_or(0.0, |adapter| adapter.dropout()),
    });
    let recompute = !matches!(
        spec.train.activation_checkpointing,
        ActivationCheckpointing::None {}
    );
    let rule = &spec.optimizer;
    let optimizer = match (rule.for_ranks(), rule.adam_betas(), rule.epsilon()) {
        _ if !rule.on_torch() => Value::Null,
        (Some(mut settings), ..) => {
            settings.insert("kind".into(), rule.entry().id.into());
            settings.into()
        }
        (None, Some((beta1, beta2)), Some(eps)) => {
            json!({"kind": rule.entry().id, "beta1": beta1, "beta2": beta2, "eps": eps.value})
        }
        _ => Value::Null,
    };
    let mut described = described(model, &decay, &adapter, recompute);
    let regularizers = spec.regularizers();
    described["logit_z_loss"] = regularizers.z_loss.into();
    described["embedding_noise"] = regularizers.embedding_noise.into();
    if let Some(params) = described["params"].as_array_mut() {
        for (param, info) in params.iter_mut().zip(model.params().infos()) {
            param["blocks"] = rule.blocks(info).into();
        }
    }
    let passes = spec.train.max_steps * spec.train.grad_accum_steps as u64;
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    json!({
        "type": "build",
        "model": described,
        "optimizer": optimizer,
        "device": device,
        "precision": settings.format(device, spec.asked_format()),
        "shard": settings.shard_word(),
        "offload": settings.offload,
        "compile": settings.compiles(device, at.ranks, passes, spec.method.is_likelihood()),
        // A run that did not request it continues without.
        "compile_asked": settings.compile.is_some(),
        "threads": spec.train.threads.unwrap_or((available / at.each).max(1)),
    })
}

/// A model that is only read: one beside the policy.
pub(super) fn frozen(model: &Model) -> Value {
    let decay = vec![(0.0, 1.0); model.params().infos().len()];
    described(model, &decay, &json!({"scales": {}, "dropout": 0.0}), false)
}

/// A model's parts and parameters; each of these with its weight decay and the scale of its learning rate.
fn described(model: &Model, decay: &[(f64, f64)], adapter: &Value, recompute: bool) -> Value {
    let (config, shape) = (model.config(), model.shape());
    let params = model.params().infos().iter().zip(decay);
    let params: Vec<Value> = params
        .map(|(info, (decay, lr_scale))| {
            json!({
                "name": info.name, "shape": info.shape, "offset": info.offset, "grad": info.grad, "decay": decay, "lr_scale": lr_scale,
            })
        })
        .collect();
    let rotations: Vec<Value> = crate::nn::rotations(config, shape)
        .iter()
        .map(|rotation| {
            rotation.as_ref().map_or(
                Value::Null,
                |r| json!({"frequencies": r.frequencies, "factor": r.factor}),
            )
        })
        .collect();
    json!({
        "params": params,
        "shape": {
            "n_layer": shape.n_layer, "n_head": shape.n_head, "n_kv_head": shape.n_kv_head, "head_dim": shape.head_dim,
            "d_model": shape.d_model, "d_ff": shape.d_ff, "seq_len": shape.seq_len, "vocab_size": shape.vocab_size,
        },
        "config": config,
        "rotations": rotations,
        "score_scale": config.score_scale(),
        "slopes": config.position.slopes(shape.n_head),
        "waves": config.position.adds_position_vectors(),
        "adapter": adapter,
        "recompute": recompute,
    })
}

/// The scale of each module's adapter.
fn scales(spec: &RunSpec, model: &Model) -> serde_json::Map<String, Value> {
    let Some(adapter) = &spec.adapter else {
        return serde_json::Map::new();
    };
    let adapters = model.params().adapters().iter();
    let modules = adapters.filter_map(|info| info.name.strip_suffix(".lora_A.weight"));
    modules
        .map(|module| (module.to_string(), adapter.scale(module).into()))
        .collect()
}
