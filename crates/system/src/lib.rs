//! What lies around a run: the machine ([`hardware`]), the Hugging Face [`hub`], programs that nobody has read ([`sandbox`]), ranks of
//! PyTorch ([`workers`]), the [`gguf`] container, files within the binary ([`embed`]). No tensors, no models.

pub use llmtui_base as base;
pub use llmtui_record::wire;

pub mod embed;
pub mod gguf;
pub mod hardware;
pub mod hub;
pub mod sandbox;
pub mod workers;
