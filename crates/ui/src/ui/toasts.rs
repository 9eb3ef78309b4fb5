//! Short words in the corner that go by themselves; what was said stays in a list.

use super::layout::{Screen, cut_at_word, split_bottom, wrap};
use super::msg::Asked;
use super::theme::{Meaning, Theme};
use super::widgets::text::readable;
use crate::base::text::{one_line, without_error_numbers};
use crate::run::state::Level;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Block;
use ratatui::widgets::{Clear, Paragraph};
use std::collections::VecDeque;
use std::time::Duration;
use unicode_width::UnicodeWidthStr;

/// Shown at once; older ones wait until these are gone.
const MAX_SHOWN: usize = 3;
/// Remembered, to be read in full later.
const MAX_SAID: usize = 100;
/// Rows of one; longer ones are cut.
const MAX_ROWS: usize = 3;
/// The boxes together cover one row in so many of what is being read, but for a first box of one row.
const SHARE: u16 = 3;
/// Below this height a box covers much of what is being read: an error goes after [`BRIEFLY`] milliseconds.
const SMALL: u16 = 20;
const BRIEFLY: u64 = 8_000;
/// An error elsewhere.
const LONG: u64 = 15_000;
/// Columns of the words.
const WIDTH: u16 = 48;
/// Where letters are text: there no toast may lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Typing {
    No,
    /// In the lower rows.
    Below,
    /// In any row.
    Anywhere,
}

/// Below this height news that ask for nothing take one row at the bottom, and no box over what is being read.
const TALL: u16 = 28;

/// The subject of a toast; when that changes, the toast is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToastScope {
    /// The run on the screen: until another run, or another engine of it, is there.
    Run,
    /// What was asked for on this screen: warnings until it is left.
    Screen,
    /// That the run is stopping: until it refuses to, or another run is there.
    Stop,
    /// That the run does what was asked for: until it is done.
    Doing(Asked),
}

#[derive(Debug)]
struct Toast {
    level: Level,
    about: ToastScope,
    text: String,
    /// In monotonic time.
    until: Duration,
}

/// The words on the screen, newest last.
#[derive(Debug, Default)]
pub struct Toasts {
    list: VecDeque<Toast>,
    /// All messages, newest last; one that is repeated once.
    said: VecDeque<(Level, String)>,
    /// The screen is, as it was drawn last.
    small: bool,
    /// Boxes cover a part of it.
    boxed: bool,
}

impl Toasts {
    pub fn add(&mut self, now: Duration, level: Level, about: ToastScope, text: &str) {
        let millis = match level {
            Level::Info | Level::Good => 4_000,
            Level::Warn => 8_000,
            Level::Bad => LONG,
        };
        let text = one_line(&without_error_numbers(text));
        self.remember(level, &text);
        // News of the same kind (`lr …`) replaces what it said before: what begins alike up to the first number.
        let kind = |text: &str| -> Vec<String> {
            let words = text
                .split(' ')
                .take_while(|word| !word.starts_with(|c: char| c.is_ascii_digit()));
            words.map(String::from).collect()
        };
        self.list
            .retain(|toast| toast.level != level || kind(&toast.text) != kind(&text));
        self.list.push_back(Toast {
            level,
            about,
            text,
            until: now + Duration::from_millis(millis),
        });
        if self.list.len() > MAX_SAID {
            self.list.pop_front();
        }
    }

    fn remember(&mut self, level: Level, text: &str) {
        self.said.retain(|(_, said)| said != text);
        self.said.push_back((level, text.into()));
        if self.said.len() > MAX_SAID {
            self.said.pop_front();
        }
    }

    /// All messages in full, newest first.
    pub fn said(&self) -> Vec<(Level, String)> {
        self.said.iter().rev().cloned().collect()
    }

    /// Drops what has been shown long enough; true when something went.
    pub fn expire(&mut self, now: Duration) -> bool {
        let before = self.list.len();
        let small = self.small;
        let sooner = |toast: &Toast| match small && toast.level == Level::Bad {
            true => Duration::from_millis(LONG - BRIEFLY),
            false => Duration::ZERO,
        };
        self.list
            .retain(|toast| toast.until.saturating_sub(sooner(toast)) > now);
        self.list.len() != before
    }

    /// Another run is on the screen, or another engine of the same one.
    pub fn run_changed(&mut self) {
        self.list.retain(|toast| toast.about == ToastScope::Screen);
        self.screen_left();
    }

    /// The run does not stop: what said so goes.
    pub fn not_stopping(&mut self) {
        self.list.retain(|toast| toast.about != ToastScope::Stop);
    }

    /// What was asked for is done, and the screen shows it.
    pub fn done(&mut self, asked: Asked) {
        self.list
            .retain(|toast| toast.about != ToastScope::Doing(asked));
    }

    /// The screen is another one: its warnings mean nothing there.
    pub fn screen_left(&mut self) {
        let news = |toast: &Toast| matches!(toast.level, Level::Info | Level::Good);
        self.list
            .retain(|toast| toast.about == ToastScope::Run || news(toast));
    }

    /// Drops all of them, if boxes cover a part of the screen; true when they did.
    pub fn close(&mut self) -> bool {
        let boxed = std::mem::take(&mut self.boxed);
        if boxed {
            self.list.clear();
        }
        boxed
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// `all`: the words that say where all messages are read, for those that are cut or have no room.
    pub fn draw(
        &mut self,
        frame: &mut Frame,
        screen: &Screen,
        typing: Typing,
        (theme, all): (&Theme, &str),
    ) {
        let area = screen.body;
        (self.small, self.boxed) = (area.height < SMALL, false);
        if typing == Typing::Anywhere {
            if let Some(toast) = self.list.back() {
                draw_row(toast, frame, screen.tabs, (theme, all));
            }
            return;
        }
        let in_a_row =
            |toast: &&Toast| area.height < TALL && matches!(toast.level, Level::Info | Level::Good);
        self.boxed = self.list.iter().any(|toast| !in_a_row(&toast));
        self.draw_boxes(frame, area, (theme, all), |toast| !in_a_row(&toast));
        let row = match typing {
            Typing::Below => screen.tabs,
            _ => split_bottom(area, 1).1,
        };
        if let Some(toast) = self.list.iter().rev().find(in_a_row)
            && !says(frame, row, &readable(&toast.text, theme))
        {
            // Half a sentence before it would be read as its beginning.
            if typing == Typing::No {
                frame.render_widget(Clear, row);
            }
            draw_row(toast, frame, row, (theme, all));
        }
    }

    /// Boxes in the corner, the newest on top. The last one says how many have no room, and where all are read in full.
    fn draw_boxes(
        &self,
        frame: &mut Frame,
        area: Rect,
        (theme, all): (&Theme, &str),
        wanted: impl Fn(&Toast) -> bool,
    ) {
        let wanted: Vec<&Toast> = self.list.iter().rev().filter(|t| wanted(t)).collect();
        let room = WIDTH.min(area.width.saturating_sub(6));
        let mut left = (area.height / SHARE).max(3).min(area.height);
        let mut boxes = Vec::new();
        for toast in wanted.iter().take(MAX_SHOWN) {
            let most = MAX_ROWS.min(left.saturating_sub(2).into());
            if most == 0 {
                break;
            }
            let words = Words::of(toast, room, most, theme);
            left -= words.height();
            boxes.push(words);
        }
        let hidden = wanted.len() - boxes.len();
        let note = match hidden {
            0 if boxes.iter().any(|words| words.cut) => format!(" {all} "),
            0 => String::new(),
            n => format!(" {n} more: {all} "),
        };
        let last = boxes.len().saturating_sub(1);
        // One above the other they have one left border.
        let widest = boxes.iter().map(Words::width).max().unwrap_or(0);
        let width = widest.max(note.width() + 2);
        let width = u16::try_from(width).unwrap_or(u16::MAX).min(area.width);
        let x = area.right() - width;
        let mut y = area.y;
        for (i, words) in boxes.into_iter().enumerate() {
            let note = if i == last { note.as_str() } else { "" };
            let place = Rect {
                x,
                y,
                width,
                ..area
            };
            y = words.draw(frame, place, note, theme);
        }
    }
}

/// The rows of one box.
struct Words {
    level: Level,
    rows: Vec<String>,
    /// Some of the text is missing.
    cut: bool,
}

impl Words {
    /// In so many columns and at most so many rows.
    fn of(toast: &Toast, room: u16, most: usize, theme: &Theme) -> Words {
        let mut rows = wrap(&readable(&toast.text, theme), room);
        let too_many = rows.len() > most;
        if too_many {
            let rest = rows.split_off(most - 1);
            // Rows keep the blank at which they were wrapped.
            let rest = rest
                .iter()
                .map(|row| row.trim())
                .collect::<Vec<_>>()
                .join(" ");
            rows.push(cut_at_word(&rest, room.into(), theme.glyphs().ellipsis));
        }
        Words {
            level: toast.level,
            rows,
            cut: too_many,
        }
    }

    fn height(&self) -> u16 {
        u16::try_from(self.rows.len() + 2).unwrap_or(3)
    }

    /// Columns with mark and borders.
    fn width(&self) -> usize {
        let widths = self.rows.iter().map(|row| row.trim_end().width() + 5);
        widths.max().unwrap_or(0)
    }

    /// At the top of the area, as wide as it, with a note in the lower border; the row below it.
    fn draw(self, frame: &mut Frame, area: Rect, note: &str, theme: &Theme) -> u16 {
        let place = Rect {
            height: self.height(),
            ..area
        };
        let (mark, meaning) = mark(self.level, theme);
        let line = |(i, row): (usize, String)| {
            Line::from(vec![
                Span::styled(if i == 0 { mark } else { " " }, theme.style(meaning)),
                Span::styled(format!(" {row}"), theme.style(Meaning::Text)),
            ])
        };
        let lines: Vec<Line> = self.rows.into_iter().enumerate().map(line).collect();
        let note = Line::styled(note.to_string(), theme.style(Meaning::Muted));
        let block = Block::bordered()
            .border_set(theme.glyphs().border)
            .border_style(theme.style(meaning))
            .title_bottom(note.right_aligned());
        frame.render_widget(Clear, place);
        frame.render_widget(Paragraph::new(lines).block(block), place);
        place.bottom()
    }
}

/// Whether the row says this already.
fn says(frame: &mut Frame, row: Rect, text: &str) -> bool {
    let buffer = frame.buffer_mut();
    let cells = row.columns().map(|cell| buffer[(cell.x, row.y)].symbol());
    cells.collect::<String>().contains(text)
}

/// One row, to the right; where it is cut, with the words that say where all of it is read.
fn draw_row(toast: &Toast, frame: &mut Frame, area: Rect, (theme, all): (&Theme, &str)) {
    let (mark, meaning) = mark(toast.level, theme);
    let room = usize::from(area.width).saturating_sub(4);
    let whole = readable(&toast.text, theme);
    let text = match whole.width() > room {
        true => {
            let room = room.saturating_sub(all.width() + 1);
            format!(
                "{} {all}",
                cut_at_word(&whole, room, theme.glyphs().ellipsis)
            )
        }
        false => whole.into_owned(),
    };
    let width = u16::try_from(text.width() + 4)
        .unwrap_or(u16::MAX)
        .min(area.width);
    let place = Rect {
        x: area.right() - width,
        width,
        ..area
    };
    let line = Line::from(vec![
        Span::styled(format!(" {mark}"), theme.style(meaning)),
        Span::styled(format!(" {text} "), theme.style(Meaning::Text)),
    ]);
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(line), place);
}

/// The sign and colour of a message.
pub fn mark(level: Level, theme: &Theme) -> (&'static str, Meaning) {
    let glyphs = theme.glyphs();
    match level {
        Level::Info => (glyphs.dot, Meaning::Accent),
        Level::Good => (glyphs.ok, Meaning::Good),
        Level::Warn => (glyphs.warn, Meaning::Warn),
        Level::Bad => (glyphs.bad, Meaning::Bad),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn toasts_go_and_stay_in_the_list_of_all() {
        let mut toasts = Toasts::default();
        for i in 0..9 {
            toasts.add(
                Duration::ZERO,
                Level::Info,
                ToastScope::Run,
                &format!("n{i} is new"),
            );
        }
        toasts.add(Duration::ZERO, Level::Bad, ToastScope::Run, "worse");
        toasts.add(Duration::ZERO, Level::Bad, ToastScope::Run, "worse");
        assert_eq!(toasts.list.len(), 10);
        assert_eq!(toasts.said().len(), 10, "one that is repeated stands once");
        assert!(!toasts.expire(Duration::from_millis(3_999)));
        assert!(toasts.expire(Duration::from_millis(4_000)));
        assert_eq!(toasts.list.len(), 1);
        assert!(toasts.expire(Duration::from_millis(15_000)) && toasts.is_empty());
    }

    /// Two rules that speak at once: only the last was seen.
    #[test]
    fn news_that_differ_in_more_than_a_number_stand_beside_each_other() {
        let mut toasts = Toasts::default();
        for text in [
            "diagnosis warning: the loss does not fall",
            "diagnosis warning: the gradients vanish",
            "lr 1.00e-3 to 5.00e-4 from step 40 on",
            "lr 5.00e-4 to 2.00e-4 from step 60 on",
        ] {
            toasts.add(Duration::ZERO, Level::Warn, ToastScope::Run, text);
        }
        assert_eq!(toasts.list.len(), 3);
        assert!(
            toasts
                .list
                .iter()
                .any(|toast| toast.text.contains("does not fall"))
        );
        assert!(
            !toasts
                .list
                .iter()
                .any(|toast| toast.text.contains("step 40"))
        );
    }

    #[test]
    fn boxes_leave_most_of_a_small_screen_free_and_go_sooner() {
        let theme = Theme::ansi();
        let long = "word ".repeat(80);
        for (width, height) in [(60, 15), (80, 24), (160, 48), (24, 6)] {
            let mut toasts = Toasts::default();
            for first in ["one", "two", "three"] {
                let text = format!("{first} {long}");
                toasts.add(Duration::ZERO, Level::Bad, ToastScope::Run, &text);
            }
            let size = Rect::new(0, 0, width, height);
            let Some(screen) = crate::ui::layout::screen(size) else {
                continue;
            };
            let backend = ratatui::backend::TestBackend::new(width, height);
            let mut terminal = ratatui::Terminal::new(backend).unwrap();
            let draw = |frame: &mut Frame| {
                toasts.draw(frame, &screen, Typing::No, (&theme, "M: all messages"))
            };
            terminal.draw(draw).unwrap();
            let buffer = terminal.backend().buffer();
            let covers = |y: u16| (0..width).any(|x| buffer[(x, y)].symbol() != " ");
            let covered = (0..height).filter(|y| covers(*y)).count();
            assert!(
                (3..=usize::from(height / 2)).contains(&covered),
                "{width}×{height}: {covered}"
            );
            let brief = screen.body.height < SMALL;
            assert_eq!(
                toasts.expire(Duration::from_millis(8_000)),
                brief,
                "{width}×{height}"
            );
        }
    }

    #[test]
    fn cut_text_has_single_blanks_and_boxes_have_one_width() {
        let theme = Theme::ansi();
        let toast = |text: &str| Toast {
            level: Level::Warn,
            about: ToastScope::Run,
            text: text.into(),
            until: Duration::ZERO,
        };
        let words = Words::of(&toast(&"seven spikes in all; ".repeat(20)), 30, 2, &theme);
        assert!(
            words.cut && !words.rows[1].trim_end().contains("  "),
            "{:?}",
            words.rows
        );
        let mut toasts = Toasts::default();
        for text in ["a short one", "another one that takes more columns"] {
            toasts.add(Duration::ZERO, Level::Bad, ToastScope::Run, text);
        }
        let backend = ratatui::backend::TestBackend::new(120, 40);
        let mut terminal = ratatui::Terminal::new(backend).unwrap();
        let screen = crate::ui::layout::screen(Rect::new(0, 0, 120, 40)).unwrap();
        let draw = |frame: &mut Frame| toasts.draw(frame, &screen, Typing::No, (&theme, ""));
        terminal.draw(draw).unwrap();
        let buffer = terminal.backend().buffer();
        let left = |y: u16| (0..120).find(|x| buffer[(*x, y)].symbol() != " ");
        let edges: Vec<_> = (0..40).filter_map(left).collect();
        assert!(
            edges.len() == 6 && edges.iter().all(|x| *x == edges[0]),
            "{edges:?}"
        );
    }

    #[test]
    fn a_toast_goes_with_what_it_speaks_of() {
        let mut toasts = Toasts::default();
        let mut add = |level, about, text| toasts.add(Duration::ZERO, level, about, text);
        add(Level::Bad, ToastScope::Run, "broken link");
        add(Level::Warn, ToastScope::Screen, "wrong value");
        add(Level::Info, ToastScope::Screen, "saved");
        add(Level::Info, ToastScope::Stop, "stopping");
        let texts = |toasts: &Toasts| {
            toasts
                .list
                .iter()
                .map(|t| t.text.clone())
                .collect::<Vec<_>>()
        };
        toasts.screen_left();
        assert_eq!(texts(&toasts), ["broken link", "saved", "stopping"]);
        toasts.not_stopping();
        assert_eq!(texts(&toasts), ["broken link", "saved"]);
        toasts.run_changed();
        assert_eq!(texts(&toasts), ["saved"]);
    }
}
