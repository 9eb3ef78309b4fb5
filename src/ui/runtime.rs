//! The loop around the app: terminal, links, jobs and signals come in, effects go out, frames are drawn when they are due.

use super::app::{App, AppOptions, First, Freshness};
use super::effect::Effect;
use super::jobs::{Linked, Workplace};
use super::keymap::Keymap;
use super::msg::{Asked, Holder, Msg, Opened, Slot};
use super::store::PresetRow;
use super::term::Guard;
use super::theme::{ColorDepth, Themes};
use crate::base::clock::{Clock, SystemClock};
use crate::base::paths::Env;
use crate::hardware::Recording;
use crate::link::launch::EngineOptions;
use crate::link::{Incoming, Link};
use crate::plan::probe::Measure;
use crate::run::RunDir;
use crate::spec::SpecSources;
use crate::wire::Command;
use crossterm::event::{Event as TermEvent, EventStream};
use futures_util::StreamExt;
use std::collections::VecDeque;
use std::future::{Future, pending, poll_fn};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// Shortest time between two frames that somebody asked for, here and over SSH.
const FRAME: Duration = Duration::from_millis(33);
const FRAME_SSH: Duration = Duration::from_millis(100);
/// Shortest time between two frames that only data asked for: numbers that change more often cannot be read, and each
/// frame costs a slow line some hundred bytes.
const DATA_FRAME: Duration = Duration::from_millis(500);
/// Most events folded between two frames, and the longest time spent on it.
const DRAIN: usize = 2_000;
const DRAIN_TIME: Duration = Duration::from_millis(8);
/// Events folded between two looks at the clock.
const CHUNK: usize = 128;
/// Job results waiting.
const JOBS: usize = 64;

/// What stands open at the start.
#[derive(Debug)]
pub enum What {
    Home,
    /// Join a run, or read its log when it is over.
    Run(RunDir),
    /// Start the engine of a run that was just made or is to be resumed, in a process of its own, and join it.
    Start(RunDir, EngineOptions),
    /// A run whose engine lives in this process.
    Here(RunDir, Link),
}

/// How to open the workbench.
#[derive(Debug)]
pub struct UiOptions {
    pub runs_dir: PathBuf,
    pub open: What,
    /// Only ASCII, whatever the locale says.
    pub ascii: bool,
    /// A theme's name; the default otherwise.
    pub theme: Option<String>,
    pub env: Env,
    /// A recorded machine to show instead of this one.
    pub hardware: Option<Recording>,
    /// How this machine's speed is found.
    pub measure: Measure,
    /// Where presets and themes are looked for.
    pub sources: SpecSources,
}

/// Opens the workbench and returns when it is left. Runs in other processes go on.
pub fn run(options: UiOptions) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let result = runtime.block_on(async {
        // Before the terminal is taken: a signal that nobody handles would leave it raw.
        let signals = Signals::new()?;
        Shell::open(options)?.serve(signals).await
    });
    // A job may still wait for an engine; nobody waits for the job.
    runtime.shutdown_background();
    result
}

/// What jobs send back.
enum Done {
    Msg(Msg),
    Linked(Slot, Linked),
}

struct Shell {
    app: App,
    guard: Guard,
    clock: SystemClock,
    place: Workplace,
    links: Vec<(Slot, Link)>,
    jobs: (mpsc::Sender<Done>, mpsc::Receiver<Done>),
    frame: Duration,
    drawn: Option<Instant>,
    /// Links are read again at this time; a full drain goes on at once.
    read_links: Instant,
    ticked: Instant,
    suspended_by: Option<Stop>,
    over: bool,
    /// This machine is being read.
    watching: bool,
    /// Set to give the inspection of data up that is under way.
    inspecting: Option<Arc<AtomicBool>>,
    /// The newest round of checks.
    round: Arc<AtomicU64>,
}

/// Who is stopped when the workbench is suspended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// Ctrl-Z: the whole job, as the terminal would do it.
    Group,
    /// A signal for this process alone.
    Process,
}

impl Shell {
    fn open(options: UiOptions) -> anyhow::Result<Shell> {
        let place = Workplace {
            runs_dir: options.runs_dir.clone(),
            env: options.env.clone(),
            sources: options.sources.clone(),
            hardware: options.hardware.clone(),
            measure: options.measure,
        };
        let app_options = app_options(&options);
        let clock = SystemClock::new();
        let first = match &options.open {
            What::Home => First::Home,
            What::Run(run) => First::Run(run.path().to_path_buf()),
            What::Start(run, _) | What::Here(run, _) => First::Starting(run.id().to_string()),
        };
        let (app, effects) = App::new(app_options, first, clock.now());
        let now = Instant::now();
        let mut shell = Shell {
            app,
            guard: Guard::enter()?,
            clock,
            place,
            links: Vec::new(),
            jobs: mpsc::channel(JOBS),
            frame: if options.env.ssh { FRAME_SSH } else { FRAME },
            drawn: None,
            read_links: now,
            ticked: now,
            suspended_by: None,
            over: false,
            watching: false,
            inspecting: None,
            round: Arc::default(),
        };
        shell.draw()?;
        shell.do_effects(effects.into());
        shell.begin(options.open);
        Ok(shell)
    }

    /// Starts what was asked for on the command line.
    fn begin(&mut self, what: What) {
        let Some(slot) = self.app.run_slot() else {
            return;
        };
        match what {
            What::Home | What::Run(_) => {}
            What::Start(run, engine) => {
                self.link_job(slot, move |place| place.launch(&run, &engine))
            }
            What::Here(run, link) => {
                let opened = Opened {
                    path: run.path().to_path_buf(),
                    holder: Holder::Here,
                };
                self.linked(slot, Ok((opened, link)));
            }
        }
    }

    async fn serve(mut self, mut signals: Signals) -> anyhow::Result<()> {
        let mut terminal = EventStream::new();
        while !self.over {
            let now = Instant::now();
            let due = self.frame_due();
            if due.is_some_and(|at| at <= now) {
                self.draw()?;
                continue;
            }
            let tick = self.app.tick().map(|every| self.ticked + every);
            tokio::select! {
                biased;
                caught = signals.next() => self.caught(caught),
                event = terminal.next() => self.typed(event),
                Some(done) = self.jobs.1.recv() => self.done(done),
                () = at(due) => {}
                first = next(&mut self.links, self.read_links) => self.drain(first),
                () = at(tick) => {
                    self.ticked = Instant::now();
                    self.update(Msg::Tick);
                }
            }
            if let Some(stop) = self.suspended_by.take() {
                self.suspend(stop, &mut signals).await?;
            }
        }
        Ok(())
    }

    fn update(&mut self, msg: Msg) {
        let effects = self.app.update(msg, self.clock.now());
        self.do_effects(effects.into());
    }

    /// When a draw is due; `None` while the screen shows the state.
    fn frame_due(&self) -> Option<Instant> {
        let wait = match self.app.freshness() {
            Freshness::Fresh => return None,
            Freshness::DataMoved => DATA_FRAME,
            Freshness::Asked => self.frame,
        };
        Some(self.drawn.map_or_else(Instant::now, |drawn| drawn + wait))
    }

    fn draw(&mut self) -> anyhow::Result<()> {
        self.guard.draw(|frame| self.app.draw(frame))?;
        self.app.drawn();
        self.drawn = Some(Instant::now());
        Ok(())
    }

    fn typed(&mut self, event: Option<std::io::Result<TermEvent>>) {
        match event {
            Some(Ok(event)) => self.term_event(event),
            // The terminal is gone.
            Some(Err(_)) | None => self.update(Msg::Terminated),
        }
    }

    fn term_event(&mut self, event: TermEvent) {
        match event {
            TermEvent::Key(key) => self.update(Msg::Key(key)),
            TermEvent::Mouse(mouse) => self.update(Msg::Mouse(mouse)),
            TermEvent::Paste(text) => self.update(Msg::Paste(text)),
            TermEvent::Resize(..) => self.update(Msg::Resize),
            TermEvent::FocusGained | TermEvent::FocusLost => {}
        }
    }

    fn caught(&mut self, caught: Caught) {
        match caught {
            Caught::End => self.update(Msg::Terminated),
            Caught::Stop => self.suspended_by = Some(Stop::Process),
            Caught::Continue => {
                let _ = self.guard.redraw();
                self.update(Msg::Resumed);
            }
        }
    }

    fn done(&mut self, done: Done) {
        match done {
            Done::Msg(msg) => self.update(msg),
            Done::Linked(slot, linked) => self.linked(slot, linked),
        }
    }

    fn linked(&mut self, slot: Slot, linked: Linked) {
        let result = linked.map(|(opened, link)| {
            self.links.push((slot, link));
            opened
        });
        self.update(Msg::Opened { slot, result });
    }

    /// Folds what has arrived on every link, within the bounds of one frame.
    fn drain(&mut self, first: (Slot, Incoming)) {
        let began = Instant::now();
        let mut full = false;
        let mut first = Some(first);
        let slots: Vec<Slot> = self.links.iter().map(|(slot, _)| *slot).collect();
        for slot in slots {
            let mut batch: Vec<Incoming> = match &first {
                Some((of, _)) if *of == slot => {
                    first.take().map(|(_, item)| item).into_iter().collect()
                }
                _ => Vec::new(),
            };
            let mut folded = 0;
            loop {
                let more = self.take_chunk(slot, &mut batch);
                folded += batch.len();
                if !batch.is_empty() {
                    self.update(Msg::Incoming {
                        slot,
                        batch: std::mem::take(&mut batch),
                    });
                }
                if !more {
                    break;
                }
                if folded >= DRAIN || began.elapsed() >= DRAIN_TIME {
                    full = true;
                    break;
                }
            }
        }
        self.read_links = if full {
            Instant::now()
        } else {
            Instant::now() + self.frame
        };
    }

    /// Moves waiting arrivals of a link into `batch`; true when there may be more. A closed link is let go.
    fn take_chunk(&mut self, slot: Slot, batch: &mut Vec<Incoming>) -> bool {
        let closed = |batch: &Vec<Incoming>| matches!(batch.last(), Some(Incoming::Closed(_)));
        let Some(at) = self.links.iter().position(|(s, _)| *s == slot) else {
            return false;
        };
        while batch.len() < CHUNK && !closed(batch) {
            match self.links[at].1.try_recv() {
                Some(item) => batch.push(item),
                None => return false,
            }
        }
        if closed(batch) {
            self.links.remove(at);
            return false;
        }
        true
    }

    fn do_effects(&mut self, mut effects: VecDeque<Effect>) {
        while let Some(effect) = effects.pop_front() {
            match effect {
                Effect::StartRun { slot, target } => {
                    self.link_job(slot, move |place| place.start(&target))
                }
                Effect::ResumeRun { slot, run_dir } => {
                    self.link_job(slot, move |place| place.resume(&run_dir))
                }
                Effect::StartSpec { slot, name, yaml } => {
                    self.link_job(slot, move |place| place.start_text(&name, &yaml))
                }
                Effect::OpenWizard => self.job(|place| {
                    let (context, answers) = place.wizard();
                    Done::Msg(Msg::Wizard(Box::new(context), Box::new(answers)))
                }),
                Effect::OpenEditor(target) => {
                    self.job(move |place| Done::Msg(Msg::Editor(place.draft(&target))))
                }
                Effect::Look(look) => self.job(move |_| Done::Msg(Msg::Seen(Box::new(look.now())))),
                Effect::SaveSpec { path, yaml } => {
                    self.job(move |_| Done::Msg(Msg::Saved(super::jobs::save(path, &yaml))))
                }
                Effect::Remember(answers) => {
                    // On this thread: answers of a wizard that starts a run and leaves must not be lost, and it is one
                    // small file.
                    self.place.remember(&answers);
                }
                Effect::Attach { slot, run_dir } => {
                    self.link_job(slot, move |place| place.attach(&run_dir))
                }
                Effect::OpenChat { slot, model } => {
                    self.link_job(slot, move |place| place.chat(&model))
                }
                Effect::Detach { slot } => self.links.retain(|(s, _)| *s != slot),
                Effect::Send {
                    slot,
                    asked,
                    command,
                } => effects.extend(self.send(slot, asked, command)),
                Effect::LookAtMachine => {
                    self.job(|place| Done::Msg(Msg::Machine(Box::new(place.machine()))));
                }
                Effect::PlanTarget { name } => self.job(move |place| {
                    let result = place.plan(&name);
                    Done::Msg(Msg::Planned { name, result })
                }),
                Effect::InspectData(subject) => self.inspect_data(*subject),
                Effect::RefreshRuns => self.job(|place| Done::Msg(Msg::Runs(place.runs()))),
                Effect::ListCheckpoints => {
                    self.job(|place| Done::Msg(Msg::Checkpoints(place.checkpoints())))
                }
                Effect::ListModelFiles => {
                    self.job(|place| Done::Msg(Msg::ModelFiles(place.model_files())))
                }
                Effect::SaveChat(saved) => {
                    self.job(move |place| Done::Msg(Msg::ChatSaved(place.save_chat(&saved))))
                }
                Effect::WatchHardware => self.watch_hardware(),
                Effect::Preflight { round, yaml } => self.preflight(round, yaml),
                Effect::Redraw => {
                    let _ = self.guard.redraw();
                }
                Effect::Suspend => self.suspended_by = Some(Stop::Group),
                Effect::Quit => self.over = true,
            }
        }
    }

    fn send(&mut self, slot: Slot, asked: Asked, command: Command) -> Vec<Effect> {
        let link = self.links.iter_mut().find(|(s, _)| *s == slot);
        let result = match link {
            Some((_, link)) => link.send(command).map_err(|e| e.to_string()),
            None => Err(crate::link::SendError::Closed.to_string()),
        };
        self.app.update(
            Msg::Sent {
                slot,
                asked,
                result,
            },
            self.clock.now(),
        )
    }

    fn job(&self, work: impl FnOnce(&Workplace) -> Done + Send + 'static) {
        let (place, sender) = (self.place.clone(), self.jobs.0.clone());
        tokio::task::spawn_blocking(move || {
            // The receiver is gone only when the workbench is.
            let _ = sender.blocking_send(work(&place));
        });
    }

    /// Looks at data on a thread of its own; an inspection before it that still goes on is given up.
    fn inspect_data(&mut self, subject: crate::data::inspect::Subject) {
        let given_up = Arc::new(AtomicBool::new(false));
        if let Some(before) = self.inspecting.replace(given_up.clone()) {
            before.store(true, Ordering::Relaxed);
        }
        let sender = self.jobs.0.clone();
        let context = self.place.reading();
        let spawned = std::thread::Builder::new()
            .name("inspect".into())
            .spawn(move || {
                super::jobs::inspect(&subject, &context, &given_up, |msg| {
                    sender.blocking_send(Done::Msg(msg)).is_ok()
                })
            });
        if let Err(e) = spawned {
            tracing::warn!("the data are not read: {e}");
        }
    }

    /// Starts the thread that reads this machine; it ends with the workbench.
    fn watch_hardware(&mut self) {
        if std::mem::replace(&mut self.watching, true) {
            return;
        }
        let (place, sender) = (self.place.clone(), self.jobs.0.clone());
        let spawned = std::thread::Builder::new()
            .name("hardware".into())
            .spawn(move || {
                place.watch_hardware(|msg| sender.blocking_send(Done::Msg(msg)).is_ok())
            });
        if let Err(e) = spawned {
            tracing::warn!("the machine is not read: {e}");
        }
    }

    /// Starts the thread that runs a round of checks; an earlier round ends with its next check.
    fn preflight(&mut self, round: u64, yaml: String) {
        self.round.store(round, Ordering::Relaxed);
        let (wanted, place) = (self.round.clone(), self.place.clone());
        let sender = self.jobs.0.clone();
        tokio::task::spawn_blocking(move || {
            let mut take = |event| {
                let event = Box::new(event);
                let told = sender.blocking_send(Done::Msg(Msg::Checked { round, event }));
                told.is_ok() && wanted.load(Ordering::Relaxed) == round
            };
            let result = place.preflight(&yaml, &mut take);
            let _ = sender.blocking_send(Done::Msg(Msg::ChecksOver { round, result }));
        });
    }

    fn link_job(&self, slot: Slot, work: impl FnOnce(&Workplace) -> Linked + Send + 'static) {
        self.job(move |place| Done::Linked(slot, work(place)));
    }

    /// Gives the terminal to the shell, stops, and takes it again when somebody says `fg`.
    async fn suspend(&mut self, stop: Stop, signals: &mut Signals) -> anyhow::Result<()> {
        use rustix::process::{
            Signal as Sig, getpid, getsid, kill_current_process_group, kill_process,
        };
        if getsid(None).is_ok_and(|session| session == getpid()) {
            // Started by the terminal itself: there is no shell that could wake us.
            return Ok(());
        }
        self.guard.leave();
        let stopped = match stop {
            Stop::Group => kill_current_process_group(Sig::STOP),
            Stop::Process => kill_process(getpid(), Sig::STOP),
        };
        if stopped.is_ok() {
            // Stopping takes a moment to reach every thread; without this wait the terminal could be taken too early.
            while !matches!(signals.next().await, Caught::Continue | Caught::End) {}
        }
        self.guard.take()?;
        self.update(Msg::Resumed);
        Ok(())
    }
}

/// Sleeps until then, or for ever.
async fn at(then: Option<Instant>) {
    match then {
        Some(then) => sleep_until(then).await,
        None => pending().await,
    }
}

/// The first arrival on any link, not before `from`.
async fn next(links: &mut [(Slot, Link)], from: Instant) -> (Slot, Incoming) {
    if links.is_empty() {
        return pending().await;
    }
    sleep_until(from).await;
    poll_fn(|cx| {
        for (slot, link) in links.iter_mut() {
            if let Poll::Ready(item) = pin!(link.recv()).poll(cx) {
                return Poll::Ready((*slot, item));
            }
        }
        Poll::Pending
    })
    .await
}

/// What signals say.
enum Caught {
    End,
    Stop,
    Continue,
}

struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
    stop: Signal,
    cont: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Signals> {
        let raw = |sig: rustix::process::Signal| signal(SignalKind::from_raw(sig.as_raw()));
        Ok(Signals {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            stop: raw(rustix::process::Signal::TSTP)?,
            cont: raw(rustix::process::Signal::CONT)?,
        })
    }

    async fn next(&mut self) -> Caught {
        tokio::select! {
            _ = self.hangup.recv() => Caught::End,
            _ = self.terminate.recv() => Caught::End,
            _ = self.interrupt.recv() => Caught::End,
            _ = self.stop.recv() => Caught::Stop,
            _ = self.cont.recv() => Caught::Continue,
        }
    }
}

/// Reads the user's own files; what is wrong with them becomes a complaint, never a silent default.
fn app_options(options: &UiOptions) -> AppOptions {
    let env = &options.env;
    let mut complaints = Vec::new();
    let mut keymap = Keymap::embedded();
    if let Some(path) = env.config_dir.as_ref().map(|dir| dir.join("keymap.yaml"))
        && let Ok(text) = std::fs::read_to_string(&path)
    {
        let errors = keymap.overlay(&path.display().to_string(), &text);
        complaints.extend(errors.iter().map(ToString::to_string));
    }
    let mut themes = Themes::embedded();
    let folders = [
        env.config_dir.clone(),
        Some(options.sources.project_dir.clone()),
    ];
    for folder in folders.into_iter().flatten() {
        let errors = themes.add_all(theme_files(&folder.join("themes")));
        complaints.extend(errors.iter().map(ToString::to_string));
    }
    let wanted = options.theme.clone().unwrap_or_else(|| "ansi".into());
    if !themes.contains(&wanted) {
        let names: Vec<&str> = themes.names().map(|(name, _)| name).collect();
        complaints.push(format!(
            "there is no theme {wanted}; there are {}",
            names.join(", ")
        ));
    }
    let presets = crate::spec::presets(&options.sources)
        .into_iter()
        .map(|p| PresetRow {
            name: p.name,
            about: crate::base::text::one_line(&p.about),
        })
        .collect();
    AppOptions {
        runs_dir: options.runs_dir.clone(),
        presets: quickstart_first(presets),
        keymap,
        themes,
        theme: wanted,
        depth: ColorDepth::of(env),
        ascii: options.ascii || !env.utf8,
        utc_offset: utc_offset(),
        complaints,
    }
}

fn quickstart_first(mut presets: Vec<PresetRow>) -> Vec<PresetRow> {
    presets.sort_by_key(|preset| preset.name != "quickstart");
    presets
}

fn theme_files(folder: &Path) -> Vec<(String, String)> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == "yaml"));
    paths.sort();
    paths
        .into_iter()
        .filter_map(|path| {
            Some((
                path.display().to_string(),
                std::fs::read_to_string(&path).ok()?,
            ))
        })
        .collect()
}

/// Seconds east of Greenwich, now and here.
fn utc_offset() -> i64 {
    let now = jiff::Timestamp::from_millisecond(
        i64::try_from(SystemClock::new().now().0).unwrap_or_default(),
    );
    let zone = jiff::tz::TimeZone::system();
    now.map_or(0, |now| zone.to_offset(now).seconds().into())
}
