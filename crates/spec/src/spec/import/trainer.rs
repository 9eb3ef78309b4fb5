//! Which of TRL's trainers a file is for. The script is given on a command line, and the file itself rarely names it: its
//! keys, custom names and the columns of the data are examined in turn, and a guess is reported as one.

use super::{KeyOutcome, Reader, plain};
use crate::data::source::{ReadContext, SourceConfig, rows};
use serde_json::{Map, Value};

/// Methods that a TRL file may be for, as `--method` takes them.
pub const METHODS: &[&str] = &[
    "sft", "dpo", "reward", "kto", "orpo", "cpo", "simpo", "grpo", "rloo", "ppo", "distill",
];

/// Keys of no other trainer but RLOO's.
const GRPO: &[&str] = &[
    "num_generations",
    "reward_funcs",
    "reward_weights",
    "num_iterations",
    "epsilon_high",
    "scale_rewards",
    "importance_sampling_level",
    "mask_truncated_completions",
];

/// Keys of preference trainers alone, DPO's first of all.
const PAIRS: &[&str] = &[
    "beta",
    "precompute_ref_log_probs",
    "label_smoothing",
    "loss_weights",
    "f_divergence_type",
    "rpo_alpha",
    "ld_alpha",
    "reference_free",
];

/// Keys of GKD's trainer and of its successor alone.
const DISTILL: &[&str] = &[
    "teacher_model_name_or_path",
    "teacher_model_revision",
    "lmbda",
    "seq_kd",
];

/// Keys of supervised fine-tuning alone.
const SFT: &[&str] = &[
    "packing",
    "eval_packing",
    "packing_strategy",
    "completion_only_loss",
    "assistant_only_loss",
    "dataset_text_field",
    "max_seq_length",
    "chat_template_path",
];

/// Values of `loss_type` and the trainer that has them.
const LOSSES: &[(&str, &str)] = &[
    ("nll", "sft"),
    ("dft", "sft"),
    ("kto", "kto"),
    ("apo_zero_unpaired", "kto"),
    ("simpo", "simpo"),
    ("grpo", "grpo"),
    ("bnpo", "grpo"),
    ("dapo", "grpo"),
    ("dr_grpo", "grpo"),
];

/// Words in names of files, folders and data sets.
const WORDS: &[(&str, &str)] = &[
    ("sft", "sft"),
    ("dpo", "dpo"),
    ("kto", "kto"),
    ("orpo", "orpo"),
    ("cpo", "cpo"),
    ("simpo", "simpo"),
    ("grpo", "grpo"),
    ("rloo", "rloo"),
    ("ppo", "ppo"),
    ("gkd", "distill"),
    ("distill", "distill"),
    ("distillation", "distill"),
    ("reward", "reward"),
    ("rm", "reward"),
    ("binarized", "dpo"),
    ("preference", "dpo"),
    ("preferences", "dpo"),
    ("prefs", "dpo"),
    ("rlhf", "dpo"),
];

/// Keys with names that people choose.
const NAMES: &[&str] = &["output_dir", "run_name", "hub_model_id", "dataset_name"];

/// What identifies the trainer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum By {
    /// The command line.
    Said,
    /// Keys that no other trainer has.
    Keys,
    /// A name of the user's.
    Name(String),
    /// The columns of the data.
    Columns(&'static str),
    Nothing,
}

/// The trainer of a file called `name`, and how that is known.
pub(super) fn trainer(
    name: &str,
    map: &Map<String, Value>,
    said: Option<&str>,
    columns: &[String],
) -> (String, By) {
    if let Some(method) = said {
        return (method.to_string(), By::Said);
    }
    let has = |key: &&str| super::defaults::has_key(map, key);
    let any = |keys: &[&str]| keys.iter().any(has);
    let word = named(name, map);
    let is_named = |methods: &[&str]| {
        let found = word.as_ref().filter(|(method, _)| methods.contains(method));
        found.map(|(method, name)| ((*method).to_string(), By::Name(name.clone())))
    };
    let loss = map.get("loss_type").map(plain);
    let loss = LOSSES
        .iter()
        .find(|(loss_type, _)| loss.as_deref() == Some(loss_type));
    let of_rows = of_columns(columns);
    let keys = |method: &str| (method.to_string(), By::Keys);
    match () {
        () if any(DISTILL) => keys("distill"),
        // Its trainer once had PPO's epochs too.
        () if any(&["rloo_k", "normalize_advantages"]) => keys("rloo"),
        () if any(&["num_ppo_epochs", "cliprange_value", "vf_coef"]) => keys("ppo"),
        () if any(GRPO) => is_named(&["rloo"]).unwrap_or_else(|| keys("grpo")),
        () if any(&["desirable_weight", "undesirable_weight"]) => keys("kto"),
        () if any(&["center_rewards_coefficient"]) => keys("reward"),
        () if any(&["simpo_gamma"]) => keys("simpo"),
        () if any(&["cpo_alpha"]) => keys("cpo"),
        () if let Some((_, method)) = loss => keys(method),
        // β is a key of all of them.
        () if any(PAIRS) || map.get("loss_type").is_some_and(|loss| !loss.is_null()) => {
            let other = ["kto", "orpo", "cpo", "simpo", "grpo", "rloo"];
            match (is_named(&other), of_rows) {
                (Some(named), _) => named,
                (None, Some(("kto", rows))) => ("kto".into(), By::Columns(rows)),
                _ => keys("dpo"),
            }
        }
        () if any(SFT) => keys("sft"),
        () => match (is_named(METHODS), of_rows) {
            (Some(named), _) => named,
            (None, Some((method, rows))) => (method.into(), By::Columns(rows)),
            (None, None) => ("sft".into(), By::Nothing),
        },
    }
}

/// The method that a name of the user's says, and the name.
fn named(file: &str, map: &Map<String, Value>) -> Option<(&'static str, String)> {
    let values = NAMES.iter().filter_map(|key| map.get(*key)?.as_str());
    std::iter::once(file).chain(values).find_map(|name| {
        let lower = name.to_lowercase();
        let mut parts = lower.split(|c: char| !c.is_ascii_alphanumeric());
        let known = |part: &str| WORDS.iter().find(|(word, _)| *word == part);
        let (_, method) = parts.find_map(known)?;
        Some((*method, name.to_string()))
    })
}

/// The method for rows with these columns, and what they are.
fn of_columns(columns: &[String]) -> Option<(&'static str, &'static str)> {
    let all = |names: &[&str]| names.iter().all(|name| columns.iter().any(|c| c == name));
    match () {
        () if all(&["chosen", "rejected"]) => Some(("dpo", "pairs of chosen and rejected answers")),
        () if all(&["completion", "label"]) => Some(("kto", "labelled answers")),
        () if all(&["messages"]) || all(&["text"]) || all(&["prompt", "completion"]) => {
            Some(("sft", "answers or texts to learn"))
        }
        () => None,
    }
}

/// The columns of the data that a TRL file names, where they are on this disk; none otherwise.
pub fn columns_of(text: &str) -> Vec<String> {
    let Ok(Value::Object(map)) = crate::spec::yaml::parse(text) else {
        return Vec::new();
    };
    let first = || map.get("datasets")?.as_array()?.first()?.get("path");
    let name = map
        .get("dataset_name")
        .or_else(first)
        .and_then(Value::as_str);
    let Some(name) = name.filter(|name| std::path::Path::new(name).exists()) else {
        return Vec::new();
    };
    let read = rows(&SourceConfig::path(name), &ReadContext::default());
    let row = read.ok().and_then(|mut rows| rows.next()?.ok());
    row.map_or_else(Vec::new, |row| row.fields.keys().cloned().collect())
}

impl Reader {
    /// Takes a method for TRL's trainer, and says how sure that is.
    pub(super) fn trainer(&mut self, method: &str, by: &By) {
        let of = "no key of the file names its TRL trainer";
        let choose = "llmtui import --method dpo, reward, kto, sft … says it";
        let (theirs, words) = match by {
            By::Said => return self.method_line(format!("(--method {method})"), method),
            By::Keys => return self.method(method),
            By::Name(name) => (
                format!(
                    "(the name {} says {method})",
                    super::brief(&name.as_str().into())
                ),
                format!("{of}: {choose}"),
            ),
            By::Columns(rows) => (
                format!("(the rows mean {method})"),
                format!("{of}, and its rows are {rows}: {choose}"),
            ),
            By::Nothing => (
                "(no trainer named)".to_string(),
                format!("{of}, and sft is a guess: {choose}"),
            ),
        };
        self.set(theirs, "method", method, &words);
        // What the schema lacks is reported as that alone.
        let taken = self
            .lines
            .last()
            .is_some_and(|line| line.outcome == KeyOutcome::Differs);
        self.doubt = taken.then(|| format!("{method} is taken for the method; {words}"));
    }
}
