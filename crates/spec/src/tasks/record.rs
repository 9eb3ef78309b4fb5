//! The record of every item: a line of JSON with the prompt, the model's answer and its scores. The first line of a file
//! describes the evaluation. A file that ends early is continued.

use super::error::TaskError;
use crate::base::files::{open_plain, open_plain_with};
use crate::base::text::shown;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek, Write};
use std::path::Path;

/// A continuation as the model sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scored {
    pub text: String,
    /// Sum of the log-probabilities of its tokens, nats.
    pub logp: f64,
    pub tokens: usize,
    /// Whether each of its tokens is the most likely one.
    pub greedy: bool,
}

/// What is said of an answer without a final message.
pub(super) const UNFINISHED: &str = "ended inside its thoughts";

/// One item, answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The item's number, from 0.
    pub item: usize,
    pub place: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    pub prompt: String,
    /// Prompts of the choices, where they differ from `prompt`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prompts: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scored: Vec<Scored>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gold: Option<usize>,
    /// What the model wrote: of one that thinks first its final message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// What it thought, where that is set apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thought: Option<String>,
    /// It ended inside its thoughts: there is no final message, so it counts as wrong.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unfinished: bool,
    /// What was found in it, by metric.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub found: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Tokens that the context had no room for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cut: usize,
    /// The completion reached its longest length or the end of the context.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// By metric.
    pub scores: BTreeMap<String, f64>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over references"
)]
fn is_zero(n: &usize) -> bool {
    *n == 0
}

/// The first line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    pub task: String,
    pub version: u32,
    pub items: usize,
    /// Of the task's file and everything asked.
    pub digest: String,
    pub model: String,
    pub fingerprint: String,
    pub llmtui: String,
    /// The file of a task that is not one of this program's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<std::path::PathBuf>,
    /// Worked examples in front of each prompt; where nothing is said, as many as the task has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shots: Option<usize>,
    /// Only a part of the task's rows was asked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub limited: bool,
}

/// A file of records under way. It is written with the first record: where nothing is answered, nothing is left behind.
pub(super) struct RecordWriter {
    /// Once something was written.
    file: Option<File>,
    path: std::path::PathBuf,
    header: Header,
    /// Bytes of the file that count.
    len: u64,
}

impl RecordWriter {
    /// Returns what the file holds already. A file with another header will be overwritten.
    ///
    /// # Errors
    /// The disk.
    pub fn open(path: &Path, header: &Header) -> Result<(RecordWriter, Vec<Record>), TaskError> {
        let (held, len) = match read(path)? {
            Some((held, records, len)) if same(&held, header) => (records, len),
            _ => (Vec::new(), 0),
        };
        let keeper = RecordWriter {
            file: None,
            path: path.to_path_buf(),
            header: header.clone(),
            len,
        };
        Ok((keeper, held))
    }

    /// Appends whole lines.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn append(&mut self, records: &[Record]) -> Result<(), TaskError> {
        self.write(records).map_err(TaskError::io(&self.path))
    }

    fn write(&mut self, records: &[Record]) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(begin(&self.path, &self.header, self.len)?),
        };
        records.iter().try_for_each(|record| line(file, record))
    }
}

/// The file and its folder, with the header in front; what stands behind the last whole line is cut off.
fn begin(path: &Path, header: &Header, len: u64) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true);
    let mut file = open_plain_with(&mut options, path)?;
    file.set_len(len)?;
    file.seek(io::SeekFrom::End(0))?;
    if len == 0 {
        line(&mut file, header)?;
    }
    Ok(file)
}

fn line(file: &mut File, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_string(value).unwrap_or_default();
    line.push('\n');
    file.write_all(line.as_bytes())
}

/// The program's own version does not matter.
fn same(a: &Header, b: &Header) -> bool {
    (&a.digest, &a.fingerprint, a.items) == (&b.digest, &b.fingerprint, b.items)
}

/// Longest first line.
const MAX_HEAD: u64 = 1 << 16;

/// The first line of a file of answers; none where there is none yet.
pub(super) fn head(path: &Path) -> Result<Option<Header>, TaskError> {
    use std::io::Read;
    let file = open_plain(path).map_err(TaskError::io(path))?;
    let mut line = String::new();
    let read = BufReader::new(file.take(MAX_HEAD)).read_line(&mut line);
    read.map_err(TaskError::io(path))?;
    Ok(serde_json::from_str(&line).ok())
}

type LoadedRecords = (Header, Vec<Record>, u64);

/// The whole lines of a file, and how many bytes they take; none where there is no such file.
pub(super) fn read(path: &Path) -> Result<Option<LoadedRecords>, TaskError> {
    let file = match open_plain(path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(TaskError::io(path)(e)),
    };
    let mut reader = BufReader::new(file);
    let mut next = || -> Result<Option<String>, TaskError> {
        let mut line = Vec::new();
        reader
            .read_until(b'\n', &mut line)
            .map_err(TaskError::io(path))?;
        let whole = line.last() == Some(&b'\n');
        Ok(whole.then(|| String::from_utf8(line).ok()).flatten())
    };
    let Some(first) = next()? else {
        return Ok(None);
    };
    let Ok(header) = serde_json::from_str::<Header>(&first) else {
        return Err(TaskError::File {
            place: shown(path),
            what: "it is not a results file: move it away, or choose another --out".into(),
        });
    };
    let (mut records, mut len) = (Vec::new(), first.len() as u64);
    while let Some(line) = next()? {
        let Ok(record) = serde_json::from_str(&line) else {
            break;
        };
        records.push(record);
        len += line.len() as u64;
    }
    Ok(Some((header, records, len)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_ends_early_is_taken_up_where_it_ends() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        let header = Header {
            task: "t".into(),
            version: 1,
            items: 3,
            digest: "d".into(),
            model: "m".into(),
            fingerprint: "f".into(),
            llmtui: "0".into(),
            file: None,
            shots: None,
            limited: false,
        };
        let record = |item| Record {
            item,
            place: "p".into(),
            group: None,
            prompt: "é\n".into(),
            prompts: vec![],
            scored: vec![],
            gold: None,
            answer: None,
            thought: None,
            unfinished: false,
            found: BTreeMap::new(),
            target: None,
            cut: 0,
            truncated: false,
            scores: BTreeMap::from([("acc".into(), 1.0)]),
        };
        let (mut keeper, held) = RecordWriter::open(&path, &header).unwrap();
        assert!(held.is_empty());
        assert!(!path.exists(), "nothing is written before the first record");
        keeper.append(&[record(2), record(0)]).unwrap();
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 5]).unwrap();
        let (mut keeper, held) = RecordWriter::open(&path, &header).unwrap();
        assert_eq!(held, [record(2)]);
        keeper.append(&[record(0)]).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), whole);
        let other = Header {
            digest: "e".into(),
            ..header
        };
        assert!(RecordWriter::open(&path, &other).unwrap().1.is_empty());
        std::fs::write(&path, "not ours\n").unwrap();
        assert!(RecordWriter::open(&path, &other).is_err());
    }
}
