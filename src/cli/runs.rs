//! `llmtui runs`: the list of runs.

use super::{
    Context,
    exit::{Exit, Failure},
};

/// List runs: live ones first, then the newest
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
}

pub fn run(_args: Args, _cx: &Context) -> anyhow::Result<Exit> {
    Err(Failure::machine("`runs` is not in this build", "").into())
}
