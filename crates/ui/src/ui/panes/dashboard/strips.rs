//! The lines and boxes around the charts: progress, health, sample, log, and the result of a finished run.

use super::catalog::held_out;
use super::glance::{Glance, outcome_mark};
use super::health;
use crate::base::clock::UnixMillis;
use crate::base::finding::Status;
use crate::base::human;
use crate::base::text::one_line;
use crate::base::turns::question;
use crate::diagnosis::{Diagnosis, Verdict};
use crate::run::RunState;
use crate::run::state::{CheckpointMark, Evaluation, Finish, Level, LogLine, Sample, outcome_word};
use crate::ui::layout::{cut, split_top};
use crate::ui::panes::batch::is_refuted;
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::frame;
use crate::ui::widgets::text::{self, Word, word};
use crate::ui::widgets::{bar, finding};
use crate::wire::{Outcome, Phase, id};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use std::time::Duration;

/// Columns that the progress bar keeps whatever else there is to say.
const MIN_BAR: usize = 10;
/// Columns of a check's title.
const CHECK: usize = 24;

/// `step 1,240 / 2,000  ━━━━╺━━━  62 %  0:38 left …`
pub fn progress(buffer: &mut Buffer, area: Rect, glance: &Glance, theme: &Theme) {
    let inner = area.width.saturating_sub(2);
    let x = text::draw(buffer, area.x + 1, area.y, inner, &glance.step, theme);
    let room = usize::from(area.right().saturating_sub(x + 1));
    let mut right: Vec<Word> = Vec::new();
    for part in &glance.parts {
        if text::width(&right) + text::width(part) + 2 + MIN_BAR > room {
            break;
        }
        right.push(word("  ", Meaning::Muted));
        right.extend(part.iter().cloned());
    }
    let width = room.saturating_sub(text::width(&right) + 2) as u16;
    let share = glance.progress.filter(|_| width >= 4);
    if let Some(share) = share.filter(|_| !glance.parts.is_empty()) {
        bar::progress(buffer, x + 2, area.y, width, share, Meaning::Accent, theme);
    }
    text::draw_right(buffer, area.right() - 1, area.y, room as u16, &right, theme);
}

pub(super) fn opening(state: &RunState) -> &'static str {
    match state.last_seq {
        0 => "No data yet.",
        _ if state.phase == Some(Phase::Queued) => {
            "Two runs at a time would share processors and memory. Then it reads its data and trains."
        }
        _ if state.is_foreign() && state.step == 0 => {
            "Another program trains this run: its log has no step with metrics yet."
        }
        _ if state.is_foreign() => {
            "Another program trains this run: too little data for a verdict yet."
        }
        _ => "Reading data, building the model, checking both; then it trains.",
    }
}

/// The newest sample, its line breaks kept where there is room for them.
pub fn sample(buffer: &mut Buffer, area: Rect, state: &RunState, theme: &Theme) {
    let inner = frame::with_padding(area);
    if let Some((asked, answer)) = state.samples.back().and_then(answered)
        && area.height >= 2
    {
        let dots = theme.glyphs().ellipsis;
        let asked = vec![word(cut(&asked, inner.width.into(), dots), Meaning::Muted)];
        text::draw(buffer, inner.x, inner.y, inner.width, &asked, theme);
        let (_, below) = split_top(inner, 1);
        text::paragraph(buffer, below, &answer, Meaning::Text, theme);
        return;
    }
    let (words, meaning) = match state.samples.back() {
        Some(sample) if area.height >= 3 => (whole(sample), Meaning::Text),
        Some(sample) => (flowing(sample), Meaning::Text),
        None if state.is_foreign() => (
            "Another program trains this run: its log has no samples.".into(),
            Meaning::Muted,
        ),
        None if state.finished.is_some() => (
            "This run has ended without a sample of what its model generates.".into(),
            Meaning::Muted,
        ),
        None => (
            "Samples appear here; ask for one at any time.".into(),
            Meaning::Muted,
        ),
    };
    text::paragraph(buffer, inner, &words, meaning, theme);
}

fn whole(sample: &Sample) -> String {
    without_empty_lines(&format!("{}{}", sample.prompt, sample.said()))
}

/// Verse is full of empty lines; the box is small.
fn without_empty_lines(text: &str) -> String {
    let lines = text.lines().map(str::trim);
    lines
        .filter(|l| !l.is_empty())
        .collect::<Vec<&str>>()
        .join("\n")
}

/// Of a prompt in a chat template: the question in one line, and the answer.
fn answered(sample: &Sample) -> Option<(String, String)> {
    let asked = one_line(&question(&sample.prompt)?);
    Some((asked, without_empty_lines(sample.said())))
}

fn flowing(sample: &Sample) -> String {
    one_line(&whole(sample))
}

/// `sample 1,000  KING RICHARD: What say'st thou …`
pub fn sample_line(buffer: &mut Buffer, area: Rect, state: &RunState, theme: &Theme) {
    let words = match state.samples.back() {
        Some(sample) => {
            let step = format!("sample {}  ", human::grouped(sample.step));
            let mut words = vec![word(step, Meaning::Muted)];
            match answered(sample) {
                Some((asked, answer)) => {
                    // The answer is what changes.
                    let room = usize::from(area.width) / 3;
                    let asked = cut(&asked, room, theme.glyphs().ellipsis);
                    words.push(word(format!("{asked}  "), Meaning::Muted));
                    words.push(word(one_line(&answer), Meaning::Text));
                }
                None => words.push(word(flowing(sample), Meaning::Text)),
            }
            words
        }
        None => match state.log.back() {
            Some(line) => vec![word(line.text.clone(), Meaning::Muted)],
            None => Vec::new(),
        },
    };
    text::draw(
        buffer,
        area.x + 1,
        area.y,
        area.width.saturating_sub(2),
        &words,
        theme,
    );
}

/// The newest lines at the bottom, `back` lines scrolled away.
pub fn log(
    buffer: &mut Buffer,
    area: Rect,
    state: &RunState,
    back: usize,
    utc_offset: i64,
    theme: &Theme,
) {
    let end = state.log.len().saturating_sub(back);
    let start = end.saturating_sub(usize::from(area.height));
    for (row, line) in state.log.range(start..end).enumerate() {
        let words = log_words(line, utc_offset);
        text::draw(
            buffer,
            area.x + 1,
            area.y + row as u16,
            area.width.saturating_sub(2),
            &words,
            theme,
        );
    }
}

fn log_words(line: &LogLine, utc_offset: i64) -> Vec<Word> {
    let meaning = match line.level {
        Level::Info => Meaning::Text,
        Level::Good => Meaning::Good,
        Level::Warn => Meaning::Warn,
        Level::Bad => Meaning::Bad,
    };
    vec![
        word(
            format!("{}  ", time_of_day(line.t, utc_offset)),
            Meaning::Muted,
        ),
        word(line.text.clone(), meaning),
    ]
}

/// `10:41:07`, `utc_offset` seconds east of Greenwich.
fn time_of_day(t: UnixMillis, utc_offset: i64) -> String {
    let seconds = (t.0 / 1000).saturating_add_signed(utc_offset) % 86_400;
    format!(
        "{:02}:{:02}:{:02}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    )
}

/// The preflight checks as they come in, where the first chart will be; above them, why the run ended before its first step.
pub fn checks(buffer: &mut Buffer, area: Rect, state: &RunState, theme: &Theme) {
    let (x, width) = (area.x + 2, area.width.saturating_sub(4));
    let (heading, meaning) = match early_end(state) {
        Some(finish) => (
            finish.message.as_str(),
            outcome_mark(finish.outcome, theme.glyphs()).1,
        ),
        None => (opening(state), Meaning::Muted),
    };
    let inner = Rect { x, width, ..area };
    let taken = 1 + text::paragraph(buffer, inner, heading, meaning, theme);
    let room = usize::from(area.height.saturating_sub(taken));
    let now = state.checking().map(|title| {
        let mark = theme.glyphs().beside_numbers(theme.glyphs().ellipsis);
        vec![word(format!("{mark} {title}"), Meaning::Muted)]
    });
    let rows = state.checks.len() + usize::from(now.is_some());
    let made = state.checks.iter();
    let made = made.map(|check| finding::row(check, CHECK, theme));
    let shown = made.chain(now).skip(rows.saturating_sub(room));
    for (words, y) in shown.zip(area.y + taken..area.bottom()) {
        text::draw(buffer, x, y, width, &words, theme);
    }
}

/// How a run ended that made no step, where its end has a reason.
pub(super) fn early_end(state: &RunState) -> Option<&Finish> {
    let finish = state.finished.as_ref();
    finish.filter(|finish| state.step == 0 && !finish.message.is_empty())
}

/// What a finished run leaves: outcome and reason, verdict, loss, checkpoint, what to do next.
pub fn result(
    buffer: &mut Buffer,
    area: Rect,
    state: &RunState,
    finish: &Finish,
    diagnosis: &Diagnosis,
    theme: &Theme,
) {
    let inner = frame::with_padding(area);
    let (glyph, meaning) = outcome_mark(finish.outcome, theme.glyphs());
    let outcome = format!("{glyph} {} ", outcome_word(finish.outcome));
    let spent = Duration::try_from_secs_f64(state.seconds).unwrap_or_default();
    let at = match spent.as_secs() {
        0 => format!("at step {}", human::grouped(finish.step)),
        _ => format!(
            "at step {} in {}",
            human::grouped(finish.step),
            human::duration(spent)
        ),
    };
    let head = vec![word(outcome, meaning), word(at, Meaning::Text)];
    let tail = result_facts(state, finish, diagnosis, theme);
    let row = |y: u16| Rect {
        y: inner.y + y,
        height: inner.height.saturating_sub(y),
        ..inner
    };
    let mut y = 0;
    if inner.height > y {
        text::draw(buffer, inner.x, row(y).y, inner.width, &head, theme);
        y += 1;
    }
    let reason = Rect {
        height: row(y).height.saturating_sub(tail.len() as u16),
        ..row(y)
    };
    y += text::paragraph(buffer, reason, &finish.message, meaning, theme);
    for words in tail.iter().take(usize::from(row(y).height)) {
        text::draw(buffer, inner.x, row(y).y, inner.width, words, theme);
        y += 1;
    }
}

/// The lines below the reason, one fact each.
fn result_facts(
    state: &RunState,
    finish: &Finish,
    diagnosis: &Diagnosis,
    theme: &Theme,
) -> Vec<Vec<Word>> {
    let label = |text: &str| word(format!("{text:<11} "), Meaning::Muted);
    let mut tail = Vec::new();
    let lost = !matches!(finish.outcome, Outcome::Completed | Outcome::Stopped);
    // A failure speaks for itself: that it learned until then is no comfort.
    if !lost || diagnosis.verdict.status() <= Status::Warn {
        tail.push(health::verdict(diagnosis, theme));
    }
    if let Some(loss) = finish.loss() {
        let mut words = vec![
            label("val loss"),
            word(human::number(loss), Meaning::Validation),
        ];
        if let Some(ppl) = perplexity(state, loss) {
            words.push(word("  perplexity ", Meaning::Muted));
            words.push(word(human::number(ppl), Meaning::Validation));
        }
        words.push(word(best_words(state, loss), Meaning::Muted));
        tail.push(words);
    }
    if let Some(best) = finish.best.as_ref().filter(|b| b.metric != id::VAL_LOSS) {
        let (name, value) = held_out(state, &best.metric, best.value.0);
        let value = format!("{value} at {}", human::grouped(best.step));
        let name = word(format!("  {name}"), Meaning::Muted);
        tail.push(vec![label("best"), word(value, Meaning::Validation), name]);
    }
    if let Some(kept) = best_checkpoint(state) {
        tail.push(vec![
            label("checkpoint"),
            word(kept.to_string(), Meaning::Text),
        ]);
    }
    tail.push(vec![
        label("next"),
        word(next(state, finish.outcome, diagnosis), Meaning::Accent),
    ]);
    tail
}

pub(super) fn result_line(
    state: &RunState,
    finish: &Finish,
    diagnosis: &Diagnosis,
    theme: &Theme,
) -> Vec<Word> {
    let (glyph, meaning) = outcome_mark(finish.outcome, theme.glyphs());
    // The newest that happened to it; how it stands is said above.
    if let Some(refused) = &state.refused {
        let told = format!("not resumed: {}", one_line(&refused.message));
        let mark = word(format!("{} ", theme.glyphs().warn), Meaning::Warn);
        return vec![mark, word(told, Meaning::Warn)];
    }
    let mut words = vec![word(format!("{glyph} "), meaning)];
    // A failure speaks for itself, as does too little data.
    let lost = !matches!(finish.outcome, Outcome::Completed | Outcome::Stopped);
    if !lost && diagnosis.verdict != Verdict::TooEarly {
        words.extend(health::verdict(diagnosis, theme).into_iter().nth(1));
        let word = words.last_mut();
        word.into_iter()
            .for_each(|word| word.text = word.text.trim_start().into());
    }
    // What ended a run before its first step stands above in full.
    if !finish.message.is_empty() && early_end(state).is_none() {
        words.push(word(one_line(&finish.message), meaning));
        return words;
    }
    words.extend(kept_words(state, finish));
    words.push(word(
        next(state, finish.outcome, diagnosis),
        Meaning::Accent,
    ));
    words
}

/// `reward accuracy 81.2 % checkpoints/step-000250`: what is left of the run, with the reading of that step.
fn kept_words(state: &RunState, finish: &Finish) -> Vec<Word> {
    let kept = best_mark(state);
    // Older engines sent no step.
    let best = finish.best.as_ref().filter(|best| best.step > 0);
    let of_kept = |step: u64| kept.is_none_or(|kept| kept.step == step);
    let measured = |step: u64| state.evaluations.iter().rev().find(|e| e.step == step);
    let (name, value) = match (best, kept) {
        (Some(best), _) if best.metric != id::VAL_LOSS && of_kept(best.step) => {
            (best.metric.as_str(), Some(best.value.0))
        }
        (_, Some(kept)) => {
            let loss = kept
                .val_loss
                .or(measured(kept.step).map(Evaluation::val_loss));
            let last = finish.loss().filter(|_| kept.step == finish.step);
            ("val loss", last.or(loss))
        }
        (_, None) => ("val loss", finish.loss()),
    };
    let mut words = Vec::new();
    if let Some(value) = value {
        let (name, value) = match name {
            "val loss" => (name.to_string(), human::number(value)),
            metric => held_out(state, metric, value),
        };
        words.push(word(format!("{name} "), Meaning::Muted));
        words.push(word(format!("{value}  "), Meaning::Validation));
    }
    if let Some(kept) = kept {
        words.push(word(format!("{}  ", kept.path), Meaning::Text));
    }
    words
}

/// e^loss, where the run measured it: of a preference loss it means nothing.
fn perplexity(state: &RunState, loss: f64) -> Option<f64> {
    let measured = state.measures_perplexity();
    measured.then(|| loss.exp()).filter(|ppl| ppl.is_finite())
}

/// The best loss on the way, when it is not the last one. Where that one read more rows, it says which the best one read.
fn best_words(state: &RunState, last: f64) -> String {
    let other = state.best_on_other_rows();
    if let Some(other) = other.filter(|other| other.best.metric == id::VAL_LOSS) {
        let last = other.last_on_same.map_or_else(String::new, |value| {
            format!(
                ", {} at {}",
                human::number(value),
                human::grouped(other.step)
            )
        });
        return format!(
            "  best on {}: {} at {}{last}",
            other.of(other.rows),
            human::number(other.best.value.0),
            human::grouped(other.best.step)
        );
    }
    let best = state.best_evaluation().filter(|e| e.val_loss() < last);
    best.map_or(String::new(), |e| {
        format!(
            "  best {} at {}",
            human::number(e.val_loss()),
            human::grouped(e.step)
        )
    })
}

/// The best checkpoint by the method's reading, else the newest.
fn best_mark(state: &RunState) -> Option<&CheckpointMark> {
    // Older engines sent no step.
    let best = state.finished.as_ref().and_then(|f| f.best.as_ref());
    let step = best.map(|best| best.step).filter(|step| *step > 0);
    let mut marks = state.checkpoints.iter().rev();
    let chosen = step.and_then(|step| marks.find(|c| c.step == step));
    let marked = || state.checkpoints.iter().rev().find(|c| c.best);
    chosen.or_else(marked).or(state.checkpoints.last())
}

fn best_checkpoint(state: &RunState) -> Option<&str> {
    best_mark(state).map(|c| c.path.as_str())
}

fn next(state: &RunState, outcome: Outcome, diagnosis: &Diagnosis) -> &'static str {
    match outcome {
        _ if state.is_foreign() => "see the files of its own program",
        // What learned nothing is of no use to anyone: it is trained anew, not used and not trained on.
        _ if state.step > 0 && diagnosis.verdict.status() == Status::Fail => {
            let mut advised = diagnosis.advice().map(|finding| finding.changes());
            match advised.any(|settings| !is_refuted(state, &settings)) {
                true => "train again, as advised",
                false => "see what went wrong",
            }
        }
        // A reward model generates nothing.
        Outcome::Completed if state.judges() => "score completions: llmtui score",
        Outcome::Completed => "chat with it",
        _ if state.checkpoints.is_empty() => "try again, or change the spec",
        _ if state.judges() => "resume it, or score completions: llmtui score",
        _ => "resume it, or chat with it",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The loss of the last step stood beside the checkpoint that was best by its accuracy.
    #[test]
    fn the_kept_checkpoint_stands_with_its_own_reading() {
        let mark = |step: u64, loss: f64| CheckpointMark {
            t: UnixMillis(0),
            step,
            path: crate::run::checkpoints::path_in_run(step),
            bytes: 1,
            seconds: 0.1,
            best: step == 250,
            val_loss: Some(loss),
            by: None,
        };
        let mut state = RunState::new();
        state.checkpoints = [mark(250, 0.7178), mark(300, 0.6750)].into();
        let best = |metric: &str| crate::wire::Best {
            step: 250,
            metric: metric.into(),
            value: crate::wire::Num(0.8125),
            direction: crate::wire::Direction::Higher,
        };
        let words = |state: &mut RunState, best: Option<crate::wire::Best>| {
            let finish = Finish {
                t: UnixMillis(0),
                outcome: Outcome::Completed,
                step: 300,
                val_loss: Some(0.6750),
                best,
                train_loss: None,
                seconds: 1.0,
                message: String::new(),
            };
            state.finished = Some(finish.clone());
            let words = kept_words(state, &finish);
            words.into_iter().map(|w| w.text).collect::<String>()
        };
        let accuracy = words(&mut state, Some(best("val/rewards/accuracies")));
        assert_eq!(
            accuracy.trim(),
            "val/rewards/accuracies 0.8125  checkpoints/step-000250"
        );
        // By the name and in the unit of its chart, once that is declared.
        state.metrics.push(crate::wire::MetricInfo {
            id: "val/rewards/accuracies".into(),
            title: "Validation: reward accuracy".into(),
            unit: "share".into(),
            ..Default::default()
        });
        let accuracy = words(&mut state, Some(best("val/rewards/accuracies")));
        assert_eq!(
            accuracy.trim(),
            "reward accuracy 81.2 %  checkpoints/step-000250"
        );
        let unnamed = words(&mut state, None);
        assert_eq!(unnamed.trim(), "val loss 0.7178  checkpoints/step-000250");
    }

    #[test]
    fn a_log_of_another_program_is_told_no_preparation() {
        let mut state = RunState::new();
        assert_eq!(opening(&state), "No data yet.");
        state.last_seq = 5;
        assert!(opening(&state).starts_with("Reading data"));
        state.engine = "text".into();
        assert!(opening(&state).ends_with("no step with metrics yet."));
        state.step = 1;
        assert!(opening(&state).ends_with("too little data for a verdict yet."));
    }
}
