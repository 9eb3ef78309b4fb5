//! One generation of ranks, on this machine or several: started, addressed and ended together. A rank that dies, hangs or
//! reports an error ends the generation; its owner decides about the next.

mod admit;
pub(super) mod words;

use super::frame::Frame;
use super::group::{GRACE, Group, LAUNCHER_LOG, STACKS, TICK};
use super::launch::{Launch, Launcher};
use super::lost::{Lost, LostKind};
use super::node::Bridge;
use super::{frame, package};
use crate::base::clock::Clock;
use crate::base::files::private_dir;
use crate::base::text::one_line;
use admit::{Heard, RankEnd};
use serde_json::{Value, json};
use std::io;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;
use words::complaint;

/// A turn of waiting, a [`TICK`], that took so long: this process did not run.
const SUSPENDED: Duration = Duration::from_secs(5);
/// Ranks that lose a peer say so at once; the peer's own words may come a moment later.
const LAST_WORDS: Duration = Duration::from_secs(2);
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

/// The ranks of one machine, before they start.
pub enum Crew {
    /// This machine's. Socket and folder of logs are filled in.
    Here(Launch),
    /// Those of a machine that answers.
    There(Bridge),
}

/// The same while they run.
struct Member {
    launcher: Box<dyn Launcher>,
    /// Where the ranks' output stands.
    logs: PathBuf,
}

/// Ranks that run.
pub struct Gang {
    members: Vec<Member>,
    /// Ranks of each machine.
    each: usize,
    ranks: Vec<RankEnd>,
    heard: Receiver<(usize, Heard)>,
    limits: Limits,
    clock: Arc<dyn Clock>,
    logs: PathBuf,
    over: bool,
}

impl Gang {
    /// Starts `each` processes on every machine, which the generation `id` names, and waits until every rank is ready. `broken_off` is
    /// asked meanwhile.
    ///
    /// # Errors
    /// They cannot be started, do not come, or are of another version.
    pub fn start(
        crews: Vec<Crew>,
        each: usize,
        id: &str,
        place: &Place,
        limits: Limits,
        clock: Arc<dyn Clock>,
        broken_off: &mut dyn FnMut() -> bool,
    ) -> Result<Gang, Lost> {
        let (listener, socket) = listen(&place.runtime, id)?;
        let (_, nobody) = sync_channel(1);
        let ranks = each * crews.len();
        let mut gang = Gang {
            members: Vec::new(),
            each,
            ranks: Vec::new(),
            heard: nobody,
            limits,
            clock,
            logs: place.logs.clone(),
            over: false,
        };
        let gathered = gang
            .begin(crews, &socket)
            .and_then(|()| gang.gather(&listener, ranks, broken_off));
        let _ = std::fs::remove_file(&socket);
        match gathered {
            Ok(()) => Ok(gang),
            Err(lost) => {
                gang.kill();
                Err(lost)
            }
        }
    }

    /// Starts the processes of every machine.
    fn begin(&mut self, crews: Vec<Crew>, socket: &Path) -> Result<(), Lost> {
        let alone = crews.len() == 1;
        for (node, crew) in crews.into_iter().enumerate() {
            let logs = match alone {
                true => self.logs.clone(),
                false => node_logs(&self.logs, node),
            };
            let launcher: Box<dyn Launcher> = match crew {
                Crew::Here(launch) => {
                    let launch = Launch {
                        socket: socket.into(),
                        logs: logs.clone(),
                        ..launch
                    };
                    Box::new(Group::start(&launch, self.clock.clone())?)
                }
                Crew::There(mut bridge) => {
                    bridge.launch(socket, &logs)?;
                    Box::new(bridge)
                }
            };
            self.members.push(Member { launcher, logs });
        }
        Ok(())
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
                    let (rank, end) =
                        RankEnd::admit(stream, ranks, self.limits.start, &self.clock, &say)?;
                    if let Some(member) = self.members.get_mut(rank / self.each) {
                        member.launcher.admit(end.pid);
                    }
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

    /// Waits for the answer of every rank to the request, in their order; `pieces` takes those that rank 0 sends before it.
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
        let mut wait = Wait::from(self.clock.elapsed());
        let mut answers: Vec<Option<Answer>> = (0..self.ranks.len()).map(|_| None).collect();
        while !waiting.is_empty() {
            let heard = self.heard.recv_timeout(TICK);
            wait.turn(self.clock.elapsed());
            match heard {
                Ok((rank, Heard::Frame(frame))) if frame.kind() == kind => {
                    waiting.retain(|other| *other != rank);
                    let after = self.clock.elapsed() - wait.begun;
                    answers[rank] = Some(Answer { frame, after });
                }
                Ok((_, Heard::Frame(frame))) if frame.kind() == "piece" => {
                    pieces(&frame.payload);
                    // Weights on their way are progress.
                    wait.begun = self.clock.elapsed();
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
                    self.silent(&waiting, wait.woken)?;
                    let names: Vec<String> = waiting.iter().map(usize::to_string).collect();
                    let late = format!("no progress: rank {} did not answer", names.join(", "));
                    self.look_around(wait.begun, limit, broken_off, &late)?;
                }
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    /// A rank that does not even beat is stopped or frozen, whatever the others wait for. `woken`: when this process went on after a
    /// pause of its own.
    fn silent(&self, waiting: &[usize], woken: Duration) -> Result<(), Lost> {
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
        if self.ranks.is_empty() {
            for member in &mut self.members {
                if let Some(status) = member.launcher.ended() {
                    return Err(never_came(member, &status));
                }
            }
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
        let words = self
            .members
            .get(rank / self.each)
            .map_or_else(String::new, |member| {
                match words::of_rank(&member.logs, rank % self.each) {
                    none if none.is_empty() => member.launcher.last_words(),
                    words => words,
                }
            });
        let what = format!("{} ended without a message{words}", self.name(rank));
        Lost::new(LostKind::Killed, Some(rank), what)
    }

    /// `rank 3 (process 4711 on gpu2)`.
    fn name(&self, rank: usize) -> String {
        let pid = self.ranks.get(rank).map_or(0, |end| end.pid);
        let machine = self.members.get(rank / self.each);
        let machine = machine.and_then(|member| member.launcher.machine());
        let machine = machine.map_or_else(String::new, |name| format!(" on {name}"));
        format!("rank {rank} (process {pid}{machine})")
    }

    /// Ends the ranks in order, or by force where they do not.
    pub fn end(mut self) {
        let told = self.tell(|_| Frame::new(json!({"type": "stop"})));
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

    /// Has every rank print where it stands into its log, then ends all of them. Nothing is left.
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
        // Connections that close end ranks that only wait.
        self.ranks.clear();
        members.iter_mut().for_each(|m| m.launcher.kill());
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

/// The socket at which ranks come, in a folder that is this user's alone.
pub(super) fn listen(runtime: &Path, id: &str) -> Result<(UnixListener, PathBuf), Lost> {
    let fault = |what: String| Lost::new(LostKind::Start, None, what);
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

/// torchrun ended, and no rank had come.
fn never_came(member: &Member, status: &str) -> Lost {
    // One rank alone has no torchrun.
    let log = member.logs.join(LAUNCHER_LOG);
    let (who, log) = match log.is_file() {
        true => ("torchrun ended before its ranks connected", log),
        false => (
            "the rank ended before it connected",
            member.logs.join("0/stderr.log"),
        ),
    };
    let words = match words::last_line(&log) {
        none if none.is_empty() => "it said nothing".into(),
        words => words,
    };
    let machine = member.launcher.machine();
    let machine = machine.map_or_else(String::new, |name| format!("{name}: "));
    let what = format!("{machine}{who} ({status}): {words}");
    Lost::new(LostKind::Start, None, what)
}

/// The folder of one machine's logs, where there are several.
fn node_logs(logs: &Path, node: usize) -> PathBuf {
    logs.join(format!("node-{node}"))
}

/// How long is waited, by a clock that runs on while this process is suspended (ctrl-Z): it has heard nothing then, whatever ranks did.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Wait {
    begun: Duration,
    turned: Duration,
    /// Zero before any pause.
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

    /// Another turn, that has ended now.
    fn turn(&mut self, now: Duration) {
        if now - self.turned > SUSPENDED {
            (self.begun, self.woken) = (now, now);
        }
        self.turned = now;
    }
}

/// Pieces of a flat buffer as frames carry them.
pub fn pieces(values: &[f32]) -> impl Iterator<Item = Frame> + '_ {
    values
        .chunks(frame::PIECE / 4)
        .map(|part| Frame::with(json!({"type": "piece"}), frame::bytes_of(part)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three minutes of ctrl-Z are no silence of the ranks.
    #[test]
    fn a_pause_of_this_process_begins_the_wait_again() {
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
