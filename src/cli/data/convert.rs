//! `llmtui data convert`: the same rows in another format or file type.

use super::{Source, bad_row, each, not_itself, overwrite, stem_and_ending, unwritten, user_error};
use crate::base::human::{counted, grouped};
use crate::base::text::{one_line, shown};
use crate::cli::Context;
use crate::cli::exit::{Exit, Failure};
use crate::data::RowFault;
use crate::data::convert::{self, Trees, WRITERS, Writer};
use crate::data::inspect::{Read, Subject};
use crate::data::sink::{Container, Sink};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Most skipped rows to list.
const LISTED: usize = 5;

/// Convert rows to another format (messages, sharegpt, alpaca …) or file type
#[derive(Debug, clap::Args)]
#[command(after_help = formats_help())]
pub struct Args {
    #[command(flatten)]
    pub source: Source,
    /// A format (messages, sharegpt, alpaca, prompt_completion, text) or a file type (jsonl, json, csv, tsv, txt)
    #[arg(long, value_name = "WORD")]
    pub to: String,
    /// Output file; its extension selects the file type, .gz and .zst compress it. Default: NAME.TO.EXTENSION
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Join the messages of trees (message_id, parent_id, role, text, as OpenAssistant's) into conversations, one for each last reply
    #[arg(long)]
    pub trees: bool,
    /// Skip and count rows the format cannot represent; otherwise the first one is an error
    #[arg(long)]
    pub skip_bad_rows: bool,
    /// Overwrite an existing file
    #[arg(long)]
    pub force: bool,
}

fn formats_help() -> String {
    let mut text = String::from("Formats:\n");
    for writer in WRITERS {
        text.push_str(&format!("  {:<18} {}\n", writer.id, writer.about));
    }
    text.push_str(
        "\nExample:\n  llmtui data convert alpaca.json --to messages --out chats.jsonl.gz",
    );
    text
}

/// What to convert: columns, or only the file type.
enum To {
    Format(&'static Writer),
    Container(Container),
}

fn to(word: &str) -> anyhow::Result<To> {
    if let Some(writer) = convert::find(&word.replace('-', "_")) {
        return Ok(To::Format(writer));
    }
    let container = Container::ALL.into_iter().find(|c| c.ending() == word);
    container.map(To::Container).ok_or_else(|| {
        let mut words: Vec<&str> = WRITERS.iter().map(|w| w.id).collect();
        words.extend(Container::ALL.map(Container::ending));
        Failure::user_error(
            format!("cannot write `{}`", one_line(word)),
            words.join(", "),
        )
        .into()
    })
}

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    let to = to(&args.to)?;
    let mut subject = args.source.subject()?;
    if args.trees {
        let is_messages = matches!(&to, To::Format(writer) if writer.id == "messages");
        if !is_messages {
            let what = "--trees makes conversations, which --to messages writes";
            let fix = "--to messages first, and another format from that file";
            return Err(Failure::user_error(what, fix).into());
        }
        // Each row is taken as it is.
        subject.set_format("text").map_err(|e| user_error(&e))?;
    }
    let path = match (&args.out, &to) {
        (Some(path), _) => path.clone(),
        (None, To::Format(writer)) => {
            let (stem, ending) = stem_and_ending(&args.source.path);
            // Turns do not fit into cells.
            let ending = if matches!(ending, "csv" | "tsv" | "txt") {
                "jsonl"
            } else {
                ending
            };
            format!("{stem}.{}.{ending}", writer.id).into()
        }
        (None, To::Container(container)) => {
            let (stem, _) = stem_and_ending(&args.source.path);
            format!("{stem}.{}", container.ending()).into()
        }
    };
    not_itself(&args.source.path, &path)?;
    let mut out = Sink::create(&path, overwrite(args.force)).map_err(unwritten)?;
    let mut skipped: Vec<RowFault> = Vec::new();
    let mut n_skipped = 0_u64;
    let mut changes: BTreeMap<&str, u64> = BTreeMap::new();
    if args.trees {
        return join(&subject, cx, args.skip_bad_rows, (out, path.as_path()));
    }
    each(&subject, cx, &mut |row| match fields(&row, &to) {
        Ok(fields) => {
            if let (To::Format(writer), Ok(example)) = (&to, &row.example) {
                for change in writer.changes(example) {
                    *changes.entry(change).or_default() += 1;
                }
            }
            out.write(&fields).map_err(unwritten)
        }
        Err(fault) if args.skip_bad_rows => {
            n_skipped += 1;
            if skipped.len() < LISTED {
                skipped.push(fault);
            }
            Ok(())
        }
        Err(fault) => Err(bad_row(&fault)),
    })?;
    let rows = out.finish().map_err(unwritten)?;
    let mut text = format!("{}  {}\n", counted(rows, "row"), shown(&path));
    for (change, rows) in changes {
        text.push_str(&format!("  in {} of them {change}\n", grouped(rows)));
    }
    if n_skipped > 0 {
        let were = if n_skipped == 1 { "was" } else { "were" };
        let rows = counted(n_skipped, "row");
        text.push_str(&format!("{rows} {were} skipped:\n"));
        for fault in &skipped {
            text.push_str(&format!("  {}\n", one_line(&fault.to_string())));
        }
    }
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(Exit::Done)
}

/// The conversations of a file of trees, which are whole once every row was read.
fn join(
    subject: &Subject,
    cx: &Context,
    skip_bad_rows: bool,
    (mut out, path): (Sink, &Path),
) -> anyhow::Result<Exit> {
    let mut trees = Trees::default();
    let mut skipped = 0_u64;
    each(subject, cx, &mut |row| match trees.add(row.fields) {
        Ok(()) => Ok(()),
        Err(_) if skip_bad_rows => {
            skipped += 1;
            Ok(())
        }
        Err(why) => {
            let fix =
                "without --trees rows are read as they are; --skip-bad-rows leaves such rows out";
            Err(bad_row(&RowFault::new(row.place, why, fix)))
        }
    })?;
    let joined = trees.join();
    for row in &joined.conversations {
        out.write(row).map_err(unwritten)?;
    }
    let rows = out.finish().map_err(unwritten)?;
    let mut text = format!("{}  {}\n", counted(rows, "conversation"), shown(path));
    for (n, what) in [
        (trees.deleted, "deleted messages were left out"),
        (
            joined.without_beginning,
            "replies were left out: the beginning of their conversation is not in the file",
        ),
        (
            skipped,
            "rows were skipped, which are no messages of a tree",
        ),
    ] {
        if n > 0 {
            text.push_str(&format!("  {} {what}\n", grouped(n)));
        }
    }
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(Exit::Done)
}

fn fields(row: &Read<'_>, to: &To) -> Result<serde_json::Map<String, serde_json::Value>, RowFault> {
    let example = match (&row.example, to) {
        (Ok(example), _) => example,
        (Err(fault), _) => return Err((*fault).clone()),
    };
    match to {
        To::Container(_) => Ok(row.fields.clone()),
        To::Format(writer) => writer.write(example).map_err(|why| {
            let fix = "choose another format, or use --skip-bad-rows";
            RowFault::new(row.place, why, fix)
        }),
    }
}
