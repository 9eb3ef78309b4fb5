//! On-policy distillation: in a share of the steps the rows of a step are answers that the student writes to their prompts. Which steps
//! those are, and what is written in them, is a function of (weights, seed, micro-step), so a resume repeats it.

use super::EngineError;
use super::experience::Experience;
use super::rollouts::{Asked, OF_ANSWERS, WRITING, batches_of, stops, write};
use super::state::TrainState;
use crate::base::clock::Clock;
use crate::base::rng::{Rng, Stream};
use crate::base::sampling::{ContextLimit, Sampling};
use crate::data::{Batch, Dataset, Loader, StepBatches, Unit};
use crate::metrics::{Direction, Metric, Repeatable, metric};
use crate::rewards::Reference;
use crate::spec::RunSpec;
use crate::wire::{MetricInfo, id};
use std::sync::Arc;
use std::time::Duration;

/// Lanes of the random numbers of a step: whether it is one of those, and what is written. Below are those of rollouts.
const CHOICE: u32 = 1 << 30;
const ANSWERS: u32 = CHOICE + 1;
/// Micro-batches in which there must be a prompt.
const LOOKED_AT: u64 = 8;

const OWN_STEP: &str = "on_policy";
/// Whether a step was one of those; other readings are those of rollouts.
#[rustfmt::skip]
pub const OF_STEP: Metric =
    metric(OWN_STEP, "On-policy steps", "share", Direction::Neutral, Repeatable::Yes, "1 where the step learned from answers that the student wrote, else 0 (method.distill.on_policy is the share of such steps)").label("on-policy");

pub const OWN_LOSS: &str = "on_policy_loss";
/// Where both kinds of steps occur: on its own answers a student is nearer to its teacher from the start, and no token of the data adds
/// to the loss (`ce_weight`).
#[rustfmt::skip]
const LOSS_OF_STEP: Metric =
    metric(OWN_LOSS, "On-policy loss", "nats", Direction::Lower, Repeatable::Yes, "mean loss of the steps on answers that the student wrote; train/loss is of the data's answers then").label("on-policy loss");

/// Batches of the data, and of answers to its prompts.
pub(super) struct OwnAnswers {
    loader: Loader,
    spec: RunSpec,
    data: Arc<Dataset>,
    clock: Arc<dyn Clock>,
    writing: Duration,
    readings: Vec<(String, f64)>,
}

impl OwnAnswers {
    /// Those of a spec whose method has a share of such steps.
    ///
    /// # Errors
    /// Data without prompts.
    pub fn new(
        spec: &RunSpec,
        data: &Arc<Dataset>,
        loader: Loader,
        clock: &Arc<dyn Clock>,
    ) -> Result<OwnAnswers, EngineError> {
        let size = spec.train.micro_batch_size;
        let mut looked_at = (0..LOOKED_AT).map(|at| data.train_batch(spec.seed, at, size));
        if looked_at.all(|batch| asked(&batch).is_empty()) {
            return Err(EngineError::Setup(
                "method.distill.on_policy: the student answers prompts, and these rows have none: they are plain text; set \
                 method.distill.on_policy=0, or use conversations or prompts with completions"
                    .into(),
            ));
        }
        Ok(OwnAnswers {
            loader,
            spec: spec.clone(),
            data: data.clone(),
            clock: clock.clone(),
            writing: Duration::ZERO,
            readings: Vec::new(),
        })
    }

    fn is_own(&self, micro_step: u64) -> bool {
        let mut rng = Rng::new(self.spec.seed, Stream::Rollout, micro_step, CHOICE);
        rng.uniform_f64() < self.spec.method.own_share()
    }

    fn sampling(&self, micro_step: u64) -> Sampling {
        let config = &self.spec.rollout;
        Sampling {
            temperature: config.temperature,
            top_k: config.top_k,
            top_p: config.top_p,
            max_new_tokens: config.max_new_tokens,
            seed: Rng::new(self.spec.seed, Stream::Rollout, micro_step, ANSWERS).next_u64(),
            stop: stops(config, &self.data.ends),
            context: ContextLimit::Stop,
            ..Sampling::default()
        }
    }

    /// Replaces each micro-batch by answers to its prompts; one without prompts stays. False when `broken_off` said so meanwhile.
    fn write(
        &self,
        step: &mut StepBatches,
        state: &mut TrainState,
        broken_off: &mut dyn FnMut() -> bool,
    ) -> Result<bool, EngineError> {
        let sampling = self.sampling(step.micro_step);
        let mut first = 0;
        for batch in &mut step.batches {
            let prompts = asked(batch);
            if prompts.is_empty() {
                continue;
            }
            let how = (&sampling, 1, self.spec.rollout.side_by_side);
            let of = (&*prompts, first);
            first += prompts.len() as u32;
            let Some(written) = write(&mut state.models, &self.data, of, how, broken_off)? else {
                return Ok(false);
            };
            let written: Vec<_> = (written.into_iter())
                .filter(|answer| !answer.tokens.is_empty())
                .collect();
            // What the student ends at once has nothing to learn from.
            if written.is_empty() {
                continue;
            }
            let mut own = batches_of(&written, &self.spec, self.data.seq_len());
            // A batch is of one source of a mix, and so are the answers to its prompts.
            let sources = batch.tokens.iter().enumerate();
            let source = sources.max_by_key(|(_, n)| **n).map_or(0, |(at, _)| at);
            let mut tokens = vec![0; batch.tokens.len().max(1)];
            tokens[source] = own.n_tokens();
            own.tokens = tokens;
            *batch = own;
            // The divergence has a temperature of its own.
            batch.temperature = None;
        }
        Ok(true)
    }
}

/// The prompts of a batch: of each text what comes before its last answer. Texts without one, such as plain ones, have none.
fn asked(batch: &Batch) -> Vec<Asked> {
    let width = batch.seq_len;
    let counts = |at: usize| batch.mask.get(at).is_none_or(|counts| *counts);
    let mut all = Vec::new();
    for row in 0..batch.batch_size {
        let (from, end) = (row * width, (row + 1) * width);
        let first = |at: usize| batch.first.get(at).map_or(0, |first| *first as usize);
        let mut begin = from;
        while begin < end {
            let own = first(begin);
            let after = (begin..end).find(|at| first(*at) != own).unwrap_or(end);
            // Its last answer is the run of supervised places behind the last that does not count.
            let last = (begin..after).rev().find(|at| counts(*at));
            let before = last.and_then(|last| (begin..last).rev().find(|at| !counts(*at)));
            if let Some(before) = before {
                all.push(Asked {
                    // The target at `before` is the prompt's last token.
                    tokens: batch.inputs[begin..=before + 1].to_vec(),
                    origin: None,
                    reference: Reference::default(),
                });
            }
            begin = after;
        }
    }
    all
}

impl Experience for OwnAnswers {
    fn step(
        &mut self,
        micro_step: u64,
        state: &mut TrainState,
        broken_off: &mut dyn FnMut() -> bool,
    ) -> Result<Option<StepBatches>, EngineError> {
        let Some(mut step) = self.loader.step(micro_step, state, broken_off)? else {
            return Ok(None);
        };
        let is_own = self.is_own(micro_step);
        self.readings = vec![(OWN_STEP.into(), f64::from(u8::from(is_own)))];
        if is_own {
            let begun = self.clock.elapsed();
            let whole = self.write(&mut step, state, broken_off)?;
            self.writing += self.clock.elapsed() - begun;
            if !whole {
                return Ok(None);
            }
            let written: Vec<&Batch> = (step.batches.iter())
                .filter(|batch| batch.unit == Unit::Prompt)
                .collect();
            let (tokens, rows) = written.iter().fold((0, 0), |(tokens, rows), batch| {
                (tokens + batch.supervised(), rows + batch.batch_size)
            });
            if rows > 0 {
                let mean = tokens as f64 / rows as f64;
                self.readings.push((id::ANSWER_LENGTH.into(), mean));
            }
        }
        Ok(Some(step))
    }

    fn recycle(&mut self, step: StepBatches) {
        self.loader.recycle(step);
    }

    fn declarations(&self) -> Vec<MetricInfo> {
        let shared = OF_ANSWERS.iter();
        let shared = shared.filter(|metric| [id::ANSWER_LENGTH, WRITING].contains(&metric.id));
        let mixed = self.spec.method.own_share() < 1.0;
        [&OF_STEP]
            .into_iter()
            .chain(mixed.then_some(&LOSS_OF_STEP))
            .chain(shared)
            .map(Metric::info)
            .collect()
    }

    fn readings(&self) -> &[(String, f64)] {
        &self.readings
    }

    fn take_writing(&mut self) -> Option<Duration> {
        Some(std::mem::take(&mut self.writing))
    }

    fn has_own_answers(&self) -> bool {
        true
    }

    fn other_loss(&self) -> Option<&'static str> {
        let own = self
            .readings
            .iter()
            .any(|(id, share)| id == OWN_STEP && *share > 0.0);
        (own && self.spec.method.own_share() < 1.0).then_some(OWN_LOSS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(first: &[u32], mask: &[u8], seq_len: usize) -> Batch {
        let n = mask.len();
        Batch {
            inputs: (0..n as u32).collect(),
            targets: (1..=n as u32).collect(),
            batch_size: n / seq_len,
            seq_len,
            mask: mask.iter().map(|x| *x == 1).collect(),
            first: first.to_vec(),
            ..Batch::default()
        }
    }

    fn prompts(batch: &Batch) -> Vec<Vec<u32>> {
        asked(batch).into_iter().map(|asked| asked.tokens).collect()
    }

    #[test]
    fn a_prompt_is_all_before_the_last_answer_of_each_text() {
        // Two texts in a row, and one of two turns in the next.
        let first = [0, 0, 0, 0, 4, 4, 4, 4, 0, 0, 0, 0, 0, 0, 0, 7];
        let mask = [0, 0, 1, 1, 0, 1, 1, 1, 0, 1, 0, 0, 1, 1, 1, 0];
        let found = prompts(&batch(&first, &mask, 8));
        let wanted: [&[u32]; 3] = [&[0, 1, 2], &[4, 5], &[8, 9, 10, 11, 12]];
        assert_eq!(found, wanted);
        // Without boundaries each row is a text.
        let whole = batch(&[], &[0, 1, 0, 1], 4);
        assert_eq!(prompts(&whole), [&[0, 1, 2, 3][..]]);
    }

    #[test]
    fn plain_texts_and_padding_have_no_prompt() {
        assert!(asked(&batch(&[], &[], 4)).is_empty());
        assert!(asked(&batch(&[], &[1; 8], 4)).is_empty());
        let padded = batch(&[0, 0, 2, 3], &[0, 0, 0, 0], 4);
        assert!(asked(&padded).is_empty());
    }
}
