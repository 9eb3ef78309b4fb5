//! Rows of tokens as a model trains on them: what follows what, what counts, where documents begin. How rows come about is
//! the dataset's matter.

/// Rows of tokens with the tokens that follow them, row-major (batch_size, seq_len).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Batch {
    pub inputs: Vec<u32>,
    /// Same shape: `targets[b][t]` follows `inputs[b][t]`.
    pub targets: Vec<u32>,
    pub batch_size: usize,
    pub seq_len: usize,
    /// Where each window starts in its split; empty where rows are made of documents.
    pub starts: Vec<usize>,
    /// Same shape: 1 where the target is supervised, 0 for prompts and padding. Empty: all are.
    pub weights: Vec<f32>,
    /// Same shape: where in its row the document of each token begins. Empty: each row is one text.
    pub first: Vec<u32>,
    /// Tokens that are no padding; of each source in turn where there are several.
    pub tokens: Vec<u64>,
}

impl Batch {
    /// Empties it; its memory is used again.
    pub fn clear(&mut self) {
        for part in [&mut self.inputs, &mut self.targets, &mut self.first] {
            part.clear();
        }
        self.starts.clear();
        self.weights.clear();
        self.tokens.clear();
        self.batch_size = 0;
    }

    /// Targets that count in the loss.
    pub fn supervised(&self) -> usize {
        match self.weights.is_empty() {
            true => self.targets.len(),
            false => self.weights.iter().filter(|w| **w > 0.0).count(),
        }
    }

    /// Tokens that are no padding.
    pub fn n_tokens(&self) -> u64 {
        match self.tokens.is_empty() {
            true => self.targets.len() as u64,
            false => self.tokens.iter().sum(),
        }
    }

    /// The first `len` tokens of each row.
    pub fn cut(&self, len: usize) -> Batch {
        let (seq_len, len) = (self.seq_len.max(1), len.min(self.seq_len));
        fn rows<T: Copy>(values: &[T], seq_len: usize, len: usize) -> Vec<T> {
            let rows = values.chunks(seq_len);
            rows.flat_map(|row| &row[..len]).copied().collect()
        }
        Batch {
            inputs: rows(&self.inputs, seq_len, len),
            targets: rows(&self.targets, seq_len, len),
            weights: rows(&self.weights, seq_len, len),
            first: rows(&self.first, seq_len, len),
            seq_len: len,
            tokens: Vec::new(),
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_learnt_and_what_is_padding_are_counted_apart() {
        let mut batch = Batch {
            inputs: vec![1, 2, 3, 4],
            targets: vec![2, 3, 4, 5],
            batch_size: 2,
            seq_len: 2,
            ..Batch::default()
        };
        assert_eq!((batch.supervised(), batch.n_tokens()), (4, 4));
        batch.weights = vec![0.0, 1.0, 1.0, 0.0];
        batch.tokens = vec![2, 1];
        assert_eq!((batch.supervised(), batch.n_tokens()), (2, 3));
        let cut = batch.cut(1);
        assert_eq!((cut.inputs, cut.weights), (vec![1, 3], vec![0.0, 1.0]));
        batch.clear();
        assert_eq!((batch.supervised(), batch.n_tokens()), (0, 0));
    }
}
