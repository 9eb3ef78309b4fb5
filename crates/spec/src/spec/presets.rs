//! Where specs come from: embedded presets, the user's, the project's, and files given on the command line.
//!
//! Presets of the same name are layered, the project's on top. A file with `extends:` starts from that parent instead of
//! the lower presets of its name; a parent of the same name means exactly those.

use super::PresetGroup;
use super::import;
use super::issue::{Issue, Origin};
use super::yaml;
use crate::base::files::read_plain_text;
use crate::base::near::{did_you_mean, nearest};
use crate::base::paths::{expand_home, is_yaml};
use crate::data::source::{bad_text, is_data_file};
use crate::embed;
use crate::models::{self, SourceError};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Search folders for presets and relative paths.
#[derive(Debug, Clone, Default)]
pub struct SpecSources {
    /// The user's configuration folder; its `presets/` is searched.
    pub config_dir: Option<PathBuf>,
    /// The base folder of relative paths; its `presets/` is searched. Usually the working directory.
    pub project_dir: PathBuf,
    /// The cache of hub models, used to resolve hub ids.
    pub hub_cache: Option<PathBuf>,
    /// What `~` means at the beginning of a path.
    pub home: Option<PathBuf>,
    /// A `health.reference_run` that need not be there any more: the run whose spec is read keeps its loss curve.
    pub kept_reference: Option<PathBuf>,
}

/// A preset as listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preset {
    pub name: String,
    /// One sentence on what it demonstrates; empty if the file has none.
    pub about: String,
    pub group: PresetGroup,
    /// Its files, lowest first.
    pub files: Vec<String>,
}

/// The text of one file and its name in messages.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub label: String,
    /// The run's name if the file sets none.
    pub stem: String,
    pub text: String,
    pub value: Value,
    /// Base folder of relative parents, and of paths that lead somewhere there.
    pub folder: PathBuf,
}

/// Endings of files with weights, which no spec has.
const WEIGHTS: [&str; 6] = ["gguf", "safetensors", "bin", "pt", "pth", "ckpt"];
/// Longest chain of `extends:`.
const MAX_CHAIN: usize = 16;

/// All presets by group, in name order (sizes by size), `quickstart` first of the demos.
pub fn presets(sources: &SpecSources) -> Vec<Preset> {
    let mut list: Vec<Preset> = names(sources)
        .into_iter()
        .map(|name| {
            let found: Vec<Source> = namesakes(&name, sources).into_iter().flatten().collect();
            let topmost = |key: &str| found.iter().rev().find_map(|s| s.value[key].as_str());
            let group = topmost("group").map(|word| serde_json::json!(word));
            // A word that is no group is reported when the preset is loaded.
            let group = group.and_then(|word| serde_json::from_value(word).ok());
            Preset {
                about: topmost("about").unwrap_or_default().to_string(),
                group: group.unwrap_or_default(),
                files: found.iter().map(|s| s.label.clone()).collect(),
                name,
            }
        })
        .collect();
    list.sort_by_cached_key(|p| (p.group, p.name != "quickstart", words(&p.name)));
    list
}

/// A segment of a name. `100m`, `7b` and the like are sizes and sort as numbers, after other segments.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Word {
    Text(String),
    Size(u64, String),
}

fn words(name: &str) -> Vec<Word> {
    let word = |word: &str| {
        let text = word.to_string();
        let unit = match word.as_bytes().last() {
            Some(b'k') => 1_000,
            Some(b'm') => 1_000_000,
            Some(b'b') => 1_000_000_000,
            _ => return Word::Text(text),
        };
        let number = word[..word.len() - 1].parse::<f64>();
        let number = number.ok().filter(|n| (0.0..1e9).contains(n));
        match number {
            Some(n) => Word::Size((n * unit as f64) as u64, text),
            None => Word::Text(text),
        }
    };
    name.split('-').map(word).collect()
}

/// The text of a preset's topmost file, for editing.
pub fn preset_text(name: &str, sources: &SpecSources) -> Option<String> {
    let top = namesakes(name, sources).pop()?;
    top.ok().map(|source| source.text)
}

/// The files of a preset's name or a path, lowest first.
pub(super) fn open(target: &str, sources: &SpecSources) -> Result<Vec<Source>, Issue> {
    let here = &sources.project_dir;
    let mut chain = Vec::new();
    let mut files = lookup(
        target,
        here,
        sources,
        &Origin::Set(String::new()),
        &mut chain,
    )?;
    files.reverse();
    Ok(files)
}

/// The files of a text that is not in a file yet, lowest first. `label` is its name in messages.
pub(super) fn open_text(
    label: &str,
    text: &str,
    sources: &SpecSources,
) -> Result<Vec<Source>, Issue> {
    let folder = sources.project_dir.clone();
    let top = source(label, label, text.to_string(), folder.clone())?;
    let origin = Origin::File {
        name: label.to_string(),
        line: yaml::key_lines(text).get("extends").copied(),
    };
    let parent = parent_of(&top)?;
    let mut files = vec![top];
    if let Some(parent) = parent {
        files.extend(lookup(&parent, &folder, sources, &origin, &mut Vec::new())?);
    }
    files.reverse();
    Ok(files)
}

/// Topmost first.
fn lookup(
    target: &str,
    folder: &Path,
    sources: &SpecSources,
    asked_by: &Origin,
    chain: &mut Vec<String>,
) -> Result<Vec<Source>, Issue> {
    let (id, found) = files_of(target, folder, sources, asked_by)?;
    if chain.contains(&id) || chain.len() >= MAX_CHAIN {
        chain.push(id);
        let what = format!("`extends` forms a cycle: {}", chain.join(" → "));
        let hint = "remove `extends` from one of them".into();
        return Err(issue(target, asked_by, what, hint));
    }
    chain.push(id);
    let mut files = Vec::new();
    for source in found.into_iter().rev() {
        let source = source?;
        let parent = parent_of(&source)?;
        let origin = Origin::File {
            name: source.label.clone(),
            line: yaml::key_lines(&source.text).get("extends").copied(),
        };
        let folder = source.folder.clone();
        files.push(source);
        match parent {
            // Its own name means the lower presets of that name, which come next anyway.
            Some(parent) if parent == target && !looks_like_path(target) => {}
            Some(parent) => {
                files.extend(lookup(&parent, &folder, sources, &origin, chain)?);
                break;
            }
            None => {}
        }
    }
    Ok(files)
}

/// The files of one name, lowest first, without their parents, and what a chain knows them by.
fn files_of(
    target: &str,
    folder: &Path,
    sources: &SpecSources,
    asked_by: &Origin,
) -> Result<(String, Vec<Result<Source, Issue>>), Issue> {
    if !looks_like_path(target) {
        let namesakes = namesakes(target, sources);
        if !namesakes.is_empty() {
            return Ok((target.to_string(), namesakes));
        }
    }
    let complain = |what, hint| issue(target, asked_by, what, hint);
    let full = expand_home(Path::new(target), folder, sources.home.as_deref());
    let path = folder.join(full.map_err(|(what, hint)| complain(what, hint))?);
    if !path.is_file() {
        let hint = suggestion(target, folder, child_of(asked_by), sources);
        return Err(complain(absent(target, &path), hint));
    }
    if let Some((what, hint)) = no_spec(target, &path) {
        return Err(complain(what, hint));
    }
    Ok((path.display().to_string(), vec![read(&path, target)]))
}

fn looks_like_path(target: &str) -> bool {
    target.contains(['/', '\\'])
        || [".yaml", ".yml", ".json"]
            .iter()
            .any(|e| target.ends_with(e))
}

/// The file that names another one by `extends`.
fn child_of(asked_by: &Origin) -> Option<&OsStr> {
    match asked_by {
        Origin::File { name, .. } => Path::new(name).file_name(),
        _ => None,
    }
}

/// What is wrong with `target`: at the `extends` that names it, if one does.
fn issue(target: &str, asked_by: &Origin, what: String, hint: String) -> Issue {
    match child_of(asked_by) {
        None => Issue {
            origin: named(target),
            path: String::new(),
            what,
            hint,
        },
        Some(_) => Issue {
            origin: asked_by.clone(),
            path: "extends".into(),
            what: match what.contains(target) {
                true => what,
                false => format!("`{target}`: {what}"),
            },
            hint,
        },
    }
}

/// Keys with which specs begin.
const SECTIONS: [&str; 4] = ["extends", "method", "train", "optimizer"];

/// The first key of a JSON map, whatever follows it.
fn first_key(text: &str) -> Option<&str> {
    let inside = text.trim_start().strip_prefix('{')?.trim_start();
    let (key, rest) = inside.strip_prefix('"')?.split_once('"')?;
    rest.trim_start().starts_with(':').then_some(key)
}

/// A file of another kind that was named where a spec belongs: what it is, and how to use it.
fn no_spec(target: &str, path: &Path) -> Option<(String, String)> {
    let named = |ending: &str| {
        path.extension()
            .is_some_and(|e| e.eq_ignore_ascii_case(ending))
    };
    match models::kind(path) {
        Ok(_) => {
            let hint =
                format!("llmtui train PRESET -s train.from={target}, or llmtui chat {target}");
            return Some(("this is a model, not a spec".into(), hint));
        }
        Err(SourceError::NoModel { what, fix, .. }) if WEIGHTS.iter().any(|e| named(e)) => {
            return Some((format!("the file {what}"), fix));
        }
        Err(_) => {}
    }
    // Of another tool: each of its keys would be unknown.
    let tool = is_yaml(target)
        .then(|| read_plain_text(path).ok())
        .flatten();
    if let Some(tool) = tool.and_then(|text| import::tool_of(&text)) {
        let what = format!("this is a config of {}, not a spec", tool.id());
        return Some((what, format!("llmtui import {target}")));
    }
    // JSON is both: a spec is a map, data are a list or several rows.
    let json_spec = || {
        let text = read_plain_text(path).unwrap_or_default();
        match serde_json::from_str::<Value>(&text) {
            Ok(value) => value.is_object(),
            // A map that begins with a section of a spec is one with a slip, which its parser names.
            Err(_) => SECTIONS.contains(&first_key(&text).unwrap_or_default()),
        }
    };
    let is_data = is_data_file(path) && !(named("json") && json_spec());
    is_data.then(|| {
        // Rows say what can be learned from them; whether there are any is seen where they are read.
        let train = match named("txt") || named("md") {
            true => format!("llmtui train quickstart -s data.path={target}"),
            false => format!(
                "llmtui train PRESET -s data.path={target} (sft for conversations, dpo for pairs, quickstart for text)"
            ),
        };
        let hint = format!("llmtui data inspect {target} shows its contents, llmtui new plans a run on it; {train}");
        ("this is data, not a spec".into(), hint)
    })
}

fn parent_of(source: &Source) -> Result<Option<String>, Issue> {
    match &source.value["extends"] {
        Value::Null => Ok(None),
        Value::String(parent) if !parent.trim().is_empty() => Ok(Some(parent.trim().to_string())),
        _ => Err(Issue {
            origin: Origin::File {
                name: source.label.clone(),
                line: yaml::key_lines(&source.text).get("extends").copied(),
            },
            path: "extends".into(),
            what: "expected one preset name or path".into(),
            hint: "a spec extends at most one other".into(),
        }),
    }
}

fn named(target: &str) -> Origin {
    Origin::File {
        name: target.to_string(),
        line: None,
    }
}

fn absent(target: &str, path: &Path) -> String {
    if target.trim().is_empty() {
        "the name of the spec is empty".to_string()
    } else if path.is_dir() {
        format!("`{target}` is a folder")
    } else if path.exists() {
        "it is not a plain file".to_string()
    } else if target.contains('/') || target.contains('.') {
        "no such file".to_string()
    } else {
        format!("unknown preset `{target}`")
    }
}

/// `child` is the file that names it: a spec does not extend itself.
fn suggestion(target: &str, folder: &Path, child: Option<&OsStr>, sources: &SpecSources) -> String {
    if target.ends_with(".toml") {
        return "specs are YAML: convert it to key: value lines".into();
    }
    let there = folder.join(target);
    if there.exists() && !there.is_dir() {
        return "copy it to a file: a spec is read several times, which a pipe or a device does not allow".into();
    }
    // A run: what it was asked for is in it.
    if child.is_none() && folder.join(target).join("spec.yaml").is_file() {
        return format!(
            "{target}/spec.yaml is the spec of this run; llmtui resume {target} resumes it"
        );
    }
    let names = names(sources);
    let stem = Path::new(target)
        .file_stem()
        .map(|s| s.to_string_lossy().into_owned())
        .unwrap_or_default();
    for with in ["yaml", "yml"] {
        if folder.join(format!("{target}.{with}")).is_file() {
            return did_you_mean(format_args!("{target}.{with}"));
        }
    }
    for (folder, _) in folders(sources) {
        let path = folder.join(format!("{target}.yml"));
        if path.is_file() {
            return format!("{} is not read: rename it to {target}.yaml", path.display());
        }
    }
    let near_file = neighbours(&folder.join(target)).and_then(|files| {
        // Not any file or folder of a like name: a spec, or a run, which has one.
        let is_spec = |file: &&str| {
            file.ends_with(".yaml")
                || file.ends_with(".yml")
                || folder.join(file).join("spec.yaml").is_file()
        };
        let others = files.iter().map(String::as_str).filter(is_spec);
        let others = others.filter(|file| child.is_none_or(|child| child != *file));
        nearest(target, others).map(String::from)
    });
    // `grpo`, of which there are presets for some data: no slip of another name.
    if near_file.is_none()
        && let Some(family) = family(&stem, &names)
    {
        return family;
    }
    let near =
        near_file.or_else(|| nearest(&stem, names.iter().map(String::as_str)).map(String::from));
    near.map_or_else(|| format!("presets: {}", names.join(", ")), did_you_mean)
}

/// The presets of a method without one of its own name.
fn family(word: &str, names: &[String]) -> Option<String> {
    let word = word.to_lowercase();
    let of_it: Vec<&str> = names
        .iter()
        .filter(|name| {
            name.strip_prefix(&word)
                .is_some_and(|rest| rest.starts_with('-'))
        })
        .map(String::as_str)
        .collect();
    let (last, others) = of_it.split_last()?;
    Some(match others {
        [] => did_you_mean(last),
        _ => did_you_mean(format_args!("{} or {last}", others.join(", "))),
    })
}

/// Files in the folder of the missing one, spelled the same way.
pub(super) fn neighbours(path: &Path) -> Option<Vec<String>> {
    let folder = path.parent()?;
    let folder = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    let entries = std::fs::read_dir(folder).ok()?;
    Some(
        entries
            .flatten()
            .take(1000)
            .map(|e| e.file_name().to_string_lossy().into_owned())
            .collect(),
    )
}

fn folders(sources: &SpecSources) -> Vec<(PathBuf, bool)> {
    let user = sources
        .config_dir
        .iter()
        .map(|d| (d.join("presets"), false));
    let project = std::iter::once((sources.project_dir.join("presets"), true));
    user.chain(project).collect()
}

fn names(sources: &SpecSources) -> Vec<String> {
    let mut names: Vec<String> = embed::list("presets")
        .filter_map(|p| stem(Path::new(p)))
        .collect();
    for (folder, _) in folders(sources) {
        let Ok(entries) = std::fs::read_dir(folder) else {
            continue;
        };
        names.extend(entries.flatten().filter_map(|e| stem(&e.path())));
    }
    names.sort();
    names.dedup();
    names
}

fn stem(path: &Path) -> Option<String> {
    (path.extension()? == "yaml")
        .then(|| path.file_stem().map(|s| s.to_string_lossy().into_owned()))?
}

/// The files of one preset, lowest first.
fn namesakes(name: &str, sources: &SpecSources) -> Vec<Result<Source, Issue>> {
    let inside = format!("presets/{name}.yaml");
    let embedded =
        embed::text(&inside).map(|text| source(&inside, name, text.to_string(), PathBuf::new()));
    let on_disk = folders(sources)
        .into_iter()
        .filter_map(|(folder, project)| {
            let path = folder.join(format!("{name}.yaml"));
            let label = if project {
                format!("./presets/{name}.yaml")
            } else {
                path.display().to_string()
            };
            path.is_file().then(|| read(&path, &label))
        });
    let mut found: Vec<Result<Source, Issue>> = embedded.into_iter().collect();
    for file in on_disk {
        // An identical copy adds nothing (an ejected file, this program's own repository).
        let copy =
            matches!((found.last(), &file), (Some(Ok(lower)), Ok(file)) if lower.text == file.text);
        if !copy {
            found.push(file);
        }
    }
    found
}

fn read(path: &Path, label: &str) -> Result<Source, Issue> {
    let stem = path
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let text = read_plain_text(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::InvalidData => not_utf8(path, label),
        _ => Issue {
            origin: named(label),
            path: String::new(),
            what: format!("cannot be read: {e}"),
            hint: String::new(),
        },
    })?;
    let folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
    let source = source(label, &stem, text, folder)?;
    // It would count as a spec of defaults alone.
    if source
        .value
        .as_object()
        .is_some_and(serde_json::Map::is_empty)
    {
        let what = match source.text.trim().is_empty() {
            true => "the file is empty",
            false => "the file sets nothing",
        };
        return Err(Issue {
            origin: named(label),
            path: String::new(),
            what: what.into(),
            hint: "write at least `extends: quickstart`; llmtui presets list names the presets"
                .into(),
        });
    }
    Ok(source)
}

/// Where the file stops being UTF-8.
fn not_utf8(path: &Path, label: &str) -> Issue {
    let bytes = crate::base::files::read_plain(path).unwrap_or_default();
    let end = std::str::from_utf8(&bytes).map_or_else(|e| e.valid_up_to(), str::len);
    Issue {
        origin: Origin::File {
            name: label.to_string(),
            line: Some(1 + bytes[..end].iter().filter(|b| **b == b'\n').count()),
        },
        path: String::new(),
        what: match bytes.get(end) {
            Some(byte) => format!("not UTF-8: byte {byte:#04x}"),
            None => "not UTF-8".into(),
        },
        hint: bad_text(&bytes).map_or_else(String::new, |bad| bad.fix.into()),
    }
}

fn source(label: &str, stem: &str, text: String, folder: PathBuf) -> Result<Source, Issue> {
    let text = text.trim_start_matches('\u{feff}').to_string();
    let value = yaml::parse(&text).map_err(|e| {
        let (line, what) = match e {
            yaml::YamlError::Syntax { line, column, what } => (
                Some(line),
                format!("not valid YAML at column {column}: {what}"),
            ),
            yaml::YamlError::Refused(what) => (None, what),
        };
        Issue {
            origin: Origin::File {
                name: label.to_string(),
                line,
            },
            path: String::new(),
            what,
            hint: String::new(),
        }
    })?;
    Ok(Source {
        label: label.to_string(),
        stem: stem.to_string(),
        text,
        value,
        folder,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A branch asked for the folder of a deleted run whose curve its parent keeps.
    #[test]
    fn a_reference_run_whose_curve_is_kept_need_not_be_there() {
        let dir = tempfile::tempdir().unwrap();
        let gone = dir.path().join("gone");
        let words = [format!("health.reference_run={}", gone.display())];
        let loaded = |kept_reference| {
            let sources = SpecSources {
                kept_reference,
                ..SpecSources::default()
            };
            super::super::load("quickstart", &words, &sources).map(|loaded| loaded.spec)
        };
        let refused = loaded(None).unwrap_err().to_string();
        assert!(refused.contains("health.reference_run"), "{refused}");
        assert!(loaded(Some(dir.path().join("other"))).is_err());
        let spec = loaded(Some(gone.clone())).unwrap();
        assert_eq!(spec.health.reference_run, Some(gone));
    }

    #[test]
    fn a_parent_that_is_missing_and_a_file_of_another_encoding_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let sources = SpecSources {
            project_dir: dir.path().to_path_buf(),
            ..SpecSources::default()
        };
        let said = |bytes: &[u8]| {
            std::fs::write(dir.path().join("kid.yaml"), bytes).unwrap();
            super::super::load("kid.yaml", &[], &sources)
                .unwrap_err()
                .to_string()
        };
        let parent = said(b"seed: 1\nextends: kit.yaml\n");
        assert!(
            parent.contains("kid.yaml:2  extends") && parent.contains("`kit.yaml`: no such"),
            "{parent}"
        );
        assert!(!parent.contains("did you mean kid"), "{parent}");
        let parent = said(b"extends: quickstat\n");
        assert!(
            parent.contains("`quickstat`") && parent.contains("did you mean quickstart?"),
            "{parent}"
        );
        let latin = said(b"seed: 1\nabout: caf\xe9\n");
        assert!(
            latin.contains("kid.yaml:2") && latin.contains("0xe9") && latin.contains("iconv"),
            "{latin}"
        );
        let word = "train.batch_ramp=[{until_step: 5, tokens: 3}]".to_string();
        let ramp = super::super::load("quickstart", &[word], &sources)
            .unwrap_err()
            .to_string();
        assert!(
            ramp.contains("-s train.batch_ramp=") && !ramp.contains("default"),
            "{ramp}"
        );
    }

    #[test]
    fn sizes_are_listed_by_size_and_quickstart_first() {
        let names: Vec<String> = presets(&SpecSources::default())
            .into_iter()
            .map(|p| p.name)
            .collect();
        let place = |name: &str| names.iter().position(|n| n == name).unwrap();
        assert_eq!(place("quickstart"), 0);
        let sizes = ["toy", "100m", "500m", "1b", "7b", "13b", "70b"];
        let places: Vec<usize> = sizes.iter().map(|s| place(&format!("size-{s}"))).collect();
        assert!(places.is_sorted(), "{names:?}");
        assert!(place("shakespeare") < place("shakespeare-bpe"));
    }

    #[test]
    fn every_shipped_preset_names_its_group_and_a_template_names_no_model_of_its_own() {
        let sources = SpecSources::default();
        for preset in presets(&sources) {
            let name = &preset.name;
            assert_ne!(preset.group, PresetGroup::Own, "{name}");
            // Its teacher is the user's.
            let teacher = format!("method.distill.teacher={}", crate::models::TO_COME);
            let set = if name == "distill" {
                vec![teacher]
            } else {
                vec![]
            };
            let spec = super::super::load(name, &set, &sources).unwrap().spec;
            if preset.group == PresetGroup::Template {
                assert!(spec.train.from.is_none(), "{name}");
                // A prompt of the made-up rows would be asked of the user's model.
                assert!(spec.sample.prompt.is_empty(), "{name}");
            }
            // Empty means held-out questions, or the beginning of a text.
            assert_ne!(spec.sample.prompt, "\n", "{name}");
        }
    }
}
