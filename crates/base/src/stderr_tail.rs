//! Captures a child's stderr as it is written (a full pipe would block the child) and keeps its tail, where errors are.

use std::io::{Read, Write};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Timeout for the end of the stream: a descendant of the process may hold its stderr open.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The tail of a process's stderr, captured while it runs.
#[derive(Debug)]
pub struct StderrTail {
    tail: Arc<Mutex<Vec<u8>>>,
    ended: Receiver<()>,
}

impl StderrTail {
    /// Reads stderr `from` a process, keeps its last `limit` bytes, and copies everything `to` a writer.
    pub fn capture(
        from: Option<impl Read + Send + 'static>,
        to: impl Write + Send + 'static,
        limit: usize,
    ) -> StderrTail {
        let tail = Arc::new(Mutex::new(Vec::new()));
        let (done, ended) = std::sync::mpsc::channel();
        if let Some(from) = from {
            let tail = Arc::clone(&tail);
            std::thread::spawn(move || {
                copy_and_keep(from, to, &tail, limit);
                drop(done);
            });
        }
        StderrTail { tail, ended }
    }

    /// The captured tail, once the process has ended; a longer text may begin in the middle of a line.
    pub fn end(self) -> String {
        // An error means that the reading thread has ended.
        let _ = self.ended.recv_timeout(TIMEOUT);
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&tail).into_owned()
    }
}

fn copy_and_keep(mut from: impl Read, mut to: impl Write, tail: &Mutex<Vec<u8>>, limit: usize) {
    let mut buffer = [0; 4096];
    while let Ok(n) = from.read(&mut buffer) {
        if n == 0 {
            return;
        }
        // The writer may be closed: that must not end the capture.
        let _ = to.write_all(&buffer[..n]).and_then(|()| to.flush());
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend_from_slice(&buffer[..n]);
        let surplus = tail.len().saturating_sub(limit);
        tail.drain(..surplus);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Cursor, sink};

    #[test]
    fn the_tail_is_kept_and_everything_is_copied() {
        let text = format!("{}\nthe end\n", "x".repeat(30_000));
        let words = StderrTail::capture(Some(Cursor::new(text.clone())), sink(), 100);
        let end = words.end();
        assert_eq!(end.len(), 100);
        assert!(end.ends_with("x\nthe end\n"), "{end}");
        let (mut copy, tail) = (Vec::new(), Mutex::default());
        copy_and_keep(text.as_bytes(), &mut copy, &tail, 100);
        assert_eq!(copy, text.as_bytes());
        assert_eq!(
            StderrTail::capture(None::<Cursor<&str>>, sink(), 9).end(),
            ""
        );
    }
}
