//! LLaMA-Factory's dataset_info.json: what its dataset names mean, as sources.

use super::set::split_and_fraction;
use super::{KeyOutcome, Reader, brief};
use crate::base::files::read_small_text;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

const FILE: &str = "dataset_info.json";
/// Largest file read, in bytes; LLaMA-Factory's own has 20,000.
const BYTES: u64 = 1 << 20;

const TAGS: &str = "roles have their usual names here; run `llmtui data inspect` on this source";
const SAMPLES: &str = "every row is used; cut the file with `head`";
const LEFT_OUT: &str = "not carried over; run `llmtui data inspect` on this source";
const UNREAD: &str = "the column is not read here; run `llmtui data inspect` on this source";

/// The file and its folder, which paths in it are relative to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetInfo {
    pub folder: PathBuf,
    pub text: String,
}

impl DatasetInfo {
    /// The one that a config means: in its `dataset_dir`, from the working directory or the config's folder.
    pub fn of(config: &Path, text: &str) -> Option<DatasetInfo> {
        let Ok(Value::Object(map)) = crate::spec::yaml::parse(text) else {
            return None;
        };
        map.get("dataset")?;
        let folder = map.get("dataset_dir").map_or(Some("data"), Value::as_str)?;
        let beside = config.parent()?.join(folder);
        [PathBuf::from(folder), beside]
            .into_iter()
            .find_map(|folder| {
                let text = read_small_text(&folder.join(FILE), BYTES).ok()?;
                Some(DatasetInfo { folder, text })
            })
    }

    pub(super) fn entries(&self) -> Map<String, Value> {
        match serde_json::from_str(&self.text) {
            Ok(Value::Object(map)) => map,
            _ => Map::new(),
        }
    }
}

/// LLaMA-Factory's name of a column, and ours of the part.
type Names = &'static [(&'static str, &'static str)];
/// A format and its parts.
type Parts = (&'static str, Names);

const ALPACA: Parts = (
    "alpaca",
    &[
        ("prompt", "instruction"),
        ("query", "input"),
        ("response", "output"),
        ("system", "system"),
        ("history", "history"),
    ],
);
const ALPACA_PAIRS: Parts = (
    "preference",
    &[
        ("prompt", "prompt"),
        ("query", "input"),
        ("chosen", "chosen"),
        ("rejected", "rejected"),
        ("system", "system"),
    ],
);
const ALPACA_KTO: Parts = (
    "kto",
    &[
        ("prompt", "prompt"),
        ("query", "input"),
        ("response", "completion"),
        ("kto_tag", "label"),
        ("system", "system"),
    ],
);
const TURNS: Parts = (
    "sharegpt",
    &[
        ("messages", "conversations"),
        ("system", "system"),
        ("tools", "tools"),
    ],
);
const ROLES: Parts = (
    "messages",
    &[
        ("messages", "messages"),
        ("system", "system"),
        ("tools", "tools"),
    ],
);
const TURN_PAIRS: Parts = (
    "preference",
    &[
        ("messages", "prompt"),
        ("chosen", "chosen"),
        ("rejected", "rejected"),
        ("system", "system"),
        ("tools", "tools"),
    ],
);
const TURN_KTO: Parts = (
    "kto",
    &[
        ("messages", "messages"),
        ("kto_tag", "label"),
        ("system", "system"),
        ("tools", "tools"),
    ],
);
const TEXT: Parts = ("text", &[("prompt", "text")]);

/// Whether an entry is a file of text without rows.
fn is_text(entry: &Map<String, Value>) -> bool {
    let file = entry.get("file_name").and_then(Value::as_str);
    file.is_some_and(|file| file.ends_with(".txt"))
}

/// How an entry's rows are read. A text file needs no format.
fn parts(entry: &Map<String, Value>, pretrains: bool) -> Option<Parts> {
    let word = |key: &str| entry.get(key).and_then(Value::as_str);
    let inner = |key: &str, name: &str| entry.get(key).and_then(|map| map.get(name));
    let ranking = entry.get("ranking") == Some(&json!(true));
    let labelled = inner("columns", "kto_tag").is_some();
    match (word("formatting").unwrap_or("alpaca"), pretrains) {
        (_, true) if is_text(entry) => None,
        ("alpaca", true) => Some(TEXT),
        ("alpaca", _) if ranking => Some(ALPACA_PAIRS),
        ("alpaca", _) if labelled => Some(ALPACA_KTO),
        ("alpaca", _) => Some(ALPACA),
        ("sharegpt", _) if ranking => Some(TURN_PAIRS),
        ("sharegpt", _) if labelled => Some(TURN_KTO),
        ("sharegpt", _) if inner("tags", "role_tag") == Some(&json!("role")) => Some(ROLES),
        ("sharegpt", _) => Some(TURNS),
        _ => None,
    }
}

impl Reader {
    /// The source that a name of the file means; what of its entry has no equivalent is reported.
    pub(super) fn registered(&mut self, name: &str) -> Option<Map<String, Value>> {
        let (folder, entries) = self.info.as_ref()?;
        let entry = entries.get(name)?.as_object()?.clone();
        let word = |key: &str| entry.get(key).and_then(Value::as_str);
        let mut source = Map::new();
        let (is_file, place) = match (word("hf_hub_url"), word("file_name")) {
            (Some(hub), _) => {
                source.insert("hub".into(), json!(hub));
                (false, "hf_hub_url")
            }
            (None, Some(file)) => {
                let path = folder.join(file).to_string_lossy().into_owned();
                source.insert("path".into(), json!(path));
                (true, "file_name")
            }
            _ => return None,
        };
        let pretrains = self.draft.value("method") == "pretrain";
        let parts = parts(&entry, pretrains);
        if let Some((format, parts)) = parts {
            source.insert("format".into(), json!(format));
            let columns = columns(&entry, format, parts);
            if !columns.is_empty() {
                source.insert("columns".into(), Value::Object(columns));
            }
        }
        for (key, value) in entry.iter().filter(|(_, value)| !value.is_null()) {
            let outcome = match key.as_str() {
                "formatting" | "ranking" if parts.is_some() => continue,
                "formatting" | "ranking" | "columns" if is_text(&entry) => continue,
                "columns" => {
                    self.columns_left_out(name, value, parts.map(|(_, parts)| parts));
                    continue;
                }
                "tags" if usual_tags(&entry) => continue,
                _ if key == place => continue,
                "subset" => split_and_fraction(&mut source, is_file, "name", value),
                "split" | "revision" => split_and_fraction(&mut source, is_file, key, value),
                "hf_hub_url" | "ms_hub_url" | "om_hub_url" | "file_name" => Some((
                    KeyOutcome::Needless,
                    String::new(),
                    "read from the first of its places",
                )),
                "tags" => Some((KeyOutcome::NoEqual, String::new(), TAGS)),
                "num_samples" => Some((KeyOutcome::NoEqual, String::new(), SAMPLES)),
                _ => None,
            };
            let (outcome, ours, words) =
                outcome.unwrap_or((KeyOutcome::NoEqual, String::new(), LEFT_OUT));
            if outcome != KeyOutcome::Mapped {
                let theirs = format!("{FILE} {name}.{key}: {}", brief(value));
                self.line(outcome, theirs, &ours, words);
            }
        }
        Some(source)
    }

    /// Columns that no part of the format is read from.
    fn columns_left_out(&mut self, name: &str, columns: &Value, parts: Option<&[(&str, &str)]>) {
        for (key, value) in columns.as_object().into_iter().flatten() {
            let is_read = parts.is_some_and(|parts| parts.iter().any(|(theirs, _)| theirs == key));
            if !is_read && !value.is_null() {
                let theirs = format!("{FILE} {name}.columns.{key}: {}", brief(value));
                self.line(KeyOutcome::NoEqual, theirs, "", UNREAD);
            }
        }
    }
}

/// The columns of a format's parts, where an entry calls them otherwise.
fn columns(entry: &Map<String, Value>, format: &str, parts: Names) -> Map<String, Value> {
    let columns = entry.get("columns").and_then(Value::as_object);
    let named = |theirs: &str| match columns {
        Some(columns) => columns.get(theirs).and_then(Value::as_str),
        // What LLaMA-Factory looks for by default, where it is no name of the part.
        None => (format == "text").then_some("instruction"),
    };
    let named = parts
        .iter()
        .filter_map(|(theirs, ours)| Some((ours, named(theirs)?)))
        .filter(|(ours, column)| **ours != *column);
    named
        .map(|(ours, column)| ((*ours).to_string(), json!(column)))
        .collect()
}

/// Whether turns are `{from, value}` by human and gpt, or `{role, content}` by user and assistant.
fn usual_tags(entry: &Map<String, Value>) -> bool {
    let Some(Value::Object(tags)) = entry.get("tags") else {
        return true;
    };
    tags.iter().all(|(tag, name)| {
        let usual: &[&str] = match tag.as_str() {
            "role_tag" => &["from", "role"],
            "content_tag" => &["value", "content"],
            "user_tag" => &["human", "user"],
            "assistant_tag" => &["gpt", "assistant"],
            "observation_tag" => &["observation", "tool"],
            "function_tag" => &["function_call"],
            "system_tag" => &["system"],
            _ => &[],
        };
        name.as_str().is_some_and(|name| usual.contains(&name))
    })
}
