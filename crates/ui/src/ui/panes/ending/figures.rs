//! The figures of a run that has ended: its best evaluation, its time and pace, what is kept.

use super::{Ending, Top};
use crate::base::human;
use crate::ui::panes::dashboard::held_out;
use crate::ui::theme::Meaning;
use crate::ui::widgets::text::{self, Word, word};
use unicode_width::UnicodeWidthStr;

/// Columns of a figure's label.
const LABEL: usize = 13;

/// A label, its value, and what belongs to it.
fn row(label: &str, value: String, meaning: Meaning, rest: String) -> Vec<Word> {
    vec![
        word(format!("{label:<LABEL$}"), Meaning::Muted),
        word(value, meaning),
        word(rest, Meaning::Muted),
    ]
}

/// The row with less room behind its label, where what belongs to the value would be cut.
fn fitted(mut row: Vec<Word>, width: usize) -> Vec<Word> {
    let over = text::width(&row).saturating_sub(width);
    if let Some(label) = row.first_mut() {
        let least = label.text.trim_end().width() + 1;
        let columns = LABEL.saturating_sub(over).max(least).min(LABEL);
        label.text = format!("{:<columns$}", label.text.trim_end());
    }
    row
}

impl Ending<'_> {
    /// In rows of this many columns.
    pub(super) fn figures(&self, width: u16) -> Vec<Vec<Word>> {
        let mut rows = self.top().map_or_else(Vec::new, |top| self.best(&top));
        rows.extend(self.pace());
        rows.extend(self.kept());
        let fitted = |row| fitted(row, width.into());
        rows.into_iter().map(fitted).collect()
    }

    /// The best evaluation, and the other readings of its step.
    fn best(&self, top: &Top) -> Vec<Vec<Word>> {
        let state = self.state();
        let last = top.step == self.finish.step;
        let other = state.best_on_other_rows();
        let other = other.filter(|other| other.best.step == top.step);
        let rows_read = other.as_ref().map(|o| format!(", on {}", o.of(o.rows)));
        let (title, value) = held_out(state, &top.metric, top.value);
        let mut rows = vec![
            row("best", value, Meaning::Validation, format!(" {title}")),
            row(
                "at step",
                human::grouped(top.step),
                Meaning::Text,
                match rows_read {
                    Some(words) => words,
                    None => if last { ", the last" } else { "" }.into(),
                },
            ),
        ];
        if let Some(other) = &other {
            let value = |value| held_out(state, &top.metric, value).1;
            let all = format!(" on {}", other.of(other.last_rows));
            let same = other.last_on_same;
            let same = same.map(|x| (value(x), " on the same rows".to_string()));
            let lines = same.into_iter().chain([(value(other.last), all)]);
            for (i, (value, rows_read)) in lines.enumerate() {
                let label = if i == 0 { "last" } else { "" };
                rows.push(row(label, value, Meaning::Validation, rows_read));
            }
        }
        let then = state.evaluations.iter().rev().find(|e| e.step == top.step);
        let others = state.metrics.iter().filter(|info| info.id != top.metric);
        for info in others {
            let value = then.and_then(|e| e.values.get(&info.id).copied());
            let Some(value) = value.filter(|x| x.is_finite()) else {
                continue;
            };
            let (title, value) = held_out(state, &info.id, value);
            let title = title.strip_prefix("validation ").unwrap_or(&title);
            rows.push(row("", value, Meaning::Validation, format!(" {title}")));
        }
        rows
    }

    /// Time, tokens and their pace.
    fn pace(&self) -> Vec<Vec<Word>> {
        let state = self.state();
        let own = state.tokens.saturating_sub(state.base_tokens);
        let time = human::seconds(state.seconds);
        let mut rows = vec![row("total time", time, Meaning::Text, String::new())];
        // As the header and the report say it.
        if let Some(speed) = state.speed().tok_per_sec {
            let speed = format!("{} tokens/s", human::short(speed));
            rows.push(row("step speed", speed, Meaning::Text, String::new()));
        }
        if state.tokens > 0 {
            let epochs = state.epochs();
            let epochs = epochs.map(|x| format!(", {} epochs", human::epochs(x)));
            let epochs = epochs.unwrap_or_default();
            // The place in the data, and so the epochs, are those of both.
            let also = match own < state.tokens {
                true => format!(
                    ", {} with those before it{epochs}",
                    human::short(state.tokens as f64)
                ),
                false => epochs,
            };
            rows.push(row("tokens", human::short(own as f64), Meaning::Text, also));
        }
        rows
    }

    /// The checkpoint to take, and how many warnings there were.
    fn kept(&self) -> Vec<Vec<Word>> {
        let state = self.state();
        let mut rows = Vec::new();
        let best = state.checkpoints.iter().rev().find(|c| c.best);
        if let Some(kept) = best.or(state.checkpoints.last()) {
            let name = kept.path.rsplit('/').next().unwrap_or(&kept.path);
            let size = format!(", {}", human::bytes(kept.bytes));
            rows.push(row("checkpoint", name.to_string(), Meaning::Text, size));
        }
        if state.n_warnings > 0 {
            let n = human::grouped(state.n_warnings);
            rows.push(row("warnings", n, Meaning::Warn, ", in the log".into()));
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "98.4 % held-out pass…", "0.5733 validation lo…" at 80 columns.
    #[test]
    fn a_long_title_takes_the_room_behind_a_short_label() {
        let of = |label: &str, rest: &str, width| {
            let row = row(label, "98.4 %".into(), Meaning::Text, rest.into());
            let words = fitted(row, width);
            words.iter().map(|w| w.text.as_str()).collect::<String>()
        };
        let rest = " held-out pass@1";
        assert_eq!(of("best", rest, 40), format!("{:<13}98.4 %{rest}", "best"));
        assert_eq!(of("best", rest, 30), format!("{:<8}98.4 %{rest}", "best"));
        assert_eq!(of("best", rest, 9), format!("best 98.4 %{rest}"));
        assert_eq!(of("", rest, 24), format!("  98.4 %{rest}"));
    }
}
