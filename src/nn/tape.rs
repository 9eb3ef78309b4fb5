//! Autograd at the grain of layers. A forward pass writes activations into an arena and pushes one node per layer; the
//! backward walks the nodes from last to first. Arena, gradients and nodes keep their memory from step to step.

use crate::kernels::matmul::Into;

/// A buffer of the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot(usize);

/// Whether a forward pass keeps what its backward needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Track {
    /// Buffers are used again as soon as they are released.
    Off,
    Gradients,
}

/// Activations in call order. The same calls get the same buffers, so only the first step allocates.
#[derive(Debug)]
pub(crate) struct Arena {
    track: Track,
    buffers: Vec<Vec<f32>>,
    /// Buffers in use this pass.
    used: usize,
    released: Vec<Slot>,
}

impl Arena {
    pub fn new(track: Track) -> Self {
        Arena {
            track,
            buffers: Vec::new(),
            used: 0,
            released: Vec::new(),
        }
    }

    /// Begins a pass: all slots of the last one are void.
    pub fn restart(&mut self) {
        self.used = 0;
        self.released.clear();
    }

    /// A buffer of `len` elements whose contents are arbitrary.
    pub fn slot(&mut self, len: usize) -> Slot {
        let fits = |slot: &Slot| self.buffers[slot.0].len() == len;
        if let Some(at) = self.released.iter().position(fits) {
            return self.released.swap_remove(at);
        }
        if self.used == self.buffers.len() {
            self.buffers.push(Vec::new());
        }
        self.buffers[self.used].resize(len, 0.0);
        self.used += 1;
        Slot(self.used - 1)
    }

    /// Says that nobody reads the slot again in this forward pass.
    pub fn release(&mut self, slot: Slot) {
        if self.track == Track::Off {
            self.released.push(slot);
        }
    }

    /// Bytes that stay allocated.
    pub fn bytes(&self) -> u64 {
        self.buffers.iter().map(|b| 4 * b.capacity() as u64).sum()
    }

    pub fn get(&self, slot: Slot) -> &[f32] {
        &self.buffers[slot.0]
    }

    /// Takes a buffer out for writing while others are read; [`Arena::put`] brings it back.
    pub fn take(&mut self, slot: Slot) -> Vec<f32> {
        std::mem::take(&mut self.buffers[slot.0])
    }

    pub fn put(&mut self, slot: Slot, buffer: Vec<f32>) {
        self.buffers[slot.0] = buffer;
    }
}

/// Gradients of slots. The first contribution overwrites, later ones add.
#[derive(Debug, Default)]
pub(crate) struct Gradients {
    by_slot: Vec<Option<Vec<f32>>>,
    free: Vec<Vec<f32>>,
}

impl Gradients {
    /// A buffer of `len` arbitrary elements.
    pub fn buffer(&mut self, len: usize) -> Vec<f32> {
        let best = (0..self.free.len())
            .filter(|&i| self.free[i].capacity() >= len)
            .min_by_key(|&i| self.free[i].capacity());
        let mut buffer = best.map_or_else(Vec::new, |i| self.free.swap_remove(i));
        buffer.resize(len, 0.0);
        buffer
    }

    /// The slot's gradient so far and how to add to it; [`Gradients::put`] brings it back.
    pub fn open(&mut self, slot: Slot, len: usize) -> (Vec<f32>, Into) {
        match self.take(slot) {
            Some(gradient) => (gradient, Into::Accumulate),
            None => (self.buffer(len), Into::Overwrite),
        }
    }

    pub fn take(&mut self, slot: Slot) -> Option<Vec<f32>> {
        self.by_slot.get_mut(slot.0)?.take()
    }

    pub fn put(&mut self, slot: Slot, gradient: Vec<f32>) {
        if self.by_slot.len() <= slot.0 {
            self.by_slot.resize_with(slot.0 + 1, || None);
        }
        self.by_slot[slot.0] = Some(gradient);
    }

    /// Bytes that stay allocated.
    pub fn bytes(&self) -> u64 {
        let in_use = self.by_slot.iter().flatten();
        let buffers = in_use.chain(&self.free);
        buffers.map(|b| 4 * b.capacity() as u64).sum()
    }

    /// Gives a buffer back for others.
    pub fn free(&mut self, buffer: Vec<f32>) {
        self.free.push(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_calls_get_the_same_memory() {
        let mut arena = Arena::new(Track::Gradients);
        let addresses = |arena: &mut Arena| {
            arena.restart();
            [8, 4, 8].map(|len| {
                let slot = arena.slot(len);
                arena.release(slot);
                arena.get(slot).as_ptr()
            })
        };
        let first = addresses(&mut arena);
        assert_eq!(first, addresses(&mut arena));
        assert_ne!(first[0], first[2], "a training pass keeps released buffers");
    }

    #[test]
    fn evaluation_uses_released_buffers_again() {
        let mut arena = Arena::new(Track::Off);
        let a = arena.slot(8);
        let b = arena.slot(4);
        arena.release(a);
        assert_ne!(arena.slot(4), b);
        assert_eq!(arena.slot(8), a);
    }

    #[test]
    fn the_first_contribution_overwrites_and_the_second_adds() {
        let mut gradients = Gradients::default();
        let slot = Slot(3);
        let (gradient, into) = gradients.open(slot, 2);
        assert_eq!((gradient.len(), into), (2, Into::Overwrite));
        let address = gradient.as_ptr();
        gradients.put(slot, gradient);
        let (gradient, into) = gradients.open(slot, 2);
        assert_eq!(into, Into::Accumulate);
        gradients.free(gradient);
        let again = gradients.buffer(2);
        assert_eq!(again.as_ptr(), address);
    }
}
