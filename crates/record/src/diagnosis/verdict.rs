//! One word for a whole run.

use super::metric;
use super::view::View;
use crate::base::finding::{Finding, Status};
use crate::base::human;

/// How a training stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Diverged,
    NotLearning,
    Overfitting,
    /// The loss falls, over the newest quarter or on the whole.
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

    /// The one of a word in a log or a list; `None` where a newer program wrote another.
    pub fn named(word: &str) -> Option<Verdict> {
        Verdict::ALL
            .into_iter()
            .find(|verdict| verdict.word() == word)
    }

    pub fn word(self) -> &'static str {
        match self {
            Verdict::Diverged => "DIVERGED",
            Verdict::NotLearning => "NOT LEARNING",
            Verdict::Overfitting => "OVERFITTING",
            Verdict::Learning => "LEARNING",
            Verdict::Stable => "STABLE",
            Verdict::TooEarly => crate::run::index::TOO_EARLY,
        }
    }

    /// How bad it is.
    pub fn status(self) -> Status {
        match self {
            Verdict::Diverged | Verdict::NotLearning => Status::Fail,
            Verdict::Overfitting => Status::Warn,
            Verdict::Learning | Verdict::Stable => Status::Pass,
            Verdict::TooEarly => Status::Unknown,
        }
    }

    /// The rules that stand behind it, for those that name a fault.
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
    fn is_of(self, finding: &Finding) -> bool {
        // Rules on rewards warn of what may be well; a loss that warns is no verdict of these alone.
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
        let said = |verdict: &Verdict| findings.iter().any(|f| verdict.is_of(f));
        if let Some(fault) = faults.into_iter().find(said) {
            return fault;
        }
        if let Some((first, last)) = passes(view) {
            return match (last.exceeds(first), last.exceeds(Pass::NONE)) {
                (true, _) => Verdict::Learning,
                _ if view.state.step < view.patience() => Verdict::TooEarly,
                (false, false) if !gains(view) => Verdict::NotLearning,
                _ => Verdict::Stable,
            };
        }
        if let Some((first, last)) = rewards(view) {
            return match last > first {
                _ if view.state.step < view.patience() => Verdict::TooEarly,
                true => Verdict::Learning,
                false => Verdict::Stable,
            };
        }
        let Some(loss) = view.loss() else {
            return Verdict::TooEarly;
        };
        let gained = loss.start - loss.now;
        match super::rules::direction(loss) {
            "falling" => Verdict::Learning,
            // Neither better nor yet judged.
            _ if gained <= 3.0 * loss.sigma && view.state.step < view.patience() => {
                Verdict::TooEarly
            }
            _ => Verdict::Stable,
        }
    }

    /// `train loss 4.15 → 1.76, val 1.88`: before training and at the newest step; or the evidence of the fault and what helps.
    pub(super) fn summary(self, view: &View<'_>, findings: &[Finding]) -> String {
        if let Some(finding) = findings.iter().find(|f| self.is_of(f)) {
            return format!("{}; {}", finding.evidence, finding.fix);
        }
        if let Some((first, last)) = passes(view) {
            let mut text = format!(
                "pass@1 {:.2} → {:.2} on held-out prompts",
                first.share, last.share
            );
            if let Some(reward) = view.state.latest(metric::REWARD) {
                text.push_str(&format!(", reward {}", human::number(reward)));
            }
            if self == Verdict::NotLearning {
                text.push_str(
                    "; use easier prompts, more completions per prompt, or SFT on correct answers first",
                );
            }
            return text;
        }
        if let Some((first, last)) = rewards(view) {
            return format!(
                "reward of held-out prompts {} → {}",
                human::number(first),
                human::number(last)
            );
        }
        let Some(loss) = view.loss() else {
            return "too few steps for a verdict".into();
        };
        // As the last step was logged: a mean over the newest steps of a short run is none of its values.
        let newest = view.state.latest(metric::LOSS).unwrap_or(loss.now);
        let (start, now) = (human::number(loss.opening), human::number(newest));
        let mut text = format!("train loss {start} → {now}");
        if let Some(val) = view.state.latest(metric::VAL_LOSS) {
            text.push_str(&format!(", val {}", human::number(val)));
        }
        text
    }
}

/// The share of held-out prompts that were answered right, and of how many.
#[derive(Debug, Clone, Copy)]
struct Pass {
    share: f64,
    prompts: f64,
}

impl Pass {
    /// Nothing right, without doubt.
    const NONE: Pass = Pass {
        share: 0.0,
        prompts: f64::INFINITY,
    };

    /// Beyond two standard errors of the difference of two proportions, pooled.
    fn exceeds(self, other: Pass) -> bool {
        let (a, b) = (1.0 / self.prompts, 1.0 / other.prompts);
        // Weights n of each, which may be infinite: the pooled share is that of the more certain one then.
        let pooled = match b == 0.0 {
            true => self.share,
            false => (self.share * b + other.share * a) / (a + b),
        };
        self.share - other.share > 2.0 * (pooled * (1.0 - pooled) * (a + b)).sqrt()
    }
}

/// Whether the reward of training prompts rises, where held-out ones do not pass yet.
fn gains(view: &View<'_>) -> bool {
    view.first_and_last_third(metric::REWARD)
        .is_some_and(|(first, last)| last > first)
}

/// Of answers that no verifier judges: the mean reward of held-out prompts at the first and the newest evaluation.
fn rewards(view: &View<'_>) -> Option<(f64, f64)> {
    let found = |e: &crate::run::state::Evaluation| e.values.get(metric::EVAL_REWARD).copied();
    let means: Vec<f64> = view.state.evaluations.iter().filter_map(found).collect();
    match *means {
        [first, .., last] => Some((first, last)),
        _ => None,
    }
}

/// Of a model that is evaluated by its answers: the first and the newest evaluation.
fn passes(view: &View<'_>) -> Option<(Pass, Pass)> {
    let found = |e: &crate::run::state::Evaluation| {
        Some(Pass {
            share: *e.values.get(metric::PASS)?,
            prompts: e.n_windows.max(1) as f64,
        })
    };
    let passes: Vec<Pass> = view.state.evaluations.iter().filter_map(found).collect();
    match *passes {
        [first, .., last] => Some((first, last)),
        _ => None,
    }
}
