//! `<|tool_call_start|>[name(x=1, y="a"), …]<|tool_call_end|>`: LFM 2. The list is Python's.

use super::python;
use super::{Block, Call, Format, Reading};
use serde_json::Value;

const START: &str = "<|tool_call_start|>";
const END: &str = "<|tool_call_end|>";

pub(super) const FORMAT: Format = Format {
    word: "lfm2",
    marks: &[START],
    bare: None,
    read,
};

fn read(text: &str, reading: Reading) -> Block {
    let inner = text.strip_prefix(START).unwrap_or(text);
    let (list, len) = match inner.find(END) {
        Some(at) => (&inner[..at], text.len() - inner.len() + at + END.len()),
        None if reading.is_end => (inner, text.len()),
        None => return Block::Open,
    };
    match python::calls(list) {
        Some(calls) if !calls.is_empty() => {
            let call = |(name, arguments): (String, Value)| Call {
                name,
                arguments: arguments.to_string(),
                id: None,
            };
            Block::Calls(calls.into_iter().map(call).collect(), len)
        }
        _ => Block::Text,
    }
}
