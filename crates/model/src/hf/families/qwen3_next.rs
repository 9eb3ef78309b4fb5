//! Qwen3-Next (Qwen3-Next-80B-A3B): gated delta nets and gated attention as Qwen 3.5's, with experts, one of which every token passes.
//! A mixer's projections of its input are two matrices, whose rows take turns by heads of keys.

use super::super::keys::Keys;
use super::super::tensors::{DiskTensor, Values};
use super::common::Defaults;
use super::experts::Experts;
use super::family::Family;
use super::qwen3_5::{
    self, hybrid, hybrid_tensors, is_beside, unread, write_fraction, write_hybrid,
};
use super::rope::Rope;
use crate::nn::mixer::{GatedDeltaNetConfig, MixerConfig};
use crate::nn::{ModelConfig, ParamInfo};
use serde_json::{Value, json};

pub struct Qwen3Next;

const DEFAULTS: Defaults = Defaults {
    rope: Rope {
        sections: false,
        ..qwen3_5::DEFAULTS.rope
    },
    kv_heads: Some(2),
    ..qwen3_5::DEFAULTS
};
const EXPERTS: Experts = Experts {
    n_expert: 512,
    top_k: 10,
    d_ff: 512,
    shared: Some(512),
    norm_topk: Some(true),
    some_dense: true,
};

impl Family for Qwen3Next {
    fn model_type(&self) -> &'static str {
        "qwen3_next"
    }

    fn renames_matrices(&self) -> bool {
        true
    }

    fn class(&self) -> &'static str {
        "Qwen3NextForCausalLM"
    }

    fn classifier(&self) -> &'static str {
        "Qwen3NextForSequenceClassification"
    }

    fn read(&self, keys: &Keys) -> Result<ModelConfig, String> {
        unread(keys)?;
        // In the published files; no block has a window.
        keys.only("use_sliding_window", &json!(false))?;
        let config = hybrid(DEFAULTS.read(keys)?, keys)?;
        let moe = EXPERTS.read(keys, config.n_layer)?;
        Ok(ModelConfig {
            moe: Some(moe),
            ..config
        })
    }

    fn write(&self, config: &ModelConfig) -> Value {
        let mut value = DEFAULTS.write(config);
        write_hybrid(config, &mut value);
        write_fraction(config, &mut value);
        EXPERTS.write(config, &mut value);
        value
    }

    fn tensors(&self, config: &ModelConfig, infos: &[ParamInfo]) -> Vec<DiskTensor> {
        let Some(MixerConfig::GatedDeltaNet(net)) = &config.mixer else {
            return hybrid_tensors(config, infos);
        };
        let mut tensors: Vec<DiskTensor> = Vec::new();
        for tensor in hybrid_tensors(config, infos) {
            let joined = [
                (".in_proj_qkv.", ".in_proj_qkvz."),
                (".in_proj_z.", ".in_proj_qkvz."),
                (".in_proj_b.", ".in_proj_ba."),
                (".in_proj_a.", ".in_proj_ba."),
            ]
            .iter()
            .find(|(own, _)| tensor.name.contains(own));
            let Some((own, theirs)) = joined else {
                tensors.push(tensor);
                continue;
            };
            let name = tensor.name.replace(own, theirs);
            match tensors.iter_mut().rfind(|other| other.name == name) {
                None => tensors.push(tensor.named(name)),
                Some(whole) => {
                    whole.append(tensor);
                    by_keys(whole, net);
                }
            }
        }
        tensors
    }

    fn is_buffer(&self, name: &str) -> bool {
        is_beside(name)
    }
}

/// The rows of `qkv | z` or of `b | a`, head of keys by head of keys: of each its query, its key, and the rows of its values in
/// each of the others.
fn by_keys(whole: &mut DiskTensor, net: &GatedDeltaNetConfig) {
    let Values::Own(parts) = &whole.values else {
        return;
    };
    let [first, second] = &parts[..] else {
        return;
    };
    let cols = whole.shape[1];
    let keys = net.keys() * cols;
    // Parts of equally many heads each, in the order of a group.
    let is_wide = first.len() > second.len();
    let pieces = match is_wide {
        true => vec![
            first.start..first.start + keys,
            first.start + keys..first.start + 2 * keys,
            first.start + 2 * keys..first.end,
            second.clone(),
        ],
        false => vec![first.clone(), second.clone()],
    };
    let of_group = |group: usize| {
        pieces.iter().map(move |piece| {
            let len = piece.len() / net.n_key_head;
            let start = piece.start + group * len;
            start..start + len
        })
    };
    whole.values = Values::Own((0..net.n_key_head).flat_map(of_group).collect());
}
