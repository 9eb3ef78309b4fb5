//! `train.from`: values that the spec leaves out are filled in from the base model and its tokenizer (a model folder or a
//! GGUF file), with that origin. Contradicting the base is an error, except for values a run may choose; a shipped
//! preset's values for a new model yield to the base.

mod context;

use super::home;
use super::issue::{Issue, Origin, Origins};
use super::layer::is_default;
use super::merge::Merged;
use super::presets::SpecSources;
use super::validate::EMPTY;
use super::vocabulary;
use crate::base::text::{one_line, shown};
use crate::hub;
use crate::models::{
    self, ModelSource, SourceError, TO_COME, files_by_name, first_part, tokenizer_place,
};
use crate::nn::{HeadKind, ModelConfig};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

const FROM: &str = "train.from";
const TOKENIZER: &str = "data.tokenizer.file.path";
const SEQ_LEN: &str = "model.seq_len";
const CONTEXT_LEN: &str = "model.context_len";
/// Keys a run may choose for itself: only training depends on them, or what files call the model.
pub(super) const FREE: [&str; 11] = [
    SEQ_LEN,
    CONTEXT_LEN,
    "model.dropout",
    "model.init_std",
    "model.moe.aux_loss_coef",
    "model.moe.z_loss_coef",
    "model.moe.balancing.bias.rate",
    "model.attention_type",
    "model.head",
    "model.value_head",
    "model.family",
];

/// Whether a key, as it may be typed, names the model to start from.
pub fn starts_from(key: &str) -> bool {
    [FROM, "from"].contains(&key) || super::alias::resolve(key) == Some(FROM)
}

/// A model to start training from.
#[derive(Debug, Clone)]
pub struct BaseModel {
    /// Its architecture as spec values.
    pub words: Value,
    /// Whether there is a tokenizer next to the model, or in its file.
    pub has_tokenizer: bool,
    pub has_chat_template: bool,
    /// `model_type`, or the architecture in a GGUF file.
    pub family: String,
    pub n_params: u64,
    /// Bytes of weights that stay in a file's formats; `None` where they are f32 in any case.
    pub packed_bytes: Option<u64>,
    config: ModelConfig,
}

/// A GGUF file, or each part of one, as it was when it was read: its metadata may take a second, and a screen asks for them at
/// each key.
#[derive(PartialEq)]
struct ModelState {
    /// As it was named: files that are called like parts of one model may be models of their own.
    place: PathBuf,
    files: Vec<FileState>,
}

#[derive(PartialEq)]
struct FileState {
    path: PathBuf,
    bytes: u64,
    changed: SystemTime,
}

impl ModelState {
    /// `None` of folders, which are read each time.
    fn of(place: &Path) -> Option<ModelState> {
        let state = |path: PathBuf| {
            let found = std::fs::metadata(&path).ok()?;
            found.is_file().then_some(())?;
            Some(FileState {
                path,
                bytes: found.len(),
                changed: found.modified().ok()?,
            })
        };
        let files: Option<Vec<FileState>> = files_by_name(place).into_iter().map(state).collect();
        Some(ModelState {
            place: place.into(),
            files: files?,
        })
    }
}

type LastFile = Mutex<Option<(ModelState, BaseModel)>>;

/// The file that was read last.
static LAST_FILE: LastFile = Mutex::new(None);

/// A model to start training from that an earlier stage of a pipeline is still to train.
#[derive(Debug, Clone, Copy)]
pub struct PendingModel<'a> {
    pub stage: &'a str,
    /// As that stage's spec has it.
    pub config: &'a ModelConfig,
    /// Of its tokenizer.
    pub vocab_size: usize,
}

impl PendingModel<'_> {
    /// As its checkpoint will describe it, without head and value head, which depend on the method: whether it can start a reward model is
    /// checked when stages are compared.
    fn model(&self) -> BaseModel {
        let mut config = self.config.in_files();
        config.vocab_size = config.vocab_size.or(Some(self.vocab_size));
        (config.head, config.value_head) = (HeadKind::default(), false);
        // No file says that a run should drop anything.
        config.dropout = 0.0;
        BaseModel {
            words: config_values(&config),
            has_tokenizer: true,
            has_chat_template: false,
            family: String::new(),
            n_params: 0,
            packed_bytes: None,
            config,
        }
    }
}

impl BaseModel {
    /// Its context in tokens.
    pub fn seq_len(&self) -> usize {
        self.config.seq_len
    }

    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// What to know of rows of so many tokens, if they are longer than its context.
    pub fn extrapolated(&self, seq_len: usize) -> Option<String> {
        context::extrapolated(&self.config, seq_len)
    }

    fn of(source: &ModelSource) -> BaseModel {
        BaseModel {
            words: config_values(source.config()),
            has_tokenizer: source.has_tokenizer(),
            has_chat_template: source.has_chat_template(),
            family: source.family().into(),
            n_params: source.n_params(),
            packed_bytes: source.packed_bytes(),
            config: source.config().clone(),
        }
    }
}

/// Reads the description of the model at a path, whose weights lie there too.
///
/// # Errors
/// There is none, none that this build can run, or one without weights.
pub fn base_model(place: &Path) -> Result<BaseModel, SourceError> {
    read(place, ModelSource::open_whole, &LAST_FILE)
}

fn read(
    place: &Path,
    open: fn(&Path) -> Result<ModelSource, SourceError>,
    last_file: &LastFile,
) -> Result<BaseModel, SourceError> {
    let last = || last_file.lock().unwrap_or_else(PoisonError::into_inner);
    let state = ModelState::of(place);
    if let (Some(state), Some((known, base))) = (&state, &*last())
        && state == known
    {
        return Ok(base.clone());
    }
    let base = BaseModel::of(&open(place)?);
    if let Some(state) = state {
        *last() = Some((state, base.clone()));
    }
    Ok(base)
}

/// The same for a model of the hub in its cache: of one that is only planned with, the weights may still be there, to be
/// downloaded.
///
/// # Errors
/// There is none, or none that this build can run.
pub fn base_of_hub(place: &Path) -> Result<BaseModel, SourceError> {
    read(place, ModelSource::open, &LAST_FILE)
}

/// Replaces hub ids by their folders in the cache, and fills in values from the base model.
pub(super) fn apply(merged: &mut Merged, sources: &SpecSources, issues: &mut Vec<Issue>) {
    if let Some(said) = resolve(merged, sources, "/data/tokenizer/file/path")
        && let place = tokenizer_place(&said)
        && place != said
        && let Some(value) = merged.value.pointer_mut("/data/tokenizer/file/path")
    {
        // An adapter alone leaves it to its base.
        *value = json!(place.to_string_lossy());
    }
    let said = merged.value.pointer("/train/from").and_then(Value::as_str);
    if said == Some("") {
        return issues.push(Issue {
            origin: merged.origins.get(FROM),
            path: FROM.into(),
            what: EMPTY.into(),
            hint: "name a checkpoint, a model folder, a .gguf file or a hub id, or remove it"
                .into(),
        });
    }
    let is_path = said.is_some_and(|said| full_path(said, sources).exists());
    let Some(place) = resolve(merged, sources, "/train/from") else {
        return;
    };
    let base = match is_path {
        true => base_model(&place),
        false => base_of_hub(&place),
    };
    match base {
        Ok(base) => {
            let words = Words {
                origin: shown(&place),
                model: format!("the base model {}", place.display()),
                otherwise: "remove train.from to train a new model",
            };
            fill(merged, &place, words, base, Some(sources), issues);
        }
        // Reported with all other paths.
        Err(SourceError::Absent(_)) => {}
        Err(error) => issues.push(Issue {
            origin: merged.origins.get(FROM),
            path: FROM.into(),
            hint: error.hint().into(),
            what: one_line(&error.to_string()),
        }),
    }
}

/// The same where the model is still to be trained: nothing is looked for on the disk.
pub(super) fn apply_pending(merged: &mut Merged, start: PendingModel<'_>, issues: &mut Vec<Issue>) {
    let words = Words {
        origin: format!("stage {}", start.stage),
        model: format!("the model of stage {}", start.stage),
        otherwise: "set `from: scratch` to train a new model",
    };
    if !merged.value["train"].is_object() {
        merged.value["train"] = json!({});
    }
    merged.value["train"]["from"] = json!(TO_COME);
    let origin = Origin::Model(words.origin.clone());
    merged.origins.set(FROM, origin);
    // Its tokenizer is that of the stage's data: nothing grows.
    fill(
        merged,
        Path::new(TO_COME),
        words,
        start.model(),
        None,
        issues,
    );
}

/// What is said, as a path.
fn full_path(said: &str, sources: &SpecSources) -> PathBuf {
    let full = home::expanded(Path::new(said), sources);
    sources.project_dir.join(full)
}

/// The path at `pointer`; a hub id that is not a path becomes its folder in the cache.
fn resolve(merged: &mut Merged, sources: &SpecSources, pointer: &str) -> Option<PathBuf> {
    let value = merged.value.pointer_mut(pointer)?;
    let said = value.as_str()?.to_string();
    let place = place_of(&said, sources)?;
    if place != sources.project_dir.join(&said) {
        *value = json!(place.to_string_lossy());
    }
    Some(place)
}

/// The same from the folders of a spec, `~` among them.
pub(super) fn place_of(said: &str, sources: &SpecSources) -> Option<PathBuf> {
    let full = home::expanded(Path::new(said), sources);
    let full = full.to_string_lossy();
    base_folder(&full, &sources.project_dir, sources.hub_cache.as_deref())
}

/// Where a model is that a spec names: at this path (of a GGUF file in several parts, any of which may be named, the first), or in
/// the hub's cache.
pub fn base_folder(said: &str, project_dir: &Path, hub_cache: Option<&Path>) -> Option<PathBuf> {
    let path = project_dir.join(said);
    if path.exists() {
        return Some(first_part(&path));
    }
    models::cached(hub_cache?, said)
}

/// The tokenizer that the spec names, else the model's own.
fn tokenizer_of(
    merged: &Merged,
    place: &Path,
    has_tokenizer: bool,
    sources: &SpecSources,
) -> Option<PathBuf> {
    match merged.value.pointer("/data/tokenizer") {
        None => has_tokenizer.then(|| tokenizer_place(place)),
        Some(said) => {
            let path = said.pointer("/file/path").and_then(Value::as_str);
            path.map(|said| full_path(said, sources))
        }
    }
}

/// What a base model is called.
struct Words {
    /// As the origin of a value.
    origin: String,
    /// In an issue.
    model: String,
    /// What makes it none.
    otherwise: &'static str,
}

fn fill(
    merged: &mut Merged,
    place: &Path,
    words: Words,
    model: BaseModel,
    // Where a tokenizer may lie, for a vocabulary that grows.
    sources: Option<&SpecSources>,
    issues: &mut Vec<Issue>,
) {
    let origin = Origin::Model(words.origin.clone());
    let mut base = model.words;
    drop_preset_values(merged, &model.config, model.has_tokenizer);
    let tokenizer =
        sources.and_then(|sources| tokenizer_of(merged, place, model.has_tokenizer, sources));
    vocabulary::grow(
        merged,
        &model.config,
        tokenizer.as_deref(),
        &mut base,
        issues,
    );
    let mut said = merged.value.get("model").cloned().unwrap_or_default();
    let mut held = said.clone();
    let asked = context::asked(&said, &model.config);
    let stretches = asked.is_some();
    // Rows of a shipped preset are of the recipe's own length, and do not say how far.
    let is_said = asked.is_some_and(|asked| asked.has_factor());
    if is_said && merged.origins.get(SEQ_LEN).is_shipped() {
        said["seq_len"] = Value::Null;
        merged.origins.forget(SEQ_LEN);
    }
    let longer = context::asked(&said, &model.config)
        .map(|asked| asked.settle(&said, &model.config, &words.model));
    if stretches {
        leave_out_scaling(&mut held, model.config.position.rope().is_some());
    }
    let mut checking = Checking {
        merged,
        issues,
        words,
        has_bias: model.config.bias,
    };
    checking.hold("model", &held, &base);
    let wrong = match &longer {
        Some(Ok(_)) => Vec::new(),
        Some(Err(wrong)) => vec![wrong.clone()],
        None => context::beyond(&said, &model.config, &checking.words.model),
    };
    for context::Wrong { key, what, hint } in wrong {
        checking.report(&format!("model.{key}"), what, hint);
    }
    let shorter = |len: u64| len < model.config.seq_len as u64;
    match longer {
        Some(Ok(longer)) => {
            longer.fill(&mut base);
            for (key, how) in longer.why {
                let path = format!("model.{key}");
                merged.origins.set(&path, Origin::Implied(how));
            }
        }
        _ if model.config.keeps_context() && said["seq_len"].as_u64().is_some_and(shorter) => {
            base["context_len"] = json!(model.config.seq_len);
        }
        _ => {}
    }
    for path in FREE {
        let pointer = path.replace('.', "/").replacen("model", "", 1);
        let value = said
            .pointer(&pointer)
            .filter(|value| !value.is_null() || ![SEQ_LEN, CONTEXT_LEN].contains(&path));
        if let (Some(value), Some((above, name))) = (value, path.rsplit_once('.')) {
            let above = above.replace('.', "/").replacen("model", "", 1);
            if let Some(section) = base.pointer_mut(&above).and_then(Value::as_object_mut) {
                section.insert(name.into(), value.clone());
            }
        }
    }
    note(&mut merged.origins, "model", &base, &origin);
    merged.value["model"] = base;
    if merged.value.pointer("/data/tokenizer").is_none() && model.has_tokenizer {
        let place = tokenizer_place(place);
        let path = place.to_string_lossy();
        if !merged.value["data"].is_object() {
            merged.value["data"] = json!({});
        }
        merged.value["data"]["tokenizer"] = json!({"file": {"path": path}});
        merged.origins.set("data.tokenizer", origin.clone());
        merged.origins.set(TOKENIZER, origin);
    }
}

/// Takes the scaling out of the `model` of a spec, and all of its positions where the base model does not rotate.
fn leave_out_scaling(model: &mut Value, rotates: bool) {
    if !rotates && let Some(map) = model.as_object_mut() {
        map.remove("position");
    }
    let rope = model.pointer_mut("/position/rope");
    if let Some(map) = rope.and_then(Value::as_object_mut) {
        map.remove("scaling");
    }
}

/// A shipped preset describes a new model: with a base model, the base's values replace its own.
fn drop_preset_values(merged: &mut Merged, config: &ModelConfig, has_tokenizer: bool) {
    let Merged { value, origins, .. } = merged;
    if let Some(model) = value.get_mut("model") {
        drop_preset_leaves(origins, "model", model, config.seq_len);
    }
    if has_tokenizer && origins.get("data.tokenizer").is_shipped() {
        if let Some(data) = value["data"].as_object_mut() {
            data.remove("tokenizer");
        }
        origins.forget("data.tokenizer");
    }
}

/// Drops values from presets, except those a run may choose; returns whether anything is left. `longest` is the base's context.
fn drop_preset_leaves(
    origins: &mut Origins,
    path: &str,
    value: &mut Value,
    longest: usize,
) -> bool {
    let keep = match value {
        Value::Object(map) if !map.is_empty() => {
            map.retain(|name, v| {
                drop_preset_leaves(origins, &format!("{path}.{name}"), v, longest)
            });
            !map.is_empty()
        }
        value => {
            let too_long = path == SEQ_LEN && value.as_u64() > Some(longest as u64);
            let free = FREE.contains(&path) && !too_long;
            free || !origins.nearest(path).is_shipped()
        }
    };
    if !keep {
        origins.forget(path);
    }
    keep
}

/// The config as spec values, without derived values and nulls.
fn config_values(config: &ModelConfig) -> Value {
    let shape = config.shape(0);
    let mut config = config.clone();
    config.n_kv_head = Some(shape.n_kv_head);
    config.head_dim = Some(shape.head_dim);
    config.d_ff = Some(shape.d_ff);
    let mut value = serde_json::to_value(&config).unwrap_or_default();
    drop_nulls(&mut value);
    value
}

fn drop_nulls(value: &mut Value) {
    if let Value::Object(map) = value {
        map.retain(|_, v| !v.is_null());
        map.values_mut().for_each(drop_nulls);
    }
}

/// Records the origin of every value that was not set.
fn note(origins: &mut Origins, path: &str, value: &Value, origin: &Origin) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                note(origins, &format!("{path}.{key}"), value, origin);
            }
        }
        _ => {
            if origins.get(path) == Origin::Default {
                origins.set(path, origin.clone());
            }
        }
    }
}

struct Checking<'a> {
    merged: &'a Merged,
    issues: &'a mut Vec<Issue>,
    words: Words,
    /// Whether the base's linear layers have biases, and its LayerNorms where nothing else is said.
    has_bias: bool,
}

impl Checking<'_> {
    /// Every value that is set must equal the base's.
    fn hold(&mut self, path: &str, said: &Value, base: &Value) {
        // Null means not set.
        if FREE.contains(&path) || said.is_null() {
            return;
        }
        match (said, base) {
            (Value::Object(said), Value::Object(base)) => {
                for (key, value) in said {
                    let theirs = base.get(key).unwrap_or(&Value::Null);
                    self.hold(&format!("{path}.{key}"), value, theirs);
                }
            }
            // A member without settings where the base has another one.
            (Value::Object(said), _) => {
                self.contradiction(path, &Value::Object(said.clone()), base)
            }
            _ if equal(said, base) => {}
            (said, Value::Null) if self.is_as_unset(path, said) => {}
            _ => self.contradiction(path, said, base),
        }
    }

    /// Whether a value says no more than its absence in a model's config.
    fn is_as_unset(&self, path: &str, said: &Value) -> bool {
        match path {
            "model.norm.layernorm.bias" => *said == json!(self.has_bias),
            "model.embedding_scale" | "model.residual_scale" | "model.logit_scale" => {
                equal(said, &json!(1.0))
            }
            _ => is_default(path, said),
        }
    }

    fn contradiction(&mut self, path: &str, said: &Value, base: &Value) {
        let theirs = match base {
            Value::Null => "has none".to_string(),
            other => format!("has {other}"),
        };
        self.report(
            path,
            format!("{said}, but {} {theirs}", self.words.model),
            format!(
                "remove {path} to use the base's value, or {}",
                self.words.otherwise
            ),
        );
    }

    fn report(&mut self, path: &str, what: String, hint: String) {
        self.issues.push(Issue {
            // A choice is recorded at its registry.
            origin: self.merged.origins.nearest(path),
            path: path.to_string(),
            what: one_line(&what),
            hint: one_line(&hint),
        });
    }
}

fn equal(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * a.abs().max(b.abs()),
        _ => a == b,
    }
}

/// What the spec needs downloaded from the hub: values that are ids, not paths.
pub(super) fn required_downloads(value: &Value, sources: &SpecSources) -> Vec<String> {
    let said = ["/train/from", "/data/tokenizer/file/path"];
    let mut ids: Vec<String> = said
        .iter()
        .filter_map(|pointer| value.pointer(pointer)?.as_str())
        .filter(|word| !sources.project_dir.join(word).exists() && hub::model_id(word).is_some())
        .map(String::from)
        .collect();
    ids.dedup();
    ids
}

#[cfg(test)]
mod tests;
