//! A model's card, README.md, in the hub's format: metadata in YAML, then text. Shared by `llmtui export`, which knows only
//! the model, and `llmtui card`, which also knows its run. What only people know is a placeholder in italics.

use super::adapter_source::{AdapterSource, is_public};
use super::{NO_PADDING, Source};
use crate::base::human;
use crate::base::text::one_line;
use crate::hf;
use crate::nn::{HeadKind, ModelConfig};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// A result for the card: the metric and its value.
#[derive(Debug, Clone, PartialEq)]
pub struct CardResult {
    pub task: String,
    pub metric: String,
    pub value: f64,
    pub stderr: Option<f64>,
    pub items: usize,
}

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
}

/// README.md. `dtype` is that of the weights.
pub fn card(source: &Source, dtype: &str, about: &About) -> String {
    let form = Form {
        name: one_line(&source.from.name()),
        task: kind(source.model.config()).0,
        library: "transformers",
        tags: vec!["llmtui"],
        adapter_of: None,
    };
    compose(&form, &model(source, dtype), about)
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
    };
    compose(&form, &adapter(source, dtype, opener), about)
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
        results => evaluated(results),
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
    if adapter_of.is_some() {
        out.push_str("base_model_relation: adapter\n");
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
    if !about.results.is_empty() {
        let result = |result: &CardResult| {
            json!({
                "task": {"type": task},
                "dataset": {"name": result.task, "type": result.task},
                "metrics": [{"type": result.metric, "value": result.value, "name": result.metric}],
            })
        };
        let results: Vec<Value> = about.results.iter().map(result).collect();
        let _ = writeln!(out, "model-index:\n- name: {}\n  results:", quoted(name));
        for result in results {
            let _ = writeln!(out, "  - {result}");
        }
    }
    out.push_str("---\n");
    out
}

fn model(source: &Source, dtype: &str) -> String {
    let model = &source.model;
    let shape = model.shape();
    let class = hf::family_of(model.config()).map_or("", |family| family.class_of(model.config()));
    let heads = format!(
        "{}, {}, {} ({})",
        shape.n_layer, shape.d_model, shape.n_head, shape.n_kv_head
    );
    let facts = [
        ("class", class.to_string()),
        ("parameters", human::grouped(model.n_params() as u64)),
        ("layers, width, heads (key/value)", heads),
        (
            "context",
            format!("{} tokens", human::grouped(shape.seq_len as u64)),
        ),
        (
            "vocabulary",
            format!("{} tokens", human::grouped(shape.vocab_size as u64)),
        ),
        ("dtype", dtype.to_string()),
    ];
    let opener = kind(model.config()).1;
    let adapted = match source.from.adapter() {
        Some(_) => "The trained adapter is merged into these weights.\n\n",
        None => "",
    };
    let chat = match source.from.has_chat_template() {
        _ if model.config().is_reward_model() => {
            "It is a reward model: its single logit scores a text, read at the last non-padding token."
        }
        true => "It has a chat template.",
        false => "It has no chat template: it completes text.",
    };
    format!(
        "{}\n{adapted}{chat}\n\n```python\nfrom transformers import {opener}, AutoTokenizer\n\n\
         model = {opener}.from_pretrained(\"FOLDER\")\n\
         tokenizer = AutoTokenizer.from_pretrained(\"FOLDER\")\n{}```\n",
        table(&facts.map(|(name, value)| (name.to_string(), value))),
        match model.config().is_reward_model() {
            true => scoring(source.ids.pad),
            false => String::new(),
        }
    )
}

/// Lines of Python that score texts.
fn scoring(pad: Option<u32>) -> String {
    let inputs = match pad {
        Some(_) => {
            "# padded on the right, as in training\ntokenizer.padding_side = \"right\"\ninputs = tokenizer(texts, padding=True".into()
        }
        None => format!("# {NO_PADDING}\ninputs = tokenizer(text"),
    };
    format!("\n{inputs}, return_tensors=\"pt\")\nscores = model(**inputs).logits[:, 0]\n")
}

/// What an adapter is, its base, and how to load both with PEFT.
fn adapter(source: &AdapterSource, dtype: &str, opener: &str) -> String {
    let peft = &source.peft;
    let whole = peft.whole();
    let listed = |names: std::collections::BTreeSet<String>| {
        let names: Vec<String> = names.into_iter().collect();
        names.join(", ")
    };
    let base = source.base.as_deref().unwrap_or("not said");
    let mut facts = vec![
        ("adapter", format!("{}, {}", peft.kind(), peft.sizes())),
        ("base", base.to_string()),
        ("targets", listed(source.targets())),
        ("parameters", human::grouped(peft.n_values())),
        ("dtype", dtype.to_string()),
    ];
    if !whole.is_empty() {
        facts.insert(3, ("trained whole", listed(whole)));
    }
    if let Some(digest) = peft.base_fingerprint() {
        facts.push(("fingerprint of the base", digest.to_string()));
    }
    let note = match source.base_is_public() {
        true => String::new(),
        false => "*To be written by the publisher: the id of its base on the hub, here and as base_model.*\n\n".into(),
    };
    // One number, not transformers' two labels.
    let labels = match (opener.contains("Sequence"), &source.pad) {
        (true, Some((pad, _))) => format!(", num_labels=1, pad_token_id={pad}"),
        (true, None) => ", num_labels=1".into(),
        (false, _) => String::new(),
    };
    let scoring = match opener.contains("Sequence") {
        true => scoring(source.pad.as_ref().map(|(pad, _)| *pad)),
        false => String::new(),
    };
    let id = match source.base_is_public() {
        true => base,
        false => "BASE",
    };
    // PEFT puts tables on tables of the same size alone.
    let resized = match source.grown {
        Some(rows) => format!("base.resize_token_embeddings({rows})\n"),
        None => String::new(),
    };
    let tokenizer = match crate::data::tokenizer::has_tokenizer(peft.folder()) {
        true => "FOLDER",
        false => id,
    };
    format!(
        "It is an adapter: small matrices that modify the weights of a base model, which is not included.\n\n{}\n{note}\
         ```python\nfrom peft import PeftModel\nfrom transformers import {opener}, AutoTokenizer\n\n\
         base = {opener}.from_pretrained(\"{id}\"{labels})\n{resized}model = PeftModel.from_pretrained(base, \"FOLDER\")\n\
         tokenizer = AutoTokenizer.from_pretrained(\"{tokenizer}\")\n{scoring}```\n\n\
         `model.merge_and_unload()` adds it to the weights; `llmtui merge --base MODEL --adapter FOLDER --to DIR` does the same.\n",
        table(&named(facts))
    )
}

/// The hub's task of a model, and the class of transformers that opens it.
fn kind(config: &ModelConfig) -> (&'static str, &'static str) {
    kind_of(config.head)
}

fn kind_of(head: HeadKind) -> (&'static str, &'static str) {
    match head {
        HeadKind::Vocabulary => ("text-generation", "AutoModelForCausalLM"),
        HeadKind::Score => ("text-classification", "AutoModelForSequenceClassification"),
    }
}

fn named(facts: Vec<(&str, String)>) -> Vec<(String, String)> {
    let owned = facts
        .into_iter()
        .map(|(name, value)| (name.to_string(), value));
    owned.collect()
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

fn evaluated(results: &[CardResult]) -> String {
    let mut out = String::from(
        "By `llmtui eval`, prompts and metrics as lm-evaluation-harness 0.4 has them; ± is the standard error.\n\n\
         | task | metric | value | items |\n|---|---|---|---|\n",
    );
    for result in results {
        let value = human::with_error(result.value, result.stderr);
        let (task, metric) = (plain(&result.task), plain(&result.metric));
        let _ = writeln!(out, "| {task} | {metric} | {value} | {} |", result.items);
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
