//! Finds the log for a path: the file itself, or the newest log in a folder. The search is bounded and follows no links.

use super::checkpoints::{TOGETHER, checkpoint, furthest};
use super::formats::{FORMATS, PRINTED, is_curve, may_be_printed, printed_readings};
use super::{Format, tail};
use crate::base::clock::UnixMillis;
use crate::base::files::open_plain;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Folders within folders that are searched.
const DEPTH: usize = 5;
/// Entries that are looked at.
const ENTRIES: usize = 10_000;
/// The format whose runs may have folders within their own.
const TFEVENTS: &str = "tfevents";
/// Bytes by which a format is known, at the beginning of a file or at its end.
const HEAD: u64 = 64 * 1024;

/// Lines with a loss that a printed log in a folder has at least.
const FEW_READINGS: usize = 3;

/// A log and its format.
#[derive(Clone)]
pub struct Found {
    pub format: &'static Format,
    pub path: PathBuf,
    /// The user named the file itself.
    pub named: bool,
    /// The run's name, by its folder or its file.
    pub name: String,
    /// Other runs with logs below the same folder, whatever their format.
    pub others: usize,
}

impl std::fmt::Debug for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.format.entry.id, self.path.display())
    }
}

/// Why there is nothing to watch.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    #[error("{path}: {error}")]
    Io { path: PathBuf, error: io::Error },
    #[error("{path} is not a known log ({known})")]
    Unknown { path: PathBuf, known: String },
    #[error("no log found in {path}, searched {DEPTH} folders deep ({known})")]
    Nothing { path: PathBuf, known: String },
    #[error("unknown format {name}; known: {known}")]
    NoFormat { name: String, known: String },
}

fn known() -> String {
    let ids: Vec<&str> = FORMATS.iter().map(|format| format.entry.id).collect();
    ids.join(", ")
}

/// The log that `path` means; `wanted`: only of that format, whatever the file looks like.
///
/// # Errors
/// There is none, or it cannot be read.
pub fn find(path: &Path, wanted: Option<&str>) -> Result<Found, WatchError> {
    let fault = |error| WatchError::Io {
        path: path.into(),
        error,
    };
    let wanted = match wanted {
        None => None,
        Some(name) => Some(
            FORMATS
                .iter()
                .copied()
                .find(|f| f.entry.id == name)
                .ok_or_else(|| WatchError::NoFormat {
                    name: name.into(),
                    known: known(),
                })?,
        ),
    };
    let path = std::path::absolute(path).map_err(fault)?;
    let meta = std::fs::metadata(&path).map_err(fault)?;
    if !meta.is_dir() {
        let format = match wanted {
            Some(format) => format,
            None => recognize(&path)
                .map_err(fault)?
                .ok_or_else(|| WatchError::Unknown {
                    path: path.clone(),
                    known: known(),
                })?,
        };
        return Ok(Found {
            format,
            name: name_of(&path, &path),
            path,
            named: true,
            others: 0,
        });
    }
    newest(&path, wanted).ok_or_else(|| WatchError::Nothing {
        path: path.clone(),
        known: wanted.map_or_else(known, |format| format.entry.id.into()),
    })
}

fn recognize(path: &Path) -> io::Result<Option<&'static Format>> {
    let mut head = Vec::new();
    let mut file = open_plain(path)?;
    (&mut file).take(HEAD).read_to_end(&mut head)?;
    let by = |head: &[u8]| {
        FORMATS
            .iter()
            .copied()
            .find(|format| (format.is)(path, head))
    };
    let found = by(&head);
    if found.is_some()
        || (head.len() as u64) < HEAD
        || !looks_like_a_log(path) && !may_be_printed(path)
    {
        return Ok(found);
    }
    // One line may be longer than that, where it has a thousand metrics.
    if !head.contains(&b'\n') {
        file.take(tail::MAX_LINE as u64).read_to_end(&mut head)?;
        return Ok(by(&head));
    }
    // What a program prints before its first step may be long too: the end of the log decides.
    if !may_be_printed(path) || head.contains(&0) {
        return Ok(None);
    }
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(HEAD)))?;
    let mut end = Vec::new();
    file.take(HEAD).read_to_end(&mut end)?;
    Ok((PRINTED.is)(path, &end).then_some(PRINTED))
}

/// Whether a file that nobody named may be offered as a log: a text about training may have one or two lines like a log's. A file
/// that is called after a log is one from its first step on.
fn is_no_prose(format: &Format, path: &Path) -> io::Result<bool> {
    if format.entry.id != PRINTED.entry.id || is_called_log(path) {
        return Ok(true);
    }
    let mut file = open_plain(path)?;
    let mut found = 0;
    for from in [0, file.metadata()?.len().saturating_sub(HEAD)] {
        file.seek(SeekFrom::Start(from))?;
        let mut part = Vec::new();
        (&mut file).take(HEAD).read_to_end(&mut part)?;
        found = found.max(printed_readings(&part, FEW_READINGS));
    }
    Ok(found == FEW_READINGS)
}

fn is_called_log(path: &Path) -> bool {
    let extension = path.extension().unwrap_or_default();
    ["log", "out", "err"]
        .iter()
        .any(|known| extension == *known)
}

/// The log that a file is expected to become: a run that has not come to its first step has written nothing by which it is known.
/// In a folder it is the newest file that is called after a log.
pub fn expected(path: &Path) -> Option<Found> {
    let path = std::path::absolute(path).ok()?;
    let format_of = |path: &Path| {
        let extension = path.extension().unwrap_or_default().to_string_lossy();
        let id = match extension.as_ref() {
            "jsonl" | "ndjson" => "jsonl",
            "csv" | "tsv" => "csv",
            _ if may_be_printed(path) => PRINTED.entry.id,
            _ => return None,
        };
        FORMATS.iter().copied().find(|format| format.entry.id == id)
    };
    let mut log = path.clone();
    if path.is_dir() {
        let (mut files, mut left) = (Vec::new(), ENTRIES);
        collect(&path, 0, &mut left, &mut files);
        let logs = files.into_iter().filter(|(_, path)| is_called_log(path));
        log = logs.max()?.1;
    }
    let mut head = Vec::new();
    open_plain(&log)
        .ok()?
        .take(HEAD)
        .read_to_end(&mut head)
        .ok()?;
    if head.contains(&0) {
        return None;
    }
    Some(Found {
        format: format_of(&log)?,
        name: name_of(&path, &log),
        named: !path.is_dir(),
        path: log,
        others: 0,
    })
}

/// The newest log below a folder; of those that changed together the most complete one.
fn newest(root: &Path, wanted: Option<&'static Format>) -> Option<Found> {
    let logs = logs_below(root, wanted);
    let last = logs.iter().map(|(changed, ..)| *changed).max()?;
    let together = |changed: UnixMillis| last.0 - changed.0 <= TOGETHER;
    let (_, format, path) = logs
        .iter()
        .filter(|(changed, ..)| together(*changed))
        .min_by_key(|(changed, format, _)| (format.rank, std::cmp::Reverse(*changed)))?;
    let path = run_of_curve(&logs, path).unwrap_or(path);
    // TensorBoard's writer keeps curves that were added together in folders within that of the run.
    let above = |log: &&Log| {
        let folder = log.2.parent();
        let is_above = folder.is_some_and(|folder| path.starts_with(folder));
        is_above && log.1.entry.id == TFEVENTS && format.entry.id == TFEVENTS
    };
    let main = logs
        .iter()
        .filter(|(changed, ..)| together(*changed))
        .filter(above);
    let path = main
        .map(|log| &log.2)
        .min_by_key(|path| path.components().count())
        .unwrap_or(path);
    let folder = folder_of(path);
    let of_format = logs
        .iter()
        .filter(|log| log.1.entry.id == format.entry.id)
        .filter(|log| folder_of(&log.2) == folder);
    let of_one_run = of_format.map(|(changed, _, path)| (*changed, path));
    let path = match path.parent().and_then(checkpoint) {
        Some(_) => furthest(of_one_run)?.1,
        None => path,
    };
    let others = other_runs(&logs, format, folder);
    // Of several runs the title names the one that is shown.
    let named = match others {
        0 => root,
        _ => path.parent().unwrap_or(root),
    };
    Some(Found {
        format,
        path: path.clone(),
        named: false,
        name: name_of(named, path),
        others,
    })
}

/// A log, and when it changed.
type Log = (UnixMillis, &'static Format, PathBuf);

/// The event file of the run that a curve in a folder of its own belongs to. It may be old: the curves may be all there is.
fn run_of_curve<'a>(logs: &'a [Log], path: &Path) -> Option<&'a PathBuf> {
    let folder = path.parent()?.parent();
    let mut of_run = logs.iter().filter(|log| {
        let is_event_file = log.1.entry.id == TFEVENTS;
        is_event_file && log.2.parent() == folder && is_curve(path)
    });
    of_run.next_back().map(|log| &log.2)
}

/// The logs below a folder, by path.
fn logs_below(root: &Path, wanted: Option<&'static Format>) -> Vec<Log> {
    let mut files = Vec::new();
    let mut left = ENTRIES;
    collect(root, 0, &mut left, &mut files);
    // By names alone first: most files in a folder of models are large and no logs.
    let mut logs: Vec<Log> = files
        .into_iter()
        .filter_map(|(changed, path)| {
            let format = recognize(&path).ok()??;
            let offered = wanted.is_some() || is_no_prose(format, &path).unwrap_or(false);
            offered.then_some((changed, format, path))
        })
        .filter(|(_, format, _)| wanted.is_none_or(|wanted| wanted.entry.id == format.entry.id))
        .collect();
    logs.sort_by(|a, b| a.2.cmp(&b.2));
    logs
}

/// How many runs besides that of `folder`, whose log is of this format, have logs.
fn other_runs(logs: &[Log], format: &Format, folder: Option<&Path>) -> usize {
    let within = |log: &Path| {
        format.entry.id == TFEVENTS && folder.is_some_and(|folder| log.starts_with(folder))
    };
    let others = logs
        .iter()
        .filter(|log| log.1.entry.id == format.entry.id)
        .filter(|log| folder_of(&log.2) != folder && !within(&log.2));
    let apart: BTreeSet<_> = others.filter_map(|log| folder_of(&log.2)).collect();
    // Which log is the newest may not decide whether folders within a run are runs.
    let nested = |inner: &&Path| {
        apart
            .iter()
            .any(|outer| *inner != *outer && inner.starts_with(outer))
    };
    let mut others: BTreeSet<_> = apart
        .iter()
        .copied()
        .filter(|inner| !nested(inner))
        .collect();
    // A program may write logs of several formats, in folders within its own.
    for other in logs.iter().filter_map(|log| folder_of(&log.2)) {
        let within = |known: &&Path| known.starts_with(other) || other.starts_with(known);
        if !folder.iter().chain(&others).any(within) {
            others.insert(other);
        }
    }
    others.len()
}

/// The folder of a log's run: its own, or that of the checkpoints.
fn folder_of(log: &Path) -> Option<&Path> {
    let folder = log.parent()?;
    match checkpoint(folder) {
        Some(_) => folder.parent(),
        None => Some(folder),
    }
}

fn collect(folder: &Path, depth: usize, left: &mut usize, files: &mut Vec<(UnixMillis, PathBuf)>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.filter_map(Result::ok) {
        if *left == 0 {
            return;
        }
        *left -= 1;
        // Of a link this is the link: it is neither a folder nor a file.
        let Ok(meta) = entry.metadata() else { continue };
        let path = entry.path();
        if meta.is_dir() && depth < DEPTH {
            collect(&path, depth + 1, left, files);
        } else if meta.is_file()
            && looks_like_a_log(&path)
            && let Some(changed) = tail::modified(&meta)
        {
            files.push((changed, path));
        }
    }
}

/// Endings of files that are opened to see whether they are logs.
const LOGS: &[&str] = &[
    "jsonl", "ndjson", "csv", "tsv", "log", "txt", "out", "err", "wandb",
];

/// By its name: weights and pictures are not opened.
fn looks_like_a_log(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    let known = LOGS.contains(&extension.as_ref());
    known || name == "trainer_state.json" || name.contains("tfevents")
}

/// Folders that are called after what lies in them; in lower case.
const COLLECTIONS: &[&str] = &[
    "checkpoints",
    "data",
    "desktop",
    "documents",
    "downloads",
    "events",
    "experiments",
    "files",
    "home",
    "lightning_logs",
    "log",
    "logs",
    "models",
    "out",
    "output",
    "outputs",
    "results",
    "root",
    "runs",
    "tb",
    "temp",
    "tensorboard",
    "tmp",
    "train",
    "training",
    "var",
    "wandb",
    "work",
    "workspace",
];
/// Files that every run of a program calls so, without their endings; in lower case.
const STANDARD: &[&str] = &[
    "console",
    "debug",
    "events",
    "history",
    "llmtui",
    "log",
    "logs",
    "loss",
    "losses",
    "metrics",
    "nohup",
    "out",
    "output",
    "progress",
    "run",
    "stderr",
    "stdout",
    "train",
    "train_log",
    "trainer",
    "trainer_log",
    "trainer_state",
    "training",
    "training_log",
];

/// The run's name: of the folder that the user named; of a file its own, or that of its folder where every run of a program
/// calls its file so. A folder that is called after its kind gives way: to the log's name, else to the folder above.
fn name_of(named: &Path, log: &Path) -> String {
    let text = |name: Option<&OsStr>| name.map(|name| name.to_string_lossy().into_owned());
    let is_of = |list: &[&str], name: &str| list.contains(&name.to_lowercase().as_str());
    let telling = |path: &Path| {
        let name = text(path.file_name()).filter(|name| !is_of(COLLECTIONS, name));
        name.filter(|_| checkpoint(path).is_none())
    };
    let own = || {
        let is_written_by_tensorboard = log.to_string_lossy().contains("tfevents");
        let name = text(log.file_stem()).filter(|_| !is_written_by_tensorboard);
        name.filter(|name| !is_of(STANDARD, name))
    };
    let above = |path: &Path| path.ancestors().take(3).find_map(telling);
    // TensorBoard's files are one to a folder, which is called after the run.
    let folder = || {
        let folder = log
            .parent()
            .filter(|folder| *folder != named && log.to_string_lossy().contains("tfevents"))?;
        let name = telling(folder)?;
        (!name.starts_with("version_")).then_some(name)
    };
    let found = match named.is_dir() {
        true => telling(named)
            .or_else(own)
            .or_else(folder)
            .or_else(|| above(named)),
        false => own().or_else(|| log.parent().and_then(above)),
    };
    let last = || text(log.parent().and_then(Path::file_name)).or(text(log.file_name()));
    found.or_else(last).unwrap_or_default()
}

#[cfg(test)]
mod tests;
