//! What an RL run has gained: shares and rewards of held-out prompts, or the reward of training prompts, each against its noise.

use super::metric;
use super::view::{View, rows_of};
use crate::base::stats;
use crate::run::state::Evaluation;

/// A fall of pass@1 counts from this share of the prompts on: at 0.98 two standard errors are a handful of prompts.
pub(super) const FALL: f64 = 0.1;
/// Standard errors of a fall that two evaluations in a row agree on, and of one that a single evaluation shows: the best of many
/// evaluations is lucky.
const TWICE: f64 = 2.0;
const ONCE: f64 = 4.0;

/// The share of held-out prompts answered correctly, and their number.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pass {
    pub share: f64,
    prompts: f64,
}

impl Pass {
    /// Nothing correct, without uncertainty.
    pub const NONE: Pass = Pass {
        share: 0.0,
        prompts: f64::INFINITY,
    };

    /// `None` for an evaluation without such a reading.
    pub fn of(evaluation: &Evaluation) -> Option<Pass> {
        Some(Pass {
            share: *evaluation.values.get(metric::PASS_AT_1)?,
            prompts: rows_of(evaluation),
        })
    }

    /// Whether a fall from `self` to `other` counts: a tenth of the prompts, and so many standard errors.
    fn falls_to(self, other: Pass, errors: f64) -> bool {
        self.share - other.share >= FALL && self.exceeds_by(other, errors)
    }

    /// By more than two standard errors of the difference of two proportions, pooled.
    pub fn exceeds(self, other: Pass) -> bool {
        self.exceeds_by(other, TWICE)
    }

    fn exceeds_by(self, other: Pass, errors: f64) -> bool {
        let (a, b) = (1.0 / self.prompts, 1.0 / other.prompts);
        // Weights n of each, which may be infinite: the pooled share is then that of the more certain one.
        let pooled = match b == 0.0 {
            true => self.share,
            false => (self.share * b + other.share * a) / (a + b),
        };
        self.share - other.share > errors * (pooled * (1.0 - pooled) * (a + b)).sqrt()
    }
}

/// What a policy answers correctly over a run: evaluations of as many prompts each, with their steps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Passes {
    pub first: Pass,
    pub best: (Pass, u64),
    pub last: (Pass, u64),
    /// The one that has to agree with the last: a newer one of other prompts, or else the one before it.
    second: Pass,
    /// Whether no evaluation, of other prompts, is newer than the last.
    is_newest: bool,
}

impl Passes {
    /// Whether more than half of the gain is lost again, beyond chance: in two evaluations, or far in the newest without one of more
    /// prompts that disagrees.
    pub fn lost(&self) -> bool {
        let (best, last) = (self.best.0, self.last.0);
        let most = best.share - last.share > 0.5 * (best.share - self.first.share);
        let agree = best.falls_to(last, TWICE) && best.falls_to(self.second, TWICE);
        most && (agree || self.is_newest && best.falls_to(last, ONCE))
    }
}

/// For a model that is evaluated by its answers; `None` before two evaluations.
pub(super) fn passes(view: &View<'_>) -> Option<Passes> {
    let found = |e: &Evaluation| Some((Pass::of(e)?, e.step));
    let passes: Vec<(Pass, u64)> = evaluations(view, metric::PASS_AT_1)
        .into_iter()
        .filter_map(found)
        .collect();
    let best = passes.iter().copied();
    let best = best.max_by(|a, b| a.0.share.total_cmp(&b.0.share))?;
    let [first, before, last] = match *passes {
        [first, last] => [first, first, last],
        [first, .., before, last] => [first, before, last],
        _ => return None,
    };
    let newest = view.state.evaluations.iter().rev().find_map(found);
    let newer = newest.filter(|(_, step)| *step > last.1);
    Some(Passes {
        first: first.0,
        best,
        last,
        second: newer.unwrap_or(before).0,
        is_newest: newer.is_none(),
    })
}

/// Evaluations with a reading. Once rollouts run, the last one up to the end of the cold start is the first of them: what supervised
/// training gained before is no gain of RL. All are over as many rows as that one: the last one of a run may use the whole split.
pub(super) fn evaluations<'a>(view: &'a View<'_>, id: &str) -> Vec<&'a Evaluation> {
    let all = view.state.evaluations.iter();
    let all: Vec<&Evaluation> = all.filter(|e| e.values.contains_key(id)).collect();
    let begun = match view.has_rollouts() {
        true => all.iter().rposition(|e| e.step <= view.cold_start()),
        false => None,
    };
    let all = &all[begun.unwrap_or(0)..];
    let rows = all.first().map(|e| e.n_windows);
    let same = all.iter().copied().filter(|e| Some(e.n_windows) == rows);
    let same: Vec<&Evaluation> = same.collect();
    if same.len() > 1 { same } else { all.to_vec() }
}

/// For answers without a verifier: the mean rewards of held-out prompts.
pub(super) struct Rewards {
    pub first: f64,
    /// And its step.
    pub best: (f64, u64),
    pub last: f64,
    /// Differences up to this are noise: three times the typical one between neighbours; unknown with few evaluations.
    noise: f64,
}

impl Rewards {
    /// `None` before two evaluations.
    pub fn of(view: &View<'_>) -> Option<Rewards> {
        let found = |e: &Evaluation| Some((*e.values.get(metric::EVAL_REWARD)?, e.step));
        let means: Vec<(f64, u64)> = evaluations(view, metric::EVAL_REWARD)
            .into_iter()
            .filter_map(found)
            .collect();
        let [first, .., last] = *means else {
            return None;
        };
        let best = means.iter().copied().max_by(|a, b| a.0.total_cmp(&b.0))?;
        let differences: Vec<f64> = means.windows(2).map(|m| (m[1].0 - m[0].0).abs()).collect();
        let usual = stats::median(&differences).filter(|_| differences.len() >= 4);
        Some(Rewards {
            first: first.0,
            best,
            last: last.0,
            noise: 3.0 * usual.unwrap_or(0.0),
        })
    }

    /// Whether the policy is better than at first; `Some(false)` if it is worse, or has lost half of its gain.
    pub fn gained(&self) -> Option<bool> {
        gained(self.first, self.best.0, self.last, self.noise)
    }
}

/// For logs of other programs without evaluations: the mean reward of training prompts in the thirds of the run.
pub(super) struct TrainingReward {
    pub first: f64,
    pub middle: f64,
    pub last: f64,
    /// Three standard errors of the difference of two thirds.
    noise: f64,
}

impl TrainingReward {
    /// `None` before 20 readings, or 8 of a sparse log, and for runs of this program, which evaluate held-out prompts.
    pub fn of(view: &View<'_>) -> Option<TrainingReward> {
        if !view.state.is_foreign() {
            return None;
        }
        let scatter = view.scatter(metric::REWARD)?;
        let [first, middle, last] = view.thirds(metric::REWARD)?;
        let third = view.state.series.get(metric::REWARD)?.len() as f64 / 3.0;
        Some(TrainingReward {
            first,
            middle,
            last,
            noise: 3.0 * scatter * (2.0 / third).sqrt(),
        })
    }

    /// As [`Rewards::gained`].
    pub fn gained(&self) -> Option<bool> {
        let best = self.first.max(self.middle).max(self.last);
        gained(self.first, best, self.last, self.noise)
    }
}

fn gained(first: f64, best: f64, last: f64, noise: f64) -> Option<bool> {
    let lost = best - last > 0.5 * (best - first) + noise;
    if last < first - noise || lost {
        return Some(false);
    }
    (last > first + noise).then_some(true)
}
