//! From answers to a draft: the chosen preset, what the data and the base model require, and the settings the user
//! typed on top. Each value that differs from the preset carries its reason.

use super::answers::{Begin, DataAnswer};
use super::recommended::{Recommended, rec};
use super::sizing::{LONG_CONTEXT, for_size, tokenizer};
use super::{PresetInfo, Step, Wizard};
use crate::advisor::choose::{Adapter, CPT_ADAPTER_TOKENS, MethodId, Start};
use crate::advisor::inspection::{DataFacts, ModelFacts};
use crate::base::human;
use crate::data::Unit;
use crate::data::chat::PLAIN;
use crate::spec::Change;
use crate::spec::{Draft, LARGE_MODEL, usual_rate};
use serde_json::{Value, json};
use std::path::{Component, Path};

/// Fine-tuning starts at a tenth of the pretraining peak.
const CONTINUE_LR: f64 = 0.1;
/// Adapters take a higher rate than all weights: 2e-4 where pretraining has 1e-3.
const LORA_LR: f64 = 0.2;
/// Adapters take about ten times the rate of all weights (Schulman et al. 2025, LoRA without regret).
const TEMPLATE_LORA_LR: f64 = 10.0;
/// What is given in steps, and into how many parts of a run it divides at least.
const FOLLOW: [(&str, u64); 4] = [
    ("schedule.*.warmup_steps", 20),
    ("eval.every", 8),
    ("sample.every", 4),
    ("checkpoint.every", 4),
];
const LORA_RANK: u64 = 8;
/// For much new text, as the rule of continued pretraining says.
const HIGH_RANK: u64 = 64;
/// In the sentence of a template that trains without an adapter.
const ALL_WEIGHTS: &str = "all weights";

impl Wizard {
    /// A preset with what the answers so far make of it, without the settings typed by the user.
    pub(super) fn recipe(&self, preset: &PresetInfo) -> Draft {
        let mut draft = preset.draft.clone();
        for r in self.recommended(&draft) {
            // A recommendation that the schema rejects is not forced on anyone.
            let _ = draft.set(&r.path, &r.text, &r.why);
        }
        self.follow_steps(&mut draft);
        draft
    }

    /// Warm-up and cadences of a run that is shorter than its preset's, where nobody typed them; back to the preset's in a
    /// run that is not.
    pub(super) fn follow_steps(&self, draft: &mut Draft) {
        const WHY: &str = "follows from fewer steps";
        let steps = draft.value("train.max_steps").as_u64();
        let most = draft.parent_value("train.max_steps").as_u64();
        let fewer = draft.value("train.epochs").is_null() && steps < most;
        for (path, part) in FOLLOW {
            let typed = self.answers.settings.contains_key(path);
            let Some(full) = draft.resolve_wildcard(path).filter(|_| !typed) else {
                continue;
            };
            let every = (steps.unwrap_or(0) / part).max(1);
            let usual = draft.parent_value(&full).as_u64();
            if fewer && usual.is_some_and(|usual| usual > every) {
                let _ = draft.set(&full, &every.to_string(), WHY);
            } else if draft
                .changes()
                .iter()
                .any(|c| c.path == full && c.why == WHY)
            {
                draft.reset(&full);
            }
        }
    }

    /// Values required by the data, the method and the base model, in the order in which they are reported.
    fn recommended(&self, preset: &Draft) -> Vec<Recommended> {
        let mut list = Vec::new();
        let name = self.run_name(preset);
        if preset.value("name") != name.as_str() {
            list.push(rec("name", name, ""));
        }
        if !self.context.machine.gpus.is_empty() && preset.value("engine") == "candle" {
            let why =
                "this machine has a GPU: PyTorch trains on it where it can, decided at the start";
            list.push(rec("engine", "auto", why));
        }
        if self.answers.data == Some(DataAnswer::Path)
            && let Some(Ok(facts)) = self.data_facts()
        {
            self.for_data(preset, self.chosen_data().unwrap_or(facts), &mut list);
        }
        if let Some(advice) = self.chosen_advice()
            && preset.value("method") != advice.facts.spec_word
        {
            list.push(rec("method", advice.facts.spec_word, advice.title()));
        }
        if self.steps().any(|step| step == Step::Reward)
            && let Some((rewards, why)) = self.rewards(preset.said("rewards"))
        {
            list.push(rec("rewards", rewards, why));
        }
        if let Some(model) = self.start_model() {
            let folder = self.start_path(self.answers.start.unwrap_or(Start::Base));
            let words = format!(
                "starts from the weights of {}",
                short_path(Path::new(folder))
            );
            list.push(rec("train.from", folder, words));
            inherited(model, &mut list);
            self.template_of(model, &mut list);
            self.adapter_of(preset, model, &mut list);
            self.rate_of(preset, model, &mut list);
        }
        list
    }

    /// Where the rows are, how they are read, and what their number and lengths make of the preset.
    fn for_data(&self, preset: &Draft, facts: &DataFacts, list: &mut Vec<Recommended>) {
        let path = self.answers.data_path.trim();
        let file = short_name(path);
        list.push(rec("about", format!("A model trained on {file}."), ""));
        if !facts.columns.is_empty() {
            let columns: serde_json::Map<_, _> = facts
                .columns
                .iter()
                .map(|(ours, theirs)| ((*ours).to_string(), Value::from(theirs.as_str())))
                .collect();
            let source = json!([{"path": path, "format": facts.format_word, "columns": columns}]);
            list.push(rec("data.sources", source.to_string(), facts.summary()));
        } else {
            list.push(rec("data.path", path, facts.summary()));
        }
        if let Some(word) = facts.format_word.filter(|_| facts.columns.is_empty()) {
            let why = "other formats fit these columns too; this one reads every row inspected";
            list.push(rec("data.format", word, why));
        }
        if let Some(faulty) = &facts.faulty {
            list.push(rec("data.on_bad_row", "skip", faulty.summary()));
        }
        if self.start_model().is_none() {
            list.extend(tokenizer(preset, facts));
        }
        let context = self.start_model().map(ModelFacts::seq_len);
        list.extend(for_size(preset, facts, context));
    }

    /// A template for conversations, where the model has none.
    fn template_of(&self, model: &ModelFacts, list: &mut Vec<Recommended>) {
        let turns = |facts: &DataFacts| facts.rows.is_some() && facts.messages > 0.0;
        if !model.chat_template && self.chosen_data().is_some_and(turns) {
            let why = match model.suits {
                PLAIN => {
                    "the base model has no template and no ChatML tokens: turns end with its EOS token"
                }
                _ => "the base model has no template: conversations are rendered with this one",
            };
            list.push(rec("data.template", model.suits, why));
        }
    }

    /// The adapter, and whether the weights of a quantized file become f32.
    fn adapter_of(&self, preset: &Draft, model: &ModelFacts, list: &mut Vec<Recommended>) {
        let form = self.chosen_advice().map(|a| a.adapter);
        if self.adapts() && preset.value("adapter").is_null() {
            let about = preset.value("about");
            let about = about.as_str().unwrap_or_default();
            if about.contains(ALL_WEIGHTS) && list.iter().all(|r| r.path != "about") {
                list.push(rec("about", self.about_recipe(about), ""));
            }
            let why = match form {
                Some(Adapter::QLora) => {
                    "QLoRA: the weights of a GGUF file stay quantized, and small matrices beside them are trained"
                }
                _ => "LoRA: the model is frozen, and small matrices beside it are trained",
            };
            let rank = self.lora_rank(model).to_string();
            list.push(rec("adapter.lora.rank", rank, why));
            // TRL trains preferences without any dropout, and the review warns of it where policies are compared.
            let unit = preset.spec().map(|spec| spec.method.needs().unit);
            if !matches!(unit, Ok(Unit::Text) | Err(_)) {
                let why = "TRL's (disable_dropout): a policy with dropout differs from what it is compared with";
                list.push(rec("adapter.lora.dropout", "0", why));
            }
        }
        let is_ppo = self.answers.method == Some(MethodId::Ppo);
        if model.packed_bytes.is_some() && (form == Some(Adapter::Lora) || is_ppo) {
            let why = "the weights of the file become f32: four bytes each";
            list.push(rec("train.dequantize", "true", why));
        }
    }

    /// The rate of a model so small that a template's, which is for large ones, would not move it: a tenth of what such a model
    /// begins at, a hundredth for preferences.
    fn rate_of_small(
        &self,
        preset: &Draft,
        model: &ModelFacts,
        path: &str,
        lr: f64,
    ) -> Option<Recommended> {
        let n = model
            .n_params
            .map(|n| n as f64)
            .filter(|n| *n < LARGE_MODEL)?;
        let pairs = preset.spec().ok()?.method.needs().unit;
        let share = match pairs {
            Unit::Pair | Unit::Judged => CONTINUE_LR * CONTINUE_LR,
            _ => CONTINUE_LR,
        };
        let small = one_digit(share * usual_rate(n));
        let why = format!(
            "for {} parameters; the template's is that of models of billions",
            human::short(n)
        );
        (small > lr).then(|| rec(path, crate::spec::shown(&Value::from(small)), why))
    }

    /// The learning rate of a model that goes on: a share of the preset's.
    fn rate_of(&self, preset: &Draft, model: &ModelFacts, list: &mut Vec<Recommended>) {
        let lora = self.adapts();
        let is_template = preset.value("group") == "template";
        let has_adapter = !preset.value("adapter").is_null();
        if let Some(path) = preset.resolve_wildcard("optimizer.*.lr")
            && let Some(lr) = preset.value(&path).as_f64()
        {
            let share = match (is_template, lora) {
                // A template's rate is that of its method and form, for large models.
                (true, false) => {
                    list.extend(self.rate_of_small(preset, model, &path, lr));
                    None
                }
                (true, true) if has_adapter => None,
                (true, true) => Some((
                    TEMPLATE_LORA_LR,
                    "ten times the template's, which trains all weights: typical for adapters",
                )),
                (false, true) => Some((LORA_LR, "a fifth of the preset's: typical for adapters")),
                (false, false) => Some((
                    CONTINUE_LR,
                    "a tenth of the preset's: a pretrained model would forget at a higher rate",
                )),
            };
            if let Some((share, why)) = share {
                let lr = crate::spec::shown(&Value::from(round(lr * share)));
                list.push(rec(&path, lr, why));
                if let Some(path) = preset.resolve_wildcard("schedule.*.min_lr") {
                    list.push(rec(&path, "null", ""));
                }
            }
        }
    }

    /// Much new text takes adapters of a high rank, though no higher than half of the model's width.
    fn lora_rank(&self, model: &ModelFacts) -> u64 {
        let much = self
            .inputs()
            .tokens
            .is_some_and(|n| n >= CPT_ADAPTER_TOKENS);
        if self.answers.method != Some(MethodId::ContinuedPretrain) || !much {
            return LORA_RANK;
        }
        let width = model
            .settings
            .iter()
            .find(|(path, _)| path == "model.d_model");
        let width = width.and_then(|(_, text)| text.parse::<u64>().ok());
        width.map_or(HIGH_RANK, |width| HIGH_RANK.min(width / 2).max(1))
    }

    /// The sentence of a preset as this recipe trains it: a template for all weights may get an adapter.
    pub(super) fn about_recipe(&self, about: &str) -> String {
        match self.chosen_advice().map(|advice| advice.adapter) {
            Some(Adapter::Lora) => about.replace(ALL_WEIGHTS, "through LoRA"),
            Some(Adapter::QLora) => about.replace(ALL_WEIGHTS, "through QLoRA"),
            _ => about.to_string(),
        }
    }

    /// The default run name: after the data, or after the preset.
    fn run_name(&self, preset: &Draft) -> String {
        let stem = match self.answers.data {
            Some(DataAnswer::Path) => own_name(Path::new(self.answers.data_path.trim())),
            _ => None,
        };
        let name: String = stem
            .unwrap_or_default()
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() || "-_.".contains(c) {
                    c
                } else {
                    '-'
                }
            })
            .take(40)
            .collect();
        let name = name.trim_matches(['-', '.']).to_string();
        match name.is_empty() {
            true => preset.run_name(),
            false => name,
        }
    }

    /// The YAML for the answers: differences from the preset, with reasons.
    pub fn yaml(&self) -> Option<String> {
        let (draft, _) = self.draft()?;
        Some(draft.to_yaml_without(&self.heading(), |change| self.is_of_base(change)))
    }

    /// A part of the start model's architecture: it follows from `train.from`, also against a preset, and stands in the way of another
    /// model there.
    fn is_of_base(&self, change: &Change) -> bool {
        let own = |model: &ModelFacts| {
            let mut settings = model.settings.iter();
            settings.any(|(path, _)| {
                path.starts_with("model.")
                    && path != "model.seq_len"
                    && path.starts_with(&change.path)
            })
        };
        self.start_model().is_some_and(own)
    }

    fn heading(&self) -> Vec<String> {
        let mut lines = vec!["Created by llmtui's wizard; edit freely.".to_string()];
        if let (Begin::Config, Some(Ok(facts))) = (self.answers.begin, self.config_facts()) {
            let path = crate::base::text::one_line(self.answers.config_path.trim());
            lines.push(format!("Imported from {path} ({}).", facts.tool));
            return lines;
        }
        if let Some(goal) = self.answers.goal {
            lines.push(format!("Goal: {}.", goal.title()));
        }
        if let Some(advice) = self.chosen_advice() {
            let why: Vec<&str> = advice.why.iter().map(|(_, words)| words.as_str()).collect();
            let words = format!("Method: {}: {}.", advice.title(), why.join("; "));
            // At most a hundred columns with the mark of the comment.
            lines.extend(crate::base::text::wrap(&words, 98, "", "  "));
        }
        lines
    }
}

/// The settings of the base model, but for a context that costs more than it gives.
fn inherited(model: &ModelFacts, list: &mut Vec<Recommended>) {
    for (path, text) in &model.settings {
        let length = text.parse::<u64>().ok().filter(|n| *n > LONG_CONTEXT);
        let chosen = list.iter().any(|r| r.path == *path);
        match (path.as_str(), length) {
            _ if chosen => {}
            ("model.seq_len", Some(length)) => {
                let why = format!(
                    "the base model's context is {}; shorter rows cost less",
                    human::grouped(length)
                );
                list.push(rec(path, LONG_CONTEXT.to_string(), why));
            }
            ("data.tokenizer.file.path", _) => {
                let why = "the base model's own: its weights are tied to it";
                list.push(rec(path, text.clone(), why));
            }
            _ => list.push(rec(path, text.clone(), "")),
        }
    }
}

/// What data are called: `train.jsonl` says as little as a hundred others, the folder that it lies in says more.
fn own_name(path: &Path) -> Option<String> {
    /// Names of splits and of all data.
    const ANY: [&str; 5] = ["train", "training", "data", "dataset", "train_data"];
    let whole = plain(path)?;
    if whole != path {
        return Some(whole.file_name()?.to_string_lossy().into_owned());
    }
    let stem = path.file_stem()?.to_string_lossy().into_owned();
    let folder = path.parent().and_then(Path::file_name);
    match folder.filter(|_| ANY.contains(&stem.to_lowercase().as_str())) {
        Some(folder) => Some(folder.to_string_lossy().into_owned()),
        None => Some(stem),
    }
}

fn one_digit(x: f64) -> f64 {
    format!("{x:.0e}").parse().unwrap_or(x)
}

/// Two significant digits.
fn round(x: f64) -> f64 {
    format!("{x:.1e}").parse().unwrap_or(x)
}

/// The path up to its last name without wildcards: of `poems/**/*.txt` the folder.
fn plain(path: &Path) -> Option<&Path> {
    let wild = |part: &Path| part.to_string_lossy().contains(['*', '?', '[']);
    let named = |part: &&Path| !wild(part) && part.file_name().is_some();
    path.ancestors().find(named)
}

fn short_name(path: &str) -> String {
    let name = plain(Path::new(path)).and_then(Path::file_name);
    name.map_or_else(|| path.to_string(), |n| n.to_string_lossy().into_owned())
}

/// The path, or its last three names after a mark that names are skipped.
fn short_path(path: &Path) -> String {
    let names = path.components().filter(|c| *c != Component::RootDir);
    let names: Vec<_> = names.map(|c| c.as_os_str().to_string_lossy()).collect();
    match names.len().checked_sub(3) {
        None | Some(0) => path.display().to_string(),
        Some(from) => format!("…/{}", names[from..].join("/")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_rounded_to_what_people_would_write() {
        assert_eq!(round(1e-3 * CONTINUE_LR), 1e-4);
    }

    #[test]
    fn data_of_a_pattern_are_called_after_its_folder() {
        for (path, name, short) in [
            ("deep/**", Some("deep"), "deep"),
            ("a/poems/**/*.txt", Some("poems"), "poems"),
            ("../*.txt", None, "../*.txt"),
            ("*.txt", None, "*.txt"),
            ("a/my.poems.txt", Some("my.poems"), "my.poems.txt"),
            ("poems/train.jsonl", Some("poems"), "train.jsonl"),
        ] {
            assert_eq!(own_name(Path::new(path)).as_deref(), name, "{path}");
            assert_eq!(short_name(path), short, "{path}");
        }
    }

    #[test]
    fn a_short_path_is_whole_or_says_that_it_is_not() {
        for (path, short) in [
            ("/a/b/c", "/a/b/c"),
            ("a/b/c", "a/b/c"),
            ("m.gguf", "m.gguf"),
            ("~/m", "~/m"),
            ("/a/b/c/d", "…/b/c/d"),
            (
                "runs/a/checkpoints/step-000010",
                "…/a/checkpoints/step-000010",
            ),
        ] {
            assert_eq!(short_path(Path::new(path)), short);
        }
    }
}
