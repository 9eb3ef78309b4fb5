//! `llmtui sweep`: the same run with each combination of some settings, one after the other, and which was best.

mod grid;
mod table;

use super::args::SpecArgs;
use super::exit::{Exit, Failure};
use super::pipeline::child::{self, Stop};
use super::trials::{self, Earlier, SeenData, State};
use super::{Context, memory, model_ref, queue, run_ref, target};
use crate::base::human::{counted, number};
use crate::base::text::one_line;
use crate::plan::calibration::Machine;
use crate::plan::start::new_run;
use crate::plan::{plan, target as plan_target};
use crate::run::RunDir;
use crate::run::index::{self, RunStatus, RunSummary};
use crate::run::objective::{Contents, Objective};
use crate::run::ranking::{Trial, in_one_unit};
use crate::spec::{Loaded, Sizes};
use grid::GridAxis;
use serde::Serialize;
use serde_json::Value;

/// Train one spec with several values of its settings, one run after the other, and rank them
///
/// Every combination of the values is a run. They are ordinary runs: `attach` shows the current one, `runs --compare` their curves. A
/// run that diverges is a result; the sweep goes on. Ctrl-C saves the current run, and the same command continues the sweep: runs that
/// finished with the same settings and data are not trained again. Runs are ranked by their best evaluation, those that differ only in
/// `seed` by its mean; runs of different methods or tokenizers only by a reading that says the same of all.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  llmtui sweep quickstart --over lr=3e-4,1e-3,3e-3
  llmtui sweep my.yaml --over lr=1e-4,3e-4 --over adapter.lora.rank=8,32 --over seed=1,2,3 --dry-run
  llmtui sweep my.yaml -s max_steps=500 --over optimizer=adamw,muon --json")]
pub struct Args {
    #[command(flatten)]
    pub spec: SpecArgs,
    /// A setting, as for -s, and the values to try; may be repeated: every combination is trained
    #[arg(long, value_name = "KEY=V,V,…", required = true)]
    pub over: Vec<GridAxis>,
    /// Train every run, even if one with the same settings and data has finished
    #[arg(long)]
    pub fresh: bool,
    /// Train even if a preflight check fails, or a plan does not fit
    #[arg(long)]
    pub force: bool,
    /// Begin when this run has ended, however it ends: the name or directory of a live run or pipeline; behind those that are queued there
    #[arg(long, value_name = "RUN", conflicts_with = "dry_run")]
    pub after: Option<String>,
    /// Show which runs there would be and what they would cost, then stop
    #[arg(long)]
    pub dry_run: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// One run of the grid.
#[derive(Debug, Serialize)]
pub struct Row {
    #[serde(flatten)]
    pub trial: Trial,
    /// An earlier sweep, or an earlier command, trained it.
    pub reused: bool,
    pub planned_seconds: Option<f64>,
}

/// What the combinations have in common and is found out once.
struct Known {
    machine: Machine,
    data: SeenData,
}

/// A run of the grid before it begins.
struct Planned {
    loaded: Loaded,
    row: Row,
    /// One with the same settings and data that can go on.
    begun: Option<RunDir>,
}

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    let name = args.spec.target().ok_or_else(|| {
        Failure::user_error("which spec? Name a preset or a file", "llmtui presets list")
    })?;
    let set = model_ref::with_runs(&args.spec.set, cx)?;
    let combinations = grid::combinations(&args.over, &set)
        .map_err(|what| Failure::user_error(what, "llmtui sweep --help"))?;
    let mut planned = Vec::new();
    let mut known = Known {
        machine: Machine::load_or_measure(&cx.env, super::probe::measure),
        data: SeenData::default(),
    };
    for chosen in combinations {
        planned.push(one(name, &set, chosen, args, &mut known, cx)?);
    }
    all_differ(&planned)?;
    check(&planned, args, cx)?;
    let advice = advice(&planned);
    if !args.dry_run {
        target::print_notes(&planned[0].loaded);
        // Before the time is spent.
        for line in &advice {
            errln!("advice: {}", cx.words(line.clone()));
        }
        train_all(&mut planned, args, cx)?;
    }
    let unit = one_unit(&mut planned, cx);
    let rows: Vec<Row> = planned.into_iter().map(|planned| planned.row).collect();
    match args.json {
        true => outln!(
            "{}",
            super::out::json(&table::object(name, &rows, (&unit, &advice)))?
        )?,
        false => outln!(
            "{}",
            cx.words(table::text(name, &rows, (&unit, &advice), args, cx))
                .trim_end()
        )?,
    }
    Ok(Exit::Done)
}

/// Makes the scores comparable: what was done for it, or why they cannot be.
fn one_unit(planned: &mut [Planned], cx: &Context) -> table::Unit {
    let specs: Vec<Value> = planned.iter().map(|p| p.loaded.spec.to_value()).collect();
    let contents = |(planned, spec): (&Planned, &Value)| {
        let id = planned.row.trial.run.as_ref();
        let run = id.and_then(|id| RunDir::open(&cx.runs_dir.join(id)).ok());
        run.map_or_else(
            || Contents::of_spec(spec),
            |run| Contents::of_run(&run, spec),
        )
    };
    let contents: Vec<Contents> = planned.iter().zip(&specs).map(contents).collect();
    let methods: Vec<&'static str> = planned
        .iter()
        .map(|p| p.loaded.spec.method.entry().id)
        .collect();
    let runs: Vec<Objective<'_>> = (0..planned.len())
        .map(|at| Objective {
            method: methods[at],
            spec: &specs[at],
            contents: &contents[at],
        })
        .collect();
    let mut trials: Vec<Trial> = planned.iter().map(|p| p.row.trial.clone()).collect();
    let unit = in_one_unit(&mut trials, &runs);
    for (planned, trial) in planned.iter_mut().zip(trials) {
        planned.row.trial = trial;
    }
    unit
}

/// What the machine has to have for the runs that are not there yet: memory, and PyTorch for ranks.
fn check(planned: &[Planned], args: &Args, cx: &Context) -> Result<(), Failure> {
    for planned in planned.iter().filter(|planned| !planned.row.reused) {
        let of_it = |failure| of_combination(failure, &planned.row.trial.set);
        if !args.force {
            memory::check(&planned.loaded.spec, &cx.env).map_err(of_it)?;
        }
        if !args.dry_run {
            memory::torch(&planned.loaded.spec, &cx.env).map_err(of_it)?;
        }
    }
    Ok(())
}

/// One combination: its spec, its predicted time, and what there is of it already.
fn one(
    name: &str,
    set: &[String],
    chosen: Vec<String>,
    args: &Args,
    known: &mut Known,
    cx: &Context,
) -> anyhow::Result<Planned> {
    let spec = SpecArgs {
        spec: Some(name.into()),
        config: None,
        set: [set, &chosen].concat(),
    };
    let mut loaded = spec.load(cx)?;
    crate::plan::start::resolve_auto_engine(&mut loaded, &cx.env);
    let request = plan_target::resolve(name, &spec.set, &cx.spec_sources());
    let planned_seconds = request.ok().and_then(|mut request| {
        known.machine.calibrate(&mut request);
        plan(&request).work.hours.map(|hours| 3600.0 * hours)
    });
    let mut row = Row {
        trial: Trial::new(chosen, loaded.spec.train.max_steps),
        reused: false,
        planned_seconds,
    };
    let mut begun = None;
    if !args.fresh {
        let whole = |_: &RunDir, summary: &RunSummary| Some(summary.clone());
        // A dry run starts nothing, so one that trains now is no obstacle.
        let earlier = match trials::earlier(&loaded.spec, &mut known.data, cx, whole) {
            Err(_) if args.dry_run => Earlier::none(),
            found => found?,
        };
        if let Some(summary) = &earlier.ended {
            row.trial.take(summary);
            row.reused = true;
        }
        begun = earlier.begun;
    }
    Ok(Planned { loaded, row, begun })
}

/// What is probably a mistake in the settings, as a dry run of each has it: once, with the runs that it is about where those are not
/// all. What depends on the data is not among it: they are read when a run begins.
fn advice(planned: &[Planned]) -> Vec<String> {
    const NAMED: usize = 3;
    let sizes = Sizes {
        here: true,
        ..Sizes::default()
    };
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    for planned in planned {
        let set = planned.row.trial.set.join(" ");
        for advice in planned.loaded.spec.review(sizes) {
            let line = format!("{}: {}; {}", advice.place, advice.evidence, advice.fix);
            match found.iter_mut().find(|(known, _)| *known == line) {
                Some((_, sets)) => sets.push(set.clone()),
                None => found.push((line, vec![set.clone()])),
            }
        }
    }
    let worded = |(line, sets): (String, Vec<String>)| match sets.len() {
        n if n == planned.len() => line,
        n if n > NAMED => format!("{n} of {} runs: {line}", planned.len()),
        _ => format!("{}: {line}", sets.join(", ")),
    };
    found.into_iter().map(worded).collect()
}

fn of_combination(mut failure: Failure, set: &[String]) -> Failure {
    failure.what = format!("{}: {}", set.join(" "), failure.what);
    failure
}

/// Two spellings of one value make the same run twice.
fn all_differ(planned: &[Planned]) -> Result<(), Failure> {
    for (i, one) in planned.iter().enumerate() {
        let yaml = one.loaded.spec.to_yaml();
        let mut before = planned[..i].iter();
        if let Some(twin) = before.find(|other| other.loaded.spec.to_yaml() == yaml) {
            let (a, b) = (twin.row.trial.set.join(" "), one.row.trial.set.join(" "));
            let what = format!("{a} and {b} are the same run");
            return Err(Failure::user_error(
                what,
                "drop one of the values from --over",
            ));
        }
    }
    Ok(())
}

/// Trains what is not there yet, in order. A stop ends the sweep; so does a run that could not begin.
fn train_all(planned: &mut [Planned], args: &Args, cx: &Context) -> anyhow::Result<()> {
    let stop = Stop::listen(false);
    if let Some(word) = &args.after
        && let Some(last) = queue::live(word, cx)?
    {
        errln!("waits until {} has ended", one_line(&last.folder()));
        queue::wait(&last, || stop.is_requested());
    }
    let count = planned.len();
    for (at, planned) in planned.iter_mut().enumerate() {
        let place = format!(
            "run {} of {count}: {}",
            at + 1,
            planned.row.trial.set.join(" ")
        );
        if planned.row.reused {
            let run = planned.row.trial.run.clone().unwrap_or_default();
            errln!("{place} · {run}, trained earlier; --fresh trains it again");
            continue;
        }
        if stop.is_requested() {
            break;
        }
        let run = begin(planned, args, &place, cx)?;
        let command = trials::command(&run, &planned.loaded.spec, args.force, cx)?;
        // Its advice on the spec was printed before the first run.
        let (status, said) = child::run_with_stderr(command, &stop, std::io::sink())?;
        let summary = index::summarize(&run)?;
        // A later command begins anew: an empty folder would stay behind for each stop.
        if stop.is_requested() && trials::has_nothing(&run, &summary) && run.remove().is_ok() {
            planned.row.trial.run = None;
            errln!("  stopped before its first step; its folder is removed");
            break;
        }
        planned.row.trial.take(&summary);
        let ended_by_itself = matches!(trials::state(&run, &summary), State::Ended);
        if !ended_by_itself && !stop.is_requested() && summary.status != RunStatus::Stopped {
            let mut failure = trials::ended_early(&run, &summary, said, status);
            failure.hint = "correct it; the same command continues with this run".into();
            return Err(of_combination(failure, &planned.row.trial.set).into());
        }
        let max_steps = match summary.max_steps {
            0 => planned.loaded.spec.train.max_steps,
            known => known,
        };
        errln!("  {}", table::result(&planned.row.trial, max_steps));
        if !ended_by_itself {
            break;
        }
    }
    if planned.iter().any(|planned| planned.row.trial.is_open()) {
        errln!("stopped: the same command continues the sweep");
    }
    Ok(())
}

/// The run of a combination: the one that can go on, or a new one.
fn begin(planned: &mut Planned, args: &Args, place: &str, cx: &Context) -> anyhow::Result<RunDir> {
    let (run, how) = match planned.begun.take() {
        Some(run) => (run, "continues"),
        None => {
            let run = new_run(&cx.runs_dir, &planned.loaded, None, &cx.clock)
                .map_err(|e| Failure::not_a_new_run(&e))?;
            (run, "begins")
        }
    };
    planned.row.trial.run = Some(run.id().to_string());
    if !args.json {
        let steps = match planned.loaded.spec.train.epochs {
            // What they come to is known once the data are read.
            Some(epochs) => format!("epochs {}", number(epochs)),
            None => counted(planned.row.trial.steps, "step"),
        };
        let attach = run_ref::command("attach", run.path(), &cx.runs_dir);
        errln!("{place} · {} {how}, {steps} · {attach}", run.folder());
    }
    Ok(run)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{SpecSources, load};

    fn planned(set: &[&str]) -> Planned {
        let set: Vec<String> = set.iter().map(|word| (*word).to_string()).collect();
        let loaded = load("quickstart", &set, &SpecSources::default()).unwrap();
        let trial = Trial::new(set, loaded.spec.train.max_steps);
        Planned {
            loaded,
            row: Row {
                trial,
                reused: false,
                planned_seconds: None,
            },
            begun: None,
        }
    }

    /// Learning rates were ranked that no run got to: its warm-up was longer than the run.
    #[test]
    fn advice_on_the_settings_is_given_once_with_the_runs_that_it_is_about() {
        let short = |lr: &str| planned(&["max_steps=60", lr]);
        let all = advice(&[short("lr=3e-4"), short("lr=1e-3")]);
        let about: Vec<&String> = all
            .iter()
            .filter(|line| line.contains("warm-up takes 100 steps of 60"))
            .collect();
        assert_eq!(about.len(), 1, "{all:?}");
        assert!(about[0].starts_with("schedule"), "{all:?}");
        let some = advice(&[short("lr=1e-3"), planned(&["max_steps=2000"])]);
        let about = some
            .iter()
            .find(|line| line.contains("warm-up takes"))
            .unwrap();
        assert!(about.starts_with("max_steps=60 lr=1e-3: "), "{about}");
        assert_eq!(advice(&[planned(&[])]), Vec::<String>::new());
    }
}
