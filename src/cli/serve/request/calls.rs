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
        let (tools, is_strict) = definitions(fields)?;
        let several = fields.flag("parallel_tool_calls")?.unwrap_or(true);
        let choice = choice(fields, &tools)?;
        let mut calls = Calls {
            tools,
            several,
            ..Calls::default()
        };
        let one = !several;
        match choice {
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
}

/// The definitions, and whether the calls of some must obey. The model does not see that word.
fn definitions(fields: &mut Fields) -> Result<(Vec<Value>, bool), Wrong> {
    let mut tools = match fields.take("tools") {
        None => Vec::new(),
        Some(Value::Array(tools)) => tools,
        Some(other) => return Err(mistyped("tools", "a list", &other)),
    };
    let mut is_strict = false;
    for (at, tool) in tools.iter_mut().enumerate() {
        let name = format!("tools[{at}]");
        check_tool(tool).map_err(|(key, what)| Wrong::field(&format!("{name}{key}"), what))?;
        let (function, key) = match tool.get_mut("function") {
            Some(function) => (function.as_object_mut(), ".function"),
            None => (tool.as_object_mut(), ""),
        };
        match function.and_then(|function| function.shift_remove("strict")) {
            None | Some(Value::Null) => {}
            Some(Value::Bool(said)) => is_strict |= said,
            Some(other) => {
                let name = format!("{name}{key}.strict");
                return Err(mistyped(&name, "true or false", &other));
            }
        }
    }
    Ok((tools, is_strict))
}

fn choice(fields: &mut Fields, tools: &[Value]) -> Result<Choice, Wrong> {
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
            _ => return Err(unknown(&object)),
        },
    };
    let names = tools.iter().filter_map(|tool| {
        let function = tool.get("function").unwrap_or(tool);
        function["name"].as_str()
    });
    let names: Vec<&str> = names.collect();
    match &choice {
        _ if names.is_empty() => Err(Wrong::field(CHOICE, "there are no tools to call")),
        Choice::Named(name) if !names.contains(&name.as_str()) => {
            let (name, known) = (one_line(name), one_line(&names.join(", ")));
            Err(Wrong::field(
                CHOICE,
                format!("there is no tool {name}; there is {known}"),
            ))
        }
        _ => Ok(choice),
    }
}

fn unknown(found: &Value) -> Wrong {
    let expected =
        "`none`, `auto`, `required` or {\"type\": \"function\", \"function\": {\"name\": …}}";
    mistyped(CHOICE, expected, found)
}
