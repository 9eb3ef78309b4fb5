//! From a job to a run that is ready for its next step: data, weights, and the checkpoint to continue from.

use super::checkpoint::checkpoints::Checkpoints;
use super::checkpoint::disk::RealDisk;
use super::checkpoint::{Fault, Manifest, Store};
use super::context::RunContext;
use super::critic::Critic;
use super::emit::Port;
use super::eval::best::BestBy;
use super::experience::Experience;
use super::extra::Extras;
use super::mix::Mix;
use super::own_answers::OwnAnswers;
use super::probing::probes;
use super::reading::{mixed, read_data};
use super::reference;
use super::remote::Remote;
use super::resume::{begun_at, resume};
use super::rollouts::Rollouts;
use super::start_weights::vocabulary_growth;
use super::state::TrainState;
use super::step::Stepper;
use super::teacher;
use super::utilization::Utilization;
use super::{EngineError, EngineJob};
use crate::base::files::write_atomic;
use crate::base::human;
use crate::base::text::shown;
use crate::data::{BatchSchedule, Dataset, Loader, Prefetch};
use crate::nn::compute_dtype_name;
use crate::spec::RunSpec;
use crate::wire::{Event, Phase};
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

/// The job with its epochs turned into steps, which the run's spec says from then on; then what a mix comes to over those.
///
/// # Errors
/// Fewer epochs than a resumed run has done; the disk.
pub(super) fn in_steps<'a>(
    job: &'a EngineJob,
    data: &Dataset,
    port: &mut Port<'_>,
) -> Result<Cow<'a, EngineJob>, EngineError> {
    let job = counted_in_steps(job, data, port)?;
    if let Some(mix) = mixed(data, &job.spec) {
        port.note(begun_at(&job), mix);
    }
    Ok(job)
}

fn counted_in_steps<'a>(
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
        spec.cadence_text()
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
    let critic = state.critic.as_ref().map(Critic::model);
    let models = (&state.models.policy, critic);
    let remote = Remote::begin(job, models, &clock, &mut || port.stop_requested())?;
    if let Some(remote) = &remote {
        port.note(begun_at, remote.words());
    }
    state.models.remote = remote;
    reference::attach(job, port, (&mut state.models, &data), begun_at)?;
    if let Some(loaded) = teacher::load(spec, &data)? {
        port.note(begun_at, loaded.words);
        state.models.teacher = Some(loaded.identity);
        if let Some(remote) = &mut state.models.remote {
            remote.set_teacher(loaded.teacher.clone());
        }
        state.models.policy.set_teacher(Some(loaded.teacher));
    }
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
        None => {
            let loader = Loader::new(data.clone(), schedule(spec), Prefetch::Ahead);
            match spec.method.own_share() > 0.0 {
                true => Box::new(OwnAnswers::new(spec, &data, loader, &port.clock)?),
                false => Box::new(loader),
            }
        }
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
        best_by: BestBy::of_spec(spec),
        best_by_whole: None,
        lacks_best: false,
    };
    let reference = super::collapse::reference(&mut cx)?;
    let stepper = Stepper::new(
        experience,
        mix,
        probes(&cx, reference.as_ref()),
        Utilization::of(&cx),
    );
    cx.state.carrier = stepper.carrier();
    cx.state.carrier.restore_state(&cx.state.progress.probes);
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
