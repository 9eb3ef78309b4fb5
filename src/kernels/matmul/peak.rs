//! What the machine's arithmetic units reach at best.

use super::instructions::Instructions;
use super::tile::Write;
use super::{Arithmetic, Compute, Into, Mat, matmul};
use crate::base::clock::{Clock, SystemClock};

/// The machine's peak in this arithmetic: the best of repeated trials within `seconds`, in GFLOP/s, on all threads of the
/// pool. A trial is the innermost loop alone, on factors in the first-level cache; where this machine has no kernel of
/// ours, it is a 768³ product.
pub fn peak_gflops(arithmetic: Arithmetic, seconds: f64) -> f64 {
    let clock = SystemClock::new();
    let mut best = 0.0_f64;
    while clock.elapsed().as_secs_f64() < seconds || best == 0.0 {
        let start = clock.elapsed();
        let operations = trial(arithmetic);
        let time = (clock.elapsed() - start).as_secs_f64();
        best = best.max(operations / time.max(1e-9));
    }
    best / 1e9
}

/// Does something and tells how many operations it took.
fn trial(arithmetic: Arithmetic) -> f64 {
    #[cfg(target_arch = "x86_64")]
    {
        use super::{avx512, bf16_available};
        use crate::kernels::simd::{Level, level};
        if arithmetic == Arithmetic::Bf16 && bf16_available() {
            // SAFETY: the machine has the instructions.
            return unsafe { tiles::<avx512::Bf16>() };
        }
        if arithmetic == Arithmetic::F32 && level() == Level::Avx512 {
            // SAFETY: as above.
            return unsafe { tiles::<avx512::F32>() };
        }
    }
    product(arithmetic)
}

/// Words along k of a tile of the trial: both panels fit the first-level cache of any machine.
const WORDS: usize = 128;
/// Tiles that one thread computes in a trial: about a millisecond.
const TILES: usize = 1000;

/// # Safety
/// The machine must have the instructions.
unsafe fn tiles<I: Instructions>() -> f64 {
    rayon::broadcast(|_| {
        let (left, right) = (vec![0_u32; I::ROWS * WORDS], vec![0_u32; I::COLS * WORDS]);
        let mut out = vec![0.0_f32; I::ROWS * I::COLS];
        let write = Write {
            to: out.as_mut_ptr(),
            stride: I::COLS,
            cols: I::COLS,
            scale: 1.0,
            base: None,
            bias: None,
        };
        for _ in 0..TILES {
            let (left, right) = (left.as_ptr(), right.as_ptr());
            // SAFETY: panels and destination are as large as a whole tile's.
            unsafe { I::tile((I::ROWS, I::VECTORS), WORDS, left, right, write) };
        }
        std::hint::black_box(&mut out);
    });
    let per_tile = 2 * I::ROWS * I::COLS * WORDS * I::PER_WORD;
    (per_tile * TILES * rayon::current_num_threads()) as f64
}

fn product(arithmetic: Arithmetic) -> f64 {
    const N: usize = 768;
    let x = vec![0.5; N * N];
    let mut out = vec![0.0; N * N];
    let view = Mat::new(&x, N, N);
    let compute = Compute::pool(arithmetic);
    matmul(&mut out, view, view, 1.0, Into::Overwrite, compute);
    2.0 * (N * N * N) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_a_positive_number() {
        assert!(peak_gflops(Arithmetic::F32, 0.0) > 0.1);
        assert!(peak_gflops(Arithmetic::Bf16, 0.0) > 0.1);
    }
}
