//! Generates completions in batches: those of one prompt share its keys and values.

use crate::base::sampling::Sampling;
use crate::data::chat::tool_calls::{Answers, Writing};
use crate::data::{Batch, Dataset, Origin};
use crate::engine::roles::Models;
use crate::nn::generate::{
    Continuing, Finish, GeneratedToken, Prompt, WhenFull, generate_batch, generate_by,
};
use crate::rewards::{Answer, Reference};
use crate::tasks::thinking;
use candle_core::Result;
use std::ops::ControlFlow;

/// An answer as the model wrote it.
#[derive(Debug, Clone, PartialEq)]
pub struct Written {
    pub prompt: Vec<u32>,
    /// The prompt's place in the data.
    pub origin: Option<Origin>,
    /// The answer's tokens, the one that ended it included.
    pub tokens: Vec<u32>,
    /// The sampler's log-probability of each, nats, of the model's own distribution.
    pub logps: Vec<f32>,
    pub answer: Answer,
}

/// A prompt to be answered.
#[derive(Debug, Clone)]
pub struct Asked {
    pub tokens: Vec<u32>,
    /// Its place in the data.
    pub origin: Option<Origin>,
    pub reference: Reference,
}

impl Asked {
    /// The rows of a batch, which are those of a [`crate::data::Unit::Prompt`].
    pub fn rows(batch: &Batch) -> impl Iterator<Item = Asked> + '_ {
        (0..batch.batch_size).map(|row| Asked {
            tokens: prompt(batch, row),
            origin: batch.origins.get(row).copied(),
            reference: batch
                .references
                .get(row)
                .map_or_else(Reference::default, |json| Reference::parse(json)),
        })
    }

    /// The prompts of rollout number `first`, of so many prompts each, in an order. One by one: a batch would be of a single source,
    /// and the last one of an epoch short.
    pub fn drawn(data: &Dataset, seed: u64, first: u64, wanted: usize) -> Vec<Asked> {
        let begin = first * wanted as u64;
        let each = (begin..begin + wanted as u64).map(|number| data.train_batch(seed, number, 1));
        each.flat_map(|batch| Asked::rows(&batch).collect::<Vec<_>>())
            .collect()
    }
}

/// `group_size` completions of each prompt, numbered from `first` on: the number is what draws differ by under one seed. At most
/// `side_by_side` at once, which changes none of them. `Ok(None)` when `broken_off` said so in between.
///
/// # Errors
/// Those of [`generate_batch`]; ranks that are gone.
pub fn write(
    models: &mut Models,
    data: &Dataset,
    (prompts, first): (&[Asked], u32),
    (sampling, group_size, side_by_side): (&Sampling, usize, usize),
    broken_off: &mut dyn FnMut() -> bool,
) -> Result<Option<Vec<Written>>> {
    let side_by_side = models.begin_writing(side_by_side.max(1))?;
    let each = prompts
        .iter()
        .flat_map(|asked| std::iter::repeat_n(asked, group_size));
    let numbered: Vec<(&Asked, u32)> = each.zip(first..).collect();
    let mut all = Vec::with_capacity(numbered.len());
    for part in numbered.chunks(side_by_side) {
        if broken_off() {
            return Ok(None);
        }
        let Some(written) = side(models, data, part, sampling, broken_off)? else {
            return Ok(None);
        };
        all.extend(written);
    }
    Ok(Some(all))
}

/// Answers that are written at once: (prompt, number of the answer).
fn side(
    models: &mut Models,
    data: &Dataset,
    part: &[(&Asked, u32)],
    sampling: &Sampling,
    broken_off: &mut dyn FnMut() -> bool,
) -> Result<Option<Vec<Written>>> {
    let prompts: Vec<Prompt> = part
        .iter()
        .map(|(asked, number)| Prompt {
            tokens: &asked.tokens,
            number: *number,
        })
        .collect();
    let how = Continuing {
        sampling,
        ends: &data.ends,
        when_full: WhenFull::Stop,
    };
    let mut drawn: Vec<Vec<GeneratedToken>> = vec![Vec::new(); part.len()];
    let texts: Vec<String> = part
        .iter()
        .map(|(asked, _)| data.tokenizer.decode(&asked.tokens))
        .collect();
    let suffix = |asked: &Asked| data.answer_suffix(asked.origin);
    let asked = part.iter().zip(&texts);
    let mut writings: Vec<Writing> = asked
        .map(|((asked, _), text)| {
            // A plain text is continued, not answered.
            let answers = match suffix(asked) {
                Some(_) => data.answers(),
                None => Answers::default(),
            };
            Writing::new(answers, text, &data.tokenizer, &sampling.stop)
        })
        .collect();
    let mut broken = false;
    let mut hear = |text: usize, token: GeneratedToken| {
        // Then every text ends with its next token, and none is used.
        broken |= broken_off();
        if broken {
            return ControlFlow::Break(());
        }
        drawn[text].push(token);
        writings[text].push(token.id)
    };
    let policy = &mut models.policy;
    let generated = match &mut models.remote {
        Some(remote) => {
            let (policy, count) = (&*policy, prompts.len());
            // A closure that is written here is one that is called once.
            generate_by(
                policy,
                move |tokens| remote.texts(policy, count, tokens),
                &prompts,
                how,
                &mut hear,
            )?
        }
        None => generate_batch(policy, &prompts, how, &mut hear)?,
    };
    if broken {
        return Ok(None);
    }
    let finished = part.iter().zip(drawn).zip(generated).zip(&writings);
    let written = finished.map(|((((asked, _), mut drawn), generated), writing)| {
        let whole = writing.finish();
        drawn.extend(generated.end);
        Written {
            prompt: asked.tokens.clone(),
            origin: asked.origin,
            answer: Answer {
                prompt: writing.prompt().into(),
                thinking: thinking(&whole.said, &whole.written),
                text: whole.said.text,
                tokens: drawn.len(),
                ended: generated.finish == Finish::Eos || whole.is_stopped,
                behind: suffix(asked).map(String::from),
                reference: asked.reference.clone(),
            },
            tokens: drawn.iter().map(|t| t.id).collect(),
            logps: drawn.iter().map(|t| t.tempered).collect(),
        }
    });
    Ok(Some(written.collect()))
}

/// The tokens of a row before its answer.
fn prompt(batch: &Batch, row: usize) -> Vec<u32> {
    let places = row * batch.seq_len..(row + 1) * batch.seq_len;
    let filled = places
        .clone()
        .take_while(|at| batch.first.get(*at).is_none_or(|first| *first == 0));
    let filled = places.start..places.start + filled.count();
    // The target at the first supervised place begins the answer.
    let supervised = |at: &usize| batch.mask.get(*at).is_none_or(|counts| *counts);
    match filled.clone().find(supervised) {
        Some(at) => batch.inputs[filled.start..=at].to_vec(),
        None => {
            let mut ids = batch.inputs[filled.clone()].to_vec();
            ids.extend(batch.targets[filled].last());
            ids
        }
    }
}
