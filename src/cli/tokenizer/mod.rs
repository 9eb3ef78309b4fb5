//! `llmtui tokenizer`: train a tokenizer or check one.

mod check;
mod texts;
mod train;

pub use train::{KINDS, Planned};

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

fn user_error(error: &DataError) -> Failure {
    Failure::data(error)
}
