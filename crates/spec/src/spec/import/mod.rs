//! Configs of other tools: each dialect is a table of its keys and what becomes of them. Keys without an equivalent or
//! with a different meaning are reported; nothing is dropped silently.

mod axolotl;
mod batch;
mod block;
mod cadence;
mod data;
mod dataset_info;
mod defaults;
mod detect;
pub(in crate::spec) mod equivalent;
mod freeze;
mod layout;
mod llama_factory;
mod losses;
mod mixer;
mod report;
mod schedule;
mod secret;
mod set;
pub(in crate::spec) mod shared;
mod table;
pub(in crate::spec) mod targets;
mod tool;
mod trainer;
mod trl;
mod twice;
mod wsd;

pub use dataset_info::DatasetInfo;
pub use detect::tool_of;
pub use freeze::{StartModel, start_model};
pub use report::{ImportError, Imported, KeyOutcome, Known, Line};
pub use tool::Dialect;
pub use trainer::{METHODS, columns_of};

use super::draft::{Draft, shown};
use super::issue::Issue;
use super::schema::{Kind, root};
use super::yaml;
use crate::methods::MethodConfig;
use data::Sets;
use detect::{detect, foreign};
use mixer::Mixer;
use secret::brief;
use serde_json::{Map, Value};
use shared::{ADAPTER, EIGHT_BITS, HELD_OUT, NOTHING_HELD_OUT, STEPS, UNQUANTIZED, WINDOWS};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use table::{Phase, Row, To, row};

/// Reads another tool's YAML. `name` becomes the run's name if the file has none.
///
/// # Errors
/// Not YAML, not a map, or no known tool's keys.
pub fn import(name: &str, text: &str, from: Option<Dialect>) -> Result<Imported, ImportError> {
    let known = Known {
        from,
        ..Known::default()
    };
    import_with(name, text, &known)
}

/// The same, with what else is known.
///
/// # Errors
/// As [`import`].
pub fn import_with(name: &str, text: &str, known: &Known<'_>) -> Result<Imported, ImportError> {
    let Value::Object(map) = yaml::parse(text)? else {
        return Err(ImportError::NoMap);
    };
    let keys: Vec<&str> = map.keys().map(String::as_str).collect();
    let dialect = match known.from {
        Some(dialect) => dialect,
        None => match foreign(&map) {
            Some(tool) => return Err(ImportError::Foreign { tool }),
            None => detect(&keys).ok_or(ImportError::NoDialect)?,
        },
    };
    let inlined = block::inlined(dialect, map);
    let map = inlined.map;
    let mut reader = Reader::of(dialect, name, &map, known);
    reader.of_block(inlined.keys, inlined.hidden);
    // Choices first: settings below them belong to the selected member.
    dialect.tool().method(&mut reader, name, &map, known);
    reader.default_choices(&map);
    reader.keys(&map, Phase::Method..=Phase::Setting);
    reader.default_rate(&map);
    reader.keys(&map, Phase::Rate..=Phase::Rate);
    reader.default_settings(&map);
    reader.keys(&map, Phase::Batch..=Phase::Batch);
    reader.judged_batch();
    reader.counted_rollouts();
    reader.write_sources();
    reader.fold_what_is_off();
    reader.lines.sort_by_key(|line| line.outcome);
    Ok(Imported {
        dialect,
        lines: reader.lines,
        draft: reader.draft,
        doubt: reader.doubt,
    })
}

struct Reader {
    dialect: Dialect,
    draft: Draft,
    lines: Vec<Line>,
    /// Datasets so far, each the map of a source.
    sources: Vec<Map<String, Value>>,
    /// Settings of the one dataset from keys of their own.
    parts: Vec<(String, &'static str, String)>,
    /// What is said of all sets of `dataset_mixer`.
    mixer: Mixer,
    doubt: Option<String>,
    /// What the losses of a list are multiplied by.
    loss_weights: Vec<f64>,
    max_steps: Option<u64>,
    /// Passes over the data, of the file or by default.
    epochs: f64,
    /// Intervals that are not in steps, whatever steps the file has for them.
    without_steps: Vec<&'static str>,
    /// The tool trains adapters, not all weights.
    adapts: bool,
    /// The model that it starts from, if it is on this disk.
    base: Option<StartModel>,
    /// What it does not train of all weights, where it trains a part.
    frozen: Option<freeze::Frozen>,
    /// The file lists the modules with adapters.
    names_targets: bool,
    /// The file lists the parameters of experts as having adapters.
    of_experts: bool,
    /// The file gives a polynomial's power.
    says_power: bool,
    /// The file says how several datasets become one.
    says_mix: bool,
    /// All linear layers have adapters, besides those that are listed.
    all_linear: bool,
    /// The key of the warm-up that counts.
    warm_up: &'static str,
    /// The optimizer is schedule-free.
    schedule_free: bool,
    /// LLaMA-Factory's datasets, and the folder of their files.
    info: Option<(PathBuf, Map<String, Value>)>,
    /// Keys that stand in Axolotl's block `trl`.
    block: Vec<String>,
    /// How often Hugging Face's trainer evaluates where a file says steps and not how many.
    logging_steps: Option<Value>,
    /// The file says how many steps lie between two evaluations.
    says_eval_steps: bool,
}

impl Reader {
    fn of(dialect: Dialect, name: &str, map: &Map<String, Value>, known: &Known<'_>) -> Reader {
        Reader {
            dialect,
            draft: Draft::blank(name),
            lines: Vec::new(),
            sources: Vec::new(),
            parts: Vec::new(),
            mixer: Mixer::of(map),
            doubt: None,
            loss_weights: losses::weights(map),
            max_steps: map
                .get("max_steps")
                .and_then(Value::as_u64)
                .filter(|n| *n > 0),
            epochs: defaults::epochs_of(dialect.tool(), map),
            without_steps: cadence::without_steps(map),
            adapts: dialect.tool().adapts(map),
            base: known.model.clone(),
            frozen: dialect.tool().frozen(map, known.model.as_deref()),
            names_targets: defaults::has_key(map, "lora_target_modules"),
            of_experts: map
                .get("lora_target_parameters")
                .is_some_and(targets::are_of_experts),
            says_power: false,
            says_mix: defaults::has_key(map, "mix_strategy"),
            all_linear: map.get("lora_target_linear") == Some(&Value::Bool(true)),
            warm_up: schedule::warm_up_of(map),
            schedule_free: ["optim", "optimizer"]
                .iter()
                .filter_map(|key| map.get(*key))
                .any(|word| word == "schedule_free_adamw"),
            info: known.info.map(|info| (info.folder.clone(), info.entries())),
            block: Vec::new(),
            logging_steps: cadence::evaluates_as_it_logs(map),
            says_eval_steps: cadence::has_steps(map, "eval_steps"),
        }
    }

    fn row(&self, key: &str) -> Option<&'static Row> {
        match self.dialect.tool().block().and_then(Dialect::by_id) {
            Some(of) if self.block.iter().any(|inner| inner == key) => of.own_row(key),
            _ => self.dialect.row(key),
        }
    }

    /// The keys of some phases in their order, those of one phase as they stand in the file.
    fn keys(&mut self, map: &Map<String, Value>, phases: RangeInclusive<Phase>) {
        let phase = |key: &str| {
            let row = self.row(key);
            row.map_or(Phase::Setting, |row| row.to.phase())
        };
        let mut entries: Vec<_> = map
            .iter()
            .filter(|(key, _)| phases.contains(&phase(key)))
            .collect();
        entries.sort_by_key(|(key, _)| (phase(key), twice::rank(key)));
        for (key, value) in entries {
            self.key(key, value);
        }
    }

    fn key(&mut self, key: &str, value: &Value) {
        let theirs = format!("{}: {}", self.shown_key(key), secret::of_key(key, value));
        let Some(row) = self.row(key) else {
            let words = "llmtui does not know this key: check it by hand";
            return self.line(KeyOutcome::Unknown, theirs, "", words);
        };
        if let Some(words) = self.redundant_reason(row, value) {
            return self.line(KeyOutcome::Needless, theirs, "", words);
        }
        match row.to {
            To::Key(path) => self.set(theirs, path, &plain(value), ""),
            To::OneOf(paths) => {
                let has = |path: &&&str| self.draft.resolve_wildcard(path).is_some();
                let path = paths.iter().find(has).unwrap_or(&paths[0]);
                self.set(theirs, path, &plain(value), "");
            }
            To::WarmUp => self.warm_up(key, theirs, value),
            To::Kept => self.kept(theirs, value),
            To::Near(path, words) => self.set(theirs, path, &plain(value), words),
            To::Limit(_, words) if value.is_null() => {
                self.line(KeyOutcome::NoEqual, theirs, "", words);
            }
            To::Limit(path, _) => self.set(theirs, path, &plain(value), WINDOWS),
            To::Word(path, words) => self.word(theirs, path, words, value),
            To::Choice(path, words) => {
                let said = plain(value);
                let ours = words.iter().find(|(theirs, _)| *theirs == said);
                self.set(theirs, path, ours.map_or(&said, |(_, ours)| ours), "");
            }
            To::Flag(path, ours) => self.flag(theirs, path, ours, value),
            To::Epochs => self.passes(theirs, &plain(value)),
            To::PerEpoch(path) => self.per_epoch(theirs, path, value),
            To::Strategy(path) => self.strategy(theirs, path, value),
            To::Method(words) => self.read_method(theirs, words, value),
            To::Loss => self.loss(theirs, value),
            To::Data(sets) => self.data(sets, theirs, value),
            To::OfData(part) => self.data_part(part, theirs, value),
            To::Mixer => self.mixer(theirs, value),
            To::OfMixer => self.of_mixer(key, theirs),
            To::Mixture => self.mixture(theirs, value),
            To::Template(words) => self.template(theirs, words, value),
            To::Either(path, yes, no, words) => match value {
                Value::Bool(true) => self.set(theirs, path, yes, words),
                Value::Bool(false) => self.set(theirs, path, no, ""),
                _ => self.undecided(theirs, value),
            },
            To::NearlyOff(path, ours, words) => self.nearly_off(theirs, path, ours, words, value),
            To::Tuning => self.tuning(theirs, &plain(value)),
            To::Unfrozen => self.frozen_weights(theirs),
            To::OfFrozen => self.of_frozen(theirs),
            To::Targets => self.targets(theirs, value),
            To::AllLinear => self.all_linear_layers(theirs, value),
            To::Whole => self.whole_modules(theirs, value),
            To::Parameters => self.parameters(theirs, value),
            To::HeldOut => self.held_out(theirs, value),
            To::ScheduleSettings => self.schedule_settings(theirs, value),
            To::Floor => self.floor_of_rate(theirs, value),
            To::Generation(counts) => self.generation(theirs, counts, value),
            // A switch that is off needs no equivalent.
            To::NoEqual(words) if matches!(value, Value::Bool(false) | Value::Null) => {
                self.line(KeyOutcome::Needless, theirs, "", words);
            }
            To::NoEqual(words) => self.line(KeyOutcome::NoEqual, theirs, "", words),
            To::Needless(words) => self.line(KeyOutcome::Needless, theirs, "", words),
        }
    }

    /// A switch that has no full equal here where it is off.
    fn nearly_off(&mut self, theirs: String, path: &str, ours: &str, words: &str, value: &Value) {
        match value {
            Value::Bool(true) => self.set(theirs, path, ours, ""),
            Value::Bool(false) => {
                let kept = format!("{path}: {}", shown(&self.draft.value(path)));
                self.line(KeyOutcome::Differs, theirs, &kept, words);
            }
            _ => self.undecided(theirs, value),
        }
    }

    /// Which weights the tool trains, by its word for it.
    fn tuning(&mut self, theirs: String, word: &str) {
        match word {
            "lora" => self.set(theirs, "adapter", "lora", ""),
            "full" => self.line(KeyOutcome::Mapped, theirs, "adapter: null", ""),
            "freeze" => self.frozen_weights(theirs),
            _ => self.line(KeyOutcome::NoEqual, theirs, "", ADAPTER),
        }
    }

    /// Why a key says nothing where it stands; `None` of one that does.
    fn redundant_reason(&self, row: &Row, value: &Value) -> Option<&'static str> {
        let answers = "the method generates no completions";
        match row.to {
            To::Data(_) | To::Limit(..) => None,
            _ if value.is_null() => Some("empty: the default"),
            _ if !self.adapts && row.is_adapter_setting() => {
                Some("no adapter is turned on: this tool trains all weights and does not read it")
            }
            To::Key("train.max_steps") if value.as_i64().is_some_and(|n| n <= 0) => {
                Some("no limit: the epochs count")
            }
            To::Key("optimizer.*.eps") if self.draft.value("optimizer") == "adafactor" => {
                Some("Adafactor does not read it")
            }
            To::Key(path) if self.without_steps.contains(&path) => {
                Some("the strategy is not steps: it is not read")
            }
            // A distillation may write some.
            To::Key(path)
                if path.starts_with("rollout.")
                    && !self.writes_answers()
                    && self.draft.value("method") != "distill" =>
            {
                Some(answers)
            }
            To::Generation(_) if !self.writes_answers() => Some(answers),
            To::WarmUp if self.draft.value("schedule") == "none" => Some(
                "the rate is constant from the first step: this schedule of the tool reads no warm-up",
            ),
            _ => None,
        }
    }

    /// How many checkpoints are kept.
    fn kept(&mut self, theirs: String, value: &Value) {
        let (kept, words) = match value.as_u64() {
            Some(1) => (
                "2".into(),
                "the best one is kept as well; at least 2, one of which is whole while the other is written",
            ),
            _ => (plain(value), "the best one is kept as well"),
        };
        self.set(theirs, "checkpoint.keep_last", &kept, words);
    }

    /// Passes over the data. A run on its own answers is as long as its steps.
    fn passes(&mut self, theirs: String, epochs: &str) {
        match self.max_steps {
            Some(_) => {
                let words = "max_steps is given too, and counts";
                self.line(KeyOutcome::Needless, theirs, "", words);
            }
            None if self.writes_answers() => self.line(KeyOutcome::NoEqual, theirs, "", STEPS),
            None => self.set(theirs, "train.epochs", epochs, ""),
        }
    }

    /// The share of rows held out, or their number.
    fn held_out(&mut self, theirs: String, value: &Value) {
        match value.as_f64() {
            Some(0.0) => {
                let least = defaults::LEAST_HELD_OUT;
                self.set(theirs, "data.val_fraction", least, NOTHING_HELD_OUT);
            }
            Some(rows) if rows >= 1.0 => self.held_out_rows(theirs, rows),
            _ => self.set(theirs, "data.val_fraction", &plain(value), HELD_OUT),
        }
    }

    /// Whether the method learns from answers that the model writes.
    fn writes_answers(&self) -> bool {
        let method = MethodConfig::usual(&plain(&self.draft.value("method")));
        method.is_some_and(|method| method.on_policy().is_some())
    }

    /// Whether a tool's method is a loss of one of ours.
    fn is_loss(&self, word: &str, ours: &str) -> bool {
        let losses = root().at(&format!("method.{ours}.loss"));
        losses.is_some_and(|node| match &node.kind {
            Kind::Choice(words) => words.iter().any(|w| w == word),
            _ => false,
        })
    }

    fn line(&mut self, outcome: KeyOutcome, theirs: String, ours: &str, words: impl Into<String>) {
        self.lines.push(Line {
            outcome,
            theirs,
            ours: ours.to_string(),
            words: words.into(),
        });
    }

    /// Sets a value; what the schema rejects has no equivalent, and the report says why.
    fn set(&mut self, theirs: String, path: &str, text: &str, words: &str) {
        let Some(full) = self.draft.resolve_wildcard(path) else {
            let words = elsewhere(path);
            return self.line(KeyOutcome::NoEqual, theirs, "", words);
        };
        let why = format!("from {theirs}");
        match self.draft.set(&full, text, &why) {
            Ok(()) => {
                let ours = format!("{full}: {}", shown(&self.draft.value(&full)));
                self.replaces(&full, &ours, &theirs);
                let outcome = if words.is_empty() {
                    KeyOutcome::Mapped
                } else {
                    KeyOutcome::Differs
                };
                self.line(outcome, theirs, &ours, words);
            }
            Err(issue) => self.refused(theirs, &full, &issue),
        }
    }

    /// A choice that another setting needs, which is the one that is reported; `None` of one that is refused, which is
    /// reported then.
    fn set_before(&mut self, theirs: String, path: &str, word: &str) -> Option<String> {
        match self.draft.set(path, word, &format!("from {theirs}")) {
            Ok(()) => Some(theirs),
            Err(issue) => {
                self.refused(theirs, path, &issue);
                None
            }
        }
    }

    /// What the schema rejects has no equivalent.
    fn refused(&mut self, theirs: String, path: &str, issue: &Issue) {
        let words = format!("{path}: {} {}", issue.what, issue.hint);
        self.line(KeyOutcome::NoEqual, theirs, "", words.trim_end());
    }

    fn word(&mut self, theirs: String, path: &str, words: &[(&str, &str)], value: &Value) {
        let word = plain(value);
        let known = root().at(path);
        let ours = words
            .iter()
            .find(|(t, _)| *t == word)
            .map(|(_, ours)| *ours);
        match ours.filter(|ours| known.is_some_and(|node| node.child(ours).is_some())) {
            // torchao's has 8 bits for embeddings, as this program has.
            Some(ours @ "adamw8bit") if ["adamw_torch_8bit", "ao_adamw_8bit"].contains(&&*word) => {
                self.set(theirs, path, ours, "moments stay in this machine's memory");
            }
            Some(ours @ "adamw8bit") => self.set(theirs, path, ours, EIGHT_BITS),
            Some(ours @ ("adamw" | "lion")) if word.contains("8bit") => {
                self.set(
                    theirs,
                    path,
                    ours,
                    "the 32-bit version with the same update",
                );
            }
            // Its warm-up is the optimizer's own, whatever the schedule.
            Some("none") if self.schedule_free => self.set(theirs, path, "constant", ""),
            Some(ours) if word == "qlora" => self.set(theirs, path, ours, UNQUANTIZED),
            Some(ours) => self.set(theirs, path, ours, ""),
            None => {
                let kept = shown(&self.draft.value(path));
                let words = format!("{word} is not supported: {path} stays {kept}");
                self.line(KeyOutcome::NoEqual, theirs, "", words);
            }
        }
    }

    fn flag(&mut self, theirs: String, path: &str, ours: &str, value: &Value) {
        match value {
            Value::Bool(true) => self.set(theirs, path, ours, ""),
            _ => self.undecided(theirs, value),
        }
    }

    /// A switch that is neither on nor off, or off where that is the default.
    fn undecided(&mut self, theirs: String, value: &Value) {
        let default = matches!(value, Value::Bool(_) | Value::Null) || value == "auto";
        match default {
            true => self.line(KeyOutcome::Needless, theirs, "", "already the default"),
            false => self.line(
                KeyOutcome::NoEqual,
                theirs,
                "",
                "true or false is understood",
            ),
        }
    }

    fn method_line(&mut self, theirs: String, ours: &str) {
        let trained = root()
            .at("method")
            .is_some_and(|node| node.child(ours).is_some());
        match trained {
            true => self.set(theirs, "method", ours, ""),
            false => self.method_missing(theirs, ours),
        }
    }

    /// The method by the tool's name for it, which may be that of a loss here.
    fn read_method(&mut self, theirs: String, words: &[(&str, &str)], value: &Value) {
        let word = plain(value);
        let ours = words.iter().find(|(theirs, _)| *theirs == word);
        match ours {
            None if value == &Value::Bool(false) => {
                self.line(KeyOutcome::Needless, theirs, "", "off")
            }
            Some((word, ours)) if self.is_loss(word, ours) => {
                if let Some(theirs) = self.set_before(theirs, "method", ours) {
                    self.set(theirs, "method.*.loss", word, "");
                }
            }
            Some((_, ours)) => self.method_line(theirs, ours),
            None => self.line(KeyOutcome::Unknown, theirs, "", "unknown method"),
        }
    }

    fn method_missing(&mut self, theirs: String, ours: &str) {
        let words = format!(
            "this build does not train {ours} yet: the spec pretrains on plain text; llmtui new advises"
        );
        self.line(KeyOutcome::NoEqual, theirs, "", words);
    }

    /// A method implied by the keys as a whole.
    fn method(&mut self, ours: &str) {
        self.method_line(format!("(these keys mean {ours})"), ours);
    }

    fn template(&mut self, theirs: String, words: &[(&str, &str)], value: &Value) {
        let word = plain(value);
        match words.iter().find(|(t, _)| *t == word) {
            Some((_, ours)) => self.set(theirs, "data.template", ours, ""),
            None => {
                let words = "no built-in template has this name: data.template also accepts auto, a .jinja file or a model folder";
                self.line(KeyOutcome::NoEqual, theirs, "", words);
            }
        }
    }
}

/// A value as the right side of `key=value`.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Why a setting of the chosen member (`method.*.neftune_alpha`) is not there: others have it, or nobody.
fn elsewhere(path: &str) -> String {
    let found = path.split_once(".*.").and_then(|(registry, setting)| {
        let members = root().at(registry)?.children().iter();
        let with = members.filter(|(_, member)| member.at(setting).is_some());
        let with: Vec<&str> = with.map(|(name, _)| name.as_str()).collect();
        (!with.is_empty())
            .then(|| format!("a setting of {registry}: {} alone here", with.join(", ")))
    });
    found.unwrap_or_else(|| "there is no such setting here".into())
}

#[cfg(test)]
mod tests;
