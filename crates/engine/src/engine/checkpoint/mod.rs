//! Checkpoints: a Hugging Face model folder that is also a resume point. Never a pickle.
//!
//! | file | what |
//! |---|---|
//! | config.json, generation_config.json, tokenizer.json, tokenizer_config.json, model.safetensors | the model, for us and for transformers |
//! | adapter_config.json, adapter_model.safetensors | its adapters, if it has any, in PEFT's format; model.safetensors then has the base's weights, in two copies that all checkpoints of a run share by hard links, and is absent if the base is a quantized file, which the config names |
//! | optimizer.safetensors | moments and step count of the update rule |
//! | critic.safetensors | weights and moments of the critic, for methods that have one |
//! | reference.safetensors | the reference model, if it is the policy after a cold start, or moves |
//! | rollout.json.zst | completions that later steps still train on, between the steps of a rollout |
//! | state.json | counters, live adjustments, fingerprints |
//! | manifest.json | sizes and checksums of all of them |

mod averages;
pub mod disk;
pub mod error;
pub mod fingerprint;
pub mod flat;
pub mod manifest;
mod needed;
mod readjust;
pub mod store;

pub use crate::run::checkpoints::{FOLDER, STATE, name_of};
pub use error::CheckpointError;
pub use fingerprint::Fingerprint;
pub use manifest::{Fault, Manifest};
pub use needed::{by_other_runs, is_needed, named_by};
pub use readjust::{forget_adjustments, recount};
pub use store::{Found, Store};

use super::EngineError;
use super::context::RunContext;
use super::resume::{Loaded, adjust_loaded, load_for};
use super::rollouts::in_use::ActiveRollout;
use super::state::{Progress, TrainState};
use crate::base::files::read_small;
use crate::base::text::shown;
use crate::data::Dataset;
use crate::data::render::padding;
use crate::hf::safetensors::{TensorFile, TensorHead, write_to};
use crate::hf::{self, TokenIds};
use crate::kernels::errors::io_error;
use crate::nn::{HeadKind, Model};
use crate::optim::UpdateRule;
use crate::spec::RescuePolicy;
use crate::wire::{Event, Phase};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use store::Part;

pub const OPTIMIZER: &str = "optimizer.safetensors";
pub const ROLLOUT: &str = "rollout.json.zst";
pub const CRITIC: &str = "critic.safetensors";
pub const REFERENCE: &str = "reference.safetensors";

/// Largest `state.json` that is read.
const MAX_STATE_BYTES: u64 = 1 << 20;

/// `state.json`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedState {
    pub progress: Progress,
    pub fingerprint: Fingerprint,
}

/// Writes one whole checkpoint, of averaged weights where the optimizer keeps them, as streams: beside the state itself it holds one turned matrix at most.
///
/// # Errors
/// The disk does not take it, or the optimizer cannot show its average.
pub fn save(
    store: &mut Store,
    state: &mut TrainState,
    data: &Dataset,
    fingerprint: &Fingerprint,
) -> Result<(PathBuf, Manifest), CheckpointError> {
    state.show_average(true)?;
    state.progress.probes = state.carrier.saved_state();
    let state = &*state;
    let step = state.progress.step;
    let saved = SavedState {
        progress: state.progress.clone(),
        fingerprint: fingerprint.clone(),
    };
    let failed = |source| CheckpointError::Write { step, source };
    let text = serde_json::to_vec_pretty(&saved).map_err(|e| failed(e.into()))?;
    let ids = token_ids(data, &state.models.policy, state.start_ids.as_ref());
    let config = hf::config_json(&state.models.policy, ids.clone());
    let generation = hf::generation_json(ids, state.generation.as_ref());
    let marks = data.tokenizer.config_json();
    let tokenizer = data.tokenizer.to_json();
    let bytes = |name, bytes| part(name, move |out| out.write_all(bytes));
    let adapter = hf::adapter_json(&state.models.policy, state.base.as_deref());
    let in_use = state
        .in_use
        .as_ref()
        .map(ActiveRollout::to_bytes)
        .transpose();
    let in_use = in_use.map_err(failed)?;
    let mut parts = vec![
        bytes(hf::CONFIG, config.as_bytes()),
        bytes(hf::GENERATION, generation.as_bytes()),
        bytes(hf::TOKENIZER, tokenizer.as_bytes()),
        bytes(hf::TOKENIZER_CONFIG, marks.as_bytes()),
        part(OPTIMIZER, |out| write_moments(&*state.optimizer, out)),
        bytes(STATE, &text),
    ];
    if state.models.policy.params().is_present() {
        let weights = part(hf::WEIGHTS, |out| {
            hf::write_weights(&state.models.policy, out)
        });
        let frozen = state.models.policy.params().base_is_frozen();
        parts.push(Part { frozen, ..weights });
    }
    if let Some(critic) = state.critic.as_ref().filter(|c| c.has_begun()) {
        parts.push(part(CRITIC, |out| critic.write(out)));
    }
    if state.models.policy.params().value_head().is_some() {
        let head = part(CRITIC, |out| {
            flat::write_value_head(&state.models.policy, out)
        });
        parts.push(head);
    }
    if let Some(model) = state.models.anchor_to_keep() {
        parts.push(part(REFERENCE, |out| flat::write(model, None, out)));
    }
    parts.extend(in_use.as_ref().map(|text| bytes(ROLLOUT, text)));
    if let Some(adapter) = &adapter {
        parts.push(bytes(hf::ADAPTER_CONFIG, adapter.as_bytes()));
        let weights = part(hf::ADAPTER_WEIGHTS, |out| {
            hf::write_adapter(&state.models.policy, out)
        });
        parts.push(weights);
    }
    store.commit(step, &parts).map_err(failed)
}

/// What begins a text (where neither tokenizer nor start model names it, what ends one), all that a text or a turn ends with,
/// and what pads. Tokens that ended a text for the start model still do: an instruct model stops at several. A reward model is
/// scored at the last non-padding token, so its folder always names the padding token.
fn token_ids(data: &Dataset, model: &Model, start: Option<&TokenIds>) -> TokenIds {
    let mark = data.tokenizer.eos();
    let is_known = |id: &u32| data.tokenizer.token(*id).is_some();
    let theirs = start.map_or(&[][..], |start| &start.eos);
    let mut eos: Vec<u32> = mark.into_iter().collect();
    for id in data
        .ends
        .iter()
        .chain(theirs.iter().filter(|id| is_known(id)))
    {
        if !eos.contains(id) {
            eos.push(*id);
        }
    }
    let begins = start.and_then(|start| start.bos).filter(is_known);
    TokenIds {
        bos: data.tokenizer.bos().or(begins).or(mark),
        eos,
        pad: match model.config().head {
            HeadKind::Vocabulary => data.tokenizer.pad(),
            HeadKind::Score => padding(&data.tokenizer),
        },
    }
}

fn part<'a>(
    name: &'static str,
    fill: impl Fn(&mut dyn io::Write) -> io::Result<()> + 'a,
) -> Part<'a> {
    Part {
        name,
        fill: Box::new(fill),
        frozen: false,
    }
}

fn write_moments(optimizer: &dyn UpdateRule, out: &mut dyn io::Write) -> io::Result<()> {
    let parts = optimizer.state();
    let heads: Vec<TensorHead> = parts
        .iter()
        .map(|part| TensorHead::f32(part.name, vec![part.len]))
        .collect();
    write_to(out, &heads, &mut |sink| {
        parts.iter().try_for_each(|part| {
            let mut written = Ok(());
            let mut put = |values: &[f32]| written = sink.put(values);
            optimizer
                .read_state(part.name, &mut put)
                .map_err(io_error)?;
            written
        })
    })
}

/// The counters and fingerprints of a checkpoint.
///
/// # Errors
/// The file is absent, too large or malformed.
pub fn read_state(folder: &Path) -> Result<SavedState, CheckpointError> {
    let path = folder.join(STATE);
    let wrong = |what: String| CheckpointError::State {
        path: path.clone(),
        what,
    };
    let text = read_small(&path, MAX_STATE_BYTES).map_err(|e| wrong(e.to_string()))?;
    serde_json::from_slice(&text).map_err(|e| wrong(e.to_string()))
}

/// Fills `state` from a verified checkpoint, in place; its model and optimizer are already of the right shape.
///
/// # Errors
/// A file is absent or damaged, or its tensors are not those of the state.
pub fn load(folder: &Path, state: &mut TrainState) -> Result<SavedState, CheckpointError> {
    let saved = read_state(folder)?;
    refuse_lost_reference(folder, state)?;
    let file = TensorFile::open(&folder.join(OPTIMIZER))?;
    // Which weights the checkpoint contains.
    state.show_average(true)?;
    let parts = averages::expected(&file, &*state.optimizer);
    for part in &parts {
        file.expect(part.name, &[part.len])?;
    }
    read_weights(folder, state)?;
    for part in &parts {
        let mut read = Ok(());
        let mut fill = |values: &mut [f32]| read = file.read_into(part.name, &[part.len], values);
        state.optimizer.write_state(part.name, &mut fill)?;
        read?;
    }
    averages::reconcile(&file, &mut state.models.policy, &mut *state.optimizer)?;
    finish(folder, saved, state)
}

/// What a checkpoint holds beside weights and moments.
fn finish(
    folder: &Path,
    saved: SavedState,
    state: &mut TrainState,
) -> Result<SavedState, CheckpointError> {
    let path = folder.join(REFERENCE);
    let is_kept = path.exists();
    if is_kept {
        state
            .models
            .restore_anchor(|model| flat::read(&path, model, None))?;
        // Perhaps it has: at worst the one that was attached is attached again.
        state.models.moved |= state.models.moves;
    }
    // Of a branch the parent kept none: it begins with the one that was attached.
    state.models.anchored = is_kept || state.models.moves;
    let path = folder.join(ROLLOUT);
    let in_use = path
        .exists()
        .then(|| ActiveRollout::read(&path))
        .transpose();
    state.in_use = in_use.map_err(|what| CheckpointError::State { path, what })?;
    // The start model may be gone by now.
    if state.generation.is_none() {
        state.generation = hf::read_generation(folder);
        // With its tokens, where there was a start model.
        if let (Some(_), Ok(ids)) = (&state.base, hf::token_ids(folder)) {
            state.start_ids = Some(ids);
        }
    }
    state.progress = saved.progress.clone();
    state.carrier.restore_state(&state.progress.probes);
    state.changed_here();
    Ok(saved)
}

/// Whether the reference has moved and a checkpoint does not say what it was: the first one of a branch whose parent's reference
/// stayed, or one of before `train.sync_ref_model` was set.
fn lacks_reference(folder: &Path, state: &TrainState) -> bool {
    state.models.moved && state.models.moves && !folder.join(REFERENCE).exists()
}

/// A reference that has moved cannot be brought back without its file; the state is untouched yet.
fn refuse_lost_reference(folder: &Path, state: &TrainState) -> Result<(), CheckpointError> {
    match lacks_reference(folder, state) {
        true => Err(CheckpointError::State {
            path: folder.join(REFERENCE),
            what: "is not there, and the reference model has moved since".into(),
        }),
        false => Ok(()),
    }
}

/// The same where the moments are dropped behind it: those of another optimizer, which has no place for them, stay unread, and
/// training continues with the weights that the checkpoint trained, or its average where the rule before kept that alone.
///
/// # Errors
/// As [`load`]; a critic takes its moments.
pub fn load_without_moments(
    folder: &Path,
    state: &mut TrainState,
) -> Result<SavedState, CheckpointError> {
    let file = TensorFile::open(&folder.join(OPTIMIZER))?;
    let parts = averages::expected(&file, &*state.optimizer);
    let is_there = |part: &crate::optim::StatePart| file.expect(part.name, &[part.len]).is_ok();
    if parts.iter().all(is_there) {
        return load(folder, state);
    }
    let saved = read_state(folder)?;
    refuse_lost_reference(folder, state)?;
    state.show_average(false)?;
    read_weights(folder, state)?;
    averages::take_trained(&file, &mut state.models.policy)?;
    finish(folder, saved, state)
}

/// Weights and adapters of the policy, and the critic.
fn read_weights(folder: &Path, state: &mut TrainState) -> Result<(), CheckpointError> {
    let model = &mut state.models.policy;
    if model.params().is_present() {
        hf::read_weights(folder, model)?;
    }
    if model.adapter().is_some() {
        hf::read_adapter(folder, model)?;
    }
    if let Some(critic) = &mut state.critic {
        critic.read(&folder.join(CRITIC))?;
    }
    flat::read_value_head(&folder.join(CRITIC), &mut state.models.policy)
}

/// What the log says of a checkpoint with these counters, which took `seconds` to write.
fn saved_event(progress: &Progress, path: &Path, bytes: u64, seconds: f64) -> Event {
    let step = progress.step;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let best = progress.best_saved.as_ref();
    let evaluated_here = progress.evaluated_at == Some(step);
    Event::Checkpointed {
        step,
        path: format!("{FOLDER}/{name}"),
        bytes,
        seconds,
        best: best.is_some_and(|best| best.step == step),
        val_loss: progress.val_loss.filter(|_| evaluated_here),
        by: progress.measured.clone().filter(|m| m.step == step),
    }
}

/// The checkpoints of a run in progress.
pub(super) struct Checkpoints {
    store: Store,
    /// Step of the newest checkpoint that this process wrote or began from.
    saved_at: Option<u64>,
    /// The counters in it.
    saved: Option<Progress>,
    /// Step of the checkpoint that this process began from, while it has not written another of that step.
    begun_from: Option<u64>,
}

impl Checkpoints {
    /// `begun_from` is what the newest checkpoint says.
    pub fn new(store: Store, begun_from: Option<Progress>) -> Checkpoints {
        Checkpoints {
            store,
            saved_at: begun_from.as_ref().map(|progress| progress.step),
            begun_from: begun_from.as_ref().map(|progress| progress.step),
            saved: begun_from,
        }
    }

    pub fn saved_at(&self) -> Option<u64> {
        self.saved_at
    }

    /// Whether the newest checkpoint is of this step and says that it is the best: an evaluation may have come after the save.
    pub fn best_is_recorded(&self, step: u64) -> bool {
        let best = self
            .saved
            .as_ref()
            .and_then(|saved| saved.best_saved.as_ref());
        self.saved_at == Some(step) && best.is_some_and(|best| best.step == step)
    }

    /// Saves and reports it; if the disk refuses it the run continues, and the next checkpoint tries again.
    ///
    /// # Errors
    /// Weights that are non-finite.
    pub fn save_or_warn(&mut self, cx: &mut RunContext<'_, '_>) -> Result<(), EngineError> {
        let step = cx.step();
        match self.save(cx) {
            Err(EngineError::Checkpoint(error)) => {
                let fix = self.fix(&error);
                let hint =
                    format!("the older checkpoints are intact and training continues; {fix}");
                cx.port
                    .warn(step, "checkpoint_failed", error.to_string(), &hint);
                Ok(())
            }
            done => done,
        }
    }

    /// What lets the next checkpoint be written after one that was not.
    pub fn fix(&self, error: &CheckpointError) -> String {
        error.fix(self.store.folder())
    }

    /// The last save of this process. A run whose end is not on the disk has not come to its end: it can be resumed from
    /// the checkpoint before.
    pub fn save_at_the_end(&mut self, cx: &mut RunContext<'_, '_>) -> Result<(), EngineError> {
        let kept = self.saved_at.map_or_else(
            || "no checkpoint was saved yet".to_string(),
            |step| format!("the latest checkpoint is at step {step}"),
        );
        self.save(cx).map_err(|error| match error {
            EngineError::Checkpoint(error @ CheckpointError::Write { .. }) => {
                EngineError::Machine(format!(
                    "{error}; {kept}. To continue, {}, then: llmtui train --resume {}",
                    self.fix(&error),
                    shown(cx.job.run_dir.path())
                ))
            }
            other => other,
        })
    }

    /// Saves, verifies, reports it, and only then deletes older checkpoints. A step that is saved already is not saved again.
    ///
    /// # Errors
    /// A disk that does not take it, a [`CheckpointError`]. Weights that are non-finite, which are never saved.
    pub fn save(&mut self, cx: &mut RunContext<'_, '_>) -> Result<(), EngineError> {
        let step = cx.step();
        if self.saved.as_ref() == Some(&cx.state.progress) && self.store.has_checkpoint(step) {
            return Ok(());
        }
        cx.port.enter(Phase::Checkpointing, step);
        let begun = cx.port.clock.elapsed();
        cx.refuse_broken_weights()?;
        let progress = &mut cx.state.progress;
        // Checkpoints of programs before this one name the best evaluation alone.
        let stands = |best: &crate::wire::Best| self.store.has_checkpoint(best.step);
        let before = progress.best_saved.clone();
        let before = before.or_else(|| progress.best.clone().filter(stands));
        if let Some(here) = progress.measured.clone().filter(|m| m.step == step)
            && here.replaces(before.as_ref())
        {
            progress.best_saved = Some(here);
        }
        self.warn_of_a_replaced_base(cx);
        let ranks = cx.state.models.remote.as_ref();
        let fingerprint = Fingerprint::of(cx.spec, &cx.data).on(ranks);
        let written = save(&mut self.store, &mut cx.state, &cx.data, &fingerprint)
            .and_then(|written| Ok((written, self.store.verify(step)?)));
        if written.is_err() {
            cx.state.progress.best_saved = before;
        }
        let ((path, _), manifest) = written?;
        self.saved_at = Some(step);
        self.saved = Some(cx.state.progress.clone());
        self.begun_from = self.begun_from.filter(|begun| *begun != step);
        let seconds = (cx.port.clock.elapsed() - begun).as_secs_f64();
        let progress = &cx.state.progress;
        let best = progress.best_saved.clone();
        let event = saved_event(progress, &path, manifest.total_bytes(), seconds);
        cx.port.emit(event);
        self.prune(cx, best.map(|best| best.step));
        Ok(())
    }

    /// Reports the checkpoint that a resume took up, if a kill came between its name and its line in the log: `logged` is that
    /// line's word on whether it was the best. Without it the best model of the run would be forgotten.
    pub fn report_unlogged(&self, cx: &mut RunContext<'_, '_>, logged: Option<bool>) {
        let Some(step) = self.saved_at else { return };
        let progress = &cx.state.progress;
        let is_best = progress.best_saved.as_ref().is_some_and(|b| b.step == step);
        if logged == Some(true) || logged == Some(is_best) {
            return;
        }
        let path = self.store.folder().join(name_of(step));
        // It was verified at the resume.
        if let Ok(manifest) = Manifest::read(&path) {
            let event = saved_event(progress, &path, manifest.total_bytes(), 0.0);
            cx.port.emit(event);
        }
    }

    /// A checkpoint that was given up may be the base of another run.
    fn warn_of_a_replaced_base(&self, cx: &mut RunContext<'_, '_>) {
        let step = cx.step();
        if self.store.abandoned().contains(&step) && by_other_runs(&cx.job.run_dir).contains(&step)
        {
            let what = format!(
                "the checkpoint of step {step} that another run begins from is replaced by that of this course"
            );
            let hint = "a resume of that run has another base from now on: start it again, or change checkpoint.every here";
            cx.port.warn(step, "base_replaced", what, hint);
        }
    }

    /// Deletes older checkpoints that nothing needs any more.
    fn prune(&mut self, cx: &mut RunContext<'_, '_>, best: Option<u64>) {
        let keep = cx.spec.checkpoint.keep_last.max(2);
        let stable = self
            .to_go_back_to(cx, false)
            .into_iter()
            .find(|(_, stable)| *stable);
        // Specs are read only where something would go.
        let needed = match self.store.list().len() > keep || !self.store.abandoned().is_empty() {
            true => by_other_runs(&cx.job.run_dir),
            false => Default::default(),
        };
        let also: Vec<u64> = best
            .into_iter()
            .chain(stable.map(|(step, _)| step))
            .chain(needed)
            .collect();
        if let Err(error) = self.store.prune(keep, &also) {
            let step = cx.step();
            cx.port.warn(
                step,
                "prune_failed",
                format!("older checkpoints could not be deleted: {error}"),
                "delete them if the disk fills up",
            );
        }
    }

    /// Checkpoints from before what is wrong at present, the ones to take first in front, and whether they are stable: the
    /// steps after them were healthy. `done`: the weights of the last step are what broke, and its checkpoint has them.
    pub fn to_go_back_to(&self, cx: &RunContext<'_, '_>, done: bool) -> Vec<(u64, bool)> {
        let rescue = &cx.spec.rescue;
        if rescue.policy != RescuePolicy::Act {
            return Vec::new();
        }
        let progress = &cx.state.progress;
        let sick = progress
            .guard
            .since()
            .map_or(progress.step + 1, |(step, _)| step)
            .min(progress.step + u64::from(!done));
        let steps = self.store.list().into_iter().map(|found| found.step);
        let judged = steps.filter(|step| *step < sick);
        let mut found: Vec<(u64, bool)> = judged
            .map(|step| (step, step + rescue.stable_after < sick))
            .collect();
        // Newest first as they come; the sort is stable.
        found.sort_by_key(|(_, stable)| !stable);
        found
    }

    /// Whether the run has a checkpoint of this step that is not abandoned.
    pub fn has_checkpoint(&self, step: u64) -> bool {
        self.store.has_checkpoint(step)
    }

    /// Step of the newest checkpoint that is whole.
    pub fn newest(&mut self) -> Option<u64> {
        let (newest, _) = self.store.newest_whole(u64::MAX);
        Some(newest?.step)
    }

    /// Discards the checkpoints from `step` on: the state in memory has diverged from them.
    pub fn abandon_from(&mut self, cx: &mut RunContext<'_, '_>, step: u64) {
        (self.saved_at, self.saved) = (None, None);
        let progress = &mut cx.state.progress;
        // The best of that course may be among those that a rescue gave up.
        let there =
            |best: &crate::wire::Best| best.step < step && self.store.has_checkpoint(best.step);
        progress.best_saved = progress.best_saved.take().filter(there);
        self.retire_from(cx, step);
    }

    /// Deletes the checkpoints of `step` and after it, but for those that other runs begin from.
    fn retire_from(&mut self, cx: &mut RunContext<'_, '_>, step: u64) {
        let any = self.store.list().iter().any(|found| found.step >= step);
        let needed = match any {
            true => by_other_runs(&cx.job.run_dir),
            false => Default::default(),
        };
        let here = cx.state.progress.step;
        match self.store.retire_from(step, &needed) {
            Ok(kept) if kept.is_empty() => {}
            Ok(kept) => {
                let words = format!(
                    "other runs begin from the checkpoints of steps {kept:?}, which this run gave up: they stay for those, and this \
                     run passes them over"
                );
                cx.port.note(here, words);
            }
            Err(error) => {
                let message =
                    format!("checkpoints from step {step} on could not be deleted: {error}");
                let hint = "delete them before a resume";
                cx.port.warn(here, "prune_failed", message, hint);
            }
        }
    }

    /// Takes up the checkpoint of exactly this step, and gives up the ones after it.
    ///
    /// # Errors
    /// [`EngineError::Setup`] where it is not there, damaged or of another shape: the state is as it was. Otherwise the run cannot go on.
    pub fn roll_back(&mut self, cx: &mut RunContext<'_, '_>, step: u64) -> Result<(), EngineError> {
        let kept: Vec<u64> = self.store.list().iter().map(|f| f.step).collect();
        if !kept.contains(&step) {
            return Err(EngineError::Setup(format!(
                "there is no checkpoint at step {step}; available: {kept:?}"
            )));
        }
        self.store
            .verify(step)
            .map_err(|fault| EngineError::Setup(fault.to_string()))?;
        let folder = self.store.folder().join(name_of(step));
        let from = match self.begun_from == Some(step) {
            true => Loaded::Begins(step),
            false => Loaded::Other(step),
        };
        // Then the reference is the one that was attached before the first step.
        let attached = lacks_reference(&folder, &cx.state);
        cx.state.models.moved &= !attached;
        let loaded = load_for(cx.job, &folder, &mut cx.state, from);
        cx.state.models.moved |= attached && loaded.is_err();
        loaded.map_err(|e| match e {
            // A branch may have another optimizer than the checkpoint that it began with.
            CheckpointError::Tensors(why) => EngineError::Setup(format!(
                "the checkpoint of step {step} does not fit this run: {why}"
            )),
            other => other.into(),
        })?;
        if attached {
            cx.state.attach_start_weights(cx.spec, &cx.data)?;
        }
        adjust_loaded(cx.job, cx.port, &self.store, &mut cx.state, from)?;
        self.saved_at = Some(step);
        self.saved = Some(cx.state.progress.clone());
        self.retire_from(cx, step + 1);
        Ok(())
    }
}
