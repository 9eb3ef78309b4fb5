//! The checks, in the order of a report: one file each and one word in the list below.

use super::subject::{Form, Subject};
use crate::base::finding::{Finding, Status};
use crate::base::text::one_line;

/// One check.
pub struct Check {
    /// In `--json`.
    pub id: &'static str,
    /// A few words for a row.
    pub title: &'static str,
    /// Everything that is to be said; one finding where all is well.
    run: fn(&Subject) -> Vec<Finding>,
}

macro_rules! checks {
    ($($check:ident)+) => {
        $(mod $check;)+

        /// Every check.
        pub const CHECKS: &[Check] = &[$($check::CHECK),+];
    };
}

checks! { safe secrets tables weights tokenizer generates template license checksums card }

pub use license::is_listed as license_is_listed;

/// Asks everything; `begin` hears of each check before it runs: some read all weights.
pub fn run(subject: &Subject, begin: &dyn Fn(&Check)) -> Vec<Finding> {
    let mut findings = Vec::new();
    for check in CHECKS {
        begin(check);
        let found = (check.run)(subject);
        let told = |finding| short(finding, subject).named(check.id, check.title);
        findings.extend(found.into_iter().map(|finding| told(finding).sanitized()));
    }
    findings
}

/// Files by their names in the folder, said once.
fn short(mut finding: Finding, subject: &Subject) -> Finding {
    let folder = subject.folder.display().to_string();
    // If all pass, only one of several model files is reported.
    let of_file = subject.form == Form::Gguf && finding.place.contains(".gguf");
    if finding.status >= Status::Pass && !of_file {
        finding.place.clear();
    }
    let place = format!("{}: ", finding.place);
    for signal in &mut finding.evidence.0 {
        let text = signal.text.replace(&format!("{folder}/"), "");
        let text = text.replace(&format!("{folder}: "), "");
        let text = text.replace(&format!("{folder} "), "it ");
        signal.text = text.strip_prefix(&place).unwrap_or(&text).to_string();
    }
    finding
}

/// `a.bin and 3 others`
fn several(names: &[String]) -> String {
    let first = names.first().map(|name| one_line(name)).unwrap_or_default();
    match names.len() {
        0 | 1 => first,
        n => format!("{first} and {} more", n - 1),
    }
}
