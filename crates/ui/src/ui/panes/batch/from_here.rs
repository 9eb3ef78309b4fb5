//! What can be done from a step: roll the run back to a checkpoint before it, or branch a new run from one, with the
//! settings that would differ shown before it starts.

use super::{BatchPane, topic};
use crate::base::human::{counted, grouped};
use crate::run::checkpoints::path_in_run;
use crate::run::state::{CheckpointMark, Level};
use crate::ui::effect::Effect;
use crate::ui::msg::{Asked, BranchPlan, Holder};
use crate::ui::overlays::{Choice, Item, Picker, Prompt};
use crate::ui::panes::run;
use crate::ui::request::{Answer, Request};
use crate::ui::store::{OpenRun, Store};
use crate::wire::Command;

/// Checkpoints before the step that are offered for a branch.
const OFFERED: usize = 3;

impl BatchPane {
    /// The list of what can be done.
    pub(super) fn next_actions(&self, store: &Store) -> Vec<Request> {
        let Some(held) = store.held.as_ref() else {
            return vec![toast("no run is open: choose one on Home")];
        };
        // While the next step's rows are read, those on the screen are still of the step before.
        let shown = self.found.as_ref().map(|found| found.step);
        let Some(step) = self.step.filter(|step| shown == Some(*step)) else {
            return vec![toast("wait until the step's rows are loaded")];
        };
        if held.holder == Holder::Foreign {
            return vec![toast("another program trains this run: it can only be watched")];
        }
        let kept = kept(held);
        let before = || kept.iter().rev().copied().filter(|kept| *kept < step);
        let newest = held.state.step;
        let item = |title: String, detail: String, word: String| Item {
            title,
            detail,
            right: String::new(),
            choice: Choice::Answer(topic("from"), Answer::Text(word)),
        };
        let mut items = Vec::new();
        let back = before().next().filter(|to| *to < newest && held.live());
        if let Some(to) = back {
            let title = format!("roll back to step {}", grouped(to));
            items.push(item(title, discarded(to, newest, &kept), format!("back {to}")));
        }
        items.extend(before().take(OFFERED).map(|from| {
            let detail = "a new run with other settings; this one is kept";
            let title = format!("branch from step {}", grouped(from));
            item(title, detail.into(), format!("branch {from}"))
        }));
        if items.is_empty() {
            let words = format!("no checkpoint before step {} is left", grouped(step));
            return vec![toast(&words)];
        }
        let title = format!("from step {}", grouped(step));
        let picker = Picker::new(&title, "", items).about(topic("from"));
        vec![Request::Open(Box::new(picker))]
    }

    /// Answers on the way from the list to a run.
    pub(super) fn on_action_answer(&mut self, about: &str, answer: Answer, store: &Store) -> Vec<Request> {
        let Answer::Text(text) = answer else {
            return Vec::new();
        };
        match (about, text.split_once(' ')) {
            ("from", Some(("back", step))) => match step.parse() {
                Ok(step) => run::command(store, Asked::Rollback, Command::Rollback { step }),
                Err(_) => Vec::new(),
            },
            ("from", Some(("branch", step))) => match step.parse() {
                Ok(step) => {
                    let settings = Vec::new();
                    self.branch = Some(BranchPlan { step, settings });
                    vec![self.ask_settings()]
                }
                Err(_) => Vec::new(),
            },
            ("settings", _) => {
                let words = text.split_whitespace();
                let settings: Vec<String> = words.map(str::to_string).collect();
                if let Some(odd) = settings.iter().find(|set| !set.contains('=')) {
                    let words = format!("`{odd}` is not a setting: write KEY=VALUE, as in lr=3e-4");
                    return vec![Request::Toast(Level::Warn, words), self.ask_settings()];
                }
                let (Some(plan), Some(run_dir)) = (&mut self.branch, self.run.clone()) else {
                    return Vec::new();
                };
                plan.settings = settings;
                let effect = Effect::PlanBranch {
                    run_dir,
                    plan: plan.clone(),
                };
                // What opens says that it is being checked, until it is.
                vec![Request::Do(effect)]
            }
            ("planned", _) if text == "start" => {
                let (Some(plan), Some(run_dir)) = (self.branch.take(), self.run.clone()) else {
                    return Vec::new();
                };
                vec![Request::Do(Effect::MakeBranch { run_dir, plan })]
            }
            ("planned", _) => vec![self.ask_settings()],
            _ => Vec::new(),
        }
    }

    fn ask_settings(&self) -> Request {
        let before = self.branch.as_ref().map(|plan| plan.settings.join(" "));
        let hint = "as in lr=3e-4 clip_norm=0.5; empty repeats the run";
        let prompt = Prompt::new(topic("settings"), "a branch with other settings", hint);
        Request::Open(Box::new(prompt.with(&before.unwrap_or_default())))
    }

    /// The branch can be made: what differs is shown before it starts. Or it cannot, and the settings are asked for again.
    pub(super) fn planned(&self, result: &Result<Vec<String>, String>) -> Vec<Request> {
        if self.branch.is_none() {
            return Vec::new();
        }
        let lines = match result {
            Ok(lines) => lines,
            Err(why) => {
                return vec![Request::Toast(Level::Warn, why.clone()), self.ask_settings()];
            }
        };
        let item = |title: &str, detail: String, word: &str| Item {
            title: title.into(),
            detail,
            right: String::new(),
            choice: Choice::Answer(topic("planned"), Answer::Text(word.into())),
        };
        // `branch of X at step N`, then a line for each change, then what a dry run says besides.
        let title = lines.first().map_or("branch", |line| line.as_str());
        let changes = lines.iter().skip(1).take_while(|line| line.starts_with("  "));
        // In a sentence the columns of the lines mean nothing.
        let in_a_row = |line: &String| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let changes: Vec<String> = changes.map(in_a_row).collect();
        let items = vec![
            item("start it", changes.join("; "), "start"),
            item("other settings", "change the settings".into(), "again"),
        ];
        let picker = Picker::new(title, "", items).about(topic("planned"));
        vec![Request::Open(Box::new(picker))]
    }
}

/// The checkpoints that are still there, oldest first: old ones are pruned, and the log does not say when.
pub(super) fn checkpoints(held: &OpenRun) -> Vec<&CheckpointMark> {
    let folder = held.path.as_ref().filter(|path| path.is_dir());
    let there = |mark: &&CheckpointMark| folder.is_none_or(|run| run.join(&mark.path).is_dir());
    held.state.checkpoints.iter().filter(there).collect()
}

/// Steps of the checkpoints that are there, oldest first: with the one that a branch begins with, of which its log says nothing.
pub(super) fn kept(held: &OpenRun) -> Vec<u64> {
    let base = held.state.base_step;
    let folder = path_in_run(base);
    let there = base > 0 && held.path.as_ref().is_some_and(|run| run.join(folder).is_dir());
    let own = checkpoints(held).into_iter().map(|mark| mark.step);
    let own = own.filter(|step| *step != base || !there);
    there.then_some(base).into_iter().chain(own).collect()
}

/// What a roll-back from step `newest` to step `to` loses: it happens without another question.
pub(super) fn discarded(to: u64, newest: u64, kept: &[u64]) -> String {
    let steps = counted(newest - to, "step");
    let later = kept.iter().filter(|kept| **kept > to);
    let later: Vec<String> = later.map(|kept| grouped(*kept)).collect();
    match &later[..] {
        [] => format!("discards {steps}"),
        [one] => format!("discards {steps} and checkpoint {one}"),
        more => format!("discards {steps} and checkpoints {}", more.join(", ")),
    }
}

fn toast(words: &str) -> Request {
    Request::Toast(Level::Info, words.into())
}
