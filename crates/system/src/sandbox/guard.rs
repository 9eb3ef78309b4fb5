//! The processes around the program: this process starts the guard, reads the program's output and waits. The guard, which
//! has one thread (the kernel lets only single-threaded processes enter a user namespace), sets up isolation, starts the
//! program and kills it at its deadline, or when this process exits: then the guard's input ends.

use super::{End, Isolation, Job, Limits, Outcome, Sandbox, SandboxError, VERB, find, isolation};
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

/// Time beyond the program's limit that the guard gets for its own work, on a busy machine.
const GRACE: Duration = Duration::from_secs(20);
/// Poll interval for processes and streams.
const POLL_INTERVAL: Duration = Duration::from_millis(3);
/// The signal by which a guard ends if its program exceeded its time.
const TIMEOUT_SIGNAL: Signal = Signal::USR2;
/// Names tried for the scratch directory before an error is returned.
const MAX_TRIES: u32 = 16;
/// Longest request in bytes.
const MAX_REQUEST: usize = 16 << 20;

/// The guard's request, in one line of JSON.
#[derive(Debug, Serialize, Deserialize)]
struct Request {
    job: Job,
    isolation: Isolation,
    limits: Limits,
    /// The program's working directory, empty.
    scratch: PathBuf,
    /// The file in which the guard reports why nothing was run.
    report: PathBuf,
}

/// Why nothing was run.
#[derive(Debug, Serialize, Deserialize)]
enum Refusal {
    NoIsolation(String),
    NotStarted(String),
}

impl Sandbox {
    /// Runs a program to its end.
    ///
    /// # Errors
    /// Isolation that this machine does not support, or a missing program. How the program itself ends is an [`Outcome`].
    pub fn run(&self, job: &Job) -> Result<Outcome, SandboxError> {
        let broken = |e: io::Error| SandboxError::Broken(e.to_string());
        let place = ScratchDir::new().map_err(broken)?;
        let request = Request {
            job: job.clone(),
            isolation: self.isolation,
            limits: self.limits,
            scratch: place.0.join("room"),
            report: place.0.join("report"),
        };
        fs::create_dir(&request.scratch).map_err(broken)?;
        let mut line = serde_json::to_vec(&request).map_err(|e| broken(e.into()))?;
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
        let outcome = self.read_output(&mut guard, &line);
        if outcome.is_err() {
            let _ = guard.kill();
            let _ = guard.wait();
        }
        let refusal = fs::read(&request.report).ok();
        let name = || job.command.first().cloned().unwrap_or_default();
        match refusal.and_then(|text| serde_json::from_slice(&text).ok()) {
            Some(Refusal::NoIsolation(why)) => Err(SandboxError::Unavailable(why)),
            Some(Refusal::NotStarted(why)) => Err(SandboxError::Start(name(), why)),
            None => outcome.map_err(broken),
        }
    }

    /// Reads the program's output and waits for its end.
    fn read_output(&self, guard: &mut Child, request: &[u8]) -> io::Result<Outcome> {
        let (sender, receiver) = channel();
        let pipes: [Option<Box<dyn Read + Send>>; 2] = [
            guard.stdout.take().map(|s| Box::new(s) as _),
            guard.stderr.take().map(|s| Box::new(s) as _),
        ];
        for (stream, pipe) in pipes.into_iter().enumerate() {
            let (sender, most) = (sender.clone(), self.limits.output);
            if let Some(pipe) = pipe {
                std::thread::spawn(move || read_stream(stream, pipe, most, &sender));
            }
        }
        // Closing this pipe makes the guard end.
        let mut input = guard.stdin.take();
        if let Some(input) = &mut input {
            input.write_all(request)?;
        }
        let clock = SystemClock::new();
        let seconds = self.limits.seconds.clamp(0.01, 1e6);
        let deadline = Duration::from_secs_f64(seconds) + GRACE;
        let (mut written, mut flooded) = ([None, None], false);
        let (mut status, mut exited_at) = (None::<ExitStatus>, None);
        loop {
            if status.is_none() {
                status = guard.try_wait()?;
                exited_at = status.map(|_| clock.elapsed());
            }
            // Without isolation, a process that left its group may hold a stream open.
            let over = exited_at.is_some_and(|at| clock.elapsed() > at + Duration::from_secs(1));
            if status.is_some() && (over || written.iter().all(Option::is_some)) {
                break;
            }
            if clock.elapsed() > deadline {
                return Err(io::Error::other("its guard does not answer"));
            }
            match receiver.recv_timeout(POLL_INTERVAL) {
                Ok(Message::Wrote(stream, bytes)) => written[stream] = Some(bytes),
                Ok(Message::Flood) => {
                    flooded = true;
                    drop(input.take());
                }
                Err(RecvTimeoutError::Timeout) => {}
                // Both streams have ended.
                Err(RecvTimeoutError::Disconnected) => crate::base::clock::pause(POLL_INTERVAL),
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
                (None, Some(signal)) if signal == TIMEOUT_SIGNAL.as_raw() => End::Late,
                (None, signal) => End::Signalled(signal.unwrap_or_default()),
            },
            stdout: text(stdout),
            stderr: text(stderr),
        })
    }
}

/// A scratch directory for one run; removed when dropped.
struct ScratchDir(PathBuf);

impl ScratchDir {
    fn new() -> io::Result<ScratchDir> {
        ScratchDir::within(&std::env::temp_dir(), &random)
    }

    /// Creates a private directory. Its name cannot be guessed, and an existing one, left by a killed process, is skipped.
    fn within(folder: &Path, random: &dyn Fn() -> u64) -> io::Result<ScratchDir> {
        let mut tries = 0;
        loop {
            let place = folder.join(format!("llmtui-sandbox-{:016x}", random()));
            match fs::DirBuilder::new().mode(0o700).create(&place) {
                Ok(()) => return Ok(ScratchDir(place.canonicalize()?)),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists && tries < MAX_TRIES => {
                    tries += 1
                }
                Err(e) => return Err(e),
            }
        }
    }
}

/// A random number: the standard library's hasher keys come from the system and differ at each call.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs the guard: reads a request from `input`, its standard input, executes it, and ends as the program ended; `program`
/// is this executable. Nothing else may run in this process.
///
/// # Errors
/// A request that cannot be read, a refusal that cannot be written.
pub fn serve(program: &Path, mut input: fs::File) -> io::Result<u8> {
    let request: Request = serde_json::from_slice(&line(&mut input)?)?;
    fcntl_setfl(&input, fcntl_getfl(&input)? | OFlags::NONBLOCK)?;
    // Opened before the file system becomes read-only.
    let mut report = fs::File::create(&request.report)?;
    let mut refuse = |refusal: Refusal| serde_json::to_writer(&mut report, &refusal).map(|()| 1);
    if let Err(why) = prepare(&request) {
        return Ok(refuse(Refusal::NoIsolation(why.to_string()))?);
    }
    match start(program, &request) {
        Err(why) => Ok(refuse(Refusal::NotStarted(why.to_string()))?),
        Ok(mut child) => {
            let end = watch(&mut child, &request, input);
            let end = end.inspect_err(|_| kill(&child, false))?;
            match end {
                End::Exited(code) => Ok(code as u8),
                End::Signalled(signal) => {
                    end_by(Signal::from_named_raw(signal).unwrap_or(Signal::KILL))
                }
                End::Late => end_by(TIMEOUT_SIGNAL),
                End::Flooded => end_by(Signal::KILL),
            }
        }
    }
}

/// Reads one line, byte by byte: what follows stays in the pipe.
fn line(input: &mut impl Read) -> io::Result<Vec<u8>> {
    let (mut line, mut byte) = (Vec::new(), [0]);
    while line.len() < MAX_REQUEST && input.read(&mut byte)? == 1 && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    Ok(line)
}

/// Ends this process by a signal, as the program ended.
fn end_by(signal: Signal) -> io::Result<u8> {
    kill_process(getpid(), signal)?;
    Ok(1)
}

fn prepare(request: &Request) -> io::Result<()> {
    if request.isolation == Isolation::Walls {
        let sockets = isolation::sockets()?;
        isolation::leave().map_err(|e| {
            io::Error::other(format!("the kernel gives no namespaces of users ({e})"))
        })?;
        isolation::build(&request.scratch, request.limits.files, &sockets)?;
    }
    for (name, text) in &request.job.files {
        let plain = !name.is_empty() && !name.contains(['/', '\0']) && !name.starts_with('.');
        if !plain {
            let what = format!("{name:?} is not a plain file name");
            return Err(io::Error::other(what));
        }
        fs::write(request.scratch.join(name), text)?;
    }
    Ok(())
}

/// Starts this executable again, which hides other processes, limits itself and executes the requested program.
fn start(program: &Path, request: &Request) -> io::Result<Child> {
    let isolation = request.isolation == Isolation::Walls;
    // Without a user namespace the kernel would count all processes of this user.
    let processes = if isolation {
        request.limits.processes
    } else {
        u64::MAX
    };
    let limits = Limits {
        processes,
        ..request.limits
    };
    let named = request.job.command.first().map(String::as_str);
    if named.and_then(find).is_none() {
        return Err(io::Error::other("there is no such program"));
    }
    let path = std::env::var_os("PATH").unwrap_or("/usr/local/bin:/usr/bin:/bin".into());
    Command::new(program)
        .arg(VERB)
        .arg(serde_json::to_string(&(limits, request.isolation))?)
        .args(&request.job.command)
        .current_dir(&request.scratch)
        .env_clear()
        .env("PATH", path)
        .env("HOME", &request.scratch)
        .env("TMPDIR", &request.scratch)
        .env("LANG", "C.UTF-8")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .process_group(0)
        .stdin(Stdio::null())
        .spawn()
}

/// Waits for the program's end, its deadline, or the end of `input`. The program has ended when this returns.
fn watch(child: &mut Child, request: &Request, mut input: fs::File) -> io::Result<End> {
    let clock = SystemClock::new();
    let deadline = Duration::from_secs_f64(request.limits.seconds.clamp(0.01, 1e6));
    let mut end = None;
    loop {
        if let Some(status) = child.try_wait()? {
            // Kill its remaining children; with isolation the kernel has done so already.
            if request.isolation == Isolation::Limits {
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
        crate::base::clock::pause(POLL_INTERVAL);
    }
}

/// A message from the thread that reads a stream.
enum Message {
    Wrote(usize, Vec<u8>),
    Flood,
}

/// Reads a stream to its end or its limit.
fn read_stream(stream: usize, pipe: impl Read, most: u64, sender: &Sender<Message>) {
    let mut bytes = Vec::new();
    let mut pipe = pipe.take(most + 1);
    let _ = pipe.read_to_end(&mut bytes);
    if bytes.len() as u64 > most {
        bytes.truncate(most as usize);
        let _ = sender.send(Message::Flood);
    }
    let _ = sender.send(Message::Wrote(stream, bytes));
}

/// Kills a program and its group; if it has `exited`, only the group, since its process id may have been reused.
fn kill(child: &Child, exited: bool) {
    if let Some(pid) = Pid::from_raw(child.id() as i32) {
        let _ = kill_process_group(pid, Signal::KILL);
        if !exited {
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
    fn a_scratch_dir_is_private_and_existing_ones_are_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let number = Cell::new(0);
        let next = || number.replace(number.get() + 1);
        let left = dir.path().join(format!("llmtui-sandbox-{:016x}", 0));
        fs::create_dir(&left).unwrap();
        let scratch = ScratchDir::within(dir.path(), &next).unwrap();
        let mode = fs::metadata(&scratch.0).unwrap().permissions().mode();
        assert_eq!((mode & 0o777, number.get()), (0o700, 2));
        drop(scratch);
        assert!(left.exists(), "it is not ours");
        assert!(
            ScratchDir::within(dir.path(), &|| 0).is_err(),
            "an end at last"
        );
        assert_ne!(random(), random());
    }
}
