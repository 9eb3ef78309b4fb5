//! What blocks with a mixer keep of a text: a state of constant size. It is that of the newest token alone, so a cache goes back
//! only to a copy of it.

use crate::kernels::aligned::Aligned;

/// Sizes of the state of one block, in elements of f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StateShape {
    /// The last inputs of its convolution: taps − 1, for each channel.
    pub conv: usize,
    /// The matrices of its heads.
    pub memory: usize,
}

impl StateShape {
    pub fn bytes(self) -> usize {
        (self.conv + self.memory) * size_of::<f32>()
    }
}

/// The state of one block; zeros before the first token.
pub(crate) struct State {
    /// (taps − 1, channels), oldest first.
    pub conv: Aligned,
    /// (heads, key_dim, value_dim); empty without.
    pub memory: Aligned,
}

impl State {
    pub fn zeros(shape: StateShape) -> State {
        State {
            conv: Aligned::zeros(shape.conv),
            memory: Aligned::zeros(shape.memory),
        }
    }

    pub fn bytes(&self) -> usize {
        size_of_val::<[f32]>(&self.conv) + size_of_val::<[f32]>(&self.memory)
    }

    pub fn clear(&mut self) {
        self.conv.fill(0.0);
        self.memory.fill(0.0);
    }

    /// Copies the state of the same block of another text.
    pub fn copy(&mut self, from: &State) {
        self.conv.copy_from_slice(&from.conv);
        self.memory.copy_from_slice(&from.memory);
    }

    fn copied(&self) -> State {
        let [conv, memory] = [&self.conv, &self.memory].map(|from| {
            let mut to = Aligned::zeros(from.len());
            to.copy_from_slice(from);
            to
        });
        State { conv, memory }
    }
}

/// The states of all blocks that have one, after the first `len` tokens of the text.
pub(super) struct Snapshot {
    pub len: usize,
    states: Vec<State>,
}

impl Snapshot {
    pub fn of<'a>(len: usize, states: impl Iterator<Item = &'a State>) -> Snapshot {
        Snapshot {
            len,
            states: states.map(State::copied).collect(),
        }
    }

    /// Sets the states, in the order in which they were taken.
    pub fn restore<'a>(&self, states: impl Iterator<Item = &'a mut State>) {
        for (to, from) in states.zip(&self.states) {
            to.copy(from);
        }
    }

    pub fn bytes(&self) -> usize {
        self.states.iter().map(State::bytes).sum()
    }
}
