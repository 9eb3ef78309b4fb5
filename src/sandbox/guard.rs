//! Around the program: this process starts the guard and waits; the guard builds the walls, starts the program, reads what it
//! writes and ends it. They speak one line of JSON each way.

use super::{End, Isolation, Job, Limits, Outcome, Sandbox, SandboxError, VERB, find, walls};
use crate::base::clock::{Clock, SystemClock};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, BufRead, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Longer than the guard needs for its own work, on a machine that does much else.
const GRACE: Duration = Duration::from_secs(20);
/// How often the guard looks whether the program is still there.
const GLANCE: Duration = Duration::from_millis(5);

/// What the guard is told.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    job: Job,
    isolation: Isolation,
    limits: Limits,
    room: PathBuf,
}

/// What the guard says.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Done(Outcome),
    /// The walls do not stand: nothing was run.
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
        let room = Room::new().map_err(broken)?;
        let order = Order {
            job: job.clone(),
            isolation: self.isolation,
            limits: self.limits,
            room: room.0.clone(),
        };
        let mut order = serde_json::to_vec(&order).map_err(|e| broken(e.into()))?;
        order.push(b'\n');
        let mut guard = Command::new(&self.program)
            .arg(VERB)
            .process_group(0)
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(broken)?;
        let said = self.hear(&mut guard, &order);
        // Whatever is left of it: the first process of the program's world dies with the group, and its world with that.
        if let Some(pid) = Pid::from_raw(guard.id() as i32) {
            let _ = kill_process_group(pid, Signal::KILL);
        }
        let _ = guard.wait();
        let name = || job.command.first().cloned().unwrap_or_default();
        match serde_json::from_slice(&said.map_err(broken)?) {
            Ok(Answer::Done(outcome)) => Ok(outcome),
            Ok(Answer::NoWalls(why)) => Err(SandboxError::Unavailable(why)),
            Ok(Answer::NotStarted(why)) => Err(SandboxError::Start(name(), why)),
            Err(_) => Err(SandboxError::Broken("its guard died".into())),
        }
    }

    /// The guard's line, waited for until the deadline.
    fn hear(&self, guard: &mut Child, order: &[u8]) -> io::Result<Vec<u8>> {
        let (Some(mut input), Some(mut output)) = (guard.stdin.take(), guard.stdout.take()) else {
            return Err(io::Error::other("its guard has no pipes"));
        };
        let (tell, told) = channel();
        // Strings in JSON are at most six times as long, of two streams.
        let most = 12 * self.limits.output + (1 << 16);
        std::thread::spawn(move || {
            let mut line = Vec::new();
            let read = (&mut output).take(most).read_to_end(&mut line);
            let _ = tell.send(read.map(|_| line));
        });
        input.write_all(order)?;
        let deadline = Duration::from_secs_f64(self.limits.seconds.clamp(0.01, 1e6)) + GRACE;
        // The pipe stays open: its end tells the guard that nobody waits any more.
        let said = told.recv_timeout(deadline);
        drop(input);
        said.map_err(|_| io::Error::other("its guard does not answer"))?
    }
}

/// An empty folder that the walls cover; removed at the end.
struct Room(PathBuf);

impl Room {
    fn new() -> io::Result<Room> {
        use std::sync::atomic::{AtomicU64, Ordering};
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("llmtui-sandbox-{}-{number}", std::process::id());
        let place = std::env::temp_dir().join(name);
        fs::create_dir(&place)?;
        Ok(Room(place.canonicalize()?))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The guard's life: reads an order, carries it out, says what came of it. `program` is this executable.
///
/// # Errors
/// An order that cannot be read, an answer that nobody takes.
pub fn serve(
    program: &Path,
    mut input: impl BufRead + Send + 'static,
    mut output: impl Write,
) -> io::Result<()> {
    let mut line = Vec::new();
    input.read_until(b'\n', &mut line)?;
    let order: Order = serde_json::from_slice(&line)?;
    let answer = match prepare(&order) {
        Err(why) => Answer::NoWalls(why.to_string()),
        Ok(()) => match start(program, &order) {
            Err(why) => Answer::NotStarted(why.to_string()),
            Ok(child) => watch(child, &order, input),
        },
    };
    serde_json::to_writer(&mut output, &answer)?;
    output.flush()
}

fn prepare(order: &Order) -> io::Result<()> {
    if order.isolation == Isolation::Walls {
        walls::leave().map_err(|e| {
            io::Error::other(format!("the kernel gives no namespaces of users ({e})"))
        })?;
        walls::build(&order.room, order.limits.files)?;
    }
    for (name, text) in &order.job.files {
        let plain = !name.is_empty() && !name.contains(['/', '\0']) && !name.starts_with('.');
        if !plain {
            return Err(io::Error::other(format!(
                "{name:?} is no plain name of a file"
            )));
        }
        fs::write(order.room.join(name), text)?;
    }
    Ok(())
}

/// Starts this program again, which limits itself and becomes the one that was asked for.
fn start(program: &Path, order: &Order) -> io::Result<Child> {
    // Without namespaces the kernel would count all processes of this user.
    let limits = match order.isolation {
        Isolation::Walls => order.limits,
        Isolation::Limits => Limits {
            processes: u64::MAX,
            ..order.limits
        },
    };
    let limits = serde_json::to_string(&limits)?;
    let named = order.job.command.first().map(String::as_str);
    if named.and_then(find).is_none() {
        return Err(io::Error::other("there is no such program"));
    }
    Command::new(program)
        .arg(VERB)
        .arg(limits)
        .args(&order.job.command)
        .current_dir(&order.room)
        .env_clear()
        .env(
            "PATH",
            std::env::var_os("PATH").unwrap_or("/usr/local/bin:/usr/bin:/bin".into()),
        )
        .env("HOME", &order.room)
        .env("TMPDIR", &order.room)
        .env("LANG", "C.UTF-8")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        // Of the walls the guard's group is enough; without them the program's own is all there is to kill.
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
}

/// Something that the guard hears of.
enum Heard {
    /// Of a stream, until its end or its limit.
    Wrote(usize, Vec<u8>),
    Flood,
    /// The one who asked is gone.
    Alone,
}

fn watch(mut child: Child, order: &Order, mut asker: impl Read + Send + 'static) -> Answer {
    let (tell, heard) = channel();
    let pipes: [Option<Box<dyn Read + Send>>; 2] = [
        child.stdout.take().map(|s| Box::new(s) as _),
        child.stderr.take().map(|s| Box::new(s) as _),
    ];
    for (stream, pipe) in pipes.into_iter().enumerate() {
        let (tell, most) = (tell.clone(), order.limits.output);
        if let Some(pipe) = pipe {
            std::thread::spawn(move || listen(stream, pipe, most, &tell));
        }
    }
    std::thread::spawn(move || {
        let _ = io::copy(&mut asker, &mut io::sink());
        let _ = tell.send(Heard::Alone);
    });
    let (clock, deadline) = (
        SystemClock::new(),
        Duration::from_secs_f64(order.limits.seconds.clamp(0.01, 1e6)),
    );
    let mut written = [None, None];
    let (mut end, mut gone) = (None, false);
    // A program has ended when it is gone and both streams are: what it started may still write.
    while !gone || written.iter().any(Option::is_none) {
        if !gone && let Ok(Some(status)) = child.try_wait() {
            let signal = status.signal().unwrap_or_default();
            end.get_or_insert(status.code().map_or(End::Signalled(signal), End::Exited));
            gone = true;
            // What it left behind; with walls the kernel has killed it already.
            if order.isolation == Isolation::Limits {
                kill(&child, gone);
            }
        }
        match heard.recv_timeout(GLANCE) {
            Ok(Heard::Wrote(stream, bytes)) => written[stream] = Some(bytes),
            Ok(Heard::Flood) => {
                end.get_or_insert(End::Flooded);
                kill(&child, gone);
            }
            Ok(Heard::Alone) => {
                kill(&child, gone);
                break;
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {}
        }
        if clock.elapsed() > deadline {
            // A process that left the group holds a stream open: only without walls.
            kill(&child, gone);
            end.get_or_insert(End::Late);
            if order.isolation == Isolation::Limits
                && clock.elapsed() > deadline + Duration::from_secs(1)
            {
                break;
            }
        }
    }
    let _ = child.wait();
    let text = |bytes: &mut Option<Vec<u8>>| {
        let bytes = bytes.take().unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let [stdout, stderr] = &mut written;
    let (stdout, stderr) = (text(stdout), text(stderr));
    let end = end.unwrap_or(End::Late);
    Answer::Done(Outcome {
        end,
        stdout,
        stderr,
    })
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
