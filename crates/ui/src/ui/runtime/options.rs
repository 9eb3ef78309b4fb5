//! What the app gets at its start: the user's own keys and themes, presets, and what the terminal can show.

use super::UiOptions;
use crate::base::clock::{Clock, SystemClock};
use crate::base::files::{not_read, read_plain_text};
use crate::base::near::{nearest, unknown};
use crate::base::paths::{Env, misnamed};
use crate::base::text::shown;
use crate::spec::SpecSources;
use crate::ui::app::AppOptions;
use crate::ui::jobs::{kept, listed};
use crate::ui::keymap::Keymap;
use crate::ui::theme::{ColorDepth, Themes};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Reads the user's own files; what is wrong with them becomes a complaint, never a silent default.
pub(super) fn app_options(options: &UiOptions) -> AppOptions {
    let env = &options.env;
    let mut complaints = Vec::new();
    let keymap = keymap(env, &mut complaints);
    complaints.extend(unread(env, &options.sources));
    let themes = all_themes(env, &options.sources, &mut complaints);
    // A theme of the user's own may be gone since it was chosen.
    let kept = kept::theme(env).filter(|name| themes.contains(name));
    let wanted = options.theme.clone().or(kept);
    let wanted = wanted.unwrap_or_else(|| "ansi".into());
    complaints.extend(missing(&wanted, &themes));
    let presets = listed::presets(env, &options.sources);
    AppOptions {
        runs_dir: options.runs_dir.clone(),
        home: env.home.clone(),
        presets,
        keymap,
        themes,
        theme: wanted,
        depth: ColorDepth::of(env),
        ascii: options.ascii || !env.utf8,
        utc_offset: utc_offset(),
        complaints,
    }
}

/// The embedded keymap under the user's own.
fn keymap(env: &Env, complaints: &mut Vec<String>) -> Keymap {
    let mut keymap = Keymap::embedded();
    if let Some(path) = env.config_dir.as_ref().map(|dir| dir.join("keymap.yaml"))
        && let Some(text) = text_of(&path, complaints)
    {
        let errors = keymap.overlay(&shown(&path), &text);
        complaints.extend(errors.iter().map(ToString::to_string));
    }
    keymap
}

/// The text of a file that may be absent.
fn text_of(path: &Path, complaints: &mut Vec<String>) -> Option<String> {
    match read_plain_text(path) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => {
            let (what, fix) = not_read(path, &error);
            complaints.push(format!("{what}; {fix}"));
            None
        }
    }
}

/// Files that would be read if their names ended otherwise.
fn unread(env: &Env, sources: &SpecSources) -> Vec<String> {
    let own = ["", "themes", "presets", "pipelines", "tasks"];
    let config = env
        .config_dir
        .iter()
        .flat_map(|dir| own.map(|name| dir.join(name)));
    let project = ["themes", "presets", "pipelines"].map(|name| sources.project_dir.join(name));
    let found = config.chain(project).flat_map(|folder| misnamed(&folder));
    found.map(|(what, fix)| format!("{what}; {fix}")).collect()
}

/// The embedded themes and those of the user's and the project's folders.
fn all_themes(env: &Env, sources: &SpecSources, complaints: &mut Vec<String>) -> Themes {
    let mut themes = Themes::embedded();
    let folders = [env.config_dir.clone(), Some(sources.project_dir.clone())];
    for folder in folders.into_iter().flatten() {
        let files = theme_files(&folder.join("themes"), complaints);
        let errors = themes.add_all(files);
        complaints.extend(errors.iter().map(ToString::to_string));
    }
    themes
}

fn missing(wanted: &str, themes: &Themes) -> Option<String> {
    (!themes.contains(wanted)).then(|| {
        let names: Vec<&str> = themes.names().map(|(name, _)| name).collect();
        let near = nearest(wanted, names.iter().copied());
        let (what, fix) = unknown("theme", wanted, near, &names);
        format!("{what}; {fix}")
    })
}

/// Whether a theme of this name can be used.
///
/// # Errors
/// There is none; the sentence lists those there are.
pub fn check_theme(name: &str, env: &Env, sources: &SpecSources) -> Result<(), String> {
    let mut complaints = Vec::new();
    let themes = all_themes(env, sources, &mut complaints);
    let Some(missing) = missing(name, &themes) else {
        return Ok(());
    };
    // A file of its name that cannot be used, or is not read, is why.
    complaints.extend(unread(env, sources));
    let why = complaints.into_iter().filter(|words| words.contains(name));
    let words: Vec<String> = why.chain([missing]).collect();
    Err(words.join("; "))
}

fn theme_files(folder: &Path, complaints: &mut Vec<String>) -> Vec<(String, String)> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Vec::new(),
        Err(error) => {
            let what = format!("{} cannot be read: {error}", shown(folder));
            complaints.push(format!("{what}; it is the folder of your themes"));
            return Vec::new();
        }
    };
    let mut paths: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == "yaml"));
    paths.sort();
    let mut read = |path: PathBuf| Some((shown(&path), text_of(&path, complaints)?));
    paths.into_iter().filter_map(&mut read).collect()
}

/// Seconds east of Greenwich, now and here.
fn utc_offset() -> i64 {
    let now = jiff::Timestamp::from_millisecond(
        i64::try_from(SystemClock::new().now().0).unwrap_or_default(),
    );
    let zone = jiff::tz::TimeZone::system();
    now.map_or(0, |now| zone.to_offset(now).seconds().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_cannot_be_used_are_named_with_cause_and_fix() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &[u8]| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let env = Env {
            config_dir: Some(dir.path().into()),
            ..Env::default()
        };
        let sources = SpecSources {
            project_dir: dir.path().join("project"),
            ..SpecSources::default()
        };
        let complaints = || {
            let mut found = Vec::new();
            keymap(&env, &mut found);
            all_themes(&env, &sources, &mut found);
            found.extend(unread(&env, &sources));
            found
        };
        assert_eq!(complaints(), [""; 0], "none of them has to be there");
        write("keymap.yaml", b"global:\n  plan: [\xff]\n");
        write("hosts.yml", b"hosts: []\n");
        write("themes/broken.yaml", b"name: [\n");
        write("themes/other.yml", b"name: other\n");
        std::fs::create_dir(dir.path().join("themes/folder.yaml")).unwrap();
        let found = complaints();
        for words in [
            &["keymap.yaml", "UTF-8"][..],
            &["themes/broken.yaml"],
            &["themes/folder.yaml is a folder"],
            &["hosts.yml is not read", "rename it to hosts.yaml"],
            &["themes/other.yml is not read", "rename it to other.yaml"],
        ] {
            let told = |line: &String| words.iter().all(|word| line.contains(word));
            assert!(found.iter().any(told), "{words:?} in {found:?}");
        }
        let why = check_theme("other", &env, &sources).unwrap_err();
        assert!(why.contains("rename it to other.yaml"), "{why}");
        assert!(why.contains("unknown theme `other`"), "{why}");
    }
}
