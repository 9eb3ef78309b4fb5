//! What may stand at the cursor: presets, runs, settings and their values, files. Nothing here reads a log or trains: a shell waits
//! for the answer.

use crate::pipeline::{self, PipelineDir};
use crate::plan::models::MODELS;
use crate::run::id::short_run;
use crate::run::index;
use crate::spec::{self, SpecSources, alias, schema};
use clap::Arg;
use clap_complete::engine::{CompletionCandidate, PathCompleter, ValueCompleter};
use schema::Node;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Where names come from.
#[derive(Debug, Clone)]
pub struct Places {
    pub sources: SpecSources,
    pub runs_dir: PathBuf,
}

/// What a value may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Run,
    Pipeline,
    Auto,
    Preset,
    SpecFile,
    ReferenceModel,
    Setting,
    File,
}

impl Kind {
    /// By the names of a value in the usage: `RUN|auto`, `SPEC|PRESET`.
    pub fn of(arg: &Arg, verb: &str) -> Vec<Kind> {
        let names = arg.get_value_names().unwrap_or_default();
        let words = names.iter().flat_map(|name| name.as_str().split('|'));
        let mut kinds: Vec<Kind> = Vec::new();
        for word in words {
            let meant: &[Kind] = match word {
                "RUN" if verb == "rm" => &[Kind::Run, Kind::Pipeline],
                "RUN" | "RUN@STEP" => &[Kind::Run],
                "auto" => &[Kind::Auto, Kind::Pipeline],
                "MODEL" | "CHECKPOINT" => &[Kind::Run, Kind::File],
                "PRESET" => &[Kind::Preset],
                "SPEC" => &[Kind::Preset, Kind::SpecFile],
                "TARGET" => &[Kind::Preset, Kind::ReferenceModel, Kind::File],
                "KEY=VALUE" | "KEY=V,V,…" => &[Kind::Setting],
                "FILE" | "DIR" | "PATH" | "FOLDER" | "LOG" | "FILE.gguf" => &[Kind::File],
                _ => &[],
            };
            let new = meant.iter().filter(|kind| !kinds.contains(kind));
            let new: Vec<Kind> = new.copied().collect();
            kinds.extend(new);
        }
        kinds
    }

    pub fn candidates(self, typed: &OsStr, places: &Places) -> Vec<CompletionCandidate> {
        // Names are text; other bytes can only be those of a file.
        let text = typed.to_str().unwrap_or("/");
        match self {
            Kind::Run => runs(text, &places.runs_dir),
            Kind::Pipeline => {
                let all = PipelineDir::list(&places.runs_dir).into_iter();
                fitting(text, all.map(|(_, state)| (state.id, "a pipeline".into())))
            }
            Kind::Auto => fitting(
                text,
                [("auto".into(), "the newest one that can be resumed".into())],
            ),
            Kind::Preset => presets(text, &places.sources),
            Kind::SpecFile => files(typed, |path| {
                let ending = path.extension();
                ending.is_some_and(|ending| ending == "yaml" || ending == "yml")
            }),
            Kind::ReferenceModel => {
                let names = MODELS.iter().map(|model| model.name.to_string());
                fitting(text, names.map(|name| (name, String::new())))
            }
            Kind::Setting => settings(text),
            Kind::File => files(typed, |_| true),
        }
    }
}

/// Names that begin as typed, each with a word on it where the shell shows one.
fn fitting(
    typed: &str,
    names: impl IntoIterator<Item = (String, String)>,
) -> Vec<CompletionCandidate> {
    let fit = names
        .into_iter()
        .filter(|(name, _)| name.starts_with(typed));
    fit.map(|(name, help)| {
        let help = Some(help).filter(|help| !help.is_empty());
        CompletionCandidate::new(name).help(help.map(Into::into))
    })
    .collect()
}

/// Runs by the short form of their ids, which screens show and no date stands before; by the whole where that is being typed.
/// A path leads to runs elsewhere.
fn runs(typed: &str, runs_dir: &Path) -> Vec<CompletionCandidate> {
    if typed.contains('/') || typed.starts_with(['.', '~']) {
        return PathCompleter::dir().complete(OsStr::new(typed));
    }
    let ids = index::ids(runs_dir);
    let short = |id: &String| short_run(id).to_string();
    let fit = |names: Vec<String>| fitting(typed, names.into_iter().map(|n| (n, String::new())));
    let found = fit(ids.iter().map(short).collect());
    match found.is_empty() {
        true => fit(ids),
        false => found,
    }
}

fn presets(typed: &str, sources: &SpecSources) -> Vec<CompletionCandidate> {
    let presets = spec::presets(sources).into_iter();
    let presets = presets.map(|preset| (preset.name, preset.about));
    let pipelines = pipeline::names(sources).into_keys();
    let pipelines = pipelines.map(|name| (name, "a pipeline".to_string()));
    fitting(typed, presets.chain(pipelines))
}

/// Files that are wanted, and folders on the way to them once a path is being typed.
fn files(
    typed: &OsStr,
    wanted: impl Fn(&Path) -> bool + Send + Sync + 'static,
) -> Vec<CompletionCandidate> {
    let mut found = PathCompleter::any().filter(wanted).complete(typed);
    if typed.is_empty() {
        let is_folder = |value: &OsStr| value.as_encoded_bytes().ends_with(b"/");
        found.retain(|c| !is_folder(c.get_value()) && c.get_value() != ".");
    }
    found
}

/// Keys with their `=`; behind it the values, where these are few.
fn settings(typed: &str) -> Vec<CompletionCandidate> {
    match typed.split_once('=') {
        Some((key, value)) => {
            let found = values(key, value).into_iter();
            found.map(|c| c.add_prefix(format!("{key}="))).collect()
        }
        None => keys(typed),
    }
}

/// All keys are too many to read: before a letter is typed the short names and the sections alone.
fn keys(typed: &str) -> Vec<CompletionCandidate> {
    let root = schema::root();
    let short = alias::short_names().filter_map(|(name, target)| {
        let doc = node(root, target).map(|(_, node)| node.doc.clone());
        Some((format!("{name}="), doc?))
    });
    let mut all: Vec<(String, String)> = short.collect();
    if typed.is_empty() {
        let sections = root.children().iter();
        all.extend(sections.map(|(name, node)| match node.kind {
            schema::Kind::Object(_) => (format!("{name}."), node.doc.clone()),
            _ => (format!("{name}="), node.doc.clone()),
        }));
    } else {
        root.walk("", &mut |path, node| {
            all.push((format!("{path}="), node.doc.clone()));
        });
    }
    fitting(typed, all)
}

/// What may stand behind `key=`.
fn values(key: &str, typed: &str) -> Vec<CompletionCandidate> {
    let key = key.replace('-', "_");
    let root = schema::root();
    let found = node(root, &key).or_else(|| node(root, alias::resolve(&key)?));
    let Some((path, node)) = found else {
        return Vec::new();
    };
    // A model may be a run, as `train.from` says.
    if ["path", "from"].contains(&path.rsplit('.').next().unwrap_or_default()) {
        return files(OsStr::new(typed), |_| true);
    }
    let words: Vec<&str> = match node.kind {
        schema::Kind::Bool => vec!["true", "false"],
        _ => node.choices(),
    };
    fitting(
        typed,
        words.iter().map(|word| (word.to_string(), String::new())),
    )
}

/// The place that a dotted path means; `*` is the usual member of its registry.
fn node<'a>(root: &'a Node, path: &str) -> Option<(String, &'a Node)> {
    let (mut node, mut whole) = (root, Vec::new());
    for name in path.split('.') {
        let name = match name {
            "*" => node.default_member()?.to_string(),
            name => name.to_string(),
        };
        node = node.child(&name)?;
        whole.push(name);
    }
    Some((whole.join("."), node))
}
