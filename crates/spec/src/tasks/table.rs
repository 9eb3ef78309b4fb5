//! Stored answers of several models side by side: the files, each task's number and its difference from the first model's.
//! Only reads.

use super::compare::{Comparison, compare};
use super::error::TaskError;
use super::list;
use super::record::{self, Header, Record};
use super::summary::{Reading, Summary, mean, of_texts, summarize};
use crate::base::paths::Env;
use crate::base::text::one_line;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Models side by side.
pub const MAX_MODELS: usize = 6;
/// Files that are looked at in a folder, and folders in a folder.
const MAX_FILES: usize = 2_000;
/// What a run writes while it trains, in place of a fingerprint.
pub const WHILE_TRAINING: &str = "of a run";

/// Models and tasks: `rows[i].cells[k]` is task i of model k.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct TaskTable {
    /// As headings name them.
    pub models: Vec<String>,
    pub rows: Vec<TaskRow>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TaskRow {
    pub task: String,
    pub version: u32,
    /// The metric that stands for the task.
    pub metric: String,
    pub lower_is_better: bool,
    pub cells: Vec<Option<TaskCell>>,
}

/// What one model made of one task.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TaskCell {
    pub reading: Reading,
    /// As the answers name it: of a run the checkpoint, too.
    pub model: String,
    #[serde(serialize_with = "crate::base::json::serialize_path")]
    pub file: PathBuf,
    /// Against the first model; none for itself, and where both were asked different rows.
    pub against: Option<Comparison>,
    /// It was asked other rows than the first model, so that the numbers cannot be set against each other.
    pub other_rows: bool,
}

/// Which score of an item two models are compared by: for perplexities and bits the log-probability that they are made of.
pub fn compared_by(headline: &str) -> &str {
    match headline {
        "perplexity" | "bits_per_byte" => "logp",
        metric => metric,
    }
}

/// A file of answers, by its first line.
#[derive(Debug, Clone)]
struct Sheet {
    header: Header,
    path: PathBuf,
}

impl Sheet {
    /// Of what can be chosen for a model: more items first, those of a checkpoint before those of a moment in training, the
    /// newest step.
    fn rank(&self) -> (usize, bool, &str) {
        let of_files = self.header.fingerprint != WHILE_TRAINING;
        (self.header.items, of_files, &self.header.model)
    }
}

/// Models whose answers lie in these folders of evaluations (`evals`), by the folder that holds them.
pub fn models_in(evals: &[PathBuf]) -> Vec<(String, PathBuf)> {
    let folders = evals.iter().flat_map(|folder| entries(folder));
    let mut found: Vec<(String, PathBuf)> = folders
        .filter(|folder| folder.is_dir())
        .filter_map(|folder| {
            let first = sheets(&folder).into_iter().next()?;
            Some((one_line(&first.header.model), folder))
        })
        .collect();
    found.sort();
    found
}

/// Puts models beside each other: runs by their directory (their answers lie there, and under their name in `evals`), other
/// models by the folder of their answers. A task stands in the table where one of them has answered all of it.
///
/// # Errors
/// A file of answers that cannot be read.
pub fn table(subjects: &[PathBuf], evals: &[PathBuf], env: &Env) -> Result<TaskTable, TaskError> {
    let subjects = &subjects[..subjects.len().min(MAX_MODELS)];
    let held: Vec<Vec<Sheet>> = subjects.iter().map(|s| answers_of(s, evals)).collect();
    let mut tasks: BTreeMap<(String, u32), Vec<Vec<Sheet>>> = BTreeMap::new();
    for (at, sheets) in held.iter().enumerate() {
        for sheet in sheets {
            let key = (sheet.header.task.clone(), sheet.header.version);
            let columns = tasks
                .entry(key)
                .or_insert_with(|| vec![Vec::new(); subjects.len()]);
            columns[at].push(sheet.clone());
        }
    }
    let mut rows = Vec::new();
    for ((task, version), columns) in tasks {
        let chosen = choose(&columns);
        rows.extend(row(&task, version, &chosen, env)?);
    }
    let names = subjects.iter().zip(&held).map(|(subject, sheets)| {
        let folder = subject.file_name().unwrap_or_default().to_string_lossy();
        match (is_run(subject), sheets.first()) {
            (false, Some(sheet)) => one_line(&sheet.header.model),
            _ => one_line(&folder),
        }
    });
    Ok(TaskTable {
        models: names.collect(),
        rows,
    })
}

fn is_run(path: &Path) -> bool {
    path.join("run.json").is_file()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let found = std::fs::read_dir(folder).into_iter().flatten().flatten();
    found.take(MAX_FILES).map(|entry| entry.path()).collect()
}

/// Files of answers of a folder, by name. Half a first line is not one yet.
fn sheets(folder: &Path) -> Vec<Sheet> {
    let mut files = entries(folder);
    files.sort();
    let files = files
        .into_iter()
        .filter(|file| file.extension().is_some_and(|e| e == "jsonl"));
    files
        .filter_map(|path| {
            let header = record::head(&path).ok()??;
            Some(Sheet { header, path })
        })
        .collect()
}

fn answers_of(subject: &Path, evals: &[PathBuf]) -> Vec<Sheet> {
    if !is_run(subject) {
        return sheets(subject);
    }
    let id = subject.file_name().unwrap_or_default().to_string_lossy();
    let own = |sheet: &Sheet| {
        let rest = sheet.header.model.strip_prefix(&*id);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    };
    let of_steps = entries(&subject.join("evals"));
    // A folder is named after its model: others need not be opened.
    let kept = evals.iter().flat_map(|folder| entries(folder));
    let kept = kept.filter(|folder| {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(&*id)
    });
    let all = of_steps.into_iter().chain(kept);
    all.flat_map(|folder| sheets(&folder)).filter(own).collect()
}

/// One file for each model: that of the rows that most models were asked, else its best one.
fn choose(columns: &[Vec<Sheet>]) -> Vec<Option<Sheet>> {
    let mut shared: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for column in columns {
        let mut own: Vec<&Sheet> = column.iter().collect();
        own.sort_by(|a, b| a.header.digest.cmp(&b.header.digest));
        own.dedup_by(|a, b| a.header.digest == b.header.digest);
        for sheet in own {
            let entry = shared.entry(&sheet.header.digest).or_default();
            *entry = (entry.0 + 1, sheet.header.items);
        }
    }
    let most = shared.iter().max_by_key(|(_, rank)| **rank);
    let most = most.map(|(digest, _)| (*digest).to_string());
    let best = |column: &Vec<Sheet>| {
        let same = |s: &&Sheet| Some(&s.header.digest) == most.as_ref();
        let best = column.iter().filter(same).max_by_key(|s| s.rank());
        best.or_else(|| column.iter().max_by_key(|s| s.rank()))
            .cloned()
    };
    columns.iter().map(best).collect()
}

/// Whole answers, in the order of the items.
fn read_whole(sheet: &Sheet) -> Result<Option<Vec<Record>>, TaskError> {
    let Some((header, mut records, _)) = record::read(&sheet.path)? else {
        return Ok(None);
    };
    records.sort_by_key(|record| record.item);
    records.dedup_by_key(|record| record.item);
    Ok((records.len() == header.items).then_some(records))
}

fn row(
    task: &str,
    version: u32,
    chosen: &[Option<Sheet>],
    env: &Env,
) -> Result<Option<TaskRow>, TaskError> {
    let mut read = Vec::new();
    for sheet in chosen {
        let records = match sheet {
            Some(sheet) => read_whole(sheet)?.map(|records| (sheet, records)),
            None => None,
        };
        read.push(records);
    }
    let Some((asked, answered)) = read.iter().flatten().next() else {
        return Ok(None);
    };
    let config = list::of_header(&asked.header, env);
    let summary = |records: &[Record]| match &config {
        Some(task) => summarize(task.config(), records),
        None => plain(task, version, records),
    };
    let headline = summary(answered).headline;
    let by = compared_by(&headline);
    let first = read.first().and_then(Option::as_ref);
    let cells = read.iter().enumerate().map(|(at, found)| {
        let (sheet, records) = found.as_ref()?;
        let reading = summary(records).headline()?.clone();
        let same = first.filter(|(first, _)| first.header.digest == sheet.header.digest);
        Some(TaskCell {
            reading,
            model: one_line(&sheet.header.model),
            file: sheet.path.clone(),
            other_rows: first.is_some() && same.is_none(),
            against: same
                .filter(|_| at > 0)
                .and_then(|(_, base)| compare(by, base, records)),
        })
    });
    Ok(Some(TaskRow {
        task: one_line(task),
        version,
        lower_is_better: by != headline,
        cells: cells.collect(),
        metric: headline,
    }))
}

/// Of a task whose file is not known here: the mean of each score, and of texts what their likelihoods are worth.
fn plain(task: &str, version: u32, records: &[Record]) -> Summary {
    const PARTS: [&str; 3] = ["logp", "tokens", "bytes"];
    let mut by: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (name, score) in records.iter().flat_map(|record| &record.scores) {
        if !PARTS.contains(&name.as_str()) {
            by.entry(name).or_default().push(*score);
        }
    }
    let reading = |metric: &str, (value, stderr), n| Reading {
        metric: metric.into(),
        group: None,
        value,
        stderr,
        n,
    };
    let texts: Vec<&Record> = records
        .iter()
        .filter(|record| PARTS.iter().all(|part| record.scores.contains_key(*part)))
        .collect();
    let mut readings = Vec::new();
    if !texts.is_empty() {
        let [bits, perplexity] = of_texts(&texts);
        readings.push(reading("bits_per_byte", bits, texts.len()));
        readings.push(reading("perplexity", perplexity, texts.len()));
    }
    readings.extend(
        by.iter()
            .map(|(name, scores)| reading(name, mean(scores), scores.len())),
    );
    let headline = match by.contains_key("acc_norm") {
        true => "acc_norm".into(),
        false => readings
            .first()
            .map_or_else(String::new, |r| r.metric.clone()),
    };
    Summary {
        task: task.into(),
        version,
        shots: 0,
        items: records.len(),
        headline,
        readings,
        cut: 0,
        truncated: 0,
        unfinished: 0,
    }
}

#[cfg(test)]
mod tests;
