//! What the workbench keeps between starts: files in the user's state folder.

use crate::base::files::{read_plain_text, write_atomic};
use crate::base::paths::Env;
use std::io;
use std::path::{Path, PathBuf};

fn theme_file(env: &Env) -> Option<PathBuf> {
    env.state_dir.as_ref().map(|dir| dir.join("theme"))
}

/// The theme that was chosen last.
pub fn theme(env: &Env) -> Option<String> {
    let text = read_plain_text(theme_file(env)?).ok()?;
    Some(text.trim().to_string()).filter(|name| !name.is_empty())
}

/// Keeps the name of a theme; without a state folder nothing is kept.
///
/// # Errors
/// A folder that cannot be created or a full disk.
pub fn keep_theme(env: &Env, name: &str) -> io::Result<()> {
    let Some(path) = theme_file(env) else {
        return Ok(());
    };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    write_atomic(&path, format!("{name}\n").as_bytes())
}

/// Most models, and most specs, that are remembered.
const MOST: usize = 12;
const MODELS: &str = "models";
const SPECS: &str = "specs";

/// The models that were talked to last, newest first: folders and files that are still there, and ids of the hub.
pub fn models(env: &Env) -> Vec<PathBuf> {
    recent(env, MODELS)
}

/// Puts a model in front of those that are remembered. A path is kept as it reads from everywhere, an id of the hub as it is.
///
/// # Errors
/// A folder that cannot be created or a full disk.
pub fn keep_model(env: &Env, model: &Path) -> io::Result<()> {
    keep(env, MODELS, model)
}

/// The spec files that were saved last and are still there, newest first.
pub fn specs(env: &Env) -> Vec<PathBuf> {
    recent(env, SPECS)
}

/// Puts a spec file in front of those that are remembered.
///
/// # Errors
/// A folder that cannot be created or a full disk.
pub fn keep_spec(env: &Env, spec: &Path) -> io::Result<()> {
    keep(env, SPECS, spec)
}

/// Remembers a spec file that was just written, wherever it is. A disk that does not take it costs only its place in the list
/// of the next time.
pub fn remember_spec(env: &Env, spec: &Path) {
    let _ = keep_spec(env, spec);
}

fn list_file(env: &Env, list: &str) -> Option<PathBuf> {
    env.state_dir.as_ref().map(|dir| dir.join(list))
}

fn recent(env: &Env, list: &str) -> Vec<PathBuf> {
    let text = list_file(env, list).and_then(|path| read_plain_text(path).ok());
    let text = text.unwrap_or_default();
    let lines = text.lines().filter(|line| !line.is_empty());
    let paths = lines.map(PathBuf::from).take(MOST);
    paths
        .filter(|path| path.is_relative() || path.exists())
        .collect()
}

fn keep(env: &Env, list: &str, newest: &Path) -> io::Result<()> {
    let Some(file) = list_file(env, list) else {
        return Ok(());
    };
    let newest = match newest.exists() {
        true => std::path::absolute(newest)?,
        false => newest.to_path_buf(),
    };
    let others = recent(env, list)
        .into_iter()
        .filter(|other| *other != newest);
    let all = std::iter::once(newest.clone()).chain(others).take(MOST);
    // A name with a line break would be two entries.
    let lines = all.filter_map(|path| path.to_str().map(String::from));
    let lines: Vec<String> = lines.filter(|line| !line.contains('\n')).collect();
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    write_atomic(&file, (lines.join("\n") + "\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_theme_is_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let env = Env {
            state_dir: Some(dir.path().join("state/llmtui")),
            ..Env::default()
        };
        assert_eq!(theme(&env), None);
        keep_theme(&env, "okabe-ito").unwrap();
        assert_eq!(theme(&env).as_deref(), Some("okabe-ito"));
        assert!(keep_theme(&Env::default(), "dark").is_ok());
    }

    #[test]
    fn models_are_remembered_newest_first_and_lost_files_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let env = Env {
            state_dir: Some(dir.path().join("state")),
            ..Env::default()
        };
        let file = dir.path().join("a.gguf");
        std::fs::write(&file, "x").unwrap();
        let hub = PathBuf::from("org/name");
        keep_model(&env, &file).unwrap();
        keep_model(&env, &hub).unwrap();
        assert_eq!(models(&env), [hub.clone(), file.clone()]);
        keep_model(&env, &file).unwrap();
        assert_eq!(models(&env), [file.clone(), hub.clone()]);
        std::fs::remove_file(&file).unwrap();
        assert_eq!(models(&env), [hub]);
        for i in 0..20 {
            keep_model(&env, Path::new(&format!("org/{i}"))).unwrap();
        }
        assert_eq!(models(&env).len(), MOST);
        assert_eq!(models(&env)[0], PathBuf::from("org/19"));
    }
}
