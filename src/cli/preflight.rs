//! `llmtui preflight`: the checks alone.

use super::{
    Context,
    args::SpecArgs,
    exit::{Exit, Failure},
};

/// Run the checks that save expensive mistakes, and train nothing
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub spec: SpecArgs,
    /// Print the results as JSON, one object a line
    #[arg(long)]
    pub json: bool,
}

pub fn run(_args: Args, _cx: &Context) -> anyhow::Result<Exit> {
    Err(Failure::machine("`preflight` is not in this build", "").into())
}
