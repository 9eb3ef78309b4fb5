//! The first documents of a run as they are in its batches, for checks of rows.

use super::Subject;
use crate::data::Batch;

/// Documents that a check looks at.
pub const SAMPLES: usize = 64;

/// Micro-batches that are drawn at most to find so many.
const MAX_BATCHES: u64 = 64;

/// One document, or the part of one that is in a row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sample {
    /// The first token, and every predicted one.
    pub ids: Vec<u32>,
    /// The predicted tokens that count in the loss.
    pub supervised: Vec<u32>,
}

/// The first documents of the run of which something is supervised.
pub fn first(subject: &Subject<'_>) -> Vec<Sample> {
    let mut samples = Vec::new();
    let rows = subject.spec.train.micro_batch_size;
    for micro_step in 0..MAX_BATCHES {
        samples.extend(cut(&subject.batch(micro_step, rows)));
        if samples.len() >= SAMPLES {
            break;
        }
    }
    samples.truncate(SAMPLES);
    samples
}

/// The documents of a batch; padding, which has no supervised token, does not count.
pub fn cut(batch: &Batch) -> Vec<Sample> {
    let mut samples: Vec<Sample> = Vec::new();
    let mut begun = None;
    for (at, (input, target)) in batch.inputs.iter().zip(&batch.targets).enumerate() {
        let row = at / batch.seq_len.max(1);
        let document = (row, batch.first.get(at).copied().unwrap_or_default());
        if begun != Some(document) {
            begun = Some(document);
            samples.push(Sample {
                ids: vec![*input],
                supervised: Vec::new(),
            });
        }
        let Some(sample) = samples.last_mut() else {
            continue;
        };
        sample.ids.push(*target);
        if batch.mask.get(at).is_none_or(|counts| *counts) {
            sample.supervised.push(*target);
        }
    }
    samples.retain(|sample| !sample.supervised.is_empty());
    samples
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_told_apart_and_padding_is_none() {
        let batch = Batch {
            inputs: vec![1, 2, 7, 0, 5, 6, 7, 8],
            targets: vec![2, 3, 8, 0, 6, 7, 8, 9],
            batch_size: 2,
            seq_len: 4,
            mask: vec![false, true, true, false, true, true, false, true],
            first: vec![0, 0, 2, 3, 0, 0, 0, 0],
            ..Batch::default()
        };
        let sample = |ids: &[u32], supervised: &[u32]| Sample {
            ids: ids.to_vec(),
            supervised: supervised.to_vec(),
        };
        assert_eq!(
            cut(&batch),
            [
                sample(&[1, 2, 3], &[3]),
                sample(&[7, 8], &[8]),
                sample(&[5, 6, 7, 8, 9], &[6, 7, 9]),
            ]
        );
        let stream = Batch {
            inputs: vec![1, 2],
            targets: vec![2, 3],
            batch_size: 1,
            seq_len: 2,
            ..Batch::default()
        };
        assert_eq!(cut(&stream), [sample(&[1, 2, 3], &[2, 3])]);
    }
}
