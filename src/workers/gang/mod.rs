//! One generation of ranks: started together, asked together, ended together. A rank that dies, hangs or complains ends the
//! generation; who runs it decides about the next.

use super::frame::Frame;
use super::launch::{Launch, command};
use super::lost::{Lost, LostKind};
use super::{PROTOCOL, frame};
use crate::base::clock::Clock;
use crate::base::text::one_line;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// How often whoever waits looks around.
const TICK: Duration = Duration::from_millis(50);
/// A write that takes longer goes to a rank that does not read.
const WRITE: Duration = Duration::from_secs(60);
/// Ranks that lose a peer say so at once; the peer's own words may come a moment later.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Time to print stacks, then to end, before ranks are killed.
const STACKS: Duration = Duration::from_millis(500);
const GRACE: Duration = Duration::from_secs(5);
/// Bytes of a rank's log that are looked at for its last words.
const TAIL: u64 = 4_096;
/// Longest path of a socket.
const MAX_SOCKET: usize = 100;

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// From the start of the processes to the last one's first words: PyTorch is read from disk, devices wake up.
    pub start: Duration,
    /// One answer of all ranks.
    pub answer: Duration,
    /// A rank that does not beat for so long while it works is stopped or frozen.
    pub silence: Duration,
}

/// Where a generation keeps what it needs.
#[derive(Debug, Clone)]
pub struct Place {
    /// For sockets: short, and this user's alone.
    pub runtime: PathBuf,
    /// The ranks' output, one folder per generation.
    pub logs: PathBuf,
}

/// What one rank answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub frame: Frame,
    /// Until it came.
    pub after: Duration,
}

/// What a reader of a rank's connection passes on.
enum Heard {
    Frame(Frame),
    Closed,
}

struct RankEnd {
    stream: UnixStream,
    process: Process,
    /// Milliseconds of the clock at the last beat.
    beat: Arc<AtomicU64>,
    /// What it said of itself.
    about: Value,
}

/// A process that is known by its number and its beginning: numbers are used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    pid: i32,
    began: u64,
}

/// Ranks that run.
pub struct Gang {
    launcher: Child,
    ranks: Vec<RankEnd>,
    heard: Receiver<(usize, Heard)>,
    limits: Limits,
    clock: Arc<dyn Clock>,
    socket: PathBuf,
    logs: PathBuf,
    over: bool,
}

impl Gang {
    /// Starts the processes and waits until every rank is ready. `broken_off` is asked meanwhile.
    ///
    /// # Errors
    /// They cannot be started, do not come, or are of another version.
    pub fn start(
        mut launch: Launch,
        place: &Place,
        limits: Limits,
        clock: Arc<dyn Clock>,
        broken_off: &mut dyn FnMut() -> bool,
    ) -> Result<Gang, Lost> {
        let fault = |what: String| Lost::new(LostKind::Start, None, what);
        let private = |path: &Path| {
            std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(path)
        };
        let of = |path: &Path| {
            let path = path.display().to_string();
            move |e: io::Error| fault(format!("{path}: {e}"))
        };
        private(&place.runtime).map_err(of(&place.runtime))?;
        std::fs::create_dir_all(&place.logs).map_err(of(&place.logs))?;
        let name = format!(
            "torch-{}-{:08x}.sock",
            std::process::id(),
            crate::workers::package::short_number(&launch.id)
        );
        let socket = place.runtime.join(name);
        if socket.as_os_str().len() > MAX_SOCKET {
            return Err(fault(format!(
                "{} is too long for a socket: set XDG_RUNTIME_DIR to a shorter folder",
                socket.display()
            )));
        }
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).map_err(of(&socket))?;
        listener.set_nonblocking(true).map_err(of(&socket))?;
        launch.socket.clone_from(&socket);
        launch.logs.clone_from(&place.logs);
        let words = place.logs.join("launcher.log");
        let log = File::create(&words).map_err(of(&words))?;
        let errors = log.try_clone().map_err(of(&words))?;
        let python = launch.python.clone();
        let launcher = command(&launch)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .process_group(0)
            .spawn()
            .map_err(|e| fault(format!("{} cannot be started: {e}", python.display())))?;
        let (_, nobody) = sync_channel(1);
        let mut gang = Gang {
            launcher,
            ranks: Vec::new(),
            heard: nobody,
            limits,
            clock,
            socket,
            logs: place.logs.clone(),
            over: false,
        };
        let gathered = gang.gather(&listener, launch.ranks, broken_off);
        let _ = std::fs::remove_file(&gang.socket);
        match gathered {
            Ok(()) => Ok(gang),
            Err(lost) => {
                gang.kill();
                Err(lost)
            }
        }
    }

    /// Takes every rank's connection and waits for its `ready`.
    fn gather(
        &mut self,
        listener: &UnixListener,
        ranks: usize,
        broken_off: &mut dyn FnMut() -> bool,
    ) -> Result<(), Lost> {
        // A few frames of each rank may wait; pieces of weights are taken as they come.
        let (say, heard) = sync_channel(4 * ranks);
        self.heard = heard;
        let begun = self.clock.elapsed();
        let mut ends: Vec<Option<RankEnd>> = (0..ranks).map(|_| None).collect();
        while ends.iter().any(Option::is_none) {
            match listener.accept() {
                Ok((stream, _)) => {
                    let (rank, end) = self.admit(stream, ranks, &say)?;
                    ends[rank] = Some(end);
                    continue;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => {
                    return Err(Lost::new(
                        LostKind::Start,
                        None,
                        format!("the ranks' socket: {e}"),
                    ));
                }
            }
            self.look_around(
                begun,
                self.limits.start,
                broken_off,
                "the ranks did not come",
            )?;
            std::thread::park_timeout(TICK);
        }
        self.ranks = ends.into_iter().flatten().collect();
        let waiting: Vec<usize> = (0..ranks).collect();
        let ready = self.collect(waiting, self.limits.start, "ready", broken_off)?;
        for (end, answer) in self.ranks.iter_mut().zip(ready) {
            end.about = answer.frame.header;
        }
        Ok(())
    }

    /// A rank's first words: which one it is.
    fn admit(
        &self,
        stream: UnixStream,
        ranks: usize,
        say: &SyncSender<(usize, Heard)>,
    ) -> Result<(usize, RankEnd), Lost> {
        let fault =
            |e: io::Error| Lost::new(LostKind::Start, None, format!("a rank's connection: {e}"));
        stream.set_nonblocking(false).map_err(fault)?;
        stream.set_write_timeout(Some(WRITE)).map_err(fault)?;
        stream
            .set_read_timeout(Some(self.limits.start))
            .map_err(fault)?;
        let mut input = BufReader::with_capacity(1 << 20, stream.try_clone().map_err(fault)?);
        let hello = Frame::read(&mut input).map_err(fault)?;
        let hello = hello.map_or(Value::Null, |frame| frame.header);
        stream.set_read_timeout(None).map_err(fault)?;
        let number = |key: &str| hello[key].as_u64();
        if number("protocol") != Some(PROTOCOL) {
            let what = format!(
                "a worker speaks version {} of what is said here, this program {PROTOCOL}",
                hello["protocol"]
            );
            return Err(Lost::new(LostKind::Version, None, what));
        }
        let rank = number("rank")
            .and_then(|rank| usize::try_from(rank).ok())
            .filter(|rank| *rank < ranks);
        let pid = number("pid").and_then(|pid| i32::try_from(pid).ok());
        let (Some(rank), Some(pid), true) = (rank, pid, number("world") == Some(ranks as u64))
        else {
            let what = format!(
                "a worker says {}, which is none of {ranks} ranks",
                one_line(&hello.to_string())
            );
            return Err(Lost::new(LostKind::Version, None, what));
        };
        let beat = Arc::new(AtomicU64::new(self.millis()));
        let end = RankEnd {
            stream,
            process: Process {
                pid,
                began: began(pid),
            },
            beat: beat.clone(),
            about: Value::Null,
        };
        let (say, clock) = (say.clone(), self.clock.clone());
        let listen = move || {
            loop {
                let heard = match Frame::read(&mut input) {
                    Ok(Some(frame)) => {
                        beat.store(clock.elapsed().as_millis() as u64, Ordering::Relaxed);
                        if frame.kind() == "beat" {
                            continue;
                        }
                        Heard::Frame(frame)
                    }
                    Ok(None) | Err(_) => Heard::Closed,
                };
                let closed = matches!(heard, Heard::Closed);
                if say.send((rank, heard)).is_err() || closed {
                    return;
                }
            }
        };
        std::thread::Builder::new()
            .name(format!("rank-{rank}"))
            .spawn(listen)
            .map_err(fault)?;
        Ok((rank, end))
    }

    /// How many ranks there are.
    pub fn world(&self) -> usize {
        self.ranks.len()
    }

    /// What a rank said of itself: versions, devices.
    pub fn about(&self, rank: usize) -> &Value {
        self.ranks.get(rank).map_or(&Value::Null, |end| &end.about)
    }

    /// Sends each rank its frame.
    ///
    /// # Errors
    /// A rank does not read.
    pub fn tell(&mut self, mut frame: impl FnMut(usize) -> Frame) -> Result<(), Lost> {
        for rank in 0..self.ranks.len() {
            self.tell_one(rank, &frame(rank))?;
        }
        Ok(())
    }

    /// Sends one rank a frame.
    ///
    /// # Errors
    /// It does not read.
    pub fn tell_one(&mut self, rank: usize, frame: &Frame) -> Result<(), Lost> {
        let Some(end) = self.ranks.get_mut(rank) else {
            return Err(Lost::new(
                LostKind::Bug,
                Some(rank),
                format!("there is no rank {rank}"),
            ));
        };
        // What it last complained of says more than a broken pipe.
        frame.write(&mut end.stream).map_err(|_| self.why(rank))
    }

    /// Waits for the answer of every rank to what was told, in their order; `pieces` takes those that rank 0 sends before it.
    ///
    /// # Errors
    /// A rank dies, complains, hangs, or takes longer than `limit`.
    pub fn answers(
        &mut self,
        limit: Option<Duration>,
        broken_off: &mut dyn FnMut() -> bool,
        pieces: &mut dyn FnMut(&[u8]),
    ) -> Result<Vec<Answer>, Lost> {
        let waiting = (0..self.ranks.len()).collect();
        self.collect_with(
            waiting,
            limit.unwrap_or(self.limits.answer),
            "done",
            broken_off,
            pieces,
        )
    }

    fn collect(
        &mut self,
        waiting: Vec<usize>,
        limit: Duration,
        kind: &str,
        broken_off: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<Answer>, Lost> {
        self.collect_with(waiting, limit, kind, broken_off, &mut |_| {})
    }

    fn collect_with(
        &mut self,
        mut waiting: Vec<usize>,
        limit: Duration,
        kind: &str,
        broken_off: &mut dyn FnMut() -> bool,
        pieces: &mut dyn FnMut(&[u8]),
    ) -> Result<Vec<Answer>, Lost> {
        let mut begun = self.clock.elapsed();
        let mut answers: Vec<Option<Answer>> = (0..self.ranks.len()).map(|_| None).collect();
        while !waiting.is_empty() {
            match self.heard.recv_timeout(TICK) {
                Ok((rank, Heard::Frame(frame))) if frame.kind() == kind => {
                    waiting.retain(|other| *other != rank);
                    let after = self.clock.elapsed() - begun;
                    answers[rank] = Some(Answer { frame, after });
                }
                Ok((_, Heard::Frame(frame))) if frame.kind() == "piece" => {
                    pieces(&frame.payload);
                    // Weights on their way are progress.
                    begun = self.clock.elapsed();
                }
                Ok((rank, Heard::Frame(frame))) if frame.kind() == "error" => {
                    return Err(self.first_cause(complaint(rank, &frame)));
                }
                Ok((rank, Heard::Frame(frame))) => {
                    let what = format!(
                        "rank {rank} says {:?} where {kind:?} was expected",
                        one_line(frame.kind())
                    );
                    return Err(Lost::new(LostKind::Bug, Some(rank), what));
                }
                Ok((rank, Heard::Closed)) => return Err(self.first_cause(self.gone(rank))),
                Err(RecvTimeoutError::Disconnected) => return Err(self.gone(waiting[0])),
                Err(RecvTimeoutError::Timeout) => {
                    self.silent(&waiting)?;
                    let names: Vec<String> = waiting.iter().map(usize::to_string).collect();
                    let late = format!("no progress: rank {} did not answer", names.join(", "));
                    self.look_around(begun, limit, broken_off, &late)?;
                }
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    /// A rank that does not even beat is stopped or frozen, whatever the others wait for.
    fn silent(&self, waiting: &[usize]) -> Result<(), Lost> {
        let now = self.millis();
        let still = |rank: &&usize| {
            let beat = self.ranks[**rank].beat.load(Ordering::Relaxed);
            Duration::from_millis(now.saturating_sub(beat)) > self.limits.silence
        };
        match waiting.iter().find(still) {
            None => Ok(()),
            Some(rank) => {
                let seconds = self.limits.silence.as_secs_f64();
                let what = format!(
                    "rank {rank} (process {}) has stood still for {seconds:.0} s",
                    self.ranks[*rank].process.pid
                );
                Err(Lost::new(LostKind::Hang, Some(*rank), what))
            }
        }
    }

    /// Time, the launcher, and a stop.
    fn look_around(
        &mut self,
        begun: Duration,
        limit: Duration,
        broken_off: &mut dyn FnMut() -> bool,
        late: &str,
    ) -> Result<(), Lost> {
        if broken_off() {
            return Err(Lost::new(
                LostKind::Stopped,
                None,
                "stopped while ranks were at work",
            ));
        }
        if self.clock.elapsed() - begun > limit {
            let what = format!("{late} within {:.0} s", limit.as_secs_f64());
            return Err(Lost::new(LostKind::Hang, None, what));
        }
        if self.ranks.is_empty()
            && let Ok(Some(status)) = self.launcher.try_wait()
        {
            let words = last_words(&self.logs, None);
            return Err(Lost::new(
                LostKind::Start,
                None,
                format!("torchrun ended before its ranks came ({status}): {words}"),
            ));
        }
        Ok(())
    }

    /// Of several complaints the one that is not about a lost peer.
    fn first_cause(&self, first: Lost) -> Lost {
        if !matches!(first.kind, LostKind::Peers | LostKind::Killed) {
            return first;
        }
        let begun = self.clock.elapsed();
        let mut cause = first;
        while self.clock.elapsed() - begun < LAST_WORDS {
            let other = match self.heard.recv_timeout(TICK) {
                Ok((rank, Heard::Frame(frame))) if frame.kind() == "error" => {
                    complaint(rank, &frame)
                }
                Ok((rank, Heard::Closed)) => self.gone(rank),
                Ok(_) | Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            let weight = |kind: LostKind| match kind {
                LostKind::Peers => 0,
                LostKind::Killed => 1,
                _ => 2,
            };
            if weight(other.kind) > weight(cause.kind) && cause.rank != other.rank {
                cause = other;
            }
        }
        cause
    }

    /// Why a rank cannot be written to.
    fn why(&self, rank: usize) -> Lost {
        self.first_cause(self.gone(rank))
    }

    fn gone(&self, rank: usize) -> Lost {
        let words = last_words(&self.logs, Some(rank));
        let process = self.ranks.get(rank).map_or(0, |end| end.process.pid);
        Lost::new(
            LostKind::Killed,
            Some(rank),
            format!("rank {rank} (process {process}) ended without a word{words}"),
        )
    }

    /// Ends the ranks in order, or by force where they do not.
    pub fn end(mut self) {
        let told = self.tell(|_| Frame::new(json!({"type": "stop"})));
        if told.is_ok() {
            let begun = self.clock.elapsed();
            while self.clock.elapsed() - begun < GRACE {
                if matches!(self.launcher.try_wait(), Ok(Some(_))) {
                    self.over = true;
                    return;
                }
                std::thread::park_timeout(TICK);
            }
        }
        self.kill();
    }

    /// Has every rank print where it stands into its log, then ends all of them. Nothing is left.
    pub fn kill(&mut self) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        let processes: Vec<Process> = self.ranks.iter().map(|end| end.process).collect();
        processes
            .iter()
            .for_each(|process| process.signal(Signal::USR2));
        if !processes.is_empty() {
            std::thread::park_timeout(STACKS);
        }
        processes
            .iter()
            .for_each(|process| process.signal(Signal::TERM));
        // Connections that close end ranks that only wait.
        self.ranks.clear();
        let begun = self.clock.elapsed();
        while self.clock.elapsed() - begun < GRACE
            && processes.iter().any(|process| process.lives())
        {
            // A process that is stopped heeds nothing else.
            processes
                .iter()
                .for_each(|process| process.signal(Signal::KILL));
            std::thread::park_timeout(TICK);
        }
        let _ = self.launcher.kill();
        let _ = self.launcher.wait();
    }

    fn millis(&self) -> u64 {
        self.clock.elapsed().as_millis() as u64
    }
}

impl Drop for Gang {
    fn drop(&mut self) {
        self.kill();
    }
}

impl std::fmt::Debug for Gang {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ranks", self.ranks.len())
    }
}

impl Process {
    fn lives(self) -> bool {
        self.began > 0 && began(self.pid) == self.began
    }

    fn signal(self, signal: Signal) {
        if let (true, Some(pid)) = (self.lives(), Pid::from_raw(self.pid)) {
            let _ = kill_process(pid, signal);
        }
    }
}

/// When a process began, in ticks since the machine did; 0 where there is none, or where it is over and only not yet collected.
fn began(pid: i32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Behind the name, which may hold anything, stand the state and 18 numbers.
    let mut fields = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace();
    let state = fields.next().unwrap_or("Z");
    let began = fields.nth(18).and_then(|word| word.parse().ok());
    began.filter(|_| state != "Z" && state != "X").unwrap_or(0)
}

/// What a worker complains of.
fn complaint(rank: usize, frame: &Frame) -> Lost {
    let header = &frame.header;
    let kind = LostKind::named(header["class"].as_str().unwrap_or_default());
    let message = one_line(
        header["message"]
            .as_str()
            .unwrap_or("an error without words"),
    );
    let message: String = message.chars().take(400).collect();
    Lost::new(kind, Some(rank), format!("rank {rank}: {message}"))
}

/// The last line of a rank's error output, or of the launcher's.
fn last_words(logs: &Path, rank: Option<usize>) -> String {
    let file = match rank {
        None => Some(logs.join("launcher.log")),
        Some(rank) => find_log(logs, rank, 0),
    };
    let read = |path: PathBuf| -> io::Result<String> {
        let mut file = File::open(path)?;
        let end = file.metadata()?.len();
        file.seek(SeekFrom::Start(end.saturating_sub(TAIL)))?;
        let mut bytes = Vec::new();
        file.take(TAIL).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = file.and_then(|path| read(path).ok()).unwrap_or_default();
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    let last: String = one_line(last.unwrap_or_default().trim())
        .chars()
        .take(300)
        .collect();
    match (rank, last.is_empty()) {
        (Some(_), true) => String::new(),
        (Some(_), false) => format!("; its last words: {last}"),
        (None, true) => "it said nothing".into(),
        (None, false) => last,
    }
}

/// torchrun writes `LOGS/<run>/attempt_0/<rank>/stderr.log`.
fn find_log(folder: &Path, rank: usize, depth: usize) -> Option<PathBuf> {
    let own = folder.join(rank.to_string()).join("stderr.log");
    if own.is_file() {
        return Some(own);
    }
    if depth > 3 {
        return None;
    }
    let entries = std::fs::read_dir(folder).ok()?.filter_map(Result::ok);
    let mut folders: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    folders
        .into_iter()
        .rev()
        .find_map(|inner| find_log(&inner, rank, depth + 1))
}

/// Pieces of a flat buffer as frames carry them.
pub fn pieces(values: &[f32]) -> impl Iterator<Item = Frame> + '_ {
    values
        .chunks(frame::PIECE / 4)
        .map(|part| Frame::with(json!({"type": "piece"}), frame::bytes_of(part)))
}
