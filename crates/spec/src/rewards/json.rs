//! 1 if the completion is valid JSON with the required fields.

use super::{Answer, Reward};
use crate::base::registry::Entry;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

pub const ENTRY: Entry = Entry {
    id: "json",
    title: "Valid JSON",
    summary: "1 if the answer is one JSON value; with `fields`, an object that has them with the right types; else 0.",
    source: "ECMA-404; the types are those of JSON Schema",
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    String,
    Number,
    Integer,
    Boolean,
    Array,
    Object,
    Any,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Fields that the object must have, each with its type: string, number, integer, boolean, array, object or any.
    pub fields: BTreeMap<String, Kind>,
    /// No other fields may be there.
    pub only: bool,
}

impl Reward for Config {
    fn reads(&self, answer: &Answer) -> Option<bool> {
        Some(serde_json::from_str::<serde::de::IgnoredAny>(&answer.text).is_ok())
    }

    fn score(&self, answer: &Answer) -> Result<f64, String> {
        let fits = serde_json::from_str(&answer.text).is_ok_and(|value| self.fits(&value));
        Ok(f64::from(u8::from(fits)))
    }

    fn fault(&self) -> Option<(String, String)> {
        (self.only && self.fields.is_empty()).then(|| {
            let what = "only: true without fields allows only the empty object";
            (what.into(), "name fields: {answer: number}".into())
        })
    }
}

impl Config {
    fn fits(&self, value: &Value) -> bool {
        if self.fields.is_empty() {
            return true;
        }
        let Value::Object(object) = value else {
            return false;
        };
        let has = |(name, kind): (&String, &Kind)| object.get(name).is_some_and(|v| kind.is(v));
        let others = object.keys().any(|name| !self.fields.contains_key(name));
        self.fields.iter().all(has) && !(self.only && others)
    }
}

impl Kind {
    fn is(self, value: &Value) -> bool {
        match self {
            Kind::String => value.is_string(),
            Kind::Number => value.is_number(),
            // 1.0 is an integer in JSON Schema.
            Kind::Integer => value.as_f64().is_some_and(|x| x.fract() == 0.0),
            Kind::Boolean => value.is_boolean(),
            Kind::Array => value.is_array(),
            Kind::Object => value.is_object(),
            Kind::Any => true,
        }
    }
}
