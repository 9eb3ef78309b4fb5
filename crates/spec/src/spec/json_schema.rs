//! The JSON Schema of spec files, for editors: keys and members as they are completed, their texts, ranges and defaults. It takes
//! what files may hold: short names, other tools' names, members by their word alone. What only the whole of a spec shows
//! (sizes that fit together, files that are there) is for `llmtui train --dry-run`.

use super::alias;
use super::schema::{Kind, Node, root};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The schema, draft 2020-12.
pub fn json_schema() -> Value {
    let mut schema = of(root(), "");
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("llmtui spec");
    schema["properties"]["extends"] = json!({
        "type": "string",
        "description": "A preset or a file whose values these replace.",
    });
    schema
}

/// A node at its dotted path.
fn of(node: &Node, path: &str) -> Value {
    let mut schema = match &node.kind {
        Kind::Object(_) => section(node, path),
        Kind::Registry(_) => registry(node, path),
        Kind::Choice(words) => choice(words, path),
        Kind::Integer { min, max } => range("integer", *min, *max, false),
        Kind::Number {
            min, max, above, ..
        } => range("number", *min, *max, *above),
        Kind::Interval => range("number", Some(0.0), None, false),
        Kind::Bool => json!({"type": "boolean"}),
        Kind::Text => json!({"type": "string"}),
        Kind::List(item) => json!({"type": "array", "items": of_item(item)}),
        Kind::Map(item) => json!({"type": "object", "additionalProperties": of_item(item)}),
    };
    if node.nullable {
        // As screens show a value that is not set, and as a switch.
        schema = json!({"anyOf": [schema, {"enum": [null, "none", "off", false]}]});
    }
    if !node.doc.is_empty() {
        schema["description"] = json!(node.doc);
    }
    let is_plain = !matches!(node.kind, Kind::Object(_) | Kind::Registry(_));
    if is_plain && !node.default.is_null() {
        schema["default"] = node.default.clone();
    }
    schema
}

/// An item of a list: a section or a member has a short form of its own, which its reader knows.
fn of_item(item: &Node) -> Value {
    match item.kind {
        Kind::Object(_) | Kind::Registry(_) => json!({}),
        _ => of(item, ""),
    }
}

fn range(kind: &str, min: Option<f64>, max: Option<f64>, above: bool) -> Value {
    let mut schema = json!({"type": kind});
    if let Some(min) = min {
        let key = if above { "exclusiveMinimum" } else { "minimum" };
        schema[key] = json!(min);
    }
    if let Some(max) = max {
        schema["maximum"] = json!(max);
    }
    schema
}

/// Words, those of other tools among them; for some also true or false.
fn choice(words: &[String], path: &str) -> Value {
    let mut all: Vec<Value> = words.iter().map(|word| json!(word)).collect();
    all.extend(alias::other_words(path).into_iter().map(Value::from));
    let switches = alias::ALIASES.iter().any(|(name, target)| {
        *target == path
            && (alias::switch(name, true).is_some() || alias::switch(name, false).is_some())
    });
    let own = alias::switch(path, true).is_some();
    if switches || own {
        all.extend([json!(true), json!(false)]);
    }
    let words = json!({"enum": all});
    match path {
        // PEFT's list of modules.
        "adapter.lora.targets" => {
            json!({"anyOf": [words, {"type": "array"}, {"enum": ["all-linear", "all_linear"]}]})
        }
        _ => words,
    }
}

/// A section: its keys, and other names of them.
fn section(node: &Node, path: &str) -> Value {
    let mut properties = Map::new();
    for (name, child) in node.children() {
        properties.insert(name.clone(), of(child, &join(path, name)));
    }
    other_names(&mut properties, path);
    closed(properties)
}

/// One of several members: by its word, or with its settings; settings without the member's name are those of the one that is
/// chosen elsewhere.
fn registry(node: &Node, path: &str) -> Value {
    let mut words: Vec<Value> = Vec::new();
    let mut properties = Map::new();
    let mut fields: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for (name, member) in node.children() {
        words.push(json!(name));
        let at = join(path, name);
        let mut settings = of(member, &at);
        // `every_n: 2`, and a member that is only named.
        let bare = match member.children() {
            [(_, field)] => of(field, &at),
            _ => json!({"type": "null"}),
        };
        let text = settings
            .as_object_mut()
            .and_then(|map| map.remove("description"));
        settings = json!({"anyOf": [settings, bare, {"type": "null"}]});
        if let Some(text) = text {
            settings["description"] = text;
        }
        properties.insert(name.clone(), settings);
        for (field, inner) in member.children() {
            let schemas = fields.entry(field.clone()).or_default();
            schemas.push(of(inner, &join(&at, field)));
        }
    }
    for (field, schemas) in fields {
        properties
            .entry(field)
            .or_insert_with(|| json!({"anyOf": schemas}));
    }
    let others = alias::other_words(path);
    words.extend(others.iter().map(|word| json!(word)));
    for word in others {
        properties.entry(word).or_insert_with(|| json!({}));
    }
    other_names(&mut properties, path);
    json!({"anyOf": [{"enum": words}, closed(properties)]})
}

/// Adds the names that aliases give to settings of a section, and at the top all of them.
fn other_names(properties: &mut Map<String, Value>, section: &str) {
    for (name, target) in alias::ALIASES {
        let here = match section {
            "" => true,
            _ => alias::lies_in(target, section) && !name.contains('.'),
        };
        if here && !properties.contains_key(*name) {
            let doc = format!("The same as {target}.");
            // Its values are those of what it stands for, which may depend on the chosen member.
            properties.insert((*name).into(), json!({"description": doc}));
        }
    }
}

/// No other keys, but for whole paths (`train.max_steps`) and dashes in place of underscores.
fn closed(properties: Map<String, Value>) -> Value {
    json!({
        "type": "object",
        "properties": properties,
        "patternProperties": {"[.-]": {}},
        "additionalProperties": false,
    })
}

fn join(path: &str, name: &str) -> String {
    match path {
        "" => name.into(),
        path => format!("{path}.{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{SpecSources, load, preset_text, presets, yaml};

    /// Whether a value is valid, by the keywords that the schema uses; else the place and the keyword.
    fn check(schema: &Value, value: &Value, at: &str) -> Result<(), String> {
        let wrong = |keyword: &str| Err(format!("{at}: {keyword}: {value}"));
        if let Some(options) = schema["anyOf"].as_array() {
            let faults: Vec<String> = options
                .iter()
                .filter_map(|option| check(option, value, at).err())
                .collect();
            if faults.len() == options.len() {
                return Err(faults.join(" / "));
            }
        }
        if let Some(words) = schema["enum"].as_array()
            && !words.contains(value)
        {
            return wrong("enum");
        }
        let whole = value.as_f64().is_some_and(|x| x.fract() == 0.0);
        let fits = match schema["type"].as_str() {
            Some("object") => value.is_object(),
            Some("array") => value.is_array(),
            Some("string") => value.is_string(),
            Some("boolean") => value.is_boolean(),
            Some("null") => value.is_null(),
            Some("integer") => whole,
            Some("number") => value.is_number(),
            _ => true,
        };
        if !fits {
            return wrong("type");
        }
        if let Some(x) = value.as_f64() {
            let below = |key: &str| schema[key].as_f64().is_some_and(|min| x < min);
            let at_most = |key: &str| schema[key].as_f64().is_some_and(|min| x <= min);
            let above = schema["maximum"].as_f64().is_some_and(|max| x > max);
            if below("minimum") || at_most("exclusiveMinimum") || above {
                return wrong("range");
            }
        }
        for (i, item) in value.as_array().into_iter().flatten().enumerate() {
            check(&schema["items"], item, &format!("{at}[{i}]"))?;
        }
        for (key, value) in value.as_object().into_iter().flatten() {
            let at = format!("{at}.{key}");
            match schema["properties"].get(key) {
                Some(known) => check(known, value, &at)?,
                None if schema["patternProperties"].is_object() && key.contains(['.', '-']) => {}
                None => match &schema["additionalProperties"] {
                    Value::Bool(false) => return Err(format!("{at}: unknown key")),
                    rest => check(rest, value, &at)?,
                },
            }
        }
        Ok(())
    }

    fn fault(text: &str) -> Option<String> {
        let value = yaml::parse(text).unwrap();
        check(&json_schema(), &value, "").err()
    }

    #[test]
    fn every_preset_is_valid_as_it_is_written_and_as_it_is_resolved() {
        let sources = SpecSources::default();
        for preset in presets(&sources) {
            let written = preset_text(&preset.name, &sources).unwrap();
            assert_eq!(fault(&written), None, "{}", preset.name);
            // A template may need a model of the user's.
            if let Ok(loaded) = load(&preset.name, &[], &sources) {
                assert_eq!(fault(&loaded.spec.to_yaml()), None, "{}", preset.name);
            }
        }
    }

    #[test]
    fn short_forms_and_names_of_other_tools_are_valid() {
        for text in [
            "extends: quickstart\nlr: 1e-3\noptimizer: lion",
            "optimizer: {lion: {lr: 1e-4}}\nschedule: {warmup_steps: 10}",
            "optim: adamw_torch\nlearning_rate: 2e-4\nbf16: true",
            "model: {max_seq_len: 32, position: yarn}\ntrain.max_steps: 1e4",
            "method: ipo\nadapter: none\nrewards: [number, {length: {}}]",
            "data: {path: a.txt, tokenizer: bpe}\neval: {every: 0.2}",
            "adapter:\nmodel: {position: {rope: {theta: 500000}}}",
            "method:\n  dpo:",
        ] {
            assert_eq!(fault(text), None, "{text}");
        }
    }

    #[test]
    fn slips_are_found_with_their_place() {
        for (text, place) in [
            ("trian: {max_steps: 5}", ".trian"),
            ("train: {max_stpes: 5}", ".train.max_stpes"),
            ("optimizer: {adamw: {lrr: 1}}", "adamw.lrr"),
            ("optimizer: adamm", ".optimizer"),
            ("train: {max_steps: many}", ".train.max_steps"),
            ("model: {n_layer: 0}", ".model.n_layer"),
            ("data: foo.txt", ".data"),
        ] {
            let found = fault(text).unwrap_or_default();
            assert!(found.contains(place), "{text}: {found}");
        }
    }
}
