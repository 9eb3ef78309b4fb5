//! Names of files that are not complete yet (`.tmp-…`) or being deleted (`.del-…`), and which of them are leftovers.

use super::folder_of;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// No process pauses for this long while writing a file.
const SURELY_IDLE: Duration = Duration::from_mins(10);

/// A temporary name next to `path` for what will be renamed to it. Leftovers of killed processes for the same `path` are removed.
///
/// # Errors
/// `path` has no file name.
pub fn temporary_sibling(path: &Path) -> io::Result<PathBuf> {
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path has no file name"))?;
    let name = short(name);
    let folder = folder_of(path);
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let file = entry.file_name();
        let same = file.to_str().and_then(temporary).map(|(_, of)| of == name);
        if same == Some(true) && is_stale_temporary(&entry) {
            let _ = fs::remove_file(entry.path());
        }
    }
    // Threads of one process may write the same file at once.
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let pid = std::process::id();
    Ok(path.with_file_name(format!(".tmp-{pid}.{number}-{name}")))
}

/// The part of a temporary name that stands for `name`: the whole name, or its beginning and a hash if the prefix would make it
/// exceed the limit of file systems (255 bytes).
fn short(name: &std::ffi::OsStr) -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    const MOST: usize = 255 - ".tmp-4294967295.18446744073709551615-".len();
    let text = name.to_string_lossy();
    if text.len() <= MOST {
        return text.into_owned();
    }
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    let hash = format!("-{:016x}", hasher.finish());
    format!(
        "{}{hash}",
        &text[..text.floor_char_boundary(MOST - hash.len())]
    )
}

/// The process that writes under a name of [`temporary_sibling`], and the final name: `.tmp-PID.NUMBER-NAME`.
fn temporary(name: &str) -> Option<(rustix::process::Pid, &str)> {
    let (id, of) = name.strip_prefix(".tmp-")?.split_once('-')?;
    let pid = id.split_once('.').map_or(id, |(pid, _)| pid);
    let pid = rustix::process::Pid::from_raw(pid.parse().ok()?)?;
    Some((pid, of))
}

/// Whether a name is one of [`temporary_sibling`]. Such files may appear even in a locked folder.
pub fn is_temporary(name: &str) -> bool {
    temporary(name).is_some()
}

/// Whether `entry` has such a name and its process is gone. A recently written file may belong to a process of
/// another machine that shares the folder.
pub fn is_stale_temporary(entry: &fs::DirEntry) -> bool {
    let name = entry.file_name();
    let Some((pid, _)) = name.to_str().and_then(temporary) else {
        return false;
    };
    let gone = rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH);
    let idle = entry.metadata().and_then(|meta| meta.modified());
    let idle = idle.ok().and_then(|at| at.elapsed().ok());
    gone && idle.is_some_and(|idle| idle > SURELY_IDLE)
}

/// Prefix of the name of a folder that is being deleted.
pub const DELETED: &str = ".del-";

/// Deletes a folder with its contents. It is renamed first, so that a partly deleted folder is never mistaken for a complete one.
///
/// # Errors
/// The disk fails; the remainder is called `.del-NAME`.
pub fn remove_folder(path: &Path) -> io::Result<()> {
    remove_held_folder(path, ())
}

/// [`remove_folder`] of one that is kept from others by what lies in it: a lock, which is held until the folder has lost its name
/// and no longer. Over NFS a file that is open while it is deleted stays in its folder under another name, and so does the folder.
///
/// # Errors
/// As there.
pub fn remove_held_folder<T>(path: &Path, held: T) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let doomed = match name.starts_with(DELETED) {
        true => path.to_path_buf(),
        false => {
            let doomed = path.with_file_name(format!("{DELETED}{name}"));
            fs::rename(path, &doomed)?;
            doomed
        }
    };
    drop(held);
    match fs::remove_dir_all(&doomed) {
        // Without its name anybody may clear it away.
        Err(e) if e.kind() == io::ErrorKind::NotFound && doomed != path => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use super::super::write_atomic;
    use super::*;
    use std::fs::File;

    #[test]
    fn leftovers_of_killed_processes_are_removed_and_live_files_stay() {
        let dir = tempfile::tempdir().unwrap();
        // Beyond Linux's largest process id.
        let (dead, mine) = (i32::MAX, std::process::id());
        let make = |name: String, old: bool| {
            let file = File::create(dir.path().join(&name)).unwrap();
            if old {
                let now = file.metadata().unwrap().modified().unwrap();
                file.set_modified(now - 2 * SURELY_IDLE).unwrap();
            }
            name
        };
        make(format!(".tmp-{dead}-a.json"), true);
        make(format!(".tmp-{dead}.7-a.json"), true);
        let mut kept = [
            make(format!(".tmp-{}-a.json", dead - 1), false),
            make(format!(".tmp-{dead}-b.json"), true),
            make(format!(".tmp-{mine}.0-a.jsonl"), true),
            make(".tmp-x-a.json".into(), true),
            "a.json".into(),
        ];
        write_atomic(&dir.path().join("a.json"), b"").unwrap();
        let names = fs::read_dir(dir.path()).unwrap();
        let mut names: Vec<String> = names
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        kept.sort();
        assert_eq!(names, kept);
    }

    #[test]
    fn threads_that_write_one_file_do_not_collide() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        let names = [(); 2].map(|()| temporary_sibling(&path).unwrap());
        assert_ne!(names[0], names[1]);
        std::thread::scope(|scope| {
            for byte in [b'a', b'b', b'c', b'd'] {
                let path = &path;
                let whole = move || (0..50).try_for_each(|_| write_atomic(path, &[byte; 4096]));
                scope.spawn(move || whole().unwrap());
            }
        });
        let left = fs::read(&path).unwrap();
        assert!(left.len() == 4096 && left.iter().all(|byte| *byte == left[0]));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_is_renamed_before_it_is_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("a");
        fs::create_dir_all(folder.join("b")).unwrap();
        remove_folder(&folder).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        // The remainder of a killed deletion is deleted under its current name.
        let half = dir.path().join(".del-a");
        fs::create_dir(&half).unwrap();
        remove_folder(&half).unwrap();
        assert!(!half.exists());
        // If it cannot be renamed, nothing of it is deleted.
        fs::create_dir_all(folder.join("b")).unwrap();
        fs::write(&half, "").unwrap();
        remove_folder(&folder).unwrap_err();
        assert!(folder.join("b").is_dir());
    }

    /// Over NFS the run was gone and `rm` failed all the same: its own lock lay in the folder.
    #[test]
    fn what_holds_a_folder_is_let_go_between_its_name_and_its_files() {
        struct Held<'a>(&'a Path, &'a std::cell::Cell<u32>);
        impl Drop for Held<'_> {
            fn drop(&mut self) {
                let is_whole = self.0.join(".del-a/lock").is_file();
                assert!(is_whole && !self.0.join("a").exists());
                self.1.set(self.1.get() + 1);
            }
        }
        let (dir, released) = (tempfile::tempdir().unwrap(), std::cell::Cell::new(0));
        let folder = dir.path().join("a");
        fs::create_dir(&folder).unwrap();
        File::create(folder.join("lock")).unwrap();
        remove_held_folder(&folder, Held(dir.path(), &released)).unwrap();
        assert_eq!(released.get(), 1);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
