//! An exponential moving average of the weights (EMA) on top of any update rule: evaluations, samples, checkpoints and exports
//! use the average, training continues from the weights.

use super::{MeanSquare, StatePart, TensorNorms, UpdateRule};
use crate::kernels::flat;
use crate::kernels::matmul::ComputeDtype;
use crate::nn::{ParamInfo, Params};
use candle_core::{Result, bail};

/// The other weights: the average, or while that is in the model, the training weights. Saved with a checkpoint of the average.
pub const OTHER: &str = "ema.other";
/// Progress of the average, encoded as in [`Phase`]; 0: it begins at the weights as they are when it is next used.
pub const BEGUN: &str = "ema.begun";
/// Integers are exact in f32 up to here.
const MOST: u32 = 1 << 24;

/// Progress of an average.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// 0 in the state.
    NotBegun,
    /// This many updates have gone into it, and its decay still rises: stored as this plus 2.
    WarmUp(u32),
    /// The decay is that of the spec: stored as 1, as also in averages from before there was a warm-up.
    Constant,
}

impl Phase {
    fn to_state(self) -> f32 {
        match self {
            Phase::NotBegun => 0.0,
            Phase::Constant => 1.0,
            Phase::WarmUp(updates) => (updates + 2) as f32,
        }
    }

    fn from_state(value: f32) -> Phase {
        match value {
            v if v >= 2.0 => Phase::WarmUp((v as u32).min(MOST) - 2),
            0.0 => Phase::NotBegun,
            _ => Phase::Constant,
        }
    }

    /// Advances by one update and returns its decay: min(`decay`, (1 + t) / (10 + t)) at update t, as in TensorFlow's and timm's
    /// averages. A constant one would leave the initial weights in the average for 1 / (1 − decay) updates and more.
    fn advance(&mut self, decay: f64) -> f64 {
        let Phase::WarmUp(updates) = self else {
            return decay;
        };
        let t = f64::from(*updates + 1);
        let rising = (1.0 + t) / (10.0 + t);
        *self = match rising < decay && *updates + 3 < MOST {
            true => Phase::WarmUp(*updates + 1),
            false => Phase::Constant,
        };
        rising.min(decay)
    }
}

/// A rule and the average of its weights.
pub struct Averaged {
    rule: Box<dyn UpdateRule>,
    /// a ← decay · a + (1 − decay) · w after every update, after the warm-up.
    decay: f64,
    /// As long as the trainable set, in the order of the gradients.
    other: Vec<f32>,
    phase: Phase,
    shown: bool,
}

impl Averaged {
    /// An average that starts at the weights before the first update.
    pub fn new(rule: Box<dyn UpdateRule>, decay: f64, params: &Params) -> Averaged {
        Averaged {
            rule,
            decay,
            other: vec![0.0; params.n_trainable()],
            phase: Phase::NotBegun,
            shown: false,
        }
    }

    /// Visits each trainable tensor's weights and its part of the other weights.
    fn visit(
        &mut self,
        params: &Params,
        mut visit: impl FnMut(&mut [f32], &mut [f32]),
    ) -> Result<()> {
        let (first, other) = (params.first_held(), &mut self.other);
        let parts: Vec<(usize, usize, usize)> = params.trainable().map(place(first)).collect();
        flat::write(params.weights(), |weights| {
            for (from, grads, len) in parts {
                visit(
                    &mut weights[from..from + len],
                    &mut other[grads..grads + len],
                );
            }
        })
    }

    fn begin(&mut self, params: &Params) -> Result<()> {
        if self.phase == Phase::NotBegun {
            self.phase = Phase::WarmUp(0);
            self.visit(params, |weights, other| other.copy_from_slice(weights))?;
        }
        Ok(())
    }
}

fn place(first: usize) -> impl Fn(&ParamInfo) -> (usize, usize, usize) {
    move |info| (info.offset - first, info.grad.unwrap_or_default(), info.len)
}

impl UpdateRule for Averaged {
    fn step(&mut self, params: &mut Params, lr: f64, grad_scale: f64) -> Result<()> {
        if self.shown {
            bail!("ema: the average is in the model, and gradients are not taken there")
        }
        self.begin(params)?;
        self.rule.step(params, lr, grad_scale)?;
        let gain = (1.0 - self.phase.advance(self.decay)) as f32;
        self.visit(params, |weights, average| {
            let pairs = average.iter_mut().zip(weights);
            pairs.for_each(|(a, w)| *a += gain * (*w - *a));
        })
    }

    fn set_compute_dtype(&mut self, arithmetic: ComputeDtype) {
        self.rule.set_compute_dtype(arithmetic);
    }

    fn last_norms(&self) -> &[TensorNorms] {
        self.rule.last_norms()
    }

    fn show_average(&mut self, params: &mut Params, show: bool) -> Result<()> {
        if show == self.shown {
            return Ok(());
        }
        self.begin(params)?;
        self.visit(params, <[f32]>::swap_with_slice)?;
        self.shown = show;
        Ok(())
    }

    fn wants_curvature(&mut self) -> bool {
        self.rule.wants_curvature()
    }

    fn take_curvature(&mut self, params: &Params, labels: f64) -> Result<()> {
        self.rule.take_curvature(params, labels)
    }

    fn mean_square(&self) -> Option<MeanSquare> {
        self.rule.mean_square()
    }

    fn mean_gradient(&self) -> Option<&'static str> {
        self.rule.mean_gradient()
    }

    fn unclipped(&self) -> Option<f64> {
        self.rule.unclipped()
    }

    fn state(&self) -> Vec<StatePart> {
        let len = self.other.len();
        let own = [
            StatePart { name: OTHER, len },
            StatePart {
                name: BEGUN,
                len: 1,
            },
        ];
        self.rule.state().into_iter().chain(own).collect()
    }

    fn read_state(&self, name: &str, read: &mut dyn FnMut(&[f32])) -> Result<()> {
        match name {
            OTHER => read(&self.other),
            BEGUN => read(&[self.phase.to_state()]),
            other => return self.rule.read_state(other, read),
        }
        Ok(())
    }

    fn write_state(&mut self, name: &str, write: &mut dyn FnMut(&mut [f32])) -> Result<()> {
        match name {
            OTHER => write(&mut self.other),
            BEGUN => {
                let mut begun = [0.0];
                write(&mut begun);
                self.phase = Phase::from_state(begun[0]);
            }
            other => return self.rule.write_state(other, write),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::Model;
    use crate::optim::OptimizerConfig;
    use crate::optim::tests::{model, state, take_up, update, weights};

    fn averaged(model: &Model) -> Box<dyn UpdateRule> {
        let config: OptimizerConfig =
            serde_json::from_value(serde_json::json!({"adamw": {}})).unwrap();
        let rule = config.build(model.params()).unwrap();
        Box::new(Averaged::new(rule, 0.8, model.params()))
    }

    /// The average by its definition, and the weights that the rule alone produces.
    #[test]
    fn the_average_is_over_the_weights_after_every_update() {
        let (mut plain, mut shown) = (model(), model());
        let config: OptimizerConfig =
            serde_json::from_value(serde_json::json!({"adamw": {}})).unwrap();
        let mut rule = config.build(plain.params()).unwrap();
        let mut ema = averaged(&shown);
        let read = |model: &Model| model.params().read_weights(<[f32]>::to_vec).unwrap();
        let mut exact: Vec<f64> = read(&plain).iter().map(|w| f64::from(*w)).collect();
        for step in 0..45 {
            update(&mut plain, &mut *rule, step..step + 1);
            let t = step as f64 + 1.0;
            // (1 + 35) / (10 + 35) is 0.8.
            let decay = if step < 34 {
                (1.0 + t) / (10.0 + t)
            } else {
                0.8
            };
            for (a, w) in exact.iter_mut().zip(read(&plain)) {
                *a = decay * *a + (1.0 - decay) * f64::from(w);
            }
            ema.show_average(shown.params_mut(), false).unwrap();
            update(&mut shown, &mut *ema, step..step + 1);
            assert_eq!(weights(&plain), weights(&shown), "training is the same");
            ema.show_average(shown.params_mut(), true).unwrap();
            assert!(ema.step(shown.params_mut(), 0.1, 1.0).is_err());
        }
        for (found, exact) in read(&shown).iter().zip(&exact) {
            assert!(
                (f64::from(*found) - exact).abs() < 1e-6,
                "{found} for {exact}"
            );
        }
    }

    /// Checkpoints of older builds store 1, and their average continues unchanged.
    #[test]
    fn an_average_from_before_there_was_a_warm_up_keeps_its_decay() {
        let mut phase = Phase::from_state(1.0);
        assert_eq!((phase.advance(0.999), phase.to_state()), (0.999, 1.0));
        let mut phase = Phase::WarmUp(0);
        let decays: Vec<f64> = (0..3).map(|_| phase.advance(0.21)).collect();
        assert_eq!(decays, [2.0 / 11.0, 0.21, 0.21]);
        assert_eq!(phase, Phase::Constant);
        for phase in [Phase::NotBegun, Phase::WarmUp(0), Phase::WarmUp(7)] {
            assert_eq!(Phase::from_state(phase.to_state()), phase);
        }
    }

    #[test]
    fn a_run_saved_with_its_average_resumes_bit_for_bit() {
        let (mut whole, mut saved, mut resumed) = (model(), model(), model());
        let mut rule = averaged(&whole);
        update(&mut whole, &mut *rule, 0..6);
        let mut first = averaged(&saved);
        update(&mut saved, &mut *first, 0..3);
        first.show_average(saved.params_mut(), true).unwrap();
        let mut second = averaged(&resumed);
        second.show_average(resumed.params_mut(), true).unwrap();
        let average = saved.params().read_weights(<[f32]>::to_vec).unwrap();
        let fill = |w: &mut [f32]| w.copy_from_slice(&average);
        resumed.params_mut().write_weights(fill).unwrap();
        take_up(&mut *second, &*first);
        second.show_average(resumed.params_mut(), false).unwrap();
        update(&mut resumed, &mut *second, 3..6);
        assert_eq!(weights(&whole), weights(&resumed));
        assert_eq!(state(&*rule), state(&*second));
    }
}
