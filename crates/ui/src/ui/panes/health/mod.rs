//! The health pane: what probes saw inside the model. A list of metrics with their newest value, whether it lies within its
//! band, and a small curve; beside it the selected one: by block over time with the profile of the newest look, or a chart;
//! and what it is, what is normal and what to do.

mod list;
mod map;

use super::dashboard::catalog::begins_at_zero;
use super::{Pane, PaneContext, PaneEntry, save_chart};
use crate::base::human;
use crate::run::RunState;
use crate::ui::action::{Action, Context};
use crate::ui::hit::Target;
use crate::ui::layout::{cut, scroll_to};
use crate::ui::request::{Hints, Request};
use crate::ui::store::Store;
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::finding;
use crate::ui::widgets::axis::Scale;
use crate::ui::widgets::frame;
use crate::ui::widgets::line_chart::{Line, LineChart, Look, StepAxis};
use crate::ui::widgets::text::{self, Word, word};
use crate::wire::{Band, MetricInfo};
pub(super) use list::{Judged, Row, is_percent, is_shown, number, rows};
use list::end_of;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

pub static ENTRY: PaneEntry = PaneEntry {
    id: "health",
    title: "Health",
    doc: "Go to Health: probe readings of each block, normal ranges, what to do.",
    contexts: &[Context::List, Context::Chart, Context::Global],
    everywhere: &[],
    make: || Box::new(HealthPane::default()),
};

/// The pane's cursors.
#[derive(Debug, Default)]
pub struct HealthPane {
    selected: usize,
    first: usize,
    page: usize,
    /// The words of the selected metric in place of its picture.
    words: bool,
    /// The place of the selected metric's title and picture; empty without one.
    picture: Rect,
}

impl Pane for HealthPane {
    fn hints(&self, store: &Store) -> Hints {
        if store.held.as_ref().is_none_or(|held| rows(&held.state).is_empty()) {
            return Hints::of_pane(Vec::new());
        }
        let other = if self.words { "picture" } else { "what is normal" };
        let mut hints = vec![
            (Action::Accept, other),
            (Action::Down, "next"),
        ];
        if !self.picture.is_empty() {
            hints.push((Action::SaveChart, Action::SaveChart.info().title));
        }
        Hints::of_pane(hints)
    }

    /// Before anything was chosen, what is outside its band is.
    fn enter(&mut self, context: &mut PaneContext) -> Vec<Request> {
        if let (0, Some(held)) = (self.selected, &context.store.held) {
            let rows = rows(&held.state);
            let outside = rows.iter().position(|row| row.judged == Judged::Outside);
            self.selected = outside.unwrap_or(0);
        }
        Vec::new()
    }

    fn act(&mut self, action: Action, context: &mut PaneContext) -> Vec<Request> {
        let held = context.store.held.as_ref();
        let last = held.map_or(0, |held| rows(&held.state).len().saturating_sub(1));
        let page = self.page.max(1);
        match action {
            Action::Accept => self.words = !self.words,
            Action::Cancel => self.words = false,
            Action::SaveChart => {
                let name = held.map_or("llmtui", |held| held.name());
                let rows = held.map_or_else(Vec::new, |held| rows(&held.state));
                let metric = rows.get(self.selected).map_or("health", |row| &row.info.id);
                return save_chart(format!("{name}-{metric}"), self.picture);
            }
            _ => {}
        }
        self.selected = match action {
            Action::Up => self.selected.saturating_sub(1),
            Action::Down => self.selected + 1,
            Action::PageUp => self.selected.saturating_sub(page),
            Action::PageDown => self.selected + page,
            Action::Top => 0,
            Action::Bottom => last,
            _ => self.selected,
        }
        .min(last);
        Vec::new()
    }

    fn click(&mut self, row: usize, _context: &mut PaneContext) -> Vec<Request> {
        self.selected = row;
        Vec::new()
    }

    fn draw(&mut self, frame: &mut Frame, area: Rect, context: &mut PaneContext) {
        self.picture = Rect::default();
        let theme = context.theme;
        let inner = frame::with_padding(area);
        let note = |frame: &mut Frame, words: &str| {
            text::paragraph(frame.buffer_mut(), inner, words, Meaning::Muted, theme);
        };
        let Some(held) = context.store.held.as_ref() else {
            return note(frame, "No run is open: choose one on Home.");
        };
        let rows = rows(&held.state);
        if rows.is_empty() {
            let unborn = held.state.step == 0 && held.state.finished.is_some();
            let complaints = finding::failures_and_warnings(&held.state.checks, inner.width, theme);
            if unborn && !complaints.is_empty() {
                for (words, y) in complaints.iter().zip(inner.y..inner.bottom()) {
                    text::draw(frame.buffer_mut(), inner.x, y, inner.width, words, theme);
                }
                return;
            }
            let words = if unborn {
                "This run ended before its first step, so nothing was measured. The Run pane shows its error."
            } else if held.state.is_foreign() {
                "Another program trains this run: its log has no probe readings."
            } else if held.state.metrics.is_empty() || held.live() {
                "Probes report from the first logged step. If none appear, health.enabled is false in this run."
            } else {
                "This run's log has no probe readings: it was trained with health.enabled=false, or by an older version."
            };
            return note(frame, words);
        }
        self.selected = self.selected.min(rows.len() - 1);
        self.page = usize::from(inner.height);
        self.first = scroll_to(self.selected, self.first, self.page);
        let wide = list_width(inner.width);
        if self.words && inner.width < NARROW {
            let row = &rows[self.selected];
            detail(frame.buffer_mut(), inner, &held.state, row, true, theme);
            return;
        }
        let left = Rect {
            width: wide,
            ..inner
        };
        for (y, (at, row)) in
            (left.y..left.bottom()).zip(rows.iter().enumerate().skip(self.first))
        {
            let line = Rect {
                y,
                height: 1,
                ..left
            };
            context.hits.add(line, Target::Row(at));
            list::draw(frame.buffer_mut(), line, row, at == self.selected, theme);
        }
        let right = Rect {
            x: left.right() + 2,
            width: inner.width.saturating_sub(wide + 2),
            ..inner
        };
        let row = &rows[self.selected];
        self.picture = detail(frame.buffer_mut(), right, &held.state, row, self.words, theme);
    }
}

/// Rows of the smallest chart.
const LEAST_CHART: u16 = 6;
/// Columns below which the list has no words beside it, but gives way to them.
const NARROW: u16 = 51;

/// Columns of the list.
fn list_width(width: u16) -> u16 {
    match width {
        0..NARROW => width,
        NARROW..=89 => 34,
        90..=119 => 50,
        _ => 58,
    }
}

/// The selected metric: title, picture, words. Returns the place of title and picture, empty where there are only words.
fn detail(
    buffer: &mut Buffer,
    area: Rect,
    state: &RunState,
    row: &Row,
    only_words: bool,
    theme: &Theme,
) -> Rect {
    if area.width < 8 || area.height < 3 {
        return Rect::default();
    }
    let info = row.info;
    text::draw(buffer, area.x, area.y, area.width, &[word(&*info.title, Meaning::Title)], theme);
    let dot = word(format!(" {} ", theme.glyphs().separator), Meaning::Muted);
    let mut facts = text::flow(facts(info, row), &dot, area.width.into());
    facts.truncate(usize::from(area.height) - 2);
    let below = Rect {
        y: area.y + 1,
        height: area.height - 1,
        ..area
    };
    draw_lines(buffer, below, &facts, theme);
    let taken = facts.len() as u16 + 2;
    let body = Rect {
        y: area.y + taken,
        height: area.height.saturating_sub(taken),
        ..area
    };
    let words = words(info, usize::from(body.width), theme);
    if only_words {
        draw_words(buffer, body, words, theme);
        return Rect::default();
    }
    // The picture takes what it needs, the words what is left; a chart leaves half, and more to words that need it.
    let beside_words = body.height.saturating_sub(words.len() as u16 + 1);
    let needed = match state.layers.get(&info.id) {
        Some(map) => (map.n_layer() as u16 + 2).min(body.height),
        None => (body.height / 2).max(8).min(beside_words.max(LEAST_CHART)).min(body.height),
    };
    let picture = Rect {
        height: needed,
        ..body
    };
    match state.layers.get(&info.id) {
        Some(map) => draw_lines(buffer, picture, &map::lines(map, info, picture, theme), theme),
        None => chart(buffer, picture, state, info, theme),
    }
    let rest = Rect {
        y: picture.bottom() + 1,
        height: body.bottom().saturating_sub(picture.bottom() + 1),
        ..body
    };
    if rest.height >= 3 {
        draw_words(buffer, rest, words, theme);
    }
    Rect {
        height: picture.bottom() - area.y,
        ..area
    }
}

fn draw_lines(buffer: &mut Buffer, area: Rect, lines: &[Vec<Word>], theme: &Theme) {
    for (y, words) in (area.y..area.bottom()).zip(lines) {
        text::draw(buffer, area.x, y, area.width, words, theme);
    }
}

/// Lines of text; where not all have room, the last one says so, and no heading stands without its text.
fn draw_words(buffer: &mut Buffer, area: Rect, mut lines: Vec<Vec<Word>>, theme: &Theme) {
    let room = usize::from(area.height);
    if lines.len() > room {
        lines.truncate(room);
        if lines.last().is_some_and(|line| line.iter().all(|w| w.meaning == Meaning::Muted)) {
            lines.pop();
        }
        if let Some(last) = lines.last_mut().and_then(|line| line.last_mut()) {
            let dots = theme.glyphs().ellipsis;
            last.text = cut(&format!("{}{dots}", last.text.trim_end()), area.width.into(), dots);
        }
    }
    draw_lines(buffer, area, &lines, theme);
}

/// The parts of `step 1,240 · band up to 0.3 (rule of thumb) · rows_16`.
fn facts(info: &MetricInfo, row: &Row) -> Vec<Vec<Word>> {
    let mut parts = Vec::new();
    if let Some(step) = row.step {
        parts.push(format!("step {}", human::grouped(step)));
    }
    if let Judged::Early(from) = row.judged {
        parts.push(format!("not judged before step {}", human::grouped(from)));
    }
    if let Some(band) = &info.band {
        parts.push(format!("band {} ({})", range(info, band), band.origin.words()));
        // Of such a metric a rule decides that knows more.
        if row.judged == Judged::Free && !band.holds(row.value) {
            parts.push("outside it, and no warning".into());
        }
    }
    if !info.estimator.is_empty() {
        parts.push(info.estimator.clone());
    }
    if !info.unit.is_empty() {
        parts.push(info.unit.clone());
    }
    let parts = parts.into_iter();
    parts.map(|part| vec![word(part, Meaning::Muted)]).collect()
}

/// `0.05 to 0.97`, `up to 0.3`
fn range(info: &MetricInfo, band: &Band) -> String {
    let end = |end: f64| end_of(info, end);
    match (band.low.map(end), band.high.map(end)) {
        (Some(low), Some(high)) => format!("{low} to {high}"),
        (None, Some(high)) => format!("up to {high}"),
        (Some(low), None) => format!("from {low}"),
        (None, None) => "any".into(),
    }
}

/// What it is, what is normal and why, what to do.
fn words(info: &MetricInfo, width: usize, theme: &Theme) -> Vec<Vec<Word>> {
    const ROWS: usize = 12;
    let mut lines = Vec::new();
    for (title, body, meaning) in [
        ("what it is", &info.source, Meaning::Text),
        ("what is normal", &info.normal, Meaning::Text),
        ("otherwise", &info.advice, Meaning::Accent),
    ] {
        if body.is_empty() {
            continue;
        }
        lines.push(vec![word(title, Meaning::Muted)]);
        let wrapped = text::wrap(body, width.saturating_sub(2), ROWS, theme.ascii);
        lines.extend(wrapped.into_iter().map(|line| vec![word(format!("  {line}"), meaning)]));
    }
    lines
}

fn chart(buffer: &mut Buffer, area: Rect, state: &RunState, info: &MetricInfo, theme: &Theme) {
    let Some(series) = state.series.get(&info.id) else {
        return;
    };
    let Some((first, last)) = series.steps() else {
        return;
    };
    // A step is clipped or not: between 0 and 1 only the mean is meaningful.
    let look = match info.id == crate::metrics::id::CLIPPED {
        true => Look::Thin,
        false => Look::Line,
    };
    let chart = LineChart {
        lines: vec![Line {
            series,
            meaning: Meaning::Series,
            look,
        }],
        marks: &[],
        from: first as f64,
        to: last as f64 + 1.0,
        scale: Scale::Linear,
        from_zero: begins_at_zero(&info.id, &info.unit),
        unit: &info.unit,
        cursor: None,
        settled: None,
        held: None,
        steps: StepAxis::Shown, band: info.band,
    };
    chart.draw(buffer, area, theme);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::UnixMillis;
    use crate::ui::panes::bench::TestContext;
    use crate::wire::{ChartPlace, Envelope, Event, Num, Origin};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn declared() -> Event {
        let info = |id: &str, per_layer: bool, high: f64| MetricInfo {
            id: id.into(),
            title: format!("Title of {id}"),
            source: "how it is defined".into(),
            place: ChartPlace::Health,
            per_layer,
            band: Some(Band {
                low: None,
                high: Some(high),
                origin: Origin::RuleOfThumb,
            }),
            normal: "so much is normal".into(),
            advice: "do this".into(),
            ..MetricInfo::default()
        };
        Event::MetricsDeclared {
            metrics: vec![
                info("dead_units/layer", true, 0.5),
                info("noise_scale", false, 1e6),
                info("never/layer", true, 1.0),
            ],
        }
    }

    /// Block 2 of four dies.
    fn state() -> RunState {
        let mut events = vec![declared()];
        for step in (10..=400).step_by(10) {
            events.push(Event::Stepped {
                step,
                tokens: step * 100,
                values: [("noise_scale".into(), Num(step as f64))].into(),
            });
            let dead = step as f64 / 400.0;
            let values = [0.0, 0.1, dead, 0.05].map(Num).to_vec();
            events.push(Event::Probed {
                step,
                layers: [("dead_units/layer".into(), values)].into(),
            });
        }
        let envelope = |(seq, event)| Envelope {
            v: 1,
            seq: seq as u64 + 1,
            t: UnixMillis(1),
            event,
        };
        let log: Vec<Envelope> = events.into_iter().enumerate().map(envelope).collect();
        RunState::from_events(&log)
    }

    fn drawn(state: &RunState, selected: usize, only_words: bool) -> String {
        let mut terminal = Terminal::new(TestBackend::new(44, 20)).unwrap();
        let theme = Theme::ansi();
        terminal
            .draw(|frame| {
                let rows = rows(state);
                let area = frame.area();
                detail(frame.buffer_mut(), area, state, &rows[selected], only_words, &theme);
            })
            .unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn a_block_outside_its_band_stands_out_and_what_was_never_measured_has_no_row() {
        let state = state();
        let rows = rows(&state);
        let ids: Vec<&str> = rows.iter().map(|row| row.info.id.as_str()).collect();
        assert_eq!(ids, ["dead_units/layer", "noise_scale"]);
        assert_eq!((rows[0].judged, rows[1].judged), (Judged::Outside, Judged::Inside));
        assert_eq!((rows[0].value, rows[0].step), (1.0, Some(400)));
        let picture = drawn(&state, 0, false);
        assert!(picture.contains("band up to 0.5 (rule of thumb)"), "{picture}");
        let block = picture.lines().find(|line| line.contains(" 2 ")).unwrap();
        assert!(block.contains("▁") && block.contains("█") && block.contains('1'), "{picture}");
        assert!(picture.contains("what is normal") && picture.contains("do this"), "{picture}");
    }

    #[test]
    fn a_value_outside_its_band_is_not_judged_early_and_never_called_good() {
        let mut state = state();
        state.step = 100;
        let rows = rows(&state);
        assert_eq!((rows[0].judged, rows[1].judged), (Judged::Early(101), Judged::Inside));
        let picture = drawn(&state, 0, false);
        assert!(picture.contains("not judged before step 101"), "{picture}");
        let mut buffer = Buffer::empty(Rect::new(0, 0, 50, 1));
        list::draw(&mut buffer, Rect::new(0, 0, 50, 1), &rows[0], false, &Theme::ansi());
        assert_eq!(buffer[(2, 0)].symbol(), "·");
    }

    /// "100 %, band up to 30 % (rule of thu…", "Below 5 % of the steps", and no verdict; the explanation was cut.
    #[test]
    fn clipped_steps_have_one_band_a_verdict_and_a_whole_explanation() {
        let info = crate::metrics::find(crate::metrics::id::CLIPPED).map(crate::metrics::Metric::info);
        let mut state = RunState::new();
        state.metrics = vec![info.unwrap()];
        state.step = 2_000;
        let series = state.series.entry(crate::metrics::id::CLIPPED.into()).or_default();
        (1..=300).for_each(|step| series.push(step, 1.0));
        for (only_words, parts) in [
            (false, ["band up to 30 % (rule of thumb)", "outside it, and no warning"]),
            (true, ["Up to 30 % of the newest steps", "raise train.clip_norm."]),
        ] {
            let picture = drawn(&state, 0, only_words);
            let words = picture.replace(['"', '\n'], " ");
            let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
            for part in parts {
                assert!(words.contains(part), "{part}: {picture}");
            }
            assert!(!words.contains(" 5 %"), "{picture}");
        }
    }

    /// An advice that ends in the middle reads as another one.
    #[test]
    fn words_without_room_say_that_there_are_more() {
        let line = |text: &str, meaning| vec![word(text, meaning)];
        let lines = || {
            vec![
                line("otherwise", Meaning::Muted),
                line("  lower the rate or", Meaning::Accent),
                line("  clip the gradient", Meaning::Accent),
                line("see also", Meaning::Muted),
                line("  more", Meaning::Accent),
            ]
        };
        let shown = |height: u16| {
            let area = Rect::new(0, 0, 20, height);
            let mut buffer = Buffer::empty(area);
            draw_words(&mut buffer, area, lines(), &Theme::ansi());
            let row = |y| (0..20).map(|x| buffer[(x, y)].symbol()).collect::<String>();
            (0..height).map(row).map(|row| row.trim_end().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(shown(2), ["otherwise", "  lower the rate or…"]);
        assert_eq!(shown(4)[2..], ["  clip the gradient…", ""]);
        assert_eq!(shown(5)[2..], ["  clip the gradient", "see also", "  more"]);
    }

    #[test]
    fn the_words_are_one_key_away_and_scalars_have_a_chart() {
        let state = state();
        let words = drawn(&state, 0, true);
        assert!(words.contains("how it is defined") && !words.contains('█'), "{words}");
        let chart = drawn(&state, 1, false);
        assert!(chart.contains("Title of noise_scale") && chart.contains("400"), "{chart}");
        let mut pane = HealthPane::default();
        let mut around = TestContext::new();
        pane.act(Action::Accept, &mut around.context());
        assert!(pane.words);
    }

    #[test]
    fn a_narrow_window_has_the_values_and_the_words_in_their_place() {
        use crate::ui::msg::Slot;
        use crate::ui::store::OpenRun;
        let (mut pane, mut around) = (HealthPane::default(), TestContext::new());
        let mut held = OpenRun::opening(Slot(1), "x".into(), Default::default());
        held.state = state();
        around.store.held = Some(held);
        let screen = |pane: &mut HealthPane, around: &mut TestContext| {
            let mut terminal = Terminal::new(TestBackend::new(40, 10)).unwrap();
            terminal.draw(|f| pane.draw(f, f.area(), &mut around.context())).unwrap();
            terminal.backend().to_string()
        };
        let list = screen(&mut pane, &mut around);
        assert!(list.contains("400.0"), "{list}");
        pane.act(Action::Accept, &mut around.context());
        let words = screen(&mut pane, &mut around);
        assert!(words.contains("so much is normal"), "{words}");
    }
}
