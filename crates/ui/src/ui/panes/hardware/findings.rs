//! What the doctor found, worst first: evidence, cause, fix where there is room, one line each where there is not.

use crate::base::text::one_line;
use crate::hardware::doctor::{Finding, Status};
use crate::ui::machine_view::MachineView;
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::finding;
use crate::ui::widgets::text::{self, Word, word};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// Below this height every finding has one line.
const ROWS_FOR_WORDS: u16 = 8;

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
    for found in findings.iter().filter(|f| f.status < Status::Pass) {
        lines.extend(finding::full(found, width, theme));
        lines.push(Vec::new());
    }
    let passed = findings.iter().filter(|f| f.status == Status::Pass);
    lines.extend(passed.map(|found| {
        vec![
            finding::mark(found.status, theme),
            word(format!(" {}  ", found.title), Meaning::Text),
            word(one_line(&found.evidence.to_string()), Meaning::Muted),
        ]
    }));
    lines
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
            shown.map(|found| finding::short(found, theme)).collect()
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
        let evidence = "what was seen is told in words that need two lines";
        Finding {
            status,
            ..Finding::fail(evidence, "because", "do this").named("x", "A check")
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
