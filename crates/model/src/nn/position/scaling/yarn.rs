//! YaRN: pairs that rotate often within the original context are kept, those that rotate less than once are interpolated,
//! with a ramp in between; and scores are scaled up slightly.

use super::Rotation;
use crate::base::registry::Entry;
use crate::nn::Fault;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "yarn",
    title: "YaRN",
    summary: "Stretches only low frequencies and sharpens attention: the usual choice beyond 4096 tokens.",
    source: "Peng et al. 2023, arXiv 2309.00071",
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Factor by which the context is extended. With train.from: context / original context, unless it is set (auto).
    #[schemars(range(min = 1.0, max = 1000.0))]
    pub factor: f64,
    /// The context that the model was trained with. Default: with train.from its context, else seq_len / factor.
    #[schemars(range(min = 1, max = 1048576))]
    pub original_len: Option<usize>,
    /// Pairs that turn more often than this within the old context are kept.
    #[schemars(range(min = 0.001, max = 10000.0))]
    pub beta_fast: f64,
    /// Pairs that turn less often than this are interpolated.
    #[schemars(range(min = 0.001, max = 10000.0))]
    pub beta_slow: f64,
    /// Multiplier of cosines and sines. Default: 0.1 ln(factor) + 1, or with mscale and mscale_all_dim the quotient of 0.1 · mscale ·
    /// ln(factor) + 1 for the two.
    #[schemars(range(min = 0.001, max = 1000.0))]
    pub attention_factor: Option<f64>,
    /// DeepSeek's weight of the logarithm in the multiplier of cosines and sines; goes with mscale_all_dim.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.001, max = 1000.0))]
    pub mscale: Option<f64>,
    /// The same in what scores are multiplied by with latent attention, and divides cosines and sines (DeepSeek-V2: 0.707, as
    /// mscale).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.001, max = 1000.0))]
    pub mscale_all_dim: Option<f64>,
    /// Round the first and the last pair of the ramp outwards to whole pairs (gpt-oss: false).
    #[serde(skip_serializing_if = "is_true")]
    #[schemars(extend("default" = true))]
    pub truncate: bool,
}

fn is_true(x: &bool) -> bool {
    *x
}

impl Default for Config {
    fn default() -> Self {
        Config {
            factor: 4.0,
            original_len: None,
            beta_fast: 32.0,
            beta_slow: 1.0,
            attention_factor: None,
            mscale: None,
            mscale_all_dim: None,
            truncate: true,
        }
    }
}

impl Config {
    /// The context that the model was trained with; for a model of `seq_len` tokens not always an integer.
    pub fn original_len(&self, seq_len: usize) -> f64 {
        self.original_len
            .map_or(seq_len as f64 / self.factor, |len| len as f64)
    }

    /// Multiplier of cosines and sines.
    pub fn attention_factor(&self) -> f64 {
        let usual = || match (self.mscale, self.mscale_all_dim) {
            (Some(of_pairs), Some(of_all)) => self.multiplier(of_pairs) / self.multiplier(of_all),
            _ => self.usual_attention_factor(),
        };
        self.attention_factor.unwrap_or_else(usual)
    }

    /// YaRN's default factor: 0.1 ln(factor) + 1.
    pub fn usual_attention_factor(&self) -> f64 {
        self.multiplier(1.0)
    }

    /// Its square multiplies the scores of latent attention.
    pub fn score_factor(&self) -> f64 {
        self.mscale_all_dim
            .map_or(1.0, |mscale| self.multiplier(mscale))
    }

    fn multiplier(&self, mscale: f64) -> f64 {
        match self.factor <= 1.0 {
            true => 1.0,
            false => 0.1 * mscale * self.factor.ln() + 1.0,
        }
    }

    /// The same scaling with the original context written out, which files store as an integer number of tokens; left out if no
    /// integer gives these rotations.
    pub fn in_files(&self, theta: f64, half: usize, seq_len: usize) -> Config {
        let said = |len: f64| Config {
            original_len: Some(len as usize),
            ..self.clone()
        };
        let original = self.original_len(seq_len);
        let ramp = self.ramp(theta, half, seq_len);
        let near = [original.floor(), original.ceil()].into_iter();
        let mut near = near.filter(|len| *len >= 1.0).map(said);
        near.find(|config| config.ramp(theta, half, seq_len) == ramp)
            .unwrap_or_else(|| self.clone())
    }

    /// First and last pair of the ramp.
    fn ramp(&self, theta: f64, half: usize, seq_len: usize) -> (f64, f64) {
        let original = self.original_len(seq_len);
        let d = 2.0 * half as f64;
        // The pair that rotates `rotations` times within the original context.
        let pair = |rotations: f64| {
            d * (original / (rotations * std::f64::consts::TAU)).ln() / (2.0 * theta.ln())
        };
        let (low, high) = (pair(self.beta_fast), pair(self.beta_slow));
        let (low, high) = match self.truncate {
            true => (low.floor(), high.ceil()),
            false => (low, high),
        };
        let (low, high) = (low.max(0.0), high.min(d - 1.0));
        // A ramp of zero width is a step.
        (low, if high == low { high + 0.001 } else { high })
    }
}

impl super::Scaling for Config {
    fn rotation(&self, theta: f64, half: usize, seq_len: usize) -> Rotation {
        let (low, high) = self.ramp(theta, half, seq_len);
        let mut rotation = Rotation::plain(theta, half);
        for (j, frequency) in rotation.frequencies.iter_mut().enumerate() {
            let stretched = ((j as f64 - low) / (high - low)).clamp(0.0, 1.0);
            *frequency = *frequency / self.factor * stretched + *frequency * (1.0 - stretched);
        }
        rotation.factor = self.attention_factor();
        rotation
    }

    fn factor(&self) -> f64 {
        self.factor
    }

    fn original_context(&self, context: usize) -> usize {
        (self.original_len(context).round() as usize).max(1)
    }

    fn faults(&self, theta: f64, _half: usize) -> Vec<Fault> {
        let betas = Fault::unless(
            self.beta_slow < self.beta_fast,
            &[
                "position.rope.scaling.yarn.beta_slow",
                "position.rope.scaling.yarn.beta_fast",
            ],
            format!(
                "beta_slow {} is not below beta_fast {}",
                self.beta_slow, self.beta_fast
            ),
            "1 and 32 are usual",
        );
        let base = Fault::unless(
            theta > 1.0,
            &["position.rope.theta"],
            "YaRN scales pairs by their speed, and with theta 1 all turn alike",
            "10000 is usual",
        );
        betas.into_iter().chain(base).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Scaling;
    use super::*;

    #[test]
    fn ramp_factor_and_frequencies_are_the_known_ones() {
        let config = Config {
            original_len: Some(4096),
            ..Default::default()
        };
        assert_eq!(config.ramp(10_000.0, 64, 16_384), (20.0, 46.0));
        let rotation = config.rotation(10_000.0, 64, 16_384);
        assert!((rotation.factor - 1.138_629).abs() < 1e-6);
        let expected = [
            (0, 1.0),
            (20, 0.056_234_1),
            (30, 0.009_488_52),
            (45, 0.000_429_403),
            (63, 2.886_95e-5),
        ];
        for (pair, expected) in expected {
            let found = rotation.frequencies[pair];
            assert!((found / expected - 1.0).abs() < 1e-5, "{pair}: {found}");
        }
        // seq_len / factor if the original context is not given.
        let silent = Config::default().rotation(10_000.0, 64, 16_384);
        assert_eq!(silent, rotation);
    }

    /// A third of 100 tokens is not an integer, and an adjacent integer gives another ramp.
    #[test]
    fn the_original_context_in_files_gives_the_same_rotations() {
        let (mut below, mut above) = (0, 0);
        for seq_len in 60..400 {
            let config = Config {
                factor: 3.0,
                ..Default::default()
            };
            let said = config.in_files(10_000.0, 64, seq_len);
            let Some(len) = said.original_len else {
                continue;
            };
            let rotation = |config: &Config| config.rotation(10_000.0, 64, seq_len);
            assert_eq!(rotation(&said), rotation(&config), "{seq_len}");
            match len * 3 <= seq_len {
                true => below += 1,
                false => above += 1,
            }
        }
        assert!(below > 300 && above > 0, "{below} {above}");
    }

    #[test]
    fn the_attention_factor_may_be_given() {
        let config = Config {
            attention_factor: Some(1.5),
            ..Default::default()
        };
        assert_eq!(config.rotation(10_000.0, 8, 64).factor, 1.5);
    }
}
