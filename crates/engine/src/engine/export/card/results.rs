//! Evaluations on a card: all in a table, and in the metadata those that others may compare with.

use super::plain;
use crate::base::human;
use crate::tasks::TaskOrigin;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// A result for the card: the metric and its value.
#[derive(Debug, Clone, PartialEq)]
pub struct CardResult {
    pub task: String,
    pub metric: String,
    pub value: f64,
    pub stderr: Option<f64>,
    pub items: usize,
    /// Worked examples in front of each prompt.
    pub shots: usize,
    /// Only the task's first items were asked.
    pub limited: bool,
    /// Who designed the task.
    pub origin: TaskOrigin,
}

/// The results of `model-index`: one of each task, number of worked examples and metric. Those of a task's first items alone are
/// no results of the task.
pub(super) fn listed(results: &[CardResult], hub_task: &str) -> Vec<Value> {
    let mut chosen: Vec<&CardResult> = Vec::new();
    for result in results.iter().filter(|result| !result.limited) {
        let same = |other: &&mut &CardResult| {
            (&other.task, &other.metric, other.shots)
                == (&result.task, &result.metric, result.shots)
        };
        match chosen.iter_mut().find(same) {
            Some(other) if other.items < result.items => *other = result,
            Some(_) => {}
            None => chosen.push(result),
        }
    }
    let entry = |result: &&CardResult| {
        // In the name, too: huggingface_hub puts metrics of one data set together and keeps the first one's arguments.
        let name = format!("{} ({}-shot)", result.metric, result.shots);
        json!({
            "task": {"type": hub_task},
            "dataset": {"name": result.task, "type": result.task, "args": {"num_few_shot": result.shots}},
            "metrics": [{"type": result.metric, "value": result.value, "name": name}],
        })
    };
    chosen.iter().map(entry).collect()
}

/// The section.
pub(super) fn evaluated(results: &[CardResult]) -> String {
    let mut out = String::from("By `llmtui eval`; ± is the standard error.");
    for (origin, what) in [
        (
            TaskOrigin::Harness,
            "prompts and metrics as lm-evaluation-harness 0.4 has them, worked examples the first of their source",
        ),
        (TaskOrigin::Program, "prompts and metrics of llmtui"),
        (TaskOrigin::Synthetic, "synthetic, made up by llmtui"),
        (TaskOrigin::Own, "the publisher's own"),
    ] {
        let mut tasks: Vec<String> = Vec::new();
        for result in results.iter().filter(|result| result.origin == origin) {
            let name = plain(&result.task);
            if !tasks.contains(&name) {
                tasks.push(name);
            }
        }
        if !tasks.is_empty() {
            let _ = write!(out, "\n- {}: {what}", tasks.join(", "));
        }
    }
    if results.iter().any(|result| result.limited) {
        out.push_str("\n\nWhere \"only\" stands before the items, no others were asked (`--limit`): no results of the task.");
    }
    out.push_str(
        "\n\n| task | worked examples | metric | value | items |\n|---|---|---|---|---|\n",
    );
    for result in results {
        let value = human::with_error(result.value, result.stderr);
        let (task, metric) = (plain(&result.task), plain(&result.metric));
        let items = match result.limited {
            true => format!("only {}", result.items),
            false => result.items.to_string(),
        };
        let _ = writeln!(
            out,
            "| {task} | {} | {metric} | {value} | {items} |",
            result.shots
        );
    }
    out
}
