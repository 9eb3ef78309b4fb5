//! Data: what a data set holds and what is wrong with it on the left, its rows as the model sees them on the right. The
//! pane owns cursors; the inspection itself is done by a job.

mod boxes;
mod browser;
mod draw;
mod facts;
mod flow;
mod pane;
mod sample;

pub use pane::ENTRY;

use crate::data::inspect::{Inspected, KeptRow, Progress, RowsFinding, Subject, checks};
use sample::Sample;
use std::path::PathBuf;
use std::sync::Arc;

/// How a row is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Every token by itself.
    #[default]
    Tokens,
    /// The rendered text.
    Rendered,
    /// As the file has it, part by part.
    Raw,
}

impl Mode {
    fn next(self) -> Mode {
        match self {
            Mode::Tokens => Mode::Rendered,
            Mode::Rendered => Mode::Raw,
            Mode::Raw => Mode::Tokens,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Mode::Tokens => "tokens",
            Mode::Rendered => "text",
            Mode::Raw => "written",
        }
    }
}

/// An inspection under way.
#[derive(Debug)]
struct Reading {
    name: String,
    progress: Progress,
}

/// The options in the advice on columns that no format knows, if it names them all.
fn mapping(why: &str) -> Option<String> {
    let (_, fix) = why.rsplit_once("; try: ")?;
    let whole =
        fix.starts_with("--format ") && fix.contains(" --column ") && !fix.contains("COLUMN");
    whole.then(|| fix.to_string())
}

/// The pane's cursors.
#[derive(Debug, Default)]
pub struct DataPane {
    shown: Option<Arc<Inspected>>,
    /// What is shown or being read, for looking again with another tokenizer.
    subject: Option<Subject>,
    /// The identity of the run whose data this is.
    run: Option<PathBuf>,
    /// That of the run whose data came up by itself last: what was opened instead stays until there is another run.
    shown_for: Option<PathBuf>,
    reading: Option<Reading>,
    error: Option<String>,
    /// Options that would read what could not be read, offered when it is opened again.
    mapping: Option<String>,
    /// Row of the list of findings.
    finding: usize,
    first_finding: usize,
    /// Show only rows with this finding.
    only: Option<&'static str>,
    /// Show only rows that contain this, in small letters.
    search: String,
    /// Kept rows that pass, by their index, and the one on the screen.
    matching: Vec<usize>,
    at: usize,
    mode: Mode,
    sample: Option<Sample>,
    scroll: usize,
    /// How far the sample can be scrolled, and rows of a page; known after a draw.
    most: usize,
    page: usize,
}

impl DataPane {
    /// True before anything was asked for.
    pub fn idle(&self) -> bool {
        self.shown.is_none() && self.reading.is_none()
    }

    /// Rows are left out by the search or by a finding.
    fn filtered(&self) -> bool {
        self.only.is_some() || !self.search.is_empty()
    }

    /// An inspection begins.
    pub fn read(&mut self, subject: Subject, run: Option<PathBuf>) {
        self.reading = Some(Reading {
            name: subject.name.clone(),
            progress: Progress::default(),
        });
        (self.subject, self.run, self.error) = (Some(subject), run, None);
        self.mapping = None;
    }

    /// How far it is; late words of another inspection are dropped.
    pub fn progress(&mut self, name: &str, progress: Progress) {
        if let Some(reading) = self.reading.as_mut().filter(|r| r.name == name) {
            reading.progress = progress;
        }
    }

    /// It is done, or why not.
    pub fn inspected(&mut self, name: &str, result: Result<Arc<Inspected>, String>) {
        if self.reading.as_ref().is_none_or(|r| r.name != name) {
            return;
        }
        self.reading = None;
        match result {
            Ok(inspected) => {
                self.shown = Some(inspected);
                (self.finding, self.first_finding, self.only) = (0, 0, None);
                self.search.clear();
                self.filter();
            }
            Err(why) => {
                self.mapping = mapping(&why);
                self.error = Some(why);
            }
        }
    }

    fn findings(&self) -> &[RowsFinding] {
        self.shown.as_ref().map_or(&[], |s| &s.report.findings)
    }

    /// The row on the screen.
    fn row(&self) -> Option<&Arc<KeptRow>> {
        let rows = &self.shown.as_ref()?.kept.rows;
        rows.get(*self.matching.get(self.at)?)
    }

    /// Finds the rows that pass; stays at the row on the screen where it is one of them.
    fn filter(&mut self) {
        let stay = self.row().map(|row| row.number);
        let Some(shown) = &self.shown else { return };
        let passes = |row: &KeptRow| {
            let found = |id| row.faults.iter().any(|(fault, _)| *fault == id);
            self.only.is_none_or(found) && sample::contains(row, &self.search)
        };
        let rows = shown.kept.rows.iter().enumerate();
        self.matching = rows
            .filter(|(_, row)| passes(row))
            .map(|(i, _)| i)
            .collect();
        let numbers = self.matching.iter().map(|i| shown.kept.rows[*i].number);
        let at = stay.and_then(|stay| numbers.into_iter().position(|n| n >= stay));
        self.show_row(at.unwrap_or(0));
    }

    fn show_row(&mut self, at: usize) {
        self.at = at.min(self.matching.len().saturating_sub(1));
        self.scroll = 0;
        let view = self.shown.as_ref().and_then(|s| s.view.as_deref());
        self.sample = self.row().map(|row| Sample::of(row, view));
    }

    /// Shows only rows that contain a text; an empty one shows all.
    pub fn search(&mut self, text: &str) {
        self.search = text.trim().to_lowercase();
        self.filter();
    }

    /// Goes to the row with this number, or the next one that is shown.
    ///
    /// # Errors
    /// Not a number of a row, in words.
    pub fn jump(&mut self, text: &str) -> Result<(), String> {
        let digits: String = text.chars().filter(|c| *c != ',').collect();
        let number: u64 = digits
            .trim()
            .parse()
            .map_err(|_| format!("`{text}` is not a row number"))?;
        let Some(shown) = &self.shown else {
            return Ok(());
        };
        let rows = &shown.kept.rows;
        let at = self.matching.iter().position(|i| rows[*i].number >= number);
        match at {
            Some(at) => {
                self.show_row(at);
                Ok(())
            }
            None => Err(format!("no row from {number} on is kept for browsing")),
        }
    }

    /// Shows only the rows of the selected finding, or all again.
    fn toggle_finding(&mut self) {
        let selected = self.findings().get(self.finding);
        let id = selected
            .and_then(|finding| checks::find(&finding.id))
            .map(|kind| kind.id);
        self.only = if self.only == id { None } else { id };
        self.filter();
        if self.only.is_some() {
            self.show_row(0);
        }
    }
}
