//! A finished run, replayed from its log through the same interface as a live one. It accepts no commands.

use super::{EVENTS, Incoming, Link};
use crate::base::clock::SystemClock;
use crate::base::human;
use crate::link::alarm::Alarm;
use crate::run::Tail;
use crate::run::state::DAMAGED;
use std::path::Path;
use tokio::sync::mpsc;

/// Sends every event of the log at `path`, then [`Incoming::CaughtUp`]. A missing log is an empty one.
///
/// # Errors
/// The log is there and cannot be opened.
pub fn replay(path: &Path) -> std::io::Result<Link> {
    let tail = match Tail::open(path) {
        Ok(tail) => Some(tail),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
        Err(e) => return Err(e),
    };
    let (events, incoming) = mpsc::channel(EVENTS);
    std::thread::spawn(move || forward(tail, &events));
    Ok(Link::new(incoming, None))
}

/// What is missing from a replay.
fn lines_damaged(lines: u64) -> Alarm {
    let lines = match lines {
        1 => "1 damaged line of the log was skipped".into(),
        n => format!(
            "{} damaged lines of the log were skipped",
            human::grouped(n)
        ),
    };
    Alarm {
        code: DAMAGED,
        message: lines,
        hint: "check the disk; a copy of events.jsonl from before the damage restores them",
    }
}

/// Ends early when the viewer has left.
fn forward(tail: Option<Tail>, events: &mpsc::Sender<Incoming>) {
    if let Some(mut tail) = tail {
        loop {
            match tail.next_event() {
                Ok(Some(envelope)) => {
                    let event = Incoming::Event(Box::new(envelope));
                    if events.blocking_send(event).is_err() {
                        return;
                    }
                }
                Ok(None) => {
                    let damaged = (tail.damaged() > 0).then(|| lines_damaged(tail.damaged()));
                    let told = damaged.map(|alarm| alarm.envelope(&SystemClock::new()));
                    let told = told.map(|told| Incoming::Event(Box::new(told)));
                    if let Some(Err(_)) = told.map(|told| events.blocking_send(told)) {
                        return;
                    }
                    break;
                }
                Err(e) => {
                    let why = format!("the log cannot be read: {e}");
                    let _ = events.blocking_send(Incoming::Closed(Some(why)));
                    return;
                }
            }
        }
    }
    let _ = events.blocking_send(Incoming::CaughtUp);
}
