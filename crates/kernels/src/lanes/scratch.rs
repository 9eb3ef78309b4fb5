//! Scratch memory of a task, reused by the tasks of its thread.

use super::{Buffer, LINE};
use std::cell::Cell;

thread_local! {
    /// Scratch memory of a task. Moved out while in use: a waiting thread may be given other work.
    static SCRATCH: Cell<Buffer> = Cell::default();
}

/// Calls `work` with scratch memory.
pub(crate) fn with_scratch(len: usize, work: impl FnOnce(Carver)) {
    let mut buffer = SCRATCH.take();
    work(Carver(buffer.get(len)));
    SCRATCH.set(buffer);
}

/// Cuts scratch memory into arrays that begin at cache lines.
pub(crate) struct Carver<'a>(&'a mut [f32]);

impl<'a> Carver<'a> {
    pub fn take(&mut self, len: usize) -> &'a mut [f32] {
        let all = std::mem::take(&mut self.0);
        let (own, rest) = all.split_at_mut(len.next_multiple_of(LINE));
        self.0 = rest;
        &mut own[..len]
    }

    /// Room for arrays of these lengths.
    pub fn room(lens: &[usize]) -> usize {
        lens.iter().map(|len| len.next_multiple_of(LINE)).sum()
    }
}
