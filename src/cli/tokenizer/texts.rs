//! Text files, read in chunks, and rows, read as a run reads them: files may be larger than memory.

use super::super::data::pairs;
use super::super::exit::Failure;
use crate::base::files::open_plain;
use crate::base::text::shown;
use crate::data::formats::{Columns, FormatId, in_options};
use crate::data::source::{
    ReadContext, SourceConfig, bad_text, files_of, is_no_plain_text, left_out, saved_as_arrow,
};
use crate::data::tokenizer::ChatMarkers;
use crate::data::{DataError, OnBadRow, RowTexts};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// A chunk ends with the first line or row that reaches this size, in bytes.
const PIECE_BYTES: usize = 64 << 10;
/// A longer line is split between two characters, to bound memory.
const MAX_LINE: u64 = 16 << 20;

/// How rows are read, as the command line says it.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct RowOptions {
    /// Row format; detected from the columns by default
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
    /// Map a column, as format's=yours, e.g. output=answer; may be repeated
    #[arg(long = "column", value_name = "OURS=YOURS")]
    pub columns: Vec<String>,
    /// Skip and count rows that cannot be read; otherwise the first one is an error
    #[arg(long)]
    pub skip_bad_rows: bool,
}

impl RowOptions {
    /// The same with the template that turns conversations into text.
    ///
    /// # Errors
    /// An unknown format, or a column that is not `ours=yours`.
    pub fn reading(&self, markers: ChatMarkers) -> Result<RowReading, Failure> {
        let format = self.format.as_deref().map(FormatId::by_word).transpose();
        Ok(RowReading {
            format: format.map_err(|e| Failure::data(&e))?,
            columns: pairs(&self.columns)?.into_iter().collect(),
            markers,
            on_bad_row: match self.skip_bad_rows {
                true => OnBadRow::Skip,
                false => OnBadRow::Error,
            },
        })
    }
}

/// How files with rows are read: JSONL, JSON, CSV, TSV and parquet, and everything compressed.
#[derive(Debug, Clone, Default)]
pub struct RowReading {
    /// Otherwise the one that the rows show.
    pub format: Option<FormatId>,
    pub columns: Columns,
    /// Whose template turns conversations into text.
    pub markers: ChatMarkers,
    pub on_bad_row: OnBadRow,
}

impl RowReading {
    /// The texts of the rows of a file; `None` of a plain text.
    fn open(&self, path: &Path) -> Result<Option<RowTexts>, Failure> {
        if !is_no_plain_text(path) {
            return Ok(None);
        }
        let source = SourceConfig {
            format: self.format,
            columns: self.columns.clone(),
            ..SourceConfig::path(path.to_string_lossy())
        };
        let read = ReadContext::default();
        let opened = RowTexts::open(&source, self.markers, self.on_bad_row, &read);
        opened.map(Some).map_err(|e| of_rows(&e))
    }

    /// The marks of the conversations among the rows of some files, which the vocabulary is to have.
    ///
    /// # Errors
    /// Rows that cannot be read.
    pub fn markers(&self, files: &[PathBuf]) -> Result<ChatMarkers, Failure> {
        for path in files {
            let markers = self
                .open(path)?
                .map_or(ChatMarkers::None, |rows| rows.markers());
            if markers != ChatMarkers::None {
                return Ok(markers);
            }
        }
        Ok(ChatMarkers::None)
    }
}

/// What is wrong with rows, in this command's words.
fn of_rows(error: &DataError) -> Failure {
    let failure = Failure::data(error);
    let hint = in_options(&failure.hint).replace("data.on_bad_row: skip", "--skip-bad-rows");
    Failure { hint, ..failure }
}

/// The given files, and those of the given folders, in name order: the `.txt` files of a folder, or its rows where it has none.
///
/// # Errors
/// A path does not exist, a file holds neither text nor rows, or nothing is left.
pub fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    listed(paths, &|note| errln!("note: {note}"))
}

/// The same; what a folder holds besides is said to `note`.
///
/// # Errors
/// As there.
pub fn listed(paths: &[PathBuf], note: &dyn Fn(&str)) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            let mut texts: Vec<PathBuf> = std::fs::read_dir(path)
                .map_err(|e| unreadable(path, &e))?
                .flatten()
                .map(|entry| entry.path())
                .filter(|p| p.is_file() && p.extension().is_some_and(|e| e == "txt"))
                .collect();
            if texts.is_empty() {
                texts = files_of(path).map_err(|e| Failure::data(&e))?;
            }
            texts.sort();
            if let Some(said) = left_out(path, &texts) {
                note(&said);
            }
            files.extend(texts);
            continue;
        }
        std::fs::metadata(path).map_err(|e| unreadable(path, &e))?;
        let ending = path.extension().unwrap_or_default().to_string_lossy();
        let usual =
            || "name text files, or rows: .jsonl, .json, .csv, .tsv, .parquet (.gz and .zst too)";
        let hint = match &*ending.to_lowercase() {
            "arrow" => {
                let folder = path.parent().and_then(saved_as_arrow);
                folder.unwrap_or_else(|| usual().into())
            }
            "gguf" => usual().into(),
            _ => {
                files.push(path.clone());
                continue;
            }
        };
        let what = format!("{}: .{ending} is neither text nor rows", shown(path));
        return Err(Failure::user_error(what, hint));
    }
    Ok(files)
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::not_read(path, error)
}

/// Chunks of text from files; ends at the first error, which is stored.
pub struct Pieces {
    files: std::vec::IntoIter<PathBuf>,
    rows: RowReading,
    open: Option<Opened>,
    fault: Arc<Mutex<Option<Failure>>>,
    /// Called with the number of bytes read.
    progress: Box<dyn FnMut(u64) + Send>,
    read: u64,
    skipped: u64,
}

enum Opened {
    Text(Open),
    Rows { path: PathBuf, texts: Box<RowTexts> },
}

struct Open {
    path: PathBuf,
    input: BufReader<File>,
    /// Whole lines before the next piece.
    lines: u64,
    /// The beginning of a character that a piece was cut in.
    rest: Vec<u8>,
}

/// Holds the error after the iterator has ended.
pub type Fault = Arc<Mutex<Option<Failure>>>;

impl Pieces {
    pub fn new(
        files: Vec<PathBuf>,
        rows: RowReading,
        progress: Box<dyn FnMut(u64) + Send>,
    ) -> (Pieces, Fault) {
        let fault = Fault::default();
        let pieces = Pieces {
            files: files.into_iter(),
            rows,
            open: None,
            fault: fault.clone(),
            progress,
            read: 0,
            skipped: 0,
        };
        (pieces, fault)
    }

    /// Rows that were left out so far.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    fn piece(&mut self) -> Result<Option<String>, Failure> {
        loop {
            let piece = match &mut self.open {
                Some(Opened::Text(open)) => open.piece()?,
                Some(Opened::Rows { texts, .. }) => of_some_rows(texts)?,
                None => {
                    let Some(path) = self.files.next() else {
                        return Ok(None);
                    };
                    self.open = Some(self.opened(path)?);
                    continue;
                }
            };
            if piece.is_empty() {
                if let Some(Opened::Rows { path, texts }) = self.open.take() {
                    // Of compressed rows and of parquet the bytes of the text are others than those of the file.
                    self.read += std::fs::metadata(path).map_or(0, |info| info.len());
                    self.skipped += texts.examples().skipped().count;
                    (self.progress)(self.read);
                }
                continue;
            }
            let within = match &self.open {
                Some(Opened::Rows { texts, .. }) => texts.examples().rows().bytes_read(),
                _ => {
                    self.read += piece.len() as u64;
                    0
                }
            };
            (self.progress)(self.read + within);
            return Ok(Some(piece));
        }
    }

    fn opened(&self, path: PathBuf) -> Result<Opened, Failure> {
        if let Some(texts) = self.rows.open(&path)? {
            let texts = Box::new(texts);
            return Ok(Opened::Rows { path, texts });
        }
        let file = open_plain(&path).map_err(|e| unreadable(&path, &e))?;
        Ok(Opened::Text(Open {
            path,
            input: BufReader::with_capacity(1 << 18, file),
            lines: 0,
            rest: Vec::new(),
        }))
    }
}

/// The texts of some rows; empty at the end.
fn of_some_rows(texts: &mut RowTexts) -> Result<String, Failure> {
    let mut piece = String::new();
    let separator = texts.separator();
    while piece.len() < PIECE_BYTES {
        match texts.next() {
            Some(Ok(text)) => {
                piece.push_str(&text);
                piece.push_str(separator);
            }
            Some(Err(fault)) => return Err(of_rows(&DataError::Row(fault))),
            None => break,
        }
    }
    Ok(piece)
}

impl Open {
    /// Some lines; empty at the end.
    fn piece(&mut self) -> Result<String, Failure> {
        let mut bytes = std::mem::take(&mut self.rest);
        bytes.reserve(PIECE_BYTES + 256);
        let mut ended = false;
        while bytes.len() < PIECE_BYTES {
            let n = self
                .input
                .by_ref()
                .take(MAX_LINE)
                .read_until(b'\n', &mut bytes)
                .map_err(|e| unreadable(&self.path, &e))?;
            if n == 0 {
                ended = true;
                break;
            }
        }
        if !ended
            && let Err(e) = std::str::from_utf8(&bytes)
            && e.error_len().is_none()
        {
            self.rest = bytes.split_off(e.valid_up_to());
        }
        if let Some(bad) = bad_text(&bytes) {
            let line = 1 + self.lines + lines(&bytes[..bad.at]);
            return Err(Failure::user_error(
                format!("{} {}: line {line}", shown(&self.path), bad.is),
                bad.fix,
            ));
        }
        self.lines += lines(&bytes);
        Ok(String::from_utf8(bytes).unwrap_or_default())
    }
}

fn lines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

impl Iterator for Pieces {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        match self.piece() {
            Ok(piece) => piece,
            Err(failure) => {
                *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
                self.files = Vec::new().into_iter();
                self.open = None;
                None
            }
        }
    }
}

/// A whole text file, or the text of all rows.
///
/// # Errors
/// The file cannot be read, is not UTF-8, or has a row that does not fit its format.
pub fn whole(path: &Path, rows: &RowReading) -> Result<String, Failure> {
    let files = vec![path.to_path_buf()];
    let (pieces, fault) = Pieces::new(files, rows.clone(), Box::new(|_| {}));
    let text: String = pieces.collect();
    let found = fault.lock().unwrap_or_else(PoisonError::into_inner).take();
    found.map_or(Ok(text), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_files_and_a_bad_byte_is_placed() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a.txt"), dir.path().join("b.txt"));
        let text = "line of text\n".repeat(20_000);
        std::fs::write(&a, &text).unwrap();
        std::fs::write(&b, b"one\ntwo \xff\n").unwrap();
        assert_eq!(whole(&a, &RowReading::default()).unwrap(), text);
        let files = files(&[dir.path().to_path_buf()]).unwrap();
        let (pieces, fault) = Pieces::new(files, RowReading::default(), Box::new(|_| {}));
        assert_eq!(pieces.map(|p| p.len()).sum::<usize>(), text.len());
        let fault = fault.lock().unwrap().take().unwrap();
        assert!(
            fault.what.contains("b.txt is not UTF-8: line 2"),
            "{}",
            fault.what
        );
    }

    #[test]
    fn a_line_beyond_the_bound_is_split_between_characters() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.txt");
        let text = format!("\na{}\nb\n", "\u{e4}".repeat(MAX_LINE as usize / 2 + 10));
        std::fs::write(&path, &text).unwrap();
        assert!(whole(&path, &RowReading::default()).unwrap() == text);
        // The lines before a fault are counted over pieces, and half a character at the end is one.
        let mut bytes = text.into_bytes();
        bytes.extend(b"\xc3");
        std::fs::write(&path, bytes).unwrap();
        let what = whole(&path, &RowReading::default()).unwrap_err().what;
        assert!(what.ends_with("is not UTF-8: line 4"), "{what}");
    }

    #[test]
    fn rows_are_read_as_a_run_reads_them() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let pairs = b"{\"prompt\":\"1+1=\",\"completion\":\"2\"}\n{\"prompt\":\"2+2=\",\"completion\":\"4\"}\n";
        assert_eq!(
            whole(&write("a.jsonl", pairs), &RowReading::default()).unwrap(),
            "1+1=2\n2+2=4\n"
        );
        let csv = write("b.csv", b"text\none\ntwo\n");
        assert_eq!(whole(&csv, &RowReading::default()).unwrap(), "one\ntwo\n");
        let packed = zstd::encode_all(&b"some text\nand more"[..], 1).unwrap();
        let packed = write("c.txt.zst", &packed);
        assert_eq!(
            whole(&packed, &RowReading::default()).unwrap(),
            "some text\nand more"
        );
        // Conversations bring their marks.
        let chat =
            br#"{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"ho"}]}"#;
        let chat = write("d.jsonl", chat);
        let rows = RowReading::default();
        assert_eq!(rows.markers(&[csv, chat]).unwrap(), ChatMarkers::Chatml);
        assert_eq!(rows.markers(&[packed]).unwrap(), ChatMarkers::None);
        let refused = files(&[write("e.gguf", b"GGUF")]).unwrap_err();
        assert!(
            refused.what.contains("neither text nor rows"),
            "{}",
            refused.what
        );
        assert!(files(&[dir.path().join("b.txt")]).is_err());
    }

    #[test]
    fn a_bad_row_is_placed_or_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        std::fs::write(&path, "{\"text\":\"a\"}\n{\"text\":7}\n{\"text\":\"b\"}\n").unwrap();
        let fault = whole(&path, &RowReading::default()).unwrap_err();
        assert!(fault.what.contains("a.jsonl:2"), "{}", fault.what);
        let rows = RowReading {
            on_bad_row: OnBadRow::Skip,
            ..RowReading::default()
        };
        let (mut pieces, _) = Pieces::new(vec![path], rows, Box::new(|_| {}));
        let text: String = pieces.by_ref().collect();
        assert_eq!((text.as_str(), pieces.skipped()), ("a\nb\n", 1));
    }

    #[test]
    fn a_folder_without_texts_is_read_for_its_rows() {
        let dir = tempfile::tempdir().unwrap();
        let rows = dir.path().join("rows.jsonl");
        std::fs::write(&rows, "{\"text\":\"a\"}\n").unwrap();
        let folder = [dir.path().to_path_buf()];
        assert_eq!(files(&folder).unwrap(), [rows]);
        let text = dir.path().join("a.txt");
        std::fs::write(&text, "a").unwrap();
        assert_eq!(files(&folder).unwrap(), [text]);
    }
}
