//! The wizard's answers between sessions: one file in the user's state folder. Paths in it are whole, because the next session
//! may begin in another folder.

use super::inspection::PLAIN;
use super::wizard::Answers;
use crate::base::files::{open_plain, read_plain_text, write_atomic};
use crate::base::paths::{Env, expand_home};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

fn file(env: &Env) -> Option<PathBuf> {
    env.state_dir.as_ref().map(|dir| dir.join("wizard.json"))
}

/// The answers of the last session, without paths at which nothing is any more; none if there was none.
pub fn answers(env: &Env) -> Answers {
    let mut answers = kept(env);
    let home = env.home.as_deref();
    for_each_path(&mut answers, &mut |path| {
        if !is_pattern(path) && !expanded(path, home).exists() {
            path.clear();
        }
    });
    answers
}

/// The beginning of the text that the last session was about, or plain text where there was none: a model that is offered can
/// write it. Rows are not text by themselves.
pub fn sample(env: &Env) -> String {
    const BYTES: u64 = 16 << 10;
    let path = expanded(&answers(env).data_path, env.home.as_deref());
    let is_text = path
        .extension()
        .is_some_and(|end| end == "txt" || end == "md");
    let mut begin = Vec::new();
    let read = open_plain(&path).and_then(|file| file.take(BYTES).read_to_end(&mut begin));
    let text = match std::str::from_utf8(&begin) {
        Ok(text) => text,
        // Cut within a character.
        Err(error) => std::str::from_utf8(&begin[..error.valid_up_to()]).unwrap_or_default(),
    };
    match is_text && read.is_ok() && !text.trim().is_empty() {
        true => text.into(),
        false => PLAIN.into(),
    }
}

/// As the file has them.
fn kept(env: &Env) -> Answers {
    file(env)
        .and_then(|path| read_plain_text(path).ok())
        .map(|text| Answers::from_json(&text))
        .unwrap_or_default()
}

/// The paths to read from, those of other goals too.
fn for_each_path(answers: &mut Answers, change: &mut dyn FnMut(&mut String)) {
    let paths = [
        &mut answers.data_path,
        &mut answers.start_path,
        &mut answers.config_path,
        &mut answers.reward_model,
    ];
    for path in paths {
        if !path.trim().is_empty() {
            change(path);
        }
    }
    for other in answers.others.values_mut() {
        for_each_path(other, change);
    }
}

fn is_pattern(path: &str) -> bool {
    path.contains(['*', '?', '['])
}

fn expanded(path: &str, home: Option<&Path>) -> PathBuf {
    let path = Path::new(path.trim());
    expand_home(path, Path::new(""), home).unwrap_or_else(|_| path.to_path_buf())
}

/// From this folder's point of view to everybody's; `~` is whole already.
fn whole(path: &str) -> String {
    let said = Path::new(path.trim());
    let whole = std::path::absolute(said).ok();
    let relative = whole.filter(|_| said.is_relative() && !said.starts_with("~"));
    relative.map_or_else(|| path.to_string(), |path| path.display().to_string())
}

/// Saves answers (from [`Answers::to_json`]) for the next session; answers that are there already are not written again.
///
/// # Errors
/// The folder cannot be created, or the disk is full.
pub fn keep(env: &Env, answers: &str) -> io::Result<()> {
    let Some(path) = file(env) else {
        return Ok(());
    };
    let mut answers = Answers::from_json(answers);
    for_each_path(&mut answers, &mut |path| *path = whole(path));
    if kept(env) == answers {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    write_atomic(&path, answers.to_json().as_bytes())
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
        let data = dir.path().join("poems.txt");
        std::fs::write(&data, "To be").unwrap();
        let of_other = Answers {
            start_path: "gone/model".into(),
            reward_model: "gone/judge".into(),
            ..Answers::default()
        };
        let kept = Answers {
            data_path: data.display().to_string(),
            others: [("Style".to_string(), of_other)].into(),
            ..Answers::default()
        };
        keep(&env, &kept.to_json()).unwrap();
        let found = answers(&env);
        assert_eq!(found.data_path, kept.data_path);
        assert_eq!(found.others["Style"].start_path, "", "nothing is there");
        assert_eq!(found.others["Style"].reward_model, "", "nor there");
        std::fs::remove_file(&data).unwrap();
        assert_eq!(
            answers(&env),
            Answers {
                data_path: String::new(),
                ..found
            }
        );
        assert!(keep(&Env::default(), "{}").is_ok());
    }

    #[test]
    fn what_a_model_must_write_is_the_users_own_text_where_one_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let env = Env {
            state_dir: Some(dir.path().join("state/llmtui")),
            ..Env::default()
        };
        assert_eq!(sample(&env), PLAIN);
        for (name, text, expected) in [
            ("poems.txt", "春眠不觉晓\n", "春眠不觉晓\n"),
            ("rows.jsonl", "{\"text\": \"a\"}\n", PLAIN),
            ("empty.txt", "\n", PLAIN),
        ] {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            let said = Answers {
                data_path: path.display().to_string(),
                ..Answers::default()
            };
            keep(&env, &said.to_json()).unwrap();
            assert_eq!(sample(&env), expected, "{name}");
        }
    }

    #[test]
    fn a_relative_path_means_the_same_in_another_folder() {
        assert!(Path::new(&whole("poems.txt")).is_absolute());
        for path in ["/data/poems.txt", "~/poems.txt"] {
            assert_eq!(whole(path), path);
        }
    }
}
