//! How well held-out prompts are answered: one answer each, judged by the first of the rewards.

use super::{Rollouts, show, stops, write};
use crate::base::sampling::{ContextLimit, Sampling};
use crate::engine::EngineError;
use crate::engine::eval::Extent;
use crate::engine::roles::Models;
use crate::metrics::Readings;
use crate::rewards::Answer;
use crate::wire::ExaminedExample;

/// What an evaluation by answers found.
#[derive(Debug, Clone, PartialEq)]
pub struct Passed {
    /// Of ids that [`show::declarations`] declares, as means over prompts.
    pub values: Vec<(String, f64)>,
    pub prompts: u64,
    pub whole: bool,
    /// The first answers.
    pub examples: Vec<ExaminedExample>,
}

/// Prompts whose answers are kept to be looked at.
const SHOWN: usize = 6;

impl Rollouts {
    /// Answers held-out prompts, the same ones at every evaluation of a run; `Ok(None)` when `broken_off` said so.
    ///
    /// # Errors
    /// A prompt that the model refuses, a reward that cannot be given.
    pub fn evaluate(
        &mut self,
        models: &mut Models,
        extent: Extent,
        broken_off: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Passed>, EngineError> {
        let size = self.spec.train.micro_batch_size;
        let all = self.data.val_windows();
        let batches = match extent {
            Extent::Batches(n) => n.min(all.div_ceil(size)),
            Extent::Whole => all.div_ceil(size),
        };
        let sampling = Sampling {
            temperature: self.config().eval_temperature,
            max_new_tokens: self.config().max_new_tokens,
            seed: self.spec.seed,
            stop: stops(self.config(), &self.data),
            context: ContextLimit::Stop,
            ..Sampling::default()
        };
        let (mut readings, mut examples, mut seen) = (Readings::default(), Vec::new(), 0);
        for i in 0..batches {
            let batch = match extent {
                Extent::Batches(_) => self.data.eval_batch(self.spec.seed, i as u64, size),
                Extent::Whole => self.data.val_batch(i * size, size),
            };
            let side_by_side = self.config().side_by_side;
            let how = (&sampling, 1, side_by_side);
            let written = write(&mut models.policy, &self.data, &batch, how, broken_off)?;
            let Some(written) = written else {
                return Ok(None);
            };
            let answers: Vec<Answer> = written.iter().map(|w| w.answer.clone()).collect();
            let scores = self.judge.score(&answers)?;
            let n = answers.len() as f64;
            seen += answers.len();
            if let Some(first) = scores.first() {
                let right = first.values.iter().filter(|score| **score >= 1.0).count();
                readings.add(show::PASS, right as f64, n);
            }
            let rewards = Rollouts::weighed(&scores, answers.len());
            readings.add(show::EVAL_REWARD, rewards.iter().sum(), n);
            let tokens: usize = answers.iter().map(|a| a.tokens).sum();
            readings.add(show::EVAL_LENGTH, tokens as f64, n);
            let missing = SHOWN.saturating_sub(examples.len());
            examples.extend(show::held_out(&written, &scores, &rewards).take(missing));
        }
        let values = readings.means().map(|(id, value)| (id.to_string(), value));
        Ok(Some(Passed {
            values: values.collect(),
            prompts: seen as u64,
            whole: extent == Extent::Whole,
            examples,
        }))
    }
}
