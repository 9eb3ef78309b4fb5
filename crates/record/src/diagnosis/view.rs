//! The data that rules read: the run's loss at the start, at its best and now, with the noise of a step, and the newest
//! readings of other metrics. Losses are in nats per token.

use super::metric;
use crate::base::human;
use crate::base::stats;
use crate::run::RunState;
use crate::run::layers::{LayerMap, LayerRow};
use crate::run::newest_loss::{self, n_readings};
use crate::run::series::{Bucket, Point, Series};
use crate::run::state::Evaluation;
use std::ops::Range;

/// Readings that count as "now".
pub const RECENT: usize = 200;
/// Minimum readings for a judgement.
pub const ENOUGH: usize = newest_loss::STEPS;
/// The same for a log with every second step or fewer, as trainers and `train.log_every` write: each loss is a mean over several steps.
const ENOUGH_MEANS: usize = 8;
/// Steps after the warm-up before a constant loss is meaningful.
const PATIENCE: u64 = 100;
/// Windows that a run is divided into to find its best and its worst.
const WINDOWS: usize = 64;
/// Parts in which the beginning of something is searched for.
const PARTS: usize = 256;
/// Share of the uniform loss that a model reaches by token frequencies alone: English text has about 0.7
/// of ln V both in bytes and in tokens of 50,000 words.
pub const FREQUENCIES: f64 = 0.75;
/// Margin above a uniform prediction or the start beyond which a loss is worse: this share of it, and at least this many nats.
pub const ABOVE: f64 = 0.1;
pub const ABOVE_NATS: f64 = 0.5;
/// Losses below this, in nats, may be of any kind, or of a solved task.
const NOTHING: f64 = 0.02;
/// A common KL coefficient (DeepSeekMath, arXiv 2402.03300).
const BETA: f64 = 0.04;
/// A slope of this many standard errors is significant.
const SLOPE: f64 = 3.0;
/// Changes below this share of the loss are rounding, however quiet a run is.
const ROUNDING: f64 = 1e-6;
/// The median absolute deviation of a normal distribution is its standard deviation over this.
const MAD: f64 = 1.4826;

/// Methods that learn which of two answers is better.
pub const PREFERENCES: [&str; 6] = ["dpo", "kto", "orpo", "cpo", "simpo", "reward"];

/// One window of readings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    /// First and last step.
    pub first: u64,
    pub last: u64,
    pub mean: f64,
    /// The lowest reading.
    pub min: f64,
}

/// The training loss in a few numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Loss {
    /// The first reading, as logged: used in descriptions of the start.
    pub opening: f64,
    /// The loss before training, for judging: the first reading, or the median of the first five if that is lower.
    pub start: f64,
    /// Mean of the newest quarter of the readings, 20 at most.
    pub now: f64,
    /// Number of those readings.
    pub n_now: usize,
    /// The lowest of the newest readings, at least as many as a judgement takes.
    pub floor: f64,
    /// Standard deviation of a single step around the trend.
    pub sigma: f64,
    /// The window with the lowest mean.
    pub best: Window,
    /// The window whose lowest reading is highest.
    pub worst: Window,
    pub trend: Trend,
    /// The step after which the reference moved last, where it does: all of this is of the steps since.
    pub since: Option<u64>,
}

/// If the median of the first readings is further below the first one than this share, it is reported too.
const REPORTED_DROP: f64 = 0.02;

/// A loss this near 0, and no more than this share of the start, is that of a solved task.
pub const SOLVED: f64 = 0.1;
const SOLVED_SHARE: f64 = 0.05;
/// What a solved loss jumps by, in nats, where one example of a batch is not solved.
pub const UNSOLVED_ONE: f64 = 0.2;

impl Loss {
    /// Whether a loss is that of a solved task. Noise and gradients vanish with it, so multiples of theirs say nothing by themselves.
    pub fn is_solved(&self, value: f64) -> bool {
        value.abs() <= SOLVED.min(SOLVED_SHARE * self.start)
    }

    /// The least jump of a loss from `usual` that counts, in nats, however quiet the run is.
    pub fn least_jump(&self, usual: f64) -> f64 {
        match self.is_solved(usual) {
            true => UNSOLVED_ONE,
            false => 0.0,
        }
    }

    /// `it began at 4.152`; if the first steps gained much, `it began at 4.152 and was at 3.698 within five steps`, which is
    /// what the rules compare with.
    pub fn began(&self) -> String {
        let number = human::number;
        let mut text = match self.since {
            Some(step) => format!(
                "behind the reference's move after step {} it began at {}",
                human::grouped(step),
                number(self.opening)
            ),
            None => format!("it began at {}", number(self.opening)),
        };
        if self.opening - self.start > REPORTED_DROP * self.opening.abs() {
            text.push_str(&format!(
                " and was at {} within five steps",
                number(self.start)
            ));
        }
        text
    }
}

/// The newest quarter of the run, or 200 readings: its two halves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trend {
    pub before: f64,
    pub now: f64,
    /// Standard error of the difference of both.
    pub noise: f64,
}

impl Trend {
    /// The change in standard errors; negative while it falls.
    pub fn z(&self) -> f64 {
        (self.now - self.before) / self.noise.max(ROUNDING * self.now.abs())
    }
}

/// A run, as seen by rules.
#[derive(Debug)]
pub struct View<'a> {
    pub state: &'a RunState,
    /// Training losses since the reference moved last, where it does: those before compare with another one, and the loss jumps
    /// at a move by design.
    since_move: Option<Series>,
    loss: Option<Loss>,
}

impl<'a> View<'a> {
    pub fn of(state: &'a RunState) -> View<'a> {
        let mut view = View {
            state,
            since_move: None,
            loss: None,
        };
        let since = view.last_move();
        view.since_move = since.and_then(|step| view.losses_behind(step));
        let loss = view.series(metric::TRAIN_LOSS).and_then(read);
        view.loss = loss.map(|loss| Loss { since, ..loss });
        view
    }

    /// The steps between two moves of the reference; `None` where it stays.
    fn moves_every(&self) -> Option<u64> {
        let train = &self.state.head.as_ref()?.spec["train"];
        let every = train["ref_model_sync_steps"].as_u64()?.max(1);
        (train["sync_ref_model"] == true).then_some(every)
    }

    /// The step behind which this run's reference moves at the earliest.
    fn still_until(&self) -> u64 {
        self.cold_start().max(self.state.base_step)
    }

    /// The step after which the reference moved last, of those with a step behind it; `None` where it has not, or stays.
    pub fn last_move(&self) -> Option<u64> {
        let every = self.moves_every()?;
        let last = self.state.step.saturating_sub(1) / every * every;
        (last > self.still_until()).then_some(last)
    }

    /// The step after which it moves next; `None` where it stays.
    pub fn next_move(&self) -> Option<u64> {
        let every = self.moves_every()?;
        let from = self.last_move().unwrap_or_else(|| self.still_until());
        Some((from / every + 1).saturating_mul(every))
    }

    /// The training losses of the steps behind `step`; a reading is a mean since the line before it.
    fn losses_behind(&self, step: u64) -> Option<Series> {
        let losses = self.state.series.get(metric::TRAIN_LOSS)?;
        let head = self.state.head.as_ref();
        let log_every = head.and_then(|head| head.spec["train"]["log_every"].as_u64());
        let first = step + log_every.unwrap_or(1).max(1);
        let mut behind = Series::new();
        for point in losses.recent().filter(|point| point.step >= first) {
            behind.push(point.step, point.value);
        }
        Some(behind)
    }

    /// The readings of a metric that are alike: all of them, but for a training loss whose reference moves.
    fn series(&self, id: &str) -> Option<&Series> {
        let alike = self
            .since_move
            .as_ref()
            .filter(|_| id == metric::TRAIN_LOSS);
        alike.or_else(|| self.state.series.get(id))
    }

    /// `None` before 20 finite readings, or 8 of a sparse log.
    pub fn loss(&self) -> Option<&Loss> {
        self.loss.as_ref()
    }

    /// Whether the loss is a divergence from a teacher: it is no likelihood, and at least 0 whatever the vocabulary.
    fn learns_from_a_teacher(&self) -> bool {
        let head = self.state.head.as_ref();
        head.is_some_and(|head| head.method == "distill")
    }

    /// The loss of a uniform prediction, ln V; `None` where the loss is no likelihood: a divergence from a teacher, or a loss of
    /// preferences, whose terms have weights of their own.
    pub fn guessing(&self) -> Option<f64> {
        let head = self.state.head.as_ref()?;
        if self.learns_from_a_teacher() || PREFERENCES.contains(&head.method.as_str()) {
            return None;
        }
        (head.vocab_size > 1).then(|| (head.vocab_size as f64).ln())
    }

    /// The settings of the model; null where the log has none, as of other programs.
    pub fn model(&self) -> &serde_json::Value {
        let head = self.state.head.as_ref();
        head.map_or(&serde_json::Value::Null, |head| &head.spec["model"])
    }

    /// The loss that weights which began at random are clearly worse above than a uniform guess.
    pub fn useless(&self) -> Option<f64> {
        let guessing = self.guessing().filter(|_| self.from_scratch())?;
        Some(guessing + (ABOVE * guessing).max(ABOVE_NATS))
    }

    /// Whether all weights of the blocks are exactly 0.
    pub fn weights_are_zero(&self) -> bool {
        let probed = self.state.layers.get(metric::WEIGHT_STD);
        let zero = |row: &LayerRow| row.values.iter().all(|x| *x == 0.0);
        match probed.and_then(LayerMap::last) {
            Some(row) => zero(row),
            None => self.from_scratch() && super::scales::begins_at_zero(self.model()),
        }
    }

    /// Whether the log is of another program, and a loss in it that does not fall may be a fault: not that of a policy or of pairs.
    pub fn is_unexplained(&self, loss: &Loss) -> bool {
        let policy = self.has_rollouts() || self.state.series.contains_key(metric::POLICY_LOSS);
        let of_pairs = self.compares_pairs() || self.has_reference();
        self.state.is_foreign() && !policy && !of_pairs && loss.start > NOTHING
    }

    /// Whether every learning rate that was logged is 0.
    pub fn lr_is_zero(&self) -> bool {
        let Some(series) = self.state.series.get(metric::LR) else {
            return false;
        };
        let extent = series
            .steps()
            .and_then(|(first, last)| series.extent(first as f64, last as f64 + 1.0));
        series.len() >= ENOUGH as u64 && extent == Some((0.0, 0.0))
    }

    /// Whether the run is a branch that begins with weights of another run's training.
    pub fn is_branch(&self) -> bool {
        self.state.base_step > 0
    }

    /// Whether the weights began at random: no base model and no checkpoint of another run, and the loss, if it is a likelihood, began
    /// near that of a uniform prediction.
    pub fn from_scratch(&self) -> bool {
        let given = |from: &serde_json::Value| !from.is_null();
        let head = self.state.head.as_ref();
        let from = head.is_some_and(|head| given(&head.spec["train"]["from"]));
        let near = match (self.guessing(), &self.loss) {
            _ if self.learns_from_a_teacher() => true,
            (Some(guessing), Some(loss)) => loss.start > FREQUENCIES * guessing,
            _ => false,
        };
        !from && !self.is_branch() && near
    }

    /// The same, or a branch of such a run: what it began with has read nothing but this run's own text.
    pub fn knows_only_its_text(&self) -> bool {
        let head = self.state.head.as_ref();
        let alone = head.is_some_and(|head| head.spec["train"]["from"].is_null());
        self.from_scratch() || alone && self.is_branch()
    }

    /// Where the newest readings are all exactly 0: the first step of them, and the median of the five readings before it. `None`
    /// where none was above 0.
    pub fn last_above_zero(&self, id: &str) -> Option<(u64, f64)> {
        let series = self.series(id)?;
        let points: Vec<Point> = series.recent().filter(|p| p.value.is_finite()).collect();
        if let Some(at) = points.iter().rposition(|p| p.value != 0.0) {
            let before: Vec<f64> = points[at.saturating_sub(4)..=at]
                .iter()
                .map(|p| p.value)
                .collect();
            let first = points.get(at + 1).map_or(self.state.step, |p| p.step);
            return Some((first, stats::median(&before)?));
        }
        // Older than the exact readings: by parts of the run.
        let parts = self.parts(id);
        let at = parts.iter().rposition(|part| part.max > 0.0)?;
        let first = parts.get(at + 1).map_or(self.state.step, |part| part.first);
        Some((first, parts[at].max))
    }

    /// The first step of the newest parts of the run for which `holds` without a break: about since when it is so, not when it
    /// was so first. `None` where the last part is not so. Parts of 10 readings at least, of which 256 at most.
    pub fn onset(&self, id: &str, holds: impl Fn(&Bucket) -> bool) -> Option<u64> {
        let so = self.parts(id).into_iter().rev().take_while(holds);
        so.last().map(|part| part.first)
    }

    /// The first step of the first of these parts from `from` on for which `holds`.
    pub fn first(&self, id: &str, from: u64, holds: impl Fn(&Bucket) -> bool) -> Option<u64> {
        let mut parts = self.parts(id).into_iter();
        let part = parts.find(|part| part.first >= from && holds(part))?;
        Some(part.first)
    }

    fn parts(&self, id: &str) -> Vec<Bucket> {
        let Some(series) = self.series(id) else {
            return Vec::new();
        };
        let Some((first, last)) = series.steps() else {
            return Vec::new();
        };
        let parts = usize::try_from(series.len() / 10).unwrap_or(PARTS);
        let parts = series.columns(first as f64, last as f64 + 1.0, parts.clamp(1, PARTS));
        parts.into_iter().flatten().collect()
    }

    /// Steps of the warm-up; 0 if the spec does not have it.
    pub fn warmup(&self) -> u64 {
        self.state.warmup_steps()
    }

    /// Steps of supervised training before the first rollout; 0 if the spec has none.
    pub fn cold_start(&self) -> u64 {
        let steps = |spec: &serde_json::Value| spec.pointer("/rollout/cold_start_steps")?.as_u64();
        let head = self.state.head.as_ref();
        head.and_then(|head| steps(&head.spec)).unwrap_or(0)
    }

    /// Whether the run has begun RL: losses of a cold start before it belong to another objective.
    pub fn has_rollouts(&self) -> bool {
        let rewards = self.state.series.get(metric::REWARD);
        rewards.is_some_and(|series| series.last().is_some())
    }

    /// Whether the loss is DPO's. Logs of other programs show it by what they measure: ORPO and CPO add their own terms, KTO its KL.
    pub fn is_dpo(&self) -> bool {
        if !self.state.is_foreign() {
            let head = self.state.head.as_ref();
            return head.is_some_and(|head| head.method == "dpo");
        }
        self.has_reference() && !self.state.series.contains_key(metric::KL)
    }

    /// Whether the loss is −log σ of a difference between two answers, and nothing else: ln 2 where both are alike. Logs of other
    /// programs show it by their first loss.
    pub fn compares_pairs(&self) -> bool {
        let coin = std::f64::consts::LN_2;
        if self.state.is_foreign() {
            let near = self.loss.as_ref().map(|loss| (loss.opening - coin).abs());
            let has = |id: &str| self.state.series.contains_key(id);
            return has(metric::ACCURACIES) && near.is_some_and(|nats| nats < 0.1 * coin);
        }
        let Some(head) = &self.state.head else {
            return false;
        };
        let dpo = &head.spec["method"]["dpo"];
        let plain = dpo["loss"].as_str().is_none_or(|loss| loss == "sigmoid")
            && dpo["mix"].as_array().is_none_or(Vec::is_empty)
            && dpo["nll_weight"].as_f64().unwrap_or(0.0) == 0.0;
        head.method == "reward" || head.method == "dpo" && plain
    }

    /// Shares that evaluations measured, each with the number of rows; assumed where the log does not say it.
    pub fn evaluated_shares(&self, id: &str) -> Vec<(f64, f64)> {
        let measured = self.state.evaluations.iter();
        let share = |e: &Evaluation| Some((*e.values.get(id)?, rows_of(e)));
        measured.filter_map(share).collect()
    }

    /// Whether the loss compares the policy with a frozen reference.
    pub fn has_reference(&self) -> bool {
        if let (false, Some(head)) = (self.state.is_foreign(), &self.state.head) {
            return !head.spec["method"][&head.method]["reference"].is_null();
        }
        let has = |id: &str| self.state.series.contains_key(id);
        let implicit = [metric::CHOSEN, metric::MARGINS, metric::LOGPS_CHOSEN];
        let without = [metric::NLL_LOSS, metric::LOG_ODDS, metric::LOG_ODDS_RATIO];
        implicit.into_iter().all(has) && !without.into_iter().any(has)
    }

    /// A KL coefficient above the run's own: 0.04 if it has none, else twice as much.
    pub fn suggested_kl_coef(&self) -> String {
        let head = self.state.head.as_ref();
        let own = head.and_then(|head| head.spec["method"][&head.method]["beta"].as_f64());
        human::number(
            own.filter(|beta| *beta > 0.0)
                .map_or(BETA, |beta| 2.0 * beta),
        )
    }

    /// Before this step a constant loss is not judged: the warm-up and 100 steps.
    pub fn patience(&self) -> u64 {
        self.warmup() + PATIENCE
    }

    /// The same of a run or a branch, which counts from its own beginning.
    pub fn own_patience(&self) -> u64 {
        self.patience().max(self.state.base_step + PATIENCE)
    }

    /// Whether a loss that does not move says something: after [`View::own_patience`], or at the end of a run that is shorter,
    /// of 100 steps of its own at least.
    pub fn past_patience(&self) -> bool {
        let head = self.state.head.as_ref();
        let done = head.is_some_and(|head| self.state.step >= head.max_steps);
        let least = match done {
            true => self.state.base_step + PATIENCE,
            false => self.own_patience(),
        };
        self.state.step >= least
    }

    /// The peak learning rate, as adjusted live.
    pub fn lr(&self) -> Option<f64> {
        self.state.settings.get("lr").copied()
    }

    /// The newest readings, oldest first, finite or not.
    pub fn recent(&self, id: &str) -> Vec<Point> {
        self.series(id).map_or(Vec::new(), newest)
    }

    /// The median of the newest readings; `None` before 20 finite ones.
    pub fn typical(&self, id: &str) -> Option<f64> {
        let values = finite(&self.recent(id));
        stats::median(&values).filter(|_| values.len() >= ENOUGH)
    }

    /// Standard deviation of a single reading around its trend; `None` before 20 finite ones, or 8 of a sparse log.
    pub fn scatter(&self, id: &str) -> Option<f64> {
        let series = self.series(id)?;
        let values = finite(&newest(series));
        let enough = if is_sparse(series) {
            ENOUGH_MEANS
        } else {
            ENOUGH
        };
        (values.len() >= enough).then(|| spread(&values))
    }

    /// Means of the first, the middle and the last third of the steps.
    pub fn thirds(&self, id: &str) -> Option<[f64; 3]> {
        let series = self.series(id)?;
        let (first, last) = series.steps()?;
        let thirds = series.columns(first as f64, last as f64 + 1.0, 3);
        let mean = |at: usize| (*thirds.get(at)?)?.mean();
        Some([mean(0)?, mean(1)?, mean(2)?])
    }

    /// Means of the first and the last third of the steps.
    pub fn first_and_last_third(&self, id: &str) -> Option<(f64, f64)> {
        let [first, _, last] = self.thirds(id)?;
        Some((first, last))
    }

    /// The first reading.
    pub fn opening(&self, id: &str) -> Option<f64> {
        let series = self.state.series.get(id)?;
        let (first, _) = series.steps()?;
        series
            .columns(first as f64, first as f64 + 1.0, 1)
            .into_iter()
            .next()??
            .mean()
    }

    /// The median of the newest `n` readings; `None` before there are as many.
    pub fn typical_of_last(&self, id: &str, n: usize) -> Option<f64> {
        let values = finite(&self.recent(id));
        stats::median(&values[values.len().checked_sub(n)?..])
    }

    /// Whether the log has the training loss at every second step or less often: then a reading is a mean over several steps.
    pub fn is_sparse(&self) -> bool {
        self.state
            .series
            .get(metric::TRAIN_LOSS)
            .is_some_and(is_sparse)
    }

    /// What one reading of the log stands for.
    pub fn unit(&self) -> &'static str {
        match self.is_sparse() {
            true => "readings",
            false => "steps",
        }
    }

    /// The newest training loss up to `step`.
    pub fn loss_at(&self, step: u64) -> Option<f64> {
        let series = self.series(metric::TRAIN_LOSS)?;
        let newest = series.recent().rev().find(|p| p.step <= step)?;
        Some(newest.value).filter(|x| x.is_finite())
    }

    /// The training loss at `step`, from the `n` steps around it, or a quarter of what was logged: half of them after it, as far
    /// as available. If it changes within them beyond its noise, a line is fitted; otherwise it is their mean.
    pub fn loss_by_line(&self, step: u64, n: u64) -> Option<f64> {
        let series = self.series(metric::TRAIN_LOSS)?;
        let (_, last) = series.steps()?;
        let n = n.min(series.len() / 4).max(1);
        let behind = last.saturating_sub(step).min(n / 2);
        let from = (step + behind).saturating_sub(n);
        let to = step + behind + 1;
        let buckets = series.columns(from as f64, to as f64, usize::try_from(to - from).ok()?);
        // Distance to the step, mean and number of readings.
        let points = buckets.into_iter().flatten().filter_map(|bucket| {
            let x = (bucket.first as f64 + bucket.last as f64) / 2.0 - step as f64;
            Some((x, bucket.mean()?, f64::from(bucket.n)))
        });
        stats::at_zero(&points.collect::<Vec<_>>(), SLOPE)
    }

    /// Mean training loss of the steps in `steps`.
    pub fn loss_over(&self, steps: Range<u64>) -> Option<f64> {
        let series = self.series(metric::TRAIN_LOSS)?;
        let bucket = series.columns(steps.start as f64, steps.end as f64, 1);
        bucket.into_iter().next()??.mean()
    }
}

/// Rows of an evaluation that does not say how many it read, as in logs of other programs.
const ASSUMED_ROWS: f64 = 100.0;

/// How many rows an evaluation read.
pub(super) fn rows_of(evaluation: &Evaluation) -> f64 {
    match evaluation.n_windows {
        0 => ASSUMED_ROWS,
        n => n as f64,
    }
}

fn is_sparse(series: &Series) -> bool {
    let steps = series.steps();
    steps.is_some_and(|(first, last)| last - first >= 2 * series.len().saturating_sub(1))
}

fn newest(series: &Series) -> Vec<Point> {
    let skip = series.recent().len().saturating_sub(RECENT);
    series.recent().skip(skip).collect()
}

fn finite(points: &[Point]) -> Vec<f64> {
    let values = points.iter().map(|p| p.value);
    values.filter(|x| x.is_finite()).collect()
}

fn read(series: &Series) -> Option<Loss> {
    let recent = finite(&newest(series));
    let (first, last) = series.steps()?;
    let sparse = is_sparse(series);
    let enough = if sparse { ENOUGH_MEANS } else { ENOUGH };
    let tail = n_readings(recent.len(), sparse);
    if recent.len() < enough {
        return None;
    }
    let opening: Vec<f64> = series
        .columns(first as f64, first as f64 + 5.0, 5)
        .into_iter()
        .filter_map(|bucket| bucket?.mean())
        .collect();
    let start = opening[..opening.len().min(1)]
        .iter()
        .copied()
        .chain(stats::median(&opening))
        .reduce(f64::min)?;
    let sigma = spread(&recent);
    let windows = windows(series, first, last + 1);
    let now = stats::mean(recent[recent.len() - tail..].iter().copied())?;
    // An alarm takes as many readings in a short run as in a long one; those of a sparse log are means already.
    let all = if sparse { tail } else { tail.max(enough) };
    let newest = recent[recent.len() - all..].iter().copied();
    let floor = newest.fold(f64::INFINITY, f64::min);
    let newest = Window {
        first: series.recent().rev().nth(all - 1).map_or(first, |p| p.step),
        last,
        mean: now,
        min: floor,
    };
    let all = || windows.iter().copied().chain([newest]);
    Some(Loss {
        opening: *opening.first()?,
        start,
        now,
        n_now: tail,
        floor,
        sigma,
        best: all().min_by(|a, b| a.mean.total_cmp(&b.mean))?,
        worst: all().max_by(|a, b| a.min.total_cmp(&b.min))?,
        trend: trend(series, first, last, sigma)?,
        since: None,
    })
}

/// Parts of the run with at least 20 readings each.
fn windows(series: &Series, from: u64, to: u64) -> Vec<Window> {
    let n = usize::try_from(series.len()).unwrap_or(usize::MAX) / ENOUGH;
    let columns = series.columns(from as f64, to as f64, n.clamp(1, WINDOWS));
    columns
        .into_iter()
        .flatten()
        .filter_map(|bucket| {
            Some(Window {
                first: bucket.first,
                last: bucket.last,
                mean: bucket.mean()?,
                min: bucket.min,
            })
        })
        .collect()
}

fn trend(series: &Series, first: u64, last: u64, sigma: f64) -> Option<Trend> {
    let quarter = (last - first) / 4;
    let exact = series
        .recent()
        .rev()
        .nth(RECENT - 1)
        .map_or(first, |p| p.step);
    let from = exact.min(last.saturating_sub(quarter)).max(first) as f64;
    let halves = series.columns(from, last as f64 + 1.0, 2);
    let (before, now) = (halves[0]?, halves[1]?);
    let share = |n: u32| sigma.powi(2) / f64::from(n.max(1));
    Some(Trend {
        before: before.mean()?,
        now: now.mean()?,
        noise: (share(before.n) + share(now.n)).sqrt(),
    })
}

/// Standard deviation of a reading around a slow trend, from differences of neighbours (whose variance is twice its own),
/// by their median absolute deviation: neither a trend nor a spike widens it.
fn spread(values: &[f64]) -> f64 {
    let steps: Vec<f64> = values
        .windows(2)
        .map(|pair| (pair[1] - pair[0]).abs())
        .collect();
    stats::median(&steps).unwrap_or(0.0) * MAD / std::f64::consts::SQRT_2
}

#[cfg(test)]
mod tests;
