//! Gradient checks: a fused kernel in f32 against candle's autograd through its composite in f64.

use candle_core::{DType, Device, Result, Tensor, Var};
use llmtui_base::rng::{Rng, Stream};

/// Standard normal numbers.
pub fn normal(n: usize, lane: u32) -> Vec<f32> {
    let mut rng = Rng::new(11, Stream::Test, 0, lane);
    (0..n).map(|_| rng.normal()).collect()
}

/// The numbers as an f64 leaf.
pub fn leaf(values: &[f32], shape: &[usize]) -> Var {
    let tensor = Tensor::from_slice(values, shape, &Device::Cpu).unwrap();
    Var::from_tensor(&tensor.to_dtype(DType::F64).unwrap()).unwrap()
}

/// The composite's output, and the gradient of Σ dy · y with respect to each leaf.
pub fn oracle(
    leaves: &[&Var],
    dy: &[f32],
    composite: impl FnOnce() -> Result<Tensor>,
) -> (Vec<f64>, Vec<Vec<f64>>) {
    let y = composite().unwrap();
    let dy = Tensor::from_slice(dy, y.shape(), &Device::Cpu)
        .and_then(|dy| dy.to_dtype(DType::F64))
        .unwrap();
    let grads = (&y * dy).unwrap().sum_all().unwrap().backward().unwrap();
    let flat = |t: &Tensor| t.flatten_all().unwrap().to_vec1::<f64>().unwrap();
    let grads = leaves
        .iter()
        .map(|leaf| flat(grads.get(leaf).expect("a gradient for every leaf")))
        .collect();
    (flat(&y), grads)
}

/// Asserts that the largest difference is at most `tolerance` of the largest exact value.
pub fn assert_close(what: &str, values: &[f32], exact: &[f64], tolerance: f64) {
    assert_eq!(values.len(), exact.len(), "{what}: length");
    let scale = exact.iter().fold(1e-6_f64, |max, x| max.max(x.abs()));
    let worst = values
        .iter()
        .zip(exact)
        .map(|(&x, e)| (f64::from(x) - e).abs())
        .fold(0.0, |max, x| if x > max || x.is_nan() { x } else { max });
    assert!(
        worst <= tolerance * scale,
        "{what}: off by {worst:e} of {scale:e}"
    );
}
