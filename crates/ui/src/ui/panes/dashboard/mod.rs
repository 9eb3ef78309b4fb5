//! The dashboard of one run, live or finished. It owns cursors only: which chart is selected, which steps are shown, what the
//! cursor reads. Everything else is read from the [`RunState`] that is passed in.

pub(super) mod catalog;
mod frame;
mod glance;
mod health;
mod machine;
mod navigate;
mod plan;
mod status;
mod strips;
mod vitals;

pub use status::crashed;

use crate::base::clock::UnixMillis;
use crate::plan::measured::Place;
use crate::run::RunState;
use crate::run::state::{LogLine, Mark, MarkKind};
use crate::ui::theme::Theme;
use crate::ui::widgets::axis;
use crate::ui::widgets::line_chart::Plot;
pub(super) use catalog::{held_out, name};
pub(super) use glance::outcome_mark;
use glance::{Glance, GlanceOptions};
pub(super) use health::verdict;
use plan::Mode;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use std::collections::BTreeSet;

/// Decay of the moving average as a share of the steps shown; 0 is off. [`navigate`] cycles through them.
/// Weights of the past, as Weights & Biases counts them.
const SMOOTHING: [f64; 4] = [0.0, 0.85, 0.95, 0.98];
const SMOOTHING_WORDS: [&str; 4] = ["not smoothed", "EMA 0.85", "EMA 0.95", "EMA 0.98"];
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
    /// What the plan says that the run takes, in bytes.
    pub planned: Option<(Place, u64)>,
    /// The text for an engine that sends no events.
    pub silence: Option<String>,
    /// How long a long step or what follows it has taken so far, and what was asked for and waits.
    pub so_far: Option<String>,
    pub waiting: Option<String>,
    /// The run's stage of a pipeline, and what comes next.
    pub stage: Option<(String, Option<String>)>,
    /// What opens the pane with the warnings; empty where nothing does.
    pub health_key: String,
    /// That the run has no engine, and what resumes it.
    pub crashed: Option<String>,
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
    /// The last line of the log in the last frame, where that is scrolled back.
    log_end: Option<LogLine>,
    /// Lines of the log in the last frame.
    log_rows: usize,
    glance: Glance,
    shown: Vec<Shown>,
    /// The frame before.
    before: Vec<Shown>,
    /// The row of vital signs in the last frame.
    vitals: Option<Rect>,
}

impl Default for Dashboard {
    fn default() -> Self {
        Dashboard {
            utc_offset: 0,
            planned: None,
            silence: None,
            so_far: None,
            waiting: None,
            stage: None,
            health_key: String::new(),
            crashed: None,
            selected: 0,
            selecting: false,
            full: false,
            zoom: None,
            cursor: None,
            smoothing: USUAL_SMOOTHING,
            logarithmic: BTreeSet::new(),
            filter: String::new(),
            log_back: 0,
            log_end: None,
            log_rows: 0,
            glance: Glance::default(),
            shown: Vec::new(),
            before: Vec::new(),
            vitals: None,
        }
    }
}

impl Dashboard {
    pub fn new() -> Self {
        Self::default()
    }

    /// The chart that has the whole screen: its metric and its place in the last frame.
    pub fn full_chart(&self, state: &RunState) -> Option<(String, Rect)> {
        let shown = self.shown.first().filter(|_| self.full)?;
        let charts = catalog::charts(state, &self.filter);
        Some((charts.get(shown.chart)?.id.clone(), shown.outline))
    }

    /// Keeps a log that is scrolled back where it is while lines arrive.
    fn pin_log_scroll(&mut self, state: &RunState) {
        let there = self.log_end.as_ref();
        let there = there.and_then(|line| state.log.iter().rposition(|other| other == line));
        if let Some(at) = there {
            self.log_back = state.log.len() - 1 - at;
        }
        let end = state.log.len().checked_sub(self.log_back + 1);
        let end = end.filter(|_| self.log_back > 0);
        self.log_end = end.and_then(|at| state.log.get(at).cloned());
    }

    /// The place of the vital signs in the last frame.
    pub fn vitals(&self) -> Option<Rect> {
        self.vitals
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
        // Until the first step there is nothing to draw but what the engine finds out before it.
        let opening = state.step == 0;
        let charts = match opening {
            true => Vec::new(),
            false => catalog::charts(state, &self.filter),
        };
        self.selected = self.selected.min(charts.len().saturating_sub(1));
        self.before = std::mem::take(&mut self.shown);
        let signs = self.filter.is_empty() && vitals::any(state);
        self.vitals = None;
        let Some(plan) = plan::plan(area, charts.len(), self.mode(), signs) else {
            frame::sentence(buffer, area, state, theme);
            return;
        };
        let visible = self.visible(charts.len(), plan.charts.len());
        let options = GlanceOptions {
            charts: visible.iter().map(|i| charts[*i].clone()).collect(),
            cursor: self.cursor,
            smoothed: self.smoothing > 0,
            ascii: theme.ascii,
            silence: self.silence.clone(),
            so_far: self.so_far.clone(),
            waiting: self.waiting.clone(),
            stage: self.stage.clone(),
        };
        let shown_charts = options.charts.clone();
        self.pin_log_scroll(state);
        self.glance.renew(state, options, now);
        // What an engine notes before its first step is in the log: below each chart it would look like a part of the axis.
        let begins = |mark: &&Mark| mark.kind == MarkKind::Note && mark.step <= state.base_step;
        let marks = state.marks.iter().filter(|mark| !begins(mark)).collect();
        let canvas = frame::Canvas {
            state,
            theme,
            range: self.range(state),
            marks,
            n_charts: charts.len(),
        };
        self.log_rows = plan
            .log
            .map_or(0, |log| log.height.saturating_sub(2).into());
        strips::progress(buffer, plan.progress, &self.glance, theme);
        self.vitals = plan.vitals;
        if let Some(row) = plan.vitals {
            vitals::draw(buffer, row, &self.glance.vitals, theme);
        }
        let boxes = self.draw_boxes(buffer, &plan, &canvas, &visible);
        for (slot, chart) in shown_charts.iter().enumerate() {
            self.draw_chart(buffer, boxes[slot], chart, slot, visible[slot], &canvas);
        }
        if charts.is_empty() {
            self.draw_without_charts(buffer, &plan, &canvas);
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
                let to = ((state.step as f64 / jump).ceil() * jump).max(whole.0 + span);
                (to - span, to)
            }
            Some(zoom) => (zoom.from, zoom.to),
        }
    }
}

/// All steps that a chart of this run spans. A branch begins at its checkpoint: it has no readings from before.
fn whole_range(state: &RunState) -> (f64, f64) {
    let base = state.base_step.min(state.step);
    let planned = state.head.as_ref().map(|head| head.max_steps);
    // A length of 0 is an unknown one.
    let planned = planned.map(|all| all.saturating_sub(base));
    let (from, to) = axis::step_range(state.step - base, planned);
    (from + base as f64, to + base as f64)
}

#[cfg(test)]
mod tests;
