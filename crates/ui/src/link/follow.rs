//! A live run whose engine cannot be reached: its log is followed, and no command can be sent.

use super::thread::ending;
use super::{EVENTS, Incoming, Link};
use crate::base::clock::SystemClock;
use crate::link::alarm::{Alarm, suspended};
use crate::run::{RunDir, Tail};
use crate::wire::Event;
use std::time::Duration;
use tokio::sync::mpsc;

/// How often the log is looked at.
const PAUSE: Duration = Duration::from_millis(200);

/// Follows the log of `run` until its engine ends; the first message says `why` nothing can be sent.
pub(super) fn follow(run: &RunDir, why: &str) -> std::io::Result<Link> {
    let tail = Tail::open(&run.events_path())?;
    let (events, incoming) = mpsc::channel(EVENTS);
    let pid = run.header().map_or(0, |header| header.pid);
    let alarm = match run.suspended_by() {
        Some(pid) => suspended(pid),
        None => Alarm {
            code: "read_only",
            message: format!(
                "process {pid} cannot be reached ({why}): its log is shown, commands are not possible; `kill {pid}` saves and stops it"
            ),
            hint: "a logout removes sockets: loginctl enable-linger keeps them",
        },
    };
    let run = run.clone();
    std::thread::spawn(move || {
        let told = alarm.envelope(&SystemClock::new());
        if events
            .blocking_send(Incoming::Event(Box::new(told)))
            .is_ok()
        {
            let closed = forward(tail, &run, &events);
            let _ = events.blocking_send(Incoming::Closed(closed));
        }
    });
    Ok(Link::read_only(incoming))
}

/// Passes the log on as it grows; returns what is wrong with its end, if anything.
fn forward(mut tail: Tail, run: &RunDir, events: &mpsc::Sender<Incoming>) -> Option<String> {
    let (mut caught_up, mut finished) = (false, false);
    loop {
        // Asked before reading: what an engine wrote before its end is still read.
        let alive = run.is_alive();
        loop {
            match tail.next_event() {
                Ok(Some(envelope)) => {
                    finished = matches!(envelope.event, Event::Finished { .. });
                    events
                        .blocking_send(Incoming::Event(Box::new(envelope)))
                        .ok()?;
                }
                Ok(None) => break,
                Err(e) => return Some(format!("the log cannot be read: {e}")),
            }
        }
        if !caught_up {
            caught_up = true;
            events.blocking_send(Incoming::CaughtUp).ok()?;
        }
        if !alive {
            return ending(finished);
        }
        if events.is_closed() {
            return None;
        }
        crate::base::clock::pause(PAUSE);
    }
}
