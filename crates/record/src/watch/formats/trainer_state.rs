//! `trainer_state.json` of transformers and TRL: written with every checkpoint, and once more at the end by `save_state`.
//! Live it is as recent as the newest checkpoint; the callback's file is as recent as the log. Pickles are never opened.

use crate::base::clock::UnixMillis;
use crate::base::files::read_small;
use crate::base::registry::Entry;
use crate::base::stats::median;
use crate::watch::checkpoints::{checkpoint, furthest, newest};
use crate::watch::{Facts, Format, Item, SILENT, Source, json, names, tail};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Largest file that is read, in bytes: 300,000 entries.
const MAX_BYTES: u64 = 64 << 20;
/// Entries of a folder that are looked at.
const MAX_ENTRIES: usize = 10_000;
const NAME: &str = "trainer_state.json";
/// How long a second checkpoint may take; from then on their distance is known.
const SECOND: Duration = Duration::from_secs(6 * 3600);
/// Usual distances of two checkpoints until the next one is given up.
const LATE: f64 = 3.0;
/// Checkpoints whose distances are usual.
const RECENT: usize = 64;

pub const FORMAT: Format = Format {
    entry: Entry {
        id: "trainer_state",
        title: "Hugging Face Trainer",
        summary: "trainer_state.json of transformers and TRL: a folder with checkpoints, or one file",
        source: "transformers, trainer_callback.py: TrainerState",
    },
    rank: 1,
    is: |path, _| path.file_name().is_some_and(|name| name == NAME),
    open: |path, named, _| Box::new(TrainerState::new(path, named)),
};

struct TrainerState {
    /// The folder that holds the checkpoints, or the one file.
    root: PathBuf,
    only: bool,
    /// The files as they stood when one was read last.
    seen: Vec<(UnixMillis, PathBuf)>,
    /// What was read last, and its entries.
    read: Option<(PathBuf, UnixMillis)>,
    entries: Vec<Value>,
    ended: bool,
    /// When the newest checkpoints were written, those that were deleted since included.
    written: BTreeSet<UnixMillis>,
}

impl TrainerState {
    fn new(path: &Path, named: bool) -> TrainerState {
        let folder = path.parent().unwrap_or(path);
        let in_checkpoint = checkpoint(folder).is_some();
        let root = match (named, in_checkpoint) {
            (true, _) => path,
            (false, true) => folder.parent().unwrap_or(folder),
            (false, false) => folder,
        };
        TrainerState {
            root: root.into(),
            only: named,
            seen: Vec::new(),
            read: None,
            entries: Vec::new(),
            ended: false,
            written: BTreeSet::new(),
        }
    }

    /// The file of the run and those of its checkpoints, each with its time.
    fn files(&self) -> Vec<(UnixMillis, PathBuf)> {
        let dated = |path: PathBuf| Some((tail::changed(&path)?, path));
        if self.only {
            return dated(self.root.clone()).into_iter().collect();
        }
        let Ok(entries) = std::fs::read_dir(&self.root) else {
            return Vec::new();
        };
        let folders = entries
            .take(MAX_ENTRIES)
            .filter_map(|entry| Some(entry.ok()?.path()));
        let candidates = folders
            .filter(|path| checkpoint(path).is_some())
            .map(|path| path.join(NAME));
        let all = candidates.chain([self.root.join(NAME)]);
        all.filter_map(dated).collect()
    }
}

/// How many entries two histories have in common, from their beginning.
fn in_common(a: &[Value], b: &[Value]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// A state with its time and its path.
type State = (UnixMillis, PathBuf, Value);

/// The state of the newest attempt. Several may have written their checkpoints into one folder within a minute: the furthest state is
/// that of the newest attempt only where it goes on from the state that was written last. `None` where there is none, or where it
/// is not written to its end: then it is read again when it changes.
fn current(files: &[(UnixMillis, PathBuf)]) -> io::Result<Option<State>> {
    let read = |found: Option<(UnixMillis, &PathBuf)>| -> io::Result<Option<State>> {
        let Some((changed, path)) = found else {
            return Ok(None);
        };
        let bytes = match read_small(path, MAX_BYTES) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes?,
        };
        let state = json::parse(&String::from_utf8_lossy(&bytes));
        Ok(state.map(|state| (changed, path.clone(), state)))
    };
    let all = || files.iter().map(|(changed, path)| (*changed, path));
    let (far, last) = (furthest(all()), newest(all()));
    if far == last {
        return read(far);
    }
    let (Some(far), Some(last)) = (read(far)?, read(last)?) else {
        return Ok(None);
    };
    let goes_on = match (history(&far.2), history(&last.2)) {
        (Some(far), Some(last)) => in_common(far, last) == last.len(),
        _ => true,
    };
    Ok(Some(if goes_on { far } else { last }))
}

fn history(state: &Value) -> Option<&[Value]> {
    state["log_history"].as_array().map(Vec::as_slice)
}

impl Source for TrainerState {
    fn poll(&mut self, items: &mut Vec<Item>) -> io::Result<bool> {
        let files = self.files();
        self.written
            .extend(files.iter().map(|(changed, _)| *changed));
        while self.written.len() > RECENT {
            self.written.pop_first();
        }
        if files == self.seen {
            return Ok(false);
        }
        let Some((changed, path, state)) = current(&files)? else {
            return Ok(false);
        };
        self.seen = files;
        if self.read.as_ref() == Some(&(path.clone(), changed)) {
            return Ok(false);
        }
        self.read = Some((path, changed));
        let config = Facts {
            max_steps: state["max_steps"].as_u64().filter(|n| *n > 0),
            ..Facts::default()
        };
        items.push(Item::Facts(config));
        let Some(entries) = state["log_history"].as_array() else {
            items.push(Item::Trouble("it has no log_history".into()));
            return Ok(false);
        };
        let mut same = in_common(&self.entries, entries);
        // An earlier checkpoint of the same attempt, the newest one being gone: nothing is new.
        if same == entries.len() && same < self.entries.len() {
            return Ok(false);
        }
        if same < self.entries.len() {
            // Another attempt: all entries of the step at which they part are read anew.
            let step = |entry: &Value| entry["step"].as_u64();
            while same > 0 && step(&entries[same - 1]) == step(&entries[same]) {
                same -= 1;
            }
            self.ended = false;
            if same == 0 {
                items.push(Item::Restart);
            }
            let before = entries[..same].last();
            items.push(Item::Began(before.and_then(step).unwrap_or(0)));
        }
        for entry in &entries[same..] {
            let values = json::flatten(entry);
            self.ended |= names::is_summary(&values);
            items.push(Item::Readings {
                step: None,
                t: None,
                values,
            });
        }
        self.entries = entries.clone();
        let done = state["max_steps"]
            .as_u64()
            .is_some_and(|max| max > 0 && state["global_step"].as_u64() >= Some(max));
        if done && !self.ended {
            items.push(Item::Ended(true));
        }
        Ok(false)
    }

    fn changed(&self) -> Option<UnixMillis> {
        self.files().into_iter().map(|(changed, _)| changed).max()
    }

    /// Between two checkpoints nothing is written.
    fn patience(&self) -> Duration {
        let later = self.written.iter().skip(1);
        let distances: Vec<f64> = self
            .written
            .iter()
            .zip(later)
            .map(|(before, after)| after.since(*before).as_secs_f64())
            .collect();
        median(&distances).map_or(SECOND, |usual| {
            SILENT.max(Duration::from_secs_f64(LATE * usual))
        })
    }
}
