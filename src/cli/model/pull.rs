//! `llmtui model pull`: download a hub model into the cache.

use super::super::Context;
use super::super::exit::Exit;
use super::super::model_ref;
use crate::base::text::shown;
use crate::models::Parts;

/// Download a model from the Hugging Face hub into the cache (HF_HOME)
#[derive(Debug, clap::Args)]
pub struct Args {
    /// org/name, org/name@revision, or hf:name
    #[arg(value_name = "ID")]
    pub id: String,
    /// Only config.json and the tokenizer
    #[arg(long)]
    pub without_weights: bool,
}

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    let parts = match args.without_weights {
        true => Parts::Description,
        false => Parts::Everything,
    };
    let folder = model_ref::pull(&args.id, parts, cx)?;
    outln!("{}", shown(&folder))?;
    Ok(Exit::Done)
}
