//! `llmtui export`: write a checkpoint in another program's format.

use super::Context;
use super::exit::{Exit, Failure};
use super::model_ref;
use crate::base::human;
use crate::base::place::{try_make, try_write};
use crate::base::text::shown;
use crate::engine::export::{
    self, About, AdapterSource, ExportError, FORMATS, Options, PEFT, Source, Written,
};
use crate::models::{self, Kind, ModelSource, Parts};
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
    #[arg(long, value_name = "FORMAT", default_value = DEFAULT, value_parser = formats())]
    pub format: String,
    /// Dtype of the weights; default: the format's first
    #[arg(long, value_name = "TYPE")]
    pub dtype: Option<String>,
    /// Output folder; must be absent or empty. For --format gguf also a file that ends in .gguf
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
    /// For --format peft: hub id of the base model, written into its files; default: what the run started from
    #[arg(long, value_name = "ORG/NAME", value_parser = model_ref::base_model)]
    pub base_model: Option<String>,
    /// For a GGUF file with quantized weights: write them in f32, f16 or bf16 for training
    #[arg(long)]
    pub dequantize: bool,
    /// Largest weight file; larger models are sharded
    #[arg(long, value_name = "SIZE", default_value = "5GB", value_parser = parse_bytes)]
    pub max_shard_size: u64,
}

/// What is written where nobody names a format.
pub(super) const DEFAULT: &str = "hf";

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
            "--base-model names an adapter's base, but --format {} writes a whole model",
            args.format
        );
        return Err(Failure::user_error(what, "drop it, or use --format peft").into());
    }
    let format = export::format(&args.format).map_err(|e| failed(&e))?;
    let options = options(args, format.dtypes);
    let file = names_a_file(&args.to);
    if file && args.format != "gguf" {
        let what = format!(
            "{} is the name of a GGUF file, but --format {} writes a folder",
            shown(&args.to),
            args.format
        );
        return Err(Failure::user_error(what, "add --format gguf, or name a folder").into());
    }
    match file {
        true => check_new(&args.to)?,
        false => export::check_free(&args.to).map_err(|e| failed(&e))?,
    }
    let folder = model_ref::find(&args.checkpoint, Parts::Everything, cx)?;
    let is_file = models::kind(&folder).is_ok_and(|kind| kind == Kind::Gguf);
    // What cannot be opened is refused below, with its cause.
    let quantized = || ModelSource::open(&folder).is_ok_and(|source| source.is_quantized());
    if is_file && args.format != "gguf" && !args.dequantize && quantized() {
        let what = format!("{} has quantized weights", shown(&folder));
        let hint = "add --dequantize to convert them to floats for training";
        return Err(Failure::user_error(what, hint).into());
    }
    let source = Source::open(&folder).map_err(|e| failed(&e))?;
    let export = |to: &Path| export::export(&source, format, &options, to).map_err(|e| failed(&e));
    match file {
        true => tell_file(&args.to, &under_a_name(&args.to, export)?)?,
        false => print_result(&args.to, &export(&args.to)?)?,
    }
    if args.format == "gguf" {
        outln!("{ELSEWHERE}")?;
    }
    if source.from.adapter().is_some() {
        outln!("{MERGED}")?;
    }
    Ok(Exit::Done)
}

/// `model.gguf`, the name of the one file of an export.
fn names_a_file(to: &Path) -> bool {
    to.extension()
        .is_some_and(|end| end.eq_ignore_ascii_case("gguf"))
        && !to.is_dir()
}

fn check_new(to: &Path) -> Result<(), Failure> {
    match std::fs::symlink_metadata(to) {
        Ok(_) => Err(Failure::user_error(
            format!("{} already exists and is not overwritten", shown(to)),
            "choose another name, or delete it",
        )),
        Err(_) => {
            let tried = match to.parent().filter(|parent| !parent.exists()) {
                Some(parent) if parent != Path::new("") => try_make(parent),
                _ => try_write(to),
            };
            tried.map_err(|e| Failure::not_written(to, &e))
        }
    }
}

/// Exports into a folder beside the file, and gives its one GGUF file the name of the user's; a card is for folders.
fn under_a_name(
    to: &Path,
    export: impl FnOnce(&Path) -> Result<Vec<Written>, Failure>,
) -> Result<Vec<Written>, Failure> {
    let name = to.file_name().unwrap_or_default().to_string_lossy();
    let folder = to.with_file_name(format!(".{name}.folder"));
    // What an export that was killed has left.
    let _ = std::fs::remove_dir_all(&folder);
    // What is said is of the file that was asked for.
    let of_the_file = |mut failure: Failure| {
        failure.what = failure.what.replace(&shown(&folder), &shown(to));
        failure
    };
    let written = export(&folder).map_err(of_the_file)?;
    let mut files = written;
    files.retain(|file| names_a_file(Path::new(&file.name)));
    let moved = match files.as_slice() {
        [file] => check_new(to).and_then(|()| {
            let moved = std::fs::rename(folder.join(&file.name), to);
            moved.map_err(|e| Failure::not_written(to, &e))
        }),
        _ => Err(Failure::user_error(
            "this model needs several files",
            "name a folder",
        )),
    };
    let _ = std::fs::remove_dir_all(&folder);
    moved.map(|()| files)
}

fn tell_file(to: &Path, written: &[Written]) -> anyhow::Result<()> {
    for file in written {
        outln!("{}, {}", shown(to), human::bytes(file.bytes))?;
        for note in &file.notes {
            outln!("  {note}")?;
        }
    }
    Ok(())
}

/// What to do with a GGUF file.
const ELSEWHERE: &str =
    "llama-cli -m FILE runs it; Ollama takes a Modelfile with FROM ./FILE (docs/models.md, GGUF)";

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
    print_result(&args.to, &written)?;
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

fn print_result(to: &Path, written: &[Written]) -> anyhow::Result<()> {
    outln!("{}", shown(to))?;
    for file in written {
        outln!("  {:>10}  {}", human::bytes(file.bytes), file.name)?;
        for note in &file.notes {
            outln!("              {note}")?;
        }
    }
    Ok(())
}

pub(super) fn failed(error: &ExportError) -> Failure {
    let what = crate::base::text::one_line(&error.to_string());
    match error {
        ExportError::Io { source, .. } | ExportError::Unread { source, .. } => {
            Failure::unwritten(what, source, error.hint())
        }
        _ => Failure::user_error(what, error.hint()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exported(folder: &Path, names: &[&str]) -> Result<Vec<Written>, Failure> {
        std::fs::create_dir(folder).unwrap();
        let write = |name: &&str| {
            std::fs::write(folder.join(name), "GGUF").unwrap();
            Written {
                name: name.to_string(),
                bytes: 4,
                notes: Vec::new(),
            }
        };
        Ok(names.iter().map(write).collect())
    }

    #[test]
    fn a_gguf_file_gets_the_name_that_was_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("mine.gguf");
        assert!(names_a_file(&to) && !names_a_file(&dir.path().join("mine")));
        let both = ["long-name-F16.gguf", "README.md"];
        let written = under_a_name(&to, |folder| exported(folder, &both)).unwrap();
        assert_eq!((written.len(), written[0].name.as_str()), (1, both[0]));
        assert_eq!(std::fs::read_to_string(&to).unwrap(), "GGUF");
        // Nothing is written over, and nothing is left beside it.
        let again = under_a_name(&to, |folder| exported(folder, &["other-F16.gguf"]));
        assert!(again.unwrap_err().what.contains("already exists"));
        let several = dir.path().join("b.gguf");
        let several = under_a_name(&several, |folder| exported(folder, &["1", "2"]));
        assert_eq!(several.unwrap_err().hint, "name a folder");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        // A folder of that name is a folder.
        std::fs::create_dir(dir.path().join("x.gguf")).unwrap();
        assert!(!names_a_file(&dir.path().join("x.gguf")));
    }
}
