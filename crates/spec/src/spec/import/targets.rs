//! Which modules have adapters, and which train whole beside them: PEFT's names as settings of the adapter.

use super::shared::TARGETS;
use super::{KeyOutcome, Reader, plain};
use serde_json::{Value, json};

const PATH: &str = "adapter.lora.targets";

/// Linear layers as Llama's kin call them, and ours; then as GPT-NeoX and GPT-Neo do.
const LAYERS: &[(&str, &[&str])] = &[
    ("q_proj", &["query"]),
    ("k_proj", &["key"]),
    ("v_proj", &["value"]),
    ("o_proj", &["output"]),
    ("gate_proj", &["gate"]),
    ("up_proj", &["up"]),
    ("down_proj", &["down"]),
    ("query_key_value", &["query", "key", "value"]),
    ("dense", &["output"]),
    ("out_proj", &["output"]),
    ("dense_h_to_4h", &["up"]),
    ("dense_4h_to_h", &["down"]),
];

/// Sets of layers with a name here.
const SETS: &[(&str, &[&str])] = &[
    ("minimal", &["query", "value"]),
    ("attention_only", &["query", "key", "value", "output"]),
    ("ffn_only", &["gate", "up", "down"]),
    (
        "all",
        &["query", "key", "value", "output", "gate", "up", "down"],
    ),
];

/// Tables, and ours.
const TABLES: &[(&str, &str)] = &[
    ("embed_tokens", "embeddings"),
    ("wte", "embeddings"),
    ("embed_in", "embeddings"),
    ("lm_head", "head"),
    ("embed_out", "head"),
];

/// A list, or a text with commas.
pub(super) fn names(value: &Value) -> Vec<String> {
    let all = match value {
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(","),
        one => plain(one),
    };
    let names = all
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty());
    names.map(String::from).collect()
}

fn of<T: Copy>(list: &[(&str, T)], name: &str) -> Option<T> {
    let found = list.iter().find(|(theirs, _)| *theirs == name);
    found.map(|(_, ours)| *ours)
}

fn is_all(name: &str) -> bool {
    name == "all" || name == "all-linear"
}

/// What PEFT's names of modules are here.
enum Targets {
    /// A set of layers with a name.
    Set(&'static str),
    /// Layers of ours.
    Custom(Vec<&'static str>),
    /// Names that no layer of ours has.
    Patterns,
}

fn targets(names: &[String]) -> Targets {
    let known: Option<Vec<&[&'static str]>> = names.iter().map(|name| of(LAYERS, name)).collect();
    let Some(mut layers) = known.map(|known| known.concat()) else {
        return Targets::Patterns;
    };
    let place = |layer: &str| LAYERS.iter().position(|(_, ours)| *ours == [layer]);
    layers.sort_by_key(|layer| place(layer));
    layers.dedup();
    match SETS.iter().find(|(_, set)| *set == layers) {
        Some((word, _)) => Targets::Set(word),
        None => Targets::Custom(layers),
    }
}

/// The settings that a value with PEFT's names of modules means where ours are expected, as they are written after `-s`.
pub(in crate::spec) fn meant(path: &str, value: &Value) -> Option<String> {
    const LIST: &str = "adapter.lora.custom";
    let ours = |name: &String| of(LAYERS, name).is_some() || SETS[3].1.contains(&name.as_str());
    let names = names(value);
    if [PATH, LIST].contains(&path) && names.iter().any(|name| is_all(name)) {
        return Some(format!("{PATH}=all"));
    }
    let is_list = value.is_array() || names.len() > 1 || names.iter().any(ours);
    if ![PATH, LIST].contains(&path) || names.is_empty() || !is_list {
        return None;
    }
    let own = |name: &String| match SETS[3].1.iter().position(|own| own == name) {
        Some(at) => LAYERS[at].0.to_string(),
        None => name.clone(),
    };
    let theirs: Vec<String> = names.iter().map(own).collect();
    Some(match targets(&theirs) {
        Targets::Set(word) => format!("{PATH}={word}"),
        Targets::Custom(layers) => {
            format!("-s {PATH}=custom -s {LIST}=[{}]", layers.join(","))
        }
        Targets::Patterns => {
            let list = names.join(",");
            format!("-s {PATH}=pattern -s adapter.lora.patterns=[{list}]")
        }
    })
}

impl Reader {
    /// Modules with adapters.
    pub(super) fn targets(&mut self, theirs: String, value: &Value) {
        let names = names(value);
        if names.iter().any(|name| is_all(name)) {
            return self.set(theirs, PATH, "all", "");
        }
        let plain = |name: &String| {
            name.chars()
                .all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
        };
        if names.is_empty() || !names.iter().all(plain) {
            return self.line(KeyOutcome::NoEqual, theirs, "", TARGETS);
        }
        if self.all_linear {
            return self.add_to_all_linear(theirs, &names);
        }
        match targets(&names) {
            Targets::Set(word) => self.set(theirs, PATH, word, ""),
            Targets::Custom(layers) => {
                self.listed_targets(theirs, ("custom", "custom"), &json!(layers).to_string());
            }
            Targets::Patterns => {
                self.listed_targets(theirs, ("pattern", "patterns"), &json!(names).to_string());
            }
        }
    }

    /// A kind of list, and the list.
    fn listed_targets(&mut self, theirs: String, (kind, setting): (&str, &str), list: &str) {
        if let Some(theirs) = self.set_before(theirs, PATH, kind) {
            self.set(theirs, &format!("adapter.lora.{setting}"), list, "");
        }
    }

    /// Modules that train whole beside the adapters.
    pub(super) fn whole_modules(&mut self, theirs: String, value: &Value) {
        let names = names(value);
        let known: Option<Vec<&str>> = names.iter().map(|name| of(TABLES, name)).collect();
        match known {
            Some(tables) if !tables.is_empty() => {
                let list = json!(tables).to_string();
                self.set(theirs, "adapter.lora.modules_to_save", &list, "");
            }
            _ => {
                let words = "beside adapters, the embeddings and the head can train whole: adapter.lora.modules_to_save";
                self.line(KeyOutcome::NoEqual, theirs, "", words);
            }
        }
    }

    /// Whether all linear layers have adapters.
    pub(super) fn all_linear_layers(&mut self, theirs: String, value: &Value) {
        match value {
            Value::Bool(false) if self.names_targets => {
                self.line(KeyOutcome::Needless, theirs, "", "the modules are listed");
            }
            Value::Bool(true) => self.set(theirs, PATH, "all", ""),
            _ => self.line(KeyOutcome::NoEqual, theirs, "", TARGETS),
        }
    }

    /// Modules with adapters beside all linear layers, whichever of the two stands first.
    fn add_to_all_linear(&mut self, theirs: String, names: &[String]) {
        let others: Vec<&str> = names
            .iter()
            .map(String::as_str)
            .filter(|name| of(LAYERS, name).is_none())
            .collect();
        let words = match others.as_slice() {
            [] => String::new(),
            others => format!(
                "all linear layers have adapters, of which {} may be none; tables train whole: adapter.lora.modules_to_save",
                others.join(", ")
            ),
        };
        self.set(theirs, PATH, "all", &words);
    }
}
