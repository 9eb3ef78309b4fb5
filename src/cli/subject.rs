//! What a command reads: a run of this program, or the log of another program's.

use super::exit::{Failure, absent};
use super::{Context, run_ref};
use crate::base::clock::SystemClock;
use crate::base::files::open_plain;
use crate::base::text::{one_line, shown};
use crate::run::index::{self, ResolveError};
use crate::run::{RunDir, RunState};
use crate::watch::{ExternalRun, Found, Mapping, find};
use crate::wire::{Envelope, Event, decode_envelope};
use std::io::Read;
use std::path::Path;

/// How the log of another program is read.
#[derive(Debug, Default, clap::Args)]
pub struct LogArgs {
    /// For another program's log: read it as this format (llmtui watch --list)
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
    /// Map names of such a log: step=it, val/loss=dev_nll; may be repeated
    #[arg(long, value_name = "OURS=THEIRS")]
    pub map: Vec<String>,
}

impl LogArgs {
    /// The options that were given.
    fn given(&self) -> Vec<&'static str> {
        let given = [
            ("--format", self.format.is_some()),
            ("--map", !self.map.is_empty()),
        ];
        let given = given.into_iter().filter(|(_, is)| *is);
        given.map(|(option, _)| option).collect()
    }

    /// Our own events have one format and its names.
    ///
    /// # Errors
    /// An option of logs was given for `what`, which is no log of another program.
    pub fn refuse_for(&self, what: &str) -> Result<(), Failure> {
        match &self.given()[..] {
            [] => Ok(()),
            [option, ..] => {
                let what = format!("{option} is for the log of another program, not for {what}");
                Err(Failure::user_error(what, format!("drop {option}")))
            }
        }
    }

    /// # Errors
    /// A word of `--map` has another form.
    pub fn mapping(&self) -> Result<Mapping, Failure> {
        Mapping::parse(&self.map).map_err(|e| Failure::user_error(e.to_string(), ""))
    }

    /// The log at `path`, or the newest below it.
    ///
    /// # Errors
    /// There is none of a known format.
    pub fn find(&self, path: &Path) -> Result<Found, Failure> {
        if !path.exists() {
            return Err(absent(path));
        }
        let hint = "llmtui watch --list lists the formats; llmtui watch --callback prints a callback that writes a live log";
        find(path, self.format.as_deref())
            .map_err(|e| Failure::user_error(one_line(&e.to_string()), hint))
    }
}

/// What a word of the command line means.
pub enum Subject {
    Run(RunDir),
    Log(Found),
}

impl Subject {
    /// A run by its directory, id or name; else a log, or a folder with one.
    ///
    /// # Errors
    /// It is neither, or an option of logs was given for a run.
    pub fn named(word: &str, args: &LogArgs, cx: &Context) -> anyhow::Result<Subject> {
        let subject = Subject::found(word, args, cx)?;
        if let Subject::Run(run) = &subject {
            args.refuse_for(&format!("the run {}", one_line(&run.folder())))?;
        }
        Ok(subject)
    }

    fn found(word: &str, args: &LogArgs, cx: &Context) -> anyhow::Result<Subject> {
        if let Some(run) = own_log(Path::new(word), cx)? {
            return Ok(Subject::Run(run));
        }
        let run = index::resolve(&cx.runs_dir, word);
        let foreign = match &run {
            Ok(_) => false,
            Err(ResolveError::Unknown { .. } | ResolveError::Run(_)) => Path::new(word).exists(),
            Err(_) => false,
        };
        match run {
            Ok(run) => Ok(Subject::Run(run)),
            Err(_) if foreign => Ok(Subject::Log(args.find(Path::new(word))?)),
            // The sentence of every verb that takes a run.
            Err(_) => Ok(Subject::Run(run_ref::named(word, cx)?)),
        }
    }
}

/// The run whose log a file is: in its folder, or what `train --json` printed.
///
/// # Errors
/// Its events name a run that is not in the runs directory.
fn own_log(path: &Path, cx: &Context) -> Result<Option<RunDir>, Failure> {
    const FIRST: u64 = 64 << 10;
    if !path.is_file() {
        return Ok(None);
    }
    let folder = path.parent().filter(|_| path.ends_with("events.jsonl"));
    if let Some(run) = folder.and_then(|folder| RunDir::open(folder).ok()) {
        return Ok(Some(run));
    }
    let mut head = String::new();
    let read = open_plain(path).map(|file| file.take(FIRST).read_to_string(&mut head));
    let first = head.lines().next().filter(|_| read.is_ok());
    let Some(Event::Hello { run, pid, .. }) = first
        .and_then(|line| decode_envelope(line).ok())
        .map(|envelope| envelope.event)
    else {
        return Ok(None);
    };
    // A translated log of another program has no process.
    if pid == 0 {
        return Ok(None);
    }
    match index::resolve(&cx.runs_dir, &run) {
        Ok(found) => Ok(Some(found)),
        Err(_) => {
            let what = format!(
                "{} holds events of run {}, which is not in {}",
                shown(path),
                one_line(&run),
                shown(&cx.runs_dir)
            );
            Err(Failure::user_error(
                what,
                "--runs-dir DIR says where that run is; llmtui watch --list names logs of other programs that are read",
            ))
        }
    }
}

/// Everything that a log says so far.
///
/// # Errors
/// It cannot be read, or lacks a name of `--map`.
pub fn read_log(
    found: &Found,
    args: &LogArgs,
    mut take: impl FnMut(&Envelope),
) -> anyhow::Result<()> {
    let mapping = args.mapping()?;
    let clock = Box::new(SystemClock::new());
    let mut watched = ExternalRun::open(found.clone(), mapping.clone(), clock);
    watched.read_all(&mut take)?;
    match mapping.missing() {
        Some(what) => {
            let hint = "--map OURS=THEIRS names a column of the log";
            Err(Failure::user_error(what, hint).into())
        }
        None => Ok(()),
    }
}

/// The fold over a log.
///
/// # Errors
/// It cannot be read, or has no readings.
pub fn fold_log(found: &Found, args: &LogArgs) -> anyhow::Result<RunState> {
    let mut state = RunState::new();
    read_log(found, args, |envelope| state.apply(envelope))?;
    match state.series.is_empty() {
        true => Err(no_readings(found).into()),
        false => Ok(state),
    }
}

/// A file that may become a log: nothing in it is one yet.
pub fn not_yet(found: &Found) -> Failure {
    let what = format!(
        "{} has no training step in a known format",
        shown(&found.path)
    );
    let hint = "before its first step, llmtui watch --follow waits for it; llmtui watch --list lists the formats, --callback prints a callback that writes a live log";
    Failure::user_error(what, hint)
}

/// A log of a known format that says nothing of a training.
pub fn no_readings(found: &Found) -> Failure {
    // Trainers write this file anew at each checkpoint: half of one is read again, and a copy of half stays half.
    let is_json = |file| {
        serde_json::from_reader::<_, serde::de::IgnoredAny>(std::io::BufReader::new(file)).is_ok()
    };
    if found.format.entry.id == "trainer_state" && !open_plain(&found.path).is_ok_and(is_json) {
        let what = format!(
            "{} is not a complete JSON object: it was truncated, or is still being written",
            shown(&found.path)
        );
        return Failure::user_error(
            what,
            "copy it again; llmtui watch --follow waits for the rest",
        );
    }
    let what = format!("{} has no readings yet", shown(&found.path));
    let hint = "map its columns with --map (step=it, train/loss=nll), or wait for them with llmtui watch --follow";
    Failure::user_error(what, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_logs_are_refused_where_there_is_none() {
        let args = |format: Option<&str>, map: &[&str]| LogArgs {
            format: format.map(String::from),
            map: map.iter().map(ToString::to_string).collect(),
        };
        assert!(args(None, &[]).refuse_for("the run a").is_ok());
        for (args, option) in [
            (args(Some("bogus"), &["a=b"]), "--format"),
            (args(None, &["a=b"]), "--map"),
        ] {
            let failure = args.refuse_for("the run a").unwrap_err();
            assert!(failure.what.starts_with(option), "{}", failure.what);
            assert!(failure.what.ends_with("the run a"), "{}", failure.what);
        }
    }
}
