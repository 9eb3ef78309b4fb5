//! Power loss, by enumeration: every operation of several saves is recorded, and after each of them every state is built that
//! a disk may have after the power loss. Synced data is there; of unsynced data, any part may be. In all of them the loader
//! must find the newest acknowledged checkpoint, complete, or a newer complete one.

use super::*;
use crate::engine::checkpoint::disk::{FileRecord, RealDisk};
use std::collections::BTreeMap;
use std::fs;
use std::sync::{Arc, Mutex};

/// One change of a folder's entries; a folder keeps its number whatever it is called.
#[derive(Debug, Clone)]
enum Change {
    Make {
        name: String,
        dir: usize,
    },
    /// The content is synced with the file; only the entry is in doubt.
    Write {
        dir: usize,
        name: String,
        bytes: Vec<u8>,
    },
    Rename {
        from: String,
        to: String,
        dir: usize,
    },
    Exchange {
        a: String,
        b: String,
        dirs: [usize; 2],
    },
    Unlink {
        dir: usize,
        name: String,
    },
    Remove {
        name: String,
        dir: usize,
    },
    /// Makes the entries of a folder durable; `None` is the folder of all checkpoints.
    Sync(Option<usize>),
    /// The save returned: from now on this checkpoint is acknowledged.
    Acknowledge(u64),
}

#[derive(Debug, Default)]
struct Tape {
    changes: Vec<Change>,
    /// Name → number of the folders as they are now.
    now: BTreeMap<String, usize>,
    made: usize,
}

/// Writes through to a real folder and keeps a record.
#[derive(Clone)]
struct Recorder(Arc<Mutex<Tape>>);

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

impl Disk for Recorder {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let tape = &mut *self.0.lock().unwrap();
        tape.made += 1;
        let (name, dir) = (name(path), tape.made);
        tape.now.insert(name.clone(), dir);
        tape.changes.push(Change::Make { name, dir });
        RealDisk.create_dir(path)
    }
    fn write(&self, path: &Path, fill: &Fill<'_>) -> io::Result<FileRecord> {
        let record = RealDisk.write(path, fill)?;
        let tape = &mut *self.0.lock().unwrap();
        let dir = tape.now[&name(path.parent().unwrap())];
        let bytes = crate::base::files::read_plain(path)?;
        let name = name(path);
        tape.changes.push(Change::Write { dir, name, bytes });
        Ok(record)
    }
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.link(from, to)?;
        // Its content was synced with the first name; the second one is in doubt.
        let tape = &mut *self.0.lock().unwrap();
        let dir = tape.now[&name(to.parent().unwrap())];
        let bytes = crate::base::files::read_plain(to)?;
        let name = name(to);
        tape.changes.push(Change::Write { dir, name, bytes });
        Ok(())
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let tape = &mut *self.0.lock().unwrap();
        let dir = tape.now.get(&name(path)).copied();
        tape.changes.push(Change::Sync(dir));
        Ok(())
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)?;
        let tape = &mut *self.0.lock().unwrap();
        let (from, to) = (name(from), name(to));
        let dir = tape.now.remove(&from).unwrap();
        tape.now.insert(to.clone(), dir);
        tape.changes.push(Change::Rename { from, to, dir });
        Ok(())
    }
    fn exchange(&self, a: &Path, b: &Path) -> io::Result<()> {
        RealDisk.exchange(a, b)?;
        let tape = &mut *self.0.lock().unwrap();
        let (a, b) = (name(a), name(b));
        let dirs = [tape.now[&a], tape.now[&b]];
        tape.now.insert(a.clone(), dirs[1]);
        tape.now.insert(b.clone(), dirs[0]);
        tape.changes.push(Change::Exchange { a, b, dirs });
        Ok(())
    }
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let tape = &mut *self.0.lock().unwrap();
        let folder = name(path);
        let dir = tape.now.remove(&folder).unwrap();
        for entry in fs::read_dir(path)?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            tape.changes.push(Change::Unlink { dir, name });
        }
        tape.changes.push(Change::Remove { name: folder, dir });
        RealDisk.remove_dir(path)
    }
}

/// What a disk shows: folders by name, files by folder.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    names: BTreeMap<String, usize>,
    files: BTreeMap<(usize, String), Vec<u8>>,
}

impl State {
    /// Applies one change, as far as what it builds on is there.
    fn apply(&mut self, change: &Change) {
        let is = |names: &BTreeMap<String, usize>, name: &str, dir| names.get(name) == Some(&dir);
        match change {
            Change::Make { name, dir } => {
                self.names.insert(name.clone(), *dir);
            }
            Change::Write { dir, name, bytes } => {
                self.files.insert((*dir, name.clone()), bytes.clone());
            }
            Change::Rename { from, to, dir } => {
                if is(&self.names, from, *dir) {
                    self.names.remove(from);
                    self.names.insert(to.clone(), *dir);
                }
            }
            Change::Exchange { a, b, dirs } => {
                if is(&self.names, a, dirs[0]) && is(&self.names, b, dirs[1]) {
                    self.names.insert(a.clone(), dirs[1]);
                    self.names.insert(b.clone(), dirs[0]);
                }
            }
            Change::Unlink { dir, name } => {
                self.files.remove(&(*dir, name.clone()));
            }
            Change::Remove { name, dir } => {
                if is(&self.names, name, *dir) {
                    self.names.remove(name);
                }
            }
            Change::Sync(_) | Change::Acknowledge(_) => {}
        }
    }

    fn build(&self, folder: &Path) {
        for (name, dir) in &self.names {
            let path = folder.join(name);
            fs::create_dir(&path).unwrap();
            for ((of, file), bytes) in &self.files {
                if of == dir {
                    fs::write(path.join(file), bytes).unwrap();
                }
            }
        }
    }
}

/// Which folder's entries a change touches; `None` is the folder of all checkpoints.
fn place(change: &Change) -> Option<usize> {
    match change {
        Change::Write { dir, .. } | Change::Unlink { dir, .. } => Some(*dir),
        _ => None,
    }
}

/// Every state that may be found when the power goes after `changes`.
fn states(changes: &[Change]) -> std::collections::BTreeSet<State> {
    let mut open: Vec<usize> = Vec::new();
    for (at, change) in changes.iter().enumerate() {
        match change {
            Change::Sync(synced) => open.retain(|i| place(&changes[*i]) != *synced),
            Change::Acknowledge(_) => {}
            _ => open.push(at),
        }
    }
    assert!(open.len() < 16, "too many to enumerate");
    let mut all = std::collections::BTreeSet::new();
    for chosen in 0..1_u32 << open.len() {
        let mut state = State::default();
        for (at, change) in changes.iter().enumerate() {
            let doubtful = open.iter().position(|i| *i == at);
            if doubtful.is_none_or(|bit| chosen & (1 << bit) != 0) {
                state.apply(change);
            }
        }
        all.insert(state);
    }
    all
}

fn parts(text: &'static str) -> Vec<Part<'static>> {
    let of = |(name, text): (_, &'static str)| -> Part<'static> {
        Part {
            name,
            fill: Box::new(move |out| out.write_all(text.as_bytes())),
            frozen: name == "base",
        }
    };
    [("base", "as ever"), ("model", text), ("state", text)]
        .map(of)
        .into()
}

#[test]
fn after_a_power_loss_at_any_point_the_newest_acknowledged_checkpoint_is_there() {
    let tape = Arc::new(Mutex::new(Tape::default()));
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path(), Box::new(Recorder(tape.clone()))).unwrap();
    // Steps 1 to 3, the second one twice, and the first one pruned at the end. The third one's base is linked.
    for (step, text) in [(1, "a"), (2, "b"), (2, "c"), (3, "d")] {
        store.commit(step, &parts(text)).unwrap();
        store.verify(step).unwrap();
        tape.lock().unwrap().changes.push(Change::Acknowledge(step));
    }
    let links = std::fs::metadata(dir.path().join("step-000003/base")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::nlink(&links), 2);
    store.prune(2, &[]).unwrap();
    let changes = std::mem::take(&mut tape.lock().unwrap().changes);
    let mut seen = std::collections::BTreeSet::new();
    for end in 0..=changes.len() {
        let acknowledged = changes[..end].iter().rev().find_map(|change| match change {
            Change::Acknowledge(step) => Some(*step),
            _ => None,
        });
        for state in states(&changes[..end]) {
            if !seen.insert((acknowledged, state.clone())) {
                continue;
            }
            let dir = tempfile::tempdir().unwrap();
            state.build(dir.path());
            let mut store = Store::open(dir.path(), Box::new(RealDisk)).unwrap();
            let (newest, _) = store.newest_whole(u64::MAX);
            let found = newest.map(|found| found.step);
            assert!(
                found >= acknowledged,
                "after {end} of {changes:#?}: {found:?} instead of {acknowledged:?}: {state:?}"
            );
        }
    }
    assert!(seen.len() > 100, "{} states", seen.len());
}
