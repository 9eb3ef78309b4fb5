//! A model's card, README.md, in the hub's format: metadata in YAML, then text. Shared by `llmtui export`, which knows only
//! the model, and `llmtui card`, which also knows its run. What only people know is a placeholder in italics.

mod model;
mod results;

pub use results::CardResult;

use super::adapter_source::{AdapterSource, is_public};
use super::{Source, Subject};
use crate::base::text::one_line;
use crate::nn::HeadKind;
use model::{kind, kind_of};
use serde_json::Value;
use std::fmt::Write as _;

/// Name of the card's file.
pub(super) const FILE: &str = "README.md";

/// Facts about a model beyond its files. Empty fields become placeholders.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct About {
    /// An identifier of the hub: `apache-2.0`, `mit`, `other`.
    pub license: Option<String>,
    pub base_model: Option<String>,
    /// Codes of ISO 639, or `code`.
    pub languages: Vec<String>,
    /// Ids of the hub, or names of files.
    pub datasets: Vec<String>,
    pub results: Vec<CardResult>,
    /// How it was trained: names and values.
    pub procedure: Vec<(String, String)>,
    /// On which machine, by which program.
    pub environment: Vec<(String, String)>,
}

impl About {
    /// What the files of a model themselves tell: the repository of the hub whose weights these are, or were before adapters.
    pub(super) fn of(source: &Subject) -> About {
        About {
            base_model: source.base_id(),
            ..About::default()
        }
    }
}

/// The kind of model in the metadata.
struct Form<'a> {
    name: String,
    /// The hub's task.
    task: &'static str,
    /// What opens the folder.
    library: &'static str,
    tags: Vec<&'static str>,
    /// The base of an adapter alone.
    adapter_of: Option<&'a str>,
    /// How it comes from its base, in the hub's words.
    relation: Option<&'static str>,
}

/// README.md of a model folder. `dtype` is that of the weights.
pub fn card(source: &Subject, dtype: &str, about: &About) -> String {
    let library = match model::class_of(&source.config) {
        Some(_) => "transformers",
        None => "llmtui",
    };
    let form = Form {
        name: one_line(&source.title()),
        task: kind(&source.config).0,
        library,
        tags: vec!["llmtui"],
        adapter_of: None,
        relation: None,
    };
    compose(&form, &model::model(source, dtype), about)
}

/// README.md of a folder with a GGUF file, called `file` where that is known. `dtype` is that of most of its weights.
pub fn gguf_card(source: &Source, file: Option<&str>, dtype: &str, about: &About) -> String {
    // What was trained is more than its base in another format.
    let untrained =
        about.procedure.is_empty() && source.merge.is_none() && source.from.chain().1.is_empty();
    let relation = match untrained {
        true => "quantized",
        false => "finetune",
    };
    let form = Form {
        name: one_line(&source.title()),
        task: kind(&source.config).0,
        library: "gguf",
        tags: vec!["llmtui", "gguf"],
        adapter_of: None,
        relation: Some(relation),
    };
    compose(&form, &model::gguf(source, file, dtype), about)
}

/// The same of an adapter alone, for PEFT.
pub fn adapter_card(source: &AdapterSource, dtype: &str, about: &About) -> String {
    let scores = source.peft.whole().contains("score");
    let head = match scores {
        true => HeadKind::Score,
        false => HeadKind::Vocabulary,
    };
    let (task, opener) = kind_of(head);
    let form = Form {
        name: one_line(&source.name()),
        task,
        library: "peft",
        // Those that PEFT's own cards have.
        tags: vec!["llmtui", "lora", "transformers"],
        adapter_of: source.base.as_deref(),
        relation: Some("adapter"),
    };
    compose(&form, &model::adapter(source, dtype, opener), about)
}

fn compose(form: &Form, what: &str, about: &About) -> String {
    let mut out = front(form, about);
    let _ = write!(
        out,
        "\n# {}\n\nWritten by llmtui {}. Placeholders below mark what only the publisher knows.\n\n",
        plain(&form.name),
        env!("CARGO_PKG_VERSION")
    );
    out += what;
    let asked = |what: &str| format!("*To be written by the publisher: {what}.*\n");
    section(
        &mut out,
        "Intended use",
        &asked("intended use and out-of-scope use"),
    );
    let mut data = list(&about.datasets);
    data += &asked("sources and licenses of the data");
    section(&mut out, "Training data", &data);
    if !about.procedure.is_empty() {
        section(&mut out, "Training procedure", &table(&about.procedure));
    }
    let evaluation = match about.results.as_slice() {
        [] => asked("measured how, on what, with which result"),
        results => results::evaluated(results),
    };
    section(&mut out, "Evaluation", &evaluation);
    let mut limits = match &about.license {
        Some(license) => format!("License: {}.\n\n", plain(license)),
        None => String::new(),
    };
    limits += &match about.license {
        Some(_) => asked("known failures and biases of the data"),
        None => asked("known failures, biases of the data, and its license"),
    };
    section(&mut out, "Limits and license", &limits);
    if !about.environment.is_empty() {
        section(&mut out, "Environment", &table(&about.environment));
    }
    out
}

fn section(out: &mut String, title: &str, text: &str) {
    let _ = write!(out, "\n## {title}\n\n{text}");
}

/// The metadata. JSON strings are YAML strings, so that no name can break out of its place.
fn front(form: &Form, about: &About) -> String {
    let (name, task) = (&form.name, form.task);
    let quoted = |text: &str| Value::from(one_line(text)).to_string();
    let mut out = format!(
        "---\nlibrary_name: {}\npipeline_tag: {task}\ntags:\n",
        form.library
    );
    for tag in &form.tags {
        let _ = writeln!(out, "- {tag}");
    }
    let adapter_of = form.adapter_of.filter(|base| is_public(base));
    if let Some(base) = adapter_of {
        let _ = writeln!(out, "- {}", quoted(&format!("base_model:adapter:{base}")));
    }
    if let Some(license) = &about.license {
        let _ = writeln!(out, "license: {}", quoted(license));
    }
    // The hub takes ids here and below, and refuses cards with anything else.
    let derived = about.base_model.as_deref();
    let derived = derived.filter(|base| crate::models::repo(base).is_some());
    // An adapter's files decide what its base is.
    let base = match form.library {
        "peft" => adapter_of,
        _ => derived,
    };
    if let Some(base) = base {
        let _ = writeln!(out, "base_model: {}", quoted(base));
    }
    if let (Some(_), Some(relation)) = (base, form.relation) {
        let _ = writeln!(out, "base_model_relation: {relation}");
    }
    if !about.languages.is_empty() {
        out.push_str("language:\n");
        for code in &about.languages {
            let _ = writeln!(out, "- {}", quoted(code));
        }
    }
    let ids: Vec<&String> = about
        .datasets
        .iter()
        .filter(|d| crate::models::repo(d).is_some())
        .collect();
    if !ids.is_empty() {
        out.push_str("datasets:\n");
        for id in ids {
            let _ = writeln!(out, "- {}", quoted(id));
        }
    }
    let results = results::listed(&about.results, task);
    if !results.is_empty() {
        let _ = writeln!(out, "model-index:\n- name: {}\n  results:", quoted(name));
        for result in results {
            let _ = writeln!(out, "  - {result}");
        }
    }
    out.push_str("---\n");
    out
}

fn table(facts: &[(String, String)]) -> String {
    let mut out = String::from("| | |\n|---|---|\n");
    for (name, value) in facts {
        let _ = writeln!(out, "| {} | {} |", plain(name), plain(value));
    }
    out
}

fn list(items: &[String]) -> String {
    let mut out: String = items
        .iter()
        .map(|item| format!("- {}\n", plain(item)))
        .collect();
    if !out.is_empty() {
        out.push('\n');
    }
    out
}

/// Text that Markdown shows as it is, on one line.
fn plain(text: &str) -> String {
    let mut out = String::new();
    for c in one_line(text).chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '|' | '`' | '[' | ']' | '*' | '\\' => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    out
}
