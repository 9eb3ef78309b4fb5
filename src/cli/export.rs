//! `llmtui export`: write a checkpoint in another program's format.

use super::Context;
use super::exit::{Exit, Failure};
use super::model_ref;
use crate::base::human;
use crate::base::text::shown;
use crate::engine::export::{
    self, About, AdapterSource, ExportError, FORMATS, Options, PEFT, Source, Written,
};
use crate::models::{self, Kind, Parts};
use crate::plan::quantity::parse_bytes;
use std::path::{Path, PathBuf};

/// Export a model for other programs: transformers, vLLM, llama.cpp
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  llmtui export shakespeare --to out/shakespeare
  llmtui export runs/…/checkpoints/step-001000 --dtype bf16 --max-shard-size 2GB --to out/model
  llmtui export Qwen/Qwen2.5-0.5B --dtype f16 --to out/qwen
  llmtui export shakespeare --format gguf --dtype q8_0 --to out/gguf
  llmtui export my-lora-run --to out/merged                       # base and adapter as one model
  llmtui export my-lora-run --format peft --to out/adapter        # the adapter alone, for PEFT and the hub
  llmtui export model-q4_k.gguf --dequantize --to out/base")]
pub struct Args {
    /// A checkpoint folder, a run (its best checkpoint), a Hugging Face model folder, a GGUF file or a hub id
    #[arg(value_name = "CHECKPOINT")]
    pub checkpoint: String,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "hf", value_parser = formats())]
    pub format: String,
    /// Data type of the weights; default: the format's first
    #[arg(long, value_name = "TYPE")]
    pub dtype: Option<String>,
    /// Output folder; must be absent or empty
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
    /// For --format peft: the base's id on the hub, which its files name; default: what the run started from
    #[arg(long, value_name = "ORG/NAME", value_parser = model_ref::base_model)]
    pub base_model: Option<String>,
    /// For a GGUF file: write its weights in f32, f16 or bf16 for training
    #[arg(long)]
    pub dequantize: bool,
    /// Largest weight file; larger models are sharded
    #[arg(long, value_name = "SIZE", default_value = "5GB", value_parser = parse_bytes)]
    pub max_shard_size: u64,
}

/// Values of `--format`, for help and completion.
fn formats() -> clap::builder::PossibleValuesParser {
    let value = |format: &&export::Format| {
        let help = format!("{} ({})", format.summary, format.dtypes.join(", "));
        clap::builder::PossibleValue::new(format.word).help(help)
    };
    let (word, summary, dtypes) = PEFT;
    let peft =
        clap::builder::PossibleValue::new(word).help(format!("{summary} ({})", dtypes.join(", ")));
    clap::builder::PossibleValuesParser::new(FORMATS.iter().map(value).chain([peft]))
}

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    if args.format == PEFT.0 {
        return adapter(args, cx);
    }
    if args.base_model.is_some() {
        let what = format!(
            "--base-model names the base of an adapter, and --format {} writes a whole model",
            args.format
        );
        return Err(Failure::yours(what, "leave it out, or --format peft").into());
    }
    let format = export::format(&args.format).map_err(|e| failed(&e))?;
    let options = options(args, format.dtypes);
    export::check_free(&args.to).map_err(|e| failed(&e))?;
    let folder = model_ref::find(&args.checkpoint, Parts::Everything, cx)?;
    let is_file = models::kind(&folder).is_ok_and(|kind| kind == Kind::Gguf);
    if is_file && args.format != "gguf" && !args.dequantize {
        let what = format!("{} holds quantized weights", shown(&folder));
        let hint = "add --dequantize to convert them to floats for training";
        return Err(Failure::yours(what, hint).into());
    }
    let source = Source::open(&folder).map_err(|e| failed(&e))?;
    let written = export::export(&source, format, &options, &args.to).map_err(|e| failed(&e))?;
    tell(&args.to, &written)?;
    if source.from.adapter().is_some() {
        say!("{MERGED}")?;
    }
    Ok(Exit::Done)
}

/// What whoever exports a run with an adapter may not expect.
pub(super) const MERGED: &str =
    "the adapter is merged into its base; --format peft writes the adapter alone";

/// The adapter of a run, without its base.
fn adapter(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    export::check_free(&args.to).map_err(|e| failed(&e))?;
    let folder = folder_of(&args.checkpoint, cx)?;
    let source =
        AdapterSource::open(&folder, args.base_model.as_deref()).map_err(|e| failed(&e))?;
    let about = About::default();
    let written = export::export_adapter(&source, &options(args, PEFT.2), &about, &args.to)
        .map_err(|e| failed(&e))?;
    tell(&args.to, &written)?;
    Ok(Exit::Done)
}

/// Where an adapter lies: a folder of PEFT's is no model, and is taken as it is.
pub(super) fn folder_of(word: &str, cx: &Context) -> anyhow::Result<PathBuf> {
    let path = Path::new(word);
    match path.join(crate::hf::ADAPTER_CONFIG).is_file() {
        true => Ok(path.into()),
        false => model_ref::find(word, Parts::Everything, cx),
    }
}

fn options(args: &Args, dtypes: &[&str]) -> Options {
    Options {
        dtype: args.dtype.clone().unwrap_or_else(|| dtypes[0].to_string()),
        max_shard_bytes: args.max_shard_size,
    }
}

fn tell(to: &Path, written: &[Written]) -> anyhow::Result<()> {
    say!("{}", shown(to))?;
    for file in written {
        say!("  {:>10}  {}", human::bytes(file.bytes), file.name)?;
        for note in &file.notes {
            say!("              {note}")?;
        }
    }
    Ok(())
}

pub(super) fn failed(error: &ExportError) -> Failure {
    let what = crate::base::text::one_line(&error.to_string());
    match error {
        ExportError::Io { .. } => Failure::machine(what, error.hint()),
        _ => Failure::yours(what, error.hint()),
    }
}
