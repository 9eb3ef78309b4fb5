//! One word for a whole run.

use super::gains::{Pass, Passes, Rewards, TrainingReward, passes};
use super::metric;
use super::view::View;
use crate::base::finding::{Finding, Status};
use crate::base::human;
use crate::run::state::Evaluation;

/// The state of a training.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Diverged,
    NotLearning,
    Overfitting,
    /// The loss falls, over the newest quarter or overall.
    Learning,
    /// It has learned, and no longer changes beyond its noise.
    Stable,
    TooEarly,
}

impl Verdict {
    pub const ALL: [Verdict; 6] = [
        Verdict::Diverged,
        Verdict::NotLearning,
        Verdict::Overfitting,
        Verdict::Learning,
        Verdict::Stable,
        Verdict::TooEarly,
    ];

    /// The verdict of a name in a log or a list; `None` for one of a newer program.
    pub fn named(word: &str) -> Option<Verdict> {
        Verdict::ALL
            .into_iter()
            .find(|verdict| verdict.word() == word)
    }

    pub fn word(self) -> &'static str {
        match self {
            Verdict::Diverged => crate::run::index::DIVERGED,
            Verdict::NotLearning => "NOT LEARNING",
            Verdict::Overfitting => "OVERFITTING",
            Verdict::Learning => "LEARNING",
            Verdict::Stable => "STABLE",
            Verdict::TooEarly => crate::run::index::TOO_EARLY,
        }
    }

    /// Its severity.
    pub fn status(self) -> Status {
        match self {
            Verdict::Diverged | Verdict::NotLearning => Status::Fail,
            Verdict::Overfitting => Status::Warn,
            Verdict::Learning | Verdict::Stable => Status::Pass,
            Verdict::TooEarly => Status::Unknown,
        }
    }

    /// The rules behind it, for verdicts that name a fault.
    pub fn rules(self) -> &'static [&'static str] {
        match self {
            Verdict::Diverged => &["diverged"],
            Verdict::NotLearning => &[
                "not_learning",
                "token_frequencies",
                "sudden_drop",
                "empty_answers",
                "constant_reward",
                "reward_hacking",
            ],
            Verdict::Overfitting => &["overfitting"],
            Verdict::Learning | Verdict::Stable | Verdict::TooEarly => &[],
        }
    }

    /// Whether a finding names its fault.
    fn matches(self, finding: &Finding) -> bool {
        // These may warn about healthy runs: a warning of theirs does not determine a verdict.
        let bad = match finding.id.as_str() {
            "constant_reward" | "reward_hacking" | "token_frequencies" | "sudden_drop" => {
                finding.status == Status::Fail
            }
            _ => finding.status <= Status::Warn,
        };
        bad && self.rules().contains(&finding.id.as_str())
    }

    pub(super) fn of(view: &View<'_>, findings: &[Finding]) -> Verdict {
        let faults = [
            Verdict::Diverged,
            Verdict::NotLearning,
            Verdict::Overfitting,
        ];
        let said = |verdict: &Verdict| findings.iter().any(|f| verdict.matches(f));
        if let Some(fault) = faults.into_iter().find(said) {
            return fault;
        }
        if let Some(verdict) = Verdict::of_rl(view) {
            return verdict;
        }
        let Some(loss) = view.loss() else {
            return Verdict::TooEarly;
        };
        let gained = loss.start - loss.now;
        match super::rules::direction(loss) {
            // Weights that were better before: the rule not_learning says so once it no longer falls.
            _ if super::rules::is_worse(view, loss) => Verdict::TooEarly,
            "falling" => Verdict::Learning,
            // Neither better nor yet judged.
            _ if gained <= 3.0 * loss.sigma && !view.past_patience() => Verdict::TooEarly,
            _ => Verdict::Stable,
        }
    }

    /// Of a run that learns from its own answers: by held-out prompts, or in logs of other programs by training prompts. A loss is that
    /// of the cold start, and says nothing of it.
    fn of_rl(view: &View<'_>) -> Option<Verdict> {
        let begun = if view.has_rollouts() {
            view.cold_start()
        } else {
            0
        };
        let early = view.state.step < begun + view.patience();
        if let Some(passes) = passes(view) {
            if passes.lost() {
                return Some(Verdict::NotLearning);
            }
            let (first, last) = (passes.first, passes.last.0);
            return Some(match (last.exceeds(first), last.exceeds(Pass::NONE)) {
                (true, _) => Verdict::Learning,
                _ if early => Verdict::TooEarly,
                (false, false) if !gains(view) => Verdict::NotLearning,
                _ => Verdict::Stable,
            });
        }
        let gained = match (Rewards::of(view), TrainingReward::of(view)) {
            (Some(rewards), _) => rewards.gained(),
            (None, Some(rewards)) => rewards.gained(),
            (None, None) => return view.has_rollouts().then_some(Verdict::TooEarly),
        };
        Some(match gained {
            _ if early => Verdict::TooEarly,
            Some(true) => Verdict::Learning,
            Some(false) => Verdict::NotLearning,
            None => Verdict::Stable,
        })
    }

    /// What it rests on: `train loss 4.15 → 1.76, val 1.88`, before training and the mean of the newest steps, as the rule `train_loss` has it; or the finding of the fault.
    pub(super) fn basis(self, view: &View<'_>, findings: &[Finding]) -> Finding {
        if let Some(finding) = findings.iter().find(|f| self.matches(f)) {
            return finding.clone();
        }
        // Too early, and why nothing came of the steps so far.
        let signal = findings
            .iter()
            .find(|f| f.id == "constant_reward" && f.status <= Status::Warn);
        if let (Verdict::TooEarly, Some(finding)) = (self, signal) {
            return finding.clone();
        }
        if let Some(passes) = passes(view) {
            return self.of_passes(view, passes);
        }
        if let Some(rewards) = Rewards::of(view) {
            return self.of_rewards(&rewards);
        }
        if let Some(rewards) = TrainingReward::of(view) {
            return self.of_training(&rewards);
        }
        if view.has_rollouts() && !view.state.is_foreign() {
            return Finding::pass("too few evaluations of held-out prompts for a verdict");
        }
        let loss = match view.loss() {
            Some(loss) if !view.has_rollouts() => loss,
            _ => return Finding::pass("too few steps for a verdict"),
        };
        // The same mean as that of the rule train_loss: a single batch would be another number on the same screen.
        let (start, now) = (human::number(loss.opening), human::number(loss.now));
        let mut text = format!("train loss {start} → {now}");
        if let Some(step) = loss.since {
            let step = human::grouped(step);
            text.push_str(&format!(" since the reference moved after step {step}"));
        }
        if let Some(val) = view.state.latest(metric::VAL_LOSS) {
            text.push_str(&format!(", val {}", human::number(val)));
        }
        Finding::pass(text)
    }

    fn of_passes(self, view: &View<'_>, passes: Passes) -> Finding {
        let Passes {
            first, best, last, ..
        } = passes;
        if passes.lost() {
            let mut text = format!(
                "pass@1 {:.2} → {:.2} at step {}, now {:.2} on held-out prompts",
                first.share,
                best.0.share,
                human::grouped(best.1),
                last.0.share
            );
            text.push_str(&on_more_prompts(view, last.1));
            return lost(text, TWO_FALLS);
        }
        let mut text = format!(
            "pass@1 {:.2} → {:.2} on held-out prompts",
            first.share, last.0.share
        );
        text.push_str(&on_more_prompts(view, last.1));
        if let Some(reward) = view.state.latest(metric::REWARD) {
            text.push_str(&format!(", reward {}", human::number(reward)));
        }
        if self != Verdict::NotLearning {
            return Finding::pass(text);
        }
        Finding {
            expected: "More held-out prompts are answered right than before training.".into(),
            source: TWO_ERRORS.into(),
            ..Finding::fail(
                text,
                "rewards do not rank completions often enough",
                "use easier prompts, more completions per prompt, or SFT on correct answers first",
            )
        }
    }

    fn of_rewards(self, rewards: &Rewards) -> Finding {
        let [first, best, last] = [rewards.first, rewards.best.0, rewards.last].map(human::number);
        match self {
            Verdict::NotLearning => lost(
                format!(
                    "reward of held-out prompts {first} → {best} at step {}, now {last}",
                    human::grouped(rewards.best.1)
                ),
                TWO_ERRORS,
            ),
            _ => Finding::pass(format!("reward of held-out prompts {first} → {last}")),
        }
    }

    fn of_training(self, rewards: &TrainingReward) -> Finding {
        let [first, middle, last] =
            [rewards.first, rewards.middle, rewards.last].map(human::number);
        match self {
            Verdict::NotLearning => Finding {
                expected: "The reward of training prompts does not fall below its first third, and keeps half of its gain.".into(),
                source: "three standard errors of the difference of two means, and half of the gain: rules of thumb".into(),
                ..Finding::fail(
                    format!("reward of training prompts {first} → {middle} → {last} in the thirds of the run"),
                    "the policy has lost its gain",
                    "continue from an earlier checkpoint with a lower learning rate or a higher beta",
                )
            },
            _ => Finding::pass(format!(
                "reward of training prompts {first} → {last}, first and last third of the run"
            )),
        }
    }
}

/// Of a policy that has lost its gain.
fn lost(text: String, source: &str) -> Finding {
    Finding {
        expected: "At most half of the best gain is lost again.".into(),
        source: source.into(),
        ..Finding::fail(text, "the policy has lost its gain", AGAIN)
    }
}

/// ` at step 1,450 (0.92 on all 400 at step 1,500)`, where the last evaluation read more prompts than those that are compared.
fn on_more_prompts(view: &View<'_>, step: u64) -> String {
    let share = |e: &Evaluation| e.values.get(metric::PASS_AT_1).copied();
    let evaluations = view.state.evaluations.iter().rev();
    let newest = evaluations.filter_map(|e| Some((share(e)?, e))).next();
    match newest.filter(|(_, e)| e.step > step) {
        Some((share, e)) => format!(
            " at step {} ({share:.2} on {}{} at step {})",
            human::grouped(step),
            if e.whole { "all " } else { "" },
            human::grouped(e.n_windows),
            human::grouped(e.step)
        ),
        None => String::new(),
    }
}

/// Whether the reward on training prompts rises while held-out ones do not pass yet.
fn gains(view: &View<'_>) -> bool {
    view.first_and_last_third(metric::REWARD)
        .is_some_and(|(first, last)| last > first)
}

/// The fix for a policy that has lost its gain.
const AGAIN: &str =
    "go on from the best checkpoint (train --branch) with a lower learning rate or a higher beta";

/// Where the thresholds of held-out readings come from.
const TWO_ERRORS: &str =
    "two standard errors of the difference, and half of the gain: rules of thumb";

/// Where those of a lost gain in pass@1 come from.
const TWO_FALLS: &str = "a fall of 0.1 and two standard errors in two evaluations, or four in the newest, and half of the gain: rules of thumb";
