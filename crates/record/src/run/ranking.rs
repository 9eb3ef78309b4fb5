//! Runs that differ in a few settings, as a sweep trains them: what each came to, which settings were best, and how far
//! that can be trusted. No screens here, and no specs: a run comes with the words of its settings.

use super::index::{DIVERGED, RunStatus, RunSummary};
use super::no_effect::changes_results;
use super::objective::{Difference, Objective, difference_of_score, on_same_data};
use crate::base::text::one_line;
use crate::wire::{Direction, id};
use serde::Serialize;

/// The mark of a run whose loss is of other data than that of the best one.
pub const OTHER_DATA: &str = "other data";
/// The setting whose values are repetitions: they tell differences from noise.
pub const SEED: &str = "seed";
/// How long a run is: more is better, and nobody looks for its best value.
const LENGTH: &str = "train.max_steps";
/// The settings from which the tokens of a run follow.
const TOKENS: [&str; 6] = [
    LENGTH,
    "train.epochs",
    "train.micro_batch_size",
    "train.grad_accum_steps",
    "train.batch_ramp",
    "model.seq_len",
];
/// The section that says how a run is measured.
const OF_EVALUATIONS: &str = "eval";

/// A run's best evaluation, by the reading that its method names; the training loss where nothing is evaluated.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Score {
    pub metric: String,
    /// Whether the higher value is better.
    pub higher: bool,
    pub value: f64,
    pub step: u64,
    /// The same reading over the whole validation split; `None` where only a part was read at that step.
    pub whole: Option<f64>,
}

impl Score {
    pub fn of(run: &RunSummary) -> Option<Score> {
        let lower = |metric: &str, value: Option<f64>| {
            value.map(|value| Score {
                metric: metric.into(),
                higher: false,
                value,
                step: run.step,
                whole: None,
            })
        };
        let best = run.best_evaluation.as_ref().map(|best| Score {
            metric: best.metric.clone(),
            higher: best.direction == Direction::Higher,
            value: best.value.0,
            step: best.step,
            whole: run.best_whole,
        });
        best.or_else(|| lower(id::VAL_LOSS, run.val_loss))
            .or_else(|| lower(id::TRAIN_LOSS, run.train_loss))
            .filter(|score| score.value.is_finite())
    }

    /// Whether it is better than another one by the same reading.
    pub fn beats(&self, other: &Score) -> bool {
        match self.higher {
            true => self.value > other.value,
            false => self.value < other.value,
        }
    }
}

/// One run among those ranked.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Trial {
    /// `key=value` of each setting in which the runs differ, in the same order for all of them.
    pub set: Vec<String>,
    /// The run's id; absent before it has begun.
    pub run: Option<String>,
    pub seconds: Option<f64>,
    pub steps: u64,
    pub score: Option<Score>,
    /// `LEARNING`, `DIVERGED`, …
    pub verdict: Option<String>,
    /// Why it failed, if it did.
    pub message: Option<String>,
    /// It ended by itself.
    pub over: bool,
    /// Bits per byte of validation text in a validation loss of one nat per token: a constant of tokenizer and text.
    #[serde(skip)]
    pub bits_per_nat: Option<f64>,
    /// Its score is a loss on other data than that of the best run.
    pub other_data: bool,
}

impl Trial {
    /// One that has not begun.
    pub fn new(set: Vec<String>, steps: u64) -> Trial {
        Trial {
            set,
            run: None,
            seconds: None,
            steps,
            score: None,
            verdict: None,
            message: None,
            over: false,
            bits_per_nat: None,
            other_data: false,
        }
    }

    /// Takes what its run came to.
    pub fn take(&mut self, run: &RunSummary) {
        self.run = Some(run.id.clone());
        self.seconds = Some(run.seconds);
        self.steps = run.step;
        self.score = Score::of(run);
        self.verdict = run.verdict.clone();
        let failed = run.status == RunStatus::Failed;
        self.message = failed.then(|| run.message.clone());
        self.over = matches!(run.status, RunStatus::Finished | RunStatus::Failed);
        // Both are of the newest evaluation.
        let both = run.val_bpb.zip(run.val_loss.filter(|loss| *loss > 0.0));
        self.bits_per_nat = both.map(|(bits, loss)| bits / loss);
    }

    pub fn diverged(&self) -> bool {
        self.verdict.as_deref() == Some(DIVERGED)
    }

    /// The score that counts: one from before a run diverged or failed, or on its way, says nothing for its settings.
    pub fn sound(&self) -> Option<&Score> {
        let counts = self.over && !self.diverged() && self.message.is_none();
        self.score.as_ref().filter(|_| counts)
    }

    /// The score in bits per byte, where it is a loss per token and the run's text is known.
    fn in_bits(&self) -> Option<Score> {
        let bits = self.bits_per_nat?;
        let score = self.score.as_ref().filter(|s| s.metric == id::VAL_LOSS)?;
        Some(Score {
            metric: id::VAL_BPB.into(),
            value: bits * score.value,
            whole: score.whole.map(|loss| bits * loss),
            ..*score
        })
    }

    /// Not trained yet, or stopped on the way.
    pub fn is_open(&self) -> bool {
        !self.over
    }
}

/// Makes scores comparable, before [`settle`]: where tokenizers differ, losses per token become bits per byte. Runs whose losses are of
/// other data than the best one's are marked. Both are reported, as lines. `runs`: what each trial's score measures, in the same order.
///
/// # Errors
/// Why the runs that count cannot be ranked, for a line that begins with `not comparable: `.
pub fn in_one_unit(
    trials: &mut [Trial],
    runs: &[Objective<'_>],
) -> Result<Vec<&'static str>, String> {
    let count: Vec<usize> = (0..trials.len().min(runs.len()))
        .filter(|at| trials[*at].sound().is_some())
        .collect();
    let scores = count.iter().filter_map(|at| trials[*at].sound());
    let mut metrics: Vec<String> = scores.map(|score| one_line(&score.metric)).collect();
    metrics.sort();
    metrics.dedup();
    let metric = match &metrics[..] {
        [] => return Ok(Vec::new()),
        [metric] => metric,
        several => return Err(format!("scored by {}", several.join(", "))),
    };
    let counted: Vec<Objective<'_>> = count.iter().map(|at| runs[*at]).collect();
    let mut notes = Vec::new();
    match difference_of_score(&counted, metric) {
        None | Some(Difference::Data) => {}
        Some(Difference::Loss) => return Err(Difference::Loss.words().into()),
        Some(Difference::Tokenizer) => {
            if count.iter().any(|at| trials[*at].in_bits().is_none()) {
                let what = Difference::Tokenizer.words();
                return Err(format!(
                    "{what}, on which {metric} depends, and not every run has {}",
                    id::VAL_BPB
                ));
            }
            // One on its way may have none yet.
            for trial in trials.iter_mut() {
                trial.score = trial.in_bits();
            }
            notes.push(
                "ranked by bits per byte: losses per token of different tokenizers are not comparable",
            );
        }
    }
    if mark_other_data(trials, runs, &count) {
        notes.push("some runs were trained on other data: losses are not comparable");
    }
    Ok(notes)
}

/// Marks the trials whose scores are of other data than that of the first run of the ranking; whether any of those that `count` is.
fn mark_other_data(trials: &mut [Trial], runs: &[Objective<'_>], count: &[usize]) -> bool {
    // As it is shown: by the values that are settled on, and by the means over seeds.
    let mut settled = trials.to_vec();
    settle(&mut settled);
    let groups = ranked(&settled);
    let first = groups.first().and_then(|group| group.members.first());
    let best = first.and_then(|at| Some((runs.get(*at)?, settled[*at].sound()?)));
    let Some((best, score)) = best else {
        return false;
    };
    for (trial, run) in trials.iter_mut().zip(runs) {
        trial.other_data = !on_same_data(best, run, &score.metric);
    }
    count.iter().any(|at| trials[*at].other_data)
}

/// Takes the values over the whole validation split, as other screens show them, where every run that counts has one. Where one is
/// best before its last step, values of the rows that all evaluations read are what can be compared.
pub fn settle(trials: &mut [Trial]) {
    let all = trials.iter().filter_map(Trial::sound);
    if all.clone().count() == 0 || all.clone().any(|score| score.whole.is_none()) {
        return;
    }
    for score in trials.iter_mut().filter_map(|trial| trial.score.as_mut()) {
        score.value = score.whole.unwrap_or(score.value);
    }
}

/// Whether the values are of a part of the validation split although some run was evaluated on all of it.
fn is_partial_validation(trials: &[Trial]) -> bool {
    let differs = |score: &Score| score.whole.is_some_and(|whole| whole != score.value);
    trials.iter().filter_map(Trial::sound).any(differs)
}

/// The runs that differ only in their seed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Group {
    /// As [`Trial::set`], without the seed.
    pub set: Vec<String>,
    pub mean: f64,
    /// Sample standard deviation over seeds; absent for a single run.
    pub deviation: Option<f64>,
    /// Runs with a score that counts, and those without: diverged or failed. A run that was stopped or is on its way is in neither: it says
    /// nothing for or against the settings.
    pub runs: usize,
    pub without: usize,
    /// Where its runs are in the list, best first; those without a score that counts are last.
    #[serde(skip)]
    pub members: Vec<usize>,
}

/// The groups by their mean, best first; groups with a run that diverged or failed come last, since one seed in three that diverges is not
/// a setting to take. Scores by another metric than the first one's do not count.
pub fn ranked(trials: &[Trial]) -> Vec<Group> {
    let Some(first) = trials.iter().find_map(Trial::sound) else {
        return Vec::new();
    };
    let mut sets: Vec<Vec<String>> = Vec::new();
    for trial in trials {
        let set = without_seed(&trial.set);
        if !sets.contains(&set) {
            sets.push(set);
        }
    }
    let group = |set| group(set, trials, first);
    let mut groups: Vec<Group> = sets.into_iter().filter_map(group).collect();
    let sign = if first.higher { -1.0 } else { 1.0 };
    groups.sort_by(|a, b| {
        let whole = |group: &Group| group.without > 0;
        whole(a)
            .cmp(&whole(b))
            .then((sign * a.mean).total_cmp(&(sign * b.mean)))
    });
    groups
}

fn came_to_nothing(trial: &Trial) -> bool {
    (trial.over || trial.diverged()) && trial.sound().is_none()
}

/// The runs of these settings; `None` where no score of theirs counts.
fn group(set: Vec<String>, trials: &[Trial], first: &Score) -> Option<Group> {
    let value_of = |at: &usize| {
        let score = trials[*at].sound();
        score
            .filter(|score| score.metric == first.metric)
            .map(|score| score.value)
    };
    let is_own = |at: &usize| without_seed(&trials[*at].set) == set;
    let mut members: Vec<usize> = (0..trials.len()).filter(is_own).collect();
    let sign = if first.higher { -1.0 } else { 1.0 };
    let rank = |at: &usize| value_of(at).map_or(f64::INFINITY, |value| sign * value);
    members.sort_by(|a, b| rank(a).total_cmp(&rank(b)));
    let values: Vec<f64> = members.iter().filter_map(value_of).collect();
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (!values.is_empty()).then(|| Group {
        mean,
        deviation: (values.len() > 1).then(|| (squares / (values.len() - 1) as f64).sqrt()),
        runs: values.len(),
        without: members
            .iter()
            .filter(|at| came_to_nothing(&trials[**at]))
            .count(),
        set,
        members,
    })
}

fn without_seed(set: &[String]) -> Vec<String> {
    let is_seed = |word: &String| key(word) == SEED;
    set.iter().filter(|word| !is_seed(word)).cloned().collect()
}

pub fn key(word: &str) -> &str {
    word.split_once('=').map_or(word, |(key, _)| key)
}

pub fn value(word: &str) -> &str {
    word.split_once('=').map_or("", |(_, value)| value)
}

/// What the ranking leaves open: a best value at the end of its list, a lead within the noise of seeds, one seed alone.
/// `path_of` gives the whole path of a setting's key.
pub fn caveats(
    trials: &[Trial],
    groups: &[Group],
    path_of: impl Fn(&str) -> String,
) -> Vec<String> {
    let Some(best) = groups.first() else {
        return Vec::new();
    };
    let searched = |word: &&String| is_searched(&path_of(key(word)));
    let words = best.set.iter().filter(searched);
    // Of runs of other lengths the longer one is better, whatever else it has.
    let mut set = trials.iter().flat_map(|trial| &trial.set);
    let alike_long = !set.any(|word| TOKENS.contains(&path_of(key(word)).as_str()));
    let mut told: Vec<String> = match alike_long && leads(trials, groups) {
        true => words.filter_map(|word| at_the_end(word, trials)).collect(),
        false => Vec::new(),
    };
    if is_partial_validation(trials) {
        told.push(
            "values are over eval.batches, the rows that every evaluation reads: some runs are best before their last step, where the whole validation split is read"
                .into(),
        );
    }
    let seeds = trials
        .iter()
        .any(|trial| trial.set.iter().any(|word| key(word) == SEED));
    match (groups.get(1), best.deviation) {
        (Some(second), Some(deviation)) => {
            let spread = deviation.max(second.deviation.unwrap_or(0.0));
            let lead = (second.mean - best.mean).abs();
            if lead < spread && second.without == 0 {
                told.push(format!(
                    "the two best differ by {lead:.4}, within the spread of seeds ({spread:.4}): more seeds or more steps would separate them"
                ));
            }
        }
        (Some(_), None) if !seeds => told.push(
            "one seed each: small differences may be noise; llmtui sweep --over seed=1,2,3 repeats every run"
                .into(),
        ),
        _ => {}
    }
    told
}

/// Whether the first group is better than others: not where it is the only one that came to anything, and not with the value of
/// the next one. Settings that diverged are worse ones.
fn leads(trials: &[Trial], groups: &[Group]) -> bool {
    match groups {
        [best, second, ..] => best.mean != second.mean,
        [_] => trials.iter().any(Trial::diverged),
        [] => false,
    }
}

/// Whether a sweep over it looks for its best value.
fn is_searched(path: &str) -> bool {
    let section = path.split('.').next().unwrap_or(path);
    // Rescues go back to checkpoints, but nobody looks for the best cadence of those.
    changes_results(path, false) && path != LENGTH && section != OF_EVALUATIONS
}

/// A best value of a numeric setting with nothing tried beyond it.
fn at_the_end(word: &str, trials: &[Trial]) -> Option<String> {
    let (key_of, best) = (key(word), value(word).parse::<f64>().ok()?);
    let tried = trials.iter().flat_map(|trial| &trial.set);
    let tried = tried.filter(|other| key(other) == key_of);
    let numbers: Vec<f64> = tried
        .map(|other| value(other).parse::<f64>())
        .collect::<Result<_, _>>()
        .ok()?;
    let below = numbers.iter().any(|n| *n < best);
    let above = numbers.iter().any(|n| *n > best);
    let (end, way) = match (below, above) {
        (true, false) => ("highest", "higher"),
        (false, true) => ("lowest", "lower"),
        _ => return None,
    };
    Some(format!(
        "{word} is the {end} value that was tried: the best may be {way} still"
    ))
}

#[cfg(test)]
mod lengths;

#[cfg(test)]
mod tests;
