//! The engine's side of the socket: its own thread with its own runtime, independent of the engine. Each
//! viewer is fed from the log at its own pace; a viewer that does not read only delays itself.

use super::address::{AddressError, restrict, secure_dir, socket_path};
use super::feed::Feed;
use super::route::{Routed, envelope, id_of, rejected, route};
use crate::base::clock::{Clock, SystemClock};
use crate::base::paths::Env;
use crate::run::RunDir;
use crate::wire::{Envelope, Event, MAX_LINE, Request, VERSION, decode_command, encode};
use futures_util::StreamExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::codec::{FramedRead, LinesCodec, LinesCodecError};

/// Most viewers at once; each holds one batch of lines.
const MAX_VIEWERS: usize = 64;
/// Replies queued for one viewer; when full, its next command waits.
const ANSWERS: usize = 64;
/// Time allowed for viewers to read the end after the log is closed.
const DRAIN: Duration = Duration::from_secs(1);

/// A listening socket.
#[derive(Debug)]
pub(super) struct Server {
    thread: JoinHandle<()>,
    closed: Receiver<()>,
}

impl Server {
    /// Binds the run's socket and serves until the log closes.
    pub fn start(
        run: &RunDir,
        env: &Env,
        growth: watch::Receiver<u64>,
        engine: SyncSender<Request>,
    ) -> Result<Server, AddressError> {
        let path = socket_path(env, run.id())?;
        let listener = bind(&path)?;
        let door = Door {
            path,
            run: run.id().into(),
            log: run.events_path(),
            growth,
            engine,
        };
        let (say_closed, closed) = channel();
        let thread = super::on_own_runtime(async move {
            if let Ok(listener) = UnixListener::from_std(listener) {
                door.serve(listener, say_closed).await;
            }
        });
        Ok(Server { thread, closed })
    }

    /// Waits until no new viewer can connect.
    pub fn wait_closed(&self) {
        let _ = self.closed.recv();
    }

    /// Waits until the viewers have read the end, or timed out.
    pub fn join(self) {
        let _ = self.thread.join();
    }
}

/// Binds immediately, so that errors go to the caller. The caller holds the run's lock: an existing socket file belongs
/// to a dead engine.
fn bind(path: &Path) -> Result<std::os::unix::net::UnixListener, AddressError> {
    let io_error = |error| AddressError::Io {
        path: path.into(),
        error,
    };
    if let Some(dir) = path.parent() {
        secure_dir(dir)?;
    }
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(io_error(e)),
        _ => {}
    }
    let listener = std::os::unix::net::UnixListener::bind(path).map_err(io_error)?;
    restrict(path)?;
    listener.set_nonblocking(true).map_err(io_error)?;
    Ok(listener)
}

/// Shared state of the viewers' tasks.
#[derive(Debug, Clone)]
struct Door {
    path: PathBuf,
    run: String,
    log: PathBuf,
    growth: watch::Receiver<u64>,
    engine: SyncSender<Request>,
}

impl Door {
    async fn serve(self, listener: UnixListener, closed: std::sync::mpsc::Sender<()>) {
        let mut viewers = JoinSet::new();
        let mut growth = self.growth.clone();
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) if viewers.len() < MAX_VIEWERS && ours(&stream) => {
                        viewers.spawn(self.clone().view(stream));
                    }
                    Ok(_) => {}
                    // Out of file descriptors: leave the queue alone for a moment instead of spinning.
                    Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                },
                Some(_) = viewers.join_next() => {}
                changed = growth.changed() => if changed.is_err() { break },
            }
        }
        let _ = std::fs::remove_file(&self.path);
        drop(listener);
        drop(closed);
        let drained = async { while viewers.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(DRAIN, drained).await;
    }

    /// One viewer, from the handshake until either side closes.
    async fn view(self, stream: UnixStream) {
        let (read, write) = stream.into_split();
        let (say, answers) = mpsc::channel(ANSWERS);
        let mut speak = std::pin::pin!(self.speak(write, answers));
        let left = tokio::select! {
            left = listen(read, &self.engine, say) => left,
            _ = &mut speak => return,
        };
        if left == Left::Refused {
            // The writing half closes by itself after sending the reason.
            let _ = tokio::time::timeout(DRAIN, speak).await;
        }
    }

    /// Writes the handshake, answers, and the log from the subscribed number on.
    async fn speak(
        &self,
        mut write: OwnedWriteHalf,
        mut answers: mpsc::Receiver<Answer>,
    ) -> std::io::Result<()> {
        let clock = SystemClock::new();
        write.write_all(self.hello(&clock).as_bytes()).await?;
        let mut feed = None;
        let mut lines = String::new();
        loop {
            tokio::select! {
                answer = answers.recv() => match answer {
                    Some(Answer::Feed(from)) => {
                        feed = Some(Feed::new(&self.log, self.growth.clone(), from));
                    }
                    Some(Answer::Say(event)) => {
                        write.write_all(encode(&envelope(event, &clock)).as_bytes()).await?;
                    }
                    None => return Ok(()),
                },
                more = next(&mut feed, &mut lines) => {
                    if !more? {
                        return write.shutdown().await;
                    }
                    write.write_all(lines.as_bytes()).await?;
                }
            }
        }
    }

    /// The first line of every connection: the run, and in `seq` the log's current end.
    fn hello(&self, clock: &dyn Clock) -> String {
        encode(&Envelope {
            v: VERSION,
            seq: *self.growth.borrow(),
            t: clock.now(),
            event: Event::Hello {
                run: self.run.clone(),
                engine: env!("CARGO_PKG_VERSION").into(),
                pid: std::process::id(),
                host: String::new(),
            },
        })
    }
}

/// Messages from the reading half to the writing half.
#[derive(Debug)]
enum Answer {
    Feed(u64),
    Say(Event),
}

/// Why the reading half ended.
#[derive(Debug, PartialEq, Eq)]
enum Left {
    /// The viewer went away.
    Freely,
    /// We stop reading and owe the viewer a reason.
    Refused,
}

async fn next(feed: &mut Option<Feed>, lines: &mut String) -> std::io::Result<bool> {
    match feed {
        Some(feed) => feed.next(lines).await,
        None => std::future::pending().await,
    }
}

/// True if the peer runs as the same user. The folder's mode already ensures it; this is a second check.
fn ours(stream: &UnixStream) -> bool {
    stream
        .peer_cred()
        .is_ok_and(|peer| peer.uid() == rustix::process::getuid().as_raw())
}

/// Reads commands until the viewer leaves. An invalid line is answered, not executed; one that is too long closes
/// the connection.
async fn listen(
    read: OwnedReadHalf,
    engine: &SyncSender<Request>,
    say: mpsc::Sender<Answer>,
) -> Left {
    let mut lines = FramedRead::new(read, LinesCodec::new_with_max_length(MAX_LINE));
    while let Some(line) = lines.next().await {
        let answer = match line {
            Ok(line) => match decode_command(&line) {
                Ok(request) => match route(request, engine) {
                    Routed::Forwarded => continue,
                    Routed::Subscribe(from) => Answer::Feed(from),
                    Routed::Detach => return Left::Freely,
                    Routed::Answer(event) => Answer::Say(event),
                },
                Err(e) => Answer::Say(rejected(id_of(&line), &e.to_string())),
            },
            Err(LinesCodecError::MaxLineLengthExceeded) => {
                let why = format!("a command line is limited to {MAX_LINE} bytes");
                let _ = say.send(Answer::Say(rejected(0, &why))).await;
                return Left::Refused;
            }
            Err(LinesCodecError::Io(_)) => return Left::Freely,
        };
        if say.send(answer).await.is_err() {
            return Left::Freely;
        }
    }
    Left::Freely
}
