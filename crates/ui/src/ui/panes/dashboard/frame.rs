//! A frame of the dashboard: boxes and titles, charts, and what stands in them.

use super::catalog::Chart;
use super::glance::TRAIN;
use super::plan::Plan;
use super::{Dashboard, SMOOTHING, SMOOTHING_WORDS, Shown, health, machine, status, strips};
use crate::base::human;
use crate::run::RunState;
use crate::run::state::Mark;
use crate::ui::layout::cut;
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::Lattice;
use crate::ui::widgets::axis::{Axis, Scale};
use crate::ui::widgets::frame;
use crate::ui::widgets::line_chart::{Line, LineChart, Look, StepAxis};
use crate::ui::widgets::text::{self, Word, word};
use crate::wire::Phase;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use unicode_width::UnicodeWidthStr;

/// Columns of a chart whose title says how its line is smoothed.
const ROOMY: u16 = 56;

/// What drawing a frame needs, so that its parts need few arguments.
pub(super) struct Canvas<'a> {
    pub state: &'a RunState,
    pub theme: &'a Theme,
    pub range: (f64, f64),
    pub marks: Vec<&'a Mark>,
    /// Charts of the run, drawn or not.
    pub n_charts: usize,
}

impl Dashboard {
    pub(super) fn draw_boxes(
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
                    format!("log, {} back", human::counted(self.log_back as u64, "line"))
                } else {
                    "log".into()
                },
            ),
        ];
        for (outline, title) in titles {
            if let Some(outline) = outline {
                frame::title(
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
            .filter(|_| visible.len() < canvas.n_charts)
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

    pub(super) fn draw_chart(
        &mut self,
        buffer: &mut Buffer,
        outline: Rect,
        chart: &Chart,
        slot: usize,
        index: usize,
        canvas: &Canvas,
    ) {
        let inner = frame::inside(outline);
        let state = canvas.state;
        let roomy = slot == 0 && outline.width >= ROOMY;
        let mut title = self.title(chart, (slot, index), roomy, canvas.theme);
        let wide = |title: &[Word]| text::width(title) + 2 > usize::from(outline.width);
        if roomy && wide(&title) {
            title = self.title(chart, (slot, index), false, canvas.theme);
        }
        if wide(&title) {
            title.retain(|word| word.meaning != Meaning::Border);
        }
        if wide(&title) {
            title.retain(|word| word.meaning != Meaning::Cursor);
        }
        // Its colour says so, too, and that other one is named.
        if wide(&title) {
            title.retain(|word| word.text != TRAIN);
        }
        shorten(&mut title, usize::from(outline.width), canvas.theme);
        frame::title(buffer, outline, &title, canvas.theme);
        // Only a picture that grows has to stand still.
        let held = self.held(index, outline, canvas.range);
        let held = held.filter(|_| state.running());
        let declared = state.metrics.iter().find(|metric| metric.id == chart.id);
        let band = declared.and_then(|metric| metric.band);
        let chart = LineChart {
            lines: self.lines(chart, state),
            marks: &canvas.marks,
            from: canvas.range.0,
            to: canvas.range.1,
            scale: if self.logarithmic.contains(&chart.id) {
                Scale::Log
            } else {
                Scale::Linear
            },
            from_zero: chart.begins_at_zero(),
            unit: &chart.unit,
            cursor: self.cursor,
            settled: (state.running() && state.phase == Some(Phase::Training))
                .then_some(state.step),
            held,
            steps: StepAxis::Shown,
            band,
        };
        let plot = chart.draw(buffer, inner, canvas.theme);
        self.shown.push(Shown {
            chart: index,
            outline,
            plot,
        });
    }

    /// The readings of a chart, and those of its validation.
    fn lines<'s>(&self, chart: &Chart, state: &'s RunState) -> Vec<Line<'s>> {
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
        let ids = [
            (Some(&chart.id), meaning, look),
            (chart.validation.as_ref(), Meaning::Validation, Look::Points),
        ];
        let line = |(id, meaning, look): (Option<&String>, Meaning, Look)| {
            let series = state.series.get(id?).filter(|series| !series.is_empty())?;
            Some(Line {
                series,
                meaning,
                look,
            })
        };
        ids.into_iter().filter_map(line).collect()
    }

    /// The value axis of the same chart in the same place over the same steps one frame ago.
    fn held(&self, chart: usize, outline: Rect, range: (f64, f64)) -> Option<Axis> {
        let same = |s: &&Shown| {
            s.chart == chart && s.outline == outline && (s.plot.from, s.plot.to) == range
        };
        self.before.iter().find(same)?.plot.axis
    }

    fn title(
        &self,
        chart: &Chart,
        (slot, index): (usize, usize),
        wide: bool,
        theme: &Theme,
    ) -> Vec<Word> {
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
        // The legend of the first chart counts for all; with a chart alone there is room for it.
        if (self.full || wide) && self.smoothing > 0 && chart.smooths() {
            let how = SMOOTHING_WORDS[self.smoothing];
            words.push(word(format!("{how} "), Meaning::Muted));
        }
        words
    }

    pub(super) fn draw_strips(&self, buffer: &mut Buffer, plan: &Plan, canvas: &Canvas) {
        let (state, theme) = (canvas.state, canvas.theme);
        if let Some(outline) = plan.health {
            match &state.finished {
                Some(finish) => strips::result(
                    buffer,
                    frame::inside(outline),
                    state,
                    finish,
                    &self.glance.diagnosis,
                    theme,
                ),
                None => health::health(
                    buffer,
                    frame::inside(outline),
                    &self.glance.diagnosis,
                    theme,
                ),
            }
        }
        if let Some(outline) = plan.hardware {
            let planned = self.planned.map(|(_, bytes)| bytes);
            machine::hardware(buffer, frame::inside(outline), state, planned, theme);
        }
        if let Some(outline) = plan.sample {
            strips::sample(buffer, frame::inside(outline), state, theme);
        }
        if let Some(outline) = plan.log {
            strips::log(
                buffer,
                frame::inside(outline),
                state,
                self.log_back,
                self.utc_offset,
                theme,
            );
        }
        if let Some(row) = plan.status {
            let about = (&self.glance, &*self.health_key, self.crashed.as_deref());
            status::status(buffer, row, state, about, theme);
        }
        // The last line of the log would be the error once more.
        if let Some(row) = plan
            .sample_line
            .filter(|_| strips::early_end(state).is_none())
        {
            strips::sample_line(buffer, row, state, theme);
        }
    }

    /// Where the charts would be: the checks before the first step, or that the filter matches nothing.
    pub(super) fn draw_without_charts(&self, buffer: &mut Buffer, plan: &Plan, canvas: &Canvas) {
        let Some(outline) = plan.charts.first() else {
            return;
        };
        if canvas.state.step == 0 {
            let title = match canvas.state.is_foreign() {
                true => " log ",
                false => " preflight ",
            };
            let title = [word(title, Meaning::Title)];
            frame::title(buffer, *outline, &title, canvas.theme);
            strips::checks(buffer, frame::inside(*outline), canvas.state, canvas.theme);
            return;
        }
        let sentence = format!("No chart has \u{201c}{}\u{201d} in its name.", self.filter);
        let words = [word(sentence, Meaning::Muted)];
        let inner = frame::inside(*outline);
        let width = inner.width.saturating_sub(2);
        text::draw(buffer, inner.x + 1, inner.y, width, &words, canvas.theme);
    }
}

/// Cuts the name of a chart, its second word, so that the readings behind it are whole: they are what changes.
pub(super) fn shorten(title: &mut [Word], width: usize, theme: &Theme) {
    /// Fewer columns name nothing.
    const LEAST: usize = 6;
    let over = (text::width(title) + 2).saturating_sub(width);
    let Some(name) = title.get_mut(1).filter(|_| over > 0) else {
        return;
    };
    let long = name.text.trim_end();
    let room = long.width().saturating_sub(over).max(LEAST);
    name.text = cut(long, room, theme.glyphs().ellipsis) + " ";
}

/// All that a very small terminal can hold.
pub(super) fn sentence(buffer: &mut Buffer, area: Rect, state: &RunState, theme: &Theme) {
    if let Some(finish) = strips::early_end(state) {
        let words = format!("{}: {}", state.word(), finish.message);
        text::paragraph(buffer, area, &words, Meaning::Bad, theme);
        return;
    }
    let loss = state
        .newest_loss()
        .map(|x| format!(", loss {}", human::number(x)))
        .unwrap_or_default();
    let head = state.head.as_ref().filter(|head| head.max_steps > 0);
    let steps = head.map_or(String::new(), |head| {
        format!(" of {}", human::grouped(head.max_steps))
    });
    let words = format!(
        "{}: step {}{steps}{loss}",
        state.word(),
        human::grouped(state.step)
    );
    text::paragraph(buffer, area, &words, Meaning::Text, theme);
}
