//! Instructions about words and letters.

use super::Args;
use regex::{Regex, RegexBuilder};

/// A regular expression; the harness reads keywords as such too. An invalid one is matched literally.
pub(super) fn pattern(source: &str) -> Option<Regex> {
    Regex::new(source)
        .or_else(|_| Regex::new(&regex::escape(source)))
        .ok()
}

fn any_case(source: &str) -> Option<Regex> {
    let build = |source: &str| RegexBuilder::new(source).case_insensitive(true).build();
    build(source)
        .or_else(|_| build(&regex::escape(source)))
        .ok()
}

/// How often a pattern is found, without overlaps.
pub(super) fn found(source: &str, text: &str) -> usize {
    pattern(source).map_or(0, |pattern| pattern.find_iter(text).count())
}

pub fn all_there(args: &Args, answer: &str) -> bool {
    let there = |word: &&str| any_case(word).is_some_and(|pattern| pattern.is_match(answer));
    args.texts("keywords").iter().all(there)
}

pub fn none_there(args: &Args, answer: &str) -> bool {
    let there = |word: &&str| {
        let whole = any_case(&format!(r"\b{word}\b"));
        whole.is_some_and(|pattern| pattern.is_match(answer))
    };
    !args.texts("forbidden_words").iter().any(there)
}

pub fn frequency(args: &Args, answer: &str) -> bool {
    let pattern = any_case(args.text("keyword").trim());
    let count = pattern.map_or(0, |pattern| pattern.find_iter(answer).count());
    args.holds("relation", count, "frequency")
}

pub fn letter_frequency(args: &Args, answer: &str) -> bool {
    let letter = args.text("letter").to_lowercase();
    let count = answer.to_lowercase().matches(&letter).count();
    args.holds("let_relation", count, "let_frequency")
}

pub fn capital_words(args: &Args, answer: &str) -> bool {
    let words = answer.split_whitespace().flat_map(parts);
    let count = words.filter(|word| is_upper(word)).count();
    args.holds("capital_relation", count, "capital_frequency")
}

/// A word as treebanks split it, near enough to count capitals: without punctuation around it, `DON'T` as `DO` and `N'T`,
/// `I'M` as `I` and `'M`.
fn parts(word: &str) -> Vec<&str> {
    let word = word.trim_matches(|c: char| !c.is_alphanumeric());
    let at = match word.to_lowercase().ends_with("n't") {
        true => word.len() - 3,
        false => word.find('\'').unwrap_or(word.len()),
    };
    match word.split_at_checked(at) {
        Some((word, rest)) => vec![word, rest],
        None => vec![word],
    }
}

/// As Python's `str.isupper`: some letter has a case, and none is lower.
pub(super) fn is_upper(text: &str) -> bool {
    text.chars().any(char::is_uppercase) && !text.chars().any(char::is_lowercase)
}

/// As Python's `str.islower`.
pub(super) fn is_lower(text: &str) -> bool {
    text.chars().any(char::is_lowercase) && !text.chars().any(char::is_uppercase)
}
