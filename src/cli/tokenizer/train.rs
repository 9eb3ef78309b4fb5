//! `llmtui tokenizer train`: trains a vocabulary on texts or rows and writes it as a folder other programs can load.

use super::super::Context;
use super::super::exit::{Exit, Failure};
use super::texts::{RowOptions, RowReading};
use super::{texts, user_error};
use crate::base::clock::{Clock, SystemClock};
use crate::base::files::write_atomic;
use crate::base::human;
use crate::base::near::{nearest, unknown};
use crate::base::place::try_make;
use crate::base::text::shown;
use crate::data::tokenizer::{CONFIG, ChatMarkers, Tokenizer, TokenizerConfig};
use crate::pipeline::TrainTokenizer;
use std::io::{IsTerminal, Write};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::PoisonError;
use std::time::Duration;

/// Least time between two progress lines.
const PACE: Duration = Duration::from_millis(250);
/// Bytes of the input that are encoded afterwards to report compression.
const TRIAL_BYTES: usize = 16 << 20;

/// Kinds that are learned from texts; `file` is there already.
pub const KINDS: [&str; 4] = ["bpe", "unigram", "wordpiece", "char"];
/// Vocabulary sizes that can be asked for.
pub const SIZES: RangeInclusive<i64> = 100..=1_000_000;

/// Train a tokenizer on text files, or on rows as a run would read them
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  llmtui tokenizer train --vocab-size 8192 corpus/*.txt
  llmtui tokenizer train --kind unigram --vocab-size 4096 --chat-markers chatml --out mine corpus.txt
  llmtui tokenizer train --vocab-size 4096 chats.jsonl more.parquet
To use it in a spec: -s 'data.tokenizer={file: {path: mine}}'")]
pub struct Args {
    /// Text files, rows (JSONL, JSON, CSV, TSV, parquet; .gz, .zst), or folders of them
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Kind of tokenizer
    #[arg(long, value_name = "KIND", default_value = "bpe", value_parser = KINDS)]
    pub kind: String,
    /// Vocabulary size, special tokens included; `char` uses the characters it finds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(SIZES))]
    pub vocab_size: Option<u32>,
    /// Pre-tokenizer rule that splits text into words (bpe)
    #[arg(long, value_name = "RULE", value_parser = ["gpt2", "llama3", "qwen2"])]
    pub split: Option<String>,
    /// Additional special token, never split; may be repeated
    #[arg(long = "special", value_name = "TOKEN")]
    pub specials: Vec<String>,
    /// Add a chat template's markers as special tokens; conversations become text by it (chatml by default)
    #[arg(long, value_name = "TEMPLATE", value_parser = ChatMarkers::WORDS.map(|(word, _)| word))]
    pub chat_markers: Option<String>,
    #[command(flatten)]
    pub rows: RowOptions,
    /// Output folder
    #[arg(long, value_name = "DIR", default_value = "tokenizer")]
    pub out: PathBuf,
    /// Overwrite an existing tokenizer
    #[arg(long)]
    pub force: bool,
}

pub fn run(args: &Args, _cx: &Context) -> anyhow::Result<Exit> {
    let config = config(args)?;
    let json_path = args.out.join("tokenizer.json");
    for path in [&json_path, &args.out.join(CONFIG)] {
        if path.exists() && !args.force {
            let what = format!("{} already exists", shown(path));
            return Err(Failure::user_error(
                what,
                "choose another folder (--out DIR), or use --force",
            )
            .into());
        }
    }
    let files = texts::files(&args.files)?;
    let rows = rows(args)?;
    try_make(&args.out).map_err(|e| Failure::not_made(&args.out, &e))?;
    let clock = SystemClock::new();
    let (tokenizer, skipped) = learn(&config, (&files, &rows), progress(text_bytes(&files)?))?;
    if skipped > 0 {
        errln!("note: {} left out", human::counted(skipped, "row"));
    }
    let took = clock.elapsed();
    std::fs::create_dir_all(&args.out).map_err(|e| Failure::not_made(&args.out, &e))?;
    let config_path = args.out.join(CONFIG);
    for (path, json) in [
        (json_path, tokenizer.to_json()),
        (config_path, &tokenizer.config_json()),
    ] {
        write_atomic(&path, json.as_bytes()).map_err(|e| Failure::not_written(&path, &e))?;
    }
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "{}: {} tokens in {}",
        config.entry().title,
        human::grouped(tokenizer.vocab_size() as u64),
        human::duration(took)
    )?;
    if let Some(wanted) = args
        .vocab_size
        .filter(|n| tokenizer.vocab_size() < *n as usize)
    {
        writeln!(
            out,
            "fewer than the requested {}: the text has no more repeated pieces",
            human::grouped(u64::from(wanted))
        )?;
    }
    trial(&tokenizer, (&files, &rows), &mut out)?;
    writeln!(out, "written to {}", shown(&args.out))?;
    writeln!(out, "check it: llmtui tokenizer check {}", shown(&args.out))?;
    writeln!(
        out,
        "use it: -s data.tokenizer.file.path={}",
        shown(&args.out)
    )?;
    Ok(Exit::Done)
}

/// How rows are read.
fn rows(args: &Args) -> Result<RowReading, Failure> {
    let mut markers = ChatMarkers::WORDS.into_iter();
    let markers = markers.find(|(word, _)| args.chat_markers.as_deref() == Some(word));
    args.rows
        .reading(markers.map_or(ChatMarkers::Auto, |(_, markers)| markers))
}

/// The same values as in a spec.
fn config(args: &Args) -> Result<TokenizerConfig, Failure> {
    if args.kind == "char" && args.vocab_size.is_some() {
        let what = "--kind char takes no --vocab-size: every character of the text is a token";
        return Err(Failure::user_error(what, "leave it out, or --kind bpe"));
    }
    let mut settings = serde_json::Map::new();
    let mut set = |key: &str, value: serde_json::Value| settings.insert(key.into(), value);
    if let Some(n) = args.vocab_size {
        set("vocab_size", n.into());
    }
    if let Some(split) = &args.split {
        set("split", split.as_str().into());
    }
    if !args.specials.is_empty() {
        set("special_tokens", args.specials.clone().into());
    }
    if let Some(markers) = &args.chat_markers {
        set("chat_markers", markers.as_str().into());
    }
    let whole = serde_json::json!({ args.kind.clone(): settings });
    crate::base::json::read(&whole).map_err(|e| {
        Failure::user_error(
            format!("--kind {}: {e}", args.kind),
            "llmtui tokenizer train --help lists the options of each kind",
        )
    })
}

/// Bytes of all files.
///
/// # Errors
/// They hold nothing.
fn text_bytes(files: &[PathBuf]) -> Result<u64, Failure> {
    let total: u64 = files
        .iter()
        .filter_map(|file| std::fs::metadata(file).ok())
        .map(|info| info.len())
        .sum();
    if total == 0 {
        let names: Vec<String> = files.iter().map(|file| shown(file)).collect();
        let what = format!("{}: no text to train on", names.join(", "));
        return Err(Failure::user_error(what, "name files with text"));
    }
    Ok(total)
}

/// Learns from all files; returns the rows that were left out, too. Where nobody says the marks, conversations bring theirs, as in a
/// run that learns its tokenizer.
fn learn(
    config: &TokenizerConfig,
    (files, rows): (&[PathBuf], &RowReading),
    progress: Box<dyn FnMut(u64) + Send>,
) -> Result<(Tokenizer, u64), Failure> {
    let config = config.with_chat_markers(rows.markers(files)?);
    let (mut pieces, fault) = texts::Pieces::new(files.to_vec(), rows.clone(), progress);
    let outcome = config.learn(&mut pieces);
    // A file error that ended the reading is the cause of whatever came after.
    if let Some(fault) = fault.lock().unwrap_or_else(PoisonError::into_inner).take() {
        return Err(fault);
    }
    let tokenizer = outcome.map_err(|e| user_error(&e))?;
    Ok((tokenizer, pieces.skipped()))
}

/// A tokenizer that a stage of a pipeline is to learn, held against its files; nothing is written.
pub struct Planned {
    config: TokenizerConfig,
    files: Vec<PathBuf>,
    rows: RowReading,
}

impl Planned {
    /// # Errors
    /// A value that `llmtui tokenizer train` refuses, with its key: a kind, a size or markers that do not exist, a file that is not
    /// there or holds no text.
    pub fn of(asked: &TrainTokenizer) -> Result<Planned, (&'static str, Failure)> {
        let sizes = SIZES;
        if let Some(size) = asked.vocab_size
            && !sizes.contains(&i64::from(size))
        {
            let what = format!("{size} is not from {} to {}", sizes.start(), sizes.end());
            return Err(("vocab_size", Failure::user_error(what, "vocab_size: 8192")));
        }
        if let Some(markers) = &asked.chat_markers
            && ChatMarkers::WORDS.iter().all(|(word, _)| word != markers)
        {
            let known = ChatMarkers::WORDS.map(|(word, _)| word);
            let near = nearest(markers, known);
            let (what, hint) = unknown("chat template", markers, near, &known);
            return Err(("chat_markers", Failure::user_error(what, hint)));
        }
        let args = Args {
            files: asked.files.clone(),
            kind: asked.kind.clone(),
            vocab_size: asked.vocab_size,
            split: None,
            specials: Vec::new(),
            chat_markers: asked.chat_markers.clone(),
            rows: RowOptions::default(),
            out: PathBuf::new(),
            force: true,
        };
        let config = config(&args).map_err(|failure| ("vocab_size", failure))?;
        if args.files.is_empty() {
            let failure = Failure::user_error("it names none", "files: [corpus.txt]");
            return Err(("files", failure));
        }
        // What a folder holds besides is reported when the stage begins.
        let files = texts::listed(&args.files, &|_| {}).map_err(|failure| ("files", failure))?;
        text_bytes(&files).map_err(|failure| ("files", failure))?;
        let rows = rows(&args).map_err(|failure| ("files", failure))?;
        rows.markers(&files).map_err(|failure| ("files", failure))?;
        Ok(Planned {
            config,
            files,
            rows,
        })
    }

    /// How many tokens it comes to, at most; characters are counted.
    ///
    /// # Errors
    /// A file that is no text.
    pub fn vocab_size(&self) -> Result<usize, Failure> {
        match self.config.vocab_size() {
            Some(size) => Ok(size),
            None => {
                let learned = learn(&self.config, (&self.files, &self.rows), Box::new(|_| {}))?;
                Ok(learned.0.vocab_size())
            }
        }
    }
}

/// Shows progress on standard error: one updating line at a terminal, separate lines elsewhere.
fn progress(total: u64) -> Box<dyn FnMut(u64) + Send> {
    let clock = SystemClock::new();
    let terminal = std::io::stderr().is_terminal();
    let pace = if terminal { PACE } else { PACE * 20 };
    let mut last = Duration::ZERO;
    let mut ended = false;
    Box::new(move |read| {
        let now = clock.elapsed();
        let end = read >= total && !ended;
        if !end && now < last + pace {
            return;
        }
        last = now;
        ended |= end;
        let rate = read as f64 / now.as_secs_f64().max(1e-3);
        let line = format!(
            "reading {} of {}, {}/s",
            human::bytes(read),
            human::bytes(total),
            human::bytes(rate as u64)
        );
        let (front, back) = if terminal {
            ("\r\x1b[K", "")
        } else {
            ("", "\n")
        };
        let mut errors = std::io::stderr().lock();
        let _ = write!(errors, "{front}{line}{back}");
        if end {
            let newline = if terminal { "\n" } else { "" };
            let _ = writeln!(errors, "{newline}words counted; choosing tokens");
        }
        let _ = errors.flush();
    })
}

/// Compression of the new vocabulary on its training text.
fn trial(
    tokenizer: &Tokenizer,
    (files, rows): (&[PathBuf], &RowReading),
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let (pieces, _) = texts::Pieces::new(files.to_vec(), rows.clone(), Box::new(|_| {}));
    let mut text = String::new();
    for piece in pieces {
        text.push_str(&piece);
        if text.len() >= TRIAL_BYTES {
            break;
        }
    }
    let clock = SystemClock::new();
    let tokens = tokenizer.encode(&text).map_err(|e| user_error(&e))?.len();
    let seconds = clock.elapsed().as_secs_f64().max(1e-6);
    writeln!(
        out,
        "{:.2} bytes per token on this text, {} tokens/s ({}/s)",
        text.len() as f64 / tokens.max(1) as f64,
        human::short(tokens as f64 / seconds),
        human::bytes((text.len() as f64 / seconds) as u64)
    )?;
    Ok(())
}

/// Command-line values are those of a spec.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::tokenizer::Split;

    fn args(kind: &str) -> Args {
        Args {
            files: Vec::new(),
            kind: kind.into(),
            vocab_size: Some(512),
            split: None,
            specials: vec!["<x>".into()],
            chat_markers: Some("chatml".into()),
            rows: RowOptions::default(),
            out: "x".into(),
            force: false,
        }
    }

    #[test]
    fn every_set_of_markers_can_be_asked_for() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: Args,
        }
        for (word, _) in ChatMarkers::WORDS {
            let line = ["x", "--chat-markers", word, "corpus.txt"];
            let args = <Line as clap::Parser>::try_parse_from(line).unwrap().args;
            assert_eq!(args.chat_markers.as_deref(), Some(word));
        }
    }

    #[test]
    fn arguments_become_a_spec() {
        let mut bpe = args("bpe");
        bpe.split = Some("qwen2".into());
        let TokenizerConfig::Bpe(made) = config(&bpe).unwrap() else {
            panic!("not a bpe");
        };
        assert_eq!((made.vocab_size, made.split), (512, Split::Qwen2));
        assert_eq!(made.chat_markers, ChatMarkers::Chatml);
        assert_eq!(made.special_tokens, ["<x>"]);
        assert!(matches!(
            config(&args("wordpiece")),
            Ok(TokenizerConfig::Wordpiece(_))
        ));
    }

    #[test]
    fn what_a_kind_does_not_know_is_refused() {
        let error = config(&args("char")).unwrap_err();
        assert!(error.what.contains("takes no --vocab-size"));
        let mut char = args("char");
        char.vocab_size = None;
        let what = config(&char).unwrap_err().what;
        assert!(what.starts_with("--kind char: "), "{what}");
    }
}
