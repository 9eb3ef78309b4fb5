//! `llmtui model`: inspect a model, or download one from the hub.

mod pull;
mod show;

use super::Context;
use super::exit::Exit;

/// Inspect a model (layers, parameters, FLOPs, memory) or download one from the hub
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    Show(show::Args),
    Pull(pull::Args),
}

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    match &args.verb {
        Verb::Show(args) => show::run(args, cx),
        Verb::Pull(args) => pull::run(args, cx),
    }
}
