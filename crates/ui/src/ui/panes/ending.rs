//! How a run ended, on a page of its own: the outcome, the verdict, the best step and its figures, the newest sample, and
//! what to do next with its key and its command. Which figures there are follows from the readings that the method declares.

use super::{chat, examples, health, samples};
use crate::base::finding::Status;
use crate::base::human;
use crate::base::text::one_line;
use crate::diagnosis::{Diagnosis, diagnose};
use crate::metrics::id;
use crate::run::RunState;
use crate::run::index::option;
use crate::run::state::{Finish, outcome_word};
use crate::ui::action::Action;
use crate::ui::keymap::Keymap;
use crate::ui::layout::wrap;
use crate::ui::msg::{Holder, StageOf, Standing};
use crate::ui::panes::batch::starts;
use crate::ui::panes::dashboard::{outcome_mark, verdict};
use crate::ui::store::HeldRun;
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::frame::inside;
use crate::ui::widgets::text::{self, Word, word};
use crate::ui::widgets::{Lattice, finding};
use crate::wire::Outcome;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use std::path::Path;
use unicode_width::UnicodeWidthStr;

/// From here on there are boxes, and from there on a sample beside the next steps.
const BOXES: (u16, u16) = (60, 15);
const SAMPLE: (u16, u16) = (110, 24);
/// Columns of a figure's label, of a step's key and of its words.
const LABEL: usize = 13;
const KEY: usize = 5;
const WHAT: usize = 26;

/// A run that has ended, and what drawing it needs.
pub struct Ending<'a> {
    held: &'a HeldRun,
    finish: &'a Finish,
    keymap: &'a Keymap,
    theme: &'a Theme,
    diagnosis: Diagnosis,
    /// What a command needs besides the run's name: where the runs lie, unless they lie where commands look.
    place: String,
}

/// Something that can be done now.
struct Next {
    /// Empty where only the command does it.
    key: String,
    what: String,
    /// Empty where only the key does it.
    command: String,
}

/// The best evaluation of a run.
struct Top {
    metric: String,
    value: f64,
    step: u64,
}

impl<'a> Ending<'a> {
    /// `None` while the run goes on.
    pub fn of(
        held: &'a HeldRun,
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
        let (figures, next) = (self.figures(), self.next());
        if body.width < BOXES.0 || body.height < BOXES.1 {
            let complaints = self.complaints(body.width.saturating_sub(2));
            let figures = if complaints.is_empty() {
                figures
            } else {
                complaints
            };
            let below = Rect {
                height: body.height.saturating_sub(figures.len() as u16),
                ..body
            };
            let rows = figures.into_iter().chain(self.rows(&next, below));
            return self.lines(buffer, body, rows);
        }
        let with_sample = body.width >= SAMPLE.0
            && body.height >= SAMPLE.1
            && !self.held.state.samples.is_empty();
        // The next steps decide how much height is left for the figures.
        let upper = match with_sample {
            true => (body.height * 11 / 20).max(figures.len() as u16 + 2),
            false => {
                let least = body.height.saturating_sub(next.len() as u16 + 1).max(6);
                // Long commands take rows of their own, as far as all figures stay.
                let all = self.rows(
                    &next,
                    Rect {
                        height: u16::MAX,
                        ..inside(body)
                    },
                );
                let room = body.height.saturating_sub(all.len() as u16 + 1);
                room.max(figures.len() as u16 + 2).min(least)
            }
        }
        .min(body.height);
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
        let curve = cell(0, 0, left, upper);
        let result = cell(left - 1, 0, right, upper);
        let (sample, steps) = match with_sample {
            true => (
                Some(cell(0, upper - 1, left, lower)),
                cell(left - 1, upper - 1, right, lower),
            ),
            false => (None, cell(0, upper - 1, body.width, lower)),
        };
        let mut lattice = Lattice::new(buffer.area);
        for outline in [curve, result, steps].into_iter().chain(sample) {
            lattice.outline(outline);
        }
        lattice.draw(buffer, self.theme);
        match self.complaints(curve.width.saturating_sub(4)) {
            complaints if complaints.is_empty() => self.curve(buffer, curve),
            complaints => self.boxed(buffer, curve, "checks", complaints),
        }
        self.boxed(buffer, result, "result", figures);
        let rows = self.rows(&next, inside(steps));
        self.boxed(buffer, steps, "next", rows);
        if let Some(outline) = sample {
            self.sample(buffer, outline);
        }
    }

    /// What checks found, of a run that ended before its first step: it has no curves, and this is why.
    fn complaints(&self, width: u16) -> Vec<Vec<Word>> {
        if self.finish.step > 0 {
            return Vec::new();
        }
        finding::complaints(&self.state().checks, width, self.theme)
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
            let pipeline = match stage.standing {
                Standing::Finished => ", which is finished",
                Standing::Running => ", which goes on",
                Standing::Halted { .. } => "",
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
        let title = one_line(declared.map_or(metric, |info| info.title.as_str()));
        let mut letters = title.chars();
        let first = letters.next().map(|first| first.to_lowercase().to_string());
        first.unwrap_or_default() + letters.as_str()
    }

    fn figures(&self) -> Vec<Vec<Word>> {
        let state = self.state();
        let row = |label: &str, value: String, meaning: Meaning, rest: String| {
            vec![
                word(format!("{label:<LABEL$}"), Meaning::Muted),
                word(value, meaning),
                word(rest, Meaning::Muted),
            ]
        };
        let mut rows = Vec::new();
        if let Some(top) = self.top() {
            rows.push(row(
                "best",
                human::number(top.value),
                Meaning::Validation,
                format!(" {}", self.title(&top.metric)),
            ));
            let last = top.step == self.finish.step;
            rows.push(row(
                "at step",
                human::grouped(top.step),
                Meaning::Text,
                if last { ", the last" } else { "" }.into(),
            ));
            let then = state.evaluations.iter().rev().find(|e| e.step == top.step);
            let others = state.metrics.iter().filter(|info| info.id != top.metric);
            for info in others {
                let value = then.and_then(|e| e.values.get(&info.id).copied());
                let Some(value) = value.filter(|x| x.is_finite()) else {
                    continue;
                };
                let (value, title) = (human::number(value), self.title(&info.id));
                let title = title
                    .trim_start_matches("validation")
                    .trim_start_matches(':');
                let title = format!(" {}", title.trim_start());
                rows.push(row("", value, Meaning::Validation, title));
            }
        }
        // Over the whole time, as both stand here: pauses, evaluations and checkpoints are part of it.
        let speed = state.tokens as f64 / state.seconds;
        let speed = Some(speed).filter(|x| x.is_finite() && *x > 0.0);
        let per_second = |x: f64| format!("{} tokens/s", human::short(x));
        let speed = speed.map(per_second);
        rows.push(row(
            "total time",
            human::seconds(state.seconds),
            Meaning::Text,
            speed.iter().map(|speed| format!(", {speed}")).collect(),
        ));
        // As the report says it.
        let of_steps = state.mean_tok_per_sec().map(per_second);
        if let Some(of_steps) = of_steps.filter(|of_steps| speed.as_ref() != Some(of_steps)) {
            rows.push(row("steps alone", of_steps, Meaning::Text, String::new()));
        }
        if state.tokens > 0 {
            let epochs = state.epochs();
            let epochs = epochs.map(|x| format!(", {} epochs", human::epochs(x)));
            rows.push(row(
                "tokens",
                human::short(state.tokens as f64),
                Meaning::Text,
                epochs.unwrap_or_default(),
            ));
        }
        let kept = state.checkpoints.iter().rev().find(|c| c.best);
        if let Some(kept) = kept.or(state.checkpoints.last()) {
            let name = kept.path.rsplit('/').next().unwrap_or(&kept.path);
            rows.push(row(
                "checkpoint",
                name.to_string(),
                Meaning::Text,
                format!(", {}", human::bytes(kept.bytes)),
            ));
        }
        if state.n_warnings > 0 {
            let n = human::grouped(state.n_warnings);
            rows.push(row("warnings", n, Meaning::Warn, ", in the log".into()));
        }
        rows
    }

    /// What can be done next, most useful first.
    fn next(&self) -> Vec<Next> {
        let state = self.state();
        let name = one_line(self.held.name());
        let key = |action: Action| self.keymap.label(action);
        let mut next = Vec::new();
        let mut add = |key: String, what: &str, mut command: String| {
            if !command.is_empty() {
                command.push_str(&self.place);
            }
            next.push(Next {
                key,
                what: what.into(),
                command,
            });
        };
        let judged = self.diagnosis.verdict.status();
        let kept = !state.checkpoints.is_empty();
        let newest = state.checkpoints.last().map_or(0, |c| c.step);
        let mut go_on = self.held.resumable().map(|_| match kept {
            true => format!("resume from step {}", human::grouped(newest)),
            false => "try again".into(),
        });
        // Other settings help against a training that failed, not against a disk.
        if lost(self.finish.outcome)
            && self.finish.outcome != Outcome::Failed
            && let Some(what) = go_on.take()
        {
            add(key(Action::Pause), &what, format!("llmtui resume {name}"));
        }
        if let Some((step, settings)) = self.advised() {
            let command = format!("llmtui train --branch {name}@{step} {settings}");
            let what = match step {
                0 => "again, as advised",
                _ => "branch as advised",
            };
            add(key(Action::FollowAdvice), what, command);
        }
        if lost(self.finish.outcome) || judged <= Status::Warn {
            let command = format!("llmtui diagnose {name}");
            add(
                key(Action::Open(&health::ENTRY)),
                "what went wrong",
                command,
            );
        }
        if self.held.resumable().is_some() && !kept {
            add(key(Action::Evaluate), "edit the spec", String::new());
        }
        if let Some(what) = go_on {
            add(key(Action::Pause), &what, format!("llmtui resume {name}"));
        }
        let stage = self.held.stage.as_ref();
        if let Some(resume) = stage.and_then(StageOf::resume) {
            add(String::new(), "continue the pipeline", resume.into());
        }
        let judges = state.judges();
        // What learned nothing is of no use to anyone.
        let useful = kept && judged > Status::Fail;
        if useful && !judges {
            let command = format!("llmtui chat {name}");
            add(key(Action::Open(&chat::ENTRY)), "chat with it", command);
        }
        if !state.samples.is_empty() {
            let pane = key(Action::Open(&samples::ENTRY));
            add(pane, "samples from training", String::new());
        }
        if !state.examined.is_empty() {
            let pane = key(Action::Open(&examples::ENTRY));
            add(pane, "held-out examples", String::new());
        }
        if useful {
            let command = format!("llmtui score {name} FILE");
            add(String::new(), "score it on a text", command);
            let adapted = state
                .head
                .as_ref()
                .is_some_and(|head| !head.spec["adapter"].is_null());
            let export = format!("llmtui export {name} --to DIR");
            match adapted {
                false => add(String::new(), "export it", export),
                true => {
                    let alone = format!("llmtui export {name} --format peft --to DIR");
                    add(String::new(), "export only the adapter", alone);
                    add(String::new(), "export it merged", export);
                }
            }
            match self.longer() {
                // More steps are for what did all of its own; this one goes on first.
                Some(_) if self.held.resumable().is_some() => {}
                None => {
                    let command =
                        format!("llmtui train sft -s train.from={name} -s data.path=FILE");
                    add(String::new(), "fine-tune it", command);
                }
                Some(steps) => {
                    let command = format!("llmtui train --resume {name} -s max_steps={steps}");
                    add(String::new(), "train longer", command);
                }
            }
        }
        let picture = key(Action::SavePicture);
        add(picture, "save this as a picture", String::new());
        add(key(Action::Ending), "all charts", String::new());
        next
    }

    /// The first advice that names settings, after `-s`, what failed before what is only doubtful; and the step to branch
    /// from, 0 for the start.
    fn advised(&self) -> Option<(u64, String)> {
        if self.held.holder == Holder::Foreign {
            return None;
        }
        let finding = self.diagnosis.advised()?;
        let (_, step) = starts(self.held, finding).into_iter().next()?;
        Some((step, format!("-s {}", finding.changes().join(" -s "))))
    }

    /// Twice the steps, for a run that no conversations can be taught: a reward model writes none; a vocabulary of characters has
    /// no marks for a template, and not all letters.
    fn longer(&self) -> Option<u64> {
        /// A subword vocabulary begins with every byte.
        const BYTES: u64 = 256;
        let head = self.state().head.as_ref()?;
        let tokenizer = &head.spec["data"]["tokenizer"];
        let characters = *tokenizer == "char" || !tokenizer["char"].is_null();
        let small = (1..BYTES).contains(&head.vocab_size);
        let judges = self.state().judges();
        (judges || characters || small).then_some(2 * head.max_steps)
    }

    /// A row for each step, more where its command is long and there is room; half a command helps nobody.
    fn rows(&self, next: &[Next], room: Rect) -> Vec<Vec<Word>> {
        let width = usize::from(room.width).saturating_sub(2);
        let own = |command: &str| vec![word(format!("{:<KEY$}{command}", ""), Meaning::Muted)];
        let mut left = usize::from(room.height).saturating_sub(next.len());
        let mut rows = Vec::new();
        for step in next {
            let mut words = vec![
                word(format!("{:<KEY$}", step.key), Meaning::Key),
                word(format!("{:<WHAT$}", step.what), Meaning::Text),
            ];
            let command = &step.command;
            let room = u16::try_from(width.saturating_sub(KEY)).unwrap_or(u16::MAX);
            let parts = wrap(command, room);
            match KEY + WHAT + command.len() <= width {
                true => words.push(word(command.clone(), Meaning::Muted)),
                false if parts.len() <= left => {
                    rows.push(words);
                    left -= parts.len();
                    rows.extend(parts.iter().map(|part| own(part)));
                    continue;
                }
                // Out of its column, but with its words.
                false
                    if step.key.is_empty()
                        && KEY + step.what.width() + 2 + command.len() <= width =>
                {
                    words[1] = word(format!("{}  ", step.what), Meaning::Text);
                    words.push(word(command.clone(), Meaning::Muted));
                }
                false if step.key.is_empty() && parts.len() == 1 => words = own(command),
                false => {}
            }
            rows.push(words);
        }
        rows
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
