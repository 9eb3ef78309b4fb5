//! The cache of tokenized sources: a folder for each key, which covers everything that the tokens depend on. Shards are
//! written under temporary names and renamed, so a killed process leaves complete shards to continue from; the manifest comes
//! last and completes an entry. Shards are checked against their checksums when they are first opened and whenever their size
//! or modification time changes; a damaged entry is rebuilt.
//!
//! ```text
//! tokens/3f9c….lock
//! tokens/3f9c….part/shard-00000 …        incomplete
//! tokens/3f9c…/shard-00000 … manifest.json verified.json
//! ```

use super::Store;
use super::build::{Feed, Sink, build};
use super::shard::{Shard, Tally};
use crate::base::files::{read_plain, sync_dir, write_atomic};
use crate::base::mapped::Mapped;
use crate::data::DataError;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// Version of the shards and of what tokenizing does: an older entry is not used.
const FORMAT: u32 = 6;

const MANIFEST: &str = "manifest.json";
/// Size and time of change of the shards whose checksums were right.
const VERIFIED: &str = "verified.json";

/// Everything that the tokens of a source depend on, by the names shown when one of them changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Key {
    /// The source as the spec says it.
    pub source: String,
    pub parts: BTreeMap<String, String>,
}

impl Key {
    pub fn new(source: &str) -> Key {
        Key {
            source: source.into(),
            parts: [("version".to_string(), FORMAT.to_string())].into(),
        }
    }

    #[must_use]
    pub fn with(mut self, part: &str, value: impl Into<String>) -> Key {
        self.parts.insert(part.into(), value.into());
        self
    }

    /// SHA-256 in hex of the parts: the same tokens, whatever their source is called.
    pub fn hash(&self) -> String {
        let mut hash = Sha256::new();
        for (part, value) in &self.parts {
            hash.update(part.as_bytes());
            hash.update([0]);
            hash.update(value.as_bytes());
            hash.update([0]);
        }
        hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
    }

    /// What of another entry of the same source is different.
    fn differs_from(&self, other: &Key) -> Vec<String> {
        let changed = |part: &&String| self.parts.get(*part) != other.parts.get(*part);
        let mut parts: Vec<String> = self.parts.keys().filter(changed).cloned().collect();
        let gone = other
            .parts
            .keys()
            .filter(|part| !self.parts.contains_key(*part));
        parts.extend(gone.cloned());
        parts
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Manifest {
    key: Key,
    shards: usize,
    documents: u64,
    tokens: u64,
    /// Notices of reading: valid as long as the entry.
    notes: Vec<String>,
}

/// The result: found in the cache, or built.
#[derive(Debug)]
pub(crate) struct Entry {
    pub store: Store,
    /// Messages for the user: notices of reading, why it was tokenized again.
    pub notes: Vec<String>,
}

/// Opens a source, passes its rows to the given function, and returns the notices.
pub(crate) type RowFeeder<'a> = dyn FnMut(&mut dyn FnMut(Feed<'_>) -> Result<(), DataError>) -> Result<Vec<String>, DataError>
    + 'a;

/// Maps the entry of `key` below `folder`. Where there is none, `feed` is asked for the rows and the entry is made; ids
/// take `width` bytes. Another process that makes the same entry is waited for. A damaged entry is rebuilt, and reported.
///
/// # Errors
/// The folder cannot be written, or a row is bad.
pub(crate) fn open_or_build(
    folder: &Path,
    key: &Key,
    width: usize,
    feed: &mut RowFeeder<'_>,
) -> Result<Entry, DataError> {
    let place = folder.join(key.hash());
    if let Some(Ok(entry)) = find(&place, &key.source) {
        return Ok(entry);
    }
    fs::create_dir_all(folder).map_err(|e| unwritable(folder, e))?;
    let _lock = wait_for_lock(&place.with_extension("lock"))?;
    let mut notes = match find(&place, &key.source) {
        Some(Ok(entry)) => return Ok(entry),
        Some(Err(damage)) => {
            fs::remove_dir_all(&place).map_err(|e| unwritable(&place, e))?;
            vec![format!("{}: tokenized again: {damage}", key.source)]
        }
        None => changed(folder, key),
    };
    let part = place.with_extension("part");
    fs::create_dir_all(&part).map_err(|e| unwritable(&part, e))?;
    let mut written = Written::resume(&part);
    if written.tally.rows > 0 {
        notes.push(format!(
            "{}: continues after {} rows tokenized earlier",
            key.source, written.tally.rows
        ));
    }
    let fed = feed(&mut |feed| {
        let tally = written.tally.clone();
        build(feed, width, tally, &mut written)
    });
    let noticed = fed.inspect_err(|_| remove_if_empty(&part, &place))?;
    let manifest = Manifest {
        key: key.clone(),
        shards: written.shards,
        documents: written.documents,
        tokens: written.tokens,
        notes: noticed,
    };
    let json = serde_json::to_vec_pretty(&manifest).unwrap_or_default();
    write_atomic(&part.join(MANIFEST), &json).map_err(|e| unwritable(&part, e))?;
    fs::rename(&part, &place)
        .and_then(|()| sync_dir(folder))
        .map_err(|e| unwritable(&place, e))?;
    let _ = fs::remove_file(place.with_extension("lock"));
    let mut entry = open(&place, &key.source)?;
    entry.notes.append(&mut notes);
    Ok(entry)
}

/// After an error before the first shard there is nothing to go on from. Neither goes while it holds anything.
fn remove_if_empty(part: &Path, place: &Path) {
    if fs::remove_dir(part).is_ok() {
        let _ = fs::remove_file(place.with_extension("lock"));
    }
}

/// The shards of an entry that is being made.
struct Written {
    part: PathBuf,
    shards: usize,
    documents: u64,
    tokens: u64,
    tally: Tally,
}

impl Written {
    /// Counts the whole shards that an earlier process left.
    fn resume(part: &Path) -> Written {
        let mut written = Written {
            part: part.to_path_buf(),
            shards: 0,
            documents: 0,
            tokens: 0,
            tally: Tally::default(),
        };
        while let Ok(shard) = open_shard(&shard_path(part, written.shards))
            && shard.verify().is_ok()
        {
            written.count(&shard);
        }
        written
    }

    fn count(&mut self, shard: &Shard) {
        self.shards += 1;
        self.documents += shard.documents() as u64;
        self.tokens += shard.tokens() as u64;
        self.tally = shard.tally().clone();
    }
}

impl Sink for Written {
    fn write(&mut self, bytes: Vec<u8>) -> Result<(), DataError> {
        let path = shard_path(&self.part, self.shards);
        write_atomic(&path, &bytes).map_err(|e| unwritable(&path, e))?;
        self.count(&open_shard(&path)?);
        Ok(())
    }
}

fn shard_path(folder: &Path, number: usize) -> PathBuf {
    folder.join(format!("shard-{number:05}"))
}

fn open_shard(path: &Path) -> Result<Shard, DataError> {
    let bytes = Mapped::open(path).map_err(|source| DataError::Unreadable {
        path: path.to_path_buf(),
        source,
    })?;
    Shard::mapped(bytes).map_err(|what| damaged(path, &what))
}

/// The entry at a place; `None` where nothing is.
fn find(place: &Path, source: &str) -> Option<Result<Entry, DataError>> {
    place.is_dir().then(|| open(place, source))
}

/// The entry at a place, for a source that may be called otherwise than the one it was made from.
fn open(place: &Path, source: &str) -> Result<Entry, DataError> {
    let manifest = read_manifest(place).map_err(|what| damaged(&place.join(MANIFEST), &what))?;
    let known = read_plain(place.join(VERIFIED)).unwrap_or_default();
    // What cannot be read is made again.
    let known: Vec<Stamp> = serde_json::from_slice(&known).unwrap_or_default();
    let (mut shards, mut stamps) = (Vec::new(), Vec::new());
    for number in 0..manifest.shards {
        let path = shard_path(place, number);
        let (stamp, shard) = (Stamp::of(&path), open_shard(&path)?);
        if stamp.is_none() || stamp.as_ref() != known.get(number) {
            shard.verify().map_err(|what| damaged(&path, &what))?;
        }
        shards.push(shard);
        stamps.extend(stamp);
    }
    if stamps != known {
        let json = serde_json::to_vec(&stamps).unwrap_or_default();
        // In a folder that is only read everything is verified every time.
        let _ = write_atomic(&place.join(VERIFIED), &json);
    }
    let store = Store::new(shards);
    if (store.tokens(), store.documents()) != (manifest.tokens, manifest.documents) {
        return Err(damaged(place, "its shards are not those of its manifest"));
    }
    let notes = under_the_name(source, &manifest.key.source, manifest.notes);
    Ok(Entry { store, notes })
}

/// Notes of a source as notes of another one of the same content. Those that name files of a pattern are skipped.
fn under_the_name(source: &str, made_from: &str, notes: Vec<String>) -> Vec<String> {
    if source == made_from {
        return notes;
    }
    let renamed = |note: String| match note.strip_prefix(made_from) {
        Some(rest) => Some(format!("{source}{rest}")),
        None => (!made_from.contains(['*', '?', '['])).then_some(note),
    };
    notes.into_iter().filter_map(renamed).collect()
}

/// Tells a file that was changed from one that was not, without reading it.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Stamp {
    len: u64,
    /// Since the epoch.
    modified_ns: u128,
}

impl Stamp {
    fn of(path: &Path) -> Option<Stamp> {
        let meta = fs::metadata(path).ok()?;
        let since = meta.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        Some(Stamp {
            len: meta.len(),
            modified_ns: since.as_nanos(),
        })
    }
}

fn read_manifest(place: &Path) -> Result<Manifest, String> {
    let text = read_plain(place.join(MANIFEST)).map_err(|e| e.to_string())?;
    serde_json::from_slice(&text).map_err(|e| e.to_string())
}

fn wait_for_lock(path: &Path) -> Result<File, DataError> {
    let open = || -> io::Result<File> {
        let mut options = File::options();
        let file = options
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)?;
        file.lock()?;
        Ok(file)
    };
    open().map_err(|e| unwritable(path, e))
}

/// A part of a key, for display.
fn changed_word(part: &str) -> &str {
    match part {
        "content" | "files" => "its content",
        "format" => "its format and columns",
        "settings" => "how its rows are made",
        "max_rows" => "how many of its rows are read",
        "tokenizer" => "the tokenizer",
        "template" => "the chat template",
        "train_on" => "data.train_on",
        "on_bad_row" => "data.on_bad_row",
        "unit" => "what the method uses as one example",
        "reading" => "how the method reads its rows",
        "weights" => "the weights of its turns",
        "lead" | "version" => "how llmtui tokenizes",
        other => other,
    }
}

/// Says which part of a source that is in the cache has changed.
fn changed(folder: &Path, key: &Key) -> Vec<String> {
    let others = entries(folder)
        .into_iter()
        .map(|(_, manifest)| manifest.key);
    let same_source = others.filter(|other| other.source == key.source);
    let nearest = same_source
        .map(|other| key.differs_from(&other))
        .min_by_key(Vec::len);
    let note = nearest.map(|parts| {
        let mut words: Vec<&str> = parts.iter().map(|part| changed_word(part)).collect();
        words.dedup();
        format!(
            "{}: tokenized again, as this changed: {}",
            key.source,
            words.join(", ")
        )
    });
    note.into_iter().collect()
}

fn entries(folder: &Path) -> Vec<(PathBuf, Manifest)> {
    let Ok(found) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let places = found.flatten().map(|entry| entry.path());
    let whole = places.filter(|path| path.extension().is_none());
    whole
        .filter_map(|path| read_manifest(&path).ok().map(|manifest| (path, manifest)))
        .collect()
}

fn damaged(path: &Path, what: &str) -> DataError {
    DataError::source(
        path.display(),
        format!("is damaged: {what}"),
        "delete it, or run llmtui data cache clear: it will be rebuilt",
    )
}

fn unwritable(path: &Path, source: io::Error) -> DataError {
    let path = path.to_path_buf();
    DataError::Unwritable { path, source }
}

/// An entry of the cache, for display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cached {
    pub source: String,
    pub path: PathBuf,
    pub documents: u64,
    pub tokens: u64,
    /// Bytes on the disk.
    pub bytes: u64,
    /// Every shard is there.
    pub whole: bool,
}

/// The entries below a folder, largest first; unfinished ones too.
pub fn list(folder: &Path) -> Vec<Cached> {
    let Ok(found) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let places = found
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_dir());
    let mut list: Vec<Cached> = places.filter_map(|path| describe(&path)).collect();
    list.sort_by(|a, b| b.bytes.cmp(&a.bytes).then(a.path.cmp(&b.path)));
    list
}

/// `None` for folders that are not ours.
fn describe(path: &Path) -> Option<Cached> {
    let files = fs::read_dir(path).ok()?.flatten();
    let bytes = files
        .filter_map(|file| file.metadata().ok())
        .map(|m| m.len())
        .sum();
    if let Ok(manifest) = read_manifest(path) {
        return Some(Cached {
            source: manifest.key.source,
            path: path.to_path_buf(),
            documents: manifest.documents,
            tokens: manifest.tokens,
            bytes,
            whole: true,
        });
    }
    let unfinished = path.extension().is_some_and(|e| e == "part");
    unfinished.then(|| {
        let written = Written::resume(path);
        Cached {
            source: String::new(),
            path: path.to_path_buf(),
            documents: written.documents,
            tokens: written.tokens,
            bytes,
            whole: false,
        }
    })
}

/// Removes every entry below a folder that no process is making, and says how many bytes that freed. Files that are none
/// of the cache's stay.
///
/// # Errors
/// An entry cannot be removed.
pub fn clear(folder: &Path) -> io::Result<u64> {
    let mut freed = 0;
    for entry in list(folder) {
        if !entry.whole {
            let lock = File::options()
                .create(true)
                .truncate(false)
                .write(true)
                .open(entry.path.with_extension("lock"))?;
            if lock.try_lock().is_err() {
                continue;
            }
            let _ = fs::remove_file(entry.path.with_extension("lock"));
        }
        fs::remove_dir_all(&entry.path)?;
        freed += entry.bytes;
    }
    Ok(freed)
}

#[cfg(test)]
mod tests;
