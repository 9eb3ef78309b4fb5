//! Autograd at the granularity of layers. A forward pass writes activations into slots and pushes one node per layer; the
//! backward visits the nodes from last to first. All buffers come from one pool and return to it as soon as nothing reads them
//! any more, so gradients reuse the memory of activations, and the same calls get the same memory in every step. A counting
//! arena hands out lengths without memory: the same pass over it gives the memory of the pass.

use crate::kernels::aligned::Aligned;
use crate::kernels::matmul::Accumulation;
use crate::kernels::numbers::{Storage, Values, ValuesMut};
use std::ops::{Deref, DerefMut};

/// A slot of the arena: a value, and later its gradient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot(usize);

/// Whether a forward pass keeps what its backward needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Track {
    /// Values return to the pool as soon as the forward has read them.
    Off,
    Gradients,
}

/// A buffer of the arena. In a counting arena it has a length, but its slice is empty: sizes of other buffers must be derived
/// from buffer lengths or from shapes.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    memory: Aligned,
    /// Words of f32.
    len: usize,
    /// Its dtype, and its number of elements.
    storage: Storage,
    numbers: usize,
}

impl Buffer {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn storage(&self) -> Storage {
        self.storage
    }

    /// Its values, in their storage dtype.
    pub fn view(&self) -> Values<'_> {
        self.storage.view(&self.memory, self.room())
    }

    /// The same for writing.
    pub fn view_mut(&mut self) -> ValuesMut<'_> {
        let n = self.room();
        self.storage.view_mut(&mut self.memory, n)
    }

    /// Elements in memory: none in a counting arena.
    fn room(&self) -> usize {
        if self.memory.is_empty() {
            0
        } else {
            self.numbers
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Deref for Buffer {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        &self.memory
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.memory
    }
}

/// An empty buffer means none.
#[derive(Debug, Default)]
struct Cell {
    value: Buffer,
    gradient: Buffer,
}

/// Slots in call order over one pool of buffers. Buffers are handed out by exact length: a pass that repeats its calls
/// allocates in its first round only.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    cells: Vec<Cell>,
    pool: Vec<Buffer>,
    /// Elements of all buffers, in use or not.
    elements: usize,
    /// Whether this is a counting arena.
    counts: bool,
}

impl Arena {
    /// An arena that only counts.
    pub fn counting() -> Self {
        Arena {
            counts: true,
            ..Arena::default()
        }
    }

    /// Begins a pass: all slots of the last one become invalid.
    pub fn restart(&mut self) {
        for cell in self.cells.drain(..) {
            for buffer in [cell.value, cell.gradient] {
                if !buffer.is_empty() {
                    self.pool.push(buffer);
                }
            }
        }
    }

    /// Returns the memory of all buffers to the system: the next pass has other sizes.
    pub fn clear(&mut self) {
        self.cells.clear();
        self.pool.clear();
        self.elements = 0;
    }

    /// Bytes of all buffers, in use or not.
    pub fn bytes(&self) -> u64 {
        (self.elements * size_of::<f32>()) as u64
    }

    /// A slot for `len` elements whose contents are arbitrary.
    pub fn slot(&mut self, len: usize) -> Slot {
        self.slot_in(Storage::F32, len)
    }

    /// The same for `n` numbers in a given dtype.
    pub fn slot_in(&mut self, storage: Storage, n: usize) -> Slot {
        let value = self.buffer_in(storage, n);
        self.cells.push(Cell {
            value,
            gradient: Buffer::default(),
        });
        Slot(self.cells.len() - 1)
    }

    /// Marks that nothing reads the slot's value again.
    pub fn release(&mut self, slot: Slot) {
        let value = self.take(slot);
        self.free(value);
    }

    pub fn get(&self, slot: Slot) -> &[f32] {
        &self.cells[slot.0].value
    }

    /// Number of elements of the slot's value, in any dtype.
    pub fn numbers(&self, slot: Slot) -> usize {
        self.cells[slot.0].value.numbers
    }

    /// The dtype of the slot's value.
    pub fn storage(&self, slot: Slot) -> Storage {
        self.cells[slot.0].value.storage()
    }

    /// The slot's values, in their storage dtype.
    pub fn view(&self, slot: Slot) -> Values<'_> {
        self.cells[slot.0].value.view()
    }

    /// Elements of the slot's value; 0 if it is taken out or released.
    pub fn len(&self, slot: Slot) -> usize {
        self.cells[slot.0].value.len()
    }

    /// Moves a value out for writing while others are read; [`Arena::put`] puts it back.
    pub fn take(&mut self, slot: Slot) -> Buffer {
        std::mem::take(&mut self.cells[slot.0].value)
    }

    pub fn put(&mut self, slot: Slot, value: Buffer) {
        self.cells[slot.0].value = value;
    }

    /// A buffer of `len` arbitrary elements, preferably the one freed last: it is the most likely to be in a cache.
    pub fn buffer(&mut self, len: usize) -> Buffer {
        self.buffer_in(Storage::F32, len)
    }

    /// The same for `n` numbers in a given dtype.
    pub fn buffer_in(&mut self, storage: Storage, n: usize) -> Buffer {
        let len = storage.words(n);
        let buffer = match self.pool.iter().rposition(|buffer| buffer.len() == len) {
            Some(at) => self.pool.swap_remove(at),
            None => {
                self.elements += len;
                let memory = match self.counts {
                    true => Aligned::default(),
                    false => Aligned::zeros(len),
                };
                Buffer {
                    memory,
                    len,
                    ..Buffer::default()
                }
            }
        };
        Buffer {
            storage,
            numbers: n,
            ..buffer
        }
    }

    /// Returns a buffer to the pool.
    pub fn free(&mut self, buffer: Buffer) {
        if !buffer.is_empty() {
            self.pool.push(buffer);
        }
    }

    /// The slot's gradient so far (`len` elements) and how to add to it: the first contribution overwrites, later ones
    /// add. [`Arena::put_gradient`] puts it back.
    pub fn open_gradient(&mut self, slot: Slot, len: usize) -> (Buffer, Accumulation) {
        self.open_gradient_in(Storage::F32, slot, len)
    }

    /// The same for `n` numbers in a given dtype, if they are the first contribution.
    pub fn open_gradient_in(
        &mut self,
        storage: Storage,
        slot: Slot,
        n: usize,
    ) -> (Buffer, Accumulation) {
        match self.take_gradient(slot) {
            Some(gradient) => (gradient, Accumulation::Add),
            None => (self.buffer_in(storage, n), Accumulation::Overwrite),
        }
    }

    pub fn take_gradient(&mut self, slot: Slot) -> Option<Buffer> {
        let gradient = std::mem::take(&mut self.cells[slot.0].gradient);
        (!gradient.is_empty()).then_some(gradient)
    }

    pub fn put_gradient(&mut self, slot: Slot, gradient: Buffer) {
        self.cells[slot.0].gradient = gradient;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_calls_get_the_same_memory() {
        let mut arena = Arena::default();
        let round = |arena: &mut Arena| {
            arena.restart();
            let slots = [8, 4, 8].map(|len| arena.slot(len));
            let buffer = arena.buffer(8);
            arena.put_gradient(slots[1], buffer);
            arena.release(slots[0]);
            arena.bytes()
        };
        assert_eq!(round(&mut arena), 4 * (8 + 4 + 8 + 8));
        let addresses = |arena: &Arena| {
            let mut all: Vec<_> = arena.pool.iter().map(|b| b.as_ptr()).collect();
            all.sort();
            all
        };
        arena.restart();
        let first = addresses(&arena);
        assert_eq!(round(&mut arena), 4 * (8 + 4 + 8 + 8));
        arena.restart();
        assert_eq!(first, addresses(&arena));
    }

    #[test]
    fn released_values_make_room_for_gradients_of_their_size() {
        let mut arena = Arena::default();
        let (a, b) = (arena.slot(8), arena.slot(4));
        let address = arena.get(a).as_ptr();
        arena.release(a);
        let other = arena.buffer(4);
        assert_ne!(other.as_ptr(), address);
        let (gradient, into) = arena.open_gradient(b, 8);
        assert_eq!(
            (gradient.as_ptr(), into),
            (address, Accumulation::Overwrite)
        );
        assert!(arena.get(a).is_empty());
    }

    #[test]
    fn the_first_contribution_overwrites_and_the_second_adds() {
        let mut arena = Arena::default();
        let slot = arena.slot(4);
        let (gradient, into) = arena.open_gradient(slot, 2);
        assert_eq!((gradient.len(), into), (2, Accumulation::Overwrite));
        let address = gradient.as_ptr();
        arena.put_gradient(slot, gradient);
        let (gradient, into) = arena.open_gradient(slot, 2);
        assert_eq!((gradient.as_ptr(), into), (address, Accumulation::Add));
        assert!(arena.take_gradient(slot).is_none());
    }

    #[test]
    fn a_counting_arena_hands_out_only_lengths() {
        let mut arena = Arena::counting();
        let slot = arena.slot(1 << 50);
        assert_eq!((arena.len(slot), arena.get(slot).len()), (1 << 50, 0));
        arena.release(slot);
        assert_eq!(arena.len(slot), 0);
        assert_eq!(arena.buffer(1 << 50).len(), 1 << 50);
        assert_eq!(arena.bytes(), 1 << 52);
    }

    #[test]
    fn bf16_takes_half_the_words_and_shares_them() {
        let mut arena = Arena::default();
        let slot = arena.slot_in(Storage::Bf16, 7);
        assert_eq!((arena.len(slot), arena.view(slot).len()), (4, 7));
        arena.release(slot);
        let buffer = arena.buffer(4);
        assert!(matches!(buffer.view(), Values::F32(x) if x.len() == 4));
        assert_eq!(arena.bytes(), 16);
        assert!(
            Arena::counting()
                .buffer_in(Storage::Bf16, 1 << 50)
                .view()
                .is_empty()
        );
    }

    #[test]
    fn a_cleared_arena_holds_nothing() {
        let mut arena = Arena::default();
        let slot = arena.slot(8);
        arena.release(slot);
        arena.clear();
        assert_eq!(arena.bytes(), 0);
        arena.slot(4);
        assert_eq!(arena.bytes(), 16);
    }
}
