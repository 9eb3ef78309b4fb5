//! The connection to one machine: a child process whose lines are read until it ends, and that is restarted with increasing
//! delays.

use super::hosts::{Host, Place};
use super::news::{FleetMessage, VERSION};
use crate::base::clock::{Clock, pause};
use crate::base::files::private_dir;
use crate::base::human;
use crate::base::paths::Env;
use crate::base::stderr_tail::StderrTail;
use crate::base::text::one_line;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Longest line: a run with its curve is some kilobytes.
const LINE: u64 = 256 << 10;
/// Lines in front of the first one that is ours: a login shell may greet.
const GREETINGS: usize = 50;
/// Bytes and characters kept of what a failing `ssh` says.
const ERRORS: usize = 4 << 10;
const WORDS: usize = 160;
/// Waits between tries, the first and the longest.
const FIRST: Duration = Duration::from_secs(2);
const LONGEST: Duration = Duration::from_secs(60);

/// What a connection brings.
#[derive(Debug, Clone, PartialEq)]
pub enum ConnectionEvent {
    FleetMessage(FleetMessage),
    /// It is gone; the words say why.
    Lost(String),
}

/// One machine and how to ask it.
#[derive(Debug, Clone)]
pub struct HostConnection {
    host: Host,
    /// This program.
    own: PathBuf,
    control: Option<PathBuf>,
    child: Arc<Mutex<Option<Child>>>,
}

impl HostConnection {
    pub fn new(host: Host, own: PathBuf, env: &Env) -> HostConnection {
        HostConnection {
            host,
            own,
            control: control_path(&env.runtime_dir),
            child: Arc::default(),
        }
    }

    /// The command that attaches this terminal to a run there.
    pub fn attach(&self, run: &str) -> Vec<OsString> {
        let terminal = matches!(self.host.place, Place::Ssh(_));
        self.host.command(
            &self.own,
            self.control.as_deref(),
            &["attach", run],
            terminal,
        )
    }

    /// Asks, reads and asks again until `take` wants no more.
    pub fn watch(&self, clock: &dyn Clock, mut take: impl FnMut(ConnectionEvent) -> bool) {
        let mut wait = FIRST;
        loop {
            let begun = clock.elapsed();
            let Some(why) = self.listen(&mut take) else {
                return;
            };
            if !take(ConnectionEvent::Lost(why)) {
                return;
            }
            let held = clock.elapsed() - begun > LONGEST;
            wait = pause_for(wait, held, pause);
        }
    }

    /// Ends the connection that stands.
    pub fn disconnect(&self) {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(child) = &mut *child {
            let _ = child.kill();
        }
    }

    /// One connection from its beginning to its end: why it ended, or `None` where nobody listens any more.
    fn listen(&self, take: &mut impl FnMut(ConnectionEvent) -> bool) -> Option<String> {
        let words = ["runs", "--json", "--follow"];
        let line = self
            .host
            .command(&self.own, self.control.as_deref(), &words, false);
        let mut command = Command::new(&line[0]);
        command.args(&line[1..]).process_group(0);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return Some(format!("{}: {error}", line[0].display())),
        };
        let (output, errors) = (child.stdout.take(), child.stderr.take());
        let errors = StderrTail::capture(errors, std::io::sink(), ERRORS);
        *self.child.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
        let ended = match output {
            Some(output) => read(BufReader::new(output), take),
            None => Ended::Closed,
        };
        let child = self
            .child
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let status = child.and_then(|mut child| {
            if ended != Ended::Closed {
                let _ = child.kill();
            }
            child.wait().ok()
        });
        let said = last_line(&errors.end());
        match ended {
            Ended::Enough => None,
            Ended::Refused(why) => Some(why),
            Ended::Closed if !said.is_empty() => Some(said),
            Ended::Closed => Some(match status {
                Some(status) if !status.success() => status.to_string(),
                _ => "the connection was closed".into(),
            }),
        }
    }
}

/// Waits before the next try, and says how long to wait before the one after it. A connection that held for a while is tried again
/// soon.
fn pause_for(wait: Duration, held: bool, pause: impl FnOnce(Duration)) -> Duration {
    let wait = if held { FIRST } else { wait };
    pause(wait);
    (2 * wait).min(LONGEST)
}

#[derive(Debug, PartialEq, Eq)]
enum Ended {
    /// The other side closed it.
    Closed,
    /// Nobody listens here.
    Enough,
    /// What it says cannot be used.
    Refused(String),
}

fn read(mut output: impl BufRead, take: &mut impl FnMut(ConnectionEvent) -> bool) -> Ended {
    let (mut begun, mut greetings) = (false, 0);
    loop {
        let mut line = Vec::new();
        match output.by_ref().take(LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return Ended::Closed,
            Ok(_) if line.len() as u64 == LINE => {
                return Ended::Refused(format!("a line of more than {}", human::bytes(LINE)));
            }
            Ok(_) => {}
        }
        let news: Option<FleetMessage> = serde_json::from_slice(&line).ok();
        match news {
            Some(FleetMessage::Begin { version, program }) if version > VERSION => {
                let program: String = one_line(&program).chars().take(20).collect();
                return Ended::Refused(format!("llmtui {program} there is newer: update this one"));
            }
            Some(news @ FleetMessage::Begin { .. }) => {
                begun = true;
                if !take(ConnectionEvent::FleetMessage(news)) {
                    return Ended::Enough;
                }
            }
            Some(news) if begun => {
                if !take(ConnectionEvent::FleetMessage(news)) {
                    return Ended::Enough;
                }
            }
            _ if begun => {}
            _ => {
                greetings += 1;
                if greetings > GREETINGS {
                    let text = String::from_utf8_lossy(&line);
                    let text: String = one_line(text.trim()).chars().take(WORDS).collect();
                    return Ended::Refused(format!("it says something else: {text:?}"));
                }
            }
        }
    }
}

/// The last line of what a process complained about.
fn last_line(text: &str) -> String {
    let last = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    one_line(last.unwrap_or_default())
        .chars()
        .take(WORDS)
        .collect()
}

/// Where connections to one machine are shared, if the folder is ours alone: who can write there could answer for `ssh`.
fn control_path(runtime_dir: &Path) -> Option<PathBuf> {
    private_dir(runtime_dir).ok()?;
    let path = runtime_dir.join("ssh-%C");
    // A socket's path has 108 bytes; %C becomes 40, and ssh appends a few while it makes one.
    let short = path.as_os_str().len() + 40 + 18 < 108;
    short.then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(text: &str) -> (Vec<FleetMessage>, Ended) {
        let mut news = Vec::new();
        let mut take = |said| {
            if let ConnectionEvent::FleetMessage(one) = said {
                news.push(one);
            }
            true
        };
        let ended = read(text.as_bytes(), &mut take);
        (news, ended)
    }

    #[test]
    fn a_lost_machine_is_retried_after_the_first_wait_then_ever_later() {
        let mut waits = Vec::new();
        let mut wait = FIRST;
        for held in [false, false, false, false, false, false, false, true, false] {
            wait = pause_for(wait, held, |it| waits.push(it.as_secs()));
        }
        assert_eq!(waits, [2, 4, 8, 16, 32, 60, 60, 2, 4]);
    }

    const BEGIN: &str = "{\"type\":\"begin\",\"version\":1}\n";

    #[test]
    fn greetings_are_passed_over_and_rubbish_in_between() {
        let text = format!(
            "Welcome to lab!\n\n{BEGIN}{{\"type\":\"gone\",\"id\":\"a\"}}\nrubbish\n{{\"type\":\"beat\"}}\n"
        );
        let (news, ended) = heard(&text);
        assert_eq!((news.len(), ended), (3, Ended::Closed));
    }

    #[test]
    fn another_program_a_newer_one_and_endless_lines_are_refused() {
        let (news, ended) = heard(&"hello \x1b]52;c;x\x07\n".repeat(100));
        let Ended::Refused(why) = ended else {
            panic!("{ended:?}")
        };
        assert!(
            news.is_empty() && why.contains("something else") && !why.contains('\x1b'),
            "{why}"
        );
        let (_, ended) = heard("{\"type\":\"begin\",\"version\":9,\"program\":\"2.0\"}\n");
        assert!(matches!(ended, Ended::Refused(why) if why.contains("2.0 there is newer")));
        let (_, ended) = heard(&format!("{BEGIN}{}", "x".repeat(LINE as usize + 1)));
        assert!(matches!(ended, Ended::Refused(_)));
    }

    #[test]
    fn connections_are_shared_only_in_a_folder_of_our_own() {
        let dir = tempfile::tempdir().unwrap();
        let set = |mode| {
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        };
        set(0o700);
        assert!(control_path(dir.path()).is_some());
        // A new one is private as well: engines bind their sockets there, too.
        let new = dir.path().join("new");
        assert!(control_path(&new).is_some());
        assert!(private_dir(&new).is_ok());
        set(0o755);
        assert_eq!(control_path(dir.path()), None);
        assert_eq!(control_path(Path::new("/proc/nothing")), None);
    }
}
