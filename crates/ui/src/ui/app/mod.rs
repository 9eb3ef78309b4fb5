//! The workbench as a value: [`App::update`] turns messages into effects, [`App::draw`] turns the state into cells.
//! Neither touches a clock, a file, a socket or the environment.

mod act;
mod beside;
mod choose;
mod draw;
mod incoming;
mod input;
mod making;
mod opening;

use super::effect::Effect;
use super::freshness::Freshness;
use super::hit::HitMap;
use super::keymap::Keymap;
use super::msg::{Holder, Msg, Slot};
use super::overlays::Overlay;
use super::panes::{PANES, Pane, PaneContext, PaneEntry, Slots, fleet, run};
use super::request::Request;
use super::rows::PresetRow;
use super::store::{OpenRun, Store};
use super::theme::{ColorDepth, Theme, Themes};
use super::toasts::{ToastScope, Toasts};
use crate::base::clock::{Moment, UnixMillis};
use crate::run::state::{Finish, Level};
use beside::Wanted;
use opening::{Arrival, Opening};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Commands of a run whose answer is awaited.
const MAX_PENDING: usize = 64;

/// What the app needs to know at birth; the runtime reads it from files and the environment.
#[derive(Debug)]
pub struct AppOptions {
    pub runs_dir: PathBuf,
    pub home: Option<PathBuf>,
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
pub enum StartScreen {
    Home,
    Run(PathBuf),
    /// A run that the runtime starts; its title until it reports its own.
    Starting(String),
    /// The runs of several machines.
    Fleet,
}

/// What closing the workbench leaves behind.
#[derive(Debug, Clone, PartialEq)]
pub enum ExitReport {
    /// A run that goes on in a process of its own, by its short name.
    Running(String),
    /// A run that was stopped on the way out.
    Stopped {
        run_dir: PathBuf,
        step: u64,
        /// The step of its newest checkpoint.
        kept: Option<u64>,
        /// `None` where its engine died instead.
        finish: Option<Finish>,
    },
}

/// Whether the workbench is about to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QuitState {
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
    /// In the order of [`PANES`].
    panes: Vec<Box<dyn Pane>>,
    /// The pane on the screen, as an index into `panes`.
    front: usize,
    overlays: Vec<Box<dyn Overlay>>,
    /// A checkpoint was asked for by key: only of that one a message tells.
    asked_checkpoint: bool,
    /// The wizard or the editor whose run is being started: back on the screen if that is refused.
    making: Option<(Slot, Vec<Box<dyn Overlay>>)>,
    /// What waits for the answer whether it is to begin beside a live run, and the run that it may wait for.
    wanted: Option<(Wanted, PathBuf)>,
    /// A run without a checkpoint that may start over.
    over: Option<Wanted>,
    /// What has the keyboard before it is there.
    opening: Option<Opening>,
    toasts: Toasts,
    hits: HitMap,
    freshness: Freshness,
    slots: Slots,
    /// Newest notice shown as a toast.
    noticed: u64,
    leaving: QuitState,
}

impl App {
    /// The app and the effects of its birth.
    pub fn new(options: AppOptions, first: StartScreen, now: UnixMillis) -> (App, Vec<Effect>) {
        let theme = options
            .themes
            .get(&options.theme, options.depth, options.ascii);
        let mut app = App {
            store: Store {
                runs_dir: options.runs_dir,
                home: options.home,
                preset: first_preset(&options.presets),
                presets: options.presets,
                utc_offset: options.utc_offset,
                now,
                ..Store::default()
            },
            keymap: options.keymap,
            themes: options.themes,
            theme,
            depth: options.depth,
            panes: PANES.iter().map(|pane| (pane.make)()).collect(),
            front: 0,
            overlays: Vec::new(),
            asked_checkpoint: false,
            wanted: None,
            over: None,
            opening: None,
            toasts: Toasts::default(),
            hits: HitMap::default(),
            freshness: Freshness::Asked,
            slots: Slots::default(),
            noticed: 0,
            making: None,
            leaving: QuitState::No,
        };
        let mut effects = app.refresh();
        match first {
            StartScreen::Home => {}
            StartScreen::Fleet => app.show(&fleet::ENTRY),
            StartScreen::Run(path) => effects.extend(app.open_run(path)),
            StartScreen::Starting(title) => {
                app.open_slot(title);
            }
        }
        for complaint in options.complaints {
            app.toasts
                .add(Duration::ZERO, Level::Warn, ToastScope::Screen, &complaint);
        }
        (app, effects)
    }

    /// The colours in force.
    pub fn theme(&self) -> &Theme {
        &self.theme
    }

    /// The slot of the run on the screen.
    pub fn run_slot(&self) -> Option<Slot> {
        self.store.held.as_ref().map(|held| held.slot)
    }

    /// What becomes of the run on the screen, once the workbench is closed.
    pub fn leaves(&self) -> Option<ExitReport> {
        let held = self.store.held.as_ref()?;
        if held.live() && held.holder == Holder::Detached {
            return Some(ExitReport::Running(held.name().to_string()));
        }
        let stopped = self.leaving == QuitState::WhenStopped && !held.live();
        let run_dir = held.path.clone().filter(|_| stopped)?;
        Some(ExitReport::Stopped {
            run_dir,
            step: held.state.step,
            kept: held.state.checkpoints.last().map(|kept| kept.step),
            finish: held.state.finished.clone(),
        })
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
        let toasts = (!self.toasts.is_empty()).then_some(Duration::from_millis(500));
        let pane = self.pane().tick(&self.store);
        [toasts, pane].into_iter().flatten().min()
    }

    /// Whether an engine is shown that may fall silent, which sends nothing that would draw the screen again.
    pub fn listens(&self) -> bool {
        let held = self.store.held.as_ref();
        *self.entry() == run::ENTRY && held.is_some_and(OpenRun::live)
    }

    /// Takes a message in at this moment.
    pub fn update(&mut self, msg: Msg, at: Moment) -> Vec<Effect> {
        (self.store.now, self.store.elapsed) = (at.now, at.elapsed);
        match self.arrival(&msg) {
            Arrival::Other => self.take(msg),
            Arrival::Late => Vec::new(),
            Arrival::Here(held) => {
                let mut effects = self.take(msg);
                effects.extend(self.type_held(held));
                effects
            }
        }
    }

    fn take(&mut self, msg: Msg) -> Vec<Effect> {
        match msg {
            Msg::Key(key) => self.key(key),
            Msg::Mouse(mouse) => self.mouse(mouse),
            Msg::Paste(text) => self.paste(&text),
            Msg::Resize | Msg::Resumed => {
                self.ask_draw();
                Vec::new()
            }
            Msg::Said(level, words) => {
                self.toast(level, &words);
                Vec::new()
            }
            Msg::Wizard(context, answers) => {
                self.wizard_ready(*context, *answers);
                Vec::new()
            }
            Msg::Editor { draft, .. } => {
                self.editor_ready(draft);
                Vec::new()
            }
            Msg::NextStage(path) => self.next_stage(path),
            Msg::Terminated => vec![Effect::Quit],
            msg => {
                let mut effects = self.update_store(&msg);
                effects.extend(self.hand_to_overlays(&msg));
                for at in 0..self.panes.len() {
                    effects.extend(self.with(at, |pane, context| pane.incoming(&msg, context)));
                }
                effects
            }
        }
    }

    fn pane(&self) -> &dyn Pane {
        &*self.panes[self.front]
    }

    /// What the list says of the pane on the screen.
    fn entry(&self) -> &'static PaneEntry {
        PANES[self.front]
    }

    /// Lets a pane do something, and does what it asks for.
    fn with(
        &mut self,
        at: usize,
        work: impl FnOnce(&mut dyn Pane, &mut PaneContext) -> Vec<Request>,
    ) -> Vec<Effect> {
        let asked = self.overlays.last().and_then(|overlay| overlay.topic());
        let mut context = PaneContext {
            store: &self.store,
            theme: &self.theme,
            keymap: &self.keymap,
            hits: &mut self.hits,
            slots: &mut self.slots,
            in_front: at == self.front,
            asked,
        };
        let requests = work(&mut *self.panes[at], &mut context);
        let handle_request = |request| self.handle_request(at, request);
        requests.into_iter().flat_map(handle_request).collect()
    }

    /// [`App::with`] the pane on the screen.
    fn with_front(
        &mut self,
        work: impl FnOnce(&mut dyn Pane, &mut PaneContext) -> Vec<Request>,
    ) -> Vec<Effect> {
        self.with(self.front, work)
    }

    fn ask_draw(&mut self) {
        self.freshness = Freshness::Asked;
    }

    fn data_moved(&mut self) {
        self.freshness = self.freshness.max(Freshness::DataMoved);
    }

    fn refresh(&mut self) -> Vec<Effect> {
        self.store.reading_runs = true;
        vec![Effect::RefreshRuns]
    }

    /// Makes room for a run on the screen and lets the one before go.
    fn open_slot(&mut self, title: String) -> (Slot, Vec<Effect>) {
        let slot = self.slots.take();
        let old = self
            .store
            .held
            .replace(OpenRun::opening(slot, title, self.store.elapsed));
        self.show(&run::ENTRY);
        self.toasts.run_changed();
        self.noticed = 0;
        (
            slot,
            old.map(|held| Effect::Detach { slot: held.slot })
                .into_iter()
                .collect(),
        )
    }

    /// The same for a run that is being made.
    fn open_new_slot(&mut self, title: String) -> (Slot, Vec<Effect>) {
        let held = self.open_slot(title);
        if let Some(held) = &mut self.store.held {
            held.new = true;
        }
        held
    }

    fn open_run(&mut self, path: PathBuf) -> Vec<Effect> {
        let title = title_of(&path);
        let (slot, mut effects) = self.open_slot(title);
        effects.push(Effect::Attach {
            slot,
            run_dir: path,
        });
        effects
    }

    /// Holds the next run of a pipeline; the pane on the screen stays.
    fn next_stage(&mut self, path: PathBuf) -> Vec<Effect> {
        let front = self.front;
        let effects = self.open_run(path.clone());
        self.front = front;
        self.toast(Level::Info, &format!("next stage: {}", title_of(&path)));
        effects
    }

    /// Lets a run that ended early go on.
    fn resume_run(&mut self, path: PathBuf, after: Option<PathBuf>) -> Vec<Effect> {
        let title = title_of(&path);
        let (slot, mut effects) = self.open_slot(title);
        effects.push(Effect::ResumeRun {
            slot,
            run_dir: path,
            after,
        });
        effects
    }

    /// Lets the pipeline of a stage's run go on.
    fn continue_pipeline(&mut self, path: PathBuf) -> Vec<Effect> {
        let title = title_of(&path);
        let (slot, mut effects) = self.open_slot(title);
        effects.push(Effect::ContinuePipeline {
            slot,
            run_dir: path,
        });
        effects
    }

    fn start_run(&mut self, target: String, after: Option<PathBuf>) -> Vec<Effect> {
        // Started as it is it would train on made-up rows, which is not what it was chosen for.
        if self.store.is_template(&target) {
            let words =
                "set train.from (your model) and data.path (your rows); {start-spec} then trains";
            self.toast(Level::Info, &self.keymap.fill(words));
            return self.ask(Effect::OpenEditor(target));
        }
        let (slot, mut effects) = self.open_new_slot(target.clone());
        effects.push(match after {
            None => Effect::StartRun { slot, target },
            Some(after) => Effect::QueueRun {
                slot,
                target,
                after,
            },
        });
        effects
    }

    fn toast(&mut self, level: Level, text: &str) {
        self.toast_about(ToastScope::Screen, level, text);
    }

    fn toast_about(&mut self, about: ToastScope, level: Level, text: &str) {
        self.toasts.add(self.store.elapsed, level, about, text);
        self.data_moved();
    }
}

/// What plans begin with.
fn first_preset(presets: &[PresetRow]) -> Option<String> {
    let quickstart = presets.iter().find(|preset| preset.name == "quickstart");
    quickstart
        .or(presets.first())
        .map(|preset| preset.name.clone())
}

fn title_of(run_dir: &Path) -> String {
    let name = run_dir.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
