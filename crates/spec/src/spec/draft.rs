//! A spec being edited: a preset or file as parent, edits on top, each validated when made. The saved file is small: the
//! parent's name and the differences, each with its reason.

mod start;

use self::start::{Folders, StartModel};
use super::issue::{Issue, Origin, Origins, SpecErrors};
use super::load::{merge_files, plain_name, typed};
use super::merge::Merged;
use super::presets::{self, SpecSources};
use super::schema::{Kind, Node, root};
use super::{RunSpec, config_paths, home, implied, layer, replaced, validate, yaml};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// The model to start from.
const FROM: &str = "train.from";

/// One edited value.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Edit {
    /// Full path, with registry members resolved.
    path: String,
    /// As typed, the right side of `key=value`.
    text: String,
    /// The reason, for a comment in the saved file; may be empty.
    why: String,
}

/// One field of a draft, as a form shows it.
#[derive(Debug, Clone)]
pub struct Place {
    pub path: String,
    pub node: &'static Node,
    /// The effective value; for a registry, its selected member's name.
    pub value: Value,
    /// The parent's value.
    pub parent: Value,
    pub origin: Origin,
    pub edited: bool,
    /// The start model decides it; its value is null where that model is not on this disk.
    pub from_start: bool,
}

/// A value that differs from the parent's.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    pub path: String,
    pub before: Value,
    pub after: Value,
    /// May be empty.
    pub why: String,
}

/// A parent and the edits on top of it.
#[derive(Debug, Clone)]
pub struct Draft {
    target: String,
    base: Merged,
    /// The parent with all defaults filled in.
    base_full: Value,
    edits: Vec<Edit>,
    /// The edits applied to the parent: what a file of it would say.
    merged: Merged,
    /// The same with what all of it implies; and with all defaults filled in.
    settled: Merged,
    full: Value,
    folders: Folders,
    start: Option<StartModel>,
}

impl Draft {
    /// Opens a preset or a file as the parent. Reads files.
    ///
    /// # Errors
    /// Every problem of the parent itself.
    pub fn open(target: &str, sources: &SpecSources) -> Result<Draft, SpecErrors> {
        let files = presets::open(target, sources).map_err(SpecErrors::one)?;
        let mut issues = Vec::new();
        let base = merge_files(files, &sources.project_dir, &mut issues);
        let (settled, full) = filled(&base, &mut issues);
        SpecErrors::check(issues)?;
        let folders = Folders {
            project_dir: sources.project_dir.clone(),
            home: sources.home.clone(),
            hub_cache: sources.hub_cache.clone(),
        };
        Ok(Draft {
            start: StartModel::of(&at(&full, FROM), None, &folders),
            target: target.to_string(),
            merged: base.clone(),
            settled,
            base,
            base_full: full.clone(),
            edits: Vec::new(),
            full,
            folders,
        })
    }

    /// A draft without a parent: only the program's defaults below it.
    pub fn blank(name: &str) -> Draft {
        let base = Merged::default();
        let (settled, full) = filled(&base, &mut Vec::new());
        let mut draft = Draft {
            target: String::new(),
            merged: base.clone(),
            settled,
            base,
            base_full: full.clone(),
            edits: Vec::new(),
            full,
            folders: Folders::default(),
            start: None,
        };
        let name = plain_name(name);
        // An invalid name keeps the default one.
        let _ = draft.set("name", name.trim_start_matches(['-', '.']), "");
        draft
    }

    /// Base folder for relative paths, which an imported draft has not.
    #[cfg(test)]
    pub fn set_project(&mut self, folder: &std::path::Path) {
        self.folders.project_dir = folder.to_path_buf();
    }

    /// The parent's name or path, as given.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Edits one value. `text` is what would follow `-s PATH=`. Earlier edits that say the same in another way go: a share of
    /// the run for the warm-up takes the place of its steps.
    ///
    /// # Errors
    /// What is wrong with this value; the draft is unchanged.
    pub fn set(&mut self, path: &str, text: &str, why: &str) -> Result<(), Issue> {
        let before = self.clone();
        let registry = root()
            .at(path)
            .is_some_and(|node| matches!(node.kind, Kind::Registry(_)));
        let under = format!("{path}.");
        // Another member has other settings: those of the previous one would contradict the choice.
        let replaces = sets_something(path, text);
        self.edits.retain(|e| {
            let of_other_member = registry && e.path.starts_with(&under);
            let is_replaced = replaces && replaced::replaces(path, &e.path);
            e.path != path && !of_other_member && !is_replaced
        });
        self.edits.push(Edit {
            path: path.to_string(),
            text: text.trim().to_string(),
            why: why.to_string(),
        });
        match self.rebuild() {
            None => Ok(()),
            Some(issue) => {
                *self = before;
                Err(issue)
            }
        }
    }

    /// Removes an edit: the parent's value applies again.
    pub fn reset(&mut self, path: &str) {
        self.edits.retain(|e| e.path != path);
        self.rebuild();
    }

    /// Reapplies all edits; returns the first issue, if any.
    fn rebuild(&mut self) -> Option<Issue> {
        let mut issues = Vec::new();
        let mut merged = self.base.clone();
        // Choices first: settings below them refer to the selected member.
        let (choices, values): (Vec<&Edit>, Vec<&Edit>) = self.edits.iter().partition(|e| {
            let node = root().at(&e.path);
            node.is_some_and(|n| matches!(n.kind, Kind::Registry(_)))
        });
        for group in [choices, values] {
            let words: Vec<String> = group
                .iter()
                .map(|e| format!("{}={}", e.path, e.text))
                .collect();
            merged.apply_layer(layer::from_words(&words, &mut issues), &mut issues);
        }
        let (settled, full) = filled(&merged, &mut issues);
        if issues.is_empty() {
            self.merged = merged;
            self.settled = settled;
            self.full = full;
            let said = at(&self.full, FROM);
            self.start = StartModel::of(&said, self.start.take(), &self.folders);
        }
        issues.into_iter().next()
    }

    /// The effective value at a full path: a leaf's value, a registry's selected member, or null if there is no such path.
    pub fn value(&self, path: &str) -> Value {
        at(&self.full, path)
    }

    /// The name of its runs.
    pub fn run_name(&self) -> String {
        self.value("name").as_str().unwrap_or("run").to_string()
    }

    /// What the files say at a full path, without defaults.
    pub fn said(&self, path: &str) -> Option<&Value> {
        let pointer = format!("/{}", path.replace('.', "/"));
        self.merged.value.pointer(&pointer)
    }

    /// The parent's value at a full path.
    pub fn parent_value(&self, path: &str) -> Value {
        at(&self.base_full, path)
    }

    /// Resolves `*` to the selected members: `optimizer.*.lr` → `optimizer.adamw.lr`. `None` if the member has no such
    /// setting.
    pub fn resolve_wildcard(&self, path: &str) -> Option<String> {
        let mut full: Vec<String> = Vec::new();
        for name in path.split('.') {
            let name = match name {
                "*" => self.value(&full.join(".")).as_str()?.to_string(),
                name => name.to_string(),
            };
            full.push(name);
        }
        let full = full.join(".");
        root().at(&full).map(|_| full)
    }

    /// Contradictions between values. Files referenced by the draft are not checked.
    pub fn issues(&self) -> Vec<Issue> {
        let mut issues = Vec::new();
        if let Some(config) = typed(&self.settled.value, &self.settled.origins, &mut issues) {
            validate::rules(&config, &self.settled.origins, &mut issues);
        }
        issues
    }

    /// The draft as a spec, if it is consistent.
    ///
    /// # Errors
    /// Every contradiction.
    pub fn spec(&self) -> Result<RunSpec, SpecErrors> {
        SpecErrors::check(self.issues())?;
        let mut issues = Vec::new();
        let config = typed(&self.settled.value, &self.settled.origins, &mut issues);
        match config {
            Some(config) => {
                let sources = SpecSources {
                    project_dir: self.folders.project_dir.clone(),
                    home: self.folders.home.clone(),
                    ..SpecSources::default()
                };
                // What cannot be expanded is reported with the files, which a draft does not check.
                let config = home::expand(config, &self.settled, &sources, &mut issues);
                Ok(RunSpec::resolve(config_paths::absolute(
                    config,
                    &self.folders.project_dir,
                )))
            }
            None => Err(issues.into_iter().next().map_or_else(
                || {
                    SpecErrors::one(Issue {
                        origin: Origin::Default,
                        path: String::new(),
                        what: "the draft could not be read".into(),
                        hint: String::new(),
                    })
                },
                SpecErrors::one,
            )),
        }
    }

    /// Every field that can be set now, in schema order; settings of unselected members are skipped.
    pub fn places(&self) -> Vec<Place> {
        let mut places = Vec::new();
        self.collect("", root(), &mut places);
        places
    }

    fn collect(&self, path: &str, node: &'static Node, places: &mut Vec<Place>) {
        let chosen = self.decided(path).unwrap_or_else(|| self.value(path));
        if !path.is_empty() && !matches!(node.kind, Kind::Object(_)) {
            places.push(self.place(path, node));
        }
        for (name, child) in node.children() {
            let skipped = matches!(node.kind, Kind::Registry(_)) && chosen != name.as_str();
            if !skipped {
                let below = match path {
                    "" => name.clone(),
                    path => format!("{path}.{name}"),
                };
                self.collect(&below, child, places);
            }
        }
    }

    /// What the start model has in place of this value.
    fn decided(&self, path: &str) -> Option<Value> {
        let start = self.start.as_ref()?;
        start.decides(path, &self.settled.origins.get(path))
    }

    fn place(&self, path: &str, node: &'static Node) -> Place {
        let edited = self.edits.iter().any(|e| e.path == path);
        if let (Some(value), Some(start)) = (self.decided(path), &self.start) {
            return Place {
                path: path.to_string(),
                node,
                parent: value.clone(),
                value,
                origin: start.origin(),
                edited,
                from_start: true,
            };
        }
        Place {
            path: path.to_string(),
            node,
            value: written_or_default(&self.full, path),
            parent: written_or_default(&self.base_full, path),
            origin: self.settled.origins.get(path),
            edited,
            from_start: false,
        }
    }

    /// What the edits change, in schema order: differences from the parent, and values that equal the parent's where another edit
    /// would have changed them (a new peak learning rate scales the floor, unless the floor is named).
    pub fn changes(&self) -> Vec<Change> {
        let differs = |place: &Place| {
            place.edited && (place.value != place.parent || self.counts(&place.path))
        };
        let mut changes = Vec::new();
        for place in self.places().into_iter().filter(differs) {
            let edit = self.edits.iter().find(|e| e.path == place.path);
            changes.push(Change {
                path: place.path,
                before: place.parent,
                after: place.value,
                why: edit.map(|e| e.why.clone()).unwrap_or_default(),
            });
        }
        changes
    }

    /// Every path that was edited, whatever its value.
    pub fn edited(&self) -> impl Iterator<Item = &str> {
        self.edits.iter().map(|edit| edit.path.as_str())
    }

    /// Whether the value would be another one without its edit.
    fn counts(&self, path: &str) -> bool {
        let mut without = self.clone();
        without.edits.retain(|edit| edit.path != path);
        without.rebuild().is_some() || without.value(path) != self.value(path)
    }

    /// The draft as a file for `llmtui train`: `extends:` and the differences, each with its reason. `heading` lines become
    /// comments at the top. A parent that is a plain file is copied in instead of extended, since the new file may be
    /// saved elsewhere.
    pub fn to_yaml(&self, heading: &[String]) -> String {
        self.to_yaml_without(heading, |_| false)
    }

    /// The same without the differences at some paths, which follow from the others when the file is read.
    pub fn to_yaml_without(&self, heading: &[String], follows: impl Fn(&Change) -> bool) -> String {
        let mut tree = Value::Object(Map::new());
        let by_path = self.target.contains(['/', '.']);
        if by_path {
            tree = self.merged.value.clone();
        } else if self.target.is_empty() {
            tree["name"] = self.value("name");
        } else {
            tree["extends"] = Value::String(self.target.clone());
            // Always: a file without one is named after itself.
            tree["name"] = self.value("name");
        }
        let mut changes = self.changes();
        changes.retain(|change| by_path || !follows(change));
        for change in &changes {
            let pointer = format!("/{}", change.path.replace('.', "/"));
            let said = self.merged.value.pointer(&pointer).cloned();
            let node = root().at(&change.path);
            let is_map = node.is_some_and(|node| matches!(node.kind, Kind::Map(_)));
            let value = match said {
                Some(map) if is_map => map,
                // A choice without settings is written as the bare name.
                Some(Value::Object(map)) => match map.iter().next() {
                    Some((word, Value::Object(inner))) if inner.is_empty() => {
                        Value::String(word.clone())
                    }
                    _ => continue,
                },
                Some(value) => value,
                None => continue,
            };
            put(&mut tree, &change.path, value);
        }
        let text = yaml::write(&tree);
        let top: String = heading
            .iter()
            .map(|line| format!("# {line}").trim_end().to_string() + "\n")
            .collect();
        top + &with_reasons(&text, &changes)
    }
}

/// Whether `-s PATH=TEXT` sets a value, instead of taking one back.
fn sets_something(path: &str, text: &str) -> bool {
    let word = format!("{path}={}", text.trim());
    let layer = layer::from_words(&[word], &mut Vec::new());
    layer
        .settings
        .iter()
        .all(|setting| !setting.value.is_null())
}

fn because(path: &Path, source: &std::io::Error) -> String {
    let (what, fix) = crate::base::files::not_written(path, source);
    format!("{what}; {fix}")
}

/// Why a spec was not saved; the sentence says what to do.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    #[error("{} already exists: choose another name", .0.display())]
    Exists(PathBuf),
    #[error("{}", because(path, source))]
    Io {
        path: PathBuf,
        source: std::io::Error,
    },
}

/// Writes a spec to a new file; never overwrites.
///
/// # Errors
/// The file exists, or the disk does not take it.
pub fn save_new(path: &Path, yaml: &str) -> Result<(), SaveError> {
    crate::base::files::write_new(path, yaml.as_bytes(), 0o666).map_err(|source| {
        let path = path.to_path_buf();
        match source.kind() {
            std::io::ErrorKind::AlreadyExists => SaveError::Exists(path),
            _ => SaveError::Io { path, source },
        }
    })
}

/// The file that is meant by a typed name: `mine` is `mine.yaml`, since a word without an ending names a preset.
pub fn file_name(typed: &str) -> String {
    let typed = typed.trim();
    let path = Path::new(typed);
    let open = path.extension().is_none() && path.file_name().is_some() && !typed.ends_with('/');
    if open {
        format!("{typed}.yaml")
    } else {
        typed.into()
    }
}

/// The first of `NAME-2.yaml`, `NAME-3.yaml` … that does not exist.
pub fn free_path(taken: &Path) -> PathBuf {
    let stem = taken.file_stem().unwrap_or_default().to_string_lossy();
    let end = taken
        .extension()
        .map_or_else(String::new, |end| format!(".{}", end.to_string_lossy()));
    let names = (2..).map(|n: u64| taken.with_file_name(format!("{stem}-{n}{end}")));
    let mut free = names.filter(|path| path.symlink_metadata().is_err());
    free.next().unwrap_or_else(|| taken.to_path_buf())
}

/// A value as shown in a form: plain text, `auto` for null.
pub fn shown(value: &Value) -> String {
    match value {
        Value::Null => "auto".into(),
        Value::String(text) if text.is_empty() || text.contains('\n') => {
            serde_json::to_string(text).unwrap_or_default()
        }
        Value::String(text) => text.clone(),
        Value::Number(n) => match n.as_f64() {
            Some(x) if n.is_f64() => number(x),
            _ => n.to_string(),
        },
        other => other.to_string(),
    }
}

/// A float as people type it: `0.1`, `1e-4`, `0.0003`. Rounding errors in the last digits are not shown.
fn number(x: f64) -> String {
    let x = format!("{x:.13e}").parse().unwrap_or(x);
    let plain = format!("{x}");
    match x.abs() {
        0.0 => "0".into(),
        a if !(1e-3..1e7).contains(&a) => format!("{x:e}"),
        _ => plain,
    }
}

/// The layers with what they imply together, and that with all defaults filled in.
fn filled(merged: &Merged, issues: &mut Vec<Issue>) -> (Merged, Value) {
    let mut settled = merged.clone();
    implied::settle(&mut settled);
    let full = typed(&settled.value, &Origins::default(), issues)
        .and_then(|config| serde_json::to_value(config).ok())
        .map(|mut value| {
            super::run_spec::shorten(root(), &mut value);
            value
        })
        .unwrap_or_default();
    (settled, full)
}

/// The value at a dotted path; for a registry, its member's name.
fn at(full: &Value, path: &str) -> Value {
    let pointer = format!("/{}", path.replace('.', "/"));
    let here = match path {
        "" => Some(full),
        _ => full.pointer(&pointer),
    };
    let registry = root()
        .at(path)
        .is_some_and(|node| matches!(node.kind, Kind::Registry(_)));
    match here {
        Some(Value::Object(map)) if registry => map
            .keys()
            .next()
            .map_or(Value::Null, |word| Value::String(word.clone())),
        Some(value) => value.clone(),
        None => Value::Null,
    }
}

/// Sets a value at a dotted path. Settings of a member replace a bare choice, never the other way round.
/// The same, and of a setting that is not written at its default that default, unless something else decides then or the
/// section that it is in is off.
fn written_or_default(full: &Value, path: &str) -> Value {
    let value = at(full, path);
    let section = path.rsplit_once('.').map_or("", |(section, _)| section);
    let pointer = format!("/{}", section.replace('.', "/"));
    let is_on = full.pointer(&pointer).is_some_and(Value::is_object);
    if !value.is_null() || !is_on {
        return value;
    }
    let is_decided = |node: &&Node| !node.nullable && !node.doc.contains("Default:");
    let node = root().at(path).filter(is_decided);
    node.map_or(Value::Null, |node| node.default.clone())
}

fn put(tree: &mut Value, path: &str, value: Value) {
    let mut here = tree;
    for name in path.split('.') {
        if !here.is_object() {
            *here = Value::Object(Map::new());
        }
        here = &mut here[name];
    }
    *here = value;
}

/// Reasons as comments above their key's line.
fn with_reasons(text: &str, changes: &[Change]) -> String {
    let lines = yaml::key_lines(text);
    let mut out = String::new();
    for (number, line) in text.lines().enumerate() {
        let here = |c: &&Change| lines.get(&c.path) == Some(&(number + 1)) && !c.why.is_empty();
        if let Some(change) = changes.iter().find(here) {
            let indent = line.len() - line.trim_start().len();
            let why = crate::base::text::one_line(&change.why);
            out.push_str(&format!("{:indent$}# {why}\n", ""));
        }
        out.push_str(line);
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests;
