//! The frame around the panes: tabs above, hints below, overlays and toasts on top.

use super::App;
use super::opening::Opening;
use crate::base::text::one_line;
use crate::ui::action::Action;
use crate::ui::hit::{HitMap, Target};
use crate::ui::layout::{MIN_HEIGHT, MIN_WIDTH, cut, cut_middle, screen, wrap};
use crate::ui::overlays::Canvas;
use crate::ui::panes::{PANES, PaneEntry, chat};
use crate::ui::store::{LinkState, OpenRun};
use crate::ui::theme::Meaning;
use crate::ui::toasts::Typing;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use unicode_width::UnicodeWidthStr;

/// In the left corner where there is room.
const BRAND: &str = " llmtui ";
/// Columns of the shortest piece of a run's name that is worth showing.
const SHORTEST_NAME: usize = 7;
/// Columns that tabs leave to the run beside them: `shakespeare-k3qf ● training `.
const RUN: usize = 28;
/// Columns of the longest state of a run: `● checkpointing `.
const STATE: usize = 16;

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
            let more = self.keymap.fill("{messages} shows all");
            self.toasts
                .draw(frame, &screen, typing, (&self.theme, &more));
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
        if !self.overlays.is_empty() || self.opening.is_some() {
            // Below an overlay nothing answers: a click there closes it.
            self.hits.clear();
        }
        self.draw_hints(frame, screen.hints);
        // One above the other: help for the editor does not hide it. Only the one on top can be clicked.
        let mut below = HitMap::default();
        let last = self.overlays.len().saturating_sub(1);
        for (at, overlay) in self.overlays.iter_mut().enumerate() {
            let mut canvas = Canvas {
                theme: &self.theme,
                keymap: &self.keymap,
                hits: if at == last {
                    &mut self.hits
                } else {
                    &mut below
                },
            };
            overlay.draw(frame, screen.body, &mut canvas);
        }
        if let Some(opening) = &self.opening {
            opening.draw(frame, screen.body, &self.theme);
        }
    }

    fn draw_pane(&mut self, frame: &mut Frame, area: Rect) {
        self.with_front(|pane, context| {
            pane.draw(frame, area, context);
            Vec::new()
        });
    }

    /// The tabs, the run on the right. Places and forms of the tabs follow from the width alone, so nothing jumps when another
    /// pane comes to the front: a title that does not stand on its tab stands behind the last one, and the run's name gets
    /// what is left.
    fn draw_tabs(&mut self, frame: &mut Frame, area: Rect) {
        let theme = &self.theme;
        let forms = [usize::MAX, 7, 6, 4, 0].map(|longest| self.tabs(longest));
        let needs = |(tabs, behind): &(Vec<(String, bool)>, usize)| {
            let tabs: usize = tabs.iter().map(|(tab, _)| tab.width()).sum();
            tabs + RUN.max(behind + STATE)
        };
        let width = usize::from(area.width);
        let form = forms.iter().find(|form| needs(form) <= width);
        let form = form.unwrap_or(&forms[forms.len() - 1]);
        let branded = needs(form) + BRAND.width() <= width;
        let mut x = area.x;
        let mut put = |frame: &mut Frame, text: &str, meaning| {
            let columns = u16::try_from(text.width()).unwrap_or(0);
            let width = columns.min(area.right().saturating_sub(x));
            let place = Rect { x, width, ..area };
            frame.render_widget(Span::styled(text, theme.style(meaning)), place);
            x += width;
            place
        };
        if branded {
            put(frame, BRAND, Meaning::Title);
        }
        let mut titled = false;
        for (i, (tab, title)) in form.0.iter().enumerate() {
            let meaning = match i == self.front {
                true => Meaning::Selected,
                false => Meaning::Muted,
            };
            titled |= i == self.front && *title;
            let place = put(frame, tab, meaning);
            self.hits.add(place, Target::Action(Action::Open(PANES[i])));
        }
        if !titled {
            put(frame, &self.behind(self.front), Meaning::Selected);
        }
        let room = usize::from(area.right().saturating_sub(x));
        let right = match &self.store.held {
            Some(held) => self.run_words(held, room),
            None if branded || room < BRAND.width() => None,
            None => Some((
                Line::styled(BRAND, theme.style(Meaning::Title)),
                BRAND.width(),
            )),
        };
        if let Some((line, width)) = right {
            let width = u16::try_from(width).unwrap_or(0);
            let place = Rect {
                x: area.right().saturating_sub(width),
                width,
                ..area
            };
            frame.render_widget(line, place);
        }
    }

    /// Tabs of the panes with a digit: the key, and the title where it has at most so many columns. Then the columns of the
    /// longest title that may have to stand behind them.
    fn tabs(&self, longest: usize) -> (Vec<(String, bool)>, usize) {
        let titled = |pane: &PaneEntry| pane.title.width() <= longest;
        let tab = |pane: &&'static PaneEntry| {
            let key = self.keymap.label(Action::Open(pane));
            match titled(pane) {
                true => (format!(" {key} {} ", pane.title), true),
                false => (format!(" {key}"), false),
            }
        };
        let behind = PANES.iter().enumerate();
        let behind = behind.filter(|(i, pane)| *i >= DIGITS || !titled(pane));
        let behind = behind.map(|(i, _)| self.behind(i).width()).max();
        let mut tabs: Vec<_> = PANES.iter().take(DIGITS).map(tab).collect();
        if let Some((last, false)) = tabs.last_mut() {
            last.push(' ');
        }
        (tabs, behind.unwrap_or(0))
    }

    /// What stands behind the tabs for a pane in front whose own tab has no title, or that has none.
    fn behind(&self, pane: usize) -> String {
        let entry = PANES[pane];
        match pane < DIGITS {
            true => format!(" {} ", entry.title),
            false => format!(
                " {} {} ",
                self.keymap.label(Action::Open(entry)),
                entry.title
            ),
        }
    }

    /// `shakespeare-k3qf · pretrain · ● training` and its columns, as much of it as there is room for.
    fn run_words(&self, held: &OpenRun, room: usize) -> Option<(Line<'static>, usize)> {
        let theme = &self.theme;
        let (mark, meaning, word) = self.run_mark(held);
        let dot = theme.glyphs().separator;
        let name = one_line(held.name());
        let head = held.state.head.as_ref();
        let method = head.map_or(String::new(), |h| format!(" {dot} {}", h.method));
        let state = mark.width() + word.width() + 2;
        // A run's id ends in letters of its own: they stay when the name is cut.
        let left = room.saturating_sub(state + 1);
        let part = cut_middle(&name, left, theme.glyphs().ellipsis);
        let part = match left >= SHORTEST_NAME {
            true => format!("{part} "),
            false => String::new(),
        };
        let staged = held.stage.as_ref().map(|stage| {
            let next = stage.next_words().map(|next| format!(", {next}"));
            let place = format!(" {dot} {}", stage.place());
            let of = format!(" {dot} {}", one_line(&stage.pipeline));
            (place, of, next.unwrap_or_default())
        });
        let staged = staged.iter().flat_map(|(place, of, next)| {
            [
                format!("{name}{method}{place}{of}{next} {dot} "),
                format!("{name}{place}{of}{next} {dot} "),
                format!("{name}{place}{next} {dot} "),
                format!("{name}{place} {dot} "),
            ]
        });
        let others = [
            format!("{name}{method} {dot} "),
            format!("{name} "),
            part,
            String::new(),
        ];
        let fits = |name: &String| name.width() + state <= room;
        let name = staged.chain(others).find(fits)?;
        let width = name.width() + state;
        let line = Line::from(vec![
            Span::styled(name, theme.style(Meaning::Muted)),
            Span::styled(format!("{mark} "), theme.style(meaning)),
            Span::styled(format!("{word} "), theme.style(Meaning::Text)),
        ]);
        Some((line, width))
    }

    fn run_mark(&self, held: &OpenRun) -> (&'static str, Meaning, &'static str) {
        use crate::ui::msg::Asked;
        use crate::wire::{Outcome, Phase};
        let glyphs = self.theme.glyphs();
        let word = match held.silence(self.store.elapsed) {
            Some(_) => "silent",
            None if held.stops() => Asked::Stop.doing(),
            None if held.will_pause() && held.live() => match held.state.phase {
                Some(Phase::Paused) => held.state.word(),
                _ => Asked::Pause.doing(),
            },
            None => held.state.word(),
        };
        match (&held.state.finished, &held.link) {
            (Some(finish), _) => match finish.outcome {
                Outcome::Completed => (glyphs.ok, Meaning::Good, word),
                Outcome::Stopped => (glyphs.ring, Meaning::Muted, word),
                _ => (glyphs.bad, Meaning::Bad, word),
            },
            (None, LinkState::Opening(_)) => (glyphs.ring, Meaning::Muted, "opening"),
            // The word of lists and of the screen below: `crashed`.
            (None, LinkState::Ended(_)) if held.state.orphaned => (glyphs.bad, Meaning::Bad, word),
            (None, LinkState::Ended(_)) => (glyphs.bad, Meaning::Bad, "no engine"),
            (None, _) if held.state.halted.is_some() || word == "silent" => {
                (glyphs.ring, Meaning::Warn, word)
            }
            (None, _) if held.state.phase == Some(Phase::Queued) => {
                (glyphs.ring, Meaning::Muted, word)
            }
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
        let hints = match &self.opening {
            Some(_) => Opening::hints(),
            None => hints,
        };
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
