//! The workbench as a value: [`App::update`] turns messages into effects, [`App::draw`] turns the state into cells.
//! Neither touches a clock, a file, a socket or the environment.

mod act;
mod choose;
mod data;
mod draw;
mod incoming;
mod making;
mod planning;
mod talking;

use super::action::{Action, Context};
use super::effect::Effect;
use super::hit::{HitMap, Target};
use super::keymap::Keymap;
use super::msg::{Asked, Msg, Slot};
use super::overlays::{Overlay, PromptKind};
use super::panes::Tab;
use super::panes::chat::ChatPane;
use super::panes::dashboard::Dashboard;
use super::panes::data::DataPane;
use super::panes::hardware::HardwarePane;
use super::panes::home::HomePane;
use super::panes::plan::PlanPane;
use super::store::{HeldRun, LinkState, PresetRow, Store};
use super::theme::{ColorDepth, Theme, Themes};
use super::toasts::Toasts;
use crate::base::clock::UnixMillis;
use crate::run::state::Level;
use crate::wire::CommandId;
use crossterm::event::{KeyEvent, KeyEventKind, MouseButton, MouseEvent, MouseEventKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often the list of runs is read again while one of them is live and the list is on the screen.
const REFRESH: Duration = Duration::from_secs(2);
/// Steps of the spinner.
const SPIN: Duration = Duration::from_millis(250);
/// Commands whose answer is awaited; the oldest are forgotten.
const MAX_PENDING: usize = 64;

/// What the app needs to know at birth; the runtime reads it from files and the environment.
#[derive(Debug)]
pub struct AppOptions {
    pub runs_dir: PathBuf,
    pub presets: Vec<PresetRow>,
    pub keymap: Keymap,
    pub themes: Themes,
    /// A name in `themes`.
    pub theme: String,
    pub depth: ColorDepth,
    pub ascii: bool,
    /// Seconds east of Greenwich.
    pub utc_offset: i64,
    /// What is wrong with the user's own files; shown once.
    pub complaints: Vec<String>,
}

/// What stands open at the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum First {
    Home,
    Run(PathBuf),
    /// A run that the runtime starts; its title until it tells its own.
    Starting(String),
}

/// Whether the screen shows the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Freshness {
    Fresh,
    /// Data moved on: may wait a little, so that a fast run does not flood a slow line.
    DataMoved,
    /// Somebody pressed a key and looks at the screen.
    Asked,
}

/// Whether the workbench is about to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaving {
    No,
    /// A stop was sent; the workbench closes when the run says that it ended.
    WhenStopped,
}

/// The whole state of the workbench.
#[derive(Debug)]
pub struct App {
    store: Store,
    keymap: Keymap,
    themes: Themes,
    theme: Theme,
    depth: ColorDepth,
    tab: Tab,
    home: HomePane,
    chat: ChatPane,
    dashboard: Dashboard,
    data: DataPane,
    plan: PlanPane,
    hardware: HardwarePane,
    /// Rounds of checks that were begun.
    rounds: u64,
    overlays: Vec<Overlay>,
    toasts: Toasts,
    hits: HitMap,
    freshness: Freshness,
    next_slot: u32,
    pending: Vec<(CommandId, Asked)>,
    /// Newest notice shown as a toast.
    noticed: u64,
    leaving: Leaving,
    /// The run whose newest checkpoint the chat should take when the list comes.
    wanted_run: Option<PathBuf>,
    /// A list of runs was asked for and has not come; when the last one came.
    reading_runs: bool,
    runs_read: UnixMillis,
}

impl App {
    /// The app and the effects of its birth.
    pub fn new(options: AppOptions, first: First, now: UnixMillis) -> (App, Vec<Effect>) {
        let theme = options
            .themes
            .get(&options.theme, options.depth, options.ascii);
        let mut app = App {
            store: Store {
                runs_dir: options.runs_dir,
                presets: options.presets,
                now,
                ..Store::default()
            },
            keymap: options.keymap,
            themes: options.themes,
            theme,
            depth: options.depth,
            tab: Tab::Home,
            home: HomePane::default(),
            chat: ChatPane::default(),
            dashboard: fresh_dashboard(options.utc_offset),
            data: DataPane::default(),
            plan: PlanPane::default(),
            hardware: HardwarePane::default(),
            rounds: 0,
            overlays: Vec::new(),
            toasts: Toasts::default(),
            hits: HitMap::default(),
            freshness: Freshness::Asked,
            next_slot: 0,
            pending: Vec::new(),
            noticed: 0,
            leaving: Leaving::No,
            wanted_run: None,
            reading_runs: true,
            runs_read: now,
        };
        for complaint in options.complaints {
            app.toasts.add(now, Level::Warn, &complaint);
        }
        let mut effects = vec![Effect::RefreshRuns];
        match first {
            First::Home => {}
            First::Run(path) => effects.extend(app.open_run(path)),
            First::Starting(title) => {
                app.hold(title);
            }
        }
        (app, effects)
    }

    /// The slot of the run on the screen.
    pub fn run_slot(&self) -> Option<Slot> {
        self.store.held.as_ref().map(|held| held.slot)
    }

    /// Whether a draw is due; the caller draws and then calls [`App::drawn`].
    pub fn freshness(&self) -> Freshness {
        self.freshness
    }

    pub fn drawn(&mut self) {
        self.freshness = Freshness::Fresh;
    }

    /// How soon [`Msg::Tick`] is wanted; `None` while nothing on the screen depends on time.
    pub fn tick(&self) -> Option<Duration> {
        let second = Duration::from_secs(1);
        let toasts = (!self.toasts.is_empty()).then_some(second / 2);
        let spinner = self.spinning().then_some(SPIN);
        let list = (self.tab == Tab::Home && self.store.any_live()).then_some(REFRESH);
        [toasts, spinner, list].into_iter().flatten().min()
    }

    fn spinning(&self) -> bool {
        let opening = |held: &HeldRun| matches!(held.link, LinkState::Opening(_));
        (self.tab == Tab::Run && self.store.held.as_ref().is_some_and(opening))
            || (self.tab == Tab::Chat && self.chat.loading())
    }

    /// Takes a message in at `now`.
    pub fn update(&mut self, msg: Msg, now: UnixMillis) -> Vec<Effect> {
        self.store.now = now;
        match msg {
            Msg::Key(key) => self.key(key),
            Msg::Mouse(mouse) => self.mouse(mouse),
            Msg::Paste(text) => self.paste(&text),
            Msg::Resize | Msg::Resumed => {
                self.ask_draw();
                Vec::new()
            }
            Msg::Tick => self.time_passed(),
            Msg::Incoming { slot, batch } => self.incoming(slot, batch),
            Msg::Opened { slot, result } => self.opened(slot, result),
            Msg::Sent {
                slot,
                asked,
                result,
            } => self.sent(slot, asked, result),
            Msg::Runs(result) => {
                self.runs(result);
                Vec::new()
            }
            Msg::Checkpoints(rows) => self.checkpoints(rows),
            Msg::ModelFiles(files) => {
                self.model_files(files);
                Vec::new()
            }
            Msg::ChatSaved(result) => {
                self.chat_saved(result);
                Vec::new()
            }
            Msg::Wizard(context, answers) => {
                self.wizard_ready(*context, *answers);
                Vec::new()
            }
            Msg::Seen(seen) => self.seen(*seen),
            Msg::Checked { round, event } => {
                self.checked(round, &event);
                Vec::new()
            }
            Msg::ChecksOver { round, result } => {
                self.checks_over(round, result);
                Vec::new()
            }
            Msg::Editor(draft) => {
                self.editor_ready(draft);
                Vec::new()
            }
            Msg::Saved(result) => {
                self.saved(result);
                Vec::new()
            }
            Msg::Machine(machine) => {
                self.machine_seen(*machine);
                Vec::new()
            }
            Msg::Planned { name, result } => {
                let result = result.map(|mut request| {
                    self.store.equip(&mut request);
                    request
                });
                self.plan.planned(&name, result);
                self.ask_draw();
                Vec::new()
            }
            Msg::Hardware { machine, values } => {
                self.hardware(machine.map(|m| *m), &values);
                Vec::new()
            }
            Msg::DataProgress { name, progress } => {
                self.data_progress(&name, progress);
                Vec::new()
            }
            Msg::DataInspected { name, result } => {
                self.data_inspected(&name, result);
                Vec::new()
            }
            Msg::Terminated => vec![Effect::Quit],
        }
    }

    fn ask_draw(&mut self) {
        self.freshness = Freshness::Asked;
    }

    fn data_moved(&mut self) {
        self.freshness = self.freshness.max(Freshness::DataMoved);
    }

    fn key(&mut self, key: KeyEvent) -> Vec<Effect> {
        if key.kind == KeyEventKind::Release {
            return Vec::new();
        }
        self.ask_draw();
        if let Some(overlay) = self.overlays.last_mut() {
            // Under an overlay the keys of the whole workbench hold only with Ctrl, even where nothing is typed.
            let typing = overlay.typing();
            let contexts = overlay.contexts();
            let (own, global) = contexts.split_at(contexts.len() - 1);
            let action = self
                .keymap
                .action(key, own, typing)
                .or_else(|| self.keymap.action(key, global, true));
            match action {
                Some(action @ (Action::Suspend | Action::Redraw)) => return self.act(action),
                Some(action) => {
                    let reply = overlay.act(action);
                    return self.reply(reply);
                }
                None => overlay.key(key),
            }
            self.follow_filter();
            return Vec::new();
        }
        let typing = self.typing();
        match self.keymap.action(key, self.contexts(), typing) {
            Some(action) => self.act(action),
            None if typing => {
                match self.tab {
                    Tab::Home => self.home.key(key, &self.store),
                    Tab::Chat => self.chat.field().key(key),
                    Tab::Plan => self.plan.key(key),
                    Tab::Run | Tab::Data | Tab::Hardware => {}
                }
                Vec::new()
            }
            None => Vec::new(),
        }
    }

    /// Charts are filtered while their filter is typed.
    fn follow_filter(&mut self) {
        if let Some(Overlay::Prompt(prompt)) = self.overlays.last()
            && prompt.kind() == PromptKind::FilterCharts
        {
            self.dashboard.set_filter(&prompt.text());
        }
    }

    /// True while letters are text in the pane.
    fn typing(&self) -> bool {
        match self.tab {
            Tab::Home => self.home.typing(),
            Tab::Run | Tab::Data | Tab::Hardware => false,
            Tab::Chat => self.chat.typing(),
            Tab::Plan => self.plan.typing(),
        }
    }

    /// The contexts of the pane, the most particular first.
    fn contexts(&self) -> &'static [Context] {
        match self.tab {
            Tab::Home => &[Context::Home, Context::List, Context::Global],
            Tab::Run => &[Context::Run, Context::Global],
            Tab::Chat => &[Context::Chat, Context::Global],
            Tab::Data => &[Context::Data, Context::List, Context::Global],
            Tab::Plan => &[Context::Plan, Context::List, Context::Global],
            Tab::Hardware => &[Context::Hardware, Context::List, Context::Global],
        }
    }

    fn paste(&mut self, text: &str) -> Vec<Effect> {
        self.ask_draw();
        match (self.overlays.last_mut(), self.tab) {
            (Some(overlay), _) => {
                overlay.paste(text);
                self.follow_filter();
            }
            (None, Tab::Home) => self.home.paste(text, &self.store),
            (None, Tab::Chat) if self.chat.typing() => self.chat.field().paste(text),
            (None, Tab::Plan) => self.plan.paste(text),
            _ => {}
        }
        Vec::new()
    }

    fn mouse(&mut self, mouse: MouseEvent) -> Vec<Effect> {
        let target = self.hits.at(mouse.column, mouse.row);
        if target == Some(Target::Dashboard) && self.overlays.is_empty() {
            let held = self.store.held.as_ref();
            if held.is_some_and(|held| self.dashboard.mouse(mouse, &held.state)) {
                self.ask_draw();
            }
            return Vec::new();
        }
        let wheel = match mouse.kind {
            MouseEventKind::ScrollUp => Some(true),
            MouseEventKind::ScrollDown => Some(false),
            MouseEventKind::Down(MouseButton::Left) => None,
            _ => return Vec::new(),
        };
        self.ask_draw();
        if let Some(up) = wheel {
            return self.wheel(up);
        }
        match (target, self.overlays.last_mut()) {
            (Some(Target::OverlayRow(row)), Some(overlay)) => {
                let reply = overlay.click(row);
                self.reply(reply)
            }
            (Some(Target::Overlay), Some(_)) => Vec::new(),
            (_, Some(_)) => {
                self.overlays.pop();
                Vec::new()
            }
            (Some(Target::Action(action)), None) => self.act(action),
            (Some(Target::Row(row)), None) => self.click_row(row),
            (Some(Target::Input), None) => {
                self.chat.type_on();
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn wheel(&mut self, up: bool) -> Vec<Effect> {
        let action = if up { Action::Up } else { Action::Down };
        match (self.overlays.last_mut(), self.tab) {
            (Some(overlay), _) => {
                overlay.act(action);
            }
            (None, Tab::Home) => self.home.act(action, &self.store),
            (None, Tab::Chat) => self.chat.scroll(up, 3),
            (None, Tab::Data) => self.data.wheel(up),
            (None, Tab::Plan) => {
                self.plan.act(action);
            }
            (None, Tab::Hardware) => self.hardware.act(action, &self.store),
            (None, Tab::Run) => {}
        }
        Vec::new()
    }

    /// A click selects a row, a second one opens it.
    fn click_row(&mut self, row: usize) -> Vec<Effect> {
        if self.tab == Tab::Hardware {
            self.hardware.select(row);
            return Vec::new();
        }
        if self.tab == Tab::Data {
            self.data.click(row);
            return Vec::new();
        }
        if self.tab == Tab::Chat {
            self.chat.focus(row);
            return Vec::new();
        }
        if self.tab == Tab::Plan {
            let request = self.plan.click(row);
            return self.grant(request);
        }
        let before = self.home.current(&self.store);
        self.home.select(row);
        match self.home.current(&self.store) == before {
            true => self.act(Action::Accept),
            false => Vec::new(),
        }
    }

    fn time_passed(&mut self) -> Vec<Effect> {
        if self.toasts.expire(self.store.now) || self.spinning() {
            self.ask_draw();
        }
        let stale = self.store.now.since(self.runs_read) >= REFRESH;
        if self.tab == Tab::Home && self.store.any_live() && stale && !self.reading_runs {
            return self.refresh();
        }
        Vec::new()
    }

    fn refresh(&mut self) -> Vec<Effect> {
        self.reading_runs = true;
        vec![Effect::RefreshRuns]
    }

    fn new_slot(&mut self) -> Slot {
        self.next_slot += 1;
        Slot(self.next_slot)
    }

    /// Makes room for a run on the screen and lets the one before go.
    fn hold(&mut self, title: String) -> (Slot, Vec<Effect>) {
        let slot = self.new_slot();
        let old = self
            .store
            .held
            .replace(HeldRun::opening(slot, title, self.store.now));
        self.dashboard = fresh_dashboard(self.dashboard.utc_offset);
        self.tab = Tab::Run;
        self.noticed = 0;
        self.pending.clear();
        (
            slot,
            old.map(|held| Effect::Detach { slot: held.slot })
                .into_iter()
                .collect(),
        )
    }

    fn open_run(&mut self, path: PathBuf) -> Vec<Effect> {
        let title = title_of(&path);
        let (slot, mut effects) = self.hold(title);
        effects.push(Effect::Attach {
            slot,
            run_dir: path,
        });
        effects
    }

    /// Lets a run that ended early go on.
    fn resume_run(&mut self, path: PathBuf) -> Vec<Effect> {
        let title = title_of(&path);
        let (slot, mut effects) = self.hold(title);
        effects.push(Effect::ResumeRun {
            slot,
            run_dir: path,
        });
        effects
    }

    fn start_run(&mut self, target: String) -> Vec<Effect> {
        let (slot, mut effects) = self.hold(target.clone());
        effects.push(Effect::StartRun { slot, target });
        effects
    }

    fn toast(&mut self, level: Level, text: &str) {
        self.toasts.add(self.store.now, level, text);
        self.data_moved();
    }
}

fn title_of(run_dir: &Path) -> String {
    let name = run_dir.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

fn fresh_dashboard(utc_offset: i64) -> Dashboard {
    let mut dashboard = Dashboard::new();
    dashboard.utc_offset = utc_offset;
    dashboard
}

#[cfg(test)]
mod tests;
