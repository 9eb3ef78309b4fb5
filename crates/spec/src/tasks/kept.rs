//! Results that earlier evaluations left in a folder.

use super::error::TaskError;
use super::list;
use super::record;
use super::summary::{Summary, summarize};
use super::task::Task;
use std::path::Path;

/// Deepest number of folders and files that are looked at: those of one `--out`.
const MAX_FILES: usize = 10_000;

/// What is known of a model whose name begins with `model`, whole answers alone: its name and the numbers, by task. Of a task
/// whose file is not there any more, or has another version, nothing is said.
///
/// # Errors
/// The disk.
pub fn kept(
    out: &Path,
    model: &str,
    config_dir: Option<&Path>,
) -> Result<Vec<(String, Summary)>, TaskError> {
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
            let own = header.model == model || header.model.starts_with(&format!("{model} "));
            let task = list::load(&header.task, config_dir).ok();
            let task = task.filter(|task: &Task| task.config().version == header.version);
            if let (true, true, Some(task)) = (own, records.len() == header.items, task) {
                found.push((header.model, summarize(task.config(), &records)));
            }
        }
    }
    found.sort_by(|a, b| (&a.0, &a.1.task, a.1.items).cmp(&(&b.0, &b.1.task, b.1.items)));
    Ok(found)
}
