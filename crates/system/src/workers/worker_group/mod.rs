//! One generation of ranks, on this machine or several: started, addressed and ended together. A rank that dies, hangs or
//! reports an error ends the generation; its owner decides about the next.

mod admit;
pub(super) mod errors;

use super::failure::{FailureKind, WorkerFailure};
use super::frame::Frame;
use super::group::{GRACE, Group, LAUNCHER_LOG, STACKS, TICK};
use super::launch::{Launch, Launcher};
use super::node::Bridge;
use super::{frame, package};
use crate::base::clock::Clock;
use crate::base::files::private_dir;
use crate::base::text::one_line;
use admit::{RankEnd, Received};
use errors::reported_error;
use serde_json::{Value, json};
use std::io;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

/// If one iteration of a wait (a [`TICK`]) takes this long, this process was suspended.
const SUSPENDED: Duration = Duration::from_secs(5);
/// Ranks that lose a peer report it at once; the peer's own error may arrive a moment later.
const CAUSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest path of a socket.
const MAX_SOCKET: usize = 100;

/// Timeouts.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// From the start of the processes to the last hello: PyTorch is read from disk, devices are initialized.
    pub start: Duration,
    /// One answer of all ranks.
    pub answer: Duration,
    /// Without a heartbeat for this long while it works, a rank counts as stopped or frozen.
    pub silence: Duration,
}

/// Folders of a generation.
#[derive(Debug, Clone)]
pub struct WorkerDirs {
    /// For sockets: a short path, private to this user.
    pub runtime: PathBuf,
    /// The ranks' output, one folder per generation.
    pub logs: PathBuf,
}

/// The answer of one rank.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub frame: Frame,
    /// Time until it arrived.
    pub after: Duration,
}

/// The ranks of one machine, before they start.
pub enum NodeLaunch {
    /// On this machine. Socket and log folder are filled in later.
    Local(Launch),
    /// On another machine, already connected.
    Remote(Bridge),
}

/// The ranks of one machine, running.
struct NodeWorkers {
    launcher: Box<dyn Launcher>,
    /// Folder of the ranks' output.
    logs: PathBuf,
}

/// The running ranks of all machines.
pub struct WorkerGroup {
    members: Vec<NodeWorkers>,
    /// Ranks per machine.
    each: usize,
    ranks: Vec<RankEnd>,
    receiver: Receiver<(usize, Received)>,
    limits: Limits,
    clock: Arc<dyn Clock>,
    logs: PathBuf,
    over: bool,
}

impl WorkerGroup {
    /// Starts `each` processes on every machine as generation `id`, and waits until every rank is ready. `broken_off` is
    /// polled meanwhile.
    ///
    /// # Errors
    /// They cannot be started, do not connect, or have another version.
    pub fn start(
        node_launches: Vec<NodeLaunch>,
        each: usize,
        id: &str,
        place: &WorkerDirs,
        limits: Limits,
        clock: Arc<dyn Clock>,
        broken_off: &mut dyn FnMut() -> bool,
    ) -> Result<WorkerGroup, WorkerFailure> {
        let (listener, socket) = listen(&place.runtime, id)?;
        let (_, nobody) = sync_channel(1);
        let ranks = each * node_launches.len();
        let mut workers = WorkerGroup {
            members: Vec::new(),
            each,
            ranks: Vec::new(),
            receiver: nobody,
            limits,
            clock,
            logs: place.logs.clone(),
            over: false,
        };
        let gathered = workers
            .begin(node_launches, &socket)
            .and_then(|()| workers.gather(&listener, ranks, broken_off));
        let _ = std::fs::remove_file(&socket);
        match gathered {
            Ok(()) => Ok(workers),
            Err(lost) => {
                workers.kill();
                Err(lost)
            }
        }
    }

    /// Starts the processes of every machine.
    fn begin(
        &mut self,
        node_launches: Vec<NodeLaunch>,
        socket: &Path,
    ) -> Result<(), WorkerFailure> {
        let alone = node_launches.len() == 1;
        for (node, node_launch) in node_launches.into_iter().enumerate() {
            let logs = match alone {
                true => self.logs.clone(),
                false => node_logs(&self.logs, node),
            };
            let launcher: Box<dyn Launcher> = match node_launch {
                NodeLaunch::Local(launch) => {
                    let launch = Launch {
                        socket: socket.into(),
                        logs: logs.clone(),
                        ..launch
                    };
                    Box::new(Group::start(&launch, self.clock.clone())?)
                }
                NodeLaunch::Remote(mut bridge) => {
                    bridge.launch(socket, &logs)?;
                    Box::new(bridge)
                }
            };
            self.members.push(NodeWorkers { launcher, logs });
        }
        Ok(())
    }

    /// Accepts every rank's connection and waits for its `ready`.
    fn gather(
        &mut self,
        listener: &UnixListener,
        ranks: usize,
        broken_off: &mut dyn FnMut() -> bool,
    ) -> Result<(), WorkerFailure> {
        // A few frames per rank may be queued; pieces of weights are consumed as they arrive.
        let (sender, receiver) = sync_channel(4 * ranks);
        self.receiver = receiver;
        let begun = self.clock.elapsed();
        let mut ends: Vec<Option<RankEnd>> = (0..ranks).map(|_| None).collect();
        while ends.iter().any(Option::is_none) {
            match listener.accept() {
                Ok((stream, _)) => {
                    let (rank, end) =
                        RankEnd::admit(stream, ranks, self.limits.start, &self.clock, &sender)?;
                    if let Some(member) = self.members.get_mut(rank / self.each) {
                        member.launcher.admit(end.pid);
                    }
                    ends[rank] = Some(end);
                    continue;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => {
                    return Err(WorkerFailure::new(
                        FailureKind::Start,
                        None,
                        format!("the ranks' socket: {e}"),
                    ));
                }
            }
            self.check_progress(
                begun,
                self.limits.start,
                broken_off,
                "the ranks did not connect",
            )?;
            crate::base::clock::pause(TICK);
        }
        self.ranks = ends.into_iter().flatten().collect();
        let waiting: Vec<usize> = (0..ranks).collect();
        let ready = self.collect(waiting, self.limits.start, "ready", broken_off)?;
        for (end, answer) in self.ranks.iter_mut().zip(ready) {
            end.about = answer.frame.header;
        }
        Ok(())
    }

    /// The number of ranks.
    pub fn world(&self) -> usize {
        self.ranks.len()
    }

    /// A rank's hello: versions, devices.
    pub fn about(&self, rank: usize) -> &Value {
        self.ranks.get(rank).map_or(&Value::Null, |end| &end.about)
    }

    /// Sends each rank its frame.
    ///
    /// # Errors
    /// A rank does not read.
    pub fn send_each(
        &mut self,
        mut frame: impl FnMut(usize) -> Frame,
    ) -> Result<(), WorkerFailure> {
        for rank in 0..self.ranks.len() {
            self.send_to(rank, &frame(rank))?;
        }
        Ok(())
    }

    /// Sends one rank a frame.
    ///
    /// # Errors
    /// It does not read.
    pub fn send_to(&mut self, rank: usize, frame: &Frame) -> Result<(), WorkerFailure> {
        let Some(end) = self.ranks.get_mut(rank) else {
            return Err(WorkerFailure::new(
                FailureKind::Bug,
                Some(rank),
                format!("there is no rank {rank}"),
            ));
        };
        // The rank's last error explains more than a broken pipe.
        frame
            .write(&mut end.stream)
            .map_err(|_| self.write_error(rank))
    }

    /// Waits for the answer of every rank, in rank order; `pieces` receives those that rank 0 sends before it.
    ///
    /// # Errors
    /// A rank dies, reports an error, hangs, or takes longer than `limit`.
    pub fn answers(
        &mut self,
        limit: Option<Duration>,
        broken_off: &mut dyn FnMut() -> bool,
        pieces: &mut dyn FnMut(&[u8]),
    ) -> Result<Vec<Answer>, WorkerFailure> {
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
    ) -> Result<Vec<Answer>, WorkerFailure> {
        self.collect_with(waiting, limit, kind, broken_off, &mut |_| {})
    }

    fn collect_with(
        &mut self,
        mut waiting: Vec<usize>,
        limit: Duration,
        kind: &str,
        broken_off: &mut dyn FnMut() -> bool,
        pieces: &mut dyn FnMut(&[u8]),
    ) -> Result<Vec<Answer>, WorkerFailure> {
        let mut wait = Wait::from(self.clock.elapsed());
        let mut answers: Vec<Option<Answer>> = (0..self.ranks.len()).map(|_| None).collect();
        while !waiting.is_empty() {
            let received = self.receiver.recv_timeout(TICK);
            wait.turn(self.clock.elapsed());
            match received {
                Ok((rank, Received::Frame(frame))) if frame.kind() == kind => {
                    waiting.retain(|other| *other != rank);
                    let after = self.clock.elapsed() - wait.begun;
                    answers[rank] = Some(Answer { frame, after });
                }
                Ok((_, Received::Frame(frame))) if frame.kind() == "piece" => {
                    pieces(&frame.payload);
                    // Weights in transfer are progress.
                    wait.begun = self.clock.elapsed();
                }
                Ok((rank, Received::Frame(frame))) if frame.kind() == "error" => {
                    return Err(self.root_cause(reported_error(rank, &frame)));
                }
                Ok((rank, Received::Frame(frame))) => {
                    let what = format!(
                        "rank {rank} says {:?} where {kind:?} was expected",
                        one_line(frame.kind())
                    );
                    return Err(WorkerFailure::new(FailureKind::Bug, Some(rank), what));
                }
                Ok((rank, Received::Closed)) => return Err(self.root_cause(self.ended_rank(rank))),
                Err(RecvTimeoutError::Disconnected) => return Err(self.ended_rank(waiting[0])),
                Err(RecvTimeoutError::Timeout) => {
                    self.check_heartbeats(&waiting, wait.woken)?;
                    let names: Vec<String> = waiting.iter().map(usize::to_string).collect();
                    let late = format!("no progress: rank {} did not answer", names.join(", "));
                    self.check_progress(wait.begun, limit, broken_off, &late)?;
                }
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    /// Fails if a rank sends no heartbeats: it is stopped or frozen, whatever the others wait for. `woken`: when this process
    /// resumed after a suspension.
    fn check_heartbeats(&self, waiting: &[usize], woken: Duration) -> Result<(), WorkerFailure> {
        let (now, woken) = (self.millis(), woken.as_millis() as u64);
        let still = |rank: &&usize| {
            let beat = self.ranks[**rank].beat.load(Ordering::Relaxed).max(woken);
            Duration::from_millis(now.saturating_sub(beat)) > self.limits.silence
        };
        match waiting.iter().find(still) {
            None => Ok(()),
            Some(rank) => {
                let seconds = self.limits.silence.as_secs_f64();
                let what = format!("{} was stopped for {seconds:.0} s", self.name(*rank));
                Err(WorkerFailure::new(FailureKind::Hang, Some(*rank), what))
            }
        }
    }

    /// Checks for a stop request, the time limit, and launchers that ended.
    fn check_progress(
        &mut self,
        begun: Duration,
        limit: Duration,
        broken_off: &mut dyn FnMut() -> bool,
        late: &str,
    ) -> Result<(), WorkerFailure> {
        if broken_off() {
            return Err(WorkerFailure::new(
                FailureKind::Stopped,
                None,
                "stopped while ranks were at work",
            ));
        }
        if self.clock.elapsed() - begun > limit {
            let what = format!("{late} within {:.0} s", limit.as_secs_f64());
            return Err(WorkerFailure::new(FailureKind::Hang, None, what));
        }
        if self.ranks.is_empty() {
            for member in &mut self.members {
                if let Some(status) = member.launcher.ended() {
                    return Err(launch_failed(member, &status));
                }
            }
        }
        Ok(())
    }

    /// Of several errors, the one that is not about a lost peer.
    fn root_cause(&self, first: WorkerFailure) -> WorkerFailure {
        if !matches!(first.kind, FailureKind::Peers | FailureKind::Killed) {
            return first;
        }
        let begun = self.clock.elapsed();
        let mut cause = first;
        while self.clock.elapsed() - begun < CAUSE_TIMEOUT {
            let other = match self.receiver.recv_timeout(TICK) {
                Ok((rank, Received::Frame(frame))) if frame.kind() == "error" => {
                    reported_error(rank, &frame)
                }
                Ok((rank, Received::Closed)) => self.ended_rank(rank),
                Ok(_) | Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            let weight = |kind: FailureKind| match kind {
                FailureKind::Peers => 0,
                FailureKind::Killed => 1,
                _ => 2,
            };
            if weight(other.kind) > weight(cause.kind) && cause.rank != other.rank {
                cause = other;
            }
        }
        cause
    }

    /// Why a rank cannot be written to.
    fn write_error(&self, rank: usize) -> WorkerFailure {
        self.root_cause(self.ended_rank(rank))
    }

    fn ended_rank(&self, rank: usize) -> WorkerFailure {
        let errors = self
            .members
            .get(rank / self.each)
            .map_or_else(String::new, |member| {
                match errors::of_rank(&member.logs, rank % self.each) {
                    none if none.is_empty() => member.launcher.failure_detail(),
                    errors => errors,
                }
            });
        let what = format!("{} ended without a message{errors}", self.name(rank));
        WorkerFailure::new(FailureKind::Killed, Some(rank), what)
    }

    /// `rank 3 (process 4711 on gpu2)`.
    fn name(&self, rank: usize) -> String {
        let pid = self.ranks.get(rank).map_or(0, |end| end.pid);
        let machine = self.members.get(rank / self.each);
        let machine = machine.and_then(|member| member.launcher.machine());
        let machine = machine.map_or_else(String::new, |name| format!(" on {name}"));
        format!("rank {rank} (process {pid}{machine})")
    }

    /// Stops the ranks in an orderly way, or by force if they do not comply.
    pub fn end(mut self) {
        let told = self.send_each(|_| Frame::new(json!({"type": "stop"})));
        if told.is_ok() {
            let begun = self.clock.elapsed();
            while self.clock.elapsed() - begun < GRACE {
                let mut members = self.members.iter_mut();
                if members.all(|member| member.launcher.ended().is_some()) {
                    self.over = true;
                    return;
                }
                crate::base::clock::pause(TICK);
            }
        }
        self.kill();
    }

    /// Has every rank print its stacks into its log, then kills all of them. No process is left.
    pub fn kill(&mut self) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        let members = &mut self.members;
        members.iter_mut().for_each(|m| m.launcher.ask_for_stacks());
        if !self.ranks.is_empty() {
            crate::base::clock::pause(STACKS);
        }
        members.iter_mut().for_each(|m| m.launcher.terminate());
        // Closing the connections ends ranks that only wait.
        self.ranks.clear();
        members.iter_mut().for_each(|m| m.launcher.kill());
    }

    fn millis(&self) -> u64 {
        self.clock.elapsed().as_millis() as u64
    }
}

impl Drop for WorkerGroup {
    fn drop(&mut self) {
        self.kill();
    }
}

impl std::fmt::Debug for WorkerGroup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ranks", self.ranks.len())
    }
}

/// The socket to which ranks connect, in a folder private to this user.
pub(super) fn listen(runtime: &Path, id: &str) -> Result<(UnixListener, PathBuf), WorkerFailure> {
    let fault = |what: String| WorkerFailure::new(FailureKind::Start, None, what);
    let of = |path: &Path, e: io::Error| fault(format!("{}: {e}", path.display()));
    private_dir(runtime).map_err(|e| fault(e.to_string()))?;
    let socket = runtime.join(format!(
        "torch-{}-{:08x}.sock",
        std::process::id(),
        package::short_number(id)
    ));
    if socket.as_os_str().len() > MAX_SOCKET {
        return Err(fault(format!(
            "{} is too long for a socket: set XDG_RUNTIME_DIR to a shorter folder",
            socket.display()
        )));
    }
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket).map_err(|e| of(&socket, e))?;
    listener.set_nonblocking(true).map_err(|e| of(&socket, e))?;
    Ok((listener, socket))
}

/// torchrun ended before any rank connected.
fn launch_failed(member: &NodeWorkers, status: &str) -> WorkerFailure {
    // A single rank has no torchrun.
    let log = member.logs.join(LAUNCHER_LOG);
    let (who, log) = match log.is_file() {
        true => ("torchrun ended before its ranks connected", log),
        false => (
            "the rank ended before it connected",
            member.logs.join("0/stderr.log"),
        ),
    };
    let errors = match errors::last_line(&log) {
        none if none.is_empty() => "it said nothing".into(),
        errors => errors,
    };
    let machine = member.launcher.machine();
    let machine = machine.map_or_else(String::new, |name| format!("{name}: "));
    let what = format!("{machine}{who} ({status}): {errors}");
    WorkerFailure::new(FailureKind::Start, None, what)
}

/// The folder of one machine's logs, if there are several machines.
fn node_logs(logs: &Path, node: usize) -> PathBuf {
    logs.join(format!("node-{node}"))
}

/// The start of a wait. The clock keeps running while this process is suspended (ctrl-Z), and no messages arrive then, so a
/// suspension restarts the wait.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Wait {
    begun: Duration,
    turned: Duration,
    /// When this process last resumed from a suspension; zero before any.
    woken: Duration,
}

impl Wait {
    fn from(begun: Duration) -> Wait {
        Wait {
            begun,
            turned: begun,
            woken: Duration::ZERO,
        }
    }

    /// Records that an iteration of the wait has ended.
    fn turn(&mut self, now: Duration) {
        if now - self.turned > SUSPENDED {
            (self.begun, self.woken) = (now, now);
        }
        self.turned = now;
    }
}

/// A flat buffer in pieces of one frame each.
pub fn pieces(values: &[f32]) -> impl Iterator<Item = Frame> + '_ {
    values
        .chunks(frame::PIECE / 4)
        .map(|part| Frame::with(json!({"type": "piece"}), frame::bytes_of(part)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three minutes of ctrl-Z do not count as silence of the ranks.
    #[test]
    fn a_suspension_of_this_process_restarts_the_wait() {
        let at = Duration::from_millis;
        let mut wait = Wait::from(at(1000));
        wait.turn(at(1100));
        wait.turn(at(5000));
        assert_eq!((wait.begun, wait.woken), (at(1000), at(0)));
        wait.turn(at(185_000));
        assert_eq!((wait.begun, wait.woken), (at(185_000), at(185_000)));
        wait.turn(at(185_100));
        assert_eq!(wait.begun, at(185_000));
    }
}
