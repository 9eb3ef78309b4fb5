//! Translates metric names of other programs into ours: transformers, TRL, torchtitan, nanochat, nanoGPT, Lightning. An
//! unknown name is kept. The same table has the names of transformers for ours.

use crate::base::text::one_line;
use crate::metrics;
use crate::wire::id::MFU;
use crate::wire::{ChartPlace, Direction, MetricInfo, id};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

/// Longest name that is taken, in bytes.
const MAX_NAME: usize = 128;

/// Ours, that of transformers and TRL in `trainer_state.json` where it is another, and names that mean the same in other
/// programs, in lower case.
const SAME: &[(&str, Option<&str>, &[&str])] = &[
    (
        id::TRAIN_LOSS,
        Some("loss"),
        &[
            "train loss",
            "train_loss",
            "training_loss",
            // The tables that transformers shows in a notebook.
            "training loss",
            "loss/train",
            "loss_train",
            // litgpt
            "loss train",
            "lm_loss",
            "lm loss",
            "ce_loss",
            "loss_metrics/global_avg_loss",
            "train/loss_step",
            "train_loss_step",
        ],
    ),
    (
        id::VAL_LOSS,
        Some("eval_loss"),
        &[
            "val loss",
            "val_loss",
            "valid_loss",
            "validation_loss",
            "validation loss",
            "valid loss",
            "loss/val",
            "loss/valid",
            "loss/validation",
            "loss/eval",
            "eval loss",
            "validation_metrics/loss",
            // Megatron-LM reports it of its evaluations alone.
            "lm loss value",
        ],
    ),
    (
        id::GRAD_NORM,
        None,
        &["grad norm", "gradient_norm", "gnorm", "grad/norm", "norm"],
    ),
    (
        "lr",
        Some("learning_rate"),
        &["learning rate", "lr-adamw", "optimizer/lr"],
    ),
    (
        id::TOK_PER_SEC,
        None,
        &[
            "tok/sec",
            "tok/s",
            "tokens/s",
            "tokens/sec",
            "tps",
            "tokens_per_second",
            "tokens_per_sec",
            "throughput(tps)",
            // transformers with `include_num_input_tokens_seen`: since the start of this session.
            "train_tokens_per_second",
        ],
    ),
    (id::VAL_BPB, None, &["validation bpb", "val bpb"]),
    (id::VAL_PPL, None, &["lm loss ppl"]),
    // Passes over the data so far, whole ones alone where a program counts so: Lightning's begins at 0.
    (id::EPOCHS, Some("epoch"), &[]),
    // Of answers to held-out prompts: not readings on held-out targets, as `eval_x` otherwise is.
    (id::EVAL_REWARD, Some("eval_reward"), &[]),
    (id::PASS_AT_1, Some("eval_pass@1"), &[]),
    (MFU, None, &[]),
];

/// [`MFU`] in percent, by its name: torchtitan's trackers, nanochat's lines.
const MFU_PERCENT: &[&str] = &["mfu(%)", "bf16_mfu"];

/// Times of a step and their milliseconds.
const TIMES: &[(&str, f64)] = &[
    (id::STEP_MS, 1.0),
    ("dt(ms)", 1.0),
    ("time(ms)", 1.0),
    ("step_time_ms", 1.0),
    ("dt(s)", 1e3),
    ("step_time", 1e3),
    ("time(s)", 1e3),
    ("time_metrics/end_to_end(s)", 1e3),
];

/// Names of the axis and of the clock, best first.
const STEP: &[&str] = &[
    "train/global_step",
    "global_step",
    "step",
    "steps",
    "current_steps",
    "iter",
    "it",
    "iteration",
    "iter_num",
    "trainer/global_step",
    "_step",
];
const TIME: &[&str] = &[
    "time",
    "timestamp",
    "_timestamp",
    "ts",
    "wall_time",
    // TensorBoard's export of one curve.
    "wall time",
];
/// Of the whole training so far: transformers reports them at its end, and with every record where it counts tokens.
const SO_FAR: &[&str] = &[
    "total_flos",
    "train_runtime",
    "train_samples_per_second",
    "train_steps_per_second",
];
const TOKENS: &[&str] = &[
    NUM_TOKENS,
    "num_input_tokens_seen",
    "tokens",
    "total_tokens",
    "n_tokens_seen",
    // mlx-lm
    "trained tokens",
];
/// What stands before the name of a metric on held-out data, up to a `/`, a `_` or a space.
const HELD_OUT: &[&str] = &[
    "validation_metrics",
    "validation",
    "valid",
    "val",
    "eval",
    "dev",
];
/// How fast an evaluation was: ends of names, and whole ones.
const EVALUATION_SPEED: &[&str] = &[
    "runtime",
    "_per_second",
    "steps_per_second",
    "model_preparation_time",
];
const EVALUATION_TIME: &[&str] = &["time", "took"];

/// What a log calls otherwise: the user's own words on it.
#[derive(Debug, Clone, Default)]
pub struct Mapping {
    /// Theirs → ours.
    names: BTreeMap<String, String>,
    /// Names that the log has, as far as it was read; shared by all clones.
    seen: Arc<Mutex<BTreeSet<String>>>,
}

/// Most names that are noted.
const MAX_SEEN: usize = 1000;

/// An invalid mapping.
#[derive(Debug, thiserror::Error)]
#[error("--map {0}: use the form OURS=THEIRS, such as val/loss=dev_nll or step=it")]
pub struct MappingError(String);

/// What a value of a record is.
#[derive(Debug, Clone, PartialEq)]
pub enum Role {
    Step,
    Time,
    Tokens,
    /// Where it stands, and what one unit of it is worth there.
    Metric(String, f64),
    /// Says nothing of the training.
    Nothing,
}

impl Mapping {
    /// From words of the form `OURS=THEIRS`.
    ///
    /// # Errors
    /// A word has another form.
    pub fn parse(words: &[String]) -> Result<Mapping, MappingError> {
        let mut names = BTreeMap::new();
        for word in words {
            match word.split_once('=') {
                Some((ours, theirs)) if !ours.is_empty() && !theirs.is_empty() => {
                    names.insert(theirs.to_string(), ours.to_string());
                }
                _ => return Err(MappingError(word.clone())),
            }
        }
        Ok(Mapping {
            names,
            ..Mapping::default()
        })
    }

    /// Notes names that the log has.
    pub fn note<'a>(&self, names: impl Iterator<Item = &'a str>) {
        if self.names.is_empty() {
            return;
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for name in names {
            if !seen.contains(name) && (seen.len() < MAX_SEEN || self.names.contains_key(name)) {
                seen.insert(name.to_string());
            }
        }
    }

    /// The first mapped name that the log does not have, and those that it has; nothing while nothing was read.
    pub fn missing(&self) -> Option<String> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let (theirs, ours) = self.names.iter().find(|(name, _)| !seen.contains(*name))?;
        let list: Vec<&str> = seen.iter().map(String::as_str).take(20).collect();
        let more = if seen.len() > list.len() { ", …" } else { "" };
        (!list.is_empty()).then(|| {
            one_line(&format!(
                "--map {ours}={theirs}: the log has no column {theirs}; it has {}{more}",
                list.join(", ")
            ))
        })
    }

    /// Whether a record of these names has an axis.
    pub fn has_step<'a>(&self, mut names: impl Iterator<Item = &'a str>) -> bool {
        names.any(|name| self.role(name) == Role::Step)
    }

    /// The best name of the axis among those of a record: where several count, the others are left alone.
    pub fn step<'a>(&self, values: &'a [(String, f64)]) -> Option<&'a (String, f64)> {
        let mapped = values
            .iter()
            .find(|(name, _)| self.names.get(name).is_some_and(|to| to == "step"));
        mapped.or_else(|| {
            STEP.iter()
                .find_map(|step| values.iter().find(|(name, _)| plain(name) == *step))
        })
    }

    /// Whether the value of this name has a place among any number of others: what is known here, or was named by the user.
    pub fn is_always_reported(&self, name: &str) -> bool {
        match self.role(name) {
            Role::Metric(id, _) => self.is_mapped(name) || is_known(&id),
            Role::Step | Role::Time | Role::Tokens => true,
            Role::Nothing => false,
        }
    }

    /// Whether the user named it.
    pub fn is_mapped(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// What a value of this name is.
    pub fn role(&self, name: &str) -> Role {
        if name.len() > MAX_NAME || name.is_empty() {
            return Role::Nothing;
        }
        let name = match self.names.get(name).map(String::as_str) {
            Some("step") => return Role::Step,
            Some("time") => return Role::Time,
            Some("tokens") => return Role::Tokens,
            Some(ours) => ours,
            None => name,
        };
        known(name)
    }
}

/// As names are compared.
fn plain(name: &str) -> String {
    name.trim().to_lowercase()
}

fn known(name: &str) -> Role {
    let lower = plain(name);
    let is = |list: &[&str]| list.contains(&lower.as_str());
    if is(STEP) {
        return Role::Step;
    }
    if is(TIME) {
        return Role::Time;
    }
    if lower.starts_with('_') {
        return Role::Nothing;
    }
    if let Some(role) = listed(&lower) {
        return role;
    }
    // transformers prefixes what it hands to trackers, and everything of an evaluation.
    if let Some(rest) = lower.strip_prefix("train/") {
        // The mean over the whole training, reported at its end.
        if rest == "train_loss" {
            return Role::Nothing;
        }
        return listed(rest).unwrap_or_else(|| Role::Metric(rest.into(), 1.0));
    }
    held_out(&lower).unwrap_or_else(|| Role::Metric(name.trim().to_string(), 1.0))
}

/// What the tables above know of a name in lower case, apart from the axis and the clock.
fn listed(name: &str) -> Option<Role> {
    if TOKENS.contains(&name) {
        return Some(Role::Tokens);
    }
    if SO_FAR.contains(&name) {
        return Some(Role::Nothing);
    }
    if MFU_PERCENT.contains(&name) {
        return Some(Role::Metric(MFU.into(), 0.01));
    }
    if let Some((_, factor)) = TIMES.iter().find(|(time, _)| *time == name) {
        return Some(Role::Metric(id::STEP_MS.into(), *factor));
    }
    let same = SAME
        .iter()
        .find(|(id, theirs, names)| *id == name || *theirs == Some(name) || names.contains(&name));
    same.map(|(id, ..)| Role::Metric((*id).into(), 1.0))
}

/// A metric on held-out data, by what stands before its name in lower case.
fn held_out(name: &str) -> Option<Role> {
    let rest = HELD_OUT
        .iter()
        .find_map(|set| name.strip_prefix(set)?.strip_prefix(['/', '_', ' ']))?;
    let is_speed =
        EVALUATION_TIME.contains(&rest) || EVALUATION_SPEED.iter().any(|end| rest.ends_with(end));
    if is_speed {
        return Some(Role::Nothing);
    }
    let rest = match listed(rest) {
        // Tokens of the training so far, and how fast the evaluation was.
        Some(Role::Tokens | Role::Nothing) => return Some(Role::Nothing),
        Some(Role::Metric(id, _)) => match id.as_str() {
            id::STEP_MS | id::TOK_PER_SEC => return Some(Role::Nothing),
            id::TRAIN_LOSS => "loss",
            _ => rest,
        },
        _ => rest,
    };
    Some(Role::Metric(format!("{}{rest}", id::VAL), 1.0))
}

/// Whether a metric is one of this program's own, in training or on held-out data.
pub fn is_known(id: &str) -> bool {
    metrics::find(id.strip_prefix(id::VAL).unwrap_or(id)).is_some() || metrics::find(id).is_some()
}

/// Whether a reading is of held-out data.
pub fn is_held_out(id: &str) -> bool {
    id.starts_with(id::VAL) || id.starts_with(id::EVAL)
}

/// The tokens consumed so far, as TRL calls them.
pub const NUM_TOKENS: &str = "num_tokens";

/// What transformers and TRL call a metric in `trainer_state.json`. Those of an evaluation begin with `eval_`; the loss on a set
/// of `eval.extra` is that of a named set.
pub fn in_transformers(id: &str, held_out: bool) -> String {
    if let Some((_, Some(theirs), _)) = SAME.iter().find(|(ours, ..)| *ours == id) {
        return (*theirs).into();
    }
    if !held_out || id.starts_with("eval_") {
        return id.into();
    }
    match id.strip_prefix(id::EXTRA) {
        Some(set) => format!("eval_{set}_loss"),
        None => {
            let of = [id::VAL, id::EVAL]
                .iter()
                .find_map(|kind| id.strip_prefix(kind));
            format!("eval_{}", of.unwrap_or(id))
        }
    }
}

/// Whether a record is about the whole training, at its end: transformers' `train_loss` beside a `train_runtime`. A trainer that
/// counts tokens has the time in every record, and only the last one has the mean of all losses. A tracker that takes each number
/// alone is known by what nothing but the last one has.
pub fn is_summary(values: &[(String, f64)]) -> bool {
    let plain = |name: &str, wanted: &str| name.strip_prefix("train/").unwrap_or(name) == wanted;
    let has = |wanted: &str| values.iter().any(|(name, _)| plain(name, wanted));
    let whole = has("train_runtime") && has("train_loss") && !has("loss");
    whole || values.iter().any(|(name, _)| name == "train/total_flos")
}

/// The declaration of a metric: as it is known here, or as far as its name indicates.
pub fn info(id: &str) -> MetricInfo {
    let base = id.strip_prefix(id::VAL).and_then(metrics::find);
    if let Some(known) = metrics::find(id) {
        return known.info();
    }
    if let Some(base) = base {
        return base.validation_info();
    }
    let lower = id.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    let is_surrogate = id.strip_prefix(id::VAL).unwrap_or(id) == id::POLICY_LOSS;
    let direction = if is_surrogate {
        Direction::Neutral
    } else if has(&["loss", "ppl", "perplexity", "error", "bpb", "kl"]) {
        Direction::Lower
    } else if has(&["acc", "reward", "score", "pass", "margin", "mfu"]) {
        Direction::Higher
    } else {
        Direction::Neutral
    };
    MetricInfo {
        id: id.into(),
        title: id.into(),
        direction,
        source: "as its program logs it".into(),
        place: ChartPlace::Dashboard,
        ..MetricInfo::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> String {
        match Mapping::default().role(name) {
            Role::Metric(id, _) => id,
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn names_of_known_programs_come_together() {
        for name in [
            "loss",
            "train/loss",
            "Loss/train",
            "loss_metrics/global_avg_loss",
            "train_loss",
        ] {
            assert_eq!(id(name), "train/loss", "{name}");
        }
        for name in [
            "eval_loss",
            "eval/loss",
            "val_loss",
            "Loss/val",
            "val/loss",
            "valid/loss",
            "dev/loss",
            "dev_loss",
            "lm loss value",
        ] {
            assert_eq!(id(name), "val/loss", "{name}");
        }
        for name in [
            "valid ppl",
            "valid_ppl",
            "lm loss PPL",
            "validation_metrics/ppl",
        ] {
            assert_eq!(id(name), "val/ppl", "{name}");
        }
        assert_eq!([id("loss train"), id("loss")], ["train/loss"; 2]);
        assert_eq!([id("Tokens/sec"), id("tps")], ["tok_per_sec"; 2]);
        assert_eq!(id("train/learning_rate"), "lr");
        for name in ["epoch", "train/epoch", "Epoch"] {
            assert_eq!(id(name), "epochs", "{name}");
        }
        assert_eq!(id("train/rewards/chosen"), "rewards/chosen");
        assert_eq!(id("eval_rewards/accuracies"), "val/rewards/accuracies");
        assert_eq!(id("train/global_step"), "Step");
        assert_eq!(id("num_tokens"), "Tokens");
        for name in [
            "eval_runtime",
            "eval_samples_per_second",
            "_runtime",
            "train/train_loss",
            "",
            "eval_num_tokens",
            "eval/step_time",
            "validation_metrics/throughput(tps)",
            "Val took",
        ] {
            assert_eq!(id(name), "Nothing", "{name}");
        }
        assert_eq!(id("MyMetric"), "MyMetric");
        assert_eq!([id("train/mfu"), id("bf16_mfu")], ["mfu", "mfu"]);
        assert_eq!(known("mfu(%)"), Role::Metric("mfu".into(), 0.01));
        assert_eq!(known("bf16_mfu"), Role::Metric("mfu".into(), 0.01));
        // Behind a tracker's prefix the same tables count.
        assert_eq!(known("train/mfu(%)"), known("mfu(%)"));
        assert_eq!(known("train/step_time"), known("step_time"));
        assert_eq!(id("train/num_input_tokens_seen"), "Tokens");
        assert_eq!(
            known("time_metrics/end_to_end(s)"),
            Role::Metric("step_ms".into(), 1e3)
        );
    }

    #[test]
    fn a_summary_is_told_from_a_record_with_the_time_so_far() {
        let is = |names: &[&str]| {
            let values: Vec<_> = names.iter().map(|name| ((*name).into(), 1.0)).collect();
            is_summary(&values)
        };
        // Every record of a trainer that counts tokens, and its evaluations.
        assert!(!is(&["loss", "train_runtime", "train_tokens_per_second"]));
        assert!(!is(&["eval_loss", "train_runtime"]));
        assert!(!is(&["train/loss", "train/train_runtime"]) && !is(&["train/train_runtime"]));
        assert!(is(&["train_runtime", "train_loss", "epoch"]));
        assert!(is(&["train/train_runtime", "train/train_loss"]) && is(&["train/total_flos"]));
        // Its other values are not metrics, apart from the speed.
        assert_eq!(
            [id("train_runtime"), id("train/train_runtime")],
            ["Nothing"; 2]
        );
        assert_eq!(id("train/train_tokens_per_second"), "tok_per_sec");
    }

    #[test]
    fn tables_of_notebooks_and_exports_are_known() {
        assert_eq!(
            [id("Training Loss"), id("Wall time")],
            ["train/loss", "Time"]
        );
    }

    #[test]
    fn what_is_called_as_transformers_does_is_read_as_ours() {
        for (ours, held_out, theirs) in [
            ("train/loss", false, "loss"),
            ("val/loss", true, "eval_loss"),
            ("lr", false, "learning_rate"),
            ("grad_norm", false, "grad_norm"),
            ("epochs", false, "epoch"),
            ("val/ppl", true, "eval_ppl"),
            ("val/rewards/accuracies", true, "eval_rewards/accuracies"),
            ("eval/reward", true, "eval_reward"),
            ("eval/pass@1", true, "eval_pass@1"),
            ("completions/mean_length", false, "completions/mean_length"),
            // PPO's on its own rollouts: TRL has the same name.
            ("val/var_explained", false, "val/var_explained"),
        ] {
            assert_eq!(in_transformers(ours, held_out), theirs);
            assert_eq!(id(theirs), ours);
        }
        assert_eq!(in_transformers("extra/code", true), "eval_code_loss");
        assert_eq!(in_transformers("eval/hellaswag", true), "eval_hellaswag");
    }

    #[test]
    fn every_name_of_a_step_gives_its_value() {
        for name in ["step", "Step", "iter", "Iteration", "it", " IT "] {
            assert_eq!(known(name), Role::Step, "{name}");
            let values = [("loss".to_string(), 3.0), (name.to_string(), 7.0)];
            let found = Mapping::default();
            assert_eq!(found.step(&values).map(|(_, x)| *x), Some(7.0), "{name}");
        }
    }

    #[test]
    fn a_mapping_comes_before_what_is_known() {
        let mapping = Mapping::parse(&["step=it".into(), "val/loss=dev".into()]).unwrap();
        assert_eq!(mapping.role("it"), Role::Step);
        assert_eq!(mapping.role("dev"), Role::Metric("val/loss".into(), 1.0));
        let values = [("step".to_string(), 1.0), ("it".to_string(), 2.0)];
        assert_eq!(mapping.step(&values).unwrap().1, 2.0);
        assert!(Mapping::parse(&["loss".into()]).is_err());
        assert_eq!(mapping.missing(), None, "nothing was read yet");
        mapping.clone().note(["it", "nll"].into_iter());
        let said = mapping.missing().unwrap();
        assert!(
            said.contains("--map val/loss=dev") && said.contains("it, nll"),
            "{said}"
        );
        mapping.note(["dev"].into_iter());
        assert_eq!(mapping.missing(), None);
    }

    #[test]
    fn what_is_known_keeps_its_declaration() {
        assert_eq!(info("grad_norm").label, "grad norm");
        assert_eq!(info("val/entropy").title, "Validation: token entropy");
        assert_eq!(info("rewards/margins").direction, Direction::Higher);
    }
}
