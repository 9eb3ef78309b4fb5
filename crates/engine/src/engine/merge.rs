//! Adapters added to the weights that they were trained on: checked before, and asked afterwards whether both say the same.

use super::export::{self, ExportError, Options, Source, Written};
use crate::base::child::Child;
use crate::base::files::{read_plain, read_small, write_atomic};
use crate::base::text::one_line;
use crate::data::tokenizer;
use crate::engine::checkpoint::{Fault, Manifest};
use crate::hf::{self, AdapterError, HfError, Peft, attach_sum};
use crate::kernels::errors::error_text;
use crate::models::{ModelSource, SourceError};
use crate::nn::Model;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// What a merged folder says of how it was made.
pub const RECORD: &str = "merge.json";
const MAX_RECORD: u64 = 1 << 20;
/// Tokens of a prompt that are asked about.
const MAX_TOKENS: usize = 256;
/// The largest difference of logits, as a share of the largest logit, that f32 explains.
const TOLERANCE: f32 = 1e-3;
/// What a model is asked where the user says nothing.
pub const PROMPTS: [&str; 3] = [
    "The capital of France is",
    "Explain in one sentence why the sky is blue.",
    "def add(a, b):\n    return",
];

/// What is merged into what.
#[derive(Debug)]
pub struct Order {
    pub base: PathBuf,
    /// Each with what it counts; none: the adapter that lies beside the base's own weights.
    pub adapters: Vec<(PathBuf, f64)>,
    pub to: PathBuf,
    /// f32, f16 or bf16.
    pub dtype: String,
    /// Turn quantised weights into floats.
    pub dequantize: bool,
    /// Merge although an adapter was trained on other weights.
    pub any_base: bool,
    pub prompts: Vec<String>,
}

/// What came of it.
#[derive(Debug)]
pub struct Merged {
    pub written: Vec<Written>,
    pub check: Result<Compared, String>,
}

/// Logits of the base with its adapters beside it, against those of the merged weights.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Compared {
    pub tokens: usize,
    /// The largest difference.
    pub off: f32,
    /// The largest difference that the adapters make to the base.
    pub moved: f32,
    /// Tokens for which both give the same token the highest probability.
    pub agree: usize,
}

#[derive(Debug, Serialize, Deserialize)]
struct Record {
    base: String,
    adapters: Vec<RecordedAdapter>,
    check: Option<Compared>,
}

#[derive(Debug, Serialize, Deserialize)]
struct RecordedAdapter {
    path: String,
    weight: f64,
    /// Of its weights.
    sha256: String,
}

/// Why nothing was merged.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    #[error(transparent)]
    Adapter(#[from] AdapterError),
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error("the checkpoint is damaged: {0}")]
    Damaged(#[from] Fault),
    #[error("{0}")]
    Model(String),
    #[error("{what}")]
    Cannot { what: String, fix: String },
}

impl From<candle_core::Error> for MergeError {
    fn from(error: candle_core::Error) -> Self {
        MergeError::Model(error_text(error))
    }
}

impl From<HfError> for MergeError {
    fn from(error: HfError) -> Self {
        MergeError::Adapter(error.into())
    }
}

impl MergeError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            MergeError::Adapter(AdapterError::Absent(_)) => {
                "name a folder with adapter_config.json and adapter_model.safetensors: a checkpoint of a run with adapters, or PEFT's".into()
            }
            MergeError::Adapter(_) => "name the model that the adapter was trained on".into(),
            MergeError::Source(error) => error.hint().into(),
            MergeError::Export(error) => error.hint(),
            MergeError::Damaged(_) => Fault::HINT.into(),
            MergeError::Model(_) => String::new(),
            MergeError::Cannot { fix, .. } => fix.clone(),
        }
    }
}

fn cannot(what: impl Into<String>, fix: impl Into<String>) -> MergeError {
    MergeError::Cannot {
        what: one_line(&what.into()),
        fix: fix.into(),
    }
}

/// Merges as ordered and writes the folder.
///
/// # Errors
/// No adapter, one that is merged already or belongs to another base, a base that stays quantised, weights that do not say the
/// same afterwards; nothing is written then.
pub fn merge(order: &Order) -> Result<Merged, MergeError> {
    export::check_free(&order.to)?;
    for (folder, _) in &order.adapters {
        Manifest::verify_if_any(folder)?;
    }
    let from = Manifest::open_verified::<MergeError>(&order.base)?;
    let adapters = adapters(order, &from)?;
    if adapters.len() > 1 && adapters.iter().any(|(peft, _)| peft.has_magnitudes()) {
        return Err(cannot(
            "adapters with magnitudes (DoRA) do not add up with others: what they do depends on the weights under them",
            "merge one after the other, each into the result of the one before, with --any-base",
        ));
    }
    let digests = digests(&adapters)?;
    refuse_twice(order, &digests)?;
    let mut model = from.load_base()?;
    if !order.any_base {
        same_base(order, &adapters, &model)?;
    }
    let prompts = prompts(order, &from, &model)?;
    let base = answers(&mut model, &prompts)?;
    let beside = match attach_sum(&adapters, &mut model) {
        Ok(()) => Ok(answers(&mut model, &prompts)?),
        // What cannot stand beside the weights can still be added to them.
        Err(error) => Err(one_line(&error.to_string())),
    };
    model.remove_adapters()?;
    for (adapter, weight) in &adapters {
        adapter.merge_into(&mut model, *weight)?;
    }
    let merged = answers(&mut model, &prompts)?;
    let check = beside.map(|beside| compare(&base, &beside, &merged));
    if let Ok(found) = &check {
        let largest = merged
            .iter()
            .flatten()
            .flatten()
            .fold(0.0_f32, |max, x| max.max(x.abs()));
        if found.off.is_nan() || found.off > TOLERANCE * largest.max(1.0) {
            return Err(cannot(
                format!(
                    "the merged weights say something else than base and adapter: logits differ by {}",
                    found.off
                ),
                "please report it, with the adapter_config.json",
            ));
        }
    }
    let source = Source {
        ids: from.token_ids(),
        model,
        from,
    };
    let options = Options {
        dtype: order.dtype.clone(),
        max_shard_bytes: 5_000_000_000,
    };
    let format = match hf::family_of(source.model.config()) {
        Some(_) => "hf",
        None => "safetensors",
    };
    let written = export::export(&source, export::format(format)?, &options, &order.to)?;
    record(order, &adapters, digests, check.as_ref().ok().copied())?;
    Ok(Merged { written, check })
}

fn adapters(order: &Order, from: &ModelSource) -> Result<Vec<(Peft, f64)>, MergeError> {
    let own = match from {
        ModelSource::Folder(folder) if folder.base().is_none() => {
            folder.path().join(hf::ADAPTER_CONFIG).is_file()
        }
        ModelSource::Folder(_) => {
            return Err(cannot(
                format!("{} is an adapter, not a base", order.base.display()),
                "--base is the model that it was trained on; --adapter is this folder",
            ));
        }
        ModelSource::Gguf(_) => false,
    };
    if from.packed_bytes().is_some() && !order.dequantize {
        return Err(cannot(
            format!(
                "{} holds quantized weights, to which nothing can be added",
                order.base.display()
            ),
            "--dequantize turns them into floats; or merge into the model that the file was made from, with --any-base",
        ));
    }
    let mut named = order.adapters.clone();
    match (own, named.is_empty()) {
        (true, true) => named.push((order.base.clone(), 1.0)),
        (true, false) => {
            return Err(cannot(
                format!(
                    "{} has an adapter of its own beside its weights",
                    order.base.display()
                ),
                "merge that one first: leave --adapter out",
            ));
        }
        (false, true) => {
            return Err(cannot(
                format!(
                    "{}: no adapter here, and none is named",
                    order.base.display()
                ),
                "--adapter DIR names one",
            ));
        }
        (false, false) => {}
    }
    named
        .iter()
        .map(|(path, weight)| Ok((Peft::find(path)?, *weight)))
        .collect()
}

/// SHA-256 of each adapter's weights.
fn digests(adapters: &[(Peft, f64)]) -> Result<Vec<String>, MergeError> {
    let digest = |(adapter, _): &(Peft, f64)| {
        let path = adapter.folder().join(hf::ADAPTER_WEIGHTS);
        let bytes = read_plain(&path).map_err(|source| HfError::Io { path, source })?;
        let hash = Sha256::digest(&bytes);
        Ok(hash.iter().map(|byte| format!("{byte:02x}")).collect())
    };
    adapters.iter().map(digest).collect()
}

fn refuse_twice(order: &Order, digests: &[String]) -> Result<(), MergeError> {
    let Ok(text) = read_small(&order.base.join(RECORD), MAX_RECORD) else {
        return Ok(());
    };
    let record: Record = serde_json::from_slice(&text).map_err(|e| {
        cannot(
            format!("{}: {e}", order.base.join(RECORD).display()),
            "remove the file if it is not llmtui's",
        )
    })?;
    let twice = record
        .adapters
        .iter()
        .find(|adapter| digests.contains(&adapter.sha256));
    match twice {
        Some(adapter) => Err(cannot(
            format!(
                "already merged: {} holds {} since it was made",
                order.base.display(),
                one_line(&adapter.path)
            ),
            format!("the base was {}", one_line(&record.base)),
        )),
        None => Ok(()),
    }
}

fn same_base(order: &Order, adapters: &[(Peft, f64)], model: &Model) -> Result<(), MergeError> {
    let ours = model.base_fingerprint()?;
    for (adapter, _) in adapters {
        // Shapes first: they say more.
        adapter.fits(model)?;
        if adapter
            .base_fingerprint()
            .is_some_and(|theirs| theirs != ours)
        {
            let base = adapter
                .base()
                .map(|base| format!(": {}", one_line(base)))
                .unwrap_or_default();
            return Err(cannot(
                format!(
                    "{} is an adapter of another base{base}; the weights of {} are others",
                    adapter.folder().display(),
                    order.base.display()
                ),
                "--base names that model; --any-base merges all the same, as for an adapter that was trained on the quantized copy",
            ));
        }
    }
    Ok(())
}

/// The tokens of each prompt.
fn prompts(order: &Order, from: &ModelSource, model: &Model) -> Result<Vec<Vec<u32>>, MergeError> {
    let (vocab_size, most) = (
        model.shape().vocab_size,
        MAX_TOKENS.min(model.shape().seq_len),
    );
    let cut = |mut ids: Vec<u32>| {
        ids.retain(|id| (*id as usize) < vocab_size);
        ids.truncate(most);
        ids
    };
    let tokenizer = tokenizer::load(from.tokenizer_path(), &Child::of_this_program()).ok();
    let Some(tokenizer) = tokenizer else {
        // Weights do not need a tokenizer to be asked.
        return Ok(vec![cut((0..64).collect())]);
    };
    let texts: Vec<&str> = match order.prompts.is_empty() {
        true => PROMPTS.to_vec(),
        false => order.prompts.iter().map(String::as_str).collect(),
    };
    let mut all = Vec::new();
    for text in texts {
        match tokenizer.encode(text) {
            Ok(ids) => all.push(cut(ids)),
            Err(e) if !order.prompts.is_empty() => return Err(cannot(e.to_string(), e.hint())),
            // Not every vocabulary knows all characters of ours.
            Err(_) => {}
        }
    }
    all.retain(|ids| !ids.is_empty());
    match all.is_empty() {
        true => Ok(vec![cut((0..64).collect())]),
        false => Ok(all),
    }
}

/// Logits after each token of each prompt.
fn answers(model: &mut Model, prompts: &[Vec<u32>]) -> candle_core::Result<Vec<Vec<Vec<f32>>>> {
    let of = |ids: &Vec<u32>| model.logits(ids, 1, ids.len())?.squeeze(0)?.to_vec2();
    prompts.iter().map(of).collect()
}

fn compare(base: &[Vec<Vec<f32>>], beside: &[Vec<Vec<f32>>], merged: &[Vec<Vec<f32>>]) -> Compared {
    let mut found = Compared {
        tokens: 0,
        off: 0.0,
        moved: 0.0,
        agree: 0,
    };
    // NaN must not be lost in a maximum.
    let worse = |max: f32, x: f32| if x > max || x.is_nan() { x } else { max };
    let top = |row: &[f32]| (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b]));
    let rows = base
        .iter()
        .flatten()
        .zip(beside.iter().flatten())
        .zip(merged.iter().flatten());
    for ((base, beside), merged) in rows {
        for ((base, beside), merged) in base.iter().zip(beside).zip(merged) {
            found.off = worse(found.off, (beside - merged).abs());
            found.moved = worse(found.moved, (beside - base).abs());
        }
        found.tokens += 1;
        found.agree += usize::from(top(beside) == top(merged));
    }
    found
}

fn record(
    order: &Order,
    adapters: &[(Peft, f64)],
    digests: Vec<String>,
    check: Option<Compared>,
) -> Result<(), MergeError> {
    let absolute = |path: &Path| {
        let whole = std::path::absolute(path).unwrap_or_else(|_| path.into());
        whole.display().to_string()
    };
    let named = adapters
        .iter()
        .zip(digests)
        .map(|((adapter, weight), sha256)| RecordedAdapter {
            path: absolute(adapter.folder()),
            weight: *weight,
            sha256,
        });
    let record = Record {
        base: absolute(&order.base),
        adapters: named.collect(),
        check,
    };
    let path = order.to.join(RECORD);
    let text = serde_json::to_vec_pretty(&record).map_err(|e| cannot(e.to_string(), ""))?;
    write_atomic(&path, &text).map_err(|source| ExportError::Io { path, source })?;
    Ok(())
}
