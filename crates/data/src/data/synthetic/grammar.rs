//! Sentences of a small context-free grammar whose verb agrees with its subject across intervening nouns: `the keys near the
//! old cabinet` → ` are here .`. Only a model that follows the structure gets the number right.

use super::{Generator, Problem, pick};
use crate::base::registry::Entry;
use crate::base::rng::Rng;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "grammar",
    title: "A small grammar",
    summary: "Sentences whose verb agrees with a subject far away: the keys near the cabinet → are here.",
    source: "Linzen, Dupoux and Goldberg 2016, arXiv:1611.01368",
};

const MAX_DEPTH: u32 = 12;

/// One symbol to its alternatives; the first of them leads to the shortest sentence. `N` is a noun phrase and `M` what may
/// follow its noun, each with the number of its noun (`s`, `p`); what is no left side is a word.
const RULES: &[(&str, &[&str])] = &[
    ("Ns", &["the ns Ms", "the A ns Ms"]),
    ("Np", &["the np Mp", "the A np Mp"]),
    ("Ms", &["", "P N", "that T Np-", "that Vs N"]),
    ("Mp", &["", "P N", "that T Np-", "that Vp N"]),
    ("N", &["Ns", "Np"]),
    ("Np-", &["the np"]),
    ("A", &["old", "small", "red", "quiet"]),
    ("P", &["near", "behind", "under", "beside"]),
    ("T", &["yesterday pleased", "often amused"]),
    ("Vs", &["sees", "likes", "follows"]),
    ("Vp", &["see", "like", "follow"]),
    ("ns", &["key", "dog", "teacher", "cabinet", "child", "box"]),
    (
        "np",
        &["keys", "dogs", "teachers", "cabinets", "children", "boxes"],
    ),
    (
        "Es",
        &["is here .", "was late .", "sleeps .", "has a name ."],
    ),
    (
        "Ep",
        &["are here .", "were late .", "sleep .", "have names ."],
    ),
];

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Maximum nesting of phrases: 0 puts the verb next to its subject.
    #[schemars(range(min = 0, max = 12))]
    pub depth: u32,
}

impl Default for Config {
    fn default() -> Self {
        Config { depth: 2 }
    }
}

impl Generator for Config {
    fn problem(&self, rng: &mut Rng) -> Problem {
        let (subject, end) = match rng.below(2) {
            0 => ("Ns", "Es"),
            _ => ("Np", "Ep"),
        };
        let words = |symbol: &str, rng: &mut Rng| {
            let mut words = Vec::new();
            expand(symbol, self.depth, rng, &mut words);
            words.join(" ")
        };
        let prompt = words(subject, rng);
        Problem {
            prompt,
            answer: format!(" {}", words(end, rng)),
        }
    }

    fn fault(&self) -> Option<String> {
        (self.depth > MAX_DEPTH).then(|| format!("depth is {}: at most {MAX_DEPTH}", self.depth))
    }
}

/// Appends the words of one symbol. Noun phrases inside noun phrases use up `depth`; at 0 nothing follows a noun.
fn expand(symbol: &str, depth: u32, rng: &mut Rng, words: &mut Vec<&'static str>) {
    let Some((left, alternatives)) = RULES.iter().find(|(left, _)| *left == symbol) else {
        return;
    };
    let follows_a_noun = left.starts_with('M');
    let chosen = match follows_a_noun && depth == 0 {
        true => alternatives[0],
        false => pick(alternatives, rng),
    };
    for part in chosen.split_whitespace() {
        match RULES.iter().any(|(left, _)| *left == part) {
            true => expand(
                part,
                depth.saturating_sub(u32::from(follows_a_noun)),
                rng,
                words,
            ),
            false => words.push(part),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Stream;

    fn words(symbol: &str) -> &'static [&'static str] {
        RULES.iter().find(|(left, _)| *left == symbol).unwrap().1
    }

    fn problem(depth: u32, step: u64) -> Problem {
        Config { depth }.problem(&mut Rng::new(3, Stream::Test, step, 0))
    }

    /// The subject is the first noun: everything after it stands inside its phrase.
    #[test]
    fn the_verb_agrees_with_the_first_noun() {
        for step in 0..300 {
            let problem = problem(4, step);
            let is = |word: &str, symbol: &str| words(symbol).contains(&word);
            let first = problem
                .prompt
                .split(' ')
                .find(|w| is(w, "ns") || is(w, "np"))
                .unwrap();
            let end = problem.answer.trim();
            assert_eq!(is(first, "ns"), is(end, "Es"), "{problem:?}");
            assert_eq!(is(first, "np"), is(end, "Ep"), "{problem:?}");
        }
    }

    #[test]
    fn depth_decides_how_far_the_subject_is_away() {
        let longest = |depth| {
            let lengths = (0..300).map(|step| problem(depth, step).prompt.split(' ').count());
            lengths.max().unwrap()
        };
        assert!(longest(0) <= 3, "an article, an adjective, a noun");
        assert!(longest(3) > longest(1));
        assert!(longest(12) < 200);
    }
}
