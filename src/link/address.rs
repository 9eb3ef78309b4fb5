//! The path of a run's socket, and its permissions. Run paths can be longer than a socket address allows, so
//! sockets are in the runtime directory, in a folder only the owner can enter.

use crate::base::paths::Env;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Longest path of a Unix socket on all known systems (108 bytes on Linux, 104 on BSD, one for the NUL).
const MAX_SOCKET_PATH: usize = 103;

/// Why a socket cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    #[error(
        "the socket path {0} is longer than {MAX_SOCKET_PATH} bytes; set XDG_RUNTIME_DIR to a shorter path"
    )]
    TooLong(PathBuf),
    #[error(
        "{dir} is accessible to others ({why}); sockets need a private directory: remove it, or chmod 700 it if it is yours"
    )]
    Unsafe { dir: PathBuf, why: String },
    #[error("{path}: {error}")]
    Io { path: PathBuf, error: io::Error },
}

/// The socket of run `id`: in the runtime directory, or below `/tmp` if that path would be too long.
pub fn socket_path(env: &Env, id: &str) -> Result<PathBuf, AddressError> {
    let name = format!("{id}.sock");
    let uid = rustix::process::getuid().as_raw();
    let places = [
        env.runtime_dir.clone(),
        PathBuf::from(format!("/tmp/llmtui-{uid}")),
    ];
    let paths = places.map(|dir| dir.join(&name));
    let fits = |path: &&PathBuf| path.as_os_str().len() <= MAX_SOCKET_PATH;
    paths
        .iter()
        .find(fits)
        .cloned()
        .ok_or_else(|| AddressError::TooLong(paths[0].clone()))
}

/// Creates the socket's folder (mode 0700) or checks that an existing one is a directory of ours that nobody else can
/// enter. A symbolic link is rejected: its creator controls the target.
pub fn secure_dir(dir: &Path) -> Result<(), AddressError> {
    let io_error = |error| AddressError::Io {
        path: dir.into(),
        error,
    };
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(io_error)?;
    let meta = std::fs::symlink_metadata(dir).map_err(io_error)?;
    let uid = rustix::process::getuid().as_raw();
    let why = if !meta.file_type().is_dir() {
        "it is not a directory".to_string()
    } else if meta.uid() != uid {
        format!("it belongs to user {}", meta.uid())
    } else if meta.mode() & 0o077 != 0 {
        format!("its mode is {:o}", meta.mode() & 0o777)
    } else {
        return Ok(());
    };
    Err(AddressError::Unsafe {
        dir: dir.into(),
        why,
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

    #[test]
    fn a_long_runtime_directory_falls_back_to_tmp_and_a_long_id_is_an_error() {
        let short = socket_path(&env(Path::new("/run/user/1000/llmtui")), "a-run").unwrap();
        assert_eq!(short, Path::new("/run/user/1000/llmtui/a-run.sock"));
        let deep = PathBuf::from("/").join("deep/".repeat(40));
        let fallback = socket_path(&env(&deep), "a-run").unwrap();
        assert!(fallback.starts_with("/tmp"), "{fallback:?}");
        let refused = socket_path(&env(&deep), &"x".repeat(200)).unwrap_err();
        assert!(refused.to_string().contains("XDG_RUNTIME_DIR"));
    }

    #[test]
    fn open_foreign_and_linked_directories_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("a/b");
        secure_dir(&own).unwrap();
        secure_dir(&own).unwrap();
        assert_eq!(std::fs::metadata(&own).unwrap().mode() & 0o777, 0o700);
        let open = std::fs::Permissions::from_mode(0o750);
        std::fs::set_permissions(&own, open).unwrap();
        let refused = secure_dir(&own).unwrap_err().to_string();
        assert!(refused.contains("750"), "{refused}");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path().join("a"), &link).unwrap();
        assert!(matches!(
            secure_dir(&link),
            Err(AddressError::Unsafe { .. })
        ));
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(secure_dir(&file).is_err());
    }
}
