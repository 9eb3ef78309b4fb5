//! The report as one HTML file: style and pictures inside, no script, nothing fetched; light and dark as the reader's system
//! is, one column on a phone, black on white in print.

use super::sections::{self, Fact};
use super::{PipelineReport, RunReport, chart, heat, mark};
use std::fmt::Write as _;

const STYLE: &str = "
:root{color-scheme:light dark;--ink:#1b1f24;--paper:#fff;--soft:#57606a;--line:#d0d7de;--a:#0969da;--b:#bc4c00;--good:#1a7f37;--warn:#9a6700;--bad:#cf222e}
@media(prefers-color-scheme:dark){:root{--ink:#d1d7e0;--paper:#0d1117;--soft:#8b949e;--line:#30363d;--a:#58a6ff;--b:#f0883e;--good:#3fb950;--warn:#d29922;--bad:#f85149}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1rem;max-width:76rem;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.5rem;margin:.5rem 0}h2{font-size:1.15rem;margin:2rem 0 .5rem;border-bottom:1px solid var(--line)}h3{font-size:.95rem;margin:0}
.verdict{font-size:1.05rem}.soft{color:var(--soft)}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,22rem),1fr));gap:1rem}
figure{margin:0;border:1px solid var(--line);border-radius:6px;padding:.6rem}
svg{width:100%;height:auto;display:block}svg text{font:13px system-ui,sans-serif;fill:var(--soft)}
.grid{stroke:var(--line);stroke-width:.7;fill:none}.line{fill:none;stroke-width:1.6;stroke-linejoin:round}.band{stroke:none;opacity:.18}
.line.c0{stroke:var(--a)}.line.c1{stroke:var(--b)}.band.c0{fill:var(--a)}.band.c1{fill:var(--b)}
.heat{fill:var(--a)}
.k0{color:var(--a)}.k1{color:var(--b)}
table{border-collapse:collapse;width:100%}td,th{text-align:left;vertical-align:top;padding:.2rem .6rem .2rem 0;border-bottom:1px solid var(--line)}
td,th{overflow-wrap:break-word}td:last-child{overflow-wrap:anywhere}td:first-child{min-width:7rem}.facts td:first-child{width:30%}.pass{color:var(--good)}.warn{color:var(--warn)}.fail{color:var(--bad)}
pre{white-space:pre-wrap;border:1px solid var(--line);border-radius:6px;padding:.6rem;font:13px/1.4 ui-monospace,monospace;margin:.4rem 0}
@media print{:root{color-scheme:light;--ink:#000;--paper:#fff;--soft:#444;--line:#999;--a:#0550ae;--b:#953800}figure,tr,pre{break-inside:avoid}details>*{display:block}}
";

/// Text as HTML shows it, in elements and in quoted attributes.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// The whole file of a run.
pub fn html(sheet: &RunReport) -> String {
    let name = sheet.name();
    let mut out = head(name, sheet.id());
    body(&mut out, sheet);
    out.push_str("</body></html>\n");
    out
}

/// The whole file of a pipeline: its stages, what evaluations say of all models, then each run.
pub fn pipeline_html(album: &PipelineReport) -> String {
    let state = album.state;
    let mut out = head(&state.name, &state.id);
    let _ = writeln!(out, "<p>{}</p>", escape(&state.about));
    rows(
        &mut out,
        "Stages",
        &sections::STAGES,
        &sections::stages(state),
    );
    facts(&mut out, "", &sections::whole(album));
    let results: Vec<_> = album.sheets.iter().flat_map(sections::results).collect();
    rows(&mut out, "Evaluation", &sections::RESULTS, &results);
    for sheet in &album.sheets {
        let _ = writeln!(out, "<hr><h1>{}</h1>", escape(sheet.name()));
        body(&mut out, &sheet.without_results());
    }
    out.push_str("</body></html>\n");
    out
}

fn head(name: &str, id: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"generator\" content=\"{mark}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{name}</title>\n<style>{STYLE}</style></head><body>\n<h1>{name}</h1>\n",
        name = escape(name),
        mark = mark(id)
    )
}

fn body(out: &mut String, sheet: &RunReport) {
    facts(out, "", &sections::overview(sheet));
    charts(out, sheet);
    heat_maps(out, sheet);
    rows(
        out,
        "Findings",
        &sections::FINDINGS,
        &sections::findings(sheet),
    );
    facts(out, "Procedure", &sections::done(sheet.state));
    rows(
        out,
        "Evaluation",
        &sections::RESULTS,
        &sections::results(sheet),
    );
    facts(out, "Time, speed, memory", &sections::timings(sheet));
    samples(out, sheet);
    facts(out, "Data", &sections::data(sheet.state));
    facts(out, "Machine", &sections::machine(sheet.state));
    text(out, "Asked for", &sheet.asked);
    text(out, "Spec; requested values are marked", &sheet.spec);
}

fn facts(out: &mut String, title: &str, facts: &[Fact]) {
    if facts.is_empty() {
        return;
    }
    if !title.is_empty() {
        let _ = writeln!(out, "<h2>{}</h2>", escape(title));
    }
    out.push_str("<table class=\"facts\">\n");
    for (name, value) in facts {
        let _ = writeln!(
            out,
            "<tr><td class=\"soft\">{}</td><td>{}</td></tr>",
            escape(name),
            escape(value)
        );
    }
    out.push_str("</table>\n");
}

fn charts(out: &mut String, sheet: &RunReport) {
    let curves = sections::curves(sheet.state);
    if curves.is_empty() {
        return;
    }
    out.push_str("<h2>Curves</h2>\n<div class=\"charts\">\n");
    for curves in curves {
        let Some(drawing) = chart::drawing(sheet.state, &curves) else {
            continue;
        };
        let _ = write!(
            out,
            "<figure><h3>{} <span class=\"soft\">{}</span>",
            escape(&curves.title),
            escape(&curves.unit)
        );
        if curves.series.len() > 1 {
            for (n, (name, _)) in curves.series.iter().enumerate() {
                let _ = write!(out, " <span class=\"k{n}\">— {}</span>", escape(name));
            }
        }
        if let Some(words) = chart::legend(sheet.state, &curves) {
            let _ = write!(out, " <span class=\"soft\">{words}</span>");
        }
        let _ = writeln!(out, "</h3>\n{}</figure>", drawing.svg());
    }
    out.push_str("</div>\n<p class=\"soft\">By step. The line is the mean, or an exponential moving average where it says EMA (bias-corrected; the weight of the past after a thousandth of the steps); the band spans minimum to maximum.</p>\n");
}

fn heat_maps(out: &mut String, sheet: &RunReport) {
    let maps = heat::layers(sheet.state);
    if maps.is_empty() {
        return;
    }
    out.push_str("<h2>By block</h2>\n<div class=\"charts\">\n");
    for map in &maps {
        let Some((drawing, range)) = map.drawing().zip(map.range()) else {
            continue;
        };
        let _ = writeln!(
            out,
            "<figure><h3>{} <span class=\"soft\">{}{}{range}</span></h3>\n{}</figure>",
            escape(&map.info.title),
            escape(&map.info.unit),
            if map.info.unit.is_empty() { "" } else { ", " },
            drawing.svg(),
        );
    }
    out.push_str("</div>\n<p class=\"soft\">By step, first block on top; darker is higher.</p>\n");
}

fn rows(out: &mut String, title: &str, head: &[&str; 4], rows: &[[String; 4]]) {
    if rows.is_empty() {
        return;
    }
    let _ = write!(out, "<h2>{}</h2>\n<table><tr>", escape(title));
    for name in head {
        let _ = write!(out, "<th>{}</th>", escape(name));
    }
    out.push_str("</tr>\n");
    for row in rows {
        // The word of a finding's status is a class of the style.
        let class = if ["pass", "warn", "fail"].contains(&row[0].as_str()) {
            &row[0]
        } else {
            "soft"
        };
        let _ = write!(out, "<tr><td class=\"{class}\">{}</td>", escape(&row[0]));
        for cell in &row[1..] {
            let _ = write!(out, "<td>{}</td>", escape(cell));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table>\n");
}

/// Samples of a report: the first and the last ones show what was learned.
const SAMPLES: usize = 3;

fn samples(out: &mut String, sheet: &RunReport) {
    let all = &sheet.state.samples;
    if all.is_empty() {
        return;
    }
    out.push_str("<h2>Samples</h2>\n");
    let late = all.len().saturating_sub(SAMPLES).max(1);
    for sample in all.iter().take(1).chain(all.iter().skip(late)) {
        let thought = sample.thought.as_deref();
        let thought = thought.map(|thought| format!("<i>{}</i>\n\n", escape(thought.trim())));
        let _ = writeln!(
            out,
            "<h3>step {}</h3><pre><b>{}</b>{}{}</pre>",
            sample.step,
            escape(&sample.prompt),
            thought.unwrap_or_default(),
            escape(sample.said())
        );
    }
}

fn text(out: &mut String, title: &str, text: &str) {
    if !text.trim().is_empty() {
        let _ = writeln!(
            out,
            "<h2>{}</h2>\n<pre>{}</pre>",
            escape(title),
            escape(text)
        );
    }
}
