//! The guide's pages refer only to what exists. Links resolve, verbs and settings are those of the program, and `llmtui guide`
//! answers in a terminal and as JSON.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use llmtui::guide::{Subject, entries, pages};
use llmtui::spec::{SpecSources, load, schema};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Pages and entries: what each is called, and its text.
fn texts() -> Vec<(&'static str, String)> {
    let pages = pages()
        .into_iter()
        .map(|page| (page.id, page.body.to_string()));
    pages
        .chain(entries().map(|entry| (entry.id, entry.text())))
        .collect()
}

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
    for (id, text) in texts() {
        for link in links(&text) {
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
            assert!(paper || local || other, "{id}: {link}");
        }
        // A paper's number in the text is the number in the link.
        for part in text.split('[').skip(1) {
            if let Some((words, rest)) = part.split_once("](")
                && let Some((_, number)) = words.split_once("arXiv ")
            {
                let url = format!("https://arxiv.org/abs/{number}");
                assert!(rest.starts_with(&url), "{id}: {words}");
            }
        }
    }
}

/// Whether a shipped spec takes a setting, by itself or beside one that it needs.
fn fits_somewhere(code: &str) -> bool {
    const PRESETS: [&str; 7] = [
        "quickstart",
        "sft-lora-demo",
        "dpo-demo",
        "kto-demo",
        "grpo-sort",
        "rloo-sort",
        "ppo-demo",
    ];
    const BESIDE: [Option<&str>; 5] = [
        None,
        Some("engine.torch.shard=fsdp2"),
        Some("model.moe.n_expert=4"),
        Some("model.tie_embeddings=false"),
        Some("data.path=rows.jsonl"),
    ];
    BESIDE.iter().any(|beside| {
        let beside = beside.iter().map(|set| (*set).to_string());
        let set: Vec<String> = beside.chain([code.to_string()]).collect();
        let mut presets = PRESETS.iter();
        presets.any(|preset| load(preset, &set, &SpecSources::default()).is_ok())
    })
}

#[test]
fn verbs_and_settings_exist_in_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let (_, help) = llmtui(&["--help"], dir.path());
    let lists = |help: &str, verb: &str| help.contains(&format!("\n  {verb} "));
    let mut helps = BTreeMap::new();
    let mut wrong = Vec::new();
    for (id, text) in texts() {
        for code in code(&text) {
            let mut check = |good: bool, what: &str| {
                if !good {
                    wrong.push(format!("{id}: {code}: {what}"));
                }
            };
            if let Some(words) = code.strip_prefix("llmtui ") {
                let words: Vec<&str> = words.split(' ').collect();
                check(lists(&help, words[0]), "no verb");
                let of_verb = helps
                    .entry(words[0].to_string())
                    .or_insert_with(|| llmtui(&[words[0], "--help"], dir.path()).1)
                    .clone();
                // In `data inspect FILE` both words are verbs.
                let nested = of_verb.contains("\nCommands:\n");
                let second = words.get(1).filter(|_| nested);
                let options = match second {
                    Some(second) => {
                        check(lists(&of_verb, second), "no verb");
                        let both = format!("{} {second}", words[0]);
                        let of_both = || llmtui(&[words[0], second, "--help"], dir.path()).1;
                        helps.entry(both).or_insert_with(of_both).clone()
                    }
                    None => of_verb,
                };
                for option in words.iter().filter(|word| word.starts_with("--")) {
                    check(options.contains(*option), option);
                }
                for pair in words.windows(2).filter(|pair| pair[0] == "-s") {
                    let loaded = load("quickstart", &[pair[1].into()], &SpecSources::default());
                    let strange = !pair[1].contains(['A', 'M']) && loaded.is_err();
                    check(!strange, "no setting");
                }
                let preset = words.get(1).filter(|word| {
                    words[0] == "train" && !word.starts_with('-') && **word != "SPEC"
                });
                if let Some(preset) = preset {
                    let sources = SpecSources::default();
                    check(
                        llmtui::spec::preset_text(preset, &sources).is_some(),
                        "no preset",
                    );
                }
            } else if code.contains('.')
                && let Some((key, _)) = code.split_once('=')
            {
                check(fits_somewhere(code), &format!("no spec takes {key}"));
            } else if let Some(section) = code.split('.').next().filter(|_| code.contains('.'))
                && schema::root().child(section).is_some()
                && !code.contains([' ', '/', '*'])
            {
                check(schema::root().at(code).is_some(), "no setting");
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What an entry says to look at is there: metrics, checks of the doctor and of preflight.
#[test]
fn entries_name_metrics_and_checks_that_there_are() {
    let known = [
        include_str!("../docs/metrics.md"),
        include_str!("../docs/doctor.md"),
        include_str!("../docs/torch.md"),
    ]
    .concat();
    let mut wrong = Vec::new();
    for entry in entries() {
        for part in entry.check.split("(check").skip(1) {
            let inside = part.split(')').next().unwrap_or_default();
            for name in code(inside) {
                if !known.contains(&format!("| `{name}` |")) {
                    wrong.push(format!("{}: no check {name}", entry.id));
                }
            }
        }
        for name in code(entry.check) {
            let group = name.split('/').next().unwrap_or_default();
            let is_metric = name.contains('/')
                && !name.contains([' ', '.'])
                && known.contains(&format!("`{group}/"));
            let pattern = name.replace("gpu/0/", "gpu/N/");
            let held_out = name.trim_start_matches("val/");
            let is_known = [pattern.as_str(), held_out]
                .iter()
                .any(|id| known.contains(&format!("`{id}`")));
            if is_metric && !is_known {
                wrong.push(format!("{}: no metric {name}", entry.id));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
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
        !ok && text.contains("nothing answers `xyzzy`") && text.contains("llmtui guide lists"),
        "{text}"
    );
}

#[test]
fn symptoms_terms_and_slips_are_answered() {
    let dir = tempfile::tempdir().unwrap();
    let ask = |question: &str| {
        let words: Vec<&str> = std::iter::once("guide")
            .chain(question.split(' '))
            .collect();
        llmtui(&words, dir.path())
    };
    for (question, parts) in [
        (
            "rank hang nccl",
            ["A rank hangs in the middle", "engine.torch.patience"],
        ),
        (
            "what is alpha",
            ["adapter.lora.alpha, a setting", "Default: 16"],
        ),
        (
            "grad_norm",
            ["grad_norm, a metric", "Rules that read it: gradient_spike"],
        ),
        (
            "attn_logit_max",
            [
                "attn_logit_max/layer, a metric",
                "Band: up to 100 (literature)",
            ],
        ),
        (
            "same_rewards",
            ["same_rewards, a rule", "GRPO: all advantages are 0"],
        ),
        (
            "distributed",
            ["Several GPUs and machines", "llmtui guide rank_hang"],
        ),
        ("how do I chat", ["llmtui chat RUN talks", ""]),
        (
            "can I do grpo on a 8b model with 24 GB",
            ["GRPO: all weights", "--method grpo --lora-rank 16"],
        ),
    ] {
        let (ok, text) = ask(question);
        assert!(ok, "{question}: {text}");
        // Lines are wrapped.
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in parts {
            assert!(flat.contains(part), "{question}: {part} in {flat}");
        }
    }
    let (ok, text) = ask("grad_nrom");
    assert!(!ok && text.contains("did you mean grad_norm"), "{text}");
    let (_, text) = ask("--json");
    let all: serde_json::Value = serde_json::from_str(&text).unwrap();
    let areas = all["areas"].as_array().unwrap();
    assert!(
        areas.len() == 8 && areas[0]["entries"].as_array().unwrap().len() > 10,
        "{text}"
    );
    assert_eq!(all["pages"][0]["id"], "fit");
    let (_, text) = ask("model never stops --json");
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&value["kind"], &value["id"]),
        (&"entry".into(), &"never_stops".into()),
        "{text}"
    );
    assert!(
        value["fix"]
            .as_str()
            .unwrap()
            .contains("data.too_long=drop"),
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
