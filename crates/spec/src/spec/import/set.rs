//! One dataset as a map: its files, the part of them that is read, and how. Each of its keys has a line in the report.

use super::data::{MISSING, is_file, part_of};
use super::layout::{Layout, Learns, layout, usual_roles};
use super::secret::of_key;
use super::{KeyOutcome, Reader, brief, plain};
use crate::data::Unit;
use crate::methods::MethodConfig;
use serde_json::{Map, Value, json};
use std::path::Path;

/// What becomes of a key: its fate, what stands for it here, and why.
pub(super) type Outcome = (KeyOutcome, String, &'static str);

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

/// What `path` may say where `data_files` are files of this disk: loaders of Hugging Face's `datasets`.
const LOADERS: [&str; 5] = ["json", "csv", "parquet", "arrow", "text"];

const LEFT_OUT: &str =
    "not carried over: set `format` and `columns` of the source; `llmtui data inspect` shows them";
const FILES_OF_REPOSITORY: &str = "of a data set on the hub every file of the split is read: download these files, and give each a source of its own: `path: FILE`";
const FILES_OF_SPLITS: &str =
    "give each file a source of its own: `path: FILE`; data.val_path names held-out rows";

/// A dataset's map, and what was found out of it.
struct Set<'a> {
    map: &'a Map<String, Value>,
    learns: Learns,
    laid_out: Option<Layout>,
}

/// Whether a dataset's rows are plain text.
fn is_text(map: &Map<String, Value>) -> bool {
    let kind = map.get("type").map(plain).unwrap_or_default();
    matches!(&*kind, "completion" | "pretrain" | "")
}

/// The rows of `train[:20%]`: the split, and the part of it that comes first.
pub(super) fn beginning(text: &str) -> Option<(&str, f64)> {
    let (split, rest) = text.split_once("[:")?;
    let percent: f64 = rest.strip_suffix("%]")?.trim().parse().ok()?;
    (percent > 0.0 && percent <= 100.0).then_some((split, percent / 100.0))
}

fn needless(words: &'static str) -> Outcome {
    (KeyOutcome::Needless, String::new(), words)
}

/// Names a column of a source beside those that have names already.
fn name_column(source: &mut Map<String, Value>, part: &str, column: &str) -> Outcome {
    let columns = source.entry("columns").or_insert_with(|| json!({}));
    if let Value::Object(columns) = columns {
        columns.insert(part.into(), json!(column));
    }
    (KeyOutcome::Mapped, format!("columns: {part}: {column}"), "")
}

/// Which part of a dataset is read: its configuration, its split, the first rows of it.
pub(super) fn split_and_fraction(
    source: &mut Map<String, Value>,
    is_file: bool,
    key: &str,
    value: &Value,
) -> Option<Outcome> {
    if key == "shards" {
        let shards = value.as_f64().filter(|n| n.fract() == 0.0 && *n > 1.0)?;
        let part = 1.0 / shards;
        source.insert("fraction".into(), json!(part));
        let words = "as many rows, the first ones; the tool draws them";
        return Some((KeyOutcome::Differs, format!("fraction: {part}"), words));
    }
    let (_, ours) = PARTS.iter().find(|(theirs, _)| *theirs == key)?;
    let text = value.as_str()?;
    if let Some((split, part)) = beginning(text).filter(|_| key == "split") {
        source.insert("fraction".into(), json!(part));
        let mut ours = format!("fraction: {part}");
        if !is_file {
            source.insert("split".into(), json!(split));
            ours = format!("split: {split}; {ours}");
        }
        return Some((KeyOutcome::Mapped, ours, ""));
    }
    let (outcome, kept, words) = part_of(ours, text, is_file);
    if let Some(kept) = kept {
        source.insert((*ours).into(), json!(kept));
    }
    let ours = kept.map_or_else(String::new, |kept| format!("{ours}: {kept}"));
    Some((outcome, ours, words))
}

/// Which columns play which part, and what is learned of turns.
fn columns_of_set(
    source: &mut Map<String, Value>,
    set: &Set,
    key: &str,
    value: &Value,
) -> Option<Outcome> {
    let laid_out = set.laid_out.as_ref();
    if laid_out.is_some_and(|laid_out| laid_out.keys.contains(&key)) {
        let mut ours = format!("format: {}", plain(&source["format"]));
        if let Some(columns) = source.get("columns") {
            ours.push_str(&format!("; columns: {columns}"));
        }
        return Some((KeyOutcome::Mapped, ours, ""));
    }
    match (key, value.as_str()) {
        ("roles", _) if usual_roles(value) => Some(needless("roles have these names here too")),
        ("roles_to_train", _) if *value == json!(["assistant"]) => {
            Some(needless("the assistant's turns are learned anyway"))
        }
        ("train_on_eos", Some("turn")) => Some(needless(
            "the token that ends an assistant's turn is learned anyway",
        )),
        ("columns", _) => Some(needless("a format ignores columns it does not use")),
        ("field_messages", Some(column)) => Some(name_column(source, "messages", column)),
        // Of texts: other types have fields of other names.
        ("field" | "text_column", Some(column)) if is_text(set.map) => {
            source.insert("format".into(), json!("text"));
            Some(name_column(source, "text", column))
        }
        ("field" | "text_column", Some(_)) => Some(needless(
            "the tool reads it of plain text alone (type: completion)",
        )),
        _ => None,
    }
}

/// What a row is. Types that name columns were laid out before.
fn row_type(
    source: &mut Map<String, Value>,
    set: &Set,
    key: &str,
    value: &Value,
) -> Option<Outcome> {
    let word = value.as_str().filter(|_| key == "type")?;
    if set.learns == Learns::Labels && word.ends_with(".argilla_chat") {
        let words = "its `completion` is a whole conversation: rename that column to `messages`, and it is read as labelled answers";
        return Some((KeyOutcome::NoEqual, String::new(), words));
    }
    Some(match FORMATS.iter().find(|(theirs, _)| *theirs == word) {
        Some((_, "auto")) => needless("the format is detected from the columns"),
        Some((_, ours)) => {
            source.insert("format".into(), json!(ours));
            (KeyOutcome::Mapped, format!("format: {ours}"), "")
        }
        None => (
            KeyOutcome::NoEqual,
            String::new(),
            "the format is detected from the columns; otherwise set `format` and `columns`",
        ),
    })
}

/// Files of this disk, as `data_files` names them: beside the working folder, or in the folder that `path` is.
fn local_files(files: &[&str], path: Option<&str>) -> Option<Vec<String>> {
    let repository = path.filter(|path| !LOADERS.contains(path));
    let there = |file: &str| Path::new(file).is_file();
    let folder = repository.map(Path::new);
    match folder.filter(|folder| folder.is_dir()) {
        Some(folder) => {
            let inside = |file: &&str| folder.join(file).to_string_lossy().into_owned();
            let file = |file: &&str| match inside(file) {
                path if there(&path) => path,
                _ => (*file).to_string(),
            };
            Some(files.iter().map(file).collect())
        }
        None if repository.is_none() || files.iter().all(|file| there(file)) => {
            Some(files.iter().map(|file| (*file).to_string()).collect())
        }
        None => None,
    }
}

impl Reader {
    /// Where a dataset's rows are, and whether these are files of this disk.
    fn places_of_set(&mut self, place: &str, map: &Map<String, Value>) -> (Vec<String>, bool) {
        let path = map.get("path").and_then(Value::as_str);
        let Some(files) = map.get("data_files").filter(|files| !files.is_null()) else {
            let path = path.unwrap_or(MISSING);
            return (vec![path.into()], is_file(path));
        };
        let theirs = format!("{place}.data_files: {}", brief(files));
        let listed: Option<Vec<&str>> = match files {
            Value::Array(files) => files.iter().map(Value::as_str).collect(),
            one => one.as_str().map(|one| vec![one]),
        };
        let listed = listed.filter(|files| !files.is_empty());
        if let Some(found) = listed.as_ref().and_then(|files| local_files(files, path)) {
            let ours = format!("data.sources: {}", found.join(", "));
            self.line(KeyOutcome::Mapped, theirs, &ours, "");
            return (found, true);
        }
        let words = match listed {
            Some(_) => FILES_OF_REPOSITORY,
            None => FILES_OF_SPLITS,
        };
        self.line(KeyOutcome::NoEqual, theirs, "", words);
        let whole = path.filter(|path| !LOADERS.contains(path));
        (vec![whole.unwrap_or(MISSING).into()], false)
    }

    /// The sources that a dataset's map means: one for each of its files.
    pub(super) fn set_of_map(
        &mut self,
        place: &str,
        map: &Map<String, Value>,
    ) -> Vec<Map<String, Value>> {
        let (names, is_file) = self.places_of_set(place, map);
        let method = MethodConfig::usual(&plain(&self.draft.value("method")));
        let learns = match method.map(|method| method.needs().unit) {
            Some(Unit::Judged) => Learns::Labels,
            Some(Unit::Pair | Unit::Ranked) => Learns::Pairs,
            _ => Learns::Texts,
        };
        let set = Set {
            map,
            learns,
            laid_out: layout(map, learns),
        };
        let mut source = Map::new();
        if let Some(laid_out) = &set.laid_out {
            source.insert("format".into(), json!(laid_out.format));
            if !laid_out.columns.is_empty() {
                source.insert("columns".into(), Value::Object(laid_out.columns.clone()));
            }
        }
        for (key, value) in map {
            let theirs = format!("{place}.{key}: {}", of_key(key, value));
            let (outcome, ours, words) = match key.as_str() {
                "path" | "data_files" => continue,
                _ if value.is_null() => needless("empty: the default"),
                "ds_type" => needless("the file type follows from its name"),
                _ => split_and_fraction(&mut source, is_file, key, value)
                    .or_else(|| columns_of_set(&mut source, &set, key, value))
                    .or_else(|| row_type(&mut source, &set, key, value))
                    .unwrap_or((KeyOutcome::NoEqual, String::new(), LEFT_OUT)),
            };
            self.line(outcome, theirs, &ours, words);
        }
        let named = |name: String| {
            let mut all = Map::from_iter([("name".to_string(), json!(name))]);
            all.extend(source.clone());
            all
        };
        names.into_iter().map(named).collect()
    }
}
