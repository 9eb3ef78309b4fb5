//! Rules tested on recorded runs of the quickstart: one with lr 3 and no clipping, one with lr 1e-9, one unchanged, and one on
//! 8 kB of text. The tapes hold the metrics that rules read, of every step or of every few. `docs/diagnosis.md` has the list
//! of rules (`LLMTUI_UPDATE_DOCS=1 cargo test --test diagnosis` regenerates it).
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use llmtui::base::finding::{Finding, Status};
use llmtui::diagnosis::{Diagnosis, RULES, Verdict, diagnose};
use llmtui::run::RunState;
use llmtui::wire::{Envelope, Event, decode_envelope};
use std::fmt::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Entropy of the characters of the embedded corpus, in nats.
const ENTROPY: f64 = 3.313;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn events(name: &str) -> Vec<Envelope> {
    let text = std::fs::read_to_string(root().join(format!("tests/tapes/{name}.jsonl"))).unwrap();
    let mut events: Vec<Envelope> = text
        .lines()
        .map(|line| decode_envelope(line).unwrap())
        .collect();
    // The tapes are older than this fact about the corpus.
    for envelope in &mut events {
        if let Event::Started {
            unigram_entropy, ..
        } = &mut envelope.event
        {
            *unigram_entropy = Some(ENTROPY);
        }
    }
    events
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
fn a_tiny_learning_rate_does_not_learn() {
    let diagnosis = judged("not_learning");
    assert_eq!(diagnosis.verdict, Verdict::NotLearning);
    let finding = found(&diagnosis, "not_learning");
    assert_eq!(finding.cause, "the learning rate is too low");
    assert!(finding.fix.contains("-s lr=1e-3"), "{}", finding.fix);
}

#[test]
fn the_healthy_quickstart_never_warns_and_ends_learning() {
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
    let json = serde_json::to_value(judged("diverged").list()).unwrap();
    assert_eq!(
        (&json[0]["id"], &json[0]["title"]),
        (&"verdict".into(), &"DIVERGED".into())
    );
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

/// A learning rate far too low on a text that occurs twice in the data: curves of twenty steps show nothing yet, tests do.
#[test]
fn probes_test_causes_on_the_run_s_data_and_weights() {
    let dir = tempfile::tempdir().unwrap();
    let words = [
        "one", "river", "of", "many", "stones", "sings", "low", "under", "grey", "rain",
    ];
    let mut dice = 7_u64;
    let mut word = || {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        words[(dice >> 33) as usize % words.len()]
    };
    let shard: String = (0..4_000)
        .map(|i| format!("{}{}", word(), if i % 9 == 8 { ".\n" } else { " " }))
        .collect();
    std::fs::write(dir.path().join("twice.txt"), format!("{shard}{shard}")).unwrap();
    let go = |args: &str| {
        Command::new(env!("CARGO_BIN_EXE_llmtui"))
            .args(args.split(' '))
            .current_dir(dir.path())
            .env("XDG_RUNTIME_DIR", dir.path())
            .stdin(Stdio::null())
            .output()
            .unwrap()
    };
    let set = "-s data.path=twice.txt -s lr=1e-7 -s train.threads=1 -s preflight.enabled=false";
    let trained = go(&format!("train smoke {set} --headless"));
    assert!(
        trained.status.success(),
        "{}",
        String::from_utf8_lossy(&trained.stderr)
    );
    let probed = go("diagnose smoke --probe --json");
    let all: Vec<Finding> = serde_json::from_slice(&probed.stdout).unwrap();
    let status = |id: &str| all.iter().find(|f| f.id == id).map(|f| f.status);
    assert_eq!(status("loss_mask"), None, "ids are those of the tests");
    for (id, wanted) in [
        ("labels", Status::Pass),
        ("template", Status::NotApplicable),
        ("order", Status::Pass),
        ("duplicates", Status::Fail),
        ("moved", Status::Pass),
        ("learning_rate", Status::Warn),
    ] {
        assert_eq!(status(id), Some(wanted), "{id}: {all:#?}");
    }
    assert_eq!(probed.status.code(), Some(4), "a finding fails");
}

/// Every rule behind a verdict is in its row of docs/diagnosis.md.
#[test]
fn the_verdicts_of_the_documentation_name_their_rules() {
    let text = std::fs::read_to_string(root().join("docs/diagnosis.md")).unwrap();
    for verdict in Verdict::ALL {
        let begin = format!("| `{}` |", verdict.word());
        let row = text.lines().find(|line| line.starts_with(&begin)).unwrap();
        for rule in verdict.rules() {
            assert!(
                row.contains(&format!("`{rule}`")),
                "{row} says nothing of {rule}"
            );
        }
    }
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
