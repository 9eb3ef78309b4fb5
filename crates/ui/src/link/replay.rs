//! A finished run, replayed from its log through the same interface as a live one. It accepts no commands.

use super::{EVENTS, Incoming, Link};
use crate::run::Tail;
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
                Ok(None) => break,
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
