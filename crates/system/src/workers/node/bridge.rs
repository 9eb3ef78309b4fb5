//! The engine's end of another machine: a child process (ssh, srun) whose stdin and stdout carry the connections of all ranks
//! there. Each of them is connected to the engine's own socket, like a rank of this machine.

use super::node_message::{self, LAUNCHER, NodeMessage};
use super::{Answer, Ask, NodeInfo, NodeRequest};
use crate::base::clock::Clock;
use crate::base::files::open_plain_with;
use crate::base::text::one_line;
use crate::workers::failure::{FailureKind, WorkerFailure};
use crate::workers::group::{GRACE, LAUNCHER_LOG, STACKS, TICK};
use crate::workers::launch::Launcher;
use crate::workers::worker_group::errors::last_line;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// A connection to one machine.
pub struct Bridge {
    name: String,
    child: Child,
    input: Arc<Mutex<ChildStdin>>,
    receiver: Receiver<Result<NodeInfo, WorkerFailure>>,
    shared: Arc<Shared>,
    /// The file with the stderr of ssh or srun.
    errors: PathBuf,
    orders: Option<NodeRequest>,
    clock: Arc<dyn Clock>,
}

/// State shared with the reading thread.
#[derive(Default)]
struct Shared {
    /// The engine's socket and the folder of the machine's logs, once ranks are requested.
    place: OnceLock<(PathBuf, PathBuf)>,
    /// How torchrun there or the connection ended.
    ended: Mutex<Option<String>>,
}

impl Shared {
    fn end(&self, how: &str) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.get_or_insert_with(|| how.into());
    }

    fn ended(&self) -> Option<String> {
        self.ended
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Bridge {
    /// Starts the connection with this command line; its stderr goes to the file `errors`.
    ///
    /// # Errors
    /// The program does not exist.
    pub fn dial(
        name: &str,
        line: &[OsString],
        ask: &Ask,
        errors: &Path,
        clock: Arc<dyn Clock>,
    ) -> Result<Bridge, WorkerFailure> {
        let fault = |e: io::Error| {
            WorkerFailure::new(
                FailureKind::Start,
                None,
                format!("{}: {e}", line[0].display()),
            )
        };
        let stderr = File::create(errors).map_err(fault)?;
        let mut child = Command::new(&line[0])
            .args(&line[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .process_group(0)
            .spawn()
            .map_err(fault)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(fault(io::ErrorKind::BrokenPipe.into()));
        };
        let input = Arc::new(Mutex::new(input));
        let shared = Arc::new(Shared::default());
        let (sender, receiver) = sync_channel(1);
        let reader = Reader {
            name: name.into(),
            input: input.clone(),
            shared: shared.clone(),
            ranks: HashMap::new(),
        };
        std::thread::Builder::new()
            .name(format!("node-{name}"))
            .spawn(move || reader.run(output, &sender))
            .map_err(fault)?;
        let bridge = Bridge {
            name: name.into(),
            child,
            input,
            receiver,
            shared,
            errors: errors.into(),
            orders: None,
            clock,
        };
        // If the connection closes at once, the reason is read later.
        let _ = bridge.send(&NodeMessage::Message(super::value(ask)));
        Ok(bridge)
    }

    /// Waits for the machine's description of itself.
    ///
    /// # Errors
    /// It cannot be reached, has no llmtui or PyTorch, or other versions.
    pub fn about(
        &mut self,
        limit: Duration,
        broken_off: &mut dyn FnMut() -> bool,
    ) -> Result<NodeInfo, WorkerFailure> {
        let begun = self.clock.elapsed();
        loop {
            match self.receiver.recv_timeout(TICK) {
                Ok(Ok(about)) => return Ok(about),
                Ok(Err(lost)) => return Err(lost),
                Err(RecvTimeoutError::Disconnected) => return Err(self.unreachable()),
                Err(RecvTimeoutError::Timeout) if broken_off() => {
                    let what = "stopped while machines were called";
                    return Err(WorkerFailure::new(FailureKind::Stopped, None, what));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if self.clock.elapsed() - begun > limit {
                let what = format!("{}: no answer within {} s", self.name, limit.as_secs());
                return Err(WorkerFailure::new(FailureKind::Unreachable, None, what));
            }
        }
    }

    /// Sets the request for its ranks.
    pub fn with_orders(mut self, orders: NodeRequest) -> Bridge {
        self.orders = Some(orders);
        self
    }

    /// Starts the ranks there; they connect to `socket`, and their logs go to `logs`.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn launch(&mut self, socket: &Path, logs: &Path) -> Result<(), WorkerFailure> {
        let fault = |e: io::Error| {
            WorkerFailure::new(FailureKind::Start, None, format!("{}: {e}", logs.display()))
        };
        std::fs::create_dir_all(logs).map_err(fault)?;
        let _ = self.shared.place.set((socket.into(), logs.into()));
        let orders = self.orders.take().map(|orders| super::value(&orders));
        self.send(&NodeMessage::Message(orders.unwrap_or_default()))
            .map_err(|_| self.unreachable())
    }

    fn send(&self, message: &NodeMessage) -> io::Result<()> {
        let mut input = self.input.lock().unwrap_or_else(PoisonError::into_inner);
        message.write(&mut *input)
    }

    /// The error of a lost connection, with the last stderr line of its program.
    fn unreachable(&mut self) -> WorkerFailure {
        // The output may arrive a moment after the end.
        let begun = self.clock.elapsed();
        while self.clock.elapsed() - begun < STACKS && matches!(self.child.try_wait(), Ok(None)) {
            crate::base::clock::pause(TICK);
        }
        let output = match last_line(&self.errors) {
            none if none.is_empty() => self.shared.ended().unwrap_or_default(),
            message => message,
        };
        let what = format!("{}: {output}", self.name);
        WorkerFailure::new(FailureKind::Unreachable, None, what)
    }
}

impl Launcher for Bridge {
    fn machine(&self) -> Option<&str> {
        Some(&self.name)
    }

    fn admit(&mut self, _pid: i32) {}

    fn ended(&mut self) -> Option<String> {
        self.shared.ended()
    }

    fn failure_detail(&self) -> String {
        match last_line(&self.errors) {
            none if none.is_empty() => String::new(),
            message => format!("; {}: {message}", self.name),
        }
    }

    /// The remote end performs all three steps itself.
    fn ask_for_stacks(&mut self) {
        let _ = self.send(&NodeMessage::Message(super::value(&NodeRequest::End)));
    }

    fn terminate(&mut self) {}

    fn kill(&mut self) {
        let begun = self.clock.elapsed();
        while self.clock.elapsed() - begun < STACKS + 2 * GRACE && self.shared.ended().is_none() {
            crate::base::clock::pause(TICK);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        // This closes its input, and the remote end then terminates what it started.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads what a machine sends and forwards it.
struct Reader {
    name: String,
    input: Arc<Mutex<ChildStdin>>,
    shared: Arc<Shared>,
    /// The local ends of the ranks' connections to the engine's socket.
    ranks: HashMap<u32, UnixStream>,
}

impl Reader {
    fn run(mut self, output: ChildStdout, sender: &SyncSender<Result<NodeInfo, WorkerFailure>>) {
        let mut output = BufReader::with_capacity(1 << 20, output);
        let lost = |kind, what: String| Err(WorkerFailure::new(kind, None, what));
        if let Err(output) = node_message::skip_to_greeting(&mut output) {
            if !output.is_empty() {
                let what = format!(
                    "{}: unexpected output {output:?} from `llmtui` on that host",
                    self.name
                );
                let _ = sender.send(lost(FailureKind::Unreachable, what));
            }
            return self.shared.end("it hung up");
        }
        loop {
            match NodeMessage::read(&mut output) {
                Ok(Some(NodeMessage::Message(message))) => match super::read(&message) {
                    Some(Answer::Ready(about)) => {
                        let _ = sender.send(Ok(*about));
                    }
                    Some(Answer::Refused { kind, what }) => {
                        let what = format!("{}: {}", self.name, one_line(&what));
                        let _ = sender.send(lost(FailureKind::named(&kind), what));
                    }
                    Some(Answer::Open { rank }) => self.open(rank),
                    Some(Answer::Ended { status }) => self.shared.end(&one_line(&status)),
                    None => {}
                },
                Ok(Some(NodeMessage::Bytes(rank, bytes))) => {
                    if let Some(stream) = self.ranks.get_mut(&rank) {
                        // If the engine no longer reads, it ends the rank in other ways.
                        let _ = stream.write_all(&bytes);
                    }
                }
                Ok(Some(NodeMessage::Closed(rank))) => {
                    if let Some(stream) = self.ranks.remove(&rank) {
                        let _ = stream.shutdown(Shutdown::Both);
                    }
                }
                Ok(Some(NodeMessage::Log(rank, bytes))) => self.log(rank, &bytes),
                Ok(None) => break self.shared.end("the connection was closed"),
                Err(e) => break self.shared.end(&format!("the connection broke: {e}")),
            }
        }
        for stream in self.ranks.values() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Connects a rank of that machine to the engine's socket.
    fn open(&mut self, rank: u32) {
        let Some((socket, _)) = self.shared.place.get() else {
            return;
        };
        let streams = UnixStream::connect(socket).and_then(|own| Ok((own.try_clone()?, own)));
        let Ok((mut from, own)) = streams else {
            return;
        };
        let input = self.input.clone();
        let back = move || {
            node_message::forward(&mut from, rank, |message| {
                let mut input = input.lock().unwrap_or_else(PoisonError::into_inner);
                message.write(&mut *input)
            });
        };
        let name = format!("to-rank-{rank}");
        if std::thread::Builder::new().name(name).spawn(back).is_ok() {
            self.ranks.insert(rank, own);
        }
    }

    /// Appends to the copy of a log.
    fn log(&self, rank: u32, bytes: &[u8]) {
        let Some((_, logs)) = self.shared.place.get() else {
            return;
        };
        let path = match rank {
            LAUNCHER => logs.join(LAUNCHER_LOG),
            rank => logs.join(rank.to_string()).join("stderr.log"),
        };
        let write = || -> io::Result<()> {
            path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
            let mut file = open_plain_with(OpenOptions::new().create(true).append(true), &path)?;
            file.write_all(bytes)
        };
        // A failure to keep a log must not end the run.
        if let Err(e) = write() {
            tracing::warn!("{}: {e}", path.display());
        }
    }
}
