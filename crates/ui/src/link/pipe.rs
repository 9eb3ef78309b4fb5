//! The viewer's side of a line-based peer, a socket or a child process: lines become [`Incoming`], commands become
//! lines.

use super::alarm::suspended;
use super::thread::{CaughtUp, ending};
use super::{COMMANDS, EVENTS, Incoming, Link};
use crate::base::clock::SystemClock;
use crate::base::process::is_suspended;
use crate::wire::{DecodeError, Envelope, Event, MAX_LINE, Request, decode_envelope, encode};
use futures_util::StreamExt;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_util::codec::{FramedRead, LinesCodec, LinesCodecError};

/// An engine sends readings of its machine once a second, between steps.
const SILENCE: Duration = Duration::from_secs(5);

/// The engine's ends of a link's channels.
#[derive(Debug)]
pub(super) struct EngineChannels {
    pub events: mpsc::Sender<Incoming>,
    pub commands: mpsc::Receiver<Request>,
}

/// A link and the ends to be pumped.
pub(super) fn link() -> (Link, EngineChannels) {
    let (events, incoming) = mpsc::channel(EVENTS);
    let (requests, commands) = mpsc::channel(COMMANDS);
    (
        Link::new(incoming, Some(requests)),
        EngineChannels { events, commands },
    )
}

/// How a pumped connection ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Disconnect {
    /// The viewer dropped its link.
    Left,
    /// The peer closed after its final event, or sends what is not understood: what is wrong, if anything.
    Closed(Option<String>),
    /// The peer is gone without a final event, or the connection is.
    Broken(String),
}

/// How much of a run was sent to a viewer.
#[derive(Debug)]
pub(super) struct DeliveryState {
    caught_up: CaughtUp,
    seq: u64,
    finished: bool,
    /// The process at the other end, where it is one of this machine.
    peer: Option<u32>,
}

impl DeliveryState {
    /// Nothing yet of what begins at `from_seq`. Numbers up to `target` are history: [`Incoming::CaughtUp`] follows them.
    pub fn nothing(from_seq: u64, target: u64) -> DeliveryState {
        DeliveryState {
            caught_up: CaughtUp::new(target),
            seq: from_seq.saturating_sub(1),
            finished: false,
            peer: None,
        }
    }

    /// The same from a process of this machine, which is looked at when it falls silent.
    pub fn by(self, pid: u32) -> DeliveryState {
        DeliveryState {
            peer: Some(pid),
            ..self
        }
    }

    /// The last sequence number that was sent.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// True if the last sent event of the log is the final one.
    pub fn finished(&self) -> bool {
        self.finished
    }

    /// Says so if there is no history; false if the viewer has left.
    async fn begin(&mut self, events: &mpsc::Sender<Incoming>) -> bool {
        !self.caught_up.now(0) || events.send(Incoming::CaughtUp).await.is_ok()
    }

    /// Passes an event on; false if the viewer has left.
    pub async fn deliver(&mut self, envelope: Envelope, events: &mpsc::Sender<Incoming>) -> bool {
        let seq = envelope.seq;
        // Replies of the link itself (number 0) are not the run's final event.
        if seq > 0 {
            self.seq = seq;
            self.finished = matches!(envelope.event, Event::Finished { .. });
        }
        let event = Incoming::Event(Box::new(envelope));
        events.send(event).await.is_ok()
            && (!self.caught_up.now(seq) || events.send(Incoming::CaughtUp).await.is_ok())
    }
}

/// Pumps until one side is gone.
pub(super) async fn pump(
    lines: FramedRead<impl AsyncRead + Unpin, LinesCodec>,
    mut write: impl AsyncWrite + Unpin,
    ends: &mut EngineChannels,
    delivery: &mut DeliveryState,
) -> Disconnect {
    tokio::select! {
        end = pump_events(lines, &ends.events, delivery) => end,
        // A failed write means the peer is gone: its last lines may still be readable.
        Ok(()) = pump_commands(&mut write, &mut ends.commands) => Disconnect::Left,
    }
}

/// Frames with the wire's limit.
pub(super) fn framed<R: AsyncRead>(read: R) -> FramedRead<R, LinesCodec> {
    FramedRead::new(read, LinesCodec::new_with_max_length(MAX_LINE))
}

async fn pump_events(
    mut lines: FramedRead<impl AsyncRead + Unpin, LinesCodec>,
    events: &mpsc::Sender<Incoming>,
    delivery: &mut DeliveryState,
) -> Disconnect {
    if !delivery.begin(events).await {
        return Disconnect::Left;
    }
    while let Some(line) = next_line(&mut lines, events, delivery.peer).await {
        let invalid = |e: &dyn std::error::Error| {
            Disconnect::Closed(Some(format!("invalid message from the engine: {e}")))
        };
        let envelope = match line.map(|line| decode_envelope(&line)) {
            Ok(Ok(envelope)) => envelope,
            // A damaged line of the log, as a crash leaves it, is not an event: no other reader of the log stops at one.
            Ok(Err(DecodeError::Malformed(_))) => continue,
            Ok(Err(e)) => return invalid(&e),
            Err(LinesCodecError::Io(e)) => {
                return Disconnect::Broken(format!("the connection to the engine broke: {e}"));
            }
            Err(e) => return invalid(&e),
        };
        if !delivery.deliver(envelope, events).await {
            return Disconnect::Left;
        }
    }
    match ending(delivery.finished()) {
        None => Disconnect::Closed(None),
        Some(why) => Disconnect::Broken(why),
    }
}

/// The next line. If a signal suspended the peer, viewers are notified once.
async fn next_line(
    lines: &mut FramedRead<impl AsyncRead + Unpin, LinesCodec>,
    events: &mpsc::Sender<Incoming>,
    peer: Option<u32>,
) -> Option<Result<String, LinesCodecError>> {
    let Some(pid) = peer else {
        return lines.next().await;
    };
    loop {
        match tokio::time::timeout(SILENCE, lines.next()).await {
            Ok(line) => return line,
            Err(_) if is_suspended(pid) => break,
            Err(_) => {}
        }
    }
    let alarm = suspended(pid).envelope(&SystemClock::new());
    // A viewer that has left is noticed at the next line.
    let _ = events.send(Incoming::Event(Box::new(alarm))).await;
    lines.next().await
}

async fn pump_commands(
    write: &mut (impl AsyncWrite + Unpin),
    commands: &mut mpsc::Receiver<Request>,
) -> std::io::Result<()> {
    while let Some(request) = commands.recv().await {
        write.write_all(encode(&request).as_bytes()).await?;
        write.flush().await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::UnixMillis;
    use crate::wire::VERSION;

    /// It was shown as a run that trains, at the pace of its last steps.
    #[tokio::test]
    async fn a_peer_that_a_signal_has_stopped_is_told_of() {
        let mut peer = std::process::Command::new("sleep")
            .arg("600")
            .spawn()
            .unwrap();
        let pid = rustix::process::Pid::from_child(&peer);
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        let (events, mut incoming) = mpsc::channel(8);
        let (ours, _theirs) = tokio::io::duplex(64);
        let mut delivery = DeliveryState::nothing(1, 0).by(peer.id());
        let hearing = pump_events(framed(ours), &events, &mut delivery);
        let said = tokio::select! {
            _ = hearing => None,
            said = async {
                loop {
                    match incoming.recv().await {
                        Some(Incoming::CaughtUp) => {}
                        other => return other,
                    }
                }
            } => said,
        };
        peer.kill().unwrap();
        peer.wait().unwrap();
        let Some(Incoming::Event(envelope)) = said else {
            panic!("{said:?}");
        };
        let Event::Warned { code, message, .. } = &envelope.event else {
            panic!("{envelope:?}");
        };
        assert_eq!((envelope.seq, code.as_str()), (0, "suspended"));
        assert!(message.contains("kill -CONT"), "{message}");
    }

    fn note(seq: u64, v: u32) -> String {
        let (step, text) = (seq, "a note".to_string());
        let event = Event::Noted { step, text };
        let t = UnixMillis(0);
        encode(&Envelope { v, seq, t, event })
    }

    async fn heard(lines: String) -> (Vec<u64>, Disconnect) {
        let (events, mut incoming) = mpsc::channel(8);
        let end = pump_events(
            framed(lines.as_bytes()),
            &events,
            &mut DeliveryState::nothing(1, 0),
        )
        .await;
        drop(events);
        let mut seqs = Vec::new();
        while let Some(item) = incoming.recv().await {
            if let Incoming::Event(envelope) = item {
                seqs.push(envelope.seq);
            }
        }
        (seqs, end)
    }

    #[tokio::test]
    async fn a_damaged_line_is_passed_over_and_a_newer_wire_is_refused() {
        let (first, second) = (note(1, VERSION), note(2, VERSION));
        let torn = &second[..second.len() / 2];
        let (seqs, end) = heard(format!("{first}{torn}\n{second}")).await;
        assert_eq!(seqs, [1, 2]);
        assert_eq!(end, Disconnect::Broken(ending(false).unwrap()));
        let (seqs, end) = heard(format!("{first}{}", note(2, VERSION + 1))).await;
        assert_eq!(seqs, [1]);
        assert!(matches!(end, Disconnect::Closed(Some(why)) if why.contains("update llmtui")));
    }
}
