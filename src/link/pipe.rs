//! The viewer's side of a line-based peer, a socket or a child process: lines become [`Incoming`], commands become
//! lines.

use super::thread::{CaughtUp, ending};
use super::{COMMANDS, EVENTS, Incoming, Link};
use crate::wire::{Event, MAX_LINE, Request, decode_envelope, encode};
use futures_util::StreamExt;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_util::codec::{FramedRead, LinesCodec};

/// The engine's ends of a link's channels.
#[derive(Debug)]
pub(super) struct Ends {
    pub events: mpsc::Sender<Incoming>,
    pub commands: mpsc::Receiver<Request>,
}

/// A link and the ends to be pumped.
pub(super) fn link() -> (Link, Ends) {
    let (events, incoming) = mpsc::channel(EVENTS);
    let (requests, commands) = mpsc::channel(COMMANDS);
    (
        Link::new(incoming, Some(requests)),
        Ends { events, commands },
    )
}

/// How a pumped connection ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The viewer dropped its link.
    Left,
    /// The peer closed; what is wrong about that, if anything.
    Closed(Option<String>),
}

/// Pumps until one side is gone. Numbers up to `target` are history: [`Incoming::CaughtUp`] follows them.
pub(super) async fn pump(
    lines: FramedRead<impl AsyncRead + Unpin, LinesCodec>,
    mut write: impl AsyncWrite + Unpin,
    ends: &mut Ends,
    target: u64,
) -> End {
    tokio::select! {
        end = hear(lines, &ends.events, target) => end,
        // A failed write means the peer is gone: its last lines may still be readable.
        Ok(()) = say(&mut write, &mut ends.commands) => End::Left,
    }
}

/// Frames with the wire's limit.
pub(super) fn framed<R: AsyncRead>(read: R) -> FramedRead<R, LinesCodec> {
    FramedRead::new(read, LinesCodec::new_with_max_length(MAX_LINE))
}

async fn hear(
    mut lines: FramedRead<impl AsyncRead + Unpin, LinesCodec>,
    events: &mpsc::Sender<Incoming>,
    target: u64,
) -> End {
    let mut caught_up = CaughtUp::new(target);
    let mut finished = false;
    if caught_up.now(0) && events.send(Incoming::CaughtUp).await.is_err() {
        return End::Left;
    }
    while let Some(line) = lines.next().await {
        let decoded = match line {
            Ok(line) => decode_envelope(&line).map_err(|e| e.to_string()),
            Err(e) => Err(e.to_string()),
        };
        let envelope = match decoded {
            Ok(envelope) => envelope,
            Err(e) => return End::Closed(Some(format!("invalid message from the engine: {e}"))),
        };
        let seq = envelope.seq;
        // Replies of the link itself (number 0) are not the run's final event.
        if seq > 0 {
            finished = matches!(envelope.event, Event::Finished { .. });
        }
        let delivered = events.send(Incoming::Event(Box::new(envelope))).await;
        if delivered.is_err()
            || caught_up.now(seq) && events.send(Incoming::CaughtUp).await.is_err()
        {
            return End::Left;
        }
    }
    End::Closed(ending(finished))
}

async fn say(
    write: &mut (impl AsyncWrite + Unpin),
    commands: &mut mpsc::Receiver<Request>,
) -> std::io::Result<()> {
    while let Some(request) = commands.recv().await {
        write.write_all(encode(&request).as_bytes()).await?;
        write.flush().await?;
    }
    Ok(())
}
