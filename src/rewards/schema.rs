//! 1 where the answer is JSON that a JSON Schema allows. Judged are the keywords below; any other one is an error, so that a
//! rule that nobody checks is never taken for one that holds.

use super::{Answer, Reward};
use crate::base::registry::Entry;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub const ENTRY: Entry = Entry {
    id: "schema",
    title: "JSON of a schema",
    summary: "1 where the answer is one JSON value that a JSON Schema allows, else 0.",
    source: "JSON Schema 2020-12, json-schema.org",
};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The schema: type, properties, required, additionalProperties, items, enum, const, bounds of numbers, lengths and
    /// counts, pattern, uniqueItems, anyOf, allOf, oneOf, not.
    pub schema: Map<String, Value>,
}

/// Deepest schema that is judged.
const DEPTH: usize = 64;
/// Words that say nothing of what is allowed.
const WORDS: [&str; 5] = ["$schema", "title", "description", "default", "examples"];

impl Reward for Config {
    fn score(&self, answer: &Answer) -> Result<f64, String> {
        let Ok(value) = serde_json::from_str::<Value>(&answer.text) else {
            return Ok(0.0);
        };
        let allowed = object(&self.schema, &value)?;
        Ok(f64::from(u8::from(allowed)))
    }

    fn fault(&self) -> Option<(String, String)> {
        if self.schema.is_empty() {
            let fix = "write {schema: {schema: {type: object, required: [answer]}}}, or use the reward json";
            return Some(("an empty schema allows everything".into(), fix.into()));
        }
        let what = unjudged(&self.schema, 0)?;
        Some((
            what,
            "correct the schema, or judge by a program (command)".into(),
        ))
    }
}

/// What of a schema cannot be judged.
fn unjudged(schema: &Map<String, Value>, depth: usize) -> Option<String> {
    if depth > DEPTH {
        return Some(format!("the schema is more than {DEPTH} deep"));
    }
    let inner = |value: &Value| match value {
        Value::Object(schema) => unjudged(schema, depth + 1),
        Value::Bool(_) => None,
        other => Some(format!("{other} is no schema")),
    };
    schema.iter().find_map(|(key, value)| {
        let wants = |what: &str| Some(format!("`{key}` wants {what}, not {value}"));
        match key.as_str() {
            "type" => match types(value) {
                Some(types) => types
                    .iter()
                    .find(|name| !TYPES.contains(name))
                    .map(|name| format!("`{name}` is no type; known: {}", TYPES.join(", "))),
                None => wants("a type or a list of types"),
            },
            "properties" => match value {
                Value::Object(all) => all.values().find_map(inner),
                _ => wants("schemas by name"),
            },
            "additionalProperties" | "items" | "not" => inner(value),
            "anyOf" | "allOf" | "oneOf" => match value.as_array() {
                Some(all) if !all.is_empty() => all.iter().find_map(inner),
                _ => wants("a list of schemas"),
            },
            "required" => match value.as_array() {
                Some(all) if all.iter().all(Value::is_string) => None,
                _ => wants("a list of names"),
            },
            "enum" if !value.is_array() => wants("a list"),
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum"
                if !value.is_number() =>
            {
                wants("a number")
            }
            "multipleOf" if value.as_f64().is_none_or(|x| x <= 0.0) => wants("a number above 0"),
            "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties"
            | "maxProperties"
                if value.as_u64().is_none() =>
            {
                wants("a whole number")
            }
            "uniqueItems" if !value.is_boolean() => wants("true or false"),
            "pattern" => match value.as_str() {
                Some(pattern) => ::regex::Regex::new(pattern).err().map(|e| e.to_string()),
                None => wants("a regular expression"),
            },
            "enum" | "const" | "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum"
            | "multipleOf" | "minLength" | "maxLength" | "minItems" | "maxItems"
            | "minProperties" | "maxProperties" | "uniqueItems" => None,
            word if WORDS.contains(&word) => None,
            other => Some(format!("the keyword `{other}` is not judged")),
        }
    })
}

const TYPES: [&str; 7] = [
    "null", "boolean", "object", "array", "number", "integer", "string",
];

fn types(value: &Value) -> Option<Vec<&str>> {
    match value {
        Value::String(name) => Some(vec![name]),
        Value::Array(names) => names.iter().map(Value::as_str).collect(),
        _ => None,
    }
}

fn is(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        "number" => value.is_number(),
        // 1.0 is an integer in JSON Schema.
        "integer" => value.as_f64().is_some_and(|x| x.fract() == 0.0),
        "string" => value.is_string(),
        _ => false,
    }
}

/// 1 and 1.0 are the same number in JSON Schema, wherever they stand.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => x == y || x.as_f64() == y.as_f64(),
        (Value::Array(x), Value::Array(y)) => {
            x.len() == y.len() && x.iter().zip(y).all(|(a, b)| same(a, b))
        }
        (Value::Object(x), Value::Object(y)) => {
            let alike = |(key, a): (&String, &Value)| y.get(key).is_some_and(|b| same(a, b));
            x.len() == y.len() && x.iter().all(alike)
        }
        _ => a == b,
    }
}

fn allows(schema: &Value, value: &Value) -> Result<bool, String> {
    match schema {
        Value::Bool(all) => Ok(*all),
        Value::Object(schema) => object(schema, value),
        other => Err(format!("{other} is no schema")),
    }
}

fn object(schema: &Map<String, Value>, value: &Value) -> Result<bool, String> {
    for (key, rule) in schema {
        if !holds(schema, (key, rule), value)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether one keyword of a schema holds for a value. Keywords that speak of another type hold.
fn holds(
    schema: &Map<String, Value>,
    (key, rule): (&str, &Value),
    value: &Value,
) -> Result<bool, String> {
    let (number, bound) = (value.as_f64(), rule.as_f64().unwrap_or_default());
    let number = |fits: fn(f64, f64) -> bool| number.is_none_or(|x| fits(x, bound));
    let size = |of: Option<usize>, fits: fn(u64, u64) -> bool| {
        of.is_none_or(|n| fits(n as u64, rule.as_u64().unwrap_or_default()))
    };
    let letters = || value.as_str().map(|text| text.chars().count());
    let items = || value.as_array().map(Vec::len);
    let fields = || value.as_object().map(Map::len);
    let count = || -> Result<usize, String> {
        let mut n = 0;
        for schema in rule.as_array().into_iter().flatten() {
            n += usize::from(allows(schema, value)?);
        }
        Ok(n)
    };
    Ok(match key {
        "type" => types(rule).is_some_and(|all| all.iter().any(|name| is(value, name))),
        "const" => same(value, rule),
        "enum" => rule
            .as_array()
            .is_some_and(|all| all.iter().any(|one| same(one, value))),
        "minimum" => number(|x, y| x >= y),
        "maximum" => number(|x, y| x <= y),
        "exclusiveMinimum" => number(|x, y| x > y),
        "exclusiveMaximum" => number(|x, y| x < y),
        "multipleOf" => number(|x, y| (x / y).fract() == 0.0),
        "minLength" => size(letters(), |n, m| n >= m),
        "maxLength" => size(letters(), |n, m| n <= m),
        "minItems" => size(items(), |n, m| n >= m),
        "maxItems" => size(items(), |n, m| n <= m),
        "minProperties" => size(fields(), |n, m| n >= m),
        "maxProperties" => size(fields(), |n, m| n <= m),
        "pattern" => match (value.as_str(), rule.as_str()) {
            (Some(text), Some(pattern)) => {
                let regex = ::regex::Regex::new(pattern).map_err(|e| e.to_string())?;
                regex.is_match(text)
            }
            _ => true,
        },
        "uniqueItems" => {
            let all = value.as_array().map_or(&[][..], Vec::as_slice);
            let twice = |at: usize| all[..at].iter().any(|one| same(one, &all[at]));
            rule == &Value::Bool(false) || !(0..all.len()).any(twice)
        }
        "required" => match value.as_object() {
            Some(fields) => {
                let mut names = rule
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_str);
                names.all(|name| fields.contains_key(name))
            }
            None => true,
        },
        "properties" => {
            for (name, schema) in rule.as_object().into_iter().flatten() {
                if let Some(field) = value.get(name)
                    && !allows(schema, field)?
                {
                    return Ok(false);
                }
            }
            true
        }
        "additionalProperties" => {
            let known = |name: &String| {
                schema
                    .get("properties")
                    .is_some_and(|p| p.get(name).is_some())
            };
            for (name, field) in value.as_object().into_iter().flatten() {
                if !known(name) && !allows(rule, field)? {
                    return Ok(false);
                }
            }
            true
        }
        "items" => {
            for item in value.as_array().into_iter().flatten() {
                if !allows(rule, item)? {
                    return Ok(false);
                }
            }
            true
        }
        "anyOf" => count()? > 0,
        "oneOf" => count()? == 1,
        "allOf" => Some(count()?) == rule.as_array().map(Vec::len),
        "not" => !allows(rule, value)?,
        _ => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Case {
        schema: Map<String, Value>,
        text: String,
        allowed: bool,
    }

    #[test]
    fn what_is_allowed_is_what_the_library_jsonschema_allows() {
        let cases: Vec<Case> =
            serde_json::from_str(include_str!("../../tests/oracle/json_schema.json")).unwrap();
        assert!(cases.len() > 100 && cases.iter().any(|case| case.allowed));
        for case in cases {
            let answer = Answer {
                prompt: String::new(),
                text: case.text.clone(),
                tokens: 1,
                ended: true,
                reference: super::super::Reference::default(),
            };
            let config = Config {
                schema: case.schema,
            };
            assert_eq!(config.fault(), None, "{config:?}");
            let score = config.score(&answer).unwrap();
            assert_eq!(score == 1.0, case.allowed, "{config:?}: {}", case.text);
        }
    }

    #[test]
    fn a_schema_that_cannot_be_judged_says_what_it_is() {
        for (schema, word) in [
            (serde_json::json!({}), "empty"),
            (serde_json::json!({"$ref": "#/x"}), "$ref"),
            (serde_json::json!({"type": "text"}), "`text` is no type"),
            (
                serde_json::json!({"properties": {"a": {"minimum": "1"}}}),
                "`minimum` wants",
            ),
            (serde_json::json!({"items": [1]}), "is no schema"),
            (serde_json::json!({"pattern": "("}), "unclosed"),
        ] {
            let schema = schema.as_object().cloned().unwrap();
            let (what, _) = Config { schema }.fault().unwrap();
            assert!(what.contains(word), "{what}");
        }
    }
}
