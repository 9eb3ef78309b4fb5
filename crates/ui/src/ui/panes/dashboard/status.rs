//! The status line: the run's result or its health, and its machine.

use super::glance::Glance;
use super::health::verdict;
use super::{machine, strips};
use crate::base::finding::Status;
use crate::base::human;
use crate::diagnosis::{Diagnosis, Verdict};
use crate::run::RunState;
use crate::ui::keymap::Keymap;
use crate::ui::layout::cut;
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::finding;
use crate::ui::widgets::text::{self, Word, word};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use unicode_width::UnicodeWidthStr;

/// The one line on how the run does: its result, or its verdict. `health_key` opens the pane with the warnings; `crashed` says that
/// the run has no engine, and what resumes it.
pub fn status(
    buffer: &mut Buffer,
    area: Rect,
    state: &RunState,
    (glance, health_key, crashed): (&Glance, &str, Option<&str>),
    theme: &Theme,
) {
    let diagnosis = &glance.diagnosis;
    let max = area.width.saturating_sub(2);
    let words = match &state.finished {
        Some(finish) if state.refused.is_some() => {
            strips::result_line(state, finish, diagnosis, theme)
        }
        // What it had learned by then is no comfort: nobody trains it.
        None if let Some(crashed) = crashed => vec![
            finding::mark(Status::Fail, theme),
            word(format!(" {crashed}"), Meaning::Bad),
        ],
        _ if diagnosis.verdict.status() <= Status::Warn => verdict(diagnosis, theme),
        // What another program made of it lies elsewhere; how it went is known.
        Some(finish) if state.is_foreign() && finish.message.is_empty() => {
            verdict(diagnosis, theme)
        }
        Some(finish) => strips::result_line(state, finish, diagnosis, theme),
        None => going(state, diagnosis, (max.into(), health_key), theme),
    };
    let end = text::draw(buffer, area.x + 1, area.y, max, &words, theme);
    let machine = machine::machine_line(state);
    text::draw_right(
        buffer,
        area.right() - 1,
        area.y,
        area.right().saturating_sub(end + 3),
        &machine,
        theme,
    );
}

/// Of a run whose engine wrote no end: `crashed at step 82: p resumes it from step 50`
pub fn crashed(state: &RunState, keymap: &Keymap) -> String {
    let at = human::grouped(state.step);
    let on = match state.checkpoints.last() {
        Some(kept) => format!(
            "{{pause}} resumes it from step {}",
            human::grouped(kept.step)
        ),
        None => "no checkpoint was saved, {pause} restarts it".into(),
    };
    keymap.fill(&format!("crashed at step {at}: {on}"))
}

/// How a run that is not over does: its verdict, and how many warnings there are beside it.
fn going(
    state: &RunState,
    diagnosis: &Diagnosis,
    (columns, health_key): (usize, &str),
    theme: &Theme,
) -> Vec<Word> {
    let Some(worst) = diagnosis.worst() else {
        return vec![word(strips::opening(state), Meaning::Muted)];
    };
    match diagnosis.verdict == Verdict::TooEarly {
        // Nothing can be said of it yet: what was looked at, or what is doubtful.
        true if worst.status <= Status::Warn => finding::row(worst, 0, theme),
        true => calm(diagnosis, theme),
        false => with_warnings(diagnosis, (columns, health_key), theme),
    }
}

/// Findings of checks before the first step, and of the log: they stay for the whole run.
const LASTING: [&str; 2] = ["preflight", "warnings"];

/// `✓ LEARNING  ! gradient norm 9 times its baseline …` while a rule on the training warns, else
/// `✓ LEARNING  train loss 3.21 to 1.59 … · 1 warning (9)`: the verdict's sentence is cut, not the warnings.
fn with_warnings(
    diagnosis: &Diagnosis,
    (columns, health_key): (usize, &str),
    theme: &Theme,
) -> Vec<Word> {
    let mut words = verdict(diagnosis, theme);
    let wrong = || {
        let findings = diagnosis.findings.iter();
        findings.filter(|f| f.status <= Status::Warn)
    };
    let n = wrong().count();
    if n == 0 {
        return words;
    }
    if let Some(now) = wrong().find(|f| !LASTING.contains(&f.id.as_str())) {
        words.pop();
        words.extend(finding::row(now, 0, theme));
        return words;
    }
    let glyphs = theme.glyphs();
    let n = human::counted(n as u64, "warning");
    let key = match health_key {
        "" => String::new(),
        key => format!(" ({key})"),
    };
    let warnings = word(format!(" {} {n}{key}", glyphs.separator), Meaning::Warn);
    let room = columns.saturating_sub(warnings.text.width());
    if let Some(sentence) = words.pop() {
        let room = room.saturating_sub(text::width(&words));
        let sentence_cut = cut(&sentence.text, room, glyphs.ellipsis);
        words.push(word(sentence_cut, sentence.meaning));
    }
    words.push(warnings);
    words
}

/// Nothing is wrong so far: say what was looked at.
fn calm(diagnosis: &Diagnosis, theme: &Theme) -> Vec<Word> {
    match diagnosis.findings.last() {
        Some(found) => finding::row(found, 0, theme),
        None => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::finding::Finding;
    use crate::diagnosis::diagnose;

    /// `✓ LEARNING ✗ engine crashed at step 82: its log has no end and no pr…`
    #[test]
    fn of_a_run_without_an_engine_its_death_and_the_key_that_resumes_it_stand_there() {
        let (area, theme) = (Rect::new(0, 0, 80, 1), Theme::ansi());
        let mut state = RunState::from_events(&crate::ui::tape::until(5, 82));
        state.orphan();
        let mut buffer = Buffer::empty(area);
        let mut glance = Glance::default();
        glance.diagnosis = diagnose(&state);
        let crashed = crashed(&state, &Keymap::embedded());
        let about = (&glance, "9", Some(crashed.as_str()));
        status(&mut buffer, area, &state, about, &theme);
        let row: String = (0..80).map(|x| buffer[(x, 0)].symbol()).collect();
        assert!(
            row.contains("crashed at step 80: no checkpoint was saved, p restarts it"),
            "{row}"
        );
        assert!(!row.contains("LEARNING"), "{row}");
    }

    fn row(diagnosis: Diagnosis) -> String {
        let (area, theme) = (Rect::new(0, 0, 80, 1), Theme::ansi());
        let mut buffer = Buffer::empty(area);
        let mut glance = Glance::default();
        glance.diagnosis = diagnosis;
        status(
            &mut buffer,
            area,
            &RunState::new(),
            (&glance, "9", None),
            &theme,
        );
        (0..80).map(|x| buffer[(x, 0)].symbol()).collect()
    }

    /// A warning of the checks before the first step stood in the place of the verdict for the whole run.
    #[test]
    fn the_verdict_leads_and_warnings_are_counted_behind_it() {
        let warned = |id: &str| Finding {
            status: Status::Warn,
            ..Finding::pass("12 rows are longer than the context").named(id, "rows")
        };
        let mut diagnosis = Diagnosis {
            verdict: Verdict::Learning,
            summary: "train loss 4.17 to 1.59 and falling, ".repeat(3),
            findings: vec![warned("preflight")],
            ..diagnose(&RunState::new())
        };
        let one = row(diagnosis.clone());
        assert!(one.contains("LEARNING  train loss 4.17"), "{one}");
        assert!(one.trim_end().ends_with("1 warning (9)"), "{one}");
        diagnosis.findings.push(warned("warnings"));
        let two = row(diagnosis.clone());
        assert!(two.trim_end().ends_with("2 warnings (9)"), "{two}");
        diagnosis.findings.push(warned("gradient_spike"));
        let live = row(diagnosis.clone());
        assert!(
            live.contains("LEARNING") && live.contains("rows are longer"),
            "{live}"
        );
        diagnosis.findings.pop();
        diagnosis.verdict = Verdict::TooEarly;
        assert!(row(diagnosis).contains("longer than the context"));
    }
}
