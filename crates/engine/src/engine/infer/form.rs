//! Answers of a form, JSON of a schema or calls of tools: before each token the parser says which ones may come next.

mod lark;
mod references;
mod search;
mod work;

pub(super) use work::{FormOf, Vocabulary};

use crate::base::text::one_line;
use crate::data::chat::tool_calls::{Body, Callable, Format, Function, Tools};
use crate::data::tokenizer::{TokenBytes, Tokenizer};
use crate::nn::generate::{Constraint, FORBIDDEN};
use crate::wire::Calling;
use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// What errors begin with that the form causes while a text is written.
pub(super) const UNFOLLOWED: &str = "the form of the answer cannot be followed";

/// Longest error of the parser that is shown, in characters.
const MAX_ERROR: usize = 400;

/// Forms over one vocabulary.
pub(super) struct Forms {
    factory: ParserFactory,
    ends: Vec<u32>,
    /// Tokens that are no text, by what they stand for.
    special: HashMap<String, u32>,
    /// Every token that is one by itself in any text.
    added: HashSet<String>,
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
        let added = tokenizer.added_tokens();
        let special = added.iter().filter(|token| token.special);
        let special: HashMap<String, u32> = special
            .map(|token| (token.content.clone(), token.id))
            .collect();
        for id in special.values().chain(ends).copied() {
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
            special,
            added: added.into_iter().map(|token| token.content).collect(),
        })
    }

    /// A text that is a JSON value of this schema.
    ///
    /// # Errors
    /// A sentence with the place in the schema: it contradicts itself, or has parts that are not supported.
    pub fn json(&self, schema: &Value) -> Result<Form, String> {
        if !schema.is_object() {
            return Err("a JSON schema must be an object".into());
        }
        let cannot = |place: &str, why: String| {
            let place = if place.is_empty() { "its root" } else { place };
            format!("the JSON schema cannot be used: {place}: {why}")
        };
        let schema = references::followed(schema).map_err(|why| cannot("", why))?;
        self.matcher(&schema)
            .map(|matcher| self.form(matcher))
            .map_err(|why| {
                let (path, why) = search::innermost(self, &schema, why);
                cannot(&path, why)
            })
    }

    /// A text with calls of these tools in this format; of a JSON schema, too, where there is one, and where no call must be. Of a
    /// format with thoughts that is what the answer says behind them. It goes on where its prompt ends.
    ///
    /// # Errors
    /// A sentence: as [`Forms::json`], with the tool; or the format cannot hold a tool's schema.
    pub fn answer(
        &self,
        (format, prompt): (&Format, &str),
        calls: Option<(&Tools, &Calling)>,
        schema: Option<&Value>,
    ) -> Result<Form, String> {
        let is_token = |text: &str| self.added.contains(text);
        let callable = calls.map(|(tools, wanted)| Callable {
            functions: tools.functions(wanted.function.as_deref()),
            several: !wanted.one,
            is_token: &is_token,
        });
        let functions = callable.iter().flat_map(|callable| &callable.functions);
        let functions: Vec<Function> = functions.copied().collect();
        if callable.is_some() && functions.is_empty() {
            return Err("there is no such tool to call".into());
        }
        schema.map_or(Ok(()), |schema| self.check(schema))?;
        let schema = schema.filter(|_| !calls.is_some_and(|(_, wanted)| wanted.required));
        let body = match (schema, calls) {
            (Some(schema), _) => Body::Json(schema),
            (None, Some((_, wanted))) if wanted.required => Body::None,
            (None, _) => Body::Text,
        };
        let grammar = format.answer(body, callable.as_ref(), prompt)?;
        let special = |mark: &str| self.special.get(mark).copied();
        // Before the parser sees one that it would not survive.
        for function in &functions {
            self.check(&function.arguments()?)
                .map_err(|why| format!("the parameters of {}: {why}", function.name))?;
        }
        let json = |schema: &Value| styled(&references::followed(schema).unwrap_or_default());
        let rules = lark::rules(&grammar, &special, &json);
        let why = match self.parser(TopLevelGrammar::from_lark(rules)) {
            Ok(matcher) => return Ok(self.form(matcher)),
            Err(why) => why,
        };
        // One of the schemas is at fault, or all of them are too much.
        for function in &functions {
            let fault = self.json(&function.arguments()?).err();
            if let Some(why) = fault {
                return Err(format!("the parameters of {}: {why}", function.name));
            }
        }
        let fault = schema.and_then(|schema| self.json(schema).err());
        Err(fault.unwrap_or_else(|| format!("calls of these tools cannot be followed: {why}")))
    }

    /// # Errors
    /// Its references lead nowhere, or to too much.
    fn check(&self, schema: &Value) -> Result<(), String> {
        match references::followed(schema) {
            Ok(_) => Ok(()),
            Err(_) => self.json(schema).map(|_| ()),
        }
    }

    fn form(&self, matcher: Matcher) -> Form {
        Form {
            matcher,
            ends: self.ends.clone(),
        }
    }

    /// # Errors
    /// The parser's.
    fn matcher(&self, schema: &Value) -> Result<Matcher, String> {
        self.parser(TopLevelGrammar::from_json_schema(styled(schema)))
    }

    /// # Errors
    /// The parser's.
    fn parser(&self, grammar: TopLevelGrammar) -> Result<Matcher, String> {
        let mut matcher = Matcher::new(self.factory.create_parser(grammar));
        if let Some(why) = matcher.get_error() {
            return Err(short(&why));
        }
        // A schema that refers to itself without end, or allows too much at once, fails at the first token only.
        match matcher.compute_mask_or_eos() {
            Ok(_) => Ok(matcher),
            Err(e) => Err(short(&e.to_string())),
        }
    }
}

/// As Python's `json.dumps` writes it: a small model would go on with spaces for ever.
fn styled(schema: &Value) -> Value {
    let mut schema = schema.clone();
    if let Value::Object(map) = &mut schema {
        let style = json!({
            "whitespace_flexible": false,
            "item_separator": ", ",
            "key_separator": ": ",
        });
        map.insert("x-guidance".into(), style);
    }
    schema
}

/// The form of one text, as far as it is written.
pub struct Form {
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
            return Err(explained(&"no token can continue this grammar"));
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
    format!("{UNFOLLOWED}: {}", short(&error.to_string()))
}

/// The parser's error in its first [`MAX_ERROR`] characters; in other words where its own are about its inside.
fn short(why: &str) -> String {
    if why.contains("NoExtensionBias") {
        return "no value has this form: it refers to itself without end".into();
    }
    if why.contains("Current row has") {
        return "it allows too many things in one place, such as an object with thousands of properties: split it".into();
    }
    if why.contains("coerce_one_of") {
        return "`oneOf` whose parts no constant distinguishes cannot be followed: `anyOf` can"
            .into();
    }
    if why.contains("'referencing' feature") {
        return "`$ref` to another document: put what it leads to under `$defs`".into();
    }
    one_line(why).chars().take(MAX_ERROR).collect()
}

#[cfg(test)]
mod tests;
