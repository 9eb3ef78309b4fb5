//! Instructions about how long an answer is.

use super::Args;
use super::keywords::{found, pattern};

pub fn words(args: &Args, answer: &str) -> bool {
    args.holds("relation", found(r"\w+", answer), "num_words")
}

pub fn sentences(args: &Args, answer: &str) -> bool {
    args.holds("relation", count_sentences(answer), "num_sentences")
}

/// Paragraphs with `***` in between, exactly so many.
pub fn paragraphs(args: &Args, answer: &str) -> bool {
    let Some(between) = pattern(r"\s?\*\*\*\s?") else {
        return false;
    };
    let parts: Vec<&str> = between.split(answer).collect();
    let inner = parts.get(1..parts.len() - 1).unwrap_or_default();
    let filled = parts.iter().filter(|part| !part.trim().is_empty()).count();
    inner.iter().all(|part| !part.trim().is_empty()) && filled == args.number("num_paragraphs")
}

/// So many paragraphs with an empty line in between, and the n-th begins with a word.
pub fn nth_paragraph(args: &Args, answer: &str) -> bool {
    let parts: Vec<&str> = answer.split("\n\n").collect();
    let count = parts.iter().filter(|part| !part.trim().is_empty()).count();
    let nth = args.number("nth_paragraph");
    let paragraph = match (nth <= count, parts.get(nth.wrapping_sub(1))) {
        (true, Some(paragraph)) => paragraph.trim(),
        _ => return false,
    };
    let Some(word) = paragraph.split_whitespace().next() else {
        return false;
    };
    let word = word.trim_start_matches('\'').trim_start_matches('"');
    let end = word.find(['.', ',', '?', '!', '\'', '"']);
    let first = word[..end.unwrap_or(word.len())].to_lowercase();
    count == args.number("num_paragraphs") && first == args.text("first_word").to_lowercase()
}

/// Words with a full stop that end no sentence.
const SHORT: [&str; 16] = [
    "mr", "mrs", "ms", "dr", "prof", "st", "jr", "sr", "inc", "ltd", "co", "vs", "etc", "e.g",
    "i.e", "no",
];

/// Sentences by their marks: one ends at `.`, `!` or `?`, with quotes or brackets behind it, before a word that does not begin
/// in lower case; not behind an initial or a usual abbreviation. The harness asks NLTK's Punkt, which has learned them.
fn count_sentences(text: &str) -> usize {
    let words: Vec<&str> = text.split_whitespace().collect();
    let ends = |at: usize| {
        let word = words[at].trim_end_matches(['"', '\'', ')', ']', '”', '’', '*']);
        let stem = word.trim_end_matches(['.', '!', '?']);
        let marks = &word[stem.len()..];
        let next_is_lower = words
            .get(at + 1)
            .is_some_and(|next| next.starts_with(char::is_lowercase));
        let stem = stem.trim_start_matches(['"', '\'', '(', '[', '“', '‘', '*']);
        let initial = stem.chars().count() == 1 && stem.starts_with(char::is_uppercase);
        let abbreviated =
            marks == "." && (initial || SHORT.contains(&stem.to_lowercase().as_str()));
        !marks.is_empty() && !next_is_lower && !abbreviated
    };
    let last = words.len().wrapping_sub(1);
    (0..words.len())
        .filter(|at| *at == last || ends(*at))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_end_at_their_marks() {
        for (text, n) in [
            ("", 0),
            ("One.", 1),
            ("One. Two! Three? \"Four.\" Five", 5),
            (
                "Mr. Hall met J. Smith, e.g. at 3 p.m. today. They left...",
                2,
            ),
            ("It cost 3.50 dollars.\nHe paid.", 2),
        ] {
            assert_eq!(count_sentences(text), n, "{text}");
        }
    }
}
