//! What is offered at TAB, asked as a shell asks.

use super::*;
use crate::base::clock::SystemClock;
use crate::run::{RunDir, id, index};
use crate::spec::SpecSources;
use clap::ValueEnum;
use clap_complete::engine::complete;

/// A folder with the runs `alpha` and `beta`.
struct Bench {
    dir: tempfile::TempDir,
    /// Their short names, the newest first.
    runs: Vec<String>,
}

impl Bench {
    fn new() -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let runs_dir = dir.path().join("my-runs");
        for name in ["alpha", "beta"] {
            RunDir::create(&runs_dir, name, "{}", "", &SystemClock::new()).unwrap();
        }
        let ids = index::ids(&runs_dir);
        let short = ids.iter().map(|id| id::short_run(id).to_string());
        Bench {
            runs: short.collect(),
            dir,
        }
    }

    /// The candidates for the last word of a line.
    fn offered(&self, line: &str) -> Vec<String> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let at = words.len() - 1;
        let places = Places {
            sources: SpecSources {
                project_dir: self.dir.path().into(),
                ..SpecSources::default()
            },
            runs_dir: self.dir.path().join(runs_dir(&words)),
        };
        let here = Some(self.dir.path());
        let found = complete(&mut tree(places), words, at, here).unwrap();
        let values = found.iter().map(|c| c.get_value().to_string_lossy());
        values.map(|value| value.into_owned()).collect()
    }
}

#[test]
fn every_shell_gets_a_script_that_asks_this_program() {
    for shell in clap_complete::Shell::value_variants() {
        let text = script(*shell, "/opt/bin/llmtui").unwrap();
        let text = String::from_utf8(text).unwrap();
        for part in ["/opt/bin/llmtui", ASKED] {
            assert!(text.contains(part), "{shell}: no {part}");
        }
    }
    let at = |program: &str| program_at(OsStr::new(program), Path::new("/home/me"));
    assert_eq!(at("llmtui"), "llmtui");
    assert_eq!(at("./target/llmtui"), "/home/me/target/llmtui");
    assert_eq!(at("/opt/llmtui"), "/opt/llmtui");
}

#[test]
fn the_command_tree_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn a_spec_is_a_preset_or_a_file() {
    let bench = Bench::new();
    for verb in ["train", "preflight", "plan", "presets show"] {
        let offered = bench.offered(&format!("llmtui {verb} quick"));
        assert_eq!(offered, ["quickstart"], "{verb}");
    }
    let all = bench.offered("llmtui train ");
    for name in ["quickstart", "shakespeare", "sft-lora", "speedrun"] {
        assert!(all.iter().any(|word| word == name), "{name}: {all:?}");
    }
    assert!(!all.contains(&"my-runs/".to_string()), "{all:?}");
}

#[test]
fn verbs_on_runs_offer_the_runs_of_the_folder_newest_first() {
    let bench = Bench::new();
    assert_eq!(bench.runs.len(), 2);
    let verbs = [
        "attach",
        "resume",
        "stop",
        "pause",
        "logs",
        "rm",
        "export",
        "chat",
        "diagnose",
        "metrics",
        "report",
        "undo",
        "gc",
        "card",
        "eval",
        "runs --compare",
        "train --resume",
        "train --branch",
    ];
    for verb in verbs {
        let line = format!("llmtui --runs-dir my-runs {verb} ");
        let offered = bench.offered(&line);
        let runs: Vec<&String> = offered.iter().filter(|w| bench.runs.contains(w)).collect();
        assert_eq!(runs, bench.runs.iter().collect::<Vec<_>>(), "{verb}");
        let one = bench.offered(&format!("{line}al"));
        assert_eq!(one.len(), 1, "{verb}: {one:?}");
        assert!(one[0].starts_with("alpha-"), "{verb}: {one:?}");
    }
    // By the date as well, and in the usual folder there are none.
    let ids = index::ids(&bench.dir.path().join("my-runs"));
    let dated = bench.offered(&format!(
        "llmtui --runs-dir=my-runs attach {}",
        &ids[0][..5]
    ));
    assert_eq!(dated, ids);
    assert!(bench.offered("llmtui attach al").is_empty());
    let auto = bench.offered("llmtui train --resume au");
    assert_eq!(auto, ["auto"]);
}

#[test]
fn settings_are_offered_by_their_short_names_and_paths_and_then_by_value() {
    let bench = Bench::new();
    let offered = |word: &str| bench.offered(&format!("llmtui train quickstart -s {word}"));
    let first = offered("");
    for key in ["lr=", "max_steps=", "optimizer=", "model."] {
        assert!(first.iter().any(|word| word == key), "{key}: {first:?}");
    }
    // Other programs' names are understood, not offered.
    assert!(!first.iter().any(|word| word == "learning_rate="));
    assert!(first.len() < 100, "{}", first.len());
    assert_eq!(offered("model.n_l"), ["model.n_layer="]);
    assert!(offered("optimizer.adamw.").contains(&"optimizer.adamw.lr=".to_string()));
    assert!(offered("optimizer=ad").contains(&"optimizer=adamw".to_string()));
    assert_eq!(offered("precision=bf"), ["precision=bf16"]);
    assert_eq!(
        offered("preflight.enabled="),
        ["preflight.enabled=true", "preflight.enabled=false"]
    );
    assert!(offered("lr=").is_empty() && offered("no.such=").is_empty());
}
