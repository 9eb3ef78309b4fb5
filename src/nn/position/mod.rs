//! Position encodings.

mod learned;
mod rope;

/// What a position encoding has to tell.
pub trait Position {
    /// Base of the rotary angles, when queries and keys are rotated.
    fn rotary_theta(&self) -> Option<f64>;
    /// True when a learned table of seq_len × d_model is added to the embeddings.
    fn has_table(&self) -> bool;
}

crate::registry! {
    /// How a token knows where it stands.
    pub enum PositionConfig: dyn Position { learned: Learned, rope: Rope }
}
