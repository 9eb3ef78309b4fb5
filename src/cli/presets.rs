//! `llmtui presets`: specs that can be trained as they are.

use super::{
    Context,
    exit::{Exit, Failure},
};
use crate::base::files::write_new;
use crate::base::human::counted;
use crate::base::paths::misnamed;
use crate::base::text::{one_line, shown, wrap};
use crate::pipeline;
use crate::spec::{self, Loaded, Preset, PresetGroup, SpecSources};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// List, show or copy presets, built in and your own
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    /// Default: list
    #[command(subcommand)]
    pub what: Option<What>,
    /// Print the list as JSON: [{name, group, about, files}]
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, clap::Subcommand)]
pub enum What {
    /// Names, one sentence each, and their files
    List {
        /// Print them as JSON: [{name, group, about, files}]
        #[arg(long)]
        json: bool,
    },
    /// The resolved spec with every default filled in
    Show {
        /// A preset's name or a path
        #[arg(value_name = "SPEC|PRESET")]
        name: String,
        /// Show where each value comes from
        #[arg(long)]
        origins: bool,
        /// Apply an override first; may be repeated
        #[arg(short = 's', long = "set", value_name = "KEY=VALUE")]
        set: Vec<String>,
    },
    /// The JSON Schema of spec files, for completion and checks in an editor
    #[command(
        after_help = "llmtui presets schema > llmtui.schema.json, and as the first line of a spec:
  # yaml-language-server: $schema=llmtui.schema.json"
    )]
    Schema,
    /// Copy a preset to a file for editing; never overwrites
    #[command(visible_alias = "copy")]
    Eject {
        /// A preset's name
        #[arg(value_name = "PRESET")]
        name: String,
        /// Output file. Default: NAME.yaml
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
}

/// The heading of the list of pipelines.
const PIPELINES: &str = "pipelines: several stages in one command";

pub fn run(args: Args, cx: &Context) -> anyhow::Result<Exit> {
    let sources = cx.spec_sources();
    let mut out = std::io::stdout().lock();
    match args.what.unwrap_or(What::List { json: args.json }) {
        What::List { json } => {
            let (all, pipelines) = (spec::presets(&sources), pipelines(&sources));
            let groups = all.chunk_by(|a, b| a.group == b.group);
            let mut sections: Vec<(&str, &[Preset])> = groups
                .map(|group| (group[0].group.title(), group))
                .collect();
            sections.push((PIPELINES, &pipelines));
            unread(&sources);
            match json {
                true => writeln!(out, "{}", super::out::json(&as_json(&sections))?)?,
                false => out.write_all(list(&sections, cx.columns()).as_bytes())?,
            }
        }
        What::Show { name, origins, set } => {
            if let Some((_, text)) = pipeline::text_of(&name, &sources) {
                out.write_all(text.as_bytes())?;
                return Ok(Exit::Done);
            }
            let loaded = spec::load(&name, &set, &sources)?;
            let text = if origins {
                annotated(&loaded)
            } else {
                loaded.spec.to_yaml()
            };
            out.write_all(text.as_bytes())?;
        }
        What::Schema => writeln!(out, "{}", super::out::json(&spec::json_schema())?)?,
        What::Eject { name, to } => {
            let path = to.unwrap_or_else(|| PathBuf::from(format!("{name}.yaml")));
            eject(&name, &path, &sources)?;
            if spec::preset_text(&name, &sources).is_some() {
                crate::ui::remember_spec(&cx.env, &path);
            }
            writeln!(out, "{}", shown(&path))?;
        }
    }
    Ok(Exit::Done)
}

/// Names files that are no preset and no pipeline only for their ending.
fn unread(sources: &SpecSources) {
    let folders = [
        sources.config_dir.clone(),
        Some(sources.project_dir.clone()),
    ];
    for folder in folders.into_iter().flatten() {
        for of in ["presets", "pipelines"] {
            for (what, fix) in misnamed(&folder.join(of)) {
                errln!("note: {what}; {fix}");
            }
        }
    }
}

fn pipelines(sources: &SpecSources) -> Vec<Preset> {
    let one = |(name, file): (String, String)| Preset {
        about: match pipeline::find(&name, sources) {
            Ok(Some(pipeline)) => {
                let stages = counted(pipeline.stages.len() as u64, "stage");
                format!("{} ({stages})", pipeline.about)
            }
            Ok(None) => String::new(),
            Err(error) => error.to_string(),
        },
        name,
        group: PresetGroup::Own,
        files: vec![file],
    };
    pipeline::names(sources).into_iter().map(one).collect()
}

/// ```text
/// demos: run anywhere, as they are
///   quickstart   A 0.8M-parameter GPT learns …
///                presets/quickstart.yaml
/// ```
fn list(sections: &[(&str, &[Preset])], columns: Option<usize>) -> String {
    let names = sections.iter().flat_map(|(_, presets)| presets.iter());
    let width = names.map(|p| p.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (title, presets) in sections.iter().filter(|(_, presets)| !presets.is_empty()) {
        let gap = if text.is_empty() { "" } else { "\n" };
        text.push_str(&format!("{gap}{title}\n"));
        for preset in *presets {
            let about = one_line(&preset.about);
            let files = preset.files.join(" + ");
            let name = format!("  {:width$}  ", one_line(&preset.name));
            let below = " ".repeat(width + 4);
            for line in wrap(&about, columns.unwrap_or(usize::MAX), &name, &below) {
                text.push_str(&format!("{line}\n"));
            }
            text.push_str(&format!("{below}{}\n", one_line(&files)));
        }
    }
    text
}

fn as_json(sections: &[(&str, &[Preset])]) -> Vec<serde_json::Value> {
    let one = |title: &str, preset: &Preset| {
        serde_json::json!({
            "name": preset.name,
            // The word of a preset's `group`; pipelines have none.
            "group": match title == PIPELINES {
                true => serde_json::json!("pipelines"),
                false => serde_json::json!(preset.group),
            },
            "about": preset.about,
            "files": preset.files,
        })
    };
    let all = sections.iter();
    all.flat_map(|(group, presets)| presets.iter().map(move |preset| one(group, preset)))
        .collect()
}

/// The resolved spec with the origin of each value in its own column.
fn annotated(loaded: &Loaded) -> String {
    let yaml = loaded.spec.to_yaml();
    let origins = spec::line_origins(&yaml, &loaded.origins);
    let width = yaml.lines().map(|l| l.chars().count()).max().unwrap_or(0);
    let width = width.min(50);
    yaml.lines()
        .zip(origins)
        .map(|(line, origin)| match origin {
            Some(origin) => {
                let pad = width.saturating_sub(line.chars().count());
                format!("{line}{:pad$}  # {}\n", "", one_line(&origin.to_string()))
            }
            None => format!("{line}\n"),
        })
        .collect()
}

fn eject(name: &str, path: &Path, sources: &SpecSources) -> anyhow::Result<()> {
    let of_pipeline = || pipeline::text_of(name, sources).map(|(_, text)| text);
    let Some(text) = spec::preset_text(name, sources).or_else(of_pipeline) else {
        // The error lists the presets.
        spec::load(name, &[], sources)?;
        return Err(Failure::user_error(
            format!("`{name}` is already a file, not a preset"),
            "edit that file",
        )
        .into());
    };
    write_new(path, text.as_bytes(), 0o666).map_err(|e| {
        let exit = match e.kind() {
            ErrorKind::AlreadyExists => Exit::UserError,
            _ => Exit::Machine,
        };
        let failure = Failure::not_written(path, &e);
        Failure { exit, ..failure }.into()
    })
}
