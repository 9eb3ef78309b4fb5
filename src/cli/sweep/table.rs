//! A sweep in words and as JSON.

use super::{Args, Row};
use crate::base::human;
use crate::base::text::one_line;
use crate::cli::out::columns;
use crate::cli::{Context, run_ref};
use crate::run::ranking::{Group, OTHER_DATA, Score, Trial, caveats, key, ranked, settle, value};
use crate::spec::alias;
use serde_json::{Value, json};

/// Most runs that `runs --compare` takes.
const COMPARED: usize = 6;

/// `val/loss 1.904 at step 1,900, 0:38 · LEARNING`, or why there is nothing to say.
/// A stopped run is reported with the steps it completed.
pub fn result(trial: &Trial, max_steps: u64) -> String {
    let stopped = trial.is_open().then(|| {
        let (step, all) = (human::grouped(trial.steps), human::grouped(max_steps));
        format!("stopped at step {step} of {all}")
    });
    let score = trial.score.as_ref().map(|score| {
        let (value, rows) = match score.whole {
            Some(whole) if whole != score.value => (whole, " (whole split)"),
            _ => (score.value, ""),
        };
        let (metric, step) = (one_line(&score.metric), human::grouped(score.step));
        format!("{metric} {}{rows} at step {step}", human::number(value))
    });
    let time = trial.seconds.map(human::seconds);
    let failed = trial
        .message
        .as_deref()
        .map(|why| format!("failed: {}", one_line(why)));
    let said = failed.or_else(|| trial.verdict.clone());
    let parts = [stopped, score, time, said];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    parts.join(" · ")
}

/// How many groups the first place has: one, unless their scores are the same number.
fn n_equal(groups: &[Group]) -> usize {
    let Some(best) = groups.first() else {
        return 0;
    };
    let same = |group: &&Group| (group.mean, group.without) == (best.mean, best.without);
    groups.iter().take_while(same).count()
}

/// What was done to make scores comparable, or why they are not.
pub type Unit = Result<Vec<&'static str>, String>;

/// The runs in the order of the grid, the ranking, and what it leaves open.
pub fn text(
    name: &str,
    rows: &[Row],
    (unit, advice): (&Unit, &[String]),
    args: &Args,
    cx: &Context,
) -> String {
    let settled = trials(rows);
    let trials = &settled[..];
    let keys: Vec<&str> = args.over.iter().map(|over| over.key.as_str()).collect();
    let mut out = format!(
        "{} · {} over {}",
        one_line(name),
        human::counted(trials.len() as u64, "run"),
        keys.join(", ")
    );
    let metric = trials.iter().find_map(|trial| trial.score.as_ref());
    if let Some(score) = metric {
        let way = if score.higher { "higher" } else { "lower" };
        out.push_str(&format!(" · {}, {way} is better", one_line(&score.metric)));
    }
    out.push_str("\n\n");
    out.push_str(&indented(&runs(rows, trials, metric, args.dry_run)));
    // A ranking of settings that no run got to is one of other settings.
    out.extend(advice.iter().map(|line| format!("\n  advice: {line}\n")));
    if args.dry_run {
        let seconds = |row: &Row| match row.reused {
            true => Some(0.0),
            false => row.planned_seconds,
        };
        let total: Option<f64> = rows.iter().map(seconds).sum();
        let total = total.map_or("unknown".into(), human::seconds);
        out.push_str(&format!(
            "\n  predicted time {total}; nothing was run: remove --dry-run to start\n"
        ));
        return out;
    }
    if trials.iter().any(Trial::is_open) {
        return out;
    }
    let groups = match unit {
        Ok(_) => ranked(trials),
        Err(_) => Vec::new(),
    };
    if groups.iter().any(|group| group.runs + group.without > 1) {
        out.push('\n');
        out.push_str(&indented(&seeds(&groups)));
    }
    out.push_str(&ending(name, trials, (&groups, unit), args, cx));
    out
}

/// The whole path of a setting as `--over` names it.
fn path_of(key: &str) -> String {
    let key = key.replace('-', "_");
    alias::resolve(&key).map_or(key, String::from)
}

/// The best settings, their caveats, and the commands to continue with.
fn ending(
    name: &str,
    trials: &[Trial],
    (groups, unit): (&[Group], &Unit),
    args: &Args,
    cx: &Context,
) -> String {
    let equal = n_equal(groups);
    let mut out = match (groups.first(), unit) {
        (Some(best), _) if equal > 1 => format!(
            "\n  no best: {} of {} settings have the same score ({})\n",
            equal,
            groups.len(),
            spread(best)
        ),
        (Some(best), _) => format!("\n  best: {} ({})\n", of(&best.set), spread(best)),
        (None, Err(why)) => format!("\n  not ranked, not comparable: {why}\n"),
        (None, Ok(_)) => {
            return "\n  every run diverged or failed: nothing can be ranked\n".into();
        }
    };
    for line in notes(trials, groups, unit) {
        out.push_str(&format!("  {line}\n"));
    }
    let options = run_ref::options(&cx.runs_dir);
    let mut shown: Vec<&Trial> = trials
        .iter()
        .filter(|trial| trial.score.is_some())
        .collect();
    shown.sort_by(|a, b| order(a.score.as_ref(), b.score.as_ref()));
    let ids = shown
        .iter()
        .take(COMPARED)
        .filter_map(|trial| trial.run.as_deref());
    let ids: Vec<&str> = ids.collect();
    if ids.len() > 1 {
        out.push_str(&format!(
            "\nllmtui runs --compare {}{options}\n",
            ids.join(" ")
        ));
    }
    let Some(best) = groups.first().filter(|_| equal == 1) else {
        return out;
    };
    let set = args.spec.set.iter().chain(&best.set);
    let set: String = set
        .map(|word| format!(" -s {}", crate::base::ssh::shell_quote(word)))
        .collect();
    out.push_str(&format!(
        "llmtui train {}{set}{options}\n",
        crate::base::ssh::shell_quote(name)
    ));
    out
}

/// What was done to make scores comparable, and what the ranking leaves open.
fn notes(trials: &[Trial], groups: &[Group], unit: &Unit) -> Vec<String> {
    let done = unit.as_ref().into_iter().flatten();
    done.map(|line| (*line).to_string())
        .chain(caveats(trials, groups, path_of))
        .collect()
}

/// Best first, by the same reading.
fn order(a: Option<&Score>, b: Option<&Score>) -> std::cmp::Ordering {
    match (a, b) {
        (Some(a), Some(b)) if a.beats(b) => std::cmp::Ordering::Less,
        (Some(a), Some(b)) if b.beats(a) => std::cmp::Ordering::Greater,
        _ => std::cmp::Ordering::Equal,
    }
}

fn of(set: &[String]) -> String {
    match set.is_empty() {
        true => "the spec as it is".into(),
        false => set.join(" "),
    }
}

fn spread(group: &Group) -> String {
    match group.deviation {
        Some(deviation) => format!(
            "{:.4} ± {deviation:.4} over {} seeds",
            group.mean, group.runs
        ),
        None => format!("{:.4}", group.mean),
    }
}

/// A table of the runs; the first row is the heading.
fn runs(rows: &[Row], trials: &[Trial], metric: Option<&Score>, planned: bool) -> Vec<Vec<String>> {
    let mut heading = keys(&rows[0].trial.set);
    let metric = metric.map_or("score".into(), |score| one_line(&score.metric));
    heading.extend([
        metric,
        "at step".into(),
        "time".into(),
        "verdict".into(),
        "run".into(),
    ]);
    let row = |(row, trial): (&Row, &Trial)| {
        let predicted = row.planned_seconds.filter(|_| planned);
        let mut row = values(&trial.set);
        let (value, step) = match &trial.score {
            Some(score) => (format!("{:.4}", score.value), human::grouped(score.step)),
            None => ("-".into(), "-".into()),
        };
        // Only a plan shows predicted times: beside times that were spent they would look like one.
        let time = trial.seconds.or(predicted);
        let time = time.map_or("-".into(), human::seconds);
        let verdict = match (&trial.message, &trial.verdict) {
            (Some(_), _) => "failed".into(),
            (None, Some(verdict)) => verdict.clone(),
            (None, None) => "-".into(),
        };
        let verdict = match trial.other_data {
            true => format!("{verdict}, {OTHER_DATA}"),
            false => verdict,
        };
        let run = trial.run.clone().unwrap_or("-".into());
        row.extend([value, step, time, verdict, run]);
        row
    };
    std::iter::once(heading)
        .chain(rows.iter().zip(trials).map(row))
        .collect()
}

/// A table of the groups, best first.
fn seeds(groups: &[Group]) -> Vec<Vec<String>> {
    let mut heading = keys(&groups[0].set);
    heading.extend(["mean", "± sd", "seeds", "diverged or failed"].map(String::from));
    let row = |group: &Group| {
        let mut row = values(&group.set);
        let deviation = group.deviation.map_or("-".into(), |sd| format!("{sd:.4}"));
        let counts = [group.runs, group.without].map(|n| n.to_string());
        row.extend([format!("{:.4}", group.mean), deviation]);
        row.extend(counts);
        row
    };
    std::iter::once(heading)
        .chain(groups.iter().map(row))
        .collect()
}

/// Rows in columns, indented.
fn indented(rows: &[Vec<String>]) -> String {
    let lines = columns(rows);
    lines.lines().map(|line| format!("  {line}\n")).collect()
}

fn keys(set: &[String]) -> Vec<String> {
    set.iter().map(|word| one_line(key(word))).collect()
}

fn values(set: &[String]) -> Vec<String> {
    set.iter().map(|word| one_line(value(word))).collect()
}

fn trials(rows: &[Row]) -> Vec<Trial> {
    let mut trials: Vec<Trial> = rows.iter().map(|row| row.trial.clone()).collect();
    settle(&mut trials);
    trials
}

/// The object of `--json`; `not_ranked` says why its ranking is empty, where the runs are not comparable.
pub fn object(name: &str, rows: &[Row], (unit, advice): (&Unit, &[String])) -> Value {
    let trials = trials(rows);
    let rows: Vec<Row> = rows
        .iter()
        .zip(&trials)
        .map(|(row, trial)| Row {
            trial: trial.clone(),
            ..*row
        })
        .collect();
    let groups = match trials.iter().any(Trial::is_open) || unit.is_err() {
        true => Vec::new(),
        false => ranked(&trials),
    };
    let notes = notes(&trials, &groups, unit);
    let why = unit.as_ref().err();
    json!({"spec": name, "runs": rows, "ranking": groups, "notes": notes, "not_ranked": why,
        "advice": advice})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(set: &str, planned: f64) -> Row {
        Row {
            trial: Trial::new(vec![set.into()], 1_500),
            reused: false,
            planned_seconds: Some(planned),
        }
    }

    /// The first of two equal ones was called the best, with a command to train with it.
    #[test]
    fn equal_scores_have_no_best() {
        let of = |means: &[f64]| {
            let group = |mean: &f64| Group {
                set: vec!["lr=1".into()],
                mean: *mean,
                deviation: None,
                runs: 1,
                without: 0,
                members: Vec::new(),
            };
            n_equal(&means.iter().map(group).collect::<Vec<_>>())
        };
        assert_eq!([of(&[]), of(&[0.5]), of(&[0.5, 0.6])], [0, 1, 1]);
        assert_eq!([of(&[1.0, 1.0]), of(&[1.0, 1.0, 0.5])], [2, 2]);
    }

    /// It looked as if it had trained.
    #[test]
    fn a_run_that_never_began_has_spent_no_time() {
        let rows = [row("lr=1", 60.0), row("lr=2", 60.0)];
        let trials = trials(&rows);
        let time = |planned| runs(&rows, &trials, None, planned)[1][3].clone();
        assert_eq!(
            (time(false), time(true)),
            ("-".into(), human::seconds(60.0))
        );
    }

    /// The table below it may rank by the sampled rows.
    #[test]
    fn a_result_is_over_the_whole_validation_split_where_that_was_evaluated() {
        let mut trial = row("lr=1", 60.0).trial;
        trial.over = true;
        let score = |whole| Score {
            metric: "val/loss".into(),
            higher: false,
            value: 3.571,
            step: 1_500,
            whole,
        };
        for (whole, shown) in [(Some(3.5384), "3.538 (whole split)"), (None, "3.571")] {
            trial.score = Some(score(whole));
            let told = format!("val/loss {shown} at step 1,500");
            assert_eq!(result(&trial, 1_500), told);
        }
    }

    #[test]
    fn runs_that_are_not_comparable_are_listed_and_not_ranked() {
        let scored = |set: &str, value| {
            let mut row = row(set, 60.0);
            row.trial.over = true;
            row.trial.score = Some(Score {
                metric: "val/bpb".into(),
                higher: false,
                value,
                step: 1_500,
                whole: None,
            });
            row
        };
        let rows = [scored("vocab=500", 1.9), scored("vocab=5000", 1.5)];
        let refused = object("demo", &rows, (&Err("different tokenizers".into()), &[]));
        assert_eq!(refused["ranking"], json!([]));
        assert_eq!(refused["not_ranked"], "different tokenizers");
        assert_eq!(refused["runs"][1]["score"]["value"], 1.5);
        let ranked = object("demo", &rows, (&Ok(vec!["ranked by bits per byte"]), &[]));
        assert_eq!(ranked["ranking"][0]["set"], json!(["vocab=5000"]));
        assert_eq!(ranked["notes"][0], "ranked by bits per byte");
        assert!(ranked["not_ranked"].is_null());
    }

    #[test]
    fn a_stopped_run_says_how_far_it_came() {
        let mut trial = row("lr=1", 60.0).trial;
        (trial.steps, trial.run) = (100, Some("r".into()));
        assert_eq!(result(&trial, 1_500), "stopped at step 100 of 1,500");
    }
}
