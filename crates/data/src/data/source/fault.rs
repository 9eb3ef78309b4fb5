//! Why a reader stopped in the middle of a file: a bad row, after which reading can continue, or a damaged file.

use crate::data::{Place, RowFault};
use std::io;

/// A fault, and whether reading can continue after it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ReadFault {
    pub fault: RowFault,
    /// Nothing more can be read from this file: rows would be missing without anyone knowing how many.
    pub fatal: bool,
}

impl ReadFault {
    pub fn row(place: &Place, what: impl AsRef<str>, fix: impl Into<String>) -> ReadFault {
        ReadFault {
            fault: RowFault::new(place, what, fix),
            fatal: false,
        }
    }

    pub fn fatal(place: &Place, what: impl AsRef<str>, fix: impl Into<String>) -> ReadFault {
        ReadFault {
            fault: RowFault::new(place, what, fix),
            fatal: true,
        }
    }

    /// A read that failed: the disk, the compression, or one of our own bounds.
    pub fn io(place: &Place, error: &io::Error) -> ReadFault {
        if let Some(refusal) = refusal(error) {
            return ReadFault::fatal(place, &refusal.what, refusal.fix.clone());
        }
        let (what, fix) = match error.kind() {
            io::ErrorKind::UnexpectedEof => (
                "the compressed file ends too early".to_string(),
                "it was truncated: download or write it again",
            ),
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::Other => (
                format!("cannot be decompressed: {error}"),
                "the file is damaged: download or write it again",
            ),
            _ => (
                format!("cannot be read further: {error}"),
                "check the disk and the file's permissions",
            ),
        };
        ReadFault::fatal(place, what, fix)
    }
}

/// A bound of our own that travels through `io::Error`.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{what}")]
pub(super) struct LimitExceeded {
    pub what: String,
    pub fix: String,
}

impl LimitExceeded {
    pub fn error(what: impl Into<String>, fix: impl Into<String>) -> io::Error {
        io::Error::other(LimitExceeded {
            what: what.into(),
            fix: fix.into(),
        })
    }
}

/// The refusal inside an error, if it is one of ours.
fn refusal(error: &io::Error) -> Option<&LimitExceeded> {
    error.get_ref()?.downcast_ref()
}
