//! The table of metrics on the screen, and as JSON.

use super::args::Args;
use crate::base::human;
use crate::base::num::Num;
use crate::base::text::one_line;
use crate::cli::{Context, out};
use crate::history::{Curves, Summary, summaries};
use crate::run::series::Point;
use crate::wire::Direction;
use serde::Serialize;
use std::io::Write;

pub fn print(curves: &Curves, args: &Args, cx: &Context) -> anyhow::Result<()> {
    let all = summaries(curves);
    if args.json {
        let text = out::json(&json(curves, &all))?;
        writeln!(std::io::stdout(), "{text}")?;
        return Ok(());
    }
    let text = table(&all, !args.metric.is_empty());
    std::io::stdout().write_all(cx.words(text).as_bytes())?;
    Ok(())
}

/// ```text
/// metric      values   first    last     min     max  best at
/// train/loss     300  4.1700  1.7600  1.7421  4.1700      297
/// lr             300    1e-6       0       0    1e-3        -
/// ```
fn table(all: &[Summary], blocks: bool) -> String {
    let names = ["metric", "values", "first", "last", "min", "max", "best at"];
    let listed: Vec<&Summary> = all.iter().filter(|s| blocks || !s.of_block).collect();
    let mut rows = vec![names.map(String::from).to_vec()];
    rows.extend(listed.iter().map(|summary| row(summary)));
    right(&mut rows);
    let mut text = out::columns(&rows);
    for summary in listed.iter().filter(|s| s.non_finite > 0) {
        text.push_str(&format!(
            "{}: {} of {} values are NaN or infinite; min and max are of the others\n",
            one_line(&summary.id),
            human::grouped(summary.non_finite),
            human::grouped(summary.n),
        ));
    }
    let hidden = all.len() - listed.len();
    if hidden > 0 {
        text.push_str(&format!(
            "and {} of single blocks: --metric '*/layer/*'\n",
            human::grouped(hidden as u64)
        ));
    }
    text
}

fn row(summary: &Summary) -> Vec<String> {
    let said = |x: f64| human::reading(x, &summary.info.unit);
    let extreme = |point: Option<Point>| point.map_or("-".into(), |p| said(p.value));
    let best = summary.best();
    vec![
        one_line(&summary.id),
        human::grouped(summary.n),
        said(summary.first.value),
        said(summary.last.value),
        extreme(summary.lowest),
        extreme(summary.highest),
        best.map_or("-".into(), |p| human::grouped(p.step)),
    ]
}

/// Numbers end below each other.
fn right(rows: &mut [Vec<String>]) {
    let count = rows.first().map_or(0, Vec::len);
    for column in 1..count {
        let length = |row: &Vec<String>| row[column].chars().count();
        let width = rows.iter().map(length).max().unwrap_or(0);
        for row in rows.iter_mut() {
            row[column] = format!("{:>width$}", row[column]);
        }
    }
}

#[derive(Serialize)]
struct Json<'a> {
    run: &'a str,
    step: u64,
    metrics: Vec<Metric<'a>>,
}

#[derive(Serialize)]
struct Metric<'a> {
    id: &'a str,
    title: &'a str,
    unit: &'a str,
    direction: Direction,
    values: u64,
    non_finite: u64,
    first: At,
    last: At,
    min: Option<At>,
    max: Option<At>,
    /// Absent where no direction is better.
    #[serde(skip_serializing_if = "Option::is_none")]
    best: Option<At>,
}

#[derive(Serialize)]
struct At {
    step: u64,
    value: Num,
}

fn json<'a>(curves: &'a Curves, all: &'a [Summary]) -> Json<'a> {
    let at = |point: Point| At {
        step: point.step,
        value: Num(point.value),
    };
    let metrics = all.iter().map(|summary| Metric {
        id: &summary.id,
        title: &summary.info.title,
        unit: &summary.info.unit,
        direction: summary.info.direction,
        values: summary.n,
        non_finite: summary.non_finite,
        first: at(summary.first),
        last: at(summary.last),
        min: summary.lowest.map(at),
        max: summary.highest.map(at),
        best: summary.best().map(at),
    });
    Json {
        run: &curves.state.run,
        step: curves.state.step,
        metrics: metrics.collect(),
    }
}
