//! Bytes of text per prediction of the validation split: converts a loss in nats per token to bits per byte, which is
//! comparable between tokenizers. A document's first token is given, not predicted: neither its bytes nor its loss count.

use crate::data::Tokenizer;
use crate::data::documents::Portion;
use std::collections::HashSet;

/// Beyond this many tokens the ratio no longer changes in its first three digits.
const MOST_TOKENS: usize = 4 << 20;

/// Mean bytes per predicted token; `None` if only a part of the tokens is supervised or nothing is predicted.
pub(super) fn per_prediction(val: &[Portion], tokenizer: &Tokenizer) -> Option<f64> {
    if val.iter().any(Portion::masked) {
        return None;
    }
    let added = tokenizer.added_tokens();
    let special: HashSet<u32> = added.iter().filter(|t| t.special).map(|t| t.id).collect();
    let (mut bytes, mut predictions) = (0, 0);
    for portion in val {
        portion.visit(MOST_TOKENS, &mut |ids| {
            let text: Vec<u32> = ids
                .iter()
                .copied()
                .filter(|i| !special.contains(i))
                .collect();
            let given = ids.first().filter(|i| !special.contains(i));
            let given = given.map_or(0, |id| token_bytes(*id, tokenizer));
            bytes += tokenizer.decode(&text).len().saturating_sub(given);
            predictions += ids.len().saturating_sub(1);
        });
    }
    (bytes > 0 && predictions > 0).then(|| bytes as f64 / predictions as f64)
}

/// A token that is a part of a character does not decode by itself. Byte-level vocabularies spell each byte as one
/// character, others as `<0xE3>`.
fn token_bytes(id: u32, tokenizer: &Tokenizer) -> usize {
    let text = tokenizer.decode(&[id]);
    if !text.contains('\u{fffd}') {
        return text.len();
    }
    match tokenizer.token(id) {
        Some(token) if token.starts_with("<0x") => 1,
        Some(token) => token.chars().count(),
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use crate::data::{DataConfig, Dataset, Request};
    use serde_json::json;

    /// Opens rows of text for training and others for validation; a character is a token.
    fn open(dir: &std::path::Path, extra: serde_json::Value) -> Dataset {
        let mut config = json!({
            "path": dir.join("train.jsonl"),
            "tokenizer": {"char": {}},
            "cache": "off",
        });
        for (key, value) in extra.as_object().unwrap() {
            config[key] = value.clone();
        }
        let config: DataConfig = serde_json::from_value(config).unwrap();
        Dataset::open(&config, Request::new(16)).unwrap()
    }

    fn rows(texts: &[String]) -> String {
        let row = |text: &String| json!({"text": text}).to_string() + "\n";
        texts.iter().map(row).collect()
    }

    #[test]
    fn bytes_behind_predictions_are_those_of_the_validation_text_without_what_is_given() {
        let dir = tempfile::tempdir().unwrap();
        let english: Vec<String> = (0..60).map(|i| format!("the cat sat on mat {i}")).collect();
        // Three bytes a letter, where the training text has one.
        let kana = ["かな かな", "いろは", "にほへと ちりぬるを"].map(String::from);
        std::fs::write(dir.path().join("train.jsonl"), rows(&english)).unwrap();
        std::fs::write(dir.path().join("val.jsonl"), rows(&kana)).unwrap();
        for packing in ["stream", "packed", "padded"] {
            let val_path = json!({"val_path": dir.path().join("val.jsonl"), "packing": packing});
            let data = open(dir.path(), val_path);
            let end = usize::from(data.tokenizer.eos().is_some());
            let bytes: usize = kana.iter().map(String::len).sum();
            let tokens: usize = kana.iter().map(|text| text.chars().count() + end).sum();
            // Run together, only the very first letter is given; else that of each text.
            let given = if packing == "stream" { 1 } else { kana.len() };
            let direct = (bytes - 3 * given) as f64 / (tokens - given) as f64;
            let counted = data.val_bytes_per_token().unwrap();
            assert!(
                (counted - direct).abs() < 1e-12,
                "{packing}: {counted} {direct}"
            );
        }
        let held_out = open(dir.path(), json!({}));
        assert!(held_out.val_bytes_per_token().unwrap() <= 1.0);
    }
}
