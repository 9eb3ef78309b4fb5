//! The one file that names YAML: text becomes a format-free value, and back. A swap of the parser touches this file alone.

use serde_json::Value;

/// Deepest accepted nesting and largest accepted text: presets are small, bombs are not.
const MAX_DEPTH: usize = 64;
const MAX_BYTES: usize = 1 << 20;

/// Why a text is not YAML that we accept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum YamlError {
    #[error("line {line}, column {column}: {what}")]
    Syntax {
        line: usize,
        column: usize,
        what: String,
    },
    #[error("{0}")]
    Refused(String),
}

/// Parses one document. An empty text is an empty object.
pub fn parse(text: &str) -> Result<Value, YamlError> {
    if text.len() > MAX_BYTES {
        return Err(YamlError::Refused(format!(
            "{} bytes of YAML: the limit is {MAX_BYTES}",
            text.len()
        )));
    }
    let value: Value = serde_yaml::from_str(text).map_err(|e| {
        let (line, column) = e.location().map_or((0, 0), |l| (l.line(), l.column()));
        YamlError::Syntax {
            line,
            column,
            what: e.to_string(),
        }
    })?;
    if depth(&value) > MAX_DEPTH {
        return Err(YamlError::Refused(format!(
            "nested deeper than {MAX_DEPTH} levels"
        )));
    }
    Ok(if value.is_null() {
        Value::Object(Default::default())
    } else {
        value
    })
}

/// Writes a value as YAML in block style.
pub fn write(value: &Value) -> String {
    serde_yaml::to_string(value).unwrap_or_default()
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_writes_and_places_errors() {
        let value = parse("a: 1\nb: {c: [x, 2.5e-4]}\n").unwrap();
        assert_eq!(value["b"]["c"][1], 2.5e-4);
        assert_eq!(parse(&write(&value)).unwrap(), value);
        assert_eq!(parse("").unwrap(), serde_json::json!({}));
        assert!(matches!(parse("a: [1\nb: 2"), Err(YamlError::Syntax { line, .. }) if line > 0));
    }
}
