//! The wizard's screen: answers so far on the left, the question on the right, the words about the selected row under it.
//! What is asked and what an answer means is `advisor::wizard`'s; here it is drawn and typed into.

mod draw;
mod list;

use self::draw::{draw_field, draw_heading, draw_row, note_style, short_path};
use self::list::Line as Shown;
use super::{Canvas, Choice, Editor, LIST, Overlay, PATH, Reply};
use crate::advisor::wizard::{Note, Outcome, Question, Row, Inspection, Step, Wizard};
use crate::base::text::one_line;
use crate::ui::action::{Action, Context};
use crate::ui::effect::Effect;
use crate::ui::field::{Lines, TextField};
use crate::ui::hit::Target;
use crate::ui::layout::{fill, framed, scroll_to, split_top};
use crate::ui::msg::{Msg, Slot};
use crate::ui::request::Hints;
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::text::{self, Word, word};
use crate::wire::Event;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::Clear;
use std::collections::BTreeMap;
use unicode_width::UnicodeWidthStr;

/// Columns of the labels of notes.
const LABELS: u16 = 12;
/// Rows that the notes keep, however long the list is.
const NOTES: u16 = 8;
/// Columns that a path gets at least: where its row has fewer, it is typed on a line of its own.
const PATH_COLUMNS: usize = 32;
/// Rows of names that a path could go on with.
const NAMES: usize = 4;

/// The wizard and the field that is typed into.
#[derive(Debug)]
pub struct WizardScreen {
    wizard: Wizard,
    question: Question,
    field: TextField,
    /// What is typed to find a row in a long list.
    filter: TextField,
    /// The field holds a path that the user did not type: the first character replaces it.
    offered: bool,
    /// What the user typed last at each question.
    own: BTreeMap<Step, String>,
    /// What the typed path could go on with, once that was asked for.
    names: Option<Vec<String>>,
    scroll: usize,
    /// First line of notes shown.
    notes_from: usize,
    notes_page: usize,
    notes_end: usize,
    /// A look at the disk is under way.
    looking: bool,
    /// The round of checks whose findings are taken. Every wizard has rounds of its own.
    round: u64,
}

impl WizardScreen {
    /// `slot` was given to nobody else.
    pub fn new(wizard: Wizard, slot: Slot) -> Self {
        let mut screen = WizardScreen {
            question: wizard.question(),
            wizard,
            field: TextField::new(Lines::One, ""),
            filter: TextField::new(Lines::One, ""),
            offered: false,
            own: BTreeMap::new(),
            names: None,
            scroll: 0,
            notes_from: 0,
            notes_page: 1,
            notes_end: 0,
            looking: false,
            round: u64::from(slot.0) << 32,
        };
        screen.refresh(true);
        screen
    }

    fn row(&self) -> Option<&Row> {
        self.question.rows.get(self.wizard.selected())
    }

    /// Asks again; the field takes the selected row's text.
    fn refresh(&mut self, moved: bool) {
        self.question = self.wizard.question();
        if moved {
            self.names = None;
            self.notes_from = 0;
            let text = self.row().and_then(|row| row.input.as_ref());
            let text = text.map(|input| input.text.clone()).unwrap_or_default();
            self.field.set(&text);
            let own = self.own.get(&self.question.step) == Some(&text);
            self.offered = !own && !text.is_empty() && self.asks_for_a_path();
        }
    }

    /// Of the questions for paths those that offer one of an earlier time, or another one than a name to save as.
    fn asks_for_a_path(&self) -> bool {
        self.types_a_path() && self.question.step != Step::Finish
    }

    /// Clears a suggested path before the user types their own.
    fn clear_suggestion(&mut self) {
        if std::mem::take(&mut self.offered) {
            self.field.set("");
        }
    }

    /// All texts but settings are paths.
    fn types_a_path(&self) -> bool {
        self.takes_text() && self.question.step != Step::Settings
    }

    /// True while the selected row takes a text.
    fn takes_text(&self) -> bool {
        self.row().is_some_and(|row| row.input.is_some())
    }

    /// What is typed on a row that takes no text goes to the next one that does: dropped, Enter would take the row instead.
    fn select_field(&mut self) {
        let rows = self.question.rows.iter().enumerate();
        let mut fields = rows.filter(|(_, row)| row.open && row.input.is_some());
        if !self.takes_text()
            && let Some((row, _)) = fields.next()
        {
            self.select(row);
        }
    }

    fn select(&mut self, row: usize) {
        self.wizard.select(row);
        self.refresh(true);
    }

    fn page(&mut self, down: bool, by: usize) {
        let end = self.notes_end.saturating_sub(self.notes_page);
        self.notes_from = match down {
            true => (self.notes_from + by).min(end),
            false => self.notes_from.saturating_sub(by),
        };
    }

    fn follow(&mut self, outcome: Outcome) -> Reply {
        self.looking = matches!(outcome, Outcome::Look(_));
        if outcome == Outcome::Moved {
            self.scroll = 0;
            self.filter.clear();
        }
        self.refresh(true);
        match outcome {
            Outcome::Stay | Outcome::Moved => Reply::Stay,
            Outcome::Look(look) => Reply::Do(Effect::Look(look)),
            Outcome::Check { yaml, .. } => {
                self.scroll = 0;
                self.round += 1;
                let round = self.round;
                Reply::Do(Effect::Preflight { round, yaml })
            }
            Outcome::Close => Reply::Close,
            Outcome::Start { name, yaml, force } => {
                Reply::Chosen(Choice::StartSpec { name, yaml, force })
            }
            Outcome::Save { path, yaml } => Reply::Do(Effect::SaveSpec { path, yaml }),
            Outcome::Edit => match self.wizard.draft() {
                Some((draft, _)) => Reply::Open(Box::new(Editor::new(draft))),
                None => Reply::Stay,
            },
        }
    }

    /// A check was made.
    fn checked(&mut self, event: &Event) {
        let Event::Checked { finding, next, .. } = event else {
            return;
        };
        self.wizard.checked(finding.sanitized(), next.as_deref());
        self.refresh(false);
    }

    fn typed(&mut self) {
        self.names = None;
        self.offered = false;
        self.own.insert(self.question.step, self.field.text());
        self.wizard.type_in(&self.field.text());
        self.refresh(false);
    }

    fn draw_answers(&self, frame: &mut Frame, area: Rect, theme: &Theme) {
        let rows = self.wizard.summary();
        for ((step, answer), y) in rows.into_iter().zip(area.y..area.bottom()) {
            let here = step == self.question.step;
            let label = if here {
                Meaning::Accent
            } else {
                Meaning::Muted
            };
            let pointer = if here { theme.glyphs().pointer } else { " " };
            let value = match answer {
                Some(answer) => answer,
                None if here => theme.glyphs().ellipsis.to_string(),
                None => String::new(),
            };
            let width = area.width.saturating_sub(1);
            let value = short_path(&value, usize::from(width).saturating_sub(10), theme);
            let words = [
                word(format!("{pointer}{}", fill(step.word(), 9, "")), label),
                word(value, Meaning::Text),
            ];
            text::draw(frame.buffer_mut(), area.x, y, width, &words, theme);
        }
    }

    fn draw_question(&mut self, frame: &mut Frame, area: Rect, canvas: &mut Canvas) {
        let theme = canvas.theme;
        let airy = area.height >= 14;
        let (head, area) = split_top(area, 1 + u16::from(airy));
        let mut title = vec![word(self.question.title, Meaning::Title)];
        title.extend(self.filter_words());
        let buffer = frame.buffer_mut();
        text::draw(buffer, head.x, head.y, head.width, &title, theme);
        let n = u16::try_from(self.lines().len()).unwrap_or(u16::MAX);
        let error = self.error_rows(area.width);
        let notes = NOTES.min(area.height / 2).max(error + 2);
        let n = n + u16::from(self.own_line(area.width));
        let (list, foot) = split_top(area, n.min(area.height.saturating_sub(notes)));
        self.draw_rows(frame, list, canvas);
        let gap = u16::from(airy && n > 0);
        let (_, foot) = split_top(foot, gap);
        self.draw_notes(frame, foot, theme);
    }

    /// The selected row's detail, when its row has no room for it and no note repeats it.
    fn hidden_detail(&self, width: usize) -> Option<String> {
        let row = self.row().filter(|row| row.input.is_none())?;
        let titles = self.titles(width);
        let fits = row.title.width() <= titles && titles + 4 + row.detail.width() <= width;
        let hidden = !fits && self.question.step != Step::Method;
        hidden.then(|| row.detail.clone())
    }

    /// Columns of the titles. One that would leave too little beside it is longer, and has its row for itself.
    fn titles(&self, width: usize) -> usize {
        let most = width * 3 / 5;
        let titles = self.question.rows.iter().map(|row| row.title.width());
        titles.filter(|title| *title <= most).max().unwrap_or(most)
    }

    fn error_rows(&self, width: u16) -> u16 {
        let lines = |words: &str| text::wrap(words, usize::from(width), 8, false).len();
        self.wizard
            .error()
            .map_or(0, |words| u16::try_from(lines(words)).unwrap_or(0))
    }

    /// Whether the path that is typed gets the line below its row.
    fn own_line(&self, width: u16) -> bool {
        let used = self.titles(width.into()) + 4;
        self.types_a_path() && usize::from(width) < used + PATH_COLUMNS
    }

    fn draw_rows(&mut self, frame: &mut Frame, area: Rect, canvas: &mut Canvas) {
        let selected = self.wizard.selected();
        let own_line = self.own_line(area.width) && area.height > 1;
        let height = usize::from(area.height) - usize::from(own_line);
        let lines = self.lines();
        let at = lines.iter().position(|line| *line == Shown::Row(selected));
        self.scroll = scroll_to(at.unwrap_or(0), self.scroll, height);
        // The heading of the first row is worth its line.
        if self.scroll == 1 && height > 1 {
            self.scroll = usize::from(at.is_some_and(|at| at >= height));
        }
        let titles = self.titles(area.width.into());
        let mut y = area.y;
        for line in lines.into_iter().skip(self.scroll) {
            if y >= area.bottom() {
                break;
            }
            let i = match line {
                Shown::Row(i) => i,
                Shown::Heading(words) => {
                    draw_heading(frame, Rect { y, height: 1, ..area }, words, canvas.theme);
                    y += 1;
                    continue;
                }
            };
            let row = &self.question.rows[i];
            let place = Rect {
                y,
                height: 1,
                ..area
            };
            y += 1;
            if let Some(input) = row.input.as_ref().filter(|_| own_line && i == selected) {
                let title = Row {
                    input: None,
                    ..row.clone()
                };
                draw_row(frame, place, &title, true, titles, None, canvas.theme);
                canvas.hits.add(place, Target::OverlayRow(i));
                let line = Rect {
                    x: area.x + 2.min(area.width),
                    y,
                    width: area.width.saturating_sub(2),
                    height: 1,
                };
                y += 1;
                draw_field(frame, line, &mut self.field, input, canvas.theme);
                continue;
            }
            let typed = match (&row.input, i == selected) {
                (Some(_), true) => Some(&mut self.field),
                _ => None,
            };
            draw_row(
                frame,
                place,
                row,
                i == selected,
                titles,
                typed,
                canvas.theme,
            );
            canvas.hits.add(place, Target::OverlayRow(i));
        }
    }

    /// Behind the question: that letters find a row, or the letters.
    fn filter_words(&self) -> Vec<Word> {
        if !self.filters() {
            return Vec::new();
        }
        let typed = one_line(self.filter.text().trim());
        if typed.is_empty() {
            return vec![word("  type to find one", Meaning::Muted)];
        }
        let (found, all) = (self.visible().len(), self.question.rows.len());
        vec![
            word(format!("  {typed}"), Meaning::Accent),
            word(format!("  {found} of {all}"), Meaning::Muted),
        ]
    }

    /// What a path could go on with, as lines.
    fn name_lines(&self, width: usize, theme: &Theme) -> Vec<Vec<Word>> {
        let Some(names) = &self.names else {
            return Vec::new();
        };
        let words = match names.is_empty() {
            true => "no file or folder starts like this".into(),
            false => one_line(&names.join("  ")),
        };
        let rows = text::wrap(&words, width, NAMES, theme.ascii).into_iter();
        rows.map(|row| vec![word(row, Meaning::Accent)]).collect()
    }

    fn draw_notes(&mut self, frame: &mut Frame, area: Rect, theme: &Theme) {
        let lines = self.note_lines(usize::from(area.width), theme);
        self.notes_page = usize::from(area.height).max(1);
        self.notes_end = lines.len();
        let last = lines.len().saturating_sub(self.notes_page);
        let from = self.notes_from.min(last);
        let buffer = frame.buffer_mut();
        for (words, y) in lines.iter().skip(from).zip(area.y..area.bottom()) {
            text::draw(buffer, area.x, y, area.width, words, theme);
        }
        if from < last && area.height > 0 {
            let more = format!(" {} more", theme.glyphs().down);
            let more = [word(more, Meaning::Muted)];
            let y = area.bottom() - 1;
            text::draw_right(buffer, area.right(), y, area.width, &more, theme);
        }
    }

    /// What stands below the answers: errors first, then what the answer means, then the text of a file.
    fn note_lines(&self, width: usize, theme: &Theme) -> Vec<Vec<Word>> {
        if self.filters() && self.visible().is_empty() {
            let words = "nothing here has these letters in its name or its reason";
            return vec![vec![word(words, Meaning::Muted)]];
        }
        let mut lines = self.name_lines(width, theme);
        if self.looking {
            lines.push(vec![word("looking …", Meaning::Muted)]);
        }
        lines.extend(self.error_lines(width, theme));
        if let Some(detail) = self.hidden_detail(width) {
            let rows = text::wrap(&detail, width, 4, theme.ascii);
            lines.extend(rows.into_iter().map(|row| vec![word(row, Meaning::Muted)]));
        }
        let notes = self.question.notes.iter();
        lines.extend(notes.flat_map(|note| lines_of(note, width, theme)));
        for row in &self.question.text {
            let meaning = match row.trim_start().starts_with('#') {
                true => Meaning::Muted,
                false => Meaning::Text,
            };
            lines.push(vec![word(format!("  {row}"), meaning)]);
        }
        lines
    }

    /// The error and an empty line; none where there is no error.
    fn error_lines(&self, width: usize, theme: &Theme) -> Vec<Vec<Word>> {
        let Some(error) = self.wizard.error() else {
            return Vec::new();
        };
        let rows = text::wrap(error, width.saturating_sub(2), 8, theme.ascii);
        let line = |(i, row): (usize, String)| {
            let mark = if i == 0 { theme.glyphs().bad } else { " " };
            vec![
                word(format!("{mark} "), Meaning::Bad),
                word(row, Meaning::Bad),
            ]
        };
        let lines = rows.into_iter().enumerate().map(line);
        lines.chain([Vec::new()]).collect()
    }
}

/// A note with its label in front of the first line.
fn lines_of(note: &Note, width: usize, theme: &Theme) -> Vec<Vec<Word>> {
    let labels = usize::from(LABELS).min(width / 3);
    let mut rows = text::wrap(&note.text, width.saturating_sub(labels), 12, theme.ascii);
    if rows.is_empty() {
        rows.push(String::new());
    }
    let (lead, lead_meaning, meaning) = note_style(note.label, theme);
    let line = |(i, row): (usize, String)| {
        let lead = if i == 0 { lead.as_str() } else { "" };
        vec![
            word(fill(lead, labels, ""), lead_meaning),
            word(row, meaning),
        ]
    };
    rows.into_iter().enumerate().map(line).collect()
}

/// A key that types a character, and is no command.
fn is_text(key: KeyEvent) -> bool {
    let command = KeyModifiers::CONTROL | KeyModifiers::ALT;
    matches!(key.code, KeyCode::Char(_)) && !key.modifiers.intersects(command)
}

impl Overlay for WizardScreen {
    fn contexts(&self) -> &'static [Context] {
        if self.types_a_path() { PATH } else { LIST }
    }

    fn hints(&self) -> Hints {
        let mut own = vec![(Action::Accept, "choose")];
        if self.types_a_path() {
            own.push((Action::Complete, "complete"));
            own.push((Action::KillLine, "clear"));
        }
        own.push((Action::Down, "next row"));
        own.push((Action::PageDown, "more text"));
        Hints {
            own,
            kept: vec![
                (
                    Action::Cancel,
                    match self.filter.is_empty() {
                        true => "previous question",
                        false => "all rows",
                    },
                ),
                (Action::Leave, "close"),
            ],
        }
    }

    /// True while letters are a text: of the selected row, of a path that is asked for, or to find a row.
    fn typing(&self) -> bool {
        self.takes_text() || self.awaits_a_path() || self.filters()
    }

    fn act(&mut self, action: Action) -> Reply {
        match action {
            Action::Up | Action::Down if self.question.rows.is_empty() => {
                self.page(action == Action::Down, 1);
            }
            Action::Up | Action::Down => {
                if let Some(row) = self.neighbour(action == Action::Down) {
                    self.select(row);
                }
            }
            Action::Top | Action::Bottom => {
                let rows = self.visible();
                let end = if action == Action::Top { rows.first() } else { rows.last() };
                end.into_iter().for_each(|row| self.select(*row));
            }
            Action::PageUp | Action::PageDown => {
                self.page(action == Action::PageDown, self.notes_page);
            }
            Action::Accept if !self.is_visible() => {}
            Action::Cancel if !self.filter.is_empty() => self.unfiltered(),
            Action::Accept => {
                let outcome = self.wizard.enter();
                return self.follow(outcome);
            }
            Action::Cancel => {
                let outcome = self.wizard.back();
                return self.follow(outcome);
            }
            Action::Complete => return Reply::Do(Effect::Complete(self.field.text())),
            Action::Leave => return Reply::Close,
            _ => {}
        }
        Reply::Stay
    }

    fn key(&mut self, key: KeyEvent) -> Reply {
        if self.filters() {
            self.filter.key(key);
            self.filtered();
            return Reply::Stay;
        }
        if is_text(key) {
            self.select_field();
        }
        if self.takes_text() {
            if is_text(key) {
                self.clear_suggestion();
            }
            self.field.key(key);
            self.typed();
        }
        Reply::Stay
    }

    fn paste(&mut self, text: &str) -> Reply {
        if self.filters() {
            self.filter.paste(text.trim());
            self.filtered();
            return Reply::Stay;
        }
        self.select_field();
        if self.takes_text() {
            self.clear_suggestion();
            self.field.paste(text.trim());
            self.typed();
        }
        Reply::Stay
    }

    /// A click selects, a second one answers.
    fn click(&mut self, row: usize) -> Reply {
        if row == self.wizard.selected() && !self.takes_text() {
            return self.act(Action::Accept);
        }
        self.select(row);
        Reply::Stay
    }

    fn incoming(&mut self, msg: &Msg) -> Option<Reply> {
        match msg {
            Msg::Seen(seen) => {
                let outcome = self.wizard.on_inspected(Inspection::clone(seen));
                return Some(self.follow(outcome));
            }
            Msg::Completed { of, path, names }
                if self.types_a_path() && self.field.text() == *of =>
            {
                self.field.set(path);
                self.typed();
                self.names = (names.len() != 1).then(|| names.clone());
            }
            Msg::Checked { round, event } if *round == self.round => self.checked(event),
            Msg::ChecksOver { round, result } if *round == self.round => {
                self.wizard.checks_over(result.clone());
                self.refresh(false);
            }
            _ => return None,
        }
        Some(Reply::Stay)
    }

    /// The answers, for the next time.
    fn persist(&self) -> Option<Effect> {
        Some(Effect::Remember(self.wizard.to_remember()))
    }

    /// ```text
    /// ┌ new run ─────────────────────────────────────────── step 4 of 8 ┐
    /// │ goal    follow instructions │ How should it learn?               │
    /// │ data    chat.jsonl          │                                    │
    /// │ start   a base model        │ ▸ SFT with LoRA   fits …           │
    /// │ method  …                   │   DPO             needs pairs …    │
    /// │                             │                                    │
    /// │                             │ Why    9.8k good answers …         │
    /// └──────────────────────────────────────────────────────────────────┘
    /// ```
    fn draw(&mut self, frame: &mut Frame, area: Rect, canvas: &mut Canvas) {
        let theme = canvas.theme;
        let step = format!(
            " step {} of {} ",
            self.wizard.number(self.question.step),
            self.wizard.steps().count()
        );
        let block = framed(theme, "new run")
            .title_top(Line::styled(step, theme.style(Meaning::Muted)).right_aligned());
        let inner = block.inner(area);
        frame.render_widget(Clear, area);
        frame.render_widget(block, area);
        canvas.hits.add(area, Target::Overlay);
        let left = match inner.width {
            0..64 => 0,
            64..100 => 24,
            _ => 34,
        };
        let answers = Rect {
            width: left,
            ..inner
        };
        let ask = Rect {
            x: inner.x + left + 2 * u16::from(left > 0),
            width: inner.width.saturating_sub(left + 2 * u16::from(left > 0)),
            ..inner
        };
        if left > 0 {
            self.draw_answers(frame, answers, theme);
            for y in inner.y..inner.bottom() {
                let place = Rect {
                    x: answers.right(),
                    y,
                    width: 1,
                    height: 1,
                };
                let line = Line::styled(theme.glyphs().vertical, theme.style(Meaning::Border));
                frame.render_widget(line, place);
            }
        }
        self.draw_question(frame, ask, canvas);
    }
}

/// One of its kind.
#[cfg(test)]
pub(super) fn example() -> Box<dyn Overlay> {
    let sources = crate::spec::SpecSources::default();
    let machine = crate::advisor::inspection::Machine::of(Default::default(), Default::default());
    let context = crate::advisor::wizard::Context::gather(&sources, None, machine);
    let wizard = Wizard::new(context, Default::default());
    Box::new(WizardScreen::new(wizard, Slot(1)))
}

#[cfg(test)]
mod tests;
