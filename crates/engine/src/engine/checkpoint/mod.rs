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
pub(super) mod checkpoints;
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
pub use fingerprint::{Fingerprint, FrozenModel};
pub use manifest::{Fault, Manifest};
pub use needed::{UNREADABLE_FIX, by_other_runs, is_needed, named_in};
pub use readjust::{forget_adjustments, recount};
pub use store::{Found, Store};

use super::rollouts::in_use::ActiveRollout;
use super::state::{Progress, TrainState};
use crate::base::files::read_small;
use crate::data::Dataset;
use crate::data::render::padding;
use crate::hf::safetensors::{TensorFile, TensorHead, write_to};
use crate::hf::{self, TokenIds};
use crate::kernels::errors::io_error;
use crate::nn::{HeadKind, Model};
use crate::optim::UpdateRule;
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
