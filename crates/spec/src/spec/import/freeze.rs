//! Which weights train, where a tool says it by their names: LLaMA-Factory's `finetuning_type: freeze` and Axolotl's
//! `unfrozen_parameters`. `train.freeze` says the opposite, so that the start model's list of parameters is needed.

use super::{KeyOutcome, Reader, plain, yaml};
use crate::base::text::one_line;
use crate::hf;
use crate::models::ModelSource;
use crate::nn::freeze::{PARTS, freeze_fault, is_frozen};
use crate::nn::{ModelConfig, ParamInfo, param_infos};
use crate::spec::SpecSources;
use crate::spec::base::place_of;
use regex::Regex;
use serde_json::{Value, json};

const PATH: &str = "train.freeze";
/// The keys under which the tools name the start model.
const STARTS: [&str; 2] = ["model_name_or_path", "base_model"];

/// What `train.freeze` has to name, or why that cannot be said.
pub(super) type Frozen = Result<Vec<String>, String>;

/// What is known of a start model.
pub type StartModel = Box<ModelConfig>;

/// The start model that a file names, where it is on this disk.
pub fn start_model(text: &str, sources: &SpecSources) -> Option<StartModel> {
    let Ok(Value::Object(map)) = yaml::parse(text) else {
        return None;
    };
    let said = STARTS.iter().find_map(|key| map.get(*key)?.as_str())?;
    let source = ModelSource::open(&place_of(said, sources)?).ok()?;
    Some(Box::new(source.config().clone()))
}

/// The parameters of a start model under the names that its files have.
struct Named {
    config: ModelConfig,
    all: Vec<(String, ParamInfo)>,
}

impl Named {
    fn of(model: Option<&ModelConfig>) -> Result<Named, String> {
        let Some(config) = model else {
            return Err(
                "what is frozen depends on the layers of the base model, which is not on this disk: `llmtui model pull` \
                 downloads it; import again then, or list in train.freeze what does not train"
                    .into(),
            );
        };
        let family = hf::family_of(config);
        let infos = param_infos(config, config.vocab_size.unwrap_or(1)).into_iter();
        let all = infos.map(|info| {
            let name = family.map_or(info.name.clone(), |family| family.disk_name(&info.name));
            (name, info)
        });
        Ok(Named {
            config: config.clone(),
            all: all.collect(),
        })
    }

    /// What `train.freeze` names where what `trains` holds for trains alone: whole parts, then whole layers, then modules.
    fn all_but(&self, trains: impl Fn(&str) -> bool) -> Frozen {
        let (kept, frozen): (Vec<_>, Vec<_>) = self.all.iter().partition(|(name, _)| trains(name));
        let mut names: Vec<String> = Vec::new();
        // A name that holds for nothing that trains and for something that no other name holds for.
        let mut offer = |name: String| {
            let of = [name];
            let is_safe = !kept.iter().any(|(_, info)| is_frozen(info, &of));
            let mut rest = frozen.iter().filter(|(_, info)| !is_frozen(info, &names));
            if is_safe && rest.any(|(_, info)| is_frozen(info, &of)) {
                names.extend(of);
            }
        };
        PARTS.iter().for_each(|part| offer((*part).into()));
        for (_, info) in &frozen {
            info.layer
                .and_then(|layer| of_layer(info, layer))
                .into_iter()
                .for_each(&mut offer);
        }
        for (_, info) in &frozen {
            let module = info.module();
            offer(module.strip_suffix(".bias").unwrap_or(module).into());
        }
        if let Some((_, info)) = frozen.iter().find(|(_, info)| !is_frozen(info, &names)) {
            return Err(format!("{} cannot be frozen by itself", info.name));
        }
        match freeze_fault(&self.config, &names) {
            Some((what, _)) => Err(format!("not possible here: {what}")),
            None => Ok(names),
        }
    }
}

/// The pattern of a whole layer: `layers.3.*`.
fn of_layer(info: &ParamInfo, layer: u32) -> Option<String> {
    let (before, _) = info.name.split_once(&format!(".{layer}."))?;
    let list = before.rsplit('.').next()?;
    Some(format!("{list}.{layer}.*"))
}

/// LLaMA-Factory's settings of `finetuning_type: freeze`.
pub(super) struct Freeze {
    /// The last so many layers train, or the first of a negative number.
    pub layers: i64,
    /// Which modules of these; `all` for the whole layer.
    pub modules: Vec<String>,
    /// What trains outside of layers.
    pub extra: Vec<String>,
    /// The layers that train are spread evenly (`use_llama_pro`).
    pub is_spread: bool,
}

impl Freeze {
    /// As its `_setup_freeze_tuning`: a parameter trains whose name contains the number of such a layer and one of the modules.
    pub(super) fn frozen(&self, model: Option<&ModelConfig>) -> Frozen {
        let named = Named::of(model)?;
        let layers = self.layers_of(named.config.n_layer)?;
        let in_layers = self.modules.iter().map(|module| {
            let module = if module == "all" { "" } else { module };
            let marks = layers.iter().map(|layer| format!(".{layer}.{module}"));
            (module.to_string(), marks.collect::<Vec<_>>())
        });
        let outside = self
            .extra
            .iter()
            .map(|name| (name.clone(), vec![name.clone()]));
        let mut trained = Vec::new();
        for (module, marks) in in_layers.chain(outside) {
            let holds = |name: &String| marks.iter().any(|mark| name.contains(mark));
            if !named.all.iter().any(|(name, _)| holds(name)) {
                return Err(format!("the base model has no {}", one_line(&module)));
            }
            trained.extend(marks);
        }
        named.all_but(|name| trained.iter().any(|mark| name.contains(mark)))
    }

    /// The layers that train, of so many.
    fn layers_of(&self, n: usize) -> Result<Vec<usize>, String> {
        let count = usize::try_from(self.layers.unsigned_abs()).unwrap_or(usize::MAX);
        match self.layers {
            0 => Err("no layer trains".into()),
            1.. if self.is_spread => match n % count {
                0 => Ok((n / count - 1..n).step_by(n / count).collect()),
                _ => Err(format!("{n} layers cannot be spread over {count}")),
            },
            1.. => Ok((n.saturating_sub(count)..n).collect()),
            _ => Ok((0..count.min(n)).collect()),
        }
    }
}

/// Axolotl's patterns of what trains, as its `freeze_layers_except` reads them: each holds for names that begin like it, and a dot is a
/// dot, but in front of a plus.
pub(super) fn unfrozen(patterns: &[String], model: Option<&ModelConfig>) -> Frozen {
    let named = Named::of(model)?;
    let mut trained = Vec::new();
    for pattern in patterns {
        let shown = one_line(pattern);
        if pattern.ends_with(']') && pattern.contains('[') {
            return Err(format!("{shown}: single rows cannot be frozen here"));
        }
        let regex = Regex::new(&format!("^(?:{})", with_plain_dots(pattern)))
            .map_err(|_| format!("{shown} is not read here"))?;
        if !named.all.iter().any(|(name, _)| regex.is_match(name)) {
            return Err(format!("{shown} is like no parameter of the base model"));
        }
        trained.push(regex);
    }
    named.all_but(|name| trained.iter().any(|regex| regex.is_match(name)))
}

fn with_plain_dots(pattern: &str) -> String {
    let mut text = String::new();
    let mut rest = pattern.chars().peekable();
    while let Some(c) = rest.next() {
        if c == '.' && rest.peek() != Some(&'+') {
            text.push('\\');
        }
        text.push(c);
    }
    text
}

impl Reader {
    /// The key that turns it on.
    pub(super) fn frozen_weights(&mut self, theirs: String) {
        // A score's head has a name of its own there, and always trains.
        let scores = self.writes_answers() || plain(&self.draft.value("method")) == "reward";
        match &self.frozen {
            None => self.line(KeyOutcome::Needless, theirs, "", "nothing is named"),
            Some(_) if scores => {
                let words =
                    "a method with a score of its own: list in train.freeze what does not train";
                self.line(KeyOutcome::NoEqual, theirs, "", words);
            }
            Some(Ok(names)) => {
                let list = json!(names).to_string();
                self.set(theirs, PATH, &list, "");
            }
            Some(Err(why)) => {
                let why = why.clone();
                self.line(KeyOutcome::NoEqual, theirs, "", why);
            }
        }
    }

    /// A setting of what is frozen, which [`Reader::frozen_weights`] has set.
    pub(super) fn of_frozen(&mut self, theirs: String) {
        let is_set = self.draft.value(PATH) != json!([]);
        match &self.frozen {
            None => {
                let words = "finetuning_type is not freeze: the tool does not read it";
                self.line(KeyOutcome::Needless, theirs, "", words);
            }
            Some(Ok(_)) if is_set => self.line(KeyOutcome::Mapped, theirs, PATH, ""),
            Some(_) => self.line(KeyOutcome::NoEqual, theirs, "", "see finetuning_type"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::mlp::MlpConfig;
    use crate::nn::norm::NormConfig;
    use crate::nn::position::PositionConfig;
    use crate::spec::import::tests::outcome;
    use crate::spec::import::{Imported, Known, import_with};

    /// A Llama of four layers whose head is a matrix of its own.
    fn llama() -> ModelConfig {
        ModelConfig {
            n_layer: 4,
            n_head: 2,
            d_model: 8,
            vocab_size: Some(11),
            norm: NormConfig::RmsNorm(Default::default()),
            position: PositionConfig::Rope(Default::default()),
            mlp: MlpConfig::SwiGlu(Default::default()),
            tie_embeddings: false,
            ..Default::default()
        }
    }

    fn read(text: &str, model: Option<ModelConfig>) -> Imported {
        let known = Known {
            model: model.map(Box::new),
            ..Known::default()
        };
        import_with("x", text, &known).unwrap()
    }

    /// The parameters that train by what was imported.
    fn trained(imported: &Imported, config: &ModelConfig) -> Vec<String> {
        let names = imported.draft.value(PATH);
        let names: Vec<String> = serde_json::from_value(names).unwrap();
        assert_eq!(freeze_fault(config, &names), None, "{names:?}");
        let infos = param_infos(config, 11).into_iter();
        let trained = infos.filter(|info| !is_frozen(info, &names));
        trained.map(|info| info.name).collect()
    }

    const LF: &str = "model_name_or_path: m\nstage: sft\nfinetuning_type: freeze\n";

    #[test]
    fn the_layers_that_llama_factory_trains_are_those_that_train_here() {
        let config = llama();
        for (more, layers) in [
            ("", &[2, 3][..]),
            ("freeze_trainable_layers: 1\n", &[3]),
            ("freeze_trainable_layers: -1\n", &[0]),
            ("freeze_trainable_layers: 2\nuse_llama_pro: true\n", &[1, 3]),
        ] {
            let imported = read(&format!("{LF}{more}"), Some(config.clone()));
            assert_eq!(
                outcome(&imported, "finetuning_type").outcome,
                KeyOutcome::Mapped
            );
            let found = trained(&imported, &config);
            let of_layers = |name: &String| layers.iter().any(|n| name.contains(&format!(".{n}.")));
            assert!(found.iter().all(of_layers), "{more}: {found:?}");
            // Four of attention, three of the feed-forward block, two norms.
            assert_eq!(found.len(), 9 * layers.len(), "{more}: {found:?}");
        }
        let mlp = "freeze_trainable_modules: mlp\nfreeze_extra_modules: lm_head,norm\n";
        let imported = read(&format!("{LF}{mlp}"), Some(config.clone()));
        let found = trained(&imported, &config);
        // `norm` is a part of the names of all norms, as it is there.
        assert_eq!(found.len(), 2 * 3 + 1 + 1 + 2 * 4, "{found:?}");
        for key in ["freeze_trainable_modules", "freeze_extra_modules"] {
            assert_eq!(outcome(&imported, key).outcome, KeyOutcome::Mapped);
        }
    }

    #[test]
    fn patterns_of_axolotl_come_to_the_same_parameters() {
        let config = llama();
        let ax = "base_model: m\nsequence_len: 64\nunfrozen_parameters:\n";
        for (patterns, n) in [
            ("  - ^lm_head.weight$\n  - model.layers.2.mlp.+_proj\n", 4),
            ("  - model.layers.[23]+.self_attn\n", 8),
            ("  - model.embed_tokens\n  - lm_head\n", 2),
        ] {
            let imported = read(&format!("{ax}{patterns}"), Some(config.clone()));
            assert_eq!(
                outcome(&imported, "unfrozen_parameters").outcome,
                KeyOutcome::Mapped
            );
            let found = trained(&imported, &config);
            assert_eq!(found.len(), n, "{patterns}: {found:?}");
        }
        for (patterns, why) in [
            ("  - model.embed_tokens.weight$[:3]\n", "single rows"),
            ("  - h.0.attn\n", "like no parameter"),
            ("  - model.layers.0.self_attn.q_proj\n", "together"),
        ] {
            let imported = read(&format!("{ax}{patterns}"), Some(config.clone()));
            let line = outcome(&imported, "unfrozen_parameters");
            assert_eq!(line.outcome, KeyOutcome::NoEqual, "{patterns}");
            assert!(line.words.contains(why), "{}", line.words);
        }
        let lora = format!("{ax}  - lm_head\nadapter: lora\n");
        let imported = read(&lora, Some(config));
        let line = outcome(&imported, "unfrozen_parameters");
        assert!(line.words.contains("adapters"), "{}", line.words);
    }

    #[test]
    fn without_the_model_the_report_says_what_it_needs() {
        let imported = read(&format!("{LF}freeze_trainable_layers: 3\n"), None);
        let line = outcome(&imported, "finetuning_type");
        assert_eq!(line.outcome, KeyOutcome::NoEqual);
        assert!(line.words.contains("llmtui model pull"), "{}", line.words);
        assert_eq!(
            outcome(&imported, "freeze_trainable_layers").outcome,
            KeyOutcome::NoEqual
        );
        let full = LF.replace("freeze", "full");
        let imported = read(&format!("{full}freeze_trainable_layers: 3\n"), None);
        assert_eq!(
            outcome(&imported, "freeze_trainable_layers").outcome,
            KeyOutcome::Needless
        );
    }
}
