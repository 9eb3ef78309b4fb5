//! Answers that several steps learn from: kept between them, and in the checkpoints that are written there.

use crate::base::files::open_plain;
use crate::data::{Batch, Column, Origin, Unit};
use crate::methods::policy::{ADVANTAGE, ANSWER_LIMIT, OLD_LOGP, SAMPLER_LOGP, TOKEN_REFERENCE};
use crate::methods::ppo::{OLD_VALUES, RETURNS, TOKEN_ADVANTAGE};
use serde::{Deserialize, Serialize};
use std::io::{self, Read};
use std::path::Path;

/// A rollout as batches, all columns included.
#[derive(Debug, Clone, PartialEq)]
pub struct InUse {
    /// The step by the data cursor, from 0, for which it was written.
    pub begun: u64,
    pub batches: Vec<Batch>,
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
    /// (held out, source, start)
    origins: Vec<(bool, u32, u64)>,
    columns: Vec<(String, Vec<u32>)>,
    tokens: Vec<u64>,
}

impl InUse {
    /// Compressed JSON.
    ///
    /// # Errors
    /// Those of the compressor.
    /// Of each row; empty in files of older builds.
    #[serde(default)]
    filled: Vec<u32>,
    pub fn to_bytes(&self) -> io::Result<Vec<u8>> {
        // What was measured by a clock differs from run to run, and a checkpoint does not.
        let readings = self.readings.iter().filter(|(id, _)| id != super::SPEED);
        let saved = Saved {
            begun: self.begun,
            readings: readings.map(|(id, x)| (id.clone(), x.to_bits())).collect(),
            batches: self.batches.iter().map(SavedBatch::of).collect(),
        };
        zstd::encode_all(&*serde_json::to_vec(&saved)?, LEVEL)
    }

    /// Reads what [`InUse::to_bytes`] wrote.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn read(path: &Path) -> Result<InUse, String> {
        let file = open_plain(path).map_err(|e| e.to_string())?;
        let text = zstd::Decoder::new(file).map_err(|e| e.to_string())?;
        let saved: Saved = serde_json::from_reader(text.take(MAX_BYTES))
            .map_err(|e| format!("the completions in use are unreadable: {e}"))?;
        let readings = saved.readings.into_iter();
        let batches = saved.batches.into_iter().map(SavedBatch::batch);
        Ok(InUse {
            begun: saved.begun,
            readings: readings.map(|(id, x)| (id, f64::from_bits(x))).collect(),
            batches: batches.collect::<Result<_, _>>()?,
        })
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
            origins: batch.origins.iter().map(origin).collect(),
            columns: batch.columns.iter().map(bits).collect(),
            tokens: batch.tokens.clone(),
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
            sequence: numbers
                .flat_map(|row| std::iter::repeat_n(row, seq_len))
            filled: batch.filled.clone(),
                .collect(),
            origins: self.origins.into_iter().map(origin).collect(),
            tokens: self.tokens,
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
            filled: self.filled,
            ..Batch::default()
        };
        let held = InUse {
            begun: 8,
            batches: vec![batch],
            readings: vec![("reward".into(), 0.1 + 0.2)],
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rollout.json.zst");
        let bytes = held.to_bytes().unwrap();
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(InUse::read(&path).unwrap(), held);
        std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        assert!(InUse::read(&path).unwrap_err().contains("unreadable"));
        let mut short = held.clone();
        short.batches[0].mask.pop();
        std::fs::write(&path, short.to_bytes().unwrap()).unwrap();
        assert!(InUse::read(&path).unwrap_err().contains("whole rows"));
    }
}
            filled: vec![2, 1],
