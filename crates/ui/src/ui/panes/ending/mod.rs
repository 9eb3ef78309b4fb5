//! How a run ended, on a page of its own: the outcome, the verdict, the best step and its figures, the newest sample, and
//! what to do next with its key and its command. Which figures there are follows from the readings that the method declares.

mod figures;
mod next;

use super::samples;
use crate::base::finding::Status;
use crate::base::human;
use crate::base::text::one_line;
use crate::diagnosis::{Diagnosis, diagnose};
use crate::metrics::id;
use crate::run::RunState;
use crate::run::index::option;
use crate::run::state::{Finish, outcome_word};
use crate::ui::keymap::Keymap;
use crate::ui::layout::wrap;
use crate::ui::msg::PipelineStatus;
use crate::ui::panes::dashboard::{name, outcome_mark, verdict};
use crate::ui::store::OpenRun;
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::frame::inside;
use crate::ui::widgets::text::{self, Word, word};
use crate::ui::widgets::{Lattice, finding};
use crate::wire::Outcome;
use next::Next;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use std::path::Path;

/// From here on there are boxes, and from there on a sample beside the next steps.
const BOXES: (u16, u16) = (60, 15);
const SAMPLE: (u16, u16) = (110, 24);
/// A run that has ended, and what drawing it needs.
pub struct Ending<'a> {
    held: &'a OpenRun,
    finish: &'a Finish,
    keymap: &'a Keymap,
    theme: &'a Theme,
    diagnosis: Diagnosis,
    /// What a command needs besides the run's name: where the runs lie, unless they lie where commands look.
    place: String,
}

/// The best evaluation of a run.
struct Top {
    metric: String,
    value: f64,
    step: u64,
}

/// Where the boxes lie.
struct Places {
    curve: Rect,
    result: Rect,
    steps: Rect,
    sample: Option<Rect>,
}

impl<'a> Ending<'a> {
    /// `None` while the run goes on.
    pub fn of(
        held: &'a OpenRun,
        runs_dir: &Path,
        keymap: &'a Keymap,
        theme: &'a Theme,
    ) -> Option<Ending<'a>> {
        Some(Ending {
            held,
            finish: held.state.finished.as_ref()?,
            keymap,
            theme,
            diagnosis: diagnose(&held.state),
            place: option(runs_dir),
        })
    }

    /// ```text
    ///  ✓ FINISHED  shakespeare-k3qf · pretrain · step 2,000 of 2,000 in 1:12
    ///  ✓ STABLE  train loss 4.17 → 1.764, val 1.886
    /// ┌ validation loss ───────────────────────┬ result ──────────────────────────┐
    /// │ ⡇                                      │ best         1.886 nats           │
    /// │ ⠑⠤⣀⣀⣀⣀⣀▼                                │ at step      1,750               │
    /// ├ next ──────────────────────────────────┴──────────────────────────────────┤
    /// │ 3    chat with it              llmtui chat shakespeare-k3qf                │
    /// └───────────────────────────────────────────────────────────────────────────┘
    /// ```
    pub fn draw(&self, buffer: &mut Buffer, area: Rect) {
        let area = area.intersection(buffer.area);
        let head = self.head(area.width);
        for (words, y) in head.iter().zip(area.y..area.bottom()) {
            let width = area.width.saturating_sub(2);
            text::draw(buffer, area.x + 1, y, width, words, self.theme);
        }
        let taken = (head.len() as u16).min(area.height);
        let body = Rect {
            y: area.y + taken,
            height: area.height - taken,
            ..area
        };
        match body.width < BOXES.0 || body.height < BOXES.1 {
            true => self.plain(buffer, body),
            false => self.boxes(buffer, body),
        }
    }

    /// Lines without boxes, where there is little room.
    fn plain(&self, buffer: &mut Buffer, body: Rect) {
        let complaints = self.failures_and_warnings(body.width.saturating_sub(2));
        let figures = match complaints.is_empty() {
            true => self.figures(body.width.saturating_sub(2)),
            false => complaints,
        };
        let below = Rect {
            height: body.height.saturating_sub(figures.len() as u16),
            ..body
        };
        let rows = self.rows(&self.next(), below);
        self.lines(buffer, body, figures.into_iter().chain(rows));
    }

    fn boxes(&self, buffer: &mut Buffer, body: Rect) {
        let (n_figures, next) = (self.figures(u16::MAX).len(), self.next());
        let places = self.places(body, n_figures as u16, &next);
        let mut lattice = Lattice::new(buffer.area);
        let all = [places.curve, places.result, places.steps];
        for outline in all.into_iter().chain(places.sample) {
            lattice.outline(outline);
        }
        lattice.draw(buffer, self.theme);
        match self.failures_and_warnings(places.curve.width.saturating_sub(4)) {
            complaints if complaints.is_empty() => self.curve(buffer, places.curve),
            complaints => self.boxed(buffer, places.curve, "checks", complaints),
        }
        let figures = self.figures(places.result.width.saturating_sub(4));
        self.boxed(buffer, places.result, "result", figures);
        let rows = self.rows(&next, inside(places.steps));
        self.boxed(buffer, places.steps, "next", rows);
        if let Some(outline) = places.sample {
            self.sample(buffer, outline);
        }
    }

    /// The outlines; neighbours share a border.
    fn places(&self, body: Rect, n_figures: u16, next: &[Next]) -> Places {
        let with_sample =
            body.width >= SAMPLE.0 && body.height >= SAMPLE.1 && !self.state().samples.is_empty();
        let upper = match with_sample {
            true => (body.height * 11 / 20).max(n_figures + 2),
            false => self.upper(body, n_figures, next),
        };
        let upper = upper.min(body.height);
        let left = match with_sample {
            true => body.width * 11 / 20,
            false => body.width * 27 / 50,
        };
        let cell = |x: u16, y: u16, width: u16, height: u16| Rect {
            x: body.x + x,
            y: body.y + y,
            width,
            height,
        };
        let (right, lower) = (body.width - left + 1, body.height - upper + 1);
        Places {
            curve: cell(0, 0, left, upper),
            result: cell(left - 1, 0, right, upper),
            sample: with_sample.then(|| cell(0, upper - 1, left, lower)),
            steps: match with_sample {
                true => cell(left - 1, upper - 1, right, lower),
                false => cell(0, upper - 1, body.width, lower),
            },
        }
    }

    /// The height that the next steps leave for the figures.
    fn upper(&self, body: Rect, n_figures: u16, next: &[Next]) -> u16 {
        let least = body.height.saturating_sub(next.len() as u16 + 1).max(6);
        // Long commands take rows of their own, as far as all figures stay.
        let endless = Rect {
            height: u16::MAX,
            ..inside(body)
        };
        let all = self.rows(next, endless).len() as u16;
        let room = body.height.saturating_sub(all + 1);
        room.max(n_figures + 2).min(least)
    }

    /// What checks found, of a run that ended before its first step: it has no curves, and this is why.
    fn failures_and_warnings(&self, width: u16) -> Vec<Vec<Word>> {
        if self.finish.step > 0 {
            return Vec::new();
        }
        finding::failures_and_warnings(&self.state().checks, width, self.theme)
    }

    fn state(&self) -> &RunState {
        &self.held.state
    }

    /// The outcome, the verdict or what went wrong, and an empty row.
    fn head(&self, width: u16) -> Vec<Vec<Word>> {
        let (state, finish) = (self.state(), self.finish);
        let glyphs = self.theme.glyphs();
        let (mark, meaning) = outcome_mark(finish.outcome, glyphs);
        let method = state.head.as_ref().map(|head| head.method.as_str());
        let of = state
            .head
            .as_ref()
            .filter(|head| head.max_steps > 0)
            .map(|head| format!(" of {}", human::grouped(head.max_steps)));
        let at = format!(
            "step {}{}",
            human::grouped(finish.step),
            of.unwrap_or_default()
        );
        let words: Vec<&str> = [method, Some(at.as_str())].into_iter().flatten().collect();
        let dot = format!(" {} ", glyphs.separator);
        let mut rows = vec![vec![
            word(
                format!("{mark} {}  ", outcome_word(finish.outcome).to_uppercase()),
                meaning,
            ),
            word(one_line(self.held.name()), Meaning::Title),
            word(format!("{dot}{}", words.join(&dot)), Meaning::Muted),
        ]];
        if let Some(stage) = &self.held.stage {
            let pipeline = match (&stage.standing, &stage.next) {
                (PipelineStatus::Finished, _) => ", which is finished".into(),
                (PipelineStatus::Running, None) => ", which continues".into(),
                (PipelineStatus::Running, Some(next)) => {
                    format!(", which continues with {}", one_line(next))
                }
                (PipelineStatus::Halted { .. }, _) => ", which is halted".into(),
            };
            let words = format!("  {}{pipeline}", stage.words());
            rows.push(vec![word(words, Meaning::Muted)]);
        }
        let told = one_line(&finish.message);
        if !told.is_empty() {
            // Before the first step the reason is all there is.
            let most = if finish.step == 0 { 10 } else { 3 };
            let lines = wrap(&told, width.saturating_sub(4)).into_iter().take(most);
            rows.extend(lines.map(|line| vec![word(format!("  {line}"), meaning)]));
        }
        if let Some(refused) = &state.refused {
            let told = format!("not resumed: {}", one_line(&refused.message));
            let lines = wrap(&told, width.saturating_sub(4)).into_iter().take(4);
            rows.extend(lines.map(|line| vec![word(format!("  {line}"), Meaning::Warn)]));
        }
        // That it learned until it failed is no comfort.
        if !lost(finish.outcome) || self.diagnosis.verdict.status() <= Status::Warn {
            rows.push(verdict(&self.diagnosis, self.theme));
        }
        rows
    }

    /// The best evaluation by the method's reading, or the lowest validation loss.
    fn top(&self) -> Option<Top> {
        // Older engines sent no step.
        let best = self.finish.best.as_ref().filter(|best| best.step > 0);
        let best = best.map(|best| Top {
            metric: best.metric.clone(),
            value: best.value.0,
            step: best.step,
        });
        best.or_else(|| {
            let lowest = self.state().best_evaluation()?;
            Some(Top {
                metric: id::VAL_LOSS.into(),
                value: lowest.val_loss(),
                step: lowest.step,
            })
        })
    }

    /// What a reading is called.
    fn title(&self, metric: &str) -> String {
        let declared = self.state().metric(metric);
        declared.map_or_else(|| one_line(metric), name)
    }

    fn lines(&self, buffer: &mut Buffer, area: Rect, rows: impl IntoIterator<Item = Vec<Word>>) {
        for (words, y) in rows.into_iter().zip(area.y..area.bottom()) {
            let width = area.width.saturating_sub(2);
            text::draw(buffer, area.x + 1, y, width, &words, self.theme);
        }
    }

    fn boxed(&self, buffer: &mut Buffer, outline: Rect, title: &str, rows: Vec<Vec<Word>>) {
        self.named(buffer, outline, title);
        self.lines(buffer, inside(outline), rows);
    }

    fn named(&self, buffer: &mut Buffer, outline: Rect, title: &str) {
        let title = [word(format!(" {title} "), Meaning::Title)];
        let room = outline.width.saturating_sub(4);
        text::draw(buffer, outline.x + 2, outline.y, room, &title, self.theme);
    }

    /// The reading by which the best step was chosen, over all steps, with that step.
    fn curve(&self, buffer: &mut Buffer, outline: Rect) {
        let top = self.top();
        let drawn = |id: &&str| {
            self.state()
                .series
                .get(*id)
                .is_some_and(|s| s.last().is_some())
        };
        // Without a best evaluation what else shows how it went.
        let others = [id::VAL_LOSS, id::PASS_AT_1, id::REWARD, id::TRAIN_LOSS];
        let other = others.into_iter().find(drawn).unwrap_or(id::VAL_LOSS);
        let held_out = top.as_ref().map_or(other, |top| &top.metric);
        // The same reading on what it learned from, where there is one.
        let seen = match held_out {
            id::VAL_LOSS => id::TRAIN_LOSS,
            other => other.strip_prefix(id::VAL).unwrap_or(id::TRAIN_LOSS),
        };
        let comparable = held_out == id::VAL_LOSS || held_out.starts_with(id::VAL);
        let seen = if comparable { seen } else { "" };
        let mark = self.theme.glyphs().down.chars().next().unwrap_or('v');
        let flags: Vec<(char, u64)> = top.iter().map(|top| (mark, top.step)).collect();
        // A reading from training itself is a line, not the points of evaluations.
        let lines = match held_out {
            id::TRAIN_LOSS | id::REWARD => (held_out, ""),
            _ => (seen, held_out),
        };
        samples::curve(buffer, outline, self.state(), lines, &flags, self.theme);
        let title = match lines {
            (line, points) if !line.is_empty() && !points.is_empty() => {
                let what = match line {
                    id::TRAIN_LOSS => "loss".into(),
                    other => self.title(other),
                };
                format!("{what}: train (line), val (points)")
            }
            _ => self.title(held_out),
        };
        self.named(buffer, outline, &title);
    }

    fn sample(&self, buffer: &mut Buffer, outline: Rect) {
        let Some(sample) = self.state().samples.back() else {
            return;
        };
        let dot = self.theme.glyphs().separator;
        let title = format!("sample {dot} step {}", human::grouped(sample.step));
        self.named(buffer, outline, &title);
        let inner = inside(outline);
        let rows = samples::lines(sample, inner.width.saturating_sub(2));
        self.lines(buffer, inner, rows);
    }
}

/// It did not end as it should.
fn lost(outcome: Outcome) -> bool {
    !matches!(outcome, Outcome::Completed | Outcome::Stopped)
}
