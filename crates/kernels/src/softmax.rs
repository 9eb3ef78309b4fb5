//! Softmax over the last dimension in plain candle, differentiable: all that the composites need of candle-nn.

use candle_core::{D, Result, Tensor};

/// exp(x) / Σ exp(x), shifted by the maximum.
///
/// # Errors
/// candle's own: shapes or dtypes that do not match.
pub fn composite(x: &Tensor) -> Result<Tensor> {
    let exp = shifted(x)?.exp()?;
    exp.broadcast_div(&exp.sum_keepdim(D::Minus1)?)
}

/// x − ln Σ exp(x), shifted by the maximum.
///
/// # Errors
/// candle's own: shapes or dtypes that do not match.
pub fn log_composite(x: &Tensor) -> Result<Tensor> {
    let x = shifted(x)?;
    let sum = x.exp()?.sum_keepdim(D::Minus1)?;
    x.broadcast_sub(&sum.log()?)
}

fn shifted(x: &Tensor) -> Result<Tensor> {
    x.broadcast_sub(&x.max_keepdim(D::Minus1)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;
    use candle_nn::ops;

    #[test]
    fn both_are_those_of_candle_nn_to_the_bit() {
        let x = Tensor::randn(0f64, 3.0, (2, 3, 7), &Device::Cpu).unwrap();
        let pairs = [
            (composite(&x), ops::softmax(&x, D::Minus1)),
            (log_composite(&x), ops::log_softmax(&x, D::Minus1)),
        ];
        for (ours, theirs) in pairs {
            let flat = |x: Result<Tensor>| x.unwrap().flatten_all().unwrap().to_vec1::<f64>();
            assert_eq!(flat(ours).unwrap(), flat(theirs).unwrap());
        }
    }
}
