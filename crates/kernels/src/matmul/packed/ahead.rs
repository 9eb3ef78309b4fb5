//! Software prefetch: the data to be packed next are fetched while the arithmetic units are busy; otherwise they would wait
//! for memory while packing, and memory would idle while they compute.

use super::factor::Source;

/// Bytes of a cache line.
const LINE: usize = 64;

/// The cache lines of a block of an input, in memory order.
#[derive(Clone, Copy)]
struct Walk {
    /// First byte of the contiguous run being fetched.
    run: *const u8,
    /// The run's next line, and the number of lines per run.
    line: usize,
    lines: usize,
    /// Bytes from one run to the next.
    stride: usize,
    /// Lines left in all runs.
    left: usize,
    /// Lines per turn; 0 before its time, or when nothing is left.
    pace: usize,
}

impl Walk {
    const NOTHING: Walk = Walk {
        run: std::ptr::null(),
        line: 0,
        lines: 1,
        stride: 0,
        left: 0,
        pace: 0,
    };

    fn new(source: Source) -> Self {
        let (runs, neighbours, stride) = if source.stride == 1 {
            (source.k, source.width, source.k_stride)
        } else {
            (source.width, source.k, source.stride)
        };
        let (run, size) = source.start.bytes();
        let lines = (run as usize % LINE + size * neighbours).div_ceil(LINE);
        Walk {
            run,
            line: 0,
            lines,
            stride: size * stride,
            left: runs * lines,
            pace: 0,
        }
    }

    /// Prefetches the lines of one turn.
    #[inline(always)]
    fn turn(&mut self) {
        for _ in 0..self.pace {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a prefetch hint may have any address.
            unsafe {
                use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
                _mm_prefetch::<_MM_HINT_T1>(self.run.wrapping_add(self.line * LINE).cast());
            }
            self.line += 1;
            if self.line == self.lines {
                self.line = 0;
                self.run = self.run.wrapping_add(self.stride);
            }
            self.left -= 1;
            if self.left == 0 {
                self.pace = 0;
                break;
            }
        }
    }
}

/// What is prefetched while tiles are computed: the next panel of the right input and the next block of the left one.
pub(super) struct Ahead {
    right: Walk,
    left: Walk,
}

impl Ahead {
    /// Schedules the left input's next block.
    pub fn of_left(next: Option<Source>) -> Self {
        Ahead {
            right: Walk::NOTHING,
            left: next.map_or(Walk::NOTHING, Walk::new),
        }
    }

    /// Schedules the right input's next panel for the next `turns` turns, of `left` in total. The left input's block
    /// starts when at most `lead` quarters of a turn are left per line: data prefetched too early are evicted again, too
    /// late they have not arrived.
    pub fn panel(&mut self, next: Option<Source>, turns: usize, left: usize, lead: usize) {
        self.right = next.map_or(Walk::NOTHING, Walk::new);
        self.right.pace = self.right.left.div_ceil(turns.max(1));
        let is_time = 4 * left <= lead * self.left.left;
        self.left.pace = usize::from(is_time && self.left.left > 0);
    }

    /// Prefetches what is due; usually nothing: panels are packed once, and the branch is the same for whole tiles, so
    /// it is predicted.
    #[inline(always)]
    pub fn turn(&mut self) {
        if self.right.pace + self.left.pace > 0 {
            self.right.turn();
            self.left.turn();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matmul::packed::ReadPtr;

    /// A block of 20 runs of 100 contiguous elements: 7 lines each if the first begins on a line.
    fn source(start: *const f32) -> Source {
        Source {
            start: ReadPtr::F32(start),
            stride: 300,
            k_stride: 1,
            width: 20,
            k: 100,
        }
    }

    #[test]
    fn panels_are_prefetched_within_their_turns_and_blocks_at_the_end() {
        let start = LINE as *const f32;
        let mut ahead = Ahead::of_left(Some(source(start)));
        for turns in [1, 50, 139, 140, 1000] {
            ahead.panel(Some(source(start)), turns, 10_000, 5);
            assert_eq!(ahead.right.left, 140);
            (0..turns).for_each(|_| ahead.turn());
            assert_eq!((ahead.right.left, ahead.right.pace), (0, 0), "{turns}");
            assert_eq!(ahead.left.left, 140, "too early for the left input");
        }
        let last = ahead.right.run.addr() - start.addr();
        assert_eq!(last, 20 * 300 * size_of::<f32>(), "after the last run");
        ahead.panel(None, 160, 160, 5);
        (0..160).for_each(|_| ahead.turn());
        assert_eq!(ahead.left.left, 0);
    }
}
