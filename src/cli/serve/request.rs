//! The bodies of requests: what they ask for, and what cannot be done. A setting that would change the answer and is not
//! supported is an error, never left out silently.

mod calls;
mod fields;

use crate::base::near::{did_you_mean, nearest};
use crate::base::sampling::Sampling;
use crate::base::text::one_line;
use crate::cli::chat::session::ANSWER;
use crate::wire::{Prompt, Turn};
pub use calls::Calls;
use fields::{Fields, mistyped};
use serde_json::{Map, Value, json};

/// Answers to one request, at most.
const MOST_CHOICES: u64 = 128;
/// Answers to all prompts of a request, at most.
const MOST_ANSWERS: u64 = 2048;
/// Tokens of an answer, at most.
const MOST_TOKENS: u64 = 1_000_000;
/// Alternatives to a token, at most.
const MOST_ALTERNATIVES: u64 = 20;
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
    /// Log-probabilities of the tokens are asked for, with so many alternatives to each.
    pub logprobs: Option<usize>,
    /// The answer begins with the prompt.
    pub echo: bool,
    /// What answers may call, and what they must.
    pub calls: Calls,
    /// Answers are JSON values of this schema.
    pub json_schema: Option<Value>,
    /// Variables of the chat template.
    pub template: Map<String, Value>,
    /// The request names a seed, or the server has one: the same request gets the same answer.
    pub repeatable: bool,
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
    let names_seed = map.get("seed").is_some_and(|seed| !seed.is_null());
    let mut fields = Fields(map);
    let json_schema = json_schema(&mut fields)?;
    let calls = match endpoint {
        Endpoint::Chat => Calls::read(&mut fields, json_schema.is_some())?,
        Endpoint::Completions => Calls::default(),
    };
    let prompts = match endpoint {
        Endpoint::Chat => vec![chat_prompt(&mut fields, &calls.tools)?],
        Endpoint::Completions => texts(&mut fields)?,
    };
    let echo = endpoint == Endpoint::Completions && fields.flag("echo")?.unwrap_or(false);
    let sampling = sampling(endpoint, &mut fields, (defaults, echo))?;
    let asked = Asked {
        model: fields.text("model")?,
        prompts,
        sampling,
        n: fields.whole("n", 1, MOST_CHOICES)?.unwrap_or(1),
        stream: fields.flag("stream")?.unwrap_or(false),
        usage_in_stream: usage_in_stream(&mut fields)?,
        logprobs: logprobs(endpoint, &mut fields)?,
        echo,
        calls,
        json_schema,
        template: template(endpoint, &mut fields)?,
        repeatable: names_seed || defaults.seed.is_some(),
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

fn sampling(
    endpoint: Endpoint,
    fields: &mut Fields,
    (said, echo): (&Defaults, bool),
) -> Result<Sampling, Wrong> {
    let defaults = &said.sampling;
    let most = match endpoint {
        Endpoint::Chat if !said.limited => ANSWER,
        _ => defaults.max_new_tokens,
    };
    // An answer without tokens is of use with its prompt alone.
    let least = u64::from(!echo);
    let newer = fields.whole("max_completion_tokens", least, MOST_TOKENS)?;
    let older = fields.whole("max_tokens", least, MOST_TOKENS)?;
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

/// `chat_template_kwargs`, and `reasoning_effort` as one of them.
fn template(endpoint: Endpoint, fields: &mut Fields) -> Result<Map<String, Value>, Wrong> {
    const VARIABLES: &str = "chat_template_kwargs";
    const EFFORT: &str = "reasoning_effort";
    /// What the template gets of the conversation.
    const OWN: [&str; 4] = ["messages", "tools", "documents", "add_generation_prompt"];
    if endpoint == Endpoint::Completions {
        return Ok(Map::new());
    }
    let mut variables = match fields.take(VARIABLES) {
        None => Map::new(),
        Some(Value::Object(variables)) => variables,
        Some(other) => return Err(mistyped(VARIABLES, "an object", &other)),
    };
    if let Some(own) = OWN.iter().find(|own| variables.contains_key(**own)) {
        let name = format!("{VARIABLES}.{own}");
        return Err(Wrong::field(
            &name,
            "the server sets it: see the fields messages and tools",
        ));
    }
    if let Some(effort) = fields.text(EFFORT)? {
        variables.insert(EFFORT.into(), effort.into());
    }
    Ok(variables)
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

/// How many alternatives: in chats a field of its own.
fn logprobs(endpoint: Endpoint, fields: &mut Fields) -> Result<Option<usize>, Wrong> {
    let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    match endpoint {
        Endpoint::Chat => {
            let asked = fields.flag("logprobs")?.unwrap_or(false);
            let top = fields.whole("top_logprobs", 0, MOST_ALTERNATIVES)?;
            match (asked, top) {
                (true, top) => Ok(Some(top.map_or(0, count))),
                (false, None | Some(0)) => Ok(None),
                (false, Some(_)) => Err(Wrong::field(
                    "top_logprobs",
                    "needs logprobs, which must be true",
                )),
            }
        }
        Endpoint::Completions => {
            let top = fields.whole("logprobs", 0, MOST_ALTERNATIVES)?;
            Ok(top.map(count))
        }
    }
}

/// `response_format`: text, any JSON object, or JSON of a schema.
fn json_schema(fields: &mut Fields) -> Result<Option<Value>, Wrong> {
    const FORMAT: &str = "response_format";
    let Some(format) = fields.take(FORMAT) else {
        return Ok(None);
    };
    match format["type"].as_str() {
        Some("text") => Ok(None),
        Some("json_object") => Ok(Some(json!({"type": "object"}))),
        Some("json_schema") => match &format["json_schema"]["schema"] {
            schema @ Value::Object(_) => Ok(Some(schema.clone())),
            other => Err(mistyped(
                "response_format.json_schema.schema",
                "an object",
                other,
            )),
        },
        _ => Err(mistyped(
            FORMAT,
            "an object whose type is text, json_object or json_schema",
            &format,
        )),
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

/// `prompt`: a text, a list of token ids, or a list of those.
fn texts(fields: &mut Fields) -> Result<Vec<Prompt>, Wrong> {
    const EXPECTED: &str = "a text, a list of token ids, or a list of these";
    let wrong = |found: &Value| mistyped("prompt", EXPECTED, found);
    let tokens = |list: &[Value]| -> Result<Prompt, Wrong> {
        let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
        let ids = list
            .iter()
            .map(|value| id(value).ok_or_else(|| wrong(value)));
        Ok(Prompt::Tokens(ids.collect::<Result<_, _>>()?))
    };
    match fields.take("prompt") {
        None => Err(Wrong::field("prompt", "missing")),
        Some(Value::String(text)) => Ok(vec![Prompt::Text(text)]),
        Some(Value::Array(list)) if list.first().is_some_and(Value::is_number) => {
            Ok(vec![tokens(&list)?])
        }
        Some(Value::Array(list)) if !list.is_empty() => list
            .into_iter()
            .enumerate()
            .map(|(at, item)| match item {
                Value::String(text) => Ok(Prompt::Text(text)),
                Value::Array(ids) if ids.is_empty() => {
                    Err(Wrong::field(&format!("prompt[{at}]"), "no token ids"))
                }
                Value::Array(ids) => tokens(&ids),
                other => Err(wrong(&other)),
            })
            .collect(),
        Some(other) => Err(wrong(&other)),
    }
}

fn chat_prompt(fields: &mut Fields, tools: &[Value]) -> Result<Prompt, Wrong> {
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
    if let Some(last) = messages.last()
        && last.extra.contains_key("tool_calls")
    {
        let name = format!("messages[{}]", messages.len() - 1);
        let what = "the last message calls tools: their results (`role: tool`) must follow";
        return Err(Wrong::field(&name, what));
    }
    Ok(match tools.is_empty() {
        true => Prompt::Turns(messages),
        false => Prompt::WithTools {
            messages,
            tools: tools.to_vec(),
        },
    })
}

/// Who may speak, `developer` besides. Templates write any word as a turn, which no model has learned.
const ROLES: [&str; 5] = ["system", "user", "assistant", "tool", "function"];

/// One message; its content a text, or a list of parts that are texts.
fn turn(at: usize, message: Value) -> Result<Turn, Wrong> {
    let name = format!("messages[{at}]");
    let Value::Object(mut map) = message else {
        return Err(mistyped(&name, "an object", &message));
    };
    let role = match map.remove("role") {
        // What newer clients call the system's turn.
        Some(Value::String(role)) if role == "developer" => "system".to_string(),
        Some(Value::String(role)) if ROLES.contains(&&*role) => role,
        Some(Value::String(role)) => {
            let known = match nearest(&role, ROLES.iter().copied()) {
                Some(near) => did_you_mean(near),
                None => format!("roles are {}", ROLES.join(", ")),
            };
            let what = format!("unknown role `{}`; {known}", one_line(&role));
            return Err(Wrong::field(&format!("{name}.role"), what));
        }
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
    // As good as nothing here, too; templates may ask whether a field is there.
    let is_nothing = |key: &str, value: &Value| match value {
        Value::Null => true,
        Value::Array(calls) => key == "tool_calls" && calls.is_empty(),
        _ => false,
    };
    map.retain(|key, value| !is_nothing(key, value));
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

#[cfg(test)]
mod tests;
