//! A progress line on standard error, if it is a terminal.

use crate::base::clock::{Clock, SystemClock, UnixMillis};
use crate::base::human::{counted, percent};
use crate::data::inspect::Progress;
use std::io::{IsTerminal, Write};
use std::ops::ControlFlow;
use std::time::Duration;

/// Nothing is shown before this; short waits need no progress.
const QUIET: Duration = Duration::from_millis(300);
const EVERY: Duration = Duration::from_millis(150);

pub struct Line {
    clock: SystemClock,
    shown: bool,
    seen: bool,
    next: UnixMillis,
}

impl Line {
    pub fn new() -> Line {
        let clock = SystemClock::new();
        let now = clock.now();
        Line {
            clock,
            shown: std::io::stderr().is_terminal(),
            seen: false,
            next: UnixMillis(now.0 + QUIET.as_millis() as u64),
        }
    }

    pub fn update(&mut self, progress: Progress) -> ControlFlow<()> {
        let now = self.clock.now();
        if self.shown && now >= self.next {
            self.next = UnixMillis(now.0 + EVERY.as_millis() as u64);
            self.seen = true;
            let share = match progress.share {
                Some(share) => format!(" · {}", percent(share, 0)),
                None => String::new(),
            };
            let _ = write!(
                std::io::stderr(),
                "\r\x1b[Kreading … {}{share}",
                counted(progress.rows, "row")
            );
        }
        ControlFlow::Continue(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.seen {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
