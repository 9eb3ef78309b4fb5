//! `llmtui train`: start a run, or go on with one.

use super::{
    Context,
    args::{Resume, SpecArgs},
    exit::{Exit, Failure},
};

/// Train a model from a preset or a spec file
///
/// With a terminal the run starts in the background and the workbench shows it; leaving the workbench leaves the run.
#[derive(Debug, Default, clap::Args)]
#[command(after_help = "Examples:
  llmtui train quickstart
  llmtui train shakespeare -s data.path=my.txt -s max_steps=500
  llmtui train my.yaml --headless --json > events.jsonl
  llmtui train --resume auto")]
pub struct Args {
    #[command(flatten)]
    pub spec: SpecArgs,
    /// Print progress lines instead of opening the workbench
    #[arg(long)]
    pub headless: bool,
    /// Print the run's events, one JSON object a line (implies --headless)
    #[arg(long)]
    pub json: bool,
    /// Keep the engine in this process: closing the terminal then ends the run
    #[arg(long)]
    pub foreground: bool,
    /// Go on with a run from its last checkpoint: a run's directory or name, or `auto` for the newest
    #[arg(long, value_name = "RUN|auto", alias = "resume-from-checkpoint")]
    pub resume: Option<Resume>,
    /// Save and stop after this step, without changing the schedule
    #[arg(long, value_name = "STEP")]
    pub stop_after: Option<u64>,
    /// Check the spec, say what would run, and stop
    #[arg(long)]
    pub dry_run: bool,
    /// Train although a preflight check fails
    #[arg(long)]
    pub force: bool,
}

impl Args {
    /// `train quickstart --headless`: what the program does without a verb and without a terminal.
    pub fn quickstart() -> Args {
        Args {
            spec: SpecArgs {
                spec: Some("quickstart".into()),
                ..Default::default()
            },
            headless: true,
            ..Default::default()
        }
    }
}

pub fn run(_args: Args, _cx: &Context) -> anyhow::Result<Exit> {
    Err(Failure::machine("`train` is not in this build", "").into())
}
