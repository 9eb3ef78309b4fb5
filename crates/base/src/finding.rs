//! The result of a check, one type for all of them: the doctor, preflight, data, tokenizers, plans and the verdicts on a
//! training. A finding has evidence, cause and fix. Printing and drawing are in `cli` and `ui`.

use super::num::Num;
use super::text::{one_line, sanitize};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The result of a check, worst first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// What was requested will not work, or does not.
    Fail,
    /// It works, but worse than it could.
    Warn,
    /// The data needed to judge could not be read. `skipped` in logs of version 0.1.
    #[default]
    #[serde(alias = "skipped")]
    Unknown,
    Pass,
    /// The check does not apply here.
    NotApplicable,
}

impl Status {
    pub fn word(self) -> &'static str {
        match self {
            Status::Fail => "fail",
            Status::Warn => "warn",
            Status::Unknown => "unknown",
            Status::Pass => "pass",
            Status::NotApplicable => "not applicable",
        }
    }
}

/// One measurement or observation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Signal {
    /// As text, with the number and its unit: `train loss 153.9`.
    pub text: String,
    /// Id of the metric, if it is a reading.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    /// Completed optimizer steps at the reading.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// In the metric's unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Num>,
}

impl Signal {
    /// A reading of the metric `id`; `text` states it with its number.
    pub fn of(id: &str, value: f64, text: impl Into<String>) -> Signal {
        Signal {
            text: text.into(),
            metric: Some(id.into()),
            step: None,
            value: Some(Num(value)),
        }
    }

    pub fn at(self, step: u64) -> Signal {
        Signal {
            step: Some(step),
            ..self
        }
    }

    fn is_plain(&self) -> bool {
        self.metric.is_none() && self.step.is_none() && self.value.is_none()
    }
}

/// All observations; displayed one after the other.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Evidence(pub Vec<Signal>);

impl Evidence {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, signal) in self.0.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { "; " })?;
            f.write_str(&signal.text)?;
        }
        Ok(())
    }
}

impl From<String> for Evidence {
    fn from(text: String) -> Evidence {
        match text.is_empty() {
            true => Evidence::default(),
            false => Evidence(vec![Signal {
                text,
                ..Signal::default()
            }]),
        }
    }
}

impl From<&str> for Evidence {
    fn from(text: &str) -> Evidence {
        text.to_string().into()
    }
}

impl From<Signal> for Evidence {
    fn from(signal: Signal) -> Evidence {
        Evidence(vec![signal])
    }
}

impl From<Vec<Signal>> for Evidence {
    fn from(signals: Vec<Signal>) -> Evidence {
        Evidence(signals)
    }
}

/// What a check found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct Finding {
    /// Id of the check or the rule.
    pub id: String,
    /// A short title for a row.
    pub title: String,
    pub status: Status,
    /// Where it was found: a metric and a step, a file and a line, a device. Empty if the title says it.
    pub place: String,
    pub evidence: Evidence,
    /// Why it is so or matters; empty if nothing is wrong.
    pub cause: String,
    /// What to do; may be empty.
    pub fix: String,
    /// What would pass; may be empty.
    pub expected: String,
    /// Where the threshold comes from: a paper with its number, or the code that set the convention. May be empty.
    pub source: String,
}

impl Finding {
    fn new(
        status: Status,
        evidence: impl Into<Evidence>,
        cause: impl Into<String>,
        fix: impl Into<String>,
    ) -> Finding {
        Finding {
            status,
            evidence: evidence.into(),
            cause: cause.into(),
            fix: fix.into(),
            ..Finding::default()
        }
    }

    pub fn pass(evidence: impl Into<Evidence>) -> Finding {
        Finding::new(Status::Pass, evidence, "", "")
    }

    pub fn warn(
        evidence: impl Into<Evidence>,
        cause: impl Into<String>,
        fix: impl Into<String>,
    ) -> Finding {
        Finding::new(Status::Warn, evidence, cause, fix)
    }

    pub fn fail(
        evidence: impl Into<Evidence>,
        cause: impl Into<String>,
        fix: impl Into<String>,
    ) -> Finding {
        Finding::new(Status::Fail, evidence, cause, fix)
    }

    /// `fix` says how it could be determined.
    pub fn unknown(evidence: impl Into<Evidence>, fix: impl Into<String>) -> Finding {
        Finding::new(Status::Unknown, evidence, "", fix)
    }

    pub fn not_applicable(why: impl Into<Evidence>) -> Finding {
        Finding::new(Status::NotApplicable, why, "", "")
    }

    /// The settings that the fix names, as they are written after `-s`: `lr=1e-3`. Where it offers a choice, the first.
    #[must_use]
    pub fn changes(&self) -> Vec<String> {
        self.ways().into_iter().next().unwrap_or_default()
    }

    /// Every choice that the fix offers, each with all settings that go together: `-s a=1, or -s b=2` are two ways, of
    /// which one is enough. Advice after a semicolon belongs to each.
    #[must_use]
    pub fn ways(&self) -> Vec<Vec<String>> {
        let parts = choices(&self.fix);
        let taking = |at: usize, choice: usize| -> Vec<String> {
            let parts = parts.iter().enumerate();
            let taken = parts.flat_map(|(i, part)| &part[if i == at { choice } else { 0 }]);
            taken.cloned().collect()
        };
        let others = parts.iter().enumerate();
        let others = others.flat_map(|(i, part)| (1..part.len()).map(move |choice| (i, choice)));
        let first = (!parts.is_empty()).then_some((0, 0));
        first
            .into_iter()
            .chain(others)
            .map(|(i, choice)| taking(i, choice))
            .collect()
    }

    /// The finding under the name of the check that made it.
    pub fn named(self, id: &str, title: &str) -> Finding {
        Finding {
            id: id.into(),
            title: title.into(),
            ..self
        }
    }

    #[must_use]
    pub fn at(self, place: impl Into<String>) -> Finding {
        Finding {
            place: place.into(),
            ..self
        }
    }

    /// Cause and fix as one sentence; empty if nothing is wrong.
    pub fn advice(&self) -> String {
        let parts = [&self.cause, &self.fix];
        let said: Vec<&str> = parts
            .into_iter()
            .map(String::as_str)
            .filter(|part| !part.is_empty())
            .collect();
        said.join("; ")
    }

    /// Without control sequences: text from a log or another process may contain any.
    #[must_use]
    pub fn sanitized(&self) -> Finding {
        let signal = |signal: &Signal| Signal {
            text: sanitize(&signal.text),
            metric: signal.metric.as_deref().map(one_line),
            ..*signal
        };
        Finding {
            id: one_line(&self.id),
            title: one_line(&self.title),
            status: self.status,
            place: one_line(&self.place),
            evidence: Evidence(self.evidence.0.iter().map(signal).collect()),
            cause: sanitize(&self.cause),
            fix: sanitize(&self.fix),
            expected: sanitize(&self.expected),
            source: one_line(&self.source),
        }
    }
}

/// A finding as JSON: `evidence` is its text, and `signals` its parts if they hold more than text. Reads checks of
/// version 0.1, whose cause and fix are one `hint`.
#[derive(Serialize, Deserialize)]
struct Written {
    id: String,
    #[serde(default)]
    title: String,
    status: Status,
    #[serde(default)]
    place: String,
    #[serde(default)]
    evidence: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    signals: Vec<Signal>,
    #[serde(default)]
    cause: String,
    #[serde(default, alias = "hint")]
    fix: String,
    #[serde(default)]
    expected: String,
    #[serde(default)]
    source: String,
}

impl From<Finding> for Written {
    fn from(finding: Finding) -> Written {
        let evidence = finding.evidence.to_string();
        let Evidence(signals) = finding.evidence;
        let plain = matches!(&signals[..], [] | [_]) && signals.iter().all(Signal::is_plain);
        Written {
            id: finding.id,
            title: finding.title,
            status: finding.status,
            place: finding.place,
            evidence,
            signals: if plain { Vec::new() } else { signals },
            cause: finding.cause,
            fix: finding.fix,
            expected: finding.expected,
            source: finding.source,
        }
    }
}

impl From<Written> for Finding {
    fn from(written: Written) -> Finding {
        Finding {
            id: written.id,
            title: written.title,
            status: written.status,
            place: written.place,
            evidence: match written.signals.is_empty() {
                true => written.evidence.into(),
                false => Evidence(written.signals),
            },
            cause: written.cause,
            fix: written.fix,
            expected: written.expected,
            source: written.source,
        }
    }
}

/// The settings of a fix: its parts, the choices of each, and what a choice sets.
fn choices(fix: &str) -> Vec<Vec<Vec<String>>> {
    let mut parts: Vec<Vec<Vec<String>>> = Vec::new();
    let mut pieces = fix.split("-s ");
    let mut between = pieces.next().unwrap_or_default();
    for piece in pieces {
        let word = first_word(piece);
        let value = word.split_once('=').map(|(_, value)| value);
        if value.is_some_and(|value| !value.is_empty() && !value.contains('…')) {
            let or = between.split_whitespace().next_back() == Some("or");
            let setting = word.to_string();
            match parts.last_mut() {
                Some(part) if or => part.push(vec![setting]),
                Some(part) if !between.contains("; ") => {
                    part.last_mut()
                        .into_iter()
                        .for_each(|choice| choice.push(setting.clone()));
                }
                _ => parts.push(vec![vec![setting]]),
            }
        }
        between = &piece[word.len()..];
    }
    parts
}

/// Up to a space or a character that ends a setting; a bracketed list is kept whole.
fn first_word(text: &str) -> &str {
    let mut depth = 0usize;
    let end = text.find(|c: char| {
        match c {
            '[' | '{' => depth += 1,
            ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && [' ', ',', ';', '`', ')'].contains(&c)
    });
    end.map_or(text, |end| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding() -> Finding {
        let signals = vec![
            Signal::of("train/loss", 153.9, "train loss 153.9").at(150),
            Signal::of("grad_norm", f64::INFINITY, "gradient norm inf"),
        ];
        Finding {
            expected: "below ln V".into(),
            source: "Pascanu et al. 2013".into(),
            ..Finding::fail(signals, "the learning rate is too high", "lower it")
                .named("diverged", "Divergence")
                .at("step 150")
        }
    }

    #[test]
    fn settings_of_a_fix_follow_the_option() {
        let changes = |fix: &str| Finding::warn("", "", fix).changes();
        assert_eq!(
            changes("lower the learning rate: -s lr=1e-3 -s clip_norm=1"),
            ["lr=1e-3", "clip_norm=1"]
        );
        assert_eq!(
            changes("-s model.dropout=0.1, or 0 while it does not overfit"),
            ["model.dropout=0.1"]
        );
        assert_eq!(
            changes("-s adapter.lora.modules_to_save=[embeddings,head] -s lr=1"),
            ["adapter.lora.modules_to_save=[embeddings,head]", "lr=1"]
        );
        assert!(changes("vary it: -s lr=… by factors of 10; look at rows").is_empty());
    }

    /// `a`, or for something else `b`, was followed as both.
    #[test]
    fn settings_that_replace_each_other_are_ways_of_their_own() {
        let ways = |fix: &str| Finding::warn("", "", fix).ways();
        let fix = "-s max_steps=500 or more, or -s rollout.cold_start_steps=20 for a short trial";
        assert_eq!(
            ways(fix),
            [["max_steps=500"], ["rollout.cold_start_steps=20"]]
        );
        let fix = "-s a=1 -s b=2, or -s list=[c, d]; -s e=3 and -s f=4";
        assert_eq!(
            ways(fix),
            [
                &["a=1", "b=2", "e=3", "f=4"][..],
                &["list=[c, d]", "e=3", "f=4"]
            ]
        );
        assert_eq!(ways("-s a=…, or -s b=2"), [["b=2"]]);
        assert!(ways("look at the rows").is_empty());
    }

    #[test]
    fn json_round_trips_with_non_finite_numbers() {
        let json = serde_json::to_value(finding()).unwrap();
        assert_eq!(json["evidence"], "train loss 153.9; gradient norm inf");
        assert_eq!(json["signals"][0]["step"], 150);
        assert_eq!(json["signals"][1]["value"], "inf");
        assert_eq!(json["status"], "fail");
        assert_eq!(serde_json::from_value::<Finding>(json).unwrap(), finding());
    }

    #[test]
    fn plain_text_is_serialized_once() {
        let plain = Finding::pass("12 GiB free").named("disk_room", "Room");
        let json = serde_json::to_value(&plain).unwrap();
        assert_eq!(json.get("signals"), None);
        assert_eq!(serde_json::from_value::<Finding>(json).unwrap(), plain);
    }

    #[test]
    fn checks_of_old_logs_are_readable() {
        let old = r#"{"id":"overlap","title":"Apart","status":"skipped","evidence":"short","hint":"more text"}"#;
        let read: Finding = serde_json::from_str(old).unwrap();
        assert_eq!(read.status, Status::Unknown);
        assert_eq!(
            (read.fix.as_str(), read.evidence.to_string().as_str()),
            ("more text", "short")
        );
    }

    #[test]
    fn the_worst_status_comes_first_and_advice_is_one_sentence() {
        assert!(Status::Fail < Status::Warn && Status::Unknown < Status::Pass);
        assert_eq!(
            finding().advice(),
            "the learning rate is too high; lower it"
        );
        assert_eq!(Finding::pass("fine").advice(), "");
    }

    #[test]
    fn sanitizing_removes_control_sequences() {
        let foreign = Finding::warn("bad\x1b[2J", "why\x07", "");
        let clean = foreign.sanitized();
        assert!(!clean.evidence.to_string().contains('\x1b') && !clean.cause.contains('\x07'));
    }
}
