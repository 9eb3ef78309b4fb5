//! Documents of one or several sources as batches: which source a row comes from, which of its documents are in it, and the
//! row itself. Every batch is a function of the seed and its index.

mod portion;

pub(crate) use portion::{Layouting, Portion};

use super::mix::{Mixture, Wanted};
use super::pack::Packing;
use super::pack::packed::Draw;
use super::pack::padded;
use super::pack::pieces::Piece;
use super::pack::stream::Stream;
use super::permute::Permutation;
use super::{Batch, Column, LABEL, MARGIN, Origin, Unit};
use crate::base::rng::{self, Rng};
use portion::Layout;
use std::collections::HashSet;

/// Both splits of all sources.
#[derive(Debug)]
pub(crate) struct Documents {
    pub train: Vec<Portion>,
    pub val: Vec<Portion>,
    pub stages: Vec<Wanted>,
    /// Passes over each source in one over all, where weights count passes; none where they are shares of the tokens, and one
    /// pass over all reads as many rows as there are.
    pub passes: Option<Vec<f64>>,
    pub how: Layouting,
    /// Mean bytes of text per prediction of the validation split, if all tokens are supervised.
    pub bytes_per_token: Option<f64>,
}

impl Documents {
    /// Predictions of one pass over every source.
    pub fn epoch_tokens(&self) -> u64 {
        self.train.iter().map(|p| p.tokens).sum()
    }

    pub fn val_rows(&self) -> u64 {
        self.rows(true)
    }

    /// Rows of a split; of examples with several sequences, the examples.
    pub fn rows(&self, held_out: bool) -> u64 {
        self.split(held_out).iter().map(Portion::rows).sum()
    }

    /// Numbers of at most `limit` rows of the validation split: of every source its first ones in the file, as many as its share
    /// of the split, longest first where rows are padded.
    pub fn first_val_rows(&self, limit: u64) -> Vec<u64> {
        let all = self.val_rows();
        let limit = limit.min(all);
        let (mut rows, mut before) = (Vec::new(), 0);
        for portion in &self.val {
            let end = before + portion.rows();
            // The sum of the shares is `limit`, whatever is rounded.
            let until = |row: u64| (row as u128 * limit as u128 / all.max(1) as u128) as u64;
            let wanted = until(end) - until(before);
            rows.extend(
                portion
                    .first_rows(wanted)
                    .into_iter()
                    .map(|row| before + row),
            );
            before = end;
        }
        rows
    }

    fn split(&self, held_out: bool) -> &[Portion] {
        match held_out {
            true => &self.val,
            false => &self.train,
        }
    }

    /// Share of the places of training rows that hold tokens; the rest is padding.
    pub fn filled(&self) -> f64 {
        let tokens: f64 = self.train.iter().map(|p| p.tokens as f64).sum();
        let places = self
            .train
            .iter()
            .map(|p| p.tokens as f64 / p.filled(self.how.seq_len).max(1e-9));
        tokens / places.sum::<f64>().max(1.0)
    }

    /// Lets the weights of every stage count passes over a source instead of shares of the tokens.
    pub fn concatenate(&mut self) {
        self.passes = self.stages.last().map(|stage| stage.weights.clone());
        for stage in &mut self.stages {
            for (weight, portion) in stage.weights.iter_mut().zip(&self.train) {
                *weight *= portion.tokens as f64;
            }
        }
    }

    /// Shares of draws over the run.
    fn mixture(&self, batch_size: usize) -> Mixture {
        let tokens = self
            .train
            .iter()
            .map(|p| p.tokens as f64 / p.draws(batch_size).max(1) as f64);
        Mixture::new(&self.stages, &tokens.collect::<Vec<_>>())
    }

    /// Micro-batches of so many rows in one pass over all sources.
    pub fn micro_steps_per_epoch(&self, batch_size: usize) -> f64 {
        let draws = self.train.iter().map(|p| p.draws(batch_size) as f64);
        let draws: f64 = match &self.passes {
            Some(passes) => draws
                .zip(passes)
                .map(|(draws, passes)| draws * passes)
                .sum(),
            None => draws.sum(),
        };
        match self.how.packing {
            Packing::Padded => draws,
            _ => draws / batch_size as f64,
        }
    }

    /// Passes over each source after `micro_steps` micro-batches.
    pub fn epochs(&self, seed: u64, micro_steps: u64, batch_size: usize) -> Vec<f64> {
        let mixture = self.mixture(batch_size);
        let draws = match self.how.packing {
            Packing::Padded => micro_steps,
            _ => micro_steps * batch_size as u64,
        };
        let passes = self.train.iter().enumerate().map(|(source, portion)| {
            mixture.count(source, draws, seed) as f64 / portion.draws(batch_size).max(1) as f64
        });
        passes.collect()
    }

    /// Tokens that `micro_steps` micro-batches hold, and the places of their rows: a row is as wide as its batch's longest one.
    pub fn read(&self, seed: u64, micro_steps: u64, batch_size: usize) -> (f64, f64) {
        let passes = self.epochs(seed, micro_steps, batch_size).into_iter();
        let mut read = (0.0, 0.0);
        for (portion, passes) in self.train.iter().zip(passes) {
            let places = self.places(portion, batch_size);
            // Windows of a stream are full, wherever it ends.
            let tokens = match portion.layout {
                Layout::Stream(_) => places,
                Layout::Packed(..) | Layout::Padded(..) => portion.tokens,
            };
            read.0 += passes * tokens as f64;
            read.1 += passes * places as f64;
        }
        read
    }

    /// Places of all rows of one pass over a source, in batches as an epoch has them, but for the order within lengths.
    fn places(&self, portion: &Portion, batch_size: usize) -> u64 {
        let Layout::Padded(pieces, padded) = &portion.layout else {
            return portion.rows() * self.how.seq_len as u64;
        };
        // A prompt without its answer, which is yet to be written.
        let sequences = self.how.unit.sequences();
        let longest = |place: usize| {
            let example = self.example(pieces, padded.sorted(place));
            example.map(|piece| piece.places()).max().unwrap_or(1)
        };
        let batch_size = batch_size.max(1);
        let batches = (0..padded.batches(batch_size)).map(|index| {
            let batch = padded.places(index, batch_size);
            let rows = batch.len() * sequences;
            let widest = batch.map(longest).max().unwrap_or(1);
            (rows * padded::width(widest, self.how.seq_len, padded::STEP)) as u64
        });
        batches.sum()
    }

    pub fn fill_train(&self, batch: &mut Batch, seed: u64, micro_step: u64, batch_size: usize) {
        self.begin(batch, self.train.len());
        let mixture = self.mixture(batch_size);
        if self.how.packing == Packing::Padded {
            let (source, index) = mixture.pick(micro_step, seed);
            return self.fill_padded(batch, source, index, (seed, batch_size));
        }
        for row in 0..batch_size as u64 {
            let (source, index) = mixture.pick(micro_step * batch_size as u64 + row, seed);
            self.train_row(batch, source, index, seed);
        }
    }

    fn fill_padded(
        &self,
        batch: &mut Batch,
        source: usize,
        index: u64,
        (seed, batch_size): (u64, usize),
    ) {
        let portion = &self.train[source];
        let Layout::Padded(pieces, padded) = &portion.layout else {
            return;
        };
        let draws = portion.draws(batch_size).max(1);
        let draw = Draw {
            seed,
            epoch: index / draws,
            source: source as u32,
        };
        let drawn = padded.batch((index % draws) as usize, batch_size, draw);
        let drawn: Vec<usize> = drawn.collect();
        for number in &drawn {
            self.refer(batch, portion, pieces, *number);
            self.label(batch, portion, pieces, *number);
        }
        let drawn = drawn.into_iter().flat_map(|i| self.example(pieces, i));
        let drawn: Vec<Piece> = drawn.collect();
        let longest = drawn.iter().map(Piece::places).max().unwrap_or(1);
        let width = padded::width(longest, self.how.seq_len, padded::STEP);
        let from = (false, source, portion);
        for piece in drawn {
            pack_row(batch, from, std::iter::once(piece), width);
        }
    }

    fn train_row(&self, batch: &mut Batch, source: usize, index: u64, seed: u64) {
        let portion = &self.train[source];
        match &portion.layout {
            Layout::Stream(stream) => {
                let start = stream.start(self.how.order, index, seed, source as u32);
                self.window(batch, (source, portion), stream, start);
            }
            Layout::Packed(pieces, packed) => {
                let rows = packed.rows().max(1) as u64;
                let draw = Draw {
                    seed,
                    epoch: index / rows,
                    source: source as u32,
                };
                let row = packed.row((index % rows) as usize, draw);
                let from = (false, source, portion);
                pack_row(batch, from, row.map(|i| pieces[i]), self.how.seq_len);
            }
            Layout::Padded(..) => {}
        }
    }

    /// Rows of the validation split by number; those beyond the end are skipped.
    pub fn fill_val(&self, batch: &mut Batch, rows: impl Iterator<Item = u64>) {
        self.fill_rows(batch, true, rows);
    }

    /// Whether a chat template wrote a row of the validation split; false beyond the end.
    pub fn is_val_row_templated(&self, row: u64) -> bool {
        row_of(&self.val, row).is_some_and(|(source, _)| self.val[source].templated)
    }

    /// Rows of a split by number, whatever the seed; those beyond the end are skipped.
    pub fn fill_rows(&self, batch: &mut Batch, held_out: bool, rows: impl Iterator<Item = u64>) {
        let split = self.split(held_out);
        self.begin(batch, split.len());
        let found: Vec<(usize, u64)> = rows.filter_map(|row| row_of(split, row)).collect();
        let padded = |(source, row): &(usize, u64)| match &split[*source].layout {
            Layout::Padded(pieces, padded) => {
                let example = self.example(pieces, padded.sorted(*row as usize));
                example.map(|piece| piece.places()).max().unwrap_or(1)
            }
            _ => self.how.seq_len,
        };
        let longest = found.iter().map(padded).max().unwrap_or(self.how.seq_len);
        let width = padded::width(longest, self.how.seq_len, padded::STEP);
        for (source, row) in found {
            let portion = &split[source];
            let (row, from) = (row as usize, (held_out, source, portion));
            match &portion.layout {
                Layout::Stream(stream) => {
                    let start = (row * self.how.seq_len) as u64;
                    self.window(batch, (source, portion), stream, start);
                }
                Layout::Packed(pieces, packed) => {
                    let draw = Draw {
                        seed: 0,
                        epoch: 0,
                        source: source as u32,
                    };
                    let row = packed.row(row, draw).map(|i| pieces[i]);
                    pack_row(batch, from, row, width);
                }
                Layout::Padded(pieces, padded) => {
                    self.refer(batch, portion, pieces, padded.sorted(row));
                    self.label(batch, portion, pieces, padded.sorted(row));
                    for piece in self.example(pieces, padded.sorted(row)) {
                        pack_row(batch, from, std::iter::once(piece), width);
                    }
                }
            }
        }
    }

    /// The pieces of an example that are sequences of a batch.
    fn example<'a>(&self, pieces: &'a [Piece], number: usize) -> impl Iterator<Item = Piece> + 'a {
        let unit = self.how.unit;
        let first = number * unit.documents();
        pieces[first..first + unit.sequences()].iter().copied()
    }

    /// Writes the reference of a prompt beside the batch.
    fn refer(&self, batch: &mut Batch, portion: &Portion, pieces: &[Piece], number: usize) {
        if self.how.unit == Unit::Prompt {
            let Piece { start, len } = pieces[2 * number + 1];
            let mut bytes = Vec::new();
            portion.store.copy(start, len as usize, &mut bytes);
            let bytes: Vec<u8> = bytes.into_iter().map(|id| id as u8).collect();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            batch.references.push(text);
        }
    }

    /// Judged answers of the training split by their labels: desirable ones, and the others.
    pub fn labels(&self) -> Option<(u64, u64)> {
        if self.how.unit != Unit::Judged {
            return None;
        }
        let (mut good, mut bad) = (0, 0);
        let mut ids = Vec::new();
        for portion in &self.train {
            let Layout::Padded(pieces, _) = &portion.layout else {
                continue;
            };
            for label in pieces.iter().skip(1).step_by(self.how.unit.documents()) {
                ids.clear();
                portion
                    .store
                    .copy(label.start, label.len as usize, &mut ids);
                match ids.first() {
                    Some(0) | None => bad += 1,
                    Some(_) => good += 1,
                }
            }
        }
        Some((good, bad))
    }

    /// Prompts of the training split that take more than `tokens` before their answer, and all of them; `None` where examples
    /// are no prompts.
    pub fn longer_prompts(&self, tokens: u64) -> Option<(u64, u64)> {
        if self.how.unit != Unit::Prompt {
            return None;
        }
        let (mut longer, mut all) = (0, 0);
        let mut answered = Vec::new();
        for portion in &self.train {
            let Layout::Padded(pieces, _) = &portion.layout else {
                continue;
            };
            for prompt in pieces.iter().step_by(self.how.unit.documents()) {
                all += 1;
                // Only what is long with its answer need be read.
                if u64::from(prompt.len) <= tokens {
                    continue;
                }
                answered.clear();
                portion
                    .store
                    .mask(prompt.start, prompt.len as usize, &mut answered);
                let asked = answered.iter().take_while(|answer| !**answer).count();
                longer += u64::from(asked as u64 > tokens);
            }
        }
        Some((longer, all))
    }

    /// Writes the label of a judged answer, or the margin of a ranked pair, beside the batch.
    fn label(&self, batch: &mut Batch, portion: &Portion, pieces: &[Piece], number: usize) {
        let unit = self.how.unit;
        let name = match unit {
            Unit::Judged => LABEL,
            Unit::Ranked => MARGIN,
            _ => return,
        };
        let Piece { start, len } = pieces[(number + 1) * unit.documents() - 1];
        let mut ids = Vec::new();
        portion.store.copy(start, len as usize, &mut ids);
        let value = match ids[..] {
            [high, low] => f32::from_bits(high << 16 | low),
            _ => ids.first().map_or(0.0, |id| *id as f32),
        };
        let values = std::iter::repeat_n(value, unit.sequences());
        match batch.columns.first_mut() {
            Some(column) => column.values.extend(values),
            None => batch.columns.push(Column {
                name,
                values: values.collect(),
            }),
        }
    }

    /// Random rows of the validation split, the same ones for the same index.
    pub fn fill_eval(&self, batch: &mut Batch, seed: u64, index: u64, batch_size: usize) {
        let rows = self.val_rows();
        if rows == 0 {
            return self.begin(batch, self.val.len());
        }
        let order = Permutation::drawn(rows, &mut Rng::new(seed, rng::Stream::Eval, 0, 1));
        let first = index * batch_size as u64;
        let drawn = (first..first + batch_size as u64).map(|i| order.at(i % rows));
        self.fill_val(batch, drawn);
    }

    fn begin(&self, batch: &mut Batch, sources: usize) {
        batch.clear();
        batch.unit = self.how.unit;
        batch.seq_len = self.how.seq_len;
        batch.tokens.resize(sources, 0);
    }

    /// A window of a stream as a row.
    fn window(
        &self,
        batch: &mut Batch,
        (source, portion): (usize, &Portion),
        stream: &Stream,
        start: u64,
    ) {
        let (mut ids, mut mask) = (Vec::new(), Vec::new());
        stream.read(&portion.store, start, &mut ids, &mut mask);
        batch.inputs.extend_from_slice(&ids[..ids.len() - 1]);
        batch.targets.extend_from_slice(&ids[1..]);
        if self.masked() {
            mask.resize(ids.len(), true);
            batch.mask.extend_from_slice(&mask[1..]);
        }
        batch.tokens[source] += ids.len() as u64 - 1;
        batch.batch_size += 1;
    }

    fn masked(&self) -> bool {
        self.train.iter().chain(&self.val).any(|p| p.store.masked())
    }

    /// How many pieces of the validation split occur verbatim in the training split, and how many there are; `None`
    /// where documents run together.
    pub fn repeated(&self) -> Option<(u64, u64)> {
        let hashes = |portions: &[Portion]| {
            // Both sides of a pair: another rejected answer makes another example.
            let hash = |portion: &Portion| {
                let sides = portion.store.unit.sequences();
                let whole =
                    |hashes: &[u64]| hashes.iter().fold(0, |all: u64, h| all.rotate_left(1) ^ h);
                let hashes = portion.hashes()?;
                Some(hashes.chunks(sides).map(whole).collect::<Vec<u64>>())
            };
            portions.iter().map(hash).collect::<Option<Vec<_>>>()
        };
        let train: HashSet<u64> = hashes(&self.train)?.concat().into_iter().collect();
        let val = hashes(&self.val)?.concat();
        let found = val.iter().filter(|hash| train.contains(hash)).count();
        Some((found as u64, val.len() as u64))
    }

    /// The first tokens of a split, as far as a check needs them.
    pub fn flat(portions: &[Portion], limit: usize) -> Vec<u32> {
        let mut out = Vec::new();
        for portion in portions {
            portion.flat(limit, &mut out);
        }
        out.truncate(limit);
        out
    }
}

/// The source of a split's row, and the row's number in it.
fn row_of(split: &[Portion], mut row: u64) -> Option<(usize, u64)> {
    for (source, portion) in split.iter().enumerate() {
        if row < portion.rows() {
            return Some((source, row));
        }
        row -= portion.rows();
    }
    None
}

/// Packs pieces into one row of `width` positions; the rest is padding, neither supervised nor attended to. `held_out` names the
/// split.
fn pack_row(
    batch: &mut Batch,
    (held_out, source, portion): (bool, usize, &Portion),
    pieces: impl Iterator<Item = Piece>,
    width: usize,
) {
    let mut at = 0;
    for piece in pieces {
        let places = piece.places();
        portion.store.copy(piece.start, places, &mut batch.inputs);
        portion
            .store
            .copy(piece.start + 1, places, &mut batch.targets);
        portion.store.mask(piece.start + 1, places, &mut batch.mask);
        if batch.unit != Unit::Text {
            let sequence = batch.origins.len() as u32;
            batch.origins.push(Origin {
                held_out,
                source: source as u32,
                start: piece.start,
            });
            batch.sequence.extend(std::iter::repeat_n(sequence, places));
        }
        batch.first.extend(std::iter::repeat_n(at as u32, places));
        at += places;
    }
    batch.tokens[source] += at as u64;
    batch.first.extend(at as u32..width as u32);
    batch.filled.push(at as u32);
    let filled = batch.first.len();
    batch.inputs.resize(filled, 0);
    batch.targets.resize(filled, 0);
    batch.mask.resize(filled, false);
    if let Some(&last) = batch.sequence.last() {
        batch.sequence.resize(filled, last);
    }
    batch.seq_len = width;
    batch.batch_size += 1;
}

#[cfg(test)]
mod tests;
