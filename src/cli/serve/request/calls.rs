//! What a request says of tools: their definitions, and which of them must or may be called.

use super::Wrong;
use super::fields::{Fields, mistyped};
use crate::base::text::one_line;
use crate::data::chat::tool_calls::check_tool;
use crate::wire::Calling;
use serde_json::Value;

const CHOICE: &str = "tool_choice";

/// How an answer calls tools.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Calls {
    /// The definitions; none where no call may be.
    pub tools: Vec<Value>,
    /// An answer may call several tools.
    pub several: bool,
    /// The request names the function: the answer ends as one does that calls nothing, as OpenAI's do.
    pub is_named: bool,
    /// Calls are held to their tools' schemas.
    pub held: Option<Calling>,
}

impl Calls {
    /// `has_form`: answers have a schema of their own, and what calls must be known to the parser, too.
    pub fn read(fields: &mut Fields, has_form: bool) -> Result<Calls, Wrong> {
        let mut tools = definitions(fields)?;
        let several = fields.flag("parallel_tool_calls")?.unwrap_or(true);
        let mut choice = choice(fields, &tools)?;
        if let Choice::Among(allowed, mode) = choice {
            tools.retain(|(tool, _)| allowed.iter().any(|name| name_of(tool) == Some(name)));
            choice = *mode;
        }
        let is_strict = tools.iter().any(|(_, is_strict)| *is_strict);
        let mut calls = Calls {
            tools: tools.into_iter().map(|(tool, _)| tool).collect(),
            several,
            ..Calls::default()
        };
        let one = !several;
        match choice {
            Choice::Among(..) => {}
            Choice::None => calls.tools = Vec::new(),
            Choice::Auto if calls.tools.is_empty() || !(is_strict || has_form) => {}
            Choice::Auto => {
                calls.held = Some(Calling {
                    one,
                    ..Calling::default()
                });
            }
            Choice::Required => {
                calls.held = Some(Calling {
                    required: true,
                    function: None,
                    one,
                });
            }
            Choice::Named(name) => {
                (calls.several, calls.is_named) = (false, true);
                calls.held = Some(Calling {
                    required: true,
                    function: Some(name),
                    one: true,
                });
            }
        }
        Ok(calls)
    }
}

enum Choice {
    Auto,
    None,
    Required,
    Named(String),
    /// Only these may be called, as `auto` or `required` says.
    Among(Vec<String>, Box<Choice>),
}

fn name_of(tool: &Value) -> Option<&str> {
    tool.get("function").unwrap_or(tool)["name"].as_str()
}

/// The definitions, each with whether its calls must obey. The model does not see that word.
fn definitions(fields: &mut Fields) -> Result<Vec<(Value, bool)>, Wrong> {
    let tools = match fields.take("tools") {
        None => Vec::new(),
        Some(Value::Array(tools)) => tools,
        Some(other) => return Err(mistyped("tools", "a list", &other)),
    };
    let read = tools.into_iter().enumerate().map(|(at, mut tool)| {
        let name = format!("tools[{at}]");
        check_tool(&tool).map_err(|(key, what)| Wrong::field(&format!("{name}{key}"), what))?;
        let (function, key) = match tool.get_mut("function") {
            Some(function) => (function.as_object_mut(), ".function"),
            None => (tool.as_object_mut(), ""),
        };
        match function.and_then(|function| function.shift_remove("strict")) {
            None | Some(Value::Null) => Ok((tool, false)),
            Some(Value::Bool(is_strict)) => Ok((tool, is_strict)),
            Some(other) => {
                let name = format!("{name}{key}.strict");
                Err(mistyped(&name, "true or false", &other))
            }
        }
    });
    read.collect()
}

fn choice(fields: &mut Fields, tools: &[(Value, bool)]) -> Result<Choice, Wrong> {
    let choice = match fields.take(CHOICE) {
        None => return Ok(Choice::Auto),
        Some(Value::String(word)) => match word.as_str() {
            "auto" => return Ok(Choice::Auto),
            "none" => return Ok(Choice::None),
            "required" => Choice::Required,
            _ => return Err(unknown(&Value::String(word))),
        },
        Some(object) => match (object["type"].as_str(), object["function"]["name"].as_str()) {
            (Some("function"), Some(name)) => Choice::Named(name.into()),
            (Some("allowed_tools"), None) => among(&object)?,
            _ => return Err(unknown(&object)),
        },
    };
    let names: Vec<&str> = tools.iter().filter_map(|(tool, _)| name_of(tool)).collect();
    if names.is_empty() {
        return Err(Wrong::field(CHOICE, "there are no tools to call"));
    }
    let wanted = match &choice {
        Choice::Named(name) => std::slice::from_ref(name),
        Choice::Among(allowed, _) => allowed,
        _ => &[],
    };
    match wanted.iter().find(|name| !names.contains(&name.as_str())) {
        Some(name) => {
            let (name, known) = (one_line(name), one_line(&names.join(", ")));
            let why = format!("unknown tool {name}; available: {known}");
            Err(Wrong::field(CHOICE, why))
        }
        None => Ok(choice),
    }
}

/// A choice of `allowed_tools`.
fn among(choice: &Value) -> Result<Choice, Wrong> {
    let allowed = &choice["allowed_tools"];
    let mode = match &allowed["mode"] {
        Value::String(mode) if mode == "auto" => Choice::Auto,
        Value::String(mode) if mode == "required" => Choice::Required,
        other => {
            let name = format!("{CHOICE}.allowed_tools.mode");
            return Err(mistyped(&name, "`auto` or `required`", other));
        }
    };
    let name = format!("{CHOICE}.allowed_tools.tools");
    let tools = match &allowed["tools"] {
        Value::Array(tools) if !tools.is_empty() => tools,
        other => return Err(mistyped(&name, "a list of functions", other)),
    };
    let names = tools.iter().enumerate().map(|(at, tool)| {
        let known = name_of(tool).map(String::from);
        known.ok_or_else(|| Wrong::field(&format!("{name}[{at}]"), "the function has no name"))
    });
    Ok(Choice::Among(
        names.collect::<Result<_, _>>()?,
        Box::new(mode),
    ))
}

fn unknown(found: &Value) -> Wrong {
    let expected = "`none`, `auto`, `required`, {\"type\": \"function\", \"function\": {\"name\": …}} or `allowed_tools`";
    mistyped(CHOICE, expected, found)
}
