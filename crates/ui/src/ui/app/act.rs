//! What each action does, and what panes ask for.

use super::beside::Wanted;
use super::{App, QuitState};
use crate::base::finding::Status;
use crate::base::text::one_line;
use crate::diagnosis::diagnose;
use crate::run::RunState;
use crate::run::state::Level;
use crate::ui::action::{Action, Context, actions};
use crate::ui::effect::Effect;
use crate::ui::msg::Asked;
use crate::ui::overlays::{
    Choice, GuideSheet, HelpSheet, Item, LeaveQuestion, Messages, Overlay, Picker,
};
use crate::ui::panes::{PANES, PaneEntry, run};
use crate::ui::request::{Answer, Request, Topic};
use crate::ui::store::short_run;
use crate::wire::Command;
use std::path::PathBuf;

impl App {
    /// Does an action, whether it came from a key, the mouse or the palette.
    pub(super) fn act(&mut self, action: Action) -> Vec<Effect> {
        match action {
            Action::Help => self.open(Box::new(HelpSheet::new(self.contexts()))),
            Action::Guide => self.guide(),
            Action::Palette => self.open(Box::new(self.palette())),
            Action::Theme => self.open(Box::new(self.theme_picker())),
            Action::Messages => self.open(Box::new(Messages::new(self.messages()))),
            Action::Leave => self.leave(),
            Action::Open(pane) => self.go(pane),
            Action::NextTab => self.go(self.neighbour(1)),
            Action::PreviousTab => self.go(self.neighbour(PANES.len() - 1)),
            Action::SavePicture => {
                let run = self
                    .store
                    .held
                    .as_ref()
                    .map_or("llmtui", |held| held.name());
                let name = format!("{run}-{}", self.entry().id);
                vec![Effect::SavePicture {
                    name: crate::base::text::one_line(&name),
                    area: None,
                }]
            }
            Action::Redraw => vec![Effect::Redraw],
            Action::Suspend => vec![Effect::Suspend],
            action => {
                let at = self.owner(action);
                self.with(at, |pane, context| pane.act(action, context))
            }
        }
    }

    /// The pane that an action is for: the one on the screen, else the one whose own keys it is among.
    fn owner(&self, action: Action) -> usize {
        let context = action.info().context;
        let own = |pane: &&PaneEntry| pane.contexts.first() == Some(&context);
        match self.contexts().contains(&context) {
            true => self.front,
            false => PANES.iter().position(own).unwrap_or(self.front),
        }
    }

    /// Does what the pane at `from` asks for.
    pub(super) fn handle_request(&mut self, from: usize, request: Request) -> Vec<Effect> {
        match request {
            Request::Do(Effect::RefreshRuns) => return self.refresh(),
            Request::Do(effect) => return self.ask(effect),
            Request::Open(overlay) => return self.open(overlay),
            Request::SendAnswer(topic, answer) => return self.answer_pane(topic, answer),
            Request::StartRun(target) => return self.begin(Wanted::Preset(target)),
            Request::OpenRun(path) => return self.open_or_show(path),
            Request::ResumeRun(path) => return self.begin(Wanted::Resume(path)),
            Request::ContinuePipeline(path) => return self.continue_pipeline(path),
            Request::Refill(picker) => {
                if let Some(overlay) = self.overlays.last_mut() {
                    overlay.refill(*picker);
                    self.data_moved();
                }
            }
            Request::Show(pane) => self.show(pane),
            Request::Toast(level, text) => self.toast(level, &text),
            Request::Draw(freshness) if from == self.front => {
                self.freshness = self.freshness.max(freshness);
            }
            Request::Draw(_) => {}
            Request::Leave => return self.leave(),
            Request::Preset(preset) => self.store.preset = preset,
        }
        Vec::new()
    }

    /// All messages, newest first; on the screen of a run what its one line cuts stands above them.
    fn messages(&self) -> Vec<(Level, String)> {
        let held = self.store.held.as_ref();
        let held = held.filter(|held| *self.entry() == run::ENTRY && held.state.last_seq > 0);
        let mut all: Vec<(Level, String)> =
            held.map(|held| standing(&held.state)).unwrap_or_default();
        let said = self.toasts.said();
        let new: Vec<_> = said
            .into_iter()
            .filter(|message| !all.contains(message))
            .collect();
        all.extend(new);
        all
    }

    /// Hands a pane the answer to one of its questions.
    pub(super) fn answer_pane(&mut self, topic: Topic, answer: Answer) -> Vec<Effect> {
        let at = place_of(topic.pane);
        self.with(at, |pane, context| {
            pane.answered(topic.about, answer, context)
        })
    }

    /// Opens the guide; what it is to know of the machine comes later where nobody has looked yet.
    fn guide(&mut self) -> Vec<Effect> {
        let mut effects = self.open(Box::new(GuideSheet::new(&self.store)));
        if self.store.machine.is_none() {
            effects.push(Effect::LookAtMachine);
        }
        if self.store.hardware.machine.is_none() {
            effects.push(Effect::WatchHardware);
        }
        effects
    }

    pub(super) fn open(&mut self, mut overlay: Box<dyn Overlay>) -> Vec<Effect> {
        overlay.renew(&self.store);
        self.overlays.push(overlay);
        // What opened it may be an answer that came without a key.
        self.ask_draw();
        Vec::new()
    }

    fn neighbour(&self, by: usize) -> &'static PaneEntry {
        PANES[(self.front + by) % PANES.len()]
    }

    /// Brings a pane to the front as it is.
    pub(super) fn show(&mut self, pane: &PaneEntry) {
        self.front = place_of(pane);
        self.ask_draw();
    }

    fn go(&mut self, pane: &PaneEntry) -> Vec<Effect> {
        if *self.entry() != *pane {
            self.toasts.screen_left();
        }
        self.show(pane);
        self.with_front(|pane, context| pane.enter(context))
    }

    /// Opens a run; one that is on the screen already is only shown.
    pub(super) fn open_or_show(&mut self, path: PathBuf) -> Vec<Effect> {
        let held = self.store.held.as_ref();
        if held.is_some_and(|held| held.path.as_ref() == Some(&path) && held.live()) {
            return self.go(&run::ENTRY);
        }
        self.open_run(path)
    }

    /// Sends a command to the engine of the run on the screen.
    pub(super) fn command(&mut self, asked: Asked, command: Command) -> Vec<Effect> {
        let requests = run::command(&self.store, asked, command);
        let handle_request = |request| self.handle_request(self.front, request);
        requests.into_iter().flat_map(handle_request).collect()
    }

    /// `q`: what would be lost, and a live run on the screen, ask first.
    fn leave(&mut self) -> Vec<Effect> {
        let mut panes = self.panes.iter_mut();
        if let Some(question) = panes.find_map(|pane| pane.confirm_quit()) {
            return self.open(question);
        }
        match self.store.held.as_ref().filter(|held| held.live()) {
            Some(held) if self.leaving == QuitState::No || self.overlays.is_empty() => {
                let question = LeaveQuestion::new(true, held);
                self.open(Box::new(question))
            }
            _ => vec![Effect::Quit],
        }
    }

    /// Everything that can be done here, then presets, runs and themes.
    fn palette(&self) -> Picker {
        let contexts = self.contexts();
        let mut items: Vec<Item> = contexts
            .iter()
            .filter(|context| **context != Context::List)
            .flat_map(|context| actions().filter(move |a| a.context == *context))
            .filter(|a| a.action != Action::Palette)
            .map(|a| Item {
                title: a.title.into(),
                detail: a.doc.into(),
                right: self.keymap.label(a.action),
                choice: Choice::Action(a.action),
            })
            .collect();
        let others = PANES.iter().filter(|pane| **pane != self.entry());
        items.extend(others.flat_map(|pane| pane.everywhere).map(|action| Item {
            title: action.info().title.into(),
            detail: action.info().doc.into(),
            right: String::new(),
            choice: Choice::Action(*action),
        }));
        items.extend(ELSEWHERE.iter().map(|(title, how)| Item {
            title: (*title).into(),
            detail: (*how).into(),
            right: String::new(),
            choice: Choice::Say(how),
        }));
        items.extend(self.store.presets.iter().map(|p| Item {
            title: match p.is_template {
                true => format!("set up {}", p.title()),
                false => format!("start {}", p.title()),
            },
            detail: p.about.clone(),
            right: String::new(),
            choice: Choice::StartPreset(p.name.clone()),
        }));
        items.extend(self.store.run_presets().map(|p| Item {
            title: format!("edit {}", p.title()),
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
        items.extend(self.themes.names().map(|(name, about)| Item {
            title: format!("theme {name}"),
            detail: about.into(),
            right: String::new(),
            choice: Choice::Theme(name.into()),
        }));
        let leave = Choice::Action(Action::Leave);
        Picker::new("palette", "", items).known_as(leave, &["quit", "q", "exit"])
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
        let before = Choice::Theme(name.clone());
        Picker::new(title, "", items)
            .previewing(before)
            .select(|item| item.title == name)
    }
}

/// What is looked for here and done on the command line or by the terminal: a title, and how.
const ELSEWHERE: [(&str, &str); 6] = [
    (
        "export the model",
        "llmtui export RUN --to DIR, for transformers and vLLM; with --format gguf for llama.cpp and Ollama",
    ),
    (
        "delete runs",
        "llmtui rm RUN deletes runs; llmtui gc lists what can be freed: old checkpoints, stale files, caches",
    ),
    (
        "sweep settings",
        "llmtui sweep SPEC --over lr=1e-3,3e-4 trains every combination and ranks them; on Home, mark sweep marks its runs",
    ),
    (
        "queue a run",
        "on Home, open a preset while a run is live; or llmtui train SPEC --after RUN",
    ),
    (
        "copy text",
        "shift and the mouse select text in most terminals (option on macOS); pictures and reports are files",
    ),
    (
        "slow training",
        "llmtui doctor finds what slows this machine, llmtui bench train measures steps; docs/speed.md",
    ),
];

/// Where a pane stands in the list.
fn place_of(pane: &PaneEntry) -> usize {
    let place = PANES.iter().position(|entry| *entry == pane);
    place.unwrap_or_default()
}

/// How a run stands, in full: why it ended, then what is wrong or doubtful with what to do about it.
fn standing(state: &RunState) -> Vec<(Level, String)> {
    let ended = state
        .finished
        .as_ref()
        .filter(|finish| !finish.message.is_empty());
    let ended = ended.map(|finish| (Level::Info, one_line(&finish.message)));
    let mut findings = diagnose(state).findings;
    findings.retain(|finding| finding.status <= Status::Warn);
    findings.sort_by_key(|finding| finding.status);
    let words = findings.into_iter().map(|finding| {
        let level = match finding.status {
            Status::Fail => Level::Bad,
            _ => Level::Warn,
        };
        let fix = match finding.fix.as_str() {
            "" => String::new(),
            fix => format!("; fix: {fix}"),
        };
        (
            level,
            one_line(&format!("{}: {}{fix}", finding.title, finding.evidence)),
        )
    });
    ended.into_iter().chain(words).collect()
}
