//! The rules of `diagnosis` beside the engine. The log of a resumed run is read on its own thread: a gigabyte of it does not
//! delay the first step. Until it is read, new events are queued in order, so that the rules see the run's whole history as
//! it happened.

use crate::diagnosis::Monitor;
use crate::run::log::Tail;
use crate::wire::Event;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

/// The state of the rules.
pub(super) struct Rules {
    watch: Monitor,
    history: Option<History>,
}

/// The earlier log, while it is being read.
struct History {
    reading: JoinHandle<Monitor>,
    /// Events since the resume, oldest first.
    waiting: Vec<Event>,
}

impl Rules {
    /// Of a run that begins.
    pub fn new() -> Rules {
        Rules {
            watch: Monitor::new(),
            history: None,
        }
    }

    /// Of a run that is taken up again, whose log has `bytes` so far: later ones arrive through [`Rules::on_event`].
    /// Where no thread can be started, or the log cannot be read, the rules only know less; who needs the log reports it.
    pub fn of_log(log: PathBuf, bytes: u64) -> Rules {
        let thread = std::thread::Builder::new().name("rules".into());
        let reading = thread.spawn(move || {
            let mut watch = Monitor::new();
            let _ = recall(&mut watch, &log, bytes);
            watch
        });
        let history = reading.ok().map(|reading| History {
            reading,
            waiting: Vec::new(),
        });
        Rules {
            history,
            ..Rules::new()
        }
    }

    /// Takes an event in.
    pub fn on_event(&mut self, event: &Event) {
        match &mut self.history {
            Some(history) => history.waiting.push(event.clone()),
            None => self.watch.on_event(event),
        }
    }

    /// What the rules find otherwise than before; nothing yet while the history is being read. The run's `last` word waits
    /// for it: an end is judged by all of the run.
    pub fn news(&mut self, last: bool) -> Vec<Event> {
        match self.history_is_read(last) {
            true => self.watch.news(),
            false => Vec::new(),
        }
    }

    /// The verdict, where it is another one than before; nothing yet while the history is being read.
    pub fn new_verdict(&mut self) -> Option<Event> {
        self.history_is_read(false)
            .then(|| self.watch.new_verdict())?
    }

    /// Whether the history is read, at the `last` word in any case.
    fn history_is_read(&mut self, last: bool) -> bool {
        let read = |history: &mut History| last || history.reading.is_finished();
        if let Some(history) = self.history.take_if(read) {
            // A panic in there leaves rules that know less.
            self.watch = history.reading.join().unwrap_or_default();
            for event in &history.waiting {
                self.watch.on_event(event);
            }
        }
        self.history.is_none()
    }
}

/// Takes in the events that begin before `bytes`.
fn recall(watch: &mut Monitor, log: &Path, bytes: u64) -> std::io::Result<()> {
    let mut tail = Tail::open(log)?;
    while tail.position() < bytes {
        match tail.next_event()? {
            Some(envelope) => watch.on_event(&envelope.event),
            None => break,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::UnixMillis;
    use crate::wire::{Envelope, VERSION, encode};

    /// A step with a loss that explodes from 60 on.
    fn stepped(step: u64) -> Event {
        let loss = if step < 60 { 3.0 } else { 3.0 * step as f64 };
        Event::Stepped {
            step,
            tokens: step * 64,
            values: [("train/loss".to_string(), crate::wire::Num(loss))].into(),
        }
    }

    fn log(steps: std::ops::Range<u64>) -> String {
        let line = |step| {
            encode(&Envelope {
                v: VERSION,
                seq: step + 1,
                t: UnixMillis(5),
                event: stepped(step),
            })
        };
        steps.map(line).collect()
    }

    #[test]
    fn history_and_what_came_while_it_was_read_are_judged_together_and_nothing_twice() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("events.jsonl");
        let before = log(0..70);
        // The engine's own writer goes on after the history while it is read.
        std::fs::write(&path, before.clone() + &log(70..90)).unwrap();
        let mut rules = Rules::of_log(path, before.len() as u64);
        let mut whole = Monitor::new();
        for step in 0..90 {
            whole.on_event(&stepped(step));
            if step >= 70 {
                rules.on_event(&stepped(step));
            }
        }
        let expected = whole.news();
        assert!(expected.len() > 1, "the planted divergence is found");
        assert_eq!(rules.news(true), expected);
        assert!(rules.history.is_none());
    }

    #[test]
    fn a_log_that_is_gone_leaves_rules_that_know_less() {
        let mut rules = Rules::of_log("/nowhere/events.jsonl".into(), 100);
        rules.on_event(&stepped(1));
        assert_eq!(rules.news(true), {
            let mut watch = Monitor::new();
            watch.on_event(&stepped(1));
            watch.news()
        });
    }
}
