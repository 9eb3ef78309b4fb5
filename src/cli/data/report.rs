//! An inspection as text: 80 columns, bars, readable without colour.

use crate::base::human::{counted, grouped, percent};
use crate::base::text::{one_line, wrap};
use crate::data::inspect::{Bin, Report, RowsFinding, Severity, Spread, TokenCount, Tokens};
use std::fmt::Write;
use unicode_width::UnicodeWidthStr;

/// Columns of the page.
const WIDTH: usize = 80;
/// Bars of the histogram, and columns of the longest.
const BINS: usize = 10;
const BAR: usize = 44;
/// Most sources, examples of a finding and tokens to list.
const SOURCES: usize = 8;
const EXAMPLES: usize = 3;

/// The whole report.
pub fn page(report: &Report) -> String {
    let mut out = String::new();
    head(&mut out, report);
    if report.rows == 0 {
        out.push_str("\n  it is empty\n");
        return out;
    }
    numbers(&mut out, report);
    match &report.tokens {
        Some(tokens) => {
            let title = match tokens.total == tokens.lengths.total {
                true => "tokens per row",
                false => "tokens per row, the longer side of each",
            };
            histogram(&mut out, title, &tokens.lengths, tokens.seq_len);
        }
        None => histogram(&mut out, "characters per row", &report.characters, None),
    }
    sources(&mut out, report);
    if let Some(tokens) = &report.tokens {
        vocabulary(&mut out, tokens);
    }
    findings(&mut out, report);
    out
}

fn head(out: &mut String, report: &Report) {
    let _ = writeln!(out, "{}\n", one_line(&report.name));
    let mut format = String::new();
    wrapped(&mut format, 28, &one_line(&report.format));
    let rows = grouped(report.rows);
    line(out, "rows", &format!("{rows:>12}   {}", format.trim()));
}

fn numbers(out: &mut String, report: &Report) {
    line(out, "characters", &spread(&report.characters));
    let Some(tokens) = &report.tokens else {
        line(out, "tokens", "not counted: set --tokenizer");
        out.push('\n');
        return;
    };
    line(out, "tokens", &token_spread(tokens));
    // An inspection cuts texts into rows, a run reads each as one document.
    let texts = report
        .format
        .split("; ")
        .all(|format| format.starts_with("plain text, by "));
    if texts && tokens.total > 0 {
        let words = format!(
            "{:>12}   in training every token of a text counts in the loss",
            "all"
        );
        line(out, "supervised", &words);
    } else if let Some(share) = report.supervised_share() {
        line(
            out,
            "supervised",
            &format!(
                "{:>12}   {} of the tokens count in the loss",
                grouped(tokens.supervised),
                percent(share, 1)
            ),
        );
    }
    let never = 1.0 - tokens.used as f64 / tokens.vocab_size.max(1) as f64;
    let words = format!(
        "{:>12}   of {} tokens used, {} never",
        grouped(tokens.used as u64),
        grouped(tokens.vocab_size as u64),
        percent(never, 1)
    );
    line(out, "vocabulary", &words);
    line(out, "read with", &format!("   {}", one_line(&tokens.view)));
    out.push('\n');
}

fn line(out: &mut String, label: &str, words: &str) {
    let _ = writeln!(out, "  {label:<11}{words}");
}

/// `171,202   per row: median 140 · 95 % ≤ 471 · max 1,131`
fn spread(spread: &Spread) -> String {
    of_rows(spread.total, "per row", spread)
}

/// All tokens, of which the supervised ones are a share. The length of a pair is that of its longer side.
fn token_spread(tokens: &Tokens) -> String {
    let each = match tokens.total == tokens.lengths.total {
        true => "per row",
        false => "longer side",
    };
    of_rows(tokens.total, each, &tokens.lengths)
}

fn of_rows(total: u64, each: &str, spread: &Spread) -> String {
    format!(
        "{:>12}   {each}: median {} · 95 % ≤ {} · max {}",
        grouped(total),
        grouped(spread.p50),
        grouped(spread.p95),
        grouped(spread.max)
    )
}

fn histogram(out: &mut String, title: &str, spread: &Spread, limit: Option<u64>) {
    let bins = spread.lengths.bins(BINS);
    let Some(most) = bins.iter().map(|bin| bin.rows).max() else {
        return;
    };
    let _ = writeln!(out, "  {title}");
    let labels: Vec<String> = bins.iter().map(label).collect();
    let width = labels.iter().map(|l| l.width()).max().unwrap_or(0);
    for (bin, label) in bins.iter().zip(&labels) {
        let pad = width - label.width();
        let _ = writeln!(
            out,
            "    {}{label}  {} {}",
            " ".repeat(pad),
            bar(bin.rows as f64 / most.max(1) as f64, BAR),
            grouped(bin.rows)
        );
    }
    if let Some(limit) = limit {
        let over = spread.lengths.over_row(limit);
        let share = over as f64 / spread.rows.max(1) as f64;
        let _ = writeln!(
            out,
            "    longer than seq_len {}: {} ({})",
            grouped(limit),
            counted(over, "row"),
            percent(share, 1)
        );
    }
    out.push('\n');
}

fn label(bin: &Bin) -> String {
    match bin.to {
        Some(to) if to == bin.from => grouped(bin.from),
        Some(to) => format!("{}–{}", grouped(bin.from), grouped(to)),
        None => format!("{} and more", grouped(bin.from)),
    }
}

/// A bar in eighths of a column.
fn bar(share: f64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share.clamp(0.0, 1.0) * width as f64 * 8.0).round() as usize;
    let eighths = if share > 0.0 { eighths.max(1) } else { 0 };
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
}

fn sources(out: &mut String, report: &Report) {
    if report.sources.len() < 2 {
        return;
    }
    let by_tokens = report.tokens.is_some();
    let unit = if by_tokens { "tokens" } else { "characters" };
    let _ = writeln!(out, "  sources, by {unit}");
    let size = |s: &crate::data::inspect::SourceShare| match by_tokens {
        true => s.tokens,
        false => s.characters,
    };
    let total: u64 = report.sources.iter().map(size).sum();
    for source in report.sources.iter().take(SOURCES) {
        let share = size(source) as f64 / total.max(1) as f64;
        let _ = writeln!(
            out,
            "    {:<26} {:<16} {:>5.1} %  {:>9} {}",
            fit(&one_line(&source.name), 26),
            bar(share, 16),
            100.0 * share,
            grouped(source.rows),
            if source.rows == 1 { "row" } else { "rows" },
        );
    }
    if report.sources.len() > SOURCES {
        let _ = writeln!(out, "    and {} more", report.sources.len() - SOURCES);
    }
    out.push('\n');
}

/// The end of a long path identifies it better than its beginning.
fn fit(name: &str, width: usize) -> String {
    let n = name.chars().count();
    if n <= width {
        return name.to_string();
    }
    let tail: String = name.chars().skip(n - width + 1).collect();
    format!("…{tail}")
}

fn vocabulary(out: &mut String, tokens: &Tokens) {
    let word = |token: &TokenCount| {
        let share = token.count as f64 / tokens.total.max(1) as f64;
        format!("{} {}", visible(&token.text), percent(share, 1))
    };
    let top: Vec<String> = tokens.top.iter().take(12).map(word).collect();
    let _ = writeln!(out, "  most frequent tokens");
    items(out, 4, &top);
    if !tokens.specials.is_empty() {
        let special = |t: &TokenCount| format!("{} {}", visible(&t.text), grouped(t.count));
        let specials: Vec<String> = tokens.specials.iter().map(special).collect();
        let _ = writeln!(out, "  special tokens");
        items(out, 4, &specials);
    }
    out.push('\n');
}

/// Items side by side, wrapped between items.
fn items(out: &mut String, indent: usize, items: &[String]) {
    let mut column = 0;
    for item in items {
        let width = item.width() + 3;
        if column > 0 && indent + column + width > WIDTH {
            out.push('\n');
            column = 0;
        }
        if column == 0 {
            out.push_str(&" ".repeat(indent));
        }
        let _ = write!(out, "{item}   ");
        column += width;
    }
    out.push('\n');
}

/// A token's text with whitespace made visible; one that is a partial character is a dot.
pub fn visible(text: &str) -> String {
    let marked = text.replace(' ', "␣").replace('\n', "⏎").replace('\t', "→");
    match one_line(&marked) {
        text if text.is_empty() => "·".into(),
        text => text,
    }
}

fn findings(out: &mut String, report: &Report) {
    match report.findings.len() {
        0 => out.push_str("  no problems found\n"),
        _ => out.push_str("  findings, worst first\n"),
    }
    let folder = common_folder(report);
    for finding in &report.findings {
        one(out, finding, &folder);
    }
    if !report.passed.is_empty() {
        let passed: Vec<String> = report.passed.iter().map(|t| lower(t)).collect();
        out.push_str("\n  none of these\n");
        wrapped(out, 4, &passed.join(" · "));
    }
    if !report.limits.is_empty() {
        out.push_str("\n  notes\n");
        for limit in &report.limits {
            wrapped(out, 4, &one_line(limit));
        }
    }
}

/// The common folder of all sources, with its slash: omitted from each line.
fn common_folder(report: &Report) -> String {
    let mut names = report.sources.iter().map(|s| s.name.as_str());
    let folder = |name: &str| name.rfind('/').map_or(0, |at| at + 1);
    let Some(first) = names.next() else {
        return String::new();
    };
    let mut common = &first[..folder(first)];
    for name in names {
        while !name.starts_with(common) {
            common = &common[..folder(common.trim_end_matches('/'))];
        }
    }
    common.to_string()
}

/// A title inside a sentence; abbreviations stay upper-case.
fn lower(title: &str) -> String {
    let mut letters = title.chars();
    letters.next().map_or(String::new(), |first| {
        first.to_lowercase().chain(letters).collect()
    })
}

fn one(out: &mut String, finding: &RowsFinding, folder: &str) {
    let word = match finding.severity {
        Severity::Problem => "PROBLEM",
        Severity::Warning => "warning",
        Severity::Note => "note",
    };
    let rows = counted(finding.rows, "row");
    let share = format!("{rows}, {}", percent(finding.share, 1));
    let gap = WIDTH.saturating_sub(11 + finding.title.width() + share.width());
    let _ = writeln!(
        out,
        "\n  {word:<9}{}{}{share}",
        finding.title,
        " ".repeat(gap.max(2))
    );
    if !finding.evidence.is_empty() {
        wrapped(out, 11, &one_line(&finding.evidence.to_string()));
    }
    for hit in finding.examples.iter().take(EXAMPLES) {
        let place = hit.place.strip_prefix(folder).unwrap_or(&hit.place);
        wrapped(
            out,
            11,
            &format!("{}  {}", fit(&one_line(place), 40), one_line(&hit.what)),
        );
    }
    let more = finding.rows.saturating_sub(EXAMPLES as u64);
    if more > 0 {
        let _ = writeln!(out, "           and {} more", grouped(more));
    }
    labelled(out, "why", &finding.cause);
    labelled(out, "fix", &finding.fix);
}

fn labelled(out: &mut String, label: &str, words: &str) {
    let mut text = String::new();
    wrapped(&mut text, 16, words);
    let _ = writeln!(out, "           {label}  {}", text.trim());
}

/// Word wrap with indentation, within the page.
pub fn wrapped(out: &mut String, indent: usize, words: &str) {
    let blanks = " ".repeat(indent);
    for line in wrap(words, WIDTH, &blanks, &blanks) {
        let _ = writeln!(out, "{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::inspect::{Inspector, Lengths, Options};
    use crate::data::{Content, Example, Place};

    fn report(texts: &[&str]) -> Report {
        let options = Options {
            name: "a.jsonl".into(),
            ..Options::default()
        };
        let mut inspector = Inspector::new(options, None);
        inspector.set_format("plain text");
        for (i, text) in texts.iter().enumerate() {
            let file = if i % 3 == 0 { "b.jsonl" } else { "a.jsonl" };
            let place = Place {
                file: file.into(),
                row: i as u64 + 1,
            };
            let example = Example::new(Content::Text((*text).into()));
            let row = inspector.measure().row(place, file.into(), example);
            inspector.observe(Ok(row));
        }
        inspector.finish().0
    }

    #[test]
    fn the_page_stays_within_its_columns_and_steers_no_terminal() {
        let long = "word ".repeat(300);
        let page = page(&report(&["one", "one", "esc \u{1b}[2J", "", &long, "two"]));
        for line in page.lines() {
            assert!(line.width() <= WIDTH, "{} columns: {line}", line.width());
        }
        assert!(!page.contains('\u{1b}'));
        for words in [
            "a.jsonl\n\n  rows                  6   plain text",
            "Exact duplicates",
            "a.jsonl:2  the same as b.jsonl:1",
            "a.jsonl:3  U+001B",
            "characters per row",
            "set --tokenizer",
            "sources",
            "none of these",
        ] {
            assert!(page.contains(words), "lacks {words}:\n{page}");
        }
    }

    /// The longer sides of pairs stood where all tokens belong, and the share beside them was of something else.
    #[test]
    fn supervised_tokens_of_pairs_are_a_share_of_the_tokens_above() {
        let mut lengths = Lengths::default();
        [60, 40].iter().for_each(|tokens| lengths.add(*tokens));
        let mut report = report(&["one", "two"]);
        report.tokens = Some(Tokens {
            view: "letters".into(),
            total: 160,
            supervised: 80,
            seq_len: None,
            over_seq_len: None,
            vocab_size: 10,
            used: 5,
            top: Vec::new(),
            specials: Vec::new(),
            lengths: lengths.into(),
        });
        let text = page(&report);
        assert!(text.contains("160   longer side: median"), "{text}");
        assert!(text.contains("80   50.0 %"), "{text}");
        // Of prompts none count, and nothing is wrong with that.
        report.tokens.iter_mut().for_each(|t| t.supervised = 0);
        assert!(!page(&report).contains("supervised"));
    }

    #[test]
    fn an_empty_set_is_not_a_good_one() {
        let page = page(&report(&[]));
        assert!(page.contains("it is empty"), "{page}");
        assert!(!page.contains("no problems found"), "{page}");
    }

    #[test]
    fn bars_are_as_long_as_their_share_and_something_is_never_nothing() {
        assert_eq!(bar(0.5, 4), "██");
        assert_eq!(bar(0.0, 4), "");
        assert_eq!(bar(1e-9, 4), "▏");
        assert_eq!(bar(7.0, 2), "██");
    }

    #[test]
    fn blanks_of_tokens_are_visible() {
        assert_eq!(visible(" the"), "␣the");
        assert_eq!(visible("\n\n"), "⏎⏎");
        assert_eq!(visible(""), "·");
    }
}
