//! `llmtui data`: inspect, clean, split and convert datasets. Each subcommand streams the rows once, in bounded memory.

mod batch_rows;
mod batches;
mod cache;
mod clean;
mod convert;
mod inspect;
mod progress;
mod report;
mod sample;
mod split;

use super::Context;
use super::exit::{Exit, Failure};
use crate::base::paths::is_yaml;
use crate::base::text::{one_line, shown};
use crate::data::formats::in_options;
use crate::data::inspect::{Read, Subject};
use crate::data::sink::{Container, Overwrite, SinkError};
use crate::data::source::ReadContext;
use crate::data::{DataError, RowFault};
use crate::models::tokenizer_place;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Inspect, clean, split or convert a dataset
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    Inspect(inspect::Args),
    Clean(clean::Args),
    Split(split::Args),
    Convert(convert::Args),
    Batches(batches::Args),
    Cache(cache::Args),
}

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    match &args.verb {
        Verb::Inspect(args) => inspect::run(args, cx),
        Verb::Clean(args) => clean::run(args, cx),
        Verb::Split(args) => split::run(args, cx),
        Verb::Convert(args) => convert::run(args, cx),
        Verb::Batches(args) => batches::run(args, cx),
        Verb::Cache(args) => cache::run(args, cx),
    }
}

/// Which data to read and how; shared by all subcommands.
#[derive(Debug, Clone, clap::Args)]
pub struct Source {
    /// A file, a folder, a glob, or a hub dataset (`name | subset`): text, JSONL, JSON, CSV, TSV, parquet; .gz, .zst
    #[arg(value_name = "PATH")]
    pub path: String,
    /// Row format; detected from the columns by default
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
    /// Map a column, as format's=yours, e.g. output=answer; may be repeated
    #[arg(long = "column", value_name = "OURS=YOURS")]
    pub columns: Vec<String>,
}

impl Source {
    /// The subject of an inspection.
    ///
    /// # Errors
    /// A format or a column that does not exist.
    fn subject(&self) -> anyhow::Result<Subject> {
        if is_yaml(&self.path) {
            let path = one_line(&self.path);
            let what = format!("{path} is YAML: a spec or a config, not data");
            let hint = format!(
                "pass the data file that it names; llmtui data batches {path} shows what a spec trains on"
            );
            return Err(Failure::user_error(what, hint).into());
        }
        let mut subject = Subject::of_path(&self.path);
        if let Some(format) = &self.format {
            subject.set_format(format).map_err(|e| user_error(&e))?;
        }
        subject.set_columns(&pairs(&self.columns)?);
        Ok(subject)
    }
}

/// The values of `--column`: (part of a format, column).
///
/// # Errors
/// One that is no pair.
pub fn pairs(columns: &[String]) -> Result<Vec<(String, String)>, Failure> {
    let pair = |said: &String| match said.split_once('=') {
        Some((ours, theirs)) => Ok((ours.to_string(), theirs.to_string())),
        None => {
            let what = format!("--column {said} does not name two columns");
            Err(Failure::user_error(what, "--column output=answer"))
        }
    };
    columns.iter().map(pair).collect()
}

/// Passes every row on and reports progress; the first error ends it. What was noted about the files goes to standard error.
fn each(
    subject: &Subject,
    cx: &Context,
    take: &mut dyn FnMut(Read<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut failure = None;
    let mut line = progress::Line::new();
    let notes = subject
        .each(
            &reading(cx),
            &mut |progress| line.update(progress),
            &mut |row| match take(row) {
                Ok(()) => ControlFlow::Continue(()),
                Err(e) => {
                    failure = Some(e);
                    ControlFlow::Break(())
                }
            },
        )
        .map_err(|e| user_error(&e))?;
    drop(line);
    for note in notes {
        errln!("note: {}", one_line(&note));
    }
    failure.map_or(Ok(()), Err)
}

/// Where the tokenizer of a model lies: an adapter alone leaves it to its base.
fn tokenizer_of(said: &str) -> String {
    tokenizer_place(Path::new(said)).display().to_string()
}

/// Input files.
fn reading(cx: &Context) -> ReadContext {
    crate::data::inspect::reading(&cx.env)
}

fn user_error(error: &DataError) -> anyhow::Error {
    let failure = Failure::data(error);
    let hint = in_options(&failure.hint);
    Failure { hint, ..failure }.into()
}

fn bad_row(fault: &RowFault) -> anyhow::Error {
    Failure::user_error(fault.to_string(), in_options(&fault.fix)).into()
}

fn unwritten(error: SinkError) -> anyhow::Error {
    match error.machine {
        true => Failure::machine(error.to_string(), error.fix).into(),
        false => Failure::user_error(error.to_string(), error.fix).into(),
    }
}

fn overwrite(force: bool) -> Overwrite {
    if force { Overwrite::Yes } else { Overwrite::No }
}

/// `chat` and `jsonl` of `sets/chat.jsonl.gz`; types that cannot be written become JSONL.
fn stem_and_ending(path: &str) -> (String, &'static str) {
    let name = Path::new(path).file_name().unwrap_or_default();
    let name = name.to_string_lossy();
    let plain = name
        .strip_suffix(".gz")
        .or_else(|| name.strip_suffix(".zst"))
        .unwrap_or(&name);
    let container = Container::of(Path::new(path));
    let stem = match plain.rsplit_once('.') {
        Some((stem, _)) if !stem.is_empty() => stem,
        _ => plain,
    };
    let stem: String = stem
        .chars()
        .map(|c| {
            if c.is_alphanumeric() || "-_.".contains(c) {
                c
            } else {
                '-'
            }
        })
        .collect();
    let stem = stem.trim_matches(['-', '.']).to_string();
    let stem = if stem.is_empty() {
        "data".to_string()
    } else {
        stem
    };
    (stem, container.map_or("jsonl", Container::ending))
}

/// Reading and writing the same file would destroy it.
fn not_itself(input: &str, output: &Path) -> anyhow::Result<()> {
    let same = |a: &Path, b: &Path| match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    };
    if same(Path::new(input), output) {
        let what = format!("{} is the input file", shown(output));
        return Err(Failure::user_error(what, "write to another file").into());
    }
    Ok(())
}

/// A name for a file written next to another one.
fn sibling_path(path: &Path, ending: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{name}{ending}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_made_follow_those_read() {
        assert_eq!(
            stem_and_ending("sets/chat.jsonl.gz"),
            ("chat".into(), "jsonl")
        );
        assert_eq!(stem_and_ending("a.csv"), ("a".into(), "csv"));
        assert_eq!(stem_and_ending("x.parquet"), ("x".into(), "jsonl"));
        assert_eq!(
            stem_and_ending("org/name | sub"),
            ("name---sub".into(), "jsonl")
        );
        assert_eq!(stem_and_ending("chats/*.jsonl"), ("data".into(), "jsonl"));
        assert_eq!(
            sibling_path(Path::new("out/a.jsonl"), ".dropped.jsonl"),
            Path::new("out/a.jsonl.dropped.jsonl")
        );
    }
}
