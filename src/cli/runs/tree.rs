//! `llmtui runs --tree`: which run came from which, and what each changed of its parent.

use super::rows_of;
use crate::base::human::grouped;
use crate::base::text::one_line;
use crate::cli::run_ref::spec_of;
use crate::run::RunDir;
use crate::run::compare::settings;
use crate::run::index::{RunStatus, RunSummary};
use crate::run::lineage::{Node, find_parent, tree};
use crate::spec::{is_default, shown};
use serde_json::{Value, json};
use std::path::Path;

/// A change of a run against its parent: path, the parent's value, its own; `None` where one has no such setting.
type Change = (String, Option<Value>, Option<Value>);

/// Settings that describe a run and change nothing of it.
const NAMES: [&str; 3] = ["name", "about", "group"];
/// Settings that name files of the model that a run starts from.
const PLACES: [&str; 2] = ["train.from", "data.tokenizer.file.path"];
/// Sections in which one of several is chosen, with settings of its own.
const CHOICES: [&str; 3] = ["method", "optimizer", "schedule"];

/// What differs from the parent's spec; nothing where one of them cannot be read.
fn changes(run: &RunSummary, parent: &RunSummary) -> Vec<Change> {
    let spec = |run: &RunSummary| Some(spec_of(&RunDir::open(&run.path).ok()?).ok()?.to_value());
    let (Some(was), Some(is)) = (spec(parent), spec(run)) else {
        return Vec::new();
    };
    let mut found = of_specs(&was, &is);
    // That it starts from the parent, with its tokenizer, is said by its place in the tree.
    found.retain(|(path, _, is)| !(PLACES.contains(&&**path) && lies_in(is, &parent.path)));
    found
}

/// Whether a value is a path below a folder.
fn lies_in(value: &Option<Value>, folder: &Path) -> bool {
    let said = value.as_ref().and_then(Value::as_str);
    let absolute = |path: &Path| std::path::absolute(path).ok();
    said.and_then(|said| absolute(Path::new(said)))
        .zip(absolute(folder))
        .is_some_and(|(said, folder)| said.starts_with(folder))
}

/// Where another method, optimizer or schedule was chosen, that comes first; the settings that went with the parent's are not
/// told one by one, nor those of its own that are as they always are.
fn of_specs(was: &Value, is: &Value) -> Vec<Change> {
    let chosen = |spec: &Value, section: &str| {
        let word = spec[section].as_object()?.keys().next()?;
        Some(Value::from(word.as_str()))
    };
    let mut found: Vec<Change> = Vec::new();
    let mut others: Vec<&str> = Vec::new();
    for section in CHOICES {
        let (was, is) = (chosen(was, section), chosen(is, section));
        if was != is {
            found.push((section.into(), was, is));
            others.push(section);
        }
    }
    let goes_along = |path: &str, is: &Option<Value>| {
        let usual = is.as_ref().is_none_or(|is| is_default(path, is));
        usual && others.iter().any(|section| path.starts_with(section))
    };
    let whole = [was, is];
    for setting in settings(&whole) {
        let Ok([was, is]) = <[Option<Value>; 2]>::try_from(setting.values) else {
            continue;
        };
        // A key that is not there and one that is null are both left to the program.
        let told = word(&was) != word(&is) && !NAMES.contains(&&*setting.path);
        let follows = derived(&setting.path, &whole);
        if told && !follows && !goes_along(&setting.path, &is) {
            found.push((setting.path, was, is));
        }
    }
    found
}

/// Whether a value follows from others in both specs: it was filled in, and what it follows from is told already.
fn derived(path: &str, specs: &[&Value]) -> bool {
    let at = |spec: &Value, path: &str| {
        let pointer = format!("/{}", path.replace('.', "/"));
        spec.pointer(&pointer).cloned().unwrap_or(Value::Null)
    };
    let rate = |spec: &Value| {
        let chosen = spec["optimizer"].as_object()?.values().next()?;
        chosen["lr"].as_f64()
    };
    // Where the spec has no such schedule nothing speaks against it.
    let of = |spec: &&Value| match (path.rsplit('.').next(), at(spec, path)) {
        (Some("min_lr" | "warmup_steps"), Value::Null) => true,
        (Some("min_lr"), min) => rate(spec)
            .zip(min.as_f64())
            .is_some_and(|(lr, min)| (min - lr / 10.0).abs() <= 1e-6 * lr),
        (Some("warmup_steps"), _) => !spec["train"]["warmup_ratio"].is_null(),
        _ => false,
    };
    path.starts_with("schedule.") && specs.iter().all(of)
}

/// A value as it is shown.
fn word(value: &Option<Value>) -> String {
    one_line(&shown(value.as_ref().unwrap_or(&Value::Null)))
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
        let mut words = rows_of(run).to_vec();
        // A run that was refused never said its method.
        words.retain(|word| !word.is_empty());
        if !matches!(run.status, RunStatus::Finished) {
            words.push(run.status.word().into());
        }
        let words = words.join("  ");
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
                let (was, is) = (word(was), word(is));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_from_the_rate_and_the_steps_is_no_change_of_its_own() {
        let spec = |lr: f64, min_lr: f64, warmup: u64, ratio: Value| {
            json!({
                "optimizer": {"adamw": {"lr": lr}}, "train": {"warmup_ratio": ratio},
                "schedule": {"cosine": {"min_lr": min_lr, "warmup_steps": warmup}},
            })
        };
        let paths = |was: &Value, is: &Value| -> Vec<String> {
            let told = of_specs(was, is).into_iter();
            told.map(|change| change.0).collect()
        };
        let was = spec(1e-3, 1e-4, 10, json!(0.1));
        let lower = spec(2e-4, 2e-5, 5, json!(0.1));
        assert_eq!(paths(&was, &lower), ["optimizer.adamw.lr"]);
        // What a user set stays.
        let said = spec(2e-4, 1e-6, 5, Value::Null);
        assert_eq!(
            paths(&was, &said),
            [
                "optimizer.adamw.lr",
                "train.warmup_ratio",
                "schedule.cosine.min_lr",
                "schedule.cosine.warmup_steps"
            ]
        );
    }

    #[test]
    fn another_method_is_one_change_and_what_went_with_the_first_is_not_told() {
        let was = json!({
            "about": "KTO teaches", "group": "demo", "method": {"kto": {"beta": 0.1, "reference": null}},
            "model": {"head_dim": null}, "optimizer": {"adamw": {"lr": 1e-3}},
        });
        let is = json!({
            "about": "SFT", "group": "template", "method": {"sft": {"neftune_alpha": 5.0}},
            "model": {}, "optimizer": {"adamw": {"lr": 1e-4}},
        });
        let told = of_specs(&was, &is);
        let told: Vec<String> = told
            .iter()
            .map(|(path, was, is)| format!("{path} {} {}", word(was), word(is)))
            .collect();
        assert_eq!(
            told,
            [
                "method kto sft",
                "method.sft.neftune_alpha auto 5",
                "optimizer.adamw.lr 0.001 1e-4",
            ]
        );
        assert_eq!(of_specs(&is, &is), []);
        // What a method has where nobody asks is no change of this run.
        let settings = json!({"beta": 0.1, "loss": ["sigmoid"], "nll_weight": 0, "mix": [], "label_smoothing": 0.2});
        let dpo = json!({"method": {"dpo": settings}, "optimizer": {"adamw": {"lr": 1e-4}}});
        let told = of_specs(&is, &dpo);
        let paths: Vec<&str> = told.iter().map(|change| &*change.0).collect();
        assert!(paths.contains(&"method.dpo.label_smoothing"), "{paths:?}");
        assert!(
            !paths.contains(&"method.dpo.mix") && !paths.contains(&"method.dpo.beta"),
            "{paths:?}"
        );
        let below = |at: &str| lies_in(&Some(json!(at)), Path::new("runs/sft"));
        assert!(below("runs/sft/checkpoints/step-000003") && !below("runs/sft-2/x"));
    }
}
