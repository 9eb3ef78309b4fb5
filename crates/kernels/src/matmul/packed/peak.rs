//! The innermost loop alone: measures the peak of the arithmetic units.

use super::ahead::Ahead;
use super::instructions::Tiles;
use super::job::Write;
use crate::aligned::Aligned;
use crate::pointers::WritePtr;
use llmtui_base::clock::{Clock as _, SystemClock};

/// Words along k of a tile: both panels fit the L1 cache.
const WORDS: usize = 128;
/// Tiles computed per thread: about a millisecond.
const TILES: usize = 1000;

/// FLOP/s of all pool threads together. Each is timed by itself: on a busy machine one of them may wait for a core.
///
/// # Safety
/// The machine must have the instructions.
pub(super) unsafe fn trial<I: Tiles>() -> f64 {
    let per_tile = 2 * I::ROWS * I::COLS * WORDS * I::PER_WORD;
    let rates = rayon::broadcast(|_| {
        let (left, right) = (
            Aligned::zeros(I::ROWS * WORDS),
            Aligned::zeros(I::COLS * WORDS),
        );
        let mut out = Aligned::zeros(I::ROWS * I::COLS);
        let write = Write {
            to: WritePtr::F32(out.as_mut_ptr()),
            stride: I::COLS,
            cols: I::COLS,
            scale: 1.0,
            base: None,
            bias: None,
            low_rank: None,
        };
        let (mut ahead, mut run) = (Ahead::of_left(None), I::Run::default());
        let clock = SystemClock::new();
        // SAFETY: the machine has the instructions.
        unsafe { I::begin() };
        for _ in 0..TILES {
            let (left, right) = (left.as_ptr().cast(), right.as_ptr().cast());
            // SAFETY: panels and destination are as large as a whole tile's.
            unsafe {
                let state = (&mut ahead, &mut run);
                I::tile((I::ROWS, I::VECTORS), WORDS, left, right, write, state);
            }
        }
        // SAFETY: as above.
        unsafe { I::end(&mut run) };
        std::hint::black_box(&mut out);
        (per_tile * TILES) as f64 / clock.elapsed().as_secs_f64().max(1e-9)
    });
    rates.iter().sum()
}
