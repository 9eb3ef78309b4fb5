//! A live run whose engine cannot be reached: its log is followed, and no command can be sent.

use super::thread::ending;
use super::{EVENTS, Incoming, Link};
use crate::base::clock::SystemClock;
use crate::base::text::one_line;
use crate::link::alarm::{Alarm, suspended};
use crate::run::{Holder, RunDir, Tail};
use crate::wire::Event;
use std::time::Duration;
use tokio::sync::mpsc;

/// How often the log is looked at.
const PAUSE: Duration = Duration::from_millis(200);

/// Follows the log of `run` until its engine ends; the first message says `why` nothing can be sent.
pub(super) fn follow(run: &RunDir, why: &str) -> std::io::Result<Link> {
    let tail = Tail::open(&run.events_path())?;
    let (events, incoming) = mpsc::channel(EVENTS);
    let alarm = match run.suspended_by() {
        Some(pid) => suspended(pid),
        None => unreachable(&run.holder(), why),
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

/// Why an engine takes no commands, and what can be done: a signal reaches it only from its own machine.
fn unreachable(holder: &Holder, why: &str) -> Alarm {
    const SHOWN: &str = "its log is shown, commands are not possible";
    let (message, hint) = match (&holder.elsewhere, holder.here()) {
        (Some(host), _) => (
            format!(
                "it trains on {}: {SHOWN} from here; run the command there",
                one_line(host)
            ),
            "attach, stop and pause work on the machine that trains",
        ),
        (None, Some(pid)) => (
            format!(
                "process {pid} cannot be reached ({why}): {SHOWN}; `kill {pid}` saves and stops it"
            ),
            REMOVED,
        ),
        (None, None) => (
            format!("the engine cannot be reached ({why}): {SHOWN}"),
            REMOVED,
        ),
    };
    Alarm {
        code: "read_only",
        message,
        hint,
    }
}

/// Why the socket of an engine on this machine may be gone.
const REMOVED: &str = "a logout removes sockets: loginctl enable-linger keeps them";

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_advised_only_for_a_known_process_of_this_machine() {
        let said = |pid, host: Option<&str>| {
            let elsewhere = host.map(String::from);
            unreachable(&Holder { pid, elsewhere }, "no socket").message
        };
        assert!(said(7, None).contains("`kill 7`"));
        assert!(!said(0, None).contains("kill"));
        let theirs = said(7, Some("node3"));
        assert!(
            !theirs.contains("kill") && theirs.contains("trains on node3"),
            "{theirs}"
        );
    }
}
