//! 1 if the completion consists of its tags: `<think>…</think><answer>…</answer>`.

use super::{Answer, Reward};
use crate::base::registry::Entry;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "tags",
    title: "Format tags",
    summary: "1 if the answer consists of the given tags, each once and in order; else 0.",
    source: "DeepSeek-R1's format reward, arXiv 2501.12948",
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Names of the tags, in order.
    pub tags: Vec<String>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            tags: vec!["think".into(), "answer".into()],
        }
    }
}

impl Reward for Config {
    fn judges_message(&self) -> bool {
        false
    }

    fn score(&self, answer: &Answer) -> Result<f64, String> {
        let text = answer.completion().trim();
        let first = self.tags.first().map(|tag| format!("<{tag}>"));
        // A prompt may have opened it.
        let opened = first.filter(|open| {
            answer.prompt.trim_end().ends_with(open.as_str()) && !text.starts_with(open.as_str())
        });
        let whole = opened.map_or_else(|| text.into(), |open| format!("{open}{text}"));
        Ok(f64::from(u8::from(self.fits(&whole))))
    }

    fn fault(&self) -> Option<(String, String)> {
        let good = |tag: &String| !tag.is_empty() && !tag.contains(['<', '>', '/']);
        let all = !self.tags.is_empty() && self.tags.iter().all(good);
        (!all).then(|| {
            let what = format!("the tags {:?}", self.tags);
            (
                what,
                "name one or more without brackets: tags: [think, answer]".into(),
            )
        })
    }
}

impl Config {
    fn fits(&self, text: &str) -> bool {
        let mut rest = text;
        for tag in &self.tags {
            let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
            let Some(inside) = rest.trim_start().strip_prefix(&open) else {
                return false;
            };
            let Some((inside, after)) = inside.split_once(&close) else {
                return false;
            };
            let opens = |tag: &String| inside.contains(&format!("<{tag}>"));
            if self.tags.iter().any(opens) {
                return false;
            }
            rest = after;
        }
        rest.trim().is_empty()
    }
}
