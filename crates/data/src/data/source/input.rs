//! An open file, the same for every kind of file, and the notes that are taken while reading it.

use std::io::BufRead;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// An open file.
pub(super) struct Input {
    pub path: PathBuf,
    /// The name for display.
    pub file: Arc<str>,
    pub reader: Box<dyn BufRead + Send>,
    pub compressed: bool,
    pub notes: Notes,
}

/// Notices while reading that are not errors: a byte-order mark, line ends.
#[derive(Debug, Clone, Default)]
pub(super) struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    /// Adds a note, once.
    pub fn add(&self, note: String) {
        let mut notes = self.0.lock().unwrap_or_else(|e| e.into_inner());
        if !notes.contains(&note) && notes.len() < 100 {
            notes.push(note);
        }
    }

    pub fn list(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }
}
