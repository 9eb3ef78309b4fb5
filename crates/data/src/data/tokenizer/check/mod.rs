//! What a tokenizer does to text, found by using it: losses in a round trip, tokens that are split but should stay whole,
//! bytes per token by language, unknown tokens.

mod findings;
mod samples;

pub use samples::{SAMPLES, Sample};

use super::Tokenizer;
use crate::base::finding::Finding;
use serde::Serialize;

/// Everything that was found out.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Its origin and kind.
    pub place: String,
    pub origin: String,
    pub vocab_size: usize,
    pub findings: Vec<Finding>,
    /// By language, kind of code or file.
    pub fertility: Vec<Fertility>,
    /// Tokens of the vocabulary that the files used; none without files.
    pub used: Option<usize>,
}

/// How finely a text is cut.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fertility {
    pub name: String,
    pub bytes: u64,
    /// Runs of letters, digits and signs between spaces; in scripts without spaces that is a sentence or more.
    pub words: u64,
    pub tokens: u64,
    /// Unknown tokens, or characters missing in a character vocabulary.
    pub unknown: u64,
}

impl Fertility {
    pub fn bytes_per_token(&self) -> f64 {
        self.bytes as f64 / self.tokens.max(1) as f64
    }

    pub fn tokens_per_word(&self) -> f64 {
        self.tokens as f64 / self.words.max(1) as f64
    }

    pub fn unknown_share(&self) -> f64 {
        self.unknown as f64 / self.tokens.max(1) as f64
    }
}

/// Tries a tokenizer on the built-in samples and on `files` (name, text).
pub fn check(tokenizer: &Tokenizer, place: &str, files: &[(String, String)]) -> Report {
    let mut fertility: Vec<Fertility> = SAMPLES
        .iter()
        .map(|sample| measure(tokenizer, sample.name, sample.text, &mut |_| {}))
        .collect();
    let mut seen = vec![false; tokenizer.vocab_size()];
    for (name, text) in files {
        fertility.push(measure(tokenizer, name, text, &mut |id| {
            if let Some(seen) = seen.get_mut(id as usize) {
                *seen = true;
            }
        }));
    }
    Report {
        place: place.to_string(),
        origin: tokenizer.origin().to_string(),
        vocab_size: tokenizer.vocab_size(),
        findings: findings::all(tokenizer),
        fertility,
        used: (!files.is_empty()).then(|| seen.iter().filter(|seen| **seen).count()),
    }
}

fn measure(tokenizer: &Tokenizer, name: &str, text: &str, each: &mut dyn FnMut(u32)) -> Fertility {
    let mut fertility = Fertility {
        name: name.to_string(),
        bytes: text.len() as u64,
        words: text.split_whitespace().count() as u64,
        tokens: 0,
        unknown: 0,
    };
    match tokenizer.encode(text) {
        Ok(ids) => {
            let unk = tokenizer.unk();
            fertility.tokens = ids.len() as u64;
            fertility.unknown = ids.iter().filter(|id| Some(**id) == unk).count() as u64;
            ids.into_iter().for_each(each);
        }
        // A vocabulary of characters: those that it has not are unknown.
        Err(_) => {
            for c in text.chars() {
                fertility.tokens += 1;
                match tokenizer.id(c.encode_utf8(&mut [0; 4])) {
                    Some(id) => each(id),
                    None => fertility.unknown += 1,
                }
            }
        }
    }
    fertility
}

#[cfg(test)]
mod tests {
    use super::super::{ChatMarkers, TokenizerKind, bpe, char, wordpiece};
    use super::*;
    use crate::base::finding::Status;

    fn corpus() -> &'static str {
        &crate::embed::text("assets/corpora/tinyshakespeare.txt").unwrap()[..30_000]
    }

    fn verdict(report: &Report, id: &str) -> Status {
        let finding = report.findings.iter().find(|f| f.id == id);
        finding.unwrap_or_else(|| panic!("no finding {id}")).status
    }

    #[test]
    fn bytes_lose_nothing() {
        let config = bpe::Config {
            vocab_size: 400,
            chat_markers: ChatMarkers::Chatml,
            ..Default::default()
        };
        let report = check(&config.build(corpus(), "").unwrap(), "x", &[]);
        let bad = report.findings.iter().find(|f| f.status != Status::Pass);
        assert!(bad.is_none(), "{bad:?}");
        assert!(
            report
                .fertility
                .iter()
                .all(|f| f.unknown == 0 && f.bytes_per_token() >= 1.0)
        );
        let english = &report.fertility[0];
        let chinese = report
            .fertility
            .iter()
            .find(|f| f.name == "Chinese")
            .unwrap();
        assert!(english.bytes_per_token() > 1.5 && chinese.bytes_per_token() < 1.2);
    }

    #[test]
    fn what_wordpiece_loses_is_found() {
        let config = wordpiece::Config {
            vocab_size: 500,
            ..Default::default()
        };
        let report = check(&config.build(corpus(), "").unwrap(), "x", &[]);
        assert_eq!(verdict(&report, "round_trip"), Status::Fail);
        assert_eq!(verdict(&report, "newlines"), Status::Fail);
        assert_eq!(verdict(&report, "specials_whole"), Status::Pass);
        assert_eq!(verdict(&report, "unknown"), Status::Fail);
    }

    #[test]
    fn characters_have_no_end_and_no_strangers() {
        let tokenizer = char::Config {}.build("", corpus()).unwrap();
        let files = [("own".to_string(), corpus().to_string())];
        let report = check(&tokenizer, "x", &files);
        assert_eq!(verdict(&report, "end"), Status::Warn);
        assert_eq!(verdict(&report, "unknown"), Status::Fail);
        let own = report.fertility.last().unwrap();
        assert_eq!((own.unknown, own.tokens), (0, own.bytes));
        assert_eq!(report.used, Some(tokenizer.vocab_size()));
        let russian = report
            .fertility
            .iter()
            .find(|f| f.name == "Russian")
            .unwrap();
        assert!(russian.unknown_share() > 0.5);
    }

    #[test]
    fn samples_are_in_different_scripts_and_end_their_lines() {
        for sample in SAMPLES {
            assert!(
                sample.text.ends_with('\n') && sample.text.len() > 80,
                "{}",
                sample.name
            );
        }
    }
}
