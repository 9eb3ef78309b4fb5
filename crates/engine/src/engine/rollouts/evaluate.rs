//! Evaluation on held-out prompts: scored by the first verifier among the rewards.

use super::{Asked, Rollouts, show, stops, write};
use crate::base::sampling::{ContextLimit, Sampling};
use crate::engine::EngineError;
use crate::engine::eval::measure::EvalScope;
use crate::engine::roles::Models;
use crate::metrics::Readings;
use crate::rewards::Answer;
use crate::rewards::verifier;
use crate::wire::{ExaminedExample, id};

/// The result of an evaluation by completions.
#[derive(Debug, Clone, PartialEq)]
pub struct CompletionEval {
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
        extent: EvalScope,
        broken_off: &mut dyn FnMut() -> bool,
    ) -> Result<Option<CompletionEval>, EngineError> {
        let size = self.spec.train.micro_batch_size;
        let all = self.data.val_windows();
        // Random prompts that come to all of them would only be asked twice.
        let batches = match extent {
            EvalScope::Batches(n) => EvalScope::Batches(n.min(all.div_ceil(size))),
            rows => rows,
        };
        let sampling = Sampling {
            temperature: self.config().eval_temperature,
            max_new_tokens: self.config().max_new_tokens,
            seed: self.spec.seed,
            stop: stops(self.config(), &self.data.ends),
            context: ContextLimit::Stop,
            ..Sampling::default()
        };
        let each = self.config().eval_answers;
        let k = std::iter::once(1).chain(self.config().pass_at.iter().copied().filter(|k| *k > 1));
        let judges = verifier(&self.spec.rewards).is_some();
        let mut passes: Vec<(usize, f64)> = k.filter(|_| judges).map(|k| (k, 0.0)).collect();
        let (mut readings, mut examples, mut seen) = (Readings::default(), Vec::new(), 0);
        let data = self.data.clone();
        for batch in batches.batches(&data, self.spec.seed, size) {
            let side_by_side = self.config().side_by_side;
            let how = (&sampling, each, side_by_side);
            let asked: Vec<Asked> = Asked::rows(&batch).collect();
            // Prompts at one place of two batches draw apart, so the size of batches changes no answer.
            let asked = (&asked[..], (seen * each) as u32);
            let written = write(models, &self.data, asked, how, broken_off)?;
            let Some(written) = written else {
                return Ok(None);
            };
            let answers: Vec<Answer> = written.iter().map(|w| w.answer.clone()).collect();
            let scores = self.judge.score(&answers)?;
            let n = answers.len() as f64;
            seen += answers.len() / each;
            let judged = verifier(&self.spec.rewards).and_then(|i| scores.get(i));
            for answers in judged.iter().flat_map(|s| s.values.chunks(each)) {
                let right = answers.iter().filter(|score| **score >= 1.0).count();
                passes
                    .iter_mut()
                    .for_each(|(k, sum)| *sum += pass_at(*k, right, each));
            }
            let rewards = Rollouts::weighed(&scores, answers.len());
            readings.add(id::EVAL_REWARD, rewards.iter().sum(), n);
            let tokens: usize = answers.iter().map(|a| a.tokens).sum();
            readings.add(show::EVAL_LENGTH, tokens as f64, n);
            let missing = SHOWN.saturating_sub(examples.len());
            // One answer to each prompt.
            let shown = show::held_out(&written, &scores, &rewards).step_by(each);
            examples.extend(shown.take(missing));
        }
        let passed = passes.iter().map(|(k, sum)| (*k, sum / seen.max(1) as f64));
        let passed = passed.map(|(k, share)| (show::pass_at(k), share));
        let values = readings.means().map(|(id, value)| (id.to_string(), value));
        let values = values.chain(passed);
        Ok(Some(CompletionEval {
            values: values.collect(),
            prompts: seen as u64,
            whole: seen == all && !matches!(extent, EvalScope::Batches(_)),
            examples,
        }))
    }
}

/// How likely one of `k` answers is right where `right` of `n` are: 1 − C(n − c, k) / C(n, k), without bias.
fn pass_at(k: usize, right: usize, n: usize) -> f64 {
    let wrong = n - right;
    if wrong < k {
        return 1.0;
    }
    let none: f64 = (0..k)
        .map(|i| (wrong - i) as f64 / (n - i) as f64)
        .product();
    1.0 - none
}

#[cfg(test)]
mod tests {
    use super::pass_at;

    #[test]
    fn pass_at_k_has_its_known_values_and_no_bias() {
        assert_eq!(pass_at(1, 3, 10), 1.0 - 0.7);
        assert!((pass_at(5, 3, 10) - (1.0 - 21.0 / 252.0)).abs() < 1e-12);
        assert_eq!((pass_at(8, 3, 10), pass_at(4, 0, 4)), (1.0, 0.0));
        // Mean over what binomial draws with p = 0.3 give is 1 − 0.7^k.
        let (n, p): (u64, f64) = (6, 0.3);
        let choose = |c: u64| (0..c).fold(1.0, |x, i| x * (n - i) as f64 / (i + 1) as f64);
        let mean = |k: usize| -> f64 {
            let weight = |c: u64| choose(c) * p.powi(c as i32) * (1.0 - p).powi((n - c) as i32);
            (0..=n)
                .map(|c| weight(c) * pass_at(k, c as usize, n as usize))
                .sum()
        };
        for k in 1..=6 {
            assert!(
                (mean(k) - (1.0 - 0.7_f64.powi(k as i32))).abs() < 1e-12,
                "{k}"
            );
        }
    }
}
