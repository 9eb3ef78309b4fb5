//! The chat: what its keys do, which models it offers, and what its engines bring.

use super::App;
use crate::base::human;
use crate::base::text::one_line;
use crate::link::Incoming;
use crate::run::state::Level;
use crate::ui::action::Action;
use crate::ui::effect::Effect;
use crate::ui::msg::{Asked, CheckpointRow, Slot};
use crate::ui::overlays::{Choice, Item, Overlay, Picker};
use crate::ui::panes::Tab;
use crate::ui::panes::chat::{ChatModel, MAX_COLUMNS, Picking, Sent, sampling_form};
use crate::ui::store::short_run;
use std::path::PathBuf;

/// Titles of the list of models; also how it is recognised when a new list comes.
const TALK_TO: &str = "talk to a model";
const PUT_BESIDE: &str = "put a model beside";

impl App {
    pub(super) fn act_chat(&mut self, action: Action) -> Vec<Effect> {
        let now = self.store.now;
        match action {
            Action::Send if self.chat.typing() && self.chat.columns().is_empty() => {
                let choose = self.keymap.label(Action::Checkpoints);
                self.toast(Level::Info, &format!("choose a model first: {choose}"));
            }
            Action::Send => return generate(self.chat.send(now)),
            Action::Resend => return generate(self.chat.resend(now)),
            Action::StopAnswer if !self.chat.answering() => {
                let gone = self.chat.stop_downloads();
                return match gone.is_empty() {
                    true => effects(Asked::CancelAnswer, self.chat.stop()),
                    false => gone
                        .into_iter()
                        .map(|slot| Effect::Detach { slot })
                        .collect(),
                };
            }
            Action::StopAnswer => return effects(Asked::CancelAnswer, self.chat.stop()),
            Action::NewLine => self.chat.field().new_line(),
            Action::Checkpoints => return self.pick_model(Picking::Replace),
            Action::AddModel if self.chat.columns().len() >= MAX_COLUMNS => {
                self.toast(Level::Info, "three models stand side by side at most");
            }
            Action::AddModel => return self.pick_model(Picking::Add),
            Action::DropModel => {
                let gone = self.chat.drop_focused();
                return gone
                    .map(|slot| Effect::Detach { slot })
                    .into_iter()
                    .collect();
            }
            Action::NextModel => self.chat.focus_next(),
            Action::Settings => {
                let form = sampling_form(&self.chat.sampling, self.chat.system());
                return self.open(Overlay::Form(form));
            }
            Action::EditTurn => self.chat.edit(),
            Action::TokenColours => self.chat.next_heat(),
            Action::ShowPrompt => self.chat.toggle_prompt(),
            Action::SaveChat => return self.save_chat(),
            Action::EarlierPrompt | Action::LaterPrompt => self.recall(action),
            Action::ScrollUp | Action::ScrollDown => {
                let page = self.chat.page();
                self.chat.scroll(action == Action::ScrollUp, page);
            }
            Action::ClearChat => self.chat.clear(),
            _ => {}
        }
        Vec::new()
    }

    fn recall(&mut self, action: Action) {
        use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
        let earlier = action == Action::EarlierPrompt;
        if !self.chat.typing() {
            self.chat.scroll(earlier, 1);
        } else if !self.chat.recall(earlier) {
            let code = if earlier { KeyCode::Up } else { KeyCode::Down };
            self.chat
                .field()
                .key(KeyEvent::new(code, KeyModifiers::NONE));
        }
    }

    fn pick_model(&mut self, picking: Picking) -> Vec<Effect> {
        self.chat.picking = picking;
        let picker = self.model_picker();
        self.overlays.push(Overlay::Picker(picker));
        vec![Effect::ListCheckpoints, Effect::ListModelFiles]
    }

    /// Checkpoints of runs, models that lie near by, and any other by its place.
    fn model_picker(&self) -> Picker {
        let dot = self.theme.glyphs().separator;
        let mut items: Vec<Item> = self
            .store
            .checkpoints
            .iter()
            .map(|row| checkpoint_item(row, dot))
            .collect();
        items.extend(self.store.model_files.iter().map(|path| file_item(path)));
        items.push(Item {
            title: "another place".into(),
            detail: "a path, or an id of the hub (org/name)".into(),
            right: String::new(),
            choice: Choice::ModelPath,
        });
        let current = self.chat.focused().map(|c| c.model.path.clone());
        let title = match self.chat.picking {
            Picking::Replace => TALK_TO,
            Picking::Add => PUT_BESIDE,
        };
        Picker::new(title, "", items).select(|item| {
            matches!(&item.choice, Choice::Model(model) if Some(&model.path) == current.as_ref())
        })
    }

    /// Fills an open list of models anew.
    fn refresh_picker(&mut self) -> bool {
        let fresh = self.model_picker();
        match self.overlays.last_mut() {
            Some(Overlay::Picker(picker)) if [TALK_TO, PUT_BESIDE].contains(&picker.title()) => {
                picker.replace(fresh);
                true
            }
            _ => false,
        }
    }

    /// Starts an engine for a model, in the place that was picked.
    pub(super) fn open_chat(&mut self, model: ChatModel) -> Vec<Effect> {
        let slot = self.new_slot();
        let path = model.path.clone();
        let gone = self.chat.place(model, slot, self.store.now);
        let mut effects: Vec<Effect> = gone
            .map(|slot| Effect::Detach { slot })
            .into_iter()
            .collect();
        effects.push(Effect::OpenChat { slot, model: path });
        effects
    }

    pub(super) fn model_files(&mut self, files: Vec<PathBuf>) {
        self.data_moved();
        self.store.model_files = files;
        self.refresh_picker();
    }

    /// A list of checkpoints: fills an open picker, and gives the chat its first engine.
    pub(super) fn checkpoints(&mut self, rows: Vec<CheckpointRow>) -> Vec<Effect> {
        self.data_moved();
        self.store.checkpoints = rows;
        if self.refresh_picker() {
            return Vec::new();
        }
        let wanted = self.wanted_run.take();
        if self.tab != Tab::Chat || (wanted.is_none() && !self.chat.columns().is_empty()) {
            return Vec::new();
        }
        let run = wanted.or_else(|| self.store.held.as_ref().and_then(|held| held.path.clone()));
        let of_run =
            |row: &&CheckpointRow| run.as_ref().is_some_and(|run| row.path.starts_with(run));
        let newest = self
            .store
            .checkpoints
            .iter()
            .filter(of_run)
            .max_by_key(|row| row.step);
        match newest.or(self.store.checkpoints.first()).cloned() {
            Some(row) => {
                self.chat.picking = Picking::Replace;
                self.open_chat(ChatModel::of_row(row))
            }
            None => Vec::new(),
        }
    }

    /// What the engine of a column brings.
    pub(super) fn chat_incoming(&mut self, slot: Slot, batch: Vec<Incoming>) -> Vec<Effect> {
        if self.tab == Tab::Chat {
            self.data_moved();
        }
        let now = self.store.now;
        let mut sent = Vec::new();
        for item in batch {
            match item {
                Incoming::Event(envelope) => {
                    sent.extend(self.chat.apply(slot, &envelope.event, now));
                }
                Incoming::CaughtUp => {}
                Incoming::Closed(why) => {
                    self.chat
                        .lost(slot, why.as_deref().unwrap_or("the engine ended"));
                }
            }
        }
        generate(sent)
    }

    fn save_chat(&mut self) -> Vec<Effect> {
        match self.chat.save() {
            Some(saved) => vec![Effect::SaveChat(Box::new(saved))],
            None => {
                self.toast(
                    Level::Info,
                    "nothing was answered yet: there is nothing to save",
                );
                Vec::new()
            }
        }
    }

    pub(super) fn chat_saved(&mut self, result: Result<Vec<PathBuf>, String>) {
        match result {
            Ok(paths) => {
                let first = paths.first().map(|p| p.display().to_string());
                let words = format!("saved, with .jsonl beside: {}", first.unwrap_or_default());
                self.toast(Level::Good, &words);
            }
            Err(why) => self.toast(Level::Bad, &format!("the conversation is not saved: {why}")),
        }
    }
}

fn generate(sent: Vec<Sent>) -> Vec<Effect> {
    effects(Asked::Generate, sent)
}

fn effects(asked: Asked, sent: Vec<Sent>) -> Vec<Effect> {
    let send = |(slot, command)| Effect::Send {
        slot,
        asked,
        command,
    };
    sent.into_iter().map(send).collect()
}

fn checkpoint_item(row: &CheckpointRow, dot: &str) -> Item {
    let loss = row.val_loss.map(|x| format!("val {}", human::number(x)));
    let words = [
        loss,
        row.best.then(|| "best".into()),
        row.live.then(|| "still training".into()),
    ];
    let words: Vec<String> = words.into_iter().flatten().collect();
    let run = one_line(short_run(&row.run));
    Item {
        title: format!("{run} {dot} step {}", human::grouped(row.step)),
        detail: words.join(&format!(" {dot} ")),
        right: String::new(),
        choice: Choice::Model(Box::new(ChatModel::of_row(row.clone()))),
    }
}

fn file_item(path: &std::path::Path) -> Item {
    let model = ChatModel::of_path(path.to_path_buf());
    let folder = path.parent().map(|p| p.display().to_string());
    Item {
        title: model.short(),
        detail: one_line(&folder.unwrap_or_default()),
        right: String::new(),
        choice: Choice::Model(Box::new(model)),
    }
}
