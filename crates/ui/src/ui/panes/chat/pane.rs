//! The chat among the panes: what its keys ask for, and what its engines bring. Which models it offers is in `choosing`.

use super::models::best;
use super::said::is_command;
use super::unsaved::{LOSS, Loss};
use super::{
    ChatModel, ChatPane, Column, Engine, MAX_COLUMNS, Picking, Resulted, Sent, Settings,
    sampling_form,
};
use crate::base::clock::UnixMillis;
use crate::base::text::one_line;
use crate::link::Incoming;
use crate::run::state::Level;
use crate::ui::action::{Action, Context};
use crate::ui::effect::Effect;
use crate::ui::freshness::Freshness;
use crate::ui::msg::{Asked, Holder, Msg, Slot};
use crate::ui::overlays::{Overlay, Prompt};
use crate::ui::panes::run::command;
use crate::ui::panes::{Pane, PaneContext, PaneEntry, SPIN};
use crate::ui::request::{Answer, Hints, Request, Topic, titles};
use crate::ui::store::Store;
use crate::wire::{Command, Event};
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
pub(super) const MODEL: &str = "model";
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

pub(super) fn info(words: &str) -> Request {
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
        if self.columns().iter().any(Column::has_thoughts) {
            own.extend(titles(&[A::Thoughts]));
        }
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
            Action::Thoughts => self.toggle_thoughts(),
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
