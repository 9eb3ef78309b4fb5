//! JSON as Python writes it: with NaN and Infinity, which the standard does not have. They become strings that count as numbers.

use super::names::Mapping;
use crate::base::clock::UnixMillis;
use serde_json::Value;

/// Objects within objects that are followed: `loss_metrics/global_avg_loss`.
const DEPTH: usize = 4;
/// Numbers taken from one record, apart from those that are known here: which of the others are reported is decided later.
const MAX_VALUES: usize = 10_000;

/// Reads a value; `None` where it is none. Depth is bounded by the parser.
pub fn parse(text: &str) -> Option<Value> {
    serde_json::from_str(text)
        .ok()
        .or_else(|| serde_json::from_str(&quoted(text)).ok())
}

/// With quotes around the words that stand for non-finite numbers outside of strings.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let (mut rest, mut inside) = (text, false);
    while let Some(c) = rest.chars().next() {
        let word = ["NaN", "-Infinity", "Infinity"]
            .into_iter()
            .find(|word| !inside && rest.starts_with(word));
        let taken = match word {
            Some(word) => {
                out.extend(["\"", word, "\""]);
                word.len()
            }
            None => {
                let escaped = inside && c == '\\';
                inside ^= c == '"';
                let n = c.len_utf8();
                let more = rest[n..].chars().next().filter(|_| escaped);
                n + more.map_or(0, char::len_utf8)
            }
        };
        if word.is_none() {
            out.push_str(&rest[..taken]);
        }
        rest = &rest[taken..];
    }
    out
}

/// A number, also where it stands in quotes.
pub fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(x) => x.as_f64(),
        Value::String(text) => text_number(text),
        _ => None,
    }
}

/// `NaN`, `inf`, `-Infinity` and what Rust reads as a float.
pub fn text_number(text: &str) -> Option<f64> {
    let text = text.trim();
    if text.is_empty() || text.len() > 40 {
        return None;
    }
    text.parse().ok()
}

/// What the commas in a number are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comma {
    /// There are none, or each stands between thousands: `1,234.5`, `1,234,567`.
    Thousands,
    /// It can only stand before the fraction: `1,0e-4`, `0,123`, `2,34`.
    Decimal,
    /// It may be either: `1,234`.
    Unclear,
}

/// What the commas of a printed number are, by the number alone.
pub fn comma(number: &str) -> Comma {
    let number = number.trim_start_matches(['-', '+']);
    let Some((whole, rest)) = number.split_once(',') else {
        return Comma::Thousands;
    };
    if rest.contains([',', '.']) || whole.is_empty() {
        return Comma::Thousands;
    }
    let (digits, exponent) = rest.split_once(['e', 'E']).unwrap_or((rest, ""));
    let in_groups = digits.len() == 3 && whole.len() <= 3 && !whole.starts_with('0');
    match in_groups && exponent.is_empty() {
        true => Comma::Unclear,
        false => Comma::Decimal,
    }
}

/// A printed number; an unclear comma stands before the fraction where `decimal` says so, and between thousands otherwise.
pub fn comma_number(text: &str, decimal: bool) -> Option<f64> {
    let point = match comma(text) {
        Comma::Decimal => ".",
        Comma::Unclear if decimal => ".",
        _ => "",
    };
    text_number(&text.replace(',', point))
}

/// A whole number that is no negative one.
pub fn step_of(x: f64) -> Option<u64> {
    (x.is_finite() && (0.0..=9e15).contains(&x)).then_some(x as u64)
}

/// Seconds since 1970, or milliseconds where they would be of another age.
pub fn time_of(x: f64) -> Option<UnixMillis> {
    let millis = if x > 1e11 { x } else { x * 1e3 };
    // From 2001 to 2286: other numbers are counters.
    (1e12..1e13)
        .contains(&millis)
        .then_some(UnixMillis(millis as u64))
}

/// All numbers of an object by their names, those of objects inside under `outer/inner`.
pub fn flatten(object: &Value) -> Vec<(String, f64)> {
    let mut values = Vec::new();
    descend("", object, 0, &mut values);
    values
}

fn descend(prefix: &str, value: &Value, depth: usize, values: &mut Vec<(String, f64)>) {
    let Some(members) = value.as_object().filter(|_| depth < DEPTH) else {
        return;
    };
    for (key, value) in members {
        let name = match prefix {
            "" => key.clone(),
            prefix => format!("{prefix}/{key}"),
        };
        match number(value) {
            Some(_)
                if values.len() >= MAX_VALUES && !Mapping::default().is_always_reported(&name) => {}
            Some(x) => values.push((name, x)),
            None => descend(&name, value, depth + 1, values),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_python_writes_is_read() {
        let text = r#"{"loss": NaN, "a": {"b": -Infinity, "c": "1.5"}, "s": "say \"NaN\" or NaN", "t": [1], "ü": 2}"#;
        let values = flatten(&parse(text).unwrap());
        let names: Vec<&str> = values.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["loss", "a/b", "a/c", "ü"]);
        assert!(values[0].1.is_nan() && values[1].1 == f64::NEG_INFINITY && values[2].1 == 1.5);
        assert!(parse("{\"a\": nope}").is_none() && parse("NaN\\").is_none());
    }

    #[test]
    fn a_comma_is_a_decimal_one_only_where_it_cannot_be_one_of_thousands() {
        for (text, is, alone, decimal) in [
            ("1,234", Comma::Unclear, 1234.0, 1.234),
            ("-12,345", Comma::Unclear, -12_345.0, -12.345),
            ("1,0e-4", Comma::Decimal, 1e-4, 1e-4),
            ("1,000e-4", Comma::Decimal, 1e-4, 1e-4),
            ("0,123", Comma::Decimal, 0.123, 0.123),
            ("2,34", Comma::Decimal, 2.34, 2.34),
            ("1234,567", Comma::Decimal, 1234.567, 1234.567),
            ("1,234.5", Comma::Thousands, 1234.5, 1234.5),
            ("1,234,567", Comma::Thousands, 1_234_567.0, 1_234_567.0),
            ("2.345", Comma::Thousands, 2.345, 2.345),
        ] {
            assert_eq!(comma(text), is, "{text}");
            assert_eq!(comma_number(text, false), Some(alone), "{text}");
            assert_eq!(comma_number(text, true), Some(decimal), "{text}");
        }
    }

    #[test]
    fn depth_and_number_of_values_are_bounded() {
        let deep = "{\"a\":".repeat(100_000);
        assert!(parse(&deep).is_none());
        let wide: String = (0..50_000).map(|i| format!("\"k{i}\":1,")).collect();
        let wide = parse(&format!("{{{}\"z\":1}}", wide)).unwrap();
        assert_eq!(flatten(&wide).len(), MAX_VALUES);
        // What is known here has a place behind any number of others.
        let many: String = (0..50_000).map(|i| format!("\"a{i}\":1,")).collect();
        let many = flatten(&parse(&format!("{{{many}\"loss\":2,\"step\":3}}")).unwrap());
        assert_eq!(many.len(), MAX_VALUES + 2);
        assert!(many.contains(&("loss".into(), 2.0)));
    }

    #[test]
    fn times_are_seconds_or_milliseconds_and_steps_are_whole() {
        assert_eq!(time_of(1.7e9), Some(UnixMillis(1_700_000_000_000)));
        assert_eq!(time_of(1.7e12), Some(UnixMillis(1_700_000_000_000)));
        assert_eq!((time_of(12.5), time_of(f64::NAN)), (None, None));
        assert_eq!(
            (step_of(3.0), step_of(-1.0), step_of(f64::INFINITY)),
            (Some(3), None, None)
        );
    }
}
