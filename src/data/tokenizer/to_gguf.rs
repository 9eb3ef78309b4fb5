//! A tokenizer as the keys of a GGUF file: what `import::gguf` reads. Byte-level BPE alone goes out.

use super::Tokenizer;
use super::import::gguf_name;
use crate::data::DataError;
use crate::gguf::{Array, Value};
use serde_json::Value as Json;

/// llama.h, `enum llama_token_type`.
const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;

impl Tokenizer {
    /// The keys `tokenizer.*` of a model with `vocab_size` tokens; ids that the tokenizer does not know are marked unused.
    ///
    /// # Errors
    /// It is of a kind that GGUF has no words for, or cuts words by a rule that llama.cpp has no name for.
    pub fn gguf_keys(&self, vocab_size: usize) -> Result<Vec<(String, Value)>, DataError> {
        let cannot = |what: String| DataError::Tokenizer {
            place: "the tokenizer".into(),
            what,
        };
        let json: Json = serde_json::from_str(self.to_json())
            .map_err(|e| cannot(format!("it is no JSON: {e}")))?;
        let pre = pre(&json).map_err(cannot)?;
        let merges = merges(&json["model"]["merges"])
            .ok_or_else(|| cannot("its merges are no pairs of tokens".into()))?;
        let added = self.added_tokens();
        let mut tokens = Vec::with_capacity(vocab_size);
        let mut kinds = Vec::with_capacity(vocab_size);
        for id in 0..vocab_size {
            match self.token(id as u32) {
                Some(token) => {
                    let own = added.iter().find(|a| a.id as usize == id);
                    kinds.push(match own {
                        Some(added) if added.special => CONTROL,
                        Some(_) => USER_DEFINED,
                        None => NORMAL,
                    });
                    tokens.push(token);
                }
                None => {
                    kinds.push(UNUSED);
                    tokens.push(format!("[PAD{id}]"));
                }
            }
        }
        let text = |text: &str| Value::String(text.into());
        let mut keys = vec![
            ("tokenizer.ggml.model".to_string(), text("gpt2")),
            ("tokenizer.ggml.pre".into(), text(pre)),
            (
                "tokenizer.ggml.tokens".into(),
                Value::Array(Array::Strings(tokens)),
            ),
            (
                "tokenizer.ggml.token_type".into(),
                Value::Array(Array::I32(kinds)),
            ),
            (
                "tokenizer.ggml.merges".into(),
                Value::Array(Array::Strings(merges)),
            ),
        ];
        let ids = [
            ("bos_token_id", self.bos()),
            ("eos_token_id", self.eos()),
            ("padding_token_id", self.pad()),
            ("unknown_token_id", self.unk()),
        ];
        for (key, id) in ids {
            if let Some(id) = id {
                keys.push((format!("tokenizer.ggml.{key}"), Value::Unsigned(id.into())));
            }
        }
        let (lead, tail) = self.frame();
        let marks = self.marks();
        let adds = |said: Option<bool>, frame: &[u32]| said.unwrap_or(!frame.is_empty());
        let (bos, eos) = (adds(marks.add_bos, &lead), adds(marks.add_eos, &tail));
        keys.push(("tokenizer.ggml.add_bos_token".into(), Value::Bool(bos)));
        keys.push(("tokenizer.ggml.add_eos_token".into(), Value::Bool(eos)));
        if let Some(template) = &marks.chat_template {
            keys.push(("tokenizer.chat_template".into(), text(template)));
        }
        Ok(keys)
    }
}

/// How words are cut, by llama.cpp's name.
fn pre(json: &Json) -> Result<&'static str, String> {
    let kind = json["model"]["type"].as_str().unwrap_or("none");
    let is_bpe = kind == "BPE" && json["model"]["byte_fallback"] != true;
    let steps: Vec<&Json> = match &json["pre_tokenizer"]["pretokenizers"] {
        Json::Array(steps) => steps.iter().collect(),
        _ => vec![&json["pre_tokenizer"]],
    };
    let Some((last, before)) = steps
        .split_last()
        .filter(|(last, _)| last["type"] == "ByteLevel")
    else {
        return Err(format!(
            "llama.cpp gets byte-level BPE from here, and this one is of the kind {kind} without bytes; a model trained with such a tokenizer stays in its folder (--format hf)"
        ));
    };
    if !is_bpe || last["add_prefix_space"] == true {
        return Err(format!(
            "a {kind} tokenizer with bytes as this one has no name in llama.cpp"
        ));
    }
    let regex = |step: &Json| match step["type"].as_str() {
        Some("Digits") if step["individual_digits"] == true => Some(r"\p{N}".to_string()),
        Some("Split") => step["pattern"]["Regex"].as_str().map(String::from),
        _ => None,
    };
    let splits: Option<Vec<String>> = before.iter().map(|step| regex(step)).collect();
    let ignores_merges = json["model"]["ignore_merges"] == true;
    let uses_gpt2 = last["use_regex"] != false;
    splits
        .and_then(|splits| gguf_name(&splits, uses_gpt2, ignores_merges))
        .ok_or_else(|| "the rule by which it cuts words has no name in llama.cpp".into())
}

/// Pairs, written as lists or as one string with a space.
fn merges(json: &Json) -> Option<Vec<String>> {
    let one = |merge: &Json| match merge {
        Json::String(pair) => Some(pair.clone()),
        Json::Array(pair) => Some(format!(
            "{} {}",
            pair.first()?.as_str()?,
            pair.get(1)?.as_str()?
        )),
        _ => None,
    };
    json.as_array()?.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::tokenizer::{Marks, TokenizerConfig};
    use crate::gguf::{Gguf, write};

    const TEXT: &str = "the theme of the thesis: there are 12 of them\n";

    fn learnt() -> Tokenizer {
        let config: TokenizerConfig =
            serde_json::from_value(serde_json::json!({"bpe": {"vocab_size": 270}})).unwrap();
        config.build(&TEXT.repeat(50), TEXT).unwrap()
    }

    #[test]
    fn a_tokenizer_comes_back_from_a_file_with_the_same_ids() {
        let tokenizer = learnt();
        let eos = tokenizer.eos().and_then(|id| tokenizer.token(id));
        let marks = Marks {
            eos,
            chat_template: Some("{{ messages }}".into()),
            add_bos: Some(false),
            ..Marks::default()
        };
        let tokenizer = tokenizer.with_marks(marks).unwrap();
        let vocab_size = tokenizer.vocab_size() + 3;
        let keys = tokenizer.gguf_keys(vocab_size).unwrap();
        let mut bytes = Vec::new();
        write(&mut bytes, &keys, &[], &mut |_, _| Ok(())).unwrap();
        let head = Gguf::read(bytes.as_slice(), bytes.len() as u64).unwrap();
        let tokens = head.metadata.strings("tokenizer.ggml.tokens").unwrap();
        assert_eq!(tokens.len(), vocab_size);
        assert_eq!(tokens[vocab_size - 1], format!("[PAD{}]", vocab_size - 1));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.gguf");
        std::fs::write(&path, bytes).unwrap();
        let child = crate::base::child::Child::of_this_program();
        let back = crate::data::tokenizer::load(&path, &child);
        // Without the program beside the tests there is no child to vet it.
        if let Ok(back) = back {
            assert_eq!(back.encode(TEXT).unwrap(), tokenizer.encode(TEXT).unwrap());
            assert_eq!(back.eos(), tokenizer.eos());
            assert_eq!(back.marks().chat_template, tokenizer.marks().chat_template);
        }
    }

    #[test]
    fn kinds_without_a_name_are_refused() {
        let config = TokenizerConfig::Char(Default::default());
        let characters = config.build(TEXT, TEXT).unwrap();
        let error = characters.gguf_keys(40).unwrap_err().to_string();
        assert!(error.contains("byte-level BPE"), "{error}");
        let odd = learnt()
            .to_json()
            .replace("\"use_regex\": true", "\"use_regex\": false");
        let odd = Tokenizer::from_json(&odd).unwrap();
        let error = odd.gguf_keys(300).unwrap_err().to_string();
        assert!(error.contains("cuts words"), "{error}");
    }
}
