//! Rules held to recorded runs of the quickstart: one with lr 3 and no clipping, one with lr 1e-9, one as it is, and one on
//! 8 kB of text. The tapes hold the metrics that rules read, of every step or of every few. `docs/diagnosis.md` has the list
//! of rules (`LLMTUI_UPDATE_DOCS=1 cargo test --test diagnosis` renews it).
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use llmtui::base::finding::{Finding, Status};
use llmtui::diagnosis::{Diagnosis, RULES, Verdict, diagnose};
use llmtui::run::RunState;
use llmtui::wire::{Envelope, Event, decode_envelope};
use std::fmt::Write;
use std::path::PathBuf;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn events(name: &str) -> Vec<Envelope> {
    let text = std::fs::read_to_string(root().join(format!("tests/tapes/{name}.jsonl"))).unwrap();
    text.lines()
        .map(|line| decode_envelope(line).unwrap())
        .collect()
}

fn judged(name: &str) -> Diagnosis {
    diagnose(&RunState::from_events(&events(name)))
}

fn found<'a>(diagnosis: &'a Diagnosis, id: &str) -> &'a Finding {
    diagnosis.findings.iter().find(|f| f.id == id).unwrap()
}

#[test]
fn a_learning_rate_of_3_diverges_and_the_fix_names_the_key() {
    let diagnosis = judged("diverged");
    assert_eq!(diagnosis.verdict, Verdict::Diverged);
    let finding = found(&diagnosis, "diverged");
    assert_eq!(finding.status, Status::Fail);
    assert!(
        finding.evidence.to_string().contains("it began at 4.152"),
        "{}",
        finding.evidence
    );
    assert!(
        finding.fix.contains("-s lr=1e-3 -s clip_norm=1"),
        "{}",
        finding.fix
    );
    assert!(diagnosis.failed());
}

#[test]
fn a_learning_rate_of_nothing_does_not_learn() {
    let diagnosis = judged("not_learning");
    assert_eq!(diagnosis.verdict, Verdict::NotLearning);
    let finding = found(&diagnosis, "not_learning");
    assert_eq!(finding.cause, "the learning rate is too low");
    assert!(finding.fix.contains("-s lr=1e-3"), "{}", finding.fix);
}

#[test]
fn the_healthy_quickstart_never_warns_on_its_way_and_ends_learning() {
    let mut state = RunState::new();
    let mut verdicts = Vec::new();
    for envelope in events("healthy") {
        state.apply(&envelope);
        if let Event::Stepped { step, .. } = envelope.event {
            let diagnosis = diagnose(&state);
            let bad = diagnosis.findings.iter().find(|f| f.status != Status::Pass);
            assert_eq!(bad, None, "step {step}");
            if verdicts.last() != Some(&diagnosis.verdict) {
                verdicts.push(diagnosis.verdict);
            }
        }
    }
    assert_eq!(verdicts, [Verdict::TooEarly, Verdict::Learning]);
    let healthy = judged("healthy");
    let seen: Vec<&str> = healthy.findings.iter().map(|f| f.id.as_str()).collect();
    assert_eq!(
        seen,
        ["preflight", "train_loss", "overfitting", "gradient_spike"]
    );
}

#[test]
fn eight_kilobytes_are_memorized() {
    let diagnosis = judged("overfitting");
    assert_eq!(diagnosis.verdict, Verdict::Overfitting);
    let finding = found(&diagnosis, "overfitting");
    assert_eq!(
        (finding.status, finding.evidence.0.len()),
        (Status::Warn, 3)
    );
    assert!(!diagnosis.failed(), "a warning is no failure");
}

#[test]
fn json_has_the_promised_keys() {
    let json = serde_json::to_value(judged("diverged").findings).unwrap();
    let keys = [
        "id", "status", "place", "evidence", "signals", "cause", "fix", "expected", "source",
    ];
    let diverged = json
        .as_array()
        .unwrap()
        .iter()
        .find(|f| f["id"] == "diverged")
        .unwrap();
    assert!(
        keys.iter().all(|key| diverged.get(key).is_some()),
        "{diverged}"
    );
}

const BEGIN: &str = "<!-- rules -->\n";

fn table() -> String {
    let mut table = String::from("| id | row | reads | passes | source |\n|---|---|---|---|---|\n");
    for rule in RULES {
        let needs: Vec<String> = rule.needs.iter().map(|id| format!("`{id}`")).collect();
        writeln!(
            table,
            "| `{}` | {} | {} | {} | {} |",
            rule.entry.id,
            rule.entry.title,
            needs.join(" "),
            rule.entry.summary,
            rule.entry.source
        )
        .unwrap();
    }
    table
}

#[test]
fn the_page_lists_every_rule() {
    let path = root().join("docs/diagnosis.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (head, rest) = page.split_once(BEGIN).unwrap();
    let tail = rest.split_once("\n\n").map_or("", |(_, tail)| tail);
    let wanted = format!("{head}{BEGIN}{}\n{tail}", table());
    if std::env::var_os("LLMTUI_UPDATE_DOCS").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let page = std::fs::read_to_string(&path).unwrap();
    assert!(
        page == wanted,
        "LLMTUI_UPDATE_DOCS=1 cargo test --test diagnosis"
    );
}
