//! Models, optimizers and weight files: parts and tapes ([`nn`]), update rules ([`optim`]), Hugging Face and GGUF files
//! ([`hf`], [`llama_cpp`]). No text, no runs.

pub use llmtui_base as base;
pub use llmtui_kernels as kernels;
pub use llmtui_system::gguf;

pub mod hf;
pub mod llama_cpp;
pub mod merging;
pub mod nn;
pub mod optim;
