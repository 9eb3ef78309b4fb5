//! How training is going: rules over the fold of a run's events, and one verdict for the whole. The same rules judge a live
//! run, a headless one and a finished log; nothing here reads a file, a clock or a screen. Thresholds and their sources:
//! docs/diagnosis.md.

mod fix;
mod rules;
mod verdict;
mod view;
mod watch;

pub use fix::settings;
pub use rules::RULES;
pub use verdict::Verdict;
pub use view::View;
pub use watch::Watch;

use crate::base::finding::{Finding, Status};
use crate::base::registry::Entry;
use crate::run::RunState;
use crate::wire::id as metric;

/// One rule: a file of `rules/` and a word in its list.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// Its word, the label of its row, what passes, and where the threshold comes from.
    pub entry: Entry,
    /// Ids of the metrics that it reads: without one of them it is not asked.
    pub needs: &'static [&'static str],
    /// `None` where there is nothing to say yet, or where another rule says it.
    pub judge: fn(&View<'_>) -> Option<Finding>,
}

/// What the rules say of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Diagnosis {
    pub verdict: Verdict,
    /// The verdict's numbers, and what to do about it: one sentence.
    pub summary: String,
    /// In the order of the rules.
    pub findings: Vec<Finding>,
}

/// Id of the finding that holds the verdict in a log; `run::index` reads it for lists of runs.
pub const VERDICT: &str = crate::run::index::VERDICT;

impl Diagnosis {
    /// The verdict as a finding: its title is the word, its evidence the numbers.
    pub fn finding(&self) -> Finding {
        Finding {
            status: self.verdict.status(),
            ..Finding::pass(self.summary.as_str()).named(VERDICT, self.verdict.word())
        }
    }

    /// The finding whose settings are advised first: what failed before what is only doubtful.
    pub fn advised(&self) -> Option<&Finding> {
        let of = |status: Status| self.findings.iter().filter(move |f| f.status == status);
        let mut wrong = of(Status::Fail).chain(of(Status::Warn));
        wrong.find(|finding| !finding.changes().is_empty())
    }

    /// The verdict first, then the findings: what programs read.
    pub fn list(&self) -> Vec<Finding> {
        let mut list = vec![self.finding()];
        list.extend(self.findings.iter().cloned());
        list
    }

    /// Whether something fails: a rule, or the verdict on what the rules are too careful to name.
    pub fn failed(&self) -> bool {
        self.list().iter().any(|f| f.status == Status::Fail)
    }

    /// The finding that matters most: the first of the worst.
    pub fn worst(&self) -> Option<&Finding> {
        self.findings.iter().min_by_key(|f| f.status)
    }
}

/// Judges a run by every rule. Cheap enough for a screen: each rule reads a few hundred points, whatever the run's length.
pub fn diagnose(state: &RunState) -> Diagnosis {
    let view = View::of(state);
    let mut findings: Vec<Finding> = RULES.iter().filter_map(|rule| rule.ask(&view)).collect();
    // What a newer engine said by rules that are unknown here.
    let known = |id: &str| id == VERDICT || RULES.iter().any(|rule| rule.entry.id == id);
    let foreign = state.diagnosed.values().map(|d| &d.finding);
    findings.extend(
        foreign
            .filter(|f| !known(&f.id) && f.status <= Status::Warn)
            .cloned(),
    );
    let verdict = Verdict::of(&view, &findings);
    Diagnosis {
        verdict,
        summary: verdict.summary(&view, &findings),
        findings,
    }
}

impl Rule {
    /// It has nothing to say any more.
    fn clear(&self) -> Finding {
        Finding::pass("clear").named(self.entry.id, self.entry.title)
    }

    /// The rule's finding under its name.
    fn ask(&self, view: &View<'_>) -> Option<Finding> {
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
