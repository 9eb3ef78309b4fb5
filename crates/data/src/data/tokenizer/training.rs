//! Training tokenizers on text with the tokenizers library: shared by the kinds.

use super::Texts;
use super::library::pieces;
use super::pipeline::Cut;
use crate::data::DataError;
use serde::{Deserialize, Serialize};
use tokenizers::AddedToken;
use tokenizers::models::TrainerWrapper;

/// The token that ends a document in every vocabulary made here.
pub const END_OF_TEXT: &str = "<|endoftext|>";

/// Texts are counted in pieces of about this size.
const PIECE_BYTES: usize = 64 << 10;

/// Markers of a chat template as special tokens, never split.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ChatMarkers {
    /// Those of the built-in template that turns are rendered with; none for plain text and for templates of files.
    #[default]
    Auto,
    /// None.
    None,
    /// `<|im_start|>` and `<|im_end|>`: ChatML, Qwen, SmolLM.
    Chatml,
    /// `<|start_header_id|>`, `<|end_header_id|>`, `<|eot_id|>` and their kin: Llama 3.
    Llama3,
    /// `[INST]` and `[/INST]`: Mistral.
    Mistral,
    /// `<start_of_turn>` and `<end_of_turn>`: Gemma.
    Gemma,
    /// `<|system|>`, `<|user|>`, `<|assistant|>` and `<|end|>`: Phi-3.
    Phi3,
}

impl ChatMarkers {
    /// Those with marks, by their words in a spec and on a command line.
    pub const WORDS: [(&str, ChatMarkers); 5] = [
        ("chatml", ChatMarkers::Chatml),
        ("llama3", ChatMarkers::Llama3),
        ("mistral", ChatMarkers::Mistral),
        ("gemma", ChatMarkers::Gemma),
        ("phi3", ChatMarkers::Phi3),
    ];

    pub fn tokens(self) -> &'static [&'static str] {
        match self {
            ChatMarkers::Auto | ChatMarkers::None => &[],
            ChatMarkers::Chatml => &["<|im_start|>", "<|im_end|>"],
            ChatMarkers::Llama3 => &[
                "<|begin_of_text|>",
                "<|start_header_id|>",
                "<|end_header_id|>",
                "<|eot_id|>",
                "<|eom_id|>",
                "<|python_tag|>",
            ],
            ChatMarkers::Mistral => &["<s>", "</s>", "[INST]", "[/INST]"],
            ChatMarkers::Gemma => &["<bos>", "<start_of_turn>", "<end_of_turn>"],
            ChatMarkers::Phi3 => &["<|system|>", "<|user|>", "<|assistant|>", "<|end|>"],
        }
    }

    /// The built-in template that writes these marks.
    pub fn template(self) -> Option<&'static str> {
        let mut words = ChatMarkers::WORDS.into_iter();
        words
            .find(|(_, markers)| *markers == self)
            .map(|(word, _)| word)
    }

    /// The marks of a built-in template.
    pub fn of_template(name: &str) -> ChatMarkers {
        match name {
            "chatml" | "qwen" | "qwen3" => ChatMarkers::Chatml,
            "llama3" => ChatMarkers::Llama3,
            "mistral" => ChatMarkers::Mistral,
            "gemma" | "gemma3" => ChatMarkers::Gemma,
            "phi3" => ChatMarkers::Phi3,
            _ => ChatMarkers::None,
        }
    }
}

/// All special tokens of a new vocabulary, in the order of their ids: what the kind needs, the end of a text, the chat's
/// markers, the user's own. Each once.
pub fn specials(kind: &[&str], markers: ChatMarkers, own: &[String]) -> Vec<AddedToken> {
    let mut names: Vec<&str> = Vec::new();
    let all = kind
        .iter()
        .copied()
        .chain([END_OF_TEXT])
        .chain(markers.tokens().iter().copied())
        .chain(own.iter().map(String::as_str));
    for name in all.filter(|name| !name.is_empty()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
        .into_iter()
        .map(|name| AddedToken::from(name, true).normalized(false))
        .collect()
}

/// A text that is in memory, as texts that come.
pub fn in_pieces(text: &str) -> impl Iterator<Item = String> + Send {
    pieces(text, PIECE_BYTES, Cut::AfterWord, &[false; 256])
        .into_iter()
        .map(String::from)
}

/// Longest run of letters without white space that is learned from at once, in bytes. Counting merges takes time with the
/// square of it: base64, DNA and minified code have runs of megabytes. No token is nearly as long.
const MAX_WORD_BYTES: usize = 256;

/// A text as it is, or cut where a run without white space is too long.
fn in_bounded_words(text: String) -> Vec<String> {
    let (mut cuts, mut word) = (vec![0], 0);
    for (at, c) in text.char_indices() {
        if c.is_whitespace() {
            word = at;
        } else if at - word >= MAX_WORD_BYTES {
            cuts.push(at);
            word = at;
        }
    }
    if cuts.len() == 1 {
        return vec![text];
    }
    cuts.push(text.len());
    let pieces = cuts.windows(2);
    pieces
        .map(|pair| text[pair[0]..pair[1]].to_string())
        .collect()
}

/// Trains, and hands out the text of the tokenizer.json. `kind` is for messages.
///
/// # Errors
/// Whatever the library finds wanting.
pub fn train(
    kind: &str,
    mut tokenizer: tokenizers::Tokenizer,
    mut trainer: TrainerWrapper,
    texts: &mut Texts,
) -> Result<String, DataError> {
    let texts = &mut texts.flat_map(in_bounded_words);
    tokenizer
        .train(&mut trainer, texts)
        .and_then(|tokenizer| tokenizer.to_string(true))
        .map_err(|e| error(kind, e))
}

/// What went wrong while a tokenizer of this kind was trained.
pub fn error(kind: &str, what: impl ToString) -> DataError {
    DataError::source(
        format!("training the {kind} tokenizer failed:"),
        what.to_string(),
        "another vocab_size, another kind, or more text",
    )
}

/// A vocabulary too small for what has to be in it.
///
/// # Errors
/// Says how many tokens are taken already.
pub fn check_size(kind: &str, vocab_size: usize, taken: usize) -> Result<(), DataError> {
    if vocab_size >= taken {
        return Ok(());
    }
    Err(DataError::source(
        format!("the {kind} tokenizer:"),
        format!(
            "vocab_size {vocab_size} is less than the {taken} tokens that are in every vocabulary of this kind"
        ),
        format!("a vocab_size of {} or more", taken + 1),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The spec and data.md had phi3, `llmtui tokenizer train` did not.
    #[test]
    fn every_set_of_markers_has_its_word_in_one_list() {
        for (word, markers) in ChatMarkers::WORDS {
            assert_eq!(
                serde_json::from_value::<ChatMarkers>(word.into()).unwrap(),
                markers
            );
            assert!(!markers.tokens().is_empty(), "{word}");
        }
        let schema = schemars::schema_for!(ChatMarkers).to_value().to_string();
        let words = ["auto", "none"].into_iter();
        let words: Vec<String> = words
            .chain(ChatMarkers::WORDS.map(|(word, _)| word))
            .map(|word| format!("\"const\":\"{word}\""))
            .collect();
        assert_eq!(
            schema.matches("\"const\":").count(),
            words.len(),
            "{schema}"
        );
        assert!(words.iter().all(|word| schema.contains(word)), "{schema}");
    }

    #[test]
    fn only_overlong_words_are_cut_and_nothing_is_lost() {
        let plain = "some words, and a longer-one\n".repeat(40);
        assert_eq!(in_bounded_words(plain.clone()), [plain]);
        let long = format!("a {} b", "äx".repeat(5_000));
        let cut = in_bounded_words(long.clone());
        assert!(cut.len() > 40);
        assert_eq!(cut.concat(), long);
        let widest = |piece: &String| piece.split_whitespace().map(str::len).max().unwrap_or(0);
        assert!(cut.iter().map(widest).max() <= Some(MAX_WORD_BYTES + 4));
    }
}
