//! What a resume changes of a pipeline: `--skip`, `--redo`, and `-s` for stages that are not over. All of it is checked before
//! anything is written.

use super::{Request, check, failed, known, needs, plan, stages, table};
use crate::base::text::one_line;
use crate::cli::exit::Failure;
use crate::cli::extend::{Asked, Extension};
use crate::cli::{Context, out};
use crate::pipeline::{Pipeline, PipelineDir, Places, Stage, StageState, State, Status};
use crate::run::RunDir;

/// The changes, checked.
pub struct Amended {
    /// With the values of `-s`.
    pipeline: Pipeline,
    /// Stages that were begun and of which `-s` says something.
    begun: Vec<Begun>,
    /// Something of the pipeline's values is another.
    is_changed: bool,
}

/// A stage whose run goes on with other values.
struct Begun {
    stage: String,
    run: RunDir,
    /// As `-s` says them of a run.
    words: Vec<String>,
    /// Nothing where they are the run's own values.
    extension: Option<Extension>,
}

/// `-s` and `--nodes` at a resume; a new pipeline has its values already.
fn sets(args: &Request, pipeline: &Pipeline, state: &State) -> Vec<String> {
    let is_over = |stage: &&Stage| {
        let state = state.stages.iter().find(|state| state.name == stage.name);
        let over =
            state.is_some_and(|state| matches!(state.status, Status::Done | Status::Skipped));
        (over && !args.redo.contains(&stage.name)) || args.skip.contains(&stage.name)
    };
    match args.resume {
        Some(_) => args.sets(pipeline.trained().filter(|stage| !is_over(stage))),
        None => Vec::new(),
    }
}

/// What `--skip` says of a stage that is done already: nothing.
fn done_already(args: &Request, state: &State) -> Vec<String> {
    let done = state.stages.iter().filter(|s| s.status == Status::Done);
    let named = done.filter(|s| args.skip.contains(&s.name) && !args.redo.contains(&s.name));
    let note = |stage: &StageState| {
        format!(
            "stage {} is done and keeps its model: --skip leaves it as it is",
            stage.name
        )
    };
    named.map(note).collect()
}

/// Sets the values of `-s` in the pipeline; returns the runs of stages that were begun, each with what is said of it.
///
/// # Errors
/// A value that the pipeline cannot take, or one of a stage that is done and not in `redo`.
fn set_values(
    pipeline: &mut Pipeline,
    sets: &[String],
    redo: &[String],
    state: &State,
    cx: &Context,
) -> anyhow::Result<Vec<Begun>> {
    let mut all: Vec<Begun> = Vec::new();
    for word in sets {
        let name = pipeline.set(word).map_err(|e| failed(&e))?;
        let stage = state.stages.iter().find(|stage| stage.name == name);
        let Some(stage) = stage.filter(|_| !redo.contains(&name)) else {
            continue;
        };
        if stage.status == Status::Done {
            let what = format!("-s {word}: stage {name} is done, its values are fixed");
            return Err(Failure::user_error(what, format!("--redo {name}")).into());
        }
        let Some(run) = stages::begun(stage, cx) else {
            continue;
        };
        let own = word.split_once('.').map_or("", |(_, own)| own).to_string();
        match all.iter_mut().find(|begun| begun.stage == name) {
            Some(begun) => begun.words.push(own),
            None => all.push(Begun {
                stage: name,
                run,
                words: vec![own],
                extension: None,
            }),
        }
    }
    Ok(all)
}

impl Amended {
    /// # Errors
    /// A stage that does not exist or is done; a value that the stage, or the run that it has begun, cannot take.
    pub fn plan(dir: &PipelineDir, args: &Request, cx: &Context) -> anyhow::Result<Amended> {
        let mut pipeline = dir.pipeline().map_err(|e| failed(&e))?;
        needs::agree(args)?;
        for name in args.skip.iter().chain(args.redo) {
            known(&pipeline, name)?;
        }
        let state = dir.state().map_err(|e| failed(&e))?;
        for note in done_already(args, &state) {
            errln!("note: {note}");
        }
        let sets = sets(args, &pipeline, &state);
        let mut begun = set_values(&mut pipeline, &sets, args.redo, &state, cx)?;
        let places = dir.places().map_err(|e| failed(&e))?.with_words(&sets);
        if !sets.is_empty() {
            pipeline
                .check_judges(&places, &cx.spec_sources())
                .map_err(|e| failed(&e))?;
        }
        let standing = FinishedStages::of(&state, args, cx);
        if args.resume.is_some() {
            needs::values(&args.spec.set, args.skip, &standing.left_out)?;
        }
        needs::check(&pipeline, &standing.left_out, &standing.done, cx)?;
        // What is done stays, whatever became of its files.
        let over = state.stages.iter().filter(|stage| {
            matches!(stage.status, Status::Done | Status::Skipped)
                && !args.redo.contains(&stage.name)
        });
        let over = over.map(|stage| stage.name.clone());
        let over: Vec<String> = over.chain(args.skip.iter().cloned()).collect();
        check::stages(&pipeline, &over, &places, cx)?.check()?;
        check::keys(&pipeline, &sets)?;
        for stage in &mut begun {
            stage.plan(cx)?;
        }
        if args.resume.is_some() && (!sets.is_empty() || !args.redo.is_empty()) {
            let args = &Request {
                options: args.options.with_earlier(&state),
                ..*args
            };
            standing.plan_the_others(&pipeline, &places, args, cx)?;
        }
        Ok(Amended {
            pipeline,
            begun,
            is_changed: !sets.is_empty(),
        })
    }

    /// Writes it. A stage that is done again makes its model anew; stages behind it keep theirs unless they are named too.
    ///
    /// # Errors
    /// Another process drives the pipeline or a run, or the disk: what was written by then is written again by the same command.
    pub fn write(self, dir: &PipelineDir, args: &Request) -> anyhow::Result<()> {
        if args.skip.is_empty() && args.redo.is_empty() && !self.is_changed {
            return Ok(());
        }
        let _lock = dir.claim().map_err(|e| failed(&e))?;
        for begun in &self.begun {
            begun.run.check_idle().map_err(|e| Failure::run(&e))?;
        }
        if self.is_changed {
            dir.write("pipeline.yaml", self.pipeline.to_yaml().as_bytes())
                .map_err(|e| failed(&e))?;
        }
        let mut state = dir.state().map_err(|e| failed(&e))?;
        Amended::mark(&mut state, args);
        for begun in &self.begun {
            let mut stages = state.stages.iter_mut();
            if let Some(stage) = stages.find(|stage| stage.name == begun.stage) {
                stage.amend(&begun.words, begun.extension.is_some());
            }
        }
        dir.save(&state).map_err(|e| failed(&e))?;
        Ok(())
    }

    /// Shows how the stages would stand, and with which the pipeline would go on.
    ///
    /// # Errors
    /// The state cannot be read; a closed standard output.
    pub fn show(self, dir: &PipelineDir, args: &Request, cx: &Context) -> anyhow::Result<()> {
        let mut state = dir.state().map_err(|e| failed(&e))?;
        Amended::mark(&mut state, args);
        if args.options.json {
            outln!("{}", out::json(&state)?)?;
            return Ok(());
        }
        for Begun { run, extension, .. } in &self.begun {
            for line in extension.iter().flat_map(|extension| extension.lines(run)) {
                outln!("{line}")?;
            }
        }
        let stages = table::stages(&state, dir.is_live(), &cx.runs_dir);
        outln!("{}\n{}", one_line(&state.id), stages.trim_end())?;
        let left = state.stages.iter().filter(|stage| !stage.status.is_over());
        let left: Vec<&str> = left.map(|stage| stage.name.as_str()).collect();
        match left.is_empty() {
            true => outln!("all stages are done: nothing would start")?,
            false => outln!("would do: {}", left.join(", "))?,
        }
        outln!("dry run: nothing started")?;
        Ok(())
    }

    /// What `--redo` and `--skip` make of the stages.
    fn mark(state: &mut State, args: &Request) {
        for stage in &mut state.stages {
            if args.redo.contains(&stage.name) {
                stage.redo();
            } else if args.skip.contains(&stage.name) && stage.status != Status::Done {
                stage.status = Status::Skipped;
            }
        }
    }
}

impl Begun {
    /// Checks the values against the run.
    ///
    /// # Errors
    /// The run cannot take them.
    fn plan(&mut self, cx: &Context) -> anyhow::Result<()> {
        let name = &self.stage;
        let of_stage = |failure: Failure| Failure {
            what: format!("stage {name}: {}", failure.what),
            hint: match failure.hint.strip_prefix("-s ") {
                Some(word) => format!("-s {name}.{word}"),
                None => format!("--redo {name} trains it again, with any value"),
            },
            ..failure
        };
        let asked = Asked::read(&self.words, "RUN").map_err(of_stage)?;
        let extension = Extension::plan(&self.run, &asked, cx).map_err(|error| {
            error
                .downcast::<Failure>()
                .map_or_else(|error| error, |failure| of_stage(failure).into())
        })?;
        self.extension = extension;
        Ok(())
    }
}

/// The stages that change no more.
struct FinishedStages {
    /// Left out, now or before: they have no model.
    left_out: Vec<String>,
    done: Vec<String>,
    /// Those whose runs have begun, which check what is asked of them.
    begun: Vec<String>,
}

impl FinishedStages {
    fn of(state: &State, args: &Request, cx: &Context) -> FinishedStages {
        let mut state = state.clone();
        Amended::mark(&mut state, args);
        let names = |holds: &dyn Fn(&StageState) -> bool| {
            let stages = state.stages.iter().filter(|stage| holds(stage));
            stages.map(|stage| stage.name.clone()).collect()
        };
        FinishedStages {
            left_out: names(&|stage| stage.status == Status::Skipped),
            done: names(&|stage| stage.status == Status::Done),
            begun: names(&|stage| stages::begun(stage, cx).is_some()),
        }
    }

    /// Checks the stages that are to begin yet, as before a pipeline's first one: their values, and memory.
    ///
    /// # Errors
    /// What is wrong with them, all of it.
    fn plan_the_others(
        &self,
        pipeline: &Pipeline,
        places: &Places,
        args: &Request,
        cx: &Context,
    ) -> anyhow::Result<()> {
        let over = [&self.done[..], &self.begun, &self.left_out].concat();
        let args = Request {
            skip: &self.left_out,
            ..*args
        };
        let mut faults = check::Faults::default();
        plan::plan(pipeline, places, &args, &over, &mut faults, cx)?;
        Ok(faults.check()?)
    }
}
