//! Derived from the answers so far: the data and the model, the advice, the presets that fit, and whether it can be trained
//! at all.

use super::answers::{Begin, DataAnswer};
use super::context::PresetInfo;
use super::knobs::{ADAPTERS, ADVISED, ANSWERS, COMMON, EPOCHS, Knob, RATE, WARMUP_RATIO};
use super::{Step, Wizard, estimate, sizing};
use crate::advisor::choose::{self, Adapter, Advice, DataKind, Inputs, Reward, Start};
use crate::advisor::inspection::{ConfigFacts, DataFacts, ModelFacts};
use crate::methods::MethodConfig;
use crate::spec::PresetGroup;
use serde_json::Value;

impl Wizard {
    /// What was found at the current data path.
    pub(super) fn data_facts(&self) -> Option<&Result<DataFacts, String>> {
        let path = self.answers.data_path.trim();
        self.data
            .as_ref()
            .filter(|(known, _)| known == path)
            .map(|(_, facts)| facts)
    }

    /// What was found in the current config of another tool.
    pub(super) fn config_facts(&self) -> Option<&Result<ConfigFacts, String>> {
        let path = self.answers.config_path.trim();
        let (known, facts) = self.config.as_ref()?;
        (known == path).then_some(facts)
    }

    /// Why there is no plan: the base model of the imported config is not on this machine.
    pub(super) fn absent_base(&self) -> Option<&str> {
        let imported = self.answers.begin == Begin::Config;
        let facts = self.config_facts().filter(|_| imported)?;
        facts.as_ref().ok()?.absent_base()
    }

    /// The facts of the chosen data, if any.
    pub(super) fn chosen_data(&self) -> Option<&DataFacts> {
        if self.answers.begin == Begin::Config {
            return None;
        }
        match self.answers.data? {
            DataAnswer::Corpus => self.corpus.as_ref(),
            DataAnswer::Path => {
                let facts = self.data_facts()?.as_ref().ok()?;
                let labelled = facts.labelled.as_deref();
                // Only who classifies learns the labels.
                let classifies = self.answers.goal == Some(choose::Goal::Classify);
                Some(labelled.filter(|_| classifies).unwrap_or(facts))
            }
            _ => None,
        }
    }

    /// The base model, if one was given and found.
    pub(super) fn start_model(&self) -> Option<&ModelFacts> {
        if self.answers.begin == Begin::Config {
            return None;
        }
        if matches!(self.answers.start, None | Some(Start::Scratch)) {
            return None;
        }
        let path = self.start_path(self.answers.start?);
        let (known, facts) = self.model.as_ref()?;
        facts.as_ref().ok().filter(|_| known == path)
    }

    /// The path for a kind of start. A checkpoint that was offered, which nobody typed, is no instruct model unless it chats.
    pub(super) fn start_path(&self, start: Start) -> &str {
        let path = self.answers.start_path.trim();
        let no_chat = self.context.offer(path).is_some_and(|offer| !offer.chats);
        match start == Start::Instruct && no_chat {
            true => "",
            false => path,
        }
    }

    pub(super) fn inputs(&self) -> Inputs {
        let described = self.answers.data.and_then(DataAnswer::described);
        let facts = self.chosen_data();
        let (data, reward) = described.unwrap_or_else(|| {
            let kind = facts.map_or(DataKind::Text, |f| f.kind);
            let checkable = facts.is_some_and(|f| f.checkable)
                && self.answers.goal == Some(choose::Goal::Reasoning);
            (
                kind,
                if checkable {
                    Reward::Checker
                } else {
                    Reward::None
                },
            )
        });
        let model = self.start_model().and_then(|m| m.n_params);
        // A model of which only the description is given is about as large as what this machine trains.
        let preset = || {
            self.preset()
                .and_then(|p| estimate::n_params(&p.draft, facts))
        };
        Inputs {
            goal: self.answers.goal.unwrap_or(choose::Goal::NewModel),
            data,
            rows: facts.and_then(|f| f.rows),
            tokens: facts.and_then(|f| self.tokens(f)),
            start: self.answers.start.unwrap_or(Start::Scratch),
            reward,
            n_params: model.or_else(preset).unwrap_or(1_000_000),
            packed_bytes: self.start_model().and_then(|m| m.packed_bytes),
            memory: self.context.machine.memory,
            gpu_memory: self.context.machine.gpu_memory(),
        }
    }

    /// About how many tokens the data have: those of the model to start from, or of the vocabulary that is made of them.
    fn tokens(&self, facts: &DataFacts) -> Option<u64> {
        // The presets for a model to start from follow from the advice, which asks for this.
        let from = self.answers.start.is_some_and(|s| s != Start::Scratch);
        let preset = if from { None } else { self.preset() };
        let word = preset.map_or("file", |preset| {
            sizing::tokenizer_word(&preset.draft, facts)
        });
        estimate::tokens(facts, word).map(|tokens| tokens as u64)
    }

    /// Every method, best first.
    pub fn advice(&self) -> Vec<Advice> {
        self.grouped_advice()
            .into_iter()
            .map(|(_, advice)| advice)
            .collect()
    }

    /// The same with the parts of the list.
    pub(super) fn grouped_advice(&self) -> Vec<(choose::Group, Advice)> {
        choose::in_groups(choose::advise(&self.inputs()))
    }

    /// The advice on the chosen method.
    pub fn chosen_advice(&self) -> Option<Advice> {
        let id = self.answers.method?;
        let mut list = self.advice();
        list.retain(|a| a.facts.id == id);
        let form = |a: &Advice| Some(a.adapter) == self.answers.adapter;
        let at = list.iter().position(form).unwrap_or(0);
        list.into_iter().nth(at)
    }

    /// What a method is chosen for: the goal and the kind of the data.
    pub(super) fn method_subject(&self) -> String {
        let inputs = self.inputs();
        format!("{:?}|{:?}|{:?}", inputs.goal, inputs.data, inputs.reward)
    }

    /// What settings are typed for.
    pub(super) fn subject(&self) -> String {
        let a = &self.answers;
        let data = match a.data {
            Some(DataAnswer::Path) => a.data_path.trim(),
            _ => "",
        };
        let start = a.start.map_or("", |start| match start {
            Start::Scratch => "",
            start => self.start_path(start),
        });
        let preset = a.preset.as_deref().unwrap_or_default();
        format!("{data}|{start}|{:?}|{:?}|{preset}", a.method, a.adapter)
    }

    /// Recipes. With a model to start from and rows of the user's, the templates of the chosen method: those with its form
    /// of adapter, where there are any. Otherwise presets that train by the method, or all if there are none; those with
    /// data of their own are not recipes for other data.
    pub(super) fn fitting_presets(&self) -> Vec<&PresetInfo> {
        let method = self.answers.method;
        let facts = method.and_then(|id| choose::FACTS.iter().find(|f| f.id == id));
        let word = facts.map_or("pretrain", |f| f.spec_word);
        if self.start_model().is_some() && self.answers.data == Some(DataAnswer::Path) {
            let templates = self.context.presets.iter().filter(|preset| {
                preset.group == PresetGroup::Template && preset.draft.value("method") == word
            });
            let mut templates: Vec<&PresetInfo> = templates.collect();
            let alike = |p: &PresetInfo| p.draft.value("adapter").is_null() != self.adapts();
            if templates.iter().any(|p| alike(p)) {
                templates.retain(|p| alike(p));
            }
            if !templates.is_empty() {
                return templates;
            }
        }
        let nothing = |value: Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
        let open = |p: &&PresetInfo| {
            let own = ["data.path", "data.sources", "data.synthetic"];
            own.iter().all(|key| nothing(p.draft.value(key)))
        };
        let mut presets: Vec<&PresetInfo> = self.context.presets.iter().filter(open).collect();
        if presets.iter().any(|p| p.draft.value("method") == word) {
            presets.retain(|p| p.draft.value("method") == word);
        }
        presets
    }

    /// Whether matrices beside frozen weights are to be trained.
    pub(super) fn adapts(&self) -> bool {
        let form = self.chosen_advice().map(|advice| advice.adapter);
        matches!(form, Some(Adapter::Lora | Adapter::QLora))
    }

    /// The chosen preset, or the first one that fits.
    pub(super) fn preset(&self) -> Option<&PresetInfo> {
        let presets = self.fitting_presets();
        let chosen = self.answers.preset.as_deref();
        presets
            .iter()
            .find(|p| Some(p.name.as_str()) == chosen)
            .or(presets.first())
            .copied()
    }

    /// The settings to ask: the architecture only if it is not given. Those of the method and of its adapter stand behind the
    /// learning rate.
    pub(super) fn knobs(&self) -> Vec<Knob> {
        let made = self.made();
        let draft = made.as_ref().map(|made| &made.draft);
        let value = |path: &str| draft.map(|d| d.value(path)).unwrap_or_default();
        let given = self.start_model().is_some() || !value("train.from").is_null();
        let writes = made.as_ref().is_some_and(|made| made.writes());
        // A check that failed may ask for a setting that is seldom asked for.
        let advised = |knob: &&Knob| {
            let typed = self.answers.settings.contains_key(knob.path);
            typed
                || self
                    .checks
                    .failed()
                    .any(|line| line.advice().contains(knob.path))
        };
        let length = |knob: &Knob| match knob.path {
            "train.max_steps" if !value("train.epochs").is_null() => EPOCHS,
            "schedule.*.warmup_steps" if !value("train.warmup_ratio").is_null() => WARMUP_RATIO,
            _ => *knob,
        };
        let method = value("method").as_str().and_then(MethodConfig::usual);
        let own = method.map_or(&[][..], |method| method.knobs());
        let rate = COMMON.iter().position(|knob| knob.path == RATE);
        let (first, rest) = COMMON.split_at(rate.map_or(0, |at| at + 1));
        let of_method = own.iter().chain(ANSWERS.iter().filter(|_| writes));
        first
            .iter()
            .chain(of_method)
            .chain(ADAPTERS)
            .chain(rest)
            .chain(ADVISED.iter().filter(advised))
            .map(length)
            .filter(|k| !(k.shape && given))
            .filter(|k| draft.is_some_and(|d| d.resolve_wildcard(k.path).is_some()))
            .collect()
    }

    /// Where the spec is saved by default.
    pub fn save_path(&self) -> String {
        match self.answers.save_as.trim() {
            "" => {
                let name = self
                    .made()
                    .map_or("run".into(), |made| made.draft.run_name());
                format!("{name}.yaml")
            }
            typed => crate::spec::file_name(typed),
        }
    }

    /// Why there is no model to start from, where the answers want one.
    pub(super) fn no_model(&self) -> Option<String> {
        let from = self.answers.start.is_some_and(|s| s != Start::Scratch);
        let absent = self.answers.begin != Begin::Config && from && self.start_model().is_none();
        absent.then(|| {
            "no model was named so far: enter a run, a model folder or a .gguf file to go on".into()
        })
    }

    /// Why the answers cannot be trained on, though they get advice, and the question that decides it.
    pub fn not_runnable(&self) -> Option<(Step, String)> {
        if self.answers.begin == Begin::Config {
            return None;
        }
        if let Some(facts) = self.chosen_data().filter(|facts| !facts.trainable) {
            let why = format!("{}: go back to data and choose another", facts.note);
            return Some((Step::Data, why));
        }
        if self.answers.data.is_some_and(|d| d.described().is_some()) {
            let why = "the data was only described: go back to data and choose a file";
            return Some((Step::Data, why.into()));
        }
        if let Some(why) = self.no_model() {
            return Some((Step::Start, why));
        }
        let from = self.answers.start.is_some_and(|s| s != Start::Scratch);
        let unfit = self
            .start_model()
            .map(|m| &m.unfit)
            .filter(|why| from && !why.is_empty());
        if let Some(why) = unfit {
            let why = format!("this build cannot train the base model: {why}");
            return Some((Step::Start, why));
        }
        None
    }
}
