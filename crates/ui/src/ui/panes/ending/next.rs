//! What can be done with a run that has ended, each with its key and its command.

use super::{Ending, lost};
use crate::base::finding::Status;
use crate::base::human;
use crate::base::text::{one_line, shown};
use crate::diagnosis::Verdict;
use crate::ui::action::Action;
use crate::ui::layout::wrap;
use crate::ui::msg::{Holder, StageOf};
use crate::ui::panes::batch::{is_refuted, last_step, starts};
use crate::ui::panes::{chat, examples, health, samples};
use crate::ui::theme::Meaning;
use crate::ui::widgets::text::{Word, word};
use crate::wire::Outcome;
use ratatui::layout::Rect;
use unicode_width::UnicodeWidthStr;

/// Columns of a step's key and of its words.
const KEY: usize = 5;
const WHAT: usize = 26;

/// Something that can be done now.
pub(super) struct Next {
    /// Empty where only the command does it.
    key: String,
    what: String,
    /// Empty where only the key does it.
    command: String,
    /// The command is a path that stands nowhere else.
    is_made: bool,
}

impl Ending<'_> {
    /// What can be done next, most useful first.
    pub(super) fn next(&self) -> Vec<Next> {
        let mut next: Vec<Next> = self.live_stage().into_iter().collect();
        next.extend(self.resume_actions());
        next.extend(self.view_actions());
        next.extend(self.outputs());
        if self.is_useful() {
            next.extend(self.used());
        }
        next.push(self.by_key(Action::SavePicture, "save this as a picture"));
        next.push(self.by_key(Action::Ending, "all charts"));
        next
    }

    /// What a key does, and a command.
    fn both(&self, action: Action, what: &str, command: String) -> Next {
        Next {
            key: self.keymap.label(action),
            ..self.by_command(what, command)
        }
    }

    fn by_key(&self, action: Action, what: &str) -> Next {
        Next {
            key: self.keymap.label(action),
            what: what.into(),
            command: String::new(),
            is_made: false,
        }
    }

    fn by_command(&self, what: &str, command: String) -> Next {
        Next {
            key: String::new(),
            what: what.into(),
            command: command + &self.place,
            is_made: false,
        }
    }

    fn name(&self) -> String {
        one_line(self.held.name())
    }

    fn has_checkpoint(&self) -> bool {
        !self.state().checkpoints.is_empty()
    }

    /// What learned nothing is of no use to anyone.
    fn is_useful(&self) -> bool {
        self.has_checkpoint() && self.diagnosis.verdict.status() > Status::Fail
    }

    /// Resume, with other settings if the current ones failed.
    fn resume_actions(&self) -> Vec<Next> {
        let (name, outcome) = (self.name(), self.finish.outcome);
        let mut next = Vec::new();
        let stage = self.held.stage.as_ref();
        let pipeline = stage.and_then(StageOf::resume);
        let (go_on, pipeline) = match (self.held.continues(), pipeline) {
            (Some(_), Some(resume)) => (Some(self.continue_pipeline(resume)), None),
            _ => (self.held.resumable().map(|_| self.resume()), pipeline),
        };
        // Other settings help against a training that failed, not against a disk.
        let settings_help = !lost(outcome) || outcome == Outcome::Failed;
        let (first, later) = match settings_help {
            true => (None, go_on),
            false => (go_on, None),
        };
        next.extend(first);
        if let Some((step, settings)) = self.advised() {
            let settings = settings.join(" -s ");
            let command = format!("llmtui train --branch {name}@{step} -s {settings}");
            let what = match step {
                0 => "again, as advised",
                _ => "branch as advised",
            };
            next.push(self.both(Action::FollowAdvice, what, command));
        }
        if lost(outcome) || self.diagnosis.verdict.status() <= Status::Warn {
            let command = format!("llmtui diagnose {name}");
            next.push(self.both(Action::Open(&health::ENTRY), "what went wrong", command));
        }
        if self.held.resumable().is_some() && !self.has_checkpoint() {
            next.push(self.by_key(Action::Evaluate, "edit the spec"));
        }
        next.extend(later);
        // With the stages behind this run, which was left out.
        if let Some(resume) = pipeline {
            next.push(self.by_command("continue the pipeline", resume.into()));
        }
        next
    }

    /// Of a run that goes on with its pipeline, or whose pipeline goes on behind it.
    fn continue_pipeline(&self, resume: &str) -> Next {
        self.both(Action::Pause, "continue the pipeline", resume.into())
    }

    /// The stage of its pipeline that trains now.
    fn live_stage(&self) -> Option<Next> {
        let (name, _) = self.held.stage.as_ref()?.live.as_ref()?;
        let what = format!("watch {}, which trains now", one_line(name));
        Some(self.by_key(Action::LiveStage, &what))
    }

    fn resume(&self) -> Next {
        let what = match self.state().checkpoints.last() {
            Some(newest) => format!("resume from step {}", human::grouped(newest.step)),
            None => "try again".into(),
        };
        let command = format!("llmtui resume {}", self.name());
        self.both(Action::Pause, &what, command)
    }

    /// Reading what it writes.
    fn view_actions(&self) -> Vec<Next> {
        let (state, mut next) = (self.state(), Vec::new());
        if self.is_useful() && !state.judges() {
            let command = format!("llmtui chat {}", self.name());
            next.push(self.both(Action::Open(&chat::ENTRY), "chat with it", command));
        }
        if !state.samples.is_empty() {
            let pane = Action::Open(&samples::ENTRY);
            next.push(self.by_key(pane, "samples from training"));
        }
        if !state.examined.is_empty() {
            let pane = Action::Open(&examples::ENTRY);
            next.push(self.by_key(pane, "held-out examples"));
        }
        next
    }

    /// What the stages behind it have made.
    fn outputs(&self) -> impl Iterator<Item = Next> {
        let made = self.held.stage.iter().flat_map(|stage| &stage.outputs);
        made.map(|(what, path)| Next {
            key: String::new(),
            what: format!("its {what}"),
            command: shown(path),
            is_made: true,
        })
    }

    /// Scoring, exporting and training on.
    fn used(&self) -> Vec<Next> {
        let name = self.name();
        let score = format!("llmtui score {name} FILE");
        let mut next = vec![self.by_command("score it on a text", score)];
        let head = self.state().head.as_ref();
        let export = format!("llmtui export {name} --to DIR");
        match head.is_some_and(|head| !head.spec["adapter"].is_null()) {
            false if self.state().judges() => next.push(self.by_command("export it", export)),
            false => next.push(self.by_command("export: HF, GGUF, Ollama", export)),
            true => {
                let alone = format!("llmtui export {name} --format peft --to DIR");
                next.push(self.by_command("export only the adapter", alone));
                next.push(self.by_command("export it merged", export));
            }
        }
        match self.longer() {
            // More steps are for what did all of its own; this one goes on first.
            Some(_) if self.held.resumable().is_some() || self.had_enough() => {}
            None => {
                let command = format!("llmtui train sft -s train.from={name} -s data.path=FILE");
                next.push(self.by_command("fine-tune it", command));
            }
            Some(steps) => {
                let command = format!("llmtui train --resume {name} -s max_steps={steps}");
                next.push(self.by_command("train longer", command));
            }
        }
        next
    }

    /// The first advice that names settings, what failed before what is only doubtful; and the step to branch from, 0 for the
    /// start. Fewer steps than the best evaluation took would end before it: a check that feared too many epochs was wrong.
    fn advised(&self) -> Option<(u64, Vec<String>)> {
        // Other settings of the optimizer help no run whose rewards are all the same.
        if self.held.holder == Holder::Foreign || self.diagnosis.has_no_signal() {
            return None;
        }
        self.diagnosis.advice().find_map(|finding| {
            let settings = finding.changes();
            if is_refuted(self.state(), &settings) {
                return None;
            }
            let starts = starts(self.held, &self.diagnosis.findings, finding, &settings);
            let (_, step) = starts.into_iter().next()?;
            Some((step, settings))
        })
    }

    /// More steps would only be more of what is wrong: it overfits, or is advised to take fewer.
    fn had_enough(&self) -> bool {
        let of = self.state().head.as_ref().map_or(0, |head| head.max_steps);
        let fewer =
            |(_, settings): (u64, Vec<String>)| last_step(&settings).is_some_and(|last| last < of);
        self.diagnosis.verdict == Verdict::Overfitting || self.advised().is_some_and(fewer)
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

    /// All steps with their commands, as far as there is room: half a command helps nobody, and neither does one without words.
    pub(super) fn rows(&self, next: &[Next], room: Rect) -> Vec<Vec<Word>> {
        let width = usize::from(room.width).saturating_sub(2);
        let mut rows: Vec<_> = next.iter().map(|step| step.rows(width)).collect();
        let over = |rows: &[Vec<Vec<Word>>]| {
            rows.iter().map(Vec::len).sum::<usize>() > usize::from(room.height)
        };
        // A key does it without its command.
        for at in (0..next.len()).rev().filter(|at| !next[*at].key.is_empty()) {
            if over(&rows) {
                rows[at].truncate(1);
            }
        }
        // The line of hints has the keys; where a file lies stands here alone.
        let by_key_alone = |step: &Next| step.command.is_empty();
        let by_command = |step: &Next| step.key.is_empty() && !step.is_made;
        let any = |_: &Next| true;
        for goes in [&by_key_alone as &dyn Fn(&Next) -> bool, &by_command, &any] {
            for at in (0..next.len()).rev().filter(|at| goes(&next[*at])) {
                if over(&rows) {
                    rows[at].clear();
                }
            }
        }
        rows.into_iter().flatten().collect()
    }
}

impl Next {
    /// One row, or one for its words and more for a long command.
    fn rows(&self, width: usize) -> Vec<Vec<Word>> {
        let muted = |text: String| word(text, Meaning::Muted);
        let key = word(format!("{:<KEY$}", self.key), Meaning::Key);
        let (what, command) = (&self.what, &self.command);
        let columns = command.width();
        if command.is_empty() || KEY + WHAT.max(what.width() + 2) + columns <= width {
            let what = format!("{what:<0$}", WHAT.max(what.width() + 2));
            return vec![vec![key, word(what, Meaning::Text), muted(command.clone())]];
        }
        // Out of its column, but with its words.
        if self.key.is_empty() && KEY + what.width() + 2 + columns <= width {
            let what = word(format!("{what}  "), Meaning::Text);
            return vec![vec![key, what, muted(command.clone())]];
        }
        let room = u16::try_from(width.saturating_sub(KEY)).unwrap_or(u16::MAX);
        let parts = wrap(command, room).into_iter();
        let below = parts.map(|part| vec![muted(format!("{:<KEY$}{part}", ""))]);
        let words = vec![key, word(what.clone(), Meaning::Text)];
        [words].into_iter().chain(below).collect()
    }
}
