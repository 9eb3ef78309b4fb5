//! References of a schema as the parser follows them: it takes the names in a pointer as they stand, while JSON pointers write `/`
//! and `~` of a name as `~1` and `~0`. What is named so gets a definition of its own, with a name that needs neither.

use serde_json::{Map, Value};
use std::collections::BTreeMap;

const DEFINITIONS: &str = "$defs";

/// The schema with such definitions.
///
/// # Errors
/// A sentence: a reference leads to nothing.
pub(super) fn followed(schema: &Value) -> Result<Value, String> {
    let mut moved = schema.clone();
    let mut names = BTreeMap::new();
    rename(&mut moved, schema, &mut names)?;
    // What is moved may refer to more.
    let mut definitions = Map::new();
    while let Some((pointer, name)) = names
        .iter()
        .find(|(_, name)| !definitions.contains_key(name.as_str()))
        .map(|(pointer, name)| (pointer.clone(), name.clone()))
    {
        let mut target = schema.pointer(&pointer).cloned().unwrap_or_default();
        rename(&mut target, schema, &mut names)?;
        definitions.insert(name, target);
    }
    if let Value::Object(map) = &mut moved
        && !definitions.is_empty()
    {
        let all = map
            .entry(DEFINITIONS)
            .or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(all) = all {
            all.extend(definitions);
        }
    }
    Ok(moved)
}

/// Replaces the references that need it; `names` are those of the definitions, by pointer.
fn rename(
    value: &mut Value,
    schema: &Value,
    names: &mut BTreeMap<String, String>,
) -> Result<(), String> {
    match value {
        Value::Object(map) => {
            if let Some(Value::String(reference)) = map.get_mut("$ref")
                && let Some(pointer) = reference.strip_prefix('#').filter(|p| p.contains('~'))
            {
                if schema.pointer(pointer).is_none() {
                    return Err(format!("`$ref`: `{reference}` leads to nothing"));
                }
                let name = names
                    .entry(pointer.to_string())
                    .or_insert_with(|| name_of(pointer, schema));
                *reference = format!("#/{DEFINITIONS}/{name}");
            }
            map.values_mut()
                .try_for_each(|value| rename(value, schema, names))
        }
        Value::Array(all) => all
            .iter_mut()
            .try_for_each(|value| rename(value, schema, names)),
        _ => Ok(()),
    }
}

/// A name that no definition has, near to the one that is written: errors show it.
fn name_of(pointer: &str, schema: &Value) -> String {
    let inner = pointer.strip_prefix("/$defs/").unwrap_or(pointer);
    let mut name = inner.trim_start_matches('/').replace('/', ".");
    while schema[DEFINITIONS].get(&name).is_some() {
        name.push('~');
    }
    name
}
