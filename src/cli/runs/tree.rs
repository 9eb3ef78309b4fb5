//! `llmtui runs --tree`: which run came from which, and what each changed of its parent.

use super::rows_of;
use crate::base::human::grouped;
use crate::base::text::one_line;
use crate::cli::run_ref::spec_of;
use crate::run::RunDir;
use crate::run::compare::settings;
use crate::run::index::RunSummary;
use crate::run::lineage::{Node, find_parent, tree};
use crate::spec::shown;
use serde_json::{Value, json};

/// A change of a run against its parent: path, the parent's value, its own.
type Change = (String, Value, Value);

/// What differs from the parent's spec; nothing where one of them cannot be read.
fn changes(run: &RunSummary, parent: &RunSummary) -> Vec<Change> {
    let spec = |run: &RunSummary| Some(spec_of(&RunDir::open(&run.path).ok()?).ok()?.to_value());
    let (Some(was), Some(is)) = (spec(parent), spec(run)) else {
        return Vec::new();
    };
    let value = |value: Option<Value>| value.unwrap_or_default();
    let found = settings(&[&was, &is]).into_iter();
    found
        .filter(|setting| setting.path != "name")
        .filter_map(|setting| {
            let [was, is] = <[Option<Value>; 2]>::try_from(setting.values).ok()?;
            Some((setting.path, value(was), value(is)))
        })
        .collect()
}

fn parent_in<'a>(run: &RunSummary, runs: &[&'a RunSummary]) -> Option<&'a RunSummary> {
    find_parent(run.parent.as_ref()?, runs.iter().copied())
}

/// ```text
/// shakespeare-k3qf  pretrain  2,000  val 1.8862
/// ├─ sft-p0aa  sft  400  val 0.9312
/// │    from step 2,000
/// │    optimizer.adamw.lr  0.001 → 5e-5
/// ```
pub fn text(runs: &[&RunSummary], utf8: bool, columns: Option<usize>) -> String {
    let mut out = String::new();
    let nodes = tree(runs);
    for (at, node) in nodes.iter().enumerate() {
        let run = runs[node.index];
        let [method, step, val] = rows_of(run);
        let words = [method, step, val].join("  ");
        let mut lines = vec![format!(
            "{}{}  {words}",
            node.branch(!utf8),
            one_line(&run.id)
        )];
        if let Some(parent) = &run.parent {
            let lead = lead(node, nodes.get(at + 1), utf8);
            let here = parent_in(run, runs);
            let gone = if here.is_none() { " (not here)" } else { "" };
            let step = grouped(parent.step);
            lines.push(format!(
                "{lead}from {}, step {step}{gone}",
                one_line(here.map_or(&parent.run, |run| &run.id))
            ));
            let changes = here.map(|parent| changes(run, parent)).unwrap_or_default();
            let width = changes
                .iter()
                .map(|c| c.0.chars().count())
                .max()
                .unwrap_or(0);
            for (path, was, is) in &changes {
                let (was, is) = (one_line(&shown(was)), one_line(&shown(is)));
                lines.push(format!("{lead}{path:<width$}  {was} → {is}"));
            }
        }
        for line in lines {
            let line: String = line.chars().take(columns.unwrap_or(usize::MAX)).collect();
            out.push_str(line.trim_end());
            out.push('\n');
        }
    }
    out
}

/// What stands in front of the lines under a row: the bars of its generations, and of its own children.
fn lead(node: &Node, next: Option<&Node>, utf8: bool) -> String {
    let bar = if utf8 { "│  " } else { "|  " };
    let below = next.is_some_and(|next| next.follows.len() > node.follows.len());
    let mut lead: String = node
        .follows
        .iter()
        .map(|more| if *more { bar } else { "   " })
        .collect();
    lead.push_str(if below { bar } else { "   " });
    lead
}

/// One object per run, parents before their children: id, depth, parent, what it changed.
pub fn objects(runs: &[&RunSummary]) -> Vec<Value> {
    let object = |node: &Node| {
        let run = runs[node.index];
        let changes = parent_in(run, runs).map(|parent| changes(run, parent));
        let changes: Vec<Value> = changes
            .unwrap_or_default()
            .into_iter()
            .map(|(path, was, is)| json!({"path": path, "was": was, "is": is}))
            .collect();
        json!({
            "id": run.id, "name": run.name, "path": run.path, "depth": node.follows.len(),
            "parent": run.parent, "method": run.method, "status": run.status.word(),
            "step": run.step, "val_loss": run.val_loss, "changes": changes,
        })
    };
    tree(runs).iter().map(object).collect()
}
