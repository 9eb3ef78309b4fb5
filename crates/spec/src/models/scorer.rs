//! A reward model held to score texts: the model, its tokenizer, and the rule for the token that is scored.

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
