//! JSON, one object a line, and JSON as one array.

use super::Writer;
use serde_json::{Map, Value};
use std::io::{self, Write};

pub(super) struct Lines;

impl Writer for Lines {
    fn row(&mut self, fields: &Map<String, Value>, out: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, fields)?;
        out.write_all(b"\n")
    }
}

/// An array with one object a line.
#[derive(Default)]
pub(super) struct Array {
    begun: bool,
}

impl Writer for Array {
    fn row(&mut self, fields: &Map<String, Value>, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(if self.begun { b",\n" } else { b"[\n" })?;
        self.begun = true;
        serde_json::to_writer(&mut *out, fields)?;
        Ok(())
    }

    fn end(&mut self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(if self.begun { b"\n]\n" } else { b"[]\n" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_without_rows_is_one() {
        let mut out = Vec::new();
        Array::default().end(&mut out).unwrap();
        assert_eq!(out, b"[]\n");
    }
}
