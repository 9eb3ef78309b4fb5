//! The dashboard of one run, live or finished. It owns cursors only: which chart is selected, which steps are shown, what the
//! cursor reads. Everything else is read from the [`RunState`] that is passed in.

mod catalog;
mod glance;
mod health;
mod navigate;
mod plan;
mod strips;

use crate::base::clock::UnixMillis;
use crate::base::human;
use crate::run::RunState;
use crate::run::series::Series;
use crate::run::state::Mark;
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::Lattice;
use crate::ui::widgets::axis::{self, Scale};
use crate::ui::widgets::line_chart::{Line, LineChart, Look, Plot};
use crate::ui::widgets::text::{self, Word, word};
use crate::wire::Phase;
use catalog::Chart;
use glance::{Glance, Wish};
use plan::{Mode, Plan};
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use std::collections::BTreeSet;

/// Decay of the moving average as a share of the steps shown; 0 is none. [`navigate`] cycles through them.
const SMOOTHING: [f64; 4] = [0.0, 0.006, 0.02, 0.06];
const SMOOTHING_WORDS: [&str; 4] = [
    "not smoothed",
    "smoothed a little",
    "smoothed",
    "smoothed strongly",
];
const USUAL_SMOOTHING: usize = 2;

/// The steps that are shown instead of all.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Zoom {
    from: f64,
    to: f64,
    /// The right end moves with the run.
    follows: bool,
}

/// A chart as it was last drawn, for the mouse and for moving between charts.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Shown {
    /// Index among the run's charts.
    chart: usize,
    outline: Rect,
    plot: Plot,
}

/// The cursors of a dashboard.
#[derive(Debug)]
pub struct Dashboard {
    /// Seconds east of Greenwich, for the times of the log.
    pub utc_offset: i64,
    selected: usize,
    /// The selection is shown only after somebody selected.
    selecting: bool,
    full: bool,
    zoom: Option<Zoom>,
    cursor: Option<u64>,
    smoothing: usize,
    /// Metric ids drawn on a logarithmic axis.
    logarithmic: BTreeSet<String>,
    filter: String,
    log_back: usize,
    glance: Glance,
    shown: Vec<Shown>,
    /// The frame before.
    before: Vec<Shown>,
}

impl Default for Dashboard {
    fn default() -> Self {
        Dashboard {
            utc_offset: 0,
            selected: 0,
            selecting: false,
            full: false,
            zoom: None,
            cursor: None,
            smoothing: USUAL_SMOOTHING,
            logarithmic: BTreeSet::new(),
            filter: String::new(),
            log_back: 0,
            glance: Glance::default(),
            shown: Vec::new(),
            before: Vec::new(),
        }
    }
}

/// What drawing a frame needs, so that its parts need few arguments.
struct Canvas<'a> {
    state: &'a RunState,
    theme: &'a Theme,
    range: (f64, f64),
    marks: Vec<&'a Mark>,
    /// Charts of the run, drawn or not.
    n_charts: usize,
}

impl Dashboard {
    pub fn new() -> Self {
        Self::default()
    }

    /// Draws the dashboard. `now` is wall time; numbers of a training run are renewed twice a second.
    pub fn draw(
        &mut self,
        frame: &mut Frame,
        area: Rect,
        state: &RunState,
        theme: &Theme,
        now: UnixMillis,
    ) {
        self.render(frame.buffer_mut(), area, state, theme, now);
    }

    /// [`Dashboard::draw`] into any buffer.
    pub fn render(
        &mut self,
        buffer: &mut Buffer,
        area: Rect,
        state: &RunState,
        theme: &Theme,
        now: UnixMillis,
    ) {
        let area = area.intersection(buffer.area);
        let charts = catalog::charts(state, &self.filter);
        self.selected = self.selected.min(charts.len().saturating_sub(1));
        self.before = std::mem::take(&mut self.shown);
        let Some(plan) = plan::plan(area, charts.len(), self.mode()) else {
            sentence(buffer, area, state, theme);
            return;
        };
        let visible = self.visible(charts.len(), plan.charts.len());
        let wish = Wish {
            charts: visible.iter().map(|i| charts[*i].clone()).collect(),
            cursor: self.cursor,
            smoothed: self.smoothing > 0,
            ascii: theme.ascii,
        };
        let shown_charts = wish.charts.clone();
        self.glance.renew(state, wish, now);
        let marks = state.marks.iter().collect();
        let canvas = Canvas {
            state,
            theme,
            range: self.range(state),
            marks,
            n_charts: charts.len(),
        };
        strips::progress(buffer, plan.progress, &self.glance, theme);
        let boxes = self.draw_boxes(buffer, &plan, &canvas, &visible);
        for (slot, chart) in shown_charts.iter().enumerate() {
            self.draw_chart(buffer, boxes[slot], chart, slot, visible[slot], &canvas);
        }
        if charts.is_empty() {
            nothing_matches(
                buffer,
                plan.charts.first().copied().unwrap_or(area),
                &self.filter,
                theme,
            );
        }
        self.draw_strips(buffer, &plan, &canvas);
    }

    fn mode(&self) -> Mode {
        match (self.full, self.filter.is_empty()) {
            (true, _) => Mode::Full,
            (false, true) => Mode::Overview,
            (false, false) => Mode::Grid,
        }
    }

    /// Indices of the charts for `slots` places: the selected one is always among them.
    fn visible(&self, n_charts: usize, slots: usize) -> Vec<usize> {
        let slots = slots.min(n_charts);
        if self.full || slots <= 1 {
            return (0..n_charts).skip(self.selected).take(slots).collect();
        }
        if self.selected < slots {
            return (0..slots).collect();
        }
        // The first chart keeps its large place; the others move on by pages.
        let page = slots - 1;
        let first = 1 + (self.selected - 1) / page * page;
        std::iter::once(0)
            .chain((first..n_charts).take(page))
            .collect()
    }

    /// The steps shown.
    fn range(&self, state: &RunState) -> (f64, f64) {
        let whole = whole_range(state);
        match self.zoom {
            None => whole,
            Some(zoom) if zoom.follows => {
                // In jumps of a sixteenth, so that the picture stands still in between.
                let span = zoom.to - zoom.from;
                let jump = (span / 16.0).max(1.0);
                let to = ((state.step as f64 / jump).ceil() * jump).max(span);
                (to - span, to)
            }
            Some(zoom) => (zoom.from, zoom.to),
        }
    }

    fn draw_boxes(
        &self,
        buffer: &mut Buffer,
        plan: &Plan,
        canvas: &Canvas,
        visible: &[usize],
    ) -> Vec<Rect> {
        let theme = canvas.theme;
        let all = buffer.area;
        let mut lattice = Lattice::new(all);
        let panels = [plan.health, plan.hardware, plan.sample, plan.log];
        for outline in plan.charts.iter().chain(panels.iter().flatten()) {
            lattice.outline(*outline);
        }
        let focus = visible.iter().position(|chart| *chart == self.selected);
        if let Some(outline) = focus
            .filter(|_| self.selecting && !self.full)
            .and_then(|slot| plan.charts.get(slot))
        {
            lattice.focus(*outline);
        }
        lattice.draw(buffer, theme);
        let finished = canvas.state.finished.is_some();
        let sample_step = canvas.state.samples.back().map(|s| human::grouped(s.step));
        let titles = [
            (
                plan.health,
                if finished {
                    "result".to_string()
                } else {
                    "health".into()
                },
            ),
            (plan.hardware, "hardware".into()),
            (
                plan.sample,
                sample_step.map_or("sample".into(), |step| {
                    format!("sample {} step {step}", theme.glyphs().separator)
                }),
            ),
            (
                plan.log,
                if self.log_back > 0 {
                    format!("log, {} lines back", self.log_back)
                } else {
                    "log".into()
                },
            ),
        ];
        for (outline, title) in titles {
            if let Some(outline) = outline {
                box_title(
                    buffer,
                    outline,
                    &[word(format!(" {title} "), Meaning::Title)],
                    theme,
                );
            }
        }
        self.draw_page_hint(buffer, plan, canvas, visible);
        plan.charts.clone()
    }

    /// `charts 1-4 of 11` on the last border of the charts, when not all are shown.
    fn draw_page_hint(&self, buffer: &mut Buffer, plan: &Plan, canvas: &Canvas, visible: &[usize]) {
        let Some(last) = plan
            .charts
            .last()
            .filter(|_| visible.len() < canvas.n_charts && plan.health.is_none())
        else {
            return;
        };
        let (first, end) = (
            visible.iter().min().copied().unwrap_or(0) + 1,
            visible.iter().max().copied().unwrap_or(0) + 1,
        );
        let range = if visible.len() == end + 1 - first {
            format!("{first}-{end}")
        } else {
            format!("1, {}-{end}", end + 2 - visible.len())
        };
        let range = if visible.len() == 1 {
            format!("{end}")
        } else {
            range
        };
        let words = [word(
            format!(" {range} of {} charts ", canvas.n_charts),
            Meaning::Muted,
        )];
        text::draw_right(
            buffer,
            last.right().saturating_sub(1),
            last.bottom() - 1,
            last.width.saturating_sub(2),
            &words,
            canvas.theme,
        );
    }

    fn draw_chart(
        &mut self,
        buffer: &mut Buffer,
        outline: Rect,
        chart: &Chart,
        slot: usize,
        index: usize,
        canvas: &Canvas,
    ) {
        let inner = inside(outline);
        let state = canvas.state;
        let mut title = self.title(chart, slot, index, canvas.theme);
        let wide = |title: &[Word]| text::width(title) + 2 > usize::from(outline.width);
        if wide(&title) {
            title.retain(|word| word.meaning != Meaning::Border);
        }
        if wide(&title) {
            title.retain(|word| word.meaning != Meaning::Cursor);
        }
        box_title(buffer, outline, &title, canvas.theme);
        if slot == 0 && state.series.is_empty() && state.finished.is_none() {
            strips::checks(buffer, inner, state, canvas.theme);
            return;
        }
        let main = state.series.get(&chart.id);
        let look = match chart {
            c if c.points_only() => Look::Joined,
            c if !c.smooths() => Look::Thin,
            _ if self.smoothing > 0 => Look::Smoothed(SMOOTHING[self.smoothing]),
            _ => Look::Line,
        };
        let meaning = match chart {
            c if c.points_only() => Meaning::Validation,
            c if c.validation.is_some() => Meaning::Train,
            _ => Meaning::Series,
        };
        let twin = chart
            .validation
            .as_ref()
            .and_then(|id| state.series.get(id));
        let line = |series: &Series| !series.is_empty();
        let mut lines: Vec<Line> = Vec::with_capacity(2);
        lines.extend(main.filter(|s| line(s)).map(|series| Line {
            series,
            meaning,
            look,
        }));
        lines.extend(twin.filter(|s| line(s)).map(|series| Line {
            series,
            meaning: Meaning::Validation,
            look: Look::Points,
        }));
        let held = self.held(index, outline, canvas.range);
        let chart = LineChart {
            lines,
            marks: &canvas.marks,
            from: canvas.range.0,
            to: canvas.range.1,
            scale: if self.logarithmic.contains(&chart.id) {
                Scale::Log
            } else {
                Scale::Linear
            },
            from_zero: chart.begins_at_zero(),
            bytes: chart.unit == "bytes",
            cursor: self.cursor,
            settled: state.running() && state.phase == Some(Phase::Training),
            held,
        };
        let plot = chart.draw(buffer, inner, canvas.theme);
        self.shown.push(Shown {
            chart: index,
            outline,
            plot,
        });
    }

    /// The value axis of the same chart in the same place over the same steps one frame ago.
    fn held(&self, chart: usize, outline: Rect, range: (f64, f64)) -> Option<axis::Axis> {
        let same = |s: &&Shown| {
            s.chart == chart && s.outline == outline && (s.plot.from, s.plot.to) == range
        };
        self.before.iter().find(same)?.plot.axis
    }

    fn title(&self, chart: &Chart, slot: usize, index: usize, theme: &Theme) -> Vec<Word> {
        let selected = self.selecting && index == self.selected && !self.full;
        let (lead, meaning) = match selected {
            true => (theme.glyphs().pointer, Meaning::Accent),
            false => (" ", Meaning::Title),
        };
        let rule = theme.glyphs().rule;
        let mut words = vec![
            word(lead, meaning),
            word(format!("{} ", chart.title), meaning),
        ];
        if self.logarithmic.contains(&chart.id) {
            words.push(word("log ", Meaning::Muted));
        }
        if self.full && self.smoothing > 0 && chart.smooths() {
            words.push(word(
                format!("{} ", SMOOTHING_WORDS[self.smoothing]),
                Meaning::Muted,
            ));
        }
        let values = self
            .glance
            .titles
            .get(slot)
            .filter(|values| !values.is_empty());
        if let Some(values) = values {
            words.push(word(format!("{rule}{rule} "), Meaning::Border));
            words.extend(values.iter().cloned());
            words.push(word(" ", Meaning::Muted));
        }
        words
    }

    fn draw_strips(&self, buffer: &mut Buffer, plan: &Plan, canvas: &Canvas) {
        let (state, theme) = (canvas.state, canvas.theme);
        if let Some(outline) = plan.health {
            match &state.finished {
                Some(finish) => strips::result(buffer, inside(outline), state, finish, theme),
                None => strips::health(buffer, inside(outline), &self.glance.facts, theme),
            }
        }
        if let Some(outline) = plan.hardware {
            strips::hardware(buffer, inside(outline), state, theme);
        }
        if let Some(outline) = plan.sample {
            strips::sample(buffer, inside(outline), state, theme);
        }
        if let Some(outline) = plan.log {
            strips::log(
                buffer,
                inside(outline),
                state,
                self.log_back,
                self.utc_offset,
                theme,
            );
        }
        if let Some(row) = plan.status {
            strips::status(buffer, row, state, &self.glance, theme);
        }
        if let Some(row) = plan.sample_line {
            strips::sample_line(buffer, row, state, theme);
        }
    }
}

/// All steps that a chart of this run spans.
fn whole_range(state: &RunState) -> (f64, f64) {
    axis::step_range(state.step, state.head.as_ref().map(|h| h.max_steps))
}

fn inside(outline: Rect) -> Rect {
    Rect {
        x: outline.x + 1,
        y: outline.y + 1,
        width: outline.width.saturating_sub(2),
        height: outline.height.saturating_sub(2),
    }
}

fn box_title(buffer: &mut Buffer, outline: Rect, words: &[Word], theme: &Theme) {
    text::draw(
        buffer,
        outline.x + 1,
        outline.y,
        outline.width.saturating_sub(2),
        words,
        theme,
    );
}

fn nothing_matches(buffer: &mut Buffer, outline: Rect, filter: &str, theme: &Theme) {
    let words = [word(
        format!("No chart has \u{201c}{filter}\u{201d} in its name."),
        Meaning::Muted,
    )];
    let inner = inside(outline);
    text::draw(
        buffer,
        inner.x + 1,
        inner.y,
        inner.width.saturating_sub(2),
        &words,
        theme,
    );
}

/// All that a very small terminal can hold.
fn sentence(buffer: &mut Buffer, area: Rect, state: &RunState, theme: &Theme) {
    let loss = state
        .latest("train/loss")
        .map(|x| format!(", loss {}", human::number(x)))
        .unwrap_or_default();
    let steps = state.head.as_ref().map_or(String::new(), |h| {
        format!(" of {}", human::grouped(h.max_steps))
    });
    let words = format!(
        "{}: step {}{steps}{loss}",
        state.word(),
        human::grouped(state.step)
    );
    text::paragraph(buffer, area, &words, Meaning::Text, theme);
}

#[cfg(test)]
mod tests;
