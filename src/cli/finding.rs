//! A finding as lines of text, for every verb that prints some.

use crate::base::finding::{Finding, Status};
use crate::base::text::{one_line, wrap};
use unicode_width::UnicodeWidthStr;

/// Columns in front of a title.
const MARK: usize = 9;
/// Most columns that wrapped lines are indented by.
const MAX_INDENT: usize = 30;

/// How a line says that a check passed or not.
pub fn word(status: Status) -> &'static str {
    match status {
        Status::Fail => "FAIL",
        Status::Warn => "warning",
        Status::Unknown => "unknown",
        Status::Pass => "ok",
        Status::NotApplicable => "–",
    }
}

/// ```text
/// FAIL     Clocks are not held back      GPU 0: too hot (hardware)
///          why   the hardware protects itself …
///          fix   check fans, airflow, dust
/// ```
/// The title takes `width` columns; `note` stands between it and the evidence.
pub fn rows(finding: &Finding, width: usize, note: &str) -> String {
    rows_in(finding, width, note, None)
}

/// The same, wrapped at words below their beginning on a terminal of so many columns.
pub fn rows_in(finding: &Finding, width: usize, note: &str, columns: Option<usize>) -> String {
    let mut seen = one_line(&finding.evidence.to_string());
    if !finding.place.is_empty() && !seen.contains(&finding.place) {
        seen = format!("{}: {seen}", one_line(&finding.place));
    }
    let (word, title) = (word(finding.status), one_line(&finding.title));
    let hung = |head: String, words: &str| {
        let rest = " ".repeat(head.width().min(MAX_INDENT));
        match columns {
            Some(columns) => wrap(words, columns, &head, &rest).join("\n") + "\n",
            None => format!("{head}{words}\n"),
        }
    };
    let mut text = hung(format!("{word:<8} {title:<width$}{note}  "), &seen);
    for (label, words) in [("why", &finding.cause), ("fix", &finding.fix)] {
        if !words.is_empty() {
            text.push_str(&hung(format!("{:MARK$}{label}   ", ""), &one_line(words)));
        }
    }
    text
}

/// `1 fail · 2 warnings · 28 pass`; what does not apply is counted last.
pub fn tally(findings: &[Finding]) -> String {
    let words = [
        (Status::Fail, ["fail", "fail"]),
        (Status::Warn, ["warning", "warnings"]),
        (Status::Unknown, ["unknown", "unknown"]),
        (Status::Pass, ["pass", "pass"]),
        (Status::NotApplicable, ["does not apply", "do not apply"]),
    ];
    let counted = words.into_iter().filter_map(|(status, words)| {
        let n = findings.iter().filter(|f| f.status == status).count();
        (n > 0).then(|| format!("{n} {}", words[usize::from(n > 1)]))
    });
    counted.collect::<Vec<_>>().join(" · ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_has_its_word_its_evidence_its_cause_and_its_fix_and_no_control_sequences() {
        let finding = Finding::fail("seen\x1b[2J", "because", "do this").named("x", "A check");
        let text = rows(&finding.at("step 9"), 12, " 0.25 s");
        assert!(
            text.starts_with("FAIL     A check      0.25 s  step 9: seen"),
            "{text}"
        );
        assert!(text.contains("why   because\n") && text.ends_with("fix   do this\n"));
        assert!(!text.contains('\x1b'));
    }

    #[test]
    fn long_findings_are_wrapped_at_words_below_their_beginning() {
        let fix =
            "lower the learning rate: -s lr=1e-3 and a longer warm-up against the first steps";
        let finding = Finding::warn("the loss rises", "steps overshoot", fix).named("x", "loss");
        let text = rows_in(&finding, 14, "", Some(60));
        assert!(text.lines().all(|line| line.len() <= 60), "{text}");
        let below = "\n               longer warm-up against the first steps\n";
        assert!(
            text.contains("fix   lower the") && text.ends_with(below),
            "{text}"
        );
        assert_eq!(rows(&finding, 14, "").lines().count(), 3);
    }

    #[test]
    fn statuses_are_counted_from_the_worst_on() {
        let findings = [
            Finding::pass("x"),
            Finding::warn("x", "", ""),
            Finding::warn("x", "", ""),
        ];
        assert_eq!(tally(&findings), "2 warnings · 1 pass");
    }
}
