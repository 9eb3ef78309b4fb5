//! `llmtui chat`: talk to a checkpoint.

use super::{
    Context,
    args::SamplingArgs,
    exit::{Exit, Failure},
};

/// Continue text with a checkpoint: one prompt, or line by line
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A checkpoint folder, or a run (its newest checkpoint)
    #[arg(value_name = "CHECKPOINT")]
    pub checkpoint: String,
    /// Continue this text, print the answer and stop
    #[arg(long, value_name = "P")]
    pub prompt: Option<String>,
    #[command(flatten)]
    pub sampling: SamplingArgs,
}

pub fn run(_args: Args, _cx: &Context) -> anyhow::Result<Exit> {
    Err(Failure::machine("`chat` is not in this build", "").into())
}
