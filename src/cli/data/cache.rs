//! `llmtui data cache`: list or clear cached tokenized data.

use super::Context;
use crate::base::human::{bytes, grouped, short};
use crate::base::text::{one_line, shown};
use crate::cli::exit::{Exit, Failure};
use crate::data::store::{Cached, clear, list};
use std::io::Write;
use std::path::PathBuf;

/// List or clear cached tokenized data
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List cache entries, largest first
    List(Folder),
    /// Remove all entries not in use by a run; they are rebuilt when needed
    Clear(Folder),
}

#[derive(Debug, clap::Args)]
struct Folder {
    /// The folder of a spec's data.cache; default: the user's own
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    let (Verb::List(said) | Verb::Clear(said)) = &args.verb;
    let own = cx.env.cache_dir.as_ref().map(|dir| dir.join("tokens"));
    let Some(folder) = said.folder.clone().or(own) else {
        let what = "no home folder, so no default cache";
        return Err(Failure::user_error(what, "set one with --folder").into());
    };
    let place = shown(&folder);
    let text = match args.verb {
        Verb::List(_) => table(&place, &list(&folder)),
        Verb::Clear(_) => {
            let freed = clear(&folder).map_err(|e| {
                let what = format!("{}: {e}", shown(&folder));
                Failure::unwritten(what, &e, "check the folder's permissions")
            })?;
            format!("{} freed in {place}\n", bytes(freed))
        }
    };
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(Exit::Done)
}

fn table(folder: &str, entries: &[Cached]) -> String {
    if entries.is_empty() {
        return format!("nothing is cached in {folder}\n");
    }
    let mut text = format!("{folder}\n");
    for entry in entries {
        let state = match entry.whole {
            true => "",
            false => "  unfinished",
        };
        text.push_str(&format!(
            "{:>10}  {:>12} documents  {:>7} tokens  {}{state}\n",
            bytes(entry.bytes),
            grouped(entry.documents),
            short(entry.tokens as f64),
            one_line(&entry.source),
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_a_line_and_an_unfinished_one_says_so() {
        let entry = |whole| Cached {
            source: "chat\x1b.jsonl".into(),
            path: "x".into(),
            documents: 12_345,
            tokens: 2_500_000,
            bytes: 5 << 20,
            whole,
        };
        let text = table("kept", &[entry(true), entry(false)]);
        assert!(text.contains("12,345 documents"), "{text}");
        assert!(!text.contains('\x1b'));
        assert_eq!(text.matches("unfinished").count(), 1);
        assert!(table("kept", &[]).contains("nothing is cached"));
    }
}
