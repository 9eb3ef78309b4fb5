//! What the workbench keeps between starts: files in the user's state folder.

use crate::base::files::write_atomic;
use crate::base::paths::Env;
use std::io;
use std::path::PathBuf;

fn theme_file(env: &Env) -> Option<PathBuf> {
    env.state_dir.as_ref().map(|dir| dir.join("theme"))
}

/// The theme that was chosen last.
pub fn theme(env: &Env) -> Option<String> {
    let text = std::fs::read_to_string(theme_file(env)?).ok()?;
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
}
