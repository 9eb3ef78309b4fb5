//! The loops around the tiles: cache blocking, and the work of each thread.

use super::ahead::Ahead;
use super::factor::Source;
use super::instructions::Tiles;
use super::job::{Job, Write};
use super::pack::distance;
use super::shared::{Claim, Claims, PanelBuffer, Panels};
use crate::lanes::Buffer;
use crate::pointers::ReadPtr;
use crate::simd::is_amd;
use crate::threads;
use std::cell::{Cell, RefCell};

/// Columns of the right input packed at once, and words of all its blocks along k: they should stay in the L3 cache.
const BLOCK_COLS: usize = 2016;
const RIGHT_WORDS: usize = 1 << 20;
/// Multiplications below which a matmul is not worth handing to another thread.
const WORTHWHILE: usize = 1 << 19;

thread_local! {
    /// A thread's packed block of the left input; grows as needed and is kept.
    static LEFT: RefCell<Buffer> = RefCell::default();
    /// The right input's panels, owned by the thread that called the matmul.
    static RIGHT: Cell<PanelBuffer> = Cell::default();
}

/// Computes the job on up to `n_threads` pool threads. The split along k into even blocks depends only on k, so that the bits
/// do not depend on anything else. A matmul with k = 0 is one block without words.
///
/// # Safety
/// The machine must have the instructions; the inputs must be readable and the destination exclusively writable.
pub(super) unsafe fn product<I: Tiles>(job: &Job, n_threads: usize) {
    let n_threads = if job.m * job.n * job.k < WORTHWHILE {
        1
    } else {
        n_threads
    };
    let all = job.k.div_ceil(I::PER_WORD);
    let words = even(all, job.write.most(I::DEPTH, all)).next_multiple_of(I::STEP);
    let depth = (words * I::PER_WORD).max(1);
    let panels = BLOCK_COLS.min(job.n).div_ceil(I::COLS);
    let distance = distance::<I>(words, I::COLS);
    let blocks = (RIGHT_WORDS / (panels * distance).max(1)).clamp(1, job.k.div_ceil(depth).max(1));
    let mut room = RIGHT.take();
    for col in (0..job.n).step_by(BLOCK_COLS) {
        for term in (0..job.k.max(1)).step_by(blocks * depth) {
            let cols = (col, BLOCK_COLS.min(job.n - col));
            let panels = cols.1.div_ceil(I::COLS);
            let rows = job.m.div_ceil(I::ROWS);
            let most = even(rows, I::BLOCK_ROWS / I::ROWS).max(1);
            let area = Area {
                job,
                cols,
                terms: (term, (blocks * depth).min(job.k - term)),
                depth,
                right: room.panels(blocks * panels, distance),
                claims: Claims::new((rows, most), panels, n_threads, I::IS_FAST),
            };
            threads::fan_out(n_threads, &|task| {
                // SAFETY: claims do not overlap; the caller guarantees the rest.
                unsafe { area.work::<I>(task, n_threads) };
            });
        }
    }
    RIGHT.set(room);
}

/// Part `index` of `parts` of `total`, cut between panels: (first, count).
pub(super) fn share(total: usize, panel: usize, index: usize, parts: usize) -> (usize, usize) {
    let panels = total.div_ceil(panel);
    let from = (panels * index / parts * panel).min(total);
    let to = (panels * (index + 1) / parts * panel).min(total);
    (from, to - from)
}

/// The largest part of `total` when split into the fewest even parts of at most `most`.
fn even(total: usize, most: usize) -> usize {
    total.div_ceil(total.div_ceil(most).max(1))
}

/// All rows of a matmul times some of its columns, with some of its terms along k.
struct Area<'a> {
    job: &'a Job,
    /// (first, count)
    cols: (usize, usize),
    terms: (usize, usize),
    /// Terms per block.
    depth: usize,
    right: Panels<'a>,
    claims: Claims,
}

// SAFETY: threads read the inputs, and each writes the rows and columns it has claimed.
unsafe impl Sync for Area<'_> {}

impl Area<'_> {
    /// Processes claims until none is left. Threads begin at columns far apart: each packs the panels that it needs first.
    unsafe fn work<I: Tiles>(&self, task: usize, n_threads: usize) {
        let words = self.depth.div_ceil(I::PER_WORD);
        let most = I::BLOCK_ROWS / I::ROWS;
        LEFT.with_borrow_mut(|left| {
            let words = most * distance::<I>(words, I::ROWS);
            let left = left.get(words).as_mut_ptr().cast();
            // The block that `left` holds: its first panel of rows, and its index along k.
            let mut held = None;
            let mut run = I::Run::default();
            // SAFETY: the machine has the instructions.
            unsafe { I::begin() };
            while let Some(claim) = self.claims.take() {
                let blocks = self.terms.1.div_ceil(self.depth).max(1);
                for block in 0..blocks {
                    let next = if block + 1 < blocks {
                        Some(self.left::<I>(claim, block + 1))
                    } else {
                        let next = self.claims.peek();
                        let other = next.filter(|next| next.rows != claim.rows);
                        other.map(|next| self.left::<I>(next, 0))
                    };
                    let this = Some((claim.rows.0, block));
                    // SAFETY: claims lie within the job, and `left` has room for the largest.
                    unsafe {
                        if held != this {
                            I::pack_left(left, self.left::<I>(claim, block));
                            held = this;
                        }
                        let by = (task, n_threads);
                        self.block::<I>((claim, block), next, left, by, &mut run);
                    }
                }
            }
            // SAFETY: as above.
            unsafe { I::end(&mut run) };
        });
    }

    /// (first, count) of the terms of a block.
    fn terms(&self, block: usize) -> (usize, usize) {
        let from = block * self.depth;
        let count = self.depth.min(self.terms.1 - from);
        (self.terms.0 + from, count)
    }

    fn left<I: Tiles>(&self, claim: Claim, block: usize) -> Source {
        let (row, (term, depth)) = (claim.rows.0 * I::ROWS, self.terms(block));
        let rows = (claim.rows.1 * I::ROWS).min(self.job.m - row);
        self.job.a.block((row, term), rows, depth)
    }

    fn right<I: Tiles>(&self, panel: usize, block: usize) -> Source {
        let (col, (term, depth)) = (panel * I::COLS, self.terms(block));
        let width = I::COLS.min(self.cols.1 - col);
        self.job.b.block((self.cols.0 + col, term), width, depth)
    }

    /// All tiles of a claim for the terms of one block, whose left input is packed. What is packed next is prefetched meanwhile.
    unsafe fn block<I: Tiles>(
        &self,
        (claim, block): (Claim, usize),
        next: Option<Source>,
        left: *const u32,
        (task, n_threads): (usize, usize),
        run: &mut I::Run,
    ) {
        let Source { width: m, k, .. } = self.left::<I>(claim, block);
        let words = k.div_ceil(I::PER_WORD);
        let left_distance = distance::<I>(words, I::ROWS);
        let all = self.cols.1.div_ceil(I::COLS);
        let (first, panels) = claim.cols;
        let start = task * panels / n_threads;
        let turns = m.div_ceil(I::ROWS) * words.div_ceil(I::WORDS_PER_TURN);
        // Intel's L3 cache is slow: f32 gains 2 to 5 %, AMX 7 %. Zen 3 loses up to 7 %.
        let fetches_packed = !is_amd();
        // SAFETY: panels are `words` words deep and contiguous, within what the caller guarantees.
        unsafe {
            let mut ahead = Ahead::of_left(next);
            let mut write = self.job.write.at(claim.rows.0 * I::ROWS, self.cols.0);
            if self.terms(block).0 > 0 {
                write.accumulate();
            }
            let panel_at = |step: usize| first + (start + step) % panels;
            for step in 0..panels {
                let panel = panel_at(step);
                let right = self.right.get(block * all + panel, |to| {
                    I::pack_right(to, self.right::<I>(panel, block));
                });
                let next = Some(panel_at(step + 1)).filter(|_| step + 1 < panels);
                let next = next.and_then(|next| match self.right.ready(block * all + next) {
                    Some(packed) => fetches_packed.then(|| in_one(packed, words * I::COLS)),
                    None => Some(self.right::<I>(next, block)),
                });
                ahead.panel(next, turns, turns * (panels - step), I::LEAD);
                let col = panel * I::COLS;
                let cols = I::COLS.min(self.cols.1 - col);
                for row in (0..m).step_by(I::ROWS) {
                    let mut write = write.at(row, col);
                    write.cols = cols;
                    let size = (I::ROWS.min(m - row), cols.div_ceil(I::LANES));
                    let left = left.add(row / I::ROWS * left_distance);
                    tile::<I>(size, words, left, right, write, (&mut ahead, run));
                }
            }
        }
    }
}

/// A packed panel as a source that is one contiguous run in memory.
fn in_one(start: *const u32, words: usize) -> Source {
    Source {
        start: ReadPtr::F32(start.cast()),
        stride: words,
        k_stride: 1,
        width: 1,
        k: words,
    }
}

/// One tile, its terms summed in even chunks of at most CHUNK words: the first is written, the others are added to it while it is
/// in the L1 cache.
#[inline(always)]
unsafe fn tile<I: Tiles>(
    size: (usize, usize),
    words: usize,
    left: *const u32,
    right: *const u32,
    mut write: Write,
    (ahead, run): (&mut Ahead, &mut I::Run),
) {
    let chunk = even(words, write.most(I::CHUNK, words)).max(1);
    for from in (0..words.max(1)).step_by(chunk) {
        let count = chunk.min(words - from);
        // SAFETY: chunks lie within the panels; the caller guarantees the rest.
        unsafe {
            let (left, right) = (left.add(from * I::ROWS), right.add(from * I::COLS));
            I::tile(size, count, left, right, write, (&mut *ahead, &mut *run));
        }
        write.accumulate();
    }
}
