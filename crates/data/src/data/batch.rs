//! Batches as a model trains on them: inputs and targets, the loss mask, document boundaries, and which sequence belongs to
//! which example. How rows are assembled is up to the dataset.

use super::Unit;

/// Values that a method needs beside the tokens, one for each sequence of the batch or one for each token.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// `reference_logp`, `advantage`, `label`, …: the methods name theirs.
    pub name: &'static str,
    pub values: Vec<f32>,
}

/// Places of a model's own answers that go through it at once. Losses are sums over answers, so a micro-batch of them may go in
/// parts: activations stay bounded, and of so many rows a matmul is as fast as of more.
pub const ANSWER_PLACES: usize = 512;

/// The column of labels of judged answers: 1 is desirable, 0 is not.
pub const LABEL: &str = "label";

/// The column of margins of ranked pairs, the same for both sides: by how much the chosen score is to exceed the other.
pub const MARGIN: &str = "margin";

/// The position of a sequence in its data: the same one has the same origin in every epoch.
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
    /// The unit of these rows.
    pub unit: Unit,
    /// Where each window starts in its split; empty where rows are made of documents.
    pub starts: Vec<usize>,
    /// Same shape: whether the target counts in the loss (prompts and padding do not). Empty: all do. It only says which
    /// targets count, never how much: that is the method's matter.
    pub mask: Vec<bool>,
    /// Same shape: where in its row the document of each token begins. Empty: each row is one text.
    pub first: Vec<u32>,
    /// Of each row the places that are not padding, from its begin on, (batch_size). Empty: there is no padding.
    pub filled: Vec<u32>,
    /// Same shape: the sequence of each token, an index into `origins`; padding counts to the last of its row. Empty where
    /// an example is one text.
    pub sequence: Vec<u32>,
    /// The sequences; those of an example are adjacent.
    pub origins: Vec<Origin>,
    pub columns: Vec<Column>,
    /// The references for rewards, a JSON object for each sequence; empty if examples are not prompts.
    pub references: Vec<String>,
    /// Tokens that are not padding; of each source in turn where there are several.
    pub tokens: Vec<u64>,
    /// Of a part: targets that count in the whole micro-batch.
    pub whole: Option<usize>,
    /// What the model's completions were drawn at; `None` is 1, as for texts.
    pub temperature: Option<f32>,
}

impl Batch {
    /// Empties it; its memory is used again.
    pub fn clear(&mut self) {
        for part in [
            &mut self.inputs,
            &mut self.targets,
            &mut self.first,
            &mut self.filled,
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
        self.whole = None;
        self.temperature = None;
        self.batch_size = 0;
    }

    /// Targets that count in the loss.
    pub fn supervised(&self) -> usize {
        match self.mask.is_empty() {
            true => self.targets.len(),
            false => self.mask.iter().filter(|counts| **counts).count(),
        }
    }

    /// Targets that count in the loss of the micro-batch, of which this may be a part.
    pub fn supervised_of_micro_batch(&self) -> usize {
        self.whole.unwrap_or_else(|| self.supervised())
    }

    /// Examples that the batch distinguishes: pairs, judged answers or prompts, and 0 where an example is one text.
    pub fn groups(&self) -> usize {
        match self.unit {
            Unit::Text => 0,
            unit => self.origins.len() / unit.sequences(),
        }
    }

    /// Each row's prompt with the answer of the next row, the last with that of the first: answers to other prompts, as many
    /// and the same ones. Rows are cut to `seq_len` places. None for fewer than two rows.
    pub fn mismatched(&self, seq_len: usize) -> Option<Batch> {
        if self.batch_size < 2 {
            return None;
        }
        let counts = |at: usize| self.mask.get(at).is_none_or(|counts| *counts);
        let places = |row: usize| row * self.seq_len..(row + 1) * self.seq_len;
        let rows = (0..self.batch_size).map(|row| {
            let (own, other) = (places(row), places((row + 1) % self.batch_size));
            let begin = own.clone().find(|at| counts(*at)).unwrap_or(own.start);
            let mut ids = self.inputs[own.start..=begin].to_vec();
            let prompt = ids.len();
            ids.extend(other.filter(|at| counts(*at)).map(|at| self.targets[at]));
            ids.truncate(seq_len + 1);
            (prompt, ids)
        });
        let rows: Vec<(usize, Vec<u32>)> = rows.collect();
        let width = rows.iter().map(|(_, ids)| ids.len() - 1).max()?.max(1);
        let mut batch = Batch {
            batch_size: self.batch_size,
            seq_len: width,
            unit: self.unit,
            origins: self.origins.clone(),
            ..Batch::default()
        };
        for (row, (prompt, ids)) in rows.iter().enumerate() {
            let (n, end) = (ids.len() - 1, (row + 1) * width);
            batch.inputs.extend(&ids[..n]);
            batch.targets.extend(&ids[1..]);
            batch.mask.extend((1..=n).map(|at| at >= *prompt));
            batch.filled.push(n as u32);
            batch.first.resize(row * width + n, 0);
            batch.inputs.resize(end, 0);
            batch.targets.resize(end, 0);
            batch.mask.resize(end, false);
            batch.first.resize(end, n as u32);
            batch.sequence.resize(end, row as u32);
        }
        Some(batch)
    }

    /// The rows in parts of about as many, each of at most `tokens` places or of one row.
    pub fn parts(&self, tokens: usize) -> Vec<Batch> {
        let most = (tokens / self.seq_len.max(1)).max(1);
        let n = self.batch_size.div_ceil(most);
        let cut = |at: usize| self.batch_size * at / n;
        (0..n).map(|at| self.rows(cut(at)..cut(at + 1))).collect()
    }

    /// Some rows of a batch with one sequence in each. Columns and `tokens` go along; of `tokens` the sum is not told apart.
    fn rows(&self, rows: std::ops::Range<usize>) -> Batch {
        let places = rows.start * self.seq_len..rows.end * self.seq_len;
        fn of<T: Clone>(all: &[T], range: &std::ops::Range<usize>) -> Vec<T> {
            all.get(range.clone()).map_or_else(Vec::new, <[T]>::to_vec)
        }
        let column = |column: &Column| Column {
            name: column.name,
            values: match column.values.len() == self.inputs.len() {
                true => of(&column.values, &places),
                false => of(&column.values, &rows),
            },
        };
        let shift = |sequence: &u32| sequence - rows.start as u32;
        let sequence = of(&self.sequence, &places);
        Batch {
            inputs: of(&self.inputs, &places),
            targets: of(&self.targets, &places),
            batch_size: rows.len(),
            seq_len: self.seq_len,
            unit: self.unit,
            starts: of(&self.starts, &rows),
            mask: of(&self.mask, &places),
            first: of(&self.first, &places),
            filled: of(&self.filled, &rows),
            sequence: sequence.iter().map(shift).collect(),
            origins: of(&self.origins, &rows),
            columns: self.columns.iter().map(column).collect(),
            references: of(&self.references, &rows),
            tokens: Vec::new(),
            whole: Some(self.supervised_of_micro_batch()),
            temperature: self.temperature,
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

    /// The first `len` tokens of each row. Columns are dropped: they are those of whole sequences, but for labels and margins.
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
            filled: self.filled.iter().map(|n| (*n).min(len as u32)).collect(),
            sequence: rows(&self.sequence, seq_len, len),
            seq_len: len,
            columns: self
                .columns
                .iter()
                .filter(|c| [LABEL, MARGIN].contains(&c.name))
                .cloned()
                .collect(),
            tokens: Vec::new(),
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mismatched_rows_are_prompts_with_the_answers_of_the_next() {
        // Prompts 1 2 and 5, answers 3 4 and 6, 7, 8; the second row is full, the first is padded.
        let batch = Batch {
            inputs: vec![1, 2, 3, 0, 5, 6, 7, 8],
            targets: vec![2, 3, 4, 0, 6, 7, 8, 9],
            mask: vec![false, true, true, false, true, true, true, false],
            batch_size: 2,
            seq_len: 4,
            ..Batch::default()
        };
        let other = batch.mismatched(9).unwrap();
        assert_eq!((other.batch_size, other.seq_len), (2, 4));
        assert_eq!(other.inputs, [1, 2, 6, 7, 5, 3, 0, 0]);
        assert_eq!(other.targets, [2, 6, 7, 8, 3, 4, 0, 0]);
        let t = true;
        assert_eq!(other.mask, [false, t, t, t, t, t, false, false]);
        assert_eq!(other.first, [0, 0, 0, 0, 0, 0, 2, 2]);
        assert_eq!(other.sequence, [0, 0, 0, 0, 1, 1, 1, 1]);
        assert_eq!(batch.mismatched(3).unwrap().targets, [2, 6, 7, 3, 4, 0]);
        let one = Batch {
            batch_size: 1,
            ..batch
        };
        assert_eq!(one.mismatched(9), None);
    }

    #[test]
    fn parts_are_the_rows_with_all_that_belongs_to_them() {
        let batch = Batch {
            inputs: (0..10).collect(),
            targets: (1..11).collect(),
            batch_size: 5,
            seq_len: 2,
            mask: (0..10).map(|at| at % 2 == 0).collect(),
            sequence: (0..10).map(|at| at / 2).collect(),
            columns: vec![
                Column {
                    name: LABEL,
                    values: vec![0.0, 1.0, 2.0, 3.0, 4.0],
                },
                Column {
                    name: MARGIN,
                    values: (0..10_u8).map(f32::from).collect(),
                },
            ],
            ..Batch::default()
        };
        let parts = batch.parts(5);
        assert_eq!(
            parts.iter().map(|p| p.batch_size).collect::<Vec<_>>(),
            [1, 2, 2]
        );
        assert_eq!(parts[1].inputs, [2, 3, 4, 5]);
        assert_eq!(parts[1].targets, [3, 4, 5, 6]);
        assert_eq!(parts[1].mask, [true, false, true, false]);
        let counts = |p: &Batch| (p.supervised(), p.supervised_of_micro_batch());
        assert_eq!(counts(&parts[1]), (2, 5));
        assert_eq!(counts(&batch), (5, 5));
        assert_eq!(parts[1].sequence, [0, 0, 1, 1]);
        assert_eq!(parts[2].column(LABEL), Some(&[3.0, 4.0][..]));
        assert_eq!(parts[2].column(MARGIN), Some(&[6.0, 7.0, 8.0, 9.0][..]));
        assert_eq!(batch.parts(1).len(), 5, "a row is never cut");
    }

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
