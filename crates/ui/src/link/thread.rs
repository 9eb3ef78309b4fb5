//! A link to an engine in the same process: `--foreground`, headless runs and tests.

use super::alarm::{self, Alarms};
use super::feed::Feed;
use super::reply::envelope;
use super::route::{EngineEnd, Routed, route};
use super::{COMMANDS, EVENTS, Incoming, Link};
use crate::base::clock::SystemClock;
use crate::wire::{Event, Request, decode_envelope};
use std::path::Path;
use tokio::sync::{mpsc, watch};

/// Follows the log at `path` from its first event and forwards commands to `engine`.
pub(super) fn link(path: &Path, growth: watch::Receiver<u64>, engine: EngineEnd) -> Link {
    let (events, incoming) = mpsc::channel(EVENTS);
    let (commands, requests) = mpsc::channel(COMMANDS);
    let target = *growth.borrow();
    let feed = Feed::new(path, growth, 1);
    super::on_own_runtime(async move {
        // The end of either ends both: no viewer, or no more events.
        tokio::select! {
            closed = deliver(feed, target, &events) => {
                let _ = events.send(Incoming::Closed(closed)).await;
            }
            () = forward(requests, &engine, &events) => {}
            () = warn(engine.alarms.clone(), &events) => {}
        }
    });
    Link::new(incoming, Some(commands))
}

/// Sends the log's events until it closes; returns what is wrong, if anything.
async fn deliver(mut feed: Feed, target: u64, events: &mpsc::Sender<Incoming>) -> Option<String> {
    let mut lines = String::new();
    let mut caught_up = CaughtUp::new(target);
    let mut finished = false;
    if caught_up.now(0) {
        events.send(Incoming::CaughtUp).await.ok()?;
    }
    loop {
        match feed.next(&mut lines).await {
            Ok(true) => {}
            Ok(false) => return ending(finished),
            Err(e) => return Some(format!("the log cannot be read: {e}")),
        }
        for line in lines.lines() {
            // A damaged line is not an event; the writer reuses its number.
            let Ok(envelope) = decode_envelope(line) else {
                continue;
            };
            finished = matches!(envelope.event, Event::Finished { .. });
            let seq = envelope.seq;
            events
                .send(Incoming::Event(Box::new(envelope)))
                .await
                .ok()?;
            if caught_up.now(seq) {
                events.send(Incoming::CaughtUp).await.ok()?;
            }
        }
    }
}

async fn forward(
    mut requests: mpsc::Receiver<Request>,
    engine: &EngineEnd,
    events: &mpsc::Sender<Incoming>,
) {
    let clock = SystemClock::new();
    while let Some(request) = requests.recv().await {
        match route(request, engine) {
            // This link delivers everything from the beginning anyway.
            Routed::Forwarded | Routed::Subscribe(_) => {}
            Routed::Detach => return,
            Routed::Answer(event) => {
                let answer = Incoming::Event(Box::new(envelope(*event, &clock)));
                if events.send(answer).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Passes on what the log cannot tell, as long as anybody listens.
async fn warn(mut alarms: Alarms, events: &mpsc::Sender<Incoming>) {
    let clock = SystemClock::new();
    loop {
        let alarm = alarm::next(&mut alarms).await;
        let told = Incoming::Event(Box::new(alarm.envelope(&clock)));
        if events.send(told).await.is_err() {
            return;
        }
    }
}

/// Reports once when the end of the existing log is reached.
#[derive(Debug)]
pub(super) struct CaughtUp {
    target: Option<u64>,
}

impl CaughtUp {
    pub fn new(target: u64) -> CaughtUp {
        CaughtUp {
            target: Some(target),
        }
    }

    /// True at the first number that reaches the target.
    pub fn now(&mut self, seq: u64) -> bool {
        self.target.take_if(|target| seq >= *target).is_some()
    }
}

/// The explanation for an ended event stream.
pub(super) fn ending(finished: bool) -> Option<String> {
    (!finished).then(|| super::NO_FINAL_EVENT.into())
}
