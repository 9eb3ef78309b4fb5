//! The fields of a body, each read once: what nobody has read is an error unless it has no effect.

use super::Wrong;
use crate::base::near::{did_you_mean, nearest};
use crate::base::text::one_line;
use serde_json::{Map, Value};

/// Fields that change nothing here: notes for the service, or the only thing that this server does.
const WITHOUT_EFFECT: &[&str] = &[
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
];

/// Fields that would change the answer, with the only value that is supported (null is as good).
const FIXED: &[(&str, &str)] = &[
    ("frequency_penalty", "0"),
    ("presence_penalty", "0"),
    ("logit_bias", "{}"),
    ("best_of", "1"),
    ("echo", "false"),
    ("suffix", "\"\""),
    ("modalities", r#"["text"]"#),
];

/// The fields that nobody has read yet.
pub struct Fields(pub Map<String, Value>);

impl Fields {
    /// Null is as good as nothing.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        self.0.shift_remove(name).filter(|value| !value.is_null())
    }

    pub fn text(&mut self, name: &str) -> Result<Option<String>, Wrong> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(mistyped(name, "a text", &other)),
        }
    }

    pub fn flag(&mut self, name: &str) -> Result<Option<bool>, Wrong> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(said)) => Ok(Some(said)),
            Some(other) => Err(mistyped(name, "true or false", &other)),
        }
    }

    pub fn number(&mut self, name: &str, least: f64, most: f64) -> Result<Option<f64>, Wrong> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        let number = value.as_f64().filter(|x| (least..=most).contains(x));
        let least = if least == f64::MIN_POSITIVE {
            "above 0".into()
        } else {
            least.to_string()
        };
        let expected = || mistyped(name, &format!("a number from {least} to {most}"), &value);
        number.ok_or_else(expected).map(Some)
    }

    /// A whole number, which some clients write as 5.0.
    pub fn whole(&mut self, name: &str, least: u64, most: u64) -> Result<Option<u64>, Wrong> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        let as_float = value
            .as_f64()
            .filter(|x| *x >= 0.0 && x.fract() == 0.0 && *x < 2e15);
        let number = value.as_u64().or(as_float.map(|x| x as u64));
        let expected = match most {
            u64::MAX => format!("a whole number of at least {least}"),
            _ => format!("a whole number from {least} to {most}"),
        };
        let number = number.filter(|x| (least..=most).contains(x));
        number
            .ok_or_else(|| mistyped(name, &expected, &value))
            .map(Some)
    }

    /// Any whole number: negative ones are seeds as well.
    pub fn seed(&mut self) -> Result<Option<u64>, Wrong> {
        let Some(value) = self.take("seed") else {
            return Ok(None);
        };
        let negative = value.as_i64().map(i64::cast_unsigned);
        let seed = value.as_u64().or(negative);
        seed.ok_or_else(|| mistyped("seed", "a whole number", &value))
            .map(Some)
    }

    /// What is left must have no effect.
    pub fn finish(mut self) -> Result<(), Wrong> {
        for (name, supported) in FIXED {
            let Some(value) = self.take(name) else {
                continue;
            };
            let is_supported = match serde_json::from_str::<Value>(supported) {
                Ok(only) => only
                    .as_f64()
                    .map_or(only == value, |x| value.as_f64() == Some(x)),
                Err(_) => false,
            };
            if !is_supported {
                return Err(Wrong::field(
                    name,
                    format!("not supported; leave it out, or set it to {supported}"),
                ));
            }
        }
        self.0
            .retain(|name, value| !WITHOUT_EFFECT.contains(&name.as_str()) && !value.is_null());
        let Some(name) = self.0.keys().next() else {
            return Ok(());
        };
        let near = nearest(name, KNOWN.iter().copied());
        let hint = near.map_or_else(String::new, |near| format!("; {}", did_you_mean(near)));
        Err(Wrong::field(&one_line(name), format!("unknown{hint}")))
    }
}

/// Names for the hint of a mistyped one.
const KNOWN: &[&str] = &[
    "model",
    "messages",
    "prompt",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "max_tokens",
    "max_completion_tokens",
    "seed",
    "stop",
    "n",
    "stream",
    "stream_options",
    "logprobs",
    "top_logprobs",
    "echo",
    "response_format",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "reasoning_effort",
    "chat_template_kwargs",
];

pub fn mistyped(param: &str, expected: &str, found: &Value) -> Wrong {
    let found = one_line(&found.to_string());
    let found: String = found.chars().take(60).collect();
    Wrong::field(param, format!("expected {expected}, found {found}"))
}
