//! Plain text: paragraphs with an empty line between them.

use super::Writer;
use serde_json::{Map, Value};
use std::io::{self, Write};

#[derive(Default)]
pub(super) struct Paragraphs {
    begun: bool,
}

impl Writer for Paragraphs {
    fn row(&mut self, fields: &Map<String, Value>, out: &mut dyn Write) -> io::Result<()> {
        let Some(text) = fields.get("text").and_then(Value::as_str) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "plain text can only hold rows with just the column `text`",
            ));
        };
        if self.begun {
            out.write_all(b"\n")?;
        }
        self.begun = true;
        out.write_all(text.trim_end_matches('\n').as_bytes())?;
        out.write_all(b"\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn line_ends_of_rows_do_not_add_up() {
        let mut paragraphs = Paragraphs::default();
        let mut out = Vec::new();
        for text in ["a\n\n", "b"] {
            let row = json!({"text": text});
            paragraphs.row(row.as_object().unwrap(), &mut out).unwrap();
        }
        assert_eq!(out, b"a\n\nb\n");
    }
}
