//! Terminal input: typed lines and Ctrl-C.

use crate::link::{Incoming, Link, signals};
use std::io::{self, BufRead};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{Receiver, channel};

/// Typed lines, read on a thread that ends with the program.
pub struct Keyboard {
    lines: Receiver<io::Result<String>>,
    interrupts: Receiver<()>,
    runtime: Runtime,
}

impl Keyboard {
    /// From here on Ctrl-C is delivered here and does not terminate the process.
    ///
    /// # Errors
    /// No signal handler can be installed.
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

    /// The next line; `None` after Ctrl-D or Ctrl-C.
    pub fn line(&mut self) -> Option<io::Result<String>> {
        let (lines, interrupts) = (&mut self.lines, &mut self.interrupts);
        self.runtime.block_on(async {
            tokio::select! {
                line = lines.recv() => line,
                _ = interrupts.recv() => None,
            }
        })
    }

    /// The next message of the link; `None` if Ctrl-C comes first.
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
