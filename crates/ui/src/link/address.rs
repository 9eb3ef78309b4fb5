//! The path of a run's socket, and its permissions. Sockets are in the runtime directory, in a folder only the owner can
//! enter; where that cannot be had, in the run's own folder.

use crate::base::files::{Identity, PrivateDirError, private_dir};
use crate::base::paths::Env;
use crate::run::RunDir;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Longest path of a Unix socket on all known systems (108 bytes on Linux, 104 on BSD, one for the NUL).
const MAX_SOCKET_PATH: usize = 103;

/// Name of a socket inside the run's folder.
const IN_RUN: &str = "engine.sock";

/// Why a socket cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    #[error(
        "the socket path {0} is longer than {MAX_SOCKET_PATH} bytes; set XDG_RUNTIME_DIR to a shorter path"
    )]
    TooLong(PathBuf),
    #[error(transparent)]
    Folder(#[from] PrivateDirError),
    #[error("{path}: {error}")]
    Io { path: PathBuf, error: io::Error },
    #[error(
        "process {pid} is already using this run, although its lock file is gone; stop it first: kill {pid}"
    )]
    Taken { pid: u32 },
}

/// A place for a socket, usable while this lives.
#[derive(Debug)]
pub(super) struct Address {
    /// What to bind or to connect to.
    pub path: PathBuf,
    /// The folder that `path` goes through, held open.
    _folder: Option<File>,
}

/// The socket's place in the runtime directory, or below `/tmp` if that path would be too long. Its name holds the run's id,
/// for people, and the identity of the run's folder: a copy of a run has another socket.
///
/// # Errors
/// The run is gone, or every path is longer than a socket may have.
pub fn socket_path(env: &Env, run: &RunDir) -> Result<PathBuf, AddressError> {
    let identity = Identity::at(run.path()).map_err(|error| AddressError::Io {
        path: run.path().into(),
        error,
    })?;
    let uid = rustix::process::getuid().as_raw();
    let places = [
        env.runtime_dir.clone(),
        PathBuf::from(format!("/tmp/llmtui-{uid}")),
    ];
    let key = identity.short();
    let names = [format!("{}-{key}.sock", run.id()), format!("{key}.sock")];
    let mut paths = places
        .iter()
        .flat_map(|dir| names.iter().map(|name| dir.join(name)));
    let fits = |path: &PathBuf| path.as_os_str().len() <= MAX_SOCKET_PATH;
    paths
        .find(fits)
        .ok_or_else(|| AddressError::TooLong(places[0].join(&names[1])))
}

/// The usual place, in a folder that is ours alone; with `make`, the folder is created.
pub(super) fn usual(env: &Env, run: &RunDir, make: bool) -> Result<Address, AddressError> {
    let path = socket_path(env, run)?;
    if let Some(dir) = path.parent().filter(|dir| make || dir.exists()) {
        private_dir(dir)?;
    }
    Ok(Address {
        path,
        _folder: None,
    })
}

/// The place beside the log, for when the runtime directory cannot be used or has gone with a logout. A long path is
/// shortened by way of the open folder.
pub(super) fn in_run(run: &RunDir) -> Result<Address, AddressError> {
    let path = run.path().join(IN_RUN);
    if path.as_os_str().len() <= MAX_SOCKET_PATH {
        return Ok(Address {
            path,
            _folder: None,
        });
    }
    let folder = File::open(run.path()).map_err(|error| AddressError::Io {
        path: run.path().into(),
        error,
    })?;
    Ok(Address {
        path: PathBuf::from(format!("/proc/self/fd/{}/{IN_RUN}", folder.as_raw_fd())),
        _folder: Some(folder),
    })
}

/// Makes the socket itself accessible to its owner only.
pub(super) fn restrict(socket: &Path) -> Result<(), AddressError> {
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o600)).map_err(|error| {
        AddressError::Io {
            path: socket.into(),
            error,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(dir: &Path) -> Env {
        Env {
            runtime_dir: dir.into(),
            ..Env::default()
        }
    }

    fn run(dir: &Path) -> RunDir {
        let clock = crate::base::clock::ManualClock::at(0);
        RunDir::create(dir, "a-run", "", "", &clock).unwrap()
    }

    #[test]
    fn a_name_says_which_run_and_which_folder_and_a_long_place_falls_back_to_tmp() {
        let dir = tempfile::tempdir().unwrap();
        let run = run(dir.path());
        let short = socket_path(&env(Path::new("/run/user/1000/llmtui")), &run).unwrap();
        let name = short.file_name().unwrap().to_str().unwrap();
        assert!(name.starts_with(&format!("{}-", run.id())), "{name}");
        // A copy keeps the id and is another folder.
        let copy = dir.path().join("copy");
        std::fs::create_dir(&copy).unwrap();
        std::fs::copy(run.header_path(), copy.join("run.json")).unwrap();
        let copy = RunDir::open(&copy).unwrap();
        assert_eq!(copy.id(), run.id());
        let other = socket_path(&env(Path::new("/run/user/1000/llmtui")), &copy).unwrap();
        assert_ne!(short, other);
        let deep = PathBuf::from("/").join("deep/".repeat(40));
        let fallback = socket_path(&env(&deep), &run).unwrap();
        assert!(fallback.starts_with("/tmp"), "{fallback:?}");
    }

    #[test]
    fn a_run_in_a_deep_folder_has_a_place_of_its_own_too() {
        let dir = tempfile::tempdir().unwrap();
        let run = run(&dir.path().join("deep/".repeat(40)));
        let address = in_run(&run).unwrap();
        let listener = std::os::unix::net::UnixListener::bind(&address.path).unwrap();
        assert!(run.path().join(IN_RUN).exists());
        drop(listener);
    }
}
