//! What is in a data set and what is wrong with it: rows go in one by one, a report comes out. Nothing here opens a file or
//! prints; memory is bounded, and if a bound cuts something off, the report says so.

pub mod checks;
mod drive;
mod feed;
mod halves;
mod keep;
mod lengths;
mod minhash;
mod ngrams;
mod paragraphs;
mod reader;
mod report;
mod row;
mod subject;
mod view;
mod words;

pub use checks::{KINDS, Severity};
pub use drive::{Fed, Progress, drive};
pub use halves::{Halves, Side, closest_seed};
pub use keep::{Kept, KeptRow};
pub use lengths::{Bin, Lengths};
pub use ngrams::Reference;
pub use report::{Hit, Report, RowsFinding, SourceShare, Spread, TokenCount, Tokens};
pub use row::{Part, Row, key, parts};
pub use subject::{Cleaned, Inspected, Read, Subject, reading};
pub use view::{RenderedDocument, View};

use super::{Example, Place, RowFault};
use crate::base::finding::Finding;
use checks::{Check, Kind, Setup};
use keep::Keeper;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Examples kept of each kind of finding.
const EXAMPLES: usize = 20;
/// Sources listed separately; a folder may have a million files.
const MAX_SOURCES: usize = 1000;
/// Tokens in the list of the most frequent ones.
const TOP: usize = 40;

/// What to look for and what to keep.
#[derive(Debug, Default)]
pub struct Options {
    /// As the report names the data.
    pub name: String,
    pub seq_len: Option<u64>,
    pub val: Option<Reference>,
    pub against: Vec<Reference>,
    /// Only these kinds, by their words; all of them when empty.
    pub only: Vec<&'static str>,
    /// A row counts once, for the first kind that it has; duplicates are looked for among the rest.
    pub first_fault_only: bool,
    /// Bytes of rows that are kept for browsing.
    pub keep_bytes: usize,
}

struct Running {
    kind: &'static Kind,
    check: Box<dyn Check>,
    rows: u64,
    examples: Vec<Hit>,
}

/// What became of one row.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Faults {
    /// Its findings by kind, with the fault.
    pub list: Vec<(&'static str, String)>,
}

/// An inspection under way.
pub struct Inspector {
    name: String,
    format: String,
    view: Option<Arc<dyn View>>,
    seq_len: Option<u64>,
    first_fault_only: bool,
    checks: Vec<Running>,
    rows: u64,
    characters: Lengths,
    tokens: Lengths,
    total_tokens: u64,
    supervised_tokens: u64,
    vocabulary: Vec<u64>,
    sources: BTreeMap<Arc<str>, SourceShare>,
    other_sources: u64,
    keeper: Keeper,
    limits: Vec<String>,
    /// What helps here, by kinds of findings, in place of what usually does.
    fixes: BTreeMap<&'static str, String>,
}

impl Inspector {
    pub fn new(options: Options, view: Option<Arc<dyn View>>) -> Inspector {
        let mut setup = Setup {
            seq_len: options.seq_len.filter(|_| view.is_some()),
            ends: view.as_ref().map(|view| view.ends()).unwrap_or_default(),
            val: options.val,
            against: options.against,
            ..Setup::default()
        };
        let wanted = |kind: &&Kind| options.only.is_empty() || options.only.contains(&kind.id);
        let needs_view = [
            "unrendered",
            "unencodable",
            "left_out",
            "thoughts",
            "nothing_supervised",
            "eos_not_supervised",
        ];
        let mut checks: Vec<Running> = KINDS
            .iter()
            .filter(wanted)
            .filter(|kind| view.is_some() || !needs_view.contains(&kind.id))
            .filter_map(|kind| {
                Some(Running {
                    check: (kind.make)(&mut setup)?,
                    kind,
                    rows: 0,
                    examples: Vec::new(),
                })
            })
            .collect();
        if options.first_fault_only {
            // A row that leaves for another reason must not take its copies along.
            checks.sort_by_key(|running| running.kind.id.ends_with("duplicates"));
        }
        Inspector {
            first_fault_only: options.first_fault_only,
            name: options.name,
            format: String::new(),
            seq_len: options.seq_len,
            checks,
            rows: 0,
            characters: Lengths::default(),
            tokens: Lengths::default(),
            total_tokens: 0,
            supervised_tokens: 0,
            vocabulary: vec![0; view.as_ref().map_or(0, |view| view.vocab_size())],
            sources: BTreeMap::new(),
            other_sources: 0,
            keeper: Keeper::new(options.keep_bytes),
            limits: Vec::new(),
            fixes: BTreeMap::new(),
            view,
        }
    }

    /// The kind of rows, once known.
    pub fn set_format(&mut self, format: &str) {
        self.format = format.to_string();
    }

    /// Something that was not looked at, in words.
    pub fn limit(&mut self, words: String) {
        self.limits.push(words);
    }

    /// What helps against a kind of finding here, in place of what usually does.
    pub fn set_fix(&mut self, kind: &'static str, fix: String) {
        self.fixes.insert(kind, fix);
    }

    /// Measures a row as this inspection needs it; rows may be measured on many threads.
    pub fn measure(&self) -> Measure {
        Measure {
            view: self.view.clone(),
            near: self.checks.iter().any(|c| c.kind.id == "near_duplicates"),
        }
    }

    /// Rows seen so far, readable or not.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Takes a row in, in the order of the rows.
    pub fn observe(&mut self, row: Result<Row, RowFault>) -> Faults {
        self.rows += 1;
        let mut faults = Faults::default();
        for running in &mut self.checks {
            let (what, place) = match &row {
                Ok(row) => (running.check.row(row), &row.place),
                Err(fault) => (running.check.fault(fault), &fault.place),
            };
            let Some(what) = what else { continue };
            running.rows += 1;
            if running.examples.len() < EXAMPLES {
                running.examples.push(Hit {
                    place: place.to_string(),
                    what: what.clone(),
                });
            }
            faults.list.push((running.kind.id, what));
            if self.first_fault_only {
                break;
            }
        }
        match row {
            Ok(row) => {
                self.count(&row);
                self.keeper.take(self.rows, row, &faults);
            }
            Err(fault) => self.keeper.take_fault(self.rows, &fault),
        }
        faults
    }

    fn count(&mut self, row: &Row) {
        self.characters.add(row.characters);
        let mut tokens = 0;
        for seen in &row.seen {
            tokens += seen.document.ids.len() as u64;
            self.supervised_tokens += seen.document.supervised_tokens() as u64;
            for id in &seen.document.ids {
                if let Some(count) = self.vocabulary.get_mut(*id as usize) {
                    *count += 1;
                }
            }
        }
        self.total_tokens += tokens;
        if let Some(length) = row.tokens() {
            self.tokens.add(length);
        }
        if self.sources.len() >= MAX_SOURCES && !self.sources.contains_key(&row.source) {
            self.other_sources += 1;
            return;
        }
        let source = self
            .sources
            .entry(row.source.clone())
            .or_insert_with(|| SourceShare {
                name: row.source.to_string(),
                rows: 0,
                characters: 0,
                tokens: 0,
            });
        source.rows += 1;
        source.characters += row.characters;
        source.tokens += tokens;
    }

    /// The report, and the rows that were kept.
    pub fn finish(mut self) -> (Report, Kept) {
        let checks = std::mem::take(&mut self.checks);
        self.limits
            .extend(checks.iter().filter_map(|c| c.check.limit()));
        if self.other_sources > 0 {
            self.limits.push(format!(
                "{} rows of further files are not listed by source",
                self.other_sources
            ));
        }
        let tokens = self.tokens_report();
        let mut sources: Vec<SourceShare> = self.sources.into_values().collect();
        // As they are shown: by tokens, where those are known.
        sources.sort_by_key(|source| std::cmp::Reverse((source.tokens, source.characters)));
        // Rows that could not be read were checked for nothing else.
        let read = self.characters.rows() > 0;
        let passed = checks
            .iter()
            .filter(|c| c.rows == 0 && read)
            .map(|c| c.kind.title)
            .collect();
        let rows = self.rows;
        let mut findings: Vec<RowsFinding> = checks
            .into_iter()
            .filter(|c| c.rows > 0)
            .map(|c| c.finding(rows))
            .collect();
        for finding in &mut findings {
            if let Some(fix) = self.fixes.remove(finding.finding.id.as_str()) {
                finding.finding.fix = fix;
            }
        }
        // Stable: equally bad ones stay in the order of the list.
        findings.sort_by_key(|finding| finding.severity);
        let report = Report {
            name: self.name,
            format: self.format,
            rows,
            characters: self.characters.into(),
            tokens,
            sources,
            findings,
            limits: self.limits,
            passed,
        };
        (report, self.keeper.finish(rows))
    }

    fn tokens_report(&self) -> Option<Tokens> {
        let view = self.view.as_ref()?;
        let count = |id: u32| TokenCount {
            id,
            text: view.pieces(&[id]).concat(),
            count: self.vocabulary.get(id as usize).copied().unwrap_or(0),
        };
        let mut ids: Vec<u32> = (0..self.vocabulary.len() as u32)
            .filter(|id| self.vocabulary[*id as usize] > 0)
            .collect();
        let used = ids.len();
        ids.sort_by_key(|id| std::cmp::Reverse(self.vocabulary[*id as usize]));
        let specials = view.specials().into_iter().map(count);
        let limit = self.seq_len;
        Some(Tokens {
            view: view.name().to_string(),
            total: self.total_tokens,
            supervised: self.supervised_tokens,
            seq_len: limit,
            over_seq_len: limit
                .map(|limit| self.tokens.over_row(limit) as f64 / self.tokens.rows().max(1) as f64),
            vocab_size: view.vocab_size(),
            used,
            top: ids.into_iter().take(TOP).map(count).collect(),
            specials: specials.filter(|special| special.count > 0).collect(),
            lengths: self.tokens.clone().into(),
        })
    }
}

impl Running {
    fn finding(self, rows: u64) -> RowsFinding {
        let share = self.rows as f64 / rows.max(1) as f64;
        let severity = self.check.severity(share).unwrap_or(self.kind.severity);
        let finding = Finding {
            status: severity.status(),
            cause: self.kind.cause.into(),
            fix: self.check.fix().unwrap_or_else(|| self.kind.fix.into()),
            ..Finding::pass(self.check.evidence().unwrap_or_default())
        };
        RowsFinding {
            finding: finding.named(self.kind.id, self.kind.title),
            severity,
            rows: self.rows,
            share,
            examples: self.examples,
        }
    }
}

/// How rows are measured for one inspection.
#[derive(Clone)]
pub struct Measure {
    view: Option<Arc<dyn View>>,
    near: bool,
}

impl Measure {
    pub fn row(&self, place: Place, source: Arc<str>, example: Example) -> Row {
        Row::new(place, source, example, self.view.as_deref(), self.near)
    }
}

#[cfg(test)]
mod tests;
