//! One JSON row: bytes become columns, or an error that says what was found instead.

use super::fault::ReadFault;
use super::{MAX_DEPTH, utf8};
use crate::data::{Place, Record};
use serde_json::{Map, Value};

/// Reads one JSON object.
pub(super) fn record(bytes: &[u8], place: Place) -> Result<Record, ReadFault> {
    let text = utf8::check(bytes).map_err(|bad| {
        let what = format!("{} (byte {} of the row)", bad.what, bad.at + 1);
        ReadFault::row(&place, what, bad.fix)
    })?;
    bounded_depth(bytes, &place)?;
    let value = serde_json::from_str(text).map_err(|e| syntax(text, &place, &e))?;
    match value {
        Value::Object(fields) => Ok(Record { place, fields }),
        other => Err(not_an_object(&place, &other)),
    }
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

    fn fault(text: &[u8]) -> (String, String) {
        let fault = record(text, place()).unwrap_err().fault;
        (fault.to_string(), fault.fix)
    }

    #[test]
    fn a_row_becomes_columns_in_their_order() {
        let record = record(br#"{"b":1,"a":{"x":[null]}}"#, place()).unwrap();
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
        let fix = record(br#"["a"]"#, first).unwrap_err().fault.fix;
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
        assert!(record(brackets_in_text.as_bytes(), place()).is_ok());
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
