//! The keys of a foreign `config.json`: read with type checks, the path in every error, and accounted for. An unread key
//! might change what the model computes, so it is rejected unless it is known to be harmless or null.

use crate::base::text::one_line;
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// Dropout rates of transformers' training; logits do not depend on them.
pub const DROPOUTS: [&str; 9] = [
    "attention_dropout",
    "attn_pdrop",
    "embd_pdrop",
    "embedding_dropout",
    "embed_dropout",
    "hidden_dropout",
    "resid_dropout",
    "resid_pdrop",
    "residual_dropout",
];
/// Keys that do not affect logits: bookkeeping, training, generation. transformers reads none of them in the classes of
/// `families`, or ignores it in a forward pass.
const HARMLESS: &[&str] = &[
    "architectures",
    "attn_implementation",
    "auto_map",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "cache_implementation",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "encoder_repetition_penalty",
    "eos_token_id",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "gradient_checkpointing",
    "id2label",
    "initializer_range",
    "is_llama_config",
    "keys_to_ignore_at_inference",
    "label2id",
    "length_penalty",
    "llmtui",
    "max_length",
    "max_sequence_length",
    "min_length",
    "model_type",
    "n_ctx",
    "neftune_noise_alpha",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_labels",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "pad_token_id",
    "pretraining_tp",
    "problem_type",
    "reorder_and_upcast_attn",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "router_jitter_noise",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "typical_p",
    "use_cache",
];
/// The same by prefix.
const HARMLESS_STEMS: &[&str] = &["_", "summary_", "unsloth_", "fsdp_"];

/// Python's words for numbers that JSON does not have, the longest first.
const FLOATS: [&str; 3] = ["-Infinity", "Infinity", "NaN"];

/// A text that Python wrote, with such words as transformers 5 writes them: `{"__float__": "Infinity"}`. `None` if it has none.
pub fn with_floats(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let (mut rest, mut is_string, mut has_any) = (text, false, false);
    while let Some(first) = rest.chars().next() {
        let word = FLOATS
            .into_iter()
            .find(|word| !is_string && rest.starts_with(word));
        let taken = match (word, first) {
            (Some(word), _) => {
                has_any = true;
                out.push_str(&serde_json::json!({"__float__": word}).to_string());
                word.len()
            }
            (None, '\\') if is_string => {
                let escaped = rest.chars().nth(1).map_or(0, char::len_utf8);
                out.push_str(&rest[..1 + escaped]);
                1 + escaped
            }
            (None, c) => {
                is_string ^= c == '"';
                out.push(c);
                c.len_utf8()
            }
        };
        rest = &rest[taken..];
    }
    has_any.then_some(out)
}

/// A JSON object, and which of its keys were read.
#[derive(Debug)]
pub struct Keys<'a> {
    map: &'a Map<String, Value>,
    /// Prefix of names in messages: `rope_parameters.`.
    above: String,
    seen: RefCell<BTreeSet<String>>,
}

impl<'a> Keys<'a> {
    pub fn new(map: &'a Map<String, Value>) -> Keys<'a> {
        Keys {
            map,
            above: String::new(),
            seen: RefCell::default(),
        }
    }

    /// True if the key is present, even as null.
    pub fn has(&self, key: &str) -> bool {
        self.map.contains_key(key)
    }

    /// The value of a key; null counts as absent.
    pub fn value(&self, key: &str) -> Option<&'a Value> {
        self.seen.borrow_mut().insert(key.to_string());
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// A nested object.
    ///
    /// # Errors
    /// It has another type.
    pub fn table(&self, key: &str) -> Result<Option<Keys<'a>>, String> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        let map = value
            .as_object()
            .ok_or_else(|| self.wrong(key, "a table"))?;
        Ok(Some(Keys {
            map,
            above: format!("{}{key}.", self.above),
            seen: RefCell::default(),
        }))
    }

    fn wrong(&self, key: &str, expected: &str) -> String {
        let found = self.map.get(key).map(Value::to_string).unwrap_or_default();
        let found: String = one_line(&found).chars().take(60).collect();
        format!("{}{key}: expected {expected}, found {found}", self.above)
    }

    /// An integer, 0 included.
    ///
    /// # Errors
    /// It has another type.
    pub fn count(&self, key: &str) -> Result<Option<usize>, String> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        match value.as_u64().and_then(|n| usize::try_from(n).ok()) {
            Some(number) => Ok(Some(number)),
            None => Err(self.wrong(key, "a whole number")),
        }
    }

    /// An integer of at least 1.
    ///
    /// # Errors
    /// It has another type.
    pub fn size(&self, key: &str) -> Result<Option<usize>, String> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        let number = value.as_u64().filter(|n| (1..=1 << 40).contains(n));
        match number {
            Some(number) => Ok(Some(number as usize)),
            None => Err(self.wrong(key, "a whole number of at least 1")),
        }
    }

    /// A required size.
    ///
    /// # Errors
    /// It is missing or has another type.
    pub fn need_size(&self, key: &str) -> Result<usize, String> {
        self.size(key)?
            .ok_or_else(|| format!("{}{key} is missing", self.above))
    }

    /// # Errors
    /// Not a finite number.
    pub fn number(&self, key: &str) -> Result<Option<f64>, String> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        match value.as_f64().filter(|x| x.is_finite()) {
            Some(number) => Ok(Some(number)),
            None => Err(self.wrong(key, "a number")),
        }
    }

    /// # Errors
    /// Not a boolean.
    pub fn flag(&self, key: &str, default: bool) -> Result<bool, String> {
        match self.value(key) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(self.wrong(key, "true or false")),
        }
    }

    /// # Errors
    /// Not a string.
    pub fn word(&self, key: &str) -> Result<Option<&'a str>, String> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::String(word)) => Ok(Some(word)),
            Some(_) => Err(self.wrong(key, "text")),
        }
    }

    /// A list of strings.
    ///
    /// # Errors
    /// It has another type.
    pub fn words(&self, key: &str) -> Result<Option<Vec<&'a str>>, String> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        let words = value
            .as_array()
            .and_then(|list| list.iter().map(Value::as_str).collect());
        match words {
            Some(words) => Ok(Some(words)),
            None => Err(self.wrong(key, "a list of words")),
        }
    }

    /// A list of finite numbers.
    ///
    /// # Errors
    /// It has another type.
    pub fn numbers(&self, key: &str) -> Result<Option<Vec<f64>>, String> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        let finite = |x: &Value| x.as_f64().filter(|x| x.is_finite());
        let numbers = value
            .as_array()
            .and_then(|list| list.iter().map(finite).collect());
        match numbers {
            Some(numbers) => Ok(Some(numbers)),
            None => Err(self.wrong(key, "a list of numbers")),
        }
    }

    /// Rejects any value but `expected` for an optional key: the only supported one.
    ///
    /// # Errors
    /// Another value.
    pub fn only(&self, key: &str, expected: &Value) -> Result<(), String> {
        match self.value(key) {
            None => Ok(()),
            Some(value) if same(value, expected) => Ok(()),
            Some(_) => Err(self.wrong(key, &format!("{expected}, the only supported value"))),
        }
    }

    /// Rejects keys that were never read.
    ///
    /// # Errors
    /// A key that may change what the model computes.
    pub fn finish(&self) -> Result<(), String> {
        // The one flag whose meaning is in its `false`: every token would attend to later ones, too.
        if self.above.is_empty() {
            self.only("is_causal", &Value::Bool(true))?;
        }
        let seen = self.seen.borrow();
        let stray = self.map.iter().find(|(key, value)| {
            let known = seen.contains(*key) || (self.above.is_empty() && harmless(key));
            !known && !is_unset(value)
        });
        let Some((key, value)) = stray else {
            return Ok(());
        };
        let value: String = one_line(&value.to_string()).chars().take(60).collect();
        Err(format!(
            "the key `{}{}` ({value}) is unknown for this model type and may change what it computes; if it does not, remove it from the file",
            self.above,
            one_line(key)
        ))
    }
}

fn harmless(key: &str) -> bool {
    HARMLESS.contains(&key)
        || DROPOUTS.contains(&key)
        || HARMLESS_STEMS.iter().any(|stem| key.starts_with(stem))
}

fn is_unset(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// Equal up to rounding.
pub fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

/// The same up to rounding.
pub fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => match (a.as_f64(), b.as_f64()) {
            (Some(a), Some(b)) => near(a, b),
            _ => a == b,
        },
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter()
                    .all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn map(value: &Value) -> &Map<String, Value> {
        value.as_object().unwrap()
    }

    #[test]
    fn values_are_read_by_type_and_errors_name_the_key() {
        let value = json!({"n": 3, "x": 0.5, "w": "gelu", "l": ["a"], "t": {"k": "no"}, "null": null, "big": 1e30});
        let keys = Keys::new(map(&value));
        assert_eq!(keys.need_size("n"), Ok(3));
        assert_eq!(keys.number("x"), Ok(Some(0.5)));
        assert_eq!(keys.word("w"), Ok(Some("gelu")));
        assert_eq!(keys.words("l"), Ok(Some(vec!["a"])));
        assert_eq!(keys.size("null"), Ok(None));
        assert_eq!(keys.flag("absent", true), Ok(true));
        assert!(
            keys.need_size("absent")
                .unwrap_err()
                .contains("absent is missing")
        );
        let inner = keys.table("t").unwrap().unwrap();
        let error = inner.number("k").unwrap_err();
        assert!(error.contains("t.k") && error.contains("\"no\""), "{error}");
        assert!(keys.size("x").is_err() && keys.size("big").is_err());
    }

    #[test]
    fn attention_to_later_tokens_is_rejected() {
        for (value, is_good) in [
            (json!(true), true),
            (Value::Null, true),
            (json!(false), false),
        ] {
            let value = json!({"is_causal": value});
            let told = Keys::new(map(&value)).finish();
            assert_eq!(told.is_ok(), is_good, "{told:?}");
            assert!(told.err().is_none_or(|why| why.contains("is_causal")));
        }
    }

    #[test]
    fn unread_keys_are_rejected_unless_they_are_harmless_or_unseing() {
        for good in [
            json!({"torch_dtype": "bfloat16", "_name_or_path": "x", "alibi": false, "extra": null, "lists": []}),
            json!({"summary_type": "cls_index", "unsloth_fixed": true}),
        ] {
            assert_eq!(Keys::new(map(&good)).finish(), Ok(()));
        }
        let value = json!({"alibi": true});
        let error = Keys::new(map(&value)).finish().unwrap_err();
        assert!(error.contains("`alibi` (true)"), "{error}");
        let keys = Keys::new(map(&value));
        assert!(
            keys.only("alibi", &json!(false))
                .unwrap_err()
                .contains("expected false")
        );
        assert_eq!(keys.finish(), Ok(()), "it was read");
        // A number is the same with and without a decimal point.
        let value = json!({"mscale": 1, "truncate": 1});
        let keys = Keys::new(map(&value));
        assert_eq!(keys.only("mscale", &json!(1.0)), Ok(()));
        assert!(keys.only("mscale", &json!(1.5)).is_err());
        assert!(keys.only("truncate", &json!(true)).is_err());
    }
}
