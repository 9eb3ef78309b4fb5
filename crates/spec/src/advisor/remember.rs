//! The wizard's answers between sessions: one file in the user's state folder.

use super::wizard::Answers;
use crate::base::files::{read_plain_text, write_atomic};
use crate::base::paths::Env;
use std::io;
use std::path::PathBuf;

fn file(env: &Env) -> Option<PathBuf> {
    env.state_dir.as_ref().map(|dir| dir.join("wizard.json"))
}

/// The answers of the last session; none if there was none.
pub fn answers(env: &Env) -> Answers {
    file(env)
        .and_then(|path| read_plain_text(path).ok())
        .map(|text| Answers::from_json(&text))
        .unwrap_or_default()
}

/// Saves answers (from [`Answers::to_json`]) for the next session.
///
/// # Errors
/// The folder cannot be created, or the disk is full.
pub fn keep(env: &Env, answers: &str) -> io::Result<()> {
    let Some(path) = file(env) else {
        return Ok(());
    };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    write_atomic(&path, answers.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_found_again_and_nobodys_home_is_touched() {
        let dir = tempfile::tempdir().unwrap();
        let env = Env {
            state_dir: Some(dir.path().join("state/llmtui")),
            ..Env::default()
        };
        assert_eq!(answers(&env), Answers::default());
        let kept = Answers {
            data_path: "poems.txt".into(),
            ..Answers::default()
        };
        keep(&env, &kept.to_json()).unwrap();
        assert_eq!(answers(&env), kept);
        assert!(keep(&Env::default(), "{}").is_ok());
    }
}
