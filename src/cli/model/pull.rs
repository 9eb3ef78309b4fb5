//! `llmtui model pull`: download a hub model into the cache.

use super::super::Context;
use super::super::exit::Exit;
use super::super::model_ref;
use crate::base::text::shown;
use crate::models::Parts;

/// Download a model from the Hugging Face hub into the cache (HF_HOME)
///
/// A repository with safetensors, or a GGUF file: the one that is named by its quantization or its name, in all its parts. Prints
/// where it lies.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  llmtui model pull Qwen/Qwen2.5-0.5B
  llmtui model pull bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M
  llmtui model pull org/name@v1.0:sub/FILE.gguf")]
pub struct Args {
    /// org/name, org/name@REVISION, org/name:Q4_K_M, org/name:FILE.gguf, or hf:name
    #[arg(value_name = "ID")]
    pub id: String,
    /// Only config.json and the tokenizer; a GGUF file comes whole or not at all
    #[arg(long)]
    pub without_weights: bool,
}

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    let parts = match args.without_weights {
        true => Parts::WithoutWeights,
        false => Parts::Everything,
    };
    let place = model_ref::pull(&args.id, parts, cx)?;
    outln!("{}", shown(&place))?;
    Ok(Exit::Done)
}
