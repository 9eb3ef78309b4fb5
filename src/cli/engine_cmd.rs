//! `llmtui engine`: the process behind a viewer. Not for people: `train` and `chat` start it.

use super::{
    Context,
    exit::{Exit, Failure},
};
use std::path::PathBuf;

/// Hold a training run or a model for viewers
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The run's directory
    #[arg(value_name = "RUN_DIR", required_unless_present = "infer")]
    pub run_dir: Option<PathBuf>,
    /// Hold this checkpoint's model and answer Generate commands
    #[arg(long, value_name = "CHECKPOINT", conflicts_with = "run_dir")]
    pub infer: Option<PathBuf>,
    /// Speak lines over standard input and output instead of a socket
    #[arg(long)]
    pub stdio: bool,
    /// Save and stop after this step
    #[arg(long, value_name = "STEP")]
    pub stop_after: Option<u64>,
    /// Train although a preflight check fails
    #[arg(long)]
    pub force: bool,
}

pub fn run(_args: Args, _cx: &Context) -> anyhow::Result<Exit> {
    Err(Failure::machine("`engine` is not in this build", "").into())
}
