//! How long a run is, and how its batch grows: optimizer steps, the micro-steps of each, and passes over the data (epochs).

use super::{RescuePolicy, RunConfig, TrainConfig};
use crate::base::every::Every;
use crate::base::human;
use crate::wire::id;
use serde::{Deserialize, Serialize};

/// A smaller batch at the beginning of a run (Smith et al. 2018, arXiv 1711.00489; GPT-3, arXiv 2005.14165).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchStage {
    /// Micro-steps of an optimizer step meanwhile, in place of `train.grad_accum_steps`.
    #[schemars(range(min = 1, max = 1000000))]
    pub grad_accum_steps: usize,
    /// The last optimizer step of this stage.
    #[schemars(range(min = 1))]
    pub until_step: u64,
}

/// When a run saves checkpoints, and how many of them it keeps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Saves {
    /// Of the whole run.
    pub steps: u64,
    every: Every,
    best: Option<Every>,
    keep_last: u64,
    rescued: u64,
}

impl Saves {
    /// Checkpoints that lie on the disk at once, at most: no more than the run saves.
    pub fn at_once(&self) -> u64 {
        let due = |every: Every| match every.steps(self.steps) {
            0 => 1,
            every => self.steps.div_ceil(every),
        };
        let saved = (due(self.every) + self.best.map_or(0, due)).min(self.steps);
        // The newest ones, the best, and the one that is being written.
        (self.keep_last + 2).min(saved) + self.rescued
    }

    /// How many of them are what a rescue gave up.
    pub fn rescued(&self) -> u64 {
        self.rescued
    }
}

impl TrainConfig {
    /// Micro-steps of optimizer step number `step`, from 1.
    pub fn accum(&self, step: u64) -> usize {
        let stage = self
            .batch_ramp
            .iter()
            .find(|stage| step <= stage.until_step);
        stage.map_or(self.grad_accum_steps, |stage| stage.grad_accum_steps)
    }

    /// Micro-steps of the first `steps` optimizer steps.
    pub fn micro_steps(&self, steps: u64) -> u64 {
        let (mut done, mut sum) = (0, 0);
        for stage in &self.batch_ramp {
            let end = stage.until_step.clamp(done, steps.max(done));
            sum += (end - done) * stage.grad_accum_steps as u64;
            done = end;
        }
        sum + steps.saturating_sub(done) * self.grad_accum_steps as u64
    }

    /// The fewest optimizer steps, at least one, that take `micro_steps`.
    pub fn steps_of(&self, micro_steps: u64) -> u64 {
        let (mut done, mut left) = (0, micro_steps);
        for stage in &self.batch_ramp {
            let steps = stage.until_step.saturating_sub(done);
            let all = steps * stage.grad_accum_steps as u64;
            if left <= all {
                return (done + left.div_ceil(stage.grad_accum_steps as u64)).max(1);
            }
            left -= all;
            done += steps;
        }
        (done + left.div_ceil(self.grad_accum_steps as u64)).max(1)
    }

    /// The most optimizer steps that take no more than `micro_steps`.
    pub fn steps_within(&self, micro_steps: u64) -> u64 {
        let steps = self.steps_of(micro_steps);
        steps - u64::from(self.micro_steps(steps) > micro_steps)
    }
}

/// Steps that a share of a run's steps is, rounded up as transformers does it (`get_warmup_steps`): a share of a short run is
/// at least one step.
pub(super) fn warmup_steps(ratio: f64, max_steps: u64) -> u64 {
    // 0.07 of 100 is 7, though the product is a bit more.
    (ratio * max_steps as f64 - 1e-6).ceil() as u64
}

impl RunConfig {
    /// Turns a share of the steps into the schedule's warm-up.
    pub(super) fn warm_up(&mut self) {
        if let Some(ratio) = self.train.warmup_ratio {
            let steps = warmup_steps(ratio, self.train.max_steps);
            self.schedule.set_warmup_steps(steps);
        }
    }

    /// Whether a new best is saved at once: if the spec says so, names a criterion or uses early stopping, or if the method has its own
    /// criterion, which goes up and down. A steadily falling validation loss would save at each evaluation.
    pub fn keeps_best(&self) -> bool {
        let said = self.eval.best_by.is_some() || self.eval.patience.is_some();
        said || self.checkpoint.save_best || !self.method.best().is_the_loss()
    }

    /// Whether an evaluation task measures what decides.
    pub fn is_decided_by_task(&self) -> bool {
        let by_task = |id: &String| id.starts_with(id::EVAL) && !self.eval.tasks.is_empty();
        self.eval.best_by.as_ref().is_some_and(by_task)
    }

    /// When what decides is measured.
    fn decides(&self) -> Every {
        match (self.is_decided_by_task(), self.eval.task_every) {
            (false, _) => self.eval.every,
            (true, 0) => Every::Share(0.25),
            (true, every) => Every::Steps(every),
        }
    }

    /// How many evaluations that measure what decides come before the last step. After that one nothing is left to stop.
    pub fn decisions(&self) -> u64 {
        let steps = self.train.max_steps;
        let during = match (self.is_decided_by_task(), self.eval.task_every) {
            (false, _) => before(steps, self.eval.every.steps(steps)),
            (true, 0) => quarters(steps),
            (true, every) => before(steps, every),
        };
        during + u64::from(self.decides_at_start())
    }

    /// Whether one of them comes before the first step: where tasks, completions or further sets are evaluated.
    pub fn decides_at_start(&self) -> bool {
        let answers = self.method.on_policy().is_some();
        self.is_decided_by_task() || answers || !self.eval.extra.is_empty()
    }

    /// When it saves, and what it keeps of that.
    pub fn saves(&self) -> Saves {
        Saves {
            steps: self.train.max_steps.max(1),
            every: self.checkpoint.every,
            // Each evaluation that measures what decides may be the best.
            best: self.keeps_best().then_some(self.decides()),
            keep_last: self.checkpoint.keep_last as u64,
            // Where rescues act, the beginning is saved too, and what they give up stays until the end.
            rescued: u64::from(self.rescue.policy == RescuePolicy::Act),
        }
    }

    /// When a run of `train.max_steps` is evaluated, sampled and saved: `evaluated every 2 steps, sampled every 5 steps, saved every 3
    /// steps, and at the end`.
    pub fn cadence_text(&self) -> String {
        let max_steps = self.train.max_steps;
        let each = [
            ("evaluated", self.eval.every.steps(max_steps)),
            ("sampled", self.sample.every.steps(max_steps)),
            ("saved", self.checkpoint.every.steps(max_steps)),
        ];
        let (due, last): (Vec<_>, Vec<_>) = each
            .iter()
            .partition(|(_, every)| (1..max_steps).contains(every));
        let said: Vec<String> = due
            .iter()
            .map(|(word, every)| match every {
                1 => format!("{word} every step"),
                n => format!("{word} every {} steps", human::grouped(*n)),
            })
            .collect();
        let last: Vec<&str> = last.iter().map(|(word, _)| *word).collect();
        match (said.is_empty(), last.is_empty()) {
            (false, true) => format!("{}, and at the end", said.join(", ")),
            (false, false) => format!("{}; {} at the end", said.join(", "), list(&last)),
            (true, _) => format!("{} at the end", list(&last)),
        }
    }
}

/// `evaluated, sampled and saved`
fn list(words: &[&str]) -> String {
    match words {
        [before @ .., last] if !before.is_empty() => format!("{} and {last}", before.join(", ")),
        _ => words.concat(),
    }
}

/// Multiples of `every` before the last step; 0 is never.
fn before(steps: u64, every: u64) -> u64 {
    steps.saturating_sub(1).checked_div(every).unwrap_or(0)
}

/// Quarters of a run that are steps of their own, before the last one.
fn quarters(steps: u64) -> u64 {
    let mut all = [1, 2, 3].map(|n| n * steps / 4).to_vec();
    all.dedup();
    all.iter().filter(|step| (1..steps).contains(*step)).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ramp(stages: &[(usize, u64)]) -> TrainConfig {
        TrainConfig {
            grad_accum_steps: 8,
            batch_ramp: stages
                .iter()
                .map(|(grad_accum_steps, until_step)| BatchStage {
                    grad_accum_steps: *grad_accum_steps,
                    until_step: *until_step,
                })
                .collect(),
            ..TrainConfig::default()
        }
    }

    #[test]
    fn evaluations_that_decide_are_those_before_the_last_step() {
        let mut config = RunConfig::default();
        let mut of = |steps, every| {
            config.train.max_steps = steps;
            config.eval.every = Every::of(every).unwrap();
            config.decisions()
        };
        assert_eq!([of(100, 25.0), of(100, 30.0), of(101, 25.0)], [3, 3, 4]);
        assert_eq!([of(100, 0.0), of(100, 200.0), of(100, 0.1)], [0, 0, 9]);
        config.eval.tasks = vec!["gsm8k".into()];
        assert_eq!(
            config.decisions(),
            9,
            "tasks are measured and decide nothing"
        );
        config.eval.best_by = Some("eval/gsm8k".into());
        let mut of = |steps, every| {
            (config.train.max_steps, config.eval.task_every) = (steps, every);
            config.decisions()
        };
        // The first is before the first step.
        assert_eq!(
            [of(100, 0), of(2, 0), of(100, 40), of(100, 100)],
            [4, 2, 3, 1]
        );
    }

    #[test]
    fn no_more_checkpoints_lie_on_the_disk_than_a_run_saves() {
        let mut config = RunConfig::default();
        config.checkpoint.keep_last = 3;
        config.rescue.policy = RescuePolicy::Warn;
        let mut at_once = |max_steps, every| {
            config.train.max_steps = max_steps;
            config.checkpoint.every = every;
            config.saves().at_once()
        };
        assert_eq!(at_once(1, Every::Steps(1)), 1);
        assert_eq!(at_once(1000, Every::Steps(0)), 1);
        assert_eq!(at_once(1000, Every::Steps(5000)), 1);
        assert_eq!(at_once(1000, Every::Steps(400)), 3);
        assert_eq!(at_once(1000, Every::Share(0.5)), 2);
        assert_eq!(at_once(1000, Every::Steps(10)), 5);
        config.checkpoint.every = Every::Steps(0);
        config.rescue.policy = RescuePolicy::Act;
        assert_eq!(config.saves().at_once(), 2);
        config.eval.every = Every::Steps(500);
        config.eval.best_by = Some("val_loss".into());
        assert_eq!(config.saves().at_once(), 4);
        (config.eval.best_by, config.eval.patience) = (None, Some(2));
        assert_eq!(config.saves().at_once(), 4);
        config.eval.every = Every::Steps(0);
        assert_eq!(config.saves().at_once(), 3);
        (config.eval.best_by, config.eval.tasks) = (Some("eval/a".into()), vec!["a".into()]);
        // At the quarters: more than are kept at once.
        assert_eq!(config.saves().at_once(), 6);
    }

    #[test]
    fn a_share_of_warm_up_is_rounded_up() {
        let steps = |ratio: f64, max_steps: u64| {
            let mut config = RunConfig::default();
            (config.train.warmup_ratio, config.train.max_steps) = (Some(ratio), max_steps);
            config.schedule = serde_json::from_str(r#"{"linear": {}}"#).unwrap();
            config.warm_up();
            config.schedule.warmup_steps()
        };
        assert_eq!((steps(0.03, 10), steps(0.1, 15), steps(0.1, 14)), (1, 2, 2));
        assert_eq!(
            (steps(0.07, 100), steps(0.1, 3000), steps(0.0, 10)),
            (7, 300, 0)
        );
    }

    #[test]
    fn the_rhythm_of_a_run_is_told_in_steps() {
        let rhythm = |eval: Every, save: Every, max_steps: u64| {
            let mut config = RunConfig::default();
            config.train.max_steps = max_steps;
            (
                config.eval.every,
                config.sample.every,
                config.checkpoint.every,
            ) = (eval, eval, save);
            config.cadence_text()
        };
        let (tenth, fifth) = (Every::Share(0.1), Every::Share(0.2));
        assert_eq!(
            rhythm(tenth, fifth, 15),
            "evaluated every 2 steps, sampled every 2 steps, saved every 3 steps, and at the end"
        );
        assert_eq!(
            rhythm(tenth, Every::Steps(500), 10),
            "evaluated every step, sampled every step; saved at the end"
        );
        let never = Every::Steps(0);
        assert_eq!(
            rhythm(never, never, 10),
            "evaluated, sampled and saved at the end"
        );
    }

    #[test]
    fn steps_and_micro_steps_say_the_same_with_and_without_a_ramp() {
        for train in [ramp(&[]), ramp(&[(1, 3)]), ramp(&[(2, 2), (4, 5)])] {
            let mut sum = 0;
            for step in 1..12 {
                // Each micro-step of a step belongs to it.
                for micro in sum + 1..=sum + train.accum(step) as u64 {
                    assert_eq!(
                        train.steps_of(micro),
                        step,
                        "{micro} of {:?}",
                        train.batch_ramp
                    );
                }
                sum += train.accum(step) as u64;
                assert_eq!(train.micro_steps(step), sum, "{:?}", train.batch_ramp);
            }
        }
        for micro in 0..40 {
            for train in [ramp(&[]), ramp(&[(1, 3)]), ramp(&[(2, 2), (4, 5)])] {
                let steps = train.steps_within(micro);
                let of = |steps| train.micro_steps(steps);
                assert!(of(steps) <= micro && of(steps + 1) > micro, "{micro}");
            }
        }
        let train = ramp(&[(2, 2), (4, 5)]);
        let each: Vec<usize> = (1..8).map(|step| train.accum(step)).collect();
        assert_eq!(each, [2, 2, 4, 4, 4, 8, 8]);
        assert_eq!((train.micro_steps(0), train.steps_of(0)), (0, 1));
    }
}
