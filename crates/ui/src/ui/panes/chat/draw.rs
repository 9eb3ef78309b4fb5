//! The chat as it is drawn: columns side by side where there is room, one at a time where there is not.

use super::column::{Column, Engine};
use super::heat::Heat;
use super::pane::unsaved_run;
use super::rows::{Look, rows};
use super::{ChatPane, MAX_COLUMNS};
use crate::base::human;
use crate::base::text::one_line;
use crate::ui::action::Action;
use crate::ui::hit::Target;
use crate::ui::layout::{fill, rule, split_bottom, split_top, wrap};
use crate::ui::panes::{PaneContext, home, run};
use crate::ui::theme::{Meaning, Theme};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use unicode_width::UnicodeWidthStr;

/// Most rows of the input line.
const MAX_INPUT: u16 = 5;
/// Narrower than this a column cannot be read: then one is shown at a time.
const MIN_COLUMN: u16 = 48;
/// A loading model says how long it has been at it from here on, seconds.
const PATIENCE: u64 = 2;

impl ChatPane {
    /// ```text
    ///  same turns, same seed              temperature 0.8 · 200 tokens · seed 1337
    ///  ▸ base · step 1,000 · val 1.886   │   sft · step 500 · val 1.2
    ///    gpt2 · 0.8M · completes texts   │   llama · 135M · chat template
    ///
    ///  ▸ What is a loss?                 │ ▸ What is a loss?
    ///  …                                 │ …
    /// ─ your turn ────────────────────────────────────────────────────────────────
    /// ```
    pub(super) fn draw_all(&mut self, frame: &mut Frame, area: Rect, context: &mut PaneContext) {
        let (head, area) = split_top(area, 1);
        let visible = self.visible(area.width);
        self.draw_head(frame, head, context, visible.len());
        let width = area.width.saturating_sub(2);
        let rows = self.input.rows(width).min(MAX_INPUT);
        let (body, foot) = split_bottom(area, rows.min(area.height / 2).max(1) + 1);
        self.draw_input(frame, foot, context);
        let legend = if self.heat != Heat::Off && body.height > 4 {
            1
        } else {
            0
        };
        let (body, legend) = split_bottom(body, legend);
        frame.render_widget(self.heat.legend(context.theme), legend);
        if self.columns.is_empty() {
            let lines = self.nothing(body.width, context);
            frame.render_widget(Paragraph::new(lines), body);
            return;
        }
        self.page = usize::from(body.height).saturating_sub(4).max(1);
        let n = u16::try_from(visible.len()).unwrap_or(1).max(1);
        let each = (body.width.saturating_sub(n - 1)) / n;
        for (at, x) in visible.zip((body.x..).step_by(usize::from(each) + 1)) {
            let last = x + 2 * each + 1 > body.right();
            let width = if last { body.right() - x } else { each };
            let place = Rect { x, width, ..body };
            self.draw_column(frame, place, at, context);
            context.hits.add(place, Target::Row(at));
            if !last {
                draw_line(frame, place, context.theme);
            }
        }
    }

    /// Which columns are shown: as many as can be read, the focused one among them.
    fn visible(&self, width: u16) -> std::ops::Range<usize> {
        let n = self.columns.len();
        let fit = usize::from((width + 1) / (MIN_COLUMN + 1))
            .clamp(1, MAX_COLUMNS)
            .min(n);
        let from = (self.focus + 1).saturating_sub(fit).min(n - fit);
        from..from + fit
    }

    fn draw_head(&self, frame: &mut Frame, area: Rect, context: &PaneContext, shown: usize) {
        let theme = context.theme;
        let dot = theme.glyphs().separator;
        let left = match (self.columns.len(), self.focused()) {
            (0, _) | (_, None) => " no model chosen".to_string(),
            (1, Some(column)) => format!(" {}{}", column.model.name(dot), self.newer(context)),
            (n, _) if shown == n => " same turns, same seed".to_string(),
            _ => self.tabs(theme),
        };
        let s = &self.sampling;
        let words = [
            format!("temperature {} ", s.temperature),
            format!("{dot} {} tokens ", s.max_new_tokens),
            format!("{dot} seed {} ", s.seed),
        ];
        // The settings give way to the name, from their end.
        let width = usize::from(area.width);
        let fits = |n: &usize| words[..*n].concat().width() + left.width() + 2 <= width;
        let right = words[..(0..=words.len()).rev().find(fits).unwrap_or(0)].concat();
        let room = width.saturating_sub(right.width());
        let line = Line::from(vec![
            Span::styled(
                fill(&left, room, theme.glyphs().ellipsis),
                theme.style(Meaning::Title),
            ),
            Span::styled(right, theme.style(Meaning::Muted)),
        ]);
        frame.render_widget(line, area);
    }

    /// ` ▸1 base  2 sft …`: all models where not all are shown, those that write with a mark.
    fn tabs(&self, theme: &Theme) -> String {
        let glyphs = theme.glyphs();
        let tab = |(i, column): (usize, &Column)| {
            let pointer = if i == self.focus { glyphs.pointer } else { " " };
            let busy = match column.streaming() {
                Some(_) => format!(" {}", glyphs.dot),
                None => String::new(),
            };
            format!("{pointer}{} {}{busy}", i + 1, column.model.short())
        };
        let tabs: Vec<String> = self.columns.iter().enumerate().map(tab).collect();
        format!(" {}", tabs.join(" "))
    }

    /// ` · step 1,500 is there: ctrl-o`: a checkpoint of the same run that came after the one we talk to.
    fn newer(&self, context: &PaneContext) -> String {
        let row = self.focused().and_then(|c| c.model.row.as_ref());
        let held = context.store.held.as_ref();
        let newest = row.zip(held).and_then(|(row, held)| {
            let newest = held.state.checkpoints.last()?.step;
            (row.path.starts_with(held.path.as_ref()?) && newest > row.step).then_some(newest)
        });
        newest.map_or_else(String::new, |step| {
            format!(
                " {} step {} is there: {}",
                context.theme.glyphs().separator,
                human::grouped(step),
                context.keymap.label(Action::Checkpoints)
            )
        })
    }

    fn draw_column(&mut self, frame: &mut Frame, area: Rect, at: usize, context: &PaneContext) {
        let theme = context.theme;
        let several = self.columns.len() > 1;
        let (title, area) = split_top(area, u16::from(several));
        if several {
            self.draw_title(frame, title, at, theme);
        }
        let (about, area) = split_top(area, if area.height > 6 { 2 } else { 0 });
        let facts = self.columns[at].facts(context, several);
        let (facts, meaning) = facts;
        let facts = fill(&facts, usize::from(area.width), theme.glyphs().ellipsis);
        frame.render_widget(
            Line::styled(facts, theme.style(meaning)),
            split_top(about, 1).0,
        );
        let look = Look {
            theme,
            keymap: context.keymap,
            width: area.width,
            heat: self.heat,
            shows_prompt: self.shows_prompt,
            shows_thoughts: self.shows_thoughts,
        };
        let column = &mut self.columns[at];
        let failed = matches!(column.engine, Engine::Failed(_));
        let mut lines = Vec::new();
        if self.conversation.said.is_empty() || failed {
            lines = column.words(area.width, context);
        }
        let (texts, notes) = split_bottom(area, u16::try_from(lines.len()).unwrap_or(area.height));
        let height = usize::from(texts.height);
        let all = rows(
            column,
            &self.conversation,
            look,
            height.saturating_add(column.scroll),
        );
        column.scroll = column.scroll.min(all.len().saturating_sub(height));
        if all.is_empty() {
            frame.render_widget(Paragraph::new(lines), area);
            return;
        }
        frame.render_widget(Paragraph::new(lines), notes);
        let end = all.len() - column.scroll;
        let shown = all[end.saturating_sub(height)..end].to_vec();
        frame.render_widget(Paragraph::new(shown), texts);
    }

    fn draw_title(&self, frame: &mut Frame, area: Rect, at: usize, theme: &Theme) {
        let glyphs = theme.glyphs();
        let (pointer, meaning) = match at == self.focus {
            true => (glyphs.pointer, Meaning::Title),
            false => (" ", Meaning::Text),
        };
        let name = self.columns[at].model.name(glyphs.separator);
        let text = format!(" {pointer} {name}");
        let text = fill(&text, usize::from(area.width), glyphs.ellipsis);
        frame.render_widget(Line::styled(text, theme.style(meaning)), area);
    }

    fn draw_input(&mut self, frame: &mut Frame, area: Rect, context: &mut PaneContext) {
        let theme = context.theme;
        let (title, input) = split_top(area, 1);
        let said = self.conversation.said.len();
        let words = match &self.editing {
            Some((turn, _)) => format!(
                "turn {} of {said}: {}",
                turn + 1,
                context.keymap.fill(
                    "{send} resends it and drops what follows; {stop-answer} cancels"
                )
            ),
            None if self.waiting_call().is_some() => self.words_of_call(context),
            None if self.columns.iter().any(Column::converses) => "your turn".into(),
            None => "your text".into(),
        };
        frame.render_widget(rule(theme, &words, area.width), title);
        let field = Rect {
            x: input.x + 1.min(input.width),
            width: input.width.saturating_sub(2),
            ..input
        };
        self.input.draw(frame, field, theme, self.typing);
        context.hits.add(input, Target::Pane);
    }

    /// `your turn; ctrl-k sends it as the result of add (1 of 2)`
    fn words_of_call(&self, context: &PaneContext) -> String {
        let (name, at, n) = self.waiting_call().unwrap_or_default();
        let of = match n {
            0 | 1 => String::new(),
            n => format!(" ({at} of {n})"),
        };
        let key = context.keymap.label(Action::ToolResult);
        format!("your turn; {key} sends it as the result of {}{of}", one_line(&name))
    }

    /// What to say while no model is chosen.
    fn nothing(&self, width: u16, context: &PaneContext) -> Vec<Line<'static>> {
        let key = |action| context.keymap.label(action);
        let choose = key(Action::Checkpoints);
        let judges = context.store.held.as_ref().is_some_and(|held| held.state.judges());
        let why = match judges {
            true => "The open run is a reward model: it scores completions (llmtui score) and cannot generate. ",
            false => "",
        };
        let words = if self.asked_run.is_some() && unsaved_run(context.store).is_some() {
            "The run was asked for a checkpoint: the chat opens it when it is saved.".to_string()
        } else if unsaved_run(context.store).is_some() {
            format!(
                "The open run has no checkpoint yet: {} asks it for one, and the chat takes it when it is saved. Or choose \
                 another model: {choose}.",
                key(Action::Send)
            )
        } else if !context.store.checkpoints.iter().any(|row| row.generates) {
            format!(
                "There is no checkpoint to chat with yet. Start a run on Home ({}); a live run saves one when you press {} \
                 on its screen ({}). Or choose a model folder or a .gguf file: {choose}.",
                key(Action::Open(&home::ENTRY)),
                key(Action::Checkpoint),
                key(Action::Open(&run::ENTRY))
            )
        } else {
            format!("Choose a model to chat with: {choose}.")
        };
        paragraph(&format!("{why}{words}"), Meaning::Text, width, context.theme)
    }
}

impl Column {
    /// What is known of the model, in one line.
    fn facts(&self, context: &PaneContext, several: bool) -> (String, Meaning) {
        let (glyphs, now) = (context.theme.glyphs(), context.store.now.0);
        let indent = if several { "   " } else { " " };
        match (&self.engine, &self.about) {
            (Engine::Opening(_, since), _) => {
                let waited = std::time::Duration::from_millis(now.saturating_sub(since.0));
                let spin = waited.as_millis() / 250;
                let spinner = glyphs.spinner[spin as usize % glyphs.spinner.len()];
                let seconds = match waited.as_secs() {
                    s if s < PATIENCE => String::new(),
                    s => format!(" ({s} s)"),
                };
                let words = match &self.download {
                    Some(download) => {
                        let stops = context.keymap.fill("{stop-answer} stops");
                        format!("{}; {stops}", download.words())
                    },
                    None => format!("loading{seconds}"),
                };
                (format!("{indent}{spinner} {words}"), Meaning::Muted)
            }
            (Engine::Ready(_), Some(about)) => {
                let words = about.words(glyphs.separator);
                (format!("{indent}{words}"), Meaning::Muted)
            }
            (Engine::Ready(_), None) => (String::new(), Meaning::Muted),
            (Engine::Failed(_), _) => (
                format!("{indent}{} cannot be used", glyphs.bad),
                Meaning::Bad,
            ),
        }
    }

    /// What to say beside or instead of texts.
    fn words(&self, width: u16, context: &PaneContext) -> Vec<Line<'static>> {
        let key = |action| context.keymap.label(action);
        let (words, meaning) = match &self.engine {
            Engine::Opening(..) => return Vec::new(),
            Engine::Ready(_) if self.converses() => (
                format!("Type a message and press {}.", key(Action::Send)),
                Meaning::Text,
            ),
            Engine::Ready(_) => (
                self.about
                    .as_ref()
                    .map(|about| about.to_type(&key(Action::Send)))
                    .unwrap_or_default(),
                Meaning::Text,
            ),
            Engine::Failed(why) => (
                format!(
                    "{}. Choose another model: {}.",
                    one_line(why).trim_end_matches('.'),
                    key(Action::Checkpoints)
                ),
                Meaning::Bad,
            ),
        };
        let notes = self.about.iter().flat_map(|about| &about.notes);
        notes
            .map(|note| (one_line(note), Meaning::Warn))
            .chain([(words, meaning)])
            .flat_map(|(words, meaning)| paragraph(&words, meaning, width, context.theme))
            .collect()
    }
}

fn paragraph(words: &str, meaning: Meaning, width: u16, theme: &Theme) -> Vec<Line<'static>> {
    wrap(words, width.saturating_sub(2))
        .into_iter()
        .map(|row| Line::styled(format!(" {row}"), theme.style(meaning)))
        .collect()
}

/// Between two columns.
fn draw_line(frame: &mut Frame, left: Rect, theme: &Theme) {
    let place = Rect {
        x: left.right(),
        width: 1,
        ..left
    };
    let line = Line::styled(theme.glyphs().vertical, theme.style(Meaning::Border));
    let lines = vec![line; usize::from(place.height)];
    frame.render_widget(Paragraph::new(lines), place);
}
