//! `<|tool_call_start|>[name(x=1, y="a"), …]<|tool_call_end|>`: LFM 2. The list is Python's.

use super::grammar::Function;
use super::python;
use super::{Block, Call, Callable, Format, Grammar, Reading};
use serde_json::Value;

const START: &str = "<|tool_call_start|>";
const END: &str = "<|tool_call_end|>";

pub(super) const FORMAT: Format = Format {
    word: "lfm2",
    marks: &[START],
    bare: None,
    read,
    write,
    turn_ends: &[],
    thinks: None,
};

fn read(text: &str, reading: Reading) -> Block {
    let inner = text.strip_prefix(START).unwrap_or(text);
    let (list, len) = match inner.find(END) {
        Some(at) => (&inner[..at], text.len() - inner.len() + at + END.len()),
        None if reading.is_end => (inner, text.len()),
        None => return Block::Open,
    };
    match python::calls(list) {
        Some(calls) if !calls.is_empty() => {
            let call = |(name, arguments): (String, Value)| Call {
                name,
                arguments: arguments.to_string(),
                id: None,
            };
            Block::Calls(calls.into_iter().map(call).collect(), len)
        }
        _ => Block::Text,
    }
}

fn write(callable: &Callable) -> Result<Grammar, String> {
    let call = callable.any(call)?;
    Ok(Grammar::All(vec![
        Grammar::text("["),
        callable.listed(call, ", "),
        Grammar::text("]"),
        Grammar::Mark(END),
    ]))
}

/// `f(x=1, y="a")`. Values are JSON's, which the reader takes for Python's.
fn call(function: &Function) -> Result<Grammar, String> {
    let is_name = |name: &str| !name.is_empty() && name.chars().all(python::is_name_part);
    let parameters = function.parameters()?;
    let named = parameters.iter().map(|parameter| parameter.name.as_str());
    if let Some(name) = named.chain([function.name]).find(|name| !is_name(name)) {
        return Err(format!(
            "the parameters of {}: `{name}` is not a Python identifier, and this model writes calls as Python",
            function.name
        ));
    }
    let items = parameters.into_iter().map(|parameter| {
        let key = Grammar::Text(format!("{}=", parameter.name));
        let said = Grammar::All(vec![key, Grammar::Json(parameter.schema)]);
        (parameter.is_required, said)
    });
    Ok(Grammar::All(vec![
        Grammar::Text(format!("{}(", function.name)),
        Grammar::Joined(items.collect(), ", "),
        Grammar::text(")"),
    ]))
}
