//! From rows to requests to the model: prompts with their few-shot examples, continuations, targets.

use super::config::{Check, Kind};
use super::error::TaskError;
use super::ifeval::{self, Instruction};
use super::task::{Counter, Task};
use crate::data::{DataError, Record};
use regex::Regex;
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Stands between worked examples, and between the last one and the prompt.
const BETWEEN: &str = "\n\n";

/// Stands in a program for the answer, in a sign for private use that no row holds.
pub(super) const COMPLETION: &str = "\u{e000}completion\u{e000}";

/// What is asked for one row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Item {
    /// From 0, in the order of the source.
    pub number: usize,
    pub place: String,
    pub group: Option<String>,
    pub asked: Asked,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Asked {
    /// (context, continuation) of each choice, what their lengths are measured by, and the right one.
    Choice {
        pairs: Vec<(String, String)>,
        choices: Vec<String>,
        gold: usize,
    },
    Continuation {
        context: String,
        continuation: String,
    },
    Text {
        text: String,
        /// What its loss is divided by, where that is not the text's own length.
        #[serde(skip_serializing_if = "Option::is_none")]
        bytes: Option<usize>,
    },
    Answer {
        prompt: String,
        /// What the assistant's turn begins with.
        #[serde(skip_serializing_if = "Option::is_none")]
        prefix: Option<String>,
        target: String,
        /// What `answer.counts` looks for, in its order.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        patterns: Vec<String>,
        /// What `answer.check` checks.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        instructions: Vec<Instruction>,
        /// What `answer.python` runs, with [`COMPLETION`] where the answer belongs.
        #[serde(skip_serializing_if = "Option::is_none")]
        program: Option<String>,
        /// The row, for `answer.rewards`.
        #[serde(skip_serializing_if = "Map::is_empty")]
        metadata: Row,
    },
}

type Row = Map<String, Value>;

struct Maker<'a> {
    task: &'a Task,
    shots: &'a [Record],
}

/// One item a row.
///
/// # Errors
/// A row that lacks what a template asks for, or has no right choice.
pub(super) fn items(
    task: &Task,
    rows: &[Record],
    shots: &[Record],
) -> Result<Vec<Item>, TaskError> {
    let maker = Maker { task, shots };
    let made = rows.iter().enumerate().map(|(number, row)| {
        let place = row.place.to_string();
        let fail = |fault: Fault| match fault {
            Fault::Data(why) => TaskError::Row {
                task: format!("{}, {place}", task.config.name),
                why,
            },
            Fault::Said(what) => TaskError::item(&task.config.name, &place, what),
        };
        let asked = maker.asked(row).map_err(fail)?;
        let group = maker.group(&row.fields).map_err(fail)?;
        Ok(Item {
            number,
            asked,
            group,
            place,
        })
    });
    made.collect()
}

/// At most `limit` rows of a task: the first ones, but of a task with groups as many of each group as of any other. Rows of one
/// group often stand together, so the first ones would be of a few groups alone.
///
/// # Errors
/// A row that lacks what the group is made of.
pub(super) fn limited(
    task: &Task,
    mut rows: Vec<Record>,
    limit: Option<usize>,
) -> Result<Vec<Record>, TaskError> {
    let Some(limit) = limit.filter(|limit| *limit < rows.len()) else {
        return Ok(rows);
    };
    let Some(group) = &task.group else {
        rows.truncate(limit);
        return Ok(rows);
    };
    // By group: its place among the groups, and how many rows of it came before.
    let mut groups: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let mut ranks = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        let value = group.value(&row.fields).map_err(|why| TaskError::Row {
            task: format!("{}, {}", task.config.name, row.place),
            why,
        })?;
        let next = groups.len();
        let (place, seen) = groups.entry(said(&value)).or_insert((next, 0));
        ranks.push((*seen, *place, at));
        *seen += 1;
    }
    ranks.sort_unstable();
    let kept: BTreeSet<usize> = ranks[..limit].iter().map(|(.., at)| *at).collect();
    let mut at = 0..;
    rows.retain(|_| at.next().is_some_and(|at| kept.contains(&at)));
    Ok(rows)
}

enum Fault {
    Data(DataError),
    Said(String),
}

impl From<DataError> for Fault {
    fn from(error: DataError) -> Fault {
        Fault::Data(error)
    }
}

impl Maker<'_> {
    fn group(&self, row: &Row) -> Result<Option<String>, Fault> {
        let value = self.task.group.as_ref().map(|f| f.value(row)).transpose()?;
        Ok(value.map(|value| said(&value)))
    }

    fn asked(&self, record: &Record) -> Result<Asked, Fault> {
        let row = &record.fields;
        let config = &self.task.config;
        if config.kind == Kind::Text {
            let measured = self.task.measured.as_ref();
            let measured = measured.map(|template| template.render(row)).transpose()?;
            return Ok(Asked::Text {
                text: self.task.prompt.render(row)?,
                bytes: measured.map(|text| text.len()),
            });
        }
        let head = self.head(record)?;
        let pair = |prompt: &str, continuation: &str| {
            let continuation = format!("{}{continuation}", config.delimiter);
            (format!("{head}{prompt}"), continuation)
        };
        if config.kind == Kind::Choice {
            let (prompts, choices) = self.alternatives(row)?;
            let gold = self.gold(row, choices.len())?;
            let pairs = prompts.iter().zip(&choices);
            return Ok(Asked::Choice {
                pairs: pairs.map(|(p, c)| pair(p, c)).collect(),
                choices,
                gold,
            });
        }
        let prompt = self.task.prompt.render(row)?;
        let target = self.target(row)?;
        Ok(match config.kind {
            Kind::Answer => Asked::Answer {
                prompt: format!("{head}{prompt}"),
                prefix: self.prefix(row)?,
                target,
                patterns: self.patterns(row)?,
                instructions: match config.answer.check {
                    Some(Check::Ifeval) => ifeval::read(row).map_err(Fault::Said)?,
                    None => Vec::new(),
                },
                program: self.program(row)?,
                metadata: match config.answer.rewards.is_empty() {
                    true => Row::new(),
                    false => row.clone(),
                },
            },
            _ => {
                let (context, continuation) = pair(&prompt, &target);
                Asked::Continuation {
                    context,
                    continuation,
                }
            }
        })
    }

    fn prefix(&self, row: &Row) -> Result<Option<String>, Fault> {
        let prefix = self.task.prefix.as_ref().map(|t| t.render(row));
        Ok(prefix.transpose()?)
    }

    fn program(&self, row: &Row) -> Result<Option<String>, Fault> {
        let Some(template) = &self.task.program else {
            return Ok(None);
        };
        let mut row = row.clone();
        row.insert("completion".into(), COMPLETION.into());
        let own = self.task.config.answer.python.as_ref();
        if own.is_some_and(|python| python.run.contains("__main__")) {
            let why = "answer.python.run: what stands under `if __name__ == \"__main__\":` would not run; call the tests without it";
            return Err(Fault::Said(why.into()));
        }
        Ok(Some(template.render(&row)?))
    }

    fn patterns(&self, row: &Row) -> Result<Vec<String>, Fault> {
        let one = |counter: &Counter| {
            let Some(template) = &counter.template else {
                return Ok(counter.pattern.clone());
            };
            let source = template.render(row)?;
            let name = &counter.name;
            match Regex::new(&source) {
                Ok(_) => Ok(source),
                Err(e) => Err(Fault::Said(format!(
                    "the pattern of `{name}`, {source}: {e}"
                ))),
            }
        };
        self.task.counters.iter().map(one).collect()
    }

    /// Prompts and continuations, as many of one as of the other.
    fn alternatives(&self, row: &Row) -> Result<(Vec<String>, Vec<String>), Fault> {
        if let Some(prompts) = &self.task.prompts {
            let prompts = strings("prompts", &prompts.value(row)?)?;
            let target = self.target(row)?;
            let targets = vec![target; prompts.len()];
            return Ok((prompts, targets));
        }
        let choices = match &self.task.choices {
            Some(choices) => strings("choices", &choices.value(row)?)?,
            None => Vec::new(),
        };
        let prompt = self.task.prompt.render(row)?;
        Ok((vec![prompt; choices.len()], choices))
    }

    fn target(&self, row: &Row) -> Result<String, Fault> {
        let target = self.task.target.as_ref().map(|t| t.render(row));
        Ok(target.transpose()?.unwrap_or_default())
    }

    fn gold(&self, row: &Row, choices: usize) -> Result<usize, Fault> {
        let Some(gold) = &self.task.gold else {
            return Err(Fault::Said("the task has no `gold`".into()));
        };
        let value = gold.value(row)?;
        let labels = self
            .task
            .labels
            .as_ref()
            .map(|f| f.value(row))
            .transpose()?;
        let found = match (&value, &labels) {
            (Value::Bool(yes), _) => Some(usize::from(*yes)),
            (value, Some(Value::Array(labels))) => {
                let word = said(value);
                labels.iter().position(|label| said(label) == word.trim())
            }
            (value, _) => said(value).trim().parse().ok(),
        };
        found.filter(|gold| *gold < choices).ok_or_else(|| {
            Fault::Said(format!(
                "`gold` is {value}, which is not one of its {choices} choices"
            ))
        })
    }

    /// The description and the worked examples.
    fn head(&self, record: &Record) -> Result<String, Fault> {
        let row = &record.fields;
        let mut head = self.task.description.render(row)?;
        let (count, skip) =
            (self.task.config.shots.as_ref()).map_or((0, 0), |shots| (shots.count, shots.skip));
        let same = match &self.task.same {
            Some(same) => Some((same, same.value(row)?)),
            None => None,
        };
        let mut left = count;
        for shot in self.shots.iter().skip(skip) {
            let fits = match &same {
                Some((formula, value)) => formula.value(&shot.fields)? == *value,
                None => true,
            };
            // A row is no example for itself, where both come from one source.
            if left == 0 || !fits || shot.fields == *row {
                continue;
            }
            head += &self.worked(&shot.fields)?;
            head += BETWEEN;
            left -= 1;
        }
        match left {
            0 => Ok(head),
            _ => Err(Fault::Said(format!(
                "{count} few-shot examples are requested, but only {} are available for this row",
                count - left
            ))),
        }
    }

    /// A row with its right answer.
    fn worked(&self, row: &Row) -> Result<String, Fault> {
        let delimiter = &self.task.config.delimiter;
        let (prompt, answer) = match self.task.config.kind {
            Kind::Choice => {
                let (mut prompts, mut choices) = self.alternatives(row)?;
                let gold = self.gold(row, choices.len())?;
                (prompts.swap_remove(gold), choices.swap_remove(gold))
            }
            _ => (self.task.prompt.render(row)?, self.target(row)?),
        };
        Ok(format!("{prompt}{delimiter}{answer}"))
    }
}

fn said(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn strings(name: &str, value: &Value) -> Result<Vec<String>, Fault> {
    match value {
        Value::Array(items) if !items.is_empty() => Ok(items.iter().map(said).collect()),
        other => Err(Fault::Said(format!(
            "`{name}` is {other}; a non-empty list is needed"
        ))),
    }
}
