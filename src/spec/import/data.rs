//! Data sets of other tools, as `data.sources`: names and paths go over, and what a set says about its rows with them.

use super::{Fate, Line, Reader, brief, plain};
use serde_json::{Map, Value, json};

/// How a dialect writes its data sets.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sets {
    /// `a, b`: entries of a dataset_info.json that the file itself does not show.
    Listed,
    /// A path, a name of the hub, or a list of maps with `path`, `type`, `name` …
    Maps,
    /// One name; its other parts stand in keys of their own.
    Name,
}

/// What stands in for data that the file does not name: no run can begin with it.
const MISSING: &str = "NAME-YOUR-DATA.jsonl";
const NOT_IN_FILE: &str =
    "the file does not name what to learn from: put a file or a data set of the hub here";
const LISTED: &str = "an entry of dataset_info.json: put the file or hub name that stands there in its place, and names of columns that differ under `columns`";

/// Their words for a format and ours; `auto` leaves it to the columns.
const FORMATS: &[(&str, &str)] = &[
    ("alpaca", "alpaca"),
    ("sharegpt", "sharegpt"),
    ("completion", "text"),
    ("pretrain", "text"),
    ("chat_template", "auto"),
    ("input_output", "auto"),
];

/// Parts of a data set's map and of ours.
const PARTS: &[(&str, &str)] = &[
    ("name", "subset"),
    ("split", "split"),
    ("revision", "revision"),
];

impl Reader {
    /// Data sets under one key.
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
                name => Map::from_iter([("name".to_string(), json!(plain(name)))]),
            };
            names.push(source["name"].as_str().unwrap_or_default().to_string());
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
                        "rows are told by their columns",
                    ),
                    Some((_, ours)) => {
                        source.insert("format".into(), json!(ours));
                        (Fate::Mapped, format!("format: {ours}"), "")
                    }
                    None => (
                        Fate::NoEqual,
                        String::new(),
                        "rows are told by their columns; `format` and `columns` say it where they do not",
                    ),
                },
                (_, "field_messages", Some(column)) => {
                    source.insert("columns".into(), json!({"messages": column}));
                    (Fate::Mapped, format!("columns: messages: {column}"), "")
                }
                _ => (
                    Fate::NoEqual,
                    String::new(),
                    "look at `llmtui data inspect` of this source",
                ),
            };
            self.line(fate, theirs, &ours, words);
        }
        source
    }

    /// A part of the one data set that a key of its own tells.
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

    /// Writes what was gathered. A run without data of its own would learn the embedded corpus, which nobody asked for.
    pub(super) fn lay_sources(&mut self) {
        if self.sources.is_empty() && !self.parts.is_empty() {
            let nameless = ("name".to_string(), json!(MISSING));
            self.sources.push(Map::from_iter([nameless]));
        }
        if let [only] = self.sources.as_mut_slice() {
            only.append(&mut self.parts);
        }
        let name =
            |source: &Map<String, Value>| source["name"].as_str().unwrap_or_default().to_string();
        let (path, text, why) = match self.sources.as_slice() {
            [] => ("data.path", MISSING.to_string(), NOT_IN_FILE),
            [one] if one.len() == 1 && name(one).ends_with(".txt") => ("data.path", name(one), ""),
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
