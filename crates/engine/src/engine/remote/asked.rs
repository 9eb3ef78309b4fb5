//! Evaluation tasks with the weights on the ranks, which score whole rows of text and generate answers.

use super::{Remote, ScoringWeights};

use crate::nn::continuations::{self, Group, Scores};
use crate::nn::generate::{
    Continuing, GenerateError, Generated, GeneratedToken, Prompt, generate_by,
};
use crate::nn::{Model, ModelConfig, ModelShape, TokenBatch, error_text};
use crate::tasks::AskedModel;
use std::ops::ControlFlow;

/// Tokens of rows, padding counted, that a rank reads at once.
const MOST_TOKENS: usize = 16_384;

/// The policy that the ranks hold; `policy` says what its tokens and its context are.
pub struct OnRanks<'a> {
    remote: &'a mut Remote,
    policy: &'a Model,
}

impl Remote {
    /// The policy as its ranks have it, to be asked.
    ///
    /// # Errors
    /// The ranks are gone.
    pub fn policy_on_ranks<'a>(
        &'a mut self,
        policy: &'a Model,
    ) -> candle_core::Result<OnRanks<'a>> {
        self.push(policy)?;
        Ok(OnRanks {
            remote: self,
            policy,
        })
    }
}

/// A context with one of its continuations.
struct Row<'a> {
    context: &'a [u32],
    continuation: &'a [u32],
}

impl Row<'_> {
    /// Tokens that are read: the last one is predicted alone.
    fn len(&self) -> usize {
        self.context.len() + self.continuation.len() - 1
    }

    fn tokens(&self) -> impl Iterator<Item = u32> + '_ {
        self.context.iter().chain(self.continuation).copied()
    }
}

/// How many of the first rows one pass over `ranks` takes: they are as long as the longest of them.
fn fitting(rows: &[Row<'_>], ranks: usize) -> usize {
    let mut longest = 0;
    let fits = rows.iter().enumerate().take_while(|(i, row)| {
        longest = longest.max(row.len());
        (i + 1) * longest <= MOST_TOKENS * ranks
    });
    fits.count().max(1)
}

impl OnRanks<'_> {
    fn score_rows(
        &mut self,
        rows: &[Row<'_>],
        scores: &mut Vec<Scores>,
    ) -> candle_core::Result<()> {
        let length = rows.iter().map(Row::len).max().unwrap_or(0);
        // No token of a text attends to what follows it.
        let padded = |skipped: usize| -> Vec<u32> {
            let of_row = |row: &Row<'_>| -> Vec<u32> {
                let own = row.tokens().skip(skipped).take(row.len());
                own.chain(std::iter::repeat(0)).take(length).collect()
            };
            rows.iter().flat_map(of_row).collect()
        };
        let (inputs, targets) = (padded(0), padded(1));
        let batch = TokenBatch::plain(&inputs, &targets, rows.len(), length);
        self.remote.varied = true;
        let found = self.remote.score(&batch, ScoringWeights::Policy);
        self.remote.varied = false;
        let found = found?;
        let all = |values: &candle_core::Tensor| values.flatten_all()?.to_vec1::<f32>();
        let (logp, top1) = (all(&found.logp)?, all(&found.top1)?);
        for (i, row) in rows.iter().enumerate() {
            let from = i * length + row.context.len() - 1;
            let own = from..from + row.continuation.len();
            scores.push(Scores {
                logps: logp[own.clone()].to_vec(),
                greedy: top1[own].iter().filter(|best| **best > 0.5).count(),
            });
        }
        Ok(())
    }
}

impl AskedModel for OnRanks<'_> {
    fn shape(&self) -> &ModelShape {
        self.policy.shape()
    }

    fn config(&self) -> &ModelConfig {
        self.policy.config()
    }

    fn score(&mut self, groups: &[Group]) -> Result<Vec<Vec<Scores>>, String> {
        continuations::check(self.policy, groups).map_err(error_text)?;
        let mut rows = Vec::new();
        for group in groups {
            rows.extend(group.continuations.iter().map(|continuation| Row {
                context: &group.context,
                continuation,
            }));
        }
        let (mut scores, mut rest) = (Vec::with_capacity(rows.len()), rows.as_slice());
        while !rest.is_empty() {
            let (part, others) = rest.split_at(fitting(rest, self.remote.ranks));
            self.score_rows(part, &mut scores).map_err(error_text)?;
            rest = others;
        }
        let mut scores = scores.into_iter();
        let own = |group: &Group| scores.by_ref().take(group.continuations.len()).collect();
        Ok(groups.iter().map(own).collect())
    }

    fn answer(
        &mut self,
        prompts: &[Prompt],
        how: Continuing,
        on_token: &mut dyn FnMut(usize, GeneratedToken) -> ControlFlow<()>,
    ) -> Result<Vec<Generated>, GenerateError> {
        let policy = self.policy;
        let mut written = Vec::with_capacity(prompts.len());
        let most = self.remote.most_texts(policy, prompts.len()).max(1);
        for (n, prompts) in prompts.chunks(most).enumerate() {
            let remote = &mut *self.remote;
            let part = generate_by(
                policy,
                move |room| remote.texts(policy, prompts.len(), room),
                prompts,
                how,
                &mut |text, token| on_token(n * most + text, token),
            )?;
            written.extend(part);
        }
        Ok(written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_takes_rows_as_long_as_its_longest_and_at_least_one() {
        let ids = vec![0; MOST_TOKENS + 9];
        let row = |n: usize| Row {
            context: &ids[..n],
            continuation: &ids[..1],
        };
        assert_eq!(row(5).len(), 5);
        let half = MOST_TOKENS / 2;
        let rows = [row(10), row(half), row(10), row(10)];
        assert_eq!(fitting(&rows, 1), 2);
        assert_eq!(fitting(&rows, 2), 4);
        assert_eq!(fitting(&[row(MOST_TOKENS + 9), row(1)], 1), 1);
    }
}
