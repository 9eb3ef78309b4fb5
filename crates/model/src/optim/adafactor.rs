//! Adafactor: the second moment of a matrix is factored into row and column means.

use super::host_state::{HostState, open, rates, state_is_held};
use super::{Group, StatePart, TensorNorms, UpdateRule, groups};
use crate::base::registry::Entry;
use crate::kernels::adafactor;
use crate::kernels::tensors::Tensors;
use crate::nn::{ParamInfo, Params};
use candle_core::Result;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "adafactor",
    title: "Adafactor",
    summary: "Second moments per row and column instead of per weight: almost no state.",
    source: "Shazeer and Stern 2018, arXiv 1804.04235",
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Peak learning rate.
    #[schemars(range(max = 10.0), extend("exclusiveMinimum" = 0.0))]
    pub lr: f64,
    /// Squares decay by 1 − step^(−this).
    #[schemars(range(min = 0.1, max = 1.0))]
    pub decay_rate: f64,
    /// RMS above which a tensor's update is scaled down.
    #[schemars(range(min = 0.01, max = 100.0))]
    pub clip_threshold: f64,
    /// Added to squared gradients; at least 1e-37.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub eps: f64,
    /// Multiply the learning rate of a tensor by the root mean square of its weights, at least 1e-3.
    pub scale_parameter: bool,
    /// Decoupled weight decay, applied to matrices and embeddings; never to norms and biases.
    #[schemars(range(min = 0.0, max = 10.0))]
    pub weight_decay: f64,
}

/// Lower bound on a tensor's RMS if rates are relative to it.
const LEAST_SIZE: f64 = 1e-3;

impl Default for Config {
    fn default() -> Self {
        Config {
            lr: 3e-4,
            decay_rate: 0.8,
            clip_threshold: 1.0,
            eps: 1e-30,
            scale_parameter: false,
            weight_decay: 0.0,
        }
    }
}

impl super::Optimizer for Config {
    rates!();

    fn state_summary(&self) -> &'static str {
        "means of rows and columns"
    }

    fn epsilon(&self) -> Option<super::Epsilon> {
        Some(super::Epsilon {
            key: "eps",
            value: self.eps,
            added_to: super::EpsilonTerm::SquaredGradient,
        })
    }

    fn rate_scale(&self) -> super::RateScale {
        super::RateScale::Elements
    }

    fn state_bytes(&self, infos: &[ParamInfo]) -> u64 {
        let trained = infos.iter().filter(|info| info.trains());
        let len = |info: &ParamInfo| adafactor::state_len(&info.shape) * size_of::<f32>();
        trained.map(|info| len(info) as u64).sum()
    }

    fn build_grouped(&self, params: &Params, groups: &[Group]) -> Result<Box<dyn UpdateRule>> {
        let shapes: Vec<_> = params.trainable().map(|i| i.shape.clone()).collect();
        let len = shapes.iter().map(|s| adafactor::state_len(s)).sum();
        Ok(Box::new(Adafactor {
            config: self.clone(),
            held: HostState::new("adafactor", &[(SQUARES, len)], &[STEPS]),
            tensors: Tensors::new(groups::parts(params, groups)?),
            n_trainable: params.n_trainable(),
            shapes,
            scratch: Vec::new(),
        }))
    }
}

/// The rule with its means.
struct Adafactor {
    config: Config,
    held: HostState,
    tensors: Tensors,
    n_trainable: usize,
    /// The state of each part.
    shapes: Vec<Vec<usize>>,
    scratch: Vec<f32>,
}

const STEPS: &str = "adafactor.steps";
const SQUARES: &str = "adafactor.squares";

impl UpdateRule for Adafactor {
    fn step(&mut self, params: &mut Params, lr: f64, grad_scale: f64) -> Result<()> {
        groups::check_len("adafactor", params, self.n_trainable)?;
        *self.held.counter(0) += 1;
        let steps = *self.held.counter(0) as f64;
        let rule = adafactor::Rule {
            lr,
            beta2: 1.0 - steps.powf(-self.config.decay_rate),
            eps: self.config.eps,
            clip_threshold: self.config.clip_threshold,
            least_size: self.config.scale_parameter.then_some(LEAST_SIZE),
            grad_scale,
        };
        let [mut squares] = self.held.buffers()?;
        let (shapes, scratch) = (&self.shapes, &mut self.scratch);
        let tensors = &mut self.tensors;
        open(params, |weights, grads| {
            tensors.update(weights, grads, |number, part, weights, grads| {
                let shape = &shapes[number];
                let len = adafactor::state_len(shape);
                let (own, rest) = std::mem::take(&mut squares).split_at_mut(len);
                squares = rest;
                adafactor::update(&rule, (part, shape), weights, grads, own, scratch);
            });
        })
    }

    fn last_norms(&self) -> &[TensorNorms] {
        self.tensors.norms()
    }

    state_is_held!();
}
