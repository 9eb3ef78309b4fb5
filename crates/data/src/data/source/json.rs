//! One JSON row: bytes become columns, or an error that says what was found instead.

use super::fault::ReadFault;
use super::input::Notes;
use super::{MAX_DEPTH, utf8};
use crate::base::text::one_line;
use crate::data::{Place, Record};
use serde_json::{Map, Value};

/// Reads one JSON object. Columns with integers that are too large to be read exactly are noted.
pub(super) fn record(bytes: &[u8], place: Place, notes: &Notes) -> Result<Record, ReadFault> {
    let text = utf8::check(bytes).map_err(|bad| {
        let what = format!("{} (byte {} of the row)", bad.what, bad.at + 1);
        ReadFault::row(&place, what, bad.fix)
    })?;
    bounded_depth(bytes, &place)?;
    let value = serde_json::from_str(text).map_err(|e| syntax(text, &place, &e))?;
    match value {
        Value::Object(fields) => {
            note_rounded(text, &place, &fields, notes);
            Ok(Record { place, fields })
        }
        other => Err(not_an_object(&place, &other)),
    }
}

/// Integers of more than 64 bits become floating-point numbers: a copy of the row has others.
fn note_rounded(text: &str, place: &Place, fields: &Map<String, Value>, notes: &Notes) {
    let mut large = fields
        .iter()
        .filter(|(_, value)| is_large(value))
        .peekable();
    if large.peek().is_none() || !has_long_integer(text) {
        return;
    }
    for (name, _) in large {
        let (file, name) = (&place.file, one_line(name));
        notes.add(format!(
            "{file}: the column {name} has integers of more than 64 bits, which are read as floating-point numbers: write them as text"
        ));
    }
}

/// Whether a value has a number in it that no integer of 64 bits holds.
fn is_large(value: &Value) -> bool {
    match value {
        Value::Number(n) if n.is_f64() => {
            let beyond = |x: f64| x >= u64::MAX as f64 || x <= i64::MIN as f64;
            n.as_f64().is_some_and(beyond)
        }
        Value::Array(items) => items.iter().any(is_large),
        Value::Object(fields) => fields.values().any(is_large),
        _ => false,
    }
}

/// Whether JSON has a number of at least 19 digits outside of strings that is written as an integer.
fn has_long_integer(text: &str) -> bool {
    const DIGITS: usize = 19;
    let (mut in_string, mut escaped) = (false, false);
    let mut number = 0;
    let mut is_integer = true;
    for byte in text.bytes().chain([b' ']) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'0'..=b'9' => number += 1,
            b'.' | b'e' | b'E' | b'+' if number > 0 => is_integer = false,
            _ => {
                if number >= DIGITS && is_integer {
                    return true;
                }
                (number, is_integer) = (0, true);
            }
        }
    }
    false
}

/// Brackets inside each other, outside of strings. A parser that recurses must never see too many.
fn bounded_depth(bytes: &[u8], place: &Place) -> Result<(), ReadFault> {
    // Few brackets cannot be nested deeply; counting them is fast.
    let brackets = bytes.iter().filter(|b| matches!(b, b'{' | b'[')).count();
    if brackets <= MAX_DEPTH {
        return Ok(());
    }
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for byte in bytes {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    let what = format!("JSON nested deeper than {MAX_DEPTH} levels");
                    return Err(ReadFault::row(place, what, "flatten the row"));
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
}

fn syntax(text: &str, place: &Place, error: &serde_json::Error) -> ReadFault {
    if error.is_eof() {
        return ReadFault::row(
            place,
            format!("incomplete JSON: it ends after {} bytes", text.len()),
            "the writer was stopped in the middle of the row: complete it or delete it",
        );
    }
    let message = error.to_string();
    let cause = message.split(" at line ").next().unwrap_or(&message);
    let at = error.column().saturating_sub(1);
    let near = excerpt(text, error.line(), at);
    let fix = if near.starts_with("NaN") || near.starts_with("Infinity") || near.starts_with("-Inf")
    {
        "JSON has no NaN or infinity: write null (Python: json.dumps(…, allow_nan=False) finds them)"
    } else if near.starts_with('\'') || text.trim_start().starts_with("{'") {
        "this is Python, not JSON: write it with json.dumps"
    } else {
        "write one JSON object per row; `python3 -m json.tool` or `jq .` find the error"
    };
    let what = format!("bad JSON at byte {}: {cause}, near `{near}`", at + 1);
    ReadFault::row(place, what, fix)
}

/// A few characters from the place of an error on.
fn excerpt(text: &str, line: usize, column: usize) -> String {
    let line = text.split('\n').nth(line.saturating_sub(1)).unwrap_or(text);
    let mut from = column.min(line.len());
    while !line.is_char_boundary(from) {
        from -= 1;
    }
    line[from..].chars().take(24).collect()
}

fn not_an_object(place: &Place, value: &Value) -> ReadFault {
    let (kind, fix) = match value {
        Value::String(_) => ("a string", r#"give it a name: {"text": "…"}"#),
        Value::Array(_) => (
            "a list",
            r#"give it a name: {"messages": […]}, or {"text": …}"#,
        ),
        Value::Null => ("null", "delete the row"),
        _ => ("a plain value", r#"give it a name: {"text": "…"}"#),
    };
    let what = format!("expected a row (an object with named columns), found {kind}");
    // One among others has their columns, or none.
    let fix = match place.row > 1 && fix.starts_with("give") {
        true => "write it like the rows above, or delete it; data.on_bad_row: skip skips such rows",
        false => fix,
    };
    ReadFault::row(place, what, fix)
}

/// The rows inside `{"data": [{…}, …]}`, when an object is nothing but a wrapper around them.
pub(super) fn unwrap_rows(fields: &mut Map<String, Value>) -> Option<Vec<Value>> {
    const WRAPPERS: [&str; 4] = ["data", "rows", "examples", "records"];
    let name = fields.keys().next()?;
    let wraps = fields.len() == 1 && WRAPPERS.contains(&name.as_str());
    match fields.values_mut().next()? {
        Value::Array(rows) if wraps && rows.iter().all(Value::is_object) => {
            Some(std::mem::take(rows))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place {
        Place {
            file: "a.jsonl".into(),
            row: 3,
        }
    }

    fn read(text: &[u8], place: Place) -> Result<Record, ReadFault> {
        record(text, place, &Notes::default())
    }

    fn fault(text: &[u8]) -> (String, String) {
        let fault = read(text, place()).unwrap_err().fault;
        (fault.to_string(), fault.fix)
    }

    #[test]
    fn a_row_becomes_columns_in_their_order() {
        let record = read(br#"{"b":1,"a":{"x":[null]}}"#, place()).unwrap();
        assert_eq!(record.fields.keys().collect::<Vec<_>>(), ["b", "a"]);
    }

    #[test]
    fn half_a_row_python_and_nan_are_told_apart() {
        let (what, fix) = fault(br#"{"text": "cut of"#);
        assert!(what.starts_with("a.jsonl:3: incomplete JSON"), "{what}");
        assert!(fix.contains("delete it"));
        assert!(fault(b"{'text': 'x'}").1.contains("json.dumps"));
        let (what, fix) = fault(br#"{"score": NaN}"#);
        assert!(fix.contains("NaN"), "{what} {fix}");
        assert!(fault(br#"["a"]"#).1.contains("data.on_bad_row: skip"));
        let first = Place { row: 1, ..place() };
        let fix = read(br#"["a"]"#, first).unwrap_err().fault.fix;
        assert!(fix.contains("give it a name"), "{fix}");
        assert!(
            fault(b"{\"text\": \"a\0\"}")
                .0
                .contains("a NUL byte (byte 12")
        );
        assert!(fault(b"{\"text\": \"\xff\"}").0.contains("0xff (byte 11"));
    }

    #[test]
    fn depth_is_bounded_before_anything_recurses() {
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(fault(deep.as_bytes()).0.contains("deeper than 64"));
        let brackets_in_text = format!("{{\"a\":\"\\\"{}\"}}", "[".repeat(1000));
        assert!(read(brackets_in_text.as_bytes(), place()).is_ok());
    }

    #[test]
    fn integers_that_are_rounded_are_noted_and_numbers_that_are_not_are_no_matter() {
        let notes = |text: &str| {
            let notes = Notes::default();
            record(text.as_bytes(), place(), &notes).unwrap();
            notes.list()
        };
        for rounded in [
            "12345678901234567890123",
            "[-9223372036854775809]",
            "18446744073709551616",
        ] {
            let list = notes(&format!(r#"{{"a":1,"id":{rounded}}}"#));
            assert!(
                list[0].starts_with("a.jsonl: the column id has integers"),
                "{list:?}"
            );
        }
        for exact in [
            "18446744073709551615",
            "-9223372036854775808",
            "1e30",
            "12345678901234567890123.5",
        ] {
            assert!(
                notes(&format!(
                    r#"{{"id":{exact},"a":"12345678901234567890123"}}"#
                ))
                .is_empty(),
                "{exact}"
            );
        }
    }

    #[test]
    fn only_a_pure_wrapper_is_opened() {
        let fields = |text: &str| {
            unwrap_rows(
                serde_json::from_str::<Value>(text)
                    .unwrap()
                    .as_object_mut()
                    .unwrap(),
            )
        };
        assert_eq!(fields(r#"{"data":[{"a":1},{"a":2}]}"#).unwrap().len(), 2);
        assert!(fields(r#"{"messages":[{"role":"user"}]}"#).is_none());
        assert!(fields(r#"{"data":[{"a":1}],"version":1}"#).is_none());
        assert!(fields(r#"{"data":[1,2]}"#).is_none());
    }
}
