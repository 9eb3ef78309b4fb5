//! The left side: numbers, the histogram of lengths, sources, tokens, findings.

use super::DataPane;
use super::boxes::progress_words;
use crate::base::human::{grouped, short};
use crate::base::text::one_line;
use crate::data::inspect::{Report, RowsFinding, Severity, Spread};
use crate::ui::hit::Target;
use crate::ui::layout::scroll_to;
use crate::ui::panes::PaneContext;
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::bar;
use crate::ui::widgets::frame::{padded, title};
use crate::ui::widgets::text::{self, Word, word};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use unicode_width::UnicodeWidthStr;

/// From this height on there is room for sources and tokens.
const TALL: u16 = 34;
const MAX_SOURCES: usize = 6;

/// Outlines; neighbours share a border.
#[derive(Debug, Default)]
pub(super) struct Boxes {
    numbers: Rect,
    lengths: Rect,
    sources: Option<Rect>,
    tokens: Option<Rect>,
    findings: Rect,
}

impl Boxes {
    pub fn of(area: Rect, report: &Report) -> Boxes {
        let tall = area.height >= TALL;
        let mut boxes = Boxes::default();
        let mut y = area.y;
        let mut take = |inner: u16| {
            let height = (inner + 2).min((area.bottom()).saturating_sub(y));
            let outline = Rect { y, height, ..area };
            y += height.saturating_sub(1);
            outline
        };
        boxes.numbers = take(if tall { 9 } else { 5 });
        if area.height >= 14 {
            boxes.lengths = take(if tall { 8 } else { 4 });
        }
        let several = report.sources.len() > 1;
        if tall && several {
            boxes.sources = Some(take(report.sources.len().min(MAX_SOURCES) as u16));
        }
        if tall && report.tokens.is_some() {
            boxes.tokens = Some(take(4));
        }
        boxes.findings = take(area.height);
        boxes
    }

    pub fn outlines(&self) -> impl Iterator<Item = Rect> {
        [
            Some(self.numbers),
            Some(self.lengths),
            self.sources,
            self.tokens,
            Some(self.findings),
        ]
        .into_iter()
        .flatten()
        .filter(|outline| outline.height > 1)
    }
}

pub(super) fn draw(
    pane: &mut DataPane,
    buffer: &mut Buffer,
    boxes: &Boxes,
    report: &Report,
    context: &mut PaneContext,
) {
    let theme = context.theme;
    let head =
        progress_words(pane).unwrap_or_else(|| vec![word(last_part(&report.name), Meaning::Title)]);
    titled(buffer, boxes.numbers, head, theme);
    numbers(buffer, padded(boxes.numbers), report, theme);
    let (unit, spread, limit) = match &report.tokens {
        Some(tokens) => ("tokens a row", &tokens.lengths, tokens.seq_len),
        None => ("characters a row", &report.characters, None),
    };
    titled(
        buffer,
        boxes.lengths,
        vec![word(unit, Meaning::Title)],
        theme,
    );
    histogram(buffer, padded(boxes.lengths), spread, limit, theme);
    if let Some(outline) = boxes.sources {
        let words = format!("{} sources", grouped(report.sources.len() as u64));
        titled(buffer, outline, vec![word(words, Meaning::Title)], theme);
        sources(buffer, padded(outline), report, theme);
    }
    if let Some(outline) = boxes.tokens {
        titled(
            buffer,
            outline,
            vec![word("frequent tokens", Meaning::Title)],
            theme,
        );
        frequent(buffer, padded(outline), report, theme);
    }
    findings(pane, buffer, boxes.findings, report, context);
}

/// The end of a path says which data these are.
fn last_part(name: &str) -> String {
    let name = one_line(name);
    let name = name.trim_end_matches('/');
    name.rsplit('/').next().unwrap_or(name).to_string()
}

fn titled(buffer: &mut Buffer, outline: Rect, mut words: Vec<Word>, theme: &Theme) {
    if outline.height < 2 {
        return;
    }
    words.insert(0, word(" ", Meaning::Text));
    words.push(word(" ", Meaning::Text));
    title(buffer, outline, &words, theme);
}

/// Labels on the left, numbers flush right.
fn numbers(buffer: &mut Buffer, area: Rect, report: &Report, theme: &Theme) {
    let mut rows: Vec<(&str, String)> = vec![("rows", grouped(report.rows))];
    let spread = match &report.tokens {
        Some(tokens) => {
            rows.push(("tokens", grouped(tokens.total)));
            if let Some(share) = report.supervised_share() {
                rows.push(("of them supervised", format!("{:.1} %", 100.0 * share)));
            }
            &tokens.lengths
        }
        None => {
            rows.push(("characters", grouped(report.characters.total)));
            &report.characters
        }
    };
    rows.push((
        "median / p95",
        format!("{} / {}", grouped(spread.p50), grouped(spread.p95)),
    ));
    rows.push(("longest", grouped(spread.max)));
    if let Some(tokens) = &report.tokens {
        let used = format!(
            "{} of {}",
            grouped(tokens.used as u64),
            grouped(tokens.vocab_size as u64)
        );
        rows.push(("vocabulary used", used));
    }
    rows.push(("format", one_line(&report.format)));
    if let Some(tokens) = &report.tokens {
        rows.push(("read with", one_line(&tokens.view)));
    }
    for ((label, value), y) in rows.iter().zip(area.y..area.bottom()) {
        // The last row goes on below where it is long and there is room.
        let room = usize::from(area.width).saturating_sub(label.width() + 1);
        if value.width() > room && y + 1 < area.bottom() && *label == "read with" {
            let words = format!("{label} {value}");
            let place = Rect {
                y,
                height: area.bottom() - y,
                ..area
            };
            text::paragraph(buffer, place, &words, Meaning::Muted, theme);
            return;
        }
        let at = text::draw(
            buffer,
            area.x,
            y,
            area.width,
            &[word(*label, Meaning::Muted)],
            theme,
        );
        let room = area.right().saturating_sub(at + 1);
        let value = text::fit(value, usize::from(room), theme.ascii);
        text::draw_right(
            buffer,
            area.right(),
            y,
            room,
            &[word(value, Meaning::Text)],
            theme,
        );
    }
}

/// Columns of blocks over a line with its ends; a mark where the model stops reading.
fn histogram(buffer: &mut Buffer, area: Rect, spread: &Spread, limit: Option<u64>, theme: &Theme) {
    if area.height < 2 || area.width < 8 {
        return;
    }
    let bins = spread.lengths.bins(usize::from(area.width));
    let most = bins.iter().map(|b| b.rows).max().unwrap_or(0).max(1);
    let rows = area.height - 1;
    for column in 0..area.width {
        let Some(bin) = bins.get(usize::from(column) * bins.len() / usize::from(area.width)) else {
            break;
        };
        let over = limit.is_some_and(|limit| bin.from > limit);
        let meaning = if over { Meaning::Warn } else { Meaning::Series };
        let eighths = (bin.rows as f64 / most as f64 * f64::from(rows) * 8.0).ceil() as u16;
        let foot = (area.x + column, area.y + rows - 1);
        vertical_bar(buffer, foot, rows, eighths, meaning, theme);
    }
    let y = area.bottom() - 1;
    let muted = |text: String| [word(text, Meaning::Muted)];
    let first = bins.first().map_or(0, |bin| bin.from);
    text::draw(buffer, area.x, y, area.width, &muted(grouped(first)), theme);
    let last = bins.last().map_or(String::new(), |bin| match bin.to {
        Some(to) => grouped(to),
        None => format!("≥ {}", grouped(bin.from)),
    });
    text::draw_right(buffer, area.right(), y, area.width / 2, &muted(last), theme);
    if let Some(limit) = limit {
        let words = format!("seq_len {}", grouped(limit));
        let x = area.x + area.width / 2 - (words.width() as u16 / 2).min(area.width / 2);
        text::draw(
            buffer,
            x,
            y,
            words.width() as u16,
            &[word(words.clone(), Meaning::Warn)],
            theme,
        );
    }
}

/// A column of `eighths` of a cell, from the bottom up.
fn vertical_bar(
    buffer: &mut Buffer,
    bottom: (u16, u16),
    rows: u16,
    eighths: u16,
    meaning: Meaning,
    theme: &Theme,
) {
    let levels = &theme.glyphs().levels;
    for row in 0..rows {
        let left = eighths.saturating_sub(row * 8).min(8);
        if left == 0 {
            return;
        }
        let glyph = [word(levels[usize::from(left - 1)], meaning)];
        text::draw(buffer, bottom.0, bottom.1 - row, 1, &glyph, theme);
    }
}

fn sources(buffer: &mut Buffer, area: Rect, report: &Report, theme: &Theme) {
    let by_tokens = report.tokens.is_some();
    let size =
        |s: &crate::data::inspect::SourceShare| if by_tokens { s.tokens } else { s.characters };
    let total = report.sources.iter().map(size).sum::<u64>().max(1) as f64;
    let (bars, number) = (area.width / 4, 8);
    let names = usize::from(area.width.saturating_sub(bars + number + 2));
    for (source, y) in report.sources.iter().zip(area.y..area.bottom()) {
        let share = size(source) as f64 / total;
        let name = one_line(&source.name);
        let name = name.rsplit('/').next().unwrap_or(&name);
        let name = text::fit(name, names, theme.ascii);
        text::draw(
            buffer,
            area.x,
            y,
            names as u16,
            &[word(name, Meaning::Text)],
            theme,
        );
        let x = area.x + names as u16 + 1;
        bar::level(buffer, x, y, bars, share, Meaning::Series, theme);
        let share = [word(format!("{:.1} %", 100.0 * share), Meaning::Text)];
        text::draw_right(buffer, area.right(), y, number, &share, theme);
    }
}

/// Tokens by frequency, as many as fit; then the special ones.
fn frequent(buffer: &mut Buffer, area: Rect, report: &Report, theme: &Theme) {
    let Some(tokens) = &report.tokens else { return };
    let word_of = |token: &crate::data::inspect::TokenCount| {
        let blank = if theme.ascii { "_" } else { "␣" };
        let newline = if theme.ascii { "$" } else { "⏎" };
        let text = token.text.replace(' ', blank).replace('\n', newline);
        let share = 100.0 * token.count as f64 / tokens.total.max(1) as f64;
        format!("{} {share:.1} %", one_line(&text))
    };
    let special = |id| tokens.specials.iter().any(|s| s.id == id);
    let plain = tokens.top.iter().filter(|t| !special(t.id)).map(word_of);
    let specials = tokens.specials.iter();
    let specials = specials.map(|s| format!("{} {}", one_line(&s.text), short(s.count as f64)));
    let (upper, lower) = crate::ui::layout::split_bottom(area, area.height / 2);
    packed(buffer, upper, plain, Meaning::Text, theme);
    packed(buffer, lower, specials, Meaning::Mark, theme);
}

/// Words side by side while there is room; the rest is left out.
fn packed(
    buffer: &mut Buffer,
    area: Rect,
    words: impl Iterator<Item = String>,
    meaning: Meaning,
    theme: &Theme,
) {
    let (mut x, mut y) = (area.x, area.y);
    for text in words {
        let width = text.width() as u16;
        if x > area.x && x + width > area.right() {
            (x, y) = (area.x, y + 1);
        }
        if y >= area.bottom() || width > area.width {
            return;
        }
        x = text::draw(buffer, x, y, width, &[word(text, meaning)], theme) + 2;
    }
}

fn mark(severity: Severity, theme: &Theme) -> (&'static str, Meaning) {
    match severity {
        Severity::Problem => (theme.glyphs().bad, Meaning::Bad),
        Severity::Warning => (theme.glyphs().warn, Meaning::Warn),
        Severity::Note => (theme.glyphs().point, Meaning::Muted),
    }
}

fn findings(
    pane: &mut DataPane,
    buffer: &mut Buffer,
    outline: Rect,
    report: &Report,
    context: &mut PaneContext,
) {
    let theme = context.theme;
    if outline.height < 2 {
        return;
    }
    let n = report.findings.len();
    let head = match n {
        0 => vec![word("findings", Meaning::Title)],
        n => vec![
            word("findings ", Meaning::Title),
            word(n.to_string(), Meaning::Text),
        ],
    };
    titled(buffer, outline, head, theme);
    let area = padded(outline);
    if n == 0 {
        let words = format!(
            "{} No problems: {} checks passed.",
            theme.glyphs().ok,
            report.passed.len()
        );
        let used = text::paragraph(buffer, area, &words, Meaning::Good, theme);
        limits(buffer, below(area, used + 1), report, theme);
        return;
    }
    // The list gives way to the words on the selected one, down to half of the box.
    let list = (n as u16).min(area.height.saturating_sub(6).max(area.height / 2));
    pane.first_finding = scroll_to(pane.finding, pane.first_finding.min(n - 1), list.into());
    let shown = report.findings.iter().enumerate().skip(pane.first_finding);
    for ((i, finding), y) in shown.zip(area.y..area.y + list) {
        let place = Rect {
            y,
            height: 1,
            ..area
        };
        row(
            buffer,
            place,
            finding,
            (i == pane.finding, pane.only == Some(finding.id.as_str())),
            theme,
        );
        context.hits.add(place, Target::Row(i));
    }
    let detail = below(area, list + 1);
    let used = report
        .findings
        .get(pane.finding)
        .map_or(0, |finding| words_on(buffer, detail, finding, theme));
    limits(buffer, below(detail, used + 1), report, theme);
}

fn below(area: Rect, rows: u16) -> Rect {
    let rows = rows.min(area.height);
    Rect {
        y: area.y + rows,
        height: area.height - rows,
        ..area
    }
}

/// `▸✗ Unreadable rows        3`
fn row(
    buffer: &mut Buffer,
    place: Rect,
    finding: &RowsFinding,
    (selected, only): (bool, bool),
    theme: &Theme,
) {
    let (glyph, meaning) = mark(finding.severity, theme);
    let pointer = if selected {
        theme.glyphs().pointer
    } else {
        " "
    };
    let count = short(finding.rows as f64);
    let room = place.width.saturating_sub(count.width() as u16 + 1);
    let name = match (only, selected) {
        (true, _) => Meaning::Title,
        (_, true) => Meaning::Accent,
        _ => Meaning::Text,
    };
    let words = [
        word(pointer, Meaning::Accent),
        word(format!("{glyph} "), meaning),
        word(finding.title.as_str(), name),
    ];
    text::draw(buffer, place.x, place.y, room, &words, theme);
    text::draw_right(
        buffer,
        place.right(),
        place.y,
        place.width,
        &[word(count, meaning)],
        theme,
    );
}

/// Evidence, cause and fix of the selected finding; returns the rows used.
fn words_on(buffer: &mut Buffer, area: Rect, finding: &RowsFinding, theme: &Theme) -> u16 {
    let share = match 100.0 * finding.share {
        s if s < 0.1 => "less than 0.1 % of the rows".to_string(),
        s => format!("{s:.1} % of the rows"),
    };
    let evidence = match finding.evidence.is_empty() {
        true => share,
        false => format!("{share}; {}", one_line(&finding.evidence.to_string())),
    };
    let mut used = 0;
    for (words, meaning) in [
        (evidence.as_str(), Meaning::Text),
        (finding.fix.as_str(), Meaning::Accent),
        (finding.cause.as_str(), Meaning::Muted),
    ] {
        used += text::paragraph(buffer, below(area, used), words, meaning, theme);
    }
    let mut rest = below(area, used + 1);
    let shown = finding.examples.len().min(usize::from(rest.height));
    // Rows that are free take the words that do not fit into one.
    let mut spare = usize::from(rest.height) - shown;
    for hit in &finding.examples[..shown] {
        let place = one_line(hit.place.rsplit('/').next().unwrap_or(&hit.place));
        let line = format!("{place}  {}", one_line(&hit.what));
        let mut lines = text::wrap(&line, usize::from(rest.width), usize::MAX, theme.ascii);
        if lines.len() > spare + 1 {
            lines = vec![line];
        }
        spare -= lines.len() - 1;
        for (i, line) in lines.iter().enumerate() {
            let place = line.strip_prefix(&*place).filter(|_| i == 0).map(|_| place.as_str());
            let what = &line[place.map_or(0, str::len)..];
            let words = [word(place.unwrap_or(""), Meaning::Text), word(what, Meaning::Muted)];
            text::draw(buffer, rest.x, rest.y, rest.width, &words, theme);
            rest = below(rest, 1);
            used += 1;
        }
    }
    used + 1
}

/// What was not looked at.
fn limits(buffer: &mut Buffer, area: Rect, report: &Report, theme: &Theme) {
    let mut used = 0;
    for limit in &report.limits {
        used += text::paragraph(
            buffer,
            below(area, used),
            &one_line(limit),
            Meaning::Warn,
            theme,
        );
    }
}
