//! How fast this machine multiplies matrices, for plans: a short benchmark. The planner caches the result.

use crate::kernels::matmul::{ComputeDtype, bf16_available, matmul_gflops};

/// Time per number format.
const SECONDS: f64 = 0.12;

/// FLOP/s of matmuls in `f32` or `bf16`; `None` if the processor does not support the format.
pub fn measure(dtype: &str) -> Option<f64> {
    let arithmetic = match dtype {
        "bf16" if bf16_available() => ComputeDtype::Bf16,
        "bf16" => return None,
        _ => ComputeDtype::F32,
    };
    Some(1e9 * matmul_gflops(arithmetic, SECONDS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_a_speed() {
        assert!(measure("f32").is_some_and(|speed| speed > 1e7));
        assert_eq!(measure("bf16").is_some(), bf16_available());
    }
}
