//! What lies at a path, before anybody trains on it: the kind of data with a preview, a model folder, this machine. Reads
//! files, within bounds; decides nothing.

use super::choose::DataKind;
use crate::base::human;
use crate::base::text::one_line;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// Text beyond this is counted by its beginning.
const READ_WHOLE: u64 = 64 << 20;
/// Rows looked at to tell the kind of a file of rows.
const ROWS: usize = 50;
/// Longest row that is parsed.
const ROW_BYTES: u64 = 1 << 20;
/// Lines of the preview, and columns of each.
const PREVIEW: usize = 4;
const PREVIEW_COLUMNS: usize = 160;

/// What was found where the data should be.
#[derive(Debug, Clone, PartialEq)]
pub struct DataFacts {
    pub kind: DataKind,
    /// `plain text`, `rows of conversations (messages)`
    pub format: String,
    pub bytes: u64,
    /// Rows of a file of rows.
    pub rows: Option<u64>,
    /// Characters of plain text; of a large file, estimated.
    pub chars: Option<u64>,
    /// Different characters of plain text.
    pub distinct: Option<usize>,
    /// The rows carry something that a program could check answers against.
    pub checkable: bool,
    /// This build can train on it as it is.
    pub trainable: bool,
    /// What to know before training on it; may be empty.
    pub note: String,
    pub preview: Vec<String>,
}

impl DataFacts {
    /// `plain text · 1.1 MiB · 1,115,394 characters, 65 different`
    pub fn summary(&self) -> String {
        let mut words = vec![self.format.clone(), human::bytes(self.bytes)];
        if let Some(rows) = self.rows {
            words.push(format!("{} rows", human::grouped(rows)));
        }
        if let (Some(chars), Some(distinct)) = (self.chars, self.distinct) {
            words.push(format!(
                "{} characters, {distinct} different",
                human::grouped(chars)
            ));
        }
        words.join(" · ")
    }
}

/// The corpus inside the binary, known without reading.
pub fn corpus(name: &str) -> Option<DataFacts> {
    let text = crate::embed::text(&format!("assets/corpora/{name}.txt"))?;
    Some(text_facts(text, text.len() as u64, 1))
}

/// Looks at a file or a folder of `.txt` files.
///
/// # Errors
/// Why nothing can be learnt from it, and what to do.
pub fn data(path: &Path) -> Result<DataFacts, String> {
    let shown = path.display();
    if path.starts_with("~") {
        return Err("`~` is not expanded here: write the whole path".into());
    }
    let meta = fs::metadata(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => {
            format!("{shown} does not exist; relative paths start from the working directory")
        }
        _ => format!("{shown} cannot be read: {e}"),
    })?;
    if meta.is_dir() {
        return folder(path);
    }
    let extension = path
        .extension()
        .map(|e| e.to_string_lossy().to_lowercase())
        .unwrap_or_default();
    match extension.as_str() {
        "jsonl" | "ndjson" => rows(path, meta.len()),
        "json" => list(path, meta.len()),
        "parquet" | "arrow" | "csv" | "tsv" | "zip" | "gz" | "zst" | "xz" | "bz2" => Err(format!(
            "{shown}: .{extension} files are not read yet; write the text as .txt, or rows as .jsonl"
        )),
        _ => text(path, meta.len()),
    }
}

fn text(path: &Path, bytes: u64) -> Result<DataFacts, String> {
    let mut buffer = Vec::new();
    let shown = path.display();
    File::open(path)
        .and_then(|f| f.take(READ_WHOLE).read_to_end(&mut buffer))
        .map_err(|e| format!("{shown} cannot be read: {e}"))?;
    let text = match std::str::from_utf8(&buffer) {
        Ok(text) => text,
        // A bounded read may end inside a character.
        Err(e) if e.error_len().is_none() && bytes > READ_WHOLE => {
            std::str::from_utf8(&buffer[..e.valid_up_to()]).unwrap_or_default()
        }
        Err(e) => {
            return Err(format!(
                "{shown} is not UTF-8 text (byte {}): convert it, e.g. iconv -f latin1 -t utf-8",
                e.valid_up_to()
            ));
        }
    };
    if text.trim().is_empty() {
        return Err(format!("{shown} has no text in it"));
    }
    Ok(text_facts(text, bytes, 1))
}

fn folder(path: &Path) -> Result<DataFacts, String> {
    let shown = path.display();
    let mut files: Vec<_> = fs::read_dir(path)
        .map_err(|e| format!("{shown} cannot be read: {e}"))?
        .flatten()
        .map(|entry| entry.path())
        .filter(|p| p.extension().is_some_and(|e| e == "txt"))
        .collect();
    files.sort();
    if files.is_empty() {
        return Err(format!(
            "no .txt file in {shown}: name a text file, or a folder of .txt files"
        ));
    }
    let mut bytes = 0;
    let mut whole = String::new();
    for file in &files {
        let size = fs::metadata(file).map_or(0, |m| m.len());
        bytes += size;
        if whole.len() as u64 + size <= READ_WHOLE {
            let read = fs::read_to_string(file)
                .map_err(|e| format!("{} cannot be read as text: {e}", file.display()))?;
            whole.push_str(&read);
        }
    }
    if whole.trim().is_empty() {
        return Err(format!("the .txt files of {shown} have no text in them"));
    }
    Ok(text_facts(&whole, bytes, files.len()))
}

fn text_facts(text: &str, bytes: u64, n_files: usize) -> DataFacts {
    let mut distinct: BTreeSet<char> = BTreeSet::new();
    let mut chars = 0u64;
    for c in text.chars() {
        chars += 1;
        distinct.insert(c);
    }
    let read = text.len() as u64;
    if read < bytes {
        chars = (chars as f64 * bytes as f64 / read.max(1) as f64) as u64;
    }
    DataFacts {
        kind: DataKind::Text,
        format: match n_files {
            1 => "plain text".into(),
            n => format!("plain text in {n} files"),
        },
        bytes,
        rows: None,
        chars: Some(chars),
        distinct: Some(distinct.len()),
        checkable: false,
        trainable: true,
        note: String::new(),
        preview: preview(text.lines()),
    }
}

fn preview<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    lines
        .filter(|line| !line.trim().is_empty())
        .take(PREVIEW)
        .map(|line| one_line(line).chars().take(PREVIEW_COLUMNS).collect())
        .collect()
}

/// A file of one JSON object a line.
fn rows(path: &Path, bytes: u64) -> Result<DataFacts, String> {
    let shown = path.display();
    let file = File::open(path).map_err(|e| format!("{shown} cannot be read: {e}"))?;
    let mut reader = BufReader::new(file);
    let (mut parsed, mut raw, mut n_rows) = (Vec::new(), Vec::new(), 0u64);
    let mut number = 0usize;
    loop {
        let mut line = Vec::new();
        let n = reader
            .by_ref()
            .take(ROW_BYTES)
            .read_until(b'\n', &mut line)
            .map_err(|e| format!("{shown} cannot be read: {e}"))?;
        if n == 0 {
            break;
        }
        number += 1;
        if n as u64 == ROW_BYTES && !line.ends_with(b"\n") {
            if parsed.len() < ROWS {
                return Err(format!(
                    "{shown}:{number}: a row of more than {}",
                    human::bytes(ROW_BYTES)
                ));
            }
            // Only the end of a long row counts.
            continue;
        }
        let text = String::from_utf8_lossy(&line);
        if text.trim().is_empty() {
            continue;
        }
        n_rows += 1;
        if parsed.len() < ROWS {
            let value: Value = serde_json::from_str(text.trim())
                .map_err(|e| format!("{shown}:{number}: not a JSON object on one line: {e}"))?;
            parsed.push(value);
            raw.push(text.into_owned());
        }
    }
    row_facts(&shown.to_string(), bytes, n_rows, &parsed, &raw)
}

/// A JSON file: a list of objects.
fn list(path: &Path, bytes: u64) -> Result<DataFacts, String> {
    let shown = path.display();
    if bytes > READ_WHOLE {
        return Err(format!(
            "{shown}: {} of one JSON value; write one object a line as .jsonl",
            human::bytes(bytes)
        ));
    }
    let text = fs::read_to_string(path).map_err(|e| format!("{shown} cannot be read: {e}"))?;
    let value: Value =
        serde_json::from_str(&text).map_err(|e| format!("{shown}: not valid JSON: {e}"))?;
    let Value::Array(items) = value else {
        return Err(format!("{shown}: expected a list of objects"));
    };
    let n = items.len() as u64;
    let parsed: Vec<Value> = items.into_iter().take(ROWS).collect();
    let raw: Vec<String> = parsed.iter().map(Value::to_string).collect();
    row_facts(&shown.to_string(), bytes, n, &parsed, &raw)
}

/// The shapes of rows, the particular ones first: (keys that must all be there, kind, name).
const SHAPES: &[(&[&str], DataKind, &str)] = &[
    (
        &["chosen", "rejected"],
        DataKind::Pairs,
        "pairs (chosen, rejected)",
    ),
    (
        &["prompt", "completion", "label"],
        DataKind::Thumbs,
        "marked answers (prompt, completion, label)",
    ),
    (
        &["messages", "kto_tag"],
        DataKind::Thumbs,
        "marked conversations (kto_tag)",
    ),
    (&["messages"], DataKind::Demos, "conversations (messages)"),
    (
        &["conversations"],
        DataKind::Demos,
        "conversations (ShareGPT)",
    ),
    (
        &["instruction", "output"],
        DataKind::Demos,
        "instructions (Alpaca)",
    ),
    (
        &["instruction", "response"],
        DataKind::Demos,
        "instructions with responses",
    ),
    (
        &["prompt", "completion"],
        DataKind::Demos,
        "prompts with completions",
    ),
    (
        &["prompt", "response"],
        DataKind::Demos,
        "prompts with responses",
    ),
    (
        &["question", "answer"],
        DataKind::Demos,
        "questions with answers",
    ),
    (&["prompt"], DataKind::Prompts, "prompts"),
    (&["question"], DataKind::Prompts, "questions"),
    (&["text"], DataKind::Text, "text rows"),
];

fn row_facts(
    shown: &str,
    bytes: u64,
    n_rows: u64,
    parsed: &[Value],
    raw: &[String],
) -> Result<DataFacts, String> {
    let Some(first) = parsed.first() else {
        return Err(format!("{shown} has no rows"));
    };
    let has = |row: &Value, keys: &[&str]| keys.iter().all(|k| row.get(k).is_some());
    let Some((keys, kind, name)) = SHAPES.iter().find(|(keys, ..)| has(first, keys)) else {
        let found: Vec<&str> = first
            .as_object()
            .map(|map| map.keys().map(String::as_str).take(8).collect())
            .unwrap_or_default();
        return Err(format!(
            "{shown}: rows with {}: no known shape. Known are messages, conversations, instruction/output, \
             prompt/completion, prompt/chosen/rejected, prompt/completion/label, prompt, text",
            if found.is_empty() {
                "no keys".into()
            } else {
                found.join(", ")
            }
        ));
    };
    if let Some(bad) = parsed.iter().position(|row| !has(row, keys)) {
        return Err(format!(
            "{shown}: row {} has not the keys of the first one ({})",
            bad + 1,
            keys.join(", ")
        ));
    }
    let checkable = ["answer", "solution", "ground_truth", "tests"]
        .iter()
        .any(|key| first.get(key).is_some());
    Ok(DataFacts {
        kind: *kind,
        format: format!("rows of {name}"),
        bytes,
        rows: Some(n_rows),
        chars: None,
        distinct: None,
        checkable,
        trainable: false,
        note: "this build trains on plain text only: as it is, the model would learn the braces and keys too".into(),
        preview: preview(raw.iter().map(String::as_str)),
    })
}

/// What was found where a model should be.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelFacts {
    /// `model_type` of its config.
    pub family: String,
    /// By the size of its weights.
    pub n_params: Option<u64>,
    /// Keys and values that give a spec the same model; empty when this program did not write the folder.
    pub settings: Vec<(String, String)>,
    pub chat_template: bool,
}

/// Looks at a checkpoint or model folder.
///
/// # Errors
/// Why it is none.
pub fn model(path: &Path) -> Result<ModelFacts, String> {
    let shown = path.display();
    let config = path.join("config.json");
    let text = fs::read_to_string(&config).map_err(|_| {
        format!(
            "{shown} has no config.json: name a model folder such as runs/…/checkpoints/step-001000"
        )
    })?;
    let value: Value = serde_json::from_str(&text)
        .map_err(|e| format!("{}: not valid JSON: {e}", config.display()))?;
    let weights = fs::metadata(path.join("model.safetensors")).map(|m| m.len());
    let mut settings = Vec::new();
    if let Some(own) = value.pointer("/llmtui/model") {
        flatten("model", own, &mut settings);
        let tokenizer = path.join("tokenizer.json");
        let tokenizer = std::path::absolute(&tokenizer).unwrap_or(tokenizer);
        settings.push(("data.tokenizer".into(), "file".into()));
        settings.push((
            "data.tokenizer.file.path".into(),
            tokenizer.display().to_string(),
        ));
    }
    let bytes_each = match value["torch_dtype"].as_str().or(value["dtype"].as_str()) {
        Some("bfloat16" | "float16") => 2,
        _ => 4,
    };
    Ok(ModelFacts {
        family: value["model_type"]
            .as_str()
            .unwrap_or("unknown")
            .to_string(),
        n_params: weights.ok().map(|bytes| bytes / bytes_each),
        settings,
        chat_template: path.join("chat_template.jinja").exists(),
    })
}

/// Leaves of a section as `path`, `text`; a choice comes before its settings.
fn flatten(path: &str, value: &Value, into: &mut Vec<(String, String)>) {
    use crate::spec::schema::{Kind, root};
    let registry = root()
        .at(path)
        .is_some_and(|node| matches!(node.kind, Kind::Registry(_)));
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                if registry {
                    into.push((path.to_string(), key.clone()));
                }
                flatten(&format!("{path}.{key}"), inner, into);
            }
        }
        Value::String(text) => into.push((path.to_string(), text.clone())),
        other => into.push((path.to_string(), other.to_string())),
    }
}

/// The machine, as far as advice needs it.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// `2 cores`
    pub name: String,
    /// Bytes that training may use.
    pub memory: Option<u64>,
    /// Floating-point operations a second that earlier runs here reached; `None` without any.
    pub flops: Option<f64>,
}

impl Machine {
    /// This machine: cores and memory that this process may use.
    pub fn here() -> Machine {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let total = fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
            let line = text.lines().find(|l| l.starts_with("MemTotal:"))?;
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        });
        let limit = fs::read_to_string("/sys/fs/cgroup/memory.max")
            .ok()
            .and_then(|text| text.trim().parse::<u64>().ok());
        let memory = total.map(|kib| kib * 1024);
        Machine {
            name: match cores {
                1 => "1 core".into(),
                n => format!("{n} cores"),
            },
            memory: [memory, limit].into_iter().flatten().min(),
            flops: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(name: &str, text: &str) -> Result<DataFacts, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        data(&path)
    }

    #[test]
    fn text_is_counted_and_previewed() {
        let facts = look("a.txt", "Grüße\n\n\x1b[2Jzwei\n").unwrap();
        assert_eq!((facts.kind, facts.chars), (DataKind::Text, Some(16)));
        assert!(facts.trainable && facts.preview == ["Grüße", "·[2Jzwei"]);
        assert!(
            corpus("tinyshakespeare")
                .unwrap()
                .summary()
                .contains("1,115,394 characters, 65 different")
        );
    }

    #[test]
    fn rows_are_told_by_their_keys() {
        for (row, kind, checkable) in [
            (
                r#"{"messages": [{"role": "user", "content": "hi"}]}"#,
                DataKind::Demos,
                false,
            ),
            (
                r#"{"prompt": "a", "chosen": "b", "rejected": "c"}"#,
                DataKind::Pairs,
                false,
            ),
            (
                r#"{"prompt": "a", "completion": "b", "label": true}"#,
                DataKind::Thumbs,
                false,
            ),
            (
                r#"{"prompt": "2+2", "answer": "4"}"#,
                DataKind::Prompts,
                true,
            ),
            (
                r#"{"question": "2+2", "answer": "4"}"#,
                DataKind::Demos,
                true,
            ),
            (
                r#"{"instruction": "a", "input": "", "output": "b"}"#,
                DataKind::Demos,
                false,
            ),
            (r#"{"text": "a"}"#, DataKind::Text, false),
        ] {
            let facts = look("a.jsonl", &format!("{row}\n\n{row}\n")).unwrap();
            assert_eq!(
                (facts.kind, facts.rows, facts.checkable),
                (kind, Some(2), checkable),
                "{row}"
            );
            assert!(!facts.trainable && !facts.note.is_empty());
            assert_eq!(
                look("a.json", &format!("[{row},{row}]")).unwrap().rows,
                Some(2)
            );
        }
    }

    #[test]
    fn what_cannot_be_used_is_said_with_the_place() {
        for (name, text, words) in [
            (
                "a.jsonl",
                "{\"text\": \"a\"}\n{oops\n",
                ":2: not a JSON object",
            ),
            ("a.jsonl", "{\"a\": 1}\n", "no known shape"),
            (
                "a.jsonl",
                "{\"text\": \"a\"}\n{\"b\": 1}\n",
                "row 2 has not the keys",
            ),
            ("a.parquet", "PAR1", "not read yet"),
            ("a.txt", " \n", "no text"),
            ("a.json", "{}", "a list of objects"),
        ] {
            let error = look(name, text).unwrap_err();
            assert!(error.contains(words), "{name}: {error}");
        }
        assert!(
            data(Path::new("absent.txt"))
                .unwrap_err()
                .contains("does not exist")
        );
        let dir = tempfile::tempdir().unwrap();
        assert!(data(dir.path()).unwrap_err().contains("no .txt file"));
        fs::write(dir.path().join("a.bin"), [0xff, 0xfe, 0x00]).unwrap();
        assert!(
            data(&dir.path().join("a.bin"))
                .unwrap_err()
                .contains("UTF-8")
        );
    }

    #[test]
    fn a_checkpoint_gives_its_model_as_settings() {
        let dir = tempfile::tempdir().unwrap();
        assert!(model(dir.path()).unwrap_err().contains("config.json"));
        let config = serde_json::json!({"model_type": "llama", "llmtui": {"model": {
            "n_layer": 2, "n_kv_head": null, "position": {"rope": {"theta": 500.0}}}}});
        fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
        fs::write(dir.path().join("model.safetensors"), [0; 400]).unwrap();
        let facts = model(dir.path()).unwrap();
        assert_eq!(
            (facts.family.as_str(), facts.n_params),
            ("llama", Some(100))
        );
        let said = |key: &str| {
            facts
                .settings
                .iter()
                .find(|(k, _)| k == key)
                .map(|(_, v)| v.as_str())
        };
        assert_eq!(said("model.position"), Some("rope"));
        assert_eq!(said("model.position.rope.theta"), Some("500.0"));
        assert_eq!(said("model.n_kv_head"), Some("null"));
        assert_eq!(said("data.tokenizer"), Some("file"));
    }
}
