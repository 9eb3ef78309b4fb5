//! What stands between the two linear layers of a feed-forward block.

use candle_core::{D, Result, Tensor};

/// Which activation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// x Φ(x), the exact form (Hendrycks and Gimpel 2016).
    Gelu,
    /// 0.5 x (1 + tanh(√(2/π)(x + 0.044715 x³))), GPT-2's form.
    GeluTanh,
    /// silu(gate) · up (Shazeer 2020); its input holds gate and up side by side.
    SwiGlu,
}

impl Activation {
    /// Width of the input for an output of width `d_ff`.
    pub fn input_width(self, d_ff: usize) -> usize {
        match self {
            Activation::SwiGlu => 2 * d_ff,
            Activation::Gelu | Activation::GeluTanh => d_ff,
        }
    }
}

/// `x` (…, d_ff), or (…, 2 · d_ff) with the gate first for SwiGLU → (…, d_ff).
pub fn composite(kind: Activation, x: &Tensor) -> Result<Tensor> {
    match kind {
        // Made of erf: candle's own gelu_erf has a derivative of six digits.
        Activation::Gelu => {
            let phi = (((x * std::f64::consts::FRAC_1_SQRT_2)?.erf()? + 1.0)? * 0.5)?;
            x * phi
        }
        Activation::GeluTanh => {
            let inner = (x + (x.sqr()? * x)? * 0.044_715)?;
            let u = (inner * (2.0 / std::f64::consts::PI).sqrt())?;
            (x * 0.5)? * (u.tanh()? + 1.0)?
        }
        Activation::SwiGlu => {
            let d_ff = x.dim(D::Minus1)? / 2;
            let gate = x.narrow(D::Minus1, 0, d_ff)?;
            let up = x.narrow(D::Minus1, d_ff, d_ff)?;
            // gate / (1 + e^−gate)
            (&gate / (gate.neg()?.exp()? + 1.0)?)? * up
        }
    }
}
