//! The loop around the app: terminal, links, jobs and signals come in, effects go out, frames are drawn when they are due.

mod answers;
mod effects;
mod fleet;
mod options;
mod signals;
mod stages;

use crate::base::clock::{Clock, SystemClock};
use crate::base::paths::Env;
use crate::fleet::{Host, HostConnection};
use crate::hardware::Recording;
use crate::link::launch::EngineOptions;
use crate::link::{Incoming, Link};
use crate::pipeline::PipelineDir;
use crate::plan::probe::Measure;
use crate::run::RunDir;
use crate::spec::SpecSources;
use crate::ui::app::{App, ExitReport, StartScreen};
use crate::ui::freshness::Freshness;
use crate::ui::jobs::{JobContext, Linked};
use crate::ui::msg::{Holder, Msg, Opened, Slot};
use crate::ui::term::Guard;
use crossterm::event::{Event as TermEvent, EventStream};
use futures_util::StreamExt;
pub use options::check_theme;
use signals::{Caught, Signals, Stop};
use stages::{Followed, Next};
use std::ffi::OsString;
use std::future::{Future, pending, poll_fn};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::task::Poll;
use std::time::Duration;
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
/// How often the next stage of a pipeline is looked for.
const STAGE: Duration = Duration::from_millis(500);
/// How often a live run on the screen is asked whether it has fallen silent.
const LISTEN: Duration = Duration::from_secs(1);
/// Job results waiting.
const JOBS: usize = 64;

/// What stands open at the start.
#[derive(Debug)]
pub enum StartView {
    Home,
    /// Join a run, or read its log when it is over.
    Run(RunDir),
    /// Start the engine of a run that was just made or is to be resumed, in a process of its own, and join it.
    Start(RunDir, EngineOptions),
    /// A run whose engine lives in this process.
    Here(RunDir, Link),
    /// Join the run of a pipeline's stage, and those of the stages that follow.
    Pipeline(RunDir, PipelineDir),
    /// A run that another program trains: where its log is, and the link that reads it.
    Foreign(PathBuf, Link),
    /// The runs of these machines.
    Fleet(Vec<Host>),
}

/// How to open the workbench.
#[derive(Debug)]
pub struct UiOptions {
    pub runs_dir: PathBuf,
    pub open: StartView,
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

/// Opens the workbench; returns on exit with the state of its run. Runs in other processes continue.
///
/// # Errors
/// The terminal cannot be taken or drawn on, or its events cannot be read.
pub fn run(options: UiOptions) -> anyhow::Result<Option<ExitReport>> {
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
enum JobResult {
    Msg(Msg),
    Linked(Slot, Linked),
    /// The run of a pipeline's first stage; those of the others are followed.
    Stages(Slot, PipelineDir, Linked),
}

struct Shell {
    app: App,
    guard: Guard,
    clock: SystemClock,
    place: JobContext,
    links: Vec<(Slot, Link)>,
    jobs: (mpsc::Sender<JobResult>, mpsc::Receiver<JobResult>),
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
    /// Whose stages are followed.
    pipeline: Option<Followed>,
    /// Other machines that are watched.
    connections: Vec<HostConnection>,
    /// A command that gets the terminal until it ends.
    elsewhere: Option<Vec<OsString>>,
}

impl Shell {
    fn open(options: UiOptions) -> anyhow::Result<Shell> {
        let place = JobContext {
            runs_dir: options.runs_dir.clone(),
            env: options.env.clone(),
            sources: options.sources.clone(),
            hardware: options.hardware.clone(),
            measure: options.measure,
        };
        let app_options = options::app_options(&options);
        let clock = SystemClock::new();
        let first = match &options.open {
            StartView::Home => StartScreen::Home,
            StartView::Run(run) | StartView::Pipeline(run, _) => {
                StartScreen::Run(run.path().to_path_buf())
            }
            StartView::Start(run, _) | StartView::Here(run, _) => {
                StartScreen::Starting(run.id().to_string())
            }
            StartView::Foreign(path, _) => StartScreen::Starting(path.display().to_string()),
            StartView::Fleet(_) => StartScreen::Fleet,
        };
        let (app, effects) = App::new(app_options, first, clock.now());
        let pipeline = match (&options.open, app.run_slot()) {
            (StartView::Pipeline(run, dir), Some(slot)) => {
                Some(Followed::new(dir.clone(), slot, run.id().into()))
            }
            _ => None,
        };
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
            pipeline,
            connections: Vec::new(),
            elsewhere: None,
        };
        shell.draw()?;
        shell.do_effects(effects.into());
        shell.begin(options.open);
        Ok(shell)
    }

    /// Starts what was asked for on the command line.
    fn begin(&mut self, what: StartView) {
        if let StartView::Fleet(hosts) = what {
            return self.watch_fleet(hosts);
        }
        let Some(slot) = self.app.run_slot() else {
            return;
        };
        match what {
            StartView::Home | StartView::Run(_) | StartView::Pipeline(..) | StartView::Fleet(_) => {
            }
            StartView::Start(run, engine) => {
                self.link_job(slot, move |place| place.launch(&run, &engine))
            }
            StartView::Here(run, link) => {
                let opened = Opened::new(run.path(), Holder::Here);
                self.linked(slot, Ok((opened, link)));
            }
            StartView::Foreign(path, link) => {
                let holder = Holder::Foreign;
                self.linked(slot, Ok((Opened::new(path, holder), link)));
            }
        }
    }

    async fn serve(mut self, mut signals: Signals) -> anyhow::Result<Option<ExitReport>> {
        let mut terminal = EventStream::new();
        let mut stages = tokio::time::interval(STAGE);
        let mut silence = tokio::time::interval(LISTEN);
        silence.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
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
                _ = stages.tick(), if self.pipeline.is_some() => self.follow_stages(),
                _ = silence.tick(), if self.app.listens() => self.update(Msg::Tick),
                () = at(tick) => {
                    self.ticked = Instant::now();
                    self.update(Msg::Tick);
                }
            }
            if let Some(stop) = self.suspended_by.take() {
                self.suspend(stop, &mut signals).await?;
            }
            if let Some(line) = self.elsewhere.take() {
                // Its reader would take keys that are meant for the other program.
                drop(terminal);
                self.run_in_terminal(&line)?;
                terminal = EventStream::new();
            }
        }
        self.connections.iter().for_each(HostConnection::disconnect);
        Ok(self.app.leaves())
    }

    /// Goes over to the run of the next stage, unless something else was opened meanwhile.
    fn follow_stages(&mut self) {
        let Some(mut followed) = self.pipeline.take() else {
            return;
        };
        match followed.next(self.app.run_slot(), &self.place.runs_dir) {
            Next::Over => return,
            Next::Wait => {}
            Next::Run(path) => {
                self.update(Msg::NextStage(path));
                followed.shown_in(self.app.run_slot());
            }
        }
        self.pipeline = Some(followed);
    }

    fn update(&mut self, msg: Msg) {
        let effects = self.app.update(msg, self.clock.moment());
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

    fn done(&mut self, done: JobResult) {
        match done {
            JobResult::Msg(msg) => self.update(msg),
            JobResult::Linked(slot, linked) => {
                self.follow(slot, &linked);
                self.linked(slot, linked);
            }
            JobResult::Stages(slot, dir, linked) => {
                let run = dir.running().unwrap_or_default();
                self.pipeline = Some(Followed::new(dir, slot, run));
                self.linked(slot, linked);
            }
        }
    }

    /// The pipeline of a stage that trains; not where somebody has left its run before it was there.
    fn follow(&mut self, slot: Slot, linked: &Linked) {
        if let Ok((opened, _)) = linked
            && opened.stage.is_some()
            && self.app.run_slot() == Some(slot)
            && let Some(followed) = Followed::of(&opened.path, slot, &self.place.runs_dir)
        {
            self.pipeline = Some(followed);
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
