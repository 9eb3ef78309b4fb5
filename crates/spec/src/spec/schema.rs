//! The schema of a spec, as a tree generated from the types in `config` and their registries: the single source for
//! validation, help and the generated documentation.

use super::run_spec::shorten;
use crate::base::every;
use serde_json::Value;
use std::sync::LazyLock;

/// One node of the schema.
#[derive(Debug, Clone)]
pub struct Node {
    pub kind: Kind,
    /// `null` means "decide automatically".
    pub nullable: bool,
    /// The field's documentation, on one line.
    pub doc: String,
    /// The default value; `null` inside a registry member that is not the default.
    pub default: Value,
}

#[derive(Debug, Clone)]
pub enum Kind {
    /// A section of named fields.
    Object(Vec<(String, Node)>),
    /// One of several members, each a section: `optimizer: {adamw: {lr: 0.001}}`.
    Registry(Vec<(String, Node)>),
    /// One of a few names.
    Choice(Vec<String>),
    Integer {
        min: Option<f64>,
        max: Option<f64>,
    },
    Number {
        min: Option<f64>,
        max: Option<f64>,
        /// Whether `min` is exclusive.
        above: bool,
        /// Stored as f32.
        single: bool,
    },
    /// Steps, or a share of the run ([`every::Every`]).
    Interval,
    Bool,
    Text,
    List(Box<Node>),
    /// Names of the user's own, in their order, each with a value; one value as a whole, as a list is.
    Map(Box<Node>),
}

/// Most keys of a section that an error writes out.
const SHORT: usize = 4;

impl Node {
    /// The child for a path segment.
    pub fn child(&self, name: &str) -> Option<&Node> {
        self.children()
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, node)| node)
    }

    /// Fields of a section, members of a registry; nothing otherwise.
    pub fn children(&self) -> &[(String, Node)] {
        match &self.kind {
            Kind::Object(children) | Kind::Registry(children) => children,
            _ => &[],
        }
    }

    /// The node at a dotted path.
    pub fn at(&self, path: &str) -> Option<&Node> {
        path.split('.')
            .try_fold(self, |node, name| node.child(name))
    }

    /// The node at a path as errors name it, through the items of lists: `method.dpo.mix[0].weight`.
    pub fn within(&self, path: &str) -> Option<&Node> {
        path.split('.').try_fold(self, |node, name| {
            let mut parts = name.split('[');
            let node = node.child(parts.next()?)?;
            parts.try_fold(node, |node, _| match &node.kind {
                Kind::List(item) => Some(item.as_ref()),
                _ => None,
            })
        })
    }

    /// How a short section is written, or a list of them; nothing of other values.
    pub fn example(&self) -> String {
        match &self.kind {
            Kind::Object(fields) if (1..=SHORT).contains(&fields.len()) => {
                let fields: Vec<String> = fields.iter().map(|(n, _)| format!("{n}: …")).collect();
                format!("{{{}}}", fields.join(", "))
            }
            Kind::List(item) => match item.example() {
                none if none.is_empty() => none,
                item => format!("[{item}]"),
            },
            _ => String::new(),
        }
    }

    /// The default member of a registry.
    pub fn default_member(&self) -> Option<&str> {
        self.default
            .as_object()
            .and_then(|map| map.keys().next())
            .map(String::as_str)
    }

    /// The names that may stand here, or in a list here; none where it is no choice.
    pub fn choices(&self) -> Vec<&str> {
        match &self.kind {
            Kind::Registry(members) => members.iter().map(|(name, _)| name.as_str()).collect(),
            Kind::Choice(names) => names.iter().map(String::as_str).collect(),
            Kind::List(item) => item.choices(),
            _ => Vec::new(),
        }
    }

    /// Valid values, in words: `integer 1 to 1000`, `one of: random, shuffled`.
    pub fn expected(&self) -> String {
        let range = |min: &Option<f64>, max: &Option<f64>| match (min, max) {
            (Some(min), Some(max)) => format!(" from {min} to {max}"),
            (Some(min), None) => format!(" of at least {min}"),
            (None, Some(max)) => format!(" of at most {max}"),
            (None, None) => String::new(),
        };
        match &self.kind {
            Kind::Object(_) => "a section of keys".into(),
            Kind::Registry(_) | Kind::Choice(_) => format!("one of: {}", self.choices().join(", ")),
            Kind::Integer { min, max } => format!("a whole number{}", range(min, max)),
            Kind::Number {
                min: Some(min),
                max,
                above: true,
                ..
            } => match max {
                Some(max) => format!("a number above {min}, up to {max}"),
                None => format!("a number above {min}"),
            },
            Kind::Number { min, max, .. } => format!("a number{}", range(min, max)),
            Kind::Interval => every::EXPECTED.into(),
            Kind::Bool => "true or false".into(),
            Kind::Text => "text".into(),
            Kind::List(item) => format!("a list, each item {}", item.expected()),
            Kind::Map(item) => format!("a map, each value {}", item.expected()),
        }
    }

    /// Visits every leaf (a node without children) and every registry with its dotted path, in order.
    pub fn walk<'a>(&'a self, path: &str, visit: &mut dyn FnMut(&str, &'a Node)) {
        if !path.is_empty() && !matches!(self.kind, Kind::Object(_)) {
            visit(path, self);
        }
        for (name, child) in self.children() {
            let path = if path.is_empty() {
                name.clone()
            } else {
                format!("{path}.{name}")
            };
            child.walk(&path, visit);
        }
    }
}

/// The tree of [`super::RunConfig`].
pub fn root() -> &'static Node {
    static ROOT: LazyLock<Node> = LazyLock::new(|| {
        let schema = schemars::schema_for!(super::RunConfig).to_value();
        let defaults = serde_json::to_value(super::RunConfig::default()).unwrap_or_default();
        build(&schema, &schema, &defaults)
    });
    &ROOT
}

/// `here` is a part of the whole `schema`; `default` is its value in the default config.
fn build(schema: &Value, here: &Value, default: &Value) -> Node {
    let (target, optional) = optional(schema, resolve(schema, here));
    let doc = [here, target]
        .iter()
        .find_map(|s| s["description"].as_str())
        .unwrap_or_default()
        .replace('\n', " ");
    let default = if default.is_null() {
        here["default"].clone()
    } else {
        default.clone()
    };
    let types = type_names(target);
    let mut node = Node {
        kind: kind(schema, target, &types, &default),
        nullable: optional || types.contains(&"null"),
        doc,
        default: Value::Null,
    };
    // As people write it: 0.8, not the nearest value in single precision.
    let mut default = default;
    shorten(&node, &mut default);
    node.default = default;
    node
}

/// The content of an `Option` of something larger than a plain value, and that it is one: `anyOf` it and null.
fn optional<'a>(schema: &'a Value, target: &'a Value) -> (&'a Value, bool) {
    match target["anyOf"].as_array().map(Vec::as_slice) {
        Some([some, null]) if null["type"] == "null" => (resolve(schema, some), true),
        _ => (target, false),
    }
}

fn kind(schema: &Value, target: &Value, types: &[&str], default: &Value) -> Kind {
    let bound = |name: &str| target[name].as_f64();
    if let Some(options) = target["oneOf"].as_array() {
        let words: Vec<String> = options
            .iter()
            .filter_map(|o| o["const"].as_str().map(String::from))
            .collect();
        if words.len() == options.len() {
            return Kind::Choice(words);
        }
        let members = options.iter().flat_map(|o| fields(schema, o, default));
        return Kind::Registry(members.collect());
    }
    // A name or a map: the map has more information, and the name's reader validates itself.
    let maps = target["anyOf"].as_array().into_iter().flatten();
    let mut maps = maps.map(|option| resolve(schema, option));
    if let Some(map) = maps.find(|option| option["type"] == "object") {
        return Kind::Object(fields(schema, map, default));
    }
    if let Some(words) = target["enum"].as_array() {
        return Kind::Choice(
            words
                .iter()
                .filter_map(|w| w.as_str().map(String::from))
                .collect(),
        );
    }
    let (min, max) = (bound("minimum"), bound("maximum"));
    match types.first() {
        Some(&"integer") => Kind::Integer { min, max },
        Some(&"number") if target["format"] == every::FORMAT => Kind::Interval,
        Some(&"number") => Kind::Number {
            min: min.or(bound("exclusiveMinimum")),
            max,
            above: min.is_none() && bound("exclusiveMinimum").is_some(),
            single: target["format"] == "float",
        },
        Some(&"boolean") => Kind::Bool,
        Some(&"array") => Kind::List(Box::new(build(schema, &target["items"], &Value::Null))),
        Some(&"object") if target["additionalProperties"].is_object() => {
            let value = build(schema, &target["additionalProperties"], &Value::Null);
            Kind::Map(Box::new(value))
        }
        Some(&"object") => Kind::Object(fields(schema, target, default)),
        _ => Kind::Text,
    }
}

fn fields(schema: &Value, object: &Value, default: &Value) -> Vec<(String, Node)> {
    object["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, field)| (name.clone(), build(schema, field, &default[name])))
        .collect()
}

fn resolve<'a>(schema: &'a Value, here: &'a Value) -> &'a Value {
    match here["$ref"].as_str().and_then(|r| r.strip_prefix('#')) {
        Some(pointer) => schema.pointer(pointer).unwrap_or(here),
        None => here,
    }
}

fn type_names(target: &Value) -> Vec<&str> {
    match &target["type"] {
        Value::String(name) => vec![name.as_str()],
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_knows_kinds_ranges_and_defaults() {
        let root = root();
        let n_layer = root.at("model.n_layer").unwrap();
        assert_eq!(n_layer.expected(), "a whole number from 1 to 1000");
        assert_eq!(n_layer.default, 4);
        assert!(root.at("model.d_ff").unwrap().nullable);
        assert_eq!(
            root.at("optimizer").unwrap().default_member(),
            Some("adamw")
        );
        assert!(matches!(root.at("data.order").unwrap().kind, Kind::Choice(ref w) if w.len() == 2));
        assert!(root.at("model.position.rope.theta").is_some());
        assert!(root.at("model.position.theta").is_none());
        let ranks = root.at("adapter.lora.rank_pattern").unwrap();
        let expected = "a map, each value a whole number from 1 to 4096";
        assert_eq!(ranks.expected(), expected);
    }

    /// A setting in single precision that nobody changed is the default.
    #[test]
    fn defaults_read_as_they_are_written() {
        let node = root().at("sample.sampling.temperature").unwrap();
        assert_eq!(node.default, 0.8);
        assert!(crate::spec::is_default(
            "sample.sampling.temperature",
            &Value::from(0.8)
        ));
        root().walk("", &mut |path, node| {
            let digits = node.default.as_f64().map_or(0, |x| format!("{x:e}").len());
            assert!(digits < 12, "{path}: {}", node.default);
        });
    }

    #[test]
    fn every_place_has_a_doc_line_and_every_plain_value_a_default() {
        root().walk("", &mut |path, node| {
            assert!(!node.doc.is_empty(), "{path} has no documentation");
            let plain = !matches!(node.kind, Kind::Registry(_)) && !node.nullable;
            assert!(!plain || !node.default.is_null(), "{path} has no default");
        });
    }
}
