//! Addresses and dtypes of inputs and destinations: one pointer type for the loops, which the instruction sets resolve.

use crate::fetch;
use crate::numbers::{Values, ValuesMut, bf16};

/// Numbers to read.
#[derive(Clone, Copy)]
pub enum Place {
    F32(*const f32),
    Bf16(*const bf16),
}

impl Place {
    pub fn of(values: Values) -> Place {
        match values {
            Values::F32(x) => Place::F32(x.as_ptr()),
            Values::Bf16(x) => Place::Bf16(x.as_ptr()),
        }
    }

    /// `n` numbers further on.
    #[inline(always)]
    pub fn add(self, n: usize) -> Place {
        match self {
            Place::F32(at) => Place::F32(at.wrapping_add(n)),
            Place::Bf16(at) => Place::Bf16(at.wrapping_add(n)),
        }
    }

    /// The address, and the bytes of a number.
    pub fn bytes(self) -> (*const u8, usize) {
        match self {
            Place::F32(at) => (at.cast(), size_of::<f32>()),
            Place::Bf16(at) => (at.cast(), size_of::<bf16>()),
        }
    }

    #[inline(always)]
    pub fn fetch(self, n: usize) {
        match self {
            Place::F32(at) => fetch::at(at, n),
            Place::Bf16(at) => fetch::at(at, n),
        }
    }
}

/// Numbers to write. A sum is rounded to bf16 once: all its terms are summed before.
#[derive(Clone, Copy)]
pub enum To {
    F32(*mut f32),
    Bf16(*mut bf16),
}

impl To {
    pub fn of(values: &mut ValuesMut) -> To {
        match values {
            ValuesMut::F32(x) => To::F32(x.as_mut_ptr()),
            ValuesMut::Bf16(x) => To::Bf16(x.as_mut_ptr()),
        }
    }

    #[inline(always)]
    pub fn add(self, n: usize) -> To {
        match self {
            To::F32(at) => To::F32(at.wrapping_add(n)),
            To::Bf16(at) => To::Bf16(at.wrapping_add(n)),
        }
    }

    /// Fetches `n` numbers for writing.
    #[inline(always)]
    pub fn fetch(self, n: usize) {
        match self {
            To::F32(at) => fetch::write(at, n),
            To::Bf16(at) => fetch::write(at, n),
        }
    }

    /// The existing values, as the start of sums: f32 only.
    #[inline(always)]
    pub fn as_base(self) -> Option<*const f32> {
        match self {
            To::F32(at) => Some(at.cast_const()),
            To::Bf16(_) => None,
        }
    }
}
