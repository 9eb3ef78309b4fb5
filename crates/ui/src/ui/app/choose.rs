//! What the answers of overlays do.

use super::beside::Wanted;
use super::{App, QuitState};
use crate::run::state::Level;
use crate::ui::effect::Effect;
use crate::ui::msg::{Asked, Msg};
use crate::ui::overlays::{Choice, LeaveChoice, Reply};
use crate::ui::toasts::ToastScope;
use crate::wire::{Command, Phase, StopWhen};

impl App {
    /// What the overlay on top says.
    pub(super) fn reply(&mut self, reply: Reply) -> Vec<Effect> {
        match self.overlays.len().checked_sub(1) {
            Some(top) => self.reply_of(top, reply),
            None => Vec::new(),
        }
    }

    fn reply_of(&mut self, at: usize, reply: Reply) -> Vec<Effect> {
        let persist = self.overlays.get(at).and_then(|overlay| overlay.persist());
        let mut effects: Vec<Effect> = persist.into_iter().collect();
        match reply {
            Reply::Stay => {}
            Reply::Do(effect) => effects.extend(self.ask(effect)),
            Reply::Open(overlay) => effects.extend(self.open(overlay)),
            Reply::Preview(choice) => effects.extend(self.preview(choice)),
            Reply::Revert(choice) => {
                self.close_overlay(at);
                effects.extend(self.preview(choice));
            }
            Reply::Close => self.close_overlay(at),
            // It is put aside until the run is there.
            Reply::Chosen(choice @ Choice::StartSpec { .. }) => {
                self.toasts.screen_left();
                effects.extend(self.choose(choice));
            }
            Reply::Chosen(choice) => {
                self.close_overlay(at);
                effects.extend(self.choose(choice));
            }
        }
        effects
    }

    fn close_overlay(&mut self, at: usize) {
        self.overlays.remove(at);
        self.toasts.screen_left();
    }

    /// Gives a message to the topmost overlay that waits for it.
    pub(super) fn hand_to_overlays(&mut self, msg: &Msg) -> Vec<Effect> {
        for at in (0..self.overlays.len()).rev() {
            if let Some(reply) = self.overlays[at].incoming(msg) {
                self.ask_draw();
                return self.reply_of(at, reply);
            }
        }
        Vec::new()
    }

    fn choose(&mut self, choice: Choice) -> Vec<Effect> {
        match choice {
            Choice::Action(action) => self.act(action),
            Choice::StartPreset(name) => self.begin(Wanted::Preset(name)),
            Choice::StartSpec { name, yaml, force } => {
                self.begin(Wanted::Spec { name, yaml, force })
            }
            Choice::EditPreset(name) => self.ask(Effect::OpenEditor(name)),
            Choice::Say(words) => {
                self.toast(Level::Info, words);
                Vec::new()
            }
            Choice::OpenRun(path) => self.open_or_show(path),
            Choice::Theme(name) => {
                self.set_theme(&name);
                vec![Effect::RememberTheme(name)]
            }
            Choice::Answer(topic, answer) => match self.begin_as_answered(topic, &answer) {
                Some(effects) => effects,
                None => self.answer_pane(topic, answer),
            },
            Choice::Leave { choice, leaving } => self.answer_leave(choice, leaving),
        }
    }

    /// What choosing this would show.
    fn preview(&mut self, choice: Choice) -> Vec<Effect> {
        match choice {
            Choice::Theme(name) => self.set_theme(&name),
            Choice::Answer(topic, answer) => return self.answer_pane(topic, answer),
            _ => {}
        }
        Vec::new()
    }

    fn set_theme(&mut self, theme: &str) {
        self.theme = self.themes.get(theme, self.depth, self.theme.ascii);
    }

    fn answer_leave(&mut self, choice: LeaveChoice, leaving: bool) -> Vec<Effect> {
        let (when, words) = match choice {
            LeaveChoice::Running => return vec![Effect::Quit],
            LeaveChoice::StopAfterCheckpoint => {
                (StopWhen::AfterCheckpoint, "stopping after a checkpoint")
            }
            LeaveChoice::StopNow => (StopWhen::Now, "stopping"),
        };
        let held = self.store.held.as_ref();
        let queued = held.is_some_and(|held| held.state.phase == Some(Phase::Queued));
        let words = if queued { "leaving the queue" } else { words };
        if leaving {
            self.leaving = QuitState::WhenStopped;
        }
        self.toast_about(ToastScope::Stop, Level::Info, words);
        self.command(Asked::Stop, Command::Stop { when })
    }
}
