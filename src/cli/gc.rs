//! `llmtui gc`: what runs and caches leave behind and nobody needs: checkpoints of finished runs besides the best and the
//! newest, pieces of saves and deletions that were killed, runs that were refused before their first step, cached tokens.
//! All other runs are `rm`'s matter.

use super::exit::{Exit, Failure};
use super::{Context, run_ref};
use crate::base::files::{DELETED, is_stale_temporary, is_temporary, remove_folder};
use crate::base::human;
use crate::base::json;
use crate::base::ssh::shell_quote;
use crate::base::text::{one_line, shown};
use crate::data::store;
use crate::engine::checkpoint::{UNREADABLE_FIX, by_other_runs, is_needed, named_in};
use crate::pipeline::PipelineDir;
use crate::run::index::{self, RunStatus};
use crate::run::log::scan_events;
use crate::run::{CheckpointEntry, RunDir};
use crate::wire::{Event, Outcome};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, StdoutLock, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Free disk space: old checkpoints, stale files of killed processes, caches; lists them first
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Keeps every run that got past its checks, the best and the latest checkpoint of a finished one, all \
checkpoints of a run that can be resumed, and whatever another run's spec names."
)]
pub struct Args {
    /// A run's directory, id or name; default: all runs, and the cache
    #[arg(value_name = "RUN")]
    pub run: Option<String>,
    /// Delete what is listed
    #[arg(short, long)]
    pub yes: bool,
    /// Print it as JSON: {deleted, bytes, items: [{place, what, path, bytes}], unreadable}
    #[arg(long)]
    pub json: bool,
}

/// Something that can go.
struct Garbage {
    what: String,
    path: PathBuf,
    bytes: u64,
}

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    let (all, _) = index::list(&cx.runs_dir)?;
    // Those of runs that cannot be read, too.
    let needed = specs_in(&cx.runs_dir).and_then(|specs| needed(&specs));
    let all: Vec<RunDir> = all
        .iter()
        .filter_map(|r| RunDir::open(&r.path).ok())
        .collect();
    let stages: BTreeSet<String> = PipelineDir::list(&cx.runs_dir)
        .into_iter()
        .flat_map(|(_, state)| state.stages)
        .filter_map(|stage| stage.run)
        .collect();
    let named = match &args.run {
        Some(word) => vec![run_ref::named(word, cx)?],
        None => all,
    };
    if let (Some(word), [run], true) = (&args.run, &named[..], args.yes) {
        named_whole(word, run, cx)?;
    }
    let mut ledger = Collector::new(args, &cx.runs_dir);
    for run in &named {
        if run.is_alive() {
            continue;
        }
        if !stages.contains(run.id())
            && let Some(waste) = refused(run)
        {
            ledger.report(&run.folder(), &waste)?;
            if args.yes {
                run.remove()?;
            }
            continue;
        }
        let (waste, judged) = of_run(run, &needed)?;
        ledger.unreadable.extend(judged.err());
        // What is held counts as live: it is judged before.
        let _held = args.yes.then(|| run.lock()).transpose()?;
        for waste in &waste {
            ledger.report_and_delete(&run.folder(), waste)?;
        }
    }
    if args.run.is_none() {
        for folder in [cx.runs_dir.clone(), PipelineDir::folder_of(&cx.runs_dir)] {
            let place = shown(&folder).to_string();
            for waste in leftovers(&folder, Held::ByNobody) {
                ledger.report_and_delete(&place, &waste)?;
            }
        }
        of_cache(cx, &mut ledger)?;
    }
    ledger.close(args.run.as_ref().and_then(|_| named.first()))?;
    Ok(Exit::Done)
}

/// Nobody looks again at what a part of a name means: with `--yes` a run is named whole, or by its path.
fn named_whole(word: &str, run: &RunDir, cx: &Context) -> Result<(), Failure> {
    if run_ref::is_whole_name(word, run) {
        return Ok(());
    }
    let what = format!(
        "`{}` is a part of the name of {}: with --yes its checkpoints are deleted by its whole name alone",
        one_line(word),
        one_line(&run.folder())
    );
    Err(Failure::user_error(
        what,
        deleting(Some(&run.folder()), &cx.runs_dir),
    ))
}

/// What was found, reported as it is found: where deleting fails, what went before is known.
struct Collector<'a> {
    args: &'a Args,
    runs_dir: &'a Path,
    out: StdoutLock<'static>,
    items: Vec<Value>,
    bytes: u64,
    /// Specs that could not be read: what their runs need is not known, so checkpoints are kept.
    unreadable: BTreeSet<String>,
    /// The heading that the last line stands under.
    place: String,
}

impl Collector<'_> {
    fn new<'a>(args: &'a Args, runs_dir: &'a Path) -> Collector<'a> {
        Collector {
            args,
            runs_dir,
            out: std::io::stdout().lock(),
            items: Vec::new(),
            bytes: 0,
            unreadable: BTreeSet::new(),
            place: String::new(),
        }
    }

    fn report(&mut self, place: &str, waste: &Garbage) -> std::io::Result<()> {
        self.bytes += waste.bytes;
        self.items.push(json!({
            "place": place,
            "what": waste.what,
            "path": json::path(&waste.path),
            "bytes": waste.bytes,
        }));
        if self.args.json {
            return Ok(());
        }
        if self.place != place {
            self.place = place.into();
            writeln!(self.out, "{}", one_line(place))?;
        }
        let verb = if self.args.yes { "deleted " } else { "" };
        let size = human::bytes(waste.bytes);
        writeln!(self.out, "  {size:>9}  {verb}{}", waste.what)
    }

    /// Shows it, and deletes it where that is wanted.
    fn report_and_delete(&mut self, place: &str, waste: &Garbage) -> anyhow::Result<()> {
        self.report(place, waste)?;
        if self.args.yes {
            delete(&waste.path).map_err(|e| Failure::not_deleted(&waste.path, &e))?;
        }
        Ok(())
    }

    /// Sums up; `run` is the one that was named.
    fn close(mut self, run: Option<&RunDir>) -> anyhow::Result<()> {
        for why in &self.unreadable {
            errln!(
                "note: checkpoints are kept, because a run that cannot be read may need them ({why}): {UNREADABLE_FIX}"
            );
        }
        if self.args.json {
            let all = json!({
                "deleted": self.args.yes,
                "bytes": self.bytes,
                "items": self.items,
                "unreadable": self.unreadable,
            });
            writeln!(self.out, "{}", super::out::json(&all)?)?;
            return Ok(());
        }
        let size = human::bytes(self.bytes);
        match (self.items.is_empty(), self.args.yes) {
            (true, _) => writeln!(self.out, "nothing to free")?,
            (_, true) => writeln!(self.out, "{size} freed")?,
            (_, false) => {
                // By its whole name, unless it was named by its path.
                let whole =
                    |(word, run): (&String, &RunDir)| match run_ref::is_whole_name(word, run) {
                        true => word.clone(),
                        false => run.folder(),
                    };
                let run = self.args.run.as_ref().zip(run).map(whole);
                let command = deleting(run.as_deref(), self.runs_dir);
                writeln!(
                    self.out,
                    "{size} in total; nothing was deleted: {command} deletes them"
                )?;
            }
        }
        Ok(())
    }
}

/// The command that deletes what was listed: of the same run, in the same directory.
fn deleting(run: Option<&str>, runs_dir: &Path) -> String {
    let run = run.map(|run| format!(" {}", shell_quote(&one_line(run))));
    format!(
        "llmtui gc{} --yes{}",
        run.unwrap_or_default(),
        run_ref::options(runs_dir)
    )
}

/// What another process has deleted meanwhile is as wanted.
fn delete(path: &Path) -> std::io::Result<()> {
    let deleted = match path.symlink_metadata() {
        Ok(meta) if meta.is_dir() => remove_folder(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    match deleted {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        deleted => deleted,
    }
}

/// A run that its checks, its data or its spec ended before it learned anything: nothing begins from it, and the same
/// command makes it again.
fn refused(run: &RunDir) -> Option<Garbage> {
    let summary = index::summarize(run).ok()?;
    let failed = summary.status == RunStatus::Failed && summary.step == 0;
    if !failed || !run.checkpoints().is_empty() {
        return None;
    }
    let outcome = run_ref::last_outcome(run)?;
    // One that lost its steps to a resume has made some all the same.
    let mut stepped = false;
    scan_events(&run.events_path(), &["Stepped"], |event| {
        stepped |= matches!(event, Event::Stepped { .. });
    })
    .ok()?;
    if stepped {
        return None;
    }
    let why = match one_line(&summary.message) {
        why if why.is_empty() => why,
        why => format!(": {why}"),
    };
    matches!(outcome, Outcome::Refused | Outcome::Invalid).then(|| Garbage {
        what: format!("the whole run, which failed before its first step{why}"),
        path: run.path().to_path_buf(),
        bytes: size(run.path()),
    })
}

/// Where the specs of the runs in a folder would be.
fn specs_in(runs_dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    match std::fs::read_dir(runs_dir) {
        Ok(entries) => entries
            .map(|entry| Ok(entry?.path().join("spec.yaml")))
            .collect(),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// What the specs of runs name, a checkpoint of another run among it: a resume reads it again. `Err`: which spec cannot be
/// read; its run may need any checkpoint.
fn needed(specs: &[PathBuf]) -> std::io::Result<BTreeSet<PathBuf>> {
    let mut named = BTreeSet::new();
    for spec in specs {
        named.extend(named_in(spec)?);
    }
    Ok(named)
}

/// What can go of a run; `Err` in its second part: why its checkpoints are kept, all of them.
fn of_run(
    run: &RunDir,
    needed: &std::io::Result<BTreeSet<PathBuf>>,
) -> anyhow::Result<(Vec<Garbage>, Result<(), String>)> {
    let mut waste = leftovers(run.path(), Held::ByTheRun);
    waste.extend(leftovers(&run.checkpoints_path(), Held::ByTheRun));
    // The run may lie in another folder than the runs that are listed: those beside it count.
    let (needed, beside) = match (needed, by_other_runs(run)) {
        (Ok(needed), Ok(beside)) => (needed, beside),
        (Err(error), _) => return Ok((waste, Err(error.to_string()))),
        (_, Err(error)) => return Ok((waste, Err(error.to_string()))),
    };
    let is_needed =
        |entry: &CheckpointEntry| beside.contains(&entry.step) || is_needed(&entry.path, needed);
    // The run itself passes these over, whatever becomes of it.
    let given_up = run
        .abandoned_checkpoints()
        .into_iter()
        .filter(|it| !is_needed(it));
    waste.extend(given_up.map(|it| of_checkpoint(&it, ", given up and needed by no run")));
    // Whatever can be resumed keeps its older checkpoints: the newest one may turn out to be damaged.
    if index::summarize(run)?.status != RunStatus::Finished {
        return Ok((waste, Ok(())));
    }
    let all = run.checkpoints();
    let (best, newest) = (run.best_checkpoint(), all.last().cloned());
    let kept = |entry: &CheckpointEntry| {
        [best.as_ref(), newest.as_ref()].contains(&Some(entry)) || is_needed(entry)
    };
    let old = all.iter().filter(|entry| !kept(entry));
    waste.extend(old.map(|entry| of_checkpoint(entry, "")));
    Ok((waste, Ok(())))
}

fn of_checkpoint(entry: &CheckpointEntry, why: &str) -> Garbage {
    Garbage {
        what: format!("checkpoint of step {}{why}", human::grouped(entry.step)),
        path: entry.path.clone(),
        bytes: size(&entry.path),
    }
}

/// Who may still write temporary files in a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    /// The engine of a run that is not alive: none of its saves goes on. Others, such as lists of runs, hold nothing.
    ByTheRun,
    ByNobody,
}

/// What a killed process left in a folder: files and folders under temporary names.
fn leftovers(folder: &Path, held: Held) -> Vec<Garbage> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<Garbage> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let of_a_save = held == Held::ByTheRun && !is_temporary(&name);
            let what = match () {
                () if name.starts_with(DELETED) => "half deleted",
                () if !name.starts_with(".tmp-") => return None,
                () if of_a_save || is_stale_temporary(&entry) => "unfinished",
                () => return None,
            };
            let path = entry.path();
            Some(Garbage {
                what: format!("{what}: {}", one_line(&name)),
                bytes: size(&path),
                path,
            })
        })
        .collect();
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// Tokens of data sets; those that a live run reads stay.
fn of_cache(cx: &Context, ledger: &mut Collector) -> anyhow::Result<()> {
    let Some(folder) = cx.env.cache_dir.as_ref().map(|dir| dir.join("tokens")) else {
        return Ok(());
    };
    let entries = store::list(&folder);
    if entries.is_empty() {
        return Ok(());
    }
    let bytes = match ledger.args.yes {
        true => store::clear(&folder)?,
        false => entries.iter().map(|entry| entry.bytes).sum(),
    };
    let sets = if entries.len() == 1 { "set" } else { "sets" };
    let what = format!(
        "tokens of {} data {sets}, rebuilt when needed",
        entries.len()
    );
    let place = shown(&folder).to_string();
    ledger.report(
        &place,
        &Garbage {
            what,
            path: folder,
            bytes,
        },
    )?;
    Ok(())
}

/// Bytes that are free once a file, or all below a folder, is deleted; what cannot be read counts nothing. Links are not
/// followed. A file with names elsewhere, as checkpoints share the weights under adapters, stays there.
pub(super) fn size(path: &Path) -> u64 {
    let mut files = BTreeMap::new();
    count(path, &mut files);
    let freed = files.values().filter(|file| file.found == file.names);
    freed.map(|file| file.bytes).sum()
}

/// A file with its names: how many it has, and how many of them were found.
#[derive(Default)]
struct File {
    bytes: u64,
    names: u64,
    found: u64,
}

/// Files below `path` by the numbers of device and inode.
fn count(path: &Path, files: &mut BTreeMap<(u64, u64), File>) {
    let Ok(meta) = path.symlink_metadata() else {
        return;
    };
    if meta.is_dir() {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries.for_each(|entry| count(&entry.path(), files));
        return;
    }
    let file = files.entry((meta.dev(), meta.ino())).or_default();
    (file.bytes, file.names) = (meta.len(), meta.nlink());
    file.found += 1;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::SystemClock;
    use std::time::Duration;

    /// A run with whole checkpoints of these steps.
    fn run(dir: &Path, spec: &str, steps: &[u64]) -> RunDir {
        // Whole, as a run's spec is; one that cannot be read stays as it is.
        let whole = crate::spec::RunSpec::from_yaml(spec);
        let spec = whole.map_or_else(|_| spec.to_string(), |whole| whole.to_yaml());
        let run = RunDir::create(dir, "x", &spec, "", &SystemClock::new()).unwrap();
        for step in steps {
            let folder = run.checkpoint_path(*step);
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join("manifest.json"), "{}").unwrap();
        }
        run
    }

    #[test]
    fn a_checkpoint_that_any_other_run_reads_again_is_needed() {
        let dir = tempfile::tempdir().unwrap();
        let made = run(dir.path(), "{}", &[1, 2, 3, 4, 5, 6]);
        let step = |n: usize| made.checkpoints()[n - 1].path.display().to_string();
        std::fs::write(made.checkpoints()[3].path.join("tokenizer.json"), "{}").unwrap();
        let specs = [
            format!("train: {{from: {}}}", step(1)),
            format!(
                "method: {{ppo: {{critic_from: {}}}}}\nrewards: [{{model: {{path: {}}}}}]\nrollout: {{max_new_tokens: 8}}",
                step(2),
                step(3)
            ),
            format!(
                "data: {{path: a.txt, tokenizer: {{file: {{path: {}/tokenizer.json}}}}}}",
                step(4)
            ),
            // Of a version to come.
            format!("of_tomorrow: [{{teacher: {}}}]", step(5)),
        ];
        let others = specs.map(|spec| run(dir.path(), &spec, &[]));
        let read = others.iter().map(|run| run_ref::spec_of(run).is_ok());
        assert_eq!(read.collect::<Vec<_>>(), [true, true, true, false]);
        let specs = others.map(|run| run.spec_path());
        let needed = needed(&specs).unwrap();
        let all = made.checkpoints().into_iter();
        let kept: Vec<bool> = all.map(|entry| is_needed(&entry.path, &needed)).collect();
        assert_eq!(kept, [true, true, true, true, true, false]);
    }

    /// A rescue keeps what other runs begin from; once those are gone nobody reads it.
    #[test]
    fn a_checkpoint_that_was_given_up_goes_with_the_last_run_that_began_from_it() {
        let dir = tempfile::tempdir().unwrap();
        let made = run(dir.path(), "{}", &[1, 2, 3]);
        let entries = made.checkpoints();
        for entry in &entries[1..] {
            std::fs::write(entry.path.join(crate::run::GIVEN_UP), "").unwrap();
        }
        let from = format!("train: {{from: {}}}", entries[1].path.display());
        let child = run(dir.path(), &from, &[]);
        let offered = || -> Vec<PathBuf> {
            let (waste, judged) = of_run(&made, &Ok(BTreeSet::new())).unwrap();
            judged.unwrap();
            waste.into_iter().map(|waste| waste.path).collect()
        };
        assert_eq!(offered(), [entries[2].path.clone()]);
        child.remove().unwrap();
        assert_eq!(
            offered(),
            [entries[1].path.clone(), entries[2].path.clone()]
        );
    }

    /// It was offered when the spec of the run that began from it could not be read.
    #[test]
    fn nothing_that_an_unreadable_run_may_need_is_offered() {
        let dir = tempfile::tempdir().unwrap();
        let made = run(dir.path(), "{}", &[1, 2, 3]);
        for entry in &made.checkpoints()[1..] {
            std::fs::write(entry.path.join(crate::run::GIVEN_UP), "").unwrap();
        }
        std::fs::create_dir(made.path().join(".del-old")).unwrap();
        let child = run(dir.path(), "{}", &[]);
        std::fs::remove_file(child.spec_path()).unwrap();
        std::fs::create_dir(child.spec_path()).unwrap();
        let (waste, judged) = of_run(&made, &Ok(BTreeSet::new())).unwrap();
        let paths: Vec<PathBuf> = waste.into_iter().map(|waste| waste.path).collect();
        assert_eq!(
            paths,
            [made.path().join(".del-old")],
            "half a deletion goes on"
        );
        assert!(judged.unwrap_err().contains(&child.folder()));
        // Of a run in another folder the list of runs says so.
        let unread = needed(&[child.spec_path()]);
        let elsewhere = tempfile::tempdir().unwrap();
        let alone = run(elsewhere.path(), "{}", &[1]);
        let (_, judged) = of_run(&alone, &unread).unwrap();
        assert!(judged.is_err());
    }

    #[test]
    fn the_command_deletes_what_was_listed_and_nothing_else() {
        let elsewhere = Path::new("/data/my runs");
        assert_eq!(
            deleting(Some("a b"), elsewhere),
            "llmtui gc 'a b' --yes --runs-dir '/data/my runs'"
        );
        assert_eq!(deleting(None, Path::new("runs")), "llmtui gc --yes");
    }

    /// Its own listing printed the command that deleted checkpoints of the run that a part of a name means.
    #[test]
    fn a_part_of_a_name_deletes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let run = run(dir.path(), "{}", &[1]);
        let cx = Context {
            env: crate::base::paths::Env::default(),
            clock: SystemClock::new(),
            runs_dir: dir.path().into(),
            ascii: false,
            theme: None,
            hardware: None,
            stdin_is_terminal: false,
            stdout_is_terminal: false,
        };
        let refused = named_whole("2", &run, &cx).unwrap_err();
        assert!(refused.what.contains("a part of the name"), "{refused:?}");
        let command = format!("llmtui gc {} --yes", run.folder());
        assert!(refused.hint.starts_with(&command), "{refused:?}");
        let path = run.path().display().to_string();
        for word in [run.id(), "x", &path] {
            assert!(named_whole(word, &run, &cx).is_ok(), "{word}");
        }
    }

    #[test]
    fn what_a_process_may_still_write_is_no_leftover() {
        let dir = tempfile::tempdir().unwrap();
        let (dead, mine) = (i32::MAX, std::process::id());
        let idle = Duration::from_mins(60);
        let make = |name: String, age: Duration| {
            let file = std::fs::File::create(dir.path().join(name)).unwrap();
            let now = file.metadata().unwrap().modified().unwrap();
            file.set_modified(now - age).unwrap();
        };
        make(format!(".tmp-{mine}.4-summary.json"), idle);
        make(format!(".tmp-{dead}.4-summary.json"), Duration::ZERO);
        make(format!(".tmp-{dead}.5-summary.json"), idle);
        std::fs::create_dir(dir.path().join(".tmp-step-000099")).unwrap();
        std::fs::create_dir(dir.path().join(".del-old")).unwrap();
        let names = |held| -> Vec<String> {
            let found = leftovers(dir.path(), held).into_iter();
            found
                .map(|waste| waste.path.file_name().unwrap().display().to_string())
                .collect()
        };
        let left = format!(".tmp-{dead}.5-summary.json");
        assert_eq!(names(Held::ByNobody), [".del-old", &left]);
        let all = [".del-old", &left, ".tmp-step-000099"];
        assert_eq!(names(Held::ByTheRun), all);
        for waste in leftovers(dir.path(), Held::ByTheRun) {
            delete(&waste.path).unwrap();
            delete(&waste.path).expect("another process was faster");
        }
        assert!(names(Held::ByTheRun).is_empty());
    }

    #[test]
    fn a_file_with_a_name_elsewhere_is_not_freed() {
        let dir = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(|name| dir.path().join(name));
        for folder in [&one, &two] {
            std::fs::create_dir(folder).unwrap();
            std::fs::write(folder.join("own"), b"12").unwrap();
        }
        std::fs::write(one.join("base"), b"12345").unwrap();
        std::fs::hard_link(one.join("base"), two.join("base")).unwrap();
        assert_eq!([size(&one), size(&two)], [2, 2]);
        assert_eq!(size(dir.path()), 2 + 2 + 5);
        assert_eq!(size(&one.join("own")), 2);
        assert_eq!(size(&dir.path().join("absent")), 0);
    }
}
