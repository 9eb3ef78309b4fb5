//! One pass over data that were inspected but not read: its tokens, and the micro-batches that it takes. Rows are counted
//! as a run lays them out: pairs and judged answers one example a row, conversations packed side by side, text as a stream.

use super::estimate::{Rates, tokens};
use crate::advisor::choose::DataKind;
use crate::advisor::inspection::DataFacts;
use crate::base::human::{grouped, percent};
use crate::data::{DataConfig, Packing, TooLong, TrainOn, Unit};
use crate::plan::request::Rows;
use crate::spec::RunSpec;

/// Sequences that are packed to see how they fit; the others fit alike.
const PACKED: usize = 1_000;
/// Rows below which their share is held out by number, one at least; from here on by chance.
const FEW: u64 = 20;

/// A pass over the training split.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Pass {
    /// Tokens of the training split and of the held-out one, without padding.
    pub tokens: f64,
    pub val_tokens: f64,
    /// Examples that are held out, and all of them; 0 of text.
    pub examples: (u64, u64),
    /// Rows of batches; of examples with several sequences, the examples.
    rows: f64,
    pub packing: Packing,
}

impl Pass {
    /// That of a spec.
    pub fn of(facts: &DataFacts, spec: &RunSpec) -> Option<Pass> {
        let tokenizer = spec.data.tokenizer.entry().id;
        let unit = spec.method.needs().unit;
        Pass::with(facts, (tokenizer, unit), &spec.data, spec.model.seq_len)
    }

    /// That of a method of this unit, with a tokenizer by its id, in rows of `seq_len` tokens.
    pub fn with(
        facts: &DataFacts,
        (tokenizer, unit): (&str, Unit),
        data: &DataConfig,
        seq_len: usize,
    ) -> Option<Pass> {
        let lengths = Lengths::of(facts, tokenizer, unit);
        let kept = match facts.rows {
            Some(_) => lengths.kept(too_long(data, unit, facts.kind), seq_len),
            None => 1.0,
        };
        let all = tokens(facts, tokenizer)? * lengths.share * kept;
        let trained = trained_share(facts, data);
        let tokens = all * trained;
        let auto = match (unit, facts.kind) {
            (Unit::Text, DataKind::Text) => Packing::Stream,
            (Unit::Text, _) => Packing::Packed,
            _ => Packing::Padded,
        };
        let packing = match facts.rows {
            Some(_) => data.packing.or(auto),
            // Text has no rows to keep apart.
            None => Packing::Stream,
        };
        let n = facts.rows.unwrap_or(0) as f64;
        let examples = [n * (1.0 - trained), n].map(|n| (n * lengths.examples).round() as u64);
        let rows = n * trained;
        let rows = match packing {
            Packing::Stream => tokens / seq_len as f64,
            Packing::Padded => (rows * lengths.examples).round(),
            Packing::Packed => lengths.packed(rows * lengths.examples, seq_len),
        };
        Some(Pass {
            tokens,
            val_tokens: all - tokens,
            examples: examples.into(),
            rows,
            packing,
        })
    }

    /// The part of the tokens that counts in the loss: all of a text, the answers of rows whose prompts are masked.
    pub fn supervised_share(facts: &DataFacts, spec: &RunSpec) -> f64 {
        let masked = match spec.data.train_on {
            TrainOn::Auto => spec.usual_train_on() == TrainOn::Auto,
            TrainOn::All => false,
            TrainOn::Completion | TrainOn::Assistant => true,
        };
        if !masked || spec.method.needs().unit != Unit::Text {
            return 1.0;
        }
        let rates = Rates::of(facts, spec.data.tokenizer.entry().id);
        let room = match too_long(&spec.data, Unit::Text, facts.kind) {
            TooLong::Truncate => spec.model.seq_len as f64,
            _ => f64::MAX,
        };
        let read = facts.sampled.iter().filter_map(|row| {
            let [sequence, ..] = row.read_by(Unit::Text) else {
                return None;
            };
            let (counted, all) = (rates.supervised(row.supervised()), rates.tokens(sequence));
            // What is cut off is the end of the answer.
            let cut = (all - room).max(0.0);
            Some(((counted - cut).max(0.0), all - cut))
        });
        let (counted, all) = read.fold((0.0, 0.0), |(a, b), (c, d)| (a + c, b + d));
        match all > 0.0 {
            true => (counted / all).min(1.0),
            false => 1.0,
        }
    }

    /// Tokens of one sequence, the mean; `None` where there are no rows.
    pub fn sequence_tokens(facts: &DataFacts, tokenizer: &str, unit: Unit) -> Option<f64> {
        let lengths = Lengths::of(facts, tokenizer, unit);
        let each = facts.rows.filter(|n| *n > 0)? as f64 * lengths.examples;
        let all = tokens(facts, tokenizer)? * lengths.share;
        (each > 0.0).then(|| all / (each * unit.sequences() as f64))
    }

    /// What becomes of rows that do not fit the context, where they usually do not: `None` where the mean one fits, or where
    /// what is too long goes on in further rows.
    pub fn too_long_words(facts: &DataFacts, spec: &RunSpec) -> Option<String> {
        let (tokenizer, unit) = (spec.data.tokenizer.entry().id, spec.method.needs().unit);
        let row = Pass::sequence_tokens(facts, tokenizer, unit)?;
        let lengths = Lengths::of(facts, tokenizer, unit);
        let seq_len = spec.model.seq_len as f64;
        if unit == Unit::Prompt && row <= seq_len {
            let longest = spec.longest_prompt() as f64;
            return (row > longest).then(|| {
                format!(
                    "prompts have about {} tokens on average: about {} of them leave fewer than rollout.max_new_tokens={} tokens for a completion",
                    grouped(row as u64),
                    percent(lengths.longer(longest, row), 0),
                    grouped(spec.rollout.max_new_tokens as u64),
                )
            });
        }
        if row <= seq_len {
            return None;
        }
        let leaves = match too_long(&spec.data, unit, facts.kind) {
            TooLong::Split => return None,
            TooLong::Drop => {
                let longer = lengths.longer(seq_len, row);
                format!("about {} of them are dropped", percent(longer, 0))
            }
            TooLong::Truncate | TooLong::TruncateStart => {
                let cut = lengths.beyond(seq_len, row);
                format!("about {} of their tokens are cut off", percent(cut, 0))
            }
        };
        Some(format!(
            "rows have about {} tokens on average, and model.seq_len holds {}: {leaves}",
            grouped(row as u64),
            grouped(spec.model.seq_len as u64)
        ))
    }

    /// Micro-batches of so many rows.
    pub fn micro_steps(&self, batch_size: usize) -> f64 {
        let steps = self.rows / batch_size as f64;
        match self.packing {
            Packing::Padded => steps.ceil().max(1.0),
            _ => steps.max(f64::MIN_POSITIVE),
        }
    }

    /// Mean lengths of its sequences, where each has a row of its own.
    pub fn row_lengths(&self, sequences: usize, seq_len: usize) -> Option<Rows> {
        let padded = self.packing == Packing::Padded && self.rows > 0.0;
        padded.then(|| {
            let longest = seq_len as f64;
            let tokens = (self.tokens / (self.rows * sequences as f64)).clamp(1.0, longest);
            let places = Rows::padded(tokens).min(longest);
            Rows { tokens, places }
        })
    }

    /// The share of the places of packed rows that its tokens fill.
    pub fn filled(&self, seq_len: usize) -> Option<f64> {
        let packed = self.packing == Packing::Packed && self.rows > 0.0;
        packed.then(|| (self.tokens / (self.rows * seq_len as f64)).min(1.0))
    }

    /// Tokens of its rows, padding and all sequences of an example included; `None` where there is no padding.
    pub fn padded_tokens(&self, sequences: usize, seq_len: usize) -> Option<u64> {
        let padded = self.packing != Packing::Stream;
        padded.then(|| (self.micro_steps(1) * (sequences * seq_len) as f64) as u64)
    }
}

/// What the sample says of the sequences that a method reads.
struct Lengths {
    /// In tokens.
    tokens: Vec<f64>,
    /// Their part of the tokens of all sequences.
    share: f64,
    /// Examples of a row, the mean.
    examples: f64,
}

impl Lengths {
    fn of(facts: &DataFacts, tokenizer: &str, unit: Unit) -> Lengths {
        let rates = Rates::of(facts, tokenizer);
        let rows = &facts.sampled;
        let all = rows.iter().flat_map(|row| row.sequences());
        let all: f64 = all.map(|size| rates.tokens(size)).sum();
        let read = rows.iter().flat_map(|row| row.read_by(unit));
        let tokens: Vec<f64> = read.map(|size| rates.tokens(size)).collect();
        let share = match all > 0.0 {
            true => tokens.iter().sum::<f64>() / all,
            false => 1.0,
        };
        let examples = match rows.is_empty() {
            true => 1.0,
            false => tokens.len() as f64 / unit.sequences() as f64 / rows.len() as f64,
        };
        Lengths {
            tokens,
            share,
            examples,
        }
    }

    /// The sequences, or the mean one of data without a sample.
    fn or_mean(&self, mean: f64) -> Vec<f64> {
        match self.tokens.is_empty() {
            true => vec![mean],
            false => self.tokens.clone(),
        }
    }

    /// The part of the sequences that is longer than `room` tokens.
    fn longer(&self, room: f64, mean: f64) -> f64 {
        let all = self.or_mean(mean);
        all.iter().filter(|tokens| **tokens > room).count() as f64 / all.len() as f64
    }

    /// The part of the tokens that rows of `seq_len` leave, by what becomes of sequences that are longer.
    fn kept(&self, too_long: TooLong, seq_len: usize) -> f64 {
        let room = seq_len as f64;
        let all: f64 = self.tokens.iter().sum();
        let kept = match too_long {
            TooLong::Split => return 1.0,
            _ if all <= 0.0 => return 1.0,
            TooLong::Truncate | TooLong::TruncateStart => 1.0 - self.beyond(room, room),
            TooLong::Drop => {
                let whole = self.tokens.iter().filter(|tokens| **tokens <= room);
                whole.sum::<f64>() / all
            }
        };
        // A few rows were looked at: others fit.
        kept.max(1e-3)
    }

    /// The part of the tokens that lies beyond `room` tokens of their sequences.
    fn beyond(&self, room: f64, mean: f64) -> f64 {
        let all = self.or_mean(mean);
        let beyond: f64 = all.iter().map(|tokens| (tokens - room).max(0.0)).sum();
        beyond / all.iter().sum::<f64>().max(1.0)
    }

    /// Rows of `seq_len` tokens that hold so many sequences: each goes where it fits best, the longest first. One that is longer
    /// than a row is cut to it.
    fn packed(&self, sequences: f64, seq_len: usize) -> f64 {
        let n = (sequences.ceil() as usize).clamp(1, PACKED);
        let room = seq_len as f64;
        let mut lengths: Vec<f64> = self.tokens.iter().cycle().take(n).copied().collect();
        lengths.sort_by(|a, b| b.total_cmp(a));
        let mut free: Vec<f64> = Vec::new();
        for length in lengths.iter().map(|length| length.min(room)) {
            let fits = free.iter_mut().filter(|left| **left >= length);
            match fits.min_by(|a, b| a.total_cmp(b)) {
                Some(left) => *left -= length,
                None => free.push(room - length),
            }
        }
        free.len() as f64 * sequences / n as f64
    }
}

/// What a run does with sequences that are longer than a row.
fn too_long(data: &DataConfig, unit: Unit, kind: DataKind) -> TooLong {
    data.too_long.or(match unit {
        Unit::Text if kind == DataKind::Text => TooLong::Split,
        Unit::Text | Unit::Pair | Unit::Judged => TooLong::Truncate,
        Unit::Prompt | Unit::Ranked => TooLong::Drop,
    })
}

/// The part of the data that is not held out.
fn trained_share(facts: &DataFacts, data: &DataConfig) -> f64 {
    let share = data.val_share().unwrap_or(0.0);
    // Of a few texts the last tokens are held out.
    let rows = facts.rows.filter(|_| facts.kind != DataKind::Text);
    let Some(rows) = rows.or(facts.rows.filter(|_| data.val_rows.is_some())) else {
        return 1.0 - share;
    };
    let most = rows.saturating_sub(1).max(1);
    let held_out = match data.val_rows.filter(|_| data.val_path.is_none()) {
        Some(n) => n.min(most) as f64,
        None if share > 0.0 && rows < FEW => (rows as f64 * share).round().clamp(1.0, most as f64),
        None => rows as f64 * share,
    };
    (1.0 - held_out / rows.max(1) as f64).max(0.0)
}
