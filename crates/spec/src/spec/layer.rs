//! One layer of a spec (a file, or all `-s`) as a flat list of settings. Names are resolved here; values are validated in
//! `merge`, where the selected registry members are known.

use super::import::equivalent;
use super::issue::{Issue, Origin};
use super::schema::{Kind, Node, root};
use super::{alias, llm_lab, yaml};
use crate::base::near::{did_you_mean, nearest, nearest_path};
use serde_json::Value;

/// One value to set, or (if `path` ends at a registry member and the value is an empty map) one member to select.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Setting {
    /// Full path; `*` stands for the member that will be selected.
    pub path: Vec<String>,
    pub value: Value,
    pub origin: Origin,
    /// The name as written, for messages.
    pub said: String,
}

/// A layer: settings in the order given.
#[derive(Debug, Clone, Default)]
pub(super) struct Layer {
    pub settings: Vec<Setting>,
    /// In a file, duplicates are an error; on the command line the last one wins.
    pub last_word_counts: bool,
    /// What to know of keys of a file that nothing here needs.
    pub notes: Vec<String>,
}

/// Reads a parsed file with `extends` already removed. `name` is used in messages.
pub(super) fn from_file(name: &str, text: &str, value: Value, issues: &mut Vec<Issue>) -> Layer {
    let lines = yaml::key_lines(text);
    let origin = |said: &str| {
        let mut path = said;
        let line = loop {
            if let Some(line) = lines.get(path) {
                break Some(*line);
            }
            match path.rsplit_once('.') {
                Some((above, _)) => path = above,
                None => break None,
            }
        };
        Origin::File {
            name: name.to_string(),
            line,
        }
    };
    let mut notes = Vec::new();
    let mut reader = Reader {
        settings: Vec::new(),
        issues,
        origin: &origin,
    };
    match value {
        // Lines of any file may look like keys.
        Value::Object(map) if map.len() > A_TYPO && !map.keys().any(|key| is_known(key)) => reader
            .issue(
                "",
                "",
                format!(
                    "this is not a spec: none of its {} keys is known",
                    map.len()
                ),
                "`llmtui presets show quickstart` shows one",
            ),
        Value::Object(mut map) => {
            notes = llm_lab::rewrite(&mut map);
            for (key, value) in map {
                reader.key(&[], &key, &key, value);
            }
        }
        _ => reader.issue(
            "",
            "",
            "the file is not a map of keys",
            "write `key: value` lines",
        ),
    }
    Layer {
        settings: reader.settings,
        last_word_counts: false,
        notes,
    }
}

/// Reads `key=value` arguments.
pub(super) fn from_words(words: &[String], issues: &mut Vec<Issue>) -> Layer {
    let mut settings = Vec::new();
    for word in words {
        let origin = |_: &str| Origin::Set(word.clone());
        let mut reader = Reader {
            settings: Vec::new(),
            issues,
            origin: &origin,
        };
        match word.split_once('=') {
            Some((key, text)) if !key.trim().is_empty() => reader.word(key.trim(), text),
            Some(_) => reader.issue(
                "",
                "",
                "there is no key before the `=`",
                "write it as key=value, e.g. lr=1e-3",
            ),
            None => reader.issue(
                "",
                "",
                "no `=` between key and value",
                "write it as key=value, e.g. lr=1e-3",
            ),
        }
        settings.append(&mut reader.settings);
    }
    Layer {
        settings,
        last_word_counts: true,
        notes: Vec::new(),
    }
}

struct Reader<'a> {
    settings: Vec<Setting>,
    issues: &'a mut Vec<Issue>,
    origin: &'a dyn Fn(&str) -> Origin,
}

impl Reader<'_> {
    fn issue(&mut self, said: &str, path: &str, what: impl Into<String>, hint: impl Into<String>) {
        self.issues.push(Issue {
            origin: (self.origin)(said),
            path: path.to_string(),
            what: what.into(),
            hint: hint.into(),
        });
    }

    fn word(&mut self, key: &str, text: &str) {
        let Some((path, node)) = self.locate(&[], key, key) else {
            return;
        };
        // A text field takes the argument verbatim; quotes make it YAML ("\n").
        let quoted = text.starts_with(['"', '\'']);
        let value = if matches!(node.kind, Kind::Text) && !quoted && text != "null" {
            Ok(Value::String(text.to_string()))
        } else {
            yaml::parse_value(text)
        };
        match value {
            Ok(value) => self.place(path, node, key, value),
            Err(error) => {
                let hint = match text.trim_start().starts_with('{') {
                    true => "put a space after each `:` in a map: {a: 1, b: {c: 2}}",
                    false => "quote the value",
                };
                self.issue(key, &path.join("."), error.to_string(), hint);
            }
        }
    }

    /// Reads `key: value` in the section at `section`.
    fn key(&mut self, section: &[String], key: &str, said: &str, value: Value) {
        if let Some((path, node)) = self.locate(section, key, said) {
            self.place(path, node, said, value);
        }
    }

    /// Adds a value of any depth at a known path.
    fn place(&mut self, path: Vec<String>, node: &Node, said: &str, value: Value) {
        let dotted = path.join(".");
        let value = in_our_members(&dotted, node, in_our_words(node, said, value));
        match (&node.kind, value) {
            (Kind::Object(_) | Kind::Registry(_), Value::Null) if node.nullable => {
                self.set(path, said, Value::Null);
            }
            (Kind::Object(_), Value::Object(map)) => {
                for (key, value) in map {
                    self.key(&path, &key, &format!("{said}.{key}"), value);
                }
            }
            (Kind::Registry(_), Value::String(word)) => self.member(path, node, said, &word),
            (Kind::Registry(_), Value::Object(map)) => {
                for (key, value) in map {
                    let said = format!("{said}.{key}");
                    self.in_registry(&path, node, &key, &said, value);
                }
            }
            (Kind::Object(_) | Kind::Registry(_), Value::Null) => {
                let hint = match (self.origin)(said) {
                    Origin::Set(_) => match switch(&dotted, node, &Value::Bool(false)) {
                        off if off.is_empty() => {
                            format!("leave it out, or name a setting: {dotted}.KEY=VALUE")
                        }
                        off => off,
                    },
                    _ => "remove the key, or indent what belongs to it".into(),
                };
                self.issue(said, &dotted, "the value is missing", hint);
            }
            (Kind::Object(_) | Kind::Registry(_), value) => self.issue(
                said,
                &dotted,
                format!("expected {}, found {}", node.expected(), describe(&value)),
                match alias::key_in_section(&dotted, &value) {
                    Some(key) => key,
                    None => switch(&dotted, node, &value),
                },
            ),
            (_, value) => self.set(path, said, value),
        }
    }

    /// `optimizer: lion`: a member of a registry by its name.
    fn member(&mut self, path: Vec<String>, node: &Node, said: &str, word: &str) {
        let path_word = crate::base::text::one_line(word);
        let word = word.replace('-', "_");
        if node.child(&word).is_some() {
            return self.choose(path, &word, said);
        }
        let dotted = path.join(".");
        let members = node.children().iter().map(|(name, _)| name.as_str());
        // A member that reads a file: the word may be the file's name.
        let file = node.child("file").and_then(|file| file.child("path"));
        let file = file.map(|_| format!("{dotted}.file.path={path_word}"));
        let known = alias::member_elsewhere(&dotted, &word).map(String::from);
        let hint = match (known, file) {
            (Some(known), _) => known,
            (None, Some(file)) if word.contains(['/', '.']) => file,
            (None, file) => match (nearest(&word, members), file) {
                (Some(near), _) => did_you_mean(near),
                (None, Some(file)) => format!("{}; of a file or folder: {file}", node.expected()),
                (None, None) => node.expected(),
            },
        };
        self.issue(
            said,
            &dotted,
            format!("`{path_word}` is unknown here"),
            hint,
        );
    }

    /// Reads `key: value` in the section of the registry at `path`.
    fn in_registry(&mut self, path: &[String], node: &Node, key: &str, said: &str, value: Value) {
        let member = key.replace('-', "_");
        if let Some(section) = node.child(&member) {
            // `adamw:` and `adamw: {}` only select the member.
            self.choose(path.to_vec(), &member, said);
            if value.is_null() {
                return;
            }
            // `every_n: 2`: a member with one setting accepts a bare value.
            if let ([(field, _)], false) = (section.children(), value.is_object()) {
                return self.key(&[path, &[member]].concat(), field, said, value);
            }
        }
        self.key(path, key, said, value);
    }

    fn choose(&mut self, mut path: Vec<String>, member: &str, said: &str) {
        path.push(member.to_string());
        self.set(path, said, Value::Object(Default::default()));
    }

    fn set(&mut self, path: Vec<String>, said: &str, value: Value) {
        self.settings.push(Setting {
            path,
            value,
            origin: (self.origin)(said),
            said: said.to_string(),
        });
    }

    /// Finds the field that `key` (dotted or not) refers to in `section`; adds an issue if there is none.
    fn locate(
        &mut self,
        section: &[String],
        key: &str,
        said: &str,
    ) -> Option<(Vec<String>, &'static Node)> {
        let key = key.replace('-', "_");
        let full = [section, &[key]].concat().join(".");
        let found = find(&full);
        if found.is_none() {
            let hint = hint_for(&full);
            self.issue(said, &full, "unknown key", hint);
        }
        found
    }
}

/// The field of a dotted path or of another name for one.
fn find(path: &str) -> Option<(Vec<String>, &'static Node)> {
    walk(path).or_else(|| walk(alias::resolve(path)?))
}

/// So many unknown keys may all be misspelled.
const A_TYPO: usize = 5;

/// Whether a spec may have this key, or another tool's has it.
fn is_known(key: &str) -> bool {
    let key = key.replace('-', "_");
    find(&key).is_some() || alias::elsewhere(&key).is_some() || equivalent::of(&key).is_some()
}

/// `preflight: off` where the section has a switch.
fn switch(path: &str, node: &Node, value: &Value) -> String {
    let said = match value {
        Value::Bool(is) => Some(*is),
        Value::String(word) => match word.to_lowercase().as_str() {
            "on" | "yes" => Some(true),
            "off" | "no" | "none" => Some(false),
            _ => None,
        },
        _ => None,
    };
    let has_switch = node.children().iter().any(|(name, _)| name == "enabled");
    match said.filter(|_| has_switch) {
        Some(is) => format!("{path}.enabled={is}"),
        None => String::new(),
    }
}

/// Values that stand for a member with settings, alone or with settings of their own.
fn in_our_members(path: &str, node: &Node, value: Value) -> Value {
    if !matches!(node.kind, Kind::Registry(_)) {
        return value;
    }
    let meant = match &value {
        Value::String(word) => alias::member(path, word, Value::Object(Default::default())),
        Value::Object(map) => match map.iter().collect::<Vec<_>>()[..] {
            [(word, settings)] => alias::member(path, word, settings.clone()),
            _ => None,
        },
        _ => None,
    };
    meant.unwrap_or(value)
}

/// Whether a value says that nothing should be set: `none`, as screens show it; of a section and of a choice also as a switch.
fn means_null(node: &Node, value: &Value) -> bool {
    let word = value.as_str().map(str::to_lowercase);
    node.nullable
        && match &node.kind {
            Kind::Integer { .. } | Kind::Number { .. } => word.as_deref() == Some("none"),
            Kind::Object(_) | Kind::Registry(_) => match word.as_deref() {
                Some(word @ ("none" | "off")) => node.child(word).is_none(),
                Some(_) => false,
                None => *value == Value::Bool(false),
            },
            _ => false,
        }
}

/// Switches of other tools translated to our values, null where nothing should be set.
fn in_our_words(node: &Node, said: &str, value: Value) -> Value {
    if means_null(node, &value) {
        return Value::Null;
    }
    let word = match (&node.kind, &value) {
        (Kind::Registry(_) | Kind::Choice(_), Value::Bool(on)) => alias::switch(said, *on),
        _ => None,
    };
    word.map_or(value, Value::from)
}

/// Follows a dotted path. In a registry, a field's name without a member's refers to the selected member (`*`).
fn walk(path: &str) -> Option<(Vec<String>, &'static Node)> {
    let mut node = root();
    let mut full = Vec::new();
    for name in path.split('.') {
        match (&node.kind, node.child(name)) {
            (_, Some(child)) => node = child,
            (Kind::Registry(members), None) if name == "*" => node = &members.first()?.1,
            (Kind::Registry(members), None) => {
                node = members.iter().find_map(|(_, m)| m.child(name))?;
                full.push("*".to_string());
            }
            _ => {
                // Behind `*` the first member need not have the field; any member may.
                node = sibling_field(&full, name)?;
            }
        }
        full.push(name.to_string());
    }
    Some((full, node))
}

fn sibling_field(walked: &[String], name: &str) -> Option<&'static Node> {
    let (last, above) = walked.split_last()?;
    let registry = root().at(&above.join("."))?;
    (last == "*")
        .then(|| registry.children().iter().find_map(|(_, m)| m.child(name)))
        .flatten()
}

/// The path of a setting by any of its names, `*` for the selected member of a registry.
pub(super) fn setting_path(key: &str) -> Option<Vec<String>> {
    find(&key.trim().replace('-', "_")).map(|(path, _)| path)
}

/// The key that a word of the command line names, with dashes for underscores as options have them: `max-steps`.
pub fn setting_named(word: &str) -> Option<String> {
    let key = word.replace('-', "_");
    let is_value = |node: &Node| !matches!(node.kind, Kind::Object(_));
    let known = alias::resolve(&key).is_some() || root().at(&key).is_some_and(is_value);
    known.then_some(key)
}

/// Whether `-s KEY=VALUE` has such a key, by any of its names.
///
/// # Errors
/// It has none; what was probably meant.
pub fn key_is_known(key: &str) -> Result<(), String> {
    let key = key.replace('-', "_");
    let found = walk(&key).or_else(|| walk(alias::resolve(&key)?));
    found.map(drop).ok_or_else(|| hint_for(&key))
}

/// Whether a value is what a setting has where nobody says it; not of settings that are decided by others.
pub fn is_default(path: &str, value: &Value) -> bool {
    let equal = |a: &Value, b: &Value| match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    };
    root()
        .at(path)
        .is_some_and(|node| equal(&node.default, value))
}

/// What an unknown key was probably meant to be.
fn hint_for(path: &str) -> String {
    if let Some(hint) = alias::elsewhere(path) {
        return hint.to_string();
    }
    if let Some((map, name)) = below_a_map(path) {
        return format!("{map} is a single value: write -s '{map}={{{name}: VALUE}}'");
    }
    let (section, key) = path.rsplit_once('.').unwrap_or(("", path));
    let here = if section.is_empty() {
        Some(root())
    } else {
        root().at(section)
    };
    let siblings = here.map(Node::children).unwrap_or_default();
    if let Some(near) = nearest_path(key, siblings.iter().map(|(n, _)| n.as_str())) {
        return did_you_mean(near);
    }
    let mut paths = Vec::new();
    root().walk("", &mut |path, _| paths.push(path.to_string()));
    let aliases = alias::ALIASES.iter().map(|(name, _)| *name);
    let whole: Vec<&str> = paths.iter().map(String::as_str).chain(aliases).collect();
    // The right name in the wrong section, a typo somewhere in the path, a typo in the last segment of another section.
    // A section that was named and is no part of the candidate's path speaks against it.
    let short = alias::ALIASES.iter().any(|(name, _)| *name == key);
    let related = |p: &&str| {
        let shared = || {
            p.split('.')
                .any(|part| section.split('.').any(|s| s == part))
        };
        section.is_empty() || short || shared()
    };
    let same_name: Vec<&str> = whole
        .iter()
        .copied()
        .filter(|p| last_part(p) == key && related(p))
        .take(3)
        .collect();
    if !same_name.is_empty() {
        return did_you_mean(same_name.join(" or "));
    }
    if let Some(hint) = equivalent::of(last_part(path)) {
        return hint;
    }
    let near_name = || {
        let near = nearest_path(
            key,
            whole.iter().filter(|p| related(p)).map(|p| last_part(p)),
        )?;
        let mut like = whole.iter().filter(|p| related(p));
        like.find(|p| last_part(p) == near).copied()
    };
    let near = nearest_path(path, whole.iter().copied()).or_else(near_name);
    let registry = here.filter(|node| matches!(node.kind, Kind::Registry(_)));
    match (near, registry) {
        (Some(near), _) => did_you_mean(near),
        (None, Some(node)) => format!("{section} is {}", node.expected()),
        (None, None) if siblings.is_empty() => "`llmtui presets show NAME` lists every key".into(),
        (None, None) => {
            let names: Vec<_> = siblings.iter().map(|(n, _)| n.as_str()).collect();
            format!("known keys: {}", names.join(", "))
        }
    }
}

/// A path that goes on behind a map of the user's own names: the map, and the rest.
fn below_a_map(path: &str) -> Option<(&str, &str)> {
    let mut parts = path.match_indices('.');
    parts.find_map(|(at, _)| {
        let is_map = root()
            .at(&path[..at])
            .is_some_and(|node| matches!(node.kind, Kind::Map(_)));
        is_map.then(|| (&path[..at], &path[at + 1..]))
    })
}

fn last_part(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

/// A value as it appears in messages: short, with its type.
pub(crate) fn describe(value: &Value) -> String {
    match value {
        Value::Null => "nothing".into(),
        Value::Bool(b) => format!("`{b}`"),
        Value::Number(n) => format!("{n}"),
        Value::String(s) if s.chars().count() > 40 => "a long text".into(),
        Value::String(s) => format!("the text `{}`", crate::base::text::one_line(s)),
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "a section".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_the_command_line_is_known_by_any_of_its_names() {
        for key in [
            "max_steps",
            "max-steps",
            "train.max_steps",
            "lr",
            "optimizer.lr",
            "adapter",
            "rewards",
        ] {
            assert_eq!(key_is_known(key), Ok(()), "{key}");
        }
        let hint = key_is_known("train.max_step").unwrap_err();
        assert!(hint.contains("did you mean max_steps?"), "{hint}");
    }

    /// Screens show `adapter none`, which `-s` refused.
    #[test]
    fn none_off_and_false_mean_that_a_section_is_not_there() {
        let read = |word: &str| {
            let mut issues = Vec::new();
            let layer = from_words(&[word.to_string()], &mut issues);
            let values = layer.settings.into_iter().map(|setting| setting.value);
            (values.collect::<Vec<_>>(), issues.len())
        };
        let mut sections = 0;
        root().walk("", &mut |path, node| {
            let is_section = matches!(node.kind, Kind::Registry(_)) && node.nullable;
            sections += usize::from(is_section);
            for word in ["none", "off", "false", "None"] {
                if is_section && !path.contains('*') {
                    let said = format!("{path}={word}");
                    assert_eq!(read(&said), (vec![Value::Null], 0), "{said}");
                }
            }
        });
        assert!(sections > 0);
        for word in ["none", "off", "false"] {
            assert_eq!(read(&format!("model.moe={word}")), (vec![Value::Null], 0));
        }
        // A member of that name, and a section that is always there.
        let chosen = read("schedule=none").0;
        assert_eq!(chosen, [Value::Object(Default::default())]);
        assert_eq!(read("optimizer=none").1, 1);
        assert_eq!(read("preflight=off").1, 1);
    }

    #[test]
    fn unknown_keys_get_a_suggestion_only_where_one_is_nearest_path() {
        for (key, wanted) in [
            ("lora.rank", "did you mean adapter.lora.rank?"),
            ("train.max_step", "did you mean max_steps?"),
            ("model.lr", "did you mean optimizer.adamw.lr"),
            ("top_k", "sample.sampling.top_k"),
            ("rank_pattern", "adapter.lora.rank_pattern"),
            (
                "adapter.lora.rank_pattern.self_attn.q_proj",
                "-s 'adapter.lora.rank_pattern={self_attn.q_proj: VALUE}'",
            ),
        ] {
            let hint = hint_for(key);
            assert!(hint.contains(wanted), "{key}: {hint}");
        }
        for stranger in ["foo", "gpus", "model.depth", "lr_rate", "train.foo"] {
            let hint = hint_for(stranger);
            assert!(hint.starts_with("known keys"), "{stranger}: {hint}");
        }
        let hint = hint_for("optimizer.momentum");
        assert!(hint.contains("optimizer.muon.momentum"), "{hint}");
    }
}
