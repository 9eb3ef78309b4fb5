//! `llmtui logs`: what a run has logged.

use super::exit::{Exit, Failure};
use super::progress::Progress;
use super::{Context, attach, run_ref};
use crate::base::text::shown;
use crate::link::{Incoming, Link, replay};
use crate::wire::encode;
use std::io::Write;
use std::path::Path;

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
    let link = replay(&run.events_path()).map_err(|e| run_ref::no_log(&run, &e))?;
    print(
        link,
        args.json,
        &|line| cx.words(line),
        &mut std::io::stdout().lock(),
        &run.events_path(),
    )?;
    Ok(Exit::Done)
}

/// Prints a log to its end.
///
/// # Errors
/// It cannot be read to its end.
fn print(
    mut link: Link,
    json: bool,
    words: &dyn Fn(String) -> String,
    out: &mut impl Write,
    log: &Path,
) -> anyhow::Result<()> {
    let mut progress = Progress::new();
    loop {
        let envelope = match link.blocking_recv() {
            Incoming::Event(envelope) => envelope,
            Incoming::CaughtUp | Incoming::Closed(None) => break,
            Incoming::Closed(Some(why)) => {
                let what = format!("{}: {why}", shown(log));
                return Err(Failure::machine(what, "check that it is a file and readable").into());
            }
        };
        let lines = progress.lines_for(&envelope);
        match json {
            true => out.write_all(encode(&*envelope).as_bytes())?,
            false => lines
                .into_iter()
                .try_for_each(|line| writeln!(out, "{}", words(line)))?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_cannot_be_read_to_its_end_is_no_success() {
        let (events, incoming) = tokio::sync::mpsc::channel(1);
        let closed = Incoming::Closed(Some("the log cannot be read: a bad sector".into()));
        events.try_send(closed).unwrap();
        let log = Path::new("runs/a/events.jsonl");
        let error = print(
            Link::new(incoming, None),
            false,
            &|line| line,
            &mut Vec::new(),
            log,
        )
        .unwrap_err();
        let failure = error.downcast_ref::<Failure>().unwrap();
        assert_eq!(failure.exit, Exit::Machine);
        assert!(failure.what.contains("the log cannot be read"), "{failure}");
        assert!(failure.what.starts_with("runs/a/events.jsonl"), "{failure}");
    }
}
