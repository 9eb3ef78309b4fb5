//! Commits, damage, leftovers and retention, on a real disk and on one that fails at every operation in turn.

use super::*;
use crate::engine::checkpoint::disk::{FileRecord, RealDisk};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Fails its `fail_at`-th operation and every one after it, as a full disk does.
struct FaultyDisk {
    calls: Arc<AtomicUsize>,
    fail_at: usize,
    cannot_exchange: bool,
}

impl FaultyDisk {
    fn call(&self) -> io::Result<()> {
        let n = self.calls.fetch_add(1, Ordering::Relaxed);
        if n < self.fail_at {
            Ok(())
        } else {
            Err(io::Error::new(io::ErrorKind::StorageFull, "no space left"))
        }
    }
}

impl Disk for FaultyDisk {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.call()?;
        RealDisk.create_dir(path)
    }
    fn write(&self, path: &Path, fill: &Fill<'_>) -> io::Result<FileRecord> {
        if let Err(e) = self.call() {
            // Half a file stands there, as after a short write.
            fs::write(path, b"ha")?;
            return Err(e);
        }
        RealDisk.write(path, fill)
    }
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call()?;
        RealDisk.link(from, to)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.call()?;
        RealDisk.sync_dir(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call()?;
        RealDisk.rename(from, to)
    }
    fn exchange(&self, a: &Path, b: &Path) -> io::Result<()> {
        self.call()?;
        if self.cannot_exchange {
            return Err(io::ErrorKind::Unsupported.into());
        }
        RealDisk.exchange(a, b)
    }
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        // Deleting works on a full disk.
        RealDisk.remove_dir(path)
    }
}

fn parts(text: &str) -> Vec<Part<'_>> {
    ["model", "state"]
        .map(|name| Part {
            name,
            fill: Box::new(move |out| out.write_all(text.as_bytes())),
            frozen: false,
        })
        .into()
}

fn store(dir: &Path) -> Store {
    Store::open(dir, Box::new(RealDisk)).unwrap()
}

fn steps(store: &Store) -> Vec<u64> {
    store.list().iter().map(|f| f.step).collect()
}

#[test]
fn what_was_committed_verifies_and_replaces_its_own_step() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = store(dir.path());
    store.commit(7, &parts("one")).unwrap();
    let (path, manifest) = store.commit(7, &parts("two")).unwrap();
    assert!(path.ends_with("step-000007"));
    assert_eq!(manifest.total_bytes(), 6);
    assert_eq!(fs::read(path.join("model")).unwrap(), b"two");
    assert_eq!(store.verify(7).unwrap(), manifest);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

/// Weights that no step changes, and what changes.
fn adapted(text: &'static str) -> Vec<Part<'static>> {
    let base = Part {
        name: "base",
        fill: Box::new(|out| out.write_all(b"as ever")),
        frozen: true,
    };
    parts(text).into_iter().chain([base]).collect()
}

#[test]
fn checkpoints_share_what_no_step_changes_and_each_is_whole_without_the_others() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let mut store = store(dir.path());
    let base = |step: u64| dir.path().join(name_of(step)).join("base");
    let inode = |step: u64| fs::metadata(base(step)).unwrap().ino();
    for step in 1..=5 {
        // Those of a process before are read back first.
        if step == 4 {
            store = self::store(dir.path());
        }
        store.commit(step, &adapted("any")).unwrap();
    }
    assert_ne!(inode(1), inode(2));
    assert_eq!([inode(3), inode(5)], [inode(1); 2]);
    assert_eq!(inode(4), inode(2));
    let (_, again) = store.commit(5, &adapted("again")).unwrap();
    assert_eq!(inode(5), inode(1), "not that of its neighbour");
    assert_eq!(again.files["base"], store.verify(5).unwrap().files["base"]);
    for step in 1..=4 {
        store.discard(step).unwrap();
    }
    store.verify(5).unwrap();
    assert_eq!(fs::read(base(5)).unwrap(), b"as ever");
}

/// After a resume with a version that names or lays out weights otherwise.
#[test]
fn weights_are_shared_only_beside_the_config_that_they_were_written_with() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let mut store = store(dir.path());
    let written = |config: &'static str| {
        let config = Part {
            name: CONFIG,
            fill: Box::new(move |out| out.write_all(config.as_bytes())),
            frozen: false,
        };
        [config]
            .into_iter()
            .chain(adapted("any"))
            .collect::<Vec<_>>()
    };
    for (step, config) in [(1, "old"), (2, "old"), (3, "new"), (4, "new"), (5, "new")] {
        store.commit(step, &written(config)).unwrap();
    }
    let inode = |step: u64| {
        let base = dir.path().join(name_of(step)).join("base");
        fs::metadata(base).unwrap().ino()
    };
    let inodes = [1, 2, 3, 4, 5].map(inode);
    assert_eq!(inodes[4], inodes[2]);
    assert!(!inodes[..2].contains(&inodes[2]) && !inodes[..3].contains(&inodes[3]));
}

#[test]
fn damage_to_a_shared_file_leaves_the_checkpoint_before_whole_and_is_not_handed_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = store(dir.path());
    for step in 1..=4 {
        store.commit(step, &adapted("any")).unwrap();
        store.verify(step).unwrap();
    }
    fs::write(dir.path().join(name_of(4)).join("base"), "as neve").unwrap();
    let (newest, faults) = store.newest_whole(u64::MAX);
    assert_eq!((newest.unwrap().step, faults.len()), (3, 1));
    for step in 5..=7 {
        store.commit(step, &adapted("any")).unwrap();
        store.verify(step).unwrap();
    }
}

#[test]
fn where_there_are_no_links_frozen_files_are_written() {
    for kind in [io::ErrorKind::Unsupported, io::ErrorKind::TimedOut] {
        let dir = tempfile::tempdir().unwrap();
        let mut first = store(dir.path());
        for step in [1, 2] {
            first.commit(step, &adapted("any")).unwrap();
        }
        // Creating the folder and writing two parts come before.
        let calls = Arc::new(AtomicUsize::new(0));
        let server = FileServer {
            calls,
            at: 3,
            trouble: Trouble::Fails(kind),
        };
        let mut store = Store::open(dir.path(), Box::new(server)).unwrap();
        for step in [1, 2] {
            store.verify(step).unwrap();
        }
        store.commit(3, &adapted("any")).unwrap();
        for step in [1, 2, 3] {
            let base = dir.path().join(name_of(step)).join("base");
            let names = std::os::unix::fs::MetadataExt::nlink(&fs::metadata(base).unwrap());
            assert_eq!(names, 1);
            store.verify(step).unwrap();
        }
    }
}

#[test]
fn a_copy_is_whole_and_leaves_no_debris_where_it_fails() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (path, manifest) = store(from.path()).commit(7, &parts("one")).unwrap();
    let mut copies = store(to.path());
    copies.copy_in(7, &path).unwrap();
    assert_eq!(copies.verify(7).unwrap(), manifest);
    assert_eq!(
        fs::read(to.path().join("step-000007/model")).unwrap(),
        b"one"
    );
    for fail_at in 0..5 {
        let disk = FaultyDisk {
            calls: Arc::new(AtomicUsize::new(0)),
            fail_at,
            cannot_exchange: false,
        };
        let mut faulty = Store::open(to.path(), Box::new(disk)).unwrap();
        assert!(faulty.copy_in(8, &path).is_err(), "{fail_at}");
        assert_eq!(fs::read_dir(to.path()).unwrap().count(), 1, "{fail_at}");
    }
    copies.clear().unwrap();
    assert!(steps(&copies).is_empty());
}

#[test]
fn a_disk_that_fails_at_the_nth_operation_costs_only_the_new_checkpoint() {
    let mut failures = 0;
    for fail_at in 0.. {
        let dir = tempfile::tempdir().unwrap();
        store(dir.path()).commit(10, &parts("old")).unwrap();
        let calls = Arc::new(AtomicUsize::new(0));
        let disk = FaultyDisk {
            calls,
            fail_at,
            cannot_exchange: false,
        };
        let mut faulty = Store::open(dir.path(), Box::new(disk)).unwrap();
        let failed = faulty.commit(20, &parts("new")).is_err();
        let mut reopened = store(dir.path());
        let (newest, faults) = reopened.newest_whole(u64::MAX);
        assert!(faults.is_empty(), "fail_at {fail_at}: {faults:?}");
        let debris = fs::read_dir(dir.path()).unwrap().count() - reopened.list().len();
        assert_eq!(debris, 0, "fail_at {fail_at}");
        if !failed {
            assert_eq!(newest.unwrap().step, 20);
            break;
        }
        failures += 1;
        // The last operation is the fsync after the rename: the new one may then stand, whole.
        assert!(newest.unwrap().step >= 10, "fail_at {fail_at}");
    }
    assert_eq!(
        failures, 7,
        "create, two parts, manifest, fsync, rename, fsync"
    );
}

/// A network file system at one operation: it refuses it, or is slow at it.
#[derive(Debug, Clone, Copy)]
enum Trouble {
    Fails(io::ErrorKind),
    Slow,
}

/// Has one trouble, at its `at`-th operation.
struct FileServer {
    calls: Arc<AtomicUsize>,
    at: usize,
    trouble: Trouble,
}

impl FileServer {
    fn call(&self) -> io::Result<()> {
        if self.calls.fetch_add(1, Ordering::Relaxed) != self.at {
            return Ok(());
        }
        match self.trouble {
            Trouble::Fails(kind) => Err(kind.into()),
            Trouble::Slow => {
                crate::base::clock::pause(std::time::Duration::from_millis(30));
                Ok(())
            }
        }
    }
}

impl Disk for FileServer {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.call()?;
        RealDisk.create_dir(path)
    }
    fn write(&self, path: &Path, fill: &Fill<'_>) -> io::Result<FileRecord> {
        // The answer to the last request is lost: the file is there, whole or not.
        let written = RealDisk.write(path, fill);
        self.call()?;
        written
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.call()?;
        RealDisk.sync_dir(path)
    }
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        // As below: the link is there.
        RealDisk.link(from, to)?;
        self.call()
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        // As NFS does: the rename was done, and its answer is lost.
        RealDisk.rename(from, to)?;
        self.call()
    }
    fn exchange(&self, a: &Path, b: &Path) -> io::Result<()> {
        self.call()?;
        RealDisk.exchange(a, b)
    }
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.call()?;
        RealDisk.remove_dir(path)
    }
}

#[test]
fn a_file_server_with_one_trouble_costs_at_most_that_save_and_the_next_one_succeeds() {
    use io::ErrorKind::{Interrupted, Other, QuotaExceeded, StaleNetworkFileHandle, TimedOut};
    let failures = [
        StaleNetworkFileHandle,
        Interrupted,
        TimedOut,
        QuotaExceeded,
        Other,
    ];
    let troubles = failures
        .map(Trouble::Fails)
        .into_iter()
        .chain([Trouble::Slow]);
    for trouble in troubles {
        for at in 0..16 {
            let dir = tempfile::tempdir().unwrap();
            store(dir.path()).commit(10, &parts("old")).unwrap();
            let server = FileServer {
                calls: Arc::default(),
                at,
                trouble,
            };
            // Clearing debris is an operation too: a start that meets the trouble is tried again.
            let Ok(mut served) = Store::open(dir.path(), Box::new(server)) else {
                continue;
            };
            let first = served.commit(20, &parts("new"));
            if matches!(trouble, Trouble::Slow) {
                assert!(first.is_ok(), "{trouble:?} at {at}: {first:?}");
            }
            assert!(served.verify(10).is_ok(), "{trouble:?} at {at}");
            // What was acknowledged is there; what was not, is there whole or not at all.
            let (newest, faults) = served.newest_whole(u64::MAX);
            assert!(faults.is_empty(), "{trouble:?} at {at}: {faults:?}");
            assert!(newest.unwrap().step >= if first.is_ok() { 20 } else { 10 });
            let second = served.commit(20, &parts("again"));
            let third = served.commit(30, &parts("next"));
            let failed = [first.is_err(), second.is_err(), third.is_err()];
            let failed = failed.iter().filter(|failed| **failed).count();
            assert!(failed <= 1, "{trouble:?} at {at}");
            if third.is_err() {
                served.commit(30, &parts("next")).unwrap();
            }
            drop(served);
            let mut reopened = store(dir.path());
            assert_eq!(reopened.newest_whole(u64::MAX).0.unwrap().step, 30);
            let debris = fs::read_dir(dir.path()).unwrap().count() - reopened.list().len();
            assert_eq!(debris, 0, "{trouble:?} at {at}");
        }
    }
}

#[test]
fn a_second_save_of_a_step_never_costs_the_first() {
    for cannot_exchange in [false, true] {
        let mut whole = false;
        for fail_at in 0..20 {
            let dir = tempfile::tempdir().unwrap();
            store(dir.path()).commit(7, &parts("one")).unwrap();
            let disk = FaultyDisk {
                calls: Arc::default(),
                fail_at,
                cannot_exchange,
            };
            let mut faulty = Store::open(dir.path(), Box::new(disk)).unwrap();
            whole = faulty.commit(7, &parts("two")).is_ok();
            let mut reopened = store(dir.path());
            let (newest, faults) = reopened.newest_whole(u64::MAX);
            assert!(faults.is_empty(), "fail_at {fail_at}: {faults:?}");
            assert_eq!(newest.unwrap().step, 7, "fail_at {fail_at}");
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        }
        assert!(whole);
    }
}

#[test]
fn a_kill_between_two_renames_is_undone_at_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let path = store(dir.path()).commit(7, &parts("one")).unwrap().0;
    // What a file system without an exchange leaves behind: the old one aside, the new one not yet in its place.
    fs::rename(&path, dir.path().join(".old-step-000007")).unwrap();
    fs::create_dir(dir.path().join(".tmp-step-000007")).unwrap();
    assert!(store(dir.path()).verify(7).is_ok());
    // And one step later: the new one is there, the old one is debris.
    fs::create_dir(dir.path().join(".old-step-000007")).unwrap();
    assert!(store(dir.path()).verify(7).is_ok());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn damage_is_found_named_and_passed_over() {
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 5] = [
        ("SHA-256", |p| {
            let mut bytes = fs::read(p).unwrap();
            bytes[1] ^= 0x10;
            fs::write(p, bytes).unwrap();
        }),
        ("2 bytes, the manifest says 3", |p| {
            fs::write(p, b"ne").unwrap()
        }),
        ("No such file", |p| fs::remove_file(p).unwrap()),
        ("0 bytes", |p| fs::write(p, b"").unwrap()),
        ("SHA-256", |p| fs::write(p, [0; 3]).unwrap()),
    ];
    for (word, damage) in damages {
        for file in ["model", "state"] {
            let dir = tempfile::tempdir().unwrap();
            let mut store = store(dir.path());
            store.commit(1, &parts("old")).unwrap();
            let (path, _) = store.commit(2, &parts("new")).unwrap();
            damage(&path.join(file));
            let (newest, faults) = store.newest_whole(u64::MAX);
            assert_eq!(newest.unwrap().step, 1);
            let message = faults[0].to_string();
            assert!(
                message.contains(file) && message.contains(word),
                "{message}"
            );
        }
    }
}

#[test]
fn debris_of_a_kill_is_cleared_and_never_taken_for_a_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    for name in [
        ".tmp-step-000009",
        ".del-step-000003",
        ".tmp-preflight",
        "step-12",
        "step-abc",
        "notes",
    ] {
        fs::create_dir(dir.path().join(name)).unwrap();
    }
    // Whatever has such a name goes, a file too.
    fs::write(dir.path().join(".tmp-x"), "").unwrap();
    let store = store(dir.path());
    assert!(steps(&store).is_empty());
    assert!(!dir.path().join(".tmp-x").exists());
    assert!(!dir.path().join(".tmp-step-000009").exists());
    assert!(dir.path().join("notes").exists());
}

#[test]
fn retention_keeps_the_newest_whole_ones_and_the_best() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = store(dir.path());
    for step in [1, 2, 3, 4, 5, 6] {
        store.commit(step, &parts("x")).unwrap();
    }
    fs::write(dir.path().join("step-000006/model"), "y").unwrap();
    store.prune(2, &[2]).unwrap();
    assert_eq!(
        steps(&store),
        [6, 5, 4, 2],
        "6 is broken and does not count"
    );
    store.prune(9, &[]).unwrap();
    assert_eq!(
        steps(&store),
        [6, 5, 4, 2],
        "nothing is deleted while fewer are whole"
    );
    store.prune(2, &[]).unwrap();
    assert_eq!(steps(&store), [6, 5, 4]);
    // Another run begins from 5: it stays for that one, and is passed over here until nobody needs it.
    assert_eq!(store.retire_from(5, &[5].into()).unwrap(), [5]);
    assert_eq!((steps(&store), store.abandoned()), (vec![4], vec![5]));
    assert!(!store.has_checkpoint(5) && store.folder().join(name_of(5)).is_dir());
    assert_eq!(store.newest_whole(9).0.map(|found| found.step), Some(4));
    store.prune(2, &[5]).unwrap();
    assert_eq!(store.abandoned(), [5]);
    store.prune(2, &[]).unwrap();
    assert!(!store.folder().join(name_of(5)).exists());
}
