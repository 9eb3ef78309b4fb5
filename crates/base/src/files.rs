//! Atomic files, exclusive locks, private folders, and free disk space.

mod temporary;

pub use temporary::{
    DELETED, is_stale_temporary, is_temporary, remove_folder, remove_held_folder, temporary_sibling,
};

use crate::text::shown;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Writes `bytes` to `path` through a temporary file: readers see the old contents or the new ones, never a mix.
/// The file and its folder are fsynced.
///
/// # Errors
/// The folder does not exist or is not writable; the disk is full or fails. The previous file at `path` is kept.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = temporary_sibling(path)?;
    let result = write_synced(&temporary, bytes).and_then(|()| fs::rename(&temporary, path));
    if result.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    result?;
    sync_dir(folder_of(path))
}

/// Writes `bytes` to a file that must not exist yet, with these permissions (less the umask). On failure nothing is left, so that
/// a full disk does not prevent another attempt.
///
/// # Errors
/// The name is taken; or the disk fails.
pub fn write_new(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    if fs::symlink_metadata(path).is_ok() {
        return Err(rustix::io::Errno::EXIST.into());
    }
    let temporary = temporary_sibling(path)?;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(mode);
    let result = open_plain_with(&mut options, &temporary)
        .and_then(|file| fill(file, bytes))
        .and_then(|()| rename_new(&temporary, path));
    if result.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    result?;
    sync_dir(folder_of(path))
}

/// Renames without replacing an existing file.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use rustix::io::Errno;
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        // Not every file system supports it; a hard link does not replace anything either.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            fs::hard_link(from, to)?;
            fs::remove_file(from)
        }
        Err(e) => Err(e.into()),
    }
}

/// Why a private folder is not available.
#[derive(Debug, thiserror::Error)]
pub enum PrivateDirError {
    #[error(
        "{dir} is accessible to others ({why}); sockets need a private directory: remove it, or chmod 700 it if it is yours"
    )]
    Unsafe { dir: PathBuf, why: String },
    #[error("{dir}: {error}")]
    Io { dir: PathBuf, error: io::Error },
}

/// Creates a folder (mode 0700) or checks that an existing one is ours and closed to other users. A symbolic
/// link is rejected: its creator controls the target.
///
/// # Errors
/// It cannot be created, or it is accessible to others.
pub fn private_dir(dir: &Path) -> Result<(), PrivateDirError> {
    let io_error = |error| PrivateDirError::Io {
        dir: dir.into(),
        error,
    };
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(io_error)?;
    let meta = fs::symlink_metadata(dir).map_err(io_error)?;
    let why = if !meta.file_type().is_dir() {
        "it is not a directory".to_string()
    } else if meta.uid() != rustix::process::getuid().as_raw() {
        format!("it belongs to user {}", meta.uid())
    } else if meta.mode() & 0o077 != 0 {
        format!("its mode is {:o}", meta.mode() & 0o777)
    } else {
        return Ok(());
    };
    let dir = dir.into();
    Err(PrivateDirError::Unsafe { dir, why })
}

/// The folder that holds `path`.
fn folder_of(path: &Path) -> &Path {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// Writes and fsyncs a new file. A failed fsync fails this attempt and is never retried on the same file.
///
/// # Errors
/// The file cannot be created, written or synced.
pub fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    fill(File::create(path)?, bytes)
}

fn fill(mut file: File, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)?;
    file.sync_all()
}

/// Whether a file error is caused by the name; otherwise by the machine: disk, permissions, limits.
pub fn is_path_error(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::NotFound
            | Kind::AlreadyExists
            | Kind::NotADirectory
            | Kind::IsADirectory
            | Kind::InvalidInput
            | Kind::InvalidFilename
    )
}

/// Cause and fix for a file that could not be written.
pub fn not_written(path: &Path, error: &io::Error) -> (String, String) {
    use io::ErrorKind as Kind;
    let (file, folder) = (shown(path), folder_of(path));
    match error.kind() {
        Kind::AlreadyExists => (
            format!("{file} already exists"),
            "choose another name: nothing is written over".into(),
        ),
        Kind::IsADirectory => (format!("{file} is a folder"), "name a file in it".into()),
        // For example /proc.
        Kind::NotFound if folder.is_dir() => (
            format!(
                "{file} cannot be written: {} takes no new files",
                shown(folder)
            ),
            "name another folder".into(),
        ),
        Kind::NotFound => (
            format!("{file} cannot be written: its folder does not exist"),
            format!("mkdir -p {}, or name another folder", shown(folder)),
        ),
        Kind::NotADirectory => {
            let above = path.ancestors().find(|above| above.is_file());
            (
                format!(
                    "{file} cannot be written: {} is a file, not a folder",
                    shown(above.unwrap_or(folder))
                ),
                "name another folder".into(),
            )
        }
        _ => {
            let (cause, fix) = of_the_disk(folder, error);
            (format!("{file} cannot be written: {cause}"), fix)
        }
    }
}

/// The same for a folder that could not be created.
pub fn not_made(path: &Path, error: &io::Error) -> (String, String) {
    match error.kind() {
        // Of a name that is too long the system says so.
        io::ErrorKind::InvalidFilename if error.raw_os_error().is_none() => {
            (format!("{}: {error}", shown(path)), "rename it".into())
        }
        io::ErrorKind::AlreadyExists => (
            format!("{} is a file, not a folder", shown(path)),
            "name another folder".into(),
        ),
        _ => not_written(path, error),
    }
}

/// The same for a file that could not be read.
pub fn not_read(path: &Path, error: &io::Error) -> (String, String) {
    use io::ErrorKind as Kind;
    let file = shown(path);
    match error.kind() {
        Kind::NotFound => (format!("{file} does not exist"), "name another file".into()),
        _ if path.is_dir() => (format!("{file} is a folder"), "name a file in it".into()),
        Kind::NotADirectory => {
            let above = path.ancestors().find(|above| above.is_file());
            (
                format!(
                    "{file} does not exist: {} is a file, not a folder",
                    shown(above.unwrap_or(path))
                ),
                "name another file".into(),
            )
        }
        Kind::InvalidData => (
            format!("{file} cannot be read: {error}"),
            "a file of plain text in UTF-8 is needed".into(),
        ),
        Kind::InvalidInput => (
            format!("{file} cannot be read: {error}"),
            "name a plain file".into(),
        ),
        _ => {
            let (cause, fix) = of_the_disk(path, error);
            (format!("{file} cannot be read: {cause}"), fix)
        }
    }
}

/// The same for a file or folder that could not be deleted.
pub fn not_deleted(path: &Path, error: &io::Error) -> (String, String) {
    let (cause, fix) = of_the_disk(folder_of(path), error);
    (format!("{} cannot be deleted: {cause}", shown(path)), fix)
}

/// Cause and fix of an error that is not caused by a name.
fn of_the_disk(place: &Path, error: &io::Error) -> (String, String) {
    use io::ErrorKind as Kind;
    let mut above = place.ancestors().filter(|at| !at.as_os_str().is_empty());
    let place = shown(above.find(|at| at.exists()).unwrap_or(Path::new(".")));
    let (cause, fix) = match error.kind() {
        Kind::PermissionDenied => ("permission denied", "check the permissions of"),
        Kind::ReadOnlyFilesystem => (
            "its disk is read-only",
            "check how the disk is mounted that holds",
        ),
        Kind::StorageFull => ("the disk is full", "make room on the disk of"),
        Kind::QuotaExceeded => ("the quota is used up", "make room on the disk of"),
        _ => return (error.to_string(), format!("check the disk of {place}")),
    };
    (cause.into(), format!("{fix} {place}"))
}

/// Opening a pipe blocks until its other end is open, unless it is non-blocking.
fn no_wait() -> i32 {
    rustix::fs::OFlags::NONBLOCK.bits().cast_signed()
}

/// Opens a regular file for reading. A pipe or a device would block its reader, or never end.
///
/// # Errors
/// It is not a regular file, or it cannot be opened.
pub fn open_plain(path: impl AsRef<Path>) -> io::Result<File> {
    open_plain_with(OpenOptions::new().read(true), path)
}

/// The same with options, such as append or create.
///
/// # Errors
/// As [`open_plain`].
pub fn open_plain_with(options: &mut OpenOptions, path: impl AsRef<Path>) -> io::Result<File> {
    let other = || io::Error::new(io::ErrorKind::InvalidInput, "it is not a plain file");
    let opened = options.custom_flags(no_wait()).open(path);
    let file = opened.map_err(|e| match e.raw_os_error() {
        // A socket, or a pipe without a reader.
        Some(code) if code == rustix::io::Errno::NXIO.raw_os_error() => other(),
        Some(code) if code == rustix::io::Errno::ISDIR.raw_os_error() => other(),
        _ => e,
    })?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(other()),
    }
}

/// Reads a whole regular file.
///
/// # Errors
/// As [`open_plain`]; or it cannot be read.
pub fn read_plain(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let mut file = open_plain(path)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether an error says that there is nothing of that name, or that nothing can have it. All others, such as a lack of
/// permission or of file handles, say nothing of what is there.
pub fn is_absent(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidFilename, NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory | InvalidFilename)
}

/// The same for text.
///
/// # Errors
/// Also if it is not UTF-8.
pub fn read_plain_text(path: impl AsRef<Path>) -> io::Result<String> {
    text(read_plain(path)?)
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
}

/// Reads a file that should be small.
///
/// # Errors
/// It is not a regular file or has more than `limit` bytes.
pub fn read_small(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_plain(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        let why = format!("it has more than {limit} bytes, too many for a file of its kind");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    Ok(bytes)
}

/// The same for text.
///
/// # Errors
/// Also if it is not UTF-8.
pub fn read_small_text(path: &Path, limit: u64) -> io::Result<String> {
    text(read_small(path, limit)?)
}

/// Makes renames and new files inside `dir` durable.
///
/// # Errors
/// The folder cannot be opened, or the disk fails.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// An exclusive lock, held until dropped or until the process dies.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Lock {
    /// Identifies the locked file, whatever its current name.
    ///
    /// # Errors
    /// The system does not describe the open file.
    pub fn identity(&self) -> io::Result<Identity> {
        Ok(Identity::of(&self.file.metadata()?))
    }
}

/// Identifies a file or folder: its device and inode numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity(u64, u64);

impl Identity {
    fn of(meta: &fs::Metadata) -> Identity {
        use std::os::unix::fs::MetadataExt;
        Identity(meta.dev(), meta.ino())
    }

    /// The identity of what is at `path`; for a symbolic link, of the link itself.
    ///
    /// # Errors
    /// Nothing exists at `path`, or its folder may not be searched.
    pub fn at(path: &Path) -> io::Result<Identity> {
        Ok(Identity::of(&fs::symlink_metadata(path)?))
    }

    /// Sixteen hexadecimal digits, for file names.
    pub fn short(self) -> String {
        // Multipliers of MurmurHash3's finalizer: neighbouring inodes get clearly different names.
        let mixed =
            self.0.wrapping_mul(0xff51_afd7_ed55_8ccd) ^ self.1.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        format!("{mixed:016x}")
    }
}

/// Takes the lock on `path` (created if absent); `Ok(None)` if another holder is alive.
///
/// # Errors
/// The file cannot be created or opened, or its file system has no locks.
pub fn try_lock(path: &Path) -> io::Result<Option<Lock>> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .custom_flags(no_wait())
        .open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(Lock { file })),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(e)) => Err(e),
    }
}

/// Looking at a lock ([`is_locked`]) takes it for an instant, so a refused one is asked for this often.
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// [`try_lock`] beside processes that only look whether the lock is held; `Ok(None)` if one keeps it.
///
/// # Errors
/// As there.
pub fn try_lock_beside_viewers(path: &Path) -> io::Result<Option<Lock>> {
    for _ in 1..LOCK_TRIES {
        if let Some(lock) = try_lock(path)? {
            return Ok(Some(lock));
        }
        crate::clock::pause(LOCK_PAUSE);
    }
    try_lock(path)
}

/// True while another process (or another handle of this one) holds the lock on `path`, and where a network file system does
/// not answer: nothing is known of the lock then, and what may be alive is not to be taken for dead.
pub fn is_locked(path: &Path) -> bool {
    let locked = open_to_look(path).map(|file| file.try_lock_shared());
    match locked {
        Ok(Ok(())) => false,
        Ok(Err(fs::TryLockError::WouldBlock)) => true,
        Ok(Err(fs::TryLockError::Error(e))) | Err(e) => is_no_answer(&e),
    }
}

/// Opens a lock file to see whether it is locked. NFSv4 gives shared locks to readers alone (EBADF otherwise), and exclusive ones
/// to writers.
fn open_to_look(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(no_wait())
        .open(path)
}

/// Whether a file system only failed to answer, which says nothing about the file.
fn is_no_answer(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = Errno::from_io_error(error);
    matches!(
        errno,
        Some(Errno::IO | Errno::TIMEDOUT | Errno::STALE | Errno::INTR)
    )
}

/// Bytes available to an unprivileged process on the file system of `path`.
///
/// # Errors
/// Nothing exists at `path`, or its file system does not report it.
pub fn free_space(path: &Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(path)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

#[cfg(test)]
mod tests;
