//! `tojson` as transformers provides it to templates: Python's `json.dumps` with `ensure_ascii=False`, which differs from
//! Jinja's own filter and from serde. Spaces after separators, floats and escapes are part of the text that models were
//! trained on.

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind};
use std::fmt::Write;

/// Deepest structure that is printed: data come from files.
const MAX_DEPTH: usize = 100;

/// How `json.dumps` was asked to print.
#[derive(Debug, Clone, PartialEq)]
struct Style {
    ensure_ascii: bool,
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
}

/// The filter: `value|tojson(ensure_ascii, indent, separators, sort_keys)`, all optional, by position or name.
pub fn tojson(
    value: Value,
    positional: minijinja::value::Rest<Value>,
    named: Kwargs,
) -> Result<Value, Error> {
    let argument = |at: usize, name: &str| -> Option<Value> {
        let value = positional.get(at).cloned();
        value.or_else(|| named.get::<Option<Value>>(name).ok().flatten())
    };
    let indent = argument(1, "indent").filter(|v| !v.is_none());
    let indent = indent.map(|v| match v.as_str() {
        Some(text) => text.to_string(),
        None => " ".repeat(v.as_usize().unwrap_or(0).min(64)),
    });
    let separators = argument(2, "separators").filter(|v| !v.is_none());
    let (item, key) = match separators {
        Some(pair) => (text_of(&pair, 0)?, text_of(&pair, 1)?),
        // Python 3.4 and later: no space at the end of a line.
        None if indent.is_some() => (",".to_string(), ": ".to_string()),
        None => (", ".to_string(), ": ".to_string()),
    };
    let style = Style {
        ensure_ascii: argument(0, "ensure_ascii").is_some_and(|v| v.is_true()),
        indent,
        item_separator: item,
        key_separator: key,
        sort_keys: argument(3, "sort_keys").is_some_and(|v| v.is_true()),
    };
    named.assert_all_used()?;
    let mut out = String::new();
    style.write(&value, 0, &mut out)?;
    Ok(Value::from(out))
}

/// `json.dumps(value, ensure_ascii=False)`; `None` for what is nested too deeply.
pub fn dumps(value: &serde_json::Value) -> Option<String> {
    let style = Style {
        ensure_ascii: false,
        indent: None,
        item_separator: ", ".into(),
        key_separator: ": ".into(),
        sort_keys: false,
    };
    let mut out = String::new();
    style
        .write(&Value::from(minijinja::value::Serde(value)), 0, &mut out)
        .ok()
        .map(|()| out)
}

fn text_of(pair: &Value, at: usize) -> Result<String, Error> {
    pair.get_item_by_index(at)?
        .as_str()
        .map(str::to_string)
        .ok_or_else(|| refuse("separators must be two strings"))
}

fn refuse(what: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, what)
}

impl Style {
    fn write(&self, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(refuse(format!("tojson: more than {MAX_DEPTH} levels deep")));
        }
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number if value.is_integer() => {
                let _ = write!(out, "{value}");
            }
            ValueKind::Number => {
                out.push_str(&python_float(
                    f64::try_from(value.clone()).unwrap_or(f64::NAN),
                ));
            }
            ValueKind::String => self.string(value.as_str().unwrap_or_default(), out),
            ValueKind::Seq | ValueKind::Iterable => self.list(value, depth, out)?,
            ValueKind::Map => self.map(value, depth, out)?,
            other => return Err(refuse(format!("tojson: {other} is not JSON"))),
        }
        Ok(())
    }

    fn list(&self, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        let mut any = false;
        out.push('[');
        for item in value.try_iter()? {
            self.before(any, depth, out);
            self.write(&item, depth + 1, out)?;
            any = true;
        }
        self.after(any, depth, out);
        out.push(']');
        Ok(())
    }

    fn map(&self, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if self.sort_keys {
            keys.sort();
        }
        out.push('{');
        for (at, key) in keys.iter().enumerate() {
            self.before(at > 0, depth, out);
            match key.as_str() {
                Some(text) => self.string(text, out),
                None => {
                    let mut text = String::new();
                    self.write(key, depth + 1, &mut text)?;
                    self.string(&text, out);
                }
            }
            out.push_str(&self.key_separator);
            self.write(&value.get_item(key)?, depth + 1, out)?;
        }
        self.after(!keys.is_empty(), depth, out);
        out.push('}');
        Ok(())
    }

    fn before(&self, separated: bool, depth: usize, out: &mut String) {
        if separated {
            out.push_str(&self.item_separator);
        }
        self.new_line(depth + 1, out);
    }

    fn after(&self, any: bool, depth: usize, out: &mut String) {
        if any {
            self.new_line(depth, out);
        }
    }

    fn new_line(&self, depth: usize, out: &mut String) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            (0..depth).for_each(|_| out.push_str(indent));
        }
    }

    fn string(&self, text: &str, out: &mut String) {
        out.push('"');
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                c if c < ' ' || (self.ensure_ascii && !c.is_ascii()) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        let _ = write!(out, "\\u{unit:04x}");
                    }
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }
}

/// Python's `repr` of a float: the shortest digits that read back the same, in scientific notation below 1e-4 and from
/// 1e16 on, with a sign and two digits in the exponent.
pub fn python_float(x: f64) -> String {
    if !x.is_finite() {
        let name = if x.is_nan() {
            "NaN"
        } else if x > 0.0 {
            "Infinity"
        } else {
            "-Infinity"
        };
        return name.to_string();
    }
    let scientific = format!("{x:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if x != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    let plain = format!("{x}");
    if plain.contains('.') {
        plain
    } else {
        format!("{plain}.0")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dumps(expression: &str) -> String {
        let mut env = minijinja::Environment::new();
        env.add_filter("tojson", tojson);
        env.render_str(&format!("{{{{ {expression} }}}}"), ())
            .unwrap()
    }

    /// Each right side was printed by Python 3.11's json.dumps(…, ensure_ascii=False).
    #[test]
    fn values_print_as_python_prints_them() {
        for (expression, python) in [
            (
                r#"{'b': 1, 'a': [1, 2.0, none, true], 'c': {}}|tojson"#,
                r#"{"b": 1, "a": [1, 2.0, null, true], "c": {}}"#,
            ),
            (
                r#"{'b': 1, 'a': 2}|tojson(sort_keys=true)"#,
                r#"{"a": 2, "b": 1}"#,
            ),
            (
                r#"[1, [2], []]|tojson(separators=(',', ':'))"#,
                "[1,[2],[]]",
            ),
            (r#"'é\u2028<&\"'|tojson"#, "\"é\u{2028}<&\\\"\""),
            (
                r#"'é😀'|tojson(ensure_ascii=true)"#,
                "\"\\u00e9\\ud83d\\ude00\"",
            ),
            (
                r#"{'a': [1, {}], 'b': []}|tojson(indent=2)"#,
                "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": []\n}",
            ),
            (r#"[1]|tojson(false, 1)"#, "[\n 1\n]"),
            (r#"(1, 'x')|tojson"#, r#"[1, "x"]"#),
        ] {
            assert_eq!(dumps(expression), python, "{expression}");
        }
    }

    /// repr() of Python 3.11.
    #[test]
    fn floats_print_as_python_prints_them() {
        for (x, python) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (0.1, "0.1"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e-7, "1.5e-07"),
            (0.0001, "0.0001"),
            (123456.789, "123456.789"),
            (1e300, "1e+300"),
            (f64::INFINITY, "Infinity"),
        ] {
            assert_eq!(python_float(x), python);
        }
    }

    #[test]
    fn what_is_no_json_is_refused() {
        let mut env = minijinja::Environment::new();
        env.add_filter("tojson", tojson);
        let error = env.render_str("{{ nothing|tojson }}", ()).unwrap_err();
        assert!(
            error.to_string().contains("undefined is not JSON"),
            "{error}"
        );
        assert!(env.render_str("{{ [1]|tojson(colour=1) }}", ()).is_err());
    }
}
