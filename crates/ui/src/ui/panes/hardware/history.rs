//! The charts of the hardware pane: the last minutes of a reading.

use crate::base::human;
use crate::hardware::sampler::id;
use crate::ui::machine_view::MachineView;
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::axis::Scale;
use crate::ui::widgets::frame;
use crate::ui::widgets::line_chart::{Line, LineChart, Look, StepAxis};
use crate::ui::widgets::text::{self, word};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use std::time::Duration;

/// Seconds shown at least and at most.
const SHORTEST: u64 = 60;
const LONGEST: u64 = 600;
/// Rows from which on there is one for the time.
const ROWS_FOR_TIME: u16 = 5;

/// A reading with a chart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Track {
    pub id: String,
    pub title: &'static str,
    unit: Unit,
    /// A second line in the same chart.
    also: Option<(&'static str, &'static str)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Percent,
    Bytes,
    Speed,
    Celsius,
    Watts,
}

fn track(id: impl Into<String>, title: &'static str, unit: Unit) -> Track {
    Track {
        id: id.into(),
        title,
        unit,
        also: None,
    }
}

/// The charts of a GPU, the most telling first.
pub fn of_gpu(index: u32) -> Vec<Track> {
    vec![
        track(id::gpu(index, id::GPU_UTIL), "use", Unit::Percent),
        track(id::gpu(index, id::GPU_MEMORY), "memory", Unit::Bytes),
        track(
            id::gpu(index, id::GPU_TEMPERATURE),
            "temperature",
            Unit::Celsius,
        ),
        track(id::gpu(index, id::GPU_POWER), "power", Unit::Watts),
    ]
}

/// The charts of the machine.
pub fn of_host() -> Vec<Track> {
    let both = |id, title, also| Track {
        also: Some(also),
        ..track(id, title, Unit::Speed)
    };
    vec![
        track(id::CPU, "CPU", Unit::Percent),
        track(id::RAM_USED, "memory", Unit::Bytes),
        both(id::DISK_WRITE, "disk: written", (id::DISK_READ, "read")),
        both(id::NET_IN, "network: in", (id::NET_OUT, "out")),
    ]
}

impl Unit {
    fn words(self, x: f64) -> String {
        match self {
            Unit::Percent => format!("{x:.0} %"),
            Unit::Bytes => human::bytes(x.max(0.0) as u64),
            Unit::Speed => format!("{}/s", human::bytes(x.max(0.0) as u64)),
            Unit::Celsius => format!("{x:.0} °C"),
            Unit::Watts => format!("{x:.0} W"),
        }
    }
}

/// Draws a reading's chart into its box; the borders are there already.
pub fn draw(buffer: &mut Buffer, outline: Rect, track: &Track, view: &MachineView, theme: &Theme) {
    let mut title = vec![word(format!(" {} ", track.title), Meaning::Title)];
    let mut say = |id: &str, meaning| {
        if let Some(x) = view.latest(id) {
            title.push(word(format!("{} ", track.unit.words(x)), meaning));
        }
    };
    say(&track.id, Meaning::Series);
    if let Some((id, name)) = track.also {
        title.push(word(format!("{name} "), Meaning::Title));
        if let Some(x) = view.latest(id) {
            title.push(word(
                format!("{} ", track.unit.words(x)),
                Meaning::Validation,
            ));
        }
    }
    frame::title(buffer, outline, &title, theme);
    let inner = frame::inside(outline);
    let line = |id: &str, meaning| {
        let series = view.history(id).filter(|series| !series.is_empty())?;
        Some(Line {
            series,
            meaning,
            look: Look::Line,
        })
    };
    let second = track.also.and_then(|(id, _)| line(id, Meaning::Validation));
    let lines: Vec<Line> = second
        .into_iter()
        .chain(line(&track.id, Meaning::Series))
        .collect();
    if lines.is_empty() {
        let words = [word("No data yet.", Meaning::Muted)];
        text::draw(
            buffer,
            inner.x + 1,
            inner.y,
            inner.width.saturating_sub(2),
            &words,
            theme,
        );
        return;
    }
    chart(buffer, inner, track, lines, view, theme);
}

fn chart(
    buffer: &mut Buffer,
    inner: Rect,
    track: &Track,
    lines: Vec<Line>,
    view: &MachineView,
    theme: &Theme,
) {
    let timed = inner.height >= ROWS_FOR_TIME;
    let area = Rect {
        height: inner.height - u16::from(timed),
        ..inner
    };
    let shown = view.seconds().clamp(SHORTEST, LONGEST);
    let to = view.seconds().max(SHORTEST);
    let plot = LineChart {
        lines,
        marks: &[],
        from: (to - shown) as f64,
        to: to as f64,
        scale: Scale::Linear,
        from_zero: true,
        unit: match track.unit {
            Unit::Bytes | Unit::Speed => "bytes",
            _ => "",
        },
        cursor: None,
        settled: None,
        held: None,
        steps: StepAxis::Hidden,
        band: None,
    }
    .draw(buffer, area, theme);
    if !timed {
        return;
    }
    let y = inner.bottom() - 1;
    let ago = human::duration(Duration::from_secs(shown));
    let left = [word(format!("{ago} ago"), Meaning::Muted)];
    text::draw(buffer, plot.area.x, y, plot.area.width, &left, theme);
    // Until a minute is full, the newest reading is not at the right edge.
    if view.seconds() >= SHORTEST {
        let now = [word("now", Meaning::Muted)];
        let room = plot.area.width.saturating_sub(12);
        text::draw_right(buffer, plot.area.right(), y, room, &now, theme);
    }
}
