//! `llmtui train PIPELINE`: its stages, one after the other. Each is a subcommand of this program in a process of its own, so a stage
//! behaves here as it does alone, and a crash of one ends no other.

mod amend;
mod check;
pub(super) mod child;
mod drive;
mod needs;
mod plan;
mod stages;
mod table;

pub use plan::is_remote;
pub use table::{list, objects};

use super::args::{Resume, SpecArgs};
use super::exit::{Exit, Failure};
use super::run_ref::newest_unfinished;
use super::{Context, out, workbench};
use crate::base::text::{one_line, shown};
use crate::pipeline::{self, Parsed, Pipeline, PipelineDir, PipelineError, Places, Stage, State};
use crate::ui::StartView;
use std::path::Path;

/// What `llmtui train` was asked for.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    pub spec: &'a SpecArgs,
    pub resume: Option<&'a Resume>,
    /// Machines for the stages that train.
    pub nodes: &'a [String],
    pub skip: &'a [String],
    pub redo: &'a [String],
    pub dry_run: bool,
    /// Lines instead of the workbench.
    pub headless: bool,
    pub options: Options,
    /// An option that means one run, if one was given.
    pub foreign: Option<&'static str>,
}

impl Request<'_> {
    /// What `-s` and `--nodes` say of stages, as `-s` says it; of those that train `--nodes` means the ones in `trains`.
    fn sets<'s>(&self, trains: impl Iterator<Item = &'s Stage>) -> Vec<String> {
        let has_engine = |stage: &Stage| {
            let own = format!("{}.engine", stage.name);
            let mut said = self
                .spec
                .set
                .iter()
                .filter_map(|word| word.strip_prefix(&own));
            said.any(|rest| rest.starts_with(['=', '.']))
        };
        let words = trains.filter(|stage| !has_engine(stage)).flat_map(|stage| {
            let word = on_nodes(self.nodes);
            word.map(|word| format!("{}.{word}", stage.name))
        });
        words.chain(self.spec.set.iter().cloned()).collect()
    }
}

/// The setting of `--nodes`, where it was said.
pub fn on_nodes(nodes: &[String]) -> Option<String> {
    let names = serde_json::json!(nodes);
    (!nodes.is_empty()).then(|| format!("engine.torch.nodes={names}"))
}

/// What of `train`'s options holds for every stage.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    pub json: bool,
    pub force: bool,
}

impl Options {
    /// With what was said earlier for the whole pipeline.
    fn with_earlier(self, state: &State) -> Options {
        Options {
            force: self.force || state.force,
            ..self
        }
    }
}

pub(super) fn failed(error: &PipelineError) -> Failure {
    let what = match error {
        // Lines of its own: each fault, and each problem of a spec.
        PipelineError::Invalid(_) => error.to_string(),
        _ => one_line(&error.to_string()),
    };
    let hint = one_line(error.hint());
    match error.is_outage() {
        true => Failure::machine(what, hint),
        false => Failure::user_error(what, hint),
    }
}

/// Trains the pipeline that the arguments name; `None` where they name a spec or a run.
///
/// # Errors
/// What is wrong with the pipeline, and how its stages end.
pub fn take(args: &Request, cx: &Context) -> anyhow::Result<Option<Exit>> {
    let dir = match resumed(args, cx)? {
        Some(dir) => {
            refuse_foreign(args)?;
            if args.dry_run {
                amend::Amended::plan(&dir, args, cx)?.show(&dir, args, cx)?;
                return Ok(Some(Exit::Done));
            }
            dir
        }
        None => match fresh(args, cx)? {
            Some(Fresh::Dir(dir)) => dir,
            Some(Fresh::Over(exit)) => return Ok(Some(exit)),
            None if args.skip.is_empty() && args.redo.is_empty() => return Ok(None),
            None => {
                let what = "--skip and --redo belong to pipelines";
                return Err(Failure::user_error(what, "llmtui presets list names them").into());
            }
        },
    };
    amend::Amended::plan(&dir, args, cx)?.write(&dir, args)?;
    if cx.stdin_is_terminal && cx.stdout_is_terminal && !args.headless {
        return watch(&dir, args.options, cx).map(Some);
    }
    drive::resume(&dir, args.options, cx).map(Some)
}

/// The pipeline that `--resume` names.
fn resumed(args: &Request, cx: &Context) -> anyhow::Result<Option<PipelineDir>> {
    let word = match args.resume {
        None => return Ok(None),
        Some(Resume::Run(word)) => word.to_string_lossy().into_owned(),
        Some(Resume::Auto) => return automatic(args, cx),
    };
    match PipelineDir::resolve(&cx.runs_dir, &word) {
        Ok(dir) => Ok(Some(dir)),
        Err(PipelineError::Unknown { .. }) => Ok(None),
        Err(error) => Err(failed(&error).into()),
    }
}

/// `--resume auto`: the newest unfinished pipeline of the spec's name. Where nothing is named the newest unfinished thing counts: a
/// run that is newer than the pipeline, and none of its stages, goes first.
fn automatic(args: &Request, cx: &Context) -> anyhow::Result<Option<PipelineDir>> {
    if let Some(word) = args.spec.target() {
        let named = pipeline::find(word, &cx.spec_sources()).map_err(|e| failed(&e))?;
        return Ok(named.and_then(|p| pipeline::newest_unfinished(&cx.runs_dir, Some(&p.name))));
    }
    let Some(dir) = pipeline::newest_unfinished(&cx.runs_dir, None) else {
        return Ok(None);
    };
    let state = dir.state().map_err(|e| failed(&e))?;
    let Some(run) = newest_unfinished(&cx.runs_dir, &|_| true)?.run else {
        return Ok(Some(dir));
    };
    let its_own = state.runs().any(|id| id == run.id());
    let first = its_own || state.created > run.header()?.created;
    Ok(first.then_some(dir))
}

enum Fresh {
    Dir(PipelineDir),
    /// It was planned, or shown.
    Over(Exit),
}

/// A new folder for the pipeline that the arguments name, planned as a whole.
fn fresh(args: &Request, cx: &Context) -> anyhow::Result<Option<Fresh>> {
    let Some(word) = args.spec.target() else {
        return Ok(None);
    };
    let sources = cx.spec_sources();
    let Some(parsed) = pipeline::read(word, &sources).map_err(|e| failed(&e))? else {
        return Ok(None);
    };
    refuse_foreign(args)?;
    let (label, text) = pipeline::text_of(word, &sources).unwrap_or_default();
    let places = Places::of(&label, &text);
    if !parsed.faults.is_empty() {
        every_fault(parsed, places, args, cx)?;
        return Ok(None);
    }
    let mut pipeline = parsed.pipeline;
    let sets = args.sets(pipeline.trained());
    for word in &sets {
        pipeline.set(word).map_err(|e| failed(&e))?;
    }
    let places = places.with_words(&sets);
    for name in args.skip.iter().chain(args.redo) {
        known(&pipeline, name)?;
    }
    needs::agree(args)?;
    needs::values(&args.spec.set, args.skip, &[])?;
    needs::check(&pipeline, args.skip, &[], cx)?;
    let mut faults = check::stages(&pipeline, args.skip, &places, cx)?;
    faults.judges(&pipeline, &places, &sources);
    let planned = plan::plan(&pipeline, &places, args, &[], &mut faults, cx)?;
    faults.check()?;
    if !args.options.json {
        let text = cx.words(table::planned(&pipeline, &planned));
        outln!("{}", text.trim_end())?;
    }
    if args.dry_run {
        if args.options.json {
            let outline = serde_json::json!({"pipeline": pipeline.name, "stages": planned});
            outln!("{}", out::json(&outline)?)?;
        } else {
            outln!("dry run: nothing started")?;
        }
        return Ok(Some(Fresh::Over(Exit::Done)));
    }
    let text = pipeline.to_yaml();
    let dir =
        PipelineDir::create(&cx.runs_dir, &pipeline, &text, &cx.clock).map_err(|e| failed(&e))?;
    Ok(Some(Fresh::Dir(dir)))
}

/// Of a file that cannot be read as a whole: what is wrong with the stages that can be read is listed with it, at once.
///
/// # Errors
/// Always: everything that is wrong.
fn every_fault(
    parsed: Parsed,
    places: Places,
    args: &Request,
    cx: &Context,
) -> Result<(), Failure> {
    let Parsed {
        mut pipeline,
        faults: in_file,
        unread,
    } = parsed;
    let sets = args.sets(pipeline.trained());
    for word in &sets {
        // What is wrong with a word of `-s` is reported once the file is right.
        let _ = pipeline.set(word);
    }
    let places = places.with_words(&sets);
    let mut faults = check::stages(&pipeline, args.skip, &places, cx)?;
    faults.unread(in_file, unread);
    faults.judges(&pipeline, &places, &cx.spec_sources());
    // So is what the machine lacks.
    let _ = plan::plan(&pipeline, &places, args, &[], &mut faults, cx);
    faults.check()
}

fn known(pipeline: &Pipeline, name: &str) -> anyhow::Result<()> {
    if pipeline.stage(name).is_some() {
        return Ok(());
    }
    let names: Vec<&str> = pipeline.stages.iter().map(|s| s.name.as_str()).collect();
    let what = format!("{} has no stage {name:?}", pipeline.name);
    Err(Failure::user_error(what, names.join(", ")).into())
}

/// Options of `train` that mean one run.
fn refuse_foreign(args: &Request) -> anyhow::Result<()> {
    match args.foreign {
        Some(word) => {
            let what = format!("{word} applies to one run, but this is a pipeline");
            Err(Failure::user_error(what, "use it with the run of a stage").into())
        }
        None => Ok(()),
    }
}

/// `llmtui engine --pipeline`: drives the stages without a terminal.
///
/// # Errors
/// As its stages.
pub fn detached(folder: &Path, force: bool, cx: &Context) -> anyhow::Result<Exit> {
    let dir =
        PipelineDir::resolve(&cx.runs_dir, &folder.to_string_lossy()).map_err(|e| failed(&e))?;
    drive::detached(&dir, force, cx)
}

/// Starts the pipeline in the background, unless another process drives it, and opens the workbench on it.
fn watch(dir: &PipelineDir, options: Options, cx: &Context) -> anyhow::Result<Exit> {
    if dir.is_live() {
        // It may be at a stage that trains nothing: then this takes a while.
        errln!("{} is being driven: this shows its run", shown(dir.path()));
    }
    let run = crate::ui::begin_pipeline(dir, options.force, &cx.runs_dir, &cx.env)
        .map_err(|what| Failure::machine(what, ""))?;
    workbench::open(StartView::Pipeline(run, dir.clone()), cx)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::ManualClock;
    use crate::pipeline::Work;
    use crate::run::RunDir;

    /// The attempt trained on by itself, and the stages behind it never came.
    #[test]
    fn an_attempt_that_was_given_up_does_not_go_before_its_pipeline() {
        let runs = tempfile::tempdir().unwrap();
        let text = "stages: [{name: base, train: quickstart}]";
        let made = Pipeline::parse("mine.yaml", "mine", text).unwrap();
        let at = |seconds: u64| ManualClock::at(1_763_734_920_000 + 1_000 * seconds);
        let dir = PipelineDir::create(runs.path(), &made, text, &at(0)).unwrap();
        let begin = |seconds| RunDir::create(runs.path(), "base", "{}", "", &at(seconds)).unwrap();
        let mut state = dir.state().unwrap();
        state.stages[0].begin(begin(1).id());
        state.stages[0].redo();
        dir.save(&state).unwrap();
        let cx = Context {
            env: crate::base::paths::Env::default(),
            clock: crate::base::clock::SystemClock::new(),
            runs_dir: runs.path().into(),
            ascii: false,
            theme: None,
            hardware: None,
            stdin_is_terminal: false,
            stdout_is_terminal: false,
        };
        let spec = SpecArgs::default();
        let args = Request {
            spec: &spec,
            resume: Some(&Resume::Auto),
            nodes: &[],
            skip: &[],
            redo: &[],
            dry_run: false,
            headless: true,
            options: Options::default(),
            foreign: None,
        };
        assert_eq!(automatic(&args, &cx).unwrap(), Some(dir));
        let newest = || newest_unfinished(&cx.runs_dir, &|_| true).unwrap().run;
        assert_eq!(
            newest(),
            None,
            "nor is it revived where no pipeline is left"
        );
        // A run of its own that is newer than the pipeline goes first.
        let other = begin(2);
        assert_eq!(automatic(&args, &cx).unwrap(), None);
        assert_eq!(newest(), Some(other));
    }

    #[test]
    fn machines_are_those_of_every_stage_that_trains_and_says_no_engine() {
        let text = "name: mine
stages:
  - {name: base, train: smoke}
  - {name: tuned, train: smoke}
  - {name: rl, train: smoke}
  - {name: gguf, export: {format: gguf}}
";
        let mut pipeline = Pipeline::parse("mine.yaml", "mine", text).unwrap();
        let spec = SpecArgs {
            set: vec!["rl.engine=candle".into(), "base.max_steps=3".into()],
            ..SpecArgs::default()
        };
        let nodes = ["gpu1".to_string(), "gpu2".to_string()];
        let request = |nodes| Request {
            spec: &spec,
            resume: None,
            nodes,
            skip: &[],
            redo: &[],
            dry_run: false,
            headless: true,
            options: Options::default(),
            foreign: None,
        };
        let words = request(&nodes).sets(pipeline.trained());
        let on = |stage: &str| format!("{stage}.engine.torch.nodes=[\"gpu1\",\"gpu2\"]");
        assert_eq!(words[..2], [on("base"), on("tuned")]);
        assert_eq!(words[2..], spec.set);
        for word in &words {
            pipeline.set(word).unwrap();
        }
        check::keys(&pipeline, &words).unwrap();
        let (_, stage) = pipeline.stage("tuned").unwrap();
        let Work::Train(train) = &stage.work else {
            panic!("{stage:?}");
        };
        assert_eq!(train.set["engine.torch.nodes"], serde_json::json!(nodes));
        assert_eq!(request(&[]).sets(pipeline.trained()), spec.set);
    }
}
