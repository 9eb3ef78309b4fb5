//! `llmtui ladder`: a few small runs and what they predict about the large one.

use super::args::SpecArgs;
use super::{
    Context,
    exit::{Exit, Failure},
    pipeline::child::{self, Stop},
    run_ref,
    trials::{self, Done, Earlier, SeenData},
};
use crate::base::human::{self, counted, grouped, short};
use crate::plan::calibration::Machine;
use crate::plan::power_law::{self, PowerLaw, Prediction, Trend};
use crate::plan::small_runs::{Axis, FEWEST, FEWEST_STEPS, SmallRun, choose};
use crate::plan::start::new_run;
use crate::plan::{Request, plan, target};
use crate::run::RunDir;
use crate::run::index::{self, RunStatus};
use crate::spec::{self, Loaded, RunSpec};
use serde::Serialize;

/// Predict a run's loss from three or more small ones
///
/// The small runs scale the target down along one axis. A power law fitted to their validation losses predicts the
/// target's, with a range that covers seed noise. They are ordinary runs and stay in the runs directory; the next ladder
/// reuses those that finished with the same settings. Ctrl-C saves the current run, and the same command continues the ladder.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  llmtui ladder shakespeare --dry-run
  llmtui ladder my.yaml --axis size --runs 4 --json")]
pub struct Args {
    #[command(flatten)]
    pub spec: SpecArgs,
    /// What to scale down: tokens (fewer steps) or size (a smaller model)
    #[arg(long, value_name = "AXIS", default_value = "tokens", value_parser = axis)]
    pub axis: Axis,
    /// Number of small runs
    #[arg(long, value_name = "N", default_value_t = FEWEST as u64, value_parser = clap::value_parser!(u64).range(3..=8))]
    pub runs: u64,
    /// Train every small run, even if one with the same settings and data has finished
    #[arg(long)]
    pub fresh: bool,
    /// Show what would run and what it would cost, then stop
    #[arg(long)]
    pub dry_run: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// One rung, before or after its run.
#[derive(Debug, Clone, Serialize)]
struct Rung {
    /// The run's id; absent before it has run.
    run: Option<String>,
    /// An earlier ladder trained it.
    reused: bool,
    params: u64,
    tokens: u64,
    steps: u64,
    /// Its position on the axis.
    x: f64,
    /// Predicted time; absent if this machine's speed is unknown.
    planned_seconds: Option<f64>,
    seconds: Option<f64>,
    /// Validation loss after the last step, nats per token.
    loss: Option<f64>,
}

/// The object of `--json`.
#[derive(Debug, Serialize)]
struct Report {
    target: String,
    axis: &'static str,
    target_x: f64,
    target_seconds: Option<f64>,
    runs: Vec<Rung>,
    fit: Option<PowerLaw>,
    prediction: Option<Prediction>,
}

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    let name = args.spec.target().ok_or_else(|| {
        Failure::user_error("which spec? Name a preset or a file", "llmtui presets list")
    })?;
    let set = super::model_ref::with_runs(&args.spec.set, cx)?;
    let loaded = super::memory::decided(args.spec.load(cx)?, cx);
    super::target::print_notes(&loaded);
    refuse_unpredictable(name, &loaded.spec, args.axis)?;
    let mut request = target::resolve(name, &set, &cx.spec_sources())
        .map_err(|e| Failure::user_error(e.to_string(), e.hint()))?;
    Machine::load_or_measure(&cx.env, super::probe::measure).calibrate(&mut request);
    let runs = choose(&loaded.spec, &request, args.axis, args.runs as usize).map_err(|e| {
        Failure::user_error(
            e.to_string(),
            "train the target itself, or the other --axis",
        )
    })?;
    let mut report = Report {
        target: loaded.spec.name.clone(),
        axis: args.axis.word(),
        target_x: args.axis.of(&request),
        target_seconds: seconds(&request),
        runs: runs.iter().map(|run| rung(run, args.axis)).collect(),
        fit: None,
        prediction: None,
    };
    let (mut steps, mut data) = (Vec::new(), SeenData::default());
    for (small, rung) in runs.iter().zip(&mut report.runs) {
        let mut step = Step::load(small, (name, &set), cx)?;
        if !args.fresh {
            // A dry run starts nothing, so one that trains now is no obstacle.
            let earlier = trials::earlier(&step.loaded.spec, &mut data, cx, trials::finished);
            let Earlier { ended, begun } = match earlier {
                Err(_) if args.dry_run => Earlier::none(),
                found => found?,
            };
            step.begun = begun;
            if let Some(done) = ended {
                rung.take(done);
                rung.reused = true;
            }
        }
        steps.push(step);
    }
    if !args.dry_run {
        climb(&mut report, steps, cx)?;
    }
    use std::io::Write;
    let text = match args.json {
        true => format!("{}\n", super::out::json(&report)?),
        false => cx.words(table(&report, args)),
    };
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(Exit::Done)
}

/// Refuses a spec of which smaller runs say nothing.
///
/// # Errors
/// The method has no validation loss, or `axis` is the size of a model that `train.from` fixes.
fn refuse_unpredictable(name: &str, spec: &RunSpec, axis: Axis) -> Result<(), Failure> {
    if spec.method.on_policy().is_some() {
        let what = format!(
            "method {} trains on its own completions and has no validation loss for a ladder to predict",
            spec.method.entry().id
        );
        let hint = format!(
            "llmtui plan {name} estimates the run; llmtui train {name} -s max_steps=N tries a short one"
        );
        return Err(Failure::user_error(what, hint));
    }
    if axis == Axis::Size && spec.train.from.is_some() {
        let what = "--axis size scales the model down, and train.from fixes its size";
        return Err(Failure::user_error(what, "--axis tokens"));
    }
    Ok(())
}

fn seconds(request: &Request) -> Option<f64> {
    plan(request).work.hours.map(|hours| 3600.0 * hours)
}

fn rung(run: &SmallRun, axis: Axis) -> Rung {
    Rung {
        run: None,
        reused: false,
        params: run.request.arch.n_params(),
        tokens: run.request.tokens,
        steps: run.steps,
        x: axis.of(&run.request),
        planned_seconds: seconds(&run.request),
        seconds: None,
        loss: None,
    }
}

impl Rung {
    fn take(&mut self, done: Done) {
        self.run = Some(done.id);
        self.seconds = Some(done.seconds);
        self.loss = Some(done.val_loss);
    }
}

/// What a rung trains.
struct Step {
    loaded: Loaded,
    /// Why it has this engine, where it was to be decided.
    engine: Option<String>,
    /// An earlier run of it that can go on.
    begun: Option<RunDir>,
}

impl Step {
    fn load(
        small: &SmallRun,
        (name, set): (&str, &[String]),
        cx: &Context,
    ) -> anyhow::Result<Step> {
        // A layer of its own: its steps take the place of epochs and shares that -s says.
        let mut loaded = spec::load_over(name, set, &small.settings, &cx.spec_sources())?;
        let engine = crate::plan::start::resolve_auto_engine(&mut loaded, &cx.env);
        Ok(Step {
            loaded,
            engine,
            begun: None,
        })
    }
}

/// Runs the rungs one after the other, those that finished before excepted, and fits the curve. A stop ends the ladder.
fn climb(report: &mut Report, steps: Vec<Step>, cx: &Context) -> anyhow::Result<()> {
    let stop = Stop::listen(false);
    let count = steps.len();
    for (i, step) in steps.into_iter().enumerate() {
        let place = format!("run {} of {count}", i + 1);
        let rung = &mut report.runs[i];
        if let (Some(id), Some(loss), true) = (&rung.run, rung.loss, rung.reused) {
            errln!(
                "{place}: reused {id}, validation loss {}; --fresh trains it again",
                human::number(loss)
            );
            continue;
        }
        if stop.is_requested() || !train(rung, step, &place, &stop, cx)? {
            errln!("stopped: the same command continues the ladder");
            return Ok(());
        }
        if let Some(loss) = rung.loss {
            errln!("  validation loss {}", human::number(loss));
        }
    }
    let points: Vec<(f64, f64)> = report
        .runs
        .iter()
        .filter_map(|r| Some((r.x, r.loss?)))
        .collect();
    report.fit = power_law::fit(&points);
    report.prediction = power_law::predict(&points, report.target_x);
    Ok(())
}

/// Trains a rung to its end, or from where an earlier ladder left it; false if it was stopped.
///
/// # Errors
/// It ended otherwise before its last step.
fn train(
    rung: &mut Rung,
    step: Step,
    place: &str,
    stop: &Stop,
    cx: &Context,
) -> anyhow::Result<bool> {
    let Step {
        loaded,
        engine,
        begun,
    } = step;
    let steps = counted(rung.steps, "step");
    let run = match begun {
        Some(run) => {
            errln!("{place}: {} continues ({steps})", run.folder());
            run
        }
        None => {
            if let Some(why) = engine {
                errln!("note: {why}");
            }
            let run = new_run(&cx.runs_dir, &loaded, None, &cx.clock)
                .map_err(|e| Failure::not_a_new_run(&e))?;
            errln!("{place}: {} ({steps})", run.folder());
            run
        }
    };
    let command = trials::command(&run, &loaded.spec, false, cx)?;
    let (status, said) = child::run_with_stderr(command, stop, std::io::sink())?;
    let summary = index::summarize(&run)?;
    if summary.status == RunStatus::Finished {
        rung.run = Some(summary.id.clone());
        rung.seconds = Some(summary.seconds);
        if let Some(done) = trials::finished(&run, &summary) {
            rung.take(done);
        }
        return Ok(true);
    }
    // Of one that was stopped before its first step only an empty folder would stay.
    if stop.is_requested() && trials::has_nothing(&run, &summary) && run.remove().is_ok() {
        return Ok(false);
    }
    if summary.status == RunStatus::Stopped {
        rung.run = Some(summary.id);
        return Ok(false);
    }
    let mut failure = trials::ended_early(&run, &summary, said, status);
    let id = run.folder();
    failure.what = format!("{id} ended before its last step: {}", failure.what);
    failure.hint = run_ref::command("attach", run.path(), &cx.runs_dir);
    Err(failure.into())
}

fn table(report: &Report, args: &Args) -> String {
    let mut out = rungs(report) + &prediction(report, args.axis);
    if report.runs.iter().any(|r| r.steps < FEWEST_STEPS) {
        out.push_str(
            "  runs this short are still in the initial drop: treat the prediction as a hint\n",
        );
    }
    if args.dry_run {
        out.push_str("  nothing was run: remove --dry-run to start\n");
    }
    out
}

/// The runs, and their time together.
fn rungs(report: &Report) -> String {
    let words = |seconds: Option<f64>| match seconds {
        Some(s) if s < 60.0 => format!("{s:.1} s"),
        Some(s) => human::seconds(s),
        None => "?".into(),
    };
    let mut out = format!("{} · scaled down along {}\n\n", report.target, report.axis);
    out.push_str("  run   parameters    tokens     steps      time   val loss\n");
    for (i, rung) in report.runs.iter().enumerate() {
        let loss = rung.loss.map_or(String::new(), human::number);
        let time = words(rung.seconds.or(rung.planned_seconds));
        out.push_str(&format!(
            "  {:<4} {:>11} {:>9} {:>9} {time:>9}   {loss:>8}\n",
            i + 1,
            short(rung.params as f64),
            short(rung.tokens as f64),
            grouped(rung.steps)
        ));
    }
    let all: Option<f64> = report
        .runs
        .iter()
        .map(|r| r.seconds.or(r.planned_seconds))
        .sum();
    out.push_str(&format!(
        "\n  total {}, the target alone {}\n",
        words(all),
        words(report.target_seconds)
    ));
    let reused = report.runs.iter().filter(|rung| rung.reused).count();
    if reused > 0 {
        out.push_str(&format!(
            "  {reused} of {} runs finished earlier and {} not trained again: --fresh trains all\n",
            report.runs.len(),
            if reused == 1 { "is" } else { "are" }
        ));
    }
    out
}

/// The fitted curve, what it predicts for the target, and how sure that is.
fn prediction(report: &Report, axis: Axis) -> String {
    let mut out = String::new();
    if let (Some(fit), Some(p)) = (&report.fit, &report.prediction) {
        let x = if axis == Axis::Tokens {
            "tokens"
        } else {
            "parameters"
        };
        out.push_str(&format!(
            "  loss = {:.3} + {} · {x}^-{:.3}, {:.4} nats residual\n",
            fit.e,
            human::number(fit.a),
            fit.alpha,
            fit.rms
        ));
        out.push_str(&format!(
            "  predicted at {} {x}: {:.3} ({:.3} to {:.3})\n",
            short(report.target_x),
            p.loss,
            p.low,
            p.high
        ));
    }
    if let Some(missed) = report.prediction.and_then(|p| p.missed) {
        out.push_str(&format!(
            "  the same fit without the largest run missed that run by {:.3}\n",
            missed.abs()
        ));
    }
    if report.prediction.is_some_and(|p| p.trend == Trend::Steady) {
        out.push_str(
            "  the curve does not flatten yet, so the range is wide: longer runs would narrow it\n",
        );
    }
    out
}

fn axis(text: &str) -> Result<Axis, String> {
    let found = Axis::ALL.iter().find(|(word, _)| *word == text);
    found
        .map(|(_, axis)| *axis)
        .ok_or_else(|| "tokens or size".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_tells_the_line_and_the_prediction() {
        let rung = |tokens: u64, loss| Rung {
            run: Some("r".into()),
            reused: true,
            params: 804_096,
            tokens,
            steps: 10,
            x: tokens as f64,
            planned_seconds: None,
            seconds: Some(2.0),
            loss: Some(loss),
        };
        let points = [(1e5, 2.5), (2e5, 2.2), (4e5, 2.0)];
        let report = Report {
            target: "quickstart".into(),
            axis: "tokens",
            target_x: 1.6e6,
            target_seconds: None,
            runs: points.map(|(x, l)| rung(x as u64, l)).to_vec(),
            fit: power_law::fit(&points),
            prediction: power_law::predict(&points, 1.6e6),
        };
        let args = Args {
            spec: SpecArgs::default(),
            axis: Axis::Tokens,
            runs: 3,
            fresh: false,
            dry_run: false,
            json: false,
        };
        let text = table(&report, &args);
        assert!(text.contains("total 6.0 s, the target alone ?"), "{text}");
        assert!(text.contains("predicted at 1.60M tokens: 1."), "{text}");
        let told = "3 of 3 runs finished earlier and are not trained again";
        assert!(text.contains(told), "{text}");
    }
}
