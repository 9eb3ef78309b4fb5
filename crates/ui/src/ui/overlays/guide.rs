//! The guide: a list of questions, the ones that the run's findings raise in front; a page is read above it.

use super::{Canvas, Overlay, Reply};
use crate::base::finding::Status;
use crate::diagnosis::diagnose;
use crate::guide::{self, Subject};
use crate::plan::measured::of_log;
use crate::plan::{Plan, plan};
use crate::run::RunState;
use crate::ui::action::Action;
use crate::ui::hit::Target;
use crate::ui::layout::{centred, framed, wrap};
use crate::ui::request::Hints;
use crate::ui::store::Store;
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::text::readable;
use crate::wire::Outcome;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph};

/// The page on runs that broke off.
const CRASH: &str = "crash";
/// Columns of the sheet.
const WIDTH: u16 = 104;

/// One question.
#[derive(Debug)]
struct Entry {
    title: &'static str,
    /// A finding of the run leads to it.
    raised: bool,
    text: String,
}

/// The questions, and how far the open page is scrolled.
#[derive(Debug)]
pub struct GuideSheet {
    entries: Vec<Entry>,
    selected: usize,
    open: bool,
    scroll: usize,
    page: usize,
}

impl GuideSheet {
    /// Filled with what the workbench knows of the machine and of the run on the screen.
    pub fn new(store: &Store) -> GuideSheet {
        let state = store.held.as_ref().map(|held| &held.state);
        let subject = Subject {
            machine: store.hardware.machine.as_ref().map(|machine| machine.in_one_line()),
            plan: state.and_then(|state| planned(state, store)),
            run: state,
            asked: None,
        };
        GuideSheet::of(&subject)
    }

    fn of(subject: &Subject<'_>) -> GuideSheet {
        let judged = subject.run.map(diagnose);
        let ended = subject.run.and_then(|run| run.finished.as_ref());
        let completed = ended.is_some_and(|finish| finish.outcome == Outcome::Completed);
        let findings = judged.iter().flat_map(|judged| &judged.findings);
        let wrong: Vec<&str> = findings
            .filter(|f| f.status <= Status::Warn)
            .map(|f| f.id.as_str())
            .collect();
        let mut entries: Vec<Entry> = guide::pages()
            .iter()
            .map(|page| Entry {
                title: page.title,
                // A run that completed did not crash, whatever it warned of.
                raised: page.rules.iter().any(|rule| wrong.contains(rule))
                    && !(completed && page.id == CRASH),
                text: guide::plain(&page.fill(subject).text),
            })
            .collect();
        entries.sort_by_key(|entry| !entry.raised);
        GuideSheet {
            entries,
            selected: 0,
            open: false,
            scroll: 0,
            page: 1,
        }
    }

    fn contents(&self, theme: &Theme) -> Vec<Line<'static>> {
        let rows = self.entries.iter().enumerate().map(|(at, entry)| {
            let meaning = if at == self.selected { Meaning::Cursor } else { Meaning::Text };
            let pointer = if at == self.selected { theme.glyphs().pointer } else { " " };
            let mark = if entry.raised { "! " } else { "" };
            Line::from(vec![
                Span::styled(format!("{pointer} "), theme.style(meaning)),
                Span::styled(mark, theme.style(Meaning::Warn)),
                Span::styled(readable(entry.title, theme), theme.style(meaning)),
            ])
        });
        rows.collect()
    }

    fn reading(&self, width: u16, theme: &Theme) -> Vec<Line<'static>> {
        let entry = &self.entries[self.selected];
        let mut lines = vec![
            Line::styled(readable(entry.title, theme), theme.style(Meaning::Title)),
            Line::default(),
        ];
        for line in entry.text.lines() {
            let (mark, words) = guide::item(line);
            let below = " ".repeat(mark.len());
            let room = width.saturating_sub(mark.len() as u16).max(8);
            for (at, row) in wrap(&readable(words, theme), room).into_iter().enumerate() {
                let mark = if at == 0 { mark } else { &below };
                lines.push(Line::styled(format!("{mark}{row}"), theme.style(Meaning::Text)));
            }
            if words.is_empty() {
                lines.push(Line::default());
            }
        }
        lines
    }
}

/// The plan of a run on this machine, by its spec and the rows that it read.
fn planned(state: &RunState, store: &Store) -> Option<(String, Plan)> {
    let head = state.head.as_ref()?;
    let mut request = of_log(state)?;
    store.calibrate(&mut request);
    request.assume();
    Some((head.name.clone(), plan(&request)))
}

impl Overlay for GuideSheet {
    fn hints(&self) -> Hints {
        Hints::of_overlay(match self.open {
            true => vec![(Action::Down, "scroll"), (Action::Cancel, "questions")],
            false => vec![(Action::Accept, "read"), (Action::Down, "next")],
        })
    }

    fn act(&mut self, action: Action) -> Reply {
        let last = self.entries.len().saturating_sub(1);
        let place = if self.open { &mut self.scroll } else { &mut self.selected };
        match action {
            Action::Up => *place = place.saturating_sub(1),
            Action::Down => *place = place.saturating_add(1),
            Action::PageUp => *place = place.saturating_sub(self.page),
            Action::PageDown => *place = place.saturating_add(self.page),
            Action::Top => *place = 0,
            Action::Bottom => *place = usize::MAX,
            Action::Accept if self.open => return Reply::Close,
            Action::Accept => (self.open, self.scroll) = (true, 0),
            Action::Cancel if self.open => self.open = false,
            Action::Cancel | Action::Leave => return Reply::Close,
            _ => {}
        }
        self.selected = self.selected.min(last);
        Reply::Stay
    }

    fn renew(&mut self, store: &Store) {
        self.entries = GuideSheet::new(store).entries;
    }

    fn draw(&mut self, frame: &mut Frame, area: Rect, canvas: &mut Canvas) {
        let width = WIDTH.min(area.width.saturating_sub(2));
        let lines = match self.open {
            true => self.reading(width.saturating_sub(2), canvas.theme),
            false => self.contents(canvas.theme),
        };
        let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX);
        let area = centred(area, width, height.min(area.height));
        let title = match self.open {
            true => "guide: {cancel} for the questions, {up} and {down} scroll",
            false => "guide: {accept} reads; other questions: llmtui guide QUESTION",
        };
        let title = canvas.keymap.fill(title);
        let block = framed(canvas.theme, &title);
        let inner = block.inner(area);
        frame.render_widget(Clear, area);
        frame.render_widget(block, area);
        canvas.hits.add(area, Target::Overlay);
        self.page = usize::from(inner.height).saturating_sub(1).max(1);
        let first = match self.open {
            true => {
                self.scroll = self.scroll.min(lines.len().saturating_sub(inner.height.into()));
                self.scroll
            }
            false => (self.selected + 1).saturating_sub(inner.height.into()),
        };
        let shown: Vec<Line> = lines.into_iter().skip(first).take(inner.height.into()).collect();
        frame.render_widget(Paragraph::new(shown), inner);
    }
}

/// One of its kind.
#[cfg(test)]
pub(super) fn example() -> Box<dyn Overlay> {
    Box::new(GuideSheet::of(&Subject::default()))
}
