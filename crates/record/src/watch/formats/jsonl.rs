//! One JSON object per line, with a step and numbers: the callback's file, LLaMA-Factory's `trainer_log.jsonl`, torchtune's and
//! whatever writes the same. Objects within objects become `outer/inner`.

use crate::base::clock::UnixMillis;
use crate::base::registry::Entry;
use crate::watch::names::{Mapping, Role};
use crate::watch::tail::{self, Change, Tail};
use crate::watch::{Facts, Format, Item, Source, json};
use serde_json::Value;
use std::io;
use std::path::Path;

pub const FORMAT: Format = Format {
    entry: Entry {
        id: "jsonl",
        title: "JSON lines",
        summary: "one object per line with a step and numbers; live from Hugging Face's trainers with `llmtui watch --callback`",
        source: "jsonlines.org; LLaMA-Factory's trainer_log.jsonl",
    },
    rank: 0,
    is,
    open: |path, _, mapping| {
        Box::new(JsonLines {
            tail: Tail::new(path),
            mapping: mapping.clone(),
            told: 0,
        })
    },
};

/// A file of documents has lines of JSON too: a log has a step and another number.
fn is(path: &Path, head: &[u8]) -> bool {
    let named = path
        .extension()
        .is_some_and(|e| e == "jsonl" || e == "ndjson");
    let text = String::from_utf8_lossy(head);
    let first = text.lines().next().filter(|_| named).and_then(json::parse);
    let Some(first) = first else { return false };
    let values = json::flatten(&first);
    let mapping = Mapping::default();
    mapping.step(&values).is_some() && (values.len() > 1 || first["event"].is_string())
}

struct JsonLines {
    tail: Tail,
    mapping: Mapping,
    /// Skipped lines that were reported.
    told: u64,
}

impl Source for JsonLines {
    fn poll(&mut self, items: &mut Vec<Item>) -> io::Result<bool> {
        let (change, more) = self.tail.read()?;
        if change == Change::Replaced {
            items.push(Item::Restart);
        }
        for line in self.tail.lines() {
            match json::parse(&line) {
                Some(row) => take(&row, &self.mapping, items),
                None if line.trim().is_empty() => {}
                None => self.tail.left_out += 1,
            }
        }
        if self.tail.left_out > 0 && self.told == 0 {
            self.told = self.tail.left_out;
            items.push(Item::Trouble(format!(
                "{}: lines that are not JSON, or longer than 1 MiB, are skipped",
                self.tail.path().display()
            )));
        }
        Ok(more)
    }

    fn lines_of(&mut self) -> Option<&mut Tail> {
        Some(&mut self.tail)
    }

    fn changed(&self) -> Option<UnixMillis> {
        tail::changed(self.tail.path())
    }
}

/// One line: the callback's beginning and end, or readings.
fn take(row: &Value, mapping: &Mapping, items: &mut Vec<Item>) {
    let facts = Facts {
        max_steps: row["max_steps"].as_u64().or(row["total_steps"].as_u64()),
        ..Facts::of(&row["config"])
    };
    match row["event"].as_str() {
        Some("begin") => {
            items.push(Item::Facts(facts));
            items.extend(row["step"].as_u64().map(Item::Began));
            return;
        }
        Some("end") => return items.push(Item::Ended(true)),
        _ => {}
    }
    let max_steps = facts.max_steps;
    if max_steps.is_some() {
        items.push(Item::Facts(facts));
    }
    let mut values = json::flatten(row);
    let time = values
        .iter()
        .find(|(name, _)| mapping.role(name) == Role::Time);
    let t = time.and_then(|(_, x)| json::time_of(*x));
    values.retain(|(name, _)| !matches!(name.as_str(), "max_steps" | "total_steps" | "percentage"));
    items.push(Item::Readings {
        step: None,
        t,
        values,
    });
    // LLaMA-Factory's last step: nothing else says that it is done.
    let percentage = row["percentage"].as_f64();
    if max_steps.is_some() && percentage.is_some_and(|x| x >= 100.0) {
        items.push(Item::Ended(true));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_step_of_llama_factorys_log_is_the_end() {
        let ends = |percentage: f64| {
            let row = serde_json::json!({
                "current_steps": 90, "total_steps": 90, "loss": 1.5, "percentage": percentage,
            });
            let mut items = Vec::new();
            take(&row, &Mapping::default(), &mut items);
            let read = items
                .iter()
                .any(|item| matches!(item, Item::Readings { .. }));
            (read, items.last() == Some(&Item::Ended(true)))
        };
        assert_eq!([ends(99.0), ends(100.0)], [(true, false), (true, true)]);
    }

    /// A writer that is still there may be in the middle of a number.
    #[test]
    fn a_last_line_without_an_end_is_read_once_the_log_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log.jsonl");
        std::fs::write(
            &path,
            "{\"step\": 1, \"loss\": 3.0}\n{\"step\": 2, \"loss\": 2.5}",
        )
        .unwrap();
        let read = |age: u64| {
            let then = std::time::UNIX_EPOCH + std::time::Duration::from_secs(2_000_000_000 - age);
            std::fs::File::options()
                .append(true)
                .open(&path)
                .unwrap()
                .set_modified(then)
                .unwrap();
            let found = crate::watch::find(&path, None).unwrap();
            let clock = Box::new(crate::base::clock::ManualClock::at(2_000_000_000_000));
            let mut watched = crate::watch::ExternalRun::open(found, Mapping::default(), clock);
            let (mut state, mut told) = (crate::run::RunState::new(), false);
            let take = |envelope: &crate::wire::Envelope| {
                told |= format!("{envelope:?}").contains("the last line has no end");
                state.apply(envelope);
            };
            watched.read_all(take).unwrap();
            (state.step, told)
        };
        assert_eq!(read(1), (1, true));
        assert_eq!(read(3_600), (2, false));
    }
}
