//! `llmtui preflight`: the checks alone.

use super::{Context, args::SpecArgs, exit::Exit, finding, target::print_notes};
use crate::base::finding::Status;
use crate::engine::preflight::{Checked, check_spec};
use crate::spec::RunSpec;
use crate::wire::{Event, encode};
use std::io::{Read, Write};

/// Columns of a title.
const TITLE: usize = 43;
/// Largest spec accepted on standard input, in bytes.
const MAX_SPEC_BYTES: u64 = 1 << 20;

/// Run the preflight checks without training
///
/// `-` instead of a spec reads it from standard input.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub spec: SpecArgs,
    /// Print the results as JSON, one object per line
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: Args, cx: &Context) -> anyhow::Result<Exit> {
    let spec = match args.spec.target() {
        Some("-") => from_input(cx)?,
        _ => {
            let loaded = args.spec.load(cx)?;
            print_notes(&loaded);
            loaded.spec
        }
    };
    super::memory::check(&spec, &cx.env)?;
    let existed = cx.runs_dir.exists();
    std::fs::create_dir_all(&cx.runs_dir)?;
    let mut out = std::io::stdout().lock();
    let mut printed = Ok(());
    let (mut failed, mut of_the_machine) = (0, false);
    let ranks = crate::plan::start::known_ranks(&spec, &cx.env);
    let made = check_spec(
        (&spec, ranks),
        &cx.env,
        &cx.runs_dir,
        &cx.clock,
        &mut |checked| {
            failed += usize::from(checked.finding.status == Status::Fail);
            of_the_machine |= checked.of_the_machine;
            let text = if args.json {
                encode(&Event::from(checked.clone()))
            } else {
                cx.words(table_row(checked, cx.columns()))
            };
            if printed.is_ok() {
                printed = out.write_all(text.as_bytes()).and_then(|()| out.flush());
            }
        },
    );
    if !existed {
        // Leave the directory as it was: remove it only if empty.
        let _ = std::fs::remove_dir(&cx.runs_dir);
    }
    made?;
    printed?;
    if !args.json {
        writeln!(out, "{}", verdict(failed))?;
    }
    Ok(match (failed, of_the_machine) {
        (0, _) => Exit::Done,
        (_, true) => Exit::Machine,
        (_, false) => Exit::Training,
    })
}

/// A spec from standard input; relative paths start at the working directory.
fn from_input(cx: &Context) -> anyhow::Result<RunSpec> {
    let mut text = String::new();
    std::io::stdin()
        .lock()
        .take(MAX_SPEC_BYTES)
        .read_to_string(&mut text)?;
    Ok(crate::spec::load_text("standard input", &text, &cx.spec_sources())?.spec)
}

fn verdict(failed: usize) -> String {
    match failed {
        0 => "ready to train".into(),
        1 => "1 check failed: fix it, or train anyway with --force".into(),
        n => {
            format!("{n} checks failed: fix them, or train anyway with --force")
        }
    }
}

/// `ok       Targets are the inputs' next tokens       0.00 s  evidence`, and cause and fix below; wrapped at words on a terminal.
fn table_row(checked: &Checked, columns: Option<usize>) -> String {
    let seconds = format!(" {:>5.2} s", checked.seconds);
    finding::rows_in(&checked.finding, TITLE, &seconds, columns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::finding::Finding;

    #[test]
    fn a_row_has_its_word_its_evidence_and_its_hint_and_no_control_sequences() {
        let row = table_row(&checked("bad\x1b[2J"), None);
        assert!(row.starts_with("FAIL     A check"), "{row}");
        assert!(
            row.contains("0.25 s") && row.ends_with("why   a cause\n         fix   do this\n"),
            "{row}"
        );
        assert!(!row.contains('\x1b'));
    }

    #[test]
    fn a_row_is_wrapped_at_words_on_a_terminal() {
        let words = "the longest document has 13 tokens of 1,024 that fit";
        let row = table_row(&checked(words), Some(80));
        assert!(row.lines().all(|line| line.len() <= 80), "{row}");
        let joined: Vec<&str> = row.split_whitespace().collect();
        assert!(joined.join(" ").contains(words), "{row}");
    }

    fn checked(evidence: &str) -> Checked {
        Checked {
            finding: Finding::fail(evidence, "a cause", "do this").named("x", "A check"),
            seconds: 0.25,
            next: None,
            of_the_machine: false,
        }
    }
}
