//! Merges adapters into the weights that they were trained on: checks before, and compares outputs afterwards.

use super::brought;
use super::export::{self, ExportError, MergeOrigin, Options, Source, Written};
use crate::base::child::Child;
use crate::base::digest::hex;
use crate::base::files::{read_plain, read_small, write_atomic};
use crate::base::text::{one_line, shown};
use crate::data::tokenizer::{self, Tokenizer};
use crate::engine::checkpoint::{Fault, Manifest};
use crate::hf::{self, AdapterError, Dtype, HfError, Peft, attach_sum};
use crate::hub;
use crate::kernels::errors::error_text;
use crate::models::{self, ModelSource, SourceError};
use crate::nn::Model;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The record of a merge in its folder.
pub const RECORD: &str = "merge.json";
const MAX_RECORD: u64 = 1 << 20;
/// Tokens of a prompt that are asked about.
const MAX_TOKENS: usize = 256;
/// The largest difference of logits, as a share of the largest logit, that f32 explains.
const TOLERANCE: f32 = 1e-3;
/// The longest chain of adapters.
const MAX_STAGES: usize = 8;
/// The default prompts of the comparison.
pub const PROMPTS: [&str; 3] = [
    "The capital of France is",
    "Explain in one sentence why the sky is blue.",
    "def add(a, b):\n    return",
];

/// A merge: adapters and base.
#[derive(Debug)]
pub struct Order {
    pub base: PathBuf,
    /// Each with its weight. The base's own adapter, and those below it, always come first.
    pub adapters: Vec<(PathBuf, f64)>,
    pub to: PathBuf,
    /// Of the written weights.
    pub dtype: Dtype,
    /// Turn quantized weights into floats.
    pub dequantize: bool,
    /// Merge although an adapter was trained on other weights.
    pub any_base: bool,
    pub prompts: Vec<String>,
}

/// The result of a merge.
#[derive(Debug)]
pub struct Merged {
    pub written: Vec<Written>,
    /// The base of the lowest adapter, and the folders of the adapters in merge order.
    pub base: PathBuf,
    pub adapters: Vec<PathBuf>,
    pub check: Result<Compared, String>,
    /// The model gives one score in place of logits over a vocabulary.
    pub scores: bool,
    /// The effect of rounding to a 16-bit dtype: logits of the merged f32 weights against those of the written ones.
    pub rounded: Option<Compared>,
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

impl Compared {
    /// Of a stage and the one after it: the worst of both.
    fn and(self, next: Compared) -> Compared {
        Compared {
            tokens: next.tokens,
            off: self.off.max(next.off),
            moved: self.moved.max(next.moved),
            agree: self.agree.min(next.agree),
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Record {
    base: String,
    adapters: Vec<RecordedAdapter>,
    check: Option<Compared>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rounded: Option<Compared>,
}

#[derive(Debug, Serialize, Deserialize)]
struct RecordedAdapter {
    path: String,
    weight: f64,
    /// Of the file with its weights.
    sha256: String,
    /// Of the values in it: an export is another file with the same. Empty in what older programs wrote.
    #[serde(default)]
    values: String,
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
            MergeError::Adapter(error) => error.hint(),
            MergeError::Source(error) => error.hint().into(),
            MergeError::Export(error) => error.hint(),
            MergeError::Damaged(_) => Fault::HINT.into(),
            MergeError::Model(_) => String::new(),
            MergeError::Cannot { fix, .. } => fix.clone(),
        }
    }
}

pub(super) fn cannot(what: impl Into<String>, fix: impl Into<String>) -> MergeError {
    MergeError::Cannot {
        what: one_line(&what.into()),
        fix: fix.into(),
    }
}

/// Adapters that are added at once, each with its weight.
type Stage = Vec<(Peft, f64)>;

/// Merges and writes the folder. Chains of adapters are merged from the lowest up, each checked as
/// one is.
///
/// # Errors
/// No adapter, one that is merged already or belongs to another base, a base that stays quantized, weights that do not say the
/// same afterwards; nothing is written then.
pub fn merge(order: &Order) -> Result<Merged, MergeError> {
    export::check_free(&order.to)?;
    for (folder, _) in &order.adapters {
        Manifest::verify_if_any(folder)?;
    }
    let from = Manifest::open_verified::<MergeError>(&order.base)?;
    let (root, own) = from.chain();
    let named = named(order, &from, own.is_empty())?;
    // Merged already is said before weights are read.
    reject_duplicates(order, &digests(&named)?)?;
    let mut model = root.load_base()?;
    let (prompts, unread) = prompts(order, &from, &model)?;
    let mut done: Stage = Vec::new();
    let mut check = None;
    let own = own.iter().map(|path| Ok(vec![(Peft::find(path)?, 1.0)]));
    for stage in own.collect::<Result<Vec<Stage>, MergeError>>()? {
        add(order, stage, &mut model, &prompts, &mut check, &mut done)?;
    }
    for stage in below(order, named, &model)? {
        add(order, stage, &mut model, &prompts, &mut check, &mut done)?;
    }
    let check = check.unwrap_or_else(|| Err("nothing was added".into()));
    let base = root.path().to_path_buf();
    let adapters: Vec<PathBuf> = done.iter().map(|(peft, _)| peft.folder().into()).collect();
    let tokenizer = tokenizer_of(&from, model.shape().vocab_size, &adapters);
    let note = trained_with(&from, &tokenizer);
    let source = Source::new(from, model, tokenizer).merged(origin(order, &base, &done));
    let options = Options {
        dtype: order.dtype.word().into(),
        max_shard_bytes: 5_000_000_000,
    };
    let format = match hf::family_of(source.model.config()) {
        Some(_) => "hf",
        None => "safetensors",
    };
    let scores = source.model.config().is_reward_model();
    let mut written = export::export(&source, export::format(format)?, &options, &order.to)?;
    if let Some(last) = written.last_mut() {
        last.notes.extend(note);
        last.notes.extend(unread);
    }
    let rounded = match order.dtype {
        Dtype::F32 => None,
        _ => Some(rounding(order, source.model, &prompts)?),
    };
    record(order, &base, &done, check.as_ref().ok().copied(), rounded)?;
    Ok(Merged {
        rounded,
        written,
        base,
        adapters,
        check,
        scores,
    })
}

/// What the card of the merged model says of it.
fn origin(order: &Order, base: &Path, done: &[(Peft, f64)]) -> MergeOrigin {
    let adapter = |(peft, weight): &(Peft, f64)| (models::name_of(peft.folder()), *weight);
    MergeOrigin {
        name: models::name_of(&order.to),
        base: Some(hub::id_of_cached(base).unwrap_or_else(|| models::name_of(base))),
        method: None,
        parts: done.iter().map(adapter).collect(),
    }
}

/// Where the tokenizer of the merged model lies: beside the last adapter that brings the base's own or one with more tokens, for
/// texts and turns end for the merged weights as in its training. One without a template does not replace one that has it.
fn tokenizer_of(from: &ModelSource, vocab_size: usize, adapters: &[PathBuf]) -> PathBuf {
    let child = Child::of_this_program();
    let own = from.tokenizer_of(vocab_size, adapters);
    let Ok(base) = tokenizer::load(from.tokenizer_path(), &child) else {
        return own.into();
    };
    let is_silent = |tokenizer: &Tokenizer| tokenizer.marks().chat_template.is_none();
    let fits = |adapter: &&PathBuf| {
        let theirs = brought::tokenizer_of(adapter, &base, vocab_size, &child);
        theirs
            .is_some_and(|theirs| theirs.covers(&base) && (is_silent(&base) || !is_silent(&theirs)))
    };
    let brought = adapters.iter().rev().find(fits);
    brought.map_or_else(|| own.into(), Clone::clone)
}

/// What to know of a merged model whose tokenizer is not its base's.
fn trained_with(from: &ModelSource, tokenizer: &Path) -> Option<String> {
    let settings = match tokenizer.join(hf::GENERATION).is_file() {
        true => ", chat template and generation_config.json",
        false => " and chat template",
    };
    (tokenizer != from.tokenizer_path()).then(|| {
        format!(
            "tokenizer{settings} are those of {}: its adapter was trained with them",
            shown(tokenizer)
        )
    })
}

/// Runs the prompts on the written weights as on the merged ones, one after the other: memory may not suffice for both.
fn rounding(
    order: &Order,
    mut merged: Model,
    prompts: &[Vec<u32>],
) -> Result<Compared, MergeError> {
    let before = answers(&mut merged, prompts)?;
    drop(merged);
    let mut written = ModelSource::open(&order.to)?.load_base()?;
    let after = answers(&mut written, prompts)?;
    Ok(compare(&before, &before, &after))
}

/// Merges one stage, and holds the merged weights against base and adapter beside each other.
fn add(
    order: &Order,
    stage: Stage,
    model: &mut Model,
    prompts: &[Vec<u32>],
    check: &mut Option<Result<Compared, String>>,
    done: &mut Stage,
) -> Result<(), MergeError> {
    if stage.iter().any(|(adapter, _)| adapter.scores()) && !model.config().is_reward_model() {
        // A reward model's adapter belongs to a causal base, and its score replaces the head.
        *model = model.scoring()?;
    }
    for (adapter, _) in &stage {
        adapter.make_room(model)?;
    }
    if !order.any_base {
        same_base(order, &stage, model)?;
    }
    let base = answers(model, prompts)?;
    let beside = match attach_sum(&stage, model) {
        Ok(()) => Ok(answers(model, prompts)?),
        // An adapter that cannot be attached to the weights can still be merged into them.
        Err(error) => Err(one_line(&error.to_string())),
    };
    model.remove_adapters()?;
    for (adapter, weight) in &stage {
        adapter.merge_into(model, *weight)?;
    }
    let merged = answers(model, prompts)?;
    let found = beside.map(|beside| compare(&base, &beside, &merged));
    if let Ok(found) = &found {
        let largest = merged
            .iter()
            .flatten()
            .flatten()
            .fold(0.0_f32, |max, x| max.max(x.abs()));
        if found.off.is_nan() || found.off > TOLERANCE * largest.max(1.0) {
            return Err(cannot(
                format!(
                    "the merged weights do not match base plus adapter: logits differ by {}",
                    found.off
                ),
                "please report it, with the adapter_config.json",
            ));
        }
    }
    *check = Some(match (check.take(), found) {
        (Some(Ok(before)), Ok(now)) => Ok(before.and(now)),
        // A stage that could not be checked leaves the whole unchecked.
        (Some(Err(why)), _) | (_, Err(why)) => Err(why),
        (None, Ok(now)) => Ok(now),
    });
    done.extend(stage);
    Ok(())
}

/// The adapters of the order. `bare`: the base has none of its own.
fn named(order: &Order, from: &ModelSource, bare: bool) -> Result<Stage, MergeError> {
    // Only where the base itself is named: a run on a quantized file has no other form, and is a folder.
    if from.is_quantized() && !order.dequantize {
        return Err(cannot(
            format!(
                "{} has quantized weights, into which adapters cannot be merged",
                order.base.display()
            ),
            "dequantize them with --dequantize; or merge into the model that the file was converted from, with --any-base",
        ));
    }
    if bare && order.adapters.is_empty() {
        return Err(cannot(
            format!(
                "{}: it has no adapter, and none is named",
                order.base.display()
            ),
            "name one with --adapter DIR",
        ));
    }
    let adapters = order.adapters.iter();
    let adapters: Stage = adapters
        .map(|(path, weight)| Ok((Peft::find(path)?, *weight)))
        .collect::<Result<_, MergeError>>()?;
    if adapters.len() > 1 && adapters.iter().any(|(peft, _)| peft.has_magnitudes()) {
        return Err(cannot(
            "adapters with magnitudes (DoRA) cannot be summed with others: their effect depends on the base weights",
            "merge them one after the other with --any-base",
        ));
    }
    let mut tables = BTreeSet::new();
    let mut brought = adapters.iter().flat_map(|(peft, _)| peft.whole());
    if let Some(table) = brought.find(|table| !tables.insert(table.clone())) {
        return Err(cannot(
            format!("two adapters replace {table}, and the model has one"),
            "remove one of the two",
        ));
    }
    Ok(adapters)
}

/// The named adapters as stages: where one was trained on a model with an adapter, that one is first, and so on down to what
/// was trained on these weights. A chain that does not lead there is left out, and what is named is refused.
fn below(order: &Order, named: Stage, model: &Model) -> Result<Vec<Stage>, MergeError> {
    let [(adapter, _)] = named.as_slice() else {
        let some = (!named.is_empty()).then_some(named);
        return Ok(some.into_iter().collect());
    };
    let ours = model.base_fingerprint()?;
    let fits = |peft: &Peft| peft.base_fingerprint().is_none_or(|base| base == ours);
    let mut under: Vec<Peft> = Vec::new();
    while !order.any_base && !fits(under.last().unwrap_or(adapter)) {
        let folder = under.last().unwrap_or(adapter).folder();
        let next = models::under(folder).filter(|_| under.len() < MAX_STAGES);
        let Some(next) = next.and_then(|folder| Peft::find(&folder).ok()) else {
            under.clear();
            break;
        };
        Manifest::verify_if_any(next.folder())?;
        under.push(next);
    }
    let mut stages: Vec<Stage> = under
        .into_iter()
        .rev()
        .map(|peft| vec![(peft, 1.0)])
        .collect();
    stages.push(named);
    Ok(stages)
}

/// Digests that identify an adapter.
struct Digests {
    file: String,
    values: String,
}

/// SHA-256 of each adapter's file, and of the values in it.
fn digests(adapters: &[(Peft, f64)]) -> Result<Vec<Digests>, MergeError> {
    let digest = |(adapter, _): &(Peft, f64)| {
        let path = adapter.folder().join(hf::ADAPTER_WEIGHTS);
        let bytes = read_plain(&path).map_err(|source| HfError::Io { path, source })?;
        let hash = Sha256::digest(&bytes);
        Ok(Digests {
            file: hex(&hash),
            values: adapter.digest()?,
        })
    };
    adapters.iter().map(digest).collect()
}

fn reject_duplicates(order: &Order, digests: &[Digests]) -> Result<(), MergeError> {
    match merged_before(&order.base, digests)? {
        Some(before) => Err(cannot(before.what, before.fix)),
        None => Ok(()),
    }
}

/// An adapter that a model holds already, in words.
pub(super) struct Before {
    pub what: String,
    pub fix: String,
}

/// Whether one of these adapters was merged into the model at `base`, as the record beside it says.
fn merged_before(base: &Path, digests: &[Digests]) -> Result<Option<Before>, MergeError> {
    let Ok(text) = read_small(&base.join(RECORD), MAX_RECORD) else {
        return Ok(None);
    };
    let record: Record = serde_json::from_slice(&text).map_err(|e| {
        cannot(
            format!("{}: {e}", base.join(RECORD).display()),
            "delete the file if it is not llmtui's",
        )
    })?;
    let is_one = |adapter: &&RecordedAdapter| {
        let same = |d: &Digests| d.file == adapter.sha256 || d.values == adapter.values;
        digests.iter().any(same)
    };
    let twice = record.adapters.iter().find(is_one);
    Ok(twice.map(|adapter| Before {
        what: format!(
            "already merged: {} contains {}",
            base.display(),
            one_line(&adapter.path)
        ),
        fix: format!("the base was {}", one_line(&record.base)),
    }))
}

/// [`merged_before`] of adapters in folders; unreadable files are reported where they are opened.
pub(super) fn holds_already(base: &Path, folders: &[PathBuf]) -> Option<Before> {
    let found = folders.iter().map(|folder| Peft::find(folder));
    let stage: Stage = found
        .filter_map(Result::ok)
        .map(|peft| (peft, 1.0))
        .collect();
    merged_before(base, &digests(&stage).ok()?).ok().flatten()
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
            let folder = adapter.folder();
            // A checkpoint contains its adapter's base weights, unless they are in another file.
            let whole = folder.join(hf::CONFIG).is_file() && !models::is_adapter_alone(folder);
            let whole = match whole {
                true => format!(
                    "use only --base {0}, which includes its base; ",
                    folder.display()
                ),
                false => String::new(),
            };
            return Err(cannot(
                format!(
                    "{} is an adapter of another base{base}; the weights of {} differ",
                    folder.display(),
                    order.base.display()
                ),
                format!(
                    "{whole}name that model with --base; --any-base merges anyway, as for an adapter trained on a quantized copy"
                ),
            ));
        }
    }
    Ok(())
}

/// The tokens of each prompt, and a note where no tokenizer makes them.
fn prompts(
    order: &Order,
    from: &ModelSource,
    model: &Model,
) -> Result<(Vec<Vec<u32>>, Option<String>), MergeError> {
    let (vocab_size, most) = (
        model.shape().vocab_size,
        MAX_TOKENS.min(model.shape().seq_len),
    );
    let cut = |mut ids: Vec<u32>| {
        ids.retain(|id| (*id as usize) < vocab_size);
        ids.truncate(most);
        ids
    };
    let tokenizer = match tokenizer::load(from.tokenizer_path(), &Child::of_this_program()) {
        Ok(tokenizer) => tokenizer,
        // Weights do not need a tokenizer to be asked.
        Err(error) => {
            let note = format!(
                "the tokenizer cannot be loaded ({error}): logits were compared on the token ids 0 to 63, not on prompts"
            );
            return Ok((vec![cut((0..64).collect())], Some(one_line(&note))));
        }
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
        true => Ok((vec![cut((0..64).collect())], None)),
        false => Ok((all, None)),
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
    base: &Path,
    adapters: &[(Peft, f64)],
    check: Option<Compared>,
    rounded: Option<Compared>,
) -> Result<(), MergeError> {
    let digests = digests(adapters)?;
    let absolute = |path: &Path| {
        let whole = std::path::absolute(path).unwrap_or_else(|_| path.into());
        whole.display().to_string()
    };
    let named = adapters
        .iter()
        .zip(digests)
        .map(|((adapter, weight), digests)| RecordedAdapter {
            path: absolute(adapter.folder()),
            weight: *weight,
            sha256: digests.file,
            values: digests.values,
        });
    let record = Record {
        base: absolute(base),
        adapters: named.collect(),
        check,
        rounded,
    };
    let path = order.to.join(RECORD);
    let text = serde_json::to_vec_pretty(&record).map_err(|e| cannot(e.to_string(), ""))?;
    write_atomic(&path, &text).map_err(|source| ExportError::Io { path, source })?;
    Ok(())
}
