//! `health.reference_run`: the loss curve of a finished run, read at the start and kept in this run's folder, so that a resume
//! does not depend on the other run.

use super::context::RunContext;
use crate::base::human;
use crate::base::text::{one_line, shown};
use crate::engine::EngineError;
use crate::metrics::estimators::collapse::{Piece, Reference, timescale, window};
use crate::run::log::Tail;
use crate::run::{RunDir, RunState};
use crate::spec::RunSpec;
use crate::wire::id;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::Path;

/// Within the run's folder.
pub const FILE: &str = "reference_curve.json";
/// Points of the curve at most.
const POINTS: usize = 2_000;
/// Shapes of curves agree up to this ratio of tokens per parameter, or of timescales.
const ALIKE: f64 = 1.25;

/// The curve as a run's folder keeps it.
#[derive(Serialize, Deserialize)]
struct Kept {
    /// What the spec names, and the run that it was.
    reference: String,
    run: String,
    /// Of the run that measures against it: the curve is averaged for that length.
    max_steps: u64,
    recipe: Recipe,
    /// What was said of both recipes.
    told: String,
    curve: Reference,
}

/// The curve that the spec asks for; what makes its shape another one is a warning.
pub(super) fn reference(cx: &mut RunContext<'_, '_>) -> Result<Option<Reference>, EngineError> {
    let Some(path) = cx.spec.health.reference_run.clone() else {
        return Ok(None);
    };
    let (step, max_steps) = (cx.step(), cx.spec.train.max_steps);
    let file = cx.job.run_dir.path().join(FILE);
    let mut kept = match read_kept(&file, &path, max_steps) {
        Some(kept) => kept,
        None => {
            let fault = |(what, fix)| EngineError::Setup(format!("{what}; {fix}"));
            let (run, curve) = read(&path, cx.spec).map_err(fault)?;
            Kept {
                reference: path.to_string_lossy().into(),
                run: one_line(&run.run),
                max_steps,
                recipe: Recipe::of_run(&run),
                told: String::new(),
                curve,
            }
        }
    };
    let here = Recipe {
        schedule: variant(&cx.spec.to_value()["schedule"]),
        tokens_per_parameter: (max_steps as usize * cx.batch_tokens()) as f64
            / cx.state.models.policy.params().len() as f64,
        timescale: decay_timescale(&cx.spec.to_value(), max_steps),
    };
    let told = format!(
        "collapse residual: measured against {}: {}",
        one_line(&kept.run),
        here.beside(&kept.recipe)
    );
    // A resume says it again where something of it changed, and so does a branch, which begins with its parent's file.
    if kept.told == told {
        return Ok(Some(kept.curve));
    }
    kept.told.clone_from(&told);
    let failed = |e: std::io::Error| EngineError::Machine(format!("{}: {e}", shown(&file)));
    let text = serde_json::to_vec(&kept).map_err(|e| failed(e.into()))?;
    crate::base::files::write_atomic(&file, &text).map_err(failed)?;
    match here.is_like(&kept.recipe) {
        true => cx.port.note(step, told),
        false => cx.port.warn(
            step,
            "reference_run",
            told,
            "curves of such runs differ in shape: a residual from 50 % of the run on is no fault then; compare runs with the same schedule, tokens per parameter and lr · weight_decay · steps",
        ),
    }
    Ok(Some(kept.curve))
}

/// What is wrong, with its place, and how to mend it.
type Fault = (String, &'static str);

/// Whether the run that `health.reference_run` names can serve, or the curve that the run to resume or to branch off keeps of it.
///
/// # Errors
/// Cause and fix: no run there, one that did not take all its steps, another method, too few losses.
pub fn check_reference(spec: &RunSpec, keeper: Option<&RunDir>) -> Result<(), Fault> {
    match &spec.health.reference_run {
        Some(_) if keeper.is_some_and(|run| keeps_reference(run, spec)) => Ok(()),
        Some(path) => read(path, spec).map(|_| ()),
        None => Ok(()),
    }
}

/// Whether a run's folder keeps the curve that this spec asks for, for runs of its length.
pub fn keeps_reference(run: &RunDir, spec: &RunSpec) -> bool {
    let path = spec.health.reference_run.as_ref();
    let kept = |path| read_kept(&run.path().join(FILE), path, spec.train.max_steps);
    path.and_then(|path| kept(path)).is_some()
}

/// What an earlier engine of this run kept; the curve of another run, or one that was averaged for another length, is read anew.
fn read_kept(file: &Path, reference: &Path, max_steps: u64) -> Option<Kept> {
    let text = crate::base::files::read_plain_text(file).ok()?;
    let kept: Kept = serde_json::from_str(&text).ok()?;
    let same = kept.reference == reference.to_string_lossy() && kept.max_steps == max_steps;
    same.then_some(kept)
}

fn read(path: &Path, spec: &RunSpec) -> Result<(RunState, Reference), Fault> {
    let fault = |what: String, fix: &'static str| {
        Err((
            format!("health.reference_run: {}: {what}", shown(path)),
            fix,
        ))
    };
    let other = "name a finished run, or leave health.reference_run out";
    let state = match fold(path) {
        Ok(state) => state,
        Err(what) => return fault(what, other),
    };
    let Some(head) = &state.head else {
        return fault("the run never started".into(), other);
    };
    let method = spec.method.entry().id;
    if head.method != method {
        let what = format!(
            "it trains by {}, this run by {method}",
            one_line(&head.method)
        );
        return fault(what, "name a run of the same method");
    }
    if state.step < head.max_steps {
        let (done, all) = (human::grouped(state.step), human::grouped(head.max_steps));
        return fault(
            format!("the run took {done} of its {all} steps, and a reference needs its final loss"),
            "finish it with llmtui train --resume, or name another run",
        );
    }
    let steps = spec.train.max_steps;
    let curve = Reference::new(&pieces(&state), window(steps) as f64 / steps.max(1) as f64);
    match curve {
        Some(curve) => Ok((state, curve)),
        None => fault(
            "its log holds too few losses up to the last step".into(),
            "name a run that logged at least 20 of them (train.log_every)",
        ),
    }
}

fn fold(path: &Path) -> Result<RunState, String> {
    let run = RunDir::open(path).map_err(|e| e.to_string())?;
    let mut tail = Tail::open(&run.events_path()).map_err(|e| e.to_string())?;
    let mut state = RunState::new();
    while let Some(envelope) = tail.next_event().map_err(|e| e.to_string())? {
        state.apply(&envelope);
    }
    Ok(state)
}

/// The training loss of a whole run, a mean for each of [`POINTS`] parts of its steps.
fn pieces(run: &RunState) -> Vec<Piece> {
    let Some(losses) = run.series.get(id::TRAIN_LOSS) else {
        return Vec::new();
    };
    let steps = run.step as f64;
    let parts = losses.columns(1.0, steps + 1.0, POINTS.min(run.step as usize));
    let piece = |part: crate::run::series::Bucket| {
        Some(Piece {
            progress: part.last as f64 / steps,
            loss: part.mean()?,
            n: f64::from(part.n),
        })
    };
    parts.into_iter().flatten().filter_map(piece).collect()
}

/// What the shape of a loss curve depends on.
#[derive(Serialize, Deserialize)]
struct Recipe {
    schedule: String,
    tokens_per_parameter: f64,
    /// Of the weight decay, as a share of the run.
    timescale: Option<f64>,
}

impl Recipe {
    fn of_run(run: &RunState) -> Recipe {
        let head = run.head.as_ref();
        let of_head = |f: fn(&crate::run::state::Head) -> f64| head.map_or(f64::NAN, f);
        let spec = head.map_or(Value::Null, |head| head.spec.clone());
        Recipe {
            schedule: variant(&spec["schedule"]),
            tokens_per_parameter: of_head(|h| {
                (h.max_steps * h.batch_tokens) as f64 / h.n_params as f64
            }),
            timescale: head.and_then(|head| decay_timescale(&spec, head.max_steps)),
        }
    }

    fn is_like(&self, other: &Recipe) -> bool {
        let near = |a: f64, b: f64| (ALIKE.recip()..=ALIKE).contains(&(a / b));
        let timescales = match (self.timescale, other.timescale) {
            (Some(a), Some(b)) => near(a, b),
            (a, b) => a.is_none() && b.is_none(),
        };
        self.schedule == other.schedule
            && near(self.tokens_per_parameter, other.tokens_per_parameter)
            && timescales
    }

    /// Both in words, the reference's values in parentheses.
    fn beside(&self, other: &Recipe) -> String {
        let timescale = |t: Option<f64>| t.map_or("none".into(), human::number);
        format!(
            "schedule {} ({}), {} tokens per parameter ({}), timescale of weight decay {} ({}) of the run",
            self.schedule,
            one_line(&other.schedule),
            human::number(self.tokens_per_parameter),
            human::number(other.tokens_per_parameter),
            timescale(self.timescale),
            timescale(other.timescale)
        )
    }
}

/// The one key of a choice: `cosine` of `{cosine: {…}}`.
fn variant(choice: &Value) -> String {
    let key = choice.as_object().and_then(|members| members.keys().next());
    key.cloned()
        .or_else(|| choice.as_str().map(String::from))
        .unwrap_or_default()
}

fn decay_timescale(spec: &Value, steps: u64) -> Option<f64> {
    let config = spec["optimizer"].as_object()?.values().next()?;
    timescale(
        config["lr"].as_f64()?,
        config["weight_decay"].as_f64()?,
        steps,
    )
}
