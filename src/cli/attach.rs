//! `llmtui attach`: join a run that goes on, or look at one that is over.

use super::{
    Context,
    exit::{Exit, Failure},
};

/// Open a run in the workbench: live if it goes on, otherwise from its log
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A run's directory, name or unambiguous prefix; without it, the newest live run
    #[arg(value_name = "RUN")]
    pub run: Option<String>,
}

pub fn run(_args: Args, _cx: &Context) -> anyhow::Result<Exit> {
    Err(Failure::machine("`attach` is not in this build", "").into())
}
