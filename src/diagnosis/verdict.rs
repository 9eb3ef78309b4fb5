//! One word for a whole run.

use super::rules::metric;
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
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Diverged => "DIVERGED",
            Verdict::NotLearning => "NOT LEARNING",
            Verdict::Overfitting => "OVERFITTING",
            Verdict::Learning => "LEARNING",
            Verdict::Stable => "STABLE",
            Verdict::TooEarly => "TOO EARLY",
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

    /// The rule that stands behind it, for those that name a fault.
    fn rule(self) -> Option<&'static str> {
        match self {
            Verdict::Diverged => Some("diverged"),
            Verdict::NotLearning => Some("not_learning"),
            Verdict::Overfitting => Some("overfitting"),
            Verdict::Learning | Verdict::Stable | Verdict::TooEarly => None,
        }
    }

    pub(super) fn of(view: &View<'_>, findings: &[Finding]) -> Verdict {
        let faults = [
            Verdict::Diverged,
            Verdict::NotLearning,
            Verdict::Overfitting,
        ];
        let said = |verdict: &Verdict| {
            let bad =
                |f: &Finding| Some(f.id.as_str()) == verdict.rule() && f.status <= Status::Warn;
            findings.iter().any(bad)
        };
        if let Some(fault) = faults.into_iter().find(said) {
            return fault;
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

    /// `train loss 4.15 → 1.76, val 1.88`, or the evidence of the fault and what helps.
    pub(super) fn summary(self, view: &View<'_>, findings: &[Finding]) -> String {
        let fault = self
            .rule()
            .and_then(|rule| findings.iter().find(|f| f.id == rule));
        if let Some(finding) = fault {
            return format!("{}; {}", finding.evidence, finding.fix);
        }
        let Some(loss) = view.loss() else {
            return "too few steps to judge".into();
        };
        let (start, now) = (human::number(loss.start), human::number(loss.now));
        let mut text = format!("train loss {start} → {now}");
        if let Some(val) = view.state.latest(metric::VAL_LOSS) {
            text.push_str(&format!(", val {}", human::number(val)));
        }
        text
    }
}
