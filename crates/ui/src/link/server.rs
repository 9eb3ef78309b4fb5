//! The engine's side of the socket: its own thread with its own runtime, independent of the engine. Each
//! viewer is fed from the log at its own pace; a viewer that does not read only delays itself.

use super::alarm::{self, Alarm};
use super::bound::Socket;
use super::feed::Feed;
use super::ownership::OwnershipMonitor;
use super::reply::{envelope, rejected};
use super::route::{EngineEnd, Routed, id_of, route};
use crate::base::clock::{Clock, SystemClock};
use crate::base::files::Identity;
use crate::base::paths::Env;
use crate::run::RunDir;
use crate::wire::{Envelope, Event, MAX_LINE, VERSION, decode_command, encode};
use futures_util::StreamExt;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
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

/// How often the socket's file and the run's lock are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// Time allowed for a new connection to say what it wants.
const FIRST_WORD: Duration = Duration::from_secs(30);

/// A served run.
#[derive(Debug)]
pub(super) struct Server {
    thread: JoinHandle<()>,
    closed: Receiver<()>,
}

/// What a server needs of its engine's host.
#[derive(Debug)]
pub(super) struct Served {
    pub run: RunDir,
    pub env: Env,
    pub growth: watch::Receiver<u64>,
    pub engine: EngineEnd,
    pub raise: watch::Sender<Option<Alarm>>,
    /// The lock that this process holds.
    pub claim: Identity,
}

impl Server {
    /// Serves at `socket` until the log closes. Without one, and when its file vanishes, a place is sought every second.
    pub fn start(socket: Option<Socket>, served: Served) -> Server {
        let (say_closed, closed) = channel();
        let door = ServerState {
            run: served.run.id().into(),
            log: served.run.events_path(),
            growth: served.growth,
            engine: served.engine,
        };
        let ownership = OwnershipMonitor::new(served.run, served.claim, served.raise);
        let env = served.env;
        let thread = super::on_own_runtime(async move {
            door.serve(socket, &env, ownership, say_closed).await;
        });
        Server { thread, closed }
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

/// Shared state of the viewers' tasks.
#[derive(Debug, Clone)]
struct ServerState {
    run: String,
    log: PathBuf,
    growth: watch::Receiver<u64>,
    engine: EngineEnd,
}

/// The socket and its handle in the event loop.
struct Open {
    socket: Socket,
    listener: UnixListener,
}

impl Open {
    fn new(socket: Socket) -> Option<Open> {
        let listener = UnixListener::from_std(socket.listener().ok()?).ok()?;
        Some(Open { socket, listener })
    }

    async fn accept(open: &Option<Open>) -> std::io::Result<UnixStream> {
        match open {
            Some(open) => open.listener.accept().await.map(|(stream, _)| stream),
            None => std::future::pending().await,
        }
    }
}

impl ServerState {
    async fn serve(
        self,
        socket: Option<Socket>,
        env: &Env,
        mut ownership: OwnershipMonitor,
        closed: std::sync::mpsc::Sender<()>,
    ) {
        let mut open = socket.and_then(Open::new);
        let mut viewers = JoinSet::new();
        let mut growth = self.growth.clone();
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                accepted = Open::accept(&open) => match accepted {
                    Ok(stream) if viewers.len() < MAX_VIEWERS && ours(&stream) => {
                        viewers.spawn(self.clone().view(stream));
                    }
                    Ok(_) => {}
                    // Out of file descriptors: leave the queue alone for a moment instead of spinning.
                    Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                },
                Some(_) = viewers.join_next() => {}
                changed = growth.changed() => if changed.is_err() { break },
                _ = look.tick() => {
                    if ownership.check(&self.engine) && open.as_ref().is_none_or(|open| !open.socket.is_current()) {
                        open = Socket::bind(env, ownership.run()).ok().and_then(Open::new);
                    }
                }
            }
        }
        drop((open, ownership));
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
            left = listen(read, &self.engine, say, FIRST_WORD) => left,
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
        let mut alarms = self.engine.alarms.clone();
        loop {
            tokio::select! {
                // Not before the viewer asks for the log: it reads nothing between the greeting and that.
                alarm = alarm::next(&mut alarms), if feed.is_some() => {
                    write.write_all(encode(&alarm.envelope(&clock)).as_bytes()).await?;
                }
                answer = answers.recv() => match answer {
                    Some(Answer::Feed(from)) => {
                        feed = Some(Feed::new(&self.log, self.growth.clone(), from));
                    }
                    Some(Answer::Reply(event)) => {
                        write.write_all(encode(&envelope(*event, &clock)).as_bytes()).await?;
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
    Reply(Box<Event>),
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
    engine: &EngineEnd,
    say: mpsc::Sender<Answer>,
    first_word: Duration,
) -> Left {
    let mut lines = FramedRead::new(read, LinesCodec::new_with_max_length(MAX_LINE));
    let mut patience = Some(first_word);
    loop {
        let line = match patience.take() {
            // Whoever connects and says nothing keeps a place from others.
            Some(patience) => tokio::time::timeout(patience, lines.next())
                .await
                .ok()
                .flatten(),
            None => lines.next().await,
        };
        let Some(line) = line else {
            return Left::Freely;
        };
        let answer = match line {
            Ok(line) => match decode_command(&line) {
                Ok(request) => match route(request, engine) {
                    Routed::Forwarded => continue,
                    Routed::Subscribe(from) => Answer::Feed(from),
                    Routed::Detach => return Left::Freely,
                    Routed::Answer(event) => Answer::Reply(event),
                },
                Err(e) => Answer::Reply(Box::new(rejected(id_of(&line), &e.to_string()))),
            },
            Err(LinesCodecError::MaxLineLengthExceeded) => {
                let why = format!("a command line is limited to {MAX_LINE} bytes");
                let _ = say.send(Answer::Reply(Box::new(rejected(0, &why)))).await;
                return Left::Refused;
            }
            Err(LinesCodecError::Io(_)) => return Left::Freely,
        };
        if say.send(answer).await.is_err() {
            return Left::Freely;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::alarm::STALLED;
    use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

    /// The alarm was raised before the viewer came, whose reader for the greeting drops what comes behind it.
    #[tokio::test]
    async fn a_viewer_that_attaches_to_a_stalled_run_hears_the_alarm() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("events.jsonl");
        std::fs::write(&log, "").unwrap();
        let (commands, _commands) = std::sync::mpsc::sync_channel(8);
        let (raise, alarms) = watch::channel(None);
        raise.send_replace(Some(Alarm {
            code: STALLED,
            message: "the log stalls".into(),
            hint: "free some space",
        }));
        let (_grown, growth) = watch::channel(0);
        let door = ServerState {
            run: "x".into(),
            log,
            growth,
            engine: EngineEnd {
                commands,
                stop: std::sync::Arc::default(),
                alarms,
            },
        };
        let (theirs, ours) = UnixStream::pair().unwrap();
        let serving = tokio::spawn(door.view(ours));
        let (mut hears, mut says) = theirs.into_split();
        let mut greeting = vec![0; 4096];
        let n = hears.read(&mut greeting).await.unwrap();
        let greeting = String::from_utf8_lossy(&greeting[..n]).into_owned();
        assert_eq!(greeting.lines().count(), 1, "{greeting}");
        let subscribe = b"{\"id\":1,\"command\":\"subscribe\",\"from_seq\":1}\n";
        says.write_all(subscribe).await.unwrap();
        let mut line = String::new();
        let mut hears = BufReader::new(hears);
        let heard = hears.read_line(&mut line);
        let heard = tokio::time::timeout(Duration::from_secs(60), heard).await;
        assert!(heard.is_ok() && line.contains(STALLED), "{line}");
        serving.abort();
    }

    #[tokio::test]
    async fn a_connection_that_says_nothing_is_dropped_and_one_that_spoke_may_be_silent() {
        let (commands, _commands) = std::sync::mpsc::sync_channel(8);
        let engine = EngineEnd {
            commands,
            stop: std::sync::Arc::default(),
            alarms: watch::channel(None).1,
        };
        let patience = Duration::from_millis(50);
        let ample = Duration::from_secs(60);
        for speaks in [false, true] {
            let (theirs, ours) = UnixStream::pair().unwrap();
            let (read, write) = ours.into_split();
            let (say, mut answers) = mpsc::channel(8);
            let listening = listen(read, &engine, say, patience);
            let client = async {
                let (mut hears, mut says) = theirs.into_split();
                if speaks {
                    let subscribe = br#"{"id":1,"command":"subscribe","from_seq":1}"#;
                    says.write_all(subscribe).await.unwrap();
                    says.write_all(b"\n").await.unwrap();
                    assert!(matches!(answers.recv().await, Some(Answer::Feed(1))));
                    tokio::time::sleep(patience * 4).await;
                } else {
                    // Held open: only the listener's patience ends it.
                    tokio::time::timeout(ample, hears.read_u8()).await.ok();
                }
            };
            tokio::select! {
                left = tokio::time::timeout(ample, listening) => {
                    assert!(!speaks, "one that spoke was dropped");
                    assert_eq!(left.unwrap(), Left::Freely);
                }
                () = client => assert!(speaks),
            }
            drop(write);
        }
    }
}
