//! Runs beside each other: their curves on one chart by step, tokens or time, the settings in which they differ, their
//! figures. What is chosen comes from Home; the logs are read by a job.

mod draw;

use super::{Pane, PaneContext, PaneEntry, evals, home, save_chart};
use crate::base::text::shown;
use crate::run::compare::{By, Figure, MAX_TRACKS, Schema, Setting, Track, figures, told};
use crate::run::index::RunStatus;
use crate::run::series::Series;
use crate::run::state::Level;
use crate::spec::{choices, follows};
use crate::ui::action::{Action, Context};
use crate::ui::effect::Effect;
use crate::ui::msg::Msg;
use crate::ui::overlays::{Choice, Item, Picker};
use crate::ui::request::{Answer, Hints, Request, Topic, titles};
use crate::ui::store::{Store, short_run};
use ratatui::Frame;
use ratatui::layout::Rect;
use std::path::PathBuf;
use std::time::Duration;

pub static ENTRY: PaneEntry = PaneEntry {
    id: "compare",
    title: "Compare",
    doc: "Go to Compare: curves, settings and metrics of several runs side by side.",
    contexts: &[Context::Compare, Context::Chart, Context::List, Context::Global],
    everywhere: &[],
    make: || Box::new(ComparePane::default()),
};

/// Runs that are to be compared.
pub const RUNS: Topic = topic("runs");

const fn topic(about: &'static str) -> Topic {
    Topic {
        pane: &ENTRY,
        about,
    }
}

/// How often live runs are read again.
const REFRESH: Duration = Duration::from_secs(5);
/// What `w` walks through: none, and shares of the width.
const SMOOTHING: [f64; 3] = [0.0, 0.01, 0.04];

/// The cursors, and what was read.
#[derive(Debug, Default)]
pub struct ComparePane {
    /// In the order of the columns.
    paths: Vec<PathBuf>,
    tracks: Vec<Track>,
    settings: Vec<Setting>,
    figures: Vec<Figure>,
    /// Why one of them could not be read.
    fault: Option<String>,
    reading: bool,
    read_at: crate::base::clock::UnixMillis,
    by: By,
    /// Which of the figures is drawn.
    metric: usize,
    /// The curve of each run, where it has one.
    curves: Vec<Option<Series>>,
    logarithmic: bool,
    smoothing: usize,
    scroll: usize,
    most: usize,
    page: usize,
    /// Where the chart lay in the last frame.
    chart: Rect,
}

impl ComparePane {
    fn read(&mut self, store: &Store) -> Vec<Request> {
        self.read_at = store.now;
        self.reading = !self.paths.is_empty();
        match self.reading {
            true => vec![Request::Do(Effect::ReadTracks(self.paths.clone()))],
            false => {
                self.take(Vec::new());
                Vec::new()
            }
        }
    }

    /// Takes what was read; the metric that is drawn stays the same where it is there again.
    fn take(&mut self, tracks: Vec<Track>) {
        let before = self.figures.get(self.metric).map(|f| f.id.clone());
        self.settings = told(&tracks, Schema { choices, follows });
        self.figures = figures(&tracks);
        self.tracks = tracks;
        let same = self.figures.iter().position(|f| Some(&f.id) == before.as_ref());
        self.metric = same.unwrap_or(0);
        self.redraw_curves();
    }

    fn redraw_curves(&mut self) {
        let figure = self.figures.get(self.metric);
        let curve = |track: &Track| figure.and_then(|f| track.curve(&f.id, self.by));
        self.curves = self.tracks.iter().map(curve).collect();
    }

    fn choose(&mut self, paths: Vec<PathBuf>, store: &Store) -> Vec<Request> {
        let mut requests = Vec::new();
        if paths.len() > MAX_TRACKS {
            let words = format!("at most {MAX_TRACKS} runs: the first ones are compared");
            requests.push(Request::Toast(Level::Info, words));
        }
        self.paths.clear();
        for path in paths.into_iter().take(MAX_TRACKS) {
            if !self.paths.contains(&path) {
                self.paths.push(path);
            }
        }
        requests.extend(self.read(store));
        requests
    }

    /// Every run that is known and not compared yet, and the run on the screen.
    fn picker(&self, store: &Store) -> Picker {
        let held = store.held.as_ref();
        let held = held.and_then(|held| Some((held.name().to_string(), held.path.clone()?)));
        let known = store.runs().iter();
        let known = known.map(|run| (short_run(&run.id).to_string(), run.path.clone()));
        let mut seen = self.paths.clone();
        let mut items = Vec::new();
        for (title, path) in held.into_iter().chain(known) {
            if seen.contains(&path) {
                continue;
            }
            seen.push(path.clone());
            items.push(Item {
                title: crate::base::text::one_line(&title),
                detail: shown(&path),
                right: String::new(),
                choice: Choice::Answer(topic("add"), Answer::Path(path)),
            });
        }
        Picker::new("add to the comparison", "there is no other run", items).about(topic("add"))
    }

    fn walk(&mut self, forward: bool) {
        let n = self.figures.len().max(1);
        self.metric = (self.metric + if forward { 1 } else { n - 1 }) % n;
        self.redraw_curves();
    }
}

impl Pane for ComparePane {
    fn hints(&self, _store: &Store) -> Hints {
        use Action as A;
        Hints::of_pane(match self.paths.is_empty() {
            true => titles(&[A::Cancel, A::PickRun]),
            false => titles(&[
                A::Cancel,
                A::CompareBy,
                A::NextCurve,
                A::PickRun,
                A::DropRun,
                A::CompareTasks,
                A::SaveChart,
                A::CompareLog,
                A::CompareSmooth,
            ]),
        })
    }

    fn tick(&self, store: &Store) -> Option<Duration> {
        let live = |run: &crate::run::index::RunSummary| {
            run.status == RunStatus::Live && self.paths.contains(&run.path)
        };
        store.runs().iter().any(live).then_some(REFRESH)
    }

    fn enter(&mut self, context: &mut PaneContext) -> Vec<Request> {
        let mut requests = vec![Request::Do(Effect::RefreshRuns)];
        if !self.reading {
            requests.extend(self.read(context.store));
        }
        requests
    }

    fn act(&mut self, action: Action, context: &mut PaneContext) -> Vec<Request> {
        let page = self.page.max(1);
        match action {
            Action::Cancel => return vec![Request::Show(&home::ENTRY)],
            Action::CompareBy => {
                self.by = self.by.next();
                self.redraw_curves();
            }
            Action::NextCurve => self.walk(true),
            Action::PreviousCurve => self.walk(false),
            Action::CompareLog => self.logarithmic = !self.logarithmic,
            Action::CompareSmooth => self.smoothing = (self.smoothing + 1) % SMOOTHING.len(),
            Action::PickRun => return vec![Request::Open(Box::new(self.picker(context.store)))],
            Action::DropRun => {
                self.paths.pop();
                return self.read(context.store);
            }
            Action::CompareAgain => return self.read(context.store),
            Action::CompareTasks if !self.paths.is_empty() => {
                return vec![
                    Request::Show(&evals::ENTRY),
                    Request::Tell(evals::MODELS, Answer::Paths(self.paths.clone())),
                ];
            }
            Action::SaveChart if !self.tracks.is_empty() => {
                let metric = self.figures.get(self.metric);
                let metric = metric.map_or("chart", |figure| &figure.id);
                let name = format!("compare-{metric}-by-{}", self.by.word());
                return save_chart(name, self.chart);
            }
            Action::Up => self.scroll = self.scroll.saturating_sub(1),
            Action::Down => self.scroll += 1,
            Action::PageUp => self.scroll = self.scroll.saturating_sub(page),
            Action::PageDown => self.scroll += page,
            Action::Top => self.scroll = 0,
            Action::Bottom => self.scroll = self.most,
            _ => {}
        }
        self.scroll = self.scroll.min(self.most);
        Vec::new()
    }

    fn incoming(&mut self, msg: &Msg, context: &mut PaneContext) -> Vec<Request> {
        match msg {
            Msg::Tracks { paths, result } if *paths == self.paths => {
                self.reading = false;
                match result {
                    Ok(tracks) => {
                        self.fault = None;
                        self.take(tracks.to_vec());
                    }
                    Err(why) => self.fault = Some(why.clone()),
                }
                vec![Request::Draw(crate::ui::freshness::Freshness::DataMoved)]
            }
            Msg::Tick if context.in_front && !self.reading => {
                let stale = context.store.now.since(self.read_at) >= REFRESH;
                match stale && self.tick(context.store).is_some() {
                    true => self.read(context.store),
                    false => Vec::new(),
                }
            }
            _ => Vec::new(),
        }
    }

    fn answered(&mut self, about: &str, answer: Answer, context: &mut PaneContext) -> Vec<Request> {
        match (about, answer) {
            ("runs", Answer::Paths(paths)) => self.choose(paths, context.store),
            ("add", Answer::Path(path)) => {
                let mut paths = self.paths.clone();
                paths.push(path);
                self.choose(paths, context.store)
            }
            _ => Vec::new(),
        }
    }

    fn draw(&mut self, frame: &mut Frame, area: Rect, context: &mut PaneContext) {
        self.draw_all(frame.buffer_mut(), area, context);
    }
}

#[cfg(test)]
mod tests;
