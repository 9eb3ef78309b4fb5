//! The frame around the panes: tabs above, hints below, overlays and toasts on top.

use super::App;
use crate::base::text::one_line;
use crate::ui::action::Action;
use crate::ui::hit::Target;
use crate::ui::layout::{MIN_HEIGHT, MIN_WIDTH, cut, screen, wrap};
use crate::ui::overlays::Canvas;
use crate::ui::panes::{PANES, PaneEntry, chat};
use crate::ui::store::{HeldRun, LinkState};
use crate::ui::theme::Meaning;
use crate::ui::toasts::Typing;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use unicode_width::UnicodeWidthStr;

/// In the corner where there is room.
const BRAND: &str = " llmtui  ";
/// Columns of the shortest piece of a run's name that is worth showing.
const SHORTEST_NAME: usize = 7;
/// Columns of it that tabs give way to.
const ENOUGH_NAME: usize = 16;

/// Panes that a digit goes to.
const DIGITS: usize = 9;

impl App {
    /// Draws everything; changes only scroll positions and the map of clickable places.
    pub fn draw(&mut self, frame: &mut Frame) {
        self.draw_still(frame);
        if let Some(screen) = screen(frame.area()) {
            let typing = match self.pane().typing() {
                _ if !self.overlays.is_empty() => Typing::Anywhere,
                true if *self.entry() == chat::ENTRY => Typing::Below,
                true => Typing::Anywhere,
                false => Typing::No,
            };
            self.toasts.draw(frame, &screen, typing, &self.theme);
        }
    }

    /// The same without words that go by themselves: what pictures show.
    pub fn draw_still(&mut self, frame: &mut Frame) {
        self.hits.clear();
        let area = frame.area();
        frame.render_widget(
            ratatui::widgets::Block::new().style(self.theme.style(Meaning::Text)),
            area,
        );
        let Some(screen) = screen(area) else {
            let words = format!("llmtui needs {}x{} characters", MIN_WIDTH, MIN_HEIGHT);
            let lines: Vec<Line> = wrap(&words, area.width)
                .into_iter()
                .map(Line::from)
                .collect();
            frame.render_widget(Paragraph::new(lines), area);
            return;
        };
        self.draw_tabs(frame, screen.tabs);
        self.draw_pane(frame, screen.body);
        if !self.overlays.is_empty() {
            // Below an overlay nothing answers: a click there closes it.
            self.hits.clear();
        }
        self.draw_hints(frame, screen.hints);
        if let Some(overlay) = self.overlays.last_mut() {
            let mut canvas = Canvas {
                theme: &self.theme,
                keymap: &self.keymap,
                hits: &mut self.hits,
            };
            overlay.draw(frame, screen.body, &mut canvas);
        }
    }

    fn draw_pane(&mut self, frame: &mut Frame, area: Rect) {
        self.with_front(|pane, context| {
            pane.draw(frame, area, context);
            Vec::new()
        });
    }

    /// The tabs, the run on the right. Where there is no room for both, the run's name is cut, then long titles of panes in
    /// the back give way to it, then all of theirs. The pane in front keeps its title.
    fn draw_tabs(&mut self, frame: &mut Frame, area: Rect) {
        let theme = &self.theme;
        let run = self.store.held.as_ref();
        let wanted = run.map_or(0, |held| {
            let (mark, _, word) = self.run_mark(held);
            one_line(held.name()).width().min(ENOUGH_NAME) + mark.width() + word.width() + 3
        });
        let room = |tabs: &[String]| {
            let taken: usize = tabs.iter().map(|tab| tab.width()).sum();
            usize::from(area.width).saturating_sub(taken + 1)
        };
        let forms = [usize::MAX, 7, 6, 4, 3, 0].map(|longest| self.tabs(longest));
        let fits = |least: usize| forms.iter().find(|tabs| room(tabs) >= least);
        let tabs = fits(wanted.max(1)).or(fits(1)).unwrap_or(&forms[5]).clone();
        let room = room(&tabs);
        let run = run.and_then(|held| self.run_words(held, room));
        let beside = run.as_ref().map_or(0, |(_, width)| *width);
        let mut x = area.x;
        if area.width >= 48 && BRAND.width() + beside <= room {
            let place = Rect {
                width: BRAND.width() as u16,
                ..area
            };
            frame.render_widget(Span::styled(BRAND, theme.style(Meaning::Title)), place);
            x = place.right();
        }
        for (i, tab) in tabs
            .into_iter()
            .enumerate()
            .filter(|(_, tab)| !tab.is_empty())
        {
            let width = u16::try_from(tab.width()).unwrap_or(0);
            let width = width.min(area.right().saturating_sub(x));
            let place = Rect { x, width, ..area };
            let meaning = match i == self.front {
                true => Meaning::Selected,
                false => Meaning::Muted,
            };
            frame.render_widget(Span::styled(tab, theme.style(meaning)), place);
            let open = Action::Open(PANES[i]);
            self.hits.add(place, Target::Action(open));
            x += width;
        }
        if let Some((line, width)) = run {
            let width = u16::try_from(width).unwrap_or(0);
            let place = Rect {
                x: area.right().saturating_sub(width),
                width,
                ..area
            };
            frame.render_widget(line, place);
        }
    }

    /// Key and title of each pane; of those in the back only the key where the title is longer than so many columns. Panes that
    /// have no digit show a tab, which is empty otherwise, only in front.
    fn tabs(&self, longest: usize) -> Vec<String> {
        let tab = |(i, pane): (usize, &&'static PaneEntry)| {
            if i >= DIGITS && i != self.front {
                return String::new();
            }
            let key = self.keymap.label(Action::Open(pane));
            let named = i == self.front || pane.title.width() <= longest;
            match named {
                true => format!(" {key} {} ", pane.title),
                false => format!(" {key}"),
            }
        };
        PANES.iter().enumerate().map(tab).collect()
    }

    /// `shakespeare-k3qf · pretrain · ● training` and its columns, as much of it as there is room for.
    fn run_words(&self, held: &HeldRun, room: usize) -> Option<(Line<'static>, usize)> {
        let theme = &self.theme;
        let (mark, meaning, word) = self.run_mark(held);
        let dot = theme.glyphs().separator;
        let name = one_line(held.name());
        let head = held.state.head.as_ref();
        let method = head.map_or(String::new(), |h| format!(" {dot} {}", h.method));
        let state = mark.width() + word.width() + 2;
        // A run's id ends in letters of its own: they stay when the name is cut.
        let start = name.width().saturating_sub(room.saturating_sub(state + 2));
        let end: String = name.chars().skip(start).collect();
        let names = [
            format!("{name}{method} {dot} "),
            format!("{name} "),
            format!("{}{end} ", theme.glyphs().ellipsis),
            String::new(),
        ];
        let fits = |name: &&String| {
            let cut = name.starts_with(theme.glyphs().ellipsis) && name.width() < SHORTEST_NAME;
            name.width() + state <= room && !cut
        };
        let name = names.iter().find(fits)?.clone();
        let width = name.width() + state;
        let line = Line::from(vec![
            Span::styled(name, theme.style(Meaning::Muted)),
            Span::styled(format!("{mark} "), theme.style(meaning)),
            Span::styled(format!("{word} "), theme.style(Meaning::Text)),
        ]);
        Some((line, width))
    }

    fn run_mark(&self, held: &HeldRun) -> (&'static str, Meaning, &'static str) {
        use crate::wire::{Outcome, Phase};
        let glyphs = self.theme.glyphs();
        let word = held.state.word();
        match (&held.state.finished, &held.link) {
            (Some(finish), _) => match finish.outcome {
                Outcome::Completed => (glyphs.ok, Meaning::Good, word),
                Outcome::Stopped => (glyphs.ring, Meaning::Muted, word),
                _ => (glyphs.bad, Meaning::Bad, word),
            },
            (None, LinkState::Opening(_)) => (glyphs.ring, Meaning::Muted, "opening"),
            (None, LinkState::Ended(_)) => (glyphs.bad, Meaning::Bad, "no engine"),
            (None, _) if held.state.phase == Some(Phase::Paused) => {
                (glyphs.ring, Meaning::Warn, word)
            }
            (None, _) => (glyphs.dot, Meaning::Good, word),
        }
    }

    fn draw_hints(&mut self, frame: &mut Frame, area: Rect) {
        let top = self.overlays.last();
        let typing = top.map_or_else(|| self.pane().typing(), |overlay| overlay.typing());
        let hints = top.map_or_else(|| self.pane().hints(&self.store), |o| o.hints());
        let (own, tail) = (hints.own, hints.kept);
        let theme = &self.theme;
        let entry = |(action, title): &(Action, &'static str)| {
            let key = self.keymap.label_while(*action, typing);
            (!key.is_empty()).then_some((*action, key, *title))
        };
        let tail: Vec<_> = tail.iter().filter_map(entry).collect();
        let columns = |(_, key, title): &(Action, String, &str)| key.width() + title.width() + 3;
        let kept: usize = tail.iter().map(columns).sum();
        let mut room = usize::from(area.width).saturating_sub(kept + 1);
        let mut shown: Vec<_> = Vec::new();
        for hint in own.iter().filter_map(entry) {
            match room.checked_sub(columns(&hint)) {
                Some(rest) => room = rest,
                None => break,
            }
            shown.push(hint);
        }
        let mut x = area.x + 1;
        for (action, key, title) in shown.into_iter().chain(tail) {
            let left = area.right().saturating_sub(x);
            let title = cut(title, usize::from(left).saturating_sub(key.width() + 1), "");
            let width = u16::try_from(key.width() + title.width() + 1)
                .unwrap_or(0)
                .min(left);
            let place = Rect { x, width, ..area };
            let line = Line::from(vec![
                Span::styled(key, theme.style(Meaning::Key)),
                Span::styled(format!(" {title}"), theme.style(Meaning::Muted)),
            ]);
            frame.render_widget(line, place);
            self.hits.add(place, Target::Action(action));
            x = x.saturating_add(width + 2).min(area.right());
        }
    }
}
