//! What Home lists to be started: the user's spec files, presets, pipelines.

use super::kept;
use crate::base::paths::Env;
use crate::base::text::{one_line, shown};
use crate::pipeline;
use crate::spec::{PresetGroup, SpecFile, SpecSources, spec_file, spec_files};
use crate::ui::rows::{PresetKind, PresetRow};
use std::path::{Path, PathBuf};

/// Most spec files that are listed.
const MAX_FILES: usize = 24;

/// Spec files, then presets by group, and pipelines behind the demos.
pub fn presets(env: &Env, sources: &SpecSources) -> Vec<PresetRow> {
    let row = |name: String, about: &str, kind| PresetRow {
        name,
        about: one_line(about),
        kind,
        is_template: kind == PresetKind::Run(PresetGroup::Template),
    };
    let mut rows = files(env, sources);
    let presets = crate::spec::presets(sources).into_iter();
    rows.extend(presets.map(|p| row(p.name, &p.about, PresetKind::Run(p.group))));
    let is_before = |row: &PresetRow| row.kind <= PresetKind::Run(PresetGroup::Demo);
    let at = rows
        .iter()
        .position(|row| !is_before(row))
        .unwrap_or(rows.len());
    let own = pipeline_files(sources).into_iter();
    let pipelines = own.chain(pipeline::names(sources).into_keys()).map(|name| {
        let about = match pipeline::find(&name, sources) {
            Ok(Some(pipeline)) => pipeline.about,
            Ok(None) => String::new(),
            Err(error) => error.to_string(),
        };
        row(name, &about, PresetKind::Pipeline)
    });
    rows.splice(at..at, pipelines);
    rows
}

/// The pipelines in files of the working directory, as `llmtui train` takes them.
fn pipeline_files(sources: &SpecSources) -> Vec<String> {
    let found = pipeline::files(&sources.project_dir).into_iter();
    let name = |path: PathBuf| Some(path.file_name()?.to_str()?.to_string());
    found.filter_map(name).take(MAX_FILES).collect()
}

/// The spec files of the working directory, then those that were saved elsewhere.
fn files(env: &Env, sources: &SpecSources) -> Vec<PresetRow> {
    let here = &sources.project_dir;
    let whole = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let home = whole(here);
    // Those in a folder of presets are listed as such.
    let of_presets = [Some(home.as_path()), sources.config_dir.as_deref()];
    let of_presets: Vec<PathBuf> = of_presets
        .into_iter()
        .flatten()
        .map(|dir| whole(&dir.join("presets")))
        .collect();
    let is_preset = |path: &Path| {
        let folder = path.parent().map(whole);
        folder.is_some_and(|folder| of_presets.contains(&folder))
    };
    let near = spec_files(here);
    let listed = |path: &Path| near.iter().any(|spec| whole(&spec.path) == path);
    let saved = kept::specs(env).into_iter();
    let saved: Vec<SpecFile> = saved
        .filter(|path| !listed(path) && !is_preset(path))
        .filter_map(|path| spec_file(&path))
        .collect();
    let all = near.iter().chain(&saved).take(MAX_FILES);
    all.filter_map(|spec| {
        let path = whole(&spec.path);
        let (name, folder) = match path.strip_prefix(&home) {
            // A bare word would name a preset.
            Ok(inside) if inside.extension().is_none() => {
                (Path::new(".").join(inside), inside.parent())
            }
            Ok(inside) => (inside.to_path_buf(), inside.parent()),
            Err(_) => (path.clone(), path.parent()),
        };
        let folder = folder.map(shown).filter(|folder| !folder.is_empty());
        let about = one_line(&spec.about);
        let about = match folder {
            Some(folder) if about.is_empty() => format!("in {folder}"),
            Some(folder) => format!("{about} ({folder})"),
            None => about,
        };
        Some(PresetRow {
            name: name.to_str()?.to_string(),
            about,
            kind: PresetKind::File,
            is_template: spec.is_unfilled,
        })
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only those in `pipelines/` were listed, while spec files beside them were.
    #[test]
    fn a_pipeline_in_the_working_directory_is_listed_and_starts_by_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let sources = SpecSources {
            project_dir: dir.path().into(),
            ..SpecSources::default()
        };
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        write(
            "mine.yaml",
            "name: mine\nabout: My own.\nstages:\n  - {name: a, train: quickstart}\n",
        );
        write("bad.yml", "stages:\n  - {name: a, tran: quickstart}\n");
        write("ci.yaml", "stages: [build, test]\n");
        write("spec.yaml", "extends: quickstart\nseed: 7\n");
        let rows = presets(&Env::default(), &sources);
        let of_kind = |kind| rows.iter().filter(move |row: &&PresetRow| row.kind == kind);
        let pipelines: Vec<&PresetRow> = of_kind(PresetKind::Pipeline).collect();
        assert_eq!(pipelines[0].name, "bad.yml");
        assert!(pipelines[0].about.contains("tran"), "{pipelines:?}");
        let mine = pipelines[1];
        assert_eq!(
            (mine.name.as_str(), mine.about.as_str()),
            ("mine.yaml", "My own.")
        );
        assert!(pipeline::find(&mine.name, &sources).unwrap().is_some());
        let others: Vec<&str> = pipelines[2..].iter().map(|row| row.name.as_str()).collect();
        assert!(
            !others.is_empty() && !others.contains(&"ci.yaml"),
            "{others:?}"
        );
        let specs: Vec<&str> = of_kind(PresetKind::File)
            .map(|row| row.name.as_str())
            .collect();
        assert_eq!(specs, ["spec.yaml"]);
    }

    #[test]
    fn saved_specs_are_found_again_wherever_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let (work, other) = (dir.path().join("work"), dir.path().join("other"));
        std::fs::create_dir_all(work.join("presets")).unwrap();
        std::fs::create_dir(&other).unwrap();
        let env = Env {
            state_dir: Some(dir.path().join("state")),
            ..Env::default()
        };
        let sources = SpecSources {
            project_dir: work.clone(),
            ..SpecSources::default()
        };
        let save = |path: PathBuf| {
            std::fs::write(&path, "extends: quickstart\nseed: 7\n").unwrap();
            kept::keep_spec(&env, &path).unwrap();
            path
        };
        save(work.join("here.yaml"));
        save(work.join("bare"));
        save(work.join("presets/own.yaml"));
        let there = save(other.join("there.yaml"));
        std::fs::remove_file(save(other.join("gone.yaml"))).unwrap();
        let rows = presets(&env, &sources);
        let files: Vec<&PresetRow> = rows
            .iter()
            .filter(|row| row.kind == PresetKind::File)
            .collect();
        let names: Vec<&str> = files.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["here.yaml", there.to_str().unwrap(), "./bare"]);
        let titles: Vec<String> = files.iter().map(|row| row.title()).collect();
        assert_eq!(titles, ["here.yaml", "there.yaml", "bare"]);
        assert_eq!(files[0].about, "extends quickstart");
        assert_eq!(
            files[1].about,
            format!("extends quickstart ({})", other.display())
        );
        // Each opens in the editor, loads, and stands before the presets.
        for row in &files {
            crate::spec::Draft::open(&row.name, &sources).unwrap();
            crate::spec::load(&row.name, &[], &sources).unwrap();
        }
        assert_eq!(rows[3].name, "own");
        assert_eq!(rows[3].kind, PresetKind::Run(PresetGroup::Own));
    }
}
