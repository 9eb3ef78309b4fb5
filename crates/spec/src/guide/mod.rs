//! The guide: answers to questions, filled with the facts of this machine, a spec and a run. Pages are Markdown under `assets/guide`, one
//! a question, and troubleshooting entries under `assets/guide/trouble`; rules, metrics and settings answer with their own words. Numbers come
//! from the code where the code has them. No files are read here and nothing is printed.

mod answer;
mod asked;
mod facts;
mod page;
mod said;
mod search;
mod terms;
#[cfg(test)]
mod tests;
mod trouble;
mod verbs;

pub use answer::{Found, Hit, ask};
pub use asked::{Asked, Trainer};
pub use facts::Subject;
pub use page::{Page, Shown, item, plain};
pub use terms::{OF_NAMES, Term};
pub use trouble::{Area, Entry, areas, entries};
pub use verbs::Verb;

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
        .filter(|path| !path.starts_with(trouble::FOLDER))
        .filter_map(|path| Page::read(path, crate::embed::text(path)?))
        .collect();
    pages.sort_by_key(|page| (place(page).unwrap_or(ORDER.len()), page.id));
    pages
}
