//! README.md as the hub reads it: metadata in YAML between two `---` lines, then text.

use crate::base::files::read_small_text;
use crate::spec::yaml;
use serde_json::Value;
use std::path::Path;

pub const NAME: &str = "README.md";
/// Larger files are not cards.
const MAX_BYTES: u64 = 4 << 20;

/// A card, as far as it can be read.
#[derive(Debug, Clone, PartialEq)]
pub struct Card {
    /// An object; or why there is none.
    pub metadata: Result<Value, String>,
    /// What follows the metadata.
    pub text: String,
}

impl Card {
    /// That of a folder; `None` where there is none.
    pub fn of_folder(folder: &Path) -> Option<Card> {
        let path = folder.join(NAME);
        if !path.is_file() {
            return None;
        }
        Some(match read_small_text(&path, MAX_BYTES) {
            Ok(text) => Card::parse(&text),
            Err(error) => Card {
                metadata: Err(error.to_string()),
                text: String::new(),
            },
        })
    }

    pub fn parse(text: &str) -> Card {
        let text = text.trim_start_matches('\u{feff}');
        let mut lines = text.split_inclusive('\n');
        if lines.next().map(str::trim_end) != Some("---") {
            return Card {
                metadata: Err("it does not start with metadata between two `---` lines".into()),
                text: text.into(),
            };
        }
        let (mut metadata, mut rest, mut closed) = (String::new(), String::new(), false);
        for line in lines {
            match closed {
                false if line.trim_end() == "---" => closed = true,
                false => metadata.push_str(line),
                true => rest.push_str(line),
            }
        }
        let parsed = match closed {
            true => yaml::parse(&metadata).map_err(|e| e.to_string()),
            false => Err("the metadata has no `---` line at its end".into()),
        };
        Card {
            metadata: parsed.and_then(|value| match value.is_object() {
                true => Ok(value),
                false => Err("the metadata is not a map of keys".into()),
            }),
            text: rest,
        }
    }

    /// The value of a key; `None` if absent, also if the metadata cannot be parsed.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.metadata
            .as_ref()
            .ok()?
            .get(key)
            .filter(|v| !v.is_null())
    }

    /// One text, or a list of them.
    pub fn words(&self, key: &str) -> Vec<String> {
        match self.get(key) {
            Some(Value::String(one)) => vec![one.clone()],
            Some(Value::Array(list)) => list
                .iter()
                .map(|v| v.as_str().map_or_else(|| v.to_string(), String::from))
                .collect(),
            // YAML reads Norwegian as false, where it is not in quotes.
            Some(Value::Bool(false)) if key == "language" => vec!["no".into()],
            Some(other) => vec![other.to_string()],
            None => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_and_text_are_told_apart_and_what_is_no_metadata_says_why() {
        let card =
            Card::parse("---\r\nlicense: mit\nlanguage:\n- en\n- de\n---\n# Title\n---\nmore\n");
        assert_eq!(card.words("license"), ["mit"]);
        assert_eq!(card.words("language"), ["en", "de"]);
        assert_eq!(card.text, "# Title\n---\nmore\n");
        for (text, why) in [
            ("# Title\n", "does not start"),
            ("---\nlicense: mit\n# Title", "at its end"),
            ("---\nlicense: [mit\n---\n", "line"),
            ("---\n- a\n---\n", "not a map of keys"),
        ] {
            let fault = Card::parse(text).metadata.unwrap_err();
            assert!(fault.contains(why), "{fault}");
        }
        assert!(Card::parse("---\n---\n").metadata.is_ok());
    }
}
