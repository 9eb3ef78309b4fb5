//! TensorBoard's event files: TFRecords of Event messages, one for each record of the log. Where a run goes back, readers are
//! asked to forget later steps, as after a restart of TensorFlow's or PyTorch's writers.

use super::{Body, Curves, Format, Increment, Record};
use crate::base::checksum::masked_crc32c;
use crate::base::clock::UnixMillis;
use crate::base::protobuf::{Field, Message};
use crate::base::registry::Entry;

pub const FORMAT: Format = Format {
    entry: Entry {
        id: "tfevents",
        title: "TensorBoard",
        summary: "an event file in a folder for the run: TensorBoard, wandb sync",
        source: "tensorflow, record_writer.cc and event.proto",
    },
    is: |name| name.contains("tfevents"),
    body: Body::Records {
        head,
        news,
        by_step: false,
    },
};

/// The version of Event messages: from the second on a restart is said by the session's log.
const VERSION: &[u8] = b"brain.Event:2";
/// SessionLog's START.
const START: u64 = 1;
/// DataType's DT_STRING.
const STRING: u64 = 7;

/// The name of a run's event file: the same each time, so that a folder has one of each run.
pub fn file_name(curves: &Curves) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let host = curves.state.host_name.chars();
    let host: String = host
        .map(|c| if plain(c) { c } else { '-' })
        .take(64)
        .collect();
    let begun = curves.state.first_t.0 / 1000;
    format!("events.out.tfevents.{begun:010}.{host}.llmtui")
}

/// The version, and the spec as text.
fn head(curves: &Curves) -> Vec<u8> {
    let begun = curves.state.first_t;
    let version = at(begun).field(3, Field::Bytes(VERSION));
    let mut bytes = framed(&version.into_bytes());
    let spec = curves.state.head.as_ref().map(|head| &head.spec);
    if let Some(spec) = spec.filter(|spec| !spec.is_null()) {
        let text = format!("```json\n{spec:#}\n```");
        let summary = Message::default().message(1, text_value("spec/text_summary", &text));
        bytes.extend(framed(&at(begun).message(5, summary).into_bytes()));
    }
    bytes
}

fn news(curves: &Curves, news: &Increment<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(step) = news.dropped_from {
        let start = Message::default().field(1, Field::Varint(START));
        let restart = stepped(curves.state.last_t, step).message(7, start);
        bytes.extend(framed(&restart.into_bytes()));
    }
    for record in news.records {
        bytes.extend(framed(&scalars(curves, record).into_bytes()));
    }
    bytes
}

/// Event: 1 wall_time (double), 2 step (int64), 3 file_version, 5 summary, 7 session_log.
fn at(t: UnixMillis) -> Message {
    let seconds = t.0 as f64 / 1e3;
    Message::default().field(1, Field::Fixed64(seconds.to_le_bytes()))
}

fn stepped(t: UnixMillis, step: u64) -> Message {
    match step {
        0 => at(t),
        step => at(t).field(2, Field::Varint(step)),
    }
}

/// Summary: 1 value, each with 1 tag, 2 simple_value (float).
fn scalars(curves: &Curves, record: &Record) -> Message {
    let values = record.values.iter().map(|(column, x)| {
        Message::default()
            .field(1, Field::Bytes(curves.id(*column).as_bytes()))
            .field(2, Field::Fixed32((*x as f32).to_le_bytes()))
    });
    let summary = values.fold(Message::default(), |summary, value| {
        summary.message(1, value)
    });
    stepped(record.t, record.step).message(5, summary)
}

/// A value of the text plugin: 1 tag, 8 tensor (1 dtype, 2 shape, 8 string_val), 9 metadata (1 plugin_data, 1 plugin_name).
fn text_value(tag: &str, text: &str) -> Message {
    let plugin = Message::default().field(1, Field::Bytes(b"text"));
    let one = Message::default().field(1, Field::Varint(1));
    let tensor = Message::default()
        .field(1, Field::Varint(STRING))
        .message(2, Message::default().message(2, one))
        .field(8, Field::Bytes(text.as_bytes()));
    Message::default()
        .field(1, Field::Bytes(tag.as_bytes()))
        .message(8, tensor)
        .message(9, Message::default().message(1, plugin))
}

/// TFRecord: the length and its checksum, the record and its checksum.
fn framed(record: &[u8]) -> Vec<u8> {
    let length = (record.len() as u64).to_le_bytes();
    [
        &length[..],
        &masked_crc32c(&length).to_le_bytes(),
        record,
        &masked_crc32c(record).to_le_bytes(),
    ]
    .concat()
}
