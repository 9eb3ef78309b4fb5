//! The rows of a source, file after file, in bounded memory.

use super::container::{self, Stream};
use super::context::ReadContext;
use super::fault::ReadFault;
use super::files::{self, SourceFile};
use super::input::{Input, Notes};
use super::{Origin, SourceConfig, open, paths};
use crate::data::{DataError, Place, Record, RowFault};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Broken files that are listed.
const MOST_LOST: usize = 100;
/// The kind of rows that no file holds.
const SYNTHETIC: &str = "synthetic";

/// Iterates over the rows of a source.
pub struct Rows {
    waiting: VecDeque<SourceFile>,
    current: Option<Stream>,
    all: Vec<PathBuf>,
    kind: &'static str,
    notes: Notes,
    consumed: Arc<AtomicU64>,
    finished_bytes: u64,
    broken: bool,
    past_broken: bool,
    lost: Vec<RowFault>,
}

/// Opens a source: finds its files (downloading those of the hub) and opens the first.
///
/// # Errors
/// There are none, they cannot be opened, or the first cannot be read.
pub fn rows(source: &SourceConfig, context: &ReadContext) -> Result<Rows, DataError> {
    let files = files::find(source, context)?;
    let mut rows = Rows {
        all: files.iter().map(|f| f.path.clone()).collect(),
        waiting: files.into(),
        current: None,
        kind: "",
        notes: Notes::default(),
        consumed: Arc::default(),
        finished_bytes: 0,
        broken: false,
        past_broken: context.past_broken,
        lost: Vec::new(),
    };
    if let Origin::Path(path) | Origin::Named(path) = &source.origin
        && source.subset.is_none()
        && source.split.is_none()
    {
        let folder = Some(context.base.join(path)).filter(|folder| folder.is_dir());
        let note = folder.and_then(|folder| paths::left_out(&folder, &rows.all));
        note.into_iter().for_each(|note| rows.notes.add(note));
    }
    if let Origin::Synthetic(made) = &source.origin {
        rows.kind = SYNTHETIC;
        // Settings that make no row are the spec's fault, not a row's.
        let fatal = |fault| ReadFault { fault, fatal: true };
        rows.current = Some(Box::new(made.rows().map(move |row| row.map_err(fatal))));
    }
    if let Some(first) = rows.waiting.pop_front() {
        rows.current = Some(rows.begin(&first)?);
    }
    Ok(rows)
}

/// Whether a file's first bytes show that it is compressed or holds rows, whatever its name. What cannot be opened shows nothing.
pub fn is_no_plain_text(path: &Path) -> bool {
    open::open(path).is_ok_and(|opened| {
        let packed = opened.compression != open::Compression::Plain;
        packed || container::of(path, &opened.head).id != container::TEXT
    })
}

impl Rows {
    /// Notices so far that are not errors.
    pub fn notes(&self) -> Vec<String> {
        self.notes.list()
    }

    /// True once a file turned out to be broken: after that fault nothing more comes, and it must not be passed over as a
    /// bad row, because nobody knows how many rows are missing.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Where broken files ended, of a reader that goes on with the next file: the rest of each is missing.
    pub fn lost(&self) -> &[RowFault] {
        &self.lost
    }

    /// The files, in the order in which they are read.
    pub fn files(&self) -> &[PathBuf] {
        &self.all
    }

    /// The kind of the first file: `text`, `jsonl`, `json`, `csv`, `tsv`, `parquet`; or `synthetic`.
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// Bytes read from the disk so far; for parquet, of finished files.
    pub fn bytes_read(&self) -> u64 {
        self.finished_bytes + self.consumed.load(Ordering::Relaxed)
    }

    fn begin(&mut self, file: &SourceFile) -> Result<Stream, DataError> {
        let opened = open::open(&file.path)?;
        let container = container::of(&file.path, &opened.head);
        if self.kind.is_empty() {
            self.kind = container.id;
        }
        self.consumed = opened.consumed;
        if container.id == container::TEXT
            && let Some(note) = container::taken_for_text(&file.shown, &opened.head)
        {
            self.notes.add(note);
        }
        (container.open)(Input {
            path: file.path.clone(),
            file: file.shown.clone(),
            reader: opened.reader,
            compressed: opened.compression != open::Compression::Plain,
            notes: self.notes.clone(),
        })
    }

    fn next_file(&mut self) -> Option<Result<(), ReadFault>> {
        self.finished_bytes += self.consumed.swap(0, Ordering::Relaxed);
        self.current = None;
        let file = self.waiting.pop_front()?;
        Some(match self.begin(&file) {
            Ok(stream) => {
                self.current = Some(stream);
                Ok(())
            }
            Err(DataError::Row(fault)) => Err(ReadFault { fault, fatal: true }),
            Err(e) => {
                let place = Place {
                    file: file.shown,
                    row: 1,
                };
                Err(ReadFault::fatal(&place, e.to_string(), e.hint()))
            }
        })
    }

    fn fail(&mut self, trouble: ReadFault) -> RowFault {
        if trouble.fatal {
            self.current = None;
            if !self.past_broken {
                self.broken = true;
                self.waiting.clear();
            } else if self.lost.len() < MOST_LOST {
                self.lost.push(trouble.fault.clone());
            }
        }
        trouble.fault
    }
}

impl Iterator for Rows {
    type Item = Result<Record, RowFault>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.current.as_mut().map(Iterator::next) {
                Some(Some(Ok(record))) => return Some(Ok(record)),
                Some(Some(Err(trouble))) => return Some(Err(self.fail(trouble))),
                Some(None) | None if self.broken => return None,
                Some(None) | None => match self.next_file()? {
                    Ok(()) => {}
                    Err(trouble) => return Some(Err(self.fail(trouble))),
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn context(dir: &Path) -> ReadContext {
        ReadContext {
            base: dir.to_path_buf(),
            ..ReadContext::default()
        }
    }

    #[test]
    fn files_follow_each_other_and_places_name_them() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(
            dir.path().join("a.jsonl"),
            "{\"text\":\"1\"}\n\n{\"text\":\"2\"}",
        )
        .unwrap();
        let packed = zstd::encode_all(&b"{\"text\":\"3\"}\n"[..], 3).unwrap();
        fs::write(dir.path().join("b.jsonl.zst"), packed).unwrap();
        let mut found = rows(&SourceConfig::path("*.jsonl*"), &context(dir.path())).unwrap();
        let places: Vec<String> = found
            .by_ref()
            .map(|r| r.unwrap().place.to_string())
            .collect();
        assert_eq!(places, ["a.jsonl:1", "a.jsonl:3", "b.jsonl.zst:1"]);
        assert_eq!((found.kind(), found.files().len()), ("jsonl", 2));
        assert!(found.bytes_read() > 30 && !found.is_broken());
    }

    #[test]
    fn first_bytes_show_what_a_name_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let is = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            fs::write(&path, bytes).unwrap();
            is_no_plain_text(&path)
        };
        let packed = zstd::encode_all(&b"text"[..], 1).unwrap();
        assert!(is("wiki.zst", &packed) && is("a.txt", &packed) && is("wiki", &packed));
        assert!(is("download", b"PAR1...") && is("rows", b"{\"a\": 1}\n"));
        assert!(!is("b.txt", b"{\"a\": 1}\n") && !is("notes.md", b"# Notes") && !is("empty", b""));
        let noted = |name: &str| {
            let found = rows(&SourceConfig::path(name), &context(dir.path())).unwrap();
            found.notes().join("\n")
        };
        assert!(noted("b.txt").contains("name it .jsonl"));
        assert!(!noted("notes.md").contains("JSON"));
        // What no reader knows is a fault of the text.
        assert!(!is("book.pdf", b"%PDF-1.7"));
    }

    #[test]
    fn a_bad_row_is_followed_by_the_next_and_a_broken_file_by_nothing() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.jsonl"), "{\"text\":\n{\"text\":\"2\"}\n").unwrap();
        let mut found = rows(&SourceConfig::path("a.jsonl"), &context(dir.path())).unwrap();
        assert!(found.next().unwrap().is_err() && !found.is_broken());
        assert!(found.next().unwrap().is_ok() && found.next().is_none());

        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut encoder, &b"{\"text\":\"1\"}\n".repeat(9000)).unwrap();
        let packed = encoder.finish().unwrap();
        fs::write(dir.path().join("b.jsonl.gz"), &packed[..packed.len() - 9]).unwrap();
        fs::write(dir.path().join("c.jsonl"), "{\"text\":\"1\"}\n").unwrap();
        let mut found = rows(&SourceConfig::path("[bc].jsonl*"), &context(dir.path())).unwrap();
        let fault = found.by_ref().find_map(Result::err).unwrap();
        assert!(fault.to_string().contains("ends too early"), "{fault}");
        assert!(found.is_broken() && found.next().is_none());

        // Whoever judges all files sees those behind it.
        let context = ReadContext {
            past_broken: true,
            ..context(dir.path())
        };
        let mut found = rows(&SourceConfig::path("[bc].jsonl*"), &context).unwrap();
        let last = found.by_ref().last().unwrap().unwrap();
        assert_eq!(last.place.to_string(), "c.jsonl:1");
        assert!(!found.is_broken() && found.lost().len() == 1);
    }
}
