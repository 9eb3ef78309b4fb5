//! Kinds of files and how each becomes rows: one file per kind, one word in the list.

mod csv;
mod json;
mod jsonl;
mod parquet;
mod text;

pub(in crate::data) use parquet::PARSER as PARQUET;
pub use parquet::announced_rows;

use super::fault::ReadFault;
use super::input::Input;
use crate::data::{DataError, Record};
use std::path::Path;

/// The kind of plain text.
pub(super) const TEXT: &str = text::CONTAINER.id;

/// The rows of one file.
pub(super) type Stream = Box<dyn Iterator<Item = Result<Record, ReadFault>> + Send>;

/// A kind of file.
pub(super) struct Container {
    pub id: &'static str,
    /// In lower case, without the dot.
    pub extensions: &'static [&'static str],
    pub open: fn(Input) -> Result<Stream, DataError>,
}

/// Every kind that can be read.
pub(super) const ALL: [&Container; 6] = [
    &text::CONTAINER,
    &jsonl::CONTAINER,
    &json::CONTAINER,
    &csv::COMMAS,
    &csv::TABS,
    &parquet::CONTAINER,
];

/// The kind by the file's extension; compression suffixes do not count.
pub(super) fn by_name(path: &Path) -> Option<&'static Container> {
    let name = path.file_name()?.to_string_lossy().to_lowercase();
    let name = [".gz", ".zst", ".zstd"]
        .iter()
        .find_map(|suffix| name.strip_suffix(suffix))
        .unwrap_or(&name);
    let (_, extension) = name.rsplit_once('.')?;
    ALL.into_iter().find(|c| c.extensions.contains(&extension))
}

/// The kind of a file: by its name, else by its first bytes. What has no other sign is plain text.
pub(super) fn of(path: &Path, head: &[u8]) -> &'static Container {
    if head.starts_with(b"PAR1") {
        return &parquet::CONTAINER;
    }
    let start = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    let known = by_name(path).map(|known| match known.id == jsonl::CONTAINER.id {
        true if spans_lines(start) => &json::CONTAINER,
        _ => known,
    });
    known.unwrap_or_else(|| match begins_as_rows(start) {
        true => &json::CONTAINER,
        false => &text::CONTAINER,
    })
}

/// Whether a text begins as rows of JSON do.
fn begins_as_rows(start: &[u8]) -> bool {
    let mut solid = start.iter().filter(|b| !b.is_ascii_whitespace());
    matches!(
        (solid.next(), solid.next()),
        (Some(b'{'), Some(b'"' | b'}')) | (Some(b'['), Some(b'{'))
    )
}

/// What is to be known of rows of JSON that are read as a plain text, by the file's name.
pub(super) fn taken_for_text(file: &str, head: &[u8]) -> Option<String> {
    begins_as_rows(head).then(|| {
        format!("{file}: read as plain text, and it looks like rows of JSON: name it .jsonl to read them as rows")
    })
}

/// Whether JSON under the name of JSON lines is one array, or objects over several lines. Lists of turns, one a line, are neither.
fn spans_lines(start: &[u8]) -> bool {
    let start = start.trim_ascii_start();
    let (line, rest) = match start.iter().position(|byte| *byte == b'\n') {
        Some(end) => (start[..end].trim_ascii_end(), start[end..].trim_ascii()),
        None => (start, &[][..]),
    };
    // A row that was cut off after its brace is no object over several lines.
    if line == b"[" || (line == b"{" && rest.starts_with(b"\"")) {
        return true;
    }
    let within = line.strip_prefix(b"[").map(<[u8]>::trim_ascii_start);
    let Some(row) = within.and_then(|within| within.strip_prefix(b"{")) else {
        return false;
    };
    let row = row.trim_ascii_start();
    let is_turn = ["role", "from", "content", "value"]
        .iter()
        .any(|key| row.starts_with(format!("\"{key}\"").as_bytes()));
    let one_of_several = line.ends_with(b"]") && rest.starts_with(b"[");
    !is_turn && !one_of_several
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_and_objects_over_several_lines_are_read_as_json_under_any_name() {
        let kind = |head: &str| of(Path::new("a.jsonl"), head.as_bytes()).id;
        for head in [
            "[\n  {\"a\": 1}\n]",
            "\u{feff}\n[ {\"a\": 1}, {\"a\": 2}]\n",
            "[{\"a\": 1},",
            "{\r\n  \"a\": 1\r\n}",
        ] {
            assert_eq!(kind(head), "json", "{head}");
        }
        for head in [
            "{\"a\": 1}\n{\"a\": 2}\n",
            "{}\n",
            "[1, 2]\n",
            "{\n{\"a\": 1}\n",
            "[{\"role\": \"user\"}]\n",
            "[{\"a\": 1}]\n[{\"a\": 2}]\n",
            "",
        ] {
            assert_eq!(kind(head), "jsonl", "{head}");
        }
    }

    #[test]
    fn names_tell_the_kind_and_first_bytes_tell_the_rest() {
        let kind = |name: &str, head: &[u8]| of(Path::new(name), head).id;
        assert_eq!(kind("a/B.JSONL.GZ", b""), "jsonl");
        assert_eq!(kind("a.tsv.zst", b""), "tsv");
        assert_eq!(kind("download", b"PAR1..."), "parquet");
        assert_eq!(kind("download", b"\xef\xbb\xbf {\"a\": 1}"), "json");
        assert_eq!(kind("notes.md", b"[a link] {"), "text");
        assert!(by_name(Path::new("notes.md")).is_none() && by_name(Path::new("jsonl")).is_none());
    }

    #[test]
    fn no_two_kinds_claim_an_extension() {
        let mut all: Vec<&str> = ALL.iter().flat_map(|c| c.extensions).copied().collect();
        let n = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), n);
    }
}
