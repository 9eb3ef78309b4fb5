//! 1 if the completion matches a pattern.

use super::{Answer, Reward};
use crate::base::registry::Entry;
use serde::{Deserialize, Serialize};
use std::sync::{Mutex, PoisonError};

pub const ENTRY: Entry = Entry {
    id: "regex",
    title: "Pattern",
    summary: "1 if a regular expression matches in the answer, else 0.",
    source: "syntax of the regex crate, docs.rs/regex",
};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// What is searched for; `^` and `$` are the ends of the answer, `(?s)` lets `.` match line ends.
    pub pattern: String,
    /// Search all that a model wrote that thinks first, with its thoughts and marks; without it the final message.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub whole: bool,
}

/// The pattern compiled last: a run asks for the same few again and again.
static COMPILED: Mutex<Vec<(String, ::regex::Regex)>> = Mutex::new(Vec::new());
/// Patterns that are kept.
const KEPT: usize = 16;

fn compiled(pattern: &str) -> Result<::regex::Regex, ::regex::Error> {
    let mut kept = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, regex)) = kept.iter().find(|(known, _)| known == pattern) {
        return Ok(regex.clone());
    }
    let regex = ::regex::Regex::new(pattern)?;
    kept.truncate(KEPT - 1);
    kept.insert(0, (pattern.to_string(), regex.clone()));
    Ok(regex)
}

impl Reward for Config {
    fn judges_message(&self) -> bool {
        !self.whole
    }

    fn score(&self, answer: &Answer) -> Result<f64, String> {
        let regex = compiled(&self.pattern).map_err(|e| e.to_string())?;
        let text = match self.whole {
            true => answer.completion(),
            false => &answer.text,
        };
        Ok(f64::from(u8::from(regex.is_match(text.trim()))))
    }

    fn fault(&self) -> Option<(String, String)> {
        if self.pattern.is_empty() {
            let fix = "set the pattern: {regex: {pattern: '^[0-9]+$'}}";
            return Some(("an empty pattern matches everything".into(), fix.into()));
        }
        let error = compiled(&self.pattern).err()?;
        Some((error.to_string(), "fix the pattern".into()))
    }
}
