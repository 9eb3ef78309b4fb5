//! Which part of a schema cannot be used: the parser does not say where it stopped, so parts are tried one by one.

use super::Forms;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Parts that are tried at most; what they leave open is said of the larger part.
const MAX_TRIES: usize = 64;
/// Where the whole schema stands in one that begins with a part of it.
const WHOLE: &str = "#/$defs/whole";

/// Path and reason of the innermost part that cannot be used; `why` is the reason of the whole.
pub(super) fn innermost(forms: &Forms, schema: &Value, mut why: String) -> (String, String) {
    let Value::Object(map) = schema else {
        return (String::new(), why);
    };
    let mut search = Search::of(forms, schema);
    let mut part = Place {
        path: String::new(),
        pointer: String::new(),
        is_definition: false,
        schema: map,
    };
    while let Some((inner, its)) = search.fault_in(&part) {
        (part, why) = (inner, its);
    }
    (part.path, why)
}

struct Search<'a> {
    forms: &'a Forms,
    /// The whole schema, with references that lead to [`WHOLE`].
    moved: Value,
    /// The references, as they are written.
    references: BTreeSet<String>,
    tries: usize,
}

impl<'a> Search<'a> {
    fn of(forms: &'a Forms, schema: &Value) -> Search<'a> {
        let (mut moved, mut references) = (schema.clone(), BTreeSet::new());
        move_references(&mut moved, &mut references);
        Search {
            forms,
            moved,
            references,
            tries: MAX_TRIES,
        }
    }

    /// The first part of this one that cannot be used, and why.
    fn fault_in<'s>(&mut self, part: &Place<'s>) -> Option<(Place<'s>, String)> {
        let mut parts = part.parts();
        // Definitions that nothing names are not read.
        parts.retain(|inner| !inner.is_definition || self.is_named(&inner.pointer));
        // What refers to others may be at fault for theirs.
        parts.sort_by_key(|inner| refers(inner.schema));
        for inner in parts {
            if let Some(why) = self.fault_of(&inner) {
                return Some((inner, why));
            }
        }
        None
    }

    fn is_named(&self, pointer: &str) -> bool {
        self.references.iter().any(|reference| {
            let rest = reference
                .strip_prefix('#')
                .and_then(|reference| reference.strip_prefix(pointer));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    /// Why a part cannot be used, with the whole around it for its references.
    fn fault_of(&mut self, part: &Place) -> Option<String> {
        self.tries = self.tries.checked_sub(1)?;
        let mut schema = Map::new();
        if let Some(draft) = self.moved.get("$schema") {
            schema.insert("$schema".into(), draft.clone());
        }
        schema.insert("$ref".into(), format!("{WHOLE}{}", part.pointer).into());
        schema.insert("$defs".into(), json!({"whole": self.moved}));
        let why = self.forms.matcher(&Value::Object(schema)).err()?;
        Some(why.replace(WHOLE, "#"))
    }
}

/// Makes references lead to [`WHOLE`].
fn move_references(value: &mut Value, references: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            if let Some(Value::String(reference)) = map.get_mut("$ref")
                && let Some(pointer) = reference.strip_prefix('#')
            {
                let pointer = if pointer == "/" { "" } else { pointer };
                let moved = format!("{WHOLE}{pointer}");
                references.insert(std::mem::replace(reference, moved));
            }
            for value in map.values_mut() {
                move_references(value, references);
            }
        }
        Value::Array(all) => {
            for value in all {
                move_references(value, references);
            }
        }
        _ => {}
    }
}

fn refers(schema: &Map<String, Value>) -> bool {
    fn holds_reference(value: &Value) -> bool {
        match value {
            Value::Object(map) => refers(map),
            Value::Array(all) => all.iter().any(holds_reference),
            _ => false,
        }
    }
    schema.get("$ref").is_some_and(Value::is_string) || schema.values().any(holds_reference)
}

/// A schema within another one.
struct Place<'a> {
    /// `properties.x`; empty for the whole.
    path: String,
    /// `/properties/x`; empty for the whole.
    pointer: String,
    is_definition: bool,
    schema: &'a Map<String, Value>,
}

impl<'a> Place<'a> {
    /// The schemas in it.
    fn parts(&self) -> Vec<Place<'a>> {
        let mut parts = Vec::new();
        for (key, value) in self.schema {
            match (key.as_str(), value) {
                (
                    "properties" | "patternProperties" | "$defs" | "definitions",
                    Value::Object(all),
                ) => {
                    for (name, value) in all {
                        parts.extend(self.part(key, Some(name), format!(".{name}"), value));
                    }
                }
                ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(all)) => {
                    for (at, value) in all.iter().enumerate() {
                        parts.extend(self.part(
                            key,
                            Some(&at.to_string()),
                            format!("[{at}]"),
                            value,
                        ));
                    }
                }
                ("items" | "additionalProperties" | "not", value) => {
                    parts.extend(self.part(key, None, String::new(), value));
                }
                _ => {}
            }
        }
        parts
    }

    /// The schema of a key, or the one of this name under it, `shown` behind the key. `None`: it is none, or the parser's references
    /// cannot name it: they know no escapes (see [`super::references`]).
    fn part(
        &self,
        key: &str,
        name: Option<&str>,
        shown: String,
        value: &'a Value,
    ) -> Option<Place<'a>> {
        let schema = value.as_object()?;
        if name.is_some_and(|name| name.contains('/')) {
            return None;
        }
        let dot = if self.path.is_empty() { "" } else { "." };
        let mut pointer = format!("{}/{key}", self.pointer);
        if let Some(name) = name {
            pointer.extend(["/", name]);
        }
        Some(Place {
            path: format!("{}{dot}{key}{shown}", self.path),
            pointer,
            is_definition: matches!(key, "$defs" | "definitions"),
            schema,
        })
    }
}
