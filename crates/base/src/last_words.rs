//! Captures a child's stderr as it is written (a full pipe would block the child) and keeps its tail, where errors are.

use std::io::{Read, Write};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long the end is waited for: a process that this one has left behind may hold standard error open.
const PATIENCE: Duration = Duration::from_secs(2);

/// The last words of a process, while they come.
#[derive(Debug)]
pub struct LastWords {
    heard: Arc<Mutex<Vec<u8>>>,
    ended: Receiver<()>,
}

impl LastWords {
    /// Reads what comes `from` a process, keeps the last `limit` bytes of it, and writes all of it `to` somewhere.
    pub fn hear(
        from: Option<impl Read + Send + 'static>,
        to: impl Write + Send + 'static,
        limit: usize,
    ) -> LastWords {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let (over, ended) = std::sync::mpsc::channel();
        if let Some(from) = from {
            let heard = Arc::clone(&heard);
            std::thread::spawn(move || {
                pass_on(from, to, &heard, limit);
                drop(over);
            });
        }
        LastWords { heard, ended }
    }

    /// What was said last, once the process has ended; of a longer text from somewhere in a line on.
    pub fn end(self) -> String {
        // An error too: the reader is gone.
        let _ = self.ended.recv_timeout(PATIENCE);
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&heard).into_owned()
    }
}

fn pass_on(mut from: impl Read, mut to: impl Write, heard: &Mutex<Vec<u8>>, limit: usize) {
    let mut buffer = [0; 4096];
    while let Ok(n) = from.read(&mut buffer) {
        if n == 0 {
            return;
        }
        // Where it goes may be closed: that ends no process.
        let _ = to.write_all(&buffer[..n]).and_then(|()| to.flush());
        let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.extend_from_slice(&buffer[..n]);
        let surplus = heard.len().saturating_sub(limit);
        heard.drain(..surplus);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Cursor, sink};

    #[test]
    fn the_end_is_kept_and_all_of_it_passed_on() {
        let text = format!("{}\nthe end\n", "x".repeat(30_000));
        let words = LastWords::hear(Some(Cursor::new(text.clone())), sink(), 100);
        let end = words.end();
        assert_eq!(end.len(), 100);
        assert!(end.ends_with("x\nthe end\n"), "{end}");
        let (mut copy, heard) = (Vec::new(), Mutex::default());
        pass_on(text.as_bytes(), &mut copy, &heard, 100);
        assert_eq!(copy, text.as_bytes());
        assert_eq!(LastWords::hear(None::<Cursor<&str>>, sink(), 9).end(), "");
    }
}
