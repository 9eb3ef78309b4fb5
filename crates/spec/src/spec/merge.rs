//! Merging layers: the higher layer wins value by value; a registry member selected by a higher layer replaces the
//! lower one entirely. Every value is validated here, with its origin.

use super::import::targets;
use super::issue::{Issue, Origin, Origins};
use super::layer::{Layer, Setting, describe};
use super::schema::{Kind, Node, root};
use super::{alias, implied};
use crate::base::every::Every;
use crate::base::near::did_you_mean;
use crate::base::text::one_line;
use crate::methods::MethodConfig;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// How a map is written.
const MAP: &str = "write {NAME: VALUE, NAME: VALUE}";

/// As a value that follows from others is written.
const FOLLOWS: &str = "auto";

/// The merged values, without defaults.
#[derive(Debug, Clone)]
pub(super) struct Merged {
    pub value: Value,
    pub origins: Origins,
    /// What files say of members that they do not choose: see [`super::aside`].
    pub set_aside: Vec<String>,
}

impl Default for Merged {
    fn default() -> Self {
        Merged {
            value: Value::Object(Map::new()),
            origins: Origins::default(),
            set_aside: Vec::new(),
        }
    }
}

impl Merged {
    /// Applies one layer on top.
    pub fn apply_layer(&mut self, layer: Layer, issues: &mut Vec<Issue>) {
        let before = self.value.clone();
        self.choose_members(&layer, issues);
        let mut said: HashMap<String, String> = HashMap::new();
        let mut chosen = BTreeSet::new();
        let settings = layer.settings.into_iter();
        for setting in settings
            .flat_map(|setting| self.as_selected(setting))
            .collect::<Vec<_>>()
        {
            let (path, node) = match self.resolve_wildcard(&setting) {
                Ok(place) => place,
                Err(issue) => {
                    issues.push(issue);
                    continue;
                }
            };
            if matches!(node.kind, Kind::Object(_)) && !setting.value.is_null() {
                chosen.insert(path.join("."));
                continue; // a choice, made above
            }
            let dotted = path.join(".");
            if let Some(before) = said.insert(dotted.clone(), setting.said.clone())
                && !layer.last_word_counts
            {
                issues.push(complaint(
                    &setting,
                    &dotted,
                    format!("set twice: as {before} and as {}", setting.said),
                    "remove one",
                ));
                continue;
            }
            if setting.value == FOLLOWS && follows(&path) {
                remove(&mut self.value, &path);
                self.origins.forget(&dotted);
                continue;
            }
            match judge(node, setting.value.clone()) {
                Ok(value) => {
                    put(&mut self.value, &path, value);
                    self.origins.set(&dotted, setting.origin);
                }
                Err((what, hint)) => {
                    let meant = targets::meant(&dotted, &setting.value);
                    let meant = meant.or_else(|| several(node, &setting));
                    let hint = meant.unwrap_or(hint);
                    issues.push(complaint(&setting, &dotted, what, hint));
                }
            }
        }
        chosen.extend(said.into_keys());
        implied::apply(self, &before, &chosen);
    }

    /// Registry members first, so that `*` means the same throughout the layer.
    fn choose_members(&mut self, layer: &Layer, issues: &mut Vec<Issue>) {
        let mut chosen: BTreeMap<String, String> = BTreeMap::new();
        for setting in &layer.settings {
            for (depth, member) in setting.path.iter().enumerate().skip(1) {
                let registry = &setting.path[..depth];
                let dotted = registry.join(".");
                let is_choice = root()
                    .at(&dotted)
                    .is_some_and(|n| matches!(n.kind, Kind::Registry(_)));
                if !is_choice || member == "*" {
                    continue;
                }
                match chosen.get(&dotted) {
                    Some(other) if other != member => {
                        let what = format!("both {other} and {member} are selected");
                        issues.push(complaint(setting, &dotted, what, "keep one of them"));
                        return;
                    }
                    Some(_) => {}
                    None => {
                        self.choose(registry, member, &setting.origin);
                        chosen.insert(dotted, member.clone());
                    }
                }
            }
        }
    }

    fn choose(&mut self, registry: &[String], member: &str, origin: &Origin) {
        let dotted = registry.join(".");
        let pointer = format!("/{}", registry.join("/"));
        let said = self.value.pointer(&pointer).is_some();
        if !said || self.member(registry).as_deref() != Some(member) {
            self.origins.forget(&dotted);
            let mut section = Map::new();
            section.insert(member.to_string(), Value::Object(Map::new()));
            put(&mut self.value, registry, Value::Object(section));
        }
        self.origins.set(&dotted, origin.clone());
    }

    /// The selected member of a registry: set, or the default one.
    fn member(&self, registry: &[String]) -> Option<String> {
        let pointer = format!("/{}", registry.join("/"));
        let said = self.value.pointer(&pointer).and_then(Value::as_object);
        said.and_then(|map| map.keys().next().cloned()).or_else(|| {
            let node = root().at(&registry.join("."))?;
            node.default_member().map(String::from)
        })
    }

    /// A setting under the names that the selected members have for what was typed; some names stand for two settings of a member.
    fn as_selected(&self, setting: Setting) -> Vec<Setting> {
        let typed = setting.said.rsplit('.').next().unwrap_or_default();
        let typed = typed.replace('-', "_");
        let under = |path: Vec<String>| Setting {
            path,
            ..setting.clone()
        };
        match setting.path.as_slice() {
            [registry @ .., any, field] if any == "*" => {
                let fields = self.fields(registry, field, &typed);
                let path = |field: &String| [registry, &["*".into(), field.clone()]].concat();
                fields.iter().map(|field| under(path(field))).collect()
            }
            [section, _] if section == "rollout" && !setting.said.contains('.') => {
                let other = alias::of_samples(&typed).filter(|_| !self.trains_on_completions());
                let other = other.map(|path| path.split('.').map(String::from).collect());
                vec![other.map_or_else(|| setting.clone(), under)]
            }
            _ => vec![setting],
        }
    }

    /// The fields of the selected member that a name means: its own of that name comes before that of an alias.
    fn fields(&self, registry: &[String], field: &str, typed: &str) -> Vec<String> {
        let member = self.member(registry).unwrap_or_default();
        let registry = registry.join(".");
        let node = root().at(&format!("{registry}.{member}"));
        let has = |name: &str| node.is_some_and(|node| node.child(name).is_some());
        if has(typed) {
            return vec![typed.into()];
        }
        if let Some(settings) = alias::in_member(&registry, &member, typed) {
            return settings.iter().map(|name| (*name).into()).collect();
        }
        // `optimizer.adamw_beta1` names a field of Muon, and is beta1 elsewhere.
        let target = alias::resolve(typed).and_then(|path| path.rsplit_once(".*."));
        let target = target.filter(|(at, name)| *at == registry && has(name) && !has(field));
        vec![target.map_or(field, |(_, name)| name).into()]
    }

    /// Whether the selected method trains on completions of the model itself.
    fn trains_on_completions(&self) -> bool {
        let method = self.member(&["method".into()]).unwrap_or_default();
        MethodConfig::usual(&method).is_some_and(|method| method.on_policy().is_some())
    }

    /// Resolves `*` to the selected member and finds the node.
    fn resolve_wildcard(&self, setting: &Setting) -> Result<(Vec<String>, &'static Node), Issue> {
        let mut path: Vec<String> = Vec::with_capacity(setting.path.len());
        for name in &setting.path {
            let name = if name == "*" {
                self.member(&path).unwrap_or_default()
            } else {
                name.clone()
            };
            path.push(name);
        }
        let dotted = path.join(".");
        root().at(&dotted).map(|node| (path, node)).ok_or_else(|| {
            let (section, key) = dotted.rsplit_once('.').unwrap_or(("", &dotted));
            let fields: Vec<_> = root()
                .at(section)
                .map(Node::children)
                .unwrap_or_default()
                .iter()
                .map(|(n, _)| n.as_str())
                .collect();
            let hint = if fields.is_empty() {
                format!("{section} has no settings")
            } else {
                format!("known keys: {}", fields.join(", "))
            };
            complaint(setting, &dotted, format!("{section} has no {key}"), hint)
        })
    }
}

fn complaint(
    setting: &Setting,
    path: &str,
    what: impl Into<String>,
    hint: impl Into<String>,
) -> Issue {
    Issue {
        origin: setting.origin.clone(),
        path: path.to_string(),
        what: what.into(),
        hint: hint.into(),
    }
}

/// `lr=1e-3,2e-3`: several values of a setting that has one, as a sweep takes them.
fn several(node: &Node, setting: &Setting) -> Option<String> {
    let takes_numbers = matches!(
        node.kind,
        Kind::Integer { .. } | Kind::Number { .. } | Kind::Interval
    );
    let values: Vec<String> = match &setting.value {
        Value::String(text) => text
            .split(',')
            .map(|part| part.trim().to_string())
            .collect(),
        Value::Array(items) => items.iter().map(ToString::to_string).collect(),
        _ => return None,
    };
    // `1,000` is one number with a separator.
    let grouped = values.iter().skip(1).all(|part| part.len() == 3)
        && matches!(setting.value, Value::String(_));
    let numbers = values.iter().all(|part| part.parse::<f64>().is_ok());
    (takes_numbers && values.len() > 1 && numbers && !grouped).then(|| {
        format!(
            "one value a run; for several: llmtui sweep SPEC --over {}={}",
            one_line(&setting.said),
            values.join(",")
        )
    })
}

fn put(root: &mut Value, path: &[String], value: Value) {
    let mut here = root;
    for name in path {
        if !here.is_object() {
            *here = Value::Object(Map::new());
        }
        here = &mut here[name.as_str()];
    }
    *here = value;
}

/// Whether a setting without a null follows from others where nothing is said: the factor of RoPE scaling from the start model's
/// context.
fn follows(path: &[String]) -> bool {
    let [above @ .., _, last] = path else {
        return false;
    };
    above == ["model", "position", "rope", "scaling"] && last == "factor"
}

fn remove(root: &mut Value, path: &[String]) {
    let Some((last, above)) = path.split_last() else {
        return;
    };
    let section = root.pointer_mut(&format!("/{}", above.join("/")));
    if let Some(map) = section.and_then(Value::as_object_mut) {
        map.shift_remove(last);
    }
}

/// The word of a list that was probably meant: by its number format's other names, by a slip, by its beginning.
fn suggest_choice<'w>(word: &str, words: &'w [String]) -> Option<&'w str> {
    const FORMATS: [(&str, &str); 5] = [
        ("float32", "f32"),
        ("fp32", "f32"),
        ("float", "f32"),
        ("bfloat16", "bf16"),
        ("float16", "f16"),
    ];
    let word = word.to_lowercase();
    let other = FORMATS.iter().find(|(name, _)| *name == word);
    let other = other.and_then(|(_, ours)| words.iter().find(|known| known == ours));
    let mut beginning = words.iter().filter(|known| known.starts_with(&word));
    let only = beginning
        .next()
        .filter(|_| beginning.next().is_none() && !word.is_empty());
    other.or(only).map(String::as_str).or_else(|| {
        // Of three letters two are no slip.
        let slips = (word.chars().count() / 3).clamp(1, 3);
        crate::base::near::within(slips, &word, words.iter().map(String::as_str))
    })
}

/// The value in canonical form, or what is wrong with it and how to fix it.
pub(super) fn judge(node: &Node, value: Value) -> Result<Value, (String, String)> {
    if value.is_null() && node.nullable {
        return Ok(value);
    }
    let wrong = |value: &Value| {
        let what = format!("expected {}, found {}", node.expected(), describe(value));
        (what, type_hint(node, value))
    };
    match (&node.kind, &value) {
        (Kind::Bool, Value::Bool(_)) | (Kind::Text, Value::String(_)) => Ok(value),
        (Kind::Choice(words), Value::String(word)) if words.contains(word) => Ok(value),
        (Kind::Integer { min, max }, Value::Number(n)) => {
            let whole = if n.is_f64() {
                // `1e4` is a float to YAML and an integer to people.
                n.as_f64()
                    .filter(|x| x.fract() == 0.0 && x.abs() < 9e15)
                    .map(|x| Value::from(x as i64))
            } else {
                Some(value.clone())
            };
            let whole = whole.ok_or_else(|| wrong(&value))?;
            in_range(node, whole.as_f64().unwrap_or(f64::NAN), min, max)?;
            Ok(match whole.as_i64() {
                Some(i) if i >= 0 => Value::from(i as u64),
                _ => whole,
            })
        }
        (Kind::Number { min, max, .. }, Value::Number(n)) => {
            let x = n.as_f64().unwrap_or(f64::NAN);
            in_range(node, x, min, max)?;
            Ok(Value::from(x))
        }
        (Kind::Interval, Value::Number(n)) => {
            let every = Every::of(n.as_f64().unwrap_or(f64::NAN)).ok_or_else(|| wrong(&value))?;
            serde_json::to_value(every).map_err(|_| wrong(&value))
        }
        (Kind::List(item), Value::Array(items)) => items
            .iter()
            .map(|i| match &item.kind {
                // Sections in lists are kept whole; their readers validate them.
                Kind::Object(_) => Ok(i.clone()),
                _ => judge(item, i.clone()),
            })
            .collect::<Result<Vec<_>, _>>()
            .map(Value::Array),
        (Kind::Map(item), Value::Object(map)) => map
            .iter()
            .map(|(name, value)| match judge(item, value.clone()) {
                Ok(value) => Ok((name.clone(), value)),
                Err((what, hint)) => Err((format!("`{}`: {what}", one_line(name)), hint)),
            })
            .collect::<Result<Map<_, _>, _>>()
            .map(Value::Object),
        _ => Err(wrong(&value)),
    }
}

fn in_range(
    node: &Node,
    x: f64,
    min: &Option<f64>,
    max: &Option<f64>,
) -> Result<(), (String, String)> {
    let side = if min.is_some_and(|min| x < min) {
        "small"
    } else if max.is_some_and(|max| x > max) {
        "large"
    } else {
        return Ok(());
    };
    Err((format!("{x} is too {side}"), node.expected()))
}

fn type_hint(node: &Node, value: &Value) -> String {
    // As screens show a value that is not set.
    if node.nullable && matches!(value.as_str(), Some("auto" | "none" | "default" | "–")) {
        return "remove it, or write null".into();
    }
    let example = node.example();
    if !example.is_empty() {
        return format!("write {example}");
    }
    let Value::String(word) = value else {
        return match (&node.kind, value) {
            (Kind::Text, Value::Number(_) | Value::Bool(_)) => "put it in quotes".into(),
            (_, Value::Null) => "remove the key, or give it a value".into(),
            (Kind::Map(_), _) => MAP.into(),
            _ => String::new(),
        };
    };
    match &node.kind {
        Kind::Bool => match word.to_lowercase().as_str() {
            "yes" | "on" | "y" => "write true".into(),
            "no" | "off" | "n" => "write false".into(),
            _ => String::new(),
        },
        Kind::Integer { .. } | Kind::Number { .. } | Kind::Interval => {
            let plain = word.replace(['_', ',', ' '], "");
            // YAML reads `010` as a text.
            let bare = match plain.trim_start_matches('0') {
                "" => "0",
                bare if bare.starts_with(|c: char| c.is_ascii_digit()) => bare,
                _ => &plain,
            };
            match plain.parse::<f64>() {
                Ok(x) if x.is_finite() && bare != plain && plain == *word => {
                    format!("write {bare}")
                }
                Ok(x) if x.is_finite() => format!("write {bare} without quotes or separators"),
                _ => String::new(),
            }
        }
        Kind::Map(_) => MAP.into(),
        Kind::Choice(words) => suggest_choice(word, words).map_or_else(String::new, did_you_mean),
        _ => String::new(),
    }
}
