//! The engine's end of another machine: a child process (ssh, srun) whose input and output carry the connections of all ranks there.
//! Each of them is led to the engine's own socket, where it comes as a rank of this machine would.

use super::parcel::{self, LAUNCHER, Parcel};
use super::{About, Answer, Ask, Orders};
use crate::base::clock::Clock;
use crate::base::files::open_plain_with;
use crate::base::text::one_line;
use crate::workers::gang::words::last_line;
use crate::workers::group::{GRACE, LAUNCHER_LOG, STACKS, TICK};
use crate::workers::launch::Launcher;
use crate::workers::lost::{Lost, LostKind};
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

/// One machine that is reached.
pub struct Bridge {
    name: String,
    child: Child,
    input: Arc<Mutex<ChildStdin>>,
    heard: Receiver<Result<About, Lost>>,
    shared: Arc<Shared>,
    /// What ssh or srun says.
    errors: PathBuf,
    orders: Option<Orders>,
    clock: Arc<dyn Clock>,
}

/// The inputs and results of the reading thread.
#[derive(Default)]
struct Shared {
    /// The engine's socket and the folder of the machine's logs, once ranks are asked for.
    place: OnceLock<(PathBuf, PathBuf)>,
    /// How torchrun there ended, or the connection.
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
    /// Starts the connection by this command line, with what its program says in the file `errors`.
    ///
    /// # Errors
    /// There is no such program.
    pub fn dial(
        name: &str,
        line: &[OsString],
        ask: &Ask,
        errors: &Path,
        clock: Arc<dyn Clock>,
    ) -> Result<Bridge, Lost> {
        let fault =
            |e: io::Error| Lost::new(LostKind::Start, None, format!("{}: {e}", line[0].display()));
        let words = File::create(errors).map_err(fault)?;
        let mut child = Command::new(&line[0])
            .args(&line[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(words)
            .process_group(0)
            .spawn()
            .map_err(fault)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(fault(io::ErrorKind::BrokenPipe.into()));
        };
        let input = Arc::new(Mutex::new(input));
        let shared = Arc::new(Shared::default());
        let (say, heard) = sync_channel(1);
        let reader = Reader {
            name: name.into(),
            input: input.clone(),
            shared: shared.clone(),
            ranks: HashMap::new(),
        };
        std::thread::Builder::new()
            .name(format!("node-{name}"))
            .spawn(move || reader.run(output, &say))
            .map_err(fault)?;
        let bridge = Bridge {
            name: name.into(),
            child,
            input,
            heard,
            shared,
            errors: errors.into(),
            orders: None,
            clock,
        };
        // One that hangs up at once says why in what follows.
        let _ = bridge.send(&Parcel::Words(super::value(ask)));
        Ok(bridge)
    }

    /// Waits for what the machine says of itself.
    ///
    /// # Errors
    /// It cannot be reached, has no program or PyTorch, or ones of another version.
    pub fn about(
        &mut self,
        limit: Duration,
        broken_off: &mut dyn FnMut() -> bool,
    ) -> Result<About, Lost> {
        let begun = self.clock.elapsed();
        loop {
            match self.heard.recv_timeout(TICK) {
                Ok(Ok(about)) => return Ok(about),
                Ok(Err(lost)) => return Err(lost),
                Err(RecvTimeoutError::Disconnected) => return Err(self.unreachable()),
                Err(RecvTimeoutError::Timeout) if broken_off() => {
                    let what = "stopped while machines were called";
                    return Err(Lost::new(LostKind::Stopped, None, what));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if self.clock.elapsed() - begun > limit {
                let what = format!("{}: no answer within {} s", self.name, limit.as_secs());
                return Err(Lost::new(LostKind::Unreachable, None, what));
            }
        }
    }

    /// What its ranks will be asked to do.
    pub fn with_orders(mut self, orders: Orders) -> Bridge {
        self.orders = Some(orders);
        self
    }

    /// Starts the ranks there; they come to `socket`, and their logs into `logs`.
    ///
    /// # Errors
    /// The machine is gone.
    pub fn launch(&mut self, socket: &Path, logs: &Path) -> Result<(), Lost> {
        let fault =
            |e: io::Error| Lost::new(LostKind::Start, None, format!("{}: {e}", logs.display()));
        std::fs::create_dir_all(logs).map_err(fault)?;
        let _ = self.shared.place.set((socket.into(), logs.into()));
        let orders = self.orders.take().map(|orders| super::value(&orders));
        self.send(&Parcel::Words(orders.unwrap_or_default()))
            .map_err(|_| self.unreachable())
    }

    fn send(&self, parcel: &Parcel) -> io::Result<()> {
        let mut input = self.input.lock().unwrap_or_else(PoisonError::into_inner);
        parcel.write(&mut *input)
    }

    /// The connection is over, with the last words of what carried it.
    fn unreachable(&mut self) -> Lost {
        // Its words may come a moment after its end.
        let begun = self.clock.elapsed();
        while self.clock.elapsed() - begun < STACKS && matches!(self.child.try_wait(), Ok(None)) {
            crate::base::clock::pause(TICK);
        }
        let said = match last_line(&self.errors) {
            none if none.is_empty() => self.shared.ended().unwrap_or_default(),
            words => words,
        };
        let what = format!("{}: {said}", self.name);
        Lost::new(LostKind::Unreachable, None, what)
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

    fn last_words(&self) -> String {
        match last_line(&self.errors) {
            none if none.is_empty() => String::new(),
            words => format!("; {}: {words}", self.name),
        }
    }

    /// The machine goes through all three by itself.
    fn ask_for_stacks(&mut self) {
        let _ = self.send(&Parcel::Words(super::value(&Orders::End)));
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
        // Its input closes with it, and the other end then ends what it started.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads what a machine sends and leads it on.
struct Reader {
    name: String,
    input: Arc<Mutex<ChildStdin>>,
    shared: Arc<Shared>,
    /// The ends of ranks' connections that the engine's socket has the other ends of.
    ranks: HashMap<u32, UnixStream>,
}

impl Reader {
    fn run(mut self, output: ChildStdout, say: &SyncSender<Result<About, Lost>>) {
        let mut output = BufReader::with_capacity(1 << 20, output);
        let lost = |kind, what: String| Err(Lost::new(kind, None, what));
        if let Err(said) = parcel::greeted(&mut output) {
            if !said.is_empty() {
                let what = format!("{}: it says {said:?} where llmtui was called", self.name);
                let _ = say.send(lost(LostKind::Unreachable, what));
            }
            return self.shared.end("it hung up");
        }
        loop {
            match Parcel::read(&mut output) {
                Ok(Some(Parcel::Words(words))) => match super::read(&words) {
                    Some(Answer::Ready(about)) => {
                        let _ = say.send(Ok(*about));
                    }
                    Some(Answer::Refused { kind, what }) => {
                        let what = format!("{}: {}", self.name, one_line(&what));
                        let _ = say.send(lost(LostKind::named(&kind), what));
                    }
                    Some(Answer::Open { rank }) => self.open(rank),
                    Some(Answer::Ended { status }) => self.shared.end(&one_line(&status)),
                    None => {}
                },
                Ok(Some(Parcel::Bytes(rank, bytes))) => {
                    if let Some(stream) = self.ranks.get_mut(&rank) {
                        // The engine that no longer listens ends the rank by other ways.
                        let _ = stream.write_all(&bytes);
                    }
                }
                Ok(Some(Parcel::Closed(rank))) => {
                    if let Some(stream) = self.ranks.remove(&rank) {
                        let _ = stream.shutdown(Shutdown::Both);
                    }
                }
                Ok(Some(Parcel::Log(rank, bytes))) => self.log(rank, &bytes),
                Ok(None) => break self.shared.end("the connection was closed"),
                Err(e) => break self.shared.end(&format!("the connection broke: {e}")),
            }
        }
        for stream in self.ranks.values() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// A rank of that machine comes to the engine's socket.
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
            parcel::hand_on(&mut from, rank, |parcel| {
                let mut input = input.lock().unwrap_or_else(PoisonError::into_inner);
                parcel.write(&mut *input)
            });
        };
        let name = format!("to-rank-{rank}");
        if std::thread::Builder::new().name(name).spawn(back).is_ok() {
            self.ranks.insert(rank, own);
        }
    }

    /// Adds to the copy of a log.
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
        // A log that cannot be kept ends no run.
        if let Err(e) = write() {
            tracing::warn!("{}: {e}", path.display());
        }
    }
}
