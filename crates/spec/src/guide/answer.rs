//! What answers a question: pages, entries, terms and verbs, the best first, or what it may have meant.

use super::page::Page;
use super::search::{Index, Match, Text};
use super::terms::{self, Term};
use super::trouble::{self, Area, Entry};
use super::verbs::{VERBS, Verb};
use crate::base::near::alike;
use crate::wire::MetricInfo;
use std::sync::LazyLock;

/// Entries that are shown as a whole where they fit alike; how nearly alike; others that are named.
const WHOLE: usize = 3;
const ALIKE: f64 = 0.85;
const NAMED: usize = 4;
const NAMED_FROM: f64 = 0.5;
/// Definitions beside which an entry is shown as well.
const FEW: usize = 2;
/// Letters of a word that may be a slip.
const LONG: usize = 5;

/// One answer.
#[derive(Debug, Clone)]
pub enum Hit {
    Page(Page),
    Entry(&'static Entry),
    Area(&'static Area),
    Term(Term),
    Verb(&'static Verb),
}

impl Hit {
    pub fn kind(&self) -> &'static str {
        match self {
            Hit::Page(_) => "page",
            Hit::Entry(_) => "entry",
            Hit::Area(_) => "area",
            Hit::Term(term) => term.kind(),
            Hit::Verb(_) => "verb",
        }
    }

    /// What `llmtui guide ID` finds it by.
    pub fn id(&self) -> &str {
        match self {
            Hit::Page(page) => page.id,
            Hit::Entry(entry) => entry.id,
            Hit::Area(area) => area.id,
            Hit::Term(term) => term.id(),
            Hit::Verb(verb) => verb.id,
        }
    }

    pub fn title(&self) -> String {
        match self {
            Hit::Page(page) => page.title.into(),
            Hit::Entry(entry) => entry.title.into(),
            Hit::Area(area) => area.title.into(),
            Hit::Term(term) => term.title(),
            Hit::Verb(verb) => format!("llmtui {}", verb.id),
        }
    }

    /// Markdown; a page's is filled with facts elsewhere.
    pub fn text(&self) -> String {
        match self {
            Hit::Page(page) => page.body.into(),
            Hit::Entry(entry) => entry.text(),
            Hit::Area(area) => {
                let rows = area.entries.iter();
                let rows: Vec<String> = rows
                    .map(|entry| format!("- {} (`llmtui guide {}`)", entry.title, entry.id))
                    .collect();
                rows.join("\n")
            }
            Hit::Term(term) => term.text(),
            Hit::Verb(verb) => format!("- {}.", verb.says),
        }
    }
}

/// The answers to a question.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// The best first.
    pub hits: Vec<Hit>,
    /// So many of them are shown as a whole, the others are named.
    pub whole: usize,
    /// Where there are none: what may have been meant.
    pub guesses: Vec<Hit>,
    /// Or this id.
    pub near: Option<String>,
}

/// All that has keywords.
fn all() -> &'static (Vec<Hit>, Index) {
    static ALL: LazyLock<(Vec<Hit>, Index)> = LazyLock::new(|| {
        let (mut hits, mut texts) = (Vec::new(), Vec::new());
        for page in super::pages() {
            texts.push(Text::new(page.id, page.title, &page.ask.join(" ")).general());
            hits.push(Hit::Page(page));
        }
        for entry in trouble::entries() {
            texts.push(Text::new(entry.id, entry.title, entry.ask));
            hits.push(Hit::Entry(entry));
        }
        for verb in &VERBS {
            texts.push(Text::new("", "", verb.ask).general());
            hits.push(Hit::Verb(verb));
        }
        let index = Index::new(texts);
        (hits, index)
    });
    &ALL
}

/// Answers a question; `metrics` are those that the caller knows beside the tables.
pub fn ask(question: &str, metrics: &[MetricInfo]) -> Found {
    let (said, explains) = terms::bare(question);
    let joined = said.replace([' ', '-'], "_");
    let terms: Vec<Hit> = match said.split_whitespace().count() {
        0 => Vec::new(),
        1..=4 => terms::find(&said, metrics)
            .into_iter()
            .map(Hit::Term)
            .collect(),
        _ => Vec::new(),
    };
    // What it is called by comes first.
    let named: Vec<Hit> = named(&joined).collect();
    let searched = searched(question);
    // A slip in an id is asked back: words that look like it are a guess.
    if named.is_empty() && terms.is_empty() && said.contains(['_', '/']) && !said.contains(' ') {
        let near = terms::near(&joined, metrics);
        if near.is_some() {
            let guesses = searched.hits.into_iter().take(WHOLE).collect();
            return Found {
                near,
                guesses,
                ..Found::default()
            };
        }
    }
    // A metric's or a rule's title says what it is, the name of a setting is often a question about its value.
    let defined = matches!(
        terms.first(),
        Some(Hit::Term(Term::Metric(_) | Term::Rule(_)))
    ) && matches!(searched.hits.first(), Some(Hit::Entry(_)));
    let one = !said.contains(' ');
    let mut found = match () {
        () if !named.is_empty() => Found {
            whole: 1,
            hits: [named, terms].concat(),
            ..Found::default()
        },
        () if !terms.is_empty() && (one || explains || defined || searched.hits.is_empty()) => {
            Found {
                whole: terms.len(),
                hits: terms,
                ..Found::default()
            }
        }
        () => {
            let mut found = searched.clone();
            let at = found.whole.min(found.hits.len());
            found.hits.splice(at..at, terms);
            found
        }
    };
    // An entry has its rule beside it, a rule what explains it.
    if let [Hit::Entry(_), Hit::Term(Term::Rule(_)), ..] = found.hits[..] {
        found.whole = 2;
    }
    if let Some(Hit::Term(Term::Rule(rule))) = found.hits.first() {
        let explained = explained(rule.entry.id);
        found.hits.extend(explained);
    }
    if found.hits.is_empty() {
        return Found {
            near: terms::near(&joined, metrics),
            ..searched
        };
    }
    add(&mut found.hits, searched.hits);
    // A definition alone is no help with a symptom.
    let defines = matches!(found.hits[0], Hit::Term(_)) && found.whole <= FEW;
    if defines && matches!(found.hits.get(found.whole), Some(Hit::Entry(_))) {
        found.whole += 1;
    }
    found.hits.truncate(found.whole + NAMED);
    found
}

/// Pages, areas and entries by their name.
fn named(joined: &str) -> impl Iterator<Item = Hit> {
    let page = super::pages().into_iter().find(|page| page.id == joined);
    let entry = trouble::entries().find(|entry| entry.id == joined);
    let area = trouble::areas().iter().find(|area| area.id == joined);
    let page = page.map(Hit::Page).into_iter();
    page.chain(entry.map(Hit::Entry)).chain(area.map(Hit::Area))
}

/// Entries and pages that explain a rule's findings.
fn explained(rule: &str) -> Vec<Hit> {
    let entries = trouble::entries().filter(|entry| entry.rules.contains(&rule));
    let pages = super::pages()
        .into_iter()
        .filter(|page| page.rules.contains(&rule));
    entries
        .map(Hit::Entry)
        .chain(pages.map(Hit::Page))
        .collect()
}

fn add(hits: &mut Vec<Hit>, more: Vec<Hit>) {
    for hit in more {
        let same = |known: &Hit| (known.kind(), known.id()) == (hit.kind(), hit.id());
        if !hits.iter().any(same) {
            hits.push(hit);
        }
    }
}

/// By keywords.
fn searched(question: &str) -> Found {
    let (hits, index) = all();
    let spelled = |word: &str| {
        let known = index.words().filter(|known| known.len() >= LONG);
        (word.len() >= LONG)
            .then(|| alike(0.92, word, known))
            .flatten()
            .map(String::from)
    };
    // A model and a memory are no words of a page, and ask for one.
    let words = match super::said::asks_for_room(question) {
        true => format!("{question} fit"),
        false => question.into(),
    };
    let found: Vec<Match> = index.find(&words, spelled);
    let of = |m: &Match| hits[m.at].clone();
    let Some(best) = found.first().filter(|best| best.answers).copied() else {
        return Found {
            guesses: found.iter().take(WHOLE).map(of).collect(),
            ..Found::default()
        };
    };
    let near = found
        .iter()
        .filter(|m| m.answers && m.score >= NAMED_FROM * best.score);
    let near: Vec<&Match> = near.take(WHOLE + NAMED).collect();
    // A page or a verb is enough by itself.
    let alike = |m: &&&Match| m.score >= ALIKE * best.score && matches!(hits[m.at], Hit::Entry(_));
    let whole = match hits[best.at] {
        Hit::Entry(_) => near.iter().take(WHOLE).take_while(alike).count().max(1),
        _ => 1,
    };
    Found {
        hits: near.into_iter().map(of).collect(),
        whole,
        ..Found::default()
    }
}
