//! Muon: orthogonalized momentum for hidden matrices; AdamW for embeddings, head, norms and biases.

use super::host_state::{HostState, open, rates, state_is_held};
use super::{Group, StatePart, TensorNorms, UpdateRule, groups};
use crate::base::registry::Entry;
use crate::kernels::matmul::ComputeDtype;
use crate::kernels::muon::Scratch;
use crate::kernels::tensors::Tensors;
use crate::kernels::{adamw, muon};
use crate::nn::role::{AttentionRole, MixerRole};
use crate::nn::{ParamInfo, Params, Role};
use candle_core::Result;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "muon",
    title: "Muon",
    summary: "Orthogonalized updates for hidden matrices, AdamW for the rest: fewer steps, half the state.",
    source: "Jordan et al. 2024, kellerjordan.github.io/posts/muon",
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Peak learning rate of hidden matrices: about 0.02 with the original scale, AdamW's with match_rms.
    #[schemars(range(max = 10.0), extend("exclusiveMinimum" = 0.0))]
    pub lr: f64,
    /// Decay of the momentum.
    #[schemars(range(min = 0.0, max = 0.999999))]
    pub momentum: f64,
    /// Nesterov momentum.
    pub nesterov: bool,
    /// Scale of an orthogonalized update.
    pub scale: Scale,
    /// Newton–Schulz iterations, in the run's precision.
    #[schemars(range(min = 1, max = 20))]
    pub iterations: usize,
    /// AdamW's learning rate relative to lr. Default: 0.1 with the original scale, 1 with match_rms.
    #[schemars(range(min = 0.0, max = 10.0))]
    pub adamw_lr_scale: Option<f64>,
    /// AdamW's decay of the gradient's running mean.
    #[schemars(range(min = 0.0, max = 0.999999))]
    pub adamw_beta1: f64,
    /// AdamW's decay of the squared gradient's running mean.
    #[schemars(range(min = 0.0, max = 0.999999))]
    pub adamw_beta2: f64,
    /// Added to AdamW's denominator; at least 1e-20.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub adamw_eps: f64,
    /// Decoupled weight decay, applied to matrices and embeddings; never to norms and biases.
    #[schemars(range(min = 0.0, max = 10.0))]
    pub weight_decay: f64,
}

/// What an orthogonal step (rows, cols) is multiplied by before the learning rate.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// match_rms up to a learning rate of 2e-3, original above.
    #[default]
    Auto,
    /// √max(1, rows / cols).
    Original,
    /// 0.2 · √max(rows, cols): steps as large as AdamW's, so that its learning rates fit.
    MatchRms,
}

/// Up to this learning rate `auto` assumes one chosen for AdamW.
const RATES_OF_ADAMW: f64 = 2e-3;

impl Default for Config {
    fn default() -> Self {
        Config {
            lr: 0.02,
            momentum: 0.95,
            nesterov: true,
            scale: Scale::Auto,
            iterations: 5,
            adamw_lr_scale: None,
            adamw_beta1: 0.9,
            adamw_beta2: 0.95,
            adamw_eps: 1e-8,
            weight_decay: 0.01,
        }
    }
}

impl Config {
    fn scale(&self) -> muon::Scale {
        match self.scale {
            Scale::Auto if self.lr <= RATES_OF_ADAMW => muon::Scale::MatchRms,
            Scale::MatchRms => muon::Scale::MatchRms,
            Scale::Auto | Scale::Original => muon::Scale::Original,
        }
    }

    fn adamw_lr_scale(&self) -> f64 {
        self.adamw_lr_scale.unwrap_or(match self.scale() {
            muon::Scale::Original => 0.1,
            muon::Scale::MatchRms => 1.0,
        })
    }
}

/// The parameters updated by Muon: the matrices of attention, its replacements and feed-forward blocks, and their adapters.
fn shape(info: &ParamInfo) -> Option<muon::Shape> {
    let blocks = match info.role {
        Role::Attention(AttentionRole::QueryKeyValue) => 3,
        // Each channel of a convolution has weights of its own: those are no matrix.
        Role::Mixer(MixerRole::Conv) => return None,
        Role::Attention(_) | Role::Mixer(_) | Role::Mlp(_) | Role::Adapter(_) => 1,
        _ => return None,
    };
    match info.shape[..] {
        [rows, cols] if rows % blocks == 0 => Some(muon::Shape { rows, cols, blocks }),
        _ => None,
    }
}

impl super::Optimizer for Config {
    rates!();

    fn on_torch(&self) -> bool {
        true
    }

    fn for_ranks(&self) -> Option<serde_json::Map<String, serde_json::Value>> {
        let scale = match self.scale() {
            muon::Scale::Original => "original",
            muon::Scale::MatchRms => "match_rms",
        };
        let settings = serde_json::json!({
            "beta1": self.adamw_beta1, "beta2": self.adamw_beta2, "eps": self.adamw_eps, "adamw_lr_scale": self.adamw_lr_scale(),
            "momentum": self.momentum, "nesterov": self.nesterov, "iterations": self.iterations, "scale": scale,
        });
        settings.as_object().cloned()
    }

    fn blocks(&self, info: &ParamInfo) -> Option<usize> {
        shape(info).map(|shape| shape.blocks)
    }

    fn state_summary(&self) -> &'static str {
        "f32 moments"
    }

    fn epsilon(&self) -> Option<super::Epsilon> {
        Some(super::Epsilon::of_root("adamw_eps", self.adamw_eps))
    }

    fn rate_scale(&self) -> super::RateScale {
        super::RateScale::Matrices
    }

    /// An orthogonal step of the original scale has elements of about 1 / √(longer side), a tenth of AdamW's in usual widths.
    fn over_adamw(&self) -> f64 {
        match self.scale() {
            muon::Scale::Original => 10.0,
            muon::Scale::MatchRms => 1.0,
        }
    }

    fn state_bytes(&self, infos: &[ParamInfo]) -> u64 {
        let trained = infos.iter().filter(|info| info.trains());
        let moments = |info: &ParamInfo| if shape(info).is_some() { 1 } else { 2 };
        trained
            .map(|info| (moments(info) * info.len * size_of::<f32>()) as u64)
            .sum()
    }

    fn build_grouped(&self, params: &Params, groups: &[Group]) -> Result<Box<dyn UpdateRule>> {
        let shapes: Vec<_> = params.trainable().map(shape).collect();
        let kinds = params.trainable().zip(&shapes);
        let by_adamw = kinds.filter(|(_, shape)| shape.is_none());
        let n_square = by_adamw.map(|(info, _)| info.len).sum();
        let buffers = [(MEAN, params.n_trainable()), (SQUARE, n_square)];
        Ok(Box::new(Muon {
            config: self.clone(),
            held: HostState::new("muon", &buffers, &[STEPS]),
            tensors: Tensors::new(groups::parts(params, groups)?),
            shapes,
            arithmetic: ComputeDtype::F32,
            scratch: Scratch::default(),
        }))
    }
}

/// The rule with its moments.
struct Muon {
    config: Config,
    /// Means as long as the gradients; squares for AdamW's parameters.
    held: HostState,
    tensors: Tensors,
    /// The shape of each part; `None` for AdamW's.
    shapes: Vec<Option<muon::Shape>>,
    arithmetic: ComputeDtype,
    scratch: Scratch,
}

const STEPS: &str = "muon.steps";
const MEAN: &str = "muon.mean";
const SQUARE: &str = "muon.square";

impl UpdateRule for Muon {
    fn step(&mut self, params: &mut Params, lr: f64, grad_scale: f64) -> Result<()> {
        let config = &self.config;
        *self.held.counter(0) += 1;
        let by_adamw = adamw::Rule {
            lr: lr * config.adamw_lr_scale(),
            beta1: config.adamw_beta1,
            beta2: config.adamw_beta2,
            eps: config.adamw_eps,
            grad_scale,
            step: *self.held.counter(0),
        };
        let by_muon = muon::Rule {
            lr,
            momentum: config.momentum,
            nesterov: config.nesterov,
            iterations: config.iterations,
            arithmetic: self.arithmetic,
            grad_scale,
            scale: config.scale(),
        };
        let [mean, mut square] = self.held.buffers()?;
        groups::check_len("muon", params, mean.len())?;
        let (shapes, scratch) = (&self.shapes, &mut self.scratch);
        let tensors = &mut self.tensors;
        open(params, |weights, grads| {
            tensors.update(weights, grads, |number, part, weights, grads| {
                let mean = &mut mean[part.grads..part.grads + part.len];
                if let Some(shape) = shapes[number] {
                    muon::update(&by_muon, (part, shape), weights, grads, mean, scratch);
                } else {
                    let (own, rest) = std::mem::take(&mut square).split_at_mut(part.len);
                    square = rest;
                    adamw::tensor(&by_adamw, part, [weights, mean, own], grads);
                }
            });
        })
    }

    fn set_compute_dtype(&mut self, arithmetic: ComputeDtype) {
        self.arithmetic = arithmetic;
    }

    fn last_norms(&self) -> &[TensorNorms] {
        self.tensors.norms()
    }

    fn mean_gradient(&self) -> Option<&'static str> {
        Some(MEAN)
    }

    state_is_held!();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optim::tests::{model, update};
    use crate::optim::{Averaged, Optimizer};

    #[test]
    fn embeddings_head_norms_and_biases_are_adamws() {
        let model = model();
        let infos = model.params().infos();
        let by_muon = |info: &&ParamInfo| shape(info).is_some();
        let names: Vec<_> = infos.iter().filter(by_muon).map(|i| &i.name[..]).collect();
        assert_eq!(names.len(), 4, "{names:?}");
        assert!(
            names
                .iter()
                .all(|n| n.contains(".attn.c_") || n.contains(".mlp.c_"))
        );
        let c_attn = infos.iter().find(|i| i.name.contains("c_attn.weight"));
        assert_eq!(shape(c_attn.unwrap()).unwrap().blocks, 3);
    }

    #[test]
    fn the_scale_follows_the_learning_rate_unless_it_is_named() {
        let with = |lr, scale| Config {
            lr,
            scale,
            ..Config::default()
        };
        for (config, scale, rest) in [
            (with(0.02, Scale::Auto), muon::Scale::Original, 0.1),
            (with(1e-3, Scale::Auto), muon::Scale::MatchRms, 1.0),
            (with(1e-3, Scale::Original), muon::Scale::Original, 0.1),
        ] {
            assert_eq!(config.scale(), scale);
            assert_eq!(config.adamw_lr_scale(), rest);
        }
    }

    #[test]
    fn bf16_rounds_only_the_direction_of_hidden_matrices() {
        let after = |arithmetic| {
            let mut model = model();
            let rule = Config::default().build(model.params()).unwrap();
            let mut rule = Averaged::new(rule, 0.9, model.params());
            rule.set_compute_dtype(arithmetic);
            update(&mut model, &mut rule, 0..3);
            model.params().read_weights(<[f32]>::to_vec).unwrap()
        };
        let (exact, found) = (after(ComputeDtype::F32), after(ComputeDtype::Bf16));
        for info in model().params().infos() {
            let place = info.offset..info.offset + info.len;
            let (exact, found) = (&exact[place.clone()], &found[place]);
            assert_eq!(exact == found, shape(info).is_none(), "{}", info.name);
        }
    }

    #[test]
    fn an_unknown_part_is_rejected_by_name() {
        let model = model();
        let rule = Config::default().build(model.params()).unwrap();
        let error = rule.read_state("muon.men", &mut |_| ()).unwrap_err();
        assert!(error.to_string().contains("no `muon.men`"), "{error}");
    }
}
