//! Column mappings, for data sets whose names differ from a format's own.

use super::{FormatId, QUESTION};
use crate::base::near::{alike, did_you_mean};
use crate::base::ssh::shell_quote;
use crate::data::DataError;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Parts and the columns that hold them: `{conversations: dialog}`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Columns(BTreeMap<String, String>);

impl Columns {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The column that was named for a part.
    pub fn get(&self, part: &str) -> Option<&str> {
        self.0.get(part).map(String::as_str)
    }

    /// Parts, and the columns that are named for them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let pairs = self.0.iter();
        pairs.map(|(part, column)| (part.as_str(), column.as_str()))
    }

    /// # Errors
    /// A part that the format does not have.
    pub fn check(&self, format: FormatId) -> Result<(), DataError> {
        let parts: Vec<&str> = format.format().parts.iter().map(|p| p.name).collect();
        let Some(unknown) = self.0.keys().find(|key| !parts.contains(&key.as_str())) else {
            return Ok(());
        };
        // People turn the two around: {dialog: conversations}.
        let turned = self.0.get(unknown).filter(|v| parts.contains(&v.as_str()));
        let fix = match (turned, nearest(unknown, parts.iter().copied())) {
            (Some(part), _) => {
                format!("the part comes first: data.columns: {{{part}: {unknown}}}")
            }
            (None, Some(near)) => {
                format!("{} Its parts: {}", did_you_mean(near), parts.join(", "))
            }
            (None, None) => format!("its parts: {}", parts.join(", ")),
        };
        let what = format!("names the part `{unknown}`, which format {format} does not have");
        Err(DataError::source("data.columns", what, fix))
    }
}

/// The parts of all formats are its keys, so that `data.columns.text=body` is known and completed as other settings are.
impl JsonSchema for Columns {
    fn schema_name() -> Cow<'static, str> {
        "Columns".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut parts = serde_json::Map::new();
        for part in FormatId::ALL.iter().flat_map(|f| f.format().parts) {
            let description = match part.name == QUESTION.name {
                true => "The column whose texts are user turns, which the chat template writes: texts of a column named `prompt` are continued as they are.".to_string(),
                false => format!("The column that is the `{}` of a row.", part.name),
            };
            let text = serde_json::json!({"type": ["string", "null"], "description": description});
            parts.insert(part.name.into(), text);
        }
        json_schema!({"type": "object", "properties": parts})
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Columns {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Columns {
        Columns(
            pairs
                .into_iter()
                .map(|(k, v)| (k.into(), v.into()))
                .collect(),
        )
    }
}

/// The name that looks most like `word`, if any does.
pub(super) fn nearest<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    alike(0.8, word, names)
}

/// A fix in the words of a spec, in those of `llmtui data`, for a shell: `data.columns: {text: body}` is `--column text=body`.
pub fn in_options(fix: &str) -> String {
    const COLUMNS: &str = "data.columns: {";
    let mut out = String::new();
    let mut rest = fix;
    while let Some((before, behind)) = rest.split_once(COLUMNS) {
        let Some((pairs, after)) = behind.split_once('}') else {
            break;
        };
        out.push_str(before);
        let options = pairs
            .split(", ")
            .map(|pair| format!("--column {}", shell_quote(&pair.replacen(": ", "=", 1))));
        out.push_str(&options.collect::<Vec<_>>().join(" "));
        rest = after;
    }
    out.push_str(rest);
    out.replace("-s data.columns.", "--column ")
        .replace("-s data.format=", "--format ")
        .replace("data.format: ", "--format ")
        .replace("data.format and ", "--format and ")
        .replace(" with --column ", " --column ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_parts_are_told_with_the_nearest_and_turned_ones_are_turned() {
        let hint = |part: &str, column: &str| {
            let columns: Columns = [(part, column)].into_iter().collect();
            columns
                .check(FormatId::Sharegpt)
                .unwrap_err()
                .hint()
                .into_owned()
        };
        assert!(hint("conversation", "dialog").contains("did you mean conversations?"));
        assert!(hint("dialog", "conversations").contains("columns: {conversations: dialog}"));
        let good: Columns = [("conversations", "dialog")].into_iter().collect();
        assert!(good.check(FormatId::Sharegpt).is_ok());
    }

    #[test]
    fn a_fix_is_told_in_the_options_of_the_commands() {
        for (fix, option) in [
            (
                "data.format: alpaca with data.columns: {instruction: Q, output: a b}",
                "--format alpaca --column instruction=Q --column 'output=a b'",
            ),
            (
                "say data.format and data.columns: {part: column} (`-s data.format=text -s data.columns.text=X`)",
                "say --format and --column part=column (`--format text --column text=X`)",
            ),
            ("drop such rows", "drop such rows"),
        ] {
            assert_eq!(in_options(fix), option);
        }
    }
}
