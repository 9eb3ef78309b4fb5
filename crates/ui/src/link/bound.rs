//! A listening socket and its file: made where nobody else answers, looked after while it is used, and removed only as
//! long as the file is the one that was made.

use super::address::{self, Address, AddressError, restrict};
use super::socket::{greeting_pid, ours};
use crate::base::files::Identity;
use crate::base::paths::Env;
use crate::run::RunDir;
use std::io::ErrorKind;
use std::os::unix::net::{UnixListener, UnixStream};

/// A bound socket of a run.
#[derive(Debug)]
pub(super) struct Socket {
    address: Address,
    listener: UnixListener,
    identity: Identity,
}

impl Socket {
    /// Binds in the runtime directory, else inside the run's folder. The caller holds the run's lock, so a file that nobody
    /// answers at belongs to a dead engine and is replaced.
    ///
    /// # Errors
    /// Neither place can be used: the first one's fault. Somebody serves this run although we hold its lock.
    pub fn bind(env: &Env, run: &RunDir) -> Result<Socket, AddressError> {
        let places = [address::usual(env, run, true), address::in_run(run)];
        for place in places.iter().flatten() {
            if let Some(pid) = held_by(place, run) {
                return Err(AddressError::Taken { pid });
            }
        }
        let [usual, in_run] = places.map(|place| place.and_then(Socket::at));
        usual.or_else(|first| in_run.map_err(|_| first))
    }

    fn at(address: Address) -> Result<Socket, AddressError> {
        let io_error = |error| AddressError::Io {
            path: address.path.clone(),
            error,
        };
        match std::fs::remove_file(&address.path) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(io_error(e)),
            _ => {}
        }
        let listener = UnixListener::bind(&address.path).map_err(io_error)?;
        restrict(&address.path)?;
        listener.set_nonblocking(true).map_err(io_error)?;
        let identity = Identity::at(&address.path).map_err(io_error)?;
        Ok(Socket {
            address,
            listener,
            identity,
        })
    }

    /// A second handle, for an event loop.
    ///
    /// # Errors
    /// Too many open files.
    pub fn listener(&self) -> std::io::Result<UnixListener> {
        self.listener.try_clone()
    }

    /// True while the file is there and is this socket's.
    pub fn is_current(&self) -> bool {
        Identity::at(&self.address.path).is_ok_and(|found| found == self.identity)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.is_current() {
            let _ = std::fs::remove_file(&self.address.path);
        }
    }
}

/// The process that answers for `run` at this place.
fn held_by(place: &Address, run: &RunDir) -> Option<u32> {
    let stream = UnixStream::connect(&place.path).ok()?;
    ours(&stream).then(|| greeting_pid(&stream, &place.path, run.id()))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::ManualClock;

    #[test]
    fn only_the_file_that_was_bound_is_removed_and_a_lost_one_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::create(dir.path(), "a", "", "", &ManualClock::at(0)).unwrap();
        let env = Env {
            runtime_dir: dir.path().join("sockets"),
            ..Env::default()
        };
        let socket = Socket::bind(&env, &run).unwrap();
        let path = socket.address.path.clone();
        assert!(path.starts_with(&env.runtime_dir) && socket.is_current());
        std::fs::remove_file(&path).unwrap();
        assert!(!socket.is_current());
        // The next one's file stays when the first goes.
        let next = Socket::bind(&env, &run).unwrap();
        drop(socket);
        assert!(next.is_current());
        drop(next);
        assert!(!path.exists());
        // No runtime folder can be made: the run's own folder serves.
        let env = Env {
            runtime_dir: "/proc/nothing/here".into(),
            ..Env::default()
        };
        let socket = Socket::bind(&env, &run).unwrap();
        assert!(socket.address.path.starts_with(run.path()));
    }
}
