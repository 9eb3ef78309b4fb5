//! State shared by the threads of one matmul: panels of the right input, each packed by the first thread that needs it, and
//! tiles of the destination, claimed as threads become free.
//!
//! With a fixed split all threads would wait for the slowest: on a virtual machine a noisy neighbor on the same core halves one
//! thread's speed for seconds.

use crate::lanes::Buffer;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

const FREE: u8 = 0;
const BUSY: u8 = 1;
const READY: u8 = 2;

/// Reusable memory for packed panels.
#[derive(Default)]
pub(super) struct PanelBuffer {
    words: Buffer,
    states: Vec<AtomicU8>,
}

impl PanelBuffer {
    /// `count` panels, `distance` words apart, none packed yet.
    pub fn panels(&mut self, count: usize, distance: usize) -> Panels<'_> {
        if self.states.len() < count {
            self.states.resize_with(count, AtomicU8::default);
        }
        for state in &mut self.states[..count] {
            *state.get_mut() = FREE;
        }
        Panels {
            start: self.words.get(count * distance).as_mut_ptr().cast(),
            distance,
            states: &self.states[..count],
        }
    }
}

/// Panels of the right input.
pub(super) struct Panels<'a> {
    start: *mut u32,
    distance: usize,
    states: &'a [AtomicU8],
}

// SAFETY: a panel is written only by the thread that set it BUSY, and read by others once it is READY.
unsafe impl Sync for Panels<'_> {}

impl Panels<'_> {
    fn is_ready(&self, index: usize) -> bool {
        self.states[index].load(Ordering::Acquire) == READY
    }

    /// Panel `index`, if it is packed.
    pub fn ready(&self, index: usize) -> Option<*const u32> {
        // SAFETY: there is memory for as many panels as states.
        let at = || unsafe { self.start.add(index * self.distance) }.cast_const();
        self.is_ready(index).then(at)
    }

    /// Panel `index`, packed by `pack` if no thread has done so.
    pub fn get(&self, index: usize, pack: impl FnOnce(*mut u32)) -> *const u32 {
        let state = &self.states[index];
        // SAFETY: there is memory for as many panels as states.
        let panel = unsafe { self.start.add(index * self.distance) };
        if self.is_ready(index) {
            return panel;
        }
        let own = state.compare_exchange(FREE, BUSY, Ordering::Acquire, Ordering::Acquire);
        if own.is_ok() {
            pack(panel);
            state.store(READY, Ordering::Release);
        } else {
            // Takes a few microseconds.
            crate::threads::wait_until(|| self.is_ready(index));
        }
        panel
    }
}

/// Work for one thread at a time: a rectangle of tiles, as (first, count) of the panels of rows and of columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Claim {
    pub rows: (usize, usize),
    pub cols: (usize, usize),
}

/// The remaining work of a matmul: large claims first, small ones at the end, so that all threads finish together.
pub(super) struct Claims {
    next: AtomicUsize,
    rows: usize,
    cols: usize,
    /// Panels of rows that are packed at once.
    most: usize,
    by: By,
    /// The remaining work is divided by this to size the next claim.
    shares: usize,
}

/// The dimension along which claims are cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    /// All columns of fewer and fewer rows: if there are few tiles.
    Rows,
    /// Fewer and fewer columns, at least this many, of as many rows as are packed at once: a panel of columns may come from the L3
    /// cache or from memory, and is then used for all of these rows.
    Columns(usize),
}

/// Panels of columns per thread below which cutting by columns is too coarse, and blocks of rows from which on the last few do
/// not matter.
const ENOUGH: usize = 16;
const MANY: usize = 8;

impl Claims {
    /// For `rows` panels of rows, packed at most `most` at once, and `cols` panels of columns. `fast` tiles
    /// ([`super::instructions::Tiles::IS_FAST`]) want few and large claims by columns.
    pub fn new((rows, most): (usize, usize), cols: usize, threads: usize, fast: bool) -> Self {
        let blocks = rows.div_ceil(most);
        let tiles = blocks * cols;
        let enough = if fast { ENOUGH / 2 } else { ENOUGH };
        let is_fine = blocks < MANY && tiles >= enough * threads;
        // Claims of several panels of columns amortize packing the rows again, but no thread may go without work.
        let least = match fast {
            true => cols.div_ceil(2).min(tiles / threads),
            false => (cols / 6).clamp(1, 4).min(tiles / (4 * threads)),
        };
        let by = match threads > 1 && (is_fine || rows < 4 * threads) {
            true => By::Columns(least.max(1)),
            false => By::Rows,
        };
        let shares = match (threads, by) {
            (1, _) => 1,
            (_, By::Columns(_)) if fast => threads,
            _ => 2 * threads,
        };
        Claims {
            next: AtomicUsize::new(0),
            rows,
            cols,
            most,
            by,
            shares,
        }
    }

    /// The claim at a position and the position after it, if any is left there.
    fn at(&self, position: usize) -> Option<(Claim, usize)> {
        let all = match self.by {
            By::Rows => self.rows,
            By::Columns(_) => self.rows.div_ceil(self.most) * self.cols,
        };
        let left = all.checked_sub(position).filter(|left| *left > 0)?;
        let fair = left.div_ceil(self.shares);
        Some(match self.by {
            By::Rows => {
                let count = fair.min(self.most);
                let claim = Claim {
                    rows: (position, count),
                    cols: (0, self.cols),
                };
                (claim, position + count)
            }
            By::Columns(least) => {
                let row = position / self.cols * self.most;
                let col = position % self.cols;
                let count = fair.max(least).min(self.cols - col);
                let claim = Claim {
                    rows: (row, self.most.min(self.rows - row)),
                    cols: (col, count),
                };
                (claim, position + count)
            }
        })
    }

    /// The next claim, without taking it.
    pub fn peek(&self) -> Option<Claim> {
        let next = self.at(self.next.load(Ordering::Relaxed));
        next.map(|(claim, _)| claim)
    }

    /// Takes the next claim.
    pub fn take(&self) -> Option<Claim> {
        let mut position = self.next.load(Ordering::Relaxed);
        loop {
            let (claim, after) = self.at(position)?;
            let relaxed = Ordering::Relaxed;
            match self
                .next
                .compare_exchange_weak(position, after, relaxed, relaxed)
            {
                Ok(_) => return Some(claim),
                Err(now) => position = now,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_cover_all_tiles_once_and_shrink() {
        for threads in [1, 2, 4, 16] {
            for (rows, cols) in [
                (1, 1),
                (1, 40),
                (3, 63),
                (22, 96),
                (64, 4),
                (128, 12),
                (683, 40),
            ] {
                let claims = Claims::new((rows, 12), cols, threads, false);
                let mut seen = vec![0; rows * cols];
                let mut sizes = Vec::new();
                while let Some(claim) = claims.take() {
                    for row in claim.rows.0..claim.rows.0 + claim.rows.1 {
                        let from = row * cols + claim.cols.0;
                        seen[from..from + claim.cols.1]
                            .iter_mut()
                            .for_each(|n| *n += 1);
                    }
                    assert!(claim.rows.1 <= 12);
                    sizes.push(claim.rows.1 * claim.cols.1);
                }
                assert!(seen.iter().all(|n| *n == 1), "{rows} × {cols}");
                let last = sizes.last().copied().unwrap_or_default();
                // The smallest claim by columns: 4 panels of 12 rows.
                let few = 4 * 12;
                assert!(
                    threads == 1 || last <= few,
                    "{rows} × {cols}: {last} at the end"
                );
                let wanted = (2 * threads).min(rows * cols);
                assert!(
                    threads == 1 || sizes.len() >= wanted,
                    "{rows} × {cols}: {} for {threads} threads",
                    sizes.len()
                );
                if claims.by == By::Rows && threads > 1 {
                    assert_eq!(last, cols, "one panel of rows at the end");
                }
                assert_eq!(claims.peek(), None);
            }
        }
    }

    #[test]
    fn a_panel_of_columns_is_used_for_all_rows_packed_at_once() {
        let claims = Claims::new((22, 11), 96, 2, false);
        while let Some(claim) = claims.take() {
            assert_eq!(claim.rows.1, 11);
        }
    }

    #[test]
    fn fast_tiles_are_claimed_by_whole_rows_until_the_last_and_no_thread_is_idle() {
        for threads in [2, 4, 16] {
            for (rows, cols) in [(12, 12), (48, 12), (36, 96), (3, 5), (128, 12)] {
                let claims = Claims::new((rows, 8), cols, threads, true);
                let mut seen = vec![0; rows * cols];
                let mut n = 0;
                while let Some(claim) = claims.take() {
                    n += 1;
                    for row in claim.rows.0..claim.rows.0 + claim.rows.1 {
                        let from = row * cols + claim.cols.0;
                        seen[from..from + claim.cols.1]
                            .iter_mut()
                            .for_each(|n| *n += 1);
                    }
                }
                assert!(seen.iter().all(|n| *n == 1), "{rows} × {cols}");
                let blocks = rows.div_ceil(8);
                assert!(
                    n >= threads.min(blocks * cols / 2),
                    "{rows} × {cols}: {n} for {threads}"
                );
                if threads == 2 && claims.by != By::Rows && blocks > 2 {
                    assert!(
                        n <= blocks + 2,
                        "{rows} × {cols}: {n} claims of {blocks} blocks"
                    );
                }
            }
        }
    }

    #[test]
    fn a_panel_is_packed_once_by_the_first_thread() {
        let mut room = PanelBuffer::default();
        let panels = room.panels(50, 16);
        let packed = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for start in [0, 25, 40] {
                let (panels, packed) = (&panels, &packed);
                scope.spawn(move || {
                    for step in 0..50 {
                        let index = (start + step) % 50;
                        let panel = panels.get(index, |to| {
                            packed.fetch_add(1, Ordering::Relaxed);
                            // SAFETY: a panel's first word.
                            unsafe { *to = index as u32 };
                        });
                        // SAFETY: as above.
                        assert_eq!(unsafe { *panel }, index as u32);
                    }
                });
            }
        });
        assert_eq!(packed.into_inner(), 50);
        assert!(!room.panels(50, 16).is_ready(3));
    }
}
