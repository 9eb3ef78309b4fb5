//! The words and numbers of a frame. While a run trains they are renewed a few times a second, not in every frame: nobody
//! reads digits faster, and over SSH each of them costs bytes.

use super::catalog::Chart;
use super::vitals::{self, Vital};
use crate::base::clock::UnixMillis;
use crate::base::finding::Status;
use crate::base::human;
use crate::base::stats::Ema;
use crate::diagnosis::{Diagnosis, diagnose};
use crate::run::RunState;
use crate::run::id::short_run;
use crate::run::series::Series;
use crate::run::state::outcome_word;
use crate::ui::glyphs::Glyphs;
use crate::ui::theme::Meaning;
use crate::ui::widgets::text::{Word, word};
use crate::wire::{Direction, Outcome, Phase, id};

/// Time between two renewals while training.
const RENEWAL_MS: u64 = 500;
/// Renewals from one of the diagnosis to the next.
const FACTS_RENEWALS: u64 = 4;
/// Readings behind the number in a title when lines are smoothed.
const TITLE_READINGS: usize = 32;
/// Share of the readings that counts in a title: of a short series few, or it names a loss that the run has left behind.
const TITLE_SPAN: f64 = 0.1;
/// Weight of the past among them.
const TITLE_DECAY: f64 = 0.9;

/// What the words depend on besides the run.
#[derive(Debug, Clone, PartialEq)]
pub struct GlanceOptions {
    pub charts: Vec<Chart>,
    pub cursor: Option<u64>,
    pub smoothed: bool,
    pub ascii: bool,
    /// The text for an engine that sends no events.
    pub silence: Option<String>,
    /// How long a long step or what follows it has taken so far.
    pub so_far: Option<String>,
    /// What was asked for and waits.
    pub waiting: Option<String>,
    /// `stage 2 of 5` of a pipeline, and what comes next.
    pub stage: Option<(String, Option<String>)>,
}

/// Before the reading on the training rows, where one on held-out rows stands beside it.
pub(super) const TRAIN: &str = "train ";
/// The meaning of the words "at STEP", which narrow titles leave out.
const AT: Meaning = Meaning::Cursor;

/// The words of a frame.
#[derive(Debug)]
pub struct Glance {
    /// `step 1,240 / 2,000`
    pub step: Vec<Word>,
    /// 0 to 1.
    pub progress: Option<f64>,
    /// Right of the bar, the most important first.
    pub parts: Vec<Vec<Word>>,
    /// Readings behind each chart's name.
    pub titles: Vec<Vec<Word>>,
    pub diagnosis: Diagnosis,
    pub vitals: Vec<Vital>,
    made: Option<(u64, GlanceOptions)>,
}

impl Default for Glance {
    fn default() -> Self {
        Glance {
            step: Vec::new(),
            progress: None,
            parts: Vec::new(),
            titles: Vec::new(),
            diagnosis: diagnose(&RunState::new()),
            vitals: Vec::new(),
            made: None,
        }
    }
}

impl Glance {
    /// Updates the words when it is time.
    pub fn renew(&mut self, state: &RunState, options: GlanceOptions, now: UnixMillis) {
        let slot = now.0 / RENEWAL_MS;
        let training = state.running() && state.phase == Some(Phase::Training) && state.step > 1;
        if training
            && self
                .made
                .as_ref()
                .is_some_and(|(at, old)| *at == slot && *old == options)
        {
            return;
        }
        let glyphs = Glyphs::of(options.ascii);
        self.step = step_words(state, glyphs);
        self.progress = state.progress();
        self.parts = parts(state, &options);
        if let Some((place, next)) = &options.stage {
            let muted = |words: &String| vec![word(words.clone(), Meaning::Muted)];
            // Behind how far it is and how long it takes; what comes next may give way to all else.
            self.parts.insert(self.parts.len().min(2), muted(place));
            self.parts.extend(next.iter().map(muted));
        }
        self.titles = options
            .charts
            .iter()
            .map(|chart| title(state, chart, &options, glyphs))
            .collect();
        let before = self.made.as_ref().map(|(at, _)| at / FACTS_RENEWALS);
        let due = !training || before != Some(slot / FACTS_RENEWALS);
        self.renew_diagnosis(diagnose(state), due);
        if due || self.vitals.is_empty() {
            self.vitals = vitals::of(state, &self.diagnosis);
        }
        self.made = Some((slot, options));
    }

    /// A finding that changes its status is shown at once; a digit of it can wait.
    fn renew_diagnosis(&mut self, diagnosis: Diagnosis, due: bool) {
        let tones = |d: &Diagnosis| -> Vec<(String, Status)> {
            let findings = d.findings.iter();
            findings.map(|f| (f.id.clone(), f.status)).collect()
        };
        if due || tones(&diagnosis) != tones(&self.diagnosis) {
            self.diagnosis = diagnosis;
        }
    }
}

fn step_words(state: &RunState, glyphs: &Glyphs) -> Vec<Word> {
    let mut words = Vec::new();
    if let Some(finish) = &state.finished {
        let (glyph, meaning) = outcome_mark(finish.outcome, glyphs);
        let end = match state.left_queue() {
            true => "left the queue",
            false => outcome_word(finish.outcome),
        };
        words.push(word(format!("{glyph} {end}  "), meaning));
    }
    // A run that is resumed has taken steps already.
    if state.finished.is_none() && state.phase == Some(Phase::Queued) {
        let after = short_run(&state.queued_after);
        let words_now = format!("queued: begins when {after} has ended");
        words.push(word(words_now, Meaning::Accent));
        return words;
    }
    let Some(head) = &state.head else {
        // How it ended stands there already.
        let word_now = match (state.last_seq, &state.finished) {
            (0, _) => "waiting for the engine",
            (_, Some(_)) => "before its first step",
            (_, None) => state.word(),
        };
        words.push(word(word_now, Meaning::Accent));
        return words;
    };
    let max = human::grouped(head.max_steps);
    words.push(word("step ", Meaning::Muted));
    words.push(word(
        format!("{:>w$}", human::grouped(state.step), w = max.len()),
        Meaning::Title,
    ));
    // A foreign log may not say where it ends.
    if head.max_steps > 0 {
        words.push(word(format!(" / {max}"), Meaning::Muted));
    }
    words
}

/// The mark of an outcome.
pub fn outcome_mark(outcome: Outcome, glyphs: &Glyphs) -> (&'static str, Meaning) {
    match outcome {
        Outcome::Completed => (glyphs.ok, Meaning::Good),
        Outcome::Stopped => (glyphs.ring, Meaning::Warn),
        Outcome::Failed
        | Outcome::Starved
        | Outcome::Refused
        | Outcome::Invalid
        | Outcome::Crashed => (glyphs.bad, Meaning::Bad),
    }
}

fn parts(state: &RunState, options: &GlanceOptions) -> Vec<Vec<Word>> {
    let silence = options.silence.as_deref();
    let mut parts = Vec::new();
    if let Some(share) = state.progress() {
        parts.push(vec![word(
            format!("{:>3.0} %", (share * 100.0).floor()),
            Meaning::Text,
        )]);
    }
    // A halted run has no current pace.
    let still = match state.halted.filter(|_| state.running()) {
        Some((halt, _)) => Some(halt.word()),
        None => silence,
    };
    if let Some(still) = still {
        parts.insert(0, vec![word(still.to_string(), Meaning::Warn)]);
        return parts;
    }
    parts.extend(time_parts(state, options));
    let number = |text: String, unit: &str| {
        vec![
            word(text, Meaning::Text),
            word(format!(" {unit}"), Meaning::Muted),
        ]
    };
    let speed = state.speed();
    if let Some(rate) = speed.tok_per_sec {
        parts.push(number(format!("{:>5}", human::short(rate)), "tok/s"));
    }
    if let Some(mfu) = speed.mfu {
        parts.push(number(format!("MFU {:>2.0}", mfu * 100.0), "%"));
    }
    if state.tokens > 0 {
        parts.push(number(
            format!("{:>5}", human::short(state.tokens as f64)),
            "tokens",
        ));
    }
    if let Some(epochs) = state.epochs() {
        parts.push(vec![
            word("epoch ", Meaning::Muted),
            word(format!("{epochs:>4.1}"), Meaning::Text),
        ]);
    }
    parts
}

/// What waits, what the run is busy with when it is not training, how long a long step has taken; and how long it will take.
fn time_parts(state: &RunState, options: &GlanceOptions) -> Vec<Vec<Word>> {
    // A log without times says nothing of how long it took.
    if state.finished.is_some() && state.is_foreign() && state.seconds <= 0.0 {
        return Vec::new();
    }
    if state.finished.is_some() {
        let time = format!("{:>7}", human::seconds(state.seconds));
        return vec![vec![
            word(time, Meaning::Text),
            word(" taken", Meaning::Muted),
        ]];
    }
    let Some(phase) = state.phase.filter(|_| !state.orphaned) else {
        return Vec::new();
    };
    let waiting = options.waiting.iter();
    let mut parts: Vec<_> = waiting
        .map(|words| vec![word(words.clone(), Meaning::Warn)])
        .collect();
    let so_far = options.so_far.as_ref();
    if phase != Phase::Training && state.head.is_some() {
        if phase == Phase::Paused {
            parts.push(vec![word(format!("{:>12}", state.word()), Meaning::Warn)]);
            return parts;
        }
        let busy = so_far.map_or_else(|| format!("{:>12}", state.word()), String::clone);
        parts.push(vec![word(busy, Meaning::Accent)]);
    } else if let Some(so_far) = so_far {
        parts.push(vec![word(so_far.clone(), Meaning::Accent)]);
    }
    // Before the first step there is no time of one.
    let left = state.remaining().filter(|_| state.step > 0);
    parts.extend(left.map(|left| {
        let left = format!("{:>7}", human::duration(left));
        vec![word(left, Meaning::Text), word(" left", Meaning::Muted)]
    }));
    parts
}

fn title(state: &RunState, chart: &Chart, options: &GlanceOptions, glyphs: &Glyphs) -> Vec<Word> {
    let mut words = Vec::new();
    if let Some(step) = options.cursor {
        words.push(word(format!("at {}  ", human::grouped(step)), AT));
    }
    let paired = chart.validation.is_some();
    let meaning = if chart.points_only() {
        Meaning::Validation
    } else if paired {
        Meaning::Train
    } else {
        Meaning::Text
    };
    let series = state.series.get(&chart.id);
    if let Some(value) = series.and_then(|series| {
        // A speed is that of the header, whatever lines are smoothed.
        let speed = state.speed().of(&chart.id);
        let now = speed.filter(|_| options.cursor.is_none());
        now.or_else(|| reading(series, state.newest_loss(), chart, options))
    }) {
        if paired {
            words.push(word(TRAIN, Meaning::Muted));
        }
        let meaning = if value.is_finite() {
            meaning
        } else {
            Meaning::Bad
        };
        words.push(word(chart.reading(value), meaning));
        if chart.unit == "nats" && !paired {
            words.push(word(" nats", Meaning::Muted));
        }
        // Between two readings the nearest one stands; beyond the last there is none.
        let elsewhere = options.cursor.and_then(|step| {
            let (first, last) = series?.steps()?;
            series?
                .elsewhere(step)
                .filter(|_| !(first..=last).contains(&step))
        });
        if let Some(step) = elsewhere {
            words.push(word(
                format!(" (step {})", human::grouped(step)),
                Meaning::Muted,
            ));
        }
    }
    words.extend(validation(state, chart, options, glyphs));
    words
}

/// The weight of the past in a title, of so many readings.
fn title_decay(readings: usize) -> f64 {
    let span = (TITLE_SPAN * readings as f64).max(1.0);
    TITLE_DECAY.min(1.0 - 1.0 / span)
}

/// The number that stands for a series: under the cursor, or now.
fn reading(
    series: &Series,
    newest_loss: Option<f64>,
    chart: &Chart,
    options: &GlanceOptions,
) -> Option<f64> {
    let last = series.last()?.value;
    if let Some(step) = options.cursor {
        return series.nearest(step).map(|b| b.mean().unwrap_or(f64::NAN));
    }
    if !options.smoothed || !chart.smooths() || !last.is_finite() {
        return Some(last);
    }
    // The number that lists, the verdict and the report have of the run.
    if chart.id == id::TRAIN_LOSS
        && let Some(loss) = newest_loss
    {
        return Some(loss);
    }
    let mut ema = Ema::new(title_decay(series.recent().len()));
    let skip = series.recent().len().saturating_sub(TITLE_READINGS);
    series.recent().skip(skip).for_each(|p| {
        ema.push(p.value);
    });
    ema.value()
}

fn validation(
    state: &RunState,
    chart: &Chart,
    options: &GlanceOptions,
    glyphs: &Glyphs,
) -> Vec<Word> {
    let Some(series) = chart
        .validation
        .as_ref()
        .and_then(|id| state.series.get(id))
    else {
        return Vec::new();
    };
    let at = options.cursor.unwrap_or(u64::MAX);
    let Some(bucket) = series.nearest(at) else {
        return Vec::new();
    };
    let value = bucket.mean().unwrap_or(f64::NAN);
    let meaning = if value.is_finite() {
        Meaning::Validation
    } else {
        Meaning::Bad
    };
    let mut words = vec![
        word("  val ", Meaning::Muted),
        word(chart.reading(value), meaning),
    ];
    if options.cursor.is_some() {
        words.push(word(
            format!(" (step {})", human::grouped(bucket.last)),
            Meaning::Muted,
        ));
        return words;
    }
    let before = series.recent().rev().nth(1).map(|p| p.value);
    let change = before.map_or(0.0, |before| value - before);
    let better = match chart.direction {
        Direction::Higher => change > 0.0,
        _ => change < 0.0,
    };
    let arrow = if change < 0.0 { glyphs.down } else { glyphs.up };
    if change != 0.0 && change.is_finite() {
        words.push(word(
            format!(" {arrow}"),
            if better { Meaning::Good } else { Meaning::Warn },
        ));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_title_of_a_short_series_names_its_newest_reading() {
        assert_eq!(title_decay(0), 0.0);
        assert_eq!(title_decay(20), 0.5);
        assert_eq!(title_decay(100), TITLE_DECAY);
        assert_eq!(title_decay(5_000), TITLE_DECAY);
    }
}
