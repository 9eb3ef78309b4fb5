//! The processes around the program: this process starts the guard, reads the program's output and waits. The guard, which
//! has one thread (the kernel lets no other leave its namespaces), sets up isolation, starts the program and kills it at its
//! deadline, or when this process is gone: then its input ends.

use super::{End, Isolation, Job, Limits, Outcome, Sandbox, SandboxError, VERB, find, walls};
use crate::base::clock::{Clock, SystemClock};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, getpid, kill_process, kill_process_group};
use serde::{Deserialize, Serialize};
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Longer than the guard needs for its own work, on a machine that does much else.
const GRACE: Duration = Duration::from_secs(20);
/// How often somebody looks whether somebody is still there.
const GLANCE: Duration = Duration::from_millis(3);
/// How a guard ends whose program was late.
const LATE: Signal = Signal::USR2;
/// Names tried for a folder before the fault is reported.
const ROOMS: u32 = 16;
/// Longest order.
const MAX_ORDER: usize = 16 << 20;

/// The guard's request, in one line of JSON.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    job: Job,
    isolation: Isolation,
    limits: Limits,
    /// An empty folder.
    room: PathBuf,
    /// Where the guard says why nothing was run.
    report: PathBuf,
}

/// Why nothing was run.
#[derive(Debug, Serialize, Deserialize)]
enum Refusal {
    NoWalls(String),
    NotStarted(String),
}

impl Sandbox {
    /// Runs a program to its end.
    ///
    /// # Errors
    /// Walls that this machine does not give, a program that is not there. What the program does is an [`Outcome`].
    pub fn run(&self, job: &Job) -> Result<Outcome, SandboxError> {
        let broken = |e: io::Error| SandboxError::Broken(e.to_string());
        let place = Room::new().map_err(broken)?;
        let order = Order {
            job: job.clone(),
            isolation: self.isolation,
            limits: self.limits,
            room: place.0.join("room"),
            report: place.0.join("report"),
        };
        fs::create_dir(&order.room).map_err(broken)?;
        let mut line = serde_json::to_vec(&order).map_err(|e| broken(e.into()))?;
        line.push(b'\n');
        let mut guard = Command::new(&self.program)
            .arg(VERB)
            .process_group(0)
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(broken)?;
        let heard = self.hear(&mut guard, &line);
        if heard.is_err() {
            let _ = guard.kill();
            let _ = guard.wait();
        }
        let refusal = fs::read(&order.report).ok();
        let name = || job.command.first().cloned().unwrap_or_default();
        match refusal.and_then(|text| serde_json::from_slice(&text).ok()) {
            Some(Refusal::NoWalls(why)) => Err(SandboxError::Unavailable(why)),
            Some(Refusal::NotStarted(why)) => Err(SandboxError::Start(name(), why)),
            None => heard.map_err(broken),
        }
    }

    /// What the program writes and how it ends.
    fn hear(&self, guard: &mut Child, order: &[u8]) -> io::Result<Outcome> {
        let (tell, told) = channel();
        let pipes: [Option<Box<dyn Read + Send>>; 2] = [
            guard.stdout.take().map(|s| Box::new(s) as _),
            guard.stderr.take().map(|s| Box::new(s) as _),
        ];
        for (stream, pipe) in pipes.into_iter().enumerate() {
            let (tell, most) = (tell.clone(), self.limits.output);
            if let Some(pipe) = pipe {
                std::thread::spawn(move || listen(stream, pipe, most, &tell));
            }
        }
        // Closing this pipe makes the guard end.
        let mut input = guard.stdin.take();
        if let Some(input) = &mut input {
            input.write_all(order)?;
        }
        let clock = SystemClock::new();
        let seconds = self.limits.seconds.clamp(0.01, 1e6);
        let deadline = Duration::from_secs_f64(seconds) + GRACE;
        let (mut written, mut flooded) = ([None, None], false);
        let (mut status, mut gone_at) = (None::<ExitStatus>, None);
        loop {
            if status.is_none() {
                status = guard.try_wait()?;
                gone_at = status.map(|_| clock.elapsed());
            }
            // Something that got out of its group may hold a stream open: without walls alone.
            let over = gone_at.is_some_and(|at| clock.elapsed() > at + Duration::from_secs(1));
            if status.is_some() && (over || written.iter().all(Option::is_some)) {
                break;
            }
            if clock.elapsed() > deadline {
                return Err(io::Error::other("its guard does not answer"));
            }
            match told.recv_timeout(GLANCE) {
                Ok(Heard::Wrote(stream, bytes)) => written[stream] = Some(bytes),
                Ok(Heard::Flood) => {
                    flooded = true;
                    drop(input.take());
                }
                Err(RecvTimeoutError::Timeout) => {}
                // Both streams have ended.
                Err(RecvTimeoutError::Disconnected) => crate::base::clock::pause(GLANCE),
            }
        }
        let text = |bytes: &mut Option<Vec<u8>>| {
            String::from_utf8_lossy(&bytes.take().unwrap_or_default()).into_owned()
        };
        let status = status.unwrap_or_default();
        let [stdout, stderr] = &mut written;
        Ok(Outcome {
            end: match (status.code(), status.signal()) {
                _ if flooded => End::Flooded,
                (Some(code), _) => End::Exited(code),
                (None, Some(signal)) if signal == LATE.as_raw() => End::Late,
                (None, signal) => End::Signalled(signal.unwrap_or_default()),
            },
            stdout: text(stdout),
            stderr: text(stderr),
        })
    }
}

/// An empty folder that the walls cover; removed at the end.
struct Room(PathBuf);

impl Room {
    fn new() -> io::Result<Room> {
        Room::within(&std::env::temp_dir(), &random)
    }

    /// A new folder for this user alone. Its name is not to be guessed, and one that a killed process left is passed over.
    fn within(folder: &Path, random: &dyn Fn() -> u64) -> io::Result<Room> {
        let mut tries = 0;
        loop {
            let place = folder.join(format!("llmtui-sandbox-{:016x}", random()));
            match fs::DirBuilder::new().mode(0o700).create(&place) {
                Ok(()) => return Ok(Room(place.canonicalize()?)),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists && tries < ROOMS => tries += 1,
                Err(e) => return Err(e),
            }
        }
    }
}

/// A number from the keys that the standard library draws from the system, another one at each call.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The guard's life. It reads an order from `input`, its standard input, carries it out, and ends as the program ended; `program`
/// is this executable. Nothing else may run in this process.
///
/// # Errors
/// An order that cannot be read, a refusal that cannot be written.
pub fn serve(program: &Path, mut input: fs::File) -> io::Result<u8> {
    let order: Order = serde_json::from_slice(&line(&mut input)?)?;
    fcntl_setfl(&input, fcntl_getfl(&input)? | OFlags::NONBLOCK)?;
    // Opened before the walls rise.
    let mut report = fs::File::create(&order.report)?;
    let mut refuse = |refusal: Refusal| serde_json::to_writer(&mut report, &refusal).map(|()| 1);
    if let Err(why) = prepare(&order) {
        return Ok(refuse(Refusal::NoWalls(why.to_string()))?);
    }
    match start(program, &order) {
        Err(why) => Ok(refuse(Refusal::NotStarted(why.to_string()))?),
        Ok(mut child) => {
            let end = watch(&mut child, &order, input);
            let end = end.inspect_err(|_| kill(&child, false))?;
            match end {
                End::Exited(code) => Ok(code as u8),
                End::Signalled(signal) => {
                    end_by(Signal::from_named_raw(signal).unwrap_or(Signal::KILL))
                }
                End::Late => end_by(LATE),
                End::Flooded => end_by(Signal::KILL),
            }
        }
    }
}

/// One line, byte by byte: what follows stays in the pipe.
fn line(input: &mut impl Read) -> io::Result<Vec<u8>> {
    let (mut line, mut byte) = (Vec::new(), [0]);
    while line.len() < MAX_ORDER && input.read(&mut byte)? == 1 && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    Ok(line)
}

/// Ends this process by a signal, as the program ended.
fn end_by(signal: Signal) -> io::Result<u8> {
    kill_process(getpid(), signal)?;
    Ok(1)
}

fn prepare(order: &Order) -> io::Result<()> {
    if order.isolation == Isolation::Walls {
        let sockets = walls::sockets()?;
        walls::leave().map_err(|e| {
            io::Error::other(format!("the kernel gives no namespaces of users ({e})"))
        })?;
        walls::build(&order.room, order.limits.files, &sockets)?;
    }
    for (name, text) in &order.job.files {
        let plain = !name.is_empty() && !name.contains(['/', '\0']) && !name.starts_with('.');
        if !plain {
            let what = format!("{name:?} is not a plain file name");
            return Err(io::Error::other(what));
        }
        fs::write(order.room.join(name), text)?;
    }
    Ok(())
}

/// Starts this program again, which hides the processes of the machine, limits itself and becomes the one that was asked for.
fn start(program: &Path, order: &Order) -> io::Result<Child> {
    let walls = order.isolation == Isolation::Walls;
    // Without namespaces the kernel would count all processes of this user.
    let processes = if walls {
        order.limits.processes
    } else {
        u64::MAX
    };
    let limits = Limits {
        processes,
        ..order.limits
    };
    let named = order.job.command.first().map(String::as_str);
    if named.and_then(find).is_none() {
        return Err(io::Error::other("there is no such program"));
    }
    let path = std::env::var_os("PATH").unwrap_or("/usr/local/bin:/usr/bin:/bin".into());
    Command::new(program)
        .arg(VERB)
        .arg(serde_json::to_string(&(limits, order.isolation))?)
        .args(&order.job.command)
        .current_dir(&order.room)
        .env_clear()
        .env("PATH", path)
        .env("HOME", &order.room)
        .env("TMPDIR", &order.room)
        .env("LANG", "C.UTF-8")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .process_group(0)
        .stdin(Stdio::null())
        .spawn()
}

/// Waits for the program's end, its deadline, or the end of `input`. It is gone when this returns.
fn watch(child: &mut Child, order: &Order, mut input: fs::File) -> io::Result<End> {
    let clock = SystemClock::new();
    let deadline = Duration::from_secs_f64(order.limits.seconds.clamp(0.01, 1e6));
    let mut end = None;
    loop {
        if let Some(status) = child.try_wait()? {
            // What it left behind; with walls the kernel has killed it already.
            if order.isolation == Isolation::Limits {
                kill(child, true);
            }
            let signal = status.signal().unwrap_or_default();
            let own = status.code().map_or(End::Signalled(signal), End::Exited);
            return Ok(end.unwrap_or(own));
        }
        if end.is_none() && clock.elapsed() > deadline {
            end = Some(End::Late);
        }
        let waits = match input.read(&mut [0]) {
            Ok(0) => false,
            Ok(_) => true,
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        };
        if !waits {
            end = Some(End::Flooded);
        }
        if end.is_some() {
            kill(child, false);
        }
        crate::base::clock::pause(GLANCE);
    }
}

/// What a reader of a stream says.
enum Heard {
    Wrote(usize, Vec<u8>),
    Flood,
}

/// Reads a stream to its end or its limit.
fn listen(stream: usize, pipe: impl Read, most: u64, tell: &Sender<Heard>) {
    let mut bytes = Vec::new();
    let mut pipe = pipe.take(most + 1);
    let _ = pipe.read_to_end(&mut bytes);
    if bytes.len() as u64 > most {
        bytes.truncate(most as usize);
        let _ = tell.send(Heard::Flood);
    }
    let _ = tell.send(Heard::Wrote(stream, bytes));
}

/// Kills a program and its group; of one that is `gone` the group alone, as its number may be another's.
fn kill(child: &Child, gone: bool) {
    if let Some(pid) = Pid::from_raw(child.id() as i32) {
        let _ = kill_process_group(pid, Signal::KILL);
        if !gone {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_room_is_private_and_what_a_killed_process_left_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let number = Cell::new(0);
        let next = || number.replace(number.get() + 1);
        let left = dir.path().join(format!("llmtui-sandbox-{:016x}", 0));
        fs::create_dir(&left).unwrap();
        let room = Room::within(dir.path(), &next).unwrap();
        let mode = fs::metadata(&room.0).unwrap().permissions().mode();
        assert_eq!((mode & 0o777, number.get()), (0o700, 2));
        drop(room);
        assert!(left.exists(), "it is not ours");
        assert!(Room::within(dir.path(), &|| 0).is_err(), "an end at last");
        assert_ne!(random(), random());
    }
}
