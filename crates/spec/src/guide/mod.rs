//! The guide: short pages that answer one question each, filled with the facts of this machine, a spec and a run. Pages are
//! Markdown under `assets/guide`, one a question; their numbers come from the code where the code has them. No files are
//! read here and nothing is printed.

mod asked;
mod facts;
mod page;
mod verbs;

pub use asked::{Asked, Trainer};
pub use facts::Subject;
pub use page::{Page, Shown, item, plain};
pub use verbs::verb;

use crate::base::near::alike;

/// Every page, in the order of the contents.
pub fn pages() -> Vec<Page> {
    const ORDER: [&str; 9] = [
        "fit",
        "method",
        "settings",
        "data",
        "learning",
        "unstable",
        "overfitting",
        "reasoning",
        "crash",
    ];
    let place = |page: &Page| ORDER.iter().position(|id| *id == page.id);
    let mut pages: Vec<Page> = crate::embed::list("assets/guide")
        .filter_map(|path| Page::read(path, crate::embed::text(path)?))
        .collect();
    pages.sort_by_key(|page| (place(page).unwrap_or(ORDER.len()), page.id));
    pages
}

/// Least score of a page that answers: a keyword. A beginning of one alone is a guess.
const LEAST: usize = 2;

/// Pages that a question leads to, the best first; none where no keyword is known.
pub fn find(question: &str) -> Vec<Page> {
    let asked: Vec<String> = words(question).collect();
    let verb = verbs::wanted(question);
    // `merge lora` asks for the verb, not for a page that has one of the words as well.
    let least = verb.map_or(LEAST, |(hits, _)| LEAST * hits + 1);
    let found = scored(&asked, least);
    // `repeats` is a verb's matter, not a slip of a page's word.
    match found.is_empty() && verb.is_none() {
        true => scored(
            &asked.iter().map(|word| spelled(word)).collect::<Vec<_>>(),
            LEAST,
        ),
        false => found,
    }
}

fn scored(asked: &[String], least: usize) -> Vec<Page> {
    let mut found: Vec<(usize, Page)> = pages()
        .into_iter()
        .map(|page| (page.score(asked), page))
        .filter(|(score, _)| *score >= least)
        .collect();
    found.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
    found.into_iter().map(|(_, page)| page).collect()
}

/// The known word that a word is probably a slip of, or itself.
fn spelled(word: &str) -> String {
    let pages = pages();
    let known = pages.iter().flat_map(Page::known).filter(|w| w.len() > 4);
    alike(0.92, word, known).unwrap_or(word).into()
}

/// Lower-case words, without marks.
fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|c: char| !c.is_alphanumeric() && c != '-')
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::RULES;

    #[test]
    fn questions_lead_to_their_pages() {
        for (question, page) in [
            ("can this machine train it?", "fit"),
            ("which method?", "method"),
            ("why unstable?", "unstable"),
            ("why did my loss spike at step 400", "unstable"),
            ("why a crash, OOM, hang?", "crash"),
            ("reasoning on a budget?", "reasoning"),
            ("how much data?", "data"),
            ("how many tokens do I need", "data"),
            ("overfitting or memorization?", "overfitting"),
            ("my loss is flat", "learning"),
            ("unstable", "unstable"),
            ("how to resume", "crash"),
            ("how do i resume a run", "crash"),
            ("can i continue trainig", "crash"),
            ("early stopping", "overfitting"),
            ("how long will it take", "fit"),
            ("how much does it cost to train llama-3.1-8b on H100", "fit"),
            ("train on my own text", "data"),
            ("overfiting", "overfitting"),
            ("can i train qwen2.5-0.5b with lora", "fit"),
            ("validation loss goes up", "overfitting"),
            ("reward goes up but answers get worse", "reasoning"),
            ("which gpu do I need", "fit"),
            ("the loss goes to nan", "unstable"),
            ("what learning rate for dpo", "settings"),
            ("how do I choose lora rank", "settings"),
            ("what batch size", "settings"),
            ("why is it not learning", "learning"),
            ("dpo or kto", "method"),
            ("why is my loss spiking", "unstable"),
            ("loss exploded", "unstable"),
            ("loss goes up", "unstable"),
            ("which beta for dpo", "settings"),
            ("reward hacking", "reasoning"),
            ("reward does not increase", "reasoning"),
            ("forgetting", "method"),
        ] {
            let found = find(question);
            assert_eq!(found.first().map(|p| p.id), Some(page), "{question}");
        }
        for none in [
            "xyzzy",
            "how do I export to gguf",
            "how do I chat",
            "how do I make it answer in json",
            "my model repeats itself",
            "merge lora",
        ] {
            let found = find(none);
            assert!(found.is_empty(), "{none}: {:?}", found[0].id);
        }
    }

    #[test]
    fn findings_have_pages_and_pages_name_what_exists() {
        let pages = pages();
        for rule in [
            "diverged",
            "overfitting",
            "not_learning",
            "reward_hacking",
            "data_wait",
        ] {
            assert!(pages.iter().any(|p| p.rules.contains(&rule)), "{rule}");
        }
        for page in &pages {
            for rule in &page.rules {
                assert!(
                    RULES.iter().any(|r| r.entry.id == *rule),
                    "{}: {rule}",
                    page.id
                );
            }
            for other in &page.see {
                assert!(pages.iter().any(|p| p.id == *other), "{}: {other}", page.id);
            }
        }
    }

    /// Numbers that the code has as well are written as it has them.
    #[test]
    fn numbers_are_those_of_plans_metrics_and_reviews() {
        use crate::metrics::texts::CODEC;
        use crate::plan::scheme::{Precision, UpdateState, bytes_per_param};
        let bytes = bytes_per_param(Precision::Mixed, UpdateState::AdamW).sum();
        let codec = CODEC.band.and_then(|band| band.high).unwrap();
        for (page, words) in [
            (
                "fit",
                format!("mixed precision takes {bytes} bytes for each parameter"),
            ),
            (
                "data",
                format!(
                    "about {} tokens for each parameter",
                    crate::plan::scaling::TOKENS_PER_PARAM
                ),
            ),
            ("data", format!("Up to {} passes", crate::spec::GOOD_PASSES)),
            (
                "overfitting",
                format!("a benchmark above {codec} is contaminated"),
            ),
        ] {
            let body = pages().into_iter().find(|p| p.id == page).unwrap().body;
            assert!(body.contains(&words), "{page}: {words}");
        }
    }

    #[test]
    fn every_statement_has_a_source_and_every_mark_is_filled() {
        let subject = Subject::default();
        for page in pages() {
            for line in page.body.lines().filter(|line| line.starts_with("- ")) {
                assert!(
                    line.contains("](") || line.starts_with("- {"),
                    "{}: no source: {line}",
                    page.id
                );
            }
            for mark in page.marks() {
                assert!(subject.knows(mark), "{}: {{{mark}}} is no fact", page.id);
            }
            let shown = page.fill(&subject);
            assert!(!shown.text.contains('{'), "{}: {}", page.id, shown.text);
        }
    }
}
