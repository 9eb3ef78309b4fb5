//! Results of earlier evaluations in a folder.

use super::error::TaskError;
use super::list;
use super::record::{self, Header};
use super::summary::{Summary, summarize};
use super::task::{Task, TaskOrigin};
use crate::base::paths::Env;
use crate::base::text::one_line;
use std::path::Path;

/// Deepest number of folders and files that are looked at: those of one `--out`.
const MAX_FILES: usize = 10_000;

/// The results of an earlier evaluation.
#[derive(Debug, Clone)]
pub struct Kept {
    /// The model's name.
    pub model: String,
    /// With the worked examples that were used.
    pub summary: Summary,
    /// Only a part of the task's rows was asked.
    pub limited: bool,
    /// Who designed the task.
    pub origin: TaskOrigin,
}

/// What is known of a model whose name begins with one of `models`, whole answers alone. Of a task whose file is not there any
/// more, or has another version, nothing is said.
///
/// # Errors
/// The disk.
pub fn kept(out: &Path, models: &[String], env: &Env) -> Result<Vec<Kept>, TaskError> {
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
            if let Some(task) = task_of(&header, env) {
                found.push(Kept {
                    summary: summarize(task.config(), &records),
                    model: header.model,
                    limited: header.limited,
                    origin: task.origin(),
                });
            }
        }
    }
    let order = |kept: &Kept| {
        let Summary {
            task, shots, items, ..
        } = &kept.summary;
        (kept.model.clone(), task.clone(), *shots, *items)
    };
    found.sort_by_cached_key(order);
    Ok(found)
}

/// The task as it was asked: of the same version, with as many worked examples.
fn task_of(header: &Header, env: &Env) -> Option<Task> {
    let task = list::of_header(header, env)?;
    match header.shots {
        Some(shots) => task.with_shots(shots).ok(),
        None => Some(task),
    }
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
        assert_eq!(all[0].summary.task, "mine");
        assert!(!all[0].summary.readings.is_empty(), "{:?}", all[0]);
        assert_eq!(all[0].origin, TaskOrigin::Own);
        // As programs before this one wrote it; of another version; with its file gone.
        assert!(found(&answers.replace("\"file\"", "\"old\"")).is_empty());
        assert!(found(&answers.replace("\"version\":1", "\"version\":2")).is_empty());
        assert!(found(&answers.replace("mine.yaml", "gone.yaml")).is_empty());
    }

    /// A few of the rows, and other worked examples than the task's own: results of another task, as good as.
    #[test]
    fn limits_and_worked_examples_are_kept_with_the_results() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("mine.yaml");
        let row = |n: usize| format!("{{\"q\": \"x{n}\", \"a\": \"y{n}\"}}\n");
        let rows: String = (0..3).map(row).collect();
        std::fs::write(dir.path().join("rows.jsonl"), rows).unwrap();
        let text = "name: mine\nversion: 1\nsummary: s\nkind: answer\nsource: {path: rows.jsonl}\nprompt: '{{ q }}'\n\
            target: '{{ a }}'\nshots: {source: {path: rows.jsonl}, count: 2}\n";
        std::fs::write(&own, text).unwrap();
        let out = dir.path().join("evals");
        for (limit, shots) in [(None, None), (Some(3), Some(0)), (Some(2), Some(1))] {
            let mut task = list::load(own.to_str().unwrap(), &Env::default()).unwrap();
            if let Some(shots) = shots {
                task = task.with_shots(shots).unwrap();
            }
            let prepared = task.prepare(limit, &ReadContext::default()).unwrap();
            assert_eq!(prepared.items.len(), limit.unwrap_or(3));
            let request = Request {
                prepared: &prepared,
                folder: &out.join("model"),
                model: "run-1 step-3",
                fingerprint: "f",
            };
            let mut lines = vec![serde_json::to_value(request.header()).unwrap()];
            lines.extend((0..prepared.items.len()).map(
                |at| json!({"item": at, "place": "1", "prompt": "x", "scores": {"exact": 1.0}}),
            ));
            let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
            std::fs::create_dir_all(out.join("model")).unwrap();
            std::fs::write(request.file(), lines).unwrap();
        }
        let found = kept(&out, &["run-1".into()], &Env::default()).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|k| (k.summary.shots, k.summary.items, k.limited))
            .collect();
        assert_eq!(found, [(0, 3, false), (1, 2, true), (2, 3, false)]);
    }

    #[test]
    fn shipped_tasks_say_who_designed_them() {
        let of = |name: &str| list::load(name, &Env::default()).unwrap().origin();
        assert_eq!(of("arc_easy"), TaskOrigin::Harness);
        assert_eq!(of("gsm8k"), TaskOrigin::Harness);
        assert_eq!(of("made_recall"), TaskOrigin::Synthetic);
        assert_eq!(of("xstest"), TaskOrigin::Program);
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
