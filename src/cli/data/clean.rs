//! `llmtui data clean`: a copy without the rows that have a finding, and a list of what was dropped and why.

use super::{
    Source, not_itself, overwrite, progress, reading, sibling_path, tokenizer_of, unwritten,
    user_error,
};
use crate::base::human::grouped;
use crate::base::near::{nearest, unknown};
use crate::base::text::{one_line, shown};
use crate::cli::Context;
use crate::cli::exit::{Exit, Failure};
use crate::data::inspect::{Cleaned, KINDS, checks};
use crate::data::sink::Sink;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

/// Write a copy without rows that have a finding, and list what was dropped and why
///
/// The first of several duplicates stays. Unreadable rows are always dropped; with --tokenizer or --template also those that
/// the template rejects or the tokenizer cannot encode, as in training. Dropped rows go to OUT.dropped.jsonl with their
/// location and finding, so that nothing is lost.
#[derive(Debug, clap::Args)]
#[command(after_help = kinds_help())]
pub struct Args {
    #[command(flatten)]
    pub source: Source,
    /// The tokenizer of the training: a file (tokenizer.json, .model, .gguf) or a model's folder, with its chat template
    #[arg(long, value_name = "FILE|DIR")]
    pub tokenizer: Option<String>,
    /// The chat template of the training: a built-in name or a .jinja file. Default: the tokenizer's own, else chatml
    #[arg(long, value_name = "NAME|FILE")]
    pub template: Option<String>,
    /// Output file; its extension selects the file type
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Findings whose rows are dropped, separated by commas
    #[arg(
        long,
        value_name = "KINDS",
        value_delimiter = ',',
        default_value = "empty,duplicates"
    )]
    pub drop: Vec<String>,
    /// The validation file, for `overlap`
    #[arg(long, value_name = "FILE")]
    pub val: Option<String>,
    /// An evaluation set, for `contamination`; may be repeated
    #[arg(long, value_name = "FILE")]
    pub against: Vec<String>,
    /// Overwrite existing files
    #[arg(long)]
    pub force: bool,
}

fn kinds_help() -> String {
    let mut text = String::from("Kinds:\n");
    for kind in KINDS.iter().filter(|kind| kind.cleans) {
        text.push_str(&format!("  {:<16} {}\n", kind.id, kind.title));
    }
    text.push_str("\nExamples:\n  llmtui data clean raw.jsonl --drop empty,duplicates,near_duplicates --out clean.jsonl\n  llmtui data clean chats.jsonl --tokenizer models/qwen --out clean.jsonl");
    text
}

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    let mut subject = args.source.subject()?;
    subject.val = args.val.clone();
    subject.against = args.against.clone();
    subject.tokenizer = args.tokenizer.as_deref().map(tokenizer_of);
    subject.template = args.template.clone();
    subject.only = kinds(args)?;
    not_itself(&args.source.path, &args.out)?;
    let list = sibling_path(&args.out, ".dropped.jsonl");
    let mut out = Sink::create(&args.out, overwrite(args.force)).map_err(unwritten)?;
    let mut dropped = Sink::create(&list, overwrite(args.force)).map_err(unwritten)?;
    let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
    let mut failure = None;
    let limits = {
        let mut line = progress::Line::new();
        let mut take = |row: Cleaned<'_>| {
            let written = match row.fault {
                None => out.write(row.fields),
                Some((kind, what)) => {
                    *counts.entry(kind).or_default() += 1;
                    dropped.write(&entry(&row, kind, what))
                }
            };
            match written {
                Ok(()) => std::ops::ControlFlow::Continue(()),
                Err(e) => {
                    failure = Some(e);
                    std::ops::ControlFlow::Break(())
                }
            }
        };
        let mut tell = |p| line.update(p);
        subject
            .clean(&reading(cx), &mut tell, &mut take)
            .map_err(|e| user_error(&e))?
    };
    if let Some(error) = failure {
        return Err(unwritten(error));
    }
    let (kept, left) = (out.rows(), dropped.rows());
    out.finish().map_err(unwritten)?;
    let mut text = format!(
        "{} of {} rows kept: {}\n",
        grouped(kept),
        grouped(kept + left),
        shown(&args.out)
    );
    if left > 0 {
        dropped.finish().map_err(unwritten)?;
        text.push_str(&dropped_words(&counts));
        text.push_str(&format!("dropped rows, with reasons: {}\n", shown(&list)));
    }
    if kept == 0 && left > 0 {
        let words = "note: no row is left: name fewer kinds in --drop, or fix the file: llmtui data inspect gives the cause of each finding\n";
        text.push_str(words);
    }
    for limit in limits {
        text.push_str(&format!("note: {}\n", one_line(&limit)));
    }
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(Exit::Done)
}

/// A line for each kind of finding: how many rows were dropped for it.
fn dropped_words(counts: &BTreeMap<&'static str, u64>) -> String {
    let line = |(id, n): (&&'static str, &u64)| {
        let title = checks::find(id).map_or(*id, |kind| kind.title);
        let n = grouped(*n);
        format!("  {n:>9} dropped  {}\n", title.to_lowercase())
    };
    counts.iter().map(line).collect()
}

/// A dropped row, with the evidence.
fn entry(row: &Cleaned<'_>, kind: &str, what: &str) -> Map<String, Value> {
    let place = row.place.to_string();
    let value = json!({"place": place, "finding": kind, "what": what, "row": row.fields});
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

fn kinds(args: &Args) -> anyhow::Result<Vec<&'static str>> {
    let mut only = vec!["unreadable"];
    if args.tokenizer.is_some() || args.template.is_some() {
        only.extend(["unrendered", "unencodable"]);
    }
    for word in &args.drop {
        let word = word.trim().replace('-', "_");
        let kind = checks::find(&word)
            .filter(|kind| kind.cleans)
            .ok_or_else(|| {
                let words: Vec<&str> = KINDS.iter().filter(|k| k.cleans).map(|k| k.id).collect();
                let near = nearest(&word, words.iter().copied());
                let (what, hint) = unknown("finding", &word, near, &words);
                Failure::user_error(what, hint)
            })?;
        let missing = match kind.id {
            "overlap" if args.val.is_none() => "--val FILE",
            "contamination" if args.against.is_empty() => "--against FILE",
            _ => "",
        };
        if !missing.is_empty() {
            return Err(Failure::user_error(
                format!("`{word}` needs a file to compare with"),
                missing,
            )
            .into());
        }
        if !only.contains(&kind.id) {
            only.push(kind.id);
        }
    }
    Ok(only)
}
