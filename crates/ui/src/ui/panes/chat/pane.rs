//! The chat among the panes: what its keys ask for, which models it offers, and what its engines bring.

use super::models::{best, start_model, without_checkpoint};
use super::said::is_command;
use super::unsaved::{LOSS, Loss};
use super::{
    ChatModel, ChatPane, Column, Engine, MAX_COLUMNS, Picking, Resulted, Sent, Settings,
    sampling_form,
};
use crate::base::clock::UnixMillis;
use crate::base::human;
use crate::base::text::one_line;
use crate::gguf::PartName;
use crate::link::Incoming;
use crate::run::state::Level;
use crate::ui::action::{Action, Context};
use crate::ui::effect::Effect;
use crate::ui::freshness::Freshness;
use crate::ui::msg::{Asked, Holder, Msg, Slot};
use crate::ui::rows::CheckpointRow;
use crate::ui::overlays::{Choice, Item, Overlay, Picker, Prompt};
use crate::ui::panes::home;
use crate::ui::panes::run::command;
use crate::ui::panes::{Pane, PaneContext, PaneEntry, SPIN};
use crate::ui::request::{Answer, Hints, Request, Topic, titles};
use crate::ui::store::{Store, short_run};
use crate::wire::{Command, Event, Phase};
use crossterm::event::{
    KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};
use ratatui::Frame;
use ratatui::layout::Rect;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub static ENTRY: PaneEntry = PaneEntry {
    id: "chat",
    title: "Chat",
    doc: "Go to Chat: talk to a checkpoint.",
    contexts: &[Context::Chat, Context::Global],
    everywhere: &[],
    make: || Box::new(ChatPane::default()),
};

/// A run whose best checkpoint the chat should take.
pub const WITH_RUN: Topic = topic(RUN);

/// The same for Home, which comes back where the run has no checkpoint.
pub const WITH_RUN_OR_HOME: Topic = topic(RUN_OR_HOME);

const RUN: &str = "run";
const RUN_OR_HOME: &str = "run or home";
const MODEL: &str = "model";
const PLACE: &str = "place";
/// The form of the settings.
pub(super) const SETTINGS: &str = "settings";

/// Rows that a turn of the wheel moves.
const WHEEL: usize = 3;

impl ChatPane {
    fn stop_answer(&mut self) -> Vec<Request> {
        if !self.answering() {
            let gone = self.stop_downloads();
            if !gone.is_empty() {
                return gone.into_iter().map(detach).collect();
            }
        }
        send(Asked::CancelAnswer, self.stop())
    }

    fn switch_adapter(&mut self) -> Vec<Request> {
        let about = |c: &Column| Some((c.slot()?, c.about.clone()?));
        let Some((slot, about)) = self.focused().and_then(about) else {
            return vec![info("no model is loaded yet")];
        };
        if about.adapters.is_empty() {
            return vec![info(
                "this model has no separate adapter: open a checkpoint of a run with adapters, or llmtui chat MODEL --adapter DIR",
            )];
        }
        let name = about.next_adapter().map(String::from);
        send(Asked::Adapter, vec![(slot, Command::UseAdapter { name })])
    }

    fn tool_result(&mut self, now: UnixMillis) -> Vec<Request> {
        match self.give_result(now) {
            Resulted::Sent(sent) => send(Asked::Generate, sent),
            Resulted::Next(name) => vec![info(&format!("the call of {} waits for its result, too", one_line(&name)))],
            Resulted::Not(why) => vec![info(why)],
        }
    }

    fn recall_or_move(&mut self, action: Action) {
        let earlier = action == Action::EarlierPrompt;
        if !self.typing() {
            self.scroll(earlier, 1);
        } else if !self.recall(earlier) {
            let code = if earlier { KeyCode::Up } else { KeyCode::Down };
            self.field().key(KeyEvent::new(code, KeyModifiers::NONE));
        }
    }

    fn pick(&mut self, picking: Picking, context: &PaneContext) -> Vec<Request> {
        self.picking = picking;
        vec![
            Request::Open(Box::new(self.picker(context))),
            Request::Do(Effect::ListCheckpoints),
            Request::Do(Effect::ListModelFiles),
        ]
    }

    /// Checkpoints of runs, models that lie near by, and any other by its place.
    fn picker(&self, context: &PaneContext) -> Picker {
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
    fn open(&mut self, model: ChatModel, context: &mut PaneContext) -> Vec<Request> {
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
    fn checkpoints(&mut self, context: &mut PaneContext) -> Vec<Request> {
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
    fn look_again(&self, slot: Slot) -> Option<Request> {
        let unread = self.columns().iter().any(|c| c.unread().is_some());
        (unread && !self.owns(slot)).then_some(Request::Do(Effect::ListCheckpoints))
    }

    /// Opens a checkpoint of a run, or says why there is nothing to talk to.
    fn open_row(&mut self, row: CheckpointRow, context: &mut PaneContext) -> Vec<Request> {
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

    /// Whether the run that was asked for a checkpoint has saved it.
    fn saved(&self, slot: Slot, batch: &[Incoming], store: &Store) -> bool {
        let held = store.held.as_ref().filter(|held| held.slot == slot);
        let asked = self.asked_run.is_some() && held.and_then(|h| h.path.as_ref()) == self.asked_run.as_ref();
        let kept = |item: &Incoming| match item {
            Incoming::Event(envelope) => matches!(envelope.event, Event::Checkpointed { .. }),
            _ => false,
        };
        asked && batch.iter().any(kept)
    }

    /// Reports a model that failed to load and removes its column.
    fn drop_failed_model(&mut self) -> Vec<Request> {
        let mut requests = Vec::new();
        while self.columns.len() > 1
            && let Some(at) = self.columns.iter().position(Column::not_loaded)
        {
            let column = self.columns.remove(at);
            if at < self.focus {
                self.focus -= 1;
            }
            self.focus(self.focus);
            if let Engine::Failed(why) = &column.engine {
                let words = format!("{} could not be loaded: {}", column.model.short(), one_line(why));
                requests.push(Request::Toast(Level::Bad, words));
            }
        }
        requests
    }

    /// What the engine of a column brings.
    fn on_engine_events(&mut self, slot: Slot, batch: &[Incoming], store: &Store) -> Vec<Request> {
        let (mut sent, mut requests) = (Vec::new(), Vec::new());
        for item in batch {
            match item {
                Incoming::Event(envelope) => {
                    if matches!(envelope.event, Event::Loaded { .. }) {
                        requests.extend(self.remember(slot));
                    }
                    sent.extend(self.apply(slot, &envelope.event, store.now));
                }
                Incoming::CaughtUp => {}
                Incoming::Closed(why) => {
                    self.lost(slot, why.as_deref().unwrap_or("the engine ended"));
                }
            }
        }
        requests.extend(send(Asked::Generate, sent));
        requests.extend(self.look_again(slot));
        requests.extend(self.drop_failed_model());
        requests.push(Request::Draw(Freshness::DataMoved));
        requests
    }

    /// Models that are no checkpoint of a run here are offered first the next time.
    fn remember(&self, slot: Slot) -> Option<Request> {
        let column = self.columns().iter().find(|c| c.slot() == Some(slot))?;
        let foreign = column.model.row.is_none();
        foreign.then(|| Request::Do(Effect::RememberModel(column.model.path.clone())))
    }

    pub(super) fn write(&self) -> Request {
        match self.save() {
            Some(saved) => Request::Do(Effect::SaveChat(Box::new(saved))),
            None => info("no answers yet: nothing to save"),
        }
    }
}

/// The live run on the screen, where it could be talked to and no checkpoint of any run is there.
pub(super) fn unsaved_run(store: &Store) -> Option<&Path> {
    let held = store.held.as_ref().filter(|held| held.live() && !held.state.judges())?;
    let run = held.path.as_deref().filter(|_| held.holder != Holder::Foreign)?;
    let there = store.checkpoints.iter().any(|row| row.path.starts_with(run));
    (!there).then_some(run)
}

pub(super) const fn topic(about: &'static str) -> Topic {
    Topic {
        pane: &ENTRY,
        about,
    }
}

fn place_prompt() -> Prompt {
    Prompt::new(
        topic(PLACE),
        "model: a folder, a .gguf file or a hub id",
        "{accept} loads it; org/name or org/name:Q4_K_M is downloaded from the hub first",
    )
    .needed()
    .path()
}

fn written(result: &Result<Vec<PathBuf>, String>) -> Request {
    match result {
        Ok(paths) => {
            let first = paths.first().map(|p| p.display().to_string());
            let words = format!("saved, and as .jsonl: {}", first.unwrap_or_default());
            Request::Toast(Level::Good, words)
        }
        Err(why) => Request::Toast(Level::Bad, format!("the conversation could not be saved: {why}")),
    }
}

fn info(words: &str) -> Request {
    Request::Toast(Level::Info, words.into())
}

pub(super) fn detach(slot: Slot) -> Request {
    Request::Do(Effect::Detach { slot })
}

fn send(asked: Asked, sent: Vec<Sent>) -> Vec<Request> {
    let send = |(slot, command)| {
        Request::Do(Effect::Send {
            slot,
            asked,
            command,
        })
    };
    sent.into_iter().map(send).collect()
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

impl Pane for ChatPane {
    fn hints(&self, _store: &Store) -> Hints {
        use Action as A;
        let stop = if self.answering() { "stop" } else { "commands" };
        let save = titles(&[A::SaveChat]);
        let mut own = match self.typing {
            true => vec![(A::Send, "send"), (A::StopAnswer, stop)],
            false => vec![(A::Send, "type")],
        };
        if self.waiting_call().is_some() {
            own.push((A::ToolResult, "give result"));
        }
        // On a narrow screen the last ones give way.
        if self.columns().len() > 1 {
            titles(&[A::NextModel]).into_iter().for_each(|hint| own.insert(1, hint));
        }
        let about = self.focused().and_then(|c| c.about.as_ref());
        if about.is_some_and(|about| !about.adapters.is_empty()) {
            own.extend(titles(&[A::NextAdapter]));
        }
        own.extend(save.iter().filter(|_| self.unsaved.any()));
        own.extend(titles(&[
            A::Checkpoints,
            A::AddModel,
            A::TokenColours,
            A::EditTurn,
            A::ShowPrompt,
            A::Settings,
            A::Resend,
            A::ClearChat,
            A::DropModel,
        ]));
        own.extend(save.iter().filter(|_| !self.unsaved.any()));
        Hints::of_pane(own)
    }

    fn typing(&self) -> bool {
        self.typing
    }

    fn tick(&self, _store: &Store) -> Option<Duration> {
        self.loading().then_some(SPIN)
    }

    fn owns(&self, slot: Slot) -> bool {
        self.columns().iter().any(|c| c.slot() == Some(slot))
    }

    fn enter(&mut self, context: &mut PaneContext) -> Vec<Request> {
        // The end page of a run offers to chat with it: nothing was said yet to the model that is there.
        let ended = context.store.held.as_ref().filter(|held| !held.live() && !held.state.judges());
        let ended = ended.and_then(|held| held.path.clone());
        // Once for each run: another model may be chosen there.
        let new = ended.is_some() && ended != self.offered;
        if new {
            self.offered.clone_from(&ended);
        }
        if let Some(run) = ended.filter(|_| new)
            && best(&context.store.checkpoints, &run).is_some()
            && self.conversation.said.is_empty()
            && !self.columns.is_empty()
            && self.columns.iter().all(|column| !column.model.path.starts_with(&run))
        {
            self.wanted_runs = vec![run];
        }
        vec![
            Request::Do(Effect::ListCheckpoints),
            Request::Do(Effect::ListModelFiles),
        ]
    }

    fn confirm_quit(&mut self) -> Option<Box<dyn Overlay>> {
        let question = self.question(Loss::Leave).ok()?;
        Some(Box::new(question))
    }

    fn act(&mut self, action: Action, context: &mut PaneContext) -> Vec<Request> {
        let now = context.store.now;
        match action {
            Action::Send if self.typing && self.columns().is_empty() => {
                if let Some(run) = unsaved_run(context.store) {
                    self.asked_run = Some(run.to_path_buf());
                    return command(context.store, Asked::Checkpoint, Command::Checkpoint);
                }
                let choose = context.keymap.label(Action::Checkpoints);
                return vec![info(&format!("choose a model first: {choose}"))];
            }
            Action::Send if is_command(&self.field().text()) => {
                let words = "commands are keys here: esc shows them; a space before the slash sends it as text";
                return vec![info(words)];
            }
            Action::Send => return send(Asked::Generate, self.send(now)),
            Action::ToolResult => return self.tool_result(now),
            Action::Resend => return send(Asked::Generate, self.resend(now)),
            Action::StopAnswer => return self.stop_answer(),
            Action::NewLine => self.field().new_line(),
            Action::Checkpoints => return self.pick(Picking::Replace, context),
            Action::AddModel if self.columns().len() >= MAX_COLUMNS => {
                return vec![info("at most three models side by side")];
            }
            Action::AddModel => return self.pick(Picking::Add, context),
            Action::DropModel if self.columns().len() < 2 => {}
            Action::DropModel => return self.lose(Loss::DropModel, context),
            Action::NextModel => self.focus_next(),
            Action::NextAdapter => return self.switch_adapter(),
            Action::Settings => {
                let form = sampling_form(&self.sampling, self.system(), &self.tools().path);
                return vec![Request::Open(Box::new(form))];
            }
            Action::EditTurn => self.edit(),
            Action::TokenColours => self.next_heat(),
            Action::ShowPrompt => self.toggle_prompt(),
            Action::SaveChat => return vec![self.write()],
            Action::EarlierPrompt | Action::LaterPrompt => self.recall_or_move(action),
            Action::ScrollUp | Action::ScrollDown => {
                self.scroll(action == Action::ScrollUp, self.page());
            }
            Action::ClearChat if self.answering() => {}
            Action::ClearChat => return self.lose(Loss::Clear, context),
            _ => {}
        }
        Vec::new()
    }

    fn key(&mut self, key: KeyEvent, _context: &mut PaneContext) -> Vec<Request> {
        self.field().key(key);
        Vec::new()
    }

    fn paste(&mut self, text: &str, _context: &mut PaneContext) -> Vec<Request> {
        if self.typing {
            self.field().paste(text);
        }
        Vec::new()
    }

    fn click(&mut self, row: usize, _context: &mut PaneContext) -> Vec<Request> {
        self.focus(row);
        Vec::new()
    }

    fn wheel(&mut self, up: bool, _context: &mut PaneContext) -> Vec<Request> {
        self.scroll(up, WHEEL);
        Vec::new()
    }

    /// A click into the line for typing.
    fn mouse(&mut self, mouse: MouseEvent, _context: &mut PaneContext) -> Option<Vec<Request>> {
        if mouse.kind != MouseEventKind::Down(MouseButton::Left) {
            return None;
        }
        self.typing = true;
        Some(vec![Request::Draw(Freshness::Asked)])
    }

    fn incoming(&mut self, msg: &Msg, context: &mut PaneContext) -> Vec<Request> {
        match msg {
            Msg::Checkpoints(_) => return self.checkpoints(context),
            Msg::ModelFiles(_) if context.asked == Some(topic(MODEL)) => {
                return vec![Request::Refill(Box::new(self.picker(context)))];
            }
            Msg::ChatSaved(result) => {
                let mut requests = vec![written(result)];
                requests.extend(self.file_written(result.is_ok(), context));
                return requests;
            }
            Msg::Tools { path, result } => match result {
                Ok(definitions) => self.set_tools(path, definitions.clone()),
                Err(why) => return vec![Request::Toast(Level::Bad, why.clone())],
            },
            Msg::Incoming { slot, batch } if self.owns(*slot) => {
                return self.on_engine_events(*slot, batch, context.store);
            }
            Msg::Opened { slot, result } if self.owns(*slot) => {
                self.opened(*slot, result.as_ref().map(|_| ()).map_err(String::clone));
                let again = self.look_again(*slot);
                return again.into_iter().chain(self.drop_failed_model()).collect();
            }
            Msg::Sent {
                slot,
                asked: Asked::Generate,
                result,
            } if self.owns(*slot) => self.sent(*slot, result.clone()),
            Msg::Incoming { slot, batch } if self.saved(*slot, batch, context.store) => {
                self.wanted_runs = self.asked_run.take().into_iter().collect();
                return vec![Request::Do(Effect::ListCheckpoints)];
            }
            Msg::Tick if self.loading() => return vec![Request::Draw(Freshness::Asked)],
            _ => {}
        }
        Vec::new()
    }

    fn answered(
        &mut self,
        about: &str,
        answer: Answer,
        context: &mut PaneContext,
    ) -> Vec<Request> {
        match (about, answer) {
            (RUN | RUN_OR_HOME, Answer::Path(path)) => {
                self.or_home = about == RUN_OR_HOME;
                self.wanted_runs = vec![path];
                vec![Request::Do(Effect::ListCheckpoints)]
            }
            (RUN, Answer::Paths(paths)) => {
                self.wanted_runs = paths;
                vec![Request::Do(Effect::ListCheckpoints)]
            }
            (MODEL, Answer::Path(path)) => {
                let mut rows = context.store.checkpoints.iter();
                match rows.find(|row| row.path == path).cloned() {
                    Some(row) => self.open_row(row, context),
                    None => self.open(ChatModel::of_path(path), context),
                }
            }
            (MODEL, Answer::Text(text)) if text.is_empty() => {
                vec![Request::Open(Box::new(place_prompt()))]
            }
            (MODEL | PLACE, Answer::Text(text)) => {
                self.open(ChatModel::of_path(text.trim().into()), context)
            }
            (LOSS, Answer::Text(word)) => self.on_discard_answer(&word, context),
            (SETTINGS, Answer::Values(values)) => {
                let settings = Settings::of(&values, &self.sampling);
                let tools = self.set(settings);
                tools.map(|path| Request::Do(Effect::ReadTools(path))).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    fn draw(&mut self, frame: &mut Frame, area: Rect, context: &mut PaneContext) {
        self.draw_all(frame, area, context);
    }
}
