//! `generation_config.json`: the defaults of transformers' `generate`, and the tokens that end an answer.

use super::config::TokenIds;
use super::{GENERATION, pretty};
use crate::base::files::read_small;
use serde_json::{Map, Value, json};
use std::path::Path;

/// Largest file that is read, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// The settings of a folder; `None` without a file, or where it is no JSON table.
pub fn read_generation(folder: &Path) -> Option<Map<String, Value>> {
    let text = read_small(&folder.join(GENERATION), MAX_BYTES).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Tokens that end an answer by a folder's file; a file that is absent or silent is no fault.
pub fn generation_ends(folder: &Path) -> Vec<u32> {
    ends_of(&read_generation(folder).unwrap_or_default())
}

/// Tokens that end an answer by these settings.
pub fn ends_of(settings: &Map<String, Value>) -> Vec<u32> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match settings.get("eos_token_id") {
        Some(Value::Array(ids)) => ids.iter().filter_map(id).collect(),
        Some(one) => id(one).into_iter().collect(),
        None => Vec::new(),
    }
}

/// The file's text: the settings of the model that training started from (temperature, top_p, …) with these tokens. Without any,
/// answers are sampled.
pub fn generation_json(ids: impl Into<TokenIds>, settings: Option<&Map<String, Value>>) -> String {
    let ids = ids.into();
    let mut settings = match settings {
        Some(settings) => settings.clone(),
        None => Map::from_iter([("do_sample".to_string(), json!(true))]),
    };
    let tokens = [
        ("bos_token_id", json!(ids.bos)),
        ("eos_token_id", ids.eos_value()),
        ("pad_token_id", json!(ids.pad)),
    ];
    for (key, value) in tokens.into_iter().filter(|(_, value)| !value.is_null()) {
        settings.insert(key.into(), value);
    }
    pretty(&Value::Object(settings))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(ids: TokenIds, settings: Option<&Map<String, Value>>) -> Value {
        serde_json::from_str(&generation_json(ids, settings)).unwrap()
    }

    #[test]
    fn a_bases_settings_stay_and_the_tokens_are_the_runs() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read_generation(dir.path()), None);
        assert!(generation_ends(dir.path()).is_empty());
        let base = r#"{"bos_token_id": 1, "eos_token_id": [2, 3], "pad_token_id": 9, "temperature": 0.6, "do_sample": false}"#;
        std::fs::write(dir.path().join(GENERATION), base).unwrap();
        let settings = read_generation(dir.path()).unwrap();
        assert_eq!(generation_ends(dir.path()), [2, 3]);
        let ids = TokenIds {
            bos: Some(4),
            eos: vec![5, 6],
            pad: None,
        };
        assert_eq!(
            written(ids, Some(&settings)),
            json!({"bos_token_id": 4, "eos_token_id": [5, 6], "pad_token_id": 9, "temperature": 0.6, "do_sample": false})
        );
        std::fs::write(dir.path().join(GENERATION), "[1]").unwrap();
        assert_eq!(read_generation(dir.path()), None);
    }

    #[test]
    fn answers_are_sampled_where_no_file_says_otherwise() {
        let ids = TokenIds {
            bos: None,
            eos: vec![7],
            pad: Some(0),
        };
        let expected = json!({"do_sample": true, "eos_token_id": 7, "pad_token_id": 0});
        assert_eq!(written(ids, None), expected);
        let silent = written(TokenIds::default(), Some(&Map::new()));
        assert_eq!(silent, json!({}));
    }
}
