//! Position encodings.

mod alibi;
mod learned;
mod none;
mod rope;
pub mod scaling;
mod sinusoidal;

pub use alibi::slopes;
pub use rope::{Config as RopeConfig, Rotation};
pub use scaling::ScalingConfig;
pub use sinusoidal::wave;

/// The interface of position encodings; the defaults do nothing.
pub trait Position {
    /// The rotation of queries and keys.
    fn rope(&self) -> Option<&RopeConfig> {
        None
    }
    /// True when a learned table of seq_len × d_model is added to the embeddings.
    fn has_table(&self) -> bool {
        false
    }
    /// True when a fixed vector of each position is added to the embeddings.
    fn adds_position_vectors(&self) -> bool {
        false
    }
    /// The ALiBi slope of each of `n_head` heads: the score's decrease per token of distance.
    fn slopes(&self, _n_head: usize) -> Option<Vec<f32>> {
        None
    }
}

crate::base::registry! {
    /// Position encoding.
    pub enum PositionConfig: dyn Position {
        learned: Learned,
        rope: Rope,
        sinusoidal: Sinusoidal,
        alibi: Alibi,
        none: None,
    }
}
