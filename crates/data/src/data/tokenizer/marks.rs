//! The metadata of a vocabulary: BOS, EOS and padding tokens, added tokens, and the chat template. In model folders that is
//! tokenizer_config.json (and, in older ones, special_tokens_map.json, added_tokens.json, chat_template.jinja).

use crate::base::files::read_plain_text;
use crate::data::DataError;
use serde_json::{Map, Value, json};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// The file's name in a model folder.
pub const CONFIG: &str = "tokenizer_config.json";
const SPECIAL_MAP: &str = "special_tokens_map.json";
const ADDED: &str = "added_tokens.json";
const TEMPLATE: &str = "chat_template.jinja";
/// Larger files of these names are something else.
const MAX_BYTES: u64 = 16 << 20;
/// transformers' class that takes tokenizer.json as it is. Other classes build a tokenizer of their own from the tokens in it
/// (transformers 5), with other rules for spaces and other settings than those that texts were encoded with here.
pub const GENERIC_CLASS: &str = "PreTrainedTokenizerFast";
/// Keys of tokenizer_config.json that are read into [`Marks`], or follow from the tokenizer.json beside it.
const OWN: [&str; 13] = [
    "added_tokens_decoder",
    "additional_special_tokens",
    "extra_special_tokens",
    "add_bos_token",
    "add_eos_token",
    "bos_token",
    "eos_token",
    "pad_token",
    "unk_token",
    "chat_template",
    "clean_up_tokenization_spaces",
    "split_special_tokens",
    "tokenizer_class",
];
/// Keys about files and code that do not go out with the tokenizer.
const ELSEWHERE: [&str; 9] = [
    "auto_map",
    "backend",
    "is_local",
    "local_files_only",
    "merges_file",
    "name_or_path",
    "special_tokens_map_file",
    "tokenizer_file",
    "vocab_file",
];

/// Tokens by role, as text; and the chat template.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Marks {
    pub bos: Option<String>,
    pub eos: Option<String>,
    pub pad: Option<String>,
    pub unk: Option<String>,
    /// Whether the model was trained with BOS before each text, if the file says so.
    pub add_bos: Option<bool>,
    pub add_eos: Option<bool>,
    /// Jinja.
    pub chat_template: Option<String>,
    /// transformers' `tokenizer_class`.
    pub class: Option<String>,
    /// Settings of tokenizer_config.json that mean nothing here, such as `model_max_length`: they go out as they came in.
    pub others: Map<String, Value>,
}

/// An added token, matched verbatim in any text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Added {
    pub id: usize,
    pub content: String,
    /// Special tokens may be left out when text is shown.
    pub special: bool,
}

impl Marks {
    /// The metadata of a folder. None of the files is required.
    ///
    /// # Errors
    /// One of them is not what its name says.
    pub fn of_folder(folder: &Path) -> Result<Marks, DataError> {
        let mut config = table(&folder.join(CONFIG))?.unwrap_or_default();
        let map = table(&folder.join(SPECIAL_MAP))?.unwrap_or_default();
        let token = |key: &str| content(config.get(key)).or_else(|| content(map.get(key)));
        let flag = |key: &str| config.get(key).and_then(Value::as_bool);
        let template = match optional(&folder.join(TEMPLATE))? {
            Some(text) => Some(text),
            None => template_of(config.get("chat_template")),
        };
        let marks = Marks {
            bos: token("bos_token"),
            eos: token("eos_token"),
            pad: token("pad_token"),
            unk: token("unk_token"),
            add_bos: flag("add_bos_token"),
            add_eos: flag("add_eos_token"),
            chat_template: template,
            class: content(config.get("tokenizer_class")),
            others: Map::new(),
        };
        config.retain(|key, _| !OWN.contains(&&**key) && !ELSEWHERE.contains(&&**key));
        Ok(Marks {
            others: config,
            ..marks
        })
    }

    /// Tokens that a folder adds to its vocabulary.
    ///
    /// # Errors
    /// A file is not what its name says.
    pub(super) fn added(folder: &Path) -> Result<Vec<Added>, DataError> {
        let config = table(&folder.join(CONFIG))?.unwrap_or_default();
        let mut added = Vec::new();
        if let Some(Value::Object(tokens)) = config.get("added_tokens_decoder") {
            for (id, token) in tokens {
                if let (Ok(id), Some(content)) = (id.parse(), content(Some(token))) {
                    let special = token["special"].as_bool().unwrap_or(false);
                    added.push(Added {
                        id,
                        content,
                        special,
                    });
                }
            }
        }
        for (content, id) in table(&folder.join(ADDED))?.unwrap_or_default() {
            let known = added.iter().any(|token| token.content == content);
            if let (Some(id), false) = (id.as_u64(), known) {
                added.push(Added {
                    id: id as usize,
                    content,
                    special: false,
                });
            }
        }
        Ok(added)
    }

    /// These special tokens if `other` has none.
    pub fn overridden_by(self, other: Marks) -> Marks {
        Marks {
            bos: other.bos.or(self.bos),
            eos: other.eos.or(self.eos),
            pad: other.pad.or(self.pad),
            unk: other.unk.or(self.unk),
            add_bos: other.add_bos.or(self.add_bos),
            add_eos: other.add_eos.or(self.add_eos),
            chat_template: other.chat_template.or(self.chat_template),
            class: other.class.or(self.class),
            others: match other.others.is_empty() {
                true => self.others,
                false => other.others,
            },
        }
    }

    /// Whether BOS goes before each text, for files that leave that to the reading program. Where nothing is
    /// said, transformers' class of the tokenizer decides (`add_bos_token`'s default).
    pub fn adds_bos(&self) -> bool {
        let class = self.class.as_deref().unwrap_or_default();
        let by_class = ["LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer"];
        let of_class = by_class.contains(&class.trim_end_matches("Fast"));
        self.add_bos.unwrap_or(of_class)
    }

    /// The special tokens that are in the vocabulary.
    pub fn tokens(&self) -> impl Iterator<Item = &str> {
        [&self.bos, &self.eos, &self.pad, &self.unk]
            .into_iter()
            .filter_map(|mark| mark.as_deref())
    }

    /// The text of a tokenizer_config.json that says the same, beside a tokenizer.json.
    pub fn to_json(&self) -> String {
        let mut config = self.others.clone();
        config.insert("tokenizer_class".into(), json!(GENERIC_CLASS));
        // transformers 4 would pass token types along, which models add to their embeddings or refuse.
        config
            .entry("model_input_names")
            .or_insert_with(|| json!(["input_ids", "attention_mask"]));
        let tokens = [
            ("bos_token", &self.bos),
            ("eos_token", &self.eos),
            ("pad_token", &self.pad),
            ("unk_token", &self.unk),
            ("chat_template", &self.chat_template),
        ];
        for (key, value) in tokens {
            if let Some(value) = value {
                config.insert(key.into(), json!(value));
            }
        }
        for (key, value) in [
            ("add_bos_token", self.add_bos),
            ("add_eos_token", self.add_eos),
        ] {
            if let Some(value) = value {
                config.insert(key.into(), json!(value));
            }
        }
        config.insert("clean_up_tokenization_spaces".into(), json!(false));
        format!("{:#}\n", Value::Object(config))
    }
}

/// A token is written as text, or as a table with its content.
fn content(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::String(text) => Some(text.clone()),
        Value::Object(token) => token.get("content")?.as_str().map(String::from),
        _ => None,
    }
}

/// One template, or several by name of which the one called `default` counts.
fn template_of(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::String(text) => Some(text.clone()),
        Value::Array(named) => named
            .iter()
            .find(|one| one["name"] == "default")
            .and_then(|one| one["template"].as_str())
            .map(String::from),
        _ => None,
    }
}

fn optional(path: &Path) -> Result<Option<String>, DataError> {
    let unreadable = |source| DataError::Unreadable {
        path: path.to_path_buf(),
        source,
    };
    match fs::metadata(path) {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(e) => return Err(unreadable(e)),
        Ok(info) if info.len() > MAX_BYTES => {
            return Err(DataError::TooLarge {
                place: path.display().to_string(),
                bytes: info.len(),
                limit: MAX_BYTES,
            });
        }
        Ok(_) => {}
    }
    read_plain_text(path).map(Some).map_err(unreadable)
}

fn table(path: &Path) -> Result<Option<Map<String, Value>>, DataError> {
    let Some(text) = optional(path)? else {
        return Ok(None);
    };
    serde_json::from_str(&text)
        .map(Some)
        .map_err(|e| DataError::Tokenizer {
            place: path.display().to_string(),
            what: format!("not a JSON table: {e}"),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(dir.path().join(name), text).unwrap();
        }
        dir
    }

    #[test]
    fn both_ways_to_write_a_token_are_read() {
        let dir = folder(&[
            (
                CONFIG,
                r#"{"eos_token": {"content": "<|im_end|>", "special": true}, "pad_token": null, "add_bos_token": false,
                    "chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]}"#,
            ),
            (SPECIAL_MAP, r#"{"bos_token": "<s>", "eos_token": "</s>"}"#),
        ]);
        let marks = Marks::of_folder(dir.path()).unwrap();
        assert_eq!(marks.eos.as_deref(), Some("<|im_end|>"));
        assert_eq!(marks.bos.as_deref(), Some("<s>"));
        assert_eq!((marks.pad.as_ref(), marks.add_bos), (None, Some(false)));
        assert_eq!(marks.chat_template.as_deref(), Some("d"));
    }

    #[test]
    fn what_is_written_reads_back() {
        let marks = Marks {
            bos: Some("<s>".into()),
            eos: Some("</s>".into()),
            add_bos: Some(true),
            chat_template: Some("{{ 'x' }}\n".into()),
            class: Some(GENERIC_CLASS.into()),
            others: serde_json::from_str(
                r#"{"model_input_names": ["input_ids"], "model_max_length": 8192}"#,
            )
            .unwrap(),
            ..Marks::default()
        };
        let dir = folder(&[(CONFIG, &marks.to_json())]);
        assert_eq!(Marks::of_folder(dir.path()).unwrap(), marks);
    }

    /// transformers 5 builds the tokenizer of another class anew, and what a base's file says of other things is kept.
    #[test]
    fn the_class_takes_tokenizer_json_as_it_is_and_other_settings_stay() {
        let dir = folder(&[(
            CONFIG,
            r#"{"tokenizer_class": "LlamaTokenizer", "legacy": false, "add_prefix_space": true, "model_max_length": 4096,
                "padding_side": "left", "bos_token": "<s>", "auto_map": {"AutoTokenizer": ["x.T", null]}, "name_or_path": "x",
                "added_tokens_decoder": {"1": {"content": "<s>", "special": true}}, "clean_up_tokenization_spaces": true}"#,
        )]);
        let marks = Marks::of_folder(dir.path()).unwrap();
        assert!(marks.adds_bos(), "the class that was read still counts");
        let written: Value = serde_json::from_str(&marks.to_json()).unwrap();
        let expected = json!({
            "tokenizer_class": "PreTrainedTokenizerFast", "legacy": false, "add_prefix_space": true, "model_max_length": 4096,
            "padding_side": "left", "bos_token": "<s>", "clean_up_tokenization_spaces": false,
            "model_input_names": ["input_ids", "attention_mask"],
        });
        assert_eq!(written, expected);
    }

    #[test]
    fn an_empty_folder_says_nothing_and_a_broken_file_is_named() {
        let dir = folder(&[]);
        assert_eq!(Marks::of_folder(dir.path()).unwrap(), Marks::default());
        let dir = folder(&[(CONFIG, "[1]")]);
        let error = Marks::of_folder(dir.path()).unwrap_err();
        assert!(error.to_string().contains(CONFIG), "{error}");
    }

    #[test]
    fn added_tokens_come_with_their_ids() {
        let dir = folder(&[
            (
                CONFIG,
                r#"{"added_tokens_decoder": {"7": {"content": "<x>", "special": true}}}"#,
            ),
            (ADDED, r#"{"<x>": 7, "<y>": 8}"#),
        ]);
        let added = Marks::added(dir.path()).unwrap();
        let seen: Vec<_> = added
            .iter()
            .map(|a| (a.id, a.content.as_str(), a.special))
            .collect();
        assert_eq!(seen, [(7, "<x>", true), (8, "<y>", false)]);
    }
}
