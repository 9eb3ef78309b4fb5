//! The template that a model folder brings: `chat_template.jinja`, or `chat_template` in `tokenizer_config.json`, with
//! the special tokens that templates name.

use super::Template;
use super::scan::MAX_BYTES;
use crate::data::DataError;
use serde_json::{Map, Value};
use std::fs;
use std::path::Path;

/// Tokenizer configurations list every added token: 4 MiB is twice the largest known.
const MAX_CONFIG_BYTES: u64 = 16 << 20;

/// What transformers tells templates of a tokenizer.
const TOKENS: [&str; 7] = [
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
];

/// The keyword under which templates are stored where there are several.
const DEFAULT: &str = "default";

impl Template {
    /// Reads the template of a model folder. Of several named ones, the one called `default` counts.
    ///
    /// # Errors
    /// No template in the folder, unreadable files, or a template that does not compile.
    pub fn from_model_folder(folder: &Path) -> Result<Template, DataError> {
        let config = config(folder)?;
        let file = folder.join("chat_template.jinja");
        let (place, source) = if file.is_file() {
            (file.display().to_string(), read(&file, MAX_BYTES as u64)?)
        } else {
            let place = folder.join("tokenizer_config.json").display().to_string();
            let source = config.get("chat_template").and_then(stored).ok_or_else(|| DataError::Template {
                place: folder.display().to_string(),
                what: "this model brings no chat template: it is a base model, or its folder is not complete".into(),
                fix: "choose one with data.template, e.g. chatml",
            })?;
            (place, source)
        };
        let mut template = Template::from_jinja(&place, &source)?;
        for name in TOKENS {
            if let Some(token) = config.get(name).and_then(token_text) {
                template = template.with_variable(name, token);
            }
        }
        Ok(template)
    }
}

/// `tokenizer_config.json`, or nothing where there is none.
fn config(folder: &Path) -> Result<Map<String, Value>, DataError> {
    let path = folder.join("tokenizer_config.json");
    if !path.is_file() {
        return Ok(Map::new());
    }
    serde_json::from_str(&read(&path, MAX_CONFIG_BYTES)?).map_err(|e| DataError::Template {
        place: path.display().to_string(),
        what: format!("not the JSON of a tokenizer's configuration: {e}"),
        fix: "fetch the file again",
    })
}

fn read(path: &Path, limit: u64) -> Result<String, DataError> {
    let unreadable = |source| DataError::Unreadable {
        path: path.to_path_buf(),
        source,
    };
    let bytes = fs::metadata(path).map_err(unreadable)?.len();
    if bytes > limit {
        return Err(DataError::TooLarge {
            place: path.display().to_string(),
            bytes,
            limit,
        });
    }
    fs::read_to_string(path).map_err(unreadable)
}

/// One template, or a list of `{name, template}`.
fn stored(value: &Value) -> Option<String> {
    let named = |list: &Vec<Value>| {
        let by_name = |name: &str| list.iter().find(|entry| entry["name"] == name);
        let entry = by_name(DEFAULT).or_else(|| list.first())?;
        entry["template"].as_str().map(str::to_string)
    };
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(list) => named(list),
        _ => None,
    }
}

/// A token is its text, or an object that holds it.
fn token_text(value: &Value) -> Option<String> {
    let text = value.as_str().or_else(|| value.get("content")?.as_str());
    text.map(str::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Message;
    use crate::data::chat::GenerationPrompt;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(dir.path().join(name), text).unwrap();
        }
        dir
    }

    fn render(files: &[(&str, &str)]) -> Result<String, DataError> {
        let dir = folder(files);
        let template = Template::from_model_folder(dir.path())?;
        template.render(
            &[Message::new("user", "hi")],
            None,
            GenerationPrompt::Without,
        )
    }

    #[test]
    fn the_file_goes_before_the_configuration_which_names_the_tokens() {
        let config = r#"{"bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "</s>", "chat_template": "no"}"#;
        let text = render(&[
            ("tokenizer_config.json", config),
            (
                "chat_template.jinja",
                "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}",
            ),
        ]);
        assert_eq!(text.unwrap(), "<s>hi</s>");
    }

    #[test]
    fn a_template_may_be_a_string_or_one_of_several() {
        let one = r#"{"chat_template": "one {{ messages[0].content }}"}"#;
        assert_eq!(render(&[("tokenizer_config.json", one)]).unwrap(), "one hi");
        let several = r#"{"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]}"#;
        assert_eq!(render(&[("tokenizer_config.json", several)]).unwrap(), "d");
    }

    #[test]
    fn a_folder_without_a_template_says_what_to_do() {
        for files in [vec![], vec![("tokenizer_config.json", "{}")]] {
            let error = render(&files).unwrap_err();
            assert!(
                error.to_string().contains("brings no chat template"),
                "{error}"
            );
            assert!(error.hint().contains("data.template"));
        }
        let broken = render(&[("tokenizer_config.json", "{")]).unwrap_err();
        assert!(broken.to_string().contains("not the JSON"), "{broken}");
    }
}
