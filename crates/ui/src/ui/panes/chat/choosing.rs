//! Which models the chat offers, and which of them it opens.

use super::models::{best, start_model, without_checkpoint};
use super::pane::{MODEL, detach, info, topic};
use super::unsaved::Loss;
use super::{ChatModel, ChatPane, Column, MAX_COLUMNS, Picking};
use crate::base::human;
use crate::base::text::one_line;
use crate::gguf::PartName;
use crate::ui::effect::Effect;
use crate::ui::overlays::{Choice, Item, Picker};
use crate::ui::msg::Slot;
use crate::ui::panes::{Pane, PaneContext, home};
use crate::ui::request::{Answer, Request};
use crate::ui::rows::CheckpointRow;
use crate::ui::store::short_run;
use crate::wire::Phase;
use std::path::{Path, PathBuf};

impl ChatPane {
    pub(super) fn pick(&mut self, picking: Picking, context: &PaneContext) -> Vec<Request> {
        self.picking = picking;
        vec![
            Request::Open(Box::new(self.picker(context))),
            Request::Do(Effect::ListCheckpoints),
            Request::Do(Effect::ListModelFiles),
        ]
    }

    /// Checkpoints of runs, models that lie near by, and any other by its place.
    pub(super) fn picker(&self, context: &PaneContext) -> Picker {
        let (store, dot) = (context.store, context.theme.glyphs().separator);
        let files = &store.model_files;
        let start = start_model(store);
        let mut items: Vec<Item> = start.iter().map(|path| start_item(path)).collect();
        let recent = files.recent.iter().filter(|path| Some(*path) != start.as_ref());
        items.extend(recent.map(|path| Item {
            right: "recent".into(),
            ..file_item(path)
        }));
        // A model that learned nothing is the last that one wants to talk to.
        let (trained, untrained): (Vec<_>, Vec<_>) = store.checkpoints.iter().partition(|row| row.step > 0);
        items.extend(trained.into_iter().chain(untrained).map(|row| checkpoint_item(row, dot)));
        items.extend(files.near.iter().map(|path| file_item(path)));
        items.push(Item {
            title: "path or hub id".into(),
            detail: "a model folder, a .gguf file, or org/name".into(),
            right: String::new(),
            choice: Choice::Answer(topic(MODEL), Answer::Text(String::new())),
        });
        let current = self.focused().map(|c| model(c.model.path.clone()));
        let title = match self.picking {
            Picking::Replace => "talk to a model",
            Picking::Add => "add a model",
        };
        Picker::new(title, "", items)
            .about(topic(MODEL))
            .or_path()
            // The start model is the first row: whoever adds one compares with it. The open checkpoint would be the same again.
            .select(|item| match (&self.picking, &start) {
                (Picking::Add, Some(start)) => item.choice == model(start.clone()),
                _ => Some(&item.choice) == current.as_ref(),
            })
    }

    /// Opens a model in the place that was picked; the one that is there may have answers that are not saved.
    pub(super) fn open(&mut self, model: ChatModel, context: &mut PaneContext) -> Vec<Request> {
        match self.picking {
            Picking::Replace => self.lose(Loss::Replace(Box::new(model)), context),
            Picking::Add => self.start(model, context),
        }
    }

    /// Starts an engine for a model, in the place that was picked.
    pub(super) fn start(&mut self, model: ChatModel, context: &mut PaneContext) -> Vec<Request> {
        let slot = context.slots.take();
        let path = model.path.clone();
        let gone = self.place(model, slot, context.store.now);
        let mut requests: Vec<Request> = gone.map(detach).into_iter().collect();
        requests.push(Request::Do(Effect::OpenChat { slot, model: path }));
        requests
    }

    /// A list of checkpoints: fills an open picker, and gives the chat its first engine.
    pub(super) fn checkpoints(&mut self, context: &mut PaneContext) -> Vec<Request> {
        if context.asked == Some(topic(MODEL)) {
            return vec![Request::Refill(Box::new(self.picker(context)))];
        }
        let mut wanted = std::mem::take(&mut self.wanted_runs);
        if wanted.is_empty() && !self.columns().is_empty() {
            return self.instead_of_pruned(context);
        }
        if !context.in_front {
            return Vec::new();
        }
        let store = context.store;
        if wanted.len() > 1 {
            return self.lose(Loss::Runs(wanted), context);
        }
        let named = wanted.pop();
        let best_of = |run: &PathBuf| best(&store.checkpoints, run);
        if let (Some(run), None) = (&named, named.as_ref().and_then(best_of)) {
            let why = info(&without_checkpoint(run, store));
            // The models that are open here are not what was asked for.
            let back = std::mem::take(&mut self.or_home).then_some(Request::Show(&home::ENTRY));
            return back.into_iter().chain([why]).collect();
        }
        // A reward model is opened for nobody who did not ask for it, and refused to those who did.
        let found = match &named {
            Some(run) => best_of(run),
            None => {
                let held = store.held.as_ref().and_then(|held| held.path.as_ref());
                held.and_then(best_of).filter(|row| row.generates)
            }
        };
        let others = store.checkpoints.iter().filter(|row| row.generates);
        let other = others.clone().find(|row| row.step > 0).or_else(|| others.clone().next());
        // The run on the screen is named above: the message says why it cannot be chatted with.
        let judge = store.held.as_ref().filter(|held| named.is_none() && held.state.judges());
        let judge = judge.map(|held| one_line(short_run(held.name())));
        match found.or(other).cloned() {
            Some(row) => {
                self.picking = Picking::Replace;
                let why = judge.map(|name| {
                    let other = one_line(short_run(&row.run));
                    info(&format!("{name} is a reward model and cannot generate: this chat is with {other}"))
                });
                let mut requests = self.open_row(row, context);
                requests.extend(why);
                requests
            }
            None => Vec::new(),
        }
    }

    /// A run that trains on may prune a checkpoint between the list and the reading of it: the one that a list offers now
    /// takes its place.
    fn instead_of_pruned(&mut self, context: &mut PaneContext) -> Vec<Request> {
        let rows = &context.store.checkpoints;
        let pruned = |column: &Column| {
            let gone = column.unread()?;
            let there = rows.iter().any(|row| row.path == gone.path);
            let run = gone.path.parent()?.parent()?.to_path_buf();
            let row = best(rows, &run).filter(|_| !there)?;
            Some((gone.step, row.clone()))
        };
        let found = self.columns().iter().enumerate();
        let found: Vec<_> = found.filter_map(|(at, c)| Some((at, pruned(c)?))).collect();
        let (focus, mut requests) = (self.focus, Vec::new());
        for (at, (step, row)) in found {
            let words = format!(
                "step {} was pruned by its run before it was read; this is step {}",
                human::grouped(step),
                human::grouped(row.step)
            );
            self.focus(at);
            self.picking = Picking::Replace;
            requests.extend(self.open_row(row, context));
            requests.push(info(&words));
        }
        self.focus(focus);
        requests
    }

    /// An engine that ended before it had read its checkpoint: whether that is still there, a new list shows.
    pub(super) fn look_again(&self, slot: Slot) -> Option<Request> {
        let unread = self.columns().iter().any(|c| c.unread().is_some());
        (unread && !self.owns(slot)).then_some(Request::Do(Effect::ListCheckpoints))
    }

    /// Opens a checkpoint of a run, or says why there is nothing to talk to.
    pub(super) fn open_row(&mut self, row: CheckpointRow, context: &mut PaneContext) -> Vec<Request> {
        if row.generates {
            return self.open(ChatModel::of_row(row), context);
        }
        let name = one_line(short_run(&row.run));
        vec![info(&format!(
            "{name} is a reward model: it scores completions and cannot generate; llmtui score {name} FILE scores completions with it"
        ))]
    }

    /// The best checkpoints of several runs, and models that runs started from, side by side in place of all that are there.
    pub(super) fn chat_side_by_side(&mut self, runs: &[PathBuf], context: &mut PaneContext) -> Vec<Request> {
        let store = context.store;
        let rows = &store.checkpoints;
        // What is no run here is the model that one started from.
        let is_model = |path: &PathBuf| store.runs().iter().all(|run| run.path != *path);
        let model = |path: &PathBuf| match best(rows, path) {
            Some(row) => row.generates.then(|| ChatModel::of_row(row.clone())),
            None => is_model(path).then(|| ChatModel::of_path(path.clone())),
        };
        let found: Vec<ChatModel> = runs.iter().filter_map(model).collect();
        let mut requests = Vec::new();
        if found.len() < runs.len() {
            let words = format!("{} of {} have a model to chat with", found.len(), runs.len());
            requests.push(info(&words));
        }
        if found.len() > MAX_COLUMNS {
            let words = format!("the first {MAX_COLUMNS} of {}: more do not fit side by side", found.len());
            requests.push(info(&words));
        }
        for (at, model) in found.into_iter().take(MAX_COLUMNS).enumerate() {
            if at == 0 {
                while self.columns().len() > 1 {
                    requests.extend(self.drop_focused().map(detach));
                }
            }
            self.picking = if at == 0 { Picking::Replace } else { Picking::Add };
            requests.extend(self.start(model, context));
        }
        requests
    }
}

fn model(path: PathBuf) -> Choice {
    Choice::Answer(topic(MODEL), Answer::Path(path))
}

fn checkpoint_item(row: &CheckpointRow, dot: &str) -> Item {
    let words = [
        row.reading(),
        row.best.then(|| "best".into()),
        row.phase.map(|phase| match phase {
            Phase::Paused => "paused".into(),
            _ => "still training".into(),
        }),
        (!row.generates).then(|| "a reward model, which cannot generate".into()),
    ];
    let words: Vec<String> = words.into_iter().flatten().collect();
    let run = one_line(short_run(&row.run));
    Item {
        title: format!("{run} {dot} step {}", human::grouped(row.step)),
        detail: words.join(&format!(" {dot} ")),
        right: String::new(),
        choice: model(row.path.clone()),
    }
}

/// What the run on the screen began with.
fn start_item(path: &Path) -> Item {
    let item = file_item(path);
    Item {
        title: format!("start model: {}", item.title),
        ..item
    }
}

fn file_item(path: &Path) -> Item {
    let folder = path.parent().map(|p| p.display().to_string());
    let parts = PartName::of(path).filter(|part| part.count > 1);
    Item {
        title: ChatModel::of_path(path.to_path_buf()).short(),
        detail: one_line(&folder.unwrap_or_default()),
        right: parts.map_or(String::new(), |part| format!("{} parts", part.count)),
        choice: model(path.to_path_buf()),
    }
}
