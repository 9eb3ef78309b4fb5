//! How a model's tokenizer encodes the data: characters per token, and unknown characters.

use crate::data::DataError;
use crate::data::tokenizer::Tokenizer;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Pieces of text that are tokenized to count its tokens, and bytes of each. They come from all over the text: its beginning
/// may be of another kind than the rest.
const PIECES: usize = 32;
const PIECE_BYTES: usize = 4 << 10;
/// Distinct characters that are looked for in a vocabulary.
const LETTERS: usize = 4_096;
/// Characters that a message names.
const NAMED: usize = 5;

/// What is kept of data to be tokenized.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sample {
    /// Pieces of what is learned.
    text: String,
    /// The characters that were seen, each once.
    letters: String,
}

impl Sample {
    pub fn of(text: &str, letters: &BTreeSet<char>) -> Sample {
        let pieces = match text.len() <= PIECES * PIECE_BYTES {
            true => text.into(),
            false => (0..PIECES).map(|i| piece(text, i)).collect(),
        };
        Sample {
            text: pieces,
            letters: letters.iter().take(LETTERS).collect(),
        }
    }
}

impl Sample {
    /// The characters of the data, each once.
    pub fn letters(&self) -> &str {
        &self.letters
    }
}

/// The piece of this number, from a character's beginning to one's end.
fn piece(text: &str, number: usize) -> &str {
    let from = text.floor_char_boundary(text.len() / PIECES * number);
    let end = text.floor_char_boundary(from + PIECE_BYTES);
    &text[from..end]
}

/// A sample as a model reads it.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    pub sample: Arc<Sample>,
    /// `None` where nothing could be read.
    pub chars_per_token: Option<f64>,
    /// Why a run of this model on these data fails; empty if it does not.
    pub unreadable: String,
}

impl Reading {
    pub fn of(tokenizer: &Tokenizer, sample: &Arc<Sample>) -> Reading {
        let tokens = tokenizer.encode(&sample.text).map_or(0, |ids| ids.len());
        let chars = sample.text.chars().count();
        Reading {
            chars_per_token: (tokens > 0).then(|| chars as f64 / tokens as f64),
            unreadable: unreadable(tokenizer, &sample.letters).unwrap_or_default(),
            sample: sample.clone(),
        }
    }
}

fn unreadable(tokenizer: &Tokenizer, letters: &str) -> Option<String> {
    let error = tokenizer.encode(letters).err()?;
    let DataError::UnknownCharacter { known, .. } = &error else {
        return None;
    };
    let lacks = |c: &char| tokenizer.encode(c.encode_utf8(&mut [0; 4])).is_err();
    let strange: Vec<char> = letters.chars().filter(lacks).collect();
    let named: Vec<String> = strange
        .iter()
        .take(NAMED)
        .map(|c| format!("{c:?}"))
        .collect();
    let more = match strange.len() > NAMED {
        true => " …",
        false => "",
    };
    let what = match strange.len() {
        1 => "a character of the data is".into(),
        n => format!("{n} characters of the data are"),
    };
    Some(format!(
        "{what} not in its vocabulary ({}{more}), {known}; {}",
        named.join(" "),
        error.hint()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::tokenizer::TokenizerConfig;

    fn sample(text: &str) -> Arc<Sample> {
        Arc::new(Sample::of(text, &text.chars().collect()))
    }

    #[test]
    fn a_vocabulary_of_characters_counts_them_and_names_those_that_it_lacks() {
        let characters = TokenizerConfig::Char(Default::default());
        let tokenizer = characters.build("to be\n", "to be\n").unwrap();
        let known = Reading::of(&tokenizer, &sample("be to be"));
        assert_eq!(known.chars_per_token, Some(1.0));
        assert_eq!(known.unreadable, "");
        let other = Reading::of(&tokenizer, &sample("to bé or not"));
        assert_eq!(other.chars_per_token, None);
        let why = &other.unreadable;
        for part in [
            "3 characters of the data",
            "'é'",
            "'n'",
            "which has 6",
            "tokenizer",
        ] {
            assert!(why.contains(part), "{part}: {why}");
        }
    }

    #[test]
    fn a_long_text_is_sampled_all_over_in_whole_characters() {
        let half = 20 * PIECES * PIECE_BYTES;
        let text = format!("a{}{}", "é".repeat(half), "x".repeat(2 * half));
        let sample = sample(&text);
        assert!(sample.text.len() <= PIECES * PIECE_BYTES);
        let share = sample.text.matches('x').count() as f64 / sample.text.len() as f64;
        assert!((0.45..0.55).contains(&share), "{share}");
        assert_eq!(sample.letters, "axé");
        let short = "é".repeat(9);
        assert_eq!(super::Sample::of(&short, &BTreeSet::new()).text, short);
    }
}
