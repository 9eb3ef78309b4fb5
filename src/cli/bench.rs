//! `llmtui bench`: how fast this machine trains.

use super::{
    Context,
    exit::{Exit, Failure},
};

/// Measure this machine
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    pub what: What,
}

#[derive(Debug, clap::Subcommand)]
pub enum What {
    Train(TrainArgs),
}

/// Tokens per second of training steps
#[derive(Debug, clap::Args)]
pub struct TrainArgs {
    /// Model size
    #[arg(long, value_name = "S", default_value = "S")]
    pub size: String,
    /// Number format of weights and arithmetic
    #[arg(long, value_name = "P", default_value = "f32")]
    pub precision: String,
    /// Measure for this long
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub seconds: u64,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

pub fn run(_args: Args, _cx: &Context) -> anyhow::Result<Exit> {
    Err(Failure::machine("`bench` is not in this build", "").into())
}
