//! The page of samples: the loss with a letter at each sample's step, and under it the texts with the same letters.

use crate::ui::widgets::frame::inside;
use crate::base::every::Every;
use crate::base::human;
use crate::base::turns::question;
use crate::metrics::id;
use crate::run::RunState;
use crate::run::newest_loss;
use crate::run::state::{Sample, UNFINISHED};
use crate::ui::keymap::Keymap;
use crate::ui::layout::wrap_ranges;
use crate::ui::panes::dashboard::catalog::begins_at_zero;
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::Lattice;
use crate::ui::widgets::axis::{self, Scale};
use crate::ui::widgets::frame;
use crate::ui::widgets::line_chart::{Line, LineChart, Look, Plot, StepAxis};
use crate::ui::widgets::text::{self, Word, word};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use serde::Deserialize;

/// Rows of the page from which on the loss stands above the texts, and its share of them.
const ROWS_FOR_CHART: u16 = 16;
const CHART_SHARE: u16 = 3;
const CHART_ROWS: std::ops::RangeInclusive<u16> = 7..=14;
/// Share of the width over which the drawn loss averages.
const SMOOTHING: f64 = 0.95;
const LOSSES: [&str; 2] = [id::TRAIN_LOSS, id::VAL_LOSS];

/// What a frame shows.
pub struct Page<'a> {
    pub state: &'a RunState,
    /// Side by side, in order of their steps.
    pub texts: &'a [&'a Sample],
    /// The text that the keys act on.
    pub marked: Option<usize>,
    /// Lines scrolled away.
    pub scroll: usize,
    /// One text alone, without the chart.
    pub full: bool,
    /// The prompt, its number and how many there are.
    pub prompt: (&'a str, usize, usize),
    pub n_samples: usize,
}

/// What a frame took.
pub struct Drawn {
    /// Lines that can be scrolled away.
    pub most: usize,
    pub rows: usize,
    /// The place of each text.
    pub columns: Vec<Rect>,
}

pub fn note(buffer: &mut Buffer, area: Rect, words: &str, theme: &Theme) {
    let inner = Rect {
        x: area.x + 2,
        y: area.y + 1,
        width: area.width.saturating_sub(4),
        height: area.height.saturating_sub(1),
    };
    text::paragraph(buffer, inner, words, Meaning::Muted, theme);
}

/// What is said before the first sample.
pub fn waiting(state: &RunState, keymap: &Keymap) -> String {
    let every = state.head.as_ref().and_then(|head| {
        let every = Every::deserialize(&head.spec["sample"]["every"]).ok()?;
        Some(every.steps(head.max_steps))
    });
    if state.is_foreign() {
        return "Another program trains this run: its log has no samples.".into();
    }
    match (every, &state.finished) {
        _ if state.judges() => {
            "A reward model scores completions and cannot generate: llmtui score RUN FILE.".into()
        }
        (_, Some(_)) => "This run took no samples. Chat with its checkpoint instead.".into(),
        (Some(every @ 1..), None) => format!(
            "The first sample is due at step {}; {}",
            human::grouped(every),
            keymap.fill("{ask-sample} asks for one now.")
        ),
        (None, None) => "Samples appear during training.".into(),
        (Some(0), None) => keymap.fill("No samples are planned (sample.every is 0); {ask-sample} asks for one now."),
    }
}

fn letter(column: usize) -> char {
    char::from(b'A' + column as u8)
}

impl Page<'_> {
    pub fn draw(&self, buffer: &mut Buffer, area: Rect, theme: &Theme) -> Drawn {
        let area = area.intersection(buffer.area);
        let mut rest = area;
        if area.height > 2 {
            self.head(buffer, area, theme);
            rest.y += 1;
            rest.height -= 1;
        }
        let mut lattice = Lattice::new(buffer.area);
        let chart = (!self.full && rest.height >= ROWS_FOR_CHART).then(|| {
            let rows = (rest.height / CHART_SHARE).clamp(*CHART_ROWS.start(), *CHART_ROWS.end());
            let chart = Rect {
                height: rows,
                ..rest
            };
            rest.y += rows - 1;
            rest.height -= rows - 1;
            chart
        });
        let outlines = columns(rest, self.texts.len());
        for outline in chart.iter().chain(&outlines) {
            lattice.outline(*outline);
        }
        if let Some(marked) = self.marked {
            lattice.focus(outlines[marked]);
        }
        lattice.draw(buffer, theme);
        if let Some(outline) = chart {
            self.chart(buffer, outline, theme);
        }
        let mut drawn = Drawn {
            most: 0,
            rows: usize::from(rest.height.saturating_sub(2)),
            columns: outlines.clone(),
        };
        for (column, (sample, outline)) in self.texts.iter().zip(outlines).enumerate() {
            let lines = self.column(buffer, outline, (column, sample), theme);
            drawn.most = drawn.most.max(lines.saturating_sub(drawn.rows));
        }
        drawn
    }

    fn head(&self, buffer: &mut Buffer, area: Rect, theme: &Theme) {
        let (prompt, number, of) = self.prompt;
        let asked = question(prompt);
        let does = match &asked {
            Some(_) => "the model answers ",
            None => "the model continues ",
        };
        let mut words = vec![word(does, Meaning::Muted)];
        // Of a long prompt the end says what is continued; a third is left for what stands on the right.
        let room = usize::from(area.width) * 2 / 3;
        let shown = crate::base::text::one_line(asked.as_deref().unwrap_or(prompt.trim()));
        let shown = crate::base::text::cut_middle(&shown, room, theme.glyphs().ellipsis);
        words.push(match shown.is_empty() {
            true => word("a line break", Meaning::Text),
            false => word(shown, Meaning::Text),
        });
        if of > 1 {
            let which = format!("  prompt {number} of {of}");
            words.push(word(which, Meaning::Muted));
        }
        let right = match self.n_samples {
            1 => "1 sample".to_string(),
            n => format!("{n} samples"),
        };
        let right = [word(right, Meaning::Muted)];
        let taken = text::width(&right) as u16 + 3;
        let left = area.width.saturating_sub(taken + 1);
        text::draw(buffer, area.x + 1, area.y, left, &words, theme);
        text::draw_right(buffer, area.right() - 1, area.y, taken, &right, theme);
    }

    /// The loss over all steps, with the letters of the samples on a line at their steps.
    fn chart(&self, buffer: &mut Buffer, outline: Rect, theme: &Theme) {
        let samples = self.texts.iter().enumerate();
        let flags: Vec<(char, u64)> = samples.map(|(i, s)| (letter(i), s.step)).collect();
        let (title, [seen, held_out]) = match rewarded(self.state) {
            true => (" reward ", [id::REWARD, ""]),
            false => (" loss ", LOSSES),
        };
        curve(buffer, outline, self.state, (seen, held_out), &flags, theme);
        let mut title = vec![word(title, Meaning::Title)];
        for (id, name, meaning) in [
            (seen, "train", Meaning::Train),
            (held_out, "val", Meaning::Validation),
        ] {
            // The training loss of other screens: that of one batch would be another number.
            let mean = || self.state.newest_loss().filter(|_| id == id::TRAIN_LOSS);
            let last = || Some(self.state.series.get(id)?.last()?.value);
            if let Some(value) = mean().or_else(last) {
                title.push(word(format!("{name} "), Meaning::Muted));
                title.push(word(format!("{value:.3} "), meaning));
            }
        }
        let room = outline.width.saturating_sub(4);
        text::draw(buffer, outline.x + 2, outline.y, room, &title, theme);
    }

    /// One text; returns how many lines it has.
    fn column(
        &self,
        buffer: &mut Buffer,
        outline: Rect,
        (column, sample): (usize, &Sample),
        theme: &Theme,
    ) -> usize {
        let mut title = Vec::new();
        if !self.full {
            title.push(word(format!(" {}", letter(column)), Meaning::Accent));
        }
        let step = format!(" step {} ", human::grouped(sample.step));
        title.push(word(step, Meaning::Title));
        if let Some(loss) = self.loss_at(sample.step) {
            title.push(word(format!("loss {loss:.2} "), Meaning::Muted));
        } else if let Some(reward) = self.at(id::REWARD, sample.step) {
            title.push(word(format!("reward {reward:.2} "), Meaning::Muted));
        }
        let room = outline.width.saturating_sub(2);
        text::draw(buffer, outline.x + 1, outline.y, room, &title, theme);
        let inner = inside(outline);
        let inner = frame::with_padding(inner);
        let lines = lines(sample, inner.width);
        let shown = lines.iter().skip(self.scroll);
        for (y, words) in (inner.y..inner.bottom()).zip(shown) {
            text::draw(buffer, inner.x, y, inner.width, words, theme);
        }
        let below = lines.len().saturating_sub(self.scroll + usize::from(inner.height));
        if below > 0 {
            let more = [word(format!(" {below} more "), Meaning::Muted)];
            let (right, y) = (outline.right().saturating_sub(1), outline.bottom() - 1);
            text::draw_right(buffer, right, y, room, &more, theme);
        }
        lines.len()
    }

    /// The validation loss at a step, or the training loss of the steps up to it.
    fn loss_at(&self, step: u64) -> Option<f64> {
        self.at(id::VAL_LOSS, step).or_else(|| {
            self.at(id::TRAIN_LOSS, step)?;
            if let Some(loss) = self.state.newest_loss_at(step) {
                return Some(loss);
            }
            let from = (step + 1).saturating_sub(newest_loss::STEPS as u64);
            let series = self.state.series.get(id::TRAIN_LOSS)?;
            let columns = series.columns(from as f64, step as f64 + 1.0, 1);
            columns.into_iter().next()??.mean()
        })
    }

    fn at(&self, id: &str, step: u64) -> Option<f64> {
        let bucket = self.state.series.get(id)?.nearest(step)?;
        (bucket.first <= step && step <= bucket.last).then(|| bucket.mean())?
    }
}

/// A policy that learns from its own answers has rewards, and no loss that says how good it is; one of a cold start ends where
/// the rewards begin.
fn rewarded(state: &RunState) -> bool {
    let last = |id: &str| Some(state.series.get(id)?.last()?.step);
    let loss = LOSSES.iter().filter_map(|id| last(id)).max();
    last(id::REWARD).is_some_and(|step| loss.is_none_or(|loss| step > loss))
}

/// A reading on what the model learns from and on what is held out, over all steps, with marks at some of them.
pub fn curve(
    buffer: &mut Buffer,
    outline: Rect,
    state: &RunState,
    (seen, held_out): (&str, &str),
    flags: &[(char, u64)],
    theme: &Theme,
) {
    let line = |id: &str, meaning, look| {
        let series = state.series.get(id)?;
        Some(Line {
            series,
            meaning,
            look,
        })
    };
    let declared = state.metric(held_out).or_else(|| state.metric(seen));
    let from_zero = declared.is_some_and(|info| begins_at_zero(&info.id, &info.unit));
    let seen = line(seen, Meaning::Train, Look::Smoothed(SMOOTHING));
    let held_out = line(held_out, Meaning::Validation, Look::Joined);
    let (from, to) = axis::step_range(state.step, state.head.as_ref().map(|h| h.max_steps));
    let chart = LineChart {
        lines: seen.into_iter().chain(held_out).collect(),
        marks: &[],
        from,
        to,
        scale: Scale::Linear,
        from_zero,
        unit: declared.map_or("", |info| &info.unit),
        cursor: None,
        settled: None,
        held: None,
        steps: StepAxis::Shown, band: None,
    };
    let plot = chart.draw(buffer, inside(outline), theme);
    for (mark, step) in flags {
        flag(buffer, &plot, *mark, *step, theme);
    }
}

/// A mark over a dotted line at a step; the line goes behind the curves.
fn flag(buffer: &mut Buffer, plot: &Plot, mark: char, step: u64, theme: &Theme) {
    let Some(x) = plot.column_of(step) else {
        return;
    };
    let line = if theme.ascii { ':' } else { '┊' };
    for y in plot.area.y..plot.area.bottom() {
        let Some(cell) = buffer.cell_mut((x, y)) else {
            continue;
        };
        if y == plot.area.y {
            cell.set_char(mark)
                .set_style(theme.style(Meaning::Accent));
        } else if matches!(cell.symbol(), " " | "\u{2800}") {
            cell.set_char(line).set_style(theme.style(Meaning::Muted));
        }
    }
}

/// Outlines side by side that share their borders.
fn columns(area: Rect, n: usize) -> Vec<Rect> {
    let n = n.max(1) as u16;
    let at = |i: u16| area.x + (u32::from(area.width.saturating_sub(1)) * u32::from(i) / u32::from(n)) as u16;
    (0..n)
        .map(|i| Rect {
            x: at(i),
            width: at(i + 1) - at(i) + 1,
            ..area
        })
        .collect()
}

/// Prompt and text with their line breaks, without empty lines at both ends.
pub fn lines(sample: &Sample, width: u16) -> Vec<Vec<Word>> {
    let asked = question(&sample.prompt);
    let asked = asked.or_else(|| sample.thought.as_ref().map(|_| sample.prompt.trim().into()));
    if let Some(asked) = asked {
        let wrapped = |text: &str, meaning| -> Vec<Vec<Word>> {
            let ranges = wrap_ranges(text, width).into_iter();
            ranges.map(|range| vec![word(&text[range], meaning)]).collect()
        };
        let mut lines = wrapped(&asked, Meaning::Muted);
        lines.push(Vec::new());
        if let Some(thought) = &sample.thought {
            lines.push(vec![word("thinking", Meaning::Accent)]);
            lines.extend(wrapped(thought.trim(), Meaning::Muted));
            lines.push(Vec::new());
        }
        let meaning = match sample.said() {
            UNFINISHED => Meaning::Warn,
            _ => Meaning::Text,
        };
        lines.extend(wrapped(sample.said().trim(), meaning));
        return lines;
    }
    let whole = format!("{}{}", sample.prompt, sample.text);
    let whole = whole.trim_end();
    let start = whole.len() - whole.trim_start_matches(['\n', '\r', ' ']).len();
    let given = sample.prompt.len().saturating_sub(start);
    let whole = &whole[start..];
    let line = |range: std::ops::Range<usize>| {
        let at = given.clamp(range.start, range.end);
        let mut words = Vec::new();
        for (part, meaning) in [
            (range.start..at, Meaning::Muted),
            (at..range.end, Meaning::Text),
        ] {
            if !part.is_empty() {
                words.push(word(&whole[part], meaning));
            }
        }
        words
    };
    wrap_ranges(whole, width).into_iter().map(line).collect()
}
