//! Metrics measured inside the model: activations, attention, gradients of micro-batches, weights and their updates. A probe
//! is one file and one word in the list below; it declares its inputs and its cadence, and is called on the steps that are
//! due. On other steps, and with `health.enabled` false, it costs nothing.
//!
//! Nothing here changes the computation: a run is bit-identical with and without probes.

mod report;
mod sample;
mod set;
pub mod spectra;
#[cfg(test)]
mod tests;

pub use report::Report;
pub use set::{COST, Carried, Probes, SharedProbes, StepStats};

use crate::metrics::Metric;
use crate::metrics::estimators::collapse::Reference;
use crate::nn::tap::{Activation, AttentionInputs};
use crate::nn::{ParamInfo, Params};
use crate::optim::UpdateRule;
use candle_core::Result;
use serde_json::Value;

/// How often a probe is asked, in terms of `health.every`; only on steps that are logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cadence {
    /// Each logged step: its inputs are available anyway.
    Step,
    /// Five times in `health.every` steps.
    Often,
    /// Each `health.every` steps.
    Usual,
    /// Each second time.
    Seldom,
}

impl Cadence {
    /// Steps between two looks. While a run is young, things happen faster.
    fn steps(self, every: u64, step: u64) -> u64 {
        /// Up to this step looks come five times as often.
        const YOUNG: u64 = 100;
        let steps = match self {
            Cadence::Step => return 1,
            Cadence::Often => every.div_ceil(5),
            Cadence::Usual => every,
            Cadence::Seldom => 2 * every,
        };
        if step <= YOUNG {
            steps.div_ceil(5)
        } else {
            steps
        }
    }

    /// Whether `step` is the first logged one in its interval; `before` is the step logged before it.
    fn is_due(self, every: u64, step: u64, before: u64) -> bool {
        let steps = self.steps(every, step).max(1);
        step == 1 || step / steps != before / steps
    }

    pub fn words(self) -> &'static str {
        match self {
            Cadence::Step => "each logged step",
            Cadence::Often => "every / 5",
            Cadence::Usual => "every",
            Cadence::Seldom => "2 · every",
        }
    }
}

/// The inputs of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeInput {
    /// Every step's loss and gradient norm.
    Steps,
    /// Activations and attention of the first micro-batch.
    Activations,
    /// The gradient after each micro-batch.
    MicroGradients,
    /// The step's gradient, before the update.
    Gradient,
    /// Weights and norms after the update.
    Update,
}

/// What lists and docs know of a probe; each file exports one as `ENTRY`.
pub struct ProbeEntry {
    pub id: &'static str,
    /// Its readings, declared before the first value.
    pub metrics: &'static [Metric],
    pub cadence: Cadence,
    pub inputs: &'static [ProbeInput],
    /// What one look costs, in words.
    pub cost: &'static str,
    /// `None` where a run has nothing that it could look at.
    pub make: fn(&Setup<'_>) -> Option<Box<dyn Probe>>,
}

/// The run that probes are made for.
#[derive(Debug, Clone, Copy)]
pub struct Setup<'a> {
    pub n_layer: usize,
    pub params: &'a [ParamInfo],
    /// Micro-batches of a step.
    pub micro_batches: usize,
    /// Target tokens of a step.
    pub batch_tokens: usize,
    /// Steps of the whole run.
    pub max_steps: u64,
    /// The loss curve of `health.reference_run`.
    pub reference: Option<&'a Reference>,
    /// The model is trained by ranks elsewhere: losses and gradient norms are all there is to see.
    pub remote: bool,
}

/// Called at the steps that are due. The defaults ignore their input.
pub trait Probe: Send {
    fn step(&mut self, _seen: &StepStats<'_>) {}
    fn activation(&mut self, _seen: &Activation<'_>) {}
    fn attention(&mut self, _seen: &AttentionInputs<'_>) {}
    /// Log-sum-exp of each token's logits.
    fn logits(&mut self, _lse: &[f32]) {}
    /// The flat gradients, summed up to micro-batch number `micro`, whose share of the step is `weight`.
    fn micro_gradient(&mut self, _micro: usize, _weight: f64, _grads: &[f32]) {}
    /// The step's gradient is whole, and the optimizer has not seen it. The update will scale it by `scale`: clipping.
    ///
    /// # Errors
    /// Those of reading the optimizer's state.
    fn gradient(&mut self, _params: &Params, _rule: &dyn UpdateRule, _scale: f64) -> Result<()> {
        Ok(())
    }
    /// The weights were updated.
    ///
    /// # Errors
    /// Those of reading weights.
    fn update(&mut self, _params: &Params, _rule: &dyn UpdateRule) -> Result<()> {
        Ok(())
    }
    /// The readings since the last report.
    fn report(&mut self, into: &mut Report);
    /// The state that a resumed run needs for the same readings; small, as it goes into each checkpoint's `state.json`.
    /// `None` where nothing was seen yet, or one step knows nothing of those before.
    fn saved_state(&self) -> Option<Value> {
        None
    }
    /// Restores the carried state; starts fresh without it.
    fn restore_state(&mut self, _carried: Option<&Value>) {}
}

macro_rules! probes {
    ($($probe:ident)+) => {
        $(mod $probe;)+

        /// Every probe, in the order in which a viewer shows their readings.
        pub static PROBES: &[&ProbeEntry] = &[$(&$probe::ENTRY),+];
    };
}

probes! { layers noise momentum spikes collapse elements micro_batches dead_units activations attention logits weights spectral }
