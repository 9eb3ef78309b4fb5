//! Answers to prompts, written side by side: those of a prompt share the keys and values of it.

use crate::base::sampling::Sampling;
use crate::data::{Batch, Dataset, Origin};
use crate::engine::roles::Models;
use crate::nn::generate::{
    Continuing, Finish, GeneratedToken, Prompt, WhenFull, generate_batch, generate_by,
};
use crate::rewards::{Answer, Reference};
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

/// `group_size` answers to each row of `prompts`, which are those of a [`crate::data::Unit::Prompt`]; at most `side_by_side`
/// at once, which changes none of them. `Ok(None)` when `broken_off` said so in between.
///
/// # Errors
/// Those of [`generate_batch`]; ranks that are gone.
pub fn write(
    models: &mut Models,
    data: &Dataset,
    prompts: &Batch,
    (sampling, group_size, side_by_side): (&Sampling, usize, usize),
    broken_off: &mut dyn FnMut() -> bool,
) -> Result<Option<Vec<Written>>> {
    let side_by_side = models.begin_writing(side_by_side.max(1))?;
    let heads: Vec<Vec<u32>> = (0..prompts.batch_size)
        .map(|row| prompt(prompts, row))
        .collect();
    let each = (0..heads.len()).flat_map(|row| std::iter::repeat_n(row, group_size));
    let numbered: Vec<(usize, u32)> = each.zip(0..).collect();
    let mut all = Vec::with_capacity(numbered.len());
    for part in numbered.chunks(side_by_side) {
        if broken_off() {
            return Ok(None);
        }
        all.extend(side(models, data, (prompts, &heads), part, sampling)?);
    }
    Ok(Some(all))
}

/// Answers that are written at once: (row of the prompt, number of the answer).
fn side(
    models: &mut Models,
    data: &Dataset,
    (batch, heads): (&Batch, &[Vec<u32>]),
    part: &[(usize, u32)],
    sampling: &Sampling,
) -> Result<Vec<Written>> {
    let prompts: Vec<Prompt> = part
        .iter()
        .map(|(row, number)| Prompt {
            tokens: &heads[*row],
            number: *number,
        })
        .collect();
    let how = Continuing {
        sampling,
        ends: &data.ends,
        when_full: WhenFull::Stop,
    };
    let mut drawn: Vec<Vec<GeneratedToken>> = vec![Vec::new(); part.len()];
    // A stop text of n bytes lies in the last n tokens.
    let reach = sampling.stop.iter().map(String::len).max().unwrap_or(0);
    let mut hear = |text: usize, token: GeneratedToken| {
        drawn[text].push(token);
        let last = drawn[text].len().saturating_sub(reach);
        let tail: Vec<u32> = drawn[text][last..].iter().map(|t| t.id).collect();
        match cut(&data.tokenizer.decode(&tail), &sampling.stop) {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
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
    let finished = part.iter().zip(drawn).zip(generated);
    let written = finished.map(|(((row, _), mut drawn), generated)| {
        let mut text = data.tokenizer.decode(&generated.tokens);
        let stopped = cut(&text, &sampling.stop);
        if let Some(at) = stopped {
            text.truncate(at);
        }
        drawn.extend(generated.end);
        Written {
            prompt: heads[*row].clone(),
            origin: batch.origins.get(*row).copied(),
            answer: Answer {
                prompt: data.tokenizer.decode(&heads[*row]),
                text,
                tokens: drawn.len(),
                ended: generated.finish == Finish::Eos || stopped.is_some(),
                reference: batch
                    .references
                    .get(*row)
                    .map_or_else(Reference::default, |json| Reference::parse(json)),
            },
            tokens: drawn.iter().map(|t| t.id).collect(),
            logps: drawn.iter().map(|t| t.logprob).collect(),
        }
    });
    Ok(written.collect())
}

/// Where the earliest of some texts begins.
fn cut(text: &str, stops: &[String]) -> Option<usize> {
    stops
        .iter()
        .filter_map(|stop| text.find(stop.as_str()))
        .min()
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
