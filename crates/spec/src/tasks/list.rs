//! The list of tasks: shipped ones, the user's in `tasks/` of the configuration folder, files by their path.

use super::config::TaskConfig;
use super::error::TaskError;
use super::record::Header;
use super::task::Task;
use crate::base::files::read_small_text;
use crate::base::json::read;
use crate::base::near::nearest;
use crate::base::paths::{Env, expand_home, is_yaml};
use crate::base::text::one_line;
use crate::embed;
use crate::spec::yaml;
use std::path::{Path, PathBuf};

/// Largest task file.
const MAX_BYTES: u64 = 1 << 20;

/// A task by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub name: String,
    pub summary: String,
    /// The file; none for a shipped task.
    pub file: Option<PathBuf>,
}

/// All tasks by name; one of the user's takes the place of a shipped one of the same name.
///
/// # Errors
/// A file that is no task.
pub fn list(env: &Env) -> Result<Vec<Listed>, TaskError> {
    let mut found: Vec<Listed> = Vec::new();
    for path in embed::list("assets/tasks") {
        let task = parse(path, embed::text(path).unwrap_or_default())?;
        found.push(Listed {
            name: task.config().name.clone(),
            summary: task.config().summary.clone(),
            file: None,
        });
    }
    let folder = env.config_dir.as_ref().map(|dir| dir.join("tasks"));
    let entries = folder.and_then(|folder| std::fs::read_dir(folder).ok());
    for entry in entries.into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|e| e == "yaml") {
            let task = of_file(&path, env)?;
            found.retain(|listed| listed.name != task.config().name);
            found.push(Listed {
                name: task.config().name.clone(),
                summary: task.config().summary.clone(),
                file: Some(path),
            });
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// A task by its name, or by the path of its file.
///
/// # Errors
/// There is none, or the file is no task.
pub fn load(word: &str, env: &Env) -> Result<Task, TaskError> {
    if is_yaml(word) {
        let path = expand_home(Path::new(word), Path::new(""), env.home.as_deref());
        return of_file(&path.map_err(|fault| TaskError::home(word, fault))?, env);
    }
    let listed = list(env)?;
    let found = listed.iter().find(|listed| listed.name == word);
    match found.map(|listed| &listed.file) {
        Some(Some(file)) => of_file(file, env),
        Some(None) => {
            let path = format!("assets/tasks/{word}.yaml");
            parse(&path, embed::text(&path).unwrap_or_default())
        }
        None => Err(TaskError::Unknown {
            said: one_line(word),
            near: nearest(word, listed.iter().map(|l| l.name.as_str())).map(one_line),
            known: listed
                .iter()
                .map(|listed| one_line(&listed.name))
                .collect::<Vec<_>>()
                .join(", "),
        }),
    }
}

/// The task that answers were given to: of its file, else of its name, if that has moved into the folder of tasks since. `None`
/// where it is not there any more or has another version.
pub(super) fn of_header(header: &Header, env: &Env) -> Option<Task> {
    let filed = header.file.as_deref().map(|file| of_file(file, env));
    let named = || {
        let task = load(&header.task, env).ok()?;
        // A shipped task of that name is another one.
        (header.file.is_none() || task.file().is_some()).then_some(task)
    };
    let task = filed.and_then(Result::ok).or_else(named)?;
    let is_it = task.config().name == header.task && task.config().version == header.version;
    is_it.then_some(task)
}

pub(super) fn of_file(path: &Path, env: &Env) -> Result<Task, TaskError> {
    let text = read_small_text(path, MAX_BYTES).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => TaskError::Absent(path.into()),
        _ => TaskError::io(path)(e),
    })?;
    let mut task = parse(&path.display().to_string(), &text)?;
    // Absolute: what says that a file is missing names the place where it was looked for, which is not the working directory.
    let whole = std::path::absolute(path).map_err(TaskError::io(path))?;
    let base = whole.parent().unwrap_or(Path::new(""));
    task.relative_to(base, env.home.as_deref())
        .map_err(|fault| TaskError::home(&path.display().to_string(), fault))?;
    task.file = Some(whole);
    Ok(task)
}

fn parse(place: &str, text: &str) -> Result<Task, TaskError> {
    let fault = |what: String| TaskError::File {
        place: one_line(place),
        what: one_line(&what),
    };
    let value = yaml::parse(text).map_err(|e| fault(e.to_string()))?;
    let mut config: TaskConfig = read(&value).map_err(|e| fault(e.to_string()))?;
    // Where rewards judge the answers, a comparison with the target is one more metric that nobody asked for.
    if !config.answer.rewards.is_empty() && value.pointer("/answer/extract").is_none() {
        config.answer.extract.clear();
    }
    Task::new(config, text).map_err(fault)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::source::ReadContext;

    #[test]
    fn shipped_files_are_tasks_under_their_own_names() {
        let listed = list(&Env::default()).unwrap();
        assert!(listed.len() >= 15, "{}", listed.len());
        for listed in listed {
            assert!(embed::text(&format!("assets/tasks/{}.yaml", listed.name)).is_some());
            assert_eq!(
                load(&listed.name, &Env::default()).unwrap().config().name,
                listed.name
            );
        }
        let error = load("arc", &Env::default()).unwrap_err();
        assert!(error.hint().contains("arc_easy"), "{}", error.hint());
    }

    #[test]
    fn tasks_of_ones_own_are_found_by_name_and_by_path() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("tasks")).unwrap();
        let file = dir.path().join("tasks/mine.yaml");
        let text = "name: mine\nversion: 1\nsummary: s\nkind: text\nsource: rows.jsonl\nprompt: '{{ text }}'\n";
        std::fs::write(&file, text).unwrap();
        let env = Env {
            config_dir: Some(dir.path().into()),
            ..Env::default()
        };
        let listed = list(&env).unwrap();
        assert!(listed.iter().any(|l| l.name == "mine" && l.file.is_some()));
        assert!(load("mine", &env).is_ok());
        std::fs::write(&file, text.replace("kind: text", "kind: poem")).unwrap();
        let error = load(&file.display().to_string(), &env).unwrap_err();
        assert!(error.to_string().contains("mine.yaml: kind"), "{error}");
        std::fs::write(&file, text.replace("kind: text", "kind: choice")).unwrap();
        let error = load(&file.display().to_string(), &env).unwrap_err();
        assert!(error.to_string().contains("`gold`"), "{error}");
    }

    #[test]
    fn a_tilde_in_a_task_file_and_in_front_of_its_path_is_the_users_home() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("tasks/mine.yaml");
        std::fs::create_dir(home.path().join("tasks")).unwrap();
        std::fs::write(
            home.path().join("rows.jsonl"),
            "{\"q\": \"x\", \"a\": \"y\"}\n{\"q\": \"z\", \"a\": \"y\"}\n",
        )
        .unwrap();
        let text = "name: mine\nversion: 1\nsummary: s\nkind: answer\nprompt: '{{ q }}'\ntarget: '{{ a }}'\n\
            source: ~/rows.jsonl\nshots: {source: {path: ~/rows.jsonl}, count: 1}\n\
            answer: {rewards: [number, {model: {path: ~/judge}}]}\n";
        std::fs::write(&file, text).unwrap();
        let env = Env {
            home: Some(home.path().into()),
            ..Env::default()
        };
        let task = load("~/tasks/mine.yaml", &env).unwrap();
        assert_eq!(task.file(), Some(file.as_path()));
        let judge = task.config().answer.rewards[1].reward.model();
        assert_eq!(judge, Some(home.path().join("judge").as_path()));
        // Without the reward model, which nobody has trained.
        std::fs::write(&file, text.replace(", {model: {path: ~/judge}}", "")).unwrap();
        let task = load("~/tasks/mine.yaml", &env).unwrap();
        let prepared = task.prepare(None, &ReadContext::default()).unwrap();
        assert_eq!(prepared.items.len(), 2);

        for (word, said) in [("~/tasks/mine.yaml", "~/"), ("~root/mine.yaml", "~root")] {
            let error = load(word, &Env::default()).unwrap_err();
            assert!(error.to_string().contains(said), "{error}");
            assert!(
                error.hint().contains("write the whole path"),
                "{}",
                error.hint()
            );
        }
        let error = load(&file.display().to_string(), &Env::default()).unwrap_err();
        let said = error.to_string();
        assert!(
            said.contains("mine.yaml") && said.contains("HOME is not set"),
            "{said}"
        );
    }

    #[test]
    fn an_unknown_headline_is_refused_with_the_metrics() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("mine.yaml");
        let write = |headline: &str| {
            let text = format!(
                "name: mine\nversion: 1\nsummary: s\nkind: choice\nsource: rows.jsonl\nprompt: '{{{{ q }}}}'\n\
                 choices: '[a, b]'\ngold: '0'\nheadline: {headline}\n"
            );
            std::fs::write(&file, text).unwrap();
            load(&file.display().to_string(), &Env::default())
        };
        let error = write("accu").unwrap_err().to_string();
        for part in ["mine.yaml", "`headline`", "accu", "acc, acc_norm"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        assert!(write("acc_norm").is_ok());
    }

    #[test]
    fn an_unknown_task_is_told_with_the_nearest() {
        let error = load("made_sor", &Env::default()).unwrap_err();
        assert_eq!(error.hint(), "did you mean made_sort?");
        let error = load("quite_another_one", &Env::default()).unwrap_err();
        assert!(error.hint().contains("--list"), "{}", error.hint());
    }

    #[test]
    fn a_source_that_is_missing_is_told_where_it_was_looked_for() {
        // Cargo tests in the crate's folder: a relative path of the file.
        let dir = tempfile::tempdir_in(".").unwrap();
        let folder = Path::new(dir.path().file_name().unwrap());
        let text = "name: mine\nversion: 1\nsummary: s\nkind: text\nsource: rows.jsonl\nprompt: '{{ text }}'\n";
        std::fs::write(folder.join("mine.yaml"), text).unwrap();
        let word = folder.join("mine.yaml").display().to_string();
        let task = load(&word, &Env::default()).unwrap();
        let error = task.prepare(None, &ReadContext::default()).unwrap_err();
        let said = format!("{error}; {}", error.hint());
        let place = std::path::absolute(folder.join("rows.jsonl")).unwrap();
        assert!(said.contains(&place.display().to_string()), "{said}");
        assert!(!said.contains("working directory"), "{said}");
    }
}
