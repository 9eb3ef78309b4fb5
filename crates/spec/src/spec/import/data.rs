//! Datasets of other tools as `data.sources`: names and paths carry over, along with their row settings.

use super::set::beginning;
use super::{KeyOutcome, Line, Reader, plain};
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
pub(super) const MISSING: &str = "NAME-YOUR-DATA.jsonl";
const NOT_IN_FILE: &str = "the file names no training data: put a file or a hub dataset here";
const LISTED: &str = "an entry of dataset_info.json: replace it with the file or hub name given there, and map differing column names under `columns`";

/// Whether a name is a file's: it is on this disk, or ends as files of data do.
pub(super) fn is_file(name: &str) -> bool {
    let path = Path::new(name);
    path.is_file() || is_data_file(path) || name.ends_with(".txt")
}

/// A part of a dataset: what becomes of it, what of it is kept, and why not all. A file is read whole; shares of a split are
/// not read alone.
pub(super) fn part_of<'a>(
    part: &str,
    text: &'a str,
    is_file: bool,
) -> (KeyOutcome, Option<&'a str>, &'static str) {
    let share = part == "split" && text.contains('[');
    match (is_file, share) {
        (true, true) => (
            KeyOutcome::NoEqual,
            None,
            "the whole file is read: cut it with `llmtui data split` or `head`",
        ),
        (true, false) => (KeyOutcome::Needless, None, "a file is read whole"),
        (false, true) => (
            KeyOutcome::Differs,
            text.split('[').next(),
            "every row of the split is used; train.max_steps ends a run earlier",
        ),
        (false, false) => (KeyOutcome::Mapped, Some(text), ""),
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
            let sources = match item {
                Value::Object(map) => self.set_of_map(&format!("{key}[{i}]"), map),
                name => vec![self.set_by_name(sets, &plain(name))],
            };
            names.extend(sources.iter().map(place));
            self.sources.extend(sources);
        }
        let listed =
            matches!(sets, Sets::Listed) && names.iter().any(|name| !name.contains(['.', '/']));
        let (outcome, words) = match (names.is_empty(), listed) {
            (true, _) => (KeyOutcome::NoEqual, NOT_IN_FILE),
            (_, true) => (KeyOutcome::Differs, LISTED),
            (_, false) => (KeyOutcome::Mapped, ""),
        };
        self.line(
            outcome,
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

    /// A setting of the one dataset, from a key of its own.
    pub(super) fn data_part(&mut self, part: &'static str, theirs: String, value: &Value) {
        let text = plain(value);
        self.parts.push((theirs, part, text));
    }

    /// Settings of the one dataset, once it is known.
    fn write_dataset_settings(&mut self) {
        for (theirs, part, text) in std::mem::take(&mut self.parts) {
            let [only] = self.sources.as_mut_slice() else {
                let words = "there are several datasets: give each its own below data.sources";
                self.line(KeyOutcome::NoEqual, theirs, "", words);
                continue;
            };
            let first = beginning(&text).filter(|_| part == "split");
            let text = first.map_or(&*text, |(split, _)| split);
            let (outcome, kept, words) = part_of(part, text, is_file(&place(only)));
            if let Some((_, share)) = first {
                only.insert("fraction".into(), json!(share));
                if let Some(split) = kept {
                    only.insert(part.into(), json!(split));
                }
                let ours = format!("data.sources: {part}: {text}, fraction: {share}");
                self.line(KeyOutcome::Mapped, theirs, &ours, "");
                continue;
            }
            let ours =
                kept.map_or_else(String::new, |kept| format!("data.sources: {part}: {kept}"));
            if let Some(kept) = kept {
                only.insert(part.into(), json!(kept));
            }
            self.line(outcome, theirs, &ours, words);
        }
    }

    /// Writes what was collected. Without data, a run would train on the embedded corpus, which was not requested.
    pub(super) fn write_sources(&mut self) {
        if self.sources.is_empty() && !self.parts.is_empty() {
            let nameless = ("name".to_string(), json!(MISSING));
            self.sources.push(Map::from_iter([nameless]));
        }
        self.write_dataset_settings();
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
                outcome: KeyOutcome::NoEqual,
                theirs: "(its data)".into(),
                ours: String::new(),
                words: format!("{path}: {} {}", issue.what, issue.hint),
            });
        } else if self.sources.is_empty() {
            self.line(KeyOutcome::NoEqual, "(no data)".into(), path, NOT_IN_FILE);
        }
    }
}
