//! Model parts and the decoder made of them.

mod config;
pub mod mlp;
pub mod norm;
pub mod position;

pub use config::{ModelConfig, ModelShape};
