//! The comparison on the screen: the chart above, each curve with its run's letter at its end, the table below.

use super::ranking::Ranking;
use super::{ComparePane, SMOOTHING};
use crate::base::human::{self, grouped};
use crate::base::text::one_line;
use crate::run::compare::{Alignment, Figure, ends, even};
use crate::run::no_effect;
use crate::run::series::Series;
use crate::spec::shown;
use crate::ui::keymap::Keymap;
use crate::ui::layout::{cut, fill, split_top};
use crate::ui::panes::PaneContext;
use crate::ui::panes::dashboard::catalog::begins_at_zero;
use crate::ui::store::short_run;
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::axis::{Axis, Scale};
use crate::ui::widgets::frame;
use crate::ui::widgets::line_chart::{Line, LineChart, Look, Plot, StepAxis};
use crate::ui::widgets::text::{self, Word, letter, word};
use crate::wire::id;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use std::path::Path;

/// Of the runs, in their order; each has its letter besides.
const COLOURS: [Meaning; 6] = [
    Meaning::Train,
    Meaning::Validation,
    Meaning::Series,
    Meaning::Mark,
    Meaning::Good,
    Meaning::Bad,
];

/// Letters on a line besides that at its end, where there are no colours.
const ON_THE_WAY: u32 = 3;

/// A cell of the table: its words, and whether it is the best of its row.
type Cell = (String, bool);

impl ComparePane {
    pub(super) fn draw_all(&mut self, buffer: &mut Buffer, area: Rect, context: &PaneContext) {
        let theme = context.theme;
        let area = frame::with_padding(area);
        if let Some(words) = self.note(context.keymap) {
            text::paragraph(buffer, area, &words, Meaning::Muted, theme);
            return;
        }
        let (head, area) = split_top(area, u16::from(!self.faults.is_empty()));
        let words = [word(self.unreadable(), Meaning::Warn)];
        text::draw(buffer, head.x, head.y, head.width, &words, theme);
        let (top, rest) = split_top(area, (area.height / 2).max(6));
        self.chart = top;
        self.draw_chart(buffer, top, theme);
        match &self.ranking {
            Some(ranking) if !self.in_columns => {
                let (title, lines) = self.ranked(ranking, usize::from(rest.width), theme);
                self.draw_ranking(buffer, rest, (title, &lines), theme);
            }
            _ => self.draw_table(buffer, rest, theme),
        }
    }

    /// The ranking's title and lines, with the letters of the curves above.
    fn ranked(
        &self,
        ranking: &Ranking,
        width: usize,
        theme: &Theme,
    ) -> (Vec<Word>, Vec<Vec<Word>>) {
        let curve = |path: &Path| {
            let at = self.read_paths.iter().position(|known| known == path)?;
            Some((letter(at), COLOURS[at]))
        };
        (ranking.title(), ranking.lines(width, theme.ascii, curve))
    }

    fn draw_ranking(
        &mut self,
        buffer: &mut Buffer,
        area: Rect,
        (mut title, lines): (Vec<Word>, &[Vec<Word>]),
        theme: &Theme,
    ) {
        let (head, body) = split_top(area, 1);
        let more = self.fit(lines.len(), body.height, theme);
        if !more.is_empty() {
            title.push(word(format!("  {more}"), Meaning::Muted));
        }
        text::draw(buffer, head.x, head.y, head.width, &title, theme);
        for (y, line) in (body.y..body.bottom()).zip(lines.iter().skip(self.scroll)) {
            text::draw(buffer, body.x, y, body.width, line, theme);
        }
    }

    /// Scrolls no further than so many lines go, and says how many of them are below.
    fn fit(&mut self, lines: usize, height: u16, theme: &Theme) -> String {
        self.page = usize::from(height);
        self.most = lines.saturating_sub(self.page);
        self.scroll = self.scroll.min(self.most);
        match self.most - self.scroll {
            0 => String::new(),
            below => format!("{} {below} more", theme.glyphs().down),
        }
    }

    fn note(&self, keymap: &Keymap) -> Option<String> {
        if self.tracks.is_empty() && !self.faults.is_empty() {
            return Some(self.unreadable());
        }
        if self.runs.is_empty() {
            return Some(keymap.fill(
                "Nothing to compare yet: on Home, mark runs with {mark-run} and press {compare-runs}; or press {pick-run} \
                 here to add one. Logs of other programs can be compared too: open one with llmtui watch, then press {pick-run}.",
            ));
        }
        self.tracks.is_empty().then(|| "reading the runs".into())
    }

    /// The runs that could not be read, in words.
    fn unreadable(&self) -> String {
        one_line(&format!("left out: {}", self.faults.join("; ")))
    }

    fn draw_chart(&self, buffer: &mut Buffer, area: Rect, theme: &Theme) {
        let (head, body) = split_top(area, 1);
        let Some(figure) = self.figures.get(self.metric) else {
            let words = "None of these runs has logged a value yet.";
            text::paragraph(buffer, area, words, Meaning::Muted, theme);
            return;
        };
        let words = self.chart_title(figure);
        text::draw(buffer, head.x, head.y, head.width, &words, theme);
        let look = match SMOOTHING[self.smoothing] {
            0.0 => Look::Line,
            share => Look::Smoothed(share),
        };
        let drawn: Vec<(usize, &Series)> = self
            .curves
            .iter()
            .enumerate()
            .filter_map(|(at, curve)| Some((at, curve.as_ref()?)))
            .collect();
        let sparse = |series: &Series| series.len() <= 32;
        let lines = drawn.iter().map(|(at, series)| Line {
            series,
            meaning: COLOURS[*at],
            look: if sparse(series) { Look::Joined } else { look },
        });
        let ends = drawn.iter().filter_map(|(_, series)| series.steps());
        let end = ends.map(|(_, last)| last).max().unwrap_or(1).max(1);
        let chart = LineChart {
            lines: lines.collect(),
            marks: &[],
            from: 0.0,
            to: end as f64,
            scale: match self.logarithmic {
                true => Scale::Log,
                false => Scale::Linear,
            },
            from_zero: begins_at_zero(&figure.id, &figure.unit),
            unit: &figure.unit,
            cursor: None,
            settled: None,
            held: None,
            steps: match self.by {
                Alignment::Time => StepAxis::Millis,
                Alignment::Step | Alignment::Tokens => StepAxis::Shown,
            },
            band: None,
        };
        let plot = chart.draw(buffer, body, theme);
        let Some(axis) = plot.axis else {
            return;
        };
        draw_letters(buffer, &plot, axis, &drawn, theme);
    }

    /// The metric, how it is drawn, and the runs with their letters.
    fn chart_title(&self, figure: &Figure) -> Vec<Word> {
        let scale = if self.logarithmic { ", log" } else { "" };
        let smoothing = ["", ", EMA 0.9", ", EMA 0.98"][self.smoothing];
        let mut words = vec![
            word(figure.title.clone(), Meaning::Title),
            word(format!(" by {}{scale}", self.by.word()), Meaning::Muted),
            word(smoothing, Meaning::Muted),
        ];
        if let Some(apart) = figure.apart {
            words.push(word(format!(", not comparable: {}", apart.words()), Meaning::Warn));
        }
        for (at, track) in self.tracks.iter().enumerate() {
            words.push(word(format!("  {} ", letter(at)), COLOURS[at]));
            words.push(word(short_run(&track.name), Meaning::Text));
        }
        words
    }

    fn draw_table(&mut self, buffer: &mut Buffer, area: Rect, theme: &Theme) {
        let n = self.tracks.len();
        let width = usize::from(area.width);
        let name = (width / 3).clamp(8, 34);
        let cell = ((width.saturating_sub(name)) / n.max(1)).clamp(6, 26);
        let (head, body) = split_top(area, 1);
        let rows = self.rows();
        let corner = self.fit(rows.len(), body.height, theme);
        let mut titles = vec![word(fill(&corner, name, ""), Meaning::Muted)];
        for (at, track) in self.tracks.iter().enumerate() {
            let run = tail(short_run(&track.name), cell.saturating_sub(4));
            let title = format!("{} {run}", letter(at));
            titles.push(word(format!("{title:>cell$}"), COLOURS[at]));
        }
        text::draw(buffer, head.x, head.y, head.width, &titles, theme);
        for (y, (title, cells)) in (body.y..body.bottom()).zip(rows.iter().skip(self.scroll)) {
            let group = cells.is_empty();
            let meaning = if group {
                Meaning::Title
            } else {
                Meaning::Muted
            };
            let mut words: Vec<Word> = vec![word(
                match group {
                    true => title.clone(),
                    false => fill(&cut(title, name - 1, theme.glyphs().ellipsis), name, ""),
                },
                meaning,
            )];
            for (value, best) in cells {
                let value = cut(value, cell - 1, theme.glyphs().ellipsis);
                let meaning = if *best { Meaning::Good } else { Meaning::Text };
                let star = if *best { "*" } else { "" };
                words.push(word(
                    format!("{:>cell$}", format!("{star}{value}")),
                    meaning,
                ));
            }
            text::draw(buffer, body.x, y, body.width, &words, theme);
        }
    }

    /// Every row of the table; one without cells is the title of a group.
    fn rows(&self) -> Vec<(String, Vec<Cell>)> {
        let plain = |words: String| (words, false);
        let of_runs = |name: &str, cell: &dyn Fn(&crate::run::compare::Track) -> String| {
            let cells = self.tracks.iter().map(|track| plain(cell(track)));
            (name.to_string(), cells.collect())
        };
        let mut rows: Vec<(String, Vec<Cell>)> = vec![
            of_runs("state", &|track| track.state.word().into()),
            of_runs("steps", &|track| grouped(track.state.step)),
            of_runs("tokens", &|track| human::short(track.state.tokens as f64)),
            of_runs("time", &|track| track.time()),
            of_runs("parameters", &|track| {
                let head = track.state.head.as_ref();
                human::short(head.map_or(0, |head| head.n_params) as f64)
            }),
        ];
        let title = match self.settings.first() {
            None => "settings: no difference",
            Some(first) if first.changes_results() => "settings that differ",
            Some(_) => "settings that differ: none that changes results",
        };
        rows.push((title.into(), Vec::new()));
        let mut titled = false;
        for setting in &self.settings {
            // They are the last ones.
            if !setting.changes_results() && !std::mem::replace(&mut titled, true) {
                rows.push((no_effect::TITLE.into(), Vec::new()));
            }
            let value = |value: &Option<serde_json::Value>| {
                plain(value.as_ref().map_or("-".into(), |v| one_line(&shown(v))))
            };
            rows.push((
                setting.path.clone(),
                setting.values.iter().map(value).collect(),
            ));
        }
        let mut common: Vec<(String, Vec<Cell>)> = Vec::new();
        for figure in &self.figures {
            let Some((step, values)) = figure.at_last_common_step(&self.tracks) else {
                continue;
            };
            let winner = figure.winner(&values).filter(|_| starred(figure));
            let cell = |(at, x): (usize, &Option<f64>)| {
                let value = x.map_or("-".into(), |x| human::reading(x, &figure.unit));
                (value, winner == Some(at))
            };
            let title = format!("@{} {}", grouped(step), figure.id);
            common.push((title, values.iter().enumerate().map(cell).collect()));
        }
        let mut latest: Vec<(String, Vec<Cell>)> = Vec::new();
        for figure in &self.figures {
            let winner = figure.leader(&self.tracks).filter(|_| starred(figure));
            let steps = ends(&self.tracks, &figure.id);
            let even = even(&steps);
            let cell = |(at, x): (usize, &Option<f64>)| {
                let value = x.map_or("-".into(), |x| human::reading(x, &figure.unit));
                let step = steps[at].filter(|_| !even && x.is_some());
                let step = step.map_or(String::new(), |step| format!(" @{}", grouped(step)));
                (value + &step, winner == Some(at))
            };
            latest.push((
                figure.id.clone(),
                figure.last.iter().enumerate().map(cell).collect(),
            ));
        }
        // What compares is above what only says how far each came.
        for (title, group) in [("at the last common step", common), ("latest value", latest)] {
            if !group.is_empty() {
                rows.push((title.to_string() + legend(&group), Vec::new()));
                rows.extend(group);
            }
        }
        rows
    }
}

/// What the star means, where one stands.
fn legend(rows: &[(String, Vec<Cell>)]) -> &'static str {
    let starred = rows.iter().flat_map(|(_, cells)| cells).any(|(_, best)| *best);
    if starred { ", * best" } else { "" }
}

/// Whether a reading says how good a model is: a speed is that of its machine.
fn starred(figure: &Figure) -> bool {
    figure.id != id::TOK_PER_SEC
}

/// A letter at the end of each curve, one row up where another stands there already.
fn draw_letters(
    buffer: &mut Buffer,
    plot: &Plot,
    axis: Axis,
    drawn: &[(usize, &Series)],
    theme: &Theme,
) {
    let mut taken: Vec<(u16, u16)> = Vec::new();
    let rows = f64::from(plot.area.height.saturating_sub(1));
    let mut put = |at: usize, step: u64, value: f64| {
        let Some(x) = plot.column_of(step).filter(|_| value.is_finite()) else {
            return;
        };
        let down = (1.0 - axis.place(value).clamp(0.0, 1.0)) * rows;
        let mut y = plot.area.y + down.round() as u16;
        while taken.iter().any(|(tx, ty)| *ty == y && tx.abs_diff(x) < 2) && y > plot.area.y {
            y -= 1;
        }
        taken.push((x, y));
        buffer.set_stringn(x, y, letter(at), 1, theme.style(COLOURS[at]));
    };
    for (at, series) in drawn {
        if let Some(last) = series.last() {
            put(*at, last.step, last.value);
        }
    }
    if !theme.no_color {
        return;
    }
    // Without colours lines that cross are told apart by letters on their way, each at places of its own.
    let n = drawn.len() as f64;
    for (at, series) in drawn {
        let Some((first, last)) = series.steps() else {
            continue;
        };
        for part in 0..ON_THE_WAY {
            let share = (f64::from(part) + (*at as f64 + 0.5) / n) / f64::from(ON_THE_WAY);
            let step = first + ((last - first) as f64 * share) as u64;
            let value = series.nearest(step).and_then(|bucket| bucket.mean());
            put(*at, step, value.unwrap_or(f64::NAN));
        }
    }
}

/// The last columns of a name: a run's letters stand at its end.
fn tail(name: &str, columns: usize) -> String {
    let skip = name.chars().count().saturating_sub(columns);
    name.chars().skip(skip).collect()
}
