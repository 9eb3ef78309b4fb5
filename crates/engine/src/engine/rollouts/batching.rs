//! Completions as rows of batches: prompt and completion in one row each, the completion's tokens supervised.

use super::write::Written;
use crate::data::{Batch, Column, Unit, width};
use crate::methods::policy::{ANSWER_LIMIT, OLD_LOGP, SAMPLER_LOGP, TOKEN_REFERENCE};
use crate::metrics::Readings;
use crate::spec::RunSpec;
use crate::wire::id;

/// Widths of rows are multiples of this: answers are short.
const STEP: usize = 8;

/// The micro-batches of a step, in the order of the answers.
pub fn batches(written: &[Written], spec: &RunSpec, seq_len: usize) -> Vec<Batch> {
    let parts = written.chunks(spec.train.micro_batch_size);
    parts.map(|part| batch(part, spec, seq_len)).collect()
}

/// Answers as one micro-batch.
pub fn batch(written: &[Written], spec: &RunSpec, seq_len: usize) -> Batch {
    let places = |w: &Written| w.prompt.len() + w.tokens.len() - 1;
    let longest = written.iter().map(places).max().unwrap_or(1);
    let width = width(longest, seq_len, STEP);
    let mut batch = Batch {
        unit: Unit::Prompt,
        batch_size: written.len(),
        seq_len: width,
        temperature: Some(spec.rollout.temperature),
        ..Batch::default()
    };
    let (mut sampler, mut tokens) = (Vec::new(), 0);
    for (row, w) in written.iter().enumerate() {
        let ids: Vec<u32> = w.prompt.iter().chain(&w.tokens).copied().collect();
        let (n, begun, filled) = (places(w), w.prompt.len() - 1, row * width);
        let learns = w.answer.ended || !spec.rollout.mask_truncated;
        batch.inputs.extend_from_slice(&ids[..n]);
        batch.targets.extend_from_slice(&ids[1..]);
        batch.mask.extend((0..n).map(|at| learns && at >= begun));
        batch.first.extend(std::iter::repeat_n(0, n));
        batch.first.extend(n as u32..width as u32);
        batch.filled.push(n as u32);
        batch
            .sequence
            .extend(std::iter::repeat_n(row as u32, width));
        batch.origins.extend(w.origin);
        sampler.extend(std::iter::repeat_n(0.0, begun));
        sampler.extend_from_slice(&w.logps);
        for part in [&mut batch.inputs, &mut batch.targets] {
            part.resize(filled + width, 0);
        }
        batch.mask.resize(filled + width, false);
        sampler.resize(filled + width, 0.0);
        tokens += n as u64;
    }
    batch.tokens = vec![tokens];
    put(&mut batch, SAMPLER_LOGP, sampler);
    let limit = spec.rollout.max_new_tokens as f32;
    put(&mut batch, ANSWER_LIMIT, vec![limit; written.len()]);
    batch
}

/// The same answers in another order: row `i` becomes the one that `from[i]` counts over all batches. A batch takes as many as
/// before, and is as wide as its longest needs.
pub fn reordered(
    batches: &[Batch],
    from: &[usize],
    micro_batch_size: usize,
    seq_len: usize,
) -> Vec<Batch> {
    let rows = |batch: &Batch| 0..batch.batch_size;
    let places: Vec<(&Batch, usize)> = batches
        .iter()
        .flat_map(|batch| rows(batch).map(move |row| (batch, row)))
        .collect();
    let chosen: Vec<(&Batch, usize)> = from.iter().map(|at| places[*at]).collect();
    let parts = chosen.chunks(micro_batch_size.max(1));
    parts.map(|part| joined(part, seq_len)).collect()
}

/// A batch of rows of others, with all their columns.
fn joined(rows: &[(&Batch, usize)], seq_len: usize) -> Batch {
    let longest = rows.iter().map(|(batch, row)| filled(batch, *row)).max();
    let width = width(longest.unwrap_or(1), seq_len, STEP);
    let mut joined = Batch {
        unit: Unit::Prompt,
        batch_size: rows.len(),
        seq_len: width,
        temperature: rows.first().and_then(|(batch, _)| batch.temperature),
        ..Batch::default()
    };
    let mut tokens = 0;
    for (number, (batch, row)) in rows.iter().enumerate() {
        let (n, end) = (filled(batch, *row), (number + 1) * width);
        let own = row * batch.seq_len..row * batch.seq_len + n;
        joined.inputs.extend_from_slice(&batch.inputs[own.clone()]);
        joined
            .targets
            .extend_from_slice(&batch.targets[own.clone()]);
        joined.mask.extend_from_slice(&batch.mask[own.clone()]);
        joined.inputs.resize(end, 0);
        joined.targets.resize(end, 0);
        joined.mask.resize(end, false);
        joined.first.extend(std::iter::repeat_n(0, n));
        joined.first.extend(n as u32..width as u32);
        joined.filled.push(n as u32);
        joined.sequence.resize(end, number as u32);
        joined.origins.extend(batch.origins.get(*row));
        tokens += n as u64;
        for column in &batch.columns {
            let by_token = column.values.len() == batch.inputs.len();
            let (from, end) = match by_token {
                true => (own.clone(), end),
                false => (*row..row + 1, number + 1),
            };
            let at = joined.columns.iter().position(|c| c.name == column.name);
            let at = at.unwrap_or_else(|| {
                put(&mut joined, column.name, Vec::new());
                joined.columns.len() - 1
            });
            let values = &mut joined.columns[at].values;
            values.extend_from_slice(&column.values[from]);
            values.resize(end, 0.0);
        }
    }
    joined.tokens = vec![tokens];
    joined
}

/// Places of a row that are not padding, each token of which is a document of its own.
fn filled(batch: &Batch, row: usize) -> usize {
    let row = &batch.first[row * batch.seq_len..(row + 1) * batch.seq_len];
    row.iter().take_while(|first| **first == 0).count()
}

/// Sets a column of a batch.
pub fn put(batch: &mut Batch, name: &'static str, values: Vec<f32>) {
    batch.columns.push(Column { name, values });
}

/// The mean of a column over each answer's tokens; `None` where the batches have no such column.
pub fn means(batches: &[Batch], name: &str) -> Option<Vec<f64>> {
    let mut all = Vec::new();
    for batch in batches {
        let column = batch.column(name)?;
        for row in 0..batch.batch_size {
            let places = row * batch.seq_len..(row + 1) * batch.seq_len;
            let own = places.filter(|at| batch.mask[*at]);
            let own: Vec<f64> = own.map(|at| f64::from(column[at])).collect();
            all.push(own.iter().sum::<f64>() / own.len().max(1) as f64);
        }
    }
    Some(all)
}

/// Removes the log-probabilities of the policy that answered.
pub fn drop_old_policy(batch: &mut Batch) {
    batch.columns.retain(|column| column.name != OLD_LOGP);
}

/// Takes β · Σ (logp − logp_ref) over an answer's tokens from its reward. Returns the mean distance of a token, as TRL's RLOO
/// logs it; `None` without a reference.
pub fn subtract_kl(batches: &[Batch], beta: f64, rewards: &mut [f64]) -> Option<f64> {
    let mut rewards = rewards.iter_mut();
    let mut all = Readings::default();
    for batch in batches {
        let (Some(own), Some(reference)) = (batch.column(OLD_LOGP), batch.column(TOKEN_REFERENCE))
        else {
            return None;
        };
        for row in 0..batch.batch_size {
            let places = row * batch.seq_len..(row + 1) * batch.seq_len;
            let apart = places.filter(|at| batch.mask[*at]);
            let apart: Vec<f64> = apart.map(|at| f64::from(own[at] - reference[at])).collect();
            let distance: f64 = apart.iter().sum();
            all.add(id::KL, distance, apart.len() as f64);
            if let Some(reward) = rewards.next() {
                *reward -= beta * distance;
            }
        }
    }
    all.mean(id::KL)
}
