//! Writes rows to a file: JSONL, JSON, CSV, TSV and plain text, compressed according to the name's extension. A file is
//! complete or absent, and an existing one is replaced only on request. What rows mean is up to `convert`.

mod file;
mod json;
mod table;
mod text;

use crate::base::files::is_path_error;
use crate::base::text::shown;
use file::Target;
use serde_json::{Map, Value};
use std::io::{self, Write};
use std::path::Path;

/// The container format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Container {
    /// One JSON object a line.
    Jsonl,
    /// One JSON array of objects.
    Json,
    Csv,
    Tsv,
    /// The column `text` alone, paragraphs apart by an empty line.
    Text,
}

/// A file that cannot be written, or a row that it cannot hold.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {what}")]
pub struct SinkError {
    pub place: String,
    pub what: String,
    pub fix: String,
    /// The machine is to blame, and not the name or a row: a full disk, for one.
    pub machine: bool,
}

impl SinkError {
    fn new(path: &Path, what: impl Into<String>, fix: &str) -> SinkError {
        SinkError {
            place: path.display().to_string(),
            what: what.into(),
            fix: fix.to_string(),
            machine: false,
        }
    }
}

impl Container {
    pub const ALL: [Container; 5] = [
        Container::Jsonl,
        Container::Json,
        Container::Csv,
        Container::Tsv,
        Container::Text,
    ];

    /// The ending of a file's name, before `.gz` or `.zst`.
    pub fn ending(self) -> &'static str {
        match self {
            Container::Jsonl => "jsonl",
            Container::Json => "json",
            Container::Csv => "csv",
            Container::Tsv => "tsv",
            Container::Text => "txt",
        }
    }

    /// By the ending of a name; `None` for an ending that nothing is written with.
    pub fn of(path: &Path) -> Option<Container> {
        let name = path.file_name()?.to_string_lossy().to_lowercase();
        let plain = name
            .strip_suffix(".gz")
            .or_else(|| name.strip_suffix(".zst"))
            .unwrap_or(&name);
        let ending = plain.rsplit_once('.')?.1;
        match ending {
            "ndjson" => Some(Container::Jsonl),
            "text" | "md" => Some(Container::Text),
            ending => Container::ALL.into_iter().find(|c| c.ending() == ending),
        }
    }
}

/// Whether a file that exists may be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overwrite {
    No,
    Yes,
}

/// How rows become bytes.
trait Writer {
    /// Writes one row.
    ///
    /// # Errors
    /// The disk, or a row that this container cannot hold ([`io::ErrorKind::InvalidData`]).
    fn row(&mut self, fields: &Map<String, Value>, out: &mut dyn Write) -> io::Result<()>;

    /// The text after the last row.
    fn end(&mut self, _out: &mut dyn Write) -> io::Result<()> {
        Ok(())
    }
}

/// A file being written.
pub struct Sink {
    target: Target,
    writer: Box<dyn Writer>,
    rows: u64,
}

impl Sink {
    /// Opens a file for writing; it appears under its name when [`Sink::finish`] is called.
    ///
    /// # Errors
    /// It exists and may not be replaced, its ending is not known, its folder does not take it.
    pub fn create(path: &Path, overwrite: Overwrite) -> Result<Sink, SinkError> {
        let Some(container) = Container::of(path) else {
            return Err(SinkError::new(
                path,
                "its extension is not a writable file type",
                "use .jsonl, .json, .csv, .tsv or .txt, optionally followed by .gz or .zst",
            ));
        };
        if overwrite == Overwrite::No && path.exists() {
            return Err(exists(path));
        }
        let target = Target::create(path).map_err(|e| unwritable(path, &e))?;
        let writer: Box<dyn Writer> = match container {
            Container::Jsonl => Box::new(json::Lines),
            Container::Json => Box::new(json::Array::default()),
            Container::Csv => Box::new(table::Table::new(b',')),
            Container::Tsv => Box::new(table::Table::new(b'\t')),
            Container::Text => Box::new(text::Paragraphs::default()),
        };
        Ok(Sink {
            target,
            writer,
            rows: 0,
        })
    }

    /// Writes one row.
    ///
    /// # Errors
    /// The disk does not take it, or the container cannot hold it.
    pub fn write(&mut self, fields: &Map<String, Value>) -> Result<(), SinkError> {
        self.rows += 1;
        let written = self.writer.row(fields, &mut self.target);
        written.map_err(|e| self.fault(&e))
    }

    /// Rows written so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Makes the file whole and gives it its name; returns the number of rows.
    ///
    /// # Errors
    /// The disk does not take it; then nothing is left of it.
    pub fn finish(mut self) -> Result<u64, SinkError> {
        let ended = self.writer.end(&mut self.target);
        ended.map_err(|e| self.fault(&e))?;
        let path = self.target.path().to_path_buf();
        self.target.commit().map_err(|e| unwritable(&path, &e))?;
        Ok(self.rows)
    }

    fn fault(&self, error: &io::Error) -> SinkError {
        let path = self.target.path();
        if error.kind() != io::ErrorKind::InvalidData {
            return unwritable(path, error);
        }
        let what = format!("row {} cannot be written here: {error}", self.rows);
        SinkError::new(path, what, "choose a name that ends in .jsonl")
    }
}

fn exists(path: &Path) -> SinkError {
    SinkError::new(
        path,
        "exists already",
        "choose another name, or --force to replace it",
    )
}

fn unwritable(path: &Path, error: &io::Error) -> SinkError {
    let what = format!("cannot be written: {error}");
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.exists()) {
        let fix = format!("create its folder: mkdir -p {}", shown(folder));
        return SinkError::new(path, "its folder does not exist", &fix);
    }
    SinkError {
        machine: !is_path_error(error),
        ..SinkError::new(path, what, "check the folder, its permissions and the disk")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::io::Read;

    fn rows() -> Vec<Map<String, Value>> {
        let row = |value: Value| value.as_object().cloned().unwrap();
        vec![
            row(json!({"text": "one, \"two\"\nthree", "n": 1})),
            row(json!({"text": "vier", "n": null})),
        ]
    }

    fn written(name: &str) -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        let mut sink = Sink::create(&path, Overwrite::No).unwrap();
        for row in rows() {
            sink.write(&row).unwrap();
        }
        assert!(!path.exists(), "not before it is whole");
        assert_eq!(sink.finish().unwrap(), 2);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        std::fs::read(path).unwrap()
    }

    #[test]
    fn every_container_holds_the_rows() {
        let text = |name| String::from_utf8(written(name)).unwrap();
        assert_eq!(
            text("a.jsonl"),
            "{\"text\":\"one, \\\"two\\\"\\nthree\",\"n\":1}\n{\"text\":\"vier\",\"n\":null}\n"
        );
        let array: Vec<Value> = serde_json::from_str(&text("a.json")).unwrap();
        assert_eq!(array.len(), 2);
        assert_eq!(
            text("a.csv"),
            "text,n\n\"one, \"\"two\"\"\nthree\",1\nvier,\n"
        );
        assert_eq!(
            text("a.tsv"),
            "text\tn\n\"one, \"\"two\"\"\nthree\"\t1\nvier\t\n"
        );
        assert_eq!(text("a.txt"), "one, \"two\"\nthree\n\nvier\n");
    }

    #[test]
    fn compression_follows_the_name() {
        let mut text = String::new();
        flate2::read::GzDecoder::new(&written("a.jsonl.gz")[..])
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!(text.lines().count(), 2);
        let zst = zstd::decode_all(&written("a.jsonl.zst")[..]).unwrap();
        assert_eq!(zst, text.as_bytes());
    }

    #[test]
    fn what_exists_stays_and_what_is_given_up_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        std::fs::write(&path, "mine\n").unwrap();
        let refused = Sink::create(&path, Overwrite::No).err().unwrap();
        assert!(refused.to_string().ends_with("exists already"));
        let mut sink = Sink::create(&path, Overwrite::Yes).unwrap();
        sink.write(&rows()[0]).unwrap();
        drop(sink);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine\n");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(Sink::create(&dir.path().join("a.xlsx"), Overwrite::No).is_err());
        assert!(Sink::create(&dir.path().join("no/a.csv"), Overwrite::No).is_err());
    }

    #[test]
    fn a_row_that_does_not_fit_is_refused_with_its_number() {
        let dir = tempfile::tempdir().unwrap();
        let mut sink = Sink::create(&dir.path().join("a.csv"), Overwrite::No).unwrap();
        let nested = json!({"messages": [{"role": "user"}]});
        let error = sink.write(nested.as_object().unwrap()).unwrap_err();
        assert!(
            error.to_string().contains("row 1 cannot be written here"),
            "{error}"
        );
        let mut sink = Sink::create(&dir.path().join("a.txt"), Overwrite::No).unwrap();
        assert!(sink.write(nested.as_object().unwrap()).is_err());
    }
}
