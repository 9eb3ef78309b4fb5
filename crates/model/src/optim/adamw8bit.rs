//! AdamW with 8-bit moments: a quarter of its state.

use super::host_state::{PIECES, adam_settings, open, pieces, rates, whole};
use super::{Group, StatePart, TensorNorms, UpdateRule, groups};
use crate::base::registry::Entry;
use crate::kernels::adamw;
use crate::kernels::adamw8bit::{self, BLOCK, Moment, ZERO_MEAN, ZERO_SQUARE};
use crate::kernels::tensors::Tensors;
use crate::nn::{ParamInfo, Params};
use candle_core::{Result, bail};

pub const ENTRY: Entry = Entry {
    id: "adamw8bit",
    title: "8-bit AdamW",
    summary: "AdamW with 8-bit moments in blocks of 256: a quarter of its state.",
    source: "Dettmers et al. 2021, arXiv 2110.02861",
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
        "8-bit moments and their scales"
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
        let trained = infos.iter().filter(|info| info.trains());
        let of = |len: usize| 2 * (len + size_of::<f32>() * len.div_ceil(BLOCK));
        trained.map(|info| of(info.len) as u64).sum()
    }

    fn saved_bytes(&self, infos: &[ParamInfo]) -> u64 {
        let lens = || {
            infos
                .iter()
                .filter(|info| info.trains())
                .map(|info| info.len)
        };
        let codes = lens().sum::<usize>().div_ceil(PACKED);
        let scales: usize = lens().map(|len| len.div_ceil(BLOCK)).sum();
        (2 * size_of::<f32>() * (codes + scales)) as u64
    }

    fn build_grouped(&self, params: &Params, groups: &[Group]) -> Result<Box<dyn UpdateRule>> {
        let blocks = params.trainable().map(|info| info.len.div_ceil(BLOCK));
        let (n, n_blocks) = (params.n_trainable(), blocks.sum());
        let moment = |zero: u8| Stored {
            codes: vec![zero; n],
            scales: vec![0.0; n_blocks],
        };
        Ok(Box::new(AdamW8bit {
            config: self.clone(),
            mean: moment(ZERO_MEAN),
            square: moment(ZERO_SQUARE),
            tensors: Tensors::new(groups::parts(params, groups)?),
            steps: 0,
        }))
    }
}

/// A moment of all trainable parameters.
struct Stored {
    codes: Vec<u8>,
    /// The scales of each tensor's blocks.
    scales: Vec<f32>,
}

/// The rule with its moments.
struct AdamW8bit {
    config: Config,
    mean: Stored,
    square: Stored,
    tensors: Tensors,
    steps: u64,
}

const STEPS: &str = "adamw8bit.steps";
const MEAN: &str = "adamw8bit.mean";
const MEAN_SCALES: &str = "adamw8bit.mean_scales";
const SQUARE: &str = "adamw8bit.square";
const SQUARE_SCALES: &str = "adamw8bit.square_scales";

/// Codes packed into one saved f32: an integer below 2^24, which f32 represents exactly.
const PACKED: usize = 3;

fn pack(codes: &[u8]) -> Vec<f32> {
    let number = |codes: &[u8]| codes.iter().fold(0_u32, |sum, c| sum << 8 | u32::from(*c));
    codes.chunks(PACKED).map(|c| number(c) as f32).collect()
}

fn unpack(packed: &[f32], codes: &mut [u8]) {
    for (codes, number) in codes.chunks_mut(PACKED).zip(packed) {
        let mut number = *number as u32;
        for code in codes.iter_mut().rev() {
            *code = (number & 0xff) as u8;
            number >>= 8;
        }
    }
}

impl UpdateRule for AdamW8bit {
    fn step(&mut self, params: &mut Params, lr: f64, grad_scale: f64) -> Result<()> {
        groups::check_len("adamw8bit", params, self.mean.codes.len())?;
        self.steps += 1;
        let rule = adamw::Rule {
            lr,
            beta1: self.config.beta1,
            beta2: self.config.beta2,
            eps: self.config.eps,
            grad_scale,
            step: self.steps,
        };
        let (mean, square) = (&mut self.mean, &mut self.square);
        let (tensors, mut block) = (&mut self.tensors, 0);
        open(params, |weights, grads| {
            tensors.update(weights, grads, |_, part, weights, grads| {
                let n_blocks = part.len.div_ceil(BLOCK);
                let moments = [&mut *mean, &mut *square].map(|stored| Moment {
                    codes: &mut stored.codes[part.grads..part.grads + part.len],
                    scales: &mut stored.scales[block..block + n_blocks],
                });
                block += n_blocks;
                adamw8bit::update(&rule, part, weights, grads, moments);
            });
        })
    }

    fn last_norms(&self) -> &[TensorNorms] {
        self.tensors.norms()
    }

    fn state(&self) -> Vec<StatePart> {
        let codes = self.mean.codes.len().div_ceil(PACKED);
        let scales = self.mean.scales.len();
        let parts = [
            (STEPS, PIECES),
            (MEAN, codes),
            (MEAN_SCALES, scales),
            (SQUARE, codes),
            (SQUARE_SCALES, scales),
        ];
        parts.map(|(name, len)| StatePart { name, len }).to_vec()
    }

    fn read_state(&self, name: &str, read: &mut dyn FnMut(&[f32])) -> Result<()> {
        match name {
            STEPS => read(&pieces(self.steps)),
            MEAN => read(&pack(&self.mean.codes)),
            MEAN_SCALES => read(&self.mean.scales),
            SQUARE => read(&pack(&self.square.codes)),
            SQUARE_SCALES => read(&self.square.scales),
            other => bail!("adamw8bit: its state has no `{other}`"),
        }
        Ok(())
    }

    fn write_state(&mut self, name: &str, write: &mut dyn FnMut(&mut [f32])) -> Result<()> {
        match name {
            STEPS => {
                let mut count = pieces(self.steps);
                write(&mut count);
                self.steps = whole(&count)?;
            }
            MEAN_SCALES => write(&mut self.mean.scales),
            SQUARE_SCALES => write(&mut self.square.scales),
            MEAN | SQUARE => {
                let stored = match name {
                    MEAN => &mut self.mean,
                    _ => &mut self.square,
                };
                let mut packed = pack(&stored.codes);
                write(&mut packed);
                unpack(&packed, &mut stored.codes);
            }
            other => bail!("adamw8bit: its state has no `{other}`"),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_survive_packing() {
        let codes: Vec<u8> = (0..=255).collect();
        let mut back = vec![7; codes.len()];
        let packed = pack(&codes);
        assert!(packed.iter().all(|x| x.is_finite()));
        unpack(&packed, &mut back);
        assert_eq!(codes, back);
    }
}
