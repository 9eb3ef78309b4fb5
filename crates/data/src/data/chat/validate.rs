//! Tries out a foreign template in a limited child process before this process renders with it: fuel bounds a template's
//! instructions, not the memory that a single one allocates.

use super::{FIX_HOSTILE, GenerationPrompt, Template, overdrawn};
use crate::base::child::{Child, ChildError, Limits, LineSink, Parser, Request};
use crate::data::{DataError, Message};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Renders a template over the conversations that this program tries.
pub const PARSER: Parser = Parser {
    id: "chat-template",
    parse: validate_in_child,
};

/// The largest official template, tried over everything below, takes some milliseconds and megabytes.
const LIMITS: Limits = Limits {
    memory: 1 << 30,
    cpu_seconds: 10,
    silence: Duration::from_secs(30),
    line_bytes: 1 << 12,
    total_bytes: 1 << 12,
};

/// Renders a template over some conversations in `child`. A rendering error is not a fault; ending the child is.
///
/// # Errors
/// The template takes memory or time without bounds, or crashes the engine.
pub(super) fn validate(template: &Template, child: &Child) -> Result<(), DataError> {
    let fault = |what: String, fix| DataError::Template {
        place: template.name().to_string(),
        what,
        fix,
    };
    let options = Value::Object(template.variables().clone());
    let request = Request::bytes(template.source().as_bytes().to_vec()).with(options);
    let lines = child
        .collect(&PARSER, request, &LIMITS)
        .map_err(|e| match e {
            ChildError::Memory(_) | ChildError::Processor(_) | ChildError::Crashed(_) => {
                fault(format!("{e}, as in a malicious template"), FIX_HOSTILE)
            }
            ChildError::Refused(why) => fault(why, FIX_HOSTILE),
            other => fault(other.to_string(), other.hint()),
        })?;
    match lines.is_empty() {
        true => Err(fault("its try-out said nothing".into(), "try again")),
        false => Ok(()),
    }
}

fn validate_in_child(request: &Request, emit: &mut LineSink) -> Result<(), String> {
    let source = String::from_utf8_lossy(&request.bytes);
    let mut template = Template::from_jinja("template", &source).map_err(|e| e.to_string())?;
    let variables = request.options.as_object().cloned().unwrap_or_default();
    for (name, value) in variables {
        template = template.with_variable(&name, value);
    }
    for (messages, tools) in conversations() {
        for prompt in [GenerationPrompt::Without, GenerationPrompt::With] {
            // A template may refuse this conversation; that is not checked here.
            let _ = template.render(&messages, tools.as_ref(), prompt);
            if let Some(why) = template.engine.exceeded_budget() {
                return Err(overdrawn(why));
            }
        }
    }
    emit("true")
}

/// Turns of every role, with and without tools, short and long.
fn conversations() -> Vec<(Vec<Message>, Option<Value>)> {
    let call = json!([{"id": "abcdefghi", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}]);
    let tools = json!([{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}}}}]);
    let mut calls = Message::new("assistant", "");
    calls.extra = Map::from_iter([("tool_calls".to_string(), call)]);
    let mut answers = Message::new("tool", "1");
    answers.extra = Map::from_iter([("tool_call_id".to_string(), json!("abcdefghi"))]);
    let (user, assistant) = (Message::new("user", "hi"), Message::new("assistant", "ho"));
    let called = vec![user.clone(), calls, answers, assistant.clone()];
    let long = Message::new("user", "word ".repeat(2_000));
    let turn = |at: usize| {
        if at.is_multiple_of(2) {
            user.clone()
        } else {
            assistant.clone()
        }
    };
    let many = (0..100).map(turn).collect();
    vec![
        (vec![user.clone()], None),
        (
            vec![Message::new("system", "s"), user.clone(), assistant.clone()],
            None,
        ),
        (vec![user.clone(), assistant.clone()], Some(tools.clone())),
        (called, Some(tools)),
        (vec![long, assistant.clone()], None),
        (many, None),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::chat::BUILTIN;

    #[test]
    fn every_built_in_template_passes() {
        for builtin in BUILTIN {
            let template = Template::builtin(builtin.name).unwrap();
            assert!(
                validate(&template, &Child::default()).is_ok(),
                "{}",
                builtin.name
            );
        }
    }

    #[test]
    fn the_tried_conversations_reach_every_kind_of_turn() {
        let roles: Vec<String> = conversations()
            .into_iter()
            .flat_map(|(m, _)| m)
            .map(|m| m.role)
            .collect();
        for role in ["system", "user", "assistant", "tool"] {
            assert!(roles.iter().any(|r| r == role));
        }
    }
}
