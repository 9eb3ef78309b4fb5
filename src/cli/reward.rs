//! `llmtui reward`: what answers are worth, without a run.

use super::Context;
use super::exit::{Exit, Failure};
use super::out::json_line;
use crate::base::files::read_plain_text;
use crate::base::human::percent;
use crate::base::stats;
use crate::base::text::{one_line, shown};
use crate::data::chat::tool_calls::Said;
use crate::engine::checkpoint::{Fault, Manifest};
use crate::rewards::{Answer, NO_REFERENCE, Reference, Scorer, Scores, WeightedReward};
use crate::tasks::thinking;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Columns of an answer in the table.
const SHOWN: usize = 40;

/// Score your own completions with a spec's rewards
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Score the completions in a file
    ///
    /// Each line is a JSON object with `answer` and, where the rewards need them, `prompt`, `reference` (the correct answer)
    /// and `metadata`: the same as a reward program reads.
    Test(TestArgs),
}

#[derive(Debug, clap::Args)]
struct TestArgs {
    /// A preset, or a spec's file
    spec: String,
    /// JSON lines
    file: PathBuf,
    /// Override a value of the spec
    #[arg(short = 's', long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Print one JSON object per answer, then one with the summary
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    let Verb::Test(args) = &args.verb;
    let set = super::model_ref::with_runs(&args.set, cx)?;
    let spec = crate::spec::load(&args.spec, &set, &cx.spec_sources())?.spec;
    if spec.rewards.is_empty() {
        let what = format!("{} has no rewards", args.spec);
        return Err(
            Failure::user_error(what, "-s rewards=[exact], or a preset such as grpo-sort").into(),
        );
    }
    let (answers, lines_of) = read(&args.file)?;
    let place = |number: usize| format!("{}:{}", shown(&args.file), lines_of[number]);
    let scores = score(&spec.rewards, &answers, &place)?;
    let text = match args.json {
        true => lines(&answers, &scores)?,
        false => table(&answers, &scores),
    };
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(Exit::Done)
}

/// What the answers are worth, by reward models that are as they were saved; `place` names the line of an answer.
fn score(
    rewards: &[WeightedReward],
    answers: &[Answer],
    place: &dyn Fn(usize) -> String,
) -> anyhow::Result<Vec<Scores>> {
    Manifest::verify_judges(rewards).map_err(|e| {
        let what = format!("rewards: the reward model's checkpoint is damaged: {e}");
        Failure::user_error(one_line(&what), Fault::HINT)
    })?;
    let scores = Scorer::new(rewards).score(answers);
    Ok(scores.map_err(|e| {
        let place = place(e.number);
        match e.what == NO_REFERENCE {
            true => Failure::user_error(
                format!(
                    "{place}: it has no `reference`, the correct answer that reward `{}` compares with",
                    e.name
                ),
                format!("write {EXAMPLE}, or use another reward"),
            ),
            false => Failure::user_error(format!("{place}: {e}"), "fix the reward or the row"),
        }
    })?)
}

const EXAMPLE: &str = r#"{"prompt": "1+1=", "answer": "2", "reference": "2"}"#;

/// The answers of a file, and the line of each.
fn read(path: &Path) -> anyhow::Result<(Vec<Answer>, Vec<usize>)> {
    let shown = shown(path);
    let text = read_plain_text(path)
        .map_err(|e| Failure::user_error(format!("{shown}: {e}"), "name a file of JSON lines"))?;
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
    let read = lines.map(|(at, line)| {
        let found = answer(line).map_err(|what| {
            Failure::user_error(
                format!("{shown}:{}: {what}", at + 1),
                format!("write {EXAMPLE}"),
            )
        });
        found.map(|answer| (answer, at + 1))
    });
    let (answers, places): (Vec<Answer>, Vec<usize>) =
        read.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
    if answers.is_empty() {
        return Err(Failure::user_error(
            format!("{shown} holds no answers"),
            "write one JSON object per line",
        )
        .into());
    }
    Ok((answers, places))
}

fn answer(line: &str) -> Result<Answer, String> {
    let row: Map<String, Value> = serde_json::from_str(line).map_err(|e| e.to_string())?;
    let text = |key: &str| match row.get(key) {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text.clone()),
        Some(other) => Some(other.to_string()),
    };
    let written = text("answer").ok_or("it has no `answer`")?;
    // As a run reads it, and as a program of it is given it.
    let said = match text("thought") {
        Some(thought) => Said {
            is_unfinished: written.trim().is_empty(),
            alone: written.clone(),
            text: written.clone(),
            thought: Some(thought),
        },
        None => Said::of_text(&written),
    };
    let completion = text("completion").unwrap_or_else(|| written.clone());
    let metadata = row.get("metadata").and_then(Value::as_object);
    Ok(Answer {
        prompt: text("prompt").unwrap_or_default(),
        // Without a tokenizer, words stand for tokens.
        tokens: row
            .get("tokens")
            .and_then(Value::as_u64)
            .map_or_else(|| completion.split_whitespace().count(), |n| n as usize),
        behind: None,
        ended: (row.get("ended").and_then(Value::as_bool)).unwrap_or(!said.is_unfinished),
        thinking: thinking(&said, &completion),
        reference: Reference {
            answer: text("reference"),
            metadata: metadata.cloned().unwrap_or_default(),
        },
        text: said.text,
    })
}

fn sum(scores: &[Scores], at: usize) -> f64 {
    plain(scores.iter().map(|s| s.weight * s.values[at]).sum())
}

/// The number without the sign of a zero: an answer of no tokens costs 0, not -0.
fn plain(x: f64) -> f64 {
    x + 0.0
}

/// To three digits, without a sign before zeros.
fn three(x: f64) -> String {
    let text = format!("{x:.3}");
    match text.strip_prefix('-') {
        Some(zero) if zero.chars().all(|c| "0.".contains(c)) => zero.into(),
        _ => text,
    }
}

/// (mean, standard deviation, share of zeros)
fn summary(values: &[f64]) -> (f64, f64, f64) {
    let zeros = values.iter().filter(|x| **x == 0.0).count();
    (
        plain(stats::mean(values.iter().copied()).unwrap_or_default()),
        stats::sample_std(values),
        zeros as f64 / values.len().max(1) as f64,
    )
}

fn table(answers: &[Answer], scores: &[Scores]) -> String {
    let mut out = String::new();
    let width = scores
        .iter()
        .map(|s| s.name.len().max(7))
        .collect::<Vec<_>>();
    let _ = write!(out, "{:>8}", "reward");
    for (scores, width) in scores.iter().zip(&width) {
        let _ = write!(out, "  {:>width$}", scores.name);
    }
    let _ = writeln!(out, "  answer");
    for (at, answer) in answers.iter().enumerate() {
        let _ = write!(out, "{:>8}", three(sum(scores, at)));
        for (scores, width) in scores.iter().zip(&width) {
            let _ = write!(out, "  {:>width$}", three(scores.values[at]));
        }
        let shown: String = one_line(answer.text.trim()).chars().take(SHOWN).collect();
        let _ = writeln!(out, "  {shown}");
    }
    let _ = writeln!(out);
    for scores in scores {
        let (mean, std, zeros) = summary(&scores.values);
        let _ = writeln!(
            out,
            "{}: weight {}, mean {}, std {}, {} zeros{}",
            scores.name,
            scores.weight,
            three(mean),
            three(std),
            percent(zeros, 0),
            match scores.n_failed() {
                0 => String::new(),
                n => format!(", {n} not scored"),
            }
        );
    }
    out
}

fn lines(answers: &[Answer], scores: &[Scores]) -> serde_json::Result<String> {
    let of = |at: usize| -> Map<String, Value> {
        let one = |s: &Scores| (s.name.clone(), plain(s.values[at]).into());
        scores.iter().map(one).collect()
    };
    let mut out = String::new();
    for (at, answer) in answers.iter().enumerate() {
        let line = json!({"answer": answer.text, "reward": sum(scores, at), "rewards": of(at)});
        let _ = writeln!(out, "{}", json_line(&line)?);
    }
    let each = scores.iter().map(|s| {
        let (mean, std, zeros) = summary(&s.values);
        let facts = json!({"weight": s.weight, "mean": mean, "std": std, "zero": zeros, "failed": s.n_failed()});
        (s.name.clone(), facts)
    });
    let summary = json!({"summary": each.collect::<Map<_, _>>()});
    let _ = writeln!(out, "{}", json_line(&summary)?);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reward_model_that_changed_after_it_was_saved_judges_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoint = folder.path().join("step-000004");
        std::fs::create_dir(&checkpoint).unwrap();
        std::fs::write(checkpoint.join("config.json"), "{}").unwrap();
        let manifest = |sha256: &str| {
            let file = json!({"bytes": 2, "sha256": sha256});
            let manifest = json!({"format": 1, "step": 4, "files": {"config.json": file}});
            std::fs::write(checkpoint.join("manifest.json"), manifest.to_string()).unwrap();
        };
        let rewards: Vec<WeightedReward> =
            serde_json::from_value(json!(["exact", {"model": {"path": checkpoint}}])).unwrap();
        let answers = [answer(r#"{"answer": "2", "reference": "2"}"#).unwrap()];
        let refused = || {
            let error = score(&rewards, &answers, &|_| "a.jsonl:1".into()).unwrap_err();
            let failure = error.downcast_ref::<Failure>().unwrap();
            (failure.what.clone(), failure.hint.clone())
        };
        manifest(&"0".repeat(64));
        let (what, hint) = refused();
        assert!(
            what.contains("is damaged") && what.contains("config.json"),
            "{what}"
        );
        assert!(what.contains("SHA-256"), "{what}");
        assert!(hint.contains("another checkpoint"), "{hint}");
        // The files as they were saved: what is wrong now is that they hold no model.
        manifest("44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a");
        let (what, _) = refused();
        assert!(!what.contains("damaged"), "{what}");
    }

    /// "Name the column with data.format" was said of a file that no data setting reads, without its line.
    #[test]
    fn a_line_without_a_reference_is_named_with_what_it_lacks() {
        let rewards: Vec<WeightedReward> = serde_json::from_value(json!(["number"])).unwrap();
        let answers = [
            answer(r#"{"answer": "2", "reference": "2"}"#).unwrap(),
            answer(r#"{"answer": "3"}"#).unwrap(),
        ];
        let place = |number| format!("a.jsonl:{}", number + 7);
        let error = score(&rewards, &answers, &place).unwrap_err();
        let failure = error.downcast_ref::<Failure>().unwrap();
        let (what, hint) = (&failure.what, &failure.hint);
        assert!(
            what.starts_with("a.jsonl:8: it has no `reference`"),
            "{what}"
        );
        assert!(
            what.contains("`number`") && !hint.contains("data.format"),
            "{what} {hint}"
        );
    }

    #[test]
    fn answers_are_read_with_their_place_and_scored_in_a_table() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("answers.jsonl");
        std::fs::write(
            &file,
            "{\"answer\": \"2\", \"reference\": 2}\n\n{\"answer\": \"3\", \"reference\": \"2\"}\n",
        )
        .unwrap();
        let (answers, lines_of) = read(&file).unwrap();
        assert_eq!(lines_of, [1, 3]);
        let rewards = serde_json::from_value::<Vec<_>>(
            json!(["exact", {"length": {"limit": 2}, "weight": 0.5}]),
        )
        .unwrap();
        let scores = Scorer::new(&rewards).score(&answers).unwrap();
        let text = table(&answers, &scores);
        assert!(text.contains("   0.750    1.000   -0.500  2\n"), "{text}");
        assert!(
            text.contains("exact: weight 1, mean 0.500, std 0.707, 50 % zeros"),
            "{text}"
        );
        // An answer of no tokens costs nothing, and no less.
        assert_eq!(
            [-0.0, -0.0004, -0.0006, 0.5].map(three),
            ["0.000", "0.000", "-0.001", "0.500"]
        );
        assert_eq!(json!(plain(-0.0)).to_string(), "0.0");
        let last = lines(&answers, &scores).unwrap();
        let last: Value = serde_json::from_str(last.lines().last().unwrap()).unwrap();
        assert_eq!(last["summary"]["exact"]["zero"], 0.5);
        std::fs::write(&file, "{\"prompt\": \"1\"}\n").unwrap();
        let error = read(&file).unwrap_err().to_string();
        assert!(error.contains(":1: it has no `answer`"), "{error}");
    }
}
