//! Lion: the sign of a running mean of gradients. One moment, half of AdamW's state.

use super::host_state::rates;
use super::{Group, StatePart, TensorNorms, UpdateRule, groups};
use crate::base::registry::Entry;
use crate::kernels::update::Chunks;
use crate::kernels::{flat, lion, pages};
use crate::nn::{ParamInfo, Params};
use candle_core::{Result, Tensor, bail};
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "lion",
    title: "Lion",
    summary: "Sign of the momentum: half of AdamW's memory; needs a lower learning rate and more weight decay.",
    source: "Chen et al. 2023, arXiv 2302.06675",
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Peak learning rate: three to ten times below AdamW's, as every weight changes by ±lr.
    #[schemars(range(max = 10.0), extend("exclusiveMinimum" = 0.0))]
    pub lr: f64,
    /// Weight of the running mean in the update direction; the gradient has the rest.
    #[schemars(range(min = 0.0, max = 0.999999))]
    pub beta1: f64,
    /// Decay of the running mean.
    #[schemars(range(min = 0.0, max = 0.999999))]
    pub beta2: f64,
    /// Decoupled weight decay, three to ten times AdamW's; applied to matrices and embeddings, never to norms and biases.
    #[schemars(range(min = 0.0, max = 10.0))]
    pub weight_decay: f64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            lr: 1e-4,
            beta1: 0.9,
            beta2: 0.99,
            weight_decay: 0.3,
        }
    }
}

impl super::Optimizer for Config {
    rates!();

    fn on_torch(&self) -> bool {
        true
    }

    fn for_ranks(&self) -> Option<serde_json::Map<String, serde_json::Value>> {
        let settings = serde_json::json!({"beta1": self.beta1, "beta2": self.beta2});
        settings.as_object().cloned()
    }

    fn state_summary(&self) -> &'static str {
        "f32 moments"
    }

    fn rate_scale(&self) -> super::RateScale {
        super::RateScale::Elements
    }

    fn state_bytes(&self, infos: &[ParamInfo]) -> u64 {
        groups::trained_bytes(infos)
    }

    fn build_grouped(&self, params: &Params, groups: &[Group]) -> Result<Box<dyn UpdateRule>> {
        Ok(Box::new(Lion {
            config: self.clone(),
            mean: pages::written_zeros(params.n_trainable(), params.device())?,
            chunks: Chunks::new(groups::parts(params, groups)?),
        }))
    }
}

/// The rule with its moment.
struct Lion {
    config: Config,
    /// Flat like the gradients, f32.
    mean: Tensor,
    chunks: Chunks,
}

const MEAN: &str = "lion.mean";

impl UpdateRule for Lion {
    fn step(&mut self, params: &mut Params, lr: f64, grad_scale: f64) -> Result<()> {
        groups::check_len("lion", params, self.mean.elem_count())?;
        let rule = lion::Rule {
            lr,
            beta1: self.config.beta1,
            beta2: self.config.beta2,
            grad_scale,
        };
        let state = lion::State {
            weights: params.weights(),
            grads: params.grads()?,
            mean: &self.mean,
        };
        lion::update(&rule, &state, &mut self.chunks)
    }

    fn last_norms(&self) -> &[TensorNorms] {
        self.chunks.norms()
    }

    fn mean_gradient(&self) -> Option<&'static str> {
        Some(MEAN)
    }

    fn state(&self) -> Vec<StatePart> {
        let len = self.mean.elem_count();
        vec![StatePart { name: MEAN, len }]
    }

    fn read_state(&self, name: &str, read: &mut dyn FnMut(&[f32])) -> Result<()> {
        match name {
            MEAN => flat::read(&self.mean, read),
            other => bail!("lion: its state has no `{other}`"),
        }
    }

    fn write_state(&mut self, name: &str, write: &mut dyn FnMut(&mut [f32])) -> Result<()> {
        match name {
            MEAN => flat::write(&self.mean, write),
            other => bail!("lion: its state has no `{other}`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optim::Optimizer;
    use crate::optim::tests::model;

    /// One step by hand: u = sign(0.9 · 0 + 0.1 g), w ← w (1 − ηλ) − η u with η = 0.01 and λ = 0.1.
    #[test]
    fn the_first_step_is_the_known_one() {
        let mut model = model();
        let config = Config {
            weight_decay: 0.1,
            ..Config::default()
        };
        let params = model.params_mut();
        let first = params.infos()[0].clone();
        assert!(first.decay && first.len >= 3);
        let set = |to: &mut [f32], values: [f32; 3]| to[..3].copy_from_slice(&values);
        params.write_weights(|w| set(w, [1.0, 2.0, 3.0])).unwrap();
        params.write_grads(|g| set(g, [0.1, -0.2, 0.3])).unwrap();
        let mut rule = config.build(params).unwrap();
        rule.step(params, 0.01, 1.0).unwrap();
        let after = params.read_weights(|w| w[..3].to_vec()).unwrap();
        for (found, exact) in after.iter().zip([0.989, 2.008, 2.987]) {
            assert!((found - exact).abs() < 1e-6, "{found} for {exact}");
        }
    }

    /// Ten steps against the paper's algorithm, element by element in f64.
    #[test]
    fn several_steps_follow_the_papers_algorithm() {
        let mut model = model();
        let config = Config::default();
        let mut rule = config.build(model.params()).unwrap();
        let read = |model: &crate::nn::Model| {
            let wide = |w: &[f32]| w.iter().map(|w| f64::from(*w)).collect::<Vec<_>>();
            model.params().read_weights(wide).unwrap()
        };
        let mut exact = read(&model);
        let mut mean = vec![0.0_f64; exact.len()];
        let decays: Vec<bool> = {
            let infos = model.params().infos().iter();
            infos.flat_map(|i| vec![i.decay; i.len]).collect()
        };
        let (lr, scale) = (0.003, 0.7);
        for step in 0..10 {
            // The very first gradient is zero, and its sign too.
            let gradient = |i: usize| ((i * 7 + step * 13) as f32).sin();
            let fill = |g: &mut [f32]| (0..g.len()).for_each(|i| g[i] = gradient(i));
            model.params_mut().write_grads(fill).unwrap();
            rule.step(model.params_mut(), lr, scale).unwrap();
            for (i, w) in exact.iter_mut().enumerate() {
                let g = f64::from(gradient(i)) * scale;
                let direction = config.beta1 * mean[i] + (1.0 - config.beta1) * g;
                let decay = if decays[i] { config.weight_decay } else { 0.0 };
                // f64::signum(0) is 1.
                let sign = if direction == 0.0 {
                    0.0
                } else {
                    direction.signum()
                };
                *w = *w * (1.0 - lr * decay) - lr * sign;
                mean[i] = config.beta2 * mean[i] + (1.0 - config.beta2) * g;
            }
        }
        for (i, (found, exact)) in read(&model).iter().zip(&exact).enumerate() {
            assert!((found - exact).abs() < 1e-5, "{i}: {found} for {exact}");
        }
    }
}
