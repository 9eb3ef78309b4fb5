//! Software prefetch: what is packed next is fetched while the arithmetic units are busy; otherwise they
//! would wait for memory while packing, and memory would idle while they compute.

use super::pack::Source;

/// Bytes of a cache line.
const LINE: usize = 64;
/// One line per turn.
const WHOLE: u32 = 1 << 16;

/// The cache lines of a block of an input, in memory order, prefetched at an even rate. Branch-free arithmetic, because it
/// runs inside the innermost loop, where a mispredicted branch costs more than it saves.
#[derive(Clone, Copy)]
struct Walk {
    /// First byte of the contiguous run being fetched.
    run: *const u8,
    /// The run's next line, and the number of lines per run.
    line: usize,
    lines: usize,
    /// Bytes from one run to the next.
    stride: usize,
    /// Lines of all runs that are left.
    left: usize,
    /// Fraction of a line due per turn, and the accumulated remainder; in units of [`WHOLE`].
    pace: u32,
    due: u32,
}

impl Walk {
    /// Prefetches a line that is already cached: for one that is not, the processor would look it up in vain every turn.
    fn nothing(present: *const u32) -> Self {
        Walk {
            run: present.cast(),
            line: 0,
            lines: usize::MAX,
            stride: 0,
            left: 0,
            pace: 0,
            due: 0,
        }
    }

    /// A walk that finishes within `turns` turns, if that takes at most a line per turn.
    fn new(source: Source, turns: usize) -> Self {
        let (runs, neighbours, stride) = if source.stride == 1 {
            (source.k, source.width, source.k_stride)
        } else {
            (source.width, source.k, source.stride)
        };
        let run = source.start.cast::<u8>();
        let lines = (run as usize % LINE + size_of::<f32>() * neighbours).div_ceil(LINE);
        let left = runs * lines;
        let pace = (left * WHOLE as usize).div_ceil(turns.max(1));
        Walk {
            run,
            line: 0,
            lines,
            stride: size_of::<f32>() * stride,
            left,
            pace: pace.min(WHOLE as usize) as u32,
            due: 0,
        }
    }

    /// Prefetches the next line, and advances when it is due.
    #[inline(always)]
    fn turn(&mut self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint may name any address.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T1>(self.run.wrapping_add(self.line * LINE).cast());
        }
        self.due += self.pace;
        let step = (self.due / WHOLE) as usize & usize::from(self.left > 0);
        self.due %= WHOLE;
        self.left -= step;
        self.line += step;
        // At the end the last run's first line is prefetched repeatedly, which costs nothing.
        let is_over = usize::from(self.line == self.lines);
        self.line *= 1 - is_over;
        let is_more = usize::from(self.left > 0);
        self.run = self.run.wrapping_add(is_over * is_more * self.stride);
    }
}

/// What is prefetched while tiles are computed: the next panel of the right input and the next block of the left one.
pub(super) struct Ahead {
    right: Walk,
    left: Walk,
    /// A cached address.
    present: *const u32,
}

impl Ahead {
    /// Will prefetch the left input's next block; `present` is memory in use anyway.
    pub fn of_left(next: Option<Source>, present: *const u32) -> Self {
        let nothing = Walk::nothing(present);
        Ahead {
            right: nothing,
            left: next.map_or(nothing, |next| Walk::new(next, usize::MAX)),
            present,
        }
    }

    /// Prefetches the right input's next panel within `turns` turns, of which `left` follow in total. The left input's block
    /// starts as late as possible: what is fetched too early is evicted again.
    pub fn panel(&mut self, next: Option<Source>, turns: usize, left: usize) {
        self.right = next.map_or(Walk::nothing(self.present), |next| Walk::new(next, turns));
        let is_time = 4 * left <= 5 * self.left.left;
        self.left.pace = if is_time { WHOLE } else { 0 };
    }

    /// Prefetches what is due.
    #[inline(always)]
    pub fn turn(&mut self) {
        self.right.turn();
        self.left.turn();
    }
}
