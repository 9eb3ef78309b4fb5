//! Which modules have adapters, and which train whole beside them: PEFT's names as settings of the adapter.

use super::shared::TARGETS;
use super::{KeyOutcome, Reader, plain};
use crate::base::near::nearest;
use crate::nn::ModelConfig;
use crate::nn::adapter::{Lora, Targets as Sets};
use crate::nn::mixer::MixerConfig;
use serde_json::{Value, json};

const PATH: &str = "adapter.lora.targets";
const LIST: &str = "adapter.lora.custom";

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

/// A gated delta net's projections of its input, which are one kind here.
const DELTA_INPUTS: [&str; 4] = ["in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a"];

/// Sets of layers with a name here. Not `all`: a list has no layers of mixers unless it names them. A base without a gate of
/// attention has none in `attention_only`.
const SETS: &[(&str, &[&str])] = &[
    ("minimal", &["query", "value"]),
    (
        "attention_only",
        &["query", "key", "value", "attention_gate", "output"],
    ),
    ("attention_only", &["query", "key", "value", "output"]),
    ("ffn_only", &["gate", "up", "down"]),
];

/// The parameters of a block's experts.
const EXPERTS: [&str; 2] = ["experts.gate_up_proj", "experts.down_proj"];

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

/// What a base has beside attention and feed-forward blocks.
#[derive(Clone, Copy, PartialEq)]
enum Mixed {
    No,
    /// LFM2's short convolutions.
    ShortConv,
    /// Qwen 3.5's delta nets.
    GatedDelta,
    /// Granite 4's Mamba 2, and its feed-forward blocks.
    Mamba2,
}

/// What decides which layers have PEFT's names: of the base if it is known, else by names that only one kind has.
#[derive(Clone, Copy)]
struct Base {
    mixed: Mixed,
    /// Queries and their gates are one matrix on disk.
    has_gate: bool,
}

impl Base {
    fn of(model: Option<&ModelConfig>, names: &[String]) -> Base {
        let has = |name: &str| names.iter().any(|n| n == name);
        let Some(model) = model else {
            let mixed = match has("in_proj") {
                true => Mixed::ShortConv,
                false if DELTA_INPUTS.iter().any(|name| has(name)) => Mixed::GatedDelta,
                false => Mixed::No,
            };
            let has_gate = mixed == Mixed::GatedDelta;
            return Base { mixed, has_gate };
        };
        Base {
            mixed: match model.mixer {
                None => Mixed::No,
                Some(MixerConfig::ShortConv(_)) => Mixed::ShortConv,
                Some(MixerConfig::GatedDeltaNet(_)) => Mixed::GatedDelta,
                Some(MixerConfig::Mamba2(_)) => Mixed::Mamba2,
            },
            has_gate: model.attention_gate,
        }
    }

    /// The kinds of layers that have a name of PEFT's.
    fn kinds(self, name: &str) -> Option<&'static [&'static str]> {
        let kinds: &'static [&'static str] = match (name, self.mixed) {
            ("q_proj", _) if self.has_gate => &["query", "attention_gate"],
            ("in_proj", Mixed::ShortConv) => &["mixer_in"],
            ("out_proj", Mixed::ShortConv) => &["output", "mixer_out"],
            ("w1", Mixed::ShortConv) => &["gate"],
            ("w2", Mixed::ShortConv) => &["down"],
            ("w3", Mixed::ShortConv) => &["up"],
            ("out_proj", Mixed::GatedDelta | Mixed::Mamba2) => &["mixer_out"],
            ("in_proj", Mixed::Mamba2) => &["mixer_in"],
            ("input_linear", Mixed::Mamba2) => &["gate", "up"],
            ("output_linear", Mixed::Mamba2) => &["down"],
            (name, Mixed::GatedDelta) if DELTA_INPUTS.contains(&name) => &["mixer_in"],
            _ => return of(LAYERS, name),
        };
        Some(kinds)
    }
}

/// What PEFT's names of modules are here.
enum Targets {
    /// A set of layers with a name.
    Set(&'static str),
    /// Layers of ours.
    Custom(Vec<String>),
    /// Names, or parts of what is one layer here.
    Patterns(Vec<String>),
}

/// Our words for kinds of layers, in the order of a block.
fn words() -> Vec<String> {
    let all = Lora {
        targets: Sets::AllAndExperts,
        ..Lora::default()
    };
    all.chosen()
        .iter()
        .map(|kind| plain(&json!(kind)))
        .collect()
}

/// PEFT's names, and our words among them.
fn targets(names: &[String], base: Base) -> Targets {
    let ours = words();
    let kinds = |name: &String| match ours.contains(name) {
        true => Some(vec![name.clone()]),
        false => base
            .kinds(name)
            .map(|kinds| kinds.iter().map(ToString::to_string).collect()),
    };
    let known: Option<Vec<Vec<String>>> = names.iter().map(kinds).collect();
    let has = |name: &str| names.iter().any(|n| n == name);
    let inputs = DELTA_INPUTS.iter().filter(|name| has(name)).count();
    let Some(known) = known.filter(|_| [0, DELTA_INPUTS.len()].contains(&inputs)) else {
        let mut patterns = names.to_vec();
        if base.has_gate && has("q_proj") {
            patterns.push("q_gate_proj".into());
        }
        return Targets::Patterns(patterns);
    };
    let known = known.concat();
    let layers: Vec<String> = ours
        .into_iter()
        .filter(|word| known.contains(word))
        .collect();
    match SETS.iter().find(|(_, set)| layers == *set) {
        Some((word, _)) => Targets::Set(word),
        None => Targets::Custom(layers),
    }
}

/// The settings that a value with PEFT's names of modules, or a list of our words, means where it is not expected, as they are
/// written after `-s`.
pub(in crate::spec) fn meant(path: &str, value: &Value) -> Option<String> {
    if ![PATH, LIST].contains(&path) {
        return None;
    }
    let names = names(value);
    if names.iter().any(|name| is_all(name)) {
        return Some(format!("{PATH}=all"));
    }
    if names.is_empty() {
        return None;
    }
    let (ours, base) = (words(), Base::of(None, &names));
    let list = |layers: &[String]| format!("-s {PATH}=custom -s {LIST}=[{}]", layers.join(","));
    let (own, others): (Vec<&String>, Vec<&String>) =
        names.iter().partition(|name| ours.contains(name));
    if others.is_empty() {
        return Some(list(&names));
    }
    let (theirs, unknown): (Vec<&String>, Vec<&String>) = others
        .into_iter()
        .partition(|name| base.kinds(name).is_some());
    // A slip is answered with our word elsewhere; modules are patterns beside names of PEFT's only.
    let is_slip = |name: &&String| nearest(name, ours.iter().map(String::as_str)).is_some();
    let are_patterns = own.is_empty() && !theirs.is_empty() && !unknown.iter().any(is_slip);
    if !unknown.is_empty() && !are_patterns {
        return None;
    }
    Some(match targets(&names, base) {
        Targets::Set(word) => format!("{PATH}={word}"),
        Targets::Custom(layers) => list(&layers),
        Targets::Patterns(patterns) => {
            let patterns = patterns.join(",");
            format!("-s {PATH}=pattern -s adapter.lora.patterns=[{patterns}]")
        }
    })
}

/// Whether a list has the parameters of experts, both of them.
pub(super) fn are_of_experts(value: &Value) -> bool {
    let names = names(value);
    let is = |end: &str| names.iter().any(|name| ends_with(name, end));
    names.len() == 2 && EXPERTS.iter().all(|end| is(end))
}

fn ends_with(name: &str, end: &str) -> bool {
    let rest = name.strip_suffix(end);
    rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

impl Reader {
    /// The parameters of experts, beside modules that another key lists.
    pub(super) fn parameters(&mut self, theirs: String, value: &Value) {
        if names(value).is_empty() {
            return self.line(
                KeyOutcome::Needless,
                theirs,
                "",
                "no parameter has adapters",
            );
        }
        if !are_of_experts(value) {
            let words = "experts have adapters as a whole, gate_up_proj and down_proj: adapter.lora.targets=all_and_experts";
            return self.line(KeyOutcome::NoEqual, theirs, "", words);
        }
        if self.names_targets || self.all_linear {
            let words = "with the other modules";
            return self.line(
                KeyOutcome::Mapped,
                theirs,
                &format!("{PATH}: experts"),
                words,
            );
        }
        self.listed_targets(theirs, ("custom", "custom"), r#"["experts"]"#);
    }

    /// Every linear layer, and experts where the file has them.
    fn all(&self) -> &'static str {
        match self.of_experts {
            true => "all_and_experts",
            false => "all",
        }
    }

    /// The same layers, and experts where the file has them.
    fn with_experts(&self, found: Targets) -> Targets {
        if !self.of_experts {
            return found;
        }
        match found {
            Targets::Set(word) => {
                let set = SETS.iter().rev().find(|(of, _)| *of == word);
                let layers = set.map_or(&[][..], |(_, layers)| layers);
                let layers = layers.iter().chain(&["experts"]);
                Targets::Custom(layers.map(ToString::to_string).collect())
            }
            Targets::Custom(mut layers) => {
                layers.push("experts".into());
                Targets::Custom(layers)
            }
            Targets::Patterns(mut patterns) => {
                patterns.extend(EXPERTS.map(String::from));
                Targets::Patterns(patterns)
            }
        }
    }

    /// Modules with adapters.
    pub(super) fn targets(&mut self, theirs: String, value: &Value) {
        let names = names(value);
        if names.iter().any(|name| is_all(name)) {
            return self.set(theirs, PATH, self.all(), "");
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
        let base = Base::of(self.base.as_deref(), &names);
        match self.with_experts(targets(&names, base)) {
            Targets::Set(word) => self.set(theirs, PATH, word, ""),
            Targets::Custom(layers) => {
                self.listed_targets(theirs, ("custom", "custom"), &json!(layers).to_string());
            }
            Targets::Patterns(names) => {
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
            Value::Bool(true) => self.set(theirs, PATH, self.all(), ""),
            _ => self.line(KeyOutcome::NoEqual, theirs, "", TARGETS),
        }
    }

    /// Modules with adapters beside all linear layers, whichever of the two stands first.
    fn add_to_all_linear(&mut self, theirs: String, names: &[String]) {
        let base = Base::of(self.base.as_deref(), names);
        let others: Vec<&str> = names
            .iter()
            .map(String::as_str)
            .filter(|name| base.kinds(name).is_none())
            .collect();
        let words = match others.as_slice() {
            [] => String::new(),
            others => format!(
                "all linear layers have adapters, of which {} may be none; tables train whole: adapter.lora.modules_to_save",
                others.join(", ")
            ),
        };
        self.set(theirs, PATH, self.all(), &words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(path: &str, value: &Value) -> String {
        meant(path, value).unwrap_or_default()
    }

    #[test]
    fn lists_are_answered_with_settings_and_slips_are_not() {
        let custom = |list: &str| format!("-s {PATH}=custom -s {LIST}=[{list}]");
        for path in [PATH, LIST] {
            for (list, wanted) in [
                // Our own words, as they stand.
                (json!(["query", "mixer_in"]), custom("query,mixer_in")),
                (json!(words()), custom(&words().join(","))),
                (json!("attention_gate"), custom("attention_gate")),
                // PEFT's.
                (json!(["q_proj", "v_proj"]), format!("{PATH}=minimal")),
                (json!(["up_proj", "query"]), custom("query,up")),
                (
                    json!(["in_proj", "out_proj"]),
                    custom("output,mixer_in,mixer_out"),
                ),
                // A slip, alone and beside others.
                (json!(["quary"]), String::new()),
                (json!(["quary", "key"]), String::new()),
                (json!(["gates", "q_proj"]), String::new()),
                // Neither.
                (json!(["frobnicate"]), String::new()),
                (json!(["Wqkv", "query"]), String::new()),
                (json!([]), String::new()),
            ] {
                assert_eq!(hint(path, &list), wanted, "{path}={list}");
            }
        }
        assert_eq!(hint("adapter.lora.patterns", &json!(["q_proj"])), "");
    }
}
