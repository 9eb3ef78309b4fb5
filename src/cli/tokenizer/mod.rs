//! `llmtui tokenizer`: make a vocabulary, or see what one does to text.

mod check;
mod texts;
mod train;

use super::Context;
use super::exit::{Exit, Failure};
use crate::data::DataError;

/// Train a tokenizer, or check one
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
pub enum Verb {
    Train(train::Args),
    Check(check::Args),
}

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    match &args.verb {
        Verb::Train(args) => train::run(args, cx),
        Verb::Check(args) => check::run(args, cx),
    }
}

/// Bad data is the user's to correct.
fn yours(error: &DataError) -> Failure {
    Failure::yours(error.to_string(), error.hint())
}
