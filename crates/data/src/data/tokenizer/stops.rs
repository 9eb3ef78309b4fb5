//! Detects stop strings in an answer's tokens while they are sampled. Where text is streamed, no part of a stop string may be
//! shown: that is up to the chat.

use super::Tokenizer;
use std::ops::ControlFlow;

/// Texts that end an answer, of a tokenizer.
#[derive(Debug, Clone)]
pub struct Stops<'a> {
    tokenizer: &'a Tokenizer,
    stops: &'a [String],
    reach: usize,
}

/// Where the earliest of some texts begins. Empty ones are everywhere and mean nothing.
pub fn stop_at(text: &str, stops: &[String]) -> Option<usize> {
    let stops = stops.iter().filter(|stop| !stop.is_empty());
    stops.filter_map(|stop| text.find(stop.as_str())).min()
}

impl Tokenizer {
    /// To look for texts that end an answer.
    pub fn stops<'a>(&'a self, stops: &'a [String]) -> Stops<'a> {
        let longest = stops.iter().map(String::len).max().unwrap_or(0);
        Stops {
            tokenizer: self,
            stops,
            // A text of n bytes lies in the last n tokens. One token more: decoders like SentencePiece's drop a space in
            // front of the first.
            reach: if longest == 0 { 0 } else { longest + 1 },
        }
    }
}

impl Stops<'_> {
    /// How many of the last tokens have to be looked at after each token.
    pub fn lookback(&self) -> usize {
        self.reach
    }

    /// Whether an answer ends with its last token; at least the last [`Stops::lookback`] are given.
    pub fn check(&self, ids: &[u32]) -> ControlFlow<()> {
        let tail = &ids[ids.len().saturating_sub(self.reach)..];
        match !tail.is_empty() && stop_at(&self.tokenizer.decode(tail), self.stops).is_some() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// An answer's text up to the earliest of the stop texts, and whether one was there.
    pub fn text(&self, ids: &[u32]) -> (String, bool) {
        self.text_behind(&[], ids)
    }

    /// The same of a text that continues another, with the space before its first word.
    pub fn text_behind(&self, before: &[u32], ids: &[u32]) -> (String, bool) {
        let mut text = self.tokenizer.decode_behind(before, ids);
        let found = stop_at(&text, self.stops);
        text.truncate(found.unwrap_or(text.len()));
        (text, found.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stops(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_string()).collect()
    }

    /// The index of the token after which an answer ends.
    fn ends_at(tokenizer: &Tokenizer, words: &[&str], ids: &[u32]) -> Option<usize> {
        let words = stops(words);
        let stops = tokenizer.stops(&words);
        (0..ids.len()).find(|at| stops.check(&ids[..=*at]).is_break())
    }

    #[test]
    fn the_earliest_stop_text_cuts() {
        let words = stops(&["END", "\n\n", ""]);
        assert_eq!(stop_at("ab\n\ncEND", &words), Some(2));
        assert_eq!(stop_at("abc", &words), None);
        let tokenizer = Tokenizer::from_json(&library("abc")).unwrap();
        let ids = tokenizer.encode("abcb").unwrap();
        let text = |words: &[&str]| tokenizer.stops(&stops(words)).text(&ids);
        assert_eq!(text(&["b"]), ("a".into(), true));
        assert_eq!(text(&["d", ""]), ("abcb".into(), false));
        assert_eq!(ends_at(&tokenizer, &["cb", "bc"], &ids), Some(3));
        assert_eq!(ends_at(&tokenizer, &[""], &ids), None);
    }

    /// SentencePiece's decoder drops the space in front of a text: of the last token of all alone it made nothing, and the
    /// answer went on after its stop text.
    #[test]
    fn a_stop_text_that_begins_with_a_space_ends_the_answer_at_once() {
        let tokenizer = Tokenizer::from_json(&library("a b")).unwrap();
        let ids = tokenizer.encode("a b a").unwrap();
        let text = tokenizer.decode(&ids);
        assert_eq!(text, "a b a");
        for stop in [" ", " b"] {
            let at = ends_at(&tokenizer, &[stop], &ids).unwrap();
            let before = tokenizer.decode(&ids[..=at]);
            assert_eq!(
                before,
                text[..text.find(stop).unwrap() + stop.len()],
                "{stop:?}"
            );
        }
    }

    /// One token a character, in SentencePiece's manner.
    fn library(letters: &str) -> String {
        let mut vocab: Vec<String> = letters
            .chars()
            .map(|c| c.to_string().replace(' ', "▁"))
            .collect();
        vocab.push("▁".into());
        vocab.sort_unstable();
        vocab.dedup();
        let vocab: serde_json::Map<String, serde_json::Value> = vocab
            .into_iter()
            .zip(0..)
            .map(|(word, id)| (word, id.into()))
            .collect();
        let space = serde_json::json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": false});
        serde_json::json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": space, "post_processor": null, "decoder": space,
            "model": {"type": "BPE", "vocab": vocab, "merges": []},
        })
        .to_string()
    }
}
