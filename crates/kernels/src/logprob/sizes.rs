//! Chunking of the head: how many logits exist at once.

use super::rows::OUTPUTS;

/// Most logits at once: 64 MiB of f32. The backward recomputes the rest.
const MOST_LOGITS: usize = 16 << 20;

/// Logits too few to be worth a second chunk: 4 MiB of f32.
const FEW_LOGITS: usize = 1 << 20;

/// Rows per chunk: with 1,024 chunking costs no measurable time, with 256 a tenth of the head's.
const CHUNK_ROWS: usize = 1024;

/// Dimensions of the fused head: `rows` hidden states of `d` features over `vocab` tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    pub rows: usize,
    pub d: usize,
    pub vocab: usize,
    /// Rows whose logits exist at once.
    pub chunk_rows: usize,
}

impl Sizes {
    /// For [`super::forward`] and a later [`super::backward`]: up to 64 MiB of logits are kept for it; beyond that they are
    /// computed in chunks, and again in the backward.
    pub fn new(rows: usize, d: usize, vocab: usize) -> Self {
        let in_chunks = Sizes::in_chunks(rows, d, vocab);
        if rows * vocab > MOST_LOGITS {
            return in_chunks;
        }
        Sizes {
            chunk_rows: rows,
            ..in_chunks
        }
    }

    /// For [`super::forward_backward`], and for [`super::forward`] alone: few logits at once, in chunks of one size. Each
    /// chunk packs the table for its matmuls, and reads and writes the table's gradient, which is little compared to the
    /// matmuls of many rows.
    pub fn in_chunks(rows: usize, d: usize, vocab: usize) -> Self {
        let most = CHUNK_ROWS.max(FEW_LOGITS / vocab);
        let most = most.min(MOST_LOGITS / vocab).max(1);
        let chunks = rows.div_ceil(most).max(1);
        Sizes {
            rows,
            d,
            vocab,
            chunk_rows: rows.div_ceil(chunks),
        }
    }

    /// Whether all logits are kept from forward to backward.
    pub fn keeps_logits(&self) -> bool {
        self.chunk_rows == self.rows
    }

    /// Bytes of [`super::Outputs`] at this size.
    pub fn bytes(&self) -> u64 {
        let numbers = self.chunk_rows * (self.vocab + OUTPUTS) + self.rows * OUTPUTS;
        (numbers * size_of::<f32>()) as u64
    }
}
