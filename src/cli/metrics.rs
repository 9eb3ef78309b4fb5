//! `llmtui metrics`: a run's metrics as a table, or as files of other programs. Reads the log of a run, never the run itself: what
//! goes wrong here cannot harm it.

mod args;
mod sink;
mod table;

pub use args::Args;

use super::exit::{Exit, Failure};
use super::subject::{LogArgs, Subject, no_readings};
use super::{Context, run_ref};
use crate::base::clock::{Clock, SystemClock, pause};
use crate::base::text::shown;
use crate::history::{Curves, Pattern};
use crate::run::{RunDir, Tail};
use crate::watch::{ExternalRun, Mapping};
use crate::wire::id;
use sink::Sink;
use std::io;
use std::time::Duration;

/// Time between two looks at a live run, at least; a look that takes long is followed by ten times its time.
const EVERY: Duration = Duration::from_secs(2);
const SHARE: u32 = 10;

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    let target = args.target()?;
    let subject = Subject::named(&args.run, &LogArgs::default(), cx)?;
    let mut source = Source::open(&subject, args.follow)?;
    let wanted = args.metric.iter().map(|text| Pattern::new(text));
    let mut curves = Curves::new(wanted.collect());
    if let Subject::Run(run) = &subject {
        curves.root = Some(run.path().into());
    }
    let Some(target) = target else {
        source.read(&mut curves)?;
        check(&curves, &subject, args)?;
        table::print(&curves, args, cx)?;
        return Ok(Exit::Done);
    };
    let mut sink = Sink::new(target, args);
    loop {
        let begun = cx.clock.elapsed();
        // Asked first: an engine that ends in between has then said so in its log.
        let live = args.follow && source.is_live(&curves);
        source.read(&mut curves)?;
        let ended = !live || source.has_ended(&curves);
        if ended {
            check(&curves, &subject, args)?;
        }
        sink.write(&mut curves, ended)?;
        if ended {
            break;
        }
        let took = cx.clock.elapsed().saturating_sub(begun);
        pause(EVERY.max(took.saturating_mul(SHARE)));
    }
    if let Some(path) = sink.path() {
        outln!("{}", shown(path))?;
    }
    Ok(Exit::Done)
}

/// Nothing to write is said, not written.
fn check(curves: &Curves, subject: &Subject, args: &Args) -> Result<(), Failure> {
    if !curves.records().is_empty() {
        return Ok(());
    }
    if curves.has_readings() && !args.metric.is_empty() {
        let mut ids: Vec<&str> = curves.state.series.keys().map(String::as_str).collect();
        // Those of the machine last: a training's own are what a name is for.
        ids.sort_by_key(|id| {
            [id::machine::HOST, id::machine::GPU, id::ranks::PREFIX]
                .iter()
                .any(|of| id.starts_with(of))
        });
        ids.truncate(20);
        let what = format!(
            "no metric of the run fits --metric {}",
            args.metric.join(" ")
        );
        let hint = format!("the run has {}", ids.join(", "));
        return Err(Failure::user_error(what, hint));
    }
    Err(match subject {
        Subject::Run(run) => {
            let what = format!("{} has no readings yet", shown(run.path()));
            Failure::user_error(what, "wait for its first step, or follow it with -f")
        }
        Subject::Log(found) => no_readings(found),
    })
}

/// Where events come from.
enum Source<'a> {
    Run {
        run: &'a RunDir,
        /// `None` until the engine has written its first line.
        tail: Option<Tail>,
    },
    Log(Box<ExternalRun>),
}

impl<'a> Source<'a> {
    fn open(subject: &'a Subject, follow: bool) -> Result<Source<'a>, Failure> {
        match subject {
            Subject::Run(run) => {
                let tail = match Tail::open(&run.events_path()) {
                    Ok(tail) => Some(tail),
                    Err(e) if e.kind() == io::ErrorKind::NotFound && follow && run.is_alive() => {
                        None
                    }
                    Err(e) => return Err(run_ref::no_log(run, &e)),
                };
                Ok(Source::Run { run, tail })
            }
            Subject::Log(found) => {
                let clock = Box::new(SystemClock::new());
                let watched = ExternalRun::open(found.clone(), Mapping::default(), clock);
                Ok(Source::Log(Box::new(watched)))
            }
        }
    }

    /// Takes what is new.
    fn read(&mut self, curves: &mut Curves) -> Result<(), Failure> {
        match self {
            Source::Run { run, tail } => {
                let failed = |e| run_ref::no_log(run, &e);
                if tail.is_none() {
                    *tail = match Tail::open(&run.events_path()) {
                        Ok(tail) => Some(tail),
                        // Its engine has just begun.
                        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
                        Err(e) => return Err(failed(e)),
                    };
                }
                let Some(tail) = tail else { return Ok(()) };
                while let Some(envelope) = tail.next_event().map_err(failed)? {
                    curves.apply(&envelope);
                }
                Ok(())
            }
            Source::Log(watched) => {
                let path = watched.path().clone();
                let read = watched.read_all(|envelope| curves.apply(envelope));
                curves.is_untimed = !watched.has_times();
                read.map_err(|e| Failure::not_read(&path, &e))
            }
        }
    }

    /// Whether more may come.
    fn is_live(&self, curves: &Curves) -> bool {
        match self {
            Source::Run { run, .. } => run.is_alive(),
            Source::Log(_) => curves.state.finished.is_none(),
        }
    }

    /// Whether the log says that no more comes. A run of ours is live as long as its engine is.
    fn has_ended(&self, curves: &Curves) -> bool {
        matches!(self, Source::Log(_)) && curves.state.finished.is_some()
    }
}
