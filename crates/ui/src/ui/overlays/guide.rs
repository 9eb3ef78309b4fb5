//! The guide: a list of questions and symptoms, the ones that the run's findings raise in front, found by typing; a page is read above it.

use super::{Canvas, Overlay, Reply};
use crate::base::finding::Status;
use crate::diagnosis::diagnose;
use crate::guide::{self, Hit, Subject};
use crate::plan::measured::of_log;
use crate::plan::{Plan, plan};
use crate::run::RunState;
use crate::ui::action::Action;
use crate::ui::field::{Lines, TextField};
use crate::ui::hit::Target;
use crate::ui::layout::{centred, framed, split_top, wrap};
use crate::ui::request::Hints;
use crate::ui::store::Store;
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::text::readable;
use crate::wire::{MetricInfo, Outcome};
use crossterm::event::KeyEvent;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph};

/// The page on runs that broke off.
const CRASH: &str = "crash";
/// Columns of the sheet.
const WIDTH: u16 = 104;

/// One answer.
#[derive(Debug, Clone, PartialEq)]
struct Entry {
    title: String,
    /// What it belongs to, beside the title.
    area: &'static str,
    /// A finding of the run leads to it.
    raised: bool,
    text: String,
}

impl Entry {
    fn new(title: String, area: &'static str, text: &str) -> Entry {
        Entry {
            title,
            area,
            raised: false,
            text: guide::plain(text),
        }
    }
}

/// The questions, what was typed, and how far the open page is scrolled.
#[derive(Debug)]
pub struct GuideSheet {
    entries: Vec<Entry>,
    /// What the run declares beside the tables of metrics.
    metrics: Vec<MetricInfo>,
    query: TextField,
    /// The answers to what was typed.
    found: Vec<Entry>,
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
            machine: store
                .hardware
                .machine
                .as_ref()
                .map(|machine| machine.in_one_line()),
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
        let raises = |rules: &[&'static str]| rules.iter().any(|rule| wrong.contains(rule));
        let pages = guide::pages();
        let pages = pages.iter().map(|page| Entry {
            // A run that completed did not crash, whatever it warned of.
            raised: raises(&page.rules) && !(completed && page.id == CRASH),
            ..Entry::new(page.title.into(), "", &page.fill(subject).text)
        });
        let symptoms = guide::entries().map(|entry| Entry {
            raised: raises(&entry.rules),
            ..Entry::new(entry.title.into(), entry.area, &entry.text())
        });
        let mut entries: Vec<Entry> = pages.chain(symptoms).collect();
        entries.sort_by_key(|entry| !entry.raised);
        GuideSheet {
            entries,
            metrics: subject
                .run
                .map(|run| run.metrics.clone())
                .unwrap_or_default(),
            query: TextField::new(Lines::One, ""),
            found: Vec::new(),
            selected: 0,
            open: false,
            scroll: 0,
            page: 1,
        }
    }

    fn rows(&self) -> &[Entry] {
        match self.query.text().trim().is_empty() {
            true => &self.entries,
            false => &self.found,
        }
    }

    fn row(&self) -> Option<&Entry> {
        self.rows().get(self.selected)
    }

    /// What was typed is another question now.
    fn asked(&mut self) -> Reply {
        let found = guide::ask(&self.query.text(), &self.metrics);
        let hits = found.hits.iter().chain(&found.guesses);
        self.found = hits.map(|hit| self.entry(hit)).collect();
        self.selected = 0;
        Reply::Stay
    }

    fn entry(&self, hit: &Hit) -> Entry {
        let title = hit.title();
        // Those in the list have the facts of the run.
        let listed = self.entries.iter().find(|entry| entry.title == title);
        listed
            .cloned()
            .unwrap_or_else(|| Entry::new(title, "", &hit.text()))
    }

    fn contents(&self, theme: &Theme) -> Vec<Line<'static>> {
        let rows = self.rows().iter().enumerate().map(|(at, entry)| {
            let meaning = if at == self.selected {
                Meaning::Cursor
            } else {
                Meaning::Text
            };
            let pointer = if at == self.selected {
                theme.glyphs().pointer
            } else {
                " "
            };
            let mark = if entry.raised { "! " } else { "" };
            Line::from(vec![
                Span::styled(format!("{pointer} "), theme.style(meaning)),
                Span::styled(mark, theme.style(Meaning::Warn)),
                Span::styled(readable(&entry.title, theme).into_owned(), theme.style(meaning)),
                Span::styled(format!("  {}", entry.area), theme.style(Meaning::Muted)),
            ])
        });
        let mut rows: Vec<Line> = rows.collect();
        if rows.is_empty() {
            let words = "  nothing answers this; llmtui guide QUESTION counts models and memory";
            rows.push(Line::styled(words, theme.style(Meaning::Muted)));
        }
        rows
    }

    fn reading(&self, width: u16, theme: &Theme) -> Vec<Line<'static>> {
        let Some(entry) = self.row() else {
            return Vec::new();
        };
        let mut lines = vec![
            Line::styled(readable(&entry.title, theme).into_owned(), theme.style(Meaning::Title)),
            Line::default(),
        ];
        for line in entry.text.lines() {
            let (mark, words) = guide::item(line);
            let below = " ".repeat(mark.len());
            let room = width.saturating_sub(mark.len() as u16).max(8);
            for (at, row) in wrap(&readable(words, theme), room).into_iter().enumerate() {
                let mark = if at == 0 { mark } else { &below };
                lines.push(Line::styled(
                    format!("{mark}{row}"),
                    theme.style(Meaning::Text),
                ));
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

    /// In the list letters are a question.
    fn typing(&self) -> bool {
        !self.open
    }

    fn key(&mut self, key: KeyEvent) -> Reply {
        if self.open {
            return Reply::Stay;
        }
        self.query.key(key);
        self.asked()
    }

    fn paste(&mut self, text: &str) -> Reply {
        if self.open {
            return Reply::Stay;
        }
        self.query.paste(text);
        self.asked()
    }

    fn click(&mut self, row: usize) -> Reply {
        self.selected = row.min(self.rows().len().saturating_sub(1));
        self.act(Action::Accept)
    }

    fn act(&mut self, action: Action) -> Reply {
        let last = self.rows().len().saturating_sub(1);
        let place = if self.open {
            &mut self.scroll
        } else {
            &mut self.selected
        };
        match action {
            Action::Up => *place = place.saturating_sub(1),
            Action::Down => *place = place.saturating_add(1),
            Action::PageUp => *place = place.saturating_sub(self.page),
            Action::PageDown => *place = place.saturating_add(self.page),
            Action::Top => *place = 0,
            Action::Bottom => *place = usize::MAX,
            Action::Accept if self.open => return Reply::Close,
            Action::Accept if self.row().is_none() => {}
            Action::Accept => (self.open, self.scroll) = (true, 0),
            Action::Cancel if self.open => self.open = false,
            // One step back: to all questions.
            Action::Cancel if !self.query.is_empty() => {
                self.query.clear();
                self.selected = 0;
            }
            Action::Cancel | Action::Leave => return Reply::Close,
            _ => {}
        }
        self.selected = self.selected.min(last);
        Reply::Stay
    }

    fn renew(&mut self, store: &Store) {
        let newer = GuideSheet::new(store);
        (self.entries, self.metrics) = (newer.entries, newer.metrics);
        let selected = self.selected;
        self.asked();
        self.selected = selected;
    }

    fn draw(&mut self, frame: &mut Frame, area: Rect, canvas: &mut Canvas) {
        let width = WIDTH.min(area.width.saturating_sub(2));
        let lines = match self.open {
            true => self.reading(width.saturating_sub(2), canvas.theme),
            false => self.contents(canvas.theme),
        };
        // The question has a row of its own.
        let asks = u16::from(!self.open);
        let height = u16::try_from(lines.len() + 2)
            .unwrap_or(u16::MAX)
            .saturating_add(asks);
        let area = centred(area, width, height.min(area.height));
        let title = match self.open {
            true => "guide: {cancel} for the questions, {up} and {down} scroll",
            false => "guide: type a question, {accept} reads",
        };
        let title = canvas.keymap.fill(title);
        let block = framed(canvas.theme, &title);
        let inner = block.inner(area);
        frame.render_widget(Clear, area);
        frame.render_widget(block, area);
        canvas.hits.add(area, Target::Overlay);
        let (query, inner) = split_top(inner, asks);
        if !self.open {
            let (theme, typed) = (canvas.theme, query.width.saturating_sub(2));
            let pointer = Span::styled(theme.glyphs().pointer, theme.style(Meaning::Accent));
            frame.render_widget(pointer, query);
            let x = query.x + 2.min(query.width);
            self.query.draw(
                frame,
                Rect {
                    x,
                    width: typed,
                    ..query
                },
                theme,
                true,
            );
        }
        self.page = usize::from(inner.height).saturating_sub(1).max(1);
        let first = match self.open {
            true => {
                self.scroll = self
                    .scroll
                    .min(lines.len().saturating_sub(inner.height.into()));
                self.scroll
            }
            false => (self.selected + 1).saturating_sub(inner.height.into()),
        };
        let shown: Vec<Line> = lines
            .into_iter()
            .skip(first)
            .take(inner.height.into())
            .collect();
        if !self.open {
            for (row, y) in (inner.y..inner.bottom()).enumerate().take(shown.len()) {
                let place = Rect {
                    y,
                    height: 1,
                    ..inner
                };
                canvas.hits.add(place, Target::OverlayRow(first + row));
            }
        }
        frame.render_widget(Paragraph::new(shown), inner);
    }
}

/// One of its kind.
#[cfg(test)]
pub(super) fn example() -> Box<dyn Overlay> {
    Box::new(GuideSheet::of(&Subject::default()))
}
