//! `llmtui data inspect`: contents and problems of a dataset.

use super::{Source, progress, reading, report, sample, tokenizer_of, user_error};
use crate::cli::Context;
use crate::cli::exit::Exit;
use crate::data::inspect::Severity;
use std::io::Write;

/// Inspect a dataset: rows, lengths, tokens, sources, duplicates, broken text, overlap
///
/// Shows samples as the model sees them: tokens separated by │, supervised ones marked by ▔. Exit code: 0, or with
/// --strict 2 if a problem was found.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  llmtui data inspect chats.jsonl --tokenizer models/qwen --seq-len 2048
  llmtui data inspect 'corpus/**/*.txt.gz' --against gsm8k_test.jsonl --json")]
pub struct Args {
    #[command(flatten)]
    pub source: Source,
    /// A tokenizer file (tokenizer.json, .model, .gguf) or a model's folder. Default: byte-level BPE trained on the data
    #[arg(long, value_name = "FILE|DIR")]
    pub tokenizer: Option<String>,
    /// A chat template: a built-in name or a .jinja file. Default: the tokenizer's own, else chatml, which rejects hardly any row
    #[arg(long, value_name = "NAME|FILE")]
    pub template: Option<String>,
    /// Sequence length in tokens; longer rows are reported
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub seq_len: Option<u64>,
    /// The validation file; training rows that overlap it are reported
    #[arg(long, value_name = "FILE")]
    pub val: Option<String>,
    /// An evaluation set; training rows that overlap it are reported; may be repeated
    #[arg(long, value_name = "FILE")]
    pub against: Vec<String>,
    /// Inspect only the first N rows
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub rows: Option<u64>,
    /// Samples to show
    #[arg(long, value_name = "K", default_value_t = 2)]
    pub samples: usize,
    /// Print one JSON object; `samples` has ids, tokens and loss mask of the rows shown
    #[arg(long)]
    pub json: bool,
    /// Exit with code 2 if a problem was found
    #[arg(long)]
    pub strict: bool,
}

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    let mut subject = args.source.subject()?;
    subject.tokenizer = args.tokenizer.as_deref().map(tokenizer_of);
    subject.template = args.template.clone();
    subject.seq_len = args.seq_len;
    subject.val = args.val.clone();
    subject.against = args.against.clone();
    subject.max_rows = args.rows;
    let inspected = {
        let mut line = progress::Line::new();
        subject
            .inspect(&reading(cx), &mut |p| line.update(p))
            .map_err(|e| user_error(&e))?
    };
    let mut out = std::io::stdout().lock();
    let rows = inspected.kept.rows.iter();
    let rows = rows.filter(|row| row.example.is_some());
    let rows: Vec<_> = rows.take(args.samples).collect();
    let view = inspected.view.as_deref();
    if args.json {
        let mut told = serde_json::to_value(&inspected.report)?;
        told["samples"] = rows.iter().map(|row| sample::json(row, view)).collect();
        writeln!(out, "{}", crate::cli::out::json(&told)?)?;
    } else {
        out.write_all(report::page(&inspected.report).as_bytes())?;
        if !rows.is_empty() {
            writeln!(
                out,
                "\n  as the model sees them: │ separates tokens, ▔ marks supervised ones\n"
            )?;
        }
        for row in rows {
            writeln!(out, "{}", sample::sample(row, view))?;
        }
    }
    let problem = inspected.report.worst() == Some(Severity::Problem);
    Ok(if args.strict && problem {
        Exit::UserError
    } else {
        Exit::Done
    })
}
