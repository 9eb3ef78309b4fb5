//! `llmtui model pull`: a model of the hub into its cache.

use super::super::Context;
use super::super::exit::Exit;
use super::super::model_ref;
use crate::engine::models::Parts;

/// Bring a model of the Hugging Face hub into the cache (HF_HOME)
#[derive(Debug, clap::Args)]
pub struct Args {
    /// org/name, org/name@revision, or hf:name
    #[arg(value_name = "ID")]
    pub id: String,
    /// config.json and the tokenizer alone
    #[arg(long)]
    pub without_weights: bool,
}

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    let parts = match args.without_weights {
        true => Parts::Description,
        false => Parts::Everything,
    };
    let folder = model_ref::pull(&args.id, parts, cx)?;
    println!("{}", folder.display());
    Ok(Exit::Done)
}
