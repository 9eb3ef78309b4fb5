//! A rollout as the file that is stored for inspection.

use super::Rollout;
use crate::data::{Batch, Dataset};
use crate::methods::policy::TOKEN_REFERENCE;
use crate::run::rollouts::{Answer, Group, Rollout as Kept, Token};
use crate::wire::Num;

/// Answers of a file, and bytes of a prompt, at most.
const ANSWERS: usize = 1024;
const PROMPT: usize = 16 << 10;

/// The file of a rollout that `step`, counted from 1, is the first to learn from; `batches` are its rows.
pub fn file(
    step: u64,
    rollout: &Rollout,
    batches: &[Batch],
    (data, group_size): (&Dataset, usize),
) -> Kept {
    let tokenizer = &data.tokenizer;
    let size = group_size.max(1);
    let references = references(batches);
    let answer = |i: usize| {
        let written = &rollout.written[i];
        let parts = rollout.scores.iter();
        let tokens = written.tokens.iter().zip(&written.logps).enumerate();
        let token = |(at, (id, logp)): (usize, (&u32, &f32))| {
            let reference = references.get(i).and_then(|row| row.get(at));
            let ratio = reference.map(|reference| round(logp - reference));
            Token(tokenizer.decode(&[*id]), round(*logp), ratio)
        };
        Answer {
            index: (i % size) as u32,
            cut: !written.answer.ended,
            reward: Num(rollout.rewards[i]),
            rewards: parts.map(|s| (s.name.clone(), Num(s.values[i]))).collect(),
            advantage: Num(rollout.advantages.get(i).copied().unwrap_or_default()),
            tokens: tokens.map(token).collect(),
        }
    };
    let all = rollout.written.len();
    let room = (ANSWERS / size).max(1);
    let group = |first: usize| {
        let answer_of_first = &rollout.written[first].answer;
        let origin = rollout.written[first].origin;
        let place = origin.and_then(|origin| data.row_of(origin));
        Group {
            source: place.map(|(source, _)| source.into()),
            row: place.map(|(_, row)| row),
            prompt: tail(&answer_of_first.prompt),
            right: answer_of_first.reference.answer.clone(),
            answers: (first..all.min(first + size)).map(answer).collect(),
        }
    };
    Kept {
        step,
        groups: (0..all).step_by(size).take(room).map(group).collect(),
        left_out: all.div_ceil(size).saturating_sub(room) as u64,
    }
}

/// Log-probabilities of each completion's tokens under the reference; empty without one.
fn references(batches: &[Batch]) -> Vec<Vec<f32>> {
    let of_row = |(batch, row): (&Batch, usize)| {
        let places = row * batch.seq_len..(row + 1) * batch.seq_len;
        let column = batch.column(TOKEN_REFERENCE)?;
        Some(
            places
                .filter(|at| batch.mask[*at])
                .map(|at| column[at])
                .collect(),
        )
    };
    let rows = batches
        .iter()
        .flat_map(|batch| (0..batch.batch_size).map(move |row| (batch, row)));
    rows.filter_map(of_row).collect()
}

/// The end of a long prompt.
fn tail(prompt: &str) -> String {
    let mut from = prompt.len().saturating_sub(PROMPT);
    while !prompt.is_char_boundary(from) {
        from += 1;
    }
    prompt[from..].into()
}

/// Files are smaller without digits that nobody reads.
fn round(x: f32) -> f32 {
    (x * 1e4).round() / 1e4
}
