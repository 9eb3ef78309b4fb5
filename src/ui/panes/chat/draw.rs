//! The chat as it is drawn.

use super::{Answer, ChatPane, Engine, Exchange};
use crate::base::human;
use crate::base::text::{one_line, sanitize};
use crate::ui::action::Action;
use crate::ui::hit::Target;
use crate::ui::layout::{fill, rule, split_bottom, split_top, wrap, wrap_ranges};
use crate::ui::panes::PaneContext;
use crate::ui::store::short_run;
use crate::ui::theme::{Meaning, Theme};
use crate::wire::StopReason;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use unicode_width::UnicodeWidthStr;

/// Most rows of the input line.
const MAX_INPUT: u16 = 5;

impl ChatPane {
    /// ```text
    ///  shakespeare-k3qf · step 1,000 · val 1.886      temperature 0.8 · 200 tokens · seed 1337
    ///  A base model continues your text; it was not taught to answer questions.
    ///
    ///  ROMEO: What say'st thou to my lord the duke of heaven …
    ///  ✓ 200 tokens · 812 tok/s
    /// ─ your text ────────────────────────────────────────────
    ///  ROMEO:
    /// ```
    pub fn draw(&mut self, frame: &mut Frame, area: Rect, context: &mut PaneContext) {
        let theme = context.theme;
        let (head, area) = split_top(area, 1);
        self.draw_head(frame, head, context);
        let (about, area) = split_top(area, if area.height > 8 { 2 } else { 0 });
        let words = " A base model continues your text; it was not taught to answer questions.";
        frame.render_widget(
            Line::styled(words, theme.style(Meaning::Muted)),
            split_top(about, 1).0,
        );
        let width = area.width.saturating_sub(2);
        let rows = self
            .input
            .rows(width)
            .min(MAX_INPUT)
            .min(area.height / 2)
            .max(1);
        let (texts, input) = split_bottom(area, rows + 1);
        self.draw_texts(frame, texts, context);
        let (title, input) = split_top(input, 1);
        frame.render_widget(rule(theme, "your text", area.width), title);
        let field = Rect {
            x: input.x + 1.min(input.width),
            width: input.width.saturating_sub(2),
            ..input
        };
        self.input.draw(frame, field, theme, self.typing);
        context.hits.add(input, Target::Input);
    }

    fn draw_head(&self, frame: &mut Frame, area: Rect, context: &PaneContext) {
        let theme = context.theme;
        let dot = theme.glyphs().separator;
        let left = match &self.engine {
            Engine::None => " no checkpoint chosen".to_string(),
            engine => engine.row().map_or_else(String::new, |row| {
                let loss = row
                    .val_loss
                    .map(|x| format!(" {dot} val {}", human::number(x)))
                    .unwrap_or_default();
                let newer = self
                    .newer(context)
                    .map(|s| {
                        format!(
                            " {dot} step {} is there: {}",
                            human::grouped(s),
                            context.keymap.label(Action::Checkpoints)
                        )
                    })
                    .unwrap_or_default();
                format!(
                    " {} {dot} step {}{loss}{newer}",
                    one_line(short_run(&row.run)),
                    human::grouped(row.step)
                )
            }),
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

    /// A checkpoint of the same run that came after the one we talk to.
    fn newer(&self, context: &PaneContext) -> Option<u64> {
        let row = self.engine.row()?;
        let held = context
            .store
            .held
            .as_ref()
            .filter(|h| h.state.run == row.run)?;
        held.state
            .checkpoints
            .last()
            .map(|c| c.step)
            .filter(|step| *step > row.step)
    }

    fn draw_texts(&mut self, frame: &mut Frame, area: Rect, context: &PaneContext) {
        let (theme, height) = (context.theme, usize::from(area.height));
        self.page = height.saturating_sub(1).max(1);
        if self.exchanges.is_empty() || !matches!(self.engine, Engine::Ready { .. }) {
            let lines = self.empty(area.width, context);
            if self.exchanges.is_empty() {
                frame.render_widget(Paragraph::new(lines), area);
                return;
            }
            let (note, _) = split_bottom(area, u16::try_from(lines.len()).unwrap_or(1));
            let (_, foot) = split_bottom(area, area.height - note.height);
            frame.render_widget(Paragraph::new(lines), foot);
            self.draw_rows(frame, note, theme, usize::from(note.height));
            return;
        }
        self.draw_rows(frame, area, theme, height);
    }

    /// Wraps from the newest text back, only as far as it is seen.
    fn draw_rows(&mut self, frame: &mut Frame, area: Rect, theme: &Theme, height: usize) {
        let mut rows: Vec<Line> = Vec::new();
        let mut enough = false;
        for exchange in self.exchanges.iter().rev() {
            let mut block = exchange_rows(exchange, area.width, theme);
            block.append(&mut rows);
            rows = block;
            if rows.len() >= height.saturating_add(self.scroll) {
                enough = true;
                break;
            }
        }
        if !enough {
            self.scroll = self.scroll.min(rows.len().saturating_sub(height));
        }
        let end = rows.len().saturating_sub(self.scroll);
        let shown = rows[end.saturating_sub(height)..end].to_vec();
        frame.render_widget(Paragraph::new(shown), area);
    }

    /// What to say instead of texts.
    fn empty(&self, width: u16, context: &PaneContext) -> Vec<Line<'static>> {
        let theme = context.theme;
        let key = |action| context.keymap.label(action);
        let choose = key(Action::Checkpoints);
        let (words, meaning) = match &self.engine {
            Engine::None if context.store.checkpoints.is_empty() => (
                format!(
                    "There is no checkpoint to talk to yet. Start a run on Home ({}); a live run saves one when you press \
                     {} on its screen ({}).",
                    key(Action::Home),
                    key(Action::Checkpoint),
                    key(Action::RunPane)
                ),
                Meaning::Text,
            ),
            Engine::None => (
                format!("Choose a checkpoint to talk to: {choose}."),
                Meaning::Text,
            ),
            Engine::Opening { .. } => ("loading the checkpoint".to_string(), Meaning::Muted),
            Engine::Ready { .. } => (
                format!(
                    "Write the beginning of a text and press {}; the model writes on.",
                    key(Action::Send)
                ),
                Meaning::Text,
            ),
            Engine::Failed { why, .. } => (
                format!(
                    "The checkpoint cannot be used: {}. Choose another one: {choose}.",
                    one_line(why).trim_end_matches('.')
                ),
                Meaning::Bad,
            ),
        };
        wrap(&words, width.saturating_sub(2))
            .into_iter()
            .map(|row| Line::styled(format!(" {row}"), theme.style(meaning)))
            .collect()
    }
}

fn exchange_rows(exchange: &Exchange, width: u16, theme: &Theme) -> Vec<Line<'static>> {
    let prompt = sanitize(&exchange.prompt).replace('\t', " ");
    let mut text = prompt.clone() + &sanitize(&exchange.text).replace('\t', " ");
    if exchange.answer == Answer::Streaming {
        text.push_str(theme.glyphs().caret);
    }
    let split = prompt.len();
    let mut rows: Vec<Line> = wrap_ranges(&text, width.saturating_sub(2))
        .into_iter()
        .map(|range| {
            let cut = split.clamp(range.start, range.end);
            Line::from(vec![
                Span::raw(" "),
                Span::styled(
                    text[range.start..cut].to_string(),
                    theme.style(Meaning::Accent),
                ),
                Span::styled(text[cut..range.end].to_string(), theme.style(Meaning::Text)),
            ])
        })
        .collect();
    rows.extend(foot(exchange, width, theme));
    rows.push(Line::default());
    rows
}

/// `✓ 200 tokens · 812 tok/s · length`
fn foot(exchange: &Exchange, width: u16, theme: &Theme) -> Vec<Line<'static>> {
    let glyphs = theme.glyphs();
    let dot = glyphs.separator;
    let rate = exchange
        .rate()
        .map(|r| format!(" {dot} {} tok/s", human::short(r)))
        .unwrap_or_default();
    let quiet = |words: String| {
        vec![Line::styled(
            format!(" {words}"),
            theme.style(Meaning::Muted),
        )]
    };
    match &exchange.answer {
        Answer::Waiting => quiet("waiting for the checkpoint".into()),
        Answer::Streaming => quiet(format!("{} tokens{rate}", exchange.n_tokens)),
        Answer::Done {
            n_tokens, reason, ..
        } => {
            let why = match reason {
                StopReason::Length => "at the length limit; enter goes on",
                StopReason::Stop => "at a stop",
                StopReason::Context => "the context is full",
                StopReason::Cancelled => "cut short",
                StopReason::Failed => "failed",
            };
            quiet(format!("{n_tokens} tokens{rate} {dot} {why}"))
        }
        Answer::Failed(why) => wrap(
            &format!("{} {}", glyphs.bad, one_line(why)),
            width.saturating_sub(2),
        )
        .into_iter()
        .map(|row| Line::styled(format!(" {row}"), theme.style(Meaning::Bad)))
        .collect(),
    }
}
