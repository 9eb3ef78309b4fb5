//! `llmtui rm`: delete runs with their checkpoints.

use super::exit::{Exit, Failure};
use super::{Context, run_ref};
use crate::base::files::{Lock, is_absent};
use crate::base::human;
use crate::base::ssh::shell_quote;
use crate::base::text::one_line;
use crate::engine::checkpoint::{UNREADABLE_FIX, by_other_runs, named_in};
use crate::pipeline::{PipelineDir, State, membership};
use crate::run::index::{ResolveError, RunSummary};
use crate::run::lineage::find_parent;
use crate::run::{RunDir, index, is_abandoned};
use std::collections::BTreeSet;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};

/// Delete runs that are not live, with their checkpoints; asks first
///
/// Deleting a pipeline deletes its folder and the runs of its stages, including failed attempts.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directories, ids or names of runs or pipelines
    #[arg(value_name = "RUN", required = true)]
    pub runs: Vec<String>,
    /// Do not ask; each is then named whole: its id, its name or its path
    #[arg(short, long)]
    pub yes: bool,
    /// Show what would be deleted and what depends on it; delete nothing
    #[arg(long, conflicts_with = "yes")]
    pub dry_run: bool,
}

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    let doomed = looked_up(&args.runs, cx)?;
    if args.yes {
        named_whole(&args.runs, cx)?;
    }
    // Held until it is deleted: nothing starts a stage meanwhile.
    let claims = doomed
        .pipelines
        .iter()
        .map(|gone| gone.dir.claim())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| super::pipeline::failed(&e))?;
    for note in doomed.notes(&cx.runs_dir) {
        errln!("note: {note}");
    }
    for run in &doomed.runs {
        let hint = run_ref::command("stop", run.path(), &cx.runs_dir);
        run.check_idle()
            .map_err(|e| Failure::user_error(e.to_string(), hint))?;
    }
    if args.dry_run {
        let mut out = std::io::stdout().lock();
        for line in doomed.words(cx)? {
            writeln!(out, "{line}")?;
        }
        return Ok(Exit::Done);
    }
    if args.yes {
        let (all, _unreadable) = index::list(&cx.runs_dir)?;
        let unknown = unknown_needs(&cx.runs_dir, &doomed.runs);
        for note in doomed.left_behind(&all).into_iter().chain(unknown) {
            errln!("note: {note}");
        }
    }
    if args.yes || confirmed(&doomed, cx)? {
        let kept_for_them = given_up_checkpoints(&doomed.runs);
        delete(&doomed, claims)?;
        for note in now_free(&kept_for_them, &cx.runs_dir) {
            errln!("note: {note}");
        }
    }
    Ok(Exit::Done)
}

/// What is to be deleted.
#[derive(Default)]
struct Deletion {
    /// Those of the pipelines among them.
    runs: Vec<RunDir>,
    pipelines: Vec<Gone>,
}

impl Deletion {
    /// Runs of pipelines that stay without them.
    fn notes(&self, runs_dir: &Path) -> Vec<String> {
        let goes = |dir: &PipelineDir| self.pipelines.iter().any(|gone| gone.dir == *dir);
        let note = |run: &RunDir| {
            let of = membership(run, runs_dir).filter(|of| !goes(&of.dir))?;
            let (run, id) = (one_line(&run.folder()), one_line(&of.state.id));
            Some(format!(
                "{run} is stage {} of pipeline {id}, which stays",
                of.stage
            ))
        };
        self.runs.iter().filter_map(note).collect()
    }

    /// What goes, with its size, and what stays without it.
    fn words(&self, cx: &Context) -> anyhow::Result<Vec<String>> {
        let (all, _unreadable) = index::list(&cx.runs_dir)?;
        let mut lines = Vec::new();
        for gone in &self.pipelines {
            let size = human::bytes(super::gc::size(gone.dir.path()));
            let (id, runs) = (one_line(&gone.id), gone.runs_words());
            lines.push(format!("{id}: the pipeline's folder, {size}{runs}"));
        }
        for run in &self.runs {
            lines.push(describe(run));
            let came = left_by(run, &self.runs, &all);
            lines.extend(came.map(|words| format!("  from it came {words}")));
            let need = needed_by(run, &self.runs, &all);
            lines.extend(need.map(|words| format!("  its model is needed by {words}")));
        }
        lines.extend(unknown_needs(&cx.runs_dir, &self.runs));
        Ok(lines)
    }

    /// Runs that began from one of them, or need its model, and stay.
    fn left_behind(&self, all: &[RunSummary]) -> Vec<String> {
        let notes = self.runs.iter().flat_map(|run| {
            let id = one_line(&run.folder());
            let came = left_by(run, &self.runs, all);
            let came = came.map(|words| format!("from {id} came {words}"));
            let need = needed_by(run, &self.runs, all);
            let need = need.map(|words| format!("a model of {id} is needed by {words}"));
            came.into_iter().chain(need)
        });
        notes.collect()
    }
}

/// Nobody looks again at what a part of a name means: with `--yes` a run or pipeline is named whole, or by its path.
fn named_whole(words: &[String], cx: &Context) -> Result<(), Failure> {
    for word in words {
        let names: Vec<String> = match index::resolve_one(&cx.runs_dir, word) {
            Ok(run) => {
                let header = run.header().ok();
                let own = header.map(|header| [header.id, header.name]);
                own.into_iter().flatten().chain([run.folder()]).collect()
            }
            Err(_) => match pipeline(word, &cx.runs_dir) {
                Some((dir, state)) => {
                    let folder = dir.path().file_name().unwrap_or_default();
                    vec![state.id, state.name, folder.to_string_lossy().into_owned()]
                }
                None => continue,
            },
        };
        let is_path = run_ref::is_path_of(word, &["run.json", "pipeline.yaml"]);
        if !is_path && !names.contains(word) {
            let whole = one_line(names.last().map_or("", String::as_str));
            let what = format!(
                "`{}` is a part of the name of {whole}: with --yes a run is deleted by its whole name alone",
                one_line(word)
            );
            let hint = format!(
                "llmtui rm --yes {}{}",
                shell_quote(&whole),
                run_ref::options(&cx.runs_dir)
            );
            return Err(Failure::user_error(what, hint));
        }
    }
    Ok(())
}

/// All words are looked up before anything is deleted: a typo deletes nothing.
fn looked_up(words: &[String], cx: &Context) -> anyhow::Result<Deletion> {
    let mut doomed = Deletion::default();
    for word in words {
        match index::resolve_one(&cx.runs_dir, word) {
            Ok(run) => doomed.runs.push(run),
            Err(error) => {
                let unknown = matches!(error, ResolveError::Unknown { .. });
                let found = unknown.then(|| pipeline(word, &cx.runs_dir)).flatten();
                let (dir, state) = found.ok_or_else(|| run_ref::not_found(word, &error, cx))?;
                let its_own = runs_of(&state, &cx.runs_dir);
                doomed.runs.extend(its_own.iter().cloned());
                doomed.pipelines.push(Gone {
                    dir,
                    id: state.id,
                    n_runs: its_own.len(),
                });
            }
        }
    }
    let Deletion { runs, pipelines } = &mut doomed;
    pipelines.sort_by(|a, b| a.dir.path().cmp(b.dir.path()));
    pipelines.dedup_by(|a, b| a.dir == b.dir);
    runs.sort_by(|a, b| a.path().cmp(b.path()));
    runs.dedup();
    Ok(doomed)
}

/// Shows what goes, and asks.
fn confirmed(doomed: &Deletion, cx: &Context) -> anyhow::Result<bool> {
    if !cx.stdin_is_terminal {
        let what = "rm asks before it deletes, but there is no terminal to answer at";
        return Err(Failure::user_error(what, "llmtui rm --yes RUN").into());
    }
    let mut out = std::io::stdout().lock();
    for line in doomed.words(cx)? {
        writeln!(out, "{line}")?;
    }
    write!(out, "delete? [y/N] ")?;
    out.flush()?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

/// Deletes the runs, then the pipelines, of which `claims` holds one each.
fn delete(doomed: &Deletion, claims: Vec<Lock>) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    for run in &doomed.runs {
        run.remove().map_err(|e| Failure::run(&e))?;
        writeln!(out, "deleted {}", one_line(&run.folder()))?;
    }
    for (gone, claim) in doomed.pipelines.iter().zip(claims) {
        let removed = gone.dir.remove(claim);
        removed.map_err(|e| Failure::not_deleted(gone.dir.path(), &e))?;
        writeln!(out, "deleted {}{}", one_line(&gone.id), gone.runs_words())?;
    }
    Ok(())
}

/// Checkpoints that their runs have given up and that these began from.
fn given_up_checkpoints(runs: &[RunDir]) -> BTreeSet<PathBuf> {
    let specs = runs.iter();
    let named = specs.filter_map(|run| named_in(&run.spec_path()).ok());
    named
        .flatten()
        .filter_map(|path| {
            path.ancestors()
                .find(|at| is_abandoned(at))
                .map(Path::to_path_buf)
        })
        .collect()
}

/// Those of them that nobody needs any more, and what deletes them.
fn now_free(checkpoints: &BTreeSet<PathBuf>, runs_dir: &Path) -> Vec<String> {
    let note = |path: &PathBuf| {
        let run = RunDir::open(path.parent()?.parent()?).ok()?;
        let mut given_up = run.abandoned_checkpoints().into_iter();
        let entry = given_up.find(|entry| entry.path.canonicalize().ok().as_ref() == Some(path))?;
        let step = human::grouped(entry.step);
        let command = run_ref::command("gc", run.path(), runs_dir);
        let needed = by_other_runs(&run).ok()?;
        (!needed.contains(&entry.step)).then(|| {
            format!(
                "{} gave up its checkpoint of step {step}, and no run needs it any more: {command} --yes deletes it",
                one_line(&run.folder())
            )
        })
    };
    checkpoints.iter().filter_map(note).collect()
}

/// A pipeline that is to be deleted.
struct Gone {
    dir: PipelineDir,
    id: String,
    n_runs: usize,
}

impl Gone {
    /// ` and its 5 runs`
    fn runs_words(&self) -> String {
        match self.n_runs {
            0 => String::new(),
            1 => " and its run".into(),
            n => format!(" and its {n} runs"),
        }
    }
}

/// The runs of a pipeline that are still there, those of failed attempts among them.
fn runs_of(state: &State, runs_dir: &Path) -> Vec<RunDir> {
    let found = state.runs().filter_map(|id| {
        let run = index::resolve_one(runs_dir, id).ok()?;
        // Of one that is gone another may have a name that begins so.
        (run.id() == id).then_some(run)
    });
    found.collect()
}

/// A pipeline of the runs directory. A folder elsewhere that only looks like one is not deleted.
fn pipeline(word: &str, runs_dir: &Path) -> Option<(PipelineDir, State)> {
    let dir = PipelineDir::resolve(runs_dir, word).ok()?;
    let mut all = PipelineDir::list(runs_dir).into_iter();
    all.find(|(listed, _)| *listed == dir)
}

/// The runs beside a run that stay and read a model of it again at a resume: as their reward model, their critic, or under their
/// adapters. One whose spec cannot be read is in [`unknown_needs`].
fn readers(run: &RunDir, gone: &[RunDir], all: &[RunSummary]) -> Vec<String> {
    let Ok(own) = run.path().canonicalize() else {
        return Vec::new();
    };
    let stays = |other: &&RunSummary| !gone.iter().any(|run| run.folder() == other.id);
    let reads = |other: &&RunSummary| {
        let named = named_in(&other.path.join("spec.yaml")).unwrap_or_default();
        named.iter().any(|path| path.starts_with(&own))
    };
    let readers = all.iter().filter(stays).filter(reads);
    readers.map(|reader| one_line(&reader.id)).collect()
}

/// Runs of the directory that stay and whose needs cannot be read, each with why.
fn unknown_needs(runs_dir: &Path, gone: &[RunDir]) -> Vec<String> {
    let entries = match std::fs::read_dir(runs_dir) {
        Ok(entries) => entries.collect::<Vec<_>>(),
        Err(error) if is_absent(&error) => Vec::new(),
        Err(error) => vec![Err(error)],
    };
    let stays = |path: &Path| !gone.iter().any(|run| same(run.path(), path));
    let mut unknown: Vec<String> = entries
        .into_iter()
        .filter_map(|entry| match entry {
            Ok(entry) if stays(&entry.path()) => named_in(&entry.path().join("spec.yaml")).err(),
            Ok(_) => None,
            Err(error) => Some(error),
        })
        .map(|why| {
            format!("whether a run needs what is deleted is not known ({why}): {UNREADABLE_FIX}")
        })
        .collect();
    unknown.sort();
    unknown
}

fn same(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// The runs that began from a run and stay: one whose adapter stands on its checkpoint does not open without it.
fn children(run: &RunDir, gone: &[RunDir], all: &[RunSummary]) -> Vec<String> {
    let stays = |child: &&RunSummary| !gone.iter().any(|run| run.folder() == child.id);
    let of_it = |child: &&RunSummary| {
        let parent = child.parent.as_ref();
        let parent = parent.and_then(|parent| find_parent(parent, all));
        parent.is_some_and(|parent| parent.id == run.folder())
    };
    let children = all.iter().filter(stays).filter(of_it);
    children.map(|child| one_line(&child.id)).collect()
}

/// `a, b, which stay`
fn left_by(run: &RunDir, gone: &[RunDir], all: &[RunSummary]) -> Option<String> {
    let children = children(run, gone, all);
    (!children.is_empty()).then(|| format!("{}, which stay", children.join(", ")))
}

/// `a, b, which stay`, of those that did not begin from it.
fn needed_by(run: &RunDir, gone: &[RunDir], all: &[RunSummary]) -> Option<String> {
    let began = children(run, gone, all);
    let mut readers = readers(run, gone, all);
    readers.retain(|reader| !began.contains(reader));
    (!readers.is_empty()).then(|| format!("{}, which stay", readers.join(", ")))
}

/// `2026-11-21-1422-shakespeare-k3qf: 3 checkpoints, 29.1 MiB`
fn describe(run: &RunDir) -> String {
    let n = run.checkpoints().len();
    let checkpoints = if n == 1 { "checkpoint" } else { "checkpoints" };
    let size = human::bytes(super::gc::size(run.path()));
    format!("{}: {n} {checkpoints}, {size}", one_line(&run.folder()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::SystemClock;
    use crate::run::Parent;

    #[test]
    fn a_run_that_is_deleted_names_those_that_came_from_it() {
        let dir = tempfile::tempdir().unwrap();
        let clock = SystemClock::new();
        let sft = RunDir::create(dir.path(), "sft", "{}", "", &clock).unwrap();
        let parent = Parent {
            run: sft.id().into(),
            step: 24,
        };
        let child = |name: &str| {
            let run = RunDir::create(dir.path(), name, "{}", "", &clock).unwrap();
            let mut header = run.header().unwrap();
            header.parent = Some(parent.clone());
            std::fs::write(run.header_path(), serde_json::to_vec(&header).unwrap()).unwrap();
            run
        };
        let (dpo, other) = (child("dpo"), child("kto"));
        let (all, _) = index::list(dir.path()).unwrap();
        let told = children(&sft, &[sft.clone(), other], &all);
        assert_eq!(told, [dpo.folder()]);
        assert!(children(&dpo, std::slice::from_ref(&dpo), &all).is_empty());
        let doomed = Deletion {
            runs: vec![sft.clone()],
            pipelines: Vec::new(),
        };
        let told = doomed.left_behind(&all);
        assert!(
            told.len() == 1 && told[0].contains(&dpo.folder()) && told[0].ends_with("which stay"),
            "{told:?}"
        );
    }

    /// A stopped run failed at its resume: its reward model was gone, and nobody had said so.
    #[test]
    fn a_run_whose_model_another_one_judges_by_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let clock = SystemClock::new();
        let judge = RunDir::create(dir.path(), "judge", "{}", "", &clock).unwrap();
        let step = judge.checkpoints_path().join("step-000020");
        std::fs::create_dir(&step).unwrap();
        let spec = format!(
            "method: {{grpo: {{}}}}\nrewards: [{{model: {{path: {}}}}}]\nrollout: {{max_new_tokens: 8}}",
            step.display()
        );
        let spec = crate::spec::RunSpec::from_yaml(&spec).unwrap().to_yaml();
        let grpo = RunDir::create(dir.path(), "grpo", &spec, "", &clock).unwrap();
        let (all, _) = index::list(dir.path()).unwrap();
        let told = |runs: &[RunDir]| {
            let runs = runs.to_vec();
            let pipelines = Vec::new();
            Deletion { runs, pipelines }.left_behind(&all)
        };
        let one = told(std::slice::from_ref(&judge));
        let (judge_id, grpo_id) = (judge.folder(), grpo.folder());
        assert_eq!(
            one,
            [format!(
                "a model of {judge_id} is needed by {grpo_id}, which stay"
            )]
        );
        assert!(told(&[judge, grpo]).is_empty());
    }

    #[test]
    fn a_run_whose_needs_cannot_be_read_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let clock = SystemClock::new();
        let [one, two] =
            ["one", "two"].map(|name| RunDir::create(dir.path(), name, "{}", "", &clock).unwrap());
        let gone = std::slice::from_ref(&one);
        assert!(unknown_needs(dir.path(), gone).is_empty());
        std::fs::remove_file(two.spec_path()).unwrap();
        std::fs::create_dir(two.spec_path()).unwrap();
        let unknown = unknown_needs(dir.path(), gone);
        assert!(
            unknown.len() == 1 && unknown[0].contains(&two.folder()),
            "{unknown:?}"
        );
        assert!(unknown_needs(dir.path(), &[one, two]).is_empty());
    }

    #[test]
    fn a_checkpoint_kept_for_a_deleted_run_alone_is_told_of() {
        let dir = tempfile::tempdir().unwrap();
        let clock = SystemClock::new();
        let made = RunDir::create(dir.path(), "a", "{}", "", &clock).unwrap();
        let step = made.checkpoints_path().join("step-000005");
        std::fs::create_dir(&step).unwrap();
        for file in ["manifest.json", crate::run::GIVEN_UP] {
            std::fs::write(step.join(file), "{}").unwrap();
        }
        let spec = format!("train: {{from: {}}}", step.display());
        let spec = crate::spec::RunSpec::from_yaml(&spec).unwrap().to_yaml();
        let child = |name: &str| RunDir::create(dir.path(), name, &spec, "", &clock).unwrap();
        let (one, two) = (child("b"), child("c"));
        let kept = given_up_checkpoints(std::slice::from_ref(&one));
        one.remove().unwrap();
        assert!(
            now_free(&kept, dir.path()).is_empty(),
            "another run needs it"
        );
        two.remove().unwrap();
        let told = now_free(&kept, dir.path());
        assert!(told.len() == 1 && told[0].contains("step 5,"), "{told:?}");
    }

    /// `rm --yes 2` deleted the one run whose id begins with the year.
    #[test]
    fn without_a_question_a_part_of_a_name_deletes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let clock = SystemClock::new();
        let run = RunDir::create(dir.path(), "sft", "{}", "", &clock).unwrap();
        let cx = context(dir.path());
        let whole = |word: &str| named_whole(&[word.to_string()], &cx);
        let refused = whole("2").unwrap_err();
        assert!(
            refused.what.contains("part of the name")
                && refused
                    .hint
                    .starts_with(&format!("llmtui rm --yes {}", run.folder())),
            "{refused:?}"
        );
        let path = run.path().display().to_string();
        for word in [run.id(), "sft", &path, &run.folder()] {
            assert!(whole(word).is_ok(), "{word}");
        }
    }

    fn context(runs_dir: &Path) -> Context {
        Context {
            env: crate::base::paths::Env::default(),
            clock: SystemClock::new(),
            runs_dir: runs_dir.into(),
            ascii: false,
            theme: None,
            hardware: None,
            stdin_is_terminal: false,
            stdout_is_terminal: false,
        }
    }

    #[test]
    fn a_pipeline_goes_with_the_runs_of_failed_attempts() {
        let dir = tempfile::tempdir().unwrap();
        let clock = SystemClock::new();
        let text = "stages: [{name: base, train: quickstart}, {name: sft, train: sft-lora}]";
        let pipeline = crate::pipeline::Pipeline::parse("mine.yaml", "mine", text).unwrap();
        let made = PipelineDir::create(dir.path(), &pipeline, text, &clock).unwrap();
        let mut state = made.state().unwrap();
        let attempt = |state: &mut State, stage: usize| {
            let run = RunDir::create(dir.path(), "mine-base", "{}", "", &clock).unwrap();
            state.stages[stage].begin(run.id());
            run
        };
        let all: Vec<RunDir> = [0, 0, 1].map(|at| attempt(&mut state, at)).into();
        state.stages[1].redo();
        let gone = attempt(&mut state, 1);
        gone.remove().unwrap();
        made.save(&state).unwrap();
        let mut found = runs_of(&made.state().unwrap(), dir.path());
        found.sort_by(|a, b| a.path().cmp(b.path()));
        let mut expected = all.clone();
        expected.sort_by(|a, b| a.path().cmp(b.path()));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_run_named_like_its_pipeline_is_told_to_be_its_stage() {
        let dir = tempfile::tempdir().unwrap();
        let clock = SystemClock::new();
        let text = "stages: [{name: base, train: quickstart}]";
        let pipeline = crate::pipeline::Pipeline::parse("mine.yaml", "mine", text).unwrap();
        let made = PipelineDir::create(dir.path(), &pipeline, text, &clock).unwrap();
        let run = RunDir::create(dir.path(), "mine", "{}", "", &clock).unwrap();
        let mut state = made.state().unwrap();
        state.stages[0].begin(run.id());
        made.save(&state).unwrap();
        let cx = context(dir.path());
        let notes = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
            looked_up(&words, &cx).unwrap().notes(dir.path())
        };
        let told = notes(&["mine"]);
        assert!(
            told.len() == 1 && told[0].contains("is stage base of pipeline"),
            "{told:?}"
        );
        assert!(notes(&["mine", &state.id]).is_empty());
        made.remove(made.claim().unwrap()).unwrap();
        let mut left = std::fs::read_dir(PipelineDir::folder_of(dir.path())).unwrap();
        assert!(left.next().is_none() && PipelineDir::list(dir.path()).is_empty());
    }
}
