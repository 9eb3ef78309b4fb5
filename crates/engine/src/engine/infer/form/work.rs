//! Forms as work for another thread: a large schema takes seconds to compile, and others are answered meanwhile.

use super::Forms;
use crate::data::chat::tool_calls::{Format, Tools};
use crate::data::tokenizer::{TokenBytes, Tokenizer};
use crate::nn::generate::Constraint;
use crate::wire::Calling;
use serde_json::Value;
use std::sync::{Arc, OnceLock};

/// What forms need of a vocabulary, made by the first that needs it.
pub(in super::super) struct Vocabulary {
    tokenizer: Arc<Tokenizer>,
    /// Tokens that end a text or a turn.
    ends: Vec<u32>,
    /// Length of the logits.
    size: usize,
    /// What each token stands for.
    bytes: OnceLock<TokenBytes>,
    forms: OnceLock<Result<Forms, String>>,
}

impl Vocabulary {
    pub fn new(tokenizer: Arc<Tokenizer>, ends: Vec<u32>, size: usize) -> Vocabulary {
        Vocabulary {
            tokenizer,
            ends,
            size,
            bytes: OnceLock::new(),
            forms: OnceLock::new(),
        }
    }

    pub fn token_bytes(&self) -> &TokenBytes {
        self.bytes.get_or_init(|| self.tokenizer.token_bytes())
    }

    fn forms(&self) -> Result<&Forms, String> {
        let forms = self
            .forms
            .get_or_init(|| Forms::new(&self.tokenizer, self.token_bytes(), &self.ends, self.size));
        forms.as_ref().map_err(String::clone)
    }
}

/// What an answer's form is made of.
pub(in super::super) enum FormOf {
    Json(Value),
    /// An answer in the model's format, which goes on where its prompt ends.
    Answer {
        format: &'static Format,
        prompt: String,
        calls: Option<(Tools, Calling)>,
        json_schema: Option<Value>,
    },
}

impl FormOf {
    /// Compiles it.
    ///
    /// # Errors
    /// A sentence: see [`Forms::json`], [`Forms::answer`].
    pub fn compile(&self, vocabulary: &Vocabulary) -> Result<Box<dyn Constraint>, String> {
        let forms = vocabulary.forms()?;
        let form = match self {
            FormOf::Json(schema) => forms.json(schema)?,
            FormOf::Answer {
                format,
                prompt,
                calls,
                json_schema,
            } => {
                let calls = calls.as_ref().map(|(tools, wanted)| (tools, wanted));
                forms.answer((format, prompt), calls, json_schema.as_ref())?
            }
        };
        Ok(Box::new(form))
    }
}
