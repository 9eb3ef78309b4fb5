//! A trained reward model as a reward: it reads prompt and answer as one text and gives its score.

use super::{Answer, Reward, Worker};
use crate::base::registry::Entry;
use crate::data::Tokenizer;
use crate::models::RewardModel;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};

pub const ENTRY: Entry = Entry {
    id: "model",
    title: "A reward model",
    summary: "The score that a trained reward model gives prompt and answer.",
    source: "Stiennon et al. 2020, arXiv 2009.01325",
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Folder of the reward model: a checkpoint of the method reward, or a sequence-classification model with one label.
    pub path: PathBuf,
    /// Answers that it reads at once.
    #[schemars(range(min = 1, max = 4096))]
    pub batch: usize,
    /// What its scores are multiplied by.
    pub scale: f64,
    /// What is subtracted from its scores first: their mean on good data, say.
    pub offset: f64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            path: PathBuf::new(),
            batch: 16,
            scale: 1.0,
            offset: 0.0,
        }
    }
}

impl Reward for Config {
    fn score(&self, _answer: &Answer) -> Result<f64, String> {
        Err("a model scores this reward".into())
    }

    fn model(&self) -> Option<&Path> {
        Some(&self.path)
            .filter(|path| !path.as_os_str().is_empty())
            .map(PathBuf::as_path)
    }

    fn fix_paths(&mut self, absolute: &dyn Fn(&Path) -> PathBuf) {
        if !self.path.as_os_str().is_empty() {
            self.path = absolute(&self.path);
        }
    }

    fn worker(&self) -> Option<Box<dyn Worker>> {
        Some(Box::new(Scorer {
            config: self.clone(),
            model: None,
            scores: Vec::new(),
        }))
    }

    fn fault(&self) -> Option<(String, String)> {
        let fix = "{model: {path: runs/…/checkpoints/step-001000}}";
        if self.path.as_os_str().is_empty() {
            return Some(("which reward model?".into(), fix.into()));
        }
        let numbers = self.scale.is_finite() && self.offset.is_finite();
        (!numbers).then(|| ("scale and offset must be numbers".into(), fix.into()))
    }
}

/// The model, which is read with the first answers, and the scores of those in hand.
struct Scorer {
    config: Config,
    model: Option<RewardModel>,
    scores: Vec<f32>,
}

impl fmt::Debug for Scorer {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Scorer({})", self.config.path.display())
    }
}

impl Worker for Scorer {
    fn begin(&mut self, answers: &[Answer]) -> Result<(), String> {
        let model = match &mut self.model {
            Some(model) => model,
            none => {
                let opened = RewardModel::open(&self.config.path);
                none.insert(opened.map_err(|e| format!("{e}; {}", e.hint()))?)
            }
        };
        let texts = answers.iter().map(|answer| ids(model.tokenizer(), answer));
        let texts = texts.collect::<Result<Vec<_>, String>>()?;
        let scores = model.scores(&texts, self.config.batch);
        self.scores = scores.map_err(|e| e.to_string())?;
        Ok(())
    }

    fn score(&mut self, number: usize, _answer: &Answer) -> Result<f64, String> {
        let score = self.scores.get(number).copied().map(f64::from);
        match score.filter(|score| score.is_finite()) {
            Some(score) => Ok((score - self.config.offset) * self.config.scale),
            None => Err("the model's score is non-finite".into()),
        }
    }
}

/// Prompt and answer as the reward model read them in training ([`crate::data::render`]): turns with nothing but what the
/// template writes around them, a text with the tokenizer's own begin. An answer that ended has its end behind it: the
/// template's, or of a text the token that ends texts, or its line's where the vocabulary has none.
fn ids(tokenizer: &Tokenizer, answer: &Answer) -> Result<Vec<u32>, String> {
    let end = match (&answer.behind, tokenizer.eos()) {
        _ if !answer.ended => "",
        (Some(behind), _) => behind,
        (None, None) => "\n",
        (None, Some(_)) => "",
    };
    let text = format!("{}{}{end}", answer.prompt, answer.text);
    let ids = match &answer.behind {
        Some(_) => tokenizer.encode(&text),
        None => tokenizer.encode_begun(&text),
    };
    let mut ids = ids.map_err(|e| e.to_string())?;
    if answer.behind.is_none() && answer.ended {
        let eos = tokenizer.eos().filter(|eos| ids.last() != Some(eos));
        ids.extend(eos);
    }
    match ids.is_empty() {
        true => Err("prompt and answer are empty".into()),
        false => Ok(ids),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::chat::{GenerationPrompt, Template};
    use crate::data::render::Renderer;
    use crate::data::{Content, Example, Message, Place, TrainOn, Turns};
    use crate::rewards::Reference;
    use serde_json::json;
    use std::sync::Arc;

    /// A vocabulary that puts `<s>` in front of texts, as Llama's and Mistral's do.
    fn tokenizer() -> Tokenizer {
        let json = include_str!("../../../../tests/fixtures/chat/tokenizer.json");
        let mut json: serde_json::Value = serde_json::from_str(json).unwrap();
        let id = Tokenizer::from_json(&json.to_string()).unwrap().id("<s>");
        json["post_processor"] = json!({
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [id.unwrap()], "tokens": ["<s>"]}},
        });
        Tokenizer::from_json(&json.to_string()).unwrap()
    }

    /// What `llmtui score` and the training read of a pair's chosen side.
    fn of_pair(template: Option<&Template>, prompt: Turns) -> Vec<u32> {
        let renderer = Renderer::new(Arc::new(tokenizer()), template.cloned(), TrainOn::Auto);
        let answer = |text: &str| match &prompt {
            Turns::Text(_) => Turns::Text(text.into()),
            Turns::Messages(_) => Turns::Messages(vec![Message::new("assistant", text)]),
        };
        let content = Content::Preference {
            prompt: prompt.clone(),
            chosen: answer("four"),
            rejected: answer("five"),
        };
        let place = Place {
            file: "pairs.jsonl".into(),
            row: 1,
        };
        let [chosen, _] = renderer.pair(&Example::new(content), &place).unwrap();
        chosen.ids
    }

    #[test]
    fn an_answer_is_read_as_the_pairs_that_its_reward_model_learned_from() {
        let turns = [Message::new("user", "two and two?")];
        for name in ["chatml", "phi3", "llama3", "mistral", "plain"] {
            let template = Template::builtin(name).unwrap();
            let prompt = template.render(&turns, None, GenerationPrompt::With);
            let answer = Answer {
                prompt: prompt.unwrap(),
                text: "four".into(),
                tokens: 1,
                ended: true,
                behind: Some(template.behind_answer()),
                reference: Reference::default(),
            };
            let learned = of_pair(Some(&template), Turns::Messages(turns.to_vec()));
            assert_eq!(ids(&tokenizer(), &answer).unwrap(), learned, "{name}");
        }
        let answer = Answer {
            prompt: "two and two? ".into(),
            text: "four".into(),
            tokens: 1,
            ended: true,
            behind: None,
            reference: Reference::default(),
        };
        let learned = of_pair(None, Turns::Text(answer.prompt.clone()));
        assert_eq!(ids(&tokenizer(), &answer).unwrap(), learned);
        assert_eq!(learned[0], tokenizer().id("<s>").unwrap());
    }
}
