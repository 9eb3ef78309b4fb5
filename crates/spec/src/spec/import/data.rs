//! Datasets of other tools as `data.sources`: names and paths carry over, along with their row settings.

use super::{Fate, Line, Reader, brief, plain};
use serde_json::{Map, Value, json};

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
    ("sharegpt", "sharegpt"),
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

const LEFT_OUT: &str = "not carried over: `format` and `columns` of the source say how it is read; `llmtui data inspect` shows it";

/// Whether a dataset's rows are plain text.
fn is_text(map: &Map<String, Value>) -> bool {
    let kind = map.get("type").map(plain).unwrap_or_default();
    matches!(&*kind, "completion" | "pretrain" | "")
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
        for (key, value) in map {
            let theirs = format!("{place}.{key}: {}", brief(value));
            if matches!(key.as_str(), "path" | "data_files" | "ds_type") {
                continue;
            }
            let part = PARTS.iter().find(|(theirs, _)| theirs == key);
            let (fate, ours, words) = match (part, key.as_str(), value.as_str()) {
                (Some((_, ours)), _, Some(text)) => {
                    source.insert((*ours).into(), json!(text));
                    (Fate::Mapped, format!("{ours}: {text}"), "")
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
        self.line(
            Fate::Mapped,
            theirs,
            &format!("data.sources: {part}: {text}"),
            "",
        );
        self.parts.insert(part.into(), json!(text));
    }

    /// Writes what was collected. Without data, a run would train on the embedded corpus, which was not requested.
    pub(super) fn lay_sources(&mut self) {
        if self.sources.is_empty() && !self.parts.is_empty() {
            let nameless = ("name".to_string(), json!(MISSING));
            self.sources.push(Map::from_iter([nameless]));
        }
        if let [only] = self.sources.as_mut_slice() {
            only.append(&mut self.parts);
        }
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
