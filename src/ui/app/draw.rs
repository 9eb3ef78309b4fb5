//! The frame around the panes: tabs above, hints below, overlays and toasts on top.

use super::App;
use crate::base::text::one_line;
use crate::ui::action::Action;
use crate::ui::hit::Target;
use crate::ui::layout::{MIN_HEIGHT, MIN_WIDTH, cut, screen, wrap};
use crate::ui::overlays::Canvas;
use crate::ui::panes::PANES;
use crate::ui::store::{HeldRun, LinkState};
use crate::ui::theme::Meaning;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use unicode_width::UnicodeWidthStr;

impl App {
    /// Draws everything; changes only scroll positions and the map of clickable places.
    pub fn draw(&mut self, frame: &mut Frame) {
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
        self.draw_hints(frame, screen.hints);
        if let Some(overlay) = self.overlays.last_mut() {
            let mut canvas = Canvas {
                theme: &self.theme,
                keymap: &self.keymap,
                hits: &mut self.hits,
            };
            overlay.draw(frame, screen.body, &mut canvas);
        }
        self.toasts.draw(frame, screen.body, &self.theme);
    }

    fn draw_pane(&mut self, frame: &mut Frame, area: Rect) {
        self.with_front(|pane, context| {
            pane.draw(frame, area, context);
            Vec::new()
        });
    }

    fn draw_tabs(&mut self, frame: &mut Frame, area: Rect) {
        let theme = &self.theme;
        let mut x = area.x;
        let mut put = |frame: &mut Frame, text: String, style, target: Option<Target>| {
            let width = u16::try_from(text.width())
                .unwrap_or(0)
                .min(area.right().saturating_sub(x));
            let place = Rect { x, width, ..area };
            frame.render_widget(Span::styled(text, style), place);
            if let Some(target) = target {
                self.hits.add(place, target);
            }
            x += width;
        };
        if area.width >= 48 {
            put(frame, " llmtui  ".into(), theme.style(Meaning::Title), None);
        }
        for (i, pane) in PANES.iter().enumerate() {
            let open = Action::Open(pane);
            let key = self.keymap.label(open);
            let text = format!(" {key} {} ", pane.title).replace("  ", " ");
            let meaning = match i == self.front {
                true => Meaning::Selected,
                false => Meaning::Muted,
            };
            put(
                frame,
                text,
                theme.style(meaning),
                Some(Target::Action(open)),
            );
        }
        let room = usize::from(area.right().saturating_sub(x + 2));
        let Some(held) = &self.store.held else { return };
        let (mark, meaning, word) = self.run_mark(held);
        let dot = theme.glyphs().separator;
        let method = held
            .state
            .head
            .as_ref()
            .map(|h| format!(" {dot} {}", h.method))
            .unwrap_or_default();
        let long = format!("{}{method} {dot} ", one_line(held.name()));
        let tail = format!("{mark} {word} ");
        let name = if long.width() + tail.width() <= room {
            long
        } else {
            String::new()
        };
        if name.width() + tail.width() > room {
            return;
        }
        let width = u16::try_from(name.width() + tail.width()).unwrap_or(0);
        let place = Rect {
            x: area.right() - width,
            width,
            ..area
        };
        let line = Line::from(vec![
            Span::styled(name, theme.style(Meaning::Muted)),
            Span::styled(format!("{mark} "), theme.style(meaning)),
            Span::styled(format!("{word} "), theme.style(Meaning::Text)),
        ]);
        frame.render_widget(line, place);
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
