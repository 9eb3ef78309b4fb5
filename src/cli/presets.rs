//! `llmtui presets`: what can be trained without writing a file.

use super::{
    Context,
    exit::{Exit, Failure},
};
use std::path::PathBuf;

/// List, show or copy the specs that come with the program and your own
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    pub what: What,
}

#[derive(Debug, clap::Subcommand)]
pub enum What {
    /// Names, one sentence each, and where they come from
    List,
    /// The whole spec with every default filled in
    Show {
        /// A preset's name or a path
        #[arg(value_name = "NAME")]
        name: String,
        /// Say of each line where its value comes from
        #[arg(long)]
        origins: bool,
        /// Change one value first; may be repeated
        #[arg(short = 's', long = "set", value_name = "KEY=VALUE")]
        set: Vec<String>,
    },
    /// Write a preset's file for editing; never overwrites
    Eject {
        /// A preset's name
        #[arg(value_name = "NAME")]
        name: String,
        /// Where to. Default: NAME.yaml
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
}

pub fn run(_args: Args, _cx: &Context) -> anyhow::Result<Exit> {
    Err(Failure::machine("`presets` is not in this build", "").into())
}
