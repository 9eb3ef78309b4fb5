//! A learning-rate range test: copies of the run take a few steps at a tenth of its rate up to ten times it, and are compared
//! on held-out batches (Smith 2017, arXiv 1506.01186, as a grid from one point).

use super::{Cause, Subject};
use crate::base::finding::Finding;
use crate::base::human;
use crate::base::stats;
use crate::data::Batch;
use crate::engine::checkpoint;
use crate::engine::eval::measure::{EvalScope, evaluate};
use crate::engine::roles::Models;
use crate::engine::state::TrainState;
use crate::engine::teacher;
use crate::engine::update::{At, Rates, update};
use crate::engine::{EngineError, micro_step_of};
use crate::run::CheckpointEntry;
use std::time::Duration;

pub const CAUSE: Cause = Cause {
    id: "learning_rate",
    title: "rate test",
    run,
};

/// Times the run's rate; those after the first [`USUAL`] only while no rate has moved the loss.
const FACTORS: [f64; 8] = [0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0];
const USUAL: usize = 5;
/// Steps of each copy, at most, and those that it takes to say anything.
const STEPS: u64 = 20;
const ENOUGH: u64 = 4;
/// Held-out batches.
const BATCHES: usize = 6;
/// Share of the peak from which on the rate of a checkpoint is one to start from: at the end of a schedule every other
/// rate undoes what the low one has gained.
const IN_FULL: f64 = 0.3;
/// A checkpoint is one to start from where its held-out loss is below this share of the start's.
const LEARNED: f64 = 0.9;
/// A difference counts from this share of the loss on, and from this many standard errors.
const SHARE: f64 = 0.01;
const ERRORS: f64 = 3.0;

/// The results of the copies.
#[derive(Debug, Clone, PartialEq)]
struct Outcome {
    /// Peak of a copy of the factor 1.
    rate: f64,
    /// Step of the checkpoint that they started from; 0 is the start of the run.
    from: u64,
    /// They began with random weights, which any fitting rate makes better in a few steps.
    random: bool,
    steps: u64,
    /// Mean held-out loss before.
    before: f64,
    /// That of the run's newest checkpoint, where it went on from there.
    newest: Option<f64>,
    /// Held-out loss of each batch after the steps, for each of [`FACTORS`].
    after: Vec<Vec<f64>>,
}

fn run(subject: &Subject<'_>) -> Result<Finding, EngineError> {
    let spec = subject.spec;
    if spec.method.on_policy().is_some() {
        let why = "rewards of a few rollouts are too noisy; see entropy, KL and the clipped share";
        return Ok(Finding::not_applicable(why));
    }
    if spec.engine.torch().is_some() {
        let why = "the run uses PyTorch ranks, and copies would not";
        return Ok(Finding::not_applicable(why));
    }
    let Some(start) = start(subject)? else {
        return Ok(Finding::unknown(
            "no checkpoint at the full rate is left: the run has learned since its start, and at the end of a schedule other rates show nothing",
            "keep more of them (checkpoint.keep_last, checkpoint.every)",
        ));
    };
    let rate = match start.from {
        Some(_) => start.state.lr(spec),
        None => spec.optimizer.lr(),
    };
    match rate <= 0.0 {
        true => Ok(Finding::not_applicable("the learning rate is 0")),
        false => compare_rates(subject, start, rate),
    }
}

/// Trains a copy at each of [`FACTORS`] of the rate, and judges them.
fn compare_rates(
    subject: &Subject<'_>,
    start: Start<'_>,
    rate: f64,
) -> Result<Finding, EngineError> {
    let Start {
        from,
        before,
        newest,
        mut state,
    } = start;
    let share = subject.budget / USUAL as u32;
    let mut steps = None;
    let mut after = Vec::new();
    for (at, factor) in FACTORS.iter().enumerate() {
        if at >= USUAL && moved(mean(&before), &after) {
            break;
        }
        if at > 0 {
            state = begun(subject, from)?;
        }
        // The first copy that does not break finds out how many steps there is time for.
        let limit = (steps.unwrap_or(STEPS), steps.is_none().then_some(share));
        let taken = train(subject, &mut state, factor * rate, limit, from.is_none())?;
        if let Some(taken) = taken.filter(|taken| *taken < ENOUGH) {
            let words = format!(
                "a step takes too long: {taken} of {STEPS} fit into {} s",
                share.as_secs()
            );
            return Ok(Finding::unknown(
                words,
                "a smaller batch, or a machine with more cores",
            ));
        }
        after.push(match taken {
            Some(_) => held_out(subject, &mut state.models)?,
            None => vec![f64::NAN; BATCHES],
        });
        steps = steps.or(taken);
    }
    Ok(judge(&Outcome {
        rate,
        from: from.map_or(0, |entry| entry.step),
        random: from.is_none() && subject.spec.train.from.is_none(),
        steps: steps.unwrap_or(STEPS),
        before: mean(&before),
        newest,
        after,
    }))
}

/// Where copies start.
struct Start<'s> {
    /// `None` is the start of the run.
    from: Option<&'s CheckpointEntry>,
    before: Vec<f64>,
    newest: Option<f64>,
    state: TrainState,
}

/// The newest checkpoint at the full rate; or the start of a run that has learned nothing, where rates are judged as they are at its
/// beginning. `None` where it has learned and no such checkpoint is left.
fn start<'s>(subject: &'s Subject<'_>) -> Result<Option<Start<'s>>, EngineError> {
    let mut state = begun(subject, None)?;
    let begin = held_out(subject, &mut state.models)?;
    let last = subject.checkpoints.last();
    let newest = match last {
        Some(last) => Some(mean(&held_out_at(subject, last, &mut state)?)),
        None => None,
    };
    let learned = |loss: f64| loss <= LEARNED * mean(&begin);
    let from = starting_point(subject);
    if let Some(entry) = from {
        let before = held_out_at(subject, entry, &mut state)?;
        if learned(mean(&before)) {
            return Ok(Some(Start {
                from,
                before,
                newest: newest.filter(|_| last.is_some_and(|last| last.step > entry.step)),
                state,
            }));
        }
    } else if newest.is_some_and(learned) {
        return Ok(None);
    }
    // It says nothing of the rate that weights of this size now need another one.
    Ok(Some(Start {
        from: None,
        before: begin,
        newest,
        state: begun(subject, None)?,
    }))
}

/// The held-out losses of a checkpoint, whose state is loaded.
fn held_out_at(
    subject: &Subject<'_>,
    entry: &CheckpointEntry,
    state: &mut TrainState,
) -> Result<Vec<f64>, EngineError> {
    checkpoint::Manifest::verify(&entry.path).map_err(checkpoint::CheckpointError::from)?;
    checkpoint::load(&entry.path, state)?;
    held_out(subject, &mut state.models)
}

/// A copy of the run at a checkpoint, or at its start.
fn begun(subject: &Subject<'_>, from: Option<&CheckpointEntry>) -> Result<TrainState, EngineError> {
    let spec = subject.spec;
    let mut state = TrainState::fresh(spec, subject.data)?;
    let size = spec.train.micro_batch_size;
    state
        .models
        .attach_reference(&*spec.method, subject.data, size)?;
    if let Some(loaded) = teacher::load(spec, subject.data)? {
        state.models.policy.set_teacher(Some(loaded.teacher));
    }
    if let Some(entry) = from {
        checkpoint::Manifest::verify(&entry.path).map_err(checkpoint::CheckpointError::from)?;
        checkpoint::load(&entry.path, &mut state)?;
    }
    Ok(state)
}

/// The newest checkpoint in the full part of the schedule.
fn starting_point<'s>(subject: &'s Subject<'_>) -> Option<&'s CheckpointEntry> {
    let spec = subject.spec;
    let peak = spec.optimizer.lr();
    let scheduled = |step| spec.schedule.lr_at(step, spec.train.max_steps, peak);
    let mut kept = subject.checkpoints.iter().rev();
    kept.find(|entry| scheduled(entry.step) >= IN_FULL * peak)
}

/// Takes the run's next steps at a rate of our own; from the start of a run with a linear warm-up over the first half of them.
/// How many were taken, fewer where the time is up; `None` where a loss or a gradient became non-finite. Shows the average.
fn train(
    subject: &Subject<'_>,
    state: &mut TrainState,
    lr: f64,
    (steps, limit): (u64, Option<Duration>),
    warms_up: bool,
) -> Result<Option<u64>, EngineError> {
    let (spec, begun) = (subject.spec, subject.clock.elapsed());
    let clip_norm = state.clip_norm(spec);
    let first = state.progress.step;
    let mut taken = Some(steps);
    for step in 0..steps {
        if step > 0 && limit.is_some_and(|limit| subject.clock.elapsed() - begun >= limit) {
            taken = Some(step);
            break;
        }
        let accum = spec.train.accum(first + step + 1) as u64;
        let micro_step = micro_step_of(first + step + 1, &spec.train, &state.progress.skips);
        let mut batches: Vec<Batch> = (micro_step..micro_step + accum)
            .map(|micro| {
                subject
                    .data
                    .train_batch(spec.seed, micro, spec.train.micro_batch_size)
            })
            .collect();
        for batch in &mut batches {
            state.models.add_reference(batch)?;
        }
        let warm = 2.0 * (step + 1) as f64 / steps as f64;
        let rates = Rates {
            lr: if warms_up { lr * warm.min(1.0) } else { lr },
            clip_norm,
        };
        let at = At {
            seed: spec.seed,
            micro_step,
        };
        let (model, optimizer) = (&mut state.models.policy, &mut *state.optimizer);
        let (found, _) = update(&*spec.method, model, optimizer, &batches, at, rates)?;
        if !found.are_finite() {
            taken = None;
            break;
        }
    }
    state.show_average(true)?;
    Ok(taken)
}

/// The loss of each of the same held-out batches.
fn held_out(subject: &Subject<'_>, models: &mut Models) -> Result<Vec<f64>, EngineError> {
    let (spec, data) = (subject.spec, subject.data);
    let size = spec.train.micro_batch_size;
    let mut losses = Vec::new();
    for at in 0..BATCHES {
        // Drawn with their own seed: single batches, whose differences give a standard error.
        let seed = spec.seed.wrapping_add(at as u64);
        let extent = EvalScope::Batches(1);
        let found = evaluate(
            &*spec.method,
            models,
            data,
            (seed, size),
            extent,
            &mut || false,
        )?;
        losses.extend(found.map(|found| found.loss));
    }
    Ok(losses)
}

fn mean(values: &[f64]) -> f64 {
    stats::mean(values.iter().copied()).unwrap_or_default()
}

/// How much lower `b` is than `a` on the same batches, and the standard error of that.
fn gain(a: &[f64], b: &[f64]) -> (f64, f64) {
    let differences: Vec<f64> = a.iter().zip(b).map(|(a, b)| a - b).collect();
    let error = stats::stderr_of_mean(&differences).unwrap_or_default();
    (mean(&differences), error)
}

/// Whether some rate changed the held-out loss, for better or worse.
fn moved(before: f64, after: &[Vec<f64>]) -> bool {
    after.iter().any(|losses| {
        let change = (mean(losses) - before).abs();
        !change.is_finite() || change >= SHARE * before.abs()
    })
}

/// The loss before, and the mean loss behind each rate.
fn evidence(outcome: &Outcome, means: &[f64]) -> String {
    let told = FACTORS.iter().zip(means).map(|(factor, loss)| {
        let rate = human::number(factor * outcome.rate);
        match loss.is_finite() {
            true => format!("{rate}: {loss:.3}"),
            false => format!("{rate}: non-finite"),
        }
    });
    let place = match outcome.from {
        0 => "the start of the run".to_string(),
        step => format!("checkpoint {step}"),
    };
    format!(
        "held-out loss {:.3} at {place}; after {} steps at {}",
        outcome.before,
        outcome.steps,
        told.collect::<Vec<_>>().join(", ")
    )
}

fn judge(outcome: &Outcome) -> Finding {
    let means: Vec<f64> = outcome.after.iter().map(|losses| mean(losses)).collect();
    let evidence = evidence(outcome, &means);
    let own = 2;
    debug_assert_eq!(FACTORS[own], 1.0);
    let clearly = |from: &[f64], to: &[f64]| {
        let (gained, error) = gain(from, to);
        // A non-finite loss is worse than any other.
        let broken = !mean(from).is_finite() && mean(to).is_finite();
        broken || gained > (ERRORS * error).max(SHARE * outcome.before.abs())
    };
    let best = (0..means.len())
        .filter(|at| means[*at].is_finite())
        .min_by(|a, b| means[*a].total_cmp(&means[*b]));
    let Some(best) = best else {
        let cause = "every learning rate fails: the learning rate is not the cause";
        return Finding::fail(evidence, cause, "check the data and train.precision");
    };
    if outcome.random && outcome.before - means[best] < SHARE * outcome.before {
        let most = FACTORS[means.len() - 1];
        let cause =
            format!("even {most} times the learning rate changes nothing: it is far too low");
        return Finding::warn(
            evidence,
            cause,
            "use the learning rate of a preset of this size, such as lr=1e-3",
        );
    }
    if !moved(outcome.before, &outcome.after) {
        let words = format!("{evidence}: no rate moves it");
        let fix = "look for more data, or other data: these weights have learned what they can from these";
        return Finding::unknown(words, fix);
    }
    let better = clearly(&outcome.after[own], &outcome.after[best]);
    let suggested = human::number(FACTORS[best] * outcome.rate);
    if best > own && better {
        let cause =
            "larger steps make more progress from the same point: the learning rate is too low";
        return Finding::warn(
            evidence,
            cause,
            format!("lr={suggested}, with warm-up; or branch from a checkpoint with it"),
        );
    }
    // A lower rate gains at once on any healthy run, as at the end of a schedule: it counts where the own one loses ground.
    // Where the run itself got on from there, twenty steps were too few to tell.
    let got_on = outcome
        .newest
        .is_some_and(|loss| loss < outcome.before * (1.0 - SHARE));
    let loses = !means[own].is_finite() || means[own] > outcome.before * (1.0 + SHARE) && !got_on;
    if best < own && better && loses {
        let cause = "the run's own rate gets worse where a lower one improves: the learning rate is too high";
        return Finding::fail(
            evidence,
            cause,
            format!("lr={suggested}; branch from a checkpoint with it"),
        );
    }
    Finding::pass(evidence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::SystemClock;
    use crate::base::finding::Status;
    use crate::engine::revisit::Revisit;
    use crate::engine::tests::{Run, tiny};
    use crate::run::RunDir;

    /// A copy with its weights after so many steps at a rate, within a time.
    fn copy(lr: f64, limit: (u64, Option<Duration>)) -> (Option<u64>, Vec<f32>) {
        let (spec, data) = tiny(&["train.ema_decay=0.9"]);
        let dir = tempfile::tempdir().unwrap();
        let clock = SystemClock::new();
        let subject = Subject {
            run: &RunDir::create(dir.path(), "t", &spec.to_yaml(), "", &clock).unwrap(),
            spec: &spec,
            data: &data,
            revisit: Revisit::of_spec(&spec, &data),
            checkpoints: Vec::new(),
            steps: 1,
            clock: &clock,
            budget: Duration::ZERO,
        };
        let mut state = begun(&subject, None).unwrap();
        let taken = train(&subject, &mut state, lr, limit, false).unwrap();
        let weights = state.models.policy.params().read_weights(<[f32]>::to_vec);
        (taken, weights.unwrap())
    }

    #[test]
    fn a_copy_out_of_time_shows_its_average_and_one_that_breaks_counts_no_steps() {
        let (whole, cut) = (copy(0.01, (1, None)), copy(0.01, (9, Some(Duration::ZERO))));
        assert_eq!((whole.0, cut.0), (Some(1), Some(1)));
        assert!(whole.1 == cut.1);
        assert_eq!(copy(f64::MAX, (4, None)).0, None);
    }

    fn judged(before: f64, means: [f64; 5]) -> Finding {
        judged_beside(before, None, means)
    }

    fn judged_beside(before: f64, newest: Option<f64>, means: [f64; 5]) -> Finding {
        let around = |mean: f64| {
            [0.01, -0.01, 0.02, -0.02, 0.0, 0.0]
                .map(|d| mean + d)
                .to_vec()
        };
        judge(&Outcome {
            rate: 1e-3,
            from: 500,
            random: before > 4.0,
            steps: 20,
            before,
            newest,
            after: means.map(around).to_vec(),
        })
    }

    #[test]
    fn the_rate_that_gets_furthest_is_named() {
        let low = judged(3.0, [2.99, 2.97, 2.9, 2.7, 2.5]);
        assert_eq!(low.status, Status::Warn);
        assert!(
            low.cause.contains("too low") && low.fix.contains("0.01"),
            "{low:?}"
        );
        let high = judged(3.0, [2.8, 2.9, 3.4, 5.0, f64::NAN]);
        assert_eq!(high.status, Status::Fail);
        assert!(
            high.cause.contains("too high") && high.fix.contains("1.00e-4"),
            "{high:?}"
        );
        assert!(high.evidence.to_string().contains("non-finite"), "{high:?}");
        // A lower rate gains at once on any run: no finding while the own one gains, too.
        assert_eq!(judged(3.0, [2.7, 2.8, 2.9, 3.5, 4.0]).status, Status::Pass);
        // Within the noise.
        assert_eq!(
            judged(3.0, [2.99, 2.98, 2.97, 2.96, 3.1]).status,
            Status::Pass
        );
        assert_eq!(judged(3.0, [f64::NAN; 5]).status, Status::Fail);
        // Random weights that nothing moves; weights that have learned may have nothing left to learn.
        let far = judged(4.17, [4.17, 4.17, 4.169, 4.168, 4.165]);
        assert!(
            far.status == Status::Warn && far.cause.contains("far too low"),
            "{far:?}"
        );
        assert_eq!(
            judged(3.17, [3.17, 3.17, 3.169, 3.168, 3.165]).status,
            Status::Unknown
        );
    }

    /// SFT at its floor: twenty steps at the full rate lost a percent, the run itself went on to gain three.
    #[test]
    fn a_run_that_got_on_at_its_own_rate_is_not_too_fast() {
        let means = [0.77, 0.775, 0.796, 0.9, 1.4];
        assert_eq!(
            judged_beside(0.784, Some(0.759), means).status,
            Status::Pass
        );
        for newest in [None, Some(0.784), Some(0.9)] {
            let found = judged_beside(0.784, newest, means);
            assert_eq!(found.status, Status::Fail, "{newest:?}");
        }
        // A rate that breaks the copy is one.
        let breaks = [0.77, 0.775, f64::NAN, f64::NAN, f64::NAN];
        assert_eq!(
            judged_beside(0.784, Some(0.759), breaks).status,
            Status::Fail
        );
    }

    /// At the start of a run nearly every higher rate is better for twenty steps: four healthy presets were told so.
    #[test]
    fn a_run_that_has_learned_is_not_judged_from_its_start() {
        let tested = |lr: &str| {
            let words = [
                "train.max_steps=60",
                "checkpoint.every=60",
                "schedule.cosine.min_lr=0",
                lr,
            ];
            let trained = Run::new(&words);
            trained.go();
            let (spec, data) = tiny(&words);
            let clock = SystemClock::new();
            let run_dir = &trained.job.run_dir;
            let checkpoints = run_dir.checkpoints();
            let subject = Subject {
                run: run_dir,
                spec: &spec,
                data: &data,
                revisit: Revisit::of_spec(&spec, &data),
                steps: checkpoints.last().unwrap().step,
                checkpoints,
                clock: &clock,
                budget: Duration::from_secs(60),
            };
            run(&subject).unwrap()
        };
        let learned = tested("lr=0.02");
        assert_eq!(learned.status, Status::Unknown, "{learned:?}");
        let said = learned.evidence.to_string();
        assert!(said.contains("no checkpoint at the full rate"), "{said}");
        let idle = tested("lr=1e-6");
        assert_eq!(idle.status, Status::Warn, "{idle:?}");
        let said = idle.evidence.to_string();
        assert!(said.contains("the start of the run"), "{said}");
    }

    #[test]
    fn gains_are_paired() {
        let (gained, error) = gain(&[2.0, 3.0, 4.0], &[1.5, 2.5, 3.5]);
        assert_eq!((gained, error), (0.5, 0.0));
    }
}
