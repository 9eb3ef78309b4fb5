//! What a branch may not change: what its checkpoint fixes, the size of its steps, and its data.

use super::{Branch, read_state};
use crate::base::human::{counted, grouped};
use crate::base::ssh::shell_quote;
use crate::base::text::{one_line, shown};
use crate::cli::Context;
use crate::cli::exit::Failure;
use crate::cli::spec_changes::{self, Change};
use crate::data::DataEnv;
use crate::engine::checkpoint::Fingerprint;
use crate::engine::checkpoint::fingerprint::Match;
use crate::run::CheckpointEntry;
use crate::spec::RunSpec;

/// What the weights of a checkpoint, and with them its moments, are shaped by: another value is another model, not a branch.
const SHAPES: [&str; 7] = [
    "model",
    "adapter",
    "data.tokenizer",
    "method",
    "train.from",
    "train.dequantize",
    "train.freeze",
];
/// What shapes the moments alone: another optimizer, not one of its settings.
const MOMENTS: [&str; 2] = ["optimizer", "optimizer.soap.max_dim"];
/// Of these, what no weights of a checkpoint fit when it is another.
const WEIGHTS: [&str; 3] = ["model", "data.tokenizer", "train.from"];
/// The method with a critic.
const PPO: &str = crate::methods::ppo::ENTRY.id;
/// What stands among these and shapes nothing.
const SHAPELESS: &str = ".dropout";

impl Branch {
    /// Refuses values that no checkpoint of the parent fits, and a branch with nothing left to train.
    pub(super) fn check(&self, fresh_optimizer: bool) -> anyhow::Result<()> {
        let Some(from) = &self.from else {
            return Ok(());
        };
        // A critic's weights and moments are read together.
        let without_moments = fresh_optimizer && self.loaded.spec.method.entry().id != PPO;
        if let Some((path, was, is)) = self.shaped(without_moments) {
            let what =
                format!("a branch cannot change {path}: its checkpoint fixes {was}, not {is}");
            return Err(Failure::user_error(what, self.anew(&path, &is, from)).into());
        }
        let train = &self.loaded.spec.train;
        let max_steps = train.max_steps;
        // What epochs come to is known once the data are read.
        if train.epochs.is_none() && max_steps <= from.step {
            let what = format!(
                "step {} is the last one (max_steps {}): nothing is left to train",
                grouped(from.step),
                grouped(max_steps)
            );
            let hint = format!("-s max_steps={}", from.step + max_steps.max(100));
            return Err(Failure::user_error(what, hint).into());
        }
        Ok(())
    }

    /// The first change of what shapes weights or moments: path, the parent's value, the new one. A choice goes before the settings
    /// that come with it, of which the parent has none.
    fn shaped(&self, without_moments: bool) -> Option<(String, String, String)> {
        let shapes = |path: &str| {
            let under = |shape: &&str| path == *shape || path.starts_with(&format!("{shape}."));
            let of_weights = SHAPES.iter().any(under) && !path.ends_with(SHAPELESS);
            of_weights || !without_moments && MOMENTS.contains(&path)
        };
        let words = |(path, was, is): &Change| {
            (
                path.clone(),
                spec_changes::word(was),
                spec_changes::word(is),
            )
        };
        let told = self.told.iter().find(|(path, ..)| shapes(path));
        told.map(words).or_else(|| {
            let mut all = self.changes.iter();
            all.find(|(path, ..)| shapes(path)).cloned()
        })
    }

    /// How to train with such a change: in a new run from the checkpoint's weights, or from the start where no weights fit it.
    fn anew(&self, path: &str, is: &str, from: &CheckpointEntry) -> String {
        let spec = shell_quote(&shown(&self.parent.spec_path()));
        let word = |path: &str, is: &str| format!("-s {}", shell_quote(&format!("{path}={is}")));
        // Whatever else was asked for stays asked for.
        let others = self.told.iter().filter(|(told, ..)| told != path);
        let others = others.map(|(told, _, is)| word(told, &spec_changes::word(is)));
        let set: Vec<String> = [word(path, is)].into_iter().chain(others).collect();
        let set = set.join(" ");
        let under = |shape: &&str| path == *shape || path.starts_with(&format!("{shape}."));
        if !WEIGHTS.iter().any(under) {
            let from = shell_quote(&shown(&from.path));
            let fresh = match MOMENTS.contains(&path) && self.loaded.spec.method.entry().id != PPO {
                true => "--fresh-optimizer drops its moments; or ",
                false => "",
            };
            return format!(
                "{fresh}start a new run from its weights: llmtui train {spec} {set} -s train.from={from}"
            );
        }
        // A branch of a branch begins with a checkpoint, too.
        match self.parent.branched_from().map_or(0, |from| from.step) {
            0 => format!(
                "train it from the start: llmtui train --branch {}@0 {set}",
                shell_quote(&one_line(&self.parent.folder()))
            ),
            _ => format!("train it from the start: llmtui train {spec} {set}"),
        }
    }

    /// A branch goes on at its checkpoint's place in the data, which is counted in micro-batches. With another number of rows in a
    /// step, passes over the data and the prompts of rollouts would be counted from a beginning that never was.
    pub(super) fn check_batch(&self, was: &RunSpec) -> anyhow::Result<()> {
        let Some(from) = &self.from else {
            return Ok(());
        };
        let rows = |spec: &RunSpec| spec.train.micro_batch_size * spec.train.grad_accum_steps;
        let now = &self.loaded.spec;
        let other = rows(was) != rows(now) || was.train.batch_ramp != now.train.batch_ramp;
        let counts = match (now.train.epochs, now.method.on_policy()) {
            (Some(_), _) => "train.epochs counts passes",
            (None, Some(_)) => "rollouts count their prompts",
            (None, None) => return Ok(()),
        };
        if !other {
            return Ok(());
        }
        let what = format!(
            "a branch with {} in a step instead of {}: {counts} over steps of one size",
            counted(rows(now) as u64, "row"),
            grouped(rows(was) as u64)
        );
        let hint = format!(
            "keep micro_batch_size · grad_accum_steps at {}, or start a new run from its weights: llmtui train {} -s train.from={}",
            rows(was),
            shell_quote(&shown(&self.parent.spec_path())),
            shell_quote(&shown(&from.path))
        );
        Err(Failure::user_error(what, hint).into())
    }

    /// Refuses other data than those of the checkpoint, as the engine would behind a run that is made already. They are read
    /// only where a setting of theirs was changed: a file that moved is the same text.
    ///
    /// # Errors
    /// Other data; data that cannot be read.
    pub fn check_data(&self, cx: &Context) -> anyhow::Result<()> {
        let Some(from) = &self.from else {
            return Ok(());
        };
        let data_changes = self
            .changes
            .iter()
            .any(|(path, ..)| path.starts_with("data."));
        if !data_changes {
            return Ok(());
        }
        let spec = &self.loaded.spec;
        let surroundings = DataEnv::from_env(&cx.env);
        let data = spec
            .open_data(&surroundings)
            .map_err(|e| Failure::data(&e))?;
        let saved = read_state(from)?;
        match saved.fingerprint.compare(&Fingerprint::of(spec, &data)) {
            Match::Different(why) => Err(self.other_data(from, &why).into()),
            Match::Exact | Match::Inexact(_) => Ok(()),
        }
    }

    fn other_data(&self, from: &CheckpointEntry, why: &str) -> Failure {
        let sets: String = self
            .changes
            .iter()
            .filter(|(path, ..)| path.starts_with("data."))
            .map(|(path, _, is)| format!(" -s {path}={is}"))
            .collect();
        Failure::user_error(
            format!("a branch continues in the data of its checkpoint: {why}"),
            format!(
                "start a new run from its weights: llmtui train {} -s train.from={}{sets}; or use --force, which keeps the optimizer state and the step count",
                shown(&self.parent.spec_path()),
                shown(&from.path)
            ),
        )
    }
}
