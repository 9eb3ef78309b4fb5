//! The bodies of requests: what they ask for, and what cannot be done. A setting that would change the answer and is not
//! supported is an error, never left out silently.

use crate::base::near::{did_you_mean, nearest};
use crate::base::sampling::Sampling;
use crate::base::text::one_line;
use crate::wire::{Prompt, Turn};
use serde_json::{Map, Value};

/// Tokens of an answer in a conversation whose length nobody limits.
const ANSWER: usize = 1024;
/// Answers to one request, at most.
const MOST_CHOICES: u64 = 128;
/// Answers to all prompts of a request, at most.
const MOST_ANSWERS: u64 = 2048;
/// Tokens of an answer, at most.
const MOST_TOKENS: u64 = 1_000_000;
/// Texts that end an answer, at most.
const MOST_STOPS: usize = 16;

/// Which endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    Chat,
    Completions,
}

/// What a request asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// The model's name; absent: the first.
    pub model: Option<String>,
    /// Several, where a list of texts is to be completed.
    pub prompts: Vec<Prompt>,
    /// Of the first answer; further ones have the next seeds.
    pub sampling: Sampling,
    /// Answers to each prompt.
    pub n: u64,
    pub stream: bool,
    /// A last chunk of a stream says how many tokens there were.
    pub usage_in_stream: bool,
    /// Log-probabilities of the tokens are asked for.
    pub logprobs: bool,
}

/// What is wrong with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// The field; none: the whole.
    pub param: Option<String>,
    pub what: String,
}

impl Wrong {
    fn field(param: &str, what: impl Into<String>) -> Wrong {
        Wrong {
            param: Some(param.into()),
            what: format!("{param}: {}", what.into()),
        }
    }
}

/// Fields that change nothing here: notes for the service, or the only thing that this server does.
const WITHOUT_EFFECT: &[&str] = &[
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "parallel_tool_calls",
];

/// Fields that would change the answer, with the only value that is supported (null is as good).
const FIXED: &[(&str, &str)] = &[
    ("frequency_penalty", "0"),
    ("presence_penalty", "0"),
    ("logit_bias", "{}"),
    ("top_logprobs", "0"),
    ("best_of", "1"),
    ("echo", "false"),
    ("suffix", "\"\""),
    ("response_format", r#"{"type":"text"}"#),
    ("modalities", r#"["text"]"#),
];

/// What requests may leave out.
#[derive(Debug, Clone, Default)]
pub struct Defaults {
    pub sampling: Sampling,
    /// The length of conversations' answers is limited, too.
    pub limited: bool,
    /// Otherwise each request without a seed is another draw.
    pub seed: Option<u64>,
}

/// Reads a body.
///
/// # Errors
/// The first field that is wrong, unknown or not supported.
pub fn read(endpoint: Endpoint, body: &[u8], defaults: &Defaults) -> Result<Asked, Wrong> {
    let whole = |what: String| Wrong { param: None, what };
    let value: Value = serde_json::from_slice(body).map_err(|e| {
        whole(format!(
            "the body is not JSON: {}",
            one_line(&e.to_string())
        ))
    })?;
    let Value::Object(map) = value else {
        return Err(whole("the body must be a JSON object".into()));
    };
    let mut fields = Fields(map);
    let prompts = match endpoint {
        Endpoint::Chat => vec![chat_prompt(&mut fields)?],
        Endpoint::Completions => texts(&mut fields)?,
    };
    let sampling = sampling(endpoint, &mut fields, defaults)?;
    let asked = Asked {
        model: fields.text("model")?,
        prompts,
        sampling,
        n: fields.whole("n", 1, MOST_CHOICES)?.unwrap_or(1),
        stream: fields.flag("stream")?.unwrap_or(false),
        usage_in_stream: usage_in_stream(&mut fields)?,
        logprobs: logprobs(endpoint, &mut fields)?,
    };
    fields.finish()?;
    if asked.prompts.len() as u64 * asked.n > MOST_ANSWERS {
        let what = format!(
            "{} prompts with {} answers each; at most {MOST_ANSWERS} answers",
            asked.prompts.len(),
            asked.n
        );
        return Err(Wrong::field("prompt", what));
    }
    Ok(asked)
}

fn sampling(endpoint: Endpoint, fields: &mut Fields, said: &Defaults) -> Result<Sampling, Wrong> {
    let defaults = &said.sampling;
    let most = match endpoint {
        Endpoint::Chat if !said.limited => ANSWER,
        _ => defaults.max_new_tokens,
    };
    let newer = fields.whole("max_completion_tokens", 1, MOST_TOKENS)?;
    let older = fields.whole("max_tokens", 1, MOST_TOKENS)?;
    let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let number = |x: f64| x as f32;
    let stop = stops(fields)?;
    Ok(Sampling {
        temperature: fields
            .number("temperature", 0.0, 100.0)?
            .map_or(defaults.temperature, number),
        top_p: fields
            .number("top_p", f64::MIN_POSITIVE, 1.0)?
            .map_or(defaults.top_p, number),
        top_k: fields
            .whole("top_k", 0, u64::MAX)?
            .map_or(defaults.top_k, count),
        min_p: fields
            .number("min_p", 0.0, 1.0)?
            .map_or(defaults.min_p, number),
        repetition_penalty: fields
            .number("repetition_penalty", 0.01, 100.0)?
            .map_or(defaults.repetition_penalty, number),
        max_new_tokens: newer.or(older).map_or(most, count),
        seed: fields
            .seed()?
            .or(said.seed)
            .unwrap_or_else(crate::run::id::random),
        stop: stop.unwrap_or_else(|| defaults.stop.clone()),
        context: defaults.context,
    })
}

fn usage_in_stream(fields: &mut Fields) -> Result<bool, Wrong> {
    match fields.take("stream_options") {
        None => Ok(false),
        Some(Value::Object(options)) => {
            let mut options = Fields(options);
            let said = options.take("include_usage");
            // Padding against listeners on the network: of no use on one machine.
            options.take("include_obfuscation");
            if let Some(name) = options.0.keys().next() {
                return Err(Wrong::field(
                    &format!("stream_options.{}", one_line(name)),
                    "unknown",
                ));
            }
            match said {
                None => Ok(false),
                Some(Value::Bool(said)) => Ok(said),
                Some(other) => Err(mistyped(
                    "stream_options.include_usage",
                    "true or false",
                    &other,
                )),
            }
        }
        Some(other) => Err(mistyped("stream_options", "an object", &other)),
    }
}

/// In chats true or false; in completions how many alternatives, of which there are none here.
fn logprobs(endpoint: Endpoint, fields: &mut Fields) -> Result<bool, Wrong> {
    match endpoint {
        Endpoint::Chat => Ok(fields.flag("logprobs")?.unwrap_or(false)),
        Endpoint::Completions => match fields.whole("logprobs", 0, u64::MAX)? {
            Some(2..) => Err(Wrong::field(
                "logprobs",
                "only the chosen token's is available: 0 or 1",
            )),
            said => Ok(said.is_some()),
        },
    }
}

fn stops(fields: &mut Fields) -> Result<Option<Vec<String>>, Wrong> {
    const EXPECTED: &str = "a text or a list of texts";
    let stops = match fields.take("stop") {
        None => return Ok(None),
        Some(Value::String(text)) => vec![text],
        Some(Value::Array(list)) => list
            .into_iter()
            .map(|item| match item {
                Value::String(text) => Ok(text),
                other => Err(mistyped("stop", EXPECTED, &other)),
            })
            .collect::<Result<_, _>>()?,
        Some(other) => return Err(mistyped("stop", EXPECTED, &other)),
    };
    if stops.len() > MOST_STOPS {
        return Err(Wrong::field("stop", format!("at most {MOST_STOPS} texts")));
    }
    if stops.iter().any(String::is_empty) {
        return Err(Wrong::field("stop", "an empty text would end every answer"));
    }
    Ok(Some(stops))
}

/// `prompt`: a text, or a list of texts.
fn texts(fields: &mut Fields) -> Result<Vec<Prompt>, Wrong> {
    const EXPECTED: &str = "a text or a list of texts (token ids are not supported)";
    match fields.take("prompt") {
        Some(Value::String(text)) => Ok(vec![Prompt::Text(text)]),
        Some(Value::Array(list)) if !list.is_empty() => list
            .into_iter()
            .map(|item| match item {
                Value::String(text) => Ok(Prompt::Text(text)),
                other => Err(mistyped("prompt", EXPECTED, &other)),
            })
            .collect(),
        Some(other) => Err(mistyped("prompt", EXPECTED, &other)),
        None => Err(Wrong::field("prompt", "missing")),
    }
}

fn chat_prompt(fields: &mut Fields) -> Result<Prompt, Wrong> {
    let messages = match fields.take("messages") {
        Some(Value::Array(list)) if !list.is_empty() => list
            .into_iter()
            .enumerate()
            .map(|(at, message)| turn(at, message))
            .collect::<Result<Vec<_>, _>>()?,
        Some(Value::Array(_)) => return Err(Wrong::field("messages", "empty")),
        Some(other) => return Err(mistyped("messages", "a list", &other)),
        None => return Err(Wrong::field("messages", "missing")),
    };
    let tools = match fields.take("tools") {
        None => Vec::new(),
        Some(Value::Array(tools)) => tools,
        Some(other) => return Err(mistyped("tools", "a list", &other)),
    };
    let tools = match fields.take("tool_choice") {
        None => tools,
        Some(Value::String(word)) if word == "auto" => tools,
        Some(Value::String(word)) if word == "none" => Vec::new(),
        Some(_) => {
            return Err(Wrong::field(
                "tool_choice",
                "only `auto` and `none` are supported: the model decides",
            ));
        }
    };
    Ok(match tools.is_empty() {
        true => Prompt::Turns(messages),
        false => Prompt::WithTools { messages, tools },
    })
}

/// One message; its content a text, or a list of parts that are texts.
fn turn(at: usize, message: Value) -> Result<Turn, Wrong> {
    let name = format!("messages[{at}]");
    let Value::Object(mut map) = message else {
        return Err(mistyped(&name, "an object", &message));
    };
    let role = match map.remove("role") {
        // What newer clients call the system's turn.
        Some(Value::String(role)) if role == "developer" => "system".to_string(),
        Some(Value::String(role)) => role,
        Some(other) => return Err(mistyped(&format!("{name}.role"), "a text", &other)),
        None => return Err(Wrong::field(&format!("{name}.role"), "missing")),
    };
    let content = match map.remove("content") {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text,
        Some(Value::Array(parts)) => {
            let parts = parts.into_iter().map(|part| part_text(&name, &part));
            parts.collect::<Result<Vec<_>, _>>()?.concat()
        }
        Some(other) => {
            let name = format!("{name}.content");
            return Err(mistyped(&name, "a text or a list of parts", &other));
        }
    };
    Ok(Turn {
        role,
        content,
        extra: map,
    })
}

fn part_text(message: &str, part: &Value) -> Result<String, Wrong> {
    match (part["type"].as_str(), part["text"].as_str()) {
        (Some("text"), Some(text)) => Ok(text.to_string()),
        (Some("text") | None, _) => Err(Wrong::field(
            &format!("{message}.content"),
            "a part must be {\"type\": \"text\", \"text\": …}",
        )),
        (Some(kind), _) => Err(Wrong::field(
            &format!("{message}.content"),
            format!(
                "parts of type {} are not supported: the model reads text",
                one_line(kind)
            ),
        )),
    }
}

fn mistyped(param: &str, expected: &str, found: &Value) -> Wrong {
    let found = one_line(&found.to_string());
    let found: String = found.chars().take(60).collect();
    Wrong::field(param, format!("expected {expected}, found {found}"))
}

/// The fields that nobody has read yet.
struct Fields(Map<String, Value>);

impl Fields {
    /// Null is as good as nothing.
    fn take(&mut self, name: &str) -> Option<Value> {
        self.0.shift_remove(name).filter(|value| !value.is_null())
    }

    fn text(&mut self, name: &str) -> Result<Option<String>, Wrong> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(mistyped(name, "a text", &other)),
        }
    }

    fn flag(&mut self, name: &str) -> Result<Option<bool>, Wrong> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(said)) => Ok(Some(said)),
            Some(other) => Err(mistyped(name, "true or false", &other)),
        }
    }

    fn number(&mut self, name: &str, least: f64, most: f64) -> Result<Option<f64>, Wrong> {
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
    fn whole(&mut self, name: &str, least: u64, most: u64) -> Result<Option<u64>, Wrong> {
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
    fn seed(&mut self) -> Result<Option<u64>, Wrong> {
        let Some(value) = self.take("seed") else {
            return Ok(None);
        };
        let negative = value.as_i64().map(i64::cast_unsigned);
        let seed = value.as_u64().or(negative);
        seed.ok_or_else(|| mistyped("seed", "a whole number", &value))
            .map(Some)
    }

    /// What is left must have no effect.
    fn finish(mut self) -> Result<(), Wrong> {
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
    "tools",
    "tool_choice",
];

#[cfg(test)]
mod tests;
