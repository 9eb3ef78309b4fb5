//! The keys of experts in several families, and experts in files that hold all of a block in one tensor.

use super::super::keys::Keys;
use super::super::tensors::DiskTensor;
use crate::nn::{ModelConfig, MoeConfig};
use serde_json::{Value, json};

/// Defaults of a family's absent keys.
#[derive(Debug, Clone, Copy)]
pub struct Experts {
    pub n_expert: usize,
    pub top_k: usize,
    pub d_ff: usize,
    /// Width of the shared expert, which has a gate; `None`: the family has none.
    pub shared: Option<usize>,
    /// `norm_topk_prob`; `None`: the family has no such key and always normalizes.
    pub norm_topk: Option<bool>,
    /// Whether some blocks may have no experts.
    pub some_dense: bool,
}

const WIDTH: &str = "moe_intermediate_size";
const SHARED: &str = "shared_expert_intermediate_size";
const NORM: &str = "norm_topk_prob";
const EVERY: &str = "decoder_sparse_step";
const DENSE: &str = "mlp_only_layers";

impl Experts {
    /// The experts of a model of so many blocks.
    ///
    /// # Errors
    /// A key of another type.
    pub fn read(self, keys: &Keys, n_layer: usize) -> Result<MoeConfig, String> {
        let size = |key, default| Ok::<_, String>(keys.size(key)?.unwrap_or(default));
        let old = keys.size("num_experts")?;
        let (every, dense_blocks) = match self.some_dense {
            true => blocks(keys, n_layer)?,
            false => {
                keys.only(EVERY, &json!(1))?;
                keys.only(DENSE, &json!([]))?;
                (1, None)
            }
        };
        if self.norm_topk.is_none() {
            keys.only(NORM, &json!(true))?;
        }
        Ok(MoeConfig {
            n_expert: keys
                .size("num_local_experts")?
                .or(old)
                .unwrap_or(self.n_expert),
            top_k: size("num_experts_per_tok", self.top_k)?,
            d_ff: Some(size(WIDTH, self.d_ff)?),
            norm_topk: match self.norm_topk {
                Some(default) => keys.flag(NORM, default)?,
                None => true,
            },
            shared_d_ff: match self.shared {
                Some(default) => Some(size(SHARED, default)?),
                None => None,
            },
            shared_gate: self.shared.is_some(),
            aux_loss_coef: keys.number("router_aux_loss_coef")?.unwrap_or(0.001),
            z_loss_coef: 0.0,
            every,
            dense_blocks,
            ..MoeConfig::default()
        })
    }

    /// Their keys for a canonical config.
    pub fn write(self, config: &ModelConfig, value: &mut Value) {
        let Some(moe) = &config.moe else {
            return;
        };
        value["num_experts"] = json!(moe.n_expert);
        value["num_experts_per_tok"] = json!(moe.top_k);
        value[WIDTH] = json!(moe.d_ff);
        value["router_aux_loss_coef"] = json!(moe.aux_loss_coef);
        if self.shared.is_some() {
            // What the model does not have shows when it is read.
            value[SHARED] = json!(moe.shared_d_ff.unwrap_or(1));
        }
        if self.norm_topk.is_some() {
            value[NORM] = json!(moe.norm_topk);
        }
        if self.some_dense {
            value[EVERY] = json!(moe.every);
            value[DENSE] = json!(moe.dense_blocks.clone().unwrap_or_default());
        }
    }
}

/// The experts of Mixtral and Granite: in every block, of the width of the model's feed-forward blocks. A softmax of the chosen logits
/// alone is that of all, normalized.
///
/// # Errors
/// A key of another type.
pub fn everywhere(keys: &Keys, config: &ModelConfig) -> Result<MoeConfig, String> {
    Ok(MoeConfig {
        n_expert: keys.size("num_local_experts")?.unwrap_or(8),
        top_k: keys.size("num_experts_per_tok")?.unwrap_or(2),
        d_ff: config.d_ff,
        norm_topk: true,
        aux_loss_coef: keys.number("router_aux_loss_coef")?.unwrap_or(0.001),
        z_loss_coef: 0.0,
        ..MoeConfig::default()
    })
}

/// Their keys for a canonical config.
pub fn write_everywhere(config: &ModelConfig, value: &mut Value) {
    if let Some(moe) = &config.moe {
        value["num_local_experts"] = json!(moe.n_expert);
        value["num_experts_per_tok"] = json!(moe.top_k);
        value["intermediate_size"] = json!(moe.d_ff);
        value["router_aux_loss_coef"] = json!(moe.aux_loss_coef);
    }
}

/// (every, dense_blocks): experts are in every n-th block, but for those of a list.
fn blocks(keys: &Keys, n_layer: usize) -> Result<(usize, Option<Vec<usize>>), String> {
    let every = keys.size(EVERY)?.unwrap_or(1);
    let dense = keys.numbers(DENSE)?.unwrap_or_default();
    let has = |layer: usize| (layer + 1).is_multiple_of(every) && !dense.contains(&(layer as f64));
    Ok(MoeConfig::blocks_of(n_layer, has))
}

/// The tensors of a file that holds the experts of a block together (Granite; the published Qwen 3.5): gate and up projections of
/// all as one (experts, 2 · width, D), down projections as another (experts, D, width). Names of tensors are those of single
/// experts; `names` are the ends that the two have after `mlp.`.
pub fn stacked(tensors: Vec<DiskTensor>, names: [&str; 2]) -> Vec<DiskTensor> {
    let mut found: Vec<DiskTensor> = Vec::new();
    // Each stack is two places in `found`; its first expert opens it.
    let mut counts: Vec<(usize, usize)> = Vec::new();
    for tensor in tensors {
        let Some((stem, part)) = of_expert(&tensor.name) else {
            found.push(tensor);
            continue;
        };
        let name = format!("{stem}.mlp.{}", names[usize::from(part == "down_proj")]);
        match found.iter().rposition(|other| other.name == name) {
            Some(at) => {
                found[at].append(tensor);
                if let Some((_, n)) = counts.iter_mut().find(|(place, _)| *place == at) {
                    *n += usize::from(part != "up_proj");
                }
            }
            None => {
                counts.push((found.len(), usize::from(part != "up_proj")));
                found.push(tensor.named(name));
            }
        }
    }
    for (at, n) in counts {
        let tensor = found[at].clone().stacked(n);
        found[at] = tensor;
    }
    found
}

/// `X.mlp.experts.7.up_proj.weight` → (X, up_proj).
fn of_expert(name: &str) -> Option<(String, String)> {
    let (stem, rest) = name.split_once(".mlp.experts.")?;
    let (_, part) = rest.split_once('.')?;
    Some((stem.into(), part.strip_suffix(".weight")?.into()))
}

/// The ends of their names in the published files of Qwen 3.5.
pub const TOGETHER: [&str; 2] = ["experts.gate_up_proj", "experts.down_proj"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::param_infos;

    #[test]
    fn experts_of_a_block_are_stacked_gate_and_up_together() {
        let says = json!({"n_layer": 2, "d_model": 8, "n_head": 2, "norm": {"rmsnorm": {}}, "mlp": {"swiglu": {}},
            "position": {"rope": {}}, "moe": {"n_expert": 3, "d_ff": 4, "shared_d_ff": 6}});
        let config: ModelConfig = serde_json::from_value(says).unwrap();
        let own = super::super::one_by_one(&param_infos(&config, 5));
        let all: usize = own.iter().map(DiskTensor::len).sum();
        let found = stacked(own.clone(), TOGETHER);
        assert_eq!(found.iter().map(DiskTensor::len).sum::<usize>(), all);
        let shape = |name: &str| {
            let name = format!("model.layers.1.mlp.{name}");
            let tensor = found.iter().find(|tensor| tensor.name == name);
            tensor.map(|tensor| tensor.shape.clone())
        };
        assert_eq!(shape("experts.gate_up_proj"), Some(vec![3, 8, 8]));
        assert_eq!(shape("experts.down_proj"), Some(vec![3, 8, 4]));
        assert_eq!(shape("shared_expert.up_proj.weight"), Some(vec![6, 8]));
        assert_eq!(shape("experts.0.up_proj.weight"), None);
        // In the order of the file: gate and up of the first expert, then of the next.
        let of = |name: &str| {
            let tensor = own.iter().find(|tensor| tensor.name.ends_with(name));
            tensor.unwrap().values.clone()
        };
        let first = found
            .iter()
            .find(|t| t.name.ends_with(TOGETHER[0]))
            .unwrap();
        let super::super::super::tensors::Values::Own(ranges) = &first.values else {
            panic!("{first:?}");
        };
        for (range, name) in ranges.iter().zip([
            "experts.0.gate_proj.weight",
            "experts.0.up_proj.weight",
            "experts.1.gate_proj.weight",
        ]) {
            let range = super::super::super::tensors::Values::Own(vec![range.clone()]);
            assert_eq!(range, of(name));
        }
    }
}
