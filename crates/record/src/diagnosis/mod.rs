//! How training is going: rules over the fold of a run's events, and one verdict for the whole. The same rules judge a live
//! run, a headless one and a finished log; nothing here accesses files, clocks or the screen. Thresholds and their sources:
//! docs/diagnosis.md.

mod fix;
mod gains;
mod monitor;
mod rules;
pub mod scales;
mod settle;
mod verdict;
mod view;

pub use fix::settings;
pub use monitor::Monitor;
pub use rules::RULES;
pub use verdict::Verdict;
pub use view::View;

use crate::base::finding::{Finding, Status};
use crate::base::registry::Entry;
use crate::run::RunState;
use crate::wire::id as metric;

/// One rule: a file of `rules/` and a word in its list.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// Its id, the title of its row, what passes, and the source of the threshold.
    pub entry: Entry,
    /// Ids of the metrics that it needs: without one of them it is skipped.
    pub needs: &'static [&'static str],
    /// `None` if there is nothing to report yet, or another rule reports it.
    pub judge: fn(&View<'_>) -> Option<Finding>,
}

/// The result of all rules for a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Diagnosis {
    pub verdict: Verdict,
    /// The verdict's numbers, and what to do about it: one sentence.
    pub summary: String,
    /// The same in its parts: evidence, cause, fix, and what would pass.
    pub basis: Finding,
    /// In the order of the rules.
    pub findings: Vec<Finding>,
}

/// Id of the finding that represents the verdict in a log; `run::index` reads it for lists of runs.
pub const VERDICT: &str = crate::run::index::VERDICT;

impl Diagnosis {
    /// Rewards that are all the same: every advantage is 0, and so is every gradient of them.
    pub fn has_no_signal(&self) -> bool {
        let rule = self
            .findings
            .iter()
            .find(|finding| finding.id == "constant_reward");
        rule.is_some_and(|finding| finding.status <= Status::Warn)
    }

    /// The verdict as a finding: its title is the verdict's name.
    pub fn finding(&self) -> Finding {
        Finding {
            status: self.verdict.status(),
            place: String::new(),
            ..self.basis.clone().named(VERDICT, self.verdict.word())
        }
    }

    /// The findings that suggest settings: failures before warnings.
    pub fn advice(&self) -> impl Iterator<Item = &Finding> {
        let of = |status: Status| self.findings.iter().filter(move |f| f.status == status);
        let wrong = of(Status::Fail).chain(of(Status::Warn));
        wrong.filter(|finding| !finding.changes().is_empty())
    }

    /// The finding whose settings are suggested first.
    pub fn advised(&self) -> Option<&Finding> {
        self.advice().next()
    }

    /// The verdict first, then the findings, for JSON.
    pub fn list(&self) -> Vec<Finding> {
        let mut list = vec![self.finding()];
        list.extend(self.findings.iter().cloned());
        list
    }

    /// Whether a rule fails, or the verdict does without a rule that names the fault.
    pub fn failed(&self) -> bool {
        self.list().iter().any(|f| f.status == Status::Fail)
    }

    /// The most important finding: the first of the worst.
    pub fn worst(&self) -> Option<&Finding> {
        self.findings.iter().min_by_key(|f| f.status)
    }
}

/// Judges a run by every rule. Fast enough for every frame: each rule reads a few hundred points, whatever the run's length.
pub fn diagnose(state: &RunState) -> Diagnosis {
    let view = View::of(state);
    let mut findings: Vec<Finding> = RULES
        .iter()
        .filter_map(|rule| rule.evaluate(&view))
        .collect();
    // Findings of a newer engine by rules unknown here.
    let known = |id: &str| id == VERDICT || RULES.iter().any(|rule| rule.entry.id == id);
    let foreign = state.diagnosed.values().map(|d| &d.finding);
    findings.extend(
        foreign
            .filter(|f| !known(&f.id) && f.status <= Status::Warn)
            .cloned(),
    );
    settle::settle(&mut findings, &|name| setting(state, name));
    let verdict = Verdict::of(&view, &findings);
    let basis = verdict.basis(&view, &findings);
    let summary = match basis.fix.as_str() {
        "" => basis.evidence.to_string(),
        fix => format!("{}; {fix}", basis.evidence),
    };
    Diagnosis {
        verdict,
        summary,
        basis,
        findings,
    }
}

/// The run's own value of a setting that a fix may change: as adjusted live, or as in its spec.
fn setting(state: &RunState, name: &fix::Name) -> Option<f64> {
    let live = name.live().and_then(|key| state.settings.get(key)).copied();
    let value = live.or_else(|| name.value(&state.head.as_ref()?.spec))?;
    // A norm of 0 does not clip.
    Some(match name.theirs {
        "max_grad_norm" if value == 0.0 => f64::INFINITY,
        _ => value,
    })
}

/// Whether a rule warns about a run: for screens that judge the same reading.
pub fn warns(state: &RunState, id: &str) -> bool {
    let rule = RULES.iter().find(|rule| rule.entry.id == id);
    let found = rule.and_then(|rule| rule.evaluate(&View::of(state)));
    found.is_some_and(|found| found.status <= Status::Warn)
}

impl Rule {
    /// The finding of a rule that no longer applies.
    fn clear(&self) -> Finding {
        Finding::pass("clear").named(self.entry.id, self.entry.title)
    }

    /// The rule's finding under its name.
    fn evaluate(&self, view: &View<'_>) -> Option<Finding> {
        if !self
            .needs
            .iter()
            .all(|id| view.state.series.contains_key(*id) || view.state.layers.contains_key(*id))
        {
            return None;
        }
        let mut found = (self.judge)(view)?;
        let reader = match (view.state.is_foreign(), &view.state.head) {
            (false, Some(head)) => fix::Reader::Ours(&head.method),
            (false, None) => fix::Reader::Ours(""),
            (true, _) => fix::Reader::Foreign,
        };
        found.fix = fix::render(&found.fix, reader);
        Some(Finding {
            expected: self.entry.summary.into(),
            source: self.entry.source.into(),
            ..found.named(self.entry.id, self.entry.title)
        })
    }
}

#[cfg(test)]
mod answer_tests;
#[cfg(test)]
mod tests;
