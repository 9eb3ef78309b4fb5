//! Meanings and their styles. Panes ask for a meaning; only this file names colours.

use ratatui::style::{Color, Modifier, Style};

/// What a piece of the screen means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Meaning {
    Text,
    /// Secondary words: units, axis labels, hints.
    Muted,
    /// The one accent: titles of the focused region, the active tab, progress.
    Accent,
    Title,
    Border,
    BorderFocused,
    Selected,
    /// A key in a hint line.
    Key,
    Good,
    Warn,
    Bad,
    Train,
    Validation,
    /// A line that is neither train nor validation.
    Series,
    /// Marks on charts: checkpoints, notes, adjustments.
    Mark,
    Cursor,
    /// The unfilled part of bars.
    Track,
}

/// A theme: styles by meaning, and whether only ASCII may be drawn.
#[derive(Debug, Clone)]
pub struct Theme {
    pub name: String,
    pub ascii: bool,
    pub no_color: bool,
}

impl Theme {
    /// The terminal's own sixteen colours.
    pub fn ansi() -> Self {
        Theme {
            name: "ansi".into(),
            ascii: false,
            no_color: false,
        }
    }

    pub fn style(&self, meaning: Meaning) -> Style {
        use Meaning as M;
        let style = Style::default();
        match meaning {
            M::Text => style,
            M::Muted | M::Border | M::Track => style.fg(Color::DarkGray),
            M::Accent | M::BorderFocused => style.fg(Color::Cyan),
            M::Title => style.add_modifier(Modifier::BOLD),
            M::Selected => style.add_modifier(Modifier::REVERSED),
            M::Key => style.fg(Color::Cyan).add_modifier(Modifier::BOLD),
            M::Good => style.fg(Color::Green),
            M::Warn => style.fg(Color::Yellow),
            M::Bad => style.fg(Color::Red),
            M::Train | M::Series => style.fg(Color::Cyan),
            M::Validation => style.fg(Color::Yellow),
            M::Mark => style.fg(Color::Magenta),
            M::Cursor => style.add_modifier(Modifier::REVERSED),
        }
    }
}
