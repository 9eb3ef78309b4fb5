//! The remote end, on a machine with ranks: starts torchrun on request, forwards the ranks' connections, and leaves nothing
//! running when the connection ends.

use super::node_message::{GREETING, LAUNCHER, NodeMessage, forward};
use super::{Answer, Ask, NodeInfo, NodeRequest, rendezvous};
use crate::base::clock::Clock;
use crate::base::files::{open_plain, private_dir};
use crate::base::paths::Env;
use crate::workers::environment::{self, Environment};
use crate::workers::frame::Frame;
use crate::workers::group::{Group, LAUNCHER_LOG, STACKS, TICK};
use crate::workers::launch::{Launch, Launcher, Rendezvous};
use crate::workers::worker_group::{errors::find_log, listen};
use crate::workers::{package, torch};
use std::collections::HashMap;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Poll interval of logs; bytes read per poll, and in total per log.
const LOG_INTERVAL: Duration = Duration::from_secs(1);
const PIECE: u64 = 256 << 10;
const MAX_LOG: u64 = 16 << 20;
/// A rank that connects must identify itself within this time.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

type Output = Arc<Mutex<Box<dyn Write + Send>>>;

/// Serves one connection to its end.
///
/// # Errors
/// The connection ends before the engine's first message.
pub fn serve(
    env: &Env,
    clock: &Arc<dyn Clock>,
    input: impl Read + Send + 'static,
    output: impl Write + Send + 'static,
) -> io::Result<()> {
    let output: Output = Arc::new(Mutex::new(Box::new(output)));
    {
        let mut out = output.lock().unwrap_or_else(PoisonError::into_inner);
        out.write_all(GREETING.as_bytes())?;
        out.flush()?;
    }
    let messages = read_messages(input);
    let Some(ask) = next_message::<Ask>(&messages) else {
        return Err(io::Error::other(
            "standard input is not from an engine: llmtui train --nodes starts this program over ssh",
        ));
    };
    let (python, package) = match ready(env, &ask) {
        Ok(found) => found,
        Err((kind, what)) => {
            let kind = kind.to_string();
            return send_message(&output, &Answer::Refused { kind, what });
        }
    };
    let mut calls = env
        .machines
        .ssh_connection
        .iter()
        .flat_map(|four| four.split(' '));
    let about = NodeInfo {
        environment: python.about.clone(),
        python: python.python.clone(),
        host: crate::hardware::host_name(),
        caller: calls.next().map(String::from),
        own: calls.nth(1).map(String::from),
    };
    send_message(&output, &Answer::Ready(Box::new(about)))?;
    let Some(NodeRequest::Launch { ranks, id, meeting }) = next_message::<NodeRequest>(&messages)
    else {
        return Ok(());
    };
    let logs = folder(env)?.join(format!("torch-logs-{}", std::process::id()));
    let launch = Launch {
        python: python.python,
        package,
        ranks,
        id,
        logs: logs.clone(),
        socket: PathBuf::new(),
        meeting: Rendezvous {
            interface: rendezvous::interface(&meeting.address, env),
            ..meeting
        },
    };
    let status = match Ranks::start(launch, env, clock, output.clone()) {
        Ok(mut own) => own.carry(&messages),
        Err(what) => what,
    };
    // The engine has a copy.
    let _ = std::fs::remove_dir_all(&logs);
    send_message(&output, &Answer::Ended { status })
}

/// This machine's Python and worker package, if the versions match.
fn ready(env: &Env, ask: &Ask) -> Result<(Environment, PathBuf), (&'static str, String)> {
    let own = Ask::of(None);
    if ask.worker != own.worker {
        let what = format!(
            "llmtui {} there and {} here have different workers: install the same version on both",
            own.program, ask.program
        );
        return Err(("version", what));
    }
    let config = torch::Config {
        python: ask.python.clone(),
        ..torch::Config::default()
    };
    let start = |what: String| ("start", what);
    let python = environment::python(&config, env)
        .and_then(|python| Environment::ask(&python))
        .map_err(|e| start(e.to_string()))?;
    let cache = folder(env).map_err(|e| start(e.to_string()))?;
    let package =
        package::unpack(&cache).map_err(|e| start(format!("{}: {e}", cache.display())))?;
    Ok((python, package))
}

/// Folder of the package and the logs: the cache, or the runtime folder if there is none.
fn folder(env: &Env) -> io::Result<PathBuf> {
    match &env.cache_dir {
        Some(cache) => Ok(cache.clone()),
        None => {
            private_dir(&env.runtime_dir).map_err(io::Error::other)?;
            Ok(env.runtime_dir.clone())
        }
    }
}

fn send_message(output: &Output, message: &Answer) -> io::Result<()> {
    put(output, &NodeMessage::Message(super::value(message)))
}

fn put(output: &Output, message: &NodeMessage) -> io::Result<()> {
    let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
    message.write(&mut **output)
}

/// Reads messages on a thread; the channel closes at their end.
fn read_messages(mut input: impl Read + Send + 'static) -> Receiver<NodeMessage> {
    let (sender, messages) = sync_channel(4);
    std::thread::spawn(move || {
        while let Ok(Some(message)) = NodeMessage::read(&mut input) {
            if sender.send(message).is_err() {
                return;
            }
        }
    });
    messages
}

/// The next message; `None` if the engine is gone or sends anything else.
fn next_message<T: serde::de::DeserializeOwned>(messages: &Receiver<NodeMessage>) -> Option<T> {
    match messages.recv().ok()? {
        NodeMessage::Message(message) => super::read(&message),
        _ => None,
    }
}

/// The ranks of this machine.
struct Ranks {
    group: Group,
    listener: UnixListener,
    socket: PathBuf,
    /// Connections by rank number in the run.
    streams: HashMap<u32, UnixStream>,
    ranks: usize,
    logs: Logs,
    output: Output,
    clock: Arc<dyn Clock>,
}

impl Ranks {
    fn start(
        launch: Launch,
        env: &Env,
        clock: &Arc<dyn Clock>,
        output: Output,
    ) -> Result<Ranks, String> {
        let (listener, socket) = listen(&env.runtime_dir, &launch.id).map_err(|lost| lost.what)?;
        let launch = Launch {
            socket: socket.clone(),
            ..launch
        };
        let group = Group::start(&launch, clock.clone()).map_err(|lost| lost.what)?;
        Ok(Ranks {
            group,
            listener,
            socket,
            streams: HashMap::new(),
            ranks: launch.ranks,
            logs: Logs::of(launch.logs),
            output,
            clock: clock.clone(),
        })
    }

    /// Forwards everything until torchrun or the connection ends; returns how torchrun ended.
    fn carry(&mut self, messages: &Receiver<NodeMessage>) -> String {
        let mut polled = self.clock.elapsed();
        let status = loop {
            match messages.recv_timeout(TICK) {
                Ok(NodeMessage::Bytes(rank, bytes)) => {
                    let gone = |stream: &mut UnixStream| stream.write_all(&bytes).is_err();
                    if self.streams.get_mut(&rank).is_some_and(gone) {
                        self.streams.remove(&rank);
                    }
                }
                Ok(NodeMessage::Closed(rank)) => {
                    if let Some(stream) = self.streams.remove(&rank) {
                        let _ = stream.shutdown(Shutdown::Both);
                    }
                }
                Ok(NodeMessage::Message(message)) => {
                    if let Some(NodeRequest::End) = super::read(&message) {
                        break self.end();
                    }
                }
                Ok(NodeMessage::Log(..)) | Err(RecvTimeoutError::Timeout) => {}
                // The engine or the connection is gone.
                Err(RecvTimeoutError::Disconnected) => break self.end(),
            }
            while let Ok((stream, _)) = self.listener.accept() {
                if let Err(e) = self.admit(stream) {
                    tracing::warn!("a rank's connection: {e}");
                }
            }
            if self.clock.elapsed() - polled > LOG_INTERVAL {
                polled = self.clock.elapsed();
                self.logs.send(self.ranks, &self.output);
            }
            if let Some(status) = self.group.ended() {
                break status;
            }
        };
        let _ = std::fs::remove_file(&self.socket);
        self.group.kill();
        self.logs.send(self.ranks, &self.output);
        status
    }

    /// Prints stacks, terminates, then kills.
    fn end(&mut self) -> String {
        self.group.ask_for_stacks();
        crate::base::clock::pause(STACKS);
        self.group.terminate();
        for stream in self.streams.values() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.group.kill();
        "ended on request".into()
    }

    /// Accepts a connecting rank: its first frame identifies it, and the whole stream goes to the engine.
    fn admit(&mut self, stream: UnixStream) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(HELLO_TIMEOUT))?;
        let mut from = stream.try_clone()?;
        let none = || io::Error::other("the rank is missing from the message");
        let hello = Frame::read(&mut from)?.ok_or_else(none)?;
        stream.set_read_timeout(None)?;
        let number = |key: &str| hello.header[key].as_u64();
        let rank = number("rank").and_then(|n| u32::try_from(n).ok());
        let pid = number("pid").and_then(|n| i32::try_from(n).ok());
        let (Some(rank), Some(pid)) = (rank, pid) else {
            return Err(none());
        };
        self.group.admit(pid);
        send_message(&self.output, &Answer::Open { rank })?;
        let mut first = Vec::new();
        hello.write(&mut first)?;
        put(&self.output, &NodeMessage::Bytes(rank, first))?;
        let output = self.output.clone();
        std::thread::Builder::new()
            .name(format!("rank-{rank}"))
            .spawn(move || forward(&mut from, rank, |message| put(&output, message)))?;
        self.streams.insert(rank, stream);
        Ok(())
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.socket);
        self.group.kill();
    }
}

/// The logs of this machine that the engine copies.
struct Logs {
    folder: PathBuf,
    /// Bytes sent of each.
    sent: HashMap<u32, u64>,
}

impl Logs {
    fn of(folder: PathBuf) -> Logs {
        Logs {
            folder,
            sent: HashMap::new(),
        }
    }

    /// Sends the new part of each log.
    fn send(&mut self, ranks: usize, output: &Output) {
        let own =
            (0..ranks).filter_map(|rank| Some((rank as u32, find_log(&self.folder, rank, 0)?)));
        let launcher = (LAUNCHER, self.folder.join(LAUNCHER_LOG));
        let all: Vec<(u32, PathBuf)> = own.chain([launcher]).collect();
        for (rank, path) in all {
            let sent = self.sent.entry(rank).or_default();
            while let Ok(bytes) = piece(&path, *sent)
                && !bytes.is_empty()
            {
                *sent += bytes.len() as u64;
                if put(output, &NodeMessage::Log(rank, bytes)).is_err() {
                    return;
                }
            }
        }
    }
}

/// The part of a log after the bytes already sent; nothing beyond the maximum length.
fn piece(path: &Path, sent: u64) -> io::Result<Vec<u8>> {
    let mut file = open_plain(path)?;
    file.seek(SeekFrom::Start(sent))?;
    let mut bytes = Vec::new();
    file.take(PIECE.min(MAX_LOG.saturating_sub(sent)))
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_cache_the_runtime_folder_is_made_private_and_one_open_to_others_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let env = Env {
            runtime_dir: dir.path().join("runtime"),
            ..Env::default()
        };
        assert_eq!(folder(&env).unwrap(), env.runtime_dir);
        assert!(private_dir(&env.runtime_dir).is_ok());
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&env.runtime_dir, open).unwrap();
        assert!(
            folder(&env).is_err(),
            "Python would import files from there"
        );
    }
}
