//! The grammar of such calls: a value's text is one that is read back as a value of its schema.

use super::super::grammar::{Callable, Function, Grammar};
use super::{END, FUNCTION, FUNCTION_END, PARAMETER, PARAMETER_END, START, kinds_of, value};
use serde_json::Value;

/// What a text says of itself, and a length. Other parts of a schema of texts cannot be followed here.
const OF_TEXTS: &[&str] = &[
    "type",
    "title",
    "description",
    "default",
    "examples",
    "minLength",
    "maxLength",
    "$defs",
    "definitions",
];

pub(super) fn calls(callable: &Callable) -> Result<Grammar, String> {
    let call = Grammar::All(vec![
        Grammar::line_break(),
        Grammar::text(FUNCTION),
        callable.any(call)?,
        Grammar::text(format!("{FUNCTION_END}\n")),
        Grammar::Mark(END),
    ]);
    let further = vec![Grammar::line_break(), Grammar::Mark(START), call.clone()];
    Ok(callable.repeated(call, Grammar::All(further)))
}

/// From the function's name to its last parameter.
fn call(function: &Function) -> Result<Grammar, String> {
    let parameters = function.parameters()?;
    let names = parameters.iter().map(|parameter| parameter.name.as_str());
    let is_wrong = |name: &&str| name.trim() != *name || name.contains(['<', '>', '\n']);
    if let Some(name) = names.chain([function.name]).find(is_wrong) {
        return Err(format!(
            "the parameters of {}: the format in which this model calls tools has no place for the name {name:?}",
            function.name
        ));
    }
    let mut all = vec![Grammar::text(format!("{}>\n", function.name))];
    for parameter in parameters {
        let written = written(&parameter.schema).map_err(|what| {
            format!(
                "the parameters of {}: {}: {what}",
                function.name, parameter.name
            )
        })?;
        let said = Grammar::All(vec![
            Grammar::text(format!("{PARAMETER}{}>\n", parameter.name)),
            written,
            Grammar::text("\n"),
        ]);
        all.push(match parameter.is_required {
            true => said,
            false => Grammar::maybe(said),
        });
    }
    Ok(Grammar::All(all))
}

/// A value and the end of its parameter.
fn written(schema: &Value) -> Result<Grammar, String> {
    let end = format!("\n{PARAMETER_END}");
    let mut kinds = Vec::new();
    kinds_of(schema, &mut kinds);
    if !kinds.contains(&"string") {
        let value = Grammar::Json(schema.clone());
        return Ok(Grammar::All(vec![value, Grammar::Text(end)]));
    }
    let mut options = Vec::new();
    push_options(schema, schema, &end, &mut options)?;
    match options.is_empty() {
        true => Err(refused("its schema")),
        false => Ok(Grammar::One(options)),
    }
}

fn refused(what: &str) -> String {
    format!(
        "{what} cannot be followed in the format in which this model calls tools, where any value is text"
    )
}

/// What may be written for a part of a schema that takes texts: then other values than null and those that are listed are read as
/// texts, too.
fn push_options(
    part: &Value,
    whole: &Value,
    end: &str,
    options: &mut Vec<Grammar>,
) -> Result<(), String> {
    let listed = part["enum"].as_array().map(Vec::as_slice);
    let listed = listed.or_else(|| part.get("const").map(std::slice::from_ref));
    if let Some(values) = listed {
        let texts = values.iter().filter_map(|of| text_of(of, whole));
        options.extend(texts.map(|text| Grammar::Text(text + end)));
        return Ok(());
    }
    if let Some(parts) = ["anyOf", "oneOf"]
        .iter()
        .find_map(|key| part[*key].as_array())
    {
        return parts
            .iter()
            .try_for_each(|part| push_options(part, whole, end, options));
    }
    let takes = |word: &str| match &part["type"] {
        Value::String(only) => only == word,
        Value::Array(several) => several.iter().any(|kind| kind == word),
        _ => false,
    };
    if takes("null") {
        options.push(Grammar::Text(format!("null{end}")));
    }
    if !takes("string") {
        return Ok(());
    }
    let mut keys = part.as_object().into_iter().flat_map(|map| map.keys());
    if let Some(other) = keys.find(|key| !OF_TEXTS.contains(&key.as_str())) {
        return Err(refused(&format!("`{other}`")));
    }
    options.push(Grammar::Until {
        end: end.into(),
        without: &[PARAMETER_END],
        least: part["minLength"].as_u64().unwrap_or(0),
        most: part["maxLength"].as_u64(),
    });
    Ok(())
}

/// The text that is read back as this value.
fn text_of(of: &Value, schema: &Value) -> Option<String> {
    let text = match of {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let is_whole = !text.contains(PARAMETER_END);
    let read: Option<Value> = serde_json::from_str(&value(&text, Some(schema))).ok();
    (is_whole && read.as_ref() == Some(of)).then_some(text)
}
