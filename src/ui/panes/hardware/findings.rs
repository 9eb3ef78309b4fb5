//! What the doctor found, worst first: evidence, cause, fix where there is room, one line each where there is not.

use crate::base::text::one_line;
use crate::hardware::doctor::{Finding, Status};
use crate::ui::machine_view::MachineView;
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::text::{self, Word, word, wrap};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// Below this height every finding has one line.
const ROWS_FOR_WORDS: u16 = 8;
const INDENT: u16 = 2;
/// Lines that one text may take.
const MAX_WRAPPED: usize = 9;

fn mark(status: Status, theme: &Theme) -> Word {
    let glyphs = theme.glyphs();
    match status {
        Status::Fail => word(glyphs.bad, Meaning::Bad),
        Status::Warn => word(glyphs.warn, Meaning::Warn),
        Status::Unknown => word("?", Meaning::Muted),
        Status::Pass => word(glyphs.ok, Meaning::Good),
        Status::NotApplicable => word(glyphs.separator, Meaning::Muted),
    }
}

fn meaning(status: Status) -> Meaning {
    match status {
        Status::Fail => Meaning::Bad,
        Status::Warn => Meaning::Warn,
        _ => Meaning::Text,
    }
}

/// ` doctor · 1 fail · 2 warnings · 28 pass `
pub fn title(view: &MachineView, theme: &Theme) -> Vec<Word> {
    let mut words = vec![word(" doctor ", Meaning::Title)];
    let counted = [
        (Status::Fail, ["fail", "fail"], Meaning::Bad),
        (Status::Warn, ["warning", "warnings"], Meaning::Warn),
        (Status::Unknown, ["unknown", "unknown"], Meaning::Muted),
        (Status::Pass, ["pass", "pass"], Meaning::Good),
    ];
    for (status, names, meaning) in counted {
        let n = view.count(status);
        if n > 0 {
            let name = names[usize::from(n > 1)];
            words.push(word(
                format!("{} ", theme.glyphs().separator),
                Meaning::Muted,
            ));
            words.push(word(format!("{n} {name} "), meaning));
        }
    }
    words
}

/// Every line of the list, `width` columns wide: troubles in full, then what passes in a line each. What does not apply is
/// left out.
fn lines(findings: &[Finding], width: u16, theme: &Theme) -> Vec<Vec<Word>> {
    let mut lines: Vec<Vec<Word>> = Vec::new();
    for finding in findings.iter().filter(|f| f.status < Status::Pass) {
        lines.push(vec![
            mark(finding.status, theme),
            word(format!(" {}", finding.title), meaning(finding.status)),
        ]);
        for (label, words, meaning) in [
            ("", &finding.evidence, Meaning::Text),
            ("why ", &finding.cause, Meaning::Muted),
            ("fix ", &finding.fix, Meaning::Accent),
        ] {
            lines.extend(labelled(label, words, meaning, width, theme));
        }
        lines.push(Vec::new());
    }
    lines.extend(
        findings
            .iter()
            .filter(|f| f.status == Status::Pass)
            .map(|finding| {
                vec![
                    mark(finding.status, theme),
                    word(format!(" {}  ", finding.title), Meaning::Text),
                    word(one_line(&finding.evidence), Meaning::Muted),
                ]
            }),
    );
    lines
}

/// Wrapped words behind a label, set in by two columns.
fn labelled(
    label: &str,
    words: &str,
    meaning: Meaning,
    width: u16,
    theme: &Theme,
) -> Vec<Vec<Word>> {
    if words.is_empty() {
        return Vec::new();
    }
    let columns = usize::from(width.saturating_sub(INDENT)).saturating_sub(label.len());
    wrap(&one_line(words), columns, MAX_WRAPPED, theme.ascii)
        .into_iter()
        .enumerate()
        .map(|(i, line)| {
            let lead = if i == 0 { label } else { "" };
            let lead = format!(
                "{:indent$}{lead:<w$}",
                "",
                indent = usize::from(INDENT),
                w = label.len()
            );
            vec![word(lead, Meaning::Muted), word(line, meaning)]
        })
        .collect()
}

/// `! Shared memory  /dev/shm has 64 MiB → start the container with …`
fn short(finding: &Finding, theme: &Theme) -> Vec<Word> {
    let mut words = vec![
        mark(finding.status, theme),
        word(format!(" {}  ", finding.title), meaning(finding.status)),
        word(one_line(&finding.evidence), Meaning::Text),
    ];
    if !finding.fix.is_empty() && finding.status <= Status::Warn {
        words.push(word(
            format!("  fix: {}", one_line(&finding.fix)),
            Meaning::Accent,
        ));
    }
    words
}

/// Draws the list, `scroll` lines scrolled away; returns how far it can be scrolled.
pub fn draw(
    buffer: &mut Buffer,
    area: Rect,
    view: &MachineView,
    scroll: usize,
    theme: &Theme,
) -> usize {
    let all: Vec<Vec<Word>> = match area.height < ROWS_FOR_WORDS {
        true => {
            let shown = view.findings.iter().filter(|f| f.status <= Status::Pass);
            shown.map(|finding| short(finding, theme)).collect()
        }
        false => lines(&view.findings, area.width, theme),
    };
    let most = all.len().saturating_sub(usize::from(area.height));
    let visible = all
        .iter()
        .skip(scroll.min(most))
        .take(usize::from(area.height));
    for (words, y) in visible.zip(area.y..) {
        text::draw(buffer, area.x, y, area.width, words, theme);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(status: Status) -> Finding {
        Finding {
            id: "x",
            title: "A check",
            status,
            evidence: "what was seen is told in words that need two lines".into(),
            cause: "because".into(),
            fix: "do this".into(),
        }
    }

    #[test]
    fn troubles_come_in_full_and_what_does_not_apply_not_at_all() {
        let findings = [
            finding(Status::Warn),
            finding(Status::Pass),
            finding(Status::NotApplicable),
        ];
        let text: Vec<String> = lines(&findings, 30, &Theme::ansi())
            .iter()
            .map(|words| words.iter().map(|w| w.text.as_str()).collect())
            .collect();
        assert_eq!(text[0], "! A check");
        assert_eq!(
            &text[1..3],
            ["  what was seen is told in", "  words that need two lines"]
        );
        assert_eq!(&text[3..6], ["  why because", "  fix do this", ""]);
        assert_eq!(text.len(), 7);
    }
}
