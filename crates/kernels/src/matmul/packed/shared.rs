//! What the threads of one product share: panels of the right input, each packed by the first thread that needs it, and
//! rows of the destination, taken as threads become free.
//!
//! Fixed halves would make all wait for the slowest: on a virtual machine a neighbour on the same core halves one thread's
//! speed for seconds.

use crate::lanes::Buffer;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

const FREE: u8 = 0;
const BUSY: u8 = 1;
const READY: u8 = 2;

/// Memory for packed panels, kept from one product to the next.
#[derive(Default)]
pub(super) struct Room {
    words: Buffer,
    states: Vec<AtomicU8>,
}

impl Room {
    /// Room for `count` panels, `distance` words apart, none packed yet.
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

// SAFETY: a panel is written by the thread that made it BUSY alone, and read by others once it is READY.
unsafe impl Sync for Panels<'_> {}

impl Panels<'_> {
    pub fn is_ready(&self, index: usize) -> bool {
        self.states[index].load(Ordering::Acquire) == READY
    }

    /// Panel `index`, packed by `pack` if nobody has.
    pub fn get(&self, index: usize, pack: impl FnOnce(*mut u32)) -> *const u32 {
        let state = &self.states[index];
        // SAFETY: there is room for as many panels as states.
        let panel = unsafe { self.start.add(index * self.distance) };
        if self.is_ready(index) {
            return panel;
        }
        let own = state.compare_exchange(FREE, BUSY, Ordering::Acquire, Ordering::Acquire);
        if own.is_ok() {
            pack(panel);
            state.store(READY, Ordering::Release);
        } else {
            // Some microseconds.
            crate::threads::wait_until(|| self.is_ready(index));
        }
        panel
    }
}

/// Work for one thread at a time: some panels of rows, over one of even shares of the columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Claim {
    /// (first, count) of the panels of rows.
    pub rows: (usize, usize),
    /// Which share of the columns.
    pub share: usize,
}

/// The rows that are left: large claims first, small ones at the end, so that all threads finish together.
pub(super) struct Claims {
    next: AtomicUsize,
    panels: usize,
    /// Shares of the columns; more than one if rows alone do not keep all threads busy.
    pub shares: usize,
    most: usize,
    threads: usize,
}

impl Claims {
    /// Of `panels` panels of rows at most `most` at once, and no more than `columns` shares of the columns.
    pub fn new(panels: usize, most: usize, columns: usize, threads: usize) -> Self {
        let wanted = if threads == 1 { 1 } else { 4 * threads };
        Claims {
            next: AtomicUsize::new(0),
            panels,
            shares: wanted.div_ceil(panels).clamp(1, columns.max(1)),
            most,
            threads,
        }
    }

    /// The claim at a position, if any is left there.
    fn at(&self, position: usize) -> Option<Claim> {
        let all = self.panels * self.shares;
        let left = all.checked_sub(position).filter(|left| *left > 0)?;
        let fair = match self.threads {
            1 => left,
            threads => left.div_ceil(2 * threads),
        };
        let (share, first) = (position / self.panels, position % self.panels);
        let count = fair.min(self.most).min(self.panels - first);
        let rows = (first, count);
        Some(Claim { rows, share })
    }

    /// What would be taken next.
    pub fn peek(&self) -> Option<Claim> {
        self.at(self.next.load(Ordering::Relaxed))
    }

    /// Takes the next.
    pub fn take(&self) -> Option<Claim> {
        let mut position = self.next.load(Ordering::Relaxed);
        loop {
            let claim = self.at(position)?;
            let after = position + claim.rows.1;
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
    fn claims_cover_all_rows_of_each_share_once_and_shrink() {
        for (panels, threads) in [(1, 1), (1, 4), (3, 2), (128, 2), (683, 2), (22, 16)] {
            let claims = Claims::new(panels, 12, 40, threads);
            assert!(claims.shares * panels >= 4 * threads.min(10) || threads == 1);
            let mut seen = vec![0; panels * claims.shares];
            let mut sizes = Vec::new();
            while let Some(claim) = claims.take() {
                let from = claim.share * panels + claim.rows.0;
                seen[from..from + claim.rows.1]
                    .iter_mut()
                    .for_each(|n| *n += 1);
                sizes.push(claim.rows.1);
            }
            assert!(seen.iter().all(|n| *n == 1));
            assert!(sizes.iter().all(|n| *n <= 12));
            assert!(threads == 1 || sizes.last() == Some(&1));
            assert_eq!(claims.peek(), None);
        }
    }

    #[test]
    fn a_panel_is_packed_once_by_whoever_comes_first() {
        let mut room = Room::default();
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
