//! Below a plan: what would fit, the changes that would make it fit, and advice.

use super::Shown;
use super::cursor::Cursor;
use crate::base::finding::{Finding, Status};
use crate::base::human::{self, grouped, short};
use crate::base::text::{cut, one_line};
use crate::plan::changes::Change;
use crate::plan::solve::ANY_BATCH;
use crate::ui::action::Action;
use crate::ui::layout::{rule, split_top};
use crate::ui::panes::PaneContext;
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::finding;
use crate::ui::widgets::text::{self, Word, word};
use ratatui::Frame;
use ratatui::layout::Rect;
use std::path::PathBuf;

/// Columns in front of a change.
const LEAD: usize = 10;

/// The lines below, none of them wider than the area.
pub(super) struct Below {
    /// What fits, and the changes that would make it fit.
    pub fits: Vec<Vec<Word>>,
    /// What else is to be said.
    pub advice: Vec<Vec<Word>>,
    /// Says all of it.
    command: String,
}

impl Below {
    pub fn new(
        (shown, run): (&Shown, &Option<PathBuf>),
        width: u16,
        context: &PaneContext,
    ) -> Below {
        let theme = context.theme;
        let room = Room {
            width: usize::from(width).saturating_sub(2),
            ascii: theme.ascii,
        };
        let mut fits = match fit_words(shown).as_slice() {
            [alone] => room.lines(&alone.text, alone.meaning),
            words => in_lines(words, room.width),
        };
        let key = context.keymap.label(Action::PlanApply);
        for (i, change) in shown.ladder.changes.iter().enumerate() {
            let lead = match i {
                0 => format!("{key} applies "),
                _ => String::new(),
            };
            fits.extend(change_lines(&lead, change, room));
        }
        if !shown.ladder.fits {
            let words = "even all of these together are not enough: use more or larger GPUs, or a smaller model";
            fits.extend(room.lines(words, Meaning::Warn));
        }
        // A run is another matter than the preset that it is named after.
        let held = context.store.held.as_ref();
        let held = held.filter(|held| run.is_some() && *run == held.identity());
        let name = held.map_or(shown.request.name.as_str(), |held| held.name());
        let said = shown.plan.advice.iter().filter(|a| a.id != "too_large");
        Below {
            advice: said.flat_map(|a| advice_lines(a, room, theme)).collect(),
            fits,
            command: format!("llmtui plan {}", one_line(name)),
        }
    }
}

/// The room of a line.
#[derive(Clone, Copy)]
struct Room {
    width: usize,
    ascii: bool,
}

impl Room {
    fn wrap(self, text: &str, indent: usize) -> Vec<String> {
        text::wrap(
            text,
            self.width.saturating_sub(indent),
            usize::MAX,
            self.ascii,
        )
    }

    fn lines(self, text: &str, meaning: Meaning) -> Vec<Vec<Word>> {
        let rows = self.wrap(text, 0).into_iter();
        rows.map(|row| vec![word(row, meaning)]).collect()
    }
}

/// A change, what it saves and what it costs: on one line, or its cost below it.
fn change_lines(lead: &str, change: &Change, room: Room) -> Vec<Vec<Word>> {
    let saved = format!("−{}", human::bytes(change.saves_bytes));
    let mut words = vec![
        word(format!("{lead:<LEAD$}"), Meaning::Key),
        word(format!("{:<38}", change.what), Meaning::Text),
        word(format!("{saved:>9}"), Meaning::Good),
        word(format!("  {}", change.cost), Meaning::Muted),
    ];
    if text::width(&words) <= room.width {
        return vec![words];
    }
    words.truncate(3);
    let cost = room.wrap(change.cost, LEAD).into_iter();
    let cost = cost.map(|row| vec![word(format!("{:LEAD$}{row}", ""), Meaning::Muted)]);
    [words].into_iter().chain(cost).collect()
}

fn advice_lines(advice: &Finding, room: Room, theme: &Theme) -> Vec<Vec<Word>> {
    let quiet = advice.status > Status::Warn;
    let mark = match quiet {
        true => word(theme.glyphs().point, Meaning::Muted),
        false => finding::mark(advice.status, theme),
    };
    let meaning = if quiet { Meaning::Muted } else { Meaning::Text };
    let indent = text::width(std::slice::from_ref(&mark)) + 1;
    let rows = room.wrap(&advice.evidence.to_string(), indent).into_iter();
    let line = |(i, row): (usize, String)| match i {
        0 => vec![mark.clone(), word(format!(" {row}"), meaning)],
        _ => vec![word(format!("{:indent$}{row}", ""), meaning)],
    };
    rows.enumerate().map(line).collect()
}

/// Labels and their values in as many lines as they need; a value stays with its label.
fn in_lines(words: &[Word], width: usize) -> Vec<Vec<Word>> {
    let mut lines: Vec<Vec<Word>> = vec![Vec::new()];
    // `at most`, then pairs.
    let (first, pairs) = words.split_at(words.len() % 2);
    lines[0].extend_from_slice(first);
    for pair in pairs.chunks(2) {
        let line = lines.last_mut();
        match line
            .filter(|line| line.is_empty() || text::width(line) + text::width(pair) <= width + 2)
        {
            Some(line) => line.extend_from_slice(pair),
            None => lines.push(pair.to_vec()),
        }
    }
    lines
}

/// What fits, the changes that would make it fit, and what else is to be said; where that is too much, the command that says all.
pub(super) fn draw_below(frame: &mut Frame, area: Rect, lines: &Below, theme: &Theme) {
    let (head, area) = split_top(area, 1);
    frame.render_widget(rule(theme, "what fits", head.width), head);
    let mut at = Cursor { area, y: area.y };
    let all: Vec<_> = lines.fits.iter().chain(&lines.advice).collect();
    let rows = usize::from(area.height);
    let shown = match all.len() > rows {
        true => rows.saturating_sub(1),
        false => all.len(),
    };
    for words in &all[..shown] {
        at.line(frame.buffer_mut(), words, theme);
    }
    if shown < all.len() {
        let words = match all.len() - shown {
            1 => format!("1 more line: enlarge the screen, or {}", lines.command),
            n => format!("{n} more lines: enlarge the screen, or {}", lines.command),
        };
        let room = usize::from(area.width).saturating_sub(2);
        let words = cut(&words, room, theme.glyphs().ellipsis);
        at.line(frame.buffer_mut(), &[word(words, Meaning::Muted)], theme);
    }
}

fn fit_words(shown: &Shown) -> Vec<Word> {
    let Some(fits) = &shown.fits else {
        return vec![word(
            "set `memory` or choose a device to see the largest batch, length and model here",
            Meaning::Muted,
        )];
    };
    let any = fits.micro_batch == Some(ANY_BATCH);
    let micro_batch = fits.micro_batch.map_or_else(|| "none".into(), grouped);
    let model = fits.model.as_ref();
    let model = model.map(|model| format!("{} ({})", model.name, short(model.params as f64)));
    let limits = [
        ("micro-batch", Some(micro_batch).filter(|_| !any)),
        ("length", fits.seq_len.map(grouped)),
        ("rank", fits.lora_rank.map(grouped)),
        ("model", model),
    ];
    let limits: Vec<(&str, String)> = limits
        .into_iter()
        .filter_map(|(label, value)| Some((label, value?)))
        .collect();
    // "at most micro-batch any" is no limit.
    let lead = match (any, limits.is_empty()) {
        (true, true) => "any micro-batch fits",
        (true, false) => "any micro-batch fits; at most ",
        (false, _) => "at most ",
    };
    let mut words = vec![word(lead, Meaning::Muted)];
    for (i, (label, value)) in limits.into_iter().enumerate() {
        let or = if i > 0 { "or " } else { "" };
        words.push(word(format!("{or}{label} "), Meaning::Muted));
        words.push(word(format!("{value}  "), Meaning::Title));
    }
    words
}
