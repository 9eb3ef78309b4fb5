//! Merges whole models of one architecture into a new one: checks before, a folder afterwards.

use super::export::{self, ExportError, MergeOrigin, Options, Source, Written};
use super::merge::{MergeError, RECORD, cannot};
use crate::base::child::Child;
use crate::base::files::write_atomic;
use crate::base::human;
use crate::base::text::{one_line, shown};
use crate::data::tokenizer::{self, Tokenizer};
use crate::hardware;
use crate::hf::{self, TokenIds};
use crate::hub;
use crate::merging::{self, Method, Settings};
use crate::models::{self, ModelSource};
use crate::nn::Model;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Bytes of a weight in memory.
const F32: u64 = 4;
/// Settings of a model that weights do not depend on, or that their shapes tell.
const PASSED: [&str; 10] = [
    "head_dim",
    "n_kv_head",
    "max_position_embeddings",
    "n_positions",
    "n_ctx",
    "seq_len",
    "context_len",
    "drop",
    "vocab_size",
    "token_id",
];

/// A merge of models.
#[derive(Debug)]
pub struct Order {
    pub method: &'static Method,
    /// What the models were trained from, if the method has one.
    pub base: Option<PathBuf>,
    pub models: Vec<PathBuf>,
    /// With a weight for each of `models`.
    pub settings: Settings,
    pub to: PathBuf,
    /// f32, f16 or bf16.
    pub dtype: String,
    /// Turn quantized weights into floats.
    pub dequantize: bool,
}

impl Order {
    /// All of them, the base first.
    fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.base.iter().chain(&self.models)
    }
}

/// The result.
#[derive(Debug)]
pub struct Merged {
    pub written: Vec<Written>,
    /// Whose tokenizer and chat template the folder has.
    pub tokenizer: PathBuf,
    /// Tokenizers that could not be compared with it, with the reason.
    pub unknown: Vec<String>,
}

/// Merges and writes the folder.
///
/// # Errors
/// Models of different architectures, settings or vocabularies, quantized ones, too little memory, values that are not finite;
/// nothing is written then.
pub fn merge(order: &Order) -> Result<Merged, MergeError> {
    export::check_free(&order.to)?;
    let sources = order.paths().map(|path| open(order, path));
    let mut sources: Vec<ModelSource> = sources.collect::<Result<_, _>>()?;
    enough_memory(&sources)?;
    let (chosen, unknown) = tokenizer_of(order, &sources)?;
    let mut models = Vec::new();
    for source in &sources {
        models.push(Source::open(source.path())?.model);
        let (a, b) = (&models[0], &models[models.len() - 1]);
        same_settings(&sources[0], a, source, b)?;
        same_shapes(&sources[0], a, source, b)?;
    }
    merging::merge(order.method, &order.settings, &mut models)?;
    let model = models.swap_remove(0);
    drop(models);
    let is_finite = |weights: &[f32]| weights.iter().all(|x| x.is_finite());
    if !model.params().read_weights(is_finite)? {
        return Err(cannot(
            "the merged weights are not finite: weights or scale are too large",
            "choose smaller ones",
        ));
    }
    let origin = origin(order, &sources);
    let from = sources.swap_remove(chosen);
    let of = from.path().to_path_buf();
    let tokenizer = from.tokenizer_path().to_path_buf();
    let mut source = Source::new(from, model, tokenizer);
    source.merge = Some(origin);
    let options = Options {
        dtype: order.dtype.clone(),
        max_shard_bytes: 5_000_000_000,
    };
    let format = match hf::family_of(source.model.config()) {
        Some(_) => "hf",
        None => "safetensors",
    };
    let written = export::export(&source, export::format(format)?, &options, &order.to)?;
    record(order)?;
    Ok(Merged {
        written,
        tokenizer: of,
        unknown,
    })
}

fn open(order: &Order, path: &Path) -> Result<ModelSource, MergeError> {
    // Checksums are verified where the weights are read.
    let source = ModelSource::open(path)?;
    if source.is_quantized() && !order.dequantize {
        return Err(cannot(
            format!("{} has quantized weights", shown(path)),
            "dequantize them with --dequantize; or name the model that the file was converted from",
        ));
    }
    Ok(source)
}

/// Refuses another model whose settings, as config.json has them, differ in what weights are trained under: shapes alone do not show
/// the base of rotary positions.
fn same_settings(
    first: &ModelSource,
    a: &Model,
    other: &ModelSource,
    b: &Model,
) -> Result<(), MergeError> {
    let of = |model: &Model| serde_json::from_str(&hf::config_json(model, TokenIds::default()));
    let (own, theirs): (Value, Value) = (of(a).unwrap_or_default(), of(b).unwrap_or_default());
    match differing("", &own, &theirs) {
        None => Ok(()),
        Some((key, of_a, of_b)) => Err(cannot(
            format!(
                "{} and {} are different architectures: {key} is {of_a} and {of_b}",
                shown(first.path()),
                shown(other.path())
            ),
            "merge models that were trained from the same one",
        )),
    }
}

/// The first setting that differs, with both values.
fn differing(place: &str, a: &Value, b: &Value) -> Option<(String, Value, Value)> {
    let (Value::Object(of_a), Value::Object(of_b)) = (a, b) else {
        return (a != b).then(|| (place.into(), a.clone(), b.clone()));
    };
    let keys = of_a
        .keys()
        .chain(of_b.keys().filter(|key| !of_a.contains_key(*key)));
    let mut kept = keys.filter(|key| !PASSED.iter().any(|word| key.contains(word)));
    kept.find_map(|key| {
        let place = match place {
            "" => key.clone(),
            place => format!("{place}.{key}"),
        };
        differing(&place, &a[key.as_str()], &b[key.as_str()])
    })
}

fn same_shapes(
    first: &ModelSource,
    a: &Model,
    other: &ModelSource,
    b: &Model,
) -> Result<(), MergeError> {
    match merging::difference(a, b) {
        None => Ok(()),
        Some((of_a, of_b)) => Err(cannot(
            format!(
                "{} has {of_a}, {} {of_b}",
                shown(first.path()),
                shown(other.path())
            ),
            "merge models of one vocabulary: tokens that one of them has besides cannot be merged",
        )),
    }
}

/// All models are in memory at once.
fn enough_memory(sources: &[ModelSource]) -> Result<(), MergeError> {
    let need: u64 = sources.iter().map(|source| source.n_params() * F32).sum();
    let (left, what) = hardware::memory().left();
    match need > left {
        false => Ok(()),
        true => Err(cannot(
            format!(
                "{} models in f32 need {}; {what} leaves {}",
                sources.len(),
                human::bytes(need),
                human::bytes(left)
            ),
            "merge fewer at a time, or on a machine with more memory",
        )),
    }
}

/// The model whose tokenizer the result has: the first with a chat template, models before the base, else the first. Token ids must
/// mean the same texts in all.
fn tokenizer_of(
    order: &Order,
    sources: &[ModelSource],
) -> Result<(usize, Vec<String>), MergeError> {
    let child = Child::of_this_program();
    let load = |source: &ModelSource| tokenizer::load(source.tokenizer_path(), &child);
    let loaded: Vec<Result<Tokenizer, _>> = sources.iter().map(load).collect();
    let n_base = usize::from(order.base.is_some());
    let in_order = (n_base..sources.len()).chain(0..n_base);
    let has_template = |at: &usize| {
        let marks = loaded[*at].as_ref().map(Tokenizer::marks);
        marks.is_ok_and(|marks| marks.chat_template.is_some())
    };
    let chosen = in_order.clone().find(has_template);
    let chosen = chosen.or_else(|| in_order.clone().find(|at| loaded[*at].is_ok()));
    let chosen = chosen.unwrap_or(n_base);
    let mut unknown = Vec::new();
    for (source, other) in sources.iter().zip(&loaded) {
        let why = match (&loaded[chosen], other) {
            (Ok(own), Ok(other)) if own.covers(other) => continue,
            (Ok(_), Ok(_)) => {
                return Err(cannot(
                    format!(
                        "the tokenizers of {} and {} differ: the same id is another text",
                        shown(sources[chosen].path()),
                        shown(source.path())
                    ),
                    "merge models with one tokenizer",
                ));
            }
            (Err(error), _) | (_, Err(error)) => error,
        };
        let why = one_line(&why.to_string());
        unknown.push(format!("{}: {why}", shown(source.path())));
    }
    Ok((chosen, unknown))
}

/// What the card of the merged model says of it.
fn origin(order: &Order, sources: &[ModelSource]) -> MergeOrigin {
    let name = |path: &Path| hub::id_of_cached(path).unwrap_or_else(|| models::name_of(path));
    let n_base = usize::from(order.base.is_some());
    let (base, models) = sources.split_at(n_base);
    let weighed = models.iter().zip(&order.settings.weights);
    MergeOrigin {
        name: models::name_of(&order.to),
        base: base.first().map(|base| name(base.path())),
        method: Some(order.method.word),
        parts: weighed
            .map(|(source, weight)| (name(source.path()), *weight))
            .collect(),
    }
}

fn record(order: &Order) -> Result<(), MergeError> {
    let absolute = |path: &PathBuf| {
        let whole = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        whole.display().to_string()
    };
    let settings = &order.settings;
    let models = order.models.iter().zip(&settings.weights);
    let models = models.map(|(path, weight)| json!({"path": absolute(path), "weight": weight}));
    let mut record = json!({
        "method": order.method.word,
        "base": order.base.as_ref().map(absolute),
        "models": models.collect::<Vec<_>>(),
    });
    for setting in order.method.reads {
        record[setting.word()] = setting.value(settings);
    }
    let path = order.to.join(RECORD);
    let text = serde_json::to_vec_pretty(&record).map_err(|e| cannot(e.to_string(), ""))?;
    write_atomic(&path, &text).map_err(|source| ExportError::Io { path, source })?;
    Ok(())
}
