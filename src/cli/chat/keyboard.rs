//! The person at the terminal: lines as they are typed, and Ctrl-C.

use crate::link::{Incoming, Link, signals};
use std::io::{self, BufRead};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{Receiver, channel};

/// What is typed. Lines are read on a thread of their own, which ends with the program.
pub struct Keyboard {
    lines: Receiver<io::Result<String>>,
    interrupts: Receiver<()>,
    runtime: Runtime,
}

impl Keyboard {
    /// From now on Ctrl-C is heard here and ends nothing by itself.
    ///
    /// # Errors
    /// The system gives no means to wait.
    pub fn listen() -> io::Result<Keyboard> {
        let (send, lines) = channel(1);
        std::thread::spawn(move || {
            for line in io::stdin().lock().lines() {
                if send.blocking_send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Keyboard {
            lines,
            interrupts: signals::interrupts(),
            runtime: Builder::new_current_thread().build()?,
        })
    }

    /// The next line; `None` after Ctrl-D and Ctrl-C.
    pub fn line(&mut self) -> Option<io::Result<String>> {
        let (lines, interrupts) = (&mut self.lines, &mut self.interrupts);
        self.runtime.block_on(async {
            tokio::select! {
                line = lines.recv() => line,
                _ = interrupts.recv() => None,
            }
        })
    }

    /// What arrives over the link; `None` when Ctrl-C comes first.
    pub fn incoming(&mut self, link: &mut Link) -> Option<Incoming> {
        let interrupts = &mut self.interrupts;
        self.runtime.block_on(async {
            tokio::select! {
                incoming = link.recv() => Some(incoming),
                Some(()) = interrupts.recv() => None,
            }
        })
    }
}
