//! 1 if the completion equals the reference exactly.

use super::{Answer, Reward, right_answer};
use crate::base::registry::Entry;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "exact",
    title: "Exact match",
    summary: "1 if the answer equals the row's answer, ignoring surrounding whitespace; else 0.",
    source: "SQuAD's exact match, arXiv 1606.05250",
};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Upper and lower case are the same.
    pub ignore_case: bool,
    /// Only what stands behind the last occurrence of this text counts; an answer without it is wrong.
    pub after: Option<String>,
}

impl Reward for Config {
    fn score(&self, answer: &Answer) -> Result<f64, String> {
        let right = right_answer(answer)?.trim();
        let said = match &self.after {
            Some(mark) => answer.text.rsplit_once(mark.as_str()).map(|(_, said)| said),
            None => Some(&*answer.text),
        };
        let same = said
            .map(str::trim)
            .is_some_and(|said| match self.ignore_case {
                true => said.to_lowercase() == right.to_lowercase(),
                false => said == right,
            });
        Ok(f64::from(u8::from(same)))
    }
}
