//! Scalings that extend rotary positions to texts longer than in training.

mod linear;
mod llama3;
mod longrope;
mod ntk;
mod yarn;

pub use linear::Config as Linear;
pub use llama3::Config as Llama3;
pub use longrope::Config as Longrope;
pub use ntk::Config as Ntk;
pub use yarn::Config as Yarn;

use super::Rotation;
use crate::nn::Fault;

/// The interface of a scaling.
pub trait Scaling {
    /// The rotation of `half` pairs with base `theta`, stretched; `seq_len` is the longest text.
    fn rotation(&self, theta: f64, half: usize, seq_len: usize) -> Rotation;
    /// Factor by which the context is extended.
    fn factor(&self) -> f64;
    /// The context before it was extended to `context` tokens.
    fn original_context(&self, context: usize) -> usize {
        ((context as f64 / self.factor()).round() as usize).max(1)
    }
    /// Problems of the scaling for `half` rotary pairs with base `theta`.
    fn faults(&self, _theta: f64, _half: usize) -> Vec<Fault> {
        Vec::new()
    }
}

crate::base::registry! {
    /// How rotary positions are stretched over longer texts.
    pub enum ScalingConfig: dyn Scaling { linear: Linear, ntk: Ntk, yarn: Yarn, llama3: Llama3, longrope: Longrope }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_factor_of_one_changes_nothing() {
        let plain = Rotation::plain(10_000.0, 32);
        let members = [
            ScalingConfig::Linear(Linear { factor: 1.0 }),
            ScalingConfig::Ntk(Ntk { factor: 1.0 }),
            ScalingConfig::Yarn(Yarn {
                factor: 1.0,
                ..Default::default()
            }),
            ScalingConfig::Llama3(Llama3 {
                factor: 1.0,
                ..Default::default()
            }),
            ScalingConfig::Longrope(Longrope {
                short_factor: vec![1.0; 32],
                ..Default::default()
            }),
        ];
        for member in members {
            let scaled = member.rotation(10_000.0, 32, 4096);
            assert_eq!(scaled.factor, 1.0, "{member:?}");
            for (a, b) in scaled.frequencies.iter().zip(&plain.frequencies) {
                assert!((a - b).abs() < 1e-15, "{member:?}");
            }
        }
    }
}
