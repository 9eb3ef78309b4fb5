//! Findings of one report never advise opposite changes of one setting: the one with the stronger evidence keeps its advice, the
//! other its cause, without the setting. Reads fixes as they are shown, in words and as settings.

use super::fix::{Name, names};
use crate::base::finding::{Finding, Status};
use std::cmp::Reverse;

/// Which way a fix changes a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Up,
    Down,
}

/// What a fix says in words about the learning rate.
const RATE: &str = "learning_rate";
const WORDS: [(&str, Way); 5] = [
    ("raise the learning rate", Way::Up),
    ("higher learning rate", Way::Up),
    ("lower the learning rate", Way::Down),
    ("lower learning rate", Way::Down),
    ("smaller learning rate", Way::Down),
];
/// The critic has a rate of its own.
const OF_ANOTHER: &str = " of the critic";
/// Words in front of a setting.
const RAISE: [&str; 3] = ["raise", "higher", "larger"];
const LOWER: [&str; 4] = ["lower", "smaller", "fewer", "reduce"];

/// A part of a fix that can be followed by itself.
fn clauses(fix: &str) -> impl Iterator<Item = &str> {
    fix.split("; ")
}

/// The settings that a clause changes, by the field's name. `now`: the run's own value, where it is known.
fn changes(clause: &str, now: &dyn Fn(&Name) -> Option<f64>) -> Vec<(&'static str, Way)> {
    let mut found = Vec::new();
    for (words, way) in WORDS {
        let mut rest = clause;
        while let Some((_, behind)) = rest.split_once(words) {
            if !behind.starts_with(OF_ANOTHER) {
                found.push((RATE, way));
            }
            rest = behind;
        }
    }
    let ends = |c: char| c.is_whitespace() || [',', '(', ')', '`'].contains(&c);
    let mut before = "";
    for word in clause.split(ends).filter(|word| !word.is_empty()) {
        let (key, value) = match word.split_once('=') {
            Some((key, value)) => (key, value.parse::<f64>().ok()),
            None => (word, None),
        };
        if let Some(name) = names().find(|name| name.is(key)) {
            let way = match (value, now(&name)) {
                (Some(value), Some(now)) if value > now => Some(Way::Up),
                (Some(value), Some(now)) if value < now => Some(Way::Down),
                _ if RAISE.contains(&before) => Some(Way::Up),
                _ if LOWER.contains(&before) => Some(Way::Down),
                _ => None,
            };
            found.extend(way.map(|way| (name.theirs, way)));
        }
        before = word;
    }
    found
}

/// Two findings, by their places in the list, that advise opposite changes of one setting: the stronger one first.
fn opposed(
    findings: &[Finding],
    now: &dyn Fn(&Name) -> Option<f64>,
) -> Option<(usize, usize, &'static str)> {
    let mut wrong: Vec<usize> = (0..findings.len())
        .filter(|i| findings[*i].status <= Status::Warn)
        .collect();
    // What was expected before the first step weighs less than what was measured.
    let strength = |i: &usize| {
        let finding = &findings[*i];
        let expected = finding.id == "preflight";
        (
            finding.status,
            expected,
            Reverse(finding.evidence.0.len()),
            *i,
        )
    };
    wrong.sort_by_key(strength);
    let ways = |i: usize| -> Vec<_> {
        let clauses = clauses(&findings[i].fix);
        clauses.flat_map(|clause| changes(clause, now)).collect()
    };
    for (at, strong) in wrong.iter().enumerate() {
        let stands = ways(*strong);
        for weak in &wrong[at + 1..] {
            let against = |(name, way): &(&'static str, Way)| {
                stands
                    .iter()
                    .any(|(other, stays)| other == name && stays != way)
            };
            if let Some((name, _)) = ways(*weak).into_iter().find(against) {
                return Some((*strong, *weak, name));
            }
        }
    }
    None
}

/// Takes the weaker of two opposite pieces of advice out of a report. `now`: the run's own value of a setting.
pub(super) fn settle(findings: &mut [Finding], now: &dyn Fn(&Name) -> Option<f64>) {
    while let Some((strong, weak, setting)) = opposed(findings, now) {
        let kept: Vec<&str> = clauses(&findings[weak].fix)
            .filter(|clause| {
                changes(clause, now)
                    .iter()
                    .all(|(name, _)| *name != setting)
            })
            .collect();
        let first = format!("first follow the finding “{}”", findings[strong].title);
        findings[weak].fix = std::iter::once(first.as_str())
            .chain(kept)
            .collect::<Vec<_>>()
            .join("; ");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::finding::Signal;
    use std::path::Path;

    fn lr_is(lr: f64) -> impl Fn(&Name) -> Option<f64> {
        move |name| (name.theirs == RATE).then_some(lr)
    }

    fn found(id: &str, signals: usize, fix: &str) -> Finding {
        let signals = vec![Signal::default(); signals];
        Finding::warn(signals, "why", fix).named(id, id)
    }

    /// One report said both `-s lr=1e-2` and `-s lr=1e-4`.
    #[test]
    fn of_two_opposite_changes_the_one_with_more_evidence_stands() {
        let raise = "raise the learning rate: -s lr=1e-2";
        let lower = "restart with a lower learning rate: -s lr=1e-4; QK-norm for the next run";
        let settled = |mut findings: Vec<Finding>| {
            settle(&mut findings, &lr_is(1e-3));
            findings.into_iter().map(|f| f.fix).collect::<Vec<_>>()
        };
        assert_eq!(
            settled(vec![found("low", 2, raise), found("high", 3, lower)]),
            ["first follow the finding “high”", lower]
        );
        assert_eq!(
            settled(vec![found("low", 2, raise), found("high", 2, lower)]),
            [
                raise,
                "first follow the finding “low”; QK-norm for the next run"
            ]
        );
        // A failure before a warning; a passed finding advises nothing; what was expected before the first step comes last.
        let failed = Finding {
            status: Status::Fail,
            ..found("high", 1, lower)
        };
        let both = settled(vec![found("low", 5, raise), failed]);
        assert_eq!(both, ["first follow the finding “high”", lower]);
        let passed = Finding {
            status: Status::Pass,
            ..found("high", 5, lower)
        };
        assert_eq!(
            settled(vec![found("low", 1, raise), passed]),
            [raise, lower]
        );
        let early = found("preflight", 9, "-s optimizer.adamw.lr=2e-4");
        let both = settled(vec![early, found("low", 1, raise)]);
        assert_eq!(both, ["first follow the finding “low”", raise]);
        // The same way twice, another setting, the rate of the critic, and a check of the rate.
        for other in [
            "-s lr=1e-1",
            "-s model.dropout=0.1",
            "a higher learning rate of the critic",
            "vary the learning rate by factors of 10",
        ] {
            let both = settled(vec![found("low", 2, raise), found("other", 2, other)]);
            assert_eq!(both, [raise, other]);
        }
    }

    #[test]
    fn settings_count_in_the_words_of_other_programs_and_by_the_word_before_them() {
        let unknown = |_: &Name| None;
        let ways = |clause: &str| changes(clause, &unknown);
        assert_eq!(ways("add data, or raise beta"), [("beta", Way::Up)]);
        assert_eq!(
            ways("a higher rollout.temperature"),
            [("temperature", Way::Up)]
        );
        assert_eq!(ways("a smaller learning rate"), [(RATE, Way::Down)]);
        assert_eq!(ways("learning_rate=1e-3"), []);
        assert_eq!(
            changes("learning_rate=1e-3", &lr_is(1e-2)),
            [(RATE, Way::Down)]
        );
    }

    /// A rule that says it in other words would not be seen.
    #[test]
    fn the_words_of_every_rule_about_the_learning_rate_are_known() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/diagnosis/rules");
        let mut seen = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let said = text.lines().map(str::trim);
            let said = said.filter(|line| line.contains('"') && !line.starts_with("//"));
            for line in said.filter(|line| line.contains("learning rate")) {
                let (before, behind) = line.split_once("learning rate").unwrap();
                let word = before
                    .trim_end_matches("the ")
                    .split_whitespace()
                    .next_back();
                let verbs = [
                    "raise", "increase", "higher", "larger", "lower", "smaller", "reduce",
                    "decrease", "halve",
                ];
                let word = word
                    .map(|word| word.trim_matches(['"', '«', '|', '(']))
                    .unwrap_or_default();
                if verbs.contains(&word) && !behind.starts_with(OF_ANOTHER) {
                    seen += 1;
                    assert!(
                        !changes(line, &|_| None).is_empty(),
                        "{}: {line}",
                        path.display()
                    );
                }
            }
        }
        assert!(seen > 10, "{seen}");
    }
}
