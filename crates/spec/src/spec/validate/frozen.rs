//! What trains: adapters, and parts that are frozen by name.

use super::IssueCollector;
use crate::methods::ReferenceChoice;
use crate::models::is_gguf;
use crate::nn::Role;
use crate::nn::freeze::freeze_fault;
use crate::spec::RunConfig;
use crate::spec::issue::Origin;

/// What the adapter says of the model.
pub(super) fn adapter(config: &RunConfig, judge: &mut IssueCollector) {
    let Some(adapter) = &config.adapter else {
        return;
    };
    let word = adapter.entry().id;
    let packed = config.train.from.as_deref().is_some_and(is_gguf) && !config.train.dequantize;
    let whole = [Role::Embedding, Role::Head].map(|role| adapter.trains_whole(role));
    judge.want(
        !packed || !whole.contains(&true),
        &["adapter.lora.modules_to_save", "train.from"],
        "the embeddings of a quantized base cannot be trained",
        "train.dequantize=true converts the base to f32",
    );
    judge.want(
        !packed || !config.train.resize_vocab,
        &["train.resize_vocab", "train.from"],
        "the embeddings of a quantized base cannot be resized",
        "train.dequantize=true converts the base to f32",
    );
    let reference = config.method.needs().reference;
    judge.want(
        !packed || reference != Some(ReferenceChoice::Frozen),
        &[
            &format!("method.{}.reference", config.method.entry().id),
            "train.from",
        ],
        "a quantized base cannot be copied for a frozen reference",
        "reference=auto, which is the base without its adapter; or train.dequantize=true converts the base to f32",
    );
    judge.want(
        reference != Some(ReferenceChoice::AdapterOff) || !whole.contains(&true),
        &["adapter.lora.modules_to_save"],
        "the reference is the model without its adapter; embeddings trained with it would change the reference",
        "method.*.reference: frozen uses a separate copy",
    );
    // A base model that is not here leaves the layers unknown; that it is missing is said elsewhere.
    if config.train.from.is_some() && judge.origins.get("model.n_layer") == Origin::Default {
        return;
    }
    for fault in adapter.faults(&config.model) {
        let path = |key: &&str| format!("adapter.{word}.{key}");
        let paths: Vec<String> = fault.keys.iter().map(path).collect();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        judge.want(false, &paths, fault.what, fault.hint);
    }
}

/// What is frozen by name.
pub(super) fn freeze(config: &RunConfig, judge: &mut IssueCollector) {
    let names = &config.train.freeze;
    if names.is_empty() {
        return;
    }
    judge.want(
        config.adapter.is_none(),
        &["train.freeze", "adapter"],
        "adapters freeze all weights already",
        "remove one of the two",
    );
    // Of a base model that is not here the parts are unknown.
    if config.train.from.is_some() && judge.origins.get("model.n_layer") == Origin::Default {
        return;
    }
    if let Some((what, hint)) = freeze_fault(&config.model, names) {
        judge.want(false, &["train.freeze"], what, hint);
    }
}
