//! A file opened for sequential reading: decompressed according to its content, not its name, and never beyond the bounds.

use super::fault::LimitExceeded;
use super::{FREE_BYTES, MAX_RATIO, utf8};
use crate::base::files::open_plain;
use crate::base::human;
use crate::data::DataError;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const BUFFER: usize = 1 << 16;
/// The largest window of a zstd frame, as its command line tool accepts without being told: 2^27 bytes.
const ZSTD_WINDOW_LOG: u32 = 27;

/// How a file is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compression {
    Plain,
    Gzip,
    Zstd,
}

/// An open file; its first bytes have been looked at and are still to be read.
pub(super) struct Opened {
    pub reader: Box<dyn BufRead + Send>,
    pub compression: Compression,
    /// The first bytes after decompression, up to a few kilobytes.
    pub head: Vec<u8>,
    /// Bytes of the file read so far, compressed.
    pub consumed: Arc<AtomicU64>,
}

/// Opens a regular file.
///
/// # Errors
/// It cannot be read, is not a regular file, or has a format that no reader here supports (zip, PDF, UTF-16 …).
pub(super) fn open(path: &Path) -> Result<Opened, DataError> {
    let unreadable = |source| DataError::Unreadable {
        path: path.to_path_buf(),
        source,
    };
    // A pipe would block, a device would never end.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(DataError::source(
            path.display(),
            "is not a regular file",
            "name a file, a folder or a glob",
        ));
    }
    let consumed = Arc::new(AtomicU64::new(0));
    let counting = Counting {
        inner: open_plain(path).map_err(unreadable)?,
        consumed: consumed.clone(),
    };
    let mut raw = BufReader::with_capacity(BUFFER, counting);
    let compression = magic(raw.fill_buf().map_err(unreadable)?);
    let mut reader: Box<dyn BufRead + Send> = match compression {
        Compression::Plain => Box::new(raw),
        Compression::Gzip => bounded(flate2::bufread::MultiGzDecoder::new(raw), &consumed),
        Compression::Zstd => {
            let mut decoder = zstd::Decoder::with_buffer(raw).map_err(unreadable)?;
            decoder
                .window_log_max(ZSTD_WINDOW_LOG)
                .map_err(unreadable)?;
            bounded(decoder, &consumed)
        }
    };
    let head = match reader.fill_buf() {
        Ok(bytes) => bytes[..bytes.len().min(4096)].to_vec(),
        Err(e) => {
            let what = format!("cannot be decompressed: {e}");
            let fix = "the file is damaged or truncated: download or write it again";
            return Err(DataError::source(path.display(), what, fix));
        }
    };
    if let Some((what, fix)) = utf8::foreign_start(&head) {
        return Err(DataError::source(path.display(), format!("is {what}"), fix));
    }
    Ok(Opened {
        reader,
        compression,
        head,
        consumed,
    })
}

fn magic(head: &[u8]) -> Compression {
    match head {
        [0x1f, 0x8b, ..] => Compression::Gzip,
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Compression::Zstd,
        _ => Compression::Plain,
    }
}

fn bounded(
    decoder: impl Read + Send + 'static,
    consumed: &Arc<AtomicU64>,
) -> Box<dyn BufRead + Send> {
    let guard = Guard {
        inner: decoder,
        consumed: consumed.clone(),
        produced: 0,
    };
    Box::new(BufReader::with_capacity(BUFFER, guard))
}

/// Counts what is read from the disk.
struct Counting<R> {
    inner: R,
    consumed: Arc<AtomicU64>,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.consumed.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

/// Refuses what grows out of proportion.
struct Guard<R> {
    inner: R,
    consumed: Arc<AtomicU64>,
    produced: u64,
}

impl<R: Read> Read for Guard<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.produced += n as u64;
        let consumed = self.consumed.load(Ordering::Relaxed).max(1);
        if self.produced > FREE_BYTES && self.produced / consumed > MAX_RATIO {
            return Err(LimitExceeded::error(
                format!(
                    "{} of the file became {}, more than {MAX_RATIO} times as much: it looks like a decompression bomb",
                    human::bytes(consumed),
                    human::bytes(self.produced)
                ),
                "if you trust it, decompress it yourself and name the result",
            ));
        }
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn gz(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn read(bytes: &[u8]) -> Result<(Vec<u8>, Compression), String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        let mut opened = open(file.path()).map_err(|e| e.to_string())?;
        let mut out = Vec::new();
        opened
            .reader
            .read_to_end(&mut out)
            .map_err(|e| e.to_string())?;
        Ok((out, opened.compression))
    }

    #[test]
    fn compression_is_told_by_content_and_members_are_joined() {
        assert_eq!(
            read(b"plain").unwrap(),
            (b"plain".to_vec(), Compression::Plain)
        );
        let two = [gz(b"one "), gz(b"two")].concat();
        assert_eq!(
            read(&two).unwrap(),
            (b"one two".to_vec(), Compression::Gzip)
        );
        let zst = [
            zstd::encode_all(&b"one "[..], 1).unwrap(),
            zstd::encode_all(&b"two"[..], 1).unwrap(),
        ]
        .concat();
        assert_eq!(
            read(&zst).unwrap(),
            (b"one two".to_vec(), Compression::Zstd)
        );
    }

    #[test]
    fn what_no_reader_knows_is_named_inside_a_compression_too() {
        let error = read(&gz(b"PK\x03\x04rest")).unwrap_err();
        assert!(error.contains("is a zip archive"), "{error}");
        let dir = tempfile::tempdir().unwrap();
        let Err(error) = open(dir.path()) else {
            panic!("a folder was opened")
        };
        assert!(error.to_string().contains("not a regular file"));
    }

    #[test]
    fn a_bomb_is_refused_and_honest_repetition_is_not() {
        // 8 MB of one letter shrink 220 times and more, and are far from dangerous.
        assert_eq!(read(&gz(&vec![b'a'; 8 << 20])).unwrap().0.len(), 8 << 20);
        let bomb = zstd::encode_all(io::repeat(b'a').take(80 << 20), 3).unwrap();
        let error = read(&bomb).unwrap_err();
        assert!(error.contains("decompression bomb"), "{error}");
    }
}
