//! Completions that several steps train on: kept between them, and in checkpoints that are saved in between.

use super::batching;
use crate::base::files::open_plain;
use crate::base::rng::{Rng, Stream};
use crate::data::{Batch, Column, Origin, Unit};
use crate::methods::policy::{ADVANTAGE, ANSWER_LIMIT, OLD_LOGP, SAMPLER_LOGP, TOKEN_REFERENCE};
use crate::methods::ppo::{OLD_VALUES, RETURNS, TOKEN_ADVANTAGE};
use serde::{Deserialize, Serialize};
use std::io::{self, Read};
use std::path::Path;

/// A rollout as batches, all columns included.
#[derive(Debug, Clone, PartialEq)]
pub struct ActiveRollout {
    /// The step by the data cursor, from 0, for which it was written.
    pub begun: u64,
    pub batches: Vec<Batch>,
    /// The pass over the answers, from 0, whose order the batches are in.
    pub pass: u64,
    /// Of each row the number of its answer as it was written; empty: they are in that order.
    pub order: Vec<u32>,
    /// What every step that learns from it reports.
    pub readings: Vec<(String, f64)>,
}

/// Bounds what is read of a damaged file; about 200 million tokens of answers.
const MAX_BYTES: u64 = 16 << 30;
const LEVEL: i32 = 3;
const COLUMNS: [&str; 8] = [
    TOKEN_ADVANTAGE,
    RETURNS,
    OLD_VALUES,
    ADVANTAGE,
    ANSWER_LIMIT,
    OLD_LOGP,
    SAMPLER_LOGP,
    TOKEN_REFERENCE,
];

/// The form in files. Numbers are stored by their bits, so that a resume has the same ones.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    begun: u64,
    /// Older builds took answers in the order in which they were written.
    #[serde(default)]
    pass: u64,
    #[serde(default)]
    order: Vec<u32>,
    readings: Vec<(String, u64)>,
    batches: Vec<SavedBatch>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedBatch {
    rows: usize,
    inputs: Vec<u32>,
    targets: Vec<u32>,
    mask: Vec<u8>,
    first: Vec<u32>,
    /// Of each row; empty in files of older builds.
    #[serde(default)]
    filled: Vec<u32>,
    /// (held out, source, start)
    origins: Vec<(bool, u32, u64)>,
    columns: Vec<(String, Vec<u32>)>,
    tokens: Vec<u64>,
    /// The bits of the temperature; of older files none, which computed at 1.
    #[serde(default)]
    temperature: Option<u32>,
}

impl ActiveRollout {
    /// Compressed JSON.
    ///
    /// # Errors
    /// Those of the compressor.
    pub fn to_bytes(&self) -> io::Result<Vec<u8>> {
        // Timings differ from run to run, checkpoints must not.
        let readings = self.readings.iter().filter(|(id, _)| id != super::SPEED);
        let saved = Saved {
            begun: self.begun,
            pass: self.pass,
            order: self.order.clone(),
            readings: readings.map(|(id, x)| (id.clone(), x.to_bits())).collect(),
            batches: self.batches.iter().map(SavedBatch::of).collect(),
        };
        zstd::encode_all(&*serde_json::to_vec(&saved)?, LEVEL)
    }

    /// Reads what [`ActiveRollout::to_bytes`] wrote.
    ///
    /// # Errors
    /// The fault of the file.
    pub fn read(path: &Path) -> Result<ActiveRollout, String> {
        let file = open_plain(path).map_err(|e| e.to_string())?;
        let text = zstd::Decoder::new(file).map_err(|e| e.to_string())?;
        let saved: Saved = serde_json::from_reader(text.take(MAX_BYTES))
            .map_err(|e| format!("the completions in use are unreadable: {e}"))?;
        let readings = saved.readings.into_iter();
        let batches = saved.batches.into_iter().map(SavedBatch::batch);
        Ok(ActiveRollout {
            begun: saved.begun,
            pass: saved.pass,
            order: saved.order,
            readings: readings.map(|(id, x)| (id, f64::from_bits(x))).collect(),
            batches: batches.collect::<Result<_, _>>()?,
        })
    }
}

impl ActiveRollout {
    /// Brings the answers into the order of a pass over them, which is a function of the seed, the rollout and the pass: updates of
    /// one rollout learn from answers to many prompts each, and from others in each pass.
    pub fn reorder(&mut self, pass: u64, seed: u64, micro_batch_size: usize, seq_len: usize) {
        let n: usize = self.batches.iter().map(|batch| batch.batch_size).sum();
        let mut places: Vec<usize> = (0..n).collect();
        // Where each answer, as it was written, lies now.
        if self.order.len() == n {
            places.sort_by_key(|row| self.order[*row]);
        }
        let mut wanted: Vec<u32> = (0..n as u32).collect();
        // Lanes below belong to sampling and to the prompts that fill up.
        let lane = (1 << 31) + pass as u32;
        Rng::new(seed, Stream::Rollout, self.begun, lane).shuffle(&mut wanted);
        let from: Vec<usize> = wanted
            .iter()
            .map(|answer| places[*answer as usize])
            .collect();
        self.batches = batching::reordered(&self.batches, &from, micro_batch_size, seq_len);
        (self.order, self.pass) = (wanted, pass);
    }
}

impl SavedBatch {
    fn of(batch: &Batch) -> SavedBatch {
        let origin = |o: &Origin| (o.held_out, o.source, o.start);
        let bits = |c: &Column| {
            let values = c.values.iter().map(|x| x.to_bits());
            (c.name.to_string(), values.collect())
        };
        SavedBatch {
            rows: batch.batch_size,
            inputs: batch.inputs.clone(),
            targets: batch.targets.clone(),
            mask: batch.mask.iter().map(|c| u8::from(*c)).collect(),
            first: batch.first.clone(),
            filled: batch.filled.clone(),
            origins: batch.origins.iter().map(origin).collect(),
            columns: batch.columns.iter().map(bits).collect(),
            tokens: batch.tokens.clone(),
            temperature: batch.temperature.map(f32::to_bits),
        }
    }

    fn batch(self) -> Result<Batch, String> {
        let places = self.inputs.len();
        let same = [self.targets.len(), self.mask.len(), self.first.len()];
        if self.rows == 0 || !places.is_multiple_of(self.rows) || same != [places; 3] {
            return Err("the completions in use are not whole rows".into());
        }
        let (rows, seq_len) = (self.rows, places / self.rows);
        let column = |(name, bits): (String, Vec<u32>)| {
            let known = COLUMNS.into_iter().find(|known| **known == name);
            let name = known.filter(|_| [places, rows].contains(&bits.len()));
            let name = name.ok_or("an unknown column in the completions in use")?;
            let values = bits.into_iter().map(f32::from_bits).collect();
            Ok::<_, String>(Column { name, values })
        };
        let origin = |(held_out, source, start)| Origin {
            held_out,
            source,
            start,
        };
        let columns = self.columns.into_iter().map(column);
        let numbers = 0..rows as u32;
        Ok(Batch {
            columns: columns.collect::<Result<_, _>>()?,
            inputs: self.inputs,
            targets: self.targets,
            batch_size: rows,
            seq_len,
            unit: Unit::Prompt,
            mask: self.mask.into_iter().map(|c| c != 0).collect(),
            first: self.first,
            filled: self.filled,
            sequence: numbers
                .flat_map(|row| std::iter::repeat_n(row, seq_len))
                .collect(),
            origins: self.origins.into_iter().map(origin).collect(),
            tokens: self.tokens,
            temperature: self.temperature.map(f32::from_bits),
            ..Batch::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_gives_back_every_bit_and_a_damaged_one_says_so() {
        let batch = Batch {
            inputs: vec![1, 2, 3, 4],
            targets: vec![2, 3, 4, 5],
            batch_size: 2,
            seq_len: 2,
            unit: Unit::Prompt,
            mask: vec![false, true, false, true],
            first: vec![0, 0, 0, 1],
            filled: vec![2, 1],
            sequence: vec![0, 0, 1, 1],
            origins: vec![
                Origin {
                    held_out: false,
                    source: 1,
                    start: 7
                };
                2
            ],
            columns: vec![Column {
                name: OLD_LOGP,
                values: vec![-0.1, f32::MIN_POSITIVE, -1e-30, 0.3],
            }],
            tokens: vec![3],
            ..Batch::default()
        };
        let held = ActiveRollout {
            begun: 8,
            batches: vec![batch],
            pass: 1,
            order: vec![1, 0],
            readings: vec![("reward".into(), 0.1 + 0.2)],
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rollout.json.zst");
        let bytes = held.to_bytes().unwrap();
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(ActiveRollout::read(&path).unwrap(), held);
        std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        assert!(
            ActiveRollout::read(&path)
                .unwrap_err()
                .contains("unreadable")
        );
        let mut short = held.clone();
        short.batches[0].mask.pop();
        std::fs::write(&path, short.to_bytes().unwrap()).unwrap();
        assert!(
            ActiveRollout::read(&path)
                .unwrap_err()
                .contains("whole rows")
        );
    }

    /// Answers of unlike length in two batches; a pass that is asked for twice, or after another one, has one order.
    #[test]
    fn a_pass_has_its_own_order_of_the_same_answers() {
        let row = |id: u32, n: usize| Batch {
            inputs: vec![id; n],
            targets: vec![id; n],
            batch_size: 1,
            seq_len: n,
            unit: Unit::Prompt,
            mask: vec![true; n],
            first: vec![0; n],
            sequence: vec![0; n],
            columns: vec![
                Column {
                    name: OLD_LOGP,
                    values: vec![id as f32; n],
                },
                Column {
                    name: ADVANTAGE,
                    values: vec![id as f32],
                },
            ],
            tokens: vec![n as u64],
            ..Batch::default()
        };
        let written: Vec<Batch> = (1..=6).map(|id| row(id, 3 * id as usize)).collect();
        let all: Vec<usize> = (0..6).collect();
        let mut held = ActiveRollout {
            begun: 4,
            batches: batching::reordered(&written, &all, 2, 64),
            pass: 0,
            order: Vec::new(),
            readings: Vec::new(),
        };
        let ids = |held: &ActiveRollout| -> Vec<u32> {
            let batches = held.batches.iter();
            batches
                .flat_map(|batch| {
                    (0..2).map(|row| {
                        let at = row * batch.seq_len;
                        let n = batch.filled[row] as usize;
                        let id = batch.inputs[at];
                        assert_eq!(
                            (n, batch.column(ADVANTAGE).unwrap()[row]),
                            (3 * id as usize, id as f32)
                        );
                        let column = &batch.column(OLD_LOGP).unwrap()[at..at + batch.seq_len];
                        assert!(column[..n].iter().all(|x| *x == id as f32));
                        assert!(column[n..].iter().all(|x| *x == 0.0));
                        id
                    })
                })
                .collect()
        };
        assert_eq!(ids(&held), [1, 2, 3, 4, 5, 6]);
        assert_eq!(held.batches[0].seq_len, 8, "as wide as the longest needs");
        held.reorder(0, 7, 2, 64);
        let first = ids(&held);
        held.reorder(1, 7, 2, 64);
        let second = ids(&held);
        let mut sorted = second.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [1, 2, 3, 4, 5, 6]);
        assert!(first != second && first != sorted);
        let once = held.clone();
        held.reorder(1, 7, 2, 64);
        assert_eq!(held, once);
        held.reorder(0, 7, 2, 64);
        assert_eq!(ids(&held), first);
    }
}
