//! The arithmetic of matmuls against what the machine is fast at.

use super::{Subject, poor};
use crate::base::finding::Finding;
use crate::nn::{Precision, compute_dtype_name};

pub fn review(subject: &Subject<'_>) -> Vec<Finding> {
    let train = &subject.spec.train;
    let auto = Precision::Auto.resolve().map(compute_dtype_name);
    if train.precision != Precision::F32 || auto != Ok("bf16") {
        return Vec::new();
    }
    vec![poor(
        "train.precision",
        "f32 products take twice the time of bf16 ones on this processor; weights, sums and moments stay f32 either way".into(),
        "-s train.precision=auto".into(),
        "Kalamkar et al. 2019, arXiv 1905.12322: bf16 products reach the losses of f32; docs/speed.md",
    )]
}
