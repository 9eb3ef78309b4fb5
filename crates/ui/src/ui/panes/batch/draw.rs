//! What the batch of a step looks like: a line of readings, the rows with their losses, and the marked row with each token
//! coloured by its loss.

use super::BatchPane;
use crate::base::human::{self, grouped};
use crate::base::text::{one_line, sanitize};
use crate::metrics::id;
use crate::run::revisit::{Row, mean_loss};
use crate::ui::msg::Holder;
use crate::ui::panes::SPIN;
use crate::ui::panes::chat::heat;
use crate::ui::store::{OpenRun, Store};
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::text::{self, Word, muted, word};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// Readings of the step that are shown, with their words.
const READINGS: [(&str, &str); 3] = [
    (id::TRAIN_LOSS, "loss"),
    (id::GRAD_NORM, "gradient norm"),
    (id::LR, "lr"),
];
/// Share of the height that the list of rows takes at most.
const LIST_SHARE: u16 = 3;
/// Columns of the bar of a row's loss.
const BAR: usize = 12;

impl BatchPane {
    /// Draws everything; the places of the rows on the screen.
    pub(super) fn draw_all(
        &mut self,
        buffer: &mut Buffer,
        area: Rect,
        store: &Store,
        theme: &Theme,
    ) -> Vec<(usize, Rect)> {
        let inner = Rect {
            x: area.x + 2,
            width: area.width.saturating_sub(4),
            ..area
        };
        if let Some(words) = self.note(store, theme) {
            text::paragraph(buffer, inner, &words, Meaning::Muted, theme);
            return Vec::new();
        }
        let (Some(held), Some(found)) = (&store.held, &self.found) else {
            return Vec::new();
        };
        let mut y = inner.y;
        let mut line = |words: &[Word]| {
            if y < inner.bottom() {
                text::draw(buffer, inner.x, y, inner.width, words, theme);
            }
            y += 1;
        };
        let width = usize::from(inner.width);
        let head = text::flow(self.head(held, found.step), &muted("   "), width);
        let comparison = text::flow(self.comparison(), &muted(", "), width);
        for words in head.iter().chain(&comparison) {
            line(words);
        }
        line(&[]);
        let (places, y) = self.draw_rows(buffer, inner, y, theme);
        let legend = found.rows.iter().any(|row| row.scored.is_some());
        self.draw_tokens(buffer, inner, y + 1, theme);
        if legend && inner.height > 4 {
            let words = heat::legend_of_probability();
            let bottom = inner.bottom() - 1;
            text::draw(buffer, inner.x, bottom, inner.width, &words, theme);
        }
        places
    }

    /// Draws the list of rows from line `y` on; their places, and the line below them.
    fn draw_rows(
        &self,
        buffer: &mut Buffer,
        inner: Rect,
        mut y: u16,
        theme: &Theme,
    ) -> (Vec<(usize, Rect)>, u16) {
        let rows = self.rows();
        let room = (inner.height / LIST_SHARE).max(2).min(rows.len() as u16);
        let first = (self.marked + 1).saturating_sub(usize::from(room));
        let highest = rows.iter().filter_map(|row| row.loss()).fold(0.0, f64::max);
        let several = self.one_source().is_none();
        let mut places = Vec::new();
        for (at, row) in rows.iter().enumerate().skip(first).take(usize::from(room)) {
            let area = Rect {
                y,
                height: 1,
                ..inner
            };
            if y < inner.bottom() {
                let source = if several { source_of(row) } else { String::new() };
                let words = listed((row, &source), at == self.marked, highest, theme);
                text::draw(buffer, inner.x, y, inner.width, &words, theme);
                places.push((at, area));
            }
            y += 1;
        }
        (places, y)
    }

    /// Draws the tokens of the marked row from line `y` on, as far as they are scrolled.
    fn draw_tokens(&mut self, buffer: &mut Buffer, inner: Rect, y: u16, theme: &Theme) {
        let lines = match self.rows().get(self.marked) {
            Some(row) => tokens(row, usize::from(inner.width)),
            None => Vec::new(),
        };
        let rows_left = usize::from(inner.bottom().saturating_sub(y)).saturating_sub(2);
        self.page = rows_left;
        self.most = lines.len().saturating_sub(rows_left);
        self.scroll = self.scroll.min(self.most);
        let shown = lines.iter().skip(self.scroll).take(rows_left);
        for (words, y) in shown.zip(y..) {
            text::draw(buffer, inner.x, y, inner.width, words, theme);
        }
    }

    /// What is said while there are no rows to show.
    fn note(&self, store: &Store, theme: &Theme) -> Option<String> {
        let Some(held) = &store.held else {
            return Some("No run is open: choose one on Home.".into());
        };
        if held.holder == Holder::Foreign {
            return Some("Another program trains this run: its batches are unknown here.".into());
        }
        let Some(step) = self.step else {
            return Some("Batches can be shown after the first step.".into());
        };
        if let Some(why) = &self.fault {
            return Some(format!("The batch of step {} is not available: {why}", grouped(step)));
        }
        let there = self.found.as_ref().is_some_and(|found| found.step == step);
        if there {
            return None;
        }
        let glyphs = theme.glyphs();
        let frame = store.now.0 as usize / SPIN.as_millis() as usize;
        let spinner = glyphs.spinner[frame % glyphs.spinner.len()];
        Some(format!("{spinner} recomputing the batch of step {}", grouped(step)))
    }

    /// `step 1,240   loss 3.21   gradient norm 8.7`, as the log has them: the parts of it.
    fn head(&self, held: &OpenRun, step: u64) -> Vec<Vec<Word>> {
        let title = word(format!("batch of step {}", grouped(step)), Meaning::Title);
        let mut parts = vec![vec![title]];
        for (id, name) in READINGS {
            let series = held.state.series.get(id);
            let bucket = series.and_then(|series| series.nearest(step));
            let Some(value) = bucket.and_then(|bucket| bucket.mean()) else {
                continue;
            };
            parts.push(vec![
                muted(format!("{name} ")),
                word(human::number(value), Meaning::Text),
            ]);
            let elsewhere = series.and_then(|series| series.elsewhere(step));
            if let (Some(step), Some(part)) = (elsewhere, parts.last_mut()) {
                part.push(muted(format!(" (step {})", grouped(step))));
            }
        }
        if let Some(source) = self.one_source().filter(|source| !source.is_empty()) {
            parts.push(vec![muted(format!("rows of {source}"))]);
        }
        if self.worst_first {
            parts.push(vec![muted("highest loss first")]);
        }
        parts
    }

    /// Where all rows come from, if that is one place: beside each of them it would take the room of the text.
    fn one_source(&self) -> Option<String> {
        let mut rows = self.rows().into_iter();
        let first = rows.next()?;
        rows.all(|row| row.sources == first.sources).then(|| source_of(first))
    }

    /// How these rows stand beside those of the step before, and whose weights read them, as parts of a sentence.
    fn comparison(&self) -> Vec<Vec<Word>> {
        let Some(found) = &self.found else {
            return Vec::new();
        };
        let first = found.rows.iter().find_map(|row| row.scored.as_ref());
        let (Some(scored), Some(mean)) = (first, mean_loss(&found.rows)) else {
            let words = "no per-token loss: this method scores whole answers, or samples its own";
            return vec![vec![muted(words)]];
        };
        let by = match scored.weights_of {
            0 => "with the initial weights".to_string(),
            step => format!("by checkpoint {}", grouped(step)),
        };
        let mut parts = vec![vec![
            muted("its rows "),
            word(format!("{mean:.3}"), Meaning::Text),
            muted(" nats per token"),
        ]];
        if let Some(before) = found.before {
            let change = mean - before;
            let meaning = if change > 0.0 { Meaning::Warn } else { Meaning::Good };
            parts.push(vec![
                muted(format!("those of step {} ", grouped(found.step - 1))),
                word(format!("{before:.3}"), Meaning::Text),
                word(format!(" ({change:+.3})"), meaning),
            ]);
        }
        parts.push(vec![muted(by)]);
        parts
    }
}

/// Where a row comes from, by the names of the files: their folders are seldom what differs.
fn source_of(row: &Row) -> String {
    let name = |source: &String| one_line(source.rsplit('/').next().unwrap_or(source));
    row.sources.iter().map(name).collect::<Vec<_>>().join(" + ")
}

/// A row in the list: its place, its loss as a number and a bar, how much of it counts, where it comes from, how it begins.
fn listed((row, source): (&Row, &str), marked: bool, highest: f64, theme: &Theme) -> Vec<Word> {
    let glyphs = theme.glyphs();
    let pointer = if marked { glyphs.pointer } else { " " };
    let title = if marked { Meaning::Title } else { Meaning::Text };
    let mut words = vec![
        word(format!("{pointer} "), Meaning::Title),
        word(format!("{:>3} ", row.row), title),
    ];
    // Both answers of a pair have one number.
    if let Some(label) = &row.label {
        words.push(muted(format!(" {:<11}", one_line(label))));
    }
    if let Some(loss) = row.loss() {
        let filled = (loss / highest.max(f64::MIN_POSITIVE) * BAR as f64).round() as usize;
        let bar = if theme.ascii { "#" } else { "▪" };
        words.push(word(format!(" {loss:>6.3} "), title));
        words.push(word(format!("{:<BAR$}", bar.repeat(filled.min(BAR))), Meaning::Train));
    }
    let counts = match row.supervised == row.ids.len() {
        true => format!("  {}", human::counted(row.ids.len() as u64, "token")),
        false => format!("  {} of {} tokens", grouped(row.supervised as u64), grouped(row.ids.len() as u64)),
    };
    words.push(muted(counts));
    if !source.is_empty() {
        words.push(muted(format!("  {source}")));
    }
    words.push(word(format!("  {}", one_line(&row.text)), title));
    words
}

/// The whole row, each target in the color of its probability; what does not count is muted, and so is the first token of a
/// document, which nothing predicts.
fn tokens(row: &Row, width: usize) -> Vec<Vec<Word>> {
    let Some(scored) = &row.scored else {
        return text::wrap(&row.text, width, usize::MAX, false)
            .into_iter()
            .map(|line| vec![word(line, Meaning::Text)])
            .collect();
    };
    let tokens = scored.pieces.iter().zip(&scored.losses).zip(&row.mask);
    let words = tokens.enumerate().flat_map(|(at, ((piece, loss), counts))| {
        let meaning = match counts {
            true => heat::of_probability((-loss).exp()),
            false => Meaning::Muted,
        };
        let first = scored.firsts.iter().find(|(place, _)| *place == at);
        let first = first.map(|(_, piece)| muted(sanitize(piece)));
        first
            .into_iter()
            .chain([word(sanitize(piece), meaning)])
    });
    text::broken(words, width)
}
