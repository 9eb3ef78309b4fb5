//! Every parser of untrusted input, as a function of bytes: it may refuse them, never panic, never take memory
//! or time out of proportion. Used by the targets of cargo-fuzz in `fuzz_targets/` and, on stable, by `tests/fuzz.rs`. Seeds are
//! the repository's own files and what stands in `corpus/`.

use llmtui::base::child::Child;
use llmtui::base::clock::{ManualClock, UnixMillis};
use llmtui::base::paths::Env;
use llmtui::data::chat::{GenerationPrompt, RowTemplate, Template};
use llmtui::data::formats::FormatChoice;
use llmtui::data::source::{ReadContext, SourceConfig};
use llmtui::data::{Message, OnBadRow, examples, tokenizer};
use llmtui::engine::checkpoint::Manifest;
use llmtui::gguf::{Gguf, open_parts};
use llmtui::hardware::Recording;
use llmtui::pipeline::Pipeline;
use llmtui::release::{LocalEnv, Subject};
use llmtui::run::index::summarize;
use llmtui::run::log::read_all;
use llmtui::run::{RunDir, RunState};
use llmtui::spec::{SpecSources, import, load_text};
use llmtui::watch::{ExternalRun, Mapping, find};
use llmtui::wire::{decode_command, decode_envelope};
use llmtui::workers::Frame;
use llmtui::{hf, tasks};
use std::fs;
use std::path::{Path, PathBuf};

/// One parser.
pub struct Target {
    pub name: &'static str,
    /// The parser, with a folder of its own for what it reads from files.
    pub run: fn(&[u8], &Path),
    /// Files and folders of the repository that it reads as they are.
    #[allow(
        dead_code,
        reason = "the targets of cargo-fuzz have a corpus of their own"
    )]
    pub seeds: &'static [&'static str],
}

/// All of them.
pub const TARGETS: &[Target] = &[
    Target {
        name: "spec_yaml",
        run: spec_yaml,
        seeds: &["presets"],
    },
    Target {
        name: "pipeline_yaml",
        run: pipeline_yaml,
        seeds: &["pipelines"],
    },
    Target {
        name: "task_yaml",
        run: task_yaml,
        seeds: &["assets/tasks"],
    },
    Target {
        name: "import_config",
        run: import_config,
        seeds: &["fuzz/corpus/import_config"],
    },
    Target {
        name: "jsonl_rows",
        run: jsonl_rows,
        seeds: &["fuzz/corpus/jsonl_rows"],
    },
    Target {
        name: "run_json",
        run: run_json,
        seeds: &["fuzz/corpus/run_json"],
    },
    Target {
        name: "event_log",
        run: event_log,
        seeds: &["tests/tapes"],
    },
    Target {
        name: "command_line",
        run: command_line,
        seeds: &["fuzz/corpus/command_line"],
    },
    Target {
        name: "worker_frame",
        run: worker_frame,
        seeds: &["fuzz/corpus/worker_frame"],
    },
    Target {
        name: "manifest",
        run: manifest,
        seeds: &["fuzz/corpus/manifest"],
    },
    Target {
        name: "release",
        run: release,
        seeds: &["fuzz/corpus/release"],
    },
    Target {
        name: "gguf",
        run: gguf,
        seeds: &["tests/oracle/gguf", "tests/oracle/tokenizers"],
    },
    Target {
        name: "safetensors",
        run: safetensors,
        seeds: &["tests/oracle/families/llama", "tests/oracle/families/phi3"],
    },
    Target {
        name: "model_config",
        run: model_config,
        seeds: &[
            "tests/oracle/families/llama3",
            "tests/oracle/families/gemma3",
        ],
    },
    Target {
        name: "tokenizer_json",
        run: tokenizer_json,
        seeds: &["tests/fixtures/chat/tokenizer.json"],
    },
    Target {
        name: "chat_template",
        run: chat_template,
        seeds: &["assets/templates"],
    },
    Target {
        name: "tfevents",
        run: tfevents,
        seeds: &["tests/watch/logs/tb"],
    },
    Target {
        name: "wandb",
        run: wandb,
        seeds: &["tests/watch/logs/wandb"],
    },
    Target {
        name: "watched_text",
        run: watched_text,
        seeds: &["tests/watch/logs/hf"],
    },
    Target {
        name: "machine",
        run: machine,
        seeds: &["tests/machines"],
    },
];

/// Runs the target of this name: what a file of `fuzz_targets/` does.
///
/// # Panics
/// There is none of this name, or no temporary folder.
#[allow(dead_code, reason = "tests/fuzz.rs goes through the list")]
pub fn run(name: &str, data: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    let folder = tempfile::tempdir().expect("a temporary folder");
    (target.expect("a target of this name").run)(data, folder.path());
}

/// Bytes of a seed: what lies behind teaches nothing more and takes longer.
#[allow(
    dead_code,
    reason = "the targets of cargo-fuzz have a corpus of their own"
)]
const MAX_SEED: usize = 64 << 10;

/// The files that a target starts from, in the order of their names.
#[allow(
    dead_code,
    reason = "the targets of cargo-fuzz have a corpus of their own"
)]
pub fn seeds(root: &Path, target: &Target) -> Vec<Vec<u8>> {
    let mut paths = Vec::new();
    for seed in target.seeds {
        collect(&root.join(seed), &mut paths);
    }
    collect(&root.join("fuzz/corpus").join(target.name), &mut paths);
    paths.sort();
    paths.dedup();
    let begin = |path: &PathBuf| {
        let mut bytes = fs::read(path).ok()?;
        bytes.truncate(MAX_SEED);
        Some(bytes)
    };
    paths.iter().filter_map(begin).collect()
}

#[allow(
    dead_code,
    reason = "the targets of cargo-fuzz have a corpus of their own"
)]
fn collect(path: &Path, into: &mut Vec<PathBuf>) {
    if let Ok(entries) = fs::read_dir(path) {
        entries
            .flatten()
            .for_each(|entry| collect(&entry.path(), into));
    } else {
        into.push(path.to_path_buf());
    }
}

fn text(data: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(data)
}

/// What a message may be: shown on a terminal, it must not be without end. Control sequences are the printer's matter.
fn told(error: impl std::fmt::Display) {
    let error = error.to_string();
    assert!(
        !error.is_empty() && error.len() < 1 << 20,
        "{} bytes of message",
        error.len()
    );
}

fn written(folder: &Path, name: &str, data: &[u8]) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, data).expect("a file in a temporary folder");
    path
}

fn spec_yaml(data: &[u8], folder: &Path) {
    let sources = SpecSources {
        project_dir: folder.to_path_buf(),
        ..SpecSources::default()
    };
    match load_text("fuzz.yaml", &text(data), &sources) {
        Ok(loaded) => assert!(!loaded.asked.is_empty()),
        Err(error) => told(error),
    }
}

fn pipeline_yaml(data: &[u8], _: &Path) {
    if let Err(error) = Pipeline::parse("fuzz.yaml", "fuzz", &text(data)) {
        told(error);
    }
}

fn task_yaml(data: &[u8], folder: &Path) {
    let path = written(folder, "task.yaml", data);
    if let Err(error) = tasks::load(&path.display().to_string(), &Env::default()) {
        told(error);
    }
    if let Ok(template) = RowTemplate::new("prompt", &text(data)) {
        let row = serde_json::json!({"question": "2+2?", "choices": ["3", "4"], "answer": 1});
        if let Err(error) = template.render(row.as_object().expect("an object")) {
            told(error);
        }
    }
}

fn import_config(data: &[u8], _: &Path) {
    if let Err(error) = import::import("fuzz.yaml", &text(data), None) {
        told(error);
    }
}

fn jsonl_rows(data: &[u8], folder: &Path) {
    for name in ["rows.jsonl", "rows.json", "rows.csv", "rows.txt"] {
        written(folder, name, data);
        let source = SourceConfig::parse(name).expect("the name of a file");
        let context = ReadContext {
            base: folder.to_path_buf(),
            ..ReadContext::default()
        };
        match examples(&source, FormatChoice::Auto, OnBadRow::Skip, &context) {
            Err(error) => told(error),
            Ok(found) => found.take(1000).for_each(|row| {
                if let Err(fault) = row {
                    told(fault);
                }
            }),
        }
    }
}

fn run_json(data: &[u8], folder: &Path) {
    let run = folder.join("run");
    let _ = fs::create_dir(&run);
    written(&run, "run.json", data);
    written(&run, "events.jsonl", b"");
    match RunDir::open(&run) {
        Ok(run) => {
            let _ = summarize(&run);
        }
        Err(error) => told(error),
    }
}

fn event_log(data: &[u8], folder: &Path) {
    for line in text(data).lines() {
        let _ = decode_envelope(line);
    }
    let path = written(folder, "events.jsonl", data);
    if let Ok(events) = read_all(&path) {
        let state = RunState::from_events(&events);
        assert!(state.series.len() <= 4096);
    }
}

fn command_line(data: &[u8], _: &Path) {
    let _ = decode_command(&text(data));
}

fn worker_frame(data: &[u8], _: &Path) {
    let mut input = data;
    while let Ok(Some(_)) = Frame::read(&mut input) {}
}

fn manifest(data: &[u8], folder: &Path) {
    written(folder, "manifest.json", data);
    if let Err(fault) = Manifest::read(folder) {
        told(format!("{fault:?}"));
    }
}

/// The bytes as a model's card, its list of checksums and an adapter's description, looked at as a stranger does.
fn release(data: &[u8], folder: &Path) {
    for name in ["README.md", "SHA256SUMS", "adapter_config.json"] {
        written(folder, name, data);
    }
    match Subject::open(folder, &LocalEnv::default()) {
        Ok(subject) => {
            for finding in llmtui::release::check(&subject, &|_| ()) {
                told(format!("{} {}", finding.evidence, finding.place));
            }
        }
        Err(error) => told(error),
    }
}

fn gguf(data: &[u8], folder: &Path) {
    if let Err(error) = Gguf::read(data, data.len() as u64) {
        told(error);
    }
    let path = written(folder, "model.gguf", data);
    if let Err(error) = open_parts(&path) {
        told(error);
    }
}

fn safetensors(data: &[u8], folder: &Path) {
    let _ = fs::remove_file(folder.join(hf::INDEX));
    written(folder, hf::WEIGHTS, data);
    if let Err(error) = hf::Weights::open(folder) {
        told(error);
    }
    // The same as the index of shards.
    let _ = fs::remove_file(folder.join(hf::WEIGHTS));
    written(folder, hf::INDEX, data);
    if let Err(error) = hf::Weights::open(folder) {
        told(error);
    }
}

fn model_config(data: &[u8], folder: &Path) {
    written(folder, "config.json", data);
    if let Err(error) = hf::read_config(folder) {
        told(error);
    }
    if let Err(error) = hf::token_ids(folder) {
        told(error);
    }
}

fn tokenizer_json(data: &[u8], folder: &Path) {
    let path = written(folder, "tokenizer.json", data);
    // Tried out in a child where the program is known, as in earnest.
    match tokenizer::load(&path, &Child::of_this_program()) {
        Err(error) => told(error),
        Ok(tokenizer) => {
            let sample = "Quick brown zebras, 1234 of them:\n\u{fb01} \u{65e5}\u{672c} QQQ";
            if let Ok(ids) = tokenizer.encode(sample) {
                assert!(ids.iter().all(|id| (*id as usize) < tokenizer.vocab_size()));
                let _ = tokenizer.decode(&ids);
            }
        }
    }
}

fn chat_template(data: &[u8], _: &Path) {
    let template = match Template::from_jinja("fuzz.jinja", &text(data)) {
        Ok(template) => template.with_variable("bos_token", "<s>"),
        Err(error) => return told(error),
    };
    let turns = [
        Message::new("user", " Hi "),
        Message::new("assistant", "Hello."),
    ];
    for prompt in [GenerationPrompt::Without, GenerationPrompt::With] {
        if let Err(error) = template.render_marked(&turns, None, prompt) {
            told(error);
        }
    }
}

fn watched(data: &[u8], folder: &Path, format: &str, name: &str) {
    let path = written(folder, name, data);
    let Ok(found) = find(&path, Some(format)) else {
        return;
    };
    let mapping = Mapping::parse(&[]).expect("no mapping at all");
    let clock = ManualClock::at(UnixMillis(0).0);
    let mut watched = ExternalRun::open(found, mapping, Box::new(clock));
    let mut events = Vec::new();
    while let Ok(news) = watched.poll() {
        events.extend(news.events);
        if !news.more {
            break;
        }
    }
    assert!(RunState::from_events(&events).series.len() <= 256);
}

fn tfevents(data: &[u8], folder: &Path) {
    watched(data, folder, "tfevents", "events.out.tfevents.1");
}

fn wandb(data: &[u8], folder: &Path) {
    watched(data, folder, "wandb", "run.wandb");
}

fn watched_text(data: &[u8], folder: &Path) {
    watched(data, folder, "trainer_state", "trainer_state.json");
    watched(data, folder, "jsonl", "a.jsonl");
    watched(data, folder, "csv", "a.csv");
    watched(data, folder, "text", "a.log");
}

fn machine(data: &[u8], _: &Path) {
    if let Err(error) = Recording::parse(&text(data), "fuzz.json") {
        told(error);
    }
}
