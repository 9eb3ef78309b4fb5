//! What the app gets at its start: the user's own keys and themes, presets, and what the terminal can show.

use super::UiOptions;
use crate::base::clock::{Clock, SystemClock};
use crate::base::files::read_plain_text;
use crate::base::paths::Env;
use crate::spec::SpecSources;
use crate::ui::app::AppOptions;
use crate::ui::jobs::{kept, listed};
use crate::ui::keymap::Keymap;
use crate::ui::theme::{ColorDepth, Themes};
use std::path::{Path, PathBuf};

/// Reads the user's own files; what is wrong with them becomes a complaint, never a silent default.
pub(super) fn app_options(options: &UiOptions) -> AppOptions {
    let env = &options.env;
    let mut complaints = Vec::new();
    let mut keymap = Keymap::embedded();
    if let Some(path) = env.config_dir.as_ref().map(|dir| dir.join("keymap.yaml"))
        && let Ok(text) = read_plain_text(&path)
    {
        let errors = keymap.overlay(&path.display().to_string(), &text);
        complaints.extend(errors.iter().map(ToString::to_string));
    }
    let themes = all_themes(env, &options.sources, &mut complaints);
    // A theme of the user's own may be gone since it was chosen.
    let kept = kept::theme(env).filter(|name| themes.contains(name));
    let wanted = options.theme.clone().or(kept);
    let wanted = wanted.unwrap_or_else(|| "ansi".into());
    complaints.extend(missing(&wanted, &themes));
    let presets = listed::presets(env, &options.sources);
    AppOptions {
        runs_dir: options.runs_dir.clone(),
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

/// The embedded themes and those of the user's and the project's folders.
fn all_themes(env: &Env, sources: &SpecSources, complaints: &mut Vec<String>) -> Themes {
    let mut themes = Themes::embedded();
    let folders = [env.config_dir.clone(), Some(sources.project_dir.clone())];
    for folder in folders.into_iter().flatten() {
        let errors = themes.add_all(theme_files(&folder.join("themes")));
        complaints.extend(errors.iter().map(ToString::to_string));
    }
    themes
}

fn missing(wanted: &str, themes: &Themes) -> Option<String> {
    let names = || themes.names().map(|(name, _)| name).collect::<Vec<_>>();
    (!themes.contains(wanted)).then(|| {
        let list = names().join(", ");
        format!("unknown theme {wanted}; themes: {list}")
    })
}

/// Whether a theme of this name can be used.
///
/// # Errors
/// There is none; the sentence lists those there are.
pub fn check_theme(name: &str, env: &Env, sources: &SpecSources) -> Result<(), String> {
    let themes = all_themes(env, sources, &mut Vec::new());
    missing(name, &themes).map_or(Ok(()), Err)
}

fn theme_files(folder: &Path) -> Vec<(String, String)> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == "yaml"));
    paths.sort();
    paths
        .into_iter()
        .filter_map(|path| Some((path.display().to_string(), read_plain_text(&path).ok()?)))
        .collect()
}

/// Seconds east of Greenwich, now and here.
fn utc_offset() -> i64 {
    let now = jiff::Timestamp::from_millisecond(
        i64::try_from(SystemClock::new().now().0).unwrap_or_default(),
    );
    let zone = jiff::tz::TimeZone::system();
    now.map_or(0, |now| zone.to_offset(now).seconds().into())
}
