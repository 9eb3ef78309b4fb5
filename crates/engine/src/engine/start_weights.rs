//! The models of a run before its first step: their shape, their precision, and their initial weights, random or those of
//! another model.

use super::EngineError;
use super::checkpoint::manifest::{Fault, Manifest};
use crate::base::child::Child;
use crate::base::text::{one_line, shown};
use crate::data::Dataset;
use crate::data::tokenizer::{self, Tokenizer, TokenizerConfig};
use crate::kernels::matmul::ComputeDtype;
use crate::llama_cpp::GgufModel;
use crate::models::ModelSource;
use crate::nn::freeze::is_frozen;
use crate::nn::{Model, Precision, PrecisionError};
use crate::spec::{Growth, RunSpec};
use std::path::Path;

/// A policy of the right shape with zero weights; one that trains adapters on a packed base has the weights of its file.
pub(super) fn blank_policy(spec: &RunSpec, data: &Dataset) -> Result<Model, EngineError> {
    let vocab_size = data.tokenizer.vocab_size();
    if let Some(said) = spec.model.vocab_size.filter(|v| *v < vocab_size) {
        let tokenizer = &data.tokenizer;
        return Err(EngineError::Setup(match &spec.train.from {
            Some(base) => without_rows(base, said, tokenizer, spec),
            None => format!(
                "model.vocab_size {said} is smaller than the tokenizer's {vocab_size}: remove it, and it follows the tokenizer"
            ),
        }));
    }
    let mut model = match packed(spec)? {
        Some(model) => model,
        None => Model::new(&spec.model, vocab_size, &candle_core::Device::Cpu)?,
    };
    if let Some(adapter) = &spec.adapter {
        model.adapt(adapter)?;
    }
    let frozen = &spec.train.freeze;
    if !frozen.is_empty() {
        model.train_only(|info| !is_frozen(info, frozen))?;
    }
    Ok(model)
}

/// Fills a policy with the weights before the first step: drawn by the spec's seed, or those of `train.from`.
pub(super) fn start_weights(
    model: &mut Model,
    spec: &RunSpec,
    data: &Dataset,
) -> Result<(), EngineError> {
    let Some(place) = &spec.train.from else {
        return Ok(model.init(spec.seed)?);
    };
    if spec.model.is_reward_model() {
        // A base that writes brings no score: its vector is drawn. A value head's is, beside adapters, below.
        model.init(spec.seed)?;
    }
    start_from(place, model, spec, data)?;
    Ok(model.init_adapters(spec.seed)?)
}

/// The compute dtype of the run's matmuls on this machine.
pub(super) fn arithmetic(spec: &RunSpec) -> Result<ComputeDtype, EngineError> {
    let asked = match spec.engine.torch() {
        // The ranks' precision is their own; this copy only writes samples.
        Some(_) => Precision::Auto.resolve(),
        None => spec.train.precision.resolve(),
    };
    asked.map_err(|e| EngineError::Setup(format!("train.precision: {e}; {}", PrecisionError::HINT)))
}

/// What to do about a base whose tokenizer has tokens without weights: somebody added tokens and left the tables as they were.
fn without_rows(base: &Path, rows: usize, tokenizer: &Tokenizer, spec: &RunSpec) -> String {
    let base = shown(base);
    let all = tokenizer.vocab_size();
    let learn = match (&spec.adapter, spec.model.ties_head()) {
        (None, _) => String::new(),
        (Some(_), tied) => format!(
            ", which learn with -s adapter.lora.modules_to_save={}",
            if tied {
                "[embeddings]"
            } else {
                "[embeddings,head]"
            }
        ),
    };
    format!(
        "train.from: the embedding table of {base} has {rows} rows, and the tokenizer {all} tokens: {} have no weights. \
         -s train.resize_vocab=true adds rows, as resize_token_embeddings({all}) of transformers does{learn}. Or \
         restore the base's own tokenizer",
        new_tokens(rows, tokenizer)
    )
}

/// The names of the first tokens after those that have rows.
fn new_tokens(rows: usize, tokenizer: &Tokenizer) -> String {
    const SHOWN: usize = 3;
    let all = tokenizer.vocab_size();
    let names: Vec<String> = (rows..all.min(rows + SHOWN))
        .filter_map(|id| tokenizer.token(id as u32))
        .map(|token| one_line(&token))
        .collect();
    let more = if all > rows + SHOWN { ", …" } else { "" };
    format!("{}{more}", names.join(", "))
}

/// How the tables of the start model grow, and for which tokens; `None` where they do not.
pub fn vocabulary_growth(spec: &RunSpec, tokenizer: &Tokenizer) -> Option<String> {
    let growth = Growth::of(spec)?;
    let words = growth.words(tokenizer.vocab_size());
    Some(match new_tokens(growth.from, tokenizer) {
        names if names.is_empty() => words,
        names => format!("{words}: {names} are initialized to the mean of the others"),
    })
}

/// A base whose weights stay in the formats of its file, under adapters.
fn packed(spec: &RunSpec) -> Result<Option<Model>, EngineError> {
    let Some(place) = spec.packed_base() else {
        return Ok(None);
    };
    let fault = |e: String| EngineError::Setup(format!("train.from: {e}"));
    let file = GgufModel::open(place).map_err(|e| fault(e.to_string()))?;
    if !file.is_packed() {
        return Ok(None);
    }
    let model = file.quantized_as(&spec.model);
    Ok(Some(model.map_err(|e| fault(e.to_string()))?))
}

/// Weights of another model: a folder's, its adapters merged, or those of a GGUF file in f32. Its tokenizer must be ours: ids of another one
/// mean other text.
fn start_from(
    place: &Path,
    model: &mut Model,
    spec: &RunSpec,
    data: &Dataset,
) -> Result<(), EngineError> {
    let fault = |what: String| EngineError::Setup(format!("train.from: {what}"));
    let source = ModelSource::open(place).map_err(|e| fault(format!("{e}; {}", e.hint())))?;
    let file = match &source {
        ModelSource::Gguf(file) => Some(file),
        ModelSource::Folder(_) => None,
    };
    let shown = shown(place);
    let named = matches!(spec.data.tokenizer, TokenizerConfig::File(_));
    let same = match tokenizer::load(source.tokenizer_path(), &Child::of_this_program()) {
        Ok(theirs) => {
            theirs.to_json().trim() == data.tokenizer.to_json().trim()
                || spec.train.resize_vocab && data.tokenizer.extends(&theirs)
        }
        // A tokenizer of a kind that is not known here still has its list of tokens.
        Err(error) => match file.and_then(|file| tokens_of(file)) {
            Some(tokens) => same_tokens(tokens, &data.tokenizer),
            // A file without any contradicts none that was named.
            None if file.is_some() && named => true,
            None if file.is_some() => {
                return Err(fault(format!(
                    "{shown} has no tokenizer; set data.tokenizer.file.path to the model's own"
                )));
            }
            None => return Err(fault(format!("{error}; {}", error.hint()))),
        },
    };
    if !same {
        return Err(fault(format!(
            "the tokenizer of {shown} differs from this run's, so its weights would see other token \
             ids; remove data.tokenizer, or set it to {{file: {{path: {shown}}}}}",
        )));
    }
    Manifest::verify_if_any(place)
        .map_err(|e| fault(format!("the checkpoint is damaged: {e}; {}", Fault::HINT)))?;
    if !model.params().is_present() {
        // Those of its file, since it was made.
        return Ok(());
    }
    let filled = match spec.train.resize_vocab {
        true => source.fill_grown(model),
        false => source.fill(model),
    };
    filled.map_err(|e| fault(e.to_string()))
}

/// The weights of a reward model, for a critic of the same shape.
pub(super) fn critic_source(place: &Path, critic: &mut Model) -> Result<(), EngineError> {
    let shown = shown(place);
    let fault = |what: String| {
        EngineError::Setup(format!(
            "method.ppo.critic_from: {shown}: {what}; use a checkpoint of method reward trained from this run's base model, or remove it"
        ))
    };
    let source = ModelSource::open(place).map_err(|e| fault(e.to_string()))?;
    if !source.config().is_reward_model() {
        return Err(fault(
            "this is a language model: it has no score head".into(),
        ));
    }
    Manifest::verify_if_any(place).map_err(|e| fault(e.to_string()))?;
    source.fill(critic).map_err(|e| fault(e.to_string()))
}

/// The tokens that a GGUF file lists, by their numbers; `None` without any.
pub(super) fn tokens_of(file: &GgufModel) -> Option<&[String]> {
    let tokens = file.metadata().strings("tokenizer.ggml.tokens")?;
    (!tokens.is_empty()).then_some(tokens)
}

/// Whether every token of a tokenizer is the file's of the same number.
fn same_tokens(tokens: &[String], tokenizer: &Tokenizer) -> bool {
    let mut ids = 0..tokenizer.vocab_size();
    ids.all(|id| {
        let ours = u32::try_from(id).ok().and_then(|id| tokenizer.token(id));
        ours.is_none() || ours.as_ref() == tokens.get(id)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::tests::tiny;

    /// "model.vocab_size … leave it out" was said of a size that only the base had.
    #[test]
    fn tokens_without_weights_are_named_with_the_way_to_give_them_some() {
        let (spec, data) = tiny(&[]);
        let all = data.tokenizer.vocab_size();
        let mut value = spec.to_value();
        value["model"]["vocab_size"] = (all - 2).into();
        value["train"]["from"] = "some/base".into();
        let spec = RunSpec::from_yaml(&value.to_string()).unwrap();
        let said = blank_policy(&spec, &data).err().unwrap().to_string();
        let last = data.tokenizer.token(all as u32 - 1).unwrap();
        for words in [
            &format!("{all} tokens"),
            &format!("resize_token_embeddings({all})"),
            "-s train.resize_vocab=true",
            last.as_str(),
            "some/base",
        ] {
            assert!(said.contains(words), "{said}");
        }
        assert!(!said.contains("remove it"), "{said}");
    }
}
