//! The only file that names YAML: text to a format-free value, and back. Swapping the parser touches only this file.
//!
//! Stricter than YAML: keys are unique, numbers finite, tags and merge keys rejected, size and depth bounded.

use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;

/// Deepest accepted nesting, most values and largest text: presets are small, YAML bombs are not.
const MAX_DEPTH: usize = 64;
const TOO_DEEP: &str = "nested deeper than";
/// Most brackets that may be open at once; texts in quotes have some that never close.
const MAX_BRACKETS: usize = 1000;
const MAX_NODES: usize = 10_000;
const MAX_BYTES: usize = 1 << 20;

/// Why a text is not acceptable YAML.
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
///
/// # Errors
/// No YAML, or more than one document; says the line.
pub fn parse(text: &str) -> Result<Value, YamlError> {
    let value = parse_any(text)?;
    Ok(if value.is_null() {
        Value::Object(Map::new())
    } else {
        value
    })
}

/// Parses the right side of `key=`: a number, a word, a flow list or map. An empty text is an empty string.
///
/// # Errors
/// No YAML.
pub fn parse_value(text: &str) -> Result<Value, YamlError> {
    if text.trim().is_empty() {
        return Ok(Value::String(text.to_string()));
    }
    parse_any(text)
}

fn parse_any(text: &str) -> Result<Value, YamlError> {
    if text.len() > MAX_BYTES {
        return Err(YamlError::Refused(format!(
            "{} bytes of YAML: the limit is {MAX_BYTES}",
            text.len()
        )));
    }
    // The parser takes time with the square of the depth before it looks at it.
    let mut depth = 0_usize;
    for byte in text.bytes() {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_BRACKETS {
            return Err(YamlError::Refused(format!(
                "more than {MAX_BRACKETS} brackets are open: values are nested at most {MAX_DEPTH} deep"
            )));
        }
    }
    let budget = Budget {
        nodes: &Cell::new(0),
        depth: 0,
    };
    let root = serde_yaml::Deserializer::from_str(text);
    budget.deserialize(root).map_err(|e| {
        let what = e.to_string();
        let what = what.split(" at line ").next().unwrap_or(&what).to_string();
        // Without the path, which is as long as the text is deep: an alias inside its own anchor has no end.
        let what = match what.find(TOO_DEEP) {
            Some(at) => what[at..].to_string(),
            None => what,
        };
        let place = e.location().map(|l| (l.line(), l.column()));
        let (place, what) = understood(text, place, what);
        match place {
            Some((line, column)) => YamlError::Syntax { line, column, what },
            None => YamlError::Refused(what),
        }
    })
}

/// Line and column, from 1.
type Position = Option<(usize, usize)>;

/// The parser's complaint at the place of the mistake and in plain words, where it can be recognised.
fn understood(text: &str, place: Position, what: String) -> (Position, String) {
    if let Some((line, column)) = place {
        let key = what.split_once("duplicate key `").map(|(_, key)| key);
        if let Some(again) =
            key.and_then(|key| repeated(text, line, column, key.trim_end_matches('`')))
        {
            return (Some(again), what);
        }
        let indent = |line: &str| line.len() - line.trim_start_matches([' ', '\t']).len();
        let tab = text.lines().enumerate().take(line + 1);
        let tab = tab.skip(line.saturating_sub(2)).find_map(|(n, line)| {
            let at = line[..indent(line)].find('\t')?;
            (indent(line) < line.len()).then_some((n + 1, at + 1))
        });
        if let Some(tab) = tab {
            return (
                Some(tab),
                "this line is indented with a tab; YAML needs spaces".into(),
            );
        }
    }
    if what.contains("more than one document") {
        let is_break = |line: &&str| line.trim_end() == "---" || line.starts_with("--- ");
        let is_content = |line: &str| !line.trim().is_empty() && !line.starts_with(['#', '%']);
        // A break in front of everything begins the first document.
        let mut begun = false;
        for (n, line) in text.lines().enumerate() {
            if begun && is_break(&line) {
                let what = "a second document starts here; put it into a separate file";
                return (Some((n + 1, 1)), what.into());
            }
            begun |= is_content(line);
        }
    }
    (place, what)
}

/// The place at which a key comes for the second time in the block map that begins at line and column.
fn repeated(text: &str, line: usize, column: usize, key: &str) -> Position {
    let mut lines = text.lines().enumerate().skip(line.checked_sub(1)?);
    let is_key = |rest: &str| {
        let rest = rest.split_once(':');
        rest.is_some_and(|(word, _)| word.trim_end().trim_matches(['"', '\'']) == key)
    };
    // The first key may stand behind a dash.
    let mut first = is_key(lines.next()?.1.get(column - 1..)?);
    for (n, line) in lines {
        let indent = line.len() - line.trim_start_matches(' ').len();
        if indent == column - 1 && is_key(&line[indent..]) {
            if first {
                return Some((n + 1, column));
            }
            first = true;
        }
    }
    None
}

/// Writes a value as YAML in block style.
pub fn write(value: &Value) -> String {
    serde_yaml::to_string(value).unwrap_or_default()
}

/// The line of every key in block style, by dotted path. Keys inside a flow map have none: look up the nearest parent.
pub fn key_lines(text: &str) -> HashMap<String, usize> {
    let mut lines = HashMap::new();
    let mut open: Vec<(usize, &str)> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let body = line.trim_start_matches(' ');
        let indent = line.len() - body.len();
        let Some((key, rest)) = body.split_once(':') else {
            continue;
        };
        let key = key.trim_matches(['"', '\'']);
        let is_key = !key.is_empty()
            && key
                .chars()
                .all(|c| c.is_alphanumeric() || "_-.".contains(c))
            && (rest.is_empty() || rest.starts_with([' ', '\t']));
        if !is_key {
            continue;
        }
        while open.last().is_some_and(|(i, _)| *i >= indent) {
            open.pop();
        }
        open.push((indent, key));
        let path: Vec<&str> = open.iter().map(|(_, k)| *k).collect();
        lines.entry(path.join(".")).or_insert(number + 1);
    }
    lines
}

/// Reads any value within bounds.
#[derive(Clone, Copy)]
struct Budget<'a> {
    nodes: &'a Cell<usize>,
    depth: usize,
}

impl Budget<'_> {
    fn deeper<E: de::Error>(self) -> Result<Self, E> {
        if self.depth + 1 > MAX_DEPTH {
            return Err(E::custom(format!("{TOO_DEEP} {MAX_DEPTH} levels")));
        }
        Ok(Budget {
            depth: self.depth + 1,
            ..self
        })
    }
}

impl<'de> DeserializeSeed<'de> for Budget<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.nodes.set(self.nodes.get() + 1);
        if self.nodes.get() > MAX_NODES {
            return Err(de::Error::custom(format!("more than {MAX_NODES} values")));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Budget<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a plain value, list or map (no tags)")
    }

    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_f64<E: de::Error>(self, v: f64) -> Result<Value, E> {
        serde_json::Number::from_f64(v)
            .map(Value::Number)
            .ok_or_else(|| E::custom("not a finite number"))
    }

    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, d: D) -> Result<Value, D::Error> {
        Deserialize::deserialize(d)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(inner)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut object = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            // To the parser it is a key like others: what it merges would be missing.
            if key == "<<" {
                return Err(de::Error::custom(
                    "merge keys (`<<`) are not supported: write the values themselves",
                ));
            }
            if object.contains_key(&key) {
                return Err(de::Error::custom(format!("duplicate key `{key}`")));
            }
            object.insert(key, map.next_value_seed(inner)?);
        }
        Ok(Value::Object(object))
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

    /// YAML 1.1 wants a dot in a float: `1e-3` must be a number all the same, or learning rates become words.
    #[test]
    fn numbers_are_numbers_and_words_are_words() {
        for (text, value) in [
            ("1e-3", serde_json::json!(0.001)),
            ("1E5", serde_json::json!(100_000.0)),
            (".5", serde_json::json!(0.5)),
            ("+5", serde_json::json!(5)),
            ("no", serde_json::json!("no")),
            ("1_000", serde_json::json!("1_000")),
            ("", serde_json::json!("")),
            ("~", Value::Null),
        ] {
            assert_eq!(parse_value(text).unwrap(), value, "{text}");
        }
    }

    #[test]
    fn what_yaml_allows_and_we_do_not() {
        for (text, phrase) in [
            ("a: 1\nb:\n  c: 1\n  c: 2\n", "duplicate key `c`"),
            ("a: .inf", "not a finite number"),
            ("a: .nan", "not a finite number"),
            ("a: !thing 3", "no tags"),
            ("a: &x {b: 1}\nc: {<<: *x, d: 2}\n", "merge keys"),
            ("a: &x {b: 1, <<: *x}\n", "merge keys"),
            ("a: &x {b: 1, c: *x}\n", "column 4: nested deeper than 64"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(phrase), "{text}: {error}");
            assert!(error.contains("line"), "{text}: {error}");
        }
        let deep = format!("a: {}{}", "[".repeat(70), "]".repeat(70));
        assert!(parse(&deep).is_err());
        let many = format!("a: [{}]", "1,".repeat(MAX_NODES));
        assert!(parse(&many).unwrap_err().to_string().contains("more than"));
    }

    #[test]
    fn mistakes_are_told_at_their_place_and_in_plain_words() {
        for (text, at, phrase) in [
            (
                "a: 1\nb:\n  c: 1\n  d: {c: 2}\n  # c: 3\n  c: 2\n",
                6,
                "duplicate key `c`",
            ),
            ("a: 1\nb: 2\na: 3\n", 3, "duplicate key `a`"),
            ("l:\n  - x: 1\n    y: 2\n    x: 3\n", 4, "duplicate key `x`"),
            ("a: 1\nb:\n\tc: 2\n", 3, "with a tab"),
            ("a:\n  b: 1\n \t c: 2\n", 3, "with a tab"),
            ("# first\n---\na: 1\n---\nb: 2\n", 4, "second document"),
            ("a: 1\n--- \nb: 2\n", 2, "second document"),
        ] {
            match parse(text).unwrap_err() {
                YamlError::Syntax { line, what, .. } => {
                    assert_eq!(line, at, "{text}: {what}");
                    assert!(what.contains(phrase), "{text}: {what}");
                }
                other => panic!("{text}: {other}"),
            }
        }
        // A tab in a text is no mistake.
        assert!(parse("a: 'x\ty'\n").is_ok());
    }

    #[test]
    fn keys_know_their_lines() {
        let lines = key_lines("# c: 1\na: 1\nb:\n  c: {d: 1}\n  e-f: x\ng: 'h: i'\n");
        assert_eq!(lines["a"], 2);
        assert_eq!(lines["b.c"], 4);
        assert_eq!(lines["b.e-f"], 5);
        assert_eq!(lines["g"], 6);
        assert_eq!(lines.len(), 5);
    }
}
