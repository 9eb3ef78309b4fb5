//! Which box of the hardware pane lies where, by the room there is.

use ratatui::layout::Rect;

/// From this width on the doctor has a column of its own.
const WIDE: u16 = 118;
/// Its share of the width, and its bounds.
const FINDINGS_SHARE: f64 = 0.36;
const FINDINGS_WIDTH: (u16, u16) = (44, 64);
/// Rows of a chart with its borders that can still be read.
const LOW: u16 = 5;
/// From this height on lists get a row of headings, and processes a box.
const TALL: u16 = 30;

/// How much there is to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    pub gpus: usize,
    /// Of the selected GPU.
    pub processes: usize,
    /// Bars and words of the machine.
    pub host_rows: usize,
}

/// Where the boxes lie; neighbours share a border.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// One line: which machine this is.
    pub head: Rect,
    /// The list of GPUs, or the sentence that there is none.
    pub gpus: Option<Rect>,
    /// The list of GPUs begins with headings.
    pub headings: bool,
    /// Charts of the selected GPU: use, memory, temperature, power; the first ones where not all fit.
    pub gpu_charts: Vec<Rect>,
    pub processes: Option<Rect>,
    /// Charts of the machine: CPU, memory, disk, network; the first ones where not all fit.
    pub host_charts: Vec<Rect>,
    /// Bars and words of the machine.
    pub host: Option<Rect>,
    pub findings: Option<Rect>,
}

impl Plan {
    /// ```text
    /// atlas · AMD EPYC 9654 …                       this machine
    /// ┌ GPUs ────────────────────────────┬ doctor ───────────────┐
    /// ├ use ───────────┬ memory ─────────┤                       │
    /// ├ temperature ───┼ power ──────────┤                       │
    /// ├ processes ─────┴─────────────────┤                       │
    /// ├ CPU ───────────┬ RAM ────────────┤                       │
    /// ├ machine ───────┴─────────────────┤                       │
    /// └──────────────────────────────────┴───────────────────────┘
    /// ```
    pub fn of(area: Rect, counts: Counts) -> Plan {
        let mut plan = Plan {
            head: Rect {
                height: 1.min(area.height),
                ..area
            },
            ..Plan::default()
        };
        let body = Rect {
            y: area.y + plan.head.height,
            height: area.height - plan.head.height,
            ..area
        };
        let mut column = body;
        if area.width >= WIDE {
            let width = (f64::from(area.width) * FINDINGS_SHARE) as u16;
            let width = width.clamp(FINDINGS_WIDTH.0, FINDINGS_WIDTH.1);
            column.width = area.width - width + 1;
            plan.findings = Some(Rect {
                x: column.right() - 1,
                width,
                ..body
            });
        }
        plan.stack(column, counts);
        plan
    }

    /// Fixed boxes take their rows; charts share what is left.
    fn stack(&mut self, column: Rect, counts: Counts) {
        let n_gpus = counts.gpus;
        let tall = column.height >= TALL;
        self.headings = tall && n_gpus > 0;
        let listed = (n_gpus.max(1) as u16 + u16::from(self.headings)).min(column.height / 2);
        let n_processes = counts.processes.clamp(1, 4) as u16;
        // A border and a column of air on both sides.
        let side_by_side = column.width >= super::host::TWO_COLUMNS + 4;
        let host_rows = match side_by_side {
            true => counts.host_rows.div_ceil(2),
            false => counts.host_rows,
        };
        let host_rows = host_rows.clamp(1, if tall { 5 } else { 2 }) as u16;
        let narrow = self.findings.is_none();
        let mut rest = Stack { column };
        if column.height >= 6 {
            self.gpus = rest.top(listed + 2);
        }
        if narrow && rest.column.height >= LOW + 3 {
            self.findings = rest.bottom(if tall { 9 } else { 4 });
        }
        if rest.column.height >= LOW + 3 {
            self.host = rest.bottom(host_rows + 2);
        }
        if tall && n_gpus > 0 {
            self.processes = rest.bottom(n_processes + 2);
        }
        if n_gpus == 0 {
            self.host_charts = charts(rest.column);
            return;
        }
        if rest.column.height >= 4 * LOW {
            let third = rest.column.height / 3;
            self.host_charts = rest.bottom(third.max(LOW)).map(row).unwrap_or_default();
        }
        self.gpu_charts = charts(rest.column);
    }
}

/// Boxes from above and below; each shares its border with the next.
struct Stack {
    column: Rect,
}

impl Stack {
    fn top(&mut self, height: u16) -> Option<Rect> {
        let height = height.min(self.column.height);
        let taken = Rect {
            height,
            ..self.column
        };
        let used = height.saturating_sub(1);
        self.column.y += used;
        self.column.height -= used;
        (height >= 3).then_some(taken)
    }

    fn bottom(&mut self, height: u16) -> Option<Rect> {
        let height = height.min(self.column.height);
        let taken = Rect {
            y: self.column.bottom() - height,
            height,
            ..self.column
        };
        self.column.height -= height.saturating_sub(1);
        (height >= 3).then_some(taken)
    }
}

/// Two boxes side by side.
fn row(area: Rect) -> Vec<Rect> {
    let left = area.width / 2 + 1;
    vec![
        Rect {
            width: left,
            ..area
        },
        Rect {
            x: area.x + left - 1,
            width: area.width - left + 1,
            ..area
        },
    ]
}

/// Two boxes, or two rows of two where there is height for them.
fn charts(area: Rect) -> Vec<Rect> {
    if area.height < 3 {
        return Vec::new();
    }
    if area.height < 2 * LOW {
        return row(area);
    }
    let upper = area.height / 2 + 1;
    let lower = Rect {
        y: area.y + upper - 1,
        height: area.height - upper + 1,
        ..area
    };
    let mut boxes = row(Rect {
        height: upper,
        ..area
    });
    boxes.extend(row(lower));
    boxes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boxes(plan: &Plan) -> Vec<Rect> {
        let single = [plan.gpus, plan.processes, plan.host, plan.findings];
        let charts = plan.gpu_charts.iter().chain(&plan.host_charts).copied();
        single.into_iter().flatten().chain(charts).collect()
    }

    fn counts(gpus: usize) -> Counts {
        Counts {
            gpus,
            processes: 2,
            host_rows: 4,
        }
    }

    #[test]
    fn boxes_stay_inside_and_overlap_by_borders_only() {
        for (w, h) in (24..200)
            .step_by(11)
            .flat_map(|w| (1..60).map(move |h| (w, h)))
        {
            for n in [0, 1, 8] {
                let area = Rect::new(0, 1, w, h);
                let plan = Plan::of(area, counts(n));
                let all = boxes(&plan);
                for (i, a) in all.iter().enumerate() {
                    assert_eq!(a.intersection(area), *a, "{w}x{h} {n}");
                    for b in &all[i + 1..] {
                        let shared = a.intersection(*b);
                        assert!(
                            shared.width <= 1 || shared.height <= 1,
                            "{w}x{h} {n}: {a} {b}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn the_usual_sizes_show_everything() {
        let small = Plan::of(Rect::new(0, 1, 80, 22), counts(8));
        assert_eq!(
            (small.gpus.unwrap().height, small.gpu_charts.len()),
            (10, 2)
        );
        assert!(small.host.is_some() && small.findings.is_some());
        let large = Plan::of(Rect::new(0, 1, 160, 46), counts(1));
        assert_eq!((large.gpu_charts.len(), large.host_charts.len()), (4, 2));
        assert!(large.processes.is_some() && large.findings.unwrap().height == 45);
        let none = Plan::of(Rect::new(0, 1, 160, 46), counts(0));
        assert_eq!((none.gpu_charts.len(), none.host_charts.len()), (0, 4));
    }
}
