//! References of a schema as the parser follows them: it takes the names in a pointer as they stand, while JSON pointers write `/`
//! and `~` of a name as `~1` and `~0`. What is named so gets a definition of its own, with a name that needs neither.

use crate::base::human::grouped;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

const DEFINITIONS: &str = "$defs";
/// Values of a schema with its new definitions: each reference may copy a large part of it.
const MOST_VALUES: usize = 1 << 20;
/// Schemas in a schema, definitions with it: the parser follows references and properties one inside the other, and its stack has an
/// end (`preparing`).
const MOST_SCHEMAS: usize = 20_000;

/// The schema with such definitions.
///
/// # Errors
/// A sentence: a reference leads to nothing, or all of them to too much.
pub(super) fn followed(schema: &Value) -> Result<Value, String> {
    let mut moving = Moving {
        schema,
        names: BTreeMap::new(),
        taken: BTreeSet::new(),
        waiting: Vec::new(),
        values: 0,
        schemas: 0,
    };
    let mut moved = schema.clone();
    moving.rename(&mut moved)?;
    // What is moved may refer to more.
    let mut definitions = Map::new();
    while let Some((pointer, name)) = moving.waiting.pop() {
        let mut target = schema.pointer(&pointer).cloned().unwrap_or_default();
        moving.rename(&mut target)?;
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

/// Numbers go through f64 on their way into a grammar: larger whole ones would come out as others.
const MOST_EXACT: u64 = 1 << 53;

fn is_exact(n: &serde_json::Number) -> bool {
    // As a whole number first: 2^53 + 1 is 2^53 as an f64.
    match (n.as_i64(), n.as_f64()) {
        (Some(n), _) => n.unsigned_abs() <= MOST_EXACT,
        (None, Some(n)) => n.abs() <= MOST_EXACT as f64,
        (None, None) => false,
    }
}

/// Whether a bound is that of 64-bit integers. Generated schemas have them; they limit nothing that a model writes, and the parser's own
/// integers have no room for them.
fn is_limit_of_a_type(key: &str, bound: &Value) -> bool {
    let of_signed = |n: i64| [i64::MIN, i64::MAX].contains(&n);
    let is_limit = bound.as_i64().is_some_and(of_signed) || bound.as_u64() == Some(u64::MAX);
    ["minimum", "maximum"].contains(&key) && is_limit
}

/// Whether every number of a value is kept as it is.
fn exact(value: &Value) -> Result<(), String> {
    match value {
        Value::Number(n) if !is_exact(n) => Err(format!(
            "the number {n}: only those up to {} keep all their digits here; use a string, or leave it out",
            grouped(MOST_EXACT)
        )),
        Value::Array(all) => all.iter().try_for_each(exact),
        Value::Object(map) => map.values().try_for_each(exact),
        _ => Ok(()),
    }
}

struct Moving<'a> {
    schema: &'a Value,
    /// Of the new definitions, by pointer.
    names: BTreeMap<String, String>,
    /// The same names: two pointers may ask for one.
    taken: BTreeSet<String>,
    /// Pointers and names of those that are not copied yet.
    waiting: Vec<(String, String)>,
    /// Seen so far.
    values: usize,
    /// The same of objects that are no data.
    schemas: usize,
}

impl Moving<'_> {
    /// Replaces the references that need it.
    fn rename(&mut self, value: &mut Value) -> Result<(), String> {
        self.count()?;
        match value {
            Value::Object(map) => {
                self.schemas += 1;
                if self.schemas > MOST_SCHEMAS {
                    let most = grouped(MOST_SCHEMAS as u64);
                    return Err(format!("more than {most} schemas in it: split it"));
                }
                if let Some(Value::String(reference)) = map.get_mut("$ref")
                    && let Some(pointer) = reference.strip_prefix('#').filter(|p| p.contains('~'))
                {
                    let name = self.name(pointer)?;
                    *reference = format!("#/{DEFINITIONS}/{name}");
                }
                map.retain(|key, value| !is_limit_of_a_type(key, value));
                map.iter_mut()
                    .try_for_each(|(key, value)| match key.as_str() {
                        // No schemas: what they hold is data.
                        "const" | "enum" => exact(value).and_then(|()| self.pass(value)),
                        "default" | "examples" => self.pass(value),
                        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum"
                        | "multipleOf" => exact(value).and_then(|()| self.rename(value)),
                        // Names of one's own, whatever they are.
                        "properties" | "patternProperties" | "$defs" | "definitions" => match value
                        {
                            Value::Object(named) => {
                                named.values_mut().try_for_each(|inner| self.rename(inner))
                            }
                            other => self.rename(other),
                        },
                        _ => self.rename(value),
                    })
            }
            Value::Array(all) => all.iter_mut().try_for_each(|value| self.rename(value)),
            _ => Ok(()),
        }
    }

    /// Counts a value and what is in it.
    fn pass(&mut self, value: &Value) -> Result<(), String> {
        self.count()?;
        match value {
            Value::Object(map) => map.values().try_for_each(|inner| self.pass(inner)),
            Value::Array(all) => all.iter().try_for_each(|inner| self.pass(inner)),
            _ => Ok(()),
        }
    }

    fn count(&mut self) -> Result<(), String> {
        self.values += 1;
        match self.values > MOST_VALUES {
            true => {
                Err("too many values, together with those that references lead to: split it".into())
            }
            false => Ok(()),
        }
    }

    /// The name of the definition of what a pointer leads to.
    fn name(&mut self, pointer: &str) -> Result<String, String> {
        if let Some(name) = self.names.get(pointer) {
            return Ok(name.clone());
        }
        if self.schema.pointer(pointer).is_none() {
            return Err(format!("`$ref`: `#{pointer}` leads to nothing"));
        }
        let name = self.new_name(pointer);
        self.names.insert(pointer.into(), name.clone());
        self.waiting.push((pointer.into(), name.clone()));
        Ok(name)
    }

    /// A name that no definition has, near to the one that is written: errors show it.
    fn new_name(&mut self, pointer: &str) -> String {
        let inner = pointer.strip_prefix("/$defs/").unwrap_or(pointer);
        let mut name = inner.trim_start_matches('/').replace('/', ".");
        while self.schema[DEFINITIONS].get(&name).is_some() || !self.taken.insert(name.clone()) {
            name.push('~');
        }
        name
    }
}
