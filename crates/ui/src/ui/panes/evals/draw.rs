//! The table of tasks on the screen, and under it the marked task in full.

use super::EvalsPane;
use crate::base::human;
use crate::base::text::one_line;
use crate::tasks::{TaskCell, TaskRow};
use crate::ui::keymap::Keymap;
use crate::ui::layout::{cut, fill, scroll_to, split_bottom, split_top};
use crate::ui::panes::PaneContext;
use crate::ui::store::short_run;
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::text::{self, Word, letter, word};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// Below this a difference counts.
const LEVEL: f64 = 0.05;
/// Columns of a cell from which on the difference stands beside the value, and the standard error, too.
const WITH_DIFFERENCE: usize = 16;
const WITH_ERROR: usize = 26;
/// Columns of the marked task's text from which on a model takes one line.
const ONE_LINE: u16 = 120;

/// A run's name without its date.
pub(super) fn model_name(name: &str) -> String {
    one_line(short_run(name))
}

impl EvalsPane {
    /// Draws everything; the places of the rows.
    pub(super) fn draw_table(
        &mut self,
        buffer: &mut Buffer,
        area: Rect,
        context: &PaneContext,
    ) -> Vec<(usize, Rect)> {
        let theme = context.theme;
        if let Some(words) = self.note(context.keymap) {
            text::paragraph(buffer, area, &words, Meaning::Muted, theme);
            return Vec::new();
        }
        let n = self.table.models.len().max(1);
        let each = if area.width < ONE_LINE { 2 * n - 1 } else { n };
        let below = u16::try_from(each + 2).unwrap_or(14).min(area.height / 2);
        let (top, bottom) = split_bottom(area, below);
        let (head, body) = split_top(top, 2);
        let name = usize::from(area.width / 3).clamp(8, 34);
        let cell = usize::from(area.width).saturating_sub(name) / n;
        let title = [
            word("evaluations", Meaning::Title),
            word(
                "  differences from A; * p < 0.05, permutation test",
                Meaning::Muted,
            ),
        ];
        text::draw(buffer, head.x, head.y, head.width, &title, theme);
        let mut titles = vec![word(" ".repeat(name), Meaning::Muted)];
        for (at, model) in self.table.models.iter().enumerate() {
            let room = cell.saturating_sub(3);
            let model = cut(&model_name(model), room, theme.glyphs().ellipsis);
            let model = format!("{} {model}", letter(at));
            titles.push(word(format!("{model:>cell$}"), Meaning::Text));
        }
        if head.height > 1 {
            text::draw(buffer, head.x, head.y + 1, head.width, &titles, theme);
        }
        self.page = usize::from(body.height);
        self.first = scroll_to(self.row, self.first, self.page);
        let shown = self.table.rows.iter().enumerate().skip(self.first);
        let mut places = Vec::new();
        for (y, (at, row)) in (body.y..body.bottom()).zip(shown) {
            let marked = at == self.row;
            let words = line(row, marked, name, cell, theme);
            text::draw(buffer, body.x, y, body.width, &words, theme);
            places.push((at, Rect { y, height: 1, ..body }));
        }
        if let Some(row) = self.marked() {
            self.draw_marked(buffer, bottom, row, theme);
        }
        places
    }

    fn note(&self, keymap: &Keymap) -> Option<String> {
        if let Some(fault) = &self.fault {
            return Some(format!("not readable: {}", one_line(fault)));
        }
        if self.subjects.is_empty() {
            return Some(keymap.fill(
                "No model is chosen yet: on Home, mark runs with {mark-run} and press {compare-evals}; or press {evals-add} \
                 here to add one. Shows results of llmtui eval, and of runs with eval.tasks.",
            ));
        }
        if self.reading && self.table.rows.is_empty() {
            return Some("reading the answers".into());
        }
        self.table.rows.is_empty().then(|| {
            "None of these models has completed a task yet: llmtui eval MODEL evaluates one, eval.tasks evaluates during training."
                .into()
        })
    }

    /// The marked task: each model's number, and how far it is from the first one's.
    fn draw_marked(&self, buffer: &mut Buffer, area: Rect, row: &TaskRow, theme: &Theme) {
        if area.height == 0 {
            return;
        }
        let lower = if row.lower_is_better { ", lower is better" } else { "" };
        let title = [
            word(format!("{} v{}", one_line(&row.task), row.version), Meaning::Title),
            word(format!("  {}{lower}", one_line(&row.metric)), Meaning::Muted),
        ];
        let mut lines: Vec<Vec<Word>> = vec![Vec::new(), title.to_vec()];
        for (at, cell) in row.cells.iter().enumerate() {
            let Some(cell) = cell else {
                let words = "  has no result for it";
                lines.push(vec![word(letter(at), Meaning::Text), word(words, Meaning::Muted)]);
                continue;
            };
            let reading = &cell.reading;
            let value = human::with_error(reading.value, reading.stderr);
            let mut words = vec![
                word(format!("{}  {value}", letter(at)), Meaning::Text),
                word(
                    format!(
                        " of {}, {}",
                        human::counted(reading.n as u64, "item"),
                        model_name(&cell.model)
                    ),
                    Meaning::Muted,
                ),
            ];
            let against = against(cell);
            if area.width < ONE_LINE && !against.is_empty() {
                lines.push(std::mem::take(&mut words));
            }
            if !against.is_empty() {
                words.push(word("   ", Meaning::Muted));
                words.extend(against);
            }
            lines.push(words);
        }
        for (y, words) in (area.y..area.bottom()).zip(&lines) {
            text::draw(buffer, area.x, y, area.width, words, theme);
        }
    }
}

/// `+0.0380, 95 % from +0.0100 to +0.0660, p = 0.0090; 23 items won, 4 lost`
fn against(cell: &TaskCell) -> Vec<Word> {
    if cell.other_rows {
        return vec![word("evaluated on other rows than A: not comparable", Meaning::Warn)];
    }
    let Some(found) = &cell.against else {
        return Vec::new();
    };
    let won = found.flips.iter().filter(|flip| flip.won).count();
    let flips = match found.flips.len() {
        0 => String::new(),
        all => format!(
            "; {} won, {} lost",
            human::counted(won as u64, "item"),
            all - won
        ),
    };
    let of = if found.metric == "logp" { " nats per item" } else { "" };
    vec![
        word(format!("{:+.4}{of}", found.difference), counts(cell)),
        word(
            format!(", {}{flips}", found.certainty()),
            Meaning::Muted,
        ),
    ]
}

/// Good or bad where the difference counts. Compared scores are higher where a model is better.
fn counts(cell: &TaskCell) -> Meaning {
    match &cell.against {
        Some(found) if found.p < LEVEL && found.difference > 0.0 => Meaning::Good,
        Some(found) if found.p < LEVEL => Meaning::Bad,
        _ => Meaning::Muted,
    }
}

fn line(row: &TaskRow, marked: bool, name: usize, cell: usize, theme: &Theme) -> Vec<Word> {
    let glyphs = theme.glyphs();
    let pointer = if marked { glyphs.pointer } else { " " };
    let title = format!("{} {}", one_line(&row.task), one_line(&row.metric));
    let title = fill(&cut(&title, name.saturating_sub(3), glyphs.ellipsis), name - 2, "");
    let meaning = if marked { Meaning::Selected } else { Meaning::Text };
    let mut words = vec![word(format!("{pointer} {title}"), meaning)];
    let first = row.cells.first().and_then(Option::as_ref);
    for found in &row.cells {
        let Some(found) = found else {
            words.push(word(format!("{:>cell$}", "-"), Meaning::Muted));
            continue;
        };
        let value = match (cell >= WITH_ERROR, found.reading.stderr) {
            (true, Some(_)) => human::with_error(found.reading.value, found.reading.stderr),
            _ => human::number(found.reading.value),
        };
        let star = match &found.against {
            Some(against) if against.p < LEVEL => "*",
            _ if found.other_rows => glyphs.warn,
            _ => " ",
        };
        let difference = match (&found.against, first) {
            (Some(_), Some(first)) if cell >= WITH_DIFFERENCE => {
                format!(" {:+.3}", found.reading.value - first.reading.value)
            }
            _ => String::new(),
        };
        let taken = value.chars().count() + difference.len() + 1;
        words.push(word(" ".repeat(cell.saturating_sub(taken)), Meaning::Muted));
        words.push(word(value, Meaning::Text));
        words.push(word(format!("{difference}{star}"), counts(found)));
    }
    words
}
