//! Answers in the form of a JSON schema: before each token the parser says which ones may come next.

mod search;

use crate::base::text::one_line;
use crate::data::tokenizer::{TokenBytes, Tokenizer};
use crate::nn::generate::{Constraint, FORBIDDEN};
use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Longest error of the parser that is shown, in characters.
const MAX_ERROR: usize = 400;

/// Forms over one vocabulary.
pub(super) struct Forms {
    factory: ParserFactory,
    ends: Vec<u32>,
}

impl Forms {
    /// For logits of `vocab_size` tokens, of which `ends` end a text.
    ///
    /// # Errors
    /// A sentence: no token ends a text, or texts of tokens have spaces that JSON of a fixed form does not.
    pub fn new(
        tokenizer: &Tokenizer,
        bytes: &TokenBytes,
        ends: &[u32],
        vocab_size: usize,
    ) -> Result<Forms, String> {
        let Some(&end) = ends.first() else {
            return Err(
                "this model has no token that ends a text, so an answer of a given form would not end"
                    .into(),
            );
        };
        if bytes.spaces_words() {
            return Err(
                "this model's tokenizer (WordPiece) puts a space before every word, so its answers cannot have a given form: use a model with a tokenizer that keeps spaces, like BPE or Unigram"
                    .into(),
            );
        }
        let mut words = bytes.all().to_vec();
        words.resize(vocab_size, Vec::new());
        // Marks are no text.
        let special = tokenizer.added_tokens().into_iter();
        let special = special.filter(|token| token.special).map(|token| token.id);
        for id in special.chain(ends.iter().copied()) {
            if let Some(word) = words.get_mut(id as usize) {
                word.insert(0, TokTrie::SPECIAL_TOKEN_MARKER);
            }
        }
        let info = TokRxInfo::new(vocab_size as u32, end);
        let trie = TokTrie::from(&info, &words).with_eos_tokens(ends);
        let tokens: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let mut factory = ParserFactory::new_simple(&tokens).map_err(|e| explained(&e))?;
        factory.quiet().limits_mut().verbose_errors = false;
        Ok(Forms {
            factory,
            ends: ends.to_vec(),
        })
    }

    /// A text that is a JSON value of this schema.
    ///
    /// # Errors
    /// A sentence with the place in the schema: it contradicts itself, or has parts that are not supported.
    pub fn json(&self, schema: &Value) -> Result<Form, String> {
        let Value::Object(map) = schema else {
            return Err("a JSON schema must be an object".into());
        };
        match self.matcher(map.clone()) {
            Ok(matcher) => Ok(Form {
                matcher,
                ends: self.ends.clone(),
            }),
            Err(why) => {
                let (path, why) = search::innermost(self, schema, why);
                let place = if path.is_empty() { "its root" } else { &path };
                Err(format!("the JSON schema cannot be used: {place}: {why}"))
            }
        }
    }

    /// # Errors
    /// The parser's.
    fn matcher(&self, mut schema: Map<String, Value>) -> Result<Matcher, String> {
        // As Python's `json.dumps` writes it: a small model would go on with spaces for ever.
        let style = json!({
            "whitespace_flexible": false,
            "item_separator": ", ",
            "key_separator": ": ",
        });
        schema.insert("x-guidance".into(), style);
        let grammar = TopLevelGrammar::from_json_schema(Value::Object(schema));
        let matcher = Matcher::new(self.factory.create_parser(grammar));
        match matcher.get_error() {
            Some(why) => Err(short(&why)),
            None => Ok(matcher),
        }
    }
}

/// The form of one text, as far as it is written.
pub(super) struct Form {
    matcher: Matcher,
    ends: Vec<u32>,
}

impl Constraint for Form {
    fn mask(&mut self, logits: &mut [f32]) -> Result<(), String> {
        let allowed = self
            .matcher
            .compute_mask_or_eos()
            .map_err(|e| explained(&e))?;
        if allowed.is_zero() {
            return Err("no token of the vocabulary goes on in the form of the JSON schema".into());
        }
        for (id, logit) in (0..).zip(logits) {
            if !allowed.is_allowed(id) {
                *logit = FORBIDDEN;
            }
        }
        Ok(())
    }

    fn accept(&mut self, id: u32) -> Result<(), String> {
        if self.ends.contains(&id) {
            return Ok(());
        }
        self.matcher.consume_token(id).map_err(|e| explained(&e))
    }
}

fn explained(error: &impl std::fmt::Display) -> String {
    format!(
        "the form of the answer cannot be followed: {}",
        short(&error.to_string())
    )
}

fn short(why: &str) -> String {
    one_line(why).chars().take(MAX_ERROR).collect()
}

#[cfg(test)]
mod tests;
