//! Schedule-free AdamW: an average of the AdamW iterates replaces the decay of a schedule.

use super::host_state::{HostState, adam_settings, open, rates, state_is_held};
use super::{Group, StatePart, TensorNorms, UpdateRule, groups};
use crate::base::registry::Entry;
use crate::kernels::flat;
use crate::kernels::schedule_free;
use crate::kernels::update::{Chunks, Part};
use crate::nn::{ParamInfo, Params};
use candle_core::{Result, bail};

pub const ENTRY: Entry = Entry {
    id: "schedule_free",
    title: "Schedule-free AdamW",
    summary: "Needs no learning rate decay: evaluates and saves an average of the weights.",
    source: "Defazio et al. 2024, arXiv 2405.15682",
};

adam_settings! {
    /// Peak learning rate, one to ten times AdamW's; with `schedule: constant` and a warm-up.
    lr = 2.5e-3,
    /// Weight of the average in the point where gradients are computed.
    beta1 = 0.9,
    weight_decay = 0.0,
}

impl super::Optimizer for Config {
    rates!();

    fn state_summary(&self) -> &'static str {
        "f32 moments and the average"
    }

    fn epsilon(&self) -> Option<super::Epsilon> {
        Some(super::Epsilon::of_root("eps", self.eps))
    }

    fn rate_scale(&self) -> super::RateScale {
        super::RateScale::High
    }

    fn state_bytes(&self, infos: &[ParamInfo]) -> u64 {
        3 * groups::trained_bytes(infos)
    }

    fn build_grouped(&self, params: &Params, groups: &[Group]) -> Result<Box<dyn UpdateRule>> {
        let n = params.n_trainable();
        let buffers = [(Z, n), (OTHER, n), (SQUARE, n)];
        Ok(Box::new(ScheduleFree {
            config: self.clone(),
            held: HostState::new(
                "schedule_free",
                &buffers,
                &[STEPS, WEIGHT_SUM, MAX_LR, BEGUN],
            ),
            balanced: balanced(params),
            chunks: Chunks::new(groups::parts(params, groups)?),
            shown: false,
        }))
    }
}

/// The rule with its state. Model and `other` hold y and x, or x and y while the average is shown.
struct ScheduleFree {
    config: Config,
    held: HostState,
    chunks: Chunks,
    /// Where in the flat gradients the biases begin that balance experts. Their rule adds to what the model holds, so that
    /// is neither computed from z and x nor averaged.
    balanced: Vec<usize>,
    shown: bool,
}

fn balanced(params: &Params) -> Vec<usize> {
    let biases = params
        .infos()
        .iter()
        .filter(|info| info.is_balancing_bias());
    biases.filter_map(|info| info.grad).collect()
}

const STEPS: &str = "schedule_free.steps";
const WEIGHT_SUM: &str = "schedule_free.weight_sum";
const MAX_LR: &str = "schedule_free.max_lr";
const BEGUN: &str = "schedule_free.begun";
const Z: &str = "schedule_free.z";
const OTHER: &str = "schedule_free.other";
const SQUARE: &str = "schedule_free.square";

/// Moves the state of these parts to their weights, and returns the weights with their places.
fn hold(
    parts: &[Part],
    balanced: &[usize],
    weights: &[f32],
    state: [&mut [f32]; 2],
) -> Vec<(usize, Vec<f32>)> {
    let mut held = Vec::new();
    let [z, x] = state;
    for part in parts.iter().filter(|part| balanced.contains(&part.grads)) {
        let own = &weights[part.weights..part.weights + part.len];
        for state in [&mut *z, &mut *x] {
            state[part.grads..part.grads + part.len].copy_from_slice(own);
        }
        held.push((part.weights, own.to_vec()));
    }
    held
}

impl ScheduleFree {
    /// All three start at the weights.
    fn begin(&mut self, params: &Params) -> Result<()> {
        if *self.held.counter(3) == 1 {
            return Ok(());
        }
        *self.held.counter(3) = 1;
        let parts = self.chunks.parts();
        let [z, x] = self.held.buffers()?;
        flat::read(params.weights(), |weights| {
            for part in parts {
                let (at, from) = (part.grads..part.grads + part.len, part.weights);
                z[at.clone()].copy_from_slice(&weights[from..from + part.len]);
                x[at].copy_from_slice(&weights[from..from + part.len]);
            }
        })
    }
}

impl UpdateRule for ScheduleFree {
    fn step(&mut self, params: &mut Params, lr: f64, grad_scale: f64) -> Result<()> {
        if self.shown {
            bail!("schedule_free: the average is in the model, and gradients are not taken there")
        }
        self.begin(params)?;
        *self.held.counter(0) += 1;
        let step = *self.held.counter(0);
        // The average weights each step by the square of the largest rate so far, so that warm-up counts little.
        let max_lr = f64::from_bits(*self.held.counter(2)).max(lr);
        let weight = max_lr * max_lr;
        let sum = f64::from_bits(*self.held.counter(1)) + weight;
        *self.held.counter(1) = sum.to_bits();
        *self.held.counter(2) = max_lr.to_bits();
        let rule = schedule_free::Rule {
            lr,
            beta1: self.config.beta1,
            beta2: self.config.beta2,
            eps: self.config.eps,
            grad_scale,
            step,
            share: if sum > 0.0 { weight / sum } else { 0.0 },
        };
        let [z, x, square] = self.held.buffers()?;
        groups::check_len("schedule_free", params, z.len())?;
        let chunks = &mut self.chunks;
        let balanced = &self.balanced;
        open(params, |weights, grads| {
            let biases = hold(chunks.parts(), balanced, weights, [&mut *z, &mut *x]);
            schedule_free::update(&rule, [&mut *weights, z, x, square], grads, chunks);
            for (at, bias) in biases {
                weights[at..at + bias.len()].copy_from_slice(&bias);
            }
        })
    }

    fn show_average(&mut self, params: &mut Params, show: bool) -> Result<()> {
        if show == self.shown {
            return Ok(());
        }
        self.begin(params)?;
        let parts = self.chunks.parts();
        let [_, other] = self.held.buffers()?;
        params.write_held(|weights| {
            let averaged = parts
                .iter()
                .filter(|part| !self.balanced.contains(&part.grads));
            for part in averaged {
                let own = &mut weights[part.weights..part.weights + part.len];
                own.swap_with_slice(&mut other[part.grads..part.grads + part.len]);
            }
        })?;
        self.shown = show;
        Ok(())
    }

    fn last_norms(&self) -> &[TensorNorms] {
        self.chunks.norms()
    }

    state_is_held!();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optim::Optimizer;
    use crate::optim::tests::{model, state, take_up, update, weights};

    #[test]
    fn the_average_is_swapped_in_and_out_exactly() {
        let (mut whole, mut looked) = (model(), model());
        let mut plain = Config::default().build(whole.params()).unwrap();
        let mut shown = Config::default().build(looked.params()).unwrap();
        update(&mut whole, &mut *plain, 0..4);
        for step in 0..4 {
            shown.show_average(looked.params_mut(), true).unwrap();
            shown.show_average(looked.params_mut(), true).unwrap();
            assert!(shown.step(looked.params_mut(), 0.1, 1.0).is_err());
            shown.show_average(looked.params_mut(), false).unwrap();
            update(&mut looked, &mut *shown, step..step + 1);
        }
        assert_eq!(weights(&whole), weights(&looked));
        assert_eq!(state(&*plain), state(&*shown));
        shown.show_average(looked.params_mut(), true).unwrap();
        assert_ne!(weights(&whole), weights(&looked));
    }

    #[test]
    fn a_run_saved_with_its_average_resumes_bit_for_bit() {
        let (mut whole, mut saved) = (model(), model());
        let config = Config::default();
        let mut rule = config.build(whole.params()).unwrap();
        update(&mut whole, &mut *rule, 0..6);
        let mut first = config.build(saved.params()).unwrap();
        update(&mut saved, &mut *first, 0..3);
        first.show_average(saved.params_mut(), true).unwrap();
        // A new process: other weights until those of the checkpoint are read.
        let mut resumed = model();
        let mut second = config.build(resumed.params()).unwrap();
        second.show_average(resumed.params_mut(), true).unwrap();
        let average = saved.params().read_weights(<[f32]>::to_vec).unwrap();
        let fill = |w: &mut [f32]| w.copy_from_slice(&average);
        resumed.params_mut().write_weights(fill).unwrap();
        take_up(&mut *second, &*first);
        second.show_average(resumed.params_mut(), false).unwrap();
        update(&mut resumed, &mut *second, 3..6);
        assert_eq!(weights(&whole), weights(&resumed));
    }
}
