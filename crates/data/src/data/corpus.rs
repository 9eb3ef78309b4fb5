//! One plain text in memory, split in two by characters, and windows drawn from both splits, identical to nanoGPT's. Every
//! batch is a function of its arguments alone: a resumed run needs no saved position, and evaluation does not affect
//! training.

use super::permute::Permutation;
use super::render::SpecialTokens;
use super::source;
use super::tokenizer::Tokenizer;
use super::{Batch, DataConfig, DataError, Order};
use crate::base::digest::hex;
use crate::base::rng::{Rng, Stream};
use sha2::{Digest, Sha256};

/// A training text, tokenized and split.
#[derive(Debug)]
pub(super) struct Corpus {
    pub tokenizer: Tokenizer,
    pub train: Vec<u32>,
    pub val: Vec<u32>,
    /// SHA-256 of the text, in hex.
    pub fingerprint: String,
    /// Where the text came from, for display.
    pub place: String,
    /// Notices: dropped marks, line ends.
    pub notes: Vec<String>,
    /// Bytes of UTF-8 in the validation split: bits per byte = loss / ln 2 × tokens / bytes.
    pub val_bytes: u64,
    seq_len: usize,
    order: Order,
}

impl Corpus {
    /// Reads, splits and tokenizes. The last `val_fraction` of the text, in characters, is held out; a BPE tokenizer
    /// learns from the training split alone, a character vocabulary covers both; a `tokenizer` that is given takes its place.
    ///
    /// # Errors
    /// Bad text, a bad tokenizer, or a split shorter than one window.
    pub fn prepare(
        config: &DataConfig,
        tokenizer: Option<Tokenizer>,
        seq_len: usize,
    ) -> Result<Corpus, DataError> {
        let text = source::read(config)?;
        let (train_text, val_text) = split(&text.text, config.val_fraction);
        let tokenizer = match tokenizer {
            Some(tokenizer) => tokenizer,
            None => config.tokenizer.build(train_text, &text.text)?,
        };
        let mut notes = text.notes;
        if SpecialTokens::of(&tokenizer).occur_in(&text.text) {
            notes.push(format!(
                "{} contains special tokens as text; the model sees them as special tokens",
                text.place
            ));
        }
        let dataset = Corpus {
            train: tokenizer.encode(train_text)?,
            val: tokenizer.encode(val_text)?,
            fingerprint: sha256(text.text.as_bytes()),
            val_bytes: val_text.len() as u64,
            place: text.place,
            notes,
            tokenizer,
            seq_len,
            order: config.order,
        };
        for (split, tokens) in [("train", &dataset.train), ("validation", &dataset.val)] {
            if tokens.len() <= seq_len {
                return Err(DataError::TooShort {
                    split,
                    tokens: tokens.len(),
                    window: seq_len + 1,
                });
            }
        }
        Ok(dataset)
    }

    /// Target tokens of one pass over the training split.
    pub fn epoch_tokens(&self) -> u64 {
        self.train.len() as u64 - 1
    }

    /// Windows of one pass over the training split. Disjoint ones leave out a rest that fills none; with random ones the rest
    /// counts as a part of a window.
    pub fn windows_per_epoch(&self) -> f64 {
        let windows = self.epoch_tokens() as f64 / self.seq_len as f64;
        match self.order {
            Order::Random => windows,
            Order::Shuffled => windows.floor(),
        }
    }

    #[cfg(test)]
    fn train_batch(&self, seed: u64, micro_step: u64, batch_size: usize) -> Batch {
        let mut batch = Batch::default();
        self.fill_train_batch(&mut batch, seed, micro_step, batch_size);
        batch
    }

    /// The training batch of one micro-step (from 0), into a batch whose memory is used again. `batch_size` must stay the
    /// same over a run for [`Order::Shuffled`] to visit every window once an epoch.
    pub fn fill_train_batch(
        &self,
        batch: &mut Batch,
        seed: u64,
        micro_step: u64,
        batch_size: usize,
    ) {
        batch.clear();
        match self.order {
            Order::Random => {
                let starts = self.random_starts(&self.train, seed, Stream::Data, micro_step);
                batch.starts.extend(starts.take(batch_size));
            }
            Order::Shuffled => {
                self.shuffled_starts(seed, micro_step, batch_size, &mut batch.starts)
            }
        }
        self.cut(&self.train, batch);
    }

    /// Random windows of the validation split; the same ones for the same `index`, so that evaluations of one run are
    /// comparable.
    pub fn eval_batch(&self, seed: u64, index: u64, batch_size: usize) -> Batch {
        let starts = self.random_starts(&self.val, seed, Stream::Eval, index);
        self.val_windows_at(starts.take(batch_size).collect())
    }

    /// Number of disjoint windows that cover the validation split (a rest shorter than a window is left out).
    pub fn val_windows(&self) -> usize {
        (self.val.len() - 1) / self.seq_len
    }

    /// Windows of the validation split by number; those beyond the end are skipped.
    pub fn val_rows(&self, rows: &[u64]) -> Batch {
        let rows = rows.iter().map(|row| *row as usize);
        let windows = rows.filter(|row| *row < self.val_windows());
        self.val_windows_at(windows.map(|row| row * self.seq_len).collect())
    }

    /// Mean UTF-8 bytes per validation token.
    pub fn val_bytes_per_token(&self) -> f64 {
        self.val_bytes as f64 / self.val.len() as f64
    }

    fn val_windows_at(&self, starts: Vec<usize>) -> Batch {
        let mut batch = Batch {
            starts,
            ..Default::default()
        };
        self.cut(&self.val, &mut batch);
        batch
    }

    /// Places of random windows, without an end.
    fn random_starts(
        &self,
        tokens: &[u32],
        seed: u64,
        stream: Stream,
        step: u64,
    ) -> impl Iterator<Item = usize> + use<> {
        let mut rng = Rng::new(seed, stream, step, 0);
        let choices = (tokens.len() - self.seq_len) as u64;
        std::iter::repeat_with(move || rng.below(choices) as usize)
    }

    fn shuffled_starts(
        &self,
        seed: u64,
        micro_step: u64,
        batch_size: usize,
        starts: &mut Vec<usize>,
    ) {
        let windows = ((self.train.len() - 1) / self.seq_len) as u64;
        let first = micro_step * batch_size as u64;
        let mut epoch = first / windows;
        let mut order = Permutation::new(windows, seed, epoch);
        starts.extend((first..first + batch_size as u64).map(|index| {
            if index / windows != epoch {
                epoch = index / windows;
                order = Permutation::new(windows, seed, epoch);
            }
            order.at(index % windows) as usize * self.seq_len
        }));
    }

    /// Fills a batch whose `starts` are known.
    fn cut(&self, tokens: &[u32], batch: &mut Batch) {
        let t = self.seq_len;
        let fill = |shift: usize, part: &mut Vec<u32>| {
            part.clear();
            for start in &batch.starts {
                part.extend_from_slice(&tokens[start + shift..start + shift + t]);
            }
        };
        fill(0, &mut batch.inputs);
        fill(1, &mut batch.targets);
        batch.batch_size = batch.starts.len();
        batch.seq_len = t;
    }
}

/// Cuts by characters, as nanoGPT: the training split has ⌊n · (1 − val_fraction)⌋ of them.
fn split(text: &str, val_fraction: f64) -> (&str, &str) {
    let n = if text.is_ascii() {
        text.len()
    } else {
        text.chars().count()
    };
    let n_train = (n as f64 * (1.0 - val_fraction)) as usize;
    let at = if text.is_ascii() {
        n_train
    } else {
        text.char_indices()
            .nth(n_train)
            .map_or(text.len(), |(at, _)| at)
    };
    text.split_at(at)
}

pub(super) fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quickstart() -> Corpus {
        Corpus::prepare(&DataConfig::default(), None, 64).unwrap()
    }

    fn tiny(order: Order) -> Corpus {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.txt");
        let text: String = (0..500)
            .map(|i| char::from(b'a' + (i % 26) as u8))
            .collect();
        std::fs::write(&path, text).unwrap();
        let config = DataConfig {
            path: Some(path),
            order,
            ..Default::default()
        };
        Corpus::prepare(&config, None, 8).unwrap()
    }

    /// nanoGPT's data/shakespeare_char/readme: 65 characters, 1,003,854 and 111,540 tokens.
    #[test]
    fn tiny_shakespeare_splits_as_in_nanogpt() {
        let data = quickstart();
        assert_eq!(data.tokenizer.vocab_size(), 65);
        assert_eq!((data.train.len(), data.val.len()), (1_003_854, 111_540));
        assert_eq!(data.val_windows(), 1742);
        assert_eq!(data.tokenizer.decode(&data.train[..14]), "First Citizen:");
        // sha256sum of the file
        assert_eq!(
            data.fingerprint,
            "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
        );
        assert_eq!(data.val_bytes_per_token(), 1.0);
    }

    #[test]
    fn batches_are_functions_of_their_arguments_and_targets_follow_inputs() {
        for order in [Order::Random, Order::Shuffled] {
            let data = tiny(order);
            let batch = data.train_batch(1, 5, 3);
            assert_eq!(batch, data.train_batch(1, 5, 3));
            assert_ne!(batch, data.train_batch(1, 6, 3));
            assert_ne!(batch, data.train_batch(2, 5, 3));
            for (row, start) in batch.starts.iter().enumerate() {
                let row = row * 8..row * 8 + 8;
                assert_eq!(batch.inputs[row.clone()], data.train[*start..start + 8]);
                assert_eq!(batch.targets[row], data.train[start + 1..start + 9]);
            }
        }
    }

    #[test]
    fn random_windows_reach_both_ends_of_the_split() {
        let data = tiny(Order::Random);
        let starts: Vec<usize> = (0..2000)
            .flat_map(|m| data.train_batch(3, m, 4).starts)
            .collect();
        assert_eq!(starts.iter().min(), Some(&0));
        assert_eq!(starts.iter().max(), Some(&(data.train.len() - 8 - 1)));
    }

    #[test]
    fn an_epoch_visits_every_window_once_and_the_next_in_another_order() {
        let data = tiny(Order::Shuffled);
        let windows = (data.train.len() - 1) / 8;
        let starts: Vec<usize> = (0..2 * windows as u64 / 7 + 1)
            .flat_map(|m| data.train_batch(3, m, 7).starts)
            .collect();
        let epoch = |e: usize| starts[e * windows..(e + 1) * windows].to_vec();
        for e in 0..2 {
            let mut sorted = epoch(e);
            sorted.sort_unstable();
            assert_eq!(sorted, (0..windows).map(|w| w * 8).collect::<Vec<_>>());
        }
        assert_ne!(epoch(0), epoch(1));
        // As many micro-steps as a run of three epochs takes, of one window each, and none begins a fourth.
        let run = (3.0 * data.windows_per_epoch()).ceil() as u64;
        let starts = (0..run).flat_map(|m| data.train_batch(3, m, 1).starts);
        let mut times = vec![0; windows];
        starts.for_each(|start| times[start / 8] += 1);
        assert_eq!(times, vec![3; windows]);
    }

    #[test]
    fn the_validation_split_is_covered_by_disjoint_windows() {
        let data = tiny(Order::Random);
        assert_eq!(data.val.len(), 50);
        assert_eq!(data.val_windows(), 6);
        let from = |w: u64| data.val_rows(&(w..w + 4).collect::<Vec<_>>());
        let starts: Vec<usize> = [0, 4].into_iter().flat_map(|w| from(w).starts).collect();
        assert_eq!(starts, [0, 8, 16, 24, 32, 40]);
        assert_eq!(from(6).batch_size, 0);
    }

    #[test]
    fn a_split_of_exactly_one_window_is_enough_and_one_less_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let config = DataConfig {
            path: Some(dir.path().join("a.txt")),
            val_fraction: 0.5,
            ..Default::default()
        };
        let prepare = |n: usize| {
            std::fs::write(dir.path().join("a.txt"), "ab".repeat(n)).unwrap();
            Corpus::prepare(&config, None, 8)
        };
        let data = prepare(9).unwrap();
        assert_eq!(
            (data.val_windows(), data.train_batch(1, 0, 2).starts),
            (1, vec![0, 0])
        );
        let error = prepare(8).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the train split has 8 tokens; one window takes 9 (seq_len + 1)"
        );
        assert!(error.hint().contains("seq_len"));
    }

    #[test]
    fn characters_are_counted_not_bytes() {
        assert_eq!(split("äöüß", 0.5), ("äö", "üß"));
        assert_eq!(split("abcd", 0.25), ("abc", "d"));
    }
}
