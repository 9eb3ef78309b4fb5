//! The items of a task with the results of each of several models.

use super::error::TaskError;
use super::record::{self, Record, Scored, UNFINISHED};
use super::table::{TaskRow, compared_by};
use std::collections::BTreeMap;

/// An item, and what each model made of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    pub item: usize,
    pub prompt: String,
    /// What is right; empty where nothing is.
    pub target: String,
    pub given: Vec<Option<ModelAnswer>>,
}

/// One model's answer.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelAnswer {
    pub text: String,
    /// By the metric that is compared: 1 is right and 0 is wrong where it is one of right or wrong.
    pub score: f64,
}

impl ModelAnswer {
    /// Right or wrong, where there is nothing in between.
    pub fn right(&self) -> Option<bool> {
        match self.score {
            1.0 => Some(true),
            0.0 => Some(false),
            _ => None,
        }
    }
}

impl Question {
    /// Whether a model gets right what the first one gets wrong (true), or the other way round (false).
    pub fn flip(&self, at: usize) -> Option<bool> {
        let right = |at: usize| self.given.get(at)?.as_ref()?.right();
        let (before, now) = (right(0)?, right(at)?);
        (before != now).then_some(now)
    }
}

/// The items of a task: prompt, what is right, what each model made of it. Files of other rows than the first one's are left
/// out, so that item by item the same was asked.
///
/// # Errors
/// A file of answers that cannot be read.
pub fn questions(row: &TaskRow) -> Result<Vec<Question>, TaskError> {
    let by = compared_by(&row.metric);
    let mut found: BTreeMap<usize, Question> = BTreeMap::new();
    for (at, cell) in row.cells.iter().enumerate() {
        let Some(cell) = cell.as_ref().filter(|cell| !cell.other_rows) else {
            continue;
        };
        let Some((_, records, _)) = record::read(&cell.file)? else {
            continue;
        };
        for record in records {
            let question = found.entry(record.item).or_insert_with(|| Question {
                item: record.item,
                prompt: prompt(&record),
                target: target(&record),
                given: vec![None; row.cells.len()],
            });
            if let Some(score) = record.scores.get(by) {
                question.given[at] = Some(ModelAnswer {
                    text: given(&record, by),
                    score: *score,
                });
            }
        }
    }
    Ok(found.into_values().collect())
}

fn prompt(record: &Record) -> String {
    match record.prompts.first() {
        Some(first) => first.clone(),
        None => record.prompt.clone(),
    }
}

fn target(record: &Record) -> String {
    match (record.gold, &record.target, record.scored.first()) {
        (Some(gold), ..) => choice(record, gold),
        (None, Some(target), _) => target.clone(),
        (None, None, Some(only)) => only.text.clone(),
        (None, None, None) => String::new(),
    }
}

/// Where prompts differ, the choice is in them.
fn choice(record: &Record, at: usize) -> String {
    let of_prompts = record.prompts.get(at).cloned();
    let text = record.scored.get(at).map(|scored| scored.text.clone());
    of_prompts.or(text).unwrap_or_default()
}

fn given(record: &Record, by: &str) -> String {
    if record.unfinished {
        return format!("({UNFINISHED})");
    }
    if let Some(answer) = &record.answer {
        let found = record.found.get(by).filter(|found| *found != answer);
        return match found {
            Some(found) => format!("{answer} [{found}]"),
            None => answer.clone(),
        };
    }
    if let Some(gold) = record.gold {
        return choice(record, picked(record, by, gold));
    }
    let greedy = match record.scored.iter().all(|scored| scored.greedy) {
        true => "each token is the most likely one",
        false => "another token is more likely",
    };
    match record.scores.get("logp") {
        Some(logp) if record.scored.is_empty() => format!("{logp:.2} nats"),
        Some(logp) => format!("{logp:.2} nats, {greedy}"),
        None => greedy.into(),
    }
}

/// The choice that counts as the model's: the one with the highest log-probability as the metric weighs it.
fn picked(record: &Record, by: &str, gold: usize) -> usize {
    if record.scores.get(by) == Some(&1.0) {
        return gold;
    }
    let value = |scored: &Scored| match by {
        // Without the blank between prompt and choice.
        "acc_norm" => {
            let text = scored.text.strip_prefix(' ').unwrap_or(&scored.text);
            scored.logp / text.chars().count().max(1) as f64
        }
        "acc_norm_tokens" => scored.logp / scored.tokens.max(1) as f64,
        _ => scored.logp,
    };
    let others = record.scored.iter().enumerate().filter(|(i, _)| *i != gold);
    let best = others.max_by(|a, b| value(a.1).total_cmp(&value(b.1)));
    best.map_or(gold, |(at, _)| at)
}
