//! From files to batches; see [`data`].

pub use llmtui_base as base;
pub use llmtui_kernels as kernels;
pub use llmtui_system::{embed, gguf, hub};

pub mod data;

/// As in the program: budgets are the allocator's.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: kernels::allocations::Counting = kernels::allocations::Counting;
