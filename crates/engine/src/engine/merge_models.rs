//! Merges whole models of one architecture into a new one: checks before, a folder afterwards.

use super::checkpoint::Manifest;
use super::export::{self, ExportError, MergeOrigin, Subject, Written};
use super::merge::{MergeError, RECORD, cannot};
use crate::base::child::Child;
use crate::base::files::write_atomic;
use crate::base::human;
use crate::base::text::{one_line, shown};
use crate::data::tokenizer::{self, Tokenizer};
use crate::hardware;
use crate::hf::{self, Dtype, Naming, Outgoing, TokenIds};
use crate::hub;
use crate::merging::{self, Method, Settings};
use crate::models::{self, ByParameter, ModelSource};
use crate::nn::{ModelConfig, ParamInfo, param_infos};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::io;
use std::ops::Range;
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
    /// Of the written weights.
    pub dtype: Dtype,
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

/// Bytes of the largest file with weights.
const MAX_SHARD_BYTES: u64 = 5_000_000_000;

/// Merges and writes the folder, tensor by tensor: no model is in memory as a whole.
///
/// # Errors
/// Models of different architectures, settings or vocabularies, quantized ones, too little memory, values that are not finite;
/// nothing is written then.
pub fn merge(order: &Order) -> Result<Merged, MergeError> {
    export::check_free(&order.to)?;
    let sources = order.paths().map(|path| open(order, path));
    let sources: Vec<ModelSource> = sources.collect::<Result<_, _>>()?;
    let (chosen, unknown) = tokenizer_of(order, &sources)?;
    let origin = origin(order, &sources);
    let first = sources[0].config().clone();
    let infos = parameters(&first);
    for source in &sources {
        same_settings(&sources[0], source)?;
        same_shapes(&sources[0], source)?;
    }
    let (place, tokenizer) = {
        let from = &sources[chosen];
        (
            from.path().to_path_buf(),
            from.tokenizer_path().to_path_buf(),
        )
    };
    let vocab_size = first.vocab_size.unwrap_or_default();
    let naming = export::naming(&first);
    let outgoing = Outgoing::of((&first, &infos), naming, order.dtype, MAX_SHARD_BYTES);
    let from = ModelSource::open(&place)?;
    let mut subject = Subject::new(from, (first, vocab_size), tokenizer);
    subject.merge = Some(origin);
    let opened = sources.iter().map(|source| Gathered::open(source, &infos));
    let opened: Vec<Gathered> = opened.collect::<Result<_, MergeError>>()?;
    enough_memory(&opened, &outgoing)?;
    // What a tensor could not be made of; the writer knows errors of files alone.
    let mut why = None;
    let values = &mut |at: usize, places: &[Range<usize>]| {
        let merged = merged(order, &opened, at, places);
        merged.map_err(|error| {
            why = Some(error);
            io::Error::other("a tensor could not be merged")
        })
    };
    let written = export::export_each(&subject, &outgoing, order.dtype, &order.to, values);
    let written = written.map_err(|error| why.take().unwrap_or_else(|| error.into()))?;
    record(order)?;
    Ok(Merged {
        written,
        tokenizer: place,
        unknown,
    })
}

fn parameters(config: &ModelConfig) -> Vec<ParamInfo> {
    param_infos(config, config.vocab_size.unwrap_or_default())
}

/// The values of tensor number `at`, which are at these places of the flat weights of each model.
fn merged(
    order: &Order,
    opened: &[Gathered],
    at: usize,
    places: &[Range<usize>],
) -> Result<Vec<f32>, MergeError> {
    let values = opened.iter().map(|one| one.values(places));
    let values: Vec<Vec<f32>> = values.collect::<Result<_, _>>()?;
    let merged = merging::merge(order.method, &order.settings, at, values);
    match merged.iter().all(|x| x.is_finite()) {
        true => Ok(merged),
        false => Err(cannot(
            "the merged weights are not finite: weights or scale are too large",
            "choose smaller ones",
        )),
    }
}

/// A model of which places of the flat weights are read.
struct Gathered<'a> {
    path: &'a Path,
    model: ByParameter<'a>,
    /// In the order of the flat weights.
    infos: &'a [ParamInfo],
    /// The parameter that was read last, if only a part of it was wanted: queries, keys and values are one.
    last: RefCell<Option<(usize, Vec<f32>)>>,
}

impl<'a> Gathered<'a> {
    fn open(source: &'a ModelSource, infos: &'a [ParamInfo]) -> Result<Gathered<'a>, MergeError> {
        Ok(Gathered {
            path: source.path(),
            model: ByParameter::open(source)?,
            infos,
            last: RefCell::new(None),
        })
    }

    fn values(&self, places: &[Range<usize>]) -> Result<Vec<f32>, MergeError> {
        let mut values = Vec::new();
        for place in places {
            let mut from = place.start;
            while from < place.end {
                let after = self.infos.partition_point(|info| info.offset <= from);
                let Some(info) = after.checked_sub(1).and_then(|at| self.infos.get(at)) else {
                    break;
                };
                let skipped = from - info.offset;
                let len = (info.len - skipped).min(place.end - from);
                self.append(info, skipped..skipped + len, &mut values)?;
                from += len;
            }
        }
        Ok(values)
    }

    fn append(
        &self,
        info: &ParamInfo,
        part: Range<usize>,
        to: &mut Vec<f32>,
    ) -> Result<(), MergeError> {
        let mut last = self.last.borrow_mut();
        if let Some((offset, values)) = last.as_ref()
            && *offset == info.offset
        {
            to.extend_from_slice(&values[part]);
            return Ok(());
        }
        *last = None;
        let values = self.model.read(info)?;
        if !values.iter().all(|x| x.is_finite()) {
            return Err(ExportError::NotFinite(self.path.to_path_buf()).into());
        }
        if part.len() < values.len() {
            to.extend_from_slice(&values[part]);
            *last = Some((info.offset, values));
        } else if to.is_empty() {
            // Most tensors are a parameter each.
            *to = values;
        } else {
            to.extend_from_slice(&values);
        }
        Ok(())
    }
}

fn open(order: &Order, path: &Path) -> Result<ModelSource, MergeError> {
    let source = Manifest::open_verified::<MergeError>(path)?;
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
fn same_settings(first: &ModelSource, other: &ModelSource) -> Result<(), MergeError> {
    let of = |source: &ModelSource| {
        let config = source.config();
        let of = (config, config.vocab_size.unwrap_or_default());
        let ids = TokenIds::default();
        serde_json::from_str(&hf::config_json_of(of, &ids, Dtype::F32, Naming::Family))
    };
    let own: Value = of(first).unwrap_or_default();
    let theirs: Value = of(other).unwrap_or_default();
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

fn same_shapes(first: &ModelSource, other: &ModelSource) -> Result<(), MergeError> {
    let [a, b] = [first, other].map(|source| parameters(source.config()));
    match merging::difference(&a, &b) {
        None => Ok(()),
        Some((of_a, of_b)) => Err(cannot(
            format!(
                "{} has {of_a}, {} {of_b}",
                shown(first.path()),
                shown(other.path())
            ),
            "merge models of the same architecture and sizes that share one vocabulary",
        )),
    }
}

/// The largest tensor of all models is in memory at once, and the factors of adapters.
fn enough_memory(opened: &[Gathered], outgoing: &Outgoing) -> Result<(), MergeError> {
    let tensor = outgoing.largest() as u64 * F32;
    let adapters: u64 = opened.iter().map(|one| one.model.held_bytes()).sum();
    let need = tensor * merging::tensors_held(opened.len()) as u64 + adapters;
    let (left, what) = hardware::memory().left();
    match need > left {
        false => Ok(()),
        true => Err(cannot(
            format!(
                "the largest tensor of {} models, in f32, needs {}; {what} leaves {}",
                opened.len(),
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
            (Ok(own), Ok(other)) => {
                let [ours, theirs] = [&sources[chosen], source].map(|source| shown(source.path()));
                let why = match other.covers(own) {
                    true => format!("{theirs} has tokens that {ours} lacks"),
                    false => "the same id is another text".into(),
                };
                return Err(cannot(
                    format!("the tokenizers of {ours} and {theirs} differ: {why}"),
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
