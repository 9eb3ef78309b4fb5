//! What is drawn over and under the lines: marks of events, the expected band, the cursor, and what no line can show.

use super::frame::Parts;
use super::trace::{Columns, dot_row};
use super::{LineChart, Plot};
use crate::run::state::MarkKind;
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::axis::Axis;
use crate::ui::widgets::dots::{ACROSS, DOWN};
use ratatui::buffer::Buffer;

impl LineChart<'_> {
    pub(super) fn draw_band(&self, buffer: &mut Buffer, plot: Plot, axis: &Axis, theme: &Theme) {
        let edges = self
            .band
            .iter()
            .flat_map(|band| [band.low, band.high])
            .flatten();
        let dot = if theme.ascii { "." } else { "┈" };
        for edge in edges.filter(|edge| (0.0..=1.0).contains(&axis.place(*edge))) {
            let row = dot_row(axis, edge, plot.area.height) / DOWN;
            for x in plot.area.x..plot.area.right() {
                buffer.set_stringn(
                    x,
                    plot.area.y + row as u16,
                    dot,
                    1,
                    theme.style(Meaning::Muted),
                );
            }
        }
    }

    pub(super) fn draw_marks(&self, buffer: &mut Buffer, parts: &Parts, plot: Plot, theme: &Theme) {
        // Marks sit on the axis line where there is one, else on the lowest row of the plot.
        let y = if parts.axis_line {
            plot.area.bottom()
        } else {
            plot.area.bottom() - 1
        };
        for mark in self.marks.iter().filter(|m| m.kind != MarkKind::Evaluated) {
            let Some(x) = plot.column_of(mark.step) else {
                continue;
            };
            if matches!(mark.kind, MarkKind::Adjusted | MarkKind::Resumed) && parts.axis_line {
                let line = if theme.ascii { ":" } else { "┊" };
                for row in plot.area.y..plot.area.bottom() {
                    buffer.set_stringn(x, row, line, 1, theme.style(Meaning::Border));
                }
            }
            let meaning = if mark.kind >= MarkKind::Skipped {
                Meaning::Warn
            } else {
                Meaning::Mark
            };
            buffer.set_stringn(
                x,
                y,
                mark_glyph(mark.kind, theme.ascii),
                1,
                theme.style(meaning),
            );
        }
    }

    pub(super) fn draw_cursor(
        &self,
        buffer: &mut Buffer,
        plot: Plot,
        axis: Option<&Axis>,
        theme: &Theme,
    ) {
        let Some((step, x)) = self
            .cursor
            .and_then(|step| Some((step, plot.column_of(step)?)))
        else {
            return;
        };
        let accent = theme.style(Meaning::Accent);
        for y in plot.area.y..plot.area.bottom() {
            if buffer[(x, y)].symbol() == " " {
                buffer.set_stringn(x, y, if theme.ascii { "|" } else { "│" }, 1, accent);
            }
        }
        for line in &self.lines {
            let value = line.series.nearest(step).and_then(|b| b.mean());
            if let (Some(axis), Some(value)) = (axis, value) {
                let row = dot_row(axis, value, plot.area.height) / DOWN;
                buffer[(x, plot.area.y + row as u16)].set_style(theme.style(Meaning::Cursor));
            }
        }
    }
}

/// The mark of a kind, one column wide.
pub fn mark_glyph(kind: MarkKind, ascii: bool) -> &'static str {
    match (kind, ascii) {
        (MarkKind::Evaluated, _) => "o",
        (MarkKind::Checkpoint, false) => "◆",
        (MarkKind::Checkpoint, true) => "c",
        (MarkKind::Resumed, false) => "↻",
        (MarkKind::Resumed, true) => "r",
        (MarkKind::Note, false) => "¶",
        (MarkKind::Note, true) => "n",
        (MarkKind::Adjusted, false) => "△",
        (MarkKind::Adjusted, true) => "a",
        (MarkKind::Skipped, false) => "×",
        (MarkKind::Skipped, true) => "x",
        (MarkKind::Rescued, false) => "↶",
        (MarkKind::Rescued, true) => "R",
        (MarkKind::Warning, _) => "!",
    }
}

/// What a line cannot show: values that are non-finite, and values beyond the axis, each marked on the top row.
pub(super) fn draw_oddities(
    buffer: &mut Buffer,
    plot: Plot,
    axis: Option<&Axis>,
    columns: &[Columns],
    theme: &Theme,
) {
    for column in columns {
        for (i, bucket) in column.buckets.iter().enumerate() {
            let Some(bucket) = bucket else {
                continue;
            };
            let x = plot.area.x + (i / ACROSS) as u16;
            if bucket.non_finite > 0 {
                let glyph = if theme.ascii { "X" } else { "×" };
                buffer.set_stringn(x, plot.area.y, glyph, 1, theme.style(Meaning::Bad));
            } else if axis.is_some_and(|axis| bucket.n > 0 && axis.place(bucket.max) > 1.0 + 1e-6) {
                buffer.set_stringn(
                    x,
                    plot.area.y,
                    theme.glyphs().up,
                    1,
                    theme.style(Meaning::Warn),
                );
            }
        }
    }
}
