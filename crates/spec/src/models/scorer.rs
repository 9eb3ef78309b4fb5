//! A loaded reward model for scoring texts: the model, its tokenizer, and the rule for the token that is scored.

use super::{ModelSource, SourceError};
use crate::base::child::Child;
use crate::data::render::{padding, scored_token};
use crate::data::tokenizer::{self, Tokenizer};
use crate::hf::HfError;
use crate::nn::{Model, TokenBatch};
use std::path::Path;

/// A reward model with what it needs to read text.
pub struct RewardModel {
    model: Model,
    tokenizer: Tokenizer,
    /// The token that is never scored, as its files say.
    pad: Option<u32>,
}

/// A prompt and what was answered, to be scored.
#[derive(Debug, Clone, Copy)]
pub struct AnswerRead<'a> {
    pub prompt: &'a str,
    pub text: &'a str,
    /// The answer ended by itself.
    pub ended: bool,
    /// Where a chat template wrote the prompt: what it writes behind an answer.
    pub behind: Option<&'a str>,
}

impl RewardModel {
    /// The description of a reward model: all that can be known of it without reading weights.
    ///
    /// # Errors
    /// There is none, its weights or its tokenizer are missing, or it is a model that writes.
    pub fn check(path: &Path) -> Result<ModelSource, SourceError> {
        let source = ModelSource::open_whole(path)?;
        let no_model = |what: &str, fix: &str| SourceError::NoModel {
            path: path.into(),
            what: what.into(),
            fix: fix.into(),
        };
        if !source.config().is_reward_model() {
            return Err(no_model(
                "is a language model: it has no score head",
                "train one from it: llmtui train reward -s train.from=MODEL -s data.path=PAIRS",
            ));
        }
        if !source.has_tokenizer() {
            return Err(no_model(
                "has no tokenizer",
                "put this model's tokenizer files into its folder",
            ));
        }
        Ok(source)
    }

    /// Reads the folder of a reward model.
    ///
    /// # Errors
    /// As [`RewardModel::check`]; a tokenizer that cannot be read or is of another model.
    pub fn open(path: &Path) -> Result<RewardModel, SourceError> {
        let source = RewardModel::check(path)?;
        let no_model = |what: String, fix: String| SourceError::NoModel {
            path: path.into(),
            what,
            fix,
        };
        let tokenizer = tokenizer::load(source.tokenizer_path(), &Child::of_this_program())
            .map_err(|e| no_model(format!("has no tokenizer to use: {e}"), e.hint().into()))?;
        let pad = source.token_ids().pad.or(padding(&tokenizer));
        let model = source.load()?;
        if tokenizer.vocab_size() > model.shape().vocab_size {
            return Err(no_model(
                "has another model's tokenizer next to it: it has more tokens".into(),
                "put this model's tokenizer files into its folder".into(),
            ));
        }
        Ok(RewardModel {
            model,
            tokenizer,
            pad,
        })
    }

    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Prompt and answer as it read them in training.
    ///
    /// # Errors
    /// Text that the tokenizer refuses; nothing to read.
    pub fn ids(&self, answer: &AnswerRead<'_>) -> Result<Vec<u32>, String> {
        ids(&self.tokenizer, answer)
    }

    /// Tokens of the longest text; of a longer one the end is read.
    pub fn context(&self) -> usize {
        self.model.shape().seq_len
    }

    /// The score of each text, `at_once` of them in a batch; those of like length go together.
    ///
    /// # Errors
    /// A text without tokens, or with one outside the vocabulary.
    pub fn scores(&mut self, texts: &[Vec<u32>], at_once: usize) -> Result<Vec<f32>, SourceError> {
        let context = self.context();
        let read = |text: usize| {
            let ids: &[u32] = &texts[text];
            &ids[ids.len().saturating_sub(context)..]
        };
        let mut order: Vec<usize> = (0..texts.len()).collect();
        order.sort_by_key(|text| (read(*text).len(), *text));
        let mut scores = vec![0.0; texts.len()];
        for part in order.chunks(at_once.max(1)) {
            let width = part.iter().map(|text| read(*text).len()).max().unwrap_or(0);
            let mut inputs = vec![0; part.len() * width];
            for (row, text) in inputs.chunks_exact_mut(width.max(1)).zip(part) {
                let ids = read(*text);
                row[..ids.len()].copy_from_slice(ids);
            }
            let targets = vec![0; inputs.len()];
            let batch = TokenBatch::plain(&inputs, &targets, part.len(), width);
            let found = self.model.score(&batch).map_err(HfError::from)?;
            let found = found.logp.flatten_all().map_err(HfError::from)?;
            let found: Vec<f32> = found.to_vec1().map_err(HfError::from)?;
            for (row, text) in part.iter().enumerate() {
                scores[*text] = found[row * width + scored_token(read(*text), self.pad)];
            }
        }
        Ok(scores)
    }
}

/// Prompt and answer as [`crate::data::render`] writes pairs: turns with nothing but what the template writes around them, a
/// text with the tokenizer's own begin. An answer that ended has its end behind it: the template's, or of a text the token
/// that ends texts, or its line's where the vocabulary has none.
fn ids(tokenizer: &Tokenizer, answer: &AnswerRead<'_>) -> Result<Vec<u32>, String> {
    let end = match (answer.behind, tokenizer.eos()) {
        _ if !answer.ended => "",
        (Some(behind), _) => behind,
        (None, None) => "\n",
        (None, Some(_)) => "",
    };
    let text = format!("{}{}{end}", answer.prompt, answer.text);
    let ids = match answer.behind {
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
            let (prompt, behind) = (prompt.unwrap(), template.answer_suffix());
            let answer = AnswerRead {
                prompt: &prompt,
                text: "four",
                ended: true,
                behind: Some(&behind),
            };
            let learned = of_pair(Some(&template), Turns::Messages(turns.to_vec()));
            assert_eq!(ids(&tokenizer(), &answer).unwrap(), learned, "{name}");
        }
        let answer = AnswerRead {
            prompt: "two and two? ",
            text: "four",
            ended: true,
            behind: None,
        };
        let learned = of_pair(None, Turns::Text(answer.prompt.into()));
        assert_eq!(ids(&tokenizer(), &answer).unwrap(), learned);
        assert_eq!(learned[0], tokenizer().id("<s>").unwrap());
    }
}
