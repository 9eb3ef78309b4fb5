//! Splits work by rows over the threads of the current rayon pool, where there is enough of it.
#![allow(unsafe_code)]

use super::team;
pub use super::team::team;

/// Elementary operations below which a task is not worth a hand-over to another thread (about 10 µs).
const GRAIN: usize = 1 << 15;

/// Rows that one task takes of `rows` with `cost` operations each.
pub fn rows_per_task(rows: usize, cost: usize) -> usize {
    let worthwhile = (GRAIN / cost.max(1)).max(1);
    worthwhile.max(rows.div_ceil(2 * rayon::current_num_threads()))
}

/// A pointer that tasks share because each writes places of its own.
#[derive(Clone, Copy)]
pub(super) struct Shared(pub *mut f32);

// SAFETY: every use writes elements that belong to its task alone.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// The pointer `offset` elements further on; a method, so that closures take hold of the whole wrapper.
    ///
    /// # Safety
    /// The offset must lie within the allocation.
    pub unsafe fn at(self, offset: usize) -> *mut f32 {
        // SAFETY: passed on to the caller.
        unsafe { self.0.add(offset) }
    }
}

/// A slice of which tasks write ranges of their own.
pub(super) struct SharedSlice<T> {
    start: *mut T,
    len: usize,
}

// SAFETY: as for Shared; the elements move between threads.
unsafe impl<T: Send> Sync for SharedSlice<T> {}

impl<T> SharedSlice<T> {
    pub fn new(slice: &mut [T]) -> Self {
        SharedSlice {
            start: slice.as_mut_ptr(),
            len: slice.len(),
        }
    }

    /// # Safety
    /// The slice must live, and nobody else may use these elements meanwhile.
    #[allow(
        clippy::mut_from_ref,
        reason = "ranges do not overlap: the caller vouches"
    )]
    pub unsafe fn range(&self, range: std::ops::Range<usize>) -> &mut [T] {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "a range of the slice"
        );
        // SAFETY: within the slice; exclusive, says the caller.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }
}

/// Calls `f(first row, rows)` over all rows of `out`, each `width` wide.
pub fn rows1(out: &mut [f32], width: usize, cost: usize, f: impl Fn(usize, &mut [f32]) + Sync) {
    let per_task = rows_per_task(out.len() / width, cost);
    if out.len() <= per_task * width {
        return f(0, out);
    }
    let n = out.len();
    let shared = SharedSlice::new(out);
    fan_out(n.div_ceil(per_task * width), &|task| {
        let from = task * per_task * width;
        // SAFETY: tasks have rows of their own.
        let rows = unsafe { shared.range(from..n.min(from + per_task * width)) };
        f(task * per_task, rows);
    });
}

/// The same over two outputs with the same number of rows.
pub fn rows2(
    (a, a_width): (&mut [f32], usize),
    (b, b_width): (&mut [f32], usize),
    cost: usize,
    f: impl Fn(usize, &mut [f32], &mut [f32]) + Sync,
) {
    let per_task = rows_per_task(a.len() / a_width, cost);
    if a.len() <= per_task * a_width {
        return f(0, a, b);
    }
    let rows = a.len() / a_width;
    let (a, b) = (SharedSlice::new(a), SharedSlice::new(b));
    fan_out(rows.div_ceil(per_task), &|task| {
        let (from, to) = (task * per_task, rows.min((task + 1) * per_task));
        // SAFETY: tasks have rows of their own.
        let (a, b) = unsafe {
            (
                a.range(from * a_width..to * a_width),
                b.range(from * b_width..to * b_width),
            )
        };
        f(from, a, b);
    });
}

/// Calls `f(task)` for 0..tasks, on several threads when one of them does at least `cost` operations.
pub fn tasks(tasks: usize, cost: usize, f: impl Fn(usize) + Sync + Send) {
    if tasks * cost < 2 * GRAIN || tasks == 1 {
        (0..tasks).for_each(f);
    } else {
        fan_out(tasks, &f);
    }
}

/// Calls `f` for 0..tasks on several threads, without allocating: those of the team that is led here, else the pool's.
pub fn fan_out(tasks: usize, f: &(impl Fn(usize) + Sync)) {
    match tasks {
        0 => {}
        1 => f(0),
        _ if team::fan_out(tasks, f) => {}
        _ => halve(0, tasks, f),
    }
}

fn halve(from: usize, to: usize, f: &(impl Fn(usize) + Sync)) {
    if to - from == 1 {
        return f(from);
    }
    let middle = from + (to - from) / 2;
    rayon::join(|| halve(from, middle, f), || halve(middle, to, f));
}

/// Accumulation how many shares a product with `rows` rows is cut: small work one for each thread, large work more, so that all
/// threads are busy to the end although others use the machine too.
pub fn shares(rows: usize) -> usize {
    let threads = rayon::current_num_threads();
    if threads == 1 || rows < 64 {
        threads
    } else {
        4 * threads
    }
}

/// Whether so many tasks of one size keep all threads busy.
pub fn enough(tasks: usize) -> bool {
    tasks >= rayon::current_num_threads()
}

/// Accumulation how many parts, at most `most`, each of `tasks` is to be split so that all threads are busy to the end.
pub fn parts(tasks: usize, most: usize) -> usize {
    let threads = rayon::current_num_threads();
    if threads == 1 || tasks >= 4 * threads {
        return 1;
    }
    (4 * threads).div_ceil(tasks.max(1)).clamp(1, most.max(1))
}

/// Runs `work` on a thread of the pool, so that the loops inside it hand work over directly instead of crossing into the
/// pool one by one.
pub fn enter<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    rayon::join(work, || ()).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_visited_once_with_its_number() {
        for rows in [1, 2, 7, 5000] {
            let mut a = vec![0.0; rows * 3];
            let mut b = vec![0.0; rows];
            rows2((&mut a, 3), (&mut b, 1), 1000, |first, a, b| {
                for (i, (a, b)) in a.chunks_mut(3).zip(b).enumerate() {
                    a.fill((first + i) as f32);
                    *b += 1.0;
                }
            });
            assert!(b.iter().all(|&x| x == 1.0));
            assert!(a.chunks(3).enumerate().all(|(i, a)| a == [i as f32; 3]));
        }
    }
}
