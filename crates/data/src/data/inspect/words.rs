//! Texts as sequences of word hashes, and their n-grams: the basis for duplicates, overlap and contamination. Case and
//! punctuation are ignored; in scripts without spaces each character is a word.

use crate::base::rng::mix64;

/// 2⁶⁴ divided by the golden ratio, odd: the step of SplitMix64.
pub(super) const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Adds the word hashes of a text.
pub(super) fn push_words(text: &str, words: &mut Vec<u64>) {
    let mut word: Option<u64> = None;
    for c in text.chars() {
        if !c.is_alphanumeric() {
            words.extend(word.take().map(mix64));
            continue;
        }
        if stands_alone(c) {
            words.extend(word.take().map(mix64));
            words.push(mix64(grow(STEP, c)));
            continue;
        }
        for c in c.to_lowercase() {
            word = Some(grow(word.unwrap_or(STEP), c));
        }
    }
    words.extend(word.map(mix64));
}

fn grow(hash: u64, c: char) -> u64 {
    // FNV-1a over code points; `mix64` spreads the result.
    (hash ^ u64::from(u32::from(c))).wrapping_mul(0x0000_0100_0000_01b3)
}

/// Letters of scripts that are written without spaces.
fn stands_alone(c: char) -> bool {
    matches!(c, '\u{0e00}'..='\u{0eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}' | '\u{3040}'..='\u{30ff}'
        | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{323af}')
}

/// Hashes of the n-grams of a text, in order; a text shorter than `n` words has one gram, itself; a text without words none.
pub(super) fn grams(words: &[u64], n: usize) -> impl Iterator<Item = u64> + '_ {
    let n = n.min(words.len());
    let windows = (n > 0).then(|| words.windows(n));
    windows.into_iter().flatten().map(|gram| {
        mix64(gram.iter().fold(0, |hash: u64, word| {
            hash.wrapping_mul(STEP).wrapping_add(*word)
        }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<u64> {
        let mut out = Vec::new();
        push_words(text, &mut out);
        out
    }

    #[test]
    fn case_and_punctuation_do_not_count() {
        assert_eq!(words("To be, or NOT to be?"), words("to be or not to be"));
        assert_ne!(words("to be"), words("be to"));
        assert_eq!(words("ÄPFEL"), words("äpfel"));
        assert_eq!(words("日本語 ok").len(), 4);
        assert!(words(" … ").is_empty());
    }

    #[test]
    fn a_gram_is_a_window_in_its_order() {
        let text = words("a b c a b");
        let pairs: Vec<u64> = grams(&text, 2).collect();
        assert_eq!(pairs.len(), 4);
        assert_eq!(pairs[0], pairs[3], "a b stands twice");
        assert_ne!(pairs[0], pairs[2], "a b is not c a");
        assert_eq!(grams(&text, 9).count(), 1);
        assert_eq!(grams(&[], 2).count(), 0);
    }
}
