//! Text files, read in chunks: files may be larger than memory.

use super::super::exit::Failure;
use crate::base::files::open_plain;
use crate::base::text::shown;
use crate::data::source::{bad_text, left_out};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// A chunk ends with the first line that reaches this size, in bytes.
const PIECE_BYTES: usize = 64 << 10;
/// A longer line is split between two characters, to bound memory.
const MAX_LINE: u64 = 16 << 20;

/// Extensions of structured or compressed files, whose syntax would end up in the vocabulary.
const NOT_TEXT: [&str; 9] = [
    "jsonl", "json", "csv", "tsv", "parquet", "gz", "zst", "arrow", "gguf",
];
const PACKED: [&str; 2] = ["gz", "zst"];

/// The given files, and the `.txt` files of the given folders, in name order.
///
/// # Errors
/// A path does not exist, a file is not text, or nothing is left.
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
                return Err(Failure::user_error(
                    format!("no .txt file in {}", shown(path)),
                    "pass text files, or a folder of .txt files",
                ));
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
        if NOT_TEXT.contains(&ending.to_lowercase().as_str()) {
            return Err(Failure::user_error(
                format!("{}: .{ending} is not plain text", shown(path)),
                way_out(path),
            ));
        }
        files.push(path.clone());
    }
    Ok(files)
}

/// How a file of another kind becomes plain text.
fn way_out(path: &Path) -> String {
    let name = Path::new(path.file_name().unwrap_or_default());
    let ending = |name: &Path| {
        let ending = name.extension().unwrap_or_default();
        ending.to_string_lossy().to_lowercase()
    };
    let name = match PACKED.contains(&&*ending(name)) {
        true => Path::new(name.file_stem().unwrap_or_default()),
        false => name,
    };
    let convert = format!(
        "llmtui data convert {} --to text --out {}",
        shown(path),
        shown(&name.with_extension("txt"))
    );
    match &*ending(name) {
        "arrow" | "gguf" => "only plain text is accepted".into(),
        rows if NOT_TEXT.contains(&rows) => format!(
            "only plain text is accepted; {convert} extracts it from rows of text alone; from conversations and other rows a run \
             learns its tokenizer: data.tokenizer: {{bpe: {{vocab_size: 4096}}}} in its spec"
        ),
        _ => format!("only plain text is accepted; {convert} unpacks it"),
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::not_read(path, error)
}

/// Chunks of text from files; ends at the first error, which is stored.
pub struct Pieces {
    files: std::vec::IntoIter<PathBuf>,
    open: Option<Open>,
    fault: Arc<Mutex<Option<Failure>>>,
    /// Called with the number of bytes read.
    progress: Box<dyn FnMut(u64) + Send>,
    read: u64,
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
    pub fn new(files: Vec<PathBuf>, progress: Box<dyn FnMut(u64) + Send>) -> (Pieces, Fault) {
        let fault = Fault::default();
        let pieces = Pieces {
            files: files.into_iter(),
            open: None,
            fault: fault.clone(),
            progress,
            read: 0,
        };
        (pieces, fault)
    }

    fn piece(&mut self) -> Result<Option<String>, Failure> {
        loop {
            let Some(open) = &mut self.open else {
                let Some(path) = self.files.next() else {
                    return Ok(None);
                };
                let file = open_plain(&path).map_err(|e| unreadable(&path, &e))?;
                self.open = Some(Open {
                    path,
                    input: BufReader::with_capacity(1 << 18, file),
                    lines: 0,
                    rest: Vec::new(),
                });
                continue;
            };
            let piece = open.piece()?;
            if piece.is_empty() {
                self.open = None;
                continue;
            }
            self.read += piece.len() as u64;
            (self.progress)(self.read);
            return Ok(Some(piece));
        }
    }
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

/// A whole text file.
///
/// # Errors
/// Unreadable, not UTF-8.
pub fn whole(path: &Path) -> Result<String, Failure> {
    let (pieces, fault) = Pieces::new(vec![path.to_path_buf()], Box::new(|_| {}));
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
        assert_eq!(whole(&a).unwrap(), text);
        let files = files(&[dir.path().to_path_buf()]).unwrap();
        let (pieces, fault) = Pieces::new(files, Box::new(|_| {}));
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
        assert!(whole(&path).unwrap() == text);
        // The lines before a fault are counted over pieces, and half a character at the end is one.
        let mut bytes = text.into_bytes();
        bytes.extend(b"\xc3");
        std::fs::write(&path, bytes).unwrap();
        let what = whole(&path).unwrap_err().what;
        assert!(what.ends_with("is not UTF-8: line 4"), "{what}");
    }

    #[test]
    fn rows_are_not_taken_for_text() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        std::fs::write(&path, "{}").unwrap();
        let refused = files(&[path]).unwrap_err();
        assert!(refused.what.contains("not plain text"));
        // Conversations have no plain text: converting them ends in an error.
        assert!(
            refused
                .hint
                .contains("--out a.txt extracts it from rows of text alone")
        );
        assert!(
            refused.hint.contains("data.tokenizer: {bpe:"),
            "{}",
            refused.hint
        );
        let packed = way_out(Path::new("b/ko.txt.gz"));
        assert!(
            packed.contains("b/ko.txt.gz --to text --out ko.txt unpacks"),
            "{packed}"
        );
        let rows = way_out(Path::new("chats.jsonl.zst"));
        assert!(rows.contains("--out chats.txt extracts"), "{rows}");
        assert!(files(&[dir.path().join("b.txt")]).is_err());
    }
}
