//! Results as a table, and as JSON.

use super::{Args, Asked};
use crate::base::human;
use crate::base::json;
use crate::base::text::{one_line, shown};
use crate::tasks::{
    AnswerConfig, Comparison, Listed, Prepared, Reading, Summary, compare, compared_by, summarize,
};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// How many times longer answers are suggested where thoughts do not end.
const LONGER: usize = 4;
/// Flipped items that a table names.
const FLIPS: usize = 8;

pub(super) fn list(listed: &[Listed]) -> String {
    let width = listed
        .iter()
        .map(|l| l.name.chars().count())
        .max()
        .unwrap_or(0);
    let mut out = String::new();
    for task in listed {
        let _ = write!(
            out,
            "{:<width$}  {}",
            one_line(&task.name),
            one_line(&task.summary)
        );
        if let Some(file) = &task.file {
            let _ = write!(out, "  ({})", shown(file));
        }
        out.push('\n');
    }
    out
}

/// The tasks for `--json`.
pub(super) fn listed(listed: &[Listed]) -> Value {
    let one = |task: &Listed| json!({"name": task.name, "summary": task.summary, "file": task.file.as_deref().map(json::path)});
    listed.iter().map(one).collect()
}

fn summaries(model: &Asked, prepared: &[Prepared]) -> Vec<Summary> {
    let each = prepared.iter().zip(&model.outcomes);
    each.map(|(task, outcome)| summarize(task.task.config(), &outcome.records))
        .collect()
}

/// Every other model against the first, by task.
fn comparisons(models: &[Asked], summary: &Summary, task: usize) -> Vec<Option<Comparison>> {
    let base = &models[0].outcomes[task].records;
    let others = models.iter().skip(1);
    let metric = compared_by(&summary.headline);
    others
        .map(|model| compare(metric, base, &model.outcomes[task].records))
        .collect()
}

/// What a metric is, in words.
fn meaning(metric: &str, prepared: &[Prepared]) -> &'static str {
    let mut all = prepared.iter().map(|task| &task.task.config().answer);
    all.find_map(|how| meaning_in(metric, how))
        .unwrap_or_else(|| usual(metric))
}

/// What a task's own metric is.
fn meaning_in(metric: &str, how: &AnswerConfig) -> Option<&'static str> {
    if let Some(reward) = how.rewards.iter().find(|reward| reward.name == metric) {
        return Some(reward.reward.entry().summary);
    }
    let count = how.counts.iter().find(|count| count.name == metric)?;
    Some(match count.absent {
        true => "share of answers without the task's pattern",
        false => "share of answers with the task's pattern",
    })
}

fn usual(metric: &str) -> &'static str {
    match metric {
        "reward" => "the weighted sum of the task's rewards",
        "acc" => "accuracy",
        "acc_norm" => "the same, log-probability per character of the choice (lm-eval's acc_norm)",
        "acc_norm_tokens" => "the same, log-probability per token of the choice",
        "perplexity" => {
            "exp of the mean loss: of a continuation (as lm-eval has it), of a token of a text"
        }
        "bits_per_byte" => "bits of loss per byte of text",
        "pass@1" => "share of programs that pass their tests, one greedy answer each",
        "prompt_level_strict_acc" => "share of prompts with all instructions followed",
        "inst_level_strict_acc" => "share of instructions followed",
        "prompt_level_loose_acc" => {
            "share of prompts with all instructions followed, first and last line and asterisks aside"
        }
        "inst_level_loose_acc" => {
            "share of instructions followed, first and last line and asterisks aside"
        }
        _ => "share of answers that equal the target",
    }
}

pub(super) fn text(args: &Args, models: &[Asked], prepared: &[Prepared]) -> String {
    let mut out = heading(args, models);
    let all: Vec<Vec<Summary>> = models
        .iter()
        .map(|model| summaries(model, prepared))
        .collect();
    let mut metrics: Vec<String> = Vec::new();
    for at in 0..all[0].len() {
        out += &task_table(args, (models, &all), at, &prepared[at]);
        if args.answers.is_none() {
            out += &earlier_scores(models, &prepared[at], at);
        }
        for reading in shown_readings(args, &all[0][at]) {
            if !metrics.contains(&reading.metric) {
                metrics.push(reading.metric.clone());
            }
        }
    }
    out.push('\n');
    for metric in metrics {
        let _ = writeln!(out, "{metric}: {}", meaning(&metric, prepared));
    }
    let _ = writeln!(
        out,
        "*: headline metric · ±: standard error · answers: {}",
        match &args.answers {
            Some(file) => shown(file),
            None => folder(models),
        }
    );
    out
}

/// The models, each with how its prompts begin.
fn heading(args: &Args, models: &[Asked]) -> String {
    let mut out = String::new();
    for (letter, model) in ('A'..).zip(models) {
        let mark = match models.len() {
            1 => String::new(),
            _ => format!("{letter}  "),
        };
        let _ = write!(out, "{mark}{}  {}", model.name, &model.fingerprint[..8]);
        let _ = match &model.begins_with {
            Some(words) => writeln!(out, "  ({})", one_line(words)),
            None if args.answers.is_some() => writeln!(out, "  (answers of a file)"),
            None => writeln!(out, "  (all from an earlier evaluation)"),
        };
    }
    out
}

fn shown_readings<'a>(args: &Args, summary: &'a Summary) -> impl Iterator<Item = &'a Reading> {
    let groups = args.groups;
    let readings = summary.readings.iter();
    readings.filter(move |r| groups || r.group.is_none())
}

/// The task at this place: a row a reading with a column a model, the differences from the first model, and what was cut.
fn task_table(
    args: &Args,
    (models, all): (&[Asked], &[Vec<Summary>]),
    at: usize,
    prepared: &Prepared,
) -> String {
    let mut out = String::new();
    let first = &all[0][at];
    let shots = match first.shots {
        0 => String::new(),
        n => format!(", {n} worked examples"),
    };
    let _ = writeln!(
        out,
        "\n{} v{}  {}{shots}",
        first.task,
        first.version,
        human::counted(first.items as u64, "item")
    );
    for reading in shown_readings(args, first) {
        let group = reading
            .group
            .as_deref()
            .map_or(String::new(), |g| format!(" {}", one_line(g)));
        let stands = reading.metric == first.headline && reading.group.is_none();
        let mark = if stands { "*" } else { " " };
        let width = if args.groups { 48 } else { 24 };
        let _ = write!(
            out,
            " {mark} {:<width$}",
            format!("{}{group}", reading.metric)
        );
        for summaries in all {
            let same = |r: &&Reading| r.metric == reading.metric && r.group == reading.group;
            let found = summaries[at].readings.iter().find(same);
            let _ = write!(
                out,
                "  {:>18}",
                found.map_or_else(|| "–".into(), |r| human::with_error(r.value, r.stderr))
            );
        }
        out.push('\n');
    }
    for (letter, found) in ('B'..).zip(comparisons(models, first, at)) {
        if let Some(found) = found {
            out += &difference(letter, &found);
        }
    }
    out += &unfinished(args, all, at, prepared);
    let most = |of: fn(&Summary) -> usize| all.iter().map(|s| of(&s[at])).max().unwrap_or(0);
    for (n, what) in [
        (
            most(|s| s.cut),
            "prompts exceeded the context and were truncated at the start",
        ),
        (
            most(|s| s.truncated),
            "completions were truncated at max_new_tokens or the end of the context",
        ),
    ] {
        if n > 0 {
            let _ = writeln!(out, "   {n} {what}");
        }
    }
    out
}

/// Answers of a model that ended inside their thoughts, and what to do.
fn unfinished(args: &Args, all: &[Vec<Summary>], at: usize, prepared: &Prepared) -> String {
    let mut out = String::new();
    for (letter, summaries) in ('A'..).zip(all) {
        let summary = &summaries[at];
        if summary.unfinished == 0 {
            continue;
        }
        let of = match all.len() {
            1 => String::new(),
            _ => format!(" of {letter}"),
        };
        let tokens = LONGER * prepared.task.config().answer.max_new_tokens;
        let fix = match &args.answers {
            None => format!("--max-new-tokens {tokens} lets more of them finish"),
            Some(_) => "let the program that wrote them write more tokens".into(),
        };
        let _ = writeln!(
            out,
            "   {} of {}{of} ended inside their thoughts: without a final message they count as wrong; {fix}",
            human::grouped(summary.unfinished as u64),
            human::counted(summary.items as u64, "answer"),
        );
    }
    out
}

/// That the scores of a program are kept, which may have changed where nobody looks.
fn earlier_scores(models: &[Asked], prepared: &Prepared, at: usize) -> String {
    let names = prepared.scored_by_programs().join(", ");
    let kept = models.iter().any(|model| model.outcomes[at].kept > 0);
    match kept && !names.is_empty() {
        true => format!(
            "   scores of {} are from an earlier evaluation; files that its command line names are as they were then. \
             --out another folder scores all again\n",
            one_line(&names)
        ),
        false => String::new(),
    }
}

fn folder(models: &[Asked]) -> String {
    let files = models.iter().filter_map(|m| m.outcomes.first());
    let folders: Vec<String> = files
        .filter_map(|outcome| outcome.file.parent())
        .map(shown)
        .collect();
    folders.join(", ")
}

fn difference(letter: char, found: &Comparison) -> String {
    let stderr = found.stderr.map_or(String::new(), |s| format!(" ± {s:.4}"));
    let mut out = format!(
        "   {letter} − A  {} {:+.4}{stderr}  {}\n",
        found.metric,
        found.difference,
        found.certainty()
    );
    let named = |won: bool| -> Option<String> {
        let items: Vec<String> = found
            .flips
            .iter()
            .filter(|flip| flip.won == won)
            .map(|flip| flip.item.to_string())
            .collect();
        let shown = items[..items.len().min(FLIPS)].join(", ");
        let more = if items.len() > FLIPS { ", …" } else { "" };
        (!items.is_empty()).then(|| match items.len() {
            1 => format!("1 item ({shown})"),
            n => format!("{n} items ({shown}{more})"),
        })
    };
    // Right and wrong answers are named one by one; of a likelihood it says little which is higher.
    if found.flips.is_empty() && found.better + found.worse > 0 && found.metric != "logp" {
        let same = found.n - found.better - found.worse;
        let stderr =
            (found.win_rate_stderr).map_or(String::new(), |s| format!(" ± {:.1}", 100.0 * s));
        let _ = writeln!(
            out,
            "   {letter} wins {:.1}{stderr} % against A: better on {}, worse on {}, equal on {same} (which count half) of {}",
            100.0 * found.win_rate,
            found.better,
            found.worse,
            human::counted(found.n as u64, "item")
        );
    }
    if let Some(won) = named(true) {
        let _ = writeln!(out, "   only {letter} correct: {won}");
    }
    if let Some(lost) = named(false) {
        let _ = writeln!(out, "   only A correct: {lost}");
    }
    out
}

pub(super) fn json(args: &Args, models: &[Asked], prepared: &[Prepared]) -> anyhow::Result<String> {
    let of_model = |model: &Asked| -> Value {
        let tasks = summaries(model, prepared);
        let tasks = tasks.iter().zip(&model.outcomes).map(|(summary, outcome)| {
            let mut value = json!(summary);
            value["answers"] = json!(outcome.file.display().to_string());
            value["asked_before"] = json!(outcome.kept);
            value
        });
        json!({
            "model": model.word,
            "name": model.name,
            "fingerprint": model.fingerprint,
            "tasks": tasks.collect::<Vec<_>>(),
        })
    };
    let mut value = json!({
        "limit": args.limit,
        "models": models.iter().map(of_model).collect::<Vec<_>>(),
    });
    if models.len() > 1 {
        let first = summaries(&models[0], prepared);
        let each = first.iter().enumerate().flat_map(|(at, summary)| {
            let found = comparisons(models, summary, at)
                .into_iter()
                .zip(&models[1..]);
            found.filter_map(|(found, model)| {
                let mut value = json!(found?);
                value["task"] = json!(summary.task);
                value["model"] = json!(model.word);
                value["against"] = json!(models[0].word);
                Some(value)
            })
        });
        value["comparisons"] = each.collect();
    }
    Ok(format!("{}\n", crate::cli::out::json(&value)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_metric_is_explained_as_what_it_is() {
        let how = json!({"counts": [
            {"name": "refused", "pattern": "sorry"},
            {"name": "answered", "pattern": "sorry", "absent": true},
        ]});
        let how: AnswerConfig = serde_json::from_value(how).unwrap();
        let count = |metric: &str| meaning_in(metric, &how);
        assert!(count("refused").unwrap().contains("with the task's"));
        assert!(count("answered").unwrap().contains("without the task's"));
        assert_eq!(count("exact"), None);
        let target = usual("exact");
        for level in ["prompt", "inst"] {
            for way in ["strict", "loose"] {
                let metric = format!("{level}_level_{way}_acc");
                assert_ne!(usual(&metric), target, "{metric}");
            }
        }
    }
}
