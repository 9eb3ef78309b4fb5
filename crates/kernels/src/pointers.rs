//! Addresses and dtypes of inputs and destinations: one pointer type for the loops, which the instruction sets resolve.

use crate::fetch;
use crate::numbers::{Values, ValuesMut, bf16};

/// Numbers to read.
#[derive(Clone, Copy)]
pub enum ReadPtr {
    F32(*const f32),
    Bf16(*const bf16),
}

impl ReadPtr {
    pub fn of(values: Values) -> ReadPtr {
        match values {
            Values::F32(x) => ReadPtr::F32(x.as_ptr()),
            Values::Bf16(x) => ReadPtr::Bf16(x.as_ptr()),
        }
    }

    /// `n` numbers further on.
    #[inline(always)]
    pub fn add(self, n: usize) -> ReadPtr {
        match self {
            ReadPtr::F32(at) => ReadPtr::F32(at.wrapping_add(n)),
            ReadPtr::Bf16(at) => ReadPtr::Bf16(at.wrapping_add(n)),
        }
    }

    /// The address, and the bytes of a number.
    pub fn bytes(self) -> (*const u8, usize) {
        match self {
            ReadPtr::F32(at) => (at.cast(), size_of::<f32>()),
            ReadPtr::Bf16(at) => (at.cast(), size_of::<bf16>()),
        }
    }

    #[inline(always)]
    pub fn fetch(self, n: usize) {
        match self {
            ReadPtr::F32(at) => fetch::at(at, n),
            ReadPtr::Bf16(at) => fetch::at(at, n),
        }
    }
}

/// Numbers to write. A sum is rounded to bf16 once: all its terms are summed before.
#[derive(Clone, Copy)]
pub enum WritePtr {
    F32(*mut f32),
    Bf16(*mut bf16),
}

impl WritePtr {
    pub fn of(values: &mut ValuesMut) -> WritePtr {
        match values {
            ValuesMut::F32(x) => WritePtr::F32(x.as_mut_ptr()),
            ValuesMut::Bf16(x) => WritePtr::Bf16(x.as_mut_ptr()),
        }
    }

    #[inline(always)]
    pub fn add(self, n: usize) -> WritePtr {
        match self {
            WritePtr::F32(at) => WritePtr::F32(at.wrapping_add(n)),
            WritePtr::Bf16(at) => WritePtr::Bf16(at.wrapping_add(n)),
        }
    }

    /// Fetches `n` numbers for writing.
    #[inline(always)]
    pub fn fetch(self, n: usize) {
        match self {
            WritePtr::F32(at) => fetch::write(at, n),
            WritePtr::Bf16(at) => fetch::write(at, n),
        }
    }

    /// The existing values, as the start of sums: f32 only.
    #[inline(always)]
    pub fn as_base(self) -> Option<*const f32> {
        match self {
            WritePtr::F32(at) => Some(at.cast_const()),
            WritePtr::Bf16(_) => None,
        }
    }
}
