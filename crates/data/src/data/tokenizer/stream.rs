//! Decodes text token by token. A character may span several tokens: it is held back until it is complete.

use super::Tokenizer;

/// A UTF-8 character has at most four bytes, a token at least one: if so many tokens bring no text there never will be any.
const MAX_HELD: usize = 4;
/// Tokens that are decoded again for the next one, at most; reached where every token ends in the middle of a character.
const MAX_WINDOW: usize = 64;
/// So many last tokens contain the beginning of a character.
const TAIL: usize = 2 * MAX_HELD;
/// What incomplete and damaged characters decode to.
const REPLACEMENT: char = char::REPLACEMENT_CHARACTER;

/// The state of one decoded stream.
#[derive(Debug, Clone, Default)]
pub struct TextStream {
    /// Tokens that are decoded together: some that are shown in full, for tokenizers that join words, and those behind them.
    window: Vec<u32>,
    /// How many of `window` are shown in full.
    old: usize,
    /// The text of `window` that is shown.
    shown: String,
    /// Tokens since text came last.
    held: usize,
}

impl TextStream {
    /// A stream that continues a text. A space before its first word is kept, which decoders drop at the beginning of a text.
    pub fn behind(tokenizer: &Tokenizer, before: &[u32]) -> TextStream {
        let window = tail(tokenizer, before).to_vec();
        TextStream {
            old: window.len(),
            shown: decode(tokenizer, &window),
            window,
            held: 0,
        }
    }

    /// Takes the next token and returns the text that it completes; may be empty.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: u32) -> String {
        self.window.push(id);
        self.held += 1;
        let text = tokenizer.decode(&self.window);
        let complete = text.trim_end_matches(REPLACEMENT);
        let is_open = complete.len() < text.len();
        if is_open && self.held < MAX_HELD {
            return self.show_complete(tokenizer, complete);
        }
        self.held = 0;
        let new = self.rest(tokenizer, &text);
        // A token without text is no beginning: what follows would lose its space.
        if new.is_empty() && !is_open && self.window.len() < MAX_WINDOW {
            return new;
        }
        self.window.drain(..self.old);
        self.old = self.window.len();
        self.shown = tokenizer.decode(&self.window);
        new
    }

    /// The text that is still held back, incomplete characters as `�`.
    pub fn finish(&mut self, tokenizer: &Tokenizer) -> String {
        let text = self.rest(tokenizer, &decode(tokenizer, &self.window));
        *self = TextStream::default();
        text
    }

    /// What is new in `complete`, the text of the window up to a character that is not whole yet.
    fn show_complete(&mut self, tokenizer: &Tokenizer, complete: &str) -> String {
        let new = complete.strip_prefix(self.shown.as_str()).unwrap_or("");
        if new.is_empty() {
            return String::new();
        }
        let new = new.to_string();
        self.shown = complete.to_string();
        self.held = 0;
        if self.window.len() >= MAX_WINDOW {
            self.window.drain(..self.window.len() - TAIL);
            let text = tokenizer.decode(&self.window);
            self.shown = text.trim_end_matches(REPLACEMENT).to_string();
            self.old = 0;
        }
        new
    }

    fn rest(&self, tokenizer: &Tokenizer, text: &str) -> String {
        match text.strip_prefix(self.shown.as_str()) {
            Some(rest) => rest.to_string(),
            None => decode(tokenizer, &self.window[self.old..]),
        }
    }
}

fn decode(tokenizer: &Tokenizer, ids: &[u32]) -> String {
    match ids.is_empty() {
        true => String::new(),
        false => tokenizer.decode(ids),
    }
}

/// The last tokens of a text, from the beginning of a character on. None behind a special token: a text begins there.
fn tail<'a>(tokenizer: &Tokenizer, before: &'a [u32]) -> &'a [u32] {
    let is_special = |id: u32| {
        let mut added = tokenizer.added_tokens().into_iter();
        added.any(|token| token.special && token.id == id)
    };
    match before.last() {
        Some(id) if !is_special(*id) => {
            let is_whole = |from: &usize| !tokenizer.decode(&before[*from..]).contains(REPLACEMENT);
            let last = before.len() - 1;
            let mut places = (before.len().saturating_sub(TAIL)..=last).rev();
            &before[places.find(is_whole).unwrap_or(last)..]
        }
        _ => &[],
    }
}

impl Tokenizer {
    /// The text of ids that continue the text of `before`: with the space before its first word.
    pub fn decode_behind(&self, before: &[u32], ids: &[u32]) -> String {
        let before = tail(self, before);
        if before.is_empty() {
            return self.decode(ids);
        }
        let all = self.decode(&[before, ids].concat());
        match all.strip_prefix(self.decode(before).as_str()) {
            Some(text) => text.to_string(),
            None => self.decode(ids),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{TokenizerKind, bpe};
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

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

    const KOREAN: &str = "프로그램을 줄 단위로 스크롤할 수 없습니다. 찾을 수 없는 파일입니다: 졜렉프. \
        버퍼를 저장하지 않고 종료하려면 느낌표를 붙이십시오. 세션을 만들 수 없습니다. 스크립트를 읽을 수 없습니다. ";

    /// A vocabulary with tokens that end in the middle of one character and begin in another.
    fn korean(vocab_size: usize) -> Tokenizer {
        let text = KOREAN.repeat(20);
        bpe::Config {
            vocab_size,
            ..Default::default()
        }
        .build(&text, &text)
        .unwrap()
    }

    /// Four tokens in a row that each leave a character open were shown as damaged.
    #[test]
    fn the_parts_of_letters_of_several_bytes_are_the_whole() {
        for vocab_size in (257..340).step_by(3) {
            let tokenizer = korean(vocab_size);
            let ids = tokenizer.encode(KOREAN).unwrap();
            assert_eq!(streamed(&tokenizer, &ids).concat(), KOREAN, "{vocab_size}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn the_parts_of_any_letters_are_the_whole(text in "[가-힣一-十ぁ-ん😀-😏é a]{0,40}", vocab_size in 257_usize..300) {
            let tokenizer = korean(vocab_size);
            let ids = tokenizer.encode(&text).unwrap();
            prop_assert_eq!(streamed(&tokenizer, &ids).concat(), text);
        }
    }

    /// A byte-level BPE of the letters `a` and `é` with tokens of two and three bytes that end inside of `é`.
    fn cut_everywhere() -> Tokenizer {
        let tokens = ["a", "Ã", "©", "aÃ", "©aÃ"].into_iter();
        let vocab: serde_json::Map<String, Value> = tokens
            .zip(0..)
            .map(|(token, id)| (token.to_string(), id.into()))
            .collect();
        let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
        let json = json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": bytes, "post_processor": null, "decoder": bytes,
            "model": {"type": "BPE", "vocab": vocab, "merges": ["a Ã", "© aÃ"]},
        });
        Tokenizer::from_json(&json.to_string()).unwrap()
    }

    #[test]
    fn a_letter_that_is_open_after_every_token_does_not_dam_the_stream() {
        let text = "aé".repeat(200);
        let tokenizer = cut_everywhere();
        let ids = tokenizer.encode(&text).unwrap();
        assert_eq!(ids.len(), 201);
        let parts = streamed(&tokenizer, &ids);
        assert_eq!(parts.concat(), text);
        assert!(parts[1..200].iter().all(|part| part == "éa"), "{parts:?}");
    }

    /// In Llama 2's manner: spaces are `▁`, unknown characters their bytes, and the first space of a text is dropped.
    fn llama() -> Tokenizer {
        let bytes = (0..256).map(|byte| format!("<0x{byte:02X}>"));
        let words = ["▁", "▁we", "▁will", "▁s", "on"].map(String::from);
        let marks = ["<unk>", "<s>"].map(String::from).into_iter();
        let tokens = marks.chain(bytes).chain(words).zip(0..);
        let vocab: serde_json::Map<String, Value> =
            tokens.map(|(token, id)| (token, id.into())).collect();
        let json = json!({
            "version": "1.0", "truncation": null, "padding": null,
            "added_tokens": [{"id": 1, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true}],
            "normalizer": null, "pre_tokenizer": null, "post_processor": null,
            "decoder": {"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"}, {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
            "model": {"type": "BPE", "vocab": vocab, "merges": [], "unk_token": "<unk>", "byte_fallback": true},
        });
        Tokenizer::from_json(&json.to_string()).unwrap()
    }

    fn behind(tokenizer: &Tokenizer, before: &[u32], ids: &[u32]) -> String {
        let mut stream = TextStream::behind(tokenizer, before);
        let mut text: String = ids.iter().map(|id| stream.push(tokenizer, *id)).collect();
        text.push_str(&stream.finish(tokenizer));
        assert_eq!(tokenizer.decode_behind(before, ids), text);
        text
    }

    #[test]
    fn a_text_that_goes_on_keeps_the_space_before_its_first_word() {
        let tokenizer = llama();
        let ids = |tokens: &[&str]| -> Vec<u32> {
            let ids = tokens.iter().map(|token| tokenizer.id(token).unwrap());
            ids.collect()
        };
        let new = ids(&["▁s", "on"]);
        assert_eq!(behind(&tokenizer, &ids(&["▁we", "▁will"]), &new), " son");
        assert_eq!(behind(&tokenizer, &ids(&["▁will", "▁"]), &new), " son");
        // A text begins where there is nothing, and behind a mark.
        assert_eq!(behind(&tokenizer, &[], &new), "son");
        assert_eq!(behind(&tokenizer, &ids(&["<s>"]), &new), "son");
    }

    /// The decoder calls a run of bytes damaged as a whole, so what is decoded again begins with a character.
    #[test]
    fn characters_in_single_bytes_follow_each_other() {
        let tokenizer = llama();
        let text = "日本😀é";
        let byte = |byte: u8| tokenizer.id(&format!("<0x{byte:02X}>")).unwrap();
        let ids: Vec<u32> = text.bytes().map(byte).collect();
        assert_eq!(streamed(&tokenizer, &ids).concat(), text);
        assert_eq!(behind(&tokenizer, &ids[..3], &ids[3..]), "本😀é");
    }
}
