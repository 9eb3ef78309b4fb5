//! Runs beside each other: their curves on one chart by step, tokens or time; below it their ranking, where they differ in a few
//! settings, or the settings in which they differ and their figures. What is chosen comes from Home; the logs are read by a job.

mod draw;
mod ranking;

use super::{Pane, PaneContext, PaneEntry, evals, home, save_chart};
use crate::base::text::shown;
use crate::run::compare::{Alignment, Figure, MAX_TRACKS, Schema, Setting, Track, figures, visible_differences};
use crate::run::index::RunStatus;
use crate::run::series::Series;
use crate::run::state::Level;
use crate::spec::{choices, follows};
use crate::ui::action::{Action, Context};
use crate::ui::effect::Effect;
use crate::ui::msg::Msg;
use crate::ui::overlays::{Choice, Item, Picker};
use crate::ui::request::{Answer, Hints, Request, Topic, titles};
use crate::ui::rows::ComparedRun;
use crate::ui::store::{Store, short_run};
use ratatui::Frame;
use ranking::Ranking;
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
const SMOOTHING: [f64; 3] = [0.0, 0.9, 0.98];

/// Runs that are ranked at once: as many as a sweep has at most.
const MAX_RUNS: usize = 64;
/// What specs say of settings that differ.
const SCHEMA: Schema = Schema { choices, follows };

/// The cursors, and what was read.
#[derive(Debug, Default)]
pub struct ComparePane {
    /// All that are compared.
    runs: Vec<PathBuf>,
    /// Those with a curve, in the order of the columns: all of them, or the best of many.
    paths: Vec<PathBuf>,
    /// Where the runs differ in a few settings.
    ranking: Option<Ranking>,
    /// The table of settings and figures is shown in place of the ranking.
    in_columns: bool,
    /// Those of `paths` that could be read, in their order.
    tracks: Vec<Track>,
    /// Their paths.
    read_paths: Vec<PathBuf>,
    settings: Vec<Setting>,
    figures: Vec<Figure>,
    /// Why others could not be read.
    faults: Vec<String>,
    reading: bool,
    read_at: Duration,
    by: Alignment,
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
        self.read_at = store.elapsed;
        if self.runs.len() <= MAX_TRACKS {
            self.paths = self.runs.clone();
        }
        if self.runs.is_empty() {
            self.ranking = None;
            self.take(&[], &[]);
            return Vec::new();
        }
        let entrants = Request::Do(Effect::ReadEntrants(self.runs.clone()));
        [entrants].into_iter().chain(self.read_tracks()).collect()
    }

    /// The logs of the runs with a curve; of many it is not known at first which these are.
    fn read_tracks(&mut self) -> Option<Request> {
        self.reading = !self.paths.is_empty();
        self.reading.then(|| Request::Do(Effect::ReadTracks(self.paths.clone())))
    }

    /// Ranks the runs; of many the best have curves.
    fn rank(&mut self, found: &[ComparedRun]) -> Option<Request> {
        self.ranking = Ranking::of(found);
        if self.runs.len() <= MAX_TRACKS {
            return None;
        }
        let order = self.ranking.as_ref().map(Ranking::order);
        let mut best = order.unwrap_or_else(|| self.runs.clone());
        best.truncate(MAX_TRACKS);
        if best == self.paths {
            return None;
        }
        self.paths = best;
        self.read_tracks()
    }

    /// Takes what was read; the metric that is drawn stays the same where it is there again. A run that cannot be read leaves
    /// the others their places.
    fn take(&mut self, paths: &[PathBuf], results: &[Result<Track, String>]) {
        let before = self.figures.get(self.metric).map(|f| f.id.clone());
        let found = paths.iter().zip(results);
        let found = found.filter_map(|(path, track)| Some((path.clone(), track.clone().ok()?)));
        let (paths, tracks): (Vec<PathBuf>, Vec<Track>) = found.unzip();
        self.read_paths = paths;
        self.faults = results.iter().filter_map(|track| track.clone().err()).collect();
        self.settings = visible_differences(&tracks, SCHEMA);
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
        self.runs.clear();
        for path in paths {
            if !self.runs.contains(&path) {
                self.runs.push(path);
            }
        }
        let words = match self.runs.len() {
            0..=MAX_TRACKS => None,
            n if n > MAX_RUNS => Some(format!("at most {MAX_RUNS} runs: the first ones are compared")),
            _ => Some(format!("the chart has room for {MAX_TRACKS} runs: the best ones")),
        };
        self.runs.truncate(MAX_RUNS);
        if words.is_some() {
            self.paths.clear();
        }
        (self.ranking, self.scroll) = (None, 0);
        let told = words.map(|words| Request::Toast(Level::Info, words));
        told.into_iter().chain(self.read(store)).collect()
    }

    /// Every run that is known and not compared yet, and the run on the screen.
    fn picker(&self, store: &Store) -> Picker {
        let held = store.held.as_ref();
        let held = held.and_then(|held| Some((held.name().to_string(), held.path.clone()?)));
        let known = store.runs().iter();
        let known = known.map(|run| (short_run(&run.id).to_string(), run.path.clone()));
        let mut seen = self.runs.clone();
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
        if self.runs.is_empty() {
            return Hints::of_pane(titles(&[A::Cancel, A::PickRun]));
        }
        let table = match self.in_columns {
            true => "ranking",
            false => "settings",
        };
        let table = self.ranking.is_some().then_some((A::CompareTable, table));
        let mut own = titles(&[A::Cancel, A::CompareBy]);
        own.extend(table);
        own.extend(titles(&[
            A::NextCurve,
            A::PickRun,
            A::DropRun,
            A::CompareTasks,
            A::SaveChart,
            A::CompareLog,
            A::CompareSmooth,
        ]));
        Hints::of_pane(own)
    }

    fn tick(&self, store: &Store) -> Option<Duration> {
        let live = |run: &crate::run::index::RunSummary| {
            run.status == RunStatus::Live && self.runs.contains(&run.path)
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
                self.runs.pop();
                self.paths.retain(|path| self.runs.contains(path));
                return self.read(context.store);
            }
            Action::CompareAgain => return self.read(context.store),
            Action::CompareTable if self.ranking.is_some() => {
                (self.in_columns, self.scroll) = (!self.in_columns, 0);
            }
            Action::CompareTasks if !self.runs.is_empty() => {
                return vec![
                    Request::Show(&evals::ENTRY),
                    Request::SendAnswer(evals::MODELS, Answer::Paths(self.runs.clone())),
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
            Msg::Tracks { paths, results } if *paths == self.paths => {
                self.reading = false;
                self.take(paths, results);
                vec![Request::Draw(crate::ui::freshness::Freshness::DataMoved)]
            }
            Msg::Entrants { paths, found } if *paths == self.runs => {
                let requests = self.rank(found).into_iter();
                let draw = Request::Draw(crate::ui::freshness::Freshness::DataMoved);
                requests.chain([draw]).collect()
            }
            Msg::Tick if context.in_front && !self.reading => {
                let waited = context.store.elapsed.saturating_sub(self.read_at);
                let stale = waited >= REFRESH;
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
                let mut paths = self.runs.clone();
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
