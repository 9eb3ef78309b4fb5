//! The viewer's side of a live run's socket.

use super::address::{self, Address, AddressError};
use super::pipe::{DeliveryState, Disconnect, EngineChannels, framed, link, pump};
use super::{Incoming, Link};
use crate::base::paths::Env;
use crate::run::{RunDir, Tail};
use crate::wire::{Command, Event, Request, decode_envelope, encode};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// An engine that accepts but does not greet within this time is stuck.
const GREETING: Duration = Duration::from_secs(5);
/// Longest greeting line.
const GREETING_BYTES: u64 = 4096;

/// Why a live run cannot be attached to.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error(transparent)]
    Address(#[from] AddressError),
    /// Nobody is listening (yet, or any more).
    #[error("no engine is listening at {path}: {error}")]
    Absent {
        path: PathBuf,
        error: std::io::Error,
    },
    #[error("invalid greeting from the engine at {path}: {why}")]
    Handshake { path: PathBuf, why: String },
}

/// Connects to a run: its log from event `from_seq` on, then live.
///
/// # Errors
/// Nobody listens, or who answers is not the engine of this run.
pub fn connect(env: &Env, run: &RunDir, from_seq: u64) -> Result<Link, ConnectError> {
    let (path, stream) = dial(env, run)?;
    let absent = absent(&path);
    stream.set_read_timeout(Some(GREETING)).map_err(absent)?;
    let (target, pid) = greet(&stream, &path, run.id())?;
    let subscribe = Request {
        id: 0,
        command: Command::Subscribe { from_seq },
    };
    (&stream)
        .write_all(encode(&subscribe).as_bytes())
        .map_err(absent)?;
    stream.set_read_timeout(None).map_err(absent)?;
    stream.set_nonblocking(true).map_err(absent)?;
    // A viewer that only asks for future events has nothing to catch up with.
    let target = if from_seq > target { 0 } else { target };
    let delivery = DeliveryState::nothing(from_seq, target).by(pid);
    Ok(pumped(stream, delivery, run.events_path()))
}

/// Opens the run's socket: in a runtime folder of our own, or inside the run's folder. The first place's fault is reported.
fn dial(env: &Env, run: &RunDir) -> Result<(PathBuf, UnixStream), ConnectError> {
    let usual = address::usual(env, run, false).map_err(ConnectError::from);
    usual.and_then(|place| dial_at(&place)).or_else(|first| {
        let place = address::in_run(run)?;
        dial_at(&place).map_err(|_| first)
    })
}

fn dial_at(place: &Address) -> Result<(PathBuf, UnixStream), ConnectError> {
    let path = place.path.clone();
    let stream = UnixStream::connect(&path).map_err(absent(&path))?;
    if !ours(&stream) {
        let why = "another user listens there".to_string();
        return Err(ConnectError::Handshake { path, why });
    }
    Ok((path, stream))
}

/// True if the other end was opened by this user.
pub(super) fn ours(stream: &UnixStream) -> bool {
    rustix::net::sockopt::socket_peercred(stream)
        .is_ok_and(|peer| peer.uid == rustix::process::getuid())
}

/// The process at the other end, if it greets as the engine of run `id` in time.
pub(super) fn greeting_pid(stream: &UnixStream, path: &Path, id: &str) -> Option<u32> {
    stream.set_read_timeout(Some(GREETING)).ok()?;
    Some(greet(stream, path, id).ok()?.1)
}

fn absent(path: &Path) -> impl Fn(std::io::Error) -> ConnectError + Copy {
    move |error| ConnectError::Absent {
        path: path.into(),
        error,
    }
}

/// True if an engine answers at the run's socket; false also if it closes the socket meanwhile, as one does that ends.
///
/// # Errors
/// Somebody else listens there.
pub fn answers(env: &Env, run: &RunDir) -> Result<bool, ConnectError> {
    let Ok((path, stream)) = dial(env, run) else {
        return Ok(false);
    };
    let absent = absent(&path);
    let greeted = stream
        .set_read_timeout(Some(GREETING))
        .map_err(absent)
        .and_then(|()| greet(&stream, &path, run.id()));
    match greeted {
        Ok(_) => Ok(true),
        Err(ConnectError::Absent { .. }) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Relays bytes between a live run's socket and a pair of streams, for a viewer at the other end of a pipe or ssh.
/// Returns when the run closes its socket; the run is unaffected.
///
/// # Errors
/// Nobody listens.
pub fn relay(
    env: &Env,
    run: &RunDir,
    mut input: impl Read + Send + 'static,
    output: &mut impl Write,
) -> Result<(), ConnectError> {
    let (path, stream) = dial(env, run)?;
    let mut to_engine = stream.try_clone().map_err(absent(&path))?;
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut input, &mut to_engine);
        let _ = to_engine.shutdown(std::net::Shutdown::Write);
    });
    let mut chunk = [0; 16 * 1024];
    while let Ok(n @ 1..) = (&stream).read(&mut chunk) {
        // A closed output is a viewer that left.
        if output
            .write_all(&chunk[..n])
            .and_then(|()| output.flush())
            .is_err()
        {
            break;
        }
    }
    Ok(())
}

/// Reads the greeting and checks run and version. Returns the log's current end and the engine's process.
fn greet(stream: &UnixStream, path: &Path, id: &str) -> Result<(u64, u32), ConnectError> {
    let strange = |why: String| ConnectError::Handshake {
        path: path.into(),
        why,
    };
    let mut line = Vec::new();
    // Nothing follows the greeting before we subscribe, so the reader consumes no later bytes.
    BufReader::new(stream.take(GREETING_BYTES))
        .read_until(b'\n', &mut line)
        .map_err(absent(path))?;
    if line.is_empty() {
        return Err(absent(path)(std::io::ErrorKind::UnexpectedEof.into()));
    }
    let text = String::from_utf8_lossy(&line);
    let greeting = decode_envelope(text.trim_end()).map_err(|e| strange(e.to_string()))?;
    match greeting.event {
        Event::Hello { run, pid, .. } if run == id => Ok((greeting.seq, pid)),
        Event::Hello { run, .. } => Err(strange(format!("it holds another run, {run}"))),
        _ => Err(strange("it sent no greeting".into())),
    }
}

fn pumped(stream: UnixStream, mut delivery: DeliveryState, log: PathBuf) -> Link {
    let (link, mut ends) = link();
    super::on_own_runtime(async move {
        let end = match tokio::net::UnixStream::from_std(stream) {
            Ok(stream) => {
                let (read, write) = stream.into_split();
                pump(framed(read), write, &mut ends, &mut delivery).await
            }
            Err(e) => Disconnect::Broken(e.to_string()),
        };
        let closed = match end {
            Disconnect::Left => return,
            Disconnect::Closed(why) => why,
            Disconnect::Broken(why) => match rest(&log, &ends, &mut delivery).await {
                Some(true) => None,
                Some(false) => Some(why),
                None => return,
            },
        };
        let _ = ends.events.send(Incoming::Closed(closed)).await;
    });
    link
}

/// What the log holds behind the last event that came through the socket: an engine that ends waits only briefly for its
/// viewers, and its end is in the log before. True if that was the final event; nothing if the viewer has left.
async fn rest(log: &Path, ends: &EngineChannels, delivery: &mut DeliveryState) -> Option<bool> {
    let mut tail = Tail::open(log).ok();
    while let Some(Ok(Some(envelope))) = tail.as_mut().map(Tail::next_event) {
        if envelope.seq > delivery.seq() && !delivery.deliver(envelope, &ends.events).await {
            return None;
        }
    }
    Some(delivery.finished())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    fn place() -> (tempfile::TempDir, Env, RunDir) {
        let dir = tempfile::tempdir().unwrap();
        let env = Env {
            runtime_dir: dir.path().join("sockets"),
            ..Env::default()
        };
        let clock = crate::base::clock::ManualClock::at(0);
        let run = RunDir::create(dir.path(), "mine", "", "", &clock).unwrap();
        (dir, env, run)
    }

    /// What `connect` says to a peer that greets with `words`.
    fn met(words: &'static str) -> ConnectError {
        let (_dir, env, run) = place();
        let place = address::usual(&env, &run, true).unwrap();
        let listener = UnixListener::bind(&place.path).unwrap();
        let peer = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(words.as_bytes()).unwrap();
        });
        let error = connect(&env, &run, 1).unwrap_err();
        peer.join().unwrap();
        error
    }

    #[test]
    fn only_the_right_run_in_a_known_tongue_is_joined() {
        let other = met(
            "{\"v\":1,\"seq\":3,\"t\":0,\"event\":{\"type\":\"Hello\",\"run\":\"other\",\"engine\":\"0\",\"pid\":1,\"host\":\"\"}}\n",
        );
        assert!(other.to_string().contains("other"), "{other}");
        let newer = met("{\"v\":99,\"seq\":3,\"t\":0,\"event\":{\"type\":\"Hello\"}}\n");
        assert!(newer.to_string().contains("update llmtui"), "{newer}");
        for strange in [
            "HTTP/1.1 200 OK\n",
            "{\"v\":1,\"seq\":3,\"t\":0,\"event\":{\"type\":\"Accepted\",\"id\":1}}\n",
        ] {
            assert!(matches!(met(strange), ConnectError::Handshake { .. }));
        }
    }

    #[test]
    fn a_door_that_closes_at_once_counts_as_nobody() {
        assert!(matches!(met(""), ConnectError::Absent { .. }));
        let (_dir, env, run) = place();
        let path = address::usual(&env, &run, true).unwrap().path;
        let listener = UnixListener::bind(&path).unwrap();
        let closing = std::thread::spawn(move || drop(listener.accept()));
        assert!(!answers(&env, &run).unwrap(), "an engine that is ending");
        closing.join().unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(!answers(&env, &run).unwrap());
        assert!(matches!(
            connect(&env, &run, 1),
            Err(ConnectError::Absent { .. })
        ));
    }

    /// What a viewer hears of a run whose log holds a note and `last`, from an engine that leaves after the greeting.
    fn left_early(last: Event) -> (Vec<u64>, Option<String>) {
        let (_dir, env, run) = place();
        let text = "a note".to_string();
        let lines = [Event::Noted { step: 1, text }, last];
        let envelope = |(seq, event): (u64, Event)| {
            encode(&crate::wire::Envelope {
                v: crate::wire::VERSION,
                seq,
                t: crate::base::clock::UnixMillis(0),
                event,
            })
        };
        let log: String = (1..).zip(lines).map(envelope).collect();
        std::fs::write(run.events_path(), &log).unwrap();
        let path = address::usual(&env, &run, true).unwrap().path;
        let listener = UnixListener::bind(&path).unwrap();
        let (id, host) = (run.id().to_string(), String::new());
        let engine = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let (engine, pid) = ("0".into(), 1);
            let run = id;
            let hello = Event::Hello {
                run,
                engine,
                pid,
                host,
            };
            stream.write_all(envelope((2, hello)).as_bytes()).unwrap();
            // Once it is asked for the log. What it leaves unread resets the connection.
            stream.read_exact(&mut [0]).unwrap();
            let first = log.split_inclusive('\n').next().unwrap();
            stream.write_all(first.as_bytes()).unwrap();
        });
        let mut link = connect(&env, &run, 1).unwrap();
        engine.join().unwrap();
        let (mut seqs, mut caught_up) = (Vec::new(), 0);
        loop {
            match link.blocking_recv() {
                Incoming::Event(envelope) => seqs.push(envelope.seq),
                Incoming::CaughtUp => caught_up += 1,
                Incoming::Closed(why) => {
                    assert_eq!(caught_up, 1);
                    return (seqs, why);
                }
            }
        }
    }

    #[test]
    fn an_engine_that_leaves_before_its_viewer_has_read_the_end_has_ended_as_its_log_says() {
        let end = Event::Finished {
            outcome: crate::wire::Outcome::Completed,
            step: 1,
            tokens: 0,
            val_loss: None,
            best: None,
            train_loss: None,
            seconds: 1.0,
            message: String::new(),
        };
        assert_eq!(left_early(end), (vec![1, 2], None));
        let text = "another".to_string();
        let (seqs, why) = left_early(Event::Noted { step: 2, text });
        assert_eq!(seqs, [1, 2]);
        assert!(why.is_some_and(|why| why.contains("the connection to the engine broke")));
    }
}
