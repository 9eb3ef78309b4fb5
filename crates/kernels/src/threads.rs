//! Splits work by rows over the threads of the current rayon pool, if there is enough of it.
#![allow(unsafe_code)]

pub use super::team::{team, wait_until};
use super::{fetch, team};

/// FLOPs below which a task is not worth handing to another thread (about 10 µs).
const GRAIN: usize = 1 << 15;

/// Rows per task for `rows` rows with `cost` FLOPs each.
pub fn rows_per_task(rows: usize, cost: usize) -> usize {
    let worthwhile = (GRAIN / cost.max(1)).max(1);
    worthwhile.max(rows.div_ceil(4 * rayon::current_num_threads()))
}

/// A pointer shared by tasks that write disjoint elements.
#[derive(Clone, Copy)]
pub(super) struct Shared(pub *mut f32);

// SAFETY: every use writes only elements owned by its task.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// The pointer advanced by `offset` elements; a method, so that closures capture the whole wrapper.
    ///
    /// # Safety
    /// The offset must lie within the allocation.
    pub unsafe fn at(self, offset: usize) -> *mut f32 {
        // SAFETY: guaranteed by the caller.
        unsafe { self.0.add(offset) }
    }
}

/// A slice in which tasks write disjoint ranges.
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

    /// Prefetches `n` elements from `at` on, which may lie after the end.
    pub fn fetch(&self, at: usize, n: usize) {
        fetch::write(self.start.wrapping_add(at), n);
    }

    /// # Safety
    /// The slice must be alive, and nothing else may access these elements meanwhile.
    #[allow(
        clippy::mut_from_ref,
        reason = "ranges do not overlap: guaranteed by the caller"
    )]
    pub unsafe fn range(&self, range: std::ops::Range<usize>) -> &mut [T] {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "a range of the slice"
        );
        // SAFETY: within the slice; the caller guarantees exclusive access.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }
}

/// Calls `f(first row, rows)` over all rows of `out`, each `width` wide.
pub fn rows1<T: Send>(
    out: &mut [T],
    width: usize,
    cost: usize,
    f: impl Fn(usize, &mut [T]) + Sync,
) {
    let per_task = rows_per_task(out.len() / width, cost);
    if out.len() <= per_task * width {
        return f(0, out);
    }
    let n = out.len();
    let shared = SharedSlice::new(out);
    fan_out(n.div_ceil(per_task * width), &|task| {
        let from = task * per_task * width;
        // SAFETY: tasks have disjoint rows.
        let rows = unsafe { shared.range(from..n.min(from + per_task * width)) };
        f(task * per_task, rows);
    });
}

/// The same over two outputs with the same number of rows.
pub fn rows2<A: Send, B: Send>(
    (a, a_width): (&mut [A], usize),
    (b, b_width): (&mut [B], usize),
    cost: usize,
    f: impl Fn(usize, &mut [A], &mut [B]) + Sync,
) {
    let per_task = rows_per_task(a.len() / a_width, cost);
    if a.len() <= per_task * a_width {
        return f(0, a, b);
    }
    let rows = a.len() / a_width;
    let (a, b) = (SharedSlice::new(a), SharedSlice::new(b));
    fan_out(rows.div_ceil(per_task), &|task| {
        let (from, to) = (task * per_task, rows.min((task + 1) * per_task));
        // SAFETY: tasks have disjoint rows.
        let (a, b) = unsafe {
            (
                a.range(from * a_width..to * a_width),
                b.range(from * b_width..to * b_width),
            )
        };
        f(from, a, b);
    });
}

/// Calls `f(task)` for 0..tasks, on several threads if a task has at least `cost` FLOPs.
pub fn tasks(tasks: usize, cost: usize, f: impl Fn(usize) + Sync + Send) {
    if tasks * cost < 2 * GRAIN || tasks == 1 {
        (0..tasks).for_each(f);
    } else {
        fan_out(tasks, &f);
    }
}

/// Calls `f` for each item, on several threads.
pub fn each<T: Send>(items: &mut [T], f: impl Fn(&mut T) + Sync) {
    let n = items.len();
    let shared = SharedSlice::new(items);
    fan_out(n, &|at| {
        // SAFETY: every task has its own item.
        let own = unsafe { shared.range(at..at + 1) };
        own.iter_mut().for_each(&f);
    });
}

/// Calls `f` for 0..tasks on several threads without allocating: on the team led by this thread, else on the pool.
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

/// How many shares to split a matmul of `rows` rows into: one per thread for little work, more for a lot, so that all
/// threads stay busy to the end even if others use the machine too.
pub fn shares(rows: usize) -> usize {
    let threads = rayon::current_num_threads();
    if threads == 1 || rows < 64 {
        threads
    } else {
        4 * threads
    }
}

/// Whether this many equal tasks keep all threads busy.
pub fn enough(tasks: usize) -> bool {
    tasks >= rayon::current_num_threads()
}

/// How many parts, at most `most`, to split each of `tasks` into so that all threads stay busy to the end.
pub fn parts(tasks: usize, most: usize) -> usize {
    let threads = rayon::current_num_threads();
    if threads == 1 || tasks >= 4 * threads {
        return 1;
    }
    (4 * threads).div_ceil(tasks.max(1)).clamp(1, most.max(1))
}

/// Runs `work` on a pool thread, so that loops inside it hand over work directly instead of entering the
/// pool each time.
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
