//! The frame around the panes: tabs above, hints below, overlays and toasts on top.

use super::App;
use crate::base::text::one_line;
use crate::ui::action::Action;
use crate::ui::hit::Target;
use crate::ui::layout::{MIN_HEIGHT, MIN_WIDTH, cut, screen, wrap};
use crate::ui::overlays::{Canvas, Overlay};
use crate::ui::panes::{PaneContext, Tab};
use crate::ui::store::{HeldRun, LinkState};
use crate::ui::theme::Meaning;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use unicode_width::UnicodeWidthStr;

/// An action and the word for it here.
type Hint = (Action, &'static str);

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
        let mut context = PaneContext {
            store: &self.store,
            theme: &self.theme,
            keymap: &self.keymap,
            hits: &mut self.hits,
        };
        match self.tab {
            Tab::Home => self.home.draw(frame, area, &mut context),
            Tab::Chat => self.chat.draw(frame, area, &mut context),
            Tab::Data => self.data.draw(frame, area, &mut context),
            Tab::Plan => self.plan.draw(frame, area, &mut context),
            Tab::Hardware => self.hardware.draw(frame, area, &mut context),
            Tab::Run => match &self.store.held {
                Some(held) if held.state.last_seq > 0 => {
                    let now = self.store.now;
                    self.dashboard
                        .draw(frame, area, &held.state, &self.theme, now);
                    self.hits.add(area, Target::Dashboard);
                }
                held => {
                    let words = self.run_words(held.as_ref());
                    self.draw_words(frame, area, &words);
                }
            },
        }
    }

    /// What the run's pane says while there is nothing to chart.
    fn run_words(&self, held: Option<&HeldRun>) -> String {
        let home = self.keymap.label(Action::Home);
        let Some(held) = held else {
            return format!("No run is open. Go to Home ({home}) to start one or to open one.");
        };
        match &held.link {
            LinkState::Opening(since) => {
                let glyphs = self.theme.glyphs();
                let waited = self.store.now.since(*since);
                let frame = waited.as_millis() / super::SPIN.as_millis();
                let spinner = glyphs.spinner[frame as usize % glyphs.spinner.len()];
                let seconds = match waited.as_secs() {
                    0..2 => String::new(),
                    s => format!(" ({s} s)"),
                };
                format!("{spinner} opening {}{seconds}", held.title)
            }
            LinkState::CatchingUp | LinkState::Live => {
                format!("waiting for the first word of {}", held.title)
            }
            LinkState::Ended(None) => "This run wrote nothing into its log.".into(),
            LinkState::Ended(Some(why)) => format!(
                "{} could not be opened.\n\n{why}\n\nHome is {home}.",
                held.title
            ),
        }
    }

    fn draw_words(&self, frame: &mut Frame, area: Rect, words: &str) {
        let text = crate::base::text::sanitize(words);
        let lines = wrap(&text, area.width.saturating_sub(4));
        let mut shown = vec![Line::default()];
        shown.extend(lines.into_iter().map(|row| Line::raw(format!("  {row}"))));
        frame.render_widget(Paragraph::new(shown), area);
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
        for tab in Tab::ALL {
            let key = self.keymap.label(tab.action());
            let text = format!(" {key} {} ", tab.title()).replace("  ", " ");
            let meaning = if tab == self.tab {
                Meaning::Selected
            } else {
                Meaning::Muted
            };
            put(
                frame,
                text,
                theme.style(meaning),
                Some(Target::Action(tab.action())),
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
        let (own, tail) = self.hints();
        let typing = self
            .overlays
            .last()
            .map_or_else(|| self.typing(), Overlay::typing);
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

    /// Hints of the current context: those that give way when room is short, and those that stay.
    fn hints(&self) -> (Vec<Hint>, Vec<Hint>) {
        let titles = |actions: &[Action]| {
            actions
                .iter()
                .map(|a| (*a, a.info().title))
                .collect::<Vec<_>>()
        };
        use Action as A;
        let tail = titles(&[A::Palette, A::Help, A::Leave]);
        match self.overlays.last() {
            Some(Overlay::Help(_)) => {
                return (
                    vec![(A::Down, "scroll"), (A::PageDown, "page")],
                    titles(&[A::Cancel]),
                );
            }
            Some(Overlay::Wizard(_)) => {
                return (
                    vec![
                        (A::Accept, "take"),
                        (A::Down, "next row"),
                        (A::PageDown, "more words"),
                    ],
                    vec![(A::Cancel, "question before"), (A::Leave, "close")],
                );
            }
            Some(Overlay::Editor(editor)) if editor.typing() => {
                return (vec![(A::Accept, "take")], titles(&[A::Cancel]));
            }
            Some(Overlay::Editor(editor)) if editor.shows_yaml() => {
                let own = vec![(A::SaveSpec, "save as"), (A::Down, "scroll")];
                return (own, titles(&[A::Cancel]));
            }
            Some(Overlay::Editor(_)) => {
                return (
                    vec![
                        (A::Accept, "change"),
                        (A::SearchSpec, "search"),
                        (A::OnlyChanges, "changes"),
                        (A::ViewYaml, "yaml"),
                        (A::UndoEdit, "undo"),
                        (A::SaveSpec, "save as"),
                        (A::StartSpec, "start"),
                        (A::ResetValue, "reset"),
                        (A::RedoEdit, "redo"),
                    ],
                    titles(&[A::Cancel]),
                );
            }
            Some(Overlay::Form(_) | Overlay::Prompt(_)) => {
                return (
                    vec![(A::Accept, "take"), (A::Down, "next")],
                    titles(&[A::Cancel]),
                );
            }
            Some(_) => return (titles(&[A::Accept]), titles(&[A::Cancel])),
            None => {}
        }
        match self.tab {
            Tab::Home if self.home.typing() => (
                vec![(A::Accept, "keep the filter")],
                vec![(A::Cancel, "clear it")],
            ),
            Tab::Home => {
                let accept = match self.home.current(&self.store) {
                    Some(crate::ui::panes::home::HomeRow::Run(_)) => "open",
                    Some(crate::ui::panes::home::HomeRow::New) => "ask me",
                    _ => "start",
                };
                let mut own = vec![(A::Accept, accept)];
                own.extend(titles(&[
                    A::NewRun,
                    A::EditPreset,
                    A::Filter,
                    A::Sort,
                    A::ChatWith,
                    A::ResumeRun,
                    A::Refresh,
                ]));
                (own, tail)
            }
            Tab::Run => (self.run_hints(), tail),
            Tab::Data if self.data.has_rows() => {
                let mut own = titles(&[A::NextRow, A::PreviousRow, A::DataMode]);
                own.push((A::Accept, "its rows"));
                if self.data.filtered() {
                    own.push((A::Cancel, "all rows"));
                }
                own.extend(titles(&[
                    A::SearchData,
                    A::JumpRow,
                    A::OpenData,
                    A::DataTokenizer,
                    A::DataAgain,
                ]));
                (own, tail)
            }
            Tab::Data => (titles(&[A::OpenData]), tail),
            Tab::Plan if self.plan.typing() => (
                vec![(A::Accept, "take"), (A::Down, "take, next")],
                vec![(A::Cancel, "as it was")],
            ),
            Tab::Plan => {
                let mut own = vec![(A::Accept, "change")];
                own.extend(titles(&[
                    A::Less,
                    A::More,
                    A::PlanTarget,
                    A::PlanDevice,
                    A::PlanApply,
                    A::PlanReset,
                ]));
                (own, tail)
            }
            Tab::Hardware => {
                let mut own = Vec::new();
                if self.hardware.several_gpus(&self.store) {
                    own.push((A::Down, "next GPU"));
                }
                own.push((A::PageDown, "more findings"));
                if self.store.held.is_some() {
                    own.push((A::OtherMachine, A::OtherMachine.info().title));
                }
                (own, tail)
            }
            Tab::Chat => {
                let stop = if self.chat.answering() { "stop" } else { "out" };
                let mut own = match self.chat.typing() {
                    true => vec![(A::Send, "send"), (A::StopAnswer, stop)],
                    false => vec![(A::Send, "write")],
                };
                if self.chat.columns().len() > 1 {
                    own.extend(titles(&[A::NextModel]));
                }
                own.extend(titles(&[
                    A::Checkpoints,
                    A::AddModel,
                    A::TokenColours,
                    A::EditTurn,
                    A::SaveChat,
                    A::ShowPrompt,
                    A::Settings,
                    A::Resend,
                    A::ClearChat,
                    A::DropModel,
                ]));
                (own, tail)
            }
        }
    }

    fn run_hints(&self) -> Vec<Hint> {
        use Action as A;
        let titles = |actions: &[Action]| {
            actions
                .iter()
                .map(|a| (*a, a.info().title))
                .collect::<Vec<_>>()
        };
        let shown = self
            .store
            .held
            .as_ref()
            .filter(|held| held.state.last_seq > 0);
        match shown.map(HeldRun::live) {
            Some(true) => titles(&[
                A::Pause,
                A::Checkpoint,
                A::Evaluate,
                A::Sample,
                A::Tune,
                A::Note,
                A::Zoom,
                A::FilterCharts,
                A::ChartCursor,
                A::Smooth,
                A::LogScale,
                A::Stop,
            ]),
            Some(false) => {
                let resume = self.resumable().map(|_| (A::Pause, "resume"));
                let mut hints: Vec<Hint> = resume.into_iter().collect();
                hints.extend(titles(&[
                    A::Zoom,
                    A::ChartNext,
                    A::ChartCursor,
                    A::FilterCharts,
                    A::Smooth,
                    A::LogScale,
                    A::ZoomIn,
                    A::ResetView,
                ]));
                hints
            }
            None => Vec::new(),
        }
    }
}
