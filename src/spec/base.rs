//! `train.from`: what a model folder says about the model and its tokenizer stands in for what the spec leaves out, with the
//! folder as its origin. What the spec says otherwise is a contradiction, except for what may differ from a base.

use super::issue::{Issue, Origin};
use super::merge::Merged;
use super::presets::SpecSources;
use crate::base::text::one_line;
use crate::hf;
use crate::hub;
use crate::nn::ModelConfig;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const FROM: &str = "train.from";
const TOKENIZER: &str = "data.tokenizer.file.path";
/// Any of them is a tokenizer.
const TOKENIZER_FILES: [&str; 3] = [hf::TOKENIZER, "tokenizer.model", "vocab.json"];
/// What a run may choose for itself: training alone depends on it.
const FREE: [&str; 6] = [
    "model.seq_len",
    "model.dropout",
    "model.init_std",
    "model.moe.aux_loss_coef",
    "model.moe.z_loss_coef",
    "model.attention_type",
];

/// The model of a folder as a spec would say it.
///
/// # Errors
/// Why its config.json is none that this build computes.
pub fn base_model(folder: &Path) -> Result<Value, hf::HfError> {
    hf::read_config(folder).map(|config| said_in_full(&config))
}

/// Replaces ids of the hub by their folders in its cache, and fills in from the base model.
pub(super) fn lay(merged: &mut Merged, sources: &SpecSources, issues: &mut Vec<Issue>) {
    resolve(merged, sources, "/data/tokenizer/file/path");
    let Some(folder) = resolve(merged, sources, "/train/from") else {
        return;
    };
    // Absent folders and other kinds of files are judged with all other paths.
    if !folder.is_dir() {
        return;
    }
    match hf::read_config(&folder) {
        Ok(config) => fill(merged, &folder, &config, issues),
        Err(error) => issues.push(Issue {
            origin: merged.origins.get(FROM),
            path: FROM.into(),
            what: error.to_string(),
            hint: "name a checkpoint folder such as runs/…/checkpoints/step-001000, a Hugging Face model folder, or an id of the hub".into(),
        }),
    }
}

/// The path that stands at `pointer`; an id of the hub that is no path becomes its folder in the cache.
fn resolve(merged: &mut Merged, sources: &SpecSources, pointer: &str) -> Option<PathBuf> {
    let value = merged.value.pointer_mut(pointer)?;
    let said = value.as_str()?.to_string();
    let path = sources.project_dir.join(&said);
    if path.exists() {
        return Some(path);
    }
    let (id, revision) = hub::model_id(&said)?;
    let cached = hub::cached_model(sources.hub_cache.as_deref()?, id, revision)?;
    *value = json!(cached.to_string_lossy());
    Some(cached)
}

fn fill(merged: &mut Merged, folder: &Path, config: &ModelConfig, issues: &mut Vec<Issue>) {
    let origin = Origin::Model(one_line(&folder.display().to_string()));
    let mut base = said_in_full(config);
    let said = merged.value.get("model").cloned().unwrap_or_default();
    let mut checking = Checking {
        merged,
        issues,
        place: folder,
    };
    checking.hold("model", &said, &base);
    checking.length(&said, config.seq_len);
    for path in FREE {
        let pointer = path.replace('.', "/").replacen("model", "", 1);
        if let (Some(value), Some((above, name))) = (said.pointer(&pointer), path.rsplit_once('.'))
        {
            let above = above.replace('.', "/").replacen("model", "", 1);
            if let Some(section) = base.pointer_mut(&above).and_then(Value::as_object_mut) {
                section.insert(name.into(), value.clone());
            }
        }
    }
    note(&mut merged.origins, "model", &base, &origin);
    merged.value["model"] = base;
    let has_tokenizer = TOKENIZER_FILES.iter().any(|f| folder.join(f).is_file());
    if merged.value.pointer("/data/tokenizer").is_none() && has_tokenizer {
        let path = folder.to_string_lossy();
        if !merged.value["data"].is_object() {
            merged.value["data"] = json!({});
        }
        merged.value["data"]["tokenizer"] = json!({"file": {"path": path}});
        merged.origins.set("data.tokenizer", origin.clone());
        merged.origins.set(TOKENIZER, origin);
    }
}

/// The config as a spec would say it, with what follows from the rest, and without what is nothing.
fn said_in_full(config: &ModelConfig) -> Value {
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

/// Notes the origin of every value that nobody said.
fn note(origins: &mut super::issue::Origins, path: &str, value: &Value, origin: &Origin) {
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
    place: &'a Path,
}

impl Checking<'_> {
    /// Everything that is said must be what the base has.
    fn hold(&mut self, path: &str, said: &Value, base: &Value) {
        // Null is nothing said.
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
            // A choice without settings where the base has none of it.
            (Value::Object(said), _) => {
                self.contradiction(path, &Value::Object(said.clone()), base)
            }
            _ if equal(said, base) => {}
            _ => self.contradiction(path, said, base),
        }
    }

    fn contradiction(&mut self, path: &str, said: &Value, base: &Value) {
        let theirs = match base {
            Value::Null => "has none".to_string(),
            other => format!("has {other}"),
        };
        self.complain(
            path,
            format!(
                "{said}, but the base model {} {theirs}",
                self.place.display()
            ),
            format!("leave {path} out: the base decides; or leave {FROM} out to train a new model"),
        );
    }

    /// A context may be shorter than the base's, not longer.
    fn length(&mut self, said: &Value, most: usize) {
        if let Some(len) = said["seq_len"].as_u64().filter(|len| *len > most as u64) {
            let place = self.place.display();
            self.complain(
                "model.seq_len",
                format!("{len} tokens, but the base model {place} was made for {most}"),
                format!("at most {most}, or leave it out"),
            );
        }
    }

    fn complain(&mut self, path: &str, what: String, hint: String) {
        // A choice stands at its registry.
        let mut said = path;
        while self.merged.origins.get(said) == Origin::Default
            && let Some((above, _)) = said.rsplit_once('.')
        {
            said = above;
        }
        self.issues.push(Issue {
            origin: self.merged.origins.get(said),
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

/// What the spec names that has to be brought from the hub first: values that are ids and no paths.
pub(super) fn wanted(value: &Value, sources: &SpecSources) -> Vec<String> {
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
