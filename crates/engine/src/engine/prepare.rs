//! From a job to a run that can take its next step: data, weights, and the checkpoint to continue from.

use super::checkpoint::disk::RealDisk;
use super::checkpoint::fingerprint::Match;
use super::checkpoint::{self, Checkpoints, Fault, Fingerprint, Found, Manifest, Store};
use super::context::RunContext;
use super::emit::Port;
use super::eval::best::BestBy;
use super::experience::Experience;
use super::extra::Extras;
use super::mix::Mix;
use super::probing::probes;
use super::reading::read_data;
use super::remote::Remote;
use super::rollouts::Rollouts;
use super::start_weights::vocabulary_growth;
use super::state::{Settings, TrainState};
use super::step::Stepper;
use super::{EngineError, EngineJob};
use crate::base::files::write_atomic;
use crate::base::human;
use crate::base::text::{one_line, shown};
use crate::data::{BatchSchedule, Dataset, Loader, Prefetch};
use crate::nn::compute_dtype_name;
use crate::run::compare::settings;
use crate::spec::RunSpec;
use crate::wire::{Event, Phase};
use serde_json::Value;
use std::borrow::Cow;
use std::sync::Arc;

/// Reads the data.
pub(super) fn data(job: &EngineJob, port: &mut Port<'_>) -> Result<Arc<Dataset>, EngineError> {
    let step = begun_at(job);
    port.emit(Event::PhaseChanged {
        phase: Phase::Preparing,
        step,
    });
    Ok(Arc::new(read_data(job, port, step)?))
}

/// The job with its epochs turned into steps, which the run's spec says from then on.
///
/// # Errors
/// Fewer epochs than a resumed run has done; the disk.
pub(super) fn in_steps<'a>(
    job: &'a EngineJob,
    data: &Dataset,
    port: &mut Port<'_>,
) -> Result<Cow<'a, EngineJob>, EngineError> {
    let train = &job.spec.train;
    let Some(epochs) = train.epochs else {
        return Ok(Cow::Borrowed(job));
    };
    let pass = data.micro_steps_per_epoch(train.micro_batch_size);
    let spec = job.spec.clone().on_data(pass);
    let steps = spec.train.max_steps;
    let begun = begun_at(job);
    // Epochs that come to the steps that the run had are those that it has done.
    if steps < begun || steps == begun && steps != train.max_steps {
        let done = epochs * begun as f64 / steps as f64;
        return Err(EngineError::Setup(format!(
            "epochs {} ends at step {}, but there is a checkpoint at step {} ({} epochs): nothing is left to train; -s epochs={} \
             continues",
            human::number(epochs),
            human::grouped(steps),
            human::grouped(begun),
            human::number(done),
            done.floor() + 1.0
        )));
    }
    if steps != train.max_steps {
        let path = job.run_dir.spec_path();
        write_atomic(&path, spec.to_yaml().as_bytes())
            .map_err(|e| EngineError::Machine(format!("{}: {e}", path.display())))?;
    }
    let words = format!(
        "epochs {}: {} steps over {} training {}; {}",
        match epochs.fract() == 0.0 {
            true => format!("{epochs:.0}"),
            false => human::number(epochs),
        },
        human::grouped(steps),
        human::grouped(data.epoch_tokens()),
        data.tokens_word(),
        spec.rhythm()
    );
    port.note(begun, words);
    Ok(Cow::Owned(EngineJob {
        spec,
        ..job.clone()
    }))
}

/// Builds the model and, on a resume, takes up the newest whole checkpoint.
pub(super) fn prepare<'a, 'p>(
    job: &'a EngineJob,
    data: Arc<Dataset>,
    port: &'a mut Port<'p>,
) -> Result<(RunContext<'a, 'p>, Stepper, Checkpoints), EngineError> {
    let folder = job.run_dir.checkpoints_path();
    let begun_at = begun_at(job);
    let spec = &job.spec;
    let mut state = TrainState::fresh(spec, &data)?;
    if !job.resume
        && let Some(words) = vocabulary_growth(spec, &data.tokenizer)
    {
        port.note(begun_at, words);
    }
    let clock = port.clock.clone();
    let remote = Remote::begin(job, &state.models.policy, &clock, &mut || {
        port.stop_is_asked()
    })?;
    if let Some(remote) = &remote {
        port.note(begun_at, remote.words());
    }
    state.models.remote = remote;
    state
        .models
        .attach_reference(&*spec.method, &data, spec.train.micro_batch_size)?;
    let extras = Extras::read(job, &data, port, begun_at)?;
    let mut store = Store::open(&folder, Box::new(RealDisk))
        .map_err(|e| EngineError::Machine(format!("{}: {e}", folder.display())))?;
    let saved_at = match job.resume {
        true => resume(job, port, &data, &mut state, &mut store)?,
        false => None,
    };
    are_numbers(&state, spec, saved_at.is_some())?;
    // Once, at the start: its model is read with the first answers.
    Manifest::verify_judges(&spec.rewards).map_err(|fault| {
        EngineError::Setup(format!(
            "rewards: the reward model's checkpoint is damaged: {fault}; {}",
            Fault::HINT
        ))
    })?;
    let experience: Box<dyn Experience> = match Rollouts::of(spec, &data, &port.clock) {
        Some(rollouts) => Box::new(rollouts),
        None => Box::new(Loader::new(data.clone(), schedule(spec), Prefetch::Ahead)),
    };
    let mix = Mix::of(&data);
    let begun_from = saved_at.map(|_| state.progress.clone());
    let mut cx = RunContext {
        job,
        spec,
        port,
        data,
        extras,
        state,
        best_by: BestBy::of_method(&*spec.method),
    };
    let stepper = Stepper::new(experience, mix, probes(&cx));
    cx.state.carrier = stepper.carrier();
    cx.state.carrier.take_up(&cx.state.progress.probes);
    Ok((cx, stepper, Checkpoints::new(store, begun_from)))
}

/// Refuses a start from weights, or a resume with moments, that hold a NaN or an infinity: what follows would be blamed on
/// the learning rate.
fn are_numbers(state: &TrainState, spec: &RunSpec, resumed: bool) -> Result<(), EngineError> {
    let checkpoint = || format!("the checkpoint of step {}", state.progress.step);
    let poisoned = |place: String, what: &str, fix: &str| {
        Err(EngineError::Setup(format!(
            "{place} contains non-finite {what} (NaN or inf): it was saved from a diverged run, or is damaged; {fix}"
        )))
    };
    let older = "use an older one";
    match &spec.train.from {
        _ if resumed => {
            if !state.weights_are_finite()? {
                return poisoned(checkpoint(), "weights", older);
            }
            if !state.moments_are_finite()? {
                let fix = "use an older one, or reset the optimizer with --fresh-optimizer";
                return poisoned(checkpoint(), "optimizer moments", fix);
            }
        }
        Some(from) if !state.weights_are_finite()? => {
            let place = format!("train.from: {}", shown(from));
            return poisoned(place, "weights", older);
        }
        _ => {}
    }
    Ok(())
}

fn schedule(spec: &RunSpec) -> BatchSchedule {
    BatchSchedule {
        seed: spec.seed,
        batch_size: spec.train.micro_batch_size,
        accum: spec.train.grad_accum_steps,
        ramp: (spec.train.batch_ramp.iter())
            .map(|stage| (stage.until_step, stage.grad_accum_steps))
            .collect(),
    }
}

/// Where the run will go on, if its newest checkpoint is whole.
pub(super) fn begun_at(job: &EngineJob) -> u64 {
    let saved = job
        .resume
        .then(|| checkpoint::store::list(&job.run_dir.checkpoints_path()));
    saved.and_then(|all| Some(all.first()?.step)).unwrap_or(0)
}

/// Takes up the newest whole checkpoint and says which broken ones were passed over. Without any checkpoint the run begins
/// at step 0; with nothing but broken ones it does not: that is for the user to decide.
fn resume(
    job: &EngineJob,
    port: &mut Port<'_>,
    data: &Dataset,
    state: &mut TrainState,
    store: &mut Store,
) -> Result<Option<u64>, EngineError> {
    let Some(Found { step, path }) = newest_or_fresh(job, port, store)? else {
        return Ok(None);
    };
    let before = last_start(job);
    if let Some((_, was)) = &before {
        warn_of_edits(job, port, step, was);
    }
    // Another text may have another vocabulary: what it is made from is asked before weights of other shapes are read.
    let saved = checkpoint::read_state(&path)?;
    if saved.progress.step != step {
        return Err(EngineError::Setup(format!(
            "{} is of step {}, not of step {step}: it does not belong there; delete that checkpoint",
            path.join(checkpoint::STATE).display(),
            saved.progress.step
        )));
    }
    let data_are = check_fingerprint(job, port, (step, &saved.fingerprint), data)?;
    let loaded = checkpoint::load(&path, state);
    loaded.map_err(|e| match data_are {
        // No --force makes weights of another vocabulary fit.
        DataAre::Other => EngineError::Setup(format!(
            "the checkpoint does not match the changed data, even with --force: {e}; restore the data, or start a new run"
        )),
        DataAre::TheSame => e.into(),
    })?;
    if job.fresh_optimizer {
        // Of an average and the weights behind it, the weights go on.
        state.show_average(false)?;
        state.reset_optimizer(&job.spec)?;
        let what = "the optimizer is reset: its state in the checkpoint is ignored";
        port.note(step, what.into());
    }
    if let Some(words) = before.and_then(|(steps, _)| replanned(steps, job, state)) {
        port.note(step, words);
    }
    Ok(Some(step))
}

/// The newest whole checkpoint, or `None` where the run begins at step 0.
fn newest_or_fresh(
    job: &EngineJob,
    port: &mut Port<'_>,
    store: &mut Store,
) -> Result<Option<Found>, EngineError> {
    let (newest, faults) = store.newest_whole(u64::MAX);
    for fault in &faults {
        port.warn(
            0,
            "checkpoint_broken",
            fault.to_string(),
            "an older checkpoint is used instead; delete the broken one",
        );
    }
    if newest.is_some() {
        return Ok(newest);
    }
    if let Some(fault) = faults.first() {
        return Err(EngineError::Setup(format!(
            "none of the {} checkpoints is intact ({fault}); delete them to start from step 0",
            faults.len()
        )));
    }
    match last_told(job) {
        Some(step) if !job.force => Err(EngineError::Setup(format!(
            "the log lists a checkpoint at step {step}, but {} has none: restore the folder, or restart from step 0 with \
             --force",
            job.run_dir.checkpoints_path().display()
        ))),
        Some(step) => {
            let what =
                format!("the checkpoints up to step {step} are gone: the run restarts from step 0");
            port.warn(0, "checkpoints_gone", what, "restarted because of --force");
            Ok(None)
        }
        None => Ok(None),
    }
}

/// Says what `spec.yaml` has otherwise than the spec that the process before began with.
fn warn_of_edits(job: &EngineJob, port: &mut Port<'_>, step: u64, was: &Value) {
    if let Some(changes) = edited(was, &job.spec) {
        port.warn(
            step,
            "spec_edited",
            format!("spec.yaml was changed since the run last trained: {changes}"),
            "restore the old values, or start a new run with other settings: llmtui train --branch RUN -s KEY=VALUE",
        );
    }
}

/// What a checkpoint was trained on, beside what the run has now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DataAre {
    TheSame,
    /// Continued because of --force.
    Other,
}

/// Whether the run goes on as it would have without a stop; says what differs, and refuses other data.
fn check_fingerprint(
    job: &EngineJob,
    port: &mut Port<'_>,
    (step, saved): (u64, &Fingerprint),
    data: &Dataset,
) -> Result<DataAre, EngineError> {
    match saved.compare(&Fingerprint::of(&job.spec, data)) {
        Match::Exact => {}
        Match::Inexact(why) => port.warn(
            step,
            "not_bit_exact",
            format!("the continuation will not be bit-identical to an uninterrupted run: {why}"),
            "restore engine, train.threads and train.precision to continue exactly",
        ),
        Match::Different(why) if job.force => {
            port.warn(step, "data_changed", why, "continued because of --force");
            return Ok(DataAre::Other);
        }
        Match::Different(why) => {
            return Err(EngineError::Setup(format!(
                "cannot continue from step {step}: {why}{}; restore the data, or llmtui train --resume {} --force",
                named(&job.spec),
                one_line(&job.run_dir.folder())
            )));
        }
    }
    Ok(DataAre::TheSame)
}

/// The data of a spec, where somebody named them.
fn named(spec: &RunSpec) -> String {
    let sources = spec.data.all_sources();
    let names: Vec<String> = sources.iter().map(|s| one_line(&s.to_string())).collect();
    match names.is_empty() {
        true => String::new(),
        false => format!(" ({})", names.join(", ")),
    }
}

/// The last step and the spec that the process before began with.
fn last_start(job: &EngineJob) -> Option<(u64, Value)> {
    let mut before = None;
    // A log that cannot be read tells of no other plan.
    let _ = crate::run::index::scan_events(&job.run_dir.events_path(), &["Started"], |event| {
        if let Event::Started {
            max_steps, spec, ..
        } = event
        {
            before = Some((max_steps, spec));
        }
    });
    before
}

/// What a spec says otherwise than the one before, but for where it computes and for how long: `seed 1 → 2`.
fn edited(was: &Value, is: &RunSpec) -> Option<String> {
    // Read by today's rules: of an older program's spec, defaults are filled in.
    let was = RunSpec::from_yaml(&was.to_string()).ok()?;
    let plain = |spec: &RunSpec| spec.clone().on_threads(None).to_step(1).in_steps();
    let specs = [plain(&was).to_value(), plain(is).to_value()];
    let machine = |path: &str| {
        let engine = path == "engine" || path.starts_with("engine.");
        engine || path == "train.activation_checkpointing"
    };
    let shown =
        |value: &Option<Value>| one_line(&crate::spec::shown(value.as_ref().unwrap_or_default()));
    let changes: Vec<String> = settings(&[&specs[0], &specs[1]])
        .into_iter()
        .filter(|setting| !machine(&setting.path))
        .map(|setting| {
            let (was, is) = (shown(&setting.values[0]), shown(&setting.values[1]));
            format!("{} {was} → {is}", setting.path)
        })
        .collect();
    (!changes.is_empty()).then(|| changes.join(", "))
}

/// What another last step than that of the process before means.
fn replanned(before: u64, job: &EngineJob, state: &TrainState) -> Option<String> {
    let now = job.spec.train.max_steps;
    if before == now {
        return None;
    }
    let of_plan = |max_steps| human::number(state.lr(&job.spec.clone().to_step(max_steps)));
    Some(format!(
        "the last step is {} now, it was {}: the {} schedule is recomputed, and the learning rate of the next update is {}, not \
         {}",
        human::grouped(now),
        human::grouped(before),
        job.spec.schedule.entry().id,
        of_plan(now),
        of_plan(before)
    ))
}

/// The settings that `Adjust` can change, as the log tells them. A crash loses what was changed after the checkpoint.
pub(super) fn settings_told(job: &EngineJob) -> Settings {
    let spec = &job.spec;
    let mut told = [
        ("lr", spec.optimizer.lr()),
        ("clip_norm", spec.train.clip_norm),
    ];
    // A log that cannot be read tells of no change.
    let _ = crate::run::index::scan_events(&job.run_dir.events_path(), &["Adjusted"], |event| {
        if let Event::Adjusted { key, new, .. } = event {
            let known = told.iter_mut().find(|(known, _)| *known == key);
            known.into_iter().for_each(|(_, value)| *value = new.0);
        }
    });
    told
}

/// Step of the newest checkpoint that the log acknowledges.
fn last_told(job: &EngineJob) -> Option<u64> {
    let mut last = None;
    let kinds = ["Checkpointed", "RolledBack"];
    // A log that cannot be read acknowledges nothing.
    let _ =
        crate::run::index::scan_events(&job.run_dir.events_path(), &kinds, |event| match event {
            Event::Checkpointed { step, .. } => last = Some(step),
            // Restarted from step 0: what was saved before is given up.
            Event::RolledBack { step: 0 } => last = None,
            _ => {}
        });
    last
}

/// The `Started` event.
pub(super) fn start_event(cx: &RunContext<'_, '_>, resumed_from: Option<u64>) -> Event {
    let (spec, policy) = (cx.spec, &cx.state.models.policy);
    Event::Started {
        name: spec.name.clone(),
        method: spec.method.entry().id.into(),
        spec: spec.to_value(),
        n_params: policy.n_params() as u64,
        vocab_size: policy.shape().vocab_size as u64,
        max_steps: spec.train.max_steps,
        batch_tokens: cx.batch_tokens() as u64,
        epoch_tokens: cx.data.epoch_tokens(),
        resumed_from,
        precision: Some(match &cx.state.models.remote {
            Some(remote) => remote.precision().into(),
            None => compute_dtype_name(policy.arithmetic()).into(),
        }),
        unigram_entropy: (spec
            .method
            .is_likelihood()
            .then(|| cx.data.unigram_entropy()))
        .flatten(),
    }
}
