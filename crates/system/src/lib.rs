//! The surroundings of a run: the machine ([`hardware`]), the Hugging Face [`hub`], untrusted programs ([`sandbox`]), PyTorch
//! ranks ([`workers`]), the [`gguf`] container, embedded files ([`embed`]). No tensors, no models.

pub use llmtui_base as base;
pub use llmtui_record::wire;

pub mod embed;
pub mod gguf;
pub mod hardware;
pub mod hub;
pub mod sandbox;
pub mod workers;
