//! Exporting a run from the workbench: which format, into which folder; `llmtui export` does it in a process of its own.

use super::{ENTRY, HomePane, HomeRow, info};
use crate::base::text::{one_line, shown};
use crate::run::index::RunSummary;
use crate::run::state::Level;
use crate::ui::effect::Effect;
use crate::ui::overlays::{Choice, Item, Picker, Prompt};
use crate::ui::request::{Answer, Request, Topic};
use crate::ui::store::{Store, short_run};
use std::path::{Path, PathBuf};

/// The questions.
pub(super) const FORMAT: &str = "export-format";
pub(super) const FOLDER: &str = "export-folder";

/// What can be written: the options of the command, the end of the folder's name, the title, and what reads it.
const FORMATS: [(&[&str], &str, &str, &str); 5] = [
    (
        &["--format", "hf"],
        "hf",
        "HF folder (Hugging Face)",
        "transformers, vLLM; an adapter is merged into its base",
    ),
    (
        &["--format", "hf", "--dtype", "bf16"],
        "hf-bf16",
        "HF folder in bf16",
        "the same in half the size",
    ),
    (
        &["--format", "peft"],
        "peft",
        "PEFT adapter",
        "of a LoRA run: the adapter without its base",
    ),
    (
        &["--format", "gguf"],
        "gguf",
        "GGUF file",
        "llama.cpp, Ollama, LM Studio",
    ),
    (
        &["--format", "gguf", "--dtype", "q8_0"],
        "gguf-q8_0",
        "GGUF file in Q8_0",
        "the same with 8-bit weights",
    ),
];

/// A run on its way to a folder.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Export {
    run: PathBuf,
    /// Index into [`FORMATS`].
    format: Option<usize>,
}

impl HomePane {
    /// Asks for a format: of the selected run while Home is on the screen, else of the run that is open.
    pub(super) fn export(&mut self, store: &Store, in_front: bool) -> Vec<Request> {
        let held = || store.held.as_ref().and_then(|held| held.path.clone());
        let run = match self.current(store).filter(|_| in_front) {
            Some(HomeRow::Run(path)) => Some(path),
            _ if in_front => None,
            _ => held(),
        };
        let Some(run) = run else {
            return vec![info("select the run to export")];
        };
        let item = |(_, word, title, reads): &(_, &str, &str, &str)| Item {
            title: (*title).into(),
            detail: (*reads).into(),
            right: String::new(),
            choice: Choice::Answer(topic(FORMAT), Answer::Text((*word).into())),
        };
        let title = format!("export {}", name_of(&run, store));
        let picker = Picker::new(&title, "", FORMATS.iter().map(item).collect());
        self.exporting = Some(Export { run, format: None });
        vec![Request::Open(Box::new(picker.about(topic(FORMAT))))]
    }

    /// A format was chosen, or a folder.
    pub(super) fn on_export(&mut self, about: &str, text: &str, store: &Store) -> Vec<Request> {
        let Some(mut export) = self.exporting.take() else {
            return Vec::new();
        };
        if about == FORMAT {
            let Some(at) = FORMATS.iter().position(|(_, word, ..)| *word == text) else {
                return Vec::new();
            };
            let folder = format!("exports/{}-{}", name_of(&export.run, store), FORMATS[at].1);
            let hint = "Absent or empty; the best checkpoint is written. {accept} exports";
            let prompt = Prompt::new(topic(FOLDER), "into which folder?", hint);
            export.format = Some(at);
            self.exporting = Some(export);
            return vec![Request::Open(Box::new(
                prompt.with(&folder).path().needed(),
            ))];
        }
        let Some(format) = export.format.map(|at| &FORMATS[at]) else {
            return Vec::new();
        };
        let words = format!("exporting {} as {}", name_of(&export.run, store), format.2);
        let effect = Effect::ExportRun {
            run_dir: export.run,
            options: format.0.iter().map(|word| (*word).to_string()).collect(),
            to: text.trim().into(),
        };
        vec![Request::Toast(Level::Info, words), Request::Do(effect)]
    }
}

/// What came of it.
pub(super) fn exported(to: &Path, result: &Result<(), String>) -> Request {
    match result {
        Ok(()) => Request::Toast(Level::Good, format!("exported to {}", shown(to))),
        Err(why) => Request::Toast(Level::Bad, format!("not exported: {}", one_line(why))),
    }
}

fn name_of(run: &Path, store: &Store) -> String {
    let of = |summary: &&RunSummary| summary.path == run;
    let id = store
        .runs()
        .iter()
        .find(of)
        .map(|summary| summary.id.clone());
    let folder = || {
        run.file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    };
    let id = id.unwrap_or_else(folder);
    one_line(short_run(&id))
}

fn topic(about: &'static str) -> Topic {
    Topic {
        pane: &ENTRY,
        about,
    }
}
