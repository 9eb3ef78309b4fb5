//! "Did you mean": the known word that a misspelt one most likely stands for, ignoring case. Words of our own lists are compared
//! by edits (optimal string alignment), names given by others by how they begin and what they contain.

use crate::text::one_line;
use std::fmt::Display;

/// The question whether this was meant, as errors end with.
pub fn did_you_mean(near: impl Display) -> String {
    format!("did you mean {near}?")
}

/// The error about a value that is not in a list, and its fix: the one that was probably meant, then all.
pub fn unknown(what: &str, word: &str, near: Option<&str>, known: &[&str]) -> (String, String) {
    let known = known.join(", ");
    let fix = match near {
        Some(near) => format!("{} Known: {known}", did_you_mean(near)),
        None => format!("known: {known}"),
    };
    (format!("unknown {what} `{}`", one_line(word)), fix)
}

/// Edits by which a word may differ from what it was meant to be.
fn slips(word: &str) -> usize {
    match word.chars().count() {
        0..=3 => 1,
        4..=5 => 2,
        _ => 3,
    }
}

/// The candidate most similar to `word`, if similar enough to be a typo: one slip in words of up to three letters, two in those
/// of up to five, three in longer ones.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    within(slips(word), word, candidates)
}

/// [`nearest`] among many dotted paths, where accidental similarity is likely: one edit per three letters of the last segment.
pub fn nearest_path<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let key = word.rsplit('.').next().unwrap_or(word);
    within((key.chars().count() / 3).clamp(1, 3), word, candidates)
}

/// The candidate most similar to `word`, at most this many edits away.
pub fn within<'a>(
    limit: usize,
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let word = word.to_lowercase();
    candidates
        .into_iter()
        .map(|c| (strsim::osa_distance(&word, &c.to_lowercase()), c))
        .filter(|(distance, c)| *distance <= limit && *distance < c.chars().count())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, c)| c)
}

/// The name most similar to `word`, if above `least` of 1 (Jaro-Winkler). A name that contains the word, or vice versa,
/// has similarity 0.9.
pub fn alike<'a>(
    least: f64,
    word: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let word = word.to_lowercase();
    let score = |name: &str| {
        let name = name.to_lowercase();
        let long = word.len() > 3 && name.len() > 3;
        let inside = long && (name.contains(&word) || word.contains(&name));
        strsim::jaro_winkler(&name, &word).max(if inside { 0.9 } else { 0.0 })
    };
    names
        .into_iter()
        .map(|name| (score(name), name))
        .filter(|(score, _)| *score > least)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

/// The `n` items whose keys are most similar to `word`: those that contain it or are contained in it (from three letters on), then
/// those that it may be a typo of.
pub fn closest<T: Ord>(
    n: usize,
    word: &str,
    keyed: impl IntoIterator<Item = (String, T)>,
) -> Vec<T> {
    let word = word.to_lowercase();
    let inside = |long: &str, short: &str| short.chars().count() >= 3 && long.contains(short);
    let distance = |key: &str| match inside(key, &word) || inside(&word, key) {
        true => 0,
        false => strsim::osa_distance(&word, key),
    };
    let scored = keyed
        .into_iter()
        .map(|(key, thing)| (distance(&key), thing))
        .filter(|(distance, _)| *distance <= slips(&word));
    let mut scored: Vec<(usize, T)> = scored.collect();
    scored.sort();
    scored.into_iter().take(n).map(|(_, thing)| thing).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn external_names_match_by_prefix_and_content() {
        let names = ["instruction", "output", "dialogue_text"];
        assert_eq!(alike(0.8, "Instructions", names), Some("instruction"));
        assert_eq!(alike(0.8, "dialogue", names), Some("dialogue_text"));
        assert_eq!(alike(0.8, "zebra", names), None);
    }

    #[test]
    fn closest_matches_come_first() {
        let keyed = ["llama-7b", "gpt2", "gpt2-xl"].map(|name| (name.to_string(), name));
        assert_eq!(closest(2, "GPT2", keyed.clone()), ["gpt2", "gpt2-xl"]);
        assert_eq!(closest(2, "lama-7b", keyed.clone()), ["llama-7b"]);
        assert!(closest(2, "nosuch", keyed).is_empty());
    }

    #[test]
    fn an_unknown_word_is_named_with_the_known_ones() {
        let known = ["adamw", "soap"];
        let near = nearest("sopa", known);
        let (what, fix) = unknown("optimizer", "sopa", near, &known);
        assert_eq!(what, "unknown optimizer `sopa`");
        assert_eq!(fix, "did you mean soap? Known: adamw, soap");
        let (what, fix) = unknown("optimizer", "a\nb", None, &known);
        assert_eq!(
            (what.lines().count(), fix.as_str()),
            (1, "known: adamw, soap")
        );
    }

    #[test]
    fn typos_are_recognised_and_unrelated_words_are_not() {
        let words = ["max_steps", "micro_batch_size", "lr"];
        assert_eq!(nearest("max_stpes", words), Some("max_steps"));
        assert_eq!(nearest("MAX_STEPS", words), Some("max_steps"));
        assert_eq!(nearest("lrr", words), Some("lr"));
        assert_eq!(nearest("banana", words), None);
        assert_eq!(nearest("xyz", ["up", "down"]), None);
        assert_eq!(nearest("foo", ["dpo", "ppo"]), None);
    }
}
