//! What each action does.

use super::{App, Leaving};
use crate::run::index::RunStatus;
use crate::run::state::Level;
use crate::ui::action::Action;
use crate::ui::effect::Effect;
use crate::ui::msg::Asked;
use crate::ui::overlays::{
    Choice, Field, Form, FormKind, HelpSheet, Item, LeaveQuestion, Overlay, Picker, Prompt,
    PromptKind,
};
use crate::ui::panes::Tab;
use crate::ui::panes::home::HomeRow;
use crate::ui::store::{LinkState, short_run};
use crate::wire::{Command, Outcome, Phase};
use std::path::PathBuf;

impl App {
    /// Does an action, whether it came from a key, the mouse or the palette.
    pub(super) fn act(&mut self, action: Action) -> Vec<Effect> {
        match action {
            Action::Help => self.open(Overlay::Help(HelpSheet::new(self.contexts()))),
            Action::Palette => self.open(Overlay::Picker(self.palette())),
            Action::Theme => self.open(Overlay::Picker(self.theme_picker())),
            Action::Leave => self.leave(),
            Action::Home => self.go(Tab::Home),
            Action::RunPane => self.go(Tab::Run),
            Action::Chat => self.go(Tab::Chat),
            Action::DataPane => self.go(Tab::Data),
            Action::OpenData => self.grant_data(crate::ui::panes::data::PaneRequest::Path),
            Action::PlanPane => self.go(Tab::Plan),
            Action::Hardware => self.go(Tab::Hardware),
            Action::NextTab => self.go(self.neighbour(1)),
            Action::PreviousTab => self.go(self.neighbour(Tab::ALL.len() - 1)),
            Action::Redraw => vec![Effect::Redraw],
            Action::Suspend => vec![Effect::Suspend],
            Action::NewRun => vec![Effect::OpenWizard],
            action => match self.tab {
                Tab::Home => self.act_home(action),
                Tab::Run => self.act_run(action),
                Tab::Chat => self.act_chat(action),
                Tab::Data => {
                    let request = self.data.act(action);
                    self.grant_data(request)
                }
                Tab::Plan => {
                    let request = self.plan.act(action);
                    self.grant(request)
                }
                Tab::Hardware => {
                    self.hardware.act(action, &self.store);
                    Vec::new()
                }
            },
        }
    }

    pub(super) fn open(&mut self, overlay: Overlay) -> Vec<Effect> {
        self.overlays.push(overlay);
        Vec::new()
    }

    fn neighbour(&self, by: usize) -> Tab {
        let at = Tab::ALL
            .iter()
            .position(|tab| *tab == self.tab)
            .unwrap_or(0);
        Tab::ALL[(at + by) % Tab::ALL.len()]
    }

    fn go(&mut self, tab: Tab) -> Vec<Effect> {
        self.tab = tab;
        match tab {
            Tab::Home => self.refresh(),
            Tab::Run => Vec::new(),
            Tab::Chat => vec![Effect::ListCheckpoints, Effect::ListModelFiles],
            Tab::Data => self.enter_data(),
            Tab::Plan => self.enter_plan(),
            Tab::Hardware => vec![Effect::WatchHardware],
        }
    }

    fn act_home(&mut self, action: Action) -> Vec<Effect> {
        match action {
            Action::Accept if !self.home.typing() => match self.home.current(&self.store) {
                Some(HomeRow::Preset(name)) => self.start_run(name),
                Some(HomeRow::New) => vec![Effect::OpenWizard],
                Some(HomeRow::Run(path)) => self.open_or_show(path),
                None => Vec::new(),
            },
            Action::EditPreset => self.edit_selected(),
            Action::Refresh => self.refresh(),
            Action::ChatWith => self.chat_with_selected(),
            Action::ResumeRun => self.resume_selected(),
            action => {
                self.home.act(action, &self.store);
                Vec::new()
            }
        }
    }

    /// Opens a run; one that is on the screen already is only shown.
    pub(super) fn open_or_show(&mut self, path: std::path::PathBuf) -> Vec<Effect> {
        let held = self.store.held.as_ref();
        if held.is_some_and(|held| held.path.as_ref() == Some(&path) && held.live()) {
            return self.go(Tab::Run);
        }
        self.open_run(path)
    }

    fn resume_selected(&mut self) -> Vec<Effect> {
        let selected = match self.home.current(&self.store) {
            Some(HomeRow::Run(path)) => self.store.runs().iter().find(|run| run.path == path),
            _ => None,
        };
        let refusal = match selected.map(|run| run.status) {
            None => "select a run that was stopped",
            Some(RunStatus::Live) => "this run is live; enter opens it",
            Some(RunStatus::Finished) => "this run did all its steps",
            Some(_) => "",
        };
        match selected.filter(|_| refusal.is_empty()) {
            Some(run) => self.resume_run(run.path.clone()),
            None => {
                self.toast(Level::Info, refusal);
                Vec::new()
            }
        }
    }

    /// The run on the screen, when its engine ended before the last step.
    pub(super) fn resumable(&self) -> Option<PathBuf> {
        let held = self.store.held.as_ref().filter(|held| !held.live())?;
        let finish = held.state.finished.as_ref();
        let ended = matches!(held.link, LinkState::Ended(_));
        let early = finish.map_or(ended, |finish| finish.outcome != Outcome::Completed);
        held.path.clone().filter(|_| early)
    }

    fn chat_with_selected(&mut self) -> Vec<Effect> {
        let Some(HomeRow::Run(path)) = self.home.current(&self.store) else {
            self.toast(
                Level::Info,
                "select a run to chat with its newest checkpoint",
            );
            return Vec::new();
        };
        self.tab = Tab::Chat;
        self.wanted_run = Some(path);
        vec![Effect::ListCheckpoints]
    }

    fn act_run(&mut self, action: Action) -> Vec<Effect> {
        let asked = match action {
            Action::Pause => {
                if let Some(path) = self.resumable() {
                    return self.resume_run(path);
                }
                let paused =
                    self.store.held.as_ref().and_then(|h| h.state.phase) == Some(Phase::Paused);
                if paused {
                    (Asked::Resume, Command::Resume)
                } else {
                    (Asked::Pause, Command::Pause)
                }
            }
            Action::Checkpoint => (Asked::Checkpoint, Command::Checkpoint),
            Action::Evaluate => (Asked::Evaluate, Command::Evaluate),
            Action::Sample => {
                return self.open_live(|_| Overlay::Prompt(Prompt::new(PromptKind::Sample, "")));
            }
            Action::Note => {
                return self.open_live(|_| Overlay::Prompt(Prompt::new(PromptKind::Note, "")));
            }
            Action::Tune => return self.open_live(|app| Overlay::Form(app.tune_form())),
            Action::Stop => return self.open_live(|app| Overlay::Leave(app.leave_question(false))),
            action => return self.act_dashboard(action),
        };
        self.command(asked.0, asked.1)
    }

    /// Cursors of the charts.
    fn act_dashboard(&mut self, action: Action) -> Vec<Effect> {
        let Some(held) = self.store.held.as_ref() else {
            return Vec::new();
        };
        match action {
            Action::FilterCharts => {
                let prompt = Prompt::new(PromptKind::FilterCharts, self.dashboard.filter());
                return self.open(Overlay::Prompt(prompt));
            }
            Action::Back if !self.dashboard.act(action, &held.state) => {
                self.dashboard.set_filter("")
            }
            Action::Back => {}
            action => {
                self.dashboard.act(action, &held.state);
            }
        }
        Vec::new()
    }

    /// Opens an overlay that makes sense only while an engine listens.
    fn open_live(&mut self, overlay: impl FnOnce(&App) -> Overlay) -> Vec<Effect> {
        if !self.store.held.as_ref().is_some_and(|held| held.live()) {
            self.no_engine();
            return Vec::new();
        }
        let overlay = overlay(self);
        self.open(overlay)
    }

    /// Sends a command to the engine of the run on the screen.
    pub(super) fn command(&mut self, asked: Asked, command: Command) -> Vec<Effect> {
        match self.store.held.as_ref().filter(|held| held.live()) {
            Some(held) => vec![Effect::Send {
                slot: held.slot,
                asked,
                command,
            }],
            None => {
                self.no_engine();
                Vec::new()
            }
        }
    }

    fn no_engine(&mut self) {
        let words = match &self.store.held {
            None => "no run is open; start or open one on Home",
            Some(held) if held.state.finished.is_some() => {
                "this run is over: there is no engine to ask"
            }
            Some(_) => "the engine of this run does not answer",
        };
        self.toast(Level::Info, words);
    }

    fn tune_form(&self) -> Form {
        fn check(text: &str) -> Option<String> {
            match text.parse::<f64>() {
                _ if text.is_empty() => None,
                Ok(x) if x.is_finite() && x >= 0.0 => None,
                _ => Some(format!("`{text}` is no number from 0 up, such as 3e-4")),
            }
        }
        let now = |key: &str| {
            let held = self.store.held.as_ref();
            let value = held.and_then(|h| h.state.settings.get(key).copied());
            value.map_or(String::new(), |x| {
                format!(" (now {})", crate::base::human::number(x))
            })
        };
        let fields = vec![
            Field::new(
                "lr",
                &format!(
                    "peak learning rate{}, the schedule follows; empty keeps it",
                    now("lr")
                ),
                "",
                check,
            ),
            Field::new(
                "clip_norm",
                &format!(
                    "clip gradients above this norm{}; 0 turns it off; empty keeps it",
                    now("clip_norm")
                ),
                "",
                check,
            ),
        ];
        Form::new(FormKind::Tune, "tune the live run", fields)
    }

    fn leave_question(&self, leaving: bool) -> LeaveQuestion {
        let (holder, name) = match &self.store.held {
            Some(held) => (held.holder, held.name().to_string()),
            None => (crate::ui::msg::Holder::Log, String::new()),
        };
        LeaveQuestion::new(leaving, holder, &name)
    }

    /// `q`: a live run on the screen asks first.
    fn leave(&mut self) -> Vec<Effect> {
        match self.store.held.as_ref().is_some_and(|held| held.live()) {
            true if self.leaving == Leaving::No || self.overlays.is_empty() => {
                self.open(Overlay::Leave(self.leave_question(true)))
            }
            _ => vec![Effect::Quit],
        }
    }

    /// Everything that can be done here, then presets, runs and themes.
    fn palette(&self) -> Picker {
        let contexts = self.contexts();
        let list_only = [Action::Accept, Action::Cancel];
        let mut items: Vec<Item> = contexts
            .iter()
            .filter(|c| **c != crate::ui::action::Context::List)
            .flat_map(|context| {
                crate::ui::action::ACTIONS
                    .iter()
                    .filter(move |a| a.context == *context)
            })
            .filter(|a| a.action != Action::Palette && !list_only.contains(&a.action))
            .map(|a| Item {
                title: a.title.into(),
                detail: a.doc.into(),
                right: self.keymap.label(a.action),
                choice: Choice::Action(a.action),
            })
            .collect();
        for (action, at_home) in [(Action::NewRun, Tab::Home), (Action::OpenData, Tab::Data)] {
            if self.tab != at_home {
                let info = action.info();
                items.push(Item {
                    title: info.title.into(),
                    detail: info.doc.into(),
                    right: String::new(),
                    choice: Choice::Action(action),
                });
            }
        }
        items.extend(self.store.presets.iter().map(|p| Item {
            title: format!("start {}", p.name),
            detail: p.about.clone(),
            right: String::new(),
            choice: Choice::StartPreset(p.name.clone()),
        }));
        items.extend(self.store.presets.iter().map(|p| Item {
            title: format!("edit {}", p.name),
            detail: "every value, with search and undo".into(),
            right: String::new(),
            choice: Choice::EditPreset(p.name.clone()),
        }));
        items.extend(self.store.runs().iter().map(|run| Item {
            title: format!("open {}", crate::base::text::one_line(short_run(&run.id))),
            detail: run.status.word().into(),
            right: String::new(),
            choice: Choice::OpenRun(run.path.clone()),
        }));
        Picker::new("palette", "", items)
    }

    fn theme_picker(&self) -> Picker {
        let items = self
            .themes
            .names()
            .map(|(name, about)| Item {
                title: name.into(),
                detail: about.into(),
                right: String::new(),
                choice: Choice::Theme(name.into()),
            })
            .collect();
        let name = self.theme.name.clone();
        let title = if self.theme.no_color {
            "theme (this terminal has no colours: mono)"
        } else {
            "theme"
        };
        Picker::new(title, "", items).select(|item| item.title == name)
    }
}
