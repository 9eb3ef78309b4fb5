//! Lines over standard input and output: the viewer's side of a child process, and the engine's side inside it.

use super::pipe::{DeliveryState, Disconnect, framed, link, pump};
use super::{COMMANDS, Incoming, Link};
use crate::base::clock::{Clock, SystemClock};
use crate::base::text::sanitize;
use crate::wire::{CommandId, Envelope, Event, MAX_LINE, Request, VERSION, decode_command, encode};
use std::io::{BufRead, Read, Write};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStderr, Command};

/// A child that was asked to end has this long before it is killed.
const FAREWELL: Duration = Duration::from_secs(2);
/// Bytes kept of a child's final error output.
const LAST_WORDS: usize = 4096;

/// Starts `program` and exchanges lines with it. The child ends when the link is dropped: its input closes, and it is
/// killed if it does not react. Its standard error is reported when it dies.
///
/// # Errors
/// The program cannot be started.
pub fn spawn(program: std::process::Command) -> std::io::Result<Link> {
    let (link, mut ends) = link();
    let (tell, started) = channel();
    super::on_own_runtime(async move {
        let Some(mut child) = started_child(program, &tell) else {
            return;
        };
        let (Some(input), Some(output), Some(errors)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return;
        };
        let words = tokio::spawn(stderr_tail(errors));
        // The child's input closes with the end of the pump.
        let mut delivery = DeliveryState::nothing(1, 0);
        let end = pump(framed(output), input, &mut ends, &mut delivery).await;
        let code = wait_or_kill(&mut child).await;
        if end != Disconnect::Left {
            let words = words.await.unwrap_or_default();
            let why = if code == Some(0) {
                None
            } else if words.is_empty() {
                Some("the process died".into())
            } else {
                Some(words)
            };
            let _ = ends.events.send(Incoming::Closed(why)).await;
        }
    });
    match started.recv() {
        Ok(Ok(())) => Ok(link),
        Ok(Err(e)) => Err(e),
        Err(_) => Err(std::io::ErrorKind::BrokenPipe.into()),
    }
}

fn started_child(
    program: std::process::Command,
    tell: &Sender<std::io::Result<()>>,
) -> Option<Child> {
    let spawned = Command::from(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn();
    match spawned {
        Ok(child) => {
            let _ = tell.send(Ok(()));
            Some(child)
        }
        Err(e) => {
            let _ = tell.send(Err(e));
            None
        }
    }
}

/// Waits for the child to exit, then kills it. Returns the exit code of a child that exited by itself.
async fn wait_or_kill(child: &mut Child) -> Option<i32> {
    match tokio::time::timeout(FAREWELL, child.wait()).await {
        Ok(status) => status.ok()?.code(),
        Err(_) => {
            let _ = child.kill().await;
            None
        }
    }
}

/// The end of the child's standard error, sanitized.
async fn stderr_tail(mut errors: ChildStderr) -> String {
    let mut kept = Vec::new();
    let mut buffer = [0; 1024];
    while let Ok(n) = errors.read(&mut buffer).await {
        if n == 0 {
            break;
        }
        kept.extend_from_slice(&buffer[..n]);
        let surplus = kept.len().saturating_sub(LAST_WORDS);
        kept.drain(..surplus);
    }
    sanitize(String::from_utf8_lossy(&kept).trim()).to_string()
}

/// The engine's side: events go out as lines, numbered from 1.
#[derive(Debug)]
pub struct EventWriter<W> {
    out: W,
    seq: u64,
    clock: SystemClock,
}

impl<W: Write> EventWriter<W> {
    pub fn new(out: W) -> EventWriter<W> {
        EventWriter {
            out,
            seq: 0,
            clock: SystemClock::new(),
        }
    }

    /// Writes one event and flushes it.
    ///
    /// # Errors
    /// The viewer is gone.
    pub fn emit(&mut self, event: Event) -> std::io::Result<()> {
        self.seq += 1;
        let line = encode(&Envelope {
            v: VERSION,
            seq: self.seq,
            t: self.clock.now(),
            event,
        });
        self.out.write_all(line.as_bytes())?;
        self.out.flush()
    }
}

/// Input from a viewer: a command, or the id of an invalid line with the parse error.
pub type ParsedRequest = Result<Request, (CommandId, String)>;

/// Reads commands on its own thread until the input closes; then the channel closes too.
pub fn listen(input: impl BufRead + Send + 'static) -> Receiver<ParsedRequest> {
    let (say, heard) = sync_channel(COMMANDS);
    std::thread::spawn(move || read_commands(input, &say));
    heard
}

fn read_commands(mut input: impl BufRead, say: &SyncSender<ParsedRequest>) {
    let mut line = Vec::new();
    loop {
        line.clear();
        let limit = MAX_LINE as u64 + 1;
        match input.by_ref().take(limit).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&line);
        if text.trim().is_empty() {
            continue;
        }
        let heard = match decode_command(text.trim_end()) {
            Ok(request) => Ok(request),
            Err(e) => Err((super::route::id_of(&text), e.to_string())),
        };
        // The rest of an overlong line cannot be distinguished from the next one: the connection ends.
        let endless = line.len() > MAX_LINE && line.last() != Some(&b'\n');
        if say.send(heard).is_err() || endless {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Command as Order;

    fn shell(script: &str) -> std::process::Command {
        let mut command = std::process::Command::new("sh");
        command.arg("-c").arg(script);
        command
    }

    fn note(text: &str) -> String {
        let mut writer = EventWriter::new(Vec::new());
        let event = Event::Noted {
            step: 1,
            text: text.into(),
        };
        writer.emit(event).unwrap();
        String::from_utf8(writer.out).unwrap().trim().to_string()
    }

    fn next_event(link: &mut Link) -> Incoming {
        loop {
            match link.blocking_recv() {
                Incoming::CaughtUp => {}
                other => return other,
            }
        }
    }

    #[test]
    fn a_child_hears_commands_and_ends_when_its_link_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let mark = dir.path().join("ended");
        let script = format!(
            "echo '{}'; read line; echo \"$line\" > {mark}.heard; cat > /dev/null; touch {mark}",
            note("ready"),
            mark = mark.display()
        );
        let mut link = spawn(shell(&script)).unwrap();
        assert!(matches!(next_event(&mut link), Incoming::Event(e) if e.seq == 1));
        link.send(Order::Ping).unwrap();
        drop(link);
        for _ in 0..500 {
            if mark.exists() {
                let heard = std::fs::read_to_string(mark.with_extension("heard")).unwrap();
                assert!(heard.contains("\"ping\""), "{heard}");
                return;
            }
            crate::base::clock::pause(Duration::from_millis(10));
        }
        panic!("the child did not see its input close");
    }

    #[test]
    fn the_last_words_of_a_dead_child_are_told_harmlessly() {
        let mut link = spawn(shell("printf 'no such\\033[2J file' >&2; exit 3")).unwrap();
        assert_eq!(
            next_event(&mut link),
            Incoming::Closed(Some("no such·[2J file".into()))
        );
        let mut link = spawn(shell("kill -9 $$")).unwrap();
        assert_eq!(
            next_event(&mut link),
            Incoming::Closed(Some("the process died".into()))
        );
    }

    #[test]
    fn a_missing_program_is_an_error_at_once() {
        assert!(spawn(std::process::Command::new("/no/such/program")).is_err());
    }

    #[test]
    fn strange_and_endless_lines_are_reported_and_do_not_fill_memory() {
        let mut input = b"{\"id\":1,\"command\":\"ping\"}\n\nnonsense\n".to_vec();
        input.extend_from_slice(b"{\"id\":4,\"command\":\"levitate\"}\n");
        input.resize(input.len() + 3 * MAX_LINE, b'x');
        let heard: Vec<ParsedRequest> = listen(std::io::Cursor::new(input)).iter().collect();
        assert_eq!(heard.len(), 4, "{heard:?}");
        assert!(matches!(&heard[0], Ok(r) if r.command == Order::Ping));
        let ids: Vec<u64> = heard[1..]
            .iter()
            .map(|h| h.as_ref().unwrap_err().0)
            .collect();
        assert_eq!(ids, [0, 4, 0]);
    }

    #[test]
    fn a_speaker_numbers_its_events() {
        let mut writer = EventWriter::new(Vec::new());
        for id in 0..3 {
            writer.emit(Event::Accepted { id }).unwrap();
        }
        let text = String::from_utf8(writer.out).unwrap();
        let seqs: Vec<u64> = text
            .lines()
            .map(|l| crate::wire::decode_envelope(l).unwrap().seq)
            .collect();
        assert_eq!(seqs, [1, 2, 3]);
    }
}
