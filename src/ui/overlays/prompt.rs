//! One question that is answered by a text.

use super::{Canvas, Choice, Reply};
use crate::ui::action::Action;
use crate::ui::field::{Lines, TextField};
use crate::ui::hit::Target;
use crate::ui::layout::{centred, framed, split_bottom};
use crate::ui::theme::Meaning;
use crossterm::event::KeyEvent;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::Clear;

/// What the text is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptKind {
    Sample,
    Note,
    FilterCharts,
    /// Which data to look at, and with which tokenizer.
    DataPath,
    DataTokenizer,
    /// Which row to show; which rows.
    DataRow,
    DataSearch,
    /// Where a model to talk to lies.
    ModelPath,
}

/// The question and the text so far.
#[derive(Debug)]
pub struct Prompt {
    kind: PromptKind,
    field: TextField,
}

impl Prompt {
    pub fn new(kind: PromptKind, text: &str) -> Self {
        Prompt {
            kind,
            field: TextField::new(Lines::One, text),
        }
    }

    pub fn kind(&self) -> PromptKind {
        self.kind
    }

    pub fn text(&self) -> String {
        self.field.text()
    }

    pub fn act(&mut self, action: Action) -> Reply {
        match action {
            Action::Accept => match (self.kind, self.field.text()) {
                (
                    PromptKind::Note
                    | PromptKind::DataPath
                    | PromptKind::DataRow
                    | PromptKind::ModelPath,
                    text,
                ) if text.trim().is_empty() => Reply::Stay,
                (kind, text) => Reply::Chosen(Choice::Prompt(kind, text)),
            },
            Action::Cancel | Action::Leave => Reply::Close,
            _ => Reply::Stay,
        }
    }

    pub fn key(&mut self, key: KeyEvent) {
        self.field.key(key);
    }

    pub fn paste(&mut self, text: &str) {
        self.field.paste(text);
    }

    pub fn draw(&mut self, frame: &mut Frame, area: Rect, canvas: &mut Canvas) {
        let (title, hint) = match self.kind {
            PromptKind::Sample => (
                "sample: what should the model continue?",
                "enter samples after this step; empty starts from a line break",
            ),
            PromptKind::FilterCharts => ("show only charts with", "enter keeps it, esc shows all"),
            PromptKind::DataPath => (
                "data: a file, a folder or a glob",
                "enter reads it; text, JSONL, JSON, CSV, TSV, parquet, also .gz and .zst",
            ),
            PromptKind::DataTokenizer => (
                "tokenizer: a tokenizer file or a model's folder",
                "empty learns one from the data themselves",
            ),
            PromptKind::DataRow => ("go to row", "enter goes to the row of this number"),
            PromptKind::DataSearch => (
                "show only rows with",
                "enter keeps it; esc leaves it as it was; empty shows all",
            ),
            PromptKind::ModelPath => (
                "model: a folder, a .gguf file, or an id of the hub",
                "enter loads it; org/name is brought from the hub first",
            ),
            PromptKind::Note => ("note", "enter writes it into the log, at this step"),
        };
        let area = centred(area, 72.min(area.width.saturating_sub(2)), 4);
        let block = framed(canvas.theme, title);
        let inner = block.inner(area);
        frame.render_widget(Clear, area);
        frame.render_widget(block, area);
        canvas.hits.add(area, Target::Overlay);
        let (text, foot) = split_bottom(inner, u16::from(inner.height > 1));
        self.field.draw(frame, text, canvas.theme, true);
        frame.render_widget(Line::styled(hint, canvas.theme.style(Meaning::Muted)), foot);
    }
}
