//! A run's directory: its files, how it is created, and who may write to it.

use super::header::{FORMAT, Header, Holder, Parent};
use super::id::new_id;
use super::recovered;
use crate::base::clock::Clock;
use crate::base::files::{
    self, Lock, is_locked, read_small_text, remove_held_folder, sync_dir, try_lock_beside_viewers,
    write_atomic, write_synced,
};
use crate::base::paths::check_utf8;
use crate::base::process::{host_name, is_suspended};
use crate::base::ssh::shell_quote;
use crate::base::text::{one_line, shown};
use std::io;
use std::path::{Path, PathBuf};

/// Longest name of a file, and so of a run, in bytes.
const MAX_NAME: usize = 255;
/// Largest `run.json` that is read, in bytes.
const MAX_HEADER: u64 = 1 << 20;
/// Attempts at a free name; a second one is already rare.
const NAME_TRIES: usize = 16;

/// What can be wrong with a run directory.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("{}", .doing.failed(path, error).0)]
    Io {
        doing: FileOperation,
        path: PathBuf,
        error: io::Error,
    },
    #[error("{0} is not a run directory: it has no run.json")]
    NotARun(PathBuf),
    #[error("{path}: run.json is damaged: {why}")]
    Damaged { path: PathBuf, why: String },
    #[error(
        "{path} was made by a newer llmtui ({program}, layout {format}; this program supports {FORMAT}); update llmtui on this machine"
    )]
    Newer {
        path: PathBuf,
        program: String,
        format: u32,
    },
    #[error("{path} is in use by {holder}; `llmtui attach` and `llmtui stop` take that path")]
    Busy { path: PathBuf, holder: Holder },
}

impl RunError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            RunError::Io { doing, path, error } => doing.failed(path, error).1,
            RunError::Damaged { .. } => {
                "restore run.json from a copy of the run; its log, which holds the same, is lost too".into()
            }
            RunError::Busy { holder, .. } => match &holder.elsewhere {
                Some(host) => format!("it trains on {}: run the command there", one_line(host)),
                None => "llmtui runs".into(),
            },
            _ => "llmtui runs".into(),
        }
    }
}

/// What was being done to a file or folder of a run when the system refused it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileOperation {
    Read,
    Write,
    Make,
    Delete,
}

impl FileOperation {
    /// What is wrong, and what to do.
    fn failed(self, path: &Path, error: &io::Error) -> (String, String) {
        let words = match self {
            FileOperation::Read => files::not_read,
            FileOperation::Write => files::not_written,
            FileOperation::Make => files::not_made,
            FileOperation::Delete => files::not_deleted,
        };
        let (what, fix) = words(path, error);
        match error.raw_os_error() {
            Some(_) => (what, fix),
            // A sentence of our own says it.
            None => (format!("{}: {error}", shown(path)), fix),
        }
    }

    fn error(self, path: &Path, error: io::Error) -> RunError {
        RunError::Io {
            doing: self,
            path: path.into(),
            error,
        }
    }
}

/// A directory with a `run.json`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunDir {
    root: PathBuf,
    id: String,
}

impl RunDir {
    /// Creates `<runs_dir>/<id>/` with `spec.yaml` (the resolved spec), `asked.yaml` (the request), `run.json` and empty
    /// folders. Creates the runs directory if absent.
    ///
    /// # Errors
    /// `runs_dir` is no place for runs, or a file of the run cannot be written; what was begun is removed.
    pub fn create(
        runs_dir: &Path,
        name: &str,
        spec_yaml: &str,
        asked_yaml: &str,
        clock: &dyn Clock,
    ) -> Result<RunDir, RunError> {
        check_place(runs_dir)
            .and_then(|()| check_utf8(runs_dir))
            .map_err(|e| FileOperation::Make.error(runs_dir, e))?;
        std::fs::create_dir_all(runs_dir).map_err(|e| FileOperation::Make.error(runs_dir, e))?;
        let now = clock.now();
        let run = fresh_dir(runs_dir, || new_id(name, now))?;
        let write = |path: PathBuf, bytes: &[u8]| {
            write_synced(&path, bytes).map_err(|e| FileOperation::Write.error(&path, e))
        };
        let fill = || {
            let checkpoints = run.checkpoints_path();
            std::fs::create_dir(&checkpoints)
                .map_err(|e| FileOperation::Make.error(&checkpoints, e))?;
            write(run.spec_path(), spec_yaml.as_bytes())?;
            write(run.asked_path(), asked_yaml.as_bytes())?;
            // The header is written last: a directory without one is not a run, so a half-created one is never listed.
            run.write_header(&Header::new(&run.id, name, now))?;
            sync_dir(runs_dir).map_err(|e| FileOperation::Write.error(runs_dir, e))
        };
        if let Err(error) = fill() {
            let _ = std::fs::remove_dir_all(&run.root);
            return Err(error);
        }
        Ok(run)
    }

    /// Opens an existing run and checks that this program can read its layout.
    ///
    /// # Errors
    /// The folder is no run, is damaged beyond what its log says, or was written by a newer program.
    pub fn open(path: &Path) -> Result<RunDir, RunError> {
        let root = std::path::absolute(path).map_err(|e| FileOperation::Read.error(path, e))?;
        let mut run = RunDir {
            root,
            id: String::new(),
        };
        run.id = run.header()?.id;
        Ok(run)
    }

    /// The name the run was created under, which names its socket and which its children know. A renamed directory and a
    /// copy keep it, so it may find another run or none: what people see and type is [`RunDir::folder`].
    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn path(&self) -> &Path {
        &self.root
    }

    /// The name of its directory, by which commands find it: the id, unless it was renamed or is a copy.
    pub fn folder(&self) -> String {
        let name = self.root.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// How a command that is typed in the working directory of this process names it: by its name in `runs`, else by its path.
    pub fn word(&self) -> String {
        let here = std::env::current_dir().unwrap_or_default();
        let folder = self.folder();
        let below = self.root.strip_prefix(&here).unwrap_or(&self.root);
        // What has that name in the working directory is found first.
        let by_name = below.parent() == Some(Path::new("runs")) && !here.join(&folder).exists();
        match by_name {
            true => shell_quote(&one_line(&folder)),
            false => shell_quote(&one_line(&below.to_string_lossy())),
        }
    }

    /// The names under which results of this run may be filed elsewhere: its directory's, and after a renaming the one it was
    /// created under, unless another directory has that name.
    pub fn names(&self) -> Vec<String> {
        let folder = self.folder();
        let taken = folder == self.id || self.root.with_file_name(&self.id).exists();
        let first = (!taken).then(|| self.id.clone());
        [folder].into_iter().chain(first).collect()
    }

    pub fn spec_path(&self) -> PathBuf {
        self.root.join("spec.yaml")
    }

    pub fn asked_path(&self) -> PathBuf {
        self.root.join("asked.yaml")
    }

    pub fn header_path(&self) -> PathBuf {
        self.root.join("run.json")
    }

    pub fn events_path(&self) -> PathBuf {
        self.root.join("events.jsonl")
    }

    /// What lists of runs show of a long log, so that they need not read it all again.
    pub fn summary_path(&self) -> PathBuf {
        self.root.join("summary.json")
    }

    /// The detached engine process's standard output and error.
    pub fn engine_log_path(&self) -> PathBuf {
        self.root.join("engine.log")
    }

    pub fn lock_path(&self) -> PathBuf {
        self.root.join("lock")
    }

    /// What `run.json` says; where it is lost or damaged, what the log says in its place.
    ///
    /// # Errors
    /// Neither `run.json` nor the log says what the run is, or a newer program wrote it.
    pub fn header(&self) -> Result<Header, RunError> {
        self.read_header().or_else(|error| match error {
            RunError::NotARun(_) | RunError::Damaged { .. } => {
                let found = recovered::header(&self.root, is_locked(&self.lock_path()));
                found.filter(|header| is_an_id(&header.id)).ok_or(error)
            }
            other => Err(other),
        })
    }

    /// Whether `run.json` is lost or damaged; [`RunDir::claim`] writes it anew.
    pub fn lost_its_header(&self) -> bool {
        self.read_header().is_err()
    }

    fn read_header(&self) -> Result<Header, RunError> {
        let path = self.header_path();
        let text = read_small_text(&path, MAX_HEADER).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                RunError::NotARun(self.root.clone())
            }
            _ => FileOperation::Read.error(&path, e),
        })?;
        let header: Header = serde_json::from_str(&text).map_err(|e| RunError::Damaged {
            path: self.root.clone(),
            why: e.to_string(),
        })?;
        if header.format > FORMAT {
            return Err(RunError::Newer {
                path: self.root.clone(),
                program: header.program,
                format: header.format,
            });
        }
        if !is_an_id(&header.id) {
            let shown: String = header.id.chars().take(MAX_NAME).collect();
            return Err(RunError::Damaged {
                path: self.root.clone(),
                why: format!("{shown:?} is not a valid run id"),
            });
        }
        Ok(header)
    }

    fn write_header(&self, header: &Header) -> Result<(), RunError> {
        let path = self.header_path();
        let text = serde_json::to_string_pretty(header)
            .map_err(|e| FileOperation::Write.error(&path, e.into()))?;
        write_atomic(&path, text.as_bytes()).map_err(|e| FileOperation::Write.error(&path, e))
    }

    /// Notes in the header where a branch came from.
    ///
    /// # Errors
    /// The header cannot be read or written.
    pub fn record_parent(&self, parent: Parent) -> Result<(), RunError> {
        let header = Header {
            parent: Some(parent),
            ..self.header()?
        };
        self.write_header(&header)
    }

    /// The run and the step that this one is a branch of; `None` where it is none. A run with `train.from` has a parent and is none.
    pub fn branched_from(&self) -> Option<Parent> {
        recovered::branched_from(&self.root)
    }

    /// Claims the run for this process: only one engine at a time may write to it. Released when the value is dropped or
    /// the process dies.
    ///
    /// # Errors
    /// Another process holds the run, or its header cannot be read or written.
    pub fn claim(&self) -> Result<Lock, RunError> {
        let lock = self.lock()?;
        let header = Header {
            pid: std::process::id(),
            host: host_name(),
            ..self.header()?
        };
        self.write_header(&header)?;
        Ok(lock)
    }

    /// Takes the run's lock without writing to the header: no other process can train, resume or delete it meanwhile.
    ///
    /// # Errors
    /// Another process holds the run, or the lock cannot be taken.
    pub fn lock(&self) -> Result<Lock, RunError> {
        let path = self.lock_path();
        let lock = try_lock_beside_viewers(&path);
        let lock = lock.map_err(|e| FileOperation::Write.error(&path, e))?;
        lock.ok_or_else(|| self.busy())
    }

    fn busy(&self) -> RunError {
        RunError::Busy {
            path: self.root.clone(),
            holder: self.holder(),
        }
    }

    /// Deletes the directory with all checkpoints. It loses its name first, so that nobody finds a half-deleted run.
    ///
    /// # Errors
    /// Another process holds the run, or a file cannot be deleted.
    pub fn remove(&self) -> Result<(), RunError> {
        let claim = self.lock()?;
        remove_held_folder(&self.root, claim)
            .map_err(|e| FileOperation::Delete.error(&self.root, e))
    }

    /// An error if an engine process holds the run.
    ///
    /// # Errors
    /// An engine process holds the run; names it.
    pub fn check_idle(&self) -> Result<(), RunError> {
        if self.is_alive() {
            Err(self.busy())
        } else {
            Ok(())
        }
    }

    /// The engine process that held the run last; it holds it now if the run is alive.
    pub fn holder(&self) -> Holder {
        self.header().map(|h| h.holder()).unwrap_or_default()
    }

    /// The engine process of this machine that holds the run and is stopped by a signal: it trains, saves and answers nothing
    /// until SIGCONT.
    pub fn suspended_by(&self) -> Option<u32> {
        let pid = self.holder().here()?;
        (self.is_alive() && is_suspended(pid)).then_some(pid)
    }

    /// True while an engine process holds the run.
    pub fn is_alive(&self) -> bool {
        is_locked(&self.lock_path())
    }
}

/// Whether it may be the name of a run's directory.
fn is_an_id(id: &str) -> bool {
    let plain = !id.contains(['/', '\0']) && !id.starts_with('.');
    plain && !id.is_empty() && id.len() <= MAX_NAME
}

/// Creates a directory with an unused name; the file system decides, so two processes never share one.
fn fresh_dir(runs_dir: &Path, mut name: impl FnMut() -> String) -> Result<RunDir, RunError> {
    let runs_dir =
        std::path::absolute(runs_dir).map_err(|e| FileOperation::Make.error(runs_dir, e))?;
    let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
    for _ in 0..NAME_TRIES {
        let id = name();
        let root = runs_dir.join(&id);
        match std::fs::create_dir(&root) {
            Ok(()) => return Ok(RunDir { root, id }),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => last = e,
            Err(e) => return Err(FileOperation::Make.error(&root, e)),
        }
    }
    Err(FileOperation::Make.error(&runs_dir, last))
}

/// Every run directory in `runs_dir`, in no order.
pub(super) fn open_all(runs_dir: &Path) -> io::Result<Vec<Result<RunDir, RunError>>> {
    check_place(runs_dir)?;
    let folder = match std::fs::read_dir(runs_dir) {
        Ok(folder) => folder,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    let mut runs = Vec::new();
    for entry in folder {
        match RunDir::open(&entry?.path()) {
            Err(RunError::NotARun(_)) => {}
            run => runs.push(run),
        }
    }
    Ok(runs)
}

/// Whether runs may be below `runs_dir`: it is a folder, or not there yet.
///
/// # Errors
/// It is a file.
fn check_place(runs_dir: &Path) -> io::Result<()> {
    let why = "it is a file, and runs are kept in a folder";
    match runs_dir.is_file() {
        true => Err(io::Error::new(io::ErrorKind::NotADirectory, why)),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::ManualClock;

    fn create(runs: &Path) -> RunDir {
        RunDir::create(
            runs,
            "demo",
            "seed: 1\n",
            "{}\n",
            &ManualClock::at(1_763_734_920_000),
        )
        .unwrap()
    }

    #[test]
    fn a_created_run_opens_again() {
        let dir = tempfile::tempdir().unwrap();
        let run = create(&dir.path().join("runs"));
        assert_eq!(
            std::fs::read_to_string(run.spec_path()).unwrap(),
            "seed: 1\n"
        );
        let again = RunDir::open(run.path()).unwrap();
        assert_eq!(again, run);
        assert_eq!(again.header().unwrap().name, "demo");
        assert!(run.path().ends_with(run.id()));
    }

    #[test]
    fn a_renamed_run_has_both_names_and_a_copy_only_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let run = create(dir.path());
        assert_eq!(run.names(), [run.id()]);
        let copy = dir.path().join("copy");
        std::fs::create_dir(&copy).unwrap();
        std::fs::copy(run.header_path(), copy.join("run.json")).unwrap();
        let copy = RunDir::open(&copy).unwrap();
        assert_eq!(copy.names(), ["copy"]);
        std::fs::remove_dir_all(run.path()).unwrap();
        assert_eq!(copy.names(), ["copy", run.id()]);
    }

    #[test]
    fn a_run_is_deleted_whole_and_never_under_its_engine() {
        let dir = tempfile::tempdir().unwrap();
        let run = create(dir.path());
        let claim = run.claim().unwrap();
        assert!(matches!(run.remove(), Err(RunError::Busy { .. })));
        drop(claim);
        run.remove().unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_taken_name_is_never_shared() {
        let dir = tempfile::tempdir().unwrap();
        let mut names = ["a", "a", "b"].into_iter().map(String::from);
        let first = fresh_dir(dir.path(), || names.next().unwrap()).unwrap();
        let second = fresh_dir(dir.path(), || names.next().unwrap()).unwrap();
        assert_eq!((first.id(), second.id()), ("a", "b"));
        assert!(fresh_dir(dir.path(), || "a".into()).is_err());
    }

    #[test]
    fn a_second_engine_is_refused_by_name_and_pid() {
        let dir = tempfile::tempdir().unwrap();
        let run = create(dir.path());
        assert!(!run.is_alive());
        let claim = run.claim().unwrap();
        assert!(run.is_alive());
        let refused = run.claim().unwrap_err().to_string();
        assert!(
            refused.contains(&std::process::id().to_string()),
            "{refused}"
        );
        // On another machine that shares the disk.
        let mut header = run.header().unwrap();
        header.host = "node3".into();
        run.write_header(&header).unwrap();
        let refused = run.claim().unwrap_err();
        assert!(refused.to_string().contains(" on node3;"), "{refused}");
        assert_eq!(refused.hint(), "it trains on node3: run the command there");
        drop(claim);
        assert!(!run.is_alive());
        run.claim().unwrap();
        assert_eq!(run.header().unwrap().host, host_name());
    }

    #[test]
    fn looking_at_a_run_does_not_keep_an_engine_out() {
        let dir = tempfile::tempdir().unwrap();
        let run = create(dir.path());
        let watched = run.clone();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let watcher = std::thread::spawn(move || {
            while stopped.try_recv().is_err() {
                watched.is_alive();
            }
        });
        for _ in 0..50 {
            drop(run.claim().unwrap());
        }
        stop.send(()).unwrap();
        watcher.join().unwrap();
    }

    #[test]
    fn foreign_and_newer_directories_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(
            RunDir::open(dir.path()),
            Err(RunError::NotARun(_))
        ));
        let run = create(dir.path());
        let mut header = run.header().unwrap();
        header.format = 99;
        run.write_header(&header).unwrap();
        assert!(matches!(
            RunDir::open(run.path()),
            Err(RunError::Newer { format: 99, .. })
        ));
        std::fs::write(run.header_path(), "{").unwrap();
        assert!(matches!(
            RunDir::open(run.path()),
            Err(RunError::Damaged { .. })
        ));
        header.format = 1;
        for id in ["../elsewhere".to_string(), "x".repeat(70_000)] {
            header.id = id;
            run.write_header(&header).unwrap();
            let refused = RunDir::open(run.path()).unwrap_err();
            assert!(matches!(refused, RunError::Damaged { .. }));
            assert!(refused.to_string().len() < 1000);
        }
    }
}
