//! The guide's pages refer only to what exists. Links resolve, verbs and settings are those of the program, and `llmtui guide`
//! answers in a terminal and as JSON.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use llmtui::guide::{Subject, pages};
use llmtui::spec::{SpecSources, load};
use std::path::Path;
use std::process::Command;

/// The text between backticks.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Targets of links.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once(')')?.0))
}

fn llmtui(args: &[&str], dir: &Path) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_llmtui"));
    let output = command
        .args(args)
        .current_dir(dir)
        .env("HOME", dir)
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[test]
fn links_resolve() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for page in pages() {
        for link in links(page.body) {
            let paper = link
                .strip_prefix("https://arxiv.org/abs/")
                .is_some_and(|id| {
                    let (month, number) = id.split_once('.').unwrap_or_default();
                    month.len() == 4
                        && number.len() == 5
                        && [month, number]
                            .iter()
                            .all(|part| part.parse::<u32>().is_ok())
                });
            let local = link.starts_with("docs/") && root.join(link).is_file();
            let other = ["https://karpathy.github.io/", "https://doi.org/"]
                .iter()
                .any(|site| link.starts_with(site));
            assert!(paper || local || other, "{}: {link}", page.id);
        }
        // A paper's number in the text is the number in the link.
        for part in page.body.split('[').skip(1) {
            if let Some((words, rest)) = part.split_once("](")
                && let Some((_, number)) = words.split_once("arXiv ")
            {
                let id = format!("https://arxiv.org/abs/{number}");
                assert!(rest.starts_with(&id), "{}: {words}", page.id);
            }
        }
    }
}

#[test]
fn verbs_and_settings_exist_in_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let (_, help) = llmtui(&["--help"], dir.path());
    let lists = |help: &str, verb: &str| help.contains(&format!("\n  {verb} "));
    for page in pages() {
        for code in code(page.body) {
            if let Some(words) = code.strip_prefix("llmtui ") {
                let words: Vec<&str> = words.split(' ').collect();
                assert!(lists(&help, words[0]), "{}: {code}", page.id);
                // In `data inspect FILE` both words are verbs.
                let (_, of_verb) = llmtui(&[words[0], "--help"], dir.path());
                if let Some(second) = words.get(1).filter(|_| of_verb.contains("\nCommands:\n")) {
                    assert!(lists(&of_verb, second), "{}: {code}", page.id);
                }
                if let ("train", Some(preset)) = (
                    words[0],
                    words
                        .get(1)
                        .filter(|word| !word.starts_with('-') && **word != "SPEC"),
                ) {
                    let sources = SpecSources::default();
                    assert!(
                        llmtui::spec::preset_text(preset, &sources).is_some(),
                        "{}: {code}",
                        page.id
                    );
                }
            } else if let Some((key, _)) = code.split_once('=').filter(|(key, _)| key.contains('.'))
            {
                let loaded = load("quickstart", &[code.to_string()], &SpecSources::default());
                assert!(loaded.is_ok(), "{}: {key}: {:?}", page.id, loaded.err());
            }
        }
    }
}

#[test]
fn questions_are_answered_with_the_facts_of_machine_and_spec() {
    let dir = tempfile::tempdir().unwrap();
    let (ok, text) = llmtui(&["guide"], dir.path());
    assert!(ok && text.contains("Can this machine train it?"), "{text}");
    let (ok, text) = llmtui(
        &["guide", "will", "it", "fit", "--spec", "size-70b"],
        dir.path(),
    );
    assert!(ok, "{text}");
    for words in [
        "This machine:",
        "it does not fit",
        "Cheaper, in this order",
        "arXiv 1910.02054",
    ] {
        assert!(text.contains(words), "{words} in {text}");
    }
    let (ok, text) = llmtui(&["guide", "why", "unstable?", "--json"], dir.path());
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(
        ok && value["id"] == "unstable" && value["missing"][0] == "a run",
        "{text}"
    );
    let (ok, text) = llmtui(&["guide", "xyzzy"], dir.path());
    assert!(
        !ok && text.contains("no page matches `xyzzy`") && text.contains("overfitting"),
        "{text}"
    );
}

#[test]
fn facts_of_a_run_come_from_its_log() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tapes/diverged.jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    let mut state = llmtui::run::RunState::new();
    for line in text.lines() {
        state.apply(&llmtui::wire::decode_envelope(line).unwrap());
    }
    let mut pages = llmtui::guide::pages().into_iter();
    let page = pages.find(|p| p.rules.contains(&"diverged")).unwrap();
    let subject = Subject {
        run: Some(&state),
        ..Subject::default()
    };
    let shown = page.fill(&subject);
    assert!(
        shown.text.contains("DIVERGED") && shown.missing.is_empty(),
        "{shown:?}"
    );
}
