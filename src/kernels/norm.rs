//! Normalisation over the last dimension: LayerNorm (Ba et al. 2016) and RMSNorm (Zhang and Sennrich 2019).

use candle_core::{D, Result, Tensor};

/// Which normalisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormKind {
    /// (x − mean) / √(var + eps) · gain (+ bias), the variance without Bessel's correction.
    Layer,
    /// x / √(mean(x²) + eps) · gain.
    Rms,
}

/// `x` (…, D), `gain` (D), `bias` (D) → (…, D).
pub fn composite(
    kind: NormKind,
    x: &Tensor,
    gain: &Tensor,
    bias: Option<&Tensor>,
    eps: f64,
) -> Result<Tensor> {
    let centred = match kind {
        NormKind::Layer => x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?,
        NormKind::Rms => x.clone(),
    };
    let scale = (centred.sqr()?.mean_keepdim(D::Minus1)? + eps)?.sqrt()?;
    let y = centred.broadcast_div(&scale)?.broadcast_mul(gain)?;
    match bias {
        Some(bias) => y.broadcast_add(bias),
        None => Ok(y),
    }
}
