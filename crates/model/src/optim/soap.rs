//! SOAP: Adam in the eigenbases of each matrix's gradient statistics.

use super::host_state::{HostState, open, rates, state_is_held};
use super::{Group, StatePart, TensorNorms, UpdateRule, groups};
use crate::base::registry::Entry;
use crate::kernels::soap::{self, Scratch, Shape};
use crate::kernels::tensors::Tensors;
use crate::nn::role::{AttentionRole, MixerRole};
use crate::nn::{ParamInfo, Params, Role};
use candle_core::Result;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "soap",
    title: "SOAP",
    summary: "Adam in the eigenbasis of each matrix's gradients: fewer but more expensive steps, several times the state.",
    source: "Vyas et al. 2024, arXiv 2409.11321",
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Peak learning rate. The first update only initializes the eigenbases.
    #[schemars(range(max = 10.0), extend("exclusiveMinimum" = 0.0))]
    pub lr: f64,
    /// Decay of the gradient's running mean.
    #[schemars(range(min = 0.0, max = 0.999999))]
    pub beta1: f64,
    /// Decay of the squared gradient's running mean, in the bases.
    #[schemars(range(min = 0.0, max = 0.999999))]
    pub beta2: f64,
    /// Decay of the Gram matrices. Default: beta2.
    #[schemars(range(min = 0.0, max = 0.999999))]
    pub shampoo_beta: Option<f64>,
    /// Added to the denominator; at least 1e-20.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub eps: f64,
    /// Updates between eigenbasis refreshes.
    #[schemars(range(min = 1, max = 100000))]
    pub every: u64,
    /// Longer sides of a matrix get no eigenbasis. The paper's code has 10,000; a basis of n costs 8 n² bytes, and n³ time.
    #[schemars(range(min = 1, max = 100000))]
    pub max_dim: usize,
    /// Decoupled weight decay, applied to matrices and embeddings; never to norms and biases.
    #[schemars(range(min = 0.0, max = 10.0))]
    pub weight_decay: f64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            lr: 3e-3,
            beta1: 0.95,
            beta2: 0.95,
            shampoo_beta: None,
            eps: 1e-8,
            every: 10,
            max_dim: 2048,
            weight_decay: 0.01,
        }
    }
}

impl Config {
    /// The sides of a parameter that have a basis.
    fn shape(&self, info: &ParamInfo) -> Shape {
        let blocks = match info.role {
            Role::Attention(AttentionRole::QueryKeyValue) => 3,
            _ => 1,
        };
        match info.shape[..] {
            // Each channel of a convolution has weights of its own: those are no matrix.
            _ if info.role == Role::Mixer(MixerRole::Conv) => Shape::plain(info.len),
            [rows, cols] => {
                let blocks = if rows % blocks == 0 { blocks } else { 1 };
                let sides = [rows / blocks, cols].map(|n| n <= self.max_dim);
                Shape {
                    rows,
                    cols,
                    blocks,
                    sides,
                }
            }
            _ => Shape::plain(info.len),
        }
    }
}

impl super::Optimizer for Config {
    rates!();

    fn state_summary(&self) -> &'static str {
        "f32 moments, Gram matrices and bases"
    }

    fn epsilon(&self) -> Option<super::Epsilon> {
        Some(super::Epsilon::of_root("eps", self.eps))
    }

    fn rate_scale(&self) -> super::RateScale {
        super::RateScale::Elements
    }

    /// A gradient has few large elements in its own bases, and an update changes little besides them. Measured on one batch.
    fn over_adamw(&self) -> f64 {
        3.0
    }

    fn state_bytes(&self, infos: &[ParamInfo]) -> u64 {
        let trained = infos.iter().filter(|info| info.trains());
        let len = |info: &ParamInfo| info.len + self.shape(info).basis_len();
        trained
            .map(|info| (2 * len(info) * size_of::<f32>()) as u64)
            .sum()
    }

    fn build_grouped(&self, params: &Params, groups: &[Group]) -> Result<Box<dyn UpdateRule>> {
        let shapes: Vec<_> = params.trainable().map(|info| self.shape(info)).collect();
        let n = params.n_trainable();
        let bases = shapes.iter().map(Shape::basis_len).sum();
        let buffers = [(MEAN, n), (SQUARE, n), (GRAM, bases), (BASIS, bases)];
        Ok(Box::new(Soap {
            config: self.clone(),
            held: HostState::new("soap", &buffers, &[STEPS]),
            tensors: Tensors::new(groups::parts(params, groups)?),
            shapes,
            scratch: Scratch::default(),
        }))
    }
}

/// The rule with its state.
struct Soap {
    config: Config,
    held: HostState,
    tensors: Tensors,
    /// The shape of each part.
    shapes: Vec<Shape>,
    scratch: Scratch,
}

const STEPS: &str = "soap.steps";
const MEAN: &str = "soap.mean";
const SQUARE: &str = "soap.square";
const GRAM: &str = "soap.gram";
const BASIS: &str = "soap.basis";

impl UpdateRule for Soap {
    fn step(&mut self, params: &mut Params, lr: f64, grad_scale: f64) -> Result<()> {
        let config = &self.config;
        *self.held.counter(0) += 1;
        let rule = soap::Rule {
            lr,
            beta1: config.beta1,
            beta2: config.beta2,
            shampoo_beta: config.shampoo_beta.unwrap_or(config.beta2),
            eps: config.eps,
            every: config.every,
            grad_scale,
            step: *self.held.counter(0),
        };
        let [mean, square, mut gram, mut basis] = self.held.buffers()?;
        groups::check_len("soap", params, mean.len())?;
        let (shapes, scratch) = (&self.shapes, &mut self.scratch);
        let tensors = &mut self.tensors;
        open(params, |weights, grads| {
            tensors.update(weights, grads, |number, part, weights, grads| {
                let (shape, own) = (shapes[number], part.grads..part.grads + part.len);
                let len = shape.basis_len();
                let (own_gram, rest) = std::mem::take(&mut gram).split_at_mut(len);
                gram = rest;
                let (own_basis, rest) = std::mem::take(&mut basis).split_at_mut(len);
                basis = rest;
                let state = soap::State {
                    mean: &mut mean[own.clone()],
                    square: &mut square[own],
                    gram: own_gram,
                    basis: own_basis,
                };
                soap::update(&rule, (part, shape), weights, grads, state, scratch);
            });
        })
    }

    fn last_norms(&self) -> &[TensorNorms] {
        self.tensors.norms()
    }

    state_is_held!();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optim::Optimizer;
    use crate::optim::tests::model;

    #[test]
    fn long_sides_have_no_basis_and_queries_keys_and_values_one_each() {
        let model = model();
        let infos = model.params().infos();
        let config = Config {
            max_dim: 8,
            ..Config::default()
        };
        let named = |name: &str| infos.iter().find(|i| i.name.contains(name)).unwrap();
        let c_attn = config.shape(named("c_attn.weight"));
        assert_eq!((c_attn.blocks, c_attn.sides), (3, [true; 2]));
        assert_eq!(config.shape(named("mlp.c_fc.weight")).sides, [false, true]);
        assert_eq!(config.shape(named("ln_1.weight")).basis_len(), 0);
        let all = Config::default();
        assert!(all.state_bytes(infos) > config.state_bytes(infos));
    }
}
