//! Warns at a resume that the previous engine was killed. A process killed by the kernel for lack of memory cannot log it,
//! but the counter of its cgroup shows it.

use crate::run::log::last_event;
use crate::wire::Event;
use std::path::Path;

/// A warning for the log, if the engine before was killed where the kernel kills for memory. `oom_kills` is the cgroup's
/// counter (`memory.events`).
pub(super) fn oom_warning(events: &Path, oom_kills: Option<u64>) -> Option<Event> {
    let kills = oom_kills.filter(|kills| *kills > 0)?;
    // An unreadable log is reported where it is needed.
    let last = last_event(events).ok()??;
    if matches!(last.event, Event::Finished { .. }) {
        return None;
    }
    let times = if kills == 1 { "once" } else { "several times" };
    Some(Event::Warned {
        step: 0,
        code: "killed".into(),
        message: format!(
            "the previous engine process ended without a final event, and the kernel's OOM killer has killed a process of this \
             cgroup {times} ({kills}): it was probably out of memory"
        ),
        hint: "training resumes from the latest checkpoint; to prevent it, lower train.micro_batch_size or model.seq_len, \
               or raise the limit (memory.max)"
            .into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::SystemClock;
    use crate::run::LogWriter;
    use crate::wire::Outcome;
    use std::sync::Arc;

    #[test]
    fn a_kill_for_memory_is_told_and_an_end_of_its_own_or_no_kill_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let log = |event: Event| {
            let clock = Arc::new(SystemClock::new());
            let (mut sender, thread) = LogWriter::open(&path, clock, |_| ()).unwrap();
            sender.emit(event).unwrap();
            drop(sender);
            thread.finish().unwrap();
        };
        assert_eq!(oom_warning(&path, Some(1)), None, "no log");
        log(Event::RolledBack { step: 3 });
        assert_eq!(oom_warning(&path, None), None);
        assert_eq!(oom_warning(&path, Some(0)), None);
        let Some(Event::Warned { code, message, .. }) = oom_warning(&path, Some(2)) else {
            panic!("nothing is told")
        };
        assert_eq!(code, "killed");
        assert!(message.contains("several times (2)"), "{message}");
        log(Event::Finished {
            outcome: Outcome::Stopped,
            step: 3,
            tokens: 0,
            val_loss: None,
            best: None,
            train_loss: None,
            seconds: 0.0,
            message: String::new(),
        });
        assert_eq!(oom_warning(&path, Some(2)), None);
    }
}
