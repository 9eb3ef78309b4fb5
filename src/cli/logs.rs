//! `llmtui logs`: what a run has logged.

use super::progress::Progress;
use super::{Context, attach, exit::Exit, exit::Failure, run_ref};
use crate::link::{Incoming, replay};
use crate::wire::encode;
use std::io::Write;

/// Print a run's log: steps, evaluations, checkpoints, notes
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A run's directory, id or name; default: the newest live run
    #[arg(value_name = "RUN")]
    pub run: Option<String>,
    /// Keep printing until the run ends
    #[arg(short, long)]
    pub follow: bool,
    /// Print the events, one JSON object a line
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    let run = run_ref::find(args.run.as_deref(), cx)?;
    if args.follow {
        return attach::follow(&run, args.json, cx);
    }
    run_ref::check_log(&run)?;
    let mut link = replay(&run.events_path()).map_err(|e| run_ref::no_log(&run, &e))?;
    let mut out = std::io::stdout().lock();
    let mut progress = Progress::new();
    loop {
        let envelope = match link.blocking_recv() {
            Incoming::Event(envelope) => envelope,
            Incoming::Closed(Some(why)) => {
                let what = format!("{}: {why}", run.events_path().display());
                return Err(
                    Failure::machine(what, "check that it is a file, and who may read it").into(),
                );
            }
            Incoming::CaughtUp | Incoming::Closed(None) => return Ok(Exit::Done),
        };
        let lines = progress.tell(&envelope);
        match args.json {
            true => out.write_all(encode(&*envelope).as_bytes())?,
            false => lines.iter().try_for_each(|line| writeln!(out, "{line}"))?,
        }
    }
}
