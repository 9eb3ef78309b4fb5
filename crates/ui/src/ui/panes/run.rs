//! The run on the screen: the dashboard's keys and its commands to the engine. What is drawn, and the cursors over it, are
//! the [`Dashboard`]'s matter.

mod tune;
mod undo;

use super::dashboard::{Dashboard, crashed};
use super::ending::Ending;
use super::{Pane, PaneContext, PaneEntry, SPIN};
use crate::base::sampling::Sampling;
use crate::base::text::sanitize;
use crate::diagnosis::diagnose;
use crate::link::Incoming;
use crate::plan::measured::{self, Place};
use crate::run::state::Level;
use crate::ui::action::{Action, Context};
use crate::ui::effect::Effect;
use crate::ui::freshness::Freshness;
use crate::ui::hit::Target;
use crate::ui::keymap::Keymap;
use crate::ui::layout::wrap;
use crate::ui::msg::{Asked, Holder, Msg, Slot, StageOf, PipelineStatus};
use crate::ui::overlays::{LeaveQuestion, Overlay, Prompt, YES};
use crate::ui::panes::{batch, chat, examples, health, home, plan, samples};
use crate::ui::request::{Answer, Hint, Hints, Request, Topic, titles};
use crate::ui::store::{OpenRun, LinkState, Store};
use crate::ui::theme::Theme;
use crate::wire::{Command, Event, Phase};
use crossterm::event::MouseEvent;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::Paragraph;
use std::time::Duration;

pub static ENTRY: PaneEntry = PaneEntry {
    id: "run",
    title: "Run",
    doc: "Go to Run: charts, samples, log.",
    contexts: &[Context::Run, Context::Global],
    everywhere: &[],
    make: || Box::new(RunPane::default()),
};

/// How often a run that ended early is looked at: it may be resumed from another terminal.
const LOOK: Duration = Duration::from_secs(2);
const SAMPLE: &str = "sample";
const NOTE: &str = "note";
const FILTER: &str = "filter";

/// The dashboard of the run on the screen.
#[derive(Debug, Default)]
pub struct RunPane {
    dashboard: Dashboard,
    /// Whose cursors these are.
    slot: Option<Slot>,
    /// The log was read up to now: what comes happens before our eyes.
    caught_up: bool,
    /// Show how it ended instead of the charts.
    ending: bool,
    /// The values of `tune` that a question is open about.
    typed: Vec<String>,
}

impl RunPane {
    /// Another run gets fresh cursors.
    fn follow(&mut self, store: &Store) {
        let slot = store.held.as_ref().map(|held| held.slot);
        if slot != self.slot {
            self.slot = slot;
            self.dashboard = Dashboard::new();
            (self.caught_up, self.ending) = (false, false);
        }
        self.dashboard.utc_offset = store.utc_offset;
    }

    /// The chart that has the whole screen: its metric and its place. There `s` saves it.
    fn full_chart(&self, store: &Store) -> Option<(String, Rect)> {
        let held = store.held.as_ref().filter(|_| !self.ending)?;
        self.dashboard.full_chart(&held.state)
    }

    /// What the plan says of memory is for one place: the process, or a GPU. It is asked when the run starts, and again
    /// when readings show that the place is another one.
    fn plan(&mut self, held: &OpenRun, batch: &[Incoming]) {
        let place = measured::now(&held.state).map_or(Place::Process, |m| m.place);
        let moved = self.dashboard.planned.map(|(place, _)| place) != Some(place);
        let due = batch.iter().any(|item| match item {
            Incoming::Event(envelope) => match envelope.event {
                Event::Started { .. } => true,
                Event::HardwareSampled { .. } => moved && held.state.head.is_some(),
                _ => false,
            },
            _ => false,
        });
        if due {
            let machine = held.hardware.machine.as_ref();
            let request = measured::request_of(&held.state, machine);
            let plan = request.map(|request| crate::plan::plan(&request));
            self.dashboard.planned = plan.map(|plan| (place, place.planned(&plan)));
        }
    }

    /// A run that ends before our eyes shows its end; one that goes on shows its charts.
    fn watch_end(&mut self, batch: &[Incoming]) {
        for item in batch {
            match item {
                Incoming::CaughtUp => self.caught_up = true,
                Incoming::Event(envelope) => match envelope.event {
                    Event::Finished { .. } if self.caught_up => self.ending = true,
                    Event::Started { .. } => self.ending = false,
                    _ => {}
                },
                Incoming::Closed(_) => {}
            }
        }
    }

    /// Cursors of the charts.
    fn walk(&mut self, action: Action, store: &Store) -> Vec<Request> {
        let Some(held) = &store.held else {
            return Vec::new();
        };
        if action == Action::FilterCharts {
            let prompt = Prompt::new(
                topic(FILTER),
                "show only charts with",
                "{accept} applies it, {cancel} shows all",
            );
            let prompt = prompt.with(self.dashboard.filter()).live();
            return vec![Request::Open(Box::new(prompt))];
        }
        if std::mem::take(&mut self.ending) && matches!(action, Action::Back | Action::Zoom) {
            return Vec::new();
        }
        self.dashboard.act(action, &held.state);
        Vec::new()
    }
}

fn topic(about: &'static str) -> Topic {
    Topic {
        pane: &ENTRY,
        about,
    }
}

/// Sends a command to the engine of the run on the screen, or says why there is none to ask.
pub fn command(store: &Store, asked: Asked, command: Command) -> Vec<Request> {
    vec![match store.held.as_ref().filter(|held| held.live()) {
        Some(held) => Request::Do(Effect::Send {
            slot: held.slot,
            asked,
            command,
        }),
        None => no_engine(store),
    }]
}

fn no_engine(store: &Store) -> Request {
    let words = match &store.held {
        None => "no run is open; start or open one on Home",
        Some(held) if held.holder == Holder::Foreign => {
            "another program trains this run: it can only be watched"
        }
        Some(held) if held.state.finished.is_some() => "this run has ended",
        Some(_) => "the engine of this run does not answer",
    };
    Request::Toast(Level::Info, words.into())
}

/// Opens an overlay that makes sense only while an engine listens.
fn open_live(store: &Store, overlay: impl FnOnce(&OpenRun) -> Box<dyn Overlay>) -> Vec<Request> {
    vec![match store.held.as_ref().filter(|held| held.live()) {
        Some(held) => Request::Open(overlay(held)),
        None => no_engine(store),
    }]
}

/// Lets the run go on that was paused or that ended early, with its pipeline where it is a stage of one; else pauses it.
fn pause(store: &Store) -> Vec<Request> {
    let held = store.held.as_ref();
    if let Some(path) = held.and_then(OpenRun::continues) {
        return vec![Request::ContinuePipeline(path)];
    }
    if let Some(path) = held.and_then(OpenRun::resumable) {
        return vec![Request::ResumeRun(path)];
    }
    // A second press takes the first one back, as long as that one waits.
    match held.is_some_and(OpenRun::will_pause) {
        true => command(store, Asked::Resume, Command::Resume),
        false => command(store, Asked::Pause, Command::Pause),
    }
}

/// Why there is no page on how a run ended.
fn no_ending(held: &OpenRun, keymap: &Keymap) -> Option<String> {
    if held.state.finished.is_some() {
        return None;
    }
    if held.resumable().is_none() {
        return Some("this run is live".into());
    }
    if held.state.last_seq == 0 {
        return Some(keymap.fill("not started yet: {pause} starts it"));
    }
    // Its engine wrote no end.
    Some(format!("this run {}", crashed(&held.state, keymap)))
}

/// Opens the stage of the run's pipeline that trains now.
fn live_stage(store: &Store, keymap: &Keymap) -> Request {
    let held = store.held.as_ref();
    let goes_on = held.and_then(OpenRun::continues).is_some();
    let stage = held.and_then(|held| held.stage.as_ref());
    let words = match stage.map(|stage| (&stage.live, &stage.standing)) {
        None => "this run is not part of a pipeline".into(),
        Some((Some((_, path)), _)) => return Request::OpenRun(path.clone()),
        Some((None, PipelineStatus::Running)) => "no other stage of the pipeline trains now".into(),
        Some((None, PipelineStatus::Finished)) => "the pipeline is finished".into(),
        Some((None, PipelineStatus::Halted { .. })) if goes_on => {
            keymap.fill("the pipeline is halted; {pause} continues it")
        }
        Some((None, PipelineStatus::Halted { resume })) => {
            format!("the pipeline is halted; {resume} continues it")
        }
    };
    Request::Toast(Level::Info, words)
}

/// Asks what the model should continue.
pub fn ask_sample(store: &Store) -> Vec<Request> {
    open_live(store, |_| Box::new(sample_prompt()))
}

fn sample_prompt() -> Prompt {
    Prompt::new(
        topic(SAMPLE),
        "sample: on chats a user's turn, else a text to continue",
        "{accept} samples next step; empty: held-out questions or a line break",
    )
}

fn note_prompt() -> Prompt {
    let hint = "{accept} adds it to the log at this step";
    Prompt::new(topic(NOTE), "note", hint).needed()
}

/// How the run's own samples are drawn, as its spec says.
fn sampling(store: &Store) -> Sampling {
    let head = store.held.as_ref().and_then(|h| h.state.head.as_ref());
    let said = head.map(|head| &head.spec["sample"]["sampling"]);
    said.and_then(|value| crate::base::json::read(value).ok())
        .unwrap_or_default()
}

/// What the pane says while there is nothing to chart.
fn words(store: &Store, theme: &Theme, keymap: &Keymap) -> String {
    let home = keymap.label(Action::Open(&home::ENTRY));
    let Some(held) = &store.held else {
        return format!("No run is open. Go to Home ({home}) to start one or to open one.");
    };
    match &held.link {
        LinkState::Opening(since) => {
            let glyphs = theme.glyphs();
            let waited = store.elapsed.saturating_sub(*since);
            let frame = waited.as_millis() / SPIN.as_millis();
            let spinner = glyphs.spinner[frame as usize % glyphs.spinner.len()];
            let seconds = match waited.as_secs() {
                0..2 => String::new(),
                s => format!(" ({s} s)"),
            };
            format!("{spinner} opening {}{seconds}", held.title)
        }
        LinkState::CatchingUp | LinkState::Live => {
            format!("Starting {}{}", held.title, theme.glyphs().ellipsis)
        }
        LinkState::Ended(None) if held.resumable().is_some() => {
            keymap.fill("Not started yet: {pause} starts it.")
        }
        LinkState::Ended(None) => "This run's log is empty.".into(),
        LinkState::Ended(Some(why)) if held.new && held.path.is_none() => {
            let keys = keymap.fill(&format!(
                "{home}: Home, where {{edit-preset}} edits the selected spec; {}: its plan.",
                keymap.label(Action::Open(&plan::ENTRY))
            ));
            format!("{} was not started.\n\n{why}\n\n{keys}", held.title)
        }
        LinkState::Ended(Some(why)) => format!(
            "{} could not be opened.\n\n{why}\n\n{home} goes to Home.",
            held.title
        ),
    }
}

/// A line wrapped; what it is set in by, its later rows are as well.
fn set_in(line: &str, width: u16) -> Vec<String> {
    let words = line.trim_start_matches(' ');
    let blanks = &line[..line.len() - words.len()];
    let columns = u16::try_from(blanks.len()).unwrap_or(u16::MAX);
    let rows = wrap(words, width.saturating_sub(columns));
    rows.into_iter().map(|row| format!("{blanks}{row}")).collect()
}

/// Watches an ended run that is open: another process may resume it or its pipeline.
fn looks(held: &OpenRun) -> Vec<Effect> {
    let engine = held.resumable().map(Effect::LookForEngine);
    let goes_on = |stage: &StageOf| stage.standing != PipelineStatus::Finished;
    let staged = held.stage.as_ref().is_some_and(goes_on);
    let stage = held
        .path
        .clone()
        .filter(|_| staged)
        .map(Effect::LookAtStage);
    engine.into_iter().chain(stage).collect()
}

/// The hints of a run that has logged nothing, and of none.
fn of_unbegun(held: Option<&OpenRun>) -> Vec<Hint> {
    use Action as A;
    let waits = held.and_then(OpenRun::resumable).is_some();
    let own = [(A::Pause, "start"), (A::Evaluate, "edit the spec")];
    let mut hints: Vec<Hint> = own.into_iter().filter(|_| waits).collect();
    hints.push((A::Open(&home::ENTRY), "home"));
    hints
}

/// The hints of one chart that fills the screen.
/// The hints while values are read under a cursor.
fn of_cursor() -> Vec<Hint> {
    use Action as A;
    vec![
        (A::ChartLeft, "left"),
        (A::ChartRight, "right"),
        (A::ShowBatch, "its rows"),
        (A::ChartCursor, "cursor off"),
        (A::ChartNext, "next chart"),
        (A::ZoomIn, "zoom in"),
    ]
}

fn of_one_chart() -> Vec<Hint> {
    use Action as A;
    let mut hints = vec![(A::Sample, "save chart"), (A::Zoom, "all charts")];
    hints.extend(titles(&[
        A::ChartNext,
        A::ChartCursor,
        A::ShowBatch,
        A::Smooth,
        A::LogScale,
        A::ZoomIn,
        A::ResetView,
    ]));
    hints
}

impl RunPane {
    /// The hints of a run that an engine trains.
    fn of_live(&self, held: &OpenRun) -> Vec<Hint> {
        use Action as A;
        let pause = match held.state.phase {
            // It takes no other command before its turn.
            Some(Phase::Queued) => return titles(&[A::Stop]),
            Some(Phase::Paused) => "resume",
            _ if held.will_pause() => "do not pause",
            _ => A::Pause.info().title,
        };
        let mut hints = vec![(A::Pause, pause)];
        hints.extend(self.health_hint());
        let rescued = held.state.rescued.as_ref();
        if rescued.is_some_and(|rescue| rescue.undo.is_some()) {
            hints.push((A::UndoRescue, A::UndoRescue.info().title));
        }
        hints.extend(titles(&[
            A::Checkpoint,
            A::Evaluate,
            A::Sample,
            A::Tune,
            A::Note,
            A::FollowAdvice,
            A::Zoom,
            A::FilterCharts,
            A::ChartCursor,
            A::ShowBatch,
            A::Smooth,
            A::LogScale,
            A::Stop,
        ]));
        hints
    }

    /// The hints of a run without an engine.
    fn of_ended(&self, held: &OpenRun) -> Vec<Hint> {
        use Action as A;
        let (state, kept) = (&held.state, !held.state.checkpoints.is_empty());
        let word = if kept { "resume" } else { "try again" };
        let resume = match held.continues() {
            Some(_) => Some((A::Pause, "continue pipeline")),
            None => held.resumable().map(|_| (A::Pause, word)),
        };
        let live = held.stage.as_ref().is_some_and(|stage| stage.live.is_some());
        let live = live.then_some((A::LiveStage, A::LiveStage.info().title));
        let mut hints: Vec<Hint> = live.into_iter().chain(resume).collect();
        if !kept && held.resumable().is_some() {
            hints.insert(0, (A::Evaluate, "edit the spec"));
        }
        if state.finished.is_some() {
            hints.push((A::Ending, if self.ending { "charts" } else { "result" }));
        }
        // A reward model generates nothing.
        if kept && !state.judges() {
            hints.push((A::Open(&chat::ENTRY), "chat"));
        }
        if state.judges() && !state.examined.is_empty() {
            hints.push((A::Open(&examples::ENTRY), "examples"));
        }
        if !state.samples.is_empty() {
            hints.push((A::Open(&samples::ENTRY), "samples"));
        }
        hints.extend(self.health_hint());
        hints.push((A::SavePicture, A::SavePicture.info().title));
        if self.ending {
            return hints;
        }
        hints.extend(titles(&[
            A::Zoom,
            A::ChartNext,
            A::ChartCursor,
            A::ShowBatch,
            A::FilterCharts,
            A::Smooth,
            A::LogScale,
            A::ZoomIn,
            A::ResetView,
        ]));
        hints
    }

    fn health_hint(&self) -> Option<Hint> {
        let vitals = self.dashboard.vitals();
        vitals.map(|_| (Action::Open(&health::ENTRY), "health"))
    }
}

impl Pane for RunPane {
    fn hints(&self, store: &Store) -> Hints {
        let held = store.held.as_ref();
        let shown = held.filter(|held| held.state.last_seq > 0);
        Hints::of_pane(match shown {
            // The keys of the cursor, which nothing else names.
            Some(_) if self.dashboard.cursor().is_some() => of_cursor(),
            _ if self.full_chart(store).is_some() => of_one_chart(),
            Some(held) if held.live() => self.of_live(held),
            Some(held) => self.of_ended(held),
            None => of_unbegun(held),
        })
    }

    fn tick(&self, store: &Store) -> Option<Duration> {
        let held = store.held.as_ref();
        match &held?.link {
            LinkState::Opening(_) => Some(SPIN),
            LinkState::Ended(_) if !looks(held?).is_empty() => Some(LOOK),
            _ => None,
        }
    }

    fn act(&mut self, action: Action, context: &mut PaneContext) -> Vec<Request> {
        let store = context.store;
        self.follow(store);
        match action {
            Action::Pause => pause(store),
            Action::Checkpoint => command(store, Asked::Checkpoint, Command::Checkpoint),
            Action::Evaluate => match store.held.as_ref().and_then(OpenRun::asked) {
                Some(asked) => vec![Request::Do(Effect::OpenEditor(asked))],
                None => command(store, Asked::Evaluate, Command::Evaluate),
            },
            Action::Sample => match self.full_chart(store) {
                Some((id, area)) => {
                    let run = store.held.as_ref().map_or("llmtui", |held| held.name());
                    super::save_chart(format!("{run}-{id}"), area)
                }
                None => ask_sample(store),
            },
            Action::FollowAdvice => match &store.held {
                Some(held) => batch::advice(held, &diagnose(&held.state).findings),
                None => vec![no_engine(store)],
            },
            Action::UndoRescue => match store.held.as_ref() {
                Some(held) if held.live() => vec![undo::ask(held)],
                _ => vec![no_engine(store)],
            },
            Action::ShowBatch => match &store.held {
                Some(held) if held.state.step > 0 => {
                    let step = self.dashboard.cursor().unwrap_or(held.state.step).max(1);
                    let step = Answer::Text(step.to_string());
                    vec![
                        Request::Show(&batch::ENTRY),
                        Request::SendAnswer(batch::STEP, step),
                    ]
                }
                _ => vec![Request::Toast(Level::Info, "no steps completed yet".into())],
            },
            Action::Note => open_live(store, |_| Box::new(note_prompt())),
            Action::Tune => open_live(store, |held| Box::new(tune::form(held))),
            Action::Ending => match store
                .held
                .as_ref()
                .and_then(|held| no_ending(held, context.keymap))
            {
                Some(why) => vec![Request::Toast(Level::Info, why)],
                None => {
                    self.ending = !self.ending;
                    Vec::new()
                }
            },
            Action::LiveStage => vec![live_stage(store, context.keymap)],
            Action::Stop => open_live(store, |held| Box::new(LeaveQuestion::new(false, held))),
            action => self.walk(action, store),
        }
    }

    fn mouse(&mut self, mouse: MouseEvent, context: &mut PaneContext) -> Option<Vec<Request>> {
        self.follow(context.store);
        let held = context.store.held.as_ref();
        let moved = held.is_some_and(|held| self.dashboard.mouse(mouse, &held.state));
        let draw = moved.then_some(Request::Draw(Freshness::Asked));
        Some(draw.into_iter().collect())
    }

    fn incoming(&mut self, msg: &Msg, context: &mut PaneContext) -> Vec<Request> {
        self.follow(context.store);
        match (msg, &context.store.held) {
            (Msg::Incoming { slot, batch }, Some(held)) if *slot == held.slot => {
                self.plan(held, batch);
                self.watch_end(batch);
            }
            (Msg::Tick, Some(held)) if matches!(held.link, LinkState::Opening(_)) => {
                return vec![Request::Draw(Freshness::Asked)];
            }
            (Msg::Tick, Some(held))
                if held.silence(context.store.elapsed).is_some()
                    || held.so_far(context.store.elapsed).is_some() =>
            {
                return vec![Request::Draw(Freshness::Asked)];
            }
            (Msg::Tick, Some(held))
                if context.in_front && matches!(held.link, LinkState::Ended(_)) =>
            {
                return looks(held).into_iter().map(Request::Do).collect();
            }
            _ => {}
        }
        Vec::new()
    }

    fn answered(&mut self, about: &str, answer: Answer, context: &mut PaneContext) -> Vec<Request> {
        let store = context.store;
        match (about, answer) {
            (tune::ABOUT, Answer::Values(values)) => self.tune(store, values),
            (tune::SURE, Answer::Text(text)) if text == YES => tune::send(store, &self.typed),
            (NOTE, Answer::Text(text)) => command(store, Asked::Note, Command::Note { text }),
            (undo::ABOUT, Answer::Text(text)) if text == YES => {
                command(store, Asked::UndoRescue, Command::UndoRescue)
            }
            (FILTER, Answer::Text(text)) => {
                self.dashboard.set_filter(&text);
                Vec::new()
            }
            (SAMPLE, Answer::Text(text)) => {
                let prompt = match text.is_empty() {
                    true => "\n".to_string(),
                    false => text,
                };
                let sample = Command::Sample {
                    prompt,
                    sampling: sampling(store),
                };
                command(store, Asked::Sample, sample)
            }
            _ => Vec::new(),
        }
    }

    fn draw(&mut self, frame: &mut Frame, area: Rect, context: &mut PaneContext) {
        self.follow(context.store);
        let (store, theme) = (context.store, context.theme);
        match &store.held {
            Some(held) if held.state.last_seq > 0 => {
                let state = &held.state;
                let end = || Ending::of(held, &store.runs_dir, context.keymap, theme);
                if let Some(end) = self.ending.then(end).flatten() {
                    end.draw(frame.buffer_mut(), area);
                    return;
                }
                self.dashboard.silence = held.silence_words(store.elapsed);
                self.dashboard.so_far = held.so_far(store.elapsed);
                self.dashboard.waiting = held.waiting(theme.glyphs().ellipsis);
                let stage = held.stage.as_ref();
                self.dashboard.stage = stage.map(|s| (s.place(), s.next_words()));
                self.dashboard.crashed = state.orphaned.then(|| crashed(state, context.keymap));
                self.dashboard.health_key = context.keymap.label(Action::Open(&health::ENTRY));
                self.dashboard.draw(frame, area, state, theme, store.now);
                context.hits.add(area, Target::Pane);
                if let Some(signs) = self.dashboard.vitals() {
                    context
                        .hits
                        .add(signs, Target::Action(Action::Open(&health::ENTRY)));
                }
            }
            _ => {
                let text = sanitize(&words(store, theme, context.keymap));
                let width = area.width.saturating_sub(4);
                let rows = text.lines().flat_map(|line| set_in(line, width));
                let rows = rows.map(|row| Line::raw(format!("  {row}")));
                let lines: Vec<Line> = [Line::default()].into_iter().chain(rows).collect();
                frame.render_widget(Paragraph::new(lines), area);
            }
        }
    }
}
