//! Which parameters train: adapters, or all but those that are frozen by name: by part of the model, or by patterns of module names.

use super::adapter::{AdapterConfig, is_named};
use super::config::{ModelConfig, ModelShape};
use super::layout::{Layout, Parts};
use super::params::ParamInfo;
use super::role::{Role, Site};

/// Names of parts; anything else is a pattern. A bias is frozen with its matrix.
pub const PARTS: [&str; 9] = [
    "embeddings",
    "positions",
    "attention",
    "mixer",
    "mlp",
    "experts",
    "router",
    "norms",
    "head",
];

/// Whether one of the names or patterns selects this parameter.
pub fn is_frozen(info: &ParamInfo, names: &[String]) -> bool {
    names.iter().any(|name| names_it(info, name))
}

fn names_it(info: &ParamInfo, name: &str) -> bool {
    match name {
        // One parameter if the two are tied.
        "embeddings" => info.role == Role::Embedding,
        "positions" => info.role == Role::Position,
        "attention" => matches!(info.role, Role::Attention(_) | Role::Bias(Site::Attention)),
        "mixer" => matches!(info.role, Role::Mixer(_) | Role::Bias(Site::Mixer)),
        "mlp" => is_mlp(info) && info.expert.is_none(),
        "experts" => is_mlp(info) && info.expert.is_some(),
        "router" => matches!(info.role, Role::Router | Role::Bias(Site::Router)),
        "norms" => matches!(info.role, Role::Norm | Role::Bias(Site::Norm)),
        "head" => info.role == Role::Head,
        pattern => {
            let module = info.module();
            let module = module.strip_suffix(".bias").unwrap_or(module);
            is_named(module, std::slice::from_ref(&pattern))
        }
    }
}

fn is_mlp(info: &ParamInfo) -> bool {
    matches!(info.role, Role::Mlp(_) | Role::Bias(Site::Mlp))
}

/// The parameters of a model, without creating it; `vocab_size` is the tokenizer's, used if the config has none.
pub fn param_infos(config: &ModelConfig, vocab_size: usize) -> Vec<ParamInfo> {
    param_infos_of(config, vocab_size, TrainableSet::default())
}

/// What of a model trains: adapters and what these name, or everything but what is frozen by name.
#[derive(Debug, Clone, Copy, Default)]
pub struct TrainableSet<'a> {
    pub adapter: Option<&'a AdapterConfig>,
    /// Words and patterns as [`is_frozen`] reads them; without effect beside adapters, which freeze all.
    pub frozen: &'a [String],
}

impl<'a> TrainableSet<'a> {
    /// What trains with these adapters; everything without any.
    pub fn with(adapter: Option<&'a AdapterConfig>) -> TrainableSet<'a> {
        TrainableSet {
            adapter,
            frozen: &[],
        }
    }

    /// Whether this parameter trains. The head of a score and a value head do beside adapters: nobody has trained them before.
    fn holds(self, info: &ParamInfo, config: &ModelConfig) -> bool {
        let Some(adapter) = self.adapter else {
            return !is_frozen(info, self.frozen);
        };
        let fresh_head = info.role == Role::Head && config.is_reward_model();
        let is_fresh = fresh_head || info.role == Role::Value;
        info.role.is_adapter() || adapter.trains_whole(info.role) || is_fresh
    }
}

/// The same with the parameters of adapters after them, and which of all train.
pub fn param_infos_of(
    config: &ModelConfig,
    vocab_size: usize,
    trained: TrainableSet,
) -> Vec<ParamInfo> {
    Layout::trained(config, &config.shape(vocab_size), trained).infos
}

impl Layout {
    /// The model with its adapters, if any, and what of it trains.
    pub fn trained(config: &ModelConfig, shape: &ModelShape, trained: TrainableSet) -> Layout {
        let parts = Parts {
            adapter: trained.adapter,
            trains: &|info| trained.holds(info, config),
        };
        Layout::of(config, shape, parts).0
    }
}

/// What is wrong with these names for this model, and the fix.
pub fn freeze_fault(config: &ModelConfig, names: &[String]) -> Option<(String, String)> {
    let trains = |info: &ParamInfo| !is_frozen(info, names);
    let parts = Parts {
        adapter: None,
        trains: &trains,
    };
    let (layout, mixed) = Layout::of(config, &config.shape(1), parts);
    let infos = &layout.infos;
    if let Some(name) = names
        .iter()
        .find(|name| !infos.iter().any(|info| names_it(info, name)))
    {
        let modules = infos.iter().find(|info| info.layer.is_some());
        let example = modules.map_or("", |info| info.module());
        return Some((
            format!("{name:?} names no parameter of this model"),
            format!(
                "one of {}, or a pattern of module names such as {example} or layers.0.*",
                PARTS.join(", ")
            ),
        ));
    }
    if !infos.iter().any(ParamInfo::trains) {
        return Some((
            "all parameters are frozen: there is nothing to train".into(),
            "name fewer parts".into(),
        ));
    }
    (!mixed.is_empty()).then(|| {
        let mut mixed = mixed;
        mixed.dedup();
        mixed.truncate(4);
        (
            format!("these train together or not at all: {}", mixed.join(", ")),
            "name all of them: q, k and v of a block, gate and up, all in_proj of a mixer, all experts of a block (a shared one is not among them)".into(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::{Model, param_infos};
    use candle_core::Device;
    use serde_json::json;

    fn experts() -> ModelConfig {
        serde_json::from_value(json!({
            "n_layer": 2, "n_head": 2, "d_model": 8, "seq_len": 8, "norm": {"rmsnorm": {}},
            "mlp": {"swiglu": {}}, "position": {"rope": {}}, "tie_embeddings": false,
            "moe": {"n_expert": 4, "top_k": 2, "d_ff": 8, "balancing": {"bias": {"rate": 0.1}}},
        }))
        .unwrap()
    }

    fn frozen(config: &ModelConfig, names: &[&str]) -> Vec<String> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        assert_eq!(freeze_fault(config, &names), None, "{names:?}");
        let infos = param_infos(config, 5).into_iter();
        let found = infos.filter(|info| is_frozen(info, &names));
        found.map(|info| info.name).collect()
    }

    #[test]
    fn routers_and_experts_are_selected_by_part_and_by_pattern() {
        let config = experts();
        let routers = frozen(&config, &["router"]);
        assert!(routers.len() >= 2 && routers.iter().all(|name| name.contains("gate")));
        let all = frozen(&config, &["experts"]);
        assert_eq!(all.len(), 2 * 4 * 3);
        assert!(all.iter().all(|name| name.contains("experts")));
        let one = frozen(&config, &["layers.1.*.experts.*"]);
        assert_eq!(one.len(), 4 * 3, "{one:?}");
        assert!(one.iter().all(|name| all.contains(name)));
    }

    /// The balancing rule updates biases without a gradient; those of a frozen router must not change.
    #[test]
    fn a_frozen_router_keeps_its_balancing_biases_and_its_matrix() {
        let config = experts();
        let mut model = Model::new(&config, 5, &Device::Cpu).unwrap();
        model.init(1).unwrap();
        let names = ["router".to_string()];
        model.train_only(|info| !is_frozen(info, &names)).unwrap();
        let routers = |model: &Model| -> Vec<f32> {
            let infos = model.params().infos().iter();
            let routers = infos.filter(|info| info.role == Role::Router);
            let weights = routers.map(|info| model.params().weight(info).unwrap());
            weights
                .flat_map(|w| w.flatten_all().unwrap().to_vec1::<f32>().unwrap())
                .collect()
        };
        let before = routers(&model);
        let (inputs, targets) = ([0, 1, 2, 3], [1, 2, 3, 4]);
        let batch = crate::nn::TokenBatch {
            inputs: &inputs,
            targets: &targets,
            batch_size: 1,
            seq_len: 4,
            first: None,
            temperature: 1.0,
            filled: None,
        };
        model.begin_step().unwrap();
        let dlogp = [-0.25; 4];
        model.accumulate_linear(&batch, &dlogp, |_| 0.0).unwrap();
        let grads = model.params().read_grads(<[f32]>::to_vec).unwrap();
        assert!(grads.iter().any(|x| *x != 0.0));
        model.end_step().unwrap();
        assert_eq!(routers(&model), before);
    }

    #[test]
    fn names_of_nothing_of_everything_and_of_fused_parts_are_rejected() {
        let config = experts();
        let fault = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            freeze_fault(&config, &names).unwrap().0
        };
        assert!(fault(&["mlp"]).contains("names no parameter"));
        assert!(fault(&["*"]).contains("nothing to train"));
        assert!(fault(&["q_proj"]).contains("together"));
        assert!(fault(&["experts.0.*"]).contains("together"));
        let delta: ModelConfig = serde_json::from_value(json!({
            "n_layer": 2, "mixer": {"gated_delta_net": {}}, "attention_every": 2,
        }))
        .unwrap();
        let names = ["in_proj_a".to_string()];
        let (what, hint) = freeze_fault(&delta, &names).unwrap();
        assert!(
            what.contains("together") && what.contains("in_proj_qkv"),
            "{what}"
        );
        assert!(hint.contains("in_proj of a mixer"), "{hint}");
    }
}
