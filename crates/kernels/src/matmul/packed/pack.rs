//! Packing: an input is copied into panels in the order in which the tiles read it, so that the innermost loop reads
//! memory sequentially whatever the strides of the input.

use super::factor::Source;
use super::instructions::{Instructions, Tiles};

/// Words from one panel to the next. The gap absorbs what whole vectors write beyond a panel's end, and avoids
/// cache-set conflicts between panels.
pub(super) fn distance<I: Tiles>(words: usize, panel: usize) -> usize {
    words.next_multiple_of(I::STEP) * panel + I::LANES
}

/// Words along k packed before switching to the next panel, if contiguous elements belong to different panels.
const TURN_WORDS: usize = 16;

/// Packs `source` into panels of `panel` words: panel by panel, [`distance`] apart, and word by word along k. Words beyond
/// the width are 0, as is the missing half of a pair at an odd end.
///
/// # Safety
/// The machine must have the instructions, all elements of the source must be readable, and `to` must be large enough.
#[inline(always)]
pub(super) unsafe fn panels<I: Instructions>(to: *mut u32, source: Source, panel: usize) {
    let words = source.k.div_ceil(I::PER_WORD);
    let distance = distance::<I>(words, panel);
    let chunk = if source.stride == 1 {
        TURN_WORDS
    } else {
        words
    };
    for word in (0..words).step_by(chunk.max(1)) {
        let k = word * I::PER_WORD;
        for first in (0..source.width).step_by(panel) {
            // SAFETY: within the source and within its panel.
            unsafe {
                let part = Source {
                    start: source
                        .start
                        .add(first * source.stride + k * source.k_stride),
                    width: panel.min(source.width - first),
                    k: (chunk * I::PER_WORD).min(source.k - k),
                    ..source
                };
                let to = to.add(first / panel * distance + word * panel);
                if part.stride == 1 {
                    across::<I>(to, part, panel);
                } else {
                    along::<I>(to, part, panel);
                }
            }
        }
    }
}

/// Elements contiguous in memory are contiguous in the panel.
#[inline(always)]
unsafe fn across<I: Instructions>(to: *mut u32, source: Source, panel: usize) {
    let words = source.k.div_ceil(I::PER_WORD);
    for word in 0..words {
        let k = word * I::PER_WORD;
        let step = if k + 1 < source.k { source.k_stride } else { 0 };
        let mut lane = 0;
        while lane < panel {
            let n = source.width.saturating_sub(lane).min(I::LANES);
            // SAFETY: n elements of rows k and, if it exists, k + 1; what is written beyond the panel's end belongs to
            // the next word, written next, or is the caller's slack.
            unsafe {
                let from = source
                    .start
                    .add(k * source.k_stride + lane.min(source.width));
                I::store_words(to.add(word * panel + lane), I::across(from, step, n));
            }
            lane += I::LANES;
        }
    }
}

/// Elements contiguous in memory are contiguous along k: squares are transposed.
#[inline(always)]
unsafe fn along<I: Instructions>(to: *mut u32, source: Source, panel: usize) {
    let square = I::LANES * I::PER_WORD;
    for k in (0..source.k).step_by(square) {
        let mut lane = 0;
        while lane < panel {
            let rows = source.width.saturating_sub(lane).min(I::LANES);
            // SAFETY: as above.
            unsafe {
                I::turn(
                    to.add(k / I::PER_WORD * panel + lane),
                    panel,
                    source.start.add(lane.min(source.width) * source.stride + k),
                    source.stride,
                    rows,
                    square.min(source.k - k),
                );
            }
            lane += I::LANES;
        }
    }
}
