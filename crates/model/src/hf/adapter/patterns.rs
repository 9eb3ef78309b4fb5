//! Which modules PEFT's patterns select: rank_pattern, alpha_pattern, and an adapter's targets. The rules are those of
//! `check_target_module_exists` of PEFT 0.21; those of rank_pattern and alpha_pattern are in `nn::adapter`.

use crate::base::text::one_line;
use crate::nn::adapter::{ByPattern, MAX_COMPILED, differs_in_python};
use regex::{Regex, RegexBuilder};
use serde_json::Value;

/// The table under `key` of a config; `read` parses its values.
///
/// # Errors
/// It is not a table, a value is out of range, or a pattern is unsupported: the reason.
pub(super) fn by_pattern<T>(
    config: &Value,
    key: &str,
    read: impl Fn(&Value) -> Option<T>,
) -> Result<ByPattern<T>, String> {
    let none = serde_json::Map::new();
    let table = match &config[key] {
        Value::Null => &none,
        Value::Object(table) => table,
        _ => return Err(format!("{key} must be a table of patterns and numbers")),
    };
    let mut entries = Vec::with_capacity(table.len());
    for (pattern, value) in table {
        let value = read(value)
            .ok_or_else(|| format!("{key}: {} must be a positive number", one_line(pattern)))?;
        entries.push((pattern.clone(), value));
    }
    let found = ByPattern::new(entries);
    match found.unread() {
        Some(why) => Err(unread(key, why)),
        None => Ok(found),
    }
}

/// The modules that an adapter targets, according to its config.
#[derive(Debug)]
pub(super) struct Targets {
    targets: Names,
    excluded: Option<Names>,
    layers: Option<Layers>,
}

/// Modules by names.
#[derive(Debug)]
enum Names {
    All,
    /// Full names, or suffixes.
    Ends(Vec<String>),
    /// A pattern for the full name.
    Like(Regex),
}

/// layers_to_transform: block numbers, and the expressions that find a block's number in a name.
#[derive(Debug)]
struct Layers {
    numbers: Vec<u64>,
    finders: Vec<Regex>,
}

impl Targets {
    /// # Errors
    /// A key has another type, or a pattern is unsupported: the reason.
    pub fn of(config: &Value) -> Result<Targets, String> {
        let targets = match config["target_modules"].as_str() {
            Some("all-linear") => Some(Names::All),
            _ => Names::of(config, "target_modules")?,
        };
        let excluded = Names::of(config, "exclude_modules")?;
        Ok(Targets {
            targets: targets.unwrap_or(Names::All),
            excluded,
            layers: Layers::of(config)?,
        })
    }

    /// Whether PEFT puts an adapter on the module.
    pub fn finds(&self, module: &str) -> bool {
        if self.excluded.as_ref().is_some_and(|e| e.has(module)) {
            return false;
        }
        match (&self.targets, &self.layers) {
            // A full name matches whatever its layer.
            (Names::Ends(ends), Some(layers)) => {
                let is_named = ends.iter().any(|end| end == module);
                is_named || (self.targets.has(module) && layers.have(module))
            }
            (targets, _) => targets.has(module),
        }
    }

    /// A listed target that matches none of the modules.
    pub fn idle<'a>(&'a self, modules: &[&str]) -> Option<&'a str> {
        let Names::Ends(ends) = &self.targets else {
            return None;
        };
        let is_idle = |end: &&String| !modules.iter().any(|module| ends_with(module, end));
        ends.iter().find(is_idle).map(String::as_str)
    }
}

impl Names {
    fn of(config: &Value, key: &str) -> Result<Option<Names>, String> {
        Ok(match &config[key] {
            Value::Null => None,
            Value::Array(list) if list.is_empty() && key == "exclude_modules" => None,
            Value::String(word) if word.is_empty() && key == "exclude_modules" => None,
            Value::Array(list) => {
                let words = list.iter().map(|word| word.as_str().map(String::from));
                let words: Option<Vec<String>> = words.collect();
                Some(Names::Ends(words.ok_or_else(|| {
                    format!("{key} must be a list of names, or one pattern")
                })?))
            }
            Value::String(pattern) => Some(Names::Like(compile(key, pattern, |pattern| {
                format!("^(?:{pattern})$")
            })?)),
            _ => return Err(format!("{key} must be a list of names, or one pattern")),
        })
    }

    fn has(&self, module: &str) -> bool {
        match self {
            Names::All => true,
            Names::Ends(ends) => ends.iter().any(|end| ends_with(module, end)),
            Names::Like(pattern) => pattern.is_match(module),
        }
    }
}

impl Layers {
    fn of(config: &Value) -> Result<Option<Layers>, String> {
        let key = "layers_to_transform";
        let wrong = || format!("{key} must be the number of a layer, or a list of them");
        let numbers = match &config[key] {
            Value::Null => return Ok(None),
            Value::Array(list) if list.is_empty() => return Ok(None),
            Value::Array(list) => list.iter().map(Value::as_u64).collect(),
            one => one.as_u64().map(|number| vec![number]),
        };
        let key = "layers_pattern";
        let patterns: Vec<&str> = match &config[key] {
            Value::Null => Vec::new(),
            Value::String(one) if one.is_empty() => Vec::new(),
            Value::String(one) => vec![one],
            Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
            _ => return Err(format!("{key} must be a name, or a list of them")),
        };
        let finder = |pattern: &&str| {
            compile(key, pattern, |pattern| {
                format!(r"^(?:(?:^|.*?\.){pattern}\.(?P<idx>\d+)\.)")
            })
        };
        let finders = match patterns.is_empty() {
            // The first number in a name, after a named module.
            true => vec![compile(key, "", |_| {
                r"^.*?\.[^.]*\.(?P<idx>\d+)\.".to_string()
            })?],
            false => patterns.iter().map(finder).collect::<Result<_, _>>()?,
        };
        Ok(Some(Layers {
            numbers: numbers.ok_or_else(wrong)?,
            finders,
        }))
    }

    fn have(&self, module: &str) -> bool {
        let found = self
            .finders
            .iter()
            .find_map(|finder| finder.captures(module));
        let number = found.and_then(|found| found.name("idx")?.as_str().parse().ok());
        number.is_some_and(|number: u64| self.numbers.contains(&number))
    }
}

fn ends_with(module: &str, end: &str) -> bool {
    let rest = module.strip_suffix(end);
    rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

fn compile(key: &str, pattern: &str, whole: impl Fn(&str) -> String) -> Result<Regex, String> {
    if differs_in_python(pattern) {
        return Err(unread(key, pattern));
    }
    RegexBuilder::new(&whole(pattern))
        .size_limit(MAX_COMPILED)
        .build()
        .map_err(|e| unread(key, &e.to_string()))
}

fn unread(key: &str, why: &str) -> String {
    let why: String = one_line(why).chars().take(200).collect();
    format!("{key}: unsupported pattern: {why}; write names, or merge this adapter with PEFT first")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const Q0: &str = "model.layers.0.self_attn.q_proj";
    const Q11: &str = "model.layers.11.self_attn.q_proj";
    const DOWN: &str = "model.layers.1.mlp.down_proj";

    fn ranks(table: Value) -> Result<ByPattern<u64>, String> {
        by_pattern(&json!({ "p": table }), "p", Value::as_u64)
    }

    /// The expected results are those of PEFT 0.21's get_pattern_key.
    #[test]
    fn the_first_pattern_that_matches_a_suffix_counts() {
        for (table, q0, q11, down) in [
            (json!({}), None, None, None),
            (json!({"q_proj": 2}), Some(2), Some(2), None),
            (json!({"proj": 2}), None, None, None),
            (
                json!({".*_proj": 2, "q_proj": 3}),
                Some(2),
                Some(2),
                Some(2),
            ),
            (
                json!({"q_proj": 3, ".*_proj": 2}),
                Some(3),
                Some(3),
                Some(2),
            ),
            (json!({"layers.1.self_attn.q_proj": 2}), None, None, None),
            (
                json!({"layers.1..self_attn.q_proj": 2}),
                None,
                Some(2),
                None,
            ),
            (json!({"^model.layers.0.*": 2}), Some(2), None, None),
            (json!({"^layers.0.*": 2}), None, None, None),
            (json!({r"layers\.\d\..*": 2}), Some(2), None, Some(2)),
            (json!({"q_proj|down_proj": 2}), Some(2), Some(2), Some(2)),
            (json!({r"(?:q|k)_proj": 2}), Some(2), Some(2), None),
            // A bar outside of brackets splits the whole expression.
            (json!({"q_proj)|(model.*": 2}), Some(2), Some(2), Some(2)),
            (json!({"q_proj)|(layers.*": 2}), Some(2), Some(2), None),
        ] {
            let found = ranks(table.clone()).unwrap();
            let all = [Q0, Q11, DOWN].map(|module| found.get(module));
            assert_eq!(all, [q0, q11, down], "{table}");
        }
    }

    /// EVA writes one for every module: a model of 80 blocks has 560.
    #[test]
    fn every_module_can_have_its_own_pattern() {
        let names = |layer: u64| {
            let all = ["q", "k", "v", "o", "gate", "up", "down"];
            all.map(|kind| format!("model.layers.{layer}.self_attn.{kind}_proj"))
        };
        let modules: Vec<String> = (0..80).flat_map(names).collect();
        let table = modules.iter().zip(1u64..);
        let table: serde_json::Map<String, Value> = table
            .map(|(name, rank)| (name.clone(), json!(rank)))
            .collect();
        let found = ranks(table.into()).unwrap();
        for (name, rank) in modules.iter().zip(1..) {
            assert_eq!(found.get(name), Some(rank), "{name}");
        }
    }

    #[test]
    fn unsupported_patterns_and_values_are_rejected() {
        for (table, says) in [
            (json!([1]), "table"),
            (json!({"q_proj": "two"}), "q_proj must be"),
            (json!({"(q_proj": 2}), "unsupported pattern"),
            (json!({"(?<!x)q_proj": 2}), "unsupported pattern"),
            (json!({"[a-z&&b]": 2}), "unsupported pattern"),
            (json!({"q.*+": 2}), "unsupported pattern"),
            (json!({"(?:a{1000}){1000}{1000}": 2}), "unsupported pattern"),
        ] {
            let error = ranks(table.clone()).unwrap_err();
            assert!(error.contains(says), "{table}: {error}");
        }
    }

    /// The expected results are those of PEFT 0.21's check_target_module_exists.
    #[test]
    fn targets_are_names_ends_or_a_pattern_without_what_is_excluded_and_in_the_layers_named() {
        for (config, q0, q11, down) in [
            (json!({}), true, true, true),
            (json!({"target_modules": "all-linear"}), true, true, true),
            (json!({"target_modules": ["q_proj"]}), true, true, false),
            (json!({"target_modules": ["proj"]}), false, false, false),
            (
                json!({"target_modules": r".*\.(q|down)_proj"}),
                true,
                true,
                true,
            ),
            (json!({"target_modules": "q_proj"}), false, false, false),
            (
                json!({"target_modules": ["q_proj"], "exclude_modules": [Q0]}),
                false,
                true,
                false,
            ),
            (
                json!({"target_modules": ["q_proj"], "exclude_modules": r".*\.11\..*"}),
                true,
                false,
                false,
            ),
            (
                json!({"target_modules": ["q_proj", "down_proj"], "layers_to_transform": [1, 11]}),
                false,
                true,
                true,
            ),
            (
                json!({"target_modules": ["q_proj"], "layers_to_transform": 0, "layers_pattern": "layers"}),
                true,
                false,
                false,
            ),
            (
                json!({"target_modules": ["q_proj"], "layers_to_transform": 0, "layers_pattern": ["h"]}),
                false,
                false,
                false,
            ),
            (
                json!({"target_modules": [Q11], "layers_to_transform": 0}),
                false,
                true,
                false,
            ),
        ] {
            let targets = Targets::of(&config).unwrap();
            let all = [Q0, Q11, DOWN].map(|module| targets.finds(module));
            assert_eq!(all, [q0, q11, down], "{config}");
        }
        for config in [
            json!({"target_modules": 3}),
            json!({"target_modules": ["q_proj", 3]}),
            json!({"target_modules": "(q_proj"}),
            json!({"target_modules": ["q_proj"], "layers_to_transform": "one"}),
            json!({"target_modules": ["q_proj"], "layers_to_transform": 1, "layers_pattern": "("}),
        ] {
            assert!(Targets::of(&config).is_err(), "{config}");
        }
    }
}
