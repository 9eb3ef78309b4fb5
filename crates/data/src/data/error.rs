//! Errors of text, rows and tokenizers: location, cause, fix.

use super::Place;
use crate::base::files::is_path_error;
use crate::base::text::one_line;
use std::borrow::Cow;
use std::fmt::Display;
use std::path::PathBuf;

/// One row that cannot be used. It prints as `file:row: what`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}")]
pub struct RowFault {
    pub place: Place,
    /// The value found, safe to show.
    pub what: String,
    /// What to do about it; may be empty.
    pub fix: String,
    /// The row is sound, but the tokenizer cannot encode it.
    pub of_tokenizer: bool,
}

impl RowFault {
    /// Both may quote the row: they are made safe to show here.
    pub fn new(place: &Place, what: impl AsRef<str>, fix: impl Into<String>) -> RowFault {
        RowFault {
            place: place.clone(),
            what: one_line(what.as_ref()),
            fix: one_line(&fix.into()),
            of_tokenizer: false,
        }
    }

    /// What rendering or encoding a row fails with.
    pub fn of_error(place: &Place, error: &DataError) -> RowFault {
        use DataError::{Tokenizer, UnknownCharacter};
        RowFault {
            of_tokenizer: matches!(error, Tokenizer { .. } | UnknownCharacter { .. }),
            ..RowFault::new(place, error.to_string(), error.hint())
        }
    }
}

/// A fault of the data or of a tokenizer. The message says what; [`DataError::hint`] says what to do.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    #[error("{path} cannot be read: {source}")]
    Unreadable {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{path} cannot be written: {source}")]
    Unwritable {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{path} {is}: line {line}, byte {offset}")]
    BadText {
        path: PathBuf,
        /// From 0.
        offset: usize,
        /// From 1.
        line: usize,
        /// "is not UTF-8", "is UTF-16 text", "has a NUL byte".
        is: &'static str,
        fix: &'static str,
    },
    #[error("{place} has no text")]
    Empty { place: String },
    #[error("{place} has no rows")]
    Rowless { place: String },
    #[error("{place} has {bytes} bytes of text; plain text is kept in memory, up to {limit} bytes")]
    TooLarge {
        place: String,
        bytes: u64,
        limit: u64,
    },
    #[error("unknown corpus `{0}`")]
    NoCorpus(String),
    #[error("the built-in corpus `{corpus}` is plain text, but the method trains on rows: {needs}")]
    NoRows {
        corpus: String,
        /// What a row must contain.
        needs: &'static str,
    },
    #[error("the {split} split has {tokens} tokens; one window takes {window} (seq_len + 1)")]
    TooShort {
        split: &'static str,
        tokens: usize,
        window: usize,
    },
    #[error(
        "the character {character:?} (at character {position}) is not in the vocabulary, {known}"
    )]
    UnknownCharacter {
        character: char,
        /// From 0, in characters of the encoded text.
        position: usize,
        /// How many characters are, and the first of them.
        known: String,
    },
    #[error("{place}: {what}")]
    Tokenizer { place: String, what: String },
    #[error("{place}: {what}")]
    Template {
        place: String,
        /// Safe to show.
        what: String,
        fix: &'static str,
    },
    #[error("{place} {what}")]
    Source {
        place: String,
        what: String,
        fix: String,
    },
    #[error(transparent)]
    Row(#[from] RowFault),
    #[error(transparent)]
    Hub(#[from] crate::hub::HubError),
}

impl DataError {
    /// A source that cannot be used: its name, the fault (a predicate), the fix.
    pub fn source(
        place: impl Display,
        what: impl Into<String>,
        fix: impl Into<String>,
    ) -> DataError {
        DataError::Source {
            place: one_line(&place.to_string()),
            what: one_line(&what.into()),
            fix: fix.into(),
        }
    }

    /// Whether the machine is to blame, and neither the data nor a setting: a full disk, or no network.
    pub fn is_environment_error(&self) -> bool {
        match self {
            DataError::Unwritable { source, .. } => !is_path_error(source),
            DataError::Hub(error) => error.is_environment_error(),
            _ => false,
        }
    }

    /// What to do about it; may be empty.
    pub fn hint(&self) -> Cow<'static, str> {
        match self {
            DataError::Source { fix, .. } => fix.clone().into(),
            DataError::Row(fault) => fault.fix.clone().into(),
            DataError::Hub(error) => error.hint().into(),
            known => known.fixed_hint().into(),
        }
    }

    fn fixed_hint(&self) -> &'static str {
        match self {
            DataError::Source { .. } | DataError::Row(_) | DataError::Hub(_) => "",
            DataError::Unreadable { .. } => {
                "check the path in the spec (data.path, train.from, method.distill.teacher) and the file's permissions"
            }
            DataError::Unwritable { .. } => {
                "free disk space, set data.cache to another folder, or set it to off to keep tokens in memory"
            }
            DataError::BadText { fix, .. } => fix,
            DataError::Empty { .. } => "name a file with text",
            DataError::Rowless { .. } => "name a file with rows; a header alone has none",
            DataError::TooLarge { .. } => "train on part of it",
            DataError::NoCorpus(_) => "set data.path for your own text",
            DataError::NoRows { .. } => {
                "your own rows: -s data.path=FILE; or synthetic ones: see the demos of llmtui presets list"
            }
            DataError::TooShort { split: "train", .. } => "more text, or a smaller model.seq_len",
            DataError::TooShort { .. } => {
                "more text, a larger data.val_fraction, or a smaller model.seq_len"
            }
            DataError::UnknownCharacter { .. } => {
                "use text with only its characters, or a model whose tokenizer covers every byte, such as one trained with -s data.tokenizer=bpe"
            }
            DataError::Template { fix, .. } => fix,
            DataError::Tokenizer { .. } => {
                "use a tokenizer.json written by the tokenizers library, version 1.0 of its format: data.tokenizer.file.path names it"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A dry run without network ended with 2, the run itself with 3.
    #[test]
    fn the_network_and_a_full_disk_are_of_the_machine() {
        use crate::hub::HubError;
        let away = HubError::Unreachable {
            url: "https://huggingface.co".into(),
            why: "no route".into(),
        };
        let disk = |kind: std::io::ErrorKind| HubError::Disk {
            path: "cache".into(),
            source: kind.into(),
        };
        let unknown = HubError::BadId("x".into());
        let is = |error: HubError| DataError::Hub(error).is_environment_error();
        assert!(is(away) && is(disk(std::io::ErrorKind::StorageFull)));
        assert!(!is(unknown) && !is(disk(std::io::ErrorKind::InvalidFilename)));
    }

    #[test]
    fn a_fault_names_its_place_and_cannot_steer_the_terminal() {
        let place = Place {
            file: "chat.jsonl".into(),
            row: 7,
        };
        let fault = RowFault::new(&place, "found \u{1b}[2J", "give it a role");
        assert_eq!(fault.to_string(), "chat.jsonl:7: found ·[2J");
        assert_eq!(fault.fix, "give it a role");
    }
}
