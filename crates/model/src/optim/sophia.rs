//! Sophia-G: the gradient's moving average divided by an estimate of the diagonal Hessian, clipped element by element. The
//! estimate is the squared gradient on labels sampled from the model (Gauss–Newton–Bartlett), every few updates.

use super::host_state::{HostState, open, rates, state_is_held};
use super::{Group, StatePart, TensorNorms, UpdateRule, groups};
use crate::base::registry::Entry;
use crate::kernels::tensors::Tensors;
use crate::kernels::{flat, sophia};
use crate::nn::{ParamInfo, Params};
use candle_core::Result;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "sophia",
    title: "Sophia",
    summary: "Updates divided by the curvature and clipped; every tenth update costs two. For pretrain and sft.",
    source: "Liu et al. 2023, arXiv 2305.14342",
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Peak learning rate: no weight changes by more than lr. About AdamW's, or slightly lower.
    #[schemars(range(max = 10.0), extend("exclusiveMinimum" = 0.0))]
    pub lr: f64,
    /// Decay of the gradient's running mean.
    #[schemars(range(min = 0.0, max = 0.999999))]
    pub beta1: f64,
    /// Decay of the curvature's running mean.
    #[schemars(range(min = 0.0, max = 0.999999))]
    pub beta2: f64,
    /// The mean is divided by this times the curvature. Larger values clip fewer elements; 10 to 50 % unclipped is healthy.
    #[schemars(range(min = 1e-9, max = 1000.0))]
    pub rho: f64,
    /// Updates between two estimates of the curvature.
    #[schemars(range(min = 1, max = 100000))]
    pub every: u64,
    /// Decoupled weight decay, about twice AdamW's; applied to matrices and embeddings, never to norms and biases.
    #[schemars(range(min = 0.0, max = 10.0))]
    pub weight_decay: f64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            lr: 3e-4,
            beta1: 0.965,
            beta2: 0.99,
            rho: 0.04,
            every: 10,
            weight_decay: 0.2,
        }
    }
}

impl super::Optimizer for Config {
    rates!();

    fn state_summary(&self) -> &'static str {
        "f32 mean and curvature"
    }

    fn rate_scale(&self) -> super::RateScale {
        super::RateScale::AdamW
    }

    fn state_bytes(&self, infos: &[ParamInfo]) -> u64 {
        2 * groups::trained_bytes(infos)
    }

    fn needs_curvature(&self) -> bool {
        true
    }

    fn build_grouped(&self, params: &Params, groups: &[Group]) -> Result<Box<dyn UpdateRule>> {
        let n = params.n_trainable();
        let buffers = [(MEAN, n), (CURVATURE, n)];
        Ok(Box::new(Sophia {
            config: self.clone(),
            held: HostState::new("sophia", &buffers, &[STEPS, TAKEN]),
            tensors: Tensors::new(groups::parts(params, groups)?),
            free: (0, 0),
        }))
    }
}

/// The rule with its means.
struct Sophia {
    config: Config,
    held: HostState,
    tensors: Tensors,
    /// Elements that the last update did not clip, and all of them.
    free: (usize, usize),
}

const STEPS: &str = "sophia.steps";
/// Update count at the last curvature estimate.
const TAKEN: &str = "sophia.taken";
const MEAN: &str = "sophia.mean";
const CURVATURE: &str = "sophia.curvature";

impl UpdateRule for Sophia {
    fn step(&mut self, params: &mut Params, lr: f64, grad_scale: f64) -> Result<()> {
        *self.held.counter(0) += 1;
        let rule = sophia::Rule {
            lr,
            beta1: self.config.beta1,
            rho: self.config.rho,
            grad_scale,
        };
        let [mean, curvature] = self.held.buffers()?;
        groups::check_len("sophia", params, mean.len())?;
        let (tensors, free) = (&mut self.tensors, &mut self.free);
        *free = (0, 0);
        open(params, |weights, grads| {
            tensors.update(weights, grads, |_, part, weights, grads| {
                let own = part.grads..part.grads + part.len;
                let state = (&mut mean[own.clone()], &curvature[own]);
                free.0 += sophia::update(&rule, part, weights, grads, state);
                free.1 += part.len;
            });
        })
    }

    fn wants_curvature(&mut self) -> bool {
        let (steps, taken) = (*self.held.counter(0), *self.held.counter(1));
        steps > 0 && steps.is_multiple_of(self.config.every) && steps != taken
    }

    fn take_curvature(&mut self, params: &Params, labels: f64) -> Result<()> {
        *self.held.counter(1) = *self.held.counter(0);
        let beta2 = self.config.beta2;
        let [_, curvature] = self.held.buffers()?;
        flat::read(params.grads()?, |grads| {
            sophia::follow(beta2, labels, grads, curvature);
        })
    }

    fn last_norms(&self) -> &[TensorNorms] {
        self.tensors.norms()
    }

    fn mean_gradient(&self) -> Option<&'static str> {
        Some(MEAN)
    }

    fn unclipped(&self) -> Option<f64> {
        let (free, all) = self.free;
        (all > 0).then(|| free as f64 / all as f64)
    }

    state_is_held!();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optim::Optimizer;
    use crate::optim::tests::{model, update};

    #[test]
    fn the_curvature_is_requested_once_per_interval() {
        let mut model = model();
        let config = Config {
            every: 3,
            ..Config::default()
        };
        let mut rule = config.build(model.params()).unwrap();
        let mut wanted = Vec::new();
        for step in 0..7 {
            if rule.wants_curvature() {
                wanted.push(step);
                rule.take_curvature(model.params(), 8.0).unwrap();
                assert!(!rule.wants_curvature());
            }
            update(&mut model, &mut *rule, step..step + 1);
        }
        assert_eq!(wanted, [3, 6]);
    }

    /// Without an estimate of the curvature every element that moves is clipped; with a small ρ·h none is.
    #[test]
    fn the_share_of_unclipped_elements_is_that_of_the_last_update() {
        let share = |rho: f64| {
            let mut model = model();
            let config = Config {
                every: 1,
                rho,
                ..Config::default()
            };
            let mut rule = config.build(model.params()).unwrap();
            assert_eq!(rule.unclipped(), None);
            update(&mut model, &mut *rule, 0..1);
            let first = rule.unclipped().unwrap();
            rule.take_curvature(model.params(), 8.0).unwrap();
            update(&mut model, &mut *rule, 1..2);
            (first, rule.unclipped().unwrap())
        };
        let (first, tight) = share(1e-9);
        let (_, loose) = share(1e9);
        // Only rows that no token met do not move.
        assert!(first < 0.9 && tight < 0.9, "{first} {tight}");
        assert!(loose > 0.99, "{loose}");
    }
}
