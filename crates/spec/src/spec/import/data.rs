//! Datasets of other tools as `data.sources`: names and paths carry over, along with their row settings.

use super::layout::{Learns, layout, usual_roles};
use super::{Fate, Line, Reader, brief, plain};
use crate::data::source::is_data_file;
use serde_json::{Map, Value, json};
use std::path::Path;

/// How a dialect lists its datasets.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sets {
    /// `a, b`: entries of a dataset_info.json outside this file.
    Listed,
    /// A path, a hub name, or a list of maps with `path`, `type`, `name` …
    Maps,
    /// One name; its other settings are in keys of their own.
    Name,
}

/// Placeholder for data the file does not name: no run can start with it.
const MISSING: &str = "NAME-YOUR-DATA.jsonl";
const NOT_IN_FILE: &str = "the file names no training data: put a file or a hub dataset here";
const LISTED: &str = "an entry of dataset_info.json: replace it with the file or hub name given there, and map differing column names under `columns`";

/// Their format names and ours; `auto` detects it from the columns.
const FORMATS: &[(&str, &str)] = &[
    ("alpaca", "alpaca"),
    ("completion", "text"),
    ("pretrain", "text"),
    ("chat_template", "auto"),
    ("input_output", "auto"),
];

/// Fields of a dataset's map and ours.
const PARTS: &[(&str, &str)] = &[
    ("name", "subset"),
    ("split", "split"),
    ("revision", "revision"),
];

/// Methods that learn from preferences.
const LEARN_PAIRS: [&str; 5] = ["dpo", "orpo", "cpo", "simpo", "reward"];

const LEFT_OUT: &str = "not carried over: `format` and `columns` of the source say how it is read; `llmtui data inspect` shows it";

/// Whether a dataset's rows are plain text.
fn is_text(map: &Map<String, Value>) -> bool {
    let kind = map.get("type").map(plain).unwrap_or_default();
    matches!(&*kind, "completion" | "pretrain" | "")
}

/// Whether a name is a file's: it is on this disk, or ends as files of data do.
fn is_file(name: &str) -> bool {
    let path = Path::new(name);
    path.is_file() || is_data_file(path) || name.ends_with(".txt")
}

/// The rows of `train[:20%]`: the split, and the part of it that comes first.
fn beginning(text: &str) -> Option<(&str, f64)> {
    let (split, rest) = text.split_once("[:")?;
    let percent: f64 = rest.strip_suffix("%]")?.trim().parse().ok()?;
    (percent > 0.0 && percent <= 100.0).then_some((split, percent / 100.0))
}

/// A part of a dataset: what becomes of it, what of it is kept, and why not all. A file is read whole; shares of a split are
/// not read alone.
fn part_of<'a>(part: &str, text: &'a str, is_file: bool) -> (Fate, Option<&'a str>, &'static str) {
    let share = part == "split" && text.contains('[');
    match (is_file, share) {
        (true, true) => (
            Fate::NoEqual,
            None,
            "the whole file is read: cut it with `llmtui data split` or `head`",
        ),
        (true, false) => (Fate::Needless, None, "a file is read whole"),
        (false, true) => (
            Fate::Differs,
            text.split('[').next(),
            "every row of the split is used; train.max_steps ends a run earlier",
        ),
        (false, false) => (Fate::Mapped, Some(text), ""),
    }
}

/// Where the rows of a source are.
fn place(source: &Map<String, Value>) -> String {
    let place = ["name", "path", "hub"]
        .into_iter()
        .find_map(|key| source.get(key)?.as_str());
    place.unwrap_or_default().to_string()
}

impl Reader {
    /// Datasets under one key.
    pub(super) fn data(&mut self, sets: Sets, theirs: String, value: &Value) {
        let items: Vec<Value> = match (sets, value) {
            (Sets::Listed, Value::String(names)) => {
                let names = names.split(',').map(str::trim).filter(|n| !n.is_empty());
                names.map(|name| json!(name)).collect()
            }
            (_, Value::Array(items)) => items.clone(),
            (_, Value::Null) => Vec::new(),
            (_, one) => vec![one.clone()],
        };
        let key = theirs.split(':').next().unwrap_or_default().to_string();
        let mut names = Vec::new();
        for (i, item) in items.iter().enumerate() {
            let source = match item {
                Value::Object(map) => self.set_of_map(&format!("{key}[{i}]"), map),
                name => self.set_by_name(sets, &plain(name)),
            };
            names.push(place(&source));
            self.sources.push(source);
        }
        let listed =
            matches!(sets, Sets::Listed) && names.iter().any(|name| !name.contains(['.', '/']));
        let (fate, words) = match (names.is_empty(), listed) {
            (true, _) => (Fate::NoEqual, NOT_IN_FILE),
            (_, true) => (Fate::Differs, LISTED),
            (_, false) => (Fate::Mapped, ""),
        };
        self.line(
            fate,
            theirs,
            &format!("data.sources: {}", names.join(", ")),
            words,
        );
    }

    fn set_by_name(&mut self, sets: Sets, name: &str) -> Map<String, Value> {
        let registered = match sets {
            Sets::Listed => self.registered(name),
            _ => None,
        };
        registered.unwrap_or_else(|| Map::from_iter([("name".to_string(), json!(name))]))
    }

    fn set_of_map(&mut self, place: &str, map: &Map<String, Value>) -> Map<String, Value> {
        let file = map.get("data_files").and_then(|files| match files {
            Value::Array(files) => files.first().and_then(Value::as_str),
            files => files.as_str(),
        });
        let path = file.or_else(|| map.get("path").and_then(Value::as_str));
        let mut source = Map::new();
        source.insert("name".into(), json!(path.unwrap_or(MISSING)));
        let is_file = file.is_some() || path.is_some_and(is_file);
        let method = plain(&self.draft.value("method"));
        let learns = match &*method {
            "kto" => Learns::Labels,
            method if LEARN_PAIRS.contains(&method) => Learns::Pairs,
            _ => Learns::Texts,
        };
        let laid_out = layout(map, learns);
        if let Some(laid_out) = &laid_out {
            source.insert("format".into(), json!(laid_out.format));
            if !laid_out.columns.is_empty() {
                source.insert("columns".into(), Value::Object(laid_out.columns.clone()));
            }
        }
        for (key, value) in map {
            let theirs = format!("{place}.{key}: {}", brief(value));
            if matches!(key.as_str(), "path" | "data_files" | "ds_type") {
                continue;
            }
            let part = PARTS.iter().find(|(theirs, _)| theirs == key);
            let (fate, ours, words) = match (part, key.as_str(), value.as_str()) {
                (_, _, None) if value.is_null() => {
                    (Fate::Needless, String::new(), "empty: the default")
                }
                (_, "split", Some(text)) if beginning(text).is_some() => {
                    let (split, part) = beginning(text).unwrap_or((text, 1.0));
                    source.insert("fraction".into(), json!(part));
                    let mut ours = format!("fraction: {part}");
                    if !is_file {
                        source.insert("split".into(), json!(split));
                        ours = format!("split: {split}; {ours}");
                    }
                    (Fate::Mapped, ours, "")
                }
                (_, "shards", None) if value.as_u64().is_some_and(|n| n > 1) => {
                    let part = 1.0 / value.as_f64().unwrap_or(1.0);
                    source.insert("fraction".into(), json!(part));
                    (
                        Fate::Differs,
                        format!("fraction: {part}"),
                        "as many rows, the first ones; the tool draws them",
                    )
                }
                (Some((_, ours)), _, Some(text)) => {
                    let (fate, kept, words) = part_of(ours, text, is_file);
                    if let Some(kept) = kept {
                        source.insert((*ours).into(), json!(kept));
                    }
                    let ours = kept.map_or_else(String::new, |kept| format!("{ours}: {kept}"));
                    (fate, ours, words)
                }
                (_, key, _) if laid_out.as_ref().is_some_and(|l| l.keys.contains(&key)) => {
                    let mut ours = format!("format: {}", plain(&source["format"]));
                    if let Some(columns) = source.get("columns") {
                        ours.push_str(&format!("; columns: {columns}"));
                    }
                    (Fate::Mapped, ours, "")
                }
                (_, "roles", _) if usual_roles(value) => (
                    Fate::Needless,
                    String::new(),
                    "roles have these names here too",
                ),
                (_, "roles_to_train", _) if *value == json!(["assistant"]) => (
                    Fate::Needless,
                    String::new(),
                    "the assistant's turns are learned anyway",
                ),
                (_, "train_on_eos", Some("turn")) => (
                    Fate::Needless,
                    String::new(),
                    "the token that ends an assistant's turn is learned anyway",
                ),
                (_, "columns", _) => (
                    Fate::Needless,
                    String::new(),
                    "a format ignores columns it does not use",
                ),
                (_, "type", Some(word))
                    if learns == Learns::Labels && word.ends_with(".argilla_chat") =>
                {
                    (
                        Fate::NoEqual,
                        String::new(),
                        "its `completion` is a whole conversation: rename that column to `messages`, and it is read as labelled answers",
                    )
                }
                (_, "type", Some(word)) => match FORMATS.iter().find(|(t, _)| *t == word) {
                    Some((_, "auto")) => (
                        Fate::Needless,
                        String::new(),
                        "the format is detected from the columns",
                    ),
                    Some((_, ours)) => {
                        source.insert("format".into(), json!(ours));
                        (Fate::Mapped, format!("format: {ours}"), "")
                    }
                    None => (
                        Fate::NoEqual,
                        String::new(),
                        "the format is detected from the columns; otherwise set `format` and `columns`",
                    ),
                },
                (_, "field_messages", Some(column)) => {
                    source.insert("columns".into(), json!({"messages": column}));
                    (Fate::Mapped, format!("columns: messages: {column}"), "")
                }
                // Of texts: other types have fields of other names.
                (_, "field" | "text_column", Some(column)) if is_text(map) => {
                    source.insert("columns".into(), json!({"text": column}));
                    source.insert("format".into(), json!("text"));
                    (Fate::Mapped, format!("columns: text: {column}"), "")
                }
                (_, "field" | "text_column", Some(_)) => (
                    Fate::Needless,
                    String::new(),
                    "the tool reads it of plain text alone (type: completion)",
                ),
                _ => (Fate::NoEqual, String::new(), LEFT_OUT),
            };
            self.line(fate, theirs, &ours, words);
        }
        source
    }

    /// A setting of the one dataset, from a key of its own.
    pub(super) fn data_part(&mut self, part: &'static str, theirs: String, value: &Value) {
        let text = plain(value);
        self.parts.push((theirs, part, text));
    }

    /// Settings of the one dataset, once it is known.
    fn lay_parts(&mut self) {
        for (theirs, part, text) in std::mem::take(&mut self.parts) {
            let [only] = self.sources.as_mut_slice() else {
                let words = "there are several datasets: give each its own below data.sources";
                self.line(Fate::NoEqual, theirs, "", words);
                continue;
            };
            let first = beginning(&text).filter(|_| part == "split");
            let text = first.map_or(&*text, |(split, _)| split);
            let (fate, kept, words) = part_of(part, text, is_file(&place(only)));
            if let Some((_, share)) = first {
                only.insert("fraction".into(), json!(share));
                if let Some(split) = kept {
                    only.insert(part.into(), json!(split));
                }
                let ours = format!("data.sources: {part}: {text}, fraction: {share}");
                self.line(Fate::Mapped, theirs, &ours, "");
                continue;
            }
            let ours =
                kept.map_or_else(String::new, |kept| format!("data.sources: {part}: {kept}"));
            if let Some(kept) = kept {
                only.insert(part.into(), json!(kept));
            }
            self.line(fate, theirs, &ours, words);
        }
    }

    /// Writes what was collected. Without data, a run would train on the embedded corpus, which was not requested.
    pub(super) fn lay_sources(&mut self) {
        if self.sources.is_empty() && !self.parts.is_empty() {
            let nameless = ("name".to_string(), json!(MISSING));
            self.sources.push(Map::from_iter([nameless]));
        }
        self.lay_parts();
        if self.sources.len() > 1 && !self.says_mix {
            let theirs = "(several datasets)".into();
            self.set(theirs, "data.mix", "concatenate", "");
        }
        let (path, text, why) = match self.sources.as_slice() {
            [] => ("data.path", MISSING.to_string(), NOT_IN_FILE),
            [one] if one.len() == 1 && place(one).ends_with(".txt") => {
                ("data.path", place(one), "")
            }
            all => ("data.sources", json!(all).to_string(), ""),
        };
        if let Err(issue) = self.draft.set(path, &text, why) {
            self.lines.push(Line {
                fate: Fate::NoEqual,
                theirs: "(its data)".into(),
                ours: String::new(),
                words: format!("{path}: {} {}", issue.what, issue.hint),
            });
        } else if self.sources.is_empty() {
            self.line(Fate::NoEqual, "(no data)".into(), path, NOT_IN_FILE);
        }
    }
}
