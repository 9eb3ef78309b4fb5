//! A run of another program: whoever reads its log is asked for news again and again. No command reaches it.

use super::{EVENTS, Incoming, Link, SendError};
use crate::wire::Envelope;
use std::time::Duration;
use tokio::sync::mpsc;

/// How often the log is looked at.
const PAUSE: Duration = Duration::from_millis(500);

/// Sends what `news` finds: everything there is, then [`Incoming::CaughtUp`], then what comes, until the viewer leaves. `news` gives
/// events, and whether more can be had at once.
pub fn foreign(
    mut news: impl FnMut() -> std::io::Result<(Vec<Envelope>, bool)> + Send + 'static,
) -> Link {
    let (events, incoming) = mpsc::channel(EVENTS);
    std::thread::spawn(move || {
        let mut caught_up = false;
        while !events.is_closed() {
            let more = match news() {
                Ok((news, more)) => {
                    let sent = |envelope| events.blocking_send(Incoming::Event(Box::new(envelope)));
                    if news.into_iter().try_for_each(sent).is_err() {
                        return;
                    }
                    more
                }
                Err(e) => {
                    let why = format!("the log cannot be read: {e}");
                    let _ = events.blocking_send(Incoming::Closed(Some(why)));
                    return;
                }
            };
            if more {
                continue;
            }
            if !std::mem::replace(&mut caught_up, true)
                && events.blocking_send(Incoming::CaughtUp).is_err()
            {
                return;
            }
            crate::base::clock::pause(PAUSE);
        }
    });
    Link {
        mute: SendError::Foreign,
        ..Link::new(incoming, None)
    }
}
