//! The report as Markdown: the same sections without the pictures; curves are given by their first, best and last readings.

use super::sections::{self, Fact};
use super::{PipelineReport, RunReport, heat, mark};
use crate::base::human::reading;
use std::fmt::Write as _;

/// Text that Markdown and HTML inside it show as it is, on one line of a table.
fn plain(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '|' | '`' | '*' | '_' | '[' | ']' | '#' | '!' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            '\n' | '\r' => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// A block that shows text word for word, whatever fences are in it.
fn block(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}\n{}\n{fence}\n", text.trim_end())
}

/// The whole file of a pipeline: its stages, what evaluations say of all models, then each run.
pub fn pipeline_markdown(album: &PipelineReport) -> String {
    let state = album.state;
    let mut out = head(&state.name, &state.id);
    let _ = writeln!(out, "\n{}", plain(&state.about));
    rows(
        &mut out,
        "Stages",
        &sections::STAGES,
        &sections::stages(state),
    );
    facts(&mut out, "Time and cost", &sections::whole(album));
    let results: Vec<_> = album.sheets.iter().flat_map(sections::results).collect();
    rows(&mut out, "Evaluation", &sections::RESULTS, &results);
    for sheet in &album.sheets {
        let _ = writeln!(out, "\n# {}", plain(sheet.name()));
        body(&mut out, &sheet.without_results());
    }
    out
}

/// The whole file of a run.
pub fn markdown(sheet: &RunReport) -> String {
    let mut out = head(sheet.name(), sheet.id());
    body(&mut out, sheet);
    out
}

/// The heading, and a comment that no reader sees.
fn head(name: &str, id: &str) -> String {
    format!("# {}\n<!-- {} -->\n", plain(name), mark(id))
}

fn body(out: &mut String, sheet: &RunReport) {
    let state = sheet.state;
    facts(out, "Overview", &sections::overview(sheet));
    let curves = sections::curves(state).into_iter().flat_map(|curves| {
        let title = curves.title;
        curves.series.into_iter().filter_map(move |(name, id)| {
            let series = state.series.get(&id)?;
            let (from, to) = series.steps()?;
            let all = series.columns(from as f64, to as f64 + 1.0, 1).pop()??;
            let unit = state.metric(&id).map_or("", |info| info.unit.as_str());
            let said = |x: f64| reading(x, unit);
            let range = format!("{} … {}", said(all.min), said(all.max));
            Some([
                format!("{title} ({name})"),
                range,
                said(series.last()?.value),
                format!("{from}–{to}"),
            ])
        })
    });
    rows(
        out,
        "Readings",
        &["metric", "lowest … highest", "last", "steps"],
        &curves.collect::<Vec<_>>(),
    );
    let layers = heat::layers(state);
    let newest = layers.iter().filter_map(|map| {
        let [low, high, step] = map.newest()?;
        Some([map.info.title.clone(), low, high, step])
    });
    rows(
        out,
        "By block",
        &["metric", "lowest", "highest", "step"],
        &newest.collect::<Vec<_>>(),
    );
    rows(
        out,
        "Findings",
        &sections::FINDINGS,
        &sections::findings(sheet),
    );
    facts(out, "Procedure", &sections::done(state));
    rows(
        out,
        "Evaluation",
        &sections::RESULTS,
        &sections::results(sheet),
    );
    facts(out, "Time, speed, memory", &sections::timings(sheet));
    if let Some(sample) = state.samples.back() {
        let _ = write!(out, "\n## Sample of step {}\n\n", sample.step);
        *out += &block(&format!("{}{}", sample.prompt, sample.said()));
    }
    facts(out, "Data", &sections::data(state));
    facts(out, "Machine", &sections::machine(state));
    for (title, text) in [
        ("Asked for", &sheet.asked),
        ("Spec; requested values are marked", &sheet.spec),
    ] {
        if !text.trim().is_empty() {
            let _ = write!(out, "\n## {title}\n\n{}", block(text));
        }
    }
}

fn facts(out: &mut String, title: &str, facts: &[Fact]) {
    if facts.is_empty() {
        return;
    }
    let _ = write!(out, "\n## {title}\n\n| | |\n|---|---|\n");
    for (name, value) in facts {
        let _ = writeln!(out, "| {} | {} |", plain(name), plain(value));
    }
}

fn rows(out: &mut String, title: &str, head: &[&str; 4], rows: &[[String; 4]]) {
    if rows.is_empty() {
        return;
    }
    let _ = write!(
        out,
        "\n## {title}\n\n| {} |\n|---|---|---|---|\n",
        head.join(" | ")
    );
    for row in rows {
        let _ = writeln!(
            out,
            "| {} |",
            row.each_ref().map(|cell| plain(cell)).join(" | ")
        );
    }
}
