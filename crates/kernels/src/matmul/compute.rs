//! Compute settings of a matmul: dtype and thread count.

/// The dtype of the inputs. Destinations and accumulation are f32 in both.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum ComputeDtype {
    /// f32 matmuls.
    #[default]
    F32,
    /// f32 in memory, inputs rounded to bf16 (to nearest, ties to even) on load, accumulated in f32.
    Bf16,
}

/// Whether a matmul may use the whole pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    One,
    Pool,
}

#[cfg(all(target_arch = "x86_64", not(llmtui_portable)))]
impl Threads {
    pub(super) fn count(self) -> usize {
        match self {
            Threads::One => 1,
            Threads::Pool => rayon::current_num_threads(),
        }
    }
}

/// How a matmul is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compute {
    pub arithmetic: ComputeDtype,
    pub threads: Threads,
}

impl Compute {
    /// On the calling thread alone.
    pub const fn one(arithmetic: ComputeDtype) -> Self {
        Compute {
            arithmetic,
            threads: Threads::One,
        }
    }

    /// On all threads of the current pool.
    pub const fn pool(arithmetic: ComputeDtype) -> Self {
        Compute {
            arithmetic,
            threads: Threads::Pool,
        }
    }
}
