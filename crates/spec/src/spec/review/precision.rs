//! The matmul dtype against what the machine computes fastest.

use super::{Subject, poor};
use crate::base::finding::Finding;
use crate::nn::{Precision, compute_dtype_name};

pub fn review(subject: &Subject<'_>) -> Vec<Finding> {
    let f32_is_said = subject.spec.train.precision == Precision::F32;
    // PyTorch's ranks have a precision of their own.
    let computes_here = subject.sizes.here && subject.spec.engine.torch().is_none();
    let auto = Precision::Auto.resolve().map(compute_dtype_name);
    if !f32_is_said || !computes_here || auto != Ok("bf16") {
        return Vec::new();
    }
    vec![poor(
        "train.precision",
        "f32 matmuls take two to five times as long as bf16 on this CPU; weights, accumulation and moments stay f32 either way".into(),
        "-s train.precision=auto".into(),
        "Kalamkar et al. 2019, arXiv 1905.12322: training in bf16 reaches the losses of f32; docs/speed.md",
    )]
}
