//! AdamW: Adam with decoupled weight decay.

use super::UpdateRule;
use crate::base::registry::Entry;
use crate::kernels::{adamw, flat};
use crate::nn::Params;
use candle_core::{Result, Tensor, bail};
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "adamw",
    title: "AdamW",
    summary: "Adam with decoupled weight decay: the robust default.",
    source: "Loshchilov and Hutter 2019, arXiv 1711.05101",
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Peak learning rate.
    #[schemars(range(min = 0.0, max = 10.0))]
    pub lr: f64,
    /// Decay of the gradient's running mean.
    #[schemars(range(min = 0.0, max = 0.999999))]
    pub beta1: f64,
    /// Decay of the squared gradient's running mean.
    #[schemars(range(min = 0.0, max = 0.999999))]
    pub beta2: f64,
    /// Added to the denominator.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub eps: f64,
    /// Decoupled weight decay, applied to matrices and embeddings; never to norms and biases.
    #[schemars(range(min = 0.0, max = 10.0))]
    pub weight_decay: f64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            lr: 3e-4,
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            weight_decay: 0.1,
        }
    }
}

impl super::Optimizer for Config {
    fn lr(&self) -> f64 {
        self.lr
    }

    fn build(&self, params: &Params) -> Result<Box<dyn UpdateRule>> {
        Ok(Box::new(AdamW::new(self, params)?))
    }
}

/// The rule with its moments.
struct AdamW {
    config: Config,
    /// Flat like the parameters, f32.
    mean: Tensor,
    square: Tensor,
    /// 1 where weight decay applies, 0 elsewhere, by runs of parameters: (end, decays).
    decay_runs: Vec<(usize, bool)>,
    steps: u64,
}

impl AdamW {
    fn new(config: &Config, params: &Params) -> Result<Self> {
        Ok(AdamW {
            config: config.clone(),
            mean: params.weights().zeros_like()?,
            square: params.weights().zeros_like()?,
            decay_runs: decay_runs(params),
            steps: 0,
        })
    }
}

/// Neighbouring parameters with the same decay flag as one run.
fn decay_runs(params: &Params) -> Vec<(usize, bool)> {
    let mut runs: Vec<(usize, bool)> = Vec::new();
    for info in params.infos() {
        let end = info.offset + info.len;
        match runs.last_mut() {
            Some((last_end, decays)) if *decays == info.decay => *last_end = end,
            _ => runs.push((end, info.decay)),
        }
    }
    runs
}

impl UpdateRule for AdamW {
    fn step(&mut self, params: &mut Params, lr: f64, grad_scale: f64) -> Result<()> {
        if params.weights().elem_count() != self.mean.elem_count() {
            bail!(
                "adamw: made for {} parameters, got {}",
                self.mean.elem_count(),
                params.weights().elem_count()
            )
        }
        self.steps += 1;
        let rule = adamw::Rule {
            lr,
            beta1: self.config.beta1,
            beta2: self.config.beta2,
            eps: self.config.eps,
            weight_decay: self.config.weight_decay,
            grad_scale,
            step: self.steps,
        };
        let state = adamw::State {
            weights: params.weights(),
            grads: params.grads(),
            mean: &self.mean,
            square: &self.square,
        };
        adamw::update(&rule, &state, &self.decay_runs)
    }

    fn state(&self) -> Result<Vec<(String, Vec<f32>)>> {
        // Pieces of 16 bits are exact in f32; a step count as one f32 would not be beyond 2^24.
        let pieces = (0..4).map(|i| ((self.steps >> (16 * i)) & 0xffff) as f32);
        Ok(vec![
            (STEPS.into(), pieces.collect()),
            (MEAN.into(), flat::read(&self.mean, <[f32]>::to_vec)?),
            (SQUARE.into(), flat::read(&self.square, <[f32]>::to_vec)?),
        ])
    }

    fn load_state(&mut self, state: Vec<(String, Vec<f32>)>) -> Result<()> {
        let find = |name: &str, len: usize| match state.iter().find(|(n, _)| n == name) {
            Some((_, values)) if values.len() == len => Ok(values),
            Some((_, values)) => {
                bail!("adamw: {name}: expected {len} values, got {}", values.len())
            }
            None => bail!("adamw: {name} is missing from the saved state"),
        };
        let len = self.mean.elem_count();
        let (steps, mean, square) = (find(STEPS, 4)?, find(MEAN, len)?, find(SQUARE, len)?);
        flat::write(&self.mean, |m| m.copy_from_slice(mean))?;
        flat::write(&self.square, |s| s.copy_from_slice(square))?;
        self.steps = steps
            .iter()
            .rev()
            .fold(0, |sum, &piece| (sum << 16) | piece as u64);
        Ok(())
    }
}

const STEPS: &str = "adamw.steps";
const MEAN: &str = "adamw.mean";
const SQUARE: &str = "adamw.square";
