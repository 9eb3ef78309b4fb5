//! Recovers a lost or damaged `run.json` from the run's log: checkpoints, spec and log are intact, and the log has the rest,
//! including the request of a branch.

use super::Tail;
use super::header::{BRANCH_OF, Header, Parent};
use super::id::short_run;
use super::log::scan_events;
use crate::base::files::read_small_text;
use crate::wire::{Event, decode_envelope};
use std::path::Path;

/// Bytes of log that are looked through: the first lines of a run say who it is.
const HEAD: usize = 1 << 20;

/// What `run.json` of this folder said; `None` where no engine has begun a log in it. `alive` says whether an engine holds the
/// run: then its process is looked up.
pub(super) fn header(root: &Path, alive: bool) -> Option<Header> {
    // A folder that is being deleted or made has lost its name, or has none yet.
    let folder = root.file_name()?.to_string_lossy().into_owned();
    if folder.starts_with('.') {
        return None;
    }
    let log = root.join("events.jsonl");
    let mut head = String::new();
    Tail::open(&log).ok()?.read_lines(&mut head, HEAD).ok()?;
    let mut envelopes = head.lines().filter_map(|line| decode_envelope(line).ok());
    let mut header = envelopes.find_map(|envelope| match envelope.event {
        Event::Hello {
            run,
            engine,
            pid,
            host,
        } if !run.is_empty() => {
            let mut header = Header::new(&run, &run, envelope.t);
            (header.program, header.pid, header.host) = (engine, pid, host);
            Some(header)
        }
        _ => None,
    })?;
    let name = envelopes.find_map(|envelope| match envelope.event {
        Event::Started { name, .. } => Some(name),
        _ => None,
    });
    header.name = name.unwrap_or_else(|| named_by(&header.id));
    header.parent = branched_from(root);
    if alive {
        // A stop of this process must not hit another one.
        let _ = scan_events(&log, &["Hello"], |event| {
            if let Event::Hello { pid, host, .. } = event {
                (header.pid, header.host) = (pid, host);
            }
        });
    }
    Some(header)
}

/// Where a branch came from, as its request says, which is on the disk before the run is one.
pub(super) fn branched_from(root: &Path) -> Option<Parent> {
    let asked = read_small_text(&root.join("asked.yaml"), HEAD as u64).ok()?;
    let said = asked.lines().next()?.strip_prefix(BRANCH_OF)?;
    // A folder's name may have spaces; what is set comes behind it.
    let place = said.split_once(" -s ").map_or(said, |(place, _)| place);
    let (run, step) = place.trim().rsplit_once('@')?;
    Some(Parent {
        run: run.into(),
        step: step.parse().ok()?,
    })
}

/// The name in an id: `2026-11-21-1422-shakespeare-k3qf` → `shakespeare`.
fn named_by(id: &str) -> String {
    let name = short_run(id);
    name.rsplit_once('-')
        .map_or(name, |(name, _)| name)
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::super::{RunDir, RunError};
    use super::*;
    use crate::base::clock::{ManualClock, UnixMillis};
    use crate::wire::{Envelope, encode};

    fn hello(run: &RunDir, pid: u32) -> Event {
        Event::Hello {
            run: run.id().into(),
            engine: "0.1.0".into(),
            pid,
            host: "h".into(),
        }
    }

    fn log(run: &RunDir, events: &[Event]) {
        let line = |(i, event): (usize, &Event)| {
            encode(&Envelope {
                v: crate::wire::VERSION,
                seq: i as u64 + 1,
                t: UnixMillis(1_763_734_920_000),
                event: event.clone(),
            })
        };
        let lines: String = events.iter().enumerate().map(line).collect();
        std::fs::write(run.events_path(), lines).unwrap();
    }

    #[test]
    fn a_lost_or_damaged_header_is_read_from_the_log() {
        let runs = tempfile::tempdir().unwrap();
        let clock = ManualClock::at(1_763_734_920_000);
        let asked = "# Requested: --branch old-k3qf@500 -s lr=1\n";
        let run = RunDir::create(runs.path(), "demo", "", asked, &clock).unwrap();
        let before = run.header().unwrap();
        std::fs::remove_file(run.header_path()).unwrap();
        // Nothing says that an engine ever had it: a folder that is half made is not a run.
        let none = RunDir::open(run.path());
        assert!(matches!(none, Err(RunError::NotARun(_))), "{none:?}");
        log(&run, &[hello(&run, 7), hello(&run, 8)]);
        for damage in [None, Some(""), Some("{\"format\": 1"), Some("\0\u{1}")] {
            match damage {
                Some(text) => std::fs::write(run.header_path(), text).unwrap(),
                None => assert!(!run.header_path().exists()),
            }
            let again = RunDir::open(run.path()).unwrap();
            assert_eq!(again, run);
            assert!(again.lost_its_header());
            let header = again.header().unwrap();
            assert_eq!(header.name, "demo");
            assert_eq!(header.created, before.created);
            let parent = header.parent.unwrap();
            assert_eq!((parent.run.as_str(), parent.step), ("old-k3qf", 500));
            let (runs, unreadable) = crate::run::index::list(runs.path()).unwrap();
            assert_eq!((runs.len(), unreadable.len()), (1, 0));
        }
        // The engine that takes it up writes it again.
        let claim = run.claim().unwrap();
        assert!(!run.lost_its_header());
        std::fs::remove_file(run.header_path()).unwrap();
        let header = run.header().unwrap();
        assert_eq!(
            (header.pid, &*header.host),
            (8, "h"),
            "of the newest engine"
        );
        drop(claim);
        let hidden = runs.path().join(format!(".del-{}", run.folder()));
        std::fs::rename(run.path(), &hidden).unwrap();
        assert!(RunDir::open(&hidden).is_err(), "it is being deleted");
    }
}
