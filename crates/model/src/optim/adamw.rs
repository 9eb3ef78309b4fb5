//! AdamW: Adam with decoupled weight decay.

use super::host_state::{PIECES, adam_settings, pieces, rates, whole};
use super::{Group, MeanSquare, StatePart, TensorNorms, UpdateRule, groups};
use crate::base::registry::Entry;
use crate::kernels::update::Chunks;
use crate::kernels::{adamw, flat, pages};
use crate::nn::{ParamInfo, Params};
use candle_core::{Result, Tensor, bail};

pub const ENTRY: Entry = Entry {
    id: "adamw",
    title: "AdamW",
    summary: "Adam with decoupled weight decay: the robust default.",
    source: "Loshchilov and Hutter 2019, arXiv 1711.05101",
};

adam_settings! {
    /// Peak learning rate.
    lr = 3e-4,
    /// Decay of the gradient's running mean.
    beta1 = 0.9,
    weight_decay = 0.1,
}

impl super::Optimizer for Config {
    rates!();

    fn state_summary(&self) -> &'static str {
        "f32 moments"
    }

    fn epsilon(&self) -> Option<super::Epsilon> {
        Some(super::Epsilon::of_root("eps", self.eps))
    }

    fn adam_betas(&self) -> Option<(f64, f64)> {
        Some((self.beta1, self.beta2))
    }

    fn rate_scale(&self) -> super::RateScale {
        super::RateScale::AdamW
    }

    fn on_torch(&self) -> bool {
        true
    }

    fn state_bytes(&self, infos: &[ParamInfo]) -> u64 {
        2 * groups::trained_bytes(infos)
    }

    fn build_grouped(&self, params: &Params, groups: &[Group]) -> Result<Box<dyn UpdateRule>> {
        Ok(Box::new(AdamW::new(self, params, groups)?))
    }
}

/// The rule with its moments.
struct AdamW {
    config: Config,
    /// Flat like the gradients, f32.
    mean: Tensor,
    square: Tensor,
    chunks: Chunks,
    steps: u64,
}

impl AdamW {
    fn new(config: &Config, params: &Params, groups: &[Group]) -> Result<Self> {
        let zeros = || pages::written_zeros(params.n_trainable(), params.device());
        Ok(AdamW {
            config: config.clone(),
            mean: zeros()?,
            square: zeros()?,
            chunks: Chunks::new(groups::parts(params, groups)?),
            steps: 0,
        })
    }
}

impl UpdateRule for AdamW {
    fn step(&mut self, params: &mut Params, lr: f64, grad_scale: f64) -> Result<()> {
        groups::check_len("adamw", params, self.mean.elem_count())?;
        self.steps += 1;
        let rule = adamw::Rule {
            lr,
            beta1: self.config.beta1,
            beta2: self.config.beta2,
            eps: self.config.eps,
            grad_scale,
            step: self.steps,
        };
        let state = adamw::State {
            weights: params.weights(),
            grads: params.grads()?,
            mean: &self.mean,
            square: &self.square,
        };
        adamw::update(&rule, &state, &mut self.chunks)
    }

    fn last_norms(&self) -> &[TensorNorms] {
        self.chunks.norms()
    }

    fn mean_square(&self) -> Option<MeanSquare> {
        let correction = 1.0 - self.config.beta2.powf(self.steps as f64);
        (self.steps > 0).then_some(MeanSquare {
            part: SQUARE,
            correction,
        })
    }

    fn mean_gradient(&self) -> Option<&'static str> {
        Some(MEAN)
    }

    fn state(&self) -> Vec<StatePart> {
        let len = self.mean.elem_count();
        [(STEPS, PIECES), (MEAN, len), (SQUARE, len)]
            .map(|(name, len)| StatePart { name, len })
            .to_vec()
    }

    fn read_state(&self, name: &str, read: &mut dyn FnMut(&[f32])) -> Result<()> {
        match name {
            STEPS => {
                read(&pieces(self.steps));
                Ok(())
            }
            MEAN => flat::read(&self.mean, read),
            SQUARE => flat::read(&self.square, read),
            other => bail!("adamw: its state has no `{other}`"),
        }
    }

    fn write_state(&mut self, name: &str, write: &mut dyn FnMut(&mut [f32])) -> Result<()> {
        match name {
            STEPS => {
                let mut pieces = pieces(self.steps);
                write(&mut pieces);
                self.steps = whole(&pieces)?;
                Ok(())
            }
            MEAN => flat::write(&self.mean, write),
            SQUARE => flat::write(&self.square, write),
            other => bail!("adamw: its state has no `{other}`"),
        }
    }
}

const STEPS: &str = "adamw.steps";
const MEAN: &str = "adamw.mean";
const SQUARE: &str = "adamw.square";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optim::Optimizer;
    use crate::optim::tests::{model, take_up, update};

    #[test]
    fn an_unknown_part_is_rejected_by_name() {
        let model = model();
        let mut rule = Config::default().build(model.params()).unwrap();
        let error = rule.read_state("adamw.steep", &mut |_| ()).unwrap_err();
        assert!(error.to_string().contains("no `adamw.steep`"), "{error}");
        assert!(rule.write_state("mean", &mut |_| ()).is_err());
    }

    #[test]
    fn decay_affects_only_matrices() {
        let mut model = model();
        let before = model.params().read_weights(<[f32]>::to_vec).unwrap();
        let mut rule = Config::default().build(model.params()).unwrap();
        rule.step(model.params_mut(), 0.5, 1.0).unwrap();
        let after = model.params().read_weights(<[f32]>::to_vec).unwrap();
        for info in model.params().infos() {
            let keep = if info.decay { 0.95 } else { 1.0 };
            for i in info.offset..info.offset + info.len {
                assert!((after[i] - keep * before[i]).abs() < 1e-7, "{}", info.name);
            }
        }
    }

    #[test]
    fn norms_of_the_last_update_are_reported_per_tensor() {
        let mut model = model();
        let mut rule = Config::default().build(model.params()).unwrap();
        assert!(rule.last_norms().is_empty());
        update(&mut model, &mut *rule, 0..1);
        let before: Vec<_> = {
            let params = model.params();
            let weights = params.infos().iter().map(|info| params.weight(info));
            weights.map(|weight| weight.unwrap()).collect()
        };
        update(&mut model, &mut *rule, 1..2);
        let infos = model.params().infos();
        assert_eq!(rule.last_norms().len(), infos.len());
        for ((norms, info), weight) in rule.last_norms().iter().zip(infos).zip(before) {
            let squares = weight.sqr().unwrap().sum_all().unwrap();
            let exact = f64::from(squares.to_scalar::<f32>().unwrap()).sqrt();
            assert!(
                (norms.weight - exact).abs() < 1e-5 * exact.max(1.0),
                "{}",
                info.name
            );
            assert!(norms.update > 0.0 && norms.grad > 0.0, "{}", info.name);
        }
    }

    #[test]
    fn step_counts_beyond_f32_survive() {
        let model = model();
        let groups = groups::by_decay(model.params(), 0.1);
        let mut rule = AdamW::new(&Config::default(), model.params(), &groups).unwrap();
        rule.steps = (1 << 40) + 12_345_678_901;
        let mut other = AdamW::new(&Config::default(), model.params(), &groups).unwrap();
        take_up(&mut other, &rule);
        assert_eq!(other.steps, rule.steps);
    }
}
