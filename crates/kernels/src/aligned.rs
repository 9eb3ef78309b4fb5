//! Buffers aligned to cache lines. A large allocation starts sixteen bytes past one, so every vector
//! load or store would straddle two lines: matmuls alone are 6 % faster with alignment.

use super::pages;
use std::ops::{Deref, DerefMut};

/// f32 values per cache line.
const LINE: usize = 64 / size_of::<f32>();

/// A buffer of f32 of fixed length, aligned to 64 bytes.
#[derive(Debug, Default)]
pub struct Aligned {
    memory: Vec<f32>,
    from: usize,
    len: usize,
}

impl Aligned {
    /// Zeros, on huge pages if large.
    pub fn zeros(len: usize) -> Self {
        let zeros = Aligned::zeros_on_demand(len);
        pages::prefer_huge_for(&zeros.memory);
        zeros
    }

    /// Zeros on small pages, which take memory only where they are written: for buffers that may stay empty for the most part.
    pub fn zeros_on_demand(len: usize) -> Self {
        if len == 0 {
            return Aligned::default();
        }
        // Zeroed by the system, not touched until used.
        let memory = vec![0.0_f32; len + LINE - 1];
        let beyond = memory.as_ptr() as usize / size_of::<f32>() % LINE;
        Aligned {
            from: (LINE - beyond) % LINE,
            memory,
            len,
        }
    }
}

impl Deref for Aligned {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        &self.memory[self.from..self.from + self.len]
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.memory[self.from..self.from + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_zeroed_and_start_on_a_cache_line() {
        for len in [0, 1, 15, 16, 1000, 1 << 20] {
            let mut buffers: Vec<_> = (0..3).map(|_| Aligned::zeros(len)).collect();
            for buffer in &mut buffers {
                assert!(len == 0 || (buffer.as_ptr() as usize).is_multiple_of(64));
                assert_eq!((buffer.len(), buffer.iter().sum::<f32>()), (len, 0.0));
                buffer.fill(1.0);
            }
        }
    }
}
