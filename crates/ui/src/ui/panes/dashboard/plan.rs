//! Where everything of the dashboard goes, by size alone: no state, no drawing.

use ratatui::layout::Rect;

/// What is wanted of the area.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// The loss large, the rest around it.
    #[default]
    Overview,
    /// Only charts, all of one size.
    Grid,
    /// One chart.
    Full,
}

/// The regions of a frame. Boxes overlap by one where they share a border.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// One row.
    pub progress: Rect,
    /// One row, where there are vital signs to show and room for them.
    pub vitals: Option<Rect>,
    /// Outlines of the charts, the loss first; fewer than there are metrics when there is no room.
    pub charts: Vec<Rect>,
    pub health: Option<Rect>,
    pub hardware: Option<Rect>,
    pub sample: Option<Rect>,
    pub log: Option<Rect>,
    /// One row each, where there are no boxes for them.
    pub status: Option<Rect>,
    pub sample_line: Option<Rect>,
}

/// Below this there is only a sentence.
pub const MIN_WIDTH: u16 = 28;
pub const MIN_HEIGHT: u16 = 7;
/// Below this: progress, one chart, one line.
const COMPACT_WIDTH: u16 = 60;
const COMPACT_HEIGHT: u16 = 15;
/// From here on: boxes for health, hardware, sample and log.
const LARGE_WIDTH: u16 = 100;
const LARGE_HEIGHT: u16 = 28;
/// From here on two columns of small charts beside the loss.
const WIDE: u16 = 170;
/// From here on a row of vital signs leaves the small charts enough.
const VITALS_HEIGHT: u16 = 20;
/// Rows of a small chart with its upper border.
const SMALL_CHART: u16 = 7;
/// Columns and rows of a chart in the grid, borders included.
const GRID_WIDTH: u16 = 40;
const GRID_HEIGHT: u16 = 9;

/// Lays out `area` for `n_charts` charts, and a row of vital signs if wanted. `None` when there is room for a sentence only.
pub fn plan(area: Rect, n_charts: usize, mode: Mode, vitals: bool) -> Option<Plan> {
    let (w, h) = (area.width, area.height);
    if w < MIN_WIDTH || h < MIN_HEIGHT {
        return None;
    }
    let progress = Rect { height: 1, ..area };
    let body = Rect {
        y: area.y + 1,
        height: h - 1,
        ..area
    };
    let compact = w < COMPACT_WIDTH || h < COMPACT_HEIGHT;
    let vitals = vitals && h >= VITALS_HEIGHT;
    let mut plan = match mode {
        Mode::Overview if w >= LARGE_WIDTH && h >= LARGE_HEIGHT => {
            let (row, rest) = cut_top(body, u16::from(vitals));
            Plan {
                vitals: vitals.then_some(row),
                ..large(rest, n_charts)
            }
        }
        _ if compact || mode == Mode::Full => single(body),
        _ => small(body, n_charts, vitals),
    };
    plan.progress = progress;
    Some(plan)
}

/// One chart, and the line on how the run does.
fn single(body: Rect) -> Plan {
    let (chart, status) = cut_bottom(body, 1);
    Plan {
        charts: vec![chart],
        status: Some(status),
        ..Plan::default()
    }
}

/// A grid of charts, vital signs, a status line, a line of sample.
fn small(body: Rect, n_charts: usize, vitals: bool) -> Plan {
    let (charts, lines) = cut_bottom(body, 2 + u16::from(vitals));
    let (row, lines) = cut_top(lines, u16::from(vitals));
    let across = (charts.width / GRID_WIDTH).clamp(2, 4);
    let down = (charts.height / GRID_HEIGHT).clamp(2, 5);
    let n = n_charts.clamp(1, usize::from(across * down)) as u16;
    let down = n.div_ceil(across);
    let (status, sample_line) = cut_bottom(lines, 1);
    Plan {
        charts: grid(charts, across.min(n), down, usize::from(n)),
        vitals: vitals.then_some(row),
        status: Some(status),
        sample_line: Some(sample_line),
        ..Plan::default()
    }
}

/// ```text
/// ┌ loss ─────────────┬ grad norm ─────────┐
/// │                   ├ token entropy ─────┤
/// ├ health ─┬ machine ┼ tokens/s ┬ lr ─────┤
/// ├ sample ─┴─────────┴──────────┴─────────┤
/// ├ log ───────────────────────────────────┤
/// └────────────────────────────────────────┘
/// ```
fn large(body: Rect, n_charts: usize) -> Plan {
    // Rows with their upper border; the last border closes the log.
    let log_rows = (body.height / 9).clamp(3, 9) + 1;
    let sample_rows = (body.height / 12).clamp(1, 5) + 1;
    let strip_rows = (body.height / 6).clamp(6, 9) + 1;
    let log = bottom_box(body, log_rows);
    let sample = above(log, sample_rows, body);
    let strip = above(sample, strip_rows, body);
    let top = Rect {
        height: strip.y + 1 - body.y,
        ..body
    };

    let wide = body.width >= WIDE;
    let left_width = if wide {
        body.width / 2
    } else {
        body.width * 29 / 50
    };
    let (left, right) = split(top, left_width);
    let across = if wide { 2 } else { 1 };
    let in_strip = n_charts.saturating_sub(2).min(2);
    let beside = n_charts.saturating_sub(1 + in_strip);
    let down = (right.height / SMALL_CHART)
        .clamp(1, 4)
        .min(beside.div_ceil(across).max(1) as u16);
    let n_right = beside.min(usize::from(down) * across);

    let mut charts = vec![if n_right == 0 { top } else { left }];
    charts.extend(grid(right, across as u16, down, n_right));
    let (panels, strip_charts) = if in_strip == 0 {
        (strip, strip)
    } else {
        split(strip, left_width)
    };
    charts.extend(grid(strip_charts, in_strip as u16, 1, in_strip));
    let (health, hardware) = split(panels, panels.width * 29 / 50);
    Plan {
        charts,
        health: Some(health),
        hardware: Some(hardware),
        sample: Some(sample),
        log: Some(log),
        ..Plan::default()
    }
}

/// `n` boxes over `area`, row by row; the last row's boxes share its whole width.
fn grid(area: Rect, across: u16, down: u16, n: usize) -> Vec<Rect> {
    let mut boxes = Vec::with_capacity(n);
    for row in 0..down {
        let left = n - boxes.len();
        let in_row = usize::from(across).min(left);
        let (top, bottom) = (
            share(area.height, row, down),
            share(area.height, row + 1, down),
        );
        for column in 0..in_row as u16 {
            let (x0, x1) = (
                share(area.width, column, in_row as u16),
                share(area.width, column + 1, in_row as u16),
            );
            boxes.push(Rect::new(
                area.x + x0,
                area.y + top,
                x1 - x0 + 1,
                bottom - top + 1,
            ));
        }
    }
    boxes
}

/// Where part `i` of `n` begins, when neighbours share a border.
fn share(size: u16, i: u16, n: u16) -> u16 {
    ((u32::from(size.saturating_sub(1)) * u32::from(i)) / u32::from(n.max(1))) as u16
}

fn cut_top(area: Rect, rows: u16) -> (Rect, Rect) {
    cut_bottom(area, area.height.saturating_sub(rows))
}

fn cut_bottom(area: Rect, rows: u16) -> (Rect, Rect) {
    let rows = rows.min(area.height);
    let upper = Rect {
        height: area.height - rows,
        ..area
    };
    (
        upper,
        Rect {
            y: upper.bottom(),
            height: rows,
            ..area
        },
    )
}

fn bottom_box(body: Rect, rows: u16) -> Rect {
    Rect {
        y: body.bottom() - rows - 1,
        height: rows + 1,
        ..body
    }
}

fn above(below: Rect, rows: u16, body: Rect) -> Rect {
    Rect {
        y: below.y - rows,
        height: rows + 1,
        ..body
    }
}

/// Two boxes side by side that share a border.
fn split(area: Rect, left_width: u16) -> (Rect, Rect) {
    let left = Rect {
        width: left_width + 1,
        ..area
    };
    let right = Rect {
        x: area.x + left_width,
        width: area.width - left_width,
        ..area
    };
    (left, right)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area(w: u16, h: u16) -> Rect {
        Rect::new(3, 2, w, h)
    }

    fn regions(plan: &Plan) -> Vec<Rect> {
        let boxes = [
            plan.health,
            plan.hardware,
            plan.sample,
            plan.log,
            plan.status,
            plan.sample_line,
            plan.vitals,
        ];
        let mut all: Vec<Rect> = plan.charts.clone();
        all.extend(boxes.into_iter().flatten());
        all.push(plan.progress);
        all
    }

    #[test]
    fn regions_stay_inside_and_share_nothing_but_borders() {
        for (w, h) in (1..=230)
            .step_by(7)
            .flat_map(|w| (1..=70).map(move |h| (w, h)))
        {
            for mode in [Mode::Overview, Mode::Grid, Mode::Full] {
                for (n, vitals) in [0, 1, 2, 3, 4, 5, 9, 30].map(|n| (n, (n + h) % 2 == 0)) {
                    let Some(plan) = plan(area(w, h), usize::from(n), mode, vitals) else {
                        continue;
                    };
                    let all = regions(&plan);
                    for (i, a) in all.iter().enumerate() {
                        assert_eq!(
                            a.intersection(area(w, h)),
                            *a,
                            "{w}×{h} {mode:?} {n} {plan:?}"
                        );
                        for b in &all[i + 1..] {
                            let common = a.intersection(*b);
                            assert!(common.width <= 1 || common.height <= 1, "{w}×{h} {a} {b}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn usual_sizes_show_what_was_promised() {
        let charts = |w, h| plan(area(w, h), 12, Mode::Overview, false).map(|p| p.charts.len());
        assert_eq!(charts(80, 22), Some(4));
        assert!(charts(120, 34) >= Some(5));
        assert!(charts(160, 46) >= Some(6));
        assert!(charts(200, 48) >= Some(8));
        assert_eq!(charts(59, 22), Some(1));
        assert_eq!(charts(80, 14), Some(1));
        assert_eq!(charts(27, 22), None);
        assert_eq!(
            plan(area(160, 46), 12, Mode::Full, true)
                .unwrap()
                .charts
                .len(),
            1
        );
        assert_eq!(
            plan(area(160, 46), 12, Mode::Grid, false)
                .unwrap()
                .charts
                .len(),
            12
        );
    }

    #[test]
    fn vital_signs_have_a_row_where_it_costs_no_chart() {
        let at = |w, h, mode| plan(area(w, h), 12, mode, true).unwrap();
        let large = at(160, 46, Mode::Overview);
        assert_eq!(large.vitals, Some(Rect::new(3, 3, 160, 1)));
        let small = at(80, 22, Mode::Overview);
        assert_eq!(small.vitals, Some(Rect::new(3, 21, 80, 1)));
        assert_eq!(small.charts.len(), 4);
        for none in [at(80, 19, Mode::Overview), at(160, 46, Mode::Full)] {
            assert_eq!(none.vitals, None);
        }
    }

    #[test]
    fn few_metrics_leave_no_empty_boxes() {
        for n in 1..6 {
            let plan = plan(area(160, 46), n, Mode::Overview, true).unwrap();
            assert!(plan.charts.len() <= n, "{n}: {}", plan.charts.len());
        }
    }
}
