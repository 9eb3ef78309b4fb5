//! Rows of tokens as a model trains on them: what follows what, which targets count, where documents begin, and which
//! sequence belongs to which example. How rows come about is the dataset's matter.

use super::Unit;

/// Values that a method needs beside the tokens, one for each sequence of the batch or one for each token.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// `reference_logp`, `advantage`, `label`, …: the methods name theirs.
    pub name: &'static str,
    pub values: Vec<f32>,
}

/// Where a sequence stands in its data: the same one has the same origin in every epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Origin {
    pub held_out: bool,
    pub source: u32,
    /// First token in the source's store.
    pub start: u64,
}

/// Rows of tokens with the tokens that follow them, row-major (batch_size, seq_len).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Batch {
    pub inputs: Vec<u32>,
    /// Same shape: `targets[b][t]` follows `inputs[b][t]`.
    pub targets: Vec<u32>,
    /// Rows.
    pub batch_size: usize,
    pub seq_len: usize,
    /// What an example of these rows is.
    pub unit: Unit,
    /// Where each window starts in its split; empty where rows are made of documents.
    pub starts: Vec<usize>,
    /// Same shape: whether the target counts in the loss (prompts and padding do not). Empty: all do. It only says which
    /// targets count, never how much: that is the method's matter.
    pub mask: Vec<bool>,
    /// Same shape: where in its row the document of each token begins. Empty: each row is one text.
    pub first: Vec<u32>,
    /// Same shape: the sequence of each token, an index into `origins`; padding counts to the last of its row. Empty where
    /// an example is one text.
    pub sequence: Vec<u32>,
    /// The sequences; those of an example stand next to each other.
    pub origins: Vec<Origin>,
    pub columns: Vec<Column>,
    /// What rewards compare the answers with, a JSON object for each sequence; empty where examples are no prompts.
    pub references: Vec<String>,
    /// Tokens that are not padding; of each source in turn where there are several.
    pub tokens: Vec<u64>,
}

impl Batch {
    /// Empties it; its memory is used again.
    pub fn clear(&mut self) {
        for part in [
            &mut self.inputs,
            &mut self.targets,
            &mut self.first,
            &mut self.sequence,
        ] {
            part.clear();
        }
        self.starts.clear();
        self.mask.clear();
        self.origins.clear();
        self.columns.clear();
        self.references.clear();
        self.tokens.clear();
        self.batch_size = 0;
    }

    /// Targets that count in the loss.
    pub fn supervised(&self) -> usize {
        match self.mask.is_empty() {
            true => self.targets.len(),
            false => self.mask.iter().filter(|counts| **counts).count(),
        }
    }

    /// Examples that the batch tells apart: pairs or prompts, and 0 where an example is one text.
    pub fn groups(&self) -> usize {
        match self.unit {
            Unit::Text => 0,
            unit => self.origins.len() / unit.sequences(),
        }
    }

    /// The values of a column.
    pub fn column(&self, name: &str) -> Option<&[f32]> {
        let column = self.columns.iter().find(|column| column.name == name);
        column.map(|column| &*column.values)
    }

    /// Tokens that are not padding.
    pub fn n_tokens(&self) -> u64 {
        match self.tokens.is_empty() {
            true => self.targets.len() as u64,
            false => self.tokens.iter().sum(),
        }
    }

    /// The first `len` tokens of each row. Columns are dropped: they are those of whole sequences.
    pub fn cut(&self, len: usize) -> Batch {
        let (seq_len, len) = (self.seq_len.max(1), len.min(self.seq_len));
        fn rows<T: Copy>(values: &[T], seq_len: usize, len: usize) -> Vec<T> {
            let rows = values.chunks(seq_len);
            rows.flat_map(|row| &row[..len]).copied().collect()
        }
        Batch {
            inputs: rows(&self.inputs, seq_len, len),
            targets: rows(&self.targets, seq_len, len),
            mask: rows(&self.mask, seq_len, len),
            first: rows(&self.first, seq_len, len),
            sequence: rows(&self.sequence, seq_len, len),
            seq_len: len,
            columns: Vec::new(),
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
        batch.mask = vec![false, true, true, false];
        batch.tokens = vec![2, 1];
        assert_eq!((batch.supervised(), batch.n_tokens()), (2, 3));
        let cut = batch.cut(1);
        assert_eq!((cut.inputs, cut.mask), (vec![1, 3], vec![false, true]));
        batch.clear();
        assert_eq!((batch.supervised(), batch.n_tokens()), (0, 0));
    }
}
