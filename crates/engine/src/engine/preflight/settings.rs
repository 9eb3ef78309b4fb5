//! Valid settings that are probably mistakes, for the sizes of this data. Only a warning: the run starts all the same.

use super::{Check, Subject};
use crate::base::finding::{Finding, Signal};
use crate::data::Dataset;
use crate::engine::EngineError;
use crate::spec::RunSpec;

pub const CHECK: Check = Check {
    id: "settings",
    title: "settings",
    computes: false,
    run,
};

fn run(subject: &mut Subject<'_>) -> Result<Finding, EngineError> {
    Ok(of(subject.spec, subject.data, subject.ranks))
}

/// The review of a spec on its data and so many ranks, as one finding.
pub fn of(spec: &RunSpec, data: &Dataset, ranks: Option<u64>) -> Finding {
    judge(&spec.review_on(data, ranks))
}

/// One warning of all of them.
fn judge(found: &[Finding]) -> Finding {
    if found.is_empty() {
        return Finding::pass(
            "learning rate, warm-up, batch, decay, data and precision are in typical ranges",
        );
    }
    let signals = found.iter().map(|f| Signal {
        text: format!("{}: {}", f.place, f.evidence),
        ..Signal::default()
    });
    let signals: Vec<Signal> = signals.collect();
    let sources: Vec<&str> = found.iter().map(|f| f.source.as_str()).collect();
    // Behind all causes each fix says which of them is its own.
    let fix = |f: &Finding| match found.len() {
        1 => f.fix.clone(),
        _ => format!("for {}: {}", f.place, f.fix),
    };
    let fixes = found.iter().filter(|f| !f.fix.is_empty()).map(fix);
    let fixes: Vec<String> = fixes.collect();
    Finding {
        source: sources.join("; "),
        ..Finding::warn(signals, "", fixes.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::finding::Status;

    #[test]
    fn all_that_is_advised_is_one_warning_with_every_change() {
        assert_eq!(judge(&[]).status, Status::Pass);
        let one = |place: &str, fix: &str| Finding::warn("odd", "", fix).at(place);
        let found = judge(&[one("optimizer", "-s lr=1e-3"), one("schedule", "-s a.b=2")]);
        assert_eq!(found.status, Status::Warn);
        assert_eq!(found.evidence.to_string(), "optimizer: odd; schedule: odd");
        assert_eq!(found.changes(), ["lr=1e-3", "a.b=2"]);
        // Each fix beside its cause.
        let fixes = "for optimizer: -s lr=1e-3; for schedule: -s a.b=2";
        assert_eq!(found.fix, fixes);
        assert_eq!(judge(&[one("optimizer", "-s lr=1e-3")]).fix, "-s lr=1e-3");
    }
}
