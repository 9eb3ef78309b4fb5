//! One JSON object for each step, with the metrics that were measured there. Values that JSON has no number for are the strings
//! of the log: `"NaN"`, `"inf"`, `"-inf"`.

use super::rows::{Row, rows};
use super::{Body, Curves, Format, Increment};
use crate::base::num::Num;
use crate::base::registry::Entry;
use crate::wire::{encode, id};
use serde::ser::{Serialize, SerializeMap, Serializer};

pub const FORMAT: Format = Format {
    entry: Entry {
        id: "jsonl",
        title: "JSON lines",
        summary: "one object for each step",
        source: "jsonlines.org",
    },
    is: |name| name.ends_with(".jsonl") || name.ends_with(".ndjson"),
    body: Body::Records {
        head: |_| Vec::new(),
        news: lines,
        by_step: true,
    },
};

/// Who reads a stream sees that the run went back by a step that is no later than the one before.
fn lines(curves: &Curves, news: &Increment<'_>) -> Vec<u8> {
    let rows = rows(news.records);
    let lines = rows.iter().map(|row| encode(&Line { row, curves }));
    lines.collect::<String>().into_bytes()
}

/// The step comes first: a reader sees at once where a line belongs.
struct Line<'a> {
    row: &'a Row,
    curves: &'a Curves,
}

impl Serialize for Line<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Line { row, curves } = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("step", &row.step)?;
        if !curves.is_untimed {
            map.serialize_entry("time", &row.time())?;
        }
        if let Some(epoch) = row.epoch {
            map.serialize_entry("epoch", &Num(epoch))?;
        }
        if let Some(tokens) = row.tokens {
            map.serialize_entry("tokens", &tokens)?;
        }
        for (column, x) in &row.values {
            // It stands beside the step already.
            if curves.id(*column) != id::EPOCHS {
                map.serialize_entry(curves.id(*column), &Num(*x))?;
            }
        }
        map.end()
    }
}
