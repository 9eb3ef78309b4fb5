//! The ranking of runs that differ in a few settings, as those of a sweep: the settings as columns, each run's best
//! evaluation, best first. What diverged, failed or still trains is shown and not ranked.

use super::SCHEMA;
use crate::base::human::{self, grouped};
use crate::base::text::one_line;
use crate::run::compare::{Setting, visible_spec_differences};
use crate::run::index::RunSummary;
use crate::run::objective::Objective;
use crate::run::ranking::{
    Group, OTHER_DATA, SEED, Score, Trial, caveats, in_one_unit, ranked, settle, value,
};
use crate::spec::shown;
use crate::ui::layout::fill;
use crate::ui::rows::ComparedRun;
use crate::ui::store::short_run;
use crate::ui::theme::Meaning;
use crate::ui::widgets::text::{Word, muted, word, wrap};
use serde_json::Value;
use std::ops::Range;
use std::path::{Path, PathBuf};
use unicode_width::UnicodeWidthStr;

/// Most settings that have columns: three, and the seed.
const MOST: usize = 4;
/// Columns of a setting's value at most.
const VALUE: usize = 14;
/// Columns between two cells.
const GAP: usize = 2;

/// Runs with what each came to, and their order.
#[derive(Debug)]
pub struct Ranking {
    runs: Vec<RunSummary>,
    /// In the order of `runs`.
    trials: Vec<Trial>,
    groups: Vec<Group>,
    /// Titles of the settings' columns, and behind them the paths of settings without one.
    keys: Vec<String>,
    /// The paths of all of them.
    paths: Vec<String>,
    /// How many have a column.
    columns: usize,
    score: Option<Score>,
    /// Why nothing is ranked: their scores do not say the same of all.
    apart: Option<String>,
    /// What was done so that they do, and where they do not.
    notes: Vec<&'static str>,
}

/// A cell of the table.
struct Cell {
    text: String,
    meaning: Meaning,
}

impl Ranking {
    /// `None` where the runs differ in nothing, or in more than fits in columns.
    pub fn of(entrants: &[ComparedRun]) -> Option<Ranking> {
        let specs: Vec<&Value> = entrants.iter().map(|entrant| &entrant.spec).collect();
        let mut settings = visible_spec_differences(&specs, SCHEMA);
        // What was repeated stands behind what was tried, and last what changes no result: it gives way where there are too many.
        settings.sort_by_key(|setting| (!setting.changes_results(), setting.path == SEED));
        let columns = match settings.len() > MOST {
            true => settings.iter().filter(|setting| setting.changes_results()).count(),
            false => settings.len(),
        };
        if !(1..=MOST).contains(&columns) {
            return None;
        }
        // What has no column still makes a run another one, and no seed of the same settings.
        let (own, others) = settings.split_at(columns);
        let mut keys = titles(own);
        keys.extend(others.iter().map(|setting| one_line(&setting.path)));
        let trial = |(at, entrant): (usize, &ComparedRun)| {
            let mut trial = Trial::new(words(&keys, &settings, at), entrant.run.max_steps);
            trial.take(&entrant.run);
            trial
        };
        let mut trials: Vec<Trial> = entrants.iter().enumerate().map(trial).collect();
        let objectives: Vec<Objective<'_>> = entrants.iter().map(ComparedRun::objective).collect();
        let (notes, apart) = match in_one_unit(&mut trials, &objectives) {
            Ok(notes) => (notes, None),
            Err(why) => (Vec::new(), Some(why)),
        };
        settle(&mut trials);
        let scores = || trials.iter().filter_map(|trial| trial.score.as_ref());
        let sound = trials.iter().find_map(Trial::sound);
        let score = sound.or_else(|| scores().next()).cloned();
        Some(Ranking {
            groups: if apart.is_some() { Vec::new() } else { ranked(&trials) },
            runs: entrants.iter().map(|entrant| entrant.run.clone()).collect(),
            trials,
            keys,
            paths: settings.into_iter().map(|setting| setting.path).collect(),
            columns,
            score,
            apart,
            notes,
        })
    }

    /// The runs, best first; then those without a result, and those that are not ranked.
    pub fn order(&self) -> Vec<PathBuf> {
        let with = self.groups.iter().flat_map(|group| &group.members[..group.runs]);
        let without = self.groups.iter().flat_map(|group| &group.members[group.runs..]);
        let ranked = with.chain(without).copied();
        let order: Vec<usize> = ranked.chain(self.unranked()).collect();
        order.iter().map(|at| self.runs[*at].path.clone()).collect()
    }

    /// Runs of settings of which no score counts.
    fn unranked(&self) -> impl Iterator<Item = usize> + '_ {
        let in_none = |at: &usize| !self.groups.iter().any(|group| group.members.contains(at));
        (0..self.runs.len()).filter(in_none)
    }

    /// `ranking by val/loss, lower is better`
    pub fn title(&self) -> Vec<Word> {
        let mut words = vec![word("ranking", Meaning::Title)];
        match (&self.score, &self.apart) {
            (_, Some(why)) => words.push(word(format!(", not comparable: {why}"), Meaning::Warn)),
            (Some(score), None) => {
                let way = if score.higher { "higher" } else { "lower" };
                let by = format!(" by {}, {way} is better", one_line(&score.metric));
                words.push(muted(by));
            }
            (None, None) => words.push(muted(": no run has an evaluation yet")),
        }
        words
    }

    /// The lines below the title; `letter`: that of a run's curve.
    pub fn lines(
        &self,
        width: usize,
        ascii: bool,
        letter: impl Fn(&Path) -> Option<(String, Meaning)>,
    ) -> Vec<Vec<Word>> {
        let mut rows = vec![self.heading()];
        for (place, group) in self.groups.iter().enumerate() {
            for (i, at) in group.members.iter().enumerate() {
                let first = (i == 0).then_some((place + 1, group));
                rows.push(self.row(*at, first, &letter));
            }
        }
        rows.extend(self.unranked().map(|at| self.row(at, None, &letter)));
        let mut lines = in_columns(rows, 2..2 + self.columns, width);
        let notes = self.notes.iter().map(|note| (*note).to_string());
        let path_of = |key: &str| {
            let at = self.keys.iter().position(|own| own == key);
            at.map_or_else(|| key.into(), |at| self.paths[at].clone())
        };
        let told = caveats(&self.trials, &self.groups, path_of);
        for told in notes.chain(told) {
            let rows = wrap(&one_line(&told), width, usize::MAX, ascii);
            lines.extend(rows.into_iter().map(|row| vec![muted(row)]));
        }
        lines
    }

    /// Whether some settings were repeated.
    fn repeats(&self) -> bool {
        self.groups.iter().any(|group| group.members.len() > 1)
    }

    fn heading(&self) -> Vec<Cell> {
        let mut titles = vec![String::new(), String::new()];
        titles.extend(self.keys.iter().take(self.columns).cloned());
        let score = self.score.as_ref();
        titles.push(score.map_or("score".into(), |score| one_line(&score.metric)));
        titles.push("step".into());
        if self.repeats() {
            titles.push("mean over seeds".into());
        }
        titles.extend(["state", "time", "run"].map(String::from));
        let cell = |text| Cell {
            text,
            meaning: Meaning::Muted,
        };
        titles.into_iter().map(cell).collect()
    }

    /// The row of a run; `first`: it is the best of its group, which has this place.
    fn row(
        &self,
        at: usize,
        first: Option<(usize, &Group)>,
        letter: impl Fn(&Path) -> Option<(String, Meaning)>,
    ) -> Vec<Cell> {
        let (run, trial) = (&self.runs[at], &self.trials[at]);
        let cell = |text: String, meaning| Cell { text, meaning };
        let place = first.map_or(String::new(), |(place, _)| place.to_string());
        let (letter, colour) = letter(&run.path).unwrap_or((String::new(), Meaning::Muted));
        let mut cells = vec![cell(place, Meaning::Title), cell(letter, colour)];
        let values = trial.set.iter().take(self.columns).map(|word| value(word));
        cells.extend(values.map(|value| cell(value.into(), Meaning::Text)));
        let counts = match (trial.sound(), first) {
            (Some(_), Some((1, _))) => Meaning::Good,
            (Some(_), _) => Meaning::Text,
            (None, _) => Meaning::Muted,
        };
        let score = trial.score.as_ref();
        let best = score.map_or("-".into(), |score| human::number(score.value));
        let step = score.map_or("-".into(), |score| grouped(score.step));
        cells.extend([cell(best, counts), cell(step, Meaning::Muted)]);
        if self.repeats() {
            let mean = first.map_or(String::new(), |(_, group)| mean(group));
            cells.push(cell(mean, Meaning::Text));
        }
        let (state, meaning) = state(run, trial);
        cells.push(cell(state, meaning));
        cells.push(cell(human::seconds(run.seconds), Meaning::Muted));
        cells.push(cell(one_line(short_run(&run.id)), Meaning::Muted));
        cells
    }
}

/// What the columns are called: the last part of a path, or all of it where two end alike.
fn titles(settings: &[Setting]) -> Vec<String> {
    let last = |path: &str| path.rsplit('.').next().unwrap_or_default().to_string();
    let title = |setting: &Setting| {
        let short = last(&setting.path);
        let twins = settings.iter().filter(|other| last(&other.path) == short);
        match twins.count() {
            1 => one_line(&short),
            _ => one_line(&setting.path),
        }
    };
    settings.iter().map(title).collect()
}

/// `lr=0.001`, …: the settings of one run.
fn words(keys: &[String], settings: &[Setting], at: usize) -> Vec<String> {
    let value = |setting: &Setting| match &setting.values[at] {
        Some(value) => one_line(&shown(value)),
        None => "-".into(),
    };
    let pairs = keys.iter().zip(settings);
    pairs.map(|(key, setting)| format!("{key}={}", value(setting))).collect()
}

/// `1.904 ± 0.012`, and how many runs of the group have no score that counts.
fn mean(group: &Group) -> String {
    let spread = group.deviation.map(|sd| format!(" ± {}", human::number(sd)));
    let without = match group.without {
        0 => String::new(),
        n => format!(", {n} without"),
    };
    format!("{}{}{without}", human::number(group.mean), spread.unwrap_or_default())
}

fn state(run: &RunSummary, trial: &Trial) -> (String, Meaning) {
    let (word, meaning) = match trial {
        _ if trial.diverged() => ("diverged", Meaning::Bad),
        _ if trial.message.is_some() => ("failed", Meaning::Bad),
        _ if trial.over => (run.status.word(), Meaning::Muted),
        _ => (run.status.word(), Meaning::Warn),
    };
    match trial.other_data {
        true => (format!("{word}, {OTHER_DATA}"), Meaning::Warn),
        false => (word.into(), meaning),
    }
}

/// Rows with their cells below each other; where they are too wide, the last columns give way. `settings`: which columns hold
/// values of settings, the only ones that are cut.
fn in_columns(rows: Vec<Vec<Cell>>, settings: Range<usize>, width: usize) -> Vec<Vec<Word>> {
    let n = rows.first().map_or(0, Vec::len);
    let columns = |at: usize| {
        let widest = rows.iter().map(|row| row[at].text.width()).max();
        let most = if settings.contains(&at) { VALUE } else { usize::MAX };
        widest.unwrap_or(0).min(most)
    };
    let widths: Vec<usize> = (0..n).map(columns).collect();
    let mut taken = 0;
    let fits = widths.iter().take_while(|columns| {
        taken += **columns;
        let fits = taken <= width;
        taken += GAP;
        fits
    });
    let fits = fits.count();
    let line = |row: Vec<Cell>| {
        let cells = row.into_iter().take(fits).zip(&widths);
        let padded = cells.map(|(cell, columns)| {
            let text = fill(&cell.text, *columns, "…");
            word(format!("{text}{:GAP$}", ""), cell.meaning)
        });
        padded.collect()
    };
    rows.into_iter().map(line).collect()
}
