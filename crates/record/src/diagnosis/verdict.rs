//! One word for a whole run.

use super::metric;
use super::view::View;
use crate::base::finding::{Finding, Status};
use crate::base::{human, stats};
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
        // Rules on rewards may warn about healthy runs; a warning about the loss does not determine a verdict.
        let bad = match finding.id.as_str() {
            "constant_reward" | "reward_hacking" => finding.status == Status::Fail,
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
        if let Some((first, best, (last, _))) = passes(view) {
            if last.lost(first, best.0) {
                return Verdict::NotLearning;
            }
            return match (last.exceeds(first), last.exceeds(Pass::NONE)) {
                (true, _) => Verdict::Learning,
                _ if view.state.step < view.patience() => Verdict::TooEarly,
                (false, false) if !gains(view) => Verdict::NotLearning,
                _ => Verdict::Stable,
            };
        }
        if let Some(rewards) = Rewards::of(view) {
            return match rewards.gained() {
                _ if view.state.step < view.patience() => Verdict::TooEarly,
                Some(true) => Verdict::Learning,
                Some(false) => Verdict::NotLearning,
                None => Verdict::Stable,
            };
        }
        let Some(loss) = view.loss() else {
            return Verdict::TooEarly;
        };
        let gained = loss.start - loss.now;
        match super::rules::direction(loss) {
            "falling" => Verdict::Learning,
            // Neither better nor yet judged.
            _ if gained <= 3.0 * loss.sigma && !view.past_patience() => Verdict::TooEarly,
            _ => Verdict::Stable,
        }
    }

    /// What it rests on: `train loss 4.15 → 1.76, val 1.88`, before training and the mean of the newest steps, as the rule `train_loss` has it; or the finding of the fault.
    pub(super) fn basis(self, view: &View<'_>, findings: &[Finding]) -> Finding {
        if let Some(finding) = findings.iter().find(|f| self.matches(f)) {
            return finding.clone();
        }
        if let Some(passes) = passes(view) {
            return self.of_passes(view, passes);
        }
        if let Some(rewards) = Rewards::of(view) {
            return self.of_rewards(&rewards);
        }
        let Some(loss) = view.loss() else {
            return Finding::pass("too few steps for a verdict");
        };
        // The same mean as that of the rule train_loss: a single batch would be another number on the same screen.
        let (start, now) = (human::number(loss.opening), human::number(loss.now));
        let mut text = format!("train loss {start} → {now}");
        if let Some(val) = view.state.latest(metric::VAL_LOSS) {
            text.push_str(&format!(", val {}", human::number(val)));
        }
        Finding::pass(text)
    }

    fn of_passes(self, view: &View<'_>, (first, best, last): Passes) -> Finding {
        if last.0.lost(first, best.0) {
            let text = format!(
                "pass@1 {:.2} → {:.2} at step {}, now {:.2} on held-out prompts",
                first.share,
                best.0.share,
                human::grouped(best.1),
                last.0.share
            );
            return lost(text);
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
                "rewards do not tell better completions from worse ones often enough",
                "use easier prompts, more completions per prompt, or SFT on correct answers first",
            )
        }
    }

    fn of_rewards(self, rewards: &Rewards) -> Finding {
        let [first, best, last] = [rewards.first, rewards.best.0, rewards.last].map(human::number);
        match self {
            Verdict::NotLearning => lost(format!(
                "reward of held-out prompts {first} → {best} at step {}, now {last}",
                human::grouped(rewards.best.1)
            )),
            _ => Finding::pass(format!("reward of held-out prompts {first} → {last}")),
        }
    }
}

/// Of a policy that has lost its gain.
fn lost(text: String) -> Finding {
    Finding {
        expected: "At most half of the best gain is lost again.".into(),
        source: TWO_ERRORS.into(),
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

/// The share of held-out prompts answered correctly, and their number.
#[derive(Debug, Clone, Copy)]
struct Pass {
    share: f64,
    prompts: f64,
}

impl Pass {
    /// Nothing correct, without uncertainty.
    const NONE: Pass = Pass {
        share: 0.0,
        prompts: f64::INFINITY,
    };

    /// Whether more than half of the gain since `first` is lost again, beyond chance.
    fn lost(self, first: Pass, best: Pass) -> bool {
        best.exceeds(self) && best.share - self.share > 0.5 * (best.share - first.share)
    }

    /// By more than two standard errors of the difference of two proportions, pooled.
    fn exceeds(self, other: Pass) -> bool {
        let (a, b) = (1.0 / self.prompts, 1.0 / other.prompts);
        // Weights n of each, which may be infinite: the pooled share is then that of the more certain one.
        let pooled = match b == 0.0 {
            true => self.share,
            false => (self.share * b + other.share * a) / (a + b),
        };
        self.share - other.share > 2.0 * (pooled * (1.0 - pooled) * (a + b)).sqrt()
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

/// For answers without a verifier: the mean rewards of held-out prompts.
struct Rewards {
    first: f64,
    /// And its step.
    best: (f64, u64),
    last: f64,
    /// Differences up to this are noise: three times the typical one between neighbours; unknown with few evaluations.
    noise: f64,
}

impl Rewards {
    fn of(view: &View<'_>) -> Option<Rewards> {
        let found = |e: &Evaluation| Some((*e.values.get(metric::EVAL_REWARD)?, e.step));
        let means: Vec<(f64, u64)> = alike(view, metric::EVAL_REWARD)
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
    fn gained(&self) -> Option<bool> {
        let lost = self.best.0 - self.last > 0.5 * (self.best.0 - self.first) + self.noise;
        if self.last < self.first - self.noise || lost {
            return Some(false);
        }
        (self.last > self.first + self.noise).then_some(true)
    }
}

/// Evaluations with a reading, over as many rows as the first of them: the last one of a run may use the whole split.
fn alike<'a>(view: &'a View<'_>, id: &str) -> Vec<&'a Evaluation> {
    let evaluations = view.state.evaluations.iter();
    let all: Vec<&Evaluation> = evaluations.filter(|e| e.values.contains_key(id)).collect();
    let rows = all.first().map(|e| e.n_windows);
    let same = all.iter().copied().filter(|e| Some(e.n_windows) == rows);
    let same: Vec<&Evaluation> = same.collect();
    if same.len() > 1 { same } else { all }
}

/// The first evaluation, the best one and the newest one with their steps.
type Passes = (Pass, (Pass, u64), (Pass, u64));

/// For a model that is evaluated by its answers.
fn passes(view: &View<'_>) -> Option<Passes> {
    let found = |e: &Evaluation| {
        let pass = Pass {
            share: *e.values.get(metric::PASS_AT_1)?,
            prompts: e.n_windows.max(1) as f64,
        };
        Some((pass, e.step))
    };
    let passes: Vec<(Pass, u64)> = alike(view, metric::PASS_AT_1)
        .into_iter()
        .filter_map(found)
        .collect();
    let best = passes.iter().copied();
    let best = best.max_by(|a, b| a.0.share.total_cmp(&b.0.share))?;
    match *passes {
        [first, .., last] => Some((first.0, best, last)),
        _ => None,
    }
}
