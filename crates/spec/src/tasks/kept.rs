//! Results of earlier evaluations in a folder.

use super::error::TaskError;
use super::list;
use super::record;
use super::summary::{Summary, summarize};
use crate::base::paths::Env;
use crate::base::text::one_line;
use std::path::Path;

/// Deepest number of folders and files that are looked at: those of one `--out`.
const MAX_FILES: usize = 10_000;

/// What is known of a model whose name begins with one of `models`, whole answers alone: its name and the numbers, by task. Of a task
/// whose file is not there any more, or has another version, nothing is said.
///
/// # Errors
/// The disk.
pub fn kept(out: &Path, models: &[String], env: &Env) -> Result<Vec<(String, Summary)>, TaskError> {
    let entries = |folder: &Path| match std::fs::read_dir(folder) {
        Ok(entries) => Ok(entries.flatten().map(|e| e.path()).collect::<Vec<_>>()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(TaskError::io(folder)(e)),
    };
    let mut found = Vec::new();
    for folder in entries(out)?
        .iter()
        .filter(|path| path.is_dir())
        .take(MAX_FILES)
    {
        for file in entries(folder)?.iter().take(MAX_FILES) {
            if file.extension().is_none_or(|e| e != "jsonl") {
                continue;
            }
            let Ok(Some((header, records, _))) = record::read(file) else {
                continue;
            };
            // Evaluations name a run as its directory shows it.
            let own = models.iter().any(|model| {
                let model = one_line(model);
                header.model == model || header.model.starts_with(&format!("{model} "))
            });
            if !own || records.len() != header.items {
                continue;
            }
            if let Some(task) = list::of_header(&header, env) {
                found.push((header.model, summarize(task.config(), &records)));
            }
        }
    }
    found.sort_by(|a, b| (&a.0, &a.1.task, a.1.items).cmp(&(&b.0, &b.1.task, b.1.items)));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::source::ReadContext;
    use crate::tasks::run::Request;
    use serde_json::json;

    #[test]
    fn results_of_tasks_of_ones_own_are_found_by_their_file() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("somewhere/mine.yaml");
        std::fs::create_dir_all(own.parent().unwrap()).unwrap();
        std::fs::write(
            own.with_file_name("rows.jsonl"),
            "{\"q\": \"x\", \"a\": \"y\"}\n",
        )
        .unwrap();
        let text = "name: mine\nversion: 1\nsummary: My own.\nkind: answer\nsource: {path: rows.jsonl}\nprompt: '{{ q }}'\ntarget: '{{ a }}'\n";
        std::fs::write(&own, text).unwrap();
        let task = list::load(own.to_str().unwrap(), &Env::default()).unwrap();
        let prepared = task.prepare(None, &ReadContext::default()).unwrap();
        let out = dir.path().join("evals");
        let request = Request {
            prepared: &prepared,
            folder: &out.join("model"),
            model: "run-1 step-3",
            fingerprint: "f",
        };
        let path = request.file();
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let header = serde_json::to_value(request.header()).unwrap();
        let answer = json!({"item": 0, "place": "1", "prompt": "x", "scores": {"exact": 1.0}});
        let answers = format!("{header}\n{answer}\n");
        let found = |answers: &str| {
            std::fs::write(&path, answers).unwrap();
            kept(&out, &["gone".into(), "run-1".into()], &Env::default()).unwrap()
        };
        let all = found(&answers);
        assert_eq!(all.len(), 1, "{answers}");
        assert_eq!(all[0].1.task, "mine");
        assert!(!all[0].1.readings.is_empty(), "{:?}", all[0].1);
        // As programs before this one wrote it; of another version; with its file gone.
        assert!(found(&answers.replace("\"file\"", "\"old\"")).is_empty());
        assert!(found(&answers.replace("\"version\":1", "\"version\":2")).is_empty());
        assert!(found(&answers.replace("mine.yaml", "gone.yaml")).is_empty());
    }

    #[test]
    fn a_task_file_that_is_not_there_is_the_users_mistake() {
        let error = list::load("no/such/task.yaml", &Env::default())
            .err()
            .unwrap();
        assert!(
            !error.is_outage() && error.to_string().contains("no/such/task.yaml"),
            "{error}"
        );
        assert!(error.hint().contains("--list"), "{}", error.hint());
    }
}
