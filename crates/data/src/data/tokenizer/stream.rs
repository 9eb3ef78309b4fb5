//! Decodes text token by token. A character may span several tokens: it is held back until it is complete.

use super::Tokenizer;

/// A UTF-8 character has at most four bytes, a token at least one: if there is no text after so many tokens there never will be.
const MAX_HELD: usize = 4;

/// The state of one decoded stream.
#[derive(Debug, Clone, Default)]
pub struct TextStream {
    /// The last shown token (for tokenizers that join words) and everything not shown yet.
    window: Vec<u32>,
    /// How many of `window` are shown.
    shown: usize,
}

impl TextStream {
    /// Takes the next token and returns the text that it completes; may be empty.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: u32) -> String {
        self.window.push(id);
        let text = self.pending(tokenizer);
        let held = self.window.len() - self.shown;
        if text.ends_with('\u{fffd}') && held < MAX_HELD {
            return String::new();
        }
        self.window = vec![id];
        self.shown = 1;
        text
    }

    /// The text that is still held back, incomplete characters as `�`.
    pub fn finish(&mut self, tokenizer: &Tokenizer) -> String {
        let text = self.pending(tokenizer);
        *self = TextStream::default();
        text
    }

    fn pending(&self, tokenizer: &Tokenizer) -> String {
        if self.shown == self.window.len() {
            return String::new();
        }
        let shown = tokenizer.decode(&self.window[..self.shown]);
        let all = tokenizer.decode(&self.window);
        match all.strip_prefix(&shown) {
            Some(rest) => rest.to_string(),
            None => tokenizer.decode(&self.window[self.shown..]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{TokenizerKind, bpe};
    use super::*;

    fn bytes() -> Tokenizer {
        bpe::Config {
            vocab_size: 257,
            ..Default::default()
        }
        .build("ab", "ab")
        .unwrap()
    }

    fn streamed(tokenizer: &Tokenizer, ids: &[u32]) -> Vec<String> {
        let mut stream = TextStream::default();
        let mut parts: Vec<String> = ids.iter().map(|id| stream.push(tokenizer, *id)).collect();
        parts.push(stream.finish(tokenizer));
        parts
    }

    #[test]
    fn characters_come_whole_or_not_yet() {
        let tokenizer = bytes();
        let ids = tokenizer.encode("aé€𝄞b").unwrap();
        assert_eq!(ids.len(), 1 + 2 + 3 + 4 + 1);
        let parts = streamed(&tokenizer, &ids);
        assert_eq!(parts, ["a", "", "é", "", "", "€", "", "", "", "𝄞", "b", ""]);
    }

    #[test]
    fn bytes_that_never_become_text_do_not_dam_the_stream() {
        let tokenizer = bytes();
        let half = tokenizer.encode("é").unwrap()[0];
        let parts = streamed(&tokenizer, &[half; 9]);
        assert_eq!(parts.concat(), "\u{fffd}".repeat(9));
        assert!(parts.iter().filter(|p| !p.is_empty()).count() >= 2);
        let tail = streamed(&tokenizer, &[half]);
        assert_eq!(tail, ["", "\u{fffd}"]);
    }

    #[test]
    fn the_parts_are_the_whole() {
        let text = &crate::embed::text("assets/corpora/tinyshakespeare.txt").unwrap()[..5000];
        let tokenizer = bpe::Config {
            vocab_size: 300,
            ..Default::default()
        }
        .build(text, text)
        .unwrap();
        let ids = tokenizer.encode(text).unwrap();
        assert_eq!(streamed(&tokenizer, &ids).concat(), text);
    }
}
