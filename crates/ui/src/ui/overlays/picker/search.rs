//! How well the rows of a list fit what was typed.

use super::{Choice, Item};
use nucleo_matcher::pattern::{AtomKind, CaseMatching, Normalization, Pattern};
use nucleo_matcher::{Config, Matcher, Utf32Str};

/// How well a row fits what was typed: the better kind, then the higher score.
pub(super) type Rank = (Fit, u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fit {
    /// Each word's letters stand in order in a word of the title: `qs` for quickstart.
    Letters,
    /// Title and details have each word.
    Details,
    Title,
    /// Each word is a whole word of the title: `sft` is the run `sft`, not `sft-demo`.
    Words,
    /// It is the title.
    Exact,
    /// It is another name of the row.
    Name,
}

/// What was typed. Letters that are strewn over a whole sentence are no hit: almost any word is found in one, and Enter does
/// what the first row says.
pub(super) struct Search {
    matcher: Matcher,
    buffer: Vec<char>,
    /// What was typed, in lower case.
    query: String,
    words: Pattern,
    letters: Pattern,
}

impl Search {
    pub(super) fn new(query: &str) -> Search {
        let (case, norm) = (CaseMatching::Ignore, Normalization::Smart);
        Search {
            matcher: Matcher::new(Config::DEFAULT),
            buffer: Vec::new(),
            query: query.trim().to_lowercase(),
            words: Pattern::new(query, case, norm, AtomKind::Substring),
            letters: Pattern::new(query, case, norm, AtomKind::Fuzzy),
        }
    }

    /// `names`: other words for the row.
    pub(super) fn rank(&mut self, item: &Item, names: &[&str]) -> Option<Rank> {
        if names.contains(&self.query.as_str()) {
            return Some((Fit::Name, 0));
        }
        if let Some(score) = self.score_words(&item.title) {
            return Some((self.fit_of_title(&item.title), score));
        }
        if let Some(score) = self.score_words(&format!("{} {}", item.title, item.detail)) {
            return Some((Fit::Details, score));
        }
        // A training takes the machine for hours: nobody means one by letters strewn over its name, as `qut` is over `quickstart`.
        if matches!(item.choice, Choice::StartPreset(_)) {
            return None;
        }
        Some((Fit::Letters, self.score_letters(&item.title)?))
    }

    /// How a title that has each typed word has them.
    fn fit_of_title(&self, title: &str) -> Fit {
        let title = title.to_lowercase();
        let is_word = |typed: &str| title.split_whitespace().any(|word| word == typed);
        match () {
            () if title.trim() == self.query => Fit::Exact,
            () if !self.query.is_empty() && self.query.split_whitespace().all(is_word) => Fit::Words,
            () => Fit::Title,
        }
    }

    fn score_words(&mut self, text: &str) -> Option<u32> {
        let text = Utf32Str::new(text, &mut self.buffer);
        self.words.score(text, &mut self.matcher)
    }

    fn score_letters(&mut self, title: &str) -> Option<u32> {
        let mut sum = 0;
        for atom in &self.letters.atoms {
            let scores = title.split_whitespace().filter_map(|word| {
                let word = Utf32Str::new(word, &mut self.buffer);
                atom.score(word, &mut self.matcher)
            });
            sum += u32::from(scores.max()?);
        }
        Some(sum)
    }
}
