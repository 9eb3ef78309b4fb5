//! `llmtui tokenizer check`: what a tokenizer does to text, alone or compared with another.

use super::super::Context;
use super::super::exit::{Exit, Failure};
use super::super::{finding, model_ref};
use super::{texts, user_error};
use crate::base::child::Child;
use crate::base::clock::{Clock, SystemClock};
use crate::base::finding::Status;
use crate::base::human;
use crate::base::text::one_line;
use crate::data::tokenizer::check::{self, Fertility, Report};
use crate::data::tokenizer::{ChatMarkers, Tokenizer, load};
use crate::models::tokenizer_place;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Speed is the median of this many passes.
const PASSES: usize = 3;

/// Check what a tokenizer does to text: losses, splits, compression
///
/// Exits with code 2 if a tokenizer fault would keep a model from learning something.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  llmtui tokenizer check tokenizer
  llmtui tokenizer check model.gguf corpus.txt --against gpt2/
  llmtui tokenizer check tokenizer --speed corpus.txt --json")]
pub struct Args {
    /// A tokenizer.json, a model folder, vocab.json with merges.txt, a SentencePiece .model, a .gguf file, or a run
    #[arg(value_name = "TOKENIZER")]
    pub tokenizer: PathBuf,
    /// Your own texts or rows to test on, besides the built-in samples
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// A second tokenizer to compare with
    #[arg(long, value_name = "TOKENIZER")]
    pub against: Option<PathBuf>,
    /// Encode this file three times and report the speed
    #[arg(long, value_name = "FILE")]
    pub speed: Option<PathBuf>,
    #[command(flatten)]
    pub rows: texts::RowOptions,
    /// Print everything as JSON
    #[arg(long)]
    pub json: bool,
}

/// Encoding one file.
#[derive(Debug, serde::Serialize)]
struct Speed {
    bytes: u64,
    tokens: u64,
    /// Median of the passes.
    seconds: f64,
    threads: usize,
}

/// One tokenizer's results.
#[derive(Debug, serde::Serialize)]
struct Looked {
    #[serde(flatten)]
    report: Report,
    speed: Option<Speed>,
}

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    let rows = args.rows.reading(ChatMarkers::default())?;
    let mut files = Vec::new();
    for path in texts::files(&args.files)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        files.push((name.into_owned(), texts::whole(&path, &rows)?));
    }
    let timed = args.speed.as_deref().map(|path| texts::whole(path, &rows));
    let timed = timed.transpose()?;
    let look = |path: &Path| -> anyhow::Result<Looked> {
        let of_a_run = || model_ref::of_run(&path.to_string_lossy(), cx);
        let place = match path.exists() {
            true => path.into(),
            false => of_a_run().transpose()?.unwrap_or_else(|| path.into()),
        };
        let tokenizer = load(&tokenizer_place(&place), &Child::of_this_program())
            .map_err(|e| user_error(&e))?;
        let speed = timed
            .as_deref()
            .map(|text| speed(&tokenizer, text))
            .transpose()?;
        Ok(Looked {
            report: check::check(&tokenizer, &path.display().to_string(), &files),
            speed,
        })
    };
    let own = look(&args.tokenizer)?;
    let other = args.against.as_deref().map(look).transpose()?;
    let mut out = std::io::stdout().lock();
    if args.json {
        let all = serde_json::json!({"tokenizer": own, "against": other});
        writeln!(out, "{}", crate::cli::out::json(&all)?)?;
    } else {
        findings(&own, &mut out)?;
        if let Some(other) = &other {
            writeln!(out)?;
            findings(other, &mut out)?;
        }
        writeln!(out)?;
        table(&own, other.as_ref(), &mut out)?;
    }
    let bad = own.report.findings.iter().any(|f| f.status == Status::Fail);
    Ok(if bad { Exit::UserError } else { Exit::Done })
}

fn speed(tokenizer: &Tokenizer, text: &str) -> Result<Speed, Failure> {
    let mut seconds = Vec::new();
    let mut tokens = 0;
    for _ in 0..PASSES {
        let clock = SystemClock::new();
        tokens = tokenizer.encode(text).map_err(|e| user_error(&e))?.len();
        seconds.push(clock.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    Ok(Speed {
        bytes: text.len() as u64,
        tokens: tokens as u64,
        seconds: seconds[PASSES / 2],
        threads: rayon::current_num_threads(),
    })
}

/// Columns of a title.
const TITLE: usize = 38;

/// ```text
/// tokenizer (tokenizer.json), 8,192 tokens
/// ok       Text round-trips unchanged               all 22 samples
/// FAIL     Line ends and tabs are kept             "a\nb" comes back as "a b"
///          fix   …
/// ```
fn findings(looked: &Looked, out: &mut impl Write) -> std::io::Result<()> {
    let report = &looked.report;
    writeln!(
        out,
        "{} ({}), {} tokens",
        one_line(&report.place),
        report.origin,
        human::grouped(report.vocab_size as u64)
    )?;
    for found in &report.findings {
        out.write_all(finding::rows(found, TITLE, "").as_bytes())?;
    }
    if let Some(used) = report.used {
        writeln!(
            out,
            "  used  {} of {} tokens ({}) occur in these files",
            human::grouped(used as u64),
            human::grouped(report.vocab_size as u64),
            human::percent(used as f64 / report.vocab_size.max(1) as f64, 1)
        )?;
    }
    if let Some(speed) = &looked.speed {
        writeln!(
            out,
            "  speed {}/s, {} tokens/s on {} ({} in {:.3} s)",
            human::bytes((speed.bytes as f64 / speed.seconds.max(1e-9)) as u64),
            human::short(speed.tokens as f64 / speed.seconds.max(1e-9)),
            human::counted(speed.threads as u64, "thread"),
            human::bytes(speed.bytes),
            speed.seconds
        )?;
    }
    Ok(())
}

/// Bytes per token, tokens per word and the rate of unknown tokens; two tokenizers side by side.
fn table(own: &Looked, other: Option<&Looked>, out: &mut impl Write) -> std::io::Result<()> {
    let rows = &own.report.fertility;
    let names = rows.iter().map(|row| one_line(&row.name).chars().count());
    let width = names.max().unwrap_or(0).clamp(8, 28);
    let heads = ["bytes/token", "tokens/word", "unknown"];
    let columns = heads.map(|head| format!("{head:>12}")).concat();
    match other {
        None => writeln!(out, "{:width$}{columns}", "")?,
        Some(other) => {
            let (a, b) = (&own.report.place, &other.report.place);
            writeln!(out, "{:width$}{:>36}   {:>36}", "", short(a), short(b))?;
            writeln!(out, "{:width$}{columns}   {columns}", "")?;
        }
    }
    for (at, row) in rows.iter().enumerate() {
        let name: String = one_line(&row.name).chars().take(width).collect();
        write!(out, "{name:width$}{}", cells(row))?;
        if let Some(theirs) = other.and_then(|other| other.report.fertility.get(at)) {
            write!(out, "   {}", cells(theirs))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn cells(row: &Fertility) -> String {
    let unknown = match row.unknown {
        0 => "-".to_string(),
        _ => human::percent(row.unknown_share(), 1),
    };
    format!(
        "{:>12.2}{:>12.2}{unknown:>12}",
        row.bytes_per_token(),
        row.tokens_per_word()
    )
}

/// The end of a path, where it differs from others.
fn short(place: &str) -> String {
    let place = one_line(place);
    let skip = place.chars().count().saturating_sub(34);
    place.chars().skip(skip).collect()
}
