//! `llmtui train --branch RUN[@STEP] -s …`: a new run that goes on from a checkpoint of another one, with other settings. It
//! has a log of its own and names its parent; weights, moments and counters are the checkpoint's. `RUN@0` begins where its
//! parent began, with nothing of what it learned.

mod make;
mod refusals;

use super::args::SpecArgs;
use super::exit::Failure;
use super::run_ref::{
    check_kept_reference, checkpoint_of, named, sources_of, spec_of, whole_number,
};
use super::spec_changes::{self, Change, of_specs};
use super::{Context, model_ref};
use crate::base::human::grouped;
use crate::base::paths::check_utf8;
use crate::base::text::{one_line, shown};
use crate::engine::Progress;
use crate::engine::checkpoint::{self, Manifest};
use crate::run::compare::{Setting, settings};
use crate::run::{BRANCH_OF, CheckpointEntry, RunDir};
use crate::spec::{self, Loaded, Origin, RunSpec};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Display;

/// A branch that can be made.
#[derive(Debug)]
pub struct Branch {
    parent: RunDir,
    /// `None` from the start.
    from: Option<CheckpointEntry>,
    pub loaded: Loaded,
    /// Every value that is not the parent's: path, its value, the new one.
    changes: Vec<(String, String, String)>,
    /// Those of them that do not only follow from another one, as `runs --tree` lists them.
    told: Vec<Change>,
    /// Settings that `-s` names and that changed while the parent ran, by hand or by its controller, with the value that its
    /// checkpoint keeps: the branch takes its own.
    moved: Vec<(&'static str, f64)>,
    /// Rows of the parent's micro-batches.
    rows: usize,
}

/// What a branch goes on from, and what it changes.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// The parent's folder.
    run: String,
    /// 0 from the start.
    step: u64,
    /// `{path, was, is}` each.
    changes: Vec<Value>,
    /// Values that the parent was adjusted to while it ran, in whose place the branch takes its own.
    adjusted: BTreeMap<String, f64>,
}

impl Branch {
    /// Looks up `RUN`, `RUN@STEP` (0: from the start) or a run's newest checkpoint, and lays `-s` over the parent's spec. With
    /// `fresh_optimizer` its moments are not taken over, so they need not fit.
    ///
    /// # Errors
    /// No such run or checkpoint, a damaged one, values that cannot be or that no checkpoint of the parent fits.
    pub fn plan(
        word: &str,
        args: &SpecArgs,
        fresh_optimizer: bool,
        cx: &Context,
    ) -> anyhow::Result<Branch> {
        if args.target().is_some() {
            let hint = format!("llmtui train --branch {word} -s KEY=VALUE");
            return Err(Failure::user_error("a branch takes its parent's spec", hint).into());
        }
        let (parent, from) = origin(word, cx)?;
        check_utf8(parent.path()).map_err(|error| {
            let what = format!("{}: {error}", shown(parent.path()));
            Failure::user_error(what, "rename it, or move the run to another runs directory")
        })?;
        let of_parent = spec_of(&parent)?;
        let (was, rows) = (of_parent.to_value(), of_parent.train.micro_batch_size);
        let target = parent.spec_path().display().to_string();
        model_ref::pull_for_spec(&target, &args.set, cx)?;
        let sources = sources_of(&parent, &of_parent, cx);
        let mut loaded = spec::load(&target, &args.set, &sources)?;
        check_kept_reference(&parent, &loaded.spec)?;
        super::eval::known(&loaded.spec.eval.tasks, cx)?;
        let at = from.as_ref().map_or(0, |from| from.step);
        let place = format!("{}@{at}", one_line(&parent.folder()));
        let sets: String = args
            .set
            .iter()
            .map(|s| format!(" -s {}", one_line(s)))
            .collect();
        let body = loaded.asked.split_once('\n').map_or("", |(_, body)| body);
        loaded.asked = format!("{BRANCH_OF}{place}{sets}\n{body}");
        let is = loaded.spec.to_value();
        let (changes, told) = (differences(&was, &is), of_specs(&was, &is));
        let moved = match &from {
            Some(from) => moved(&read_state(from)?.progress, &of_parent, &loaded),
            None => Vec::new(),
        };
        let branch = Branch {
            parent,
            from,
            loaded,
            changes,
            told,
            moved,
            rows,
        };
        branch.check(fresh_optimizer)?;
        branch.check_batch(&of_parent)?;
        Ok(branch)
    }

    pub fn parent(&self) -> &RunDir {
        &self.parent
    }

    /// `branches off shakespeare-k3qf at step 500`, then a line for each change.
    pub fn lines(&self) -> Vec<String> {
        let parent = self.parent.folder();
        let mut lines = vec![match &self.from {
            Some(from) => format!("branch of {parent} at step {}", grouped(from.step)),
            None => format!("{parent} again, from the start"),
        }];
        for (key, value) in &self.moved {
            let value = spec::shown(&(*value).into());
            lines.push(format!(
                "  {key} was set to {value} while {parent} ran; the branch takes the value given for it"
            ));
        }
        if self.told.is_empty() && self.moved.is_empty() {
            lines.push("  no setting differs: it repeats its parent from there".into());
        }
        let widths = self.told.iter().map(|(path, ..)| path.len());
        let width = widths.max().unwrap_or(0);
        let row = |(path, was, is): &Change| {
            let (was, is) = (spec_changes::word(was), spec_changes::word(is));
            format!("  {path:<width$}  {was} → {is}")
        };
        lines.extend(self.told.iter().map(row));
        lines
    }

    /// The same for scripts.
    pub fn summary(&self) -> Summary {
        let taken = |(key, value): &(&'static str, f64)| (key.to_string(), *value);
        Summary {
            run: self.parent.folder(),
            step: self.from.as_ref().map_or(0, |from| from.step),
            changes: spec_changes::objects(&self.told),
            adjusted: self.moved.iter().map(taken).collect(),
        }
    }
}

/// The parent that a word names, and its whole checkpoint; `None` from the start.
fn origin(word: &str, cx: &Context) -> anyhow::Result<(RunDir, Option<CheckpointEntry>)> {
    let (run, step) = match word.rsplit_once('@') {
        Some((run, step)) => (run, Some(whole_number(step)?)),
        None => (word, None),
    };
    let parent = named(run, cx)?;
    let from = match step {
        // A run begins at the checkpoint that it was branched from, else at 0.
        Some(0) => match parent.branched_from().map_or(0, |from| from.step) {
            0 => None,
            step => Some(checkpoint_of(&parent, Some(step))?),
        },
        step => Some(checkpoint_of(&parent, step)?),
    };
    if let Some(from) = &from {
        Manifest::verify(&from.path).map_err(|e| broken(&e))?;
    }
    Ok((parent, from))
}

fn read_state(from: &CheckpointEntry) -> Result<checkpoint::SavedState, Failure> {
    checkpoint::read_state(&from.path).map_err(|e| broken(&e))
}

fn broken(error: &dyn Display) -> Failure {
    Failure::user_error(error.to_string(), checkpoint::Fault::HINT)
}

/// What was changed while a run trained lives on in its checkpoints, unless the branch says otherwise, by whatever name. The
/// learning rate of another optimizer says nothing of the new one's.
fn moved(progress: &Progress, was: &RunSpec, loaded: &Loaded) -> Vec<(&'static str, f64)> {
    let kept = &progress.adjustments;
    let spec = &loaded.spec;
    let (rule, method) = (spec.optimizer.entry().id, spec.method.entry().id);
    let said = |path: &str| matches!(loaded.origins.get(path), Origin::Set(_));
    let is_other = was.optimizer.entry().id != rule;
    let all = [
        (
            "lr",
            kept.lr,
            is_other || said(&format!("optimizer.{rule}.lr")),
        ),
        ("clip_norm", kept.clip_norm, said("train.clip_norm")),
        (
            "beta",
            progress.kl_coef,
            said(&format!("method.{method}.beta")),
        ),
    ];
    let taken = all
        .into_iter()
        .filter_map(|(key, value, said)| Some((key, value.filter(|_| said)?)));
    taken.collect()
}

/// Every value that is another one, by its dotted path.
fn differences(was: &Value, is: &Value) -> Vec<(String, String, String)> {
    let shown = |value: &Option<Value>| one_line(&spec::shown(value.as_ref().unwrap_or_default()));
    let row = |setting: Setting| {
        let values = &setting.values;
        (setting.path, shown(&values[0]), shown(&values[1]))
    };
    settings(&[was, is]).into_iter().map(row).collect()
}

#[cfg(test)]
mod tests;
