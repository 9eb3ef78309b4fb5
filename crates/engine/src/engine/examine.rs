//! Held-out examples as the method sees them, with the model's probabilities: for inspection.

use super::EngineError;
use super::context::RunContext;
use crate::data::{Batch, LABEL, Tokenizer, Unit};
use crate::methods::REFERENCE_LOGP;
use crate::wire::{Event, ExaminedExample, ExaminedSequence, Num};

/// Examples that are shown.
const EXAMPLES: usize = 6;
/// Characters that are kept of a prompt's end and of an answer's beginning.
const CHARACTERS: usize = 240;

impl RunContext<'_, '_> {
    /// Scores the first held-out examples, in batches no larger than those of evaluations: they must not need more memory.
    pub(super) fn examine(&mut self) -> Result<Event, EngineError> {
        let size = self.spec.train.micro_batch_size.min(EXAMPLES);
        let held_out = self.data.val_windows().min(EXAMPLES);
        let mut examples = Vec::new();
        for first in (0..held_out).step_by(size) {
            let mut batch = self.data.val_batch(first, size.min(held_out - first));
            self.state.models.add_reference(&mut batch)?;
            let out = self.state.models.score(&batch)?;
            let logp: Vec<f32> = out.logp.flatten_all()?.to_vec1()?;
            let sequences = match batch.unit {
                Unit::Ranked => ranked(&batch, &logp, &self.data.tokenizer),
                _ => sequences(&batch, &logp, &self.data.tokenizer),
            };
            let found = sequences.chunks(batch.unit.sequences());
            examples.extend(found.map(|sequences| ExaminedExample {
                sequences: sequences.to_vec(),
            }));
        }
        let step = self.step();
        Ok(Event::Examined { step, examples })
    }
}

/// The first sequence of each row, with the log-probability of its supervised tokens.
fn sequences(batch: &Batch, logp: &[f32], tokenizer: &Tokenizer) -> Vec<ExaminedSequence> {
    let reference = batch.column(REFERENCE_LOGP);
    let row = |row: usize| {
        let places = row * batch.seq_len..(row + 1) * batch.seq_len;
        let one = |at: &usize| batch.first.get(*at).is_none_or(|first| *first == 0);
        let (mut prompt, mut answer) = (vec![batch.inputs[places.start]], Vec::new());
        let mut logps = Vec::new();
        for at in places.take_while(one) {
            match batch.mask.get(at).is_none_or(|counts| *counts) {
                true => {
                    answer.push(batch.targets[at]);
                    logps.push(logp[at]);
                }
                false if answer.is_empty() => prompt.push(batch.targets[at]),
                // Padding, or what follows the answer.
                false => {}
            }
        }
        ExaminedSequence {
            label: label(batch, row).into(),
            prompt: last(&tokenizer.decode(&prompt)),
            answer: tokenizer.decode(&answer).chars().take(CHARACTERS).collect(),
            tokens: answer.len() as u32,
            thought: None,
            pieces: pieces(&answer, &logps, tokenizer),
            logp: Num(logps.iter().map(|x| f64::from(*x)).sum()),
            right: None,
            reward: None,
            rewards: Vec::new(),
            advantage: None,
            reference_logp: reference.and_then(|r| r.get(row)).map(|x| Num((*x).into())),
        }
    };
    (0..batch.batch_size).map(row).collect()
}

/// The tokens that the beginning of an answer consists of. One that ends within a character is empty, and the one that ends
/// it has it whole.
fn pieces(answer: &[u32], logps: &[f32], tokenizer: &Tokenizer) -> Vec<(String, Num)> {
    let (mut pieces, mut text) = (Vec::new(), String::new());
    for (at, logp) in logps.iter().enumerate() {
        if text.chars().count() >= CHARACTERS {
            break;
        }
        let now = tokenizer.decode(&answer[..=at]);
        let whole = now.trim_end_matches(char::REPLACEMENT_CHARACTER);
        let new = whole.strip_prefix(&*text).unwrap_or_default();
        pieces.push((new.to_string(), Num(f64::from(*logp))));
        text.push_str(new);
    }
    pieces
}

/// Both sides of ranked pairs with their scores: their common prefix is the prompt.
fn ranked(batch: &Batch, scores: &[f32], tokenizer: &Tokenizer) -> Vec<ExaminedSequence> {
    let filled = |row: usize| {
        let places = row * batch.seq_len..(row + 1) * batch.seq_len;
        places.filter(|at| batch.first.get(*at).is_none_or(|first| *first == 0))
    };
    let ids = |row| filled(row).map(|at| batch.inputs[at]).collect::<Vec<u32>>();
    let row = |row: usize| {
        let (own, other) = (ids(row), ids(row ^ 1));
        let shared = own.iter().zip(&other).take_while(|(a, b)| a == b).count();
        let (prompt, answer) = own.split_at(shared);
        let scored = filled(row).find(|at| batch.mask.get(*at).is_some_and(|counts| *counts));
        ExaminedSequence {
            label: label(batch, row).into(),
            prompt: last(&tokenizer.decode(prompt)),
            answer: tokenizer.decode(answer).chars().take(CHARACTERS).collect(),
            tokens: answer.len() as u32,
            thought: None,
            pieces: Vec::new(),
            logp: Num(0.0),
            right: None,
            reward: scored.map(|at| Num(scores[at].into())),
            rewards: Vec::new(),
            advantage: None,
            reference_logp: None,
        }
    };
    (0..batch.batch_size).map(row).collect()
}

/// What the example of a row is in its batch.
fn label(batch: &Batch, row: usize) -> &'static str {
    answer(batch, row).unwrap_or(match batch.unit {
        Unit::Prompt => "answer",
        _ => "text",
    })
}

/// Which answer of a pair a row is, or how a judged one was judged.
pub(super) fn answer(batch: &Batch, row: usize) -> Option<&'static str> {
    let desirable = batch.column(LABEL).and_then(|labels| labels.get(row));
    match batch.unit {
        Unit::Text | Unit::Prompt => None,
        Unit::Pair | Unit::Ranked if row.is_multiple_of(2) => Some("chosen"),
        Unit::Pair | Unit::Ranked => Some("rejected"),
        Unit::Judged if desirable == Some(&1.0) => Some("desirable"),
        Unit::Judged => Some("undesirable"),
    }
}

fn last(text: &str) -> String {
    let skip = text.chars().count().saturating_sub(CHARACTERS);
    text.chars().skip(skip).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKENIZER: &str = include_str!("../../../../tests/fixtures/chat/tokenizer.json");

    #[test]
    fn pieces_join_to_the_answer_and_no_character_is_torn() {
        let tokenizer = Tokenizer::from_json(TOKENIZER).unwrap();
        let text = "To be or not: é 漢字\n";
        let ids = tokenizer.encode(text).unwrap();
        let logps: Vec<f32> = (0..ids.len()).map(|at| -(at as f32)).collect();
        let found = pieces(&ids, &logps, &tokenizer);
        let values: Vec<f32> = found.iter().map(|(_, logp)| logp.0 as f32).collect();
        assert_eq!(values, logps);
        let joined: String = found.iter().map(|(piece, _)| piece.as_str()).collect();
        assert_eq!(joined, text);
        let has = |piece: &str| found.iter().any(|(own, _)| own.contains(piece));
        assert!(has("漢") && has("é"), "{found:?}");
        let long = ids.repeat(100);
        let logps = vec![-1.0; long.len()];
        let kept = pieces(&long, &logps, &tokenizer);
        let n: usize = kept.iter().map(|(piece, _)| piece.chars().count()).sum();
        assert!((CHARACTERS..CHARACTERS + 30).contains(&n), "{n}");
    }
}
