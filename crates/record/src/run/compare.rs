//! Runs side by side: their curves on one axis (steps, tokens or time), the settings in which they differ, their figures.
//! Reads only folds, so runs of other programs are compared like ours. No screens here.

use super::log::Tail;
use super::no_effect::{changes_results, rescues};
use super::objective::{Contents, Difference, Objective, difference};
use super::rollback_buffer::RollbackBuffer;
use super::series::Series;
use super::state::RunState;
use super::{RunDir, state::MAX_LOG};
use crate::base::human;
use crate::base::text::one_line;
use crate::wire::{ChartPlace, Direction, Envelope, Event, MetricInfo, id};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

/// Runs that are compared at once.
pub const MAX_TRACKS: usize = 6;
/// Places of the axis that are kept of one run; between them tokens and time are interpolated.
const PLACES: usize = 4_096;
/// Points of a curve over tokens or time.
const POINTS: usize = 2_048;

/// Changes of settings on the way that are kept of one run.
const MAX_CHANGES: usize = 32;

/// What curves are laid over each other by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Alignment {
    #[default]
    Step,
    /// Target tokens consumed.
    Tokens,
    /// Milliseconds in which an engine held the run: see [`super::engine_time::EngineTime`].
    Time,
}

impl Alignment {
    pub const ALL: [Alignment; 3] = [Alignment::Step, Alignment::Tokens, Alignment::Time];

    pub fn word(self) -> &'static str {
        match self {
            Alignment::Step => "step",
            Alignment::Tokens => "tokens",
            Alignment::Time => "time",
        }
    }

    pub fn next(self) -> Alignment {
        match self {
            Alignment::Step => Alignment::Tokens,
            Alignment::Tokens => Alignment::Time,
            Alignment::Time => Alignment::Step,
        }
    }
}

/// How far a run was, by each axis.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Place {
    step: u64,
    tokens: u64,
    millis: u64,
}

/// One run among those compared: its fold, and what its steps were in tokens and time.
#[derive(Debug, Clone, Default)]
pub struct Track {
    /// As lists name it.
    pub name: String,
    pub state: RunState,
    places: Vec<Place>,
    /// Every so many places one is kept.
    stride: u64,
    seen: u64,
    given_up: RollbackBuffer<Vec<Place>>,
    now: Place,
    /// Settings changed while the run went on, by people and by rescues: step, key, new value; the newest ones that count.
    changes: Vec<(u64, String, f64)>,
    undone_changes: RollbackBuffer<Vec<(u64, String, f64)>>,
    /// What it was trained on, by its spec until its checkpoints were looked at.
    contents: Contents,
}

impl Track {
    pub fn new(name: &str) -> Track {
        Track {
            name: one_line(name),
            stride: 1,
            ..Track::default()
        }
    }

    /// Folds a run's whole log.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn of_run(run: &RunDir) -> io::Result<Track> {
        let mut track = Track::new(&run.folder());
        let mut tail = Tail::open(&run.events_path())?;
        while let Some(envelope) = tail.next_event()? {
            track.apply(&envelope);
        }
        // What a comparison shows is in the series; the log's lines would only take memory.
        debug_assert!(track.state.log.len() <= MAX_LOG);
        track.state.log.clear();
        if let Some(head) = &track.state.head {
            track.contents = Contents::of_run(run, &head.spec);
        }
        Ok(track)
    }

    /// What its readings measure; `None` for logs of other programs.
    fn objective(&self) -> Option<Objective<'_>> {
        let head = self.state.head.as_ref();
        let head = head.filter(|_| !self.state.is_foreign())?;
        Some(Objective {
            method: &head.method,
            spec: &head.spec,
            contents: &self.contents,
        })
    }

    /// Folds one event; a repeated one changes nothing.
    pub fn apply(&mut self, envelope: &Envelope) {
        let before = self.state.last_seq;
        self.state.apply(envelope);
        if self.state.last_seq == before {
            return;
        }
        // A machine that slept counts less at an engine's end than on its way, and an axis does not go back.
        self.now.millis = self.now.millis.max(self.millis());
        self.go_back(&envelope.event);
        match &envelope.event {
            Event::Started { spec, .. } => self.contents = Contents::said(spec),
            Event::Adjusted { step, key, new, .. } => self.changed(*step, key, new.0),
            Event::Rescued { step, lr, .. } | Event::RescueUndone { step, lr, .. } => {
                self.changed(*step, "lr", lr.1.0);
            }
            _ => {}
        }
        match envelope.event {
            Event::RescueUndone { step, tokens, .. } => {
                (self.now.step, self.now.tokens) = (step, tokens);
            }
            Event::Stepped { step, tokens, .. } => {
                (self.now.step, self.now.tokens) = (step, tokens);
                if self.places.last().is_none_or(|last| last.step < step) {
                    self.keep();
                }
            }
            _ => {}
        }
    }

    /// Places and changes of steps that no longer count go, and come back with the undo of a rescue.
    fn go_back(&mut self, event: &Event) {
        match event {
            Event::RolledBack { step } => {
                let at = self.places.partition_point(|place| place.step <= *step);
                self.given_up.rolled_back(self.places.split_off(at));
                let changes = self.changes.extract_if(.., |change| change.0 > *step);
                self.undone_changes.rolled_back(changes.collect());
            }
            Event::StartedOver => {
                self.places.clear();
                self.changes.clear();
                self.given_up = RollbackBuffer::default();
                self.undone_changes = RollbackBuffer::default();
            }
            Event::Rescued { .. } => {
                self.given_up.rescued();
                self.undone_changes.rescued();
            }
            Event::RescueUndone { step, .. } => {
                let places = self.given_up.undone().into_iter();
                self.places
                    .extend(places.filter(|place| place.step <= *step));
                let changes = self.undone_changes.undone().into_iter();
                self.changes
                    .extend(changes.filter(|change| change.0 <= *step));
            }
            _ => {}
        }
    }

    fn changed(&mut self, step: u64, key: &str, new: f64) {
        if self.changes.len() == MAX_CHANGES {
            self.changes.remove(0);
        }
        self.changes.push((step, one_line(key), new));
    }

    /// What a setting was changed to on the way: `2.00e-3 from step 40, 1.00e-3 from step 90`.
    fn live(&self, key: &str) -> Option<Value> {
        let of_key = self.changes.iter().filter(|(_, of, _)| of == key);
        let words: Vec<String> = of_key
            .map(|(step, _, new)| {
                let new = human::number(*new);
                format!("{new} from step {}", human::grouped(*step))
            })
            .collect();
        (!words.is_empty()).then(|| words.join(", ").into())
    }

    fn keep(&mut self) {
        self.seen += 1;
        if !self.seen.is_multiple_of(self.stride) {
            return;
        }
        self.places.push(self.now);
        if self.places.len() >= PLACES {
            let mut at = 0;
            self.places.retain(|_| {
                at += 1;
                at % 2 == 0
            });
            self.stride *= 2;
        }
    }

    /// Milliseconds in which engines held it.
    pub fn millis(&self) -> u64 {
        self.state.spent().millis()
    }

    /// The same in words. A log whose lines have no times has none.
    pub fn time(&self) -> String {
        match self.millis() {
            0 if self.now.step > 0 => "-".into(),
            millis => human::duration(Duration::from_millis(millis)),
        }
    }

    /// Where the run is on an axis.
    pub fn end(&self, by: Alignment) -> u64 {
        self.x_of(self.state.step, by)
    }

    /// Where a step lies on an axis: between two known places on the line between them, behind the last one where the run
    /// is now.
    fn x_of(&self, step: u64, by: Alignment) -> u64 {
        let of = |place: &Place| match by {
            Alignment::Step => place.step,
            Alignment::Tokens => place.tokens,
            Alignment::Time => place.millis,
        };
        if by == Alignment::Step {
            return step;
        }
        let at = self.places.partition_point(|place| place.step < step);
        let start = Place::default();
        let before = at.checked_sub(1).map_or(&start, |at| &self.places[at]);
        let after = self.places.get(at).unwrap_or(&self.now);
        if after.step <= before.step {
            return of(before);
        }
        let share = step.saturating_sub(before.step) as f64 / (after.step - before.step) as f64;
        let (from, to) = (of(before) as f64, of(after) as f64);
        (from + (to - from) * share.min(1.0)).round() as u64
    }

    /// A metric over an axis: as it is over steps; over tokens and time of at most [`POINTS`] points, each with its extremes.
    pub fn curve(&self, id: &str, by: Alignment) -> Option<Series> {
        let series = self.state.series.get(id).filter(|s| !s.is_empty())?;
        if by == Alignment::Step {
            return Some(series.clone());
        }
        let (first, last) = series.steps()?;
        let columns = usize::try_from(last - first + 1)
            .unwrap_or(POINTS)
            .min(POINTS);
        let mut out = Series::new();
        for bucket in series
            .columns(first as f64, last as f64 + 1.0, columns)
            .into_iter()
            .flatten()
        {
            let x = self.x_of(bucket.last, by);
            match bucket.n {
                0 => out.push(x, f64::NAN),
                1 => out.push(x, bucket.min),
                _ => {
                    out.push(x, bucket.min);
                    out.push(x, bucket.max);
                }
            }
        }
        Some(out)
    }

    /// Means of a curve at no more than `n` places: (x, value).
    pub fn points(&self, id: &str, by: Alignment, n: usize) -> Vec<(u64, f64)> {
        let span = self.state.series.get(id).and_then(Series::steps);
        let (Some((first, last)), Some(series)) = (span, self.state.series.get(id)) else {
            return Vec::new();
        };
        let columns = usize::try_from(last - first + 1).unwrap_or(n).min(n);
        let found = series.columns(first as f64, last as f64 + 1.0, columns);
        let found = found.into_iter().flatten();
        let point =
            |bucket: super::series::Bucket| Some((self.x_of(bucket.last, by), bucket.mean()?));
        found.filter_map(point).collect()
    }
}

/// A setting in which runs differ.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// `optimizer.adamw.lr`
    pub path: String,
    /// One for each run; `None` where it has no such setting.
    pub values: Vec<Option<Value>>,
    /// A run among them goes back to its checkpoints.
    rescued: bool,
}

/// Every leaf of resolved specs that is not the same in all of them, in their order. Lists are one leaf.
pub fn settings(specs: &[&Value]) -> Vec<Setting> {
    fn walk(path: &str, values: &[Option<&Value>], rescued: bool, found: &mut Vec<Setting>) {
        if values.windows(2).all(|pair| pair[0] == pair[1]) {
            return;
        }
        let objects = || {
            values
                .iter()
                .flatten()
                .filter_map(|value| value.as_object())
        };
        if objects().next().is_none()
            || values
                .iter()
                .flatten()
                .any(|v| !v.is_object() && !v.is_null())
        {
            found.push(Setting {
                path: path.into(),
                values: values.iter().map(|value| value.cloned()).collect(),
                rescued,
            });
            return;
        }
        let mut seen = BTreeSet::new();
        for key in objects().flat_map(|object| object.keys()) {
            if !seen.insert(key) {
                continue;
            }
            let path = match path {
                "" => key.clone(),
                // What a log of another program says about an optimizer without naming it (`of the log`).
                path if key.contains(' ') => path.into(),
                path => format!("{path}.{key}"),
            };
            let inner: Vec<Option<&Value>> = values
                .iter()
                .map(|value| value.and_then(|v| v.get(key)))
                .collect();
            walk(&path, &inner, rescued, found);
        }
    }
    let mut found = Vec::new();
    let rescued = are_rescued(specs);
    let specs: Vec<Option<&Value>> = specs.iter().copied().map(Some).collect();
    walk("", &specs, rescued, &mut found);
    found
}

fn are_rescued(specs: &[&Value]) -> bool {
    specs.iter().any(|spec| rescues(spec))
}

/// What a spec says of itself: no setting.
const WORDS: [&str; 3] = ["name", "about", "group"];

fn specs(tracks: &[Track]) -> Vec<&Value> {
    let heads = tracks.iter().map(|track| track.state.head.as_ref());
    let specs = heads.map(|head| head.map_or(&Value::Null, |head| &head.spec));
    specs.collect()
}

/// The settings in which specs differ, without what they say of themselves.
fn chosen(specs: &[&Value]) -> Vec<Setting> {
    let mut found = settings(specs);
    found.retain(|setting| !WORDS.contains(&setting.path.as_str()));
    found
}

/// The settings in which runs differ; their names and descriptions do not count. What was changed while a run went on is no part
/// of its spec and has a row of its own: `lr (live)`.
pub fn differing(tracks: &[Track]) -> Vec<Setting> {
    let mut found = chosen(&specs(tracks));
    let changes = tracks.iter().flat_map(|track| &track.changes);
    let keys: BTreeSet<&str> = changes.map(|(_, key, _)| key.as_str()).collect();
    found.extend(keys.into_iter().filter_map(|key| {
        let values: Vec<Option<Value>> = tracks.iter().map(|track| track.live(key)).collect();
        let differs = values.windows(2).any(|pair| pair[0] != pair[1]);
        differs.then(|| Setting {
            path: format!("{key} (live)"),
            values,
            rescued: false,
        })
    }));
    found
}

/// The path of a choice, and the word of each spec.
pub type Choice = (String, Vec<Option<Value>>);

/// What a spec's schema says of settings that differ. It lies above this room, so whoever asks brings it along.
#[derive(Debug, Clone, Copy)]
pub struct Schema {
    /// The choices of one among several that specs make differently, each with its word in every spec.
    pub choices: fn(&[&Value]) -> Vec<Choice>,
    /// Whether a difference only follows from others.
    pub follows: fn(&str, &[Option<Value>], &[&Value]) -> bool,
}

/// The same for display: choices first, derived differences left out, those that change no result last.
pub fn visible_differences(tracks: &[Track], schema: Schema) -> Vec<Setting> {
    hide_derived(differing(tracks), &specs(tracks), schema)
}

/// [`visible_differences`] of specs alone, whose runs were not read.
pub fn visible_spec_differences(specs: &[&Value], schema: Schema) -> Vec<Setting> {
    hide_derived(chosen(specs), specs, schema)
}

fn hide_derived(differing: Vec<Setting>, specs: &[&Value], schema: Schema) -> Vec<Setting> {
    let rescued = are_rescued(specs);
    let choices = (schema.choices)(specs).into_iter();
    let mut found: Vec<Setting> = choices
        .map(|(path, values)| Setting {
            path,
            values,
            rescued,
        })
        .collect();
    let known: Vec<String> = found.iter().map(|setting| setting.path.clone()).collect();
    let others = differing.into_iter().filter(|setting| {
        let follows = || (schema.follows)(&setting.path, &setting.values, specs);
        !known.contains(&setting.path) && !follows()
    });
    found.extend(others);
    found.sort_by_key(|setting| !setting.changes_results());
    found
}

impl Setting {
    /// See [`changes_results`].
    pub fn changes_results(&self) -> bool {
        changes_results(&self.path, self.rescued)
    }
}

/// A metric of several runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    pub id: String,
    pub title: String,
    pub unit: String,
    pub direction: Direction,
    /// Why it does not say the same of all runs that have it, if it does not: a loss of SFT and one of DPO, IPO's and the hinge's, losses
    /// per token of different tokenizers, losses of different data.
    pub apart: Option<Difference>,
    /// Newest finite reading of each run.
    pub last: Vec<Option<f64>>,
    /// Best reading of each run, where a direction says what is better.
    pub best: Vec<Option<f64>>,
}

impl Figure {
    /// Which run's newest reading is the best, where all are of the same step: of a longer run it would be the later one.
    pub fn leader(&self, tracks: &[Track]) -> Option<usize> {
        let even = even(&ends(tracks, &self.id));
        self.winner(&self.last).filter(|_| even)
    }

    /// The last step at which all runs that have it have a reading of it, and these: a run that was not evaluated at the end of another
    /// would win or lose by an older model. `None` where their newest readings are of one step, no step is common, or one run alone
    /// has any.
    pub fn at_last_common_step(&self, tracks: &[Track]) -> Option<(u64, Vec<Option<f64>>)> {
        let steps = ends(tracks, &self.id);
        let several = steps.iter().flatten().count() > 1;
        if !several || even(&steps) {
            return None;
        }
        // A point of a long curve is the mean of the steps up to it.
        let curve = |track: &Track| {
            let points = track.points(&self.id, Alignment::Step, POINTS);
            let span = points.last().map_or(0, |last| last.0 - points[0].0);
            (points, span.div_ceil(POINTS as u64).max(1))
        };
        let all: Vec<(Vec<(u64, f64)>, u64)> = tracks.iter().map(curve).collect();
        let at = |(points, width): &(Vec<(u64, f64)>, u64), step: u64| {
            let n = points.partition_point(|point| point.0 <= step);
            let found = n.checked_sub(1).map(|at| points[at]);
            let found = found.filter(|point| step - point.0 < *width);
            found.map(|point| point.1).filter(|x| x.is_finite())
        };
        let mut runs = all.iter().filter(|(points, _)| !points.is_empty());
        let first = runs.next()?;
        let rest: Vec<_> = runs.collect();
        let shared = |step: &u64| rest.iter().all(|curve| at(curve, *step).is_some());
        let common = first.0.iter().rev().map(|point| point.0).find(shared)?;
        Some((common, all.iter().map(|curve| at(curve, common)).collect()))
    }

    /// Which run has the best of the values, where it differs from the others as they are written, a direction says what
    /// is better, and the runs can be distinguished by it.
    pub fn winner(&self, values: &[Option<f64>]) -> Option<usize> {
        if self.apart.is_some() {
            return None;
        }
        let sign = match self.direction {
            Direction::Lower => 1.0,
            Direction::Higher => -1.0,
            Direction::Neutral => return None,
        };
        let mut known = values
            .iter()
            .enumerate()
            .filter_map(|(at, x)| Some((at, sign * (*x)?)));
        let first = known.next()?;
        let mut rest: Vec<(usize, f64)> = known.collect();
        rest.push(first);
        let best = rest.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1))?;
        let written = |x: f64| human::reading(sign * x, &self.unit);
        let equal = |(_, x): &&(usize, f64)| written(*x) == written(best.1);
        let alone = rest.iter().filter(equal).count() == 1;
        (rest.len() > 1 && alone).then_some(best.0)
    }
}

/// The step of each run's newest reading of a metric.
pub fn ends(tracks: &[Track], id: &str) -> Vec<Option<u64>> {
    let end = |track: &Track| Some(track.state.series.get(id)?.steps()?.1);
    tracks.iter().map(end).collect()
}

/// Whether all that have one end at the same step: only there a best one is reported.
pub fn even(steps: &[Option<u64>]) -> bool {
    let mut known = steps.iter().flatten();
    let first = known.next();
    known.all(|step| Some(step) == first)
}

/// Whether a metric is of what the method optimizes: a loss, a reward, a margin. What tasks measure on answers, and the
/// speed and memory of the machine, mean the same under every method.
fn depends_on_method(info: &MetricInfo) -> bool {
    const OF_THE_MACHINE: [&str; 4] = [id::TOK_PER_SEC, id::STEP_MS, id::MFU, id::DATA_WAIT];
    let prefixes = [id::EVAL, id::machine::HOST, id::machine::GPU];
    !OF_THE_MACHINE.contains(&&*info.id) && !prefixes.iter().any(|p| info.id.starts_with(p))
}

/// Why a metric does not say the same of these runs. Logs of other programs do not say their method, only their format.
fn apart<'a>(tracks: impl Iterator<Item = &'a Track>, id: &str) -> Option<Difference> {
    let ours: Vec<Objective<'_>> = tracks.filter_map(Track::objective).collect();
    difference(&ours, id)
}

/// Every metric that has a chart and readings in at least one of the runs: the losses first, then as declared.
pub fn figures(tracks: &[Track]) -> Vec<Figure> {
    let mut infos: Vec<MetricInfo> = Vec::new();
    for track in tracks {
        for info in &track.state.metrics {
            let shown = info.place == ChartPlace::Dashboard && !info.per_layer;
            if shown && !infos.iter().any(|known| known.id == info.id) {
                infos.push(info.clone());
            }
        }
    }
    let rank = |info: &MetricInfo| match info.id.as_str() {
        id::TRAIN_LOSS => 0,
        id::VAL_LOSS => 1,
        id if id.starts_with(id::EVAL) => 2,
        id if id.starts_with(id::VAL) => 3,
        _ => 4,
    };
    infos.sort_by_key(rank);
    let figure = |info: MetricInfo| {
        let series = |track: &Track| {
            let series = track.state.series.get(&info.id).filter(|s| !s.is_empty())?;
            Some((series.last()?.value, series.extent(0.0, f64::MAX)?))
        };
        let found: Vec<_> = tracks.iter().map(series).collect();
        if found.iter().all(Option::is_none) {
            return None;
        }
        let with = tracks.iter().zip(&found);
        let with = with.filter_map(|(track, found)| found.map(|_| track));
        let apart = match depends_on_method(&info) {
            true => apart(with, &info.id),
            false => None,
        };
        let best = |span: (f64, f64)| match info.direction {
            Direction::Lower => Some(span.0),
            Direction::Higher => Some(span.1),
            Direction::Neutral => None,
        };
        let last = |(value, _): (f64, (f64, f64))| Some(value).filter(|x| x.is_finite());
        Some(Figure {
            last: found.iter().map(|f| f.and_then(last)).collect(),
            best: found
                .iter()
                .map(|f| f.and_then(|(_, span)| best(span)))
                .collect(),
            title: one_line(if info.title.is_empty() {
                &info.id
            } else {
                &info.title
            }),
            unit: one_line(&info.unit),
            direction: info.direction,
            apart,
            id: info.id,
        })
    };
    infos.into_iter().filter_map(figure).collect()
}

#[cfg(test)]
mod tests;
