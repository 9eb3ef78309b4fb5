//! Rewards completions in the requested language: 1, else 0.

use super::{Answer, Reward};
use crate::base::registry::Entry;
use serde::{Deserialize, Serialize};
use whatlang::{Lang, detect};

pub const ENTRY: Entry = Entry {
    id: "language",
    title: "Language",
    summary: "1 if the answer is in the given language; 0 if it is surely in another one or too short to decide.",
    source: "DeepSeek-R1's language consistency reward, arXiv 2501.12948; trigrams: Cavnar and Trenkle 1994",
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// ISO 639-3: eng, deu, fra, spa, cmn, jpn, …
    pub language: String,
    /// The least number of letters for a decision.
    #[schemars(range(min = 1))]
    pub letters: usize,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            language: "eng".into(),
            letters: 20,
        }
    }
}

impl Reward for Config {
    /// The thoughts are to be in the language, too: that is what the reward was made for.
    fn judges_message(&self) -> bool {
        false
    }

    fn reads(&self, answer: &Answer) -> Option<bool> {
        Some(self.can_tell(&answer.words()))
    }

    fn score(&self, answer: &Answer) -> Result<f64, String> {
        let text = answer.words();
        if !self.can_tell(&text) {
            return Ok(0.0);
        }
        let found = detect(&text);
        let wanted = Lang::from_code(&*self.language);
        // Between close languages trigrams guess: only a sure one counts against the answer.
        let right = found.is_some_and(|found| {
            Some(found.lang()) == wanted
                || (!found.is_reliable() && same_script(&self.language, &text))
        });
        Ok(f64::from(u8::from(right)))
    }

    fn fault(&self) -> Option<(String, String)> {
        Lang::from_code(&*self.language).is_none().then(|| {
            let what = format!("unknown language {:?}", self.language);
            (what, "write its ISO 639-3 code: eng, deu, fra, spa, por, ita, rus, cmn, jpn, kor, ara, hin".into())
        })
    }
}

impl Config {
    fn can_tell(&self, text: &str) -> bool {
        text.chars().filter(|c| c.is_alphabetic()).count() >= self.letters
    }
}

/// Whether the text is in the script that the language is written in.
fn same_script(language: &str, text: &str) -> bool {
    let (Some(wanted), Some(found)) = (Lang::from_code(language), detect(text)) else {
        return false;
    };
    found.script().langs().contains(&wanted)
}

#[cfg(test)]
mod tests {
    use super::super::Reference;
    use super::*;

    fn score(language: &str, text: &str) -> f64 {
        let config = Config {
            language: language.into(),
            ..Config::default()
        };
        assert_eq!(config.fault(), None);
        let answer = Answer {
            prompt: String::new(),
            text: text.into(),
            tokens: 1,
            ended: true,
            behind: None,
            thinking: None,
            reference: Reference::default(),
        };
        config.score(&answer).unwrap()
    }

    #[test]
    fn answers_in_the_language_count_and_those_in_another_do_not() {
        let english = "First we add the two numbers, and then we divide the sum by the number of people in the room.";
        let german = "Zuerst zählen wir die beiden Zahlen zusammen, und dann teilen wir die Summe durch die Zahl der Menschen.";
        let chinese = "首先我们把这两个数字加起来，然后把总和除以房间里的人数，最后得到平均值。";
        for (language, text) in [("eng", english), ("deu", german), ("cmn", chinese)] {
            assert_eq!(score(language, text), 1.0, "{language}");
        }
        assert_eq!(score("eng", german), 0.0);
        assert_eq!(score("eng", chinese), 0.0);
        assert_eq!(score("cmn", english), 0.0);
        assert_eq!(score("eng", "42"), 0.0, "too short to tell");
        let odd = Config {
            language: "english".into(),
            ..Config::default()
        };
        assert!(odd.fault().unwrap().0.contains("unknown language"));
    }
}
