//! The card has what the hub and its readers need: base, data, languages, task, results, and no blanks.

use super::super::card::{Card, NAME};
use super::super::subject::{Form, Subject};
use super::{Check, several};
use crate::base::finding::Finding;
use crate::base::human;
use crate::hf::{ADAPTER_CONFIG, Peft};
use crate::hub::is_repo_id;
use crate::models::ModelSource;
use serde_json::Value;

pub(super) const CHECK: Check = Check {
    id: "card",
    title: "Model card",
    run,
};

/// Words that templates of cards leave where somebody should write.
const BLANKS: &[&str] = &["To be written by the publisher", "More Information Needed", "[optional]"];
/// Letters of text below which a card says nothing.
const LEAST_TEXT: usize = 200;

fn run(subject: &Subject) -> Vec<Finding> {
    let Some(card) = &subject.card else {
        let found = Finding::fail(
            format!("there is no {NAME}"),
            "it is the model's page on the hub",
            "llmtui card RUN --license ID --to README.md writes one from a run, with --format gguf or peft for GGUF files or an adapter; llmtui export writes a stub",
        );
        return vec![found.at(NAME)];
    };
    if let Err(why) = &card.metadata {
        let found = Finding::fail(
            why.clone(),
            "the hub rejects a card with invalid metadata",
            "start with `---`, then keys such as `license: mit`, then another `---`",
        );
        return vec![found.at(NAME)];
    }
    let mut findings = Vec::new();
    let mut add = |key: &str, found: Option<Finding>| {
        let place = match key {
            "" => NAME.to_string(),
            key => format!("{NAME}: {key}"),
        };
        findings.extend(found.map(|f| f.at(place)));
    };
    add("base_model", base_model(subject, card));
    add("datasets", datasets(card));
    add("language", language(card));
    add("pipeline_tag", pipeline_tag(subject, card));
    add("library_name", library(subject, card));
    add("model-index", index(card));
    add("", blanks(card));
    if findings.is_empty() {
        findings.push(Finding::pass("base, data, languages, task, results and text are present"));
    }
    findings
}

fn base_model(subject: &Subject, card: &Card) -> Option<Finding> {
    let said = card.words("base_model");
    if let Some(odd) = said.iter().find(|id| !is_repo_id(id)) {
        return Some(Finding::fail(
            format!("{odd} is not a hub id"),
            "the hub rejects other values of base_model",
            "write org/name, or remove the key for a model trained from scratch",
        ));
    }
    if subject.form == Form::Adapter
        && let Ok(peft) = Peft::find(&subject.folder)
        && let Some(base) = peft.base().filter(|base| is_repo_id(base))
        && !said.is_empty()
        && !said.iter().any(|id| id == base)
    {
        return Some(Finding::fail(
            format!("the card says {}, {ADAPTER_CONFIG} {base}", several(&said)),
            "the hub links the adapter to one model, and PEFT loads the other",
            "make them match",
        ));
    }
    (said.is_empty() && subject.form == Form::Adapter).then(|| {
        Finding::fail(
            "the base model is not named",
            "the hub links an adapter to its base by this key",
            "write the hub id of the base",
        )
    })
}

fn datasets(card: &Card) -> Option<Finding> {
    let said = card.words("datasets");
    let odd: Vec<String> = said.iter().filter(|id| !is_repo_id(id)).cloned().collect();
    match (said.is_empty(), odd.is_empty()) {
        (true, _) => Some(Finding::warn(
            "no dataset is named",
            "users cannot find the model by its data, or check it for test contamination",
            "list hub ids, one per line; describe other data in the text",
        )),
        (false, false) => Some(Finding::fail(
            format!("{}: not a hub id", several(&odd)),
            "the hub rejects other values here",
            "list only hub ids here; put files and links into the text",
        )),
        _ => None,
    }
}

fn language(card: &Card) -> Option<Finding> {
    let said = card.words("language");
    let is_code = |code: &&String| {
        let special = matches!(code.as_str(), "multilingual" | "code");
        special || (2..=3).contains(&code.len()) && code.bytes().all(|b| b.is_ascii_lowercase())
    };
    let odd: Vec<String> = said.iter().filter(|code| !is_code(code)).cloned().collect();
    match (said.is_empty(), odd.is_empty()) {
        (true, _) => Some(Finding::warn(
            "no language is named",
            "users cannot find the model by its language",
            "set language: en, or a list of ISO 639 codes (code for programs)",
        )),
        (false, false) => Some(Finding::fail(
            format!("{}: not a language code", several(&odd)),
            "the hub rejects other values here",
            "use ISO 639 codes of two or three lowercase letters: en, de, swa",
        )),
        _ => None,
    }
}

fn pipeline_tag(subject: &Subject, card: &Card) -> Option<Finding> {
    let said = card.words("pipeline_tag");
    let is_reward = subject
        .models()
        .first()
        .and_then(|path| ModelSource::open(path).ok())
        .is_some_and(|source| source.config().is_reward_model());
    let fitting = if is_reward { "text-classification" } else { "text-generation" };
    match said.first().map(String::as_str) {
        None => Some(Finding::warn(
            "no task is named",
            "the hub shows no widget and lists the model under no task",
            format!("pipeline_tag: {fitting}"),
        )),
        Some(word) if word.starts_with("text") || word.contains("text") || word == "translation" || word == "summarization" => {
            let wrong = is_reward && word == "text-generation";
            wrong.then(|| {
                Finding::warn(
                    "text-generation, but the model has a score head",
                    "programs that load it by task fail",
                    format!("pipeline_tag: {fitting}"),
                )
            })
        }
        Some(word) => Some(Finding::warn(
            format!("{word}: not a task of a language model"),
            "the hub lists it under the wrong task",
            format!("pipeline_tag: {fitting}"),
        )),
    }
}

fn library(subject: &Subject, card: &Card) -> Option<Finding> {
    let said = card.words("library_name");
    let wanted = match subject.form {
        Form::Adapter => "peft",
        Form::Model if has_no_class(subject) => "llmtui",
        Form::Model => "transformers",
        // The hub knows such files by their endings, and others than ours open them.
        Form::Gguf if !said.iter().any(|word| word == "transformers" || word == "peft") => {
            return None;
        }
        Form::Gguf => "gguf",
    };
    (!said.iter().any(|word| word == wanted)).then(|| {
        let seen = match said.first() {
            Some(word) => format!("{word}, where {wanted} opens the folder"),
            None => "the library that loads the folder is not named".into(),
        };
        Finding::warn(
            seen,
            "the hub uses it to show how to load the model",
            format!("library_name: {wanted}"),
        )
    })
}

/// Only llmtui opens it; a model that cannot be opened at all is another check's.
fn has_no_class(subject: &Subject) -> bool {
    let opened = ModelSource::open(&subject.folder);
    opened.is_ok_and(|source| source.class().is_none())
}

/// The results, as the hub's schema has them: another shape is refused with the whole card.
fn index(card: &Card) -> Option<Finding> {
    let Some(index) = card.get("model-index") else {
        return Some(Finding::warn(
            "no results",
            "users cannot see how good the model is",
            "run llmtui eval FOLDER; llmtui card RUN adds the results",
        ));
    };
    let fault = index_fault(index)?;
    Some(Finding::fail(
        fault,
        "the hub rejects a card with an invalid model-index",
        "an entry has name and results; a result has task.type, dataset.name and dataset.type, metrics with type and value",
    ))
}

fn index_fault(index: &Value) -> Option<String> {
    let Some(models) = index.as_array().filter(|list| !list.is_empty()) else {
        return Some("it is not a list of models".into());
    };
    for model in models {
        if !model["name"].is_string() {
            return Some("an entry has no name".into());
        }
        let Some(results) = model["results"].as_array() else {
            return Some("an entry has no list of results".into());
        };
        for (at, result) in results.iter().enumerate() {
            let at = at + 1;
            if !result["task"]["type"].is_string() {
                return Some(format!("result {at} has no task.type"));
            }
            if !result["dataset"]["name"].is_string() || !result["dataset"]["type"].is_string() {
                return Some(format!("result {at} has no dataset.name and dataset.type"));
            }
            let metrics = result["metrics"].as_array().filter(|list| !list.is_empty());
            let whole = |metric: &Value| metric["type"].is_string() && !metric["value"].is_null();
            if !metrics.is_some_and(|metrics| metrics.iter().all(whole)) {
                return Some(format!("result {at} has no metrics with type and value"));
            }
        }
    }
    None
}

fn blanks(card: &Card) -> Option<Finding> {
    let n: usize = BLANKS.iter().map(|blank| card.text.matches(blank).count()).sum();
    if n > 0 {
        return Some(Finding::warn(
            format!("left to fill in: {}", human::counted(n as u64, "placeholder")),
            "only you know the intended use, limitations and origin of the data",
            "fill them in, or remove them",
        ));
    }
    (card.text.trim().len() < LEAST_TEXT).then(|| {
        Finding::warn(
            format!("{} letters of text", card.text.trim().chars().count()),
            "users do not learn what the model is for or where it fails",
            "describe its use, its training data and its limitations",
        )
    })
}
